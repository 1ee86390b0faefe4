"""Conditional joins: choose a broadcast or a shuffle join by the measured size of a side.

The right join depends on bytes that are unknown before the scans have run: a side that fits into the memory of each
task is broadcast, two large sides are shuffled. The graph has both plans as branches of a choice. The manager of the
decider chooses as soon as a side has ended and is small, or when all sides have ended and none is small. The decider's
own task runs only if a size is unknown, for example of a side that came from a cache.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from weft.engine.decisions import Choose, Finish, Schedule
from weft.engine.policy import InputView, VertexManager, View
from weft.model.errors import GraphError

if TYPE_CHECKING:
    from weft.engine.decisions import Decision
    from weft.graph.logical import Edge, LogicalGraph, Vertex

UNDER_BYTES = 64 * 2**20


class BroadcastChoice(VertexManager):
    """The manager of the decider of `choice`, which comes after the sides.

    `small` maps a side (the vertex that scans it) to the branch taken if the side has at most `under` bytes; the
    smallest side wins. `otherwise` is the branch taken if all sides have ended and none is small. With `together` the
    vertices of `small` are one side, of which those that were skipped have no bytes: all name the same branch.
    """

    holds = True
    counts = True

    def __init__(
        self,
        choice: str,
        small: Mapping[str, str],
        otherwise: str,
        under: int = UNDER_BYTES,
        *,
        together: bool = False,
    ) -> None:
        if not small:
            raise GraphError("small names no vertex", rule="manager", hint="Give small={vertex: branch}.")
        if under < 0:
            raise GraphError(f"under is {under} bytes; at least 0 is allowed", rule="manager")
        if together and len(set(small.values())) > 1:
            raise GraphError(
                f"small names {len(set(small.values()))} branches for vertices that are one side together",
                rule="manager",
                hint="Give all vertices the same branch.",
            )
        self.choice = choice
        self.small = small
        self.otherwise = otherwise
        self.under = under
        self.together = together

    def check(self, vertex: Vertex, inputs: Sequence[Edge], graph: LogicalGraph) -> None:
        """Refuse a choice, a branch or a side that there is not."""
        own = {choice.id: choice for choice in graph.choices if choice.decider == vertex.id}
        if self.choice not in own:
            raise GraphError(
                f"choice is {self.choice!r}, which {vertex.id!r} does not decide",
                hint=f"Choices of {vertex.id!r}: {', '.join(sorted(own)) or 'none'}.",
            )
        branches = own[self.choice].branches
        named = [("otherwise", self.otherwise), *((f"small of {side!r}", name) for side, name in self.small.items())]
        for field, branch in named:
            if branch not in branches:
                raise GraphError(
                    f"{field} is {branch!r}, which is no branch of choice {self.choice!r}",
                    hint=f"Branches: {', '.join(branches)}.",
                )
        before = [edge.src for edge in inputs]
        for side in self.small:
            if side not in before:
                raise GraphError(
                    f"small names {side!r}, which {vertex.id!r} does not come after",
                    hint=f"It comes after: {', '.join(before) or 'none'}. Add after({side}) to its inputs.",
                )

    def decide(self, view: View, memo: Any) -> tuple[Sequence[Decision], Any]:
        """Choose once, as soon as the sizes that have arrived decide."""
        if memo:
            return (), memo
        sides = [source for source in view.inputs if source.source in self.small]
        if self.together:
            return self._decide_together(view, sides)
        fitting = [side for side in sides if side.ended and 0 <= side.nbytes <= self.under]
        if fitting:
            side = min(fitting, key=lambda side: side.nbytes)
            why = f"{side.source} has {side.nbytes:,} bytes, at most {self.under:,} are small"
            return self._take(view, self.small[side.source], why), True
        if not all(side.ended for side in sides):
            return (), memo
        if any(side.nbytes < 0 for side in sides):
            return (Schedule(view.vertex, view.n),), True
        sizes = ", ".join(f"{side.source} has {side.nbytes:,} bytes" for side in sides)
        return self._take(view, self.otherwise, f"{sizes}; more than {self.under:,} are not small"), True

    def _decide_together(self, view: View, sides: Sequence[InputView]) -> tuple[Sequence[Decision], Any]:
        if not all(side.ended for side in sides):
            return (), None
        ran = [side for side in sides if side.finished]
        if any(side.nbytes < 0 for side in ran):
            return (Schedule(view.vertex, view.n),), True
        nbytes = sum(side.nbytes for side in ran)
        names = ", ".join(side.source for side in ran) or ", ".join(side.source for side in sides)
        if nbytes <= self.under:
            why = f"{names} have {nbytes:,} bytes, at most {self.under:,} are small"
            return self._take(view, next(iter(self.small.values())), why), True
        return self._take(
            view, self.otherwise, f"{names} have {nbytes:,} bytes; more than {self.under:,} are not small"
        ), True

    def _take(self, view: View, branch: str, why: str) -> tuple[Decision, ...]:
        return Choose(self.choice, branch), Finish(view.vertex, f"{why}: {branch}")
