"""`weft compare` of real runs: what differs, by content, and the first change that explains it."""

import pytest

from tests.integration.places import Commands

RUNS = """
name: chain
entry_points:
  prepare:
    command: echo {{word}} > {{data}}
    parameters: {word: a, unused: 1}
    artifacts: {output: [data]}
  train:
    command: wc -c < {{data}} > {{size}} && echo '{"loss":' 0.{{rate}} '}' > {{scores}}
    parameters: {rate: 5, title: "Run {{PF_RUN_ID}}"}
    deps: prepare
    artifacts: {input: {data: "{{prepare.data}}"}, output: [size, scores]}
  other:
    command: echo x > {{out}}
    artifacts: {output: [out]}
"""


@pytest.fixture
def weft(tmp_path, monkeypatch) -> Commands:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.yaml").write_text(RUNS)
    weft = Commands(tmp_path)
    weft("run", "run.yaml")
    return weft


def compared(weft):
    return weft.json("compare", "1", "2")["comparison"]


def test_runs_with_the_same_results(weft):
    weft("run", "run.yaml")
    found = compared(weft)
    assert (found["same"], found["why"], found["parameters"], found["metrics"]) == (
        True,
        "the results are the same",
        [],
        [],
    )
    assert {output["outcome"] for step in found["steps"] for output in step["outputs"]} == {"same"}
    assert weft("compare", "1", "@last")[0].startswith("run-000001 and run-000002: the results are the same\n")


def test_a_parameter_that_changes_no_result(weft):
    weft("run", "run.yaml", "-p", "unused=2")
    found = compared(weft)
    assert (found["same"], found["why"]) == (
        True,
        "the results are the same, although prepare: parameter unused: 1 → 2",
    )
    assert found["parameters"] == [{"name": "prepare.unused", "first": 1, "second": 2}]


def test_the_first_change_above_explains_the_results(weft):
    weft("run", "run.yaml", "-p", "word=bb", "--tag", "x")
    found = compared(weft)
    assert (found["same"], found["why"]) == (False, 'the results differ because of prepare: parameter word: "a" → "bb"')
    steps = {step["name"]: step for step in found["steps"]}
    assert [(name, step["differs"], bool(step["causes"])) for name, step in steps.items()] == [
        ("prepare", True, True),
        ("other", False, False),
        ("train", True, False),
    ]
    assert {one["name"]: one["outcome"] for one in steps["train"]["outputs"]} == {
        "train.size": "other",
        "train.scores": "same",
    }
    text, _ = weft("compare", "1", "2")
    assert "prepare.word  a " in text
    assert "other: size" in text


def test_a_change_beside_the_results_does_not_explain_them(weft):
    (weft.folder / "run.yaml").write_text(RUNS.replace("echo x", "printf 'x\\n'"))
    weft("run", "run.yaml", "-p", "rate=7")
    found = compared(weft)
    assert found["why"] == "the results differ because of train: parameter rate: 5 → 7"
    assert found["metrics"] == [{"name": "train.scores: loss", "first": 0.5, "second": 0.7}]
    other = next(step for step in found["steps"] if step["name"] == "other")
    assert (other["differs"], "the command changed" in other["causes"][0]) == (False, True)


def test_a_step_that_is_not_deterministic(weft):
    text = RUNS.replace("echo x >", "date +%s%N >")
    (weft.folder / "run.yaml").write_text(text)
    for _ in range(2):
        weft("run", "run.yaml")
    found = weft.json("compare", "2", "3")["comparison"]
    assert "other made something else of the same" in found["why"]


def test_steps_that_one_run_lacks_and_failures(weft):
    (weft.folder / "run.yaml").write_text(RUNS.replace("echo x", "false x").replace("  other:", "  another:"))
    weft("run", "run.yaml", code=1)
    found = compared(weft)
    assert "only run-000001 has this step" in str(found["steps"])
    assert "only run-000001: out" in weft("compare", "1", "2")[0]
    assert "only run-000001: out" in weft("compare", "2", "1")[0]
    assert {"name": "state", "first": "succeeded", "second": "failed"} in found["facts"]
    (weft.folder / "run.yaml").write_text(RUNS.replace("wc -c", "test -e go && wc -c"))
    weft("run", "run.yaml", code=1)
    (weft.folder / "go").touch()
    weft("run", "run.yaml")
    found = weft.json("compare", "3", "4")["comparison"]
    assert found["why"] == "the results differ because train failed in run-000003 and succeeded in run-000004"


def test_what_a_cached_step_reads_is_compared(weft):
    text = RUNS.replace("echo x >", "cat data.txt >").replace(
        "{output: [out]}", "{output: [out]}\n    cache: {enable: true, fs_scope: [{path: data.txt}]}"
    )
    text += "fs_options:\n  main_fs: {name: local}\n"
    (weft.folder / "run.yaml").write_text(text.replace("{path:", "{name: local, path:"))
    for content in "ab":
        (weft.folder / "data.txt").write_text(content)
        weft("run", "run.yaml")
    found = weft.json("compare", "2", "3")["comparison"]
    assert found["why"].startswith("the results differ because of other: ")
    assert "data.txt changed" in found["why"]


def test_names_of_no_runs_are_refused(weft):
    weft("compare", "1", "7", code=4)
    weft("compare", "1", code=2)
    weft("compare", "1/prepare", "1", code=2)


def test_a_step_that_was_reused_has_no_cause(tmp_path, monkeypatch):
    """What it opened is known of the result alone, and not of the run that had to make it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "words").mkdir()
    (tmp_path / "words" / "a.txt").write_text("a")
    (tmp_path / "count.py").write_text("import os\nprint(*sorted(os.listdir('wor' + 'ds')))\n")
    (tmp_path / "run.yaml").write_text(
        """
name: chain
entry_points:
  count:
    command: "python3 count.py > {{out}}"
    artifacts: {output: [out]}
    cache: {enable: true}
  show:
    command: echo {{rate}} > {{out}}
    parameters: {rate: 5}
    deps: count
    artifacts: {output: [out]}
"""
    )
    weft = Commands(tmp_path)
    weft("run", "run.yaml")
    weft("run", "run.yaml", "-p", "rate=6")
    assert weft("why", "2/count")[0] == "count was taken from the cache: result of run-000001\n"
    for pair, change in ((("1", "2"), "5 → 6"), (("2", "1"), "6 → 5")):
        found = weft.json("compare", *pair)["comparison"]
        assert found["why"] == f"the results differ because of show: parameter rate: {change}"
        assert {step["name"]: list(step["causes"]) for step in found["steps"]}["count"] == []
