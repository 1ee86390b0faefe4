"""Dags, references, loops and conditions: what they become before a run, and what is left for the run to decide."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from weft.frontends.pipelines import resolve
from weft.frontends.pipelines.check import parse_pipeline
from weft.frontends.pipelines.compiler import (
    PipelineSource,
    RunDirectories,
    compile_items,
    compile_run,
    outputs_of,
    planned_outputs,
)
from weft.frontends.pipelines.language import Dag, walk
from weft.frontends.pipelines.overrides import apply_overrides, make_pipeline, outdone
from weft.frontends.pipelines.paths import POST_PROCESS
from weft.frontends.pipelines.resolve import resolve_nodes
from weft.frontends.pipelines.resolved import ComponentScope, ControlStep, MountPoint, Node, ResolvedStep, RunIdentity
from weft.graph.logical import LogicalGraph, Patch, Role, Source, Vertex
from weft.graph.rules.patches import check_patch
from weft.graph.validate import mark_results, validate
from weft.graph.wire import from_json, to_json
from weft.model.errors import InputLimitError, PipelineError, UsageError

PLACE = RunDirectories(Path("/run/logs"), Path("/run/processes"))
RUN = RunIdentity("run-000001", "ada", "/data")


def nodes_of(text: str, overrides: Mapping[str, object] | None = None) -> dict[str, Node]:
    pipeline = make_pipeline(text, "run.yaml", overrides or {}, None)
    return {node.id: node for node in resolve_nodes(pipeline, RUN)}


def step(found: Mapping[str, Node], id: str) -> ResolvedStep:
    node = found[id]
    assert isinstance(node, ResolvedStep)
    return node


def control(found: Mapping[str, Node], id: str) -> ControlStep:
    node = found[id]
    assert isinstance(node, ControlStep)
    return node


def compiled(text: str) -> LogicalGraph:
    pipeline = parse_pipeline(text, "run.yaml")
    _, graph = compile_run(pipeline, RUN, PLACE, PipelineSource(text, "run.yaml"))
    mark_results(graph)
    validate(graph)
    assert to_json(from_json(to_json(graph))) == to_json(graph)
    return graph


def _subject(vertex: Vertex) -> tuple[str, bool]:
    return vertex.step, vertex.role is Role.OWN


def edges(graph: LogicalGraph) -> set[tuple[str, str]]:
    return {(edge.src, edge.dst) for edge in graph.edges}


NESTED = """
name: p
entry_points:
  first: {command: "true", parameters: {n: 3}, artifacts: {output: [o]}}
  outer:
    deps: first
    parameters: {m: "{{first.n}}", who: "{{PF_STEP_NAME}}"}
    artifacts: {input: {i: "{{first.o}}"}, output: {result: "{{inner.result}}"}}
    entry_points:
      a: {command: "{{x}} {{y}}", parameters: {x: "{{PF_PARENT.m}}", y: "{{PF_PARENT.who}}"}}
      inner:
        deps: a
        artifacts: {input: {i: "{{PF_PARENT.i}}"}, output: {result: "{{c.q}}"}}
        entry_points:
          b: {command: "cat {{i}}", artifacts: {input: {i: "{{PF_PARENT.i}}"}}}
          c: {command: "true", artifacts: {output: [q]}}
  last: {deps: outer, command: "cat {{r}}", artifacts: {input: {r: "{{outer.result}}"}}}
