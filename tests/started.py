"""Processes that a test starts, and that end with it at the latest: its failure is then that of no later test."""

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

import psutil

from tests.prepared import ForkedCommand

_started: list[subprocess.Popen[Any] | ForkedCommand] = []
Started = TypeVar("Started", subprocess.Popen[Any], ForkedCommand)


def owned(process: Started) -> Started:
    """Let a process end with the test or the fixture that `all_ended` encloses."""
    _started.append(process)
    return process


def start(command: Sequence[Any], **options: Any) -> subprocess.Popen[Any]:
    """Start a process as `subprocess.Popen` does; it ends with the test or the fixture that `all_ended` encloses."""
    return owned(subprocess.Popen(command, **options))


def have_ended(*processes: psutil.Process | int) -> bool:
    """Whether processes, some by pid, have ended, also those that nobody has waited for yet."""
    return not any(map(_lives, processes))


def _lives(process: psutil.Process | int) -> bool:
    with suppress(psutil.NoSuchProcess):  # which may end between two looks at it
        found = psutil.Process(process) if isinstance(process, int) else process
        return bool(found.is_running() and found.status() != psutil.STATUS_ZOMBIE)
    return False


@contextmanager
def all_ended() -> Iterator[None]:
    """Kill the processes at the end that were started meanwhile and still run, wait for all, and close their pipes."""
    before = len(_started)
    try:
        yield
    finally:
        for process in reversed(_started[before:]):
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout, process.stderr):
                if pipe is not None:
                    with suppress(BrokenPipeError):  # what was written last is still in the buffer
                        pipe.close()
        del _started[before:]
