import numpy as np
import pytest
from sklearn.datasets import load_diabetes
from sklearn.linear_model import LinearRegression, PoissonRegressor
from sklearn.metrics import r2_score
from sklearn.preprocessing import StandardScaler

from tests.unit.frontends.federated.components.parts_of import ARBITER, GUEST, HOST, HOST_2, frame
from weft.frontends.federated.components.predictions import SCORE
from weft.model.errors import UsageError
from weft.testing.parts import PartInputs, run_parts

pytestmark = pytest.mark.slow

USUAL = {
    "alpha": 0.0,
    "optimizer": "sgd",
    "learning_rate": 0.15,
    "decay": 0.0,
    "batch_size": -1,
    "max_iter": 200,
    "early_stop": "weight_diff",
    "encrypt_param": {"method": "plain"},
}


def train(module, matrix, y, parameters=USUAL, cut=(4, 10)):
    given = {GUEST: PartInputs(parameters, {"train_data": [frame(matrix[:, : cut[0]], y)]})}
    for host, begin, end in zip((HOST, HOST_2), cut, cut[1:], strict=False):
        given[host] = PartInputs(parameters, {"train_data": [frame(matrix[:, begin:end], first=begin)]})
    return run_parts(module, given | {ARBITER: PartInputs(parameters)})


def diabetes():
    matrix, y = load_diabetes(return_X_y=True)
    return StandardScaler().fit_transform(matrix), (y - y.mean()) / y.std()


@pytest.mark.parametrize("cut", [(4, 10), (4, 7, 10)])
def test_a_regression_is_as_good_as_that_of_all_columns(cut):
    matrix, y = diabetes()
    best = r2_score(y, LinearRegression().fit(matrix, y).predict(matrix))
    values = train("HeteroLinR", matrix, y, cut=cut).outputs[GUEST].data[0].columns[SCORE]
    assert r2_score(y, values) > 0.99 * best


def test_counts_are_predicted_by_a_poisson_regression():
    rng = np.random.default_rng(11)
    matrix = rng.normal(size=(300, 4))
    rate = np.exp(0.3 * matrix[:, 0] - 0.4 * matrix[:, 2] + 0.5)
    y = rng.poisson(rate)
    ran = train("HeteroPoisson", matrix, y, USUAL | {"learning_rate": 0.1}, cut=(2, 4))
    values = ran.outputs[GUEST].data[0].columns[SCORE]
    assert np.corrcoef(values, rate)[0, 1] > 0.97


def test_an_exposure_is_an_offset():
    random = np.random.default_rng(12)
    matrix = random.normal(size=(400, 5))
    exposure = random.uniform(0.5, 4.0, 400)
    y = random.poisson(exposure * np.exp(0.4 * matrix[:, 0] - 0.3 * matrix[:, 3]))
    matrix[:, 1] = exposure
    best = PoissonRegressor(alpha=0).fit(matrix[:, [0, 2, 3, 4]], y / exposure, sample_weight=exposure)
    asked = USUAL | {"learning_rate": 0.1, "max_iter": 300, "exposure_colname": "x1", "validation_freqs": 300}
    ran = train("HeteroPoisson", matrix, y, asked, cut=(2, 5))
    weights = ran.outputs[GUEST].model["weights"] | ran.outputs[HOST].model["weights"]
    assert list(weights.values()) == pytest.approx(best.coef_, abs=0.01)
    values = ran.outputs[GUEST].data[0].columns[SCORE]
    assert values == pytest.approx(exposure * best.predict(matrix[:, [0, 2, 3, 4]]), rel=0.05)
    model, rows = ran.outputs[GUEST].model, {GUEST: frame(matrix[:, :2]), HOST: frame(matrix[:, 2:], first=2)}
    models = {GUEST: model, HOST: ran.outputs[HOST].model}
    given = {
        place: PartInputs(USUAL, {"test_data": [rows[place]]}, {"model": {"hetero_poisson_0": models[place]}})
        for place in rows
    }
    again = run_parts("HeteroPoisson", given | {ARBITER: PartInputs(USUAL, {}, {"model": {"hetero_poisson_0": {}}})})
    assert again.outputs[GUEST].data[0].columns[SCORE] == pytest.approx(values)


def test_without_the_column_of_the_exposure_all_rows_count_the_same():
    matrix, y = diabetes()
    few = USUAL | {"max_iter": 1, "learning_rate": 0.05}
    ones = [train("HeteroPoisson", matrix, np.abs(y), few | more) for more in ({}, {"exposure_colname": "e"})]
    assert ones[0].outputs[GUEST].model == ones[1].outputs[GUEST].model


