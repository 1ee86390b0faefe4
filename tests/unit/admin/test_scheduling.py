"""The scheduler under a clock of our own: policies, catching up, ends, stops, and what a killed one leaves."""

from collections.abc import Generator, Iterable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from weft.admin.cron import parse
from weft.admin.scheduling import MOST, Rule, Scheduler, rule, stop_schedule
from weft.engine.ports import ManualClock
from weft.model.errors import ConflictError, NotFoundError, WeftError
from weft.store.schedules import ENDED, SKIPPED, STARTED, STARTING, WAITING, Firing, PipelineSchedule, Schedules

NOON = datetime(2024, 5, 1, 12, tzinfo=UTC).timestamp()


class FakeLauncher:
    """Starts runs that go on until a test ends them; claims as the started process would."""

    def __init__(self, schedules: Schedules, clock: ManualClock) -> None:
        self.schedules, self.clock = schedules, clock
        self.live: list[str] = []
        self.started: list[float] = []
        self.stopped: list[str] = []
        self.error: WeftError | None = None
        self.unheard = False
        self.dies: type[BaseException] | None = None

    def start(
        self, due: Iterable[tuple[PipelineSchedule, Firing]]
    ) -> Generator[tuple[PipelineSchedule, Firing, str | WeftError]]:
        for schedule, firing in due:
            if self.error is not None and not self.unheard:
                yield schedule, firing, self.error
                continue
            if self.dies is not None:
                raise self.dies
            run = f"run-{len(self.started) + 1}"
            self.schedules.claim(firing.schedule, firing.due, firing.epoch, run, self.clock.wall())
            self.started.append(firing.due)
            self.live.append(run)
            yield schedule, firing, self.error or run

    def outcome(self, run: str) -> str:
        return "" if run in self.live else "failed: no luck"

    def stop(self, run: str) -> None:
        self.stopped.append(run)


class World:
    """A scheduler of one schedule, every ten minutes, from noon on."""

    def __init__(self, folder: Path, **about: object) -> None:
        self.clock = ManualClock(NOON)
        self.schedules = Schedules(folder / "schedules.db")
        self.launcher = FakeLauncher(self.schedules, self.clock)
        self.said: list[str] = []
        fields = {"cron": "*/10 * * * *", "zone": "UTC", "created_at": NOON, "seen": NOON, **about}
        self.schedules.add(PipelineSchedule(name="nightly", file="/x/run.yaml", **fields))  # type: ignore[arg-type]
        self.scheduler = self.again()

    def again(self) -> Scheduler:
        self.scheduler = Scheduler(self.schedules, self.launcher, self.clock, self.said.append)
        return self.scheduler

    def after(self, minutes: float) -> list[str]:
        """Look once, so many minutes after noon; return when the runs were due that began then."""
        self.clock.advance(NOON + 60 * minutes - self.clock.wall())
        before = len(self.launcher.started)
        while not self.scheduler.tick():
            pass
        return [self.at(due) for due in self.launcher.started[before:]]

    def each(self, first: int, last: int) -> list[str]:
        """Look every minute."""
        return [at for minute in range(first, last + 1) for at in self.after(minute)]

    def at(self, time: float) -> str:
        return datetime.fromtimestamp(time, UTC).strftime("%H:%M")

    def became(self) -> dict[str, str]:
        return {self.at(one.due): one.state for one in reversed(self.schedules.firings("nightly"))}


@pytest.fixture
def world(tmp_path):
    made: list[World] = []

    def make(**about: object) -> World:
        made.append(World(tmp_path, **about))
        return made[-1]

    yield make
    for one in made:
        one.schedules.close()


def test_runs_begin_when_they_are_due_and_once(world):
    one = world()
    assert one.after(0) == []
    assert one.after(9.9) == []
    assert one.after(10) == ["12:10"]
    assert one.after(10) == []
    assert one.each(11, 40) == ["12:20", "12:30", "12:40"]
    assert one.became() == dict.fromkeys(["12:10", "12:20", "12:30", "12:40"], STARTED)
    one.launcher.live.clear()
    one.after(41)
    assert set(one.became().values()) == {ENDED}


def test_suspend_keeps_what_finds_no_room(world):
    one = world(concurrency=1)
    assert one.each(0, 35) == ["12:10"]
    assert one.became() == {"12:10": STARTED, "12:20": WAITING, "12:30": WAITING}
    one.launcher.live.clear()
    assert one.each(36, 37) == ["12:20"]
    one.launcher.live.clear()
    assert one.each(38, 39) == ["12:30"]


def test_skip_leaves_out_what_finds_no_room(world):
    one = world(concurrency=1, policy="skip")
    assert one.each(0, 25) == ["12:10"]
    one.launcher.live.clear()
    assert one.each(26, 30) == ["12:30"]
    assert one.became() == {"12:10": ENDED, "12:20": SKIPPED, "12:30": STARTED}
    assert "nightly: skipped: 1 run went on" in one.said


