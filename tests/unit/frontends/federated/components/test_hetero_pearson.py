"""HeteroPearson: correlations within and across parties."""

import json

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression

from tests.unit.frontends.federated.components.parts_of import GUEST, HOST, HOST_2, breast, frame, run_against
from weft.frontends.federated.crypto.keys import make_keys
from weft.frontends.federated.wire import decode
from weft.model.errors import PartyMessageError, UsageError
from weft.testing.parts import PartInputs, run_parts

pytestmark = pytest.mark.slow

MATRIX = breast()[0][:120]
ALL = {"column_indexes": -1}


def correlate(frames, *, own=None, models=None, **parameters):
    parameters = parameters or ALL
    given = {
        party: PartInputs(
            {**parameters, **(own or {}).get(party, {})},
            {"data": [rows]},
            {"model": {"p": models[party]}} if models else {},
        )
        for party, rows in frames.items()
    }
    return run_parts("HeteroPearson", given)


def test_correlations_are_those_of_pooled_rows():
    raw = MATRIX * np.linspace(1, 1000, 30) + 50
    frames = {GUEST: frame(raw[:, :14]), HOST: frame(raw[:, 14:29]), HOST_2: frame(raw[:, 29:])}
    ran = correlate(frames)
    truth = np.corrcoef(raw.T)
    guest, host = ran.outputs[GUEST].model, ran.outputs[HOST].model
    assert np.abs(np.array(guest["local_corr"]) - truth[:14, :14]).max() < 1e-9
    assert np.abs(np.array(host["local_corr"]) - truth[14:29, 14:29]).max() < 1e-9
    assert np.abs(np.array(guest["hosts"]["2"]["corr"]) - truth[:14, 14:29]).max() < 1e-6
    assert np.abs(np.array(guest["hosts"]["3"]["corr"]) - truth[:14, 29:]).max() < 1e-6
    assert np.abs(np.array(host["guest"]["corr"]) - truth[14:29, :14]).max() < 1e-6
    assert guest["hosts"]["2"]["features"][:2] == ["host_2_x0", "host_2_x1"]
    assert host["guest"]["features"] == [f"guest_1_x{at}" for at in range(14)]
    assert ran.records[GUEST].summaries["corr"] == guest["hosts"]["2"]["corr"]
    assert json.loads(json.dumps(guest, allow_nan=False)) == guest


def test_only_names_products_and_correlations_travel():
    frames = {GUEST: frame(MATRIX[:30, :2]), HOST: frame(MATRIX[:30, 2:4], first=2)}
    ran = correlate(frames)
    sent = {(one.to.role, one.name): decode(one.data) for one in ran.sent}
    assert set(sent) == {
        ("host", "plan"),
        ("host", "rows"),
        ("host", "key"),
        ("host", "columns"),
        ("host", "correlations"),
        ("guest", "products"),
    }
    columns = sent["host", "columns"]
    assert len(columns) == 1
    assert len(set(columns[0]["cells"])) == 30
    assert sent["guest", "products"]["names"] == ["host_2_x0", "host_2_x1"]


def test_variance_inflation_is_that_of_regressions():
    rows = MATRIX[:, [0, 1, 4, 9]]
    ran = correlate({GUEST: frame(rows)})
    for at, found in enumerate(ran.outputs[GUEST].model["local_vif"]):
        others = np.delete(rows, at, axis=1)
        share = LinearRegression().fit(others, rows[:, at]).score(others, rows[:, at])
        assert found == pytest.approx(1 / (1 - share))
    ran = correlate({GUEST: frame(rows)}, calc_local_vif=False, column_indexes=-1)
    assert "local_vif" not in ran.outputs[GUEST].model


def test_constant_columns_and_combinations_have_no_number():
    rows = np.column_stack([MATRIX[:, 0], MATRIX[:, 1], MATRIX[:, 0] - 2 * MATRIX[:, 1], MATRIX[:, 4]])
    rows = np.column_stack([rows, np.full(len(rows), 0.1)])
    ran = correlate({GUEST: frame(rows), HOST: frame(np.column_stack([np.ones(len(rows)), MATRIX[:, 5]]))})
    guest = ran.outputs[GUEST].model
    assert guest["local_vif"][:3] == [None, None, None]
    others = MATRIX[:, :2]
    share = LinearRegression().fit(others, MATRIX[:, 4]).score(others, MATRIX[:, 4])
    assert guest["local_vif"][3] == pytest.approx(1 / (1 - share))
    assert guest["local_vif"][4] is None
    assert guest["local_corr"][4] == [None] * 5
    cross = guest["hosts"]["2"]["corr"]
    assert [row[0] for row in cross] == [None] * 5
    assert cross[4] == [None, None]
    assert cross[0][1] == pytest.approx(np.corrcoef(MATRIX[:, 0], MATRIX[:, 5])[0, 1], abs=1e-6)


