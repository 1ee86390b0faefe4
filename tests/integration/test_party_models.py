"""Training and prediction between servers of parties, through tables, intersections and models."""

import csv
import json
import zipfile

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from tests.integration.test_parties import SERVER, Served, parties  # noqa: F401 - a fixture
from tests.prepared import weft_command
from tests.unit.frontends.federated.components.parts_of import breast
from weft.model.errors import ConflictError, UsageError, WeftError

TRAIN = {
    "components": {
        "reader_0": {"module": "Reader", "output": {"data": ["data"]}},
        "data_transform_0": {
            "module": "DataTransform",
            "input": {"data": {"data": ["reader_0.data"]}},
            "output": {"data": ["data"], "model": ["model"]},
        },
        "intersection_0": {
            "module": "Intersection",
            "input": {"data": {"data": ["data_transform_0.data"]}},
            "output": {"data": ["data"]},
        },
        "hetero_lr_0": {
            "module": "HeteroLR",
            "input": {"data": {"train_data": ["intersection_0.data"]}},
            "output": {"data": ["data"], "model": ["model"]},
        },
        "evaluation_0": {
            "module": "Evaluation",
            "input": {"data": {"data": ["hetero_lr_0.data"]}},
            "output": {"data": ["data"]},
        },
    }
}
PREDICT = {
    "components": {
        **{name: TRAIN["components"][name] for name in ("reader_0", "intersection_0")},
        "data_transform_0": {
            "module": "DataTransform",
            "input": {"data": {"data": ["reader_0.data"]}, "model": ["pipeline.data_transform_0.model"]},
            "output": {"data": ["data"]},
        },
        "hetero_lr_0": {
            "module": "HeteroLR",
            "input": {"data": {"test_data": ["intersection_0.data"]}, "model": ["pipeline.hetero_lr_0.model"]},
            "output": {"data": ["data"]},
        },
    }
}


def conf(**parameters):
    common = {
        "hetero_lr_0": {
            "alpha": 0.01,
            "learning_rate": 0.15,
            "batch_size": -1,
            "max_iter": 30,
            "encrypt_param": {"method": "plain"},
        }
    }
    labelled = {"with_label": True, "label_name": "y"}
    role = {
        "guest": {"0": {"reader_0": {"table": {"name": "rows", "namespace": "n"}}, "data_transform_0": labelled}},
        "host": {"0": {"reader_0": {"table": {"name": "rows", "namespace": "n"}}, "evaluation_0": {"need_run": False}}},
    }
    return {
        "dsl_version": 2,
        "initiator": {"role": "guest", "party_id": 1},
        "role": {"guest": [1], "host": [2], "arbiter": [2]},
        "job_parameters": {"common": parameters},
        "component_parameters": {"common": common, "role": role},
    }


def upload(party, path, header, rows):
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        writer.writerows(rows)
    party.client.upload(path, {"namespace": "n", "table_name": "rows", "head": 1, "partition": 1, "drop": 1})
    party.client.post("permission/grant", {"party_id": "1", "dataset": {"namespace": "n", "name": "rows"}})


PREDICT_ORDER = ("reader_0", "data_transform_0", "intersection_0", "hetero_lr_0")


def trained_model(party):
    """Return the id of the one model of a party."""
    return party.client.post("model/query", {"role": "guest"})[0]["model_id"]


def people_deploy_and_export(guest, host, version, tmp_path):
    """Do with the command line what the clients of FATE did before."""

    def weft(*words, at=guest):
        code, out, err = weft_command("party", *words, "--folder", str(at.site.folder), cwd=tmp_path, loaded=SERVER)
        assert code == 0, err
        return out

    made = weft("deploy", version, "data_transform_0", "hetero_lr_0", "--conf", "predict.json").strip()
    assert made == f"{version}.2"
    written = json.loads((tmp_path / "predict.json").read_text())
    assert written["job_parameters"]["common"]["model_version"] == made
    listed = {one["version"]: one for one in json.loads(weft("models", "--json"))["models"]}
    assert listed[made]["components"] == ["reader_0", "data_transform_0", "hetero_lr_0"]
    assert [one for one in listed if one.startswith(version)] == [made, f"{version}.1", version]
    assert [(listed[one]["kind"], listed[one]["job"]) for one in (made, version)] == [
        ("deployed", version),
        ("trained", version),
    ]
    assert listed[version]["metrics"]["evaluation_0 train auc"] > 0.9
    assert version in weft("models")
    assert "evaluation_0 train auc" in weft("models", version)
    weft("export-model", made, "mine.zip")
    weft("export-model", made, "theirs.zip", at=host)
    assert version in weft("models", made, at=host)
    for name, role in (("mine.zip", "guest"), ("theirs.zip", "host")):
        with zipfile.ZipFile(tmp_path / name) as archive:
            assert json.loads(archive.read("manifest.json"))["role"] == role


