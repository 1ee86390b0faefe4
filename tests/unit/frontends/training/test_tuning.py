"""What a job leaves to its control vertex, and what follows from measurements."""

import json
from pathlib import Path

import pytest

from weft.frontends.training.compiler import compile_jobs, requests_of
from weft.frontends.training.reading import read_text
from weft.frontends.training.schema import Candidate, JobFile
from weft.frontends.training.trials import DryRun
from weft.frontends.training.tuning import (
    HEADROOM,
    LEAST,
    TrialMeasure,
    best_of,
    fingerprint_of,
    from_history,
    rate_of,
    tuned,
)
from weft.model.errors import JobFileError

MIB = 1 << 20
ROOM = (4, 8 << 30, 0)


def text(tune=None, resources=None, command="true", worker=2, name="j"):
    container = {"name": "tensorflow", "image": "e/n", "command": [command], "resources": resources or {}}
    spec = {"replicas": worker, "template": {"spec": {"containers": [container]}}}
    metadata = {"name": name}
    if tune is not None:
        metadata["annotations"] = {"weft.dev/tune": tune if isinstance(tune, str) else json.dumps(tune)}
    specs = {"PS": {**spec, "replicas": 1}, "worker": spec}
    job = {"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "metadata": metadata, "spec": {"tfReplicaSpecs": specs}}
    return json.dumps(job)


def files(*args, **named) -> JobFile:
    return read_text(text(*args, **named), "job.yaml")


def job(*args, **named):
    return files(*args, **named).jobs[0]


# ------------------------------------------------------------------------------------------------------------- reading


def test_a_job_without_the_annotation_is_not_tuned():
    plain = files()
    assert plain.jobs[0].tuning is None
    assert list(compile_jobs(plain, "j", "run-1", {}).vertices) == ["ps", "worker"]
    assert fingerprint_of(plain, ROOM) == ""


def test_replicas_at_a_cluster_take_a_core_each_and_form_a_gang():
    light = compile_jobs(files(), "j", "run-1", {}, spread=True)
    assert [vertex.resources[0].cpu for vertex in light.vertices.values()] == [1, 1]
    assert [(bubble.id, bubble.whole) for bubble in light.bubbles] == [("j.gang", True)]
    asked = files(resources={"requests": {"cpu": "2500m", "memory": "64Gi", "nvidia.com/gpu": 1}})
    (resources,) = compile_jobs(asked, "j", "run-1", {}, spread=True).vertices["worker"].resources
    assert (resources.cpu, resources.memory, resources.gpu) == (2.5, 0, 1)


def test_yaml_and_json_are_read():
    found = job(
        "history: true\ncandidates: [{Worker: 1}, {worker: {replicas: 4, requests: {cpu: 500m, gpu: 1}}}]"
    ).tuning
    assert found is not None
    assert found.history
    assert found.candidates == (
        Candidate(replicas={"Worker": 1}),
        Candidate(replicas={"Worker": 4}, requests={"Worker": {"cpu": 0.5, "nvidia.com/gpu": 1.0}}),
    )
    assert (found.seconds, found.steps, found.measure) == (20, None, "")
    found = job({"candidates": [{"PS": 2}], "seconds": 5, "steps": 10, "measure": "images"}).tuning
    assert found is not None
    assert (found.history, found.seconds, found.steps, found.measure) == (False, 5, 10, "images")


@pytest.mark.parametrize(
    ("tune", "told"),
    [
        ("{}", "asks for nothing"),
        ("[", "job.yaml"),
        ("3", "must be a map"),
        ("histori: true", "Did you mean history?"),
        ("candidates: {}", "must be a list of 1 to 16 maps"),
        ("candidates: [3]", "must be a map of replica types"),
        ("candidates: [{Workr: 1}]", "Did you mean worker?"),
        ("candidates: [{Worker: many}]", "must be a whole number"),
        ("candidates: [{Worker: 0}]", "must be greater than or equal to 1"),
        ("candidates: [{Worker: {cpu: 1}}]", "unknown field"),
        ("candidates: [{Worker: {requests: {cpu: lots}}}]", "quantity"),
        ("history: true\nseconds: 0", "must be greater than or equal to 1"),
    ],
)
def test_mistakes_have_their_place(tune, told):
    with pytest.raises(JobFileError) as caught:
        files(tune)
    assert told in f"{caught.value.message} {caught.value.hint}"
    assert caught.value.line == 1


def test_the_replicas_of_a_tuned_job_wait_for_its_control_vertex():
    graph = compile_jobs(files({"candidates": [{"worker": 100}]}), "j", "run-1", {})
    assert [(edge.src, edge.dst) for edge in graph.edges if edge.scheduling.event == "tuned"] == [
        ("tune", "ps"),
        ("tune", "worker"),
    ]
    assert graph.vertices["worker"].parallelism.hi >= 100
    assert not graph.vertices["tune"].controlled


# -------------------------------------------------------------------------------------------------------------- jobs


def test_a_tuned_job_has_numbers_and_requests():
    changed = tuned(job(resources={"limits": {"cpu": 1, "memory": "1Gi"}}), {"Worker": 3}, {"Worker": {"cpu": 2.0}})
    assert changed.replicas["Worker"].replicas == 3
    needs = requests_of(changed.replicas["Worker"].template)
    assert (needs.cpu, needs.memory) == (2.0, 1 << 30)
    assert requests_of(changed.replicas["PS"].template).cpu == 1


def test_the_fingerprint_is_that_of_the_work():
    tune = {"history": True}
    same = fingerprint_of(files(tune), ROOM)
    assert same
    assert fingerprint_of(files(tune, worker=7), ROOM) == same
    assert fingerprint_of(files(tune, resources={"limits": {"cpu": 1}}), ROOM) == same
    assert fingerprint_of(files(tune, command="false"), ROOM) != same
    assert fingerprint_of(files(tune, name="other"), ROOM) != same
    assert fingerprint_of(files({"history": True, "candidates": [{"Worker": 1}]}), ROOM) != same
    assert fingerprint_of(files(tune), (8, *ROOM[1:])) != same


# -------------------------------------------------------------------------------------------------------- measurements


def test_history_requests_what_was_used_and_some_more():
    usage = {"Worker": {"cpu": 0.8, "memory": 300.0 * MIB}}
    found = from_history(job(resources={"requests": {"memory": "4Gi"}}), usage, 3)
    assert found.requests == {"Worker": {"cpu": pytest.approx(0.8 * HEADROOM), "memory": 300 * MIB * HEADROOM}}
    assert found.because == (
        "history of 3 runs: Worker cpu 1 in place of 0 (used 0.8), "
        "Worker memory 375 MiB in place of 4,096 MiB (used 300 MiB)"
    )


def test_history_keeps_to_bounds():
    usage = {"Worker": {"cpu": 0.001, "memory": 3000.0 * MIB}}
    found = from_history(job(resources={"limits": {"memory": "1Gi"}}), usage, 1)
    assert found.requests["Worker"] == {"cpu": LEAST["cpu"], "memory": 1 << 30}
    assert from_history(job(), {}, 0).requests == {}


def reports(*steps, metric=None):
    return [
        {"step": step, "time": at, "metrics": {"images": metric} if metric else {}} for at, step in enumerate(steps)
    ]


def test_the_rate_of_a_trial_is_the_sum_over_its_replicas():
    assert rate_of([reports(0, 10, 20), reports(0, 5), []], "") == (15.0, "steps/s")
    assert rate_of([reports(0, 1, metric=7), reports(1, metric=3)], "images") == (10.0, "images")
    assert rate_of([reports(3), reports(5, 5), [{"metrics": {}}]], "") == (None, "")
    assert rate_of([reports(0, 1)], "images") == (None, "")


def measured(*rates):
    return [
        TrialMeasure(Candidate(replicas={"Worker": at}), rate, "steps/s", "" if rate else "it broke")
        for at, rate in enumerate(rates, 1)
    ]


def test_the_first_of_the_candidates_that_are_as_good_is_taken():
    assert best_of(measured(10.0, 19.5, 20.0)).replicas == {"Worker": 2}
    found = best_of(measured(10.0, None, 2000.0))
    assert found.replicas == {"Worker": 3}
    told = "Worker 1: 10 steps/s, Worker 2: it broke, Worker 3: 2,000 steps/s"
    assert found.because == f"trials: Worker 3 is the best ({told})"


def test_without_a_measure_the_file_decides():
    found = best_of(measured(None, None))
    assert (found.replicas, found.requests) == ({}, {})
    assert found.because == "no trial has measured anything, the file decides (Worker 1: it broke, Worker 2: it broke)"


def test_reports_without_a_time_count_from_the_look_that_saw_them_first():
    trial = DryRun(None, job(), Path(), {"ps": "", "worker": ""})  # type: ignore[arg-type]  # it only keeps times here
    lines = [{"step": 0, "metrics": {}}, {"step": 2, "metrics": {}}]
    assert rate_of([trial.timed(("Worker", 0), lines[:1], 10.0)], "") == (None, "")
    assert rate_of([trial.timed(("Worker", 0), lines, 12.0)], "") == (1.0, "steps/s")
    assert rate_of([trial.timed(("Worker", 0), lines, 99.0)], "") == (1.0, "steps/s")
    assert trial.timed(("Worker", 1), [{"step": 0, "time": 3.0}], 10.0) == [{"step": 0, "time": 3.0}]
