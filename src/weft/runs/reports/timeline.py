"""The time line of a run: a row for each step or group of steps, with bars of attempts or their number over time."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from weft.model.ids import loop_item
from weft.model.wording import counted
from weft.runs.reports.markup import cut, text, time_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from weft.runs.reports.spans import AttemptSpan

MOST_ROWS: Final = 60
"""The number of rows up to which each step has one of its own."""
_MOST_BARS: Final = 80
_MOST_LEVELS: Final = 4
_BINS: Final = 200
_WIDTH, _HEIGHT = 1000.0, 18.0
_MARKS: Final = 4
_DIGITS: Final = re.compile(r"[0-9]+")


def time_line(spans: Mapping[str, Sequence[AttemptSpan]], begin: float, end: float, *, whole: bool = False) -> str:
    """Return the time line from `begin` to `end` (seconds since 1970) as a table; "" without attempts.

    `whole`: an attempt stands for all tasks of a step, from the first start to the last end, so its time is no cost.

    Steps whose names differ only in numbers share a row if there are more than `MOST_ROWS`; later rows share the last.
    """
    rows = _rows(spans)
    if not rows:
        return ""
    span = max(end - begin, 1e-3)
    marks = "".join(f"<span>{time_text(span * at / _MARKS)}</span>" for at in range(_MARKS + 1))
    body = "".join(_row(name, found, begin, span, whole=whole) for name, found in rows)
    return (
        '<div class="wide" tabindex="0" role="region" aria-label="Time line"><table class="times">'
        '<caption class="unseen">The attempts of each step over the time of the run</caption><thead><tr>'
        f'<th scope="col">step</th><th scope="col" class="bar"><div class="axis">{marks}</div></th>'
        f'<th scope="col" class="n">{"time" if whole else "busy"}</th></tr></thead><tbody>{body}</tbody></table></div>'
    )


def _rows(spans: Mapping[str, Sequence[AttemptSpan]]) -> list[tuple[str, Sequence[AttemptSpan]]]:
    """Return the rows, in order of their starts: a name and attempts for each."""
    if len(spans) <= MOST_ROWS:
        rows: list[tuple[str, Sequence[AttemptSpan]]] = list(spans.items())
    else:
        groups: dict[str, list[str]] = {}
        for name in spans:
            groups.setdefault(_DIGITS.sub("*", name), []).append(name)
        rows = [
            (names[0] if len(names) == 1 else f"{stem} ({len(names):,} steps)", _joined(spans, names))
            for stem, names in groups.items()
        ]
    rows.sort(key=lambda row: row[1][0].started)
    if len(rows) > MOST_ROWS:
        rest = rows[MOST_ROWS - 1 :]
        joined = sorted((span for _, found in rest for span in found), key=lambda span: span.started)
        rows = [*rows[: MOST_ROWS - 1], (f"{len(rest):,} further rows", joined)]
    return rows


def _joined(spans: Mapping[str, Sequence[AttemptSpan]], names: Iterable[str]) -> list[AttemptSpan]:
    return sorted((span for name in names for span in spans[name]), key=lambda span: span.started)


def _row(name: str, spans: Sequence[AttemptSpan], begin: float, length: float, *, whole: bool) -> str:
    last = max(span.ended for span in spans)
    busy = time_text(last - spans[0].started if whole else sum(span.seconds for span in spans))
    levels = _levels(spans) if len(spans) <= _MOST_BARS else None
    told = _told(name, spans, begin)
    running = any(span.state == "running" for span in spans)
    drawn = "".join(_bars(spans, levels, begin, length)) if levels is not None else _profile(spans, begin, length)
    return (
        f'<tr><th scope="row" title="{text(name)}">{text(cut(name, 60))}</th><td class="bar">'
        f'<svg viewBox="0 0 {_WIDTH:g} {_HEIGHT:g}" preserveAspectRatio="none" role="img" aria-label="{text(told)}"'
        f"{' class=s-running' if running else ''}>"
        f'<rect class="track" x="0" y="8" width="{_WIDTH:g}" height="1"/>{drawn}</svg></td>'
        f'<td class="n">{busy}</td></tr>'
    )


def _told(name: str, spans: Sequence[AttemptSpan], begin: float) -> str:
    failed = sum(span.state == "failed" for span in spans)
    first, last = spans[0].started - begin, max(span.ended for span in spans) - begin
    failures = f", {failed:,} failed" if failed else ""
    return f"{name}: {counted(len(spans), 'attempt')} from {time_text(first)} to {time_text(last)}{failures}"


def _levels(spans: Sequence[AttemptSpan]) -> list[int] | None:
    """Return a level for each attempt, so that none covers another; None if there are too many levels."""
    ends: list[float] = []
    found = []
    for span in spans:
        level = next((at for at, end in enumerate(ends) if end <= span.started), len(ends))
        if level == len(ends):
            if level == _MOST_LEVELS:
                return None
            ends.append(0.0)
        ends[level] = span.ended
        found.append(level)
    return found


def _bars(spans: Sequence[AttemptSpan], levels: Sequence[int], begin: float, length: float) -> Iterator[str]:
    high = (_HEIGHT - 4) / (max(levels) + 1)
    for span, level in zip(spans, levels, strict=True):
        left = max(0.0, min(1.0, (span.started - begin) / length)) * _WIDTH
        width = max(2.0, span.seconds / length * _WIDTH - 1)
        task = span.step if span.index is None else loop_item(span.step, span.index)
        told = f"{task}: attempt {span.attempt + 1} {span.state}, {time_text(span.seconds)}"
        thick = max(1.0, high - (1 if high < 10 else 0))
        yield (
            f'<rect class="span s-{text(span.state)}" x="{min(left, _WIDTH - 2):.1f}" y="{2 + level * high:.1f}" '
            f'width="{width:.1f}" height="{thick:.1f}"><title>{text(told)}</title></rect>'
        )


def _profile(spans: Sequence[AttemptSpan], begin: float, length: float) -> str:
    """Return the number of attempts that run at a time as an area, and the times of failures as marks."""
    busy = [0.0] * _BINS
    bad = [False] * _BINS
    each = length / _BINS
    for span in spans:
        first = min(_BINS - 1, max(0, int((span.started - begin) / each)))
        last = min(_BINS - 1, max(first, int((span.ended - begin) / each)))
        if first == last:
            busy[first] += span.seconds / each
        else:
            busy[first] += first + 1 - (span.started - begin) / each
            busy[last] += (span.ended - begin) / each - last
            for at in range(first + 1, last):
                busy[at] += 1
        bad[last] = bad[last] or span.state == "failed"
    most = max(max(busy), 1e-9)
    step = _WIDTH / _BINS
    points = "".join(
        f"V{_HEIGHT - 1 - value / most * (_HEIGHT - 3):.1f}H{(at + 1) * step:g}" for at, value in enumerate(busy)
    )
    marks = "".join(
        f'<rect class="bad" x="{at * step:g}" y="0" width="{step:g}" height="4"/>' for at, one in enumerate(bad) if one
    )
    return f'<path class="many" d="M0 {_HEIGHT - 1:g}{points}V{_HEIGHT - 1:g}z"/>{marks}'
