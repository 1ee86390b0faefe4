import datetime
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import grpc
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.unit.parties.pair import Noting, RealParty, SetClock, echo, parties
from weft.model.errors import (
    CapacityError,
    ConflictError,
    PartyError,
    PartyIdentityError,
    PartyMessageError,
    PartyRefusedError,
    PartyUnreachableError,
)
from weft.parties.audit import AuditLog, read_audit, verify_audit
from weft.parties.calling import CALL, INTRODUCE, introduce
from weft.parties.envelopes import Envelope, new_id, pack, sign, unpack
from weft.parties.identity import TLS_NAME, URN, make_certificate
from weft.parties.invitations import invite, join, read_invitation
from weft.parties.transport import PartyServer
from weft.runtime.clock import RealClock

IDS = ("9999", "10000", "8888")
YEAR_S = 365 * 86400.0


@pytest.fixture
def clock() -> SetClock:
    return SetClock(RealClock().wall())  # TLS checks certificates by the real time


@pytest.fixture
def three(tmp_path, clock):
    with parties(tmp_path, clock, *IDS) as made:
        yield made


class SlowLine:
    """A line to a server at a port: bytes take `delay_s` seconds in each direction. A context manager."""

    def __init__(self, port: int, delay_s: float) -> None:
        self._delay_s = delay_s
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open = [self._listener]
        self._to = port
        self.port = self._listener.getsockname()[1]
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for one in self._open:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        for one in self._open:
            one.close()

    def _accept(self):
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection(("127.0.0.1", self._to))
                self._open += [near, far]
                for pair in ((near, far), (far, near)):
                    self._threads.append(threading.Thread(target=self._carry, args=pair))
                    self._threads[-1].start()

    def _carry(self, source, target):
        with suppress(OSError):
            while data := source.recv(1 << 16):
                time.sleep(self._delay_s)
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)


@pytest.mark.slow
def test_a_connection_may_take_some_round_trips_of_a_slow_line(tmp_path, clock):
    with (
        parties(tmp_path, clock, *IDS[:2]) as (guest, host),
        host.server() as server,
        SlowLine(server.port, 0.3) as line,
    ):
        guest.set(host.site.id, address=f"127.0.0.1:{line.port}")
        assert guest.client.call(host.site.id, "/echo", b"words", 180.0) == b"9999:words"
        guest.client.close()


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    clock = SetClock(RealClock().wall())
    with parties(tmp_path_factory.mktemp("pair"), clock, *IDS[:2]) as (guest, host), host.server():
        yield guest, host


def raw(host: RealParty, data: bytes, key: bytes | None, certificate: bytes | None, method: str = CALL):
    """Send bytes to the server of a party over a new connection with this certificate."""
    credentials = grpc.ssl_channel_credentials(host.site.certificate, key, certificate)
    options = [("grpc.ssl_target_name_override", TLS_NAME), ("grpc.max_send_message_length", -1)]
    with grpc.secure_channel(host.site.address, credentials, options) as channel:
        return channel.unary_unary(method)(data, timeout=180)


def as_party(host: RealParty, party: RealParty, data: bytes, method: str = CALL):
    return raw(host, data, party.site.tls_key, party.site.certificate, method)


def packed(party: RealParty, to: str = "10000", path: str = "/echo", **fields) -> bytes:
    now = party.clock.wall()
    made = Envelope(new_id(now), fields.pop("sender", party.site.id), to, path, now, b"words")
    return pack(replace(sign(made, party.signer), **fields))


