"""Trainings that go on with a model, against those that were never interrupted."""

import numpy as np
import pytest

from tests.unit.frontends.federated.components.parts_of import ARBITER, GUEST, HOST, HOST_2, breast, frame
from tests.unit.frontends.federated.components.test_intersection import needs_spu, spu  # noqa: F401 - a fixture
from weft.frontends.federated.components.predictions import SCORE
from weft.model.errors import UsageError
from weft.testing.parts import PartInputs, run_parts

pytestmark = pytest.mark.slow

PLAIN = {"encrypt_param": {"method": "plain"}}
LINEAR = PLAIN | {"alpha": 0.01, "learning_rate": 0.1, "optimizer": "sgd", "batch_size": 40, "tol": 0}
TREES = PLAIN | {"learning_rate": 0.5, "n_iter_no_change": False, "tree_param": {"max_depth": 3}}
NETWORK = {
    "config_type": "pytorch",
    "nn_define": [{"layer": "Linear", "type": "normal", "config": [8, 1]}, {"layer": "Sigmoid", "type": "activate"}],
    "optimizer": {"optimizer": "SGD", "lr": 0.1},
    "loss": "BCELoss",
    "early_stop": {"early_stop": "diff", "eps": 0.0},
}
FIRST, LAST = ({"layer": "Linear", "type": "normal", "config": sizes} for sizes in ([8, 2], [2, 1]))
DEEPER = [FIRST, LAST, {"layer": "Sigmoid", "type": "activate"}]
MATRIX, Y = breast()
MATRIX, Y = MATRIX[:120, :8], Y[:120]
COUNTS = np.random.default_rng(0).poisson(2, 120)
CLASSES = np.arange(120) % 3 + (MATRIX[:, 0] > 0)


def rows_of(module, y):
    """Return the rows of each party: columns of its own, or rows of its own."""
    if module.startswith("Homo"):
        return {
            GUEST: frame(MATRIX[:50], y[:50]),
            HOST: frame(MATRIX[50:90], y[50:90]),
            HOST_2: frame(MATRIX[90:], y[90:]),
        }
    return {GUEST: frame(MATRIX[:, :3], y), HOST: frame(MATRIX[:, 3:], first=3)}


def train(module, parameters, y=Y, before=None, key="train_data", validate=False, given=None):
    """Train; `before` is the run whose models are gone on with."""
    rows, found = given or rows_of(module, y), {}
    for party, one in rows.items():
        models = {} if before is None else {"model": {"earlier_0": before.outputs[party].model}}
        data = {key: [one]} | ({"validate_data": [one]} if validate else {})
        found[party] = PartInputs(parameters, data, models)
    if module not in ("HeteroSecureBoost", "HeteroSSHELR", "HeteroSSHELinR"):
        found[ARBITER] = PartInputs(parameters, {}, {} if before is None else {"model": {"earlier_0": {}}})
    return run_parts(module, found)


def scores(ran):
    """Return the predictions of all parties."""
    found = [ran.outputs[one].data for one in (GUEST, HOST, HOST_2) if one in ran.outputs]
    return np.concatenate([one[0].columns[SCORE] for one in found if one and one[0]]).astype(float)


def numbers(model):
    """Return a model without what says how its last training ended."""
    if isinstance(model, dict):
        return {name: numbers(one) for name, one in model.items() if name not in ("converged", "shares")}
    return [numbers(one) for one in model] if isinstance(model, list) else model


