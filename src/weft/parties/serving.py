"""The server of a party: its jobs, its line to other parties, and its interface for clients, in one process."""

from __future__ import annotations

import logging
import os
import shutil
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Final

from weft.frontends.federated.components.registry import COMPONENTS
from weft.model.errors import ConflictError, WeftError
from weft.model.masking import without_passwords
from weft.parties.audit import AuditLog
from weft.parties.client import SERVED_AT
from weft.parties.client_keys import read_keys
from weft.parties.failures import line_of
from weft.parties.following import followed
from weft.parties.http.app import HttpSettings, make_app
from weft.parties.http.callers import CheckCallers, SignedRequests
from weft.parties.http.ports import PartyPorts
from weft.parties.http.server import HttpServer
from weft.parties.jobs import SiteJobs
from weft.parties.ledger import PartyLedger
from weft.parties.model_store import ModelStore
from weft.parties.models import SiteModels
from weft.parties.part_folders import PartFolders
from weft.parties.peers import Peers
from weft.parties.policy import ALWAYS, OPEN, RULES, SHOWN, LivePolicy, SitePolicy, policy_lines, read_policy
from weft.parties.publishing import MODEL_PATH, SitePublishing
from weft.parties.site import PartySite, is_loopback, joined_address, write_file
from weft.parties.surroundings import PartySurroundings
from weft.parties.tables import PartyTables
from weft.parties.tags import ModelTags
from weft.parties.transport import PartyClient, PartyServer
from weft.parties.work import PartyWork
from weft.runtime.clock import RealClock
from weft.store.folders import OwnerLock
from weft.store.limits import disk_named
from weft.wiring.session import Session

if TYPE_CHECKING:
    from pathlib import Path

    from weft.frontends.federated.schema import FederatedJob, Party

_CALL_S: Final = 30.0
_SHORT_CALL_S: Final = 10.0
"""The same for a short message: a party that stands still is noticed by those about its jobs."""
_SHORT_BYTES: Final = 1 << 16
_log = logging.getLogger(__name__)


@contextmanager
def running_server(site: PartySite, clock: RealClock) -> Iterator[PartyPorts]:
    """Run the server of a site, and yield what its clients reach.

    ConflictError: it runs already, or a port is taken. UsageError: its policy is wrong. DiskFullError, ForbiddenError:
    its folder cannot be written.
    """
    first = read_policy(site.folder)
    policy = LivePolicy(site.folder, _failed)
    with disk_named(site.folder), ExitStack() as stack:
        stack.callback(_owned(site).release)
        run = site.run
        shutil.rmtree(run, ignore_errors=True)  # what a killed server has left
        run.mkdir(mode=0o700)
        stack.callback(shutil.rmtree, run, ignore_errors=True)
        scratch = run / "requests"
        scratch.mkdir()
        peers = Peers(site)
        audit = AuditLog(site.folder / "audit.jsonl", site.party.id, clock)
        stack.callback(audit.close)
        client = PartyClient(site, peers, clock)
        stack.callback(client.close)
        ledger = PartyLedger(first.database or site.database)
        stack.callback(ledger.close)
        ledger.claim(site.party.id)
        folders = PartFolders(site.folder / "jobs")
        models = ModelStore(site.folder / "models", folders)
        tables = PartyTables.open(
            site.folder, is_open=lambda: policy.now().data == OPEN, clock=clock, sources=[site.folder / "data"]
        )
        stack.callback(tables.close)
        tables.sweep()
        tags = ModelTags(site.folder, clock=clock)
        stack.callback(tags.close)
        session = Session("threads", workers=1)
        stack.callback(session.close)  # jobs go on at the next start

        def call(party: str, path: str, body: bytes) -> bytes:
            return client.call(party, path, body, _CALL_S if len(body) > _SHORT_BYTES else _SHORT_CALL_S)

        def asks(job: FederatedJob, part: Party) -> bool:
            return policy.now().approval == ALWAYS

        work = PartyWork(
            PartySurroundings(
                me=site.party.id,
                cores=site.party.cores,
                ledger=ledger,
                tables=tables,
                folders=folders,
                models=models,
                session=session,
                clock=clock,
                sockets=run,
                call=call,
                check_route=lambda party: peers.carrier(peers.find(party)),
                failed=_failed,
                asks_approval=asks,
                queue=lambda: policy.now().queue,
                shows_ids=lambda: policy.now().ids == SHOWN,
                problem=lambda: audit.problem,
            )
        )
        site_models = SiteModels(site.party.id, work, models, tags, clock)
        publishing = SitePublishing(site.party.id, site_models, models, work.mail.reach, clock)
        jobs = SiteJobs(site.party, work, folders, site_models, tables.new_job_id)
        ports = PartyPorts(
            party_id=site.party.id,
            jobs=jobs,
            tracking=jobs.tracking,
            models=site_models,
            publishing=publishing,
            people=jobs,
            tables=tables,
            scratch=scratch,
            modules=sorted(COMPONENTS),
        )
        stack.callback(work.close)
        work.start()  # before messages of others: parts must know first that their processes have ended
        work.mail.peers_changed()
        stack.enter_context(followed(policy.now, work.policy_changed, "party-policy"))
        stack.enter_context(
            followed(lambda: frozenset(one.id for one in peers), work.mail.peers_changed, "party-peers")
        )
        handlers = work.handlers() | {MODEL_PATH: publishing.asked}
        stack.enter_context(PartyServer(site, peers, handlers, clock, audit, client=client))
        signed = SignedRequests(lambda: read_keys(site.folder), clock, site.folder / "clients.seen")
        stack.callback(signed.close)
        app = make_app(ports, HttpSettings(hosts=first.client_names, check=CheckCallers(signed)))
        stack.enter_context(HttpServer(app, host=first.client_host, port=site.party.http_port))
        write_file(site.folder, f"{run.name}/{SERVED_AT}", first.client_host.encode())
        yield ports


