"""Logs: their ends, and following them while they grow and are compacted."""

import io
import json
import os
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.unit.cli.fakes import Terminal
from weft.cli.logs import Follower, LogView, print_logs
from weft.runs.logs import tail_start
from weft.store.state import LogFile
from weft.worker.bounded_log import BOTH, STDERR, STDOUT, BoundedLog, TimesFile


@pytest.mark.parametrize(
    ("text", "lines", "tail"),
    [
        ("", 3, ""),
        ("a", 1, "a"),
        ("a\nb\nc\n", 2, "b\nc\n"),
        ("a\nb\nc", 2, "b\nc"),
        ("a\nb\n", 5, "a\nb\n"),
        ("a\n\n\n", 2, "\n\n"),
        ("a\nb\n", 0, ""),
        ("x" * 200_000 + "\n" + "y" * 200_000 + "\n", 1, "y" * 200_000 + "\n"),
    ],
)
def test_the_last_lines(tmp_path, text, lines, tail):
    path = tmp_path / "log"
    path.write_text(text)
    with path.open() as file:
        file.seek(tail_start(path, lines))
        assert file.read() == tail


def test_no_file_has_no_last_lines(tmp_path):
    assert tail_start(tmp_path / "none", 3) == 0


@given(st.text("ab\n", max_size=60), st.integers(1, 8))
def test_the_last_lines_are_those_of_splitlines(tmp_path_factory, text, lines):
    path = tmp_path_factory.getbasetemp() / "lines"
    path.write_text(text)
    wanted = "".join(text.splitlines(keepends=True)[-lines:])
    assert text[tail_start(path, lines) :] == wanted


# ----------------------------------------------------------------------------------------------------------- follower


@pytest.fixture
def path(tmp_path):
    return tmp_path / "log"


def numbered(lo: int, hi: int) -> bytes:
    return b"".join(b"line %06d\n" % number for number in range(lo, hi))


def test_a_file_that_grows(path):
    follower = Follower(path)
    assert follower.read() == b"", "it is not there yet"
    path.write_bytes(b"one")
    assert follower.read() == b"one"
    with path.open("ab") as file:
        file.write(b" two")
    assert follower.read() == b" two"
    assert follower.read() == b""


def test_a_compaction_behind_the_reader_loses_nothing(path):
    log = BoundedLog(os.fsencode(path), head=1_000, tail=8_192)
    follower = Follower(path)
    seen = b""
    for at in range(0, 10_000, 50):
        log.write(numbered(at, at + 50))
        seen += follower.read()
    assert log.dropped > 0, "it was compacted many times"
    assert seen == numbered(0, 10_000)
    log.close()
    assert follower.read() == b""


def test_a_compaction_ahead_of_the_reader_leaves_one_gap(path):
    log = BoundedLog(os.fsencode(path), head=1_000, tail=8_192)
    follower = Follower(path)
    log.write(numbered(0, 200))
    seen = follower.read()
    for at in range(200, 10_000, 50):
        log.write(numbered(at, at + 50))
    log.close()
    seen += follower.read()
    before, gap, after = seen.partition(b"\n[weft] output was dropped here\n")
    assert gap
    assert before == numbered(0, 200)
    assert numbered(0, 10_000).endswith(after)
    assert len(after) > 4_000


def test_a_compaction_while_what_was_read_is_still_there(path):
    log = BoundedLog(os.fsencode(path), head=1_000, tail=8_192)
    follower = Follower(path)
    for at in range(0, 1_500, 50):
        log.write(numbered(at, at + 50))
        if at == 1_200:
            seen_until = at + 50
            while follower.read():
                pass
    log.write(numbered(1_500, 1_600))
    assert log.dropped > 0
    assert follower.read() == numbered(seen_until, 1_600)


def test_a_file_that_was_emptied(path):
    path.write_bytes(b"old content\n")
    follower = Follower(path)
    follower.read()
    path.write_bytes(b"new\n")
    assert follower.read() == b"\n[weft] output was dropped here\nnew\n"


def test_a_link_is_not_followed(path, tmp_path):
    (tmp_path / "secret").write_text("secret")
    path.symlink_to(tmp_path / "secret")
    with pytest.raises(OSError, match="symbolic links"):
        Follower(path).read()


# ----------------------------------------------------------------------------------------------------------- printing


def logs_of(path, *texts: bytes) -> list[LogFile]:
    found = []
    for number, text in enumerate(texts):
        file = path.with_name(f"s{number}.0.log")
        file.write_bytes(text)
        found.append(LogFile(file, f"s{number}", None, 0))
    return found


def show(logs, out, view: LogView | None = None, **options) -> bool:
    options = {"follow": False, "pause": lambda _: None, "say": lambda _: None, **options}
    return print_logs(lambda: (logs, False), out, view or LogView(), **options)


