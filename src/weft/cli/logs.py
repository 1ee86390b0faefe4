"""The printer of logs, which follows them while they grow and while their writer compacts them in place."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TextIO

from weft.cli.tables import clean, json_text
from weft.runs.logs import tail_start

if TYPE_CHECKING:
    from weft.store.state import LogFile

POLL_S: Final = 0.2
BLOCK: Final = 1 << 20
ANCHOR: Final = 4096
_LONG_LINE: Final = 64 << 10
_NOTE: Final = re.compile(rb"\n\[weft\] +\d+ bytes of output were dropped here\n")
_COLOURS: Final = ("36", "33", "32", "35", "34", "31", "96", "93", "92", "95", "94", "91")
"""Colours of terminals for the names of tasks, one after the other."""
_GAP: Final = b"\n[weft] output was dropped here\n"


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
        try:
            fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            return b""
        try:
            gap = b"" if self._steady(fd) else self._find_again(fd)
            data = os.pread(fd, BLOCK, self._at)
            if not self._steady(fd):  # the file was truncated between the two steps: the bytes read may be anything
                return gap
            self._at += len(data)
            self._anchor = (self._anchor + data)[-ANCHOR:]
            return gap + data
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


class _Stream:
    """One log that is copied to the output in whole lines."""

    def __init__(self, log: LogFile, start: int) -> None:
        self.log = log
        self.follower = Follower(log.path, start)
        self.rest = b""

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
        """The JSON fields of each line of this log, without its text."""
        beside = {"container": self.log.container} if self.log.container else {}
        return {"step": self.log.step, "index": self.log.index, "attempt": self.log.attempt, **beside}

    def lines(self) -> bytes:
        """Return the new lines."""
        data = self.rest + self.follower.read()
        whole = data.rfind(b"\n") + 1
        if not whole and len(data) > _LONG_LINE:
            whole = len(data)
        self.rest = data[whole:]
        return data[:whole]


def print_logs(
    look: Callable[[], tuple[Sequence[LogFile], bool]],
    out: TextIO,
    *,
    follow: bool,
    tail: int | None,
    pause: Callable[[float], None],
    as_json: bool = False,
    prefixed: bool = False,
    colours: bool = False,
) -> bool:
    """Print logs, each with a title if there are several; return whether any line was printed.

    With `prefixed`, the name of its task stands before each line instead, in `colours` of a terminal, and lines of
    growing logs mix.
    `look` returns the current logs and whether the run is still active. With `follow`, printing continues until it is
    not. Control characters are removed on a terminal, and kept elsewhere. With `as_json` each line becomes one JSON
    document on a line of its own.
    """
    streams: dict[Path, _Stream] = {}
    printer = _Documents(out) if as_json else _Prefixed(out, colours) if prefixed else _Printer(out)
    while True:
        logs, alive = look()  # checked before reading, so that the last read follows the last check
        for log in logs:
            if log.path not in streams:
                start = tail_start(log.path, tail) if tail is not None and not printer.again else 0
                streams[log.path] = _Stream(log, start)
        printer.expect(streams.values())
        more = True
        while more:
            more = False
            for stream in streams.values():
                while data := stream.lines():
                    more = more or follow
                    printer.put(data, stream, alone=len(streams) == 1)
                if stream.rest and not (follow and alive):
                    printer.put(stream.rest, stream, alone=len(streams) == 1)
                    stream.rest = b""
        if not (follow and alive):
            break
        printer.again = True
        with suppress(AttributeError):
            out.flush()
        pause(POLL_S)
    printer.end()
    return printer.any


class _Printer:
    """A writer of the lines of several logs."""

    def __init__(self, out: TextIO) -> None:
        self.any = False
        self.again = False
        self._out = out
        self._title = ""
        self._whole = True
        self._raw = None if out.isatty() else getattr(out, "buffer", None)

    def expect(self, streams: Iterable[_Stream]) -> None:
        """Take all logs so far."""

    def put(self, data: bytes, stream: _Stream, *, alone: bool) -> None:
        """Write lines of a log, below its title if the last lines were of another log."""
        self.any = True
        whole = data.endswith(b"\n")
        if not alone and stream.title != self._title:
            data = (b"" if self._whole else b"\n") + stream.title.encode() + data
        self._title, self._whole = "" if alone else stream.title, whole
        if self._raw is not None:
            self._raw.write(data)
        else:
            self._out.write(clean(data.decode("utf-8", "replace")))

    def end(self) -> None:
        """Leave the cursor of a terminal at the beginning of a line."""
        if self._raw is None and not self._whole:
            self._out.write("\n")


class _Prefixed(_Printer):
    """A writer of lines of several logs, each behind the name of its task: `worker-1 | text`."""

    def __init__(self, out: TextIO, coloured: bool) -> None:
        super().__init__(out)
        self._width = 0
        self._coloured = coloured
        self._colours: dict[str, str] = {}

    def expect(self, streams: Iterable[_Stream]) -> None:
        """Align the names."""
        self._width = max([self._width, *(len(stream.task) for stream in streams)])

    def put(self, data: bytes, stream: _Stream, *, alone: bool) -> None:
        """Write lines of a log; the last one ends."""
        self.any = True
        head = f"{stream.task:{self._width}} | "
        if self._raw is not None:
            lines = data.removesuffix(b"\n").split(b"\n")
            self._raw.write(b"".join(head.encode() + line + b"\n" for line in lines))
            return
        colour = self._colours.setdefault(stream.task, _COLOURS[len(self._colours) % len(_COLOURS)])
        if self._coloured:
            head = f"\x1b[{colour}m{head}\x1b[0m"
        text = clean(data.decode("utf-8", "replace")).removesuffix("\n")
        self._out.write("".join(f"{head}{line}\n" for line in text.split("\n")))


class _Documents(_Printer):
    """A writer of each line of several logs as a JSON document."""

    def put(self, data: bytes, stream: _Stream, *, alone: bool) -> None:
        """Write lines of a log; bytes that are not UTF-8 are replaced."""
        self.any = True
        head = stream.head
        for line in data.decode("utf-8", "replace").removesuffix("\n").split("\n"):
            self._out.write(json_text({**head, "line": line}) + "\n")

    def end(self) -> None:
        """Do nothing: each document ends its line."""
