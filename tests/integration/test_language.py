"""Pipelines that use the whole language, from file to end: states, outputs, what a run decides, and how it goes on."""

import json
import shutil
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.integration.places import until
from tests.integration.test_pipeline import Place
from tests.started import start
from weft.admin.control import send
from weft.admin.settings import Settings
from weft.model.errors import ConflictError, RunCancelledError
from weft.runs.reading import read_run
from weft.runs.step_tree import tree
from weft.wiring import load_pipeline, resume_run, run_pipeline

FILES = Path(__file__).parents[1] / "fixtures" / "pipelines" / "conformance"


@pytest.fixture
def place(tmp_path) -> Place:
    shutil.copytree(FILES, tmp_path, dirs_exist_ok=True)
    return Place(tmp_path)


def run(place: Place, name: str, **overrides: Any) -> tuple[Any, dict[str, str]]:
    place.file = place.folder / f"{name}.yaml"
    result = place.run(**overrides)
    return result, states(place)


def states(place: Place, run_id: str = "run-000001") -> dict[str, str]:
    """The states of steps, dags and items, by what they are called."""
    found = {}
    for _, step in tree(read_run(place.folder_of(run_id))):
        found[step.name] = step.state
        found |= {f"{step.name}[{n}]": item.state for n, item in step.items.items()}
    return found


def text(result: Any, output: str) -> str:
    return Path(result.outputs[output]).read_text().strip()


class TestConformance:
    def test_base(self, place):
        result, found = run(place, "base", rows="50")
        assert found == {"collect": "succeeded", "fit": "succeeded", "score": "succeeded"}
        assert text(result, "collect.log").startswith("rows 50 for ")
        assert place.log("fit") == "5 epochs of 50 from data/run-000001 at 0.25\n"
        assert place.log("score") == "scored data/run-000001/model in run-000001 as score\n"

    def test_artifact(self, place):
        result, _ = run(place, "artifact")
        assert text(result, "join.joined") == "one\ntwo"
        assert Path(result.outputs["make.folder"]).is_dir()
        assert Path(result.outputs["join.joined"]).parent.name == "join-0-124705615f0a57e5b6d36c0baa398845"

    def test_failure_options_and_post_process(self, place):
        result, found = run(place, "failure")
        assert found == {
            "first": "succeeded",
            "second": "succeeded",
            "third": "succeeded",
            "fourth": "failed",
            "fifth": "cancelled",
            "mail": "succeeded",
        }
        assert result.state == "failed"
        assert text(result, "mail.letter") == "mailed run-000001"
        assert [(r.state, r.ended) for r in place.records if not r.step][-1] == ("failed", True)
        assert read_run(result.folder).message.startswith("step fourth ended")

    def test_condition(self, place):
        result, found = run(place, "condition")
        assert (result.state, found) == ("succeeded", {"rising": "succeeded", "falling": "skipped"})

    @pytest.mark.parametrize("name", ["dag", "components"])
    def test_dag_and_components(self, place, name):
        result, found = run(place, name)
        assert text(result, "last.result") == "4"
        assert found["halves"] == found["halves.both"] == "succeeded"
        assert list(found) == ["numbers", "halves", "halves.below", "halves.above", "halves.both", "last"]

    def test_loop(self, place):
        result, found = run(place, "loop")
        assert text(result, "sum.result") == str(1 + 16 + 49 + 100)
        assert {name: state for name, state in found.items() if "square" in name} == {
            "square": "succeeded",
            **{f"square[{n}]": "succeeded" for n in range(4)},
        }
        assert set(result.outputs) >= {"square.result", "square-1.result", "square-3.result"}

    def test_disabled(self, place):
        result, found = run(place, "disabled")
        assert result.state == "succeeded"
        assert found == {
            "first": "succeeded",
            "second": "skipped",
            "third": "succeeded",
            "group": "skipped",
            "other": "succeeded",
            "other.inner": "skipped",
            "other.outer": "succeeded",
        }

    def test_loops_and_conditions_inside_each_other(self, place):
        result, found = run(place, "nested_loops")
        assert result.state == "succeeded", result.error
        assert text(result, "all.sum") == "6"
        assert {name: found[name] for name in ("each.maybe", "each-1.maybe", "each-2.maybe")} == {
            "each.maybe": "skipped",
            "each-1.maybe": "skipped",
            "each-2.maybe": "succeeded",
        }
        assert (found["each.copy"], found["each-1.copy"], found["each-2.copy"]) == ("succeeded", "skipped", "succeeded")
        assert [found[f"each{n}.deeper{m}.leaf"] for n in ("", "-1", "-2") for m in ("", "-1")] == ["succeeded"] * 6
        assert [found[f"odd[{n}]"] for n in range(3)] == ["succeeded", "skipped", "succeeded"]
        assert all(state in ("succeeded", "skipped") for state in found.values())


