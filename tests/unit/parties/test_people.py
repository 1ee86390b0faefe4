"""What people see of jobs that run between two parties, whose line may be cut."""

import json
import threading

import msgspec
import pytest
from msgspec.structs import replace

from tests.integration.places import until
from tests.unit.parties.works import TOY, Works, peer_of, toy_conf
from weft.frontends.federated.coordination import participant
from weft.frontends.federated.coordination.records import ComponentOrder, JobPhase, Want
from weft.frontends.federated.schema import Party
from weft.model.errors import ConflictError, DiskFullError, PartyError
from weft.parties.following import followed
from weft.parties.http.ports import JobPart, ModelFilter
from weft.parties.mail import WISH_PATH, WishMessage
from weft.parties.policy import ALWAYS, LivePolicy, SitePolicy, write_policy
from weft.parties.report_page import report_page
from weft.parties.values import VALUES_PATH

pytestmark = pytest.mark.slow


@pytest.fixture
def works(tmp_path):
    with Works(tmp_path, "1", "2", asks=("2",)) as found:
        yield found


def test_both_parties_see_a_job_from_its_wait_for_approval_to_its_end(works):
    guest, host = works.of["1"].jobs, works.of["2"].jobs
    job = works.of["1"].submit(toy_conf())
    wait = "host 2 waits for the approval of party 2"
    until(lambda: [one["what"] for one in guest.show(job)["waits"]] == [wait], "the question at the guest")
    wait = f"host 2 waits for approval: weft party approve {job}"
    assert [one["what"] for one in host.show(job)["waits"]] == [wait]
    host.approve(job, "")
    for one in works.of.values():
        assert one.ended(job) == "success"
    for one in works.of.values():
        until(one.idle, "the end of all messages")
    for jobs, other in ((guest, "host 2"), (host, "guest 1")):
        shown = jobs.show(job)
        assert {(one["what"], one["to"]) for one in shown["left"]} >= {("shares of numbers", other)}
        assert {one["state"] for one in shown["parts"]} == {"has ended"}
        assert shown["waits"] == []
        found = jobs.logs(job, "", "")
        assert [one["name"] for one in found["logs"]] == ["secure_add_0"]
        assert not found["active"]
    (figure,) = guest.metrics(job, "secure_add_0")[0]["series"]
    assert (figure["name"], figure["single"]) == ("sum", True)
    told = host.report(job)
    assert [one["what"] for one in told["approvals"]] == ["may run here", "approved by this party"]
    assert "approved by this party" in report_page(json.loads(json.dumps(told)))
    assert guest.models(ModelFilter(limit=5)) == []


def test_values_that_a_fault_of_the_other_party_has_kept_out_come_when_it_has_passed(works, monkeypatch):
    def fails(sender, body):
        raise PartyError("party 2 has a fault while it answers /values (OSError)", party="2")

    guest, host = works.of["1"], works.of["2"]
    monkeypatch.setattr(host.work.hub, "receive", fails)
    job = guest.submit(toy_conf())
    works.approve(job, Party("host", "2"))
    wait = "party 2 takes no messages now (party 2 has a fault while it answers /values (OSError))"
    until(lambda: [one["what"] for one in guest.jobs.show(job)["waits"]] == [f"{wait}, and takes no values of guest 1"])
    monkeypatch.undo()
    for one in works.of.values():
        assert one.ended(job) == "success"


def test_a_cut_line_is_told_with_its_time(works):
    guest = works.of["1"].jobs
    works.cut.add("2")
    job = works.of["1"].submit(toy_conf(), TOY)
    waits = until(lambda: guest.show(job)["waits"], "the silence of the host")
    (wait,) = until(lambda: [one for one in guest.show(job)["waits"] if one["since"]] or None, "its time") or waits
    assert wait["what"] == "party 2 does not answer; it has not acknowledged the latest message"
    guest.stop(job, "canceled")
    assert works.of["1"].ended(job) == "canceled"


