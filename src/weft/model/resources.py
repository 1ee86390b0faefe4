"""The resources that a task needs and a node has.

A vertex lists its needs as an ordered tuple of alternatives; the first one that a node can provide is taken. CPU is
counted in cores, memory in bytes. `tokens` are counted per job (a pipeline's `parallelism` is one): a step that only
waits for a child process takes a token and no core. `custom` are resources of nodes under any names, such as licences
or devices of a kind, with the amounts that a task takes.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

_ROUNDING = 1e-6
"""Tolerance for fractions of cores: 1 - 0.1 - 0.2 + 0.1 + 0.2 is less than 1 in floating point."""


class Resources(Struct, frozen=True):
    """One alternative; a task holds all of it while it runs."""

    cpu: float = 1
    memory: int = 0
    gpu: int = 0
    gpu_type: str = ""
    tokens: tuple[tuple[str, int], ...] = ()
    custom: tuple[tuple[str, float], ...] = ()

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


ONE_SLOT = Resources()
ONE_SLOT_ONLY = (ONE_SLOT,)


class Placement(Struct, frozen=True, forbid_unknown_fields=True):
    """The place where tasks of a vertex must run: a named node, a named party, or both."""

    node: str = ""
    party: str = ""

    def allows(self, node: str, party: str) -> bool:
        """Return whether a worker on `node`, belonging to `party`, may run the task."""
        return self.node in ("", node) and self.party in ("", party)
