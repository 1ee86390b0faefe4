"""What TLS costs for a large value: one process reads a value of 256 MiB from another, plain and encrypted.

`python -m benchmarks.ray.tls` prints the best rate of five reads of each kind, and the processor time of both ends.
"""

from __future__ import annotations

import multiprocessing
import socket
import tempfile
import time
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.fixtures.certificates import Authority
from weft.model.chunks import ChunkRef, Tier
from weft.store import peers
from weft.store.folders import shm_root
from weft.store.handshake import Credentials, accept
from weft.store.peer_server import serve_chunks

if TYPE_CHECKING:
    from collections.abc import Iterator
    from multiprocessing.connection import Connection

NBYTES: Final = 256 << 20
READS: Final = 5


def serve(ready: Connection, credentials: Credentials, path: str) -> None:
    """Serve the value in a file to one reader."""

    @contextmanager
    def find(job: str, vertex: str, index: int) -> Iterator[ChunkRef]:
        yield ChunkRef(Tier.SHM, path, 0, NBYTES, 0, b"", ())

    with socket.create_server(("127.0.0.1", 0)) as listener:
        ready.send(listener.getsockname()[1])
        sock, _ = listener.accept()
        connection = accept(sock, credentials, (peers.PURPOSE,))[1]
        with closing(connection):
            begun = time.process_time()
            serve_chunks(connection, find)
        ready.send(time.process_time() - begun)


def measured(credentials: Credentials, path: str) -> tuple[float, float, float]:
    """Return the best rate of some reads in GB/s, and the seconds of processor time of sender and reader for 1 GB."""
    near, far = multiprocessing.Pipe()
    context: Any = multiprocessing.get_context("spawn")
    server = context.Process(target=serve, args=(far, credentials, path))
    server.start()
    location = peers.location_of(("127.0.0.1", near.recv()), "job", "value", 0)
    best = 0.0
    with closing(peers.PeerReader(credentials)) as reader:
        cpu = time.process_time()
        for _ in range(READS):
            begun = time.perf_counter()
            assert len(reader.read(location, 0, NBYTES)) == NBYTES
            best = max(best, NBYTES / 1e9 / (time.perf_counter() - begun))
        spent = time.process_time() - cpu
    sent = near.recv()
    server.join()
    return best, sent / (READS * NBYTES / 1e9), spent / (READS * NBYTES / 1e9)


def main() -> None:
    """Print what plain and encrypted reads cost."""
    with tempfile.TemporaryDirectory() as folder, tempfile.NamedTemporaryFile(dir=shm_root()) as value:
        value.write(bytes(NBYTES))
        value.flush()
        files = Authority(Path(folder)).issue("machine")
        for name, tls in (("plain", None), ("TLS", files)):
            rate, sender, reader = measured(Credentials(b"secret", tls), value.name)
            print(f"{name}: {rate:.2f} GB/s; for 1 GB {sender:.2f} s of the sender and {reader:.2f} s of the reader")


if __name__ == "__main__":
    main()
