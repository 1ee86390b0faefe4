"""Schedules on the command line, and the process that fires them."""

import json
import os
import re
import signal
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.integration.places import DEADLINE_S, Project, until
from weft.runs.listing import list_runs
from weft.runs.reading import read_run
from weft.runs.records import ACTIVE
from weft.store.schedules import SCHEDULES_NAME, STARTING, Firing, Schedules
from weft.store.state import read_description

if TYPE_CHECKING:
    from tests.integration.places import StartedCommand


class Place(Project):
    """A folder with a pipeline, its schedules, and a process that fires them."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.up: StartedCommand | None = None

    def start_up(self) -> None:
        self.up = self.start("up")
        until(lambda: (self.root.path / "up" / "control.sock").exists())

    def end_up(self, number: int = signal.SIGINT) -> tuple[int, str]:
        assert self.up is not None
        self.up.send_signal(number)
        _, err = self.up.communicate(timeout=DEADLINE_S)
        up, self.up = self.up, None
        return up.wait(), err

    def runs(self) -> list[str]:
        return [row.id for row in list_runs(self.root, limit=None)[0]]

    def all_states(self) -> set[str]:
        return {read_run(self.root.folder(run)).state for run in self.runs()}

    def firings(self) -> list[Firing]:
        schedules = Schedules(self.root.path / SCHEDULES_NAME)
        found = schedules.firings("often")
        schedules.close()
        return found


def _over(folder: Path) -> bool:
    return read_run(folder).state not in ACTIVE


@pytest.fixture
def place(tmp_path) -> Iterator[Place]:
    place = Place(tmp_path)
    place.write({"a": {"command": "echo {{n}} >> ran", "parameters": {"n": 1}}})
    yield place
    if place.up is not None:
        place.up.kill()
        place.up.communicate()
    for run in place.runs():
        folder = place.root.folder(run)
        if read_run(folder).state in ACTIVE:
            os.kill(read_description(folder)["pid"], signal.SIGKILL)
            until(partial(_over, folder))


EVERY = ("schedule", "create", "run.yaml", "-n", "often", "--cron", "@every 1s")


def test_a_schedule_from_its_birth_to_its_end(place):
    code, _, err = place.weft(*EVERY, "-p", "n=7", "--concurrency", "1", "--policy", "skip", "--expire", "2h")
    assert code == 0, err
    assert "nothing fires it yet: start `weft up`" in err
    head = place.weft("schedule", "show", "often")[1]
    assert "at a time  1 run; a further one is skipped\n" in head
    assert "expires    a run that cannot begin within 2 h 00 min is skipped\n" in head
    assert "missed     times without `weft up` run later, oldest first\n" in head
    place.start_up()
    until(lambda: len(place.runs()) >= 2)
    code, out, _ = place.weft("schedule", "show", "often", "--json")
    told = json.loads(out)
    assert code == 0
    assert told["schedule"]["parameters"] == ["n=7"]
    assert any(one["run"] == "run-000001" for one in told["times"])
    assert place.weft("schedule", "delete", "often")[0] == 7
    stopped = json.loads(place.weft("schedule", "stop", "often", "--json")[1])
    assert stopped == {"schema": "weft.schedule.stop/1", "schedule": "often"}
    assert place.weft("schedule", "stop", "often")[0] == 7
    code, err = place.end_up()  # with it the last start is over
    assert code == 0
    assert "often: run-000001 has begun" in err
    until(lambda: not place.all_states() & ACTIVE)
    assert place.all_states() == {"succeeded"}
    assert set((place.folder / "ran").read_text().split()) == {"7"}
    assert {read_run(place.root.folder(run)).name for run in place.runs()} == {"often"}
    assert "terminated" in place.weft("schedule", "ls")[1]
    deleted = json.loads(place.weft("schedule", "delete", "often", "--json")[1])
    assert deleted == {"schema": "weft.schedule.delete/1", "schedule": "often"}
    assert place.weft("schedule", "show", "often")[0] == 4
    assert place.runs(), "its runs stay"


def test_a_schedule_keeps_what_else_a_run_is_given(place):
    (place.folder / "data").mkdir()
    place.write({"a": {"command": "echo there > here", "cache": {"enable": True}}})
    words = ("-f", "ppl=data", "--no-cache", "--workers", "1", "--user", "ada", "--docker-env", "ignore")
    assert place.weft(*EVERY, *words)[0] == 0
    told = json.loads(place.weft("schedule", "show", "often", "--json")[1])["schedule"]
    given = ["--workers", "1", "--docker-env", "ignore", "--user", "ada", "--no-cache"]
    assert (told["parameters"], told["options"]) == ([], ["-f", f"ppl={place.folder}/data", *given])
    place.start_up()
    until((place.folder / "data" / "here").exists)
    until(lambda: "succeeded" in place.all_states())
    assert read_run(place.root.folder("run-000001")).user == "ada"
    code, _, err = place.weft("schedule", "create", "run.yaml", "-n", "x2", "--cron", "@daily", "--only", "none")
    assert (code, "has no step 'none'" in err) == (2, True)
    place.weft("schedule", "stop", "often")
    place.end_up()
    until(lambda: not place.all_states() & ACTIVE)


def test_runs_outlive_a_killed_up_and_no_time_is_fired_twice(place):
    place.write({"a": {"command": "touch began; until test -e go; do sleep 0.02; done"}})
    assert place.weft(*EVERY, "--concurrency", "1")[0] == 0
    place.start_up()
    until((place.folder / "began").exists)
    place.end_up(signal.SIGKILL)
    until(lambda: place.all_states() == {"running"})  # a step may begin before the record of its start
    place.start_up()
    until(lambda: any(one.state == "waiting" for one in place.firings()))
    assert place.runs() == ["run-000001"], "it still counts"
    assert place.weft("schedule", "stop", "often")[0] == 0
    (place.folder / "go").touch()
    until(lambda: place.all_states() == {"succeeded"})
    until(lambda: {one.state for one in place.firings()} == {"ended", "skipped"})
    assert len([one for one in place.firings() if one.run]) == 1


def test_replace_ends_the_older_run(place):
    place.write({"a": {"command": "sleep 600"}})
    assert place.weft(*EVERY, "--concurrency", "1", "--policy", "replace")[0] == 0
    place.start_up()
    until(lambda: "run-000002" in place.runs())
    assert read_run(place.root.folder("run-000001")).state == "terminated"
    place.weft("schedule", "stop", "often")
    place.end_up()
    for run in place.runs():
        place.weft("cancel", run)
    until(lambda: not place.all_states() & ACTIVE)


SLOW = """
import time
from pathlib import Path
import weft

