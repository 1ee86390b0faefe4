"""The one writer of task states: each write is checked against the table of tasks.

`TASK` and `COMPOSITES` are compiled to a table of bytes, one for each pair of states. A state outside the table is not
written: InvalidTransition is raised with the history of the task. Both functions take ranges, since a range of a
thousand tasks costs one count and one slice write.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.engine.machines.task import COMPOSITES, TASK, TaskState
from weft.engine.story import story
from weft.model.errors import InvalidTransition

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from weft.engine.core import Core
    from weft.engine.physical import Stage

UNSCHEDULED = int(TaskState.UNSCHEDULED)
READY = int(TaskState.READY)
PROBING = int(TaskState.PROBING)
LEASED = int(TaskState.LEASED)
RUNNING = int(TaskState.RUNNING)
COMMITTING = int(TaskState.COMMITTING)
FINISHED = int(TaskState.FINISHED)
FREED = int(TaskState.FREED)
FATAL = int(TaskState.FATAL)
CANCELLING = int(TaskState.CANCELLING)
CANCELLED = int(TaskState.CANCELLED)
SKIPPED = int(TaskState.SKIPPED)
LOST = int(TaskState.LOST)

NOT_STARTED = (UNSCHEDULED, READY, PROBING)
"""States of tasks without a worker."""
OVER = frozenset({FINISHED, FREED, FATAL, CANCELLED, SKIPPED})
"""States of tasks that have ended in some way."""

STATES = len(TaskState)


def _compile() -> bytes:
    """Return 1 at `old * STATES + new` for each arc and each declared path, 0 elsewhere."""
    table = bytearray(STATES * STATES)
    for old, causes in TASK.items():
        for new in causes.values():
            table[old * STATES + new] = 1
    for path in COMPOSITES.values():
        table[path[0] * STATES + path[-1]] = 1
    return bytes(table)


LEGAL = _compile()
"""Whether a task may go from one state to another, at `old * STATES + new`."""
_FROM = [bytes(LEGAL[old * STATES + new] if old < STATES else 0 for old in range(256)) for new in range(STATES)]
_BYTES = [bytes([state]) for state in TaskState]


def write(core: Core, stage: Stage, lo: int, hi: int, old: int, new: int) -> None:
    """Move tasks `lo:hi` from state `old` to `new`.

    InvalidTransition with the history if one of them is in another state, or the table has no such arc.
    """
    state = stage.state
    if hi - lo == 1:
        if state[lo] != old or not LEGAL[old * STATES + new]:
            _refuse(core, stage, lo, hi, old, new)
        state[lo] = new
        return
    if state.count(old, lo, hi) != hi - lo or not LEGAL[old * STATES + new]:
        _refuse(core, stage, lo, hi, old, new)
    state[lo:hi] = _BYTES[new] * (hi - lo)


def write_each(core: Core, stage: Stage, ranges: Sequence[tuple[int, int]], olds: Sequence[int], new: int) -> None:
    """Move the tasks of many ranges as `write`, each range from its state in `olds`."""
    state = stage.state
    for (lo, hi), old in zip(ranges, olds, strict=True):
        if hi - lo == 1 and state[lo] == old and LEGAL[old * STATES + new]:
            state[lo] = new
        else:
            write(core, stage, lo, hi, old, new)


def write_some(core: Core, stage: Stage, tasks: Sequence[int], old: int, new: int) -> None:
    """Move different tasks as `write`."""
    state = stage.state
    if bytes(map(state.__getitem__, tasks)).count(old) == len(tasks) and LEGAL[old * STATES + new]:
        for index in tasks:
            state[index] = new
    else:
        for index in tasks:
            write(core, stage, index, index + 1, old, new)


def write_mixed(core: Core, stage: Stage, lo: int, hi: int, new: int) -> None:
    """Move tasks `lo:hi` to `new`, each from its present state.

    InvalidTransition with the history if the table has no such arc for one of these states.
    """
    state = stage.state
    legal = state[lo:hi].translate(_FROM[new])
    if legal.count(1) != hi - lo:
        index = lo + legal.find(0)
        _refuse(core, stage, index, index + 1, state[index], new)
    state[lo:hi] = _BYTES[new] * (hi - lo)


def runs_of(rows: bytearray, state: int, lo: int, hi: int) -> Iterator[tuple[int, int]]:
    """Yield the tasks of `lo:hi` in a state, as ranges. Rows that are written meanwhile may be yielded or not."""
    one = _BYTES[state]
    while (lo := rows.find(one, lo, hi)) >= 0:
        end, step = lo + 1, 1
        while end < hi and rows[end] == state:
            ahead = min(hi, end + step)
            if rows.count(one, end, ahead) == ahead - end:
                end, step = ahead, 2 * step
            else:
                step = 1
        yield lo, end
        lo = end


def _refuse(core: Core, stage: Stage, lo: int, hi: int, old: int, new: int) -> None:
    index = next((i for i in range(lo, hi) if stage.state[i] != old), lo)
    subject = f"{stage.id}[{index}]"
    is_in = TaskState(stage.state[index]).name
    wrong = f"is {is_in}, not {TaskState(old).name}," if stage.state[index] != old else f"no transition from {is_in}"
    raise InvalidTransition(f"{subject}: {wrong} on the way to {TaskState(new).name}", story=story(core, subject))
