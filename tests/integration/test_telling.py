"""What the commands tell about the steps of a run: reasons, states, messages, exit codes and outputs."""

import json
import re
import shlex
import sys
from typing import Any

import pytest

from tests.integration.places import DEADLINE_S, RUN, Project, until

LEFT_OUT: dict[str, Any] = {
    "n": {"command": "echo 3 > {{n}}", "artifacts": {"output": ["n"]}},
    "never": {"command": "true", "condition": "1 > 2"},
    "asked": {"command": "true", "deps": "n", "condition": "{{n}} > 5", "artifacts": {"input": {"n": "{{n.n}}"}}},
    "off": {"command": "true"},
    "none": {"command": "true", "loop_argument": []},
    "some": {"command": "true", "loop_argument": [1, 2], "condition": "{{PF_LOOP_ARGUMENT}} > 1"},
    "part": {"condition": "'a' == 'b'", "entry_points": {"inside": {"command": "true"}}},
    "bad": {"command": "exit 3"},
    "worse": {"command": "exit 4"},
    "below": {"command": "true", "deps": "bad"},
    "lower": {"command": "true", "deps": "below"},
}
REASONS = {
    "never": "skipped: its condition is false: `1 > 2`",
    "asked": "skipped: its condition is false: `3 > 5`",
    "off": "skipped: it is disabled",
    "none": "skipped: it loops over nothing",
    "some[0]": "skipped: its condition is false: `1 > 1`",
    "part.inside": "skipped: part: its condition is false: `'a' == 'b'`",
    "below": "cancelled: bad failed",
    "lower": "cancelled: bad failed",
    "n": "it runs in every run, because its cache is not enabled",
}


@pytest.fixture
def place(tmp_path) -> Project:
    return Project(tmp_path)


def test_each_step_without_a_run_has_its_reason(place):
    place.write(LEFT_OUT, disabled="off", failure_options={"strategy": "continue"})
    code, out, err = place.weft("run", "run.yaml")
    assert code == 1
    assert "error WEFT501: 2 steps failed: " in err
    assert err.count("ended with exit code 3") + err.count("ended with exit code 4") == 4, "each change, and the error"
    told = {step: place.weft("why", f"{RUN}/{step}")[1] for step in REASONS}
    assert told == {step: f"{step}: {reason}\n" for step, reason in REASONS.items()}
    for step, reason in REASONS.items():
        state, _, why = reason.partition(": ")
        if state in ("skipped", "cancelled"):
            assert f"message  {why}" in place.weft("show", f"{RUN}/{step}")[1]
            assert f": {state}: {why}" in place.weft("story", f"{RUN}/{step}")[1]
    assert "_disabled" not in out


def test_a_step_after_a_loop_that_fails_early_has_not_failed(place):
    hold = "test {{PF_LOOP_ARGUMENT}} = 1 || { touch go; exit 3; }; until test -e go; do sleep 0.02; done; sleep 0.2"
    place.write({"some": {"command": hold, "loop_argument": [1, 2]}, "next": {"command": "true", "deps": "some"}})
    err = place.weft("run", "run.yaml")[2]
    assert "error WEFT501: step some-1 ended with exit code 3" in err
    assert place.weft("why", f"{RUN}/next")[1] == "next: cancelled: some failed\n"
    told = place.weft("why", f"{RUN}/some-1")[1].splitlines()
    assert told == [
        "some-1 failed: ended with exit code 3.",
        "some-1: it runs in every run, because its cache is not enabled",
    ]


def test_a_story_has_the_reasons_of_the_cache(place):
    made: Any = {"command": "echo {{n}}", "parameters": {"n": 1}, "cache": {"enable": True}}
    place.write({"made": made})
    place.weft("run", "run.yaml")
    place.weft("run", "run.yaml", "-p", "n=2")
    story = place.weft("story", "run-000002/made")[1]
    assert re.search(r"made: running: not in the cache: parameter n: 1 → 2, .*compared with run-000001\n", story)
    place.weft("run", "run.yaml")
    assert re.search(r"made: succeeded: taken from the cache\n", place.weft("story", "run-000003/made")[1])


