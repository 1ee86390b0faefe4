import os
import stat

import pytest

from tests.unit.parties.pair import NOW, SetClock
from weft.model.errors import (
    ConflictError,
    ForbiddenError,
    NotFoundError,
    PartyIdentityError,
    UnreadableError,
    UsageError,
)
from weft.parties.identity import (
    Signer,
    check_certificate,
    check_profile,
    is_signed,
    make_certificate,
    read_certificate,
)
from weft.parties.site import PartySite, is_address

pytestmark = pytest.mark.slow


@pytest.fixture
def site(tmp_path) -> PartySite:
    return PartySite.create(tmp_path / "guest", "9999", name="guest", cores=3, clock=SetClock())


class TestFolder:
    def test_is_opened_as_it_was_made(self, site):
        assert PartySite.open(site.folder) == site
        assert (site.id, site.party.name, site.party.cores, site.party.created) == ("9999", "guest", 3, NOW)
        assert site.party.party_port != site.party.http_port
        assert site.address == f"127.0.0.1:{site.party.party_port}"

    def test_those_below_a_folder_that_is_none_are_named(self, site):
        with pytest.raises(NotFoundError, match="no folder of a party") as caught:
            PartySite.open(site.folder.parent)
        assert caught.value.hint == f"Name one of those here: --folder {site.folder.name}"

    def test_keys_are_for_this_user_alone_whatever_the_umask(self, tmp_path):
        old = os.umask(0)
        try:
            site = PartySite.create(tmp_path / "host", "10000", clock=SetClock())
        finally:
            os.umask(old)
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in site.folder.rglob("*")}
        assert modes["keys"] == modes["peers"] == modes["invitations"] == 0o700
        assert modes["tls.pem"] == modes["signing.pem"] == modes["cert.pem"] == modes["party.json"] == 0o600
        assert stat.S_IMODE(site.folder.stat().st_mode) == 0o700

    def test_a_second_party_in_it_is_refused_and_keys_stay(self, site):
        key = site.signing_key
        with pytest.raises(ConflictError, match="party already"):
            PartySite.create(site.folder, "1", clock=SetClock())
        assert site.signing_key == key

    def test_other_content_is_refused(self, tmp_path):
        (tmp_path / "notes.txt").write_text("mine")
        with pytest.raises(ConflictError, match="not empty"):
            PartySite.create(tmp_path, "1", clock=SetClock())

    def test_another_folder_is_no_party(self, tmp_path):
        for folder in (tmp_path, tmp_path / "missing"):
            with pytest.raises(NotFoundError, match="no folder of a party"):
                PartySite.open(folder)

    @pytest.mark.parametrize(
        ("host", "listen", "found"),
        [
            ("127.0.0.1", "", "127.0.0.1"),
            ("192.0.2.1", "", "::"),  # of a router before this machine
            ("party.example", "", "::"),
            ("party.example", "127.0.0.1", "127.0.0.1"),
            ("192.0.2.1", "0.0.0.0", "0.0.0.0"),
        ],
    )
    def test_it_listens_where_it_says(self, tmp_path, host, listen, found):
        site = PartySite.create(tmp_path / "a", "1", host=host, listen=listen, clock=SetClock())
        assert (site.listen, PartySite.open(site.folder).listen) == (found, found)

    def test_a_damaged_description_is_named(self, site):
        (site.folder / "party.json").write_text("{}")
        with pytest.raises(UnreadableError, match="is damaged"):
            PartySite.open(site.folder)

    @pytest.mark.parametrize("name", ["tls.pem", "signing.pem"])
    def test_keys_that_others_can_read_are_refused(self, site, name):
        (site.folder / "keys" / name).chmod(0o640)
        with pytest.raises(ForbiddenError, match=name) as caught:
            PartySite.open(site.folder)
        assert "chmod 600" in caught.value.hint

    def test_a_missing_key_is_named(self, site):
        (site.folder / "keys" / "tls.pem").unlink()
        with pytest.raises(NotFoundError, match="is missing"):
            PartySite.open(site.folder)

    @pytest.mark.parametrize("id", ["", "a b", "../x", "a/b", "x" * 65, "ä", "a\n"])
    def test_ids_are_plain(self, tmp_path, id):
        with pytest.raises(UsageError, match="cannot be the id"):
            PartySite.create(tmp_path / "p", id, clock=SetClock())
        assert not (tmp_path / "p").exists()

    @pytest.mark.parametrize(
        "wrong",
        [
            {"party_port": 65536},
            {"host": "unix:/x"},
            {"host": "a b"},
            {"host": "-a"},
            {"host": "fe80::1%eth0"},
            {"http_port": -1},
            {"cores": 0},
            {"name": "a\nb"},
        ],
    )
    def test_numbers_and_names_are_checked(self, tmp_path, wrong):
        with pytest.raises(UsageError):
            PartySite.create(tmp_path / "p", "1", clock=SetClock(), **wrong)
        assert not (tmp_path / "p").exists()


