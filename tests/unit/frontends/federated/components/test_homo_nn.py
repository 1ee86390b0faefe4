import json

import numpy as np
import pytest
from sklearn.datasets import load_diabetes, load_wine
from sklearn.linear_model import LinearRegression
from sklearn.metrics import accuracy_score, r2_score
from sklearn.neural_network import MLPClassifier
from sklearn.preprocessing import StandardScaler

from tests.unit.frontends.federated.components.parts_of import ARBITER, GUEST, HOST, HOST_2, breast, frame
from weft.frontends.federated.components.predictions import SCORE
from weft.frontends.federated.wire import decode
from weft.model.errors import UsageError
from weft.testing.parts import PartInputs, run_parts

MATRIX, Y = breast()
CUTS = {GUEST: slice(0, 200), HOST: slice(200, None)}
THREE = {GUEST: slice(0, 100), HOST: slice(100, 300), HOST_2: slice(300, None)}
ADAM = {"optimizer": "Adam", "lr": 0.01, "betas": [0.9, 0.999], "eps": 1e-08, "weight_decay": 0, "amsgrad": False}
BCE = {"weight": None, "size_average": None, "reduce": None, "reduction": "mean", "loss_fn": "BCELoss"}


def torch_linear(inputs, outputs):
    return {
        "bias": True,
        "device": None,
        "dtype": None,
        "in_features": inputs,
        "out_features": outputs,
        "layer": "Linear",
        "initializer": {},
    }


def trainer(**values):
    return {"trainer_name": "fedavg_trainer", "param": {"epochs": 20, "batch_size": 64} | values}


DEEP = {
    "10-10": {"layer": "Sigmoid", "initializer": {}},
    "0-0": torch_linear(30, 16),
    "1-1": {"layer": "ReLU", "initializer": {}},
    "2-2": torch_linear(16, 1),
}
USUAL = {"nn_define": DEEP, "loss": BCE, "optimizer": ADAM, "trainer": trainer(), "torch_seed": 100}
OLD = {
    "config_type": "pytorch",
    "nn_define": [
        {"layer": "Linear", "name": "line1", "type": "normal", "config": [30, 6]},
        {"layer": "Relu", "type": "activate", "name": "relu"},
        {"layer": "Linear", "name": "line2", "type": "normal", "config": [6, 1]},
        {"layer": "Sigmoid", "type": "activate", "name": "sigmoid"},
    ],
    "batch_size": -1,
    "optimizer": {"optimizer": "Adam", "lr": 0.05},
    "early_stop": {"early_stop": "diff", "eps": 0.0001},
    "loss": "BCELoss",
    "metrics": ["accuracy"],
    "max_iter": 30,
}


def dense(units, activation, **more):
    config = {"units": units, "activation": activation, "use_bias": True, "trainable": True, "kernel_regularizer": None}
    kernel = {"class_name": "GlorotUniform", "config": {"seed": None, "dtype": "float32"}}
    config |= {"kernel_initializer": kernel, "bias_initializer": {"class_name": "Zeros", "config": {}}}
    return {"class_name": "Dense", "config": config | more}


def keras(*layers):
    return {
        "class_name": "Sequential",
        "config": {"name": "sequential", "layers": list(layers)},
        "backend": "tensorflow",
    }


KERAS = OLD | {
    "config_type": "keras",
    "nn_define": keras(dense(6, "relu", batch_input_shape=[None, 30]), dense(1, "sigmoid")),
    "loss": "binary_crossentropy",
    "optimizer": {"optimizer": "Adam", "learning_rate": 0.05, "decay": 0.0, "beta_1": 0.9, "epsilon": 1e-07},
}


def train(parameters=USUAL, *, matrix=MATRIX, y=Y, cuts=CUTS, validate=None):
    given = {}
    for party, rows in cuts.items():
        data = {"train_data": [frame(matrix[rows], y[rows])]}
        if validate is not None:
            data["validate_data"] = [frame(*validate)]
        given[party] = PartInputs(parameters, data)
    return run_parts("HomoNN", given | {ARBITER: PartInputs(parameters)})


