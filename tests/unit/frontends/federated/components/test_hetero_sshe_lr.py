import numpy as np
import pytest
from sklearn.datasets import load_wine
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.preprocessing import StandardScaler

from tests.unit.frontends.federated.components.parts_of import GUEST, HOST, HOST_2, breast, frame
from tests.unit.frontends.federated.components.test_intersection import needs_spu, spu  # noqa: F401 - a fixture
from weft.frontends.federated.components.predictions import SCORE
from weft.frontends.federated.wire import Integers, decode
from weft.model.errors import UsageError
from weft.testing.parts import PartInputs, run_parts

pytestmark = pytest.mark.slow

PLAIN = {"encrypt_param": {"method": "plain"}}
USUAL = {"alpha": 0.01, "learning_rate": 0.15, "max_iter": 8, "decay": 0, "tol": 0} | PLAIN
EVERY = USUAL | {"reveal_every_iter": True}
HIDDEN = USUAL | {"reveal_strategy": "encrypted_reveal_in_host"}
MATRIX, Y = breast()


def train(parameters=USUAL, *, matrix=MATRIX, y=Y, rows=slice(None), cut=(10, 30), theirs=None):
    given = {
        GUEST: PartInputs(parameters, {"train_data": [frame(matrix[rows, : cut[0]], y[rows])]}),
        HOST: PartInputs(theirs or parameters, {"train_data": [frame(matrix[rows, cut[0] : cut[1]], first=cut[0])]}),
    }
    return run_parts("HeteroSSHELR", given)


def weights_of(ran, at=0):
    models = [ran.outputs[party].model["models"][at] for party in (GUEST, HOST)]
    return np.array([*models[0]["weights"].values(), *models[1]["weights"].values(), models[0]["intercept"]])


def pooled(*, steps=8, nesterov=False, batch=569, alpha=0.01, y=Y):
    """Return the weights of descent with the linear residual over all columns, written out by hand."""
    matrix, weights = np.hstack([MATRIX, np.ones((569, 1))]), np.zeros(31)
    speed, kept = np.zeros(31), np.append(np.ones(30), 0)
    losses = []
    for _ in range(steps):
        squares = 0.0
        for begin in range(0, 569, batch):
            part, sign = matrix[begin : begin + batch], 2 * y[begin : begin + batch] - 1
            residual = part @ weights / 4 - sign / 2
            squares += residual @ residual
            gradient = part.T @ residual / len(part) + alpha * weights * kept
            before, speed = speed, 0.9 * speed - 0.15 * gradient
            weights = weights - 0.9 * before + 1.9 * speed if nesterov else weights - 0.15 * gradient
        losses.append(np.log(2) - 0.5 + 2 * squares / 569)
    return weights, losses


@pytest.mark.parametrize("mode", [USUAL, EVERY])
def test_the_model_is_as_good_as_that_of_all_columns(mode):
    best = roc_auc_score(Y, LogisticRegression().fit(MATRIX, Y).decision_function(MATRIX))
    ran = train(mode | {"max_iter": 12, "batch_size": 200})
    assert roc_auc_score(Y, ran.outputs[GUEST].data[0].columns[SCORE]) > 0.99 * best
    assert ran.outputs[HOST].data == (None,)


@pytest.mark.parametrize("mode", [USUAL, EVERY])
@pytest.mark.parametrize("optimizer", ["sgd", "nesterov_momentum_sgd"])
def test_steps_are_those_over_all_columns(mode, optimizer):
    ran = train(mode | {"optimizer": optimizer, "batch_size": 300})
    weights, losses = pooled(nesterov=optimizer != "sgd", batch=300)
    assert weights_of(ran) == pytest.approx(weights, abs=1e-5)
    assert ran.outputs[GUEST].model["models"][0]["losses"] == pytest.approx(losses, abs=1e-5)
    assert [one for _, one in ran.records[GUEST].curves["train", "loss"]] == pytest.approx(losses, abs=1e-5)
    assert ran.outputs[HOST].model["models"][0]["losses"] == []


