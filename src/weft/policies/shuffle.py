"""The parallelism of a shuffle's readers: partitions are grouped by their measured bytes.

A shuffle writes more partitions than it may have readers, because the sizes are unknown before. Neighbouring partitions
are packed up to a target size, so that small partitions share a task; then the groups are evened out. A partition far
over the target is split by ranges of its sources if the reader permits it: a join repeats the other side, if the kind
of the join allows that. A split costs more than it saves while the heaviest task is no longer than the others of a
worker together, so the number of workers counts, except for a partition that is much over the target.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any

from weft.engine.decisions import SetParallelism
from weft.engine.policy import InputView, VertexManager, View
from weft.graph.logical import MovementKind, Range
from weft.graph.rectangles import Rectangles
from weft.model.errors import GraphError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from weft.engine.decisions import Decision
    from weft.graph.logical import Edge, LogicalGraph, Vertex
    from weft.graph.routing import Router

TARGET_BYTES = 64 * 2**20
SKEW = 5
"""A partition is skewed if it exceeds the target and this many times the median."""
PAYS = 1.25
"""A partition is split if it exceeds one worker's share of all bytes this many times; else others fill the time."""
LARGEST = 16
"""A skewed partition over this many targets is split whether that pays or not: its reader may hold it in memory."""
MAY_SPLIT = {"inner": (0, 1), "left": (0,), "right": (1,), "full": (), "": ()}
"""The inputs of each kind of join that may be split while the other side is repeated."""


def pack(sizes: Sequence[int] | NDArray[Any], target: int) -> list[int]:
    """Group neighbouring partitions of `sizes` bytes to at most `target` bytes each, in as few groups as possible.

    Return the bounds of the groups for `Rectangles.from_groups`: group g has the partitions `bounds[g]:bounds[g + 1]`,
    from 0 to `len(sizes)`; no group is empty. A partition over `target` forms a group by itself. Cost: one pass, and a
    bisection for each group. GraphError: a target under 1 or a negative size.
    """
    if target < 1:
        raise GraphError(
            f"a target of {target} bytes holds no partition", rule="shuffle-target", hint="Give 1 or more."
        )
    own = _integers(sizes)
    ends = list(accumulate(own))
    return _pack(ends, target)


def _integers(sizes: Sequence[int] | NDArray[Any]) -> list[int]:
    """Return a list of Python integers: sums cannot overflow, and bisection of a list is faster than of an array."""
    own: list[int] = sizes.tolist() if hasattr(sizes, "tolist") else list(sizes)
    if own and min(own) < 0:
        at = next(index for index, size in enumerate(own) if size < 0)
        raise GraphError(f"partition {at} has a size of {own[at]} bytes", rule="partition-size")
    return own


def _pack(ends: list[int], target: int) -> list[int]:
    bounds = [0]
    begin, before = 0, 0
    while begin < len(ends):
        begin = max(begin + 1, bisect_right(ends, before + target, begin))
        before = ends[begin - 1]
        bounds.append(begin)
    return bounds


