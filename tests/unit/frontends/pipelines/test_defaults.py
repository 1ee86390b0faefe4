"""Words for all steps of a file: a step's own words win, and mistakes are told once, at their place."""

import re
from typing import Any

import pytest

import weft
from weft.frontends.pipelines.caching import static_leaves
from weft.frontends.pipelines.check import parse_pipeline
from weft.frontends.pipelines.compiler import PipelineSource, RunDirectories, compile_run, named_images
from weft.frontends.pipelines.language import Pipeline
from weft.frontends.pipelines.layout import NOWHERE, compile_loaded
from weft.frontends.pipelines.loading import load_pipeline, load_text
from weft.frontends.pipelines.planning import how_it_runs
from weft.frontends.pipelines.resolved import ResolvedStep, RunIdentity
from weft.graph.logical import Retry
from weft.model.errors import PipelineError
from weft.model.resources import Resources

TEXT = """
name: p
x-weft:
  defaults:
    timeout_s: 60
    retry: {user: 3, delay_s: 5, on: [75, '64-70']}
    resources: {cpu: 2, memory: 1GiB}
    env: {LEVEL: low, TOKEN: {secret: KEY}}
entry_points:
  plain: {command: 'true'}
  own:
    command: 'true'
    env: {LEVEL: high, MORE: '1'}
    x-weft: {timeout_s: 5, retry: {user: 1, delay_s: null}, resources: {cpu: 4}}
  dag: {entry_points: {inside: {command: 'true'}}}
  copy: {reference: {component: shared}}
components:
  shared: {command: 'true'}
post_process:
  last: {command: 'true'}
"""


def parsed(text: str = TEXT) -> Pipeline:
    return parse_pipeline(text, "run.yaml")


def test_every_step_has_them_in_dags_components_and_at_the_end():
    steps = parsed().steps
    assert list(steps) == ["plain", "own", "dag.inside", "copy", "last"]
    for name in ("plain", "dag.inside", "copy", "last"):
        step = steps[name]
        assert step.timeout_s == 60
        assert step.retry == Retry(user=3, delay_s=5, on=(75, "64-70"))
        assert step.resources == Resources(cpu=2, memory=1 << 30)
        assert {key: text.value for key, text in step.env.items()} == {"LEVEL": "low"}
        assert {key: text.value for key, text in step.secrets.items()} == {"TOKEN": "KEY"}


def test_the_words_of_a_step_win_field_by_field():
    step = parsed().steps["own"]
    assert step.timeout_s == 5
    assert step.retry == Retry(user=1, delay_s=5, on=(75, "64-70"))
    assert step.resources == Resources(cpu=4, memory=1 << 30)
    assert {key: text.value for key, text in step.env.items()} == {"LEVEL": "high", "MORE": "1"}


def test_a_file_without_them_is_as_it_was():
    step = parsed("name: p\nentry_points: {a: {command: 'true'}}\n").steps["a"]
    assert (step.timeout_s, step.retry, step.resources, step.env) == (None, None, None, {})


@pytest.mark.parametrize(
    ("defaults", "line", "said"),
    [
        ("{timeout: 5}", 4, "did you mean `timeout_s`?"),
        ("{retry: {user: -1}}", 4, "from 0 to 1000"),
        ("{retry: 3}", 4, "write `retry: {user: 3}`"),
        ("{retry: {onn: [1]}}", 4, "did you mean `on`?"),
        ("{command: x}", 4, "unknown key"),
        ("[1]", 4, "must be a map"),
    ],
)
def test_a_mistake_is_told_once_at_its_place(defaults, line, said):
    text = f"name: p\nx-weft:\n  as_paddleflow: []\n  defaults: {defaults}\nentry_points:\n  a: {{}}\n  b: {{}}\n"
    with pytest.raises(PipelineError) as caught:
        parsed(text)
    assert (caught.value.line, said in str(caught.value)) == (line, True), str(caught.value)
    assert "mistakes" not in str(caught.value)


