"""Components that change the columns or rows of one party."""

import numpy as np
import pytest

from tests.unit.frontends.federated.components.parts_of import GUEST, frame
from weft.frontends.federated.components.frame import PartyFrame
from weft.model.errors import UsageError
from weft.testing.parts import PartInputs, run_parts

ROWS = np.array([[1.0, 10.0], [2.0, 20.0], [3.0, 30.0], [4.0, 100.0]])


def scale(rows, model=None, **parameters):
    models = {"model": {"s": model}} if model else {}
    ran = run_parts("FeatureScale", {GUEST: PartInputs(parameters, {"data": [frame(rows)]}, models)})
    return ran.outputs[GUEST].data[0].matrix(), ran.outputs[GUEST].model


def test_features_get_a_common_range():
    found, model = scale(ROWS, method="min_max_scale")
    assert found.tolist() == [
        [0, 0],
        [pytest.approx(1 / 3), pytest.approx(1 / 9)],
        [pytest.approx(2 / 3), pytest.approx(2 / 9)],
        [1, 1],
    ]
    again, _ = scale(np.array([[0.0, 55.0]]), model)
    assert again.tolist() == [[0.0, 0.5]]


def test_features_get_mean_0_and_deviation_1():
    found, _ = scale(ROWS, method="standard_scale")
    assert found.mean(axis=0) == pytest.approx([0, 0])
    assert found.std(axis=0) == pytest.approx([1, 1])
    found, _ = scale(ROWS, method="standard_scale", with_std=False)
    assert found.mean(axis=0) == pytest.approx([0, 0])
    assert found[:, 0].tolist() == [-1.5, -0.5, 0.5, 1.5]


def test_bounds_are_values_or_shares_of_rows():
    found, _ = scale(ROWS, method="min_max_scale", feat_upper={"x1": 30})
    assert found[:, 1].tolist() == [0, 0.5, 1, 1]
    found, _ = scale(ROWS, method="min_max_scale", mode="cap", feat_upper=0.5)
    assert found[-1].tolist() == [1, 1]


def test_only_chosen_features_are_scaled():
    for chosen in ({"scale_col_indexes": [1]}, {"scale_names": ["x1"]}):
        found, _ = scale(ROWS, method="min_max_scale", **chosen)
        assert found[:, 0].tolist() == ROWS[:, 0].tolist()
        assert found[:, 1].max() == 1


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"method": "guess"}, "method"),
        ({"scale_col_indexes": [7]}, "scale_col_indexes"),
        ({"scale_names": ["z"]}, "no feature 'z'"),
        ({"feat_upper": "high"}, "feat_upper"),
        ({"mode": "cap", "feat_upper": 30}, "feat_lower and feat_upper are 0 and 30"),
        ({"mode": "cap", "feat_lower": 0.9, "feat_upper": 0.1}, "are 0.9 and 0.1"),
    ],
)
def test_wrong_parameters_are_named(parameters, message):
    with pytest.raises(UsageError, match=message):
        scale(ROWS, **parameters)


def union(*frames, **parameters):
    ran = run_parts("Union", {GUEST: PartInputs(parameters, {"data": list(frames)})})
    return ran.outputs[GUEST].data[0]


def rows(*names):
    return PartyFrame(np.array(names, dtype=object), {"x": np.arange(len(names), dtype=float)})


def test_tables_are_joined_and_the_first_row_of_an_id_stays():
    found = union(rows("a", "b"), rows("b", "c"))
    assert found.ids.tolist() == ["a", "b", "c"]
    assert found.columns["x"].tolist() == [0, 1, 1]
    assert union(rows("a"), rows("a"), keep_duplicate=True).ids.tolist() == ["a", "a"]
    with pytest.raises(UsageError, match="only some tables at guest 1 have 'x', 'y'"):
        union(rows("a"), PartyFrame(np.array(["b"], dtype=object), {"y": np.zeros(1)}))


def test_tables_with_another_order_of_columns_are_joined_by_name():
    ids = [np.array([id], dtype=object) for id in "ab"]
    found = union(
        PartyFrame(ids[0], {"x": np.zeros(1), "y": np.ones(1)}), PartyFrame(ids[1], {"y": np.ones(1), "x": np.zeros(1)})
    )
    assert {name: one.tolist() for name, one in found.columns.items()} == {"x": [0, 0], "y": [1, 1]}
