import numpy as np
import pytest

from tests.unit.frontends.federated.components.parts_of import GUEST
from weft.frontends.federated.components import data_transform
from weft.frontends.federated.components.frame import PartyFrame
from weft.model.errors import CapacityError, UsageError
from weft.testing.parts import PartInputs, run_parts

LABELLED = {"with_label": True, "label_name": "y"}


def raw(**columns):
    count = len(next(iter(columns.values())))
    ids = np.array([str(at) for at in range(count)], dtype=object)
    return PartyFrame(ids, {name: np.array(values, dtype=object) for name, values in columns.items()})


def transform(frame, model=None, **parameters):
    models = {"model": {"t": model}} if model is not None else {}
    ran = run_parts("DataTransform", {GUEST: PartInputs(parameters, {"data": [frame]}, models)})
    return ran.outputs[GUEST].data[0], ran.outputs[GUEST].model


def test_text_becomes_numbers_and_a_label():
    frame, _ = transform(raw(y=["1", "0"], a=["1.5", "-2e3"]), **LABELLED, label_type="int")
    assert frame.label == "y"
    assert frame.y.tolist() == [1, 0]
    assert frame.y.dtype.kind == "i"
    assert frame.features == ("a",)
    assert frame.columns["a"].tolist() == [1.5, -2000.0]


def test_rows_without_a_label_are_features_alone():
    frame, _ = transform(raw(a=["1"], b=["2"]))
    assert frame.label == ""
    assert frame.features == ("a", "b")


@pytest.mark.parametrize(("method", "value"), [("min", 1.0), ("max", 5.0), ("mean", 3.0), ("designated", 9.0)])
def test_missing_values_are_filled(method, value):
    frame, model = transform(
        raw(a=["1", "", "5", "NA"]), missing_fill=True, missing_fill_method=method, default_value=9
    )
    assert frame.columns["a"].tolist() == [1.0, value, 5.0, value]
    again, _ = transform(raw(a=["", "100"]), model)
    assert again.columns["a"].tolist() == [value, 100.0]


def test_missing_values_stay_missing_if_nobody_fills_them():
    frame, _ = transform(raw(a=["1", "nan", "-999"]), missing_impute=["-999"])
    assert np.isnan(frame.columns["a"]).tolist() == [False, True, True]


def test_texts_stay_texts_if_the_data_type_is_str():
    rows = raw(y=["1", "0"], a=["red", ""])
    frame, _ = transform(rows, **LABELLED, data_type="str")
    assert (frame.y.tolist(), frame.columns["a"].tolist()) == ([1, 0], ["red", ""])
    frame, model = transform(rows, **LABELLED, data_type="str", missing_fill=True, default_value="none")
    assert frame.columns["a"].tolist() == ["red", "none"]
    assert transform(raw(a=["NA", "2"]), model)[0].columns["a"].tolist() == ["none", "2"]


def test_outliers_are_replaced():
    frame, _ = transform(
        raw(a=["1", "-9999", "3"]), outlier_replace=True, outlier_impute=["-9999"], outlier_replace_method="max"
    )
    assert frame.columns["a"].tolist() == [1.0, 3.0, 3.0]


def test_sparse_rows_and_tags():
    frame, _ = transform(raw(value=["1 0:0.5 2:3", "0 1:1"]), input_format="sparse", delimitor=" ", **LABELLED)
    assert frame.y.tolist() == [1, 0]
    assert frame.matrix().tolist() == [[0.5, 0.0, 3.0], [0.0, 1.0, 0.0]]
    frame, _ = transform(raw(value=["b a", "c"]), input_format="tag", delimitor=" ")
    assert frame.features == ("a", "b", "c")
    assert frame.matrix().tolist() == [[1, 1, 0], [0, 0, 1]]
    frame, _ = transform(raw(value=["a:2 b:3"]), input_format="tag", delimitor=" ", tag_with_value=True)
    assert frame.matrix().tolist() == [[2, 3]]


