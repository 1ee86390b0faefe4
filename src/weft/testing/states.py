"""Draw the five lifecycles: `docs/states/*.md`, one page for each table of `weft.engine.machines`.

``python -m weft.testing.states`` writes the pages, ``--check`` writes nothing and exits with 1 if one is stale. The
content of a page comes from the code: states and their meanings from the enum and its comments, arcs from the table.
"""

from __future__ import annotations

import argparse
import inspect
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from weft.engine.machines.bubble import BUBBLE, BubbleState
from weft.engine.machines.job import JOB, JobState
from weft.engine.machines.lease import LEASE, LeaseState
from weft.engine.machines.table import Table, arcs, final
from weft.engine.machines.task import COMPOSITES, TASK, TaskState
from weft.engine.machines.vertex import VERTEX, VertexState

if TYPE_CHECKING:
    from enum import Enum

FOLDER = Path("docs") / "states"


class Machine(NamedTuple):
    """One lifecycle: its name, its states with the first one first, its table, and paths taken in one write."""

    name: str
    states: type[Enum]
    table: Table[Any]
    composites: dict[str, tuple[Any, ...]]


MACHINES = (
    Machine("job", JobState, JOB, {}),
    Machine("vertex", VertexState, VERTEX, {}),
    Machine("bubble", BubbleState, BUBBLE, {}),
    Machine("lease", LeaseState, LEASE, {}),
    Machine("task", TaskState, TASK, {name: tuple(path) for name, path in COMPOSITES.items()}),
)


def meanings(states: type[Enum]) -> dict[str, str]:
    """Return the meaning of each state, by its name: the comment behind it in the source."""
    found = re.findall(r"^    (\w+) = [^#\n]+  # (.+)$", inspect.getsource(states), re.MULTILINE)
    return dict(found)


def diagram(machine: Machine) -> str:
    """Return the Mermaid text of one lifecycle; causes with the same arc share an arrow."""
    ways: dict[tuple[str, str], list[str]] = {}
    for here, cause, there in arcs(machine.table):
        ways.setdefault((here, there), []).append(cause)
    lines = ["stateDiagram-v2", f"    [*] --> {next(iter(machine.states)).name}"]
    lines += [f"    {here} --> {there}: {', '.join(causes)}" for (here, there), causes in ways.items()]
    ends = final(machine.table)
    lines += [f"    {state.name} --> [*]" for state in machine.states if state in ends]
    return "\n".join(lines)


def page(machine: Machine) -> str:
    """Return the page of one lifecycle as Markdown."""
    texts = meanings(machine.states)
    ends = {state.name for state in final(machine.table)}
    parts = [
        f"# The lifecycle of a {machine.name}",
        f"Drawn by `python -m weft.testing.states` from `weft.engine.machines.{machine.name}`.\n"
        "What is not here does not happen.",
        f"```mermaid\n{diagram(machine)}\n```",
        "## States",
        _table(
            ("state", "what is true in it"),
            [
                (state.name, texts.get(state.name, "") + (" (final)" if state.name in ends else ""))
                for state in machine.states
            ],
        ),
        "## Arcs",
        _table(("from", "cause", "to"), list(arcs(machine.table))),
    ]
    if machine.composites:
        parts += [
            "## Paths taken in one write",
            _table(
                ("name", "path"),
                [(name, " → ".join(state.name for state in path)) for name, path in machine.composites.items()],
            ),
        ]
    return "\n\n".join(parts) + "\n"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def stale(folder: Path) -> list[str]:
    """Return the names of the pages in `folder` that are missing or outdated."""
    found = []
    for machine in MACHINES:
        path = folder / f"{machine.name}.md"
        if not path.is_file() or path.read_text(encoding="utf-8") != page(machine):
            found.append(path.name)
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Write or check the pages; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m weft.testing.states", description="Draw the lifecycles.")
    parser.add_argument("folder", nargs="?", type=Path, default=FOLDER, help="where the pages are (docs/states)")
    parser.add_argument("--check", action="store_true", help="write nothing, exit with 1 if a page is stale")
    options = parser.parse_args(arguments)
    folder: Path = options.folder
    old = stale(folder)
    if options.check:
        if old:
            sys.stderr.write(f"{folder} is stale ({', '.join(old)}): run python -m weft.testing.states.\n")
        return 1 if old else 0
    folder.mkdir(parents=True, exist_ok=True)
    for machine in MACHINES:
        (folder / f"{machine.name}.md").write_text(page(machine), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
