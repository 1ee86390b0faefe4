import numpy as np
import pytest

from tests.unit.frontends.federated.components.parts_of import GUEST, HOST, HOST_2, run_against
from weft.frontends.federated.components.frame import PartyFrame
from weft.frontends.federated.wire import decode
from weft.model.errors import PartyMessageError, UsageError
from weft.testing.parts import PartInputs, run_parts

MODULE = "SecureInformationRetrieval"
USUAL = {
    "security_level": 0.5,
    "oblivious_transfer_protocol": "OT_Hauck",
    "commutative_encryption": "CommutativeEncryptionPohligHellman",
    "non_committing_encryption": "aes",
    "dh_params": {"key_length": 1024},
    "raw_retrieval": False,
    "target_cols": ["x0", "town"],
}


def ids_of(*numbers):
    return np.array([f"client {at:04}" for at in numbers], dtype=object)


def host_rows(count=100):
    columns = {"y": np.arange(count) % 2, "x0": np.arange(count) / 8, "x1": np.full(count, 777.125)}
    columns["town"] = np.array([f"town of {at}" for at in range(count)], dtype=object)
    return PartyFrame(ids_of(*range(count)), columns, label="y")


def retrieve(asked, parameters=USUAL, *, rows=None, host=None):
    guest = PartyFrame(ids_of(*asked), {"own": np.arange(len(asked))})
    given = {GUEST: PartInputs(parameters, {"data": [guest]})}
    given[HOST] = PartInputs(parameters | (host or {}), {"data": [host_rows() if rows is None else rows]})
    return run_parts(MODULE, given)


def test_the_guest_gets_the_values_of_common_rows_in_its_order():
    ran = retrieve([70, 5, 1000, 12, 300])
    found = ran.outputs[GUEST].data[0]
    assert found.ids.tolist() == ids_of(70, 5, 1000, 12, 300).tolist()
    assert found.columns["x0"].tolist() == ["8.75", "0.625", "unretrieved", "1.5", "unretrieved"]
    assert found.columns["town"].tolist()[3] == "town of 12"
    assert found.features == ("x0", "town")
    assert ran.records[GUEST].metrics["train", "coverage"] == 0.6
    assert ran.records[HOST].metrics["train", "coverage"] == 0.03
    assert ran.outputs[HOST].data[0].features == ("x0", "x1", "town")
    assert ran.outputs[GUEST].model["block_num"] == 45


def test_without_columns_the_label_is_retrieved():
    found = retrieve([7, 500, 8], USUAL | {"target_cols": None}).outputs[GUEST].data[0]
    assert found.label == "retrieved_value"
    assert found.y.tolist() == ["1", "unretrieved", "0"]
    assert found.features == ()


@pytest.mark.parametrize(("level", "blocks"), [(0, 1), (0.1, 4), (1, 1000)])
def test_the_level_says_how_many_blocks_there_are(level, blocks):
    ran = retrieve([1, 2], USUAL | {"security_level": level})
    assert ran.outputs[GUEST].model["block_num"] == blocks
    assert len([one for one in ran.sent if one.name == "values"]) == blocks
    assert ran.outputs[GUEST].data[0].columns["town"].tolist() == ["town of 1", "town of 2"]
    raw = retrieve([1, 2], USUAL | {"security_level": level, "raw_retrieval": True})
    assert raw.outputs[GUEST].model["block_num"] == 1


def test_nothing_in_common():
    ran = retrieve([900, 901])
    assert set(ran.outputs[GUEST].data[0].columns["x0"]) == {"unretrieved"}
    assert ran.records[GUEST].metrics["train", "coverage"] == 0


def test_no_id_and_no_value_crosses_in_the_open_and_blocks_look_alike():
    places = []
    for _ in range(12):
        ran = retrieve([3, 4, 5, 6, 900], USUAL | {"security_level": 0.1})
        for one in ran.sent:
            assert b"client" not in one.data
            assert b"town of" not in one.data
            assert b"777.125" not in one.data
        blocks = [decode(one.data) for one in ran.sent if one.name == "block"]
        assert [len(one) for one in blocks] == [4] * 4
        assert all((np.diff(one) > 0).all() for one in blocks)
        places += [tuple(one) for one in blocks]
    assert len(set(places)) == len(places)  # rows have other numbers each time


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"security_level": 1.5}, "security_level is 1.5"),
        ({"security_level": -1}, "security_level is -1"),
        ({"target_cols": ["x0", "x0"]}, "target_cols"),
        ({"target_cols": ["x9"]}, "x9"),
        ({"oblivious_transfer_protocol": "OT"}, "oblivious_transfer_protocol"),
    ],
)
def test_wrong_parameters_are_named(parameters, message):
    with pytest.raises(UsageError, match=message):
        retrieve([1], USUAL | parameters)


def test_the_host_gives_only_what_its_own_file_says():
    with pytest.raises(UsageError, match="target_cols"):
        retrieve([1], host={"target_cols": ["x0"]})
    with pytest.raises(UsageError, match="the number of blocks is 1 at host 2, and 45 at guest 1"):
        retrieve([1], host={"security_level": 0})
    with pytest.raises(UsageError, match="two rows"):
        retrieve([1, 1])
    rows = PartInputs(USUAL, {"data": [host_rows()]})
    with pytest.raises(UsageError, match="one guest and one host"):
        run_parts(MODULE, {GUEST: rows, HOST: rows, HOST_2: rows})


@pytest.mark.parametrize(
    ("block", "choice"),
    [
        ([1, 2], 4),
        (np.array([2, 1]), 4),
        (np.array([1, 1]), 4),
        (np.array([-1, 1]), 4),
        (np.array([1, 100]), 4),
        (np.array([1.0]), 4),
        (np.array([1, 2]), 1),
        (np.array([1, 2]), "4"),
    ],
)
def test_questions_that_are_none(block, choice):
    plan = {"target_cols": ["x0", "town"], "the number of blocks": 1}
    sent = {"plan": plan, "points": bytes([9]) + bytes(31), "block": block, "choice": choice}
    given = PartInputs(USUAL | {"security_level": 0}, {"data": [host_rows()]})
    with pytest.raises(PartyMessageError):
        run_against(MODULE, HOST, given, {(GUEST, name): value for name, value in sent.items()})
