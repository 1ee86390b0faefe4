"""The file with the status of the jobs of a run."""

from typing import Any

from weft.frontends.training.compiler import groups_of
from weft.frontends.training.job_news import condition_news, preempted_text
from weft.frontends.training.job_status import JobStatusFile
from weft.frontends.training.observed import SUSPENDED
from weft.frontends.training.schema import ON_FAILURE, JobFile, PodTemplate, ReplicaSpec, TrainingJob
from weft.store.state import STATUS, read_status


def test_the_run_that_a_suspended_job_makes_room_for_is_told():
    job = TrainingJob(kind="TFJob", name="job", replicas={})
    suspended = {"type": SUSPENDED, "status": "True", "message": "TFJob job is suspended."}
    assert condition_news(job, suspended) == "TFJob job suspended"
    suspended["message"] += preempted_text("run-000007")
    told = "TFJob job suspended: preempted by run-000007, and goes on when there is room"
    assert condition_news(job, suspended) == told


def test_it_is_written_when_the_status_has_changed(tmp_path):
    job = TrainingJob(kind="TFJob", name="job", replicas={"Worker": ReplicaSpec(template=PodTemplate(), replicas=1)})
    status = JobStatusFile(tmp_path, [job], {})
    memo: dict[str, Any] = {"statuses": {}, "events": (), "queued": {}, "suspended": None, "preempted": ()}

    status.take(memo)
    (tmp_path / STATUS).rename(tmp_path / "first")
    status.take({**memo})
    assert not (tmp_path / STATUS).exists()

    status.take({**memo, "events": [[1.0, "job", "Worker-0", "Created", "it was made"]]})
    assert [event[-1] for event in read_status(tmp_path)[0]["events"]] == ["it was made"]


def test_restarts_without_a_limit_are_told_unless_the_program_comes_further(tmp_path):
    spec = ReplicaSpec(template=PodTemplate(), replicas=2, restart_policy=ON_FAILURE)
    job = TrainingJob(kind="TFJob", name="job", replicas={"Worker": spec})
    groups = {(group.job.name, group.type): group for group in groups_of(JobFile(jobs=(job,)))}
    status = JobStatusFile(tmp_path, [job], groups)
    memo: dict[str, Any] = {"statuses": {}, "events": ()}

    told = []
    for count in (1, 2, 3, 4):
        status.reader.latest["worker", 0] = {"step": count, "metrics": {}}
        status.reader.latest["worker", 1] = {"step": 1, "metrics": {}}
        told += status.take({**memo, "restarts": {"worker": {"0": count, "1": count}}})
    assert [line.partition(";")[0] for line in told] == ["restart 3 of worker-1"]
    assert read_status(tmp_path)[0]["unlimited_restarts"] == {"worker-0": 4, "worker-1": 4}
    status.end("terminated", "its user asked", 7.0)
    assert "unlimited_restarts" not in read_status(tmp_path)[0]


def test_that_users_have_scaled_a_job_is_kept_for_later_owners_of_the_run(tmp_path):
    spec = ReplicaSpec(template=PodTemplate(), replicas=2)
    job = TrainingJob(kind="TFJob", name="job", replicas={"Worker": spec})
    groups = {(group.job.name, group.type): group for group in groups_of(JobFile(jobs=(job,)))}
    memo: dict[str, Any] = {"statuses": {}, "events": ()}
    status = JobStatusFile(tmp_path, [job], groups)
    status.take({**memo, "scale": {"worker": 2}})
    assert "scaled" not in read_status(tmp_path)[0], "as many as the file has"
    status.take({**memo, "scale": {"worker": 3}})
    status.take({**memo, "scale": {"worker": 2}})
    assert read_status(tmp_path)[0]["scaled"] == {"worker": 3}
    later = JobStatusFile(tmp_path, [job], groups)
    later.open()
    later.take(memo)
    assert read_status(tmp_path)[0]["scaled"] == {"worker": 3}
