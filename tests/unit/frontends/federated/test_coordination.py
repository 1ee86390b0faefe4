"""The coordination of parties, step by step. Worlds with faults are in tests/simulation/test_federation.py."""

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from weft.frontends.federated.coordination import coordinator as c
from weft.frontends.federated.coordination import participant as p
from weft.frontends.federated.coordination.records import (
    JobPhase,
    PartFailure,
    PartPhase,
    PartStatus,
    Report,
    Want,
    Wish,
    read_document,
    write_document,
)
from weft.frontends.federated.schema import Party
from weft.model.errors import PartyMessageError

GUEST, HOST, ARBITER = Party("guest", "1"), Party("host", "2"), Party("arbiter", "3")
PARTS = (GUEST, HOST, ARBITER)


class Job:
    """A job whose messages all arrive at once; `does` has what a process does when it may go."""

    def __init__(self, *, components=("a", "b"), declines=None, queued=(), does=None, versions=None, **options):
        self.now = 0.0
        self.components, self.declines, self.queued = list(components), declines, set(queued)
        self.does = does or (lambda part, component, attempt: PartStatus.SUCCESS)
        self.state: Any = c.Coordination(
            job="job",
            initiator=GUEST,
            digest="d",
            runs_at=dict.fromkeys(components, PARTS),
            parts=PARTS,
            cores={str(part): 1 for part in PARTS},
            **options,
        )
        self.parts: dict[Party, Any] = {
            part: p.Participation(job="job", part=part, initiator=GUEST, protocols=(versions or {}).get(part, {}))
            for part in PARTS
        }
        self.ended, self.effects = [], []
        self.prepares = True
        self.queue = []

    def begin(self):
        self.post(None, c.Submitted())
        return self

    def post(self, part, event):
        self.queue.append((part, event))
        while self.queue:
            self.step(*self.queue.pop(0))

    def step(self, part, event):
        if part is None:
            self.state, wanted = c.coordinate(self.state, event, self.now)
            self.state = c.read_coordination(msgspec.json.encode(self.state))
            for effect in wanted:
                self.effects.append(effect)
                match effect:
                    case c.SendWish(to):
                        wish = read_document(write_document(self.state.wishes[str(to)]), Wish)
                        self.queue.append((to, p.WishReceived(wish)))
                    case c.JobReady():
                        self.queue.append((None, c.Begin(self.components[0])))
                    case c.ComponentEnded(name, status, failure):
                        self.ended.append((name, status, failure))
            return
        state, effects = p.participate(self.parts[part], event, self.now)
        self.parts[part] = p.read_participation(msgspec.json.encode(state))
        for one in effects:
            self.effects.append((part, one))
            self.part_effect(part, one)

    def part_effect(self, part, effect):
        match effect:
            case p.AskApproval():
                answer = p.Declined("not on Fridays") if part == self.declines else p.Approved()
                self.queue.append((part, answer))
            case p.TakeCores():
                event = p.CoresQueued("2 cores are busy") if part in self.queued else p.CoresGranted()
                self.queue.append((part, event))
            case p.StartProcess(component, epoch, attempt) if self.prepares:
                self.queue.append((part, p.ProcessPrepared(component, epoch, attempt)))
            case p.GoProcess(component, epoch, attempt):
                status = self.does(part, component, attempt)
                if status is not None:
                    failure = None if status is PartStatus.SUCCESS else PartFailure(f"{component} broke")
                    self.queue.append((part, p.ProcessEnded(component, epoch, attempt, status, failure)))
            case p.StopProcess(component, epoch, attempt, reason):
                failure = PartFailure(reason)
                self.queue.append((part, p.ProcessEnded(component, epoch, attempt, PartStatus.CANCELED, failure)))
            case p.SendReport():
                report = read_document(write_document(self.parts[part].report), Report)
                self.queue.append((None, c.ReportReceived(report)))

    def causes(self):
        return {self.parts[part].wish.cause for part in PARTS}


def test_a_job_starts_its_components_and_ends_at_all_parties():
    job = Job().begin()
    assert job.state.phase is JobPhase.RUN
    assert job.ended == [("a", "success", None)]
    job.post(None, c.Begin("b"))
    job.post(None, c.FinishJob("success"))
    assert job.state.settled
    assert {state.report.phase for state in job.parts.values()} == {PartPhase.ENDED}
    assert {state.wish.job_status for state in job.parts.values()} == {"success"}
    assert job.effects.count((HOST, p.ReturnCores())) == 1


