"""Compiles the stages of a query to a graph: a vertex for each stage, an edge for each exchange."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from weft.frontends.sql.relations import (
    Distinct,
    Grouping,
    Join,
    JoinKind,
    KeyFilter,
    MayMatch,
    Received,
    Relation,
    Scan,
    SetOperation,
    Sort,
    SortSample,
    Window,
    children,
    scans,
)
from weft.frontends.sql.stages import Branch, Exchange, ExchangeKind, QueryPlan, QueryStage
from weft.frontends.sql.text import name_of, received, sort_key, sql_of
from weft.graph.builder import Graph, InputSpec, VertexHandle, after, gather, one_to_one, shuffle
from weft.graph.logical import Manager, Range, Trigger
from weft.model.digests import hex_digest

if TYPE_CHECKING:
    from weft.frontends.sql.tables import TableSplits

RUN: Final = "weft.frontends.sql.fragment:run_fragment"
DIVIDE: Final = "weft.frontends.sql.ranges:divide_ranges"
ANSWER: Final = "weft.frontends.sql.fragment:unknown_size"
SPLIT: Final = "split_rows"
ENOUGH: Final = "enough"
NONE: Final[Mapping[int, int]] = MappingProxyType({})
DIVIDED: Final = (ExchangeKind.HASH, ExchangeKind.RANGE)
"""The exchanges whose rows are divided into partitions."""
SAMPLED: Final = 100
"""The rows that a task samples, at most."""
RANGES: Final = 200
"""The ranges of keys that one task emits, at most."""
WAVED: Final = 10
"""The tasks of a scan in waves after the first, at most, unless more than half as many run at a time.

