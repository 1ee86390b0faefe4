"""The page of a run: one HTML file that needs no network and runs no script."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from weft._version import __version__
from weft.model.ids import loop_item
from weft.model.wording import counted, size_text
from weft.runs.reports.drawn import counts_text, worst
from weft.runs.reports.facts import MOST_LOGS, MOST_OUTPUTS
from weft.runs.reports.markup import PAGE_POLICY, cut, number, table, text, time_text
from weft.runs.reports.picture import svg_graph
from weft.runs.reports.spans import without_pauses
from weft.runs.reports.style import RUN_STYLE
from weft.runs.reports.timeline import time_line
from weft.store.places import shown_path

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from weft.runs.reading import ItemRecord, RunRecord, StepRecord
    from weft.runs.reasons import Reasons
    from weft.runs.reports.facts import RunReport
    from weft.runs.reports.spans import AttemptSpan

MOST_STEPS: Final = 150
"""The number of rows of steps up to which each step has one."""
_MOST_BROKEN: Final = 40
_MOST_ITEMS: Final = 12
_MOST_CHANGES: Final = 200
_MOST_LINES: Final = 6
_MOST_EVENTS: Final = 100
_DIGITS: Final = re.compile(r"[0-9]+")
_SIGNS: Final[Mapping[str, str]] = {
    "succeeded": "✓",
    "failed": "✗",
    "running": "▸",
    "terminating": "■",
    "terminated": "■",
    "cancelled": "○",
    "skipped": "↷",
    "interrupted": "!",
    "suspended": "‖",
    "pending": "·",
}
_BROKEN: Final = ("failed", "terminated", "interrupted")
_FACTS: Final = (
    ("backend", "backend"),
    ("durability", "durability"),
    ("docker_env", "images of steps"),
    ("main_fs", "main file system"),
    ("isolation", "isolation"),
    ("compat", "rules of jobs"),
    ("refresh", "steps run again"),
    ("from", "run again from"),
    ("only", "only step"),
    ("targets", "targets"),
)
"""The keys of the description of a run that a report tells, with their names."""
_SESSION: Final = ("workers", "memory", "gpus", "gpu_type", "eviction", "stream_window", "cluster")


def run_page(report: RunReport, base: Path) -> str:
    """Return the page of a report that lies in the folder `base`, from which outputs and logs are linked."""
    run = report.run
    name = run.name or run.id
    sections = [
        ("graph", "Graph", _graph(report)),
        ("times", "Time line", _times(report)),
        ("jobs", "Training jobs", _jobs([("", run), *report.inner], report.job_reasons)),
        ("steps", "Replicas" if run.of_jobs else "Steps", _steps(report)),
        ("waits", "What waits", _waits(report)),
        ("logs", "Logs of failed tasks", _logs(report, base)),
        ("metrics", "Metrics", _metrics(report)),
        ("parameters", "Parameters", _parameters(run)),
        ("inputs", "Inputs", _inputs(report)),
        ("outputs", "Outputs", _outputs(report, base)),
        ("plan", "Plan and execution", _plan(report)),
        ("environment", "Environment", _environment(report)),
    ]
    shown = [(id, title, content) for id, title, content in sections if content]
    links = "".join(f'<li><a href="#{id}">{title}</a></li>' for id, title, _ in shown)
    body = "".join(
        f'<section id="{id}" aria-labelledby="h-{id}"><h2 id="h-{id}">{title}</h2>{content}</section>'
        for id, title, content in shown
    )
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{text(name)} {text(run.id)}: '
        f"{text(run.state)}</title>"
        f'<meta http-equiv="Content-Security-Policy" content="{PAGE_POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{RUN_STYLE}</style></head><body><main>{_head(report)}"
        f'<nav aria-label="Sections"><ul>{links}</ul></nav>{body}'
        f"<footer>{_foot(report)}</footer></main></body></html>\n"
    )


# ----------------------------------------------------------------------------------------------------------------- head


def _head(report: RunReport) -> str:
    run = report.run
    tasks = sum(len(step.items) or 1 for _, step in report.rows if step.started is not None or step.items)
    facts = {
        "run": run.id,
        "started": _moment(run.started),
        "ended": _later(run.started, run.ended),
        "took": _took(run.started, run.ended, report.made, run.paused_s, open_end=run.state == "interrupted"),
        "busy in tasks": "" if report.busy_s is None else time_text(report.busy_s),
        "steps that began": ""
        if run.of_jobs
        else f"{sum(step.started is not None for step in run.steps):,} of {len(run.steps):,}",
        "tasks with records": f"{tasks:,}" if tasks > len(run.steps) else "",
        "tags": ", ".join(f"{name}={value}" if value else name for name, value in run.tags.items()),
        "user": f"{run.user} at {run.host}" if run.host else run.user,
        "file": shown_path(os.path.relpath(run.file, report.project)) if run.file else "",
    }
    listed = "".join(f"<div><dt>{name}</dt><dd>{text(value)}</dd></div>" for name, value in facts.items() if value)
    state = text(run.state)
    return (
        f'<header><h1>{text(run.name or run.id)} <span class="state s-{state}">{_sign(run.state)} {state}</span></h1>'
        f'<dl class="facts">{listed}</dl>{_note(report)}</header>'
    )


def _note(report: RunReport) -> str:
    run = report.run
    lines = [text(run.note).replace("\n", "<br>")] if run.note else []
    if run.message:
        code = f"{text(run.error_code)}: " if run.error_code else ""
        first = run.message.partition("\n")[0]
        lines.append(f"<b>{code}{text(cut(first, 2000))}</b>")
    if report.live:
        lines.append("The run has not ended: this is its state when the report was made.")
    if run.state in ("suspended", "interrupted"):
        lines.append(f"It goes on with <code>weft resume {text(run.id)}</code>.")
    lines += [text(f"{remark[0].upper()}{remark[1:]}.") for remark in report.remarks if remark]
    bad = " bad" if run.state in _BROKEN else ""
    return f'<div class="note{bad}">{"".join(f"<p>{line}</p>" for line in lines)}</div>' if lines else ""


def _foot(report: RunReport) -> str:
    made = _moment(report.made)
    return f"Made by Weft {text(__version__)} at {made} from the folder of the run. This file loads nothing."


# ------------------------------------------------------------------------------------------------------ graph and times


def _graph(report: RunReport) -> str:
    graph = report.graph
    if not graph.boxes:
        return ""
    states = Counter(step.state for step in report.run.steps) or Counter(box.state for box in graph.boxes)
    keys = "".join(
        f'<span class="key s-{text(state)}"><i class="dot-s"></i>{text(counts_text({state: count}))}</span>'
        for state, count in sorted(states.items(), key=lambda one: -one[1])
    )
    grouped = f'<p class="soft">{text(graph.title)}.</p>' if graph.is_grouped else ""
    return (
        f'{grouped}<div class="wide" tabindex="0" role="region" aria-label="{text(graph.title)}">'
        f"{svg_graph(graph)}</div>"
        f'<div class="legend">{keys}</div>'
    )


def _times(report: RunReport) -> str:
    run = report.run
    spans: Mapping[str, Sequence[AttemptSpan]] = {name: found for name, found in report.spans.items() if found}
    if run.started is None or not spans:
        return ""
    told = ""
    if run.pauses:
        spans = without_pauses(spans, run.pauses)
        told = f'<p class="soft">The {time_text(run.paused_s)} that the run had no owner are left out.</p>'
    begin = min(run.started, *(found[0].started for found in spans.values()))
    end = max((run.ended or begin) - run.paused_s, *(span.ended for found in spans.values() for span in found))
    return time_line(spans, begin, end, whole=run.of_session) + told


# ---------------------------------------------------------------------------------------------------------------- steps


def _steps(report: RunReport) -> str:
    rows = report.rows
    if len(rows) <= MOST_STEPS:
        cells = [row for depth, step in rows for row in _step_rows(report, depth, step)]
    else:
        cells = [*_group_rows(report), *_broken_rows(report)]
    heads = ("replica" if report.run.of_jobs else "step", "state", "why", "from", "time", "busy", "attempts")
    return table("The steps of the run", heads, cells, numeric=(3, 4, 5, 6))


def _step_rows(report: RunReport, depth: int, step: StepRecord) -> Iterator[Sequence[str]]:
    """Yield the row of a step, and those of items of it that did not succeed, or of all replicas of a type."""
    run = report.run
    spans = report.spans.get(step.name, ())
    busy = sum(span.seconds for span in spans)
    yield (
        f'<span class="in{min(depth, 3)}">{text(cut(step.name, 200))}</span>',
        _state(step.state),
        text(_why(report, step)),
        _from(report, step.started),
        _took(step.started, step.ended, report.made, step.paused_s, open_end=step.open_end),
        time_text(busy) if spans and not run.of_session else "",
        f"{len(spans):,}" if len(spans) > 1 else f"{step.attempts}" if step.attempts > 1 else "",
    )
    listed = [
        (at, item)
        for at, item in sorted(step.items.items())
        if run.of_jobs or item.state not in ("succeeded", "skipped")
    ]
    for at, item in listed[:_MOST_ITEMS]:
        own = [span for span in spans if span.index == at]
        yield (
            f'<span class="in{min(depth + 1, 3)}">{text(loop_item(step.name, at))}</span>',
            _state(item.state),
            text(_message(item)),
            _from(report, item.started),
            _took(item.started, item.ended, report.made, 0.0, open_end=item.open_end),
            time_text(sum(span.seconds for span in own)) if own else "",
            f"{item.attempts}" if item.attempts > 1 else "",
        )
    if len(listed) > _MOST_ITEMS:
        rest = Counter(item.state for _, item in listed[_MOST_ITEMS:])
        yield (
            f'<span class="in{min(depth + 1, 3)}">{len(listed) - _MOST_ITEMS:,} further items</span>',
            "",
            text(counts_text(rest)),
            *("", "", "", ""),
        )


def _group_rows(report: RunReport) -> Iterator[Sequence[str]]:
    """Yield a row for all steps whose names differ only in numbers; those that no row is left for share the last."""
    groups: dict[str, list[StepRecord]] = {}
    for _, step in report.rows:
        groups.setdefault(_DIGITS.sub("*", step.name), []).append(step)
    named = list(groups.items())
    if len(named) > MOST_STEPS:
        rest = [step for _, steps in named[MOST_STEPS - 1 :] for step in steps]
        named = [*named[: MOST_STEPS - 1], ("further steps", rest)]
    for stem, steps in named:
        if len(steps) == 1:
            yield from _step_rows(report, 0, steps[0])
            continue
        states = Counter(step.state for step in steps)
        begun = [step.started for step in steps if step.started is not None]
        ended = [step.ended for step in steps if step.ended is not None]
        spans = [span for step in steps for span in report.spans.get(step.name, ())]
        why = Counter(reason for step in steps if (reason := _why(report, step)))
        reasons = [f"{counted(count, 'step')}: {reason}" for reason, count in why.most_common(_MOST_LINES)]
        yield (
            text(f"{cut(stem, 200)} ({counted(len(steps), 'step')})"),
            f'{_state(worst(states))}<br><span class="dim">{text(counts_text(states))}</span>',
            text("\n".join(reasons)),
            _from(report, min(begun, default=None)),
            _took(min(begun, default=None), max(ended, default=None), report.made, 0.0, open_end=False),
            time_text(sum(span.seconds for span in spans)) if spans and not report.run.of_session else "",
            f"{len(spans):,}" if spans and not report.run.of_session else "",
        )


def _broken_rows(report: RunReport) -> Iterator[Sequence[str]]:
    """Yield the rows of steps that failed, of a run with too many steps for a row each."""
    broken = [step for _, step in report.rows if step.state in _BROKEN]
    for step in broken[:_MOST_BROKEN]:
        yield from _step_rows(report, 1, step)


def _why(report: RunReport, step: StepRecord) -> str:
    """Return the message of a step and why it ran, was reused, or has not run."""
    lines = [_message(step)]
    reasons = report.reasons.get(step.name)
    if reasons is not None:
        if step.state in ("skipped", "cancelled") and step.message:
            return lines[0]
        told = list(_reason_lines(reasons, report.run))
        if len(told) > _MOST_LINES:
            told = [*told[:_MOST_LINES], f"and {len(told) - _MOST_LINES:,} further reasons"]
        lines += told
    if any(line.startswith(lines[0]) for line in lines[1:]):
        del lines[0]
    return "\n".join(line for line in lines if line)


def _reason_lines(reasons: Reasons, run: RunRecord) -> Iterator[str]:
    if reasons.items:
        for each in reasons.items:
            yield from (f"{each.step}: {line}" for line in _reason_lines(each, run))
    elif reasons.outcome == "none":
        if not run.of_session or reasons.reason.startswith("it has not started"):
            yield reasons.reason
    else:
        yield f"{'taken from the cache' if reasons.outcome == 'hit' else 'ran'}: {reasons.reason}"
        yield from (f"also {each}" for each in reasons.differences[1:] if each not in reasons.reason)


def _message(part: StepRecord | ItemRecord) -> str:
    if part.message:
        return cut(part.message.partition("\n")[0], 400)
    return f"exit code {part.exit}" if part.exit else ""


def _waits(report: RunReport) -> str:
    waits = report.waits[:MOST_OUTPUTS]
    rows = [(text(wait.subject), text(wait.text), f"{wait.n:,}") for wait in waits]
    return table("What waits, and for what", ("step", "waits", "tasks"), rows, numeric=(2,))


# ----------------------------------------------------------------------------------------------------------------- logs


def _logs(report: RunReport, base: Path) -> str:
    parts = []
    for at, log in enumerate(report.logs):
        whole = "" if log.whole else '<p class="soft">The last lines:</p>'
        said = (
            f"<pre>{text(log.lines.rstrip())}</pre>" if log.lines.strip() else '<p class="soft">It printed nothing.</p>'
        )
        message = f": {text(cut(log.message, 200))}" if log.message else ""
        parts.append(
            f"<details{' open' if at < 3 else ''}><summary>{text(log.task)}{message}</summary>{whole}{said}"
            f"<p>{_link(log.path, base, report.project)}</p></details>"
        )
    if len(parts) == MOST_LOGS:
        parts.append(f'<p class="soft">All logs: <code>weft logs {text(report.run.id)}</code></p>')
    return "".join(parts)


def _link(path: Path, base: Path, project: Path) -> str:
    """Return a link to a file, relative to the folder of the page."""
    href = quote(os.fsencode(os.path.relpath(path, base)))
    return f'<a href="{text(href)}"><code>{text(_below(path, project))}</code></a>'


def _below(path: Path, project: Path) -> str:
    return shown_path(str(path.relative_to(project) if path.is_relative_to(project) else path))


# ------------------------------------------------------------------------------------------ parameters, in- and outputs


def _parameters(run: RunRecord) -> str:
    rows = [
        (text(name), f"<code>{text(cut(_value(value), 2000))}</code>")
        for name, value in list(run.parameters.items())[:MOST_OUTPUTS]
    ]
    return table("Parameters", ("parameter", "value"), rows) + _left(len(run.parameters), "parameter", run)


def _value(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _inputs(report: RunReport) -> str:
    rows = [(text(one.step), text(one.name), _digest(one.digest)) for one in report.inputs]
    return _folded(table("Inputs", ("step", "input", "digest"), rows), counted(len(rows), "input"), len(rows))


def _outputs(report: RunReport, base: Path) -> str:
    rows = [
        (
            text(one.name),
            _link(one.path, base, report.project),
            text(one.kind if one.kind != "folder" else counted(one.files, "file")),
            "" if one.kind in ("missing", "other") else "many" if one.size is None else size_text(one.size),
            _digest(one.digest),
        )
        for one in report.outputs
    ]
    shown = table("Outputs", ("output", "path", "kind", "size", "digest"), rows, numeric=(3,))
    return shown + _left(len(report.run.outputs), "output", report.run)


def _digest(digest: str) -> str:
    return f'<code title="{text(digest)}">{text(cut(digest, 16))}</code>' if digest else ""


def _left(count: int, noun: str, run: RunRecord) -> str:
    left = count - MOST_OUTPUTS
    told = f"{counted(left, f'further {noun}')}: <code>weft show {text(run.id)} --json</code>"
    return f'<p class="soft">{told}</p>' if left > 0 else ""


def _folded(shown: str, summary: str, count: int) -> str:
    """Return a long table behind its summary, a short one as it is."""
    return f"<details><summary>{summary}</summary>{shown}</details>" if shown and count > 12 else shown


def _metrics(report: RunReport) -> str:
    rows = [(text(one.name), number(one.value), text(one.source)) for one in report.metrics]
    return table("Metrics", ("metric", "value", "from"), rows, numeric=(1,))


# ----------------------------------------------------------------------------------------------------------------- jobs


def _jobs(runs: Sequence[tuple[str, RunRecord]], reasons: Sequence[str]) -> str:
    told = "".join(f"<p>{text(line)}</p>" for line in reasons)
    return told + "".join(_job(step, run, job) for step, run in runs if run.of_jobs for job in run.jobs)


def _job(step: str, run: RunRecord, job: Mapping[str, Any]) -> str:
    title = f"{job['kind']} {job['name']} {job['condition']}" + (f" (step {step})" if step else "")
    conditions = [
        (text(one["type"]), text(one["status"]), _moment(one.get("changed_at")), text(one.get("message", "")))
        for one in job["status"].get("conditions", ())
    ]
    usage = [
        (text(name), time_text(used.get("cpu_s", 0.0)), size_text(used.get("memory", 0)))
        for name, used in sorted(job.get("usage", {}).items())[:MOST_OUTPUTS]
    ]
    events = [
        (_moment(at), text(kind), text(reason), text(message))
        for at, kind, reason, message in list(job.get("events", ()))[-_MOST_EVENTS:]
    ]
    return (
        f"<h3>{text(title)}</h3>"
        + table(f"Conditions of {job['name']}", ("condition", "holds", "since", "message"), conditions)
        + table(f"Usage of {job['name']}", ("replica", "processor time", "memory"), usage, numeric=(1, 2))
        + _folded(
            table(f"Events of {job['name']}", ("time", "type", "reason", "message"), events),
            counted(len(events), "event"),
            len(events) + _MOST_ITEMS if events else 0,
        )
    )


# ------------------------------------------------------------------------------------------------- plan and environment


def _plan(report: RunReport) -> str:
    other = [
        (text(row.subject), text(row.kind), text(row.planned), text(row.executed))
        for row in report.explained.rows
        if row.planned != row.executed
        and "(not known)" not in (row.planned, row.executed)
        and not (row.kind == "vertex" and (row.planned in row.executed or row.executed == "skipped"))
    ]
    changes = [
        (f"{change.at:.3f} s", text(change.subject), text(change.what), text(change.seen))
        for change in report.explained.changes[-_MOST_CHANGES:]
    ]
    rows = table(
        "What was executed otherwise than planned", ("what", "kind", "planned", "executed"), other[:MOST_OUTPUTS]
    )
    more = len(other) - MOST_OUTPUTS
    if more > 0:
        rows += f'<p class="soft">{counted(more, "further row")}: <code>weft explain {text(report.run.id)}</code></p>'
    return (f"<h3>Executed otherwise than planned</h3>{rows}" if rows else "") + (
        f"<h3>Changes</h3>{table('Changes of the graph', ('at', 'what', 'change', 'seen'), changes)}" if changes else ""
    )


def _environment(report: RunReport) -> str:
    run, known = report.run, report.description
    session = known.get("session")
    facts: dict[str, Any] = {
        "Weft": report.weft,
        "front end": run.frontend,
        "host": run.host,
        "process": run.pid or "",
        **{name: known.get(key) for key, name in _FACTS},
        **{name: session.get(name) for name in _SESSION if isinstance(session, dict)},
        "workers": (session.get("workers") if isinstance(session, dict) else known.get("workers")) or "",
        "cache": "off" if known.get("cache_off") else "",
        "folder": _below(run.folder, report.project),
        "project": shown_path(str(report.project)),
    }
    rows = [(text(name), text(_value(value))) for name, value in facts.items() if value not in (None, "", 0, False, [])]
    return table("Environment", ("fact", "value"), rows)


# -------------------------------------------------------------------------------------------------------------- wording


def _sign(state: str) -> str:
    return f'<span aria-hidden="true">{_SIGNS.get(state, "?")}</span>'


def _state(state: str) -> str:
    return f'<span class="sign s-{text(state)}">{_sign(state)} {text(state)}</span>'


def _moment(time: float | None) -> str:
    return "" if time is None else datetime.fromtimestamp(time, UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def _later(first: float | None, time: float | None) -> str:
    """Return a moment, without its day if that is the one of `first`."""
    shown, before = _moment(time), _moment(first)
    return shown[11:] if shown[:10] == before[:10] else shown


def _from(report: RunReport, time: float | None) -> str:
    """Return when something began, after the start of the run."""
    return "" if time is None or report.run.started is None else f"+{time_text(time - report.run.started)}"


def _took(started: float | None, ended: float | None, now: float, paused_s: float, *, open_end: bool) -> str:
    if started is None:
        return ""
    took = time_text((now if ended is None else ended) - started - paused_s)
    return f"at least {took}" if open_end else took
