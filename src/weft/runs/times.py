"""The times and the streams of the lines of a log, from the file `LOG.times` beside it.

Who copies the output of a command to its log writes that file (`weft.worker.bounded_log.TimesFile` has its form). A log
without one is of an older run, or of a program that writes its log itself.
"""

from __future__ import annotations

import os
from array import array
from bisect import bisect_right
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

STREAMS: Final = ("", "stdout", "stderr")
"""The streams of records, by their numbers; "" is one pipe for both."""
_RECORD_BYTES: Final = 16


class LogText(NamedTuple):
    """Bytes of a log, mostly whole lines, with the time at which they arrived, in seconds since 1970.

    `stream` is one of `STREAMS`: "" where output and errors came through one pipe, or where nobody knows.
    """

    text: bytes
    time: float | None = None
    stream: str = ""


class LogTimes:
    """The records of a log in the file at `path`, read again as they grow."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offsets, self._marks = array("Q"), array("Q")
        self.apart = False
        """Whether the log tells errors from output."""

    @property
    def known(self) -> bool:
        """Whether there are records."""
        return len(self._offsets) > 0

    def refresh(self, *, again: bool = False) -> None:
        """Read new records; with `again`, or in a file that has become shorter, all of them."""
        try:
            fd = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            return
        with os.fdopen(fd, "rb") as file:
            known = len(self._offsets) * _RECORD_BYTES
            size = os.fstat(file.fileno()).st_size
            if again or size < known:
                self._offsets, self._marks, known = array("Q"), array("Q"), 0
            file.seek(known)
            data = file.read(size - known)
        words = array("Q", data[: len(data) - len(data) % _RECORD_BYTES])  # the last record may not be complete
        self._offsets += words[0::2]
        self._marks += words[1::2]
        self.apart = self.apart or any(mark & 3 for mark in words[1::2])

    def pieces(self, at: int, data: bytes) -> Iterator[LogText]:
        """Cut bytes at offset `at` where records begin; yield them with the time and the stream of their record."""
        begin, end, index = at, at + len(data), bisect_right(self._offsets, at)
        while begin < end:
            stop = max(begin, min(end, self._offsets[index])) if index < len(self._offsets) else end
            if stop > begin:
                yield self._told(index - 1, data[begin - at : stop - at])
            begin, index = stop, index + 1

    def _told(self, index: int, data: bytes) -> LogText:
        if index < 0:
            return LogText(data)
        time_us, stream = divmod(self._marks[index], 4)
        return LogText(data, time_us / 1e6, STREAMS[stream] if stream < len(STREAMS) else "")


class TimedLines:
    """Puts the lines of a log together, those of each stream for themselves, with the time of their first bytes."""

    def __init__(self, times: LogTimes, longest: int) -> None:
        self.times = times
        self._longest = longest
        self._begun: dict[str, LogText] = {}

    def add(self, at: int, data: bytes) -> list[LogText]:
        """Take bytes at offset `at`; return the lines that have ended, and what is too long to wait for its end."""
        found: list[LogText] = []
        for piece, time, stream in self.times.pieces(at, data):
            lines = _lines(piece)
            if (begun := self._begun.pop(stream, None)) is not None:
                found.append(LogText(begun.text + lines.pop(0), begun.time, stream))
            found += [LogText(line, time, stream) for line in lines]
            if not found[-1].text.endswith(b"\n") and len(found[-1].text) <= self._longest:
                self._begun[stream] = found.pop()
        return found

    def rest(self) -> list[LogText]:
        """Return the lines that have not ended, which nothing will follow."""
        found, self._begun = list(self._begun.values()), {}
        return found


def _lines(data: bytes) -> list[bytes]:
    """Return the lines of bytes, each with its end; a carriage return ends none."""
    *whole, rest = data.split(b"\n")
    return [line + b"\n" for line in whole] + ([rest] if rest else [])
