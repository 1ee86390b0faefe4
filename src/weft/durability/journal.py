"""The journal of a durable job: the events of its master, tick by tick, in one file that only grows.

A file is a magic word and frames of `length, CRC-32, payload`. The first frame is the header, each other one a `Tick`
or an `Epoch`, encoded by `weft.durability.encoding`. A file that ends inside a frame was cut off by a crash: the frame
counts as never written, and is removed before the next append.

Ticks are handed to a thread that writes and syncs many at once. No other thread waits for it: it calls the actions that
must not precede the durability of a tick.
"""

from __future__ import annotations

import os
import struct
import threading
import zlib
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from weft._version import __version__
from weft.durability.encoding import SCHEMAS, Reader, Schema, encode, read_mapping
from weft.durability.pickles import to_pickle
from weft.engine.master import Master
from weft.engine.recovery import Epoch
from weft.engine.replay import Pending, Replay, Tape, Tick
from weft.engine.tuning import Tuning  # noqa: TC001 - msgspec reads it at run time
from weft.graph.wire import dumps
from weft.model.digests import hex_digest
from weft.model.errors import ConflictError, NotFoundError
from weft.model.records import as_dict, converter
from weft.store.disk import sync_folder
from weft.store.state import os_error

if TYPE_CHECKING:
    from pathlib import Path

    from weft.durability.side_outputs import SideOutputs, SyncPaths
    from weft.engine.commands import Command
    from weft.engine.events import Event
    from weft.engine.policy import ManagerFactory
    from weft.engine.ports import WhenDurable
    from weft.graph.logical import LogicalGraph
    from weft.model.errors import WeftError
    from weft.store.outputs import Outputs

Cutter = Callable[["Recorded"], bytes]
"""Returns a snapshot of the master that a journal restores."""

FORMAT: Final = 2
"""The layout of the file. Records have schemas of their own, so it changes only with the frames or the header."""
JOURNAL: Final = "journal"
"""The name of the file in a run's folder."""
GROUP_EVENTS: Final = 1_000
GROUP_S: Final = 0.010
"""A sync comes after this many events or seconds, and at once when an action waits for it."""

CUT_BYTES: Final = 8 << 20
"""A journal that has grown by this many bytes, and by twice its last snapshot, is cut: some seconds of replay."""

_MAGIC: Final = b"weftjnl\n"
_SNAPSHOT: Final = b"snapshot"
"""The prefix of a snapshot's payload; no record begins like this."""
_FRAME: Final = struct.Struct("<II")


def graph_digest(graph: LogicalGraph) -> str:
    """Return the digest of a graph. ProgramError: one of its programs cannot be named."""
    return hex_digest(dumps(graph).encode("utf-8", "surrogatepass"))


def edited_digest(graph: LogicalGraph, edits: int) -> str:
    """Return the digest of a run's graph after a number of edits, which may leave the graph itself unchanged."""
    return f"{graph_digest(graph)}+{edits}" if edits else graph_digest(graph)


def same_graph(digest: str, graph: LogicalGraph) -> bool:
    """Whether a digest is that of a graph, after any number of edits."""
    return digest.partition("+")[0] == graph_digest(graph)


# ------------------------------------------------------------------------------------------------------------- reading


class Header(Struct, frozen=True, kw_only=True):
    """The first frame of a journal: its writer, and its graph.

    `restored` are the tasks (vertex, index) that had finished before this journal began, `incarnation` counts the
    earlier processes of the run. `answered` are expanders with known values, and `taken` are the leases of earlier
    journals whose outputs count. `schemas` are those of the records that follow, `weft` is the version that wrote them,
    for messages. Fields added by a newer version are skipped.
    """

    graph: str
    tuning: Tuning
    incarnation: int = 0
    restored: tuple[tuple[str, int], ...] = ()
    weft: str = __version__
    format: int = FORMAT
    answered: tuple[str, ...] = ()
    taken: tuple[int, ...] = ()
    schemas: tuple[Schema, ...] = SCHEMAS


_header_of: Final = converter(Header)


class Recorded(Struct, frozen=True):
    """A journal as read: its header, its complete records, and the bytes that hold them.

    If it was cut, `snapshot` replaces the records before the cut.
    """

    header: Header
    records: tuple[Tick | Epoch, ...]
    size: int
    snapshot: bytes = b""

    @property
    def incarnation(self) -> int:
        """The last process that owned the run: 0 for the first."""
        return max([self.header.incarnation, *(r.incarnation for r in self.records if isinstance(r, Epoch))])

    @property
    def tuning(self) -> Tuning:
        """The last tuning."""
        tunings = [r.tuning for r in self.records if isinstance(r, Epoch) and r.tuning is not None]
        return tunings[-1] if tunings else self.header.tuning