def close(one, other):
    """Whether two models have the same form and almost the same numbers."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(close(one[name], other[name]) for name in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(close, one, other))
    return one == (pytest.approx(other, rel=1e-6, abs=1e-9) if isinstance(other, float) else other)


REGRESSION = {"task_type": "regression", "objective_param": {"objective": "lse"}}
CASES = [
    ("HeteroLR", LINEAR, "max_iter", Y),
    ("HeteroLR", LINEAR | {"optimizer": "sgd", "decay": 2, "penalty": "L1"}, "max_iter", CLASSES),
    ("HeteroLinR", LINEAR | {"learning_rate": 0.02}, "max_iter", COUNTS),
    ("HeteroPoisson", LINEAR | {"learning_rate": 0.01}, "max_iter", COUNTS),
    ("HomoLR", LINEAR | {"batch_size": -1}, "max_iter", Y),
    ("HomoLR", LINEAR | {"batch_size": -1, "decay": 1}, "max_iter", CLASSES),
    ("HeteroSecureBoost", TREES, "num_trees", Y),
    ("HeteroSecureBoost", TREES, "num_trees", CLASSES),
    ("HeteroSecureBoost", TREES | REGRESSION, "num_trees", COUNTS),
    ("HeteroSecureBoost", TREES | {"boosting_strategy": "mix", "complete_secure": True}, "num_trees", Y),
    ("HomoSecureBoost", TREES, "num_trees", Y),
    ("HomoSecureBoost", TREES, "num_trees", CLASSES),
    ("HomoSecureBoost", TREES | REGRESSION, "num_trees", COUNTS),
    ("HomoNN", NETWORK, "max_iter", Y),
]


@pytest.mark.parametrize(("module", "parameters", "rounds", "y"), CASES)
def test_two_rounds_and_three_more_are_five(module, parameters, rounds, y):
    more = 3 if rounds == "num_trees" else 5  # trees are added, and epochs counted from the first training on
    whole = train(module, parameters | {rounds: 5}, y)
    first = train(module, parameters | {rounds: 2}, y)
    ran = train(module, parameters | {rounds: more}, y, before=first)
    assert scores(ran) == pytest.approx(scores(whole), rel=1e-6, abs=1e-9)
    assert not np.allclose(scores(first), scores(whole))
    for party in whole.outputs:
        assert close(numbers(ran.outputs[party].model), numbers(whole.outputs[party].model))
    names = [name for name in whole.records[GUEST].curves if name[0] == "train"]
    for name in names:
        assert np.array(ran.records[GUEST].curves[name]) == pytest.approx(np.array(whole.records[GUEST].curves[name]))


@pytest.mark.parametrize("module", ["HeteroSSHELR", "HeteroSSHELinR"])
@pytest.mark.parametrize(
    "reveals",
    [
        {"reveal_strategy": "respectively", "reveal_every_iter": True},
        {"reveal_strategy": "respectively"},
        {"reveal_strategy": "encrypted_reveal_in_host"},
    ],
)
def test_shared_models_go_on(module, reveals):
    given = {GUEST: frame(MATRIX[:20, :2], Y[:20]), HOST: frame(MATRIX[:20, 2:4], first=2)}
    parameters = LINEAR | reveals | {"batch_size": 12, "decay": 1}
    whole = train(module, parameters | {"max_iter": 5}, given=given)
    first = train(module, parameters | {"max_iter": 2}, given=given)
    ran = train(module, parameters | {"max_iter": 5}, before=first, given=given)
    assert scores(ran) == pytest.approx(scores(whole), abs=1e-5)
    losses = [one.outputs[GUEST].model["models"][0]["losses"] for one in (ran, whole)]
    assert losses[0] == pytest.approx(losses[1], abs=1e-5)
    assert len(losses[0]) == 5


@needs_spu
@pytest.mark.usefixtures("spu")
def test_spu_goes_on():
    given = {GUEST: frame(MATRIX[:, :3], Y), HOST: frame(MATRIX[:, 3:], first=3)}
    parameters = LINEAR | {"encrypt_param": {}, "decay": 1, "batch_size": 60}
    whole = train("HeteroSSHELR", parameters | {"max_iter": 2}, given=given)
    first = train("HeteroSSHELR", parameters | {"max_iter": 1}, given=given)
    ran = train("HeteroSSHELR", parameters | {"max_iter": 2}, before=first, given=given)
    assert ran.records[GUEST].summaries["engine"].startswith("spu ")
    assert scores(ran) == pytest.approx(scores(whole), abs=2e-3)
    assert [one.outputs[HOST].model["models"][0]["epochs"] for one in (first, ran)] == [1, 2]
    again = train("HeteroSSHELR", parameters | {"max_iter": 2}, before=ran, given=given)
    assert scores(again) == pytest.approx(scores(ran))


@pytest.mark.parametrize("name", ["HeteroLR", "HeteroSecureBoost"])
def test_validation_counts_the_rounds_of_both_trainings(name):
    parameters = (LINEAR if name == "HeteroLR" else TREES) | {"validation_freqs": 1, "metrics": ["auc"]}
    rounds, more = ("max_iter", 5) if name == "HeteroLR" else ("num_trees", 3)
    whole = train(name, parameters | {rounds: 5}, validate=True)
    first = train(name, parameters | {rounds: 2}, validate=True)
    ran = train(name, parameters | {rounds: more}, before=first, validate=True)
    curve, all_of_it = (one.records[GUEST].curves["validate", "auc"] for one in (ran, whole))
    assert curve == all_of_it[2:]
    stops = parameters | {"early_stopping_rounds": 1}
    ended = train(name, stops | {rounds: more}, before=first, validate=True)
    assert 2 <= ended.records[GUEST].summaries["best_iteration"] <= 4


def test_epochs_that_were_all_done_leave_the_model_as_it_is():
    first = train("HeteroLR", LINEAR | {"max_iter": 3})
    again = train("HeteroLR", LINEAR | {"max_iter": 3}, before=first)
    assert numbers(again.outputs[HOST].model) == numbers(first.outputs[HOST].model)


def test_a_model_predicts_without_rows_to_train_with():
    for module, parameters in (("HomoLR", LINEAR | {"batch_size": -1}), ("HeteroLR", LINEAR)):
        first = train(module, parameters | {"max_iter": 2})
        again = train(module, parameters, before=first, key="test_data")
        assert scores(again) == pytest.approx(scores(first))


def test_the_epochs_of_a_trainer_are_those_of_this_training():
    network = {name: one for name, one in NETWORK.items() if name not in ("early_stop", "config_type")}
    param = {"epochs": 2, "batch_size": -1, "aggregate_every_n_epoch": 1}
    network["trainer"] = {"trainer_name": "fedavg_trainer", "param": param}
    network["nn_define"] = {
        "0-0": {"layer": "Linear", "in_features": 8, "out_features": 1, "bias": True},
        "1-1": {"layer": "Sigmoid"},
    }
    network["optimizer"] = {"optimizer": "SGD", "lr": 0.1}
    network["loss"] = {"loss_fn": "BCELoss"}
    first = train("HomoNN", network)
    ran = train("HomoNN", network, before=first)
    assert ran.outputs[GUEST].model["epochs"] == 4
    assert ran.outputs[GUEST].model["losses"][:2] == first.outputs[GUEST].model["losses"]


@pytest.mark.parametrize(
    ("module", "parameters", "change", "message"),
    [
        ("HeteroLR", LINEAR, {"cv_param": {"need_cv": True}}, "cannot go on with one"),
        ("HeteroLR", LINEAR, {"init_param": {"fit_intercept": False}}, "has an intercept"),
        ("HeteroSecureBoost", TREES, {"use_missing": True}, "use_missing"),
        ("HomoNN", NETWORK, {"nn_define": DEEPER}, "layers"),
    ],
)
def test_what_cannot_go_on_is_refused(module, parameters, change, message):
    first = train(module, parameters | {"max_iter": 1, "num_trees": 1})
    with pytest.raises(UsageError, match=message):
        train(module, parameters | change, before=first)


def test_other_columns_labels_or_models_are_refused():
    first = train("HeteroSecureBoost", TREES | {"num_trees": 1})
    given = rows_of("HeteroSecureBoost", Y)
    with pytest.raises(UsageError, match="has no column 'x7'"):
        train("HeteroSecureBoost", TREES, before=first, given=given | {HOST: frame(MATRIX[:, 3:7], first=3)})
    with pytest.raises(UsageError, match="has a column 'x3' more"):
        train("HeteroSecureBoost", TREES, before=first, given=given | {GUEST: frame(MATRIX[:, :4], Y)})
    with pytest.raises(UsageError, match="labels that it lacks"):
        train("HeteroSecureBoost", TREES, Y + 1, before=first)
    with pytest.raises(UsageError, match="the model is one of HeteroSecureBoost"):
        train("HeteroLR", LINEAR, before=first)


def test_models_of_different_trainings_are_refused():
    first, second = (train("HeteroLR", LINEAR | {"max_iter": count}) for count in (1, 2))
    second.outputs[GUEST] = first.outputs[GUEST]
    with pytest.raises(UsageError, match="different trainings"):
        train("HeteroLR", LINEAR, before=second)