@pytest.mark.parametrize(
    ("path", "wait"),
    [
        (VALUES_PATH, "party 2 has no room on its disk, and takes no values of guest 1"),
        (WISH_PATH, "party 2 has no room on its disk; it has not acknowledged the latest message"),
    ],
)
def test_a_partner_with_a_full_disk_is_named_and_the_job_goes_on_when_it_has_room(works, path, wait):
    guest = works.of["1"].jobs
    works.of["2"].asks = False
    works.full["2"] = {path}
    job = works.of["1"].submit(toy_conf(), TOY)
    until(lambda: wait in [one["what"] for one in guest.show(job)["waits"]], "the full disk, as the guest sees it")
    works.full.clear()
    assert [one.ended(job) for one in works.of.values()] == ["success", "success"]


@pytest.mark.parametrize("path", [VALUES_PATH, WISH_PATH])
def test_a_partner_whose_disk_stays_full_fails_the_job_if_it_may(works, path):
    works.of["2"].asks = False
    works.full["2"] = {path}
    job = works.of["1"].submit(toy_conf(fail_after=1), TOY)
    assert works.of["1"].ended(job) == "failed"
    cause = works.of["1"].jobs.show(job)["cause"]
    assert cause["party"] == "2"
    assert cause["message"].endswith("for 1 s: it has no room on its disk")


def part_that_runs(works):
    """Begin a job whose host holds cores and can send nothing. Return the job."""
    host = works.of["2"]
    host.asks = False
    works.full["2"] = {VALUES_PATH}
    job = works.of["1"].submit(toy_conf(), TOY)
    until(lambda: host.work.cores.holders() and host.status(job) == "running", "the part that runs")
    return job


def test_a_party_that_removes_the_initiator_of_a_job_ends_its_part_and_has_its_cores_back(works):
    job = part_that_runs(works)
    works.remove("1", at="2")
    check_removed(works, job)


def test_a_part_ends_whose_initiator_is_removed_while_the_first_wish_is_on_its_way(works, monkeypatch):
    host, carry = works.of["2"], works.carry
    host.asks = False

    def carried(sender, to, path, body):
        if path != WISH_PATH or works.removed:
            return carry(sender, to, path, body)
        works.remove("1", at="2")
        return host.work.handlers()[path](peer_of("1"), body)

    monkeypatch.setattr(works, "carry", carried)
    check_removed(works, works.of["1"].submit(toy_conf(), TOY))


def test_a_wish_that_comes_after_the_removal_of_its_initiator_starts_nothing(works):
    host, job = works.of["2"], part_that_runs(works)
    works.remove("1", at="2")
    check_removed(works, job)
    (part,) = host.work.participations(job)
    assert part.wish is not None
    order = ComponentOrder(len(part.components), Want.PREPARE)
    late = replace(part.wish, version=99, phase=JobPhase.RUN, job_status="running", components={"secure_add_0": order})
    host.work.handlers()[WISH_PATH](peer_of("1"), msgspec.json.encode(WishMessage(late)))
    check_removed(works, job)


def check_removed(works, job):
    """Check that a job has ended at both parties, and has left nothing, since party 2 has removed party 1."""
    assert [one.ended(job) for one in works.of.values()] == ["failed", "failed"]
    for one in works.of.values():
        cause = one.jobs.show(job)["cause"]
        assert (cause["message"], cause["party"]) == ("party 1 is not known to party 2", "2")
    host = works.of["2"]
    until(lambda: not host.work.cores.holders() and host.idle(), "the end of the part")
    assert not host.work.hub.attempts(job)


def test_a_job_fails_when_its_initiator_removes_a_partner_and_sends_it_nothing_more(works):
    guest = works.of["1"]
    job = guest.submit(toy_conf())
    until(lambda: works.of["2"].status(job), "the job at the host")
    works.remove("2", at="1")
    assert guest.ended(job) == "failed"
    assert guest.jobs.show(job)["cause"] == {
        "message": "party 2 is not known to party 1",
        "party": "1",
        "code": "WEFT601",
        "hint": "",
    }
    until(guest.idle, "the end of all that the guest sends")


