"""Jobs of many components between servers of parties: what one makes is what the next takes, in predictions too."""

import numpy as np

from tests.integration.test_parties import parties  # noqa: F401 - a fixture
from tests.integration.test_party_models import TRAIN, upload
from tests.unit.frontends.federated.components.parts_of import breast
from tests.unit.frontends.federated.components.test_intersection import SPU

TABLE = {"table": {"name": "rows", "namespace": "n"}}
LABELLED = {"with_label": True, "label_name": "y"}
PLAIN = {"method": "plain"}


def step(module, data=None, *, key="data", model=True, isometric=()):
    """Return a component of a DSL."""
    found = {"module": module, "output": {"data": ["data"]}}
    if model:
        found["output"]["model"] = ["model"]
    if data:
        found["input"] = {"data": {key: [f"{data}.data"]}}
    if isometric:
        found["input"]["isometric_model"] = [f"{one}.model" for one in isometric]
    return found


def started(parties, tmp_path, mine, theirs, heads):  # noqa: F811
    """Start the servers, with a table of each party."""
    guest, host = parties["1"], parties["2"]
    guest.start()
    host.start()
    upload(guest, tmp_path / "g.csv", heads[0], mine)
    upload(host, tmp_path / "h.csv", heads[1], theirs)
    return guest


def test_features_are_binned_selected_scaled_and_learnt_from(parties, tmp_path, monkeypatch):  # noqa: F811
    if SPU.exists():
        monkeypatch.setenv("WEFT_SPU", str(SPU))
    matrix, y = breast()
    ids = [f"c{at}" for at in range(len(y))]
    order = np.random.default_rng(7).permutation(len(y))
    guest = started(
        parties,
        tmp_path,
        [[id, label, *row] for id, label, row in zip(ids, y, matrix[:, :10], strict=True)],
        [[ids[at], *matrix[at, 10:]] for at in order],
        (["id", "y", *(f"g{at}" for at in range(10))], ["id", *(f"h{at}" for at in range(20))]),
    )
    first = ("reader_0", "data_transform_0", "intersection_0")
    components = {name: TRAIN["components"][name] for name in first} | {
        "statistics_0": step("DataStatistics", "intersection_0"),
        "binning_0": step("HeteroFeatureBinning", "intersection_0"),
        "selection_0": step("HeteroFeatureSelection", "intersection_0", isometric=("binning_0", "statistics_0")),
        "scale_0": step("FeatureScale", "selection_0"),
        "split_0": {**step("HeteroDataSplit", "scale_0", model=False)},
        "hetero_lr_0": step("HeteroLR", "split_0", key="train_data"),
        "local_0": step("LocalBaseline", "split_0", key="train_data"),
        "evaluation_0": {
            "module": "Evaluation",
            "input": {"data": {"data": ["hetero_lr_0.data"]}},
            "output": {"data": ["data"]},
        },
    }
    components["split_0"]["output"] = {"data": ["data", "validate_data", "test_data"]}
    components["hetero_lr_0"]["input"]["data"]["validate_data"] = ["split_0.test_data"]
    wishes = {
        "dsl_version": 2,
        "initiator": {"role": "guest", "party_id": 1},
        "role": {"guest": [1], "host": [2], "arbiter": [2]},
        "component_parameters": {
            "common": {
                "statistics_0": {"statistics": ["summary"]},
                "binning_0": {"method": "quantile", "bin_num": 8, "encrypt_param": PLAIN},
                "selection_0": {
                    "filter_methods": ["statistic_filter", "iv_filter"],
                    "statistic_param": {
                        "metrics": ["missing_ratio"],
                        "filter_type": ["threshold"],
                        "take_high": [False],
                        "threshold": [0.5],
                    },
                    "iv_param": {"metrics": ["iv"], "filter_type": ["top_k"], "threshold": [12], "take_high": [True]},
                },
                "scale_0": {"method": "standard_scale"},
                "split_0": {"test_size": 0.25, "train_size": 0.75, "stratified": True, "random_state": 3},
                "hetero_lr_0": {
                    "learning_rate": 0.15,
                    "batch_size": -1,
                    "max_iter": 25,
                    "alpha": 0.01,
                    "encrypt_param": PLAIN,
                },
            },
            "role": {
                "guest": {"0": {"reader_0": TABLE, "data_transform_0": LABELLED}},
                "host": {"0": {"reader_0": TABLE, "evaluation_0": {"need_run": False}, "local_0": {"need_run": False}}},
            },
        },
    }
    trained = guest.ended(guest.submit({"components": components}, wishes))
    assert trained["status"] == "success", trained
    assert trained["metrics"]["evaluation_0 validate auc"] > 0.97
    at = {"job_id": trained["job"], "role": "guest", "party_id": 1, "component_name": "intersection_0"}
    summary = guest.client.post("tracking/component/summary/download", at)
    assert summary.get("engine", "").startswith("spu ") == SPU.exists()
    part = {"role": "guest", "party_id": "1", "job_id": trained["job"]}
    kept = guest.client.post("tracking/component/summary/download", part | {"component_name": "selection_0"})
    assert kept
    train = guest.client.post("tracking/component/output/data", part | {"component_name": "hetero_lr_0"})[0]

    model = guest.client.post("model/query", {"role": "guest", "model_version": trained["job"]})[0]
    names = {name: model[name] for name in ("model_id", "model_version")}
    deployed = guest.client.post("model/deploy", names)["model_version"]
    short = guest.client.post("model/get/predict/conf", names | {"model_version": deployed})
    for role in short["component_parameters"]["role"].values():
        role["0"]["reader_0"] = TABLE
    predicted = guest.ended(guest.submit({}, short))
    assert predicted["status"] == "success", predicted
    assert [one["name"] for one in predicted["components"]] == [
        "reader_0",
        "data_transform_0",
        "intersection_0",
        "binning_0",
        "selection_0",
        "scale_0",
        "hetero_lr_0",
        "local_0",
    ]
    again = guest.client.post(
        "tracking/component/output/data", part | {"job_id": predicted["job"], "component_name": "hetero_lr_0"}
    )[0]
    before, after = ({row[0]: float(row[3]) for row in rows} for rows in (train, again))
    both = before.keys() & after.keys()  # a client of FATE gets the first hundred rows
    assert len(both) > 30
    assert max(abs(before[id] - after[id]) for id in both) < 1e-9


