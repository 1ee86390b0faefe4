"""The agenda of a tick: the phases in their order, and the queue of each.

`Core.later` puts items into the queue of a phase. After the events, `Master.handle` runs the first phase with a
non-empty queue until all queues are empty; `phases` holds the functions of the phases.
"""

from __future__ import annotations

from enum import IntEnum


class Phase(IntEnum):
    """The phases of a tick, first to last."""

    DEPENDENTS = 0  # tasks that failed, were skipped or went back: other tasks fail, or count their inputs anew
    MANAGERS = 1  # vertex managers decide; their vertices are in `Core.dirty`
    EXCLUSION = 2  # the node exclusion policy decides, after a failure or after a worker came or went
    RESTARTS = 3  # vertices whose restart region has to start again
    BLOCKED = 4  # vertices that have ended without a success, an event or an answer: their dependents end
    CONES = 5  # changed vertices, of which cones are planned again
    REQUESTS = 6  # vertices that may have to ask the pool for slots
    UNSLOTTED = 7  # tasks that hold no slot start, as far as their tokens go
    OFFERS = 8  # offered workers get leases
    BACKUPS = 9  # offered workers that got none run late leases a second time


PHASES = len(Phase)
