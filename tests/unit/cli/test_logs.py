"""Logs: their ends, and following them while they grow and are compacted."""

import io
import json
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.unit.cli.fakes import Terminal
from weft.cli.logs import Follower, print_logs
from weft.runs.logs import tail_start
from weft.store.state import LogFile
from weft.worker.guardian import BoundedLog


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


def show(logs, out, **options) -> bool:
    options = {"follow": False, "tail": None, "pause": lambda _: None, **options}
    return print_logs(lambda: (logs, False), out, **options)


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
    assert show(logs_of(path, b"a\n\n\x1b\xff", b"b\n", b""), out, as_json=True)
    told = [json.loads(line) for line in out.getvalue().splitlines()]
    assert [(one["step"], one["line"]) for one in told] == [("s0", "a"), ("s0", ""), ("s0", "\x1b\ufffd"), ("s1", "b")]
    assert told[0] == {"step": "s0", "index": None, "attempt": 0, "line": "a"}


def test_a_line_that_does_not_end_is_printed_all_the_same(path):
    out = io.StringIO()
    show(logs_of(path, b"x" * 3_000_000), out)
    assert out.getvalue().replace("\n", "") == "x" * 3_000_000


def test_several_logs_and_their_ends(path):
    out = io.StringIO()
    show(logs_of(path, b"1\n2\n3\n", b"", b"4"), out, tail=2)
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
