"""The commands of `weft party`."""

import errno
import io
import json
import os
import sys
from pathlib import Path

import pytest

from tests.unit.cli.fakes import World
from tests.unit.frontends.federated.test_files import conf_2, dsl
from tests.unit.parties.pair import echo
from weft.model.errors import ForbiddenError
from weft.parties.audit import AuditLog
from weft.parties.client import SiteClient
from weft.parties.client_keys import OWNER, read_keys
from weft.parties.invitations import read_invitation
from weft.parties.peers import Peers
from weft.parties.policy import read_policy
from weft.parties.site import PartySite
from weft.parties.transport import PartyClient, PartyServer
from weft.runtime.clock import RealClock
from weft.store.folders import OwnerLock


@pytest.fixture
def weft(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    world = World(tmp_path)
    world.clock.time = RealClock().wall()  # TLS knows the real time
    return world


@pytest.fixture
def two(weft):
    assert weft("party", "init", "guest", "--id", "9999") == 0
    assert weft("party", "init", "host", "--id", "10000") == 0
    return weft


def invitation(weft: World, *options: str) -> str:
    assert weft("party", "invite", "--folder", "host", *options) == 0
    return weft.out.strip()


def document(weft: World):
    return json.loads(weft.out)


def test_init_makes_a_folder_and_says_the_next_step(weft):
    assert (
        weft("party", "init", "guest", "--id", "9999", "--cores", "2", "--host", "guest.example", "--port", "9370") == 0
    )
    site = PartySite.open(weft.folder / "guest")
    assert (site.id, site.party.name, site.party.cores, site.address) == ("9999", "guest", 2, "guest.example:9370")
    assert "9999" in weft.out
    assert "for parties  guest.example:9370, listening on all addresses" in weft.out
    assert f"for clients  http://127.0.0.1:{site.party.http_port}/v1" in weft.out
    assert "guest/keys" in weft.out
    assert "weft party start --folder guest" in weft.err
    assert "weft party invite --folder guest" in weft.err


def test_init_as_json_in_another_folder(weft):
    assert weft("party", "init", "Bank of X", "--id", "1", "--folder", "deep/bank", "--outbound", "--json") == 0
    found = document(weft)
    assert (found["id"], found["name"], found["address"], len(found["fingerprint"])) == ("1", "Bank of X", "", 64)
    assert PartySite.open(weft.folder / "deep/bank").party.host == ""


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["", "--id", "1"], 2, "the name of the party is empty"),
        (["  ", "--id", "1"], 2, "the name of the party is empty"),
        (["x", "--id", ""], 2, "'' cannot be the id of a party"),
        (["x", "--id=-5"], 2, "'-5' cannot be the id of a party"),
        (
            ["x", "--id", "1", "--port", "5000", "--http-port", "5000"],
            2,
            "port 5000 cannot be for parties and for",
        ),
        (["x", "--id", "1", "--host", "0.0.0.0"], 2, "'0.0.0.0' is no host"),
        (["x", "--id", "1", "--listen", "192.0.2.1"], 2, "'192.0.2.1' is no address of this machine"),
        (["x", "--id", "1", "--folder", "/proc/x"], 5, "the folder /proc/x cannot be made"),
        (["x", "--id", "1", "--folder", "file"], 7, "file is a file"),
        (["x", "--id", "1", "--folder", "file/x"], 5, "file/x cannot be made"),
    ],
)
def test_a_party_that_cannot_be_is_refused(weft, words, code, told):
    (weft.folder / "file").touch()
    before = sorted(one.name for one in weft.folder.iterdir())
    assert weft("party", "init", *words) == code
    assert told in weft.err
    assert "WEFT900" not in weft.err
    assert sorted(one.name for one in weft.folder.iterdir()) == before


def test_init_twice_is_a_conflict(two):
    assert two("party", "init", "guest", "--id", "9999") == 7
    assert "party already" in two.err


def test_commands_need_the_folder_of_a_party(weft):
    for words in (["invite"], ["peers"], ["audit"], ["renew"], ["join", "x"], ["remove", "1"]):
        assert weft("party", *words) == 4
        assert "weft party init" in weft.err


