"""HeteroSecureBoost against a plain centralised implementation, scikit-learn, and what travels between the parties."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import GradientBoostingClassifier
from sklearn.metrics import roc_auc_score

from weft.frontends.federated.components.frame import PartyFrame
from weft.frontends.federated.components.wire import decode
from weft.frontends.federated.schema import Party
from weft.model.errors import UsageError
from weft.testing.parts import PartInputs, PartsRun, run_parts

Array = np.ndarray[Any, Any]
GUEST, HOST, SECOND = Party("guest", "9999"), Party("host", "10000"), Party("host", "10001")
PLAIN = {"encrypt_param": {"method": "plain"}, "n_iter_no_change": False}
BITS = 20


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
    """Return derivatives as integers of BITS digits, and what one is worth."""
    power = BITS - int(np.frexp(np.abs(values).max())[1])
    most = 2**BITS - 1
    return np.clip(np.rint(values * 2.0**power), -most, most).astype(np.int64), 2.0**-power


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

    def shown() -> Array:
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
    return shown()


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