def test_without_a_penalty():
    assert weights_of(train(USUAL | {"penalty": None})) == pytest.approx(pooled(alpha=0.0)[0], abs=1e-5)


@pytest.mark.parametrize("more", [{"optimizer": "adam"}, {"optimizer": "rmsprop"}, {"penalty": "L1"}])
def test_revealed_weights_have_more_optimizers(more):
    losses = train(EVERY | more | {"learning_rate": 0.05}).outputs[GUEST].model["models"][0]["losses"]
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("mode", [USUAL, EVERY, HIDDEN])
def test_encrypted_numbers_make_the_predictions_of_plain_ones(mode):
    rows, scores = slice(0, 30), []
    for method in ("plain", "Paillier"):
        parameters = mode | {"max_iter": 2, "encrypt_param": {"method": method}}
        ran = train(parameters, rows=rows, cut=(2, 4))
        scores.append(ran.outputs[GUEST].data[0].columns[SCORE])
    assert scores[1] == pytest.approx(scores[0], abs=1e-6)
    assert ran.records[HOST].summaries["key_length"] == 2048


def test_weights_of_the_host_that_nobody_sees():
    ran, other = train(HIDDEN), train()
    mine, theirs = (ran.outputs[party].model["models"][0] for party in (GUEST, HOST))
    assert "weights" not in theirs
    shares = [np.array([int(one) for one in model["shares"]], dtype=object) for model in (mine, theirs)]
    total = [float(((one + 2**191) % 2**192 - 2**191) / 2**32) for one in sum(shares)]
    assert total == pytest.approx(list(other.outputs[HOST].model["models"][0]["weights"].values()), abs=1e-5)
    for share in shares:
        assert min(min(one, 2**192 - one) for one in share) > 2**150  # random: no weight is so large
    assert mine["weights"] == pytest.approx(other.outputs[GUEST].model["models"][0]["weights"], abs=1e-5)
    found, wanted = (one.outputs[GUEST].data[0].columns[SCORE] for one in (ran, other))
    assert found == pytest.approx(wanted, abs=1e-5)


@pytest.mark.parametrize("mode", [USUAL, HIDDEN])
def test_a_prediction_is_that_of_the_fit(mode):
    ran = train(mode)
    given = {
        party: PartInputs(mode, {"test_data": [rows]}, {"model": {"lr": ran.outputs[party].model}})
        for party, rows in ((GUEST, frame(MATRIX[:, :10])), (HOST, frame(MATRIX[:, 10:], first=10)))
    }
    again = run_parts("HeteroSSHELR", given)
    mine, other = (one.outputs[GUEST].data[0].columns[SCORE] for one in (ran, again))
    assert other == pytest.approx(mine, abs=1e-9)


@pytest.mark.parametrize("mode", [USUAL, HIDDEN])
def test_several_classes_are_trained_one_against_the_rest(mode):
    matrix, y = load_wine(return_X_y=True)
    matrix = StandardScaler().fit_transform(matrix)
    ran = train(mode | {"max_iter": 20}, matrix=matrix, y=y, cut=(5, 13))
    results = ran.outputs[GUEST].data[0].columns["predict_result"]
    assert (results == y).mean() > 0.94
    assert len(ran.outputs[HOST].model["models"]) == 3


@pytest.mark.parametrize("mode", [USUAL, EVERY])
def test_early_stop(mode):
    for kind, tol in (("diff", 0.02), ("abs", 0.4), ("weight_diff", 0.09)):
        ran = train(mode | {"early_stop": kind, "tol": tol, "max_iter": 25})
        model, epochs = ran.outputs[GUEST].model["models"][0], ran.records[HOST].done[-1][0]
        assert model["converged"]
        assert ran.outputs[HOST].model["models"][0]["converged"]
        assert 1 < epochs < 25
        if kind == "weight_diff":
            now, before = pooled(steps=epochs)[0], pooled(steps=epochs - 1)[0]
            assert np.linalg.norm(now - before) < tol
            assert np.linalg.norm(before - pooled(steps=epochs - 2)[0]) >= tol


