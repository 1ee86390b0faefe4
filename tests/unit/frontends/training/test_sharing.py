"""How the jobs of a file share their machine: priority, queue and capacity."""

from __future__ import annotations

from math import inf
from typing import Any

import pytest

from weft.frontends.training.schema import (
    Container,
    JobFile,
    PodTemplate,
    ReplicaSpec,
    RunPolicy,
    SchedulingPolicy,
    TrainingJob,
)
from weft.frontends.training.sharing import priority_of, project_queues, sharing_of, unknown_classes, unknown_queues
from weft.model.errors import UsageError


def jobs(cpu: float = 1.0, pod_class: str = "", **scheduling: Any) -> JobFile:
    container = Container(name="tensorflow", image="x", requests={"cpu": cpu} if cpu else {})
    spec = ReplicaSpec(template=PodTemplate(containers=(container,), priority_class=pod_class), replicas=1)
    policy = RunPolicy(scheduling=SchedulingPolicy(**scheduling) if scheduling else None)
    job = TrainingJob(kind="TFJob", name="a", namespace="default", replicas={"Worker": spec}, policy=policy)
    return JobFile(jobs=(job,), priority_classes={"low": -5, "high": 100})


def test_a_run_without_requests_shares_nothing(tmp_path):
    assert sharing_of(jobs(cpu=0), tmp_path, "me") is None


@pytest.mark.parametrize(
    ("files", "priority"),
    [
        (jobs(), 0),
        (jobs(priority_class="high"), 100),
        (jobs(pod_class="low"), -5),
        (jobs(pod_class="low", priority_class="high"), 100),
        (jobs(pod_class="system-cluster-critical"), 2_000_000_000),
        (jobs(priority_class="unknown"), 0),
    ],
)
def test_the_priority_is_that_of_the_scheduling_policy_or_of_the_pods(files, priority, tmp_path):
    assert priority_of(files) == priority
    sharing = sharing_of(files, tmp_path, "me", priority=7)
    assert sharing is not None
    assert sharing.priority == 7


def test_an_unknown_priority_class_is_told():
    (text,) = unknown_classes(jobs(priority_class="hihg"))
    assert "the priority class hihg is in none of the files" in text
    assert "high" in text


def test_the_queue_is_that_of_the_file_with_its_capacity(tmp_path):
    (tmp_path / "weft.toml").write_text('[queues.small]\ncpu = 4\nmemory = "2Gi"\nweight = 2.0\n[queues.free]\n')
    sharing = sharing_of(jobs(queue="small"), tmp_path, "me", devices=("0", "1", "2"), workers=1000)
    assert sharing is not None
    assert (sharing.queue, sharing.limit, sharing.weight) == ("small", (4.0, float(2 << 30), inf), 2.0)
    assert (sharing.room[0], sharing.room[2]) == (1000, 3)
    other = sharing_of(jobs(queue="small"), tmp_path, "me", queue="free")
    assert other is not None
    assert (other.queue, other.limit, other.weight) == ("free", None, 1.0)


def test_an_unknown_queue_is_told_with_those_that_are_known(tmp_path):
    (text,) = unknown_queues(jobs(queue="nightly"), tmp_path)
    assert "the queue nightly is unknown" in text
    assert "weft.toml has no queues" in text
    assert "[queues.nightly]" in text
    (tmp_path / "weft.toml").write_text("[queues.nightly]\ncpu = 4\n[queues.free]\n")
    assert unknown_queues(jobs(queue="nightly"), tmp_path) == []
    assert unknown_queues(jobs(queue="default"), tmp_path) == unknown_queues(jobs(), tmp_path) == []
    (text,) = unknown_queues(jobs(queue="nigthly"), tmp_path)
    assert "the queues of weft.toml are nightly, free. Did you mean nightly?" in text
    (text,) = unknown_queues(jobs(queue="nightly"), tmp_path, "batch")
    assert "the queue batch is unknown" in text


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("queues = 3", "queues is no table of queues"),
        ("[queues.a]\ncpus = 3", "queues.a.cpus does not exist"),
        ('[queues.a]\nmemory = "2 GB"', "queues.a.memory is '2 GB'"),
        ("[queues.a]\ncpu = -1", "queues.a.cpu is -1"),
        ("[queues.a]\nweight = 0", "queues.a.weight is 0"),
        ("[queues", "is not TOML"),
    ],
)
def test_wrong_queues_are_refused_with_their_place(text, told, tmp_path):
    (tmp_path / "weft.toml").write_text(text)
    with pytest.raises(UsageError, match=r"weft\.toml") as caught:
        project_queues(tmp_path)
    assert told in caught.value.message
