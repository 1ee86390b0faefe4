import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from tests.unit.frontends.federated.components.parts_of import GUEST, HOST, HOST_2, breast, frame
from weft.frontends.federated.components.predictions import SCORE
from weft.frontends.federated.wire import decode
from weft.model.errors import PartyMessageError, UsageError
from weft.testing.parts import PartInputs, run_parts

pytestmark = pytest.mark.slow

MATRIX, Y = breast()
GUEST_ROWS, HOST_ROWS = slice(0, 400), slice(200, 569)
COMMON = slice(200, 400)


def keras(units, activation, value=None):
    config = {"units": units, "activation": activation, "dtype": None}
    kernel = {"class_name": "RandomNormal", "config": {"mean": 0.0, "stddev": 0.3, "seed": None}}
    if value is not None:
        kernel = {"class_name": "Constant", "config": {"value": value}}
    layer = {"class_name": "Dense", "config": config | {"kernel_initializer": kernel}}
    return {"class_name": "Sequential", "config": {"layers": [layer]}, "backend": "tensorflow"}


USUAL = {
    "epochs": 30,
    "alpha": 1,
    "batch_size": -1,
    "mode": "plain",
    "optimizer": {"optimizer": "Adam", "learning_rate": 0.05, "decay": 0.0, "beta_1": 0.9, "epsilon": 1e-07},
    "nn_define": keras(8, "sigmoid"),
    "config_type": "keras",
}
ENCRYPTED = {"mode": "encrypted", "encrypt_param": {"method": "plain"}}
PAILLIER = {"mode": "encrypted", "encrypt_param": {"method": "Paillier"}}
SGD = {"optimizer": {"optimizer": "SGD", "learning_rate": 0.002}}


def rows_of(columns, rows, *, labels):
    found = frame(MATRIX[:, columns], Y if labels else None, first=columns.start)
    return found.take(np.arange(len(MATRIX))[rows])


def given_to(party, parameters, key, rows, models=None):
    guest = party == GUEST
    data = {key: [rows_of(slice(0, 10) if guest else slice(10, 30), rows, labels=guest)]}
    return PartInputs(parameters, data, models or {})


def train(parameters=USUAL, *, guest=GUEST_ROWS, host=HOST_ROWS, hosts=None):
    given = {GUEST: given_to(GUEST, parameters, "train_data", guest)}
    return run_parts("FTL", given | {HOST: given_to(HOST, parameters | (hosts or {}), "train_data", host)})


def predictions(ran):
    return ran.outputs[GUEST].data[0]


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def reference(start, epochs, rate, alpha=1.0):
    """Descend along the loss of both networks in one place, and return the scores of common rows."""
    (a, a0), (b, b0) = start
    x, z, y = MATRIX[GUEST_ROWS, :10], MATRIX[COMMON, 10:], np.where(Y[GUEST_ROWS] == 1, 1.0, -1.0)
    common = y[COMMON]
    for _ in range(epochs):
        v, u = sigmoid(x @ a.T + a0), sigmoid(z @ b.T + b0)
        phi = (y[:, None] * v).mean(axis=0)
        by_score = alpha * (-0.5 * common + 0.25 * u @ phi)
        back_u = by_score[:, None] * phi - v[COMMON] / len(phi)
        back_v = np.outer(y, by_score @ u) / len(y)
        back_v[COMMON] -= u / len(phi)
        back_u, back_v = back_u * u * (1 - u), back_v * v * (1 - v)
        a, a0 = a - rate * back_v.T @ x, a0 - rate * back_v.sum(axis=0)
        b, b0 = b - rate * back_u.T @ z, b0 - rate * back_u.sum(axis=0)
    v, u = sigmoid(x @ a.T + a0), sigmoid(z @ b.T + b0)
    return sigmoid(u @ (y[:, None] * v).mean(axis=0))


@pytest.mark.parametrize("mode", [{}, ENCRYPTED])
def test_the_networks_are_those_of_one_place(mode):
    still = train(USUAL | {"optimizer": {"optimizer": "SGD", "lr": 0}, "epochs": 1} | mode)
    start = [list(map(np.array, still.outputs[one].model["parameters"])) for one in (GUEST, HOST)]
    ran = train(USUAL | SGD | {"epochs": 20} | mode)
    found = predictions(ran)
    assert found.ids.tolist() == [f"id{at}" for at in range(200, 400)]
    assert found.columns[SCORE] == pytest.approx(reference(start, 20, 0.002), abs=1e-7)


@pytest.mark.parametrize("mode", [{}, ENCRYPTED])
def test_common_rows_are_told_apart_as_well_as_with_all_columns(mode):
    both = LogisticRegression().fit(MATRIX[COMMON], Y[COMMON]).decision_function(MATRIX[COMMON])
    ran = train(USUAL | mode)
    assert roc_auc_score(Y[COMMON], predictions(ran).columns[SCORE]) > 0.95 * roc_auc_score(Y[COMMON], both)
    losses = ran.outputs[GUEST].model["losses"]
    assert losses[-1] < losses[0]
    assert [one for _, one in ran.records[GUEST].curves["train", "loss"]] == losses


def test_both_modes_have_the_same_losses():
    plain, hidden = (train(USUAL | {"epochs": 5} | mode).outputs[GUEST].model["losses"] for mode in ({}, ENCRYPTED))
    assert plain == pytest.approx(hidden, abs=1e-6)


