"""`weft sweep`: runs over a grid of parameters, their ranking, early ends, and sweeps that go on after an interrupt."""

import json
import os
import shutil
import signal
from pathlib import Path

import pytest

from tests.integration.places import Commands, Project, until
from tests.integration.test_training import replica, tfjob
from weft.model.errors import NotFoundError
from weft.runs.sweep_files import own_sweep, read_plan
from weft.store.state import StateRoot

RUNS = """
name: tune
entry_points:
  train:
    command: test {{depth}} -ne {{bad}} && echo '{"loss":' {{lr}}{{depth}} '}' > {{scores}}
    parameters: {lr: 0.1, depth: {type: int, default: 1}, bad: 99}
    artifacts: {output: [scores]}
"""


@pytest.fixture
def weft(tmp_path, monkeypatch) -> Commands:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.yaml").write_text(RUNS)
    return Commands(tmp_path)


def test_a_grid_is_ranked_by_a_metric(weft):
    grid = ("sweep", "run.yaml", "-p", "lr=0.2,0.1", "-p", "depth=1..2", "--metric", "loss", "--tag", "mine")
    found = weft.json(*grid, "--at-a-time", "2")
    assert (found["schema"], found["sweep"], found["metric"], found["stopped"]) == (
        "weft.sweep/1",
        "sweep-000001",
        "loss",
        None,
    )
    ranked = [(point["parameters"]["lr"], point["parameters"]["depth"], point["metric"]) for point in found["points"]]
    assert ranked == [("0.1", "1", 0.11), ("0.1", "2", 0.12), ("0.2", "1", 0.21), ("0.2", "2", 0.22)]
    assert {point["state"] for point in found["points"]} == {"succeeded"}
    assert found["best"] == found["points"][0]["run"]
    rows = weft.json("ls", "--tag", "sweep=sweep-000001", "--tag", "mine")["runs"]
    assert sorted(row["tags"]["point"] for row in rows) == ["0", "1", "2", "3"]
    out, err = weft(*grid, "--maximize")
    assert "sweep-000002: 4 points" in err
    assert [line.split()[-3] for line in out.splitlines()[1:]] == ["0.22", "0.21", "0.12", "0.11"]
    assert out.splitlines()[0].split() == ["RUN", "STATE", "lr", "depth", "loss", "TIME", "MESSAGE"]


def test_a_metric_that_no_run_has_is_told_only_after_runs_that_succeeded(weft):
    assert "no run has the metric lss" in weft("sweep", "run.yaml", "-p", "lr=0.1,0.2", "--metric", "lss")[1]
    failed = weft("sweep", "run.yaml", "-p", "depth=99", "-p", "lr=0.1,0.2", "--metric", "loss", code=1)[1]
    assert "2 of 2 points have not succeeded" in failed
    assert "no run has the metric" not in failed


def test_metrics_that_differ_in_late_digits_look_different(weft):
    out, err = weft("sweep", "run.yaml", "-p", "lr=0.1234567,0.1234568", "--metric", "loss")
    assert [line.split()[-3] for line in out.splitlines()[1:]] == ["0.12345671", "0.12345681"]
    assert "succeeded, loss 0.12345681" in err


def test_a_sample_has_a_seed(weft):
    sample = ("sweep", "run.yaml", "-p", "depth=1..100", "--sample", "2")
    first = weft.json(*sample, "--seed", "5")
    assert [point["parameters"] for point in first["points"]] == [
        point["parameters"] for point in weft.json(*sample, "--seed", "5")["points"]
    ]
    _, err = weft("sweep", "run.yaml", "-p", "depth=1..98", "--sample", "2")
    assert "2 points, " in err
    assert ", chosen with seed " in err


def test_failed_points_are_told_and_run_again(weft):
    found = weft.json("sweep", "run.yaml", "-p", "depth=1..3", "-p", "bad=2", "--metric", "loss", code=1)
    assert [point["state"] for point in found["points"]] == ["succeeded", "succeeded", "failed"]
    assert "exit code 1" in found["points"][-1]["message"]
    again = weft.json("sweep", "--resume", "sweep-000001", code=1)
    assert [point["run"] for point in again["points"]] == [point["run"] for point in found["points"]]
    assert weft.json("ls")["total"] == 3
    assert "1 of 3 points have not succeeded" in weft("sweep", "--resume", "@last", code=1)[1]


