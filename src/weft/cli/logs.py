"""The printer of logs, which follows them while they grow and while their writer compacts them in place."""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from heapq import merge
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TextIO

from msgspec import Struct

from weft.cli.tables import clean, iso, json_text, moment
from weft.runs.logs import tail_start
from weft.runs.times import STREAMS, LogText, LogTimes, TimedLines

if TYPE_CHECKING:
    from weft.store.state import LogFile

POLL_S: Final = 0.2
BLOCK: Final = 1 << 20
ANCHOR: Final = 4096
_LONG_LINE: Final = 64 << 10
_NOTE: Final = re.compile(rb"\n\[weft\] +\d+ bytes of output were dropped here\n")
_COLOURS: Final = ("36", "33", "32", "35", "34", "31", "96", "93", "92", "95", "94", "91")
"""Colours of terminals for the names of tasks, one after the other."""
_ERROR: Final = "! "
"""What stands before a line of an error."""
_RED: Final = "31"
_TIME_WIDTH: Final = len("2026-01-01 00:00:00.000")
_GAP: Final = b"\n[weft] output was dropped here\n"


class NewBytes(NamedTuple):
    """New bytes of a growing file: a text that marks a loss before them, if any, their offset, and the bytes.

    `moved`: what was read before may stand at other offsets now.
    """

    gap: bytes
    at: int
    data: bytes
    moved: bool


class Follower:
    """A reader of the new bytes of a growing file.

    The writer of a log may drop the middle of the file: it moves the end forward in place and truncates the file. The
    follower then searches the last bytes that it read and continues after them, or after the gap if they are gone too.
    """

    def __init__(self, path: Path, start: int = 0) -> None:
        self.path = path
        self._at = start
        self._anchor = b""

    def read(self) -> bytes:
        """Return new bytes, at most 1 MiB; empty if there are none yet."""
        found = self.take()
        return found.gap + found.data

    def take(self) -> NewBytes:
        """Return new bytes, at most 1 MiB, with their offset."""
        try:
            fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            return NewBytes(b"", self._at, b"", moved=False)
        try:
            moved = not self._steady(fd)
            gap = self._find_again(fd) if moved else b""
            at = self._at
            data = os.pread(fd, BLOCK, at)
            if not self._steady(fd):  # the file was truncated between the two steps: the bytes read may be anything
                return NewBytes(gap, at, b"", moved=True)
            self._at += len(data)
            self._anchor = (self._anchor + data)[-ANCHOR:]
            return NewBytes(gap, at, data, moved=moved)
        finally:
            os.close(fd)

    def _steady(self, fd: int) -> bool:
        """Whether the last bytes read still stand at their offset."""
        size = len(self._anchor)
        return os.pread(fd, size, self._at - size) == self._anchor

    def _find_again(self, fd: int) -> bytes:
        """Move to the position where reading continues in a compacted file; return the text that marks the loss."""
        end = os.fstat(fd).st_size
        stop = end
        while stop > 0:
            start = max(0, stop - BLOCK)
            found = os.pread(fd, stop - start + ANCHOR, start).rfind(self._anchor)
            if found >= 0:
                self._at = start + found + len(self._anchor)
                return b""
            stop = start
        self._anchor = b""
        self._at, stop = 0, end
        while stop > 0:
            start = max(0, stop - BLOCK)
            notes = list(_NOTE.finditer(os.pread(fd, stop - start + 128, start)))
            if notes:
                self._at = start + notes[-1].end()
                break
            stop = start
        return _GAP


class LogView(Struct, frozen=True):
    """What of logs is printed, and how.

    `tail` is the number of lines at the end of each log, None for all; `stream` is `stdout` or `stderr`, "" for both.
    """

    tail: int | None = None
    as_json: bool = False
    timestamps: bool = False
    stream: str = ""


