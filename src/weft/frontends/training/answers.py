"""The answers of the process of a run to its replicas at the machines of a cluster; `remote.py` has the questions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

from msgspec import Struct, field, to_builtins

from weft.frontends.training.addresses import AddressBook, ReplicaAddress, ReplicaKey
from weft.frontends.training.images import ImageMap  # noqa: TC001 - fields of records are read at run time
from weft.frontends.training.log_folders import LogPlace
from weft.frontends.training.replica import ReplicaHost
from weft.frontends.training.schema import JobFile  # noqa: TC001 - fields of records are read at run time
from weft.frontends.training.surroundings import (
    StepSurroundings,  # noqa: TC001 - fields of records are read at run time
)
from weft.model.errors import InternalError
from weft.model.records import converter

if TYPE_CHECKING:
    from weft.frontends.training.replica import Replica
    from weft.graph.spec import MachineAddress, RunFacts


class RemoteDescription(Struct, frozen=True, kw_only=True):
    """What the process of a run tells a replica that arrives at a machine. Paths are those of all machines.

    `host` is the address of the machine, `ports` are those that the replica had there before, `scale` the numbers of
    replicas that users have set. `gives_devices`: some replica of the run requests GPUs. `step` is that of a pipeline.
    `records` is the folder of the records of processes.
    """

    run: str
    folder: str
    base: str
    state: str
    files: JobFile
    maps: tuple[ImageMap, ...] = ()
    measures: bool = False
    gives_devices: bool = False
    step: StepSurroundings | None = None
    host: str = ""
    ports: Mapping[int, int] = field(default_factory=dict)
    scale: dict[str, int] = field(default_factory=dict)
    records: str = ""
    in_trial: bool = False


_OF_ONE: Final = ("arrive", "listen", "addresses", "again", "failed")
"""The questions that begin with vertex and index of who asks."""
description_of: Final = converter(RemoteDescription)


class AnsweringHost(ReplicaHost, Protocol):
    """The jobs of a run, in the process that owns it, as replicas at other machines ask about them."""

    def describe(self, host: str, ports: Mapping[int, int]) -> RemoteDescription:
        """Return what a replica at a machine needs."""
        ...

    def replica(self, job: str, type: str, index: int) -> Replica:
        """Return a replica by the name of its job, its type and its index."""
        ...

    def replica_of(self, vertex: str, index: int) -> Replica:
        """Return a replica by its vertex and index."""
        ...

    def vertices_beside(self, vertex: str) -> list[str]:
        """Return the vertices of the job that a vertex belongs to."""
        ...


class RemoteAnswers:
    """Answers the replicas of a run. The data of secrets travels in answers alone, over the connections of the cluster,
    which begin with a proof.
    """

    def __init__(self, jobs: AnsweringHost) -> None:
        self._jobs = jobs
        self._book = AddressBook()

    def answer(self, question: Sequence[Any], machine: MachineAddress, run: RunFacts) -> Any:
        """See `RunHost.answer`."""
        verb, *given = question
        jobs = self._jobs
        number = self._book.hear((given[0], given[1])) if verb in _OF_ONE else 0
        if verb == "arrive":
            return self._arrive(*given, machine=machine)
        if verb == "listen":
            return self._listen(*given, machine=machine, run=run)
        if verb == "addresses":
            return self._addresses(*given, run=run)
        if verb == "again":
            return self._book.why_again((given[0], given[1]), self._going(given[0], run))
        if verb == "failed":
            return self._failed(*given, number=number, run=run)
        if verb == "follow":
            vertex, index, places = given
            return jobs.follow((vertex, index), jobs.replica_of(vertex, index), [LogPlace(*place) for place in places])
        if verb == "collect":
            return jobs.collect((given[0], given[1]))
        if verb == "usage":
            return jobs.note_usage(*given)
        if verb in ("ready", "event"):
            job, type, index, *rest = given
            note = jobs.note_ready if verb == "ready" else jobs.note_event
            return note(jobs.replica(job, type, index), *rest)
        raise InternalError(f"a replica asks {verb!r}, which nobody answers")

    def _arrive(self, vertex: str, index: int, *, machine: MachineAddress) -> Any:
        jobs = self._jobs
        told = jobs.describe(machine.host, self._book.before((vertex, index), machine.host))
        return to_builtins(told)

    def _listen(
        self, vertex: str, index: int, ports: Mapping[int, int], *, machine: MachineAddress, run: RunFacts
    ) -> None:
        start, _ = run.starts(vertex).get(index, (0, ""))
        self._book.listen((vertex, index), start, ReplicaAddress(machine.host, dict(ports)))

    def _addresses(self, vertex: str, index: int, *, run: RunFacts) -> Any:
        found = self._book.ask((vertex, index), self._going(vertex, run))
        if found is None:
            return None
        return {self._jobs.replica_of(*key).name: to_builtins(address) for key, address in found.items()}

    def _failed(self, vertex: str, index: int, since: int, *, number: int, run: RunFacts) -> tuple[str | None, int]:
        """Return why a replica that has failed must begin again, "" if it is its own fault, None while that is not
        known; and the number since which the others must have been heard.
        """
        key, going, since = (vertex, index), self._going(vertex, run), since or number
        why = self._book.why_again(key, going)
        return (None if not why and self._book.silent(key, going, since) else why), since

    def _going(self, vertex: str, run: RunFacts) -> dict[ReplicaKey, tuple[int, str]]:
        """Return the replicas of the same job that run or are to run."""
        own = self._jobs.vertices_beside(vertex)
        return {(one, index): about for one in own for index, about in run.starts(one).items()}
