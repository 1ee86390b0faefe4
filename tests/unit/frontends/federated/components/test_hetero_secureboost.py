import numpy as np
import pytest
from sklearn.datasets import load_diabetes, load_wine
from sklearn.ensemble import GradientBoostingClassifier, GradientBoostingRegressor
from sklearn.metrics import r2_score, roc_auc_score

from tests.unit.frontends.federated.components.parts_of import GUEST, HOST, HOST_2, breast, frame
from weft.frontends.federated.components.predictions import RESULT, SCORE
from weft.frontends.federated.wire import decode
from weft.model.errors import UsageError
from weft.testing.parts import PartInputs, run_parts

USUAL = {"num_trees": 5, "tree_param": {"max_depth": 3}, "learning_rate": 0.3, "encrypt_param": {"method": "plain"}}
MATRIX, Y = breast()


def train(parameters=USUAL, *, matrix=MATRIX, y=Y, cut=(10, 30)):
    given = {GUEST: PartInputs(parameters, {"train_data": [frame(matrix[:, : cut[0]], y)]})}
    for host, begin, end in zip((HOST, HOST_2), cut, cut[1:], strict=False):
        given[host] = PartInputs(parameters, {"train_data": [frame(matrix[:, begin:end], first=begin)]})
    return run_parts("HeteroSecureBoost", given)


def inside(value):
    """Yield all values in a value that was sent."""
    yield value
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for one in value:
            yield from inside(one)


def scores(ran):
    return ran.outputs[GUEST].data[0].columns[SCORE].astype(float)


@pytest.mark.parametrize("cut", [(10, 30), (10, 20, 30)])
def test_trees_over_several_parties_are_those_over_all_columns(cut):
    assert scores(train(cut=cut)) == pytest.approx(scores(train(cut=(30,))))


def test_the_model_is_as_good_as_that_of_scikit_learn():
    pooled = GradientBoostingClassifier(n_estimators=5, learning_rate=0.3, max_depth=3).fit(MATRIX, Y)
    ran = train()
    assert roc_auc_score(Y, scores(ran)) > 0.99 * roc_auc_score(Y, pooled.decision_function(MATRIX))
    losses = ran.outputs[GUEST].model["losses"]
    assert losses == sorted(losses, reverse=True)


def test_encrypted_sums_make_the_trees_of_plain_ones():
    few = USUAL | {"num_trees": 1, "tree_param": {"max_depth": 2}}
    rows = slice(0, 80)
    plain, encrypted = (
        train(few | {"encrypt_param": {"method": method}}, matrix=MATRIX[rows, :6], y=Y[rows], cut=(2, 6))
        for method in ("plain", "iterativeAffine")
    )
    assert scores(plain).tolist() == scores(encrypted).tolist()
    assert "iterativeAffine is not secure" in encrypted.records[GUEST].summaries["notes"][0]


def test_several_classes_and_regressions():
    matrix, y = load_wine(return_X_y=True)
    ran = train(matrix=matrix, y=y, cut=(5, 13))
    assert (ran.outputs[GUEST].data[0].columns[RESULT].astype(int) == y).mean() > 0.97
    assert len(ran.outputs[GUEST].model["trees"]) == 15
    matrix, y = load_diabetes(return_X_y=True)
    pooled = GradientBoostingRegressor(n_estimators=5, learning_rate=0.3, max_depth=3).fit(matrix, y)
    ran = train(USUAL | {"task_type": "regression"}, matrix=matrix, y=y, cut=(4, 10))
    assert r2_score(y, scores(ran)) > 0.97 * r2_score(y, pooled.predict(matrix))


def test_a_prediction_is_that_of_the_fit():
    ran = train()
    rows = {GUEST: frame(MATRIX[:, :10], Y), HOST: frame(MATRIX[:, 10:], first=10)}
    given = {
        one: PartInputs(USUAL, {"test_data": [data]}, {"model": {"m": ran.outputs[one].model}})
        for one, data in rows.items()
    }
    assert scores(run_parts("HeteroSecureBoost", given)).tolist() == scores(ran).tolist()


def test_each_party_keeps_its_own_thresholds():
    ran = train()
    guest, host = ran.outputs[GUEST].model, ran.outputs[HOST].model
    foreign = [node for tree in guest["trees"] for node in tree if node.get("party") == str(HOST)]
    assert foreign
    assert all(set(node) == {"party", "split", "left", "right"} for node in foreign)
    assert len(host["splits"]) == len(foreign)
    assert {one["feature"] for one in host["splits"]} <= {f"x{at}" for at in range(10, 30)}


def test_no_value_label_or_gradient_crosses_in_the_open():
    rows = slice(0, 60)
    parameters = USUAL | {"num_trees": 1, "encrypt_param": {"method": "Paillier"}}
    ran = train(parameters, matrix=MATRIX[rows, :5], y=Y[rows], cut=(2, 5))
    columns = [*MATRIX[rows, :5].T]
    thresholds = [one["at_most"] for one in ran.outputs[HOST].model["splits"]]
    for one in ran.sent:
        assert not [column for column in columns if column[:4].tobytes() in one.data]
        for found in inside(decode(one.data)):
            if isinstance(found, np.ndarray):
                assert found.dtype.kind != "f"
                assert not np.array_equal(found, Y[rows])
                assert not np.array_equal(found, 1 - Y[rows])
            assert found not in thresholds if isinstance(found, float) else True


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"num_trees": 0}, "num_trees"),
        ({"use_missing": True}, "use_missing"),
        ({"complete_secure": True}, "complete_secure"),
        ({"objective_param": {"objective": "tweedie"}}, "objective"),
        ({"encrypt_param": {"method": "rot13"}}, "encrypt_param"),
    ],
)
def test_wrong_parameters_are_named(parameters, message):
    with pytest.raises(UsageError, match=message):
        train(USUAL | parameters)
