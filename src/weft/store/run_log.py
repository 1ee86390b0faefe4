"""The log of a run at a URL: the files of its folder in pieces, by which another machine drives the run further.

The log is a row of numbered objects, each created only if there is none of its number. So it has one order, whoever
writes. An owner begins an epoch by the next object, with a token of its own. Whoever finds an object of another owner
under its next number has lost the run, and writes nothing more: this fences an owner that was thought dead.

A lease, which the owner renews, says only when another one may begin. It costs no correctness when clocks differ.

    runs/<key>/log/00000001        a segment: pieces of files
                                   (those from which on all files have been written again make earlier ones needless)
    runs/<key>/lease/<token>.json  until when the owner of that token expects to live
"""

from __future__ import annotations

import os
import platform
import threading
import zlib
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct

from weft.model.errors import CapacityError, ConflictError, NotFoundError, UsageError, WeftError
from weft.store.projects import release_projects
from weft.store.remote import shown
from weft.store.shared import SharedStorage

if TYPE_CHECKING:
    from pathlib import Path

LEASE_S: Final = 60.0
"""The seconds that a lease lasts after each renewal."""
RUNS: Final = "runs"
"""The folder at a URL with the logs of runs."""
OWNER: Final = "lease.json"
"""In the folder of a run: the token of its last owner here, and whether that has left all of the run at the URL."""
_MAGIC: Final = b"weftlog1"
_CHECK: Final = 4
_READERS: Final = 8
_REMOVED: Final = 500
"""The most objects that are removed by one call."""


class FilePiece(Struct, frozen=True, kw_only=True):
    """Bytes of a file in the folder of a run, at their offset; `end`: the file ends behind them.

    `whole` replaces the file in one step.
    """

    name: str
    data: bytes
    offset: int = 0
    end: bool = False
    whole: bool = False


class LogSegment(Struct, frozen=True, kw_only=True):
    """One object of a log: its number from 1, the epoch and token of its owner, pieces of files in order.

    `over`: the run has ended in order, and the folder of its owner has all of it.
    """

    number: int
    epoch: int
    token: str
    host: str
    pieces: tuple[FilePiece, ...] = ()
    over: bool = False


# Several threads read: the fields of the type must be known before (see `weft.model.records.converter`).
_read_segment: Final = msgspec.msgpack.Decoder(LogSegment).decode


class RunLease(Struct, frozen=True, kw_only=True):
    """Until when an owner expects to live, in seconds since 1970; 0: it has released the run."""

    until: float
    host: str


_read_lease: Final = msgspec.json.Decoder(RunLease).decode


def encoded(segment: LogSegment) -> bytes:
    """Return the bytes of a segment."""
    data = msgspec.msgpack.encode(segment)
    return _MAGIC + zlib.crc32(data).to_bytes(_CHECK, "big") + data


def decoded(data: bytes) -> LogSegment | None:
    """Return the segment in the bytes of an object; None: they are incomplete."""
    head = len(_MAGIC) + _CHECK
    body = data[head:]
    if data[: len(_MAGIC)] != _MAGIC or zlib.crc32(body) != int.from_bytes(data[len(_MAGIC) : head], "big"):
        return None
    return _read_segment(body)