"""


class TestNested:
    def test_steps_stand_side_by_side(self):
        assert list(compiled(NESTED).vertices) == ["first", "outer.a", "outer.inner.b", "outer.inner.c", "last"]

    def test_the_first_inside_waits_for_what_the_dag_waits_for_and_others_for_the_last_inside(self):
        assert edges(compiled(NESTED)) == {
            ("first", "outer.a"),
            ("outer.a", "outer.inner.b"),
            ("outer.a", "outer.inner.c"),
            ("outer.inner.b", "last"),
            ("outer.inner.c", "last"),
        }

    def test_values_go_down_and_artifacts_up(self):
        found = nodes_of(NESTED)
        assert step(found, "outer.a").command == "3 outer"
        assert step(found, "outer.inner.b").inputs == {"i": step(found, "first").outputs["o"]}
        assert step(found, "last").inputs == {"r": step(found, "outer.inner.c").outputs["q"]}

    def test_runtime_names_make_the_folders(self):
        path = step(nodes_of(NESTED), "outer.inner.c").outputs["q"]
        assert path == "/data/.pipeline/run-000001/p/c-0-d9aade0af4d365bc30fbe309d692020d/q"

    def test_many_ends_are_waited_for_through_one(self):
        wide = "".join(f"      s{n}: {{command: x}}\n" for n in range(40))
        text = f"name: p\nentry_points:\n  d:\n    entry_points:\n{wide}"
        text += "  e:\n    deps: d\n    entry_points:\n" + wide
        graph = compiled(text)
        assert len(graph.edges) == 40 + 40 + 40
        assert "d/end" in graph.vertices

    def test_a_disabled_dag_is_one_vertex_that_is_skipped(self):
        graph = compiled(NESTED.replace("name: p", "name: p\ndisabled: outer.inner.b"))
        assert graph.choices[0].branches["run"] == ("outer.inner.b",)
        text = "name: p\ndisabled: d\nentry_points:\n  a: {}\n  d: {deps: a, entry_points: {x: {}}}\n  b: {deps: d}\n"
        graph = compiled(text)
        assert list(graph.vertices) == ["_disabled", "a", "d", "b"]
        assert ("a", "b") in edges(graph)
        assert _subject(graph.vertices["d"]) == ("d", True)

    def test_a_dag_deep_inside_others_has_a_short_id(self):
        name = "n" * 30
        text, pad = f"name: p\nentry_points:\n  {name}:\n", "    "
        for _ in range(8):
            text += f"{pad}entry_points:\n{pad}  {name}:\n"
            pad += "    "
        graph = compiled(text + f"{pad}command: x\n")
        (id,) = graph.vertices
        assert len(id) <= 150
        assert graph.vertices[id].program.params["name"].count(".") == 8


REFERENCES = """
name: p
entry_points:
  a: {command: "true", artifacts: {output: [o]}}
  b:
    deps: a
    reference: {component: twice}
    parameters: {n: 5}
    artifacts: {input: {i: "{{a.o}}"}}
  c:
    deps: b
    reference: {component: other}
    artifacts: {input: {i: "{{b.o}}"}}
components:
  other: {reference: {component: twice}, parameters: {n: "7"}, artifacts: {input: {i: ""}}}
  twice:
    command: "{{n}} {{i}} {{PF_STEP_NAME}}"
    parameters: {n: {type: int, default: 1}, free: text}
    artifacts: {input: {i: ""}, output: [o]}
"""


class TestReferences:
    def test_a_copy_has_its_own_name_inputs_and_parameters(self):
        found = nodes_of(REFERENCES.replace('"7"', "7"))
        b = step(found, "b")
        assert b.parameters == {"n": 5, "free": "text"}
        assert b.command == f"5 {step(found, 'a').outputs['o']} b"

    def test_chains_are_followed_and_values_converted(self):
        with pytest.raises(PipelineError, match="must be an integer"):
            parse_pipeline(REFERENCES, "run.yaml")
        found = nodes_of(REFERENCES.replace('"7"', "7"))
        assert str(step(found, "c").command).startswith("7 ")

    def test_what_grows_without_end_is_refused(self):
        lines = "".join(
            f"  c{n}: {{entry_points: {{x: {{reference: {{component: c{n + 1}}}}}, "
            f"y: {{reference: {{component: c{n + 1}}}}}}}}}\n"
            for n in range(30)
        )
        text = "name: p\nentry_points: {a: {reference: {component: c0}}}\ncomponents:\n"
        text += f"{lines}  c30: {{command: x}}\n"
        with pytest.raises(InputLimitError, match="more than 100000 steps"):
            parse_pipeline(text, "run.yaml")

    def test_a_long_chain_is_no_problem(self):
        lines = "".join(f"  c{n}: {{reference: {{component: c{n + 1}}}}}\n" for n in range(3000))
        text = "name: p\nentry_points: {a: {reference: {component: c0}}}\ncomponents:\n"
        text += f"{lines}  c3000: {{command: x}}\n"
        assert step(nodes_of(text), "a").command == "x"

    def test_one_mistake_in_a_component_is_told_once(self):
        text = REFERENCES.replace('"7"', "7").replace("{{n}} {{i}}", "{{oops}}")
        with pytest.raises(PipelineError) as caught:
            parse_pipeline(text, "run.yaml")
        assert caught.value.path == "components.twice.command"
        assert caught.value.message.count("oops") == 1


class TestOverrides:
    TEXT = """
