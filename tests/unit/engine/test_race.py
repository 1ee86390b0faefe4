"""The tensor seed's placement: a ready task is offered to two workers, the first to accept gets it."""

import itertools

import pytest

from tests.unit.engine.hand import Hand, body
from weft.graph.builder import Graph, after, gather, one_to_one
from weft.graph.logical import Source, Storage
from weft.model.resources import Resources


def offered(hand: type[Hand], n: int = 1, workers: int = 2) -> Hand:
    g = Graph("g")
    g.add(body, n=n, name="a")
    return hand(g, workers=workers, race=True)


def test_a_task_is_offered_to_at_most_two(hand):
    h = offered(hand, workers=3)
    h.expect("offer a[0] to 0 1")
    h(h.idle(0, 1, 2))
    h.expect()  # nobody is given anything


def test_the_first_to_accept_gets_it_and_the_other_forgets(hand):
    h = offered(hand)
    h.expect("offer a[0] to 0 1")
    h(h.accepted("a[0]", 1))
    h.expect("drop a[0] at 0", "launch a[0] on 1")
    h(h.done("a[0]"))
    h.expect("complete succeeded")


@pytest.mark.parametrize("order", sorted(set(itertools.permutations([0, 1, 1, 0]))))
@pytest.mark.parametrize("together", [False, True])
def test_accepts_in_every_order_twice_and_late_run_it_once(hand, order, together):
    h = offered(hand)
    h.expect("offer a[0] to 0 1")
    said: list[str] = []
    for batch in [order] if together else [(worker,) for worker in order]:
        h(*[h.accepted("a[0]", worker) for worker in batch])
        said += h.skip()
    first, other = order[0], 1 - order[0]
    assert said[:2] == [f"drop a[0] at {other}", f"launch a[0] on {first}"]
    assert set(said[2:]) <= {f"drop a[0] at {other}"}
    assert h.rows("a") == ["leased"]
    h(h.done("a[0]"), h.accepted("a[0]", other))
    assert h.skip("complete") == ["complete succeeded"]
    h.skip("drop")


@pytest.mark.parametrize("dead", [0, 1])
def test_a_candidate_that_dies_leaves_it_to_the_other(hand, dead):
    h = offered(hand)
    h.expect("offer a[0] to 0 1")
    h(h.worker_lost(dead))
    h.expect()
    h(h.accepted("a[0]", 1 - dead))
    h.expect(f"launch a[0] on {1 - dead}")


def test_both_candidates_die(hand):
    h = offered(hand)
    h.expect("offer a[0] to 0 1")
    h(h.worker_lost(0), h.worker_lost(1))
    h.expect()
    assert h.rows("a") == ["ready"]
    h(h.worker_joined(2))
    h.expect("offer a[0] to 2")
    h(h.accepted("a[0]", 2))
    h.expect("launch a[0] on 2")


def test_the_winner_dies_before_it_starts(hand):
    h = offered(hand, workers=3)
    h.expect("offer a[0] to 0 1")
    h(h.accepted("a[0]", 0))
    h.expect("drop a[0] at 1", "launch a[0] on 0")
    h(h.worker_lost(0))
    h.expect("offer a[0] to 1 2")
    h(h.accepted("a[0]", 2))
    h.expect("drop a[0] at 1", "launch a[0] on 2, attempt 1")


def test_an_accept_of_a_dead_worker_is_harmless(hand):
    h = offered(hand)
    h.expect("offer a[0] to 0 1")
    h(h.worker_lost(0), h.accepted("a[0]", 0))
    assert "launch a[0] on 0" not in h.skip()


def test_cancel_while_offered(hand):
    h = offered(hand)
    h.expect("offer a[0] to 0 1")
    h(h.cancel())
    h.expect("drop a[0] at 0 1", "complete cancelled: enough")
    h(h.accepted("a[0]", 1))
    h.skip("drop")
    h.expect()


def test_the_least_busy_workers_are_asked(hand):
    h = offered(hand, n=3, workers=4)
    h.expect("offer a[0] to 0 1", "offer a[1] to 2 3", "offer a[2] to 0 1")