def test_starts_are_those_of_the_owners():
    start = {"init_param": {"init_method": "const", "init_const": 0.5}, "learning_rate": 0.0, "max_iter": 1}
    assert weights_of(train(USUAL | start)) == pytest.approx(np.full(31, 0.5), abs=1e-9)
    no_intercept = {"init_param": {"fit_intercept": False}}
    assert train(USUAL | no_intercept).outputs[GUEST].model["models"][0]["intercept"] == 0.0


def test_only_random_numbers_and_ciphertexts_cross_in_the_training():
    parameters = USUAL | {"max_iter": 2, "encrypt_param": {"method": "Paillier"}}
    ran = train(parameters, rows=slice(0, 20), cut=(2, 4))
    shares = {"start", "weights", "loss/share"}
    ciphers = {"shares", "product", "loss/product"}
    open_names = {"engine", "key", "features", "settings", "rows", "models", "validation", "end", "score/train/0"}
    for one in ran.sent:
        value = decode(one.data)
        if one.name in shares:
            assert isinstance(value, Integers)
            assert max(value) > 2**170
        elif one.name in ciphers:
            assert min(value["cells"]) > 2**2048
        else:
            assert one.name in open_names


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"optimizer": "adam"}, "optimizer adam needs weights"),
        ({"penalty": "L1"}, "penalty L1 needs weights"),
        (HIDDEN | {"reveal_every_iter": True}, "reveal_every_iter shows"),
        ({"reveal_strategy": "guess"}, "reveal_strategy"),
        ({"batch_strategy": "random"}, "batch_strategy"),
        ({"early_stopping_rounds": 2}, "early_stopping_rounds"),
        ({"stepwise_param": {"need_stepwise": True}}, "stepwise_param"),
        ({"stepwise_param": {"need_stepwise": True}}, "need_stepwise"),
        ({"encrypt_param": {"method": "rot13"}}, "rot13"),
        ({"learning_rate": 1e9, "alpha": 1e6, "reveal_every_iter": True}, "too large"),
    ],
)
def test_wrong_parameters_are_named(parameters, message):
    with pytest.raises(UsageError, match=message):
        train(USUAL | parameters)


def test_parties_that_do_not_fit_each_other():
    with pytest.raises(UsageError, match=r"learning_rate is 0\.\d+ at"):
        train(theirs=USUAL | {"learning_rate": 0.1})
    with pytest.raises(UsageError, match="all rows have the same label"):
        train(y=np.ones(569, dtype=int))
    given = {party: PartInputs(USUAL, {"train_data": [frame(MATRIX, Y)]}) for party in (GUEST, HOST, HOST_2)}
    with pytest.raises(UsageError, match="one guest and one host"):
        run_parts("HeteroSSHELR", given)
    with pytest.raises(UsageError, match="no label"):
        run_parts(
            "HeteroSSHELR", {party: PartInputs(USUAL, {"train_data": [frame(MATRIX)]}) for party in (GUEST, HOST)}
        )


@needs_spu
@pytest.mark.usefixtures("spu")
@pytest.mark.parametrize("optimizer", ["sgd", "nesterov_momentum_sgd"])
def test_spu_takes_the_same_steps(optimizer):
    ran = train({**USUAL, "encrypt_param": {}, "optimizer": optimizer, "batch_size": 300})
    weights, losses = pooled(nesterov=optimizer != "sgd", batch=300)
    assert ran.records[GUEST].summaries["engine"].startswith("spu ")
    assert weights_of(ran) == pytest.approx(weights, abs=2e-3)
    assert ran.outputs[GUEST].model["models"][0]["losses"] == pytest.approx(losses, abs=2e-3)
    assert ran.outputs[HOST].model["models"][0]["losses"] == []
    assert roc_auc_score(Y, ran.outputs[GUEST].data[0].columns[SCORE]) > 0.99


@needs_spu
@pytest.mark.usefixtures("spu")
def test_columns_that_are_too_large_for_spu_are_trained_by_our_own_protocol():
    ran = train({**USUAL, "encrypt_param": {}, "max_iter": 1}, matrix=MATRIX * 1e6, rows=slice(15, 25), cut=(1, 2))
    assert "engine" not in ran.records[GUEST].summaries
