from hypothesis import given
from hypothesis import strategies as st

from weft.parties.cores import MOST_OVERTAKEN, PartyCoreLeases


def test_parts_that_fit_hold_their_cores_and_others_wait_with_a_reason():
    cores = PartyCoreLeases(4)
    assert cores.take("a", "guest 1", 3) == ""
    assert cores.take("b", "guest 1", 2) == ""
    assert [one.job for one in cores.grant()] == ["a"]
    assert cores.why("b", "guest 1") == "needs 2 cores, 1 of 4 are free; held by a"
    cores.give_back("a", "guest 1")
    assert [one.job for one in cores.grant()] == ["b"]
    assert cores.why("b", "guest 1") == ""


def test_what_never_fits_is_refused_at_once():
    assert PartyCoreLeases(4).take("a", "guest 1", 5) == "the job needs 5 cores, and the party has 4"


def test_small_parts_overtake_a_large_one_but_not_for_ever():
    cores = PartyCoreLeases(2)
    cores.take("first", "guest 1", 1)
    cores.grant()
    cores.take("large", "guest 1", 2)
    done = 0
    for at in range(3 * MOST_OVERTAKEN):
        cores.take(f"small-{at}", "guest 1", 1)
        granted = cores.grant()
        done += len(granted)
        for one in granted:
            cores.give_back(one.job, one.part)
    assert done == MOST_OVERTAKEN
    cores.give_back("first", "guest 1")
    assert cores.grant()[0].job == "large"


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 5), st.booleans())))
def test_never_more_cores_are_held_than_there_are(steps):
    cores = PartyCoreLeases(4)
    for job, wanted, back in steps:
        if back:
            cores.give_back(str(job), "guest 1")
        else:
            cores.take(str(job), "guest 1", wanted)
        cores.grant()
        assert sum(one.cores for one in cores.holders()) <= 4
