"""The numbers of the requests of clients that were taken, so that none is taken twice, also after a restart."""

from __future__ import annotations

import json
import os
import secrets
from collections import OrderedDict
from contextlib import suppress
from threading import Lock
from typing import IO, TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

    from weft.runtime.clock import WallClock

MOST_SKEW_S: Final = 60.0
"""How far the time of a request may be from the present one."""
_KEPT_S: Final = 2 * MOST_SKEW_S
"""A request is taken at most one skew before its own time, and is too old one skew after it."""
_MOST: Final = 1_000_000
_UNUSED: Final = 10_000
"""The lines of numbers that are too old to matter, after which the file is written anew."""


class SeenNumbers:
    """The numbers of requests by the key that has signed them. For several threads.

    Each is a line of `file`. It is not forced to the disk: a restart after a power failure takes longer than a request
    is good for.
    """

    def __init__(self, clock: WallClock, file: Path | None = None) -> None:
        self._clock, self._file, self._lock = clock, file, Lock()
        self._seen: OrderedDict[tuple[str, str], float] = OrderedDict()
        self._out: IO[str] | None = None
        self._lines = 0
        if file is not None:
            self._load(file)
            self._write_anew(file)

    def first(self, key: str, number: str) -> bool:
        """Remember a number as long as its request could be repeated; return whether it is new."""
        now = self._clock.wall()
        with self._lock:
            self._forget(now)
            if (key, number) in self._seen:
                return False
            self._seen[key, number] = now
            self._note(key, number, now)
            return True

    def close(self) -> None:
        """Close the file. A second call does nothing."""
        with self._lock:
            out, self._out = self._out, None
            if out is not None:
                out.close()

    def _forget(self, now: float) -> None:
        while self._seen and (next(iter(self._seen.values())) < now - _KEPT_S or len(self._seen) >= _MOST):
            self._seen.popitem(last=False)

    def _note(self, key: str, number: str, now: float) -> None:
        if self._file is None or self._out is None:
            return
        with suppress(OSError):  # a full disk must not keep out those who make room
            if self._lines > 2 * len(self._seen) + _UNUSED:
                self._write_anew(self._file)
                return
            self._out.write(json.dumps([key, number, now]) + "\n")
            self._out.flush()
            self._lines += 1

    def _load(self, file: Path) -> None:
        now = self._clock.wall()
        with suppress(FileNotFoundError):
            for line in file.read_bytes().splitlines():
                with suppress(ValueError, TypeError):  # a torn line
                    key, number, seen = json.loads(line)
                    if seen >= now - _KEPT_S:
                        self._seen[str(key), str(number)] = min(float(seen), now)

    def _write_anew(self, file: Path) -> None:
        """Write the numbers that matter to a new file, and leave it open."""
        aside = file.with_name(f"{file.name}.{secrets.token_hex(4)}.new")
        fd = os.open(aside, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
        out = open(fd, "w", encoding="utf-8")  # noqa: SIM115 - it stays open
        try:
            out.writelines(json.dumps([*one, seen]) + "\n" for one, seen in self._seen.items())
            out.flush()
            os.replace(aside, file)
        except BaseException:
            out.close()
            aside.unlink(missing_ok=True)
            raise
        if self._out is not None:
            self._out.close()
        self._out, self._lines = out, len(self._seen)