def reads(content: str, **reader: Any) -> dict[str, Any]:
    """A step that writes something, and one that reads it as its input `i`."""
    make = {"command": f"printf %s '{content}' > {{{{o}}}}", "artifacts": {"output": ["o"]}}
    return {"make": make, "use": {"deps": "make", "artifacts": {"input": {"i": "{{make.o}}"}}, **reader}}


class TestDecidedInTheRun:
    @pytest.mark.parametrize(("content", "state"), [("good", "succeeded"), ("bad", "skipped"), ("good\n", "succeeded")])
    def test_a_condition_looks_at_an_artifact(self, place, content, state):
        place.write(reads(content, command="true", condition="{{i}} == good"))
        assert place.run().state == "succeeded"
        assert place.states() == {"make": "succeeded", "use": state}

    @pytest.mark.parametrize(
        ("content", "asked"),
        [
            ("prod\n", "'{{i}}' == 'prod'"),
            ("prod\n\n", '"{{i}}" == "prod"'),
            ("prod\n", "'{{i}}' in ('test', 'prod')"),
            ("prod\n", "!('{{i}}' != 'prod')"),
            ("2024-05-02\n", "'{{i}}' >= '2024-05-01'"),
            ("a\nb\n", "'{{i}}' == 'a\nb'"),
            (" a\n", "'{{i}}' == ' a'"),
            ("\n", "'{{i}}' == ''"),
            ("5\n", "{{i}} == 5"),
        ],
    )
    def test_line_ends_at_the_end_of_an_artifact_are_no_part_of_its_text(self, place, content, asked):
        place.write(reads(content, command="true", condition=asked))
        assert place.run().state == "succeeded"
        assert place.states() == {"make": "succeeded", "use": "succeeded"}

    @pytest.mark.parametrize(
        ("content", "reader", "said"),
        [
            ("a-b", {"condition": "{{i}} == x"}, "the condition of use cannot be answered"),
            ("\n", {"condition": "{{i}} > 3"}, "`>` is not expected here; there is nothing in i"),
            ("y" * 1024, {"condition": "'{{i}}' == x"}, "has 1,024 bytes or more"),
            ("{}", {"loop_argument": "{{i}}"}, "which is not a JSON list"),
            ("[1, true]", {"loop_argument": "{{i}}"}, "item 1 of the list"),
            ("[[{}]]", {"loop_argument": "{{i}}"}, "Items are texts, numbers, objects, and lists of"),
            ("", {"loop_argument": "{{i}}"}, "which is not a JSON list"),
        ],
    )
    def test_what_cannot_be_decided_fails_the_step(self, place, content, reader, said):
        place.write(reads(content, command="true", **reader) | {"after": {"command": "true", "deps": "use"}})
        result = place.run()
        assert result.state == "failed"
        assert said in str(result.error)
        assert "use: use " not in str(result.error), "its name stands there once"
        assert place.states() == {"make": "succeeded", "use": "failed", "after": "cancelled"}
        assert said in read_run(result.folder).step("use").message

    def test_an_object_in_an_artifact_is_an_item_as_json_text(self, place):
        made = json.dumps([{"id": 0, "name": "ä b"}, 3])
        command = 'printf "%s\\n" "$PF_LOOP_ARGUMENT" > item$$'
        place.write(reads(made, command=command, loop_argument="{{i}}"))
        assert place.run().state == "succeeded"
        items = sorted(file.read_text() for file in place.folder.glob("item*"))
        assert items == ["3\n", '{"id": 0, "name": "ä b"}\n']

    def test_a_dag_that_loops_over_an_artifact_shows_its_parameters(self, place):
        inner = {
            "parameters": {"n": "{{PF_PARENT.base}}", "least": 3},
            "command": "test {{n}} -gt {{least}}",
        }
        steps = reads("[1, 2]", loop_argument="{{i}}", parameters={"base": 10}, entry_points={"inner": inner})
        place.write(steps)
        pipeline = load_pipeline(str(place.file), user="me", overrides={"use.base": "70"})
        assert run_pipeline(pipeline, place.settings, quiet=True).state == "succeeded"
        assert read_run(place.folder_of()).parameters == {"use.base": 70, "use.inner.least": 3}

    @pytest.mark.parametrize("reader", [{"condition": "{{i}} == x"}, {"loop_argument": "{{i}}"}])
    def test_what_waits_for_a_step_that_fails_never_began(self, place, reader):
        steps = reads("x", command="true", **reader)
        steps["make"]["command"] = "false"
        place.write(steps)
        result = place.run()
        assert place.states() == {"make": "failed", "use": "cancelled"}
        step = read_run(result.folder).step("use")
        assert (step.message, step.attempts, step.started) == ("make failed", 0, None)

    @pytest.mark.parametrize("make", ["mkdir {{o}}", "true", "ln -s /dev/zero {{o}}"])
    def test_what_is_no_file_cannot_be_looped_over(self, place, make):
        steps = reads("", command="true", loop_argument="{{i}}")
        steps["make"]["command"] = make
        place.write(steps)
        assert place.run().state == "failed"
        assert place.states()["use"] == "failed"

    def test_a_loop_over_nothing_is_skipped_when_it_is_found_out(self, place):
        steps = reads("[]", command="false", loop_argument="{{i}}", entry_points=None)
        del steps["use"]["entry_points"]
        steps["after"] = {"command": "true", "deps": "use"}
        steps["dag"] = {
            "deps": "make",
            "artifacts": {"input": {"i": "{{make.o}}"}},
            "loop_argument": "{{i}}",
            "entry_points": {"x": {"command": "false"}},
        }
        place.write(steps)
        assert place.run().state == "succeeded"
        assert place.states() == {"make": "succeeded", "use": "skipped", "after": "succeeded", "dag": "skipped"}

    def test_a_loop_over_nothing_fails_where_that_is_asked_for(self, place):
        steps = reads("[]", command="true", loop_argument="{{i}}")
        dag = {"loop_argument": "{{i}}", "entry_points": {"x": {"command": "true"}}}
        steps["dag"] = {"deps": "make", "artifacts": {"input": {"i": "{{make.o}}"}}, **dag}
        asked = {"as_paddleflow": ["empty_loop"]}
        place.write(steps, failure_options={"strategy": "continue"}, **{"x-weft": asked})
        assert place.run().state == "failed"
        assert place.states() == {"make": "succeeded", "use": "failed", "dag": "failed"}

    def test_a_failed_item_is_told_with_its_log(self, place):
        steps = {
            "l": {"command": "echo said {{PF_LOOP_ARGUMENT}}; test {{PF_LOOP_ARGUMENT}} != 2", "loop_argument": [1, 2]}
        }
        place.write(steps, failure_options={"strategy": "continue"})
        result = place.run()
        assert "l-1" in str(result.error)
        found = read_run(result.folder).step("l")
        assert (found.state, found.width) == ("failed", 2)
        assert {n: item.state for n, item in found.items.items()} == {0: "succeeded", 1: "failed"}
        assert [(log.index, log.path.read_text()) for log in found.logs] == [(0, "said 1\n"), (1, "said 2\n")]

    def test_with_continue_only_the_item_of_a_dag_is_given_up(self, place):
        inner = {
            "a": {"command": "test {{v}} != 2", "parameters": {"v": "{{PF_PARENT.PF_LOOP_ARGUMENT}}"}},
            "b": {"command": "true", "deps": "a"},
        }
        dag = {"loop_argument": [1, 2], "entry_points": inner}
        place.write({"d": dag}, failure_options={"strategy": "continue"})
        assert place.run().state == "failed"
        found = states(place)
        assert (found["d"], found["d-1"]) == ("succeeded", "failed")
        assert (found["d.b"], found["d-1.b"]) == ("succeeded", "cancelled")

    def test_processes_run_the_same(self, place):
        place.file = place.folder / "nested_loops.yaml"
        result = place.run(Settings(workers=1, backend="processes"))
        assert text(result, "all.sum") == "6"


