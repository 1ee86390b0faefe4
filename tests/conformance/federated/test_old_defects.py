"""What FATE Flow 1.x does wrong by construction, and the tests that show that Weft does not.

`SHOWN` has the tests of each defect, numbered as in the study of its source. Tests below stand for what no other test
shows; that the named ones exist is checked.
"""

from __future__ import annotations

import ast
import itertools
import threading
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from msgspec.structs import replace

from tests.integration.places import until
from tests.unit.frontends.federated.test_coordination import ARBITER, GUEST, HOST, PARTS, Job
from tests.unit.parties.works import toy_conf
from weft.frontends.federated.compiler import compile_components
from weft.frontends.federated.coordination import coordinator as c
from weft.frontends.federated.coordination import participant as p
from weft.frontends.federated.coordination.records import (
    ENDED_STATUSES,
    ObservedAttempt,
    PartPhase,
    PartStatus,
    Report,
    Want,
)
from weft.frontends.federated.planning import read_job
from weft.frontends.federated.schema import ComponentLimits
from weft.model.errors import UnreadableError
from weft.parties.cores import CoreLease, PartyCoreLeases
from weft.parties.drivers import ComponentEnd, DriverCalls, DriverPlan, JobDriver
from weft.parties.ledger import PartyLedger
from weft.parties.loop import LoopStep, PartyLoop, Subject
from weft.runtime.clock import RealClock
from weft.wiring.session import Session

if TYPE_CHECKING:
    from weft.frontends.federated.schema import Party

TESTS = Path(__file__).parents[2]
COORDINATION = "unit/frontends/federated/test_coordination.py::"
TRANSPORT = "unit/parties/test_transport.py::"
CORES = "unit/parties/test_cores.py::"
HERE = "conformance/federated/test_old_defects.py::"
BETWEEN = "conformance/federated/test_old_defects_between_parties.py::"

