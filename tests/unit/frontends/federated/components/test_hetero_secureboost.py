"""HeteroSecureBoost against a plain centralised implementation, scikit-learn, and what travels between the parties."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import GradientBoostingClassifier
from sklearn.metrics import roc_auc_score

from weft.frontends.federated.components.frame import PartyFrame
from weft.frontends.federated.schema import Party
from weft.frontends.federated.wire import decode
from weft.model.errors import UsageError
from weft.testing.parts import PartInputs, PartsRun, run_parts

pytestmark = pytest.mark.slow

Array = np.ndarray[Any, Any]
GUEST, HOST, SECOND = Party("guest", "9999"), Party("host", "10000"), Party("host", "10001")
PLAIN = {"encrypt_param": {"method": "plain"}, "n_iter_no_change": False}
DIGITS = 8


def frames(matrix: Array, y: Array, *cuts: int) -> dict[Party, PartyFrame]:
    """Return the columns of a matrix by party: those before the first cut, with the label, are the guest's."""
    ids = np.array([f"r{at}" for at in range(len(matrix))])
    found = {}
    bounds = [0, *cuts, matrix.shape[1]]
    for party, start, end in zip((GUEST, HOST, SECOND), bounds, bounds[1:], strict=False):
        columns = {f"x{at}": matrix[:, at] for at in range(start, end)}
        if party == GUEST:
            columns = {"y": y} | columns
        found[party] = PartyFrame(ids=ids, columns=columns, label="y" if party == GUEST else "")
    return found


def train(data: dict[Party, PartyFrame], module: str = "HeteroSecureBoost", **parameters: Any) -> PartsRun:
    given = PLAIN | parameters
    return run_parts(module, {one: PartInputs(given, {"train_data": [frame]}) for one, frame in data.items()})


def predict(data: dict[Party, PartyFrame], run: PartsRun, **parameters: Any) -> PartsRun:
    given = {
        one: PartInputs(PLAIN | parameters, {"test_data": [frame]}, {"model": {"m": run.outputs[one].model}})
        for one, frame in data.items()
    }
    return run_parts("HeteroSecureBoost", given)


def scores_of(run: PartsRun) -> Array:
    frame = run.outputs[GUEST].data[0]
    assert frame is not None
    return frame.columns["predict_score"].astype(float)


def some_rows(seed: int, count: int, width: int) -> Array:
    return np.round(np.random.default_rng(seed).normal(size=(count, width)), 2)


# ------------------------------------------------------------------------------------------- the centralised algorithm


def whole_numbers(values: Array) -> tuple[Array, float]:
    """Return derivatives as integers, DIGITS of them for the mean of the larger half, and what one is worth."""
    count = len(values) // 2
    room, bits = sum(sorted(map(abs, values.tolist()))[-count:]) * (1 + 2.0 ** (1 - DIGITS)), count.bit_length()
    power = DIGITS + bits - int(np.frexp(room)[1])
    return np.rint(values * 2.0**power).astype(np.int64), 2.0**-power


def edges_of(column: Array, bins: int) -> list[float]:
    ordered = sorted(column.tolist())
    edges = set()
    for at in range(1, bins):
        edges.add(ordered[max(0, int(np.ceil(at / bins * len(ordered) - 1e-12)) - 1)])
    return sorted(one for one in edges if one < ordered[-1])


def best_split(columns: list[Array], edges: list[list[float]], rows: Array, g: Any, h: Any) -> Any:
    """Return gain, feature and threshold of the first best split of some rows; None if none is good enough."""
    (g_int, g_unit), (h_int, h_unit) = g, h

    def score(some: Array) -> float:
        return float((g_int[some].sum() * g_unit) ** 2 / (h_int[some].sum() * h_unit + 0.1))

    best = None
    for feature, column in enumerate(columns):
        for edge in edges[feature]:
            left, right = rows[column[rows] <= edge], rows[column[rows] > edge]
            if not len(left) or not len(right):
                continue
            gain = score(left) + score(right) - score(rows)
            if gain > 1e-3 and (best is None or gain > best[0]):
                best = gain, feature, edge
    return best


