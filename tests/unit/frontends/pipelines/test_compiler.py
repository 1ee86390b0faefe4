"""From resolved steps to a graph; where a pipeline's files lie; what a step's task does before its command."""

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from weft.engine.machines.job import JobState
from weft.engine.machines.vertex import VertexState
from weft.frontends.pipelines import body
from weft.frontends.pipelines.check import parse_pipeline
from weft.frontends.pipelines.compiler import DISABLED, PipelineSource, RunDirectories, compile_run, main_root
from weft.frontends.pipelines.notices import notes
from weft.frontends.pipelines.resolve import resolve
from weft.frontends.pipelines.resolved import ResolvedStep, RunIdentity
from weft.frontends.pipelines.states import PROJECTION, WARNING
from weft.graph.logical import LogicalGraph, MovementKind, OnFailure, Retry
from weft.graph.validate import mark_results, validate
from weft.graph.wire import from_json, to_json
from weft.model.errors import TaskError
from weft.model.resources import Resources
from weft.runs.records import RUN_STATES, STEP_STATES

PLACE = RunDirectories(Path("/run/logs"), Path("/run/processes"))
CHAIN = """
name: chain
parallelism: 3
entry_points:
  a: {command: "echo {{x}}", parameters: {x: 1}, artifacts: {output: [out]}, env: {KEY: value}}
  b: {command: "cat {{file}}", deps: a, artifacts: {input: {file: "{{a.out}}"}}}
  c: {command: "true", deps: "a,b"}
"""


def resolved(text: str) -> tuple[Any, tuple[ResolvedStep, ...]]:
    pipeline = parse_pipeline(text, "run.yaml")
    return pipeline, resolve(pipeline, run_id="run-000001", user="ann", root="/data")


def compiled(text: str) -> LogicalGraph:
    pipeline = parse_pipeline(text, "run.yaml")
    _, graph = compile_run(pipeline, RunIdentity("run-000001", "ann", "/data"), PLACE, PipelineSource(text, "run.yaml"))
    mark_results(graph)
    validate(graph)
    return graph


def edges(graph: LogicalGraph) -> set[tuple[str, str]]:
    return {(edge.src, edge.dst) for edge in graph.edges}


class TestGraph:
    def test_is_one_vertex_for_each_step_and_an_edge_without_data_for_each_dependency(self):
        graph = compiled(CHAIN)
        assert list(graph.vertices) == ["a", "b", "c"]
        assert edges(graph) == {("a", "b"), ("a", "c"), ("b", "c")}
        assert {edge.movement.move for edge in graph.edges} == {MovementKind.NONE}

    def test_steps_hold_no_core_but_a_token(self):
        graph = compiled(CHAIN)
        assert graph.limits == {"parallelism": 3}
        for vertex in graph.vertices.values():
            assert vertex.resources[0].light
            assert vertex.resources[0].tokens == (("parallelism", 1),)

    def test_a_step_has_what_its_command_needs(self):
        params = compiled(CHAIN).vertices["a"].program.params
        assert params["command"] == "echo 1"
        assert params["cwd"] == "/data"
        assert params["env"]["KEY"] == "value"
        assert params["env"]["PF_STEP_NAME"] == "a"
        assert [Path(path).name for path in params["outputs"]] == ["out"]

    def test_holds_nothing_of_the_environment_of_this_process(self, monkeypatch):
        monkeypatch.setenv("A_SECRET", "do-not-write-me-down")
        assert "do-not-write-me-down" not in str(compiled(CHAIN).vertices)

    def test_can_be_written_and_read(self):
        graph = compiled(CHAIN)
        assert to_json(from_json(to_json(graph))) == to_json(graph)

    @pytest.mark.parametrize(
        ("line", "answer"),
        [
            ("", OnFailure.FAIL_FAST),
            ("failure_options: {strategy: fail_fast}", OnFailure.FAIL_FAST),
            ("failure_options: {strategy: continue}", OnFailure.CONTINUE),
        ],
    )
    def test_says_what_a_failure_does(self, line, answer):
        assert compiled(CHAIN + line).on_failure is answer

    def test_resources_come_from_the_step_and_do_not_change_its_result(self):
        text = "name: p\nentry_points: {s: {command: 'true'ATTACHED}}"
        plain, vertex = (
            compiled(text.replace("ATTACHED", more)).vertices["s"]
            for more in ("", ", x-weft: {resources: {cpu: 2, memory: 1GiB}}")
        )
        assert vertex.resources == (Resources(cpu=2, memory=1 << 30, tokens=(("parallelism", 1),)),)
        assert (vertex.cache_key, vertex.program.params) == (plain.cache_key, plain.program.params)

    def test_timeout_and_retry_come_from_the_step(self):
        text = "name: p\nentry_points: {s: {command: 'true', x-weft: {timeout_s: 2.5, retry: {user: 3, delay_s: 0.5}}}}"
        vertex = compiled(text).vertices["s"]
        assert vertex.retry == Retry(user=3, delay_s=0.5)
        assert vertex.program.params["timeout_s"] == 2.5


