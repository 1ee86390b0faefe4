"""Validation and early ends, against trainings that were ended by hand and metrics of scikit-learn."""

import numpy as np
import pytest
from sklearn.datasets import load_diabetes, load_wine
from sklearn.metrics import mean_absolute_error, roc_auc_score, root_mean_squared_error
from sklearn.preprocessing import StandardScaler

from tests.unit.frontends.federated.components.parts_of import ARBITER, GUEST, HOST, HOST_2, breast, frame, run_against
from weft.frontends.federated.components.predictions import SCORE
from weft.frontends.federated.components.validation import Validation, ValidationHistory, is_due
from weft.model.errors import PartyMessageError, UsageError
from weft.testing.parts import PartInputs, PartRecord, run_parts

pytestmark = pytest.mark.slow

PLAIN = {"encrypt_param": {"method": "plain"}}
LINEAR = PLAIN | {"alpha": 0.0, "learning_rate": 0.4, "optimizer": "sgd", "decay": 0, "max_iter": 12, "tol": 0}
TREES = PLAIN | {"num_trees": 12, "learning_rate": 0.9, "n_iter_no_change": False, "tree_param": {"max_depth": 4}}
AUC = {"metrics": ["auc"], "validation_freqs": 1, "early_stopping_rounds": 2}
RMSE = {"metrics": ["root_mean_squared_error"], "validation_freqs": 1, "early_stopping_rounds": 2}


def noisy(seed=3, count=160):
    """Return columns and labels of which a model learns too much: the best round is not the last one."""
    random = np.random.default_rng(seed)
    matrix = random.normal(size=(count, 24))
    return matrix, (matrix[:, 0] + matrix[:, 20] + random.normal(size=count) * 2 > 0).astype(int)


def train(module, parameters, matrix, y, *, rows=80, key="validate_data", cuts=(6, 24)):
    """Train with the first `rows` rows, and validate with the others."""
    given = {}
    for party, begin, end in zip((GUEST, HOST, HOST_2), (0, *cuts), cuts, strict=False):
        every = frame(matrix[:, begin:end], y if party == GUEST else None, first=begin)
        data = {"train_data": [every.take(slice(0, rows))], key: [every.take(slice(rows, None))]}
        given[party] = PartInputs(parameters, data)
    if module not in ("HeteroSecureBoost", "HeteroSSHELR", "HeteroSSHELinR"):
        given[ARBITER] = PartInputs(parameters)
    return run_parts(module, given)


def scores_of(ran, kind="validate"):
    found = ran.outputs[GUEST].data[0]
    return found.columns[SCORE][found.columns["type"] == kind].astype(float)


def by_hand(module, parameters, matrix, y, metric, patience, every=1):
    """Return the values of a metric by round, and the round that an early end keeps."""
    name = "num_trees" if module == "HeteroSecureBoost" else "max_iter"
    values, best, without = [], 0, 0
    for at in range(every - 1, parameters[name], every):
        ran = train(module, parameters | {name: at + 1}, matrix, y)
        values.append(metric(y[80:], scores_of(ran)))
        if values[-1] > max(values[:-1], default=-np.inf):
            best, without = at, 0
        else:
            without += 1
        if without >= patience:
            break
    return values, best


@pytest.mark.parametrize(("module", "parameters"), [("HeteroLR", LINEAR), ("HeteroSecureBoost", TREES)])
def test_the_model_of_the_best_round_is_kept(module, parameters):
    matrix, y = noisy()
    values, best = by_hand(module, parameters, matrix, y, roc_auc_score, 2)
    ran = train(module, parameters | AUC, matrix, y)
    summary = ran.records[GUEST].summaries
    assert [value for _, value in ran.records[GUEST].curves["validate", "auc"]] == pytest.approx(values)
    assert summary["best_iteration"] == best
    assert summary["is_early_stopped"]
    assert not summary["is_converged"]
    assert len(values) < 12
    name = "num_trees" if module == "HeteroSecureBoost" else "max_iter"
    shorter = train(module, parameters | {name: best + 1}, matrix, y)
    for kind in ("train", "validate"):
        assert scores_of(ran, kind) == pytest.approx(scores_of(shorter, kind))
    for party in (GUEST, HOST):
        mine, other = (one.outputs[party].model for one in (ran, shorter))
        if module == "HeteroLR":
            assert mine["models"][0]["weights"] == pytest.approx(other["models"][0]["weights"])
        else:
            assert len(mine["splits"]) == len(other["splits"])
            assert mine.get("trees") == other.get("trees")


