"""`AddressBook`: where the replicas of a run listen on the machines of a cluster, and what each was told of others.

A replica tells its address when it starts, and gets those of its job once all of them have told theirs. When one is
lost with its machine, or begins again at another address, the others that know its old one must begin again too.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Final

from msgspec import Struct, field

from weft.model.failures import Failure

ReplicaKey = tuple[str, int]
"""A replica: its vertex and its index."""
Going = Mapping[ReplicaKey, tuple[int, str]]
"""The replicas of a job that run or are to run: the number of the present or next start, and the last failure."""
_LOST: Final = frozenset({Failure.INFRASTRUCTURE.value, Failure.CRASH.value})
"""The failures with which a replica goes without its program having ended by itself."""


class ReplicaAddress(Struct, frozen=True):
    """The address of a replica: the host, and the port at which it listens for each declared one."""

    host: str
    ports: Mapping[int, int] = field(default_factory=dict)


class _Entry(Struct):
    start: int
    address: ReplicaAddress
    told: dict[ReplicaKey, tuple[int, ReplicaAddress]] = field(default_factory=dict)
    why: str = ""


class AddressBook:
    """The addresses of the replicas of one run; its methods may be called from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entries: dict[ReplicaKey, _Entry] = {}
        self._questions = 0
        self._heard: dict[ReplicaKey, int] = {}
        """The number of the last question of each replica."""

    def hear(self, key: ReplicaKey) -> int:
        """Take that a replica asks something, and return the number of its question."""
        with self._lock:
            self._questions += 1
            self._heard[key] = self._questions
            return self._questions

    def silent(self, key: ReplicaKey, going: Going, since: int) -> bool:
        """Whether some replica that this one knows goes on as it was told, and has asked nothing `since` a question.

        It asks every second: else its machine may be lost, which is not known yet.
        """
        with self._lock:
            entry = self._entries.get(key)
            return entry is not None and any(
                other != key and going.get(other, (0, ""))[0] == start and self._heard.get(other, 0) <= since
                for other, (start, _) in entry.told.items()
            )

    def before(self, key: ReplicaKey, host: str) -> Mapping[int, int]:
        """Return the ports that a replica had at a host in its last start; none if it was elsewhere."""
        with self._lock:
            entry = self._entries.get(key)
            return dict(entry.address.ports) if entry is not None and entry.address.host == host else {}

    def listen(self, key: ReplicaKey, start: int, address: ReplicaAddress) -> None:
        """Take the address of a replica in its present start."""
        with self._lock:
            self._entries[key] = _Entry(start, address)

    def ask(self, key: ReplicaKey, going: Going) -> dict[ReplicaKey, ReplicaAddress] | None:
        """Return the addresses for a replica that starts, its own too; None until all that are `going` have told one.

        Those that must begin again count from their next start. Of replicas that have ended, the last address counts.
        Those of other jobs are there too, if they are known; the replica need not begin again with them.
        """
        with self._lock:
            for other, (start, _) in going.items():
                entry = self._entries.get(other)
                if entry is None or entry.start < start or self._why(other, entry, going):
                    return None
            mine, near = self._entries[key], {key[0], *(vertex for vertex, _ in going)}
            mine.told = {
                other: (entry.start, entry.address) for other, entry in self._entries.items() if other[0] in near
            }
            return {other: entry.address for other, entry in self._entries.items()}

    def why_again(self, key: ReplicaKey, going: Going) -> str:
        """Return why a replica that has been told addresses must begin again, as a clause; "" if it need not."""
        with self._lock:
            entry = self._entries.get(key)
            return "" if entry is None else self._why(key, entry, going)

    def _why(self, key: ReplicaKey, entry: _Entry, going: Going) -> str:
        """Note it once it is so: a later start of the other one does not undo it."""
        for other, (start, address) in entry.told.items() if not entry.why else ():
            now = self._entries.get(other)
            name = f"{other[0]}[{other[1]}]"
            coming, failure = going.get(other, (0, ""))
            if other == key:
                continue
            if coming > start and failure in _LOST:
                entry.why = f"{name} was lost with its machine or process"
            elif now is not None and now.address != address:
                entry.why = f"{name} has begun again at another address"
        return entry.why
