"""Leases as a worker sees them: the tail that is taken back, the stop, and what is left of a result."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.graph.routers import Broadcast, Group, OneToOne, ScatterGather
from weft.model.errors import ProgramError
from weft.model.program import Program, Style
from weft.store.api import Column
from weft.worker.code import PIECES, SINGLE, SLICE, InputCode, TaskCode
from weft.worker.lease import LeaseResult, UnitCounts, WorkerLease


def code(target="builtins:abs", edges=((), {}, frozenset()), **fields) -> TaskCode:
    return TaskCode("work", 10, Program(target, **fields), edges)


def lease(lo=0, hi=10) -> WorkerLease:
    return WorkerLease(1, code(), lo, hi)


# ------------------------------------------------------------------------------------------------- the tail of a lease


def test_half_of_what_has_not_begun_is_taken_back():
    running = lease(0, 10)
    running.pos = 1
    assert running.shrink() == 6
    assert running.hi == 6


@given(st.integers(0, 50), st.integers(1, 50), st.integers(0, 49))
def test_what_is_taken_back_has_not_begun_and_what_has_begun_stays(lo, width, done):
    running = lease(lo, lo + width)
    running.pos = lo + done % width
    before = running.hi
    taken = running.shrink()
    assert running.hi > running.pos
    if taken is None:
        assert running.hi == before
        assert before - running.pos <= 2
    else:
        assert running.pos < taken == running.hi < before


def test_nothing_is_taken_from_the_last_unit():
    running = lease(4, 5)
    assert running.shrink() is None
    assert running.hi == 5


@given(st.integers(0, 50), st.integers(1, 50), st.integers(0, 49))
def test_what_is_taken_back_from_a_list_has_not_begun(lo, width, done):
    running = lease(lo, lo + width)
    made: list[int] = []
    at = lo + done % width
    for item in running.follow(range(200), made):
        if item == at:
            taken = running.shrink()
            assert running.at == at
            assert taken is None or at < taken == running.hi
        made.append(item)
    assert made == list(range(lo, running.hi))


def test_a_list_that_is_made_after_a_revocation_ends_there():
    running = lease(2, 9)
    running.end_before(4)
    assert running.follow(list(range(10)), []) == [2, 3]
    assert running.follow(tuple(range(10)), []) == [2, 3]


# -------------------------------------------------------------------------------------------------------------- stops


def test_a_stopped_lease_has_no_more_items_before_and_after_its_list_is_made():
    running = lease()
    made: list[int] = []
    for item in running.follow(range(10), made):
        if item == 3:
            running.ask_to_stop()
        made.append(item)
    assert (made, running.at) == ([0, 1, 2, 3], 4)
    assert running.follow(range(10), []) == []


def test_a_cancelled_lease_is_stopped_and_its_callbacks_are_called():
    running, called = lease(), []
    running.callbacks = [lambda: called.append("first"), lambda: called.append("second")]
    running.cancel()
    assert running.stop
    assert called == ["first", "second"]


def test_a_lease_without_callbacks_can_be_cancelled():
    running = lease()
    running.cancel()
    assert running.stop


# ------------------------------------------------------------------------------------------------------------ results


def test_a_result_keeps_no_value_of_units_that_are_not_the_lease_s_any_more():
    outcome = LeaseResult(8, [10, 11, 12, 13], 0.5)
    outcome.kind = "user"
    outcome.counts = [UnitCounts(rows, (("edge", [1, 2]), ("few", {rows: 5}))) for rows in (7, 0, 3, 9)]
    outcome.end_at(6, 4)
    assert (outcome.hi, outcome.values, outcome.kind) == (6, [10, 11], "")
    assert (outcome.rows, outcome.stats) == (7, (("edge", [2, 4]), ("few", {7: 5, 0: 5})))


def test_a_result_that_ends_before_its_first_unit_has_no_values():
    outcome = LeaseResult(8, [10, 11], 0.5)
    outcome.end_at(3, 6)
    assert outcome.values == []


# --------------------------------------------------------------------------------------------------- code of a vertex


@pytest.mark.parametrize(
    ("router", "mode", "identity"),
    [
        (OneToOne(4, 4), SINGLE, True),
        (Broadcast(1, 4), SLICE, False),
        (Group(8, 4, 2), SLICE, False),
        (ScatterGather(4, 3), PIECES, False),
    ],
)
def test_the_router_tells_how_an_input_is_read(router, mode, identity):
    found = InputCode("e", "source", router, lambda: Column(("job", "source"), 4))
    assert (found.mode, found.identity) == (mode, identity)


def test_the_column_of_an_input_is_looked_up_once_and_not_before_it_is_read():
    asked = []

    def find() -> Column:
        asked.append(1)
        return Column(("job", "source"), 4)

    found = InputCode("e", "source", OneToOne(4, 4), find)
    assert asked == []
    assert found.column is found.column
    assert asked == [1]


def test_the_function_is_looked_up_on_first_use():
    found = code("no_such_module:function")
    with pytest.raises(ProgramError, match="no_such_module"):
        _ = found.fn
    assert code("builtins:abs").fn is abs


def test_edges_may_be_made_when_they_are_first_needed():
    made = []

    def edges():
        made.append(1)
        return (), {"e": 3}, frozenset({"e"})

    found = code(edges=edges)
    assert made == []
    assert (found.outputs, found.streams, len(found.inputs)) == ({"e": 3}, frozenset({"e"}), 0)
    assert made == [1]


def test_only_a_plain_function_without_streams_and_live_inputs_is_simple():
    column = Column(("job", "source"), 4)
    live = InputCode("e", "source", OneToOne(4, 4), lambda: column, live=True)
    streamed = InputCode("e", "source", OneToOne(4, 4), lambda: column, live=True, streamed=True)
    assert code().simple
    assert not code(style=Style.TASK).simple
    assert not code(edges=((live,), {}, frozenset())).simple
    assert not code(edges=((), {"e": 0}, frozenset({"e"}))).simple
    assert code(edges=((streamed,), {}, frozenset())).in_bubble
    assert not code(edges=((live,), {}, frozenset())).in_bubble
