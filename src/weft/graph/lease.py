"""The template of a cone, which workers get with a lease.

A lease is a range of tasks of one vertex, the root. A cone lease also contains all upstream tasks that only its range
needs. Routers are arithmetic, so a cone is three numbers (root, lo, hi) and a template, which is computed once and
reused with an offset. The largest number of values that a cone holds is known before its launch.
"""

from __future__ import annotations

from collections.abc import Iterator


class Cone:
    """The template for one task ("unit") of the root.

    `members` are vertex ids, each after its sources, the root last; a unit has `mult[m]` tasks of member m. Task i of
    member m reads tasks `i * group` to `(i + 1) * group` of each `(source, group)` in `inner[m]`, where `source` is a
    member. `linear` cones have one task of each member in a row, and no `inner`. `height` is the largest number of
    values held at once in a depth-first computation, and `held_bytes` their size, as far as their vertices declare it.
    """

    __slots__ = ("height", "held_bytes", "inner", "linear", "members", "mult")

    def __init__(
        self,
        members: tuple[str, ...],
        mult: tuple[int, ...],
        inner: tuple[tuple[tuple[int, int], ...], ...] = (),
        *,
        height: int = 1,
        linear: bool = False,
        held_bytes: int = 0,
    ) -> None:
        self.members = members
        self.mult = mult
        self.inner = inner
        self.height = height
        self.linear = linear
        self.held_bytes = held_bytes

    @property
    def size(self) -> int:
        """The number of tasks in a unit."""
        return sum(self.mult)

    def tasks(self, unit: int) -> Iterator[tuple[str, int]]:
        """Yield each task of a unit, as (vertex id, index), in the order of their execution: each after its inputs."""
        if self.linear:
            yield from ((vertex, unit) for vertex in self.members)
            return
        todo = [(len(self.members) - 1, unit, False)]
        while todo:
            member, index, has_inputs = todo.pop()
            inner = self.inner[member]
            if has_inputs or not inner:
                yield self.members[member], index
                continue
            todo.append((member, index, True))
            for source, group in reversed(inner):
                todo.extend((source, i, False) for i in reversed(range(index * group, (index + 1) * group)))
