"""Log entries of the history as data. `weft.engine.text` alone renders them.

A `Note` has a time, a subject, a kind and the data of its kind: plain values by name. History, explanations and pages
read kinds and data; no code parses the rendered text.
"""

from __future__ import annotations

from collections.abc import Sequence, Sized
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from weft.engine.decisions import (
    ApplyPatch,
    AskController,
    Choose,
    Conclude,
    Emit,
    Fail,
    Finish,
    Schedule,
    SetEdge,
    SetParallelism,
    SetResources,
    StartTasks,
    StopTasks,
)

if TYPE_CHECKING:
    from weft.engine.decisions import Decision
    from weft.engine.policy import View

_LONGEST: Final = 200


class NoteKind(Enum):
    """The kinds of log entries: a word for programs, and the names of the data of each."""

    def __init__(self, word: str, *fields: str) -> None:
        self.word = word
        self.fields = fields

    JOB_STATE = "job_state", "state"
    ONLY_FINAL = "only_final", "reason"  # a first cancel while only final vertices were left

    # Tasks.
    LEASED = "leased", "lo", "hi", "worker"  # worker -1: the helper pool
    FINISHED = "finished", "lo", "hi"
    FINISHED_AGAIN = "finished_again", "attempt"
    # `other` is the worker that goes on with the task, or None.
    ATTEMPT_FAILED = "attempt_failed", "worker", "failure", "message", "other"
    FAILED = "failed", "failure", "message"
    CANNOT_RUN = "cannot_run", "source", "lacks"  # lacks: the "branch" or "width" that the source was to answer, or ""
    VERTEX_FAILED = "vertex_failed", "message"
    CANNOT_GO_ON = "cannot_go_on", "source"
    CANCELLING = "cancelling", "reason"  # of a running task that a user has cancelled
    EMITTED = "emitted", "name"
    UNSTOPPABLE = "unstoppable", "index", "grace_s"
    BACKUP_STARTED = "backup_started", "worker", "beside", "reason"
    BACKUP_ENDED = "backup_ended", "first", "other"
    OUTPUTS_LOST = "outputs_lost", "count", "first", "reason"
    RUN_AGAIN = "run_again", "count"
    UNREAD = "unread", "count", "n"

    # The cache.
    CACHE_HIT = "cache_hit", "before"  # before: whether the task had finished in an earlier process
    CACHE_MISS = "cache_miss", "reason"
    CACHE_WAITS = "cache_waits", "owner"

    # Workers.
    WORKER_LOST = "worker_lost", "reason"
    NODE_JOINED = "node_joined", "name", "slots", "memory", "gpu"
    NODE_DRAINING = "node_draining", "reason"
    NODE_LOST = "node_lost", "reason"
    NODES_AWAITED = "nodes_awaited", "reason"  # a bubble or task waits for nodes to join
    WORKER_EXCLUDED = "worker_excluded", "seconds", "reason", "seen"
    WORKER_READMITTED = "worker_readmitted", "reason"
    LAST_WORKER = ("last_worker",)  # a worker was to be excluded, and is the last one

    # Changes of the graph.
    CONFIGURED = "configured", "n"
    # For managers `data_of` makes `decision` and `figures_of` makes `seen`; elsewhere `seen` is a text.
    MANAGER_DECIDED = "manager_decided", "decision", "seen"
    MANAGER_FAILED = "manager_failed", "message"
    MANAGER_SILENT = "manager_silent", "n"
    MANAGER_HOLDS = "manager_holds", "released", "n"
    CONTROL_DECIDED = "control_decided", "control", "decision", "seen"
    CONTROLLER_DECIDED = "controller_decided", "decision"
    CONTROLLER_FAILED = "controller_failed", "message"
    REQUESTED = "requested", "name"  # a user requests something of the controller
    DECISION_REJECTED = "decision_rejected", "reason"
    DECIDED_TO_FAIL = "decided_to_fail", "reason"
    ENDED_EARLY = "ended_early", "reason"
    SERVICE_UNUSED = ("service_unused",)
    BRANCH_TAKEN = "branch_taken", "choice", "branch"
    BRANCH_SKIPPED = "branch_skipped", "choice", "branch"  # branch: the chosen one
    UNANSWERED = "unanswered", "expander"
    PATCHED = "patched", "vertices", "edges"  # the numbers of additions
    REGION_RESTARTS = "region_restarts", "reason"

    # Bubbles.
    BUBBLE_ASKS = "bubble_asks", "slots"
    BUBBLE_GRANTED = "bubble_granted", "slots"
    BUBBLE_REFUSED = "bubble_refused", "reason"
    BUBBLE_TIMED_OUT = "bubble_timed_out", "timeout_s"
    BUBBLE_SHRUNK = "bubble_shrunk", "vertices"  # vertices: those that left


