from base64 import urlsafe_b64decode, urlsafe_b64encode

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.unit.parties.pair import NOW, SetClock
from weft.model.errors import ConflictError, PartyIdentityError, UsageError, WeftError
from weft.parties.identity import Signer, make_certificate, read_certificate
from weft.parties.invitations import (
    Invitation,
    accept_introduction,
    invite,
    join,
    open_certificates,
    read_invitation,
)
from weft.parties.peers import Peers
from weft.parties.site import PartySite

DAY = 86400.0


@pytest.fixture
def guest(tmp_path) -> PartySite:
    return PartySite.create(tmp_path / "guest", "9999", name="guest", clock=SetClock())


@pytest.fixture
def host(tmp_path) -> PartySite:
    return PartySite.create(tmp_path / "host", "10000", name="host", clock=SetClock())


def opened(text: str) -> Invitation:
    return msgspec.msgpack.decode(urlsafe_b64decode(text + "=" * (-len(text) % 4)), type=Invitation)


def text_of(invitation: Invitation) -> str:
    return urlsafe_b64encode(msgspec.msgpack.encode(invitation)).decode().rstrip("=")


def signed_again(invitation: Invitation, site: PartySite) -> str:
    return text_of(replace(invitation, signature=Signer(site.signing_key).sign(invitation.signed_bytes())))


class TestJoining:
    def test_makes_a_party_known(self, guest, host):
        peer = join(guest, invite(host, NOW), NOW)
        assert (peer.id, peer.name, peer.address) == ("10000", "host", host.address)
        assert peer.fingerprint == read_certificate(host.certificate).fingerprint
        assert peer.signing_key == Signer(host.signing_key).public
        assert list(Peers(guest)) == [peer]

    def test_takes_a_text_with_line_breaks_in_it(self, guest, host):
        text = invite(host, NOW)
        assert join(guest, f" {text[:100]}\n{text[100:]}\n", NOW).id == "10000"

    def test_again_changes_the_address_and_no_choice_of_the_user(self, guest, host):
        first = join(guest, invite(host, NOW), NOW)
        Peers(guest).put(replace(first, roles=("host",), via="1", relays=True, address="elsewhere:1"))
        again = join(guest, invite(host, NOW), NOW + 1)
        assert (again.roles, again.via, again.relays, again.address) == (("host",), "1", True, host.address)

    def test_private_keys_are_in_no_invitation(self, host):
        data = urlsafe_b64decode(invite(host, NOW) + "===")
        for key in (host.tls_key, host.signing_key):
            assert key.splitlines()[1] not in data

    def test_itself_is_refused(self, guest):
        with pytest.raises(UsageError, match="itself"):
            join(guest, invite(guest, NOW), NOW)

    def test_new_keys_need_consent(self, guest, host):
        old = join(guest, invite(host, NOW), NOW)
        host.renew(SetClock(NOW + DAY))
        text = invite(host, NOW + DAY)
        with pytest.raises(ConflictError, match=old.fingerprint[:16]):
            join(guest, text, NOW + DAY)
        assert Peers(guest).find("10000") == old
        assert join(guest, text, NOW + DAY, replace=True).fingerprint != old.fingerprint

    def test_a_damaged_file_of_the_party_needs_consent(self, guest, host):
        (guest.peers / "10000.json").write_text("{")
        with pytest.raises(ConflictError, match="damaged"):
            join(guest, invite(host, NOW), NOW)
        assert join(guest, invite(host, NOW), NOW, replace=True).id == "10000"


