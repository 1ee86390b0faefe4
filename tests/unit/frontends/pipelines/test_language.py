"""The records that a file becomes, with their defaults and positions."""

import pytest

from weft.documents.problems import FilePosition
from weft.frontends.pipelines.check import parse_pipeline
from weft.frontends.pipelines.language import CacheDefinition, FsScope, Pipeline, Step
from weft.frontends.pipelines.options import Surroundings
from weft.frontends.pipelines.parameters import convert
from weft.graph.logical import Retry
from weft.model.errors import PipelineError
from weft.model.resources import Resources


def parse(text: str) -> Pipeline:
    return parse_pipeline(text, "run.yaml")


def one_step(body: str) -> Step:
    """The only step of a pipeline, from the lines of its map."""
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    return parse(f"name: p\nentry_points:\n  a:\n    command: x\n{lines}").steps["a"]


def test_defaults():
    pipeline = parse("name: p\nentry_points:\n  a: {}\n")
    step = pipeline.steps["a"]
    assert pipeline.parallelism == 10
    assert pipeline.failure_options.strategy == "fail_fast"
    assert pipeline.main_fs is None
    assert (step.command.value, step.docker_env, step.deps, step.timeout_s, step.retry) == ("", "", (), None, None)
    assert (step.cache.enable, step.cache.max_expired_time, step.cache.fs_scope) == (False, -1, ())


@pytest.mark.parametrize(("given", "used"), [(-3, 10), (0, 10), (1, 1), (20, 20), (21, 20), (10**9, 20)])
def test_parallelism_is_bounded(given, used):
    assert parse(f"name: p\nparallelism: {given}\nentry_points: {{a: {{}}}}\n").parallelism == used


@pytest.mark.parametrize(
    ("given", "workers", "used"),
    [
        ("", 0, 10),
        ("", 3, 3),
        ("", 40, 40),
        ("parallelism: 4", 0, 4),
        ("parallelism: 4", 3, 3),
        ("parallelism: 4", 9, 4),
    ],
)
def test_workers_bound_what_runs_at_a_time(given, workers, used):
    pipeline = parse(f"name: p\n{given}\nentry_points: {{a: {{}}}}\n")
    assert Surroundings(workers=workers).steps_at_a_time(pipeline) == used


def test_null_counts_as_absent():
    pipeline = parse("name: p\ncache:\ndisabled:\nentry_points:\n  a: {command: , deps: , env: , cache: {enable: }}\n")
    assert pipeline.steps["a"].cache.given == frozenset()


def test_empty_values_of_later_keys_are_no_mistake():
    text = (
        "name: p\ncomponents: {}\npost_process:\nentry_points:\n  a: {condition: '', loop_argument: [], extra_fs: [], "
    )
    assert parse(text + "reference: {component: ''}, type: step, name: other}\n").steps["a"].name == "a"


def test_values_know_their_place():
    step = one_step("deps: ''\nparameters:\n  n: {type: int, default: 4}\nenv:\n  X: y\nartifacts:\n  output: [o]")
    assert step.mark == FilePosition(3, 3)
    assert step.command.mark == FilePosition(4, 14)
    assert step.parameters["n"].mark == FilePosition(7, 31)
    assert step.env["X"].mark == FilePosition(9, 10)
    assert step.outputs[0].mark == FilePosition(11, 16)


@pytest.mark.parametrize(
    ("written", "kind", "value"),
    [
        ("text", None, "text"),
        ("''", None, ""),
        ("3", None, 3),
        ("[1, [a, 2.5]]", None, (1, ("a", 2.5))),
        ("[]", None, ()),
        ("{type: int, default: 3}", "int", 3),
        ("{type: int, default: 0}", "int", 0),
        ("{type: float, default: 3}", "float", 3.0),
        ("{type: path, default: ./a-b/c_d}", "path", "./a-b/c_d"),
        ("{type: list, default: [1]}", "list", (1,)),
        ("{type: string, default: '5'}", "string", "5"),
        ("{default: 5}", None, 5),
        ("{type: int, default: '{{PF_RUN_ID}}'}", "int", "{{PF_RUN_ID}}"),
    ],
)
def test_parameters(written, kind, value):
    parameter = one_step(f"parameters: {{x: {written}}}").parameters["x"]
    assert (parameter.kind, parameter.value) == (kind, value)
    assert type(parameter.value) is type(value)


