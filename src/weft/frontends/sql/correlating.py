"""Joins with correlated subqueries without the keys that DuckDB computes them for.

DuckDB joins the rows of a subquery with the distinct keys of the outer rows, and then the outer rows with what it has.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from weft.frontends.sql.relations import (
    Distinct,
    Join,
    JoinCondition,
    JoinKind,
    Project,
    Relation,
    Reuse,
    Shared,
    reused,
)

if TYPE_CHECKING:
    from weft.frontends.sql.expressions import Expression

MIRRORED: Final = {"<": ">", ">": "<", "<=": ">=", ">=": "<="} | {
    same: same for same in ("=", "<>", "IS DISTINCT FROM", "IS NOT DISTINCT FROM")
}
"""The comparisons with their sides exchanged."""


def direct(shared: Shared) -> Relation:
    """Return a semi or anti join of the outer rows with those of the subquery itself, where its keys are only compared.

    `shared` are the outer rows and their join with the subquery. Each outer row has its own keys among the distinct
    ones: it has a match there if it has one among the rows of the subquery. Else `shared` is returned.
    """
    join = shared.body
    if not isinstance(join, Join) or join.kind not in (JoinKind.SEMI, JoinKind.ANTI) or join.other is not None:
        return shared
    inner, places = _below_projections(join.right)
    if join.left != Reuse(shared.number, shared.definition.types) or not isinstance(inner, Join):
        return shared
    by = _keys(inner.left, shared.number), _keys(inner.right, shared.number)
    if inner.kind is not JoinKind.INNER or inner.other is not None or (by[0] is None) == (by[1] is None):
        return shared
    at_right = by[0] is None
    keys = by[at_right] or ()
    rows = inner.left if at_right else inner.right
    width = len(inner.left.types)
    if shared.number in reused(rows):
        return shared
    compared = [(one.right, one.left) if at_right else (one.left, one.right) for one in inner.conditions]
    operators = [MIRRORED[one.operator] if at_right else one.operator for one in inner.conditions]
    first, begin = (width, 0) if at_right else (0, width)  # of the keys, and of the rows of the subquery
    equal = {
        own.column + begin: key.column + first
        for (key, own), operator in zip(compared, operators, strict=True)
        if operator == "=" and own.column is not None and key.column is not None
    }
    known: set[int] = set()
    for one in join.conditions:
        at = None if one.right.column is None else places[one.right.column]
        at = at if at is None else equal.get(at, at) - first
        if at is None or at not in range(len(keys)) or one.left != keys[at] or one.operator != "IS NOT DISTINCT FROM":
            return shared
        known.add(at)
    if not compared or any(key.column not in known for key, _ in compared):
        return shared
    conditions = tuple(
        JoinCondition(keys[key.column], own, operator)
        for (key, own), operator in zip(compared, operators, strict=True)
        if key.column is not None
    )
    return replace(join, left=shared.definition, right=rows, conditions=conditions)


def _below_projections(relation: Relation) -> tuple[Relation, list[int | None]]:
    """Return what projections read, and for each column of theirs the one there that it is, None if it is computed."""
    places: list[int | None] = list(range(len(relation.types)))
    while isinstance(relation, Project):
        places = [None if at is None else relation.expressions[at].column for at in places]
        relation = relation.input
    return relation, places


def _keys(relation: Relation, number: int) -> tuple[Expression, ...] | None:
    """Return the keys of a shared relation of which a relation has the distinct ones; None if it has other rows."""
    match relation:
        case Distinct(input=Project(input=Reuse(number=found), expressions=keys), on=False) if found == number:
            return keys
    return None
