"""The log of a command: bounded in size, with secrets masked and with the times of its lines.

This module is part of the guardian, so it imports no more than that does (see `weft.worker.guardian`).
"""

from __future__ import annotations

import errno
import os
import sys
import time

from weft.worker.process_table import CHUNK_BYTES

BOTH, STDOUT, STDERR = 0, 1, 2
"""The streams of a log: that of a command with one pipe for both, or one of two pipes."""


class TimesFile:
    """The file `LOG.times`, which tells when the bytes of a log arrived and from which stream.

    A record has 16 bytes: an offset in the log, and the microseconds since 1970 times 4 plus the stream, both as whole
    numbers of 8 bytes in the order of this machine. It holds for all bytes from its offset to that of the next record.
    There is at most one record for each read, and none for a read that begins no line or follows within `APART_US`.
    Records precede their bytes, so that who has read the bytes finds the record. An error only loses times.
    """

    RECORD_BYTES = 16
    APART_US = 1000

    def __init__(self, path: bytes) -> None:
        self.path = path
        self.fd = -1
        self.end = 0
        self.last_us = 0
        self.stream = -1
        self.unended = [False, False, False]

    def add(self, at: int, data: bytes, stream: int) -> None:
        """Tell that `data` of a stream has arrived, and begins at offset `at`."""
        begins = not self.unended[stream] or b"\n" in data[:-1]
        self.unended[stream] = not data.endswith(b"\n")
        now_us = time.time_ns() // 1000
        if stream != self.stream or (begins and not 0 <= now_us - self.last_us < self.APART_US):
            try:
                if self.fd < 0:
                    self._open(fresh=at == 0)
                self._write(self.record(at, now_us, stream))
                self.last_us, self.stream = now_us, stream
            except OSError:
                pass

    @staticmethod
    def record(at: int, time_us: int, stream: int) -> bytes:
        """Return the bytes of a record."""
        return at.to_bytes(8, sys.byteorder) + (time_us << 2 | stream).to_bytes(8, sys.byteorder)

    def cut(self, note: int, source: int, to: int) -> bytes:
        """Empty the file, and return its records for a log whose bytes from `source` on move to `to`.

        Of the bytes before, those up to `note` stay. No reader finds records of another state of the log meanwhile.
        """
        head, tail, before = bytearray(), bytearray(), 0
        try:
            if self.fd >= 0:
                records = memoryview(os.pread(self.fd, self.end, 0)).cast("Q")
                for index in range(0, len(records), 2):
                    at, mark = records[index], records[index + 1]
                    if at <= source:
                        before = mark
                    if at < note:
                        head += records[index : index + 2]
                    elif at > source:
                        tail += (at - source + to).to_bytes(8, sys.byteorder) + mark.to_bytes(8, sys.byteorder)
                os.ftruncate(self.fd, 0)
                self.end = 0
        except OSError:
            return b""
        noted = self.record(note, before >> 2, BOTH)
        return bytes(head + noted + self.record(to, before >> 2, before & 3) + tail) if before else b""

    def put_back(self, records: bytes) -> None:
        """Write the records that `cut` returned."""
        try:
            if records:
                self._write(records)
        except OSError:
            pass

    def close(self) -> None:
        """Close the file, if there is one."""
        if self.fd >= 0:
            os.close(self.fd)

    def _open(self, *, fresh: bool) -> None:
        how = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | (os.O_TRUNC if fresh else 0)
        self.fd = os.open(self.path, how, 0o666)
        size = os.lseek(self.fd, 0, os.SEEK_END)
        self.end = size - size % self.RECORD_BYTES  # a record that a killed guardian began is written over

    def _write(self, records: bytes) -> None:
        if os.pwrite(self.fd, records, self.end) == len(records):
            self.end += len(records)


