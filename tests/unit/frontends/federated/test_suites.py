"""Suites of jobs: what their files say, the order of tasks, and what a conf takes from the results of others."""

import json

import pytest

from weft.frontends.federated.suites import (
    SuiteTask,
    TrainedModel,
    in_order,
    initiator_of,
    parties_of,
    read_place,
    read_suite,
    with_job_parameters,
    with_loaders,
    with_model,
    with_parties,
)
from weft.model.errors import FederatedFileError, NotFoundError

MODEL = TrainedModel("m", "7.1", "7", {})
CONF = {
    "dsl_version": 2,
    "initiator": {"role": "guest", "party_id": 9999},
    "role": {"guest": [9999], "host": [10000, 10001], "arbiter": [10000]},
}


def data(**changes):
    found = {"file": "a.csv", "head": 1, "table_name": "t", "namespace": "n", "role": "host_1"} | changes
    return {key: value for key, value in found.items() if value is not None}


def read(**changes):
    suite = {"data": [data()], "tasks": {"one": {"conf": "c.json", "dsl": "d.json"}}} | changes
    return read_suite(json.dumps(suite, indent=1), "suite.json")


def told(**changes):
    with pytest.raises(FederatedFileError) as caught:
        read(**changes)
    return str(caught.value)


def task(name, **deps):
    return SuiteTask(name, "c.json", "d.json", **deps)


def names(tasks, *only):
    return [one.name for one in in_order(tasks, only)]


def test_a_suite_names_data_with_the_fields_of_its_upload():
    (table,) = read(data=[data(work_mode=1, extend_sid=True)]).tables
    assert (table.place, table.file, table.namespace, table.name) == (("host", 1), "a.csv", "n", "t")
    assert table.fields == {"head": 1, "extend_sid": True}


def test_data_in_a_path_takes_its_file_from_the_address():
    path = {"engine": "PATH", "address": {"path": "b.csv"}, "name": "u"}
    (table,) = read(data=[data(file=None, table_name=None, **path)]).tables
    assert (table.file, table.name) == ("b.csv", "u")


def test_tasks_name_what_they_take_from_others():
    others = {name: {"conf": "c.json"} for name in ("a", "b", "c", "d", "e")}
    last = {
        "conf": "c.json",
        "deps": "a",
        "model_deps": "b",
        "model_loader_deps": "c",
        "cache_deps": "d",
        "data_deps": {"e": {"guest_0": {"reader_0": "union_0"}}},
    }
    suite = read(tasks=others | {"last": last})
    assert suite.tasks[-1].model_of == "b"
    assert suite.tasks[-1].after == ("b", "c", "d", "e")
    assert suite.tasks[0].after == ()


def test_scripts_of_a_suite_are_told():
    assert read(pipeline_tasks={"s": {"script": "s.py"}}).notes == ("pipeline_tasks.s does not run: it is a script",)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tasks": {}}, "suite.json:11:2: tasks: the suite has no tasks"),
        ({"tasks": {"a": {}}}, "tasks.a.conf: the task needs a conf"),
        ({"tasks": {"a": {"conf": "c", "deps": "aa"}}}, "takes what the task 'aa' makes"),
        ({"data": [data(role="bank 3")]}, "data.role: names no party: 'bank 3'"),
        ({"data": [data(file=None)]}, "data.file: the data needs file"),
        ({"data": [data(namespace=None)]}, "data.namespace: the data needs namespace"),
    ],
)
def test_mistakes_have_their_place(changes, message):
    assert message in told(**changes)
    assert told(**changes).startswith("suite.json:")


def test_tasks_run_in_the_order_of_the_file_after_those_that_they_need():
    tasks = [task("p", model_of="t"), task("x"), task("t"), task("q", data_of=("p", "x"))]
    assert names(tasks) == ["t", "p", "x", "q"]
    assert names(tasks, "q") == ["t", "p", "x", "q"]
    assert names(tasks, "x", "p") == ["x", "t", "p"]


def test_a_task_that_does_not_exist_is_refused():
    with pytest.raises(NotFoundError, match="no task 'training'"):
        in_order([task("train")], ["training"])


def test_tasks_that_wait_for_each_other_are_refused():
    with pytest.raises(FederatedFileError, match="a -> b -> a"):
        in_order([task("a", model_of="b"), task("b", model_of="a")])


@pytest.mark.parametrize(
    ("text", "place"), [("guest_0", ("guest", 0)), ("host_12", ("host", 12)), ("guest", ("guest", 0)), ("", None)]
)
def test_places_are_a_role_and_a_number(text, place):
    assert read_place(text) == place


def test_parties_are_replaced_by_place_and_the_initiator_with_them():
    places = {("guest", 0): "1", ("host", 0): "2", ("host", 1): "bank", ("arbiter", 0): "2"}
    found = with_parties(CONF, places)
    assert found["role"] == {"guest": [1], "host": [2, "bank"], "arbiter": [2]}
    assert found["initiator"] == {"role": "guest", "party_id": 1}
    assert parties_of(found) == places
    assert initiator_of(CONF) == "9999"


def test_each_place_needs_a_party():
    with pytest.raises(NotFoundError, match="no party is host_1"):
        with_parties(CONF, {("guest", 0): "1", ("host", 0): "2", ("arbiter", 0): "2"})


def test_job_parameters_stand_where_the_version_has_them():
    assert with_job_parameters(CONF, timeout=5)["job_parameters"] == {"common": {"timeout": 5}}
    flat = {"role_parameters": {}, "job_parameters": {"work_mode": 1}}
    assert with_job_parameters(flat, timeout=5)["job_parameters"] == {"work_mode": 1, "timeout": 5}


def test_a_task_with_a_model_predicts_unless_it_says_otherwise():
    names = {"model_id": "m", "model_version": "7.1"}
    assert with_model(CONF, MODEL)["job_parameters"]["common"] == names | {"job_type": "predict"}
    trains = CONF | {"job_parameters": {"common": {"job_type": "train"}}}
    assert with_model(trains, MODEL)["job_parameters"]["common"] == names | {"job_type": "train"}


def test_loaders_take_the_model_or_the_job_of_another_task():
    dsl = {"components": {"m_0": {"module": "ModelLoader"}, "c_0": {"module": "CacheLoader"}, "r_0": {"module": "R"}}}
    found = with_loaders(CONF, dsl, model=MODEL, cache=TrainedModel("", "", "5", {}))
    loaded = {"m_0": {"model_id": "m", "model_version": "7.1"}, "c_0": {"job_id": "5"}}
    assert found["component_parameters"]["common"] == loaded
    assert with_loaders(CONF, dsl, model=None, cache=None) == CONF
