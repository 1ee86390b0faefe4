"""Parties that nobody can connect to, and relays."""

import threading

import grpc
import pytest
from msgspec.structs import replace

from tests.unit.parties.pair import Noting, RealParty, SetClock, parties
from weft.model.errors import (
    PartyError,
    PartyIdentityError,
    PartyMessageError,
    PartyRefusedError,
    PartyUnreachableError,
)
from weft.parties.audit import read_audit
from weft.parties.calling import ANSWER, POLL
from weft.parties.envelopes import pack, sign, unpack
from weft.parties.mailboxes import Mailboxes
from weft.parties.transport import PartyClient, PartyServer
from weft.runtime.clock import RealClock

pytestmark = pytest.mark.slow


@pytest.fixture
def clock() -> SetClock:
    return SetClock(RealClock().wall())


@pytest.fixture
def three(tmp_path, clock):
    """A guest and a host behind a router, and a relay that both can reach."""
    with parties(tmp_path, clock, "9999", "10000", "exchange", outbound=("9999", "10000")) as (guest, host, relay):
        guest.set("10000", via="exchange")
        host.set("9999", via="exchange")
        relay.set("9999", relays=True)
        relay.set("10000", relays=True)
        yield guest, host, relay


class TestPartiesThatPoll:
    def test_are_called_by_those_whom_they_poll(self, three):
        guest, _, relay = three
        with relay.server(), guest.server() as server:
            assert server.port == 0
            for body in (b"1", bytes(100_000), b""):
                assert relay.client.call("9999", "/echo", body) == b"exchange:" + body
                assert guest.client.call("exchange", "/echo", body) == b"9999:" + body

    def test_refuse_as_others_do(self, three):
        guest, _, relay = three

        def fails(peer, body):
            raise PartyRefusedError("not granted", party="9999", hint="Ask.")

        with relay.server(), guest.server({"/fails": fails}):
            with pytest.raises(PartyRefusedError, match="not granted") as caught:
                relay.client.call("9999", "/fails", b"")
            assert (caught.value.party, caught.value.hint) == ("9999", "Ask.")
            with pytest.raises(PartyMessageError, match="does not have"):
                relay.client.call("9999", "/other", b"")
        assert len(guest.refusals()) == 2

    def test_answer_several_messages_at_a_time(self, three):
        guest, _, relay = three
        both, results = threading.Barrier(2, timeout=180), []

        def meets(peer, body):
            both.wait()
            return body

        with relay.server(), guest.server({"/meets": meets}):
            calls = [
                threading.Thread(target=lambda: results.append(relay.client.call("9999", "/meets", b"x")))
                for _ in range(2)
            ]
            for call in calls:
                call.start()
            for call in calls:
                call.join()
        assert results == [b"x", b"x"]

    def test_find_a_server_that_was_started_again(self, three):
        guest, _, relay = three
        with guest.server():
            for _ in range(2):
                with relay.server():
                    assert relay.client.call("9999", "/echo", b"x") == b"exchange:x"

    def test_are_out_of_reach_without_a_poll(self, three):
        _, _, relay = three
        with relay.server(), pytest.raises(PartyUnreachableError, match="has not asked"):
            relay.client.call("9999", "/echo", b"x", 0.01)


