"""The work of several parties in this process, without servers: a line between them that is cut on demand."""

from __future__ import annotations

import io
import json
import sqlite3
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, Any, Self

from tests.integration.places import until
from weft.frontends.federated.schema import Party
from weft.model.errors import DiskFullError, PartyIdentityError, PartyUnreachableError, WeftError
from weft.parties.failures import error_of, report_of
from weft.parties.job_views import ENDED
from weft.parties.jobs import SiteJobs
from weft.parties.ledger import PartyLedger
from weft.parties.model_store import ModelStore
from weft.parties.models import SiteModels
from weft.parties.part_folders import PartFolders
from weft.parties.peers import Peer
from weft.parties.site import PartyDescription
from weft.parties.surroundings import PartySurroundings
from weft.parties.tables import NewTable, PartyTables
from weft.parties.tags import ModelTags
from weft.parties.work import PartyWork
from weft.runtime.clock import RealClock
from weft.wiring.session import Session

if TYPE_CHECKING:
    from pathlib import Path

TOY: dict[str, Any] = {"components": {"secure_add_0": {"module": "SecureAddExample"}}}


def toy_conf(*, host: str = "2", initiator: str = "1", **parameters: Any) -> dict[str, Any]:
    """Return the conf of a job that adds shares; `parameters` are those of the job."""
    return {
        "dsl_version": 2,
        "initiator": {"role": "guest", "party_id": initiator},
        "role": {"guest": [initiator], "host": [host]},
        "job_parameters": {"common": parameters},
        "component_parameters": {"common": {"secure_add_0": {"data_num": 10, "partition": 1}}},
    }


def peer_of(id: str) -> Peer:
    """Return a party as another one knows it."""
    return Peer(id=id, name=id, address="", certificate="", signing_key=b"", fingerprint="")


class OneWork:
    """A party: its work, its jobs as clients see them, and what went wrong in it."""

    def __init__(self, works: Works, folder: Path, id: str, *, cores: int, asks: bool) -> None:
        self.id, self.asks = id, asks
        self.failures: list[BaseException] = []
        self._stack = ExitStack()
        clock, close = RealClock(), self._stack.callback
        self.folders = PartFolders(folder / "jobs")
        self.ledger = PartyLedger(folder / "party.db")
        self.tables = PartyTables.open(folder, is_open=lambda: True, clock=clock)
        tags = ModelTags(folder, clock=clock)
        for one in (self.ledger, self.tables, tags):
            close(one.close)
        models = ModelStore(folder / "models", self.folders)
        sockets = folder / "run"
        sockets.mkdir(exist_ok=True)
        self.work = PartyWork(
            PartySurroundings(
                me=id,
                cores=cores,
                ledger=self.ledger,
                tables=self.tables,
                folders=self.folders,
                models=models,
                session=self._stack.enter_context(Session("threads", workers=1)),
                clock=clock,
                sockets=sockets,
                call=lambda to, path, body: works.carry(id, to, path, body),
                check_route=lambda to: works.check_known(to, id),
                failed=lambda what, error: self.failures.append(error),
                asks_approval=lambda job, part: self.asks,
                queue=lambda: "backfill",
                shows_ids=lambda: False,
            )
        )
        site_models = SiteModels(id, self.work, models, tags, clock)
        party = PartyDescription(id, id, "", 0, 0, cores, 0.0)
        self.jobs = SiteJobs(party, self.work, self.folders, site_models, self.tables.new_job_id)
        close(self.work.close)
        self.work.start()

    def submit(self, conf: dict[str, Any], dsl: dict[str, Any] | None = None) -> str:
        """Begin a job, and return its id."""
        return self.jobs.submit(dsl or TOY, conf, "").job_id

    def upload(self, namespace: str, name: str, rows: bytes) -> None:
        """Store a table of CSV."""
        self.tables.upload(io.BytesIO(rows), NewTable(namespace=namespace, name=name), name=f"{name}.csv", conf={})

    def status(self, job: str) -> str:
        """Return the status of a job here, "" if it is not known."""
        entry = self.ledger.job(job)
        return "" if entry is None else entry.status

    def ended(self, job: str) -> str:
        """Wait until a job has ended here, and return its status."""
        until(lambda: self.status(job) in ENDED, f"the end of {job} at {self.id}")
        return self.status(job)

    def idle(self) -> bool:
        """Whether nothing of any job is left to do."""
        letters = sum(count for count, _ in self.work.mail.outbox.waiting().values())
        return not (letters or self.work.loop.subjects() or self.ledger.documents())

    def approve(self, job: str) -> None:
        """Approve a job of another party."""
        self.work.approve(job, "")

    def close(self) -> None:
        """End the party; what it has written stays."""
        self._stack.close()


class Works:
    """Parties by id. A context manager; `cut` are the ids of those that nobody reaches, and that reach nobody.

    `full` has by id the paths of messages for which the party has no room, and `removed` the parties that it does not
    know any more.
    """

    def __init__(self, folder: Path, *ids: str, cores: int = 4, asks: tuple[str, ...] = ()) -> None:
        self.folder, self.cores, self.asks = folder, cores, asks
        self.cut: set[str] = set()
        self.full: dict[str, set[str]] = {}
        self.removed: dict[str, set[str]] = {}
        self.of: dict[str, OneWork] = {}
        for id in ids:
            self.start(id)

    def start(self, id: str) -> None:
        """Start a party, again with what it has written."""
        folder = self.folder / id
        folder.mkdir(exist_ok=True)
        self.of[id] = OneWork(self, folder, id, cores=self.cores, asks=id in self.asks)

    def end(self, id: str) -> None:
        """End a party."""
        self.of.pop(id).close()

    def crash(self, id: str) -> None:
        """End a party; what it writes from now on is lost, as after a crash."""
        folder = self.folder / id
        with (
            closing(sqlite3.connect(folder / "party.db")) as source,
            closing(sqlite3.connect(folder / "kept")) as target,
        ):
            source.backup(target)
        self.end(id)
        for file in folder.glob("party.db*"):
            file.unlink()
        (folder / "kept").rename(folder / "party.db")

    def check_known(self, id: str, to: str) -> None:
        """Require that a party is known to another one."""
        if id in self.removed.get(to, ()):
            raise PartyIdentityError(f"party {id} is not known to party {to}", party=id)

    def remove(self, id: str, at: str) -> None:
        """Let a party forget another one."""
        self.removed.setdefault(at, set()).add(id)
        self.of[at].work.mail.peers_changed()

    def carry(self, sender: str, to: str, path: str, body: bytes) -> bytes:
        """Carry a message and its answer."""
        self.check_known(to, sender)
        receiver = self.of.get(to)
        if receiver is None or {sender, to} & self.cut:
            raise PartyUnreachableError(f"party {to} does not answer", party=to)
        try:
            self.check_known(sender, to)
            if path in self.full.get(to, ()):
                raise DiskFullError("the disk of /parties/2 is full")
            return receiver.work.handlers()[path](peer_of(sender), body)
        except WeftError as error:  # as on a real line
            raise error_of(report_of(error, to), to) from None

    def parts(self, job: str) -> dict[Party, Any]:
        """Return the state of each part of a job, as its own party has written it."""
        found: dict[Party, Any] = {}
        for one in self.of.values():
            for _, role, id, state in one.ledger.participations(job):
                found[Party(role, id)] = json.loads(state)
        return found

    def approve(self, job: str, part: Party) -> None:
        """Let the party of a part approve a job, as soon as it knows it."""
        until(lambda: part in self.parts(job), f"{job} at {part}")
        self.of[part.id].approve(job)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for id in list(self.of):
            self.end(id)
