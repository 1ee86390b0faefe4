"""The journal of a simulated job: real records in a file that its owner's death leaves as a disk would."""

import random
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from weft.durability.encoding import encode
from weft.durability.journal import _MAGIC, Header, Recorded, _frame, graph_digest, read_journal
from weft.engine.commands import Command
from weft.engine.events import Event
from weft.engine.ports import WhenDurable
from weft.engine.recovery import Epoch, digest
from weft.engine.replay import Tape, Tick
from weft.engine.tuning import Tuning
from weft.graph.logical import LogicalGraph
from weft.model.records import as_dict

if TYPE_CHECKING:
    from weft.engine.master import Master
    from weft.model.errors import WeftError

SYNC_S = 0.01
"""How long records wait for a sync, in virtual seconds."""


class Bytes:
    """A file in memory, as `read_journal` reads one."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def read_bytes(self) -> bytes:
        """See `Path.read_bytes`."""
        return self.data


class Disk:
    """See `weft.engine.ports.Journal`. `later(seconds, action)` is a clock that dies with the owner.

    `data` is what is on disk for good, `digests` what the master was like after each record.
    """

    def __init__(self, data: bytes, tape: Tape, later: Callable[[float, Callable[[], None]], None]) -> None:
        self.data = data
        self.error: WeftError | None = None
        self.tape = tape
        self.digests: list[str] = []
        self.master: Master | None = None
        self.full = False
        self._later = later
        self._pending = b""
        self._waiting: list[Callable[[], None]] = []
        self._planned = False

    @classmethod
    def create(cls, graph: LogicalGraph, tuning: Tuning, later: Callable[[float, Callable[[], None]], None]) -> "Disk":
        """Begin the journal of a graph."""
        header = Header(graph=graph_digest(graph), tuning=tuning)
        return cls(_MAGIC + _frame(msgspec.msgpack.encode(as_dict(header))), Tape(), later)

    def append(self, events: Sequence[Event], commands: Sequence[Command]) -> WhenDurable | None:
        """See `Journal.append`."""
        assert self.master is not None
        record = encode(Tick(tuple(events), self.tape.take(), len(commands)))
        if not self.full:
            self._pending += _frame(record)
            self.digests.append(digest(self.master.core))
        self._plan()

        def when(then: Callable[[], None]) -> None:
            self._waiting.append(then)
            self._plan()

        return when

    def _plan(self) -> None:
        if not self._planned:
            self._planned = True
            self._later(SYNC_S, self._sync)

    def _sync(self) -> None:
        self._planned = False
        self.data += self._pending
        self._pending = b""
        due, self._waiting = self._waiting, []
        for then in due:
            then()

    def close(self) -> None:
        """See `Journal.close`."""

    def torn(self, rng: random.Random) -> Recorded:
        """Return what is read after the owner died: what was being written is there in part, or in zeros."""
        left = self._pending[: rng.randint(0, len(self._pending))]
        data = self.data + left + rng.choice([b"", b"", bytes(rng.randint(1, 40)), rng.randbytes(20)])
        file: Any = Bytes(data)
        recorded = read_journal(file)
        assert recorded.size >= len(self.data), "what was synced is not read"
        self.data = data[: recorded.size]
        return recorded

    def go_on(self, recorded: Recorded, tape: Tape) -> "Disk":
        """Return the journal of the next incarnation."""
        epoch = _frame(encode(Epoch(recorded.incarnation + 1)))
        again = Disk(self.data + epoch, tape, self._later)
        ticks = sum(isinstance(record, Tick) for record in recorded.records)
        again.digests = self.digests[:ticks]
        return again
