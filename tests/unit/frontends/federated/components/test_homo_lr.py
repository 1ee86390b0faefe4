import numpy as np
import pytest
from sklearn.datasets import load_wine
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.multiclass import OneVsRestClassifier
from sklearn.preprocessing import StandardScaler

from tests.unit.frontends.federated.components.parts_of import ARBITER, GUEST, HOST, HOST_2, breast, frame
from weft.frontends.federated.components.evaluation import binary_metrics
from weft.frontends.federated.components.optimizers import Optimizer, Training
from weft.frontends.federated.components.predictions import SCORE
from weft.frontends.federated.wire import decode
from weft.model.errors import UsageError
from weft.testing.parts import PartInputs, run_parts

USUAL = {"alpha": 0.01, "optimizer": "sgd", "learning_rate": 0.15, "max_iter": 30, "decay": 0, "tol": 0}
MATRIX, Y = breast()
CUTS = {GUEST: slice(0, 200), HOST: slice(200, 569)}
THREE = {GUEST: slice(0, 100), HOST: slice(100, 300), HOST_2: slice(300, 569)}


def train(parameters=USUAL, *, matrix=MATRIX, y=Y, cuts=CUTS, validate=None):
    given = {}
    for party, rows in cuts.items():
        data = {"train_data": [frame(matrix[rows], y[rows])]}
        if validate is not None:
            data["validate_data"] = [frame(*validate)]
        given[party] = PartInputs(parameters, data)
    return run_parts("HomoLR", given | {ARBITER: PartInputs(parameters)})


def weights_of(ran, party=GUEST, at=0):
    model = ran.outputs[party].model["models"][at]
    return np.array([*model["weights"].values(), model["intercept"]])


def pooled_descent(optimizer="sgd", penalty="L2", *, steps=30, matrix=MATRIX, y=Y):
    """Return the weights of gradient descent over all rows, written out by hand but for the optimizer."""
    training = Training(
        optimizer=optimizer, penalty=penalty, alpha=0.01, rate=0.15, decay=0, decay_sqrt=True, batch_size=-1,
        max_iter=steps, tol=0, early_stop="diff", intercept=True, start="zeros", start_value=1.0,
    )  # fmt: skip
    stepper = Optimizer(training, matrix.shape[1] + 1, intercept=True)
    matrix, weights = np.hstack([matrix, np.ones((len(matrix), 1))]), np.zeros(matrix.shape[1] + 1)
    for epoch in range(steps):
        gradient = matrix.T @ (1 / (1 + np.exp(-matrix @ weights)) - (y == 1)) / len(y)
        weights = stepper.step(weights, gradient, epoch)
    return weights


@pytest.mark.parametrize("optimizer", ["sgd", "rmsprop", "adam", "adagrad", "nesterov_momentum_sgd"])
@pytest.mark.parametrize("cuts", [CUTS, THREE])
def test_full_batches_make_the_model_of_the_pooled_rows(optimizer, cuts):
    ran = train(USUAL | {"optimizer": optimizer}, cuts=cuts)
    assert weights_of(ran) == pytest.approx(pooled_descent(optimizer), abs=1e-6)
    for party in cuts:
        assert np.array_equal(weights_of(ran, party), weights_of(ran))


@pytest.mark.parametrize("penalty", ["L1", None])
def test_other_penalties_are_those_of_the_pooled_rows(penalty):
    ran = train(USUAL | {"penalty": penalty})
    assert weights_of(ran) == pytest.approx(pooled_descent(penalty=str(penalty)), abs=1e-6)


def test_the_model_is_that_of_scikit_learn():
    parameters = USUAL | {"optimizer": "nesterov_momentum_sgd", "learning_rate": 0.3, "max_iter": 1500}
    ran = train(parameters | {"tol": 1e-10})
    best = LogisticRegression(C=1 / (0.01 * len(Y)), tol=1e-10, max_iter=10000).fit(MATRIX, Y)
    assert weights_of(ran) == pytest.approx(np.append(best.coef_[0], best.intercept_), rel=0.01)
    scores = np.concatenate([ran.outputs[one].data[0].columns[SCORE] for one in CUTS])
    assert roc_auc_score(Y, scores) == pytest.approx(roc_auc_score(Y, best.decision_function(MATRIX)), rel=1e-3)
    assert ran.outputs[GUEST].model["models"][0]["converged"]


def test_batches_and_own_steps_are_almost_as_good():
    best = roc_auc_score(Y, LogisticRegression().fit(MATRIX, Y).decision_function(MATRIX))
    for more in ({"batch_size": 64}, {"aggregate_iters": 5}, {"batch_size": 64, "aggregate_iters": 4}):
        ran = train(USUAL | {"max_iter": 18} | more)
        scores = np.concatenate([ran.outputs[one].data[0].columns[SCORE] for one in CUTS])
        assert roc_auc_score(Y, scores) > 0.99 * best
        assert np.array_equal(weights_of(ran, HOST), weights_of(ran))


