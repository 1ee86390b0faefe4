"""The output of steps, items of loops and whole runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from weft.cli.tables import (
    duration,
    iso,
    moment,
    one_line,
    output_path,
    print_json,
    print_table,
    short_path,
    short_paths,
)
from weft.model.records import as_dict

if TYPE_CHECKING:
    from weft.cli.context import CommandContext
    from weft.runs.reading import ItemRecord, RunRecord, StepRecord


MOST_OUTPUTS: Final = 10
"""The maximum number of outputs of a run that are printed."""


def more_outputs(count: int, run: str, where: str = "") -> str:
    """Return a line with the number of outputs not printed and the command that prints them, or ""."""
    left = count - MOST_OUTPUTS
    return f"and {left:,} more: weft show {run} --json{where}" if left > 0 else ""


def in_python(found: RunRecord) -> str:
    """Return the code by which a program reads the results of a run that a session began."""
    state = str(found.folder.absolute().parent.parent)
    return f"in Python: weft.Session(durable={state!r}).resume({found.id!r}).result()"


def print_steps(context: CommandContext, found: RunRecord) -> None:
    """Print a table of the steps of a run, with their dags and the items of loops."""
    from weft.cli.tables import state_text

    now = context.clock.wall()
    print_table(
        context.console(),
        ("STEP", "STATE", "TIME", "MESSAGE"),
        [
            (
                "  " * depth + one_line(step.name, 60),
                state_text(step.state, context.out),
                took(step.started, step.ended, step.state, now, getattr(step, "paused_s", 0.0)),
                _remark(step),
            )
            for depth, step in _rows(found)
        ],
    )


_ITEM_ROWS: Final = 10
"""The maximum number of items of a loop that are shown, besides failed ones."""


def _rows(found: RunRecord) -> Iterator[tuple[int, StepRecord | ItemRecord]]:
    """Yield the steps of a run with their dags and the items of loops, as rows with their depths."""
    from weft.model.ids import item_name
    from weft.runs.step_tree import tree

    for depth, step in tree(found):
        yield depth, step
        numbers = sorted(step.items)
        if len(numbers) > _ITEM_ROWS:
            numbers = [n for n in numbers if step.items[n].state not in ("succeeded", "skipped")][:_ITEM_ROWS]
        for number in numbers:
            item = step.items[number]
            yield depth + 1, replace(item, name=item_name(step.name, number))


def _remark(step: StepRecord | ItemRecord) -> str:
    width, items = getattr(step, "width", None), getattr(step, "items", {})
    if width is not None:
        states = Counter(item.state for item in items.values())
        counts = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
        return f"{width} items: {counts}" if counts else f"{width} items"
    parts = [f"{step.attempts} attempts"] if step.attempts > 1 and step.state != "skipped" else []
    if step.message:
        parts.append(one_line(short_paths(step.message), 120))
    elif step.exit:
        parts.append(f"exit code {step.exit}")
    return ": ".join(parts)


def took(started: float | None, ended: float | None, state: str, now: float, paused_s: float = 0.0) -> str:
    """Return the duration until the end or until now, without pauses; empty if it is not known.

    An interrupted step may have run longer than its last sign of life.
    """
    from weft.runs.records import ACTIVE, INTERRUPTED

    if started is None or (ended is None and state not in ACTIVE):
        return ""
    time = duration((now if ended is None else ended) - started - paused_s)
    return f"at least {time}" if state == INTERRUPTED else time


def show_step(context: CommandContext, found: RunRecord, name: str, *, as_json: bool) -> None:
    """Show one step of a run, or one item of its loop (`step-2`, `step[2]`). NotFoundError: it does not exist."""
    from weft.cli.tables import state_text
    from weft.model.ids import item_name
    from weft.runs.reading import ItemRecord

    step, number = found.task(name)
    own = item_name(step.name, number or 0)
    loop = step.width is not None and number is None
    part: StepRecord | ItemRecord = step
    if number is not None and step.width is not None:
        part = replace(step.items.get(number, ItemRecord()), name=own)
    logs = [log for log in step.logs if number is None or (log.index or 0) == number]
    outputs = {key.rpartition(".")[2]: path for key, path in found.outputs.items() if key.rpartition(".")[0] == own}
    if as_json:
        document = _step_document(step) if part is step else _item_document(step.name, number or 0, part)
        document["logs"] = [{"path": log.path, "index": log.index, "attempt": log.attempt} for log in logs]
        print_json(context.out, "weft.step/1", run=found.id, step={**document, "outputs": {} if loop else outputs})
        return
    now = context.clock.wall()
    out = context.console()
    head: list[tuple[str, Any]] = [
        ("run", found.id),
        ("step", one_line(own)),
        ("state", state_text(part.state, context.out)),
        ("started", moment(part.started)),
        ("time", took(part.started, part.ended, part.state, now)),
        ("attempts", str(part.attempts) if part.attempts > 1 else ""),
        ("exit code", "" if part.exit is None else str(part.exit)),
        ("items", _remark(step) if loop else ""),
        ("message", one_line(part.message, 2000)),
        *((f"output {one_line(key, 40)}", output_path(path, context.cwd)) for key, path in outputs.items() if not loop),
        *(("log", short_path(log.path, context.cwd)) for log in logs if not loop),
    ]
    width = max(len(key) for key, value in head if value)
    for key, value in head:
        if value:
            out.print(f"{key:{width}} ", value)
    if loop:
        context.out.write("\n")
        items = [(item_name(step.name, n), step.items.get(n, ItemRecord())) for n in range(step.width or 0)]
        rows = [
            (item, state_text(i.state, context.out), took(i.started, i.ended, i.state, now), _remark(i))
            for item, i in items
        ]
        print_table(out, ("ITEM", "STATE", "TIME", "MESSAGE"), rows)


def _step_document(step: StepRecord) -> dict[str, Any]:
    return {
        "name": step.name,
        "state": step.state,
        "started_at": iso(step.started),
        "ended_at": iso(step.ended),
        "attempts": step.attempts,
        "exit": step.exit,
        "message": step.message,
        "logs": [{"path": log.path, "index": log.index, "attempt": log.attempt} for log in step.logs],
        "items": [_item_document(step.name, number, item) for number, item in sorted(step.items.items())],
    }


def _item_document(step: str, number: int, item: StepRecord | ItemRecord) -> dict[str, Any]:
    from weft.model.ids import item_name

    return {
        "name": item_name(step, number),
        "state": item.state,
        "started_at": iso(item.started),
        "ended_at": iso(item.ended),
        "attempts": item.attempts,
        "exit": item.exit,
        "message": item.message,
    }


def run_document(found: RunRecord) -> dict[str, Any]:
    """Return the JSON document of a run."""
    from weft.runs.step_tree import tree

    document = as_dict(found)
    for name in ("created", "started", "ended"):
        document[f"{name}_at"] = iso(document.pop(name) or None)
    code, message = document.pop("error_code"), document.pop("message")
    document["error"] = {"code": code, "message": message} if code else None
    document["paused_s"] = round(found.paused_s, 3)
    del document["pauses"]
    document["steps"] = [_step_document(step) for step in found.steps]
    names = {step.name for step in found.steps}
    document["dags"] = [
        {
            "name": dag.name,
            "state": dag.state,
            "started_at": iso(dag.started),
            "ended_at": iso(dag.ended),
            "paused_s": round(dag.paused_s, 3),
        }
        for _, dag in tree(found)
        if dag.name not in names or any(name.startswith(f"{dag.name}.") for name in names)
    ]
    return document