def test_a_condition_ends_the_sweep(weft):
    grid = ("-p", "lr=0.3,0.1,0.2,0.4", "--at-a-time", "1")
    found = weft.json("sweep", "run.yaml", *grid, "--stop-when", "loss < 0.2")
    assert [point["state"] for point in found["points"]] == ["succeeded", "succeeded", "not started", "not started"]
    assert found["stopped"] == "run-000002 meets the condition loss < 0.2"
    assert weft.json("sweep", "--resume", "@last")["points"] == found["points"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("-p", "lr=0.1"), "no parameter has several values"),
        (("-p", "rl=0.1,0.2"), "rl"),
        (("-p", "depth=1,x"), "depth"),
        (("-p", "lr=1,2", "--halve", "epoch"), "needs the metric"),
        (("-p", "lr=1,2", "--stop-when", "loss"), "is not a condition"),
        (("-p", "lr=1,2", "--seed", "3"), "needs --sample"),
        (("-p", "lr=1,2", "--at-a-time", "-1"), "must be 0 or more"),
        (("-p", "lr=1,2", "--resume", "@last"), "give a pipeline, or the sweep"),
    ],
)
def test_wrong_sweeps_start_nothing(weft, words, told):
    _, err = weft("sweep", "run.yaml", *words, code=2)
    assert told in err
    assert not (weft.folder / ".weft" / "sweeps").exists()
    assert weft.json("ls")["total"] == 0


def test_sweeps_that_do_not_exist(weft):
    _, err = weft("sweep", "--resume", "@last", code=4)
    assert "Begin one: weft sweep" in err
    weft("sweep", code=2)


LIVE = """
name: live
entry_points:
  train:
    command: >-
      for epoch in 1 2 3 4 5 6; do
      echo '{"loss":' {{lr}}, '"epoch":' $epoch '}' > {{scores}}.new && mv {{scores}}.new {{scores}};
      test $epoch = 1 && touch began-{{lr}};
      until test -e go-{{lr}}-$epoch; do sleep 0.02; done; done
    parameters: {lr: 0.1}
    artifacts: {output: [scores]}
"""


def test_points_that_are_worse_while_they_run_are_dropped(weft):
    (weft.folder / "run.yaml").write_text(LIVE)
    for epoch in range(1, 7):  # the good one runs through, the bad one would never end
        (weft.folder / f"go-0.1-{epoch}").touch()
    found = weft.json(
        "sweep", "run.yaml", "-p", "lr=0.1,0.9", "--at-a-time", "1", "--metric", "loss", "--halve", "epoch"
    )
    good, bad = found["points"]
    assert (good["state"], good["dropped"], found["best"]) == ("succeeded", None, good["run"])
    assert (bad["state"], bad["dropped"], bad["message"]) == ("terminated", 1, "dropped at epoch 1")
    assert weft.json("show", bad["run"])["run"]["tags"]["dropped"] == "1"
    assert weft.json("sweep", "--resume", "@last")["points"] == found["points"]


def test_a_running_point_that_meets_the_condition_ends_the_others_alone(tmp_path):
    place = Project(tmp_path)
    place.file.write_text(LIVE)
    for epoch in range(1, 7):  # the bad one would never end
        (tmp_path / f"go-0.1-{epoch}").touch()
    (tmp_path / "go-0.1-6").unlink()
    process = place.start(
        "sweep", "run.yaml", "-p", "lr=0.9,0.1", "--at-a-time", "2", "--stop-when", "loss < 0.2", "--json"
    )
    try:
        until(lambda: all(place.folder_of(f"run-00000{number}").is_dir() for number in (1, 2)))
        until(lambda: "terminated" in {*place.states().values(), *place.states("run-000002").values()})
        (tmp_path / "go-0.1-6").touch()
        out, err = process.communicate(timeout=180)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 0, err
    found = json.loads(out)
    assert {point["parameters"]["lr"]: point["state"] for point in found["points"]} == {
        "0.1": "succeeded",
        "0.9": "terminated",
    }
    assert "meets the condition loss < 0.2" in found["stopped"]


