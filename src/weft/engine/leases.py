"""Leases: start, stop and end, and the holder of the task rows among two attempts.

A *backup* is a speculative lease of the same tasks as another one. The rows of the tasks are live once, for any number
of attempts: the lease in `core.leases`, the *holder*, has them; `core.speculative` has both attempts, each by the id of
the other. A good end of either makes it the holder, and the other attempt is stopped. A bad end of either changes
nothing while the other attempt goes on. A cancelled attempt is in `core.cancelled` until its worker reports its end;
the job does not wait for that.

Backends let at most one of two attempts commit (`ports.Executor`), so there is at most one report of a good end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.engine.commands import Free, Stop
from weft.engine.machines.lease import ACTIVE, GIVEN_UP, LEASE, LeaseState
from weft.engine.machines.table import step
from weft.engine.notes import NoteKind
from weft.engine.rows import write
from weft.engine.story import story
from weft.engine.tokens import return_tokens

if TYPE_CHECKING:
    from weft.engine.core import Core, LeaseRow
    from weft.engine.events import Done, Failed, WorkerLost
    from weft.engine.physical import Stage

ALONE: frozenset[int] = frozenset()
"""The leaves of a lease without a cone."""


def alone(stage: Stage) -> tuple[tuple[Stage, int], ...]:
    """Return the members of a lease of a single stage."""
    return ((stage, 1),)


def lost_task(lease: LeaseRow, event: WorkerLost) -> tuple[str, int]:
    """Return the vertex and the index of the running task of a lost worker."""
    stage, mult = lease.members[0]
    unit = event.unit if lease.lo <= event.unit < lease.hi else lease.lo
    return stage.id, unit * mult


def move(core: Core, lease: LeaseRow, cause: str) -> None:
    """Move a lease along its table. InvalidTransition, with the history of its vertex: the table has no such step."""
    lease.state = step(LEASE, lease.state, cause, f"lease {lease.id}", lambda _: story(core, lease.stage.id))


def write_rows(core: Core, lease: LeaseRow, new: int) -> None:
    """Move the rows of the tasks of a lease."""
    for stage, lo, hi in lease.spans():
        write(core, stage, lo, hi, lease.live, new)
    lease.live = new


def stop(core: Core, lease: LeaseRow, cause: str, reason: str) -> None:
    """Order a lease to stop; a lease that is stopping already gets another cause."""
    stopping = lease.state not in ACTIVE
    move(core, lease, cause)
    if not stopping:
        core.out.append(Stop(lease.id, reason))


def stop_both(core: Core, lease: LeaseRow, cause: str, reason: str) -> None:
    """Stop a lease whose tasks are not needed in their present form, and the other attempt at them."""
    other = core.speculative.get(lease.id)
    if other is not None:
        stop(core, other, "cancel" if cause == "cut_off" else cause, reason)
    stop(core, lease, cause, reason)


def close(core: Core, lease: LeaseRow) -> None:
    """Remove an ended lease, and return its tokens and its timer."""
    core.leases.pop(lease.id, None)
    _forget(core, lease)
    if not lease.stage.plain:  # plain stages take no tokens
        return_tokens(core, lease.stage.resources[0])


def _forget(core: Core, lease: LeaseRow) -> None:
    move(core, lease, "ended")
    if lease.timer:
        core.timers.pop(lease.timer, None)


# ---------------------------------------------------------------------------------------------- speculative attempts


def attempt_of(core: Core, id: int) -> LeaseRow | None:
    """Return a lease of live tasks, the holder of their rows or the other attempt."""
    lease = core.leases.get(id)
    if lease is None and id in core.speculative:
        lease = core.speculative[core.speculative[id].id]
    return lease


def hold(core: Core, lease: LeaseRow) -> None:
    """Make a speculative lease the holder of the rows of the tasks."""
    other = core.speculative[lease.id]
    if core.leases.pop(other.id, None) is None:
        return  # it is the holder already
    lease.live, lease.lo, lease.hi = other.live, other.lo, other.hi
    core.leases[lease.id] = lease


def separate(core: Core, lease: LeaseRow) -> LeaseRow:
    """Dissolve a pair of attempts; return the other one."""
    other = core.speculative.pop(lease.id)
    del core.speculative[other.id]
    return other


def attempt_ended(core: Core, event: Done | Failed) -> LeaseRow | None:
    """Return a lease without rows that has ended if its end still counts, now as holder of the rows."""
    lease = core.cancelled.pop(event.lease, None)
    if lease is None:
        holder = core.speculative.get(event.lease)
        if holder is None:
            return None
        lease = core.speculative[holder.id]
        if holder.state not in GIVEN_UP:
            hold(core, lease)
            return lease
        separate(core, lease)
    _discard(core, lease, event.hi)
    return None


def _discard(core: Core, lease: LeaseRow, hi: int) -> None:
    """Remove an ended lease without rows, and free what it made up to `hi` if nobody needs that."""
    if lease.state in GIVEN_UP and hi > lease.lo:
        core.out.append(Free(lease.stage.id, lease.lo, hi))
    _forget(core, lease)


def revoked(core: Core, lease: LeaseRow, hi: int) -> None:
    """Leave the rows to the other attempt after the end of one of two that were revoked.

    Their tasks run again after the end of both: the end of the later one frees what it made.
    """
    hold(core, core.speculative[lease.id])
    separate(core, lease)
    _discard(core, lease, hi)


def won(core: Core, lease: LeaseRow) -> None:
    """Cancel the other attempt after one of two has ended well, or after both were skipped."""
    other = separate(core, lease)
    if lease.state in GIVEN_UP:
        core.cancelled[other.id] = other
        return
    count_again(core, lease)
    core.note(lease.name, NoteKind.BACKUP_ENDED, lease.worker, other.worker)
    _cancel_attempt(core, other)


def lost_one(core: Core, lease: LeaseRow) -> LeaseRow:
    """Make the other attempt the holder of the rows after one of two failed at the remaining units; return it."""
    other = core.speculative[lease.id]
    hold(core, other)
    other.lo = lease.lo
    separate(core, lease)
    _forget(core, lease)
    if other.state is LeaseState.NARROWED:
        count_again(core, other)  # it may still end well
    if other.lo >= other.hi:
        del core.leases[other.id]
        _cancel_attempt(core, other)
    return other


def count_again(core: Core, lease: LeaseRow) -> None:
    """Let the reported end of a lease count although the lease was stopped."""
    if lease.state not in ACTIVE:
        move(core, lease, "counts")


def _cancel_attempt(core: Core, lease: LeaseRow) -> None:
    core.cancelled[lease.id] = lease
    stop(core, lease, "outrun", "another attempt was first")


def narrow(core: Core, lease: LeaseRow) -> None:
    """Stop the other attempt of a lease that gave back units: the attempt cannot give back the same ones."""
    other = core.speculative.get(lease.id)
    if other is not None:
        other.hi = lease.hi
        if other.state in ACTIVE:
            stop(core, other, "narrowed", "part of its work was given back")


def attempts_on(core: Core, worker: int) -> list[LeaseRow]:
    """Return the leases on a worker that hold no rows."""
    backups = [lease for lease in core.speculative.values() if lease.id not in core.leases]
    return [lease for lease in (*backups, *core.cancelled.values()) if lease.worker == worker]
