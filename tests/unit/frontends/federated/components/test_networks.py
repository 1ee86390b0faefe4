"""Gradients and steps of networks against differences of outputs, and formulas by hand."""

import numpy as np
import pytest

from weft.frontends.federated.components.links import softmax
from weft.frontends.federated.components.networks import (
    ACTIVATIONS,
    LOSSES,
    MULTI,
    REGRESSION,
    DenseNetwork,
    Stepper,
)

RANDOM = np.random.default_rng(3)
X = RANDOM.normal(size=(7, 4))


def linear(inputs, outputs, *, bias=True):
    start = ["uniform", 0, "torch"]
    return {"kind": "Linear", "in": inputs, "out": outputs, "bias": bias, "start": start, "bias_start": start}


def activation(kind):
    return {"kind": kind, "number": ACTIVATIONS[kind].default}


def slopes(loss_of, parameters):
    """Return the gradients by differences."""
    found = []
    for one in parameters:
        slope = np.zeros_like(one)
        for at in np.ndindex(one.shape):
            kept, values = one[at], []
            for step in (1e-6, -1e-6):
                one[at] = kept + step
                values.append(loss_of())
            one[at] = kept
            slope[at] = (values[0] - values[1]) / 2e-6
        found.append(slope)
    return found


def check(network, loss, target, number=0.0):
    parameters = network.start(np.random.default_rng(1))

    def both(outputs):
        return LOSSES[loss].both(outputs, target, number)

    value, found = network.gradients(parameters, X, both)
    assert value == pytest.approx(both(network.outputs(parameters, X))[0])
    for one, slope in zip(found, slopes(lambda: both(network.outputs(parameters, X))[0], parameters), strict=True):
        assert one == pytest.approx(slope, abs=1e-7)


@pytest.mark.parametrize("kind", list(ACTIVATIONS))
@pytest.mark.parametrize("bias", [True, False])
def test_layers(kind, bias):
    network = DenseNetwork([linear(4, 5), activation(kind), linear(5, 2, bias=bias)])
    check(network, "MSELoss", RANDOM.normal(size=(7, 2)))


@pytest.mark.parametrize("loss", list(LOSSES))
def test_losses(loss):
    task = LOSSES[loss].task
    width = 3 if task == MULTI else 1
    ends = {"BCELoss": "Sigmoid", "NLLLoss": "LogSoftmax", "CategoricalCrossentropy": "Softmax"}
    layers = [linear(4, 6), activation("Tanh"), linear(6, width)]
    if loss in ends:
        layers.append(activation(ends[loss]))
    target = np.eye(3)[RANDOM.integers(0, 3, 7)] if task == MULTI else RANDOM.integers(0, 2, (7, 1)).astype(float)
    if task == REGRESSION:
        target = RANDOM.normal(size=(7, 1)) * 3
    check(DenseNetwork(layers), loss, target, LOSSES[loss].default)


def test_values_of_losses():
    scores, classes = np.array([[2.0, -1.0, 0.5]]), np.array([[0.0, 0.0, 1.0]])
    wanted = -np.log(np.exp(0.5) / np.exp([2.0, -1.0, 0.5]).sum())
    logs = np.log(softmax(scores))
    for loss, outputs in (
        ("CrossEntropyLoss", scores),
        ("NLLLoss", logs),
        ("CategoricalCrossentropy", softmax(scores)),
    ):
        assert LOSSES[loss].both(outputs, classes, 0.0)[0] == pytest.approx(wanted)
        assert LOSSES[loss].probabilities(outputs) == pytest.approx(softmax(scores))
    assert LOSSES["BCEWithLogitsLoss"].both(np.array([[800.0]]), np.array([[0.0]]), 0.0)[0] == pytest.approx(800)
    assert LOSSES["SmoothL1Loss"].both(np.array([[3.0], [0.5]]), np.zeros((2, 1)), 1.0)[0] == pytest.approx(1.3125)


