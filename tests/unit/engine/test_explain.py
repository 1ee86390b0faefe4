"""What was planned beside what was executed, and why: of jobs that the simulator ran."""

from __future__ import annotations

from typing import Any

from weft.engine.explain import explain
from weft.graph.builder import Graph, after, gather, one_to_one, shuffle
from weft.graph.logical import Manager, Patch, Range, Role, Storage, Trigger, Vertex
from weft.model.program import Program
from weft.policies.choices import BroadcastChoice
from weft.policies.shuffle import ShuffleManager
from weft.policies.waves import WaveManager
from weft.testing.graphs import work
from weft.testing.trial import run_graph

MANAGERS = {"shuffle": ShuffleManager, "waves": WaveManager, "conditional": BroadcastChoice}


def told(graph: Graph, **simulator: Any) -> list[str]:
    trial = run_graph(graph, managers=MANAGERS, **simulator)
    assert trial.job.outcome is not None
    assert trial.job.outcome.state == "succeeded"
    return explain(trial.job.master.core).lines()


def row(lines: list[str], name: str) -> list[str]:
    (found,) = [line for line in lines if line.startswith(f"  {name}  ")]
    return [part.strip() for part in found.split("  ") if part.strip()][1:]


def test_a_graph_that_did_not_change_has_equal_columns() -> None:
    graph = Graph("plain")
    graph.add(work, gather(graph.add(work, n=3, name="a")), name="b")
    lines = told(graph)
    assert lines[0] == "plain: succeeded"
    assert row(lines, "a") == ["3 tasks", "3 tasks"]
    assert row(lines, "a->b") == ["all to all, local", "all to all, local"]
    assert not [line for line in lines if "changes" in line]


def test_parallelism_that_was_open_and_the_bytes_it_was_chosen_by() -> None:
    graph = Graph("shuffled")
    maps = graph.add(work, n=4, name="maps")
    graph.add(work, shuffle(maps, 8), n=Range(1, 8), manager="shuffle", name="readers")
    lines = told(graph)
    assert row(lines, "readers") == ["1 to 8 tasks, by shuffle", "1 task"]
    assert row(lines, "maps->readers") == ["shuffle of 8, local", "shuffle of 8, local, regrouped for 1 task"]
    (why,) = [line for line in lines if "decides" in line]
    assert "readers: its manager decides: 1 task, each with its share of the inputs (seen: maps ended" in why


def test_a_branch_that_was_taken_and_the_one_that_was_not() -> None:
    graph = Graph("join")
    side = graph.add(work, n=2, name="side")
    params = {"choice": "join", "small": {"side": "copied"}, "otherwise": "shuffled", "under": 100}
    which = graph.add(work, after(side), name="which", manager=Manager("conditional", params))
    graph.choice(
        which,
        name="join",
        copied=graph.add(work, gather(side), name="copy"),
        shuffled=graph.add(work, shuffle(side), n=2, name="mix"),
    )
    lines = told(graph, nbytes=lambda vertex, _: 40)
    assert row(lines, "choice join") == ["copied or shuffled", "copied"]
    assert row(lines, "mix") == ["2 tasks", "skipped"]
    assert [line for line in lines if "side has 80 bytes, at most 100 are small: copied" in line]


def test_what_a_patch_added_names_its_expander() -> None:
    added = Patch(vertices=(Vertex("plan/more", Program(work), 5),))
    graph = Graph("grown")
    graph.add(work, name="plan", expands=True)
    lines = told(graph, value=lambda vertex, _: added if vertex == "plan" else None)
    assert row(lines, "plan/more") == ["(added by plan)", "5 tasks"]
    assert [line for line in lines if "plan: patch: 1 vertex, 0 edges added" in line]


def test_a_vertex_that_had_begun_is_terminated_by_a_cancel_and_one_that_had_not_is_cancelled() -> None:
    graph = Graph("cut")
    graph.add(work, gather(graph.add(work, n=3, name="long")), name="after")
    lines = explain(run_graph(graph, cancel_at=0.5, seconds=lambda vertex, _: 5.0).job.master.core).lines()
    assert row(lines, "long") == ["3 tasks", "0 of 3 tasks, terminated"]
    assert row(lines, "after") == ["1 task", "0 of 1 task, cancelled"]


def test_a_bubble_that_did_not_fit_is_shown_as_what_was_left() -> None:
    graph = Graph("bubble")
    a = graph.add(work, n=2, name="a")
    b = graph.add(work, one_to_one(a, concurrent=True, storage=Storage.EPHEMERAL), n=2, name="b")
    graph.bubble(a, b)
    lines = told(graph, workers=3)
    assert row(lines, "bubble bubble-1") == ["a, b", "dissolved"]
    assert row(lines, "a->b") == ["one to one, concurrent, ephemeral", "one to one, local"]
    assert [line for line in lines if "bubble-1: shrunk: b, a left" in line]


def test_an_early_end_says_how_many_were_made() -> None:
    graph = Graph("limit")
    scan = graph.add(work, n=100, name="scan", manager=Manager("waves", {"rows": 0}))
    graph.add(work, after(scan, when=Trigger.EVENT, event="enough"), name="limit")
    lines = told(graph)
    assert row(lines, "scan") == ["100 tasks, by waves", "0 of 100 tasks, ended early"]


def test_steps_with_labels_go_by_those_and_helpers_are_not_shown() -> None:
    graph = Graph("labelled")
    first = graph.add(work, name="a", label="first")
    listed = graph.add(work, gather(first), name="x/list", label="sort", role=Role.HELPER)
    graph.add(work, gather(listed), n=2, name="x", label="sort")
    lines = told(graph)
    assert row(lines, "sort") == ["2 tasks", "2 tasks"]
    assert row(lines, "first->sort") == ["order only", "order only"]
    assert not [line for line in lines if "x/list" in line or "helper" in line]


def test_counted_vertices_tell_the_rows_bytes_and_seconds_of_all_tasks() -> None:
    graph = Graph("counted")
    rows = graph.add(work, n=100, name="rows", counted=True)
    graph.add(work, one_to_one(rows), name="read")
    trial = run_graph(graph, managers=MANAGERS)
    core = trial.job.master.core
    found = {vertex.id: vertex for vertex in trial.job.inspector.view().vertices}
    assert found["rows"].seconds > 0
    assert found["rows"].nbytes == core.by_id["rows"].written
    assert core.by_id["rows"].counted.count(1) == 100
    assert (found["read"].rows, found["read"].nbytes, found["read"].seconds) == (-1, -1, -1)
    assert " rows of " in row(explain(core).lines(), "rows->read")[1]
