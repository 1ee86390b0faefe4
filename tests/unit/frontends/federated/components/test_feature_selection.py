"""HeteroFeatureSelection: which features pass the filters, at all parties."""

from typing import Any

import numpy as np
import pytest

from tests.unit.frontends.federated.components.parts_of import GUEST, HOST, HOST_2, breast, frame, run_against
from weft.frontends.federated.wire import decode
from weft.model.errors import PartyMessageError, UsageError
from weft.testing.parts import PartInputs, run_parts

MATRIX, Y = breast()
MATRIX = MATRIX[:200]
Y = Y[:200]
COLUMNS = {GUEST: slice(0, 6), HOST: slice(6, 14), HOST_2: slice(14, 18)}


def frames(*parties, y=Y):
    return {party: frame(MATRIX[:, COLUMNS[party]], y if party == GUEST else None) for party in parties}


def models_of(module, rows, **parameters):
    given = {party: PartInputs(parameters, {"data": [one]}) for party, one in rows.items()}
    return {party: one.model for party, one in run_parts(module, given).outputs.items()}


@pytest.fixture(scope="module")
def binning():
    return models_of("HeteroFeatureBinning", frames(GUEST, HOST, HOST_2), encrypt_param={"method": "plain"})


@pytest.fixture(scope="module")
def pearson():
    return models_of("HeteroPearson", frames(GUEST, HOST), column_indexes=-1)


def select(rows, *models, own=None, trained=None, **parameters):
    """Run the component; `models` are isometric ones by party, `own` has parameters of a single party."""
    given = {}
    for party, one in rows.items():
        found = {"isometric_model": {f"m{at}": model.get(party, {}) for at, model in enumerate(models)}}
        if trained:
            found["model"] = {"s": trained[party]}
        given[party] = PartInputs({**parameters, **(own or {}).get(party, {})}, {"data": [one]}, found)
    return run_parts("HeteroFeatureSelection", given)


def left(ran):
    return {party: list(one.data[0].features) for party, one in ran.outputs.items()}


def alone(matrix, *methods, models=(), **parameters):
    """Return the numbers of the features that stay at a guest alone."""
    rows = {GUEST: frame(matrix)}
    ran = select(rows, *({GUEST: one} for one in models), filter_methods=list(methods), **parameters)
    return [int(name[1:]) for name in left(ran)[GUEST]]


def information_values(binning):
    found = [(one["iv"], GUEST, name) for name, one in binning[GUEST]["results"][0].items()]
    for host in (HOST, HOST_2):
        for name, one in binning[GUEST]["hosts"][host.id][0].items():
            found.append((one["iv"], host, f"x{name.rpartition('_x')[2]}"))
    return sorted(found, key=lambda one: -one[0])


def expected(ranked, count):
    """Return the best features by party; a party without any keeps its best."""
    found = {party: sorted(name for _, of, name in ranked[:count] if of == party) for party in COLUMNS}
    return {party: names or [next(one[2] for one in ranked if one[1] == party)] for party, names in found.items()}


def test_a_threshold_of_information_values_is_for_all_parties(binning):
    ranked = information_values(binning)
    limit = ranked[8][0]
    for parameters in (
        {"filter_methods": ["iv_filter"], "iv_param": {"threshold": limit}},
        {"filter_methods": ["iv_value_thres"], "iv_value_param": {"value_threshold": limit}},
    ):
        ran = select(frames(*COLUMNS), binning, **parameters)
        assert {party: sorted(names) for party, names in left(ran).items()} == expected(ranked, 9)
    assert ran.outputs[GUEST].data[0].label == "y"
    assert ran.records[HOST].summaries["all"]["left_col_names"] == left(ran)[HOST]
    sent = [decode(one.data) for one in ran.sent if one.to == GUEST and one.name == "names/0"]
    assert all(name.startswith("host_") for names in sent for name in names[0])


@pytest.mark.parametrize(("metrics", "limits"), [(["iv"], [[100.0, 0.0]]), (["iv", "iv"], [[100.0, 0.0], None])])
def test_hosts_may_have_thresholds_of_their_own(binning, metrics, limits):
    ranked = information_values(binning)
    parameters = {"threshold": 0, "host_thresholds": limits, "metrics": metrics}
    found = left(select(frames(*COLUMNS), binning, filter_methods=["iv_filter"], iv_param=parameters))
    best = next(name for _, party, name in ranked if party == HOST)
    assert found == {GUEST: [f"x{at}" for at in range(6)], HOST: [best], HOST_2: ["x0", "x1", "x2", "x3"]}


