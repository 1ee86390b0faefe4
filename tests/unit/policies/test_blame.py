"""Who is at fault: the output, the task, the worker, its node, or nobody."""

from typing import Any

import pytest
from msgspec.structs import replace

from weft.engine.decisions import Avoid, Readmit, Remake
from weft.engine.policy import BlameView, Fault, WorkerView
from weft.model.errors import GraphError
from weft.policies.blame import NodeExclusion


def decided(faults: list[Fault], *, workers: int = 6, nodes: int = 1, now: float = 10.0, **known: Any) -> list[Any]:
    """What the policy decides; `known` says more of some workers: `w3={"avoided": True}`."""
    views = []
    for number in range(workers):
        view = WorkerView(number, number * nodes // workers, avoided=False, times=0, since=-1.0)
        views.append(replace(view, **known.get(f"w{number}", {})))
    decisions, memo = NodeExclusion().decide(BlameView(now, tuple(views), tuple(faults)), None)
    assert memo is None
    return list(decisions)


def failed(worker: int, *tasks: int, node: int = 0, at: float = 1.0) -> list[Fault]:
    return [Fault(at, worker, node, ("a", task)) for task in tasks]


def unread(worker: int, *outputs: int, node: int = 0, task: int = -1) -> list[Fault]:
    """Each by a task of its own, if none is named."""
    return [Fault(1.0, worker, node, ("b", at if task < 0 else task), ("a", at)) for at in outputs]


def avoided(decisions: list[Any]) -> list[int]:
    return [each.worker for each in decisions if isinstance(each, Avoid)]


# ------------------------------------------------------------------------------------------------------- outputs


def test_one_read_error_is_nobodys_fault():
    assert decided(unread(0, 7)) == []


def test_what_two_workers_cannot_read_is_made_again():
    assert decided([*unread(0, 7), *unread(1, 7, task=1)]) == [Remake("a", 7, "2 workers could not read it")]


@pytest.mark.parametrize("workers", [1, 6])
def test_what_one_task_cannot_read_again_and_again_is_made_again(workers):
    assert decided(unread(0, 7, 7, task=0), workers=workers) == []
    assert decided(unread(0, 7, 7, 7, task=0), workers=workers) == [
        Remake("a", 7, "it could not be read 3 times, and nobody else tried")
    ]


def test_many_tasks_that_cannot_read_the_same_where_nobody_else_tried_tell_of_their_worker():
    decisions = decided([fault for task in range(4) for fault in unread(0, 7, task=task)])
    assert [type(each) for each in decisions] == [Avoid]
    assert avoided(decisions) == [0]


def test_many_tasks_that_cannot_read_what_others_cannot_read_either_tell_of_the_output():
    decisions = decided([fault for task, worker in enumerate((0, 0, 0, 1)) for fault in unread(worker, 7, task=task)])
    assert decisions == [Remake("a", 7, "2 workers could not read it")]


def test_workers_of_one_node_are_one_witness_where_there_are_several_nodes():
    assert decided([*unread(0, 7), *unread(1, 7)], nodes=2) == []
    assert decided([*unread(0, 7), *unread(3, 7, node=1)], nodes=2) == [Remake("a", 7, "2 nodes could not read it")]


def test_a_worker_that_reads_nothing_is_at_fault_and_no_witness():
    decisions = decided([*unread(0, 1, 2, 3, 4, 5), *unread(1, 5)])
    assert [type(each) for each in decisions] == [Avoid]
    assert avoided(decisions) == [0]


def test_where_nobody_sees_better_outputs_are_made_again():
    decisions = decided(unread(0, 1, 2, 3, 4) * 3, workers=1)
    assert [(each.vertex, each.index) for each in decisions if isinstance(each, Remake)] == [
        ("a", 1),
        ("a", 2),
        ("a", 3),
        ("a", 4),
    ]


def test_read_errors_of_an_output_that_is_at_fault_count_against_nobody():
    lost = [fault for worker in range(4) for fault in unread(worker, 7, task=worker)]
    assert avoided(decided([*failed(0, 1, 2, 3), *lost])) == []


# ------------------------------------------------------------------------------------------------------- workers


def test_a_worker_on_which_several_tasks_fail_is_avoided():
    assert decided(failed(0, 1, 2, 3)) == []
    (avoid,) = decided(failed(0, 1, 2, 3, 4))
    assert (avoid.worker, avoid.seconds) == (0, 60.0)
    assert avoid.reason == "4 tasks failed there, 0 on another worker"
    assert avoid.seen == "4 failures within 9 s on 6 workers"


def test_one_task_counts_once():
    assert decided(failed(0, 1, 1, 1, 1, 1)) == []


def test_a_task_that_fails_wherever_it_runs_is_its_own_fault():
    everywhere = [fault for worker in (0, 1, 2) for fault in failed(worker, 1)]
    assert decided([*everywhere, *failed(0, 2, 3, 4)]) == []


def test_what_fails_everywhere_alike_is_nobodys_fault():
    faults = [fault for worker in range(6) for fault in failed(worker, *range(10 * worker, 10 * worker + 5))]
    assert decided(faults) == []


def test_three_times_as_many_as_on_the_others_are_too_many():
    others = [fault for worker in range(1, 6) for fault in failed(worker, 10 * worker, 10 * worker + 1)]
    assert decided([*failed(0, *range(6)), *others]) == []
    assert avoided(decided([*failed(0, *range(7)), *others])) == [0]


@pytest.mark.parametrize(("workers", "most"), [(1, 0), (2, 0), (3, 1), (5, 1), (6, 2), (12, 4)])
def test_no_more_than_a_third_are_avoided_the_worst_first(workers, most):
    bad = [fault for worker in range(workers // 2 + 1) for fault in failed(worker, *range(20 + worker))]
    faults = tuple(replace(fault, task=(f"a{fault.worker}", fault.task[1])) for fault in bad)
    views = tuple(WorkerView(worker, 0, avoided=False, times=0, since=-1.0) for worker in range(workers))
    found = avoided(list(NodeExclusion(times=1.0).decide(BlameView(2.0, views, faults), None)[0]))
    assert len(found) == most
    assert found == sorted(found, reverse=True), "those with more failures have larger numbers here"


def test_who_is_avoided_already_counts():
    assert decided(failed(0, 1, 2, 3, 4), workers=3, w1={"avoided": True}) == []


def test_too_many_of_those_that_are_left_are_avoided():
    some: dict[str, Any] = {"w0": {"avoided": True}, "w1": {"avoided": True}}
    assert decided([*failed(0, 1, 2, 3, 4), *failed(1, 5, 6)], workers=4, **some) == [
        Readmit(1, "too many are avoided")
    ]
    assert decided([], workers=6, **some) == []


def test_twice_as_long_each_time_up_to_an_hour():
    for times, seconds in ((1, 120.0), (2, 240.0), (9, 3600.0)):
        (avoid,) = decided(failed(0, 1, 2, 3, 4), w0={"times": times, "since": 0.5})
        assert avoid.seconds == seconds


def test_who_was_forgiven_is_avoided_again_only_after_another_failure():
    old = failed(0, 1, 2, 3, 4)
    assert decided(old, w0={"times": 1, "since": 5.0}) == []
    assert decided([*old, *failed(3, 9, at=6.0)], w0={"times": 1, "since": 5.0}) == []
    assert avoided(decided([*old, *failed(0, 9, at=6.0)], w0={"times": 1, "since": 5.0})) == [0]


def test_what_is_long_ago_is_forgotten():
    assert decided(failed(0, 1, 2, 3, 4), now=4000.0) == []


def test_a_node_several_of_whose_workers_fail_is_avoided():
    faults = [fault for worker in (0, 1, 2) for fault in failed(worker, *range(10 * worker, 10 * worker + 3))]
    decisions = decided(faults, workers=12, nodes=3)
    assert avoided(decisions) == [0, 1, 2, 3]
    assert decisions[3].reason.startswith("9 tasks failed on node 0, 0 on as many other workers")
    assert decided(faults[:7], workers=12, nodes=3) == []


def test_a_worker_that_took_the_place_of_a_dead_one_on_a_bad_node_is_avoided_too():
    dead = [fault for worker in range(100, 108) for fault in failed(worker, worker)]
    assert avoided(decided(dead, workers=3, nodes=3)) == [0]


@pytest.mark.parametrize(
    "wrong",
    [{"least": 0}, {"times": 0.5}, {"share": 1.0}, {"avoid_s": 0.0}, {"readers": 0}, {"errors": 0}, {"forget_s": 1.0}],
)
def test_wrong_thresholds_are_refused(wrong):
    with pytest.raises(GraphError):
        NodeExclusion(**wrong)
