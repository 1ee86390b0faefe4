"""Rows for people: a table on the terminal, a page for `docs/`."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.contestants import PEERS

if TYPE_CHECKING:
    from datetime import date

    from rich.table import Table

    from benchmarks.harness import Row, Spec

HEADINGS = ("row", "Weft", "unit", "peer", "peer's", "ratio", "scaled", "spread", "target", "ok")


def cells(row: Row) -> tuple[str, ...]:
    """Return what stands under each of `HEADINGS`."""
    theirs = "" if row.peer_value is None else number(row.peer_value)
    ratio = "" if row.ratio is None else number(row.ratio)
    ok = "yes" if row.ok else "no"
    value = "failed" if row.value is None else number(row.value)
    scaled = "" if row.scaled is None else number(row.scaled)
    spread = "" if row.spread is None else " to ".join(map(number, row.spread))
    return (row.name, value, row.unit, row.peer or "", theirs, ratio, scaled, spread, number(row.target), ok)


def number(value: float) -> str:
    """Write a number with three digits that count; whole thousands in groups."""
    if abs(value) >= 1000:
        return f"{float(f'{value:.3g}'):,.0f}"
    return f"{value:.3g}"


def table(rows: Iterable[Row]) -> Table:
    """Return the table for the terminal."""
    from rich.table import Table

    made = Table()
    for heading in HEADINGS:
        made.add_column(heading, justify="left" if heading in ("row", "unit", "peer", "ok") else "right", no_wrap=True)
    for row in rows:
        made.add_row(*cells(row), style=None if row.ok else "bold red")
    return made


_HEAD = """# Benchmarks

`make bench` measures all suites and writes this page. One suite is measured again, and its section written, by
`python -m benchmarks SUITE --write docs/benchmarks.md`; each section says where and when that was.

A *ratio* is Weft's figure over the peer's: smaller is better, and the target is the largest that is good. Rows
without a peer have a target for the figure itself. Building and checking the graph is inside the time, starting
processes and importing is not; all results are checked by value after the time was taken.

The speed of a shared machine changes. A calibration is therefore timed before each round: a loop of
Python, fresh memory, the start of an interpreter and one fsync (`benchmarks/calibration.py`). A time or a
rate without a peer is *scaled* by the piece that resembles it to a reference phase, and the target bounds
the scaled figure. *Spread* is the least and the greatest round of the figure that the target bounds. No row
is measured again because of its figure."""


class Measured(NamedTuple):
    """How the rows of a section were measured."""

    rounds: int
    quiet: bool
    on: date
    full: bool


def page(before: str, suites: Mapping[str, tuple[Sequence[Spec], Sequence[Row]]], measured: Measured) -> str:
    """Return the page in Markdown: `before`, with new sections for these suites."""
    _, *parts = before.split("\n## ")
    sections = {part.partition("\n")[0]: f"## {part.strip()}" for part in parts}
    for name, (specs, rows) in suites.items():
        sections[name] = section(name, specs, rows, measured)
    return "\n\n".join([_HEAD, *sections.values()]) + "\n"


def section(name: str, specs: Sequence[Spec], rows: Sequence[Row], measured: Measured) -> str:
    """Return the section of a suite: how it was measured, what came of each row, and what each row is."""
    lines = [f"| {' | '.join(HEADINGS)} |", f"|{'---|' * len(HEADINGS)}"]
    lines += [f"| {' | '.join(cells(row))} |" for row in rows]
    how = (
        f"- Measured: {measured.on.isoformat()}, {measured.rounds} rounds, the two sides of a row in turn; medians"
        + (", with `BENCHMARKS_FULL=1`" if measured.full else "")
        + f"\n- Machine: {machine()}\n- Weft: {weft_version()}, Python {platform.python_version()}"
        + f"\n- Peers: {', '.join(peers())}"
        + ("" if measured.quiet else "\n- **The machine was not quiet**: figures are worse than they could be")
    )
    about = "\n".join(f"- `{spec.name}`: {spec.about}" for spec in specs)
    return "\n\n".join([f"## {name}", how, "\n".join(lines), about])


def weft_version() -> str:
    """Name this version of Weft."""
    from weft._version import __version__

    return f"version {__version__}"


_PEERS = ("daft=", "dask=", "distributed=", "duckdb=", "jax=", "numpy=", "pyspark=", "ray=", "snakemake=", "torch=")


def peers() -> list[str]:
    """Return the pinned peers, without what they need in turn."""
    return [line.replace("==", " ") for line in PEERS.read_text().splitlines() if line.startswith(_PEERS)]


def machine() -> str:
    """Say what the figures were measured on."""
    model = platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        lines = (line.partition(":") for line in cpuinfo.read_text().splitlines())
        model = next((value.strip() for key, _, value in lines if key.strip() == "model name"), model)
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    return f"{len(os.sched_getaffinity(0))} cores of {model}, {memory:.0f} GiB, {platform.system()}"