def test_the_best_information_values_are_those_of_all_parties(binning):
    ranked = information_values(binning)
    top = {"filter_type": "top_k", "threshold": 7}
    share = {"filter_type": "top_percentile", "threshold": 7 / 18}
    for methods, parameters in (
        ("iv_filter", {"iv_param": top}),
        ("iv_filter", {"iv_param": share}),
        ("iv_top_k", {"iv_top_k_param": {"k": 7}}),
        ("iv_percentile", {"iv_percentile_param": {"percentile_threshold": 7 / 18}}),
    ):
        ran = select(frames(*COLUMNS), binning, filter_methods=[methods], **parameters)
        found = {party: sorted(names) for party, names in left(ran).items()}
        assert found == expected(ranked, 7)


def test_a_guest_may_leave_hosts_alone(binning):
    for methods, parameters in (
        ("iv_filter", {"iv_param": {"filter_type": "top_k", "threshold": 2, "select_federated": False}}),
        ("iv_top_k", {"iv_top_k_param": {"k": 2, "local_only": True}}),
    ):
        ran = select(frames(GUEST, HOST), binning, filter_methods=[methods], **parameters)
        assert len(left(ran)[GUEST]) == 2
        assert len(left(ran)[HOST]) == 8
        assert [one.name for one in ran.sent] == ["filters"]


def test_information_values_of_several_classes_are_merged():
    y = np.digitize(MATRIX[:, 0], [-0.5, 0.7])
    rows = frames(GUEST, HOST, y=y)
    model = models_of("HeteroFeatureBinning", rows, encrypt_param={"method": "plain"})
    results = model[GUEST]["hosts"]["2"]
    for merge, how in (("average", np.mean), ("max", max), ("min", min)):
        merged = sorted(how([one[f"host_2_x{at}"]["iv"] for one in results]) for at in range(8))
        for rank in (2, 5):
            parameters = {"threshold": float(merged[rank]) - 1e-12, "mul_class_merge_type": merge}
            ran = select(rows, model, filter_methods=["iv_filter"], iv_param=parameters)
            assert len(left(ran)[HOST]) == 8 - rank


def test_columns_are_named_by_hand():
    rows = frames(GUEST, HOST)
    for manual, wanted in (
        ({"filter_out_indexes": [0], "filter_out_names": ["x2", "none"]}, ["x1", "x3", "x4", "x5"]),
        ({"left_col_indexes": [0], "left_col_names": ["x2"]}, ["x0", "x2"]),
        ({"left_col_names": ["none"]}, ["x0"]),
        ({"filter_out_names": []}, ["x0", "x1", "x2", "x3", "x4", "x5"]),
        ({}, ["x0", "x1", "x2", "x3", "x4", "x5"]),
    ):
        ran = select(rows, own={GUEST: {"manually_param": manual}})
        assert left(ran)[GUEST] == wanted
        assert len(left(ran)[HOST]) == 8
    named = {"use_anonymous": True, "manually_param": {"left_col_names": ["guest_1_x3", "host_2_x1", "host_2_x5"]}}
    assert left(select(rows, **named)) == {GUEST: ["x3"], HOST: ["x1", "x5"]}


def test_only_selected_columns_are_filtered():
    manual = {"manually_param": {"filter_out_indexes": [0, 1, 2]}}
    for chosen in (
        {"select_col_indexes": [1, 5]},
        {"select_names": ["x1", "x5"]},
        {"select_names": ["guest_1_x1", "guest_1_x5"], "use_anonymous": True},
    ):
        ran = select(frames(GUEST), **manual, **chosen)
        assert left(ran)[GUEST] == ["x0", "x2", "x3", "x4", "x5"]
        assert ran.records[GUEST].summaries["all"]["left_col_nums"] == 1
    ran = select(frames(GUEST), **manual, select_col_indexes=[])
    assert len(left(ran)[GUEST]) == 6
    assert ran.records[GUEST].lines == ["no feature of guest 1 is selected: all stay"]


