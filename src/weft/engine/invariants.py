"""Invariants that hold after every event: checked in tests and in the simulator, never on the hot path.

`docs/invariants.md` lists them with the responsible modules.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.engine.events import ANYWHERE
from weft.engine.lineage import is_concluded
from weft.engine.machines.bubble import BubbleState
from weft.engine.machines.job import GOING, OVER, JobState
from weft.engine.machines.task import TaskState
from weft.engine.machines.vertex import ENDED, VertexState
from weft.engine.readiness import count_missing, gate_opens
from weft.engine.story import story
from weft.graph.logical import Outcome, SameAs, Source, VertexKind
from weft.model.errors import InternalError

if TYPE_CHECKING:
    from weft.engine.core import Core
    from weft.engine.physical import Stage

_UNSTARTED = (TaskState.UNSCHEDULED, TaskState.READY, TaskState.PROBING)
_LIVE = (TaskState.LEASED, TaskState.RUNNING, TaskState.COMMITTING, TaskState.CANCELLING)
_OVER = (TaskState.FINISHED, TaskState.FREED, TaskState.FATAL, TaskState.CANCELLED, TaskState.SKIPPED)


def check(core: Core) -> None:
    """Check all invariants. InternalError, with the history of the vertex: the first that does not hold."""
    leased: dict[int, int] = {}
    for lease in core.leases.values():
        for stage, mult in lease.members:
            leased[stage.index] = leased.get(stage.index, 0) + (lease.hi - lease.lo) * mult
    for stage in core.stages:
        if stage.n >= 0:
            _check_counts(core, stage, leased.get(stage.index, 0))
            _check_ready(core, stage)
            _check_inputs(core, stage)
    _check_attempts(core)
    for row in core.bubbles:
        if row.controlled and row.state is not BubbleState.HELD:
            slots = sum(map(len, row.slots.values())) + sum(stage.executing for stage in row.stages)
            going = core.status is not JobState.RUNNING
            _must(core, row.bubble.id, going or slots == 0, "a whole bubble holds all of its slots, or none")
    _check_settled(core)
    ended = sum(stage.status in ENDED for stage in core.stages)
    _must(core, "", ended + core.unended == len(core.stages), "the count of vertices that have not ended is right")
    for name, limit in core.graph.limits.items():
        _must(core, "", 0 <= core.tokens[name] <= limit, f"tokens of {name!r} are between 0 and {limit}")
    held = sum(stage.vertex.final and stage.status not in ENDED for stage in core.stages)
    _must(core, "", core.held in (0, held), "final vertices wait for all others, or for none")
    if core.status in OVER:
        _must(core, "", not core.leases, "an ended job has no lease")
        for stage in core.stages:
            _must(core, stage.id, stage.status in ENDED, "an ended job has no live vertex")


def _check_attempts(core: Core) -> None:
    """Check that two leases of the same tasks refer to each other, and that one of them holds the rows."""
    for id, other in core.speculative.items():
        lease = core.speculative[other.id]
        _must(core, "", lease.id == id, f"lease {id} and lease {other.id} are each other's attempts")
        held = (lease.id in core.leases) + (other.id in core.leases)
        _must(core, "", held == 1, f"one of the leases {id} and {other.id} holds the rows, not {held}")
        same = (lease.lo, lease.hi, lease.members) == (other.lo, other.hi, other.members)
        _must(core, lease.stage.id, same, f"the leases {id} and {other.id} are for the same tasks")
        _must(core, lease.stage.id, lease.worker != other.worker, f"the leases {id} and {other.id} are apart")
    for id in core.cancelled:
        _must(core, "", id not in core.leases and id not in core.speculative, f"lease {id} has lost for good")


# ------------------------------------------------------------------------------------------ derived from scratch


def _check_settled(core: Core) -> None:
    """Check that failed, skipped, blocked and wanted tasks are those that the states of this moment imply."""
    _must(core, "", not core.due and not core.queues, "no phase has work left")
    if core.status not in GOING:
        return
    expanding = any(stage.vertex.expands and stage.status not in ENDED for stage in core.stages)
    for stage in core.stages:
        _must(core, stage.id, not stage.state.count(TaskState.LOST), "a lost output is made again, or dropped")
        if stage.status in ENDED or is_concluded(core, stage):
            continue
        waiting = [index for index in range(max(stage.n, 0)) if stage.state[index] in _UNSTARTED]
        if waiting or stage.n < 0:
            _check_blocked(core, stage)
            _check_sources(core, stage, waiting)
        readers = [link.dst for link in stage.outputs if link.edge.scheduling.concurrent]
        waits_for_readers = stage.vertex.kind is VertexKind.SERVICE and stage.control is None
        if waits_for_readers and readers and stage.status is not VertexState.DRAINING:
            live = expanding or any(reader.status not in ENDED for reader in readers)
            _must(core, stage.id, live, "a service that does not stop has a reader")
    for row in core.choices.values():
        chosen = row.choice.branches.get(row.taken, ())
        for name in {name for branch in row.choice.branches.values() for name in branch}.difference(chosen):
            stage = core.by_id[name]
            waits = stage.status not in ENDED and (stage.n < 0 or any(map(stage.state.count, _UNSTARTED)))
            _must(
                core, name, not (row.taken and waits), f"no task of it waits, since {row.choice.id} took {row.taken!r}"
            )


def _check_blocked(core: Core, stage: Stage) -> None:
    """Check that a vertex with unstarted tasks waits for nothing that can no longer come."""
    width = stage.vertex.parallelism
    if stage.n < 0 and isinstance(width, (Source, SameAs)):
        source = core.by_id[width.expander if isinstance(width, Source) else width.vertex]
        _must(core, stage.id, source.status not in ENDED, f"{source.id}, which decides its parallelism, has not ended")
    successes = [link.src for link in stage.inputs if link.edge.scheduling.outcome is Outcome.ONE_SUCCESS]
    for link in stage.inputs:
        if not link.gate or link.opened or link.src.status not in ENDED or gate_opens(core, link):
            continue
        others = link.src in successes and any(src.status not in ENDED for src in successes)
        _must(core, stage.id, others, f"it does not wait for {link.src.id}, which has ended")


def _check_sources(core: Core, stage: Stage, waiting: list[int]) -> None:
    """Check that none of the unstarted tasks `waiting` reads a failed task, or an output that nothing makes again."""
    for link in stage.inputs:
        src, router = link.src, link.router
        if src.control is not None:  # its failures concern no other task
            continue
        if link.edge.scheduling.outcome is Outcome.SUCCESS:
            failed = src.state.count(TaskState.FATAL) or (src.n < 0 and src.status is VertexState.FAILED)
            whole = router is None or link.wide
            _must(core, stage.id, not (failed and whole), f"it does not wait for {src.id}, which has failed")
        if router is None or not (src.state.count(TaskState.FATAL) or src.state.count(TaskState.FREED)):
            continue
        for index in waiting:
            for lo, hi, _, _ in router.inputs(index):
                failed = src.state.count(TaskState.FATAL, lo, hi) and link.edge.scheduling.outcome is Outcome.SUCCESS
                _must(core, stage.id, not failed, f"task {index} does not wait for {src.id}, which has failed")
                if stage.restarting:
                    continue  # its region asks for outputs once it has stopped
                gone = src.state.count(TaskState.FREED, lo, hi) or index in (link.freed_parts or ())
                _must(core, stage.id, not gone, f"what task {index} reads of {src.id} is there, or is made again")


def _must(core: Core, subject: str, held: bool, text: str) -> None:
    if not held:
        lines = "\n  ".join(story(core, subject))
        raise InternalError(f"invariant broken for {subject or 'the job'}: {text}\n  {lines}")


def _check_counts(core: Core, stage: Stage, leased: int) -> None:
    state = stage.state
    finished = state.count(TaskState.FINISHED) + state.count(TaskState.FREED)
    over = sum(state.count(s) for s in _OVER)
    live = sum(state.count(s) for s in _LIVE)
    _must(core, stage.id, len(state) == stage.n, "there is one row for each task")
    _must(core, stage.id, finished == stage.finished, f"finished is {finished}, not {stage.finished}")
    _must(core, stage.id, over == stage.over, f"over is {over}, not {stage.over}")
    _must(core, stage.id, live == stage.executing, f"executing is {live}, not {stage.executing}")
    _must(core, stage.id, live == leased, f"{live} tasks are live, leases hold {leased}")
    alive = stage.control is not None and core.status is JobState.RUNNING
    _must(
        core,
        stage.id,
        (stage.status in ENDED) == (over == stage.n and not alive),
        f"status {stage.status.value} fits {over} of {stage.n} over",
    )
    if stage.status is VertexState.SKIPPED:
        _must(core, stage.id, over == state.count(TaskState.SKIPPED), "a skipped vertex has only skipped tasks")


def _check_ready(core: Core, stage: Stage) -> None:
    spans = list(stage.ready)
    for held in (stage.local or {}).values():
        spans.extend(held)
    inside = sum(hi - lo for lo, hi in spans)
    ready = stage.state.count(TaskState.READY)
    _must(core, stage.id, ready == inside, f"{ready} tasks are READY, {inside} are queued")
    for lo, hi in spans:
        _must(
            core, stage.id, stage.state.count(TaskState.READY, lo, hi) == hi - lo, f"queued tasks {lo}:{hi} are READY"
        )
    if ready and core.status in GOING and stage.plain and stage.bubble < 0 and stage.ready.count:
        queued = any(index == stage.index for _, _, index in core.heaps[ANYWHERE])
        _must(core, stage.id, queued, "a stage with ready tasks is in the heap")


def _check_inputs(core: Core, stage: Stage) -> None:
    """Check that a READY or live task has all its inputs, and that counters agree with the states that they
    summarise.
    """
    if stage.status in ENDED or core.status not in GOING:
        return
    for link in stage.inputs:
        if link.gate and link.router is not None and not link.edge.scheduling.concurrent:  # these gates never shut
            _must(
                core,
                stage.id,
                not link.opened or gate_opens(core, link),
                f"gate of {link.edge.id} is open for a reason",
            )
    ready = [i for i in range(stage.n) if stage.state[i] == TaskState.READY]
    if ready:
        _must(core, stage.id, stage.closed == 0, "READY tasks have every gate open")
    if not stage.narrow and stage.closed:
        return
    missing = count_missing(stage)
    for i in ready:
        _must(core, stage.id, missing[i] == 0, f"READY task {i} has every input")
    if stage.missing is not None:
        for i in range(stage.n):
            if stage.state[i] == TaskState.UNSCHEDULED:
                _must(
                    core,
                    stage.id,
                    stage.missing[i] == missing[i],
                    f"task {i} misses {missing[i]}, counted {stage.missing[i]}",
                )
    if stage.closed == 0:
        delayed = stage.retry_at or {}
        for i in range(stage.n):
            held_back = 0 <= stage.released <= i if stage.control is None else stage.control.held[i]
            if stage.state[i] == TaskState.UNSCHEDULED and i not in delayed and not held_back:
                _must(core, stage.id, missing[i] > 0, f"task {i} has every input and is not READY")
