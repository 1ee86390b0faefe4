"""Pictures of arrays for notebooks: a table of properties, and the chunks as an SVG."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from math import prod
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from weft.frontends.tensors.types import NumpyArray

FEW = 1000
"""Arrays of at most this many elements are shown with all their values."""
EDGE = 3
"""How many elements are shown at each end of an axis of a larger one."""
_LONGEST, _SHORTEST = 160.0, 24.0
"""How long the longest side is drawn, and the shortest, in pixels."""
_LINES = 24
"""How many lines between chunks are drawn along an axis at most."""
_DEPTH = 0.45
"""How far the third axis goes to the right and down, for each pixel of its length."""
_MARGIN = 6.0


def values(dtype: np.dtype[np.generic], shape: Sequence[int], corners: NumpyArray) -> str:
    """Return the text of an array with values for `repr`; `corners` has all of them, or those near the ends."""
    large = prod(shape) > FEW
    shown = np.array2string(corners, separator=", ", prefix="Tensor(", threshold=0 if large else FEW, edgeitems=EDGE)
    usual = dtype in (np.int64, np.float64, np.complex128, np.bool) and corners.size
    more = (f", shape={tuple(shape)}" if large or not corners.size else "") + ("" if usual else f", dtype={dtype}")
    return f"Tensor({shown}{more})"


def html(
    chunks: Sequence[Sequence[int]], dtype: np.dtype[np.generic], nbytes: int | None, state: str, name: str
) -> str:
    """Return a table with shape, chunks, type and bytes, beside a drawing of the last three axes.

    A length of -1 is not known; so are the bytes then, and nothing is drawn.
    """
    known = all(n >= 0 for axis in chunks for n in axis)
    shape = tuple([sum(axis) if all(n >= 0 for n in axis) else -1 for axis in chunks])
    largest = tuple([max(axis, default=0) if all(n >= 0 for n in axis) else -1 for axis in chunks])
    count = 1
    for axis in chunks:
        count *= len(axis)
    rows = [
        ("Shape", _tuple(shape)),
        ("Chunks", f"{count:,} of at most {_tuple(largest)}" if count != 1 else "1"),
        ("Type", str(dtype)),
        ("Bytes", "?" if nbytes is None else _bytes(nbytes)),
        ("Made by", f"{name}, {state}"),
    ]
    cells = "".join(f"<tr><th>{key}</th><td>{escape(value)}</td></tr>" for key, value in rows)
    table = f'<table style="border-collapse:collapse"><tbody>{cells}</tbody></table>'
    drawn = picture(chunks[-3:]) if known and chunks else ""
    return f'<div style="display:flex;align-items:center;gap:1em">{table}{drawn}</div>'


def picture(chunks: Sequence[Sequence[int]]) -> str:
    """Return an SVG of the chunks of one to three axes: the last one to the right, the one before down."""
    lengths = [sum(axis) for axis in chunks]
    longest = max(*lengths, 1)
    sides = [max(_SHORTEST, _LONGEST * n / longest) for n in lengths]
    if len(sides) == 1:
        sides, chunks = [_SHORTEST, *sides], [(1,), *chunks]
    high, wide = sides[-2:]
    ys, xs = _cuts(chunks[-2], high), _cuts(chunks[-1], wide)
    deep = sides[0] * _DEPTH if len(sides) == 3 else 0.0
    zs = _cuts(chunks[0], deep) if deep else [0.0]
    left = top = _MARGIN
    parts = []
    if deep:
        right, below = left + wide, top + high
        upper = [(left, top), (right, top), (right + deep, top + deep), (left + deep, top + deep)]
        side = [(left, top), (left, below), (left + deep, below + deep), (left + deep, top + deep)]
        parts += [_polygon(upper), _polygon(side)]
        parts += [_line(left + z, top + z, left + wide + z, top + z) for z in zs[1:-1]]
        parts += [_line(left + z, top + z, left + z, top + high + z) for z in zs[1:-1]]
        parts += [_line(left + x, top, left + x + deep, top + deep) for x in xs[1:-1]]
        parts += [_line(left, top + y, left + deep, top + y + deep) for y in ys[1:-1]]
    x0, y0 = left + deep, top + deep
    parts.append(_polygon([(x0, y0), (x0 + wide, y0), (x0 + wide, y0 + high), (x0, y0 + high)]))
    parts += [_line(x0, y0 + y, x0 + wide, y0 + y) for y in ys[1:-1]]
    parts += [_line(x0 + x, y0, x0 + x, y0 + high) for x in xs[1:-1]]
    width, height = wide + deep + 2 * _MARGIN, high + deep + 2 * _MARGIN
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.1f} {height:.1f}" role="img" aria-label="chunks" '
        f'style="fill:#3b7ea1;fill-opacity:.18;stroke:#3b7ea1">{"".join(parts)}</svg>'
    )


def _cuts(axis: Sequence[int], length: float) -> list[float]:
    """Return the borders of chunks along a side; of many borders a selection."""
    total = sum(axis) or 1
    at, places = 0, [0.0]
    for n in axis:
        at += n
        places.append(length * at / total)
    step = -(-(len(places) - 1) // _LINES)
    return places if step <= 1 else [*places[:-1:step], places[-1]]


def _line(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def _polygon(points: Sequence[tuple[float, float]]) -> str:
    return f'<polygon points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in points)}"/>'


def _tuple(lengths: Sequence[int]) -> str:
    inner = ", ".join("?" if n < 0 else f"{n:,}" for n in lengths)
    return f"({inner},)" if len(lengths) == 1 else f"({inner})"


def _bytes(n: int) -> str:
    size = float(n)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if size < 1024 or unit == "TiB":
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    raise AssertionError
