"""HeteroFeatureBinning: bins, weights of evidence and information values."""

from typing import Any, cast

import numpy as np
import pytest

from tests.unit.frontends.federated.components.parts_of import GUEST, HOST, HOST_2, breast, frame, run_against
from weft.frontends.federated.components.columns import anonymous_names
from weft.frontends.federated.components.frame import PartyFrame
from weft.frontends.federated.wire import decode
from weft.model.errors import PartyMessageError, UsageError
from weft.testing.parts import PartInputs, run_parts

PLAIN = {"encrypt_param": {"method": "plain"}}
MATRIX, Y = breast()


def fit(frames, *, own=None, models=None, **parameters):
    """Run the component at the parties of `frames`; `own` has parameters of a single party."""
    given = {
        party: PartInputs(
            {**PLAIN, **parameters, **(own or {}).get(party, {})},
            {"data": [rows]},
            {"model": {"b": models[party]}} if models else {},
        )
        for party, rows in frames.items()
    }
    return run_parts("HeteroFeatureBinning", given)


def alone(matrix, y=None, **parameters):
    """Bin at a guest alone, and return its rows and its model."""
    ran = fit({GUEST: frame(matrix, y)}, skip_static=y is None, **parameters)
    return ran.outputs[GUEST].data[0].matrix(), ran.outputs[GUEST].model


def information_value(values, y, edges, factor=0.5):
    """Weights of evidence and information value of a column, bin by bin."""
    events, others = (y == y.max()).sum(), (y != y.max()).sum()
    lower, woe, total = -np.inf, [], 0.0
    for upper in [*edges[:-1], np.inf]:
        inside = (values > lower) & (values <= upper)
        event, other = (inside & (y == y.max())).sum(), (inside & (y != y.max())).sum()
        more = factor if event == 0 or other == 0 else 0
        share, rest = (event + more) / events, (other + more) / others
        woe.append(np.log(share / rest))
        total += (share - rest) * woe[-1]
        lower = upper
    return woe, total


def test_information_values_of_all_parties_are_those_of_pooled_rows():
    ran = fit({GUEST: frame(MATRIX[:, :5], Y), HOST: frame(MATRIX[:, 5:12]), HOST_2: frame(MATRIX[:, 12:15])})
    model = ran.outputs[GUEST].model
    found = dict(model["results"][0])
    for host, first in ((HOST, 5), (HOST_2, 12)):
        for name, one in model["hosts"][host.id][0].items():
            start, _, at = name.rpartition("_x")
            assert start == f"host_{host.id}"
            found[f"x{first + int(at)}"] = one
    edges = {}
    for party, first in ((GUEST, 0), (HOST, 5), (HOST_2, 12)):
        for at, one in enumerate(ran.outputs[party].model["columns"].values()):
            edges[f"x{first + at}"] = one["edges"]
    assert set(found) == {f"x{at}" for at in range(15)}
    for at in range(15):
        woe, total = information_value(MATRIX[:, at], Y, edges[f"x{at}"])
        assert found[f"x{at}"]["woe"] == pytest.approx(woe)
        assert found[f"x{at}"]["iv"] == pytest.approx(total)
        assert sum(found[f"x{at}"]["events"]) == Y.sum()
    ranked = ran.records[GUEST].summaries["result"]["iv"]
    assert [value for _, value in ranked] == sorted((one["iv"] for one in found.values()), reverse=True)
    assert ran.records[GUEST].metrics["iv", "host_2_x0"] == found["x5"]["iv"]
    assert [y for _, y in ran.records[GUEST].curves["woe", "x0"]] == found["x0"]["woe"]


