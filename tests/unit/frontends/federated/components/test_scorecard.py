"""Scorecard: probabilities as credit scores."""

import numpy as np
import pytest

from tests.unit.frontends.federated.components.parts_of import GUEST, HOST, frame
from weft.frontends.federated.components.predictions import TEST, class_frame, regression_frame
from weft.model.errors import UsageError
from weft.testing.parts import PartInputs, run_parts


def predictions(*probabilities, classes=(0, 1)):
    p = np.array(probabilities)
    return class_frame(frame(p[:, None], np.zeros(len(p))), np.column_stack([1 - p, p]), list(classes), TEST)


def scores(rows, **parameters):
    ran = run_parts("Scorecard", {GUEST: PartInputs(parameters, {"data": [rows]}), HOST: PartInputs(parameters)})
    assert ran.outputs[HOST].data == ()
    found = ran.outputs[GUEST].data[0]
    assert list(found.columns) == ["label", "predict_result", "predict_score", "credit_score"]
    return found.columns["credit_score"].tolist()


def test_a_score_rises_by_the_factor_when_odds_double():
    found = scores(predictions(0.5, 1 / 3, 0.2, 0.8))
    assert found == [500, 520, 540, 460]
    assert scores(predictions(0.5, 0.1), offset=100, factor=10, factor_base=3) == [100, 120]


def test_scores_have_limits():
    assert scores(predictions(0.0, 1.0)) == [1500, 0]
    assert scores(predictions(1e-7, 1 - 1e-7), upper_limit_ratio=1.5, lower_limit_value=300) == [750, 300]


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"method": "rank"}, "method"),
        ({"factor_base": 1}, "factor_base"),
        ({"offset": "high"}, "offset"),
        ({"lower_limit_value": 1501}, "lower_limit_value"),
    ],
)
def test_wrong_parameters_are_named(parameters, message):
    with pytest.raises(UsageError, match=message):
        scores(predictions(0.5), **parameters)


def test_other_rows_than_predictions_of_two_classes_are_refused():
    rows = frame(np.zeros((2, 1)))
    with pytest.raises(UsageError, match="no predictions"):
        scores(rows)
    with pytest.raises(UsageError, match="not those of two classes"):
        scores(regression_frame(rows, np.zeros(2), TEST))
    three = class_frame(rows, np.full((2, 3), 1 / 3), [0, 1, 2], TEST)
    with pytest.raises(UsageError, match="not those of two classes"):
        scores(three)
