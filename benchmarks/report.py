"""Rows for people: a table on the terminal, a page for `docs/`."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.contestants import PEERS

if TYPE_CHECKING:
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


def page(suites: Mapping[str, tuple[Sequence[Spec], Sequence[Row]]], rounds: int, quiet: bool) -> str:
    """Return the page with all suites in Markdown: what each row is, and what came of it."""
    parts = [
        "# Benchmarks",
        "Written by `make bench`; every figure was measured in that one run.",
        f"- Machine: {machine()}\n- Weft: Python {platform.python_version()}, {weft_version()}\n"
        f"- Peers: {', '.join(peers())}\n- Rounds: {rounds}, the two sides of a row in turn; medians"
        + ("" if quiet else "\n- **The machine was not quiet**: figures are worse than they could be"),
        "A *ratio* is Weft's figure over the peer's: smaller is better, and the target is the largest that is good. "
        "Rows\nwithout a peer have a target for the figure itself. Building and checking the graph is inside the time, "
        "starting\nprocesses and importing is not; all results are checked by value after the time was taken.",
        "The speed of a shared machine changes. A calibration is therefore timed before each round: a loop of\n"
        "Python, fresh memory, the start of an interpreter and one fsync (`benchmarks/calibration.py`). A time or a\n"
        "rate without a peer is *scaled* by the piece that resembles it to a reference phase, and the target bounds\n"
        "the scaled figure. *Spread* is the least and the greatest round of the figure that the target bounds. No row\n"
        "is measured again because of its figure.",
    ]
    for name, (specs, rows) in suites.items():
        parts.append(f"## {name}")
        lines = [f"| {' | '.join(HEADINGS)} |", f"|{'---|' * len(HEADINGS)}"]
        lines += [f"| {' | '.join(cells(row))} |" for row in rows]
        parts.append("\n".join(lines))
        parts.append("\n".join(f"- `{spec.name}`: {spec.about}" for spec in specs))
    return "\n\n".join(parts) + "\n"


def weft_version() -> str:
    """Name this version of Weft."""
    from weft._version import __version__

    return f"version {__version__}"


_PEERS = ("daft=", "dask=", "distributed=", "numpy=", "pyspark=", "ray=", "snakemake=")


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
