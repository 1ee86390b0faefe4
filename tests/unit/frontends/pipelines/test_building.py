"""Pipelines in Python: they become the same as a file, and wrong use is told with its place."""

import json
from pathlib import Path
from typing import Any

import pytest

import weft
from weft.documents import yaml
from weft.documents.problems import Problems
from weft.frontends.pipelines.building import build_with
from weft.frontends.pipelines.check import parse_pipeline
from weft.frontends.pipelines.compiler import PipelineSource, RunDirectories, compile_run
from weft.frontends.pipelines.language import PIPELINE_FILE, FsScope
from weft.frontends.pipelines.resolved import RunIdentity
from weft.graph.wire import to_json
from weft.model.errors import DefinitionError, PipelineError, UsageError

HERE = Path(__file__)
ONE = [1]
ANY: Any = weft
"""Where the wrong types are meant."""


@weft.step
def make(out: weft.Output, count: int = 3, name: str = "x"):
    """Write a file."""
    out.write_text(name * count)


@weft.command
def head(text: weft.Input, short: weft.Output, lines: int = 2):
    """Take the first lines."""
    return f'head -n {lines} "{text}" > {short}'


@weft.step
def join(
    pieces: list[weft.Input], out: weft.Output, factor: float = 1.0, where: Path = Path("a/b"), more: list[int] = ONE
):
    """Put files into one."""
    out.write_text("".join(piece.read_text() for piece in pieces))


@weft.command
def say(text: str = "done"):
    """Print a text."""
    return f"echo {text}"


def described(build: Any) -> dict[str, Any]:
    """What a pipeline function builds, as plain values."""
    found: dict[str, Any] = plain(yaml.load(weft.pipeline(build)().to_yaml(), Problems("f", PIPELINE_FILE)))
    return found


def plain(tree: yaml.Node) -> Any:
    if isinstance(tree, yaml.Mapping):
        return {key: plain(inner) for key, inner in tree.entries.items()}
    return [plain(one) for one in tree.items] if isinstance(tree, yaml.Sequence) else tree.value


def line_of(text: str) -> int:
    return next(n for n, line in enumerate(HERE.read_text().splitlines(), 1) if line.endswith(f"# {text}"))


class TestSteps:
    def test_a_step_that_is_called_alone_is_its_function(self, tmp_path):
        make(tmp_path / "x", 2, name="ab")
        assert (tmp_path / "x").read_text() == "abab"
        assert head(Path("in"), Path("out"), lines=5) == 'head -n 5 "in" > out'
        assert repr(make) == "<step make>"
        assert make.__doc__ == "Write a file."

    def test_a_pipeline_is_what_its_file_would_be(self):
        def trial():
            made = make(name="y")
            first = head(made.out, lines=5)
            say(first.lines).after(made)

        assert described(trial)["entry_points"] == {
            "make": {
                "parameters": {"count": {"type": "int", "default": 3}, "name": {"type": "string", "default": "y"}},
                "artifacts": {"output": ["out"]},
                "x-weft": {"kind": "python", "with": function("make")},
            },
            "head": {
                "command": 'head -n {{lines}} "{{text}}" > {{short}}',
                "deps": "make",
                "parameters": {"lines": {"type": "int", "default": 5}},
                "artifacts": {"input": {"text": "{{make.out}}"}, "output": ["short"]},
            },
            "say": {
                "command": "echo {{text}}",
                "deps": "head,make",
                "parameters": {"text": {"type": "string", "default": "{{head.lines}}"}},
            },
        }

    def test_types_are_those_of_the_annotations(self):
        def trial():
            join(make().out, 2, "c", [3])

        assert described(trial)["entry_points"]["join"]["parameters"] == {
            "factor": {"type": "float", "default": 2},
            "where": {"type": "path", "default": "c"},
            "more": {"type": "list", "default": [3]},
        }

    def test_system_variables_stand_as_in_a_file(self):
        def trial():
            say("run {{PF_RUN_ID}}")

        assert described(trial)["entry_points"]["say"]["parameters"]["text"]["default"] == "run {{PF_RUN_ID}}"

    def test_several_calls_have_names_of_their_own(self):
        def trial():
            say("a")
            say("b")
            say.options(name="third")("c")

        assert list(described(trial)["entry_points"]) == ["say", "say2", "third"]

    def test_options_are_those_of_a_file(self):
        def trial():
            say.options(
                cache=weft.CacheOptions(enable=True, fs_scope=[{"name": "main", "path": "a"}]),
                env={"A": 1, "B": "{{text}}"},
                docker_env="python:3.12",
                timeout_s=5,
                retry=weft.Retry(user=2, delay_s=1.5),
                resources=weft.Resources(cpu=2, memory=1 << 20),
                when="'{{text}}' == 'done'",
                extra_fs=[{"name": "other", "mount_path": "/x"}],
            )()

        flow = weft.pipeline(name="named", main_fs={"name": "main"}, parallelism=3, on_failure="continue", cache=True)(
            trial
        )
        pipeline = parse_pipeline(flow().to_yaml(), "f")
        assert (pipeline.name, pipeline.parallelism, pipeline.failure_options.strategy) == ("named", 3, "continue")
        assert pipeline.cache.enable
        step = pipeline.steps["say"]
        assert [FsScope(s.name, s.paths, s.mark) for s in step.cache.fs_scope] == list(step.cache.fs_scope)
        assert step.cache.fs_scope[0].paths == ("a",)
        assert {name: text.value for name, text in step.env.items()} == {"A": "1", "B": "{{text}}"}
        assert (step.docker_env, step.timeout_s, step.retry.user, step.retry.delay_s) == ("python:3.12", 5.0, 2, 1.5)
        assert step.resources == weft.Resources(cpu=2, memory=1 << 20)
        assert step.condition.value == "'{{text}}' == 'done'"
        assert step.extra_fs[0].mount_path == "/x"

    def test_what_runs_at_the_end_stands_there(self):
        def trial():
            say()
            say.options(name="last")("bye").at_end()

        assert list(described(trial)["post_process"]) == ["last"]
        assert list(described(trial)["entry_points"]) == ["say"]

    def test_steps_can_be_switched_off(self):
        @weft.pipeline(disabled=["say"])
        def trial():
            say()

        assert parse_pipeline(trial().to_yaml(), "f").disabled_names == {"say"}

    def test_inputs_and_defaults_of_none_may_be_left_out(self):
        def trial():
            optional(make().out)

        assert described(trial)["entry_points"]["optional"]["artifacts"] == {"input": {"one": "{{make.out}}"}}


