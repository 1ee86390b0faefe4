"""What a party lets others do, and who may use its interface for clients."""

import os
import socket

import pytest
from starlette.requests import Request

from weft.model.errors import PartyIdentityError, UsageError
from weft.parties.http.callers import CheckCallers, user_of
from weft.parties.policy import (
    ALWAYS,
    GRANTED,
    OPEN,
    STRICTEST,
    LivePolicy,
    SitePolicy,
    policy_lines,
    read_policy,
    salvaged_policy,
    write_policy,
)
from weft.parties.serving import said_at_start
from weft.parties.site import PartySite


def test_without_a_file_nothing_is_open(tmp_path):
    found = read_policy(tmp_path)
    assert (found.data, found.client_host) == (GRANTED, "127.0.0.1")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"approval": "sometimes"}', "approval is 'sometimes'"),
        ('{"data": "all"}', "data is 'all'"),
        ('{"datum": "open"}', "datum"),
        ("{", "policy.json is wrong"),
        (b"\xff", "policy.json is wrong"),
        ('{"database": "nonsense"}', "policy.json: database is no URL of a PostgreSQL database"),
        ('{"database": "mysql://db/x"}', "policy.json: database is no URL of a PostgreSQL database"),
        ('{"client_host": "no host"}', "policy.json: client_host is 'no host'"),
        ("[]", "policy.json is wrong"),
    ],
)
def test_a_wrong_file_is_named(tmp_path, text, why):
    (tmp_path / "policy.json").write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(UsageError, match=why) as caught:
        read_policy(tmp_path)
    assert caught.value.hint


def test_a_wrong_database_is_not_shown(tmp_path):
    """What is no URL may have the password anywhere."""
    (tmp_path / "policy.json").write_text('{"database": "ada:pw@db/x"}')
    with pytest.raises(UsageError) as caught:
        read_policy(tmp_path)
    assert "pw" not in str(caught.value)
    assert 'Write "postgresql+pg8000://USER:PASSWORD@HOST:5432/NAME"' in caught.value.hint


@pytest.mark.parametrize(
    ("text", "policy", "lost"),
    [
        ('{"approval": "never", "data": "opne"}', SitePolicy(), ("data",)),
        ('{"approval": "sometimes", "data": "open"}', SitePolicy(approval=ALWAYS, data=OPEN), ("approval",)),
        ('{"datum": 1, "queue": "fifo"}', SitePolicy(approval=ALWAYS, queue="fifo"), ("datum",)),
        ('{"queue": "fifo"}', SitePolicy(queue="fifo"), ()),
        ("{", STRICTEST, SitePolicy.__struct_fields__),
        ("[1]", STRICTEST, SitePolicy.__struct_fields__),
    ],
)
def test_a_salvaged_policy_has_what_is_right_and_is_strict_for_the_rest(tmp_path, text, policy, lost):
    (tmp_path / "policy.json").write_text(text)
    assert salvaged_policy(tmp_path) == (policy, lost)


def test_a_server_says_at_its_start_who_reaches_it(tmp_path):
    site = PartySite.create(tmp_path / "guest", "9999")
    told = said_at_start(site, SitePolicy())
    assert told == [
        f"parties reach it at {site.address}",
        f"clients reach it at http://127.0.0.1:{site.party.http_port}/v1",
        "jobs of other parties start without approval; they use tables that are granted to them; "
        "nobody sees ids of rows: a raw intersection runs as ECDH; "
        "jobs wait for cores in order, and small ones may overtake (weft party policy)",
    ]
    outbound = PartySite.create(tmp_path / "host", "10000", host="")
    told = said_at_start(outbound, SitePolicy(client_host="0.0.0.0"))
    assert told[0] == "no party reaches it: it asks for its messages"
    assert told[2].startswith("warning: other machines reach it there, too.")


def test_a_policy_in_words_has_no_password():
    lines = policy_lines(SitePolicy(database="postgresql+pg8000://ada:pw@db/x", client_host="0.0.0.0"))
    assert [line.field for line in lines] == ["approval", "data", "ids", "queue", "database", "clients"]
    assert lines[4].value == "postgresql+pg8000://ada:***@db/x"
    assert "other machines" in lines[5].meaning


def test_a_server_follows_the_file(tmp_path):
    problems = []
    live = LivePolicy(tmp_path, lambda what, error: problems.append(error))
    assert live.now() == SitePolicy()
    write_policy(tmp_path, SitePolicy(approval=ALWAYS, data=OPEN))
    assert live.now() == SitePolicy(approval=ALWAYS, data=OPEN)
    (tmp_path / "policy.json").write_text('{"data": "opne"}')
    assert live.now() is live.now() is STRICTEST
    assert [type(error) for error in problems] == [UsageError]
    (tmp_path / "policy.json").unlink()
    assert live.now() == SitePolicy()


def request_from(client, server, *headers):
    return Request({"type": "http", "client": client, "server": server, "headers": list(headers)})


def unused(*_):
    raise AssertionError("the request has no signature")


def connected(server, user):
    """Connect from another process of a user; return its pid, the server's end, and what lets the process end."""
    "localhost".encode("idna")  # loaded now: the other user may not read the files of Python
    server.settimeout(180)
    go, end = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(end)
            os.setuid(user)
            with socket.socket() as client:
                client.connect(server.getsockname())
                os.read(go, 1)
        finally:
            os._exit(0)
    os.close(go)
    return pid, server.accept()[0], end


@pytest.fixture
def server():
    with socket.create_server(("127.0.0.1", 0)) as found:
        yield found


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")
@pytest.mark.parametrize("user", [65534, 0])
def test_the_kernel_tells_who_has_connected(server, user, tmp_path):
    pid, end, go = connected(server, user)
    try:
        with end:
            assert user_of(end.getpeername(), server.getsockname()) == user
            request = request_from(end.getpeername(), server.getsockname())
            check = CheckCallers(unused)
            if user == 0:
                assert check(request, b"", {}) == ""
            else:
                with pytest.raises(PartyIdentityError, match="no signature"):
                    check(request, b"", {})
    finally:
        os.close(go)
        os.waitpid(pid, 0)


@pytest.mark.skipif(not os.path.exists("/proc/net/tcp"), reason="the kernel does not tell users of connections")
def test_a_closed_connection_belongs_to_nobody(server):
    client = socket.create_connection(server.getsockname())
    end, address = server.accept()
    with end:
        assert user_of(address, server.getsockname()) == os.geteuid()
        client.close()
        assert end.recv(1) == b""
        assert user_of(address, server.getsockname()) is None
    assert user_of(("192.0.2.1", address[1]), server.getsockname()) is None
    assert user_of(("testclient", 1), ("127.0.0.1", 2)) is None


def test_a_signature_is_checked_whoever_sends_it():
    check = CheckCallers(lambda request, body, form: "ada")
    assert check(request_from(("192.0.2.1", 1), ("192.0.2.2", 2), (b"signature", b"x")), b"", {}) == "ada"