Each ends by itself once it has enough rows.
"""
WAYS: Final = 8
"""The tasks of a join for each partition, at most, if its heavy partitions are split."""


def compile_plan(
    plan: QueryPlan,
    tables: Mapping[str, TableSplits],
    *,
    name: str,
    partitions: int,
    target: int,
    settled: Mapping[int, int] = NONE,
    slots: int = 1,
    memory: int = 0,
) -> tuple[Graph, list[VertexHandle]]:
    """Return the graph of a plan and the nodes that deliver its rows, one after the other.

    A shuffle has `partitions` partitions, and its readers take `target` bytes each. `settled` has the number of tasks
    of stages whose number no manager decides, by the numbers of the stages. `slots` tasks run at a time. The tasks of
    a process compute with `memory` bytes (0: no bound).
    """
    compiler = _Compiler(plan, tables, name, partitions, target, settled)
    compiler.waved, compiler.memory = max(WAVED, 2 * slots), memory
    for stage in plan.stages:
        compiler.add(stage)
    compiler.add_choices()
    return compiler.graph, [compiler.nodes[number].keep() for number in plan.results]


def may_settle(stage: QueryStage) -> bool:
    """Whether the number of tasks of a stage may be settled before it runs: nothing measured decides about it."""
    if stage.table or stage.branches or stage.enough is not None:
        return False
    return any(exchange.kind in DIVIDED for exchange in stage.exchanges)


class _Compiler:
    def __init__(
        self,
        plan: QueryPlan,
        tables: Mapping[str, TableSplits],
        name: str,
        partitions: int,
        target: int,
        settled: Mapping[int, int],
    ) -> None:
        self.graph = Graph(name)
        self.nodes: list[VertexHandle] = []
        self.waved = WAVED
        self.memory = 0
        self._plan, self._tables = plan, tables
        self._stamp = hex_digest(" ".join(sorted({table.stamp for table in tables.values()})).encode())
        self._target, self._settled = target, settled
        self._partitions = {
            source: settled.get(stage.number, partitions)
            for stage in plan.stages
            for exchange in stage.exchanges
            for source in exchange.sources
        }
        self._most = partitions
        exchanges = [exchange for stage in plan.stages for exchange in stage.exchanges]
        self._sent: dict[int, Exchange] = {
            source: exchange for exchange in exchanges if exchange.kind in DIVIDED for source in exchange.sources
        }
        self._alone = {
            exchange.sources[0]
            for stage in plan.stages
            if stage.number not in settled and sum(one.kind in DIVIDED for one in stage.exchanges) == 1
            for exchange in stage.exchanges
            if exchange.kind is ExchangeKind.HASH and self._has_one_task(exchange.sources)
        }
        self._same = {source for one in exchanges if one.kind is ExchangeKind.SAME for source in one.sources}
        self._deciders: dict[tuple[int, ...], VertexHandle] = {}
        self._deciding = {max(branch.choice): branch.choice for stage in plan.stages for branch in stage.branches}

    def add(self, stage: QueryStage) -> None:
        """Add the vertex of a stage, and behind it the choice that its bytes decide."""
        inputs: list[InputSpec] = []
        tables = []
        whole = _read_first(stage.relation)
        for exchange in stage.exchanges:
            columns = [(name_of(at), of) for at, of in enumerate(exchange.types)]
            first = len(inputs)
            for source in exchange.sources:
                edge = f"stage_{source}->stage_{stage.number}"
                again = f":{len(inputs)}" if any(one.name == edge for one in inputs) else ""
                inputs.append(self._input(exchange, source, edge + again, blocking=exchange.number in whole))
            tables.append((received(exchange.number), [one.name for one in inputs[first:]], columns))
        params: dict[str, Any] = {"sql": sql_of(stage.relation, self._rows_of), "received": tables}
        if folders := {folder for scan in scans(stage.relation) for folder in self._tables[scan.table].folders}:
            params["folders"] = sorted(folders)
            params["stamp"] = self._stamp
        sent, body = self._sent.get(stage.number), RUN
        if sent is not None:
            partitions = params["partitions"] = self._partitions[stage.number]
            if stage.number in self._alone:
                params["undivided"] = self._target  # one task reads all of it in any case
            if sent.kind is ExchangeKind.HASH:
                keys = ", ".join(key.text(name_of) for key in sent.keys)
                params["sql"] = f"SELECT *, CAST(hash({keys}) % {partitions} AS USMALLINT) FROM ({params['sql']})"
            else:
                body, params["sampled"] = DIVIDE, SAMPLED
                params["sql"] = f"SELECT {sort_key(sent.orders)} FROM ({params['sql']})"
        if isinstance(stage.relation, SortSample):
            params["sampled"] = SAMPLED
        if filters := [received(one.filter.exchange) for one in _key_filters(stage.relation)]:
            params["filters"] = filters
        if not _filters_keep_matches(stage.relation):
            params["join_filters"] = False
        if self.memory:
            params["memory"] = self.memory
        if stage.keys is not None:
            params["keys"] = (_keys(stage.number), stage.keys, self._ranges(stage.number))
        more = self._scan(stage, params, inputs) if stage.table else self._reader(stage)
        node = self.graph.task(body, *inputs, name=f"stage_{stage.number}", params=params, counted=True, **more)
        self.nodes.append(node)
        if stage.number in self._deciding:
            self._add_decider(self._deciding[stage.number])

    def _rows_of(self, scan: Scan) -> str:
        """Return the SQL of the rows that a task reads of a table: a name for those of its split, or all rows."""
        return self._tables[scan.table].whole() if scan.whole else SPLIT

    def _splits(self, stage: QueryStage) -> TableSplits:
        """Return the splits of the table of a stage; all rows in one if files that changed have no ranges any more."""
        table = self._tables[stage.table]
        return table if stage.ranged is None else table.ranged(*stage.ranged) or table.together()

    def _has_one_task(self, numbers: tuple[int, ...]) -> bool:
        """Whether these are one stage, which has one task at most."""
        stage = self._plan.stages[numbers[0]]
        if len(numbers) > 1:
            return False
        if stage.table:
            return len(self._splits(stage)) == 1
        return all(one.kind in (ExchangeKind.GATHER, ExchangeKind.BROADCAST) for one in stage.exchanges)

    def _ranges(self, number: int) -> int:
        """Return the number of ranges of keys that tasks of a stage tell: one if there are no splits to choose from."""
        pruned = [stage.table for stage in self._plan.stages if stage.pruning and stage.pruning.small == number]
        return RANGES if any(len(self._tables[table]) > 1 for table in pruned) else 1

    def _input(self, exchange: Exchange, source: int, name: str, *, blocking: bool) -> InputSpec:
        node = self.nodes[source]
        if exchange.kind in DIVIDED:
            return shuffle(node, self._partitions[source], name=name, blocking=blocking)
        if exchange.kind is ExchangeKind.SAME:
            return one_to_one(node, name=name, blocking=blocking)
        if _in_waves(self._plan.stages[source]):
            return gather(node, when=Trigger.EVENT, event=ENOUGH, name=name, blocking=blocking)
        return gather(node, name=name, blocking=blocking)

    def _scan(self, stage: QueryStage, params: dict[str, Any], inputs: list[InputSpec]) -> dict[str, Any]:
        """Return the splits of a scan and what decides which of them are read."""
        table = self._splits(stage)
        params["split"] = SPLIT
        if _in_waves(stage):
            return {
                "items": table.few(self.waved),
                "manager": Manager("waves", {"rows": stage.enough, "event": ENOUGH}),
            }
        pruning = stage.pruning
        bounds = table.bounds(pruning.column, pruning.type) if pruning is not None else None
        if pruning is None or bounds is None:
            return {"items": table.rows()}
        if all(pruning.small not in exchange.sources for exchange in stage.exchanges):
            inputs.append(after(self.nodes[pruning.small]))
        items = [
            {"rows": rows, "low": low, "high": high} for rows, (low, high) in zip(table.rows(), bounds, strict=True)
        ]
        # A stage that reads it task to task has as many tasks as are left.
        width = {"n": Range(0, len(items))} if stage.number in self._same else {}
        return width | {
            "items": items,
            "manager": Manager("pruning", {"key": "low", "high": "high", "event": _keys(pruning.small)}),
        }

    def _reader(self, stage: QueryStage) -> dict[str, Any]:
        """Return the number of tasks of a stage that scans no table, by what it reads."""
        if all(exchange.kind not in DIVIDED for exchange in stage.exchanges):
            return {}
        if stage.number in self._settled:
            return {"n": self._settled[stage.number]}
        join = _joins(stage)
        params: dict[str, Any] = {"target": self._target} | ({"join": join} if join else {})
        manager = Manager("shuffle", params)
        if _in_waves(stage):
            manager = Manager("shuffle_waves", params | {"rows": stage.enough, "event": ENOUGH})
        return {"n": Range(1, self._most * (WAYS if join else 1)), "manager": manager}

    def _add_decider(self, numbers: tuple[int, ...]) -> None:
        """Add the vertex that chooses by the bytes of stages, of which the last one was just added."""
        nodes = [self.nodes[number] for number in numbers]
        branches = list(self._branches(numbers))
        names = {branch.small: branch.name for branch in branches}
        params = {
            "choice": f"choice_{numbers[-1]}",
            "small": {node.id: names[True] for node in nodes},
            "otherwise": names[False],
            "under": int(branches[0].under),
        }
        manager = Manager("conditional", params | ({"together": True} if len(nodes) > 1 else {}))
        self._deciders[numbers] = self.graph.add(
            ANSWER,
            *map(after, nodes),
            name=f"size_of_{nodes[-1].id}",
            expands=True,
            manager=manager,
            params={"otherwise": names[False]},
        )

    def _branches(self, numbers: tuple[int, ...]) -> dict[Branch, list[VertexHandle]]:
        """Return the vertices of each plan that the bytes of stages decide between."""
        found: dict[Branch, list[VertexHandle]] = {}
        for stage in self._plan.stages:
            for branch in stage.branches:
                if branch.choice == numbers:
                    found.setdefault(branch, []).extend(self.nodes[stage.number : stage.number + 1])
        return found

    def add_choices(self) -> None:
        """Add the choices between plans."""
        for numbers, decider in self._deciders.items():
            branches = {branch.name: nodes for branch, nodes in self._branches(numbers).items()}
            self.graph.choice(decider, name=f"choice_{numbers[-1]}", **branches)


def _read_first(relation: Relation, first: bool = False) -> frozenset[int]:
    """Return the exchanges of which a stage reads all rows before it has a row of its own."""
    if isinstance(relation, Received):
        return frozenset([relation.exchange]) if first else frozenset()
    if isinstance(relation, MayMatch):
        return _read_first(relation.input, first) | _read_first(relation.filter, True)
    if isinstance(relation, Join):
        return _read_first(relation.left, first) | _read_first(relation.right, True)
    first = first or isinstance(relation, Grouping | KeyFilter | Sort | Distinct | Window | SetOperation)
    return frozenset().union(*(_read_first(child, first) for child in children(relation)))


def _filters_keep_matches(relation: Relation) -> bool:
    """Whether filters that DuckDB makes of one side of a join keep all matches: 1.5 loses NaN and NULL in them."""
    lost = isinstance(relation, Join) and any(
        one.operator == "IS NOT DISTINCT FROM" or one.left.type in ("FLOAT", "DOUBLE") for one in relation.conditions
    )
    return not lost and all(map(_filters_keep_matches, children(relation)))


def _key_filters(relation: Relation) -> Iterator[MayMatch]:
    if isinstance(relation, MayMatch):
        yield relation
    for child in children(relation):
        yield from _key_filters(child)


def _keys(number: int) -> str:
    """Return the event of a stage with its keys: a scan may read several stages that have them, of other columns."""
    return f"keys of stage {number}"


def _in_waves(stage: QueryStage) -> bool:
    """Whether the tasks of a stage start in waves: its consumer needs some of its rows."""
    divided = any(exchange.kind in DIVIDED for exchange in stage.exchanges)
    return stage.enough is not None and (bool(stage.table) or divided)


def _joins(stage: QueryStage) -> str:
    """Return the kind of join by which a heavy partition may be split; "" if it may not.

    The manager counts shuffles, so each side has to be one.
    """
    if stage.join is None or any(len(exchange.sources) > 1 for exchange in stage.exchanges[:2]):
        return ""
    return _SPLIT.get(stage.join, "")


_SPLIT: Final = {
    JoinKind.INNER: "inner",
    JoinKind.LEFT: "left",
    JoinKind.SEMI: "left",
    JoinKind.ANTI: "left",
    JoinKind.SINGLE: "left",
    JoinKind.MARK: "left",
    JoinKind.RIGHT: "right",
}