@weft.step
def a(): ...

@weft.pipeline
def often():
    if Path("slow").exists():
        Path("building").touch()
    while Path("slow").exists():
        time.sleep(0.02)
    a()
"""


def test_a_second_signal_leaves_at_once_and_the_time_is_due_again(place):
    (place.folder / "run.py").write_text(SLOW)
    assert place.weft("schedule", "create", "run.py", *EVERY[3:], "--concurrency", "1")[0] == 0
    (place.folder / "slow").touch()
    place.start_up()
    until((place.folder / "building").exists)
    place.up.send_signal(signal.SIGINT)
    heard = ""
    while "Ctrl-C again leaves at once" not in heard:
        line = place.up.stderr.readline()
        assert line, "it ended before the run had begun"
        heard += line
    code, err = place.end_up()
    assert (code, "left at once" in err, "WEFT" in err) == (130, True, False)
    assert {one.state for one in place.firings()} <= {"waiting", "skipped"}
    assert place.runs() == []
    (place.folder / "slow").unlink()
    place.start_up()
    until(lambda: "succeeded" in place.all_states())
    assert place.end_up()[0] == 0


TOGETHER = """
import os
import time
from pathlib import Path
import weft

@weft.step
def a(): ...

@weft.pipeline
def often():
    if Path("together").exists():
        Path(f"building-{os.getpid()}").touch()
        while len(list(Path().glob("building-*"))) < 3 or Path("hold").exists():
            time.sleep(0.02)
    a()