def centralised_tree(columns: list[Array], edges: list[list[float]], g: Array, h: Array, depth: int) -> Array:
    """Return the weights of all rows after growing a tree over all columns."""
    weights = np.zeros(len(g))
    quantised = whole_numbers(g), whole_numbers(h)
    todo = [(np.arange(len(g)), 0)]
    while todo:
        rows, level = todo.pop()
        found = best_split(columns, edges, rows, *quantised) if level < depth and len(rows) >= 2 else None
        if found is None:
            weights[rows] = -g[rows].sum() / (h[rows].sum() + 0.1)
            continue
        goes_left = columns[found[1]][rows] <= found[2]
        todo += [(rows[goes_left], level + 1), (rows[~goes_left], level + 1)]
    return weights


def centralised(matrix: Array, target: Array, kind: str, trees: int, depth: int, bins: int) -> Array:
    """Return the predictions of boosting over all columns in one place, shape (rows, outputs)."""
    columns = list(matrix.T)
    edges = [edges_of(one, bins) for one in columns]
    scores = np.tile(target.mean(axis=0) if kind == "lse" else np.zeros(target.shape[1]), (len(target), 1))

    def shown() -> Any:
        if kind == "two":
            return 1 / (1 + np.exp(-scores))
        if kind == "more":
            powers = np.exp(scores - scores.max(axis=1, keepdims=True))
            return powers / powers.sum(axis=1, keepdims=True)
        return scores

    for _ in range(trees):
        p = shown()
        g, h = (2 * (p - target), np.full(p.shape, 2.0)) if kind == "lse" else (p - target, p * (1 - p))
        steps = [centralised_tree(columns, edges, g[:, at], h[:, at], depth) for at in range(target.shape[1])]
        scores = scores + 0.3 * np.column_stack(steps)
    found: Array = shown()
    return found


# ---------------------------------------------------------------------------------------------------------------- tests


@pytest.mark.parametrize("cuts", [(3,), (2, 5)], ids=["one_host", "two_hosts"])
def test_two_classes_equal_a_centralised_run_exactly(cuts: tuple[int, ...]) -> None:
    matrix = some_rows(1, 120, 7)
    y = (matrix[:, 0] + matrix[:, 4] * matrix[:, 5] > 0).astype(int)
    run = train(frames(matrix, y, *cuts), num_trees=4, bin_num=8)
    expected = centralised(matrix, y[:, None].astype(float), "two", 4, 3, 8)[:, 0]
    assert scores_of(run).tolist() == expected.tolist()
    owners = {node["party"] for tree in run.outputs[GUEST].model["trees"] for node in tree if "split" in node}
    assert owners == set(range(len(cuts) + 1))


def test_more_classes_equal_a_centralised_run_exactly() -> None:
    matrix = some_rows(2, 90, 5)
    y = np.array(["a", "b", "c"])[np.digitize(matrix[:, 1] + matrix[:, 3], [-0.5, 0.5])]
    run = train(frames(matrix, y, 2), num_trees=3, bin_num=6)
    target = np.column_stack([(y == one).astype(float) for one in "abc"])
    expected = centralised(matrix, target, "more", 3, 3, 6)
    assert scores_of(run).tolist() == expected.max(axis=1).tolist()
    assert run.outputs[GUEST].data[0].columns["predict_result"].tolist() == [
        "abc"[at] for at in expected.argmax(axis=1)
    ]
    assert len(run.outputs[GUEST].model["trees"]) == 9