class TestDisabled:
    def test_is_on_the_branch_that_is_not_taken(self):
        graph = compiled(CHAIN + "disabled: c")
        (choice,) = graph.choices
        assert choice.branches == {"run": ("c",), body.SKIPPED: ()}
        assert choice.decider == DISABLED

    def test_dependents_wait_for_what_it_would_have_waited_for(self):
        text = """
name: p
entry_points:
  a: {command: a}
  b: {command: b, deps: a}
  c: {command: c, deps: b}
  d: {command: d, deps: c}
disabled: "b,c"
"""
        assert {("a", "d"), ("c", "d")} <= edges(compiled(text))

    def test_nothing_is_added_without_one(self):
        assert not compiled(CHAIN).choices


def test_an_image_is_told_of_once():
    _, steps = resolved(CHAIN + "docker_env: python:3.12")
    (note,) = notes(steps, "")
    assert "python:3.12" in note
    assert notes(resolved(CHAIN)[1], "") == []


DATES = """
name: dates
entry_points:
  a: {command: "true", parameters: {day: 2024-05-02}, condition: "{{day}} >= '2024-02-01'"}
  b: {command: "true", parameters: {day: 2024-05-02}, condition: "'{{day}}' >= '2024-02-01'"}
  c: {command: "true", loop_argument: ["x", "2024-05-03"], condition: "{{PF_LOOP_ARGUMENT}} >= '2024-02-01'"}
"""


def test_a_date_without_quotes_in_a_condition_is_told_of():
    nodes, _ = compile_run(
        parse_pipeline(DATES, "p.yaml"), RunIdentity("run-1", "me", "/data"), PLACE, PipelineSource(DATES, "p.yaml")
    )
    assert sorted(note.partition(" is")[0] for note in notes(nodes, "")) == [
        "the condition of a: 2024-05-02 without quotes",
        "the condition of c: 2024-05-03 without quotes",
    ]


def test_a_step_without_a_command_is_told_of():
    _, steps = resolved("name: p\ndisabled: off\nentry_points: {a: {}, b: {command: ' '}, c: {command: x}, off: {}}")
    assert notes(steps, "") == ["no command, so nothing is run here (PaddleFlow runs what the image starts): a, b"]


SHELL = """
name: p
entry_points:
  a: {command: 'echo "{{out}}"', artifacts: {output: [out]}}
  b: {command: "cat '{{in}}' x{{in}}", deps: a, artifacts: {input: {in: "{{a.out}}"}}}
  c: {command: 'cat "$PF_INPUT_ARTIFACT_IN" {{n}}', deps: a, parameters: {n: 1}, artifacts: {input: {in: "{{a.out}}"}}}
"""


