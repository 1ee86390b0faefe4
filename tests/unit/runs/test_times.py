"""The times and streams of the lines of a log: what the guardian writes beside it, and how they are read."""

import os
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.runs.times import LogText, LogTimes, TimedLines
from weft.store.state import LogFile
from weft.worker.bounded_log import BOTH, STDERR, STDOUT, BoundedLog, MaskedLog, TimesFile

SECOND_NS = 1_000_000_000
Chunk = tuple[float, int, bytes]
"""When bytes arrived, from which stream, and the bytes."""


@pytest.fixture
def log(tmp_path):
    return LogFile(tmp_path / "s.0.log", "s", None, 0)


@pytest.fixture
def clock(monkeypatch):
    """The clock of the writer: a list with its time in seconds."""
    now = [0.0]
    monkeypatch.setattr(time, "time_ns", lambda: int(now[0] * SECOND_NS))
    return now


def write(clock: list[float], to: BoundedLog, chunks: Sequence[Chunk]) -> None:
    for clock[0], stream, data in chunks:
        to.write(data, stream)


def bounded(log: LogFile, head: int = 1 << 20, tail: int = 1 << 20) -> BoundedLog:
    return BoundedLog(os.fsencode(log.path), head, tail, timed=True)


def read(log: LogFile, block: int = 1 << 20, longest: int = 1 << 16) -> list[LogText]:
    """Return the lines of a log, read in blocks."""
    lines = TimedLines(LogTimes(log.times), longest)
    data = log.path.read_bytes()
    found = []
    for at in range(0, len(data), block):
        lines.times.refresh()
        found += lines.add(at, data[at : at + block])
    return found + lines.rest()


def test_each_line_has_the_time_of_its_first_byte(log, clock):
    own = bounded(log)
    write(clock, own, [(1.0, BOTH, b"one\ntwo\nthr"), (2.5, BOTH, b"ee"), (3.0, BOTH, b"\nfour\n"), (4.0, BOTH, b"5")])
    own.close()
    wanted = [(b"one\n", 1.0), (b"two\n", 1.0), (b"three\n", 1.0), (b"four\n", 3.0), (b"5", 4.0)]
    assert read(log) == [LogText(text, time) for text, time in wanted]
    assert read(log, block=1) == read(log), "lines over the borders of blocks are the same"
    assert log.times.stat().st_size == 3 * TimesFile.RECORD_BYTES, "a read that begins no line needs no record"


def test_lines_of_two_streams_are_put_together_for_themselves(log, clock):
    own = bounded(log)
    chunks = [(1.0, STDOUT, b"10%"), (2.0, STDERR, b"oops\nmo"), (3.0, STDOUT, b" 20%\n"), (4.0, STDERR, b"re\n")]
    write(clock, own, chunks)
    own.close()
    assert log.path.read_bytes() == b"10%oops\nmo 20%\nre\n", "the log is as it arrived"
    assert read(log) == [
        LogText(b"oops\n", 2.0, "stderr"),
        LogText(b"10% 20%\n", 1.0, "stdout"),
        LogText(b"more\n", 2.0, "stderr"),
    ]


def test_reads_within_a_millisecond_share_a_record(log, clock):
    own = bounded(log)
    write(clock, own, [(1.0, BOTH, b"a\n"), (1.0005, BOTH, b"b\n"), (1.002, BOTH, b"c\n"), (0.5, BOTH, b"d\n")])
    own.close()
    assert [line.time for line in read(log)] == [1.0, 1.0, 1.002, 0.5], "a clock that was set back begins a record"


def test_a_torn_last_record_is_not_read_and_is_written_over(log, clock):
    own = bounded(log)
    write(clock, own, [(1.0, BOTH, b"a\n"), (2.0, BOTH, b"b\n")])
    own.close()
    os.truncate(log.times, log.times.stat().st_size - 5)
    assert [line.time for line in read(log)] == [1.0, 1.0]
    own = bounded(log)
    write(clock, own, [(3.0, BOTH, b"c\n")])
    own.close()
    assert [line.time for line in read(log)] == [1.0, 1.0, 3.0]


