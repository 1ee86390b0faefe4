"""What a worker is given: a lease, and the template of a cone.

A lease is a range of tasks of one vertex, the root, together with everything upstream that only it needs (the *cone*).
Routers are arithmetic, so a cone is three numbers (root, lo, hi) and a template that is computed once and reused with
an offset: how many values it holds at most is known before it is given away.
"""

from __future__ import annotations

from typing import NamedTuple


class ConeStep(NamedTuple):
    """One task of a template: member vertex and its index relative to the unit, `index = unit * mult + offset`."""

    member: int
    mult: int
    offset: int


class Cone:
    """The template for one task ("unit") of the root: its steps in post-order, so that a value stack is enough.

    `members` are vertex ids, the root last; `mult[m]` tasks of member m belong to a unit. `height` is the largest
    number of values held at once, `held_bytes` what they take as far as their vertices say. `linear` cones have one
    task of each member.
    """

    __slots__ = ("height", "held_bytes", "linear", "members", "mult", "steps")

    def __init__(
        self,
        members: tuple[str, ...],
        mult: tuple[int, ...],
        steps: tuple[ConeStep, ...],
        height: int,
        *,
        linear: bool,
        held_bytes: int = 0,
    ) -> None:
        self.members = members
        self.mult = mult
        self.steps = steps
        self.height = height
        self.linear = linear
        self.held_bytes = held_bytes
