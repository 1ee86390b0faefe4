"""Missing values in boosted trees, against HistGradientBoostingRegressor of scikit-learn and a search by hand.

scikit-learn learns the side of missing values for each split, too, and sends those of a column without any to the side
with more rows.
"""

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingRegressor

from tests.unit.frontends.federated.components.parts_of import ARBITER, GUEST, HOST, HOST_2, frame
from weft.frontends.federated.components.predictions import SCORE
from weft.frontends.federated.components.trees import FeatureBins, left_sums
from weft.frontends.federated.wire import decode
from weft.model.errors import UsageError
from weft.testing.parts import PartInputs, run_parts

TREES = {
    "task_type": "regression",
    "objective_param": {"objective": "lse"},
    "num_trees": 4,
    "bin_num": 100,
    "n_iter_no_change": False,
    "tree_param": {"max_depth": 3, "criterion_params": [0.0, 0.0], "min_impurity_split": 1e-9},
    "encrypt_param": {"method": "plain"},
    "use_missing": True,
}
CUTS = {GUEST: slice(0, 2), HOST: slice(2, 4), HOST_2: slice(4, 5)}
ROWS = {GUEST: slice(0, 50), HOST: slice(50, 120)}


def rows(seed=1, count=120):
    """Return columns with missing values (but in the last one), which the label depends on, and the label."""
    random = np.random.default_rng(seed)
    matrix = np.round(random.normal(size=(count, 5)), 1)
    y = matrix[:, 0] + 2 * np.abs(matrix[:, 2]) + matrix[:, 4] + random.normal(size=count) / 5
    for column, share in ((0, 0.3), (1, 0.1), (2, 0.4), (3, 0.05)):
        gone = random.random(count) < share
        y[gone] += (2.0, 0.5, -3.0, 0.0)[column]
        matrix[gone, column] = np.nan
    return matrix, y


def reference(matrix, y, trees=4):
    return HistGradientBoostingRegressor(
        learning_rate=0.3, max_iter=trees, max_leaf_nodes=None, max_depth=3, min_samples_leaf=1, early_stopping=False
    ).fit(matrix, y)


def hetero(matrix, y, parameters=TREES, models=None):
    given = {}
    for party, columns in CUTS.items():
        data = [frame(matrix[:, columns], y if party == GUEST else None, first=columns.start)]
        key = "train_data" if models is None else "test_data"
        given[party] = PartInputs(parameters, {key: data}, {"model": {"m": models[party].model}} if models else {})
    return run_parts("HeteroSecureBoost", given)


def homo(matrix, y, parameters=TREES, models=None):
    given = {}
    for party, chosen in ROWS.items():
        data = {"train_data" if models is None else "test_data": [frame(matrix[chosen], y[chosen])]}
        given[party] = PartInputs(parameters, data, {"model": {"m": models[party].model}} if models else {})
    return run_parts(
        "HomoSecureBoost", given | {ARBITER: PartInputs(parameters, {}, {"model": {"m": {}}} if models else {})}
    )


def scores_of(ran, parties=(GUEST,)):
    return np.concatenate([ran.outputs[one].data[0].columns[SCORE].astype(float) for one in parties])


def unseen(matrix):
    """Return rows with values of the columns, and missing values in all of them."""
    random = np.random.default_rng(9)
    found = np.column_stack([random.choice(column[~np.isnan(column)], 120) for column in matrix.T])
    found[random.random(found.shape) < 0.3] = np.nan
    return found


def test_columns_of_several_parties_make_the_trees_of_scikit_learn():
    matrix, y = rows()
    best, ran = reference(matrix, y), hetero(matrix, y)
    assert scores_of(ran) == pytest.approx(best.predict(matrix), abs=1e-3)
    other = unseen(matrix)
    assert scores_of(hetero(other, y, models=ran.outputs)) == pytest.approx(best.predict(other), abs=1e-3)
    sides = [one[2] for party in CUTS for one in ran.outputs[party].model["splits"]]
    assert {True, False} == set(sides)