def signed_by(party: RealParty, id: str) -> tuple[bytes, bytes]:
    """Return a key and a certificate in the name of party `id`, which another party has signed with its own."""
    issuer = x509.load_pem_x509_certificate(party.site.certificate)
    issuer_key = serialization.load_pem_private_key(party.site.tls_key, None)
    assert isinstance(issuer_key, ec.EllipticCurvePrivateKey)
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.datetime.fromtimestamp(party.clock.wall(), datetime.UTC)
    names = x509.SubjectAlternativeName([x509.UniformResourceIdentifier(URN + id), x509.DNSName(TLS_NAME)])
    leaf = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([]))
        .issuer_name(issuer.subject)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(names, critical=True)
        .sign(issuer_key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    secret = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return secret, leaf.public_bytes(pem)


class TestCalls:
    @pytest.mark.parametrize("body", [b"", b"words", bytes(range(256)) * 4000])
    def test_go_in_both_directions(self, three, body):
        guest, host, _ = three
        with guest.server(), host.server():
            assert guest.client.call("10000", "/echo", body) == b"9999:" + body
            assert host.client.call("9999", "/echo", body) == b"10000:" + body

    def test_are_in_the_audit_log_of_the_receiver(self, three):
        guest, host, _ = three
        with host.server():
            guest.client.call("10000", "/echo", b"x")
            with pytest.raises(PartyMessageError):
                guest.client.call("10000", "/other", b"x")
        accepted, refused = read_audit(host.site.audit)
        assert (accepted.peer, accepted.path, accepted.decision) == ("9999", "/echo", "accepted")
        assert (refused.peer, refused.path, refused.decision) == ("9999", "/other", "refused")
        assert "WEFT602" in refused.reason
        assert verify_audit(host.site.audit) is None

    def test_of_many_threads_are_all_answered(self, pair):
        guest, _ = pair
        with ThreadPoolExecutor(8) as pool:
            found = list(pool.map(lambda at: guest.client.call("10000", "/echo", str(at).encode()), range(100)))
        assert found == [f"9999:{at}".encode() for at in range(100)]

    def test_reach_a_server_that_was_started_again(self, three):
        guest, host, _ = three
        for body in (b"1", b"2", b"3"):
            with host.server():
                assert guest.client.call("10000", "/echo", body) == b"9999:" + body
            with pytest.raises(PartyUnreachableError, match="party 10000 does not answer") as caught:
                guest.client.call("10000", "/echo", body)
            assert caught.value.party == "10000"

    def test_end_at_their_timeout(self, three):
        guest, host, _ = three
        go = threading.Event()

        def slow(peer, body):
            go.wait(180)
            return b""

        with host.server({"/slow": slow}):
            try:
                with pytest.raises(PartyUnreachableError, match="in time"):
                    guest.client.call("10000", "/slow", b"", 0.05)
            finally:
                go.set()

    def test_need_a_known_party_with_an_address(self, three):
        guest, _, _ = three
        with pytest.raises(PartyIdentityError, match="party 1 is not known"):
            guest.client.call("1", "/echo", b"")
        guest.set("10000", address="")
        with pytest.raises(PartyUnreachableError, match="has not asked for its messages"):
            guest.client.call("10000", "/echo", b"", 0.01)

    def test_a_port_is_for_one_server_and_grpc_prints_nothing_of_it(self, three, capfd):
        _, host, _ = three
        with host.server(), pytest.raises(ConflictError, match="cannot listen"):
            host.server().start()
        assert "add_port" not in capfd.readouterr().err


class TestErrorsOfHandlers:
    @pytest.mark.parametrize("error", [
        PartyRefusedError("party 10000 does not grant the table", party="10000", hint="Ask."),
        PartyError("party 8888 failed", party="8888"),
        PartyMessageError("no such job", party="9999"),
    ])  # fmt: skip
    def test_travel_with_their_class_and_party(self, three, error):
        guest, host, _ = three

        def fails(peer, body):
            raise error

        with host.server({"/fails": fails}), pytest.raises(type(error)) as caught:
            guest.client.call("10000", "/fails", b"")
        found = caught.value
        assert (type(found), found.message, found.hint, found.party) == (
            type(error), error.message, error.hint, error.party,
        )  # fmt: skip
        assert len(host.refusals()) == 1

    def test_of_other_kinds_name_the_party_too(self, three):
        guest, host, _ = three

        def fails(peer, body):
            raise CapacityError("the disk is full", hint="Free some.")

        with host.server({"/fails": fails}), pytest.raises(CapacityError, match="party 10000: the disk is full"):
            guest.client.call("10000", "/fails", b"")

    def test_faults_tell_nothing_of_the_inside(self, three):
        guest, host, _ = three

        def fails(peer, body):
            raise KeyError("secret")

        with host.server({"/fails": fails}), pytest.raises(PartyError, match="fault") as caught:
            guest.client.call("10000", "/fails", b"")
        assert "secret" not in str(caught.value)
        assert caught.value.party == "10000"
        assert "secret" not in str(host.refusals())

    def test_faults_before_a_handler_tell_nothing_either(self, three):
        guest, host, _ = three

        class Full(AuditLog):
            def append(self, *args, **fields):
                raise OSError("no space left in /secret")

        full = Full(host.site.audit, "10000", host.clock)
        server = PartyServer(host.site, host.peers, {"/echo": echo}, host.clock, full, threads=2)
        with server, pytest.raises(PartyError, match="party 10000 has a fault") as caught:
            guest.client.call("10000", "/echo", b"")
        assert "secret" not in str(caught.value)

    def test_an_answer_that_is_too_large_is_an_error(self, three):
        guest, host, _ = three
        large = host.server({"/large": lambda peer, body: bytes(1001)}, most_bytes=1000)
        with large, pytest.raises(PartyMessageError, match="1,001 bytes"):
            guest.client.call("10000", "/large", b"")


class TestStrangers:
    """What comes from others than known parties never reaches a handler."""

    @pytest.fixture
    def host(self, three):
        noting = Noting()
        with three[1].server({"/echo": noting}):
            yield three[1]
        assert noting.called == []

    def refused(self, host, *call) -> grpc.RpcError:
        with pytest.raises(grpc.RpcError) as caught:
            raw(host, *call)
        return caught.value

    def test_without_tls(self, three, host):
        with grpc.insecure_channel(host.site.address) as channel, pytest.raises(grpc.RpcError) as caught:
            channel.unary_unary(CALL)(packed(three[0]), timeout=180)
        assert caught.value.code() == grpc.StatusCode.UNAVAILABLE

    def test_without_a_certificate(self, three, host):
        assert self.refused(host, packed(three[0]), None, None).code() == grpc.StatusCode.UNAVAILABLE

    def test_with_a_certificate_that_they_made_themselves(self, three, host, clock):
        """It even has the name and the id of a known party."""
        stranger = make_certificate("9999", "", clock.wall(), three[0].signer.public)
        assert self.refused(host, packed(three[0]), *stranger).code() == grpc.StatusCode.UNAVAILABLE

    @pytest.mark.parametrize("sender", ["9999", "8888"])
    def test_with_a_certificate_that_a_known_party_signed(self, three, host, sender):
        """TLS accepts it, since each pinned certificate is a root."""
        forged = signed_by(three[2], sender)
        error = self.refused(host, packed(three[0]), *forged)
        assert error.code() == grpc.StatusCode.UNAUTHENTICATED
        assert "is not known" in error.details()
        assert any(sender in reason and "WEFT601" in reason for reason in host.refusals())

    def test_with_an_expired_certificate(self, three, host, clock):
        guest = three[0]
        old = make_certificate("9999", "", clock.wall() - 6 * YEAR_S, guest.signer.public)
        fingerprint = read_fingerprint(old[1])
        host.set("9999", certificate=old[1].decode(), fingerprint=fingerprint)
        assert host.peers.find("9999").fingerprint == fingerprint
        assert self.refused(host, packed(guest), *old).code() == grpc.StatusCode.UNAVAILABLE

    def test_whose_certificate_expires_while_they_are_connected(self, three, host, clock):
        clock.at += 6 * YEAR_S
        with pytest.raises(grpc.RpcError) as caught:
            as_party(host, three[0], packed(three[0]))
        assert "expired" in caught.value.details()
        with pytest.raises(PartyIdentityError, match="expired"):
            three[0].client.call("10000", "/echo", b"")

    def test_with_the_certificate_of_an_open_invitation(self, three, host, clock):
        entry = read_invitation(invite(host.site, clock.wall(), introduces=True), clock.wall())
        keys = entry.entry_key.encode(), entry.entry_certificate.encode()
        assert self.refused(host, packed(three[0]), *keys).code() == grpc.StatusCode.UNAUTHENTICATED


def read_fingerprint(pem: bytes) -> str:
    return x509.load_pem_x509_certificate(pem).fingerprint(hashes.SHA256()).hex()


class TestKnownParties:
    """A known party can speak for itself alone."""

    @pytest.fixture
    def host(self, three):
        with three[1].server():
            yield three[1]

    def refused(self, host: RealParty, party: RealParty, data: bytes) -> str:
        before = len(host.refusals())
        with pytest.raises(grpc.RpcError) as caught:
            as_party(host, party, data)
        assert caught.value.code() in (
            grpc.StatusCode.UNAUTHENTICATED,
            grpc.StatusCode.INVALID_ARGUMENT,
            grpc.StatusCode.FAILED_PRECONDITION,
        )
        (reason,) = host.refusals()[before:]
        assert "Traceback" not in caught.value.details()
        return reason

    def test_not_for_another_even_with_a_message_of_it(self, three, host):
        guest, _, other = three
        assert "party 8888 sent a message in the name of party 9999" in self.refused(host, other, packed(guest))
        assert "in the name of party 9999" in self.refused(host, other, packed(other, sender="9999"))
        assert "in the name of party 777" in self.refused(host, other, packed(other, sender="777"))

    def test_not_with_another_signature(self, three, host):
        guest, _, other = three
        forged = sign(unpack(packed(guest), "9999"), other.signer)
        assert "does not have its signature" in self.refused(host, guest, pack(forged))
        assert "does not have its signature" in self.refused(host, guest, packed(guest, body=b"other"))

    def test_not_twice(self, three, host):
        guest, data = three[0], packed(three[0])
        assert unpack(as_party(host, guest, data), "10000").body == b"9999:words"
        assert "came before" in self.refused(host, guest, data)

    @pytest.mark.parametrize("ahead", [-290.0, 0.0, 290.0])
    @pytest.mark.parametrize("later", [0.0, 5.0, 300.0, 500.0])
    def test_not_twice_over_a_restart(self, three, clock, ahead, later):
        """Whatever the clock of the sender says."""
        guest, host, _ = three
        clock.at += ahead
        data = packed(guest)
        clock.at -= ahead
        with host.server():
            as_party(host, guest, data)
        clock.at += later
        with host.server():
            reason = self.refused(host, guest, data)
        assert ("came before" if ahead - 300 <= later <= 300 + ahead else "clock") in reason

    def test_not_too_late(self, three, host, clock):
        data = packed(three[0])
        clock.at += 301
        assert "301 s old" in self.refused(host, three[0], data)

    def test_not_to_another(self, three, host):
        assert "not forward messages to party 8888" in self.refused(host, three[0], packed(three[0], to="8888"))

    def test_not_with_an_answer(self, three, host, clock):
        guest = three[0]
        answer = Envelope("a", "9999", "10000", "/echo", clock.wall(), b"", "b", "answer")
        assert "to no question" in self.refused(host, guest, pack(sign(answer, guest.signer)))

    @pytest.mark.parametrize("path", ["/echo/", "/Echo", "/echo/../echo", "/v1/job/submit", "/weft.parties/Call"])
    def test_not_at_other_paths(self, three, host, path):
        assert "does not have" in self.refused(host, three[0], packed(three[0], path=path))

    @pytest.mark.parametrize("method", ["/weft.parties/Other", "/grpc.health.v1.Health/Check", "/x"])
    def test_not_by_other_methods(self, three, host, method):
        with pytest.raises(grpc.RpcError) as caught:
            as_party(host, three[0], packed(three[0]), method)
        assert caught.value.code() == grpc.StatusCode.UNIMPLEMENTED

    def test_not_by_introductions(self, three, host, clock):
        with pytest.raises(grpc.RpcError) as caught:
            as_party(host, three[0], invite(three[2].site, clock.wall()).encode(), INTRODUCE)
        assert caught.value.code() == grpc.StatusCode.UNAUTHENTICATED

    def test_not_beyond_the_size(self, three, clock):
        guest, host, _ = three
        with host.server(most_bytes=1000):
            for size, code in ((1001, grpc.StatusCode.INVALID_ARGUMENT), (10_000, grpc.StatusCode.RESOURCE_EXHAUSTED)):
                with pytest.raises(grpc.RpcError) as caught:
                    as_party(host, guest, packed(guest, body=bytes(size)))
                assert caught.value.code() == code
            with pytest.raises(PartyMessageError, match="size"):
                guest.client.call("10000", "/echo", bytes(10_000))
            assert guest.client.call("10000", "/echo", bytes(900)) == b"9999:" + bytes(900)

    def test_a_certificate_whose_uri_is_another_is_refused_though_it_is_pinned(self, three, host, clock):
        """The file of a peer can be written by hand."""
        other = three[2]
        key, certificate = make_certificate("9999", "", clock.wall(), other.signer.public)
        host.set("8888", certificate=certificate.decode(), fingerprint=read_fingerprint(certificate))
        with pytest.raises(grpc.RpcError) as caught:
            raw(host, packed(other), key, certificate)
        assert "names 9999" in caught.value.details()


class TestBytes:
    @settings(max_examples=60, deadline=None)
    @given(data=st.binary(max_size=2000))
    def test_any_bytes_are_refused_in_order(self, pair, data):
        guest, _host = pair
        with pytest.raises(PartyMessageError, match="no message"):
            guest.client.deliver(guest.peers.find("10000"), data, 20)

    @settings(max_examples=60, deadline=None)
    @given(at=st.integers(0, 10_000), value=st.integers(1, 255))
    def test_any_changed_byte_of_a_message_is_refused(self, pair, at, value):
        guest, _host = pair
        data = bytearray(packed(guest))
        data[at % len(data)] ^= value
        with pytest.raises((PartyMessageError, PartyIdentityError)):
            guest.client.deliver(guest.peers.find("10000"), bytes(data), 20)

    def test_the_server_goes_on(self, pair):
        assert pair[0].client.call("10000", "/echo", b"x") == b"9999:x"
        assert verify_audit(pair[1].site.audit) is None


class TestChanges:
    """The server is not started again."""

    def test_a_party_that_joins_is_known_at_once(self, tmp_path, clock):
        guest, host = RealParty(tmp_path, "9999", clock), RealParty(tmp_path, "10000", clock)
        guest.knows(host)
        with host.server():
            with pytest.raises(PartyUnreachableError):
                guest.client.call("10000", "/echo", b"x")
            host.knows(guest)
            assert guest.client.call("10000", "/echo", b"x") == b"9999:x"
        guest.close()
        host.close()

    def test_a_party_that_is_removed_is_refused_on_its_open_connection(self, three):
        guest, host, _ = three
        with host.server():
            guest.client.call("10000", "/echo", b"x")
            host.peers.remove("9999")
            with pytest.raises(PartyIdentityError, match="not known to party 10000"):
                guest.client.call("10000", "/echo", b"x")

    def test_a_renewed_certificate_counts_after_it_was_joined(self, three, clock):
        guest, host, _ = three
        with host.server():
            guest.client.call("10000", "/echo", b"x")
            guest.site.renew(clock)
            with pytest.raises(PartyUnreachableError):
                guest.client.call("10000", "/echo", b"x")
            host.knows(guest)
            assert guest.client.call("10000", "/echo", b"x") == b"9999:x"

    def test_a_server_with_another_certificate_is_not_the_party(self, three, clock):
        guest, host, _ = three
        host.site.renew(clock)
        with host.server():
            with pytest.raises(PartyIdentityError, match="is not party 10000"):
                guest.client.call("10000", "/echo", b"x")
            guest.knows(host)
            assert guest.client.call("10000", "/echo", b"x") == b"9999:x"

    def test_an_address_that_leads_to_another_party_is_noticed(self, three):
        guest, _host, other = three
        guest.set("10000", address=other.site.address)
        with other.server(), pytest.raises(PartyIdentityError, match="is not party 10000"):
            guest.client.call("10000", "/echo", b"x")

    def test_a_damaged_file_of_a_peer_keeps_out_that_peer_alone(self, three):
        guest, host, other = three
        with host.server():
            (host.site.peers / "8888.json").write_text("{")
            assert guest.client.call("10000", "/echo", b"x") == b"9999:x"
            with pytest.raises(PartyUnreachableError):
                other.client.call("10000", "/echo", b"x")
            assert [("8888.json" in problem) for problem in host.peers.problems] == [True]


class TestAnswers:
    """A server, or a relay on the way, cannot answer in the name of another or anything else than was asked."""

    @pytest.mark.parametrize("signed", [False, True])
    @pytest.mark.parametrize(
        "change",
        [
            {"body": b"other"},
            {"answers": "other"},
            {"outcome": ""},
            {"sender": "8888"},
            {"path": "/other"},
            {"to": "8888"},
        ],
    )
    def test_are_checked(self, three, change, signed):
        guest, host, _ = three

        class Lying(PartyServer):
            def receive(self, data, carrier, timeout_s=60.0):
                answer = replace(unpack(super().receive(data, carrier), "10000"), **change)
                return pack(sign(answer, host.signer) if signed else answer)

        with Lying(host.site, host.peers, {"/echo": lambda peer, body: body}, host.clock, host.audit, threads=2):
            if signed and "body" in change:  # the party itself may answer what it likes
                assert guest.client.call("10000", "/echo", b"x") == b"other"
                return
            with pytest.raises(PartyIdentityError):
                guest.client.call("10000", "/echo", b"x")


class TestIntroductions:
    def test_one_text_makes_both_known(self, tmp_path, clock):
        guest, host = RealParty(tmp_path, "9999", clock), RealParty(tmp_path, "10000", clock)
        with host.server():
            text = invite(host.site, clock.wall(), introduces=True)
            join(guest.site, text, clock.wall())
            introduce(read_invitation(text, clock.wall()), invite(guest.site, clock.wall()))
            assert guest.client.call("10000", "/echo", b"x") == b"9999:x"
            with pytest.raises(PartyIdentityError, match="10000 does not take this invitation: it was used before"):
                introduce(read_invitation(text, clock.wall()), invite(guest.site, clock.wall()))
        assert next(read_audit(host.site.audit)).peer == "9999"
        with pytest.raises(PartyUnreachableError):  # its server does not run
            introduce(read_invitation(text, clock.wall()), invite(guest.site, clock.wall()))
        guest.close()
        host.close()

    def test_a_wrong_one_is_told_and_can_be_tried_again(self, three, clock):
        guest, host, _ = three
        with host.server():
            text = invite(host.site, clock.wall(), introduces=True)
            opened = read_invitation(text, clock.wall())
            guest.site.renew(clock)
            with pytest.raises(ConflictError, match="10000: party 9999 is known"):
                introduce(opened, invite(guest.site, clock.wall()))
            host.peers.remove("9999")
            introduce(opened, invite(guest.site, clock.wall()))
        assert host.peers.find("9999")