def test_no_part_goes_before_all_are_prepared():
    job = Job(does=lambda *_: None)
    job.prepares = False
    job.begin()
    for part in (GUEST, HOST):
        job.post(part, p.ProcessPrepared("a", 1, 0))
    assert not [one for one in job.effects if isinstance(one, tuple) and isinstance(one[1], p.GoProcess)]
    job.post(ARBITER, p.ProcessPrepared("a", 1, 0))
    assert len([one for one in job.effects if isinstance(one, tuple) and isinstance(one[1], p.GoProcess)]) == 3


def test_the_first_failure_stops_the_others_and_is_the_cause_everywhere():
    job = Job(does=lambda part, *_: PartStatus.FAILED if part == HOST else None).begin()
    ((name, status, failure),) = job.ended
    assert (name, status, failure.party) == ("a", "failed", "2")
    job.post(None, c.FinishJob("failed", "a failed"))
    assert {cause.message for cause in job.causes()} == {"a broke"}
    assert {cause.party for cause in job.causes()} == {"2"}
    told = [state.components["a"].failure.message for part, state in job.parts.items() if part != HOST]
    assert told == ["stopped because host 2 failed: a broke"] * 2


def test_a_component_that_failed_begins_again_as_the_next_attempt():
    job = Job(does=lambda part, _, attempt: PartStatus.FAILED if part == HOST and not attempt else PartStatus.SUCCESS)
    job.begin()
    job.post(None, c.Begin("a"))
    assert [status for _, status, _ in job.ended] == ["failed", "success"]
    assert {state.components["a"].attempt for state in job.parts.values()} == {1}


def test_a_party_that_refuses_fails_the_job_with_its_reason():
    job = Job(declines=HOST).begin()
    assert (job.state.status, job.state.settled) == ("failed", True)
    assert {cause.message for cause in job.causes()} == {"host 2 refused: not on Fridays"}


def test_a_part_that_has_refused_is_over_with_its_job():
    job = Job(declines=HOST).begin()
    assert job.parts[HOST].over
    assert job.parts[HOST].report.phase is PartPhase.ENDED


def test_cores_are_held_by_all_parts_or_by_none():
    job = Job(queued=[HOST]).begin()
    assert job.parts[GUEST].holds
    assert job.parts[HOST].report.reason == "2 cores are busy"
    job.now = c.RESERVE_S + 1
    job.post(None, c.CoordinationTick())
    assert job.state.phase.value == "create"
    assert not any(state.holds or state.asked for state in job.parts.values())
    job.queued.clear()
    job.now = job.state.again_at + 1
    job.post(None, c.CoordinationTick())
    assert job.state.phase is JobPhase.RUN


def test_slow_parts_are_named_when_they_do_not_prepare():
    job = Job()
    job.prepares = False
    job.begin()
    job.post(GUEST, p.ProcessPrepared("a", 1, 0))
    job.now = c.PREPARE_S + 1
    job.post(None, c.CoordinationTick())
    ((_, status, failure),) = job.ended
    assert status == "failed"
    assert failure.message == "host 2, arbiter 3 did not prepare a in 120 s"


@pytest.mark.parametrize(
    "events", [[c.Submitted()], [c.Unreachable("2"), c.Reachable("2")]], ids=["started again", "reached again"]
)
def test_the_time_in_which_a_party_was_off_does_not_count_for_what_is_prepared(events):
    job = Job()
    job.prepares = False
    job.begin()
    for event in events[:-1]:
        job.post(None, event)
    job.now = c.PREPARE_S + 1
    job.post(None, events[-1])
    job.post(None, c.CoordinationTick())
    assert job.ended == []
    job.now += c.PREPARE_S + 1
    job.post(None, c.CoordinationTick())
    assert [status for _, status, _ in job.ended] == ["failed"]


def test_the_timeout_counts_from_the_start_of_the_job():
    job = Job(queued=[HOST], timeout=100.0, does=lambda *_: None).begin()
    job.now = 90.0
    job.queued.clear()
    job.post(HOST, p.CoresGranted())
    assert job.state.phase is JobPhase.RUN
    job.now = 150.0
    job.post(None, c.CoordinationTick())
    assert job.state.status == "running"
    job.now = 191.0
    job.post(None, c.CoordinationTick())
    assert job.state.status == "timeout"
    assert job.ended[-1][:2] == ("a", "canceled")