class RunLog:
    """The log of the run `key` at a storage. `now` returns the seconds since 1970. Safe for any thread.

    An owner calls `take` first. ConflictError of any call: another owner has the run, from now on or for now.
    CapacityError: the URL cannot be used.
    """

    def __init__(self, storage: SharedStorage, key: str, now: Callable[[], float]) -> None:
        self.key = key
        self._storage, self._now = storage, now
        self._base = f"{RUNS}/{key}"
        self._lock = threading.Lock()
        self._host = platform.node()
        self._number = self._epoch = 0
        self._fences: frozenset[int] = frozenset()
        """The begins of epochs, and the last segments before them: an earlier owner meets them at its next write."""
        self.token = os.urandom(8).hex()

    # ------------------------------------------------------------------------------------------------------- reading

    def read(self, since: int = 1, answer_s: float | None = None) -> list[LogSegment]:
        """Return the segments from a number on. ConflictError: one is damaged, and its epoch went on.

        Incomplete objects at the end of an epoch were never acknowledged, and are left out. CapacityError: the URL has
        not answered within `answer_s` seconds, or cannot be read.
        """
        return self._read(self._numbers() if answer_s is None else self._answered(answer_s), since)

    def look(self, since: int, answer_s: float) -> tuple[list[LogSegment], RunLease | None]:
        """Return what `read` does, and the lease of the owner of the last segment; None: it has none.

        Whoever takes the run meanwhile removes the lease of the owner before, once a segment of its own is there: then
        the new owner counts.
        """
        segments = self.read(since, answer_s)
        while segments and (lease := self.lease(segments[-1].token)) is None:
            if not (newer := self.read(segments[-1].number + 1)):
                return segments, None
            segments += newer
        return segments, lease if segments else None

    def _read(self, numbers: Sequence[int], since: int = 1) -> list[LogSegment]:
        """Return the segments of `numbers` from `since` on, or those that the owner has written in their place."""
        while True:
            try:
                return self._read_all([number for number in numbers if number >= since])
            except NotFoundError:
                before, numbers = numbers, self._numbers()
                if set(before) <= set(numbers):
                    raise

    def _answered(self, seconds: float) -> Sequence[int]:
        """Return the numbers of the segments. The libraries of stores try for minutes, which nobody waits who looks."""
        found: Future[Sequence[int]] = Future()

        def ask() -> None:
            try:
                found.set_result(self._numbers())
            except BaseException as error:  # noqa: BLE001 - the caller raises it
                found.set_exception(error)

        threading.Thread(target=ask, name="weft-log-numbers", daemon=True).start()
        try:
            return found.result(seconds)
        except TimeoutError:
            raise CapacityError(
                f"{shown(self._storage.url)} has not answered for {seconds:.0f} s",
                hint="See that the network and the endpoint work.",
            ) from None

    def _read_all(self, wanted: Sequence[int]) -> list[LogSegment]:
        with ThreadPoolExecutor(_READERS, "weft-log") as pool:
            read = list(pool.map(lambda number: decoded(self._storage.read(self._name(number))), wanted))
        found: list[LogSegment] = []
        broken = 0
        for number, segment in zip(wanted, read, strict=True):
            if segment is None:
                broken = broken or number
                continue
            if broken and found and segment.epoch == found[-1].epoch:
                raise ConflictError(
                    f"segment {broken} of {shown(self._storage.url)}/{self._base} is damaged",
                    hint="The run cannot be resumed from the URL. Start a new run.",
                )
            broken = 0
            found.append(segment)
        return found

    def lease(self, token: str) -> RunLease | None:
        """Return the lease of an owner; None: it has none."""
        try:
            return _read_lease(self._storage.read(self._lease(token)))
        except (NotFoundError, msgspec.DecodeError):
            return None

    def check_free(self, last: LogSegment, dead: str = "") -> None:
        """Check that the owner of the last segment lives no more; `dead` is the token of one that is known to be dead.

        ConflictError: it may live.
        """
        lease = None if last.token == dead else self.lease(last.token)
        if lease is not None and (left := lease.until - self._now()) > 0:
            raise ConflictError(
                f"{self.key} is driven by a process of {lease.host}, whose lease at {shown(self._storage.url)} lasts "
                f"{left:.0f} s",
                hint="If that process is gone, try again when the lease is over.",
            )

    # ------------------------------------------------------------------------------------------------------- writing

    def take(
        self, dead: str = "", check: Callable[[Sequence[LogSegment]], None] = lambda segments: None
    ) -> list[LogSegment]:
        """Become the owner, and return all segments of earlier ones; `dead` as for `check_free`.

        `check` is called with them before anything is written, and its error is raised.
        UsageError: this kind of URL cannot create an object only if there is none.
        """
        if not self._storage.can_create:
            raise UsageError(
                f"{shown(self._storage.url)} cannot create an object only if there is none, so that two drivers of a "
                "run could not be kept apart",
                hint="Use a bucket of S3 or Google Cloud, or a folder (file://).",
            )
        numbers = self._numbers()
        segments = self._read(numbers)
        if segments:
            check(segments)
            self.check_free(segments[-1], dead)
        taken = max(numbers, default=0)
        self._number, self._epoch = taken, (segments[-1].epoch if segments else 0) + 1
        begins = {segment.epoch: segment.number for segment in reversed(segments)}.values()
        self._fences = frozenset(number - back for number in (*begins, taken + 1) for back in (0, 1))
        self.renew()
        try:
            self.append(())
            if not taken:
                self._probe()
        except WeftError:
            with suppress(WeftError):
                self._storage.remove(self._lease(self.token))
            raise
        if segments:
            with suppress(WeftError):  # it says nothing any more
                self._storage.remove(self._lease(segments[-1].token))
        return segments

    def _probe(self) -> None:
        """Check that the store refuses a second object of a name, which some replacements of S3 do not."""
        if self._storage.create(b"", self._name(self._number)):
            self._storage.remove(self._base)
            raise UsageError(
                f"{shown(self._storage.url)} replaces an object that was to be created only if there is none",
                hint="The store lacks conditional writes (If-None-Match). Use one that has them.",
            )

    def append(self, pieces: Iterable[FilePiece], *, over: bool = False) -> None:
        """Write the next segment; it is there when this returns."""
        with self._lock:
            segment = LogSegment(
                number=self._number + 1,
                epoch=self._epoch,
                token=self.token,
                host=self._host,
                pieces=tuple(pieces),
                over=over,
            )
            data = encoded(segment)
            name = self._name(segment.number)
            if not self._storage.create(data, name) and self._storage.read(name) != data:
                raise self._lost()
            self._number = segment.number

    @property
    def number(self) -> int:
        """The number of the last segment that was written here."""
        return self._number

    def forget(self, before: int) -> None:
        """Remove the segments before a number, from which on all files of the folder have been written again.

        What fences earlier owners stays. ConflictError: another owner has written meanwhile.
        """
        self.check_owned()
        names = [self._name(number) for number in self._numbers() if number < before and number not in self._fences]
        for lo in range(0, len(names), _REMOVED):
            self._storage.remove(*names[lo : lo + _REMOVED])

    def renew(self) -> None:
        """Renew the lease. ConflictError: another owner has written meanwhile."""
        lease = RunLease(until=self._now() + LEASE_S, host=self._host)
        self._storage.put_bytes(msgspec.json.encode(lease), self._lease(self.token))

    def check_owned(self) -> None:
        """Check that no other owner has written. ConflictError: one has."""
        with self._lock:
            if self._storage.has(self._name(self._number + 1)):
                raise self._lost()

    def release(self) -> None:
        """Let another owner begin at once."""
        lease = RunLease(until=0.0, host=self._host)
        self._storage.put_bytes(msgspec.json.encode(lease), self._lease(self.token))

    def remove(self) -> None:
        """Remove the log of a run that has ended, whose folder at this machine has all of it.

        Where owners have followed each other, the begins of their epochs stay: they fence those that still live.
        """
        self.append((), over=True)
        segments = self.read()
        begins = {segment.epoch: segment.number for segment in reversed(segments)}
        last = segments.pop().number
        rest = {segment.number for segment in segments} - set(begins.values())
        self._storage.remove(*(self._name(number) for number in sorted(rest)), f"{self._base}/lease")
        if self._epoch == 1:
            self._storage.remove(self._name(begins[1]))
        self._storage.remove(self._name(last))  # a removal that was cut off before leaves a log that is over
        if self._epoch == 1:
            self._storage.remove(self._base)  # a store with folders still has the empty ones

    def _lost(self) -> ConflictError:
        return ConflictError(
            f"another process drives {self.key} now: it has written to {shown(self._storage.url)}",
            hint="This process was thought dead. Look at the run where the other process is.",
        )

    def _numbers(self) -> Sequence[int]:
        names = (name.rpartition("/")[2] for name in self._storage.names(f"{self._base}/log"))
        return sorted(int(name) for name in names if name.isdigit())

    def _name(self, number: int) -> str:
        return f"{self._base}/log/{number:08}"

    def _lease(self, token: str) -> str:
        return f"{self._base}/lease/{token}.json"


