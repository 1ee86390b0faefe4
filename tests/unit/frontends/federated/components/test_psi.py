"""PSI: how much the distribution of features has changed."""

import numpy as np
import pytest

from tests.unit.frontends.federated.components.parts_of import GUEST, HOST, frame
from weft.model.errors import UsageError
from weft.testing.parts import PartInputs, run_parts

RANDOM = np.random.default_rng(5)
BEFORE = np.column_stack([RANDOM.normal(size=400), RANDOM.normal(size=400)])
AFTER = np.column_stack([RANDOM.normal(size=300), RANDOM.normal(1.0, 2.0, size=300)])


def index(before, after, **parameters):
    data = {"train_data": [frame(before)], "validate_data": [frame(after)]}
    ran = run_parts("PSI", {HOST: PartInputs(parameters, data)})
    assert ran.sent == []
    assert ran.records[HOST].summaries["psi_scores"] == ran.outputs[HOST].model["psi"]
    return ran.outputs[HOST].model["psi"]


def by_hand(before, after, count):
    edges = np.sort(before)[np.arange(1, count) * len(before) // count - 1]
    a, b = (np.histogram(one, [-np.inf, *np.nextafter(edges, np.inf), np.inf])[0] / len(one) for one in (before, after))
    a, b = np.maximum(a, 1e-6), np.maximum(b, 1e-6)
    return ((b - a) * np.log(b / a)).sum()


@pytest.mark.parametrize("count", [5, 20])
def test_the_index_is_that_of_shares_of_rows(count):
    found = index(BEFORE, AFTER, max_bin_num=count)
    assert found["x0"] == pytest.approx(by_hand(BEFORE[:, 0], AFTER[:, 0], count))
    assert found["x1"] == pytest.approx(by_hand(BEFORE[:, 1], AFTER[:, 1], count))
    assert found["x1"] > 0.2 > found["x0"]


def test_equal_tables_have_index_0():
    assert index(BEFORE, BEFORE) == {"x0": 0, "x1": 0}


def test_missing_values_are_a_bin_of_their_own():
    after = BEFORE.copy()
    after[:100, 0] = np.nan
    gone = index(BEFORE, after)["x0"]
    assert gone > 0.25 * np.log(0.25 / 1e-6)
    after[:100, 0] = -99
    assert index(BEFORE, after, dense_missing_val=-99)["x0"] == gone
    assert index(BEFORE, after)["x0"] < 1


def test_shares_and_edges_are_in_the_model():
    data = {"train_data": [frame(BEFORE)], "validate_data": [frame(AFTER)]}
    ran = run_parts("PSI", {GUEST: PartInputs({"max_bin_num": 4}, data)})
    model = ran.outputs[GUEST].model
    assert model["columns"]["x0"]["expected"] == [0.25, 0.25, 0.25, 0.25, 0]
    assert sum(model["columns"]["x0"]["parts"]) == model["psi"]["x0"]
    assert ran.records[GUEST].metrics["psi", "x0"] == model["psi"]["x0"]
    again = run_parts("PSI", {GUEST: PartInputs({}, data, {"model": {"psi_0": model}})})
    assert again.outputs[GUEST].model is None


def test_wrong_input_is_named():
    with pytest.raises(UsageError, match="max_bin_num"):
        index(BEFORE, AFTER, max_bin_num=1.5)
    with pytest.raises(UsageError, match="binning_error"):
        index(BEFORE, AFTER, binning_error="x")
    with pytest.raises(UsageError, match="dense_missing_val"):
        index(BEFORE, AFTER, dense_missing_val="none")
    with pytest.raises(UsageError, match="different features"):
        index(BEFORE, AFTER[:, :1])
    with pytest.raises(UsageError, match="no rows"):
        index(BEFORE, AFTER[:0])
    with pytest.raises(UsageError, match="no values"):
        index(np.full((3, 1), np.nan), np.zeros((3, 1)))
    with pytest.raises(UsageError, match="no rows at host 2"):
        run_parts("PSI", {HOST: PartInputs({}, {"train_data": [frame(BEFORE)]})})