def test_times_that_are_skipped_in_a_row_are_summed_up(world):
    one = world(cron="@every 1s", concurrency=1, policy="skip")
    for second in range(8):
        one.after(second / 60)
    assert [firing.message for firing in one.schedules.firings("nightly")] == ["1 run went on (6 times in a row)", ""]
    one.launcher.live.clear()
    one.after(8 / 60)
    one.after(9 / 60)
    assert [firing.state for firing in one.schedules.firings("nightly")] == [SKIPPED, STARTED, SKIPPED, ENDED]
    said = [line.removeprefix("nightly: ") for line in one.said]
    assert said == [
        "run-1 has begun",
        "skipped: 1 run went on",
        "skipped: 1 run went on (6 times in a row)",
        "run-2 has begun",
        "skipped: 1 run went on",
    ]


def test_replace_ends_the_oldest_run_and_begins_when_it_has_ended(world):
    one = world(concurrency=2, policy="replace")
    assert one.each(0, 29) == ["12:10", "12:20"]
    assert one.after(30) == []
    assert one.launcher.stopped == ["run-1"]
    one.launcher.live.remove("run-1")
    assert one.after(31) == ["12:30"]
    one.after(32)
    assert one.launcher.stopped == ["run-1"], "one that has ended is asked no more"
    assert one.became() == {"12:10": ENDED, "12:20": STARTED, "12:30": STARTED}


def test_replace_keeps_the_newest_of_those_that_wait(world):
    one = world(concurrency=1, policy="replace")
    one.each(0, 10)
    one.each(11, 45)
    assert one.became() == {"12:10": "stopping", "12:20": SKIPPED, "12:40": WAITING}
    assert one.schedules.firings("nightly")[1].message == "a later time took its place (2 times in a row)"
    one.launcher.live.clear()
    assert one.after(46) == ["12:40"]


def test_what_waits_too_long_expires(world):
    one = world(concurrency=1, expire_s=900)
    one.each(0, 40)
    assert one.became() == {"12:10": STARTED, "12:20": SKIPPED, "12:30": WAITING, "12:40": WAITING}
    one.launcher.live.clear()
    assert one.each(41, 41) == ["12:30"]


@pytest.mark.parametrize("policy", ["suspend", "skip", "replace"])
def test_catching_up_after_a_sleep(world, policy):
    one = world(policy=policy)
    assert one.after(35) == ["12:10", "12:20", "12:30"]


def test_catching_up_with_an_expiry_begins_only_what_is_fresh(world):
    one = world(expire_s=600)
    assert one.after(35) == ["12:30"]
    assert one.became() == {"12:10": SKIPPED, "12:30": STARTED}
    assert one.said[0] == "nightly: skipped: could not begin within 600 s (2 times in a row)"


def test_without_catching_up_what_passed_is_left_out_and_told_in_one_line(world):
    one = world(catchup=False)
    assert one.after(35) == []
    assert one.after(40) == ["12:40"]
    assert one.became() == {"12:10": SKIPPED, "12:40": STARTED}
    assert len([line for line in one.said if "passed while no scheduler ran" in line]) == 1


def test_a_little_late_is_not_missed(world):
    one = world(catchup=False)
    assert one.after(10.5) == ["12:10"]


def test_what_waits_has_not_passed(world):
    one = world(catchup=False, concurrency=1)
    one.each(0, 25)
    one.launcher.live.clear()
    assert one.after(29) == ["12:20"]


def test_begin_and_end(world):
    begin, end = NOON + 15 * 60, NOON + 40 * 60
    one = world(start_at=begin, end_at=end, seen=begin - 0.5)
    assert one.each(0, 60) == ["12:20", "12:30", "12:40"]
    assert one.schedules.find("nightly").state == "running", "its runs go on"
    one.launcher.live.clear()
    assert one.each(61, 62) == []
    assert one.schedules.find("nightly").state == "success"


def test_stopped_its_runs_go_on_and_what_waits_is_left_out(world):
    one = world(concurrency=1)
    one.each(0, 25)
    one.schedules.put("nightly", [], state="terminated")
    assert one.each(26, 60) == []
    assert one.became() == {"12:10": STARTED, "12:20": SKIPPED}
    assert one.launcher.stopped == []
    one.launcher.live.clear()
    one.after(61)
    assert one.became()["12:10"] == ENDED


def test_a_clock_that_is_set_back_repeats_nothing(world):
    one = world()
    assert one.each(0, 20) == ["12:10", "12:20"]
    one.clock = one.launcher.clock = ManualClock(NOON + 5 * 60)
    one.again()
    assert one.each(5, 29) == []
    assert one.after(30) == ["12:30"]


