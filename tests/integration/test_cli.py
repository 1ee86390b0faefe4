"""The command line as people use it: processes, signals, and a run that is killed."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.started import start

ROOT = Path(__file__).parents[2]
MAIN = "from weft.cli.main import command; command()"
DEADLINE_S = 180.0

QUICK = """
name: quick
entry_points:
  first:
    command: echo "hello from $PF_STEP_NAME" && echo done > {{data}}
    artifacts: {output: [data]}
  second:
    command: cat {{data}}
    deps: first
    artifacts: {input: {data: "{{first.data}}"}}
fs_options:
  main_fs: {name: local}
"""

SLOW = """
name: slow
entry_points:
  first:
    command: echo begun && sleep 600
  second:
    command: echo never
    deps: first
"""


class Weft:
    """Starts command lines in a folder of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.env = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder / "home"),
            "PYTHONPATH": str(ROOT / "src"),
            "TMPDIR": str(folder),
        }

    def start(self, *words: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", MAIN, *words]
        pipe = subprocess.PIPE
        return start(command, cwd=self.folder, env=self.env, stdout=pipe, stderr=pipe, text=True)

    def __call__(self, *words: str) -> subprocess.CompletedProcess[str]:
        with self.start(*words) as process:
            out, err = process.communicate(timeout=DEADLINE_S)
        return subprocess.CompletedProcess(words, process.returncode, out, err)

    def state(self, run: str = "run-000001") -> str:
        answer = self("show", run, "--json")
        return str(json.loads(answer.stdout)["run"]["state"]) if answer.returncode == 0 else ""

    def wait_for_log(self) -> None:
        log = self.folder / ".weft/runs/run-000001/logs/first.0.log"
        until(lambda: log.is_file() and "begun" in log.read_text())


def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition, with a generous deadline."""
    end = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)


def sleepers(folder: Path) -> list[int]:
    """Return the processes that work in a folder."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if (entry / "cwd").readlink() == folder and b"sleep" in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


@pytest.fixture
def weft(tmp_path):
    (tmp_path / "home").mkdir()
    (tmp_path / "quick.yaml").write_text(QUICK)
    (tmp_path / "slow.yaml").write_text(SLOW)
    return Weft(tmp_path)


@pytest.fixture
def slow(weft):
    """A run that goes on for long, in its own process."""
    process = weft.start("run", "slow.yaml")
    weft.wait_for_log()
    yield process
    process.kill()
    process.communicate()
    until(lambda: not sleepers(weft.folder))


def test_a_run_from_start_to_end(weft):
    answer = weft("run", "quick.yaml")
    assert answer.returncode == 0, answer.stderr
    assert "run-000001 succeeded" in answer.stdout
    assert weft("logs", "1/first").stdout == "hello from first\n"
    assert weft("logs", "@last/second").stdout == "done\n"
    assert [run["id"] for run in json.loads(weft("ls", "--json").stdout)["runs"]] == ["run-000001"]
    assert weft("run", "-q", "quick.yaml").stdout == "run-000002\n"


def test_a_file_of_a_neighbouring_folder(weft):
    (weft.folder / "inside").mkdir()
    answer = weft("run", "inside/../quick.yaml")
    assert answer.returncode == 0, answer.stderr


def test_the_example(weft):
    shutil.copytree(ROOT / "examples" / "breast_cancer", weft.folder / "example", ignore=shutil.ignore_patterns(".*"))
    answer = weft("run", "example/run.yaml", "-p", "train.epochs=2", "--json")
    assert answer.returncode == 0, answer.stderr
    document = json.loads(answer.stdout)["run"]
    assert [step["state"] for step in document["steps"]] == ["succeeded"] * 4
    assert Path(document["outputs"]["report.report"]).exists()
    assert "epoch" in weft("logs", "1/train", "-C", "example").stdout


def test_items_that_never_began_are_counted_as_cancelled(weft):
    step = '{command: "test {{PF_LOOP_ARGUMENT}} -lt 2", loop_argument: [1, 2, 3, 4]}'
    (weft.folder / "loop.yaml").write_text(f"name: loop\nparallelism: 1\nentry_points:\n  s: {step}\n")
    weft("run", "loop.yaml")
    assert "4 items: 2 cancelled, 1 failed, 1 succeeded" in weft("show", "@last").stdout
    assert len(re.findall("○ cancelled", weft("show", "@last/s").stdout)) == 2


def test_a_pipeline_with_mistakes_starts_nothing(weft):
    (weft.folder / "bad.yaml").write_text("name: bad\nentry_points:\n  a:\n    comand: echo\n")
    answer = weft("run", "bad.yaml")
    assert answer.returncode == 3
    assert re.match(r"error WEFT20\d: bad\.yaml:4:", answer.stderr)
    assert not (weft.folder / ".weft" / "runs").exists()


@pytest.mark.parametrize("backend", ["threads", "processes"])
def test_an_output_that_is_a_link_to_nothing_is_told(weft, backend):
    step = "{command: 'ln -s nope \"{{model}}\"', artifacts: {output: [model]}}"
    (weft.folder / "forgetful.yaml").write_text(f"name: forgetful\nentry_points:\n  only: {step}\n")
    answer = weft("run", "forgetful.yaml", "--backend", backend)
    assert answer.returncode == 0, answer.stderr
    assert re.search(r"^only +✔ .*warning: its output model is a link to nothing", answer.stdout, re.MULTILINE)


@pytest.mark.parametrize("option", ["--user", "--notify", "--name"])
def test_an_empty_value_of_an_option_is_a_mistake(weft, option):
    (weft.folder / "a.yaml").write_text("name: a\nentry_points:\n  only: {command: 'true'}\n")
    answer = weft("run", "a.yaml", option, "")
    assert answer.returncode == 2, answer.stderr
    assert not (weft.folder / ".weft" / "runs").exists()


@pytest.mark.parametrize("backend", ["threads", "processes"])
def test_an_output_that_was_not_made_is_told(weft, backend):
    text = "name: forgetful\nentry_points:\n  only: {command: 'true', artifacts: {output: [model]}}\n  idle: {}\n"
    (weft.folder / "forgetful.yaml").write_text(text)
    answer = weft("run", "forgetful.yaml", "--backend", backend)
    assert answer.returncode == 0, answer.stderr
    assert re.search(r"^only +✔ succeeded .*warning: its output model was not made", answer.stdout, re.MULTILINE)
    assert "warning: no command, so nothing is run here" in answer.stderr
    assert "warning: its output model was not made" in weft("show", "@last").stdout
    assert re.search(r"^output only\.model +\S+/model \(not there\)$", weft("show", "@last").stdout, re.MULTILINE)
    assert re.search(r"^output model +\S+/model \(not there\)$", weft("show", "@last/only").stdout, re.MULTILINE)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_the_first_signal_ends_the_run_in_order(weft, slow, number, code):
    slow.send_signal(number)
    out, err = slow.communicate(timeout=DEADLINE_S)
    assert slow.returncode == code, err
    assert "cancelled: interrupted by" in err
    assert "press Ctrl-C again" not in err, "nobody sits there"
    assert re.search(r"^first +■ terminated", out, re.MULTILINE), "the table is printed all the same"
    assert "weft resume run-000001" in out
    assert sleepers(weft.folder) == []
    assert weft.state() == "terminated"


HANGUP = """
import os, pty, select, sys
pid, terminal = pty.fork()
if pid == 0:
    os.execv(sys.argv[1], sys.argv[1:])
while not os.path.exists("began"):
    try:
        if select.select([terminal], [], [], 0.05)[0]:
            os.read(terminal, 65536)
    except OSError:  # nohup has left it
        pass
os.close(terminal)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""


@pytest.mark.parametrize("backend", ["threads", "processes"])
@pytest.mark.parametrize("nohup", [False, True])
def test_the_end_of_the_terminal_ends_the_run_in_order(weft, backend, nohup):
    steps = "first: {command: 'touch began; until test -e go; do sleep 0.05; done'}"
    text = f"name: held\nentry_points:\n  {steps}\npost_process:\n  last: {{command: touch over}}\n"
    (weft.folder / "held.yaml").write_text(text)
    words = [*(["/usr/bin/nohup"] if nohup else []), sys.executable, "-P", "-c", MAIN]
    words += ["run", "held.yaml", "--backend", backend]
    process = start([sys.executable, "-c", HANGUP, *words], cwd=weft.folder, env=weft.env, stdin=subprocess.DEVNULL)
    try:
        until((weft.folder / "began").exists)
        if nohup:
            (weft.folder / "go").touch()
        assert process.wait(DEADLINE_S) == (0 if nohup else 129)
    finally:
        process.kill()
        process.wait()
    assert (weft.folder / "over").exists()
    assert weft.state() == ("succeeded" if nohup else "terminated")


def test_a_cancel_from_elsewhere(weft, slow):
    until(lambda: weft.state() == "running")  # a step may begin before the record of its start
    assert json.loads(weft("cancel", "@last", "--json").stdout)["run"] == "run-000001"
    slow.communicate(timeout=DEADLINE_S)
    assert slow.returncode == 130
    assert weft.state() == "terminated"
    assert weft("cancel", "@last").returncode == 7


def test_a_story_of_a_live_run(weft, slow):
    assert "first" in weft("story", "1").stdout


def test_a_plan_is_explained_while_it_runs_and_after_a_kill(weft, slow):
    live = weft("explain", "1").stdout.splitlines()
    assert live[0] == "slow: running"
    assert ["first", "1", "task", "0", "of", "1", "task", "so", "far"] in [line.split() for line in live]
    slow.kill()
    slow.wait(DEADLINE_S)
    killed = weft("explain", "1").stdout.splitlines()
    assert killed[0] == "slow: interrupted"
    assert killed[1:] == live[1:]


def test_a_plan_is_explained_when_it_has_ended(weft):
    weft("run", "quick.yaml")
    told = json.loads(weft("explain", "@last", "--json").stdout)
    assert (told["schema"], told["state"], told["remark"]) == ("weft.explain/1", "succeeded", "")
    assert told["graph"][0] == {
        "subject": "first",
        "planned": "1 task",
        "executed": "1 task",
        "kind": "vertex",
        "ends": [],
    }
    (weft.folder / ".weft/runs/run-000001/journal").unlink()
    assert "(its records alone tell this" in weft("explain", "@last").stdout


def test_logs_are_followed_while_a_run_goes_on(weft, slow):
    with weft.start("logs", "1", "-f") as reader:
        assert reader.stdout.readline() == "begun\n"
        weft("cancel", "1")
        assert reader.wait(timeout=DEADLINE_S) == 0


def test_a_killed_run_is_interrupted_and_leaves_no_process(weft, slow):
    slow.kill()
    slow.communicate()
    assert weft.state() == "interrupted"
    until(lambda: not sleepers(weft.folder))
    assert weft("run", "quick.yaml").returncode == 0
    assert weft.state() == "interrupted"
    assert weft("ls", "-q").stdout == "run-000002\nrun-000001\n"


def test_several_runs_at_once_get_ids_of_their_own(weft):
    started = [weft.start("run", "-q", "quick.yaml") for _ in range(3)]
    ids = sorted(process.communicate(timeout=DEADLINE_S)[0].strip() for process in started)
    assert ids == ["run-000001", "run-000002", "run-000003"]
    assert [process.returncode for process in started] == [0, 0, 0]


WAITS = """
name: waits
entry_points:
  first:
    command: echo begun; until test -e go; do sleep 0.02; done; exit {{code}}
    parameters: {code: 0}
"""


@pytest.mark.parametrize(("code", "answered", "ends"), [(0, True, 0), (0, False, 141), (3, False, 1)])
def test_a_reader_who_leaves_ends_no_run(weft, code, answered, ends):
    (weft.folder / "waits.yaml").write_text(WAITS)
    with weft.start("run", "waits.yaml", "-p", f"code={code}") as process:
        weft.wait_for_log()
        process.stderr.close()
        if not answered:
            process.stdout.close()
        (weft.folder / "go").touch()
        assert process.wait(DEADLINE_S) == ends
    assert weft.state() == ("failed" if code else "succeeded")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize(
    ("work", "late", "code"),
    [
        ("print('the result'); atexit.register(signal.raise_signal, NUMBER); return 0", True, 0),
        ("print('the result'); atexit.register(signal.raise_signal, NUMBER); return 1", True, 1),
        ("signal.raise_signal(NUMBER)", False, 128),
    ],
)
def test_a_signal_at_the_start_or_while_the_process_cleans_up_prints_no_traceback(number, work, late, code):
    program = (
        f"import atexit, signal\nfrom weft.cli import main\nNUMBER = {int(number)}\n"
        f"def work(): {work}\nmain.main = work\nmain.command()\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=DEADLINE_S)
    assert (done.stdout, done.stderr) == ("the result\n" if late else "", "")
    assert done.returncode == (code if late else code + number)
