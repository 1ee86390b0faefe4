from functools import cache

import numpy as np
import pytest
from sklearn.datasets import load_diabetes, load_wine
from sklearn.linear_model import LinearRegression
from sklearn.metrics import accuracy_score, r2_score, roc_auc_score
from sklearn.neural_network import MLPClassifier
from sklearn.preprocessing import StandardScaler

from tests.unit.frontends.federated.components.parts_of import GUEST, HOST, HOST_2, breast, frame, run_against
from weft.frontends.federated.components.predictions import SCORE
from weft.frontends.federated.wire import decode
from weft.model.errors import PartyMessageError, UsageError
from weft.testing.parts import PartInputs, run_parts

pytestmark = pytest.mark.slow

MATRIX, Y = breast()
PLAIN = {"encrypt_param": {"method": "plain"}}
PAILLIER = {"encrypt_param": {"method": "Paillier"}}


def dense(units, activation, **more):
    return {"class_name": "Dense", "config": {"units": units, "activation": activation} | more}


def keras(*layers):
    return {"class_name": "Sequential", "config": {"name": "s", "layers": list(layers)}, "backend": "tensorflow"}


def torch_linear(inputs, outputs, **more):
    return {"layer": "Linear", "in_features": inputs, "out_features": outputs, "bias": True, "initializer": {}} | more


USUAL = {
    "epochs": 30,
    "interactive_layer_lr": 0.15,
    "batch_size": 100,
    "optimizer": {"optimizer": "SGD", "learning_rate": 0.15, "decay": 0.0, "momentum": 0.0, "nesterov": False},
    "loss": "binary_crossentropy",
    "bottom_nn_define": keras(dense(4, "relu", batch_input_shape=[None, 99])),
    "interactive_layer_define": keras(dense(3, "tanh")),
    "top_nn_define": keras(dense(1, "sigmoid")),
    "config_type": "keras",
} | PLAIN
CONSTANT = {"kernel_initializer": {"class_name": "Constant", "config": {"value": 0.1}}}
SAME_START = {
    "bottom_nn_define": keras(dense(2, "relu", **CONSTANT)),
    "interactive_layer_define": keras(dense(2, "linear", **CONSTANT)),
    "top_nn_define": keras(dense(1, "sigmoid", **CONSTANT)),
}
TORCH_ADAM = {"optimizer": "Adam", "lr": 0.02, "betas": [0.9, 0.999], "eps": 1e-8, "config_type": "pytorch"}
TORCH = USUAL | {
    "config_type": "pytorch",
    "optimizer": TORCH_ADAM,
    "loss": {"loss_fn": "BCELoss", "reduction": "mean"},
    "bottom_nn_define": None,
    "interactive_layer_define": {"0-0": torch_linear(9, 4)},
    "top_nn_define": {"0-0": torch_linear(4, 1), "1-1": {"layer": "Sigmoid", "initializer": {}}},
}


def train(parameters=USUAL, *, matrix=MATRIX, y=Y, cut=(10, 30), rows=slice(None), validate=None, each=()):
    """Train with the first columns at the guest, and the others at one host or two; `each` has parameters by party."""
    given = {}
    for party, begin, end in zip((GUEST, HOST, HOST_2), (0, *cut), cut, strict=False):
        labels = y if party == GUEST else None
        own = parameters | dict(each).get(party, {})
        data = {"train_data": [frame(matrix[rows, begin:end], None if labels is None else labels[rows], first=begin)]}
        if validate is not None:
            chosen = None if labels is None else labels[validate]
            data["validate_data"] = [frame(matrix[validate, begin:end], chosen, first=begin)]
        given[party] = PartInputs(own, data)
    return run_parts("HeteroNN", given)


def predict(ran, parameters=USUAL, *, cut=(10, 30)):
    given = {}
    for party, begin, end in zip((GUEST, HOST, HOST_2), (0, *cut), cut, strict=False):
        data = {"test_data": [frame(MATRIX[:, begin:end], first=begin)]}
        given[party] = PartInputs(parameters, data, {"model": {"m": ran.outputs[party].model}})
    return run_parts("HeteroNN", given)


