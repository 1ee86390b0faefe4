"""Random histories of training jobs on a cluster in memory: they end, and what must always hold does."""

import random

import pytest
from msgspec.structs import replace

from tests.fixtures.training_cluster import FakeCluster, training_job
from weft.frontends.training.compat import POINTS, Compat
from weft.frontends.training.conditions import has_finished
from weft.frontends.training.desired import desired
from weft.frontends.training.observed import FAILED, PENDING, RUNNING, SUCCEEDED, CreatePod
from weft.frontends.training.schema import RESTART_POLICIES, TrainingJob

HISTORIES = 200
STEPS = 40
SHAPES = [
    ("TFJob", {"chief": 1, "ps": 1, "worker": 3}),
    ("TFJob", {"ps": 2, "worker": 3}),
    ("PyTorchJob", {"master": 1, "worker": 3}),
    ("JAXJob", {"worker": 3}),
    ("PaddleJob", {"worker": 3}),
    ("XGBoostJob", {"master": 1, "worker": 3}),
    ("MPIJob", {"launcher": 1, "worker": 3}),
    ("TrainJob", {"node": 3}),
]


def random_job(dice: random.Random) -> TrainingJob:
    kind, replicas = dice.choice(SHAPES)
    run = {
        "clean_pod_policy": dice.choice([None, "None", "Running", "All"]),
        "backoff_limit": dice.choice([None, 0, 2]),
        "deadline_s": dice.choice([None, 50]),
        "ttl_s": dice.choice([None, 5]),
    }
    whole = {"annotations": {"weft.dev/restart": "job"}} if dice.random() < 0.2 else {}
    return training_job(kind, policy=dice.choice(RESTART_POLICIES), run=run, **replicas, **whole)


def happen(cluster: FakeCluster, dice: random.Random) -> None:
    """Let one thing happen: a start, an end, an eviction, a deletion, a suspension, a change of scale, time."""
    job = cluster.job
    cluster.now += dice.choice([0, 1, 5])
    pods = [key for key, pod in cluster.pods.items() if pod.phase == RUNNING and not pod.deleting]
    thing = dice.choice(["run", "run", "exit", "exit", "evict", "delete", "suspend", "scale", "restart", "gone"])
    if thing == "run":
        cluster.run()
    elif thing == "gone":
        cluster.gone()
    elif thing == "suspend" and dice.random() < 0.5:
        cluster.job = replace(job, policy=replace(job.policy, suspend=not job.policy.suspend))
    elif thing == "scale" and dice.random() < 0.5:
        type = "node" if "node" in job.replicas else "Worker"
        spec = replace(job.replicas[type], replicas=dice.choice([1, 2, 3, 4]))
        cluster.job = replace(job, replicas={**job.replicas, type: spec})
    elif pods and thing in ("exit", "evict", "delete", "restart"):
        key = dice.choice(pods)
        if thing == "exit":
            cluster.exit(*key, dice.choice([0, 0, 0, 1, 137]))
        elif thing == "evict":
            cluster.exit(*key, None, "Evicted")
        elif thing == "delete":
            cluster.pods[key] = replace(cluster.pods[key], deleting=True)
        else:
            cluster.pods[key] = replace(cluster.pods[key], restarts=cluster.pods[key].restarts + 1)


def check(cluster: FakeCluster) -> None:
    """Check what holds after each step."""
    answer = cluster.last
    assert answer is not None
    types = [one.type for one in cluster.status.conditions]
    assert len(types) == len(set(types))
    if cluster.compat is Compat.FIXED:
        assert not {SUCCEEDED, FAILED} <= cluster.true()
        assert all(
            one.index < (cluster.job.replicas[one.type].replicas or 0)
            for one in answer.actions
            if isinstance(one, CreatePod)
        )
    if has_finished(cluster.status.conditions):
        assert RUNNING not in cluster.true()


@pytest.mark.parametrize("faults", ["none", "all", "some"])
@pytest.mark.parametrize("seed", range(HISTORIES))
def test_random_histories_end(seed, faults):
    print(f"seed {seed}")
    dice = random.Random(seed)
    some = Compat.FIXED
    for point in POINTS:
        some |= point if dice.random() < 0.5 else Compat.FIXED
    compat = {"none": Compat.FIXED, "all": Compat.STRICT, "some": some}[faults]
    cluster = FakeCluster(random_job(dice), compat)
    for _ in range(STEPS):
        finished = has_finished(cluster.status.conditions)
        seen = cluster.observed()
        assert desired(cluster.job, seen, cluster.now, compat) == desired(cluster.job, seen, cluster.now, compat)
        answer = cluster.step()
        check(cluster)
        if finished:
            assert not any(isinstance(one, CreatePod) for one in answer.actions)
            assert has_finished(cluster.status.conditions)
        if dice.random() < 0.5:
            cluster.settle()
        if cluster.job_deleted:
            return
        happen(cluster, dice)
    cluster.job = replace(cluster.job, policy=replace(cluster.job.policy, suspend=False))
    for _ in range(3 * STEPS):
        cluster.settle()
        if has_finished(cluster.status.conditions) or cluster.job_deleted:
            break
        cluster.run()
        cluster.settle()
        for key, pod in list(cluster.pods.items()):
            if pod.phase == RUNNING and not pod.deleting:
                cluster.exit(*key, 0)
    if compat is Compat.FIXED:
        assert has_finished(cluster.status.conditions), cluster
        if not cluster.job_deleted and cluster.job.policy.clean_pod_policy != "None":
            assert not any(pod.phase in (RUNNING, PENDING) for pod in cluster.pods.values())
