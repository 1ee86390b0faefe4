"""Routers: arithmetic on index ranges that maps source tasks to destination tasks.

No physical edge is ever made: a router answers `inputs(dst)` and `consumers(src)` in closed form, so that an edge of
10^5 by 10^5 tasks costs two numbers. This module has the base class and the simplest shapes; `Grid` (chunk grids) and
`Rectangles` (any assignment of source and partition ranges) have modules of their own.
"""

from __future__ import annotations

Piece = tuple[int, int, int, int]
"""Source tasks `src_lo:src_hi` and partitions `part_lo:part_hi` of each: (0, 1) if the movement has no partitions."""


class Router:
    """Base of all routers. A `wide` router gives every source to every destination.

    `group` is k if destination d reads exactly the sources `k*d : min(k*(d+1), n_src)`, and 0 for every other shape.
    Cones are built on such regular narrow edges. With `single` an input is one value, not a list of values.
    """

    wide = False
    single = False
    group = 0
    partitions = 0

    def __init__(self, n_src: int, n_dst: int) -> None:
        self.n_src = n_src
        self.n_dst = n_dst

    def inputs(self, dst: int) -> tuple[Piece, ...]:
        """Return the pieces that destination task `dst` reads, in the order of its input."""
        raise NotImplementedError

    def consumers(self, src: int) -> tuple[tuple[int, int], ...]:
        """Return the ranges of destination tasks that read any part of source task `src`; disjoint, ascending."""
        raise NotImplementedError

    def fan_in(self, dst: int) -> int:
        """Return the number of distinct source tasks that `dst` reads."""
        return sum(hi - lo for lo, hi, _, _ in self.inputs(dst))


class OneToOne(Router):
    """Task i reads task i."""

    single = True
    group = 1

    def inputs(self, dst: int) -> tuple[Piece, ...]:
        """See `Router.inputs`."""
        return ((dst, dst + 1, 0, 1),)

    def consumers(self, src: int) -> tuple[tuple[int, int], ...]:
        """See `Router.consumers`."""
        return ((src, src + 1),)

    def fan_in(self, dst: int) -> int:
        """See `Router.fan_in`."""
        return 1


class Group(Router):
    """Task d reads the k neighbours `k*d : k*(d+1)`, fewer at the end: one level of a tree."""

    def __init__(self, n_src: int, n_dst: int, k: int) -> None:
        super().__init__(n_src, n_dst)
        self.group = k

    def inputs(self, dst: int) -> tuple[Piece, ...]:
        """See `Router.inputs`."""
        lo = dst * self.group
        return ((lo, min(lo + self.group, self.n_src), 0, 1),)

    def consumers(self, src: int) -> tuple[tuple[int, int], ...]:
        """See `Router.consumers`."""
        dst = src // self.group
        return ((dst, dst + 1),)

    def fan_in(self, dst: int) -> int:
        """See `Router.fan_in`."""
        return min(self.group, self.n_src - dst * self.group)


class Broadcast(Router):
    """Every task reads every source task."""

    wide = True

    def inputs(self, dst: int) -> tuple[Piece, ...]:
        """See `Router.inputs`."""
        return ((0, self.n_src, 0, 1),) if self.n_src else ()

    def consumers(self, src: int) -> tuple[tuple[int, int], ...]:
        """See `Router.consumers`."""
        return ((0, self.n_dst),) if self.n_dst else ()

    def fan_in(self, dst: int) -> int:
        """See `Router.fan_in`."""
        return self.n_src


class ScatterGather(Broadcast):
    """Destination p reads partition p of every source task."""

    def __init__(self, n_src: int, n_dst: int) -> None:
        super().__init__(n_src, n_dst)
        self.partitions = n_dst

    def inputs(self, dst: int) -> tuple[Piece, ...]:
        """See `Router.inputs`."""
        return ((0, self.n_src, dst, dst + 1),) if self.n_src else ()
