"""What events leave to be done in the same tick: the phases in their order, and the queue of each.

`Core.later` puts something into the queue of a phase. After the events, `Master.handle` runs the first phase that has
something to do, again and again until none has; what a phase does is in `phases`.
"""

from __future__ import annotations

from enum import IntEnum


class Phase(IntEnum):
    """The phases of a tick, first to last."""

    MANAGERS = 0  # vertex managers are asked; their vertices are in `Core.dirty`
    EXCLUSION = 1  # the policy of excluded workers is asked, since something failed or a worker came or went
    RESTARTS = 2  # vertices whose restart region has to start again
    BLOCKED = 3  # links, choices and expanders that can bring nothing any more: who waits for them fails
    CONES = 4  # the graph has changed: cones are planned again
    REQUESTS = 5  # vertices that may have to ask the pool for slots
    UNSLOTTED = 6  # tasks that hold no slot start, as far as their tokens go
    OFFERS = 7  # offered workers get leases
    BACKUPS = 8  # offered workers that got none run late leases a second time


PHASES = len(Phase)
