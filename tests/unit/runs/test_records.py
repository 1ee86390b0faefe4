"""What is written down of a run, and how it reads afterwards. A real master, with the test as its shell."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.runs.shell import STEPS, Shell, chain
from weft.engine.commands import Complete
from weft.engine.events import CancelRequested, Failed, Offered, UserEvent, WorkerJoined
from weft.engine.ports import ManualClock
from weft.frontends.pipelines.states import PROJECTION
from weft.graph.logical import AFTER_ANY, NONE, Edge, LogicalGraph, OnFailure, Retry, Role, Storage, Vertex
from weft.graph.projection import Projection
from weft.model.errors import ConflictError, DiskFullError, NotFoundError, UsageError, WeftError
from weft.model.failures import Failure
from weft.model.program import Program
from weft.runs import records
from weft.runs.listing import as_it_is, describe, list_runs, mark_interrupted, open_catalog
from weft.runs.reading import read_run, record_interruption
from weft.runs.recorder import RunRecorder
from weft.runs.records import Record, parse_record
from weft.runs.step_tree import tree
from weft.store.catalog import RunRow
from weft.store.state import RunFolder, StateRoot


@pytest.fixture
def root(tmp_path) -> StateRoot:
    return StateRoot(tmp_path / ".weft")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1000.0)


@pytest.fixture
def start(root, clock):
    """Begin a run with the folder, catalog row and recorder that wiring would make."""
    opened = []

    def start(**options) -> SimpleNamespace:
        catalog = root.catalog()
        id, number = catalog.next_run_id()
        folder = RunFolder.create(root, id)
        folder.describe(name="chain", number=number, steps=list(STEPS), created_at=999.0, user="ada")
        catalog.add_run(RunRow(id=id, number=number, name="chain"))
        heard: list[Record] = []
        options.setdefault("on_record", heard.append)
        recorder = RunRecorder(folder, clock, catalog=catalog, **({"projection": PROJECTION} | options))
        run = SimpleNamespace(folder=folder, catalog=catalog, recorder=recorder, heard=heard, id=id)
        opened.append(run)
        return run

    yield start
    for run in opened:
        run.recorder.close()
        run.folder.release()


def states(run) -> list[str]:
    return [f"{record.step or 'run'} {record.state}" for record in run.heard]


def test_a_run_that_succeeds(start, clock):
    run = start()
    shell = Shell(chain(), run.recorder, clock)
    for _ in STEPS:
        shell.succeed()
    run.recorder.finish(shell.job)
    run.recorder.close()
    assert states(run) == [
        "run running",
        "prepare running",
        "prepare succeeded",
        "train running",
        "train succeeded",
        "report running",
        "report succeeded",
        "run succeeded",
    ]
    found = read_run(run.folder.path)
    assert (found.id, found.name, found.state, found.user, found.number) == (run.id, "chain", "succeeded", "ada", 1)
    assert (found.created, found.started, found.ended) == (999.0, 1001.0, 1004.0)
    assert [(s.name, s.state, s.started, s.ended, s.attempts) for s in found.steps] == [
        ("prepare", "succeeded", 1001.0, 1002.0, 1),
        ("train", "succeeded", 1002.0, 1003.0, 1),
        ("report", "succeeded", 1003.0, 1004.0, 1),
    ]
    row = run.catalog.find(run.id)
    assert (row.state, row.started_at, row.ended_at, row.error_code) == ("succeeded", 1001.0, 1004.0, "")
    assert run.recorder.problems == []


class Journal:
    """Makes durable what it has taken when the test says so, or cannot."""

    def __init__(self) -> None:
        self.error: WeftError | None = None
        self.waiting: list[Callable[[], None]] = []

    def when_durable(self, then) -> None:
        self.waiting.append(then)

    def durable(self) -> None:
        waiting, self.waiting = self.waiting, []
        for then in waiting:
            then()


class TestPower:
    """A recorder that tells nothing before it is safe from a loss of power."""

    @pytest.fixture
    def run(self, start):
        run = start()
        run.journal = Journal()
        run.recorder.wait_for(run.journal, durable=True)
        return run

    def told(self, run) -> list[str]:
        assert run.recorder.flush()
        return states(run)

    def test_no_end_is_told_that_the_journal_does_not_hold(self, run, clock):
        shell = Shell(chain(), run.recorder, clock)
        assert self.told(run) == ["run running", "prepare running"], "no end: nobody waits for it"
        shell.succeed()
        assert self.told(run) == ["run running", "prepare running"]
        assert read_run(run.folder.path).step("prepare").state == "running"
        run.journal.durable()
        assert self.told(run) == ["run running", "prepare running", "prepare succeeded", "train running"]
        shell.succeed()
        run.journal.error = DiskFullError("full")
        run.journal.durable()
        assert "train succeeded" not in self.told(run)
        run.recorder.finish(shell.job)
        assert "train succeeded" not in self.told(run), "what was not durable is not told at the end either"

    def test_what_cannot_be_written_is_not_told(self, run, clock):
        shell = Shell(chain(), run.recorder, clock)
        before = self.told(run)
        os.close(run.recorder._fd)
        run.recorder._fd = os.open("/dev/full", os.O_WRONLY)
        shell.succeed()
        run.journal.durable()
        assert self.told(run) == before
        assert not run.recorder.complete
        assert "No space left" in str(run.recorder.problems[0])


def test_a_run_that_fails(start, clock):
    run = start()
    shell = Shell(chain(), run.recorder, clock)
    shell.succeed()
    shell.fail("train", "step train ended with exit code 3")
    run.recorder.finish(shell.job)
    run.recorder.close()
    found = read_run(run.folder.path)
    assert (found.state, found.error_code) == ("failed", "WEFT501")
    assert "exit code 3" in found.message
    assert [(s.name, s.state, s.started, s.message) for s in found.steps] == [
        ("prepare", "succeeded", 1001.0, ""),
        ("train", "failed", 1002.0, "ended with exit code 3"),
        ("report", "cancelled", None, "train failed"),
    ]
    row = run.catalog.find("@failed")
    assert (row.id, row.error_code) == (run.id, "WEFT501")


def test_a_run_that_was_killed_ran_until_the_last_sign_of_life(start, clock, root):
    run = start()
    shell = Shell(chain(), run.recorder, clock)
    shell.succeed()
    run.recorder.close()
    run.folder.release()
    log = run.folder.log_path("train")
    for file, time in ((run.folder.events, 1002.0), (log, 1042.0)):
        file.touch()
        os.utime(file, (time, time))
    found = read_run(run.folder.path)
    assert (found.state, found.started, found.ended) == ("interrupted", 1001.0, 1042.0)
    assert [(s.name, s.state, s.ended) for s in found.steps][:2] == [
        ("prepare", "succeeded", 1002.0),
        ("train", "interrupted", 1042.0),
    ]
    clock.advance(500.0)
    with RunFolder.create(root, run.id) as folder:
        for _ in range(2):  # it may be killed between the two
            record_interruption(folder)
            os.utime(log, (1300.0, 1300.0))
        again = RunRecorder(folder, clock, catalog=run.catalog, projection=PROJECTION, over={"prepare"})
        again.run_state("pending")
        assert again.flush()
        again.close()
        found = read_run(folder.path)
        assert found.pauses == [(1042.0, clock.wall())]
        assert run.catalog.find(run.id).paused_s == clock.wall() - 1042.0


def test_a_run_that_goes_on_later_tells_the_time_that_it_ran(start, clock, root):
    run = start()
    shell = Shell(chain(), run.recorder, clock)
    shell.succeed()
    shell.fail("train", "step train ended with exit code 3")
    run.recorder.finish(shell.job)
    run.recorder.close()
    run.folder.release()
    clock.advance(500.0)
    with RunFolder.create(root, run.id) as folder:
        words = PROJECTION
        again = RunRecorder(folder, clock, catalog=run.catalog, projection=words, over={"prepare"})
        again.run_state("pending")
        again.say("train", "resumed")
        assert again.flush()
        assert read_run(folder.path).step("train").started is None, "it waits"
        shell = Shell(chain(), again, clock)
        for _ in STEPS:
            shell.succeed()
        again.finish(shell.job)
        again.close()
    found = read_run(folder.path)
    train = found.step("train")
    assert (train.started, train.ended, found.step("prepare").ended) == (1505.0, 1506.0, 1002.0)
    assert (found.started, found.ended, found.paused_s) == (1001.0, 1507.0, 500.0)
    row = run.catalog.find(run.id)
    assert (row.started_at, row.ended_at, row.paused_s) == (1001.0, found.ended, found.paused_s)
    assert row.paused_s == 500.0
    run.catalog.rebuild(root.runs, describe)
    assert run.catalog.find(run.id).paused_s == 500.0, "and so does an index that is made again"


def test_a_dag_over_a_pause_tells_the_time_that_it_ran(start, clock):
    run = start()
    told = [
        ("", "running"), ("dag.a", "running"), ("dag.a", "succeeded"), ("", "failed"),
        ("", "pending"), ("", "running"), ("dag.b", "running"), ("dag.b", "succeeded"),
    ]  # fmt: skip
    times = (1.0, 2.0, 5.0, 5.0, 105.0, 106.0, 106.0, 108.0)
    over = ("succeeded", "failed")
    lines = [Record(time=at, step=s, state=w, ended=w in over) for at, (s, w) in zip(times, told, strict=True)]
    run.folder.events.write_bytes(b"".join(record.to_line(run.folder.path) for record in lines))
    dag = tree(read_run(run.folder.path))[-3][1]
    assert (dag.name, dag.started, dag.ended, dag.paused_s) == ("dag", 2.0, 108.0, 100.0)


def test_a_retry_shows_each_attempt(start, clock):
    run = start()
    shell = Shell(chain(retry=Retry(user=1)), run.recorder, clock)
    shell.fail("prepare", "first")
    run.recorder.flush()
    assert [r.message for r in run.heard if r.step][1:] == ["failed, and is tried again: first", "begins again"]
    assert read_run(run.folder.path).step("prepare").attempts == 2
    assert read_run(run.folder.path).step("prepare").state == "running"
    shell.fail("prepare", "second")
    run.recorder.finish(shell.job)
    run.recorder.close()
    step = read_run(run.folder.path).step("prepare")
    assert (step.state, step.attempts, step.message) == ("failed", 2, "second")


def beside(name: str) -> LogicalGraph:
    """A step, and another one beside it that waits for a helper of its own."""
    graph = LogicalGraph(name="beside", on_failure=OnFailure.FAIL_FAST)
    graph.add_vertex(Vertex("prepare", Program("math:sqrt")))
    graph.add_vertex(Vertex(f"{name}/if", Program("math:sqrt"), label=name, role=Role.HELPER))
    graph.add_vertex(Vertex(name, Program("math:sqrt")))
    graph.add_edge(Edge(f"{name}/if", name, movement=NONE, storage=Storage.NONE))
    return graph


def test_a_helper_that_fails_after_its_step_was_cancelled_is_not_tried_again(start, clock):
    run = start()
    shell = Shell(beside("train"), run.recorder, clock)
    first = shell.lease
    shell.tick(WorkerJoined(0.0, 1, 0), Offered(0.0, (1,)))
    second = shell.lease
    assert first != second, "the helper runs too"
    shell.tick(Failed(0.0, first, 0, "prepare", 0, Failure.USER, "it broke"))
    shell.tick(Failed(0.0, second, 0, "train/if", 0, Failure.USER, "it cannot be answered"))
    run.recorder.finish(shell.job)
    run.recorder.close()
    assert [record.message for record in run.heard if "tried again" in record.message] == []
    step = read_run(run.folder.path).step("train")
    assert (step.state, step.message) == ("cancelled", "prepare failed")


def test_a_cancel_ends_what_runs_and_what_waits(start, clock):
    run = start()
    shell = Shell(chain(), run.recorder, clock)
    shell.tick(CancelRequested(0.0, "Ctrl-C"))
    run.recorder.flush()
    assert read_run(run.folder.path).state == "terminating"
    shell.tick(Failed(0.0, shell.lease, 0, "prepare", 0, Failure.STOPPED, "stopped"))
    run.recorder.finish(shell.job)
    run.recorder.close()
    found = read_run(run.folder.path)
    assert (found.state, found.error_code, found.message) == ("terminated", "WEFT502", "Ctrl-C")
    assert [step.state for step in found.steps] == ["terminated", "cancelled", "cancelled"]


def test_what_goes_on_after_a_failure(start, clock):
    graph = chain(on_failure=OnFailure.CONTINUE)
    graph.edges[1].scheduling = AFTER_ANY
    run = start()
    shell = Shell(graph, run.recorder, clock)
    shell.succeed()
    shell.fail("train")
    shell.succeed()
    run.recorder.finish(shell.job)
    run.recorder.close()
    assert [step.state for step in read_run(run.folder.path).steps] == ["succeeded", "failed", "succeeded"]
    assert read_run(run.folder.path).state == "failed"


def test_an_owner_that_dies_leaves_an_interrupted_run(start, clock, root):
    run = start()
    shell = Shell(chain(), run.recorder, clock)
    shell.succeed()
    run.recorder.flush()
    assert read_run(run.folder.path).state == "running"
    assert list_runs(root)[0][0].state == "running"
    run.folder.release()  # as the kernel does when the owner is killed
    found = read_run(run.folder.path)
    assert found.state == "interrupted"
    assert [step.state for step in found.steps] == ["succeeded", "interrupted", "pending"]
    assert list_runs(root)[0][0].state == "interrupted"
    assert [row.id for row in list_runs(root, state="interrupted")[0]] == [run.id]
    assert list_runs(root, state="running") == ([], 0)
    assert run.catalog.find(run.id).state == "running", "looking writes nothing"
    assert mark_interrupted(root) == [run.id]
    assert mark_interrupted(root) == []
    assert run.catalog.find(run.id).state == "interrupted"


def test_a_torn_last_line_is_left_out_and_cut_off(start, clock, root):
    run = start()
    run.recorder.run_state("running")
    run.recorder.close()
    with run.folder.events.open("ab") as file:
        file.write(b'{"time":5,"state":"succeeded","ended":tr')
    assert read_run(run.folder.path).state == "running"
    again = RunRecorder(run.folder, clock, projection=PROJECTION)
    again.run_state("succeeded", ended=True)
    again.close()
    lines = run.folder.events.read_bytes().splitlines()
    assert [json.loads(line)["state"] for line in lines] == ["running", "succeeded"]


def test_a_file_of_one_torn_line_is_emptied(start, clock):
    run = start()
    run.recorder.close()
    run.folder.events.write_bytes(b"x" * 200_000)
    again = RunRecorder(run.folder, clock, projection=PROJECTION)
    again.close()
    assert run.folder.events.read_bytes() == b""


def test_lines_that_make_no_sense_are_passed_over(start):
    run = start()
    run.recorder.run_state("running")
    run.recorder.close()
    with run.folder.events.open("ab") as file:
        file.write(b'[]\n{"time":"x"}\n\xff\n{"state":"failed"}\n{"time":1,"step":3}\n')
        file.write(b'{"time":2000,"step":"train","state":"running","colour":"red"}\n')
    found = read_run(run.folder.path)
    assert (found.state, found.step("train").state) == ("running", "running")


FOLDER = Path("/p/.weft/runs/r")


@given(
    st.builds(
        Record,
        time=st.floats(0, 1e12),
        step=st.text(max_size=20),
        state=st.sampled_from(records.STEP_STATES),
        message=st.text(max_size=50),
        index=st.none() | st.integers(0, 10**9),
        attempt=st.integers(0, 100),
        exit=st.none() | st.integers(0, 255),
        ended=st.booleans(),
        error=st.sampled_from(["", "WEFT501"]),
        outputs=st.dictionaries(st.text(max_size=3), st.sampled_from(["/p/.pipeline/r/x", "/p/.weft/y", "/q/z"])),
    )
)
def test_a_record_is_one_line_and_comes_back(record):
    line = record.to_line(FOLDER)
    assert line.index(b"\n") == len(line) - 1
    assert parse_record(line, FOLDER) == record


def test_a_message_about_a_step_is_taken_back(start):
    run = start()
    run.recorder.say("prepare", "waits for another run")
    run.recorder.flush()
    assert read_run(run.folder.path).step("prepare").message == "waits for another run"
    run.recorder.say("prepare", "")
    run.recorder.flush()
    assert read_run(run.folder.path).step("prepare").message == ""


def test_what_is_said_by_hand(start, clock):
    run = start()
    run.recorder.run_state("pending")
    shell = Shell(chain(), run.recorder, clock)
    run.recorder.say("prepare", "reading", exit=0)
    run.recorder.flush()
    step = read_run(run.folder.path).step("prepare")
    assert (step.state, step.message, step.exit) == ("running", "reading", 0)
    for _ in STEPS:
        shell.succeed()
    run.recorder.finish(shell.job)
    run.recorder.run_state("failed", error=UsageError("late"), ended=True)
    run.recorder.close()
    found = read_run(run.folder.path)
    assert found.state == "succeeded", "an end is final"
    assert found.step("prepare").exit == 0


def test_a_failure_before_the_loop(start):
    run = start()
    run.recorder.run_state("failed", error=UsageError("no such thing", hint="look"), ended=True)
    run.recorder.close()
    found = read_run(run.folder.path)
    assert (found.state, found.error_code, found.message) == ("failed", "WEFT100", "no such thing\nlook")


def test_a_master_that_breaks_down_is_told(start, clock):
    run = start()
    job = Shell(chain(), run.recorder, clock).job
    job.crash = ZeroDivisionError("a defect")
    job.outcome = Complete("failed", "", "internal error: a defect", kind="internal")
    run.recorder.finish(job)
    run.recorder.close()
    found = read_run(run.folder.path)
    assert (found.state, found.error_code, found.message) == ("failed", "WEFT900", "internal error: a defect")


def test_of_steps_that_are_over_nothing_is_told(start, clock):
    run = start(over=[step for step in STEPS if step != "train"])
    shell = Shell(chain(), run.recorder, clock)
    for _ in STEPS:
        shell.succeed()
    run.recorder.finish(shell.job)
    run.recorder.close()
    assert {record.step for record in run.heard} == {"", "train"}


def test_words_of_another_kind(start, clock):
    class Words(Projection, frozen=True):
        def step(self, state, *, started):
            return super().step(state, started=started).upper()

    run = start(projection=Words("louder"))
    Shell(chain(), run.recorder, clock).succeed()
    run.recorder.flush()
    assert "prepare SUCCEEDED" in states(run)


def test_a_listener_that_raises_is_dropped(start, clock):
    calls = []

    def listener(record):
        calls.append(record)
        raise ValueError("mine")

    run = start(on_record=listener)
    Shell(chain(), run.recorder, clock)
    run.recorder.flush()
    assert len(calls) == 1
    assert [str(problem) for problem in run.recorder.problems] == ["mine"]
    assert read_run(run.folder.path).state == "running"


def test_an_index_that_cannot_be_written_is_a_problem_and_no_end(start, clock):
    run = start()
    run.catalog.remove(run.id)
    shell = Shell(chain(), run.recorder, clock)
    for _ in STEPS:
        shell.succeed()
    run.recorder.finish(shell.job)
    run.recorder.close()
    assert {type(problem) for problem in run.recorder.problems} == {NotFoundError}
    assert read_run(run.folder.path).state == "succeeded"


def test_a_disk_that_is_full_is_a_problem_and_no_end(root, clock, start, monkeypatch):
    run = start()

    def full(fd, data):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    run.recorder.run_state("running")
    run.recorder.run_state("succeeded", ended=True)
    run.recorder.close()
    monkeypatch.undo()
    assert [problem.code for problem in run.recorder.problems] == ["WEFT401"]
    assert states(run) == ["run running", "run succeeded"], "who watches hears it all the same"


def test_what_found_no_room_is_written_when_there_is_some(root, start, monkeypatch):
    run = start()
    own, calls = os.write, []

    def tight(fd, data):
        calls.append(len(data))
        if len(calls) == 1:
            return own(fd, data[:5])  # torn
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", tight)
    run.recorder.run_state("running")
    assert run.recorder.flush()
    assert run.folder.events.read_bytes() == b""
    assert not run.recorder.complete
    assert run.catalog.find(run.id).state == "pending", "the index knows no more than the folder"
    assert [row.state for row in list_runs(root)[0]] == [read_run(run.folder.path).state]
    monkeypatch.undo()
    run.recorder.run_state("succeeded", ended=True)
    run.recorder.close()
    assert run.recorder.complete
    assert [record.state for record in records.read_records(run.folder.path)] == ["running", "succeeded"]
    assert run.catalog.find(run.id).state == "succeeded"


def test_a_warning_is_the_message_of_a_step_that_succeeds(start, clock):
    run = start()
    shell = Shell(chain(), run.recorder, clock)
    shell.tick(UserEvent(0.0, "prepare", 0, "warning", "its output x was not made"))
    shell.tick(UserEvent(0.0, "prepare", 0, "rows", "5"))
    for _ in STEPS:
        shell.succeed()
    run.recorder.close()
    found = read_run(run.folder.path)
    assert [step.message for step in found.steps] == ["warning: its output x was not made", "", ""]
    assert [step.warned for step in found.steps] == [True, False, False]
    assert {step.state for step in found.steps} == {"succeeded"}


def test_the_list_agrees_with_the_folders(start, root, clock):
    told, untold, behind = start(), start(), start()
    for run in (told, untold, behind):
        if run is behind:
            run.recorder._catalog = None
        run.recorder.run_state("running")
        run.recorder.run_state("failed" if run is behind else "succeeded", ended=True)
        run.recorder.close()
        run.folder.release()
    root.catalog().remove(untold.id)
    rows, total = list_runs(root)
    expected = [read_run(run.folder.path).state for run in (behind, untold, told)]
    assert [row.id for row in rows] == [behind.id, untold.id, told.id]
    assert ([row.state for row in rows], total) == (expected, 3)
    assert rows[0].ended_at is not None
    assert [row.id for row in list_runs(root, limit=1)[0]] == [behind.id]
    assert [row.id for row in list_runs(root, state="failed")[0]] == [behind.id]
    assert list_runs(root, state="succeeded", limit=1)[1] == 2
    assert mark_interrupted(root) == []
    assert root.catalog().find(behind.id).state == "failed", "a start mends the index"


def test_logs_belong_to_their_steps(start):
    run = start()
    for attempt in (0, 1):
        run.folder.log_path("train", None, attempt).write_text("x")
    found = read_run(run.folder.path)
    assert [log.attempt for log in found.step("train").logs] == [0, 1]
    with pytest.raises(NotFoundError, match=r"(?s)no step 'tarin'.*prepare, train, report"):
        found.step("tarin")


def test_folders_that_are_no_runs(tmp_path, root):
    with pytest.raises(NotFoundError, match="no run"):
        read_run(tmp_path / "none")
    (tmp_path / "file").touch()
    with pytest.raises(NotFoundError):
        read_run(tmp_path / "file")
    with RunFolder.create(root, "run-000001") as folder:
        assert read_run(folder.path).state == "pending", "about to be described"
        folder.describe(version=99)
        with pytest.raises(ConflictError):
            read_run(folder.path)


def test_a_row_whose_folder_is_gone_is_interrupted(tmp_path):
    row = RunRow(id="r", number=1, state="running")
    assert as_it_is(StateRoot(tmp_path), row).state == "interrupted"


def test_a_lost_index_is_made_again(root):
    for number in (1, 2):
        with RunFolder.create(root, f"run-{number:06d}") as folder:
            folder.describe(name="n", number=number)
    catalog = open_catalog(root)
    assert [row.id for row in catalog.list()] == ["run-000002", "run-000001"]
    assert catalog.next_run_id()[0] == "run-000003"
    catalog.add_run(RunRow(id="run-000003", number=3))
    assert open_catalog(root).count() == 3, "an index that is there is kept"
