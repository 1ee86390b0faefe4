"""Components that change, describe or choose the rows of each party."""

import json

import numpy as np
import pytest
from scipy import stats

from tests.unit.frontends.federated.components.parts_of import GUEST, HOST, breast, frame
from tests.unit.frontends.federated.components.parts_of import run_alone as run
from weft.frontends.federated.components.frame import PartyFrame
from weft.model.errors import UsageError
from weft.testing.parts import PartInputs, run_parts

MATRIX, Y = breast()


def rows_of(**columns):
    count = len(next(iter(columns.values())))
    ids = np.array([f"id{at}" for at in range(count)], dtype=object)
    return PartyFrame(ids, {name: np.array(one) for name, one in columns.items()})


# ----------------------------------------------------------------------------------------------------------- one-hot


def test_each_value_becomes_a_column():
    rows = rows_of(size=[1.0, 2.0, 1.0], colour=np.array(["red", "blue", "red"], dtype=object))
    found = run("OneHotEncoder", rows)
    columns = found.data[0].columns
    assert list(columns) == ["size_1", "size_2", "colour_blue", "colour_red"]
    assert columns["colour_red"].tolist() == [1, 0, 1]
    new = rows_of(size=[2.0, 3.0], colour=np.array(["red", "green"], dtype=object))
    again = run("OneHotEncoder", new, found.model).data[0]
    assert again.matrix().tolist() == [[0, 1, 0, 1], [0, 0, 0, 0]]
    only = run("OneHotEncoder", rows, transform_col_names=["colour"], transform_col_indexes=[]).data[0]
    assert list(only.columns) == ["size", "colour_blue", "colour_red"]


def test_columns_that_cannot_be_encoded_are_refused():
    with pytest.raises(UsageError, match="missing"):
        run("OneHotEncoder", rows_of(a=[1.0, np.nan]))
    with pytest.raises(UsageError, match="missing"):
        run("OneHotEncoder", rows_of(a=np.array(["x", None], dtype=object)))
    with pytest.raises(UsageError, match="texts and numbers"):
        run("OneHotEncoder", rows_of(a=np.array(["x", 1.0], dtype=object)))
    with pytest.raises(UsageError, match="two columns 'a_1'"):
        run("OneHotEncoder", rows_of(a=[1.0], a_1=[2.0]), transform_col_names=["a"])
    with pytest.raises(UsageError, match="different values"):
        run("OneHotEncoder", rows_of(a=np.arange(1025.0)))
    assert len(run("OneHotEncoder", rows_of(a=np.arange(1024.0))).data[0].columns) == 1024


def test_values_that_were_not_in_the_training_are_counted():
    model = run("OneHotEncoder", rows_of(a=[1.0, 2.0], b=[5.0, 5.0])).model
    given = PartInputs({}, {"data": [rows_of(a=[2.0, 3.0, 4.0], b=[5.0, 5.0, 5.0])]}, {"model": {"m": model}})
    ran = run_parts("OneHotEncoder", {GUEST: given})
    assert ran.outputs[GUEST].data[0].matrix().tolist() == [[0, 1, 1], [0, 0, 1], [0, 0, 1]]
    assert ran.records[GUEST].summaries["unknown"] == {"a": 2}
    assert "2 values of a" in ran.records[GUEST].lines[0]


# -------------------------------------------------------------------------------------------------------- statistics


def test_statistics_are_those_of_the_columns():
    model = run("DataStatistics", frame(MATRIX), statistics=["summary", "count", "95%"]).model
    found, column = model["statistics"]["x3"], MATRIX[:, 3]
    truth = {
        "count": 569,
        "sum": column.sum(),
        "mean": column.mean(),
        "stddev": column.std(),
        "median": np.median(column),
        "min": column.min(),
        "max": column.max(),
        "variance": column.var(),
        "skewness": stats.skew(column),
        "kurtosis": stats.kurtosis(column),
        "95%": np.percentile(column, 95),
        "missing_count": 0,
        "missing_ratio": 0,
    }
    assert {name: found[name] for name in truth} == pytest.approx(truth, abs=1e-9)
    assert len(model["statistics"]) == 30
    unbiased = run("DataStatistics", frame(MATRIX), statistics=["skewness", "kurtosis"], bias=False).model
    shown = unbiased["statistics"]["x3"]
    assert shown["skewness"] == pytest.approx(stats.skew(column, bias=False))
    assert shown["kurtosis"] == pytest.approx(stats.kurtosis(column, bias=False))


