"""Moves a join to one side of a join below it.

`above` is the join that is moved, with its side `at_right` (or left) beside `below`. Its keys are columns of one side
of `below`, the right one if `to_right`.
"""

from __future__ import annotations

from dataclasses import replace

from weft.frontends.sql.expressions import Expression, column
from weft.frontends.sql.relations import Join, Project, Relation


def reads_right(above: Join, below: Join, *, at_right: bool) -> bool | None:
    """Return the side of `below` that has all keys of `above`: whether it is the right one; None if there is none."""
    keys = {(one.left if at_right else one.right).column for one in above.conditions}
    columns = range(len(below.left.types))
    if keys and keys.isdisjoint([None, *columns]):
        return True
    return False if keys and keys.issubset(columns) else None


def over_one_side(above: Join, below: Join, *, to_right: bool, at_right: bool) -> Join:
    """Return `above` over the one side of `below` that has its keys."""
    rows, first = (below.right, len(below.left.types)) if to_right else (below.left, 0)

    def moved(key: Expression) -> Expression:
        return key.over(lambda at: at - first)

    if at_right:
        by = tuple(replace(one, left=moved(one.left)) for one in above.conditions)
        return replace(above, left=rows, conditions=by)
    by = tuple(replace(one, right=moved(one.right)) for one in above.conditions)
    return replace(above, right=rows, conditions=by)


def joined_in_side(below: Join, inner: Relation, *, to_right: bool, at_right: bool) -> Project:
    """Return the rows of the upper join as those of `below` with `inner` as its side; the columns keep their order.

    `inner` has the columns of the side and those that the upper join adds, which come last if they are `at_right`.
    """
    width = len(below.left.types)
    own = len(below.right.types) if to_right else width
    more = len(inner.types) - own
    begin, added = (0, own) if at_right else (more, 0)
    if to_right:
        by = tuple(replace(one, right=one.right.over(lambda at: at + begin)) for one in below.conditions)
        made = replace(below, right=inner, conditions=by)
        places = [*range(width), *range(width + begin, width + begin + own)]
        added += width
    else:
        by = tuple(replace(one, left=one.left.over(lambda at: at + begin)) for one in below.conditions)
        made = replace(below, left=inner, conditions=by)
        places = [*range(begin, begin + own), *range(own + more, own + more + len(below.right.types))]
    if below.other is not None:
        made = replace(made, other=below.other.over(places.__getitem__))
    new = range(added, added + more)
    order = [*places, *new] if at_right else [*new, *places]
    return Project(made, tuple(column(at, made.types[at]) for at in order))
