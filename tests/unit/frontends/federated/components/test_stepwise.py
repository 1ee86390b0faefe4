"""Stepwise selection, against a search over all columns by least squares of NumPy."""

import itertools
import math

import numpy as np
import pytest

from tests.unit.frontends.federated.components.parts_of import ARBITER, GUEST, HOST, HOST_2, breast, frame, run_against
from weft.frontends.federated.components.predictions import SCORE
from weft.model.errors import PartyMessageError, UsageError
from weft.testing.parts import PartInputs, run_parts

pytestmark = pytest.mark.slow

USUAL = {
    "penalty": "None",
    "optimizer": "sgd",
    "learning_rate": 0.5,
    "decay": 0,
    "tol": 0,
    "max_iter": 60,
    "encrypt_param": {"method": "plain"},
}
COUNT, CUT = 80, 4  # the guest has the columns before the cut


def rows(seed=2):
    random = np.random.default_rng(seed)
    matrix = random.normal(size=(COUNT, 7))
    return matrix, matrix[:, 1] - matrix[:, 5] + 0.5 * matrix[:, 0] + random.normal(size=COUNT)


def train(module="HeteroLinR", *, data=None, models=None, cut=(CUT, 7), more=None, **steps):
    matrix, y = data or rows()
    parameters = USUAL | {"stepwise_param": {"need_stepwise": True} | steps} | (more or {})
    given, key = {}, "test_data" if models else "train_data"
    for party, begin, end in zip((GUEST, HOST, HOST_2), (0, *cut), cut, strict=False):
        data_of = [frame(matrix[:, begin:end], y if party == GUEST else None, first=begin)]
        given[party] = PartInputs(parameters, {key: data_of}, {"model": {"m": models[party].model}} if models else {})
    given[ARBITER] = PartInputs(parameters, {}, {"model": {"m": {}}} if models else {})
    return run_parts(module, given)


def criterion(matrix, y, columns, price):
    """Return the information criterion of least squares over some columns."""
    own = np.hstack([matrix[:, sorted(columns)], np.ones((len(y), 1))])
    errors = y - own @ np.linalg.lstsq(own, y, rcond=None)[0]
    return price * (len(columns) + 1) + len(y) * math.log((errors**2).mean())


def by_hand(matrix, y, direction, price):
    """Return the columns that a search by single steps keeps."""

    def worth(columns):
        return criterion(matrix, y, columns, price)

    guest, host = set(range(CUT)), set(range(CUT, 7))
    current = guest | host
    if direction == "forward":
        current = min(({one, other} for one, other in itertools.product(guest, host)), key=worth)
    while True:
        options = [current]
        if direction != "forward" and len(current) > 2:
            options += [current - {at} for at in current if len(current & (guest if at in guest else host)) > 1]
        if direction != "backward":
            options += [current | {at} for at in (guest | host) - current]
        best = min(options, key=worth)
        if best == current:
            return current
        current = best


def kept(ran):
    return {int(name[1:]) for party in (GUEST, HOST) for name in ran.outputs[party].model["features"]}


@pytest.mark.parametrize("direction", ["forward", "backward", "both"])
@pytest.mark.parametrize(("score", "price"), [("AIC", 2.0), ("BIC", math.log(COUNT))])
def test_the_columns_are_those_of_a_search_by_hand(direction, score, price):
    matrix, y = rows()
    ran = train(direction=direction, score_name=score)
    wanted = by_hand(matrix, y, direction, price)
    assert kept(ran) == wanted
    steps = ran.records[GUEST].summaries["stepwise"]
    assert steps[-1][score.lower()] == pytest.approx(criterion(matrix, y, wanted, price), abs=0.01)
    assert 1 < len(wanted) < 7