NOTE_KINDS: Final = {kind.word: kind for kind in NoteKind}
"""The kinds by their words."""


class Note(Struct, frozen=True, gc=False):
    """One log entry, `at` seconds on the loop's clock. `subject` is a vertex, task, worker or bubble; "" is the job.

    `values` are the data of the kind in the order of its fields: many entries are made, and few are ever read.
    """

    at: float
    subject: str
    kind: NoteKind
    values: tuple[Any, ...] = ()

    @property
    def data(self) -> dict[str, Any]:
        """The data by name: plain values."""
        return dict(zip(self.kind.fields, self.values, strict=True))


def data_of(decision: Decision, subject: str) -> dict[str, Any]:
    """Return a decision as data of an entry about `subject`; the decision is not validated yet."""
    return {
        "decision": type(decision).__name__,
        "vertex": getattr(decision, "vertex", subject),
        **_parts(decision),
    }


def _parts(decision: Decision) -> dict[str, Any]:
    if isinstance(decision, SetParallelism):
        return {"n": _whole(decision.n), "routed": bool(decision.routers)}
    if isinstance(decision, Schedule):
        return {"n": _whole(decision.n)}
    if isinstance(decision, SetResources):
        return {"alternatives": _alternatives(decision.resources)}
    if isinstance(decision, SetEdge):
        scheduling, storage = decision.scheduling, decision.storage
        return {
            "edge": decision.edge,
            "concurrent": None if scheduling is None else scheduling.concurrent,
            "storage": None if storage is None else storage.value,
            "movement": None if decision.movement is None else decision.movement.move.value,
        }
    if isinstance(decision, Emit):
        return {
            "name": _short(decision.name),
            "payload": None if decision.payload is None else _short(decision.payload),
        }
    if isinstance(decision, AskController):
        return {"name": _short(decision.name), "payload": _short(decision.payload)}
    if isinstance(decision, StartTasks | StopTasks):
        return {"lo": _whole(decision.lo), "hi": _whole(decision.hi), "reason": getattr(decision, "reason", "")}
    if isinstance(decision, Conclude):
        return {"outcome": str(decision.outcome)[:_LONGEST], "reason": str(decision.reason)[:_LONGEST]}
    if isinstance(decision, Choose):
        return {"choice": decision.choice, "branch": decision.branch}
    if isinstance(decision, Finish | Fail):
        return {"reason": decision.reason}
    return {"added": _added(decision.patch)} if isinstance(decision, ApplyPatch) else {}


def _whole(n: Any) -> int | str:
    return n if isinstance(n, int) and not isinstance(n, bool) else _short(n)


def _alternatives(resources: Any) -> list[str]:
    try:
        return [str(one) for one in resources]
    except (TypeError, ValueError):
        return [_short(resources)]


def _added(patch: Any) -> dict[str, int] | str:
    parts = {
        name: len(found)
        for name in ("vertices", "edges", "bubbles", "choices")
        if isinstance(found := getattr(patch, name, None), Sized) and isinstance(found, Sequence) and found
    }
    return parts or _short(patch)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def figures_of(view: View) -> dict[str, Any]:
    """Return the figures that a manager saw for its decision."""
    return {
        "n": view.n,
        "finished": view.finished,
        "rows": view.rows,
        "inputs": [
            {
                "vertex": source.source,
                "n": source.n,
                "finished": source.finished,
                "ended": source.ended,
                "nbytes": source.nbytes if source.sizes is None else int(sum(source.sizes)),
                "partitions": None if source.sizes is None else source.partitions,
                "events": {
                    name: sum(map(_length, payloads))
                    for (vertex, name), payloads in view.events.items()
                    if vertex == source.source
                },
            }
            for source in view.inputs
        ],
    }


def _length(payload: Any) -> int:
    return len(payload) if isinstance(payload, (list, tuple, dict)) else 1
