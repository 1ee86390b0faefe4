"""The reasons of training jobs, from the records of their run."""

from pathlib import Path
from typing import Any

from weft.runs.job_reasons import reasons_of_jobs, unlimited_text
from weft.runs.reading import RunRecord

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
