"""The lifecycle of a bubble: vertices that are allocated together, all or nothing."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from weft.engine.machines.table import Table


class BubbleState(Enum):
    """The state of a bubble."""

    __hash__ = object.__hash__  # members are single objects; the default goes through Python code

    FORMING = "forming"  # some member is not configured, or an input from outside is missing
    WAITING = "waiting"  # requested; the pool has not granted it yet
    HELD = "held"  # granted, all members start
    DONE = "done"  # every member has ended, the slots are released
    SHRUNK = "shrunk"  # not granted in time: its last vertex left, the rest asks again


BUBBLE: Table[BubbleState] = {
    BubbleState.FORMING: {"complete": BubbleState.WAITING, "ended": BubbleState.DONE},
    BubbleState.WAITING: {
        "granted": BubbleState.HELD,
        "timeout": BubbleState.SHRUNK,
        "never_fits": BubbleState.SHRUNK,
        "changed": BubbleState.FORMING,  # whole: other tasks are to start now, or the request was refused
        "ended": BubbleState.DONE,
    },
    BubbleState.HELD: {
        "region_restart": BubbleState.FORMING,
        "released": BubbleState.FORMING,  # whole: no task runs or is to run, or all slots are lost
        "ended": BubbleState.DONE,
    },
    BubbleState.SHRUNK: {"reformed": BubbleState.FORMING, "dissolved": BubbleState.DONE},
    BubbleState.DONE: {"output_lost": BubbleState.FORMING},
}
