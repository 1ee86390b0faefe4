"""The file with the status of the jobs of a run."""

from typing import Any

from weft.frontends.training.job_status import JobStatusFile
from weft.frontends.training.schema import PodTemplate, ReplicaSpec, TrainingJob
from weft.store.state import STATUS, read_status


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