@pytest.mark.parametrize("value", [99, 99.0, "99"])
def test_missing_and_abnormal_values_are_left_out(value):
    rows = rows_of(a=[1.0, np.nan, 3.0, 99.0])
    found = run("DataStatistics", rows, statistics=["mean", "missing_ratio"], abnormal_list=[value]).model["statistics"]
    assert (found["a"]["mean"], found["a"]["missing_ratio"], found["a"]["max"]) == (2.0, 0.5, 3.0)


def test_the_summary_is_there_whatever_is_named():
    for given in ("95%", ["95%"]):
        found = run("DataStatistics", rows_of(a=[1.0, 2.0]), statistics=given).model["statistics"]["a"]
        assert {"95%", "median", "skewness", "kurtosis", "coefficient_of_variance"} <= set(found)
    empty = rows_of(a=[np.nan, np.nan])
    found = run("DataStatistics", empty, statistics=["count"]).model["statistics"]["a"]
    assert found == {"count": 0.0, "missing_count": 2.0, "missing_ratio": 1.0}
    assert run("DataStatistics", empty, statistics=["median"]).model["statistics"]["a"] == {
        "median": None,
        "missing_count": 2.0,
        "missing_ratio": 1.0,
    }


def test_figures_are_numbers_of_json_also_around_a_mean_of_zero():
    model = run("DataStatistics", rows_of(a=[-1.0, 1.0], b=[0.0, 0.0])).model
    assert json.loads(json.dumps(model, allow_nan=False)) == model
    assert model["statistics"]["a"]["coefficient_of_variance"] == pytest.approx(1e8)
    assert model["statistics"]["b"]["coefficient_of_variance"] == 0.0


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"statistics": ["average"]}, "no statistic 'average'"),
        ({"statistics": ["101%"]}, "no statistic '101%'"),
        ({"abnormal_list": 99}, "abnormal_list is 99"),
        ({"column_indexes": [7]}, "column_indexes"),
    ],
)
def test_wrong_statistics_are_refused(parameters, message):
    with pytest.raises(UsageError, match=message):
        run("DataStatistics", rows_of(a=[1.0]), **parameters)


def test_features_are_selected_by_statistics():
    described = run("DataStatistics", frame(MATRIX[:, :4] * [1, 2, 3, 4], Y), statistics=["stddev"])
    limits = {"metrics": ["stddev"], "filter_type": ["threshold"], "take_high": [True], "threshold": [2.5]}
    given = PartInputs(
        {"filter_methods": ["statistic_filter"], "statistic_param": limits},
        {"data": [frame(MATRIX[:, :4], Y)]},
        {"isometric_model": {"statistics_0": described.model}},
    )
    ran = run_parts("HeteroFeatureSelection", {GUEST: given, HOST: PartInputs({}, {"data": [frame(MATRIX[:, 4:])]})})
    assert ran.outputs[GUEST].data[0].features == ("x2", "x3")


# -------------------------------------------------------------------------------------------------------- imputation


def test_missing_values_are_filled_as_in_the_training():
    rows = rows_of(a=[1.0, np.nan, 4.0], b=[np.nan, 2.0, -1.0])
    found = run("FeatureImputation", rows, missing_fill_method="mean", col_missing_fill_method={"b": "max"})
    assert found.data[0].matrix().tolist() == [[1, 2], [2.5, 2], [4, -1]]
    again = run("FeatureImputation", rows_of(a=[np.nan], b=[np.nan]), found.model).data[0]
    assert again.matrix().tolist() == [[2.5, 2]]
    assert run("FeatureImputation", rows).data[0].matrix()[1, 0] == 0
    own = run("FeatureImputation", rows, missing_fill_method="designated", default_value=[7, 8], missing_impute=[-1])
    assert own.data[0].matrix().tolist() == [[1, 8], [7, 2], [4, 8]]


