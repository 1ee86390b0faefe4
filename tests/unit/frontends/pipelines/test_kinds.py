"""The door for steps of other kinds: a toy kind comes in by it, and nothing of the front end is changed for it."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from weft import wiring
from weft.admin.settings import Settings
from weft.frontends.pipelines.check import parse_pipeline
from weft.frontends.pipelines.kinds import STEP_KINDS, StepKind, load_kind
from weft.graph.task import TaskContext, TaskInput
from weft.model.errors import PipelineError, ProgramError, TaskError
from weft.model.resources import Resources
from weft.runs.active import RunResult
from weft.runs.reading import read_run

LIBRARY = {"words": "1"}
"""What the toy's results depend on beside its options, such as a table."""
SEEN: list[dict[str, Any]] = []


def repeat(ctx: TaskContext, inputs: Mapping[str, TaskInput]) -> None:
    """The body of the toy: write a word as often as it is told."""
    params = ctx.params
    SEEN.append(dict(params))
    options = params["options"]
    if options["word"] == "bad":
        raise TaskError("the toy broke", task=params["name"])
    if options["word"] == "change":
        LIBRARY["words"] = "changed"
    text = str(options["word"]) * int(options.get("times", 1))
    read = "".join(Path(path).read_text() for paths in params["inputs"].values() for path in paths)
    Path(params["outputs"]["out"]).write_text(read + text)