def test_two_texts_join_two_parties_whose_servers_do_not_run(two):
    assert two("party", "join", invitation(two, "--public"), "--folder", "guest") == 0
    assert two.out == ""
    assert two("party", "join", invitation(two), "--folder", "guest") == 0
    assert "could not be told" in two.err
    assert "last error" not in two.err
    assert two("party", "join", two.out.strip(), "--folder", "host") == 0
    for folder, other in (("guest", "10000"), ("host", "9999")):
        assert two("party", "peers", "--folder", folder, "--json") == 0
        assert [one["id"] for one in document(two)["peers"]] == [other]


def test_one_text_joins_two_parties_while_the_server_runs(two):
    clock = RealClock()
    host, guest = (PartySite.open(two.folder / name) for name in ("host", "guest"))
    audit = AuditLog(host.audit, host.id, clock)
    with PartyServer(host, Peers(host), {"/echo": echo}, clock, audit, threads=2):
        assert two("party", "join", invitation(two), "--folder", "guest", "--json") == 0
        found = document(two)
        assert (found["introduced"], found["invitation"], found["error"]) == (True, None, "")
        with PartyClient(guest, Peers(guest), clock) as client:
            assert client.call("10000", "/echo", b"x") == b"9999:x"
        text = invitation(two)
        assert two("party", "join", text, "--folder", "guest") == 0
        assert two("party", "init", "third", "--id", "7") == 0
        assert two("party", "join", text, "--folder", "third") == 6
        assert "party 10000 does not take this invitation: it was used before" in two.err
        assert two.out == ""
        assert list(Peers(PartySite.open(two.folder / "third"))) == []
    audit.close()
    assert two("party", "audit", "--folder", "host") == 0
    assert "introduced with certificate" in two.out
    assert "/echo" in two.out


def test_an_invitation_comes_from_stdin(two, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO(invitation(two, "--public") + "\n"))
    assert two("party", "join", "-", "--folder", "guest") == 0
    assert [one.id for one in Peers(PartySite.open(two.folder / "guest"))] == ["10000"]


def test_an_invitation_has_its_days(two):
    text = invitation(two, "--public", "--days", "2")
    assert read_invitation(text, two.clock.wall()).entry_key == ""
    two.clock.advance(2 * 86400)
    assert two("party", "join", text, "--folder", "guest") == 6
    assert "expired" in two.err


def joined_relay(two: World) -> str:
    """Let the guest know a third party, and return its id."""
    assert two("party", "init", "relay", "--id", "5") == 0
    assert two("party", "invite", "--public", "--folder", "relay") == 0
    assert two("party", "join", two.out.strip(), "--folder", "guest") == 0
    return "5"


@pytest.mark.parametrize(
    ("via", "told"),
    [
        ("7", "--via 7: party 7 is not known to party 9999"),
        ("9999", "--via 9999 is this party itself"),
        ("10000", "--via 10000 is the party that it would relay for"),
    ],
)
def test_a_relay_must_be_a_third_party_that_is_known(two, via, told):
    text = invitation(two, "--public")
    assert two("party", "join", text, "--folder", "guest", "--via", via) == 2
    assert told in two.err
    assert list(Peers(PartySite.open(two.folder / "guest"))) == []


def test_a_relay_has_none_itself_and_is_missed(two):
    relay = joined_relay(two)
    assert two("party", "join", invitation(two, "--public"), "--folder", "guest", "--via", relay) == 0
    assert two("party", "init", "fourth", "--id", "4") == 0
    assert two("party", "invite", "--public", "--folder", "fourth") == 0
    assert two("party", "join", two.out.strip(), "--folder", "guest", "--via", "10000") == 2
    assert "party 10000 is reached through party 5, and a message has one relay" in two.err
    assert two("party", "remove", relay, "--folder", "guest") == 0
    assert "warning: party 10000 is reached through it" in two.err
    assert two("party", "join", invitation(two, "--public"), "--folder", "guest", "--via", "") == 0
    assert Peers(PartySite.open(two.folder / "guest")).find("10000").via == ""


