"""The style of output: states with symbol and colour, times, tables, and user text without control characters."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, tzinfo
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, TextIO

from msgspec import Struct

from weft.model.patterns import late_pattern
from weft.model.wording import clean as clean
from weft.model.wording import size_text

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

_LEAST_WRAPPED, _LEAST_CUT = 30, 8
_LONG_PATH: Final = late_pattern(r"(?<![\w/])/[^\s;:,()]{39,}")


class StateStyle(Struct, frozen=True):
    """The style of a state, never by colour alone."""

    symbol: str
    plain: str
    style: str


LOOKS: Final[Mapping[str, StateStyle]] = {
    "pending": StateStyle("·", ".", "dim"),
    "running": StateStyle("▶", ">", "cyan"),
    "terminating": StateStyle("◼", "#", "yellow"),
    "succeeded": StateStyle("✔", "+", "green"),
    "failed": StateStyle("✘", "x", "bold red"),
    "terminated": StateStyle("■", "#", "yellow"),
    "cancelled": StateStyle("○", "o", "yellow"),
    "skipped": StateStyle("↷", "-", "dim"),
    "interrupted": StateStyle("!", "!", "magenta"),
    "suspended": StateStyle("‖", "=", "yellow"),
    "damaged": StateStyle("✗", "x", "bold red"),
}
_CONDITIONS: Final[Mapping[str, StateStyle]] = {
    "created": LOOKS["pending"],
    "restarting": StateStyle("↻", "~", "yellow"),
    "complete": LOOKS["succeeded"],
    "queued": LOOKS["pending"],
    "unmanaged": LOOKS["skipped"],
}
"""The styles of conditions of jobs that are no states."""
_UNKNOWN: Final = StateStyle("?", "?", "")


def look(state: str) -> StateStyle:
    """Return the style of a state, or of a condition of a job; an unknown state gets a question mark."""
    word = state.lower()
    return LOOKS.get(word) or _CONDITIONS.get(word, _UNKNOWN)


def one_line(text: str, limit: int = 200) -> str:
    """Return the first line of a text, cleaned and cut."""
    first = text.strip() if text.isprintable() else clean(text).strip().split("\n", 1)[0]
    return first if len(first) <= limit else first[: limit - 1] + "…"


def short_paths(text: str) -> str:
    """Return a text with long paths cut to their ends, so that a table shows the rest of the text."""
    return _LONG_PATH.sub(lambda path: "…/" + "/".join(path[0].split("/")[-2:]), text)


def tags_text(tags: Mapping[str, str]) -> str:
    """Return tags as text: `keep, stage=test`."""
    return one_line(", ".join(f"{name}={value}" if value else name for name, value in tags.items()))


def amounts_text(amounts: Mapping[str, float]) -> str:
    """Return amounts of resources as text: `2 cores, 1.5 GiB of memory, 1 GPU`."""
    words = {"cpu": "core", "gpu": "GPU"}
    return ", ".join(
        f"{size_text(amount)} of memory"
        if name == "memory"
        else f"{amount:g} {words.get(name, name)}{'' if amount == 1 else 's'}"
        for name, amount in amounts.items()
    )


def moment(time: float | None, zone: tzinfo | None = None, form: str = "%Y-%m-%d %H:%M:%S") -> str:
    """Return a time (seconds since 1970) as local text; empty for None."""
    return "" if time is None else datetime.fromtimestamp(time, UTC).astimezone(zone).strftime(form)


def iso(time: float | None) -> str | None:
    """Return a time (seconds since 1970) in ISO 8601, UTC."""
    return None if time is None else datetime.fromtimestamp(time, UTC).isoformat(timespec="milliseconds")


def short_path(path: Path | str, cwd: Path) -> str:
    """Return a path as typed in folder `cwd`: relative if it is below, quoted where a shell needs it."""
    path = Path(path)
    shown = str(path.relative_to(cwd)) if path.is_relative_to(cwd) else str(path)
    return shlex.quote(clean(shown).replace("\n", "?"))


def output_path(path: Path | str, cwd: Path, missing: str = "not there") -> str:
    """Return the path of an output as `short_path` does, marked with `missing` if the file is missing."""
    return short_path(path, cwd) if os.path.lexists(path) else f"{short_path(path, cwd)} ({missing})"


class PlainPage:
    """A page of plain text, of any width: rich takes longer to load than most commands take for all else."""

    is_terminal: Final = False
    no_color: Final = True

    def __init__(self, file: IO[str]) -> None:
        self.file = file
        self.width = 1_000

    def print(self, *parts: object) -> None:
        """Write a line, its parts with a blank between them."""
        self.file.write(f"{' '.join(map(str, parts))}\n")


def console(stream: TextIO, environ: Mapping[str, str], color: str) -> Console | PlainPage:
    """Return a console for `stream`, or a page for one without colours; `color` is auto, always or never."""
    terminal, forced = stream.isatty(), True if color == "always" else None
    if not (terminal or forced):
        return PlainPage(stream)
    from rich.console import Console

    class Unbroken(Console):
        def on_broken_pipe(self) -> None:
            raise

    known = {name: value for name, value in environ.items() if name not in ("NO_COLOR", "FORCE_COLOR")}
    return Unbroken(
        file=stream,
        force_terminal=forced,
        no_color=color == "never",
        color_system=None if color == "never" else "auto",
        markup=False,
        highlight=False,
        emoji=False,
        soft_wrap=not terminal,
        width=None if terminal else 1_000,
        _environ=known,
    )


def unicode_ok(stream: IO[str]) -> bool:
    """Whether a stream can encode the symbols of `LOOKS`."""
    return (getattr(stream, "encoding", None) or "utf-8").lower().replace("-", "") == "utf8"


def state_text(state: str, out: Console | PlainPage) -> str | Text:
    """Return a state with its symbol, and with its style where that is shown."""
    found = look(state)
    text = f"{found.symbol if unicode_ok(out.file) else found.plain} {clean(state)}"
    if isinstance(out, PlainPage):
        return text
    from rich.text import Text

    return Text(text, style=found.style)


def print_table(out: Console | PlainPage, heads: Sequence[str], rows: Sequence[Sequence[str | Text]]) -> None:
    """Print rows under their heads; user text must be clean already. Without rows, print nothing.

    A message is cut if the other columns leave too little room for it. Without a terminal, lines have no trailing
    blanks and any width.
    """
    if not rows:
        return
    if not out.is_terminal:
        out.file.write(_plain_table(heads, rows))
        return
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold", show_edge=False)
    left = out.width - sum(_width(column) + 2 for column in [*zip(heads, *rows, strict=True)][:-1])
    for head in heads:
        if head == "MESSAGE" and left < _LEAST_WRAPPED:
            table.add_column(head, no_wrap=True, overflow="ellipsis", max_width=max(left, _LEAST_CUT))
        else:
            table.add_column(head, no_wrap=head not in ("MESSAGE", "VALUE", "ORIGIN"), overflow="fold")
    for row in rows:
        table.add_row(*row)
    out.print(table)


def _plain_table(heads: Sequence[str], rows: Sequence[Sequence[str | Text]]) -> str:
    """Return a table without colours: rich takes longer for its lines than most commands for all else."""
    texts = [[cell if isinstance(cell, str) else cell.plain for cell in row] for row in (heads, *rows)]
    ascii_only = "".join(map("".join, texts)).isascii()
    widths = [max(map(len, column)) if ascii_only else _width(column) for column in zip(*texts, strict=True)]
    if ascii_only:
        line = "  ".join(f"{{:{width}}}" for width in widths).format
        return "".join([f"{line(*row).rstrip()}\n" for row in texts])
    return "".join([f"{'  '.join(map(_padded, row, widths)).rstrip()}\n" for row in texts])


def _padded(cell: str, width: int) -> str:
    if cell.isascii():
        return cell.ljust(width)
    from rich.cells import cell_len

    return cell + " " * (width - cell_len(cell))


def _width(column: Sequence[str | Text]) -> int:
    from rich.cells import cell_len

    return max(cell_len(cell if isinstance(cell, str) else cell.plain) for cell in column)


def print_json(out: TextIO, schema: str, **document: Any) -> None:
    """Print one JSON document; `schema` names its form and version."""
    out.write(json_text({"schema": schema, **document}, out, indent=2) + "\n")


def json_text(document: Mapping[str, Any], out: TextIO, indent: int | None = None) -> str:
    """Return a document as JSON in readable letters, or with escapes where the encoding of `out` is not UTF-8.

    A byte of a name that is not UTF-8 is written as `\\udcXX`.
    """
    text = json.dumps(document, ensure_ascii=not unicode_ok(out), indent=indent, default=_plain)
    return text.encode(errors="backslashreplace").decode()


def _plain(value: object) -> object:
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")
