"""How a run is shown while it goes on."""

import io
from datetime import UTC
from pathlib import Path
from threading import Thread

import pytest

from tests.unit.cli.fakes import Terminal
from weft.cli.progress import LineDisplay, LiveDisplay, ReplicaTable, SilentDisplay, StepTable, make_progress
from weft.cli.tables import PlainPage, console
from weft.engine.ports import ManualClock
from weft.runs.records import Record
from weft.store.state import write_status

T = 1_700_000_000.0  # 22:13:20 UTC


def record(at: float, step: str = "", state: str = "running", **more) -> Record:
    return Record(time=T + at, step=step, state=state, **more)


STORY = [
    record(0),
    record(0, "train"),
    record(1, "train", message="failed, and is tried again: no luck\nmore"),
    record(63.5, "train", "failed", message="exit code 3", ended=True),
    record(64, "re\x1b[2Jport\n", "cancelled", ended=True),
    record(64, "", "failed", message="train failed", ended=True),
]


def test_lines():
    out = io.StringIO()
    with LineDisplay(out, UTC) as lines:
        for each in STORY:
            lines.add(each)
    assert out.getvalue().splitlines() == [
        "22:13:20 run started",
        "22:13:20 train started",
        "22:13:21 train running: failed, and is tried again: no luck",
        "22:14:23 train failed in 1 min 04 s: exit code 3",
        "22:14:24 report  cancelled",
        "22:14:24 run failed in 1 min 04 s: train failed",
    ]


def test_the_board_follows_each_step():
    board = StepTable(["train", "report"])
    for each in STORY[:2]:
        board.add(each)
    assert board.total(T + 5) == "0 of 2 done, 1 running, 5.0 s"
    assert [(row.name, row.state, row.seconds(T + 5)) for row in board.rows.values()] == [
        ("train", "running", 5.0),
        ("report", "pending", None),
    ]
    board.add(STORY[3])
    assert board.rows["train"].seconds(T + 999) == 63.5
    assert board.total(T + 64) == "1 of 2 done, 1 failed, 1 min 04 s"


def test_a_resumed_run_counts_no_time_without_an_owner():
    board = StepTable(["train", "last"])
    for each in (
        record(0),
        record(0, "train"),
        record(5, "train", "failed", ended=True),
        record(5, "last"),
        record(6, "last", "succeeded", ended=True),
        record(6, "", "failed", ended=True),
        record(100, "", "pending"),
        record(100, "train", "pending", message="resumed"),
    ):
        board.add(each)
    assert board.rows["train"].seconds(T + 100) is None
    for each in (record(101), record(101, "train"), record(103, "last")):
        board.add(each)
    assert (board.rows["train"].seconds(T + 104), board.rows["last"].seconds(T + 104)) == (3.0, 1.0)
    assert board.total(T + 104) == "0 of 2 done, 2 running, 10 s"


def test_what_has_no_room_is_the_dullest():
    board = StepTable([f"s{number}" for number in range(10)])
    board.add(record(1, "s8"))
    board.add(record(2, "s3", "failed", ended=True))
    board.add(record(3, "s1", "succeeded", ended=True))
    board.add(record(4, "s9", "succeeded", ended=True))
    rows, hidden = board.shown(3)
    assert ([row.name for row in rows], hidden) == (["s3", "s8", "s9"], 7)
    assert board.shown(10)[1] == 0


def draw(live: LiveDisplay) -> str:
    out = Terminal()
    console(out, {"TERM": "dumb"}, "never").print(live.draw())
    return out.getvalue()


@pytest.fixture
def live():
    screen = console(Terminal(), {"TERM": "xterm", "COLUMNS": "60", "LINES": "8"}, "auto")
    assert not isinstance(screen, PlainPage)
    return LiveDisplay(StepTable(["train", "report"]), screen, lambda: T + 5)


def test_a_terminal_shows_one_line_for_each_step(live):
    live.add(STORY[0])
    live.add(STORY[1])
    assert [line.rstrip() for line in draw(live).splitlines()] == [
        "▶ train          5.0 s",
        "· report",
        "0 of 2 done, 1 running, 5.0 s",
    ]