def function(name: str) -> dict[str, str]:
    return {"function": f"tests.unit.frontends.pipelines.test_building:{name}", "path": "../../../.."}


@weft.step
def optional(one: weft.Input, other: weft.Input | None = None, size: int | None = None):
    """Take what is there."""


@weft.step
def total(part: weft.Input, parts: list[weft.Input], sizes: weft.Input | None = None):
    """Take one file, and any number."""


class TestLoopsAndConditions:
    @pytest.mark.parametrize("items", [[1], [1, 2]])
    def test_all_that_a_loop_makes_is_no_single_input(self, items):
        @weft.pipeline
        def counted():
            return make(weft.each(items)).out

        @weft.pipeline
        def reading(files):
            total(files, files)

        @weft.pipeline
        def repeated(count):
            return make(count).out

        def fits():
            made = make(weft.each(items))
            head(made.out)
            join(made.out)
            total(make().out, made.out)

        def direct():
            made = make(weft.each(items))
            total(made.out, made.out)

        def optional():
            made = make()
            total(made.out, made.out, make(weft.each(items)).out)

        def inside():
            total(counted().out, make().out)

        def handed_in():
            reading(make(weft.each(items)).out)

        def around():
            total(repeated(weft.each(items)).out, make().out)

        assert len(described(fits)["entry_points"]) == 5
        for build, name, loop in (
            (direct, "part", "make"),
            (optional, "sizes", "make2"),
            (inside, "part", "make"),
            (handed_in, "part", "make"),
            (around, "part", "repeated"),
        ):
            with pytest.raises(DefinitionError) as error:
                described(build)
            said = f": input {name} of total is all that the items of {loop} make\nAnnotate {name} as list[weft.Input]"
            assert said in str(error.value)
            assert str(error.value).startswith(f"{HERE}:")

    def test_an_argument_goes_over_a_list(self):
        def trial():
            made = make()
            pieces = head(made.out, weft.each([1, 2]))
            join(pieces.short)

        found = described(trial)["entry_points"]
        assert found["head"]["command"] == 'head -n {{PF_LOOP_ARGUMENT}} "{{text}}" > {{short}}'
        assert found["head"]["loop_argument"] == [1, 2]
        assert "parameters" not in found["head"]

    def test_a_function_is_told_which_argument_takes_the_item(self):
        def trial():
            make(weft.each([1, 2]))

        assert described(trial)["entry_points"]["make"]["x-weft"]["with"]["item"] == "count"

    def test_a_list_may_be_an_artifact_or_a_parameter(self):
        def trial():
            made = make()
            say(weft.each(made.out))
            joined = join(made.out)
            say(weft.each(joined.more))

        found = described(trial)["entry_points"]
        assert found["say"]["loop_argument"] == "{{out__}}"
        assert found["say"]["artifacts"] == {"input": {"out__": "{{make.out}}"}}
        assert found["say2"]["loop_argument"] == "{{more__}}"
        assert found["say2"]["parameters"] == {"more__": "{{join.more}}"}

    def test_a_condition_takes_in_what_it_names(self):
        def trial():
            made = make()
            again = head(made.out)
            head.options(when=f"{made.out} > {made.count} && {made.out} < 3 && '{again.short}' != ''")(made.out)

        found = described(trial)["entry_points"]["head2"]
        assert found["condition"] == "{{text}} > {{count__}} && {{text}} < 3 && '{{short__}}' != ''"
        assert found["parameters"]["count__"] == "{{make.count}}"
        assert found["artifacts"]["input"] == {"text": "{{make.out}}", "short__": "{{head.short}}"}
        assert found["deps"] == "make,head"

    def test_parameters_and_environment_can_be_made_of_others(self):
        def trial():
            made = make()
            say.options(env={"COUNT": made.count, "BOTH": f"{made.count}-{made.name}"})(f"it is {made.name}")

        found = described(trial)["entry_points"]["say"]
        assert found["parameters"]["text"]["default"] == "it is {{make.name}}"
        assert found["env"] == {"COUNT": "{{count__}}", "BOTH": "{{count__}}-{{name__}}"}


