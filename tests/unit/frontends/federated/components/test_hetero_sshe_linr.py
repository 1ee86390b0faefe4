"""HeteroSSHELinR against descent over all columns by hand, and scikit-learn."""

import numpy as np
import pytest
from sklearn.datasets import load_diabetes
from sklearn.linear_model import LinearRegression
from sklearn.metrics import r2_score
from sklearn.preprocessing import StandardScaler

from tests.unit.frontends.federated.components.parts_of import GUEST, HOST, frame
from weft.frontends.federated.components.predictions import SCORE
from weft.frontends.federated.wire import decode
from weft.model.errors import UsageError
from weft.testing.parts import PartInputs, run_parts

X, LABELS = load_diabetes(return_X_y=True)
MATRIX, Y = StandardScaler().fit_transform(X), (LABELS - LABELS.mean()) / LABELS.std()
USUAL = {
    "alpha": 0.01,
    "learning_rate": 0.15,
    "max_iter": 6,
    "decay": 0,
    "tol": 0,
    "encrypt_param": {"method": "plain"},
}
EVERY = USUAL | {"reveal_every_iter": True}
HIDDEN = USUAL | {"reveal_strategy": "encrypted_reveal_in_host"}


def run(parameters=USUAL, *, y=Y, rows=slice(None), models=None, cut=(4, 10)):
    given, key = {}, "test_data" if models else "train_data"
    for party, begin, end in ((GUEST, 0, cut[0]), (HOST, *cut)):
        data = frame(MATRIX[rows, begin:end], y[rows] if party == GUEST else None, first=begin)
        given[party] = PartInputs(parameters, {key: [data]}, {"model": {"m": models[party].model}} if models else {})
    return run_parts("HeteroSSHELinR", given)


def scores_of(ran):
    return ran.outputs[GUEST].data[0].columns[SCORE].astype(float)


def pooled(steps=6):
    """Return predictions and losses of gradient descent over all columns, written out by hand."""
    matrix, weights, losses = np.hstack([MATRIX, np.ones((len(Y), 1))]), np.zeros(11), []
    for _ in range(steps):
        residual = matrix @ weights - Y
        losses.append(0.5 * (residual**2).mean())
        weights = weights - 0.15 * (matrix.T @ residual / len(Y) + 0.01 * weights * np.append(np.ones(10), 0))
    return matrix @ weights, losses


@pytest.mark.parametrize("mode", [USUAL, EVERY, HIDDEN])
def test_steps_are_those_over_all_columns(mode):
    ran = run(mode)
    scores, losses = pooled()
    assert scores_of(ran) == pytest.approx(scores, abs=1e-4)
    assert ran.outputs[GUEST].model["models"][0]["losses"] == pytest.approx(losses, abs=1e-4)
    again = run(mode, models=ran.outputs)
    assert scores_of(again) == pytest.approx(scores_of(ran), abs=1e-9)
    assert ("weights" in ran.outputs[HOST].model["models"][0]) == (mode is not HIDDEN)


def test_the_model_is_as_good_as_that_of_scikit_learn():
    best = r2_score(Y, LinearRegression().fit(MATRIX, Y).predict(MATRIX))
    asked = {"max_iter": 60, "alpha": 0.0, "early_stop": "weight_diff", "tol": 1e-3}
    assert r2_score(Y, scores_of(run(EVERY | asked))) > 0.99 * best


def test_encrypted_numbers_make_the_predictions_of_plain_ones():
    few = USUAL | {"max_iter": 2}
    plain, other = (
        run(few | {"encrypt_param": {"method": method}}, rows=slice(0, 30), cut=(2, 4))
        for method in ("plain", "Paillier")
    )
    assert scores_of(other) == pytest.approx(scores_of(plain), abs=1e-6)
    for one in other.sent:
        if not one.name.startswith("score"):
            assert not isinstance(decode(one.data), np.ndarray)


def test_folds_are_trained():
    ran = run(EVERY | {"cv_param": {"need_cv": True, "n_splits": 2}, "max_iter": 3})
    assert ran.records[GUEST].metrics["validate_mean", "root_mean_squared_error"] < 1
    assert ran.outputs[GUEST].model is None


def test_labels_must_be_numbers():
    with pytest.raises(UsageError, match="label at guest 1 is no number"):
        run(y=np.array(["a", "b"], dtype=object)[np.arange(len(Y)) % 2])