@pytest.mark.parametrize("mode", [{}, ENCRYPTED])
def test_a_prediction_of_rows_that_only_the_host_knew(mode):
    parameters = USUAL | mode
    ran = train(parameters)
    given = {}
    for party in (GUEST, HOST):
        models = {"model": {"m": ran.outputs[party].model}}
        given[party] = given_to(party, parameters, "test_data", slice(350, 569), models)
    found = predictions(run_parts("FTL", given))
    assert set(found.columns["type"]) == {"test"}
    assert roc_auc_score(Y[400:], found.columns[SCORE][50:]) > 0.9
    assert found.columns[SCORE][:50] == pytest.approx(predictions(ran).columns[SCORE][150:], abs=1e-7)


def test_several_steps_in_an_epoch_need_fewer_values():
    saving = {"communication_efficient": True, "local_round": 5, "epochs": 6}
    ran, other = train(USUAL | saving), train(USUAL | {"epochs": 30})
    assert roc_auc_score(Y[COMMON], predictions(ran).columns[SCORE]) > 0.9
    assert sum(len(one.data) for one in ran.sent) < 0.5 * sum(len(one.data) for one in other.sent)
    hidden = train(USUAL | saving | ENCRYPTED)
    assert predictions(hidden).columns[SCORE] == pytest.approx(predictions(ran).columns[SCORE], abs=1e-6)


def test_the_training_ends_when_the_loss_stays():
    model = train(USUAL | {"n_iter_no_change": True, "tol": 0.05, "epochs": 100}).outputs[GUEST].model
    assert model["converged"]
    assert len(model["losses"]) < 100


def test_a_deeper_network_in_the_open():
    layers = keras(8, "tanh")["config"]["layers"] + keras(4, "sigmoid")["config"]["layers"]
    deep = {"nn_define": {"class_name": "Sequential", "config": {"layers": layers}}}
    assert roc_auc_score(Y[COMMON], predictions(train(USUAL | deep)).columns[SCORE]) > 0.95
    with pytest.raises(UsageError, match="not one linear layer"):
        train(USUAL | deep | ENCRYPTED)


def test_encrypted_numbers_make_the_networks_of_plain_ones():
    small = USUAL | SGD | {"nn_define": keras(2, "tanh", 0.1), "epochs": 2}
    rows = {"guest": slice(10, 40), "host": slice(24, 60)}
    plain, hidden = train(small, **rows), train(small | PAILLIER, **rows)
    assert predictions(plain).columns[SCORE] == pytest.approx(predictions(hidden).columns[SCORE], abs=1e-7)
    assert hidden.records[GUEST].summaries["key_length"] == 2048


def test_nothing_crosses_in_the_open_where_it_is_encrypted():
    ran = train(
        USUAL | PAILLIER | {"epochs": 2, "nn_define": keras(2, "tanh")}, guest=slice(10, 40), host=slice(24, 60)
    )
    common, y = slice(24, 40), np.where(Y[24:40] == 1, 1.0, -1.0)
    parameters = [np.array(one) for party in (GUEST, HOST) for one in ran.outputs[party].model["parameters"]]
    outputs = np.tanh(MATRIX[common, 10:] @ parameters[2].T + parameters[3])
    secret = [
        *MATRIX[common].T,
        y,
        *outputs.T,
        *parameters[0],
        *parameters[2],
        np.array(ran.outputs[GUEST].model["phi"]),
    ]
    names = set()
    for one in ran.sent:
        names.add(one.name)
        for values in secret:
            assert values.tobytes() not in one.data
            assert values[:3].tobytes() not in one.data or len(values) < 3
        if one.name == "shown":
            value = decode(one.data)
            assert all(abs(number) > 2**150 for number in value)
    assert {one for one in names if "/" not in one} == {
        *("plan", "key", "square", "linear", "hidden", "shown", "end", "outputs"),
    }


def test_a_mode_in_the_open_says_so():
    assert "mode is plain" in train(USUAL | {"epochs": 1}).records[GUEST].summaries["notes"][0]


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"mode": "open"}, "mode is 'open'"),
        ({"epochs": 0}, "epochs is 0"),
        ({"nn_define": {}}, "nn_define is missing"),
        ({"alpha": -1}, "alpha is -1"),
        ({"local_round": 0, "communication_efficient": True}, "local_round is 0"),
        ({"optimizer": {"optimizer": "Nadam"}}, "Nadam"),
        ({"intersect_param": {"intersect_method": "magic"}}, "magic"),
        ({"callback_param": {"callbacks": ["EarlyStopping"], "early_stopping_rounds": 2}}, "early_stopping_rounds"),
    ],
)
def test_wrong_parameters_are_named(parameters, message):
    with pytest.raises(UsageError, match=message):
        train(USUAL | parameters)


def test_parties_that_do_not_fit_each_other():
    with pytest.raises(UsageError, match="mode is"):
        train(USUAL, hosts=ENCRYPTED)
    with pytest.raises(UsageError, match="has 5 outputs, and that of guest 1 8"):
        train(USUAL, hosts={"nn_define": keras(5, "sigmoid")})
    with pytest.raises(UsageError, match="no row of the other party"):
        train(USUAL, guest=slice(0, 100), host=slice(200, 300))
    with pytest.raises(PartyMessageError, match="key"):
        train(USUAL | PAILLIER, hosts=ENCRYPTED)
    given = {one: given_to(one, USUAL, "train_data", COMMON) for one in (GUEST, HOST, HOST_2)}
    with pytest.raises(UsageError, match="one guest and one host"):
        run_parts("FTL", given)
