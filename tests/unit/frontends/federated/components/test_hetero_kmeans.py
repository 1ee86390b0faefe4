"""Clusters over the columns of several parties."""

import numpy as np
import pytest
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score

from tests.unit.frontends.federated.components.parts_of import ARBITER, GUEST, HOST, HOST_2, breast, frame
from weft.model.errors import UsageError
from weft.testing.parts import PartInputs, run_parts

MATRIX, Y = breast()
COLUMNS = {GUEST: slice(0, 10), HOST: slice(10, 25), HOST_2: slice(25, 30)}


def cluster(*hosts, models=None, key="train_data", **parameters):
    given = {
        party: PartInputs(
            parameters,
            {key: [frame(MATRIX[:, COLUMNS[party]], Y if party == GUEST else None)]},
            {"model": {"k": models[party]}} if models else {},
        )
        for party in (GUEST, *hosts)
    }
    given[ARBITER] = PartInputs(parameters, {}, {"model": {"k": None}} if models else {})
    return run_parts("HeteroKmeans", given)


@pytest.mark.parametrize("hosts", [(HOST,), (HOST, HOST_2)])
def test_clusters_are_those_of_the_pooled_columns(hosts):
    ran = cluster(*hosts, k=3, random_stat=4, tol=0.0, max_iter=100)
    found = ran.outputs[GUEST].data[0].columns["predict_result"]
    columns = MATRIX[:, : COLUMNS[hosts[-1]].stop]
    first = columns[np.random.default_rng(4).choice(len(columns), 3, replace=False)]
    truth = KMeans(3, init=first, n_init=1, tol=0.0, max_iter=100, algorithm="lloyd").fit(columns)
    assert adjusted_rand_score(truth.labels_, found) == 1.0
    centers = np.column_stack([ran.outputs[party].model["centers"] for party in (GUEST, *hosts)])
    assert centers == pytest.approx(truth.cluster_centers_, abs=1e-6)


def test_a_model_finds_the_same_clusters():
    ran = cluster(HOST, k=2, random_stat=1)
    models = {party: ran.outputs[party].model for party in (GUEST, HOST)}
    again = cluster(HOST, models=models, key="test_data")
    first, second = (one.outputs[GUEST].data[0].columns["predict_result"].tolist() for one in (ran, again))
    assert first == second
    assert adjusted_rand_score(Y, first) > 0.5


@pytest.mark.parametrize(
    ("parameters", "message"), [({"k": 1}, "k is 1"), ({"k": 2.5}, "whole number"), ({"k": 600}, "569 rows")]
)
def test_wrong_numbers_of_clusters_are_refused(parameters, message):
    with pytest.raises(UsageError, match=message):
        cluster(HOST, **parameters)