@pytest.mark.parametrize("value", [0, 0.0, "0"])
def test_values_that_count_as_missing_are_compared_as_numbers(value):
    rows = rows_of(a=[0.0, 1.0, 4.0], b=np.array([0, 2, 2]), c=np.array(["0.0", "3", "5"], dtype=object))
    found = run("FeatureImputation", rows, missing_fill_method="Mean", missing_impute=[value])
    assert found.data[0].matrix().tolist() == [[2.5, 2, 4], [1, 2, 3], [4, 2, 5]]
    again = run("FeatureImputation", rows.take([0]), found.model).data[0]
    assert again.matrix().tolist() == [[2.5, 2, 4]]


def test_only_the_named_columns_are_filled_without_a_common_method():
    rows = rows_of(a=[np.nan, 3.0, 5.0], b=[np.nan, 1.0, 1.0])
    found = run("FeatureImputation", rows, col_missing_fill_method={"a": "MIN"}, default_value=42)
    assert found.data[0].columns["a"].tolist() == [3, 3, 5]
    assert np.isnan(found.data[0].columns["b"][0])
    assert list(found.model["fill"]) == ["a"]


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"missing_fill_method": "guess"}, "missing_fill_method"),
        ({"col_missing_fill_method": {"a": "guess"}}, "'guess'"),
        ({"missing_fill_method": "designated", "default_value": "x"}, "default_value"),
        ({"missing_fill_method": "designated", "default_value": [1]}, "default_value"),
        ({"missing_fill_method": "designated", "default_value": [1, 2, 3]}, "default_value"),
        ({"missing_fill_method": "mean", "missing_impute": [1]}, "no values to take the mean of"),
        ({"missing_impute": 0}, "missing_impute is 0"),
    ],
)
def test_wrong_imputations_are_refused(parameters, message):
    with pytest.raises(UsageError, match=message):
        run("FeatureImputation", rows_of(a=[1.0], b=[1.0]), **parameters)


# ------------------------------------------------------------------------------------------------------------- labels


def labelled(labels):
    return PartyFrame(
        np.array([f"id{at}" for at in range(len(labels))], dtype=object),
        {"y": np.array(labels, dtype=object), "x0": np.arange(float(len(labels)))},
        label="y",
    )


def test_labels_get_codes_and_predictions_their_labels_again():
    rows = labelled(["no", "yes", "no", "yes"])
    coded = run("LabelTransform", rows)
    assert coded.data[0].y.tolist() == [0, 1, 0, 1]
    predicted = run("LocalBaseline", coded.data[0]).data[0]
    back = run("LabelTransform", predicted, coded.model).data[0]
    assert back.columns["label"].tolist() == ["no", "yes", "no", "yes"]
    assert set(back.columns["predict_result"].tolist()) <= {"no", "yes"}
    assert list(json.loads(back.columns["predict_detail"][0])) == ["no", "yes"]
    assert back.columns["predict_score"].tolist() == predicted.columns["predict_score"].tolist()


def test_codes_are_those_of_the_parameters():
    found = run("LabelTransform", labelled([1, 2, 1]), label_encoder={"1": "a", "2": "b"}, label_list=[1, 2])
    assert found.data[0].y.tolist() == ["a", "b", "a"]
    with pytest.raises(UsageError, match="has no code"):
        run("LabelTransform", labelled([3]), found.model)
    with pytest.raises(UsageError, match="same code"):
        run("LabelTransform", labelled([1, 2]), label_encoder={"1": 0, "2": 0})
    with pytest.raises(UsageError, match="no code for 2"):
        run("LabelTransform", labelled([1, 2]), label_encoder={"1": 0, "3": 1}, label_list=[1, 2])
    assert run("LabelTransform", rows_of(a=[1.0])).data[0].columns["a"].tolist() == [1.0]


