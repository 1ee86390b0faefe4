import numpy as np
import pytest
from msgspec.structs import replace
from sklearn.datasets import load_diabetes, load_wine
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.metrics import r2_score, roc_auc_score

from tests.unit.frontends.federated.components.parts_of import ARBITER, GUEST, HOST, HOST_2, breast, frame
from weft.frontends.federated.components.predictions import SCORE
from weft.frontends.federated.wire import decode
from weft.model.errors import UsageError
from weft.testing.parts import PartInputs, run_parts

pytestmark = pytest.mark.slow

MATRIX, Y = breast()
ROWS = {"two": {GUEST: slice(0, 200), HOST: slice(200, None)}}
ROWS["three"] = {GUEST: slice(0, 100), HOST: slice(100, 300), HOST_2: slice(300, None)}
USUAL = {"num_trees": 3, "bin_num": 16, "n_iter_no_change": False, "random_seed": 7}
REGRESSION = USUAL | {
    "task_type": "regression",
    "objective_param": {"objective": "lse"},
    "tree_param": {"min_impurity_split": 0},
}


def train(parameters=USUAL, *, matrix=MATRIX, y=Y, cuts="two", module="HomoSecureBoost"):
    given = {
        party: PartInputs(parameters, {"train_data": [frame(matrix[rows], y[rows])]})
        for party, rows in ROWS[cuts].items()
    }
    return run_parts(module, given | {ARBITER: PartInputs(parameters)})


def scores_of(ran, cuts="two"):
    return np.concatenate([ran.outputs[one].data[0].columns[SCORE] for one in ROWS[cuts]]).astype(float)


def pooled(parameters=USUAL, *, matrix=MATRIX, y=Y):
    """Return the run of HeteroSecureBoost whose guest has all rows and columns; its host has a constant."""
    plain = parameters | {"encrypt_param": {"method": "plain"}}
    given = {
        GUEST: PartInputs(plain, {"train_data": [frame(matrix, y)]}),
        HOST: PartInputs(plain, {"train_data": [frame(np.zeros((len(y), 1)), first=99)]}),
    }
    return run_parts("HeteroSecureBoost", given)


def pooled_splits(ran):
    model = ran.outputs[GUEST].model
    return sorted(
        (at, *model["splits"][node["split"]])
        for at, tree in enumerate(model["trees"])
        for node in tree
        if "split" in node
    )


def splits_of(ran):
    trees = ran.outputs[HOST].model["trees"]
    return sorted(
        (at, node["feature"], node["threshold"]) for at, tree in enumerate(trees) for node in tree if "feature" in node
    )


@pytest.mark.parametrize("cuts", ["two", "three"])
@pytest.mark.parametrize("tree", [{}, {"max_depth": 5, "min_leaf_node": 20, "criterion_params": [1.0, 0.5]}])
def test_trees_are_those_of_the_pooled_rows(cuts, tree):
    parameters = USUAL | {"tree_param": tree}
    ran, other = train(parameters, cuts=cuts), pooled(parameters)
    assert [(at, name, value) for at, name, value in splits_of(ran)] == pooled_splits(other)
    assert len(splits_of(ran)) > 10
    assert scores_of(ran, cuts) == pytest.approx(other.outputs[GUEST].data[0].columns[SCORE], abs=1e-8)
    assert ran.outputs[GUEST].model["losses"] == pytest.approx(other.outputs[GUEST].model["losses"], abs=1e-9)
    for party in ROWS[cuts]:
        assert ran.outputs[party].model == ran.outputs[GUEST].model


def test_more_classes():
    matrix, y = load_wine(return_X_y=True)
    order = np.random.default_rng(1).permutation(178)[:150]
    matrix, y = matrix[order], y[order]
    cuts = ROWS["two"] | {GUEST: slice(0, 60), HOST: slice(60, None)}
    given = {party: PartInputs(USUAL, {"train_data": [frame(matrix[rows], y[rows])]}) for party, rows in cuts.items()}
    ran = run_parts("HomoSecureboost", given | {ARBITER: PartInputs(USUAL)})
    other = pooled(matrix=matrix, y=y)
    assert splits_of(ran) == pooled_splits(other)
    results = np.concatenate([ran.outputs[one].data[0].columns["predict_result"] for one in cuts])
    assert np.array_equal(results, other.outputs[GUEST].data[0].columns["predict_result"])
    assert (results == y).mean() > 0.95


@pytest.mark.parametrize("unit", [1e-6, 1, 1e9])
def test_a_regression(unit):
    matrix, y = load_diabetes(return_X_y=True)
    y = y * unit
    ran, other = train(REGRESSION, matrix=matrix, y=y), pooled(REGRESSION, matrix=matrix, y=y)
    assert scores_of(ran) == pytest.approx(other.outputs[GUEST].data[0].columns[SCORE], rel=1e-7)
    assert splits_of(ran) == pooled_splits(other)
    assert ran.outputs[HOST].model["losses"] == pytest.approx(other.outputs[GUEST].model["losses"], rel=1e-6)
    many = REGRESSION | {"num_trees": 20, "tree_param": {"max_depth": 3, "min_impurity_split": 0}}
    best = HistGradientBoostingRegressor(max_iter=20, learning_rate=0.3, max_depth=3, max_leaf_nodes=None)
    best = r2_score(y, best.fit(matrix, y).predict(matrix))
    assert r2_score(y, scores_of(train(many, matrix=matrix, y=y))) > 0.95 * best


