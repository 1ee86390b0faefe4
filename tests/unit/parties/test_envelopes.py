import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.unit.parties.pair import NOW, RealParty, SetClock, parties
from weft.model.errors import PartyIdentityError, PartyMessageError, UnreadableError
from weft.parties.envelopes import Envelope, SeenMessages, new_id, pack, sign, unpack, verify
from weft.parties.sealing import Opener, seal


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    with parties(tmp_path_factory.mktemp("parties"), SetClock(), "9999", "10000") as made:
        yield made


def envelope(party: RealParty, to: str = "10000", **fields) -> Envelope:
    made = Envelope(new_id(NOW), party.site.id, to, "/echo", NOW, b"words")
    return sign(replace(made, **fields), party.signer)


def test_a_signed_message_arrives(two):
    guest, host = two
    sent = unpack(pack(envelope(guest)), "9999")
    assert verify(sent, host.peers, "10000", NOW).id == "9999"
    assert sent.body == b"words"


@pytest.mark.parametrize("change", [
    {"id": "other"}, {"path": "/other"}, {"time": NOW + 1}, {"body": b"word"}, {"body": b""}, {"answers": "x"},
    {"outcome": "answer"}, {"signature": b""}, {"signature": bytes(64)}, {"to": "9998"}, {"sealed": b"x"},
])  # fmt: skip
def test_each_field_is_signed(two, change):
    guest, host = two
    with pytest.raises(PartyIdentityError, match="signature") as caught:
        verify(replace(envelope(guest), **change), host.peers, "10000", NOW)
    assert caught.value.party == "9999"
    assert caught.value.hint


def test_the_key_of_another_party_does_not_count(two):
    guest, host = two
    forged = sign(envelope(guest), host.signer)
    with pytest.raises(PartyIdentityError, match="signature"):
        verify(forged, host.peers, "10000", NOW)


def test_an_unknown_sender_is_refused(two):
    guest, host = two
    with pytest.raises(PartyIdentityError, match="not known"):
        verify(envelope(guest, sender="777"), host.peers, "10000", NOW)


def test_the_receiver_must_be_this_party(two):
    guest, host = two
    with pytest.raises(PartyIdentityError, match="party 77 arrived at party 10000"):
        verify(envelope(guest, to="77"), host.peers, "10000", NOW)


@pytest.mark.parametrize("seconds", [301.0, -301.0, float("nan"), float("inf"), 1e300])
def test_another_time_is_refused(two, seconds):
    guest, host = two
    with pytest.raises(PartyMessageError, match="clock"):
        verify(envelope(guest, time=NOW - seconds), host.peers, "10000", NOW)


def test_the_window_is_a_choice(two):
    guest, host = two
    assert verify(envelope(guest, time=NOW - 3000), host.peers, "10000", NOW, 3600.0)
    with pytest.raises(PartyMessageError):
        verify(envelope(guest, time=NOW - 2), host.peers, "10000", NOW, 1.0)


class TestBytes:
    @given(data=st.binary(max_size=300))
    def test_any_bytes_are_a_message_or_refused(self, data):
        with pytest.raises(PartyMessageError, match="party 9999"):
            unpack(data, "9999")

    @given(
        change=st.fixed_dictionaries(
            {},
            optional={
                name: st.none()
                | st.integers(-(2**63), 2**64 - 1)
                | st.floats()
                | st.text()
                | st.binary()
                | st.lists(st.text())
                for name in (*Envelope.__struct_fields__, "more")
            },
        )
    )
    def test_fields_of_other_types_and_words_are_refused_or_not_signed(self, two, change):
        guest, host = two
        whole = envelope(guest)
        fields = msgspec.structs.asdict(whole) | change
        try:
            found = unpack(msgspec.msgpack.encode(fields), "9999")
        except PartyMessageError:
            return
        if found != whole:
            with pytest.raises((PartyIdentityError, PartyMessageError)):
                verify(found, host.peers, "10000", NOW)

    def test_a_path_and_ids_are_plain(self, two):
        guest, _ = two
        for change in (
            {"path": "echo"},
            {"path": "/e cho"},
            {"path": "/a\n"},
            {"id": ""},
            {"sender": "../x"},
            {"to": "a\n"},
        ):
            with pytest.raises(PartyMessageError):
                unpack(pack(replace(envelope(guest), **change)), "9999")

    def test_deep_nesting_is_refused(self):
        with pytest.raises(PartyMessageError):
            unpack(b"\x81\xa4body" + b"\x91" * 100_000 + b"\xc0", "9999")

    def test_large_bodies_are_refused_on_both_sides(self, two):
        large = envelope(two[0], body=bytes(101))
        with pytest.raises(PartyMessageError, match="101 bytes; 100 are allowed"):
            pack(large, 100)
        with pytest.raises(PartyMessageError, match="101 bytes; 100 are allowed"):
            unpack(pack(large), "9999", 100)


