"""Vertex managers as functions: a view in, decisions out."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

import pytest

from weft.engine.consulting import make
from weft.engine.decisions import Emit, Finish, Schedule, SetParallelism
from weft.engine.policy import InputView, View
from weft.graph.logical import Manager, Vertex
from weft.model.errors import GraphError
from weft.model.program import Program
from weft.policies.pruning import PartitionPruning
from weft.policies.shuffle import ShuffleManager, even, pack
from weft.policies.waves import WaveManager


def source(edge: str = "m->r", *, n: int = 10, ended: bool = True, sizes: Any = None, partitions: int = 0) -> InputView:
    return InputView(
        edge, edge.partition("->")[0], n, n if ended else 0, ended, partitions or len(sizes or ()), sizes, 0
    )


def view(*inputs: InputView, state: str = "configuring", n: int = -1, **fields: Any) -> View:
    given: dict[str, Any] = {
        "finished": 0,
        "executing": 0,
        "released": 0,
        "rows": 0,
        "events": {},
        "items": None,
    } | fields
    return View(0.0, "r", state, n, workers=2, inputs=inputs, **given)


# ------------------------------------------------------------------------------------------------------- shuffle


def test_ten_megabytes_in_500_partitions_are_read_by_one_task():
    decisions, _ = ShuffleManager().decide(view(source(n=1000, sizes=[20_000] * 500)), None)
    (decision,) = decisions
    assert isinstance(decision, SetParallelism)
    assert decision.n == 1
    ((edge, router),) = decision.routers
    assert edge == "m->r"
    assert router.inputs(0) == ((0, 1000, 0, 500),)


def test_nothing_is_decided_before_every_source_has_ended_nor_twice():
    manager = ShuffleManager()
    assert manager.decide(view(source(sizes=[1], ended=False)), None)[0] == ()
    assert manager.decide(view(source(sizes=[1]), state="configured", n=1), None)[0] == ()


def test_groups_are_even_where_no_partition_is_over_the_target(seed):
    draw = random.Random(seed)
    sizes = [int(draw.lognormvariate(10, 1)) for _ in range(100_000)]
    target = sum(sizes) // 1000
    bounds = even(sizes, target)
    filled = [sum(sizes[lo:hi]) for lo, hi in pairwise(bounds)]
    assert sum(filled) == sum(sizes)
    assert max(filled) <= 1.3 * sum(filled) / len(filled)
    assert len(bounds) <= len(pack(sizes, target))


def test_a_skewed_partition_is_split_by_its_sources_only_where_that_is_allowed():
    sizes = [10, 10, 1000, 10]
    whole, _ = ShuffleManager(target=100).decide(view(source(n=40, sizes=sizes)), None)
    split, _ = ShuffleManager(target=100, split=True).decide(view(source(n=40, sizes=sizes)), None)
    assert whole[0].n == 3
    assert split[0].n == 12
    router = split[0].routers[0][1]
    read = [piece for task in range(12) for piece in router.inputs(task)]
    assert sum(hi - lo for lo, hi, part, _ in read if part == 2) == 40


@pytest.mark.parametrize(("join", "split"), [("inner", "a"), ("left", "a"), ("right", "b"), ("full", "")])
def test_a_join_splits_only_a_side_whose_rows_may_meet_a_repeated_other_side(join, split):
    a = source("a->r", n=8, sizes=[10, 1000, 10])
    b = source("b->r", n=4, sizes=[1, 1, 1]) if split != "b" else source("b->r", n=4, sizes=[10, 5000, 10])
    decisions, _ = ShuffleManager(target=500, join=join).decide(view(a, b), None)
    routers = dict(decisions[0].routers)
    ways = {edge: {p[:2] for t in range(decisions[0].n) for p in r.inputs(t)} for edge, r in routers.items()}
    whole = {"a->r": {(0, 8)}, "b->r": {(0, 4)}}
    for edge, ranges in ways.items():
        assert (ranges == whole[edge]) == (edge != f"{split}->r")


def test_shuffles_of_different_widths_cannot_be_read_together():
    with pytest.raises(GraphError, match="differ in partitions"):
        ShuffleManager().decide(view(source("a->r", sizes=[1]), source("b->r", sizes=[1, 1])), None)


@pytest.mark.parametrize("wrong", [{"target": 0}, {"lo": 0}, {"lo": 3, "hi": 2}, {"join": "sideways"}])
def test_wrong_parameters_are_told(wrong):
    with pytest.raises(GraphError):
        ShuffleManager(**wrong)


# --------------------------------------------------------------------------------------------------------- waves


def scan(**fields: Any) -> View:
    return view(state="configured", n=4000, **fields)


def test_waves_begin_with_one_and_are_sized_by_rows():
    manager = WaveManager(rows=100)
    decisions, memo = manager.decide(scan(), None)
    assert decisions == (Schedule("r", 1),)
    decisions, memo = manager.decide(scan(released=1, finished=1, rows=2), memo)
    assert decisions == (Schedule("r", 75),)  # 98 rows are missing, 2 a task, and half as much again: 74 more


def test_waves_grow_where_no_row_comes():
    manager = WaveManager(rows=5)
    released, memo = 0, None
    steps = []
    while released < 4000:
        decisions, memo = manager.decide(scan(released=released, finished=released), memo)
        released = decisions[0].n
        steps.append(released)
    assert steps == [1, 5, 21, 85, 341, 1365, 4000]


def test_a_wave_is_waited_for():
    assert WaveManager(rows=5).decide(scan(released=5, finished=4, rows=1), 4)[0] == ()


def test_rows_whose_output_is_lost_are_waited_for():
    assert WaveManager(rows=5).decide(scan(released=5, finished=3, rows=6, lost=1), 4)[0] == ()


def test_enough_rows_let_the_consumer_start_and_end_the_vertex():
    enough, finish = WaveManager(rows=5).decide(scan(released=5, finished=3, rows=6), 4)[0]
    assert enough == Emit("r", "enough")
    assert isinstance(finish, Finish)


def test_the_consumer_starts_too_when_all_is_read_and_it_was_not_enough():
    assert WaveManager(rows=5).decide(scan(released=4000, finished=4000, rows=2), 4)[0] == (Emit("r", "enough"),)


# ------------------------------------------------------------------------------------------------------- pruning


def test_only_the_splits_that_somebody_asked_for_are_kept():
    items = [{"key": key} for key in range(1000)]
    events = {("small", "keys"): [[3, 7], [7, 900, 5000]]}
    decisions, done = PartitionPruning("key").decide(
        view(source("small->r"), state="configured", n=1000, items=items, events=events), None
    )
    assert decisions == (SetParallelism("r", 3, items=[items[3], items[7], items[900]]), Schedule("r", 3))
    assert PartitionPruning("key").decide(view(source("small->r"), state="configured", n=3), done)[0] == ()


def test_nothing_is_pruned_where_nobody_said_keys():
    decisions, _ = PartitionPruning("key").decide(
        view(source("small->r"), state="configured", n=10, items=[{"key": 1}] * 10), None
    )
    assert decisions == (Schedule("r", 10),)


def test_a_split_without_the_key_is_told():
    events = {("small", "keys"): [[1]]}
    with pytest.raises(GraphError, match="no 'key'"):
        PartitionPruning("key").decide(
            view(source("small->r"), state="configured", n=1, items=[{"kye": 1}], events=events), None
        )


@pytest.mark.parametrize("params", [{}, {"rows": "x"}, {"raws": 1}, "rows"], ids=str)
def test_parameters_that_a_manager_does_not_take_are_told_with_those_it_takes(params):
    vertex = Vertex("scan", Program(str), manager=Manager("waves", params))
    with pytest.raises(GraphError) as caught:
        make({"waves": WaveManager}, vertex)
    assert f"does not take these parameters: {params!r} were given, of (rows: 'int', " in caught.value.message
