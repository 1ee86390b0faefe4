"""The resources that a task needs and a node has.

A vertex lists its needs as an ordered tuple of alternatives; the first one that a node can provide is taken. CPU is
counted in cores, memory in bytes. `tokens` are counted per job (a pipeline's `parallelism` is one): a step that only
waits for a child process takes a token and no core. `custom` are resources of nodes under any names, such as licences
or devices of a kind, with the amounts that a task takes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import force_setattr

from weft.model.errors import UsageError
from weft.model.sizes import parse_size, unit_missing

_ROUNDING = 1e-6
"""Tolerance for fractions of cores: 1 - 0.1 - 0.2 + 0.1 + 0.2 is less than 1 in floating point."""


class Resources(Struct, frozen=True):
    """One alternative; a task holds all of it while it runs.

    `memory` is in bytes, or a text such as "4GiB". UsageError: the text is no size, or an amount is no number.
    """

    cpu: float = 1
    memory: int = 0
    gpu: int = 0
    gpu_type: str = ""
    tokens: tuple[tuple[str, int], ...] = ()
    custom: tuple[tuple[str, float], ...] = ()

    if TYPE_CHECKING:  # the constructor takes more than the field holds

        def __init__(
            self,
            cpu: float = 1,
            memory: int | str = 0,
            gpu: int = 0,
            gpu_type: str = "",
            tokens: tuple[tuple[str, int], ...] = (),
            custom: tuple[tuple[str, float], ...] = (),
        ) -> None: ...

    def __post_init__(self) -> None:
        if type(self.memory) is not int:
            force_setattr(self, "memory", _bytes(self.memory))
        if isinstance(self.cpu, bool) or not isinstance(self.cpu, (int, float)):
            raise UsageError(f"cpu is {self.cpu!r}; it must be a number of cores")
        if isinstance(self.gpu, bool) or not isinstance(self.gpu, int):
            raise UsageError(f"gpu is {self.gpu!r}; it must be a whole number")

    @property
    def plain(self) -> bool:
        """Whether the alternative is one idle slot of a worker and nothing else."""
        return self.cpu == 1 and not self.memory and not self.gpu and not self.custom

    @property
    def light(self) -> bool:
        """Whether the alternative takes nothing of a node: the task only waits."""
        return not self.cpu and not self.memory and not self.gpu and not self.custom

    @property
    def amounts(self) -> dict[str, float]:
        """The cores, bytes of memory and GPUs that are not 0, by name."""
        found = {"cpu": self.cpu, "memory": self.memory, "gpu": self.gpu}
        return {name: amount for name, amount in found.items() if amount}

    def fits(self, capacity: Resources) -> bool:
        """Return whether `capacity` (of one node) covers this alternative; tokens are not checked."""
        return (
            self.cpu <= capacity.cpu + _ROUNDING
            and self.memory <= capacity.memory
            and self.gpu <= capacity.gpu
            and (not self.gpu or self.gpu_type in ("", capacity.gpu_type))
            and self.takes_of(dict(capacity.custom))
        )

    def takes_of(self, custom: Mapping[str, float]) -> bool:
        """Return whether there is so much of all custom resources of this alternative."""
        return all(amount <= custom.get(name, 0.0) + _ROUNDING for name, amount in self.custom)

    def __str__(self) -> str:
        parts = [f"cpu {self.cpu:g}"]
        if self.memory:
            parts.append(f"memory {self.memory:,} bytes")
        if self.gpu:
            parts.append(f"gpu {self.gpu}" + (f" of type {self.gpu_type}" if self.gpu_type else ""))
        parts.extend(f"{name} {amount:g}" for name, amount in (*self.custom, *self.tokens))
        return ", ".join(parts)


def _bytes(memory: object) -> int:
    try:
        size = parse_size(memory) if isinstance(memory, str) else memory
    except (ValueError, OverflowError):
        size = None
    if not isinstance(size, int) or isinstance(size, bool):
        raise UsageError(f"memory is {memory!r}; it must be a number of bytes, such as 512MiB or 4GiB")
    if hint := unit_missing(memory):
        raise UsageError(f"memory is {memory!r}; it must have a unit", hint=hint)
    return size


ONE_SLOT = Resources()
ONE_SLOT_ONLY = (ONE_SLOT,)


class Placement(Struct, frozen=True, forbid_unknown_fields=True):
    """The place where tasks of a vertex must run: a named node, a named party, or both."""

    node: str = ""
    party: str = ""

    def allows(self, node: str, party: str) -> bool:
        """Return whether a worker on `node`, belonging to `party`, may run the task."""
        return self.node in ("", node) and self.party in ("", party)
