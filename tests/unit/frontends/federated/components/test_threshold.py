"""`predict_param.threshold`, which all components read alike."""

import numpy as np
import pytest

from tests.unit.frontends.federated.components.parts_of import ARBITER, GUEST, HOST, breast, frame
from weft.frontends.federated.components.predictions import RESULT, SCORE
from weft.model.errors import UsageError
from weft.testing.parts import PartInputs, run_parts

MATRIX, Y = breast()
MATRIX, Y = MATRIX[:60, :4], Y[:60]
NETWORK = {
    "config_type": "pytorch",
    "nn_define": [{"layer": "Linear", "type": "normal", "config": [2, 1]}, {"layer": "Sigmoid", "type": "activate"}],
    "optimizer": {"optimizer": "SGD", "lr": 0.1},
    "loss": "BCELoss",
}
TREES = {"num_trees": 1, "learning_rate": 1.0}
MODULES = [
    ("HeteroLR", {}),
    ("HeteroSecureBoost", TREES),
    ("HeteroSSHELR", {"reveal_every_iter": True, "reveal_strategy": "respectively"}),
    ("HomoLR", {}),
    ("HomoNN", NETWORK),
    ("HomoSecureBoost", TREES),
    ("LocalBaseline", {"model_name": "LogisticRegression", "model_opts": {}}),
]


def train(module, parameters):
    common = {"encrypt_param": {"method": "plain"}, "max_iter": 2} | parameters
    if module == "LocalBaseline":
        return run_parts(module, {GUEST: PartInputs(parameters, {"train_data": [frame(MATRIX, Y)]})})
    own = module.startswith("Homo")
    host = frame(MATRIX[30:, :2], Y[30:]) if own else frame(MATRIX[:, 2:], first=2)
    given = {
        GUEST: PartInputs(common, {"train_data": [frame(MATRIX[:30, :2], Y[:30]) if own else frame(MATRIX[:, :2], Y)]}),
        HOST: PartInputs(common, {"train_data": [host]}),
    }
    arbiter = {ARBITER: PartInputs(common)} if module not in ("HeteroSecureBoost", "HeteroSSHELR") else {}
    return run_parts(module, given | arbiter)


@pytest.mark.parametrize(("module", "parameters"), MODULES)
@pytest.mark.parametrize("threshold", [None, 0.3, 1])
def test_scores_from_the_threshold_on_are_the_second_class(module, parameters, threshold):
    rows = train(module, parameters | {"predict_param": {"threshold": threshold}}).outputs[GUEST].data[0]
    scores = rows.columns[SCORE].astype(float)
    expected = scores >= (0.5 if threshold is None else threshold)
    assert np.array_equal(rows.columns[RESULT].astype(int) == 1, expected)


@pytest.mark.parametrize(("module", "parameters"), MODULES)
@pytest.mark.parametrize("threshold", ["high", True])
def test_thresholds_that_are_no_numbers_are_named(module, parameters, threshold):
    with pytest.raises(UsageError, match=r"predict_param\.threshold is .*; it must be a number"):
        train(module, parameters | {"predict_param": {"threshold": threshold}})
