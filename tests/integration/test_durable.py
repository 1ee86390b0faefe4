"""Durable sessions: a run whose process was killed goes on, with all that it had decided, and runs nothing twice."""

import errno
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Container
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from msgspec.structs import replace

import weft
from tests.integration import durable_program
from tests.prepared import weft_command
from tests.started import start
from weft import Source, after, gather, shuffle, wiring
from weft.admin.settings import Settings
from weft.durability import journal as module
from weft.durability import snapshot
from weft.durability.journal import FileJournal, read_journal, recover, replay_journal
from weft.durability.probing import probed
from weft.durability.programs import load_graph
from weft.engine.core import Core
from weft.engine.decisions import SetEdge
from weft.engine.recovery import digest
from weft.engine.rows import FINISHED, FREED
from weft.graph.logical import BROADCAST, NONE, Edge, OnFailure, Patch, Storage
from weft.model.errors import (
    ConflictError,
    DiskFullError,
    ForbiddenError,
    GraphError,
    NotFoundError,
    ProgramError,
    RunCancelledError,
    TaskError,
    UsageError,
)
from weft.runs.active import ActiveRun, RunEvents
from weft.runs.listing import list_runs
from weft.runs.reading import read_run
from weft.runs.service import RunService
from weft.store.folders import LOCK_NAME
from weft.store.outputs import Outputs
from weft.store.state import EVENTS, RunFolder, StateRoot
from weft.wiring import MANAGERS

DEADLINE_S = 180.0
SOURCE = Path(weft.__file__).parents[1]
MAIN = "import sys; from weft.cli.main import main; sys.exit(main())"
RUN = "run-000001"
KILLS = 100 if os.environ.get("HYPOTHESIS_PROFILE") == "soak" else 10


def until(condition: Callable[[], Any], what: str = "it") -> Any:
    end = time.monotonic() + DEADLINE_S
    while not (found := condition()):
        assert time.monotonic() < end, f"{what} did not come"
        time.sleep(0.001)
    return found


