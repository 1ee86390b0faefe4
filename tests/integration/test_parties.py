"""Servers of parties as processes, with jobs submitted, stopped, run again and interrupted."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

import weft
from tests.forked_guardians import FORKS
from tests.integration.places import DEADLINE_S, until
from tests.ports import free_port
from tests.prepared import forks_with, weft_command
from tests.started import start
from weft.parties.client import SiteClient
from weft.parties.invitations import invite, join
from weft.parties.parts import LOADED
from weft.parties.policy import SitePolicy, write_policy
from weft.parties.site import PartySite
from weft.worker.group import is_alive, read_record

SOURCE = Path(weft.__file__).parents[1]
ENDED = {"success", "failed", "canceled", "timeout"}
SERVER = ("weft.parties.serving", "weft.cli.party_jobs", "tests.forked_guardians")
"""What the server of a party imports, and the pool of its guardians."""
TOY = {"components": {"secure_add_0": {"module": "SecureAddExample"}}}


def conf(*, host="2", **parameters):
    return {
        "dsl_version": 2,
        "initiator": {"role": "guest", "party_id": 1},
        "role": {"guest": [1], "host": [host]},
        "job_parameters": {"common": parameters},
        "component_parameters": {"common": {"secure_add_0": {"data_num": 100, "partition": 1}}},
    }


class Served:
    """A party and its server."""

    def __init__(self, folder, id, *, host="127.0.0.1", ports=None):
        ports = ports or (free_port(), free_port())
        self.site = PartySite.create(folder / id, id, name=id, host=host, party_port=ports[0], http_port=ports[1])
        self.client = SiteClient.of(self.site)
        self.process = None

    def command(self):
        return ["party", "start", "--folder", str(self.site.folder)]

    def process_of(self, log):
        """Start the process of the server; a fixture of a module may own it."""
        env = os.environ | {FORKS: forks_with(LOADED).path}
        return forks_with(SERVER).start(self.command(), Path.cwd(), env, log.fileno(), log.fileno())

    def start(self):
        self.spawn()
        until(self.answers, "the server")

    def spawn(self):
        with (self.site.folder / "server.log").open("ab") as log:
            self.process = self.process_of(log)

    def answers(self):
        assert self.process.poll() is None, (self.site.folder / "server.log").read_text()
        try:
            self.client.post("version/get", {"module": "FATE"})
        except weft.PartyUnreachableError:
            return False
        return True

    def kill(self):
        self.process.kill()
        self.process.wait()

    def end(self):
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            try:
                assert self.process.wait(DEADLINE_S) == 0
            finally:
                self.kill()

    def submit(self, dsl=TOY, wishes=None):
        body = {"job_dsl": dsl, "job_runtime_conf": wishes or conf()}
        return self.client.post("job/submit", body)["job_id"]

    def show(self, job):
        return self.client.post("weft/job", {"job_id": job})

    def epoch(self, job):
        return self.client.post("weft/report", {"job_id": job, "document": True})["versions"]["epoch"]

    def ended(self, job):
        return until(lambda: (shown := self.show(job))["status"] in ENDED and shown, f"the end of {job}")

    def processes(self):
        """Return the processes of parts of this party that live."""
        records = self.site.folder.glob("jobs/*/*/*/*/*/process")
        return [one for record in records for one in read_record(record)[1:] if is_alive(one)]


@pytest.fixture
def parties(tmp_path):
    found = {id: Served(tmp_path, id) for id in ("1", "2")}
    now = time.time()
    for one in found.values():
        for other in found.values():
            if one is not other:
                join(other.site, invite(one.site, now), now)
    with ExitStack() as stack:
        for one in found.values():
            stack.callback(one.end)
        yield found


def test_two_parties_add_shares_and_agree_on_the_result(parties):
    guest, host = parties["1"], parties["2"]
    guest.start()
    host.start()
    job = guest.submit()
    shown = guest.ended(job)
    assert shown["status"] == "success"
    assert shown["metrics"] == {"secure_add_0 sum": 200.0}
    theirs = host.ended(job)
    assert theirs["status"] == "success"
    assert theirs["components"][0]["parts"] == {"guest 1": "success", "host 2": "success"}
    with pytest.raises(weft.ConflictError, match="nothing left to run"):
        guest.client.post("job/rerun", {"job_id": job})
    assert host.show(job)["seconds"] == theirs["seconds"], "the time of a job ends with it at its partners, too"
    rows = guest.client.post("job/query", {"job_id": job})
    rows = rows["jobs"] if isinstance(rows, dict) else rows
    assert rows[0]["f_status"] == "success"
    assert rows[0]["f_progress"] == 100
    assert guest.processes() == host.processes() == []


def test_a_job_waits_for_a_party_that_does_not_run_yet(parties):
    guest, host = parties["1"], parties["2"]
    guest.start()
    job = guest.submit()
    until(lambda: "party 2 does not answer" in guest.show(job)["reason"], "the reason")
    host.start()
    assert guest.ended(job)["status"] == "success"


def test_a_killed_server_goes_on_with_its_jobs(parties):
    guest, host = parties["1"], parties["2"]
    guest.start()
    job = guest.submit()
    guest.kill()
    host.start()
    guest.start()
    assert guest.ended(job)["status"] == "success"


def test_a_server_whose_database_is_moved_away_ends_and_goes_on_when_it_is_back(parties, tmp_path):
    guest, host = parties["1"], parties["2"]
    guest.start()
    job = guest.submit()
    guest.site.database.rename(tmp_path / "away.db")
    assert guest.process.wait(DEADLINE_S) == 7
    said = (guest.site.folder / "server.log").read_text()
    assert "is gone: it was moved or deleted while the server ran" in said
    assert "Move it back" in said
    assert not guest.site.database.exists()
    (tmp_path / "away.db").rename(guest.site.database)
    host.start()
    guest.start()
    assert guest.ended(job)["status"] == "success"


def test_a_job_is_stopped_by_either_party(parties):
    guest, host = parties["1"], parties["2"]
    guest.start()
    job = guest.submit()
    guest.client.post("job/stop", {"job_id": job})
    assert guest.ended(job)["status"] == "canceled"
    host.start()
    until(lambda: host.client.post("weft/jobs", {}), "the job at the host")
    assert host.ended(job)["status"] == "canceled"
    other = guest.submit()
    until(lambda: [one for one in host.client.post("weft/jobs", {}) if one["job"] == other], "the job at the host")
    host.client.post("job/stop", {"job_id": other})
    assert guest.ended(other)["status"] in ("canceled", "success")


def test_the_first_failure_is_told_at_every_party_and_a_rerun_begins_again(parties):
    guest, host = parties["1"], parties["2"]
    guest.start()
    host.start()
    wishes = conf()
    wishes["component_parameters"]["role"] = {"host": {"0": {"secure_add_0": {"data_num": 0}}}}
    job = guest.submit(wishes=wishes)
    shown = guest.ended(job)
    assert shown["status"] == "failed"
    assert "party 2: secure_add_0: data_num is 0" in shown["reason"]
    assert "data_num is 0" in host.ended(job)["reason"]
    guest.client.post("job/rerun", {"job_id": job})
    until(lambda: guest.epoch(job) == "2", "the second epoch")
    assert guest.ended(job)["status"] == "failed"
    assert guest.processes() == host.processes() == []


def test_changed_parameters_run_at_all_parties(parties):
    guest, host = parties["1"], parties["2"]
    guest.start()
    host.start()
    wishes = conf()
    wishes["component_parameters"]["role"] = {"host": {"0": {"secure_add_0": {"data_num": 0}}}}
    job = guest.submit(wishes=wishes)
    assert guest.ended(job)["status"] == "failed"
    own = {"host": {"0": {"secure_add_0": {"data_num": 100}}}}
    with pytest.raises(weft.WeftError, match="belongs to party 1"):
        host.client.post("job/parameter/update", {"job_id": job, "component_parameters": {"role": own}})
    with pytest.raises(weft.UsageError, match="new job"):
        guest.client.post("job/parameter/update", {"job_id": job, "job_parameters": {"common": {"task_cores": 2}}})
    changed = guest.client.post("job/parameter/update", {"job_id": job, "component_parameters": {"role": own}})
    assert changed == {"components": ["secure_add_0"]}
    guest.client.post("job/rerun", {"job_id": job})
    until(lambda: guest.epoch(job) == "2", "the second epoch")
    shown = guest.ended(job)
    assert shown["status"] == "success", shown
    assert shown["metrics"] == {"secure_add_0 sum": 200.0}
    assert host.ended(job)["status"] == "success"

    less = {"common": {"secure_add_0": {"data_num": 50}}, "role": {"host": {"0": {"secure_add_0": {"data_num": 50}}}}}
    guest.client.post("job/parameter/update", {"job_id": job, "component_parameters": less})
    guest.client.post("job/rerun", {"job_id": job})  # a success runs again, since its parameters have changed
    until(lambda: guest.show(job)["metrics"] == {"secure_add_0 sum": 100.0}, "the third epoch")
    assert guest.ended(job)["status"] == host.ended(job)["status"] == "success"


def test_tables_and_what_jobs_have_left_are_deleted_by_commands(parties):
    guest, host = parties["1"], parties["2"]
    guest.start()
    host.start()

    def weft_party(*words):
        code, _, err = weft_command("party", *words, "--folder", str(guest.site.folder), cwd=Path.cwd(), loaded=SERVER)
        return code, err.strip()

    (guest.site.folder / "own.csv").write_text("id,x\n1,2\n")
    guest.client.upload(guest.site.folder / "own.csv", {"namespace": "n", "table_name": "own"})
    dropped = weft_party("drop", "--namespace", "n", "--name", "own")
    assert dropped == (0, "the table n.own is deleted")
    code, again = weft_party("drop", "--namespace", "n", "--name", "own")
    assert code
    assert "there is no table n.own" in again
    job = guest.submit()
    guest.ended(job)
    assert (guest.site.folder / "jobs" / job).exists()
    cleaned = weft_party("clean", job)
    assert cleaned == (0, f"what job {job} has left here is deleted")
    assert not (guest.site.folder / "jobs" / job).exists()


def test_what_cannot_run_is_refused_with_its_party_and_its_cause(parties):
    guest, host = parties["1"], parties["2"]
    guest.start()
    host.start()
    reader = {"components": {"reader_0": {"module": "Reader", "output": {"data": ["data"]}}}}
    wishes = conf()
    table = {"table": {"name": "own", "namespace": "n"}}
    wishes["component_parameters"] = {"common": {"reader_0": table}}
    with pytest.raises(weft.NotFoundError, match="there is no table n/own"):
        guest.submit(reader, wishes)
    (guest.site.folder / "own.csv").write_text("id,x\n1,2\n")
    stored = guest.client.upload(guest.site.folder / "own.csv", {"namespace": "n", "table_name": "own"})
    assert (stored["data"]["count"], stored["data"]["schema"]) == (1, {"header": "x", "sid": "id"})
    reason = guest.ended(guest.submit(reader, wishes))["reason"]
    assert "host 2 refused: there is no table n/own" in reason
    with pytest.raises(weft.UsageError, match="rsa_0: the module Rsa does not run on Weft yet"):
        guest.submit({"components": {"rsa_0": {"module": "Rsa"}}})
    with pytest.raises(weft.PartyIdentityError, match="party 77 is not known to party 1"):
        guest.submit(wishes=conf(host="77"))
    wrong = conf()
    wrong["component_parameters"]["common"]["secure_add_0"]["data_num"] = "many"
    with pytest.raises(weft.FederatedFileError, match="data_num: must be a whole number, is the text `many`"):
        guest.submit(wishes=wrong)
    with pytest.raises(weft.UsageError, match="the job needs 1000 cores at party 1, which has"):
        guest.submit(wishes=conf(task_cores=1000))
    wishes = conf()
    wishes["job_parameters"]["role"] = {"host": {"0": {"task_cores": 1000}}}
    many = guest.ended(guest.submit(wishes=wishes))
    assert many["status"] == "failed"
    assert "host 2 refused: the job needs 1000 cores at party 2, which has" in many["reason"]
    with pytest.raises(weft.WeftError, match="components"):
        guest.submit({})
    with pytest.raises(weft.NotFoundError, match="there is no job nope"):
        guest.show("nope")
    with pytest.raises(weft.PartyRefusedError, match="initiator"):
        host.submit()


def test_a_partner_approves_a_job_first_if_its_policy_says_so(parties):
    guest, host = parties["1"], parties["2"]
    guest.start()
    host.start()
    write_policy(host.site.folder, SitePolicy(approval="always"))
    job = guest.submit()
    until(lambda: "host 2: waits for approval" in guest.show(job)["reason"], "the question")
    shown = host.show(job)
    assert "weft party approve" in shown["reason"]
    assert shown["components"][0]["parts"] == {"guest 1": "waiting", "host 2": "waiting"}
    assert shown["components"][0]["status"] == "waiting"
    host.client.post("weft/approve", {"job_id": job})
    assert guest.ended(job)["status"] == "success"
    with pytest.raises(weft.ConflictError, match="waits for approval here: the job is"):
        host.client.post("weft/approve", {"job_id": job, "decline": "too late"})
    other = guest.submit()
    until(lambda: "host 2: waits for approval" in guest.show(other)["reason"], "the question")
    with pytest.raises(weft.UsageError, match="the reason to decline the job is empty"):
        host.client.post("weft/approve", {"job_id": other, "decline": " \n"})
    host.client.post("weft/approve", {"job_id": other, "decline": "not\n\x1b[1mon\rFridays"})
    shown = guest.ended(other)
    assert shown["status"] == "failed"
    assert "not [1mon Fridays" in shown["reason"]


def test_a_server_ends_in_order_and_runs_once(parties):
    guest = parties["1"]
    guest.start()
    twice = subprocess.run(
        [sys.executable, "-m", "weft", "party", "start", "--folder", str(guest.site.folder)],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(SOURCE)},
        timeout=180,
        check=False,
    )
    assert twice.returncode == 7
    assert "Traceback" not in twice.stderr
    guest.process.send_signal(signal.SIGINT)
    assert guest.process.wait(timeout=180) == 0


@pytest.mark.slow
def test_the_demonstration_with_shares_runs_in_a_folder_of_its_own(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "weft", "party", "demo", "--toy", "--json"],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(SOURCE), "TMPDIR": str(tmp_path)},
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["status"] == "success"
    assert [one.name for one in tmp_path.iterdir() if one.name != f"weft-{os.getuid()}"] == []


def test_servers_of_a_killed_demonstration_end_with_it(tmp_path):
    demo = start(
        [sys.executable, "-m", "weft", "party", "demo", "--toy", "--folder", str(tmp_path / "demo")],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=os.environ | {"PYTHONPATH": str(SOURCE)},
    )
    until((tmp_path / "demo" / "guest" / "server.log").exists)
    demo.kill()
    demo.wait()

    def left():
        found = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
        return [line for line in found.splitlines() if str(tmp_path) in line]

    until(lambda: not left(), "the end of the servers")


def test_a_long_path_of_temporary_files_is_no_obstacle(parties, tmp_path, monkeypatch):
    deep = tmp_path / ("d" * 100)
    deep.mkdir()
    monkeypatch.setenv("TMPDIR", str(deep))
    guest, host = parties["1"], parties["2"]
    guest.start()
    host.start()
    assert guest.ended(guest.submit())["status"] == "success"
