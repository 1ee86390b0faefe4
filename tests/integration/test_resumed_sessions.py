"""What a user of durable sessions meets when a run did not come to its end: messages, next steps, and `weft resume`."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft
from tests.integration.places import until
from tests.prepared import weft_command
from weft import Resources, wiring
from weft.admin.settings import load_settings
from weft.model.errors import CapacityError, RunCancelledError, TaskError
from weft.runs.listing import list_runs
from weft.runs.reading import read_run
from weft.store.state import StateRoot, read_description

DEADLINE_S = 180.0
SOURCE = Path(weft.__file__).parents[1]
RUN = "run-000001"
MODULE = """
import os, sys

def first(x):
    print("first", x, flush=True)
    os.system("echo a child of first")
    return x + 1

def second(x):
    if os.path.exists("FAIL"):
        raise ValueError("told to fail")
    return x * 10
"""
PROGRAM = """
import sys, weft, work

if __name__ == "__main__":
    g = weft.Graph("job")
    made = g.map(work.first, range(3), name="first")
    g.add(sum, weft.gather(g.map(work.second, made, name="second")), name="total")
    with weft.Session(sys.argv[1], workers=2, durable="state") as session:
        print(session.run(g).value("total"))
"""


class Place:
    """A folder with a program, its module and its state."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "work.py").write_text(MODULE)
        (folder / "program.py").write_text(PROGRAM)
        (folder / "FAIL").touch()

    @property
    def run(self) -> Path:
        return self.folder / "state" / "runs" / RUN

    def python(self, *words: str) -> subprocess.CompletedProcess[str]:
        env = os.environ | {"PYTHONPATH": str(SOURCE)}
        return subprocess.run(
            [sys.executable, *words], cwd=self.folder, env=env, capture_output=True, text=True, timeout=DEADLINE_S
        )

    def weft(self, *words: str) -> subprocess.CompletedProcess[str]:
        ended = weft_command(*words, "--state-dir", "state", cwd=self.folder, timeout=DEADLINE_S)
        return subprocess.CompletedProcess(words, *ended)

    def fail(self, backend: str = "threads") -> subprocess.CompletedProcess[str]:
        """Run the program to its failure, after which it would not fail again."""
        ended = self.python("program.py", backend)
        assert "told to fail" in ended.stderr
        (self.folder / "FAIL").unlink()
        return ended


@pytest.fixture
def place(tmp_path):
    return Place(tmp_path)


@pytest.mark.parametrize("backend", ["threads", "processes"])
def test_what_tasks_print_is_not_in_the_answer(place, backend):
    place.fail(backend)
    ended = place.weft("resume", RUN, "--json")
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout)["run"]["state"] == "succeeded"
    assert "first" in ended.stderr
    assert "a child of first" in ended.stderr


def test_a_run_that_failed_says_how_to_go_on_and_then_where_its_results_are(place):
    assert f"weft resume {RUN} --state-dir {place.folder / 'state'}" in place.fail().stderr
    ended = place.weft("resume", RUN)
    how = f"weft.Session(durable={str(place.folder / 'state')!r}).resume({RUN!r}).result()"
    assert how in ended.stdout
    assert f"weft explain {RUN}" in ended.stdout
    assert "weft logs" not in ended.stdout
    assert how in place.weft("show", RUN).stdout
    assert "what its tasks print goes to where the program runs" in place.weft("logs", RUN).stderr
    read = place.python("-c", f"import weft; print({how}.value())")
    assert read.stdout == "60\n"


def test_a_resume_tells_that_functions_of_an_edited_script_run_as_they_were(place):
    script = place.folder / "program.py"
    script.write_text(MODULE + PROGRAM.replace("work.", "").replace("weft, work\n", "weft\n"))
    place.fail()
    (place.folder / "work.py").write_text("no function of it is in the graph")
    (place.folder / "FAIL").touch()
    assert "has changed" not in place.weft("resume", RUN).stderr
    script.write_text(f"{script.read_text()}\n# edited\n")
    (place.folder / "FAIL").unlink()
    ended = place.weft("resume", RUN)
    assert ended.returncode == 0, ended.stderr
    told = "program.py has changed since run-000001 began, and the run goes on with its functions as they were; "
    assert f"{told}for a new run: python program.py\n" in ended.stderr
    read = place.python("-c", f"import weft; print(weft.Session(durable='state').resume({RUN!r}).notes)")
    assert read.stdout == "()\n", "its results are read alone"


def test_a_resume_leaves_no_message_of_before_and_no_two_times(place):
    place.fail()
    began = read_run(place.run).started
    time.sleep(0.01)
    assert place.weft("resume", RUN).returncode == 0
    found = read_run(place.run)
    assert found.started == began
    (row,) = list_runs(StateRoot(place.folder / "state"))[0]
    assert (row.started_at, row.ended_at) == (found.started, found.ended)
    assert found.step("second").message == ""
    told = place.weft("story", RUN).stdout + place.weft("show", RUN).stdout
    assert "cache" not in told


