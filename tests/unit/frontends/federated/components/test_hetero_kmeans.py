"""Clusters over the columns of several parties."""

import numpy as np
import pytest
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score, davies_bouldin_score

from tests.unit.frontends.federated.components.parts_of import ARBITER, GUEST, HOST, HOST_2, breast, frame
from weft.frontends.federated.components.hetero_kmeans import davies_bouldin_index
from weft.frontends.federated.wire import decode
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
    index = ran.records[ARBITER].metrics["train", "davies_bouldin_index"]
    assert index == pytest.approx(davies_bouldin_score(columns, truth.labels_), abs=1e-6)


def test_a_model_finds_the_same_clusters():
    ran = cluster(HOST, k=2, random_stat=1)
    models = {party: ran.outputs[party].model for party in (GUEST, HOST)}
    again = cluster(HOST, models=models, key="test_data")
    first, second = (one.outputs[GUEST].data[0].columns["predict_result"].tolist() for one in (ran, again))
    assert first == second
    assert adjusted_rand_score(Y, first) > 0.5
    assert again.records[ARBITER].metrics["test", "davies_bouldin_index"] == pytest.approx(
        ran.records[ARBITER].metrics["train", "davies_bouldin_index"]
    )


def test_clusters_are_evaluated_by_labels():
    rows = cluster(HOST, k=2, random_stat=1).outputs[GUEST].data[0]
    given = PartInputs({"eval_type": "clustering"}, {"data": [rows]})
    found = run_parts("Evaluation", {GUEST: given}).records[GUEST].metrics
    truth = adjusted_rand_score(Y, rows.columns["predict_result"])
    assert found["train", "adjusted_rand_score"] == pytest.approx(truth)


def test_no_part_of_a_distance_is_sent_as_it_is():
    ran = cluster(HOST, k=2, random_stat=1)
    for party in (GUEST, HOST):
        matrix, model = MATRIX[:, COLUMNS[party]], ran.outputs[party].model
        last = ((matrix[:, None] - np.array(model["centers"])[None]) ** 2).sum(axis=2)
        words = np.rint(np.ldexp(last, 32)).astype(np.int64).astype(np.uint64)
        sent = [decode(one.data) for one in ran.sent if one.source == party and one.name == "covered"]
        arrays = [one[2]["words"] for one in sent if one is not None]
        assert any(one.shape == words.shape for one in arrays)
        assert not any(np.isin(words, one).any() for one in arrays)


@pytest.mark.parametrize("own", [{"max_iter": 1}, {"tol": 5.0}, {"k": 3}])
def test_parties_with_other_settings_are_told_so(own):
    usual = {"k": 2, "random_stat": 1, "max_iter": 5}
    given = {GUEST: PartInputs(usual, {"train_data": [frame(MATRIX[:, :5], Y)]}), ARBITER: PartInputs(usual)}
    given[HOST] = PartInputs({**usual, **own}, {"train_data": [frame(MATRIX[:, 5:10])]})
    with pytest.raises(UsageError, match=f"{next(iter(own))} is"):
        run_parts("HeteroKmeans", given)


def test_rows_in_one_cluster_have_no_index():
    apart = np.array([[0.0, 1.0], [1.0, 0.0]])
    assert davies_bouldin_index(np.array([[0.0, 4.0], [1.0, 9.0]]), apart) is None
    assert davies_bouldin_index(np.array([[0.0, 4.0], [4.0, 0.0]]), apart * 0) is None
    assert davies_bouldin_index(np.array([[1.0, 9.0], [9.0, 4.0]]), apart * 9) == pytest.approx((1 + 2) / 3)


@pytest.mark.parametrize(
    ("parameters", "message"), [({"k": 1}, "k is 1"), ({"k": 2.5}, "whole number"), ({"k": 600}, "569 rows")]
)
def test_wrong_numbers_of_clusters_are_refused(parameters, message):
    with pytest.raises(UsageError, match=message):
        cluster(HOST, **parameters)
