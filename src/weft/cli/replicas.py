"""The output of training jobs: their conditions, their replicas and their events."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from weft.cli.tables import (
    amounts_text,
    clean,
    moment,
    one_line,
    print_table,
    short_paths,
    state_text,
)
from weft.model.ids import loop_item
from weft.model.wording import EXCEPTION, duration, sentences, size_text
from weft.runs.job_reasons import unlimited_text, which_failure

if TYPE_CHECKING:
    from weft.cli.context import CommandContext
    from weft.runs.reading import ItemRecord, RunRecord, StepRecord

_MOST_ROWS: Final = 8
"""The number of replicas of one type that are listed one by one, besides special ones."""
_MOST_SPECIAL: Final = 20
"""The number of replicas of one type that failed or restarted and are listed one by one."""
_MEANINGS: Final[Mapping[int, str]] = {
    126: "the program is not executable",
    127: "the program was not found",
    130: "interrupted, SIGINT",
    134: "aborted, SIGABRT",
    135: "bus error, SIGBUS",
    136: "arithmetic error, SIGFPE",
    137: "killed, SIGKILL",
    139: "segmentation fault, SIGSEGV",
    143: "ended on request, SIGTERM",
}
"""Exit codes in words; codes above 128 are those of signals."""
_CONTAINER: Final = re.compile(r"container \S+ ")
"""The start of messages about a container beside the main one."""
_ENDED: Final = re.compile(r"was ended because (its (?:startup probe|liveness probe|postStart hook) .*)")
"""What Weft ended for its health."""


def print_jobs(context: CommandContext, found: RunRecord) -> None:
    """Print the state of each job of a run, then its replicas."""
    from weft.runs.records import ACTIVE

    # The jobs of a run that is suspended or was killed have the time of its last sign of life.
    now = context.clock.wall() if found.ended is None or found.state in ACTIVE else found.ended
    console = context.console()
    rows = [_job_row(job, now) for job in found.jobs]
    print_table(
        console, ("JOB", "STATE", "TIME", "MESSAGE"), [(a, state_text(b, console), c, d) for a, b, c, d in rows]
    )
    replicas = [row for step in found.steps for row in _rows(step, found, now)]
    context.out.write("\n" if replicas else "")
    print_table(
        console,
        ("REPLICA", "STATE", "STARTS", "TIME", "MESSAGE"),
        [(name, state_text(state, console), starts, time, about) for name, state, starts, time, about in replicas],
    )


def print_resources(context: CommandContext, found: RunRecord) -> None:
    """Print for each replica type what a replica requests, and the most that one has used; nothing if no one knows."""
    requests = {step: asked for job in found.jobs for step, asked in job.get("requests", {}).items()}
    usage = {name: used for job in found.jobs for name, used in job.get("usage", {}).items()}
    rows = []
    for step in found.steps:
        own = [used for number in step.items if (used := usage.get(loop_item(step.name, number))) is not None]
        asked, used = amounts_text(requests.get(step.name, {})), ""
        if own:
            seconds, memory = (max(one[name] for one in own) for name in ("cpu_s", "memory"))
            used = f"{duration(seconds)} of processor time, {size_text(memory)} of memory in one process"
        if asked or used:
            rows.append((one_line(step.name, 60), asked or "nothing", used or "(not known yet)"))
    context.out.write("\n" if rows else "")
    print_table(context.console(), ("REPLICA", "EACH REQUESTS", "AT MOST ONE HAS USED"), rows)


def print_events(context: CommandContext, found: RunRecord) -> None:
    """Print the conditions and the last events of each job of a run."""
    console = context.console()
    for job in found.jobs:
        context.out.write(f"\nconditions of {clean(job['name'])}\n")
        print_table(
            console,
            ("SINCE", "CONDITION", "STATUS", "REASON", "MESSAGE"),
            [
                (moment(one["changed_at"]), one["type"], one["status"], one["reason"], one_line(one["message"]))
                for one in job.get("status", {}).get("conditions", ())
            ],
        )
        context.out.write(f"\nevents of {clean(job['name'])}\n")
        print_table(
            console,
            ("AT", "TYPE", "REASON", "MESSAGE"),
            [(moment(at), kind, reason, one_line(text)) for at, kind, reason, text in job.get("events", ())],
        )


def print_failure(context: CommandContext, found: RunRecord) -> None:
    """Print the replica whose failure is that of the run, and its last lines, if the run has failed."""
    _, *lines = clean(found.message).splitlines() or [""]
    if found.state == "failed" and lines:
        context.out.write(f"\n{which_failure(found.jobs)} failure: {one_line(found.message, 500)}\n")
        context.out.write("".join(f"{line}\n" for line in lines))


def _job_row(job: Mapping[str, Any], now: float) -> tuple[str, str, str, str]:
    status = job.get("status", {})
    conditions: Sequence[Mapping[str, Any]] = status.get("conditions", ())
    last: Mapping[str, Any] = conditions[-1] if conditions else {}
    begun, ended = status.get("started_at"), status.get("completed_at")
    time = "" if begun is None else duration((ended if ended is not None else now) - begun)
    if "managed_by" in job:
        about = f"left to {job['managed_by']} (managedBy)"
    else:
        about = job.get("queued") or last.get("message", "")
    if lingering := job.get("lingering"):
        about = sentences(about, f"Its {lingering}.")
    if unlimited := unlimited_text(job):
        about = sentences(about, unlimited)
    if "expired_at" in job:
        about = sentences(about, f"Its logs were removed at {moment(job['expired_at'])} (ttlSecondsAfterFinished).")
    return f"{job['kind']} {job['name']}", job["condition"], time, one_line(about, 300)


_Row = tuple[str, str, str, str, str]


def _rows(step: StepRecord, found: RunRecord, now: float) -> Iterator[_Row]:
    """Yield the rows of a replica type: each replica, or of many the special ones and the numbers of the others."""
    items = sorted(step.items.items())
    reports = {name: report for job in found.jobs for name, report in job.get("reports", {}).items()}
    unready = {name: why for job in found.jobs for name, why in job.get("unready", {}).items()}
    special = [
        (at, item)
        for at, item in items
        if item.state == "failed" or item.attempts > 1 or _not_ready(item, unready.get(loop_item(step.name, at), ""))
    ]
    listed = items if len(items) <= _MOST_ROWS else special[:_MOST_SPECIAL]
    for number, item in listed:
        starts = str(item.attempts or "")
        name = one_line(loop_item(step.name, number), 60)
        not_ready = _not_ready(item, unready.get(loop_item(step.name, number), ""))
        about = not_ready or _why(item, found) or report_text(reports.get(name, {}))
        yield name, item.state, starts, _time(item, now), about
    known = {number for number, _ in listed}
    rest = [item for number, item in items if number not in known]
    for state, count in Counter(item.state for item in rest).items():
        own = [item for item in rest if item.state == state]
        times = [item for item in own if item.started is not None]
        longest = max(times, key=lambda item: (item.ended or now) - (item.started or now), default=None)
        about = f"{count} {'others' if listed else 'replicas'}"
        starts = str(sum(item.attempts for item in own))
        yield one_line(step.name, 60), state, starts, "" if longest is None else _time(longest, now), about


def _time(item: ItemRecord, now: float) -> str:
    if item.started is None:
        return ""
    return duration((now if item.ended is None else item.ended) - item.started)


def report_text(report: Mapping[str, Any]) -> str:
    """Return the last report of a replica in words; "" without one."""
    words = [f"{name} {report[name]:g}" for name in ("step", "epoch") if name in report]
    if "progress" in report:
        words.append(f"{report['progress']:.0%}")
    values = report.get("metrics", {})
    words += [
        f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}" for name, value in values.items()
    ]
    return one_line(", ".join(words), 120)


def _not_ready(item: ItemRecord, why: str) -> str:
    """Return why a running replica is not ready, "" if it is."""
    return one_line(f"not ready: {why}", 120) if why and item.state == "running" else ""


def _why(item: ItemRecord, found: RunRecord) -> str:
    if item.state == "succeeded":
        return ""
    if item.state == "terminated":
        return found.why_stopped
    if not item.exit:
        return one_line(short_paths(item.message), 120)
    beside = _CONTAINER.match(item.message)
    return f"{beside[0] if beside else ''}exit code {item.exit}{_meaning(item.exit, item.message)}"


def _meaning(code: int, message: str) -> str:
    """Return an exit code in words: its usual meaning, else the exception in the last lines of the log."""
    if "probably for lack of memory" in message:
        return f" ({_MEANINGS.get(code, 'killed')}): the memory of the machine, or what its limits allow, was used up"
    if ended := _ENDED.search(message.partition("\n")[0]):
        return f": {one_line(ended[1], 120)}"
    if code in _MEANINGS:
        return f" ({_MEANINGS[code]})"
    raised = [line.strip() for line in message.splitlines() if EXCEPTION.fullmatch(line.strip())]
    return f": {one_line(raised[-1], 120)}" if raised else ""
