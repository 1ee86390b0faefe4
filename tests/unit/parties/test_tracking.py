"""What components have kept: metrics, curves and bins, for people and under the names of FATE."""

import json

import pytest

from tests.unit.parties.views import GUEST, HOST, Viewed
from weft.parties.http.ports import JobPart

LINES = (
    {"namespace": "train", "name": "auc", "value": 0.5},
    {"namespace": "train", "name": "auc", "value": 0.75},
    {"namespace": "train", "name": "ks", "value": 0.4},
    {"namespace": "train", "name": "roc", "kind": "ROC_EVALUATION", "points": [[0, 0], [1, 1]]},
    {"namespace": "train", "name": "ks_tpr", "kind": "KS_EVALUATION", "points": [[0, 0], [1, 1]]},
    {"namespace": "train", "name": "recall", "kind": "RECALL_EVALUATION", "points": [[0.2, 1.0], [0.8, 0.5]]},
    {"namespace": "train", "name": "recall", "value": 0.6},
    {"namespace": "validate", "name": "auc", "value": 0.7},
)
BIN = {"iv": 0.3, "woe": [0.1, -0.2], "iv_by_bin": [0.1, 0.2], "events": [3, 1], "non_events": [2, 4]}
MODEL = {
    "kind": "HeteroFeatureBinning",
    "columns": {"x0": {"edges": [0.5, 2.0], "missing": False}, "x1": {"edges": [1.0], "missing": False}},
    "labels": [1, 0],
    "results": [{"x0": BIN, "x1": BIN | {"iv": 0.1}}],
    "hosts": {"2": [{"host_2_x0": BIN | {"iv": 0.9}}]},
}


@pytest.fixture
def viewed(tmp_path):
    return Viewed(tmp_path)


def keep(viewed, component, lines):
    folder = viewed.attempt(component, GUEST)
    (folder / "metrics.jsonl").write_text("".join(json.dumps(one) + "\n" for one in lines) + '{"torn')
    return folder


def test_the_last_value_of_a_metric_counts_and_a_torn_line_does_not(viewed):
    keep(viewed, "evaluation_0", LINES)
    tracking = viewed.sources.tracking
    assert tracking.figures("job", GUEST, "evaluation_0") == {
        "train auc": 0.75,
        "train ks": 0.4,
        "train recall": 0.6,
        "validate auc": 0.7,
    }
    names = [one.name for one in tracking.series("job", GUEST, "evaluation_0")]
    assert names == ["auc", "ks", "roc", "ks_tpr", "recall", "recall", "auc"]


def test_figures_that_are_no_numbers_are_left_out(viewed):
    values = {"nan": float("nan"), "infinite": float("inf"), "two": 2.0}
    lines = [{"namespace": "train", "name": name, "value": value} for name, value in values.items()]
    keep(viewed, "evaluation_0", lines)
    assert viewed.sources.tracking.figures("job", GUEST, "evaluation_0") == {"train two": 2.0}


def test_confusion_matrices_are_those_of_the_summary(viewed):
    folder = keep(viewed, "evaluation_0", LINES)
    tracking = viewed.sources.tracking
    assert tracking.confusions("job", GUEST, "evaluation_0") == []
    told = {"classes": ["0", "1"], "counts": [[5, 1], [2, 9]]}
    (folder / "summary.json").write_text(json.dumps({"confusion": {"train": told}}))
    assert tracking.confusions("job", GUEST, "evaluation_0") == [{"namespace": "train", **told}]
    (folder / "summary.json").write_text("{torn")
    assert tracking.confusions("job", GUEST, "evaluation_0") == []


def test_clients_of_fate_find_its_names(viewed):
    keep(viewed, "evaluation_0", LINES)
    tracking = viewed.sources.tracking
    part = JobPart("job", "guest", "1", "evaluation_0")
    assert tracking.metric_names(part) == {
        "train": ["binning_0", "binning_0_roc", "binning_0_ks_tpr", "binning_0_recall"],
        "validate": ["binning_0"],
    }
    summary = tracking.metric(part, "train", "binning_0")
    assert (list(summary.points), summary.about["metric_type"]) == (
        [("auc", 0.75), ("ks", 0.4), ("recall", 0.6)],
        "EVALUATION_SUMMARY",
    )
    roc = tracking.metric(part, "train", "binning_0_roc")
    assert roc.about == {
        "name": "binning_0_roc",
        "metric_type": "ROC_EVALUATION",
        "curve_name": "binning_0",
        "unit_name": "fpr",
        "ordinate_name": "tpr",
    }
    tpr = tracking.metric(part, "train", "binning_0_ks_tpr")
    assert (tpr.about["curve_name"], tpr.about["pair_type"]) == ("binning_0_tpr", "binning_0")
    assert tracking.metrics(JobPart("job", "guest", "1", "unknown")) == []


def test_clients_of_fate_find_the_metrics_of_each_component_under_its_name(viewed):
    lines = [
        {"namespace": "train/hetero_lr_0", "name": "auc", "value": 0.75},
        {"namespace": "train/hetero_lr_0", "name": "roc", "kind": "ROC_EVALUATION", "points": [[0, 0], [1, 1]]},
        {"namespace": "train/hetero_lr_1", "name": "auc", "value": 0.5},
        {"namespace": "test/hetero_lr_1", "name": "auc", "value": 0.25},
    ]
    keep(viewed, "evaluation_0", lines)
    tracking, part = viewed.sources.tracking, JobPart("job", "guest", "1", "evaluation_0")
    assert tracking.metric_names(part) == {
        "train": ["hetero_lr_0", "hetero_lr_0_roc", "hetero_lr_1"],
        "test": ["hetero_lr_1"],
    }
    assert list(tracking.metric(part, "train", "hetero_lr_0").points) == [("auc", 0.75)]
    assert list(tracking.metric(part, "train", "hetero_lr_1").points) == [("auc", 0.5)]


def test_losses_have_the_description_of_fate(viewed):
    keep(viewed, "binning_0", [{"namespace": "train", "name": "loss", "kind": "LOSS", "points": [[0, 0.7], [1, 0.5]]}])
    loss = viewed.sources.tracking.metric(JobPart("job", "guest", "1", "binning_0"), "train", "loss")
    assert loss.about == {"name": "train", "metric_type": "LOSS", "unit_name": "iters"}
    assert list(loss.points) == [(0, 0.7), (1, 0.5)]


def test_bins_of_all_parties_come_by_their_information_value(viewed):
    (viewed.attempt("binning_0", GUEST) / "model.json").write_text(json.dumps(MODEL))
    theirs, first, second = viewed.sources.tracking.bins("job", GUEST, "binning_0")
    assert (theirs["feature"], theirs["party"], theirs["edges"]) == ("host_2_x0", "host 2", None)
    assert (first["feature"], first["party"], first["event"], first["edges"]) == ("x0", "guest 1", "1", [0.5, 2.0])
    assert first["bins"][1] == {"events": 1, "non_events": 4, "woe": -0.2, "iv": 0.2}
    assert second["feature"] == "x1"


def test_a_host_has_its_bounds_alone(viewed):
    model = MODEL | {"labels": [], "results": [], "hosts": {}}
    (viewed.attempt("binning_0", HOST) / "model.json").write_text(json.dumps(model))
    found = viewed.sources.tracking.bins("job", HOST, "binning_0")
    assert [(one["feature"], one["iv"], one["bins"]) for one in found] == [("x0", None, []), ("x1", None, [])]
    assert viewed.sources.tracking.bins("job", HOST, "evaluation_0") == []
