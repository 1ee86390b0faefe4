"""Lost and freed outputs: the loss, the readers that must restart, and the outputs that are still wanted."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from weft.engine.agenda import Phase
from weft.engine.commands import Free
from weft.engine.leases import stop, stop_both
from weft.engine.machines.job import GOING, JobState
from weft.engine.machines.lease import ACTIVE
from weft.engine.notes import NoteKind
from weft.engine.rows import FINISHED, FREED, LOST, NOT_STARTED, write
from weft.graph.logical import VertexKind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from weft.engine.core import Core, LeaseRow
    from weft.engine.physical import Stage

AGAIN = "what it reads is made again"


def lose(core: Core, stage: Stage, indices: Iterable[int], reason: str) -> None:
    """Mark the lost outputs of these tasks as LOST; the upward sweep recomputes the wanted ones and drops the rest."""
    gone = [i for i in indices if stage.state[i] == FINISHED]
    if is_concluded(core, stage):  # the job is ending: no recomputation
        for i in gone:
            write(core, stage, i, i + 1, FINISHED, FREED)
        return
    for i in gone:
        write(core, stage, i, i + 1, FINISHED, LOST)
    if core.faults:  # an unreadable input is being recomputed
        was = {(stage.id, i) for i in gone}
        kept = [fault for fault in core.faults if fault.unread not in was]
        core.faults.clear()
        core.faults.extend(kept)
    if gone:
        core.note(stage.id, NoteKind.OUTPUTS_LOST, len(gone), gone[0], reason)
        core.later(Phase.WANTED, stage)


def is_concluded(core: Core, stage: Stage) -> bool:
    """Return whether no task of a stage runs again: the job is ending, or only its final vertices run."""
    if core.status not in GOING:
        return True
    if core.verdict is None or stage.vertex.final:
        return False
    return core.verdict is not JobState.SUCCEEDED or core.control is not None  # its controller stopped all the rest


def missing_inputs(stage: Stage, lo: int, hi: int) -> bool:
    """Return whether an output that tasks `lo:hi` read is lost, so that they cannot simply run again."""
    for link in stage.inputs:
        router = link.router
        if router is None or link.src.n <= 0:
            continue
        if link.freed_parts and any(d in link.freed_parts for d in range(lo, hi)):
            return True
        state = link.src.state
        if link.wide:
            if state.count(FREED):
                return True
            continue
        for d in range(lo, hi):
            if any(state.count(FREED, a, b) for a, b, _, _ in router.inputs(d)):
                return True
    return False


def drop(core: Core, stage: Stage, indices: Sequence[int]) -> None:
    """Free outputs that exist and are to be recomputed, and restart the tasks that read them now.

    Readers of a concurrent edge wait for the unread rest; services are unaffected.
    """
    for lease in list(core.leases.values()):
        if (
            lease.state in ACTIVE
            and lease.stage.vertex.kind is not VertexKind.SERVICE
            and _reads_now(lease, stage, indices)
        ):
            _start_again(core, lease)
    core.out.extend(Free(stage.id, i, i + 1) for i in indices)


def _reads_now(lease: LeaseRow, stage: Stage, indices: Sequence[int]) -> bool:
    for member, mult in lease.members:
        for link in member.inputs:
            router = link.router
            if link.src is not stage or not link.data or router is None or link.edge.scheduling.concurrent:
                continue
            lo, hi = lease.lo * mult, lease.hi * mult
            if link.wide or any(a < hi and b > lo for i in indices for a, b in router.consumers(i)):
                return True
    return False


def _start_again(core: Core, lease: LeaseRow) -> None:
    """Stop a lease whose inputs are recomputed; its tasks run again afterwards, with their region, if they have one."""
    if lease.stage.region >= 0:
        stop(core, lease, "region_restart", "region restart")  # before the rest of its region: its inputs are freed
        core.later(Phase.RESTARTS, lease.stage)
    else:
        stop_both(core, lease, "inputs_lost", AGAIN)


def wanted(stage: Stage) -> Callable[[int], bool]:
    """Return a function that tells whether an output is a result, or is read by a task that has not started."""
    links = [link for link in stage.outputs if link.data]
    if stage.vertex.keep or any(link.router is None for link in links):  # a consumer of unknown parallelism
        return lambda _: True
    open_links = [link for link in links if has_unstarted(link.dst, 0, link.dst.n)]

    @lru_cache(maxsize=len(links) + 1)  # the readers of a wide link are the same for each output
    def needed(at: int, lo: int, hi: int) -> bool:
        return has_unstarted(open_links[at].dst, lo, hi)

    def is_wanted(index: int) -> bool:
        return any(
            needed(at, lo, hi)
            for at, link in enumerate(open_links)
            if link.router is not None
            for lo, hi in link.router.consumers(index)
        )

    return is_wanted


def has_unstarted(stage: Stage, lo: int, hi: int) -> bool:
    """Return whether a task of `lo:hi` has not started."""
    return any(stage.state.find(state, lo, hi) >= 0 for state in NOT_STARTED)
