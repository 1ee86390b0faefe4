"""The order in which jobs get workers."""

from hypothesis import given
from hypothesis import strategies as st

from weft.runtime.turns import Turns

JOBS = "abcde"
PLACES = st.tuples(st.integers(-1, 1), st.integers(0, 3))
ACTIONS = st.lists(st.tuples(st.sampled_from(JOBS), st.one_of(st.none(), PLACES)), max_size=40)


@given(ACTIONS)
def test_the_first_has_the_highest_priority_holds_the_fewest_workers_and_came_first(actions):
    turns = Turns()
    waiting: dict[str, tuple[int, int]] = {}
    for job, place in actions:
        if place is None:
            turns.discard(job)
            waiting.pop(job, None)
        else:
            priority, held = place
            turns.put(job, JOBS.index(job), held, priority)
            waiting[job] = -priority, held
        assert turns.first() == min(waiting, key=lambda name: (waiting[name], name), default=None)
        assert set(turns) == set(waiting)


def test_nothing_is_first_after_all_have_left():
    turns = Turns()
    turns.put("a", 1, 0)
    turns.clear()
    assert turns.first() is None
