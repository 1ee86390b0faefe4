import hashlib
import os
from pathlib import Path

import numpy as np
import pytest

from tests.unit.frontends.federated.components.parts_of import GUEST, HOST, HOST_2
from weft.frontends.federated.components import intersection
from weft.frontends.federated.components.frame import PartyFrame
from weft.frontends.federated.crypto.psi import RsaBlinder, power, split
from weft.frontends.federated.wire import decode, encode, integers
from weft.model.errors import PartyMessageError, UsageError
from weft.testing.parts import PartInputs, run_parts

SPU = Path(os.environ.get("WEFT_SPU") or Path(__file__).parents[5] / ".providers" / "spu")
needs_spu = pytest.mark.skipif(not SPU.exists(), reason=f"no SPU in {SPU}: make providers, or WEFT_SPU")


def rows(*names):
    ids = np.array(names, dtype=object)
    return PartyFrame(ids, {"x": np.arange(len(names), dtype=float)})


def intersect(frames, **parameters):
    return run_parts("Intersection", {one: PartInputs(parameters, {"data": [frame]}) for one, frame in frames.items()})


@pytest.mark.parametrize("method", ["ecdh", "dh", "rsa", "raw"])
def test_all_parties_get_the_common_rows_in_the_order_of_the_guest(method):
    ran = intersect({GUEST: rows("e", "a", "d", "b"), HOST: rows("a", "b", "c", "d")}, intersect_method=method)
    guest, host = (ran.outputs[one].data[0] for one in (GUEST, HOST))
    assert guest.ids.tolist() == host.ids.tolist() == ["a", "d", "b"]
    assert guest.columns["x"].tolist() == [1, 2, 3]
    assert host.columns["x"].tolist() == [0, 3, 1]
    assert ran.records[GUEST].summaries["intersect_num"] == 3
    assert ran.records[GUEST].metrics["train", "intersect_rate"] == 0.75


def raw(shows, frames, **parameters):
    asked = {"intersect_method": "raw"} | parameters
    return run_parts(
        "Intersection",
        {one: PartInputs(asked, {"data": [frame]}, shows_ids=one in shows) for one, frame in frames.items()},
    )


@pytest.mark.parametrize(
    ("shows", "parameters", "runs_raw"),
    [
        ([GUEST, HOST], {}, True),
        ([GUEST, HOST], {"raw_params": {"use_hash": True, "hash_method": "sha256", "salt": "s"}}, True),
        ([GUEST, HOST], {"raw_params": {"join_role": "host"}}, False),
        ([GUEST, HOST], {"join_role": "host"}, False),
        ([GUEST], {}, False),
        ([HOST], {}, False),
        ([], {}, False),
    ],
)
def test_raw_runs_between_parties_that_show_ids(shows, parameters, runs_raw):
    frames = {GUEST: rows("e", "a", "d", "b"), HOST: rows("a", "b", "c", "d")}
    ran = raw(shows, frames, **parameters)
    assert ran.outputs[GUEST].data[0].ids.tolist() == ran.outputs[HOST].data[0].ids.tolist() == ["a", "d", "b"]
    assert ("ids" in {one.name for one in ran.sent}) == runs_raw
    for here in (GUEST, HOST):
        assert ("note" in ran.records[here].summaries) == (not runs_raw)
        assert ran.records[here].summaries["method"] == ("raw" if runs_raw else "ecdh")


def test_raw_may_run_with_one_host_and_not_with_another():
    ran = raw([GUEST, HOST_2], {GUEST: rows("a", "b", "c"), HOST: rows("c", "b"), HOST_2: rows("z", "b", "c")})
    assert [ran.outputs[one].data[0].ids.tolist() for one in (GUEST, HOST, HOST_2)] == [["b", "c"]] * 3
    assert [one.source for one in ran.sent if one.name == "ids"] == [HOST_2]
    methods = [ran.records[one].summaries["method"] for one in (GUEST, HOST, HOST_2)]
    assert methods == ["ecdh, raw", "ecdh", "raw"]


def test_rows_of_two_hosts_are_those_that_all_have():
    ran = intersect({GUEST: rows("a", "b", "c"), HOST: rows("c", "b"), HOST_2: rows("z", "a", "c")})
    assert [ran.outputs[one].data[0].ids.tolist() for one in (GUEST, HOST, HOST_2)] == [["c"]] * 3


