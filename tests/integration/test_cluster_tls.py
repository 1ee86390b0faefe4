"""Sessions and nodes over TLS: values, and who is refused by whom and why."""

import os
import pickle
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path

import pytest

import weft
from tests.fixtures.certificates import Authority
from tests.forked_nodes import ForkedNodes
from tests.integration.node_tasks import DEADLINE_S, MIB, double, filled, meets, row, summed
from weft import Graph, gather, shuffle
from weft.backends.cluster import Cluster
from weft.backends.node_link import PURPOSE
from weft.model.errors import ForbiddenError, UsageError
from weft.store import handshake, peers
from weft.store.handshake import Credentials
from weft.store.tls import TlsFiles, check_files, check_grpc
from weft.wiring import concrete
from weft.worker.actor_gateway import PortEntrance, TlsEntrance, lend_to_machines, take_back
from weft.worker.actors import GATEWAY


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def stranger(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("stranger"), "stranger")


@pytest.fixture(scope="module")
def files(authority):
    return authority.issue("machine")


def use(monkeypatch, nodes, tls, secret=b""):
    make = lambda at: Cluster(nodes.nodes, secret or nodes.secret, at.store, tls=tls, grace_s=at.grace_s)  # noqa: E731
    monkeypatch.setitem(concrete.BACKENDS, "cluster", make)


@pytest.fixture
def nodes(files):
    with ForkedNodes(2, 1, grace_s=0.5, tls=files) as found:
        yield found


def test_values_pass_between_session_and_nodes(nodes, authority, monkeypatch, tmp_path):
    use(monkeypatch, nodes, authority.issue("laptop"))
    with weft.Session("cluster", memory=4 * MIB) as session:
        graph = Graph("encrypted")
        total = graph.add(summed, gather(graph.map(filled, range(24)))).keep()
        sums = graph.add(summed, shuffle(graph.map(row, range(20))), n=8).keep()
        places = graph.map(meets, range(2), params={"marks": str(tmp_path), "count": 2}).keep()
        results = session.run(graph)
        assert results.value(total) == sum(range(24)) * MIB / 8
        assert results[sums] == [sum(20_000.0 * (100 * x + part) for x in range(20)) for part in range(8)]
        assert len(set(results[places])) == 2


class Kept:
    """A value."""

    def get(self, asked: bytes) -> bytes:
        return asked[::-1]


@pytest.fixture
def machine():
    """Let this process be one of a cluster with the files that it is called with."""
    yield lambda files: peers.open_reader(Credentials(b"secret", files))
    peers.close_reader()


def test_calls_of_actors_pass_by_tls_alone(authority, stranger, files, machine):
    entrance = TlsEntrance(PortEntrance("127.0.0.1"), authority.issue("program"))
    with weft.Session(workers=1) as session, session.actor(Kept) as kept:
        lend_to_machines(kept._address, entrance)
        there = pickle.loads(pickle.dumps(kept))._address._replace(host="other")
        for wrong in (None, stranger.issue("guest")._replace(ca=files.ca), files._replace(ca=stranger.issue("own").ca)):
            machine(wrong)
            assert there.ended() == "its program cannot be reached"
        machine(files)
        seen = bytearray()
        with socket.create_server(("127.0.0.1", 0)) as listener:
            recorder = threading.Thread(target=_record, args=(listener, there.gateway, seen))
            recorder.start()
            by_recorder = weft.ActorHandle(there._replace(gateway=listener.getsockname()[:2]))
            assert by_recorder.get(b"asked").result(DEADLINE_S) == b"deksa"
        del by_recorder
        weft.stop_actor(kept)
        recorder.join(DEADLINE_S)
        assert len(seen) > 500
        assert not any(word in seen for word in (b"asked", b"deksa", b"get", GATEWAY, there.key))
        take_back(kept._address, os.getpid())


def test_nothing_passes_in_plain_text(nodes, files):
    """A reader whose bytes are recorded on their way: they have neither the name of the chunk nor the purpose."""
    seen = bytearray()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        recorder = threading.Thread(target=_record, args=(listener, nodes.nodes[0].address, seen))
        recorder.start()
        reader = peers.PeerReader(Credentials(nodes.secret, files))
        address = listener.getsockname()[:2]
        with closing(reader), pytest.raises(weft.NotFoundError, match="no output of numbers"):
            reader.read(peers.location_of(address, "job", "numbers", 0, 0), 0, 10)
    recorder.join(DEADLINE_S)
    assert len(seen) > 500
    assert b"numbers" not in seen
    assert peers.PURPOSE not in seen