class TestAtTheEnd:
    def place_of(self, place: Place, post: str = "echo end", **steps: str) -> None:
        place.write(
            {name: {"command": command} for name, command in steps.items()}, post_process={"last": {"command": post}}
        )

    def test_it_comes_after_a_success(self, place):
        self.place_of(place, a="true")
        assert place.run().state == "succeeded"
        assert [(r.step, r.state) for r in place.records][-4:] == [
            ("a", "succeeded"),
            ("last", "running"),
            ("last", "succeeded"),
            ("", "succeeded"),
        ]

    def test_it_may_fail(self, place):
        self.place_of(place, "exit 3", a="true")
        result = place.run()
        assert (result.state, place.states()) == ("failed", {"a": "succeeded", "last": "failed"})
        assert "last" in str(result.error)

    def cancelled(self, place: Place, **order: Any) -> Any:
        self.place_of(place, a="touch began; sleep 60")
        process = place.start()
        until((place.folder / "began").exists, "the step")
        send(place.folder_of(), {"do": "cancel", "reason": "test", **order})
        process.communicate(timeout=180)
        return read_run(place.folder_of()).state, place.states()

    def test_it_comes_after_a_cancel(self, place):
        assert self.cancelled(place) == ("terminated", {"a": "terminated", "last": "succeeded"})

    def test_but_not_if_that_is_forced(self, place):
        assert self.cancelled(place, force=True) == ("terminated", {"a": "terminated", "last": "cancelled"})

    def test_a_cancel_does_not_end_it_unless_forced(self, place):
        self.place_of(place, "touch began; sleep 60", a="true")
        process = place.start()
        until((place.folder / "began").exists, "the last step")
        with pytest.raises(ConflictError, match="only post_process still runs"):
            send(place.folder_of(), {"do": "cancel", "reason": "test"})
        send(place.folder_of(), {"do": "cancel", "reason": "test", "force": True})
        process.communicate(timeout=180)
        assert (read_run(place.folder_of()).state, place.states()["last"]) == ("terminated", "terminated")

    def test_a_resume_runs_it_again_only_if_something_else_does(self, place):
        self.place_of(place, "echo x >> ends; test -e good", a="echo x >> as")
        assert place.run().state == "failed"
        (place.folder / "good").touch()
        assert resume_run(place.folder_of(), Settings(workers=1)).state == "succeeded"
        assert (place.folder / "ends").read_text() == "x\nx\n"
        assert (place.folder / "as").read_text() == "x\n"


