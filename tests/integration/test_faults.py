"""Bad input and bad luck at the command line: one clear message each, nothing lost, nothing run that should not be."""

import io
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import weft
from tests.integration.places import DEADLINE_S, SOURCE, Project
from tests.started import have_ended
from weft import wiring
from weft.cli.context import CommandContext
from weft.cli.main import main
from weft.model.errors import TaskError, WeftError
from weft.runs.active import RunResult
from weft.runs.reading import read_run

ON = {"enable": True}
SIZE = 6 << 20
UNSHARE = ("unshare", "--user", "--map-root-user", "--mount", "--")


class Place(Project):
    """A folder with a pipeline that is run here, and asked about on the command line."""

    def write_text(self, text: str) -> None:
        self.file.write_text(text)

    def run(self, steps: dict[str, Any], **top: Any) -> RunResult:
        self.write(steps, **top)
        loaded = wiring.load_pipeline(str(self.folder / "run.yaml"), user="me")
        return wiring.run_pipeline(loaded, self.settings, quiet=True)

    def weft(self, *words: str) -> tuple[int, str, str]:
        out, err = io.StringIO(), io.StringIO()
        code = main(words, CommandContext(out=out, err=err, environ={"PATH": os.defpath}, cwd=self.folder))
        return code, out.getvalue(), err.getvalue()


@pytest.fixture
def place(tmp_path, monkeypatch) -> Place:
    place = Place(tmp_path / "project")
    monkeypatch.chdir(place.folder)
    return place


class TestFiles:
    @pytest.mark.parametrize(
        ("text", "told"),
        [
            ("a: &a [x, x]\n" + "\n".join(f"b{n}: &b{n} [*a, *a]" for n in range(60)), ""),
            ("name: x\nname: y\nentry_points: {a: {}}", "name"),
            ("name: x\nentry_points:\n  a: {command: one}\n  a: {command: two}", "a"),
            ("name: x\nentry_points: {a: {loop_argument: [" + "1," * 100_001 + "]}}", "more than 100000 values"),
            ("name: x\nentry_points:\n" + "  a:\n" * 300_000, "larger than 1 MiB"),
            ("name: x\nentry_points: {../a: {}}", "../a"),
            ("name: x\nentry_points: {'a;rm -rf b': {}}", "a;rm -rf b"),
            ("name: ../x\nentry_points: {a: {}}", "../x"),
            ("name: x\nentry_points: {a: {artifacts: {output: [../../b]}}}", "../../b"),
            ("name: x\nfs_options: {main_fs: {name: m, sub_path: ../up}}\nentry_points: {a: {}}", "sub_path"),
        ],
        ids=["bomb", "key", "step", "nodes", "size", "dots", "shell", "name", "output", "sub_path"],
    )
    def test_one_error_and_nothing_is_started(self, place, text, told):
        place.write_text(text)
        code, out, err = place.weft("run", "run.yaml")
        assert (code, out) == (3, ""), err
        assert "error WEFT20" in err
        assert told in err
        assert "Traceback" not in err
        assert len(err) < 10_000
        assert not (place.folder / ".weft").exists()

    def test_a_loop_of_too_many_steps(self, place):
        inner = {"in": {"loop_argument": [1] * 400, "entry_points": {"one": {"command": "true"}}}}
        steps = {"out": {"loop_argument": [1] * 400, "entry_points": inner}}
        place.write(steps)
        code, _, err = place.weft("run", "run.yaml")
        assert code == 3
        assert "the loops make more than 100000 steps" in err


@pytest.mark.parametrize("command", ["show", "logs", "cancel", "delete", "resume", "story", "explain"])
@pytest.mark.parametrize("name", ["../../etc", "/etc", "..", "run-000001/../../x", "$(touch bad)", "-", ""])
def test_names_of_runs_lead_nowhere_else(place, command, name):
    place.run({"a": {"command": "true"}})
    code, out, err = place.weft(command, "--", name)
    assert code in (2, 4, 5), (out, err)
    assert "error WEFT" in err
    assert not (place.folder / "bad").exists()
    assert (place.folder / ".weft" / "runs" / "run-000001").is_dir()