class TestRelays:
    def test_forward_between_parties_that_poll(self, three):
        guest, host, relay = three
        with relay.server(), guest.server(), host.server():
            assert guest.client.call("10000", "/echo", b"x") == b"9999:x"
            assert host.client.call("9999", "/echo", b"y") == b"10000:y"
        forwarded = [one for one in read_audit(relay.site.audit) if "forwarded" in one.reason]
        assert [(one.peer, one.reason) for one in forwarded] == [
            ("9999", "forwarded to party 10000"),
            ("10000", "forwarded to party 9999"),
        ]
        assert [one.peer for one in read_audit(host.site.audit) if one.path] == ["9999"]

    def test_forward_errors(self, three):
        guest, host, relay = three

        def fails(peer, body):
            raise PartyRefusedError("not granted", party="10000")

        with relay.server(), host.server({"/fails": fails}):
            with pytest.raises(PartyRefusedError, match="not granted") as caught:
                guest.client.call("10000", "/fails", b"")
            assert caught.value.party == "10000"
            host.peers.remove("9999")
            with pytest.raises(PartyIdentityError, match="in the name of party 9999"):
                guest.client.call("10000", "/fails", b"")

    def test_serve_only_those_that_their_files_name(self, three):
        guest, host, relay = three
        relay.set("10000", relays=False)
        with relay.server(), host.server(), pytest.raises(PartyRefusedError, match="does not forward") as caught:
            guest.client.call("10000", "/echo", b"x")
        assert caught.value.party == "exchange"
        assert "it has joined it without --relay" in caught.value.message
        assert caught.value.hint == "At party exchange: weft party join TEXT_OF_PARTY_10000 --relay"
        assert len(relay.refusals()) == 1

    def test_are_named_if_they_do_not_answer(self, three):
        guest, _, _ = three
        with pytest.raises(PartyUnreachableError, match="10000 is reached through party exchange, and party exch"):
            guest.client.call("10000", "/echo", b"x", 2)

    def test_are_believed_only_for_parties_that_name_them(self, three):
        guest, host, relay = three
        host.set("9999", via="")
        told = pytest.raises(PartyIdentityError, match="in the name of party 9999")
        with relay.server(), host.server(), told as caught:
            guest.client.call("10000", "/echo", b"x")
        assert "join party 9999 at party 10000 with --via exchange" in caught.value.hint

    def test_cannot_read_what_they_forward(self, three):
        guest, host, relay = three
        passed = []

        class Reading(PartyServer):
            def _forwarded(self, client, envelope, data, carrier, timeout_s):
                answer = super()._forwarded(client, envelope, data, carrier, timeout_s)
                passed.extend([data, answer])
                return answer

        def fails(peer, body):
            raise PartyRefusedError("secret reason")

        reading = Reading(relay.site, relay.peers, {}, relay.clock, relay.audit, client=relay.client, threads=2)
        with reading, host.server({"/echo": lambda peer, body: body, "/fails": fails}):
            assert guest.client.call("10000", "/echo", b"secret words") == b"secret words"
            with pytest.raises(PartyRefusedError, match="secret reason"):
                guest.client.call("10000", "/fails", b"secret words")
        assert len(passed) == 4
        assert not [data for data in passed if b"secret" in data]

    def test_cannot_ask_in_their_own_name(self, three):
        guest, host, relay = three
        noting = Noting()

        class Signing(PartyServer):
            def _forwarded(self, client, envelope, data, carrier, timeout_s):
                own = sign(replace(envelope, sender="exchange"), relay.signer)
                return client.deliver(self._peers.find(envelope.to), pack(own), timeout_s)

        signing = Signing(relay.site, relay.peers, {}, relay.clock, relay.audit, client=relay.client, threads=2)
        with signing, host.server({"/echo": noting}), pytest.raises(PartyError):
            guest.client.call("10000", "/echo", b"x")
        assert noting.called == []
        assert "not encrypted" in host.refusals()[0]

    @pytest.mark.parametrize("change", [{"body": b"other"}, {"path": "/other"}, {"sender": "exchange"}])
    def test_cannot_change_a_message(self, three, change):
        guest, host, relay = three
        noting = Noting()

        class Changing(PartyServer):
            def _forwarded(self, client, envelope, data, carrier, timeout_s):
                return super()._forwarded(client, envelope, pack(replace(envelope, **change)), carrier, timeout_s)

        lying = Changing(relay.site, relay.peers, {}, relay.clock, relay.audit, client=relay.client, threads=2)
        server = host.server({"/echo": noting})
        with lying, server, pytest.raises(PartyIdentityError, match="signature"):
            guest.client.call("10000", "/echo", b"x")
        assert noting.called == []

    @pytest.mark.parametrize("signed", [False, True])
    @pytest.mark.parametrize("change", [{"body": b"other"}, {"outcome": "error"}, {"sender": "exchange"}])
    def test_cannot_change_an_answer(self, three, change, signed):
        guest, host, relay = three

        class Changing(PartyServer):
            def _forwarded(self, *args):
                answer = replace(unpack(super()._forwarded(*args), "10000"), **change)
                return pack(sign(answer, relay.signer) if signed else answer)

        lying = Changing(relay.site, relay.peers, {}, relay.clock, relay.audit, client=relay.client, threads=2)
        with lying, host.server(), pytest.raises(PartyIdentityError):
            guest.client.call("10000", "/echo", b"x")

    def test_cannot_repeat_a_message(self, three):
        guest, host, relay = three
        noting = Noting()

        class Twice(PartyServer):
            def _forwarded(self, client, envelope, data, carrier, timeout_s):
                super()._forwarded(client, envelope, data, carrier, timeout_s)
                return client.deliver(self._peers.find(envelope.to), data, timeout_s)

        lying = Twice(relay.site, relay.peers, {}, relay.clock, relay.audit, client=relay.client, threads=2)
        server = host.server({"/echo": noting})
        with lying, server, pytest.raises(PartyIdentityError, match="came before"):
            guest.client.call("10000", "/echo", b"x")
        assert noting.called == [b"x"]

    def test_forward_to_a_party_with_an_address(self, tmp_path, clock):
        with parties(tmp_path, clock, "1", "2", "relay") as (one, two, relay):
            one.set("2", via="relay", address="")
            two.set("1", via="relay")
            relay.set("2", relays=True)
            with two.server(), relay.server():
                assert one.client.call("2", "/echo", b"x") == b"1:x"

    def test_do_not_forward_for_others_than_the_sender(self, three):
        """A relay before a relay would hide who sent it."""
        guest, host, relay = three
        data = capture(guest, "10000")
        with relay.server(), pytest.raises(PartyIdentityError, match="in the name of party 9999"):
            host.client.deliver(host.peers.find("exchange"), data, 20)