@pytest.mark.parametrize(
    ("retry", "said"),
    [
        ("{user: 1, on: [0]}", "between 1 and 255"),
        ("{user: 1, on: ['78-64']}", "the smaller code first"),
        ("{user: 1, on: [many]}", "an exit code or a range"),
        ("{user: 1, on: 75}", r"(?s)must be a list, is the number 75.*write on: \[75, 137\]"),
        ("{user: 1, on: [true]}", "an exit code or a range"),
        ("{user: 1, jitter: 2}", "from 0 to 1"),
        ("{user: 1, factor: 0.5}", "from 1 to 100"),
        ("{user: 1, delay_s: 9, max_delay_s: 5}", "from 9, the `delay_s`"),
    ],
)
def test_a_retry_that_is_none_is_refused(retry, said):
    with pytest.raises(PipelineError, match=said):
        parsed(f"name: p\nentry_points:\n  a: {{x-weft: {{retry: {retry}}}}}\n")


def test_a_training_job_takes_no_resources_for_all_steps():
    text = "name: p\nx-weft: {defaults: {resources: {gpu: 1}, timeout_s: 9}}\nentry_points:\n  a:\n    x-weft:\n"
    job = "      kind: training\n      with: {command: 'true', replicas: {worker: 1}, kind: PyTorchJob}\n"
    step = parsed(text + job).steps["a"]
    assert (step.resources, step.timeout_s) == (None, 9)


DISTRIBUTED = "{PF_JOB_MODE: PS, PF_JOB_PSERVER_COMMAND: x, PF_JOB_WORKER_COMMAND: y}"


@pytest.mark.parametrize(
    ("step", "said"),
    [
        ("x-weft: {environment: {}}", "must name one of venv, conda, pixi"),
        ("x-weft: {environment: {venv: a, conda: b}}", "must name one of"),
        ("x-weft: {environment: {vnv: a}}", "did you mean `venv`?"),
        ("x-weft: {environment: requirements.txt}", "must be a map"),
        ("x-weft: {environment: {venv: '{{file}}'}}", "without templates"),
        ("docker_env: x, x-weft: {environment: {venv: a}}", "cannot stand beside `docker_env`"),
        ("x-weft: {environment: {conda: a}, kind: python, with: {function: 'a:b'}}", "cannot run a function"),
        (f"env: {DISTRIBUTED}, x-weft: {{environment: {{venv: a}}}}", "a distributed step has no environment"),
    ],
)
def test_an_environment_that_is_none_is_refused(step, said):
    with pytest.raises(PipelineError, match=re.escape(said)):
        parsed(f"name: p\nentry_points:\n  a: {{{step}}}\n")


def test_a_step_with_an_image_of_its_own_takes_no_environment_for_all_steps():
    text = "name: p\ndocker_env: all\nx-weft: {defaults: {environment: {venv: r.txt}}}\nentry_points:\n"
    found = parsed(text + "  a: {command: x, docker_env: own}\n  b: {command: x}\n").steps
    assert (found["a"].packages, found["b"].packages is not None) == (None, True)
    with pytest.raises(PipelineError, match="cannot stand beside `docker_env`"):
        parsed(text + "  a: {command: x, docker_env: own, x-weft: {environment: {venv: r.txt}}}\n")


def test_an_environment_for_all_steps_is_left_out_where_none_can_be(tmp_path):
    text = "name: p\nx-weft: {defaults: {environment: {venv: a.txt}}}\ndocker_env: image\nentry_points:\n"
    text += "  a: {command: x}\n  b: {x-weft: {kind: training, with: {command: 'true', replicas: {worker: 1}}}}\n"
    steps = parsed(f"{text}  c: {{env: {DISTRIBUTED}}}\n").steps
    assert (steps["a"].packages is not None, steps["b"].packages, steps["c"].packages) == (True, None, None)
    assert named_images(parsed(text)) == {"a": ""}


def test_the_content_of_the_file_is_in_the_key(tmp_path):
    def key() -> dict[str, Any]:
        file = tmp_path / "run.yaml"
        file.write_text("name: p\nentry_points: {a: {command: x, x-weft: {environment: {venv: r.txt}}}}\n")
        loaded = load_pipeline(str(file))
        (node,) = (one for one in compile_loaded(loaded, "run-000001", NOWHERE).nodes if isinstance(one, ResolvedStep))
        return static_leaves(loaded.pipeline, node, "", str(tmp_path))

    found = []
    for text in ("numpy", "numpy  # comment", "scipy"):
        (tmp_path / "r.txt").write_text(text)
        found.append(key()["packages venv"])
    assert found[0] == found[1] != found[2]


def vertices(text: str) -> dict[str, Any]:
    run = RunIdentity("run-000001", "ada", "/data")
    place = RunDirectories(NOWHERE.logs, NOWHERE.processes)
    return compile_run(parsed(text), run, place, PipelineSource())[1].vertices


