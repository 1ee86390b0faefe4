import re

import numpy as np
import pytest
from sklearn.datasets import load_wine
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.multiclass import OneVsRestClassifier
from sklearn.preprocessing import StandardScaler

from tests.unit.frontends.federated.components.parts_of import ARBITER, GUEST, HOST, HOST_2, breast, frame
from weft.frontends.federated.components.predictions import SCORE
from weft.frontends.federated.wire import decode
from weft.model.errors import UsageError
from weft.testing.parts import PartInputs, run_parts

pytestmark = pytest.mark.slow

PLAIN = {"encrypt_param": {"method": "plain"}}
USUAL = {"alpha": 0.01, "optimizer": "rmsprop", "learning_rate": 0.15, "batch_size": 320, "max_iter": 30} | PLAIN
MATRIX, Y = breast()


def train(parameters=USUAL, *, y=Y, cut=(10, 30), rows=slice(None)):
    """Train with the first columns at the guest, and the others at one host or two."""
    given = {GUEST: PartInputs(parameters, {"train_data": [frame(MATRIX[rows, : cut[0]], y[rows])]})}
    for host, begin, end in zip((HOST, HOST_2), cut, cut[1:], strict=False):
        given[host] = PartInputs(parameters, {"train_data": [frame(MATRIX[rows, begin:end], first=begin)]})
    return run_parts("HeteroLR", given | {ARBITER: PartInputs(parameters)})


def auc_of(ran, y=Y):
    return roc_auc_score(y, ran.outputs[GUEST].data[0].columns[SCORE])


def test_the_model_of_two_parties_is_as_good_as_that_of_all_columns():
    best = roc_auc_score(Y, LogisticRegression(C=1 / (0.01 * len(Y))).fit(MATRIX, Y).decision_function(MATRIX))
    ran = train()
    assert auc_of(ran) > 0.99 * best
    losses = ran.outputs[GUEST].model["models"][0]["losses"]
    assert losses[-1] < losses[0]
    assert len(ran.records[GUEST].curves["train", "loss"]) == len(losses)


def test_columns_of_two_hosts_make_the_same_model():
    weights: dict[tuple[int, ...], dict[str, float]] = {}
    for cut in ((10, 30), (10, 20, 30)):
        ran = train(USUAL | {"early_stop": "weight_diff", "max_iter": 5}, cut=cut)
        weights[cut] = {}
        for output in ran.outputs.values():
            weights[cut] |= output.model["models"][0]["weights"] if output.model else {}
    assert weights[10, 30] == pytest.approx(weights[10, 20, 30])


def test_encrypted_numbers_make_the_model_of_plain_ones():
    rows = slice(0, 40)
    small = USUAL | {"max_iter": 2, "batch_size": -1}
    plain = train(small, rows=rows, cut=(2, 4))
    encrypted = train(small | {"encrypt_param": {"method": "Paillier"}}, rows=rows, cut=(2, 4))
    for party in (GUEST, HOST):
        mine, other = (one.outputs[party].model["models"][0]["weights"] for one in (plain, encrypted))
        assert mine == pytest.approx(other, abs=1e-3)
    assert encrypted.records[ARBITER].summaries["key_length"] == 2048


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adagrad", "nesterov_momentum_sgd"])
def test_every_optimizer_lowers_the_loss(optimizer):
    losses = train(USUAL | {"optimizer": optimizer, "learning_rate": 0.05}).outputs[GUEST].model["models"][0]["losses"]
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("penalty", ["L1", "L2", None])
def test_penalties(penalty):
    assert auc_of(train(USUAL | {"penalty": penalty})) > 0.98


@pytest.mark.parametrize(
    ("optimizer", "told"),
    [("sgd", r"the loss grew from 1\.34\S* to \S+e\+"), ("rmsprop", r"the loss ends at 3\S+e\+18, .* zero is 0\.69")],
)
def test_a_training_that_diverges_is_warned_of(optimizer, told):
    ran = train(USUAL | {"learning_rate": 1e9, "max_iter": 5, "optimizer": optimizer})
    (warning,) = ran.records[GUEST].summaries["warnings"]
    assert re.match(told, warning), warning
    assert warning in ran.records[GUEST].lines
    assert "warnings" not in ran.records[HOST].summaries


