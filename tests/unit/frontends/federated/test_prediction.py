"""The files of predictions, made from those of training jobs."""

import json
from typing import Any

import pytest

from weft.frontends.federated.planning import read_job
from weft.frontends.federated.prediction import merged_conf, prediction_conf, prediction_dsl, takes_models
from weft.model.errors import NotFoundError, UsageError

DSL: dict[str, Any] = {
    "components": {
        "reader_0": {"module": "Reader", "output": {"data": ["data"]}},
        "reader_1": {"module": "Reader", "output": {"data": ["data"]}},
        "transform_0": {
            "module": "DataTransform",
            "input": {"data": {"data": ["reader_0.data"]}},
            "output": {"data": ["data"], "model": ["model"]},
        },
        "transform_1": {
            "module": "DataTransform",
            "input": {"data": {"data": ["reader_1.data"]}, "model": ["transform_0.model"]},
            "output": {"data": ["data"]},
        },
        "sample_0": {
            "module": "FederatedSample",
            "input": {"data": {"data": ["transform_0.data"]}},
            "output": {"data": ["data"]},
        },
        "lr_0": {
            "module": "HeteroLR",
            "input": {"data": {"train_data": ["sample_0.data"], "validate_data": ["transform_1.data"]}},
            "output": {"data": ["data"], "model": ["model"]},
        },
        "evaluation_0": {
            "module": "Evaluation",
            "input": {"data": {"data": ["lr_0.data"]}},
            "output": {"data": ["data"]},
        },
    }
}
CONF: dict[str, Any] = {
    "dsl_version": 2,
    "initiator": {"role": "guest", "party_id": 1},
    "role": {"guest": [1], "host": [2, 3], "arbiter": [2]},
    "job_parameters": {"common": {"task_cores": 2, "run_to": "lr_0"}},
    "component_parameters": {
        "common": {"lr_0": {"alpha": 0.5}, "sample_0": {"mode": "random"}},
        "role": {"guest": {"0": {"transform_0": {"with_label": True}, "sample_0": {"mode": "random"}}}},
    },
}


def test_a_prediction_leaves_out_what_only_trains():
    found = prediction_dsl(DSL)["components"]
    assert list(found) == ["reader_0", "reader_1", "transform_0", "transform_1", "lr_0"]
    assert found["lr_0"] == {
        "module": "HeteroLR",
        "input": {"data": {"test_data": ["transform_0.data"]}, "model": ["pipeline.lr_0.model"]},
        "output": {"data": ["data"]},
    }
    assert found["transform_0"]["input"] == {
        "data": {"data": ["reader_0.data"]},
        "model": ["pipeline.transform_0.model"],
    }
    assert found["transform_1"]["input"]["model"] == ["pipeline.transform_0.model"]


def test_readers_are_left_out_as_in_fate_unless_they_are_asked_for():
    found = prediction_dsl(DSL, ["transform_0", "lr_0"], readers=False)["components"]
    assert list(found) == ["transform_0", "lr_0"]
    assert found["transform_0"]["input"] == {"model": ["pipeline.transform_0.model"]}
    assert found["lr_0"]["input"]["data"] == {"test_data": ["transform_0.data"]}
    assert list(prediction_dsl(DSL, readers=False)["components"])[:2] == ["reader_0", "reader_1"]


@pytest.mark.parametrize(
    "wrong", [{}, {"components": []}, {"components": {"a": 1}}, {"components": {"a": {"input": []}}}]
)
def test_a_dsl_that_takes_models_of_a_training_job_is_one_of_predictions(wrong):
    assert takes_models(prediction_dsl(DSL))
    assert not takes_models(DSL)
    assert not takes_models(wrong)


def test_named_components_are_kept_beside_readers():
    found = prediction_dsl(DSL, ["lr_0"])["components"]
    assert list(found) == ["reader_0", "reader_1", "lr_0"]
    assert found["lr_0"]["input"]["data"] == {"test_data": ["reader_0.data"]}
    assert "evaluation_0" in prediction_dsl(DSL, ["transform_0", "lr_0", "evaluation_0"])["components"]
    with pytest.raises(NotFoundError, match="no component 'lr_1'") as error:
        prediction_dsl(DSL, ["lr_1"])
    assert "lr_0" in error.value.hint


def test_files_of_version_1_read_the_rows_of_eval_data():
    dsl = {
        "components": {
            "dataio_0": {
                "module": "DataIO",
                "input": {"data": {"data": ["args.train_data"]}},
                "output": {"data": ["train"], "model": ["dataio"]},
                "need_deploy": True,
            },
            "sample_0": {
                "module": "Union",
                "input": {"data": {"data": ["dataio_0.train"]}},
                "output": {"data": ["train"]},
                "need_deploy": False,
            },
            "lr_0": {
                "module": "HeteroLR",
                "input": {"data": {"train_data": ["sample_0.train"]}},
                "output": {"data": ["train"], "model": ["lr"]},
            },
        }
    }
    found = prediction_dsl(dsl)["components"]
    assert found["dataio_0"]["input"] == {
        "data": {"data": ["args.eval_data"]},
        "model": ["pipeline.dataio_0.dataio"],
    }
    assert found["lr_0"]["input"]["data"] == {"test_data": ["dataio_0.train"]}
    assert not any("need_deploy" in one for one in found.values())


def test_data_without_a_source_among_the_deployed_are_refused():
    dsl = {"components": {"a": {"module": "Union"}, "b": {"module": "HeteroLR", "input": {"data": {"data": ["a.x"]}}}}}
    with pytest.raises(UsageError, match="not deployed"):
        prediction_dsl(dsl, ["b"])


def test_a_conf_takes_what_it_does_not_say_from_that_of_the_training_job():
    dsl = prediction_dsl(DSL)
    own = prediction_conf(CONF, dsl, model_id="m", model_version="v.1")
    assert own["component_parameters"]["role"]["host"]["1"]["reader_0"]["table"] == {
        "name": "name_to_be_filled_host_1",
        "namespace": "namespace_to_be_filled_host_1",
    }
    found = merged_conf(CONF, own, dsl)
    assert found["job_parameters"]["common"] == {
        "task_cores": 2,
        "job_type": "predict",
        "model_id": "m",
        "model_version": "v.1",
    }
    assert found["component_parameters"]["common"] == {"lr_0": {"alpha": 0.5}}
    assert found["component_parameters"]["role"]["guest"]["0"]["transform_0"] == {"with_label": True}
    assert CONF["job_parameters"]["common"]["run_to"] == "lr_0"
    with pytest.raises(UsageError, match="dsl_version 1"):
        merged_conf(CONF, {"dsl_version": 1}, dsl)


def test_a_conf_without_a_version_has_that_of_its_members():
    trained = {key: value for key, value in CONF.items() if key != "dsl_version"}
    dsl = prediction_dsl(DSL)
    own = prediction_conf(trained, dsl, model_id="m", model_version="v.1")
    assert "component_parameters" in own
    assert merged_conf(trained, own, dsl)["component_parameters"]["common"] == {"lr_0": {"alpha": 0.5}}


def test_the_files_of_a_prediction_are_those_of_a_job():
    dsl = prediction_dsl(DSL)
    conf = merged_conf(CONF, prediction_conf(CONF, dsl, model_id="m", model_version="v.1"), dsl)
    job = read_job(json.dumps(dsl), json.dumps(conf))
    assert job.conf.job_type == "predict"
