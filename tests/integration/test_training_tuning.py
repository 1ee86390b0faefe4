"""Training jobs whose control vertex decides: by trials, by the history of earlier runs."""

import json
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.integration.places import RUN, until
from tests.integration.test_training import Place, place, replica, tfjob
from tests.integration.test_training_kinds import job
from weft import training
from weft.store.state import read_status

__all__ = ["place"]

PROGRAM = """
import json, os, sys, time
from pathlib import Path
from weft.training import checkpoint_dir, report

config = json.loads(os.environ["TF_CONFIG"])
count, index = len(config["cluster"]["worker"]), config["task"]["index"]
trial = os.environ.get("WEFT_TRIAL") == "1"
(checkpoint_dir() / f"worker-{index}").touch()
print("worker", index, "of", count, "in a trial" if trial else "", flush=True)
with open("starts", "a") as starts:
    starts.write(f"{'trial' if trial else 'job'} {count} {index}\\n")
if index == 0:
    report(step=1, score={1: 10, 2: 50, 3: 30}[count])
{more}
"""
"""A stand-in for a program whose speed depends on the number of workers: two are the best."""
THREE: Any = {"measure": "score", "seconds": 60, "candidates": [{"Worker": 1}, {"Worker": 2}, {"Worker": 3}]}


def write(place: Place, tune: dict[str, Any] | None, more: str = "", **pod: Any) -> None:
    (place.folder / "train.py").write_text(PROGRAM.replace("{more}", more))
    worker = replica(f"exec {sys.executable} train.py", 1, **pod)
    made = tfjob(name="j", all_workers=True, PS=replica("exec sleep 600"), Worker=worker)
    if tune is not None:
        made["metadata"]["annotations"] = {"weft.dev/tune": json.dumps(tune)}
    place.job(made)


def starts(place: Place) -> list[str]:
    return sorted(set((place.folder / "starts").read_text().splitlines()))


def tuned_event(place: Place, run: str = RUN) -> str:
    (job,) = read_status(place.folder_of(run))
    return str(next(event[3] for event in job["events"] if event[2] == "Tuned"))


def test_the_best_candidate_of_a_trial_is_taken_and_remembered(place):
    write(place, {**THREE, "history": True}, "time.sleep(0.4)")  # two that compute all the time need three cores
    code, _, err = place.run()
    assert code == 0, err
    told = "trials: Worker 2 is the best (Worker 1: 10 score, Worker 2: 50 score, Worker 3: 30 score)"
    assert f"TFJob j tuned: {told}" in err
    assert tuned_event(place) == told
    assert starts(place) == [
        "job 2 0",
        "job 2 1",
        *(f"trial {count} {index}" for count in (1, 2, 3) for index in range(count)),
    ]
    folder = place.folder_of()
    assert sorted(path.name for path in (folder / "checkpoints" / "j").iterdir()) == ["worker-0", "worker-1"]
    left = [path.name for trial in (folder / "trials").iterdir() for path in trial.iterdir()]
    assert sorted(set(left)) == ["logs", "metrics"]
    assert "in a trial" not in place.log("worker")
    assert "worker 2 of 3 in a trial" in (folder / "trials" / "3" / "logs" / "worker.2.0.log").read_text()

    code, explained, _ = place.weft("explain", RUN)
    assert "(seen: candidate 2 of 3: Worker 2)" in explained
    assert "request 'tune' of the controller" in explained
    assert "Worker 3: 30 score)" in explained

    (place.folder / "starts").unlink()
    code, _out, err = place.run()
    assert code == 0, err
    assert starts(place) == ["job 2 0", "job 2 1"], "the second run needs no trials"
    assert tuned_event(place, "run-000002").startswith("Worker 2 as in the last run, by its trials; history of 1 run: ")
    code, explained, _ = place.weft("explain", "run-000002")
    assert "worker: control vertex tune decides: its tasks ask for cpu" in explained
    assert "(seen: history of 1 run: Worker cpu " in explained


def test_history_alone_sets_requests_and_never_above_the_limit(place):
    more = "held = b'x' * (100 << 20)"
    write(place, {"history": True}, more, resources=None)
    assert place.run()[0] == 0
    assert tuned_event(place) == "no earlier run of this job is known: the file decides"
    assert place.run()[0] == 0
    chosen = json.loads((place.folder_of("run-000002") / "tuning.json").read_text())["j"]
    assert 100 << 20 < chosen["requests"]["Worker"]["memory"] < 400 << 20
    assert chosen["requests"]["PS"]["memory"] == 64 << 20, "the least"
    assert chosen["replicas"] == {}


