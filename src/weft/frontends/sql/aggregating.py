"""Groupings in two steps: what each task makes of its own rows, and what is made of that."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from weft.frontends.sql.expressions import Aggregate, Expression, column, joined
from weft.frontends.sql.relations import Grouping, Project, Relation


def distinct_first(relation: Grouping) -> Relation | None:
    """Return groups over those of the distinct values of an argument; None if aggregates have distinct values of
    several arguments or none, or are not put together from parts.

    The rows of one group with other values of the argument lie in several tasks then.
    """
    distinct = [one for one in relation.aggregates if one.distinct]
    steps = [None if one.distinct else _steps(one) for one in relation.aggregates]
    if relation.sets or not distinct:
        return None
    for one, step in zip(relation.aggregates, steps, strict=True):
        if one.distinct:
            plain = one.filter is None and not one.orders and all(argument.columns for argument in one.arguments)
            if one.arguments != distinct[0].arguments or not plain:  # a constant stays one
                return None
        elif step is None:
            return None
    keys = (*relation.groups, *distinct[0].arguments)
    parts = tuple(part for step in steps if step is not None for part in step[0])
    rows = Grouping(relation.input, keys, parts)
    columns = [column(at, of) for at, of in enumerate(rows.types)]
    width = len(relation.groups)
    merged: list[Aggregate] = []
    output = list(columns[:width])
    at = len(keys)
    for one, step in zip(relation.aggregates, steps, strict=True):
        if step is None:
            made = [one._replace(distinct=False, arguments=tuple(columns[width : len(keys)]))]
        else:
            made = [_merging(part, columns[at + n]) for n, part in enumerate(step[0])]
            at += len(made)
        values = [column(width + len(merged) + n, each.type) for n, each in enumerate(made)]
        merged += made
        output.append(values[0] if step is None else step[1](values))
    return Project(Grouping(rows, tuple(columns[:width]), tuple(merged)), tuple(output))


def _merging(part: Aggregate, merged: Expression) -> Aggregate:
    """Return the aggregate that puts a partial aggregate together from its values."""
    if part.name in ("count", "count_star"):
        return Aggregate("sum", (merged,), "HUGEINT")
    return Aggregate("any_value" if part.name == "first" else part.name, (merged,), part.type)


class Divided(NamedTuple):
    """A grouping in two steps: `partial` in each task for its own rows, `final` for what they have made.

    The first `keys` columns of the partial rows are the keys of the final step.
    """

    partial: Callable[[Relation], Relation]
    final: Callable[[Relation], Relation]
    keys: int


def divide(relation: Grouping) -> Divided | None:
    """Return the two steps of a grouping; None if an aggregate cannot be put together from parts.

    With sets of groups, the number of the set and the values of `GROUPING` are keys too.
    """
    steps = [_steps(one) for one in relation.aggregates]
    if any(one is None for one in steps) or len(set(map(frozenset, relation.sets))) < len(relation.sets):
        return None  # nothing tells equal sets apart after the first step
    known = [one for one in steps if one is not None]
    every = tuple(range(len(relation.groups)))
    functions = (every, *relation.functions) if relation.sets else ()
    aggregates = tuple(one for parts, _ in known for one in parts)
    width, keys = len(relation.groups), len(relation.groups) + len(functions)
    made = Grouping(relation.input, relation.groups, aggregates, relation.sets, functions)
    types = made.types
    order = [*range(width), *range(width + len(aggregates), len(types)), *range(width, width + len(aggregates))]

    def partial(rows: Relation) -> Relation:
        grouping = replace(made, input=rows)
        return grouping if not functions else Project(grouping, tuple(column(at, types[at]) for at in order))

    def final(rows: Relation) -> Relation:
        merged = tuple(_merging(one, column(keys + at, one.type)) for at, one in enumerate(aggregates))
        grouping = Grouping(rows, tuple(column(at, rows.types[at]) for at in range(keys)), merged)
        output = [column(at, types[at]) for at in range(width)]
        at = keys
        for parts, finish in known:
            output.append(finish([column(at + n, one.type) for n, one in enumerate(parts)]))
            at += len(parts)
        output += [column(width + 1 + at, "BIGINT") for at in range(len(relation.functions))]
        return Project(grouping, tuple(output))

    return Divided(partial, final, keys)


Finish = Callable[[list[Expression]], Expression]


def _steps(one: Aggregate) -> tuple[list[Aggregate], Finish] | None:
    """Return the partial aggregates of an aggregate, and what makes its value of the merged ones."""
    if one.distinct or one.orders:
        return None
    if one.name in ("count", "count_star"):
        return [one], lambda merged: joined("COALESCE(CAST({} AS BIGINT), 0)", merged[0], type="BIGINT")
    if one.name == "avg":
        summed = _summed(one.arguments[0].type)
        if not summed:
            return None
        parts = [one._replace(name="sum", type=summed), one._replace(name="count", type="BIGINT")]
        # As DuckDB does, decimals are divided as whole numbers: 7.05 / 3 is not 705 / 300.
        scale = f" * 1e{_scale(summed)}" if _scale(summed) else ""
        whole = f"round(CAST({{}} AS DOUBLE){scale})" if scale else "CAST({} AS DOUBLE)"
        return parts, lambda merged: joined(f"({whole} / (NULLIF({{}}, 0){scale}))", *merged, type=one.type)
    if one.name == "first":  # the first value may be NULL, but not that of a task without rows
        boxed = f"STRUCT(v {one.type})"
        box = joined("struct_pack(v := {})", *one.arguments, type=boxed)
        part = one._replace(arguments=(box,), type=boxed)
        return [part], lambda merged: joined("struct_extract({}, 'v')", merged[0], type=one.type)
    if one.name in _SAME and len(one.arguments) == 1:  # the two or three greatest values are a list
        return [one], lambda merged: joined(f"CAST({{}} AS {one.type})", merged[0], type=one.type)
    return None


def _summed(of: str) -> str:
    """Return the type of the sum of numbers of a type; "" if they have no average in parts."""
    if of.startswith("DECIMAL("):
        return f"DECIMAL(38,{of.removesuffix(')').partition(',')[2]})"
    if of in ("FLOAT", "DOUBLE"):
        return "DOUBLE"
    return "HUGEINT" if of in _INTEGERS else ""


def _scale(of: str) -> int:
    """Return the digits behind the point of a decimal type, 0 for others."""
    return int(of.removesuffix(")").partition(",")[2] or 0)


_INTEGERS = frozenset(["TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER"])
_SAME = frozenset({
    "sum", "min", "max", "any_value", "bool_and", "bool_or", "bit_and", "bit_or", "bit_xor", "product",
})  # fmt: skip
