"""DSL and conf files of federated jobs: what they mean for each party, and their mistakes with places."""

import json
from typing import Any

import pytest

from weft.frontends.federated.conf import JOB_PARAMETERS, read_conf
from weft.frontends.federated.dsl import read_dsl
from weft.frontends.federated.expansion import expand
from weft.frontends.federated.modules import _GROUPS, _MODULES, modules
from weft.frontends.federated.parameter_types import _job_kinds, _kinds
from weft.frontends.federated.planning import plan_federated, read_job
from weft.frontends.federated.schema import FederatedJob
from weft.model.errors import FederatedFileError, NotFoundError

Json = dict[str, Any]


def component(module: str, *, data: Json | None = None, model: str = "", out: tuple[str, ...] = ("data",)) -> Json:
    given: Json = {"data": data} if data else {}
    if model:
        given["model"] = [model]
    made: Json = {"data": list(out)}
    if module == "HeteroLR" and not model:
        made["model"] = ["lr"]
    return {"module": module, **({"input": given} if given else {}), "output": made}


TABLE = {"reader_0": {"table": {"name": "t", "namespace": "n"}}}


def dsl(*, root: str = "reader_0.data") -> Json:
    found = {
        "intersection_0": component("Intersection", data={"data": [root]}),
        "hetero_lr_0": component("HeteroLR", data={"train_data": ["intersection_0.data"]}),
        "hetero_lr_1": component("HeteroLR", data={"test_data": ["intersection_0.data"]}, model="hetero_lr_0.lr"),
        "evaluation_0": component("Evaluation", data={"data": ["hetero_lr_0.data"]}),
    }
    reader = {"reader_0": component("Reader")} if root.startswith("reader") else {}
    return {"components": {**found, **reader}}


def conf_2(**more: Any) -> Json:
    tables = {"reader_0": {"table": {"name": "t", "namespace": "n"}}}
    return {
        "dsl_version": 2,
        "initiator": {"role": "guest", "party_id": 1},
        "role": {"guest": [1], "host": [2, 3], "arbiter": ["2"]},
        "job_parameters": {"common": {"task_cores": 2}, "role": {"host": {"1": {"task_cores": 4}}}},
        "component_parameters": {
            "common": {"hetero_lr_0": {"alpha": 0.1, "init_param": {"fit_intercept": True}}},
            "role": {
                "guest": {"0": tables},
                "host": {
                    "all": {**tables, "evaluation_0": {"need_run": False}},
                    "0|1": {"hetero_lr_0": {"init_param": {"init_method": "zeros"}}},
                    "1": {"hetero_lr_0": {"alpha": 0.5}},
                },
            },
        },
        **more,
    }


def conf_1(**host: Any) -> Json:
    table = {"name": "t", "namespace": "n"}
    return {
        "initiator": {"role": "guest", "party_id": 1},
        "role": {"guest": [1], "host": [2, 3], "arbiter": [2]},
        "job_parameters": {"work_mode": 1, "task_cores": 2},
        "algorithm_parameters": {"hetero_lr_0": {"alpha": 0.1, "encrypt_param": {"method": "iterativeAffine"}}},
        "role_parameters": {
            "guest": {"args": {"data": {"train": [table]}}},
            "host": {
                "args": {"data": {"train": [table, {**table, "name": "u"}]}},
                "hetero_lr_0": {"alpha": [0.2, 0.3], "init_param": {"fit_intercept": [True, False]}},
                **host,
            },
        },
    }


def job(conf: Json, graph: Json | None = None) -> FederatedJob:
    read = read_conf(json.dumps(conf), "conf.json")
    return expand(read_dsl(json.dumps(graph or dsl()), "dsl.json", version=read.version), read, "conf.json")


def parts(found: FederatedJob) -> dict[str, Any]:
    return {one.name: one for one in found.parts}


def test_parameters_of_version_2_are_merged_in_the_order_of_the_file():
    found = parts(job(conf_2()))
    assert list(found) == ["guest 1", "host 2", "host 3", "arbiter 2"], "one party may have two roles"
    parameters = {name: one.components["hetero_lr_0"].parameters for name, one in found.items()}
    assert parameters["guest 1"] == {"alpha": 0.1, "init_param": {"fit_intercept": True}}
    assert parameters["host 2"] == {"alpha": 0.1, "init_param": {"fit_intercept": True, "init_method": "zeros"}}
    assert parameters["host 3"] == {"alpha": 0.5, "init_param": {"fit_intercept": True, "init_method": "zeros"}}
    assert [one.job_parameters["task_cores"] for one in found.values()] == [2, 2, 4, 2]


