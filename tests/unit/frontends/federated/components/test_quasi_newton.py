"""The optimizer `sqn` against the same steps over pooled rows, with the matrix of BFGS written out."""

from typing import Any

import numpy as np
import pytest

from tests.unit.frontends.federated.components.parts_of import ARBITER, GUEST, HOST, HOST_2, breast, frame
from weft.frontends.federated.components.quasi_newton import QuasiNewton, factors_of
from weft.frontends.federated.wire import decode
from weft.model.errors import UsageError
from weft.testing.parts import PartInputs, run_parts

MATRIX, Y = breast()
MATRIX, Y = MATRIX[:150, :9], Y[:150]
TARGET = MATRIX @ np.arange(9) + np.sin(np.arange(150)) + 2
USUAL = {
    "optimizer": "sqn",
    "sqn_param": {"update_interval_L": 2, "memory_M": 3, "sample_size": 5000},
    "alpha": 0.01,
    "learning_rate": 0.3,
    "decay": 0,
    "batch_size": -1,
    "max_iter": 12,
    "tol": 0,
    "encrypt_param": {"method": "plain"},
}


def train(module="HeteroLR", parameters=USUAL, y=Y, cuts=(4, 9), rows=slice(None)):
    given = {GUEST: PartInputs(parameters, {"train_data": [frame(MATRIX[rows, : cuts[0]], y[rows])]})}
    for host, begin, end in zip((HOST, HOST_2), cuts, cuts[1:], strict=False):
        given[host] = PartInputs(parameters, {"train_data": [frame(MATRIX[rows, begin:end], first=begin)]})
    return run_parts(module, given | {ARBITER: PartInputs(parameters)})


def weights_of(ran):
    """Return the weights of all columns in their order, and the intercept."""
    found: dict[str, float] = {}
    intercept = 0.0
    for output in ran.outputs.values():
        one = (output.model or {}).get("models", [output.model])[0] or {}
        found |= one.get("weights", {})
        intercept += one.get("intercept", 0.0)
    return np.array([*(found[f"x{at}"] for at in range(len(found))), intercept])


def pooled(module="HeteroLR", parameters=USUAL, y=Y, matrix=MATRIX):
    """Return the weights that the steps over all columns make."""
    matrix = np.hstack([matrix, np.ones((len(matrix), 1))])
    curve, target = (0.25, 0.5 * np.where(y == 1, 1.0, -1.0)) if module == "HeteroLR" else (1.0, y)
    penalised = np.append(np.ones(matrix.shape[1] - 1), 0.0)
    weights, before, step = np.zeros(matrix.shape[1]), None, 0
    total = np.zeros(matrix.shape[1])
    pairs: list[Any] = []
    every, memory = parameters["sqn_param"]["update_interval_L"], parameters["sqn_param"]["memory_M"]
    size = len(matrix) if parameters["batch_size"] < 0 else parameters["batch_size"]
    for _ in range(parameters["max_iter"]):
        for begin in range(0, len(matrix), size):
            rows, step = matrix[begin : begin + size], step + 1
            gradient = rows.T @ (curve * rows @ weights - target[begin : begin + size]) / len(rows)
            gradient = gradient + parameters["alpha"] * weights * penalised
            inverse = np.eye(len(weights))
            if pairs:
                s, v = pairs[-1]
                inverse = inverse * (s @ v) / (v @ v)
            for s, v in pairs:
                left = np.eye(len(weights)) - np.outer(s, v) / (s @ v)
                inverse = left @ inverse @ left.T + np.outer(s, s) / (s @ v)
            total = total + weights
            weights = weights - parameters["learning_rate"] * inverse @ gradient
            if step % every == 0:
                mean, total = total / every, np.zeros(matrix.shape[1])
                if before is not None:
                    s = mean - before
                    v = curve * matrix.T @ (matrix @ s) / len(matrix) + parameters["alpha"] * s * penalised
                    pairs = [*pairs, (s, v)][-memory:]
                before = mean
    return weights


@pytest.mark.parametrize("cuts", [(4, 9), (3, 6, 9)])
@pytest.mark.parametrize(("module", "y"), [("HeteroLR", Y), ("HeteroLinR", TARGET)])
@pytest.mark.parametrize("change", [{}, {"batch_size": 60}, {"sqn_param": {"update_interval_L": 1, "memory_M": 1}}])
def test_the_steps_are_those_over_pooled_columns(module, y, cuts, change):
    parameters = USUAL | change | ({"early_stop": "weight_diff"} if len(cuts) > 2 else {})
    ran = train(module, parameters, y, cuts)
    assert weights_of(ran) == pytest.approx(pooled(module, parameters, y), rel=1e-5, abs=1e-7)


def test_it_is_faster_than_plain_descent():
    quasi, plain = (
        train("HeteroLinR", USUAL | {"optimizer": one, "learning_rate": 0.1, "max_iter": 30}, TARGET)
        for one in ("sqn", "sgd")
    )
    losses = [one.outputs[GUEST].model["losses"] for one in (quasi, plain)]
    assert losses[0][-1] < losses[1][-1]


def test_several_classes_and_samples_of_rows():
    parameters = USUAL | {"sqn_param": {"update_interval_L": 2, "memory_M": 3, "sample_size": 40, "random_seed": 7}}
    ran = train(parameters=parameters, y=Y + (MATRIX[:, 0] > 1))
    assert all(one["losses"][-1] < one["losses"][0] for one in ran.outputs[GUEST].model["models"])
    samples = [decode(one.data) for one in ran.sent if one.name.startswith("sample")]
    assert samples
    assert all(len(set(one.tolist())) == 40 for one in samples)


def test_encrypted_numbers_make_the_steps_of_plain_ones():
    parameters = USUAL | {"max_iter": 6}
    encrypted = train(parameters=parameters | {"encrypt_param": {"method": "Paillier"}}, rows=slice(0, 40))
    assert weights_of(encrypted) == pytest.approx(pooled(parameters=parameters, y=Y[:40], matrix=MATRIX[:40]), abs=1e-3)
    for one in encrypted.sent:
        if one.to == ARBITER and one.name.startswith("product"):
            assert set(decode(one.data)) >= {"cells", "scale"}, "products are encrypted"


def test_flat_pairs_are_left_out():
    flat = np.zeros((3, 3))
    flat[0, 2] = flat[2, 0] = 0.3
    assert factors_of(flat).tolist() == [0.0, 0.0, 1.0]


def test_pairs_follow_the_second_mean():
    plan = QuasiNewton(update_interval_L=3, memory_M=2)
    told = [plan.pairs(step) for step in range(1, 14)]
    assert [step for step, (_, follows) in enumerate(told, 1) if follows] == [6, 9, 12]
    assert [known for known, _ in told] == [0] * 6 + [1] * 3 + [2] * 4


@pytest.mark.parametrize("value", [0, 2.5, True, "3"])
def test_wrong_parameters_are_named(value):
    with pytest.raises(UsageError, match=r"sqn_param\.memory_M"):
        train(parameters=USUAL | {"sqn_param": {"memory_M": value}})


def test_other_models_have_no_such_steps():
    with pytest.raises(UsageError, match="optimizer is 'sqn'"):
        train("HeteroPoisson", USUAL, Y)
