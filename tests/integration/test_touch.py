"""`weft run --touch`: outputs of an earlier run are the results of an edited pipeline, and nothing runs."""

import shutil

import pytest

from tests.integration.places import Commands
from weft import Graph, Session

RUNS = """
name: words
cache: {enable: true}
entry_points:
  fetch:
    command: echo ran >> fetched && echo {{word}} > {{pages}}
    parameters: {word: a}
    artifacts: {output: [pages]}
  each:
    command: echo {{PF_LOOP_ARGUMENT}} > {{piece}}
    loop_argument: [1, 2]
    artifacts: {output: [piece]}
  count:
    command: wc -l < {{text}} > {{counts}}
    deps: fetch
    artifacts: {input: {text: "{{fetch.pages}}"}, output: [counts]}
  loud:
    command: echo hello
    cache: {enable: false}
"""
EDITED = RUNS.replace("echo ran >>", "echo 'ran ' >>").replace("wc -l", "wc  -l").replace("echo {{PF", "echo  {{PF")


@pytest.fixture
def weft(tmp_path, monkeypatch) -> Commands:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.yaml").write_text(RUNS)
    return Commands(tmp_path)


def plan(weft, *words):
    return {step["step"]: step["outcome"] for step in weft.json("plan", "run.yaml", *words)["steps"]}


def test_outputs_of_the_last_run_are_taken_for_an_edited_pipeline(weft):
    weft("run", "run.yaml")
    (weft.folder / "run.yaml").write_text(EDITED)
    assert plan(weft) == {"fetch": "run", "each-0": "run", "each-1": "run", "count": "depends", "loud": "run"}
    found = {one["step"]: one for one in weft.json("run", "run.yaml", "--touch")["steps"]}
    assert {name: one["outcome"] for name, one in found.items()} == {
        "fetch": "recorded",
        "each-0": "recorded",
        "each-1": "recorded",
        "count": "recorded",
        "loud": "left",
    }
    assert (found["fetch"]["reason"], found["loud"]["reason"]) == ("outputs of run-000001", "its cache is not enabled")
    assert weft.json("ls")["total"] == 1, "nothing has run"
    assert plan(weft) == {"fetch": "hit", "each-0": "hit", "each-1": "hit", "count": "hit", "loud": "run"}
    run = weft.json("run", "run.yaml")["run"]
    assert (weft.folder / "fetched").read_text() == "ran\n", "fetch ran once"
    assert {step["state"] for step in run["steps"]} == {"succeeded"}
    out, _ = weft("run", "run.yaml", "--touch=1")
    assert "count   known already  result of run-000001\n" in out


def test_missing_outputs_are_refused_and_nothing_is_recorded(weft):
    run = weft.json("run", "run.yaml")["run"]
    (weft.folder / "run.yaml").write_text(EDITED)
    (weft.folder / run["outputs"]["count.counts"]).unlink()
    _, err = weft("run", "run.yaml", "--touch", code=7)
    assert "outputs of run-000001 are missing: count has no counts; nothing is recorded" in err
    assert plan(weft)["fetch"] == "run"
    weft("run", "run.yaml", "--touch", "--target", "fetch")
    assert (plan(weft)["fetch"], plan(weft)["count"]) == ("hit", "run")


def test_what_is_taken_is_what_is_there(weft):
    """An output that someone has corrected by hand is the result from then on, and leads to others below."""
    run = weft.json("run", "run.yaml")["run"]
    path = weft.folder / run["outputs"]["fetch.pages"]
    path.unlink()
    path.write_text("x\ny\n")
    (weft.folder / "run.yaml").write_text(EDITED)
    weft("run", "run.yaml", "--touch", "--target", "fetch")
    outputs = weft.json("run", "run.yaml")["run"]["outputs"]
    assert (weft.folder / outputs["fetch.pages"]).read_text() == "x\ny\n"
    assert (weft.folder / outputs["count.counts"]).read_text().strip() == "2"


def test_runs_that_have_no_outputs_to_take(weft):
    _, err = weft("run", "run.yaml", "--touch", code=4)
    assert "no run of words has succeeded" in err
    weft("run", "run.yaml", "--touch=7", code=4)
    weft("run", "run.yaml", "--touch", "--dry-run", code=2)
    weft("run", "run.yaml")
    shutil.rmtree(weft.folder / ".pipeline" / "run-000001")
    assert "nothing is recorded" in weft("run", "run.yaml", "--touch", code=7)[1]


def test_a_run_of_some_steps_is_not_the_last_run(weft):
    weft("run", "run.yaml")
    weft("run", "run.yaml", "--target", "fetch")
    (weft.folder / "run.yaml").write_text(EDITED)
    found = weft.json("run", "run.yaml", "--touch")["steps"]
    assert {one["reason"] for one in found if one["outcome"] == "recorded"} == {"outputs of run-000001"}


def test_the_last_run_is_one_with_the_same_parameters(weft):
    weft("run", "run.yaml", "-p", "word=b")
    weft("run", "run.yaml")
    weft("sweep", "run.yaml", "-p", "word=c,d")
    (weft.folder / "run.yaml").write_text(EDITED.replace("{word: a}", "{word: a, unused: 1, id: '{{PF_RUN_ID}}'}"))
    found = weft.json("run", "run.yaml", "--touch", "--target", "fetch")["steps"]
    assert [(one["outcome"], one["reason"]) for one in found] == [("recorded", "outputs of run-000002")]
    outputs = weft.json("run", "run.yaml")["run"]["outputs"]
    assert (weft.folder / outputs["fetch.pages"]).read_text() == "a\n"


def test_outputs_of_other_parameters_are_taken_only_of_a_named_run(weft):
    weft("run", "run.yaml", "-p", "word=b")
    (weft.folder / "run.yaml").write_text(EDITED)
    _, err = weft("run", "run.yaml", "--touch", code=7)
    assert "no run of words has succeeded with these parameters; in run-000001, the last one, " in err
    assert 'fetch.word was "b" and is "a"; nothing is recorded' in err
    assert "--touch=run-000001" in err
    assert plan(weft)["fetch"] == "run"
    weft("run", "run.yaml", "--touch=1")
    assert plan(weft)["fetch"] == "hit"


def test_outputs_of_other_items_are_left_out(weft):
    weft("run", "run.yaml")
    (weft.folder / "run.yaml").write_text(EDITED.replace("loop_argument: [1, 2]", "loop_argument: [3, 2, 1]"))
    found = {one["step"]: (one["outcome"], one["reason"]) for one in weft.json("run", "run.yaml", "--touch")["steps"]}
    assert found["each-0"] == ("left", "run-000001 had another item of this number")
    assert found["each-1"] == ("recorded", "outputs of run-000001")
    assert found["each-2"] == ("left", "run-000001 had no item of this number")
    outputs = weft.json("run", "run.yaml")["run"]["outputs"]
    told = {name: (weft.folder / path).read_text() for name, path in outputs.items() if name.startswith("each")}
    assert sorted(told.values()) == ["1\n", "2\n", "3\n"]


def test_a_run_of_a_python_graph_of_the_same_name_is_none_of_the_pipeline(weft):
    weft("run", "run.yaml")
    with Session("threads", durable=weft.folder / ".weft") as session:
        graph = Graph("words")
        graph.add(int)
        session.run(graph)
    assert weft.json("ls")["runs"][0]["name"] == "words"
    found = weft.json("run", "run.yaml", "--touch")["steps"]
    assert {one["outcome"] for one in found} == {"known", "left"}
    assert "run-000002 is no run of a pipeline" in weft("run", "run.yaml", "--touch=2", code=2)[1]
