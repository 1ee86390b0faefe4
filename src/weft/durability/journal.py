"""The journal of a durable job: what its master was told, tick by tick, in one file that only grows.

A file is a magic word and frames of `length, CRC-32, payload`. The first frame is the header, each other one a `Tick`
or an `Epoch`. A file that ends inside a frame was cut off by a crash: the frame counts as never written, and is removed
before anything is appended. Values are MessagePack; what is no plain value (events, decisions, tuples, arrays) is
tagged with its name, and reading makes nothing but the types that are listed here.

Ticks are handed to a thread that writes and syncs many at once. Nobody waits for it: what must not happen before a
tick is durable is called by that thread.
"""

from __future__ import annotations

import os
import struct
import threading
import zlib
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from enum import Enum
from hashlib import sha256
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from weft._version import __version__
from weft.durability import snapshot
from weft.engine import decisions, events
from weft.engine.core import Tuning
from weft.engine.master import Master
from weft.engine.replay import Answer, Epoch, Pending, Replay, Tape, Tick, begin
from weft.engine.rows import FINISHED, FREED
from weft.graph import logical
from weft.graph.axes import Axis, GridMap, Op
from weft.graph.grid import OneToAll
from weft.graph.logical import Patch
from weft.graph.rectangles import Rectangles
from weft.graph.routers import Broadcast, Group, OneToOne, ScatterGather
from weft.graph.wire import dumps, patch_from_json, patch_to_json
from weft.model.errors import ConflictError, NotFoundError, ProgramError, WeftError
from weft.model.program import Program, Style
from weft.model.records import as_dict
from weft.model.resources import ONE_SLOT, ONE_SLOT_ONLY, Placement, Resources
from weft.store.codec import from_pickle, to_pickle
from weft.store.disk import sync_folder
from weft.store.state import os_error

if TYPE_CHECKING:
    from pathlib import Path

    from weft.durability.left import Left, LeftFiles
    from weft.engine.commands import Command
    from weft.engine.core import Core
    from weft.engine.events import Event
    from weft.engine.policy import ManagerFactory
    from weft.engine.ports import WhenDurable
    from weft.graph.logical import LogicalGraph
    from weft.store.outputs import Outputs

Cutter = Callable[["Recorded"], bytes]
"""Returns a snapshot of the master that a journal tells of."""

FORMAT: Final = 1
JOURNAL: Final = "journal"
"""The name of the file in a run's folder."""
GROUP_EVENTS: Final = 1_000
GROUP_S: Final = 0.010
"""A sync comes after this many events or seconds, and at once when somebody waits for it."""

CUT_BYTES: Final = 8 << 20
"""A journal that has grown by so much, and by twice its last snapshot, is cut: some seconds of replay."""

_MAGIC: Final = b"weftjnl\n"
_SNAPSHOT: Final = b"snapshot"
"""Begins the payload of a snapshot; no record begins so."""
_FRAME: Final = struct.Struct("<II")


# ------------------------------------------------------------------------------------------------------------ encoding

_PLAIN: Final = frozenset({type(None), bool, float, str, bytes})
_TUPLE, _NAMED, _ENUM, _ARRAY, _PAIRS, _RANGE, _SET, _INT, _PATCH, _RECTANGLES, _ROUTER, _PICKLED = range(1, 13)
_ROUTERS: Final = {kind.__name__: kind for kind in (OneToOne, Group, Broadcast, ScatterGather, OneToAll)}
_CONSTANTS: Final = (logical.SEQUENTIAL, logical.ONE_TO_ONE, logical.BROADCAST, logical.NONE, ONE_SLOT, ONE_SLOT_ONLY)
"""The engine tells some of these by identity."""


def _listed() -> dict[str, type[Any]]:
    found: dict[str, type[Any]] = {}
    kinds: list[Any] = [Answer, Program, Style, Resources, Placement, Axis, GridMap, Op]
    for module in (events, decisions, logical):
        kinds += [
            kind for kind in vars(module).values() if isinstance(kind, type) and kind.__module__ == module.__name__
        ]
    for kind in kinds:
        if hasattr(kind, "_fields") or issubclass(kind, Struct) or issubclass(kind, Enum):
            found[kind.__name__] = kind
    return found


