"""The reports that come by the thousand: leases of one vertex that end as most do, counted together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.engine.core import FEW
from weft.engine.events import Done
from weft.engine.readiness import FINISHED, LEASED, RUNNING, finish, write

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.engine.core import Core
    from weft.engine.events import Event
    from weft.engine.physical import Stage


def end_usual(core: Core, events: Sequence[Event], at: int) -> int:
    """End the leases of the reports from `at` on, as long as they are of one vertex and ended as most do.

    Returns where it stopped: at a report that `Master._on_done` has to look at, or that is of something else.
    """
    leases, workers, rivals = core.leases, core.workers, core.rivals
    root: Stage | None = None
    seconds = nbytes = 0.0
    spans: list[tuple[int, int]] = []
    while at < len(events):
        event = events[at]
        if type(event) is not Done:
            break
        now, number, hi, took, made, _, _, _, stats, rows = event
        lease = leases.get(number)
        if lease is None or lease.stage is not root:
            if lease is None or root is not None:
                break
            stage = lease.stage
            if stage.n <= FEW or not stage.plain or stage.attempts or stage.vertex.expands:
                break
            root, state = stage, stage.state
            seconds, nbytes = stage.seconds, stage.nbytes
        lo = lease.lo
        units = hi - lo
        if (
            hi != lease.hi
            or units <= 0
            or lease.cone is not None
            or lease.stopping
            or lease.offered
            or lease.request
            or lease.timer
            or stats
            or rows
            or (rivals and number in rivals)
        ):
            break
        del leases[number]
        row = workers.get(lease.worker)
        if row is not None:
            row.leases -= 1
        each, size = took / units, made / units
        seconds = each if seconds < 0 else 0.5 * (seconds + each)
        nbytes = size if nbytes < 0 else 0.5 * (nbytes + size)
        old = RUNNING if lease.started else LEASED
        if units == 1 and state[lo] == old:
            state[lo] = FINISHED
        else:
            write(core, root, lo, hi, old, FINISHED)
        spans.append((lo, hi))
        core.now = now
        at += 1
    if spans:
        assert root is not None
        root.seconds, root.nbytes = seconds, nbytes
        root.executing -= sum([hi - lo for lo, hi in spans])
        finish(core, root, spans)
    return at