@pytest.mark.parametrize("method", ["ecdh", "dh", "rsa"])
def test_nothing_may_be_common(method):
    ran = intersect({GUEST: rows("a"), HOST: rows("b")}, intersect_method=method)
    assert len(ran.outputs[GUEST].data[0]) == len(ran.outputs[HOST].data[0]) == 0
    ran = intersect({GUEST: rows(), HOST: rows()}, intersect_method=method)
    assert len(ran.outputs[GUEST].data[0]) == 0


def test_a_host_without_sync_learns_the_number_alone():
    ran = intersect({GUEST: rows("a", "b"), HOST: rows("b")}, sync_intersect_ids=False)
    assert ran.outputs[HOST].data == (None,)
    assert ran.records[HOST].summaries["intersect_num"] == 1
    assert ran.outputs[GUEST].data[0].ids.tolist() == ["b"]
    ran = intersect({GUEST: rows("a", "b"), HOST: rows("b")}, cardinality_only=True)
    assert ran.outputs[GUEST].data == ran.outputs[HOST].data == (None,)


def test_only_ids_may_be_asked_for():
    ran = intersect({GUEST: rows("a", "b"), HOST: rows("b")}, only_output_key=True)
    assert list(ran.outputs[GUEST].data[0].columns) == []


@pytest.mark.parametrize("method", ["ecdh", "dh", "rsa", "raw"])
def test_no_id_crosses_in_a_form_that_can_be_guessed(method):
    names = [f"client-{at}" for at in range(40)]
    ran = intersect({GUEST: rows(*names[:30]), HOST: rows(*names[10:])}, intersect_method=method)
    for name in names:
        known = [name.encode()]
        known += [hashlib.new(one, name.encode()).digest() for one in ("md5", "sha1", "sha256", "sha512")]
        known += [hashlib.new(one, name.encode()).hexdigest().encode() for one in ("md5", "sha1", "sha256")]
        assert not [one for one in ran.sent if any(form in one.data for form in known)]


@pytest.mark.parametrize(
    ("parameters", "message"),
    [({"intersect_method": "magic"}, "intersect_method"), ({"join_method": "left_join"}, "join_method")],
)
def test_wrong_parameters_are_named(parameters, message):
    with pytest.raises(UsageError, match=message):
        intersect({GUEST: rows("a"), HOST: rows("a")}, **parameters)


def test_an_id_in_two_rows_is_refused():
    with pytest.raises(UsageError, match="two rows"):
        intersect({GUEST: rows("a", "a"), HOST: rows("a")})


@pytest.mark.parametrize("method", ["ecdh", "dh", "rsa", "raw"])
def test_the_number_of_common_ids_may_be_asked_for_alone(method):
    names = [f"client-{at}" for at in range(60)]
    frames = {GUEST: rows(*names), HOST: rows(*names[:30])}
    ran = intersect(frames, intersect_method=method, cardinality_only=True)
    assert ran.records[GUEST].summaries["intersect_num"] == 30
    assert not [one for one in ran.sent if one.name in ("rows", "signed")]
    assert ran.outputs[GUEST].data == (None,)


def test_the_order_of_what_is_counted_tells_nothing(monkeypatch):
    monkeypatch.setattr(intersection, "power", lambda method: Clear())
    names = [f"client-{at:09}" for at in range(40)]
    ran = intersect({GUEST: rows(*names), HOST: rows(*names[:20])}, cardinality_only=True)
    for name, source, own in (("points", HOST, names[:20]), ("raise", GUEST, names), ("raised", HOST, names)):
        (wire,) = [decode(one.data) for one in ran.sent if (one.name, one.source) == (name, source)]
        found = [one.decode() for one in split(wire if name == "points" else wire[0], 16, "")]
        assert sorted(found) == own
        assert found != own
    assert ran.records[GUEST].summaries["intersect_num"] == 20


class Clear:
    """A power that hides nothing, so that a test sees the order."""

    def hashed(self, ids):
        return [one.encode() for one in ids]

    def again(self, wire, party):
        return split(wire, 16, party)

    def pack(self, points):
        return b"".join(points)

    read = again


