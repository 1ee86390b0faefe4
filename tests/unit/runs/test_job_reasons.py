"""The reasons of training jobs, from the records of their run."""

from pathlib import Path
from typing import Any

from weft.model.errors import NotFoundError
from weft.runs.answering import why
from weft.runs.job_reasons import failed_beside, reasons_of_jobs, unlimited_text, which_failure
from weft.runs.reading import ItemRecord, RunRecord, StepRecord

JOB = {"kind": "TFJob", "name": "j", "condition": "Running", "status": {}}
NO_HOST: Any = None
"""The records of a run that has ended tell everything."""


def test_restarts_without_a_limit_are_told():
    job = {**JOB, "unlimited_restarts": {"worker-0": 7, "worker-1": 2, "ps-0": 1}}
    run = RunRecord(id="run-000001", folder=Path("none"), name="j", state="failed", ended=1.0, jobs=(job,))
    assert reasons_of_jobs(run, "", NO_HOST).lines() == [
        "run-000001: TFJob j is Running",
        "Restarts: 10, no limit: set runPolicy.backoffLimit.",
    ]
    assert [unlimited_text(job, name) for name in ("worker", "worker-0", "chief")] == [
        "Restarts: 9, no limit: set runPolicy.backoffLimit.",
        "Restarts: 7, no limit: set runPolicy.backoffLimit.",
        "",
    ]
    assert unlimited_text(JOB) == ""


class FakeReader:
    """A reader with one run, whose graph is not known any more."""

    def __init__(self, run: RunRecord) -> None:
        self.run = run

    def show(self, name: str) -> RunRecord:
        return self.run

    def source_again(self, frontend: str, folder: Path, file: str) -> Any:
        raise NotFoundError("its file is gone")


def test_a_pipeline_tells_the_steps_that_start_replicas_again_without_a_limit(tmp_path):
    jobs = ({**JOB, "step": "train", "unlimited_restarts": {"worker-0": 7}}, {**JOB, "step": "other"})
    run = RunRecord(id="run-000001", folder=tmp_path, name="p", state="running", jobs=jobs)
    reader: Any = FakeReader(run)
    assert why(reader, "run-000001", None, print).lines() == [
        "run-000001: nothing of it waits",
        "train: Restarts: 7, no limit: set runPolicy.backoffLimit.",
    ]


def test_replicas_that_failed_though_the_run_succeeded_are_named():
    failed = ItemRecord(state="failed", message="ended with exit code 3.\nIts last lines:\n  KeyError: 3")
    items = {0: ItemRecord(state="succeeded"), **dict.fromkeys(range(1, 6), failed)}
    steps = [StepRecord(name="worker", items=items)]
    run = RunRecord(
        id="run-000001", folder=Path("none"), state="succeeded", frontend="training", jobs=(JOB,), steps=steps
    )
    why = "ended with exit code 3: KeyError: 3"
    assert failed_beside(run) == (
        f"the run succeeded, but worker-1 failed: {why}; worker-2 failed: {why}; worker-3 failed: {why}; 2 more failed"
    )
    run.state = "failed"
    assert failed_beside(run) == ""


def test_the_failure_of_a_job_that_was_retried_too_often_is_its_last_one():
    def failed(message: str) -> dict[str, Any]:
        return {**JOB, "status": {"conditions": [{"type": "Failed", "status": "True", "message": message}]}}

    assert which_failure([JOB, failed("1 Worker replica(s) failed.")]) == "first"
    assert which_failure([JOB, failed("Job j has failed because it has reached the specified backoff limit")]) == "last"
