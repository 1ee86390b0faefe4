"""Chunks in the stores of other nodes: their references, and the reader of their bytes.

The location of such a chunk is `peer://host:port/job/vertex/index/lease`: the cell of a task's output in the store of
the node at that address, wherever that store keeps it at the time (shared memory, disk). The lease that made it tells
it from an output of an earlier attempt at the same node, which is deleted when no cell refers to it. A reader asks for
a range of bytes, so that one piece of a partitioned chunk is read alone.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from weft.model.errors import ForbiddenError, NotFoundError, UnreadableError
from weft.store.handshake import PATIENCE_S, Credentials, Dial, connect, dial_tcp, receive_exactly

if TYPE_CHECKING:
    from weft.model.chunks import ChunkRef
    from weft.store.codec import Encoded
    from weft.store.tls import Connection, TlsFiles

ROOT: Final = "peer://"
PURPOSE: Final = b"chunks"
"""The purpose of connections that read chunks."""
REQUEST: Final = struct.Struct("<BIQQ")
"""The kind, the bytes of the name or list that follows, offset and bytes of a range."""
RANGE, PIECES = range(2)
REPLY: Final = struct.Struct("<BQ")
HEAD: Final = struct.Struct("<I")
FREED: Final = -1
FOUND, MISSING, UNREADABLE = range(3)
_IDLE_MAX: Final = 4
_CHUNKS_MAX: Final = 256
"""The chunks in one request: the server opens the file of each."""


class PeerChunk(NamedTuple):
    """The parts of a location: the address of a node, the cell of an output there, and the lease that made it."""

    host: str
    port: int
    job: str
    vertex: str
    at: int
    lease: int


def location_of(address: tuple[str, int], job: str, vertex: str, index: int, lease: int) -> str:
    """Return the location of an output at a node."""
    return f"{ROOT}{address[0]}:{address[1]}/{job}/{vertex}/{index}/{lease}"


def parse(location: str) -> PeerChunk:
    """Return the parts of a location."""
    address, _, rest = location.removeprefix(ROOT).partition("/")
    host, _, port = address.rpartition(":")
    return PeerChunk(host, int(port), *parse_name(rest))


def parse_name(name: str) -> tuple[str, str, int, int]:
    """Return the parts of a location behind its node: job, vertex, index, lease."""
    job, _, rest = name.partition("/")
    vertex, index, lease = rest.rsplit("/", 2)
    return job, vertex, int(index), int(lease)


# ----------------------------------------------------------------------------------------------------------- reading


class PeerReader:
    """Connections of this process to the chunk servers of other nodes, kept for later reads."""

    def __init__(self, credentials: Credentials, dial: Dial = dial_tcp) -> None:
        self.credentials = credentials
        self._dial = dial
        self._lock = threading.Lock()
        self._idle: dict[tuple[str, int], list[Connection]] = {}
        self._closed = False

    def read(self, location: str, offset: int, nbytes: int) -> memoryview:
        """Read a part of a chunk into private memory; errors as those of a file."""
        chunk = parse(location)
        name = _name(location).encode()
        status, data = self._ask((chunk.host, chunk.port), REQUEST.pack(RANGE, len(name), offset, nbytes) + name)
        if status != FOUND:
            raise _error(status, data)
        return data

    def pieces(self, address: tuple[str, int], wanted: Sequence[tuple[str, int, int]]) -> list[list[memoryview | None]]:
        """Read pieces of several partitioned chunks of one node, by location, first piece and end, in one request.

        None stands for a freed piece; an unreadable chunk has no pieces, so that the reader asks for them again, alone.
        """
        body = msgspec.msgpack.encode([(_name(location), lo, hi) for location, lo, hi in wanted])
        status, data = self._ask(address, REQUEST.pack(PIECES, len(body), 0, 0) + body)
        if status != FOUND:
            raise _error(status, data)
        at = HEAD.size + HEAD.unpack_from(data)[0]
        found = []
        for sizes in msgspec.msgpack.decode(data[HEAD.size : at], type=list[list[int]]):
            row: list[memoryview | None] = []
            for size in sizes:
                row.append(None if size == FREED else data[at : at + size])
                at += max(0, size)
            found.append(row)
        return found

    def chunks(self, address: tuple[str, int], wanted: Mapping[str, int]) -> Iterator[tuple[str, memoryview]]:
        """Read whole chunks of one node, by location and bytes, in one request; yield each as it comes.

        Those that it cannot give are left out. NotFoundError: it cannot be reached.
        """
        names = [_name(location).encode() for location in wanted]
        requests = [
            REQUEST.pack(RANGE, len(name), 0, nbytes) + name
            for name, nbytes in zip(names, wanted.values(), strict=True)
        ]
        for location, (status, data) in zip(wanted, self._replies(address, requests), strict=True):
            if status == FOUND:
                yield location, data

    def _ask(self, address: tuple[str, int], request: bytes) -> tuple[int, memoryview]:
        """Return status and data of the answer of a node. NotFoundError: it cannot be reached."""
        (answer,) = self._replies(address, [request])
        return answer

    def _replies(self, address: tuple[str, int], requests: Sequence[bytes]) -> Iterator[tuple[int, memoryview]]:
        """Send requests, which both sockets have room for, and yield the answers. NotFoundError: see `_ask`."""
        for fresh in (False, True):
            sock = None
            answered = False
            try:
                sock = self._connection(address, fresh=fresh)
                if sock is None:
                    continue
                sock.sendall(b"".join(requests))
                for _ in requests:
                    status, length = REPLY.unpack(receive_exactly(sock, REPLY.size))
                    data = receive_exactly(sock, length)
                    answered = True
                    yield status, data
            except OSError as error:
                if sock is not None:
                    sock.close()
                if fresh or answered:
                    raise NotFoundError(
                        f"the node at {address[0]}:{address[1]} cannot be reached: {error.strerror or error}",
                        hint="It has ended, or the network is cut; its tasks run again elsewhere.",
                    ) from error
                continue  # the node may have closed an idle connection
            except GeneratorExit:  # nobody reads the other answers
                if sock is not None:
                    sock.close()
                raise
            self._keep(address, sock)
            return

    def _connection(self, address: tuple[str, int], *, fresh: bool) -> Connection | None:
        if not fresh:
            with self._lock:
                kept = self._idle.get(address)
                return kept.pop() if kept else None
        return connect(address, self.credentials, PURPOSE, timeout_s=PATIENCE_S, dial=self._dial)

    def _keep(self, address: tuple[str, int], sock: Connection) -> None:
        with self._lock:
            kept = self._idle.setdefault(address, [])
            if len(kept) < _IDLE_MAX and not self._closed:
                kept.append(sock)
                return
        sock.close()

    def close(self) -> None:
        """Close all connections."""
        with self._lock:
            idle, self._idle, self._closed = self._idle, {}, True
        for sock in (sock for kept in idle.values() for sock in kept):
            sock.close()


def _name(location: str) -> str:
    """Return a location without its node."""
    return location.removeprefix(ROOT).partition("/")[2]


def _error(status: int, data: memoryview) -> NotFoundError:
    text = bytes(data).decode(errors="replace")
    return NotFoundError(text) if status == MISSING else UnreadableError(text)


_readers: list[PeerReader] = []
_fetched: dict[tuple[str, int], memoryview | None] = {}
"""Pieces that were fetched together with others, until their reader takes them."""


def open_reader(credentials: Credentials, dial: Dial = dial_tcp) -> None:
    """Read chunks of nodes with these credentials from now on, in this process; `dial` reaches the nodes."""
    close_reader()
    _readers.append(PeerReader(credentials, dial))


def credentials() -> Credentials:
    """Return the credentials of this process in its cluster. ForbiddenError: it belongs to none."""
    if not _readers:
        raise ForbiddenError("this process belongs to no cluster")
    return _readers[-1].credentials


def own_tls() -> TlsFiles | None:
    """Return the files by which this process encrypts its connections in its cluster, None if it does not."""
    return _readers[-1].credentials.tls if _readers else None


def close_reader() -> None:
    """Read no more chunks of nodes in this process."""
    while _readers:
        _readers.pop().close()


def read_range(location: str, offset: int, nbytes: int) -> memoryview:
    """See `weft.store.tiers.RangeReader`."""
    if not _readers:
        raise UnreadableError(f"the chunk {location} lies at another node, and this process belongs to no cluster")
    return _readers[-1].read(location, offset, nbytes)


def fetch_pieces(wanted: Iterable[tuple[str, int, int]]) -> None:
    """Fetch pieces of chunks, by location, first piece and end, in one request for each node, for `fetched`."""
    by_node: dict[tuple[str, int], list[tuple[str, int, int]]] = {}
    for location, lo, hi in wanted:
        chunk = parse(location)
        by_node.setdefault((chunk.host, chunk.port), []).append((location, lo, hi))
    requests = [
        (address, listed[at : at + _CHUNKS_MAX])
        for address, listed in by_node.items()
        for at in range(0, len(listed), _CHUNKS_MAX)
    ]
    for address, listed in requests if _readers else ():
        with suppress(NotFoundError):  # the reader meets it again, and knows whose input is lost
            for (location, lo, _), row in zip(listed, _readers[-1].pieces(address, listed), strict=True):
                _fetched.update({(location, lo + place): piece for place, piece in enumerate(row)})


def fetch_chunks(wanted: Mapping[str, int]) -> Iterator[tuple[str, memoryview]]:
    """Read whole chunks, by location and bytes, in few requests for each node, and yield each as it comes.

    Those that cannot be read are left out.
    """
    by_node: dict[tuple[str, int], list[str]] = {}
    for location in wanted:
        chunk = parse(location)
        by_node.setdefault((chunk.host, chunk.port), []).append(location)
    for address, locations in by_node.items() if _readers else ():
        with suppress(NotFoundError):
            for at in range(0, len(locations), _CHUNKS_MAX):
                batch = {location: wanted[location] for location in locations[at : at + _CHUNKS_MAX]}
                yield from _readers[-1].chunks(address, batch)


def is_fetched(location: str, piece: int) -> bool:
    """Return whether a piece was fetched and not taken yet."""
    return (location, piece) in _fetched


def take_fetched(location: str, piece: int) -> memoryview | None:
    """Return a fetched piece, None if it had been freed, and forget it."""
    return _fetched.pop((location, piece))


def forget_fetched() -> None:
    """Forget the fetched pieces that no reader has taken."""
    _fetched.clear()


class PeerTier:
    """The outputs at other nodes that the columns of this process refer to; `delete` takes the locations to free."""

    root = ROOT
    local = False

    def __init__(self, delete: Callable[[Iterable[str]], None]) -> None:
        self._delete = delete

    def write(self, chunks: Sequence[Encoded]) -> list[ChunkRef]:
        """Write nothing: nodes write their own outputs."""
        raise UnreadableError("a chunk is never moved to another node")

    def delete(self, locations: Iterable[str]) -> None:
        """See `TierStore.delete`."""
        self._delete(locations)

    def freeable(self, offset: int, nbytes: int) -> tuple[int, int]:
        """Return nothing: the node frees ranges by itself."""
        return offset, 0

    def free(self, location: str, start: int, nbytes: int) -> bool:
        """See `TierStore.free`."""
        return False

    def sweep(self, prefix: str, known: object) -> int:
        """Remove nothing: a node that ends removes its own."""
        return 0

    def close(self) -> None:
        """Do nothing: the nodes end with the session."""
