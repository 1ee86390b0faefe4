"""The messages between a session and its nodes; each is a tuple that begins with its kind."""

from __future__ import annotations

from typing import Any, NamedTuple

OPEN, LAUNCH, SHRINK, STOP, FREE, FREE_PARTS, DELETE, RESTART, CLOSE_JOB, ANSWER, STREAM_BLOCK, STREAM_ROOM = range(12)
FAULT, COPY = 12, 13
"""Messages of the session: a job begins; run a lease; revoke its tail; stop it; drop outputs, partitions, or
locations; forget the streams of edges; a job has ended; the answer to an `ASK`; the next block of a stream; room in
one; fail a lease; copy outputs of a node that leaves.
"""
READY, EVENT, ASK, WORKER_LOST, WORKER_JOINED, STREAM, STREAM_END, TAKE, ROOM, COPIED = range(20, 30)
"""Messages of a node: its workers; an event of a lease, with the outputs that it made; a request of a task to its host;
a worker is gone; another came; a block of a stream; its end; wishes for the next block of one, and for room in one;
references to copies.
"""


class NodeLaunch(NamedTuple):
    """A lease for a node. `worker` is the node's own number; `specs` are numbers of task specs, the root's last.

    `new` is the pickle of those that the node lacks, by number. `cells` is the pickle of the inputs that it lacks:
    (vertex, its length, its partitions, indexes, cells). `serializers` is the pickle of those of the session, if they
    have changed; `modules` is the program if it has loaded modules of the user again (`weft.worker.own_modules`).
    """

    kind: int
    job: str
    worker: int
    lease: int
    lo: int
    hi: int
    cone: Any
    attempt: int
    resources: Any
    nbytes: int
    specs: tuple[int, ...]
    new: bytes
    cells: bytes
    paths: list[str] | None
    serializers: bytes = b""
    modules: str = ""
