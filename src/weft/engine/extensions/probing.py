"""Cache probes: a ready task of a vertex with a cache key is probed once before it is leased.

The cache answers a `Probe` with `Hit`, whose output exists, or `Miss`. `Waiting` tells that another run makes the
result. After a change of process the missed tasks are probed again, since other runs may have made their results.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from weft.engine.agenda import Phase
from weft.engine.commands import Probe
from weft.engine.core import Hooks
from weft.engine.events import Hit, Miss, Unanswered, Waiting
from weft.engine.extensions.registry import Extension
from weft.engine.machines.vertex import VertexState
from weft.engine.notes import NoteKind
from weft.engine.readiness import advance, enqueue, finish, unqueue
from weft.engine.rows import FINISHED, PROBING, READY, write
from weft.model.ids import task_name

if TYPE_CHECKING:
    from weft.engine.core import Core
    from weft.engine.physical import Stage


def _probe(core: Core, stage: Stage, lo: int, hi: int) -> int:
    """Send probes for tasks without a probe so far; return the start of the tasks already probed, `hi` if there are
    none.
    """
    key = stage.vertex.cache_key
    assert key is not None
    for index in range(lo, hi):
        if stage.probed is not None and index in stage.probed:
            return index
        write(core, stage, index, index + 1, READY, PROBING)
        core.out.append(Probe(stage.id, index, key))
    return hi


def _hit(core: Core, event: Hit) -> None:
    stage = core.by_id[event.vertex]
    if event.index >= stage.n or stage.state[event.index] != PROBING:
        return
    core.note(task_name(stage.id, event.index), NoteKind.CACHE_HIT, event.before)
    if stage.status is VertexState.CONFIGURED:
        advance(core, stage, "task_started")
        stage.began = True
    if stage.bubble >= 0:
        core.later(Phase.REQUESTS, stage)
    write(core, stage, event.index, event.index + 1, PROBING, FINISHED)
    finish(core, stage, ((event.index, event.index + 1),))


def _miss(core: Core, event: Miss) -> None:
    stage = core.by_id[event.vertex]
    if event.index >= stage.n or stage.state[event.index] != PROBING:
        return
    core.note(task_name(stage.id, event.index), NoteKind.CACHE_MISS, event.reason or "never ran")
    if stage.probed is None:
        stage.probed = set()
    stage.probed.add(event.index)
    write(core, stage, event.index, event.index + 1, PROBING, READY)
    enqueue(core, stage, event.index, event.index + 1)


def _waiting(core: Core, event: Waiting) -> None:
    core.note(task_name(event.vertex, event.index), NoteKind.CACHE_WAITS, event.owner)


def _unanswered(core: Core, event: Unanswered) -> None:
    for stage in core.stages:
        indices, stage.probed = stage.probed, None
        for index in sorted(indices or ()):
            if index < stage.n and stage.state[index] == READY:
                unqueue(stage, index, index + 1)
                enqueue(core, stage, index, index + 1)


EXTENSION: Final = Extension(
    "probing",
    before={Hit: _hit, Miss: _miss, Waiting: _waiting, Unanswered: _unanswered},
    hooks=Hooks(probe=(_probe,)),
)