_KINDS: Final = _listed()


def _ext(code: int, value: Any) -> msgspec.msgpack.Ext:
    return msgspec.msgpack.Ext(code, msgspec.msgpack.encode(value))


def _pack(value: Any, by_value: Callable[[Any], bytes] | None = None) -> Any:
    """Return a value as MessagePack takes it; `by_value` pickles what has no form there, ProgramError without it."""
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind is int:
        return value if -(1 << 63) <= value < 1 << 63 else _ext(_INT, str(value))
    if kind is list:
        return [_pack(item, by_value) for item in value]
    if kind is tuple:
        return _ext(_TUPLE, [_pack(item, by_value) for item in value])
    if kind is dict:
        if all(type(key) is str for key in value):
            return {key: _pack(item, by_value) for key, item in value.items()}
        return _ext(_PAIRS, [[_pack(key, by_value), _pack(item, by_value)] for key, item in value.items()])
    name = kind.__name__
    if kind is Patch and by_value is not None:
        return _ext(_PICKLED, by_value(value))  # its programs may be functions that have no name
    if _KINDS.get(name) is kind:
        if kind is Patch:
            return _ext(_PATCH, _pack(patch_to_json(value)))
        if isinstance(value, Enum):
            return _ext(_ENUM, [name, value.value])
        parts = value if isinstance(value, tuple) else [getattr(value, field) for field in value.__struct_fields__]
        return _ext(_NAMED, [name, *(_pack(part, by_value) for part in parts)])
    if kind is Rectangles:
        return _ext(_RECTANGLES, [value.n_src, value.n_dst, value.partitions, value.rows()])
    if _ROUTERS.get(name) is kind:
        return _ext(_ROUTER, [name, value.n_src, value.n_dst, *([value.group] if kind is Group else [])])
    if kind.__module__ == "numpy" and not value.dtype.hasobject:
        if name == "ndarray":
            return _ext(_ARRAY, [value.dtype.str, list(value.shape), value.tobytes()])
        return _pack(value.item())
    if kind is range:
        return _ext(_RANGE, [value.start, value.stop, value.step])
    if kind in (set, frozenset):
        return _ext(_SET, [kind is frozenset, *(_pack(item, by_value) for item in sorted(value, key=repr))])
    if by_value is not None:
        return _ext(_PICKLED, by_value(value))
    raise ProgramError(
        f"a {name} cannot be written to the journal of the run",
        hint="Have expanders and managers answer with numbers, text, lists, dictionaries and arrays.",
    )


def _unpack_ext(code: int, data: memoryview, decode: Callable[[memoryview], Any] | None = None) -> Any:
    value = (decode or _decode)(data)
    if code == _TUPLE:
        return _constant(tuple(value))
    if code == _NAMED:
        return _constant(_KINDS[value[0]](*value[1:]))
    if code == _ENUM:
        return _KINDS[value[0]](value[1])
    if code == _ARRAY:
        import numpy as np  # it takes longer to load than most pipelines need to start

        return np.frombuffer(value[2], dtype=np.dtype(value[0])).reshape(value[1]).copy()
    if code == _PAIRS:
        return dict(value)
    if code == _RANGE:
        return range(*value)
    if code == _SET:
        return frozenset(value[1:]) if value[0] else set(value[1:])
    if code == _INT:
        return int(value)
    if code == _PATCH:
        return patch_from_json(value)
    if code == _RECTANGLES:
        return Rectangles.from_rows(*value)
    if code == _ROUTER:
        return _ROUTERS[value[0]](*value[1:])
    raise ValueError(f"unknown tag {code}")


def _unpack_trusted(code: int, data: memoryview) -> Any:
    return from_pickle(_decode_trusted(data)) if code == _PICKLED else _unpack_ext(code, data, _decode_trusted)


def _constant(value: Any) -> Any:
    return next((known for known in _CONSTANTS if type(known) is type(value) and known == value), value)


