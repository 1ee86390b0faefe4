import json
from contextlib import nullcontext

import pytest

from weft.frontends.federated.compiler import compile_components
from weft.frontends.federated.planning import read_job
from weft.frontends.federated.schema import ComponentLimits
from weft.frontends.federated.selection import (
    check_sources,
    component_limits,
    first_steps,
    job_priority,
    jobs_before,
    selected_components,
    trigger_rules,
)
from weft.graph.logical import Outcome
from weft.model.errors import UsageError

DSL = {
    "components": {
        "reader_0": {"module": "Reader", "output": {"data": ["data"]}},
        "a": {"module": "DataTransform", "input": {"data": {"data": ["reader_0.data"]}}, "output": {"data": ["data"]}},
        "b": {"module": "DataTransform", "input": {"data": {"data": ["reader_0.data"]}}, "output": {"data": ["data"]}},
        "union_0": {
            "module": "Union",
            "input": {"data": {"data": ["a.data", "b.data"]}},
            "output": {"data": ["data"]},
        },
    }
}


def job(**parameters):
    conf = {
        "dsl_version": 2,
        "initiator": {"role": "guest", "party_id": 1},
        "role": {"guest": [1]},
        "job_parameters": {"common": parameters},
        "component_parameters": {"common": {"reader_0": {"table": {"name": "t", "namespace": "n"}}}},
    }
    return read_job(json.dumps(DSL), json.dumps(conf))


@pytest.mark.parametrize(
    ("parameters", "found"),
    [
        ({}, {"reader_0", "a", "b", "union_0"}),
        ({"run_to": "a"}, {"reader_0", "a"}),
        ({"run_only": ["b", "union_0"]}, {"b", "union_0"}),
        ({"run_only": "b"}, {"b"}),
    ],
)
def test_components_are_selected(parameters, found):
    assert selected_components(job(**parameters)) == found


def test_the_rule_of_a_component_is_that_of_its_edges():
    one = job(trigger_rules={"union_0": "one_success", "a": "all_done"})
    graph = compile_components(one, "job", print, selected=one.dsl.order, rules=trigger_rules(one))
    outcomes = {(edge.src, edge.dst): edge.scheduling.outcome for edge in graph.edges}
    assert outcomes == {
        ("reader_0", "a"): Outcome.ANY,
        ("reader_0", "b"): Outcome.SUCCESS,
        ("a", "union_0"): Outcome.ONE_SUCCESS,
        ("b", "union_0"): Outcome.ONE_SUCCESS,
    }


def test_order_leads_over_components_that_do_not_run():
    one = job(run_only=["reader_0", "union_0"])
    graph = compile_components(one, "job", print, selected=selected_components(one), rules={})
    assert [(edge.src, edge.dst) for edge in graph.edges] == [("reader_0", "union_0")]


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"run_to": "reader_1"}, "run_to names 'reader_1'"),
        ({"run_only": ["z"]}, "run_only names 'z'"),
        ({"run_only": ["a"], "run_to": "a"}, "exclude each other"),
        ({"trigger_rules": {"a": "sometimes"}}, "trigger_rules.a is 'sometimes'"),
        ({"trigger_rules": {"z": "all_done"}}, "trigger_rules names 'z'"),
        ({"component_limits": {"z": {}}}, "component_limits names 'z'"),
    ],
)
def test_mistakes_are_named(parameters, message):
    one = job(**parameters)

    def read():
        selected_components(one)
        trigger_rules(one)
        component_limits(one)

    with pytest.raises(UsageError, match=message):
        read()


@pytest.mark.parametrize(
    ("parameters", "missing"),
    [
        ({"run_only": ["a"]}, "run_only names a, and not reader_0, whose output it needs"),
        ({"run_only": ["reader_0", "union_0"]}, "run_only names union_0, and not a, b, whose output it needs"),
        ({"run_only": ["reader_0", "a"]}, ""),
        ({"run_only": ["a"], "inheritance_info": {"job_id": "1", "component_list": ["reader_0"]}}, ""),
        ({"run_to": "a"}, ""),
        ({}, ""),
    ],
)
def test_what_runs_has_its_sources(parameters, missing):
    with pytest.raises(UsageError, match=missing) if missing else nullcontext():
        check_sources(job(**parameters))


def test_limits_of_a_component_go_over_those_of_the_job():
    one = job(auto_retries=2, auto_retry_delay=1, component_limits={"a": {"auto_retries": 0, "timeout": 60}})
    limits = component_limits(one)
    assert limits["a"] == ComponentLimits(0, 1.0, 60.0)
    assert limits["b"] == ComponentLimits(2, 1.0, 0.0)
    graph = compile_components(one, "job", print, selected=one.dsl.order, rules={}, limits=limits)
    assert {name: vertex.retry.user for name, vertex in graph.vertices.items()} == {
        "reader_0": 2,
        "a": 0,
        "b": 2,
        "union_0": 2,
    }


def test_other_fields_of_scheduling_are_read():
    assert (jobs_before(job(run_after="x")), jobs_before(job(run_after=["x", "y", "x"]))) == (["x"], ["x", "y"])
    assert (first_steps(job()), first_steps(job(single_step=True))) == (None, 1)
    assert (job_priority(job()), job_priority(job(priority=-3))) == (0, -3)