class TestRefusals:
    @pytest.mark.parametrize(("after", "what"), [(7 * DAY, "expired"), (-600.0, "future")])
    def test_outside_of_its_days(self, guest, host, after, what):
        text = invite(host, NOW)
        with pytest.raises(PartyIdentityError, match=what):
            join(guest, text, NOW + after)
        join(guest, text, NOW + 7 * DAY - 1)

    @pytest.mark.parametrize("days", [0, -1, 366, float("nan")])
    def test_days_that_are_none(self, host, days):
        with pytest.raises(UsageError, match="days"):
            invite(host, NOW, days=days)

    @pytest.mark.parametrize("change", [
        {"address": "evil:1"}, {"name": "evil"}, {"expires": NOW + 999 * DAY}, {"created": NOW - 1}, {"signature": b""},
        {"entry_key": "x"},
    ])  # fmt: skip
    def test_changed_fields(self, guest, host, change):
        with pytest.raises(PartyIdentityError, match="signature"):
            join(guest, text_of(replace(opened(invite(host, NOW)), **change)), NOW)

    def test_an_id_that_the_certificate_does_not_name(self, guest, host):
        with pytest.raises(PartyIdentityError, match="names 10000"):
            join(guest, signed_again(replace(opened(invite(host, NOW)), id="1"), host), NOW)

    def test_a_signing_key_that_the_certificate_does_not_name(self, guest, host, tmp_path):
        """Otherwise the fingerprint, which people compare, would not stand for that key."""
        other = PartySite.create(tmp_path / "other", "1", clock=SetClock())
        forged = replace(opened(invite(host, NOW)), signing_key=Signer(other.signing_key).public)
        with pytest.raises(PartyIdentityError, match="signature"):
            join(guest, signed_again(forged, other), NOW)

    def test_a_certificate_with_the_name_of_another(self, guest, host, tmp_path):
        """TLS would look up the wrong one of two roots and refuse the honest party."""
        join(guest, invite(host, NOW), NOW)
        evil = PartySite.create(tmp_path / "evil", "666", clock=SetClock())
        name = _common_name(host.certificate)
        _, certificate = make_certificate("666", "", NOW, Signer(evil.signing_key).public, common_name=name)
        forged = replace(opened(invite(evil, NOW)), certificate=certificate.decode())
        with pytest.raises(PartyIdentityError, match="name of that of another party"):
            join(guest, signed_again(forged, evil), NOW)

    @pytest.mark.parametrize("address", ["unix:/run/x.sock", "dns:///host:1", "host", "host:99999"])
    def test_an_address_that_is_none(self, guest, host, address):
        with pytest.raises(UsageError, match="HOST:PORT"):
            join(guest, signed_again(replace(opened(invite(host, NOW)), address=address), host), NOW)

    def test_a_certificate_with_more_around_it(self, guest, host):
        invitation = opened(invite(host, NOW))
        forged = replace(invitation, certificate="words\n" + invitation.certificate)
        with pytest.raises(PartyIdentityError, match="self-signed"):
            join(guest, signed_again(forged, host), NOW)

    @given(text=st.text() | st.binary().map(lambda data: urlsafe_b64encode(data).decode()))
    def test_any_other_text(self, text):
        with pytest.raises(UsageError, match="no invitation"):
            read_invitation(text, NOW)

    @given(data=st.data())
    def test_any_changed_character(self, data, tmp_path_factory):
        text = _shared(tmp_path_factory)
        at = data.draw(st.integers(0, len(text) - 2))  # the last one has bits of no meaning
        other = data.draw(st.sampled_from("ABCxyz019-_").filter(lambda c: c != text[at]))
        with pytest.raises(WeftError):
            read_invitation(text[:at] + other + text[at + 1 :], NOW)


class TestIntroductions:
    def fingerprint(self, text: str) -> str:
        return read_certificate(opened(text).entry_certificate.encode()).fingerprint

    def test_one_text_joins_one_party_once(self, guest, host, tmp_path):
        text, peers = invite(host, NOW, introduces=True), Peers(host)
        assert len(open_certificates(host, NOW)) == 1
        peer = accept_introduction(host, peers, self.fingerprint(text), invite(guest, NOW), NOW)
        assert peers.find("9999") == peer
        assert open_certificates(host, NOW) == []
        third = PartySite.create(tmp_path / "third", "3", clock=SetClock())
        with pytest.raises(PartyIdentityError, match="was used"):
            accept_introduction(host, peers, self.fingerprint(text), invite(third, NOW), NOW)

    def test_an_expired_one_is_closed_and_removed_by_the_next(self, guest, host):
        text = invite(host, NOW, introduces=True)
        late = NOW + 8 * DAY
        assert open_certificates(host, late) == []
        with pytest.raises(PartyIdentityError, match="expired"):
            accept_introduction(host, Peers(host), self.fingerprint(text), invite(guest, late), late)
        invite(host, late, introduces=True)
        assert len(list(host.invitations.iterdir())) == 1

    def test_it_never_replaces_a_known_party(self, guest, host):
        join(host, invite(guest, NOW), NOW)
        guest.renew(SetClock(NOW + DAY))
        text = invite(host, NOW, introduces=True)
        with pytest.raises(ConflictError):
            accept_introduction(host, Peers(host), self.fingerprint(text), invite(guest, NOW + DAY), NOW + DAY)
        assert len(open_certificates(host, NOW)) == 1  # a mistake does not use it up

    @pytest.mark.parametrize("fingerprint", ["", "../peers/9999", "0" * 64])
    def test_no_other_certificate_introduces(self, guest, host, fingerprint):
        invite(host, NOW, introduces=True)
        with pytest.raises(PartyIdentityError):
            accept_introduction(host, Peers(host), fingerprint, invite(guest, NOW), NOW)


def _common_name(pem: bytes) -> str:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    (name,) = x509.load_pem_x509_certificate(pem).subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(name.value)


_TEXTS: list[str] = []


def _shared(factory) -> str:
    if not _TEXTS:
        site = PartySite.create(factory.mktemp("shared") / "p", "5", clock=SetClock())
        _TEXTS.append(invite(site, NOW))
    return _TEXTS[0]