def test_the_graph_is_that_of_a_file_with_the_words_at_each_step():
    words = "timeout_s: 60, retry: {user: 3}, resources: {cpu: 2}"
    once = f"name: p\nx-weft: {{defaults: {{{words}}}}}\nentry_points: {{a: {{command: x}}, b: {{command: y}}}}\n"
    each = f"{{command: COMMAND, x-weft: {{{words}}}}}"
    both = ", ".join(f"{name}: {each.replace('COMMAND', what)}" for name, what in (("a", "x"), ("b", "y")))
    assert vertices(once) == vertices(f"name: p\nentry_points: {{{both}}}\n")


def recipe(text: str) -> dict[str, Any]:
    compiled = compile_loaded(load_text(text, "run.yaml"), "run-000001", NOWHERE)
    (node,) = (one for one in compiled.nodes if isinstance(one, ResolvedStep))
    return static_leaves(load_text(text, "run.yaml").pipeline, node, "")


@pytest.mark.parametrize(
    ("step", "said"),
    [
        ("x-weft: {stderr: aside}", "must be together or apart"),
        ("x-weft: {stderr: 3}", "must be text"),
        ("x-weft: {stderr: apart, kind: training, with: {replicas: {worker: 1}}}", "a step of kind training cannot"),
        (f"env: {DISTRIBUTED}, x-weft: {{stderr: apart}}", "a distributed step cannot"),
    ],
)
def test_errors_that_cannot_be_apart_are_refused(step, said):
    with pytest.raises(PipelineError, match=re.escape(said)):
        parsed(f"name: p\nentry_points:\n  a: {{{step}}}\n")


def test_errors_of_all_steps_but_one_are_apart():
    text = "name: p\nx-weft: {defaults: {stderr: apart}}\nentry_points:\n  a: {command: x}\n"
    loaded = load_text(text + "  b: {command: x, x-weft: {stderr: together}}\n", "run.yaml")
    compiled = compile_loaded(loaded, "run-000001", NOWHERE)
    how = {one.name: (one.apart, how_it_runs(one)) for one in compiled.nodes if isinstance(one, ResolvedStep)}
    assert how == {"a": (True, "stderr apart"), "b": (False, "")}


def test_only_what_changes_the_result_is_in_the_key():
    plain = "name: p\nentry_points: {a: {command: x}}\n"
    assert recipe(plain) == recipe(plain + "x-weft: {defaults: {stderr: apart}}\n")
    assert recipe(plain) == recipe(plain + "x-weft: {defaults: {retry: {user: 3, jitter: 1}, timeout_s: 5}}\n")
    assert recipe(plain) == recipe(plain + "x-weft: {defaults: {resources: {cpu: 3}}}\n")
    assert recipe(plain + "x-weft: {defaults: {env: {A: b}}}\n") == {**recipe(plain), "environment A": "b"}


def test_the_plan_tells_how_a_step_runs():
    compiled = compile_loaded(load_text(TEXT, "run.yaml"), "run-000001", NOWHERE)
    how = {one.name: how_it_runs(one) for one in compiled.nodes if isinstance(one, ResolvedStep)}
    assert how["plain"] == (
        "3 retries after exit code 75, 64-70, first after 5 s; at most 60 s; cpu 2, memory 1,073,741,824 bytes"
    )
    assert how["own"].startswith("1 retry after exit code 75, 64-70, first after 5 s; at most 5 s")


def test_in_python():
    @weft.command
    def say():
        return "true"

    @weft.command(retry=weft.Retry(user=1), env={"LEVEL": "high"})
    def own():
        return "true"

    @weft.pipeline(
        defaults={
            "retry": weft.Retry(user=3, delay_s=1, jitter=0.5, on=(75, "64-70")),
            "resources": weft.Resources(cpu=2),
            "timeout_s": 9,
            "env": {"LEVEL": "low"},
        }
    )
    def flow():
        say()
        own()

    steps = parsed(flow().to_yaml()).steps
    assert steps["say"].retry == Retry(user=3, delay_s=1, jitter=0.5, on=(75, "64-70"))
    assert (steps["say"].timeout_s, steps["say"].resources) == (9, Resources(cpu=2))
    assert steps["own"].retry == Retry(user=1)
    assert [steps[name].env["LEVEL"].value for name in ("say", "own")] == ["low", "high"]
