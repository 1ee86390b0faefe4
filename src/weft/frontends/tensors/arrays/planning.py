"""Looks at a computation before it runs: its graph as a drawing, its tasks, and the memory that they need."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from weft.frontends.tensors import sources
from weft.frontends.tensors.arrays import runners
from weft.frontends.tensors.arrays.array import Tensor
from weft.frontends.tensors.arrays.registry import public
from weft.frontends.tensors.chunks import known
from weft.frontends.tensors.compiler import compile_nodes
from weft.frontends.tensors.eager import small
from weft.frontends.tensors.nodes import walk
from weft.frontends.tensors.unknown_lengths import DeferredNode
from weft.graph.draw import to_dot, to_text
from weft.model.errors import ProgramError, UsageError
from weft.model.wording import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.frontends.tensors.compiler import Compiled

_DRAWN = ("svg", "png", "pdf")
"""The formats that Graphviz makes."""


@public()
class ComputationPlan(Struct, frozen=True):
    """What a computation would do. Sizes are bytes; they leave out what depends on data (`later`)."""

    tasks: int
    """The number of tasks; 0 if the calling thread computes all."""
    direct: bool
    """Whether the calling thread computes all, without tasks."""
    result: int
    """The bytes of the results."""
    read: int
    """The bytes of the sources that tasks read: files, arrays in memory, results of earlier computations."""
    largest: int
    """The most bytes that one task has at a time: its inputs, its output, and its work space."""
    operation: str
    """The name of the vertex of the largest task."""
    budget: int | None
    """The bytes for values in the current session; None: none is open."""
    later: bool
    """Whether a part of the graph is made when lengths are known that depend on data."""
    graph: str
    """The graph as text: a line for each vertex."""

    @property
    def fits(self) -> bool:
        """Whether the largest task fits into the memory of the session."""
        return self.budget is None or self.largest <= self.budget

    def __repr__(self) -> str:
        how = "computed by the calling thread, without tasks" if self.direct else counted(self.tasks, "task")
        room = "no session is open" if self.budget is None else f"{self.budget:,} bytes for values"
        lines = [
            how,
            f"results       {self.result:,} bytes",
            f"sources       {self.read:,} bytes",
            f"largest task  {self.largest:,} bytes ({self.operation})",
            f"memory        {room}{'' if self.fits else ': TOO LITTLE for the largest task'}",
        ]
        if self.later:
            lines.append("A part is planned when lengths are known that depend on data.")
        return "\n".join([*lines, "", self.graph])


def _tensors(things: Sequence[Any]) -> list[Tensor]:
    listed = list(things[0]) if len(things) == 1 and isinstance(things[0], list | tuple) else list(things)
    if not listed or not all(isinstance(one, Tensor) for one in listed):
        file = next((one for one in listed if isinstance(one, str | os.PathLike)), None)
        hint = "Give arrays of weft.tensor." if file is None else f"Name the file so: filename={str(file)!r}."
        raise UsageError("there is no array to look at", hint=hint)
    return listed


def _compiled(given: Sequence[Tensor]) -> Compiled:
    return compile_nodes([one._node for one in given], name="tensors")


@public(method=True)
def explain(*arrays: Tensor) -> ComputationPlan:
    """Return what a computation of arrays would do, and compute nothing. UsageError: there is no array."""
    given = _tensors(arrays)
    nodes = [one._node for one in given]
    session = runners.found()
    compiled = _compiled(given)
    order = walk(nodes)
    direct = (session is None or session.direct) and small(nodes) is not None
    largest = max(compiled.needs, key=lambda need: need.total, default=None)
    vertices = compiled.graph.vertices.values()
    return ComputationPlan(
        tasks=0 if direct else sum([n for one in vertices if isinstance(n := one.parallelism, int)]),
        direct=direct,
        result=sum([node.nbytes for node in nodes if known(node.grid)]),
        read=sum([one.nbytes for one in order if sources.is_source(one) and known(one.grid)]),
        largest=0 if largest is None else largest.total,
        operation="" if largest is None else largest.vertex,
        budget=None if session is None else session.budget,
        later=any(isinstance(one, DeferredNode) for one in order),
        graph=to_text(compiled.graph),
    )


@public(method=True)
def visualize(*arrays: Tensor, filename: Any = None, format: str | None = None) -> Any:
    """Draw the graph of a computation, and compute nothing.

    Without a file the drawing is returned as text. A file gets a drawing by its ending: `.txt`, `.dot` (DOT, for
    Graphviz), or `.svg`, `.png` and `.pdf`, which Graphviz makes; its path is returned. UsageError: there is no array,
    no such format, or Graphviz is not installed. ProgramError: Graphviz fails.
    """
    graph = _compiled(_tensors(arrays)).graph
    if filename is None and format is None:
        return to_text(graph)
    path = Path("tensors" if filename is None else os.path.expanduser(filename))
    if format is not None:
        path = path.with_name(f"{path.name}.{format}") if path.suffix != f".{format}" else path
    kind = path.suffix.removeprefix(".")
    if kind in ("txt", "dot", "gv"):
        path.write_text((to_text if kind == "txt" else to_dot)(graph) + "\n")
        return str(path)
    if kind not in _DRAWN:
        raise UsageError(
            f"{path.name} has no ending of a drawing", hint="Give a file that ends with .txt, .dot, .svg, .png or .pdf."
        )
    program = shutil.which("dot")
    if program is None:
        raise UsageError(
            "Graphviz, which draws .svg, .png and .pdf, is not installed",
            hint="Install it, or write a .dot file and draw it elsewhere.",
        )
    made = subprocess.run(
        [program, f"-T{kind}", "-o", str(path)], input=to_dot(graph), text=True, capture_output=True, check=False
    )
    if made.returncode:
        raise ProgramError(f"Graphviz has failed: {made.stderr.strip()}", hint="Write a .dot file and look at it.")
    return str(path)