SHOWN: dict[int, tuple[str, ...]] = {
    # A change of a status was sent to its own server as a command, which refused it as no change and logged an error.
    1: (
        HERE + "test_documents_that_come_twice_change_nothing",
        BETWEEN + "test_a_message_that_comes_twice_is_no_error",
    ),
    # A start that failed at one party left the task running at the others until the end of its timeout.
    2: (
        HERE + "test_a_start_that_reaches_only_one_party_does_not_leave_the_task_half_started",
        COORDINATION + "test_no_part_goes_before_all_are_prepared",
        COORDINATION + "test_slow_parts_are_named_when_they_do_not_prepare",
    ),
    # Some combinations of the statuses of parts or components raised, and the job stayed as it was for good.
    3: (
        HERE + "test_every_combination_of_the_statuses_of_parts_has_a_next_step",
        HERE + "test_every_combination_of_the_ends_of_components_ends_the_job",
    ),
    # One error of the database ended the thread of the scheduler, while the server still answered.
    4: (
        HERE + "test_an_error_in_a_step_or_in_the_database_does_not_end_the_loop",
        "unit/parties/test_outbox.py::test_a_fault_of_this_party_ends_no_thread_and_holds_no_other_letter_up",
        BETWEEN + "test_a_party_that_answers_with_an_error_of_its_own_fails_that_job_alone",
    ),
    # A second guest, and another role of the initiator's own party, never told how they get on.
    5: (BETWEEN + "test_a_second_guest_and_another_role_of_the_initiator_report_too",),
    # One job that did not fit held up all behind it, and nobody was told why.
    6: (
        CORES + "test_small_parts_overtake_a_large_one_but_not_for_ever",
        CORES + "test_what_never_fits_is_refused_at_once",
        BETWEEN + "test_a_job_that_waits_says_for_what_and_a_smaller_one_runs_meanwhile",
    ),
    # Cores were taken at the initiator and returned everywhere, so that they became more.
    7: (
        HERE + "test_each_part_gives_back_what_it_has_taken_and_no_more",
        CORES + "test_never_more_cores_are_held_than_there_are",
        COORDINATION + "test_cores_are_held_by_all_parts_or_by_none",
        "simulation/test_federation.py::test_jobs_end_alike_at_all_parties",
    ),
    # The timeout counted the time in the queue; ids of jobs of two parties could be the same.
    8: (
        COORDINATION + "test_the_timeout_counts_from_the_start_of_the_job",
        BETWEEN + "test_jobs_of_two_parties_with_the_same_id_do_not_mix",
        "unit/parties/test_tables.py::test_ids_of_jobs_are_in_the_form_of_fate_and_differ_in_threads",
    ),
    # A component that does not run at the initiator could have none below it.
    9: (HERE + "test_a_component_may_follow_one_that_does_not_run_at_the_initiator",),
    # The route to clean a job raised whatever one asked; checks of clients read a file that was not there any more.
    10: (
        BETWEEN + "test_an_ended_job_is_cleaned_and_one_that_runs_is_not",
        "integration/test_party_http.py::test_a_signed_request_is_taken_once",
        "integration/test_party_http.py::test_unsigned_requests_and_unknown_keys_get_the_same_answer",
    ),
    # A process that died cancelled the job; the delay of retries was never read; restarts blocked the queue.
    11: (
        HERE + "test_a_component_is_tried_again_after_its_delay",
        BETWEEN + "test_a_restart_frees_cores_and_the_queue_goes_on",
        COORDINATION + "test_a_restarted_server_has_lost_its_processes_and_the_component_with_them",
        "integration/test_guardian.py::TestDeathOfTheOwner::test_takes_everything_along",
        "integration/test_party_faults.py::test_parties_agree_when_processes_are_killed",
    ),
    # Other parties saw that they were killed and not why, and old states were shown after a retry.
    12: (
        COORDINATION + "test_the_first_failure_stops_the_others_and_is_the_cause_everywhere",
        "integration/test_parties.py::test_the_first_failure_is_told_at_every_party_and_a_rerun_begins_again",
        BETWEEN + "test_after_a_rerun_nothing_of_the_epoch_before_is_shown",
    ),
    # Nothing was encrypted, senders named themselves, all paths were open, and objects were unpickled.
    13: (
        HERE + "test_no_bytes_of_others_become_objects_of_python",
        TRANSPORT + "TestStrangers::test_without_tls",
        TRANSPORT + "TestStrangers::test_without_a_certificate",
        TRANSPORT + "TestKnownParties::test_not_for_another_even_with_a_message_of_it",
        TRANSPORT + "TestKnownParties::test_not_at_other_paths",
        TRANSPORT + "TestKnownParties::test_not_twice",
        "integration/test_party_http.py::test_a_signature_covers_path_body_and_time",
        "unit/parties/test_values.py::test_a_value_in_the_name_of_another_party_is_refused",
    ),
    # Jobs became slower from run to run, the wanted cores had no effect, and no component could be run again.
    14: (
        BETWEEN + "test_ended_jobs_leave_nothing_behind_that_grows",
        BETWEEN + "test_the_wanted_cores_are_those_that_are_held",
        COORDINATION + "test_a_rerun_begins_the_next_epoch_and_old_documents_change_nothing",
        "integration/test_parties.py::test_changed_parameters_run_at_all_parties",
    ),
}


def names_of(path: Path) -> set[str]:
    """Return the tests of a file, those of a class as CLASS::TEST."""
    found = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.ClassDef):
            found |= {f"{node.name}::{one.name}" for one in node.body if isinstance(one, ast.FunctionDef)}
    return found


@pytest.mark.parametrize("number", range(1, 15))
def test_each_defect_has_tests_and_they_exist(number):
    assert SHOWN[number]
    for test in SHOWN[number]:
        file, _, name = test.partition("::")
        assert name in names_of(TESTS / file), test


# ------------------------------------------------------------------------------------- 1: documents, and not commands