def moves_to_another_server(guest, model, tmp_path):
    """Export the model of the guest, lose it, and import it again."""
    names = model | {"role": "guest", "party_id": "1"}
    archive = tmp_path / "model.zip"
    guest.client.download("model/export", names, archive)
    with pytest.raises(ConflictError, match="already"):
        guest.client.upload(archive, names, "model/import")
    with pytest.raises(WeftError, match="role 'guest'"):
        guest.client.upload(archive, names | {"role": "host"}, "model/import")
    damaged = tmp_path / "damaged.zip"
    damaged.write_bytes(archive.read_bytes()[:500])
    with pytest.raises(UsageError, match="archive"):
        guest.client.upload(damaged, names, "model/import")


def answers_by_service_and_as_a_copy(guest, model, conf, scores):
    """Load a deployed model, predict by the id of a service, and by a copy that all parties have made."""
    part = {"role": "guest", "party_id": "1", "component_name": "hetero_lr_0"}
    named = {"job_parameters": model, "initiator": {"role": "guest", "party_id": 1}}
    with pytest.raises(ConflictError, match="was not loaded"):
        guest.client.post("model/bind", named | {"service_id": "credit"})
    loaded = guest.client.post("model/load", named)
    assert {role: dict(loaded[role]) for role in ("guest", "host")} == {"guest": {"1": 0}, "host": {"2": 0}}
    guest.client.post("model/bind", named | {"service_id": "credit"})
    [row] = guest.client.post("model/query", {"role": "guest", "model_version": model["model_version"]})
    assert (row["loaded_times"], row["services"]) == (1, ["credit"])
    roles = {"guest": [1], "host": [2], "arbiter": [2]}
    copy = {"role": roles, "migrate_role": roles, "execute_party": {"guest": [1], "host": [2]}} | {
        "job_parameters": {"federated_mode": "MULTIPLE"},
        "migrate_initiator": {"role": "guest", "party_id": 1},
        "unify_model_version": "copy_1",
    }
    guest.client.post("model/migrate", copy | model)
    wishes = [{"service_id": "credit"}, {"model_version": f"copy_1.{model['model_version'].rpartition('.')[2]}"}]
    for one in wishes:
        asked = conf | {"job_parameters": {"common": {"job_type": "predict"} | one}}
        ended = guest.ended(guest.submit({}, asked))
        assert ended["status"] == "success", ended
        rows = guest.client.post("tracking/component/output/data", part | {"job_id": ended["job"]})[0]
        assert {row[0]: (row[1], row[3]) for row in rows} == scores


def validates_across_folds(guest, taken):
    """Train by folds over rows of an earlier job, with an early end in each."""
    asked = conf(inheritance_info=taken)
    asked["component_parameters"]["common"]["hetero_lr_0"] |= {
        "cv_param": {"need_cv": True, "n_splits": 2, "shuffle": True, "random_seed": 3},
        "callback_param": {"callbacks": ["EarlyStopping"], "validation_freqs": 2, "early_stopping_rounds": 2},
    }
    folds = guest.ended(guest.submit(TRAIN, asked))
    assert folds["status"] == "success", folds
    assert folds["metrics"]["hetero_lr_0 validate_mean auc"] > 0.95
    each = [folds["metrics"][f"hetero_lr_0 validate_fold_{at} auc"] for at in range(2)]
    assert folds["metrics"]["hetero_lr_0 validate_mean auc"] == pytest.approx(np.mean(each))
    assert folds["metrics"]["evaluation_0 validate auc"] > 0.95