_decode: Final = msgspec.msgpack.Decoder(ext_hook=_unpack_ext).decode
_decode_trusted: Final = msgspec.msgpack.Decoder(ext_hook=_unpack_trusted).decode


def encode(record: Tick | Epoch, by_value: Callable[[Any], bytes] | None = None) -> bytes:
    """Return the payload of a record; `by_value` pickles what has no form here, without it that is a ProgramError."""
    if isinstance(record, Epoch):
        return msgspec.msgpack.encode(
            [1, record.incarnation, None if record.tuning is None else as_dict(record.tuning)]
        )
    events, answers = record
    return msgspec.msgpack.encode([0, [_pack(e, by_value) for e in events], [_pack(a, by_value) for a in answers]])


def decode(payload: bytes, *, trusted: bool = False) -> Tick | Epoch:
    """Return the record of a payload; ConflictError if it is none.

    Only where it is `trusted` are values unpickled, which may run any code: where it lies in a folder of this user's
    that nobody else may write to.
    """
    try:
        kind, *rest = (_decode_trusted if trusted else _decode)(payload)
        if kind:
            return Epoch(rest[0], None if rest[1] is None else Tuning(**rest[1]))
        return Tick(tuple(rest[0]), tuple(rest[1]))
    except (msgspec.DecodeError, ValueError, TypeError, KeyError, IndexError, WeftError) as error:
        raise ConflictError(
            f"a record of the journal cannot be read: {error}",
            hint="It was written by another version, or the file was changed.",
        ) from None


def graph_digest(graph: LogicalGraph) -> str:
    """Return what tells a graph from others; ProgramError if it has a program that cannot be named."""
    return sha256(dumps(graph).encode()).hexdigest()


def edited_digest(graph: LogicalGraph, edits: int) -> str:
    """Return what tells the graph of a run after so many edits, which may leave the graph itself as it was."""
    return f"{graph_digest(graph)}+{edits}" if edits else graph_digest(graph)


def same_graph(digest: str, graph: LogicalGraph) -> bool:
    """Whether a digest is that of a graph, after whatever edits."""
    return digest.partition("+")[0] == graph_digest(graph)


# ------------------------------------------------------------------------------------------------------------- reading


class Header(Struct, frozen=True, kw_only=True):
    """What a journal begins with: who wrote it, and for which graph.

    `restored` are the tasks (vertex, index) that had finished before this journal began, `incarnation` counts the
    processes that owned the run before. Of expanders that are `answered` the values are known, and `taken` are the
    leases of earlier journals whose outputs count.
    """

    graph: str
    tuning: Tuning
    incarnation: int = 0
    restored: tuple[tuple[str, int], ...] = ()
    weft: str = __version__
    format: int = FORMAT
    answered: tuple[str, ...] = ()
    taken: tuple[int, ...] = ()


class Recorded(Struct, frozen=True):
    """A journal as it was found: its header, its whole records, and how many bytes hold all this.

    Where it was cut, `snapshot` is what came before the records.
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
        """The tuning that was in force at the end."""
        said = [r.tuning for r in self.records if isinstance(r, Epoch) and r.tuning is not None]
        return said[-1] if said else self.header.tuning


def read_journal(path: Path, *, trusted: bool = False) -> Recorded:
    """Read a journal; a last record that is cut off or damaged, and all behind it, is left out.

    `trusted`: see `decode`. NotFoundError: there is none. ConflictError: it is no journal, of another format, or of
    another version of Weft.
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
        raise ConflictError(f"{path} is not a journal", hint="The run cannot go on from it.")
    try:
        said = msgspec.msgpack.decode(payloads[0])
        version, form = said["weft"], said["format"]
    except (msgspec.DecodeError, KeyError, TypeError):
        raise ConflictError(f"{path} has no header", hint="The run cannot go on from it.") from None
    if (version, form) != (__version__, FORMAT):
        raise ConflictError(f"{path} was written by Weft {version}, this is {__version__}")
    header = Header(
        **{
            **said,
            "tuning": Tuning(**said["tuning"]),
            "restored": tuple((vertex, index) for vertex, index in said["restored"]),
            "answered": tuple(said["answered"]),
            "taken": tuple(said["taken"]),
        }
    )
    snapshot = b""
    if trusted and len(payloads) > 1 and payloads[1].startswith(_SNAPSHOT):
        snapshot = payloads.pop(1)[len(_SNAPSHOT) :]
    return Recorded(header, tuple(decode(payload, trusted=trusted) for payload in payloads[1:]), size, snapshot)