class Place:
    """A folder for the program's state and its marks."""

    def __init__(self, folder: Path) -> None:
        self.state = folder / "state"
        self.marks = folder / "marks"
        self.marks.mkdir(parents=True, exist_ok=True)
        self.folder = folder

    def copied(self, folder: Path) -> "Place":
        """Return a copy of this place."""
        shutil.copytree(self.folder, folder, ignore=shutil.ignore_patterns("*.sock"))
        return Place(folder)

    @property
    def run(self) -> Path:
        return self.state / "runs" / RUN

    @property
    def journal(self) -> Path:
        return self.run / "journal"

    def python(self, *words: str) -> subprocess.Popen[str]:
        return start(
            [sys.executable, *words],
            cwd=self.folder,
            env=os.environ | {"PYTHONPATH": str(SOURCE)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def start(self, backend: str) -> subprocess.Popen[str]:
        return self.python(durable_program.__file__, backend, str(self.state), str(self.marks))

    def weft(self, *words: str) -> tuple[int, str, str]:
        return weft_command(*words, "--state-dir", str(self.state), cwd=self.folder, timeout=DEADLINE_S)

    def core(self) -> Core:
        """The master as the journal tells it."""
        graph, digest = load_graph(self.run)
        recorded = read_journal(self.journal, trusted=True)
        again = probed(graph, {vertex for vertex, _ in recorded.header.restored})
        return recover(again, recorded, MANAGERS, digest).master.core

    def counts(self) -> Counter[str]:
        """How often each task came to its end."""
        return Counter(path.name.partition(".")[0] for path in self.marks.iterdir())

    def ended_in(self, processes: Container[int]) -> set[str]:
        """The tasks that came to their end in these processes."""
        marks = [path.name.split(".") for path in self.marks.iterdir()]
        return {name for name, process, _ in marks if int(process) in processes}

    def finished(self, vertex: str, some: int) -> bool:
        """Whether some tasks of a vertex have finished, as the journal tells."""
        try:
            stage = self.core().by_id[vertex]
        except (KeyError, NotFoundError, ConflictError):
            return False
        return sum(state in (FINISHED, FREED) for state in stage.state) >= some

    def has_grown(self, size: int) -> bool:
        """Whether the journal has so many bytes."""
        return self.journal.exists() and self.journal.stat().st_size >= size

    def kill_when(self, process: subprocess.Popen[str], condition: Callable[[], Any]) -> bool:
        """Kill a process once a condition holds; tell whether it was still there."""
        try:
            until(lambda: condition() or process.poll() is not None)
        finally:
            process.kill()
            process.communicate()
        return process.returncode == -signal.SIGKILL


@pytest.fixture
def place(tmp_path) -> Place:
    return Place(tmp_path)


def decided(core: Core) -> dict[str, Any]:
    """What has been decided so far."""
    taken: dict[str, Any] = {name: row.taken for name, row in core.choices.items() if row.taken}
    return taken | {stage.id: stage.n for stage in core.stages if stage.n >= 0}


def finished_marks(core: Core) -> set[str]:
    done = (FINISHED, FREED)
    names = {f"load-{i}" for i, state in enumerate(core.by_id["load"].state) if state in done} if core.by_id else set()
    for name in ("add", "left", "right"):
        if name in core.by_id and core.by_id[name].n == 1 and core.by_id[name].state[0] in done:
            names.add(name)
    return names


class TestKilled:
    def test_at_random_points(self, tmp_path, seed):
        rng = random.Random(seed)
        (tmp_path / "whole").mkdir()
        whole = Place(tmp_path / "whole")
        process = whole.start("threads")
        out, err = process.communicate(timeout=DEADLINE_S)
        assert out.split() == [str(durable_program.ANSWER)], err
        size = whole.journal.stat().st_size
        killed = 0
        for number in range(KILLS):
            (tmp_path / str(number)).mkdir()
            place = Place(tmp_path / str(number))
            backend = "processes" if number % 3 == 2 else "threads"
            wanted = rng.randrange(100, size)
            killed += place.kill_when(place.start(backend), partial(place.has_grown, wanted))
            until((place.run / "graph.pickle").exists)
            before = place.core() if place.journal.exists() else None
            finished = finished_marks(before) if before is not None else set()
            owners = {os.getpid()}  # of the resumed run, whose tasks are threads
            if number == 0:
                resumed = place.python("-c", MAIN, "resume", RUN, "--state-dir", str(place.state))
                owners.add(resumed.pid)
                _, err = resumed.communicate(timeout=DEADLINE_S)
                assert resumed.returncode in (0, 7), err  # 7: it was quicker than the kill
            with weft.Session(workers=2, durable=place.state) as session:
                run = session.resume(RUN)
                assert run.result(DEADLINE_S).value("end") == durable_program.ANSWER, f"seed {seed}: {number}"
                assert run.notes == ()
            again = finished & place.ended_in(owners)
            assert not again, f"seed {seed}: kill {number}: {again}"
            counts = place.counts()
            twice = {name: counts[name] for name in finished if counts[name] != 1}
            # On worker processes a late task gets a second attempt, and both may come to their end before the kill.
            assert backend == "processes" or not twice, f"seed {seed}: kill {number}: {twice}"
            assert all(counts[name] for name in finished)
            if before is not None:
                after_all = decided(place.core())
                assert {key: after_all.get(key) for key in decided(before)} == decided(before), f"seed {seed}: {number}"
            assert read_run(place.run).state == "succeeded"
        assert killed >= KILLS // 2, "most of them were to be killed before their end"

    def test_while_it_is_resumed(self, place):
        (place.folder / "hold").touch()
        place.kill_when(place.start("threads"), lambda: place.finished("load", 3))
        for some in (8, durable_program.LOADS):
            resumed = place.python("-c", MAIN, "resume", RUN, "-q", "--state-dir", str(place.state))
            place.kill_when(resumed, partial(place.finished, "load", some))
        (place.folder / "hold").unlink()
        finished = finished_marks(place.core())
        before = place.counts()
        with weft.Session(workers=2, durable=place.state) as session:
            assert session.resume(RUN).result(DEADLINE_S).value("end") == durable_program.ANSWER
        assert all(place.counts()[name] == before[name] for name in finished)

    def test_of_two_resumes_at_the_same_time_one_is_refused(self, place):
        (place.folder / "hold").touch()
        place.kill_when(place.start("threads"), lambda: place.finished("load", 3))
        both = [place.python("-c", MAIN, "resume", RUN, "-q", "--state-dir", str(place.state)) for _ in range(2)]
        until(lambda: any(one.poll() is not None for one in both), "the end of one of them")
        refused, other = sorted(both, key=lambda one: one.poll() is None)
        _, err = refused.communicate(timeout=DEADLINE_S)
        (place.folder / "hold").unlink()
        _, end = other.communicate(timeout=DEADLINE_S)
        assert (refused.returncode, other.returncode) == (7, 0), f"{err}\n{end}"
        assert f"{RUN} is still running" in err

    def test_a_resume_is_refused_that_finds_the_run_owned_after_its_look(self, place):
        place.start("threads").communicate(timeout=DEADLINE_S)
        records = (place.run / EVENTS).read_text().splitlines(keepends=True)
        (place.run / EVENTS).write_text("".join(records[:1]))
        running = pytest.raises(ConflictError, match=f"{RUN} is still running")
        with RunFolder.create(StateRoot(place.state), RUN), opened(place.folder) as session, running:
            session.resume(RUN)

    def test_a_resume_is_refused_whose_run_another_one_has_ended_after_its_look(self, place):
        class Late(RunService):
            def _resume_graph(self, folder: Path, events: RunEvents) -> ActiveRun:
                with opened(place.folder) as session:
                    session.resume(folder.name).result(DEADLINE_S)
                return super()._resume_graph(folder, events)

        place.kill_when(place.start("threads"), lambda: place.finished("load", 1))
        ended = pytest.raises(ConflictError, match=f"{RUN} has succeeded: there is nothing left to do")
        with Late(wiring, Settings(), StateRoot(place.state)) as service, ended:
            service.resume(RUN)

    def test_after_its_end_and_before_the_record_of_it(self, place):
        place.start("threads").communicate(timeout=DEADLINE_S)
        records = (place.run / EVENTS).read_text().splitlines(keepends=True)
        (place.run / EVENTS).write_text("".join(line for line in records if '"succeeded"' not in line))
        assert read_run(place.run).state == "interrupted"
        before = place.counts()
        code, out, err = place.weft("resume", RUN)
        assert (code, place.counts()) == (0, before), err
        assert f"{RUN} succeeded" in out + err
        assert read_run(place.run).state == "succeeded"

    def test_what_is_told_of_it_before_and_after_a_resume(self, place):
        (place.folder / "hold").touch()
        place.kill_when(place.start("threads"), lambda: place.finished("load", durable_program.LOADS))
        (place.folder / "hold").unlink()
        assert place.weft("ls")[1].split("\n")[1].split()[:4] == [RUN, "!", "interrupted", "durable"]
        _, shown, _ = place.weft("show", RUN)
        assert "load" in shown
        assert "durable_program.py" in shown
        code, told, _ = place.weft("story", f"{RUN}/load[3]")
        assert code == 0
        assert "load[3]: F" in told  # finished, or freed already
        assert place.weft("resume", RUN, "-q")[0] == 0
        code, told, _ = place.weft("story", f"{RUN}/which")
        assert "choice side: takes" in told
        assert "choice side" in place.weft("explain", RUN)[1]
        assert place.weft("logs", RUN)[0] == 0
        code, _, err = place.weft("resume", RUN)
        assert code == 7
        assert "has succeeded" in err

    @pytest.mark.parametrize("began", ["threads", "processes"])
    def test_worker_processes_find_modules_beside_the_script(self, place, began):
        beside = place.folder / "program"
        beside.mkdir()
        (beside / "beside.py").write_text(
            "import pathlib, time\n"
            "def step(number, marks):\n"
            "    while number and pathlib.Path(marks).with_name('hold').exists():\n"
            "        time.sleep(0.005)\n"
            "    print('said by a task', flush=True)\n"
            "    pathlib.Path(marks, f'step-{number}').touch()\n"
            "    return number\n"
        )
        (beside / "main.py").write_text(
            "import sys, weft, beside\n"
            "if __name__ == '__main__':\n"
            "    graph = weft.Graph('beside')\n"
            "    graph.map(beside.step, range(8), params={'marks': sys.argv[3]}, name='step')\n"
            "    with weft.Session(sys.argv[1], workers=2, durable=sys.argv[2]) as session:\n"
            "        session.run(graph, progress=False)\n"
        )
        (place.folder / "hold").touch()
        program = place.python(str(beside / "main.py"), began, str(place.state), str(place.marks))
        assert place.kill_when(program, lambda: place.counts()["step-0"])
        (place.folder / "hold").unlink()
        code, out, err = place.weft("resume", RUN, "--backend", "processes")
        assert code == 0, err
        assert "succeeded" in out
        assert len(place.counts()) == 8

    def test_another_backend_goes_on(self, place):
        (place.folder / "hold").touch()
        place.kill_when(place.start("threads"), lambda: place.finished("load", durable_program.LOADS))
        (place.folder / "hold").unlink()
        finished = finished_marks(place.core())
        code, out, err = place.weft("resume", RUN, "--backend", "processes", "--workers", "3")
        assert code == 0, err
        assert "succeeded" in out
        assert all(place.counts()[name] == 1 for name in finished)


# ------------------------------------------------------------------------------------------------------ in process


class Counted:
    """Counts calls of tasks, which stay in this process."""

    def __init__(self) -> None:
        self.calls: Counter[Any] = Counter()
        self.broken = ""
        self.gate = threading.Event()
        self.began = threading.Event()


HERE: dict[str, Counted] = {}


@pytest.fixture
def counted(request):
    name = request.node.nodeid
    HERE[name] = Counted()
    yield name, HERE[name]
    del HERE[name]


def made(number: int, who: str) -> np.ndarray:
    HERE[who].calls["made", number] += 1
    return np.full(500, number)


def summed(values: list[np.ndarray], who: str) -> int:
    HERE[who].calls["summed"] += 1
    if HERE[who].broken == "summed":
        raise ValueError("broken")
    return int(sum(value.sum() for value in values))


def chosen(total: Any, who: str) -> str:
    HERE[who].calls["chosen"] += 1
    return "yes" if HERE[who].calls["chosen"] == 1 else "no"


def passed(value: Any, who: str, name: str) -> Any:
    HERE[who].calls[name] += 1
    if HERE[who].broken == name:
        raise ValueError("broken")
    return value


def summed_up(values: list[int]) -> int:
    return sum(values)


def waited(*values: Any, who: str) -> int:
    if HERE[who].broken == "waited":
        raise ValueError("broken")
    HERE[who].began.set()
    assert HERE[who].gate.wait(DEADLINE_S)
    HERE[who].calls["waited"] += 1
    return 7


def patched(total: int, who: str) -> Patch:
    HERE[who].calls["patched"] += 1
    graph = weft.Graph("more")
    node = graph.add(passed, name="patched/more", params={"value": 1500, "who": who, "name": "more"}, keep=True)
    return Patch.of(graph, [Edge("patched", node.id, NONE, storage=Storage.NONE)])


def how_many(values: Any, who: str) -> int:
    HERE[who].calls["how_many"] += 1
    return 2 + HERE[who].calls["how_many"]


def chain(who: str, **options: Any) -> weft.Graph:
    graph = weft.Graph("chain", **options)
    numbers = graph.map(made, range(6), params={"who": who}, name="made")
    graph.add(summed, gather(numbers), params={"who": who}, name="summed")
    return graph


def opened(tmp_path: Path, **options: Any) -> weft.Session:
    return weft.Session(durable=tmp_path / "state", **{"workers": 2, **options})


def reseal(journal: Path) -> None:
    """Make the check of a header that was changed right again."""
    data = bytearray(journal.read_bytes())
    at = len(module._MAGIC)
    length, _ = module._FRAME.unpack_from(data, at)
    header = bytes(data[at + module._FRAME.size : at + module._FRAME.size + length])
    data[at : at + module._FRAME.size + length] = module._frame(header)
    journal.write_bytes(data)


class TestWithout:
    def test_a_session_without_durability_says_so_in_a_sentence(self):
        with weft.Session(workers=1) as session, pytest.raises(UsageError, match="keeps no journal") as caught:
            session.resume("run-000001")
        assert "durable=True" in (caught.value.hint or "")

    def test_it_has_no_journal_and_no_files(self, counted):
        who, _ = counted
        with weft.Session(workers=1) as session:
            run = session.submit(chain(who))
            run.result(DEADLINE_S)
            assert (run.job.journal, run.job.outputs, run.notes) == (None, None, ())


class TestGoingOn:
    def test_a_run_that_has_succeeded_gives_its_results_and_runs_nothing(self, tmp_path, counted):
        who, here = counted
        with opened(tmp_path) as session:
            assert session.run(chain(who)).value("summed") == 7500
        before = here.calls.copy()
        with opened(tmp_path) as session:
            run = session.resume("@last")
            assert (run.id, run.status, run.result(DEADLINE_S).value("summed")) == (RUN, "succeeded", 7500)
        assert here.calls == before

    def test_a_failed_run_goes_on_where_it_failed(self, tmp_path, counted):
        who, here = counted
        here.broken = "summed"
        with opened(tmp_path) as session, pytest.raises(TaskError):
            session.run(chain(who))
        here.broken = ""
        for _ in range(2):  # and what it says is believed the next time too
            with opened(tmp_path) as session:
                assert session.resume(RUN).result(DEADLINE_S).value("summed") == 7500
        assert here.calls == Counter({("made", i): 1 for i in range(6)}) + Counter(summed=2)
        assert read_run(tmp_path / "state" / "runs" / RUN).state == "succeeded"

    def test_answers_of_a_failed_run_stay_and_what_a_patch_added_is_not_run_again(self, tmp_path, counted):
        who, here = counted
        own = {"who": who}

        def graph() -> weft.Graph:
            graph = weft.Graph("answers")
            numbers = graph.map(made, range(3), params=own, name="made")
            total = graph.add(summed, gather(numbers), params=own, name="total")
            which = graph.add(chosen, total, params=own, name="which", expands=True)
            yes, no = (
                graph.add(passed, total, after(which), params=own | {"name": name}, name=name) for name in ("yes", "no")
            )
            graph.choice(which, name="choice", yes=yes, no=no)
            many = graph.add(how_many, total, params=own, name="many", expands=True)
            wide = graph.add(
                passed, gather(total), after(many), n=Source(many.id), params=own | {"name": "wide"}, name="wide"
            )
            patches = graph.add(patched, total, params=own, name="patched", expands=True)
            last = {**own, "name": "last"}
            graph.add(passed, gather(wide), after(patches), after(yes), after(no), params=last, name="last")
            graph.on_failure = OnFailure.CONTINUE
            return graph

        here.broken = "last"
        with opened(tmp_path) as session, pytest.raises(TaskError):
            session.run(graph(), progress=False)
        here.broken = ""
        with opened(tmp_path) as session:
            run = session.resume(RUN)
            assert run.result(DEADLINE_S).value("patched/more") == 1500
            assert len(run.results()["last"][0]) == 3
        once = ["summed", "chosen", "how_many", "patched", "more", "yes", *[("made", i) for i in range(3)]]
        assert here.calls == Counter(once) + Counter(wide=3, last=2)

    def test_killed_while_it_begins_again_from_what_is_there(self, tmp_path, counted):
        """Nothing that the second process took over from the first is run by the third, nor is anything asked again."""
        who, here = counted
        own = {"who": who}

        def graph() -> weft.Graph:
            graph = weft.Graph("thrice")
            total = graph.add(
                summed, gather(graph.map(made, range(3), params=own, name="made")), params=own, name="total"
            )
            which = graph.add(chosen, gather(total), params=own, name="which", expands=True)
            yes, no = (
                graph.add(passed, gather(total), after(which), params=own | {"name": name}, name=name)
                for name in ("yes", "no")
            )
            graph.choice(which, name="choice", yes=yes, no=no)
            held = graph.add(waited, gather(yes), gather(no), params=own, name="held")
            graph.add(passed, gather(held), params=own | {"name": "last"}, name="last")
            return graph

        here.broken = "waited"
        with opened(tmp_path) as session, pytest.raises(TaskError):
            session.run(graph(), progress=False)
        here.broken = ""
        place = Place(tmp_path)
        for number in range(2):
            here.began.clear()
            with opened(tmp_path) as session:
                session.resume(RUN)
                assert here.began.wait(DEADLINE_S)
                until(lambda: place.finished("yes", 1))
                shutil.copytree(place.run, tmp_path / f"copy{number}", ignore=shutil.ignore_patterns("*.sock", ".*"))
                here.gate.set()
            here.gate.clear()
            shutil.rmtree(place.run)
            (tmp_path / f"copy{number}").rename(place.run)  # as a kill would have left it
        here.gate.set()
        with opened(tmp_path) as session:
            run = session.resume(RUN)
            assert (run.result(DEADLINE_S).value("last"), run.notes) == ([7], ())
        for name in ("summed", "chosen", "yes", *[("made", i) for i in range(3)]):
            assert here.calls[name] == 1, name
        assert here.calls["no"] == 0

    def test_a_cancelled_run_goes_on(self, tmp_path, counted):
        who, here = counted
        graph = weft.Graph("held")
        numbers = graph.map(made, range(4), params={"who": who}, name="made")
        graph.add(waited, gather(numbers), params={"who": who}, name="waited")
        with opened(tmp_path) as session:
            run = session.submit(graph)
            assert here.began.wait(DEADLINE_S)
            run.cancel("enough")
            here.gate.set()
            with pytest.raises(RunCancelledError):
                run.result(DEADLINE_S)
        assert read_run(tmp_path / "state" / "runs" / RUN).state == "terminated"
        with opened(tmp_path) as session:
            assert session.resume(RUN).result(DEADLINE_S).value("waited") == 7
        assert [here.calls["made", i] for i in range(4)] == [1] * 4

    def test_an_output_that_is_gone_is_made_again_and_it_is_said(self, tmp_path, counted):
        who, here = counted
        graph = weft.Graph("held")
        numbers = graph.map(made, range(4), params={"who": who}, name="made")
        first = graph.add(summed, gather(numbers), params={"who": who}, name="first")
        graph.add(waited, gather(first), params={"who": who}, name="waited")
        with opened(tmp_path) as session:
            session.submit(graph)
            assert here.began.wait(DEADLINE_S)
            folder = tmp_path / "state" / "runs" / RUN
            place = Place(tmp_path)
            until(lambda: "first" in decided(core := place.core()) and core.by_id["first"].state[0] == FINISHED)
            copy = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
            here.gate.set()
        for name, data in copy.items():  # as a kill would have left it, but for the values
            (folder / name).write_bytes(data)
        for file in (folder / "values").iterdir():
            file.unlink()
        with opened(tmp_path) as session:
            run = session.resume(RUN)
            assert run.notes == ("first: 1 finished task is run again: the output is gone",)
            assert run.result(DEADLINE_S).value("waited") == 7
        assert here.calls["summed"] == 2
        (step,) = [step for step in read_run(folder).steps if step.name == "first"]
        assert (step.state, step.message) == ("succeeded", "1 finished task is run again: the output is gone")

    @pytest.mark.parametrize("damage", ["gone", "garbage", "torn", "older"])
    def test_without_its_journal_the_files_decide(self, tmp_path, counted, damage):
        who, here = counted
        here.broken = "summed"
        with opened(tmp_path) as session, pytest.raises(TaskError):
            session.run(chain(who))
        here.broken = ""
        journal = tmp_path / "state" / "runs" / RUN / "journal"
        if damage == "gone":
            journal.unlink()
        elif damage == "older":
            now, before = (msgspec.msgpack.encode("format") + bytes([number]) for number in (module.FORMAT, 1))
            journal.write_bytes(journal.read_bytes().replace(now, before, 1))
            reseal(journal)
        else:
            journal.write_bytes(b"\0" * 1000 if damage == "garbage" else journal.read_bytes()[:40])
        with opened(tmp_path) as session:
            assert session.resume(RUN).result(DEADLINE_S).value("summed") == 7500
        assert here.calls == Counter({("made", i): 1 for i in range(6)}) + Counter(summed=2)


class TestCut:
    """A long journal is cut: a snapshot stands for what came before."""

    @pytest.fixture(autouse=True)
    def soon(self, monkeypatch):
        monkeypatch.setitem(FileJournal.__init__.__kwdefaults__, "cut_bytes", 600)

    def test_a_run_goes_on_from_a_snapshot(self, tmp_path, counted):
        who, here = counted
        graph = weft.Graph("long")
        numbers = graph.map(made, range(100), params={"who": who}, name="made")
        first = graph.add(summed, gather(numbers), params={"who": who}, name="first")
        graph.add(waited, gather(first), params={"who": who}, name="waited")
        place = Place(tmp_path)
        with opened(tmp_path) as session:
            session.submit(graph)
            assert here.began.wait(DEADLINE_S)
            until(lambda: place.finished("first", 1))
            until(lambda: read_journal(place.journal, trusted=True).snapshot)
            shutil.copytree(place.run, tmp_path / "copy", ignore=shutil.ignore_patterns("*.sock", ".*"))
            here.gate.set()
        shutil.rmtree(place.run)
        (tmp_path / "copy").rename(place.run)  # as a kill would have left it
        recorded = read_journal(place.journal, trusted=True)
        assert recorded.snapshot
        with opened(tmp_path) as session:
            run = session.resume(RUN)
            assert (run.result(DEADLINE_S).value("waited"), run.notes) == (7, ())
        assert [here.calls["made", i] for i in range(100)] == [1] * 100
        assert here.calls["summed"] == 1

    def test_a_snapshot_after_any_record_is_as_good_as_the_records(self, tmp_path, monkeypatch):
        monkeypatch.setitem(FileJournal.__init__.__kwdefaults__, "cut_bytes", 1 << 30)
        place = Place(tmp_path)
        with opened(tmp_path) as session:
            graph = durable_program.build(str(place.marks))
            assert session.run(graph, progress=False).value("end") == durable_program.ANSWER
        graph_again, digest_of_graph = load_graph(place.run)
        whole = read_journal(place.journal, trusted=True)
        assert not whole.snapshot
        ended = digest(recover(graph_again, whole, MANAGERS, digest_of_graph).master.core)
        for at in range(len(whole.records) + 1):
            before = replay_journal(graph_again, replace(whole, records=whole.records[:at]), MANAGERS)
            cut = replace(whole, records=whole.records[at:], snapshot=snapshot.dump(graph_again, before))
            assert digest(recover(graph_again, cut, MANAGERS, digest_of_graph).master.core) == ended, f"cut at {at}"


def cut_in_three(number: int, who: str) -> list[int]:
    HERE[who].calls["cut", number] += 1
    return [number * 10 + part for part in range(3)]


def all_or_parts(who: str) -> list[SetEdge]:
    """Let each reader read everything; another process decides nothing."""
    HERE[who].calls["decided"] += 1
    return [SetEdge("cut->read", movement=BROADCAST)] if HERE[who].calls["decided"] == 1 else []


def read_pieces(pieces: list[int], who: str) -> int:
    if HERE[who].broken == "read":
        raise ValueError("broken")
    return sum(pieces if not pieces or isinstance(pieces[0], int) else [sum(each) for each in pieces])


def ends_of_records(journal: bytes) -> list[int]:
    """The ends of the header of a journal and of each of its records, in bytes."""
    ends, at = [], len(module._MAGIC)
    while at < len(journal):
        length, _ = module._FRAME.unpack_from(journal, at)
        at += module._FRAME.size + length
        ends.append(at)
    return ends


class TestChangedMovement:
    EVERYTHING = 2 * sum(number * 10 + part for number in range(2) for part in range(3))

    def graph(self, who: str) -> weft.Graph:
        own = {"who": who}
        graph = weft.Graph("moved")
        cut = graph.map(cut_in_three, range(2), params=own, name="cut", keep=True)
        decide = graph.add(all_or_parts, after(cut), params=own, name="decide", expands=True)
        read = graph.add(read_pieces, shuffle(cut, 3), after(decide), n=2, params=own, name="read", keep=True)
        graph.add(summed_up, gather(read), name="total", keep=True)
        return graph

    @pytest.mark.parametrize("then", [{}, {"workers": 3}])
    def test_it_holds_after_a_kill_at_any_record(self, tmp_path, monkeypatch, counted, then):
        """The journal is cut after each of its records: what was decided before stays, and is not decided anew.

        Other workers begin the job again from the values that are there.
        """
        who, here = counted
        monkeypatch.setitem(FileJournal.__init__.__kwdefaults__, "cut_bytes", 1 << 30)
        with opened(tmp_path / "whole") as session:
            assert session.run(self.graph(who), progress=False).value("total") == self.EVERYTHING
        whole = Place(tmp_path / "whole")
        journal = whole.journal.read_bytes()
        moved = 0
        for number, end in enumerate(ends_of_records(journal)):
            place = whole.copied(tmp_path / str(number))
            place.journal.write_bytes(journal[:end])
            events = place.run / "events.jsonl"
            events.write_text("".join(events.read_text().splitlines(keepends=True)[:2]))  # nothing tells of an end
            core = place.core()
            decided = "decide" in core.by_id and core.by_id["decide"].state[:1] in (bytes([FINISHED]), bytes([FREED]))
            before = here.calls.copy()
            with opened(place.folder, **then) as session:
                run = session.resume(RUN)
                total = run.result(DEADLINE_S).value("total")
                (row,) = [row for row in run.explained().rows if row.subject == "cut->read"]
            assert here.calls["decided"] - before["decided"] == (not decided), f"cut after record {number}"
            assert (total == self.EVERYTHING) == decided, f"cut after record {number}: {total}"
            assert ("all to all" in row.executed) == decided, f"cut after record {number}: {row}"
            moved += decided
        assert 2 <= moved < number, "the journal was cut on both sides of the decision"

    def test_it_holds_after_a_failure_of_the_destination(self, tmp_path, counted):
        who, here = counted
        here.broken = "read"
        with opened(tmp_path) as session, pytest.raises(TaskError):
            session.run(self.graph(who), progress=False)
        here.broken = ""
        with opened(tmp_path) as session:
            run = session.resume(RUN)
            assert (run.result(DEADLINE_S).value("total"), run.notes) == (self.EVERYTHING, ())
        assert here.calls == Counter(decided=1) + Counter([("cut", 0), ("cut", 1)])


class TestRefused:
    def test_a_run_that_goes_on(self, tmp_path, counted):
        who, here = counted
        graph = weft.Graph("held")
        graph.add(waited, graph.map(made, range(1), params={"who": who}), params={"who": who}, name="waited")
        with opened(tmp_path) as session:
            run = session.submit(graph)
            assert here.began.wait(DEADLINE_S)
            with opened(tmp_path) as other, pytest.raises(ConflictError, match="is still running"):
                other.resume(RUN)
            here.gate.set()
            run.result(DEADLINE_S)

    def test_a_run_that_is_not_there(self, tmp_path):
        with opened(tmp_path) as session, pytest.raises(NotFoundError):
            session.resume("run-000009")

    @pytest.mark.parametrize("name", ["graph.pickle", "journal", "."])
    def test_files_that_others_may_write_to_are_not_loaded(self, tmp_path, counted, name):
        who, here = counted
        here.broken = "summed"
        with opened(tmp_path) as session, pytest.raises(TaskError):
            session.run(chain(who))
        path = tmp_path / "state" / "runs" / RUN / name
        path.chmod(0o777)
        with opened(tmp_path) as session, pytest.raises(ForbiddenError, match="other users may write"):
            session.resume(RUN)

    def test_what_cannot_be_pickled_is_named_before_anything_is_run(self, tmp_path):
        graph = weft.Graph("locked")
        lock = threading.Lock()
        graph.add(lambda: lock.locked(), name="uses-a-lock")
        with opened(tmp_path) as session, pytest.raises(ProgramError, match="'uses-a-lock' cannot be pickled"):
            session.submit(graph)
        assert not (tmp_path / "state" / "runs").exists()

    def test_of_a_graph_that_its_master_refuses_nothing_is_left(self, tmp_path):
        graph = weft.Graph("managed")
        graph.add(int, name="one", manager="nobody")
        with opened(tmp_path) as session, pytest.raises(GraphError, match="unknown manager"):
            session.submit(graph)
        assert list_runs(StateRoot(tmp_path / "state")) == ([], 0)

    def test_a_value_that_cannot_be_pickled_fails_its_task(self, tmp_path):
        graph = weft.Graph("locks")
        graph.add(threading.Lock, name="lock")
        with opened(tmp_path) as session, pytest.raises(ProgramError, match="cannot leave the process"):
            session.run(graph)

    def test_functions_that_cannot_be_imported_any_more(self, tmp_path, monkeypatch):
        (tmp_path / "lib").mkdir()
        module = tmp_path / "lib" / "weft_test_vanishing.py"
        module.write_text("def work():\n    raise ValueError('not yet')\n")
        monkeypatch.syspath_prepend(str(tmp_path / "lib"))
        import weft_test_vanishing  # type: ignore[import-not-found]

        graph = weft.Graph("vanishing")
        graph.add(weft_test_vanishing.work, name="work")
        with opened(tmp_path) as session, pytest.raises(TaskError):
            session.run(graph)
        module.unlink()
        monkeypatch.delitem(sys.modules, "weft_test_vanishing")
        with opened(tmp_path) as session, pytest.raises(ProgramError, match=r"cannot be loaded.*weft_test_vanishing"):
            session.resume(RUN)


class TestCancel:
    @pytest.mark.parametrize("backend", ["threads", "processes"])
    def test_what_commits_while_it_is_cancelled_is_journaled_or_dropped(self, tmp_path, monkeypatch, backend):
        """The cancel ends after the commit; what the journal says has finished, and only that, counts."""
        putting, go_on = threading.Event(), threading.Event()
        put = Outputs.put

        def slow(self: Outputs, *arguments: Any) -> Any:
            putting.set()
            assert go_on.wait(DEADLINE_S)
            return put(self, *arguments)

        monkeypatch.setattr(Outputs, "put", slow)
        graph = weft.Graph("commits")
        graph.map(str, range(2), name="texts", keep=True)
        with opened(tmp_path, backend=backend) as session:
            run = session.submit(graph)
            assert putting.wait(DEADLINE_S)
            run.cancel("now")
            assert not run.done
            go_on.set()
            with pytest.raises(RunCancelledError):
                run.result(DEADLINE_S)
        folder = tmp_path / "state" / "runs" / RUN
        graph_again, digest = load_graph(folder)
        found = recover(graph_again, read_journal(folder / "journal", trusted=True), MANAGERS, digest)
        assert found.pending.completed
        with opened(tmp_path) as session:
            assert session.resume(RUN).result(DEADLINE_S)["texts"] == ["0", "1"]


class TestFullDisk:
    def test_no_room_for_values_is_one_clear_error_and_the_run_goes_on_later(self, tmp_path, monkeypatch, counted):
        who, here = counted
        write = os.pwritev

        def full(fd: int, buffers: Any, offset: int) -> int:
            if here.calls["summed"]:
                raise OSError(errno.ENOSPC, "No space left on device")
            return write(fd, buffers, offset)

        monkeypatch.setattr(os, "pwritev", full)
        with opened(tmp_path) as session, pytest.raises(DiskFullError, match=r"no room for .* bytes"):
            session.run(chain(who))
        monkeypatch.setattr(os, "pwritev", write)
        with opened(tmp_path) as session:
            assert session.resume(RUN).result(DEADLINE_S).value("summed") == 7500
        assert [here.calls["made", i] for i in range(6)] == [1] * 6

    def test_no_room_for_the_journal_is_said_and_nothing_is_freed_any_more(self, tmp_path, monkeypatch, counted):
        who, _ = counted
        sync = os.fdatasync
        journal = tmp_path / "state" / "runs" / RUN / "journal"

        def full(fd: int) -> None:
            if journal.exists() and os.path.samestat(os.fstat(fd), journal.stat()):
                raise OSError(errno.ENOSPC, "No space left on device")
            sync(fd)

        monkeypatch.setitem(FileJournal.__init__.__kwdefaults__, "sync", full)
        with opened(tmp_path) as session:
            run = session.submit(chain(who))
            assert run.result(DEADLINE_S).value("summed") == 7500, "the run itself goes on"
            (note,) = run.notes
            assert "No space left" in note
        assert list((journal.parent / "values").iterdir())
        monkeypatch.setitem(FileJournal.__init__.__kwdefaults__, "sync", sync)
        with opened(tmp_path) as session:
            assert session.resume(RUN).result(DEADLINE_S).value("summed") == 7500


def test_nothing_is_left_of_a_call_that_was_refused(tmp_path):
    graph = weft.Graph("g")
    graph.add(abs, items=[-1])
    with weft.Session(workers=1, durable=tmp_path) as session:
        refused: list[Any] = [
            lambda: session.submit(graph, foo=1),  # type: ignore[call-arg]
            lambda: session.submit(graph, listeners=3),  # type: ignore[arg-type]
            lambda: session.submit(None),  # type: ignore[arg-type]
            lambda: session.run(graph, timeout_s=-1),
        ]
        for call in refused:
            with pytest.raises((TypeError, UsageError)):
                call()
        assert list_runs(StateRoot(tmp_path)) == ([], 0)


def test_nothing_is_left_of_a_run_that_could_not_be_started(tmp_path, monkeypatch):
    graph = weft.Graph("g")
    graph.add(abs, items=[-1])
    with weft.Session(workers=1, durable=tmp_path) as session:
        with monkeypatch.context() as patched:
            patched.setattr(session, "start", lambda *_, **__: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                session.submit(graph)
        assert list_runs(StateRoot(tmp_path)) == ([], 0)
        assert not list((tmp_path / "runs").iterdir())
        assert session.run(graph).value() == 1


def test_a_run_whose_owner_died_while_it_was_submitted_is_told_as_by_the_command(tmp_path):
    with opened(tmp_path) as session:
        folder = StateRoot(tmp_path / "state").folder(RUN)
        folder.mkdir(parents=True, mode=0o700)
        (folder / LOCK_NAME).touch()
        (folder / f".graph.pickle.{os.getpid()}").write_bytes(b"")
        with pytest.raises(NotFoundError, match=r"run\.json is missing") as told:
            session.resume(RUN)
        assert f"Remove it: weft delete {RUN}" in told.value.hint
        code, _, err = weft_command("resume", RUN, "--state-dir", str(tmp_path / "state"), cwd=tmp_path)
        assert code == told.value.exit_code
        assert told.value.message in " ".join(err.split())


@pytest.mark.parametrize("wrong", [3, None, b"x"])
def test_what_names_no_run_is_refused(wrong, tmp_path):
    with weft.Session(workers=1, durable=tmp_path) as session:
        with pytest.raises(UsageError, match=f"run is {wrong!r}; it must be text"):
            session.resume(wrong)
        with pytest.raises(UsageError, match="on_record is"):
            session.resume("@last", on_record=3)  # type: ignore[arg-type]
        with pytest.raises(NotFoundError, match=f"List the runs: weft ls --state-dir {tmp_path}"):
            session.resume("@last")