def test_each_party_runs_the_components_that_its_role_has():
    found = parts(job(conf_2()))
    assert {name for name, one in found["arbiter 2"].components.items() if one.runs} == {
        "hetero_lr_0",
        "hetero_lr_1",
        "evaluation_0",
    }
    assert found["arbiter 2"].components["reader_0"].why_not == "Reader has no part for arbiter"
    assert found["host 2"].components["evaluation_0"].why_not == "need_run is false"
    assert found["guest 1"].components["evaluation_0"].runs
    assert found["host 3"].components["hetero_lr_1"].parameters["alpha"] == 0.5, "as the component that made its model"


def test_a_training_that_goes_on_with_a_model_has_parameters_of_its_own():
    graph, conf = dsl(), conf_2()
    rows = {"train_data": ["intersection_0.data"]}
    graph["components"]["hetero_lr_1"] = component("HeteroLR", data=rows, model="hetero_lr_0.lr")
    conf["component_parameters"]["common"]["hetero_lr_1"] = {"max_iter": 9}
    found = parts(job(conf, graph))
    assert found["host 3"].components["hetero_lr_1"].parameters == {"max_iter": 9}
    assert found["arbiter 2"].components["hetero_lr_1"].runs


def test_a_component_with_a_loaded_model_has_parameters_of_its_own():
    graph, conf = dsl(), conf_2()
    graph["components"]["model_loader_0"] = {"module": "ModelLoader", "output": {"model": ["model"]}}
    graph["components"]["hetero_lr_1"]["input"]["model"] = ["model_loader_0.model"]
    named = {"model_version": "7", "component_name": "hetero_lr_0"}
    conf["component_parameters"]["common"] |= {"hetero_lr_1": {"max_iter": 9}, "model_loader_0": named}
    found = parts(job(conf, graph))
    assert found["host 3"].components["hetero_lr_1"].parameters == {"max_iter": 9}
    assert found["arbiter 2"].components["model_loader_0"].parameters == named


def test_components_come_after_their_sources():
    order = job(conf_2()).dsl.order
    assert order == ("reader_0", "intersection_0", "hetero_lr_0", "hetero_lr_1", "evaluation_0")


def test_leaves_of_roles_in_version_1_have_a_value_for_each_party():
    found = job(conf_1(), dsl(root="args.train"))
    own = parts(found)
    alphas = [one.components["hetero_lr_0"].parameters["alpha"] for one in own.values()]
    assert alphas == [0.1, 0.2, 0.3, 0.1]
    assert own["host 3"].components["hetero_lr_0"].parameters["init_param"] == {"fit_intercept": False}
    assert [one.tables.get("train", {}).get("name") for one in own.values()] == ["t", "t", "u", None]
    assert "without effect, since they choose engines of FATE, and Weft has its own: work_mode" in found.notes
    assert "iterativeAffine is not secure: hetero_lr_0, hetero_lr_1 will encrypt with Paillier" in found.notes


def test_both_roots_of_the_job_parameters_of_version_1_count():
    conf = conf_1()
    conf["job_parameters"] = {"common": {"task_cores": 7, "made_up": 1}, "role": {"host": {"0": {"task_cores": 9}}}}
    found = job(conf, dsl(root="args.train"))
    assert [one.job_parameters["task_cores"] for one in found.parts] == [7, 9, 7, 7]
    assert any("made_up" in note for note in found.notes)


@pytest.mark.parametrize("module", ["HomoLR", "HomoNN", "HomoSecureboost", "HomoFeatureBinning"])
def test_modules_over_rows_of_several_parties_need_all_roles_to_learn(module):
    graph = {
        "components": {"reader_0": component("Reader"), "homo_0": component(module, data={"data": ["reader_0.data"]})}
    }
    conf = conf_2()
    conf["component_parameters"]["common"] = {}
    conf["component_parameters"]["role"]["host"] = {"all": conf["component_parameters"]["role"]["guest"]["0"]}
    assert not [one for one in job(conf, graph).notes if "arbiter" in one], "masks hide from an arbiter with rows, too"
    del conf["role"]["arbiter"]
    with pytest.raises(FederatedFileError, match=rf"homo_0 \({module}\) needs a party for arbiter"):
        job(conf, graph)
    alone = conf | {"role": {"guest": [1]}, "component_parameters": {"role": {"guest": {"all": TABLE}}}}
    with pytest.raises(FederatedFileError, match="needs a party for host and arbiter"):
        job(alone | {"job_parameters": {}}, graph)
    loader = {"model_loader_0": component("ModelLoader") | {"output": {"model": ["model"]}}, **graph["components"]}
    loader["homo_0"] = component(module, data={"test_data": ["reader_0.data"]}, model="model_loader_0.model")
    job(alone | {"job_parameters": {}}, {"components": loader})