class Recovered(NamedTuple):
    """What a journal brought back: a master as the earlier one was, its tape, and what it left to do."""

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
    """Bring a new master for the same graph, its results marked, to where the journal ends; another incarnation begins.

    `digest` is that of the graph as it was first submitted, where that is another one; `tuning` is in force from now
    on, where it is another one. ConflictError: the journal is of another graph, or what it tells does not happen again.
    """
    if recorded.header.graph != (digest or graph_digest(graph)):
        raise ConflictError("the journal was written for another graph")
    replayed = replay_journal(graph, recorded, managers)
    begin(replayed.master.core, Epoch(recorded.incarnation + 1, tuning))
    return Recovered(replayed.master, replayed.tape, replayed.pending())


def replay_journal(graph: LogicalGraph, recorded: Recorded, managers: Mapping[str, ManagerFactory]) -> Replay:
    """Bring a new master to where the journal ends; ConflictError: what it tells does not happen again."""
    tape = Tape()
    if recorded.snapshot:
        replayed = snapshot.load(recorded.snapshot, graph, managers, tape)
    else:
        replayed = Replay(Master(graph, graph.name, recorded.header.tuning, tape.managers(managers)), tape)
        begin(replayed.master.core, Epoch(recorded.header.incarnation))
    try:
        replayed.feed(recorded.records)
    except Exception as error:
        raise ConflictError(f"the journal cannot be replayed: {error}") from error
    return replayed


def finished_tasks(core: Core) -> set[tuple[str, int]]:
    """Return the tasks (vertex, index) that have finished."""
    done = (FINISHED, FREED)
    return {(stage.id, i) for stage in core.stages for i in range(max(stage.n, 0)) if stage.state[i] in done}