def test_an_interrupted_sweep_goes_on(tmp_path):
    place = Project(tmp_path)
    place.file.write_text(LIVE)
    process = place.start("sweep", "run.yaml", "-p", "lr=1..3", "--at-a-time", "2")
    try:
        until(lambda: (tmp_path / "began-1").exists() and (tmp_path / "began-2").exists())
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=180)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 128 + signal.SIGINT, err
    assert "interrupted by SIGINT" in err
    assert "to go on: weft sweep --resume sweep-000001" in err
    assert sorted(line.split()[2] for line in out.splitlines()[1:]) == ["started", "terminated", "terminated"]
    for lr in range(1, 4):
        for epoch in range(1, 7):
            (tmp_path / f"go-{lr}-{epoch}").touch()
    code, told, err = place.weft("sweep", "--resume", "@last", "--metric", "loss", "--json")
    assert code == 0, err
    points = json.loads(told)["points"]
    assert [(point["state"], point["metric"]) for point in points] == [("succeeded", float(lr)) for lr in range(1, 4)]
    assert {point["message"] for point in points} == {""}
    assert len(os.listdir(Path(tmp_path, ".weft", "runs"))) == 3


def test_a_sweep_in_the_background_outlives_its_command_line_and_ends_by_a_signal(tmp_path):
    place = Project(tmp_path)
    place.file.write_text(LIVE)
    code, out, err = place.weft("sweep", "run.yaml", "-p", "lr=1..3", "--at-a-time", "2", "-d")
    assert (code, out) == (0, "sweep-000001\n"), err
    assert "weft ls --tag sweep=sweep-000001" in err
    pid = int(err.partition("end it: kill ")[2].partition(";")[0])
    until(lambda: (tmp_path / "began-1").exists() and (tmp_path / "began-2").exists())
    code, _, err = place.weft("sweep", "--resume", "@last")
    assert code == 7, err  # its process runs it
    os.kill(pid, signal.SIGTERM)
    log = Path(tmp_path, ".weft", "sweeps", "sweep-000001", "output.log")
    until(lambda: "to go on: weft sweep --resume sweep-000001" in log.read_text())
    until(lambda: not Path(f"/proc/{pid}").exists())
    for lr in range(1, 4):
        for epoch in range(1, 7):
            (tmp_path / f"go-{lr}-{epoch}").touch()
    code, out, err = place.weft("sweep", "--resume", "sweep-000001", "--detach", "--json")
    assert code == 0, err
    assert json.loads(out) == {"schema": "weft.started/1", "sweep": "sweep-000001"}
    until(lambda: log.read_text().endswith("\n}\n"))
    points = json.loads(log.read_text()[log.read_text().index("{") :])["points"]
    assert {point["state"] for point in points} == {"succeeded"}
    code, out, err = place.weft("sweep", "run.yaml", "-p", "nix=1,2", "-d")
    assert (code, out) == (2, ""), err
    assert "no parameter `nix`" in err


def stopped_by_a_condition(weft) -> None:
    """A sweep of two points, of which the second is not started; its condition can then not be met."""
    (weft.folder / "data").mkdir()
    weft("sweep", "run.yaml", "-p", "lr=0.1,0.2", "--at-a-time", "1", "--stop-when", "loss < 0.5", "-f", "data=data")
    plan = weft.folder / ".weft" / "sweeps" / "sweep-000001.json"
    plan.write_text(plan.read_text().replace("loss < 0.5", "loss < 0.0"))


def test_a_sweep_of_a_copied_and_of_a_moved_project_stays_in_it(weft, tmp_path, monkeypatch):
    project = tmp_path / "project"
    project.mkdir()
    shutil.move(tmp_path / "run.yaml", project)
    weft.folder = project
    monkeypatch.chdir(project)
    stopped_by_a_condition(weft)
    assert str(project) not in (project / ".weft" / "sweeps" / "sweep-000001.json").read_text()
    shutil.copytree(project, tmp_path / "copy", symlinks=True)
    weft.folder = tmp_path / "copy"
    monkeypatch.chdir(weft.folder)
    found = weft.json("sweep", "--resume", "@last")
    assert {point["state"] for point in found["points"]} == {"succeeded"}
    assert found["file"] == str(tmp_path / "copy" / "run.yaml")
    assert not list(project.rglob("run-000002"))
    assert list((tmp_path / "copy").rglob("run-000002"))
    project.rename(tmp_path / "moved")
    weft.folder = tmp_path / "moved"
    monkeypatch.chdir(weft.folder)
    weft("sweep", "--resume", "@last")