def test_a_folder_with_a_name_that_a_shell_would_run(tmp_path, monkeypatch):
    place = Place(tmp_path / "it's $(touch bad) `touch bad`; & é")
    monkeypatch.chdir(place.folder)
    steps = {
        "a": {"command": 'echo made > "$PF_OUTPUT_ARTIFACT_OUT"', "artifacts": {"output": ["out"]}, "cache": ON},
        "b": {"command": 'cat "$PF_INPUT_ARTIFACT_X"', "deps": "a", "artifacts": {"input": {"x": "{{a.out}}"}}},
    }
    assert place.run(steps).state == place.run(steps).state == "succeeded"
    assert place.weft("logs", "@last/b")[1] == "made\n"
    assert place.weft("delete", "1", "2")[0] == 0
    assert not list(tmp_path.rglob("bad"))


@pytest.mark.parametrize("backend", ["threads", "processes"])
@pytest.mark.parametrize("folder", [b"project", b"p\xff"])
def test_names_that_are_not_utf8(tmp_path, folder, backend):
    place = Project(Path(os.fsdecode(os.path.join(os.fsencode(tmp_path), folder))))
    (place.folder / "scope").mkdir()
    (place.folder / "scope" / os.fsdecode(b"a\xff")).write_text("x")
    step = {"command": "cp -r scope {{out}}", "artifacts": {"output": ["out"]}, "cache": {**ON, "fs_scope": [SCOPE]}}
    last = {"deps": "one", "command": "test -e go", "artifacts": {"input": {"in": "{{one.out}}"}}}
    place.file = place.folder / os.fsdecode(folder + b".yaml")
    place.write({"one": step, "last": last}, fs_options={"main_fs": {"name": "d"}})
    words = ("run", place.file.name, "--backend", backend)
    assert place.weft(*words)[0] == 1
    (place.folder / "go").touch()
    assert place.weft("resume", "1")[0] == 0
    assert "taken from the cache" in place.weft(*words)[1]
    (place.folder / "scope" / os.fsdecode(b"b\xfe")).write_text("y")
    assert r"b\xfe was added" in place.weft("plan", place.file.name)[1]
    code, out, err = place.weft(*words)
    assert code == 0, out + err
    assert r"b\xfe was added" in place.weft("why", "@last/one")[1]
    for asked in (("show", "1", "--json"), ("ls", "--json")):
        out = place.weft(*asked)[1]
        found = json.loads(out)
        assert {run["file"] for run in found.get("runs") or [found["run"]]} == {str(place.file)}
        assert out.isascii()
    assert place.weft("delete", "1", "2")[0] == place.weft("doctor")[0] == 0


def test_an_error_of_a_durable_task_that_names_such_a_file(tmp_path):
    def task() -> None:
        raise ValueError(os.fsdecode(b"a\xff"))

    graph = weft.Graph("g")
    graph.add(task, name="one")
    with weft.Session(durable=tmp_path / "state", workers=1) as session:
        run = session.submit(graph)
        with pytest.raises(TaskError, match="ValueError"):
            run.result(DEADLINE_S)
    assert read_run(tmp_path / "state/runs/run-000001").step("one").message.endswith(r"a\udcff")


SCOPE = {"name": "d", "path": "scope"}


class TestSteps:
    def test_that_print_binary(self, place):
        result = place.run({"a": {"command": "printf '\\033[31mred\\000\\377\\033]0;title\\007\\n'; exit 3"}})
        assert result.error is not None
        assert all(char == "\n" or char.isprintable() for char in str(result.error))
        assert "red" in str(result.error)
        _, out, _ = place.weft("show", "@last")
        assert "\x1b" not in out
        log = result.folder / "logs" / "a.0.log"
        assert log.read_bytes() == b"\x1b[31mred\x00\xff\x1b]0;title\x07\n", "the log has it byte for byte"

    def test_that_leave_a_daemon(self, place):
        daemon = 'echo $$ > pid; trap "" TERM HUP INT; while :; do sleep 1; done'
        text = f"setsid sh -c '{daemon}' & until test -s pid; do sleep 0.01; done"
        assert place.run({"a": {"command": text}}).state == "succeeded"
        pid = int((place.folder / "pid").read_text())
        assert have_ended(pid)

    def test_whose_output_leads_out_of_its_folder(self, place, tmp_path):
        secret = tmp_path / "secret"
        secret.write_text("keep me")
        steps = {
            "a": {"command": f"ln -s {secret} {{{{out}}}}", "artifacts": {"output": ["out"]}, "cache": ON},
            "b": {"command": "test -e repaired", "deps": "a"},
        }
        result = place.run(steps)
        assert "not kept" in read_run(result.folder).step("a").message
        (place.folder / "repaired").touch()
        Path(result.outputs["a.out"]).unlink()
        assert wiring.resume_run(result.folder, place.settings, quiet=True).state == "succeeded"
        assert place.weft("delete", "1")[0] == 0
        assert secret.read_text() == "keep me", "the link goes, not what it leads to"


