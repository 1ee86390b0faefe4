"""What became of a plan, told by a run's folder: from the journal as the live run told it, else from the records."""

from pathlib import Path

from weft.durability.journal import JOURNAL, FileJournal, Header, graph_digest
from weft.engine.tuning import Tuning
from weft.graph.builder import Graph, shuffle
from weft.graph.logical import LogicalGraph, Manager, Range
from weft.runs.explaining import explain_graph
from weft.runs.reading import RunRecord, StepRecord
from weft.wiring import MANAGERS, Session


def pieces(number: int) -> list[int]:
    return [number] * 8


def total(parts: list[int]) -> int:
    return sum(parts)


def shuffled() -> LogicalGraph:
    graph = Graph("shuffled")
    maps = graph.map(pieces, range(20), name="maps")
    graph.add(total, shuffle(maps, 8), n=Range(1, 8), manager=Manager("shuffle"), name="readers")
    return graph


def record(folder: Path, state: str = "succeeded") -> RunRecord:
    steps = [StepRecord(name="maps", state="succeeded"), StepRecord(name="readers", state=state, attempts=2)]
    return RunRecord(id="run-000001", folder=folder, name="shuffled", state=state, steps=steps)


def test_the_journal_of_an_ended_run_tells_what_the_live_one_told(tmp_path):
    graph = shuffled()
    with Session(workers=2) as session:
        tuning = session.executor.tuning
        journal = FileJournal.create(tmp_path / JOURNAL, Header(graph=graph_digest(graph), tuning=tuning))
        session.managers = journal.managers(MANAGERS)
        run = session.start(graph, journal=journal)
        run.result()
        journal.close()
        journal.join(180)
        live = run.explained()
    told = explain_graph(record(tmp_path), shuffled(), MANAGERS)
    assert told == live
    assert ("readers", "1 to 8 tasks, by shuffle", "1 task", "vertex", ()) in told.rows
    (change,) = [change for change in told.changes if "decides" in change.what]
    assert "bytes in 8 partitions" in change.seen


def test_without_a_journal_the_records_tell_and_the_remark_says_so(tmp_path):
    told = explain_graph(record(tmp_path, "failed"), shuffled(), MANAGERS)
    assert told.rows == (
        ("maps", "20 tasks", "succeeded", "vertex", ()),
        ("readers", "1 to 8 tasks, by shuffle", "failed, 2 attempts", "vertex", ()),
        ("maps->readers", "shuffle of 8, local", "(not known)", "edge", ("maps", "readers")),
    )
    assert told.state == "failed"
    assert "there is no journal" in told.remark


def test_a_journal_of_another_graph_is_not_believed(tmp_path):
    FileJournal.create(tmp_path / JOURNAL, Header(graph="other", tuning=Tuning())).close()
    assert "another graph" in explain_graph(record(tmp_path), shuffled(), MANAGERS).remark


def test_without_the_plan_steps_stand_alone(tmp_path):
    told = explain_graph(record(tmp_path), None, MANAGERS)
    assert told.rows == (
        ("maps", "(not known)", "succeeded", "vertex", ()),
        ("readers", "(not known)", "succeeded, 2 attempts", "vertex", ()),
    )
    assert told.lines()[-1] == "  (its folder does not tell what the plan was)"
