"""The table of failure kinds: the effect of each on retries and on the worker, and the error that users see.

The worker reports the kind of a failed attempt, the engine counts it against the vertex's `Retry`, and the error of the
run and its code follow from it. A new kind is a member of `Failure` and a row of `FAILURES`; a new retry class is a
member of `RetryClass` and a field of `weft.graph.logical.Retry`.
"""

from __future__ import annotations

from enum import Enum, IntEnum
from typing import Final

from msgspec import Struct

from weft.model.errors import (
    CapacityError,
    DiskFullError,
    InternalError,
    OutOfMemoryError,
    PeerMovedError,
    ProgramError,
    RunCancelledError,
    RunFailedError,
    TaskError,
    UnreadableError,
    WeftError,
)


class RetryClass(IntEnum):
    """The classes of failures whose retries are counted separately; the value is the column in the counts."""

    USER = 0
    MEMORY = 1
    INFRASTRUCTURE = 2
    CRASH = 3

    @property
    def of_code(self) -> bool:
        """Whether the code of the task raised or returned these failures, so that pauses and restart rules hold."""
        return self in (RetryClass.USER, RetryClass.MEMORY)

    @property
    def field(self) -> str:
        """The field of `Retry` that limits this class, and its key in files."""
        return self.name.lower()


class Failure(Enum):
    """The kinds of failed attempts."""

    USER = "user"
    """The code of the task failed."""
    MEMORY = "memory"
    """The task ran out of memory, or the system killed its command for lack of memory."""
    INFRASTRUCTURE = "infrastructure"
    """A worker was lost, or a transport broke."""
    CRASH = "crash"
    """The process of a worker died or froze while it ran the task."""
    INPUT = "input"
    """An input is gone; the event names it."""
    READ = "read"
    """An input exists and could not be read; the fault may be the reader's."""
    MOVED = "moved"
    """A task that this one works with has begun again elsewhere."""
    CAPACITY = "capacity"
    """No worker can ever provide the resources of the task."""
    DISK = "disk"
    """A disk is full."""
    PROGRAM = "program"
    """Code or a value cannot be sent or imported."""
    STOPPED = "stopped"
    """The attempt was cancelled and has stopped."""
    CANCELLED = "cancelled"
    """A user has cancelled this task, and not the job."""
    JOURNAL = "journal"
    """The journal of the job cannot be written; the whole job fails."""
    INTERNAL = "internal"
    """A fault of Weft itself; the whole job fails."""


class FailureRow(Struct, frozen=True):
    """The properties of one kind of failure.

    `retry` is the retry class (None: a retry cannot help). `excludes` means that the failure counts against the worker
    and its node (node exclusion). `error` is the error class of a run that failed this way, with its `code`.
    `exit_code` stands for a failure without an exit code in rules that ask for one. `killed_by` are the signals of a
    command that mean this kind if the kernel has killed a process for lack of memory meanwhile; an exit code of 128
    plus the signal, as a shell reports it, means the same.
    """

    retry: RetryClass | None
    excludes: bool = False
    error: type[WeftError] = RunFailedError
    exit_code: int = 1
    killed_by: tuple[int, ...] = ()


SIGKILL: Final = 9
SIGNALLED: Final = 128
TIMED_OUT: Final = "took longer than its timeout of"
"""The beginning of the message of a task that took longer than its timeout."""
BACKOFF_LIMIT: Final = "it has reached the specified backoff limit"
"""The end of the message of a training job that has been retried too often."""
OF_TIMEOUTS: Final = "builtins:TimeoutError"
"""The class of the exception of such a task, as `TaskError.raised`."""
"""Exit codes above this number mean that a signal ended the process: this number plus the signal."""

FAILURES: Final = {
    Failure.USER: FailureRow(RetryClass.USER, error=TaskError),
    Failure.MEMORY: FailureRow(
        RetryClass.MEMORY, error=OutOfMemoryError, exit_code=SIGNALLED + SIGKILL, killed_by=(SIGKILL,)
    ),
    Failure.INFRASTRUCTURE: FailureRow(RetryClass.INFRASTRUCTURE, excludes=True, exit_code=SIGNALLED + SIGKILL),
    Failure.CRASH: FailureRow(RetryClass.CRASH, excludes=True, error=TaskError, exit_code=SIGNALLED + SIGKILL),
    Failure.INPUT: FailureRow(RetryClass.INFRASTRUCTURE),
    Failure.READ: FailureRow(RetryClass.INFRASTRUCTURE, excludes=True),
    Failure.MOVED: FailureRow(RetryClass.INFRASTRUCTURE, error=PeerMovedError),
    Failure.CAPACITY: FailureRow(None, error=CapacityError),
    Failure.DISK: FailureRow(None, error=DiskFullError),
    Failure.PROGRAM: FailureRow(None, error=ProgramError),
    Failure.STOPPED: FailureRow(None),
    Failure.CANCELLED: FailureRow(None, error=RunCancelledError),
    Failure.JOURNAL: FailureRow(None),
    Failure.INTERNAL: FailureRow(None, error=InternalError),
}

_BY_ERROR: Final[dict[type, Failure]] = {
    MemoryError: Failure.MEMORY,
    OutOfMemoryError: Failure.MEMORY,
    DiskFullError: Failure.DISK,
    PeerMovedError: Failure.MOVED,
    CapacityError: Failure.CAPACITY,
    ProgramError: Failure.PROGRAM,
    WeftError: Failure.USER,
}


def kind_of(error: BaseException, other: Failure = Failure.USER) -> Failure:
    """Return the kind of failure of an exception; `other` for an exception that is not Weft's own."""
    return next((_BY_ERROR[each] for each in type(error).__mro__ if each in _BY_ERROR), other)


def kind_of_input(error: WeftError) -> Failure:
    """Return the kind of failure of a task whose input raised this error of the store."""
    return Failure.READ if isinstance(error, UnreadableError) else Failure.INPUT


def kind_of_exit(exit_code: int | None, signal: int | None, *, out_of_memory: bool) -> Failure:
    """Return the kind of failure of a command that ended by itself.

    `signal` is the number of the signal that ended it, if any; `out_of_memory` says that the kernel killed some process
    for lack of memory while the command ran.
    """
    number = signal if signal is not None else (exit_code or 0) - SIGNALLED
    if out_of_memory:
        return next((kind for kind, row in FAILURES.items() if number in row.killed_by), Failure.USER)
    return Failure.USER


def error_of(kind: str) -> type[WeftError]:
    """Return the error class of a run that failed by `kind`, a value of `Failure` or "" for none."""
    return FAILURES[Failure(kind)].error if kind else RunFailedError