def test_a_party_that_is_away_holds_the_job_up_unless_the_job_says_how_long():
    patient, hasty = Job(does=lambda *_: None).begin(), Job(does=lambda *_: None, fail_after=60.0).begin()
    for job in (patient, hasty):
        job.post(None, c.Unreachable("2"))
        job.now = 1000.0
        job.post(None, c.CoordinationTick())
    assert patient.state.status == "running"
    assert hasty.state.status == "failed"
    assert hasty.state.cause.message == "host 2 did not answer for 60 s"


def test_a_link_between_two_others_that_is_cut_holds_the_job_up_unless_it_says_how_long():
    patient, hasty = Job(does=lambda *_: None).begin(), Job(does=lambda *_: None, fail_after=60.0).begin()
    for job in (patient, hasty):
        job.post(HOST, p.PartnerSilent("a", "3"))
        assert job.state.silent["host 2"] == {"3": 0.0}
        job.now = 1000.0
        job.post(None, c.CoordinationTick())
    assert patient.state.status == "running"
    assert hasty.state.status == "failed"
    assert {(cause.message, cause.party) for cause in hasty.causes()} == {
        ("party 3 did not answer host 2 for 60 s", "3")
    }
    assert hasty.state.settled
    patient.post(HOST, p.PartnerSilent("a", "3", True))
    assert not patient.state.silent["host 2"]
    patient.post(HOST, p.PartnerSilent("a", "3"))
    patient.post(HOST, p.ProcessEnded("a", 1, 0, PartStatus.SUCCESS))
    assert not patient.state.silent["host 2"]


def test_who_does_not_answer_is_learnt_anew_after_a_restart_and_in_a_rerun():
    job = Job(does=lambda *_: None, fail_after=60.0).begin()
    job.post(None, c.Unreachable("2"))
    job.now = 1000.0
    job.post(None, c.Submitted())
    assert job.state.status == "running"
    job.post(None, c.Unreachable("2"))
    job.now = 1061.0
    job.post(None, c.CoordinationTick())
    assert job.state.status == "failed"
    job.now = 5000.0  # the party is back since, and no job was there to hear of it
    job.post(None, c.Rerun({}))
    assert job.state.status == "running"


def test_a_restarted_server_has_lost_its_processes_and_the_component_with_them():
    job = Job(does=lambda *_: None).begin()
    job.post(HOST, p.Restarted())
    ((name, status, _),) = job.ended
    assert (name, status) == ("a", "lost")
    job.does = lambda *_: PartStatus.SUCCESS
    job.post(None, c.Begin("a"))
    assert job.ended[-1][:2] == ("a", "success")


def test_a_rerun_begins_the_next_epoch_and_old_documents_change_nothing():
    job = Job(does=lambda part, *_: PartStatus.FAILED if part == HOST else PartStatus.SUCCESS).begin()
    job.post(None, c.FinishJob("failed", "a failed"))
    old = job.parts[HOST].report, job.parts[HOST].wish
    job.does = lambda *_: PartStatus.SUCCESS
    job.post(None, c.Rerun({}))
    assert job.state.epoch == 2
    assert job.ended[-1][:2] == ("a", "success")
    before = job.state, job.parts[HOST]
    job.post(None, c.ReportReceived(old[0]))
    job.post(HOST, p.WishReceived(old[1]))
    assert job.state.reports == before[0].reports
    assert job.parts[HOST].wish == before[1].wish


def test_other_files_are_approved_anew():
    job = Job(does=lambda *_: PartStatus.FAILED).begin()
    job.post(None, c.FinishJob("failed", "a failed"))
    assert job.parts[HOST].approved
    wish = replace(job.parts[HOST].wish, epoch=9, version=99, digest="other")
    state, effects = p.participate(job.parts[HOST], p.WishReceived(wish), 0.0)
    assert not state.approved
    assert p.AskApproval() in effects
    job.post(None, c.Rerun({}, "other"))
    assert {one.wish.digest for one in job.parts.values()} == {"other"}
    assert job.state.digest == "other"


@pytest.mark.parametrize("phase", ["create", "reserve", "run"])
def test_a_job_is_stopped_in_every_phase(phase):
    job = Job(queued=[HOST] if phase == "reserve" else (), does=lambda *_: None)
    if phase != "create":
        job.begin()
    assert job.state.phase.value == phase
    job.post(None, c.FinishJob("canceled", "enough"))
    assert (job.state.status, job.state.settled) == ("canceled", True)
    assert {cause.message for cause in job.causes()} == {"enough"}
    assert not any(state.holds or state.processes for state in job.parts.values())


