"""Bulk endings: reports of leases of one vertex with the usual end, counted together."""

from __future__ import annotations

from itertools import islice, repeat
from typing import TYPE_CHECKING, Final

from weft.engine.core import FEW, LeaseRow
from weft.engine.events import ANYWHERE, Done
from weft.engine.machines.lease import LEASE, LeaseState
from weft.engine.placement import locations
from weft.engine.readiness import finish
from weft.engine.rows import FINISHED, LEASED, write_each, write_some

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.engine.core import Core
    from weft.engine.events import DoneEach, Event
    from weft.engine.physical import Stage

_SENT, _RUNNING = LeaseState.SENT, LeaseState.RUNNING
_ENDED = LEASE[_SENT]["ended"]


_FORGOTTEN: Final = 64
"""After as many reports, an average in which each counts for half is that of these reports alone."""


def _ends_usually(stage: Stage) -> bool:
    """Return whether all that follows from the end of a task of this stage is that it has ended."""
    vertex = stage.vertex
    return stage.n > FEW and stage.plain and not stage.attempts and not vertex.expands and not vertex.counted


def _is_usual(core: Core, lease: LeaseRow) -> bool:
    """Return whether a lease has one task, and nothing but its end was heard of it."""
    return (
        lease.hi - lease.lo == 1
        and lease.state is _SENT
        and lease.cone is None
        and not lease.request
        and not lease.timer
        and lease.id not in core.speculative
    )


def end_each(core: Core, event: DoneEach) -> bool:
    """End the leases of a report of many; False if they have to end one by one."""
    records, numbers, tasks = core.leases.records, event.leases, event.tasks
    found = list(map(records.pop, numbers, repeat(None)))
    stages = {record.stage if record is not None else None for record in found}
    root = stages.pop() if len(stages) == 1 else None
    others = [record for record in found if type(record) is LeaseRow]
    if root is None or not _ends_usually(root) or not all(_is_usual(core, lease) for lease in others):
        records.update((lease, record) for lease, record in zip(numbers, found, strict=True) if record is not None)
        return False
    for lease in others:
        lease.state = _ENDED
    if not core.tuning.shared_memory:
        node_of, size_of = locations(root)
        for index, worker, made in zip(tasks, event.workers, event.nbytes, strict=True):
            row = core.workers.get(worker)
            node_of[index], size_of[index] = row.node if row is not None else ANYWHERE, made
    write_some(core, root, tasks, LEASED, FINISHED)
    seconds, nbytes = root.seconds, root.nbytes
    for each, size in zip(event.seconds[-_FORGOTTEN:], event.nbytes[-_FORGOTTEN:], strict=True):
        seconds = 0.5 * (seconds + each) if seconds >= 0 else each
        nbytes = 0.5 * (nbytes + size) if nbytes >= 0 else size
    root.seconds, root.nbytes = seconds, nbytes
    root.executing -= len(tasks)
    core.now = event.now
    finish(core, root, [(index, index + 1) for index in tasks])
    return True


def end_usual(core: Core, events: Sequence[Event], at: int) -> int:
    """End the leases of the reports from `at` on, while they are of one vertex and have the usual end.

    Return the index of the first other report: of another vertex, or one that needs `Master._on_done`.
    """
    leases, speculative, workers = core.leases, core.speculative, core.workers
    records = leases.records
    first = leases.get(events[at].lease)  # type: ignore[union-attr]
    if first is None:
        return at
    root = first.stage
    if not _ends_usually(root):
        return at
    seconds, nbytes = root.seconds, root.nbytes
    spans: list[tuple[int, int]] = []  # rows of adjacent tasks in the same state take one write
    lives: list[int] = []
    first_lo = last_hi = live = -1
    ended = 0
    each: float
    size: float
    located = not core.tuning.shared_memory
    node_of, size_of = locations(root) if located else ([], [])
    for event in islice(events, at, None):
        if type(event) is not Done:
            break
        number, hi, took, made = event.lease, event.hi, event.seconds, event.nbytes
        lease = leases.get(number)
        if (
            lease is None
            or lease.stage is not root
            or hi != lease.hi
            or (lease.state is not _SENT and lease.state is not _RUNNING)
            or lease.cone is not None
            or lease.request
            or lease.timer
            or event.stats
            or event.rows
            or (located and event.sizes is not None)
            or (speculative and number in speculative)
        ):
            break
        lo = lease.lo
        units = hi - lo
        if units == 1:
            each, size = took, made
        elif units > 0:
            each, size = took / units, made / units
        else:
            break
        if located:
            row = workers.get(lease.worker)
            node = row.node if row is not None else ANYWHERE
            if units == 1:
                node_of[lo], size_of[lo] = node, made
            else:
                node_of[lo:hi], size_of[lo:hi] = [node] * units, [made // units] * units
        if lo == last_hi and lease.live == live:
            last_hi = hi
        else:
            if last_hi >= 0:
                spans.append((first_lo, last_hi))
                lives.append(live)
            first_lo, last_hi, live = lo, hi, lease.live
        lease.state = _ENDED
        del records[number]
        seconds = 0.5 * (seconds + each) if seconds >= 0 else each
        nbytes = 0.5 * (nbytes + size) if nbytes >= 0 else size
        ended += 1
        core.now = event.now
    if ended:
        spans.append((first_lo, last_hi))
        lives.append(live)
        write_each(core, root, spans, lives, FINISHED)
        root.seconds, root.nbytes = seconds, nbytes
        root.executing -= sum([hi - lo for lo, hi in spans])
        finish(core, root, spans)
    return at + ended
