import numpy as np
import pytest

from tests.unit.frontends.federated.components.parts_of import GUEST, HOST, HOST_2, frame
from weft.frontends.federated.wire import decode
from weft.model.errors import UsageError
from weft.testing.parts import PartInputs, run_parts

MODULE = "FeldmanVerifiableSum"
RANDOM = np.random.default_rng(1)
NUMBERS = {party: RANDOM.normal(scale=1000, size=(6, 3)) for party in (GUEST, HOST, HOST_2)}


def add(parties=(GUEST, HOST, HOST_2), **parameters):
    given = {one: PartInputs(parameters, {"data": [frame(NUMBERS[one])]}) for one in parties}
    return run_parts(MODULE, given)


def test_the_guest_gets_sums_of_all_parties():
    ran = add()
    found = ran.outputs[GUEST].data[0]
    assert found.matrix() == pytest.approx(sum(NUMBERS.values()), abs=2e-6)
    assert found.ids.tolist() == [f"id{at}" for at in range(6)]
    assert ran.outputs[HOST].data[0] is None


def test_columns_digits_and_rows_are_chosen():
    found = add(sum_cols=[0, 2], q_n=0).outputs[GUEST].data[0]
    assert found.features == ("x0", "x2")
    assert found.matrix() == pytest.approx(sum(np.rint(one[:, [0, 2]]) for one in NUMBERS.values()))
    some = PartInputs({}, {"data": [frame(NUMBERS[HOST]).take(np.array([4, 1]))]})
    whole = PartInputs({}, {"data": [frame(NUMBERS[GUEST])]})
    ran = run_parts(MODULE, {GUEST: whole, HOST: some})
    assert ran.outputs[GUEST].data[0].ids.tolist() == ["id1", "id4"]
    assert "one host" in ran.records[GUEST].summaries["notes"][0]


def test_no_number_crosses_in_the_open():
    ran = add()
    whole = {round(one * 10**6) for numbers in NUMBERS.values() for one in numbers.ravel()}
    for one in ran.sent:
        for numbers in NUMBERS.values():
            assert all(column.tobytes() not in one.data for column in numbers.T)
        if one.name in ("share", "sum"):
            values = {value for values in decode(one.data) for value in values}
            assert not values & whole
            assert min(values) > 2**230


@pytest.mark.parametrize(
    ("parameters", "message"),
    [({"q_n": 17}, "q_n is 17"), ({"sum_cols": [7]}, "columns is"), ({"q_n": -1}, "q_n is -1")],
)
def test_wrong_parameters_are_named(parameters, message):
    with pytest.raises(UsageError, match=message):
        add(**parameters)


def test_parties_that_do_not_fit_each_other():
    given = {GUEST: PartInputs({}, {"data": [frame(NUMBERS[GUEST])]})}
    with pytest.raises(UsageError, match="different numbers of columns"):
        run_parts(MODULE, given | {HOST: PartInputs({"sum_cols": [0]}, {"data": [frame(NUMBERS[HOST])]})})
    large = PartInputs({}, {"data": [frame(NUMBERS[HOST] * 1e30)]})
    with pytest.raises(UsageError, match="too large"):
        run_parts(MODULE, given | {HOST: large})