name: p
entry_points:
  a: {command: x, parameters: {n: 1}}
  d:
    parameters: {n: 2}
    entry_points:
      b: {command: x, parameters: {n: 3, m: 4}}
      r: {reference: {component: c}}
components:
  c: {command: x, parameters: {n: 9}}
post_process:
  z: {command: x, parameters: {n: 5}}
"""

    def values(self, **overrides: object) -> dict[str, Any]:
        given = {name.replace("__", "."): value for name, value in overrides.items()}
        pipeline = apply_overrides(parse_pipeline(self.TEXT, "f"), given)
        parts = {**pipeline.entry_points, **pipeline.post_process}
        return {name: one.parameters["n"].value for name, one in walk(parts)}

    def test_a_bare_name_reaches_all_that_have_it(self):
        assert self.values(n="7") == {"a": 7, "d": 7, "d.b": 7, "d.r": 7, "z": 7}

    def test_a_bare_name_reaches_copies_with_and_without_a_value_of_their_own(self):
        text = """
name: p
entry_points:
  one: {reference: {component: c}, parameters: {n: 5}}
  two: {reference: {component: c}}
  many: {reference: {component: d}}
components:
  c: {command: "{{n}}", parameters: {n: {type: int, default: 3}}}
  d: {entry_points: {inner: {reference: {component: c}}}}
"""
        pipeline = apply_overrides(parse_pipeline(text, "f"), {"n": "7", "two.n": "8"})
        values = {name: one.parameters["n"].value for name, one in pipeline.steps.items()}
        assert values == {"one": 7, "two": 8, "many.inner": 7}

    def test_a_parameter_that_only_a_component_has_is_known_by_its_bare_name(self):
        text = "name: p\nentry_points:\n  a: {reference: {component: c}}\n"
        text += "components:\n  c: {command: x, parameters: {n: 3}}\n"
        assert apply_overrides(parse_pipeline(text, "f"), {"n": "7"}).steps["a"].parameters["n"].value == 7

    def test_a_bare_name_outdoes_what_a_lower_source_gives_a_copy(self):
        assert outdone(parse_pipeline(self.TEXT, "f"), ["d.r.n", "d.b.m"], ["n"]) == {"d.r.n"}

    def test_a_dotted_name_reaches_one(self):
        assert self.values(n=7, d__b__n=8, d__r__n=6) == {"a": 7, "d": 7, "d.b": 8, "d.r": 6, "z": 7}

    def test_an_unknown_one_names_the_nearest(self):
        with pytest.raises(UsageError) as caught:
            self.values(d__b__mm=1)
        assert caught.value.hint == "did you mean d.b.m?"


class TestLoops:
    def test_a_step_is_one_vertex_with_a_task_for_each_item(self):
        text = """
name: p
entry_points:
  a:
    command: "run {{PF_LOOP_ARGUMENT}} > {{o}}"
    loop_argument: '[1000000, "b c", [1, "x"]]'
    env: {MINE: "<{{PF_LOOP_ARGUMENT}}>"}
    artifacts: {output: [o]}
  b: {deps: a, command: "cat {{i}}", artifacts: {input: {i: "{{a.o}}"}}}
