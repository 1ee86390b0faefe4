"""How many events a second the journal takes, on a real disk, and how many that disk would."""

from __future__ import annotations

import os
import tempfile
import threading
import time
from pathlib import Path

from benchmarks.harness import expect
from weft.durability.journal import GROUP_EVENTS, JOURNAL, FileJournal, Header, read_journal
from weft.engine.events import Done, Event, Offered
from weft.engine.tuning import Tuning

EVENTS = 200_000
TICK = 2
"""Events of one tick, as of a session whose workers report one by one."""


def journal() -> dict[str, float]:
    """Append ticks as a session does, each of a report and an offer, until all are synced; then sync as many bytes."""
    ticks: list[tuple[Event, ...]] = [
        (Done(0.5 + number, number, number + 1, 0.002, 4096, rows=3), Offered(0.5 + number, (number % 4,)))
        for number in range(EVENTS // TICK)
    ]
    with tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".journal-") as name:
        path = Path(name) / JOURNAL
        begun = FileJournal.create(path, Header(graph="none", tuning=Tuning()))
        synced = threading.Event()
        begin = time.perf_counter()
        for tick in ticks:
            when_durable = begun.append(tick, ())
        assert when_durable is not None
        when_durable(synced.set)
        synced.wait()
        seconds = time.perf_counter() - begin
        begun.close()
        begun.join()
        if begun.error is not None:
            raise begun.error
        begin = time.perf_counter()
        records = len(read_journal(path).records)
        reading = time.perf_counter() - begin
        expect(records, len(ticks))
        floor = _floor(Path(name) / "floor", path.stat().st_size * GROUP_EVENTS // EVENTS)
    return {"events": EVENTS / seconds, "floor": EVENTS / floor, "read": EVENTS / reading}


def _floor(path: Path, group: int) -> float:
    """Return the seconds that it takes to write and sync the same bytes, 1,000 events at a time."""
    data = b"\x55" * group
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        begin = time.perf_counter()
        for _ in range(EVENTS // GROUP_EVENTS):
            os.write(fd, data)
            os.fdatasync(fd)
        return time.perf_counter() - begin
    finally:
        os.close(fd)