@pytest.mark.parametrize(
    ("root", "told"),
    [
        ("/data/plain-1.2_x", None),
        ("/data/a b", "a shell acts on blanks in the path /data/a b, which commands name by templates (b): "),
        ("/data/$(id)", "a shell acts on $ ( ) in the path /data/$(id), which commands name by templates (a, b): "),
        ("/data/it's", "a shell acts on ' in the path /data/it's, which commands name by templates (b): "),
    ],
)
def test_a_folder_on_which_a_shell_acts_is_told_of(root, told):
    nodes, _ = compile_run(
        parse_pipeline(SHELL, "p.yaml"), RunIdentity("run-1", "me", root), PLACE, PipelineSource(SHELL, "p.yaml")
    )
    found = notes(nodes, "")
    assert len(found) == (told is not None)
    assert told is None or found[0].startswith(told)


class TestWords:
    def test_every_state_of_a_run_has_one(self):
        words = {PROJECTION.run(state) for state in JobState}
        assert words <= set(RUN_STATES)

    def test_every_state_of_a_step_has_one(self):
        words = {PROJECTION.step(state, started=started) for state in VertexState for started in (True, False)}
        assert words <= {*STEP_STATES, "init"}
        assert "" not in words

    def test_no_line_is_idle(self):
        assert {state.value for state in (*JobState, *VertexState)} == PROJECTION.states.keys()

    def test_what_never_began_is_cancelled(self):
        step = PROJECTION.step
        assert [step(VertexState.FAILED, started=began) for began in (True, False)] == ["failed", "cancelled"]
        assert [step(VertexState.CANCELLED, started=began) for began in (True, False)] == ["terminated", "cancelled"]


class TestMainFileSystem:
    def pipeline(self, command: str, more: str = "") -> Any:
        return parse_pipeline(f"name: p\nentry_points: {{s: {{command: {command!r}}}}}\n{more}", "run.yaml")

    def test_is_the_folder_of_the_file(self, tmp_path):
        assert main_root(self.pipeline("echo hello"), tmp_path / "run.yaml", {}) == tmp_path

    def test_is_a_folder_above_where_scripts_resolve(self, tmp_path):
        (tmp_path / "base" / "shells").mkdir(parents=True)
        (tmp_path / "base" / "shells" / "train.sh").touch()
        file = tmp_path / "base" / "run.yaml"
        assert main_root(self.pipeline("bash base/shells/train.sh 3"), file, {}) == tmp_path
        assert main_root(self.pipeline("bash shells/train.sh 3"), file, {}) == tmp_path / "base"

    def test_has_what_is_mounted_from_it(self, tmp_path):
        (tmp_path / "base" / "shells").mkdir(parents=True)
        (tmp_path / "base" / "sum.py").touch()
        options = "fs_options: {main_fs: {name: ppl}, extra_fs: [{name: ppl, mount_path: /sum, sub_path: base/shells}]}"
        pipeline = self.pipeline("cd /sum && python3 sum.py", options)
        assert main_root(pipeline, tmp_path / "base" / "run.yaml", {}) == tmp_path

    def test_has_scripts_below_the_part_that_is_used_of_it(self, tmp_path):
        (tmp_path / "base").mkdir()
        (tmp_path / "base" / "run.sh").touch()
        pipeline = self.pipeline("sh run.sh", "fs_options: {main_fs: {name: ppl, sub_path: base}}")
        assert main_root(pipeline, tmp_path / "base" / "run.yaml", {}) == tmp_path

    def test_is_never_above_the_project(self, tmp_path):
        (tmp_path / "x").mkdir()
        (tmp_path / "x" / "a.sh").touch()
        (tmp_path / "x" / ".git").mkdir()
        assert main_root(self.pipeline("sh x/a.sh"), tmp_path / "x" / "run.yaml", {}) == tmp_path / "x"

    def test_is_never_the_root(self, tmp_path, monkeypatch):
        deep = tmp_path.joinpath("a")
        deep.mkdir()
        command = f"sh {str(tmp_path / 'a')[1:]}/x.sh"
        (deep / "x.sh").touch()
        assert main_root(self.pipeline(command), deep / "run.yaml", {}) == deep

    def test_is_what_the_settings_say(self, tmp_path):
        pipeline = self.pipeline("true", "fs_options: {main_fs: {name: ppl}}")
        assert main_root(pipeline, tmp_path / "run.yaml", {"ppl": Path("/elsewhere")}) == Path("/elsewhere")
        assert main_root(pipeline, tmp_path / "run.yaml", {"other": Path("/elsewhere")}) == tmp_path

    @pytest.mark.parametrize("command", ["sh /abs/x.sh", "curl http://host/x.sh", "sh $HOME/x.sh", "sh ../x.sh"])
    def test_is_not_led_astray(self, tmp_path, command):
        (tmp_path / "b").mkdir()
        for name in ("abs", "host", "HOME"):
            (tmp_path / name).mkdir()
            (tmp_path / name / "x.sh").touch()
        assert main_root(self.pipeline(command), tmp_path / "b" / "run.yaml", {}) == tmp_path / "b"