def test_a_service_that_ends_with_the_offer_of_its_consumer_is_counted_once(hand):
    g = Graph("g")
    x = g.add(body, n=1, name="x", expands=True)
    s = g.service(body, name="s")
    g.add(body, s, after(x), n=Source("x"), name="a")
    h = hand(g, workers=6, race=True)
    h.expect("offer x[0] to 0 1", "offer s[0] to 2 3")
    h(h.accepted("x[0]", 0), h.accepted("s[0]", 2))
    h.expect("drop x[0] at 1", "launch x[0] on 0", "drop s[0] at 3", "launch s[0] on 2")
    h(h.done("x[0]", values=[1]))
    h.skip("free")
    h.expect("offer a[0] to 0 1")
    h(h.worker_lost(2))
    h.expect("offer s[0] to 3 4")
    h(h.cancel())
    h.expect("drop a[0] at 0 1", "drop s[0] at 3 4", "free x[0]", "complete cancelled: enough")
    assert h.rows("s") == ["skipped"]


def test_what_a_worker_was_offered_goes_to_others_when_a_service_takes_it(hand):
    g = Graph("g")
    x = g.add(body, n=1, name="x", expands=True)
    s = g.service(body, name="s")
    g.add(body, s, after(x), n=Source("x"), name="a")
    h = hand(g, workers=2, race=True)
    h.expect("offer x[0] to 0 1", "offer s[0] to 0 1")
    h(h.accepted("s[0]", 0))
    h.expect("drop s[0] at 1", "launch s[0] on 0", "drop x[0] at 0")
    h(h.worker_joined(2), h.worker_lost(1))
    h.expect("offer x[0] to 2")


def test_a_worker_that_is_kept_idle_for_its_core_is_asked_for_nothing(hand):
    g = Graph("g")
    g.add(body, n=1, name="a")
    g.add(body, n=1, name="b", resources=Resources(cpu=2))
    h = hand(g, workers=3, race=True)
    h.expect("acquire b*1 (cpu 2)", "offer a[0] to 0 1")
    h(h.granted(b=0)._replace(beside=((0, (1,)),)))
    assert h.skip("launch", "drop") == ["drop a[0] at 0", "drop a[0] at 1", "launch b[0] on 0, cpu 2"]
    h.expect("offer a[0] to 2")
    h(h.output_lost("a[0]"), h.worker_lost(2))
    h.expect()
    h(h.done("b[0]"))
    h.expect("release 0", "offer a[0] to 0 1")


def test_a_granted_worker_is_asked_for_nothing_else(hand):
    g = Graph("g")
    g.add(body, n=2, name="a")
    g.add(body, n=1, name="b", resources=Resources(gpu=1))
    h = hand(g, workers=2, race=True)
    h.expect("acquire b*1 (cpu 1, gpu 1)", "offer a[0] to 0 1", "offer a[1] to 0 1")
    h(h.granted(b=0))
    h.expect("drop a[0] at 0", "drop a[1] at 0", "launch b[0] on 0, cpu 1, gpu 1")
    h(h.worker_lost(1))
    h.expect()
    h(h.done("b[0]"))
    h.expect("release 0", "offer a[0] to 0", "offer a[1] to 0")


def test_what_an_offer_that_is_taken_back_reads_is_made_again_all_of_it(hand):
    g = Graph("g")
    x = g.add(body, n=2, name="x")
    s = g.add(body, n=2, name="s")
    y = g.add(body, one_to_one(s, concurrent=True, storage=Storage.EPHEMERAL), n=2, name="y")
    g.bubble(s, y, name="gang")
    g.add(body, one_to_one(x), one_to_one(y), n=2, name="z")
    g.add(body, gather(y), after(g.add(body, n=1, name="slow")), n=1, name="u")
    h = hand(g, workers=8, race=True, cones=False)
    h.skip()
    h(h.granted(s=(0, 1), y=(2, 3)))
    h.skip()
    h(h.accepted("x[0]", 6), h.accepted("x[1]", 4), h.accepted("slow[0]", 5))
    h.skip()
    h(*[h.done(f"{vertex}[{i}]") for vertex in "xsy" for i in (0, 1)])
    h.skip()
    assert h.rows("z") == ["leased", "leased"]
    h(h.output_lost("x[1]"))
    assert h.rows("x") == ["finished", "freed"], "it was offered: nobody else wants it"
    h(h.output_lost("y[0]"))  # u wants it, so all of its region starts again, and z[1] was to read what is dropped
    assert h.skip("drop", "offer") == ["drop z[1] at 2 3", "offer x[1] to 2 3"]
    assert h.rows("z")[1] == "unscheduled"
    h.skip()
