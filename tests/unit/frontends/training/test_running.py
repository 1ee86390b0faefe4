"""The jobs of a run as its process holds them: the numbers of their replicas."""

from typing import Any

from weft.frontends.training.running import LocalJobs
from weft.frontends.training.schema import (
    Container,
    JobFile,
    PodTemplate,
    ReplicaSpec,
    RunPolicy,
    SchedulingPolicy,
    TrainingJob,
)


def job(name: str, run: RunPolicy | None = None, **replicas: int) -> TrainingJob:
    template = PodTemplate(containers=(Container(name="tensorflow", image="e/n", command=("true",)),))
    specs = {type: ReplicaSpec(template=template, replicas=count) for type, count in replicas.items()}
    return TrainingJob(kind="TFJob", name=name, replicas=specs, policy=run or RunPolicy())


def host(tmp_path, *jobs: TrainingJob, memo: Any = None) -> LocalJobs:
    found = LocalJobs("run-000001", tmp_path, tmp_path, tmp_path, JobFile(jobs=jobs), ())
    found.follow_controller(lambda: memo)
    return found


def test_the_numbers_of_replicas_are_those_of_the_controller_at_any_moment(tmp_path):
    memo: dict[str, Any] = {"scale": {}, "statuses": {}}
    jobs = host(tmp_path, job("one", Chief=1, Worker=2), memo=memo)
    assert jobs.wanted("worker") == 2
    memo["scale"] = {"worker": 5}
    assert (jobs.wanted("worker"), jobs.scale) == (5, {"worker": 5})


def test_all_replicas_of_a_job_that_have_not_succeeded_need_their_places_together(tmp_path):
    memo = {"scale": {"one.ps": 2}, "statuses": {"one": {"replicas": {"Worker": {"succeeded": 1}}}}}
    jobs = host(tmp_path, job("one", PS=1, Worker=2), job("two", Worker=1), memo=memo)
    assert jobs.together({"one.worker": 4}) == [{"one.ps": 2, "one.worker": 3}]
    assert jobs.together({"two.worker": 4}) == [{"two.worker": 4}]
    assert len(jobs.together({"one.worker": 4, "two.worker": 4})) == 2


def test_replicas_beyond_the_minimum_of_a_gang_need_no_place_together(tmp_path):
    few, many = (RunPolicy(scheduling=SchedulingPolicy(min_available=count)) for count in (2, 9))
    jobs = host(tmp_path, job("few", few, Worker=3), job("many", many, Worker=3))
    assert jobs.together({"few.worker": 5}) == []
    assert jobs.together({"many.worker": 5}) == [{"many.worker": 5}]
