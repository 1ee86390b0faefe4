"""Components that bring columns of several parties into the same form."""

import numpy as np
import pytest

from tests.unit.frontends.federated.components.parts_of import ARBITER, GUEST, HOST, HOST_2, breast, frame
from weft.frontends.federated.components.frame import PartyFrame
from weft.frontends.federated.components.quantiles import numbers_of, ordered_keys
from weft.frontends.federated.wire import decode
from weft.model.errors import UsageError
from weft.testing.parts import PartInputs, run_parts

MATRIX, Y = breast()
CUTS = {GUEST: slice(0, 100), HOST: slice(100, 300), HOST_2: slice(300, 569)}


def run(module, frames, models=None, **parameters):
    given = {
        party: PartInputs(parameters, {"data": [one]}, {"model": {"m": models[party]}} if models else {})
        for party, one in frames.items()
    }
    return run_parts(module, given | {ARBITER: PartInputs(parameters, {}, {"model": {"m": {}}} if models else {})})


def frames(matrix=MATRIX, cuts=CUTS, y=Y):
    return {party: frame(matrix[rows], y[rows]) for party, rows in cuts.items()}


def binned(**parameters):
    return run("HomoFeatureBinning", frames(), **parameters)


def test_numbers_in_their_order_are_keys_in_their_order():
    some = np.array([-np.inf, -1e300, -2.5, -1e-310, 0.0, 5e-324, 1.0, np.nextafter(1.0, 2), 1e308, np.inf])
    keys = ordered_keys(some)
    assert (np.diff(keys.astype(object)) > 0).all()
    assert np.array_equal(numbers_of(keys), some)
    assert ordered_keys(np.array([-0.0])) == ordered_keys(np.array([0.0]))


@pytest.mark.parametrize("method", ["virtual_summary", "recursive_query"])
def test_edges_are_the_quantiles_of_all_rows(method):
    matrix = np.column_stack([MATRIX[:, :4], np.round(MATRIX[:, 4]), np.full(569, -3.0), MATRIX[:, 5] * 1e200])
    ran = run("HomoFeatureBinning", frames(matrix), method=method, bin_num=7)
    shares = np.arange(1, 7) / 7
    for at, column in enumerate(matrix.T):
        wanted = np.unique(np.quantile(column, shares, method="inverted_cdf"))
        wanted = wanted[wanted < column.max()]
        for party, rows in CUTS.items():
            assert ran.outputs[party].model["edges"][f"x{at}"] == wanted.tolist()
            codes = ran.outputs[party].data[0].columns[f"x{at}"]
            assert np.array_equal(codes, [sum(value > one for one in wanted) for value in column[rows]])
    assert ran.outputs[GUEST].data[0].label == "y"


def test_bins_have_almost_equal_numbers_of_rows():
    ran = binned(bin_num=10)
    codes = np.concatenate([ran.outputs[party].data[0].columns["x0"] for party in CUTS])
    assert np.bincount(codes).tolist() == pytest.approx([57] * 10, abs=2)


def test_only_chosen_columns_are_binned_and_transformed():
    ran = binned(bin_indexes=[0, 2], bin_names=["x5"])
    assert list(ran.outputs[HOST].model["edges"]) == ["x0", "x2", "x5"]
    assert np.array_equal(ran.outputs[HOST].data[0].columns["x1"], MATRIX[CUTS[HOST], 1])
    ran = binned(bin_indexes=[0, 2], transform_param={"transform_cols": [2, 3], "transform_type": "bin_num"})
    assert np.array_equal(ran.outputs[HOST].data[0].columns["x0"], MATRIX[CUTS[HOST], 0])
    assert ran.outputs[HOST].data[0].columns["x2"].max() == 9
    ran = binned(transform_param={"transform_cols": -1, "transform_type": None})
    assert np.array_equal(ran.outputs[HOST].data[0].matrix(), MATRIX[CUTS[HOST]])
    assert len(ran.outputs[HOST].model["edges"]) == 30


def test_other_rows_get_the_same_bins():
    ran = binned()
    again = run("HomoFeatureBinning", frames(), {party: ran.outputs[party].model for party in CUTS})
    for party in CUTS:
        assert np.array_equal(again.outputs[party].data[0].matrix(), ran.outputs[party].data[0].matrix())
    assert not again.sent


