"""Rows of task states: ranges of equal states."""

from itertools import groupby

from hypothesis import given
from hypothesis import strategies as st

from weft.engine.rows import FINISHED, READY, UNSCHEDULED, runs_of

STATES = (UNSCHEDULED, READY, FINISHED)


@given(
    st.lists(st.tuples(st.sampled_from(STATES), st.integers(1, 70)), max_size=12),
    st.integers(0, 40),
    st.integers(0, 400),
)
def test_runs_are_the_longest_ranges_of_one_state(parts, lo, hi):
    rows = bytearray(state for state, count in parts for _ in range(count))
    hi = min(hi, len(rows))
    for state in STATES:
        wanted = []
        for key, group in groupby(range(lo, hi), rows.__getitem__):
            tasks = list(group)
            if key == state:
                wanted.append((tasks[0], tasks[-1] + 1))
        assert list(runs_of(rows, state, lo, hi)) == wanted