class DoubledJob(Job):
    """A job whose messages all come twice."""

    def step(self, part, event):
        super().step(part, event)
        if isinstance(event, (p.WishReceived, c.ReportReceived)):
            before = self.state.wishes, self.state.attempts, dict(self.parts), list(self.ended)
            super().step(part, event)
            assert (self.state.wishes, self.state.attempts, self.parts, self.ended) == before


def of_parts(job: Job, kind: type) -> list[Any]:
    """Return the effects of parts of one kind."""
    return [one for one in job.effects if isinstance(one, tuple) and isinstance(one[1], kind)]


def test_documents_that_come_twice_change_nothing():
    job = DoubledJob().begin()
    job.post(None, c.Begin("b"))
    job.post(None, c.FinishJob("success"))
    assert job.state.settled
    assert len(of_parts(job, p.StartProcess)) == len(of_parts(job, p.GoProcess)) == 2 * len(PARTS)


# ---------------------------------------------------------------------------------------------- 2: starts in two steps


class CutJob(Job):
    """A job whose host is out of reach once it runs."""

    def step(self, part, event):
        if isinstance(event, p.WishReceived) and part == HOST and event.wish.components:
            self.queue.append((None, c.Unreachable(HOST.id)))
        else:
            super().step(part, event)


@pytest.mark.parametrize("fail_after", [0.0, 60.0])
def test_a_start_that_reaches_only_one_party_does_not_leave_the_task_half_started(fail_after):
    job = CutJob(fail_after=fail_after).begin()
    assert {part for part, _ in of_parts(job, p.StartProcess)} == {GUEST, ARBITER}
    job.now = c.PREPARE_S + fail_after + 1
    job.post(None, c.CoordinationTick())
    assert of_parts(job, p.GoProcess) == []
    if fail_after:
        assert (job.state.status, job.state.cause.party) == ("failed", "2")
        assert not any(job.parts[part].processes or job.parts[part].holds for part in (GUEST, ARBITER))
    else:
        assert (job.state.status, job.state.unreachable) == ("running", {"2": 0.0})


# ------------------------------------------------------------------------------------------------- 3: total functions


def reported(job: Job, statuses: dict[Party, PartStatus], version: int) -> None:
    """Let all parts report how component `a` is at each."""
    for part, status in statuses.items():
        report = Report(
            job="job",
            part=part,
            epoch=1,
            version=version,
            wish_version=job.state.wishes[str(part)].version,
            phase=PartPhase.RESERVED,
            components={"a": ObservedAttempt(0, status)},
        )
        job.state, effects = c.coordinate(job.state, c.ReportReceived(report), 0.0)
        job.effects += effects


@pytest.mark.parametrize("want", [Want.PREPARE, Want.GO, Want.STOP])
def test_every_combination_of_the_statuses_of_parts_has_a_next_step(want):
    job = Job(does=lambda *_: None)
    job.prepares = want is Want.GO
    job.begin()
    if want is Want.STOP:
        job.state, _ = c.coordinate(job.state, c.Halt("a", "enough"), 0.0)
    begun = job.state
    assert begun.attempts["a"].want is want
    for statuses in itertools.product(PartStatus, repeat=len(PARTS)):
        job.state, job.effects = begun, []
        reported(job, dict(zip(PARTS, statuses, strict=True)), 100)
        ended = [one for one in job.effects if isinstance(one, c.ComponentEnded)]
        attempt = job.state.attempts["a"]
        if set(statuses) <= ENDED_STATUSES:
            assert len(ended) == 1, statuses
            assert (ended[0].status == "success") == (want is not Want.STOP and set(statuses) == {PartStatus.SUCCESS})
        else:
            assert ended == [], statuses
            assert not attempt.ended
            if set(statuses) & (ENDED_STATUSES - {PartStatus.SUCCESS}):
                assert attempt.want is Want.STOP, statuses


def of_name(ends: Mapping[str, str], name: str, _attempt: int) -> str:
    return ends[name]


