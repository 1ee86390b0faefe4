"""The kinds of failure, as one table: what each means for retries, for the worker, and for the error that users see.

The worker names the kind of a failed attempt, the engine counts it against the vertex's `Retry`, and the run's error
and its code follow from it. A new kind is a member of `Failure` and a row of `FAILURES`; a new class of retries is a
member of `RetryClass` and a field of `weft.graph.logical.Retry`.
"""

from __future__ import annotations

from enum import Enum, IntEnum
from typing import Final, NamedTuple

from weft.model.errors import (
    CapacityError,
    DiskFullError,
    InternalError,
    OutOfMemoryError,
    ProgramError,
    RunFailedError,
    TaskError,
    UnreadableError,
    WeftError,
)


class RetryClass(IntEnum):
    """The classes of failures whose retries are counted apart; the value is the column of the class in the counts."""

    USER = 0
    MEMORY = 1
    INFRASTRUCTURE = 2

    @property
    def field(self) -> str:
        """The field of `Retry` that limits this class, and its key in files."""
        return self.name.lower()


class Failure(Enum):
    """The kind of a failed attempt: whose fault it was."""

    USER = "user"
    """The code of the task."""
    MEMORY = "memory"
    """The task had not enough memory, or the system killed its command for want of memory."""
    INFRASTRUCTURE = "infrastructure"
    """A lost worker, a broken transport."""
    INPUT = "input"
    """An input is gone; the event names it."""
    READ = "read"
    """An input is there and could not be read; the fault may be the reader's."""
    CAPACITY = "capacity"
    """The task can never have the resources it needs."""
    DISK = "disk"
    """A disk is full."""
    PROGRAM = "program"
    """Code or a value that cannot be sent or imported."""
    STOPPED = "stopped"
    """The attempt was told to stop, and did."""
    JOURNAL = "journal"
    """The journal of the job cannot be written; the whole job fails."""
    INTERNAL = "internal"
    """A fault of Weft itself; the whole job fails."""


class FailureRow(NamedTuple):
    """The properties of one kind of failure.

    `retry` is the class that retries are counted in (None: no retry helps). `excludes` says that the failure counts
    against the worker and its node (node exclusion). `error` is the class, and by its `code` the code, of the error
    of a run that failed so. `exit_code` stands for the failure where a rule asks for the exit code of an attempt that
    has none. `killed_by` are the signals of a command that mean this kind where the kernel has counted a kill for
    memory meanwhile; an exit code of 128 and the signal, which a shell reports of its child, means the same.
    """

    retry: RetryClass | None
    excludes: bool = False
    error: type[WeftError] = RunFailedError
    exit_code: int = 1
    killed_by: tuple[int, ...] = ()


SIGKILL: Final = 9
SIGNALLED: Final = 128
"""Exit codes above are those of a process that a signal has ended: this number and the signal."""

FAILURES: Final = {
    Failure.USER: FailureRow(RetryClass.USER, error=TaskError),
    Failure.MEMORY: FailureRow(
        RetryClass.MEMORY, error=OutOfMemoryError, exit_code=SIGNALLED + SIGKILL, killed_by=(SIGKILL,)
    ),
    Failure.INFRASTRUCTURE: FailureRow(RetryClass.INFRASTRUCTURE, excludes=True, exit_code=SIGNALLED + SIGKILL),
    Failure.INPUT: FailureRow(RetryClass.INFRASTRUCTURE),
    Failure.READ: FailureRow(RetryClass.INFRASTRUCTURE, excludes=True),
    Failure.CAPACITY: FailureRow(None, error=CapacityError),
    Failure.DISK: FailureRow(None, error=DiskFullError),
    Failure.PROGRAM: FailureRow(None, error=ProgramError),
    Failure.STOPPED: FailureRow(None),
    Failure.JOURNAL: FailureRow(None),
    Failure.INTERNAL: FailureRow(None, error=InternalError),
}

_BY_ERROR: Final[dict[type, Failure]] = {
    MemoryError: Failure.MEMORY,
    OutOfMemoryError: Failure.MEMORY,
    DiskFullError: Failure.DISK,
    CapacityError: Failure.CAPACITY,
    ProgramError: Failure.PROGRAM,
    WeftError: Failure.USER,
}


def kind_of(error: BaseException, other: Failure = Failure.USER) -> Failure:
    """Return the kind of failure that an exception tells of: `other` for one that is not Weft's own."""
    return next((_BY_ERROR[each] for each in type(error).__mro__ if each in _BY_ERROR), other)


def kind_of_input(error: WeftError) -> Failure:
    """Return the kind of failure that the store's error means for the task that reads the input."""
    return Failure.READ if isinstance(error, UnreadableError) else Failure.INPUT


def kind_of_exit(exit_code: int | None, signal: int | None, *, out_of_memory: bool) -> Failure:
    """Return the kind of failure of a command that ended by itself.

    `signal` is the number of the signal that ended it, if one did; `out_of_memory` says that the kernel has killed
    some process for want of memory while the command ran.
    """
    number = signal if signal is not None else (exit_code or 0) - SIGNALLED
    if out_of_memory:
        return next((kind for kind, row in FAILURES.items() if number in row.killed_by), Failure.USER)
    return Failure.USER


def error_of(kind: str) -> type[WeftError]:
    """Return the class of error of a run that failed by a kind (a value of `Failure`, or "" for no kind)."""
    return FAILURES[Failure(kind)].error if kind else RunFailedError
