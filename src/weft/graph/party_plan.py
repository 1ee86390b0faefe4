"""The plan of a federated job: which component runs at which party, and with which parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct


class PlannedComponent(Struct, frozen=True):
    """A component of a job: its module, the components that it takes outputs from, and whether Weft has the module."""

    name: str
    module: str
    after: tuple[str, ...]
    exists: bool = True


class PlannedPart(Struct, frozen=True):
    """A component at one party: whether it runs there, the reason if it does not, and the parameters that files set."""

    runs: bool
    why_not: str
    parameters: Mapping[str, Any]


class PartyPlan(Struct, frozen=True):
    """The part of one party in one role: parameters of the job, its components by name, and its tables by key."""

    role: str
    id: str
    job_parameters: Mapping[str, Any]
    components: Mapping[str, PlannedPart]
    tables: Mapping[str, Any]

    @property
    def name(self) -> str:
        """The party in its role, in words: `guest 9999`."""
        return f"{self.role} {self.id}"


class FederatedPlan(Struct, frozen=True):
    """A federated job for all its parties; components are in an order in which each comes after its sources."""

    job_type: str
    initiator: str
    components: tuple[PlannedComponent, ...]
    parties: tuple[PartyPlan, ...]
    notes: tuple[str, ...] = ()