def test_the_group_of_callbacks_and_every_third_epoch():
    matrix, y = noisy()
    values, best = by_hand("HeteroLR", LINEAR, matrix, y, roc_auc_score, 1, every=3)
    callback = {"callbacks": ["EarlyStopping"], "metrics": ["auc"], "validation_freqs": 3, "early_stopping_rounds": 1}
    ran = train("HeteroLR", LINEAR | {"callback_param": callback}, matrix, y)
    assert ran.records[GUEST].summaries["best_iteration"] == best
    points = ran.records[GUEST].curves["validate", "auc"]
    assert [at for at, _ in points] == list(range(2, 12, 3))[: len(points)]
    assert [value for _, value in points] == pytest.approx(values)
    without = train("HeteroLR", LINEAR | {"callback_param": callback | {"callbacks": []}}, matrix, y)
    assert "validation" not in without.records[GUEST].summaries


@pytest.mark.parametrize("module", ["HeteroLinR", "HeteroPoisson", "HeteroSecureBoost"])
def test_regressions_are_validated_by_their_errors(module):
    matrix, y = noisy()
    y = y + 1.0
    parameters = LINEAR | {"learning_rate": 0.02}
    if module == "HeteroSecureBoost":
        parameters = TREES | {"task_type": "regression", "objective_param": {"objective": "lse"}}
    values, best = by_hand(module, parameters, matrix, y, lambda *one: -root_mean_squared_error(*one), 2)
    ran = train(module, parameters | RMSE, matrix, y)
    curve = [-value for _, value in ran.records[GUEST].curves["validate", "root_mean_squared_error"]]
    assert curve == pytest.approx(values)
    assert ran.records[GUEST].summaries["best_iteration"] == best


@pytest.mark.parametrize(
    ("given", "name"), [("rmse", "root_mean_squared_error"), (["L1", "mae"], "mean_absolute_error")]
)
def test_metrics_have_short_names(given, name):
    matrix, y = noisy()
    ran = train("HeteroLinR", LINEAR | {"max_iter": 2, "validation_freqs": 1, "metrics": given}, matrix, y + 1.0)
    assert [one for kind, one in ran.records[GUEST].curves if kind == "validate"] == [name]


def test_without_an_early_end_the_last_model_is_kept_and_metrics_are_told():
    matrix, y = load_diabetes(return_X_y=True)
    y = (y - y.mean()) / y.std()
    matrix = StandardScaler().fit_transform(matrix)
    parameters = LINEAR | {"learning_rate": 0.1}
    ran = train("HeteroLinR", parameters | {"validation_freqs": [0, 11]}, matrix, y, cuts=(3, 6, 10))
    plain = train("HeteroLinR", parameters, matrix, y, cuts=(3, 6, 10))
    assert np.array_equal(scores_of(ran), scores_of(plain))
    points = ran.records[GUEST].curves["validate", "mean_absolute_error"]
    assert [at for at, _ in points] == [0, 11]
    assert points[-1][1] == pytest.approx(mean_absolute_error(y[80:], scores_of(ran)))
    assert "best_iteration" not in ran.records[GUEST].summaries


@pytest.mark.parametrize("module", ["HeteroLR", "HeteroSecureBoost"])
def test_several_classes(module):
    matrix, y = load_wine(return_X_y=True)
    order = np.random.default_rng(1).permutation(len(y))
    matrix, y = StandardScaler().fit_transform(matrix)[order], y[order]
    asked = {"validation_freqs": 1, "early_stopping_rounds": 2}
    ran = train(module, (LINEAR if module == "HeteroLR" else TREES) | asked, matrix, y, cuts=(5, 13))
    summary = ran.records[GUEST].summaries
    if module == "HeteroLR":  # one model for each class, each with an end of its own
        assert len(summary["validation"]) == 3
        assert ("validate", "auc_2") in ran.records[GUEST].curves
    else:
        accuracy = (ran.outputs[GUEST].data[0].columns["predict_result"][80:].astype(int) == y[80:]).mean()
        assert summary["validation"]["accuracy"][summary["best_iteration"]] == pytest.approx(accuracy)
        assert len(ran.outputs[GUEST].model["trees"]) == 3 * (summary["best_iteration"] + 1)