def logs_of(storage: SharedStorage, run: str) -> list[str]:
    """Return the keys of the logs at a URL of runs with an id, or of the one with this key."""
    keys = {name.split("/")[1] for name in storage.names(RUNS)}
    return sorted(key for key in keys if key == run or key.rpartition("-")[0] == run)


def remove_run(url: str, key: str, owner: str | None, now: Callable[[], float]) -> None:
    """Remove the log and the objects of a run that nobody drives, and its project if no other run uses that.

    `owner` is the token of the last owner in the folder that is deleted; None: the folder follows owners elsewhere.
    Nothing is removed of a run that another owner has taken over. ConflictError: a driver of it may live.
    CapacityError: the URL cannot be used.
    """
    storage = SharedStorage(url)
    log = RunLog(storage, key, now)
    segments = log.read()
    if segments and owner is not None and segments[-1].token != owner:
        return
    if segments and not segments[-1].over:
        log.check_free(segments[-1], dead=owner or "")
        storage.remove(f"{RUNS}/{key}")
    storage.remove(key)
    release_projects(storage, key)


class LastOwner(Struct, frozen=True):
    """The last owner of a run in a folder: its token, and whether it has ended and left all of the run at the URL."""

    token: str = ""
    released: bool = False


_read_owner: Final = msgspec.json.Decoder(LastOwner).decode


def read_owner(folder: Path) -> LastOwner:
    """Return the last owner of a run in this folder; its token is "" if none is known."""
    try:
        return _read_owner((folder / OWNER).read_bytes())
    except (FileNotFoundError, msgspec.MsgspecError):
        return LastOwner()