def test_names_and_messages_of_users_are_harmless(live):
    live.add(record(0, "[red]x\x1b[2J", "failed", message="[bold]m\x07\x1b]0;t\x07", ended=True))
    assert "✘ [red]x" in draw(live)
    assert "[bold]m" in draw(live)
    assert "\x1b[2J" not in draw(live)


def test_a_small_screen_says_how_many_are_left_out(live):
    for number in range(20):
        live.add(record(0, f"s{number}"))
    assert "and 18 more" in draw(live)


def test_the_display_is_gone_at_the_end(live):
    with live:
        live.add(STORY[0])
    said = live._console.file.getvalue()
    assert said.endswith("\x1b[2K") or "\x1b[?25h" in said, "the cursor is shown again"


def test_records_come_from_any_thread(live):
    def tell(who):
        for number in range(200):
            live.add(record(number, f"{who}-{number % 7}"))

    threads = [Thread(target=tell, args=(who,)) for who in "abc"]
    for thread in threads:
        thread.start()
    for _ in range(20):
        draw(live)
    for thread in threads:
        thread.join()
    assert "0 of 23 done" in draw(live)


@pytest.mark.parametrize(
    ("stream", "quiet", "kind"),
    [(io.StringIO(), False, LineDisplay), (Terminal(), False, LiveDisplay), (Terminal(), True, SilentDisplay)],
)
def test_what_suits_the_stream(stream, quiet, kind):
    made = make_progress([], stream, lambda: console(stream, {}, "auto"), ManualClock().wall, quiet=quiet)
    assert type(made) is kind


def replica(at: float, index: int, state: str = "running", **more) -> Record:
    return record(at, "worker", state, index=index, ended=state != "running", **more)


JOB = [
    record(0),
    record(0, state="", message="TFJob mnist running"),
    *(replica(1, index) for index in range(3)),
    replica(2, 0, "succeeded"),
    replica(2, 1, "failed", message="ended with exit code 3.\nIts last lines:"),
    replica(3, 1, attempt=1),
]


def test_replicas_have_lines_only_for_news():
    message = "ended with exit code 2.\nIts last lines:\n  Traceback:\n  KeyError: 3\nThe whole log: x.log"
    again = replica(4, 1, "failed", message=message, attempt=1)
    out = io.StringIO()
    with LineDisplay(out, UTC) as lines:
        lines.expect(["worker"], jobs=Path("none"))
        for each in [*JOB, again, record(5, state="succeeded", ended=True)]:
            lines.add(each)
    assert out.getvalue().splitlines() == [
        "22:13:20 TFJob mnist running",
        "22:13:22 worker-1 failed: ended with exit code 3.",
        "22:13:23 worker-1 starts again",
        "22:13:24 worker-1 failed: ended with exit code 2: KeyError: 3",
        "22:13:25 run succeeded in 5.0 s",
    ]


def test_many_failures_of_replicas_have_few_lines():
    out = io.StringIO()
    lines = LineDisplay(out, UTC)
    lines.expect(["worker"], jobs=Path("none"))
    for index in range(100):
        lines.add(replica(1, index))
        lines.add(replica(2, index, "failed", message="no"))
    told = out.getvalue().splitlines()
    assert len(told) == 21
    assert told[-1] == "22:13:22 worker: more replicas fail or restart; see weft show"


def test_the_board_shows_the_last_reports_of_replicas(live, tmp_path):
    live.expect(["worker"], jobs=tmp_path)
    for each in JOB[:3]:
        live.add(each)
    before = len(draw(live).splitlines())
    for loss in (0.5, "nan"):
        report = {"step": 3, "metrics": {"loss": loss}}
        write_status(tmp_path, [{"reports": {f"worker-{index}": report for index in range(9)}}])
        lines = draw(live).splitlines()
        assert lines[1].rstrip() == f"    worker-0: step 3, loss {loss}"
    assert before < len(lines) <= 8


def test_the_board_counts_replicas():
    board = ReplicaTable(["worker"])
    for each in JOB:
        board.add(each)
    assert board.total(T + 5) == "TFJob mnist running, 5.0 s"
    (row,) = board.rows.values()
    assert (row.state, row.message) == ("running", "2 running, 1 succeeded, 1 restart")