class TestSealing:
    @pytest.fixture
    def sealed(self, two):
        return seal(Envelope("a", "9999", "10000", "/echo", NOW, b"secret words"), two[1].site.certificate)

    def test_only_the_receiver_reads_it(self, two, sealed):
        guest, host = two
        assert b"secret" not in pack(sealed)
        assert Opener(host.site.tls_key).opened(sealed) == b"secret words"
        with pytest.raises(PartyIdentityError, match="not encrypted for the certificate of party 10000"):
            Opener(guest.site.tls_key).opened(sealed)

    @pytest.mark.parametrize("change", [
        {"sender": "8888"}, {"to": "8888"}, {"path": "/other"}, {"id": "b"}, {"answers": "a"}, {"body": b"x" * 30},
        {"body": b""}, {"sealed": b"x"}, {"sealed": b"\x04" + bytes(64)},
    ])  # fmt: skip
    def test_it_is_bound_to_its_message(self, two, sealed, change):
        """Else a relay could send the body in its own name, and read the answer."""
        with pytest.raises(PartyIdentityError):
            Opener(two[1].site.tls_key).opened(replace(sealed, **change))

    def test_equal_bodies_differ(self, two, sealed):
        again = seal(replace(sealed, sealed=b"", body=b"secret words"), two[1].site.certificate)
        assert again.body != sealed.body

    def test_the_largest_body_can_be_sealed(self, two):
        whole = seal(Envelope("a", "9999", "10000", "/echo", NOW, bytes(100)), two[1].site.certificate)
        assert len(unpack(pack(whole, 100), "9999", 100).body) == 116
        more = seal(Envelope("a", "9999", "10000", "/echo", NOW, bytes(101)), two[1].site.certificate)
        with pytest.raises(PartyMessageError):
            pack(more, 100)

    def test_plain_bodies_stay(self, two):
        assert Opener(two[0].site.tls_key).opened(envelope(two[0])) == b"words"
        with pytest.raises(UnreadableError):
            Opener(two[0].site.signing_key)


class TestSeenMessages:
    def made(self, id: str, time: float = NOW, sender: str = "1") -> Envelope:
        return Envelope(id, sender, "2", "/p", time, b"")

    def test_a_message_counts_once(self):
        seen = SeenMessages()
        seen.check(self.made("a"), NOW)
        seen.check(self.made("b"), NOW)
        seen.check(self.made("a", sender="3"), NOW)
        for id in ("a", "b"):
            with pytest.raises(PartyIdentityError, match="came before"):
                seen.check(self.made(id), NOW + 299)

    def test_it_forgets_what_its_time_refuses(self):
        seen = SeenMessages(window_s=10)
        for second in range(1000):
            seen.check(self.made(str(second), NOW + second), NOW + second)
        assert len(seen) <= 12

    def test_a_clock_that_is_set_back_lets_nothing_come_again(self):
        seen = SeenMessages(window_s=10)
        seen.check(self.made("a", NOW), NOW)
        seen.check(self.made("b", NOW + 20), NOW + 20)
        with pytest.raises(PartyIdentityError):
            seen.check(self.made("a", NOW), NOW)

    def test_what_an_earlier_process_accepted_does_not_come_again(self):
        seen = SeenMessages()
        seen.restore("1", "a", NOW, NOW + 10)
        with pytest.raises(PartyIdentityError, match="came before"):
            seen.check(self.made("a"), NOW + 10)
        seen.check(self.made("b"), NOW + 10)

    @given(
        times=st.lists(st.floats(0, 20), min_size=1, max_size=40),
        most=st.integers(1, 10),
        again=st.lists(st.integers(0, 39), max_size=40),
    )
    def test_none_comes_twice_in_bounded_memory(self, times, most, again):
        seen, accepted = SeenMessages(most=most), set()
        messages = [self.made(str(at), NOW + time) for at, time in enumerate(times)]
        for message in [*messages, *(messages[at % len(messages)] for at in again)]:
            try:
                seen.check(message, NOW)
            except PartyIdentityError:
                continue
            assert message.id not in accepted
            accepted.add(message.id)
            assert len(seen) <= most
        assert accepted


def test_ids_are_unique_and_sort_by_time():
    ids = [new_id(NOW + at) for at in range(100)]
    assert sorted(ids) == ids
    assert len({new_id(NOW) for _ in range(1000)}) == 1000
