"""The server of a node's chunks to other nodes; see `weft.store.peers` for its readers."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Final

import msgspec

from weft.model.chunks import Tier
from weft.model.errors import NotFoundError, WeftError
from weft.store import disk, peers, tiers
from weft.store.handshake import receive_exactly

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from weft.model.chunks import ChunkRef
    from weft.store.tls import Connection

Find = Callable[[str, str, int, int], "AbstractContextManager[ChunkRef]"]
"""Finds an output by job, vertex, index and lease, pinned for the time of a read. NotFoundError: it is not there."""


Part = memoryview | tuple[int, int, int]
"""Bytes to send: in memory, or in an open file, with their offset and number."""
_BLOCK: Final = 1 << 20
"""The bytes of a file in this process while they are encrypted."""


def serve_chunks(sock: Connection, find: Find) -> None:
    """Answer the reads of one connection until it ends."""
    with suppress(OSError):
        while True:
            kind, length, offset, nbytes = peers.REQUEST.unpack(receive_exactly(sock, peers.REQUEST.size))
            body = bytes(receive_exactly(sock, length))
            with ExitStack() as held:
                try:
                    if kind == peers.PIECES:
                        wanted = msgspec.msgpack.decode(body, type=list[tuple[str, int, int]])
                        parts = _pieces_of(wanted, find, held)
                    else:
                        parts = [_part(held.enter_context(_found(find, body.decode())), offset, nbytes, held)]
                    status = peers.FOUND
                except NotFoundError as error:
                    status, parts = peers.MISSING, [memoryview(str(error).encode())]
                except (WeftError, ValueError, OSError, msgspec.MsgspecError) as error:
                    status, parts = peers.UNREADABLE, [memoryview(str(error).encode())]
                sock.sendall(peers.REPLY.pack(status, sum(map(_nbytes, parts))))
                for part in parts:
                    _send(sock, part)


def _part(ref: ChunkRef, offset: int, nbytes: int, held: ExitStack) -> Part:
    """Return a part of a chunk to send: of a file, without reading it into this process."""
    if ref.tier is not Tier.SHM and ref.tier is not Tier.DISK:
        return tiers.read_slice(ref, offset, nbytes)
    fd = disk.open_range(ref.location, ref.offset + offset, nbytes)
    held.callback(os.close, fd)
    return fd, ref.offset + offset, nbytes


def _nbytes(part: Part) -> int:
    return part[2] if isinstance(part, tuple) else part.nbytes


def _send(sock: Connection, part: Part) -> None:
    if not isinstance(part, tuple):
        sock.sendall(part)
        return
    fd, offset, nbytes = part
    end = offset + nbytes
    block = bytearray(0 if isinstance(sock, socket.socket) else min(nbytes, _BLOCK))
    while offset < end:
        if isinstance(sock, socket.socket):
            sent = os.sendfile(sock.fileno(), fd, offset, end - offset)
        else:
            view = memoryview(block)[: min(len(block), end - offset)]
            sent = os.preadv(fd, [view], offset)
            sock.sendall(view[:sent])
        if not sent:  # the file was cut meanwhile: the reader must not wait for the rest
            raise ConnectionError("a file became shorter while it was sent")
        offset += sent


def _found(find: Find, name: str) -> AbstractContextManager[ChunkRef]:
    return find(*peers.parse_name(name))


def _pieces_of(wanted: list[tuple[str, int, int]], find: Find, held: ExitStack) -> list[Part]:
    """Return the answer to a request for pieces: the sizes of each chunk's pieces, and their bytes.

    The pieces of a chunk lie one behind the other; a chunk that cannot be read has no sizes.
    """
    sizes: list[list[int]] = []
    parts: list[Part] = []
    for name, lo, hi in wanted:
        row: list[int] = []
        with suppress(WeftError, ValueError):
            ref = held.enter_context(_found(find, name))
            for at, size in tiers.directory(ref, lo, hi):
                if size:
                    parts.append(_part(ref, at, size, held))
                row.append(size or peers.FREED)
        sizes.append(row)
    head = msgspec.msgpack.encode(sizes)
    return [memoryview(peers.HEAD.pack(len(head)) + head), *parts]