def test_a_regression_equals_a_centralised_run_exactly() -> None:
    matrix = some_rows(3, 100, 6)
    y = np.round(30 * matrix[:, 0] * matrix[:, 4] + matrix[:, 5] + 200, 1)
    parameters: dict[str, Any] = {"task_type": "regression", "objective_param": {"objective": "lse"}}
    run = train(frames(matrix, y, 2), num_trees=5, bin_num=10, **parameters)
    assert scores_of(run).tolist() == centralised(matrix, y[:, None], "lse", 5, 3, 10)[:, 0].tolist()


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_paillier_gives_the_trees_of_plain_numbers(task: str) -> None:
    matrix = some_rows(4, 40, 4)
    y = (matrix[:, 0] + matrix[:, 3] > 0).astype(int)
    objective = {"objective": "cross_entropy" if task == "classification" else "lse"}
    given: dict[str, Any] = {"num_trees": 2, "bin_num": 5, "task_type": task, "objective_param": objective}
    plain = train(frames(matrix, y, 1), **given)
    encrypted = train(frames(matrix, y, 1), **given, encrypt_param={"method": "Paillier"})
    for party in (GUEST, HOST):
        assert encrypted.outputs[party].model == plain.outputs[party].model
    assert scores_of(encrypted).tolist() == scores_of(plain).tolist()


def test_breast_cancer_is_told_as_well_as_by_scikit_learn() -> None:
    bunch = load_breast_cancer()
    order = np.random.default_rng(0).permutation(len(bunch.target))
    fit, rest = order[:380], order[380:]
    data = frames(bunch.data, bunch.target, 10)
    parts = {
        one: PartInputs(PLAIN | {"num_trees": 50}, {"train_data": [f.take(fit)], "validate_data": [f.take(rest)]})
        for one, f in data.items()
    }
    run = run_parts("HeteroSecureBoost", parts)
    found = run.outputs[GUEST].data[0]
    validated = found.columns["type"] == "validate"
    assert run.outputs[HOST].data == (None,)
    assert validated.sum() == len(rest)
    ours = roc_auc_score(bunch.target[rest], found.columns["predict_score"][validated].astype(float))
    other = GradientBoostingClassifier(n_estimators=50, random_state=0).fit(bunch.data[fit], bunch.target[fit])
    theirs = roc_auc_score(bunch.target[rest], other.predict_proba(bunch.data[rest])[:, 1])
    assert abs(ours - theirs) < 0.01
    curve = [loss for _, loss in run.records[GUEST].curves["train", "loss"]]
    assert len(curve) == 50
    assert all(later < earlier for earlier, later in itertools.pairwise(curve))
    assert run.records[GUEST].done[-1] == run.records[HOST].done[-1] == (50, 50)
    importance = run.records[GUEST].summaries["feature_importance"]
    assert importance["host:10000"]["split"] == len(run.outputs[HOST].model["splits"])
    hosts_own = run.records[HOST].summaries["feature_importance"]
    assert sum(one["split"] for one in hosts_own.values()) == importance["host:10000"]["split"]


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"boosting_strategy": "mix", "tree_num_per_party": 2},
        {"boosting_strategy": "layered", "host_depth": 2, "guest_depth": 1},
        {"complete_secure": True},
        {"run_goss": True, "top_rate": 0.3, "other_rate": 0.3},
        {"subsample_feature_rate": 0.5},
        {"tree_param": {"max_depth": 5, "min_leaf_node": 4, "criterion_params": {"l1": 0.2, "l2": 1}}},
    ],
    ids=str,
)
def test_a_prediction_gives_the_scores_of_the_training(given: dict[str, Any]) -> None:
    matrix = some_rows(5, 80, 7)
    y = (matrix[:, 1] * matrix[:, 3] + matrix[:, 6] > 0).astype(int)
    data = frames(matrix, y, 2, 4)
    run = train(data, num_trees=6, bin_num=8, **given)
    assert np.abs(scores_of(predict(data, run)) - scores_of(run)).max() < 1e-12
    assert roc_auc_score(y, scores_of(run)) > 0.9


def owners_by_level(tree: list[dict[str, Any]], at: int = 0, level: int = 0) -> set[tuple[int, int]]:
    node = tree[at]
    if "split" not in node:
        return set()
    below = [owners_by_level(tree, node[side], level + 1) for side in ("left", "right")]
    return {(level, node["party"])}.union(*below)