def test_a_role_must_be_one(two):
    assert two("party", "join", invitation(two, "--public"), "--folder", "guest", "--role", "gast") == 2
    assert "there is no role gast" in two.err
    assert list(Peers(PartySite.open(two.folder / "guest"))) == []


def test_new_keys_need_replace(two):
    relay = joined_relay(two)
    two("party", "join", invitation(two, "--public"), "--folder", "guest", "--role", "host", "--via", relay, "--relay")
    assert two("party", "renew", "--folder", "host") == 0
    fingerprint = two.out.strip()
    text = invitation(two, "--public")
    assert two("party", "join", text, "--folder", "guest") == 7
    assert two("party", "join", text, "--folder", "guest", "--replace") == 0
    peer = Peers(PartySite.open(two.folder / "guest")).find("10000")
    assert (peer.fingerprint, peer.roles, peer.via, peer.relays) == (fingerprint, ("host",), relay, True)


def test_peers_are_listed_and_removed(two):
    two("party", "join", invitation(two, "--public"), "--folder", "guest")
    assert two("party", "peers", "--folder", "guest") == 0
    assert "10000" in two.out
    assert two("party", "remove", "10000", "--folder", "guest") == 0
    assert two("party", "remove", "10000", "--folder", "guest") == 4
    assert two("party", "peers", "--folder", "guest") == 0
    assert "knows no other party" in two.err


def test_a_damaged_file_of_a_peer_is_told(two):
    (two.folder / "guest/peers/1.json").write_text("{")
    assert two("party", "peers", "--folder", "guest") == 0
    assert "1.json is damaged" in two.err


def test_the_audit_log_is_shown_and_checked(two):
    two("party", "join", invitation(two, "--public"), "--folder", "guest")
    two("party", "remove", "10000", "--folder", "guest")
    assert two("party", "audit", "--folder", "guest", "--json", "-n", "1") == 0
    assert [one["reason"] for one in document(two)["records"]] == ["removed"]
    assert two("party", "audit", "--folder", "guest", "--verify", "--json") == 0
    assert document(two)["records"] == 2
    file = two.folder / "guest/audit.jsonl"
    file.write_text(file.read_text().replace("10000", "10001", 1))
    assert two("party", "audit", "--folder", "guest", "--verify") == 4
    assert "line 1" in two.err


@pytest.mark.parametrize(
    ("file", "told"),
    [
        ("keys/tls.pem", "the TLS key of this party, keys/tls.pem, is damaged"),
        ("keys/signing.pem", "the signing key of this party, keys/signing.pem, is damaged"),
        ("cert.pem", "the certificate of this party, cert.pem, is damaged"),
    ],
)
def test_a_damaged_key_is_named_before_anything_is_done(two, file, told):
    (two.folder / "guest" / file).write_text("junk")
    for words in (["start"], ["invite"], ["jobs"]):
        assert two("party", *words, "--folder", "guest") == 4
        assert told in two.err
    assert two("party", "renew", "--folder", "guest") == (4 if "signing" in file else 0)


def test_keys_of_another_party_are_named(two):
    (two.folder / "guest/keys/tls.pem").write_bytes((two.folder / "host/keys/tls.pem").read_bytes())
    assert two("party", "invite", "--folder", "guest") == 4
    assert "keys/tls.pem is not the key of the certificate" in two.err
    (two.folder / "guest/keys/tls.pem").write_bytes((two.folder / "host/keys/tls.pem").read_bytes())
    (two.folder / "guest/cert.pem").write_bytes((two.folder / "host/cert.pem").read_bytes())
    assert two("party", "invite", "--folder", "guest") == 4
    assert "names another signing key" in two.err


@pytest.mark.parametrize("name", ["data", "jobs", "peers", "invitations"])
def test_a_file_in_place_of_a_folder_is_named(two, name):
    (two.folder / "guest" / name).rmdir()
    (two.folder / "guest" / name).touch()
    for words in (["start"], ["peers"]):
        assert two("party", *words, "--folder", "guest") == 4
        assert f"guest/{name} is a file, and must be a folder" in two.err