class TestInside:
    def test_a_pipeline_inside_another_is_a_dag(self):
        @weft.pipeline
        def part(data, lines, tail):
            first = head(data, lines)
            return first.short if tail else {"made": first.short}

        def trial():
            made = make()
            done = part(made.out, made.count, tail=False)
            head(done.made)

        found = described(trial)["entry_points"]
        assert found["part"] == {
            "deps": "make",
            "parameters": {"lines": "{{make.count}}"},
            "artifacts": {"input": {"data": "{{make.out}}"}, "output": {"made": "{{head.short}}"}},
            "entry_points": {
                "head": {
                    "command": 'head -n {{lines}} "{{text}}" > {{short}}',
                    "parameters": {"lines": {"type": "int", "default": "{{PF_PARENT.lines}}"}},
                    "artifacts": {"input": {"text": "{{PF_PARENT.data}}"}, "output": ["short"]},
                }
            },
        }
        assert found["head"]["artifacts"]["input"] == {"text": "{{part.made}}"}

    def test_it_can_loop_and_ask(self):
        @weft.pipeline
        def part(text):
            say(text)
            say.options(env={"TEXT": text})()

        def trial():
            made = make()
            part.options(when=f"{made.count} > 1", name="parts")(weft.each(["a", "b"]))

        found = described(trial)["entry_points"]["parts"]
        assert found["loop_argument"] == ["a", "b"]
        assert found["condition"] == "{{count__}} > 1"
        assert found["entry_points"]["say"]["parameters"]["text"]["default"] == "{{PF_PARENT.PF_LOOP_ARGUMENT}}"
        assert found["entry_points"]["say2"]["env"] == {"TEXT": "{{item__}}"}

    def test_what_lies_outside_is_handed_in_through_all_levels(self):
        def trial():
            made = make()

            @weft.pipeline
            def low():
                head(made.out, made.count)
                say(f"{made.count}")

            @weft.pipeline
            def middle():
                low()

            middle()

        found = described(trial)["entry_points"]["middle"]
        assert found["artifacts"]["input"] == {"out__": "{{make.out}}"}
        assert found["parameters"] == {"count__": "{{make.count}}"}
        low = found["entry_points"]["low"]
        assert low["artifacts"]["input"] == {"out__": "{{PF_PARENT.out__}}"}
        assert low["entry_points"]["head"]["artifacts"]["input"] == {"text": "{{PF_PARENT.out__}}"}
        assert low["entry_points"]["say"]["parameters"]["text"]["default"] == "{{PF_PARENT.count__}}"

    def test_plain_python_decides_what_is_built(self):
        @weft.pipeline
        def trial(n: int = 2, loud: bool = False):
            for number in range(n):
                say(f"{number}{'!' if loud else ''}")

        assert len(trial(3).to_yaml().split("command:")) == 4
        built, rest = build_with(trial, {"n": "1", "loud": "true", "say.text": "x"})
        assert "0!" in built.text()
        assert rest == {"say.text": "x"}

    @pytest.mark.parametrize("text", ["flase", "", "2", "none"])
    def test_a_text_that_is_no_truth_value_takes_no_branch(self, text):
        @weft.pipeline
        def annotated(loud: bool):
            say("loud" if loud else "quiet")

        @weft.pipeline
        def by_default(loud=False):
            say("loud" if loud else "quiet")

        for trial in (annotated, by_default):
            with pytest.raises(UsageError, match=f"parameter loud: must be true or false, is '{text}'"):
                build_with(trial, {"loud": text})
            assert "default: quiet" in build_with(trial, {"loud": "Off"})[0].text()
            assert "default: loud" in build_with(trial, {"loud": "ON"})[0].text()


