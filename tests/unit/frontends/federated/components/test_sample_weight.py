"""Weights of rows, and the components that use them."""

from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from tests.unit.frontends.federated.components.parts_of import ARBITER, GUEST, HOST, breast, frame, run_alone
from weft.frontends.federated.components.frame import PartyFrame
from weft.model.errors import UsageError
from weft.testing.parts import PartInputs, run_parts

MATRIX, Y = breast()
ROWS = frame(MATRIX[:, :10], Y)
COUNTS = np.random.default_rng(11).integers(1, 4, len(Y))


def weighed(rows=ROWS, **parameters):
    return run_parts("SampleWeight", {GUEST: PartInputs(parameters, {"data": [rows]})}).outputs[GUEST].data[0]


def with_column(values):
    return PartyFrame(ROWS.ids, {**ROWS.columns, "w": values}, label="y")


def repeated(matrix, y=None):
    """Return rows that stand there as often as they count."""
    return frame(np.repeat(matrix, COUNTS, axis=0), None if y is None else np.repeat(y, COUNTS))


def test_weights_by_class_and_by_column():
    found = weighed(class_weight="balanced")
    assert found.features == ROWS.features
    weights = found.columns[found.weight]
    assert weights[Y == 0].sum() == pytest.approx(weights[Y == 1].sum())
    assert weights.mean() == pytest.approx(1)
    own = weighed(class_weight={"0": 2, "1": 0.5})
    assert set(own.columns[own.weight][Y == 0]) == {2.0}
    column = weighed(with_column(COUNTS.astype(float)), sample_weight_name="w", normalize=True)
    assert column.features == ROWS.features
    assert column.columns["w"] == pytest.approx(COUNTS / COUNTS.mean())
    host = frame(MATRIX[:, 10:])
    assert not weighed(host, sample_weight_name="other").weight


def test_later_rows_weigh_as_in_the_training():
    trained = run_alone("SampleWeight", ROWS, class_weight="Balanced")
    again = run_alone("SampleWeight", ROWS, trained.model).data[0]
    assert again.columns[again.weight].tolist() == trained.data[0].columns[again.weight].tolist()
    part = ROWS.take(np.flatnonzero(Y == 1)[:3])
    later = run_alone("SampleWeight", part, trained.model).data[0]
    assert later.columns[later.weight] == pytest.approx([len(Y) / (2 * (Y == 1).sum())] * 3)
    named = run_alone("SampleWeight", with_column(COUNTS.astype(float)), sample_weight_name="w")
    assert run_alone("SampleWeight", with_column(COUNTS * 1.0), named.model).data[0].weight == "w"
    assert not run_alone("SampleWeight", ROWS, named.model).data[0].weight
    assert not run_alone("SampleWeight", ROWS, {}).data[0].weight


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"class_weight": "heavy"}, "class_weight is 'heavy'"),
        ({"class_weight": {"0": 1}}, "for a label"),
        ({"class_weight": {"0": 1, "1": "x"}}, "no number"),
        ({"class_weight": {"0": 1, "1": -1}}, "negative"),
        ({"class_weight": "balanced", "sample_weight_name": "w"}, "exclude"),
        ({"sample_weight_name": "other"}, "no column 'other'"),
    ],
)
def test_wrong_weights_are_refused(parameters, message):
    with pytest.raises(UsageError, match=message):
        weighed(**parameters)


@pytest.mark.parametrize("method", ["plain", "Paillier"])
def test_a_row_counts_like_several_in_a_linear_model(method):
    own: dict[str, Any] = {
        "batch_size": -1,
        "max_iter": 2 if method == "Paillier" else 6,
        "learning_rate": 0.1,
        "optimizer": "sgd",
    }
    own |= {"encrypt_param": {"method": method}, "penalty": None, "tol": 1e-9}
    cut = slice(0, 40) if method == "Paillier" else slice(None)

    def trained(guest, host):
        ran = run_parts(
            "HeteroLR",
            {
                GUEST: PartInputs(own, {"train_data": [guest]}),
                HOST: PartInputs(own, {"train_data": [host]}),
                ARBITER: PartInputs(own),
            },
        )
        return [ran.outputs[party].model for party in (GUEST, HOST)]

    theirs = frame(MATRIX[:, 10:14])
    weights = weighed(with_column(COUNTS.astype(float)), sample_weight_name="w").take(cut)
    counts = COUNTS[cut]
    often = [one.take(np.repeat(np.arange(len(counts)), counts)) for one in (ROWS.take(cut), theirs.take(cut))]
    often = [PartyFrame(np.arange(len(one)).astype(str), one.columns, label=one.label) for one in often]
    found, truth = trained(weights, theirs.take(cut)), trained(*often)
    for one, other in zip(found, truth, strict=True):
        first, second = (
            np.array([list(each["weights"].values()) for each in model["models"]]) for model in (one, other)
        )
        assert first == pytest.approx(second, abs=1e-5)


def test_boosted_trees_and_the_baseline_count_rows():
    own = {"num_trees": 2, "encrypt_param": {"method": "plain"}, "tree_param": {"max_depth": 2}, "learning_rate": 0.5}
    heavy = weighed(class_weight={"0": 1, "1": 5})

    def scores(rows):
        theirs = frame(MATRIX[:, 10:])
        given = {GUEST: PartInputs(own, {"train_data": [rows]}), HOST: PartInputs(own, {"train_data": [theirs]})}
        return run_parts("HeteroSecureBoost", given).outputs[GUEST].data[0].columns["predict_score"].astype(float)

    assert scores(heavy).mean() > scores(ROWS).mean() + 0.02
    found = run_parts("LocalBaseline", {GUEST: PartInputs({}, {"train_data": [heavy]})}).outputs[GUEST].data[0]
    counts = np.where(Y == 1, 5, 1)
    truth = LogisticRegression().fit(MATRIX[:, :10], Y, sample_weight=counts / counts.mean())
    assert found.columns["predict_score"] == pytest.approx(truth.predict_proba(MATRIX[:, :10])[:, 1], abs=1e-6)


@pytest.mark.parametrize("module", ["HomoLR", "HomoSecureBoost", "HeteroSSHELR"])
def test_components_that_do_not_use_weights_say_so(module):
    given = {party: PartInputs({}, {"train_data": [weighed(class_weight="balanced")]}) for party in (GUEST, HOST)}
    given |= {} if module == "HeteroSSHELR" else {ARBITER: PartInputs({})}
    with pytest.raises(UsageError, match=f"{module} does not use weights"):
        run_parts(module, given)