class TestOutputs:
    def test_find_a_parent_and_no_old_file(self, tmp_path):
        outputs = [str(tmp_path / ".pipeline" / "run-1" / name) for name in ("file", "folder", "new")]
        old = tmp_path / ".pipeline" / "run-1"
        (old / "folder" / "deep").mkdir(parents=True)
        (old / "file").write_text("old")
        body.make_room(str(tmp_path), outputs, "s")
        assert old.is_dir()
        assert not list(old.iterdir())

    def test_a_link_at_its_place_goes_and_not_what_it_names(self, tmp_path):
        (tmp_path / "precious").write_text("kept")
        (tmp_path / "out").symlink_to(tmp_path / "precious")
        body.make_room(str(tmp_path), [str(tmp_path / "out")], "s")
        assert (tmp_path / "precious").read_text() == "kept"
        assert not os.path.lexists(tmp_path / "out")

    def test_a_link_on_the_way_is_refused(self, tmp_path):
        (tmp_path / "elsewhere").mkdir()
        (tmp_path / "elsewhere" / "out").write_text("kept")
        (tmp_path / ".pipeline").symlink_to(tmp_path / "elsewhere")
        with pytest.raises(TaskError, match="step train cannot start") as caught:
            body.make_room(str(tmp_path), [str(tmp_path / ".pipeline" / "out")], "train")
        assert ".pipeline/out" in str(caught.value)
        assert (tmp_path / "elsewhere" / "out").read_text() == "kept"


def test_a_step_inherits_all_but_what_is_ours_or_of_another_shell():
    environ = {
        "HOME": "/h",
        "LANG": "C",
        "WEFT_WORKERS": "3",
        "PWD": "/x",
        "SHLVL": "2",
        "PYTHONHOME": "/p",
        "MY_KEY": "1",
        "": "of a program that put =x=y there",
    }
    assert body.inherited(environ) == {"HOME": "/h", "LANG": "C", "MY_KEY": "1"}


def attempt_of(folder, command, *, attempt=0, env=None, outputs=(), **fields) -> Any:
    """Return the context of an attempt of the step `train`, which works in a folder."""
    params = {
        "command": command,
        "cwd": str(folder),
        "env": env or {},
        "logs": str(folder / "logs"),
        "processes": str(folder / "processes"),
        "outputs": list(outputs),
        "timeout_s": None,
    }
    return SimpleNamespace(
        vertex="train",
        index=0,
        item=None,
        attempt=attempt,
        verdict=None,
        parallelism=1,
        params=params,
        cancelled=lambda: False,
        on_cancel=lambda _: None,
        gate=None,
        **fields,
    )


