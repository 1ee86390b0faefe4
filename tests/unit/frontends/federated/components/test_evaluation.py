import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics

from tests.unit.frontends.federated.components.parts_of import GUEST, frame
from weft.frontends.federated.components import evaluation
from weft.frontends.federated.components.predictions import TRAIN, VALIDATE, class_frame, joined, regression_frame
from weft.model.errors import UsageError
from weft.testing.parts import PartInputs, run_parts

RNG = np.random.default_rng(3)
SCORES = st.lists(st.tuples(st.booleans(), st.integers(0, 20)), min_size=4, max_size=60)


@settings(deadline=None)
@given(SCORES)
def test_metrics_of_two_classes_are_those_of_scikit_learn(rows):
    truth, scores = np.array([one for one, _ in rows]), np.array([two / 20 for _, two in rows])
    if truth.all() or not truth.any():
        return
    found = evaluation.binary_metrics(truth, scores)
    assert found["auc"] == pytest.approx(metrics.roc_auc_score(truth, scores))
    false, true, _ = metrics.roc_curve(truth, scores, drop_intermediate=False)
    assert found["ks"] == pytest.approx(np.abs(true - false).max())
    chosen = scores >= 0.5
    assert found["accuracy"] == pytest.approx(metrics.accuracy_score(truth, chosen))
    assert found["precision"] == pytest.approx(metrics.precision_score(truth, chosen, zero_division=0))
    assert found["recall"] == pytest.approx(metrics.recall_score(truth, chosen))
    assert found["f1_score"] == pytest.approx(metrics.f1_score(truth, chosen, zero_division=0))


@settings(deadline=None)
@given(SCORES)
def test_curves_of_two_classes_are_those_of_scikit_learn(rows):
    truth, scores = np.array([one for one, _ in rows]), np.array([two / 20 for _, two in rows])
    if truth.all() or not truth.any():
        return
    found = {name: np.array(points) for name, points in evaluation.binary_curves(truth, scores).items()}
    false, true, _ = metrics.roc_curve(truth, scores, drop_intermediate=False)
    assert found["roc"] == pytest.approx(np.column_stack([false, true]))
    assert found["ks_tpr"][:, 1] == pytest.approx(true)
    assert found["ks_fpr"][:, 1] == pytest.approx(false)
    precision, recall, thresholds = metrics.precision_recall_curve(truth, scores)
    assert found["precision"] == pytest.approx(np.column_stack([thresholds, precision[:-1]]))
    assert found["recall"] == pytest.approx(np.column_stack([thresholds, recall[:-1]]))
    for threshold, accuracy in found["accuracy"]:
        assert accuracy == pytest.approx(metrics.accuracy_score(truth, scores >= threshold))


def test_metrics_of_numbers_classes_and_clusters_are_those_of_scikit_learn():
    truth, values = RNG.normal(size=50), RNG.normal(size=50)
    found = evaluation.regression_metrics(truth, values)
    assert found["r2_score"] == pytest.approx(metrics.r2_score(truth, values))
    assert found["mean_absolute_error"] == pytest.approx(metrics.mean_absolute_error(truth, values))
    assert found["explained_variance"] == pytest.approx(metrics.explained_variance_score(truth, values))
    classes, guesses = RNG.integers(0, 4, size=80), RNG.integers(0, 4, size=80)
    found = evaluation.multi_metrics(classes, guesses)
    assert found["precision"] == pytest.approx(metrics.precision_score(classes, guesses, average="macro"))
    assert found["recall"] == pytest.approx(metrics.recall_score(classes, guesses, average="macro"))
    found = evaluation.clustering_metrics(classes, guesses)
    assert found["adjusted_rand_score"] == pytest.approx(metrics.adjusted_rand_score(classes, guesses))
    assert found["fowlkes_mallows_score"] == pytest.approx(metrics.fowlkes_mallows_score(classes, guesses))


def evaluate(rows, **parameters):
    return run_parts("Evaluation", {GUEST: PartInputs(parameters, {"data": [rows]})})


def binary(count=20, kind=TRAIN):
    y = np.arange(count) % 2
    scores = (y + np.linspace(-0.4, 0.4, count)).clip(0, 1)
    return class_frame(frame(np.zeros((count, 1)), y), np.column_stack([1 - scores, scores]), [0, 1], kind)


def test_predictions_of_each_kind_are_evaluated_apart():
    ran = evaluate(joined([binary(), binary(10, VALIDATE)]), eval_type="binary", pos_label=1)
    kept = ran.records[GUEST]
    assert {kind for kind, _ in kept.metrics} == {TRAIN, VALIDATE}
    assert kept.metrics[TRAIN, "auc"] == 1.0
    assert kept.curves[TRAIN, "roc"][0] == (0.0, 0.0)
    assert kept.curves[TRAIN, "roc"][-1] == (1.0, 1.0)
    assert {name for kind, name in kept.curves if kind == VALIDATE} == {
        *("roc", "ks_fpr", "ks_tpr", "gain", "lift", "accuracy", "precision", "recall")
    }
    assert kept.summaries[TRAIN]["auc"] == 1.0