def test_a_server_runs_once_in_a_folder(two):
    lock = OwnerLock(two.folder / "guest")
    assert two("party", "start", "--folder", "guest") == 7
    assert f"the server of party 9999 runs already in {two.folder}/guest" in two.err
    lock.release()


def test_a_damaged_database_of_jobs_is_told(two):
    (two.folder / "guest/party.db").write_text("no database" * 100)
    assert two("party", "start", "--folder", "guest") == 7
    assert "the database of jobs in" in two.err
    assert "Move the file away: the jobs that it knows are lost then, unless a backup takes its place." in two.err


def test_files_of_jobs_are_checked_before_the_server_is_asked(two):
    (two.folder / "conf.json").write_text(json.dumps(conf_2()))
    (two.folder / "dsl.json").write_text(json.dumps(dsl()))
    assert two("party", "submit", "dsl.json", "--dsl", "conf.json", "--folder", "guest") == 3
    assert "error WEFT208: dsl.json:1:2: components: this is a DSL, and a conf is expected here" in two.err
    assert two("party", "submit", "conf.json", "--dsl", "dsl.json", "--folder", "guest") == 6
    assert "the server of party 9999 does not answer" in two.err


def test_a_file_that_cannot_be_read_or_written_is_no_fault_of_the_server(two):
    client = SiteClient.of(PartySite.open(two.folder / "guest"))
    with pytest.raises(ForbiddenError, match="cannot be read: Is a directory"):
        client.upload(two.folder, {})
    for words in (["export-model", "7", "none/model.zip"], ["deploy", "7", "--conf", "none/conf.json"]):
        assert two("party", *words, "--folder", "guest") == 4
        assert "there is no folder none" in two.err
    (two.folder / "mine").write_text("mine")
    for words in (["export-model", "7", "mine"], ["deploy", "7", "--conf", "mine"]):
        assert two("party", *words, "--folder", "guest") == 7
        assert "mine exists already" in two.err
        assert "Name another file: this command writes it." in two.err
    assert (two.folder / "mine").read_text() == "mine"
    assert two("party", "demo", "--folder", "/proc/x") == 5
    assert "the folder /proc/x/guest cannot be made" in two.err


@pytest.mark.parametrize("library", ["cryptography", "grpc"])
@pytest.mark.parametrize("words", [["init", "x", "--id", "1"], ["invite"], ["join", "x"], ["peers"], ["audit"]])
def test_a_missing_library_is_named_with_its_extra(weft, monkeypatch, library, words):
    monkeypatch.setitem(sys.modules, library, None)
    assert weft("party", *words) == 2
    assert library in weft.err
    assert "weft[federated]" in weft.err


# ------------------------------------------------------------------------------------------------- what others may do


def test_a_policy_is_shown_and_changed(two):
    assert two("party", "policy", "--folder", "guest") == 0
    assert "approval  never: jobs of other parties start without approval" in two.out
    assert "data      granted" in two.out
    assert two("party", "policy", "--approval", "always", "--folder", "guest", "--json") == 0
    assert (document(two)["approval"], document(two)["data"]) == ("always", "granted")
    assert read_policy(Path("guest")).approval == "always"
    assert two("party", "policy", "--data", "all", "--folder", "guest") == 2
    assert "data is 'all'" in two.err
    assert read_policy(Path("guest")).data == "granted"
    assert two("party", "policy", "--ids", "shown", "--folder", "guest") == 0
    assert "ids       shown: a raw intersection may show" in two.out
    assert read_policy(Path("guest")).ids == "shown"