class _Stream:
    """One log that is copied to the output in whole lines."""

    def __init__(self, log: LogFile, start: int, limit: int | None, *, lined: bool) -> None:
        self.log = log
        self._follower = Follower(log.path, start)
        self._begun = b""
        self._limit = limit
        self.times = LogTimes(log.times)
        self._lines = TimedLines(self.times, _LONG_LINE) if lined else None

    @property
    def task(self) -> str:
        """The name of the task of this log, and of a container beside it."""
        name = clean(self.log.step) + ("" if self.log.index is None else f"-{self.log.index}")
        return f"{name}/{self.log.container}" if self.log.container else name

    @property
    def title(self) -> str:
        """The title above the lines of this log."""
        task = "" if self.log.index is None else f"[{self.log.index}]"
        return f"==> {clean(self.log.step)}{task} <==\n"

    @property
    def head(self) -> dict[str, Any]:
        """The JSON fields of each line of this log, without those of the line."""
        beside = {"container": self.log.container} if self.log.container else {}
        return {"step": self.log.step, "index": self.log.index, "attempt": self.log.attempt, **beside}

    def texts(self, choose: Callable[[_Stream, LogText], bool], *, ended: bool) -> Iterator[tuple[_Stream, LogText]]:
        """Yield the chosen new texts, with this log; with `ended` also a line without an end."""
        found: Iterable[LogText] = (text for text in self._new(ended=ended) if choose(self, text))
        if self._limit is not None:
            found, self._limit = deque(found, self._limit), None
        return ((self, text) for text in found)

    def _new(self, *, ended: bool) -> Iterator[LogText]:
        while (new := self._follower.take()).data or new.gap:
            if self._lines is None:
                yield from self._whole(new.gap + new.data)
                continue
            self.times.refresh(again=new.moved)
            if new.gap:
                yield from self._lines.rest()
                yield LogText(new.gap.strip(b"\n") + b"\n")
            yield from self._lines.add(new.at, new.data)
        if ended:
            rest = [LogText(self._begun)] if self._begun else []
            self._begun = b""
            yield from rest if self._lines is None else self._lines.rest()

    def _whole(self, data: bytes) -> Iterator[LogText]:
        data = self._begun + data
        whole = data.rfind(b"\n") + 1
        if not whole and len(data) > _LONG_LINE:
            whole = len(data)
        self._begun = data[whole:]
        if whole:
            yield LogText(data[:whole])


class _Choice:
    """Chooses the texts of a view, and says once what a log cannot tell."""

    def __init__(self, view: LogView, say: Callable[[str], None]) -> None:
        self._view, self._say = view, say
        self._told: set[str] = set()

    def __call__(self, stream: _Stream, text: LogText) -> bool:
        if self._view.timestamps and text.time is None and not stream.times.known:
            self._tell("time", f"the log of {stream.task} has no times, and maybe others: older runs kept none")
        if not self._view.stream:
            return True
        if not stream.times.apart:
            why = f"the log of {stream.task} does not tell output from errors, and maybe others"
            self._tell("stream", f"{why}: steps with x-weft: {{stderr: apart}} have such logs")
        return stream.times.apart and text.stream in ("", self._view.stream)

    def _tell(self, about: str, message: str) -> None:
        if about not in self._told:
            self._told.add(about)
            self._say(message)


def print_logs(
    look: Callable[[], tuple[Sequence[LogFile], bool]],
    out: TextIO,
    view: LogView,
    *,
    follow: bool,
    pause: Callable[[float], None],
    say: Callable[[str], None],
    prefixed: bool = False,
    colours: bool = False,
) -> bool:
    """Print logs, each with a title if there are several; return whether any line was printed.

    With `prefixed`, the name of its task stands before each line instead, and lines of growing logs mix; with times
    they are in the order of these. `look` returns the current logs and whether the run is still active. With `follow`,
    printing continues until it is not. Control characters are removed on a terminal, and kept elsewhere. A terminal
    has `colours`, and a mark before errors, as times have. With JSON each line becomes one document on a line of its
    own. `say` prints what a log cannot tell.
    """
    streams: dict[Path, _Stream] = {}
    printer = (_Documents if view.as_json else _Prefixed if prefixed else _Printer)(out, view, colours)
    lined = view.as_json or view.timestamps or bool(view.stream) or out.isatty()
    choose = _Choice(view, say)
    while True:
        logs, alive = look()  # checked before reading, so that the last read follows the last check
        for log in logs:
            if log.path not in streams:
                tail = None if printer.again else view.tail
                start = tail_start(log.path, tail) if tail is not None and not view.stream else 0
                limit = tail if view.stream else None
                streams[log.path] = _Stream(log, start, limit, lined=lined)
        printer.expect(streams.values())
        new = [stream.texts(choose, ended=not (follow and alive)) for stream in streams.values()]
        for stream, text in merge(*new, key=_when) if prefixed and view.timestamps else chain.from_iterable(new):
            printer.put(text, stream, alone=len(streams) == 1)
        if not (follow and alive):
            break
        printer.again = True
        with suppress(AttributeError):
            out.flush()
        pause(POLL_S)
    printer.end()
    return printer.any