def test_rows_of_several_parties_make_the_trees_of_scikit_learn():
    matrix, y = rows()
    matrix[:50, 1] = np.round(np.random.default_rng(2).normal(size=50), 1)  # missing at the host alone
    best, ran = reference(matrix, y), homo(matrix, y)
    assert scores_of(ran, ROWS) == pytest.approx(best.predict(matrix), abs=1e-3)
    other = unseen(matrix)
    assert scores_of(homo(other, y, models=ran.outputs), ROWS) == pytest.approx(best.predict(other), abs=1e-3)


@pytest.mark.parametrize("run", [hetero, homo])
def test_zeros_may_count_as_missing(run):
    matrix, y = rows(3)
    zeros = np.where(np.isnan(matrix), 0.0, matrix)
    gone = np.where(zeros == 0, np.nan, zeros)
    parties = CUTS if run is hetero else ROWS
    mine = run(zeros, y, TREES | {"zero_as_missing": True})
    other = run(gone, y)
    shown = (GUEST,) if run is hetero else tuple(ROWS)
    assert np.array_equal(scores_of(mine, shown), scores_of(other, shown))
    again = run(zeros, y, TREES | {"zero_as_missing": True}, models={one: mine.outputs[one] for one in parties})
    assert np.allclose(scores_of(again, shown), scores_of(other, shown))


def test_missing_values_alone_can_be_told_from_the_rest():
    matrix = np.ones((40, 5))
    matrix[::4, 3] = np.nan
    y = np.where(np.isnan(matrix[:, 3]), 5.0, 1.0)
    ran = hetero(matrix, y, TREES | {"num_trees": 30})
    assert scores_of(ran) == pytest.approx(y, abs=1e-3)


def test_paillier_makes_the_trees_of_plain_numbers():
    matrix, y = rows(4, 40)
    few = TREES | {"num_trees": 1, "bin_num": 5}
    plain = hetero(matrix, y, few)
    encrypted = hetero(matrix, y, few | {"encrypt_param": {"method": "Paillier"}})
    assert scores_of(plain) == pytest.approx(scores_of(encrypted), abs=1e-9)
    assert not any(isinstance(decode(one.data), float) for one in encrypted.sent)


def test_features_of_a_tree_are_columns():
    matrix, y = rows()
    ran = hetero(matrix, y, TREES | {"num_trees": 8, "subsample_feature_rate": 0.5})
    assert scores_of(ran).std() > 0.5


def test_the_sums_of_both_sides_are_those_of_a_search_by_hand():
    matrix, _ = rows(5, 60)
    bins = FeatureBins.of(matrix, 8)
    random = np.random.default_rng(6)
    g, h = random.integers(-50, 50, 60), random.integers(1, 50, 60)
    chosen = np.arange(0, 60, 2)
    sums = left_sums(bins, chosen, g[chosen], h[chosen])
    for at in range(bins.candidates):
        feature, edge = bins.candidate(at)
        column, threshold = matrix[chosen, bins.columns[feature]], bins.edges[feature][edge]
        left = np.isnan(column) | (column <= threshold) if bins.missing_left[feature] else column <= threshold
        assert (sums.g[at], sums.h[at], sums.counts[at]) == (g[chosen][left].sum(), h[chosen][left].sum(), left.sum())
    assert bins.columns.tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 4]


def test_a_column_without_any_value_splits_nothing():
    bins = FeatureBins.of(np.array([[np.nan, 1.0], [np.nan, 2.0]]), 4)
    assert [one.tolist() for one in bins.edges[2:]] == [[1.0]]
    sums = left_sums(bins, np.arange(2), np.array([1, 2]), np.array([1, 1]))
    assert sums.counts.tolist() == [0, 2, 1]


@pytest.mark.parametrize("run", [hetero, homo])
def test_missing_values_need_the_parameter(run):
    matrix, y = rows()
    with pytest.raises(UsageError, match=r"row \d+ of column .* is missing"):
        run(matrix, y, TREES | {"use_missing": False})
    matrix[0, 0] = np.inf
    with pytest.raises(UsageError, match="infinite"):
        run(matrix, y)
