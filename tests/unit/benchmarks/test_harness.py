"""The harness of the benchmarks, with contestants that are made up. Nothing here takes the time of anything."""

import io
import json
import subprocess
import sys
from datetime import date
from functools import partial
from typing import Any

import pytest
from rich.console import Console

from benchmarks import __main__ as command
from benchmarks import contestants, report, worker
from benchmarks.calibration import REFERENCE, WORK, calibrate
from benchmarks.contestants import Contestants
from benchmarks.harness import Row, Side, Spec, expect, measure, timed, wait_until_quiet
from benchmarks.kept import KeptRows
from weft.model.errors import RunFailedError, UsageError

pytestmark = pytest.mark.slow

OURS = Side("weft", "ours", "case")
PEER = Side("peer", "theirs", "case", peer=True)
FIELDS = ["name", "value", "unit", "peer", "peer_value", "ratio", "target", "ok", "failed", "scaled", "spread"]
STEADY = {"python": 1.0, "memory": 1.0, "process": 1.0, "fsync": 1.0}


class FakeContestants:
    """Answers with prepared figures in turn, and remembers who was asked."""

    def __init__(self, **figures):
        self.asked = []
        self._figures = {label: iter(values) for label, values in figures.items()}

    def ask(self, side):
        self.asked.append(side.label)
        return {"seconds": next(self._figures[side.label]), "gb": 0.25}


def spec(name="row_10", **fields):
    values: dict[str, Any] = {
        "unit": "us/task",
        "ours": OURS,
        "target": 0.5,
        "about": "made up",
        "peer": PEER,
        "scale": 1e6 / 10,
    }
    return Spec(name, **(values | fields))


def rows_of(specs, fake, rounds=3):
    return list(measure(specs, rounds, fake.ask, lambda: STEADY))


def test_sides_take_turns_after_one_run_each_that_does_not_count():
    fake = FakeContestants(weft=[99, 1, 2, 3], peer=[99, 4, 5, 6])
    rows_of([spec()], fake)
    assert fake.asked == ["weft", "peer"] * 4


def test_a_row_is_made_of_medians():
    fake = FakeContestants(weft=[99, 3, 1, 2], peer=[99, 100, 8, 4])
    assert rows_of([spec()], fake) == [Row("row_10", 2e5, "us/task", "peer", 8e5, 0.25, 0.5, True, spread=(0.03, 0.5))]


@pytest.mark.parametrize(("target", "ok"), [(0.25, True), (0.2, False)])
def test_a_ratio_is_good_up_to_its_target(target, ok):
    fake = FakeContestants(weft=[0, 1, 1, 1], peer=[0, 4, 4, 4])
    assert rows_of([spec(target=target)], fake)[0].ok is ok


@pytest.mark.parametrize(
    ("at_least", "target", "ok"), [(False, 2.0, True), (False, 1.9, False), (True, 2.0, True), (True, 2.1, False)]
)
def test_a_row_without_a_peer_has_no_ratio_and_an_absolute_target(at_least, target, ok):
    fake = FakeContestants(weft=[0, 2, 2, 2])
    (row,) = rows_of([spec(peer=None, scale=1.0, target=target, at_least=at_least)], fake)
    assert (row.value, row.peer, row.peer_value, row.ratio, row.ok) == (2, None, None, None, ok)


@pytest.mark.parametrize(("at_least", "scaled", "spread"), [(False, 2.0, (1.0, 6.0)), (True, 4.0, (3.0, 12.0))])
def test_a_time_is_divided_by_how_slow_the_machine_was_and_a_rate_is_multiplied(at_least, scaled, spread):
    slow = iter([2.0, 0.5, 1.0])
    fake = FakeContestants(weft=[99, 2, 6, 3] if at_least else [99, 2, 3, 2])
    if at_least:
        slow = iter([2.0, 2.0, 1.0])
    row_spec = spec(peer=None, scale=1.0, scaled_by="memory", target=scaled, at_least=at_least)
    found = list(measure([row_spec], 3, fake.ask, lambda: {"memory": next(slow) * REFERENCE["memory"]}))
    assert [(row.scaled, row.spread, row.ok) for row in found] == [(scaled, spread, True)]


def test_the_calibration_times_each_piece_of_work():
    found = calibrate()
    assert sorted(found) == sorted(WORK)
    assert all(seconds > 0 for seconds in found.values())


def test_each_time_or_rate_without_a_peer_is_scaled_and_nothing_else():
    for spec in (spec for specs in command.SUITES.values() for spec in specs):
        timed_row = spec.unit in ("s", "ms", "us") or spec.unit.endswith("/s")
        assert bool(spec.scaled_by) == (timed_row and spec.peer is None), spec.name
        assert spec.scaled_by in ("", *WORK), spec.name