def check(options: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    return (("word", "must not be empty"),) if options["word"] == "" else ()


def leaves(options: Mapping[str, Any], folder: str, cwd: str) -> Mapping[str, str]:
    return {**{f"option {name}": json.dumps(value) for name, value in options.items()}, "table words": LIBRARY["words"]}


TOY_KIND = StepKind(
    program=f"{__name__}:repeat",
    options={"word": True, "times": False, "more": False},
    check=check,
    leaves=leaves,
    resources=(Resources(cpu=1),),
)
TOY_NO_KIND = "something else"


@pytest.fixture
def toy(tmp_path, monkeypatch):
    """A project in which steps of the kind `toy` can run; returns what runs a pipeline there."""
    monkeypatch.setitem(STEP_KINDS, "toy", f"{__name__}:TOY_KIND")
    SEEN.clear()

    def run(steps: Mapping[str, Any], **top: Any) -> RunResult:
        file = tmp_path / "run.yaml"
        file.write_text(json.dumps({"name": "trial", "entry_points": steps, **top}))
        settings = Settings(state_dir=tmp_path / ".weft", user="me")
        return wiring.run_pipeline(wiring.load_pipeline(str(file), user="me"), settings, quiet=True)

    return run


def step(word: Any = "ab", **more: Any) -> dict[str, Any]:
    given = {"word": word, **more.pop("options", {})}
    return {
        "x-weft": {"kind": "toy", "with": given},
        "artifacts": {"output": ["out"], **more.pop("artifacts", {})},
        **more,
    }


def test_it_runs_in_the_place_of_a_command(toy):
    result = toy(
        {
            "a": step(
                "{{text}}", parameters={"text": "x", "n": 3}, options={"times": "{{n}}", "more": {"k": ["{{n}}"]}}
            ),
            "b": step("!", deps="a", artifacts={"input": {"in": "{{a.out}}"}, "output": ["out"]}),
        }
    )
    assert result.error is None
    assert Path(result.outputs["b.out"]).read_text() == "xxx!"
    assert SEEN[0]["options"] == {"word": "x", "times": 3, "more": {"k": [3]}}
    assert SEEN[0]["parameters"] == {"text": "x", "n": 3}
    assert {"cwd", "env", "name", "log", "record", "timeout_s", "folder", "item"} <= SEEN[0].keys()
    assert "kind" not in SEEN[0]


def test_it_loops_with_items_of_their_type(toy):
    result = toy(
        {"a": step("{{PF_LOOP_ARGUMENT}}", loop_argument=[1, "two"], options={"more": "<{{PF_LOOP_ARGUMENT}}>"})}
    )
    assert {Path(path).read_text() for path in result.outputs.values()} == {"1", "two"}
    assert sorted(one["options"]["more"] for one in SEEN) == ["<1>", "<two>"]
    assert {one["item"] for one in SEEN} == {1, "two"}


def test_it_loops_inside_of_a_dag_that_an_artifact_makes(toy):
    list_of = {"command": 'echo \'["a", "b"]\' > {{out}}', "artifacts": {"output": ["out"]}}
    inside = step("{{w}}", parameters={"w": "{{PF_PARENT.PF_LOOP_ARGUMENT}}"})
    dag = {
        "deps": "l",
        "loop_argument": "{{i}}",
        "artifacts": {"input": {"i": "{{l.out}}"}},
        "entry_points": {"a": inside},
    }
    result = toy({"l": list_of, "d": dag})
    assert result.error is None
    assert {Path(path).read_text() for name, path in result.outputs.items() if name != "l.out"} == {"a", "b"}


def test_it_fails_and_is_tried_again(toy):
    bad = step("bad")
    bad["x-weft"]["retry"] = {"user": 1}
    result = toy({"a": bad})
    assert result.state == "failed"
    assert "the toy broke" in str(result.error)
    assert len(SEEN) == 2


def test_its_results_are_used_again_until_what_they_depend_on_changes(toy, monkeypatch):
    steps = {"a": step()}
    on = {"cache": {"enable": True}}
    assert toy(steps, **on).error is None
    again = toy(steps, **on)
    assert len(SEEN) == 1
    assert read_run(again.folder).steps[0].message == "taken from the cache"
    monkeypatch.setitem(LIBRARY, "words", "2")
    toy(steps, **on)
    assert len(SEEN) == 2
    toy({"a": step(options={"times": 2})}, **on)
    assert len(SEEN) == 3


def test_a_result_is_not_kept_if_that_changed_while_it_ran(toy, monkeypatch):
    monkeypatch.setitem(LIBRARY, "words", "1")
    result = toy({"a": step("change")}, cache={"enable": True})
    assert (
        read_run(result.folder).steps[0].message == "warning: its result is not kept: table words changed while it ran"
    )


KINDS = {"toy": f"{__name__}:TOY_KIND"}


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"x-weft": {"kind": "tyo"}}, "entry_points.s.x-weft.kind: there is no kind of step `tyo`\ndid you mean toy?"),
        ({"x-weft": {"kind": "toy"}}, "entry_points.s.x-weft.with.word: is missing"),
        ({"x-weft": {"kind": "toy", "with": {"word": ""}}}, "x-weft.with.word: must not be empty"),
        ({"x-weft": {"kind": "toy", "with": {"word": "a", "tims": 1}}}, "x-weft.with.tims: unknown option of kind toy"),
        ({"x-weft": {"kind": "toy", "with": {"word": "{{x}}"}}}, "x-weft.with.word: `{{x}}`: this step has nothing"),
        ({"command": "true", "x-weft": {"kind": "toy", "with": {"word": "a"}}}, "a step of kind toy has no command"),
        ({"x-weft": {"with": {"word": "a"}}}, "belongs to no kind of step"),
        ({"x-weft": {"kind": "toy", "with": [1]}}, "must be a map of names to values"),
        ({"x-weft": {"kind": "python", "with": {"function": "steps"}}}, "must be of the form module:function"),
        ({"x-weft": {"kind": "python", "with": {"function": "{{x}}"}}}, "must be text, without templates"),
    ],
)
def test_what_is_wrong_with_its_options_is_told_with_the_place(changed, said):
    text = json.dumps({"name": "p", "entry_points": {"s": changed}})
    with pytest.raises(PipelineError) as error:
        parse_pipeline(text, "run.yaml", {"python": "weft.frontends.pipelines.function:KIND", **KINDS})
    assert said in str(error.value)
    assert "run.yaml:1:" in str(error.value)


@pytest.mark.parametrize("target", [f"{__name__}:TOY_NO_KIND", f"{__name__}:nothing", "no.such.module:KIND"])
def test_a_kind_that_is_none_is_said(target):
    with pytest.raises(ProgramError):
        load_kind(target)