@pytest.mark.parametrize(
    ("columns", "parameters", "message"),
    [
        ({"a": ["1", "x"]}, {}, "row 2 of column 'a' at guest 1"),
        ({"a": ["1"]}, LABELLED, "no column 'y', the label"),
        ({"y": ["1_0"], "a": ["1"]}, LABELLED, "row 1 of the label .y. at guest 1 is no number"),
        ({"y": ["1"], "a": ["1_0"]}, LABELLED, "row 1 of column .a. at guest 1 has a value that is no number"),
        ({"y": ["x"], "a": ["1"]}, LABELLED, "row 1 of the label .y. at guest 1 is no number"),
        ({"a": ["1"]}, {"input_format": "poem"}, "input_format"),
        ({"a": ["1"]}, {"missing_fill": True, "missing_fill_method": "guess"}, "missing_fill_method"),
        ({"value": ["1 x"]}, {"input_format": "sparse", "delimitor": " "}, "no index:value"),
    ],
)
def test_mistakes_name_their_place(columns, parameters, message):
    with pytest.raises(UsageError, match=message):
        transform(raw(**columns), **parameters)


@pytest.mark.parametrize(
    ("columns", "parameters"),
    [({"value": ["secret 1:2"]}, {"input_format": "sparse", "delimitor": " "}), ({"a": ["secret"]}, {})],
)
def test_no_value_of_a_row_stands_in_an_error(columns, parameters):
    with pytest.raises(UsageError) as error:
        transform(raw(**columns), **parameters)
    assert "secret" not in error.value.message + error.value.hint


def test_a_prediction_needs_the_columns_of_the_fit():
    _, model = transform(raw(a=["1"], b=["2"]))
    with pytest.raises(UsageError, match="no column 'b'"):
        transform(raw(a=["1"]), model)


@pytest.mark.parametrize(
    ("form", "texts"), [("tag", ["a b", "c d"]), ("sparse", ["3:1", "0:1"])], ids=["tags", "an index that is large"]
)
def test_a_table_that_would_grow_too_wide_is_refused(monkeypatch, form, texts):
    assert len(transform(raw(value=texts), input_format=form)[0].columns) == 4
    monkeypatch.setattr(data_transform, "_MOST_CELLS", 7)
    with pytest.raises(CapacityError, match="would get 4 columns, with 8 values") as caught:
        transform(raw(value=texts), input_format=form)
    assert "input_format dense" in caught.value.hint


def test_many_rows_with_few_tags_need_little_memory():
    import tracemalloc

    frame = raw(value=[f"t{at % 5}" for at in range(20_000)])
    tracemalloc.start()
    found, _ = transform(frame, input_format="tag")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found.columns["t3"].sum() == 4000
    assert peak < 20_000 * 5 * 8 * 8


@pytest.mark.parametrize(
    ("texts", "kind", "message"),
    [
        (["1", "", "0"], "int", "row 2 of the table at guest 1 has no label in column 'y'"),
        (["1", "0", "nan"], "float", "row 3 of the table at guest 1 has no label"),
        (["a", " ", "b"], "str", "row 2 of the table at guest 1 has no label"),
        (["1", "2.5"], "int", "row 2 of the label 'y' at guest 1 is no whole number"),
        (["1", "1e999"], "float", "row 2 of the label 'y' at guest 1 is no finite number"),
    ],
)
def test_labels_are_never_changed(texts, kind, message):
    with pytest.raises(UsageError, match=message):
        transform(raw(y=texts, a=["1"] * len(texts)), **LABELLED, label_type=kind)


def test_whole_numbers_may_be_written_as_fractions():
    frame, _ = transform(raw(y=["1.0", "-2.0", "3e0"], a=["1", "2", "3"]), **LABELLED)
    assert frame.y.tolist() == [1, -2, 3]