@pytest.mark.parametrize("mode", [{}, {"reveal_every_iter": True}, {"reveal_strategy": "encrypted_reveal_in_host"}])
@pytest.mark.parametrize(("module", "asked"), [("HeteroSSHELR", AUC), ("HeteroSSHELinR", RMSE)])
def test_models_on_shares_keep_their_best_epoch(module, asked, mode):
    matrix, y = noisy()
    parameters = LINEAR | mode | {"learning_rate": 0.4 if module == "HeteroSSHELR" else 0.6}
    metric = roc_auc_score if module == "HeteroSSHELR" else lambda *one: -root_mean_squared_error(*one)
    values, best = by_hand(module, parameters, matrix, y, metric, 2)
    ran = train(module, parameters | asked, matrix, y)
    points = ran.records[GUEST].curves["validate", asked["metrics"][0]]
    assert [abs(value) for _, value in points] == pytest.approx(np.abs(values), abs=1e-4)
    assert ran.records[GUEST].summaries["best_iteration"] == best < 11
    shorter = train(module, parameters | {"max_iter": best + 1}, matrix, y)
    assert scores_of(ran) == pytest.approx(scores_of(shorter), abs=1e-4)
    assert not ran.records[HOST].summaries["is_converged"]


def test_rows_of_version_1_validate_too():
    matrix, y = noisy()
    ran, other = (train("HeteroLR", LINEAR | AUC, matrix, y, key=key) for key in ("validate_data", "eval_data"))
    assert np.array_equal(scores_of(ran), scores_of(other))


def test_encrypted_trees_are_validated_like_plain_ones():
    matrix, y = noisy(count=120)
    few = TREES | AUC | {"num_trees": 2, "tree_param": {"max_depth": 2}, "bin_num": 4}
    plain = train("HeteroSecureBoost", few, matrix, y, cuts=(2, 4))
    other = train("HeteroSecureBoost", few | {"encrypt_param": {"method": "Paillier"}}, matrix, y, cuts=(2, 4))
    assert scores_of(plain) == pytest.approx(scores_of(other))
    names = {one.name for one in other.sent}
    assert {"ask/round", "answer/round", "ask/validate"} <= names


def history(*, kind="binary", metrics=("auc", "ks"), first_only=False):
    return ValidationHistory(PartRecord(), Validation(1, 2, kind, list(metrics), first_only))


def test_any_metric_that_stays_ends_the_training_with_its_own_best_round():
    one = history()
    ends = [one.see(at, {"auc": auc, "ks": ks}, at) for at, (auc, ks) in enumerate([(1, 5), (2, 4), (3, 4)])]
    assert ends == [False, False, True]
    assert one.best == (0, 0)


def test_the_first_metric_alone_counts_if_it_is_asked_for():
    one = history(first_only=True)
    assert not any(one.see(at, {"auc": at, "ks": -at}, at) for at in range(5))
    assert one.best == (4, 4)


def test_errors_are_better_when_they_are_small():
    one = history(kind="regression", metrics=["mean_squared_error"])
    assert [one.see(at, {"mean_squared_error": value}, at) for at, value in enumerate([3, 2, 2, 4])] == [0, 0, 0, 1]
    assert one.best == (1, 1)


def test_when_rounds_are_due():
    assert [at for at in range(7) if is_due(3, at)] == [2, 5]
    assert [at for at in range(7) if is_due([0, 5], at)] == [0, 5]


@pytest.mark.parametrize("module", ["HeteroLR", "HeteroSecureBoost"])
@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"early_stopping_rounds": 2}, "validation_freqs is not"),
        ({"early_stopping_rounds": 0.5, "validation_freqs": 1}, "early_stopping_rounds is 0.5"),
        ({"validation_freqs": -1}, "from 1 on"),
        ({"validation_freqs": ["a"]}, "validation_freqs"),
        ({"validation_freqs": 1, "metrics": ["aoc"]}, "'aoc'"),
        ({"validation_freqs": 1, "metrics": ["roc"]}, "'roc'"),
    ],
)
def test_wrong_parameters_are_named(module, wrong, message):
    matrix, y = noisy()
    with pytest.raises(UsageError, match=message):
        train(module, (LINEAR if module == "HeteroLR" else TREES) | wrong, matrix, y)


@pytest.mark.parametrize("module", ["HeteroLR", "HeteroSecureBoost"])
def test_rows_that_cannot_validate_are_told(module):
    matrix, y = noisy()
    y[80:] = 1
    with pytest.raises(UsageError, match="only one class"):
        train(module, (LINEAR if module == "HeteroLR" else TREES) | AUC, matrix, y)


def test_a_guest_that_follows_no_rules_is_refused():
    matrix, _ = breast()
    rows = {"train_data": [frame(matrix[:9, :2])], "validate_data": [frame(matrix[9:12, :2])]}
    key = {"method": "plain"}
    sent = {(GUEST, "rows"): 9, (GUEST, "models"): 1, (ARBITER, "key"): key}
    for plan in ({"freqs": 0, "early": True}, {"freqs": "all", "early": True}, 3):
        with pytest.raises(PartyMessageError, match=r"epochs that there are not|malformed"):
            run_against("HeteroLR", HOST, PartInputs(LINEAR, rows), sent | {(GUEST, "validation"): plan})
