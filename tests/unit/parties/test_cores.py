from hypothesis import given
from hypothesis import strategies as st

from weft.parties.cores import MOST_OVERTAKEN, QUEUES, CoreLease, PartyCoreLeases


def test_parts_that_fit_hold_their_cores_and_others_wait_with_a_reason():
    cores = PartyCoreLeases(4)
    assert cores.take(CoreLease("a", "guest 1", 3)) == ""
    assert cores.take(CoreLease("b", "guest 1", 2)) == ""
    assert [one.job for one in cores.grant()] == ["a"]
    assert cores.why("b", "guest 1") == "needs 2 cores, 1 of 4 are free; held by a"
    cores.give_back("a", "guest 1")
    assert [one.job for one in cores.grant()] == ["b"]
    assert cores.why("b", "guest 1") == ""


def test_what_never_fits_is_refused_at_once():
    assert PartyCoreLeases(4).take(CoreLease("a", "guest 1", 5)) == "the job needs 5 cores, and the party has 4"


def test_small_parts_overtake_a_large_one_but_not_for_ever():
    cores = PartyCoreLeases(2)
    cores.take(CoreLease("first", "guest 1", 1))
    cores.grant()
    cores.take(CoreLease("large", "guest 1", 2))
    done = 0
    for at in range(3 * MOST_OVERTAKEN):
        cores.take(CoreLease(f"small-{at}", "guest 1", 1))
        granted = cores.grant()
        done += len(granted)
        for one in granted:
            cores.give_back(one.job, one.part)
    assert done == MOST_OVERTAKEN
    cores.give_back("first", "guest 1")
    assert cores.grant()[0].job == "large"


def waiting(queue, *leases):
    """Let parts wait behind one that holds all 4 cores; return the jobs as they then get some, one at a time."""
    cores = PartyCoreLeases(4, lambda: queue)
    cores.take(CoreLease("first", "guest 1", 4, "1"))
    cores.grant()
    for one in leases:
        cores.take(one)
        assert cores.why(one.job, one.part).startswith(f"needs {one.cores} cores, 0 of 4 are free; held by first")
    cores.give_back("first", "guest 1")
    order = []
    while granted := cores.grant():
        order.append([one.job for one in granted])
        for one in granted:
            cores.give_back(one.job, one.part)
    return order


def test_a_queue_by_priority_lets_higher_ones_go_first():
    low, high, same = (CoreLease(name, "guest 1", 4, "1", at) for name, at in (("low", -1), ("high", 5), ("same", 5)))
    assert waiting("priority", low, high, same) == [["high"], ["same"], ["low"]]
    assert waiting("fifo", low, high, same) == [["low"], ["high"], ["same"]]


def test_a_fair_queue_lets_the_party_with_the_fewest_cores_go_first():
    many = [CoreLease(f"a{at}", "guest 1", 2, "1") for at in range(3)]
    assert waiting("fair", *many, CoreLease("b", "host 1", 2, "2")) == [["a0", "b"], ["a1", "a2"]]
    assert waiting("backfill", *many, CoreLease("b", "host 1", 2, "2")) == [["a0", "a1"], ["a2", "b"]]


def test_nobody_overtakes_in_a_strict_queue():
    leases = [CoreLease("a", "guest 1", 3), CoreLease("b", "guest 1", 3), CoreLease("c", "guest 1", 1)]
    assert waiting("fifo", *leases) == [["a"], ["b", "c"]]
    assert waiting("backfill", *leases) == [["a", "c"], ["b"]]


@given(st.sampled_from(QUEUES), st.lists(st.tuples(st.integers(0, 5), st.integers(1, 5), st.booleans())))
def test_never_more_cores_are_held_than_there_are(queue, steps):
    cores = PartyCoreLeases(4, lambda: queue)
    for job, wanted, back in steps:
        if back:
            cores.give_back(str(job), "guest 1")
        else:
            cores.take(CoreLease(str(job), "guest 1", wanted))
        cores.grant()
        assert sum(one.cores for one in cores.holders()) <= 4