def test_on_a_terminal_control_characters_are_taken_out(path):
    out = Terminal()
    assert show(logs_of(path, b"\x1b[31mred\x1b[0m\n10%\r20%\r30%\nw\xc3\xa4rm \xff\n\x1b]0;t\x07"), out)
    assert out.getvalue() == "red\n30%\nwärm \ufffd\n\n"


def test_elsewhere_bytes_stay_as_they_are(path):
    raw = io.BytesIO()
    out = io.TextIOWrapper(raw, write_through=True)
    data = b"\x1b[31mred\x1b[0m \xff\x00\r\nno end"
    show(logs_of(path, data), out)
    assert raw.getvalue() == data


def test_titles_stand_on_lines_of_their_own(path):
    raw = io.BytesIO()
    out = io.TextIOWrapper(raw, write_through=True)
    show(logs_of(path, b"1", b"2\n3", b"4"), out)
    assert raw.getvalue() == b"==> s0 <==\n1\n==> s1 <==\n2\n3\n==> s2 <==\n4"


def test_lines_as_documents(path):
    out = io.StringIO()
    assert show(logs_of(path, b"a\n\n\x1b\xff", b"b\n", b""), out, LogView(as_json=True))
    told = [json.loads(line) for line in out.getvalue().splitlines()]
    assert [(one["step"], one["line"]) for one in told] == [("s0", "a"), ("s0", ""), ("s0", "\x1b\ufffd"), ("s1", "b")]
    assert told[0] == {"step": "s0", "index": None, "attempt": 0, "time": None, "stream": None, "line": "a"}


def test_a_line_that_does_not_end_is_printed_all_the_same(path):
    out = io.StringIO()
    show(logs_of(path, b"x" * 3_000_000), out)
    assert out.getvalue().replace("\n", "") == "x" * 3_000_000


def test_several_logs_and_their_ends(path):
    out = io.StringIO()
    show(logs_of(path, b"1\n2\n3\n", b"", b"4"), out, LogView(tail=2))
    assert out.getvalue() == "==> s0 <==\n2\n3\n==> s2 <==\n4\n"


def test_nothing(path):
    assert not show([], io.StringIO())


def test_logs_of_replicas_have_names_before_their_lines(path):
    logs = [replace(log, step="worker", index=9 + n) for n, log in enumerate(logs_of(path, b"a\n\n\x1bb", b"c\n"))]
    raw = io.BytesIO()
    out = io.TextIOWrapper(raw, write_through=True)
    show(logs, out, prefixed=True)
    assert raw.getvalue() == b"worker-9  | a\nworker-9  | \nworker-9  | \x1bb\nworker-10 | c\n"
    terminal = Terminal()
    show(logs, terminal, prefixed=True, colours=True)
    assert terminal.getvalue().splitlines()[-1] == "\x1b[33mworker-10 | \x1b[0mc"


def test_a_further_start_of_a_replica_is_marked_where_its_lines_begin(path):
    first, second, other = logs_of(path, b"a\n", b"b\nc\n", b"d\n")
    first, other = replace(first, step="worker", index=0), replace(other, step="worker", index=1)
    second = replace(second, step="worker", index=0, attempt=1)
    looks = [([first, other], True), ([second, other], False)]
    out = io.StringIO()
    print_logs(
        lambda: looks.pop(0), out, LogView(), follow=True, pause=lambda _: None, say=lambda _: None, prefixed=True
    )
    lines = ["worker-0 | a", "worker-1 | d", "worker-0 | [weft] start 2 (@1)", "worker-0 | b", "worker-0 | c"]
    assert out.getvalue().splitlines() == lines


# --------------------------------------------------------------------------------------------------- times and streams

NOON = 1_700_000_000
"""A second; the tests run in UTC."""
Chunk = tuple[float, int, bytes]
"""Seconds after `NOON`, the stream, and the bytes that arrived."""


@pytest.fixture
def utc(monkeypatch):
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def timed(path, name: str, *chunks: Chunk) -> LogFile:
    """Return a log with times."""
    log = LogFile(path.with_name(f"{name}.0.log"), name, None, 0)
    for seconds, stream, data in chunks:
        at = log.path.stat().st_size if log.path.exists() else 0
        with log.times.open("ab") as times, log.path.open("ab") as file:
            times.write(TimesFile.record(at, round((NOON + seconds) * 1e6), stream))
            file.write(data)
    return log


TALK = ((0.25, STDOUT, b"hello\nhal"), (1.5, STDERR, b"oops\n"), (2.0, STDOUT, b"f\n"))