LEAF = "echo leaf {{v}} >> ran.log; test {{v}} = 1 && exit; touch began; until test -e go; do sleep 0.02; done"
IN_A_LOOP = {
    "lists": {"command": "echo '[1, 2]' > {{o}}; echo lists >> ran.log", "artifacts": {"output": ["o"]}},
    "dag": {
        "deps": "lists",
        "loop_argument": "{{l}}",
        "artifacts": {"input": {"l": "{{lists.o}}"}},
        "entry_points": {"leaf": {"command": LEAF, "parameters": {"v": "{{PF_PARENT.PF_LOOP_ARGUMENT}}"}}},
    },
}
HANGING_JOURNAL = """
import sys, threading
from weft.durability import journal
written = journal._write_all
def write(fd, data):
    if threading.current_thread().name.startswith("journal of"):
        threading.Event().wait()
    written(fd, data)
journal._write_all = write
from weft.cli.main import main
sys.exit(main())
"""


class TestResume:
    def test_items_that_have_finished_do_not_run_again(self, place):
        command = "echo {{PF_LOOP_ARGUMENT}} >> ran.log; test {{PF_LOOP_ARGUMENT}} != 3 || test -e good; echo x > {{o}}"
        items: dict[str, Any] = {
            "loop": {"command": command, "loop_argument": [1, 2, 3, 4], "artifacts": {"output": ["o"]}},
            "lists": {"command": "echo '[5, 6, 3]' > {{o}}", "artifacts": {"output": ["o"]}},
            "told": {
                "deps": "lists",
                "command": command,
                "loop_argument": "{{l}}",
                "artifacts": {"input": {"l": "{{lists.o}}"}, "output": ["o"]},
            },
            "dag": {
                "deps": "lists",
                "loop_argument": "{{l}}",
                "artifacts": {"input": {"l": "{{lists.o}}"}},
                "entry_points": {
                    "leaf": {
                        "command": command.replace("PF_LOOP_ARGUMENT", "v"),
                        "parameters": {"v": "{{PF_PARENT.PF_LOOP_ARGUMENT}}"},
                        "artifacts": {"output": ["o"]},
                    }
                },
            },
        }
        for step in (items["loop"], items["told"], items["dag"]["entry_points"]["leaf"]):
            step["command"] = "set -e; " + step["command"]
        place.write(items, failure_options={"strategy": "continue"})
        assert place.run().state == "failed"
        before = sorted((place.folder / "ran.log").read_text().split())
        assert before == sorted(["1", "2", "3", "4", "5", "6", "3", "5", "6", "3"])
        (place.folder / "good").touch()
        (place.folder / "ran.log").unlink()
        result = resume_run(place.folder_of(), Settings(workers=1))
        assert result.state == "succeeded", result.error
        assert (place.folder / "ran.log").read_text().split() == ["3", "3", "3"]
        found = states(place)
        assert set(found.values()) == {"succeeded"}
        assert found["loop[3]"] == "succeeded"

    def test_no_end_is_recorded_before_the_journal_has_it(self, place):
        """The writer of the journal hangs; a kill then loses nothing that the records have."""
        place.write(IN_A_LOOP)
        process = start(
            [sys.executable, "-P", "-c", HANGING_JOURNAL, "run", "run.yaml"],
            cwd=place.folder,
            env=place.env(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            until(lambda: (place.folder / "began").exists(), "the loop")
            until(lambda: "leaf 1" in (place.folder / "ran.log").read_text(), "the first leaf")
            shown = place.states()
        finally:
            process.kill()
            out, err = process.communicate()
        assert set(shown.values()) <= {"pending", "running"}, (out, err)
        assert set(place.states().values()) <= {"pending", "interrupted"}
        assert "succeeded" not in out + err
        (place.folder / "go").touch()
        assert resume_run(place.folder_of(), Settings(workers=2)).state == "succeeded"
        assert set(states(place).values()) == {"succeeded"}

    def test_records_count_where_the_journal_has_lost_all_ticks(self, place):
        place.write(
            {
                "first": {"command": "echo first >> ran.log; echo 1 > {{o}}", "artifacts": {"output": ["o"]}},
                "last": {"command": "echo last >> ran.log; test -e go", "deps": "first"},
            }
        )
        code, _, _ = place.weft("run", "run.yaml")
        assert code == 1
        journal = place.folder_of() / "journal"
        data = journal.read_bytes()
        (length,) = struct.unpack_from("<I", data, 8)
        journal.write_bytes(data[: 8 + 8 + length])
        (place.folder / "go").touch()
        assert resume_run(place.folder_of(), Settings(workers=1)).state == "succeeded"
        assert (place.folder / "ran.log").read_text().split() == ["first", "last", "last"]

    def test_a_killed_run_goes_on_inside_a_loop(self, place):
        place.write(IN_A_LOOP)
        process = place.start()
        try:
            until(
                lambda: (place.folder / "began").exists() and place.states().get("dag.leaf") == "succeeded", "the loop"
            )
        finally:
            process.kill()
            process.communicate()
        (place.folder / "go").touch()
        result = resume_run(place.folder_of(), Settings(workers=1))
        assert result.state == "succeeded", result.error
        lines = sorted((place.folder / "ran.log").read_text().splitlines())
        assert lines == ["leaf 1", "leaf 2", "leaf 2", "lists"]
        assert set(states(place).values()) == {"succeeded"}


class TestCached:
    def steps(self) -> dict[str, Any]:
        say = "echo {{PF_LOOP_ARGUMENT}} > {{o}}; echo $PF_STEP_NAME {{PF_LOOP_ARGUMENT}} >> ran.log"
        inner = {
            "command": "echo {{v}} > {{o}}; echo leaf {{v}} >> ran.log",
            "parameters": {"v": "{{PF_PARENT.PF_LOOP_ARGUMENT}}"},
            "artifacts": {"output": ["o"]},
        }
        reads_list = {"input": {"l": "{{lists.o}}"}, "output": ["o"]}
        return {
            "lists": {"command": "echo '[1, 2]' > {{o}}; echo lists >> ran.log", "artifacts": {"output": ["o"]}},
            "fixed": {"command": say, "loop_argument": [1, 2, 3], "artifacts": {"output": ["o"]}},
            "told": {"deps": "lists", "command": say, "loop_argument": "{{l}}", "artifacts": reads_list},
            "after": {
                "deps": "told,fixed",
                "command": "cat $(echo {{a}},{{b}} | tr , ' ') > {{o}}; echo after >> ran.log",
                "artifacts": {"input": {"a": "{{told.o}}", "b": "{{fixed.o}}"}, "output": ["o"]},
            },
            "dag": {
                "deps": "lists",
                "loop_argument": "{{l}}",
                "artifacts": {"input": {"l": "{{lists.o}}"}},
                "entry_points": {"leaf": inner},
            },
        }

    def ran(self, place: Place) -> list[str]:
        file = place.folder / "ran.log"
        lines = sorted(file.read_text().splitlines()) if file.exists() else []
        file.unlink(missing_ok=True)
        return lines

    def test_each_item_of_a_loop_has_a_result_of_its_own(self, place):
        steps = self.steps()
        place.write(steps, cache={"enable": True})
        assert place.run().state == "succeeded"
        every = ["after", "fixed 1", "fixed 2", "fixed 3", "leaf 1", "leaf 2", "lists", "told 1", "told 2"]
        assert self.ran(place) == every
        result = place.run()
        assert self.ran(place) == []
        assert set(states(place, "run-000002").values()) == {"succeeded"}
        assert text(result, "after.o").split() == ["1", "2", "1", "2", "3"]
        assert [text(result, name) for name in ("fixed-2.o", "told-1.o", "dag-1.leaf.o")] == ["3", "2", "2"]
        steps["fixed"]["loop_argument"] = [3, 1, 4]
        place.write(steps, cache={"enable": True})
        result = place.run()
        assert self.ran(place) == ["after", "fixed 4"]
        assert text(result, "after.o").split() == ["1", "2", "3", "1", "4"]

    def test_equal_items_are_made_once(self, place):
        say = "echo {{PF_LOOP_ARGUMENT}} >> ran.log; echo x > {{o}}"
        place.write(
            {"l": {"command": say, "loop_argument": [7, 7, 7], "artifacts": {"output": ["o"]}}}, cache={"enable": True}
        )
        assert place.run().state == "succeeded"
        assert self.ran(place) == ["7"]


def test_interrupted_runs_can_be_cancelled_inside_a_loop(place):
    place.write({"l": {"command": "touch began; sleep 60", "loop_argument": [1, 2, 3]}}, parallelism=2)
    process = place.start()
    until((place.folder / "began").exists, "the loop")
    send(place.folder_of(), {"do": "cancel", "reason": "test"})
    process.communicate(timeout=180)
    found = states(place)
    assert found.pop("l") == "terminated"
    assert set(found.values()) == {"terminated"}
    assert len(found) <= 2


def test_json_tells_dags_and_items(place):
    place.file = place.folder / "loop.yaml"
    process = place.start("run", "loop.yaml", "--json")
    out, err = process.communicate(timeout=180)
    document = json.loads(out)["run"]
    square = next(step for step in document["steps"] if step["name"] == "square")
    assert [item["name"] for item in square["items"]] == ["square-0", "square-1", "square-2", "square-3"], err


def test_a_loaded_pipeline_names_its_steps(place):
    loaded = load_pipeline(str(place.folder / "nested_loops.yaml"))
    assert loaded.steps == ["lists", "odd", "all"]
    result = run_pipeline(loaded, Settings(workers=1))
    assert not isinstance(result.error, RunCancelledError)


@pytest.mark.parametrize(
    ("step", "said"),
    [
        ({"command": "echo {{ PF_LOOP_ARGUMENT }}"}, "{{ PF_LOOP_ARGUMENT }}"),
        ({"command": "echo $PF_LOOP_ARGUMENT"}, "$PF_LOOP_ARGUMENT"),
        ({"command": 'echo "${PF_LOOP_ARGUMENT:-none}"'}, "${PF_LOOP_ARGUMENT:-none}"),
        ({"command": "echo", "env": {"ITEM": "{{PF_LOOP_ARGUMENT}}"}}, "{{PF_LOOP_ARGUMENT}}"),
        ({"command": "echo", "condition": "{{PF_LOOP_ARGUMENT}} > 1"}, "{{PF_LOOP_ARGUMENT}}"),
        ({"command": "echo {{PF_LOOP_ARGUMENT}}", "loop_argument": [4]}, ""),
        ({"command": "echo {{i}}", "parameters": {"i": "{{PF_PARENT.PF_LOOP_ARGUMENT}}"}}, ""),
        ({"command": "echo $PF_LOOP_ARGUMENT", "env": {"PF_LOOP_ARGUMENT": "mine"}}, ""),
        ({"command": "echo $PF_LOOP_ARGUMENTS"}, ""),
    ],
)
@pytest.mark.parametrize("nested", [False, True])
def test_a_step_that_has_no_item_since_its_dag_loops_is_told_what_to_write(place, step, said, nested):
    parts = {"in": {"entry_points": {"fit": step}}} if nested else {"fit": step}
    if nested and "PARENT" in str(step):
        parts["in"]["parameters"] = {"i": "{{PF_PARENT.PF_LOOP_ARGUMENT}}"}
        step = step | {"parameters": {"i": "{{PF_PARENT.i}}"}}
        parts["in"]["entry_points"]["fit"] = step
    place.file = place.folder / "folds.yaml"
    place.file.write_text(
        json.dumps({"name": "p", "entry_points": {"folds": {"loop_argument": [1, 2], "entry_points": parts}}})
    )
    name, first = ("folds.in.fit", "folds.in") if nested else ("folds.fit", "folds.fit")
    down = f", and hand it down to {name} by {{{{PF_PARENT.item}}}}" if nested else ""
    told = (
        f"{name}: {said} is empty there, since not it but the dag folds loops; to have the item, write in {first}  "
        f"parameters: {{item: '{{{{PF_PARENT.PF_LOOP_ARGUMENT}}}}'}}{down}, and in its place {{{{item}}}}"
    )
    assert load_pipeline(str(place.file)).warnings == ([told] if said else [])


def test_a_parameter_by_the_name_of_a_system_variable_is_told_to_have_no_effect(place):
    step = {"parameters": {"PF_RUN_ID": "mine", "rate": 1}, "command": "echo {{PF_RUN_ID}} {{rate}}"}
    place.file = place.folder / "shadowed.yaml"
    place.file.write_text(json.dumps({"name": "p", "entry_points": {"a": step}}))
    warnings = load_pipeline(str(place.file)).warnings
    assert warnings == ["step a: its parameter PF_RUN_ID has no effect: the value by this name is the system's"]