def test_exit_codes_are_in_the_document(place):
    steps: dict[str, Any] = {
        "good": {"command": "true"},
        "bad": {"command": "exit 7"},
        "killed": {"command": "kill -9 $$"},
        "some": {"command": "exit {{PF_LOOP_ARGUMENT}}", "loop_argument": [0, 2]},
        "never": {"command": "true", "condition": "1 > 2"},
        "again": {"command": "test -e mark || { touch mark; exit 9; }", "x-weft": {"retry": {"user": 1}}},
    }
    place.write(steps, failure_options={"strategy": "continue"})
    document = json.loads(place.weft("run", "run.yaml", "--json")[1])["run"]
    steps = {step["name"]: step for step in document["steps"]}
    assert {name: step["exit"] for name, step in steps.items()} == {
        "good": 0,
        "bad": 7,
        "killed": 137,
        "some": None,
        "never": None,
        "again": 0,
    }
    assert [item["exit"] for item in steps["some"]["items"]] == [0, 2]
    assert (steps["again"]["state"], steps["again"]["message"], steps["again"]["attempts"]) == ("succeeded", "", 2)


def test_a_suspended_run_has_started_nothing_more(place):
    hold = "touch began; until test -e go; do sleep 0.02; done"
    place.write({"first": {"command": hold}, "next": {"command": "true", "deps": "first"}})
    process = place.start()
    try:
        until((place.folder / "began").exists)
        assert place.weft("suspend", "@last")[0] == 0
        (place.folder / "go").touch()
        process.communicate(timeout=180)
    finally:
        process.kill()
        process.communicate()
    assert place.states() == {"first": "succeeded", "next": "pending"}
    told = place.weft("why", f"{RUN}/next")[1]
    assert told == f"next: it has not started: the run is suspended; it goes on with: weft resume {RUN}\n"
    assert place.weft("why", RUN)[1] == told
    assert place.weft("resume", RUN)[0] == 0


def test_half_written_outputs_are_no_outputs(place):
    steps: dict[str, Any] = {
        "good": {"command": "echo whole > {{out}}", "artifacts": {"output": ["out"]}},
        "bad": {"command": "echo half > {{out}}; test -e mended", "artifacts": {"output": ["out"]}},
        "some": {
            "command": "echo {{PF_LOOP_ARGUMENT}} > {{out}}; test {{PF_LOOP_ARGUMENT}} -lt 2 -o -e mended",
            "loop_argument": [1, 2],
            "artifacts": {"output": ["out"]},
        },
    }
    place.write(steps, failure_options={"strategy": "continue"})
    document = json.loads(place.weft("run", "run.yaml", "--json")[1])["run"]
    assert sorted(document["outputs"]) == ["good.out", "some.out"]
    assert document["outputs"] == json.loads(place.weft("show", RUN, "--json")[1])["run"]["outputs"]
    assert json.loads(place.weft("show", f"{RUN}/bad", "--json")[1])["step"]["outputs"] == {}
    assert "output" not in place.weft("show", f"{RUN}/bad")[1]
    kept = [path for path in (place.folder / ".pipeline").rglob("out*") if path.is_file()]
    assert sorted((path.name, path.read_text()) for path in kept) == [
        ("out", "1\n"),
        ("out", "whole\n"),
        ("out.incomplete", "2\n"),
        ("out.incomplete", "half\n"),
    ]
    (place.folder / "mended").touch()
    document = json.loads(place.weft("resume", RUN, "--json")[1])["run"]
    assert sorted(document["outputs"]) == ["bad.out", "good.out", "some-1.out", "some.out"]
    assert list((place.folder / ".pipeline").rglob("*.incomplete")) == []