def test_a_model_is_trained_over_the_columns_of_two_parties_and_predicts(parties, tmp_path):  # noqa: F811
    guest, host = parties["1"], parties["2"]
    assert isinstance(guest, Served)
    guest.start()
    host.start()
    matrix, y = breast()
    ids = [f"c{at}" for at in range(len(y))]
    order = np.random.default_rng(5).permutation(len(y))[: len(y) - 9]
    mine = [[id, label, *row] for id, label, row in zip(ids, y, matrix[:, :10], strict=True)]
    theirs = [[ids[at], *matrix[at, 10:]] for at in order]
    upload(guest, tmp_path / "g.csv", ["id", "y", *"abcdefghij"], mine)
    upload(host, tmp_path / "h.csv", ["id", *(f"h{at}" for at in range(20))], theirs)
    trained = guest.ended(guest.submit(TRAIN, conf()))
    assert trained["status"] == "success", trained
    assert trained["metrics"]["intersection_0 train intersect_count"] == len(order)
    assert trained["metrics"]["evaluation_0 train auc"] > 0.97
    crossed = {one["name"]: one["sent"] for one in trained["components"]}
    assert crossed["hetero_lr_0"] > 0
    assert crossed["data_transform_0"] == 0

    some = guest.ended(guest.submit(TRAIN, conf(run_to="intersection_0")))
    assert some["status"] == "success"
    ends = {one["name"]: one["status"] for one in some["components"]}
    assert (ends["intersection_0"], ends["hetero_lr_0"]) == ("success", "pass")

    taken = {"job_id": trained["job"], "component_list": ["reader_0", "data_transform_0", "intersection_0"]}
    heir = guest.ended(guest.submit(TRAIN, conf(inheritance_info=taken)))
    assert heir["status"] == "success", heir
    ends = {one["name"]: one["status"] for one in heir["components"]}
    assert (ends["intersection_0"], ends["hetero_lr_0"]) == ("pass", "success")
    assert heir["metrics"]["evaluation_0 train auc"] == pytest.approx(trained["metrics"]["evaluation_0 train auc"])
    with pytest.raises(UsageError, match="no job 7"):
        guest.submit(TRAIN, conf(inheritance_info=taken | {"job_id": "7"}))
    with pytest.raises(UsageError, match="'lr'"):
        guest.submit(TRAIN, conf(inheritance_info=taken | {"component_list": ["lr"]}))

    validates_across_folds(guest, taken)

    wishes = conf(job_type="predict", model_version=heir["job"], model_id="m")
    with pytest.raises(UsageError, match="host 1 has no part of the model"):
        guest.submit(PREDICT, wishes | {"role": {"guest": [1], "host": [1], "arbiter": [2]}})
    predicted = guest.ended(guest.submit(PREDICT, wishes))
    assert predicted["status"] == "success", predicted
    part = {"role": "guest", "party_id": "1", "component_name": "hetero_lr_0"}
    scores = []
    for job in (trained["job"], predicted["job"]):
        rows = guest.client.post("tracking/component/output/data", part | {"job_id": job})[0]
        scores.append({row[0]: (row[1], row[3]) for row in rows})
    assert scores[0] == scores[1]
    model = {"model_id": trained_model(guest), "model_version": trained["job"]}
    deployed = guest.client.post("model/deploy", model)
    assert deployed["detail"]["host"]["2"]["retcode"] == 0
    tables = {"reader_0": {"table": {"name": "rows", "namespace": "n"}}}
    short = guest.client.post("model/get/predict/conf", model | {"model_version": deployed["model_version"]})
    short["component_parameters"]["role"] = {"guest": {"0": tables}, "host": {"0": tables}}
    again = guest.ended(guest.submit({}, short))
    assert again["status"] == "success", again
    assert [one["name"] for one in again["components"]] == list(PREDICT_ORDER)
    rows = guest.client.post("tracking/component/output/data", part | {"job_id": again["job"]})[0]
    assert {row[0]: (row[1], row[3]) for row in rows} == scores[0]
    answers_by_service_and_as_a_copy(guest, model | {"model_version": deployed["model_version"]}, short, scores[0])
    people_deploy_and_export(guest, host, trained["job"], tmp_path)
    moves_to_another_server(guest, model, tmp_path)
    truth, values = zip(*scores[0].values(), strict=True)
    assert roc_auc_score(truth, values) > 0.95
    assert json.dumps(predicted["metrics"])