def test_the_graph_is_that_of_the_file_that_is_written():
    @weft.pipeline
    def part(data):
        return head(data).short

    @weft.pipeline
    def trial():
        made = make()
        part(made.out)
        head.options(when=f"{made.count} > 2")(made.out, weft.each([1, 2]))
        say().at_end()

    flow = trial()
    run = RunIdentity("run-000001", "me", "/data", folder=str(HERE.parent))
    place = RunDirectories(Path("/logs"), Path("/processes"))
    graphs = []
    for tree in (flow._built.tree(str(HERE.parent)), yaml.load(flow.to_yaml(), Problems("f", PIPELINE_FILE))):
        from weft.frontends.pipelines.check import checked

        graphs.append(compile_run(checked(tree, "f"), run, place, PipelineSource("", "f"))[1])
    assert json.dumps(to_json(graphs[0])) == json.dumps(to_json(graphs[1]))
    assert [vertex.label for vertex in graphs[0].vertices.values() if vertex.final] == ["say"]


def _rows():
    yield 1


async def _fetch():
    pass


class TestWrongUse:
    def wrong(self, build: Any, message: str, *hint: str, kind: type[Exception] = DefinitionError) -> None:
        with pytest.raises(kind) as error:
            weft.pipeline(build)()
        said = str(error.value)
        assert message in said, said
        assert all(one in said for one in hint), said
        assert HERE.name in said

    def test_an_argument_that_is_none(self):
        def trial():
            say(txt="a")  # none

        self.wrong(trial, f":{line_of('none')}: say() has no argument 'txt'", "Did you mean text?")

    def test_an_argument_that_is_missing(self):
        def trial():
            head()  # missing

        self.wrong(trial, f":{line_of('missing')}: head() lacks text")

    def test_an_output_that_is_given(self):
        def trial():
            make(out="x")

        self.wrong(trial, "out is an output", "its place is made")

    def test_a_step_where_an_output_is_wanted(self):
        def trial():
            head(make())

        self.wrong(trial, "input text of head is <step make>", "Name the output: make.out")

    def test_an_artifact_where_a_value_is_wanted(self):
        def trial():
            say(make().out)

        self.wrong(trial, "parameter text of say is <artifact make.out>", "weft.Input")

    def test_an_output_that_is_none(self):
        def trial():
            head(make().ouut)

        self.wrong(trial, "make has no output or parameter 'ouut'", "Did you mean out?")

    def test_a_decision_on_what_is_known_later(self):
        def trial():
            if make().count > 3:
                say()

        self.wrong(trial, "make.count is known only when the run goes on", "options(when=...)")

    def test_a_comparison_with_what_is_known_later(self):
        def trial():
            if make().count == 3:
                say()

        self.wrong(trial, "make.count is known only when the run goes on")

    def test_a_step_in_a_text(self):
        def trial():
            say(f"{make()}")

        self.wrong(trial, "<step make> cannot stand in a text", "Name an output: make.out")

    def test_several_artifacts_where_one_is_wanted(self):
        def trial():
            join([make().out])

        self.wrong(trial, "input pieces of join is [<artifact make.out>]", "that of a loop is all")

    def test_a_value_that_no_file_holds(self):
        def trial():
            say({"a": 1})

        self.wrong(trial, "parameter text of say must be text, a finite number or a list of these")

    def test_what_was_made_inside_another(self):
        kept = []

        @weft.pipeline
        def part():
            kept.append(make())

        def trial():
            part()
            head(kept[0].out)

        self.wrong(trial, "was made inside another pipeline", "return it")

    def test_what_a_part_returns(self):
        @weft.pipeline
        def part():
            return 3

        self.wrong(lambda: part(), "part returns 3", "Return outputs")

    def test_two_loops_of_one_step(self):
        def trial():
            make(weft.each([1]), weft.each(["a"]))

        self.wrong(trial, "goes over count and over name")

    def test_a_step_that_no_process_finds(self):
        @weft.step
        def local():
            pass

        self.wrong(lambda: local(), "has no name at the top of a module", "at the top of its module")

    def test_a_command_that_looks_at_its_arguments(self):
        @weft.command
        def bad(n: int = 3):
            return f"{n + 1}"

        self.wrong(lambda: bad(), "failed where its arguments are templates")

    def test_a_command_that_is_none(self):
        @weft.command
        def bad():
            return 3

        self.wrong(lambda: bad(), "returns int, not the text of a command")

    def test_mistakes_of_the_language_have_the_place_of_the_call(self):
        def trial():
            say("{{PF_NONSENSE}}")  # nonsense
            make.options(name="bad_name")()  # named

        self.wrong(trial, f":{line_of('nonsense')}:1: ", "no such system variable", kind=PipelineError)
        self.wrong(trial, f":{line_of('named')}:1: ", "cannot name a step", kind=PipelineError)

    @pytest.mark.parametrize(
        ("value", "told"),
        [
            (2**63, "parameter text of say must have at most 64 bits where it is a whole number"),
            ("a\0b", "must be text that a file can hold (the character U+0000 is not allowed), is 'a\\x00b'"),
            ("x" * 70_000, "must have at most 64 KiB"),
            ("see {{ x }}", "has `{{ x }}` in it, which is read as a template\nNo file can hold it as it is"),
            ("{{other.x}}", "has `{{other.x}}` in it, which is read as a template"),
        ],
    )
    def test_values_that_no_file_can_hold(self, value, told):
        self.wrong(lambda: say(value), told)

    def test_a_command_that_no_file_can_hold(self):
        @weft.command
        def bad():
            return "echo a\0b"

        self.wrong(lambda: bad(), "'echo a\\x00b' cannot stand in a pipeline: the character U+0000 is not allowed")

    def test_the_name_of_a_function_must_be_that_of_a_step(self):
        @weft.command
        def größe():
            return "echo"

        self.wrong(lambda: größe(), "the name of the function größe cannot name a step", "letters a to z, digits and -")

        def trial():
            größe.options(name="size")()

        assert list(described(trial)["entry_points"]) == ["size"]

    def test_options_of_the_language_have_the_place_where_they_are_said(self):
        slow = say.options(timeout_s=-1)  # said

        def trial():
            slow()

        self.wrong(trial, f":{line_of('said')}:1: ", "more than 0 seconds", kind=PipelineError)

    @pytest.mark.parametrize(
        ("declare", "said"),
        [
            (lambda: ANY.step(chace=True)(say.function), "a step has no option 'chace'\nDid you mean cache?"),
            (lambda: weft.pipeline(paralelism=1)(say.function), "Did you mean parallelism?"),
            (lambda: ANY.step(3), "3 cannot be a step"),
            (lambda: ANY.step(_rows), "_rows, a generator, cannot be a step"),
            (lambda: ANY.step(_fetch), "_fetch, an async function, cannot be a step"),
            (lambda: ANY.pipeline(_rows), "_rows, a generator, cannot be a pipeline"),
            (lambda: weft.step(lambda *a: None), "argument *a cannot be one of a step"),
            (lambda: weft.step(_flag), "parameter loud is a bool, which no step can be given\nwrite an int, 0 or 1"),
            (lambda: ANY.each(3), "weft.each(3): an int is not a list"),
            (lambda: ANY.each(""), "weft.each(''): a str is not a list\nGive it a list. Where that is empty"),
        ],
    )
    def test_declarations(self, declare, said):
        with pytest.raises(DefinitionError) as error:
            declare()
        assert said in str(error.value)
        assert HERE.name in str(error.value)

    def test_a_pipeline_lacks_what_only_a_caller_knows(self):
        @weft.pipeline
        def trial(n: int):
            say(str(n))

        with pytest.raises(UsageError, match="needs n"):
            trial.run({})
        with pytest.raises(UsageError, match="parameter n: must be an integer"):
            build_with(trial, {"n": "many"})

    def test_pipelines_that_never_end_inside_each_other(self):
        self.wrong(lambda: endless(), "more than 50 pipelines lie inside each other")


@weft.pipeline
def endless():
    """Go down for ever."""
    endless()


def _flag(loud: bool = False) -> None:
    pass
