"""Texts and numbers in HTML and SVG."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Final

from weft.model.masking import without_passwords
from weft.model.wording import clean

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


def table(caption: str, heads: Sequence[str], rows: Iterable[Sequence[str]], numeric: Sequence[int] = ()) -> str:
    """Return a table; "" without rows. Cells are HTML, the first of each row is its header.

    `caption` is for screen readers, `numeric` are the columns that are aligned at the right.
    """
    body = []
    for cells in rows:
        shown = "".join(f"<td{' class=n' if at in numeric else ''}>{cell}</td>" for at, cell in enumerate(cells[1:], 1))
        body.append(f'<tr><th scope="row">{cells[0]}</th>{shown}</tr>')
    if not body:
        return ""
    head = "".join(
        f'<th scope="col"{" class=n" if at in numeric else ""}>{text(name)}</th>' for at, name in enumerate(heads)
    )
    return (
        f'<div class="wide" tabindex="0" role="region" aria-label="{text(caption)}"><table>'
        f'<caption class="unseen">{text(caption)}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table></div>"
    )
