"""Reads the optimised plan of a query, as DuckDB serialises it, into relations.

The column positions of the plan are resolved (`BOUND_REF`). Two optimisers are off while a plan is made:
`column_lifetime`, since the serialised positions of its plans are wrong, and those whose plans hold internal functions
or filters that exist only while DuckDB runs them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from weft.frontends.sql.correlating import MIRRORED, direct
from weft.frontends.sql.expressions import (
    BOOLEAN,
    COMPARISONS,
    Expression,
    Json,
    NotCoveredError,
    column,
    constant,
    joined,
    listed,
    literal,
    read_aggregate,
    read_all,
    read_expression,
    read_orders,
    type_text,
)
from weft.frontends.sql.implying import with_implied
from weft.frontends.sql.relations import (
    Distinct,
    Filter,
    Grouping,
    Join,
    JoinCondition,
    JoinKind,
    Limit,
    Project,
    Relation,
    Reuse,
    Scan,
    SetKind,
    SetOperation,
    Shared,
    Sort,
    Types,
    Unnest,
    Values,
    Window,
)

DISABLED_OPTIMIZERS: Final = "column_lifetime,compressed_materialization,late_materialization,join_filter_pushdown"

_NO_COLUMN: Final = (1 << 64) - 2
"""The position of the column of a scan that only counts rows."""
_PLACE: Final = 1 << 63
"""From here on are the positions of columns that tell the place of a row. Only filters that all rows pass read them."""

FindTable = Callable[[Json], str]
"""Returns the name of the table of a scan in the plan; NotCoveredError if it is not one of ours."""


def read_plan(plan: Json, find_table: FindTable) -> Relation:
    """Return the relation that a serialised plan describes."""
    return _Reader(find_table).read(plan)


class _Reader:
    def __init__(self, find_table: FindTable) -> None:
        self._find_table = find_table
        self._next = 1 << 20  # numbers of relations that the plan does not number
        self._types: dict[int, Types] = {}  # of shared relations
        self._delimited: list[tuple[int, tuple[Expression, ...]]] = []

    def read(self, node: Json) -> Relation:
        reader = _READERS.get(node["type"])
        if reader is None:
            raise NotCoveredError(f"the operator {node['type'].removeprefix('LOGICAL_').lower().replace('_', ' ')}")
        return reader(self, node)

    def child(self, node: Json, at: int = 0) -> Relation:
        return self.read(node["children"][at])

    # ------------------------------------------------------------------------------------------------------- leaves

    def scan(self, node: Json) -> Relation:
        names, types = node["names"], [type_text(one) for one in node["returned_types"]]
        indexes = [one["index"] for one in node["column_indexes"]]
        if any(one["index_type"] != "FULL_READ" for one in node["column_indexes"]):
            raise NotCoveredError("a scan of a part of a column")
        columns = [(names[at], types[at]) if at < _PLACE else ("", BOOLEAN) for at in indexes]
        output = list(node["projection_ids"]) or list(range(len(columns)))
        filters: list[Expression] = []
        for one in node["table_filters"]["filters"]:
            if one["key"] not in indexes:
                raise NotCoveredError("a filter of a column that is not read")
            if one["key"] >= _PLACE:
                continue
            at = indexes.index(one["key"])
            found = _filter(one["value"], column(at, columns[at][1]))
            if found is not None:
                filters.append(found)
        return Scan(self._find_table(node), tuple(columns), tuple(filters), tuple(output))

    def values(self, node: Json) -> Relation:
        rows = tuple(tuple(read_all(row)) for row in node["expressions"])
        return Values(rows, tuple(type_text(one) for one in node["expr_types"]))

    def chunk(self, node: Json) -> Relation:
        types = tuple(type_text(one) for one in node["chunk_types"])
        columns = [[constant(value) for value in values] for values in node["collection"]["values"]]
        return Values(tuple(zip(*columns, strict=True)), types)

    def dummy(self, node: Json) -> Relation:
        return Values(((Expression(("1",), "INTEGER"),),), ("INTEGER",))

    def empty(self, node: Json) -> Relation:
        return Values((), tuple(type_text(one) for one in node["return_types"]))

    # ------------------------------------------------------------------------------------------------------ one input

    def filter(self, node: Json) -> Relation:
        rows = self.child(node)
        for condition in node["expressions"]:
            rows = with_implied(rows, condition)
        return _mapped(Filter(rows, tuple(read_all(node["expressions"]))), node["projection_map"])

    def project(self, node: Json) -> Relation:
        return Project(self.child(node), tuple(read_all(node["expressions"])))

    def aggregate(self, node: Json) -> Relation:
        groups = tuple(read_all(node["groups"]))
        sets = tuple(tuple(one) for one in node["grouping_sets"])
        if sets in ((), (tuple(range(len(groups))),)):
            sets = ()
        functions = tuple(tuple(one) for one in node["grouping_functions"])
        aggregates = tuple(read_aggregate(one) for one in node["expressions"])
        return Grouping(self.child(node), groups, aggregates, sets, functions)

    def order(self, node: Json) -> Relation:
        return _mapped(Sort(self.child(node), tuple(read_orders(node["orders"]))), node["projections"])

    def top(self, node: Json) -> Relation:
        return Sort(self.child(node), tuple(read_orders(node["orders"])), node["limit"], node["offset"])

    def limit(self, node: Json) -> Relation:
        limit, offset = (_bound(node[name]) for name in ("limit_val", "offset_val"))
        child = self.child(node)
        if isinstance(child, Sort) and child.limit is None:
            return Sort(child.input, child.orders, limit, offset or 0)
        return Limit(child, limit, offset or 0)

    def distinct(self, node: Json) -> Relation:
        bys = node.get("order_by")
        orders = tuple(read_orders(bys["orders"])) if bys else ()
        on = node["distinct_type"] == "DISTINCT_ON"
        return Distinct(self.child(node), tuple(read_all(node["distinct_targets"])), on, orders)

    def window(self, node: Json) -> Relation:
        """Read window functions, those that share a key of their partitions together."""
        found = self.child(node)
        width = len(found.types)
        groups: list[tuple[tuple[Expression, ...], list[int]]] = []
        for number, one in enumerate(node["expressions"]):
            keys = tuple(read_all(one["partitions"]))
            for at, (others, numbers) in enumerate(groups):
                shared = tuple(key for key in others if key in keys)
                if shared or others == keys:
                    groups[at] = shared, [*numbers, number]
                    break
            else:
                groups.append((keys, [number]))
        for keys, numbers in groups:
            found = Window(found, tuple(_window(node["expressions"][number]) for number in numbers), keys)
        made = [number for _, numbers in groups for number in numbers]
        if made == sorted(made):
            return found
        places = [*range(width), *(width + made.index(number) for number in range(len(made)))]
        return _mapped(found, places)

    def unnest(self, node: Json) -> Relation:
        lists = []
        for one in node["expressions"]:
            if one["expression_class"] != "BOUND_UNNEST":
                raise NotCoveredError("an unnest inside of an expression")
            inner = read_expression(one["child"])
            lists.append(Expression(inner.parts, type_text(one["return_type"])))
        return Unnest(self.child(node), tuple(lists))

    # ------------------------------------------------------------------------------------------------------ two inputs

    def join(self, node: Json) -> Relation:
        return self._join(node, self.child(node), self.child(node, 1))

    def _join(self, node: Json, left: Relation, right: Relation) -> Relation:
        if node.get("predicate"):
            raise NotCoveredError("a join with a further predicate")
        kind = node["join_type"]
        if node["type"] == "LOGICAL_ANY_JOIN":
            conditions: tuple[JoinCondition, ...] = ()
            other: Expression | None = read_expression(node["condition"])
        else:
            conditions = tuple(
                JoinCondition(
                    read_expression(one["left"]), read_expression(one["right"]), COMPARISONS[one["comparison"]]
                )
                for one in node["conditions"]
            )
            other = None
        maps = node["left_projection_map"], node["right_projection_map"]
        if any(maps):
            raise NotCoveredError("a join that leaves out columns")
        if kind in _FLIPPED:
            if other is not None:
                width = len(left.types)
                total = len(right.types)
                other = other.over(lambda at: at + total if at < width else at - width)
            conditions = tuple(JoinCondition(one.right, one.left, MIRRORED[one.operator]) for one in conditions)
            left, right, kind = right, left, _FLIPPED[kind]
        if kind not in _JOINS:
            raise NotCoveredError(f"a join of the kind {kind.lower()}")
        if _JOINS[kind] in (JoinKind.MARK, JoinKind.SINGLE) and other is not None:
            raise NotCoveredError("a subquery with a condition that is no comparison")
        return Join(_JOINS[kind], left, right, conditions, other)

    def cross(self, node: Json) -> Relation:
        return Join(JoinKind.INNER, self.child(node), self.child(node, 1), ())

    def delim_join(self, node: Json) -> Relation:
        """Read a join whose inner side reads the distinct keys of the outer side, which is therefore shared."""
        flipped = node["delim_flipped"] or node["join_type"] in ("RIGHT_SEMI", "RIGHT_ANTI")
        number, self._next = self._next, self._next + 1
        outer = self.child(node, 1 if flipped else 0)
        self._types[number] = outer.types
        self._delimited.append((number, tuple(read_all(node["duplicate_eliminated_columns"]))))
        inner = self.child(node, 0 if flipped else 1)
        self._delimited.pop()
        reuse = Reuse(number, outer.types)
        body = self._join(node, *((inner, reuse) if flipped else (reuse, inner)))
        return direct(Shared(number, outer, body))

    def delim_get(self, node: Json) -> Relation:
        number, keys = self._delimited[-1]
        project = Project(Reuse(number, self._types[number]), keys)
        return Distinct(project, tuple(column(at, key.type) for at, key in enumerate(keys)))

    def set_operation(self, node: Json) -> Relation:
        kind = SetKind(node["type"].removeprefix("LOGICAL_"))
        found = self.child(node)
        for other in node["children"][1:]:
            found = SetOperation(kind, found, self.read(other), node["setop_all"])
        return found

    def cte(self, node: Json) -> Relation:
        number = node["table_index"]
        definition = self.child(node)
        self._types[number] = definition.types
        return Shared(number, definition, self.child(node, 1))

    def cte_ref(self, node: Json) -> Relation:
        types = tuple(type_text(one) for one in node["chunk_types"])
        if node["cte_index"] not in self._types:
            raise NotCoveredError("a recursive query")
        return Reuse(node["cte_index"], types)


_JOINS: Final = {kind.value: kind for kind in JoinKind} | {"OUTER": JoinKind.FULL}
_FLIPPED: Final = {"RIGHT_SEMI": "SEMI", "RIGHT_ANTI": "ANTI"}
_READERS: Final[Mapping[str, Callable[[_Reader, Json], Relation]]] = {
    "LOGICAL_GET": _Reader.scan,
    "LOGICAL_EXPRESSION_GET": _Reader.values,
    "LOGICAL_CHUNK_GET": _Reader.chunk,
    "LOGICAL_DUMMY_SCAN": _Reader.dummy,
    "LOGICAL_EMPTY_RESULT": _Reader.empty,
    "LOGICAL_FILTER": _Reader.filter,
    "LOGICAL_PROJECTION": _Reader.project,
    "LOGICAL_AGGREGATE_AND_GROUP_BY": _Reader.aggregate,
    "LOGICAL_ORDER_BY": _Reader.order,
    "LOGICAL_TOP_N": _Reader.top,
    "LOGICAL_LIMIT": _Reader.limit,
    "LOGICAL_DISTINCT": _Reader.distinct,
    "LOGICAL_WINDOW": _Reader.window,
    "LOGICAL_UNNEST": _Reader.unnest,
    "LOGICAL_COMPARISON_JOIN": _Reader.join,
    "LOGICAL_ANY_JOIN": _Reader.join,
    "LOGICAL_CROSS_PRODUCT": _Reader.cross,
    "LOGICAL_DELIM_JOIN": _Reader.delim_join,
    "LOGICAL_DELIM_GET": _Reader.delim_get,
    "LOGICAL_UNION": _Reader.set_operation,
    "LOGICAL_INTERSECT": _Reader.set_operation,
    "LOGICAL_EXCEPT": _Reader.set_operation,
    "LOGICAL_MATERIALIZED_CTE": _Reader.cte,
    "LOGICAL_CTE_REF": _Reader.cte_ref,
}


def _mapped(relation: Relation, positions: Sequence[int]) -> Relation:
    """Return the relation with the columns at `positions` only; all of them if there are none."""
    if not positions:
        return relation
    return Project(relation, tuple(column(at, relation.types[at]) for at in positions))


def _bound(value: Json) -> int | None:
    if value["type"] == "UNSET":
        return None
    if value["type"] != "CONSTANT_VALUE":
        raise NotCoveredError("a limit that is an expression or a percentage")
    return int(value["constant_integer"])


def _filter(node: Json, of: Expression) -> Expression | None:
    """Return the condition that the filter of a scan sets on one of its columns; None for a hint."""
    kind = node["filter_type"]
    if kind in ("OPTIONAL_FILTER", "DYNAMIC_FILTER", "BLOOM_FILTER"):
        return None
    if kind == "CONSTANT_COMPARISON":
        operator = COMPARISONS[node["comparison_type"]]
        return joined(f"({{}} {operator} {{}})", of, constant(node["constant"]), type=BOOLEAN)
    if kind in ("IS_NULL", "IS_NOT_NULL"):
        return joined(f"({{}} {kind.replace('_', ' ')})", of, type=BOOLEAN)
    if kind == "IN_FILTER":
        return joined("({} IN ({}))", of, listed([constant(value) for value in node["values"]]), type=BOOLEAN)
    if kind in ("CONJUNCTION_AND", "CONJUNCTION_OR"):
        inner = [_filter(one, of) for one in node["child_filters"]]
        known = [one for one in inner if one is not None]
        if not known or (len(known) < len(inner) and kind == "CONJUNCTION_OR"):
            return None
        return joined("({})", listed(known, f" {kind.removeprefix('CONJUNCTION_')} "), type=BOOLEAN)
    if kind == "STRUCT_EXTRACT":
        name = node["child_name"]
        return _filter(node["child_filter"], joined(f"struct_extract({{}}, {literal(name)})", of, type=""))
    if kind == "EXPRESSION_FILTER" and of.column is not None:
        position = of.column
        return read_expression(node["expr"]).over(lambda _: position)
    raise NotCoveredError(f"the filter {kind.lower().replace('_', ' ')}")


_FUNCTIONS: Final = {
    "WINDOW_ROW_NUMBER": "row_number",
    "WINDOW_RANK": "rank",
    "WINDOW_RANK_DENSE": "dense_rank",
    "WINDOW_PERCENT_RANK": "percent_rank",
    "WINDOW_CUME_DIST": "cume_dist",
    "WINDOW_NTILE": "ntile",
    "WINDOW_LEAD": "lead",
    "WINDOW_LAG": "lag",
    "WINDOW_FIRST_VALUE": "first_value",
    "WINDOW_LAST_VALUE": "last_value",
    "WINDOW_NTH_VALUE": "nth_value",
}
_BOUNDS: Final = {
    "UNBOUNDED_PRECEDING": ("", "UNBOUNDED PRECEDING"),
    "UNBOUNDED_FOLLOWING": ("", "UNBOUNDED FOLLOWING"),
    "CURRENT_ROW_RANGE": ("RANGE", "CURRENT ROW"),
    "CURRENT_ROW_ROWS": ("ROWS", "CURRENT ROW"),
    "CURRENT_ROW_GROUPS": ("GROUPS", "CURRENT ROW"),
} | {
    f"EXPR_{side}_{unit}": (unit, f"{{}} {side}")
    for side in ("PRECEDING", "FOLLOWING")
    for unit in ("ROWS", "RANGE", "GROUPS")
}
_EXCLUDED: Final = {
    "NO_OTHER": "",
    "CURRENT_ROW": " EXCLUDE CURRENT ROW",
    "GROUP": " EXCLUDE GROUP",
    "TIES": " EXCLUDE TIES",
}


def _window(node: Json) -> Expression:
    """Return a window function with its window."""
    of = type_text(node["return_type"])
    if node["type"] == "WINDOW_AGGREGATE":
        call = read_aggregate(
            {
                "name": node["name"],
                "children": node["children"],
                "return_type": node["return_type"],
                "aggregate_type": "DISTINCT" if node["distinct"] else "NON_DISTINCT",
                "filter": node.get("filters"),
                "order_bys": {"orders": node["arg_orders"]} if node.get("arg_orders") else None,
                "function_data": node.get("function_data"),
            }
        ).expression
    elif node["type"] in _FUNCTIONS and not node.get("arg_orders"):
        more = [node[name] for name in ("offset_expr", "default_expr") if node.get(name)]
        nulls = " IGNORE NULLS" if node["ignore_nulls"] else ""
        arguments = listed(read_all([*node["children"], *more]))
        call = joined(f"{_FUNCTIONS[node['type']]}({{}}{nulls})", arguments, type=of)
        if node.get("filters"):
            raise NotCoveredError("a window function with a filter")
    else:
        raise NotCoveredError(f"the window function {node['type'].removeprefix('WINDOW_').lower()}")
    template, inner = "", [call]
    if node["partitions"]:
        template += " PARTITION BY {}"
        inner.append(listed(read_all(node["partitions"])))
    orders = read_orders(node["orders"])
    if orders:
        template += " ORDER BY {}"
        inner.append(listed([order.expression for order in orders]))
    frame, bounds = _frame(node)
    return joined(f"{{}} OVER ({template.strip()}{frame})", *inner, *bounds, type=of)


def _frame(node: Json) -> tuple[str, list[Expression]]:
    (unit_of_start, start), (unit_of_end, end) = _BOUNDS[node["start"]], _BOUNDS[node["end"]]
    unit = unit_of_start or unit_of_end or "ROWS"
    bounds = [
        read_expression(_distance(node, name) if unit == "RANGE" else node[name])
        for name in ("start_expr", "end_expr")
        if node.get(name)
    ]
    return f" {unit} BETWEEN {start} AND {end}{_EXCLUDED[node['exclude_clause']]}", bounds


def _distance(node: Json, name: str) -> Json:
    """Return how far a bound of a range is from the current row: a plan has the row's value plus or minus that."""
    bound, key = _uncast(node[name]), _uncast(node["orders"][0]["expression"])
    if bound["type"] == "BOUND_FUNCTION" and bound["name"] in ("+", "-") and len(bound["children"]) == 2:
        value, distance = bound["children"]
        if read_expression(_uncast(value)) == read_expression(key):
            found: Json = distance
            return found
    raise NotCoveredError("a bound of a range of values")  # DuckDB leaves out a distance of zero, for example


def _uncast(node: Json) -> Json:
    while node["expression_class"] == "BOUND_CAST":
        node = node["child"]
    return node
