"""Leaves columns that no stage reads out of the rows that stages send."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from weft.frontends.sql.expressions import column
from weft.frontends.sql.relations import (
    Distinct,
    Filter,
    Grouping,
    Join,
    JoinKind,
    KeyFilter,
    Limit,
    MayMatch,
    Project,
    Received,
    Relation,
    Sort,
    SortSample,
    Unnest,
    Window,
    children,
    over_children,
)
from weft.frontends.sql.stages import Exchange, ExchangeKind, QueryPlan, QueryStage

if TYPE_CHECKING:
    from weft.frontends.sql.expressions import Expression

Columns = frozenset[int]
_LEFT_ONLY = (JoinKind.SEMI, JoinKind.ANTI, JoinKind.MARK)


def narrowed(plan: QueryPlan) -> QueryPlan:
    """Return the plan whose stages send only columns that are read."""
    wanted = _wanted(plan)
    return replace(plan, stages=tuple(_narrow(stage, wanted) for stage in plan.stages))


def _narrow(stage: QueryStage, wanted: Sequence[Columns]) -> QueryStage:
    """Return a stage whose rows, and those that it receives, have only the `wanted` columns of each stage."""
    columns = {exchange.number: wanted[exchange.sources[0]] for exchange in stage.exchanges}
    relation = _received(stage.relation, columns)
    types, own = relation.types, sorted(wanted[stage.number])
    if len(own) < len(types):
        relation = Project(relation, tuple(column(at, types[at]) for at in own))
    return replace(
        stage,
        relation=relation,
        exchanges=tuple(_sending(exchange, columns[exchange.number]) for exchange in stage.exchanges),
        keys=None if stage.keys is None else own.index(stage.keys),
    )


def _received(relation: Relation, columns: Mapping[int, Columns]) -> Relation:
    """Return a relation that reads exchanges with these columns."""
    if not isinstance(relation, Received):
        return over_children(relation, lambda child: _received(child, columns))
    sent = sorted(columns[relation.exchange])
    return relation if len(sent) == len(relation.types) else replace(relation, sent=tuple(sent))


def _sending(exchange: Exchange, columns: Columns) -> Exchange:
    """Return an exchange of rows that have only these columns."""
    sent = sorted(columns)
    keys = tuple(key.over(sent.index) for key in exchange.keys)
    return replace(exchange, keys=keys, types=tuple(exchange.types[at] for at in sent))


def _wanted(plan: QueryPlan) -> list[Columns]:
    """Return the columns of each stage that are read; stages whose rows one exchange brings have the same ones."""
    every = [frozenset(range(len(stage.relation.types))) for stage in plan.stages]
    in_ranges = {  # the task that divides rows by ranges hands on all it receives
        source
        for stage in plan.stages
        for exchange in stage.exchanges
        if exchange.kind is ExchangeKind.RANGE
        for source in exchange.sources
    }
    whole = {*in_ranges, *plan.results}
    wanted = [every[number] if number in whole else frozenset() for number in range(len(every))]
    for stage in plan.stages:
        if stage.keys is not None:
            wanted[stage.number] |= {stage.keys}
    changed = True
    while changed:
        changed = False
        for stage in reversed(plan.stages):
            read: dict[int, Columns] = {}
            if stage.number not in in_ranges:
                for number, columns in _read(stage.relation, wanted[stage.number]):
                    read[number] = read.get(number, frozenset()) | columns
            for exchange in stage.exchanges:
                first = every[exchange.sources[0]]
                found = first if stage.number in in_ranges else read.get(exchange.number, frozenset())
                found |= _columns(exchange.keys)
                found |= frozenset().union(*(wanted[source] for source in exchange.sources))
                found = found or frozenset(sorted(first)[:1])  # rows without columns cannot be counted
                for source in exchange.sources:
                    if wanted[source] != found:
                        wanted[source], changed = found, True
    return wanted


def _read(relation: Relation, wanted: Columns) -> Iterator[tuple[int, Columns]]:
    """Yield exchanges, and the columns of each that are read for the `wanted` columns of a relation."""
    match relation:
        case Received():
            yield relation.exchange, wanted
        case Filter():
            yield from _read(relation.input, wanted | _columns(relation.conditions))
        case Project():
            yield from _read(relation.input, _columns(relation.expressions[at] for at in wanted))
        case KeyFilter():
            yield from _read(relation.input, _columns(relation.keys))
        case MayMatch():
            yield from _read(relation.input, wanted | _columns(relation.keys))
            yield from _read(relation.filter, frozenset([0]))
        case Join():
            width = len(relation.left.types)
            both = frozenset(at for at in wanted if at < width) if relation.kind in _LEFT_ONLY else wanted
            both |= _columns(() if relation.other is None else (relation.other,))
            left = frozenset(at for at in both if at < width)
            right = frozenset(at - width for at in both if at >= width)
            yield from _read(relation.left, left | _columns(one.left for one in relation.conditions))
            yield from _read(relation.right, right | _columns(one.right for one in relation.conditions))
        case Grouping():
            yield from _read(
                relation.input, _columns([*relation.groups, *(one.expression for one in relation.aggregates)])
            )
        case Sort():
            yield from _read(relation.input, wanted | _columns(order.by for order in relation.orders))
        case SortSample():
            yield from _read(relation.input, _columns(order.by for order in relation.orders))
        case Limit():
            yield from _read(relation.input, wanted)
        case Distinct() if relation.on or len(relation.targets) < len(relation.types):
            by = [*relation.targets, *(order.by for order in relation.orders)]
            yield from _read(relation.input, wanted | _columns(by))
        case Window():
            more = [*relation.functions, *relation.partitions]
            yield from _read(relation.input, _added(relation.input, wanted, more))
        case Unnest():
            yield from _read(relation.input, _added(relation.input, wanted, relation.lists))
        case _:
            for child in children(relation):
                yield from _read(child, frozenset(range(len(child.types))))


def _added(rows: Relation, wanted: Columns, more: Iterable[Expression]) -> Columns:
    """Return the columns of rows to which others are added."""
    return frozenset(at for at in wanted if at < len(rows.types)) | _columns(more)


def _columns(expressions: Iterable[Expression]) -> Columns:
    return frozenset(at for one in expressions for at in one.columns)
