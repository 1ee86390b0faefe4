"""The graph of a run as SVG: boxes in layers from above to below, edges as curves that go around other boxes."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from weft.runs.reports.markup import cut, text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from weft.runs.reports.drawn import DrawnBox, DrawnGraph

_BOX_W, _BOX_H, _GAP_X, _GAP_Y = 196.0, 46.0, 22.0, 40.0
_DETOUR: Final = 14.0
"""The width of the detour of an edge that passes a layer."""
_WIDEST: Final = 6
"""The number of boxes beside each other; a wider layer takes several rows."""
_MOST_DETOURS: Final = 600
_SWEEPS: Final = 8
_SMALLEST: Final = 0.62
"""A picture shrinks so far to fit the page; a larger one is scrolled, since nobody could read it."""
_NAME, _NOTE = 26, 31


def svg_graph(graph: DrawnGraph, style: str = "") -> str:
    """Return a picture of a graph; with `style` a file of its own, else a part of a page with the style of reports."""
    rows, detours = _rows(graph)
    links = _links(detours)
    _sort(rows, links)
    places = _placed(rows, links, graph)
    left = min((x - _width(at, graph) / 2 for at, x in places.items()), default=0.0)
    right = max((x + _width(at, graph) / 2 for at, x in places.items()), default=_BOX_W)
    width, height = right - left + 8, len(rows) * (_BOX_H + _GAP_Y) - _GAP_Y + 8
    level = {at: number for number, row in enumerate(rows) for at in row}
    spots = {at: (x - left + 2, 2 + level[at] * (_BOX_H + _GAP_Y)) for at, x in places.items()}
    edges = "".join(
        f'<path class="edge{" order" if order else ""}" d="{_curve([spots[at] for at in detour])}"/>'
        for (_, _, order), detour in zip(graph.edges, detours, strict=True)
    )
    boxes = "".join(_box(box, *spots[at]) for at, box in enumerate(graph.boxes))
    size = f'width="{width:g}" height="{height:g}"'
    shrinks = "" if style else f' style="min-width:{min(width, _SMALLEST * width):.0f}px"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="graph" viewBox="0 0 {width:g} {height:g}" {size}{shrinks} '
        f'role="img" aria-label="{text(graph.title)}"><title>{text(graph.title)}</title>'
        f"{f'<style>{style}</style>' if style else ''}{_ARROW}{edges}{boxes}</svg>"
    )


_ARROW: Final = (
    '<defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="6" markerHeight="6" orient="auto">'
    '<path class="tip" d="M0 0L8 4L0 8z"/></marker></defs>'
)


def _rows(graph: DrawnGraph) -> tuple[list[list[int]], list[list[int]]]:
    """Return the rows of boxes and detours, and the way of each edge through them; detours are numbered after boxes."""
    layers: dict[int, list[int]] = defaultdict(list)
    for at, box in enumerate(graph.boxes):
        layers[box.layer].append(at)
    linked = {end for src, dst, _ in graph.edges for end in (src, dst)}
    rows: list[list[int]] = []
    for layer in sorted(layers):
        members = sorted(layers[layer], key=linked.__contains__)  # edges of a lower row pass no other one
        count = -(-len(members) // _WIDEST)
        size = -(-len(members) // count)
        rows += [members[first : first + size] for first in range(0, len(members), size)]
    level = {at: number for number, row in enumerate(rows) for at in row}
    ways: list[list[int]] = []
    next_detour = len(graph.boxes)
    for src, dst, _ in graph.edges:
        between = range(level[src] + 1, level[dst])
        way = [src]
        if next_detour - len(graph.boxes) + len(between) <= _MOST_DETOURS:
            for number in between:
                rows[number].append(next_detour)
                way.append(next_detour)
                next_detour += 1
        ways.append([*way, dst])
    return rows, ways


def _links(ways: Sequence[Sequence[int]]) -> tuple[Mapping[int, list[int]], Mapping[int, list[int]]]:
    """Return what lies above and below each box and detour."""
    above: dict[int, list[int]] = defaultdict(list)
    below: dict[int, list[int]] = defaultdict(list)
    for way in ways:
        for first, second in pairwise(way):
            below[first].append(second)
            above[second].append(first)
    return above, below


def _sort(rows: list[list[int]], links: tuple[Mapping[int, list[int]], Mapping[int, list[int]]]) -> None:
    """Sort each row by the middle of what lies above, then below, several times, so that few edges cross."""
    place = {at: float(number) for row in rows for number, at in enumerate(row)}
    for sweep in range(_SWEEPS):
        near = links[sweep % 2]
        for row in rows if sweep % 2 == 0 else reversed(rows):
            row.sort(key=lambda at: _mean([place[one] for one in near.get(at, ())], place[at]))
            for number, at in enumerate(row):
                place[at] = number - (len(row) - 1) / 2


def _mean(values: Sequence[float], usual: float) -> float:
    return sum(values) / len(values) if values else usual


def _placed(
    rows: Sequence[Sequence[int]], links: tuple[Mapping[int, list[int]], Mapping[int, list[int]]], graph: DrawnGraph
) -> dict[int, float]:
    """Return the middle of each box and detour, near those that it is linked with, in the order of its row."""
    widest = max((sum(_width(at, graph) for at in row) for row in rows), default=0.0)
    places: dict[int, float] = {}
    for row in rows:
        x = -sum(_width(at, graph) for at in row) / 2
        for at in row:
            places[at] = x + _width(at, graph) / 2
            x += _width(at, graph)
    for sweep in range(_SWEEPS):
        near = links[sweep % 2]
        for row in rows if sweep % 2 == 0 else reversed(rows):
            wished = [_mean([places[one] for one in near.get(at, ())], places[at]) for at in row]
            _spread(row, wished, places, [_width(at, graph) for at in row], widest / 2)
    return places


def _spread(
    row: Sequence[int], wished: Sequence[float], places: dict[int, float], widths: Sequence[float], edge: float
) -> None:
    """Place a row near the wished places, so that nothing overlaps and all lies within `edge` of the middle."""
    least = -edge
    found = []
    for wish, width in zip(wished, widths, strict=True):
        found.append(max(wish, least + width / 2))
        least = found[-1] + width / 2
    shift = sum(wish - x for wish, x in zip(wished, found, strict=True)) / max(1, len(row))
    most = edge
    for at, x, width in reversed(list(zip(row, found, widths, strict=True))):
        places[at] = min(x + shift, most - width / 2)
        most = places[at] - width / 2
    least = -edge
    for at, width in zip(row, widths, strict=True):  # the shift may have left the edge at the other side
        places[at] = max(places[at], least + width / 2)
        least = places[at] + width / 2


def _width(at: int, graph: DrawnGraph) -> float:
    """Return the width of a box with the gap beside it, or of a detour."""
    return _BOX_W + _GAP_X if at < len(graph.boxes) else _DETOUR


def _curve(spots: Sequence[tuple[float, float]]) -> str:
    """Return the path from the lower side of the first box, straight through detours, to the upper side of the last."""
    return "".join(_pieces(spots))


def _pieces(spots: Sequence[tuple[float, float]]) -> Iterator[str]:
    x, y = spots[0][0], spots[0][1] + _BOX_H
    yield f"M{x:.0f} {y:.0f}"
    for number, (to_x, to_y) in enumerate(spots[1:], 1):
        bend = min(_GAP_Y, abs(to_y - y)) * 0.6
        yield f"C{x:.0f} {y + bend:.0f} {to_x:.0f} {to_y - bend:.0f} {to_x:.0f} {to_y:.0f}"
        x, y = to_x, to_y
        if number < len(spots) - 1:
            y += _BOX_H
            yield f"V{y:.0f}"


def _box(box: DrawnBox, middle: float, y: float) -> str:
    x = middle - _BOX_W / 2
    many = "" if box.members == 1 else f"{box.members:,} vertices: "
    shown = f"{many}{box.note}" if many or box.state in box.note else f"{box.state}, {box.note}".removesuffix(", ")
    stack = f'<rect class="box" x="{x + 4:.0f}" y="{y + 4:.0f}" width="{_BOX_W:g}" height="{_BOX_H:g}" rx="7"/>'
    return (
        f'<g class="s-{text(box.state)}"><title>{text(box.name)}: {text(shown)}</title>'
        f"{stack if box.members > 1 else ''}"
        f'<rect class="box" x="{x:.0f}" y="{y:.0f}" width="{_BOX_W:g}" height="{_BOX_H:g}" rx="7"/>'
        f'<circle class="state" cx="{x + 14:.0f}" cy="{y + _BOX_H / 2:.0f}" r="4.5"/>'
        f'<text class="name" x="{x + 27:.0f}" y="{y + 20:.0f}">{text(cut(box.name, _NAME))}</text>'
        f'<text x="{x + 27:.0f}" y="{y + 35:.0f}">{text(cut(shown, _NOTE))}</text></g>'
    )