def test_only_sums_of_counts_are_seen():
    ran = binned()
    totals = [decode(one.data) for one in ran.sent if one.name == "total"]
    assert len(totals) == 3 * (16 + 1)
    covered = [decode(one.data) for one in ran.sent if one.name == "covered"]
    words = np.concatenate([one["words"].ravel() for one in covered if one])
    assert (words > 569).all()


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"method": "optimal"}, "method"),
        ({"bin_num": 1}, "bin_num"),
        ({"bin_num": 2.5}, "bin_num"),
        ({"bin_indexes": [30]}, "index"),
        ({"bin_indexes": [], "bin_names": ["z"]}, "'z'"),
        ({"category_indexes": [1]}, "category_indexes"),
        ({"local_only": True}, "local_only"),
        ({"transform_param": {"transform_type": "woe"}}, "woe"),
    ],
)
def test_wrong_parameters_of_binning_are_named(parameters, message):
    with pytest.raises(UsageError, match=message):
        binned(**parameters)


def test_columns_that_a_party_does_not_have():
    given = frames()
    given[HOST] = frame(MATRIX[:9, :29])
    with pytest.raises(UsageError, match="no column 'x29'"):
        run("HomoFeatureBinning", given)


# ------------------------------------------------------------------------------------------------------------- one-hot


def table(**columns):
    count = len(next(iter(columns.values())))
    arrays = {name: np.array(values, dtype=object if name == "colour" else None) for name, values in columns.items()}
    return PartyFrame(np.array([f"r{at}" for at in range(count)], dtype=object), arrays, label="y")


TABLES = {
    GUEST: table(y=[0, 1], colour=["red", "blue"], size=[1.0, 2.0], weight=[0.5, 1.5]),
    HOST: table(y=[1, 0, 1], colour=["green", "red", "red"], size=[3.0, 1.0, 1.0], weight=[2.5, 0.5, 0.5]),
}
CHOSEN = {"transform_col_indexes": [1], "transform_col_names": ["colour"]}


def test_values_of_all_parties_become_columns():
    ran = run("HomoOneHotEncoder", TABLES, **CHOSEN)
    names = ["y", "colour_blue", "colour_green", "colour_red", "size_1", "size_2", "size_3", "weight"]
    for party, wanted in (
        (GUEST, [[0, 0, 1, 1, 0, 0, 0.5], [1, 0, 0, 0, 1, 0, 1.5]]),
        (HOST, [[0, 1, 0, 0, 0, 1, 2.5], [0, 0, 1, 1, 0, 0, 0.5], [0, 0, 1, 1, 0, 0, 0.5]]),
    ):
        found = ran.outputs[party].data[0]
        assert list(found.columns) == names
        assert found.matrix().tolist() == wanted
        assert found.label == "y"


def test_without_alignment_each_party_has_its_own_columns():
    ran = run("HomoOneHotEncoder", TABLES, need_alignment=False, **CHOSEN)
    assert "colour_green" not in ran.outputs[GUEST].data[0].columns
    assert "colour_blue" not in ran.outputs[HOST].data[0].columns
    assert not ran.sent


def test_all_columns_are_encoded_if_none_is_named():
    found = run("HomoOneHotEncoder", TABLES).outputs[GUEST].data[0]
    assert {"weight_0.5", "weight_1.5", "weight_2.5"} < set(found.columns)
    assert "weight" not in found.columns


def test_other_rows_are_encoded_alike_and_new_values_have_zeros():
    ran = run("HomoOneHotEncoder", TABLES, **CHOSEN)
    models = {party: ran.outputs[party].model for party in TABLES}
    again = run("HomoOneHotEncoder", TABLES, models, **CHOSEN)
    assert again.outputs[HOST].data[0].matrix().tolist() == ran.outputs[HOST].data[0].matrix().tolist()
    other = {GUEST: table(y=[0], colour=["pink"], size=[1], weight=[0.5]), HOST: TABLES[HOST]}
    found = run("HomoOneHotEncoder", other, models, **CHOSEN).outputs[GUEST].data[0]
    assert found.matrix().tolist() == [[0, 0, 0, 1, 0, 0, 0.5]]


def test_tables_that_cannot_be_encoded():
    good = TABLES[GUEST]
    for other, message in (
        (table(y=[0], colour=["red"], size=[np.nan], weight=[1.0]), "missing"),
        (table(y=[0], colour=[7], size=[1.0], weight=[1.0]), "some values of colour"),
        (table(y=[0], colour=["red"], length=[1.0], weight=[1.0]), "different columns"),
        (table(y=[0] * 1025, colour=["red"] * 1025, size=range(1025), weight=[1.0] * 1025), "different values"),
    ):
        with pytest.raises(UsageError, match=message):
            run("HomoOneHotEncoder", {GUEST: good, HOST: other}, transform_col_indexes=[0, 1])
    with pytest.raises(UsageError, match="no feature 'z'"):
        run("HomoOneHotEncoder", TABLES, transform_col_indexes=[], transform_col_names=["z"])
    twice = table(y=[0], colour=["red"], colour_red=[1.0])
    with pytest.raises(UsageError, match="two columns 'colour_red'"):
        run("HomoOneHotEncoder", {GUEST: twice, HOST: twice}, transform_col_indexes=[0])