def test_the_model_is_that_of_a_training_with_its_columns():
    matrix, y = rows()
    ran = train(direction="backward")
    columns = sorted(kept(ran))
    own = [at for at in columns if at < CUT]
    given = {
        party: PartInputs(USUAL, {"train_data": [frame(matrix[:, chosen], y if party == GUEST else None)]})
        for party, chosen in ((GUEST, own), (HOST, [at for at in columns if at >= CUT]))
    }
    alone = run_parts("HeteroLinR", given | {ARBITER: PartInputs(USUAL)})
    mine, other = (one.outputs[GUEST].data[0].columns[SCORE] for one in (ran, alone))
    assert mine == pytest.approx(other)
    again = train(models=ran.outputs)
    assert again.outputs[GUEST].data[0].columns[SCORE] == pytest.approx(mine)
    assert ran.records[GUEST].summaries["coef"].keys() == {f"x{at}" for at in own}


def test_a_logistic_regression_drops_noise():
    matrix, y = breast()
    noise = np.random.default_rng(1).normal(size=(len(y), 2))
    matrix = np.hstack([matrix[:, [0, 1]], noise, matrix[:, [7, 20]], noise[:, :1] + 0.1 * noise[:, 1:]])
    ran = train("HeteroLR", data=(matrix, y), direction="backward", score_name="BIC", more={"max_iter": 25})
    assert not kept(ran) & {2, 3, 6}
    assert kept(ran) & {0, 1, 4, 5}
    names = {one.name.partition("/")[0] for one in ran.sent if one.source == HOST and one.to == GUEST}
    assert sum(one.name.startswith("score") for one in ran.sent) == 1  # for the model that is kept alone
    assert names == {"columns", "share", "squares", "score"}


@pytest.mark.parametrize(
    ("steps", "size"),
    [
        ({"direction": "backward", "max_step": 1}, 6),
        ({"direction": "backward", "nvmin": 5, "score_name": "BIC"}, 5),
        ({"direction": "forward", "nvmax": 3}, 3),
        ({"direction": "forward", "max_step": 1}, 2),
    ],
)
def test_bounds_of_the_search(steps, size):
    random = np.random.default_rng(4)
    matrix = random.normal(size=(COUNT, 7))
    y = matrix[:, :5].sum(axis=1) if steps["direction"] == "forward" else matrix[:, 0] + matrix[:, 4]
    assert len(kept(train(data=(matrix, y + random.normal(size=COUNT)), **steps))) == size


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ({"score_name": "cp"}, "AIC or BIC"),
        ({"direction": "sideways"}, "direction"),
        ({"max_step": 0}, "max_step"),
        ({"nvmin": 1}, "nvmin"),
        ({"nvmin": 4, "nvmax": 3}, "nvmax"),
        ({"nvmax": "all"}, "nvmax"),
    ],
)
def test_wrong_parameters_are_named(steps, message):
    with pytest.raises(UsageError, match=message):
        train(**steps)


def test_what_has_no_loss_is_refused():
    matrix, y = rows()
    with pytest.raises(UsageError, match="one host"):
        train(cut=(3, 5, 7))
    with pytest.raises(UsageError, match="need_stepwise"):
        train("HeteroPoisson", data=(matrix, np.abs(y)))
    with pytest.raises(UsageError, match="two classes"):
        train("HeteroLR", data=(matrix, np.arange(COUNT) % 3), more={"max_iter": 1})


@pytest.mark.parametrize(
    "order", [{"number": 0, "columns": [2, 1]}, {"number": 0, "columns": [9]}, {"number": 3, "ends": True}, "all"]
)
def test_a_guest_that_orders_what_there_is_not_is_refused(order):
    matrix, _ = rows()
    given = PartInputs(USUAL | {"stepwise_param": {"need_stepwise": True}}, {"train_data": [frame(matrix[:, 4:])]})
    sent = {(GUEST, "step"): order, (ARBITER, "key"): {"method": "plain"}}
    with pytest.raises(PartyMessageError):
        run_against("HeteroLinR", HOST, given, sent)