def test_a_run_that_cannot_be_started_is_told_and_the_next_is(world):
    one = world()
    one.launcher.error = NotFoundError("there is no file /x/run.yaml")
    assert one.each(0, 10) == []
    one.launcher.error = None
    assert one.each(11, 20) == ["12:20"]
    assert one.became() == {"12:10": "failed", "12:20": STARTED}
    assert one.schedules.firings("nightly")[1].message == "WEFT300: there is no file /x/run.yaml"


def test_a_killed_scheduler_starts_again_what_it_was_starting_and_nothing_twice(world):
    one = world()
    one.launcher.dies = SystemExit  # nobody could write anything down
    with pytest.raises(SystemExit):
        one.after(10)
    (lost,) = one.schedules.firings("nightly", states=[STARTING])
    one.launcher.dies = None
    one.again()
    assert one.after(11) == ["12:10"]
    with pytest.raises(ConflictError, match="no longer wants this run"):
        one.schedules.claim("nightly", lost.due, lost.epoch, "run-late", one.clock.wall())
    assert one.after(12) == []


def test_a_scheduler_that_is_told_to_end_leaves_nothing_half_started(world):
    one = world()
    one.launcher.dies = KeyboardInterrupt
    with pytest.raises(KeyboardInterrupt):
        one.after(10)
    assert one.became() == {"12:10": WAITING}
    one.launcher.dies = None
    one.scheduler = Scheduler(one.schedules, one.launcher, one.clock, ending=lambda: bool(one.launcher.started))
    assert one.after(30) == ["12:10"], "what comes after it waits for the next scheduler"
    assert one.became() == {"12:10": STARTED, "12:20": WAITING, "12:30": WAITING}


def test_stopping_a_schedule_gives_up_what_a_killed_scheduler_was_starting(world):
    one = world()
    one.launcher.dies = SystemExit
    with pytest.raises(SystemExit):
        one.after(10)
    stop_schedule(one.schedules, "nightly", one.clock.wall())
    assert one.became() == {"12:10": SKIPPED}


def test_what_begins_just_as_its_start_is_given_up_counts(world):
    one = world()
    one.launcher.error, one.launcher.unheard = NotFoundError("it did not answer"), True
    one.after(10)
    assert one.became() == {"12:10": STARTED}


def test_very_many_missed_times_are_looked_at_in_pieces(world):
    one = world(cron="@every 1s", concurrency=1, policy="skip")
    assert len(one.after(60)) == 1
    found = one.schedules.firings("nightly")
    assert MOST < 3600
    assert [one.state for one in found] == [SKIPPED, STARTED]
    assert found[0].message == "1 run went on (3599 times in a row)"
    assert one.schedules.find("nightly").seen == NOON + 3600


def test_a_schedule_that_cannot_be_read_stops_no_other(world):
    one = world()
    bad = PipelineSchedule(name="bad", file="/x", cron="nonsense", zone="UTC", seen=NOON)
    one.schedules.add(bad)
    assert one.each(0, 10) == ["12:10"]
    assert len([line for line in one.said if line.startswith("bad: ")]) == 1


def test_names_are_unique_and_what_is_deleted_is_gone(world):
    one = world()
    with pytest.raises(ConflictError, match="schedule nightly exists already"):
        one.schedules.add(replace(one.schedules.find("nightly")))
    one.after(10)
    one.schedules.remove("nightly")
    assert one.schedules.all() == []
    assert one.schedules.firings("nightly") == []
    with pytest.raises(NotFoundError):
        one.schedules.find("nightly")


STATE = st.sampled_from([WAITING, STARTED, "stopping"])


@given(
    st.sampled_from(["suspend", "replace", "skip"]),
    st.integers(0, 4),
    st.lists(STATE, max_size=6),
    st.integers(0, 50),
    st.booleans(),
    st.sampled_from([0.0, 300.0]),
)
def test_the_rule_never_exceeds_its_room_and_forgets_nothing(policy, concurrency, states, minutes, catchup, expire_s):
    seen, now = NOON, NOON + 60 * minutes
    schedule = PipelineSchedule(
        name="s", file="", cron="*/10 * * * *", zone="UTC", seen=seen, concurrency=concurrency, policy=policy,
        catchup=catchup, expire_s=expire_s,
    )  # fmt: skip
    known = [Firing(schedule="s", due=seen - 600 * (6 - at), state=state) for at, state in enumerate(states)]
    found: Rule = rule(schedule, parse("*/10 * * * *", "UTC"), known, now)
    active = sum(one.state != WAITING for one in known)
    if concurrency:
        assert not found.start or active + len(found.start) <= concurrency
    touched = [one.due for one in (*found.start, *(one for one in found.skipped if one.due in {k.due for k in known}))]
    assert len(touched) == len(set(touched)), "nothing is both begun and skipped"
    assert {one.due for one in found.stop} <= {one.due for one in known if one.state == STARTED}
    again = rule(replace(schedule, seen=found.seen), parse("*/10 * * * *", "UTC"), [], now)
    assert again.new == [], "what was seen is not seen again"