def test_encrypted_numbers_make_the_model_of_plain_ones():
    matrix, y = diabetes()
    few = USUAL | {"max_iter": 2}
    plain, encrypted = (
        train("HeteroLinR", matrix[:30, :4], y[:30], few | {"encrypt_param": {"method": method}}, cut=(2, 4))
        for method in ("plain", "Paillier")
    )
    mine, other = (one.outputs[HOST].model["weights"] for one in (plain, encrypted))
    assert mine == pytest.approx(other, abs=1e-3)


def test_a_prediction_is_that_of_the_fit():
    matrix, y = diabetes()
    ran = train("HeteroLinR", matrix, y)
    rows = {GUEST: frame(matrix[:, :4], y), HOST: frame(matrix[:, 4:], first=4)}
    given = {
        one: PartInputs(USUAL, {"test_data": [data]}, {"model": {"m": ran.outputs[one].model}})
        for one, data in rows.items()
    }
    again = run_parts("HeteroLinR", given | {ARBITER: PartInputs(USUAL, {}, {"model": {"m": {}}})})
    mine, other = (one.outputs[GUEST].data[0].columns[SCORE] for one in (ran, again))
    assert np.array_equal(mine, other)


def test_what_cannot_be_trained_is_told():
    matrix, y = diabetes()
    with pytest.raises(UsageError, match="negative"):
        train("HeteroPoisson", matrix, y)
    with pytest.raises(UsageError, match="one host"):
        train("HeteroPoisson", matrix, np.abs(y), cut=(4, 7, 10))
    with pytest.raises(UsageError, match="not above 0"):
        train("HeteroPoisson", matrix, np.abs(y), USUAL | {"exposure_colname": "x1"})
    matrix[0, 0] = np.nan
    with pytest.raises(UsageError, match="is missing"):
        train("HeteroLinR", matrix, y)


@pytest.mark.parametrize(("penalty", "alpha"), [("L2", 0.7), ("L1", 0.05)])
def test_the_loss_has_the_penalty_of_both_parties_and_the_guest_alone_sees_it(penalty, alpha):
    matrix, y = diabetes()
    asked = USUAL | {"max_iter": 2, "alpha": alpha, "penalty": penalty, "init_param": {"fit_intercept": False}}
    one, two = train("HeteroLinR", matrix, y, asked | {"max_iter": 1}), train("HeteroLinR", matrix, y, asked)
    weights = np.array([*one.outputs[GUEST].model["weights"].values(), *one.outputs[HOST].model["weights"].values()])
    extra = alpha * (0.5 * weights @ weights if penalty == "L2" else np.abs(weights).sum())
    wanted = [0.5 * np.mean(y**2), 0.5 * np.mean((y - matrix @ weights) ** 2) + extra]
    assert two.outputs[GUEST].model["losses"] == pytest.approx(wanted, abs=1e-6)
    assert two.outputs[HOST].model["losses"] == []


def test_an_early_stop_by_a_loss_that_nobody_computes_is_said():
    matrix, y = diabetes()
    asked = USUAL | {"max_iter": 1, "early_stop": "diff"}
    assert "with several hosts" in train("HeteroLinR", matrix, y, asked, cut=(4, 7, 10)).records[GUEST].lines[-1]
    assert not [one for one in train("HeteroLinR", matrix, y, asked).records[GUEST].lines if "no loss" in one]


@pytest.mark.parametrize(
    ("value", "rows", "message"),
    [
        (np.nan, slice(3, 4), "row 4 of column 'x2' at guest 1 is missing\nSet missing_fill"),
        (np.nan, slice(None), "is missing, as all values of that column are\nLeave the column out"),
        (np.inf, slice(3, 4), "row 4 of column 'x2' at guest 1 is infinite"),
    ],
)
def test_a_value_that_is_no_number_is_named(value, rows, message):
    matrix, y = diabetes()
    matrix[rows, 2] = value
    with pytest.raises(UsageError) as caught:
        train("HeteroLinR", matrix, y)
    assert message in str(caught.value)


def test_a_training_that_diverges_is_an_error():
    matrix, y = diabetes()
    with pytest.raises(UsageError, match="diverged"):
        train("HeteroLinR", matrix, y, USUAL | {"learning_rate": 1e6, "max_iter": 100, "early_stop": "weight_diff"})


def test_a_loss_that_grows_is_noted():
    matrix, y = diabetes()
    ran = train("HeteroLinR", matrix, y, USUAL | {"learning_rate": 1.5, "max_iter": 5})
    assert any("the loss grew from" in line for line in ran.records[GUEST].lines)
    (warning,) = ran.records[GUEST].summaries["warnings"]
    assert "the training may diverge" in warning