def test_a_sweep_has_one_owner(weft):
    stopped_by_a_condition(weft)
    lock = own_sweep(StateRoot(weft.folder / ".weft"), "sweep-000001")
    _, err = weft("sweep", "--resume", "@last", code=7)
    assert f"sweep-000001 is still run by process {os.getpid()} of " in err
    lock.release()
    weft("sweep", "--resume", "@last")
    weft("sweep", "--resume", "@last")


def test_a_sweep_has_one_text(weft):
    stopped_by_a_condition(weft)
    (weft.folder / "run.yaml").write_text(RUNS.replace("default: 1", "default: 2"))
    _, err = weft("sweep", "--resume", "@last", code=7)
    assert "run.yaml has changed since the sweep began" in err
    assert weft.json("ls")["total"] == 1
    (weft.folder / "run.yaml").write_text(RUNS)
    weft("sweep", "--resume", "@last")
    (weft.folder / "run.yaml").write_text("another text")
    weft("sweep", "--resume", "@last")


def test_a_text_that_changes_while_the_sweep_runs_begins_no_more_points(weft):
    text = RUNS.replace("test {{depth}}", f"echo '#' >> '{weft.folder}/run.yaml'; test {{{{depth}}}}")
    (weft.folder / "run.yaml").write_text(text)
    found = weft.json("sweep", "run.yaml", "-p", "lr=0.1,0.2", "--at-a-time", "1", code=1)
    assert [point["state"] for point in found["points"]] == ["succeeded", "not started"]
    assert "has changed since the sweep began" in found["stopped"]


@pytest.mark.parametrize(
    "words", [("-p", "lr=8,9"), ("-n", "x"), ("--sample", "2"), ("--halve", "epoch"), ("--tag", "a")]
)
def test_a_resume_refuses_what_it_would_ignore(weft, words):
    _, err = weft("sweep", "--resume", "@last", *words, code=2)
    assert "cannot be used with --resume" in err


def test_misspelt_metrics_are_told(weft):
    grid = ("sweep", "run.yaml", "-p", "lr=0.1,0.2", "--at-a-time", "1", "--metric", "loss")
    _, err = weft(*grid, "--halve", "epok", "--stop-when", "lose < 5")
    assert err.count("run-000001 has no metric epok; it has: loss") == 1
    assert err.count("run-000001 has no metric lose; Did you mean loss?") == 1
    _, err = weft(*grid, "--stop-when", "lose < 5", "--json")
    assert "has no metric lose" in err
    assert "has no metric" not in weft(*grid)[1]


def test_the_warnings_about_steps_are_those_of_a_run(weft):
    (weft.folder / "job.yaml").write_text(json.dumps(tfjob(Worker=replica("true"))))
    (weft.folder / "run.yaml").write_text("""
name: tune
entry_points:
  train:
    parameters: {queue: ""}
    x-weft: {kind: training, with: {file: job.yaml, queue: "{{queue}}"}}
""")
    for words in ((), ("--json",)):
        _, err = weft("sweep", "run.yaml", "-p", "queue=nightly,weekly", "--at-a-time", "1", *words)
        lines = [line for line in err.splitlines() if "is unknown" in line]
        assert len(lines) == 2, err
        assert lines[0].startswith("warning: step train: the queue nightly is unknown")
        assert lines[1].startswith("warning: step train: the queue weekly is unknown")
    _, err = weft("plan", "run.yaml", "-p", "queue=nightly")
    assert "warning: step train: the queue nightly is unknown" in err


def test_a_missing_secret_starts_nothing(weft):
    (weft.folder / "run.yaml").write_text(RUNS + "    env: {TOKEN: {secret: TOKEN_OF_NOBODY}}\n")
    _, err = weft("sweep", "run.yaml", "-p", "lr=0.1,0.2", code=2)
    assert "needs the secret TOKEN_OF_NOBODY" in err
    assert not (weft.folder / ".weft" / "sweeps").exists()


def test_the_error_for_a_wrong_sweep_says_how_many_there_are(tmp_path):
    root = StateRoot(tmp_path / "state")
    root.prepare()
    folder = root.path / "sweeps"
    folder.mkdir()
    for count, said in ((2, "There are: sweep-000001, sweep-000002"), (12, "The last 10 of 12 are: sweep-000003, ")):
        for number in range(1, count + 1):
            (folder / f"sweep-{number:06d}.json").touch()
        with pytest.raises(NotFoundError) as caught:
            read_plan(root, "sweep-999999")
        assert caught.value.hint.startswith(said)