def test_labels_without_a_code_stay_and_come_back_with_their_type():
    rows = labelled([0, 1, 2, 0, 1, 2])
    found = run("LabelTransform", rows, label_encoder={"0": 1, "1": 0})
    assert found.data[0].y.tolist() == [1, 0, 2, 1, 0, 2]
    predicted = run("LocalBaseline", found.data[0]).data[0]
    back = run("LabelTransform", predicted, found.model).data[0]
    assert back.columns["label"].tolist() == [0, 1, 2, 0, 1, 2]
    assert back.columns["predict_result"].dtype.kind == "i"
    first, second = (json.loads(one.columns["predict_detail"][0]) for one in (predicted, back))
    assert [second[name] for name in "012"] == [first[name] for name in "102"]
    with pytest.raises(UsageError, match="same code"):
        run("LabelTransform", rows, label_encoder={"0": 2})
    with pytest.raises(UsageError, match="texts and numbers at once"):
        run("LabelTransform", labelled(["a", "b"]), label_encoder={"a": 1})


def test_predictions_are_coded_without_a_model_and_numbers_stay():
    predicted = run("LocalBaseline", labelled(["no", "yes", "no", "yes"])).data[0]
    coded = run("LabelTransform", predicted, label_encoder={"no": 10, "yes": 11}).data[0]
    assert coded.columns["label"].tolist() == [10, 11, 10, 11]
    assert list(json.loads(coded.columns["predict_detail"][0])) == ["10", "11"]
    model = run("LabelTransform", labelled([0, 1])).model
    numbers = run("LocalBaseline", frame(MATRIX[:, :2], MATRIX[:, 3]), model_name="Ridge").data[0]
    stay = run("LabelTransform", numbers, model).data[0]
    assert stay.columns["predict_result"].tolist() == numbers.columns["predict_result"].tolist()


# ------------------------------------------------------------------------------------------------- samples and splits


def both(module, **parameters):
    """Run a component at guest and host, and return their frames."""
    given = {
        GUEST: PartInputs(parameters, {"data": [frame(MATRIX[:, :2], Y)]}),
        HOST: PartInputs(parameters, {"data": [frame(MATRIX[:, 2:4])]}),
    }
    ran = run_parts(module, given)
    return ran.outputs[GUEST].data, ran.outputs[HOST].data


def test_a_sample_has_the_same_rows_at_all_parties():
    (mine,), (theirs,) = both("FederatedSample", fractions=0.25, random_state=3)
    assert mine.ids.tolist() == theirs.ids.tolist()
    assert len(mine) == len(set(mine.ids)) == 142
    places = [int(id[2:]) for id in mine.ids]
    assert theirs.matrix().tolist() == MATRIX[places, 2:4].tolist()
    (again,), _ = both("FederatedSample", fractions=0.25, random_state=3)
    assert again.ids.tolist() == mine.ids.tolist()
    (usual,), _ = both("FederatedSample")
    assert len(usual) == 57


def test_a_sample_by_labels_and_a_larger_one():
    (mine,), (theirs,) = both("FederatedSample", mode="stratified", fractions=[[0, 0.5], [1, 0.1]])
    assert [(mine.y == label).sum() for label in (0, 1)] == [round(0.5 * (Y == 0).sum()), round(0.1 * (Y == 1).sum())]
    assert mine.ids.tolist() == theirs.ids.tolist()
    (mine,), (theirs,) = both("FederatedSample", method="upsample", fractions=2.0)
    assert len(mine) == len(set(mine.ids)) == 2 * 569
    assert mine.ids.tolist() == theirs.ids.tolist()


def test_a_split_gives_each_row_to_one_part_of_both():
    mine, theirs = both("HeteroDataSplit", test_size=0.3, validate_size=0.2, stratified=True, random_state=1)
    assert [one.ids.tolist() for one in mine] == [one.ids.tolist() for one in theirs]
    assert sorted(id for one in mine for id in one.ids) == sorted(frame(MATRIX).ids)
    assert [len(one) for one in mine] == pytest.approx([284, 114, 171], abs=2)
    for one in mine:
        assert one.y.mean() == pytest.approx(Y.mean(), abs=0.01)