def printed(logs, view: LogView, out=None, **options) -> tuple[str, list[str]]:
    """Return what is printed of logs, and what is said beside it."""
    said: list[str] = []
    out = out or io.StringIO()
    show(logs, out, view, say=said.append, **options)
    return out.getvalue(), said


def test_times_stand_before_lines_and_a_mark_before_errors(path, utc):
    text, said = printed([timed(path, "s", *TALK)], LogView(timestamps=True))
    assert text.splitlines() == [
        "2023-11-14 22:13:20.250 hello",
        "2023-11-14 22:13:21.500 ! oops",
        "2023-11-14 22:13:20.250 half",
    ]
    assert said == []


def test_documents_have_times_in_utc_and_streams(path):
    log = timed(path, "s", *TALK)
    text, _ = printed([log], LogView(as_json=True))
    told = [json.loads(line) for line in text.splitlines()]
    assert [(one["stream"], one["line"]) for one in told] == [
        ("stdout", "hello"),
        ("stderr", "oops"),
        ("stdout", "half"),
    ]
    assert told[1]["time"] == "2023-11-14T22:13:21.500+00:00"
    (told,) = map(json.loads, printed([timed(path, "t", (1, BOTH, b"a\n"))], LogView(as_json=True))[0].splitlines())
    assert (told["stream"], told["time"]) == (None, "2023-11-14T22:13:21.000+00:00")


def test_a_terminal_marks_errors_and_a_file_has_the_bytes_as_they_came(path):
    log = timed(path, "s", *TALK)
    assert printed([log], LogView(), Terminal())[0] == "hello\n! oops\nhalf\n"
    assert "\x1b[31m! \x1b[0moops\n" in printed([log], LogView(), Terminal(), colours=True)[0]
    raw = io.BytesIO()
    out = io.TextIOWrapper(raw, write_through=True)
    show([log], out)
    assert raw.getvalue() == log.path.read_bytes()


@pytest.mark.parametrize(
    ("stream", "tail", "wanted"),
    [
        ("stderr", None, "oops\n"),
        ("stdout", None, "hello\nhalf\n"),
        ("stdout", 1, "half\n"),
        ("stderr", 1, "oops\n"),
        ("stderr", 0, ""),
    ],
)
def test_one_stream(path, stream, tail, wanted):
    assert printed([timed(path, "s", *TALK)], LogView(tail, stream=stream)) == (wanted, [])


def test_what_a_log_cannot_tell_is_said_once(path, utc):
    logs = [*logs_of(path, b"old\nolder\n", b"oldest\n"), timed(path, "t", (1, BOTH, b"new\n"))]
    text, said = printed(logs, LogView(timestamps=True))
    assert f"{'-':23} old\n{'-':23} older\n" in text
    assert "2023-11-14 22:13:21.000 new\n" in text
    assert said == ["the log of s0 has no times, and maybe others: older runs kept none"]
    text, said = printed([*logs, timed(path, "apart", *TALK)], LogView(stream="stderr"))
    assert text == "==> apart <==\noops\n"
    assert len(said) == 1
    assert "the log of s0 does not tell output from errors" in said[0]
    assert "x-weft: {stderr: apart}" in said[0]


def test_lines_of_replicas_are_in_the_order_of_their_times(path, utc):
    first = timed(path, "a", (1, BOTH, b"one\n"), (3, BOTH, b"three\n"))
    second = timed(path, "b", (2, BOTH, b"two\n"), (4, BOTH, b"four\n"))
    text, _ = printed([first, second], LogView(timestamps=True), prefixed=True)
    assert [line.split()[-1] for line in text.splitlines()] == ["one", "two", "three", "four"]
    assert text.startswith("a | 2023-11-14 22:13:21.000 one\n")


def test_times_of_a_log_that_grows_and_is_compacted(path):
    log = LogFile(path.with_name("s.0.log"), "s", None, 0)
    writer = BoundedLog(os.fsencode(log.path), head=1_000, tail=8_192, timed=True)
    out = io.StringIO()
    numbers = iter(range(0, 10_000, 50))

    def look() -> tuple[list[LogFile], bool]:
        at = next(numbers, None)
        if at is not None:
            writer.write(numbered(at, at + 50), STDERR if at % 100 else STDOUT)
        return [log], at is not None

    print_logs(look, out, LogView(as_json=True), follow=True, pause=lambda _: None, say=lambda _: None)
    writer.close()
    told = [json.loads(line) for line in out.getvalue().splitlines()]
    assert writer.dropped > 0, "it was compacted many times"
    assert [one["line"] for one in told] == [f"line {number:06}" for number in range(10_000)]
    assert [one["stream"] for one in told] == ["stderr" if n // 50 % 2 else "stdout" for n in range(10_000)]
    assert None not in {one["time"] for one in told}