@pytest.mark.parametrize("method", ["ecdh", "dh"])
def test_common_ids_of_three_parties_are_counted(method):
    frames = {GUEST: rows("a", "b", "c"), HOST: rows("c", "b", "z"), HOST_2: rows("z", "a", "c", "y")}
    ran = intersect(frames, intersect_method=method, cardinality_only=True)
    assert [ran.records[one].summaries["intersect_num"] for one in frames] == [1, 1, 1]
    assert [ran.outputs[one].data for one in frames] == [(None,)] * 3
    assert not [one for one in ran.sent if one.name in ("rows", "tags")]


def test_raw_has_the_checks_of_other_methods():
    with pytest.raises(UsageError, match="join_method"):
        intersect({GUEST: rows("a"), HOST: rows("a")}, intersect_method="raw", join_method="left_join")


@pytest.mark.parametrize("wire", [None, [], b"x", b"\0" * 32, "text", integers([0]), integers([1]), 3])
@pytest.mark.parametrize("method", ["ecdh", "dh"])
def test_points_of_others_that_are_none_are_refused(method, wire):
    with pytest.raises(PartyMessageError):
        power(method).again(decode(encode(wire)), "9")


@pytest.mark.parametrize("wire", [None, "text", integers([1]), integers([0, 0]), b""])
def test_blinded_hashes_and_signatures_that_are_none_are_refused(wire):
    blinder = RsaBlinder(3 * (2**2047 + 1), "9")  # a modulus with a small factor
    blinder.blinded(["a", "b"])
    blinder._factors[0] = type(blinder._factors[0])(3)
    for one in (wire, integers([5, 5])):
        with pytest.raises(PartyMessageError):
            blinder.tags(decode(encode(one)))
    for modulus in (None, 15, "9", 2**2048, True):
        with pytest.raises(PartyMessageError):
            RsaBlinder(modulus, "9")


@pytest.fixture
def spu(monkeypatch, tmp_path):
    monkeypatch.setenv("WEFT_SPU", str(SPU))
    monkeypatch.chdir(tmp_path)
    traces = set(Path("/tmp").glob("psi_*.trace"))
    yield
    assert list(tmp_path.iterdir()) == []
    assert set(Path("/tmp").glob("psi_*.trace")) <= traces


@needs_spu
@pytest.mark.parametrize("sync", [True, False])
def test_spu_finds_what_our_own_ecdh_finds(spu, sync):
    names = ["e", "a", "d, or so", 'b"', "ß\n", "f"]
    ran = intersect({GUEST: rows(*names), HOST: rows("x", *reversed(names[1:]))}, sync_intersect_ids=sync)
    guest, host = (ran.outputs[one].data[0] for one in (GUEST, HOST))
    assert guest.ids.tolist() == names[1:]
    assert guest.columns["x"].tolist() == [1, 2, 3, 4, 5]
    assert ran.records[GUEST].summaries["engine"].startswith("spu ")
    if sync:
        assert host.ids.tolist() == names[1:]
        assert host.columns["x"].tolist() == [5, 4, 3, 2, 1]
    else:
        assert host is None
        assert ran.records[HOST].summaries["intersect_num"] == 5
    sent = b"".join(one.data for one in ran.sent)
    assert not any(name.encode().hex().encode() in sent for name in names if len(name) > 2)


@needs_spu
def test_a_party_without_rows_uses_our_own_ecdh(spu):
    ran = intersect({GUEST: rows("a"), HOST: rows()})
    assert len(ran.outputs[GUEST].data[0]) == 0
    assert "engine" not in ran.records[GUEST].summaries


def test_an_environment_without_spu_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv("WEFT_SPU", str(tmp_path))
    with pytest.raises(UsageError, match="WEFT_SPU names an environment without spu"):
        intersect({GUEST: rows("a"), HOST: rows("a")})


def test_parties_without_a_common_id_are_told():
    ran = intersect({GUEST: rows("a", "b"), HOST: rows("A", "B")}, intersect_method="ecdh")
    assert ran.records[GUEST].summaries["intersect_num"] == 0
    assert any("no id is common" in line for line in ran.records[GUEST].lines)


@pytest.mark.parametrize(("data", "said"), [({}, "The DSL gives it none"), ({"data": []}, "before it has left none")])
def test_an_intersection_without_rows_says_why(data, said):
    with pytest.raises(UsageError) as caught:
        run_parts("Intersection", {GUEST: PartInputs({}, data), HOST: PartInputs({}, {"data": [rows("a")]})})
    assert said in caught.value.hint
