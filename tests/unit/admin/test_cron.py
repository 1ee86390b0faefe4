"""Times that repeat: the golden vectors of the original's library, zones, and what is refused."""

from datetime import UTC, datetime
from itertools import islice, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.admin.cron import Cron, parse
from weft.model.errors import UsageError

BEGIN = datetime(2024, 2, 27, 10, 3, 30, tzinfo=UTC).timestamp()


def times(text: str, count: int, zone: str = "UTC", begin: float = BEGIN) -> list[str]:
    found = list(islice(parse(text, zone).since(begin), count))
    for before, at in pairwise(found):
        assert next(parse(text, zone).since(before)) == at, "whoever asks again gets the same"
    return [datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S") for at in found]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("*/10 * * * *", ["2024-02-27 10:10:00", "2024-02-27 10:20:00"]),
        ("0/15 * * * *", ["2024-02-27 10:15:00", "2024-02-27 10:30:00"]),
        ("0 0 1 * 1", ["2024-03-01 00:00:00", "2024-03-04 00:00:00"]),
        ("0 0 31 * *", ["2024-03-31 00:00:00", "2024-05-31 00:00:00"]),
        ("0 0 29 2 *", ["2024-02-29 00:00:00", "2028-02-29 00:00:00"]),
        ("@every 90s", ["2024-02-27 10:05:00", "2024-02-27 10:06:30"]),
        ("CRON_TZ=Asia/Shanghai 0 8 * * *", ["2024-02-28 00:00:00", "2024-02-29 00:00:00"]),
        ("TZ=Asia/Shanghai 0 8 * * *", ["2024-02-28 00:00:00"]),
        ("? ? ? ? ?", ["2024-02-27 10:04:00"]),
        ("0 0 */2 * 1", ["2024-02-29 00:00:00", "2024-03-01 00:00:00"]),
        ("0 0 */1 * 1", ["2024-03-04 00:00:00", "2024-03-11 00:00:00"]),
        ("30 9-11 * JAN-mar mon,FRI", ["2024-03-01 09:30:00", "2024-03-01 10:30:00"]),
        ("@hourly", ["2024-02-27 11:00:00"]),
        ("@daily", ["2024-02-28 00:00:00"]),
        ("@weekly", ["2024-03-03 00:00:00"]),
        ("@monthly", ["2024-03-01 00:00:00"]),
        ("@yearly", ["2025-01-01 00:00:00"]),
        ("@every 1.1m", ["2024-02-27 10:04:36", "2024-02-27 10:05:42"]),
        ("@every 1h30m", ["2024-02-27 11:33:30", "2024-02-27 13:03:30"]),
        ("@every 1d12h", ["2024-02-28 22:03:30", "2024-03-01 10:03:30"]),
    ],
)
def test_when(text, expected):
    assert times(text, len(expected)) == expected


@pytest.mark.parametrize(
    "text",
    ["0 0 * * 8", "0 0 * * 7-1", "0 0 * * tue-mon", "0 0 * nov-jan *", "0 0 * 13 *",
     "0 0 L * *", "@reboot", "0 0 * * * *", "0 0 30 2 *", "", "* * * *", "60 * * * *", "*/0 * * * *",
     "5-1 * * * *", "a * * * *", "1,, * * * *", "*-5 * * * *", "@every 0s", "@every -1m", "@every 5", "@every",
     "@every 1.5s", "@every 1h0.25s", "@every 1w",
     "CRON_TZ=No/Where * * * * *", "CRON_TZ=../../etc/passwd * * * * *", "* " * 200, "٣ * * * *", "0 0 31 2,4 *"],
)  # fmt: skip
def test_what_is_refused(text):
    with pytest.raises(UsageError):
        parse(text, "UTC")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("7", {0}),
        ("SUN", {0}),
        ("sun-sun", {0}),
        ("0,7", {0}),
        ("5-7", {5, 6, 0}),
        ("5-7/2", {5, 0}),
        ("fri-sun", {5, 6, 0}),
        ("MON-SUN", set(range(7))),
        ("0-7", set(range(7))),
        ("sun-tue", {0, 1, 2}),
        ("3/2", {3, 5}),
        ("*/2", {0, 2, 4, 6}),
    ],
)
def test_sunday_is_the_first_and_the_last_day_of_the_week(text, expected):
    cron = parse(f"0 9 * * {text}", "UTC")
    assert isinstance(cron, Cron)
    assert cron.weekdays == expected


def test_a_time_that_is_too_long_is_told_as_one():
    with pytest.raises(UsageError, match="1 to 1,000,000,000 seconds"):
        parse("@every 1000000001s", "UTC")


def test_a_clock_that_is_put_forward_leaves_times_out():
    begin = datetime(2024, 3, 30, 12, tzinfo=UTC).timestamp()
    assert times("30 2 * * *", 2, "Europe/Berlin", begin) == ["2024-04-01 00:30:00", "2024-04-02 00:30:00"]
    assert times("0 * * * *", 15, "Europe/Berlin", begin)[-3:] == [
        "2024-03-31 01:00:00",
        "2024-03-31 02:00:00",
        "2024-03-31 03:00:00",
    ]


def test_a_clock_that_is_put_back_repeats_only_what_comes_every_hour():
    begin = datetime(2024, 10, 26, 23, 50, tzinfo=UTC).timestamp()
    assert times("30 2 * * *", 2, "Europe/Berlin", begin) == ["2024-10-27 00:30:00", "2024-10-28 01:30:00"]
    assert times("*/30 * * * *", 5, "Europe/Berlin", begin) == [
        "2024-10-27 00:00:00",
        "2024-10-27 00:30:00",
        "2024-10-27 01:00:00",
        "2024-10-27 01:30:00",
        "2024-10-27 02:00:00",
    ]


FIELD = st.one_of(st.just("*"), st.integers(1, 6).map(str), st.integers(1, 9).map(lambda n: f"*/{n}"))


@given(st.tuples(FIELD, FIELD, FIELD, FIELD, FIELD), st.integers(0, 4_000_000_000))
def test_each_time_is_later_and_nothing_lies_between(fields, begin):
    cron = parse(" ".join(fields), "UTC")
    assert isinstance(cron, Cron)
    found = next(cron.since(begin))
    assert found > begin
    assert found % 60 == 0
    assert next(cron.since(found - 1)) == found
    minute = datetime.fromtimestamp(found, UTC)
    assert (minute.minute in cron.minutes, minute.hour in cron.hours, minute.month in cron.months) == (True,) * 3
    assert next(cron.since((begin + found) / 2)) == found


@pytest.mark.parametrize(
    ("text", "seen", "now", "expected"),
    [
        ("@every 7s", 100.0, 130.0, [135.0, 142.0]),
        ("@every 7s", 100.0, 135.0, [142.0, 149.0]),
        ("@every 7s", 100.5, 130.0, [135.0, 142.0]),
        ("@every 7s", 200.0, 130.0, [207.0, 214.0]),
        ("* * * * *", 100.0, 130.0, [180.0, 240.0]),
        ("* * * * *", 200.0, 130.0, [240.0, 300.0]),
    ],
)
def test_the_next_times_are_those_that_will_fire(text, seen, now, expected):
    assert list(islice(parse(text, "UTC").after(now, seen), 2)) == expected
    fired = (time for time in parse(text, "UTC").since(seen) if time > now)
    assert list(islice(fired, 2)) == expected
