"""The history of a subject, as text.

The text is derived: the present from the arrays, the past from a bounded ring of log entries (and from the whole
journal where there is one). A history is a tuple of lines, oldest first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.engine.machines.task import TaskState
from weft.engine.text import text_of
from weft.graph.logical import Role
from weft.model.ids import parse_task
from weft.model.wording import counted

if TYPE_CHECKING:
    from weft.engine.core import Core
    from weft.engine.notes import Note
    from weft.engine.physical import Stage


def story(core: Core, subject: str) -> tuple[str, ...]:
    """Return the history of a vertex, a task (`vertex[3]`), a worker (`worker 2`), a bubble, or "" for the whole
    job.
    """
    from weft.engine.explain import shown  # most jobs tell nothing

    lines = [
        f"{note.at - core.started_at:10.6f}s  {shown(core, note.subject)}: {text_of(note)}"
        for note in notes(core, subject)
    ]
    if not subject:
        lines.append(f"     now  job {core.job}: {core.status.value}, {core.unended} vertices not ended")
        return tuple(lines)
    for one in _subjects(core, subject):
        try:
            vertex, index, _ = parse_task(one)
        except ValueError:
            continue
        stage = core.by_id.get(vertex)
        if stage is not None:
            lines.append("     now  " + (_task_now(core, stage, index) if index is not None else _stage_now(stage)))
    return tuple(lines)


def notes(core: Core, subject: str) -> tuple[Note, ...]:
    """Return the log entries about a subject, oldest first; "" is the whole job."""
    subjects = _subjects(core, subject)
    return tuple(note for note in core.ring if any(_about(note.subject, one) for one in subjects))


def _subjects(core: Core, subject: str) -> list[str]:
    """Return a subject, or, for a label of vertices or a task of one, those subjects: the step itself first."""
    label, bracket, rest = subject.partition("[")
    if not label or label in core.by_id:
        return [subject]
    named = [stage for stage in core.stages if stage.vertex.label == label]
    named.sort(key=lambda stage: stage.vertex.role is not Role.OWN)
    if bracket:  # only the step itself has tasks in its text
        named = [stage for stage in named if stage.vertex.role is Role.OWN]
    return [f"{stage.id}{bracket}{rest}" for stage in named] or [subject]


def _about(who: str, subject: str) -> bool:
    return (
        not subject
        or who == subject
        or who.startswith((f"{subject}[", f"{subject}@"))
        or ("[" in subject and who == subject.split("[", 1)[0])
    )


def _stage_now(stage: Stage) -> str:
    if stage.n < 0:
        return f"{stage.vertex.shown}: {stage.status.value}, parallelism not known yet"
    return (
        f"{stage.vertex.shown}: {stage.status.value}, {counted(stage.n, 'task')}, {stage.finished} finished, "
        f"{stage.over} over, {stage.executing} executing, {stage.closed} gates shut"
    )


def _task_now(core: Core, stage: Stage, index: int) -> str:
    if not 0 <= index < stage.n:
        return f"{stage.vertex.shown} has {counted(max(stage.n, 0), 'task')}; there is no task {index}"
    parts = [f"{stage.vertex.shown}[{index}]: {TaskState(stage.state[index]).name}"]
    failed = stage.attempt(index)
    if failed:
        parts.append(f"{failed} failed attempts")
    for lease in core.leases.values():
        for member, mult in lease.members:
            if member is stage and lease.lo * mult <= index < lease.hi * mult:
                parts.append(f"in lease {lease.id} on worker {lease.worker}")
                if lease.id in core.speculative:
                    parts.append(f"and a second time on worker {core.speculative[lease.id].worker}")
    waits = [link.src.vertex.shown for link in stage.inputs if link.gate and not link.opened]
    if waits:
        parts.append(f"waits for {', '.join(waits)}")
    return ", ".join(parts)