CHAIN = """{"components": {
    "reader_0": {"module": "Reader", "output": {"data": ["data"]}},
    "data_transform_0": {"module": "DataTransform", "input": {"data": {"data": ["reader_0.data"]}},
        "output": {"data": ["data"], "model": ["model"]}},
    "intersection_0": {"module": "Intersection", "input": {"data": {"data": ["data_transform_0.data"]}},
        "output": {"data": ["data"]}}}}"""


def chain(**parameters: Any):
    """Return a job of three components in a row."""
    conf = toy_conf(**parameters)
    conf["component_parameters"] = {"common": {"reader_0": {"table": {"name": "t", "namespace": "n"}}}}
    return read_job(CHAIN, msgspec.json.encode(conf).decode())


class Driven:
    """A driver whose components end as they are told to."""

    def __init__(self, session: Session, job, ends: Callable[[str, int], str], *, rules=(), retries=0):
        self.ends, self.begun, self.finished = ends, list[str](), threading.Event()
        self.status = ""
        limits = dict.fromkeys(job.dsl.order, ComponentLimits(retries=retries))
        plan = DriverPlan(job, {}, {}, dict(rules), limits)
        calls = DriverCalls(self.begin, lambda *_: None, lambda *_: None, self.finish)
        self.driver = JobDriver("job", plan, session, calls)
        self.driver.start()

    def begin(self, _job: str, component: str) -> None:
        self.begun.append(component)
        self.driver.ended(component, ComponentEnd(self.ends(component, self.begun.count(component)), "why"))

    def finish(self, _job: str, status: str, _reason: str) -> None:
        self.status = status
        self.finished.set()

    def end(self) -> str:
        assert self.finished.wait(180)
        return self.status


@pytest.mark.parametrize("rule", ["all_success", "all_done", "one_success", "none_failed", "all_failed"])
def test_every_combination_of_the_ends_of_components_ends_the_job(rule):
    job = chain()
    every = ("success", "failed", "canceled", "timeout", "lost")
    with Session("threads", workers=1) as session:
        for ends in itertools.product(every, repeat=2):
            of = {**dict(zip(job.dsl.order, ends, strict=False)), "intersection_0": "success"}
            one = Driven(session, job, partial(of_name, of), rules={"data_transform_0": rule})
            assert one.end() in ("success", "failed", "canceled", "timeout"), ends
            assert (one.status == "success") == all(of[name] == "success" for name in one.begun), (ends, one.begun)


# ------------------------------------------------------------------------------------------ 4: threads that do not end


class Counting:
    """A machine that counts, and breaks when it is told to."""

    def __init__(self):
        self.count = 0

    def step(self, event, now):
        if event == "break":
            raise RuntimeError("a fault in a step")
        self.count += 1
        count = self.count

        def after() -> None:
            if event == "break after":
                raise RuntimeError("a fault in an effect")

        return LoopStep(str(count), True, lambda write: None, after)


class FailingLedger(PartyLedger):
    """A ledger whose next writes fail."""

    errors: list[Exception]

    def write(self):
        if self.errors:
            raise self.errors.pop(0)
        return super().write()


def test_an_error_in_a_step_or_in_the_database_does_not_end_the_loop(tmp_path, monkeypatch):
    monkeypatch.setattr("weft.parties.loop._WRITE_PAUSE_S", 0.01)
    told = []
    ledger = FailingLedger(tmp_path / "party.db")
    ledger.errors = []
    loop = PartyLoop(ledger, RealClock(), lambda subject, error: told.append(str(error)))
    subject, machine = Subject("job"), Counting()
    loop.add(subject, machine)
    loop.start()
    try:
        for event in ("break", "break after"):
            loop.post(subject, event)
        until(lambda: len(told) == 2, "the faults of steps")
        ledger.errors = [UnreadableError("the database is locked"), RuntimeError("of a kind that nobody foresaw")]
        loop.post(subject, "count")
        until(lambda: dict(ledger.coordinations()) == {"job": "2"}, "the step")
        loop.post(subject, "count")
        until(lambda: dict(ledger.coordinations()) == {"job": "3"}, "the next step")
    finally:
        loop.close()
    assert [line.split("\n")[0] for line in told] == [
        "a fault in a step",
        "a fault in an effect",
        "the database is locked",
        "of a kind that nobody foresaw",
    ]
    ledger.close()