def test_the_model_is_good():
    assert roc_auc_score(Y, scores_of(train())) > 0.99


def test_features_are_sampled_alike():
    ran = train(USUAL | {"subsample_feature_rate": 0.2})
    for tree in ran.outputs[GUEST].model["trees"]:
        assert len({node["feature"] for node in tree if "feature" in node}) <= 6
    assert ran.outputs[HOST].model == ran.outputs[GUEST].model


def test_the_training_ends_when_the_loss_stays():
    ran = train(USUAL | {"n_iter_no_change": True, "tol": 0.2, "num_trees": 20})
    model = ran.outputs[HOST].model
    assert model["converged"]
    assert abs(model["losses"][-1] - model["losses"][-2]) < 0.2
    assert 2 <= len(model["trees"]) < 20
    assert ran.records[HOST].summaries["is_converged"]


def test_the_importance_of_features():
    ran = train()
    found = ran.records[HOST].summaries["feature_importance"]
    nodes = [node for tree in ran.outputs[GUEST].model["trees"] for node in tree if "feature" in node]
    assert sum(one["split"] for one in found.values()) == len(nodes)
    assert sum(one["gain"] for one in found.values()) == pytest.approx(sum(node["gain"] for node in nodes))


def test_bins_are_the_quantiles_of_all_rows():
    ran = train(USUAL | {"bin_num": 4, "tree_param": {"max_depth": 6}})
    for _, name, value in splits_of(ran):
        edges = np.quantile(MATRIX[:, int(name[1:])], [0.25, 0.5, 0.75], method="inverted_cdf")
        assert value in edges


@pytest.mark.parametrize("parameters", [USUAL, REGRESSION])
def test_a_prediction_is_that_of_the_fit(parameters):
    ran = train(parameters)
    given = {
        party: PartInputs(parameters, {"test_data": [frame(MATRIX[rows])]}, {"model": {"m": ran.outputs[party].model}})
        for party, rows in ROWS["two"].items()
    }
    again = run_parts("HomoSecureBoost", given | {ARBITER: PartInputs(parameters, {}, {"model": {"m": {}}})})
    assert scores_of(again) == pytest.approx(scores_of(ran), abs=1e-12)
    assert {one.name for one in again.sent} == {"goes_on"}


def test_rows_that_validate_are_predicted():
    given = {
        party: PartInputs(USUAL, {"train_data": [frame(MATRIX[rows], Y[rows])], "validate_data": [frame(MATRIX, Y)]})
        for party, rows in ROWS["two"].items()
    }
    found = run_parts("HomoSecureBoost", given | {ARBITER: PartInputs(USUAL)}).outputs[GUEST].data[0]
    assert found.columns["type"].tolist() == ["train"] * 200 + ["validate"] * 569
    assert found.columns[SCORE][:200] == pytest.approx(found.columns[SCORE][200:400], abs=1e-12)


def test_an_empty_party_changes_nothing():
    rows = {GUEST: slice(0, 569), HOST: slice(569, 569)}
    given = {party: PartInputs(USUAL, {"train_data": [frame(MATRIX[one], Y[one])]}) for party, one in rows.items()}
    ran = run_parts("HomoSecureBoost", given | {ARBITER: PartInputs(USUAL)})
    assert splits_of(ran) == splits_of(train())
    assert ran.outputs[GUEST].data[0].columns[SCORE] == pytest.approx(scores_of(train()), abs=1e-8)
    theirs = ran.outputs[HOST].data[0]
    assert theirs is not None
    assert len(theirs) == 0


def test_the_arbiter_sees_no_counts():
    ran = train(cuts="three")
    small = [one for one in ran.sent if one.name == "covered" and decode(one.data) is not None]
    words = np.concatenate([decode(one.data)["words"].ravel() for one in small])
    assert (words < 1 << 40).mean() < 1e-3
    assert all(one.to == ARBITER for one in small)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"num_trees": 0}, "num_trees"),
        ({"subsample_feature_rate": 2}, "subsample_feature_rate"),
        ({"backend": "gpu"}, "backend"),
        ({"multi_mode": "multi_output"}, "multi_mode"),
        ({"objective_param": {"objective": "huber"}}, "huber"),
        ({"tree_param": {"max_depth": 0}}, "max_depth"),
    ],
)
def test_wrong_parameters_are_named(parameters, message):
    with pytest.raises(UsageError, match=message):
        train(USUAL | parameters)


def test_parties_that_do_not_fit_each_other():
    good = frame(MATRIX[:50, :4], Y[:50])
    missing = frame(np.full((50, 4), np.nan), Y[:50])
    for other, theirs, message in (
        (replace(good, label="", columns={name: good.columns[name] for name in good.features}), USUAL, "no label"),
        (missing, USUAL, "missing"),
        (good, USUAL | {"bin_num": 8}, "bin_num is 8 at host 2"),
        (good, USUAL | {"tree_param": {"max_depth": 2}}, r"tree_param\.max_depth is 2"),
    ):
        given = {GUEST: PartInputs(USUAL, {"train_data": [good]}), HOST: PartInputs(theirs, {"train_data": [other]})}
        with pytest.raises(UsageError, match=message):
            run_parts("HomoSecureBoost", given | {ARBITER: PartInputs(USUAL)})