def test_parties_with_the_same_columns_learn_together(parties, tmp_path):  # noqa: F811
    matrix, y = breast()
    rows = [[f"c{at}", label, *row] for at, (label, row) in enumerate(zip(y, matrix, strict=True))]
    head = ["id", "y", *(f"x{at}" for at in range(30))]
    guest = started(parties, tmp_path, rows[:300], rows[300:], (head, head))
    components = {name: TRAIN["components"][name] for name in ("reader_0", "data_transform_0")} | {
        "homo_lr_0": step("HomoLR", "data_transform_0", key="train_data"),
        "homo_secureboost_0": step("HomoSecureBoost", "data_transform_0", key="train_data"),
        "evaluation_0": {
            "module": "Evaluation",
            "input": {"data": {"data": ["homo_lr_0.data", "homo_secureboost_0.data"]}},
            "output": {"data": ["data"]},
        },
    }
    wishes = {
        "dsl_version": 2,
        "initiator": {"role": "guest", "party_id": 1},
        "role": {"guest": [1], "host": [2], "arbiter": [1]},
        "component_parameters": {
            "common": {
                "data_transform_0": LABELLED,
                "homo_lr_0": {"learning_rate": 0.15, "batch_size": -1, "max_iter": 25, "optimizer": "sgd"},
                "homo_secureboost_0": {"num_trees": 3, "tree_param": {"max_depth": 3}},
            },
            "role": {"guest": {"0": {"reader_0": TABLE}}, "host": {"0": {"reader_0": TABLE}}},
        },
    }
    shown = guest.ended(guest.submit({"components": components}, wishes))
    assert shown["status"] == "success", shown
    for name in ("homo_lr_0", "homo_secureboost_0"):
        assert shown["metrics"][f"evaluation_0 train/{name} auc"] > 0.97