def results_of(ran, cuts=CUTS, column="predict_result"):
    return np.concatenate([ran.outputs[one].data[0].columns[column] for one in cuts]).astype(float)


@pytest.mark.parametrize("parameters", [USUAL, OLD, KERAS])
@pytest.mark.parametrize("cuts", [CUTS, THREE])
def test_the_network_is_as_good_as_that_of_the_pooled_rows(parameters, cuts):
    ran = train(parameters, cuts=cuts)
    best = MLPClassifier((16,), max_iter=20, batch_size=64, learning_rate_init=0.01, random_state=1)
    with pytest.warns(UserWarning, match="converge"):
        best.fit(MATRIX, Y)
    assert accuracy_score(Y, results_of(ran, cuts)) > 0.95 * best.score(MATRIX, Y)
    losses = ran.outputs[GUEST].model["losses"]
    assert losses[-1] < 0.3 * losses[0]
    for party in cuts:
        assert ran.outputs[party].model == ran.outputs[GUEST].model
        assert [one for _, one in ran.records[party].curves["train", "loss"]] == losses


SGD = {"optimizer": {"optimizer": "SGD", "lr": 0.5}, "trainer": trainer(batch_size=-1, epochs=10)}


def test_full_batches_of_plain_steps_are_those_of_the_pooled_rows():
    layers = {"0-0": torch_linear(30, 1), "1-1": {"layer": "Sigmoid"}}
    start = train(
        USUAL | {"nn_define": layers, "optimizer": {"optimizer": "SGD", "lr": 0}, "trainer": trainer(epochs=1)}
    )
    weights = np.array([*start.outputs[GUEST].model["parameters"][0][0], *start.outputs[GUEST].model["parameters"][1]])
    matrix = np.hstack([MATRIX, np.ones((569, 1))])
    for _ in range(10):
        weights = weights - 0.5 * matrix.T @ (1 / (1 + np.exp(-matrix @ weights)) - Y) / 569
    for cuts in (CUTS, THREE):
        found = train(USUAL | {"nn_define": layers} | SGD, cuts=cuts).outputs[HOST].model["parameters"]
        assert [*found[0][0], *found[1]] == pytest.approx(weights, abs=1e-6)


def test_the_mean_may_be_without_row_counts():
    rounds = {"optimizer": {"optimizer": "SGD", "lr": 0.5}}
    layers = {"0-0": torch_linear(30, 1) | {"bias": False}, "1-1": {"layer": "Sigmoid"}}
    found = {}
    for name, more in (("start", {"epochs": 1}), ("mean", {"epochs": 1, "weighted_aggregation": False})):
        lr = 0 if name == "start" else 0.5
        parameters = USUAL | rounds | {"nn_define": layers, "optimizer": {"optimizer": "SGD", "lr": lr}}
        ran = train(parameters | {"trainer": trainer(batch_size=-1, **more)})
        found[name] = np.array(ran.outputs[GUEST].model["parameters"][0][0])
    steps = []
    for rows in CUTS.values():
        scores = 1 / (1 + np.exp(-MATRIX[rows] @ found["start"]))
        steps.append(found["start"] - 0.5 * MATRIX[rows].T @ (scores - Y[rows]) / len(Y[rows]))
    assert found["mean"] == pytest.approx(np.mean(steps, axis=0), abs=1e-6)


def test_rounds_of_several_epochs():
    ran = train(USUAL | {"trainer": trainer(aggregate_every_n_epoch=5, epochs=12)})
    assert len(ran.outputs[GUEST].model["losses"]) == 3
    assert accuracy_score(Y, results_of(ran)) > 0.9


