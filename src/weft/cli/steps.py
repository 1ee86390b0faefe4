"""The output of steps, items of loops and whole runs."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from weft.cli.tables import (
    clean,
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
from weft.model.wording import duration

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
    """Print a table of the steps of a run, with their dags and the items of loops; of training jobs, the replicas."""
    if found.of_jobs and found.jobs:
        from weft.cli.replicas import print_jobs

        print_jobs(context, found)
        return
    from weft.cli.tables import state_text

    now, out = context.clock.wall(), context.console()
    jobs = {job["step"]: _job_line(job) for job in found.jobs}
    print_table(
        out,
        ("STEP", "STATE", "TIME", "MESSAGE"),
        [
            (
                "  " * depth + one_line(step.name, 60),
                state_text(step.state, out),
                took(
                    step.started,
                    step.ended,
                    step.state,
                    now,
                    getattr(step, "paused_s", 0.0),
                    open_end=step.open_end,
                ),
                _remark(step) or jobs.get(step.name, ""),
            )
            for depth, step in _rows(found)
        ],
    )


def _job_line(job: Mapping[str, Any]) -> str:
    """Return a training job of a step with its state."""
    return one_line(f"{job['kind']} {job['name']} {job['condition']}", 120)


_BROKEN: Final = ("failed", "cancelled", "terminated", "interrupted")
_UNBEGUN: Final = ("pending", "skipped", "cancelled")


def print_next(context: CommandContext, found: RunRecord, state: str, where: str) -> None:
    """Print the next commands after the end of a run of a pipeline; `where` are the options that find it."""
    broken = [step.name for word in _BROKEN for step in found.steps if step.state == word and step.started is not None]
    shown = (broken or [step.name for step in found.steps if step.state not in _UNBEGUN][-1:] or [""])[0]
    lines = [f"weft show {found.id}{where}"]
    if state in ("failed", "terminated", "suspended", "interrupted"):
        lines.append(f"weft resume {found.id}{where}")
    if found.of_jobs:
        lines.append(f"weft logs {found.id}{where}")
    elif shown:
        lines.append(f"weft logs {shlex.quote(f'{found.id}/{clean(shown)}')}{where}")
    for at, line in enumerate(lines):
        context.out.write(f"{'' if at else 'next':9}{line}\n")


_ENDED_EARLY: Final = frozenset({"failed", "terminated", "cancelled"})
"""States of a loop that never begins its other items."""
_ITEM_ROWS: Final = 10
"""The maximum number of items of a loop that are shown, besides failed ones."""


def _rows(found: RunRecord) -> Iterator[tuple[int, StepRecord | ItemRecord]]:
    """Yield the steps of a run with their dags and the items of loops, as rows with their depths."""
    from weft.model.ids import loop_item
    from weft.runs.step_tree import tree

    for depth, step in tree(found):
        yield depth, step
        numbers = sorted(step.items)
        if len(numbers) > _ITEM_ROWS:
            numbers = [n for n in numbers if _is_worth_a_row(step.items[n])][:_ITEM_ROWS]
        for number in numbers:
            item = step.items[number]
            yield depth + 1, replace(item, name=loop_item(step.name, number))


def _is_worth_a_row(item: ItemRecord) -> bool:
    return item.state not in ("succeeded", "skipped") or item.warned


def _remark(step: StepRecord | ItemRecord) -> str:
    width, items = getattr(step, "width", None), getattr(step, "items", {})
    if width is not None:
        states = Counter(item.state for item in items.values())
        if step.state in _ENDED_EARLY and len(items) < width:
            states["cancelled"] += width - len(items)
        counts = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
        said = f"{width} items: {counts}" if counts else f"{width} items"
        return f"{said}; {one_line(short_paths(step.message), 120)}" if step.warned else said
    parts = [f"{step.attempts} attempts"] if step.attempts > 1 and step.state != "skipped" else []
    if step.message:
        parts.append(one_line(short_paths(step.message), 120))
    elif step.exit:
        parts.append(f"exit code {step.exit}")
    return ": ".join(parts)


def took(
    started: float | None, ended: float | None, state: str, now: float, paused_s: float = 0.0, *, open_end: bool
) -> str:
    """Return the duration until the end or until now, without pauses; empty if it is not known.

    With an open end it may have taken longer, than until the last sign of life of a killed owner.
    """
    from weft.runs.records import ACTIVE

    if started is None or (ended is None and state not in ACTIVE):
        return ""
    time = duration((now if ended is None else ended) - started - paused_s)
    return f"at least {time}" if open_end else time


def show_step(
    context: CommandContext,
    found: RunRecord,
    name: str,
    inner: Sequence[RunRecord],
    *,
    as_json: bool,
    events: bool = False,
) -> None:
    """Show a step of a run, an item of its loop (`step-2`, `step[2]`), or a dag.

    `inner` are the runs of training jobs that it has begun. `events`: their conditions and events too. NotFoundError:
    it does not exist.
    """
    from weft.cli.tables import state_text
    from weft.model.ids import item_name, loop_item
    from weft.runs.reading import ItemRecord

    if inside := found.dag(name):
        _show_dag(context, found, name, inside, as_json=as_json)
        return
    step, number = found.task(name)
    own = item_name(step.name, number or 0)
    loop = step.width is not None and number is None
    part: StepRecord | ItemRecord = step
    if number is not None and step.width is not None:
        part = replace(step.items.get(number, ItemRecord()), name=loop_item(step.name, number))
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
        ("step", one_line(part.name)),
        ("state", state_text(part.state, out)),
        ("started", moment(part.started)),
        ("time", took(part.started, part.ended, part.state, now, open_end=part.open_end)),
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
        other = ItemRecord(state="cancelled") if step.state in _ENDED_EARLY else ItemRecord()
        items = [(loop_item(step.name, n), step.items.get(n, other)) for n in range(step.width or 0)]
        rows = [
            (
                item,
                state_text(i.state, out),
                took(i.started, i.ended, i.state, now, open_end=i.open_end),
                _remark(i),
            )
            for item, i in items
        ]
        print_table(out, ("ITEM", "STATE", "TIME", "MESSAGE"), rows)
    for begun in () if loop else inner:
        from weft.cli.replicas import print_events, print_failure, print_jobs

        context.out.write("\n")
        print_jobs(context, begun)
        print_failure(context, begun)
        if events:
            print_events(context, begun)


def _show_dag(
    context: CommandContext, found: RunRecord, name: str, inside: Sequence[StepRecord], *, as_json: bool
) -> None:
    """Show the row of a dag, and those of its steps."""
    part = replace(found, steps=[step for step in found.steps if step.name == name or step in inside])
    if as_json:
        document = run_document(part)
        own = next(dag for dag in document["dags"] if dag["name"] == name)
        dag = {**own, "steps": [step for step in document["steps"] if step["name"] != name]}
        print_json(context.out, "weft.dag/1", run=found.id, dag=dag)
        return
    print_steps(context, part)


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
    from weft.model.ids import loop_item

    return {
        "name": loop_item(step, number),
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