@pytest.mark.parametrize("kills", [False, True])
def test_attempts_go_on_counting_in_a_resume(place, kills):
    command = "echo began >> began; test ! -e hold || sleep 600; echo $(wc -l < began); test -e mended"
    steps: dict[str, Any] = {
        "one": {"command": command, "x-weft": {"retry": {"user": 1}}},
        "some": {"command": "test -e mended", "loop_argument": [1, 2]},
    }
    place.write(steps, failure_options={"strategy": "continue"}, parallelism=1)
    if kills:
        (place.folder / "hold").touch()
        process = place.start()
        until((place.folder / "began").exists)
        process.kill()
        process.communicate()
        (place.folder / "hold").unlink()
    else:
        assert place.weft("run", "run.yaml")[0] == 1
    (place.folder / "mended").touch()
    code, _, err = place.weft("resume", RUN)
    assert code == 0, err
    step = json.loads(place.weft("show", f"{RUN}/one", "--json")[1])["step"]
    first = 1 if kills else 2
    assert (step["attempts"], [log["attempt"] for log in step["logs"]]) == (first + 1, [*range(first + 1)])
    assert place.weft("logs", f"{RUN}/one@{first}")[1] == f"{first + 1}\n", "a log of its own"
    story = json.loads(place.weft("story", f"{RUN}/one@{first}", "--json")[1])["events"]
    assert [(event["state"], event["attempt"]) for event in story] == [("running", first), ("succeeded", first)]
    assert len(json.loads(place.weft("show", f"{RUN}/some[1]", "--json")[1])["step"]["logs"]) == (1 if kills else 2)


def test_a_story_of_a_live_run_has_the_words_of_pipelines(place):
    place.write({"long": {"command": "touch began; sleep 600"}, "next": {"command": "true", "deps": "long"}})
    process = place.start()
    try:
        until((place.folder / "began").exists)
        lines = until(lambda: [line.split("s  ", 1)[1] for line in place.weft("story", RUN)[1].splitlines()][2:])
        assert lines == ["long: running"]
    finally:
        process.kill()
        process.communicate()


def test_a_plan_knows_conditions_dags_over_artifacts_and_the_end(place):
    steps: dict[str, Any] = {
        **{name: LEFT_OUT[name] for name in ("n", "never", "asked", "off", "some", "part")},
        "list": {"command": "echo '[1]' > {{out}}", "artifacts": {"output": ["out"]}},
        "each": {
            "deps": "list",
            "artifacts": {"input": {"items": "{{list.out}}"}},
            "loop_argument": "{{items}}",
            "entry_points": {
                "one": {"command": "true"},
                "deep": {"entry_points": {"two": {"command": "true"}, "gone": {"command": "true"}}},
            },
        },
    }
    place.write(steps, disabled="off,each.deep.gone", post_process={"last": {"command": "true"}})
    plan = json.loads(place.weft("plan", "run.yaml", "--json")[1])["steps"]
    assert {one["step"]: (one["outcome"], one["reason"]) for one in plan} == {
        "n": ("run", "its cache is not enabled"),
        "never": ("skipped", "its condition is false: `1 > 2`"),
        "asked": ("depends", "on the condition of asked, `{{n}} > 5`"),
        "off": ("skipped", "it is disabled"),
        "some-0": ("skipped", "its condition is false: `1 > 1`"),
        "some-1": ("run", "its cache is not enabled"),
        "part.inside": ("skipped", "part: its condition is false: `'a' == 'b'`"),
        "list": ("run", "its cache is not enabled"),
        "each.one": ("depends", "on the list that each loops over"),
        "each.deep.two": ("depends", "on the list that each loops over"),
        "each.deep.gone": ("skipped", "it is disabled"),
        "last": ("run", "it runs at the end of every run"),
    }
    assert plan[-1]["step"] == "last"