@pytest.mark.parametrize("address", ["localhost:1", "a.b-c.example:65535", "192.0.2.1:80", "[::1]:9370", "x.:1"])
def test_addresses(address):
    assert is_address(address)


@pytest.mark.parametrize(
    "address",
    [
        *(
            "",
            "a",
            ":1",
            "a:",
            "a:0",
            "a:65536",
            "a:01",
            "a:x",
            "a:\u0661",
            "::1:80",
            "[::1]",
            "[a]:1",
            "a b:1",
            "a,b:1",
        ),
        *("unix:/run/x.sock:1", "unix:x:1", "dns://8.8.8.8/a:1", "dns:a:1", "a/b:1", "vsock:1:1", "%2f:1"),
        *("a\n:1", "a:1\n", "a..b:1", "-a:1"),
    ],
)
def test_what_is_no_address(address):
    assert not is_address(address)


def test_an_address_of_ipv6_is_in_brackets(tmp_path):
    site = PartySite.create(tmp_path / "p", "1", host="::1", clock=SetClock())
    assert site.address == f"[::1]:{site.party.party_port}"


class TestCertificate:
    def test_names_the_party_and_its_signing_key(self, site):
        facts = check_certificate(site.certificate, "9999", NOW)
        assert facts.parties == ("9999",)
        assert facts.signing_keys == (Signer(site.signing_key).public.hex(),)
        assert len(facts.fingerprint) == 64
        assert facts.ends - facts.starts == pytest.approx((5 * 365 + 1) * 86400)

    def test_fits_the_profile_which_others_do_not(self, site):
        check_profile(site.certificate, "9999")
        with pytest.raises(PartyIdentityError, match="self-signed"):
            check_profile(b"# note\n" + site.certificate, "9999")

    def test_renewal_keeps_the_signing_key_alone(self, site):
        before, key = read_certificate(site.certificate), site.tls_key
        signing = site.signing_key
        site.renew(SetClock(NOW + 86400))
        after = read_certificate(site.certificate)
        assert after.fingerprint != before.fingerprint
        assert after.signing_keys == before.signing_keys
        assert (site.tls_key != key, site.signing_key == signing) == (True, True)
        assert after.ends == before.ends + 86400
        PartySite.open(site.folder)

    @pytest.mark.parametrize(("after_days", "what"), [(5 * 365 + 1, "expired"), (-2, "not valid before")])
    def test_outside_of_its_validity_it_is_refused(self, site, after_days, what):
        with pytest.raises(PartyIdentityError, match=what) as caught:
            check_certificate(site.certificate, "9999", NOW + after_days * 86400)
        assert caught.value.party == "9999"

    def test_that_of_another_party_is_refused(self, site):
        with pytest.raises(PartyIdentityError, match="names 9999"):
            check_certificate(site.certificate, "10000", NOW)

    def test_of_two_none_has_the_name_of_the_other(self):
        """TLS looks roots up by name, so one could keep the other out."""
        names = [read_certificate(make_certificate("1", "", NOW, b"")[1]).subject for _ in range(2)]
        assert names[0] != names[1]


def test_signatures_hold_for_their_bytes_and_key_alone(site, tmp_path):
    mine = Signer(site.signing_key)
    other = Signer(PartySite.create(tmp_path / "other", "1", clock=SetClock()).signing_key)
    signature = mine.sign(b"words")
    assert is_signed(b"words", signature, mine.public)
    assert not is_signed(b"word", signature, mine.public)
    assert not is_signed(b"words", signature, other.public)
    assert not is_signed(b"words", b"", mine.public)
    assert not is_signed(b"words", signature, b"no key")
    with pytest.raises(UnreadableError):
        Signer(site.tls_key)
