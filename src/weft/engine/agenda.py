"""The agenda of a tick: the phases in their order, and the queue of each.

`Core.later` puts items into the queue of a phase. After the events, `Master.handle` runs the first phase with a
non-empty queue until all queues are empty; `phases` holds the functions of the phases.
"""

from __future__ import annotations

from enum import IntEnum


class Phase(IntEnum):
    """The phases of a tick, first to last."""

    MANAGERS = 0  # vertex managers decide; their vertices are in `Core.dirty`
    EXCLUSION = 1  # the node exclusion policy decides, after a failure or after a worker came or went
    RESTARTS = 2  # vertices whose restart region has to start again
    BLOCKED = 3  # links, choices and expanders that have ended without result: their dependents fail
    CONES = 4  # the graph has changed: cones are planned again
    REQUESTS = 5  # vertices that may have to ask the pool for slots
    UNSLOTTED = 6  # tasks that hold no slot start, as far as their tokens go
    OFFERS = 7  # offered workers get leases
    BACKUPS = 8  # offered workers that got none run late leases a second time


PHASES = len(Phase)
