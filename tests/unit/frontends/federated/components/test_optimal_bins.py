"""Optimal binning, against SciPy and a search that is written out by hand."""

import itertools
import math
from functools import cache
from typing import Any

import numpy as np
import pytest
from scipy.stats import chi2_contingency, ks_2samp

from tests.unit.frontends.federated.components.parts_of import GUEST, HOST, HOST_2, breast, frame, run_against
from weft.frontends.federated.components.optimal_bins import METRICS, MergeRule, merged_ends
from weft.frontends.federated.wire import decode
from weft.model.errors import PartyMessageError, UsageError
from weft.testing.parts import PartInputs, run_parts

pytestmark = pytest.mark.slow

MATRIX, Y = breast()
OPTIMAL = {"init_bin_nums": 40, "min_bin_pct": 0.05, "max_bin_pct": 0.8, "mixture": True}


def fit(frames, *, own=None, **parameters):
    given = {}
    for party, rows in frames.items():
        usual = {"method": "optimal", "encrypt_param": {"method": "plain"}, "optimal_binning_param": OPTIMAL}
        given[party] = PartInputs(usual | parameters | (own or {}).get(party, {}), {"data": [rows]})
    return run_parts("HeteroFeatureBinning", given)


def some_counts(seed, bins=25):
    random = np.random.default_rng(seed)
    return np.column_stack([random.integers(0, 9, bins), random.integers(0, 14, bins)])


def information(counts, totals):
    more = 0.5 if min(counts) == 0 else 0.0
    share, rest = (counts[0] + more) / totals[0], (counts[1] + more) / totals[1]
    return (share - rest) * math.log(share / rest)


def impurity(counts):
    return 1 - sum((one / sum(counts)) ** 2 for one in counts) if sum(counts) else 0.0


def loss(metric, left, right, totals):
    both = [left[0] + right[0], left[1] + right[1]]
    if not sum(both):
        return -math.inf
    if metric == "iv":
        return information(left, totals) + information(right, totals) - information(both, totals)
    if metric == "gini":
        return impurity(both) - impurity(left) - impurity(right)
    if 0 in both or 0 in (sum(left), sum(right)):
        return -math.inf if 0 in both else 0.0
    return chi_square(*left, *right)


@cache
def chi_square(*counts):
    """Return the statistic of two bins, each with two counts; all but two pairs of neighbours stay at each merge."""
    return chi2_contingency([counts[:2], counts[2:]], correction=False).statistic


def by_hand(counts, rule):
    """Merge neighbours one by one, and return the last fine bin of each bin."""
    rows, totals = int(counts.sum()), counts.sum(axis=0).tolist()
    least, most = math.ceil(rule.least_share * rows), math.floor(rule.most_share * rows)
    bins = [(at, one) for at, one in enumerate(counts.tolist())]

    def lacks(one):
        return 0 in one

    def small(one):
        return sum(one) < least

    steps: list[Any] = [(lacks, all), (lacks, any)] if rule.mixture else []
    steps += [(small, all), (small, any), (None, None)]
    for wrong, join in steps:
        while True:
            if wrong is None and len(bins) <= rule.most:
                return [at for at, _ in bins]
            if wrong is not None and not any(wrong(one) for _, one in bins):
                break
            found = []
            for at, ((_, left), (_, right)) in enumerate(itertools.pairwise(bins)):
                fits = wrong is None or join((wrong(left), wrong(right)))
                if fits and sum(left) + sum(right) <= most:
                    found.append((loss(rule.metric, left, right, totals), at))
            if not found:
                if wrong is None:
                    return [at for at, _ in bins]
                break
            lowest = min(value for value, _ in found)
            at = next(place for value, place in found if value == lowest or math.isclose(value, lowest, rel_tol=1e-12))
            left, right = bins[at][1], bins[at + 1][1]
            bins[at : at + 2] = [(bins[at + 1][0], [left[0] + right[0], left[1] + right[1]])]
    return []