def _record(listener, address, seen):
    near, _ = listener.accept()
    with near, socket.create_connection(address) as far:
        back = threading.Thread(target=_pump, args=(far, near, seen))
        back.start()
        _pump(near, far, seen)
        back.join(DEADLINE_S)


def _pump(source, target, seen):
    with suppress(OSError):
        while data := source.recv(1 << 16):
            seen += data
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)


def connected(nodes, tls, secret=b""):
    credentials = Credentials(secret or nodes.secret, tls)
    handshake.connect(nodes.nodes[0].address, credentials, PURPOSE, timeout_s=DEADLINE_S).close()


def test_the_secret_is_proven_inside_the_channel(nodes, files):
    with pytest.raises((ForbiddenError, ConnectionError)):
        connected(nodes, files, b"another")


def test_a_plain_session_is_told_that_its_nodes_use_tls(nodes, monkeypatch):
    use(monkeypatch, nodes, None)
    with pytest.raises(ForbiddenError, match="nodes of this cluster use TLS, and this process does not") as caught:
        weft.Session("cluster")
    assert "RAY_USE_TLS=1" in caught.value.hint


def test_a_session_with_tls_is_told_that_a_node_has_none(files, monkeypatch):
    with ForkedNodes(1, 1) as plain:
        use(monkeypatch, plain, files)
        host, port = plain.nodes[0].address
        with pytest.raises(ForbiddenError, match=f"this process uses TLS, and the node at {host}:{port} does not"):
            weft.Session("cluster")
        use(monkeypatch, plain, None)
        with weft.Session("cluster") as session:  # the node has lost nothing by it
            graph = Graph("after")
            done = graph.map(double, range(10)).keep()
            assert session.run(graph)[done] == [2 * x for x in range(10)]


def test_a_node_of_another_authority_is_refused(nodes, authority, stranger, monkeypatch):
    own = authority.issue("own")
    use(monkeypatch, nodes, own._replace(ca=stranger.issue("theirs").ca))
    with pytest.raises(ForbiddenError, match=r"certificate of the node at .* cannot be verified by .*stranger.crt"):
        weft.Session("cluster")


@pytest.mark.parametrize("version", ["1.2", "1.3"])
def test_a_session_of_another_authority_is_refused(nodes, stranger, files, version, monkeypatch):
    """In TLS 1.3 the node looks at the certificate of the session when that holds the handshake for done."""
    theirs = stranger.issue(f"laptop-{version}")._replace(ca=files.ca)
    check_files(theirs)
    if version == "1.2":
        import ssl

        from weft.store import tls

        monkeypatch.setattr(tls._contexts(theirs)[0], "maximum_version", ssl.TLSVersion.TLSv1_2)
    with pytest.raises(ForbiddenError, match=r"the node at .* refuses the certificate .*laptop.*: unknown ca"):
        connected(nodes, theirs)


def test_an_expired_certificate_is_named(authority, files):
    late = authority.issue("late", expired=True)
    with ForkedNodes(1, 1, tls=late) as old, pytest.raises(ForbiddenError, match="certificate has expired"):
        connected(old, files)
    refusal = pytest.raises(ForbiddenError, match=r"refuses the certificate .*: .*expired")
    with ForkedNodes(1, 1, tls=files) as fresh, refusal:
        connected(fresh, late)


def test_without_a_certificate_nobody_is_heard(nodes, files):
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.load_verify_locations(files.ca)
    refusal = pytest.raises(ssl.SSLError, match=r"(?i)certificate")
    with socket.create_connection(nodes.nodes[0].address) as sock, refusal, context.wrap_socket(sock) as wrapped:
        wrapped.recv(1)


def test_old_versions_of_tls_are_refused(nodes, files):
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.set_ciphers("DEFAULT:@SECLEVEL=0")
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
    context.check_hostname = False
    context.load_verify_locations(files.ca)
    with socket.create_connection(nodes.nodes[0].address) as sock, pytest.raises(ssl.SSLError, match=r"(?i)version"):
        context.wrap_socket(sock)


