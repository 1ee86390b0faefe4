"""Order and cycles; the other rules are in the fixtures."""

import pytest

from weft.frontends.pipelines.check import in_order, parse_pipeline
from weft.frontends.pipelines.language import Pipeline, Step
from weft.frontends.pipelines.notices import notes
from weft.frontends.pipelines.resolve import resolve
from weft.frontends.pipelines.resolved import ResolvedStep
from weft.model.errors import PipelineError


def pipeline_of(deps: dict[str, str]) -> Pipeline:
    """A pipeline from a map of step to its dependencies, as text."""
    lines = "".join(f"  {name}: {{deps: '{text}'}}\n" for name, text in deps.items())
    return parse_pipeline(f"name: p\nentry_points:\n{lines}", "run.yaml")


def test_order_follows_dependencies_then_the_file():
    pipeline = pipeline_of({"d": "b,c", "b": "a", "c": "a", "a": "", "e": ""})
    assert [step.name for step in in_order(pipeline.entry_points)] == ["a", "e", "b", "c", "d"]


def test_a_dependency_named_twice_counts_once():
    assert [step.name for step in in_order(pipeline_of({"b": "a, a", "a": ""}).entry_points)] == ["a", "b"]


def test_separate_cycles_are_each_reported():
    with pytest.raises(PipelineError) as caught:
        pipeline_of({"a": "b", "b": "a", "c": "d", "d": "c", "e": "e", "f": "a"})
    message = caught.value.message
    assert message.count("wait for each other") == 3
    for cycle in ("a → b → a", "c → d → c", "e → e"):
        assert cycle in message


def test_a_long_chain_needs_no_deep_stack():
    chain = {f"s{n}": f"s{n - 1}" if n else "" for n in range(5000)}
    assert len(in_order(pipeline_of(chain).entry_points)) == 5000


def test_unread_steps_may_be_named():
    with pytest.raises(PipelineError) as caught:
        parse_pipeline(
            "name: p\nentry_points:\n  d: [1]\n"
            "  b: {deps: d, artifacts: {input: {i: '{{d.o}}'}}, parameters: {q: '{{d.q}}'}}\ndisabled: d\n",
            "run.yaml",
        )
    messages = [line for line in caught.value.message.splitlines() if "run.yaml:" in line]
    assert ["must be a map" in line or "is disabled" in line for line in messages] == [True] * len(messages)


def job(env: str, extra: str = "") -> Pipeline:
    """A pipeline of one step `a`, whose command does nothing, with an environment in YAML."""
    return parse_pipeline(f"name: p\nentry_points:\n  a: {{command: 'true', env: {{{env}}}}}\n{extra}", "run.yaml")


def test_a_disabled_distributed_job_is_no_mistake():
    assert job("PF_JOB_MODE: PS", "  b: {command: 'true'}\ndisabled: a\n").disabled


@pytest.mark.parametrize("env", ["PF_JOB_TYPE: single", "PF_JOB_TYPE: vcjob", "PF_JOB_MODE: ''", "PF_JOB_MODE: Pod"])
def test_a_job_of_one_container_is_a_command(env):
    step = job(env).entry_points["a"]
    assert isinstance(step, Step)
    assert step.shell_text.value == "true"


def test_a_job_of_ray_needs_an_entry_point():
    with pytest.raises(PipelineError, match="a job of Ray needs an entry point"):
        job("PF_JOB_TYPE: distributed, PF_JOB_FRAMEWORK: ray")


def test_the_entry_point_of_a_job_of_ray_is_its_command():
    ray = "PF_JOB_TYPE: distributed, PF_JOB_FRAMEWORK: Ray, RAY_JOB_ENTRY_POINT: 'echo {{PF_RUN_ID}} > made'"
    pipeline = job(ray)
    (step,) = resolve(pipeline, run_id="run-1", user="ada", root="/data")
    assert isinstance(step, ResolvedStep)
    assert str(step.command) == "echo run-1 > made"
    assert notes([step], "") == ["RAY_JOB_ENTRY_POINT runs as a command on this machine, not on a Ray cluster: a"]