def test_what_the_dsl_does_not_have_is_told_and_not_refused():
    conf = conf_2()
    conf["component_parameters"]["common"]["evaluation_1"] = {"alpha": 1}
    assert list(job(conf).notes) == [
        "parameters of evaluation_1 have no effect: the DSL has no such component. Did you mean evaluation_0?",
        "party 2 is arbiter and host: it has the key that decrypts what other parties send in hetero_lr_0, hetero_lr_1",
    ]
    conf["role"]["arbiter"] = [4]
    assert len(job(conf).notes) == 1


@pytest.mark.parametrize(
    ("path", "value", "told"),
    [
        (("initiator",), None, "the job has no initiator"),
        (("initiator", "party_id"), 9, "guest 9 is not among the parties of role"),
        (("role", "gest"), [4], "there is no role `gest`"),
        (("role", "host"), [2, 2], "party 2 is named twice"),
        (("role", "guest"), "1", "must be a list"),
        (("role", "guest"), [True], "must be the id of a party"),
        (("role", "guest"), ["1 "], "must be the id of a party, is the text `1 `\n    Write it without blanks: 1"),
        (
            ("initiator", "party_id"),
            " 1",
            "initiator.party_id: must be the id of a party, is the text ` 1`\nWrite it without blanks: 1",
        ),
        (("component_parameters", "role", "host", "0"), {"reader_0": {"x": 1}}, "role.host.0.reader_0.x: Reader has"),
        (("component_parameters", "role", "host", "1|0"), {"reader_0": {"x": 1}}, "host.1|0.reader_0.x: Reader has"),
        (("component_parameters", "role", "host", "all"), {"reader_0": {"x": 1}}, "host.all.reader_0.x: Reader has"),
        (("dsl_version",), 3, "there is no version 3"),
        (("job_parameters", "common", "job_type"), "trian", "there is no job type 'trian'\nDid you mean train?"),
        (("component_parameters", "role", "host", "2"), {}, "there is no party 2: the job has 2 parties of role host"),
        (("component_parameters", "role", "host", "a"), {}, "`a` names no parties"),
        (("component_parameters", "role", "hst"), {}, "there is no role `hst`"),
        (("component_parameters", "common", "hetero_lr_0", "alhpa"), 1, "HeteroLR has no parameter `alhpa`"),
        (("component_parameters", "common", "hetero_lr_0", "init_param", "x"), 1, "HeteroLR has no parameter `x`"),
        (
            ("component_parameters", "common", "hetero_lr_0"),
            1,
            "common.hetero_lr_0: must be an object",
        ),
        (("job_parameters",), [], "must be an object, is a list\nWrite it in braces: { ... }"),
        (("component_parameters", "role", "guest", "0"), {}, "reader_0 has no table at guest 1"),
        (("algorithm_parameters",), {}, "unknown field"),
        (("job_parameters", "common", "task_cores"), "many", "must be a whole number from 1 on, is the text `many`"),
        (("job_parameters", "common", "task_cores"), 0, "must be a whole number from 1 on, is the number 0"),
        (("job_parameters", "common", "task_parallelism"), "0", "must be a whole number from 1 on, is the text `0`"),
        (("job_parameters", "common", "timeout"), -1, "must be a number from 0 on or digits, is the number -1"),
        (("job_parameters", "common", "fail_after"), -0.5, "must be a number from 0 on or digits, is the number -0.5"),
        (("job_parameters", "common", "auto_retries"), 1.5, "a whole number from 0 on or digits, is the number 1.5"),
        (("role", "arbiter"), [], "hetero_lr_0 (HeteroLR) needs a party for arbiter"),
        (("job_parameters", "common", "trigger_rules"), ["a"], "must be an object, is the list `a`"),
        (("job_parameters", "common", "inheritance_info"), "7", "must be an object, is the text `7`"),
        (("job_parameters", "common", "component_limits"), ["a"], "component_limits: must be an object, is a list"),
        (("job_parameters", "common", "component_limits"), {"a": 1}, "component_limits.a: must be an object"),
        (("job_parameters", "common", "component_limits"), {"a": {"retries": 1}}, "limits.a.retries: unknown field"),
        (
            ("job_parameters", "common", "component_limits"),
            {"a": {"timeout": "1"}},
            "component_limits.a.timeout: must be a whole number from 0 on, is the text `1`",
        ),
        (
            ("job_parameters", "common", "component_limits"),
            {"a": {"timeout": True}},
            "component_limits.a.timeout: must be a whole number from 0 on, is the truth value true",
        ),
        (("job_parameters", "common", "run_after"), 7, "run_after: must be text or a list of texts, is the number 7"),
        (("job_parameters", "common", "single_step"), "yes", "single_step: must be true or false, is the text `yes`"),
        (("job_parameters", "common", "priority"), 1000, "must be a whole number from -100 to 100, is the number 1000"),
        (("job_parameters", "common", "priority"), True, "must be a whole number from -100 to 100, is the truth value"),
        (("job_parameters", "role", "host", "1", "priority"), 1.5, "job_parameters.role.host.1.priority: must be"),
        (
            ("component_parameters", "common", "hetero_lr_0", "max_iter"),
            "many",
            "component_parameters.common.hetero_lr_0.max_iter: must be a whole number, is the text `many`",
        ),
        (("component_parameters", "common", "hetero_lr_0", "max_iter"), 1.5, "a whole number, is the number 1.5"),
        (
            ("component_parameters", "common", "hetero_lr_0", "batch_size"),
            5,
            "component_parameters.common.hetero_lr_0.batch_size: must be -1 for all rows, or a whole number from 10 on",
        ),
        (("component_parameters", "common", "hetero_lr_0", "alpha"), True, "must be a number, is the truth value true"),
        (("component_parameters", "common", "hetero_lr_0", "metrics"), [1], "text or a list of texts, is the list `1`"),
        (("component_parameters", "common", "hetero_lr_0", "cv_param"), "no", "must be an object, is the text `no`"),
        (
            ("component_parameters", "common", "hetero_lr_0", "init_param", "fit_intercept"),
            "false",
            "init_param.fit_intercept: must be true or false, is the text `false`",
        ),
        (("component_parameters", "role", "host", "1", "hetero_lr_0", "alpha"), "x", "role.host.1.hetero_lr_0.alpha"),
    ],
)
def test_mistakes_of_a_conf_have_their_place_and_the_right_form(path, value, told):
    conf = conf_2()
    at = conf
    for key in path[:-1]:
        at = at[key]
    if value is None:
        del at[path[-1]]
    else:
        at[path[-1]] = value
    with pytest.raises(FederatedFileError) as caught:
        job(conf)
    assert told in str(caught.value)
    assert str(caught.value).startswith("conf.json:1:")


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ([0.1], "the list has 1 value, and the job has 2 of role host"),
        (0.1, "must be a list"),
        (["rsa", 7], "must be text, is the number 7"),
    ],
)
def test_lists_of_version_1_are_as_long_as_their_role(value, told):
    with pytest.raises(FederatedFileError, match=told):
        job(conf_1(intersection_0={"intersect_method": value}), dsl(root="args.train"))