def test_a_file_that_cannot_be_used_is_named(authority, files, tmp_path):
    gone, empty = str(tmp_path / "gone.pem"), tmp_path / "empty.pem"
    empty.write_text("nothing\n")
    other = authority.issue("other")
    for wrong, said in (
        (files._replace(cert=gone), f"certificate {gone} cannot be read"),
        (files._replace(key=gone), f"private key {gone} cannot be read"),
        (files._replace(ca=gone), f"certificate of the CA {gone} cannot be read"),
        (files._replace(ca=str(empty)), f"{empty} holds no certificate of a CA"),
        (files._replace(cert=str(empty)), "are no certificate with its private key"),
        (files._replace(key=other.key), "are no certificate with its private key"),
        (files._replace(key=_with_password(tmp_path, files)), "has a password"),
    ):
        with pytest.raises(UsageError) as caught:
            check_files(wrong)
        assert said in str(caught.value)
        assert "format PEM" in caught.value.hint


def _with_password(folder, files):
    from cryptography.hazmat.primitives import serialization

    key = serialization.load_pem_private_key(Path(files.key).read_bytes(), None)
    path = folder / "locked.key"
    secret = serialization.BestAvailableEncryption(b"secret")
    form = serialization.PrivateFormat.PKCS8
    path.write_bytes(key.private_bytes(serialization.Encoding.PEM, form, secret))
    return str(path)


def test_a_node_says_which_file_it_lacks(files, tmp_path):
    told = f'{{"secret": "00", "workers": 1, "tls": ["{files.cert}", "{tmp_path}/gone.key", "{files.ca}"]}}\n'
    said = subprocess.run(
        [sys.executable, "-m", "weft.wiring.node"],
        input=told,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    assert said.returncode != 0
    assert f"{tmp_path}/gone.key cannot be read" in said.stderr


def test_both_directions_are_used_at_one_time(files):
    """One thread sends and another receives, at both ends, without a wait for each other."""
    secret, blocks = b"s", [os.urandom(size) for size in (1, MIB, 3 * MIB + 1, 17, 1 << 18)] * 4
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ends = {}

        def serve():
            sock, _ = listener.accept()
            ends["far"] = handshake.accept(sock, Credentials(secret, files), (PURPOSE,))[1]

        server = threading.Thread(target=serve)
        server.start()
        address = listener.getsockname()[:2]
        ends["near"] = handshake.connect(address, Credentials(secret, files), PURPOSE, timeout_s=DEADLINE_S)
        server.join(DEADLINE_S)
        found = {}

        def send(end):
            for block in blocks:
                end.sendall(block)

        def receive(name):
            found[name] = [bytes(handshake.receive_exactly(ends[name], len(block))) for block in blocks]

        threads = [threading.Thread(target=send, args=(end,)) for end in ends.values()]
        threads += [threading.Thread(target=receive, args=(name,)) for name in ends]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(DEADLINE_S)
        assert found == {"near": blocks, "far": blocks}
        for end in ends.values():
            end.close()


def test_a_server_of_grpc_is_tried_before_grpc_waits_for_it(authority, stranger):
    import grpc

    def served(tls):
        server = grpc.server(ThreadPoolExecutor(1))
        if tls is None:
            return server, server.add_insecure_port("127.0.0.1:0")
        cert, key, ca = [Path(path).read_bytes() for path in tls]
        made = grpc.ssl_server_credentials([(key, cert)], ca, require_client_auth=True)
        return server, server.add_secure_port("127.0.0.1:0", made)

    def tried(server_files, client_files):
        server, port = served(server_files)
        server.start()
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S) as sock:
                check_grpc(sock, client_files, "127.0.0.1", "the server")
        finally:
            server.stop(None)

    here = authority.issue("here", hosts=["127.0.0.1"])
    tried(None, None)
    tried(here, here)
    with pytest.raises(ForbiddenError, match="the server uses TLS, and this process does not"):
        tried(here, None)
    with pytest.raises(ForbiddenError, match="this process uses TLS, and the server does not"):
        tried(None, here)
    with pytest.raises(ForbiddenError, match="certificate of the server cannot be verified"):
        tried(stranger.issue("there", hosts=["127.0.0.1"]), here)
    with pytest.raises(ForbiddenError, match=r"certificate of the server does not name 127[.]0[.]0[.]1") as caught:
        tried(authority.issue("nameless"), here)
    assert "one that names 127.0.0.1" in caught.value.hint
    with pytest.raises(ForbiddenError, match=r"the server refuses the certificate .*guest") as caught:
        tried(here, stranger.issue("guest")._replace(ca=here.ca))
    assert "openssl x509 -noout -issuer -dates" in caught.value.hint


def test_credentials_reach_worker_processes(files):
    credentials = Credentials(b"s", files)
    assert pickle.loads(pickle.dumps(credentials)) == credentials
    assert TlsFiles(*files) == files
