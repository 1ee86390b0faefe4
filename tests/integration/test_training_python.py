"""Training jobs from Python: functions and commands in replicas, what they report and return."""

import os
import sys
import warnings
from pathlib import Path

import pytest

import weft
from tests.integration.places import until
from weft import training
from weft.runs.reading import read_run


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(job, *args, **named):
    return job.run(*args, state_dir=".weft", **named)


def test_a_function_runs_in_each_replica_and_its_values_come_back(folder):
    def train(rate, scale=1):
        import json
        import os

        from weft import training

        task = json.loads(os.environ["TF_CONFIG"])["task"]
        training.report(step=7, progress=0.5, loss=0.25)
        (training.checkpoint_dir() / f"{task['type']}-{task['index']}").touch()
        print("hello from", task["type"])
        return task["type"], task["index"] * rate * scale

    result = run(training.job(chief=1, worker=2), train, 10, scale=2)
    assert result.succeeded
    assert list(result.conditions) == ["job"]
    assert {"Running": "False"} | result.conditions["job"] == {
        "Created": "True",
        "Running": "False",
        "Succeeded": "True",
    }
    assert result.replicas["chief-0"].log == "hello from chief\n"
    assert result.replicas["chief-0"].report["metrics"] == {"loss": 0.25}
    assert result.values["chief-0"] == ("chief", 0)
    assert result.values.get("worker-1", ("worker", 20)) == ("worker", 20)  # the end of the chief ends the workers
    assert "chief-0" in os.listdir(result.checkpoints["job"])


def test_a_command_is_text_or_words():
    job = training.job("JAXJob", worker=1)
    assert run(job, "echo $PROCESS_ID").replicas["worker-0"].log == "0\n"
    assert run(job, ["echo", "two words"]).replicas["worker-0"].log == "two words\n"


def test_an_error_of_a_function_is_raised_with_its_last_lines():
    def train():
        raise ValueError("no data here")

    job = training.job(worker=1)
    with pytest.raises(weft.TaskError, match="no data here"):
        run(job, train)
    result = run(job, train, check=False)
    assert (result.state, result.replicas["worker-0"].exit_code) == ("failed", 1)
    assert isinstance(result.error, weft.TaskError)


def test_a_replica_that_failed_though_its_job_succeeded_is_warned_of(folder):
    def train():
        import os
        import time
        from pathlib import Path

        if "worker" in os.environ["WEFT_REPLICA"]:
            Path("failed").touch()
            raise ValueError("no data here")
        while not Path("failed").exists():
            time.sleep(0.05)

    job = training.job("PyTorchJob", master=1, worker={"replicas": 1, "restart": "OnFailure"})
    with pytest.warns(RuntimeWarning, match="worker-0 failed: .*no data here") as found:
        result = run(job, train)
    assert result.succeeded
    assert found[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert run(job, train, check=False).succeeded


def test_a_restart_sees_the_checkpoint_of_the_start_before(folder):
    def train():
        import os

        from weft import training

        found = [path.name for path in training.checkpoint_dir().iterdir()]
        if not training.resumed():
            (training.checkpoint_dir() / "model").touch()
            os._exit(1)
        return found, os.environ["WEFT_RESTARTS"]

    assert run(training.job(worker=1, restart="OnFailure"), train).values == {"worker-0": (["model"], "1")}


def test_a_run_is_suspended_resumed_and_scaled(folder):
    command = "echo start >> starts; while ! test -e go; do sleep 0.05; done; echo done"
    begun = training.job("JAXJob", worker=1, grace_s=1).submit(command, state_dir=".weft")
    starts = folder / "starts"
    until(lambda: starts.exists() and begun.conditions.get("job", {}).get("Running") == "True")
    begun.suspend()
    assert begun.wait().state == "suspended"
    with pytest.raises(weft.ConflictError, match="is suspended already"):
        begun.scale(worker=2)
    begun.resume()
    until(lambda: len(starts.read_text().split()) == 2)
    begun.scale(worker=2)
    until(lambda: len(starts.read_text().split()) == 3)
    (folder / "go").touch()
    result = begun.wait()
    assert result.succeeded
    assert sorted(result.replicas) == ["worker-0", "worker-1"]
    assert begun.logs("worker-1") == "done\n"
    with pytest.raises(weft.NotFoundError, match="no replica"):
        begun.logs("worker-7")
    with pytest.raises(weft.ConflictError, match="has ended already: succeeded"):
        begun.scale(worker=1)
    with pytest.raises(weft.ConflictError, match="has ended already: succeeded"):
        begun.suspend()


def test_a_cancel_ends_the_run(folder):
    begun = training.job(worker=1, grace_s=1).submit("touch there; sleep 600", state_dir=".weft")
    until((folder / "there").exists)
    begun.cancel()
    with pytest.raises(weft.RunCancelledError):
        begun.wait()
    assert begun.state == "terminated"


def test_a_job_of_a_file_runs_with_its_own_command_or_another(folder):
    training.job(worker=1, name="own", command="echo own").to_yaml("job.yaml")
    job = training.load("job.yaml")
    assert run(job).replicas["worker-0"].log == "own\n"
    assert run(job, "echo other").replicas["worker-0"].log == "other\n"
    assert read_run(folder / ".weft" / "runs" / "run-000001").name == "own"


def test_reports_show_while_the_job_runs(folder):
    """The program runs with a Python that has none of the packages of Weft."""
    program = folder / "train.py"
    program.write_text(
        "import os, time\nfrom weft.training import report\nreport(step=5, progress=0.2, loss=0.5)\n"
        "while not os.path.exists('go'): time.sleep(0.05)\n"
    )
    begun = training.job("TrainJob", node=1, runtime="plain").submit(
        [sys.executable, "-S", str(program)], state_dir=".weft"
    )
    until(lambda: any(one.report.get("step") == 5 for one in begun.replicas.values()))
    from weft.store.state import read_status

    (job,) = read_status(begun.folder)
    assert job["status"]["trainerStatus"]["progressPercentage"] == 20
    assert job["status"]["trainerStatus"]["metrics"] == [{"name": "loss", "value": "0.5"}]
    (folder / "go").touch()
    assert begun.wait().succeeded