def test_a_changed_result_is_not_told_as_gone(place):
    place.write({"made": {"command": "echo 1 > {{out}}", "artifacts": {"output": ["out"]}, "cache": {"enable": True}}})
    assert place.weft("run", "run.yaml", "-q")[0] == 0
    kept = next(path for path in (place.folder / ".pipeline/.cas/objects").glob("*/*") if path.read_text() == "1\n")
    kept.chmod(0o644)
    kept.write_text("7\n")
    for _ in range(2):
        assert re.search(r"made +run .* was changed", place.weft("plan", "run.yaml")[1])
    assert place.weft("run", "run.yaml", "-q")[0] == 0
    assert " was changed\n" in place.weft("why", "run-000002/made")[1]
    assert kept.read_text() == "1\n"
    kept.unlink()
    assert re.search(r"made +run .* is gone", place.weft("plan", "run.yaml")[1])


def test_the_insides_of_the_graph_are_not_shown(place):
    steps: dict[str, Any] = {
        "hold": {"command": "touch began; until test -e go; do sleep 0.02; done"},
        "list": {"command": "echo '[1]' > {{out}}", "deps": "hold", "artifacts": {"output": ["out"]}},
        "asked": {
            "command": "true",
            "deps": "list",
            "condition": "'{{in}}' =~ '1'",
            "artifacts": {"input": {"in": "{{list.out}}"}},
        },
        "each": {
            "command": "true",
            "deps": "list",
            "loop_argument": "{{in}}",
            "artifacts": {"input": {"in": "{{list.out}}"}},
        },
        "dag": {"deps": "list", "condition": "1 < 2", "entry_points": {"in": {"command": "true"}}},
        "off": {"command": "true"},
    }
    place.write(steps, disabled="off")
    told = "".join(place.weft("graph", "run.yaml", *words)[1] for words in ((), ("--dot",), ("--json",)))
    process = place.start()
    try:
        until((place.folder / "began").exists)
        until(lambda: place.states().get("hold") == "running")
        waits = {name: place.weft("why", f"{RUN}/{name}")[1] for name in ("asked", "each", "dag.in")}
        assert waits == {
            "asked": "asked: waits for the end of list (0 of 1 task finished)\n",
            "each": "each: waits for its number of tasks (as many as its list has), which follows from list\n",
            "dag.in": "dag.in: waits for the end of list (0 of 1 task finished)\n",
        }
        told += place.weft("explain", RUN)[1]
        (place.folder / "go").touch()
        assert process.wait(timeout=180) == 0
    finally:
        process.kill()
        process.communicate()
    told += place.weft("explain", RUN)[1] + place.weft("story", RUN)[1] + place.weft("show", RUN, "--json")[1]
    assert not re.findall(r"_disabled|helper|/if|/loop", told)
    assert "list->asked" in told


def test_a_cancelled_step_has_not_failed_in_an_explanation(place):
    place.write({"bad": {"command": "false"}, "next": {"command": "true", "deps": "bad"}})
    place.weft("run", "run.yaml")
    lines = [line.split() for line in place.weft("explain", RUN)[1].splitlines()]
    assert ["next", "1", "task", "0", "of", "1", "task,", "cancelled"] in lines
    assert ["bad", "1", "task", "0", "of", "1", "task,", "failed"] in lines


def test_a_dag_is_no_step(place):
    place.write({"dag": {"entry_points": {"in": {"command": "true"}}}})
    place.weft("run", "run.yaml")
    for command in ("logs", "story", "why"):
        code, _, err = place.weft(command, f"{RUN}/dag")
        assert (code, err) == (4, f"error WEFT300: dag of {RUN} is a dag\n  Its steps: dag.in\n")