def column(ran, name=SCORE):
    return ran.outputs[GUEST].data[0].columns[name]


def torch_bottoms(width=5):
    """Return the bottom networks of PyTorch for 10 and 20 columns."""
    layers = {party: {"0-0": torch_linear(inputs, width), "1-1": {"layer": "ReLU"}} for party, inputs in COLUMNS}
    return {party: {"bottom_nn_define": one} for party, one in layers.items()}


COLUMNS = ((GUEST, 10), (HOST, 20))


# --------------------------------------------------------------------------------------------- the same as in one place


def pooled(start, epochs, size, rate, layer_rate):
    """Train the network of USUAL in one place, from the parameters of a start; return the scores of all rows."""
    (guest, guest_bias), (host, host_bias), (own, other, bias), (top, top_bias) = start
    for _ in range(epochs):
        for begin in range(0, len(Y), size):
            rows = slice(begin, min(begin + size, len(Y)))
            x, z, y = MATRIX[rows, :10], MATRIX[rows, 10:], Y[rows, None]
            one, two = np.maximum(x @ guest.T + guest_bias, 0), np.maximum(z @ host.T + host_bias, 0)
            middle = np.tanh(one @ own + two @ other + bias)
            wrong = (1 / (1 + np.exp(-(middle @ top.T + top_bias))) - y) / len(y)
            back = wrong @ top * (1 - middle**2)
            down, side = back @ own.T * (one > 0), back @ other.T * (two > 0)
            top, top_bias = top - rate * wrong.T @ middle, top_bias - rate * wrong.sum(axis=0)
            own, other = own - layer_rate * one.T @ back, other - layer_rate * two.T @ back
            bias = bias - layer_rate * back.sum(axis=0)
            guest, guest_bias = guest - rate * down.T @ x, guest_bias - rate * down.sum(axis=0)
            host, host_bias = host - rate * side.T @ z, host_bias - rate * side.sum(axis=0)
    one, two = np.maximum(MATRIX[:, :10] @ guest.T + guest_bias, 0), np.maximum(MATRIX[:, 10:] @ host.T + host_bias, 0)
    return 1 / (1 + np.exp(-(np.tanh(one @ own + two @ other + bias) @ top.T + top_bias)))[:, 0]


def weights_of(ran, bits=40):
    """Return the parameters of all parties: those of the layer are sums of what guest and host have."""
    guest, host = ran.outputs[GUEST].model, ran.outputs[HOST].model
    other = np.array(guest["hosts"][0], dtype=object).astype(object)
    noise = [
        [int(one) + int(two) for one, two in zip(*rows, strict=True)] for rows in zip(other, host["noise"], strict=True)
    ]
    layer = np.array(guest["own"]), np.array(noise, dtype=float) / 2**bits, np.array(guest["bias"])
    bottoms = [list(map(np.array, one)) for one in (guest["bottom_parameters"], host["parameters"])]
    return *bottoms, layer, list(map(np.array, guest["top_parameters"]))


def test_the_network_is_that_of_all_columns_in_one_place():
    exact = USUAL | {"floating_point_precision": None, "epochs": 5}
    still = {"interactive_layer_lr": 1e-12, "optimizer": {"optimizer": "SGD", "lr": 0}, "epochs": 1}
    start = weights_of(train(exact | still))
    assert column(train(exact)) == pytest.approx(pooled(start, 5, 100, 0.15, 0.15), abs=1e-9)
    usual = train(USUAL | {"epochs": 5})
    assert column(usual) == pytest.approx(pooled(start, 5, 100, 0.15, 0.15), abs=1e-4)


@cache
def best_score():
    best = MLPClassifier((8, 3), max_iter=2000, random_state=1).fit(MATRIX, Y)
    return roc_auc_score(Y, best.predict_proba(MATRIX)[:, 1])


