"""Printing logs, and following them while they grow and are compacted in place."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TextIO

from weft.cli.tables import clean

if TYPE_CHECKING:
    from weft.store.state import LogFile

POLL_S: Final = 0.2
BLOCK: Final = 1 << 20
ANCHOR: Final = 4096
_LONG_LINE: Final = 64 << 10
_NOTE: Final = re.compile(rb"\n\[weft\] +\d+ bytes of output were dropped here\n")
_GAP: Final = b"\n[weft] output was dropped here\n"


class Follower:
    """Reads what is new in a growing file.

    The writer of a log may drop its middle: it moves the end forward, in place, and cuts the file. Then the last bytes
    that were read are looked for, and reading goes on behind them; where they are gone themselves, behind the gap.
    """

    def __init__(self, path: Path, start: int = 0) -> None:
        self.path = path
        self._at = start
        self._anchor = b""

    def read(self) -> bytes:
        """Return what is new, at most 1 MiB of it; empty if there is nothing (yet)."""
        try:
            fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            return b""
        try:
            gap = b"" if self._steady(fd) else self._find_again(fd)
            data = os.pread(fd, BLOCK, self._at)
            if not self._steady(fd):  # it was cut between the two steps: what was read may be anything
                return gap
            self._at += len(data)
            self._anchor = (self._anchor + data)[-ANCHOR:]
            return gap + data
        finally:
            os.close(fd)

    def _steady(self, fd: int) -> bool:
        """Whether what was read last still stands where it was read."""
        size = len(self._anchor)
        return os.pread(fd, size, self._at - size) == self._anchor

    def _find_again(self, fd: int) -> bytes:
        """Go to where reading must go on in a file that was compacted; return what to print for what is lost."""
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


def tail_start(path: Path, lines: int) -> int:
    """Return the offset at which the last `lines` lines of a file begin."""
    try:
        with path.open("rb") as file:
            end = file.seek(0, os.SEEK_END)
            if lines == 0:
                return end
            at, left = end, lines
            while at > 0:
                start = max(0, at - 65_536)
                file.seek(start)
                block = file.read(at - start)
                if at == end and block.endswith(b"\n"):
                    block = block[:-1]
                found = len(block)
                while (found := block.rfind(b"\n", 0, found)) >= 0:
                    left -= 1
                    if left == 0:
                        return start + found + 1
                at = start
    except OSError:
        pass
    return 0


class _Stream:
    """One log on its way to the output, in whole lines."""

    def __init__(self, log: LogFile, start: int) -> None:
        self.log = log
        self.follower = Follower(log.path, start)
        self.rest = b""

    @property
    def title(self) -> str:
        """What stands above the lines of this log."""
        task = "" if self.log.index is None else f"[{self.log.index}]"
        return f"==> {clean(self.log.step)}{task} <==\n"

    @property
    def head(self) -> dict[str, Any]:
        """What `--json` tells of each line of this log beside its text."""
        return {"step": self.log.step, "index": self.log.index, "attempt": self.log.attempt}

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
) -> bool:
    """Print logs, with a title above each where there is more than one; tell whether there was anything.

    `look` returns the logs there are by now and whether the run goes on. With `follow` this ends when it does not. On
    a terminal control characters are taken out; elsewhere bytes stay as they are. With `as_json` each line becomes a
    document of its own, on a line of its own.
    """
    streams: dict[Path, _Stream] = {}
    printer = _Documents(out) if as_json else _Printer(out)
    while True:
        logs, alive = look()  # asked before reading: what comes after the last look is read after it
        for log in logs:
            if log.path not in streams:
                start = tail_start(log.path, tail) if tail is not None and not printer.again else 0
                streams[log.path] = _Stream(log, start)
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
    """Writes lines of several logs."""

    def __init__(self, out: TextIO) -> None:
        self.any = False
        self.again = False
        self._out = out
        self._title = ""
        self._whole = True
        self._raw = None if out.isatty() else getattr(out, "buffer", None)

    def put(self, data: bytes, stream: _Stream, *, alone: bool) -> None:
        """Write lines of a log; of several they stand below their title if the last lines were of another one."""
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
        """Leave a terminal at the beginning of a line."""
        if self._raw is None and not self._whole:
            self._out.write("\n")


class _Documents(_Printer):
    """Writes each line of several logs as a document."""

    def put(self, data: bytes, stream: _Stream, *, alone: bool) -> None:
        """Write lines of a log; bytes that are no UTF-8 are replaced."""
        self.any = True
        head = stream.head
        for line in data.decode("utf-8", "replace").removesuffix("\n").split("\n"):
            self._out.write(json.dumps({**head, "line": line}, ensure_ascii=False) + "\n")

    def end(self) -> None:
        """Do nothing: each document ends its line."""
