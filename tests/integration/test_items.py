"""Single items of loops on the command line, and loops so long that their paths fit no environment."""

import io
import json
import os
from pathlib import Path
from typing import Any

import pytest

from weft import wiring
from weft.admin.settings import Settings
from weft.cli.context import CommandContext
from weft.cli.main import main
from weft.runs.active import RunResult
from weft.runs.reading import read_run


class Place:
    """A folder with a pipeline that is run here, and asked about on the command line."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.settings = Settings(state_dir=folder / ".weft", user="me", backend="threads")

    def run(self, steps: dict[str, Any], **top: Any) -> RunResult:
        file = self.folder / "run.yaml"
        file.write_text(json.dumps({"name": "trial", "entry_points": steps, **top}))
        return wiring.run_pipeline(wiring.load_pipeline(str(file), user="me"), self.settings, quiet=True)

    def weft(self, *words: str) -> tuple[int, str, str]:
        out, err = io.StringIO(), io.StringIO()
        code = main(words, CommandContext(out=out, err=err, environ={}, cwd=self.folder))
        return code, out.getvalue(), err.getvalue()


@pytest.fixture
def place(tmp_path) -> Place:
    return Place(tmp_path)


EACH = {
    "each": {
        "command": 'echo "item $PF_LOOP_ARGUMENT"; echo > {{out}}; test "$PF_LOOP_ARGUMENT" != c',
        "loop_argument": ["a", "b", "c"],
        "artifacts": {"output": ["out"]},
        "cache": {"enable": True},
    },
    "each-way": {"command": "echo another"},
    "single": {"command": "echo alone", "loop_argument": ["x"]},
}


def test_logs_of_one_item(place):
    assert place.run(EACH, failure_options={"strategy": "continue"}).state == "failed"
    assert place.weft("logs", "@last/each-1")[1] == "item b\n"
    assert place.weft("logs", "@last/each[0]")[1] == "item a\n"
    assert place.weft("logs", "@last/each-2@0")[1] == "item c\n"
    whole = place.weft("logs", "@last/each")[1]
    assert all(f"item {item}" in whole for item in "abc")
    assert place.weft("logs", "@last/each-way")[1] == "another\n", "a step may be called like that"
    assert place.weft("logs", "@last/single[0]")[1] == "alone\n"
    code, _, err = place.weft("logs", "@last/each-3")
    assert code == 4
    assert "each of run-000001 has no item 3" in err
    assert "each to each-2" in err
    assert place.weft("logs", "@last/none-1")[0] == 4


def test_one_step_and_one_item_are_shown(place):
    place.run(EACH, failure_options={"strategy": "continue"})
    code, out, _ = place.weft("show", "@last/each-2")
    assert code == 0
    assert "exit code 1" in out
    assert "each.2.0.log" in out
    assert "each.1.0.log" not in out
    code, out, _ = place.weft("show", "@last/each")
    assert [line.split()[0] for line in out.splitlines()[-3:]] == ["each-0", "each-1", "each-2"]
    assert "output out" in place.weft("show", "@last/each-1")[1]
    told = json.loads(place.weft("show", "@last/each-1", "--json")[1])
    assert (told["run"], told["step"]["name"], told["step"]["state"]) == ("run-000001", "each-1", "succeeded")
    assert [log["index"] for log in told["step"]["logs"]] == [1]
    assert len(json.loads(place.weft("show", "@last/each", "--json")[1])["step"]["items"]) == 3
    assert place.weft("show", "@last/each-9")[0] == 4


def test_why_and_story_of_one_item(place):
    place.run(EACH, failure_options={"strategy": "continue"})
    place.run(EACH, failure_options={"strategy": "continue"})
    for name in ("each-1", "each[1]"):
        assert "was taken from the cache" in place.weft("why", f"@last/{name}")[1]
    assert "ran" in place.weft("why", "@last/each-2")[1]
    assert place.weft("why", "@last/each-7")[0] == 4
    code, out, _ = place.weft("story", "@last/each-2")
    assert code == 0
    assert "each-2: failed" in out
    assert "each-1" not in out


def test_a_list_of_paths_that_fits_no_environment(place):
    count = 2_000
    steps = {
        "each": {
            "command": "echo {{PF_LOOP_ARGUMENT}} > {{out}}",
            "loop_argument": list(range(count)),
            "artifacts": {"output": ["out"]},
        },
        "all": {
            "command": "echo {{pieces}} | tr , '\\n' | wc -l; "
            "echo $PF_INPUT_ARTIFACT_PIECES | tr , '\\n' | xargs cat | wc -l",
            "deps": "each",
            "artifacts": {"input": {"pieces": "{{each.out}}"}},
        },
    }
    result = place.run(steps, parallelism=20)
    assert result.state == "succeeded", result.error
    assert place.weft("logs", "@last/all")[1].split() == [str(count), str(count)]
    message = read_run(result.folder).step("all").message
    assert "PF_INPUT_ARTIFACT_PIECES is too long for what it starts: only its own shell has it" in message


UNFORESEEN = {
    "list": {"command": "echo '[1, 2]' > {{out}}", "artifacts": {"output": ["out"]}},
    "dag": {
        "deps": "list",
        "loop_argument": "{{items}}",
        "artifacts": {"input": {"items": "{{list.out}}"}},
        "entry_points": {
            "one": {"command": "echo > {{out}}", "artifacts": {"output": ["out"]}},
            "each": {"command": "echo > {{out}}", "loop_argument": [3, 4], "artifacts": {"output": ["out"]}},
        },
    },
    "each": {
        "deps": "list",
        "command": 'echo > {{out}}; test "$PF_LOOP_ARGUMENT" != 2 || test -e go-on',
        "loop_argument": "{{items}}",
        "artifacts": {"input": {"items": "{{list.out}}"}, "output": ["out"]},
    },
}


def test_outputs_of_loops_over_what_a_step_has_made(place):
    failed = place.run(UNFORESEEN, failure_options={"strategy": "continue"})
    assert "each-1.out" not in read_run(failed.folder).outputs, "it has failed"
    (place.folder / "go-on").touch()
    assert place.weft("resume", "@last", "-q")[0] == 0
    told = json.loads(place.weft("show", "@last", "--json")[1])["run"]["outputs"]
    ones = ("dag.one", "dag-1.one", "dag.each", "dag.each-1", "dag-1.each", "dag-1.each-1", "each", "each-1", "list")
    assert sorted(told) == sorted(f"{step}.out" for step in ones)
    assert all(Path(path).exists() for path in told.values())
    assert told["dag-1.each-1.out"] in place.weft("show", "@last")[1].replace(".pipeline", f"{place.folder}/.pipeline")
    for step in ("dag-1.one", "dag-1.each[1]", "each-1"):
        step_told = json.loads(place.weft("show", f"@last/{step}", "--json")[1])["step"]
        assert step_told["outputs"] == {"out": told[f"{step.replace('[1]', '-1')}.out"]}


@pytest.mark.parametrize(
    ("condition", "reason"),
    [("{{PF_LOOP_ARGUMENT}} > 5", "all 3 items are skipped"), ("1 > 5", "its condition is false: `1 > 5`")],
)
def test_a_loop_whose_items_are_all_skipped_is_skipped(place, condition, reason):
    steps = {"each": {"command": "true", "loop_argument": [1, 2, 3], "condition": condition}}
    step = next(one for one in read_run(place.run(steps).folder).steps if one.name == "each")
    assert (step.state, step.message) == ("skipped", reason)


def test_a_loop_with_an_item_that_ran_is_none_of_these(place):
    steps = {"each": {"command": "true", "loop_argument": [1, 2, 9], "condition": "{{PF_LOOP_ARGUMENT}} > 5"}}
    assert next(one.state for one in read_run(place.run(steps).folder).steps if one.name == "each") == "succeeded"


@pytest.mark.parametrize("command", ["run", "plan"])
def test_a_named_pipe_is_refused(place, command):
    os.mkfifo(place.folder / "pipe.yaml")
    code, _, said = place.weft(command, str(place.folder / "pipe.yaml"))
    assert code == 2
    assert "pipe.yaml is no regular file" in said
    assert "weft run - <" in said