@pytest.mark.parametrize("cut", [(10, 30), (10, 20, 30)])
def test_the_network_is_as_good_as_that_of_the_pooled_columns(cut):
    ran = train(cut=cut)
    assert roc_auc_score(Y, column(ran)) > 0.95 * best_score()
    losses = ran.outputs[GUEST].model["losses"]
    assert losses[-1] < 0.3 * losses[0]
    assert [one for _, one in ran.records[GUEST].curves["train", "loss"]] == losses


def test_torch_files_of_the_older_and_the_newer_form():
    newer = {"layer": "InteractiveLayer", "out_dim": 4, "activation": "relu", "dropout": 0.2, "host_num": 1}
    newer |= {"need_guest": True, "guest_dim": 5, "host_dim": 5, "guest_bias": True, "host_bias": True}
    for layer in ({"0-0": torch_linear(9, 4)}, {"0-0": newer | {"initializer": {}}}):
        ran = train(TORCH | {"interactive_layer_define": layer, "epochs": 10}, each=torch_bottoms())
        assert roc_auc_score(Y, column(ran)) > 0.97
        assert len(ran.outputs[GUEST].model["after"]) == (layer["0-0"]["layer"] == "InteractiveLayer")
    hosts_alone = {"interactive_layer_define": {"0-0": newer | {"need_guest": False}}, "epochs": 2}
    alone = train(TORCH | hosts_alone, each=torch_bottoms())
    assert alone.outputs[GUEST].model["own"] == []


def test_a_guest_with_labels_alone():
    matrix = np.hstack([MATRIX[:, :0], MATRIX])
    ran = train(USUAL | {"epochs": 15}, matrix=matrix, cut=(0, 30))
    assert roc_auc_score(Y, column(ran)) > 0.97
    assert ran.outputs[GUEST].model["bottom_parameters"] == []


def test_more_classes():
    matrix, y = load_wine(return_X_y=True)
    matrix = StandardScaler().fit_transform(matrix)
    many = USUAL | {"loss": "categorical_crossentropy", "top_nn_define": keras(dense(3, "softmax")), "epochs": 30}
    ran = train(many | {"batch_size": 30}, matrix=matrix, y=y, cut=(5, 13))
    assert accuracy_score(y, column(ran, "predict_result").astype(int)) > 0.95


def test_a_regression():
    matrix, y = load_diabetes(return_X_y=True)
    matrix, y = StandardScaler().fit_transform(matrix), (y - y.mean()) / y.std()
    parameters = USUAL | {"loss": "mean_squared_error", "top_nn_define": keras(dense(1, None)), "epochs": 60}
    parameters |= {"task_type": "regression", "interactive_layer_lr": 0.05}
    parameters |= {"optimizer": {"optimizer": "SGD", "learning_rate": 0.05}}
    ran = train(parameters, matrix=matrix, y=y, cut=(4, 10))
    assert r2_score(y, column(ran)) > 0.95 * LinearRegression().fit(matrix, y).score(matrix, y)


# -------------------------------------------------------------------------------------------------------------- secrecy


def test_encrypted_numbers_make_the_network_of_plain_ones():
    rows = slice(0, 24)
    small = USUAL | SAME_START | {"epochs": 2, "batch_size": 12}
    plain, encrypted = (train(small | how, rows=rows, cut=(2, 4)) for how in (PLAIN, PAILLIER))
    assert column(plain) == pytest.approx(column(encrypted), abs=1e-5)
    assert len(set(np.round(column(plain), 6))) > 5


