"""The log of decisions of a party: lines of JSON, each with the hash of the line before it.

So no line can be changed, inserted or removed without a break at that place. Only lines at the end can disappear;
whoever keeps the last hash elsewhere sees that as well.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
from threading import Lock
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from weft.model.errors import UnreadableError
from weft.store.limits import disk_named

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from weft.runtime.clock import WallClock

_FIRST: Final = "0" * 64
_TAIL: Final = 1 << 16
_LONGEST: Final = 1000
_NEXT: Final = "Find the first broken line: weft party audit --verify. Move the file away to begin anew."


class AuditRecord(Struct, frozen=True, kw_only=True):
    """One decision of `party` about a message of `peer`. `seq` counts from 1 on. `time` is that of the decision and
    `sent` the one in the message, in seconds since 1970.

    `decision` is accepted or refused, or `note` for an event of the party itself; `reason` says why.
    """

    seq: int = 0
    time: float = 0.0
    party: str
    peer: str = ""
    path: str = ""
    message: str = ""
    sent: float = 0.0
    decision: str
    reason: str = ""
    previous: str = ""
    hash: str = ""

    def computed_hash(self) -> str:
        """Return the SHA-256 of all fields but the hash itself, in hex."""
        return hashlib.sha256(_encoder.encode(replace(self, hash=""))).hexdigest()


_encoder: Final = msgspec.json.Encoder()
_decoder: Final = msgspec.json.Decoder(AuditRecord)


class AuditLog:
    """Appends to the log of a party. For several threads and processes."""

    def __init__(self, path: Path, party: str, clock: WallClock) -> None:
        self._path, self._party, self._clock = path, party, clock
        self._lock = Lock()
        self.problem: Exception | None = None
        """Why the last record could not be written."""
        with disk_named(path.parent):
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        self._end = -1
        self._seq, self._last = 0, _FIRST
        with self._lock:
            self._locked()
            fcntl.flock(self._fd, fcntl.LOCK_UN)

    def append(
        self,
        decision: str,
        *,
        peer: str = "",
        path: str = "",
        message: str = "",
        sent: float = 0.0,
        reason: str = "",
    ) -> AuditRecord:
        """Write a record; it survives the end of this process. DiskFullError, ForbiddenError, OSError: not possible."""
        record = AuditRecord(
            party=self._party,
            peer=peer[:64],
            path=path[:256],
            message=message[:64],
            sent=sent,
            decision=decision,
            reason=reason[:_LONGEST],
        )
        try:
            with self._lock, disk_named(self._path.parent):
                try:
                    self._locked()
                    written = self._write(record)
                finally:
                    fcntl.flock(self._fd, fcntl.LOCK_UN)
        except Exception as error:
            self.problem = error
            raise
        self.problem = None
        return written

    def recent(self, since: float) -> Iterator[AuditRecord]:
        """Yield the records from a time on, the newest first. UnreadableError: a line is damaged."""
        end, rest = os.fstat(self._fd).st_size, b""
        while end > 0:
            begin = max(0, end - _TAIL)
            lines = (os.pread(self._fd, end - begin, begin) + rest).split(b"\n")
            rest, end = (lines.pop(0), begin) if begin else (b"", 0)
            for line in reversed(lines):
                if not line:
                    continue
                try:
                    record = _decoder.decode(line)
                except msgspec.MsgspecError as error:
                    raise UnreadableError(f"a line of {self._path} is damaged: {error}", hint=_NEXT) from None
                if record.time < since:
                    return
                yield record

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            fd, self._fd = self._fd, -1
            if fd >= 0:
                os.close(fd)

    def _locked(self) -> None:
        """Take the lock of the file, and read its last record if another process has written."""
        fcntl.flock(self._fd, fcntl.LOCK_EX)
        if os.fstat(self._fd).st_size == self._end:
            return
        size, cut = os.fstat(self._fd).st_size, 0
        tail = os.pread(self._fd, _TAIL, max(0, size - _TAIL))
        if tail and not tail.endswith(b"\n"):  # its writer was killed
            cut = len(tail) - (tail.rfind(b"\n") + 1)
            os.ftruncate(self._fd, size - cut)
            tail, size = tail[: len(tail) - cut], size - cut
        self._end = size
        if tail:
            try:
                record = _decoder.decode(tail[:-1].rpartition(b"\n")[2])
            except msgspec.MsgspecError as error:
                raise UnreadableError(
                    f"the last line of {self._path} is damaged: {error}",
                    hint=_NEXT,
                ) from None
            self._seq, self._last = record.seq, record.hash
        else:
            self._seq, self._last = 0, _FIRST
        if cut:
            self._write(
                AuditRecord(party=self._party, decision="note", reason=f"cut {cut} bytes of an incomplete last line")
            )

    def _write(self, record: AuditRecord) -> AuditRecord:
        record = replace(record, seq=self._seq + 1, time=self._clock.wall(), previous=self._last)
        record = replace(record, hash=record.computed_hash())
        line = _encoder.encode(record) + b"\n"
        written = os.write(self._fd, line)
        if written != len(line):
            os.ftruncate(self._fd, self._end)
            raise OSError(errno.ENOSPC, "it cannot be written in full", str(self._path))
        self._end += len(line)
        self._seq, self._last = record.seq, record.hash
        return record


def read_audit(path: Path) -> Iterator[AuditRecord]:
    """Yield the records of a log, without an incomplete last line. UnreadableError: a line is no record."""
    for number, line in _lines(path):
        try:
            yield _decoder.decode(line)
        except msgspec.MsgspecError as error:
            raise UnreadableError(f"line {number} of {path} is no record: {error}") from None


def verify_audit(path: Path) -> int | None:
    """Return the number of the first line that breaks the chain, None if the log is whole.

    An incomplete last line is not counted: its writer was killed, or is writing it.
    """
    last = _FIRST
    for number, line in _lines(path):
        try:
            record = _decoder.decode(line)
        except msgspec.MsgspecError:
            return number
        # The line itself is compared, too: otherwise fields that no record has could be added.
        if (record.seq, record.previous, record.hash) != (
            number,
            last,
            record.computed_hash(),
        ) or line != _encoder.encode(record):
            return number
        last = record.hash
    return None


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if line.endswith(b"\n"):
                    yield number, line[:-1]
    except FileNotFoundError:
        return
