"""The agenda of a tick: the phases in their order, and the queue of each.

`Core.later` puts items into the queue of a phase. After the events, `Master.handle` runs the first phase with a
non-empty queue until all queues are empty; `phases` holds the functions of the phases.
"""

from __future__ import annotations

from enum import IntEnum


class Phase(IntEnum):
    """The phases of a tick, first to last."""

    CANCELS = 0  # tasks that a user has cancelled: those without a worker end, leases of the others stop
    DEPENDENTS = 1  # tasks that failed, were skipped or went back: other tasks fail, or count their inputs anew
    WANTED = 2  # stages with lost outputs, or whose tasks run again: outputs that are gone and wanted are made again
    SERVICES = 3  # services whose readers may all have ended: these stop
    MANAGERS = 4  # vertex managers decide; their vertices are in `Core.dirty`
    CONTROLLER = 5  # the controller of the job decides, if anything that it sees has changed
    EXCLUSION = 6  # the node exclusion policy decides, after a failure or after a worker came or went
    RESTARTS = 7  # vertices whose restart region has to start again
    BLOCKED = 8  # vertices that have ended without a success, an event or an answer: their dependents end
    CONES = 9  # changed vertices, of which cones are planned again
    REQUESTS = 10  # vertices that may have to ask the pool for slots
    UNSLOTTED = 11  # tasks that hold no slot start, as far as their tokens go
    OFFERS = 12  # offered workers get leases
    BACKUPS = 13  # offered workers that got none run late leases a second time
