"""What FATE Flow 1.x does wrong between parties, and Weft does not: see `SHOWN` in `test_old_defects`."""

from __future__ import annotations

import msgspec
import pytest

from tests.integration.places import until
from tests.unit.parties.works import Works, toy_conf
from weft.frontends.federated.coordination.records import PartStatus
from weft.frontends.federated.schema import Party
from weft.model.errors import ConflictError
from weft.parties.cores import CoreLease
from weft.parties.http.ports import JobFilter, JobPart

pytestmark = pytest.mark.slow
GUEST, HOST = Party("guest", "1"), Party("host", "2")


def test_a_message_that_comes_twice_is_no_error(tmp_path):
    with Works(tmp_path, "1", "2", asks=("2",)) as works:
        guest, host = works.of["1"], works.of["2"]
        id = guest.submit(toy_conf())
        until(lambda: works.parts(id).get(HOST), "the job at the host")
        wish = msgspec.json.encode({"wish": guest.work.coordination(id).wishes["host 2"]})
        assert len({works.carry("1", "2", "/wish", wish) for _ in range(3)}) == 1
        assert guest.failures == host.failures == []


def test_a_party_that_answers_with_an_error_of_its_own_fails_that_job_alone(tmp_path, monkeypatch):
    with Works(tmp_path, "1", "2") as works:
        guest, host = works.of["1"], works.of["2"]
        monkeypatch.setattr(host.work.mail, "_first_wish", lambda *_: (_ for _ in ()).throw(ConflictError("no room")))
        bad = guest.submit(toy_conf())
        assert guest.ended(bad) == "failed"
        assert "no room" in guest.jobs.show(bad)["reason"]
        monkeypatch.undo()
        good = guest.submit(toy_conf())
        assert guest.ended(good) == "success"


def test_a_second_guest_and_another_role_of_the_initiator_report_too(tmp_path):
    conf = toy_conf()
    conf["role"] = {"guest": ["1", "2"], "host": ["1", "3"]}
    conf["component_parameters"] = {"common": {"reader_0": {"table": {"name": "t", "namespace": "n"}}}}
    dsl = {"components": {"reader_0": {"module": "Reader", "output": {"data": ["data"]}}}}
    with Works(tmp_path, "1", "2", "3") as works:
        for one in works.of.values():
            one.upload("n", "t", b"id,y\n1,0\n2,1\n")
        guest = works.of["1"]
        job = guest.submit(conf, dsl)
        guest.ended(job)
        state = guest.work.coordination(job)
        assert state.status == "success", state.cause
        assert set(state.reports) == {"guest 1", "guest 2", "host 1", "host 3"}
        assert {one.components["reader_0"].status for one in state.reports.values()} == {PartStatus.SUCCESS}
        for one in works.of.values():
            assert one.ended(job) == "success"


def test_a_job_that_waits_says_for_what_and_a_smaller_one_runs_meanwhile(tmp_path):
    with Works(tmp_path, "1", "2", cores=4, asks=("2",)) as works:
        guest, host = works.of["1"], works.of["2"]
        guest.work.cores.take(CoreLease("other", "guest 1", 2))
        guest.work.cores.grant()
        large = guest.submit(toy_conf(task_cores=3))
        works.approve(large, HOST)
        until(lambda: "needs 3 cores, 2 of 4 are free; held by other" in guest.jobs.show(large)["reason"], "the reason")
        small = guest.submit(toy_conf())
        works.approve(small, HOST)
        assert guest.ended(small) == "success"
        assert guest.status(large) == "waiting"
        guest.work.cores.give_back("other", "guest 1")
        guest.jobs.stop(large, "canceled")
        assert host.ended(large) == "canceled"
        until(lambda: [one.work.cores.holders() for one in works.of.values()] == [[], []], "the cores of both parties")


def test_jobs_of_two_parties_with_the_same_id_do_not_mix(tmp_path):
    with Works(tmp_path, "1", "2", asks=("1", "2")) as works:
        guest, host = works.of["1"], works.of["2"]
        host.jobs._new_id = guest.jobs._new_id = lambda: "20260101000000000000"
        works.cut = {"1", "2"}
        job = guest.submit(toy_conf())
        assert host.submit(toy_conf(host="1", initiator="2")) == job
        works.cut = set()
        for one in works.of.values():
            assert one.ended(job) == "failed"
            assert one.ledger.job(job).initiator == one.id
            assert f"job {job} is another one here" in one.jobs.show(job)["reason"]