def test_a_job_that_does_not_ask_has_no_trials_and_no_history(place):
    write(place, None)
    assert place.run()[0] == 0
    assert place.run()[0] == 0
    assert starts(place) == ["job 1 0"]
    assert not (place.folder_of("run-000002") / "tuning.json").exists()
    assert "tune" not in place.weft("explain", "run-000002")[1]


def test_candidates_that_fail_or_are_too_large_are_left_out(place):
    large = {"Worker": {"replicas": 2, "requests": {"cpu": 100_000}}}
    write(place, {**THREE, "candidates": [large, {"Worker": 2}, {"Worker": 1}]}, "sys.exit(3 if count == 2 else 0)")
    code, _, err = place.run()
    assert code == 0, err
    told = tuned_event(place)
    assert told.startswith("trials: Worker 1 is the best (Worker 2, cpu 1e+05: too large, it needs ")
    assert "j-worker-" in told
    assert "exit code 3" in told


def test_the_file_decides_if_nothing_was_measured(place):
    write(place, {"candidates": [{"Worker": 2}], "measure": "speed", "seconds": 60})
    assert place.run()[0] == 0
    assert tuned_event(place) == (
        "no trial has measured anything, the file decides (Worker 2: no replica reported speed)"
    )
    assert [line for line in starts(place) if "job" in line] == ["job 1 0"]


def test_a_cancelled_trial_leaves_nothing(place):
    write(place, THREE, "time.sleep(600 if trial else 0)")
    process = place.start()
    until(lambda: (place.folder / "starts").exists())
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=180)
    assert process.returncode != 0
    until(lambda: not place.alive(), "the end of all replicas")
    assert [line for line in starts(place) if "job" in line] == []


@pytest.mark.parametrize("when", ["trial", "job"])
def test_a_killed_run_goes_on_and_keeps_its_choice(place, when):
    """In a trial it is tuned again; afterwards its choice counts, without trials."""
    write(place, THREE, f"while {when == 'trial'} == trial and not os.path.exists('go'): time.sleep(0.01)")
    process = place.start()
    until(lambda: (place.folder / "starts").exists() and any(when in line for line in starts(place)))
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=180)
    (place.folder / "starts").unlink()
    (place.folder / "go").touch()
    code, _, err = place.weft("resume", RUN)
    assert code == 0, err
    assert "job 2 1" in starts(place)
    assert "job 3 2" not in starts(place)
    assert any("trial" in line for line in starts(place)) == (when == "trial")
    assert "Worker 2 is the best" in tuned_event(place)
    until(lambda: not place.alive(), "the end of all replicas")


def test_a_resumed_job_of_mpi_has_the_workers_that_were_chosen(place):
    count = 'wc -l < "$OMPI_MCA_orte_default_hostfile" >> counts; test -n "$WEFT_TRIAL" || test -e go'
    worker = replica("unused", 1)
    del worker["template"]["spec"]["containers"][0]["command"]
    made = job("MPIJob", Launcher=replica(count), Worker=worker)
    tune = {"candidates": [{"Worker": 2}], "seconds": 60}
    made["metadata"]["annotations"] = {"weft.dev/tune": json.dumps(tune)}
    place.job(made)
    assert place.run()[0] != 0
    assert (place.folder / "counts").read_text().split() == ["2", "2"]
    (place.folder / "go").touch()
    code, _, err = place.weft("resume", RUN)
    assert code == 0, err
    assert (place.folder / "counts").read_text().split() == ["2", "2", "2"]


def test_python_jobs_are_tuned_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def train():
        import json
        import os

        from weft import training

        count = len(json.loads(os.environ["TF_CONFIG"])["cluster"]["worker"])
        training.report(score=1 / count)
        return count

    monkeypatch.chdir(tmp_path)
    tune = {"candidates": [{"worker": 2}, {"worker": 1}], "measure": "score"}
    result = training.job(name="j", worker=3, tune=tune).run(train, state_dir=".weft")
    assert result.succeeded
    assert set(result.values.values()) == {2}, "the rates of two workers add up to that of one: the first is taken"


def test_the_example_is_tuned(place):
    example = Path(__file__).parents[2] / "examples" / "training" / "tuned" / "tfjob.yaml"
    code, _, err = place.weft("run", str(example), "--state-dir", str(place.folder / ".weft"))
    assert code == 0, err
    told = tuned_event(place)
    assert told.startswith("trials: Worker ")
    assert told.count("steps/s") == 3