class Keeping(PartyClient):
    """Keeps a message instead of sending it."""

    kept = b""

    def deliver(self, peer, data, timeout_s):
        self.kept = data
        raise PartyUnreachableError("kept")


def capture(party: RealParty, to: str) -> bytes:
    """Return the bytes of a message that a party sends."""
    with Keeping(party.site, party.peers, party.clock) as client:
        with pytest.raises(PartyUnreachableError, match="kept"):
            client.call(to, "/echo", b"x")
        return client.kept


class TestMailboxes:
    def test_a_poll_that_has_ended_takes_no_message(self):
        boxes = Mailboxes()
        assert boxes.take("1", 20, lambda: False) == b""
        with pytest.raises(PartyUnreachableError):
            boxes.deliver("1", b"x", 0.01)
        assert boxes.take("1", 0, lambda: True) == b""  # who waited has gone

    def test_only_the_party_that_took_a_message_answers_it(self, three):
        guest, host, relay = three
        with relay.server():
            asked = threading.Thread(target=ignoring, args=(relay.client.call, "9999", "/echo", b"x"))
            asked.start()
            data = guest.client.exchange(guest.peers.find("exchange"), POLL, b"", 30)
            with pytest.raises(PartyError, match="nobody waits"):
                host.client.exchange(host.peers.find("exchange"), ANSWER, data[:16] + b"\0evil", 30)
            guest.client.exchange(guest.peers.find("exchange"), ANSWER, data[:16] + b"\0bytes", 30)
            asked.join()
            for wrong in (b"", b"\0" * 40, data[:16] + b"\0again"):
                with pytest.raises(PartyError, match="nobody waits"):
                    guest.client.exchange(guest.peers.find("exchange"), ANSWER, wrong, 30)


def ignoring(call, *args) -> None:
    with pytest.raises((PartyError, grpc.RpcError)):
        call(*args)
