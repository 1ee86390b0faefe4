"""The points of sweeps: values from texts, grids, samples, conditions, and which points are dropped."""

import pytest

from weft.model.errors import UsageError
from weft.runs.grids import Halving, StopCondition, metric_value, points_of, values_of
from weft.runs.reports.facts import MetricFact


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("0.1,0.01", ["0.1", "0.01"]),
        ("1..3", ["1", "2", "3"]),
        ("-1..1", ["-1", "0", "1"]),
        ("0..1..0.25", ["0", "0.25", "0.5", "0.75", "1"]),
        ("0.1..0.3..0.1", ["0.1", "0.2", "0.3"]),
        ("8..1024..508", ["8", "516", "1024"]),
        ("1..2,9", ["1", "2", "9"]),
        ("1e-3..3e-3..1e-3", ["0.001", "0.002", "0.003"]),
        ("1e1..3E+1..1e1", ["10", "20", "30"]),
        ("[1,2],[3]", ["[1,2]", "[3]"]),
        ("'a,b',c", ["a,b", "c"]),
        ("it's", ["it's"]),
        ("", [""]),
        ("a..b", ["a..b"]),
        ("../data,x", ["../data", "x"]),
        ("100,200", ["100", "200"]),
    ],
)
def test_values(text, values):
    assert values_of("x", text) == values


@pytest.mark.parametrize(
    "text",
    [
        "5..1",
        "1..5..0",
        "5..1..-1",
        "1e-3..5e-3",
        "1..1e400",
        "1e999999999..1",
        "0.1..0.5",
        "1..100000",
        "a,a",
        "1..3,2",
    ],
)
def test_values_that_make_no_sense_are_refused(text):
    with pytest.raises(UsageError, match="parameter x"):
        values_of("x", text)


@pytest.mark.parametrize("text", ["1..5..0", "5..1..-1"])
def test_a_step_that_leads_nowhere_is_named(text):
    with pytest.raises(UsageError, match=f"the step {text.split('..')[2]} of parameter x in {text} is not more than 0"):
        values_of("x", text)


def test_a_grid_has_all_combinations_in_order():
    points, varied = points_of({"a": "1,2", "fixed": "x", "b": "u,v"})
    assert varied == ["a", "b"]
    assert [(point["a"], point["b"], point["fixed"]) for point in points] == [
        ("1", "u", "x"),
        ("1", "v", "x"),
        ("2", "u", "x"),
        ("2", "v", "x"),
    ]


def test_a_sample_is_the_same_for_the_same_seed():
    grid = {"a": "1..1000", "b": "1..1000", "c": "1..1000"}
    first, _ = points_of(grid, 20, 7)
    assert first == points_of(grid, 20, 7)[0]
    assert first != points_of(grid, 20, 8)[0]
    assert len({tuple(point.values()) for point in first}) == 20
    assert points_of({"a": "1,2"}, 50)[0] == [{"a": "1"}, {"a": "2"}]


@pytest.mark.parametrize(
    ("grid", "sample"), [({"a": "1"}, None), ({}, None), ({"a": "1..200", "b": "1..200"}, None), ({"a": "1,2"}, 0)]
)
def test_grids_that_are_too_small_or_too_large_are_refused(grid, sample):
    with pytest.raises(UsageError):
        points_of(grid, sample)


METRICS = [MetricFact("train.scores", "loss", 0.5), MetricFact("test.scores", "loss", 0.7)]


def test_a_metric_has_a_short_and_a_long_name():
    assert metric_value(METRICS, "loss") == 0.7
    assert metric_value(METRICS, "train.scores.loss") == 0.5
    assert metric_value(METRICS, "accuracy") is None


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("loss < 0.8", True),
        ("loss<0.7", False),
        ("loss <= 0.7", True),
        ("train.scores.loss==.5", True),
        ("x > 0", False),
    ],
)
def test_conditions(text, holds):
    assert StopCondition(text).holds(METRICS) is holds


@pytest.mark.parametrize("text", ["", "loss", "loss < x", "loss < nan", "< 1", "loss = 1", "loss < 1 and 2"])
def test_what_is_no_condition_is_refused(text):
    with pytest.raises(UsageError, match="not a condition"):
        StopCondition(text)


@pytest.mark.parametrize("maximize", [False, True])
def test_points_that_are_worse_at_a_rung_are_dropped(maximize):
    halving, sign = Halving(maximize=maximize), -1 if maximize else 1
    assert halving.drops(0, 1, sign * 0.5) is None, "the first one that comes to a rung goes on"
    assert halving.drops(1, 1, sign * 0.9) == 1
    assert halving.drops(2, 1, sign * 0.4) is None
    assert halving.drops(0, 1, sign * 0.9) is None, "a point is judged once at each rung"
    assert halving.drops(2, 3, sign * 0.3) is None
    assert halving.drops(0, 3, sign * 0.35) == 2
    assert halving.drops(3, 0, sign * 9) is None
