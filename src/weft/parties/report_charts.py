"""Charts of reports as SVG, without scripts: lines, bars of bins, the graph of components, and their times."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from weft.runs.reports.markup import number, text

_WIDTH, _HEIGHT = 340, 210
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 10, 10, 30
_TICKS: Final = 4
_BOX_W, _BOX_H, _GAP_X, _GAP_Y = 220, 42, 18, 26
_SMALLEST: Final = 0.6
"""A graph shrinks so far to fit the page; a larger one is scrolled, since nobody could read it."""
_MOST_POINTS: Final = 400
_BAR_W: Final = 600
_LARGEST: Final = 1e100
Points = Sequence[Sequence[float]]


# --------------------------------------------------------------------------------------------------------------- lines


def line_chart(
    title: str, lines: Sequence[tuple[str, Points]], x_label: str, y_label: str, *, diagonal: bool = False
) -> str:
    """Return a figure with lines of (x, y). `diagonal` draws the line of a random choice."""
    lines = [(name, _finite(points)) for name, points in lines]
    lines = [(name, points) for name, points in lines if points]
    if not lines:
        return ""
    xs = [point[0] for _, points in lines for point in points]
    ys = [point[1] for _, points in lines for point in points]
    area = _Area(_ticks(min(xs), max(xs), whole=all(x == int(x) for x in xs)), _ticks(min(ys), max(ys)))
    parts = [area.axes(x_label, y_label)]
    if diagonal:
        parts.append(f'<path class="diagonal" d="M{area.at(0, 0)}L{area.at(1, 1)}"/>')
    for at, (_, points) in enumerate(lines):
        if len(points) == 1:
            x, y = area.place(*points[0])
            parts.append(f'<circle class="dot c{at % 4}" cx="{x:.1f}" cy="{y:.1f}" r="3"/>')
        path = "L".join(area.at(x, y) for x, y in points)
        parts.append(f'<path class="line c{at % 4}" d="M{path}"/>')
    names = "".join(
        f'<span class="key"><i class="c{at % 4}"></i>{text(name)}</span>' for at, (name, _) in enumerate(lines)
    )
    legend = f'<div class="legend">{names}</div>' if len(lines) > 1 else ""
    return (
        f'<figure class="chart"><figcaption>{text(title)}</figcaption>'
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{text(title)}">{"".join(parts)}</svg>'
        f"{legend}</figure>"
    )


class _Area:
    """The area of a chart, with its scales."""

    def __init__(self, x: Sequence[float], y: Sequence[float]) -> None:
        self._x, self._y = x, y

    def place(self, x: float, y: float) -> tuple[float, float]:
        """Return the place of a point in the picture."""
        return (
            _LEFT + _share(x, self._x[0], self._x[-1]) * (_WIDTH - _LEFT - _RIGHT),
            _HEIGHT - _BOTTOM - _share(y, self._y[0], self._y[-1]) * (_HEIGHT - _TOP - _BOTTOM),
        )

    def at(self, x: float, y: float) -> str:
        """Return the place of a point as text of a path."""
        return "{:.1f} {:.1f}".format(*self.place(x, y))

    def axes(self, x_label: str, y_label: str) -> str:
        """Return grid, numbers and names of both axes."""
        parts = []
        for y in self._y:
            up = self.place(self._x[0], y)[1]
            parts.append(f'<path class="grid" d="M{_LEFT} {up:.1f}H{_WIDTH - _RIGHT}"/>')
            parts.append(f'<text x="{_LEFT - 6}" y="{up + 3:.1f}" text-anchor="end">{number(y)}</text>')
        for at, x in enumerate(self._x):
            anchor = "start" if at == 0 else "end" if at == len(self._x) - 1 else "middle"
            place = f'x="{self.place(x, self._y[0])[0]:.1f}" y="{_HEIGHT - _BOTTOM + 13}"'
            parts.append(f'<text {place} text-anchor="{anchor}">{number(x)}</text>')
        middle = (_LEFT + _WIDTH - _RIGHT) / 2
        parts.append(f'<text x="{middle}" y="{_HEIGHT - 3}" text-anchor="middle">{text(x_label)}</text>')
        turned = f'transform="translate(9 {(_HEIGHT - _BOTTOM) / 2}) rotate(-90)"'
        parts.append(f'<text {turned} text-anchor="middle">{text(y_label)}</text>')
        return "".join(parts)


def _ticks(low: float, high: float, *, whole: bool = False) -> list[float]:
    """Return round numbers in equal steps, from one at or below `low` to one at or above `high`."""
    most = max(abs(low), abs(high))
    if high - low <= max(1e-9 * most, 1e-300):  # equal, but for rounding
        low, high = low - max(0.5, most / 2), high + max(0.5, most / 2)
    rough = (high - low) / _TICKS
    unit = 10.0 ** math.floor(math.log10(rough))
    step = next(unit * one for one in (1, 2, 2.5, 5, 10) if unit * one >= rough * 0.999)
    step = max(1.0, math.ceil(step)) if whole else step
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(at * step, 12) for at in range(first, last + 1)]


def _share(value: float, low: float, high: float) -> float:
    return (value - low) / (high - low) if high > low else 0.5


def _finite(points: Points) -> list[tuple[float, float]]:
    """Return the points that are numbers, thinned to those that can be seen."""
    found = [(float(x), float(y)) for x, y in points if _is_number(x) and _is_number(y)]
    step = max(1, -(-len(found) // _MOST_POINTS))
    return [*found[::step], found[-1]] if found and (len(found) - 1) % step else found[::step]


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and abs(value) < _LARGEST  # NaN is not, either


# ---------------------------------------------------------------------------------------------------------------- bins


def bin_bars(values: Sequence[float]) -> str:
    """Return small bars above and below a line, such as weights of evidence by bin."""
    values = [float(one) if _is_number(one) else 0.0 for one in values]
    if not values:
        return ""
    most = max(max(map(abs, values)), 1e-12)
    width, height = 12.0 * len(values), 34.0
    bars = []
    for at, one in enumerate(values):
        size = abs(one) / most * (height / 2 - 1)
        top = height / 2 - size if one >= 0 else height / 2
        bars.append(
            f'<rect class="{"up" if one >= 0 else "down"}" x="{at * 12 + 1}" y="{top:.1f}" width="10" '
            f'height="{max(size, 0.5):.1f}"/>'
        )
    told = ", ".join(number(one) for one in values)
    return (
        f'<svg class="bins" viewBox="0 0 {width:g} {height:g}" width="{width:g}" height="{height:g}" role="img" '
        f'aria-label="{told}"><path class="grid" d="M0 {height / 2}H{width:g}"/>{"".join(bars)}</svg>'
    )


# --------------------------------------------------------------------------------------------------------------- graph


def graph_chart(components: Sequence[Mapping[str, Any]]) -> str:
    """Return the graph of components, from above to below; each box has the state of its component."""
    levels: dict[str, int] = {}
    for one in components:
        levels[one["name"]] = 1 + max((levels.get(above, -1) for above in one["upstream"]), default=-1)
    rows: dict[int, list[Mapping[str, Any]]] = {}
    for one in components:
        rows.setdefault(levels[one["name"]], []).append(one)
    widest = max((len(row) for row in rows.values()), default=1)
    width = widest * _BOX_W + (widest - 1) * _GAP_X + 4
    places: dict[str, tuple[float, float]] = {}
    for level, row in rows.items():
        left = (width - len(row) * _BOX_W - (len(row) - 1) * _GAP_X) / 2
        for at, one in enumerate(row):
            places[one["name"]] = left + at * (_BOX_W + _GAP_X), 2.0 + level * (_BOX_H + _GAP_Y)
    height = len(rows) * (_BOX_H + _GAP_Y) - _GAP_Y + 4
    edges = "".join(
        _edge(places[above], places[one["name"]]) for one in components for above in one["upstream"] if above in places
    )
    boxes = "".join(_box(one, *places[one["name"]]) for one in components)
    return (
        f'<div class="wide"><svg class="graph" viewBox="0 0 {width:g} {height:g}" width="{width:g}" '
        f'height="{height:g}" style="min-width:{_SMALLEST * width:.0f}px" role="img" '
        f'aria-label="The graph of components">{edges}{boxes}</svg></div>'
    )


def _edge(above: tuple[float, float], below: tuple[float, float]) -> str:
    x1, y1 = above[0] + _BOX_W / 2, above[1] + _BOX_H
    x2, y2 = below[0] + _BOX_W / 2, below[1]
    bend = min(_GAP_Y, (y2 - y1)) * 0.6
    return f'<path class="edge" d="M{x1:g} {y1:g}C{x1:g} {y1 + bend:g} {x2:g} {y2 - bend:g} {x2:g} {y2:g}"/>'


def _box(one: Mapping[str, Any], x: float, y: float) -> str:
    name, module = _cut(one["name"], 25), _cut(one["module"], 22)
    status = text(one["status"])
    return (
        f'<g class="s-{status}"><title>{text(one["name"])}: {status}</title>'
        f'<rect class="box" x="{x:g}" y="{y:g}" width="{_BOX_W}" height="{_BOX_H}" rx="7"/>'
        f'<circle class="state" cx="{x + 14:g}" cy="{y + _BOX_H / 2:g}" r="4.5"/>'
        f'<text class="name" x="{x + 27:g}" y="{y + 18:g}">{text(name)}</text>'
        f'<text x="{x + 27:g}" y="{y + 32:g}">{text(module)} · {status}</text></g>'
    )


def _cut(name: str, most: int) -> str:
    return name if len(name) <= most else f"{name[: most - 1]}…"


# --------------------------------------------------------------------------------------------------------------- times


def time_bars(components: Sequence[Mapping[str, Any]], begin: float, end: float) -> str:
    """Return a bar for each component that has begun here, from the start of the first to `end`."""
    span = max(end - begin, 1e-9)
    rows = []
    for one in components:
        if one["started"] is None:
            continue
        left = max(0.0, (one["started"] - begin) / span)
        right = min(1.0, ((one["ended"] or end) - begin) / span)
        bar = f'x="{left * _BAR_W:.1f}" y="3" width="{max((right - left) * _BAR_W, 2):.1f}" height="10" rx="2"'
        rows.append(
            f'<tr><th scope="row">{text(one["name"])}</th><td class="bar"><svg viewBox="0 0 {_BAR_W} 16" '
            f'preserveAspectRatio="none" class="s-{text(one["status"])}" aria-hidden="true"><rect {bar}/></svg></td>'
            f"<td>{text(one['took'])}</td></tr>"
        )
    return f'<table class="times">{"".join(rows)}</table>' if rows else ""
