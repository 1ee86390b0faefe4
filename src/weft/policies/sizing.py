"""GPU sizing for control vertices: resources chosen by measured usage, from history or from a dry run.

Users request GPUs by guess, and too many. The measured usage of a task gives its GPU memory and load. The cheapest
offer that fits comes first; the other offers that fit follow as alternatives.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from weft.model.errors import UsageError

if TYPE_CHECKING:
    from weft.graph.task import VertexHistory
    from weft.model.resources import Resources

BUSY_MOST = 0.9
"""The highest expected load of an offer, 0 to 1."""


class ResourceOffer(NamedTuple):
    """Available resources: total GPU memory in bytes, relative speed and relative price."""

    resources: Resources
    gpu_memory: float
    speed: float = 1.0
    price: float = 1.0


def most_used(history: Iterable[VertexHistory]) -> dict[str, float]:
    """Return the maximum of each usage figure over earlier runs."""
    most: dict[str, float] = {}
    for past in history:
        for name, value in past.usage.items():
            most[name] = max(value, most.get(name, value))
    return most


def sized(
    usage: Mapping[str, float], used: ResourceOffer, offers: Sequence[ResourceOffer], *, headroom: float = 1.25
) -> tuple[Resources, ...]:
    """Return the resources of the offers that fit, the cheapest first.

    `usage` has `gpu_memory` (bytes) and `gpu_busy` (0 to 1), measured on the offer `used`. An offer fits if it has
    `headroom` times this memory and an expected load of at most 0.9. Offers that do not fit are left out, because an
    alternative is taken when the others are busy. If none fits, the result is the largest offer. UsageError: no offers.
    """
    if not offers:
        raise UsageError("there is no offer to choose from", hint="Give at least one ResourceOffer.")
    memory = usage.get("gpu_memory", 0.0) * headroom
    work = usage.get("gpu_busy", 1.0) * used.speed
    fitting = [offer for offer in offers if offer.gpu_memory >= memory and work <= BUSY_MOST * offer.speed]
    if not fitting:
        return (max(offers, key=lambda offer: (offer.gpu_memory, offer.speed)).resources,)
    return tuple(offer.resources for offer in sorted(fitting, key=lambda offer: (offer.price, -offer.speed)))