@pytest.mark.parametrize("metric", ["iv", "gini", "chi_square"])
@pytest.mark.parametrize("mixture", [True, False])
def test_neighbours_are_merged_as_by_hand(metric, mixture):
    for seed in range(30):
        counts = some_counts(seed)
        rule = MergeRule(metric, 5, 0.06, 0.6, mixture)
        assert merged_ends(counts, rule, 0.5) == by_hand(counts, rule), f"seed {seed}"


def test_the_first_division_is_where_the_distributions_differ_most():
    for seed in range(10):
        random = np.random.default_rng(seed)
        values, y = random.normal(size=200), random.integers(0, 2, 200)
        values[y == 1] += 1
        edges = np.sort(values)
        counts = np.array([[int(one), int(not one)] for one in y[np.argsort(values)]])
        ends = merged_ends(counts, MergeRule("ks", 2, 0.01, 1.0, mixture=False), 0.5)
        assert edges[ends[0]] == pytest.approx(ks_2samp(values[y == 1], values[y == 0]).statistic_location), seed


@pytest.mark.parametrize("metric", METRICS)
def test_bins_keep_their_bounds(metric):
    for seed in range(20):
        counts = some_counts(seed, 60)
        ends = merged_ends(counts, MergeRule(metric, 6, 0.05, 0.5, mixture=True), 0.5)
        merged = np.add.reduceat(counts, [0, *(at + 1 for at in ends[:-1])], axis=0)
        assert ends[-1] == 59
        assert 2 <= len(ends) <= 6
        assert (merged.sum(axis=1) >= math.ceil(0.05 * counts.sum())).all()
        assert merged.min() > 0


def test_bins_that_cannot_be_divided_or_merged_further():
    ks = MergeRule("ks", 4, 0.05, 1.0, mixture=True)
    assert merged_ends(np.array([[3, 4]]), ks, 0.5) == [0]
    assert merged_ends(np.array([[3, 0], [2, 0]]), ks, 0.5) == [0, 1]
    assert merged_ends(np.array([[3, 4], [3, 4], [3, 4]]), MergeRule("iv", 1, 0.0, 0.5, mixture=False), 0.5) == [
        0,
        1,
        2,
    ]


def test_fine_bins_of_equal_width_may_be_more_than_rows():
    rows, y = MATRIX[:60], Y[:60]
    given = {"optimal_binning_param": OPTIMAL | {"init_bucket_method": "bucket", "init_bin_nums": 200}, "bin_num": 4}
    pooled = fit({GUEST: frame(rows[:, :2], y)}, **given).outputs[GUEST].model["columns"]
    ran = fit({GUEST: frame(rows[:, :1], y), HOST: frame(rows[:, 1:2])}, **given)
    assert ran.outputs[HOST].model["columns"]["x0"] == pooled["x1"]


@pytest.mark.parametrize("metric", METRICS)
def test_columns_of_hosts_are_merged_like_those_of_the_guest(metric):
    given = {"optimal_binning_param": OPTIMAL | {"metric_method": metric}, "bin_num": 5}
    pooled = fit({GUEST: frame(MATRIX[:, :6], Y)}, **given).outputs[GUEST].model["columns"]
    ran = fit({GUEST: frame(MATRIX[:, :2], Y), HOST: frame(MATRIX[:, 2:4]), HOST_2: frame(MATRIX[:, 4:6])}, **given)
    for party, first in ((GUEST, 0), (HOST, 2), (HOST_2, 4)):
        for at, one in enumerate(ran.outputs[party].model["columns"].values()):
            assert one == pooled[f"x{first + at}"]
            assert 2 <= len(one["edges"]) <= 5
    results = ran.outputs[GUEST].model["hosts"][HOST.id][0]["host_2_x0"]
    edges = pooled["x2"]["edges"]
    codes = np.searchsorted(edges[:-1], MATRIX[:, 2], side="left")
    assert results["events"] == np.bincount(codes[Y == 1], minlength=len(edges)).tolist()
    assert set(ran.outputs[HOST].data[0].columns["x0"]) == set(range(len(edges)))