def test_filters_look_at_the_rows():
    rows = np.random.default_rng(1).normal(size=(100, 4))
    rows[:, 1] = 7
    rows[:, 2] = [0] * 70 + list(range(30))
    assert alone(rows, "unique_value") == [0, 2, 3]
    assert alone(rows, "unique_value", unique_param={"eps": 2.0}) == [2]
    assert alone(rows, "percentage_value", percentage_value_param={"upper_pct": 0.7}) == [0, 3]
    assert alone(rows, "percentage_value", percentage_value_param={"upper_pct": 0.71}) == [0, 2, 3]
    variation = rows.std(axis=0) / np.abs(rows.mean(axis=0))
    limit = float(np.sort(variation)[2]) - 1e-9
    found = alone(rows, "coefficient_of_variation_value_thres", variance_coe_param={"value_threshold": limit})
    assert found == np.flatnonzero(variation >= limit).tolist()
    top = np.sort(rows, axis=0)[89]
    found = alone(rows, "outlier_cols", outlier_param={"percentile": 0.9, "upper_threshold": float(top[0])})
    assert found == np.flatnonzero(top <= top[0]).tolist()


def test_filters_look_at_models_of_other_components():
    rows = np.zeros((5, 3))
    statistics = {"x0": {"mean": 3.0, "std": 1}, "x1": {"mean": 1.0, "std": 5}, "x2": {"mean": 2.0, "std": None}}
    statistics = {"kind": "DataStatistics", "statistics": statistics}
    assert alone(rows, "statistic_filter", models=[statistics], statistic_param={"threshold": 2}) == [0, 2]
    both = {"metrics": ["mean", "std"], "threshold": [3, 1], "filter_type": ["threshold", "top_k"], "take_high": False}
    assert alone(rows, "statistic_filter", models=[statistics], statistic_param=both) == [0]
    psi = {"kind": "PSI", "psi": {"x0": 0.1, "x1": 0.3, "x2": 0.2}}
    assert alone(rows, "psi_filter", models=[psi], psi_param={"threshold": 0.25, "take_high": False}) == [0, 2]
    assert alone(rows, "psi_filter", models=[psi], psi_param={"threshold": 0.05}) == [0]
    trees = {"features": ["x0", "x1", "x2"], "splits": [["x2", 0.1], ["x0", 0.4], ["x2", 3.0]]}
    for method, kind in (
        ("hetero_sbt_filter", "HeteroSecureBoost"),
        ("hetero_fast_sbt_filter", "HeteroFastSecureBoost"),
    ):
        assert alone(rows, method, models=[{"kind": kind, **trees}]) == [0, 2]
        assert alone(rows, method, models=[{"kind": kind, **trees}], sbt_param={"threshold": 2}) == [2]
    homo = {"kind": "HomoSecureBoost", "features": ["x0", "x1", "x2"], "feature_importance": {"x1": 4}}
    assert alone(rows, "homo_sbt_filter", models=[homo]) == [1]


def test_importances_of_trees_are_those_of_a_trained_model():
    rows = frames(GUEST, HOST)
    parameters = {"num_trees": 2, "encrypt_param": {"method": "plain"}, "tree_param": {"max_depth": 2}}
    given = {party: PartInputs(parameters, {"train_data": [one]}) for party, one in rows.items()}
    models = {party: one.model for party, one in run_parts("HeteroSecureBoost", given).outputs.items()}
    found = left(select(rows, models, filter_methods=["hetero_sbt_filter"]))
    used = {party: {name for name, _ in model["splits"]} for party, model in models.items()}
    assert used[HOST]
    assert {party: set(names) for party, names in found.items()} == {party: used[party] or {"x0"} for party in rows}


def test_columns_that_others_explain_go(pearson):
    ran = select(frames(GUEST, HOST), pearson, filter_methods=["vif_filter"], vif_param={"threshold": 10})
    for party in (GUEST, HOST):
        inverse = np.linalg.inv(np.corrcoef(MATRIX[:, COLUMNS[party]].T))
        assert left(ran)[party] == [f"x{at}" for at, one in enumerate(np.diag(inverse)) if one <= 10]
    model = {"kind": "HeteroPearson", "features": ["x0", "x1"], "local_vif": [None, 1.0]}
    assert alone(np.zeros((2, 2)), "vif_filter", models=[model]) == [1]


