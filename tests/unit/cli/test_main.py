"""The entry point as a process: what it loads, and how it ends."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from weft.cli.context import CommandContext
from weft.cli.main import CANNOT_WRITE

ROOT = Path(__file__).parents[3]
HEAVY = {"numpy", "pyarrow", "rich", "sqlalchemy", "yaml", "typing", "weft.runtime", "weft.engine"}


def loaded_by(*words: str) -> set[str]:
    code = (
        "import sys\n"
        "from weft.cli.main import main\n"
        f"code = main({list(words)!r})\n"
        f"print('loaded:', code, *(name for name in {sorted(HEAVY)!r} if name in sys.modules))"
    )
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT / "src")}
    answer = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    assert answer.returncode == 0, answer.stderr
    *_, said = answer.stdout.splitlines()
    assert said.split()[:2] == ["loaded:", "0"]
    return set(said.split()[2:])


@pytest.mark.parametrize("flag", ["--version", "-V"])
def test_the_version_loads_nothing(flag):
    assert loaded_by(flag) <= {"typing"}


@pytest.mark.parametrize("words", [("--help",), ("run", "--help"), ()])
def test_help_loads_no_database_and_no_arrays(words):
    assert not loaded_by(*words) & {"numpy", "pyarrow", "sqlalchemy", "yaml", "weft.engine"}


def test_no_library_reads_the_command_line(tmp_path):
    (tmp_path / "run.yaml").write_text("name: small\nentry_points:\n  one:\n    command: 'true'\n")
    code = "import sys; from weft.cli.main import main; print(main()); print(*sys.modules)"
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT / "src"), "HOME": str(tmp_path)}
    command = [sys.executable, "-c", code, "run", "run.yaml", "-q"]
    answer = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, check=True)
    _, code_line, modules = answer.stdout.splitlines()
    assert code_line == "0"
    assert not set(modules.split()) & {"argparse", "click", "cyclopts", "numpy", "pyarrow", "rich", "sqlalchemy"}
    assert not set(modules.split()) & {"inspect", "typing_extensions"}


def test_code_of_a_user_may_load_what_a_command_left_out():
    pytest.importorskip("typing_extensions")
    code = "from weft.cli.main import main; main(['errors']); import typing_extensions as found; print(found.__name__)"
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT / "src")}
    answer = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert answer.stdout.splitlines()[-1] == "typing_extensions"


def test_a_job_loads_what_it_needs_alone(tmp_path):
    container = {"name": "tensorflow", "image": "example/none:1", "command": ["true"]}
    worker = {"replicas": 1, "template": {"spec": {"containers": [container]}}}
    job = {"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "metadata": {"name": "job"}}
    (tmp_path / "job.yaml").write_text(json.dumps(job | {"spec": {"tfReplicaSpecs": {"Worker": worker}}}))
    code = "import sys; from weft.cli.main import main; print(main()); print(*sys.modules)"
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT / "src"), "HOME": str(tmp_path)}
    command = [sys.executable, "-c", code, "run", "job.yaml", "-q"]
    answer = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, check=True)
    _, code_line, modules = answer.stdout.splitlines()
    assert code_line == "0"
    seldom = {"weft.documents.yaml_hints", "weft.engine.explain", "weft.frontends.training.planning"}
    seldom |= {"weft.durability.snapshot", "weft.store.libc", "_hashlib", "ipaddress", "locale"}
    seldom |= {"weft.graph.keywords", "weft.admin.notices", "weft.operators.containers", "weft.worker.probing"}
    other_jobs = {"weft.frontends.training.trainjob", "weft.frontends.training.dockerfile"}
    other_jobs |= {f"weft.frontends.training.environments.{kind}" for kind in ("jax", "paddle", "pytorch", "xgboost")}
    library = {"ctypes", "getpass", "html", "inspect", "msgspec.inspect", "secrets", "shutil", "textwrap"}
    assert not set(modules.split()) & (seldom | other_jobs | library)


@pytest.mark.parametrize("words", [["ls"], ["show", "@last", "--json"]])
def test_a_folder_that_is_gone(tmp_path, words):
    (tmp_path / "gone").mkdir()
    code = "import os, sys; os.rmdir('../gone'); from weft.cli.main import main; sys.exit(main())"
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT / "src"), "HOME": str(tmp_path)}
    command = [sys.executable, "-P", "-c", code, *words]
    answer = subprocess.run(command, env=env, cwd=tmp_path / "gone", capture_output=True, text=True)
    assert answer.returncode == 4
    told = json.loads(answer.stdout)["error"]["message"] if "--json" in words else answer.stderr.splitlines()[0]
    assert told.removeprefix("error WEFT300: ") == "the current folder was removed"


def test_a_reader_that_has_had_enough(tmp_path):
    code = "import sys; from weft.cli.main import main; sys.exit(main())"
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT / "src"), "HOME": str(tmp_path)}
    command = [sys.executable, "-c", code, "errors"]
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait() == 141


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("words", [["errors"], ["config", "show", "--json"]])
def test_output_that_cannot_be_written_is_no_fault_of_weft(tmp_path, words):
    code = "import sys; from weft.cli.main import main; sys.exit(main())"
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT / "src"), "HOME": str(tmp_path)}
    with Path("/dev/full").open("w") as full:
        answer = subprocess.run(
            [sys.executable, "-c", code, *words], env=env, cwd=tmp_path, stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert answer.stderr == "error: the output cannot be written: No space left on device\n"
    assert answer.returncode == CANNOT_WRITE
    assert not list(tmp_path.rglob("crash-*"))


@pytest.mark.parametrize(("ends", "code"), [("return 3", 3), ("raise SystemExit(4)", 4), ("raise ValueError(5)", 1)])
def test_the_command_ends_with_the_code_of_main_after_all_was_undone(ends, code):
    told = (
        "import atexit, sys, threading\n"
        "from weft.cli import main\n"
        "def instead():\n"
        "    atexit.register(print, 'undone')\n"
        "    threading.Thread(target=lambda: (threading.main_thread().join(), print('over'))).start()\n"
        f"    {ends}\n"
        "main.main = instead\n"
        "main.command()\n"
    )
    done = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (code, "over\nundone\n")
    assert ("ValueError: 5" in done.stderr) == (code == 1)


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("weft --version > /dev/full", 74),
        ("weft errors > /dev/full", 74),
        ("weft errors WEFT300 >&-", 0),
        ("weft run nowhere.yaml 2> /dev/full", 4),
        ("weft run nowhere.yaml 2>&-", 4),
    ],
)
def test_the_exit_code_is_right_where_nothing_can_be_written(tmp_path, words, code, unbuffered):
    command = f'weft() {{ "{sys.executable}" -c "from weft.cli.main import command; command()" "$@"; }}; {words}'
    env = os.environ | {"PYTHONPATH": str(ROOT / "src"), "PYTHONUNBUFFERED": unbuffered}
    done = subprocess.run(["bash", "-c", command], cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr


@pytest.mark.parametrize(
    ("encoding", "unbuffered"), [("ascii", ""), ("ascii", "1"), ("latin-1", ""), ("cp1252", "1"), ("utf-8", "")]
)
def test_letters_that_the_encoding_of_the_output_lacks_are_escaped(tmp_path, encoding, unbuffered):
    def told(*words: str) -> str:
        done = subprocess.run(
            [sys.executable, "-c", "from weft.cli.main import command; command()", *words],
            cwd=tmp_path, env=env, capture_output=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout.decode(encoding)

    env = os.environ | {"PYTHONPATH": str(ROOT / "src"), "PYTHONIOENCODING": encoding, "PYTHONUNBUFFERED": unbuffered}
    (tmp_path / "ü.yaml").write_text(
        'name: w\nentry_points: {a: {command: "echo {{s}}", parameters: {s: 日本}}}\n', "utf-8"
    )
    assert told("run", "ü.yaml", "-q", "--note", "名 ü") == "run-000001\n"
    assert "run-000001" in told("show", "@last")
    run = json.loads(told("show", "@last", "--json"))["run"]
    assert (Path(run["file"]).name, run["note"], run["parameters"]) == ("ü.yaml", "名 ü", {"a.s": "日本"})
    assert json.loads(told("logs", "@last", "--json"))["line"] == "日本"


@pytest.mark.parametrize("name", ["queue", "json"])
def test_a_file_in_place_of_a_module_of_python_is_named(tmp_path, name):
    (tmp_path / f"{name}.py").write_text("WORDS = []\n")
    (tmp_path / "flow.py").write_text(
        "import weft\n@weft.command\ndef say():\n    return 'echo'\n@weft.pipeline\ndef flow():\n    say()\n"
    )
    env = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        [sys.executable, "-m", "weft", "run", "flow.py"],
        cwd=tmp_path, env=env, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2, done.stderr
    assert f"{tmp_path / name}.py is imported in place of Python's own module {name}" in done.stderr
    assert "fault of Weft" not in done.stderr


@pytest.mark.parametrize("words", [["--version"], ["errors"], ["config", "show"], ["--help"]])
def test_whoever_has_stopped_reading_is_told_by_the_exit_code(tmp_path, words):
    command = [sys.executable, "-c", "from weft.cli.main import command; command()", *words]
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            command, cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT / "src")}, stdout=writer,
            stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (141, "")


def test_each_message_is_written_when_it_is_made(tmp_path):
    with (tmp_path / "log").open("w", encoding="utf-8") as err:
        CommandContext(err=err).say("the server runs")
        assert (tmp_path / "log").read_text() == "the server runs\n"
