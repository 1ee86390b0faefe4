"""How relations are cut: which stages there are, and how rows move between them."""

from dataclasses import replace

import duckdb
import pytest

from weft.frontends.sql.expressions import column, joined
from weft.frontends.sql.planner import Planner
from weft.frontends.sql.relations import (
    Distinct,
    Filter,
    Grouping,
    Join,
    JoinCondition,
    JoinKind,
    KeyFilter,
    Project,
    Scan,
    SetKind,
    SetOperation,
    scans,
)
from weft.frontends.sql.stages import ExchangeKind, cut
from weft.frontends.sql.tables import FileTable


@pytest.fixture(scope="module")
def planner(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tables")
    made = Planner(folders=[f"{folder}/"])
    for name, rows in (("big", 1000), ("other", 900)):
        path = folder / f"{name}.parquet"
        query = f"SELECT i AS a, i % 7 AS b, (i % 5)::VARCHAR AS s, i / 3 AS d FROM range({rows}) t(i)"
        duckdb.execute(f"COPY ({query}) TO '{path}' (FORMAT parquet)")
        made.add(FileTable(name, "read_parquet", (str(path),)))
    return made


def moves(planner, text, *, small=0, tiny=0):
    """Return for each stage its table, and the movements of what it receives."""
    plan = cut(planner.plan(text, {}), lambda relation: 1, small=small, tiny=tiny)
    return [(stage.table, *(str(exchange.kind) for exchange in stage.exchanges)) for stage in plan.stages]


def test_groups_are_counted_where_rows_are_and_then_by_their_hash(planner):
    assert moves(planner, "SELECT b, sum(a), avg(d) FROM big GROUP BY b") == [("big",), ("", "hash")]


def test_without_groups_the_parts_go_to_one_task(planner):
    assert moves(planner, "SELECT sum(a) FROM big WHERE b > 2") == [("big",), ("", "gather")]


def test_distinct_values_are_made_distinct_before_they_are_counted(planner):
    assert moves(planner, "SELECT count(DISTINCT b) FROM big") == [("big",), ("", "hash"), ("", "gather")]


def test_aggregates_that_have_no_parts_get_all_rows_of_a_group(planner):
    assert moves(planner, "SELECT b, stddev(a), count(DISTINCT s) FROM big GROUP BY b") == [("big",), ("", "hash")]


def test_a_join_shuffles_both_sides_or_copies_the_small_one(planner):
    text = "SELECT big.s, other.d FROM big JOIN other ON big.a = other.b"
    assert moves(planner, text) == [("big",), ("other",), ("", "hash", "hash")]
    copied = moves(planner, text, small=1)
    assert sorted(copied) in ([("big",), ("other", "broadcast")], [("big", "broadcast"), ("other",)])


def test_a_tiny_side_of_a_join_is_read_by_the_tasks_of_the_other(planner):
    text = "SELECT big.s, other.d FROM big JOIN other ON big.a = other.b"
    assert moves(planner, text, small=1, tiny=1) in ([("big",)], [("other",)])
    full = "SELECT big.s, other.d FROM big FULL JOIN other ON big.a = other.b"
    assert moves(planner, full, small=1, tiny=1)[2:] == [("", "hash", "hash")]
    values = "SELECT big.s, n FROM big JOIN (VALUES (1, 'x'), (2, 'y')) t(k, n) ON big.a = k"
    assert moves(planner, values, small=1, tiny=1) == [("big",)]


def test_a_tiny_side_that_may_prune_splits_is_a_stage(planner):
    text = "SELECT big.s, other.d FROM big JOIN other ON big.a = other.b"
    plan = cut(planner.plan(text, {}), _weight_of_two, small=4, tiny=1)
    assert [stage.table for stage in plan.stages] == ["other", "big"]
    assert plan.stages[1].pruning is not None


def _weight_of_two(relation):
    """Return the bytes of `big` and `other`: 5 and 1."""
    return sum(5 if scan.table == "big" else 1 for scan in scans(relation))


def test_groups_by_the_key_of_a_join_need_no_further_exchange(planner):
    text = "SELECT big.a, count(*) FROM big JOIN other ON big.a = other.a GROUP BY big.a, big.s"
    assert moves(planner, text)[2:] == [("", "hash", "hash")]


def test_both_sides_of_a_full_join_are_shuffled_though_one_is_small(planner):
    text = "SELECT big.s, other.d FROM big FULL JOIN other ON big.a = other.b"
    assert moves(planner, text, small=1)[2:] == [("", "hash", "hash")]


def test_a_limit_asks_for_enough_rows_only(planner):
    plan = cut(planner.plan("SELECT s FROM big WHERE b = 3 LIMIT 5 OFFSET 2", {}), lambda relation: 1, small=0)
    assert [stage.enough for stage in plan.stages] == [7, None]
    assert plan.stages[1].exchanges[0].kind is ExchangeKind.GATHER


def test_a_sort_divides_rows_by_ranges_of_their_keys(planner):
    sampled = [("big",), ("", "same"), ("", "same", "broadcast"), ("", "range")]
    assert moves(planner, "SELECT a, s FROM big ORDER BY s, a") == sampled
    assert moves(planner, "SELECT a, s FROM big ORDER BY s, a LIMIT 20000") == [*sampled, ("", "gather")]
    assert moves(planner, "SELECT a, s FROM big ORDER BY s, a OFFSET 3") == [*sampled, ("", "gather")]


@pytest.mark.parametrize("text", ["SELECT s FROM big ORDER BY s LIMIT 10", "SELECT s FROM big ORDER BY s"])
def test_one_task_sorts_few_rows(planner, text):
    assert moves(planner, text, small=int("LIMIT" not in text)) == [("big",), ("", "gather")]


def test_rows_that_may_be_few_are_measured_before_they_are_sorted(planner):
    plan = cut(planner.plan("SELECT b, sum(a) FROM big GROUP BY b ORDER BY b", {}), lambda relation: 9, small=1)
    branches = {stage.number: stage.branches[0] for stage in plan.stages if stage.branches}
    assert {branch.choice for branch in branches.values()} == {(1,)}
    assert [(branch.name, branch.small) for number, branch in branches.items() if number in plan.results] == [
        ("one_task", True),
        ("ranges", False),
    ]


def test_a_union_is_the_rows_of_several_stages(planner):
    plan = cut(planner.plan("SELECT a FROM big UNION ALL SELECT a FROM other", {}), lambda relation: 1, small=0)
    assert [stage.table for stage in plan.stages] == ["big", "other"]
    assert plan.results == (0, 1)


def test_a_table_that_is_used_twice_is_computed_once(planner):
    text = "WITH x AS MATERIALIZED (SELECT b, sum(a) t FROM big GROUP BY b) SELECT * FROM x JOIN x y ON x.t = y.b"
    found = moves(planner, text)
    assert [table for table, *_ in found].count("big") == 1
    assert sum("same" in stage for stage in found) == 2


def test_windows_lie_by_their_keys_and_unions_side_by_side(planner):
    assert moves(planner, "SELECT rank() OVER (PARTITION BY b ORDER BY a) FROM big") == [("big",), ("", "hash")]
    union = "SELECT b, sum(a) FROM (SELECT a, b FROM big UNION ALL SELECT a, b FROM other) GROUP BY b"
    assert moves(planner, union) == [("big",), ("other",), ("", "hash")]


def _scan(table, *, filtered=None):
    """Return the scan of two columns, with a condition on the one at `filtered`."""
    conditions = () if filtered is None else (joined("{} > 2", column(filtered, "BIGINT"), type="BOOLEAN"),)
    return Scan(table, (("a", "BIGINT"), ("b", "BIGINT")), conditions, (0, 1))


def _join(left, right, left_key, right_key, kind=JoinKind.INNER):
    """Return the join by the columns at these positions of both sides."""
    by = JoinCondition(column(left_key, "BIGINT"), column(right_key, "BIGINT"), "=")
    return Join(kind, left, right, (by,))


def _readers(relation, table):
    """Return the tables of the stages that receive the rows of a table of weight 1; big ones have 100, others 90."""
    weights = {"big": 100, "other": 90}
    plan = cut(relation, lambda one: sum(weights.get(scan.table, 1) for scan in scans(one)), small=1)
    (number,) = [stage.number for stage in plan.stages if stage.table == table]
    return [stage.table for stage in plan.stages if any(number in one.sources for one in stage.exchanges)]


@pytest.mark.parametrize(("key", "table"), [(1, "big"), (3, "other")])
def test_a_filtered_side_meets_the_rows_with_its_keys_before_they_are_exchanged(key, table):
    below = _join(_scan("big"), _scan("other"), 0, 0)
    few = _scan("few", filtered=1)
    assert _readers(_join(below, few, key, 0), "few") == [table]
    assert _readers(_join(few, below, 0, key), "few") == [table]
    assert _readers(_join(below, few, key, 0, kind=JoinKind.SEMI), "few") == [table]


def test_a_side_that_leaves_no_rows_out_adds_its_columns_after_an_exchange():
    below = _join(_scan("big"), _scan("other"), 0, 0)
    assert _readers(_join(below, _scan("few"), 1, 0), "few") == [""]
    assert _readers(_join(below, _scan("few", filtered=0), 1, 0), "few") == [""]


def test_a_filtered_side_stays_above_the_copy_of_another():
    below = _join(_scan("big"), _scan("few"), 0, 0)
    assert _readers(_join(below, _scan("fewer", filtered=1), 1, 0), "fewer") == ["big"]


def test_the_side_that_more_conditions_leave_smaller_is_measured():
    few = _join(_scan("other", filtered=1), _scan("more", filtered=1), 0, 0)
    many = _scan("big", filtered=1)
    plan = cut(_join(many, few, 0, 0), lambda one: 50 * len(list(scans(one))), small=1)
    choices = {branch.choice for stage in plan.stages for branch in stage.branches}
    assert "big" not in {plan.stages[number].table for choice in choices for number in choice}


def _filters(relation):
    """Return the stages that make Bloom filters in the plan of a relation whose tables all weigh 50."""
    plan = cut(relation, lambda one: 50 * len(list(scans(one))), small=1)
    return [stage.number for stage in plan.stages if isinstance(stage.relation, KeyFilter)]


@pytest.mark.parametrize(("condition", "filtered"), [
    (joined("({} <= 9)", column(0, "BIGINT"), type="BOOLEAN"), False),
    (joined("(({} > 2) AND ({} < 9))", *[column(0, "BIGINT")] * 2, type="BOOLEAN"), False),
    (joined("({} % 7 > 2)", column(0, "BIGINT"), type="BOOLEAN"), True),
    (joined("({} <= 9)", column(1, "BIGINT"), type="BOOLEAN"), True),
])  # fmt: skip
def test_a_filter_is_made_of_keys_that_conditions_leave_fewer(condition, filtered):
    rows = _scan("other")
    for side in (replace(rows, filters=(condition,)), Filter(rows, (condition,))):
        assert bool(_filters(_join(_scan("big"), side, 0, 0))) == filtered


def test_no_filter_is_made_of_the_keys_of_all_groups():
    groups = Grouping(_scan("other"), (column(0, "BIGINT"),), ())
    assert _filters(_join(_scan("big"), groups, 0, 0)) == []
    assert len(_filters(_join(_scan("big"), replace(groups, input=_scan("other", filtered=1)), 0, 0))) == 1


def test_bounds_of_keys_make_no_side_smaller():
    few = _join(_scan("more", filtered=1), _scan("other", filtered=1), 0, 0)
    bounded = _scan("big", filtered=0)
    plan = cut(_join(few, bounded, 0, 0), lambda one: 50 * len(list(scans(one))), small=1)
    choices = {branch.choice for stage in plan.stages for branch in stage.branches}
    assert "big" not in {plan.stages[number].table for choice in choices for number in choice}


def _measured_moves(relation):
    """Return the movements of each stage in the plan of a relation whose tables all weigh 50, with its branches."""
    plan = cut(relation, lambda one: 50 * len(list(scans(one))), small=1)
    return [
        (tuple(branch.name for branch in stage.branches), *(str(exchange.kind) for exchange in stage.exchanges))
        for stage in plan.stages
    ]


@pytest.mark.parametrize("kind", [JoinKind.INNER, JoinKind.RIGHT])
def test_groups_by_a_key_of_a_measured_join_are_exchanged_only_where_the_other_side_was_copied(kind):
    joined_rows = _join(_scan("few", filtered=1), _scan("big"), 0, 0, kind=kind)
    by = (column(2, "BIGINT"), column(3, "BIGINT"))  # the key as the right side has it, and another column
    grouped = _measured_moves(Grouping(joined_rows, by, ()))
    assert grouped.count((("copied",), "hash")) == 1
    assert grouped.count((("exchanged",), "hash", "hash")) == 1
    assert ((), "hash") not in grouped
    distinct = _measured_moves(Distinct(Project(joined_rows, by), (column(0, "BIGINT"), column(1, "BIGINT"))))
    assert distinct == grouped


def test_groups_by_no_key_of_a_measured_join_are_exchanged_once():
    joined_rows = _join(_scan("few", filtered=1), _scan("big"), 0, 0)
    found = _measured_moves(Grouping(joined_rows, (column(3, "BIGINT"),), ()))
    assert found[-1] == ((), "hash")
    assert ((("copied",), "hash")) not in found


def test_groups_of_a_union_of_joins_are_exchanged():
    rows = _join(_scan("big"), _scan("other"), 0, 0, kind=JoinKind.FULL)
    joined_rows = _join(_scan("big"), _scan("other"), 0, 0)
    union = SetOperation(SetKind.UNION, joined_rows, rows, all=True)
    assert _measured_moves(Grouping(union, (column(0, "BIGINT"),), ()))[-1] == ((), "hash")


@pytest.mark.parametrize("kind", [JoinKind.SEMI, JoinKind.ANTI])
def test_a_left_side_with_conditions_leaves_out_rows_of_the_other_side_of_a_semi_join(kind):
    found = _join(_scan("few", filtered=1), _scan("big"), 0, 0, kind=kind)
    assert len(_filters(found)) == 1
    moved = _measured_moves(found)
    assert (("copied",), "broadcast") in moved
    assert moved[-1] == ((), "hash", "hash")
    assert _filters(_join(_scan("few"), _scan("big"), 0, 0, kind=kind)) == []
