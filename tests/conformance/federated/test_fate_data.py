"""Models over example data of FATE, with the parameters of its quality benchmark, against scikit-learn with its own.

The data of vehicles (Statlog, 846 rows, four kinds) and of a motor (800 rows) come with FATE and not with
Weft: the variable WEFT_FATE_DATA names the folder `examples/data` of its sources.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.csv
import pytest
from sklearn.linear_model import RidgeClassifier, SGDClassifier, SGDRegressor
from sklearn.metrics import r2_score

from tests.unit.frontends.federated.components.parts_of import ARBITER, GUEST, HOST, frame
from weft.frontends.federated.components.predictions import SCORE
from weft.testing.parts import PartInputs, PartsRun, run_parts

DATA = Path(os.environ.get("WEFT_FATE_DATA") or "examples/data")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not (DATA / "vehicle_scale_hetero_guest.csv").is_file(),
        reason="no data of FATE: WEFT_FATE_DATA names examples/data of its sources",
    ),
]
PLAIN = {"encrypt_param": {"method": "plain"}}
Array = np.ndarray[Any, Any]


def rows(name: str, label: str, key: str = "id") -> tuple[Array, Array, Array]:
    """Return the columns of the guest, those of the host, and the labels, in one order of the rows."""
    mine, theirs = (
        pyarrow.csv.read_csv(DATA / f"{name}_hetero_{role}.csv").sort_by(key).to_pydict() for role in ("guest", "host")
    )
    assert mine[key] == theirs[key]
    columns = [np.column_stack([one[name] for name in one if name not in (key, label)]) for one in (mine, theirs)]
    return columns[0], columns[1], np.array(mine[label])


def joint(module: str, parameters: dict[str, Any], mine: Array, theirs: Array, y: Array) -> PartsRun:
    given = {
        GUEST: PartInputs(parameters, {"train_data": [frame(mine, y)]}),
        HOST: PartInputs(parameters, {"train_data": [frame(theirs, first=mine.shape[1])]}),
        ARBITER: PartInputs(parameters),
    }
    return run_parts(module, given)


def test_the_speed_of_a_motor_is_told_as_well_as_from_the_pooled_columns() -> None:
    mine, theirs, y = rows("motor", "motor_speed", "idx")
    both = np.hstack([mine, theirs])
    model = SGDRegressor(penalty="l2", random_state=42, max_iter=6, tol=None, average=100)
    pooled = r2_score(y, model.fit(both, y).predict(both))
    asked = {"optimizer": "sgd", "learning_rate": 0.13, "alpha": 0.01, "batch_size": 100, "max_iter": 6} | PLAIN
    found = joint("HeteroLinR", asked | {"penalty": "L2"}, mine, theirs, y).outputs[GUEST].data[0]
    assert found is not None
    r2 = r2_score(y, found.columns[SCORE])
    assert (pooled, r2) == pytest.approx((0.9035, 0.9031), rel=0.01)  # what FATE has published for both


def accuracy_of_vehicles(**parameters: Any) -> float:
    """Train, and return the share of rows whose kind is told right."""
    mine, theirs, y = rows("vehicle_scale", "y")
    usual = {"optimizer": "adam", "penalty": "L2", "alpha": 0.00001} | PLAIN
    ran = joint("HeteroLR", usual | parameters, mine, theirs, y)
    assert len(ran.outputs[HOST].model["models"]) == 4
    found = ran.outputs[GUEST].data[0]
    assert found is not None
    return float((found.columns["predict_result"].astype(int) == y).mean())


def test_kinds_of_vehicles_are_told_as_well_as_from_the_pooled_columns() -> None:
    mine, theirs, y = rows("vehicle_scale", "y")
    both = np.hstack([mine, theirs])
    model = SGDClassifier(loss="log_loss", alpha=0.00001, max_iter=20, eta0=0.3, random_state=105, shuffle=False)
    with pytest.warns(UserWarning, match="iteration"):
        pooled = model.fit(both, y).score(both, y)
    assert accuracy_of_vehicles(learning_rate=0.3, batch_size=16, max_iter=20) > 0.99 * pooled


def test_the_linear_losses_of_vehicles_end_where_those_of_the_pooled_columns_do() -> None:
    """The loss of HeteroLR is a polynomial of second order, whose least is that of a ridge regression of the kinds."""
    mine, theirs, y = rows("vehicle_scale", "y")
    both = np.hstack([mine, theirs])
    pooled = RidgeClassifier(alpha=1e-6).fit(both, y).score(both, y)
    far = {"learning_rate": 0.1, "batch_size": -1, "max_iter": 300, "early_stop": "weight_diff", "tol": 1e-6}
    assert accuracy_of_vehicles(**far, decay=0.0) == pytest.approx(pooled, rel=0.01)
