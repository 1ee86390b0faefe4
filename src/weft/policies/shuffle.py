"""How many tasks read a shuffle, and what each of them reads: partitions grouped by the bytes that were written.

A shuffle is written in more partitions than there may be readers, because nobody knows the sizes before. Neighbouring
partitions are packed until the next would exceed the target, so that small ones share a task; then the same number of
tasks is filled as evenly as neighbours allow. A partition that is far over the target can be split by its sources,
where what reads it permits: a join repeats the other side, if its kind allows.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any

from weft.engine.decisions import SetParallelism
from weft.engine.policy import InputView, Moment, View
from weft.graph.rectangles import Rectangles
from weft.model.errors import GraphError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from weft.engine.decisions import Decision
    from weft.graph.routing import Router

TARGET_BYTES = 64 * 2**20
SKEW = 5
"""A partition is skewed when it is over the target and this many times the median."""
MAY_SPLIT = {"inner": (0, 1), "left": (0,), "right": (1,), "full": (), "": ()}
"""Which input of a join may be split while the other is repeated: a row that must appear once must not be repeated."""


def pack(sizes: Sequence[int] | NDArray[Any], target: int) -> list[int]:
    """Group neighbouring partitions of `sizes` bytes to at most `target` bytes each, in as few groups as possible.

    Return the bounds of the groups, as `Rectangles.from_groups` takes them: group g is the partitions
    `bounds[g]:bounds[g + 1]`, from 0 to `len(sizes)`; no group is empty. A partition over `target` is a group of its
    own. Costs one pass and a bisection for each group. Raises GraphError for a target under 1 or a negative size.
    """
    if target < 1:
        raise GraphError(
            f"a target of {target} bytes holds no partition", rule="shuffle-target", hint="Give 1 or more."
        )
    own = _integers(sizes)
    ends = list(accumulate(own))
    return _pack(ends, target)


def _integers(sizes: Sequence[int] | NDArray[Any]) -> list[int]:
    """Return Python's integers: sums cannot overflow, and bisecting a list beats searching an array for each group."""
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
    """Group as `pack` does, then lower the target as far as the number of groups stays: the fullest is least full."""
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


class Shuffle:
    """The manager of a vertex that reads shuffles: as many tasks as the bytes ask for, `lo` to `hi`.

    `split` allows a partition to be read by several tasks (partial aggregation); `join` says that the two shuffles are
    the sides of a join of that kind, and splits one side of a skewed partition while the other is repeated.
    """

    moments = frozenset({Moment.SOURCE_ENDED})
    holds = False
    counts = True

    def __init__(
        self, target: int = TARGET_BYTES, lo: int = 1, hi: int = 1_000_000, *, split: bool = False, join: str = ""
    ) -> None:
        if target < 1 or not 1 <= lo <= hi or join not in MAY_SPLIT:
            raise GraphError(
                f"a shuffle wants target >= 1, 1 <= lo <= hi and join among {', '.join(sorted(MAY_SPLIT))}, "
                f"not {target}, {lo}, {hi} and {join!r}",
                rule="manager",
            )
        self.target = target
        self.lo = lo
        self.hi = hi
        self.split = split
        self.join = join

    def decide(self, view: View, memo: Any) -> tuple[Sequence[Decision], Any]:
        """Choose the number of tasks when every source has ended, once."""
        shuffles = [source for source in view.inputs if source.partitions]
        if view.state != "configuring" or not shuffles or not all(source.ended for source in view.inputs):
            return (), memo
        partitions = shuffles[0].partitions
        if any(source.partitions != partitions for source in shuffles):
            raise GraphError(f"the shuffles that {view.vertex!r} reads differ in partitions", rule="shuffle-partitions")
        sizes = [_integers(source.sizes) if source.sizes is not None else [0] * partitions for source in shuffles]
        total = [sum(column) for column in zip(*sizes, strict=True)]
        target = max(self.target, -(-sum(total) // self.hi))
        if self.lo > 1:
            target = max(1, min(target, sum(total) // self.lo))
        bounds = even(total, target)
        groups = list(pairwise(bounds))
        cuts = self._cuts(shuffles, sizes, total, groups, target)
        return (SetParallelism(view.vertex, *_routers(shuffles, partitions, groups, cuts)),), memo

    def _cuts(
        self,
        shuffles: list[InputView],
        sizes: list[list[int]],
        total: list[int],
        groups: list[tuple[int, int]],
        target: int,
    ) -> dict[int, tuple[int, int]]:
        """Return for each group that is to be split: which input, and into how many ranges of its sources."""
        if not self.split and not MAY_SPLIT[self.join]:
            return {}
        from statistics import median  # which few jobs need, and takes long to load

        usual = median(total)
        cuts: dict[int, tuple[int, int]] = {}
        for number, (lo, hi) in enumerate(groups):
            if hi - lo > 1 or total[lo] <= max(target, SKEW * usual):
                continue
            allowed = range(len(shuffles)) if self.split else MAY_SPLIT[self.join]
            side = max((at for at in allowed if at < len(shuffles)), key=lambda at: sizes[at][lo], default=-1)
            if side >= 0:
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
