"""The mail of a party: messages of others and their answers, the documents that go out, and the ways to others."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct

from weft.frontends.federated.coordination.coordinator import (
    PartyGone,
    Reachable,
    ReportReceived,
    Undeliverable,
    Unreachable,
)
from weft.frontends.federated.coordination.participant import InitiatorGone, WishReceived
from weft.frontends.federated.coordination.records import (
    JobPhase,
    PartFailure,
    Report,
    Wish,
    read_document,
    write_document,
)
from weft.frontends.federated.planning import read_job
from weft.model.errors import (
    CapacityError,
    DiskFullError,
    PartyError,
    PartyIdentityError,
    PartyMessageError,
    PartyRefusedError,
    PartyUnreachableError,
    WeftError,
)
from weft.parties.inputs import plan_of
from weft.parties.job_rules import digest_of
from weft.parties.ledger import REPORT, WISH, JobEntry
from weft.parties.loop import Subject
from weft.parties.machines import CoordinationMachine, PartMachine
from weft.parties.outbox import Letter, Outbox, OutboxEvents
from weft.parties.values import VALUES_PATH

if TYPE_CHECKING:
    from weft.frontends.federated.schema import FederatedJob
    from weft.parties.job_records import JobRecords
    from weft.parties.peers import Peer
    from weft.parties.surroundings import PartySurroundings

WISH_PATH: Final = "/wish"
REPORT_PATH: Final = "/report"
REQUEST_PATH: Final = "/request"


class WishMessage(Struct, frozen=True):
    """A wish, with the files of the job while the party may not know it."""

    wish: Wish
    dsl: str = ""
    conf: str = ""


class RequestMessage(Struct, frozen=True):
    """What a partner asks of the initiator: `stop` a job with a status."""

    job: str
    do: str
    status: str = "canceled"


_decoders: Final[dict[Any, msgspec.json.Decoder[Any]]] = {
    one: msgspec.json.Decoder(one) for one in (WishMessage, Report, RequestMessage)
}


class PartyMail:
    """Takes messages of other parties, and sends them documents.

    `machine_of` makes the machine of a part of this party, `stop(job, status, reason)` stops a job of it.
    """

    def __init__(
        self,
        around: PartySurroundings,
        jobs: JobRecords,
        machine_of: Callable[[Subject], PartMachine],
        stop: Callable[[str, str, str], None],
    ) -> None:
        self._around, self._me, self._jobs, self._loop = around, around.me, jobs, jobs.loop
        self._machine_of, self._stop = machine_of, stop
        self.outbox = Outbox(OutboxEvents(self._send, self._answered, self._refused, self._reachable, self._failed))
        self._unreachable: dict[str, float] = {}
        self._hindered: dict[str, str] = {}
        self._lock = threading.Lock()

    # ----------------------------------------------------------------------------------------------- messages of others

    def handlers(self, receive: Callable[[str, bytes], bytes]) -> dict[str, Callable[[Peer, bytes], bytes]]:
        """Return what answers messages of other parties, by path; `receive` takes values of a party."""
        found: dict[str, Callable[[Peer, bytes], bytes]] = {
            WISH_PATH: self._wish_came,
            REPORT_PATH: self._report_came,
            REQUEST_PATH: self._request_came,
            VALUES_PATH: lambda peer, body: receive(peer.id, body),
        }
        return {path: self._heard(handler) for path, handler in found.items()}

    def _heard(self, handler: Callable[[Peer, bytes], bytes]) -> Callable[[Peer, bytes], bytes]:
        def heard(peer: Peer, body: bytes) -> bytes:
            self.outbox.hurry(peer.id)
            return handler(peer, body)

        return heard

    def _wish_came(self, peer: Peer, body: bytes) -> bytes:
        message = _decoded(body, WishMessage, peer.id)
        wish = message.wish
        if wish.initiator.id != peer.id or wish.part.id != self._me:
            raise PartyIdentityError(
                f"party {peer.id} has sent a wish of {wish.initiator} for {wish.part}", party=peer.id
            )
        entry = self._jobs.ledger.job(wish.job)
        if entry is None:
            self._first_wish(message, peer)
        elif entry.initiator != peer.id:
            raise PartyIdentityError(f"job {wish.job} is another one here", party=peer.id)
        elif entry.digest != wish.digest:
            self._changed_wish(message, entry, peer)
        subject = Subject(wish.job, wish.part)
        machine = self._loop.call(subject, WishReceived(wish), lambda: self._machine_of(subject))
        self._end_without_way(subject, peer.id)
        report = None if machine is None else machine.state.report
        return b"" if report is None else write_document(report)

    def _changed_wish(self, message: WishMessage, entry: JobEntry, peer: Peer) -> None:
        """Take other parameters of a job for a new epoch. PartyRefusedError, PartyIdentityError: it is another job."""
        wish = message.wish
        known = [one.wish.epoch for one in self._jobs.participations(wish.job) if one.wish is not None]
        if wish.epoch <= max(known, default=0):
            raise PartyIdentityError(f"job {wish.job} is another one here", party=peer.id)
        job = self._checked_job(message, peer)
        parties = {(one.role, one.id) for one in job.parts}
        if message.dsl != entry.dsl or parties != {(one.role, one.id) for one in self._jobs.job(wish.job).parts}:
            raise PartyIdentityError(f"job {wish.job} has other components or parties here", party=peer.id)
        with self._jobs.ledger.write() as write:
            write.set_job(wish.job, conf=message.conf, digest=wish.digest)
        self._jobs.remember(wish.job, job)

    def _checked_job(self, message: WishMessage, peer: Peer) -> FederatedJob:
        """Return the job of a message. PartyRefusedError, PartyIdentityError: it is not one for this party."""
        wish = message.wish
        if not message.dsl:
            raise PartyRefusedError(f"party {self._me} does not know job {wish.job}", party=self._me)
        if digest_of(message.dsl, message.conf) != wish.digest:
            raise PartyMessageError(f"the files of job {wish.job} have another digest", party=peer.id)
        job = read_job(message.dsl, message.conf)
        plan_of(job, wish.part)
        if job.conf.initiator != wish.initiator or not peer.may_act_as(wish.initiator.role):
            raise PartyIdentityError(
                f"party {peer.id} may not begin job {wish.job} as {wish.initiator}",
                party=peer.id,
                hint="The conf names another initiator, or the role is not one that was agreed with the party.",
            )
        return job

    def _first_wish(self, message: WishMessage, peer: Peer) -> None:
        """Take a new job of another party. Errors: see `_checked_job`."""
        wish, job = message.wish, self._checked_job(message, peer)
        with self._jobs.ledger.write() as write:
            write.add_job(
                JobEntry(
                    job=wish.job,
                    digest=wish.digest,
                    initiator_role=wish.initiator.role,
                    initiator=wish.initiator.id,
                    mine=0,
                    status="waiting",
                    created=self._around.clock.wall(),
                    dsl=message.dsl,
                    conf=message.conf,
                )
            )
        self._jobs.remember(wish.job, job)

    def _report_came(self, peer: Peer, body: bytes) -> bytes:
        report = _decoded(body, Report, peer.id)
        if report.part.id != peer.id:
            raise PartyIdentityError(f"party {peer.id} has sent a report of {report.part}", party=peer.id)
        entry = self._jobs.entry(report.job)
        if not entry.mine:
            raise PartyRefusedError(f"job {report.job} belongs to party {entry.initiator}", party=self._me)
        self._loop.call(Subject(report.job), ReportReceived(report))
        state = self._jobs.coordination(report.job)
        wish = None if state is None else state.wishes.get(str(report.part))
        return b"" if wish is None else write_document(wish)

    def _request_came(self, peer: Peer, body: bytes) -> bytes:
        request = _decoded(body, RequestMessage, peer.id)
        job = self._jobs.job(request.job)
        if all(peer.id not in ids for ids in job.conf.roles.values()):
            raise PartyIdentityError(f"party {peer.id} has no part in job {request.job}", party=peer.id)
        if request.do != "stop" or request.status not in ("canceled", "failed", "timeout"):
            raise PartyMessageError(f"party {peer.id} asks for {request.do[:40]!r}", party=peer.id)
        self._stop(request.job, request.status, f"stopped by party {peer.id}")
        return b""

    def request(self, job: str, initiator: str, do: str, status: str) -> None:
        """Ask the initiator of a job to do something; if it does not know this party any more, the parts here end.

        PartyError: it does not answer, or refuses.
        """
        try:
            self.reach(initiator, REQUEST_PATH, msgspec.json.encode(RequestMessage(job, do, status)))
        except PartyIdentityError as error:
            if not self._is_unknown(error):
                raise
            for state in self._jobs.participations(job):
                self._loop.post(Subject(job, state.part), InitiatorGone(self._failure_of(error, initiator)))

    # ---------------------------------------------------------------------------------------------------- documents out

    def reach(self, party: str, path: str, body: bytes) -> bytes:
        """Return the answer of a party. PartyUnreachableError: also if it lacks room, which may come."""
        words = ""
        try:
            return self._around.call(party, path, body)
        except CapacityError as error:
            full = isinstance(error, DiskFullError)
            words = "has no room on its disk" if full else f"takes no messages now ({error.message})"
            raise PartyUnreachableError(
                f"party {party} {words}", party=party, hint="Its jobs go on by themselves when it has room again."
            ) from None
        except PartyIdentityError as error:
            words = f"cannot be reached: {error.message}"
            raise
        except (PartyUnreachableError, PartyRefusedError):
            raise
        except PartyError as error:
            words = f"takes no messages now ({error.message})"
            raise
        finally:
            with self._lock:
                self._hindered.pop(party, None)
                if words:
                    self._hindered[party] = words

    def _send(self, party: str, letter: Letter) -> bytes:
        path, body = self._message(letter)
        try:
            return self.reach(party, path, body)
        except PartyError:
            raise
        except WeftError as error:  # of the other party, such as a file of a job that its version does not read
            raise PartyRefusedError(error.message, party=party, hint=error.hint) from None

    def _message(self, letter: Letter) -> tuple[str, bytes]:
        """Return the path and the body of a letter."""
        if letter.kind == REPORT:
            return REPORT_PATH, letter.body
        wish = read_document(letter.body, Wish)
        message = WishMessage(wish)
        if wish.phase in (JobPhase.CREATE, JobPhase.END):
            entry = self._jobs.entry(letter.job)
            if entry.digest == wish.digest:  # else the files have changed for the next epoch
                message = WishMessage(wish, entry.dsl, entry.conf)
        return WISH_PATH, msgspec.json.encode(message)

    def _answered(self, party: str, letter: Letter, answer: bytes) -> None:
        part, kind, version = letter.part, letter.kind, letter.version
        self._loop.post_write(lambda write: write.acknowledge(letter.job, *part, kind, version))
        if not answer:
            return
        try:
            if kind == WISH:
                report = read_document(answer, Report)
                if report.part == part and report.job == letter.job:
                    self._loop.post(Subject(letter.job), ReportReceived(report))
            else:
                wish = read_document(answer, Wish)
                if wish.part == part and wish.job == letter.job:
                    self._loop.post(Subject(letter.job, part), WishReceived(wish))
                    self._end_without_way(Subject(letter.job, part), party)
        except PartyMessageError as error:
            self._around.failed(f"answer of party {party}", error)

    def _refused(self, party: str, letter: Letter, error: PartyError) -> None:
        part, kind, version = letter.part, letter.kind, letter.version
        self._loop.post_write(lambda write: write.acknowledge(letter.job, *part, kind, version))
        self._around.failed(f"party {party}", error)
        if kind == WISH:
            gone = self._no_way(party)
            event = PartyGone(party, gone) if gone else Undeliverable(part, self._failure_of(error, party))
            self._loop.post(Subject(letter.job), event)
        elif self._is_unknown(error):
            self._loop.post(Subject(letter.job, part), InitiatorGone(self._failure_of(error, party)))

    def _is_unknown(self, error: PartyError) -> bool:
        """Whether another party says that it does not know this one."""
        return isinstance(error, PartyIdentityError) and error.party == self._me

    def _failure_of(self, error: PartyError, party: str) -> PartFailure:
        """Return what another party answers; if it has removed this one, the failure is its own."""
        at = party if self._is_unknown(error) else error.party or party
        return PartFailure(error.message, at, error.code, error.hint)

    def _failed(self, party: str, error: BaseException) -> None:
        self._around.failed(f"a letter to party {party}", error)

    # --------------------------------------------------------------------------------------------------- ways to others

    def unreachable(self) -> dict[str, float]:
        """Return the parties that do not answer, and since when, in seconds since 1970."""
        with self._lock:
            return dict(self._unreachable)

    def hindered(self) -> dict[str, str]:
        """Return in words why parties take no messages that answer nevertheless."""
        with self._lock:
            return dict(self._hindered)

    def _reachable(self, party: str, error: PartyError | None) -> None:
        with self._lock:
            if error is None:
                self._unreachable.pop(party, None)
            else:
                self._unreachable.setdefault(party, self._around.clock.wall())
            why = self._hindered.get(party, "")
        for subject in self._loop.subjects():
            machine = self._loop.machine(subject)
            if isinstance(machine, CoordinationMachine) and any(one.id == party for one in machine.state.parts):
                self._loop.post(subject, Unreachable(party, why) if error is not None else Reachable(party))

    def peers_changed(self) -> None:
        """Let jobs end that need a party to which there is no way any more."""
        for subject in self._loop.subjects():
            machine = self._loop.machine(subject)
            if isinstance(machine, CoordinationMachine):
                for party in {one.id for one in machine.state.parts} - {*machine.state.gone}:
                    if (failure := self._no_way(party)) is not None:
                        self._loop.post(subject, PartyGone(party, failure))
            elif isinstance(machine, PartMachine):
                self._end_without_way(subject, machine.state.initiator.id)

    def _end_without_way(self, subject: Subject, initiator: str) -> None:
        """Let a part end if there is no way to its initiator, perhaps since its wish was on the way."""
        if (failure := self._no_way(initiator)) is not None:
            self._loop.post(subject, InitiatorGone(failure))

    def _no_way(self, party: str) -> PartFailure | None:
        """Return why there is no way to a party, None if there is one."""
        try:
            if party != self._me:
                self._around.check_route(party)
        except PartyIdentityError as error:
            # it is this party that has removed the other one
            return PartFailure(error.message, self._me, error.code, error.hint)
        return None


def _decoded(body: bytes, of: Any, party: str) -> Any:
    try:
        return _decoders[of].decode(body)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise PartyMessageError(f"a message of party {party} is malformed: {error}", party=party) from None