def test_rows_of_one_case_share_its_runs_and_a_fresh_one_is_not_warmed_up():
    fresh = Side("weft", "ours", "case", fresh=True)
    fake = FakeContestants(weft=[3, 1, 2])
    specs = [spec("x_s", ours=fresh, peer=None, scale=1.0), spec("x_gb", ours=fresh, peer=None, scale=1.0, figure="gb")]
    assert [row.value for row in rows_of(specs, fake)] == [2, 0.25]
    assert fake.asked == ["weft"] * 3


def test_a_row_without_a_peer_shares_the_runs_of_one_with():
    fake = FakeContestants(weft=[99, 3, 1, 2], peer=[99, 4, 4, 4])
    specs = [spec(scale=1.0), spec("x_gb", peer=None, scale=1.0, figure="gb")]
    assert [(row.value, row.peer) for row in rows_of(specs, fake)] == [(2, "peer"), (0.25, None)]
    assert fake.asked == ["weft", "peer"] * 4


def test_a_case_that_fails_fails_its_rows_and_no_others():
    class Failing(FakeContestants):
        def ask(self, side):
            if side.case == "bad":
                self.asked.append("bad")
                raise RunFailedError("no good")
            return super().ask(side)

    fake = Failing(weft=[0, 1, 1, 1], peer=[0, 4, 4, 4])
    bad = Side("weft", "ours", "bad")
    rows = rows_of([spec("one", ours=bad), spec("other", ours=bad, figure="gb"), spec("good")], fake)
    assert [(row.value, row.ok, row.failed) for row in rows] == [
        (None, False, "no good"),
        (None, False, "no good"),
        (1e5, True, ""),
    ]
    assert fake.asked.count("bad") == 1
    assert report.cells(rows[0])[:3] == ("one", "failed", "us/task")


def test_a_row_in_json_has_exactly_its_fields():
    fake = FakeContestants(weft=[0, 1, 1, 1], peer=[0, 4, 4, 4])
    (row,) = rows_of([spec()], fake)
    assert list(json.loads(json.dumps(row.as_json()))) == FIELDS


# ------------------------------------------------------------------------------------------------------- tables, pages

ROWS = [
    Row("fast", 0.123456, "us/task", "peer", 45.1, 0.0027, 0.02, True, spread=(0.002, 0.003)),
    Row("slow_s", 12345.0, "s", None, None, None, 5.0, False, scaled=6172.5),
]


def test_the_table_shows_every_row():
    shown = io.StringIO()
    Console(file=shown, width=200).print(report.table(ROWS))
    for text in ("fast", "0.123", "45.1", "0.0027", "slow_s", "12,300", "yes", "no"):
        assert text in shown.getvalue()


def test_the_page_shows_rows_and_what_they_are():
    measured = report.Measured(5, quiet=False, on=date(2026, 11, 30), full=False)
    text = report.page("", {"tasks": ([spec("fast"), spec("slow_s", peer=None)], ROWS)}, measured)
    assert "| fast | 0.123 | us/task | peer | 45.1 | 0.0027 |  | 0.002 to 0.003 | 0.02 | yes |" in text
    assert "| slow_s | 12,300 | s |  |  |  | 6,170 |  | 5 | no |" in text
    assert "- `fast`: made up" in text
    assert "- Measured: 2026-11-30, 5 rounds" in text
    assert "not quiet" in text
    assert "BENCHMARKS_FULL" not in text


def test_a_suite_is_written_into_the_page_of_all():
    specs = [spec("fast"), spec("slow_s", peer=None)]
    first = report.Measured(5, quiet=False, on=date(2026, 11, 30), full=False)
    before = report.page("old words\n\n## kept\n\nby hand\n", {"tasks": (specs, ROWS), "sql": (specs, ROWS)}, first)
    text = report.page(before, {"tasks": (specs[:1], ROWS[:1])}, first._replace(quiet=True, full=True))
    assert [line for line in text.splitlines() if line.startswith("#")] == [
        "# Benchmarks",
        "## kept",
        "## tasks",
        "## sql",
    ]
    tasks, sql = text.split("\n## ")[2:]
    assert "by hand" in text
    assert "old words" not in text
    assert "slow_s" not in tasks
    assert "with `BENCHMARKS_FULL=1`" in tasks
    assert "not quiet" not in tasks
    assert sql.strip() == before.split("\n## ")[3].strip()


@pytest.mark.parametrize(("value", "text"), [(0.0, "0"), (0.0123456, "0.0123"), (999.4, "999"), (153_456.0, "153,000")])
def test_numbers_have_three_digits_that_count(value, text):
    assert report.number(value) == text


# --------------------------------------------------------------------------------------------------------- the command


def names(suites):
    return {suite: [spec.name for spec in specs] for suite, specs in suites.items()}


