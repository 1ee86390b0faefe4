"""Repeating times: the five fields of cron as PaddleFlow's scheduler reads them (robfig's `ParseStandard`).

Minute, hour, day of the month, month, day of the week: `*`, `?`, numbers, ranges, lists, steps (`0/15` starts at 0),
and names of months and days. If both days are restricted, either is enough. `@hourly` and similar, `@every 1h30m`, and
a zone in front (`CRON_TZ=Asia/Shanghai`). As in cron, and not there, 7 is Sunday, and a range may end with it: `5-7`,
`mon-sun`. This module does not read the clock.

Times that a change of clocks skips are left out; a time that occurs twice is taken once, unless every hour matches.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta, tzinfo
from typing import Final, NamedTuple, Protocol
from zoneinfo import ZoneInfo

from msgspec import Struct

from weft.model.errors import UsageError

LONGEST: Final = 200
"""The maximum length of an expression, in characters."""
_DAYS: Final = 366 * 9
"""The days within which every possible date occurs: 29 February may be eight years away."""
_AROUND: Final = 3
"""The maximum hours by which a zone changes its clocks."""
_LAST_YEAR: Final = 9_000
_ALIASES: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_MONTHS: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_WEEKDAYS: Final = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_UNITS: Final = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0}
_LONGEST: Final = 1_000_000_000
_ROUNDING: Final = 1e-6
_DURATION: Final = re.compile(r"(?:\d+(?:\.\d+)?[dhms])+")
_ZONE: Final = re.compile(r"(?:CRON_TZ|TZ)=(\S+)\s+(.*)")
_HINT: Final = "Five fields: minute, hour, day of the month, month, day of the week, such as 0 8 * * 1-5"


class _Field(NamedTuple):
    """The name of a field, its bounds, and the names of its values, from the lowest.

    As many numbers as `more` above the bounds begin again with the lowest.
    """

    name: str
    low: int
    high: int
    names: tuple[str, ...] = ()
    more: int = 0

    @property
    def greatest(self) -> int:
        return self.high + self.more

    @property
    def bounds(self) -> str:
        return f"Its range is {self.low} to {self.greatest}. {_HINT}"


_FIELDS: Final = (
    _Field("minute", 0, 59),
    _Field("hour", 0, 23),
    _Field("day of the month", 1, 31),
    _Field("month", 1, 12, _MONTHS),
    _Field("day of the week", 0, 6, _WEEKDAYS, 1),
)


class Times(Protocol):
    """Repeating times."""

    def since(self, time: float) -> Iterator[float]:
        """Yield the times after `time`, in order, all in seconds since 1970."""
        ...

    def after(self, time: float, seen: float) -> Iterator[float]:
        """Yield the times after `time`, if all up to `seen` are known already."""
        ...


class Every(Struct, frozen=True):
    """Times at a fixed distance in seconds, counted from the requested start."""

    seconds: float

    def since(self, time: float) -> Iterator[float]:
        """Yield the times after `time`, in order, all in seconds since 1970."""
        while True:
            time = float(int(time)) + self.seconds
            yield time

    def after(self, time: float, seen: float) -> Iterator[float]:
        """Yield the times after `time`, counted from `seen`, the last known time."""
        passed = max(0.0, (time - int(seen)) // self.seconds)
        return self.since(seen + passed * self.seconds)


class Cron(Struct, frozen=True):
    """The times of five fields in a zone. `either`: a match of the day of the month or of the week is enough."""

    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    either: bool
    zone: tzinfo

    def since(self, time: float) -> Iterator[float]:
        """Yield the times after `time`, in order, all in seconds since 1970."""
        begin = datetime.fromtimestamp(time, self.zone).replace(tzinfo=None) - timedelta(hours=_AROUND)
        day, hour = begin.date(), begin.hour
        while day.year < _LAST_YEAR:
            if self.fits(day):
                for one in self.hours:
                    if one >= hour:
                        yield from (found for found in sorted(self._in(day, one)) if found > time)
            day, hour = day + timedelta(days=1), 0

    def after(self, time: float, seen: float) -> Iterator[float]:
        """Yield the times after `time`, if all up to `seen` are known already."""
        return self.since(max(time, seen))

    def fits(self, day: date) -> bool:
        """Whether a day has times."""
        by_month, by_week = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        return day.month in self.months and (by_month or by_week if self.either else by_month and by_week)

    def _in(self, day: date, hour: int) -> Iterator[float]:
        for minute in self.minutes:
            for fold in (0, 1) if len(self.hours) == 24 else (0,):
                local = datetime(day.year, day.month, day.day, hour, minute, fold=fold, tzinfo=self.zone)
                moment = local.astimezone(UTC)
                back = moment.astimezone(self.zone)
                if back.replace(tzinfo=None) == local.replace(tzinfo=None) and back.fold == fold:
                    yield moment.timestamp()


def parse(text: str, zone: str = "") -> Times:
    """Parse an expression; `zone` is the zone of an expression without one (default: that of this machine).

    UsageError: the expression is invalid, never matches, or names an unknown zone.
    """
    text = text.strip()
    if len(text) > LONGEST:
        raise UsageError(f"the schedule has {len(text)} characters, of at most {LONGEST}")
    match = _ZONE.fullmatch(text)
    if match is not None:
        zone, text = match[1], match[2].strip()
    where = _zone(zone)
    if text.startswith("@every "):
        return Every(_duration(text.removeprefix("@every ").strip()))
    if text.startswith("@"):
        if text not in _ALIASES:
            raise UsageError(f"there is no {text!r}", hint=f"There are: {', '.join(_ALIASES)}, @every 1h30m")
        text = _ALIASES[text]
    parts = text.split()
    if len(parts) != len(_FIELDS):
        raise UsageError(f"{text!r} has {len(parts)} fields, not 5", hint=_HINT)
    sets, stars = zip(*(_values(part, of) for part, of in zip(parts, _FIELDS, strict=True)), strict=True)
    minutes, hours, days, months, weekdays = sets
    found = Cron(
        tuple(sorted(minutes)),
        tuple(sorted(hours)),
        frozenset(days),
        frozenset(months),
        frozenset(weekdays),
        not (stars[2] or stars[4]),
        where,
    )
    if not any(found.fits(date(2096, 1, 1) + timedelta(days=n)) for n in range(_DAYS)):
        raise UsageError(f"{text!r} never comes: there is no such day", hint=_HINT)
    return found


def _values(text: str, of: _Field) -> tuple[set[int], bool]:
    """Return the values of a field, and whether it is unrestricted."""
    found: set[int] = set()
    star = False
    for part in text.split(","):
        span, slash, step = part.partition("/")
        low, dash, high = span.partition("-")
        if low in ("*", "?") and not dash:
            first, last = of.low, of.high
            star = star or step in ("", "1")
        else:
            first = _number(low, of)
            last = _number(high, of) if dash else of.high if slash else first
        if of.more and dash and high.lower() == of.names[0] and first > last:
            last = of.greatest
        by = int(step) if step.isascii() and step.isdigit() and len(step) < 4 else 0 if slash else 1
        if by < 1 or first > last:
            raise UsageError(f"{part!r} is not a valid {of.name}", hint=of.bounds)
        found.update(of.low + (value - of.low) % (of.high - of.low + 1) for value in range(first, last + 1, by))
    return found, star


def _number(text: str, of: _Field) -> int:
    if text.lower() in of.names:
        return of.names.index(text.lower()) + of.low
    if text.isascii() and text.isdigit() and len(text) < 4 and of.low <= int(text) <= of.greatest:
        return int(text)
    raise UsageError(f"{text!r} is not a valid {of.name}", hint=of.bounds)


def _duration(text: str) -> float:
    if not _DURATION.fullmatch(text):
        raise UsageError(
            f"@every {text}: not a time", hint="Write numbers with d, h, m or s, such as: @every 1d, @every 1h30m"
        )
    seconds = sum(float(part[:-1]) * _UNITS[part[-1]] for part in re.findall(r"[\d.]+[dhms]", text))
    if not 1 <= seconds <= _LONGEST:
        raise UsageError(f"@every {text}: the time must be 1 to {_LONGEST:,} seconds", hint="For example: @every 1h30m")
    if abs(seconds - round(seconds)) > _ROUNDING:
        raise UsageError(
            f"@every {text}: schedules count in whole seconds", hint="For example: @every 90s, @every 1.5h"
        )
    return float(round(seconds))


def zone_of(text: str, zone: str = "") -> tzinfo:
    """Return the zone of an expression, as `parse` takes it. UsageError: it is unknown."""
    match = _ZONE.match(text.strip())
    return _zone(match[1] if match else zone)


def _zone(name: str) -> tzinfo:
    if not name:
        return _here()
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise UsageError(f"there is no time zone {name[:60]!r}", hint="For example: Europe/Berlin, UTC") from None


def _here() -> tzinfo:
    """Return the zone of this machine, with daylight saving time if the machine has its rules."""
    try:
        with open("/etc/localtime", "rb") as file:
            return ZoneInfo.from_file(file, "local")
    except (OSError, ValueError):
        return UTC
