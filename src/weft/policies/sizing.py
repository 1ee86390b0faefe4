"""Which GPUs a task needs, by what it was measured to use: for control vertices, from history or from a dry run.

GPUs are asked for by guess, and guesses are large: what was measured says how much memory a task takes and how busy it
keeps one. The cheapest offer that still holds it is taken, others that do come after it as alternatives.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from weft.model.errors import UsageError

if TYPE_CHECKING:
    from weft.graph.task import Past
    from weft.model.resources import Resources

BUSY_MOST = 0.9
"""How busy an offer may be expected to be."""


class Offer(NamedTuple):
    """Resources that can be had: bytes of GPU memory in all, speed and price of it in units of your own."""

    resources: Resources
    gpu_memory: float
    speed: float = 1.0
    price: float = 1.0


def most_used(history: Iterable[Past]) -> dict[str, float]:
    """Return the most of everything that earlier runs said a vertex used."""
    most: dict[str, float] = {}
    for past in history:
        for name, value in past.usage.items():
            most[name] = max(value, most.get(name, value))
    return most


def sized(
    usage: Mapping[str, float], used: Offer, offers: Sequence[Offer], *, headroom: float = 1.25
) -> tuple[Resources, ...]:
    """Return the resources of the offers that fit, the cheapest first.

    `usage` has `gpu_memory` (bytes) and `gpu_busy` (0 to 1), measured on the offer `used`. An offer fits that has
    `headroom` times this memory and would be busy for at most 0.9 of the time. An alternative that is too small would
    be taken when the others are busy, so those that do not fit are left out; where none does, the largest is returned
    alone. UsageError: there are no offers.
    """
    if not offers:
        raise UsageError("there is no offer to choose from", hint="Name at least one Offer.")
    memory = usage.get("gpu_memory", 0.0) * headroom
    work = usage.get("gpu_busy", 1.0) * used.speed
    fitting = [offer for offer in offers if offer.gpu_memory >= memory and work <= BUSY_MOST * offer.speed]
    if not fitting:
        return (max(offers, key=lambda offer: (offer.gpu_memory, offer.speed)).resources,)
    return tuple(offer.resources for offer in sorted(fitting, key=lambda offer: (offer.price, -offer.speed)))