def test_no_column_label_output_or_weight_crosses_in_the_open():
    rows = slice(12, 24)
    ran = train(USUAL | PAILLIER | {"epochs": 2, "batch_size": -1}, rows=rows, cut=(2, 4))
    bottom = ran.outputs[HOST].model["parameters"]
    outputs = np.maximum(MATRIX[rows, 2:4] @ np.array(bottom[0]).T + bottom[1], 0)
    secret = [*MATRIX[rows, :4].T, Y[rows].astype(float), Y[rows].astype(np.int64), *outputs.T, *np.array(bottom[0])]
    crossed = set()
    for one in ran.sent:
        crossed.add(one.name)
        value = decode(one.data)
        assert not isinstance(value, np.ndarray)
        for values in secret:
            assert values.tobytes() not in one.data
            assert values[:3].tobytes() not in one.data or not values[:3].any()
    names = {"rows", "key", "width", "schedule", "spread", "validation", "end"}
    names |= {"outputs", "products", "shown", "gradient", "noise", "back", "noisy"}
    assert crossed == names


def test_neither_party_knows_the_weights_and_gradients_of_the_layer():
    ran = train(USUAL | {"epochs": 1, "batch_size": -1})
    both = ran.outputs[GUEST].model["hosts"][0], ran.outputs[HOST].model["noise"]
    for one in both:
        assert np.median([abs(int(value)) for row in one for value in row]) > 2**50
    sums = np.array([[int(one) for one in row] for row in both[0]], dtype=object) + np.array(
        [[int(one) for one in row] for row in both[1]], dtype=object
    )
    assert max(abs(one) for one in sums.ravel()) < 4 * 2**23
    noisy = [value for one in ran.sent if one.name == "noisy" for value in decode(one.data)]
    assert len(noisy) == 12
    assert np.median([abs(one) for one in noisy]) > 2**70


def test_encrypted_networks_do_not_start_from_a_seed():
    rows = slice(12, 24)
    found = [train(USUAL | PAILLIER | {"epochs": 1}, rows=rows, cut=(2, 4)).outputs[HOST].model for _ in range(2)]
    assert found[0]["parameters"] != found[1]["parameters"]
    plain = [train(USUAL | {"epochs": 1, "seed": seed}).outputs[HOST].model["parameters"] for seed in (1, 1, 2)]
    assert plain[0] == plain[1] != plain[2]


def test_a_plain_key_of_the_host_alone_is_refused():
    with pytest.raises(PartyMessageError, match="key"):
        train(USUAL | PAILLIER, each={HOST: PLAIN}, rows=slice(12, 24))


# ------------------------------------------------------------------------------------------------ predictions and ends


@pytest.mark.parametrize("cut", [(10, 30), (10, 20, 30)])
def test_a_prediction_is_that_of_the_fit(cut):
    ran = train(USUAL | {"epochs": 3}, cut=cut)
    again = predict(ran, cut=cut)
    assert column(again) == pytest.approx(column(ran), abs=1e-12)
    assert set(column(again, "type")) == {"test"}
    assert again.outputs[HOST].data[0] is None


def test_an_early_end_keeps_the_network_of_the_best_epoch():
    stop = {"callbacks": ["EarlyStopping"], "validation_freqs": 1, "early_stopping_rounds": 3, "metrics": ["AUC"]}
    parameters = USUAL | {"callback_param": stop | {"use_first_metric_only": True}, "epochs": 60, "tol": 0}
    ran = train(parameters, rows=slice(0, 400), validate=slice(400, 569))
    summary = ran.records[GUEST].summaries
    assert summary["is_early_stopped"]
    values, best = summary["validation"]["auc"], summary["best_iteration"]
    assert len(values) < 60
    assert best == int(np.argmax(values))
    validated = column(ran, "type") == "validate"
    assert roc_auc_score(Y[400:], column(ran)[validated]) == pytest.approx(values[best])


def test_the_training_ends_when_the_loss_stays():
    model = train(USUAL | {"tol": 0.01, "early_stop": "diff"}).outputs[GUEST].model
    assert model["converged"]
    assert abs(model["losses"][-1] - model["losses"][-2]) < 0.01
    assert len(model["losses"]) < 30


def test_drop_out_and_batches():
    ran = train(USUAL | {"drop_out_keep_rate": 0.8, "batch_size": 64, "epochs": 15})
    assert roc_auc_score(Y, column(ran)) > 0.95
    assert column(predict(ran)) == pytest.approx(column(ran), abs=1e-12)


