"""The model of one party alone, against scikit-learn."""

import json
import sys
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.multiclass import OneVsRestClassifier

from tests.unit.frontends.federated.components.parts_of import GUEST, breast, frame
from tests.unit.frontends.federated.components.parts_of import run_alone as run
from weft.model.errors import UsageError
from weft.testing.parts import PartInputs, run_parts

MATRIX, Y = breast()


def test_the_baseline_is_a_model_of_scikit_learn():
    rows = frame(MATRIX[:, :5], Y)
    found = run("LocalBaseline", rows, model_name="LogisticRegression", model_opts={"C": 0.5, "max_iter": 300})
    truth = LogisticRegression(C=0.5, max_iter=300).fit(MATRIX[:, :5], Y)
    scores = found.data[0].columns["predict_score"]
    assert scores == pytest.approx(truth.predict_proba(MATRIX[:, :5])[:, 1], abs=1e-9)
    assert json.loads(json.dumps(found.model)) == found.model
    again = run("LocalBaseline", rows, found.model).data[0]
    assert again.columns["predict_score"].tolist() == scores.tolist()


def test_the_baseline_of_several_classes_and_of_numbers():
    classes = np.digitize(MATRIX[:, 0], [-0.5, 0.5])
    found = run("LocalBaseline", frame(MATRIX[:, :5], classes)).data[0]
    truth = LogisticRegression().fit(MATRIX[:, :5], classes).predict_proba(MATRIX[:, :5])
    shown = np.array([list(json.loads(one).values()) for one in found.columns["predict_detail"]])
    assert shown == pytest.approx(truth, abs=1e-6)
    numbers = run("LocalBaseline", frame(MATRIX[:, 1:5], MATRIX[:, 0]), model_name="Ridge").data[0]
    ridge = Ridge().fit(MATRIX[:, 1:5], MATRIX[:, 0]).predict(MATRIX[:, 1:5])
    assert numbers.columns["predict_score"] == pytest.approx(ridge, abs=1e-6)


def chances_of(frame_of_predictions):
    return np.array([list(json.loads(one).values()) for one in frame_of_predictions.columns["predict_detail"]])


OPTIONS_OF_FATE: dict[str, Any] = {"penalty": "l2", "tol": 1e-4, "C": 1.0, "fit_intercept": True, "max_iter": 200}


@pytest.mark.parametrize("solver", ["lbfgs", "liblinear"])
def test_each_class_is_trained_against_the_rest(solver):
    matrix, classes = MATRIX[:, :5], np.digitize(MATRIX[:, 0], [-0.5, 0.5])
    options = {**OPTIONS_OF_FATE, "solver": solver} | ({"multi_class": "ovr"} if solver == "lbfgs" else {})
    found = run("LocalBaseline", frame(matrix, classes), model_name="logisticregression", model_opts=options)
    one = LogisticRegression(max_iter=200, solver=solver, random_state=0)
    truth = OneVsRestClassifier(one).fit(matrix, classes).predict_proba(matrix)
    assert chances_of(found.data[0]) == pytest.approx(truth, abs=1e-6)
    assert chances_of(run("LocalBaseline", frame(matrix), found.model).data[0]) == pytest.approx(truth, abs=1e-6)


@pytest.mark.parametrize(
    ("given", "same"),
    [
        ({"penalty": "l2"}, {"C": 1.0}),
        ({"penalty": "l1", "C": 0.1, "solver": "liblinear"}, {"l1_ratio": 1.0, "C": 0.1, "solver": "liblinear"}),
        ({"penalty": "none"}, {"C": np.inf}),
        ({"penalty": None}, {"C": np.inf}),
        ({"class_weight": {"0": 1, "1": 5}}, {"class_weight": {0: 1, 1: 5}}),
    ],
)
def test_options_mean_what_they_meant_in_files_of_fate(given, same):
    matrix = MATRIX[:, :3]
    found = run("LocalBaseline", frame(matrix, Y), model_opts=given).model
    truth = LogisticRegression(random_state=0, **same).fit(matrix, Y)
    assert np.array(found["coef"]) == pytest.approx(truth.coef_, abs=1e-4)
    other = LogisticRegression(C=0.01).fit(matrix, Y)
    assert np.abs(np.array(found["coef"]) - other.coef_).max() > 0.1


def test_a_baseline_that_has_not_converged_says_so():
    options = {"max_iter": 2, "solver": "saga", "n_jobs": 4}
    ran = run_parts("LocalBaseline", {GUEST: PartInputs({"model_opts": options}, {"train_data": [frame(MATRIX, Y)]})})
    record = ran.records[GUEST]
    assert (record.summaries["is_converged"], record.summaries["iters"]) == (False, 2)
    assert any("n_jobs has no effect" in line for line in record.lines)
    assert any("max_iter was reached" in line for line in record.lines)
    ran = run_parts("LocalBaseline", {GUEST: PartInputs({}, {"train_data": [frame(MATRIX[:, :5], Y)]})})
    assert ran.records[GUEST].summaries["is_converged"]
    assert list(ran.records[GUEST].summaries["coef"]) == ["x0", "x1", "x2", "x3", "x4"]


@pytest.mark.parametrize("key", ["validate_data", "eval_data"])
def test_the_baseline_is_validated_and_has_a_threshold(key):
    data = {"train_data": [frame(MATRIX[:400, :5], Y[:400])], key: [frame(MATRIX[400:, :5], Y[400:])]}
    given = PartInputs({"predict_param": {"threshold": 0.9}}, data)
    found = run_parts("LocalBaseline", {GUEST: given}).outputs[GUEST].data[0].columns
    assert found["type"].tolist() == ["train"] * 400 + ["validate"] * 169
    scores = found["predict_score"].astype(float)
    assert found["predict_result"].tolist() == (scores >= 0.9).astype(int).tolist()
    assert ((scores >= 0.5) & (scores < 0.9)).any()


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"model_name": "os.system"}, "model_name"),
        ({"model_opts": {"c": 1}}, "no option 'c'"),
        ({"model_opts": {"C": -1}}, "refuses"),
        ({"model_opts": {"penalty": "l3"}}, "l3"),
        ({"model_opts": {"multi_class": "all"}}, "multi_class is 'all'"),
        ({"model_name": "Ridge", "model_opts": {"penalty": "l2"}}, "no option 'penalty'"),
        ({"predict_param": {"threshold": "x"}}, "threshold"),
    ],
)
def test_wrong_baselines_are_refused(parameters, message):
    with pytest.raises(UsageError, match=message):
        run("LocalBaseline", frame(MATRIX[:, :2], Y), **parameters)


def test_a_party_without_labels_learns_no_baseline():
    found = run("LocalBaseline", frame(MATRIX))
    assert not found.data
    assert not run("LocalBaseline", frame(MATRIX), found.model).data


def test_a_party_without_the_library_is_told_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(UsageError, match="needs scikit-learn, which guest 1 does not have"):
        run("LocalBaseline", frame(MATRIX[:, :2], Y))