"""
        graph = compiled(text)
        vertex = graph.vertices["a"]
        assert (vertex.parallelism, vertex.program.items) == (3, [1000000, "b c", [1, "x"]])
        assert vertex.program.params["command"] == ["run ", ["item", ""], " > ", ["output", "o"]]
        assert vertex.program.params["env"]["MINE"] == ["<", ["item", ""], ">"]
        paths = [outputs_of(vertex, seq)["o"] for seq in range(3)]
        assert [Path(path).parent.name[:4] for path in paths] == ["a-0-", "a-1-", "a-2-"]
        assert graph.vertices["b"].program.params["command"] == "cat " + ",".join(paths)
        assert step(nodes_of(text), "a").portable_command == "run {{PF_LOOP_ARGUMENT}} > {{o}}"

    def test_a_loop_over_nothing_is_skipped(self):
        text = "name: p\nentry_points:\n  a: {}\n  b: {deps: a, loop_argument: []}\n  c: {deps: b}\n"
        graph = compiled(text)
        assert graph.choices[0].branches["run"] == ("b",)
        assert ("a", "c") in edges(graph)

    def test_a_parameter_may_hold_the_list(self):
        text = "name: p\nentry_points:\n  a: {command: x, loop_argument: '{{l}}', parameters: {l: [1, 2]}}\n"
        assert step(nodes_of(text), "a").items == (1, 2)
        assert step(nodes_of(text, {"l": "[3]"}), "a").items == (3,)
        assert step(nodes_of(text.replace("[1, 2]", "'[4]'")), "a").items == (4,)
        with pytest.raises(PipelineError, match="not a list in this run, but `five`") as caught:
            nodes_of(text.replace("[1, 2]", "five"))
        assert caught.value.path == "entry_points.a.loop_argument"

    def test_a_dag_is_repeated_for_each_item(self):
        text = """
name: p
entry_points:
  d:
    loop_argument: [7, [8, 9]]
    artifacts: {output: {o: "{{y.o}}"}}
    entry_points:
      x: {command: "{{v}}", parameters: {v: "{{PF_PARENT.PF_LOOP_ARGUMENT}}"}}
      y: {deps: x, command: "{{PF_LOOP_ARGUMENT}}", artifacts: {output: [o]}}
  e: {deps: d, command: "{{i}}", artifacts: {input: {i: "{{d.o}}"}}}
"""
        found = nodes_of(text)
        assert [(node.id, node.name) for node in found.values()] == [
            ("d/0.x", "d.x"),
            ("d/0.y", "d.y"),
            ("d/1.x", "d-1.x"),
            ("d/1.y", "d-1.y"),
            ("e", "e"),
        ]
        assert [step(found, id).command for id in ("d/0.x", "d/1.x", "d/1.y")] == ["7", "[8, 9]", ""]
        assert step(found, "e").command == ",".join(step(found, f"d/{n}.y").outputs["o"] for n in (0, 1))
        assert edges(compiled(text)) >= {("d/0.y", "e"), ("d/1.y", "e")}

    def test_the_content_of_an_artifact_is_read_by_a_vertex_that_tells_the_width(self):
        text = """
name: p
entry_points:
  a: {command: x, artifacts: {output: [l]}}
  b: {deps: a, command: y, loop_argument: "{{l}}", artifacts: {input: {l: "{{a.l}}"}, output: [o]}}
  c: {deps: b, command: "cat {{i}} {{j}}", artifacts: {input: {i: "{{b.o}}"}}, parameters: {j: 1}}
