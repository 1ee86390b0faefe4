import hashlib

import numpy as np
import pytest

from tests.unit.frontends.federated.components.parts_of import GUEST, HOST, HOST_2
from weft.frontends.federated.components.frame import PartyFrame
from weft.model.errors import UsageError
from weft.testing.parts import PartInputs, run_parts


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
