"""HomoNN by PyTorch: the same steps as on NumPy, and what NumPy does not run. Needs the environment of the provider."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_diabetes, load_digits, load_wine
from sklearn.metrics import accuracy_score
from sklearn.preprocessing import StandardScaler

from tests.program_forks import forking_environment
from tests.unit.frontends.federated.components.parts_of import ARBITER, GUEST, HOST, frame
from tests.unit.frontends.federated.components.test_homo_nn import (
    CUTS,
    KERAS,
    MATRIX,
    OLD,
    USUAL,
    Y,
    results_of,
    torch_linear,
    train,
    trainer,
)
from weft.frontends.federated.components.homo_training import LocalPlan, local_training
from weft.frontends.federated.components.network_files import DescriptionReader
from weft.frontends.federated.components.predictions import SCORE
from weft.model.errors import UsageError
from weft.testing.parts import PartInputs, PartRecord, run_parts

ROOT = Path(__file__).parents[5]
GIVEN = [Path(os.environ["WEFT_TORCH"])] if os.environ.get("WEFT_TORCH") else []
PLACES = [*GIVEN, ROOT / ".providers" / "torch", ROOT / ".frameworks" / "torch"]
TORCH = next((one for one in PLACES if one.exists()), None)
needs_torch = pytest.mark.skipif(TORCH is None, reason="no PyTorch in .providers/torch: make providers, or WEFT_TORCH")
SHORT = {"trainer": trainer(epochs=3)}


@pytest.fixture(scope="module")
def loaded_torch(tmp_path_factory):
    """The environment, whose programs fork: loading PyTorch and its optimizers takes seconds."""
    assert TORCH is not None
    with forking_environment(TORCH, tmp_path_factory.mktemp("t") / "torch", ("torch", "torch._dynamo")) as home:
        yield home


@pytest.fixture
def by_torch(monkeypatch, tmp_path, loaded_torch):
    """Return a function that lets all parties have PyTorch from then on."""
    monkeypatch.chdir(tmp_path)
    yield lambda: monkeypatch.setenv("WEFT_TORCH", str(loaded_torch))
    assert list(tmp_path.iterdir()) == []


def flat(ran, party=GUEST):
    return np.concatenate([np.ravel(one) for one in ran.outputs[party].model["parameters"]])


def backend(ran, party=GUEST):
    return ran.records[party].summaries["backend"].split()[0]


class Part:
    """What a training needs of a part."""

    component, here = "homo_nn_0", GUEST

    def __init__(self, parameters):
        self.parameters, self.tracker = parameters, PartRecord()


def one_party(parameters, *, matrix, target, by_torch):
    """Train five epochs in batches at one party; return the parameters and the losses."""
    part: Any = Part(parameters)
    reader = DescriptionReader(part, by_torch=True)
    plan = LocalPlan(reader.layers(matrix.shape[1]), reader.loss(), reader.optimizer(), 50, True, (1, 2))
    with local_training(part, plan, matrix, target, by_torch=by_torch) as work:
        vector, losses = work.start(np.random.default_rng(3)), []
        for epochs in (2, 3):
            vector, loss = work.train(vector, epochs)
            losses.append(loss)
        return vector, losses, work.shapes


BINARY = StandardScaler().fit_transform(MATRIX), Y[:, None].astype(float)
WINE, KINDS = load_wine(return_X_y=True)
WINE = StandardScaler().fit_transform(WINE), np.eye(3)[KINDS]
DIABETES, PROGRESS = load_diabetes(return_X_y=True)
DIABETES = DIABETES, ((PROGRESS - PROGRESS.mean()) / PROGRESS.std())[:, None]
SGD = {"optimizer": "SGD", "lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01}


def hidden(inputs, outputs, *last, layer="Tanh"):
    return [torch_linear(inputs, 4), {"layer": layer}, torch_linear(4, outputs), *({"layer": one} for one in last)]


@needs_torch
@pytest.mark.parametrize(
    ("rows", "layers", "loss", "optimizer"),
    [
        (BINARY, hidden(30, 1, "Sigmoid"), "BCELoss", SGD),
        (BINARY, hidden(30, 1, layer="ELU"), "BCEWithLogitsLoss", {"optimizer": "Adam", "weight_decay": 0.1}),
        (BINARY, hidden(30, 1, layer="LeakyReLU"), "SoftMarginLoss", {"optimizer": "AdamW", "lr": 0.01}),
        (WINE, hidden(13, 3, layer="Softplus"), "CrossEntropyLoss", {"optimizer": "Adagrad", "lr_decay": 0.1}),
        (WINE, hidden(13, 3, "LogSoftmax"), "NLLLoss", SGD),
        (WINE, hidden(13, 3, "Softmax"), "categorical_crossentropy", SGD),
        (DIABETES, hidden(10, 1), "MSELoss", {"optimizer": "RMSprop", "lr": 0.01, "momentum": 0.5}),
        (DIABETES, hidden(10, 1, layer="Flatten"), "L1Loss", {"optimizer": "SGD", "lr": 0.1}),
        (DIABETES, hidden(10, 1, layer="Identity"), "SmoothL1Loss", SGD),
        (DIABETES, hidden(10, 1), {"loss_fn": "HuberLoss", "delta": 0.5}, SGD),
    ],
)  # fmt: skip
def test_torch_takes_the_steps_of_numpy(by_torch, rows, layers, loss, optimizer):
    parameters = {"nn_define": layers, "loss": loss, "optimizer": optimizer}
    usual = one_party(parameters, matrix=rows[0], target=rows[1], by_torch=False)
    by_torch()
    found = one_party(parameters, matrix=rows[0], target=rows[1], by_torch=True)
    assert found[0] == pytest.approx(usual[0], abs=1e-8)
    assert found[1:] == (pytest.approx(usual[1], abs=1e-8), usual[2])


@needs_torch
def test_a_program_that_loads_torch_itself_takes_the_same_steps(by_torch, monkeypatch):
    parameters = {"nn_define": hidden(30, 1, "Sigmoid"), "loss": "BCELoss", "optimizer": SGD}
    by_torch()
    usual = one_party(parameters, matrix=BINARY[0], target=BINARY[1], by_torch=True)
    monkeypatch.setenv("WEFT_TORCH", str(TORCH))
    found = one_party(parameters, matrix=BINARY[0], target=BINARY[1], by_torch=True)
    assert np.array_equal(found[0], usual[0])
    assert found[1:] == usual[1:]


@needs_torch
@pytest.mark.parametrize("parameters", [OLD | {"max_iter": 3}, KERAS | {"max_iter": 3}])
def test_parties_learn_what_they_learn_on_numpy(by_torch, parameters):
    usual = train(parameters)
    by_torch()
    ran = train(parameters)
    assert (backend(usual), backend(ran)) == ("numpy", "torch")
    assert flat(ran) == pytest.approx(flat(usual), abs=1e-6)
    assert ran.outputs[HOST].model["losses"] == pytest.approx(usual.outputs[HOST].model["losses"], abs=1e-6)


CONVOLVED = [
    {"layer": "Unflatten", "dim": 1, "unflattened_size": [1, 5, 6]},
    {"layer": "Conv2d", "in_channels": 1, "out_channels": 4, "kernel_size": 3, "padding": 1},
    {"layer": "BatchNorm2d", "num_features": 4},
    {"layer": "ReLU"},
    {"layer": "MaxPool2d", "kernel_size": 2},
    {"layer": "Flatten"},
    torch_linear(24, 1),
    {"layer": "Sigmoid"},
]
NORMAL = [torch_linear(30, 8), {"layer": "BatchNorm1d", "num_features": 8}, {"layer": "Selu"}, torch_linear(8, 1)]
NORMAL = [*NORMAL, {"layer": "Sigmoid"}]


@needs_torch
@pytest.mark.parametrize(
    "parameters",
    [
        {"nn_define": CONVOLVED},
        {"nn_define": NORMAL, "trainer": trainer(epochs=10, batch_size=92)},  # the last batch of 369 rows has one
        {"optimizer": {"optimizer": "Adamax", "lr": 0.02}},
        {"optimizer": {"optimizer": "Adam", "lr": 0.01, "amsgrad": True}},
    ],
)
def test_what_numpy_does_not_run_learns_alike_everywhere(by_torch, parameters):
    by_torch()
    ran = train(USUAL | {"trainer": trainer(epochs=10)} | parameters)
    assert accuracy_score(Y, results_of(ran)) > 0.93
    assert ran.outputs[HOST].model == ran.outputs[GUEST].model
    assert backend(ran, HOST) == "torch"


@needs_torch
def test_a_prediction_is_that_of_the_fit(by_torch):
    by_torch()
    parameters = USUAL | SHORT | {"nn_define": [*NORMAL[:3], {"layer": "Dropout", "p": 0.5}, *NORMAL[3:]]}
    ran = train(parameters)
    given = {
        party: PartInputs(parameters, {"test_data": [frame(MATRIX[rows])]}, {"model": {"m": ran.outputs[party].model}})
        for party, rows in CUTS.items()
    }
    again = run_parts("HomoNN", given | {ARBITER: PartInputs(parameters, {}, {"model": {"m": {}}})})
    assert np.array_equal(results_of(again, column=SCORE), results_of(ran, column=SCORE))


DIGITS = [
    {"layer": "Conv2d", "in_channels": 1, "out_channels": 6, "kernel_size": [3, 3]},
    {"layer": "MaxPool2d", "kernel_size": 2},
    {"layer": "ReLU"},
    {"layer": "Dropout2d", "p": 0.1},
    {"layer": "Flatten"},
    {"layer": "Linear", "in_features": 54, "out_features": 10},
    {"layer": "LogSoftmax"},
]
"""The kinds of layers of the demonstration of FATE over images of digits."""


@needs_torch
def test_a_first_convolution_reads_rows_as_images(by_torch):
    by_torch()
    matrix, y = load_digits(return_X_y=True)
    cuts = {GUEST: slice(0, 900), HOST: slice(900, None)}
    parameters = OLD | {"nn_define": DIGITS, "loss": "NLLLoss", "encode_label": True, "batch_size": 32, "max_iter": 10}
    parameters |= {"optimizer": {"optimizer": "Adam", "lr": 0.01}, "early_stop": {"early_stop": "diff", "eps": 1e-6}}
    ran = train(parameters, matrix=matrix / 16, y=y, cuts=cuts)
    assert accuracy_score(y, results_of(ran, cuts)) > 0.93


@needs_torch
@pytest.mark.parametrize(
    ("layers", "message"),
    [
        ([{"layer": "BatchNorm1d", "num_features": 29}, torch_linear(30, 1)], "PyTorch refuses the network: .*29"),
        ([{"layer": "Hardtanh", "min_val": "low"}, torch_linear(30, 1)], "PyTorch refuses the network"),
        ([torch_linear(30, 1), {"layer": "Unflatten", "dim": 1, "unflattened_size": [1, 1]}], "shape"),
        ([{"layer": "GLU"}, {"layer": "Linear", "out_features": 1}], "without in_features"),
        ([{"layer": "Conv1d", "kernel_size": {"a": 1}}, torch_linear(30, 1)], "kernel_size is"),
    ],
)
def test_what_torch_refuses_is_told(by_torch, layers, message):
    by_torch()
    with pytest.raises(UsageError, match=message):
        train(USUAL | {"nn_define": layers, "loss": "BCEWithLogitsLoss"})


@pytest.mark.parametrize(
    ("program", "told"),
    [
        ("echo no memory >&2; exit 3", "PyTorch has failed with exit code 3 at guest 1"),
        ("read line; kill -9 $$", "PyTorch was ended by SIGKILL, perhaps since the memory was full, at guest 1"),
        ("""read line; echo '{"error": "sizes differ"}'; read line""", "PyTorch refuses the network: sizes differ"),
    ],
)
def test_the_end_of_the_program_is_told(monkeypatch, tmp_path, program, told):
    home = tmp_path / "environment"
    (home / "lib/python3.11/site-packages/torch-9.9.dist-info").mkdir(parents=True)
    (home / "bin").mkdir()
    (home / "bin/python").write_text(f"#!/bin/sh\n{program}\n")
    (home / "bin/python").chmod(0o755)
    monkeypatch.setenv("WEFT_TORCH", str(home))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=told):
        one_party({"nn_define": hidden(30, 1)} | {"loss": "MSELoss"}, matrix=MATRIX, target=BINARY[1], by_torch=True)
    assert [one.name for one in tmp_path.iterdir()] == ["environment"]


def test_an_environment_without_torch_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv("WEFT_TORCH", str(tmp_path))
    with pytest.raises(UsageError, match="WEFT_TORCH names an environment without torch"):
        train()
