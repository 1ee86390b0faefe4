"""Stages of a query in the words of SQL: what each computes, and how rows reach it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import singledispatchmethod
from typing import TYPE_CHECKING, Any, Final

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
    Scan,
    SetOperation,
    Sort,
    SortSample,
    Unnest,
    Values,
    Window,
    children,
)
from weft.frontends.sql.stages import Exchange, ExchangeKind, QueryPlan, QueryStage, Ranged, Weigh

if TYPE_CHECKING:
    from weft.frontends.sql.expressions import Aggregate, Expression, Order

LONGEST: Final = 160
"""The characters of an expression; a longer one is cut."""
_MOVEMENTS: Final = {
    ExchangeKind.HASH: "by the hash of {}",
    ExchangeKind.RANGE: "by ranges of {}",
    ExchangeKind.GATHER: "all to one task",
    ExchangeKind.BROADCAST: "a copy to each task",
    ExchangeKind.SAME: "task to task",
}
_JOINS: Final = {
    JoinKind.MARK: "mark join (is there a match)",
    JoinKind.SINGLE: "left join (at most one match)",
}
_CONSTANT: Final = re.compile(r"CAST\(('(?:[^']|'')*') AS ([A-Z_]+(?:\([0-9, ]*\))?)\)")
_NUMBERS: Final = ("INTEGER", "BIGINT", "TINYINT", "SMALLINT", "HUGEINT", "DECIMAL", "FLOAT", "DOUBLE")


@dataclass(frozen=True, slots=True)
class ExplainedExchange:
    """Rows between stages: `keys` of a hash; `estimated_bytes` are those of the files below, an estimate from above."""

    number: int
    kind: str
    sources: tuple[int, ...]
    keys: tuple[str, ...]
    movement: str
    estimated_bytes: int

    def to_json(self) -> dict[str, Any]:
        """Return the same as JSON values."""
        return {
            "exchange": self.number,
            "from": list(self.sources),
            "kind": self.kind,
            "keys": list(self.keys),
            "movement": self.movement,
            "estimated_bytes": self.estimated_bytes,
        }


@dataclass(frozen=True, slots=True)
class ExplainedStage:
    """A stage: its steps in the order in which rows pass them, and what it receives."""

    number: int
    table: str
    steps: tuple[str, ...]
    exchanges: tuple[ExplainedExchange, ...]


def describe_stages(plan: QueryPlan, weigh: Weigh) -> tuple[ExplainedStage, ...]:
    """Return the stages of a plan in words. `weigh` estimates the bytes of the files below a relation."""
    describer = _Describer(plan)
    weights: list[float] = []
    found = []
    for stage in plan.stages:
        described = tuple(
            describer.exchange(exchange, sum(weights[source] for source in exchange.sources))
            for exchange in stage.exchanges
        )
        sources = {source for exchange in stage.exchanges for source in exchange.sources}
        weights.append(weigh(stage.relation) + sum(weights[source] for source in sources))
        found.append(ExplainedStage(stage.number, stage.table, tuple(describer.stage(stage)), described))
    return tuple(found)


class _Describer:
    """Describes stages in their order, since the columns of a stage have the names that its sources gave them."""

    def __init__(self, plan: QueryPlan) -> None:
        self._exchanges = {exchange.number: exchange for stage in plan.stages for exchange in stage.exchanges}
        self._stages = plan.stages
        self._names: list[list[str]] = []
        self._steps: list[str] = []
        self._ranged: Ranged | None = None
        self._partial = _partial_groupings(plan)
        self._final = {reader for reader, _ in self._partial}
        self._first = {source for _, source in self._partial}

    def stage(self, stage: QueryStage) -> list[str]:
        """Return the steps of the next stage."""
        self._steps, self._ranged = [], stage.ranged
        self._names.append(self._columns(stage.relation))
        if stage.enough is not None:
            self._steps.append(f"no more tasks start than {stage.enough:,} rows need")
        return self._steps or ["hand on the rows"]

    def exchange(self, exchange: Exchange, weight: float) -> ExplainedExchange:
        """Describe an exchange of stages that were described before."""
        names = self._names[exchange.sources[0]]
        keys = tuple(_text(key, names) for key in exchange.keys)
        movement = _MOVEMENTS[exchange.kind].format(", ".join(keys))
        return ExplainedExchange(exchange.number, exchange.kind.value, exchange.sources, keys, movement, round(weight))

    # --------------------------------------------------------------------------- names of columns; notes the steps

    @singledispatchmethod
    def _columns(self, relation: Relation) -> list[str]:
        """Return the names of the columns of a relation, and note its steps."""
        for child in children(relation):
            self._columns(child)
        return [f"column {at + 1}" for at in range(len(relation.types))]

    @_columns.register
    def _(self, relation: Scan) -> list[str]:
        names = [name for name, _ in relation.columns]
        each = " in each task" if relation.whole else ""
        if self._ranged is not None and not relation.whole:
            each = f" by ranges of {self._ranged.column}"
        step = f"scan {relation.table}{each}: {_listed([name for name in names if name]) or 'no columns'}"
        if relation.filters:
            step += f"; where {_listed([_text(one, names) for one in relation.filters], ' and ')}"
        self._steps.append(step)
        return [names[at] for at in relation.output]

    @_columns.register
    def _(self, relation: Values) -> list[str]:
        self._steps.append(f"{len(relation.rows):,} rows of the query")
        return [f"column {at + 1}" for at in range(len(relation.types))]

    @_columns.register
    def _(self, relation: Received) -> list[str]:
        names = self._names[self._exchanges[relation.exchange].sources[0]]
        if relation.sent is None:
            return list(names)
        sent = dict(zip(relation.sent, names, strict=True))
        return [sent.get(at, "NULL") for at in range(len(relation.types))]

    @_columns.register
    def _(self, relation: Filter) -> list[str]:
        names = self._columns(relation.input)
        self._steps.append(f"filter: {_listed([_text(one, names) for one in relation.conditions], ' and ')}")
        return names

    @_columns.register
    def _(self, relation: Project) -> list[str]:
        names = self._columns(relation.input)
        made = [_finished(_text(one, names), names) for one in relation.expressions]
        computed = [name for name in dict.fromkeys(made) if name not in names and not _is_constant(name)]
        if computed:
            self._steps.append(f"compute {_listed(computed)}")
        return made

    @_columns.register
    def _(self, relation: Join) -> list[str]:
        left, right = self._columns(relation.left), self._columns(relation.right)
        on = [f"{_text(one.left, left)} {one.operator} {_text(one.right, right)}" for one in relation.conditions]
        if relation.other is not None:
            on.append(_text(relation.other, [*left, *right]))
        what = _JOINS.get(relation.kind, f"{relation.kind.value.lower()} join") if on else "cross product"
        sides = [name for side in (relation.left, relation.right) if (name := self._origin(side))]
        of = f" of {' and '.join(sides)}" if len(sides) == 2 else f" with {sides[0]}" if sides else ""
        self._steps.append(f"{what}{of}{' on ' + _listed(on, ' and ') if on else ''}")
        if relation.kind in (JoinKind.SEMI, JoinKind.ANTI):
            return left
        return [*left, "has a match"] if relation.kind is JoinKind.MARK else [*left, *right]

    @_columns.register
    def _(self, relation: KeyFilter) -> list[str]:
        names = self._columns(relation.input)
        self._steps.append(f"Bloom filter of {_listed([_text(one, names) for one in relation.keys])}")
        return ["filter"]

    @_columns.register
    def _(self, relation: MayMatch) -> list[str]:
        names = self._columns(relation.input)
        keys = _listed([_text(one, names) for one in relation.keys])
        self._steps.append(f"leave out rows whose {keys} the filter of {self._origin(relation.filter)} has not")
        return names

    @_columns.register
    def _(self, relation: Grouping) -> list[str]:
        names = self._columns(relation.input)
        groups = [_text(group, names) for group in relation.groups]
        number = len(self._names)
        received = isinstance(relation.input, Received)
        final = received and number in self._final
        aggregates = [_merged(one, names) if final else _call(one, names) for one in relation.aggregates]
        step = "final" if final else "partial" if number in self._first and not received else ""
        by = f" by {_listed(groups)}" if groups else ""
        sets = f" in {len(relation.sets):,} sets of groups" if relation.sets else ""
        made = f": {_listed(aggregates)}" if aggregates else ""
        self._steps.append(f"{step} aggregation{by}{sets}{made}".strip())
        functions = [f"grouping({', '.join(groups[at] for at in one)})" for one in relation.functions]
        return [*groups, *aggregates, *functions]

    @_columns.register
    def _(self, relation: Sort) -> list[str]:
        names = self._columns(relation.input)
        self._steps.append(f"sort by {_ordered(relation.orders, names)}{_bounds(relation.limit, relation.offset)}")
        return names

    @_columns.register
    def _(self, relation: SortSample) -> list[str]:
        names = self._columns(relation.input)
        self._steps.append(f"sample keys of the order by {_ordered(relation.orders, names)}")
        return ["key", "rows"]

    @_columns.register
    def _(self, relation: Limit) -> list[str]:
        names = self._columns(relation.input)
        self._steps.append(_bounds(relation.limit, relation.offset).removeprefix(", "))
        return names

    @_columns.register
    def _(self, relation: Distinct) -> list[str]:
        names = self._columns(relation.input)
        order = f", the first by {_ordered(relation.orders, names)}" if relation.orders else ""
        self._steps.append(f"distinct {_listed([_text(one, names) for one in relation.targets])}{order}")
        return names

    @_columns.register
    def _(self, relation: SetOperation) -> list[str]:
        names = self._columns(relation.left)
        self._columns(relation.right)
        self._steps.append(f"{relation.kind.value.lower()}{' all' if relation.all else ''}")
        return names

    @_columns.register
    def _(self, relation: Window) -> list[str]:
        names = self._columns(relation.input)
        functions = [_text(one, names) for one in relation.functions]
        self._steps.append(f"window {_listed(functions)}")
        return [*names, *functions]

    @_columns.register
    def _(self, relation: Unnest) -> list[str]:
        names = self._columns(relation.input)
        lists = [f"unnest({_text(one, names)})" for one in relation.lists]
        self._steps.append(_listed(lists))
        return [*names, *lists]

    def _origin(self, relation: Relation) -> str:
        """Return the stages whose rows a side of a join has; "" for rows of the stage itself."""
        while isinstance(relation, Filter | Project):
            relation = relation.input
        if not isinstance(relation, Received):
            return ""
        return "stage " + " + ".join(map(str, self._exchanges[relation.exchange].sources))


def _partial_groupings(plan: QueryPlan) -> set[tuple[int, int]]:
    """Return the pairs (stage, source) of which the source makes partial groups, and the stage final ones."""
    found = set()
    for stage in plan.stages:
        finals = [one for one in _walk(stage.relation) if isinstance(one, Grouping) and isinstance(one.input, Received)]
        for final in finals:
            assert isinstance(final.input, Received)
            number = final.input.exchange
            sources = next(one.sources for one in stage.exchanges if one.number == number)
            for source in sources:
                partial = _outermost(plan.stages[source].relation)
                if isinstance(partial, Grouping) and _completes(final, partial):
                    found.add((stage.number, source))
    return found


def _completes(final: Grouping, partial: Grouping) -> bool:
    keys = len(partial.groups) + len(partial.functions)
    merged = [one.arguments[0].column if len(one.arguments) == 1 else None for one in final.aggregates]
    return (
        [group.column for group in final.groups] == list(range(keys))
        and merged == list(range(keys, keys + len(partial.aggregates)))
        and not final.sets
    )


def _outermost(relation: Relation) -> Relation:
    while isinstance(relation, Project):
        relation = relation.input
    return relation


def _walk(relation: Relation) -> list[Relation]:
    return [relation, *(one for child in children(relation) for one in _walk(child))]


# -------------------------------------------------------------------------------------------------------------- text


def _text(expression: Expression, names: Sequence[str]) -> str:
    """Return an expression with names for its columns, and constants without their casts."""
    text = expression.text(lambda at: names[at])
    return _shortened(_unwrapped(_CONSTANT.sub(_constant, text)))


_CAST: Final = re.compile(r"CAST\((.*) AS [A-Z]+(?:\([0-9,]*\))?\)")
_COUNT: Final = re.compile(r"COALESCE\(CAST\((.*) AS BIGINT\), 0\)")
_AVERAGE: Final = re.compile(r"CAST\(sum\((.*)\) AS DOUBLE\) / \(?NULLIF\(count\(\1\), 0\)\)?")


def _finished(text: str, names: Sequence[str]) -> str:
    """Return what a user knows an expression by that only finishes an aggregate, or only casts a column."""
    if (average := _AVERAGE.fullmatch(text)) is not None:
        return f"avg({average[1]})"
    for pattern in (_COUNT, _CAST):
        found = pattern.fullmatch(text)
        if found is not None and found[1] in names:
            return found[1]
    return text


def _constant(found: re.Match[str]) -> str:
    return found[1][1:-1] if any(word in found[2] for word in _NUMBERS) else found[1]


def _unwrapped(text: str) -> str:
    """Return a text without parentheses around the whole of it."""
    while text.startswith("(") and text.endswith(")"):
        depth = 0
        for at, sign in enumerate(text):
            depth += (sign == "(") - (sign == ")")
            if not depth and at < len(text) - 1:
                return text
        text = text[1:-1]
    return text


def _shortened(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."


def _is_constant(text: str) -> bool:
    return bool(re.fullmatch(r"-?[0-9.]+|'(?:[^']|'')*'|NULL", text))


def _listed(texts: Sequence[str], between: str = ", ") -> str:
    shown = between.join(texts[:12])
    return f"{shown} and {len(texts) - 12} more" if len(texts) > 12 else shown


def _call(one: Aggregate, names: Sequence[str]) -> str:
    distinct = "distinct " if one.distinct else ""
    arguments = ", ".join(_text(each, names) for each in one.arguments)
    text = f"{one.name.replace('count_star', 'count')}({distinct}{arguments or '*'})"
    return text if one.filter is None else f"{text} where {_text(one.filter, names)}"


def _merged(one: Aggregate, names: Sequence[str]) -> str:
    """Return the name of an aggregate of a final step: that of its partial aggregate."""
    return _text(one.arguments[0], names)


def _ordered(orders: Sequence[Order], names: Sequence[str]) -> str:
    return _listed([f"{_text(one.by, names)}{' desc' if one.descending else ''}" for one in orders])


def _bounds(limit: int | None, offset: int) -> str:
    return (f", limit {limit:,}" if limit is not None else "") + (f", offset {offset:,}" if offset else "")