def test_own_steps_are_averaged_by_row_counts():
    ran = train(USUAL | {"aggregate_iters": 3, "max_iter": 3})
    parts = [pooled_descent(steps=3, matrix=MATRIX[rows], y=Y[rows]) for rows in CUTS.values()]
    assert weights_of(ran) == pytest.approx((200 * parts[0] + 369 * parts[1]) / 569, abs=1e-6)


def test_the_last_round_may_be_shorter():
    ran = train(USUAL | {"aggregate_iters": 3, "max_iter": 4})
    assert len(ran.outputs[GUEST].model["models"][0]["losses"]) == 3
    assert ran.records[HOST].done[-1] == (4, 4)


def test_a_proximal_term_keeps_own_steps_near():
    moved = {}
    for more in ({}, {"use_proximal": True, "mu": 2.0}, {"use_proximal": False, "mu": 2.0}):
        moved[str(more)] = np.linalg.norm(weights_of(train(USUAL | {"aggregate_iters": 10, "max_iter": 10} | more)))
    free, near, off = moved.values()
    assert near < 0.8 * free
    assert off == free


def test_early_stop():
    for kind, tol in (("diff", 0.01), ("weight_diff", 0.05), ("abs", 0.3)):
        model = train(USUAL | {"early_stop": kind, "tol": tol, "max_iter": 200}).outputs[HOST].model["models"][0]
        assert model["converged"]
        assert 2 <= len(model["losses"]) < 150
        if kind == "diff":
            assert model["losses"][-3] - model["losses"][-2] < tol <= model["losses"][-4] - model["losses"][-3]


def test_losses_are_those_of_all_rows():
    ran = train(USUAL | {"max_iter": 2})
    losses = ran.outputs[HOST].model["models"][0]["losses"]
    weights = weights_of(ran)
    scores = MATRIX @ weights[:-1] + weights[-1]
    mean = np.log1p(np.exp(-np.where(Y == 1, scores, -scores))).mean()
    assert losses[0] == pytest.approx(np.log(2))
    assert losses[-1] == pytest.approx(mean + 0.005 * weights[:-1] @ weights[:-1])
    assert [loss for _, loss in ran.records[HOST].curves["train", "loss"]] == losses


def test_start_and_intercept():
    start = {"init_param": {"init_method": "const", "init_const": 0.5, "fit_intercept": False}}
    ran = train(USUAL | start | {"learning_rate": 0.0, "max_iter": 1})
    assert weights_of(ran).tolist() == [0.5] * 30 + [0.0]
    random = train(USUAL | {"init_param": {"init_method": "random_normal"}, "max_iter": 1})
    assert np.array_equal(weights_of(random), weights_of(random, HOST))


def test_several_classes_are_trained_one_against_the_rest():
    matrix, y = load_wine(return_X_y=True)
    matrix = StandardScaler().fit_transform(matrix)
    cuts = {GUEST: slice(0, 100), HOST: slice(100, 178)}  # the guest has no row of the last class
    ran = train(USUAL | {"max_iter": 150}, matrix=matrix, y=y, cuts=cuts)
    for at in range(3):
        pooled = pooled_descent(matrix=matrix, y=(y == at).astype(int), steps=150)
        assert weights_of(ran, at=at) == pytest.approx(pooled, abs=1e-6)
    results = np.concatenate([ran.outputs[one].data[0].columns["predict_result"] for one in cuts]).astype(int)
    assert (results == y).mean() > 0.97 * OneVsRestClassifier(LogisticRegression()).fit(matrix, y).score(matrix, y)
    assert ran.outputs[GUEST].model["classes"] == [0, 1, 2]


def test_labels_may_be_words():
    words = np.where(Y == 1, "well", "ill").astype(object)
    ran = train(USUAL | {"max_iter": 10}, y=words)
    found = ran.outputs[HOST].data[0].columns
    assert ran.outputs[HOST].model["classes"] == ["ill", "well"]
    assert (found["predict_result"] == words[CUTS[HOST]]).mean() > 0.9


def test_labels_may_be_true_or_false():
    ran = train(USUAL | {"max_iter": 10}, y=Y == 1)
    assert weights_of(ran) == pytest.approx(pooled_descent(steps=10), abs=1e-6)


def test_a_prediction_is_that_of_the_fit_and_needs_no_label():
    ran = train()
    given = {
        party: PartInputs(USUAL, {"test_data": [frame(MATRIX[rows])]}, {"model": {"lr": ran.outputs[party].model}})
        for party, rows in CUTS.items()
    }
    again = run_parts("HomoLR", given | {ARBITER: PartInputs(USUAL, {}, {"model": {"lr": {}}})})
    for party in CUTS:
        mine, other = (one.outputs[party].data[0].columns for one in (ran, again))
        assert np.array_equal(mine[SCORE], other[SCORE])
        assert set(other["type"]) == {"test"}
    assert {one.name for one in again.sent} == {"goes_on"}