def _when(new: tuple[_Stream, LogText]) -> float:
    return new[1].time or 0.0


class _Printer:
    """A writer of the lines of several logs."""

    def __init__(self, out: TextIO, view: LogView, coloured: bool) -> None:
        self.any = False
        self.again = False
        self._out = out
        self._timed = view.timestamps
        self._coloured = coloured
        self._title = ""
        self._whole = True
        self._raw = None if out.isatty() else getattr(out, "buffer", None)
        self._marked = not view.stream and (out.isatty() or view.timestamps)

    def expect(self, streams: Iterable[_Stream]) -> None:
        """Take all logs so far."""

    def put(self, text: LogText, stream: _Stream, *, alone: bool) -> None:
        """Write lines of a log, below its title if the last lines were of another log."""
        self.any = True
        whole = text.text.endswith(b"\n")
        title = ""
        if not alone and stream.title != self._title:
            title = ("" if self._whole else "\n") + stream.title
        self._title, self._whole = "" if alone else stream.title, whole
        self.write(title + self.before(text), text.text)

    def before(self, text: LogText) -> str:
        """Return what stands before a line: its time, and the mark of an error."""
        time = f"{_local(text.time):{_TIME_WIDTH}} " if self._timed else ""
        if not self._marked or text.stream != STREAMS[-1]:
            return time
        return f"{time}\x1b[{_RED}m{_ERROR}\x1b[0m" if self._coloured else f"{time}{_ERROR}"

    def write(self, head: str, data: bytes) -> None:
        """Write lines behind a text; a terminal gets no control characters of the lines."""
        if self._raw is not None:
            self._raw.write(head.encode() + data)
        else:
            self._out.write(head + clean(data.decode("utf-8", "replace")))

    def end(self) -> None:
        """Leave the cursor of a terminal at the beginning of a line."""
        if self._raw is None and not self._whole:
            self._out.write("\n")


class _Prefixed(_Printer):
    """A writer of lines of several logs, each behind the name of its task: `worker-1 | text`. A line marks where those
    of a further start of the task begin.
    """

    def __init__(self, out: TextIO, view: LogView, coloured: bool) -> None:
        super().__init__(out, view, coloured)
        self._width = 0
        self._begun: set[Path] = set()
        self._colours: dict[str, str] = {}

    def expect(self, streams: Iterable[_Stream]) -> None:
        """Align the names."""
        self._width = max([self._width, *(len(stream.task) for stream in streams)])

    def put(self, text: LogText, stream: _Stream, *, alone: bool) -> None:
        """Write lines of a log; the last one ends."""
        self.any = True
        head = f"{stream.task:{self._width}} | "
        if self._coloured:
            colour = self._colours.setdefault(stream.task, _COLOURS[len(self._colours) % len(_COLOURS)])
            head = f"\x1b[{colour}m{head}\x1b[0m"
        if stream.log.attempt and stream.log.path not in self._begun:
            self.write(head, f"[weft] start {stream.log.attempt + 1} (@{stream.log.attempt})\n".encode())
        self._begun.add(stream.log.path)
        head += self.before(text)
        for line in text.text.removesuffix(b"\n").split(b"\n"):
            self.write(head, line + b"\n")


class _Documents(_Printer):
    """A writer of each line of several logs as a JSON document."""

    def put(self, text: LogText, stream: _Stream, *, alone: bool) -> None:
        """Write a line of a log; bytes that are not UTF-8 are replaced."""
        self.any = True
        line = text.text.decode("utf-8", "replace").removesuffix("\n")
        told = {"time": _in_utc(text.time), "stream": text.stream or None, "line": line}
        self._out.write(json_text({**stream.head, **told}, self._out) + "\n")

    def end(self) -> None:
        """Do nothing: each document ends its line."""


@lru_cache(64)
def _local(time: float | None) -> str:
    """Return a time as local text with milliseconds; "-" if nobody knows it."""
    return "-" if time is None else f"{moment(time)}.{int(time * 1000) % 1000:03}"


_in_utc = lru_cache(64)(iso)
"""The time as text; many lines arrive at once."""
