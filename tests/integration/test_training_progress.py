"""What replicas tell of their progress, over real processes: reports, and scalars in event files of TensorBoard."""

import os
import sys
from typing import Any

import pytest

from tests.fixtures.event_files import event, first
from tests.integration.places import RUN, until
from tests.integration.test_training import Place, replica, tfjob
from weft.operators.network import Isolation, best_isolation
from weft.store.state import read_status

EVENTS = "events.out.tfevents.1700000000.$HOSTNAME.2.0"
ISOLATIONS = [
    "ports",
    pytest.param(
        "namespace",
        marks=pytest.mark.skipif(best_isolation()[0] is not Isolation.NAMESPACE, reason="no namespaces here"),
    ),
]


@pytest.fixture
def place(tmp_path) -> Place:
    found = Place(tmp_path)
    (tmp_path / "events").write_bytes(first() + event("loss", 0.5, 3) + event("acc", 0.25, 4))
    return found


def reports(place: Place) -> dict[str, Any]:
    return {name: one for job in read_status(place.folder_of()) for name, one in job["reports"].items()}


def writes(folder: str, then: str = "") -> str:
    return f"mkdir -p {folder} && cp events {folder}/{EVENTS}; {then}"


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_scalars_are_reports_while_the_job_runs_and_after_it(place, isolation):
    waits = "while ! test -e go; do sleep 0.05; done"
    place.job(tfjob(Worker=replica(writes("$TENSORBOARD_LOGDIR/train", waits), 2)))
    process = place.start("run", "run.yaml", "--isolation", isolation)
    until(lambda: place.folder_of().exists() and len(reports(place)) == 2)
    assert reports(place)["worker-1"] == {"time": 1.0, "step": 4, "metrics": {"loss": 0.5, "acc": 0.25}}
    _, shown, _ = place.weft("show", RUN)
    assert "step 4, loss 0.5, acc 0.25" in shown
    (place.folder / "go").touch()
    process.communicate()
    assert process.returncode == 0
    assert set(reports(place)) == {"worker-0", "worker-1"}


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_event_files_are_found_where_programs_write_them(place, isolation):
    """In a claim, an empty folder of the pod, an option, the checkpoints, and the working folder."""
    inside = isolation == "namespace"
    mounts = [{"name": "claim", "mountPath": "/train"}, {"name": "empty", "mountPath": "/scratch"}] if inside else []
    volumes = [
        {"name": "claim", "persistentVolumeClaim": {"claimName": "data"}},
        {"name": "empty", "emptyDir": {}},
    ]
    folders = ["$WEFT_CHECKPOINT_DIR/logs", "runs/first", *(["/train/logs", "/scratch/logs"] if inside else [])]
    away = place.folder.parent / f"{place.folder.name}-away"
    commands = [*map(writes, folders), f'mkdir -p {away}; cp events {away}/{EVENTS}; echo "$@"']
    jobs = []
    for at, command in enumerate(commands):
        one = replica(command, volumes=volumes)
        container = one["template"]["spec"]["containers"][0]
        container |= {"volumeMounts": mounts, "args": ["train", f"--log_dir={away}"] if str(away) in command else []}
        jobs.append(tfjob(name=f"job{at}", Worker=one))
    place.job(*jobs)
    code, out, err = place.run("--isolation", isolation)
    assert code == 0, out + err
    assert {name: one["metrics"] for name, one in reports(place).items()} == {
        f"job{at}.worker-0": {"loss": 0.5, "acc": 0.25} for at in range(len(commands))
    }


def test_event_files_of_other_runs_and_damaged_ones_tell_nothing(place):
    old = place.folder / "runs" / "events.out.tfevents.1600000000.host.2.0"
    old.parent.mkdir()
    old.write_bytes(event("old", 1, 1))
    os.utime(old, (1, 1))
    place.job(tfjob(Worker=replica(f"mkdir -p $TENSORBOARD_LOGDIR; head -c 2000 /dev/urandom > runs/{EVENTS}")))
    code, out, err = place.run()
    assert code == 0, out + err
    assert reports(place) == {}


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_reports_come_from_children_too_and_lines_of_any_program_are_checked(place, isolation):
    child = "from weft.training import report; report(step=1); report(step=2, loss=float('nan'))"
    lines = (
        r"""printf '%s\n' '{"step":1,"metrics":{}}' '{"step":9,"metrics":{"a":NaN}}' '[' '{"half' >> $WEFT_METRICS"""
    )
    place.job(
        tfjob(name="child", Worker=replica(f"({sys.executable} -S child.py)")),
        tfjob(name="lines", Worker=replica(lines)),
    )
    (place.folder / "child.py").write_text(child)
    code, out, err = place.run("--isolation", isolation)
    assert code == 0, out + err
    found = reports(place)
    assert (found["child.worker-0"]["step"], found["child.worker-0"]["metrics"]) == (2, {"loss": "nan"})
    assert found["lines.worker-0"] == {"step": 9, "metrics": {"a": "nan"}}
    code, shown, _ = place.weft("show", RUN, "--json")
    assert code == 0
    assert "NaN" not in shown


def test_a_resume_goes_on_with_the_reports(place):
    first_start = f"test -e once || {{ touch once; {writes('$TENSORBOARD_LOGDIR')} sleep 600; }}"
    program = f"{sys.executable} -S -c 'from weft.training import report; report(step=8)'"
    place.job(tfjob(Worker=replica(f"{first_start}; {program}")))
    process = place.start("run", "run.yaml")
    until(lambda: place.folder_of().exists() and reports(place))
    place.weft("suspend", RUN)
    process.communicate()
    code, out, err = place.weft("resume", RUN)
    assert code == 0, out + err
    assert reports(place)["worker-0"]["step"] == 8
    assert reports(place)["worker-0"]["metrics"] == {"loss": 0.5, "acc": 0.25}