@pytest.mark.parametrize(
    ("name", "change", "told"),
    [
        ("hetero_lr_0", {"module": "HeteroLr"}, "there is no module `HeteroLr`\nDid you mean HeteroLR?"),
        ("hetero_lr_0", {"module": ""}, "the component has no module"),
        ("evaluation_0", {"input": {"data": {"data": ["hetero_lr_9.data"]}}}, "there is no component `hetero_lr_9`"),
        ("evaluation_0", {"input": {"data": {"data": ["hetero_lr_0.x"]}}}, "hetero_lr_0 has no data output `x`"),
        ("evaluation_0", {"input": {"data": {"data": ["hetero_lr_0"]}}}, "names no output"),
        ("evaluation_0", {"input": {"data": {"dta": ["hetero_lr_0.data"]}}}, "unknown data input"),
        ("evaluation_0", {"input": {"data": {"data": ["args.train"]}}}, "args has the tables of a conf of version 1"),
        ("evaluation_0", {"input": {"model": ["pipeline.hetero_lr_0.lr"]}}, "only a prediction has one"),
        ("hetero_lr_0", {"output": {"model": ["a", "b"]}}, "a component has one model at most"),
        (
            "intersection_0",
            {"input": {"data": {"data": ["evaluation_0.data"]}}},
            "components form a loop: hetero_lr_0 -> evaluation_0 -> intersection_0 -> hetero_lr_0",
        ),
    ],
)
def test_mistakes_of_a_dsl_have_their_place_and_the_right_form(name, change, told):
    graph = dsl()
    graph["components"][name] |= change
    with pytest.raises(FederatedFileError) as caught:
        job(conf_2(), graph)
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("names", "told"),
    [
        ({"hetero_lr_1": "hetero_lr_2"}, "there is no hetero_lr_1"),
        ({"evaluation_0": "evaluation"}, "evaluation has no number at its end"),
        ({"evaluation_0": "hetero_lr_2"}, "hetero_lr stands for HeteroLR in hetero_lr_0 and for Evaluation here"),
    ],
)
def test_names_of_version_1_have_a_prefix_and_a_number(names, told):
    graph = dsl(root="args.train")
    graph["components"] = {names.get(name, name): one for name, one in graph["components"].items()}
    with pytest.raises(FederatedFileError, match=told):
        job(conf_1(), graph)
    read_dsl(json.dumps({"components": {"reader": component("Reader")}}), "dsl.json", version=2)


