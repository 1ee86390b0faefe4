import numpy as np
import pytest

from tests.unit.frontends.federated.components.parts_of import GUEST, HOST, frame
from weft.frontends.federated.components.predictions import class_frame, regression_frame
from weft.model.errors import UsageError
from weft.testing.parts import PartInputs, run_parts

LABELS = np.array([1, 0, 0, 0, 1, 0, 0, 0, 0, 0])
SCORES = np.array([0.99, 0.95, 0.2, 0.9, 0.1, 0.9, 0.5, 0.91, 0.3, 0.05])
ROWS = frame(np.arange(20.0).reshape(10, 2), LABELS)
PREDICTIONS = class_frame(ROWS, np.column_stack([1 - SCORES, SCORES]), [0, 1], "train").take(np.arange(9, -1, -1))


def label(rows=ROWS, predictions=PREDICTIONS, **parameters):
    frames = [one for one in (rows, predictions) if one is not None]
    given = {GUEST: PartInputs(parameters, {"data": frames}), HOST: PartInputs(parameters, {"data": [ROWS]})}
    return run_parts("PositiveUnlabeled", given)


@pytest.mark.parametrize(
    ("strategy", "threshold", "changed"),
    [
        (None, None, [1, 3, 5, 7]),
        ("probability", 0.95, [1]),
        ("probability", 0, [1, 2, 3, 5, 6, 7, 8, 9]),
        ("quantity", 2, [1, 7]),
        ("quantity", 100, [1, 2, 3, 5, 6, 7, 8, 9]),
        ("proportion", 0.3, [1, 7]),
        ("proportion", 0.4, [1, 3, 7]),
        ("distribution", 5, [1, 3, 7]),
    ],
)
def test_strategies(strategy, threshold, changed):
    ran = label(strategy=strategy, threshold=threshold)
    found = ran.outputs[GUEST].data[0]
    assert np.flatnonzero(found.y != LABELS).tolist() == changed
    assert set(found.y.tolist()) <= {0, 1}
    assert found.features == ROWS.features
    assert ran.records[GUEST].metrics["train", "count of converted unlabeled"] == len(changed)
    assert ran.outputs[HOST].data[0].ids.tolist() == ROWS.ids.tolist()
    assert not ran.sent


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"strategy": "luck"}, "strategy"),
        ({"threshold": 1.5}, "threshold is 1.5"),
        ({"strategy": "quantity", "threshold": 0.5}, "whole number"),
        ({"strategy": "proportion", "threshold": -1}, "threshold is -1"),
        ({"predictions": None}, "0 inputs with predictions"),
        ({"rows": None}, "0 inputs with rows"),
        ({"rows": frame(np.zeros((10, 1)), LABELS * 2 - 1)}, "are not 0 for unlabeled rows and 1"),
        ({"predictions": PREDICTIONS.take(slice(0, 4))}, "6 rows of guest 1 have no prediction"),
        ({"predictions": regression_frame(ROWS, SCORES * 9, "train")}, "no probabilities"),
    ],
)
def test_what_is_not_possible_is_named(given, message):
    with pytest.raises(UsageError, match=message):
        label(**given)