def test_predictions_of_several_components_are_evaluated_apart():
    given = PartInputs({}, {"data": [binary(), binary(10)]}, sources={"data": ["hetero_lr_0", "hetero_lr_1"]})
    kept = run_parts("Evaluation", {GUEST: given}).records[GUEST]
    assert {kind for kind, _ in kept.metrics} == {"train/hetero_lr_0", "train/hetero_lr_1"}
    assert {kind for kind, _ in kept.curves} == {"train/hetero_lr_0", "train/hetero_lr_1"}
    rows = {name: np.sum(one["counts"]) for name, one in kept.summaries["confusion"].items()}
    assert rows == {"train/hetero_lr_0": 20, "train/hetero_lr_1": 10}


def test_what_predicts_nothing_is_no_second_component():
    rows = frame(np.zeros((5, 1)))
    given = PartInputs({}, {"data": [rows, binary()]}, sources={"data": ["intersection_0", "hetero_lr_0"]})
    kept = run_parts("Evaluation", {GUEST: given}).records[GUEST]
    assert {kind for kind, _ in kept.metrics} == {TRAIN}


def test_regressions_and_several_classes():
    values = RNG.normal(size=30)
    ran = evaluate(regression_frame(frame(np.zeros((30, 1)), values), values, TRAIN), eval_type="regression")
    assert ran.records[GUEST].metrics[TRAIN, "r2_score"] == 1.0
    y = RNG.integers(0, 3, size=30)
    ran = evaluate(class_frame(frame(np.zeros((30, 1)), y), np.eye(3)[y], [0, 1, 2], TRAIN), eval_type="multi")
    assert ran.records[GUEST].metrics[TRAIN, "accuracy"] == 1.0


def test_confusion_matrices_agree_with_the_metrics():
    ran = evaluate(joined([binary(), binary(10, VALIDATE)]), eval_type="binary", pos_label=0)
    kept = ran.records[GUEST]
    confusion = kept.summaries["confusion"]
    assert confusion[TRAIN]["classes"] == ["others", "0"]
    (right, alarms), (missed, hits) = confusion[TRAIN]["counts"]
    assert (right + hits) / 20 == kept.metrics[TRAIN, "accuracy"]
    assert hits / (hits + missed) == kept.metrics[TRAIN, "recall"]
    assert alarms == 10 - right
    assert set(confusion) == {TRAIN, VALIDATE}
    y, guesses = RNG.integers(0, 3, size=60), RNG.integers(0, 3, size=60)
    rows = class_frame(frame(np.zeros((60, 1)), y), np.eye(3)[guesses], [0, 1, 2], TRAIN)
    told = evaluate(rows, eval_type="multi").records[GUEST].summaries["confusion"][TRAIN]
    assert told == {"classes": ["0", "1", "2"], "counts": metrics.confusion_matrix(y, guesses).tolist()}
    many = np.arange(60)
    rows = class_frame(frame(np.zeros((60, 1)), many), np.eye(60), many.tolist(), TRAIN)
    assert "confusion" not in evaluate(rows, eval_type="multi").records[GUEST].summaries


def test_what_cannot_be_evaluated_is_told():
    unlabelled = class_frame(frame(np.zeros((5, 1))), np.full((5, 2), 0.5), [0, 1], TRAIN)
    with pytest.raises(UsageError, match="no labels"):
        evaluate(unlabelled)
    with pytest.raises(UsageError, match="all labels of the train rows are the same"):
        evaluate(class_frame(frame(np.zeros((5, 1)), np.ones(5, int)), np.full((5, 2), 0.5), [0, 1], TRAIN))
    with pytest.raises(UsageError, match="neither of the two labels"):
        evaluate(binary(), pos_label=7)
    with pytest.raises(UsageError, match="these are of 3 classes"):
        evaluate(class_frame(frame(np.zeros((3, 1)), np.arange(3)), np.eye(3), [0, 1, 2], TRAIN))
    with pytest.raises(UsageError, match="eval_type"):
        evaluate(binary(), eval_type="vibes")
    with pytest.raises(UsageError, match="are no predictions"):
        evaluate(frame(np.zeros((5, 1))))


@pytest.mark.parametrize(
    ("classes", "positive"),
    [
        ([0, 1], {}),
        ([0, 1], {"pos_label": 0}),
        ([1, 2], {}),
        ([1, 2], {"pos_label": 2}),
        ([0.0, 1.0], {"pos_label": 1}),
        (["no", "yes"], {}),
        (["no", "yes"], {"pos_label": "no"}),
    ],
)
def test_the_score_is_the_probability_of_the_positive_label(classes, positive):
    """A good model is good whatever the labels are called, and whichever of them is positive."""
    at = np.arange(40) % 2
    scores = (at + np.linspace(-0.7, 0.7, 40)).clip(0, 1)
    labels = np.array(classes, dtype=object if isinstance(classes[0], str) else None)[at]
    rows = class_frame(frame(np.zeros((40, 1)), labels), np.column_stack([1 - scores, scores]), classes, TRAIN)
    kept = evaluate(rows, **positive).records[GUEST]
    assert kept.metrics[TRAIN, "auc"] == pytest.approx(metrics.roc_auc_score(at, scores))
    (right, alarms), (missed, hits) = kept.summaries["confusion"][TRAIN]["counts"]
    assert (right + hits, alarms + missed) == (int(((scores >= 0.5) == at).sum()), int(((scores >= 0.5) != at).sum()))