def test_encrypted_labels_give_the_same_as_plain_ones_and_stay_secret():
    rows = np.random.default_rng(3).normal(size=(90, 3))
    y = (rows[:, 0] + rows[:, 1] > 0).astype(int)
    frames = {GUEST: frame(rows[:, :1], y), HOST: frame(rows[:, 1:])}
    secret = fit(frames, bin_num=4, own={party: {"encrypt_param": {"method": "Paillier"}} for party in frames})
    plain = fit(frames, bin_num=4)
    assert secret.outputs[GUEST].model == plain.outputs[GUEST].model
    assert secret.outputs[HOST].model == plain.outputs[HOST].model
    to_host = {one.name: decode(one.data) for one in secret.sent if one.to == HOST}
    cells = to_host["labels"]["cells"]
    assert len(set(cells)) == len(y)  # equal labels are different ciphertexts
    assert "results" not in secret.outputs[HOST].model


def test_the_guest_gets_no_edges_and_no_names_of_hosts():
    frames = {GUEST: frame(MATRIX[:, :1], Y), HOST: frame(MATRIX[:, 1:3], first=7)}
    ran = fit(frames)
    sent = [decode(one.data) for one in ran.sent if one.to == GUEST]
    assert [sorted(one) for one in sent] == [["bins", "largest", "names", "sums"]]
    assert sent[0]["names"] == ["host_2_x0", "host_2_x1"]
    assert "x7" not in str(ran.outputs[GUEST].model)


def test_a_host_asks_for_a_real_key():
    frames = {GUEST: frame(MATRIX[:50, :1], Y[:50]), HOST: frame(MATRIX[:50, 1:2])}
    with pytest.raises(PartyMessageError, match="key"):
        fit(frames, own={HOST: {"encrypt_param": {"method": "Paillier"}}})


def test_quantiles_have_equally_many_rows():
    values = np.arange(1.0, 101.0)
    np.random.default_rng(0).shuffle(values)
    codes, model = alone(values[:, None], bin_num=5)
    assert model["columns"]["x0"]["edges"] == [20, 40, 60, 80, 100]
    assert np.bincount(codes[:, 0].astype(int)).tolist() == [20] * 5
    assert codes[values == 20, 0] == 0
    assert codes[values == 21, 0] == 1
    _, model = alone(np.array([[0.0]] * 95 + [[1.0]] * 5), bin_num=10)
    assert model["columns"]["x0"]["edges"] == [0, 1]


def test_buckets_have_equal_widths():
    values = np.array([0.0, 1, 2, 2.5, 9.9, 10])
    codes, model = alone(values[:, None], method="bucket", bin_num=4)
    assert model["columns"]["x0"]["edges"] == [2.5, 5, 7.5, 10]
    assert codes[:, 0].tolist() == [0, 0, 0, 0, 3, 3]
    codes, model = alone(np.full((4, 1), 3.0), method="bucket", bin_num=4)
    assert model["columns"]["x0"]["edges"] == [3]
    assert codes[:, 0].tolist() == [0] * 4


def test_categories_are_bins_of_their_own():
    values = np.array([[5.0, 1.0], [1.0, 2.0], [5.0, 3.0], [9.0, 4.0]])
    for chosen in ({"category_indexes": [0]}, {"category_names": ["x0"]}):
        codes, model = alone(values, bin_num=2, **chosen)
        assert model["columns"]["x0"]["edges"] == [1, 5, 9]
        assert codes.tolist() == [[1, 0], [0, 0], [1, 1], [2, 1]]


def test_split_points_of_the_file_replace_the_method():
    for given in ({"split_points_by_index": {"0": [2, 4]}}, {"split_points_by_col_name": {"x0": [2, 4]}}):
        codes, _ = alone(np.array([[1.0], [2.0], [3.0], [4.0], [5.0]]), **given)
        assert codes[:, 0].tolist() == [0, 0, 1, 1, 1]


def test_only_chosen_columns_are_binned_and_transformed():
    rows = MATRIX[:40, :3]
    for chosen in ({"bin_indexes": [1]}, {"bin_names": ["x1", "x9"]}):
        codes, model = alone(rows, **chosen)
        assert list(model["columns"]) == ["x1"]
        assert (codes[:, [0, 2]] == rows[:, [0, 2]]).all()
        assert set(codes[:, 1]) == set(range(10))
    for transform in ({"transform_cols": [2]}, {"transform_names": ["x2"]}):
        codes, model = alone(rows, transform_param=transform)
        assert list(model["columns"]) == ["x0", "x1", "x2"]
        assert (codes[:, :2] == rows[:, :2]).all()
        assert set(codes[:, 2]) == set(range(10))
    codes, _ = alone(rows, transform_param={"transform_type": None})
    assert (codes == rows).all()
    codes, _ = alone(rows, transform_param={"transform_cols": None})
    assert (codes == rows).all()


