"""The breast cancer example: its pipeline is legal, its steps run alone and classify well, its data is whole."""

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from weft.frontends.pipelines.check import parse_pipeline
from weft.frontends.pipelines.resolve import resolve

EXAMPLE = Path(__file__).parents[4] / "examples" / "breast_cancer"


@pytest.fixture(scope="module")
def steps(tmp_path_factory):
    """The example's steps, run one after the other as a shell would."""
    root = tmp_path_factory.mktemp("example")
    for name in ("breast_cancer.csv", "steps"):
        (root / name).symlink_to(EXAMPLE / name)
    pipeline = parse_pipeline((EXAMPLE / "run.yaml").read_text(), "run.yaml")
    done = resolve(pipeline, run_id="run-000001", user="ada", root=str(root))
    python = str(Path(sys.executable).parent)
    for step in done:
        for path in step.outputs.values():
            Path(path).parent.mkdir(parents=True, exist_ok=True)
        assert isinstance(step.command, str)
        env = (
            os.environ
            | {key: str(value) for key, value in step.env.items()}
            | {"PATH": f"{python}:{os.environ['PATH']}", "PYTHONDONTWRITEBYTECODE": "1"}
        )
        subprocess.run(["sh", "-c", step.command], cwd=step.cwd, env=env, check=True, timeout=180)
    return {step.name: step for step in done}


def test_data():
    header, *rows = csv.reader((EXAMPLE / "breast_cancer.csv").read_text().splitlines())
    assert header[:2] == ["diagnosis", "radius_mean"]
    assert {len(row) for row in (header, *rows)} == {31}
    labels = [row[0] for row in rows]
    assert (labels.count("malignant"), labels.count("benign")) == (212, 357)


def test_the_model_classifies_well(steps):
    metrics = json.loads(Path(steps["evaluate"].outputs["metrics"]).read_text())
    assert metrics["rows"] == 113 == sum(metrics["confusion"].values())
    assert 0.96 <= metrics["accuracy"] <= 0.99
    assert metrics["roc_auc"] >= 0.99


def test_the_report_tells_it(steps):
    report = Path(steps["report"].outputs["report"]).read_text()
    assert report.startswith("# Run run-000001: 300 epochs\n")
    assert "ROC AUC" in report


def test_the_parts_do_not_overlap(steps):
    train, test = (
        Path(steps["prepare"].outputs[name]).read_text().splitlines()[1:] for name in ("train_data", "test_data")
    )
    assert (len(train), len(test)) == (456, 113)
    assert not set(train) & set(test)