def test_each_row_has_a_name_of_its_own_and_says_what_it_is():
    specs = [spec for specs in command.SUITES.values() for spec in specs]
    assert len({spec.name for spec in specs}) == len(specs)
    assert all(spec.about.endswith(".") for spec in specs)


def test_rows_are_chosen_by_name():
    two = command.chosen("tasks", " simulator_1m_gb, threads_10k ")
    assert names(two) == {"tasks": ["threads_10k", "simulator_1m_gb"]}
    assert names(command.chosen("all", "")) == names(command.SUITES)


@pytest.mark.parametrize(
    "argv",
    [
        ["tasks", "--rows", "no_such_row"],
        ["tasks", "--rounds", "2"],
        ["tasks", "--rows", "threads_10k", "--write", "x.md"],
    ],
)
def test_wrong_arguments_are_refused(argv):
    with pytest.raises(UsageError):
        command.run(argv)


@pytest.fixture
def faked(monkeypatch):
    """The command with one suite of one row and contestants that are made up, on a machine that is quiet."""

    class Fake(FakeContestants):
        def __init__(self):
            super().__init__(weft=[0, 1, 1, 1, 1], peer=[0, 4, 4, 4, 4])

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

    monkeypatch.setattr(command, "SUITES", {"tasks": [spec()]})
    monkeypatch.setattr(command, "Contestants", Fake)
    monkeypatch.setattr(command, "wait_until_quiet", lambda patience: True)
    monkeypatch.setattr(command, "measure", partial(measure, calibration=lambda: STEADY))


def test_json_is_one_object_a_line(faked, capsys):
    command.run(["tasks", "--json", "--rounds", "3"])
    lines = capsys.readouterr().out.splitlines()
    assert [list(json.loads(line)) for line in lines] == [FIELDS]


def test_the_exit_code_tells_that_a_row_failed_and_not_that_one_missed_its_target(faked, capsys, monkeypatch):
    monkeypatch.setattr(command, "SUITES", {"tasks": [spec(target=0.1)]})
    assert command.run(["tasks", "--rounds", "3"]) == 0
    monkeypatch.setattr(command, "SUITES", {"tasks": [spec("gone", figure="none"), spec("kept")]})
    monkeypatch.setattr(
        command, "measure", lambda *_, **__: iter([Row("gone", None, "s", None, None, None, 1, False, "no")])
    )
    assert command.run(["tasks", "--rounds", "3"]) == 1
    told = capsys.readouterr()
    assert "benchmarks: gone failed: no" in told.err
    assert "failed" in told.out


def test_without_json_there_is_a_table_and_perhaps_a_page(faked, capsys, tmp_path):
    command.run(["all", "--rounds", "3", "--write", str(tmp_path / "page.md")])
    assert "row_10" in capsys.readouterr().out
    assert "| row_10 | 100,000 |" in (tmp_path / "page.md").read_text()


# ----------------------------------------------------------------------------------------------------------- processes


def test_the_worker_answers_each_request_with_figures_or_an_error(capsys):
    def wrong():
        expect(1, 2)

    requests = io.StringIO('"good"\n"wrong"\n"unknown"\n')
    answers = io.StringIO()
    worker.serve({"good": lambda: {"seconds": 1.5}, "wrong": wrong}, requests, answers)
    good, bad, unknown = map(json.loads, answers.getvalue().splitlines())
    assert good == {"seconds": 1.5}
    assert bad == {"error": "AssertionError: a wrong result: 1, not 2"}
    assert "unknown" in unknown["error"]
    assert "wrong" in capsys.readouterr().err


CASES = """
import os
calls = 0
def count():
    global calls
    calls += 1
    print("noise")
    return {"seconds": calls, "process": os.getpid()}
def fail(): raise ValueError("no good")
def leave(): os._exit(3)
CASES = {"count": count, "fail": fail, "leave": leave}
"""


@pytest.fixture
def made_up(tmp_path, monkeypatch):
    """A module of cases that worker processes can import."""
    (tmp_path / "made_up_cases.py").write_text(CASES)
    real = contestants.ROOT
    (tmp_path / "benchmarks").symlink_to(real / "benchmarks")
    (tmp_path / "src").symlink_to(real / "src")
    monkeypatch.setattr(contestants, "ROOT", tmp_path)
    return lambda case, **fields: Side("made up", "made_up_cases", case, **fields)


def test_a_process_stays_alive_unless_it_is_to_be_fresh(made_up):
    with Contestants() as both:
        warm = [both.ask(made_up("count")) for _ in range(2)]
        fresh = [both.ask(made_up("count", fresh=True)) for _ in range(2)]
    assert [figures["seconds"] for figures in warm + fresh] == [1, 2, 1, 1]
    assert len({figures["process"] for figures in warm + fresh}) == 3