@pytest.mark.parametrize(
    ("kind", "given", "value"),
    [
        ("int", "20", 20),
        ("int", 20, 20),
        ("float", "1e-3", 0.001),
        ("float", 2, 2.0),
        ("string", 5, "5"),
        ("string", 1e6, "1000000"),
        ("path", "a/b", "a/b"),
        ("list", '[1, ["a"]]', (1, ("a",))),
    ],
)
def test_convert(kind, given, value):
    assert convert(kind, given) == value
    assert type(convert(kind, given)) is type(value)


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        ("int", "2.5"),
        ("int", "x"),
        ("int", "007"),
        ("int", "true"),
        ("float", "nan"),
        ("float", (1,)),
        ("path", "a b"),
        ("path", ""),
        ("path", "a\n"),
        ("list", "[1"),
        ("list", "1"),
        ("list", "[true]"),
        ("list", "[" * 2000),
    ],
)
def test_convert_refuses(kind, given):
    with pytest.raises(ValueError, match="must be"):
        convert(kind, given)


@pytest.mark.parametrize(("kind", "given"), [("int", "1" * 30), ("int", f"-{2**63 + 1}"), ("list", f"[1, {2**64}]")])
def test_a_number_that_is_too_large_is_told_so(kind, given):
    with pytest.raises(ValueError, match="must have at most 64 bits"):
        convert(kind, given)
    assert convert("float", "1" * 30 + ".0") == float("1" * 30)


def test_cache_of_a_step_overrides_field_by_field_and_appends_scopes():
    pipeline = parse(
        """
name: p
cache: {enable: true, max_expired_time: 600, fs_scope: [{name: f, path: shells}]}
entry_points:
  a: {cache: {max_expired_time: "300", fs_scope: [{name: f, path: "x, y"}]}}
  b: {}
  c: {cache: {enable: false, max_expired_time: -1}}
"""
    )
    a, b, c = (step.cache.over(pipeline.cache) for step in pipeline.steps.values())
    assert (a.enable, a.max_expired_time) == (True, 300)
    assert [(scope.name, scope.paths) for scope in a.fs_scope] == [("f", ("x", "y")), ("f", ("shells",))]
    assert (b.enable, b.max_expired_time, len(b.fs_scope)) == (True, 600, 1)
    assert (c.enable, c.max_expired_time, len(c.fs_scope)) == (False, -1, 1)


def test_an_empty_expiry_of_a_step_means_for_ever_whatever_the_pipeline_says():
    """`checkStepCache` of PaddleFlow."""
    pipeline = parse("name: p\ncache: {max_expired_time: 60}\nentry_points: {a: {cache: {max_expired_time: ''}}}\n")
    assert pipeline.steps["a"].cache.over(pipeline.cache).max_expired_time == -1


def test_a_scope_without_path_is_the_whole_file_system():
    step = one_step("cache: {fs_scope: [{name: f}]}")
    assert step.cache.fs_scope == (FsScope("f", ("/",), step.cache.fs_scope[0].mark, paths_given=False),)


def test_cache_defaults_complete_each_other():
    assert CacheDefinition().over(CacheDefinition()) == CacheDefinition()


def test_extension():
    step = one_step("x-weft: {timeout_s: 5, retry: {user: 3}}")
    assert step.timeout_s == 5.0
    assert step.retry == Retry(user=3)


def test_a_step_says_what_it_takes():
    step = one_step("x-weft: {resources: {cpu: 2, memory: 1.5GiB, gpu: 1, gpu_type: A100}}")
    assert step.resources == Resources(cpu=2, memory=3 << 29, gpu=1, gpu_type="A100")
    assert one_step("x-weft: {resources: {memory: 512}}").resources == Resources(memory=512)
    named = one_step("x-weft: {resources: {custom: {licence: 1, fpga: 0.5}}}").resources
    assert named == Resources(custom=(("licence", 1.0), ("fpga", 0.5)))


@pytest.mark.parametrize(
    ("resources", "said"),
    [
        ("{cpu: -1}", "cores from 0"),
        ("{cpu: two}", "a number"),
        ("{custom: {a: 0}}", "a number above 0"),
        ("{custom: {a: x}}", "a number"),
        ("{custom: licence}", "custom"),
        ("{gpu: 1.5}", "an integer"),
        ("{memory: lots}", "such as 512MiB"),
        ("{memory: -1}", "such as 512MiB"),
        ("{memory: '512'}", "must have a unit\n.* write 512MiB"),
        ("{memory: [1]}", "such as 512MiB"),
        ("{cores: 2}", "cores"),
    ],
)
def test_resources_that_are_none_are_refused(resources, said):
    with pytest.raises(PipelineError, match=said):
        one_step(f"x-weft: {{resources: {resources}}}")