def test_strategies_choose_whose_features_split() -> None:
    matrix = some_rows(6, 80, 6)
    data = frames(matrix, (matrix[:, 0] + matrix[:, 5] > 0).astype(int), 3)
    for given, expected in (
        ({"complete_secure": True}, [{0}, {0, 1}]),
        ({"boosting_strategy": "mix"}, [{0}, {1}]),
        ({"boosting_strategy": "layered", "host_depth": 1, "guest_depth": 2}, [{0, 1}, {0, 1}]),
    ):
        trees = train(data, num_trees=2, **given).outputs[GUEST].model["trees"]
        levels = [owners_by_level(tree) for tree in trees]
        assert [{party for _, party in one} for one in levels] == expected
        if "host_depth" in given:
            assert all(party == (level == 0) for one in levels for level, party in one)
    fast = train(data, "HeteroFastSecureBoost", num_trees=2).outputs[GUEST].model["trees"]
    assert [{party for _, party in owners_by_level(tree)} for tree in fast] == [{0}, {1}]


def test_training_ends_when_the_loss_stays() -> None:
    matrix = some_rows(7, 60, 4)
    data = frames(matrix, (matrix[:, 0] > 0).astype(int), 2)
    run = train(data, num_trees=40, n_iter_no_change=True, tol=0.05, validation_freqs=1)
    losses = run.outputs[GUEST].model["losses"]
    assert 2 <= len(losses) < 40
    assert abs(losses[-1] - losses[-2]) < 0.05 <= abs(losses[-2] - losses[-3])
    assert run.records[GUEST].summaries["is_converged"]
    assert any("validation_freqs" in line for line in run.records[GUEST].lines)


# ------------------------------------------------------------------------------------------------------ what travels