def test_a_loss_that_is_not_finite_is_an_error():
    with pytest.raises(UsageError, match=r"the training diverged: .* is not finite") as told:
        train(USUAL | {"learning_rate": 1e160, "max_iter": 5, "early_stop": "diff"})
    assert told.value.hint == "Give it a smaller learning_rate, or scale the columns."


def test_several_classes_are_trained_one_against_the_rest():
    matrix, y = load_wine(return_X_y=True)
    matrix = StandardScaler().fit_transform(matrix)
    given = {
        GUEST: PartInputs(USUAL, {"train_data": [frame(matrix[:, :5], y)]}),
        HOST: PartInputs(USUAL, {"train_data": [frame(matrix[:, 5:], first=5)]}),
        ARBITER: PartInputs(USUAL),
    }
    ran = run_parts("HeteroLR", given)
    predictions = ran.outputs[GUEST].data[0].columns["predict_result"].astype(int)
    pooled = OneVsRestClassifier(LogisticRegression()).fit(matrix, y)
    assert (predictions == y).mean() > 0.97 * pooled.score(matrix, y)
    assert len(ran.outputs[HOST].model["models"]) == 3


def test_a_prediction_is_that_of_the_fit():
    ran = train()
    given = {}
    for party, columns in ((GUEST, (0, 10)), (HOST, (10, 30))):
        rows = frame(MATRIX[:, slice(*columns)], Y if party == GUEST else None, first=columns[0])
        given[party] = PartInputs(USUAL, {"test_data": [rows]}, {"model": {"lr": ran.outputs[party].model}})
    given[ARBITER] = PartInputs(USUAL, {}, {"model": {"lr": {}}})
    again = run_parts("HeteroLR", given)
    mine, other = (one.outputs[GUEST].data[0].columns[SCORE] for one in (ran, again))
    assert np.array_equal(mine, other)
    assert set(again.outputs[GUEST].data[0].columns["type"]) == {"test"}


def test_no_column_label_or_share_crosses_in_the_open():
    rows = slice(0, 30)
    parameters = USUAL | {"max_iter": 2, "encrypt_param": {"method": "Paillier"}}
    ran = train(parameters, rows=rows, cut=(2, 4))
    secret = [*MATRIX[rows, :4].T, Y[rows].astype(float), np.where(Y[rows] == 1, 1.0, -1.0)]
    for one in ran.sent:
        if one.name.startswith("score"):  # of the predictions after the training: see the page
            continue
        value = decode(one.data)
        assert not isinstance(value, np.ndarray)
        for column in secret:
            assert column.tobytes() not in one.data
            assert column[:3].tobytes() not in one.data


def test_the_arbiter_sees_other_numbers_than_the_gradients():
    rows = slice(0, 20)
    ran = train(USUAL | {"max_iter": 1, "encrypt_param": {"method": "Paillier"}}, rows=rows, cut=(2, 4))
    plain = [decode(one.data) for one in ran.sent if one.name.startswith("plain")]
    assert plain
    assert all(abs(value) > 2**200 for values in plain for value in values)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"optimizer": "newton"}, "optimizer"),
        ({"penalty": "L3"}, "penalty"),
        ({"max_iter": 0}, "max_iter"),
        ({"learning_rate": "fast"}, "learning_rate"),
        ({"encrypt_param": {"method": "rot13"}}, "encrypt_param"),
    ],
)
def test_wrong_parameters_are_named(parameters, message):
    with pytest.raises(UsageError, match=message):
        train(USUAL | parameters)


def test_rows_that_do_not_belong_together_are_refused():
    given = {
        GUEST: PartInputs(USUAL, {"train_data": [frame(MATRIX[:50, :2], Y[:50])]}),
        HOST: PartInputs(USUAL, {"train_data": [frame(MATRIX[:49, 2:4])]}),
        ARBITER: PartInputs(USUAL),
    }
    with pytest.raises(UsageError, match="different numbers of rows"):
        run_parts("HeteroLR", given)


def test_a_label_that_is_missing_or_the_same_is_refused():
    with pytest.raises(UsageError, match="all rows have the same label"):
        train(y=np.zeros(len(Y), dtype=int))