class _MaskedLines(logging.Formatter):
    """Writes records without the passwords of URLs, in tracebacks too."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the text of a record."""
        return without_passwords(super().format(record))


def _failed(what: str, error: BaseException) -> None:
    if isinstance(error, WeftError):
        _log.warning("%s: %s", line_of(what), line_of(error.message))
    else:
        _log.error("%s failed", what, exc_info=error)


def _owned(site: PartySite) -> OwnerLock:
    """Take the folder of a site. ConflictError: another server runs there."""
    try:
        return OwnerLock(site.folder)
    except ConflictError:
        raise ConflictError(
            f"the server of party {site.id} runs already in {site.folder}",
            hint="End that one first: Ctrl-C, or the process that it named when it started.",
        ) from None


def serve(folder: Path, say: Callable[[str], None]) -> None:
    """Run the server of the party in a folder until SIGINT or SIGTERM."""
    log = logging.StreamHandler()
    log.setFormatter(_MaskedLines("%(asctime)s %(levelname)s %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[log])
    site = PartySite.open(folder)
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    with running_server(site, RealClock()), followed(site.database.exists, ended.set, "party-database"):
        is_there = site.database.exists()
        say(f"party {site.id} ({site.party.name}) runs, process {os.getpid()}")
        for line in said_at_start(site, read_policy(folder)):
            say(line)
        ended.wait()
        if is_there and not site.database.exists():
            raise ConflictError(
                f"the database of jobs in {site.database} is gone: it was moved or deleted while the server ran",
                hint="Move it back, with the files of its name beside it, and start the server again: jobs go on then. "
                "Without it a server begins anew, and knows none of its jobs.",
            )
        say("the server ends; jobs go on at its next start")


def said_at_start(site: PartySite, policy: SitePolicy) -> list[str]:
    """Return in words who reaches a server, and what it lets others do."""
    lines = [f"parties reach it at {site.address}" if site.address else "no party reaches it: it asks for its messages"]
    lines.append(f"clients reach it at http://{joined_address(policy.client_host, site.party.http_port)}/v1")
    if not is_loopback(policy.client_host):
        lines.append(
            "warning: other machines reach it there, too. Their clients need keys (weft party keys --add NAME), and "
            "nothing is encrypted: on a network put a proxy with TLS before it"
        )
    meanings = "; ".join(one.meaning for one in policy_lines(policy) if one.field in RULES)
    return [*lines, f"{meanings} (weft party policy)"]
