"""Side outputs of tasks on file systems, made durable before the record of their end.

A sync of a whole file system covers all writes of a command, and waits for the writes of all other programs too. So the
named outputs of a task are synced one by one, and the whole file system only for tasks without any.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING

from weft.engine.commands import Launch
from weft.engine.events import Done, Failed, Hit, Progress
from weft.store.disk import FileSystems, sync_paths

if TYPE_CHECKING:
    from weft.engine.commands import Command
    from weft.engine.events import Event

SyncPaths = Collection[str] | None
"""Paths to sync; None stands for all writes."""


class SideOutputs:
    """Collects the side outputs of ended tasks, and syncs them.

    `outputs` returns the paths of the outputs of a task, by vertex and index, or None if it may have written anywhere.
    """

    def __init__(self, systems: FileSystems, outputs: Callable[[str, int], SyncPaths]) -> None:
        self.systems = systems
        self._outputs = outputs
        self._leases: dict[int, tuple[str, int, bool]] = {}

    def ended(self, events: Sequence[Event], commands: Sequence[Command]) -> list[SyncPaths]:
        """Return the side outputs of each task that ended in a tick; the loop calls this under its lock, in order."""
        found: list[SyncPaths] = []
        for event in events:
            if isinstance(event, Hit):
                found.append(self._outputs(event.vertex, event.index))
            elif isinstance(event, Done | Failed | Progress):
                found += self._of_lease(event)
        for command in commands:
            if type(command) is Launch:
                self._leases[command.lease] = command.vertex, command.lo, command.cone is None
        return found

    def _of_lease(self, event: Done | Failed | Progress) -> list[SyncPaths]:
        vertex, lo, known = self._leases.pop(event.lease, ("", 0, False))
        if isinstance(event, Progress):
            self._leases[event.lease] = vertex, event.hi, known
        return [self._outputs(vertex, index) for index in range(lo, event.hi)] if known else [None]

    def sync(self, side_outputs: Sequence[SyncPaths]) -> None:
        """Make side outputs durable. OSError: not possible."""
        paths: list[str] = []
        whole = False
        for paths_of_task in side_outputs:
            if paths_of_task is None:
                whole = True
            else:
                paths += paths_of_task
        if whole or not sync_paths(paths):
            self.systems.sync()
