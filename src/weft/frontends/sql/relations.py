"""The relational tree of a plan: records without behaviour, each with the types of its output columns.

Columns have positions, no names. Expressions of a relation read the output of its input; those of a join read the
output of both inputs, the left one first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from weft.frontends.sql.expressions import Aggregate, Expression, Order

Types: TypeAlias = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Scan:
    """Rows of a table: the columns that are read, conditions on them, and which of them are the output.

    Each task reads the rows of its split, or if `whole` all rows of the table.
    """

    table: str
    columns: tuple[tuple[str, str], ...]
    filters: tuple[Expression, ...]
    output: tuple[int, ...]
    whole: bool = False

    @property
    def types(self) -> Types:
        """The types of the output columns."""
        return tuple(self.columns[at][1] for at in self.output)


@dataclass(frozen=True, slots=True)
class Values:
    """Rows that stand in the plan; without a row the result is empty."""

    rows: tuple[tuple[Expression, ...], ...]
    types: Types


@dataclass(frozen=True, slots=True)
class Received:
    """The rows of an exchange: what earlier stages sent to this task.

    `sent` are the positions of the columns that were sent, in ascending order, None for all; nothing reads the others.
    `filtering`: conditions have left out rows, so that the keys of a join leave out rows of the scan that it joins.
    """

    exchange: int
    types: Types
    sent: tuple[int, ...] | None = None
    filtering: bool = False


@dataclass(frozen=True, slots=True)
class Filter:
    """The rows for which all conditions are true."""

    input: Relation
    conditions: tuple[Expression, ...]

    @property
    def types(self) -> Types:
        """The types of the output columns."""
        return self.input.types


@dataclass(frozen=True, slots=True)
class Project:
    """One output column for each expression."""

    input: Relation
    expressions: tuple[Expression, ...]

    @property
    def types(self) -> Types:
        """The types of the output columns."""
        return tuple(expression.type for expression in self.expressions)


@dataclass(frozen=True, slots=True)
class KeyFilter:
    """One row with a Bloom filter: the bits of the hashes of all keys."""

    input: Relation
    keys: tuple[Expression, ...]

    @property
    def types(self) -> Types:
        """The types of the output columns."""
        return ("BIT",)


@dataclass(frozen=True, slots=True)
class MayMatch:
    """The rows whose keys may be among those of a `KeyFilter`; all rows if `filter` has none."""

    input: Relation
    filter: Received
    keys: tuple[Expression, ...]

    @property
    def types(self) -> Types:
        """The types of the output columns."""
        return self.input.types


class JoinKind(StrEnum):
    """Kinds of joins. MARK adds a column that tells whether a row of the left has a match (three-valued for IN);
    SINGLE is a left join that allows one match.
    """

    INNER = "INNER"
    LEFT = "LEFT"
    RIGHT = "RIGHT"
    FULL = "FULL"
    SEMI = "SEMI"
    ANTI = "ANTI"
    MARK = "MARK"
    SINGLE = "SINGLE"


@dataclass(frozen=True, slots=True)
class JoinCondition:
    """A comparison of a join: `left` reads the left input, `right` the right one, each by its own positions."""

    left: Expression
    right: Expression
    operator: str


@dataclass(frozen=True, slots=True)
class Join:
    """Pairs of rows that meet all comparisons, and `other` (over the columns of both inputs)."""

    kind: JoinKind
    left: Relation
    right: Relation
    conditions: tuple[JoinCondition, ...]
    other: Expression | None = None

    @property
    def types(self) -> Types:
        """The types of the output columns."""
        if self.kind in (JoinKind.SEMI, JoinKind.ANTI):
            return self.left.types
        if self.kind is JoinKind.MARK:
            return (*self.left.types, "BOOLEAN")
        return (*self.left.types, *self.right.types)


@dataclass(frozen=True, slots=True)
class Grouping:
    """Groups and aggregates of each group: the groups, the aggregates and `GROUPING` of the columns in `functions`.

    `sets` are positions in `groups`; without groups there is one row.
    """

    input: Relation
    groups: tuple[Expression, ...]
    aggregates: tuple[Aggregate, ...]
    sets: tuple[tuple[int, ...], ...] = ()
    functions: tuple[tuple[int, ...], ...] = ()

    @property
    def types(self) -> Types:
        """The types of the output columns."""
        groups = (group.type for group in self.groups)
        return (*groups, *(one.type for one in self.aggregates), *("BIGINT" for _ in self.functions))


@dataclass(frozen=True, slots=True)
class Sort:
    """All rows in order; with `limit`, at most so many after the first `offset`."""

    input: Relation
    orders: tuple[Order, ...]
    limit: int | None = None
    offset: int = 0

    @property
    def types(self) -> Types:
        """The types of the output columns."""
        return self.input.types


@dataclass(frozen=True, slots=True)
class SortSample:
    """Keys of some of the rows of a task, which compare as rows do by `orders`, and beside each the number of all."""

    input: Relation
    orders: tuple[Order, ...]

    @property
    def types(self) -> Types:
        """The types of the output columns."""
        return ("BLOB", "BIGINT")


@dataclass(frozen=True, slots=True)
class Limit:
    """At most `limit` rows (None: all) after the first `offset`."""

    input: Relation
    limit: int | None
    offset: int = 0

    @property
    def types(self) -> Types:
        """The types of the output columns."""
        return self.input.types


@dataclass(frozen=True, slots=True)
class Distinct:
    """One row for each value of the targets: the first by `orders`."""

    input: Relation
    targets: tuple[Expression, ...]
    on: bool = False
    orders: tuple[Order, ...] = ()

    @property
    def types(self) -> Types:
        """The types of the output columns."""
        return self.input.types


class SetKind(StrEnum):
    """Kinds of set operations."""

    UNION = "UNION"
    INTERSECT = "INTERSECT"
    EXCEPT = "EXCEPT"


@dataclass(frozen=True, slots=True)
class SetOperation:
    """Rows of two inputs together; with `all`, each as often as the rule says."""

    kind: SetKind
    left: Relation
    right: Relation
    all: bool

    @property
    def types(self) -> Types:
        """The types of the output columns."""
        return self.left.types


@dataclass(frozen=True, slots=True)
class Window:
    """The input with one column more for each window function; `partitions` are the keys that all of them share."""

    input: Relation
    functions: tuple[Expression, ...]
    partitions: tuple[Expression, ...]

    @property
    def types(self) -> Types:
        """The types of the output columns."""
        return (*self.input.types, *(function.type for function in self.functions))


@dataclass(frozen=True, slots=True)
class Unnest:
    """Each row once for each element of its lists, with one column more for each list."""

    input: Relation
    lists: tuple[Expression, ...]

    @property
    def types(self) -> Types:
        """The types of the output columns."""
        return (*self.input.types, *(one.type for one in self.lists))


@dataclass(frozen=True, slots=True)
class Shared:
    """A relation that is computed once, and the relation that reads it by `Reuse`."""

    number: int
    definition: Relation
    body: Relation

    @property
    def types(self) -> Types:
        """The types of the output columns."""
        return self.body.types


@dataclass(frozen=True, slots=True)
class Reuse:
    """The rows of the shared relation with this number."""

    number: int
    types: Types


Relation: TypeAlias = (
    Scan
    | Values
    | Received
    | Filter
    | Project
    | KeyFilter
    | MayMatch
    | Join
    | Grouping
    | Sort
    | SortSample
    | Limit
    | Distinct
    | SetOperation
    | Window
    | Unnest
    | Shared
    | Reuse
)

RowsOf: TypeAlias = Callable[[Scan], str]
"""Returns the SQL of the rows that a scan reads, as it stands behind FROM."""


def children(relation: Relation) -> tuple[Relation, ...]:
    """Return the inputs of a relation."""
    match relation:
        case Scan() | Values() | Received() | Reuse():
            return ()
        case Join() | SetOperation():
            return relation.left, relation.right
        case Shared():
            return relation.definition, relation.body
        case MayMatch():
            return relation.input, relation.filter
        case _:
            return (relation.input,)


def over_children(relation: Relation, change: Callable[[Relation], Relation]) -> Relation:
    """Return a relation over what `change` makes of its inputs."""
    match relation:
        case Scan() | Values() | Received() | Reuse():
            return relation
        case Join() | SetOperation():
            return replace(relation, left=change(relation.left), right=change(relation.right))
        case Shared():
            return replace(relation, definition=change(relation.definition), body=change(relation.body))
        case MayMatch():
            told = change(relation.filter)
            assert isinstance(told, Received)
            return replace(relation, input=change(relation.input), filter=told)
        case _:
            return replace(relation, input=change(relation.input))


def scans(relation: Relation) -> Iterator[Scan]:
    """Yield the scans in a relation."""
    if isinstance(relation, Scan):
        yield relation
    for child in children(relation):
        yield from scans(child)


def reused(relation: Relation) -> set[int]:
    """Return the numbers of the shared relations that a relation reads."""
    own = {relation.number} if isinstance(relation, Reuse) else set()
    return own.union(*map(reused, children(relation)))