def test_a_log_without_times_or_with_a_link_in_their_place(log, tmp_path):
    log.path.write_bytes(b"a\nb")
    assert read(log) == [LogText(b"a\n"), LogText(b"b")]
    (tmp_path / "other").write_bytes(TimesFile.record(0, 5, STDERR))
    log.times.symlink_to(tmp_path / "other")
    assert read(log) == [LogText(b"a\n"), LogText(b"b")]


def test_times_of_a_removed_log_are_not_those_of_the_next_one(log, clock):
    for begin in (1.0, 2.0):
        own = bounded(log)
        write(clock, own, [(begin, BOTH, b"a\n"), (begin + 1, BOTH, b"b\n")])
        own.close()
        assert [line.time for line in read(log)] == [begin, begin + 1]
        log.path.unlink()


def test_a_log_without_output_has_no_file_of_times(log):
    own = bounded(log)
    own.write(b"")
    own.close()
    assert not log.times.exists()


def test_times_that_cannot_be_written_cost_no_output(log, clock):
    log.times.mkdir()
    own = bounded(log)
    write(clock, own, [(1.0, BOTH, b"a\n")])
    own.close()
    assert log.path.read_bytes() == b"a\n"
    assert (own.errno, own.dropped) == (0, 0)


@pytest.mark.parametrize("again", [False, True])
def test_a_compacted_log_keeps_the_times_of_what_is_left(log, clock, again):
    own = bounded(log, head=100, tail=4096)
    times = LogTimes(log.times)
    for number in range(3000 if again else 1000):
        clock[0] = float(number + 1)
        own.write(b"line %06d\n" % number, STDERR if number % 3 == 0 else STDOUT)
    own.close()
    assert own.dropped > 0
    times.refresh(again=True)
    lines = [line for line in read(log) if line.text.startswith(b"line ") and len(line.text) == 12]
    assert len(lines) > 300
    for line in lines:
        number = int(line.text[5:])
        assert line == LogText(line.text, number + 1.0, "stderr" if number % 3 == 0 else "stdout")
    assert any(b"bytes of output were dropped here" in line.text and line.stream == "" for line in read(log))
    assert log.times.stat().st_size < 5000 * TimesFile.RECORD_BYTES / 5, "records of dropped bytes go with them"


def test_a_secret_in_pieces_of_one_stream_stays_hidden_between_those_of_another(log, clock):
    own = MaskedLog(os.fsencode(log.path), 1 << 20, 1 << 20, [(b"password", False, False)], timed=True)
    chunks = [(1.0, STDOUT, b"is pass"), (2.0, STDERR, b"pass me\n"), (3.0, STDOUT, b"word\n"), (4.0, STDERR, b"pas")]
    write(clock, own, chunks)
    own.close()
    assert b"password" not in log.path.read_bytes()
    assert sorted(line.text for line in read(log)) == [b"is ***\n", b"pas", b"pass me\n"]


@given(
    st.lists(st.tuples(st.integers(0, 2), st.text("ab\n", min_size=1, max_size=8)), max_size=12),
    st.integers(1, 9),
)
def test_every_byte_is_in_a_line_of_its_stream(tmp_path_factory, chunks, block):
    log = LogFile(tmp_path_factory.mktemp("log") / "s.0.log", "s", None, 0)
    own = bounded(log)
    for stream, text in chunks:
        own.write(text.encode(), stream)
    own.close()
    found = read(log, block)
    for number, stream in enumerate(("", "stdout", "stderr")):
        wanted = "".join(text for at, text in chunks if at == number)
        lines = [line.text.decode() for line in found if line.stream == stream]
        assert lines == wanted.splitlines(keepends=True)
    assert all(line.time is not None for line in found)


def test_a_file_of_times_that_became_shorter_is_read_again(log, tmp_path: Path):
    times = LogTimes(log.times)
    log.times.write_bytes(TimesFile.record(0, 1_000_000, BOTH) + TimesFile.record(5, 2_000_000, BOTH))
    times.refresh()
    assert list(times.pieces(7, b"a")) == [LogText(b"a", 2.0)]
    log.times.write_bytes(TimesFile.record(3, 4_000_000, STDERR))
    times.refresh()
    assert list(times.pieces(2, b"abc")) == [LogText(b"a"), LogText(b"bc", 4.0, "stderr")]
    assert times.apart