def even(sizes: Sequence[int] | NDArray[Any], target: int) -> list[int]:
    """Group as `pack` does, then lower the target while the number of groups stays: the largest group is smallest."""
    own = _integers(sizes)
    ends = list(accumulate(own))
    best = _pack(ends, target)
    if len(best) < 3:
        return best
    low, high = max(ends[-1] // (len(best) - 1), 1), target
    while low < high:
        middle = (low + high) // 2
        found = _pack(ends, middle)
        if len(found) <= len(best):
            best, high = found, middle
        else:
            low = middle + 1
    return best


class ShuffleManager(VertexManager):
    """The manager of a vertex that reads shuffles: sets `lo` to `hi` tasks by the bytes to read.

    `split` allows several tasks to read one partition (partial aggregation). `join` is the kind of join whose sides the
    two shuffles are: one side of a skewed partition is split while the other is repeated.
    """

    counts = True

    def __init__(
        self, target: int = TARGET_BYTES, lo: int = 1, hi: int = 1_000_000, *, split: bool = False, join: str = ""
    ) -> None:
        if target < 1:
            raise GraphError(f"target is {target} bytes; at least 1 is allowed", rule="manager")
        if not 1 <= lo <= hi:
            raise GraphError(f"lo is {lo} and hi is {hi}; 1 <= lo <= hi is allowed", rule="manager")
        if join not in MAY_SPLIT:
            kinds = ", ".join(repr(kind) for kind in MAY_SPLIT)
            raise GraphError(f"join is {join!r}", rule="manager", hint=f"Kinds of joins: {kinds}.")
        self.target = target
        self.lo = lo
        self.hi = hi
        self.split = split
        self.join = join

    def check(self, vertex: Vertex, inputs: Sequence[Edge], graph: LogicalGraph) -> None:
        """Refuse a vertex whose number of tasks is given, or that reads no shuffle, or shuffles of other widths."""
        width = vertex.parallelism
        if not isinstance(width, Range):
            raise GraphError(
                f"the manager of {vertex.id!r} is to set its number of tasks, which is given",
                hint="Give n=Range(lo, hi).",
            )
        if self.lo > width.hi or self.hi < width.lo:
            raise GraphError(
                f"the manager of {vertex.id!r} may set {self.lo} to {self.hi} tasks, and n is {width.lo} to {width.hi}",
                hint="Leave out lo and hi, or give those of n.",
            )
        shuffles = [
            edge for edge in graph.edges if edge.dst == vertex.id and edge.movement.move is MovementKind.SCATTER_GATHER
        ]
        if not shuffles:
            raise GraphError(
                f"{vertex.id!r} reads no shuffle, whose pieces its manager could give to its tasks",
                hint="Add shuffle(source, partitions) to its inputs.",
            )
        widths = {edge.movement.partitions for edge in shuffles}
        if len(widths) > 1:
            raise GraphError(
                f"the shuffles that {vertex.id!r} reads have {' and '.join(map(str, sorted(widths)))} partitions",
                hint="Give all of them one number.",
            )

    def decide(self, view: View, memo: Any) -> tuple[Sequence[Decision], Any]:
        """Set the number of tasks once, when all sources have ended."""
        # a source in a branch that is not taken has no tasks to read
        shuffles = [source for source in view.inputs if source.partitions and source.n >= 0]
        if view.state != "configuring" or not shuffles or not all(source.ended for source in view.inputs):
            return (), memo
        partitions = shuffles[0].partitions
        if any(source.partitions != partitions for source in shuffles):
            raise GraphError(f"the shuffles that {view.vertex!r} reads differ in partitions", rule="shuffle-partitions")
        sizes = [_integers(source.sizes) if source.sizes is not None else [0] * partitions for source in shuffles]
        total = [sum(column) for column in zip(*sizes, strict=True)]
        allowed = view.allowed or Range(self.lo, self.hi)
        lo, hi = min(max(self.lo, allowed.lo), partitions), min(self.hi, allowed.hi)
        target = max(self.target, -(-sum(total) // hi))
        if lo > 1:
            target = max(1, min(target, sum(total) // lo))
        bounds = even(total, target)
        while len(bounds) - 1 > hi:
            target *= 2
            bounds = even(total, target)
        if len(bounds) - 1 < lo:  # most partitions are empty
            bounds = [partitions * number // lo for number in range(lo + 1)]
        groups = list(pairwise(bounds))
        cuts = self._cuts(shuffles, sizes, total, groups, target, sum(total) / max(1, view.workers))
        if len(groups) + sum(ways - 1 for _, ways in cuts.values()) > hi:
            cuts = {}
        return (SetParallelism(view.vertex, *_routers(shuffles, partitions, groups, cuts)),), memo

    def _cuts(
        self,
        shuffles: list[InputView],
        sizes: list[list[int]],
        total: list[int],
        groups: list[tuple[int, int]],
        target: int,
        share: float,
    ) -> dict[int, tuple[int, int]]:
        """Return the input to split and the number of source ranges, by group; `share` bytes are those of a worker."""
        if not self.split and not MAY_SPLIT[self.join]:
            return {}
        from statistics import median  # slow to import, and rarely needed

        usual = median(total)
        cuts: dict[int, tuple[int, int]] = {}
        for number, (lo, hi) in enumerate(groups):
            if hi - lo > 1 or total[lo] <= max(target, SKEW * usual, min(PAYS * share, LARGEST * target)):
                continue
            allowed = range(len(shuffles)) if self.split else MAY_SPLIT[self.join]
            side = max((at for at in allowed if at < len(shuffles)), key=lambda at: sizes[at][lo], default=-1)
            if side >= 0 and 2 * sizes[side][lo] >= total[lo]:  # else the side that is repeated is the heavy one
                cuts[number] = (side, min(-(-total[lo] // target), shuffles[side].n))
        return cuts


def _routers(
    shuffles: list[InputView], partitions: int, groups: list[tuple[int, int]], cuts: dict[int, tuple[int, int]]
) -> tuple[int, tuple[tuple[str, Router], ...]]:
    """Return the number of tasks and a router for each shuffle."""
    routers: list[tuple[str, Router]] = []
    width = 0
    for at, source in enumerate(shuffles):
        pieces: list[list[tuple[int, int, int, int]]] = []
        for number, (lo, hi) in enumerate(groups):
            side, ways = cuts.get(number, (-1, 1))
            for way in range(ways):
                if side == at:
                    pieces.append([(source.n * way // ways, source.n * (way + 1) // ways, lo, hi)])
                else:
                    pieces.append([(0, source.n, lo, hi)])
        width = len(pieces)
        routers.append((source.edge, Rectangles(source.n, partitions, pieces)))
    return width, tuple(routers)
