"""Tuned training jobs whose trials and replicas run at the nodes of a cluster, without Ray."""

import json
import os
import sys

import psutil

import weft
from tests.integration.places import until
from tests.integration.test_cluster_training import HOSTS, Jobs, make, mpi_job
from tests.integration.test_training import replica, tfjob
from tests.integration.test_training_tuning import THREE, starts, tuned_event, write

__all__ = ["make"]


def hosts_of(place: Jobs, trial: str) -> set[str]:
    """Return the machines of the workers of a trial, as the last one of them was told."""
    folder = place.folder_of() / "trials" / trial / "logs"
    log = max(folder.glob("worker.*.log")).read_text()
    config = json.loads(next(line for line in log.splitlines() if line.startswith("{")))
    return {address.partition(":")[0] for address in config["cluster"]["worker"]}


def test_trials_run_at_the_nodes_and_the_best_candidate_is_taken_and_remembered(make):
    place = make(2, 2)
    candidates = [*THREE["candidates"], {"Worker": 9}]
    more = "print(os.environ['TF_CONFIG'], flush=True); time.sleep(1)"  # what it uses fits at the nodes then
    write(place, {**THREE, "candidates": candidates, "history": True}, more)
    assert place.to_end().error is None
    told = tuned_event(place)
    assert "trials: Worker 2 is the best (Worker 1: 10 score, Worker 2: 50 score, Worker 3: 30 score" in told
    assert "Worker 9: too large, it needs 10 slots at once; the session has 4)" in told
    assert starts(place) == [
        "job 2 0",
        "job 2 1",
        *(f"trial {count} {index}" for count in (1, 2, 3) for index in range(count)),
    ]
    assert hosts_of(place, "3") == set(HOSTS[:2])
    folder = place.folder_of()
    assert sorted(path.name for path in (folder / "checkpoints" / "j").iterdir()) == ["worker-0", "worker-1"]
    left = [path.name for trial in (folder / "trials").iterdir() for path in trial.iterdir()]
    assert sorted(set(left)) == ["logs", "metrics"]
    assert place.alive() == []

    (place.folder / "starts").unlink()
    again = make(2, 2)
    assert again.to_end().error is None
    assert starts(place) == ["job 2 0", "job 2 1"], "the second run needs no trials"
    assert tuned_event(place, "run-000002").startswith("Worker 2 as in the last run, by its trials; history of 1 run: ")


def test_a_candidate_that_fails_is_left_out_and_its_other_replicas_end(make):
    place = make(2, 2)
    more = "if count == 2 and trial: sys.exit(3) if index else time.sleep(600)"
    write(place, {**THREE, "candidates": [{"Worker": 2}, {"Worker": 1}]}, more)
    assert place.to_end().error is None
    told = tuned_event(place)
    assert "Worker 1 is the best (Worker 2: Worker 1 failed: " in told
    assert "exit code 3" in told
    assert place.alive() == []


def test_a_candidate_that_needs_too_much_of_one_machine_is_left_out(make):
    place = make(2, 2)
    large = {"Worker": {"replicas": 1, "requests": {"cpu": 3}}}
    write(place, {**THREE, "candidates": [large, {"Worker": 2}]})
    assert place.to_end().error is None
    assert "cpu 3: too large, worker asks for cpu 3 for one task; no node has that much" in tuned_event(place)


def test_a_trial_whose_machine_is_lost_fails_and_the_job_is_tuned_all_the_same(make):
    place = make(3)
    note = "open('pid', 'w').write(str(os.getpid()))\n"
    waiting = "while trial and count == 1: time.sleep(0.01)"
    write(place, {**THREE, "candidates": [{"Worker": 1}, {"Worker": 2}]}, note + waiting)
    pid = place.folder / "pid"
    with place.begun():
        worker = until(lambda: pid.exists() and pid.read_text(), "the worker in its trial")
        parents = psutil.Process(int(worker)).parents()
        next(one for one in place.nodes.processes if psutil.Process(one.pid) in parents).kill()
    assert place.result.error is None, place.result.error
    told = tuned_event(place)
    assert "was lost with its machine or process, Worker 2: too large, it needs 3 slots at once" in told
    assert [line for line in starts(place) if "job" in line] == ["job 1 0"], "the file decides"


def test_a_cancelled_trial_leaves_nothing(make):
    place = make(2, 2)
    write(place, THREE, "time.sleep(600 if trial else 0)")
    with place.begun() as active:
        until(lambda: (place.folder / "starts").exists(), "the trial")
        active.cancel()
    until(lambda: not place.alive(), "the end of all replicas")
    assert [line for line in starts(place) if "job" in line] == []


def test_the_launcher_of_mpi_knows_the_workers_of_the_candidate_and_then_those_of_the_choice(make):
    place = make(2, 2)
    job = mpi_job('wc -l < "$OMPI_MCA_orte_default_hostfile" | tee -a counts', workers=1)
    job["metadata"]["annotations"] = {"weft.dev/tune": json.dumps({"candidates": [{"Worker": 2}], "seconds": 60})}
    place.job(job)
    assert place.to_end().error is None, place.log("launcher", 0)
    assert (place.folder / "counts").read_text() == "2\n2\n"


def test_each_replica_of_a_trial_gets_the_gpus_of_its_candidate(make, monkeypatch, tmp_path):
    program = tmp_path / "bin" / "nvidia-smi"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho 0, GPU-0abc, Fake H1\necho 1, GPU-1abc, Fake H1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    place = make(1, 2)
    place.nodes.nodes = [one._replace(resources=weft.Resources(2, gpu=2)) for one in place.nodes.nodes]
    job = tfjob(Worker=replica(f"exec {sys.executable} -c 'import os; print(os.environ[\"CUDA_VISIBLE_DEVICES\"])'"))
    tune = {"candidates": [{"Worker": {"requests": {"gpu": 2}}}, {"Worker": {"requests": {"gpu": 4}}}]}
    job["metadata"]["annotations"] = {"weft.dev/tune": json.dumps(tune)}
    place.job(job)
    assert place.to_end().error is None
    assert "no node has that much" in tuned_event(place)
    assert place.log("worker") == "0,1\n"
    assert (place.folder_of() / "trials" / "1" / "logs" / "worker.0.0.log").read_text() == "0,1\n"