def test_optimal_bins_tell_more_than_quantiles():
    frames = {GUEST: frame(MATRIX[:, :10], Y)}
    best = fit(frames, bin_num=4).outputs[GUEST].model["results"][0]
    plain = fit(frames, bin_num=4, method="quantile").outputs[GUEST].model["results"][0]
    assert sum(one["iv"] for one in best.values()) > sum(one["iv"] for one in plain.values())


def test_parties_may_have_other_methods_and_categories_stay():
    matrix = np.column_stack([MATRIX[:, 0], np.arange(len(Y)) % 7, MATRIX[:, 1]])
    frames = {GUEST: frame(MATRIX[:, 3:4], Y), HOST: frame(matrix)}
    own = {GUEST: {"method": "quantile"}, HOST: {"category_indexes": [1]}}
    columns = fit(frames, own=own, bin_num=4).outputs[HOST].model["columns"]
    assert columns["x1"]["edges"] == list(range(7))
    assert len(columns["x0"]["edges"]) <= 4
    other = fit(frames, own={HOST: {"method": "bucket"}}, bin_num=4)
    assert len(other.outputs[HOST].model["columns"]["x0"]["edges"]) == 4


def test_only_places_of_bins_come_back():
    rows, y = MATRIX[:60, :2], Y[:60]
    frames = {GUEST: frame(rows[:, :1], y), HOST: frame(rows[:, 1:])}
    own = {party: {"encrypt_param": {"method": "Paillier"}} for party in frames}
    few = {"optimal_binning_param": OPTIMAL | {"init_bin_nums": 8}, "bin_num": 3}
    ran, plain = fit(frames, own=own, **few), fit(frames, **few)
    assert ran.outputs[HOST].model == plain.outputs[HOST].model
    merged = [decode(one.data) for one in ran.sent if one.name == "merged"]
    assert len(merged) == 1
    assert all(isinstance(at, int) and 0 <= at < 8 for at in merged[0][0])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"metric_method": "entropy"}, "metric_method"),
        ({"init_bucket_method": "optimal"}, "init_bucket_method"),
        ({"init_bin_nums": 0}, "init_bin_nums"),
        ({"min_bin_pct": 0.9}, "min_bin_pct"),
        ({"max_bin_pct": 2}, "max_bin_pct"),
        ({"max_bin_pct": 0.06}, "max_bin_pct"),
    ],
)
def test_wrong_parameters_are_named(given, message):
    with pytest.raises(UsageError, match=message):
        fit({GUEST: frame(MATRIX[:, :2], Y)}, optimal_binning_param=OPTIMAL | given)


def test_what_optimal_bins_cannot_take():
    with pytest.raises(UsageError, match="two classes"):
        fit({GUEST: frame(MATRIX[:, :1], np.arange(len(Y)) % 3)})
    gone = MATRIX[:, :1].copy()
    gone[3] = np.nan
    with pytest.raises(UsageError, match="missing values"):
        fit({GUEST: frame(gone, Y)})
    with pytest.raises(UsageError, match="needs labels"):
        fit({GUEST: frame(MATRIX[:, :1], Y), HOST: frame(MATRIX[:, 1:2])}, local_only=True)


@pytest.mark.parametrize("merged", [[[0, 1]], [[1, 0, 2]], [[-1, 2]], [], [[0, 2], [0, 2]], [[]], "none"])
def test_a_guest_that_merges_what_there_is_not_is_refused(merged):
    given = PartInputs(
        {"method": "optimal", "bin_num": 2, "encrypt_param": {"method": "plain"}},
        {"data": [frame(np.arange(3.0)[:, None])]},
    )
    sent = {
        "plan": {"classes": 2},
        "rows": 3,
        "key": {"method": "plain"},
        "labels": {"plain": [1, 4, 1]},
        "merged": merged,
    }
    with pytest.raises(PartyMessageError, match=r"merged bins|malformed"):
        run_against("HeteroFeatureBinning", HOST, given, {(GUEST, name): value for name, value in sent.items()})