# -------------------------------------------------------------------------------------------------------- 6, 7: cores


def test_each_part_gives_back_what_it_has_taken_and_no_more():
    cores = PartyCoreLeases(4)
    cores.take(CoreLease("job", "guest 1", 3))
    cores.grant()
    for _ in range(3):
        cores.give_back("job", "guest 1")
        cores.give_back("job", "host 1")
    cores.take(CoreLease("next", "guest 1", 4))
    cores.take(CoreLease("last", "guest 1", 1))
    assert [one.job for one in cores.grant()] == ["next"]

    failing = Job(does=lambda part, *_: PartStatus.FAILED if part == HOST else None).begin()
    failing.post(None, c.FinishJob("failed", "a failed"))
    for part in PARTS:
        taken = [one for one in of_parts(failing, p.TakeCores) if one[0] == part]
        assert len(taken) == len([one for one in of_parts(failing, p.ReturnCores) if one[0] == part]) == 1


# ---------------------------------------------------------------------------------------------- 9: asymmetric graphs


def test_a_component_may_follow_one_that_does_not_run_at_the_initiator():
    job = Job()
    job.state = replace(job.state, runs_at={"a": [HOST], "b": PARTS})
    job.begin()
    assert job.ended == [("a", "success", None)]
    assert {part for part, _ in of_parts(job, p.StartProcess)} == {HOST}
    job.post(None, c.Begin("b"))
    assert job.ended[-1] == ("b", "success", None)
    job.post(None, c.FinishJob("success"))
    assert job.state.settled


# --------------------------------------------------------------------------------------- 11: retries and restarts


def test_a_component_is_tried_again_after_its_delay():
    job = chain()
    limits = dict.fromkeys(job.dsl.order, ComponentLimits(retries=2, delay_s=7.0))
    graph = compile_components(job, "job", print, selected=job.dsl.order, rules={}, limits=limits)
    assert {(one.retry.user, one.retry.delay_s) for one in graph.vertices.values()} == {(2, 7.0)}
    with Session("threads", workers=1) as session:
        twice = Driven(session, job, lambda name, at: "failed" if at < 3 else "success", retries=2)
        assert (twice.end(), twice.begun) == ("success", [name for name in job.dsl.order for _ in range(3)])
        lost = Driven(session, job, lambda name, at: "lost" if at < 3 else "success")  # no fault of the component
        assert (lost.end(), lost.begun) == ("success", [name for name in job.dsl.order for _ in range(3)])
        once = Driven(session, job, lambda name, at: "failed" if at < 3 else "success", retries=1)
        assert once.end() == "failed"


# --------------------------------------------------------------------------------------------------- 13: no objects

SOURCE = TESTS.parent / "src" / "weft"
UNSAFE = {"pickle", "cPickle", "dill", "cloudpickle", "marshal", "shelve", "joblib"}


@pytest.mark.parametrize("place", ["parties", "frontends/federated"])
def test_no_bytes_of_others_become_objects_of_python(place):
    files = sorted((SOURCE / place).rglob("*.py"))
    assert len(files) > 20
    for file in files:
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                assert not UNSAFE & {one.name.partition(".")[0] for one in node.names}, file
            elif isinstance(node, ast.ImportFrom):
                assert (node.module or "").partition(".")[0] not in UNSAFE, file
            elif isinstance(node, ast.Call):
                assert not (isinstance(node.func, ast.Name) and node.func.id in ("eval", "exec")), file
                allowed = [one.value for one in node.keywords if one.arg == "allow_pickle"]
                assert all(isinstance(one, ast.Constant) and one.value is False for one in allowed), file
