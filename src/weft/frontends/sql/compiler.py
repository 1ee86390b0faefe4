"""Compiles the stages of a query to a graph: a vertex for each stage, an edge for each exchange."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from weft.frontends.sql.relations import Join, JoinKind, Relation, children
from weft.frontends.sql.stages import Exchange, ExchangeKind, QueryPlan, QueryStage
from weft.frontends.sql.text import name_of, received, sql_of
from weft.graph.builder import Graph, InputSpec, VertexHandle, after, gather, one_to_one, shuffle
from weft.graph.logical import Manager, Range, Trigger

if TYPE_CHECKING:
    from weft.frontends.sql.tables import TableSplits

RUN: Final = "weft.frontends.sql.fragment:run_fragment"
ANSWER: Final = "weft.frontends.sql.fragment:unknown_size"
SPLIT: Final = "split_rows"
ENOUGH: Final = "enough"
WAYS: Final = 8
"""The tasks of a join for each partition, at most, if its heavy partitions are split."""


def compile_plan(
    plan: QueryPlan, tables: Mapping[str, TableSplits], *, name: str, partitions: int, target: int
) -> tuple[Graph, VertexHandle]:
    """Return the graph of a plan and the node that delivers its rows.

    A shuffle has `partitions` partitions, and its readers take `target` bytes each.
    """
    compiler = _Compiler(plan, tables, name, partitions, target)
    for stage in plan.stages:
        compiler.add(stage)
    compiler.add_choices()
    return compiler.graph, compiler.nodes[-1]


class _Compiler:
    def __init__(
        self, plan: QueryPlan, tables: Mapping[str, TableSplits], name: str, partitions: int, target: int
    ) -> None:
        self.graph = Graph(name)
        self.nodes: list[VertexHandle] = []
        self._plan, self._tables = plan, tables
        self._partitions, self._target = partitions, target
        exchanges = [exchange for stage in plan.stages for exchange in stage.exchanges]
        self._hashed: dict[int, Exchange] = {
            source: exchange
            for exchange in exchanges
            if exchange.kind is ExchangeKind.HASH
            for source in exchange.sources
        }
        self._same = {source for one in exchanges if one.kind is ExchangeKind.SAME for source in one.sources}
        self._deciders: dict[int, VertexHandle] = {}
        self._deciding = {stage.branch.choice for stage in plan.stages if stage.branch is not None}

    def add(self, stage: QueryStage) -> None:
        """Add the vertex of a stage, and behind it the choice that its bytes decide."""
        inputs: list[InputSpec] = []
        tables = []
        for exchange in stage.exchanges:
            columns = [(name_of(at), of) for at, of in enumerate(exchange.types)]
            first = len(inputs)
            for source in exchange.sources:
                edge = f"stage_{source}->stage_{stage.number}"
                again = f":{len(inputs)}" if any(one.name == edge for one in inputs) else ""
                inputs.append(self._input(exchange, source, edge + again))
            tables.append((received(exchange.number), [one.name for one in inputs[first:]], columns))
        params: dict[str, Any] = {"sql": sql_of(stage.relation, {stage.table: SPLIT}), "received": tables}
        sent = self._hashed.get(stage.number)
        if sent is not None:
            keys = ", ".join(key.text(name_of) for key in sent.keys)
            params["sql"] = f"SELECT *, CAST(hash({keys}) % {self._partitions} AS USMALLINT) FROM ({params['sql']})"
            params["partitions"] = self._partitions
        if not _filters_keep_matches(stage.relation):
            params["join_filters"] = False
        if stage.keys is not None:
            params["keys"] = (_keys(stage.number), stage.keys)
        more = self._scan(stage, params, inputs) if stage.table else self._reader(stage)
        node = self.graph.task(RUN, *inputs, name=f"stage_{stage.number}", params=params, counted=True, **more)
        self.nodes.append(node)
        if stage.number in self._deciding:
            self._add_decider(stage.number, node)

    def _input(self, exchange: Exchange, source: int, name: str) -> InputSpec:
        node = self.nodes[source]
        if exchange.kind is ExchangeKind.HASH:
            return shuffle(node, self._partitions, name=name)
        if exchange.kind is ExchangeKind.SAME:
            return one_to_one(node, name=name)
        if _in_waves(self._plan.stages[source]):
            return gather(node, when=Trigger.EVENT, event=ENOUGH, name=name)
        return gather(node, name=name)

    def _scan(self, stage: QueryStage, params: dict[str, Any], inputs: list[InputSpec]) -> dict[str, Any]:
        """Return the splits of a scan and what decides which of them are read."""
        table = self._tables[stage.table]
        params |= {"split": SPLIT, "folders": table.folders}
        if _in_waves(stage):
            return {
                "items": table.rows(),
                "manager": Manager("waves", {"rows": stage.enough, "event": ENOUGH}),
            }
        pruning = stage.pruning if stage.number not in self._same else None  # a task for each of its readers
        bounds = table.bounds(pruning.column, pruning.type) if pruning is not None else None
        if pruning is None or bounds is None:
            return {"items": table.rows()}
        if all(pruning.small not in exchange.sources for exchange in stage.exchanges):
            inputs.append(after(self.nodes[pruning.small]))
        items = [
            {"rows": rows, "low": low, "high": high} for rows, (low, high) in zip(table.rows(), bounds, strict=True)
        ]
        return {
            "items": items,
            "manager": Manager("pruning", {"key": "low", "high": "high", "event": _keys(pruning.small)}),
        }

    def _reader(self, stage: QueryStage) -> dict[str, Any]:
        """Return the number of tasks of a stage that scans no table, by what it reads."""
        if all(exchange.kind is not ExchangeKind.HASH for exchange in stage.exchanges):
            return {}
        join = _joins(stage)
        manager = Manager("shuffle", {"target": self._target} | ({"join": join} if join else {}))
        return {"n": Range(1, self._partitions * (WAYS if join else 1)), "manager": manager}

    def _add_decider(self, number: int, node: VertexHandle) -> None:
        params = {
            "choice": f"join_{number}",
            "small": {node.id: "copied"},
            "otherwise": "exchanged",
            "under": int(self._plan.small),
        }
        manager = Manager("conditional", params)
        self._deciders[number] = self.graph.add(
            ANSWER, after(node), name=f"size_of_{node.id}", expands=True, manager=manager
        )

    def add_choices(self) -> None:
        """Add the choices between plans of joins."""
        for number, decider in self._deciders.items():
            branches: dict[str, list[VertexHandle]] = {"copied": [], "exchanged": []}
            for stage, node in zip(self._plan.stages, self.nodes, strict=True):
                if stage.branch is not None and stage.branch.choice == number:
                    branches["copied" if stage.branch.copied else "exchanged"].append(node)
            self.graph.choice(decider, name=f"join_{number}", **branches)


def _filters_keep_matches(relation: Relation) -> bool:
    """Whether filters that DuckDB makes of one side of a join keep all matches: 1.5 loses NaN and NULL in them."""
    lost = isinstance(relation, Join) and any(
        one.operator == "IS NOT DISTINCT FROM" or one.left.type in ("FLOAT", "DOUBLE") for one in relation.conditions
    )
    return not lost and all(map(_filters_keep_matches, children(relation)))


def _keys(number: int) -> str:
    """Return the event of a stage with its keys: a scan may read several stages that have them, of other columns."""
    return f"keys of stage {number}"


def _in_waves(stage: QueryStage) -> bool:
    """Whether the tasks of a stage start in waves: its consumer needs some of its rows."""
    return stage.enough is not None and bool(stage.table)


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
