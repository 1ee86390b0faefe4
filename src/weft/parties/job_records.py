"""The jobs that a party knows: their records, their files, and the states of its parts."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

from weft.frontends.federated.coordination.coordinator import Coordination, read_coordination
from weft.frontends.federated.coordination.participant import Participation, read_participation
from weft.frontends.federated.planning import read_job
from weft.frontends.federated.schema import FederatedJob, Party
from weft.model.errors import NotFoundError
from weft.parties.loop import PartyLoop, Subject

if TYPE_CHECKING:
    from weft.parties.ledger import JobEntry, PartyLedger

_KEPT_JOBS: Final = 64


class JobRecords:
    """Finds jobs in the ledger, and their states in the loop while they live there. For several threads."""

    def __init__(self, ledger: PartyLedger, loop: PartyLoop) -> None:
        self.ledger, self.loop = ledger, loop
        self._jobs: dict[str, FederatedJob] = {}
        self._jobs_lock = threading.Lock()

    def entry(self, id: str) -> JobEntry:
        """Return the record of a job. NotFoundError: there is none."""
        found = self.ledger.job(id)
        if found is None:
            raise NotFoundError(f"there is no job {id}", hint="weft party jobs lists all.")
        return found

    def job(self, id: str) -> FederatedJob:
        """Return a job. NotFoundError: there is none."""
        with self._jobs_lock:
            known = self._jobs.get(id)
        if known is not None:
            return known
        entry = self.entry(id)
        return self.remember(id, read_job(entry.dsl, entry.conf))

    def coordination(self, id: str) -> Coordination | None:
        """Return the state of a job of this party."""
        machine = self.loop.machine(Subject(id))
        if machine is not None:
            return machine.state  # type: ignore[no-any-return]
        return next((read_coordination(state) for _, state in self.ledger.coordinations(id)), None)

    def participations(self, id: str) -> list[Participation]:
        """Return the states of the parts of this party in a job."""
        found = []
        for _, role, party, state in self.ledger.participations(id):
            machine = self.loop.machine(Subject(id, Party(role, party)))
            found.append(read_participation(state) if machine is None else machine.state)
        return found

    def remember(self, id: str, job: FederatedJob) -> FederatedJob:
        """Keep a job that was read, for a while."""
        with self._jobs_lock:
            self._jobs[id] = job
            while len(self._jobs) > _KEPT_JOBS:
                self._jobs.pop(next(iter(self._jobs)))
        return job