def test_dropout_keeps_the_mean_in_training_and_nothing_changes_later():
    network = DenseNetwork([linear(4, 400), {"kind": "Dropout", "number": 0.25}, linear(400, 1)])
    parameters = network.start(np.random.default_rng(1))
    seen = []

    def both(outputs):
        seen.append(outputs)
        return 0.0, np.ones_like(outputs)

    plain = network.outputs(parameters, X)
    for seed in range(300):
        network.gradients(parameters, X, both, np.random.default_rng(seed))
    assert np.mean(seen, axis=0) == pytest.approx(plain, abs=0.05)
    assert np.std([one[0] for one in seen]) > 0.01
    network.gradients(parameters, X, both)
    assert np.array_equal(seen[-1], plain)


def steps(how, gradients):
    stepper, at = Stepper({"weight_decay": 0.0} | how, [(1,)]), [np.array([1.0])]
    found = []
    for one in gradients:
        at = stepper.step(at, [np.array([one])])
        found.append(float(at[0][0]))
    return found


def test_steps_of_momentum():
    assert steps({"kind": "SGD", "lr": 0.1, "momentum": 0.0}, [1, 2]) == pytest.approx([0.9, 0.7])
    assert steps({"kind": "SGD", "lr": 0.1, "momentum": 0.9}, [1, 2]) == pytest.approx([0.9, 0.9 - 0.1 * 2.9])
    nesterov = {"kind": "SGD", "lr": 0.1, "momentum": 0.9, "nesterov": True}
    assert steps(nesterov, [1, 2]) == pytest.approx([1 - 0.19, 0.81 - 0.1 * (2 + 0.9 * 2.9)])
    dampened = {"kind": "SGD", "lr": 0.1, "momentum": 0.9, "dampening": 0.5}
    assert steps(dampened, [1, 2]) == pytest.approx([0.9, 0.9 - 0.1 * 1.9])


def test_steps_of_adaptive_rates():
    adam = {"lr": 0.1, "betas": [0.9, 0.999], "eps": 0.0}
    assert steps({"kind": "Adam"} | adam, [4])[0] == pytest.approx(0.9)
    first, second = (0.1 * 0.9 * 4 + 0.1 * 2) / (1 - 0.81), (0.999 * 0.001 * 16 + 0.001 * 4) / (1 - 0.999**2)
    assert steps({"kind": "Adam"} | adam, [4, 2])[1] == pytest.approx(0.9 - 0.1 * first / np.sqrt(second))
    assert steps({"kind": "AdamW"} | adam | {"weight_decay": 0.5}, [4])[0] == pytest.approx(0.95 - 0.1)
    rms = {"kind": "RMSprop", "lr": 0.1, "alpha": 0.75, "eps": 0.0, "momentum": 0.0}
    assert steps(rms, [4])[0] == pytest.approx(1 - 0.1 * 4 / 2)
    grad = {"kind": "Adagrad", "lr": 0.1, "lr_decay": 1.0, "eps": 0.0}
    assert steps(grad, [3, 4]) == pytest.approx([0.9, 0.9 - 0.05 * 4 / 5])


def test_weight_decay_draws_to_zero():
    assert steps({"kind": "SGD", "lr": 0.1, "momentum": 0.0, "weight_decay": 0.5}, [0])[0] == pytest.approx(0.95)


def test_how_parameters_start():
    wide = linear(100, 400) | {"start": ["uniform", 0, "glorot"], "bias_start": ["constant", 0.0, 0.0]}
    weights, bias = DenseNetwork([wide]).start(np.random.default_rng(0))
    assert np.abs(weights).max() == pytest.approx(np.sqrt(6 / 500), rel=0.01)
    assert not bias.any()
    weights, bias = DenseNetwork([linear(100, 400)]).start(np.random.default_rng(0))
    assert np.abs(weights).max() == pytest.approx(0.1, rel=0.01)
    assert np.abs(bias).max() == pytest.approx(0.1, rel=0.05)
    normal = DenseNetwork([wide | {"start": ["normal", 0, "he"]}]).start(np.random.default_rng(0))[0]
    assert normal.std() == pytest.approx(np.sqrt(2 / 100), rel=0.02)
