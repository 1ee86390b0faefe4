"""How long tasks take, as earlier jobs of the session have measured it: a small job then needs no probe of its own."""

from __future__ import annotations

from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Final

from weft.model.program import Style

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from weft.engine.inspector import VertexRow
    from weft.graph.logical import Vertex

_VERTICES: Final = 16
"""The most vertices of a job that uses estimates: in a larger one probes are a small part."""
_KEPT: Final = 256
"""The most functions whose estimates are kept."""


def _code(vertex: Vertex) -> CodeType | None:
    """Return what identifies the work of a vertex; None for a function that may do anything, as a closure does."""
    program = vertex.program
    target = program.target if program is not None and program.style is Style.FUNCTION else None
    return target.__code__ if type(target) is FunctionType and target.__closure__ is None else None


class Estimates:
    """The seconds of a task by function, as the last job that ran it has measured them."""

    def __init__(self) -> None:
        self._known: dict[CodeType | None, float] = {}

    def of(self, vertices: Mapping[str, Vertex]) -> tuple[tuple[str, float], ...]:
        """Return the seconds of a task of each vertex of a small job, as far as its function is known."""
        known = self._known
        if not known or len(vertices) > _VERTICES:
            return ()
        codes = ((id, _code(vertex)) for id, vertex in vertices.items())
        return tuple([(id, known[code]) for id, code in codes if code in known])

    def learn(self, rows: Sequence[VertexRow]) -> None:
        """Take over what a job has measured, if it is small."""
        for row in rows if len(rows) <= _VERTICES else ():
            code = _code(row.vertex) if row.seconds >= 0 else None
            if code is not None:
                self._known.pop(code, None)  # the latest go last
                self._known[code] = row.seconds
                if len(self._known) > _KEPT:
                    del self._known[next(iter(self._known))]