def test_weights_of_evidence_replace_values_of_the_guest():
    frames = {GUEST: frame(MATRIX[:, :2], Y), HOST: frame(MATRIX[:, 2:3])}
    ran = fit(frames, own={GUEST: {"transform_param": {"transform_type": "woe"}}})
    model = ran.outputs[GUEST].model
    found = ran.outputs[GUEST].data[0].matrix()
    woe, _ = information_value(MATRIX[:, 0], Y, model["columns"]["x0"]["edges"])
    codes = np.searchsorted(model["columns"]["x0"]["edges"][:-1], MATRIX[:, 0])
    assert found[:, 0] == pytest.approx(np.array(woe)[codes])
    assert set(ran.outputs[HOST].data[0].matrix()[:, 0]) == set(range(10))
    models = {party: one.model for party, one in ran.outputs.items()}
    again = fit(frames, models=models)
    assert (again.outputs[GUEST].data[0].matrix() == found).all()
    assert (again.outputs[HOST].data[0].matrix() == ran.outputs[HOST].data[0].matrix()).all()
    assert again.sent == []
    with pytest.raises(UsageError, match="would show it labels"):
        fit(frames, transform_param={"transform_type": "woe"})


def test_a_missing_value_is_a_bin_of_its_own():
    rows = np.column_stack([np.arange(60.0), np.arange(60.0)])
    rows[:20, 0] = np.nan
    y = np.array([1] * 15 + [0] * 25 + [1] * 20)
    frames = {GUEST: frame(rows[:, :1], y), HOST: frame(rows[:, :1])}
    ran = fit(frames, bin_num=2, own={GUEST: {"transform_param": {"transform_type": "woe"}}})
    model = ran.outputs[GUEST].model
    own, theirs = model["results"][0]["x0"], model["hosts"]["2"][0]["host_2_x0"]
    assert own == theirs
    assert own["events"] == [0, 20, 15]
    assert own["non_events"] == [20, 0, 5]
    assert own["woe"] == pytest.approx(
        [np.log((0.5 / 35) / (20.5 / 25)), np.log((20.5 / 35) / (0.5 / 25)), 0.7621400520]
    )
    assert set(ran.outputs[HOST].data[0].matrix()[:20, 0]) == {2}
    _, model = alone(rows[:, 1:], y, transform_param={"transform_type": "woe"})
    with pytest.raises(UsageError, match="not in training"):
        fit({GUEST: frame(rows[:, :1], y)}, models={GUEST: model})


def test_the_adjustment_is_for_bins_of_one_class():
    values, y = np.array([1.0, 1, 2, 2, 2, 3]), np.array([0, 1, 1, 1, 1, 0])
    for factor in (0.5, 0.1):
        _, model = alone(values[:, None], y, category_indexes=[0], adjustment_factor=factor)
        woe, total = information_value(values, y, [1, 2, 3], factor)
        assert model["results"][0]["x0"]["woe"] == pytest.approx(woe)
        assert model["results"][0]["x0"]["iv"] == pytest.approx(total)


def test_each_of_many_classes_stands_against_the_rest():
    y = np.digitize(MATRIX[:, 0], [-0.5, 0.7])
    ran = fit({GUEST: frame(MATRIX[:, :2], y), HOST: frame(MATRIX[:, 2:4])})
    model = ran.outputs[GUEST].model
    assert model["labels"] == [2, 1, 0]
    edges = ran.outputs[HOST].model["columns"]["x1"]["edges"]
    for at, event in enumerate(model["labels"]):
        woe, total = information_value(MATRIX[:, 3], (y == event).astype(int), edges)
        assert model["hosts"]["2"][at]["host_2_x1"]["woe"] == pytest.approx(woe)
        assert ran.records[GUEST].metrics[f"iv/{event}", "host_2_x1"] == pytest.approx(total)
    assert {"0", "1", "2"} < set(ran.records[GUEST].summaries)