def test_more_classes():
    matrix, y = load_wine(return_X_y=True)
    matrix = StandardScaler().fit_transform(matrix)
    cuts = {GUEST: slice(0, 100), HOST: slice(100, 178)}
    parameters = USUAL | {"loss": {"loss_fn": "CrossEntropyLoss", "ignore_index": -100, "label_smoothing": 0.0}}
    parameters |= {"optimizer": ADAM | {"lr": 0.05}, "trainer": trainer(epochs=30)}
    parameters |= {"dataset": {"dataset_name": "table", "param": {"flatten_label": True, "label_dtype": "long"}}}
    ends = {
        "CrossEntropyLoss": [[], [{"dim": 1, "layer": "Softmax"}]],
        "NLLLoss": [[{"dim": 1, "layer": "LogSoftmax"}]],
    }
    for loss, found in ends.items():
        for end in found:
            given = parameters | {"loss": {"loss_fn": loss}, "nn_define": [torch_linear(13, 3), *end]}
            ran = train(given, matrix=matrix, y=y, cuts=cuts)
            assert accuracy_score(y, results_of(ran, cuts)) > 0.95
    old = KERAS | {"nn_define": keras(dense(8, "relu"), dense(3, "softmax")), "encode_label": True}
    ran = train(old | {"loss": "categorical_crossentropy"}, matrix=matrix, y=y, cuts=cuts)
    assert accuracy_score(y, results_of(ran, cuts)) > 0.95


def test_a_keras_file_for_another_number_of_inputs_takes_those_there_are():
    layers = keras(dense(6, "relu", batch_input_shape=[None, 10]), dense(1, "sigmoid"))
    model = train(KERAS | {"nn_define": layers, "max_iter": 1}).outputs[GUEST].model
    assert np.shape(model["parameters"][0]) == (6, 30)


def test_categorical_crossentropy_after_sigmoids_divides_by_their_sum():
    matrix, y = load_wine(return_X_y=True)
    matrix, cuts = StandardScaler().fit_transform(matrix), {GUEST: slice(0, 100), HOST: slice(100, 178)}
    given = KERAS | {"nn_define": keras(dense(8, "relu"), dense(3, "sigmoid")), "loss": "categorical_crossentropy"}
    ran = train(given, matrix=matrix, y=y, cuts=cuts)
    assert accuracy_score(y, results_of(ran, cuts)) > 0.95
    for detail in ran.outputs[GUEST].data[0].columns["predict_detail"]:
        assert sum(json.loads(detail).values()) == pytest.approx(1)


@pytest.mark.parametrize(
    ("initializer", "low", "high"),
    [
        ({"init_type": "weight", "init_func": "constant", "param": {"val": 0.5}}, 0.5, 0.5),
        ({"init_type": "weight", "init_func": "uniform", "param": {"a": 2, "b": 3}}, 2, 3),
        ({"init_type": "weight", "init_func": "xavier_uniform", "param": {"gain": 1.0}}, -0.45, 0.45),
        ({"init_type": "weight", "init_func": "ones", "param": {}}, 1, 1),
    ],
)
def test_initializers_of_torch(initializer, low, high):
    layers = [torch_linear(30, 1) | {"initializer": {"weight": initializer, "bias": {"init_func": "zeros"}}}]
    given = USUAL | {"nn_define": [*layers, {"layer": "Sigmoid"}], "trainer": trainer(epochs=1)}
    weights, bias = train(given | {"optimizer": ADAM | {"lr": 0}}).outputs[GUEST].model["parameters"]
    assert np.min(weights) >= low - 1e-6
    assert np.max(weights) <= high + 1e-6
    assert bias == pytest.approx([0])


@pytest.mark.parametrize("unit", [1, 1e6])
def test_a_regression(unit):
    matrix, y = load_diabetes(return_X_y=True)
    matrix, y = StandardScaler().fit_transform(matrix), (y - y.mean()) / y.std() * unit
    parameters = USUAL | {"nn_define": {"0-0": torch_linear(10, 1)}, "loss": {"loss_fn": "MSELoss"}}
    parameters |= {"trainer": trainer(epochs=50, task_type="regression"), "optimizer": {"optimizer": "SGD", "lr": 0.05}}
    ran = train(parameters, matrix=matrix, y=y)
    best = LinearRegression().fit(matrix, y).score(matrix, y)
    assert r2_score(y, results_of(ran, column=SCORE)) > 0.95 * best


def test_early_stop():
    for stop, tol in (("diff", 0.02), ("abs", 0.2)):
        model = train(USUAL | {"trainer": trainer(epochs=100, early_stop=stop, tol=tol)}).outputs[HOST].model
        losses = model["losses"]
        assert model["converged"]
        assert 2 <= len(losses) < 100
        assert (abs(losses[-1] - losses[-2]) if stop == "diff" else losses[-1]) < tol
    assert not train(USUAL | {"trainer": trainer(tol=100)}).outputs[HOST].model["converged"]