def test_cores_go_back_if_the_initiator_is_not_heard_of_for_long():
    job = Job(queued=[ARBITER]).begin()
    assert job.parts[HOST].holds
    job.now = p.LEASE_S + 1
    job.post(HOST, p.Looked())
    assert not job.parts[HOST].holds


@pytest.mark.parametrize(("phase", "queued"), [(JobPhase.RESERVE, [ARBITER]), (JobPhase.RUN, [])])
def test_a_part_whose_initiator_was_gone_for_a_moment_stays_at_its_end_and_fails_the_job(phase, queued):
    job = Job(does=lambda *_: None, queued=queued).begin()
    assert job.state.phase is phase
    late = job.parts[HOST].wish
    assert late is not None
    gone = PartFailure("party 1 is not known to party 2", "2")
    state, effects = p.participate(job.parts[HOST], p.InitiatorGone(gone), job.now)
    for one in effects:
        if isinstance(one, p.StopProcess):
            end = p.ProcessEnded(one.component, one.epoch, one.attempt, PartStatus.CANCELED, PartFailure(one.reason))
            state, _ = p.participate(state, end, job.now)
    assert state.over
    late = replace(late, version=late.version + 1)
    state, effects = p.participate(state, p.WishReceived(late), job.now)
    assert state.wish is not None
    assert state.wish.cause == gone
    assert effects == []
    assert state.report is not None
    job.parts[HOST] = state
    job.post(None, c.ReportReceived(state.report))
    assert (job.state.status, job.state.settled) == ("failed", True)
    assert {cause.message for cause in job.causes()} == {gone.message}


def test_wishes_of_others_and_broken_documents_are_not_taken():
    job = Job().begin()
    wish = job.parts[HOST].wish
    stranger = replace(wish, initiator=Party("guest", "9"), version=99)
    job.post(HOST, p.WishReceived(stranger))
    assert job.parts[HOST].wish == wish
    assert wish.components["a"].want is Want.GO
    for data in (b"", b"[]", b'{"job": 1}', b"\xff"):
        with pytest.raises(PartyMessageError):
            read_document(data, Wish)


# ----------------------------------------------------------------------------------- jobs before, steps, limits of time


def test_no_part_hears_of_a_job_that_waits_for_another():
    job = Job(waits_for=["x", "y"]).begin()
    job.post(None, c.CoordinationTick())
    job.post(None, c.JobBefore("x", "success"))
    job.post(None, c.JobBefore("z", "failed"))
    assert (job.state.phase, job.effects, job.state.wishes) == (JobPhase.CREATE, [], {})
    job.post(None, c.JobBefore("y", "success"))
    assert job.ended == [("a", "success", None)]


@pytest.mark.parametrize("status", ["failed", "canceled", "timeout", "deleted"])
def test_a_job_whose_predecessor_does_not_succeed_fails_with_its_name(status):
    job = Job(waits_for=["x"]).begin()
    job.post(None, c.JobBefore("x", status))
    assert (job.state.status, job.state.settled) == ("failed", True)
    assert job.state.cause.message == f"job x, after which it runs, ended as {status}"
    job.post(None, c.Rerun({}))
    assert job.ended == [("a", "success", None)]


def test_a_job_that_waits_can_be_stopped():
    job = Job(waits_for=["x"]).begin()
    job.post(None, c.FinishJob("canceled", "by hand"))
    assert (job.state.status, job.state.settled) == ("canceled", True)
    job.post(None, c.JobBefore("x", "success"))
    assert job.state.status == "canceled"


def test_in_single_step_each_component_waits_for_its_word():
    job = Job(steps=1, components=("a", "b", "d")).begin()
    job.post(None, c.Begin("b"))
    job.post(None, c.Begin("d"))
    job.post(None, c.Begin("b"))
    assert (job.ended, job.state.held) == ([("a", "success", None)], ["b", "d"])
    job.post(None, c.GoOn(1))
    assert [name for name, *_ in job.ended] == ["a", "b"]
    job.post(None, c.GoOn(None))
    assert [name for name, *_ in job.ended] == ["a", "b", "d"]
    assert (job.state.held, job.state.steps) == ([], None)


def test_steps_that_come_early_are_kept():
    job = Job(steps=1).begin()
    job.post(None, c.GoOn(1))
    job.post(None, c.Begin("b"))
    assert [name for name, *_ in job.ended] == ["a", "b"]


def test_another_attempt_of_a_component_needs_no_step():
    fails_once = lambda part, component, attempt: PartStatus.SUCCESS if attempt else PartStatus.FAILED  # noqa: E731
    job = Job(steps=1, does=fails_once).begin()
    job.post(None, c.Begin("a"))
    assert [status for _, status, _ in job.ended] == ["failed", "success"]