@pytest.mark.parametrize("federated", [True, False])
def test_of_correlated_columns_the_most_informative_stays(binning, pearson, federated):
    rows = frames(GUEST, HOST)
    parameters = {"threshold": 0.6, "select_federated": federated}
    ran = select(rows, binning, pearson, filter_methods=["correlation_filter"], correlation_param=parameters)
    truth = np.corrcoef(MATRIX[:, :14].T)
    kept: list[Any] = []
    for _, party, name in information_values(binning):
        at = COLUMNS[party].start + int(name[1:])
        if party == HOST_2 or (party == HOST and not federated):
            continue
        # correlations between columns of a host are not known to the guest
        if all(abs(truth[at, other]) <= 0.6 for of, other in kept if GUEST in (of, party)):
            kept.append((party, at))
    wanted = {of: sorted(at - COLUMNS[of].start for one, at in kept if one == of) for of in (GUEST, HOST)}
    if not federated:
        wanted[HOST] = list(range(8))
    assert left(ran) == {of: [f"x{at}" for at in names] for of, names in wanted.items()}
    assert 1 <= len(left(ran)[GUEST]) < 6


def test_filters_follow_each_other_and_a_model_does_the_same(binning):
    rows = frames(GUEST, HOST)
    methods = ["manually", "iv_top_k", "unique_value"]
    manual = {"manually_param": {"filter_out_names": ["x0"]}, "iv_top_k_param": {"k": 5}}
    ran = select(rows, binning, filter_methods=methods, **manual)
    reports = ran.records[GUEST].summaries
    assert [reports[one]["last_col_nums"] for one in methods] == [6, 5, len(left(ran)[GUEST])]
    assert sum(len(names) for names in left(ran).values()) == 5
    assert "x0" not in left(ran)[GUEST] + left(ran)[HOST]
    hosts = ran.outputs[GUEST].model["hosts"]["2"]
    assert hosts == [f"host_2_{name}" for name in left(ran)[HOST]]
    models = {party: one.model for party, one in ran.outputs.items()}
    again = select(rows, trained=models)
    assert left(again) == left(ran)
    assert again.sent == []
    assert (again.outputs[HOST].data[0].matrix() == ran.outputs[HOST].data[0].matrix()).all()


def test_names_hold_when_columns_have_gone_before(binning, pearson):
    rows = frames(GUEST, HOST)
    fewer = {party: one.with_features(one.features[2:], one.matrix()[:, 2:]) for party, one in rows.items()}
    found = left(select(fewer, binning, pearson, filter_methods=["iv_filter"], iv_param={"threshold": 0}))
    assert found == {GUEST: ["x2", "x3", "x4", "x5"], HOST: [f"x{at}" for at in range(2, 8)]}
    ranked = [one for one in information_values(binning) if one[1] != HOST_2 and one[2] not in ("x0", "x1")]
    ran = select(fewer, binning, filter_methods=["iv_top_k"], iv_top_k_param={"k": 4})
    assert {(party, name) for party, names in left(ran).items() for name in names} >= {one[1:] for one in ranked[:4]}


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"filter_methods": "manually"}, "filter_methods"),
        ({"filter_methods": ["guess"]}, "no filter 'guess'"),
        ({"filter_methods": ["iv_filter"]}, "no model of HeteroFeatureBinning"),
        ({"filter_methods": ["vif_filter"]}, "no model of HeteroPearson"),
        ({"filter_methods": ["iv_filter"], "iv_param": {"take_high": False}}, "iv_param needs"),
        ({"filter_methods": ["iv_filter"], "iv_param": {"filter_type": "best"}}, "filter_type"),
        ({"filter_methods": ["iv_filter"], "iv_param": {"threshold": [1, 2]}}, "same length"),
        ({"filter_methods": ["iv_filter"], "iv_param": {"threshold": "x"}}, "must be a number"),
        ({"filter_methods": ["iv_filter"], "iv_param": {"threshold": 0, "filter_type": "top_k"}}, "from 1 on"),
        ({"filter_methods": ["iv_filter"], "iv_param": {"threshold": 2, "filter_type": "top_percentile"}}, "0 to 1"),
        ({"filter_methods": ["iv_filter"], "iv_param": {"mul_class_merge_type": "sum"}}, "mul_class_merge_type"),
        ({"filter_methods": ["iv_filter"], "iv_param": {"host_thresholds": [1, 2]}}, "list of 0 numbers"),
        ({"filter_methods": ["psi_filter"], "psi_param": {"take_high": True}}, "psi_param needs"),
        ({"filter_methods": ["statistic_filter"], "statistic_param": {"host_thresholds": [1]}}, "has no effect"),
        ({"filter_methods": ["iv_top_k"], "iv_top_k_param": {"k": 0}}, "iv_top_k_param.k"),
        ({"filter_methods": ["outlier_cols"], "outlier_param": {"percentile": 3}}, "outlier_param.percentile"),
        ({"filter_methods": ["percentage_value"], "percentage_value_param": {"upper_pct": 0.01}}, "at least 0.1"),
        ({"filter_methods": ["correlation_filter"], "correlation_param": {"sort_metric": "psi"}}, "sort_metric"),
        ({"manually_param": {"filter_out_names": "x0"}}, "must be a list"),
        ({"manually_param": {"filter_out_names": [], "left_col_names": []}}, "columns to keep"),
    ],
)
def test_wrong_parameters_are_named(parameters, message):
    with pytest.raises(UsageError, match=message):
        select(frames(GUEST), **parameters)


