"""Words for states, times and text."""

import io
from datetime import UTC
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.cli.tables import (
    LOOKS,
    clean,
    console,
    iso,
    look,
    moment,
    one_line,
    print_table,
    short_path,
    short_paths,
)
from weft.model.wording import duration
from weft.runs.records import RUN_STATES, STEP_STATES


@pytest.mark.parametrize(
    ("text", "harmless"),
    [
        ("plain", "plain"),
        ("tab\there\nnext", "tab\there\nnext"),
        ("\x1b[1;31mred\x1b[0m", "red"),
        ("\x1b]8;;http://x\x07link\x1b]8;;\x07", "link"),
        ("\x1b]0;title\x1b\\x", "x"),
        ("\x1bPdevice\x1b\\x", "x"),
        ("\x1bcreset", "reset"),
        ("\x9b31m", "31m"),
        ("10%\r100%", "100%"),
        ("dos\r\nline\r\n", "dos\nline\n"),
        ("a\u202eb\u200bc", "abc"),
        ("nul\0", "nul"),
        ("wärm 温", "wärm 温"),
    ],
)
def test_clean(text, harmless):
    assert clean(text) == harmless


@given(st.text(max_size=100))
def test_clean_leaves_nothing_that_a_terminal_obeys(text):
    found = clean(text)
    assert all(char in "\n\t" or char.isprintable() for char in found)
    assert clean(found) == found


def test_long_paths_in_a_text():
    long = "/srv/somebody/projects/trial/.pipeline/run-000001/trial/a-0-e52512/out"
    assert short_paths(f"its output out ({long}) is gone: {long}, a{long}") == (
        f"its output out (…/a-0-e52512/out) is gone: …/a-0-e52512/out, a{long}"
    )
    assert short_paths("see /data/out") == "see /data/out"


def test_one_line():
    assert one_line("  a\nb") == "a"
    assert one_line("x" * 300, 10) == "x" * 9 + "…"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, ""),
        (-1.0, "0.0 s"),
        (0.04, "0.0 s"),
        (9.94, "9.9 s"),
        (12.4, "12 s"),
        (59.6, "1 min 00 s"),
        (185, "3 min 05 s"),
        (7440, "2 h 04 min"),
    ],
)
def test_durations(seconds, text):
    assert duration(seconds) == text


def test_moments():
    assert moment(0.0, UTC) == "1970-01-01 00:00:00"
    assert moment(None) == ""
    assert iso(1.5) == "1970-01-01T00:00:01.500+00:00"
    assert iso(None) is None


def test_paths_are_short_and_can_be_pasted():
    assert short_path("/a/b/c d", Path("/a")) == "'b/c d'"
    assert short_path("/x/$(y)", Path("/a")) == "'/x/$(y)'"
    assert short_path("/a", Path("/a")) == "."


def test_every_state_has_a_look_of_its_own():
    assert {*RUN_STATES, *STEP_STATES} == set(LOOKS)
    assert look("other").symbol == "?"
    assert len({look.symbol for look in LOOKS.values()}) == len(LOOKS)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("step", "lines"),
    [
        ("s" * 48, ["s" * 48 + "  failed  step ended with exit …"]),
        (
            "s" * 40,
            ["s" * 40 + "  failed  step ended with exit code 1", "and said why at some length,", "so that it is long"],
        ),
        ("s", ["s     failed  step ended with exit code 1 and said why at some length, so that", "it is long"]),
    ],
)
def test_a_message_is_cut_where_there_is_no_room_for_words(step, lines):
    out = Terminal()
    said = "step ended with exit code 1 and said why at some length, so that it is long"
    print_table(console(out, {"COLUMNS": "80"}, "never"), ("STEP", "STATE", "MESSAGE"), [(step, "failed", said)])
    assert [line.strip() for line in out.getvalue().splitlines()[1:]] == lines
