"""What the parts of this party have exchanged with those of other parties: by component, other part and kind of value.

Each attempt keeps its counts in its folder. They are written when a kind crosses for the first time, then at most once
a second, and at the end: after a crash of the server the kinds are complete, and the numbers those of a second before.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct

from weft.frontends.federated.schema import Party
from weft.parties.values import AttemptKey, Traffic, ValueHub

if TYPE_CHECKING:
    from pathlib import Path

    from weft.parties.part_folders import PartFolders
    from weft.runtime.clock import WallClock

TRAFFIC: Final = "traffic.json"
_PAUSE_S: Final = 1.0
_Counts = Mapping[str, Mapping[str, Traffic]]
_decoder: Final = msgspec.json.Decoder(dict[str, dict[str, Traffic]])


class KindExchange(Struct, frozen=True):
    """What a part of this party has exchanged with a part of another one, of one kind, in all attempts of a job."""

    component: str
    part: Party
    other: Party
    kind: str
    traffic: Traffic


class TrafficWriter:
    """Keeps the counts of one attempt in its folder. `noted` is called after each value, `write` at the end."""

    def __init__(self, hub: ValueHub, key: AttemptKey, part: Party, folder: Path, clock: WallClock) -> None:
        self._hub, self._key, self._part, self._folder, self._clock = hub, key, part, folder, clock
        self._kinds: set[tuple[str, Party]] = set()
        self._written = 0.0

    def noted(self, name: str, to: Party) -> None:
        """Write the counts if a kind is new, or the last ones are old."""
        kind = (name.partition("/")[0], to)
        if kind in self._kinds and abs(self._clock.wall() - self._written) < _PAUSE_S:
            return
        self._kinds.add(kind)
        self.write()

    def write(self) -> None:
        """Write the counts; a crash leaves the old ones or the new ones."""
        found = self._hub.traffic(self._key, self._part)
        if found is None:
            return
        self._written = self._clock.wall()
        aside = self._folder / f"{TRAFFIC}.part"
        with suppress(OSError):
            aside.write_bytes(msgspec.json.encode({str(other): kinds for other, kinds in found.items()}))
            os.replace(aside, self._folder / TRAFFIC)


def exchanges(folders: PartFolders, hub: ValueHub, job: str, part: Party, component: str) -> Iterator[KindExchange]:
    """Yield what a component has exchanged with other parties at a part of this one, in all its attempts.

    What was taken over from an earlier job crossed in that one, and is not counted.
    """
    sums: dict[tuple[Party, str], Traffic] = {}
    for (epoch, attempt), folder in folders.attempts(job, part, component).items():
        if not epoch:
            continue
        live = hub.traffic(AttemptKey(job, epoch, component, attempt), part)
        counts = _read(folder) if live is None else {str(other): kinds for other, kinds in live.items()}
        for name, kinds in counts.items():
            other = Party(*name.split(" ", 1)) if " " in name else Party(name, "")
            if other.id == part.id:
                continue  # another role of this party: nothing has left
            for kind, one in kinds.items():
                sums.setdefault((other, kind), Traffic()).add(one)
    for (other, kind), one in sums.items():
        yield KindExchange(component, part, other, kind, one)


def _read(folder: Path) -> _Counts:
    with suppress(OSError, msgspec.MsgspecError):
        return _decoder.decode((folder / TRAFFIC).read_bytes())
    return {}
