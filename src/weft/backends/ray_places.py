"""The cores of a session at the machines of a Ray cluster: a placement group, which is given as a whole or not at all.

A session that wants more than is free waits, and holds no part of it meanwhile. When a machine of the group is lost,
Ray looks for another one for its bundle.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import ray
from ray.util.placement_group import placement_group, placement_group_table, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from weft.backends.scaling import bundle
from weft.model.wording import counted

if TYPE_CHECKING:
    from weft.model.resources import Resources

LOOK_S: Final = 2.0
"""Seconds between two looks whether cores are there, and at the machines of the cluster."""
_NAME: Final = "weft-"
"""What the names of reservations begin with."""
_TELL_S: Final = 30.0
"""Seconds between two lines that say what is waited for."""


class RayReservation:
    """Cores and GPUs at as many machines as there are `wants`, from the end of `wait` until `release`.

    A want is what is taken of one machine; its GPUs are of its type.
    """

    def __init__(self, wants: Sequence[Resources]) -> None:
        self._group = placement_group(
            [bundle(one) for one in wants],
            strategy="STRICT_SPREAD" if len(wants) > 1 else "PACK",
            name=f"{_NAME}{os.urandom(4).hex()}",
        )
        self._wants = wants

    def wait(self, makes_sense: Callable[[], bool]) -> bool:
        """Wait until all is there, and say on the standard error for what; False if it makes no sense any more."""
        told = -_TELL_S
        while not self._group.wait(LOOK_S):
            if not makes_sense():
                return False
            if time.monotonic() - told >= _TELL_S:
                told = time.monotonic()
                sys.stderr.write(f"weft: {_waiting(self._wants)}\n")
        return True

    def machines(self) -> dict[int, str]:
        """Return the ids of the machines of the bundles, by number; those of lost machines until others are found."""
        table: dict[str, Any] = placement_group_table(self._group)
        return {int(number): id for number, id in table["bundles_to_node_id"].items() if id}

    def bundle(self, number: int) -> PlacementGroupSchedulingStrategy:
        """Return the place of an actor in a bundle."""
        return PlacementGroupSchedulingStrategy(self._group, placement_group_bundle_index=number)

    def release(self) -> None:
        """Give everything back."""
        with suppress(Exception):  # the cluster may be gone
            remove_placement_group(self._group)


def waiting_reservations() -> set[str]:
    """Return the ids of the reservations of all sessions of the cluster whose cores are not there yet."""
    table: dict[str, Any] = placement_group_table()
    return {id for id, one in table.items() if one["state"] == "PENDING" and one["name"].startswith(_NAME)}


def _waiting(wants: Sequence[Resources]) -> str:
    """Return what is waited for, with what is free, in words."""
    free: dict[str, float] = ray.available_resources()  # type: ignore[no-untyped-call]
    cores, gpus = sum(one.cpu for one in wants), sum(one.gpu for one in wants)
    texts = [f"{counted(int(cores), 'core')} ({free.get('CPU', 0):g} free)"]
    if gpus:
        texts.append(f"{counted(gpus, 'GPU')} ({free.get('GPU', 0):g} free)")
    for name in dict.fromkeys(name for one in wants for name, _ in one.custom):
        amount = sum(dict(one.custom).get(name, 0.0) for one in wants)
        texts.append(f"{amount:g} {name} ({free.get(name, 0):g} free)")
    at = counted(len(wants), "machine")
    return f"waits for {' and '.join(texts)} at {at} of the Ray cluster; see `ray status`"
