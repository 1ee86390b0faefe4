"""The server of a node's chunks to other nodes; see `weft.store.peers` for its readers."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from weft.model.errors import NotFoundError, WeftError
from weft.store import peers, tiers
from weft.store.handshake import receive_exactly

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from weft.model.chunks import ChunkRef

Find = Callable[[str, str, int], "AbstractContextManager[ChunkRef]"]
"""Finds an output by job, vertex and index, pinned for the time of a read. NotFoundError: it is not there."""


def serve_chunks(sock: socket.socket, find: Find) -> None:
    """Answer the reads of one connection until it ends."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with suppress(OSError):
        while True:
            kind, length, offset, nbytes = peers.REQUEST.unpack(receive_exactly(sock, peers.REQUEST.size))
            body = bytes(receive_exactly(sock, length))
            status = peers.FOUND
            try:
                if kind == peers.PIECES:
                    parts = _pieces_of(msgspec.msgpack.decode(body, type=list[tuple[str, int, int]]), find)
                else:
                    with _found(find, body.decode()) as ref:
                        parts = [tiers.read_slice(ref, offset, nbytes)]
            except NotFoundError as error:
                status, parts = peers.MISSING, [memoryview(str(error).encode())]
            except (WeftError, ValueError, OSError, msgspec.MsgspecError) as error:
                status, parts = peers.UNREADABLE, [memoryview(str(error).encode())]
            sock.sendall(
                peers.REPLY.pack(status, sum(part.nbytes for part in parts)) + (parts[0] if len(parts) > 1 else b"")
            )
            for part in parts[len(parts) > 1 :]:
                sock.sendall(part)


def _found(find: Find, name: str) -> AbstractContextManager[ChunkRef]:
    job, _, rest = name.partition("/")
    vertex, _, index = rest.rpartition("/")
    return find(job, vertex, int(index))


def _pieces_of(wanted: list[tuple[str, int, int]], find: Find) -> list[memoryview]:
    """Return the answer to a request for pieces: the sizes of each chunk's pieces, and their bytes."""
    sizes: list[list[int]] = []
    parts: list[memoryview] = []
    for name, lo, hi in wanted:
        row: list[int] = []
        try:
            with _found(find, name) as ref:
                places = tiers.directory(ref, lo, hi)
                begin, end = min(at for at, _ in places), max(at + size for at, size in places)
                data = tiers.read_slice(ref, begin, end - begin)
            for at, size in places:
                row.append(size or peers.FREED)
                if size:
                    parts.append(data[at - begin : at - begin + size])
        except (WeftError, ValueError):
            row = []
        sizes.append(row)
    head = msgspec.msgpack.encode(sizes)
    return [memoryview(peers.HEAD.pack(len(head)) + head), *parts]
