"""`Query.explained`: the stages of a query as planned and as executed, as text, JSON and HTML."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from html import escape
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from weft.model.errors import UsageError
from weft.model.wording import counted, size_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from weft.engine.explain import Change, Explained
    from weft.engine.view import JobView, VertexView
    from weft.frontends.sql.explaining import ExplainedExchange, ExplainedStage

FORMATS: Final = ("text", "json", "html")
_PAGE: Final = "body{font:14px/1.5 system-ui,sans-serif;margin:1.5em}"
_STYLE: Final = (
    ".weft-query table{border-collapse:collapse;margin:.5em 0}"
    ".weft-query td,.weft-query th{border:1px solid #ccc;padding:.3em .6em;text-align:left;vertical-align:top}"
    ".weft-query ul{margin:0;padding-left:1.2em}.weft-query pre{background:#f6f6f6;padding:.6em}"
)


class StageFigures(NamedTuple):
    """What the tasks of a stage have done; `executed` tells the number of tasks in words, as `weft explain` does.

    `seconds` is the sum over its tasks. `rows`, `nbytes` and `seconds` are -1 where they were not counted.
    """

    tasks: int
    finished: int
    executed: str
    rows: int
    nbytes: int
    seconds: float

    def to_json(self) -> dict[str, Any]:
        """Return the same as JSON values."""
        return {
            "tasks": self.tasks,
            "finished": self.finished,
            "executed": self.executed,
            "rows": self.rows,
            "bytes": self.nbytes,
            "seconds": self.seconds,
        }

    def line(self) -> str:
        """Return the figures as text."""
        if self.rows < 0:
            return self.executed
        return f"{self.executed}; {counted(self.rows, 'row')}, {size_text(self.nbytes)}; {self.seconds:.3f} s in tasks"


class PlannedStage(NamedTuple):
    """A stage in words, the number of its tasks as planned, and what they have done, if the query was run.

    `bubble` tells what runs and streams with it, or why nothing does; "" without bubbles.
    """

    stage: ExplainedStage
    planned: str
    figures: StageFigures | None = None
    bubble: str = ""


@dataclass(frozen=True, slots=True)
class ExplainedQuery:
    """How a query runs, or with `state` has run.

    A query without stages runs whole, for the reason `because`; then `whole` has the figures of its one task. `added`
    are the figures of tasks that were not in the plan. `changes` are those of the graph, each with its reason.
    """

    text: str
    because: str
    stages: tuple[PlannedStage, ...]
    state: str = ""
    whole: StageFigures | None = None
    added: Mapping[str, StageFigures] | None = None
    changes: tuple[Change, ...] = ()

    @property
    def mode(self) -> str:
        """Whether the query runs "whole" or in "stages"."""
        return "stages" if self.stages else "whole"

    def written(self, format: str) -> str:
        """Return it as "text", "json" or "html". UsageError: another format."""
        if format not in FORMATS:
            raise UsageError(f"format is {format!r}", hint=f"There are: {', '.join(FORMATS)}.")
        if format == "json":
            return json.dumps(self.to_json(), indent=2)
        return self._document() if format == "html" else "\n".join(self.lines())

    # ------------------------------------------------------------------------------------------------------------ text

    def lines(self) -> list[str]:
        """Return lines of text."""
        return list(self._lines())

    def _lines(self) -> Iterator[str]:
        if not self.stages:
            yield f"one task runs the whole query: {self.because}"
            if self.whole is not None:
                yield f"  executed: {self.whole.line()}"
        for each in self.stages:
            yield f"stage {each.stage.number}: {each.planned}"
            if each.bubble:
                yield f"  {each.bubble}"
            for exchange in each.stage.exchanges:
                yield f"  receives {self.arriving(exchange)}"
            for step in each.stage.steps:
                yield f"  {step}"
            if each.figures is not None:
                yield f"  executed: {each.figures.line()}"
        for name, figures in (self.added or {}).items():
            yield f"{name}: added while the query ran"
            yield f"  executed: {figures.line()}"
        if self.changes:
            yield "changes, and what they were made from:"
        for change in self.changes:
            yield f"{change.at:10.3f}s  {_told(change)}"

    def arriving(self, exchange: ExplainedExchange) -> str:
        """Return what an exchange brings, as planned and as executed."""
        sources = ", ".join(f"stage {source}" for source in exchange.sources)
        text = f"{sources}: {exchange.movement}, at most {size_text(exchange.estimated_bytes)} of files"
        found = self._sent(exchange)
        return text if found is None else f"{text}; executed: {counted(found[0], 'row')}, {size_text(found[1])}"

    def _sent(self, exchange: ExplainedExchange) -> tuple[int, int] | None:
        """Return the rows and bytes that the sources of an exchange have made; None if they were not counted."""
        figures = [self.stages[source].figures for source in exchange.sources]
        known = [one for one in figures if one is not None and one.rows >= 0]
        if not known or len(known) < len(figures):
            return None
        return sum(one.rows for one in known), sum(one.nbytes for one in known)

    def __str__(self) -> str:
        return "\n".join(self.lines())

    # ------------------------------------------------------------------------------------------------------------ JSON

    def to_json(self) -> dict[str, Any]:
        """Return the same as JSON values."""
        stages = []
        for each in self.stages:
            exchanges = []
            for exchange in each.stage.exchanges:
                sent = self._sent(exchange)
                rows, nbytes = sent if sent is not None else (None, None)
                exchanges.append(exchange.to_json() | {"rows": rows, "bytes": nbytes})
            stages.append({
                "stage": each.stage.number,
                "planned": each.planned,
                "bubble": each.bubble or None,
                "table": each.stage.table or None,
                "steps": list(each.stage.steps),
                "receives": exchanges,
                "executed": None if each.figures is None else each.figures.to_json(),
            })  # fmt: skip
        return {
            "query": self.text,
            "mode": self.mode,
            "because": self.because,
            "state": self.state,
            "stages": stages,
            "whole": None if self.whole is None else self.whole.to_json(),
            "added": {name: figures.to_json() for name, figures in (self.added or {}).items()},
            "changes": [change._asdict() for change in self.changes],
        }

    # ------------------------------------------------------------------------------------------------------------ HTML

    def _repr_html_(self) -> str:
        return f"<style>{_STYLE}</style>{self._body()}"

    def _document(self) -> str:
        head = f'<head><meta charset="utf-8"><title>Query</title><style>{_PAGE}{_STYLE}</style></head>'
        return f"<!DOCTYPE html>\n<html>{head}<body>{self._body()}</body></html>\n"

    def _body(self) -> str:
        parts = [f"<pre>{escape(self.text)}</pre>"]
        if not self.stages:
            parts.append(f"<p>One task runs the whole query: {escape(self.because)}</p>")
            if self.whole is not None:
                parts.append(f"<p>Executed: {escape(self.whole.line())}</p>")
        else:
            parts.append(self._table())
        if self.changes:
            rows = "".join(
                f"<tr><td>{change.at:.3f} s</td><td>{escape(_told(change))}</td></tr>" for change in self.changes
            )
            parts.append(f"<table><thead><tr><th>at</th><th>change, and its reason</th></tr></thead>{rows}</table>")
        return f'<div class="weft-query">{"".join(parts)}</div>'

    def _table(self) -> str:
        heads = ["stage", "receives", "computes", "planned"] + (["executed"] if self.state else [])
        rows = []
        for each in self.stages:
            cells = [
                str(each.stage.number),
                _list([self.arriving(exchange) for exchange in each.stage.exchanges]),
                _list(each.stage.steps),
                escape(f"{each.planned}; {each.bubble}" if each.bubble else each.planned),
            ]
            if self.state:
                cells.append(escape(each.figures.line()) if each.figures is not None else "")
            rows.append(cells)
        for name, figures in (self.added or {}).items():
            rows.append([escape(name), "", "", "(added)", escape(figures.line())])
        body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>" for cells in rows)
        head = "".join(f"<th>{head}</th>" for head in heads)
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def executed(planned: ExplainedQuery, view: JobView, explained: Explained) -> ExplainedQuery:
    """Return an explained query with what a run of it has done."""
    words = {row.subject: row.executed for row in explained.rows}
    figures = {vertex.id: _figures(vertex, words.get(vertex.id, "")) for vertex in view.vertices}
    stages = tuple(each._replace(figures=figures.pop(vertex_of(each), None)) for each in planned.stages)
    whole = None if stages else figures.pop(next(iter(figures)), None)
    return replace(planned, stages=stages, state=explained.state, whole=whole, added=figures, changes=explained.changes)


def vertex_of(each: PlannedStage) -> str:
    """Return the id of the vertex of a stage."""
    return f"stage_{each.stage.number}"


def _figures(vertex: VertexView, words: str) -> StageFigures:
    text = words or counted(max(vertex.n, 0), "task")
    return StageFigures(vertex.n, vertex.finished, text, vertex.rows, vertex.nbytes, round(vertex.seconds, 6))


def _told(change: Change) -> str:
    seen = f" (seen: {change.seen})" if change.seen else ""
    return f"{change.subject}: {change.what}{seen}"


def _list(texts: list[str] | tuple[str, ...]) -> str:
    return f"<ul>{''.join(f'<li>{escape(text)}</li>' for text in texts)}</ul>" if texts else ""
