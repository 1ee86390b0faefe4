"""Texts and numbers in HTML and SVG."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Final

from weft.model.masking import without_passwords
from weft.model.wording import clean, duration

PAGE_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'"
"""The content security policy of a page without scripts, which loads nothing."""


def text(value: object) -> str:
    """Return a value as text of HTML: escaped, without control characters, and without the passwords of URLs."""
    return escape("".join(c for c in clean(without_passwords(str(value))) if c.isprintable() or c == "\n"), quote=True)


def number(value: float) -> str:
    """Return a number as text: a whole one in full, another one in at most four digits."""
    if abs(value) < 1e9 and value == int(value):
        return f"{int(value):,}"
    return f"{value:.4g}"


def cut(value: str, most: int) -> str:
    """Return a text cut to `most` characters, the last of which then is an ellipsis."""
    return value if len(value) <= most else f"{value[: most - 1]}…"


def time_text(seconds: float) -> str:
    """Return a time span as text, in milliseconds if it is shorter than a second."""
    return f"{max(seconds, 0.0) * 1000:.0f} ms" if seconds < 0.9995 else duration(seconds)


def table(caption: str, heads: Sequence[str], rows: Iterable[Sequence[str]], numeric: Sequence[int] = ()) -> str:
    """Return a table; "" without rows. Cells are HTML, the first of each row is its header.

    `caption` is for screen readers, `numeric` are the columns that are aligned at the right. A column without any
    content is left out.
    """
    rows = list(rows)
    shown = [at for at in range(len(heads)) if at == 0 or any(cells[at] for cells in rows)]
    if not rows:
        return ""
    aligned = {at: " class=n" if at in numeric else " class=why" if heads[at] == "why" else "" for at in shown}
    body = "".join(
        f'<tr><th scope="row">{cells[0]}</th>'
        + "".join(f"<td{aligned[at]}>{cells[at]}</td>" for at in shown[1:])
        + "</tr>"
        for cells in rows
    )
    head = "".join(f'<th scope="col"{aligned[at]}>{text(heads[at])}</th>' for at in shown)
    return (
        f'<div class="wide" tabindex="0" role="region" aria-label="{text(caption)}"><table>'
        f'<caption class="unseen">{text(caption)}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )
