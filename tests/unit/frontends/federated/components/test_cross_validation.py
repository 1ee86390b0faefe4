"""Folds of all components that train, against KFold of scikit-learn and trainings of single folds."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import KFold, cross_val_score

from tests.unit.frontends.federated.components.parts_of import ARBITER, GUEST, HOST, breast, frame, run_against
from weft.frontends.federated.components.cross_validation import fold_rows
from weft.frontends.federated.components.predictions import SCORE
from weft.model.errors import PartyMessageError, UsageError
from weft.testing.parts import PartInputs, run_parts

MATRIX, Y = breast()
LINEAR = {"alpha": 0.01, "learning_rate": 0.15, "max_iter": 8, "encrypt_param": {"method": "plain"}}
TREES = {"num_trees": 2, "encrypt_param": {"method": "plain"}}
CV = {"need_cv": True, "n_splits": 3, "shuffle": True, "random_seed": 103}


def shared(module, parameters, *, rows=slice(None), y=Y, validate=None):
    """Run a module with columns at the guest and others at the host."""
    given = {}
    for party, columns in ((GUEST, slice(0, 10)), (HOST, slice(10, 30))):
        frames = {"train_data": rows} | ({} if validate is None else {"validate_data": validate})
        labels = y if party == GUEST else None
        data = {
            key: [frame(MATRIX[:, columns], labels, first=columns.start).take(chosen)] for key, chosen in frames.items()
        }
        given[party] = PartInputs(parameters, data)
    if module not in ("HeteroSecureBoost", "HeteroSSHELR"):
        given[ARBITER] = PartInputs(parameters)
    return run_parts(module, given)


def homo(module, parameters):
    cuts = {GUEST: slice(0, 200), HOST: slice(200, 569)}
    given = {one: PartInputs(parameters, {"train_data": [frame(MATRIX[rows], Y[rows])]}) for one, rows in cuts.items()}
    return run_parts(module, given | {ARBITER: PartInputs(parameters)})


@pytest.mark.parametrize("seed", [None, 1, 103])
def test_folds_are_those_of_scikit_learn(seed):
    folds = KFold(5, shuffle=seed is not None, random_state=seed)
    expected = [test for _, test in folds.split(np.zeros((23, 1)))]
    for mine, theirs in zip(fold_rows(23, 5, seed), expected, strict=True):
        assert np.array_equal(mine, theirs)


@pytest.mark.parametrize(
    ("module", "parameters", "labels"),
    [
        ("HeteroLR", LINEAR, Y),
        ("HeteroLinR", LINEAR, MATRIX[:, 29]),
        ("HeteroPoisson", LINEAR | {"learning_rate": 0.01}, Y),
        ("HeteroSecureBoost", TREES, Y),
    ],
)
def test_a_fold_is_a_training_of_its_own(module, parameters, labels):
    ran = shared(module, parameters | {"cv_param": CV}, y=labels)
    found = ran.outputs[GUEST].data[0]
    by_id = dict(zip(found.ids, found.columns[SCORE], strict=True))
    for at, (train, test) in enumerate(KFold(3, shuffle=True, random_state=103).split(MATRIX)):
        alone = shared(module, parameters, y=labels, rows=train, validate=test).outputs[GUEST].data[0]
        for id, score, kind in zip(alone.ids, alone.columns[SCORE], alone.columns["type"], strict=True):
            assert by_id[f"{id}#fold{at}#{kind}"] == pytest.approx(score)
    assert len(by_id) == 3 * len(MATRIX)
    assert all(one.model is None for one in ran.outputs.values())


def test_metrics_of_folds_are_those_of_their_predictions():
    ran = shared("HeteroLR", LINEAR | {"cv_param": CV, "max_iter": 30})
    found, record = ran.outputs[GUEST].data[0], ran.records[GUEST]
    places = {f"id{at}": at for at in range(len(Y))}
    for at in range(3):
        mine = np.array([one.endswith(f"#fold{at}#validate") for one in found.ids])
        truth = [Y[places[one.partition("#")[0]]] for one in found.ids[mine]]
        auc = roc_auc_score(truth, found.columns[SCORE][mine])
        assert record.metrics[f"validate_fold_{at}", "auc"] == pytest.approx(auc)
        assert ("train", f"loss_fold_{at}") in record.curves
        assert record.summaries[f"fold_{at}"]["coef"]
    assert record.summaries["fold_num"] == 3
    folds = KFold(3, shuffle=True, random_state=103)
    expected = cross_val_score(LogisticRegression(), MATRIX, Y, cv=folds, scoring="roc_auc").mean()
    assert record.metrics["validate_mean", "auc"] == pytest.approx(expected, abs=0.01)
    assert record.done[-1][0] <= record.done[-1][1]


def test_the_host_gets_its_rows_with_their_folds():
    ran = shared("HeteroLR", LINEAR | {"cv_param": CV | {"shuffle": False}, "max_iter": 1})
    host = ran.outputs[HOST].data[0]
    assert set(host.ids) == set(ran.outputs[GUEST].data[0].ids)
    assert host.columns["fold_num"][host.ids == "id0#fold0#validate"].tolist() == [0]
    assert ran.outputs[ARBITER].data == ()


def test_the_output_may_be_rows_or_the_input():
    few = LINEAR | {"max_iter": 1}
    rows = shared("HeteroLR", few | {"cv_param": CV | {"history_value_type": "instance"}}).outputs[HOST].data[0]
    assert rows.features == tuple(f"x{at}" for at in range(10, 30))
    assert len(rows) == 3 * len(MATRIX)
    same = shared("HeteroLR", few | {"cv_param": CV | {"output_fold_history": False}}).outputs[GUEST].data[0]
    assert same.ids.tolist() == [f"id{at}" for at in range(len(MATRIX))]


@pytest.mark.parametrize(("module", "parameters"), [("HomoLR", {"max_iter": 5}), ("HomoSecureBoost", {"num_trees": 2})])
def test_parties_with_rows_of_their_own_divide_them_alone(module, parameters):
    ran = homo(module, parameters | {"cv_param": CV})
    for party, count in ((GUEST, 200), (HOST, 369)):
        found = ran.outputs[party].data[0]
        _, test = next(KFold(3, shuffle=True, random_state=103).split(np.zeros((count, 1))))
        ids = {one.partition("#")[0] for one in found.ids if one.endswith("#fold0#validate")}
        assert ids == {f"id{at}" for at in test}
        assert ran.records[party].metrics["validate_mean", "auc"] > 0.9
        assert ran.outputs[party].model is None


def test_a_prediction_is_not_divided():
    model = shared("HeteroLR", LINEAR)
    given = {
        one: PartInputs(
            LINEAR | {"cv_param": CV},
            {"test_data": [frame(MATRIX[:, columns], first=columns.start)]},
            {"model": {"m": model.outputs[one].model}},
        )
        for one, columns in ((GUEST, slice(0, 10)), (HOST, slice(10, 30)))
    }
    given[ARBITER] = PartInputs(LINEAR | {"cv_param": CV}, {}, {"model": {"m": {}}})
    found = run_parts("HeteroLR", given).outputs[GUEST].data[0]
    assert found is not None
    assert len(found) == len(MATRIX)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"n_splits": 1}, "at least 2"),
        ({"n_splits": 2.5}, "n_splits"),
        ({"n_splits": 600}, "too few for 600 folds"),
        ({"random_seed": -1}, "random_seed"),
        ({"history_value_type": "ids"}, "history_value_type"),
    ],
)
def test_wrong_parameters_are_named(wrong, message):
    with pytest.raises(UsageError, match=message):
        shared("HeteroLR", LINEAR | {"cv_param": CV | wrong})


@pytest.mark.parametrize(
    "folds",
    [
        {"count": 2, "rows": 4, "tests": [np.array([0, 1]), np.array([1, 2])]},
        {"count": 2, "rows": 4, "tests": [np.array([0, 1, 2, 3])]},
        {"count": 2, "rows": 4, "tests": [[0, 1], [2, 3]]},
        {"count": 9, "rows": 4, "tests": []},
        "none",
    ],
)
def test_folds_that_are_none_are_refused(folds):
    given = PartInputs(LINEAR | {"cv_param": CV}, {"train_data": [frame(MATRIX[:4, :2])]})
    with pytest.raises(PartyMessageError):
        run_against("HeteroLR", HOST, given, {(GUEST, "folds"): folds})