"""
        graph = compiled(text)
        assert graph.vertices["b"].parallelism == Source("b/loop")
        assert graph.vertices["b/loop"].expands
        assert {edge.id: edge.carries_data for edge in graph.edges if edge.dst == "c"} == {
            "b->c": False,
            "b/loop->c": True,
        }
        assert graph.vertices["c"].program.params["command"] == ["cat ", ["input", "i"], " 1"]
        assert "b.o" not in planned_outputs(list(nodes_of(text).values()))

    LIST = "name: p\nentry_points:\n  a: {command: x, loop_argument: '{{l}}', parameters: {l: []}}\n"

    def test_ten_thousand_items_are_one_vertex(self):
        pipeline = make_pipeline(self.LIST, "f", {"l": list(range(10_000))}, None)
        assert len(compile_run(pipeline, RUN, PLACE, PipelineSource())[1].vertices) == 1

    def test_too_many_steps_are_refused(self, monkeypatch):
        monkeypatch.setattr(resolve, "MAX_NODES", 105)
        text = self.LIST.replace("command: x", "entry_points: {x: {}, y: {}}")
        assert len(resolve_nodes(make_pipeline(text, "f", {"l": [1] * 50}, None), RUN)) == 101
        with pytest.raises(InputLimitError, match="the loops make more than"):
            resolve_nodes(make_pipeline(text, "f", {"l": [1] * 60}, None), RUN)


class TestAsPaddleFlow:
    def test_numbers_have_exponents(self):
        text = "name: p\nx-weft: {as_paddleflow: [numbers]}\n"
        text += "entry_points: {a: {loop_argument: [1000000, 3, 0.00001, x]}}\n"
        assert step(nodes_of(text), "a").items == ("1e+06", "3", "1e-05", "x")

    def test_a_loop_over_nothing_is_refused(self):
        text = "name: p\nx-weft: {as_paddleflow: [empty_loop]}\nentry_points:\n  a: {loop_argument: []}\n"
        with pytest.raises(PipelineError, match="the loop has no items"):
            nodes_of(text)

    def test_the_name_of_a_step_in_a_parameter_is_that_of_the_dag_around(self):
        inner = "entry_points: {x: {command: '{{n}}', parameters: {n: '<{{PF_STEP_NAME}}>'}}}"
        text = f"name: p\nx-weft: {{as_paddleflow: [step_name]}}\nentry_points:\n  d: {{{inner}}}\n"
        text += "  y: {command: '{{n}}', parameters: {n: '<{{PF_STEP_NAME}}>'}}\n"
        found = nodes_of(text)
        assert (step(found, "d.x").command, step(found, "y").command) == ("<d>", "<>")

    def test_another_word_is_refused(self):
        with pytest.raises(PipelineError, match="is unknown"):
            parse_pipeline("name: p\nx-weft: {as_paddleflow: [all]}\nentry_points: {a: {}}\n", "f")


class TestConditions:
    def test_a_condition_is_a_choice(self):
        text = "name: p\nentry_points:\n  a: {command: x, condition: '{{n}} > 3', parameters: {n: 4}}\n  b: {deps: a}\n"
        graph = compiled(text)
        assert graph.vertices["a/if"].program.params["condition"] == "4 > 3"
        (choice,) = graph.choices
        assert (choice.decider, choice.branches) == ("a/if", {"run": ("a",), "skipped": ()})

    def test_of_a_dag_all_that_is_inside_is_on_the_branch(self):
        text = """
name: p
entry_points:
  d:
    condition: "1 > 0"
    entry_points:
      x: {command: x, condition: "2 > 1"}
      y: {entry_points: {z: {command: z}}}
"""
        graph = compiled(text)
        branches = {choice.id: choice.branches["run"] for choice in graph.choices}
        assert branches == {"d/if": ("d.x/if", "d.x", "d.y.z"), "d.x/if": ("d.x",)}
        assert _subject(graph.vertices["d/if"]) == ("d", False)

    def test_of_an_artifact_the_content_is_asked_for_in_the_run(self):
        text = """
name: p
entry_points:
  a: {command: x, artifacts: {output: [o]}}
  b: {deps: a, command: y, condition: "{{i}} == {{n}}", parameters: {n: "{{x}}"}, artifacts: {input: {i: "{{a.o}}"}}}
""".replace('parameters: {n: "{{x}}"}', "parameters: {n: ok}")
        decider = compiled(text).vertices["b/if"]
        assert decider.program.params["condition"] == [["content", "i"], " == ok"]
        assert list(decider.program.params["inputs"]) == ["i"]

    def test_each_item_of_a_loop_is_asked_where_it_matters(self):
        text = (
            "name: p\nentry_points:\n  a: {command: x, loop_argument: [1, 2], condition: '{{PF_LOOP_ARGUMENT}} > 1'}\n"
        )
        graph = compiled(text)
        assert graph.vertices["a"].program.params["condition"] == [["item", ""], " > 1"]
        assert not graph.choices
        text = text.replace("command: x", "entry_points: {x: {command: x}}")
        assert {choice.id for choice in compiled(text).choices} == {"a/0/if", "a/1/if"}


def test_a_dag_that_loops_over_an_artifact_becomes_a_patch():
    text = """