def _frames(data: bytes) -> tuple[list[bytes], int]:
    """Return the payloads of the whole frames at the beginning of a file, and where the last one ends."""
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

    What goes wrong with the disk does not end the run: `error` keeps it, what comes later is not written, and nobody
    waits for it. With `outputs`, the values of tasks are made durable before the record that tells of them, and
    nothing of them is freed once that cannot be written down. With `files`, so is what tasks have left on file
    systems. With `cutter`, which makes a snapshot of what a journal tells, the file is cut when it has become long.
    """

    def __init__(
        self,
        path: Path,
        fd: int,
        tape: Tape,
        *,
        sync: Callable[[int], None] = os.fdatasync,
        outputs: Outputs | None = None,
        files: LeftFiles | None = None,
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
        self._frames: deque[tuple[bytes, int, list[Left]]] = deque()
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
        self._closing = False
        self._thread = threading.Thread(target=self._write, name=f"journal of {path.parent.name}", daemon=True)
        self._thread.start()

    @classmethod
    def create(cls, path: Path, header: Header, **options: Any) -> FileJournal:
        """Begin a journal, in the place of one that may be there; it is on disk with its header before this returns.

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
        """Go on with a journal that was read: what was cut off is removed, and a new incarnation begins.

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

    def managers(self, factories: Mapping[str, ManagerFactory]) -> dict[str, ManagerFactory]:
        """Return factories of managers whose answers are written down."""
        return self.tape.managers(factories)

    def append(self, events: Sequence[Event], commands: Sequence[Command]) -> WhenDurable | None:
        """Take one tick; ProgramError if it cannot be written down. Never waits."""
        frame = _frame(encode(Tick(tuple(events), self.tape.take()), self._by_value))
        left = [] if self._files is None else self._files.ended(events, commands)
        with self._lock:
            self._frames.append((frame, len(events), left))
            self._events += len(events)
            self._appended += 1
            number = self._appended
            if len(self._frames) == 1 or self._events >= GROUP_EVENTS:
                self._lock.notify()

        return lambda then: self._wait_for(number, then)

    def when_durable(self, then: Callable[[], None]) -> None:
        """Have `then` called once all that was taken so far is durable, or cannot be: `error` says so."""
        self._wait_for(self._appended, then)

    def _wait_for(self, number: int, then: Callable[[], None]) -> None:
        with self._lock:
            self._waiting.append((number, then))  # always by way of the thread: in order
            self._lock.notify()

    def close(self) -> None:
        """End the journal once what was appended is written; does not wait for that."""
        with self._lock:
            self._closing = True
            self._lock.notify()

    def join(self, timeout_s: float | None = None) -> bool:
        """Wait until a closed journal is written; False if `timeout_s` seconds were not enough."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    # ------------------------------------------------------------------------------------------------------ the thread

    def _write(self) -> None:
        now = monotonic  # only to group what is written
        while True:
            with self._lock:
                while not (self._frames or self._waiting or self._closing or self._head):
                    self._lock.wait()
                end = now() + GROUP_S
                while not (self._waiting or self._closing or self._head or self._events >= GROUP_EVENTS):
                    if (patience := end - now()) <= 0:
                        break
                    self._lock.wait(patience)
                frames: list[bytes] = []
                events = 0
                left: list[Left] = []
                while self._frames and (not frames or events + self._frames[0][1] <= GROUP_EVENTS):
                    frame, count, some = self._frames.popleft()
                    frames.append(frame)
                    events += count
                    left += some
                self._events -= events
                self._written += len(frames)
                upto = self._written
                closing = self._closing
                head, self._head = self._head, None
            if frames and self.error is None:
                try:
                    if self._outputs is not None:
                        self._outputs.sync()
                    if self._files is not None and left:
                        self._files.sync(left)
                    data = b"".join(frames)
                    _write_all(self._fd, data)
                    self._sync(self._fd)
                    self._size += len(data)
                except OSError as error:
                    self.error = os_error(f"the journal {self.path} cannot be written", error)
                    if self._outputs is not None:
                        self._outputs.hold()
            if self._cutter is not None and self.error is None and not closing:
                self._see_to_length(head)
            with self._lock:
                due = [then for number, then in self._waiting if number <= upto]
                self._waiting = [pair for pair in self._waiting if pair[0] > upto]
            for then in due:
                try:
                    then()
                except Exception as error:  # noqa: BLE001
                    self.faults.append(error)  # of whoever is told: the others are told all the same
            with self._lock:
                if closing and not (self._frames or self._waiting):
                    break
        if self._cutting is not None:
            self._cutting.join()
        os.close(self._fd)

    def _see_to_length(self, head: tuple[bytes, int] | None) -> None:
        """Put the head of a cut journal in the place of what it stands for, or begin to make one."""
        if head is not None:
            self._cutting = None
            self._replace(*head)
        elif self._cutting is None and self._size - self._cut_at >= max(self._cut_bytes, 2 * self._cut_at):
            self._cutting = threading.Thread(target=self._cut, args=(self._size,), name="cut", daemon=True)
            self._cutting.start()

    def _cut(self, size: int) -> None:
        """Make the head of a journal that says what the first `size` bytes say; beside the thread that writes."""
        assert self._cutter is not None
        try:
            with self.path.open("rb") as file:
                recorded = parse_journal(file.read(size), self.path, trusted=True)
            header = replace(recorded.header, incarnation=recorded.incarnation, tuning=recorded.tuning)
            head = _head_of(header) + _frame(_SNAPSHOT + self._cutter(recorded))
        except Exception as error:  # noqa: BLE001
            self.faults.append(error)
            self._cutter = None  # it stays long
            return
        with self._lock:
            self._head = head, size
            self._lock.notify()

    def _replace(self, head: bytes, size: int) -> None:
        """Write a head and what came after the first `size` bytes into a new file, in the place of this one."""
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