def leaves(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [leaf for one in value.values() for leaf in leaves(one)]
    if isinstance(value, list):
        return [leaf for one in value for leaf in leaves(one)]
    return [value]


def test_neither_columns_nor_labels_nor_derivatives_nor_thresholds_travel() -> None:
    matrix = some_rows(8, 64, 4) + 1000.0
    matrix[:, 3] = np.arange(64) % 7 + 5000
    y = np.random.default_rng(8).integers(0, 2, 64)
    run = train(frames(matrix, y, 2), num_trees=2, bin_num=6, encrypt_param={"method": "Paillier"})
    kinds = {(one.name, one.source) for one in run.sent}
    assert kinds == {(name, GUEST) for name in ("rows", "key", "tree", "level", "choose", "kept")} | {
        (name, HOST) for name in ("sums", "sides")
    }
    secrets = {*matrix.ravel().tolist(), *(cut for one in (GUEST, HOST) for _, cut in run.outputs[one].model["splits"])}
    assert len(secrets) > 64
    model = run.outputs[GUEST].model
    secrets |= {node["weight"] for tree in model["trees"] for node in tree if node.get("weight")}
    for one in run.sent:
        value = decode(one.data)
        for leaf in leaves(value):
            assert not isinstance(leaf, float)
            numbers = leaf.ravel().tolist() if isinstance(leaf, np.ndarray) else [leaf]
            assert not secrets & {number for number in numbers if isinstance(number, (int, float))}
            if isinstance(leaf, np.ndarray):
                assert leaf.dtype.kind != "f"
                assert leaf.shape != y.shape or one.name == "sums"
                if leaf.dtype == np.uint8 and leaf.shape == (8,):
                    bits = np.unpackbits(leaf)
                    assert bits.tolist() not in (y.tolist(), (1 - y).tolist())


def test_derivatives_and_sums_are_encrypted_with_fresh_randomness() -> None:
    matrix = some_rows(9, 64, 4)
    y = np.arange(64) % 2
    run = train(frames(matrix, y, 2), num_trees=2, bin_num=6, encrypt_param={"method": "Paillier"})
    cells = [
        cell
        for one in run.sent
        for found in ([decode(one.data)] if one.name == "tree" else decode(one.data) if one.name == "sums" else [])
        if found
        for cell in found["derivatives" if one.name == "tree" else "packed"]["cells"]
    ]
    assert len(cells) > 2 * 64  # of two values alone in the first tree
    assert len(set(cells)) == len(cells)
    assert min(cell.bit_length() for cell in cells) > 3900


def test_derivatives_are_sent_twice_where_candidates_are_many_and_the_trees_stay_the_same() -> None:
    matrix = some_rows(12, 40, 6)
    data = frames(matrix, (matrix[:, 1] + matrix[:, 4] > 0).astype(int), 3)
    given: dict[str, Any] = {"num_trees": 3, "bin_num": 16, "tree_param": {"max_depth": 2}}
    plain, run = train(data, **given), train(data, **given, encrypt_param={"method": "Paillier"})
    openings = [found for one in run.sent if one.name == "tree" and (found := decode(one.data)) is not None]
    assert [one["copies"] for one in openings] == [1, 2, 2]
    assert [len(one["derivatives"]["cells"]) for one in openings] == [40, 80, 80]
    answers = [found for one in run.sent if one.name == "sums" for found in decode(one.data)]
    assert [one["beside"] > 0 for one in answers] == [False] * 2 + [True] * 4
    assert run.outputs[GUEST].model["trees"] == plain.outputs[GUEST].model["trees"]


# -------------------------------------------------------------------------------------------------------- what is wrong


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"objective_param": {"objective": "lse"}}, "objective_param.objective"),
        ({"task_type": "regression", "objective_param": {"objective": "tweedie"}}, "objective_param.objective"),
        ({"task_type": "ranking"}, "task_type"),
        ({"num_trees": 0}, "num_trees"),
        ({"num_trees": 2.5}, "num_trees"),
        ({"bin_num": 1}, "bin_num"),
        ({"learning_rate": "fast"}, "learning_rate"),
        ({"subsample_feature_rate": 0}, "subsample_feature_rate"),
        ({"tree_param": {"max_depth": 0}}, "tree_param.max_depth"),
        ({"tree_param": {"min_leaf_node": -1}}, "tree_param.min_leaf_node"),
        ({"tree_param": {"criterion_params": [-1, 0]}}, "criterion_params"),
        ({"tree_param": {"criterion_method": "gini"}}, "criterion_method"),
        ({"early_stopping_rounds": 3}, "early_stopping_rounds"),
        ({"early_stopping_rounds": 3, "validation_freqs": 1}, "early_stopping_rounds needs rows"),
        ({"multi_mode": "multi_output"}, "multi_mode"),
        ({"EINI_inference": True}, "EINI_inference"),
        ({"boosting_strategy": "random"}, "boosting_strategy"),
        ({"run_goss": True, "top_rate": 0.9, "other_rate": 0.9}, "top_rate"),
        ({"encrypt_param": {"method": "rot13"}}, "encrypt_param.method"),
    ],
    ids=str,
)
def test_wrong_parameters_are_refused_by_name(given: dict[str, Any], text: str) -> None:
    matrix = some_rows(10, 20, 4)
    with pytest.raises(UsageError, match=text):
        train(frames(matrix, (matrix[:, 0] > 0).astype(int), 2), **given)


def test_rows_that_do_not_fit_are_refused() -> None:
    matrix = some_rows(11, 20, 4)
    data = frames(matrix, (matrix[:, 3] > 0).astype(int), 2)
    with pytest.raises(UsageError, match="different numbers of rows"):
        train(data | {HOST: data[HOST].take(np.arange(19))})
    with pytest.raises(UsageError, match="no label"):
        train({GUEST: data[HOST], HOST: data[HOST]})
    with pytest.raises(UsageError, match="all rows have the same label"):
        train(frames(matrix, np.ones(20, dtype=int), 2))
    missing = matrix.copy()
    missing[3, 3] = np.nan
    with pytest.raises(UsageError, match="row 4 of column 'x3' at host 10000 is missing"):
        train(frames(missing, matrix[:, 3] > 0, 2))
    run = train(data)
    with pytest.raises(UsageError, match="have no column 'x"):
        predict(data | {HOST: PartyFrame(ids=data[HOST].ids)}, run)
    renamed = {
        one: PartInputs({}, {"test_data": [data[trained]]}, {"model": {"m": run.outputs[trained].model}})
        for one, trained in ((GUEST, GUEST), (SECOND, HOST))
    }
    with pytest.raises(UsageError, match="which is not in this job"):
        run_parts("HeteroSecureBoost", renamed)
