"""The operator as a pure function: status, restarts, clean-up, suspend, deadline and time to live, strict and fixed."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.fixtures.training_cluster import FakeCluster, running, training_job
from weft.frontends.training.compat import POINTS, Compat
from weft.frontends.training.conditions import with_condition
from weft.frontends.training.desired import desired
from weft.frontends.training.observed import (
    FAILED,
    PENDING,
    RUNNING,
    SUCCEEDED,
    Condition,
    CreateGang,
    CreatePod,
    JobStatus,
    Observed,
    Pod,
    Wake,
)
from weft.frontends.training.schema import ElasticPolicy

BOTH = [Compat.STRICT, Compat.FIXED]


def condition(type, status="True", at=1.0, reason=None):
    reason = f"TFJob{type}" if reason is None else reason
    return Condition(type=type, status=status, reason=reason, message="m", updated_at=at, changed_at=at)


class TestConditions:
    def test_the_sequence_of_a_job_that_restarts_and_fails(self):
        found: tuple[Condition, ...] = ()
        seen = []
        for type in ("Created", "Running", "Restarting", "Running", "Failed", "Succeeded"):
            found = with_condition(found, condition(type))
            seen.append([(one.type, one.status) for one in found])
        assert seen == [
            [("Created", "True")],
            [("Created", "True"), ("Running", "True")],
            [("Created", "True"), ("Restarting", "True")],
            [("Created", "True"), ("Running", "True")],
            [("Created", "True"), ("Running", "False"), ("Failed", "True")],
            [("Created", "True"), ("Running", "False"), ("Failed", "True")],
        ]

    def test_the_same_again_changes_nothing_and_another_reason_keeps_the_time_of_the_change(self):
        first = with_condition((), condition("Running"))
        assert with_condition(first, condition("Running", at=2)) is first
        (found,) = with_condition(first, condition("Running", at=2, reason="Other"))
        assert (found.changed_at, found.updated_at) == (1, 2)


def pods_of(**counts):
    """Return pods by type as (succeeded, failed, active) in the order of their indices."""
    names = {"chief": "Chief", "ps": "PS", "worker": "Worker", "master": "Master", "evaluator": "Evaluator"}
    pods = []
    for name, (succeeded, failed, active) in counts.items():
        phases = [SUCCEEDED] * succeeded + [FAILED] * failed + [RUNNING] * active
        pods += [Pod(type=names[name], index=index, phase=phase) for index, phase in enumerate(phases)]
    return tuple(pods)


S, F, R, T = "Succeeded", "Failed", "Running", "Restarting"
STATUS = [
    ("chief succeeded", {"chief": 1, "worker": 1}, {"chief": (1, 0, 0), "worker": (1, 0, 0)}, S, S),
    ("chief runs", {"chief": 1, "worker": 1}, {"chief": (0, 0, 1)}, R, R),
    ("chief failed", {"chief": 1, "worker": 1}, {"chief": (0, 1, 0)}, F, F),
    ("worker failed", {"worker": 1}, {"worker": (0, 1, 0)}, F, F),
    ("worker succeeded", {"worker": 1}, {"worker": (1, 0, 0)}, S, S),
    ("worker runs", {"worker": 1}, {"worker": (0, 0, 1)}, R, R),
    ("2 succeeded, 2 run", {"worker": 4, "ps": 2}, {"ps": (0, 0, 2), "worker": (2, 0, 2)}, R, R),
    ("2 run, 2 failed", {"worker": 4, "ps": 2}, {"ps": (0, 0, 2), "worker": (0, 2, 2)}, F, F),
    ("2 succeeded, 2 failed", {"worker": 4, "ps": 2}, {"ps": (0, 0, 2), "worker": (2, 2, 0)}, F, F),
    ("worker-0 done", {"worker": 4, "ps": 2, "done": True}, {"ps": (0, 0, 2), "worker": (1, 0, 3)}, S, S),
    ("all: 1 done", {"worker": 4, "done": True, "success_policy": "AllWorkers"}, {"worker": (1, 0, 3)}, R, R),
    ("all: 4 done", {"worker": 4, "done": True, "success_policy": "AllWorkers"}, {"worker": (4, 0, 0)}, S, S),
    ("all: failed", {"worker": 4, "done": True, "success_policy": "AllWorkers"}, {"worker": (1, 1, 2)}, F, F),
    ("chief runs, workers failed", {"chief": 1, "worker": 4}, {"chief": (0, 0, 1), "worker": (0, 4, 0)}, F, F),
    ("chief runs, workers done", {"chief": 1, "worker": 4}, {"chief": (0, 0, 1), "worker": (4, 0, 0)}, R, R),
    ("chief runs, ps failed", {"chief": 1, "ps": 2}, {"chief": (0, 0, 1), "ps": (0, 1, 1)}, F, F),
    ("chief failed, workers done", {"chief": 1, "worker": 4}, {"chief": (0, 1, 0), "worker": (4, 0, 0)}, F, F),
    ("chief done, workers failed", {"chief": 1, "worker": 4}, {"chief": (1, 0, 0), "worker": (0, 4, 0)}, {S, F}, S),
    (
        "chief restarts",
        {"chief": 1, "worker": 4, "policy": "ExitCode"},
        {"chief": (0, 1, 0), "worker": (0, 4, 0)},
        T,
        T,
    ),
    ("evaluator failed", {"chief": 1, "evaluator": 1}, {"chief": (0, 0, 1), "evaluator": (0, 1, 0)}, F, F),
    ("only ps run", {"ps": 1}, {"ps": (0, 0, 1)}, set(), R),
    ("only ps done", {"ps": 1}, {"ps": (1, 0, 0)}, set(), S),
    ("no worker, ps", {"worker": 0, "ps": 1}, {"ps": (0, 0, 1)}, S, R),
    ("worker-0 done, worker-1 failed", {"worker": 2, "done": True}, {"worker": (1, 1, 0)}, {S, F}, S),
]


@pytest.mark.parametrize("compat", BOTH)
@pytest.mark.parametrize(("name", "given", "counts", "strict", "fixed"), STATUS, ids=[row[0] for row in STATUS])
def test_status_of_a_tfjob(name, given, counts, strict, fixed, compat):
    given = dict(given)
    done = given.pop("done", False)
    job = training_job(**given)
    pods = pods_of(**counts)
    if done:
        pods = tuple(
            replace(pod, exit_code=0) if (pod.type, pod.index, pod.phase) == ("Worker", 0, SUCCEEDED) else pod
            for pod in pods
        )
    found = desired(job, Observed(pods=pods), 1.0, compat)
    wanted = strict if compat is Compat.STRICT else fixed
    wanted = wanted if isinstance(wanted, set) else {wanted}
    held = {one.type for one in found.status.conditions if one.status == "True"}
    assert held == {"Created", *wanted}
    assert not (held & {S, F} and R in held)
    for type in job.replicas:
        name = type.lower()
        if wanted <= {R, F} and name in counts:
            assert found.status.replicas[type].failed == counts[name][1]


def test_an_earlier_restart_hides_a_failure_in_strict_only():
    job = training_job(chief=1, worker=1)
    status = JobStatus(conditions=(condition("Created"), condition("Restarting")))
    seen = Observed(status=status, pods=pods_of(chief=(0, 0, 1), worker=(0, 1, 0)))
    assert desired(job, seen, 1.0, Compat.STRICT).status.conditions[-1].type == T
    assert desired(job, seen, 1.0).status.conditions[-1].type == F


@pytest.mark.parametrize(
    ("exit_code", "phase", "done"), [(0, S, True), (None, S, False), (1, F, False), (None, R, False)]
)
def test_the_first_worker_is_done_by_phase_and_exit_code(exit_code, phase, done):
    pods = (Pod(type="Worker", index=0, phase=phase, exit_code=exit_code), Pod(type="Worker", index=1, phase=RUNNING))
    held = {one.type for one in desired(training_job(worker=2), Observed(pods=pods), 1.0).status.conditions}
    assert (S in held) is done


KINDS_OF = [
    ("PyTorchJob", {"master": 1, "worker": 2}, "Master"),
    ("PaddleJob", {"master": 1, "worker": 2}, "Master"),
    ("XGBoostJob", {"master": 1, "worker": 2}, "Master"),
    ("MPIJob", {"launcher": 1, "worker": 2}, "Launcher"),
    ("TFJob", {"chief": 1, "worker": 2, "ps": 1}, "Chief"),
]


@pytest.mark.parametrize("compat", BOTH)
@pytest.mark.parametrize(("kind", "replicas", "master"), KINDS_OF)
def test_the_end_of_the_master_ends_the_job(kind, replicas, master, compat):
    cluster = running(training_job(kind, run={"clean_pod_policy": "Running"}, **replicas), compat)
    assert cluster.state() == R
    cluster.exit(master, 0, 0)
    cluster.settle()
    assert cluster.conditions() == [("Created", "True"), (R, "False"), (S, "True")]
    assert set(cluster.pods) == {(master, 0)}
    assert cluster.status.completed_at == cluster.now


@pytest.mark.parametrize("compat", BOTH)
@pytest.mark.parametrize(("kind", "replicas", "master"), KINDS_OF)
def test_a_failure_without_restart_fails_each_kind(kind, replicas, master, compat):
    cluster = running(training_job(kind, **replicas), compat)
    cluster.exit("Worker", 1, 1)
    cluster.settle()
    assert cluster.true() == {"Created", F}
    assert "1 Worker replica(s) failed" in cluster.status.conditions[-1].message


@pytest.mark.parametrize("kind", ["JAXJob", "PyTorchJob", "PaddleJob"])
def test_without_master_all_workers_decide(kind):
    cluster = running(training_job(kind, worker=2))
    cluster.exit("Worker", 0, 0)
    cluster.settle()
    assert cluster.state() == R
    cluster.exit("Worker", 1, 0)
    cluster.settle()
    assert cluster.status.conditions[-1].message == f"{kind} ns/j successfully completed."


def test_a_train_job_has_the_words_of_its_version():
    cluster = running(training_job("TrainJob", node=2), Compat.STRICT)
    assert cluster.conditions() == []
    for index in range(2):
        cluster.exit("node", index, 0)
    cluster.settle()
    (found,) = cluster.status.conditions
    assert (found.type, found.reason) == ("Complete", "AllJobsCompleted")


RESTARTS = [
    ("OnFailure", 1, True),
    ("Always", 1, True),
    ("Never", 1, False),
    ("Never", 137, False),
    ("ExitCode", 1, False),
    ("ExitCode", 2, False),
    ("ExitCode", 3, False),
    ("ExitCode", 130, True),
    ("ExitCode", 138, True),
    ("ExitCode", None, True),
]


@pytest.mark.parametrize("compat", BOTH)
@pytest.mark.parametrize(("policy", "code", "again"), RESTARTS)
def test_restart_policies(policy, code, again, compat):
    cluster = running(training_job(worker=2, policy=policy), compat)
    before = cluster.pods["Worker", 1].created
    cluster.exit("Worker", 1, code)
    cluster.step()
    assert cluster.state() == (T if again else F)
    if again:
        assert cluster.status.conditions[-1].message == "job j is restarting because Worker replica(s) failed."
        cluster.settle()
        assert cluster.pods["Worker", 1].created > before
        cluster.run()
        cluster.settle()
        assert cluster.state() == R
    elif policy == "ExitCode":
        assert cluster.status.conditions[-1].message == 'job "j" is failing because "Worker" replica(s) failed.'


def test_an_evicted_replica_runs_again_whatever_its_exit_code():
    cluster = running(training_job(worker=2, policy="ExitCode"))
    cluster.exit("Worker", 1, 1, "Evicted")
    cluster.step()
    assert cluster.state() == T


@pytest.mark.parametrize("limit", [0, 1, 3])
def test_recreated_pods_count_to_the_backoff_limit(limit):
    job = training_job(worker=2, policy="ExitCode", run={"backoff_limit": limit})
    cluster = running(job)
    for _ in range(limit):
        cluster.exit("Worker", 1, 137)
        cluster.settle()
        cluster.run()
        cluster.settle()
        assert cluster.state() == R
    cluster.exit("Worker", 1, 137)
    cluster.settle()
    assert (
        cluster.status.conditions[-1].message == "Job j has failed because it has reached the specified backoff limit"
    )


def test_strict_never_counts_recreated_pods():
    cluster = running(training_job(worker=2, policy="ExitCode", run={"backoff_limit": 1}), Compat.STRICT)
    for _ in range(5):
        cluster.exit("Worker", 1, 137)
        cluster.settle()
        cluster.run()
        cluster.settle()
    assert cluster.state() == R


@pytest.mark.parametrize(
    ("limit", "restarts", "strict", "fixed"),
    [(4, (1, 1, 1, 1), True, False), (3, (3,), True, False), (3, (4,), True, True), (0, (0,), False, False)],
)
def test_restarts_in_place_count(limit, restarts, strict, fixed):
    job = training_job(worker=len(restarts), policy="OnFailure", run={"backoff_limit": limit})
    for compat, past in ((Compat.STRICT, strict), (Compat.FIXED, fixed)):
        cluster = running(job, compat)
        for index, number in enumerate(restarts):
            cluster.pods["Worker", index] = replace(cluster.pods["Worker", index], restarts=number)
        cluster.settle()
        assert (cluster.state() == F) is past


CLEAN = [
    ("All", set(), set()),
    ("Running", {"Worker"}, {"Worker"}),
    ("None", {"Worker", "PS"}, {"Worker", "PS"}),
]


@pytest.mark.parametrize("compat", BOTH)
@pytest.mark.parametrize(("policy", "pods", "services"), CLEAN)
@pytest.mark.parametrize("code", [0, 1])
def test_clean_pod_policy(policy, pods, services, code, compat):
    cluster = running(training_job(worker=1, ps=2, run={"clean_pod_policy": policy}), compat)
    cluster.exit("Worker", 0, code)
    cluster.settle()
    assert cluster.state() == (F if code else S)
    assert {type for type, _ in cluster.pods} == pods
    assert {type for type, _ in cluster.services} == services


def test_without_a_policy_parameter_servers_stop_in_fixed_only():
    for compat, left in ((Compat.STRICT, True), (Compat.FIXED, False)):
        cluster = running(training_job(worker=1, ps=1), compat)
        cluster.exit("Worker", 0, 0)
        cluster.settle()
        assert (("PS", 0) in cluster.pods) is left


@pytest.mark.parametrize("compat", BOTH)
def test_the_shutdown_of_chief_or_first_worker_ends_the_job(compat):
    for replicas, master in (({"chief": 1, "worker": 2, "ps": 2}, "Chief"), ({"worker": 2, "ps": 2}, "Worker")):
        cluster = running(training_job(run={"clean_pod_policy": "All"}, **replicas), compat)
        cluster.exit(master, 0, 0)
        cluster.settle()
        assert (cluster.state(), cluster.pods, cluster.services) == (S, {}, set())


@pytest.mark.parametrize("compat", BOTH)
def test_born_suspended_then_resumed_then_suspended(compat):
    job = training_job(worker=4, ps=2, run={"suspend": True, "clean_pod_policy": "None"})
    cluster = FakeCluster(job, compat)
    cluster.settle()
    assert (cluster.pods, cluster.services, cluster.status.started_at) == ({}, set(), None)
    assert cluster.conditions() == [("Created", "True"), ("Suspended", "True")]
    cluster.now = 2000.0
    cluster.job = replace(job, policy=replace(job.policy, suspend=False))
    cluster.settle()
    cluster.run()
    cluster.settle()
    assert cluster.conditions() == [("Created", "True"), ("Suspended", "False"), (R, "True")]
    assert cluster.status.conditions[1].reason == "TFJobResumed"
    assert (len(cluster.pods), len(cluster.services), cluster.status.started_at) == (6, 6, 2000.0)
    cluster.job = job
    cluster.settle()
    assert cluster.conditions() == [("Created", "True"), (R, "False"), ("Suspended", "True")]
    assert cluster.status.conditions[1].reason == "TFJobSuspended"
    assert (cluster.pods, cluster.services) == ({}, set())
    assert {one.active for one in cluster.status.replicas.values()} == {0}


def test_another_manager_keeps_its_job():
    job = training_job(worker=1, run={"managed_by": "kueue.x-k8s.io/multikueue"})
    assert desired(job, Observed(), 1.0) == desired(job, Observed(), 1.0)
    assert desired(job, Observed(), 1.0).status == JobStatus()
    assert not desired(job, Observed(), 1.0).actions


def test_the_deadline_fires_on_time_in_fixed():
    job = training_job(worker=4, ps=2, run={"deadline_s": 60, "clean_pod_policy": "All"})
    for compat in BOTH:
        cluster = running(job, compat)
        wakes = [one.at for one in cluster.last.actions if isinstance(one, Wake)]
        assert wakes == ([] if compat is Compat.STRICT else [1060.0])
        cluster.now = 1059.0
        cluster.settle()
        assert cluster.state() == R
        cluster.now = 1060.0
        cluster.settle()
        assert cluster.state() == F
        assert "active longer than specified deadline" in cluster.status.conditions[-1].message
        assert cluster.pods == {}


@pytest.mark.parametrize(
    ("ttl", "suspend", "after", "deleted"),
    [(None, 0, 9000000000.0, 0), (10, 1, 99, 0), (10, 0, 9, 0), (10, 0, 10, 1), (0, 0, 0, 1)],
)
def test_time_to_live(ttl, suspend, after, deleted):
    cluster = running(training_job(worker=1))
    cluster.exit("Worker", 0, 0)
    cluster.settle()
    job = cluster.job
    cluster.job = replace(job, policy=replace(job.policy, ttl_s=ttl, suspend=bool(suspend)))
    cluster.now += after
    cluster.step()
    assert cluster.job_deleted == bool(deleted)
    waits = ttl is not None and not suspend and not deleted
    assert any(isinstance(one, Wake) for one in cluster.last.actions) == waits


@pytest.mark.parametrize("replicas", [1, 2, 3, 4])
def test_scale(replicas):
    cluster = running(training_job(worker=3))
    cluster.job = training_job(worker=replicas)
    cluster.settle()
    assert set(cluster.pods) == {("Worker", index) for index in range(replicas)} == cluster.services
    assert cluster.state() == R


def test_scaling_down_fails_the_job_in_strict():
    cluster = running(training_job(worker=3), Compat.STRICT)
    cluster.job = training_job(worker=2)
    cluster.step()
    cluster.step()
    assert cluster.state() == F


def test_strict_fills_the_gap_below_a_stray_pod():
    pods = (Pod(type="Worker", index=4, phase=RUNNING),)
    for compat, wanted in ((Compat.STRICT, [0, 1, 2, 3]), (Compat.FIXED, [0, 1])):
        found = desired(training_job(worker=2), Observed(pods=pods), 1.0, compat)
        assert [one.index for one in found.actions if isinstance(one, CreatePod)] == wanted


def test_a_gang_waits_and_is_given_back():
    cluster = FakeCluster(training_job(worker=4, ps=2), gang=False)
    cluster.settle()
    assert cluster.pods == {}
    assert cluster.asked == CreateGang(min_available=6, min_resources={})
    cluster.gang = True
    cluster.settle()
    assert len(cluster.pods) == 6
    cluster.run()
    cluster.settle()
    cluster.exit("Worker", 0, 0)
    cluster.settle()
    assert cluster.asked is None


def test_the_whole_job_restarts_when_all_pods_are_gone_and_has_a_cap():
    job = training_job(worker=3, annotations={"weft.dev/restart": "job"}, run={"backoff_limit": 1})
    cluster = running(job)
    cluster.exit("Worker", 1, 1)
    cluster.step()
    assert [pod.deleting for pod in cluster.pods.values()] == [True, True]
    cluster.step()
    assert len(cluster.pods) == 2
    cluster.settle()
    cluster.run()
    cluster.settle()
    assert (cluster.state(), len(cluster.pods)) == (R, 3)
    cluster.exit("Worker", 1, 1)
    cluster.settle()
    assert cluster.state() == F


def test_dynamic_workers_may_be_lost_but_not_all():
    cluster = running(training_job(worker=2, ps=1, dynamic_workers=True))
    cluster.exit("Worker", 1, 1)
    cluster.settle()
    assert cluster.state() == R
    cluster.exit("Worker", 0, 1)
    cluster.settle()
    assert cluster.state() == F


def test_a_job_that_lost_as_many_workers_as_it_may_ends_with_the_others():
    job = training_job(worker=3, ps=1, dynamic_workers=True, success_policy="AllWorkers")
    cluster = running(job)
    cluster.exit("Worker", 0, 1)
    cluster.exit("Worker", 1, 0)
    cluster.settle()
    assert cluster.state() == R
    cluster.exit("Worker", 2, 0)
    cluster.settle()
    assert cluster.state() == S


def test_retries_before_a_pause_count_after_it():
    job = training_job("PyTorchJob", "OnFailure", worker=1, run={"backoff_limit": 1})
    cluster = running(job)
    cluster.pods["Worker", 0] = replace(cluster.pods["Worker", 0], restarts=1)
    cluster.job = replace(job, policy=replace(job.policy, suspend=True))
    cluster.settle()
    assert (cluster.pods, cluster.status.recreated) == ({}, 1)
    cluster.job = job
    cluster.settle()
    cluster.run()
    cluster.settle()
    assert cluster.state() == R
    cluster.pods["Worker", 0] = replace(cluster.pods["Worker", 0], restarts=1)
    cluster.settle()
    assert cluster.state() == F


def test_workers_of_an_elastic_job_may_be_lost_down_to_the_least():
    elastic = ElasticPolicy(min_replicas=2, max_replicas=3)
    cluster = running(training_job("PyTorchJob", worker=3, elastic=elastic))
    cluster.exit("Worker", 2, 1)
    cluster.settle()
    assert cluster.state() == R
    cluster.exit("Worker", 1, 1)
    cluster.settle()
    assert cluster.state() == F


def test_any_worker_ends_an_elastic_job():
    elastic = ElasticPolicy(min_replicas=1, max_replicas=3)
    for compat in BOTH:
        cluster = running(training_job("PyTorchJob", worker=3, elastic=elastic), compat)
        cluster.exit("Worker", 2, 0)
        cluster.settle()
        assert cluster.state() == S


def test_the_nodes_of_a_train_job_start_after_its_initializers():
    job = training_job("TrainJob", node=2)
    spec = replace(job.replicas["node"], replicas=1)
    cluster = FakeCluster(replace(job, replicas={"dataset-initializer": spec, **job.replicas}))
    cluster.settle()
    assert set(cluster.pods) == {("dataset-initializer", 0)}
    cluster.run()
    cluster.exit("dataset-initializer", 0, 0)
    cluster.settle()
    assert len(cluster.pods) == 3


@pytest.mark.parametrize("kind", ["XGBoostJob", "MPIJob"])
def test_strict_fails_on_a_replica_that_on_failure_covers(kind):
    master = "master" if kind == "XGBoostJob" else "launcher"
    for compat, state in ((Compat.STRICT, F), (Compat.FIXED, T)):
        cluster = running(training_job(kind, policy="OnFailure", worker=2, **{master: 1}), compat)
        cluster.exit("Worker", 0, 1)
        cluster.step()
        assert cluster.state() == state


def test_strict_leaves_the_time_of_the_end_out_after_a_permanent_exit_code():
    job = training_job("PyTorchJob", policy="ExitCode", master=1, worker=1)
    for compat, known in ((Compat.STRICT, False), (Compat.FIXED, True)):
        cluster = running(job, compat)
        cluster.exit("Worker", 0, 1)
        cluster.settle()
        assert cluster.state() == F
        assert (cluster.status.completed_at is not None) is known


def test_a_pod_of_an_mpi_job_that_is_evicted_has_its_reason():
    cluster = running(training_job("MPIJob", launcher=1, worker=2))
    cluster.exit("Worker", 0, None, "Evicted")
    cluster.settle()
    assert cluster.status.conditions[-1].reason == "MPIJobEvicted"


def test_each_point_of_compatibility_is_explained():
    assert set(POINTS) == {one for one in Compat if one not in (Compat.FIXED, Compat.STRICT)}


def test_the_documents_name_each_point():
    text = (Path(__file__).parents[4] / "docs" / "training-rules.md").read_text()
    for point in POINTS:
        assert f"`{point.name.lower()}`" in text


def test_create_matrix():
    found = desired(training_job(worker=4, ps=2), Observed(), 1.0)
    assert sum(isinstance(one, CreatePod) for one in found.actions) == 6
    pending = tuple(Pod(type="Worker", index=index, phase=PENDING) for index in range(4))
    services = {"Worker": frozenset(range(4))}
    found = desired(training_job(worker=4, ps=2), Observed(pods=pending, services=services), 1.0)
    assert [one.type for one in found.actions if isinstance(one, CreatePod)] == ["PS", "PS"]