def test_a_prediction_is_that_of_the_fit():
    ran = train()
    given = {
        party: PartInputs(USUAL, {"test_data": [frame(MATRIX[rows])]}, {"model": {"m": ran.outputs[party].model}})
        for party, rows in CUTS.items()
    }
    again = run_parts("HomoNN", given | {ARBITER: PartInputs(USUAL, {}, {"model": {"m": {}}})})
    assert np.array_equal(results_of(again, column=SCORE), results_of(ran, column=SCORE))
    assert {one.name for one in again.sent} == {"goes_on"}


def test_validation_and_evaluation():
    ran = train(validate=(MATRIX, Y))
    predictions = ran.outputs[HOST].data[0]
    assert predictions.columns["type"].tolist() == ["train"] * 369 + ["validate"] * 569
    metrics = run_parts("Evaluation", {HOST: PartInputs({}, {"data": [predictions]})}).records[HOST].metrics
    assert metrics["validate", "auc"] > 0.98


def test_the_seed_chooses_the_start():
    found = [train(USUAL | {"torch_seed": seed}).outputs[GUEST].model["parameters"] for seed in (1, 1, 2)]
    assert found[0] == found[1]
    assert found[0] != found[2]


def test_no_parameters_cross_in_the_open():
    ran = train(USUAL | {"trainer": trainer(epochs=1)}, cuts=THREE)
    values = [(one.name, decode(one.data)) for one in ran.sent]
    total = next(value for name, value in values if name == "total" and value.dtype == float and len(value) > 100)
    covered = [one["words"].astype(np.int64) / 2.0**36 for name, one in values if name == "covered" and one]
    updates = [one for one in covered if one.shape == total.shape]
    assert len(updates) == 3
    assert np.mod(sum(updates) - total + 2.0**26, 2.0**28) == pytest.approx(2.0**26, abs=1e-6)
    for one in updates:  # random: almost all are far from any parameter
        assert (np.abs(one) > 1e3).mean() > 0.99


def test_what_is_done_otherwise_is_said():
    ran = train(OLD | {"secure_aggregate": False, "max_iter": 1})
    notes = ran.records[HOST].summaries["notes"]
    assert [note.split()[0] for note in notes] == ["secure_aggregate", "metrics"]
    assert train(USUAL | {"trainer": trainer(validation_freqs=1, epochs=1)}).records[GUEST].summaries["notes"]


