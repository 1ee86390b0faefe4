"""What a run makes of a pipeline: parameters, overrides, cache options, and refused arguments."""

from collections.abc import Mapping

import pytest

from weft.frontends.pipelines.check import parse_pipeline
from weft.frontends.pipelines.language import Pipeline
from weft.frontends.pipelines.overrides import apply_overrides
from weft.frontends.pipelines.resolve import resolve
from weft.model.errors import InputLimitError, PipelineError, UsageError

TEXT = """
name: p
entry_points:
  a:
    command: run {{n}} {{rate}} {{items}} {{where}} {{note}}
    parameters:
      n: 15
      rate: {type: float, default: 0.5}
      items: [1, 2]
      where: {type: path, default: ./data}
      note: "step {{PF_STEP_NAME}}"
  b:
    deps: a
    command: again {{n}} {{copy}} {{count}}
    parameters:
      n: 1
      copy: "{{a.items}}"
      count: {type: int, default: "{{a.n}}"}
"""
PIPELINE = parse_pipeline(TEXT, "run.yaml")


def commands(overrides: Mapping[str, object] | None = None, pipeline: Pipeline = PIPELINE) -> dict[str, str]:
    steps = resolve(apply_overrides(pipeline, overrides or {}), run_id="run-000001", user="ada", root="/data")
    return {step.name: str(step.command) for step in steps}


def test_a_mistake_in_a_value_given_to_the_run_is_told_of_that_value_and_not_of_the_file():
    text = """
name: p
entry_points:
  a: {command: "echo {{s}} {{n}}", parameters: {s: text, n: 5}}
"""
    with pytest.raises(PipelineError) as one:
        apply_overrides(parse_pipeline(text, "p.yaml"), {"s": "a{{n}}b"})
    own = "entry_points.a.parameters.s: `{{n}}`: a parameter cannot be made from another of its own step"
    assert one.value.message == f"parameter s of the run: {own}"
    with pytest.raises(PipelineError) as two:
        apply_overrides(parse_pipeline(text, "p.yaml"), {"s": "a{{n}}b", "a.n": "{{s}}"})
    assert two.value.message.startswith("parameter a.n of the run: entry_points.a.parameters.n: `{{s}}`: ")
    assert f"parameter s of the run: {own}" in two.value.message.splitlines()


def test_types_survive_whole_templates():
    steps = {step.name: step for step in resolve(PIPELINE, run_id="run-000001", user="ada", root="/data")}
    assert steps["b"].parameters == {"n": 1, "copy": (1, 2), "count": 15}
    assert commands() == {"a": "run 15 0.5 [1, 2] ./data step a", "b": "again 1 [1, 2] 15"}


def test_system_variables_win_over_parameters():
    text = "name: p\nentry_points: {a: {command: 'x {{PF_RUN_ID}}', parameters: {PF_RUN_ID: mine}}}\n"
    assert commands(pipeline=parse_pipeline(text, "f")) == {"a": "x run-000001"}


def test_override_of_every_step_and_of_one():
    assert commands({"n": "7"}) == {"a": "run 7 0.5 [1, 2] ./data step a", "b": "again 7 [1, 2] 7"}
    assert commands({"b.n": "8", "n": 7})["b"] == "again 8 [1, 2] 7"


def test_overrides_are_converted():
    given = {"rate": "1e-2", "items": '["x", 3]', "where": "/else", "note": "007"}
    assert commands(given)["a"] == 'run 15 0.01 ["x", 3] /else 007'
    assert apply_overrides(PIPELINE, {"a.n": "20"}).steps["a"].parameters["n"].value == 20
    assert apply_overrides(PIPELINE, {"items": [1, [2]]}).steps["a"].parameters["items"].value == (1, (2,))


def test_an_override_may_hold_a_template():
    assert commands({"note": "{{PF_RUN_ID}}", "a.n": 2, "count": "{{a.n}}"}) == {
        "a": "run 2 0.5 [1, 2] ./data run-000001",
        "b": "again 1 [1, 2] 2",
    }


def test_a_plain_number_takes_text():
    pipeline = apply_overrides(PIPELINE, {"b.n": "many"})
    assert pipeline.steps["b"].parameters["n"].value == "many"


def test_the_pipeline_itself_is_not_changed():
    commands({"n": "7"})
    assert PIPELINE.steps["a"].parameters["n"].value == 15


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("rat", "1", "no parameter `rat`"),
        ("c.n", "1", "no parameter `c.n`"),
        ("a.count", "1", "no parameter `a.count`"),
        ("dag.a.n", "1", "no parameter `dag.a.n`"),
        ("rate", "fast", "must be a number"),
        ("rate", "nan", "must be a number"),
        ("where", "a b", "must be a path"),
        ("items", "1,2", "must be a list"),
        ("n", True, "must be text, a finite number"),
        ("n", None, "must be text, a finite number"),
        ("n", float("inf"), "must be text, a finite number"),
        ("n", 2**63, "must have at most 64 bits"),
        ("n", {"a": 1}, "must be text, a finite number"),
        ("note", "a\0b", "not allowed"),
        ("note", "x" * 70_000, "64 KiB"),
    ],
)
def test_bad_overrides(key, value, message):
    with pytest.raises(UsageError, match=message):
        apply_overrides(PIPELINE, {key: value})


def test_an_unknown_override_names_the_nearest():
    with pytest.raises(UsageError) as caught:
        apply_overrides(PIPELINE, {"a.rte": "1"})
    assert caught.value.hint == "did you mean a.rate?"


def test_an_override_with_a_bad_template_names_the_parameter():
    with pytest.raises(PipelineError) as caught:
        apply_overrides(PIPELINE, {"note": "{{PF_NOTHING}}"})
    assert caught.value.path == "entry_points.a.parameters.note"


def test_a_template_that_does_not_fit_its_type():
    with pytest.raises(PipelineError, match=r"must be an integer \(type int\), but `{{a.n}}` is `2.5`") as caught:
        commands({"a.n": "2.5"})
    assert (caught.value.line, caught.value.path) == (18, "entry_points.b.parameters.count")


def test_a_list_that_contains_itself_is_refused():
    items: list[object] = []
    items.append(items)
    with pytest.raises(UsageError):
        apply_overrides(PIPELINE, {"items": items})


@pytest.mark.parametrize("run_id", ["", "a/b", "../x", "a..b", ".x", "a b", "a\n"])
def test_bad_run_id(run_id):
    with pytest.raises(UsageError, match="run id"):
        resolve(PIPELINE, run_id=run_id, user="ada", root="/data")


@pytest.mark.parametrize("user", ["$(id)", "a;b", "a'b", "a\n", "x" * 129])
def test_a_user_name_that_a_shell_would_run(user):
    with pytest.raises(UsageError, match="user name"):
        resolve(PIPELINE, run_id="r", user=user, root="/data")


@pytest.mark.parametrize("root", ["", "data", "/data/../etc"])
def test_root_is_absolute(root):
    with pytest.raises(UsageError, match="absolute"):
        resolve(PIPELINE, run_id="r", user="ada", root=root)


def test_templates_cannot_fill_in_gigabytes():
    long, many = "x" * 60_000, "{{t}}" * 10_000
    pipeline = parse_pipeline(f"name: p\nentry_points: {{a: {{command: '{many}', parameters: {{t: {long}}}}}}}\n", "f")
    with pytest.raises(InputLimitError, match="templates fill in more than"):
        resolve(pipeline, run_id="r", user="ada", root="/data")
