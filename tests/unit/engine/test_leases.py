"""How much goes into one lease: widths, cones, and giving back."""

import gc
from typing import Any

import pytest
from msgspec.structs import asdict

from tests.unit.engine.hand import body, run_out
from weft.engine.commands import Launch, LaunchEach
from weft.engine.core import LeaseRows
from weft.engine.describe import spec_of
from weft.engine.events import Done, DoneEach, JobSubmitted
from weft.engine.recovery import losses
from weft.graph.builder import Graph, gather, grid
from weft.graph.grid import group
from weft.graph.logical import OnFailure, Retry, Storage
from weft.graph.validate import mark_results
from weft.model.failures import Failure
from weft.model.resources import ONE_SLOT


def flat(n: int, **fields) -> Graph:
    g = Graph("g")
    g.add(body, n=n, name="a", **fields)
    return g


def test_the_garbage_collector_walks_over_no_records_of_leases(hand):
    h = hand(flat(100), workers=1)
    commands = h.master.handle([h.idle(0)])
    rows = list(h.master.core.leases.values())
    launches = [command for command in commands if type(command) is Launch]
    assert (len(launches), len(rows)) == (1, 1)
    (each,) = hand(flat(100), workers=2).master.handle([h.idle(0, 1)])
    assert type(each) is LaunchEach
    many = LeaseRows(each.leases, rows[0].stage, 0, each.workers, rows[0].members)
    done = Done(1.0, launches[0].lease, launches[0].hi), DoneEach(1.0, (1,), (0,), (0,), (1.0,), (1.0,), (0,))
    records = [*launches, *rows, each, many, *done]
    assert [type(record).__name__ for record in records if gc.is_tracked(record)] == []


def widths(hand, graph, *, workers: int, seconds: float, nbytes: int = 0, leases: int = 6, **tuning) -> list[int]:
    """Let one worker take lease after lease; return how many tasks each had."""
    h = hand(graph, workers=workers, **tuning)
    taken = []
    for _ in range(leases):
        h(h.idle(0))
        (line,) = h.skip("launch")
        name = line.split()[1]
        lo, _, hi = name[2:-1].partition(":")
        taken.append(int(hi or int(lo) + 1) - int(lo))
        h(h.done(name, seconds=seconds * taken[-1], nbytes=nbytes * taken[-1]))
        h.skip("complete")
        if h.master.over:
            break
    return taken


def test_the_first_lease_is_a_probe_of_one_then_widths_grow_eightfold(hand):
    assert widths(hand, flat(10_000), workers=2, seconds=0.0) == [1, 8, 64, 512, 2354, 1766]