def layers_of(*layers):
    return USUAL | {"nn_define": list(layers)}


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"nn_define": None}, "nn_define is missing"),
        ({"nn_define": [{"layer": "LSTM"}]}, "layer 'LSTM'"),
        ({"nn_define": [{"layer": "SELU"}, torch_linear(30, 1)], "loss": "BCEWithLogitsLoss"}, "'SELU', which needs"),
        ({"nn_define": [{"layer": "os.system", "config": ["ls"]}]}, "os.system"),
        ({"nn_define": [torch_linear(29, 1)]}, "29 inputs, and there are 30"),
        ({"nn_define": [torch_linear(30, 2), {"layer": "Sigmoid"}]}, "2 outputs"),
        ({"nn_define": [torch_linear(30, 1)]}, "must end with Sigmoid"),
        ({"nn_define": [{"layer": "Sigmoid"}]}, "no layer with weights"),
        ({"nn_define": {"first": torch_linear(30, 1)}}, "no layer"),
        ({"nn_define": [torch_linear(30, 0)]}, "out_features 0"),
        ({"nn_define": [torch_linear(30, 1) | {"initializer": {"weight": "orthogonal"}}]}, "initializer"),
        ({"nn_define": [{"layer": "Dropout", "p": 1.0}]}, "Dropout of 1"),
        ({"nn_define": [{"layer": "Softmax", "dim": 0}]}, "another dim"),
        ({"nn_define": [{"layer": "Linear", "config": [30, 1, True, 9]}]}, "4 arguments"),
        ({"nn_define": keras(dense(1, "gelu"))}, "gelu"),
        ({"nn_define": keras(dense(1, "relu", kernel_regularizer={"l2": 1}))}, "kernel_regularizer"),
        ({"nn_define": keras({"class_name": "LSTM", "config": {}})}, "LSTM"),
        ({"loss": "Hinge"}, "Hinge"),
        ({"loss": BCE | {"reduction": "sum"}}, "reduction"),
        ({"loss": BCE | {"weight": [1, 2]}}, r"loss\.weight"),
        ({"optimizer": {"optimizer": "LBFGS"}}, "LBFGS"),
        ({"optimizer": {"optimizer": "Adamax"}}, "Adamax, which needs PyTorch"),
        ({"optimizer": ADAM | {"amsgrad": True}}, "amsgrad"),
        ({"optimizer": ADAM | {"lr": "fast"}}, r"optimizer\.lr"),
        ({"optimizer": ADAM | {"betas": [0.9, 1.0]}}, "betas"),
        ({"trainer": {"trainer_name": "fedprox_trainer"}}, "fedprox_trainer"),
        ({"trainer": trainer(cuda=0, collate_fn="f")}, "collate_fn"),
        ({"trainer": trainer(epochs=0)}, "epochs is 0"),
        ({"trainer": trainer(early_stop="weight_diff")}, "early_stop"),
        ({"trainer": trainer(task_type="multi")}, "task_type is multi"),
        ({"trainer": trainer(unknown=False)}, "unknown"),
        ({"dataset": {"dataset_name": "image"}}, "image"),
        ({"ds_config": {"stage": 2}}, "ds_config"),
        ({"cv_param": {"need_cv": True}}, "need_cv"),
        ({"optimizer": {"optimizer": "SGD", "lr": 1e30}, "trainer": trainer(epochs=3)}, "diverged"),
    ],
)
def test_wrong_parameters_are_named(parameters, message):
    with pytest.raises(UsageError, match=message):
        train(USUAL | parameters)


@pytest.mark.parametrize(
    "given",
    [
        [{"layer": "Sequential", "0-0": torch_linear(30, 4), "1-1": {"layer": "Tanh"}}, torch_linear(4, 1)],
        [{"layer": "Dense", "units": 4, "activation": "tanh"}, {"layer": "Dense", "units": 1}],
        keras(
            {"class_name": "InputLayer", "config": {"batch_input_shape": [None, 30]}},
            dense(4, "linear"),
            {"class_name": "Activation", "config": {"activation": "tanh"}},
            dense(1, None),
        ),
    ],
)
def test_forms_of_the_same_network(given):
    model = train(USUAL | {"nn_define": given, "loss": "BCEWithLogitsLoss"}).outputs[GUEST].model
    assert [one["kind"] for one in model["layers"]] == ["Linear", "Tanh", "Linear"]
    assert [np.shape(one) for one in model["parameters"]] == [(4, 30), (4,), (1, 4), (1,)]


def test_dropout_is_for_the_training_alone():
    layers = [torch_linear(30, 16), {"layer": "ReLU"}, {"layer": "Dropout", "p": 0.5}, torch_linear(16, 1)]
    ran = train(USUAL | {"nn_define": layers, "loss": "BCEWithLogitsLoss"})
    assert accuracy_score(Y, results_of(ran)) > 0.93
    first, bias, last, shift = map(np.array, ran.outputs[GUEST].model["parameters"])
    scores = np.maximum(MATRIX[CUTS[HOST]] @ first.T + bias, 0) @ last.T + shift
    assert ran.outputs[HOST].data[0].columns[SCORE] == pytest.approx(1 / (1 + np.exp(-scores[:, 0])))


def test_parties_that_do_not_fit_each_other():
    good = PartInputs(USUAL, {"train_data": [frame(MATRIX[:50], Y[:50])]})
    other = USUAL | {"optimizer": ADAM | {"lr": 0.5}}
    given = {GUEST: good, HOST: PartInputs(other, {"train_data": [frame(MATRIX[:50], Y[:50])]})}
    with pytest.raises(UsageError, match="optimizer is"):
        run_parts("HomoNN", given | {ARBITER: PartInputs(USUAL)})