name: p
entry_points:
  a: {command: x, artifacts: {output: [l]}}
  d:
    deps: a
    loop_argument: "{{l}}"
    artifacts: {input: {l: "{{a.l}}"}, output: {o: "{{x.o}}"}}
    entry_points:
      x:
        command: "{{v}}"
        parameters: {v: "{{PF_PARENT.PF_LOOP_ARGUMENT}}"}
        artifacts: {input: {l: "{{PF_PARENT.l}}"}, output: [o]}
        loop_argument: "{{l}}"
      y: {command: "true"}
      z: {command: "true", condition: "{{v}} > 1", parameters: {v: "{{PF_PARENT.PF_LOOP_ARGUMENT}}"}}
  e: {deps: d, command: "cat {{i}}", artifacts: {input: {i: "{{d.o}}"}}}
disabled: d.y
"""
    graph = compiled(text)
    assert set(graph.vertices) == {"a", "d", "d/end", "e"}
    pipeline = parse_pipeline(text, "run.yaml")
    dag = pipeline.entry_points["d"]
    assert isinstance(dag, Dag)
    scope = ComponentScope("d", "d", "d", {}, {"l": ("/data/list",)}, "", ("d",))
    patch: Patch = compile_items(pipeline, dag, scope, [1, 2], graph.vertices["d"].program.params["repeating"])
    check_patch(graph, patch, "d")
    ids = [vertex.id for vertex in patch.vertices]
    assert ids == [
        "d/disabled",
        *(f"d/{n}{tail}" for n in (0, 1) for tail in (".x/loop", ".x", ".y", ".z/if", ".z")),
        "d/outputs",
    ]
    assert _subject(patch.vertices[2]) == ("d.x", True)
    assert ("d/outputs", "d/end") in {(edge.src, edge.dst) for edge in patch.edges}
    assert {edge.dst for edge in patch.edges if edge.carries_data and edge.src == "d/1.x/loop"} == {"d/outputs"}


def test_ten_thousand_steps_are_resolved_in_a_line():
    lines = "".join(f"  s{n}: {{deps: '{f's{n - 1}' if n else ''}'}}\n" for n in range(10_000))
    assert len(compiled(f"name: p\nentry_points:\n{lines}").vertices) == 10_000


def test_post_process_has_a_part_of_its_own():
    text = "name: p\nentry_points: {a: {}}\npost_process: {z: {command: 'x > {{o}}', artifacts: {output: [o]}}}\n"
    (node,) = resolve_nodes(parse_pipeline(text, "f"), RUN, POST_PROCESS)
    assert isinstance(node, ResolvedStep)
    assert node.folder.part == "post_process"
    assert str(node.command).startswith("x > /data/.pipeline/run-000001/p/z-0-")


def test_mounts_are_those_of_the_step_then_of_all():
    text = """
name: p
entry_points:
  a:
    command: x
    extra_fs: [{name: own, mount_path: /own, sub_path: deep, read_only: true}, {name: main, mount_path: /m}]
fs_options:
  main_fs: {name: main, sub_path: work}
  extra_fs: [{name: all}]
"""
    run = RunIdentity("run-1", "ada", "/data", {"own": "/disk"})
    (node,) = resolve_nodes(parse_pipeline(text, "f"), run)
    assert isinstance(node, ResolvedStep)
    where = "/home/paddleflow/storage/mnt/fs-ada-main"
    assert node.mounts == (
        MountPoint("main", where, "/data/work", sub_path="work", main=True, root="/data"),
        MountPoint("own", "/own", "/disk/deep", read_only=True, sub_path="deep", root="/disk"),
        MountPoint("main", "/m", "/data", root="/data"),
        MountPoint("all", "/home/paddleflow/storage/mnt/fs-ada-all", None),
    )