def test_a_table_that_no_role_has_is_named():
    with pytest.raises(FederatedFileError, match=r"intersection_0 reads args\.trian, and no role has this table"):
        job(conf_1(), dsl(root="args.trian"))


def test_a_predict_dsl_has_its_models_from_the_pipeline_and_its_conf_needs_no_tables():
    graph = dsl()
    graph["components"] = {
        "reader_0": graph["components"]["reader_0"],
        "hetero_lr_0": component("HeteroLR", data={"test_data": ["reader_0.data"]}, model="pipeline.hetero_lr_0.lr"),
    }
    conf = conf_2(component_parameters={})
    conf["job_parameters"]["common"]["job_type"] = "predict"
    read = read_conf(json.dumps(conf), "conf.json")
    found = expand(read_dsl(json.dumps(graph), "dsl.json", version=2, mode="predict"), read, "conf.json")
    assert found.conf.job_type == "predict"


@pytest.mark.parametrize(("version", "root"), [(1, "args.train"), (2, "reader_0.data")])
def test_a_prediction_does_not_train(version, root):
    with pytest.raises(FederatedFileError) as caught:
        read_dsl(json.dumps(dsl(root=root)), "dsl.json", version=version, mode="predict")
    assert "a prediction does not train, and hetero_lr_0 would" in str(caught.value)
    assert "a prediction takes models from pipeline, and no component does" in str(caught.value)
    assert "weft party deploy VERSION" in str(caught.value)


def test_swapped_files_are_told_in_one_sentence():
    with pytest.raises(FederatedFileError) as caught:
        read_conf(json.dumps(dsl()), "dsl.json")
    assert str(caught.value).startswith("dsl.json:1:2: components: this is a DSL, and a conf is expected here\nSwap")
    with pytest.raises(FederatedFileError) as caught:
        read_dsl(json.dumps(conf_2()), "conf.json", version=2)
    assert "role: this is a conf, and a DSL is expected here\nSwap" in str(caught.value)


def test_texts_that_are_no_files_have_paths_and_no_places():
    conf = conf_2()
    conf["component_parameters"]["common"]["hetero_lr_0"] |= {"max_iter": "many", "tol": "small"}
    with pytest.raises(FederatedFileError) as caught:
        read_job(json.dumps(dsl()), json.dumps(conf))
    assert str(caught.value).splitlines() == [
        "component_parameters.common.hetero_lr_0.max_iter: must be a whole number, is the text `many`",
        "component_parameters.common.hetero_lr_0.tol: must be a number, is the text `small`",
        "2 mistakes in the conf",
    ]


def test_each_typed_parameter_exists():
    groups = {**_GROUPS, **{name: names for name, (_, names) in _MODULES.items()}}
    known = {name.rstrip("*") for names in groups.values() for name in names.split()}
    for typed in _kinds():
        owner, _, name = typed.rpartition(".")
        assert name in (groups[owner].split() if owner else known), typed
    assert _job_kinds().keys() <= JOB_PARAMETERS


def test_all_mistakes_are_told_together():
    conf = conf_2(initiator={"role": "guest", "party_id": 5}, more=1)
    conf["role"]["hots"] = [7]
    with pytest.raises(FederatedFileError, match=r"3 mistakes in conf\.json"):
        job(conf)


