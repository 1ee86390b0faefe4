"""Cuts a relation into stages: parts that each run in many tasks, with exchanges of rows between them.

A *part* is a relation under construction whose rows lie in tasks in some way. Operators are added to it as long as each
task can answer for its own rows; otherwise the part becomes a stage, and an exchange sends its rows to the tasks of the
next part. A union is several parts side by side.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import singledispatchmethod
from itertools import combinations, pairwise
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from weft.frontends.sql.aggregating import Divided, distinct_first, divide
from weft.frontends.sql.expressions import Aggregate, Expression, column, joined
from weft.frontends.sql.join_order import joined_in_side, over_one_side, reads_right
from weft.frontends.sql.relations import (
    Distinct,
    Filter,
    Grouping,
    Join,
    JoinCondition,
    JoinKind,
    KeyFilter,
    Limit,
    MayMatch,
    Project,
    Received,
    Relation,
    Reuse,
    Scan,
    SetKind,
    SetOperation,
    Shared,
    Sort,
    SortSample,
    Types,
    Unnest,
    Values,
    Window,
    children,
    over_children,
    reused,
    scans,
)
from weft.frontends.sql.text import FILTER_BITS

if TYPE_CHECKING:
    from weft.frontends.sql.expressions import Order


class ExchangeKind(StrEnum):
    """How the rows of an exchange reach tasks: by the hash of keys, by ranges of keys in an order, all to one, all to
    each, or as they lie.
    """

    HASH = "hash"
    RANGE = "range"
    GATHER = "gather"
    BROADCAST = "broadcast"
    SAME = "same"


@dataclass(frozen=True, slots=True)
class Exchange:
    """Rows on their way from stages to the tasks of another stage; `keys` are over the columns of the rows.

    Ranges are those of `orders`; the sources receive the sampled keys that bound them by the exchange `samples`.
    """

    number: int
    kind: ExchangeKind
    sources: tuple[int, ...]
    keys: tuple[Expression, ...] = ()
    types: Types = ()
    orders: tuple[Order, ...] = ()
    samples: int = -1


class Branch(NamedTuple):
    """A plan that runs if it is taken, by its name: `choice` are the stages whose measured bytes decide together, and
    `small` is the plan for at most `under` of them.
    """

    choice: tuple[int, ...]
    name: str
    small: bool
    under: float


class Pruning(NamedTuple):
    """The column of a scan whose values match the keys that the stage `small` emits; other splits are not read."""

    small: int
    column: str
    type: str


class Ranged(NamedTuple):
    """The column of a scan by whose values its rows are divided: each task has all rows with the values of a range."""

    column: str
    type: str


@dataclass(frozen=True, slots=True)
class QueryStage:
    """One vertex: what its tasks compute from the splits of `table` and the rows of exchanges.

    `enough` is the number of rows that all tasks together have to deliver, None for all. `join` is the kind of a join
    whose two sides are the first two exchanges by hash. `keys` is the column whose values prune the scans of others.
    `ranged` has the tasks scan ranges of values in place of ranges of rows.
    """

    number: int
    relation: Relation
    exchanges: tuple[Exchange, ...]
    table: str = ""
    enough: int | None = None
    join: JoinKind | None = None
    branches: tuple[Branch, ...] = ()
    pruning: Pruning | None = None
    keys: int | None = None
    ranged: Ranged | None = None


Hashed: TypeAlias = tuple[frozenset[int], ...]
"""Columns: each by its position, and the positions of the columns that have the same values."""


class _Among(NamedTuple):
    """Columns whose values are all among the keys of a measured side of a join.

    The plan `small` has `copies` of that side, whose `key` is the position of these keys; `large` is the other plan.
    """

    columns: frozenset[int]
    copies: Exchange
    key: int
    small: Branch
    large: Branch


@dataclass(frozen=True, slots=True)
class _Part:
    relation: Relation
    exchanges: tuple[Exchange, ...] = ()
    table: str = ""
    single: bool = False
    hashed: Hashed | None = None  # the rows lie by the hash of these columns
    enough: int | None = None
    join: JoinKind | None = None
    branches: tuple[Branch, ...] = ()
    pruning: Pruning | None = None
    keys: int | None = None
    among: tuple[_Among, ...] = ()
    ranged: Ranged | None = None


@dataclass(frozen=True, slots=True)
class QueryPlan:
    """The stages of a query in an order in which each follows its sources.

    The rows of the stages `results`, one after the other, are the result.
    """

    stages: tuple[QueryStage, ...]
    results: tuple[int, ...]


TOP_ROWS: Final = 10_000
"""The rows of a limit, at most, for which each task sorts its own rows first, and then one task those of all."""
SORTED: Final = 8
"""One task sorts rows of at most this many times the bytes that are copied to all tasks of a join."""
MEASURED: Final = 4
"""A measured side of a join is copied with at most this many times the bytes: its rows are not compressed."""
NESTED: Final = 4
"""The plans of one side of a join, at most, for which there are two plans each."""
LEFT_BY_FILTER: Final = 0.2
"""The share of rows that the conditions of a filter are expected to leave."""
Weigh = Callable[[Relation], float]
"""Estimates the bytes of a relation from above."""
Rangeable = Callable[[str, Ranged], bool]
"""Whether a table lies sorted by a column, so that tasks scan ranges of its values at no more cost than others."""


def _never(_table: str, _by: Ranged) -> bool:
    return False


def cut(relation: Relation, weigh: Weigh, *, small: float, tiny: float = 0, rangeable: Rangeable = _never) -> QueryPlan:
    """Return the stages of a relation.

    A side of a join of at most `small` bytes is sent to all tasks of the other. They read the tables of one of at most
    `tiny` bytes themselves. Rows with equal keys need no exchange where a table is `rangeable` by one of them.
    """
    cutter = _Cutter(weigh, small, tiny, rangeable)
    results = tuple(cutter.stage(part) for part in cutter.parts(relation))
    return QueryPlan(tuple(cutter.stages), results)


def _applied(relation: Filter | Unnest | Grouping | Distinct | Window, part: _Part) -> _Part:
    """Return the part whose tasks apply an operator to their own rows, which may be fewer or more then."""
    return replace(part, relation=replace(relation, input=part.relation), enough=None)


def _moved(part: _Part, output: Sequence[Expression]) -> Hashed | None:
    """Return the positions in `output` of the columns that the rows of a part lie by; None if one is not there."""
    if part.hashed is None:
        return None
    moved = tuple(frozenset(at for at, one in enumerate(output) if one.column in columns) for columns in part.hashed)
    return moved if all(moved) else None


def _alternatives(parts: Sequence[_Part]) -> bool:
    """Whether the rows of at most one of these parts are there: a choice between plans leaves out the others."""
    choices = [{branch.choice: branch.small for branch in part.branches} for part in parts]
    return all(
        any(other.get(choice, small) != small for choice, small in one.items())
        for one, other in combinations(choices, 2)
    )


class _Expected(NamedTuple):
    """The bytes of files that a relation has rows of, and the share of them that is expected to be left."""

    files: float
    share: float

    @property
    def bytes(self) -> float:
        """The bytes of files whose rows are expected to be left."""
        return self.files * self.share


class _Cutter:
    def __init__(self, weigh: Weigh, small: float, tiny: float, rangeable: Rangeable) -> None:
        self.stages: list[QueryStage] = []
        self._exchanges = 0
        self._weigh, self._small, self._tiny, self._rangeable = weigh, small, tiny, rangeable
        self._sorted_by_one, self._copied_bytes = small * SORTED, small * MEASURED
        self._shared: dict[int, list[int]] = {}
        self._weights: dict[int, float] = {}
        self._expectations: dict[int, _Expected] = {}

    # -------------------------------------------------------------------------------------------------------- exchanges

    def stage(self, part: _Part) -> int:
        """End a part as a stage; return its number."""
        number = len(self.stages)
        made = QueryStage(
            number,
            part.relation,
            part.exchanges,
            part.table,
            part.enough,
            part.join,
            part.branches,
            part.pruning,
            part.keys,
            part.ranged,
        )
        self.stages.append(made)
        return number

    def exchange(self, parts: Sequence[_Part], kind: ExchangeKind, keys: Sequence[Expression] = ()) -> Exchange:
        """End parts as stages that send their rows by `kind`."""
        sources = tuple(self.stage(part) for part in parts)
        self._exchanges += 1
        return Exchange(self._exchanges - 1, kind, sources, tuple(keys), parts[0].relation.types)

    def received(self, parts: Sequence[_Part], kind: ExchangeKind, keys: Sequence[Expression] = ()) -> _Part:
        """Return the part whose tasks receive the rows of others."""
        return replace(_reading(self.exchange(parts, kind, keys)), among=_common(parts))

    def together(self, parts: Sequence[_Part], keys: Sequence[Expression]) -> list[_Part]:
        """Return parts in which rows with equal keys lie in one task; without keys, in which one task has all."""
        kind = ExchangeKind.HASH if keys else ExchangeKind.GATHER
        parts = self._in_key_ranges(parts, keys)
        complete = self._complete(parts, keys)
        if not any(complete):
            return [self.received(parts, kind, keys)]
        return [
            replace(part, join=None) if done else replace(self.received([part], kind, keys), branches=part.branches)
            for part, done in zip(parts, complete, strict=True)
        ]

    @staticmethod
    def _complete(parts: Sequence[_Part], keys: Sequence[Expression]) -> list[bool]:
        """Return for each part whether one of its tasks has all rows with equal keys: they lie by some of the keys, or
        the tasks scan ranges of one.

        Several parts that have rows at the same time have equal keys too.
        """
        columns = {key.column for key in keys}
        alone = _alternatives(parts)
        return [
            alone
            and (
                part.single
                or (bool(part.hashed) and all(one & columns for one in part.hashed or ()))
                or (part.ranged is not None and part.ranged in _ranges_of(part, keys))
            )
            for part in parts
        ]

    def _in_key_ranges(self, parts: Sequence[_Part], keys: Sequence[Expression]) -> list[_Part]:
        """Return parts whose tasks scan ranges of a key where their tables lie sorted by it.

        Splits that the keys of another stage prune stay as they are: to read fewer of them saves more.
        """
        if not _alternatives(parts):
            return list(parts)
        found = []
        for part in parts:
            free = bool(part.table) and part.ranged is None and part.pruning is None
            able = (by for by in _ranges_of(part, keys) if self._rangeable(part.table, by)) if free else ()
            by = next(iter(able), None)
            found.append(part if by is None else replace(part, ranged=by))
        return found

    # -------------------------------------------------------------------------------------------------------- operators

    def parts(self, relation: Relation) -> list[_Part]:
        """Return the parts that together have the rows of a relation."""
        return self._cutter_of(type(relation))(self, relation)

    @singledispatchmethod
    def _parts(self, relation: Relation) -> list[_Part]:
        raise AssertionError(f"{type(relation).__name__} is not cut")

    @_parts.register
    def _(self, relation: Scan) -> list[_Part]:
        return [_Part(relation, table=relation.table)]

    @_parts.register
    def _(self, relation: Values) -> list[_Part]:
        return [_Part(relation, single=True)]

    @_parts.register
    def _(self, relation: Filter | Unnest) -> list[_Part]:
        return [_applied(relation, part) for part in self.parts(relation.input)]

    @_parts.register
    def _(self, relation: Project) -> list[_Part]:
        return [
            replace(
                part,
                relation=replace(relation, input=part.relation),
                hashed=_moved(part, relation.expressions),
                among=_among_in(part.among, [one.column for one in relation.expressions]),
            )
            for part in self.parts(relation.input)
        ]

    @_parts.register
    def _(self, relation: Grouping) -> list[_Part]:
        counted = distinct_first(relation)
        if counted is not None:
            return self.parts(counted)
        parts = self.parts(relation.input)
        keys = () if relation.sets else relation.groups
        divided = divide(relation)
        if divided is None:
            return [self._grouped(part, relation) for part in self.together(parts, keys)]
        parts = self._in_key_ranges(parts, keys)
        complete = self._complete(parts, keys)
        if not any(complete):
            return [self._divided(relation, divided, parts)]
        return [
            self._grouped(replace(part, join=None), relation)
            if done
            else replace(self._divided(relation, divided, [part]), branches=part.branches)
            for part, done in zip(parts, complete, strict=True)
        ]

    def _divided(self, relation: Grouping, divided: Divided, rows: Sequence[_Part]) -> _Part:
        """Return the part that makes groups of those that the tasks of other parts have made of their own rows."""
        parts = [
            replace(part, relation=divided.partial(part.relation), hashed=None, enough=None, among=()) for part in rows
        ]
        types = parts[0].relation.types
        if () in relation.sets:  # its one row is there without any rows, also where no task reads a table
            none = divided.partial(Values((), relation.input.types))
            parts.append(_Part(none, single=True, branches=rows[0].branches if len(rows) == 1 else ()))
        by = [column(at, types[at]) for at in range(divided.keys)]
        received = self.received(parts, ExchangeKind.HASH if by else ExchangeKind.GATHER, by)
        hashed = received.hashed if by and not relation.sets else None
        return replace(received, relation=divided.final(received.relation), hashed=hashed)

    @staticmethod
    def _grouped(part: _Part, relation: Grouping) -> _Part:
        hashed = None if relation.sets else _moved(part, relation.groups)
        return replace(_applied(relation, part), hashed=hashed, among=())

    @_parts.register
    def _(self, relation: Sort) -> list[_Part]:
        parts = self.parts(relation.input)
        if len(parts) == 1 and parts[0].single:
            return [replace(parts[0], relation=replace(relation, input=parts[0].relation))]
        rows = None if relation.limit is None else relation.limit + relation.offset
        local = replace(relation, limit=rows, offset=0)
        parts = [replace(part, relation=replace(local, input=part.relation), enough=None) for part in parts]
        few = rows is not None and rows <= TOP_ROWS
        if relation.orders and not few and self.weight(relation.input) > self._sorted_by_one:
            return self._in_order(relation, parts)
        received = self.received(parts, ExchangeKind.GATHER)
        return [replace(received, relation=replace(relation, input=received.relation))]

    def _in_order(self, relation: Sort, parts: list[_Part]) -> list[_Part]:
        """Return the parts of all rows in order, each task a range of them; rows that may be few are measured first.

        Each task has sorted its own rows: so they are cut into ranges at few places, and sorted again at little cost.
        """
        measured = self._may_measure(parts) and _may_shrink(relation.input)
        sources = tuple(self.stage(part) for part in parts)
        apart = [self._lying(source, relation.types) for source in sources]
        plain = replace(relation, limit=None, offset=0)
        if not measured:
            return self._cut_off(relation, [self._in_ranges(plain, apart)])
        self._exchanges += 1
        gathered = _reading(Exchange(self._exchanges - 1, ExchangeKind.GATHER, sources, types=relation.types))
        under = self._sorted_by_one
        divided = Branch(sources, "ranges", small=False, under=under)
        together = replace(gathered, relation=replace(plain, input=gathered.relation))
        ranges = self._in_ranges(plain, [_within(part, divided) for part in apart])
        one_task = Branch(sources, "one_task", small=True, under=under)
        return self._cut_off(relation, [_within(together, one_task), _within(ranges, divided)])

    def _in_ranges(self, relation: Sort, parts: list[_Part]) -> _Part:
        """Return the part whose tasks each sort the rows of a range of keys; a sample of the keys bounds the ranges."""
        samples = [replace(part, relation=SortSample(part.relation, relation.orders)) for part in parts]
        told = self.exchange(samples, ExchangeKind.BROADCAST)
        rows = [replace(part, exchanges=(*part.exchanges, told)) for part in parts]
        exchange = self.exchange(rows, ExchangeKind.RANGE, [one.by for one in relation.orders])
        received = _reading(replace(exchange, orders=relation.orders, samples=told.number))
        return replace(received, relation=replace(relation, input=received.relation), hashed=None)

    def _cut_off(self, relation: Sort, parts: list[_Part]) -> list[_Part]:
        """Return the parts of sorted rows without those outside of the limit and the offset."""
        if relation.limit is None and not relation.offset:
            return parts
        received = self.received(parts, ExchangeKind.GATHER)
        return [replace(received, relation=Limit(received.relation, relation.limit, relation.offset))]

    @_parts.register
    def _(self, relation: Limit) -> list[_Part]:
        parts = self.parts(relation.input)
        if len(parts) == 1 and parts[0].single:
            return [replace(parts[0], relation=replace(relation, input=parts[0].relation))]
        if relation.limit is not None:
            rows = relation.limit + relation.offset
            parts = [replace(part, relation=Limit(part.relation, rows), enough=rows) for part in parts]
        received = self.received(parts, ExchangeKind.GATHER)
        return [replace(received, relation=replace(relation, input=received.relation))]

    @_parts.register
    def _(self, relation: Distinct) -> list[_Part]:
        parts = self._in_key_ranges(self.parts(relation.input), relation.targets)
        complete = self._complete(parts, relation.targets)
        parts = [part if done else _applied(relation, part) for part, done in zip(parts, complete, strict=True)]
        return [_applied(relation, part) for part in self.together(parts, relation.targets)]

    @_parts.register
    def _(self, relation: SetOperation) -> list[_Part]:
        left, right = self.parts(relation.left), self.parts(relation.right)
        columns = tuple(column(at, of) for at, of in enumerate(relation.types))
        if relation.kind is SetKind.UNION:
            if relation.all:
                return [*left, *right]
            both = [replace(part, relation=Distinct(part.relation, columns), enough=None) for part in (*left, *right)]
            part = self.received(both, ExchangeKind.HASH, columns)
            return [replace(part, relation=Distinct(part.relation, columns))]
        sides = [self.received(side, ExchangeKind.HASH, columns) for side in (left, right)]
        made = replace(relation, left=sides[0].relation, right=sides[1].relation)
        return [_Part(made, (*sides[0].exchanges, *sides[1].exchanges), hashed=sides[0].hashed)]

    @_parts.register
    def _(self, relation: Window) -> list[_Part]:
        parts = self.together(self.parts(relation.input), relation.partitions)
        return [_applied(relation, part) for part in parts]

    @_parts.register
    def _(self, relation: Shared) -> list[_Part]:
        self._weights[relation.number] = self.weight(relation.definition)
        self._shared[relation.number] = [self.stage(part) for part in self.parts(relation.definition)]
        self._expectations[relation.number] = self._expected(relation.definition)
        return self.parts(relation.body)

    @_parts.register
    def _(self, relation: Reuse) -> list[_Part]:
        return [self._lying(source, relation.types) for source in self._shared[relation.number]]

    def _lying(self, source: int, types: Types) -> _Part:
        """Return the part whose tasks each have the rows of one task of a stage, and run if that runs."""
        self._exchanges += 1
        exchange = Exchange(self._exchanges - 1, ExchangeKind.SAME, (source,), types=types)
        stage = self.stages[source]
        single = not stage.table and all(one.kind is ExchangeKind.GATHER for one in stage.exchanges)
        return _Part(Received(exchange.number, types), (exchange,), single=single, branches=stage.branches)

    # ------------------------------------------------------------------------------------------------------------ joins

    @_parts.register
    def _(self, relation: Join) -> list[_Part]:
        sunk = self._sunk(relation)
        if sunk is not None:
            return self.parts(sunk)
        left, right = self.parts(relation.left), self.parts(relation.right)
        keys = _keys(relation)
        copied = self._copied(relation, keyed=bool(keys))
        if copied is not None:
            at_right = copied is relation.right
            rows, others = (left, right) if at_right else (right, left)
            match = _match(relation, rows, others, at_right=at_right)
            if self._read_by_each(others) and (match is None or not self._may_prune(rows)):
                return [_reading_too(relation, part, _whole(others[0].relation), at_right=at_right) for part in rows]
            exchange = self.exchange(_telling(others, match), ExchangeKind.BROADCAST)
            rows = _pruned(rows, match, exchange.sources[0])
            return [_beside(relation, part, exchange, _common(others), at_right=at_right) for part in rows]
        if keys and self._left_is_light(relation, left):
            return [self._by_left(relation, keys, left, right)]
        unsure = self._unsure(relation, left, right) if keys else None
        if unsure is not None:
            return self._measured(relation, keys, left, right, at_right=unsure is relation.right)
        left, right = (
            self._without(relation, left, right, at_right=False),
            self._without(relation, right, left, at_right=True),
        )
        kind = ExchangeKind.HASH if keys else ExchangeKind.GATHER
        sides = [
            self.received(left, kind, [one.left for one in keys]),
            self.received(right, kind, [one.right for one in keys]),
        ]
        return [self._exchanged(relation, sides, single=not keys)]

    @staticmethod
    def _exchanged(relation: Join, sides: Sequence[_Part], *, single: bool = False) -> _Part:
        """Return the part that joins two exchanges."""
        made = replace(relation, left=sides[0].relation, right=sides[1].relation)
        hashed = _hashed(relation, sides[0].hashed, sides[1].hashed)
        exchanges = (*sides[0].exchanges, *sides[1].exchanges)
        among = _among_joined(relation, sides[0].among, sides[1].among)
        join = None if single else relation.kind
        return _Part(made, exchanges, single=single, hashed=hashed, join=join, among=among)

    def _measured(
        self,
        relation: Join,
        keys: Sequence[JoinCondition],
        left: list[_Part],
        right: list[_Part],
        *,
        at_right: bool,
    ) -> list[_Part]:
        """Return the parts of two plans of a join, of which the measured bytes of one side choose one.

        The side is exchanged by the hash of its keys before. If it is small, all its partitions are copied to the tasks
        of the other side; else that is exchanged too.
        """
        rows, others = (left, right) if at_right else (right, left)
        others = self._without(relation, others, rows, at_right=at_right)
        match = _match(relation, rows, others, at_right=at_right)
        by = [(one.left, one.right) for one in keys]
        exchange = self.exchange(_telling(others, match), ExchangeKind.HASH, [pair[at_right] for pair in by])
        small = exchange.sources
        rows = _pruned(rows, match, small[0])
        copies = self._copies(exchange)
        copied = [_beside(relation, part, copies, _common(others), at_right=at_right) for part in rows]
        exchanged = Branch(small, "exchanged", small=False, under=self._copied_bytes)
        apart = [_within(part, exchanged) for part in rows]
        measured = replace(_reading(exchange), among=_common(others))
        apart = self._filtered(relation, apart, exchanged, at_right=at_right)
        moved = self.received(apart, ExchangeKind.HASH, [pair[not at_right] for pair in by])
        joined = self._exchanged(relation, (moved, measured) if at_right else (measured, moved))
        taken = Branch(small, "copied", small=True, under=self._copied_bytes)
        parts = [*(_within(part, taken) for part in copied), _within(joined, exchanged)]
        told = tuple(self._told(relation, copies, taken, exchanged, at_right=at_right))
        return [replace(part, among=(*part.among, *told)) for part in parts]

    def _told(
        self, relation: Join, copies: Exchange, small: Branch, large: Branch, *, at_right: bool
    ) -> Iterator[_Among]:
        """Yield the columns of a join whose values are among the keys of its measured side, if conditions leave few."""
        if (
            relation.kind is not JoinKind.INNER
            or self._expected_side(relation, _side(relation, at_right=at_right)).share == 1
        ):
            return
        width = len(relation.left.types)
        for one in relation.conditions:
            left, right = one.left.column, one.right.column
            if one.operator == "=" and left is not None and right is not None:
                columns = frozenset([left, right + width])
                yield _Among(columns, copies, right if at_right else left, small, large)

    def _without(self, relation: Join, rows: list[_Part], others: list[_Part], *, at_right: bool) -> list[_Part]:
        """Return the parts of the side `at_right` of a join in two plans, of which one leaves out rows.

        The keys of the other side are among those of a measured side of a join below: if that is small, it is copied to
        the tasks of this side too, and only rows with its keys are left. A light side is copied as it is.
        """
        if not _keeps_matches_only(relation, at_right=not at_right) or len(rows) * 2 > NESTED:
            return rows
        side = _side(relation, at_right=at_right)
        if self.weight(side) <= self._small:
            return rows
        for one in relation.conditions:
            own, other = (one.right, one.left) if at_right else (one.left, one.right)
            if one.operator != "=" or own.column is None:
                continue
            for told in _common(others):
                decided = any(branch.choice == told.small.choice for part in rows for branch in part.branches)
                if other.column not in told.columns or decided:
                    continue
                key = column(told.key, told.copies.types[told.key])
                types = Received(told.copies.number, told.copies.types)
                matching = Join(JoinKind.SEMI, side, types, (JoinCondition(own, key, "="),))
                left_out = [_beside(matching, part, told.copies, at_right=True) for part in rows]
                return [
                    *(_within(part, told.small) for part in left_out),
                    *(_within(part, told.large) for part in rows),
                ]
        return rows

    def _left_is_light(self, relation: Join, left: Sequence[_Part]) -> bool:
        """Whether conditions leave fewer rows of the left side of a semi or anti join than of the other, which drops
        the rows without a match."""
        if relation.kind not in _OF_LEFT or not self._may_measure(left):
            return False
        light, heavy = (self._expected_side(relation, side) for side in (relation.left, relation.right))
        return light.share < 1 and light.bytes < heavy.bytes

    def _by_left(self, relation: Join, keys: Sequence[JoinCondition], left: list[_Part], right: list[_Part]) -> _Part:
        """Return the part of a semi or anti join before which the keys of its left side leave out rows of the other.

        The left side is exchanged by the hash of its keys before. If it is small, all its partitions are copied to the
        tasks of the other side as well; else they receive a Bloom filter of its keys.
        """
        match = _match(relation, right, left, at_right=False)
        exchange = self.exchange(_telling(left, match), ExchangeKind.HASH, [one.left for one in keys])
        measured = exchange.sources
        right = _pruned(right, match, measured[0])
        by = tuple(JoinCondition(one.right, one.left, one.operator) for one in keys)
        copies = self._copies(exchange)
        matching = Join(JoinKind.SEMI, relation.right, relation.left, by)
        copied = [_beside(matching, part, copies, at_right=True) for part in right]
        exchanged = Branch(measured, "exchanged", small=False, under=self._copied_bytes)
        apart = [_within(part, exchanged) for part in right]
        apart = self._filtered(relation, apart, exchanged, at_right=False)
        small = Branch(measured, "copied", small=True, under=self._copied_bytes)
        rows = [*(_within(part, small) for part in copied), *apart]
        moved = self.received(rows, ExchangeKind.HASH, [one.right for one in keys])
        return self._exchanged(relation, (_reading(exchange), moved))

    def _copies(self, exchange: Exchange) -> Exchange:
        """Return the exchange that brings the rows of another one to all tasks."""
        self._exchanges += 1
        return replace(exchange, number=self._exchanges - 1, kind=ExchangeKind.BROADCAST, keys=())

    def _filtered(self, relation: Join, rows: list[_Part], exchanged: Branch, *, at_right: bool) -> list[_Part]:
        """Return parts that leave out most of the rows without a match before they are exchanged.

        The tasks of the measured side make Bloom filters of their keys, of which one task makes one for all. A side
        that no conditions leave smaller is expected to match nearly all rows: then they are exchanged as they are.
        """
        keys = [(one.left, one.right) for one in relation.conditions if one.operator == "="]
        if not keys or not _keeps_matches_only(relation, at_right=at_right):
            return rows
        if self._expected_side(relation, _side(relation, at_right=at_right)).share == 1:
            return rows
        measured = [self._lying(number, self.stages[number].relation.types) for number in exchanged.choice]
        by = tuple(pair[at_right] for pair in keys)
        bits = [replace(part, relation=KeyFilter(part.relation, by)) for part in measured]
        every = self.received([_within(part, exchanged) for part in bits], ExchangeKind.GATHER)
        merged = Grouping(every.relation, (), (Aggregate("bit_or", (column(0, "BIT"),), "BIT"),))
        # A filter with most bits set would cost more than it leaves out.
        useful = joined(
            f"CASE WHEN bit_count({{}}) <= {FILTER_BITS // 2} THEN {{}} END", *[column(0, "BIT")] * 2, type="BIT"
        )
        whole = _within(replace(every, relation=Project(merged, (useful,))), exchanged)
        told = self.exchange([whole], ExchangeKind.BROADCAST)
        own = tuple(pair[not at_right] for pair in keys)
        return [
            replace(
                part,
                relation=MayMatch(part.relation, Received(told.number, told.types), own),
                exchanges=(*part.exchanges, told),
            )
            for part in rows
        ]

    @staticmethod
    def _able(relation: Join) -> list[Relation]:
        """Return the sides whose rows may go to all tasks of the other side."""
        able = []
        if relation.kind not in (JoinKind.RIGHT, JoinKind.FULL):
            able.append(relation.right)
        if relation.kind in (JoinKind.INNER, JoinKind.RIGHT):
            able.append(relation.left)
        return able

    def _copied(self, relation: Join, *, keyed: bool) -> Relation | None:
        """Return the side whose rows go to all tasks of the other; None if both sides go by the hash of keys."""
        able = self._able(relation)
        if not able:
            return None
        lightest = min(able, key=self.weight)
        return lightest if not keyed or self.weight(lightest) <= self._small else None

    def _read_by_each(self, parts: Sequence[_Part]) -> bool:
        """Whether each task that needs all rows of these parts reads them itself: they are in tiny tables alone."""
        return (
            len(parts) == 1
            and not parts[0].exchanges
            and not parts[0].branches
            and self._weigh(parts[0].relation) <= self._tiny
        )

    def _may_prune(self, parts: Sequence[_Part]) -> bool:
        """Whether the tables of these parts may have several splits, some of which need not be read."""
        return any(self._weigh(scan) > self._small for part in parts for scan in scans(part.relation) if not scan.whole)

    def _unsure(self, relation: Join, left: list[_Part], right: list[_Part]) -> Relation | None:
        """Return the side that may be small though its upper bound is not.

        The rows of the other side may lie in plans of which one is taken.
        """
        able = [(side, right, left) if side is relation.right else (side, left, right) for side in self._able(relation)]
        unsure = [
            side
            for side, parts, others in able
            if self._may_measure(parts) and _may_shrink(side) and len(others) <= NESTED
        ]
        return min(unsure, key=lambda side: self._expected_side(relation, side).bytes, default=None)

    def _expected_side(self, relation: Join, side: Relation) -> _Expected:
        """Return what is expected of a side of a join."""
        return self._expected(side, _key_columns(relation, at_right=side is relation.right))

    def _expected(self, relation: Relation, keys: frozenset[str] = frozenset()) -> _Expected:
        """Return what is expected of a relation: a join has a row for each of the larger side that is left.

        Conditions on `keys` alone are bounds that follow from the other side of a join, and leave nothing out.
        """
        match relation:
            case Scan():
                return _Expected(self._weigh(relation), LEFT_BY_FILTER if _leaves_out(relation, keys) else 1)
            case Reuse():
                return self._expectations[relation.number]
            case Shared():
                return self._expected(relation.body, keys)
            case Filter():
                rows = self._expected(relation.input, keys)
                return rows._replace(share=rows.share * LEFT_BY_FILTER) if _leaves_out(relation, keys) else rows
            case Join():
                left = self._expected(relation.left, keys | _key_columns(relation, at_right=False))
                right = self._expected(relation.right, keys | _key_columns(relation, at_right=True))
                share = left.share * right.share if relation.kind in (JoinKind.INNER, JoinKind.SEMI) else left.share
                return _Expected(max(left.files, right.files), share)
        below = [self._expected(child, keys) for child in children(relation)]
        return _Expected(max((one.files for one in below), default=0), below[0].share if below else 1)

    # ------------------------------------------------------------------------------------------- joins below exchanges

    def _sunk(self, relation: Join) -> Project | None:
        """Return the same rows with the join moved to the side of a join below it that has its keys; None if it stays.

        A filtered side, which may be copied, so leaves out rows before they are exchanged. The keys are columns: an
        expression could fail for rows that the join below leaves out.
        """
        able = self._able(relation) if relation.kind in (JoinKind.INNER, JoinKind.SEMI) else []
        light = min(able, key=self.weight, default=None)
        if light is None or relation.other is not None or any(one.operator != "=" for one in relation.conditions):
            return None
        at_right = light is relation.right
        if not _is_filtered(light, _key_columns(relation, at_right=at_right)):
            return None
        below = _side(relation, at_right=not at_right)
        if not isinstance(below, Join) or below.kind is not JoinKind.INNER:
            return None
        to_right = reads_right(relation, below, at_right=at_right)
        if to_right is None:
            return None
        moved = over_one_side(relation, below, to_right=to_right, at_right=at_right)
        inner: Relation | None = moved
        if self._copied(below, keyed=bool(_keys(below))) is not None:
            inner = self._sunk(moved)  # else no rows are exchanged before they meet the side that is copied
        elif self.weight(light) >= min(self.weight(below.left), self.weight(below.right)):
            return None  # the side that it would be joined before may be copied as well
        return None if inner is None else joined_in_side(below, inner, to_right=to_right, at_right=at_right)

    def _may_measure(self, parts: Sequence[_Part]) -> bool:
        """Whether the bytes of these parts may decide between plans."""
        return bool(self._small) and len(parts) <= NESTED

    def weight(self, relation: Relation) -> float:
        """Return the estimated bytes of a relation, also of those that it shares with others."""
        return self._weigh(relation) + sum(self._weights.get(number, 0) for number in reused(relation))

    # Called as a method, it would make a function at each call.
    _cutter_of = staticmethod(_parts.dispatcher.dispatch)


def _keys(relation: Join) -> list[JoinCondition]:
    """Return the comparisons by whose keys rows of both sides can be exchanged."""
    if relation.kind is JoinKind.MARK and any(one.operator != _SAME_KEY for one in relation.conditions):
        return []  # whether the other side has a NULL at all decides about every row
    return [one for one in relation.conditions if one.operator in _EQUALITIES]


def _is_filtered(relation: Relation, keys: frozenset[str]) -> bool:
    """Whether conditions leave out rows of a relation; bounds of `keys` follow from the other side of a join."""
    return _leaves_out(relation, keys) or any(_is_filtered(child, keys) for child in children(relation))


def _leaves_out(relation: Relation, keys: frozenset[str]) -> bool:
    """Whether a scan or a filter has other conditions than bounds of columns among `keys`."""
    match relation:
        case Scan():
            tested = [(one, {relation.columns[at][0] for at in one.columns}) for one in relation.filters]
        case Filter():
            tested = [(one, {_scanned(relation.input, at) for at in one.columns}) for one in relation.conditions]
        case _:
            return False
    return any(not columns <= keys or not _is_bound(one) for one, columns in tested)


def _is_bound(condition: Expression) -> bool:
    """Whether a condition only compares columns with what is greater or smaller."""
    return all(
        isinstance(after, str) and after.startswith((" <", " >"))
        for part, after in pairwise((*condition.parts, ""))
        if isinstance(part, int)
    )


def _side(relation: Join, *, at_right: bool) -> Relation:
    return relation.right if at_right else relation.left


def _key_columns(relation: Join, *, at_right: bool) -> frozenset[str]:
    """Return the columns of tables that are keys of a side of a join."""
    side = _side(relation, at_right=at_right)
    places = [(one.right if at_right else one.left).column for one in relation.conditions]
    return frozenset(_scanned(side, at) for at in places if at is not None) - {""}


def _beside(
    relation: Join, part: _Part, exchange: Exchange, among: tuple[_Among, ...] = (), *, at_right: bool
) -> _Part:
    """Return the part that joins its rows with copies of the other side, which is `at_right` and has `among`."""
    side = _side(relation, at_right=at_right)
    filtering = bool(part.table) and _is_filtered(side, _key_columns(relation, at_right=at_right))
    copies = Received(exchange.number, exchange.types, filtering=filtering)
    made = _reading_too(relation, part, copies, among, at_right=at_right)
    return replace(made, exchanges=(*made.exchanges, exchange))


def _reading_too(
    relation: Join, part: _Part, other: Relation, among: tuple[_Among, ...] = (), *, at_right: bool
) -> _Part:
    """Return the part that joins its rows with all rows of the other side, which is `at_right`."""
    if at_right:
        made = replace(relation, left=part.relation, right=other)
        hashed = _hashed(relation, part.hashed, None)
        known = _among_joined(relation, part.among, among)
    else:
        made = replace(relation, left=other, right=part.relation)
        hashed = _hashed(relation, None, part.hashed)
        known = _among_joined(relation, among, part.among)
    return replace(part, relation=made, hashed=hashed, enough=None, among=known)


def _among_in(among: Iterable[_Among], output: Sequence[int | None]) -> tuple[_Among, ...]:
    """Return what is known of the columns of an output, each by its position before, None for others."""
    moved = (
        one._replace(columns=frozenset(at for at, before in enumerate(output) if before in one.columns))
        for one in among
    )
    return tuple(one for one in moved if one.columns)


def _among_joined(relation: Join, left: tuple[_Among, ...], right: tuple[_Among, ...]) -> tuple[_Among, ...]:
    """Return what is known of the columns of joined rows; a NULL in place of a row without a match equals nothing."""
    if relation.kind not in (JoinKind.INNER, JoinKind.LEFT, JoinKind.RIGHT, JoinKind.FULL):
        return left
    width = len(relation.left.types)
    return (*left, *(one._replace(columns=frozenset(at + width for at in one.columns)) for one in right))


def _common(parts: Sequence[_Part]) -> tuple[_Among, ...]:
    """Return what is known of the columns of all parts."""
    first, *others = (part.among for part in parts)
    return tuple(one for one in first if all(one in other for other in others))


def _hashed(relation: Join, left: Hashed | None, right: Hashed | None) -> Hashed | None:
    """Return what the rows of a join lie by whose sides lie by `left` and `right`; None: by nothing known."""
    width = len(relation.left.types)
    moved = None if right is None else tuple(frozenset(at + width for at in one) for one in right)
    if relation.kind is JoinKind.FULL:
        return None
    if relation.kind is JoinKind.RIGHT:
        return moved
    if relation.kind is not JoinKind.INNER:
        return left
    equal = [
        {one.left.column, one.right.column + width}
        for one in relation.conditions
        if one.operator in _EQUALITIES and one.left.column is not None and one.right.column is not None
    ]
    known = left if left is not None else moved
    return known and tuple(one.union(*(pair for pair in equal if pair & one)) for one in known)


def _whole(relation: Relation) -> Relation:
    """Return a relation whose scans read all rows of their tables."""
    return replace(relation, whole=True) if isinstance(relation, Scan) else over_children(relation, _whole)


def _within(part: _Part, branch: Branch) -> _Part:
    """Return a part that runs only if a further branch is taken."""
    return replace(part, branches=(*part.branches, branch))


def _reading(exchange: Exchange) -> _Part:
    """Return the part that reads an exchange."""
    positions = [key.column for key in exchange.keys]
    known = tuple(frozenset([at]) for at in positions if at is not None) if None not in positions else None
    single = exchange.kind is ExchangeKind.GATHER
    return _Part(Received(exchange.number, exchange.types), (exchange,), single=single, hashed=known)


_OF_LEFT = (JoinKind.SEMI, JoinKind.ANTI)
_SAME_KEY = "IS NOT DISTINCT FROM"
_EQUALITIES = ("=", _SAME_KEY)


def _may_shrink(relation: Relation) -> bool:
    """Whether a relation may have far fewer rows than the tables that it reads."""
    if isinstance(relation, Filter | Grouping | Distinct | Limit | Join) or (
        isinstance(relation, Scan) and relation.filters
    ):
        return True
    return any(map(_may_shrink, children(relation)))


class _Match(NamedTuple):
    """Columns whose values are equal in joined rows: one of the copied side, and for each part of the other side the
    column of the table that it scans ("": it scans none).
    """

    key: int
    type: str
    columns: tuple[str, ...]


def _keeps_matches_only(relation: Join, *, at_right: bool) -> bool:
    """Whether a join drops the rows without a match of the side beside the one that is `at_right`."""
    if at_right:
        return relation.kind in (JoinKind.INNER, JoinKind.SEMI)
    return relation.kind in (JoinKind.INNER, *_OF_LEFT)


def _match(relation: Join, rows: Sequence[_Part], others: Sequence[_Part], *, at_right: bool) -> _Match | None:
    """Return columns by which scans of `rows` can be pruned; None if rows without a match are kept, or none are."""
    if len(others) != 1 or not _keeps_matches_only(relation, at_right=at_right):
        return None
    for one in relation.conditions:
        own, other = (one.left, one.right) if at_right else (one.right, one.left)
        if one.operator != "=" or own.column is None or other.column is None or own.type not in _ORDERED:
            continue
        columns = tuple(_scanned(part.relation, own.column) if part.table else "" for part in rows)
        if own.type == other.type and any(columns):
            return _Match(other.column, own.type, columns)
    return None


def _scanned(relation: Relation, at: int, *, grouped: bool = False) -> str:
    """Return the column of a scanned table that is the column `at`, also in groups if `grouped`; "" if none is."""
    below: int | None = None
    match relation:
        case Scan():
            return "" if relation.whole else relation.columns[relation.output[at]][0]
        case Join():
            width = len(relation.left.types)
            side, place = (relation.left, at) if at < width else (relation.right, at - width)
            return _scanned(side, place, grouped=grouped)
        case Filter():
            below = at
        case Project():
            below = relation.expressions[at].column
        case Distinct() if grouped:
            below = at
        case Window() if grouped and at < len(relation.input.types):
            below = at
        case Grouping() if grouped and at < len(relation.groups) and not relation.sets:
            below = relation.groups[at].column
        case _:
            return ""
    return "" if below is None else _scanned(relation.input, below, grouped=grouped)


def _ranges_of(part: _Part, keys: Sequence[Expression]) -> list[Ranged]:
    """Return the keys that are columns of the table that a part scans, of types whose values may be divided."""
    found = []
    for key in keys:
        if part.table and key.column is not None and key.type in _DIVISIBLE:
            name = _scanned(part.relation, key.column, grouped=True)
            if name:
                found.append(Ranged(name, key.type))
    return found


def _telling(parts: list[_Part], match: _Match | None) -> list[_Part]:
    """Return the parts of a side whose tasks tell the keys of a match."""
    return parts if match is None else [replace(part, keys=match.key) for part in parts]


def _pruned(parts: list[_Part], match: _Match | None, small: int) -> list[_Part]:
    """Return parts whose splits without a key of the stage `small` are not read; the first match of a part counts."""
    if match is None:
        return parts
    return [
        replace(part, pruning=Pruning(small, column, match.type)) if column and part.pruning is None else part
        for part, column in zip(parts, match.columns, strict=True)
    ]


_DIVISIBLE = frozenset(["TINYINT", "SMALLINT", "INTEGER", "BIGINT", "DATE"])
"""The types of columns whose values may be divided into ranges: those with exact bounds."""
_ORDERED = _DIVISIBLE | {"VARCHAR"}
"""The types of keys that events and the statistics of files have in the same order."""