def test_weights_of_many_classes_are_those_of_the_largest_label():
    y = np.digitize(MATRIX[:, 0], [-0.5, 0.7])
    values, model = alone(MATRIX[:, :2], y, transform_param={"transform_type": "woe"})
    for at in range(2):
        edges = model["columns"][f"x{at}"]["edges"]
        woe, _ = information_value(MATRIX[:, at], (y == 2).astype(int), edges)
        assert values[:, at] == pytest.approx(np.array(woe)[np.searchsorted(edges[:-1], MATRIX[:, at])])


@pytest.mark.parametrize("method", ["quantile", "bucket"])
def test_columns_without_values_are_one_bin(method):
    empty = np.column_stack([MATRIX[:, 0], np.full(len(Y), np.nan)])
    ran = fit({GUEST: frame(empty, Y), HOST: frame(empty, first=2)}, method=method)
    for party, name in ((GUEST, "x1"), (HOST, "x3")):
        output = ran.outputs[party]
        assert output.model["columns"][name] == {"edges": [], "category": False, "missing": True}
        assert set(output.data[0].columns[name]) == {0.0}
    found = ran.outputs[GUEST].model
    for one in (found["results"][0]["x1"], found["hosts"]["2"][0]["host_2_x1"]):
        assert (one["iv"], one["woe"]) == (0.0, [0.0])
        assert (one["events"], one["non_events"]) == ([Y.sum()], [len(Y) - Y.sum()])
    rows = {party: frame(MATRIX[:, :2], first=first) for party, first in ((GUEST, 0), (HOST, 2))}
    again = fit(rows, models={party: ran.outputs[party].model for party in rows}, method=method)
    assert set(again.outputs[HOST].data[0].columns["x3"]) == {0.0}


def test_bins_alone_need_no_labels_and_no_messages():
    frames = {GUEST: frame(MATRIX[:, :2], Y), HOST: frame(MATRIX[:, 2:4])}
    for quiet, values in (({"skip_static": True}, 0), ({"local_only": True}, 1)):
        ran = fit(frames, **quiet)
        assert [one.name for one in ran.sent] == ["plan"]
        assert len(ran.outputs[GUEST].model["results"]) == values
        assert ran.outputs[GUEST].model["hosts"] == {}
        assert set(ran.outputs[HOST].data[0].matrix()[:, 0]) == set(range(10))
        with pytest.raises(UsageError, match="differ"):
            fit(frames, own={GUEST: quiet})


def test_anonymous_names_stay_when_columns_go():
    ran = fit({GUEST: frame(MATRIX[:, :3], Y)})
    found = ran.outputs[GUEST].data[0]
    less = found.with_features(["x2", "new"], MATRIX[:, :2])

    class Part:
        here = GUEST

    assert anonymous_names(cast("Any", Part), less) == {"x2": "guest_1_x2", "new": "guest_1_exp_0"}


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"method": "optimal", "skip_static": True}, "optimal needs labels"),
        ({"method": "guess"}, "method"),
        ({"bin_num": 0}, "bin_num"),
        ({"bin_num": 2.5}, "bin_num"),
        ({"adjustment_factor": 1}, "adjustment_factor"),
        ({"error": "small"}, "error"),
        ({"bin_indexes": [7]}, "bin_indexes"),
        ({"bin_names": "x0"}, "bin_names"),
        ({"category_indexes": [-2]}, "category_indexes"),
        ({"transform_param": {"transform_type": "rank"}}, "transform_type"),
        ({"transform_param": {"transform_type": "woe"}, "skip_static": True}, "needs labels"),
        ({"bin_indexes": [0], "transform_param": {"transform_cols": [1]}}, "has no bins"),
        ({"split_points_by_index": {"0": [1]}}, "no split points for 'x1'"),
        ({"split_points_by_index": {"9": [1]}}, "split_points_by_index"),
        ({"split_points_by_col_name": {"x0": [3, 1]}}, "ascending"),
        ({"split_points_by_col_name": {"x0": [1]}, "split_points_by_index": {"0": [1]}}, "by index and by name"),
    ],
)
def test_wrong_parameters_are_named(parameters, message):
    with pytest.raises(UsageError, match=message):
        fit({GUEST: frame(MATRIX[:30, :2], Y[:30])}, **parameters)