def test_a_job_whose_rows_were_deleted_runs_again_as_a_whole_alone(works):
    works.of["2"].asks = False
    guest = works.of["1"]
    two = {name: {"module": "SecureAddExample"} for name in ("secure_add_0", "secure_add_1")}
    job = guest.submit(toy_conf(single_step=True), {"components": two})
    first = "the end of the component that is first to begin, which may be either"
    until(lambda: "success" in [one["status"] for one in guest.jobs.show(job)["components"]], first)
    guest.jobs.stop(job, "canceled")
    assert guest.ended(job) == "canceled"
    guest.jobs.clean(JobPart(job))
    with pytest.raises(ConflictError, match="was deleted") as told:
        guest.work.rerun(job, [], force=False)
    assert told.value.hint == f"Run all of them again: weft party rerun {job} --force"
    guest.work.rerun(job, [], force=True)
    until(lambda: guest.status(job) == "running", "the second run")


def removed_by_its_initiator(works):
    """Begin a job whose host holds cores and sends nothing; then its guest removes the host. Return the job."""
    guest, job = works.of["1"], part_that_runs(works)
    works.remove("2", at="1")
    assert guest.ended(job) == "failed"
    return job


def test_a_part_ends_when_its_initiator_has_removed_the_party(works, monkeypatch):
    monkeypatch.setattr(participant, "PROBE_S", 0.2)
    host = works.of["2"]
    job = removed_by_its_initiator(works)
    assert host.ended(job) == "failed"
    cause = host.jobs.show(job)["cause"]
    assert (cause["message"], cause["party"]) == ("party 2 is not known to party 1", "1")
    until(lambda: not host.work.cores.holders() and host.idle(), "the end of the part")


def test_a_removed_party_can_stop_its_part(works):
    host = works.of["2"]
    job = removed_by_its_initiator(works)
    host.jobs.stop(job, "canceled")
    assert host.ended(job) == "failed"
    until(lambda: not host.work.cores.holders() and host.idle(), "the end of the part")


def test_a_party_with_a_full_disk_tells_its_people_and_its_partner(works, monkeypatch):
    guest, host = works.of["1"].jobs, works.of["2"].jobs
    job = works.of["1"].submit(toy_conf())
    asked = "host 2 waits for the approval of party 2"
    until(lambda: asked in [one["what"] for one in guest.show(job)["waits"]], "the question at the guest")
    full = threading.Event()
    full.set()
    write = works.of["2"].ledger.write

    def written():
        if full.is_set():
            raise DiskFullError("the disk of /parties/2 is full")
        return write()

    monkeypatch.setattr(works.of["2"].ledger, "write", written)
    with pytest.raises(DiskFullError):
        host.approve(job, "")
    told = "this party cannot write its records: the disk of /parties/2 is full"
    until(lambda: told in [one["what"] for one in host.show(job)["waits"]], "the full disk, as the host sees it")
    guest.stop(job, "canceled")
    wait = "party 2 has no room on its disk; it has not acknowledged the latest message"
    until(lambda: wait in [one["what"] for one in guest.show(job)["waits"]], "the full disk, as the guest sees it")
    full.clear()
    assert works.of["2"].ended(job) == "canceled"


def test_a_policy_that_asks_no_more_lets_a_waiting_job_run(works, tmp_path):
    host = works.of["2"]
    job = works.of["1"].submit(toy_conf())
    until(lambda: host.jobs.show(job)["waits"] if host.status(job) else None, "the question at the host")
    folder = tmp_path / "policy"
    folder.mkdir()
    write_policy(folder, SitePolicy(approval=ALWAYS))
    policy = LivePolicy(folder, lambda what, error: None)
    with followed(policy.now, host.work.policy_changed, "policy"):
        host.asks = False
        write_policy(folder, SitePolicy())
        assert [one.ended(job) for one in works.of.values()] == ["success", "success"]