def read_journal(path: Path, *, trusted: bool = False) -> Recorded:
    """Read a journal; an incomplete or damaged last record, and all bytes behind it, are left out.

    `trusted`: see `Reader`. NotFoundError: there is none. ConflictError: it is no journal, of another format, or has
    records unknown to this version of Weft.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise NotFoundError(f"there is no journal {path}") from None
    except OSError as error:
        raise os_error(f"{path} cannot be read", error) from None
    return parse_journal(data, path, trusted=trusted)


def parse_journal(data: bytes, path: Path, *, trusted: bool = False) -> Recorded:
    """Return the journal in the bytes of a file; errors as `read_journal`."""
    payloads, size = _frames(data)
    if not payloads:
        raise ConflictError(f"{path} is not a journal", hint="The run cannot be resumed from it.")
    try:
        found = read_mapping(payloads[0])
        form = found["format"]
        if form != FORMAT:
            raise ConflictError(
                f"{path} was written by Weft {found['weft']} in format {form}, and this version reads format {FORMAT}",
                hint="Resume the run with the version that wrote it; this one can resume from its records alone.",
            )
        header = _header_of(found)
    except (msgspec.MsgspecError, LookupError, TypeError):
        raise ConflictError(f"{path} has no header", hint="The run cannot be resumed from it.") from None
    snapshot = b""
    if trusted and len(payloads) > 1 and payloads[1].startswith(_SNAPSHOT):
        snapshot = payloads.pop(1)[len(_SNAPSHOT) :]
    read = Reader(header.schemas, trusted=trusted).read
    return Recorded(header, tuple(read(payload) for payload in payloads[1:]), size, snapshot)


class Recovered(Struct, frozen=True):
    """The result of a recovery: the restored master, its tape, and its pending commands."""

    master: Master
    tape: Tape
    pending: Pending


def recover(
    graph: LogicalGraph,
    recorded: Recorded,
    managers: Mapping[str, ManagerFactory],
    digest: str = "",
    *,
    tuning: Tuning | None = None,
) -> Recovered:
    """Bring a new master for the same graph, its results marked, to the end of the journal; a new incarnation begins.

    `digest` is that of the graph as first submitted, if it differs; `tuning` replaces the recorded one. ConflictError:
    the journal is of another graph, or its replay diverges.
    """
    if recorded.header.graph != (digest or graph_digest(graph)):
        raise ConflictError("the journal was written for another graph")
    replayed = replay_journal(graph, recorded, managers)
    replayed.begin(Epoch(recorded.incarnation + 1, tuning))
    return Recovered(replayed.master, replayed.tape, replayed.pending())


def replay_journal(graph: LogicalGraph, recorded: Recorded, managers: Mapping[str, ManagerFactory]) -> Replay:
    """Bring a new master to the end of the journal. ConflictError: the replay diverges."""
    tape = Tape()
    if recorded.snapshot:
        from weft.durability import snapshot  # only long journals have one

        replayed = snapshot.load(recorded.snapshot, graph, managers, tape)
    else:
        header = recorded.header
        master = Master(graph, graph.name, header.tuning, tape.managers(managers), header.incarnation)
        replayed = Replay(master, tape)
    try:
        replayed.feed(recorded.records)
    except Exception as error:
        raise ConflictError(f"the journal cannot be replayed: {error}") from error
    return replayed


def _frames(data: bytes) -> tuple[list[bytes], int]:
    """Return the payloads of the complete frames at the beginning of a file, and the end of the last one."""
    if not data.startswith(_MAGIC):
        return [], 0
    found, at = [], len(_MAGIC)
    while at + _FRAME.size <= len(data):
        length, check = _FRAME.unpack_from(data, at)
        payload = data[at + _FRAME.size : at + _FRAME.size + length]
        if not length or len(payload) < length or zlib.crc32(payload) != check:
            break
        found.append(payload)
        at += _FRAME.size + length
    return found, at


def _frame(payload: bytes) -> bytes:
    return _FRAME.pack(len(payload), zlib.crc32(payload)) + payload


# ------------------------------------------------------------------------------------------------------------- writing


class FileJournal:
    """Writes a journal; see `weft.engine.ports.Journal`. Make one with `create` or `reopen`.

    Failures of the disk do not end the run: `error` keeps the first, later records are not written, and waits end. With
    `outputs`, the values of tasks are made durable before their record, and none are freed once frees cannot be
    recorded. With `files`, the side outputs of tasks on file systems are made durable too. With `cutter`, which makes a
    snapshot from a journal, a long file is cut.
    """

    def __init__(
        self,
        path: Path,
        fd: int,
        tape: Tape,
        *,
        sync: Callable[[int], None] = os.fdatasync,
        outputs: Outputs | None = None,
        files: SideOutputs | None = None,
        cutter: Cutter | None = None,
        size: int = 0,
        cut_bytes: int = CUT_BYTES,
    ) -> None:
        self.path = path
        self.tape = tape
        self.error: WeftError | None = None
        self.faults: list[Exception] = []
        self._fd = fd
        self._sync = sync
        self._outputs = outputs
        self._files = files
        self._by_value = None if outputs is None else to_pickle
        self._lock = threading.Condition()
        self._frames: deque[tuple[bytes, int, list[SyncPaths]]] = deque()
        self._events = 0
        self._appended = 0
        self._written = 0
        self._cutter = cutter
        self._cut_bytes = cut_bytes
        self._size = size
        self._cut_at = 0
        self._cutting: threading.Thread | None = None
        self._head: tuple[bytes, int] | None = None
        self._waiting: list[tuple[int, Callable[[], None]]] = []
        self._followers: list[tuple[int, Callable[[], None]]] = []  # of writes, for which nobody hurries
        self._closing = False
        self._ended = False
        self._thread = threading.Thread(target=self._write, name=f"journal of {path.parent.name}", daemon=True)
        self._thread.start()

    @classmethod
    def create(cls, path: Path, header: Header, **options: Any) -> FileJournal:
        """Begin a journal, in place of an existing one; it is on disk with its header before this returns.

        `options` are those of a `FileJournal`. ForbiddenError, DiskFullError: it cannot be made.
        """
        draft = path.with_name(f".{path.name}.{os.getpid()}")
        fd = -1
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
            fd = os.open(draft, flags, 0o600)
            head = _head_of(header)
            _write_all(fd, head)
            os.fdatasync(fd)
            draft.replace(path)
            sync_folder(path.parent)
        except OSError as error:
            if fd >= 0:
                os.close(fd)
            with suppress(OSError):
                draft.unlink()
            raise os_error(f"the journal {path} cannot be made", error) from None
        return cls(path, fd, Tape(), size=len(head), **options)

    @classmethod
    def reopen(
        cls,
        path: Path,
        recorded: Recorded,
        tape: Tape,
        *,
        tuning: Tuning | None = None,
        **options: Any,
    ) -> FileJournal:
        """Continue a journal that was read: an incomplete record is removed, and a new incarnation begins.

        `tuning` as for `recover`, `options` are those of a `FileJournal`. ForbiddenError, DiskFullError: it cannot be
        written.
        """
        fd = -1
        try:
            fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW)
            os.ftruncate(fd, recorded.size)
            epoch = _frame(encode(Epoch(recorded.incarnation + 1, tuning)))
            _write_all(fd, epoch)
            os.fdatasync(fd)
        except OSError as error:
            if fd >= 0:
                os.close(fd)
            raise os_error(f"the journal {path} cannot be written", error) from None
        return cls(path, fd, tape, size=recorded.size + len(epoch), **options)

    # -------------------------------------------------------------------------------------------- under the loop's lock

    def managers(self, factories: Mapping[str, ManagerFactory]) -> Mapping[str, ManagerFactory]:
        """Return the factories of managers whose decisions are recorded."""
        return self.tape.managers(factories)

    def append(self, events: Sequence[Event], commands: Sequence[Command]) -> WhenDurable | None:
        """Append one tick; never waits. ProgramError: it cannot be encoded."""
        frame = _frame(encode(Tick(tuple(events), self.tape.take(), len(commands)), self._by_value))
        side_outputs = [] if self._files is None else self._files.ended(events, commands)
        with self._lock:
            self._frames.append((frame, len(events), side_outputs))
            self._events += len(events)
            self._appended += 1
            number = self._appended
            if len(self._frames) == 1 or self._events >= GROUP_EVENTS:
                self._lock.notify()

        return lambda then: self._wait_for(number, then)

    def when_durable(self, then: Callable[[], None]) -> None:
        """Call `then` once all earlier ticks are durable, or cannot be: then `error` is set."""
        self._wait_for(self._appended, then)

    def when_written(self, then: Callable[[], None]) -> None:
        """Call `then` once a kill of this process cannot lose the earlier ticks, or they cannot be written.

        A loss of power can. The write is not hurried.
        """
        with self._lock:
            if not self._ended:
                self._followers.append((self._appended, then))
                if not self._frames:
                    self._lock.notify()
                return
        then()

    def _wait_for(self, number: int, then: Callable[[], None]) -> None:
        with self._lock:
            self._waiting.append((number, then))  # always through the thread: in order
            self._lock.notify()

    def close(self) -> None:
        """End the journal after the appended ticks; does not wait for the writes."""
        with self._lock:
            self._closing = True
            self._lock.notify()

    def join(self, timeout_s: float | None = None) -> bool:
        """Wait until a closed journal is written. Return False after `timeout_s` seconds."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    # ------------------------------------------------------------------------------------------------------ the thread

    def _write(self) -> None:
        now = monotonic  # only to group the writes
        while True:
            with self._lock:
                while not (self._frames or self._waiting or self._followers or self._closing or self._head):
                    self._lock.wait()
                end = now() + GROUP_S
                while self._frames and not (
                    self._waiting or self._closing or self._head or self._events >= GROUP_EVENTS
                ):
                    if (patience := end - now()) <= 0:
                        break
                    self._lock.wait(patience)
                frames: list[bytes] = []
                events = 0
                side_outputs: list[SyncPaths] = []
                while self._frames and (not frames or events + self._frames[0][1] <= GROUP_EVENTS):
                    frame, count, some = self._frames.popleft()
                    frames.append(frame)
                    events += count
                    side_outputs += some
                self._events -= events
                self._written += len(frames)
                upto = self._written
                closing = self._closing
                head, self._head = self._head, None
            if frames and self.error is None:
                try:
                    if self._outputs is not None:
                        self._outputs.sync()
                    if self._files is not None and side_outputs:
                        self._files.sync(side_outputs)
                    data = b"".join(frames)
                    _write_all(self._fd, data)
                    self._call(self._followers, upto)
                    self._sync(self._fd)
                    self._size += len(data)
                except OSError as error:
                    self.error = os_error(f"the journal {self.path} cannot be written", error)
                    if self._outputs is not None:
                        self._outputs.hold()
            if self._cutter is not None and self.error is None and not closing:
                self._see_to_length(head)
            self._call(self._followers, upto)
            self._call(self._waiting, upto)
            with self._lock:
                if closing and not (self._frames or self._waiting or self._followers):
                    self._ended = True
                    break
        if self._cutting is not None:
            self._cutting.join()
        os.close(self._fd)

    def _call(self, waiting: list[tuple[int, Callable[[], None]]], upto: int) -> None:
        """Call and remove those who wait for one of the first `upto` ticks."""
        with self._lock:
            due = [then for number, then in waiting if number <= upto]
            waiting[:] = [pair for pair in waiting if pair[0] > upto]
        for then in due:
            try:
                then()
            except Exception as error:  # noqa: BLE001
                self.faults.append(error)  # of one callback: the others are called all the same

    def _see_to_length(self, head: tuple[bytes, int] | None) -> None:
        """Replace the beginning of a long journal by its snapshot, or begin to make one."""
        if head is not None:
            self._cutting = None
            self._replace(*head)
        elif self._cutting is None and self._size - self._cut_at >= max(self._cut_bytes, 2 * self._cut_at):
            self._cutting = threading.Thread(target=self._cut, args=(self._size,), name="cut", daemon=True)
            self._cutting.start()

    def _cut(self, size: int) -> None:
        """Make the snapshot of the first `size` bytes, on a thread of its own."""
        assert self._cutter is not None
        try:
            with self.path.open("rb") as file:
                recorded = parse_journal(file.read(size), self.path, trusted=True)
            header = replace(
                recorded.header,
                incarnation=recorded.incarnation,
                tuning=recorded.tuning,
                weft=__version__,
                schemas=SCHEMAS,
            )
            head = _head_of(header) + _frame(_SNAPSHOT + self._cutter(recorded))
        except Exception as error:  # noqa: BLE001
            self.faults.append(error)
            self._cutter = None  # it stays long
            return
        with self._lock:
            self._head = head, size
            self._lock.notify()

    def _replace(self, head: bytes, size: int) -> None:
        """Write a snapshot and the bytes after the first `size` into a new file, in the place of this one."""
        draft = self.path.with_name(f".{self.path.name}.{os.getpid()}")
        fd = -1
        try:
            with self.path.open("rb") as file:
                file.seek(size)
                tail = file.read()
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
            fd = os.open(draft, flags, 0o600)
            _write_all(fd, head + tail)
            os.fdatasync(fd)
            draft.replace(self.path)
            sync_folder(self.path.parent)
        except OSError as error:
            if fd >= 0:
                os.close(fd)
            with suppress(OSError):
                draft.unlink()
            self.faults.append(error)
            self._cutter = None
            return
        os.close(self._fd)
        self._fd, self._cut_at, self._size = fd, len(head), len(head) + len(tail)


def _head_of(header: Header) -> bytes:
    return _MAGIC + _frame(msgspec.msgpack.encode(as_dict(header)))


def _write_all(fd: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(fd, left) :]