def test_wrong_models_and_rows_are_named(binning, pearson):
    rows = frames(GUEST, HOST)
    iv = {"filter_methods": ["iv_filter"]}
    with pytest.raises(UsageError, match="2 model of HeteroFeatureBinning"):
        select(frames(GUEST), binning, binning, **iv)
    with pytest.raises(UsageError, match="knows nothing about 'x0' of guest 1"):
        select(frames(GUEST), {GUEST: binning[GUEST] | {"results": []}}, **iv)
    with pytest.raises(UsageError, match="knows nothing about 'host_2_x0' of host 2"):
        select(rows, binning | {GUEST: binning[GUEST] | {"hosts": {}}}, **iv)
    with pytest.raises(UsageError, match="knows nothing about 'x0' of host 2"):
        select(rows, binning | {HOST: binning[HOST] | {"anonymous": {}}}, **iv)
    lonely = pearson | {GUEST: pearson[GUEST] | {"hosts": {}}}
    with pytest.raises(UsageError, match="knows nothing about 'host_2_x0'"):
        select(rows, binning, lonely, filter_methods=["correlation_filter"])
    with pytest.raises(UsageError, match="host 2 awaits nothing"):
        select(rows, binning, **iv, own={HOST: {"filter_methods": ["manually"]}})
    with pytest.raises(UsageError, match="needs a guest"):
        select(frames(HOST), binning, **iv)
    model = {"kind": "DataStatistics", "statistics": {"x0": {"mean": 1}}}
    with pytest.raises(UsageError, match="has no metric 'median'"):
        alone(np.zeros((2, 1)), "statistic_filter", models=[model], statistic_param={"metrics": "median"})
    with pytest.raises(UsageError, match="no importances"):
        alone(np.zeros((2, 1)), "homo_sbt_filter", models=[{"kind": "HomoSecureBoost", "features": ["x0"]}])
    with pytest.raises(UsageError, match="no VIF"):
        alone(np.zeros((2, 1)), "vif_filter", models=[{"kind": "HeteroPearson", "features": ["x0"]}])
    with pytest.raises(UsageError, match="no features"):
        alone(np.zeros((2, 0)))
    with pytest.raises(UsageError, match="no column 'z'"):
        select(frames(GUEST), trained={GUEST: {"left": ["z"]}})
    with pytest.raises(UsageError, match="does not have the model"):
        select(frames(GUEST), trained={GUEST: {"kind": "x"}})


@pytest.mark.parametrize(
    ("mask", "message"), [([True], "not possible"), ([False] * 8, "not possible"), ("x", "malformed")]
)
def test_a_host_refuses_a_selection_that_is_not_possible(binning, mask, message):
    given = PartInputs(
        {"filter_methods": ["iv_filter"]},
        {"data": [frames(HOST)[HOST]]},
        {"isometric_model": {"b": binning[HOST]}},
    )
    with pytest.raises(PartyMessageError, match=message):
        run_against("HeteroFeatureSelection", HOST, given, {(GUEST, "left/0"): mask})


@pytest.mark.parametrize(
    ("names", "message"), [([["host_2_x0"]] * 2, "do not fit"), ([], "do not fit"), (3, "malformed")]
)
def test_a_guest_refuses_names_that_are_not_possible(binning, names, message):
    given = PartInputs(
        {"filter_methods": ["iv_filter"]},
        {"data": [frames(GUEST)[GUEST]]},
        {"isometric_model": {"b": binning[GUEST]}},
    )
    sent = {(HOST, "filters"): ["iv_filter"], (HOST, "names/0"): names}
    with pytest.raises(PartyMessageError, match=message):
        run_against("HeteroFeatureSelection", GUEST, given, sent)
