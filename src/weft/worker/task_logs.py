"""What tasks print and log, kept by task: in one file for each task, of at most `MOST_BYTES`.

A lease of a session that keeps logs names the folder of its vertex. While it runs, what its thread writes to the
standard streams, and the records of `logging` that it makes, go to the file of the current task as well.
"""

from __future__ import annotations

import copy
import fcntl
import hashlib
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from weft.worker.lease import WorkerLease

MOST_BYTES: Final = 64 * 1024
"""The bytes that are kept of a task; later ones are left out."""
MOST_OF_RUN: Final = 64 * 1024 * 1024
"""The bytes that are kept of all tasks of a run."""
CUT: Final = "\n[the rest is left out]\n"
_AT_ONCE: Final = 8 * 1024
_LOGGING: Final = os.path.dirname(logging.__file__)
_FLAGS: Final = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
_FORMAT: Final = logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s")


def folder_of(folder: str, name: str) -> str:
    """Return the folder of a run, or of a vertex in that of its run; their names may be no names of files."""
    return os.path.join(folder, hashlib.sha256(name.encode()).hexdigest()[:32])


def log_of(job: str, vertex: str, index: int) -> str:
    """Return what a task has printed and logged so far, of all of its attempts; "" if that is nothing."""
    try:
        with open(os.path.join(folder_of(job, vertex), f"{index}.log"), encoding="utf-8", errors="replace") as file:
            return file.read()
    except FileNotFoundError:
        return ""


class _Recorder:
    """The output of a running lease, which goes to the file of its current task line by line."""

    def __init__(self, lease: WorkerLease) -> None:
        self._lease = lease
        self._index = lease.at
        self._text = ""
        self._begun = not lease.attempt

    def add(self, text: str) -> None:
        """Add what the current task writes."""
        if self._lease.at != self._index:
            self.flush()
            self._index = self._lease.at
            self._begun = not self._lease.attempt
        if not self._begun:
            self._begun = True
            text = f"[attempt {self._lease.attempt}]\n{text}"
        self._text += text
        if "\n" in text or len(self._text) > _AT_ONCE:
            self.flush()

    def flush(self) -> None:
        """Write what has come to the file."""
        text, self._text = self._text, ""
        if text:
            with suppress(OSError):  # no room: the task goes on
                _append(self._lease, self._index, text)


def _append(lease: WorkerLease, index: int, text: str) -> None:
    data = text.encode("utf-8", "replace")
    os.makedirs(lease.logs, mode=0o700, exist_ok=True)
    fd = os.open(os.path.join(lease.logs, f"{index}.log"), _FLAGS, 0o600)
    try:
        room = MOST_BYTES - os.fstat(fd).st_size
        if room < 0:  # the mark of the cut is there
            return
        granted = _granted(os.path.dirname(lease.logs), min(len(data), room))
        if granted == len(data):
            os.write(fd, data)
        elif granted or not room:
            os.write(fd, data[:granted] + CUT.encode())
    finally:
        os.close(fd)


def _granted(job: str, nbytes: int) -> int:
    """Return how many of `nbytes` the run has room for, and count them: the length of an empty file is the sum."""
    fd = os.open(os.path.join(job, "total"), _FLAGS, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        total = os.fstat(fd).st_size
        granted = max(0, min(nbytes, MOST_OF_RUN - total))
        os.ftruncate(fd, total + granted)
        return granted
    finally:
        os.close(fd)


class _State:
    """What is installed in this process, and how often."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.users = 0
        self.factory: Callable[..., logging.LogRecord] = logging.LogRecord


_state: Final = _State()
_running: Final = threading.local()


class _Copied:
    """A standard stream of which the lines of tasks are kept."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)

    def write(self, text: str) -> int:
        """Write a text; that of a handler of `logging` is kept as a record already."""
        written: int = self.stream.write(text)
        recorder = getattr(_running, "recorder", None)
        if recorder is not None and not sys._getframe(1).f_code.co_filename.startswith(_LOGGING):
            recorder.add(text)
        return written

    def writelines(self, lines: Any) -> None:
        """Write several texts."""
        for line in lines:
            self.write(line)


def _record(*args: Any, **kwargs: Any) -> logging.LogRecord:
    """Make a record of `logging`, and keep it if a task makes it.

    A handler at the root would turn `logging.basicConfig` and the output without any handler off.
    """
    record = _state.factory(*args, **kwargs)
    recorder = getattr(_running, "recorder", None)
    if recorder is not None:
        with suppress(Exception):  # arguments that do not fit: handlers report them
            recorder.add(f"{_FORMAT.format(copy.copy(record))}\n")
    return record


def _copy_streams() -> None:
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is not None and not isinstance(stream, _Copied):
            setattr(sys, name, _Copied(stream))


def install() -> None:
    """Keep the output of tasks in this process from now on, until `uninstall` was called as often."""
    with _state.lock:
        _state.users += 1
        if _state.users > 1:
            return
        _copy_streams()
        _state.factory = logging.getLogRecordFactory()
        logging.setLogRecordFactory(_record)


def uninstall() -> None:
    """Undo one `install`."""
    with _state.lock:
        _state.users -= 1
        if _state.users:
            return
        for name in ("stdout", "stderr"):
            stream = getattr(sys, name)
            if isinstance(stream, _Copied):
                setattr(sys, name, stream.stream)
        if logging.getLogRecordFactory() is _record:
            logging.setLogRecordFactory(_state.factory)


@contextmanager
def recorded(lease: WorkerLease) -> Iterator[None]:
    """Keep the output of a lease that names a folder for it."""
    if not _state.users:
        install()  # a worker process: for good
    elif not (isinstance(sys.stdout, _Copied) and isinstance(sys.stderr, _Copied)):
        with _state.lock:
            _copy_streams()  # the program has replaced a stream, as notebooks and tests do
    recorder = _Recorder(lease)
    before = getattr(_running, "recorder", None)  # a task that waits may run another one on its thread
    _running.recorder = recorder
    try:
        yield
    finally:
        _running.recorder = before
        recorder.flush()