class TestIndexes:
    @pytest.mark.parametrize("content", [b"nonsense" * 1000, b"SQLite format 3\0" + b"\xff" * 4096])
    def test_a_damaged_index_of_runs(self, place, content):
        place.run({"a": {"command": "true"}})
        index = place.folder / ".weft" / "weft.db"
        for name in ("weft.db-wal", "weft.db-shm"):
            index.with_name(name).unlink(missing_ok=True)
        index.write_bytes(content)
        code, out, _ = place.weft("doctor")
        assert (code, "the index of runs in" in out, "weft ls" in out) == (1, True, True)
        assert "run-000001" in place.weft("ls")[1]
        assert index.with_name("weft.db.damaged").read_bytes() == content
        assert place.weft("run", "run.yaml", "-q")[1] == "run-000002\n"
        assert place.weft("doctor")[0] == 0

    def test_runs_while_others_throw_results_away(self, place):
        """Whoever clears the cache, and whoever deletes runs, only costs time."""
        steps = {
            "a": {"command": "echo 1 > {{out}}", "artifacts": {"output": ["out"]}, "cache": ON},
            "b": {
                "command": "cat {{x}} {{x}} > {{out}}",
                "deps": "a",
                "artifacts": {"input": {"x": "{{a.out}}"}, "output": ["out"]},
                "cache": ON,
            },
        }
        place.run(steps)
        over = threading.Event()
        said: list[tuple[int, str]] = []

        def clear() -> None:
            while not over.is_set():
                for words in (("cache", "gc", "--max-size", "0"), ("delete", "@last")):
                    code, _, err = place.weft(*words)
                    if code not in (0, 4, 7):
                        said.append((code, err))

        thread = threading.Thread(target=clear)
        thread.start()
        loaded = wiring.load_pipeline(str(place.folder / "run.yaml"), user="me")
        try:
            for _ in range(5):
                read: list[str] = []

                def look(record: Any, read: list[str] = read) -> None:
                    if not record.step and record.ended:
                        read.append(record.state)

                try:
                    result = wiring.run_pipeline(loaded, place.settings, on_record=look)
                except WeftError as error:
                    pytest.fail(f"{error}")
                assert (result.state, read) == ("succeeded", ["succeeded"]), result.error
        finally:
            over.set()
            thread.join(DEADLINE_S)
        assert said == []
        assert place.weft("doctor")[0] == 0


PROGRAM = f"""
import json, os, sys
from pathlib import Path
from weft import wiring
from weft.runs.reading import read_run
from weft.admin.settings import Settings
folder = Path(sys.argv[1])
steps = {{"a": {{"command": "head -c {SIZE * 6 // 10} /dev/zero > {{{{out}}}}", "artifacts": {{"output": ["out"]}},
                "cache": {{"enable": True}}}}}}
(folder / "run.yaml").write_text(json.dumps({{"name": "x", "entry_points": steps}}))
settings = Settings(state_dir=folder / ".weft", user="me", backend="threads")
def run():
    return wiring.run_pipeline(wiring.load_pipeline(str(folder / "run.yaml"), user="me"), settings, quiet=True)
result = run()
assert result.state == "succeeded", result.error
message = read_run(result.folder).step("a").message
assert "its result is not kept" in message and "No space left on device" in message, message
assert os.path.getsize(result.outputs["a.out"]) == {SIZE * 6 // 10}
assert not list((folder / ".pipeline/.cas").rglob("*.part")) and not any((folder / ".pipeline/.cas/drafts").iterdir())
result = run()
assert result.state == "failed", result.state
assert "No space left" in str(result.error), result.error
print("ok")
"""


def test_a_disk_that_is_full_while_an_output_is_stored(tmp_path):
    mount = f'mount -t tmpfs -o size={SIZE} weft-test "$1" && shift && exec "$@"'
    argv = [*UNSHARE, "sh", "-c", mount, "sh", str(tmp_path)]
    if sys.platform != "linux" or subprocess.run([*argv, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no mount in a namespace")
    done = subprocess.run(
        [*argv, sys.executable, "-c", PROGRAM, str(tmp_path)],
        env=os.environ | {"PYTHONPATH": str(SOURCE)},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.stdout == "ok\n", done.stderr