BROKEN = {
    "exits": ("import sys; sys.exit(3)", "SystemExit: 3", "work.py, line 1, raised it when it was imported"),
    "raises": ("1 / 0", "ZeroDivisionError", "work.py, line 1, raised it when it was imported"),
    "interrupts": ("class Odd(BaseException): ...\nraise Odd", "Odd", "work.py, line 2, raised it"),
    "no Python": ("def first(x) return", "SyntaxError", "Mend "),
    "renamed": ("def erst(x): ...", "Can't get attribute", "must have the names that they had"),
    "gone": (None, "No module named 'work'", "must be where they were"),
}


@pytest.mark.parametrize("broken", BROKEN)
def test_a_module_that_cannot_be_loaded_is_told_with_a_way_out(place, broken):
    place.fail()
    text, message, hint = BROKEN[broken]
    module = place.folder / "work.py"
    module.unlink()
    if text is not None:
        module.write_text(text)
    ended = place.weft("resume", RUN)
    assert ended.returncode == 3
    assert message in ended.stderr
    assert hint in ended.stderr
    assert read_run(place.run).state == "failed"
    explained = place.weft("explain", RUN)
    assert explained.returncode == 0, explained.stderr
    assert "its records alone tell this" in explained.stdout
    module.write_text(MODULE)
    assert place.weft("resume", RUN).returncode == 0


@pytest.mark.parametrize("damage", ["cut", "changed", "empty", "gone"])
def test_a_graph_that_is_damaged_is_told_as_that(place, damage):
    place.fail()
    file = place.run / "graph.pickle"
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 0x55
    if damage == "gone":
        file.unlink()
    else:
        file.write_bytes({"cut": data[:100], "changed": data, "empty": b""}[damage])
    ended = place.weft("resume", RUN)
    assert ended.returncode == (4 if damage == "gone" else 7)
    assert "graph.pickle is damaged" in ended.stderr or "is missing" in ended.stderr
    assert "start a new run" in ended.stderr


def test_a_step_where_a_run_belongs_is_told_so(place):
    place.fail()
    for command in ("explain", "resume"):
        ended = place.weft(command, "@last/second")
        assert ended.returncode == 2
        assert "'@last/second' names a step, but this command takes a run: @last" in ended.stderr


# ------------------------------------------------------------------------------------------- as the session was opened


def on_gpu(fail: str) -> int:
    if os.path.exists(fail):
        raise ValueError("told to fail")
    return 7


def failed(tmp_path: Path, **options: Any) -> Path:
    """Make a run that asks for a GPU and has failed, and return its folder."""
    fail = tmp_path / "FAIL"
    fail.touch()
    graph = weft.Graph("gpu")
    graph.add(on_gpu, params={"fail": str(fail)}, resources=Resources(gpu=1, gpu_type="T4"), name="work")
    options |= {"workers": 2, "durable": tmp_path / "state", "gpus": 2, "gpu_type": "T4"}
    with weft.Session(**options) as session, pytest.raises(TaskError, match="told to fail"):
        session.run(graph)
    fail.unlink()
    return tmp_path / "state" / "runs" / RUN


def opened_by(monkeypatch: pytest.MonkeyPatch, folder: Path, **flags: str) -> tuple[Any, dict[str, Any]]:
    """Resume as the command line does; return the result and how the session was opened."""
    asked: dict[str, Any] = {}

    class Session(wiring.Session):
        def __init__(self, *words: Any, **options: Any) -> None:
            asked.update(options)
            super().__init__(*words, **options)

    monkeypatch.setattr(wiring, "Session", Session)
    return wiring.resume_run(folder, load_settings(flags, start=folder, environ={})), asked


def test_a_resume_has_what_the_session_had(tmp_path, monkeypatch):
    options = {"memory": "64MiB", "eviction": "lru", "stream_window": "1MiB", "grace_s": 1.5, "backups": True}
    options["frozen_s"] = 2.5
    folder = failed(tmp_path, **options, history=tmp_path / "known")
    result, asked = opened_by(monkeypatch, folder)
    assert (result.state, result.error) == ("succeeded", None)
    del asked["spill"], asked["durable"]
    assert asked == {
        "workers": 2,
        "memory": 64 << 20,
        "gpus": 2,
        "gpu_type": "T4",
        "grace_s": 1.5,
        "frozen_s": 2.5,
        "backups": True,
        "eviction": "lru",
        "stream_window": 1 << 20,
        "history": str(tmp_path / "known"),
        "whole_process": False,
    }


def test_flags_of_a_resume_win(tmp_path, monkeypatch):
    folder = failed(tmp_path)
    flags = {"workers": "3", "memory": "32MiB", "gpus": "1", "eviction": "largest", "stream_window": "2MiB"}
    result, asked = opened_by(monkeypatch, folder, **flags)
    assert result.state == "succeeded"
    found = [asked[name] for name in flags]
    assert found == [3, 32 << 20, 1, "largest", 2 << 20]
    assert asked["gpu_type"] == "T4"