def test_a_step_runs_with_its_own_log_and_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("FROM_OUTSIDE", "yes")
    ctx = attempt_of(tmp_path, 'echo "$FROM_OUTSIDE $MINE $HOME"', attempt=2, env={"MINE": "too", "HOME": "/mine"})
    params = ctx.params
    assert body.run_step(ctx, {})["exit_code"] == 0
    assert (tmp_path / "logs" / "train.2.log").read_text() == "yes too /mine\n"
    assert ctx.params is params
    assert not list((tmp_path / "processes").iterdir())


@pytest.mark.parametrize("later", [False, True], ids=["last", "overtaken"])
def test_a_failed_attempt_leaves_the_outputs_of_a_later_one(tmp_path, later):
    """An attempt at a lost node may end after the one that took its place."""
    output = tmp_path / "out" / "model"
    log = tmp_path / "logs" / "train.1.log"
    command = f"echo x > {output}{f'; touch {log}' if later else ''}; exit 1"
    with pytest.raises(TaskError):
        body.run_step(attempt_of(tmp_path, command, outputs=[str(output)]), {})
    assert output.exists() == later
    assert Path(f"{output}.incomplete").exists() != later


@pytest.mark.parametrize(
    ("command", "end", "told"),
    [
        ("cp -p {data} {output}", 1, True),
        ("cp -p {data} work; echo 'cannot create work: Permission denied'", 1, True),
        ("echo 'attempt to write a readonly database'", 0, True),
        ("cp -p {data} {output}", 0, False),
        ("cp --no-preserve=mode {data} {output}", 1, False),
    ],
)
@pytest.mark.parametrize("shared", [True, False])
def test_a_step_that_cannot_change_its_copy_of_a_shared_input_says_what_to_write(tmp_path, command, end, told, shared):
    data, output = tmp_path / "data", tmp_path / "output"
    data.write_text("rows")
    data.chmod(0o444)
    if shared:
        os.link(data, tmp_path / "kept")
    news: list[str] = []
    text = f"{command.format(data=data, output=output)}; exit {end}"
    ctx = attempt_of(tmp_path, text, emit=lambda _, payload: news.append(payload))
    ctx.params |= {"inputs": {"data": [str(data)]}, "outputs": [str(output)] if "output" in text else []}
    if end:
        with pytest.raises(TaskError) as failed:
            body.run_step(ctx, {})
        news.append(failed.value.hint)
    else:
        body.run_step(ctx, {})
    said = f"{data} is so large that runs share it read-only" in "".join(news)
    assert said == (told and shared)
    assert ("cp --no-preserve=mode" in "".join(news)) == said


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (
            "sleep 1000 & sleep 1001 &",
            "2 processes of it still ran when its command had ended, and were killed: "
            "to let them finish, end the command with wait, else end them in it",
        ),
        ("sleep 0.01 & wait", ""),
    ],
)
def test_a_step_is_told_of_its_processes_that_still_ran(tmp_path, command, said):
    told: list[str] = []
    body.run_step(attempt_of(tmp_path, command, emit=lambda _, payload: told.append(payload)), {})
    assert told == ([said] if said else [])


def test_what_a_step_that_succeeds_should_have_done(tmp_path, monkeypatch):
    outputs = [str(tmp_path / "out" / name) for name in ("model", "page")]
    told: list[tuple[str, str]] = []
    emit = lambda name, payload: told.append((name, payload))  # noqa: E731
    ctx = attempt_of(tmp_path, f"echo x > {outputs[1]}", outputs=outputs, emit=emit)
    run = getattr(body, "run_command")  # noqa: B009
    monkeypatch.setattr(body, "run_command", lambda *given: run(*given) | {"log_error": "No space left on device"})
    assert body.run_step(ctx, {})["exit_code"] == 0
    lost = "its log is not complete: No space left on device"
    assert told == [(WARNING, f"its output model was not made; {lost}")]