"""


def _missed(place, count: int, *words: str) -> None:
    """Make a schedule whose latest times have passed."""
    (place.folder / "run.py").write_text(TOGETHER)
    assert place.weft("schedule", "create", "run.py", "-n", "often", "--cron", "@every 1h", *words)[0] == 0
    schedules = Schedules(place.root.path / SCHEDULES_NAME)
    schedules.put("often", [], seen=time.time() - 3600 * count - 60)
    schedules.close()
    (place.folder / "together").touch()


def test_missed_times_start_together(place):
    _missed(place, 4, "--concurrency", "3")
    place.start_up()
    until(lambda: len(place.runs()) == 4)
    code, err = place.end_up()
    assert (code, err.count("has begun")) == (0, 4)
    until(lambda: place.all_states() == {"succeeded"})


def test_a_second_signal_ends_all_that_are_starting(place):
    (place.folder / "hold").touch()
    _missed(place, 3)
    place.start_up()
    builders = until(lambda: len(found := list(place.folder.glob("building-*"))) == 3 and found)
    place.up.send_signal(signal.SIGINT)
    while "Ctrl-C again leaves at once" not in (line := place.up.stderr.readline()):
        assert line, "it ended before the runs had begun"
    code, err = place.end_up()
    assert (code, "left at once" in err) == (130, True)
    assert [one.state for one in place.firings()] == ["waiting"] * 3
    assert place.runs() == []
    assert not any(Path(f"/proc/{one.name.partition('-')[2]}").exists() for one in builders)


def test_it_names_runs_that_nobody_goes_on_with(place):
    place.write({"a": {"command": "touch began; until test -e go; do sleep 0.02; done"}})
    run = place.start("run", "run.yaml")
    until((place.folder / "began").exists)
    run.kill()
    run.communicate()
    place.start_up()
    _, err = place.end_up()
    assert "run-000001 (trial) was interrupted; to go on with it: weft resume -d run-000001\n" in err


def test_a_file_that_breaks_later_fails_its_times_and_no_more(place):
    assert place.weft(*EVERY)[0] == 0
    (place.folder / "run.yaml").write_text("name: [")
    place.start_up()
    until(lambda: any(one.state == "failed" for one in place.firings()))
    place.write({"a": {"command": ":"}})
    until(place.runs)
    code, err = place.end_up()
    assert code == 0
    (said,) = {line.partition("often: ")[2] for line in err.splitlines() if "no run could be started" in line}
    assert said.startswith("no run could be started: WEFT2")
    assert said.count("WEFT") == 1
    assert "error" not in said.partition(":")[0]
    until(lambda: not place.all_states() & ACTIVE)


def test_a_run_that_its_schedule_does_not_want_any_more_does_not_begin(place):
    assert place.weft(*EVERY)[0] == 0
    schedules = Schedules(place.root.path / SCHEDULES_NAME)
    schedules.put("often", [Firing(schedule="often", due=1000.5, state=STARTING, epoch=2)])
    schedules.close()
    words = ("run", "run.yaml", "-d", "--firing")
    code, _, err = place.weft(*words, "often@1000.5@1")
    assert code == 7
    assert "no longer wants this run" in err
    assert place.runs() == []
    assert place.weft(*words, "often@1000.5@2")[0] == 0
    assert place.weft(*words, "often@1000.5@2")[0] == 7
    until(lambda: place.all_states() == {"succeeded"})


def test_up_takes_in_runs_for_the_background(place):
    place.environ["LEVEL"] = "here"
    place.write({"a": {"command": 'echo "$LEVEL" > level'}})
    place.start_up()
    place.environ["LEVEL"] = "there"
    code, out, _ = place.weft("run", "-d", "run.yaml")
    assert (code, out) == (0, "run-000001\n")
    until(lambda: place.all_states() == {"succeeded"})
    assert (place.folder / "level").read_text() == "there\n"
    assert place.weft("run", "-d", "none.yaml")[0] == 4
    assert place.weft("up")[0] == 7, "one is enough"
    code, err = place.end_up(signal.SIGTERM)
    assert code == 0
    assert "run-000001 was accepted" in err


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("--cron", "0 0 30 2 *"), 2, "never comes"),
        (("--cron", "* * * *"), 2, "has 4 fields"),
        (("--cron", "@daily", "--tz", "Nowhere"), 2, "no time zone"),
        (("--cron", "@daily", "-n", "a-b"), 2, "cannot name a schedule"),
        (("--cron", "@daily", "--policy", "wait"), 2, "suspend, replace, skip"),
        (("--cron", "@daily", "--concurrency", "-1"), 2, "0 or more"),
        (("--cron", "@daily", "--start", "2001-01-01"), 2, "has passed"),
        (("--cron", "@daily", "--end", "soon"), 2, "must be a time"),
        (("--cron", "@yearly", "--end", "2999-01-01", "--start", "2998-12-31T23:00"), 0, "runs first at 2999-01-01"),
        (("--cron", "@daily", "--expire", "long"), 2, "must be a time"),
        (("--cron", "@daily", "-p", "none=1"), 2, "no parameter"),
    ],
)
def test_what_is_wrong_is_said_when_it_is_made(place, words, code, told):
    found, _, err = place.weft("schedule", "create", "run.yaml", *words)
    assert found == code
    assert told in err
    assert (place.root.path / SCHEDULES_NAME).exists() == (code == 0)


@pytest.mark.parametrize(
    ("cron", "zone", "start"),
    [
        ("0 8 * * *", ("--tz", "America/New_York"), "2997-01-15T09:00"),
        ("CRON_TZ=America/New_York 0 8 * * *", ("--tz", "Asia/Tokyo"), "2997-01-15T09:00"),
        ("0 8 * * *", ("--tz", "America/New_York"), "2997-01-15T14:00+00:00"),
    ],
)
def test_times_without_an_offset_are_those_of_the_zone_of_the_schedule(place, cron, zone, start):
    words = ("schedule", "create", "run.yaml", "-n", "early", "--cron", cron, *zone, "--start", start)
    _, _, err = place.weft(*words, "--end", "2997-01-17T08:00")
    assert "early runs first at 2997-01-16 08:00:00 EST" in err
    shown = place.weft("schedule", "show", "early")[1]
    assert re.search("^from +2997-01-15 09:00:00 EST$", shown, re.MULTILINE)
    assert re.search("^until +2997-01-17 08:00:00 EST$", shown, re.MULTILINE)
    assert "2997-01-16 08:00:00 EST, 2997-01-17 08:00:00 EST\n" in shown
    assert "2997-01-16 08:00:00 EST" in place.weft("schedule", "ls")[1]


def test_names_are_unique(place):
    assert place.weft(*EVERY)[0] == 0
    code, _, err = place.weft(*EVERY)
    assert code == 7
    assert "weft schedule delete often" in err


def test_a_damaged_list_is_told(place):
    assert place.weft(*EVERY)[0] == 0
    assert "✔ the list of schedules" in place.weft("doctor")[1]
    (place.root.path / SCHEDULES_NAME).write_bytes(b"nonsense" * 1000)
    code, _, err = place.weft("schedule", "ls")
    assert code == 7
    assert "the list of schedules" in err
    assert "is damaged" in err
    code, out, _ = place.weft("doctor")
    assert code == 1
    assert "Then create them again" in out


def test_the_last_times_have_the_outcome_of_their_runs(place):
    place.write({"a": {"command": "touch began; until test -e go; do sleep 0.02; done; exit 3"}})
    assert place.weft(*EVERY, "--concurrency", "1", "--policy", "skip")[0] == 0
    place.start_up()
    until((place.folder / "began").exists)
    place.end_up()
    assert place.weft("schedule", "stop", "often")[0] == 0

    def told() -> tuple[str, str]:
        times = json.loads(place.weft("schedule", "show", "often", "--json")[1])["times"]
        return next((one["state"], one["message"]) for one in times if one["run"] == "run-000001")

    assert told() == ("started", "")
    (place.folder / "go").touch()
    until(lambda: not place.all_states() & ACTIVE)
    assert told() == ("ended", "failed: step a ended with exit code 3."), "though nothing fires schedules any more"
    shown = " ".join(place.weft("schedule", "show", "often")[1].split())
    assert "ended run-000001 failed: step a ended with exit code 3." in shown
    assert "run-000001 failed (" in place.weft("schedule", "ls")[1]


def test_the_outcome_of_a_deleted_run_is_kept(place):
    place.write({"a": {"command": "exit 3"}})
    assert place.weft(*EVERY)[0] == 0
    place.start_up()
    until(lambda: any(one.state == "ended" for one in place.firings()))
    place.weft("schedule", "stop", "often")
    place.end_up()
    until(lambda: not place.all_states() & ACTIVE)
    assert place.weft("delete", "run-000001")[0] == 0
    times = json.loads(place.weft("schedule", "show", "often", "--json")[1])["times"]
    assert [one["message"] for one in times if one["run"] == "run-000001"] == ["failed: step a ended with exit code 3."]