def test_a_case_that_fails_says_which(made_up, capfd):
    with Contestants() as both:
        with pytest.raises(RunFailedError, match="fail of made up failed: ValueError: no good"):
            both.ask(made_up("fail"))
        assert both.ask(made_up("count"))["seconds"] == 1
        with pytest.raises(RunFailedError, match=r"ended its process \(exit code 3\)"):
            both.ask(made_up("leave"))
    printed = capfd.readouterr()
    assert printed.out == ""
    assert "noise" in printed.err


NO_PACKAGES = """#!/bin/sh
mkdir -p "$4/bin"
printf '#!/bin/sh\necho there is no package; exit 1\n' > "$4/bin/python"
chmod +x "$4/bin/python"
"""
"""An interpreter whose environments install nothing."""


def test_an_environment_that_cannot_be_made_says_what_to_do(monkeypatch, tmp_path):
    interpreter = tmp_path / "python"
    interpreter.write_text(NO_PACKAGES)
    interpreter.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(interpreter))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(RunFailedError, match="pip install failed\nthere is no package") as caught:
        contestants.peers_python()
    assert "--rows" in caught.value.hint
    assert not list(tmp_path.glob("weft-benchmarks/*/complete"))


def test_peers_are_not_weft_s_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert contestants.cache_folder() == tmp_path / "weft-benchmarks"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert contestants.cache_folder().is_absolute()


# ------------------------------------------------------------------------------------------------------------- figures


def test_timed_checks_what_was_returned_and_not_before():
    seen: list[object] = []

    def run():
        seen.append("run")
        return 7

    assert list(timed(run, seen.append)) == ["seconds"]
    assert seen == ["run", 7]
    timed(run, seen.append, rehearse=True)
    assert seen == ["run", 7] * 3
    with pytest.raises(AssertionError, match="a wrong result"):
        timed(lambda: 1, lambda found: expect(found, 2))


@pytest.mark.skipif(sys.platform != "linux", reason="reads what Linux says")
def test_peak_memory_grows_with_what_is_held():
    code = (  # a process that is small: it must hold more than it ever did
        "from benchmarks.harness import peak_gb\n"
        "before = peak_gb()\n"
        "held = bytearray(b'x') * int(before * 1e9 + 300_000_000)\n"
        "print(peak_gb() - before)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=contestants.ROOT, capture_output=True, text=True, check=True
    )
    assert float(done.stdout) > 0.2


@pytest.mark.parametrize(
    ("busy", "quiet", "said"), [([0.1], True, 0), ([1.5, 0.5, 0.2], True, 0), ([1.5] * 9, False, 1)]
)
def test_a_busy_machine_is_waited_for_and_then_reported(busy, quiet, said):
    clock = iter(range(100))
    loads = iter(busy)
    lines: list[str] = []
    found = wait_until_quiet(5, busy=lambda: next(loads), now=lambda: next(clock), say=lines.append)
    assert (found, len(lines)) == (quiet, said)


# -------------------------------------------------------------------------------------------------------- kept rows


def made_row(name, failed=""):
    return Row(name, None if failed else 1.5, "s", None, None, None, 2.0, ok=True, failed=failed, spread=(1.0, 2.0))


def test_a_measurement_goes_on_with_the_rows_that_are_missing(tmp_path):
    kept = KeptRows(tmp_path / "build" / "rows.jsonl", 3)
    kept.add(made_row("first"))
    kept.add(made_row("second"))
    kept.add(made_row("third", failed="no memory"))
    with (tmp_path / "build" / "rows.jsonl").open("a") as file:
        file.write('{"name": "half')
    again = KeptRows(tmp_path / "build" / "rows.jsonl", 3)
    assert again.rows == {"first": made_row("first"), "second": made_row("second")}
    fake = FakeContestants(weft=[99, 1, 2, 3], peer=[99, 4, 5, 6])
    specs = [spec("first"), spec("fourth")]
    found = list(measure(specs, 3, fake.ask, lambda: STEADY, finished=again.rows))
    assert [row.name for row in found] == ["first", "fourth"]
    assert found[0] == made_row("first")
    assert len(fake.asked) == 8, "only the fourth was measured"
    again.remove()
    assert KeptRows(tmp_path / "build" / "rows.jsonl", 3).rows == {}


def test_rows_of_another_measurement_are_dropped(tmp_path):
    path = tmp_path / "rows.jsonl"
    KeptRows(path, 3).add(made_row("first"))
    other = KeptRows(path, 5)
    assert other.rows == {}
    other.add(made_row("second"))
    assert set(KeptRows(path, 5).rows) == {"second"}


def test_a_file_that_holds_something_else_is_not_overwritten(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"some": "settings"}')
    with pytest.raises(UsageError, match="holds no rows"):
        KeptRows(path, 3)