def test_the_modules_of_the_examples_are_there():
    wanted = {"Reader", "DataIO", "DataTransform", "Intersection", "HeteroLR", "HomoLR", "HeteroSecureBoost", "HomoNN"}
    wanted |= {"Evaluation", "SecureAddExample", "LocalBaseline", "HeteroFeatureBinning", "HeteroFeatureSelection"}
    assert wanted | {"FeatureScale"} <= modules().keys()
    assert modules()["HeteroLR"].roles == ("guest", "host", "arbiter")
    group = modules()["Intersection"].parameters["rsa_params"]
    assert group is not None
    assert "key_length" in group.names


def test_a_plan_tells_modules_that_do_not_run(tmp_path):
    graph = dsl()
    graph["components"]["rsa_0"] = component("Rsa", data={"train_data": ["reader_0.data"]})
    (tmp_path / "conf.json").write_text(json.dumps(conf_2()))
    (tmp_path / "dsl.json").write_text(json.dumps(graph))
    plan = plan_federated(str(tmp_path / "conf.json"), str(tmp_path / "dsl.json"))
    assert [one.name for one in plan.components if not one.exists] == ["rsa_0"]
    assert "rsa_0 cannot run: the module Rsa does not run on Weft yet" in plan.notes


def test_a_plan_is_made_of_files(tmp_path):
    (tmp_path / "conf.json").write_text(json.dumps(conf_2()))
    (tmp_path / "dsl.json").write_text(json.dumps(dsl()))
    plan = plan_federated(str(tmp_path / "conf.json"), str(tmp_path / "dsl.json"))
    assert [one.name for one in plan.components][:2] == ["reader_0", "intersection_0"]
    assert [(one.role, one.id) for one in plan.parties] == [
        ("guest", "1"),
        ("host", "2"),
        ("host", "3"),
        ("arbiter", "2"),
    ]
    with pytest.raises(NotFoundError, match="there is no file"):
        plan_federated(str(tmp_path / "none.json"), str(tmp_path / "dsl.json"))
    (tmp_path / "dsl.json").write_bytes(b"\xff")
    with pytest.raises(FederatedFileError, match="not UTF-8"):
        plan_federated(str(tmp_path / "conf.json"), str(tmp_path / "dsl.json"))


def test_a_component_below_no_index_of_a_party_is_a_note():
    """The toy test of FATE's client writes one so for the host."""
    own = {"guest": {"0": {"secure_add_example_0": {"seed": 123}}}, "host": {"secure_add_example_0": {"seed": 321}}}
    conf: Json = {
        "dsl_version": 2,
        "initiator": {"role": "guest", "party_id": "9999"},
        "role": {"guest": ["9999"], "host": ["10000"]},
        "component_parameters": {"role": own, "common": {"secure_add_example_0": {"data_num": 10}}},
    }
    job = read_job(
        json.dumps({"components": {"secure_add_example_0": {"module": "SecureAddExample"}}}), json.dumps(conf)
    )
    assert [note for note in job.notes if "component_parameters.role.host.secure_add_example_0 has no effect" in note]
    assert [part.components["secure_add_example_0"].parameters.get("seed") for part in job.parts] == [123, None]
    conf["component_parameters"]["role"]["host"] = {"al": {}}
    with pytest.raises(FederatedFileError, match="names no parties"):
        read_job(json.dumps({"components": {"secure_add_example_0": {"module": "SecureAddExample"}}}), json.dumps(conf))


def test_an_output_that_a_module_does_not_make_is_refused_where_it_is_read():
    one = dsl()
    one["components"]["hetero_lr_0"]["output"]["data"] = ["a", "b"]
    one["components"]["evaluation_0"]["input"]["data"]["data"] = ["hetero_lr_0.a"]
    assert job(conf_2(), one)
    one["components"]["evaluation_0"]["input"]["data"]["data"] = ["hetero_lr_0.b"]
    with pytest.raises(FederatedFileError, match="HeteroLR makes 1 data output"):
        job(conf_2(), one)


def test_an_intersection_without_a_host_is_refused():
    conf = conf_2()
    conf["role"].pop("host")
    conf["job_parameters"].pop("role")
    conf["component_parameters"]["role"].pop("host")
    with pytest.raises(FederatedFileError, match="needs a party for host"):
        job(conf)