def test_every_mistake_is_reported_in_file_order():
    with pytest.raises(PipelineError) as caught:
        parse("name: 5\nentry_points:\n  a:\n    comand: x\n    deps: z\n    env: {X: '{{y}}'}\n")
    error = caught.value
    assert (error.line, error.column, error.path) == (1, 7, "name")
    assert str(error).splitlines() == [
        "run.yaml:1:7: name: must be text, is the number 5",
        "    put it in quotes",
        "run.yaml:4:5: entry_points.a.comand: unknown key",
        "    did you mean `command`?",
        "run.yaml:5:11: entry_points.a.deps: there is no step `z`",
        "    steps here: a",
        "run.yaml:6:14: entry_points.a.env.X: `{{y}}`: this step has nothing of that name",
        "    known here: PF_RUN_ID, PF_STEP_NAME, PF_USER_NAME, PF_LOOP_ARGUMENT",
        "4 mistakes in run.yaml",
    ]


def test_a_bad_parameter_is_reported_once():
    with pytest.raises(PipelineError) as caught:
        one_step("parameters: {flag: true}\nenv: {F: '{{flag}}'}")
    assert "mistakes" not in str(caught.value)


def test_reading_stops_after_fifty_mistakes():
    keys = "".join(f"key{n}: 1\n" for n in range(200))
    with pytest.raises(PipelineError, match="reading stopped there") as caught:
        parse(keys)
    assert caught.value.message.count("unknown key") == 50


def test_a_message_is_one_line_whatever_the_key():
    with pytest.raises(PipelineError) as caught:
        parse('"a\\nb\\e[31m": 1\nname: p\nentry_points: {a: {}}\n')
    assert caught.value.message == "run.yaml:1:1: `a\\nb\\x1b[31m`: unknown key"


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("deps: [b, c]", "write `deps: b,c`"),
        ("deps: [b, [c]]", "write names with commas between"),
        ("env: [A=1]", "write `env: {NAME: value}`"),
        ("parameters: [x]", "write `parameters: {name: value}`"),
        ("artifacts: {output: out}", "write `output: [out]`"),
        ("artifacts: {input: [x]}", "write `input: {name: '{{step.output}}'}`"),
        ("cache: true", "write `cache: {enable: true}`"),
        ("needs: b", "did you mean `deps`?"),
        ("depends-on: b", "did you mean `deps`?"),
        ("retries: 3", "did you mean `x-weft: {retry: {user: ...}}`?"),
        ("disabled: true", "write `disabled: a` at the top of the file"),
    ],
)
def test_a_field_in_the_form_of_another_system_gets_a_hint(text, hint):
    with pytest.raises(PipelineError) as caught:
        one_step(text)
    assert hint in str(caught.value)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("entry_points: [{a: {command: x}}]", "write each step as a key, without the -"),
        ("entry_points: {a: {command: [echo, hi]}}", "write one text: `command: echo hi`, or several lines below"),
        ("entry_points: {a: echo hi}", "write `a: {command: echo hi}`"),
        ("entry_points: {a: }", "indent its fields, such as `command`, below it"),
        ("entry_points: {a: , command: x}", "`command` is a field of a step: indent it below the name of one"),
        ("entry_points:\na: {command: x}", "if it is a step, indent it below entry_points"),
        ("steps: {a: {command: x}}", "did you mean `entry_points`?"),
        ("entry_points: {a: {}}\ndisabled: [a]", "write `disabled: a`"),
        ("entry_points: {a: {}}\nfailure_options: continue", "write `failure_options: {strategy: continue}`"),
    ],
)
def test_a_file_in_the_form_of_another_system_gets_a_hint(text, hint):
    with pytest.raises(PipelineError) as caught:
        parse(f"name: p\n{text}\n")
    assert hint in str(caught.value)


def test_a_list_is_no_pipeline():
    with pytest.raises(PipelineError) as caught:
        parse("- a\n")
    assert caught.value.hint.startswith("a pipeline begins with `name: ...` and has its steps below `entry_points:`")
    assert "a training job begins with `apiVersion: ...` and `kind: ...`" in caught.value.hint