@pytest.mark.parametrize("sizes", [{"test_size": 0.3, "validate_size": 0.2}, {"train_size": 0.5, "test_size": 0.5}])
def test_a_split_by_labels_loses_no_row_whatever_is_rounded(sizes):
    wanted = [sizes.get("train_size", 0.5), sizes.get("validate_size", 0.0), sizes["test_size"]]
    for count in range(3, 60):
        labels = np.random.default_rng(count).integers(0, 3, count)
        rows = frame(np.arange(2.0 * count).reshape(count, 2), labels)
        found = run("HomoDataSplit", rows, stratified=True, random_state=1, **sizes).data
        assert sorted(id for one in found for id in one.ids) == sorted(rows.ids)
        assert [len(one) for one in found] == pytest.approx([share * count for share in wanted], abs=1)
        for label in range(3):
            shares = [share * (labels == label).sum() for share in wanted]
            assert [(one.y == label).sum() for one in found] == pytest.approx(shares, abs=2)


def test_numbers_are_divided_by_points_up_to_which_they_are_alike():
    labels = np.repeat([0.0, 0.5, 1.0], [40, 40, 20])
    rows = frame(np.arange(200.0).reshape(100, 2), labels)
    found = run("HomoDataSplit", rows, stratified=True, split_points=[0.5], train_size=0.5, validate_size=0.5).data
    assert [int((one.y <= 0.5).sum()) for one in found] == [40, 40, 0]
    found = run("HomoDataSplit", rows, stratified=True, split_points=[], train_size=0.5, validate_size=0.5).data
    assert [int((one.y == 0.5).sum()) for one in found] == [20, 20, 0]


def test_rows_are_repeated_by_their_weights():
    rows = PartyFrame(frame(MATRIX[:4]).ids, {"x": np.arange(4.0), "w": np.array([0.0, 0.4, 1.0, 2.5])}, weight="w")
    found = run("FederatedSample", rows, mode="exact_by_weight").data[0]
    assert found.ids.tolist() == ["id1", "id2", "id3", "id3_1", "id3_2"]
    assert found.columns["x"].tolist() == [1, 2, 3, 3, 3]


def test_splits_by_numbers_in_order_and_by_default():
    mine, _ = both("HomoDataSplit", train_size=500, test_size=60, shuffle=False)
    assert [len(one) for one in mine] == [500, 9, 60]
    assert mine[0].ids.tolist() == frame(MATRIX).ids[:500].tolist()
    assert [len(one) for one in both("HeteroDataSplit")[0]] == [455, 114, 0]


@pytest.mark.parametrize(
    ("module", "parameters", "message"),
    [
        ("FederatedSample", {"fractions": 1.5}, "fraction is 1.5"),
        ("FederatedSample", {"mode": "stratified", "fractions": [[7, 0.5]]}, "label 7"),
        ("FederatedSample", {"mode": "stratified", "fractions": 0.5}, "fractions is 0.5"),
        ("FederatedSample", {"mode": "stratified", "fractions": [[0, 0.5]]}, "none for a label"),
        ("FederatedSample", {"mode": "exact_by_weight"}, "no weight"),
        ("HeteroDataSplit", {"train_size": 0.8, "test_size": 0.5}, "1.3 together"),
        ("HeteroDataSplit", {"train_size": 0.8, "test_size": 5}, "at once"),
        ("HeteroDataSplit", {"train_size": 0.5, "validate_size": 0.1, "test_size": 0.2}, "would be left out"),
        ("HeteroDataSplit", {"test_size": -1}, "test_size"),
        ("HeteroDataSplit", {"stratified": True, "split_points": "x"}, "split_points"),
    ],
)
def test_wrong_choices_are_refused(module, parameters, message):
    with pytest.raises(UsageError, match=message):
        both(module, **parameters)