def test_wrong_rows_are_named():
    with pytest.raises(UsageError, match="no label"):
        fit({GUEST: frame(MATRIX[:, :2])})
    with pytest.raises(UsageError, match="1 different labels"):
        fit({GUEST: frame(MATRIX[:, :2], np.ones(len(Y)))})
    with pytest.raises(UsageError, match="label at guest 1 is missing"):
        fit({GUEST: frame(MATRIX[:2, :2], np.array([1.0, np.nan]))})
    with pytest.raises(UsageError, match="infinite"):
        alone(np.array([[1.0], [np.inf]]))
    with pytest.raises(UsageError, match="no numbers"):
        fit({GUEST: PartyFrame(np.array(["a"], dtype=object), {"x": np.array(["b"], dtype=object)})}, skip_static=True)
    with pytest.raises(UsageError, match="different numbers of rows"):
        fit({GUEST: frame(MATRIX[:, :1], Y), HOST: frame(MATRIX[1:, :1])})
    _, model = alone(MATRIX[:, :2])
    with pytest.raises(UsageError, match="no column 'x1'"):
        fit({GUEST: frame(MATRIX[:, :1])}, models={GUEST: model})
    with pytest.raises(UsageError, match="does not have the model"):
        fit({GUEST: frame(MATRIX[:, :1])}, models={GUEST: {}})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"names": ["a", "a"]}, "not possible"),
        ({"names": ["a"]}, "not possible"),
        ({"largest": [2, 0]}, "not possible"),
        ({"bins": [2, 1 << 20]}, "not possible"),
        ({"sums": {"plain": [1, 1]}}, "another number of packed sums"),
        ({"bins": ["x", 2]}, "malformed"),
        ({"sums": {"plain": [(5 << 6) + 1]}}, "more rows than there are"),
        ({"sums": None}, "malformed"),
    ],
)
def test_a_guest_refuses_sums_that_are_not_possible(change, message):
    given = PartInputs(PLAIN, {"data": [frame(MATRIX[:4, :1], np.array([0, 1, 0, 1]))]})
    right = {"names": ["a", "b"], "bins": [2, 2], "largest": [0, 1], "sums": {"plain": [(1 << 6) + 1]}}
    model = run_against("HeteroFeatureBinning", GUEST, given, {(HOST, "sums"): right}).model
    assert model["hosts"]["2"][0]["a"]["events"] == [1, 1]
    assert model["hosts"]["2"][0]["a"]["non_events"] == [2, 0]
    with pytest.raises(PartyMessageError, match=message):
        run_against("HeteroFeatureBinning", GUEST, given, {(HOST, "sums"): right | change})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"plan": {"classes": 101}}, "number of classes"),
        ({"plan": []}, "malformed"),
        ({"key": {"method": "none"}}, "key"),
        ({"labels": {"plain": [1, 1]}}, "another number of labels"),
    ],
)
def test_a_host_refuses_labels_that_are_not_possible(change, message):
    given = PartInputs(PLAIN, {"data": [frame(MATRIX[:4, :1])]})
    right = {"plan": {"classes": 2}, "rows": 4, "key": {"method": "plain"}, "labels": {"plain": [1, 8, 1, 8]}}
    sent = {(GUEST, name): value for name, value in (right | change).items()}
    with pytest.raises(PartyMessageError, match=message):
        run_against("HeteroFeatureBinning", HOST, given, sent)
