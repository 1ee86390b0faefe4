"""A suite of jobs over parties that are made for it: data, a training task, and a prediction by its model."""

import csv
import json
import os
import subprocess
import sys

from tests.integration.test_parties import SOURCE
from tests.integration.test_party_models import PREDICT, TRAIN, conf
from tests.unit.frontends.federated.components.parts_of import breast


def table(path, header, rows):
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        writer.writerows(rows)


def scaled(dsl, **model):
    """Return a DSL whose host leaves its columns as they are, with an evaluation at the end."""
    components = json.loads(json.dumps(dsl["components"]))
    (rows,) = components["hetero_lr_0"]["input"]["data"].values()
    rows[:] = ["feature_scale_0.data"]
    inputs = {"data": {"data": ["intersection_0.data"]}, **model}
    components["feature_scale_0"] = {
        "module": "FeatureScale",
        "input": inputs,
        "output": {"data": ["data"], "model": ["model"]},
    }
    components["evaluation_0"] = {"module": "Evaluation", "input": {"data": {"data": ["hetero_lr_0.data"]}}}
    return {"components": components}


def going_on(dsl, wishes):
    """Return a DSL that goes on with the training of an earlier job, and its conf."""
    dsl, wishes = json.loads(json.dumps([dsl, wishes]))
    dsl["components"]["model_loader_0"] = {"module": "ModelLoader", "output": {"model": ["model"]}}
    dsl["components"]["hetero_lr_0"]["input"]["model"] = ["model_loader_0.model"]
    common = wishes["component_parameters"]["common"]
    common["model_loader_0"] = {"component_name": "hetero_lr_0"}
    common["hetero_lr_0"]["max_iter"] = 60
    return dsl, wishes


def test_a_prediction_of_a_suite_uses_the_model_of_the_task_that_it_names(tmp_path):
    data, jobs = tmp_path / "examples" / "data", tmp_path / "examples" / "dsl"
    data.mkdir(parents=True)
    jobs.mkdir()
    features, labels = breast()
    ids = [f"id{at}" for at in range(len(labels))]
    table(data / "guest.csv", ["id", "y", "x0"], zip(ids, labels, features[:, 0], strict=True))
    table(
        data / "host.csv",
        ["id", *(f"h{at}" for at in range(9))],
        [[id, *row] for id, row in zip(ids, features[:, 1:10], strict=True)],
    )
    wishes = conf()
    wishes["component_parameters"]["role"]["host"]["0"]["feature_scale_0"] = {"need_run": False}
    more_dsl, more = going_on(scaled(TRAIN), wishes)
    for name, document in (
        ("more_dsl", more_dsl),
        ("more_conf", more),
        ("train_dsl", scaled(TRAIN)),
        ("dsl", scaled(PREDICT, model=["pipeline.feature_scale_0.model"])),
        ("conf", wishes),
        ("predict_conf", wishes | {"role": {"guest": [1], "host": [3], "arbiter": [2]}}),
    ):
        (jobs / f"{name}.json").write_text(json.dumps(document))
    common = {"namespace": "n", "table_name": "rows", "head": 1, "partition": 4}
    suite = {
        "data": [common | {"file": f"examples/data/{role}.csv", "role": f"{role}_0"} for role in ("guest", "host")],
        "tasks": {
            "predict": {"conf": "predict_conf.json", "dsl": "dsl.json", "deps": "train"},
            "train": {"conf": "conf.json", "dsl": "train_dsl.json"},
            "more": {"conf": "more_conf.json", "dsl": "more_dsl.json", "model_loader_deps": "train"},
            "broken": {"conf": "none.json", "dsl": "dsl.json"},
        },
    }
    (jobs / "suite.json").write_text(json.dumps(suite))
    ended = subprocess.run(
        [sys.executable, "-m", "weft", "party", "suite", "suite.json", "--json", "--folder", str(tmp_path / "parties")],
        cwd=jobs,
        env=os.environ | {"PYTHONPATH": str(SOURCE)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 1, ended.stderr
    (report,) = json.loads(ended.stdout)["suites"]
    assert [(one["party"], one["rows"]) for one in report["uploads"]] == [("1", 569), ("2", 569), ("3", 569)], (
        ended.stderr
    )
    results = {one["task"]: one for one in report["results"]}
    assert list(results) == ["train", "predict", "more", "broken"]
    assert {results[task]["status"] for task in ("train", "predict", "more")} == {"success"}, ended.stderr
    trained, predicted, more_trained = (
        {name.rpartition(" ")[2]: value for name, value in results[task]["metrics"].items()}
        for task in results
        if task != "broken"
    )
    assert trained["auc"] > 0.97
    assert predicted["auc"] == trained["auc"]
    assert more_trained["auc"] > trained["auc"]
    assert results["broken"]["status"] == "not submitted"
    assert "none.json" in results["broken"]["reason"]