def test_rows_that_validate_are_watched_and_predicted():
    validate = MATRIX[500:], Y[500:]
    ran = train(USUAL | {"validation_freqs": 10}, validate=validate)
    rows = ran.outputs[HOST].data[0]
    found = rows.take(rows.columns["type"] == "validate")
    auc = binary_metrics(validate[1] == 1, found.columns[SCORE])["auc"]
    points = ran.records[HOST].curves["validate", "auc"]
    assert [at for at, _ in points] == [10, 20, 30]
    assert points[-1][1] == pytest.approx(auc)
    assert ("validate", "auc") not in train(USUAL, validate=validate).records[HOST].curves


def test_predictions_can_be_evaluated():
    predictions = train().outputs[HOST].data[0]
    ran = run_parts("Evaluation", {HOST: PartInputs({"eval_type": "binary"}, {"data": [predictions]})})
    assert ran.records[HOST].metrics["train", "auc"] > 0.97


def test_the_threshold_chooses_classes():
    found = train(USUAL | {"predict_param": {"threshold": 0.9}}).outputs[HOST].data[0].columns
    assert np.array_equal(found["predict_result"] == 1, found[SCORE] >= 0.9)


def test_no_update_crosses_in_the_open():
    ran = train(USUAL | {"max_iter": 1}, cuts=THREE)
    matrix = np.hstack([MATRIX, np.ones((569, 1))])
    values = [(one.name, decode(one.data)) for one in ran.sent]
    covered = [one["words"].astype(np.int64) / 2.0**36 for name, one in values if name == "covered" and one]
    updates = [one[:31] for one in covered if len(one) == 32]
    assert len(updates) == 3
    for rows in THREE.values():
        gradient = matrix[rows].T @ (0.5 - Y[rows]) / 569
        for one in updates:
            assert np.abs(one - gradient).min() > 1e-3
    totals = [one[:31] for name, one in values if name == "total" and len(one) == 32]
    assert len(totals) == 3
    assert totals[0] == pytest.approx(matrix.T @ (0.5 - Y) / 569, abs=1e-9)


def test_what_replaces_paillier_is_said():
    ran = train(USUAL | {"max_iter": 1, "encrypt_param": {"method": "Paillier", "key_length": 1024}})
    assert "masks" in ran.records[GUEST].summaries["notes"][0]
    assert train(USUAL | {"max_iter": 1, "encrypt_param": {"method": None}}).records[GUEST].summaries["notes"] == []


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"stepwise_param": {"need_stepwise": True}}, "stepwise_param"),
        ({"stepwise_param": {"need_stepwise": True}}, "stepwise_param.need_stepwise"),
        ({"early_stopping_rounds": 3}, "early_stopping_rounds"),
        ({"aggregate_iters": 0}, "aggregate_iters"),
        ({"multi_class": "ovo"}, "multi_class"),
        ({"batch_strategy": "random"}, "batch_strategy"),
        ({"encrypt_param": {"method": "rot13"}}, "rot13"),
        ({"validation_freqs": [1, 2]}, "validation_freqs"),
        ({"optimizer": "sqn"}, "optimizer"),
        ({"learning_rate": 1e12, "penalty": "L2", "alpha": 10}, "diverged"),
        ({"batch_size": 9}, "fewer than 10 rows"),
        ({"init_param": {"init_method": "guess"}}, "init_method is 'guess'"),
        ({"predict_param": {"threshold": "high"}}, "threshold"),
    ],
)
def test_wrong_parameters_are_named(parameters, message):
    with pytest.raises(UsageError, match=message):
        train(USUAL | parameters)


def run_two(guest, host, *, mine=USUAL, theirs=USUAL, arbiter=True):
    given = {GUEST: PartInputs(mine, {"train_data": [guest]}), HOST: PartInputs(theirs, {"train_data": [host]})}
    return run_parts("HomoLR", given | ({ARBITER: PartInputs(USUAL)} if arbiter else {}))


def test_parties_that_do_not_fit_each_other():
    good = frame(MATRIX[:50, :4], Y[:50])
    for other, message in (
        (frame(MATRIX[:50, :3], Y[:50]), "no column 'x3'"),
        (frame(MATRIX[:50, :5], Y[:50]), "no column 'x4'"),
        (frame(MATRIX[:50, :4]), "no label"),
        (frame(np.full((50, 4), np.nan), Y[:50]), "missing"),
        (frame(MATRIX[:50, :4], Y[:50].astype(str).astype(object)), "label_type"),
    ):
        with pytest.raises(UsageError, match=message):
            run_two(good, other)
    with pytest.raises(UsageError, match=r"learning_rate is 0\.1 at host 2, and 0\.15"):
        run_two(good, good, theirs=USUAL | {"learning_rate": 0.1})
    with pytest.raises(UsageError, match="one arbiter"):
        run_two(good, good, arbiter=False)
    same = frame(MATRIX[:50, :4], np.ones(50, dtype=int))
    with pytest.raises(UsageError, match="all rows have the same label"):
        run_two(same, same)


def test_columns_of_a_host_may_have_another_order():
    rows = frame(MATRIX[200:], Y[200:])
    turned = rows.with_features(rows.features[::-1], rows.matrix()[:, ::-1])
    ran = run_two(frame(MATRIX[:200], Y[:200]), turned)
    assert weights_of(ran) == pytest.approx(weights_of(train()), abs=1e-12)
