import numpy as np
import pytest

from tests.unit.frontends.federated.components.parts_of import frame, run_alone
from weft.frontends.federated.components.frame import PartyFrame
from weft.model.errors import UsageError

NUMBERS = frame(np.arange(6.0).reshape(3, 2), np.array([0, 1, 0]))
TEXTS = PartyFrame(np.array(["a", "b"], dtype=object), {"x0": np.array(["1", "2"], dtype=object)})


def expand(rows=NUMBERS, model=None, **parameters):
    return run_alone("ColumnExpand", rows, model, **parameters)


def test_columns_are_appended_with_their_values():
    found = expand(append_header=["a", "b"], fill_value=[0, 0.5]).data[0]
    assert found.features == ("x0", "x1", "a", "b")
    assert found.matrix()[:, 2:].tolist() == [[0.0, 0.5]] * 3
    assert found.label == "y"


def test_rows_before_a_data_transform_get_texts():
    found = expand(TEXTS, append_header=["a", "b"], fill_value=[0, "none"]).data[0]
    assert found.columns["a"].tolist() == ["0", "0"]
    assert found.columns["b"].tolist() == ["none", "none"]


@pytest.mark.parametrize(("fill", "value"), [({}, 1e-8), ({"fill_value": 3}, 3.0), ({"fill_value": [4]}, 4.0)])
def test_one_value_is_that_of_all(fill, value):
    found = expand(append_header=["a", "b"], method="Manual", **fill).data[0]
    assert found.matrix()[:, 2:].tolist() == [[value, value]] * 3


@pytest.mark.parametrize("given", [{}, {"append_header": None}, {"append_header": []}])
def test_without_names_rows_stay_as_they_are(given):
    assert expand(**given).data[0].features == ("x0", "x1")


def test_a_prediction_appends_the_columns_of_its_model():
    model = expand(append_header=["a"], fill_value=[7]).model
    found = expand(model=model, append_header=["b"]).data[0]
    assert found.features == ("x0", "x1", "a")
    assert found.columns["a"].tolist() == [7.0] * 3
    with pytest.raises(UsageError, match="does not have the model"):
        expand(model={})


def test_anonymous_names_go_on():
    rows = PartyFrame(
        NUMBERS.ids, NUMBERS.columns, label="y", about={"anonymous": {"x0": "guest_1_x0", "x1": "guest_1_x1"}}
    )
    names = expand(rows, append_header=["a"]).data[0].about["anonymous"]
    assert names == {"x0": "guest_1_x0", "x1": "guest_1_x1", "a": "guest_1_exp_0"}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"append_header": ["a", "b"], "fill_value": [1, 2, 3]}, "2 names, and fill_value 3 values"),
        ({"append_header": ["x1"]}, "has a column 'x1' already"),
        ({"append_header": ["a", "a"]}, "has a column 'a' already"),
        ({"append_header": [""]}, "append_header"),
        ({"append_header": {"a": 1}}, "append_header"),
        ({"append_header": ["a"], "fill_value": [True]}, "fill_value"),
        ({"append_header": ["a"], "fill_value": [None]}, "fill_value"),
        ({"append_header": ["a"], "method": "learnt"}, "method"),
    ],
)
def test_wrong_parameters_are_named(given, message):
    with pytest.raises(UsageError, match=message):
        expand(**given)
