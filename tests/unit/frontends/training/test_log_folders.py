"""The log folders of replicas: which files are theirs, and what the run reports of them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fixtures.event_files import event, first
from weft.frontends.training.log_folders import LogFolders, LogPlace, option_folders
from weft.frontends.training.metrics import MetricsReader
from weft.operators.tensorboard import FOLDER

NAME = "events.out.tfevents.1700000000.{}.{}.0"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    (folder / "metrics").mkdir(parents=True)
    (folder / "run.json").touch()
    return folder


@pytest.fixture
def logs(run: Path) -> LogFolders:
    return LogFolders(run, lambda key: key)


def write(folder: Path, *events: bytes, host: str = "here", pid: int = 0) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / NAME.format(host, pid)
    with path.open("ab") as file:
        file.write(b"".join(events))
    return path


def latest(run: Path):
    reader = MetricsReader(run)
    reader.look()
    return reader.latest


def test_the_scalars_of_a_replica_are_its_report(run, logs):
    own = run / FOLDER / "worker-0"
    logs.add(("worker", 0), "job-worker-0", [LogPlace(str(own), own=True)])
    logs.look(last=True)
    write(own / "train", first(), event("loss", 0.5, 1, at=5.0))
    logs.look(last=True)
    assert latest(run) == {("worker", 0): {"time": 5.0, "step": 1, "metrics": {"loss": 0.5}}}
    write(own / "train", event("loss", 0.1, 2, at=6.0))
    write(own / "validation", event("loss", float("nan"), 2, at=7.0))
    logs.look(last=True)
    report = latest(run)["worker", 0]
    assert (report["step"], report["metrics"]) == (2, {"train/loss": 0.1, "validation/loss": "nan"})


def test_a_program_s_own_reports_go_before_its_scalars(run, logs):
    own = run / FOLDER / "worker-0"
    logs.add(("worker", 0), "w", [LogPlace(str(own), own=True)])
    write(own, event("loss", 0.5, 1), event("lr", 0.25, 1))
    (run / "metrics" / "worker.0.jsonl").write_text('{"time":9,"step":7,"metrics":{"loss":0.75}}\n')
    logs.look(last=True)
    assert latest(run)["worker", 0] == {"time": 9, "step": 7, "metrics": {"loss": 0.75, "lr": 0.25}}


def test_a_shared_folder_has_files_of_several_replicas_and_of_earlier_runs(run, logs, tmp_path):
    shared = tmp_path / "shared"
    old = write(shared / "old", event("loss", 9, 9))
    os.utime(old, (1, 1))
    for index in range(2):
        logs.add(("worker", index), f"job-worker-{index}", [LogPlace(str(shared))])
    write(shared, event("loss", 1, 1), host="job-worker-1", pid=2)
    write(shared, event("loss", 2, 2), host="laptop", pid=0)
    logs.look(last=True)
    assert {key: one["metrics"] for key, one in latest(run).items()} == {
        ("worker", 0): {"loss": 2},
        ("worker", 1): {"loss": 1},
    }
    linked = run / FOLDER / "worker-1" / NAME.format("job-worker-1", 2)
    assert linked.resolve() == shared / NAME.format("job-worker-1", 2)


def test_the_process_that_a_name_tells_belongs_to_its_replica(run, logs, tmp_path):
    for index in range(2):
        logs.add(("worker", index), f"job-worker-{index}", [LogPlace(str(tmp_path / "shared"))])
    words = [sys.executable, "-c", "print(flush=True); input()"]
    env = {"WEFT_REPLICA": "job-worker-1"}
    with subprocess.Popen(words, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as program:
        assert program.stdout is not None
        program.stdout.readline()
        write(tmp_path / "shared", event("loss", 1, 1), host="laptop", pid=program.pid)
        logs.look(last=True)
        program.communicate(b"\n")
    if sys.platform == "linux":
        assert list(latest(run)) == [("worker", 1)]


def test_values_of_an_earlier_owner_stay(run, tmp_path):
    (run / "metrics" / "worker.0.tensorboard.jsonl").write_text('{"time":1,"step":1,"metrics":{"acc":0.5}}\n')
    logs = LogFolders(run, lambda key: key)
    own = run / FOLDER / "worker-0"
    logs.add(("worker", 0), "w", [LogPlace(str(own), own=True)])
    write(own, event("loss", 1, 2))
    logs.look(last=True)
    assert latest(run)["worker", 0]["metrics"] == {"acc": 0.5, "loss": 1}


def test_folders_that_end_with_the_replica_are_read_before(run, logs, tmp_path):
    pod = tmp_path / "pod"
    logs.add(("worker", 0), "w", [LogPlace(str(pod), own=True)])
    write(pod / "logs", event("loss", 1, 1))
    logs.collect(("worker", 0))
    assert latest(run)["worker", 0]["metrics"] == {"loss": 1}


def test_hidden_folders_links_and_many_files_are_left_out(run, logs, tmp_path):
    place = tmp_path / "place"
    write(place / ".hidden", event("a", 1, 1))
    write(tmp_path / "beyond", event("b", 1, 1))
    (place / "link").symlink_to(tmp_path / "beyond")
    write(place / "a/b/c/d/e/f/g", event("c", 1, 1))
    logs.add(("worker", 0), "w", [LogPlace(str(place))])
    logs.look(last=True)
    assert latest(run) == {}


def test_options_name_log_folders():
    words = "train.py --log_dir=/logs --logdir /other --data-dir=/data --log-dir --tensorboard-dir tb --epochs 3"
    assert list(option_folders(words.split())) == ["/logs", "/other", "tb"]