class BoundedLog:
    """Appends at most the first `head` and the last `tail` bytes of its input to a file.

    A growing file holds up to twice `tail` after the head, always in order; one line between head and tail tells the
    number of dropped bytes. One thread writes. A full disk drops bytes and never stops the command. With `timed` the
    file `LOG.times` beside it tells the times (see `TimesFile`).
    """

    NOTE = b"\n[weft] %20d bytes of output were dropped here\n"
    NOTE_BYTES = len(NOTE % 0)

    def __init__(self, path: bytes, head: int, tail: int, *, timed: bool = False) -> None:
        self.times = TimesFile(path + b".times") if timed else None
        self.fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        self.start = self.end = os.lseek(self.fd, 0, os.SEEK_END)
        self.note = self.body = self.start + head
        self.tail = max(tail, 4096)
        self.taken = self.dropped = self.errno = 0

    def write(self, data: bytes, stream: int = BOTH) -> None:
        """Append `data` of a stream; never raises."""
        self.taken += len(data)
        try:
            if self.times is not None and data:
                self.times.add(self.end, data, stream)
            self.end = self._put(data, self.end)
            if self.end - self.body > 2 * self.tail:
                self._shrink()
        except OSError as error:
            self.errno = error.errno or errno.EIO

    def close(self) -> None:
        """Bring the file to its final size and close it; `dropped` is final then."""
        try:
            if self.end - self.body > self.tail + self.NOTE_BYTES:
                self._shrink()
        except OSError as error:
            self.errno = error.errno or errno.EIO
        noted = self.NOTE_BYTES if self.body > self.note else 0
        self.dropped = self.taken - (self.end - self.start - noted)
        os.close(self.fd)
        if self.times is not None:
            self.times.close()

    def _put(self, data: bytes, at: int) -> int:
        view = memoryview(data)
        while view:
            done = os.pwrite(self.fd, view, at)
            at += done
            view = view[done:]
        return at

    def _shrink(self) -> None:
        """Move the last `tail` bytes, from the start of a line, behind the note."""
        source = self.end - self.tail
        source += os.pread(self.fd, 4096, source).find(b"\n") + 1
        self.dropped += source - self.body
        times = self.times.cut(self.note, source, self.note + self.NOTE_BYTES) if self.times is not None else b""
        self._put(self.NOTE % self.dropped, self.note)
        self.body = at = self.note + self.NOTE_BYTES
        while source < self.end:  # the body lies in front of its source, so no unread byte is overwritten
            block = os.pread(self.fd, min(CHUNK_BYTES, self.end - source), source)
            source += len(block)
            at = self._put(block, at)
        os.ftruncate(self.fd, at)
        self.end = at
        if self.times is not None:
            self.times.put_back(times)


class MaskedLog(BoundedLog):
    """A log that shows `***` in place of secrets, wherever its input is cut.

    A secret is its bytes, and whether a letter, digit or `_` in front of it, and one behind it, make another word of it
    (`weft.model.masking` decides that). What may be the beginning of one waits for the bytes after it.
    """

    MASK = b"***"
    WORD = frozenset(b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz")

    def __init__(
        self, path: bytes, head: int, tail: int, secrets: list[tuple[bytes, bool, bool]], *, timed: bool = False
    ) -> None:
        super().__init__(path, head, tail, timed=timed)
        self.secrets = secrets
        self.before = [b"", b"", b""]
        self.waiting = [b"", b"", b""]

    def write(self, data: bytes, stream: int = BOTH) -> None:
        """Append `data` of a stream; never raises."""
        super().write(self._masked(data, stream, last=False) if self.secrets else data, stream)

    def close(self) -> None:
        """Write the rest, and close the file."""
        for stream in (BOTH, STDOUT, STDERR):
            super().write(self._masked(b"", stream, last=True), stream)
        super().close()

    def _masked(self, data: bytes, stream: int, *, last: bool) -> bytes:
        """Return what the log shows of the waiting bytes and `data`, up to those that wait now; none of the `last`."""
        at = len(self.before[stream])
        data = self.before[stream] + self.waiting[stream] + data
        waits = len(data) if last else self._waits(data, at)
        places = [self._find(secret, data, at) for secret in self.secrets]
        shown = []
        while True:
            place, size = min(
                ((place, -len(secret[0])) for place, secret in zip(places, self.secrets, strict=True)),
                default=(len(data), 0),
            )
            if place >= waits:
                break
            shown += [data[at:place], self.MASK]
            at = place - size
            waits = waits if at <= waits else self._waits(data, at)
            for index, secret in enumerate(self.secrets):
                if places[index] < at:
                    places[index] = self._find(secret, data, at)
        self.before[stream], self.waiting[stream] = data[max(0, waits - 1) : waits], data[waits:]
        return b"".join((*shown, data[at:waits]))

    def _find(self, secret: tuple[bytes, bool, bool], data: bytes, at: int) -> int:
        """Return the first place of a secret from `at` on; the length of the data if there is none."""
        text, _, behind = secret
        place = data.find(text, at)
        while place >= 0:
            end = place + len(text)
            if not self._joins(secret, data, place) and not (behind and end < len(data) and data[end] in self.WORD):
                return place
            place = data.find(text, place + 1)
        return len(data)

    def _waits(self, data: bytes, at: int) -> int:
        """Return the first place from `at` on where the data may end in a secret, or in the beginning of one."""
        return min(self._begins(secret, data, at) for secret in self.secrets)

    def _begins(self, secret: tuple[bytes, bool, bool], data: bytes, at: int) -> int:
        text, _, behind = secret
        place = data.find(text[:1], max(at, len(data) - len(text) + (not behind)))
        while place >= 0 and (not text.startswith(data[place:]) or self._joins(secret, data, place)):
            place = data.find(text[:1], place + 1)
        return len(data) if place < 0 else place

    def _joins(self, secret: tuple[bytes, bool, bool], data: bytes, place: int) -> bool:
        """Whether a secret at a place only ends another word."""
        return secret[1] and place > 0 and data[place - 1] in self.WORD