def test_a_dag_that_loops_over_an_artifact_is_no_step(place):
    made = {"command": "echo [1,2] > {{out}}", "artifacts": {"output": ["out"]}}
    each = {"deps": "made", "artifacts": {"input": {"list": "{{made.out}}"}}, "loop_argument": "{{list}}"}
    place.write({"made": made, "each": {**each, "entry_points": {"in": {"command": "echo said"}}}})
    assert place.weft("run", "run.yaml")[0] == 0
    for command in ("logs", "story", "why"):
        for name in ("each", "each-1"):
            code, _, err = place.weft(command, f"{RUN}/{name}")
            assert (code, err) == (4, f"error WEFT300: {name} of {RUN} is a dag\n  Its steps: {name}.in\n")
    code, _, err = place.weft("logs", f"{RUN}/each-2")
    assert (code, err) == (4, f"error WEFT300: each of {RUN} has no item 2\n  See: weft show {RUN}\n")


@pytest.mark.parametrize("ending", ["succeeds", "fails", "is suspended"])
def test_a_dag_that_loops_over_an_artifact_goes_on_until_its_steps_have_ended(place, ending):
    made = {"command": "echo [1,2] > {{out}}", "artifacts": {"output": ["out"]}}
    each = {"deps": "made", "artifacts": {"input": {"list": "{{made.out}}"}}, "loop_argument": "{{list}}"}
    hold = {"command": "touch began; until test -e go; do sleep 0.05; done; test ! -e bad"}
    place.write({"made": made, "each": {**each, "entry_points": {"in": hold}}})
    process = place.start()
    try:
        until((place.folder / "began").exists)
        until(lambda: place.states().get("each.in") == "running")
        assert place.states()["each"] == "running"
        if ending == "is suspended":
            assert place.weft("suspend", RUN, "--now")[0] == 0
            process.communicate()
            assert place.states()["each"] == "interrupted"
            (place.folder / "go").touch()
            assert place.weft("resume", RUN)[0] == 0
        else:
            (place.folder / ("bad" if ending == "fails" else "go")).touch()
            (place.folder / "go").touch()
            process.communicate()
    finally:
        process.kill()
        process.communicate()
    assert place.states()["each"] == ("failed" if ending == "fails" else "succeeded")


def test_a_dag_is_shown_with_its_steps(place):
    steps = {"dag": {"entry_points": {"in": {"command": "true"}}}, "other": {"command": "true"}}
    place.write(steps)
    place.weft("run", "run.yaml")
    code, out, err = place.weft("show", f"{RUN}/dag")
    assert (code, err) == (0, "")
    assert [line.split()[::2][:2] for line in out.splitlines()[1:]] == [["dag", "succeeded"], ["dag.in", "succeeded"]]
    dag = json.loads(place.weft("show", f"{RUN}/dag", "--json")[1])["dag"]
    assert (dag["name"], dag["state"], [step["name"] for step in dag["steps"]]) == ("dag", "succeeded", ["dag.in"])


def test_a_loop_has_each_reason_of_its_items(place):
    made: dict[str, Any] = {
        "command": "echo {{PF_LOOP_ARGUMENT}} > {{out}}",
        "loop_argument": [1, 2],
        "cache": {"enable": True},
        "artifacts": {"output": ["out"]},
    }
    place.write({"each": made})
    assert place.weft("run", "run.yaml")[0] == 0
    place.write({"each": made | {"loop_argument": [1, 2, 3]}})
    assert place.weft("run", "run.yaml")[0] == 0
    taken = "2 of 3 items (each-0, each-1) were taken from the cache"
    hit, miss = place.weft("why", "run-000002/each")[1].splitlines()
    assert hit == f"{taken}: result of {RUN}"
    assert miss == "each-2 ran: no result for the item 3 is kept"
    against = place.weft("why", "run-000002/each", "--against", RUN)[1].splitlines()
    assert against[0] == f"{taken}: nothing is different, compared with {RUN}"
    told = json.loads(place.weft("why", "run-000002/each", "--json")[1])
    assert (told["outcome"], [(one["outcome"], one["tasks"]) for one in told["items"]]) == (
        "mixed",
        [("hit", 2), ("miss", 1)],
    )