def test_guided_never_more_than_a_share_of_what_is_left(hand):
    taken = widths(hand, flat(100), workers=2, seconds=0.0, leases=40)
    left = 100
    for width in taken:
        assert width <= -(-left // 4)
        left -= width
    assert left == 0
    assert taken[-4:] == [1, 1, 1, 1]


def test_time_bounds_the_width(hand):
    assert widths(hand, flat(1000), workers=1, seconds=0.001, target_s=0.010) == [1, 8, 10, 10, 10, 10]


def test_slow_tasks_go_one_by_one(hand):
    assert widths(hand, flat(100), workers=1, seconds=5.0) == [1] * 6


def test_bytes_bound_the_width(hand):
    assert widths(hand, flat(1000), workers=1, seconds=0.0, nbytes=100, lease_bytes=1200) == [1, 8, 12, 12, 12, 12]


def test_growth_and_target_come_from_the_backend(hand):
    assert widths(hand, flat(10_000), workers=1, seconds=0.0, growth=2) == [1, 2, 4, 8, 16, 32]


def test_estimates_follow_what_tasks_really_take(hand):
    h = hand(flat(1000), workers=1, target_s=0.1)
    h(h.idle(0))
    h.expect("launch a[0] on 0")
    h(h.done("a[0]", seconds=0.001), h.idle(0))
    h.expect("launch a[1:9] on 0")
    h(h.done("a[1:9]", seconds=8.0), h.idle(0))  # a thousand times slower than thought
    h.expect("launch a[9] on 0")


# ---------------------------------------------------------------------------------------------------------- cones


def chain(n: int, names: str = "abc", **last) -> Graph:
    g = Graph("chain")
    node = g.add(body, n=n, name=names[0])
    for name in names[1:]:
        node = g.add(body, node, name=name, **(last if name == names[-1] else {}))
    return g


def test_a_chain_is_one_lease(hand):
    h = hand(chain(1, "abcde"))
    h(h.idle(0))
    h.expect("launch e[0] on 0 with a b c d")
    assert [h.rows(name) for name in "abcde"] == [["leased"]] * 5
    h(h.done("e[0]"))
    h.expect("complete succeeded")
    assert [h.rows(name) for name in "abcde"] == [["freed"]] * 4 + [["finished"]]
    assert all(h.state(name) == "done" for name in "abcde")


def test_a_chain_is_no_longer_than_a_template(hand):
    h = hand(chain(1, "abcde"), cone_steps=3)
    h(h.idle(0))
    h.expect("launch c[0] on 0 with a b")
    h(h.done("c[0]"), h.idle(0))
    h.expect("launch e[0] on 0 with d")
    h(h.done("e[0]"))
    h.expect("free c[0]", "complete succeeded")


def test_a_cone_takes_a_whole_subtree(hand):
    g = Graph("g")
    g.reduce(body, g.add(body, n=8, name="a"), name="root")
    h = hand(g, workers=1, realign=1)
    h(h.idle(0))
    h.expect("launch a[0] on 0")  # a probe
    h(h.done("a[0]"), h.idle(0))
    h.expect("launch a[1] on 0")  # a cone begins at a multiple of what it takes
    h(h.done("a[1]"), h.idle(0))
    h.expect("launch body[0] on 0")  # deeper first
    h(h.done("body[0]"), h.idle(0))
    h.expect_any_order("free a[0:2]", "launch body[1] on 0 with a")
    h(h.done("body[1]"), h.idle(0))
    h.expect("launch body-2[0] on 0")
    h(h.done("body-2[0]"), h.idle(0))
    h.expect_any_order("free body[0:2]", "launch body[2] on 0 with a")
    h(h.done("body[2]"), h.idle(0))
    h.expect("launch a[6] on 0")  # the last ones are shared out one by one
    h(h.done("a[6]"))
    h.expect()
    assert run_out(h, [0]) == ["a[7]", "body[3]", "body-2[1]", "root[0]", "complete succeeded"]


def test_tasks_that_no_cone_fits_end_where_one_may_begin(hand):
    g = Graph("g")
    g.reduce(body, g.add(body, n=64, name="a"), arity=8, name="root")
    h = hand(g, workers=1, growth=100, realign=4)
    h(h.idle(0))
    h.expect("launch a[0] on 0")
    h(h.done("a[0]"), h.idle(0))
    h.expect("launch a[1:8] on 0")
    h(h.done("a[1:8]"), h.idle(0))
    h.expect("launch body[0] on 0")
    h(h.done("body[0]"), h.idle(0))
    h.expect_any_order("free a[0:8]", "launch body[1] on 0 with a")


def test_the_template_of_a_cone_runs_in_post_order_and_knows_its_height(hand):
    g = Graph("g")
    g.reduce(body, g.add(body, n=16, name="a"), arity=4, name="root")
    h = hand(g, workers=1, growth=100, realign=3)
    h(h.idle(0))
    h.expect("launch a[0] on 0")
    h(h.done("a[0]"), h.idle(0))
    h.expect("launch a[1:4] on 0")
    h(h.done("a[1:4]"), h.idle(0))
    h.expect("launch body[0] on 0")
    h(h.done("body[0]"), h.idle(0))
    h.expect_any_order("free a[0:4]", "launch body[1] on 0 with a")
    cone = h.said[-1].cone
    assert (cone.members, cone.mult, cone.height, cone.linear) == (("a", "body"), (4, 1), 5, False)
    assert (cone.size, list(cone.tasks(2))) == (5, [("a", 8), ("a", 9), ("a", 10), ("a", 11), ("body", 2)])
    h(h.done("body[1]"))
    h.expect()


def test_two_sources_meet_in_one_cone(hand):
    g = Graph("g")
    a, b = (g.add(body, n=2, name=name) for name in "ab")
    g.add(body, a, b, name="c")
    h = hand(g, workers=1)
    h(h.idle(0))
    h.expect("launch c[0] on 0 with a b")
    assert (h.rows("a"), h.rows("b")) == (["leased", "ready"], ["leased", "ready"])
    h(h.done("c[0]"), h.idle(0))
    h.expect("launch c[1] on 0 with a b")
    h(h.done("c[1]"))
    h.expect("complete succeeded")
    assert (h.rows("a"), h.rows("b")) == (["freed", "freed"], ["freed", "freed"])


def mixed_chain() -> Graph:
    g = Graph("g")
    node = g.add(body, name="a")
    given: list[dict[str, Any]] = [{}, {"params": {"x": 1}}, {"output_bytes": 5}, {"resources": ONE_SLOT}, {}]
    for at, fields in enumerate(given):
        node = g.add(body, node, name=f"b{at}", **fields)
    return g


def tree() -> Graph:
    g = Graph("g")
    g.reduce(body, g.add(body, n=256, name="a"), name="b")
    return g


def joined() -> Graph:
    g = Graph("g")
    left, right = (g.add(body, g.add(body, name=name), name=f"{name}2") for name in ("a", "b"))
    g.add(body, g.add(body, left, right, name="c"), name="d")
    return g


@pytest.mark.parametrize("graph", [mixed_chain, tree, joined])
def test_the_records_inside_a_cone_are_those_of_their_vertices(hand, graph):
    h = hand(graph(), workers=1)
    core, compared = h.master.core, 0
    while not h.master.over:
        h(h.idle(0))
        h.skip()
        (launch,) = [said for said in h.said if isinstance(said, Launch)][-1:]
        for spec in launch.specs[1:-1]:
            wanted = spec_of(core, core.by_id[spec.vertex], inner=True)
            assert repr(asdict(spec)) == repr(asdict(wanted))
            compared += 1
        lo, hi = launch.lo, launch.hi
        h(h.done(f"{launch.vertex}[{lo}:{hi}]" if hi - lo > 1 else f"{launch.vertex}[{lo}]"))
        h.skip()
    assert compared > 0


def test_a_sibling_that_is_running_breaks_the_cone(hand):
    g = Graph("g")
    a = g.add(body, n=1, name="a")
    b = g.add(body, n=1, name="b", timeout_s=9.0)  # not in a cone
    g.add(body, a, b, name="c")
    h = hand(g, workers=2)
    h(h.idle(0, 1))
    h.expect("launch a[0] on 0", "timer at 9", "launch b[0] on 1")
    h(h.done("a[0]"), h.done("b[0]"), h.idle(0))
    h.expect("launch c[0] on 0")
    h(h.done("c[0]"))
    h.expect_any_order("free a[0]", "free b[0]", "complete succeeded")


@pytest.mark.parametrize(
    "why",
    [
        {"keep": True},
        {"cache_key": "k"},
        {"timeout_s": 5.0},
        {"expands": True},
        {"retry": Retry(user=1, delay_s=1.0)},
    ],
    ids=lambda why: next(iter(why)),
)
def test_whatever_needs_the_master_between_two_tasks_ends_a_cone(hand, why):
    g = Graph("g")
    a = g.add(body, n=1, name="a")
    b = g.add(body, a, name="b", **why)
    g.add(body, b, name="c")
    h = hand(g)
    h(h.idle(0))
    (line, *_) = h.skip()
    expected = "launch b[0] on 0 with a" if "keep" in why else "launch a[0] on 0"
    assert line == expected


def test_durable_data_and_second_readers_end_a_cone(hand):
    g = Graph("g")
    a = g.add(body, n=1, name="a")
    b = g.add(body, a, name="b")
    g.edges[-1].storage = Storage.DURABLE
    g.add(body, b, name="c")
    g.add(body, b, name="d")
    h = hand(g)
    h(h.idle(0))
    h.expect("launch a[0] on 0")
    h(h.done("a[0]"), h.idle(0))
    h.expect("launch b[0] on 0")
    h(h.done("b[0]"), h.idle(0, 1))
    h.expect("launch c[0] on 0", "launch d[0] on 1")
    h(h.done("c[0]"), h.done("d[0]"))
    h.expect("free b[0]", "complete succeeded")  # a is durable: the engine never frees it
    assert h.rows("a") == ["finished"]


def test_cones_may_be_off(hand):
    h = hand(chain(1), cones=False)
    h(h.idle(0))
    h.expect("launch a[0] on 0")


def test_a_linear_cone_may_stop_early(hand):
    h = hand(chain(1, "abcd"))
    h(h.idle(0))
    h.expect("launch d[0] on 0 with a b c")
    h(h.done("d[0]", reached=1), h.idle(0))  # after b
    h.expect("launch d[0] on 0 with c")
    assert [h.rows(name)[0] for name in "abcd"] == ["freed", "finished", "leased", "leased"]
    h(h.done("d[0]"))
    h.expect("free b[0]", "complete succeeded")


def test_a_cone_whose_second_unit_never_ran_goes_back_to_its_leaves(hand):
    h = hand(chain(2), workers=1, target_s=100.0)
    h(h.idle(0))
    h.expect("launch c[0] on 0 with a b")
    h(h.done("c[0]"), h.idle(0))
    h.expect("launch c[1] on 0 with a b")
    h(h.gave_back("c[1]", 1))
    h.expect()
    assert [h.rows(name)[1] for name in "abc"] == ["ready", "unscheduled", "unscheduled"]
    h(h.done("c[1]", hi=1), h.idle(0))
    h.expect("launch c[1] on 0 with a b")
    h(h.done("c[1]"))
    h.expect("complete succeeded")


def test_a_failure_inside_a_cone_keeps_what_ran_before_it(hand):
    g = Graph("g", on_failure=OnFailure.CONTINUE)
    a = g.add(body, n=4, name="a")
    b = g.add(body, a, name="b", retry=Retry(user=0))
    g.add(body, gather(b), n=1, name="c")
    h = hand(g, workers=1)
    h(h.idle(0))
    h.expect("launch b[0] on 0 with a")
    h(h.done("b[0]"), h.idle(0))
    h.expect("launch b[1:3] on 0 with a")
    h(h.failed("b[1:3]", at="b[2]", hi=2), h.idle(0))
    # b[1] is done, b[2] failed after a[2] had run; c can never be made, and nobody else reads b.
    h.expect("free b[0:2]", "launch a[3] on 0")
    assert (h.rows("a"), h.rows("b"), h.rows("c")) == (
        ["freed", "freed", "freed", "leased"],
        ["freed", "freed", "fatal", "unscheduled"],
        ["fatal"],
    )
    h(h.done("a[3]"))
    h.expect()
    assert run_out(h, [0]) == ["b[3]", "complete failed: b[2] bad"]


def test_a_failure_of_an_inner_task_is_tried_again_alone(hand):
    g = chain(1, "abc")
    for vertex in g.vertices.values():
        vertex.retry = Retry(user=1)
    h = hand(g)
    h(h.idle(0))
    h.expect("launch c[0] on 0 with a b")
    h(h.failed("c[0]", at="b[0]", hi=0), h.idle(0))
    h.expect("launch a[0] on 0")
    h(h.done("a[0]"), h.idle(0))
    h.expect("launch b[0] on 0, attempt 1")
    h(h.done("b[0]"), h.idle(0))
    h.expect("free a[0]", "launch c[0] on 0")
    h(h.done("c[0]"))
    h.expect("free b[0]", "complete succeeded")


def test_a_cone_whose_worker_dies_starts_again(hand):
    h = hand(chain(2), workers=2)
    h(h.idle(0, 1))
    h.expect("launch c[0] on 0 with a b", "launch c[1] on 1 with a b")
    h(h.done("c[0]"))
    h.expect()
    h(h.worker_lost(1), h.idle(0))
    h.expect("launch a[1] on 0, attempt 1")
    h(h.done("a[1]"), h.idle(0))
    h.skip()
    assert h.rows("b")[1] == "leased"


def test_the_output_of_a_retried_cone_lives_until_it_is_read(hand):
    g = Graph("g")
    g.add(body, g.add(body, n=2, name="a"), name="b")
    h = hand(g, workers=2)
    h(h.idle(0, 1))
    h.expect("launch b[0] on 0 with a", "launch b[1] on 1 with a")
    h(h.done("b[0]"))
    h.expect()
    h(h.worker_lost(1), h.idle(0))
    h.expect("launch a[1] on 0, attempt 1")
    h(h.done("a[1]"), h.idle(0))
    h.expect("launch b[1] on 0")
    h(h.done("b[1]"))
    h.expect("free a[1]", "complete succeeded")


# ------------------------------------------------------------------------------------------- giving back, progress


def test_the_tail_of_a_lease_comes_back(hand):
    h = hand(flat(9), workers=1)
    h(h.idle(0))
    h.expect("launch a[0] on 0")
    h(h.done("a[0]"), h.idle(0))
    h.expect("launch a[1:5] on 0")
    h(h.gave_back("a[1:5]", 3))
    h.expect()
    assert h.rows("a") == ["finished"] + ["leased"] * 2 + ["ready"] * 6
    h(h.gave_back("a[1:5]", 4))  # late: more is back already
    h.expect()
    h(h.done("a[1:5]", hi=3), h.idle(0))
    h.expect("launch a[3:6] on 0")
    h(h.done("a[3:6]", hi=4), h.idle(0))  # it did less than it was given
    h.expect("launch a[4:7] on 0")


def test_the_longest_lease_is_halved_when_workers_idle(hand):
    h = hand(flat(20), workers=2)
    h(h.tick())
    h.expect()
    h(h.idle(0))
    h.expect("launch a[0] on 0")
    h(h.done("a[0]"), h.idle(0))
    h.expect("launch a[1:6] on 0")
    h(h.tick())
    h.expect()  # there is other work for idle workers
    while h.core.by_id["a"].ready:
        h(h.idle(1))
        h(h.done(h.skip("launch")[0].split()[1]))
    h(h.tick())
    h.expect("shrink a[1:6]")
    h(h.gave_back("a[1:6]", 2))
    h.expect()
    h(h.tick())
    h.expect()  # what is left cannot be shared, and some is ready


def test_progress_lets_others_read_while_the_lease_goes_on(hand):
    g = Graph("g")
    a = g.add(body, n=9, name="a")
    g.add(body, grid(a, group(0, 3), src=(9,), dst=(3,)), n=3, name="b")
    h = hand(g, workers=2, cones=False)
    h(h.idle(0))
    h.expect("launch a[0] on 0")
    h(h.done("a[0]"), h.idle(0))
    h.expect("launch a[1:3] on 0")
    h(h.progress("a[1:3]", 2))
    h.expect()
    assert h.rows("a")[:4] == ["finished", "finished", "leased", "ready"]
    h(h.progress("a[1:3]", 2), h.progress("a[1:3]", 1))  # said again, and late
    h.expect()
    h(h.done("a[1:3]"), h.idle(1))
    h.expect("launch b[0] on 1")


def test_progress_may_reach_the_end_of_a_lease_before_its_good_end(hand):
    h = hand(flat(100), workers=1, target_s=10.0)
    h(h.idle(0))
    h.expect("launch a[0] on 0")
    h(h.done("a[0]", seconds=0.1), h.idle(0))
    h.expect("launch a[1:9] on 0")
    h(h.progress("a[1:9]", 9), h.done("a[1:9]", seconds=0.8), h.idle(0))
    h.skip("launch")
    assert h.rows("a")[:9] == ["finished"] * 9


def test_reports_of_leases_that_are_over_are_ignored(hand):
    h = hand(flat(2), workers=1)
    h(h.idle(0))
    h.expect("launch a[0] on 0")
    over = h.done("a[0]")
    h(over)
    h.expect()
    h(over, h.failed("a[0]"), h.started("a[0]"), h.progress("a[0]", 1), h.gave_back("a[0]", 0))
    assert [line for line in h.skip() if not line.startswith("drop")] == []
    assert h.rows("a") == ["finished", "ready"]


def test_started_is_told_and_changes_nothing_else(hand):
    h = hand(chain(1))
    h(h.idle(0))
    h.expect("launch c[0] on 0 with a b")
    h(h.started("c[0]"), h.started("c[0]"))
    h.expect()
    assert [h.rows(name) for name in "abc"] == [["running"]] * 3
    h(h.done("c[0]"))
    h.expect("complete succeeded")


@pytest.mark.parametrize("kind", [Failure.USER, Failure.INFRASTRUCTURE])
def test_a_short_report_of_a_failure_keeps_what_was_done(hand, kind):
    g = flat(9, retry=Retry(user=1))
    h = hand(g, workers=2)
    h(h.idle(0))
    h.expect("launch a[0] on 0")
    h(h.done("a[0]"), h.idle(0))
    h.expect("launch a[1:3] on 0")
    h(h.failed("a[1:3]", kind, hi=2))
    h.expect()
    assert h.rows("a") == ["finished", "finished"] + ["ready"] * 7
    assert h.core.by_id["a"].attempt(2) == 1


def test_a_gathered_value_is_freed_when_its_last_reader_is_over(hand):
    g = Graph("g")
    a = g.add(body, n=2, name="a")
    g.add(body, gather(a), n=2, name="b")
    mark_results(g)
    h = hand(g, workers=2)
    h(h.idle(0, 1))
    h.expect("launch a[0] on 0", "launch a[1] on 1")
    h(h.done("a[0]"), h.done("a[1]"), h.idle(0, 1))
    h.expect("launch b[0] on 0", "launch b[1] on 1")
    h(h.done("b[1]"))
    h.expect()
    h(h.done("b[0]"))
    h.expect("free a[0:2]", "complete succeeded")


def test_a_lease_of_a_wide_vertex_goes_back_when_its_owner_dies(hand):
    g = Graph("g")
    g.add(body, n=100, name="a")
    h = hand(g, workers=2)
    h(h.idle(0, 1))
    assert len(h.skip("launch")) == 2
    h(*losses(h.core, h.now))
    h.expect()
    assert h.rows("a") == ["ready"] * 100
    h(h.worker_joined(2), h.idle(2))
    h.expect("launch a[0] on 2")


def test_an_estimate_of_an_earlier_job_takes_the_place_of_a_probe_but_is_no_measurement(hand):
    h = hand(flat(10), workers=1, submit=False)
    h(JobSubmitted(0.0, known=(("a", 1e-6),)))
    assert h.core.by_id["a"].seconds == -1
    h(h.idle(0))
    h.expect("launch a[0:10] on 0")


def test_an_estimate_takes_the_place_of_the_probes_of_a_large_vertex_too(hand):
    h = hand(flat(1000), workers=2, submit=False)
    h(JobSubmitted(0.0, known=(("a", 1e-6),)))
    h(h.idle(0, 1))
    h.expect("launch a[0:64] on 0", "launch a[64:128] on 1")


def test_a_task_that_took_long_in_an_earlier_job_has_a_lease_of_its_own(hand):
    h = hand(flat(10), workers=1, submit=False)
    h(JobSubmitted(0.0, known=(("a", 5.0),)))
    h(h.idle(0))
    h.expect("launch a[0] on 0")
