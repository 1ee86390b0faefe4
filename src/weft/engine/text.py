"""The text of log entries. No code parses this text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from weft.engine.notes import NoteKind
from weft.model.failures import Failure
from weft.model.wording import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from weft.engine.notes import Note


def text_of(note: Note) -> str:
    """Render an entry as a clause about its subject, with the figures behind a decision."""
    seen = seen_by(note)
    return f"{change_of(note)} (seen: {seen})" if seen else change_of(note)


def change_of(note: Note) -> str:
    """Render an entry as a clause about its subject, without the figures of a decision."""
    form = _FORMS[note.kind]
    return form.format_map(note.data) if isinstance(form, str) else form(note)


def seen_by(note: Note) -> str:
    """Render the figures behind a decision, "" if there are none."""
    if note.kind is NoteKind.MANAGER_DECIDED:
        return _figures(note.data["seen"])
    return str(note.data["seen"]) if "seen" in note.kind.fields else ""


def _leased(note: Note) -> str:
    if note.data["worker"] < 0:
        return "started beside the workers"
    return "tasks {lo}:{hi} leased to worker {worker}".format_map(note.data)


def _attempt_failed(note: Note) -> str:
    text = "attempt failed on worker {worker} ({failure}): {message}".format_map(note.data)
    other = note.data["other"]
    return text if other is None else f"{text}; worker {other} goes on with it"


_LACKING: Final = {"": "", "branch": " and decides nothing", "width": " and says no width"}


def _failed(note: Note) -> str:
    failure, message = note.data["failure"], note.data["message"]
    return f"CANCELLED: {message}" if failure == Failure.CANCELLED.value else f"failed for good ({failure}): {message}"


def _cannot_run(note: Note) -> str:
    return f"cannot run: {note.data['source']} failed{_LACKING[note.data['lacks']]}"


def _cache_hit(note: Note) -> str:
    return "had finished before" if note.data["before"] else "taken from the cache"


def _manager_decided(note: Note) -> str:
    return f"its manager decides: {_decision(note)}"


def _control_decided(note: Note) -> str:
    return f"control vertex {note.data['control']} decides: {_decision(note)}"


def _outputs_lost(note: Note) -> str:
    first, reason = note.data["first"], note.data["reason"]
    return f"outputs of {tasks(note.data['count'])} (first {first}) are lost: {reason}"


def _run_again(note: Note) -> str:
    count = note.data["count"]
    which, whose = ("is", "its") if count == 1 else ("are", "their")
    return f"{tasks(count)} {which} run again: {whose} output is gone and still wanted"


def _patched(note: Note) -> str:
    vertices, edges = note.data["vertices"], note.data["edges"]
    return f"patch: {counted(vertices, 'vertex', 'vertices')}, {counted(edges, 'edge')} added"


def _shrunk(note: Note) -> str:
    return f"shrunk: {', '.join(note.data['vertices'])} left"


_FORMS: Final[Mapping[NoteKind, str | Callable[[Note], str]]] = {
    NoteKind.JOB_STATE: "job {state}",
    NoteKind.ONLY_FINAL: "only final vertices run, which a first cancel ({reason}) does not end: a second one does",
    NoteKind.LEASED: _leased,
    NoteKind.FINISHED: "tasks {lo}:{hi} finished",
    NoteKind.FINISHED_AGAIN: "finished on attempt {attempt}",
    NoteKind.ATTEMPT_FAILED: _attempt_failed,
    NoteKind.FAILED: _failed,
    NoteKind.CANNOT_RUN: _cannot_run,
    NoteKind.VERTEX_FAILED: "{message}",
    NoteKind.CANNOT_GO_ON: "cannot go on: {source} failed",
    NoteKind.CANCELLING: "CANCELLED: {reason}; it is being stopped",
    NoteKind.EMITTED: "emitted {name}",
    NoteKind.UNSTOPPABLE: "task {index} did not stop within {grace_s:g} s: its thread is left to itself",
    NoteKind.BACKUP_STARTED: "backup on worker {worker} beside worker {beside}: {reason}",
    NoteKind.BACKUP_ENDED: "worker {first} was first, worker {other} is cancelled",
    NoteKind.OUTPUTS_LOST: _outputs_lost,
    NoteKind.RUN_AGAIN: _run_again,
    NoteKind.UNREAD: "{count} of {n} tasks are left out: nobody reads what they would make",
    NoteKind.CACHE_HIT: _cache_hit,
    NoteKind.CACHE_MISS: "not in the cache: {reason}",
    NoteKind.CACHE_WAITS: "waits for {owner}, which is making the same output",
    NoteKind.WORKER_LOST: "lost: {reason}",
    NoteKind.NODE_JOINED: "joined as {name}: {slots} slots, {memory:,} bytes of memory, {gpu} GPUs",
    NoteKind.NODE_DRAINING: "drains: {reason}",
    NoteKind.NODE_LOST: "lost: {reason}",
    NoteKind.NODES_AWAITED: "{reason}",
    NoteKind.WORKER_EXCLUDED: "avoided for {seconds:g} s: {reason}",
    NoteKind.WORKER_READMITTED: "not avoided any more: {reason}",
    NoteKind.LAST_WORKER: "rejected: it cannot be avoided, for nobody else is left",
    NoteKind.CONFIGURED: lambda note: f"configured with {tasks(note.data['n'])}",
    NoteKind.MANAGER_DECIDED: _manager_decided,
    NoteKind.MANAGER_FAILED: "its manager cannot decide: {message}",
    NoteKind.MANAGER_SILENT: "its manager has named no width: {n} tasks, as without one",
    NoteKind.MANAGER_HOLDS: "its manager is not asked again, and has let {released} of {n} tasks start: all may start",
    NoteKind.CONTROL_DECIDED: _control_decided,
    NoteKind.CONTROLLER_DECIDED: lambda note: f"the controller decides: {_decision(note)}",
    NoteKind.CONTROLLER_FAILED: "{message}",
    NoteKind.REQUESTED: "requested by the user: {name}",
    NoteKind.DECISION_REJECTED: "rejected: {reason}",
    NoteKind.DECIDED_TO_FAIL: "failed by decision: {reason}",
    NoteKind.ENDED_EARLY: "ended early: {reason}",
    NoteKind.SERVICE_UNUSED: "its last consumer has ended: stopping",
    NoteKind.BRANCH_TAKEN: "choice {choice}: takes {branch}",
    NoteKind.BRANCH_SKIPPED: "skipped: choice {choice} took {branch}",
    NoteKind.UNANSWERED: "skipped: {expander} ended without an answer",
    NoteKind.PATCHED: _patched,
    NoteKind.REGION_RESTARTS: "region restarts: {reason}",
    NoteKind.BUBBLE_ASKS: "asks for {slots} slots at once",
    NoteKind.BUBBLE_GRANTED: "granted {slots} slots",
    NoteKind.BUBBLE_REFUSED: "refused: {reason}",
    NoteKind.BUBBLE_TIMED_OUT: "not granted within {timeout_s:g} s",
    NoteKind.BUBBLE_SHRUNK: _shrunk,
}


# ----------------------------------------------------------------------------------------------------------- decisions


def tasks(n: int | str) -> str:
    """Render a number of tasks."""
    return f"{n} tasks" if isinstance(n, str) else counted(n, "task")


def _decision(note: Note) -> str:
    decision = note.data["decision"]
    name, vertex = decision["decision"], decision["vertex"]
    text = _DECISIONS[name](decision) if name in _DECISIONS else name
    return text if vertex == note.subject else f"{vertex}: {text}"


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST_PAYLOAD else f"{text[:_LONGEST_PAYLOAD]}..."


def _edge(decision: Mapping[str, Any]) -> str:
    concurrent, storage = decision["concurrent"], decision["storage"]
    parts = [] if concurrent is None else ["concurrent" if concurrent else "sequential"]
    if storage is not None:
        parts.append(f"stored {storage}")
    if decision["movement"] is not None:
        parts.append(f"moved {decision['movement']}")
    return f"edge {decision['edge']} {' and '.join(parts) or 'as it is'}"


_LONGEST_PAYLOAD: Final = 80
_PARTS: Final = {"vertices": "vertex", "edges": "edge", "bubbles": "bubble", "choices": "choice"}


def _patch(decision: Mapping[str, Any]) -> str:
    added = decision["added"]
    if isinstance(added, str):
        return f"a patch: {added}"
    return "a patch of " + ", ".join(counted(count, _PARTS[name], name) for name, count in added.items())


_DECISIONS: Final[Mapping[str, Callable[[Mapping[str, Any]], str]]] = {
    "SetParallelism": lambda d: tasks(d["n"]) + (", each with its share of the inputs" if d["routed"] else ""),
    "Schedule": lambda d: f"{tasks(d['n'])} may start",
    "SetResources": lambda d: f"its tasks ask for {' or '.join(d['alternatives'])}",
    "SetEdge": _edge,
    "Emit": lambda d: f"emit {d['name']}" + ("" if d["payload"] is None else f" with {d['payload']}"),
    "Choose": lambda d: f"choice {d['choice']} takes branch {d['branch']}",
    "Finish": lambda d: f"end now: {d['reason']}",
    "Fail": lambda d: f"fail: {d['reason']}",
    "ApplyPatch": _patch,
    "AskController": lambda d: f"request {d['name']} of the controller with {_cut(d['payload'])}",
    "StartTasks": lambda d: f"start tasks {d['lo']}:{d['hi']}",
    "StopTasks": lambda d: f"stop tasks {d['lo']}:{d['hi']}: {d['reason']}",
    "Conclude": lambda d: f"end the job as {d['outcome']}: {d['reason']}",
}


def _figures(seen: Mapping[str, Any]) -> str:
    parts = [f"{seen['finished']:,} of {seen['n']:,} tasks finished"] if seen["n"] >= 0 else []
    if seen["rows"]:
        parts.append(f"{seen['rows']:,} rows")
    for source in seen["inputs"]:
        vertex = source["vertex"]
        reached = "ended" if source["ended"] else f"{source['finished']:,} of {source['n']:,}"
        text = f"{vertex} {reached}"
        if source["partitions"] is not None:
            text += f" with {source['nbytes']:,} bytes in {source['partitions']:,} partitions"
        elif source["nbytes"] >= 0:
            text += f" with {source['nbytes']:,} bytes"
        parts.append(text)
        parts += [f"{name!r} of {vertex}: {count:,}" for name, count in source["events"].items()]
    return ", ".join(parts) or "nothing yet"