@pytest.mark.parametrize("kills", [False, True])
def test_the_state_of_a_step_comes_before_the_reason_why_it_ran(place, kills):
    place.write({"long": {"command": "touch began; sleep 600"}})
    process = place.start()
    try:
        until(lambda: (place.folder / "began").exists() and place.states().get("long") == "running")
        first, second = place.weft("why", f"{RUN}/long")[1].splitlines()
        assert re.fullmatch(r"long is running since \d{4}-\d\d-\d\d \d\d:\d\d:\d\d", first)
        assert second == f"long: {REASONS['n']}"
        if not kills:
            assert place.weft("suspend", RUN, "--now")[0] == 0
            process.communicate(timeout=180)
    finally:
        process.kill()
        process.communicate()
    why = "interrupted" if kills else "suspended"
    first = place.weft("why", f"{RUN}/long")[1].splitlines()[0]
    assert first == f"long was interrupted: the run was {why}; it goes on with: weft resume {RUN}"


def test_a_watch_ends_with_the_next_commands(place):
    place.write({"good": {"command": "true"}, "bad": {"command": "false", "deps": "good"}})
    place.weft("run", "run.yaml")
    out = place.weft("watch", RUN)[1]
    assert out.splitlines()[-3:] == [
        f"next     weft show {RUN}",
        f"         weft resume {RUN}",
        f"         weft logs {RUN}/bad",
    ]
    assert not re.search(r" $", out, re.MULTILINE), "no trailing blanks"


def test_an_empty_list_of_runs_has_the_option_for_another_folder(place):
    assert place.weft("ls")[2].splitlines()[1:] == ["for the runs of another folder: weft ls -C FOLDER"]


def test_the_time_of_a_cached_item_has_no_pause_before_a_resume(place):
    made: dict[str, Any] = {
        "command": "echo {{PF_LOOP_ARGUMENT}} > {{out}}; test -e mended",
        "loop_argument": [1, 2],
        "cache": {"enable": True},
        "artifacts": {"output": ["out"]},
    }
    place.write({"each": made})
    assert place.weft("run", "run.yaml")[0] == 1
    (place.folder / "mended").touch()
    assert place.weft("run", "run.yaml")[0] == 0
    place.write({"each": made | {"loop_argument": [1, 2, 3]}})
    assert place.weft("resume", RUN, "--file", "run.yaml")[0] == 0
    items = json.loads(place.weft("show", RUN, "--json")[1])["run"]["steps"][0]["items"]
    assert [item["message"] for item in items] == ["taken from the cache", "taken from the cache", ""]
    assert [item["started_at"] is None for item in items] == [True, True, False], "as an item that began in no owner"


def test_all_mistakes_are_told_together_with_keys_given_twice(place):
    place.file.write_text("""name: x
name: y
entry_points:
  a:
    command: echo {{none}}
    artifacts: {input: {i: "{{b.o}}", i: "{{b.p}}"}}
  b: {command: true, deps: gone}
  b: {command: true}
  c: {command: "true", condition: 1 in (1)}
  d: {command: "true", condition: "True"}
  e: {command: "true", condition: "5"}
  f: {command: "true", condition: "1 ? true : false"}
""")
    code, _, err = place.weft("run", "run.yaml")
    assert code == 3
    for line, told in {
        2: "the key `name` is already given on line 1",
        5: "`{{none}}`",
        6: "the key `i` is already given on line 6",
        7: "`gone`",
        8: "the key `b` is already given on line 7",
        9: "in takes a list of two or more",
        10: "its value is the text `True`, neither true nor false",
        11: "its value is the number 5, neither true nor false",
        12: "? takes true or false, not the number 1",
    }.items():
        assert any(f"run.yaml:{line}:" in one and told in one for one in err.splitlines()), (line, err)


