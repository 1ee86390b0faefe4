"""Vertex managers as functions: a view in, decisions out."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from typing import Any, NamedTuple

import pytest

from weft.engine.consulting import check_managers, make
from weft.engine.decisions import Emit, Finish, Schedule, SetParallelism
from weft.engine.policy import InputView, View
from weft.engine.replay import Tape
from weft.graph.builder import Graph, after, gather, shuffle
from weft.graph.logical import Manager, Range, Vertex
from weft.model.errors import GraphError
from weft.model.program import Program
from weft.policies.pruning import PartitionPruning
from weft.policies.shuffle import ShuffleManager, even, pack
from weft.policies.waves import ShuffleWaves, WaveManager
from weft.testing.graphs import work
from weft.wiring import MANAGERS

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def source(
    edge: str = "m->r", *, n: int = 10, ended: bool = True, sizes: Any = None, partitions: int = 0, nbytes: int = 0
) -> InputView:
    return InputView(
        edge, edge.partition("->")[0], n, n if ended else 0, ended, partitions or len(sizes or ()), sizes, 0, nbytes
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
    return View(0.0, "r", state, n, workers=given.pop("workers", 2), inputs=inputs, **given)


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


@pytest.mark.parametrize("sizes", [[0] * 40, [1] * 40, [10**9, *[0] * 39], [7] * 39 + [10**6]], ids=repr)
@pytest.mark.parametrize("allowed", [Range(1, 1), Range(3, 5), Range(39, 40), Range(40, 100)], ids=repr)
@pytest.mark.parametrize("split", [True, False])
def test_as_many_tasks_are_set_as_are_allowed(sizes, allowed, split):
    manager = ShuffleManager(target=10, split=split)
    ((decision,), _) = manager.decide(view(source(n=6, sizes=sizes), allowed=allowed), None)
    assert isinstance(decision, SetParallelism)
    assert allowed.lo <= decision.n <= allowed.hi
    ((_, router),) = decision.routers
    read = Counter(
        (src, part)
        for dst in range(decision.n)
        for lo, hi, first, last in router.inputs(dst)
        for src in range(lo, hi)
        for part in range(first, last)
    )
    assert read == Counter((src, part) for src in range(6) for part in range(40))


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


@pytest.mark.parametrize(("workers", "split"), [(1, False), (2, False), (3, True), (8, True)])
@pytest.mark.parametrize("given", [{"split": True}, {"join": "inner"}], ids=str)
def test_a_heavy_partition_is_split_only_if_one_worker_would_be_busy_with_it_for_longest(workers, split, given):
    sizes = [*[10] * 10, 1000, *[10] * 90]  # half of all bytes
    decisions, _ = ShuffleManager(target=100, **given).decide(view(source(n=40, sizes=sizes), workers=workers), None)
    groups = 1 + 10  # the heavy partition, and the others by hundreds of bytes
    assert decisions[0].n == groups + (9 if split else 0)


def test_a_partition_that_may_not_fit_into_memory_is_split_however_few_workers_there_are():
    sizes = [*[10] * 10, 2000, *[10] * 190]  # half of all bytes, and 20 targets
    decisions, _ = ShuffleManager(target=100, split=True).decide(view(source(n=40, sizes=sizes), workers=2), None)
    assert decisions[0].n == 20 + 20


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


@pytest.mark.parametrize("join", ["left", "right"])
def test_a_join_splits_no_side_while_it_would_repeat_a_heavier_one(join):
    light, heavy = [10, 600, 10], [10, 5000, 10]
    sides = (light, heavy) if join == "left" else (heavy, light)
    inputs = [source(f"{name}->r", n=8, sizes=sizes) for name, sizes in zip("ab", sides, strict=True)]
    decisions, _ = ShuffleManager(target=500, join=join).decide(view(*inputs), None)
    assert decisions[0].n == 3


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


def test_readers_of_a_shuffle_are_counted_by_bytes_and_start_in_waves():
    manager = ShuffleWaves(rows=5, target=100)
    (decision,), memo = manager.decide(view(source(n=3, sizes=[60] * 8)), None)
    assert isinstance(decision, SetParallelism)
    assert decision.n == 8
    for released, finished, rows, wanted in ((0, 0, 0, 1), (1, 1, 0, 5)):
        fields = {"released": released, "finished": finished, "rows": rows}
        decisions, memo = manager.decide(view(source(n=3, sizes=[60] * 8), state="configured", n=8, **fields), memo)
        assert decisions == (Schedule("r", wanted),)
    enough, finish = manager.decide(view(state="configured", n=8, released=5, finished=3, rows=6), memo)[0]
    assert enough == Emit("r", "enough")
    assert isinstance(finish, Finish)


def test_readers_of_no_shuffle_have_no_waves_of_it():
    graph = Graph("waves")
    reader = graph.add(len, gather(graph.map(abs, range(3))), n=Range(1, 4))
    with pytest.raises(GraphError, match="reads no shuffle"):
        ShuffleWaves(rows=5).check(reader.vertex, [], graph)


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


def pruned(
    items: list[Any], *payloads: Any, key: str | int | None = None, high: str | None = None, **fields: Any
) -> list[Any] | None:
    """Return the splits that are kept, None if all are read."""
    given: dict[str, Any] = {"events": {("small", "keys"): list(payloads)}, "items": items} | fields
    decisions, _ = PartitionPruning(key, high=high).decide(
        view(source("small->r"), state="configured", n=len(items), **given), None
    )
    assert isinstance(decisions[-1], Schedule)
    return list(decisions[0].items or ()) if isinstance(decisions[0], SetParallelism) else None


class Split(NamedTuple):
    day: date
    path: str


def test_a_key_is_a_field_an_attribute_a_position_or_the_split():
    splits = [Split(date(2026, 1, day), f"part-{day}") for day in (1, 2, 3)]
    assert pruned(splits, [date(2026, 1, 2)], key="day") == [splits[1]]
    assert pruned(splits, ["part-3"], key=1) == [splits[2]]
    assert pruned(["a", "b"], ["b"]) == ["b"]
    assert pruned([(1, "x"), (2, "y")], [[2, "y"]]) == [(2, "y")]


@pytest.mark.parametrize(
    ("items", "keys", "message"),
    [
        ([1, 2], ["1"], "the key '1' is of text, .* numbers, such as"),
        (["1", "2"], [1], "the key 1 is of numbers, .* text, such as"),
        ([1, 2], [1, "2"], "the key '2' is of text"),
        ([date(2026, 1, 1)], ["2026-01-01"], "text, .* dates"),
        (
            [datetime(2026, 1, 1, tzinfo=UTC).replace(tzinfo=None)],
            [datetime(2026, 1, 1, tzinfo=UTC)],
            "times with a zone, .* times, such as",
        ),
        ([(1, 2)], [[1, "2"]], r"\(numbers, text\)"),
        ([1], 1, "not a list of keys"),
        ([1], "1", "not a list of keys"),
        ([1], [{"a": 1}], "cannot be compared"),
    ],
    ids=str,
)
def test_keys_that_can_equal_none_of_the_splits_are_told(items, keys, message):
    with pytest.raises(GraphError, match=message):
        pruned(items, keys)


@pytest.mark.parametrize(("emitted", "kept"), [([3, 7], 2), ([], 0), (list(range(100_001)), 9)])
def test_the_number_of_tasks_may_be_left_to_the_keys(emitted, kept):
    items = [{"key": key} for key in range(1, 10)]
    ended = view(source("small->r"), state="configuring", items=items, events={("small", "keys"): [emitted]})
    decided, schedule = PartitionPruning("key").decide(ended, None)[0]
    assert isinstance(decided, SetParallelism)
    assert (decided.n, len(decided.items or ()), schedule) == (kept, kept, Schedule("r", kept))


def test_keys_without_a_match_leave_nothing():
    assert pruned([1, 2, 3], [], [7]) == []
    assert pruned([1, 2, 3], [None]) == []
    assert pruned([], ["a"]) == []


def test_equal_numbers_of_other_types_match():
    assert pruned([1, 2, 3], [2.0]) == [2]
    assert pruned([Decimal(1), Fraction(2)], [1, 2]) == [Decimal(1), Fraction(2)]


def test_a_split_of_a_kind_that_no_key_has_is_read():
    assert pruned([1, 2, "rest", None], [2]) == [2, "rest"]


def test_all_is_read_where_tasks_of_the_small_side_have_not_run():
    decisions, _ = PartitionPruning().decide(
        view(
            source("small->r", nbytes=-1),
            state="configured",
            n=2,
            items=[1, 2],
            events={("small", "keys"): [[1]]},
        ),
        None,
    )
    assert decisions == (Schedule("r", 2),)


def test_keys_of_a_vertex_that_it_does_not_come_after_are_not_its_own():
    assert pruned([1, 2], events={("other", "keys"): [[1]]}) is None
    assert pruned([1, 2], events={("other", "keys"): [["a"]], ("small", "keys"): [[1]]}) == [1]


def test_splits_with_bounds_are_read_where_a_range_of_keys_overlaps():
    splits = [{"lo": lo, "hi": lo + 9} for lo in range(0, 50, 10)]
    assert pruned(splits, [[9, 10], [35, 35]], key="lo", high="hi") == [splits[0], splits[1], splits[3]]
    assert pruned(splits, [[-5, -1], [50, 60]], key="lo", high="hi") == []
    assert pruned(splits, [], key="lo", high="hi") == []
    assert pruned(splits, [[None, None]], key="lo", high="hi") == splits
    unknown = {"lo": None, "hi": None}
    assert pruned([*splits, unknown], [[20, 30], [21, 29]], key="lo", high="hi") == [splits[2], splits[3], unknown]
    with pytest.raises(GraphError, match="no pair"):
        pruned(splits, [3], key="lo", high="hi")
    with pytest.raises(GraphError, match="high is given without key"):
        PartitionPruning(high="hi")


def test_a_shuffle_of_a_branch_that_is_not_taken_is_not_read():
    taken, other = source("a->r", n=4, sizes=[100, 100]), source("b->r", n=-1, sizes=[0, 0])
    decisions, _ = ShuffleManager(target=100).decide(view(taken, other), None)
    assert decisions[0].n == 2
    assert [edge for edge, _ in decisions[0].routers] == ["a->r"]


def test_a_split_without_the_key_is_told():
    with pytest.raises(GraphError, match="no 'key'"):
        pruned([{"kye": 1}], [1], key="key")


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({}, "has no rows"),
        ({"rows": "x"}, "has rows='x', which is no int"),
        ({"rows": True}, "has rows=True, which is no int"),
        ({"raws": 1}, "has no parameter 'raws'"),
        ({"rows": -1}, "rows is -1; at least 0"),
        ("rows", "is a str, not a mapping"),
    ],
    ids=str,
)
def test_parameters_that_a_manager_does_not_take_are_told(params, message):
    vertex = Vertex("scan", Program(str), manager=Manager("waves", params))
    with pytest.raises(GraphError, match=f"'waves' of vertex 'scan'.*{message}") as caught:
        make({"waves": WaveManager}, vertex)
    if "raws" in params or not params:
        assert "rows, event, first, growth" in caught.value.hint


def test_parameters_of_a_recorded_manager_are_told_too():
    vertex = Vertex("scan", Program(str), manager=Manager("waves", {"raws": 1}))
    with pytest.raises(GraphError, match="no parameter 'raws'"):
        make(Tape().managers({"waves": WaveManager}), vertex)


@pytest.mark.parametrize("name", ["job.stragglers", "wavs"])
def test_policies_of_a_job_are_no_managers(name):
    vertex = Vertex("scan", Program(str), manager=Manager(name))
    with pytest.raises(GraphError, match=f"unknown manager '{name}'") as caught:
        make(MANAGERS, vertex)
    assert "job." not in caught.value.hint
    assert {"conditional", "pruning", "shuffle", "waves"} <= set(re.findall(r"\w+", caught.value.hint))


# ---------------------------------------------------------------------------------------------- what is refused


def shuffled(n: Any = None, *, widths: Sequence[int] = (4,), **params: Any) -> Graph:
    graph = Graph("g")
    reads = [shuffle(graph.add(work, n=2, name=f"m{width}"), width) for width in widths]
    graph.add(work, *reads, n=n or Range(1, 4), name="r", manager=Manager("shuffle", params))
    return graph


def gathered() -> Graph:
    graph = Graph("g")
    graph.add(work, gather(graph.add(work, n=2)), n=Range(1, 4), name="r", manager="shuffle")
    return graph


def splits(*inputs: Any, graph: Graph, **fields: Any) -> Graph:
    graph.add(work, *inputs, name="r", manager=Manager("pruning", {"key": "key"}), **fields)
    return graph


def pruning(**fields: Any) -> Graph:
    graph = Graph("g")
    return splits(after(graph.add(work, name="small")), graph=graph, **fields)


@pytest.mark.parametrize(
    ("graph", "message"),
    [
        (shuffled(4), "set its number of tasks, which is given"),
        (shuffled(lo=5, hi=9), "may set 5 to 9 tasks, and n is 1 to 4"),
        (shuffled(widths=(2, 4)), "have 2 and 4 partitions"),
        (gathered(), "reads no shuffle"),
        (pruning(n=3), "has no items"),
        (pruning(items=[{"kye": 1}]), "has no 'key'"),
        (splits(graph=Graph("g"), items=[{"key": 1}]), "comes after no vertex"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_vertex_that_a_manager_cannot_decide_for_is_refused(graph, message):
    with pytest.raises(GraphError, match=message) as caught:
        check_managers(MANAGERS, graph.vertices.values(), lambda: graph)
    assert caught.value.subject == "r"
    assert caught.value.rule == "manager"
