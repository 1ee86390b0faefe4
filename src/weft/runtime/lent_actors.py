"""Actors of graphs and the runs that have them: one run of a graph at a time, each with new objects."""

from __future__ import annotations

import os
import threading
import weakref
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol, runtime_checkable

from weft.graph.logical import VertexKind
from weft.model.errors import ConflictError
from weft.worker.actors import SERVE, ActorAddress, ActorHandle, handle_of

if TYPE_CHECKING:
    from weft.runtime.job import JobRun
    from weft.worker.actor_gateway import Entrance


def tell_end(handle: ActorHandle, job: JobRun) -> None:
    """Tell later calls why an actor has ended. Its handle, and with it its folder, lives until then."""
    message = "" if job.outcome is None else job.outcome.message
    handle._address.mark_ended(message.partition("\n")[0] or "it was stopped")


class BegunActor(Protocol):
    """An actor of a session that has not ended."""

    @property
    def begun(self) -> bool:
        """Whether it has the resources that it asks for."""
        ...

    @property
    def has_worker(self) -> bool:
        """Whether it holds a worker, which other tasks may wait for."""
        ...

    def stop(self, *, finish: bool, since: float | None = None) -> None:
        """Stop the actor and wait for its end; with `finish` it answers the calls that were made before.

        The seconds for that begin at `since`, a time of `RealClock`, or now.
        """
        ...


@runtime_checkable
class OfMachines(Protocol):
    """A backend whose tasks run on several machines."""

    def entrance(self) -> Entrance:
        """Return how its machines reach this process."""
        ...


def lend_to_cluster(handle: ActorHandle, executor: object) -> None:
    """Let the machines of a backend reach an actor of this process, as long as its handle lives."""
    if not isinstance(executor, OfMachines):
        return
    from weft.worker.actor_gateway import lend_to_machines, take_back

    lend_to_machines(handle._address, executor.entrance())
    weakref.finalize(handle, take_back, handle._address, os.getpid())


def lend_actors(job: JobRun, executor: object) -> None:
    """Let the actors of a graph begin, also after an earlier run of the graph.

    ConflictError: another run of the graph, which has not ended, has one of them.
    """
    for vertex in job.graph.vertices.values():
        if vertex.kind is not VertexKind.SERVICE or vertex.program.target != SERVE:
            continue
        address: ActorAddress = vertex.program.params["address"]
        owner = _owners.get(address.folder)
        if owner is not None and owner.outcome is None:
            raise ConflictError(
                f"the actor {address.name} of this graph serves another run, {owner.id}, which has not ended",
                hint="Wait for that run, or make a graph for each run.",
            )
        handle = ActorHandle(address)
        with _lending:
            _owners[address.folder] = job
            if address.begin_again():  # the process that made the graph is gone
                handle = handle_of(address)
        lend_to_cluster(handle, executor)
        job.when_ended(partial(_given_back, handle, job))


def _given_back(handle: ActorHandle, job: JobRun) -> None:
    with _lending:
        if _owners.get(handle._address.folder) is job:  # else a later run has begun the actor again
            tell_end(handle, job)


_lending: Final = threading.Lock()
_owners: Final[weakref.WeakValueDictionary[str, JobRun]] = weakref.WeakValueDictionary()
"""The latest run of each actor of a graph, by its folder."""
