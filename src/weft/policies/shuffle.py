"""How many tasks read a shuffle, and what each of them reads: partitions grouped by the bytes that were written.

A shuffle is written in more partitions than there may be readers, because nobody knows the sizes before. Neighbouring
partitions are packed until the next would exceed the target, so that small ones share a task; one that alone is over
the target stands alone (and may be split by its sources, which is not decided here).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from weft.model.errors import GraphError

if TYPE_CHECKING:
    from numpy.typing import NDArray


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
    # Python's integers: sums cannot overflow, and bisecting a list beats searching an array once for each group.
    own: list[int] = sizes.tolist() if hasattr(sizes, "tolist") else list(sizes)
    if own and min(own) < 0:
        at = next(index for index, size in enumerate(own) if size < 0)
        raise GraphError(f"partition {at} has a size of {own[at]} bytes", rule="partition-size")
    ends = list(accumulate(own))
    bounds = [0]
    begin, before = 0, 0
    while begin < len(own):
        begin = max(begin + 1, bisect_right(ends, before + target, begin))
        before = ends[begin - 1]
        bounds.append(begin)
    return bounds