def test_chosen_columns_alone_take_part():
    frames = {GUEST: frame(MATRIX[:, :4]), HOST: frame(MATRIX[:, 4:8])}
    ran = correlate(frames, column_indexes=[1], column_names=["x3"], cross_parties=False)
    assert ran.outputs[GUEST].model["features"] == ["x1", "x3"]
    assert ran.outputs[GUEST].model["hosts"] == {}
    assert [one.name for one in ran.sent] == ["plan"]
    assert ran.outputs[GUEST].data[0].features == ("x0", "x1", "x2", "x3")
    models = {party: one.model for party, one in ran.outputs.items()}
    again = correlate(frames, models=models)
    assert again.sent == []
    assert again.outputs[HOST].data[0].features == ("x0", "x1", "x2", "x3")


def test_a_host_alone_needs_no_guest():
    ran = correlate({HOST: frame(MATRIX[:, :3])}, column_indexes=-1, cross_parties=False)
    assert np.abs(np.array(ran.outputs[HOST].model["local_corr"]) - np.corrcoef(MATRIX[:, :3].T)).max() < 1e-9


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"column_indexes": None}, "no column"),
        ({"column_indexes": [5]}, "column_indexes"),
        ({"column_indexes": -1, "column_names": ["x0"]}, "column_names are set"),
        ({"column_indexes": -1, "fixpoint_bit_length": 512}, "fixpoint_bit_length"),
    ],
)
def test_wrong_parameters_are_named(parameters, message):
    with pytest.raises(UsageError, match=message):
        correlate({GUEST: frame(MATRIX[:, :2])}, **parameters)


def test_wrong_rows_are_named():
    rows = MATRIX[:, :2].copy()
    with pytest.raises(UsageError, match="cross_parties differs"):
        correlate({GUEST: frame(rows), HOST: frame(rows)}, own={GUEST: {"cross_parties": False}})
    with pytest.raises(UsageError, match="different numbers of rows"):
        correlate({GUEST: frame(rows), HOST: frame(rows[1:])})
    with pytest.raises(UsageError, match="too few for 2 features of guest 1"):
        correlate({GUEST: frame(rows[:3]), HOST: frame(rows[:3])})
    rows[0, 0] = np.nan
    with pytest.raises(UsageError, match="missing"):
        correlate({GUEST: frame(rows)})
    with pytest.raises(UsageError, match="need two"):
        correlate({GUEST: frame(rows[1:2])})


@pytest.fixture(scope="module")
def keys():
    return make_keys("paillier", 2048)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("plan", {"names": ["a"], "varies": []}, "plan that is malformed"),
        ("plan", 3, "malformed"),
        ("key", {"method": "plain"}, "key"),
        ("columns", [1], "malformed"),
        ("columns", "short", "another number of rows"),
        ("correlations", np.zeros((2, 1)), "another shape"),
        ("correlations", None, "another shape"),
    ],
)
def test_a_host_refuses_messages_that_are_not_possible(keys, name, value, message):
    encrypted = [keys.public.encrypt(np.arange(4)).to_wire()]
    if isinstance(value, str):
        value = [keys.public.encrypt(np.arange(3)).to_wire()]
    right = {
        "plan": {"names": ["a"], "varies": [True]},
        "rows": 4,
        "key": keys.public.to_wire(),
        "columns": encrypted,
        "correlations": np.zeros((1, 1)),
    }
    given = PartInputs(ALL, {"data": [frame(MATRIX[:4, :1])]})
    sent = {(GUEST, one): found for one, found in right.items()}
    assert run_against("HeteroPearson", HOST, given, sent).model["guest"] == {"features": ["a"], "corr": [[0.0]]}
    with pytest.raises(PartyMessageError, match=message):
        run_against("HeteroPearson", HOST, given, sent | {(GUEST, name): value})


@pytest.mark.parametrize("change", [{"varies": []}, {"products": []}, {"names": 1}])
def test_a_guest_refuses_messages_that_are_not_possible(change):
    given = PartInputs(ALL, {"data": [frame(MATRIX[:4, :1])]})
    answer = {"names": ["a"], "varies": [True], "products": [None]} | change
    with pytest.raises(PartyMessageError, match=r"do not fit|malformed"):
        run_against("HeteroPearson", GUEST, given, {(HOST, "products"): answer})
