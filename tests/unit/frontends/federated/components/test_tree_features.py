"""Columns made of the leaves of boosted trees."""

import numpy as np
import pytest

from tests.unit.frontends.federated.components.parts_of import GUEST, HOST, breast, frame
from weft.model.errors import UsageError
from weft.testing.parts import PartInputs, run_parts

MATRIX, Y = breast()
TREES = {"num_trees": 3, "tree_param": {"max_depth": 2}, "encrypt_param": {"method": "plain"}, "learning_rate": 0.3}


def rows_of(key):
    return {GUEST: {key: [frame(MATRIX[:, :10], Y)]}, HOST: {key: [frame(MATRIX[:, 10:], first=10)]}}


def transformed(models, kind="isometric_model"):
    given = {
        party: PartInputs({}, data, {kind: {"trees_0": models[party]}} if models else {})
        for party, data in rows_of("data").items()
    }
    return run_parts("SBTFeatureTransformer", given)


def test_leaves_become_columns():
    given = {party: PartInputs(TREES, data) for party, data in rows_of("train_data").items()}
    trained = run_parts("HeteroSecureBoost", given)
    models = {party: trained.outputs[party].model for party in (GUEST, HOST)}
    ran = transformed(models)
    found, model = ran.outputs[GUEST].data[0], models[GUEST]
    names = found.features
    weights = [node["weight"] for tree in model["trees"] for node in tree if "split" not in node]
    assert len(names) == len(weights)
    assert {name.split("_")[1] for name in names} == {"0", "1", "2"}
    matrix = found.matrix()
    assert (matrix.sum(axis=1) == 3).all()
    score = model["start"][0] + model["learning_rate"] * matrix @ np.array(weights)
    truth = trained.outputs[GUEST].data[0].columns["predict_score"]
    assert 1 / (1 + np.exp(-score)) == pytest.approx(truth, abs=1e-9)
    assert found.y.tolist() == Y.tolist()
    assert ran.outputs[HOST].data[0].features == ()
    again = transformed({party: ran.outputs[party].model for party in (GUEST, HOST)}, "model")
    assert again.outputs[GUEST].data[0].matrix().tolist() == matrix.tolist()


def test_a_model_of_trees_is_needed():
    with pytest.raises(UsageError, match="no model of boosted trees"):
        transformed({})
