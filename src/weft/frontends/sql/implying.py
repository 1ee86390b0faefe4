"""Conditions on one table that a condition on joined rows implies.

DuckDB hands down what all alternatives of an OR share. Of `(a.x = 1 AND b.y = 2) OR (a.x = 3 AND b.y = 4)` it leaves
out that `b.y` is 2 or 4, which leaves most rows of `b` out before they are joined.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from weft.frontends.sql.expressions import BOOLEAN, Expression, Json, joined, listed, read_expression
from weft.frontends.sql.relations import Filter, Join, JoinKind, Project, Relation, Scan


def with_implied(relation: Relation, condition: Json) -> Relation:
    """Return a relation whose joined tables have only rows that may meet a condition on its rows."""
    if condition["type"] != _OR:
        return relation
    return _narrowed(relation, condition, {at: at for at in range(len(relation.types))}, joins=False)


def _narrowed(relation: Relation, condition: Json, places: Mapping[int, int], *, joins: bool) -> Relation:
    """Return a relation below the condition: `places` has its columns that the condition has, with their places there.

    Without `joins` above it, the condition itself stands as near to the table.
    """
    match relation:
        case Join():
            width = len(relation.left.types)
            left, right = relation.left, relation.right
            if relation.kind not in (JoinKind.RIGHT, JoinKind.FULL):
                own = {at: place for at, place in places.items() if at < width}
                left = _narrowed(left, condition, own, joins=True)
            if relation.kind in (JoinKind.INNER, JoinKind.RIGHT):
                own = {at - width: place for at, place in places.items() if at >= width}
                right = _narrowed(right, condition, own, joins=True)
            return replace(relation, left=left, right=right)
        case Project():
            below = {
                one.column: places[at]
                for at, one in enumerate(relation.expressions)
                if one.column is not None and at in places
            }
            return replace(relation, input=_narrowed(relation.input, condition, below, joins=joins))
        case Filter() if not isinstance(relation.input, Scan):
            return replace(relation, input=_narrowed(relation.input, condition, places, joins=joins))
        case Filter(input=Scan() as scan) | (Scan() as scan) if joins:
            found = _implied(condition, {place: at for at, place in places.items()})
            known = relation.conditions if isinstance(relation, Filter) else ()
            if found is not None and _words(found) not in [*map(_words, known), *_filters(scan)]:
                return Filter(scan, (*known, found))
    return relation


def _implied(condition: Json, positions: Mapping[int, int]) -> Expression | None:
    """Return what an OR tells of the columns at `positions`, by their places in it; None if it tells nothing."""
    found = []
    for alternative in condition["children"]:
        told = [one for one in _conjuncts(alternative) if _compares(one, positions)]
        if not told:
            return None
        every = [read_expression(one).over(positions.__getitem__) for one in told]
        found.append(every[0] if len(every) == 1 else joined("({})", listed(every, " AND "), type=BOOLEAN))
    return joined("({})", listed(found, " OR "), type=BOOLEAN)


def _words(condition: Expression) -> list[str]:
    """Return the words of a condition in order: DuckDB hands some down itself, with alternatives in another order."""
    text = condition.text(lambda at: f" {at} ")
    return sorted(text.replace("(", " ").replace(")", " ").split())


def _filters(scan: Scan) -> Iterator[list[str]]:
    """Yield the words of the conditions of a scan over columns of its output."""
    positions = {column: at for at, column in enumerate(scan.output)}
    for one in scan.filters:
        if one.columns <= positions.keys():
            yield _words(one.over(positions.__getitem__))


def _conjuncts(condition: Json) -> Iterator[Json]:
    if condition["type"] != "CONJUNCTION_AND":
        yield condition
        return
    for one in condition["children"]:
        yield from _conjuncts(one)


def _compares(condition: Json, positions: Mapping[int, int]) -> bool:
    """Whether a condition compares columns at these positions with constants, which never fails."""
    leaves = list(_leaves(condition))
    columns = [one for one in leaves if one is not None and one["expression_class"] == "BOUND_REF"]
    return None not in leaves and bool(columns) and all(one["index"] in positions for one in columns)


def _leaves(node: Json) -> Iterator[Json | None]:
    """Yield the columns and constants of an expression, and None for what is not known to never fail."""
    match node["expression_class"]:
        case "BOUND_REF" | "BOUND_CONSTANT":
            yield node
            return
        case "BOUND_COMPARISON":
            inner = [node["left"], node["right"]]
        case "BOUND_BETWEEN":
            inner = [node["input"], node["lower"], node["upper"]]
        case "BOUND_CONJUNCTION":
            inner = node["children"]
        case "BOUND_OPERATOR" if node["type"] in _TESTS:
            inner = node["children"]
        case _:
            yield None
            return
    for one in inner:
        yield from _leaves(one)


_OR: Final = "CONJUNCTION_OR"
_TESTS: Final = frozenset({"OPERATOR_IS_NULL", "OPERATOR_IS_NOT_NULL", "OPERATOR_NOT", "COMPARE_IN", "COMPARE_NOT_IN"})
