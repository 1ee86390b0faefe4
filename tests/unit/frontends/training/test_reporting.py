"""Reports of programs: what they write, and what a run reads of it."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import weft
from weft.frontends.training import metrics, reporting

NAME = "job.worker.0"


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / metrics.FOLDER).mkdir()
    path = tmp_path / metrics.FOLDER / f"{NAME}{metrics.SUFFIX}"
    monkeypatch.setenv(reporting.METRICS, str(path))
    monkeypatch.setattr(reporting, "_files", {})
    return path


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def end() -> None:
    for one in reporting._files.values():
        one.end()


def test_a_report_is_a_line(file):
    reporting.report(step=3, epoch=1, progress=0.5, loss=0.25, big=float("inf"))
    (line,) = lines(file)
    assert line.pop("time") > 0
    assert line == {"step": 3, "epoch": 1, "progress": 0.5, "metrics": {"loss": 0.25, "big": "inf"}}


def test_outside_of_a_run_nothing_happens(file, monkeypatch):
    monkeypatch.delenv(reporting.METRICS)
    reporting.report(step=1)
    assert not file.exists()


def test_of_many_reports_the_last_is_kept(file):
    for step in range(5000):
        reporting.report(step=step)
    end()
    steps = [line["step"] for line in lines(file)]
    assert len(steps) < 5000
    assert steps[-1] == 4999


def test_a_long_file_takes_no_more(file):
    with open(file, "wb") as made:
        made.truncate(reporting.MOST_FILE_BYTES)
    reporting.report(step=1)
    end()
    assert file.stat().st_size == reporting.MOST_FILE_BYTES


def test_a_folder_that_is_gone_does_not_end_the_program(file):
    file.parent.rmdir()
    reporting.report(step=1)


@pytest.mark.parametrize(
    "wrong", [{"loss": "low"}, {"progress": 2}, {"step": []}, {f"m{n}": n for n in range(65)}, {"n" * 5000: 1}]
)
def test_what_is_no_report_is_refused(file, wrong):
    with pytest.raises((TypeError, ValueError)):
        reporting.report(**wrong)


def test_a_run_reads_the_last_report(file):
    reader = metrics.MetricsReader(file.parent.parent)
    assert not reader.look()
    file.write_text('{"time":1,"step":1,"metrics":{}}\n{"time":2,"step":2,"metrics":{"loss":1}}\nno report\n{"ha')
    assert reader.look()
    assert reader.latest == {("job.worker", 0): {"time": 2, "step": 2, "metrics": {"loss": 1}}}
    assert not reader.look()


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ('{"metrics":{"a":NaN,"b":1e999,"c":[1],"d":"x"}}', {"metrics": {"a": "nan", "b": "inf", "d": "x"}}),
        ('{"step":NaN,"epoch":"5","progress":7,"metrics":{}}', {"progress": 1.0, "metrics": {}}),
        ('{"step":' + "9" * 400 + ',"metrics":{"n":-' + "9" * 400 + "}}", {"metrics": {"n": "-inf"}}),
        ('{"step":true,"metrics":{"n":false}}', {"step": True, "metrics": {"n": False}}),
        ("[" * 4000, None),
        ("{}", None),
        ("\0\0\0", None),
    ],
)
def test_lines_of_any_program_are_checked(file, line, found):
    """What is read is valid JSON, of bounded size."""
    file.write_text(line + "\n")
    reader = metrics.MetricsReader(file.parent.parent)
    reader.look()
    assert reader.latest.get(("job.worker", 0)) == found
    json.dumps(reader.latest.get(("job.worker", 0)), allow_nan=False)


def test_children_report_for_themselves(file):
    """A fork does not write what its parent has not written yet; a child of multiprocessing writes its last report."""
    code = """
import multiprocessing, os
from weft.training import report

def child():
    for step in (20, 21, 22):
        report(step=step)

report(step=1)
report(step=2)
one = multiprocessing.get_context("fork").Process(target=child)
one.start()
one.join()
if os.fork() == 0:
    report(step=30)
    os._exit(0)
os.wait()
"""
    env = {"PYTHONPATH": str(Path(weft.__file__).parents[1]), reporting.METRICS: str(file)}
    subprocess.run([sys.executable, "-c", code], env=env, check=True)
    assert [line["step"] for line in lines(file)] == [1, 20, 22, 30, 2]


def test_the_status_of_a_trainer():
    reports: dict[str, dict[str, Any]] = {
        "j-node-0-0": {"time": 110.0, "progress": 0.25, "metrics": {"loss": 0.5}},
        "j-node-0-1": {"metrics": {}},
    }
    assert metrics.trainer_status(reports, 100.0) == {
        "progressPercentage": 25,
        "estimatedRemainingSeconds": 30,
        "metrics": [{"name": "loss", "value": "0.5"}],
        "lastUpdatedTime": 110.0,
    }
    assert metrics.trainer_status({}, None) == {}


def test_a_program_without_the_packages_of_weft_reports(file):
    code = "from weft.training import checkpoint_dir, report; report(step=1); import sys; print(*sys.modules)"
    source = str(Path(weft.__file__).parents[1])
    env = {"PYTHONPATH": source, reporting.METRICS: str(file)}
    answer = subprocess.run([sys.executable, "-S", "-c", code], env=env, capture_output=True, text=True, check=True)
    assert lines(file)[0]["step"] == 1
    loaded = {name.partition(".")[0] for name in answer.stdout.split()}
    assert loaded <= {*sys.stdlib_module_names, "weft", "sitecustomize", "__main__"}
