"""Bulk endings: consecutive reports of leases of one vertex with the usual end, counted together."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from weft.engine.core import FEW
from weft.engine.events import ANYWHERE, Done
from weft.engine.machines.lease import LEASE, LeaseState
from weft.engine.placement import locations
from weft.engine.readiness import finish
from weft.engine.rows import FINISHED, write_each

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.engine.core import Core
    from weft.engine.events import Event

_SENT, _RUNNING = LeaseState.SENT, LeaseState.RUNNING
_ENDED = LEASE[_SENT]["ended"]


def end_usual(core: Core, events: Sequence[Event], at: int) -> int:
    """End the leases of the reports from `at` on, while they are of one vertex and have the usual end.

    Return the index of the first other report: of another vertex, or one that needs `Master._on_done`.
    """
    leases, speculative, workers = core.leases, core.speculative, core.workers
    first = leases.get(events[at].lease)  # type: ignore[union-attr]
    if first is None:
        return at
    root = first.stage
    if root.n <= FEW or not root.plain or root.attempts or root.vertex.expands or root.vertex.counted:
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
        del leases[number]
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