def test_an_ended_job_is_cleaned_and_one_that_runs_is_not(tmp_path):
    with Works(tmp_path, "1", "2") as works:
        guest = works.of["1"]
        works.cut = {"2"}
        job = guest.submit(toy_conf())
        part = JobPart(job_id=job)
        with pytest.raises(ConflictError, match="has not ended"):
            guest.jobs.clean(part)
        assert guest.folders.job(job).is_dir()
        assert guest.jobs.clean_queue() == {job: ""}
        assert guest.ended(job) == "canceled"
        guest.jobs.clean(part)
        assert not guest.folders.job(job).exists()


def test_a_restart_frees_cores_and_the_queue_goes_on(tmp_path):
    with Works(tmp_path, "1", "2", cores=1, asks=("2",)) as works:
        first = works.of["1"].submit(toy_conf())
        works.approve(first, HOST)
        until(lambda: works.parts(first)[GUEST]["processes"], "a process")
        works.cut = {"2"}
        works.crash("1")
        works.start("1")
        until(lambda: works.parts(first)[GUEST]["processes"] == {}, "the loss of the process")
        guest = works.of["1"]
        guest.jobs.stop(first, "canceled")
        until(lambda: not guest.work.cores.holders(), "the cores")
        second = guest.submit(toy_conf())
        works.cut = set()
        works.approve(second, HOST)
        assert guest.ended(second) == "success"
        assert works.of["2"].ended(first) == "canceled"


def test_after_a_rerun_nothing_of_the_epoch_before_is_shown(tmp_path):
    with Works(tmp_path, "1", "2") as works:
        guest, host = works.of["1"], works.of["2"]
        conf = toy_conf()
        conf["component_parameters"]["role"] = {"host": {"0": {"secure_add_0": {"data_num": 0}}}}
        job = guest.submit(conf)
        assert guest.ended(job) == "failed"
        assert host.ended(job) == "failed"
        for one in works.of.values():
            assert "party 2: secure_add_0: data_num is 0" in one.jobs.show(job)["reason"]
        works.cut = {"2"}
        guest.jobs.rerun(job, [], force=False)
        shown = guest.jobs.show(job)
        assert shown["status"] == "waiting"
        assert "data_num" not in str(shown)
        assert set(shown["components"][0]["parts"].values()) == {"waiting"}


def test_ended_jobs_leave_nothing_behind_that_grows(tmp_path):
    with Works(tmp_path, "1", "2", "3") as works:
        guest = works.of["1"]
        refused, confs = toy_conf(), [toy_conf(), toy_conf(host="3")]
        refused["job_parameters"]["role"] = {"host": {"0": {"task_cores": 99}}}
        for conf in (*confs, refused):
            job = guest.submit(conf)
            guest.ended(job)
        for one in works.of.values():
            until(one.idle, f"the end of all jobs at {one.id}")
            assert list(one.ledger.participations()) == []
            assert list(one.ledger.coordinations()) == []
            assert (one.work.cores.holders(), one.work.cores.queue()) == ([], [])
            for entry in one.ledger.jobs():
                assert one.work.hub.attempts(entry.job) == set()
            assert list((works.folder / one.id / "run").iterdir()) == []


def test_the_wanted_cores_are_those_that_are_held(tmp_path):
    with Works(tmp_path, "1", "2", cores=8, asks=("2",)) as works:
        guest, host = works.of["1"], works.of["2"]
        conf = toy_conf(task_cores=3)
        conf["job_parameters"]["role"] = {"host": {"0": {"task_parallelism": 2}}}
        job = guest.submit(conf)
        until(lambda: works.parts(job).get(HOST), "the job at the host")
        assert guest.work.coordination(job).cores == {"guest 1": 3, "host 2": 6}
        host.approve(job)
        assert guest.ended(job) == "success"
        assert guest.jobs.query(JobFilter(job_id=job))[0].cores == 3
        assert host.ended(job) == "success"
        assert host.jobs.query(JobFilter(job_id=job))[0].cores == 6