@pytest.mark.parametrize("event", [c.Halt("b", "stopped"), c.FinishJob("canceled", "stopped")])
def test_a_component_that_is_held_ends_with_its_job(event):
    job = Job(steps=1).begin()
    job.post(None, c.Begin("b"))
    job.post(None, event)
    assert [(name, status) for name, status, _ in job.ended] == [("a", "success"), ("b", "canceled")]
    assert job.state.held == []


def test_a_component_that_takes_too_long_is_stopped_everywhere():
    job = Job(does=lambda *_: None, time_limits={"a": 60.0}).begin()
    job.now = 59.0
    job.post(None, c.CoordinationTick())
    assert job.ended == []
    assert 60.0 in [one.at for one in job.effects if isinstance(one, c.CoordinationWake)]
    job.now = 60.0
    job.post(None, c.CoordinationTick())
    [(name, status, failure)] = job.ended
    assert (name, status, failure.message) == ("a", "timeout", "a took longer than its timeout of 60 s")
    assert job.state.statuses == {"a": "timeout"}


def test_each_rerun_is_approved_anew_since_grants_may_have_been_taken_back():
    job = Job().begin()
    job.post(None, c.FinishJob("failed", "by hand"))
    job.declines = HOST
    job.post(None, c.Rerun({"a": "success"}))
    assert job.state.status == "failed"
    assert "not on Fridays" in job.state.cause.message
    job.declines = None
    job.post(None, c.Rerun({"a": "success"}))
    assert job.state.phase is JobPhase.RUN


def test_parties_of_a_running_job_are_asked_at_even_times_however_long_nothing_happens():
    job = Job(does=lambda *_: None).begin()
    assert job.state.status == "running"
    for _ in range(6):
        job.now = job.state.pull_at
        job.post(None, c.CoordinationTick())
        assert job.state.pull_at == job.now + c.PULL_S


NEW, OLD = {"Trees": 2, "Reader": 1}, {"Trees": 1}
OLDER_HOST = PartFailure(
    "host 2 has version 1 of the messages of Trees, and guest 1 has version 2",
    "2",
    "WEFT605",
    "Install the release of Weft of party 1 at party 2, too, or an older one at both.",
)


@pytest.mark.parametrize("says", [OLD, {}], ids=["tells_its_version", "of_before_versions"])
def test_a_job_between_parties_of_different_versions_is_refused_before_a_component_starts(says):
    protocols = {str(GUEST): NEW, str(HOST): NEW}
    job = Job(versions={GUEST: NEW, HOST: says}, protocols=protocols).begin()
    assert (job.state.status, job.state.cause) == ("failed", OLDER_HOST)
    assert job.causes() == {OLDER_HOST}
    assert job.state.settled
    assert not any(isinstance(one, tuple) and isinstance(one[1], p.StartProcess) for one in job.effects)


def test_a_part_refuses_the_wish_of_an_initiator_with_another_version():
    """An initiator of before there were versions does not compare them itself."""
    state = p.Participation(job="job", part=HOST, initiator=GUEST, protocols=NEW)
    wish = Wish(job="job", part=HOST, initiator=GUEST, digest="d", cores=1, epoch=1, version=1, phase=JobPhase.CREATE)
    state, effects = p.participate(state, p.WishReceived(wish), 0.0)
    assert [type(one) for one in effects] == [p.SendReport]
    assert state.report.phase is PartPhase.REFUSED
    assert state.report.reason == (
        "guest 1 has version 1 of the messages of Trees, and host 2 has version 2. "
        "Install the release of Weft of party 2 at party 1, too, or an older one at both."
    )
    assert state.report.protocols == NEW
    later = replace(wish, epoch=2, protocols=NEW)
    state, effects = p.participate(state, p.WishReceived(later), 1.0)
    assert p.AskApproval() in effects
    assert not state.refused


def test_versions_are_compared_again_when_another_release_goes_on_with_a_job():
    protocols = {str(part): NEW for part in PARTS}
    job = Job(versions=dict.fromkeys(PARTS, OLD), protocols={str(part): OLD for part in PARTS}, does=lambda *_: None)
    job.begin()
    assert job.state.status == "running"
    job.state = replace(job.state, protocols=protocols)
    job.parts[GUEST] = replace(job.parts[GUEST], protocols=NEW)
    job.post(None, c.Submitted())
    assert job.state.status == "failed"
    assert job.state.cause.code == "WEFT605"