@pytest.mark.parametrize("option", ["--refresh", "--from"])
def test_a_step_that_only_leaves_out_is_not_unknown(place, option):
    place.write({"a": {"command": "true"}, "b": {"command": "true"}})
    code, _, err = place.weft("run", "run.yaml", "--only", "a", option, "b")
    assert (code, "no step" in err) == (2, False)
    assert f"--only a leaves out step 'b', which {option} names\n  Leave out {option} b, or --only a\n" in err


@pytest.mark.parametrize("kills", [False, True])
def test_the_next_commands_name_the_log_of_the_step_that_was_interrupted(place, kills):
    place.write({"first": {"command": "touch began; sleep 600"}, "next": {"command": "true", "deps": "first"}})
    process = place.start()
    try:
        until((place.folder / "began").exists)
        until(lambda: "is running since" in place.weft("why", f"{RUN}/first")[1])  # its start is on record
        if not kills:
            assert place.weft("suspend", RUN, "--now")[0] == 0
            out = process.communicate(timeout=180)[0]
            assert f"weft logs {RUN}/first\n" in out
    finally:
        process.kill()
        process.communicate()
    assert f"weft logs {RUN}/first\n" in place.weft("watch", RUN)[1]
    assert ("at least" in place.weft("show", RUN)[1]) == kills, "a suspended run has ended its steps"
    assert ("at least" in place.weft("show", f"{RUN}/first")[1]) == kills


def test_a_step_whose_condition_cannot_be_answered_has_failed_in_an_explanation(place):
    place.write(
        {
            "d": {"command": "true", "parameters": {"x": 1}, "condition": "{{x}} + 'a'"},
            "e": {"command": "true", "deps": "d"},
        }
    )
    assert place.weft("run", "run.yaml")[0] == 1
    told = place.weft("explain", RUN)[1]
    assert re.search(r"^ +d +1 task +0 of 1 task, failed$", told, re.MULTILINE), told
    assert re.search(r"^ +e +1 task +0 of 1 task, cancelled$", told, re.MULTILINE), told


def test_the_step_of_the_error_comes_first_among_those_that_failed(place):
    steps = {f"s{number}": {"command": f"exit {number + 3}"} for number in range(5)}
    place.write(steps, failure_options={"strategy": "continue"})
    code, _, err = place.weft("run", "run.yaml")
    assert code == 1
    found = re.search(r"5 steps failed: (s\d), .*the first: step (s\d) ended", err)
    assert found is not None, err
    assert found[1] == found[2]


def test_a_run_that_a_step_has_begun_is_cancelled_with_it(place):
    """Its steps and its post_process are left to it: their guardians get no signal."""
    answer = "trap 'touch answered; exit 3' TERM; touch began; while :; do sleep 0.02; done"
    inner = {"a": {"command": answer}}
    last = {"last": {"command": "sleep 1; echo bye > bye"}}
    document = {"name": "inner", "entry_points": inner, "post_process": last}
    (place.folder / "inner.yaml").write_text(json.dumps(document))
    words = [sys.executable, "-m", "weft", "run", "inner.yaml", "--state-dir", "apart"]
    place.write({"outer": {"command": f"exec {shlex.join(words)}"}})
    process = place.start()
    try:
        until((place.folder / "began").exists)
        assert place.weft("cancel", "@last")[0] == 0
        process.communicate(timeout=DEADLINE_S)
    finally:
        process.kill()
        process.communicate()
    code, out, _ = place.weft("show", "1", "--json", "--state-dir", "apart")
    found = json.loads(out)["run"]
    assert (code, found["state"]) == (0, "terminated")
    assert {step["name"]: step["state"] for step in found["steps"]} == {"a": "terminated", "last": "succeeded"}
    assert (place.folder / "answered").exists()
    assert (place.folder / "bye").read_text() == "bye\n"
