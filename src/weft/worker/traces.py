"""The traces that a worker process leaves of its end in the shared page.

`faulthandler` writes the stacks of all threads there at a fatal signal. A process that is killed or stopped, or that
calls `os._exit`, writes nothing, so the watch thread also writes the stack of the running task at every look. Both
texts have faulthandler's form, with the innermost frame first.
"""

from __future__ import annotations

import faulthandler
import os
import re
import sysconfig
from functools import partial
from traceback import FrameSummary, StackSummary
from typing import TYPE_CHECKING, Final, NamedTuple

from weft.worker import run
from weft.worker.messages import PAGE_BYTES

if TYPE_CHECKING:
    import mmap
    from types import FrameType

_SEEN_AT: Final = 4096
_FATAL_AT: Final = 8192
_STDERR: Final = 2
_FRAME: Final = re.compile(r'  File "(.*)", line (\d+) in (.*)')
_LIBRARIES: Final = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")} | {"<"})


class CrashTrace(NamedTuple):
    """The place of a crash: `where` names the user's line, as the end of a sentence; both are empty if unknown."""

    where: str = ""
    traceback: str = ""


# ----------------------------------------------------------------------------------------------------------- the worker


def record_crashes(page_fd: int) -> None:
    """Have faulthandler write to the page of this worker, but not for forked processes of its tasks."""
    os.lseek(page_fd, _FATAL_AT, os.SEEK_SET)
    faulthandler.enable(page_fd)
    os.register_at_fork(after_in_child=partial(faulthandler.enable, _STDERR))


def write_stack(page: mmap.mmap, token: int, frame: FrameType | None) -> None:
    """Write the stack of the task of lease `token`, from its innermost frame `frame` to the user's first one."""
    lines = [f"{token}\n"]
    while frame is not None and frame.f_code.co_filename != run.__file__:
        lines.append(f'  File "{frame.f_code.co_filename}", line {frame.f_lineno} in {frame.f_code.co_name}\n')
        frame = frame.f_back
    room = _FATAL_AT - _SEEN_AT
    page[_SEEN_AT:_FATAL_AT] = "".join(lines).encode(errors="surrogateescape")[:room].ljust(room, b"\0")


# ---------------------------------------------------------------------------------------------------------- the backend


def read_trace(page: mmap.mmap, token: int) -> CrashTrace:
    """Return the trace of a worker that has ended, or hangs, in lease `token`."""
    fatal, seen = _text(page, _FATAL_AT, PAGE_BYTES), _text(page, _SEEN_AT, _FATAL_AT)
    number, _, stack = seen.partition("\n")
    if fatal:
        error, _, threads = fatal.partition("\n")
        before, current, after = threads.partition("Current thread")
        return _trace(after if current else before, " in", f"{error}\n")
    return _trace(stack, "; last seen in", "") if number == str(token) else CrashTrace()


def _text(page: mmap.mmap, lo: int, hi: int) -> str:
    return page[lo:hi].rstrip(b"\0").decode(errors="replace")


def _trace(text: str, how: str, error: str) -> CrashTrace:
    """Return the trace of the first stack in a text."""
    frames: list[FrameSummary] = []
    for line in text.split("\n"):
        match = _FRAME.fullmatch(line)
        if match is not None and match[1] != run.__file__:
            frames.append(FrameSummary(match[1], int(match[2]), match[3]))
        elif match is not None or frames:
            break
    if not frames:
        return CrashTrace()
    own = next((frame for frame in frames if not frame.filename.startswith(_LIBRARIES)), frames[-1])
    head = "Traceback" if error else "Last seen"
    lines = "".join(StackSummary.from_list(frames[::-1]).format())
    return CrashTrace(
        f"{how} {own.name} ({own.filename}, line {own.lineno})", f"{head} (most recent call last):\n{lines}{error}"
    )