def test_cross_validation():
    ran = train(USUAL | {"cv_param": {"need_cv": True, "n_splits": 2}, "epochs": 10})
    assert ran.records[GUEST].metrics["validate_mean", "auc"] > 0.95


def test_what_is_done_otherwise_is_said():
    more = {"floating_point_precision": 8, "epochs": 1, "callback_param": {"callbacks": ["ModelCheckpoint"]}}
    assert [note.split()[0] for note in train(USUAL | more).records[GUEST].summaries["notes"]] == [
        "floating_point_precision",
        "ModelCheckpoint",
    ]
    short = USUAL | {"encrypt_param": {"key_length": 1024}, "epochs": 1}
    ran = train(short, rows=slice(12, 24), cut=(2, 4))
    assert "2048" in ran.records[HOST].summaries["notes"][0]


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"bottom_nn_define": None}, "bottom_nn_define is missing"),
        ({"top_nn_define": None}, "top_nn_define is missing"),
        ({"interactive_layer_define": None}, "interactive_layer_define is missing"),
        ({"interactive_layer_define": keras(dense(3, None), dense(3, None))}, "has 2 layers"),
        ({"interactive_layer_define": {"0-0": {"layer": "InteractiveLayer", "out_dim": 0}}}, "out_features 0"),
        ({"interactive_layer_define": {"layer": "InteractiveLayer", "out_dim": 2, "dropout": 2}}, "drops 2"),
        ({"top_nn_define": keras(dense(2, "sigmoid"))}, "2 outputs"),
        ({"top_nn_define": keras(dense(1, None))}, "top_nn_define must end with Sigmoid"),
        ({"interactive_layer_lr": 0}, "interactive_layer_lr is 0"),
        ({"drop_out_keep_rate": 0}, "drop-out keeps is 0"),
        ({"drop_out_keep_rate": 1.5}, "drop-out keeps is 1.5"),
        ({"early_stop": "abs"}, "early_stop"),
        ({"epochs": 0}, "epochs is 0"),
        ({"task_type": "regression"}, "task_type is regression"),
        ({"selector_param": {"method": "relative"}}, r"selector_param\.method"),
        ({"coae_param": {"enable": True}}, r"coae_param\.enable"),
        ({"encrypt_param": {"method": "rot13"}}, "rot13"),
        ({"dataset": {"dataset_name": "image"}}, "image"),
        ({"interactive_layer_lr": 1e30}, "diverged|too many steps"),
        ({"optimizer": {"optimizer": "SGD", "lr": 1e30}}, "diverged"),
    ],
)
def test_wrong_parameters_are_named(parameters, message):
    with pytest.raises(UsageError, match=message):
        train(USUAL | parameters, rows=slice(0, 60))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("schedule", {"epochs": 1}),
        ("schedule", {"epochs": 1, "batch_size": 0, "rate": 0.1, "units": 2, "bits": 23, "tol": 0.0, "keep": 1.0}),
        ("schedule", {"epochs": 1, "batch_size": 9, "rate": 0.1, "units": 0, "bits": 23, "tol": 0.0, "keep": 1.0}),
        ("spread", -1.0),
        ("end", 1),
    ],
)
def test_messages_of_the_guest_that_are_none(name, value):
    good = {"epochs": 1, "batch_size": -1, "rate": 0.1, "units": 2, "bits": 23, "tol": 0.0, "keep": 1.0}
    sent = {"rows": 6, "schedule": good, "spread": 0.5, "validation": None, name: value}
    sent |= {"products": {"plain": [0]}, "gradient": {"plain": [0]}, "back": {"plain": [0]}}
    given = PartInputs(USUAL, {"train_data": [frame(MATRIX[:6, 2:4], first=2)]})
    with pytest.raises(PartyMessageError):
        run_against("HeteroNN", HOST, given, {(GUEST, key): one for key, one in sent.items()})