def test_a_resume_with_too_little_is_refused_and_may_be_tried_again(tmp_path, monkeypatch):
    folder = failed(tmp_path)
    with pytest.raises(CapacityError, match="asks for"):
        opened_by(monkeypatch, folder, gpus="0")
    assert read_run(folder).state == "failed"
    assert opened_by(monkeypatch, folder)[0].state == "succeeded"


def test_a_function_that_chooses_what_to_spill_is_not_kept(tmp_path, monkeypatch):
    folder = failed(tmp_path, eviction=lambda info: info.used)
    assert "eviction" not in read_description(folder)["session"]
    result, asked = opened_by(monkeypatch, folder)
    assert (result.state, asked["eviction"]) == ("succeeded", "furthest")


# ------------------------------------------------------------------------------------------------------------- Ctrl-C


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(0.2)


def waits() -> bool:
    """Whether the main thread is in `Run.wait`."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    names = set()
    while frame is not None:
        names.add(frame.f_code.co_qualname)
        frame = frame.f_back
    return {"Run.wait", "Event.wait"} <= names


def held(folder: str) -> int:
    """Interrupt the main thread once it waits for a run, and wait for a file."""
    if not (Path(folder) / "go").exists():
        until(waits)
        interrupt()
    until((Path(folder) / "go").exists)
    return 1


def test_an_interrupt_says_how_to_go_on(tmp_path):
    graph = weft.Graph("g")
    graph.add(interrupt)
    graph.add(abs, weft.after(graph.add(interrupt, name="again")), items=[-1], name="last")
    with weft.Session(workers=1, durable=tmp_path) as session, pytest.raises(KeyboardInterrupt) as caught:
        session.run(graph)
    assert caught.value.__notes__ == [f"{RUN} can be resumed: weft resume {RUN} --state-dir {tmp_path}"]


@pytest.mark.parametrize("verb", ["wait", "result"])
def test_an_interrupt_of_a_wait_leaves_the_run_to_the_session_and_says_how_to_go_on(tmp_path, verb):
    graph = weft.Graph("g")
    end = graph.add(held, params={"folder": str(tmp_path)}, name="last").keep()
    with weft.Session(workers=1, durable=tmp_path) as session:
        run = session.submit(graph)
        with pytest.raises(KeyboardInterrupt) as caught:
            getattr(run, verb)()
        assert not run.done
        (tmp_path / "go").touch()
        assert run.result(DEADLINE_S).value(end) == 1
    assert caught.value.__notes__ == [f"{RUN} can be resumed: weft resume {RUN} --state-dir {tmp_path}"]


def test_an_interrupt_of_a_session_that_keeps_nothing_says_nothing(tmp_path):
    graph = weft.Graph("g")
    graph.add(abs, weft.after(graph.add(interrupt)), items=[-1], name="last")
    with weft.Session(workers=1) as session, pytest.raises(KeyboardInterrupt) as caught:
        session.run(graph)
    assert not hasattr(caught.value, "__notes__")


def until_cancelled(ctx: Any, inputs: Any) -> None:
    told = threading.Event()
    ctx.on_cancel(told.set)
    assert told.wait(DEADLINE_S)


def test_a_cancelled_run_says_how_to_go_on(tmp_path):
    graph = weft.Graph("g")
    graph.task(until_cancelled, name="waits")
    with weft.Session(workers=1, durable=tmp_path) as session:
        run = session.submit(graph)
        run.cancel("enough")
        with pytest.raises(RunCancelledError) as caught:
            run.result(DEADLINE_S)
    assert caught.value.hint == f"Go on with it: weft resume {RUN} --state-dir {tmp_path}"


SAVING = """
import os, signal, sys
import numpy as np
import weft.tensor as wt

def doubled(chunk):
    if chunk[0] == 60 and os.path.exists("FAIL"):
        os.unlink("FAIL")
        os.kill(int(os.environ["PROGRAM"]), signal.SIGKILL)
    return chunk * 2

if __name__ == "__main__":
    os.environ["PROGRAM"] = str(os.getpid())
    with wt.Session(backend=sys.argv[1], workers=2, durable="state"):
        wt.save("x.npy", wt.map_blocks(doubled, wt.arange(100, chunk_size=20), dtype="i8"))
"""


@pytest.mark.parametrize("backend", ["threads", "processes"])
def test_a_resumed_run_completes_the_file_that_its_program_saved(place, backend):
    (place.folder / "program.py").write_text(SAVING)
    assert place.python("program.py", backend).returncode == -signal.SIGKILL
    assert not (place.folder / "x.npy").exists()
    ended = place.weft("resume", RUN)
    assert ended.returncode == 0, ended.stderr
    assert np.load(place.folder / "x.npy").tolist() == list(range(0, 200, 2))
    assert not list(place.folder.glob("*.part"))
