"""The work of a party: its loop with all jobs, what its people ask for, and what follows from the steps of jobs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec.structs import replace

from weft.frontends.federated.coordination.coordinator import (
    FAILED,
    RUNNING,
    SUCCESS,
    TIMEOUT,
    WAITING,
    Begin,
    ComponentEnded,
    Coordination,
    FinishJob,
    GoOn,
    Halt,
    JobBefore,
    JobEnded,
    Rerun,
    Skipped,
    Submitted,
    read_coordination,
)
from weft.frontends.federated.coordination.participant import (
    Approved,
    CoresGranted,
    CoresQueued,
    Declined,
    GoProcess,
    Participation,
    PartnerSilent,
    ProcessEnded,
    ProcessPrepared,
    Restarted,
    StartProcess,
    StopProcess,
    read_participation,
)
from weft.frontends.federated.coordination.records import (
    JobPhase,
    PartFailure,
    PartStatus,
)
from weft.frontends.federated.planning import read_job
from weft.frontends.federated.schema import FederatedJob, Party
from weft.frontends.federated.selection import (
    check_sources,
    component_limits,
    inheritance,
    job_priority,
    selected_components,
    trigger_rules,
)
from weft.model.errors import (
    ConflictError,
    NotFoundError,
    PartyRefusedError,
    UsageError,
)
from weft.parties.cores import CoreLease, PartyCoreLeases
from weft.parties.drivers import ComponentEnd, DriverCalls, DriverPlan, JobDriver
from weft.parties.failures import for_others, line_of
from weft.parties.inputs import InputFinder, plan_of, task_of
from weft.parties.job_records import JobRecords
from weft.parties.job_rules import (
    changed_components,
    coordination_of,
    cores_at,
    digest_of,
    kept_components,
    protocols_by_part,
    protocols_of,
)
from weft.parties.ledger import JobEntry
from weft.parties.loop import PartyLoop, Subject
from weft.parties.machines import CoordinationMachine, MachineCalls, PartMachine
from weft.parties.mail import PartyMail
from weft.parties.outbox import Letter
from weft.parties.parts import PartEnd, PartEvents, PartRunner
from weft.parties.values import AttemptKey, ValueHub

if TYPE_CHECKING:
    from weft.parties.peers import Peer
    from weft.parties.surroundings import PartySurroundings

_LONGEST_REASON: Final = 200
_CHANGED: Final = "changed"
"""The key in `JobEntry.about` of components whose parameters have changed since they ran."""
_STATUSES: Final = {"success": PartStatus.SUCCESS, "failed": PartStatus.FAILED, "canceled": PartStatus.CANCELED}


class PartyWork(JobRecords):
    """Runs the jobs of a party, and its parts of the jobs of others."""

    def __init__(self, around: PartySurroundings) -> None:
        loop = PartyLoop(around.ledger, around.clock, lambda subject, error: around.failed(str(subject), error))
        super().__init__(around.ledger, loop)
        self._around, self._me, self.clock = around, around.me, around.clock
        self.cores = PartyCoreLeases(around.cores, around.queue)
        self._inputs = InputFinder(around.me, around.folders, around.models, around.tables, around.shows_ids)
        self.mail = PartyMail(around, self, self._part_machine, self.stop)
        self.hub = ValueHub(around.me, self.mail.reach, self._value_refused, self._silent)
        self._runner = PartRunner(
            around.session,
            self.hub,
            around.folders,
            around.sockets,
            PartEvents(lambda key, part, pid: None, self._prepared, self._ended),
            around.clock,
        )
        self._calls = MachineCalls(
            me=around.me,
            post=self._post,
            post_at=self.loop.post_at,
            send=self.mail.outbox.put,
            ready=self._ready,
            component_ended=self._component_ended,
            job_ended=self._job_ended,
            settled=lambda job: None,
            ask=self._ask,
            take=self._take,
            give_back=self._give_back,
            start=self._start,
            go=self._go,
            stop=self._stop,
            over=self._over,
        )
        self._drivers: dict[str, JobDriver] = {}
        self._followers: dict[str, set[str]] = {}
        self._lock = threading.Lock()

    # ----------------------------------------------------------------------------------------------- start and end

    def start(self) -> None:
        """Take up all jobs that have not ended, and begin to work."""
        ledger = self._around.ledger
        for job, role, party, state in ledger.participations():
            self._runner.sweep(job, Party(role, party))
            self.loop.add(Subject(job, Party(role, party)), self._part_read(state))
        for job, state in ledger.coordinations():
            self.loop.add(Subject(job), self._job_read(read_coordination(state)))
        for subject in self.loop.subjects():
            self.loop.post(subject, Restarted() if subject.part is not None else Submitted())
            machine = self.loop.machine(subject)
            if isinstance(machine, CoordinationMachine):
                self._follow(machine.state)
        for entry in ledger.documents():
            part = Party(entry.role, entry.party)
            self.mail.outbox.put(
                entry.receiver, Letter(entry.job, part, entry.kind, entry.version, entry.body.encode())
            )
        self.loop.start()
        for subject in self.loop.subjects():
            machine = self.loop.machine(subject)
            if isinstance(machine, CoordinationMachine) and machine.state.phase is JobPhase.RUN:
                self._ready(subject.job)

    def close(self) -> None:
        """End all processes of parts, and stop. Jobs go on at the next start."""
        self.mail.outbox.close()
        for key, part in self._runner.alive():
            self._runner.stop(key, part, "the server of the party ends")
        self.loop.close()
        with self._lock:
            drivers = list(self._drivers.values())
        for driver in drivers:
            driver.leave()

    # --------------------------------------------------------------------------------------------------- jobs of mine

    def submit(self, id: str, dsl: str, conf: str, about: Mapping[str, Any]) -> FederatedJob:
        """Begin a job of this party, by its files as JSON.

        FederatedFileError, UsageError: they are wrong. NotFoundError: a table of this party is missing.
        PartyRefusedError: the initiator is another party. PartyIdentityError: a partner is not known.
        """
        job = read_job(dsl, conf)
        if job.conf.initiator.id != self._me:
            raise PartyRefusedError(
                f"the initiator of the job is {job.conf.initiator}, and this is party {self._me}",
                party=self._me,
                hint="Submit it to the server of the initiator, or change initiator in the conf.",
            )
        check_sources(job)
        trigger_rules(job)
        if why := self._why_not_inherit(job):
            raise UsageError(why, hint="Leave inheritance_info out, or name a job of this party with these components.")
        digest = digest_of(dsl, conf)
        state = coordination_of(id, digest, job)
        if why := self._too_many_cores(job):
            raise UsageError(why, hint="Lower task_cores or task_parallelism in job_parameters.")
        for before in state.waits_for:
            if not self.entry(before).mine:
                raise UsageError(f"run_after names job {before} of another party", hint="Name jobs of this party.")
        for part in state.parts:
            if part.id == self._me:
                self._inputs.check(job, part)
            else:
                self._around.check_route(part.id)
        entry = JobEntry(
            job=id,
            digest=digest,
            initiator_role=job.conf.initiator.role,
            initiator=self._me,
            mine=1,
            status="waiting",
            created=self.clock.wall(),
            dsl=dsl,
            conf=conf,
            about=msgspec.json.encode(about).decode(),
        )
        with self.ledger.write() as write:  # one without the other would wait for ever after a crash
            write.add_job(entry)
            write.set_coordination(id, msgspec.json.encode(state).decode(), live=True)
        self.remember(id, job)
        self.loop.call(Subject(id), Submitted(), lambda: CoordinationMachine(state, self._calls))
        self._follow(state)
        return job

    def step(self, id: str, count: int | None) -> list[str]:
        """Let further components of a job in single step begin (None: all), and return those that were held.

        ConflictError: the job does not run in single step. PartyRefusedError: it belongs to another party.
        """
        entry = self.entry(id)
        if not entry.mine:
            raise PartyRefusedError(f"job {id} belongs to party {entry.initiator}", hint="Ask it to go on.")
        state = self.coordination(id)
        if state is None or state.phase is JobPhase.END:
            raise ConflictError(
                f"job {id} has ended as {entry.status}", hint=f"Run it again first: weft party rerun {id}"
            )
        if state.steps is None:
            raise ConflictError(f"job {id} does not run in single step", hint="Set single_step in its job_parameters.")
        self.loop.call(Subject(id), GoOn(count))
        return list(state.held)

    def stop(self, id: str, status: str, reason: str) -> None:
        """Stop a job at all its parties; a partner asks its initiator. NotFoundError: there is no such job."""
        entry = self.entry(id)
        if not entry.mine:
            self.mail.request(id, entry.initiator, "stop", status)
            return
        with self._lock:
            driver = self._drivers.get(id)
        self.loop.call(Subject(id), FinishJob(status, reason))
        if driver is not None:
            driver.stop(status, reason)

    def rerun(self, id: str, components: Sequence[str], *, force: bool) -> None:
        """Begin the next epoch of an ended job. NotFoundError: no such component.

        ConflictError: the job has not ended, or nothing is left to run.
        """
        entry, state = self._own_ended(id, "run the job again")
        job = self.job(id)
        about = msgspec.json.decode(entry.about or "{}")
        keep = kept_components(job, state.statuses, components, force=force, changed=about.pop(_CHANGED, ()))
        if selected_components(job) <= keep.keys():
            raise ConflictError(
                f"job {id} has nothing left to run: its components have succeeded",
                hint="--force (force for clients of FATE) runs them again.",
            )
        if self._is_cleaned(id, job, keep):
            raise ConflictError(
                f"what the components of job {id} have left at this party was deleted",
                hint=f"Run all of them again: weft party rerun {id} --force",
            )
        self.loop.call(
            Subject(id),
            Rerun(keep, entry.digest),
            lambda: self._job_read(self.coordination(id) or state),
        )
        with self.ledger.write() as write:
            write.set_job(id, about=msgspec.json.encode(about).decode())

    def _is_cleaned(self, id: str, job: FederatedJob, keep: Mapping[str, str]) -> bool:
        """Whether a component that stays has left nothing at this party any more."""
        for plan in job.parts:
            for name in keep:
                ran = plan.id == self._me and keep[name] == SUCCESS and plan.components[name].runs
                if ran and self._around.folders.latest(id, Party(plan.role, plan.id), name) is None:
                    return True
        return False

    def change(self, id: str, conf: str) -> list[str]:
        """Give an ended job of this party another conf for its next epoch, and return the components that it changes.

        ConflictError: the job has not ended. UsageError: the conf changes more than parameters. PartyRefusedError: the
        job belongs to another party.
        """
        entry, _ = self._own_ended(id, "change the job")
        old = self.job(id)
        new, digest = read_job(entry.dsl, conf), digest_of(entry.dsl, conf)
        if coordination_of(id, digest, old) != coordination_of(id, digest, new):
            raise UsageError(
                f"the change of job {id} is one of parties, cores, limits of time, or of which component runs where",
                hint="Submit the changed files as a new job.",
            )
        changed = changed_components(old, new)
        about = msgspec.json.decode(entry.about or "{}")
        about[_CHANGED] = sorted({*about.get(_CHANGED, ()), *changed})
        with self.ledger.write() as write:
            write.set_job(id, conf=conf, digest=digest, about=msgspec.json.encode(about).decode())
        self.remember(id, new)
        return changed

    def _own_ended(self, id: str, do: str) -> tuple[JobEntry, Coordination]:
        """Return a job of this party that has ended. PartyRefusedError: it is not its own. ConflictError: it runs."""
        entry = self.entry(id)
        if not entry.mine:
            raise PartyRefusedError(f"job {id} belongs to party {entry.initiator}", hint=f"Ask it to {do}.")
        state = self.coordination(id)
        if state is None or state.phase is not JobPhase.END:
            raise ConflictError(f"job {id} has not ended", hint=f"Stop it first: weft party stop {id}")
        return entry, state

    def approve(self, id: str, declined: str) -> None:
        """Approve the parts of a job that wait for it, or decline them for a reason. ConflictError: none waits."""
        declined = line_of(declined, _LONGEST_REASON)
        entry = self.entry(id)
        states = [one for one in self.participations(id) if one.wish is not None]
        waiting = [Subject(id, one.part) for one in states if not (one.approved or one.refused or one.over)]
        if not waiting:
            raise ConflictError(
                f"no part of job {id} waits for approval here: the job is {entry.status}",
                hint=f"See how it gets on: weft party show {id}",
            )
        for subject in waiting:
            self.loop.call(subject, Declined(declined) if declined else Approved())

    def policy_changed(self) -> None:
        """Let parts go on that wait for an approval which the policy does not ask for any more."""
        for subject in self.loop.subjects():
            machine = self.loop.machine(subject)
            if not isinstance(machine, PartMachine):
                continue
            state = machine.state
            if state.wish is not None and not (state.approved or state.refused or state.over):
                self._ask(state)

    def handlers(self) -> dict[str, Callable[[Peer, bytes], bytes]]:
        """Return what answers messages of other parties, by path."""
        return self.mail.handlers(self.hub.receive)

    def problem(self) -> str:
        """Return why this party cannot write what its jobs need to go on, "" if it can."""
        found = self.loop.problem or self._around.problem()
        return "" if found is None else getattr(found, "message", type(found).__name__)

    # -------------------------------------------------------------------------------------- effects of a coordination

    def _ready(self, id: str) -> None:
        state = self.coordination(id)
        assert state is not None
        job = self.job(id)
        selected = selected_components(job)
        done = {name: status for name, status in state.statuses.items() if status == SUCCESS}
        limits = component_limits(job)
        ends = {
            name: ComponentEnd(one.ended, "" if one.failure is None else said(one.failure))
            for name, one in state.attempts.items()
            if one.ended in (FAILED, TIMEOUT) and one.number >= limits[name].retries
        }
        plan = DriverPlan(
            job,
            done | {name: SUCCESS for name in job.dsl.order if not state.runs_at[name] or name not in selected},
            ends,
            trigger_rules(job),
            limits,
        )
        calls = DriverCalls(
            begin=lambda job, component: self.loop.post(Subject(job), Begin(component)),
            skip=lambda job, component: self.loop.post(Subject(job), Skipped(component)),
            halt=lambda job, component, reason: self.loop.post(Subject(job), Halt(component, reason)),
            finish=lambda job, status, reason: self.loop.post(Subject(job), FinishJob(status, reason)),
        )
        driver = JobDriver(id, plan, self._around.session, calls)
        with self._lock:
            self._drivers[id] = driver
        driver.start()

    def _component_ended(self, id: str, effect: ComponentEnded) -> None:
        with self._lock:
            driver = self._drivers.get(id)
        if driver is not None:
            reason = "" if effect.failure is None else said(effect.failure)
            driver.ended(effect.component, ComponentEnd(effect.status, reason))

    def _job_ended(self, id: str, effect: JobEnded) -> None:
        with self._lock:
            driver = self._drivers.pop(id, None)
        if driver is not None:
            driver.stop(effect.status, "" if effect.cause is None else said(effect.cause))
        with self._lock:
            followers = self._followers.pop(id, set())
        for follower in followers:
            self.loop.post(Subject(follower), JobBefore(id, effect.status))

    def _follow(self, state: Coordination) -> None:
        """Tell a job of the ends of those that it waits for: now, or when they come."""
        for before in state.waits_for:
            with self._lock:
                self._followers.setdefault(before, set()).add(state.job)
            entry = self.ledger.job(before)  # read after the entry above, so that no end is missed
            status = "deleted" if entry is None else entry.status
            if status not in (WAITING, RUNNING):
                self.loop.post(Subject(state.job), JobBefore(before, status))

    # ---------------------------------------------------------------------------------------------- effects of a part

    def _ask(self, state: Participation) -> None:
        subject = Subject(state.job, state.part)
        job = self.job(state.job)
        if why := self._too_many_cores(job) or self._inputs.why_not(job, state.part) or self._inherit(job, state):
            self.loop.post(subject, Declined(for_others(why)))
        elif state.initiator.id == self._me or not self._around.asks_approval(job, state.part):
            self.loop.post(subject, Approved())

    def _too_many_cores(self, job: FederatedJob) -> str:
        """Return why the parts of this party can never have their cores, "" if they can: they hold them together."""
        needed, there = cores_at(job, self._me), self._around.cores
        return f"the job needs {needed} cores at party {self._me}, which has {there}" if needed > there else ""

    def _why_not_inherit(self, job: FederatedJob) -> str:
        """Return why a job cannot take components from an earlier one, "" if it can or takes none."""
        earlier, components = inheritance(job)
        if not components:
            return ""
        entry = self.ledger.job(earlier)
        if entry is None or entry.initiator != job.conf.initiator.id:
            return f"party {self._me} has no job {earlier} of party {job.conf.initiator.id} to take components from"
        old = self.job(earlier)
        for name in components:
            one, other = job.dsl.components[name], old.dsl.components.get(name)
            if other is None or (one.module, one.outputs) != (other.module, other.outputs):
                return f"job {earlier} has no component {name} of the same module and outputs"
        return ""

    def _inherit(self, job: FederatedJob, state: Participation) -> str:
        """Give a part what it takes from an earlier job; return why it cannot, "" if it can."""
        if why := self._why_not_inherit(job):
            return why
        earlier, components = inheritance(job)
        plan = plan_of(job, state.part)
        try:
            for name in components:
                if plan.components[name].runs:
                    self._around.folders.inherit(earlier, state.job, state.part, name)
        except NotFoundError as error:
            return error.message
        return ""

    def _take(self, state: Participation, cores: int) -> None:
        subject = Subject(state.job, state.part)
        priority = job_priority(self.job(state.job))
        if why := self.cores.take(CoreLease(state.job, str(state.part), cores, state.initiator.id, priority)):
            self.loop.post(subject, Declined(why))
            return
        self._grant()
        if why := self.cores.why(state.job, str(state.part)):
            self.loop.post(subject, CoresQueued(why))

    def _give_back(self, state: Participation) -> None:
        self.cores.give_back(state.job, str(state.part))
        self._grant()

    def _grant(self) -> None:
        for lease in self.cores.grant():
            role, _, id = lease.part.partition(" ")
            self.loop.post(Subject(lease.job, Party(role, id)), CoresGranted())

    def _start(self, state: Participation, effect: StartProcess) -> None:
        key = AttemptKey(state.job, effect.epoch, effect.component, effect.attempt)
        job, part = self.job(state.job), state.part
        if effect.attempt or effect.epoch > 1:
            for known in self.hub.attempts(state.job, effect.component):
                if known != key:
                    self.hub.end(known)
        self._runner.start(
            key,
            part,
            lambda folder, socket, token: task_of(
                self._inputs.task(state.job, job, part, effect.component, folder), socket, token
            ),
        )

    def _go(self, state: Participation, effect: GoProcess) -> None:
        self._runner.go(AttemptKey(state.job, effect.epoch, effect.component, effect.attempt), state.part)

    def _stop(self, state: Participation, effect: StopProcess) -> None:
        key = AttemptKey(state.job, effect.epoch, effect.component, effect.attempt)
        self._runner.stop(key, state.part, effect.reason)

    def _over(self, state: Participation) -> None:
        for key in self.hub.attempts(state.job):
            self.hub.end(key)

    def _prepared(self, key: AttemptKey, part: Party) -> None:
        self.loop.post(Subject(key.job, part), ProcessPrepared(key.component, key.epoch, key.attempt))

    def _ended(self, key: AttemptKey, part: Party, end: PartEnd) -> None:
        failure = None
        if end.error is not None:
            words = {name: for_others(str(end.error.get(name, ""))) for name in ("message", "party", "code", "hint")}
            failure = PartFailure(**words)
        event = ProcessEnded(key.component, key.epoch, key.attempt, _STATUSES[end.status], failure)
        self.loop.post(Subject(key.job, part), event)

    def _value_refused(self, key: AttemptKey, to: Party, error: PartyRefusedError) -> None:
        """Log that nobody takes the values of an attempt any more: its other parts have ended, and so will this one."""
        self._around.failed(f"values of {key.component} for {to}", error)

    def _silent(self, key: AttemptKey, source: Party, party: str, answers: bool) -> None:
        why = "" if answers else self.mail.hindered().get(party, "")
        self.loop.post(Subject(key.job, source), PartnerSilent(key.component, party, answers, why))

    # ------------------------------------------------------------------------------------------------------- inside

    def _post(self, subject: Subject, event: Any) -> None:
        """Let a machine of this party take a document of another one of it."""
        self.loop.post(subject, event, None if subject.part is None else lambda: self._part_machine(subject))

    def _part_machine(self, subject: Subject) -> PartMachine:
        """Return a machine for a part, loaded from the ledger or new."""
        id, part = subject
        assert part is not None
        states = [one for one in self.ledger.participations(id) if (one[1], one[2]) == part]
        if states:
            return self._part_read(states[0][3])
        entry = self.entry(id)
        initiator, protocols = Party(entry.initiator_role, entry.initiator), protocols_of(self.job(id), part)
        return PartMachine(Participation(job=id, part=part, initiator=initiator, protocols=protocols), self._calls)

    def _job_read(self, state: Coordination) -> CoordinationMachine:
        """Return the machine of a job that was kept; see `_part_read`."""
        protocols = protocols_by_part(self.job(state.job), state.parts)
        return CoordinationMachine(replace(state, protocols=protocols), self._calls)

    def _part_read(self, text: str) -> PartMachine:
        """Return the machine of a part that was kept; another release may have kept it, with other messages."""
        state = read_participation(text)
        return PartMachine(replace(state, protocols=protocols_of(self.job(state.job), state.part)), self._calls)


def said(failure: PartFailure) -> str:
    """Return a failure in words, with its party."""
    return f"party {failure.party}: {failure.message}" if failure.party else failure.message
