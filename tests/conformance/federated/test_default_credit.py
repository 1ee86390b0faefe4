"""What joint models of default_credit measure: 30,000 real clients, whose columns a bank and a shop have.

These rows tell a federation from a guest that ignores its host: with its own columns alone the AUC is lower by 0.065.
The sums are those of plain numbers; other tests show that encrypted ones make the same models.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.csv
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from tests.unit.frontends.federated.components.parts_of import ARBITER, GUEST, HOST, frame
from weft.frontends.federated.components.predictions import SCORE
from weft.testing.parts import PartInputs, run_parts

pytestmark = pytest.mark.slow
DATA = Path(__file__).parents[3] / "examples" / "federated" / "data"
PLAIN = {"encrypt_param": {"method": "plain"}}
Array = np.ndarray[Any, Any]


@cache
def rows() -> tuple[Array, Array, Array]:
    """Return the columns of the guest, those of the host, and the labels, in one order of the rows."""
    mine, theirs = (
        pyarrow.csv.read_csv(DATA / f"default_credit_{role}.csv.gz").sort_by("id").to_pydict()
        for role in ("guest", "host")
    )
    assert mine["id"] == theirs["id"]
    columns = [np.column_stack([one[name] for name in one if name not in ("id", "y")]) for one in (mine, theirs)]
    return columns[0], columns[1], np.array(mine["y"])


def joint(module: str, parameters: dict[str, Any], *, arbiter: bool) -> float:
    """Train over the columns of both parties, and return the AUC of the rows of the training."""
    mine, theirs, y = rows()
    given = {
        GUEST: PartInputs(parameters, {"train_data": [frame(mine, y)]}),
        HOST: PartInputs(parameters, {"train_data": [frame(theirs, first=mine.shape[1])]}),
    }
    ran = run_parts(module, given | ({ARBITER: PartInputs(parameters)} if arbiter else {}))
    found = ran.outputs[GUEST].data[0]
    assert found is not None
    return float(roc_auc_score(y, found.columns[SCORE]))


def test_a_joint_regression_is_as_good_as_that_of_pooled_columns_and_better_than_the_guest_alone() -> None:
    mine, theirs, y = rows()
    assert len(y) == 30_000
    both = np.hstack([mine, theirs])
    pooled, alone = (
        roc_auc_score(y, LogisticRegression(C=1 / (0.001 * len(y)), max_iter=1000).fit(some, y).decision_function(some))
        for some in (both, mine)
    )
    usual = {"optimizer": "adam", "learning_rate": 0.1, "alpha": 0.001, "batch_size": 3200, "max_iter": 10} | PLAIN
    found = joint("HeteroLR", usual, arbiter=True)
    assert found == pytest.approx(pooled, rel=0.01)
    assert found == pytest.approx(0.724, rel=0.01)
    assert alone == pytest.approx(0.659, rel=0.01)


def test_joint_trees_are_as_good_as_those_of_pooled_columns() -> None:
    mine, theirs, y = rows()
    both = np.hstack([mine, theirs])
    model = HistGradientBoostingClassifier(
        max_iter=5, max_depth=3, learning_rate=0.3, max_bins=32, l2_regularization=0.1, early_stopping=False
    )
    pooled = roc_auc_score(y, model.fit(both, y).decision_function(both))
    trees = {"num_trees": 5, "tree_param": {"max_depth": 3}, "learning_rate": 0.3, "bin_num": 32} | PLAIN
    found = joint("HeteroSecureBoost", trees, arbiter=False)
    assert found == pytest.approx(pooled, rel=0.01)
    assert found == pytest.approx(0.773, rel=0.01)