def test_a_policy_that_is_wrong_locks_nobody_out_and_is_mended(two):
    file = two.folder / "guest/policy.json"
    file.write_text('{"approval": "never", "data": "opne", "database": "postgresql+pg8000://ada:pw@db/x"}')
    assert two("party", "policy", "--folder", "guest") == 2
    assert "guest/policy.json: data is 'opne'" in two.err
    assert two("party", "jobs", "--folder", "guest") == 6  # no server runs, and that is told
    assert two("party", "policy", "--queue", "fifo", "--folder", "guest") == 0
    assert "warning: data was wrong in policy.json, and is granted now" in two.err
    assert "approval  never" in two.out
    assert "database  postgresql+pg8000://ada:***@db/x: has the records of jobs" in two.out
    assert read_policy(file.parent).database == "postgresql+pg8000://ada:pw@db/x"
    assert two("party", "policy", "--folder", "guest", "--json") == 0
    assert document(two)["database"] == "postgresql+pg8000://ada:***@db/x"


def test_the_client_calls_where_the_server_answers(two):
    """The policy may have changed since the server was started, or be wrong."""
    site = PartySite.open(two.folder / "guest")
    site.run.mkdir()
    (site.run / "served_at").write_text("127.0.0.9")
    (site.folder / "policy.json").write_text("{")
    assert two("party", "jobs", "--folder", "guest") == 6
    assert f"does not answer at 127.0.0.9:{site.party.http_port}" in two.err


@pytest.mark.parametrize("name", ["", " ", "a\nb", "x" * 101])
def test_a_client_has_a_name(two, name):
    assert two("party", "keys", "--add", name, "--folder", "guest") == 2
    assert "cannot be the name of a client" in two.err


@pytest.mark.parametrize(
    ("number", "code", "told"),
    [(errno.ENOSPC, 8, "the disk of {folder} is full"), (errno.EROFS, 5, "the disk of {folder} is read-only")],
)
@pytest.mark.parametrize("words", [["keys", "--add", "ada"], ["policy", "--approval", "always"], ["invite"]])
def test_a_disk_that_cannot_be_written_is_named(two, monkeypatch, number, code, told, words):
    def fails(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", fails)
    # An invitation that introduces nobody writes nothing.
    assert two("party", *words, "--folder", "guest") == code
    assert told.format(folder=two.folder / "guest") in two.err
    assert "WEFT900" not in two.err


def test_keys_of_clients_are_made_listed_and_removed(two):
    assert two("party", "keys", "--add", "ada", "--folder", "guest", "--json") == 0
    made = document(two)
    assert read_keys(Path("guest"))[made["app_key"]].user == "ada"
    assert two("party", "keys", "--folder", "guest", "--json") == 0
    assert [one["user"] for one in document(two)["keys"]] == [OWNER, "ada"]
    assert made["secret_key"] not in two.out
    assert two("party", "keys", "--remove", OWNER, "--folder", "guest") == 2
    assert two("party", "keys", "--remove", "ada", "--folder", "guest") == 0
    assert [one.user for one in read_keys(Path("guest")).values()] == [OWNER]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "no suite is named"),
        (("none.json",), "none.json"),
        (("s.json", "--timeout", "0"), "the timeout is 0"),
        (("s.json", "--only", "trian"), "the suite has no task 'trian'"),
        (("s.json", "--party", "guest_0"), "--party guest_0 names no party"),
        (("s.json", "--party", "bank_0=guest"), "--party bank_0=guest names no party"),
        (("s.json", "--party", "guest_0=guest", "--folder", "x"), "--folder is for parties that are made"),
    ],
)
def test_suites_that_cannot_run_say_why(two, options, message):
    (two.folder / "s.json").write_text(json.dumps({"tasks": {"train": {"conf": "c.json"}}}))
    assert two("party", "suite", *options) != 0
    assert message in two.err


def test_a_task_whose_files_are_missing_is_told_with_those_that_need_it(two):
    tasks = {"predict": {"conf": "p.json", "deps": "train"}, "train": {"conf": "c.json"}}
    (two.folder / "s.json").write_text(json.dumps({"tasks": tasks}))
    assert two("party", "suite", "s.json", "--party", "guest_0=guest") == 1
    lines = {line.split()[0]: line for line in two.out.splitlines() if line}
    assert "not submitted" in lines["train"]
    assert "train: there is no file" in two.out
    assert "predict: it needs train, which did not succeed" in two.out
