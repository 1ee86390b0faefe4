"""The cache of pipelines: what is used again, what is not, and what nobody may break."""

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import weft
from tests.integration.places import DEADLINE_S, SOURCE, Project, plan_pipeline, until
from weft import wiring
from weft.admin.settings import Settings
from weft.durability.journal import JOURNAL, read_journal
from weft.engine.events import Event, Miss
from weft.engine.recovery import Epoch
from weft.engine.replay import Tick
from weft.runs.active import RunResult
from weft.runs.reading import read_run
from weft.runtime.cache import read_decisions
from weft.store.content import ContentStore
from weft.store.entries import CacheIndex

ON = {"enable": True}


def step(command: str, *outputs: str, **more: Any) -> dict[str, Any]:
    """A step that also writes down that it ran."""
    artifacts = {"output": list(outputs), "input": more.pop("inputs", {})}
    return {"command": f'echo "$PF_STEP_NAME" >> "$TRACE"; {command}', "artifacts": artifacts, **more}


class Place(Project):
    """A folder with a pipeline, whose steps write into a file that they ran."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.trace = folder.parent / f"{folder.name}.trace"

    def write(self, steps: Mapping[str, Any], **top: Any) -> None:
        super().write(steps, **{"cache": ON, **top})

    def run(self, **caching: Any) -> RunResult:
        loaded = wiring.load_pipeline(str(self.file), user="me", caching=wiring.Caching(**caching))
        return wiring.run_pipeline(loaded, self.settings, quiet=True)

    def ran(self) -> dict[str, int]:
        """What ran since the last time somebody asked."""
        lines = self.trace.read_text().split() if self.trace.exists() else []
        self.trace.unlink(missing_ok=True)
        return dict(Counter(lines))

    def again(self, **caching: Any) -> dict[str, int]:
        self.ran()
        result = self.run(**caching)
        assert result.state == "succeeded", result.error
        return self.ran()

    def output(self, result: RunResult, name: str) -> str:
        return Path(result.outputs[name]).read_text()

    def reason(self, run: str, name: str) -> str:
        said = [one for one in read_decisions(self.folder / ".weft" / "runs" / run) if one["step"] == name]
        return str(said[-1]["reason"])


@pytest.fixture
def place(tmp_path, monkeypatch):
    place = Place(tmp_path / "project")
    monkeypatch.setenv("TRACE", str(place.trace))
    return place


CHAIN = {
    "a": step('echo 1 > "{{out}}"', "out"),
    "b": step('cat "{{in}}" "{{in}}" > "{{out}}"', "out", deps="a", inputs={"in": "{{a.out}}"}),
    "c": step('cat "{{in}}" > "{{out}}"', "out", deps="b", inputs={"in": "{{b.out}}"}),
}


class TestUsingAgain:
    def test_a_second_run_runs_nothing_and_has_the_same_outputs(self, place):
        place.write(CHAIN)
        first = place.run()
        assert place.ran() == {"a": 1, "b": 1, "c": 1}
        second = place.run()
        assert place.ran() == {}
        assert second.outputs.keys() == first.outputs.keys()
        assert not set(second.outputs.values()) & set(first.outputs.values())
        assert place.output(second, "c.out") == place.output(first, "c.out") == "1\n1\n"
        told = read_run(second.folder)
        assert [one.message for one in told.steps] == ["taken from the cache"] * 3

    def test_worker_processes_keep_results_too(self, place):
        place.settings = Settings(state_dir=place.folder / ".weft", user="me", backend="processes")
        place.write(CHAIN)
        assert place.again() == {"a": 1, "b": 1, "c": 1}
        assert place.again() == {}

    def test_folders_with_links_and_programs_come_back_as_they_were(self, place):
        command = 'mkdir -p "{{out}}/sub"; echo 1 > "{{out}}/sub/x"; chmod +x "{{out}}/sub/x"; ln -s sub/x "{{out}}/y"'
        place.write({"a": step(command, "out")})
        place.run()
        out = Path(place.run().outputs["a.out"])
        assert place.ran() == {"a": 1}
        assert os.readlink(out / "y") == "sub/x"
        assert (out / "y").read_text() == "1\n"
        assert os.access(out / "sub" / "x", os.X_OK)

    def test_c1_a_step_that_failed_runs_again(self, place):
        place.write({"a": step('test -e ok && echo 1 > "{{out}}"', "out")})
        for _ in range(2):
            assert place.run().state == "failed"
            assert place.ran() == {"a": 1}
        (place.folder / "ok").touch()
        assert place.again() == {"a": 1}
        assert place.again() == {}

    def test_c1_a_changed_file_that_an_item_names_runs_that_item_again(self, place):
        for name in "ab":
            (place.folder / name).write_text("1")
        looped = {"loop_argument": ["a", "b"]}
        place.write(
            {
                "word": step('cat {{PF_LOOP_ARGUMENT}} > "{{out}}"', "out", **looped),
                "option": step('cat --squeeze-blank "./$PF_LOOP_ARGUMENT" > "{{out}}"', "out", **looped),
                "env": step('cat "$F" > "{{out}}"', "out", env={"F": "{{PF_LOOP_ARGUMENT}}"}, **looped),
            }
        )
        place.run()
        (place.folder / "b").write_text("2")
        assert place.again() == {"word": 1, "option": 1, "env": 1}
        assert place.again() == {}

    def test_c1_a_changed_file_that_the_environment_names_runs_the_step_again(self, place):
        (place.folder / "data").mkdir()
        for name in ("data/a", "log"):
            (place.folder / name).write_text("1")
        read = 'python3 -c "import os; print(open(os.environ[\'F\']).read())" > "{{out}}"'
        place.write(
            {
                "shell": step('cat $F > "{{out}}"', "out", env={"F": "data/a"}),
                "folder": step('cat ${DIR:-none}/a > "{{out}}"', "out", env={"DIR": "data"}),
                "python": step(read, "out", env={"F": "data/a"}),
                "writer": step('cat $F > $TO; cp $TO "{{out}}"', "out", env={"F": "data/a", "TO": "log"}),
            }
        )
        place.run()
        assert place.again() == {}
        (place.folder / "data/a").write_text("2")
        assert place.again() == {"shell": 1, "folder": 1, "python": 1, "writer": 1}
        assert place.again() == {}

    def test_c2_a_changed_command_leaves_the_steps_above_it(self, place):
        place.write(CHAIN)
        place.run()
        changed = CHAIN | {"c": step('cat "{{in}}" | tr 1 2 > "{{out}}"', "out", deps="b", inputs={"in": "{{b.out}}"})}
        place.write(changed)
        assert place.again() == {"c": 1}

    def test_c3_an_uncached_step_that_writes_the_same_leaves_those_below(self, place):
        place.write(CHAIN | {"a": CHAIN["a"] | {"cache": {"enable": False}}})
        place.run()
        assert place.again() == {"a": 1}
        place.write(CHAIN | {"a": step('echo 1 > "{{out}}" # the same', "out")})
        assert place.again() == {"a": 1}

    def test_c4_items_of_a_loop_are_told_apart(self, place):
        command = 'echo "$PF_LOOP_ARGUMENT" > "{{out}}"'
        place.write({"a": step(command, "out", loop_argument=[1, 2, 3])})
        assert place.again() == {"a": 3}
        place.write({"a": step(command, "out", loop_argument=[3, 4, 1])})
        place.ran()
        result = place.run()
        assert place.ran() == {"a": 1}
        assert [place.output(result, f"{name}.out") for name in ("a", "a-1", "a-2")] == ["3\n", "4\n", "1\n"]
        assert place.again() == {}

    def test_c4_loops_over_what_a_step_writes(self, place):
        steps = {
            "list": step('echo "[1, 2]" > "{{out}}"', "out"),
            "each": step(
                'echo "$PF_LOOP_ARGUMENT" > "{{out}}"',
                "out",
                deps="list",
                inputs={"in": "{{list.out}}"},
                loop_argument="{{in}}",
            ),
            "all": step(
                'cat $(echo "{{in}}" | tr , " ") > "{{out}}"', "out", deps="each", inputs={"in": "{{each.out}}"}
            ),
        }
        place.write(steps)
        assert place.again() == {"list": 1, "each": 2, "all": 1}
        assert place.again() == {}
        place.write(steps | {"list": step('echo "[1, 3]" > "{{out}}"', "out")})
        place.ran()
        result = place.run()
        assert place.output(result, "all.out") == "1\n3\n"
        assert place.ran() == {"list": 1, "each": 2, "all": 1}, "the list is an input of each item"

    def test_steps_in_dags_and_in_dags_that_loop(self, place):
        inner = {
            "x": step('echo "{{n}}" > "{{out}}"', "out", parameters={"n": "{{PF_PARENT.PF_LOOP_ARGUMENT}}"}),
            "y": step('cat "{{in}}" > "{{out}}"', "out", deps="x", inputs={"in": "{{x.out}}"}),
        }
        place.write({"d": {"loop_argument": [1, 2], "entry_points": inner}})
        assert place.again() == {"x": 2, "y": 2}
        assert place.again() == {}
        place.write({"d": {"loop_argument": [2, 3], "entry_points": inner}})
        assert place.again() == {"x": 1, "y": 1}

    def test_items_that_ask_a_condition_are_used_again_and_asked_again(self, place):
        limit = step('echo "[3]" > "{{out}}"', "out")
        item = step(
            'echo {{PF_LOOP_ARGUMENT}} > "{{out}}"',
            "out",
            loop_argument=[1, 2, 3],
            parameters={"most": 2},
            condition="{{PF_LOOP_ARGUMENT}} <= {{most}}",
        )
        place.write({"a": limit, "i": item})
        assert place.again() == {"a": 1, "i": 2}
        assert place.again() == {}
        states = [read_run(place.run().folder).step("i").items[number].state for number in range(3)]
        assert states == ["succeeded", "succeeded", "skipped"]
        place.write({"a": limit, "i": {**item, "parameters": {"most": 3}}})
        assert place.again() == {"i": 3}
        place.write({"a": limit, "i": {**item, "condition": "{{PF_LOOP_ARGUMENT}} < {{most}}"}})
        assert place.again() == {"i": 1}
        place.write({"a": limit, "i": {**item, "condition": "'{{PF_RUN_ID}}' != '' && {{PF_LOOP_ARGUMENT}} < 2"}})
        assert place.again() == {"i": 1}
        assert place.again() == {"i": 1}, "what it asks is of this run"

    def test_what_an_item_asks_of_an_artifact_counts_by_its_content(self, place):
        def steps(score: str) -> dict[str, Any]:
            asks = "{{score}} > {{PF_LOOP_ARGUMENT}}"
            item = step("true", loop_argument=[1, 5], deps="s", inputs={"score": "{{s.out}}"}, condition=asks)
            return {"s": step(f"printf {score} > {{{{out}}}}", "out"), "i": item}

        place.write(steps("3"))
        assert place.again() == {"s": 1, "i": 1}
        assert place.again() == {}
        place.write(steps("7"))
        assert place.again() == {"s": 1, "i": 2}
        place.write(steps("0"))
        assert place.again() == {"s": 1}

    def test_what_dags_that_loop_over_artifacts_made_is_read_from_the_cache(self, place):
        inner = step(
            'echo "$PF_STEP_NAME {{n}}" > "{{out}}"', "out", parameters={"n": "{{PF_PARENT.PF_LOOP_ARGUMENT}}"}
        )
        join = step('cat $(echo {{all}} | tr , " ") > "{{out}}"', "out", inputs={"all": "{{PF_PARENT.all}}"})
        low = {
            "loop_argument": "{{list}}",
            "artifacts": {"input": {"list": "{{PF_PARENT.list}}"}, "output": {"made": "{{w.out}}"}},
            "entry_points": {"w": inner},
        }
        high = {
            "deps": "list",
            "loop_argument": "{{list}}",
            "artifacts": {"input": {"list": "{{list.out}}"}, "output": {"made": "{{low.made}}"}},
            "entry_points": {"low": low},
        }
        after = {
            "deps": "high",
            "artifacts": {"input": {"all": "{{high.made}}"}},
            "entry_points": {"j": join},
        }

        def steps(items: str) -> dict[str, Any]:
            return {
                "list": step(f"echo '{items}' > {{{{out}}}}", "out"),
                "high": high,
                "after": after,
                "total": step(
                    'cat $(echo {{all}} | tr , " ") | sort | uniq -c > "{{out}}"',
                    "out",
                    deps="high",
                    inputs={"all": "{{high.made}}"},
                ),
            }

        place.write(steps("[1, 2]"))
        assert place.again() == {"list": 1, "w": 2, "j": 1, "total": 1}, "equal items are made once"
        assert place.again() == {}
        result = place.run()
        assert [line.split() for line in place.output(result, "total.out").splitlines()] == [
            ["2", "w", "1"],
            ["2", "w", "2"],
        ]
        place.write(steps("[1, 3]"))
        assert place.again() == {"list": 1, "w": 1, "j": 1, "total": 1}
        place.write(steps("[]"))
        assert place.again() == {"list": 1, "j": 1, "total": 1}

    def test_c5_what_is_gone_is_made_again(self, place):
        place.write(CHAIN)
        first = place.run()
        shutil.rmtree(place.folder / ".pipeline" / first.run_id)
        shutil.rmtree(first.folder)
        assert place.again() == {}
        kept = sorted((place.folder / ".pipeline" / ".cas" / "objects").glob("*/*"))
        kept[0].unlink()
        assert place.again() in ({"a": 1}, {"b": 1, "c": 1}, {"b": 1}, {"c": 1})
        assert place.again() == {}

    def test_c5_what_was_changed_in_the_store_is_made_again(self, place):
        place.write({"a": step('echo 1 > "{{out}}"', "out")})
        place.run()
        [kept] = (place.folder / ".pipeline" / ".cas" / "objects").glob("*/*")
        before = kept.stat()
        kept.chmod(0o644)
        kept.write_text("2\n")
        os.utime(kept, ns=(before.st_atime_ns, before.st_mtime_ns))
        place.ran()
        assert place.output(place.run(), "a.out") == "1\n"
        assert place.ran() == {"a": 1}

    def test_c9_a_touch_and_a_clone_change_nothing(self, place, tmp_path):
        (place.folder / "shells").mkdir()
        script = place.folder / "shells" / "a.sh"
        script.write_text("echo 1\n")
        scope = ON | {"fs_scope": [{"name": "main", "path": "shells"}]}
        place.write(
            {"a": step('sh shells/a.sh > "{{out}}"', "out")}, cache=scope, fs_options={"main_fs": {"name": "main"}}
        )
        place.run()
        place.ran()
        os.utime(script)
        assert place.again() == {}
        clone = Place(tmp_path / "clone")
        clone.trace = place.trace
        shutil.copytree(place.folder / "shells", clone.folder / "shells")
        shutil.copy(place.file, clone.file)
        clone.settings = place.settings
        assert clone.again() == {}

    def test_what_python_and_weft_write_beside_scripts_changes_nothing(self, place):
        (place.folder / "lib.py").write_text("x = 1\n")
        scope = ON | {"fs_scope": [{"name": "main", "path": "/"}]}
        command = f'{sys.executable} -c "import lib; print(lib.x)" > "{{{{out}}}}"'
        place.write({"a": step(command, "out")}, cache=scope, fs_options={"main_fs": {"name": "main"}})
        assert place.again() == {"a": 1}
        assert place.again() == {}
        (place.folder / "lib.py").write_text("x = 2\n")
        assert place.again() == {"a": 1}

    def test_c10_an_edit_of_the_same_size_with_the_old_time_is_seen(self, place):
        (place.folder / "data").mkdir()
        file = place.folder / "data" / "x"
        file.write_text("1")
        scope = ON | {"fs_scope": [{"name": "main", "path": "data"}]}
        place.write({"a": step('cat data/x > "{{out}}"', "out")}, cache=scope, fs_options={"main_fs": {"name": "main"}})
        place.run()
        before = file.stat()
        file.write_text("2")
        os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
        place.ran()
        result = place.run()
        assert place.ran() == {"a": 1}
        assert place.output(result, "a.out") == "2"
        assert "main:data: x changed" in place.reason(result.run_id, "a")

    @pytest.mark.parametrize("share", [False, True])
    def test_c11_what_is_added_to_a_result_reaches_no_other_run(self, place, share, monkeypatch):
        if share and os.geteuid() == 0:
            pytest.skip("root may write what is read-only, so it gets copies")
        own = ContentStore.__init__
        monkeypatch.setattr(
            ContentStore, "__init__", lambda self, folder, index: own(self, folder, index, share=share, copied=-1)
        )
        place.write(
            {
                "a": step('echo 1 > "{{out}}"', "out"),
                "b": step('echo 2 >> "{{in}}"', deps="a", inputs={"in": "{{a.out}}"}, cache={"enable": False}),
            },
            failure_options={"strategy": "continue"},
        )
        place.run()
        place.run()
        alone = {"a": step('echo 1 > "{{out}}"', "out")}
        place.write(alone)
        place.ran()
        assert place.output(place.run(), "a.out") == "1\n"
        assert place.ran() == {}

    def test_c12_another_queue_is_the_same_step(self, place):
        for number, queue in enumerate(("one", "two")):
            env = {"PF_JOB_QUEUE_NAME": queue, "PF_JOB_FLAVOUR": queue, "PF_JOB_PRIORITY": "HIGH"}
            place.write({"a": step('echo 1 > "{{out}}"', "out", env=env)})
            assert place.again() == ({"a": 1} if number == 0 else {})

    @pytest.mark.parametrize("command", ["sh ./work.sh", "cd . && sh work.sh", "sh -c './work.sh'"])
    def test_a_script_in_no_scope_counts(self, place, command):
        script, inner = place.folder / "work.sh", place.folder / "inner.py"
        script.write_text(f"#!/bin/sh\n{sys.executable} inner.py\n")
        script.chmod(0o755)
        inner.write_text("import helper\nhelper.work()\n")
        (place.folder / "helper.py").write_text("def work(): pass\n")
        place.write({"a": step(command)}, fs_options={"main_fs": {"name": "main"}})
        assert [place.again(), place.again()] == [{"a": 1}, {}]
        for changed, name in ((script, "work.sh"), (inner, "inner.py"), (place.folder / "helper.py", "helper.py")):
            changed.write_text(f"{changed.read_text()}# changed\n")
            [told] = plan_pipeline(wiring.load_pipeline(str(place.file), user="me"), place.settings)
            assert told.reason.startswith(f"{name} changed, compared with ")
            assert [place.again(), place.again()] == [{"a": 1}, {}]

    @pytest.mark.parametrize("trace", ["true", "false"])
    @pytest.mark.parametrize(
        ("command", "more"),
        [
            ("cat made/x.csv other/y.csv 2> errors.txt || true", {}),
            ("cat made/*.csv", {}),
            ("ls made", {}),
            ("cd made && cat ./x.csv", {}),
            ("IN=made/x.csv; cat $IN", {}),
            ("cat made/{{PF_LOOP_ARGUMENT}}.csv made/x.csv", {"loop_argument": ["x", "y"]}),
        ],
    )
    def test_a_file_that_an_earlier_step_makes_counts_in_the_first_run(self, place, monkeypatch, trace, command, more):
        monkeypatch.setenv("WEFT_TRACE", trace)
        made = "mkdir -p made; echo 1 > made/x.csv; echo 2 > made/y.csv"
        place.write({"a": step(made), "b": step(command, deps="a", **more)})
        count = len(more.get("loop_argument", [0]))
        assert place.again() == {"a": 1, "b": count}
        planned = plan_pipeline(wiring.load_pipeline(str(place.file), user="me"), place.settings)
        assert {one.outcome for one in planned} == {"hit"}
        assert place.again() == {}
        place.write({"a": step(made.replace("echo 1", "echo 3")), "b": step(command, deps="a", **more)})
        assert place.again() == {"a": 1, "b": count}
        assert place.again() == {}

    def test_what_a_failed_attempt_has_left_keeps_no_result_away(self, place):
        command = "if test -e again; then true; else touch again; echo 1 > left; exit 1; fi; cat left"
        place.write({"a": step("true"), "b": step(command, deps="a", **{"x-weft": {"retry": {"user": 1}}})})
        assert place.again() == {"a": 1, "b": 2}
        assert [one.message for one in read_run(place.folder_of("run-000001")).steps if one.message] == []

    def test_a_script_that_nobody_can_know_is_told_with_the_line_to_write(self, place, monkeypatch):
        monkeypatch.setenv("WEFT_TRACE", "false")
        steps = {"a": step('sh "$SCRIPT" || true')}
        place.write(steps, fs_options={"main_fs": {"name": "data"}})
        line = "name it under the step's `cache`, as in  fs_scope: [{name: data, path: FILE}]"
        for words in (("plan", "run.yaml"), ("run", "run.yaml")):
            _, out, err = place.weft(*words)
            assert f'(a: sh "$SCRIPT"): {line}' in out + err
        many = {name: step('sh "$SCRIPT" || true') for name in "abcdef"}
        place.write(many, fs_options={"main_fs": {"name": "data"}})
        [warning] = json.loads(place.weft("plan", "run.yaml", "--json")[1])["warnings"]
        assert all(f'{name}: sh "$SCRIPT"' in warning for name in many)
        steps["a"]["cache"] = {"fs_scope": [{"name": "data", "path": "run.yaml"}]}
        place.write(steps, fs_options={"main_fs": {"name": "data"}})
        _, out, err = place.weft("run", "run.yaml")
        assert "which files" not in out + err

    def test_a_scope_with_an_unknown_name_or_without_a_path_is_told(self, place):
        place.write({"a": step("true", cache=ON | {"fs_scope": [{"name": "nope"}]})})
        [unknown, whole] = json.loads(place.weft("plan", "run.yaml", "--json")[1])["warnings"]
        assert "fs_scope of a names the file system nope" in unknown
        assert "fs_scope of a names no path of nope" in whole
        place.write({"a": step("true", cache=ON | {"fs_scope": [{"name": "main", "path": "/"}]})})
        assert json.loads(place.weft("plan", "run.yaml", "--json")[1])["warnings"] == []

    @pytest.mark.parametrize("mode", ["content", "paddleflow"])
    def test_a_scope_that_is_not_there_stands_for_nothing(self, place, mode):
        scope = ON | {"mode": mode, "fs_scope": [{"name": "main", "path": "sripts"}]}
        place.write({"a": step("true", cache=scope)}, fs_options={"main_fs": {"name": "main"}})
        notes: list[str] = []
        for _ in range(2):
            loaded = wiring.load_pipeline(str(place.file), user="me")
            assert wiring.run_pipeline(loaded, place.settings, quiet=True, on_note=notes.append).state == "succeeded"
        assert place.ran() == {"a": 2}
        why = f"fs_scope names main:sripts, but {place.folder}/sripts does not exist"
        assert notes == [f"results of step a are not used again: {why}"] * 2
        assert place.reason("run-000002", "a") == why
        [told] = plan_pipeline(wiring.load_pipeline(str(place.file), user="me"), place.settings)
        assert told.reason == why

    def test_expired_results_are_not_used(self, place):
        place.write({"a": step('echo 1 > "{{out}}"', "out", cache={"enable": True, "max_expired_time": 0})})
        assert place.again() == {"a": 1}
        place.ran()
        result = place.run()
        assert place.ran() == {"a": 1}
        assert "expired" in place.reason(result.run_id, "a")

    def test_the_present_file_limits_the_age_of_results(self, place):
        command = 'echo 1 > "{{out}}"'
        for limit, ran in ((-1, {"a": 1}), (0, {"a": 1}), (200, {}), (0, {"a": 1})):
            place.write({"a": step(command, "out", cache={"enable": True, "max_expired_time": limit})})
            [told] = plan_pipeline(wiring.load_pipeline(str(place.file), user="me"), place.settings)
            assert (told.outcome == "run") == bool(ran)
            assert place.again() == ran

    def test_a_step_without_a_cache_neither_looks_nor_keeps(self, place):
        place.write({"a": step('echo 1 > "{{out}}"', "out")}, cache={"enable": False})
        assert place.again() == {"a": 1}
        assert place.again() == {"a": 1}
        assert not (place.folder / ".weft" / "cache.db").exists()

    def test_the_order_of_the_documented_rules_for_times(self, place):
        """With `mode: paddleflow` a touch is a change, and an edit with the old time is none."""
        (place.folder / "x").write_text("1")
        cache = ON | {"mode": "paddleflow", "fs_scope": [{"name": "main", "path": "x"}]}
        place.write({"a": step('cat x > "{{out}}"', "out")}, cache=cache, fs_options={"main_fs": {"name": "main"}})
        place.run()
        before = (place.folder / "x").stat()
        (place.folder / "x").write_text("2")
        os.utime(place.folder / "x", ns=(before.st_atime_ns, before.st_mtime_ns))
        assert place.again() == {}
        os.utime(place.folder / "x")
        assert place.again() == {"a": 1}

    @pytest.mark.parametrize("by", ["list", "artifact"])
    def test_a_name_inside_a_loop_stands_for_all_items(self, place, by):
        loop: dict[str, Any] = {"loop_argument": [1, 2, 3]}
        if by == "artifact":
            loop = {"loop_argument": "{{items}}", "deps": "make", "artifacts": {"input": {"items": "{{make.out}}"}}}
        item = {"parameters": {"of": "{{PF_PARENT.PF_LOOP_ARGUMENT}}"}}
        leaf = {"parameters": {**item["parameters"], "above": "{{PF_PARENT.above}}"}}
        inner = {
            "loop_argument": [8, 9],
            "parameters": {"above": "{{PF_PARENT.PF_LOOP_ARGUMENT}}"},
            "entry_points": {"leaf": step(": leaf {{of}} {{above}}", **leaf)},
        }
        steps = {"one": step(": {{of}}", **item), "two": step(": two {{of}}", deps="one", **item), "sub": inner}
        place.write({"make": step("echo '[1, 2, 3]' > {{out}}", "out"), "outer": {**loop, "entry_points": steps}})
        everything = {"one": 3, "two": 3, "leaf": 6}
        place.run()
        assert place.ran() == {**everything, "make": 1}
        assert place.again() == {}
        assert place.again(refresh=frozenset({"outer.two"})) == {"two": 3}
        assert place.again(refresh=frozenset({"outer.sub"})) == {"leaf": 6}
        assert place.again(refresh=frozenset({"outer.sub.leaf"})) == {"leaf": 6}
        assert place.again(refresh=frozenset({"outer"})) == everything
        assert place.again(start="outer") == everything
        assert place.again(start="outer.two")["two"] == 3

    def test_only_runs_all_items_of_a_loop(self, place):
        item = {"parameters": {"of": "{{PF_PARENT.PF_LOOP_ARGUMENT}}"}}
        inside = {"one": step(": {{of}}", **item), "two": step(": two {{of}}", **item)}
        place.write({"outer": {"loop_argument": [1, 2], "entry_points": inside}, "other": step(":")})
        assert place.again(only="outer") == {"one": 2, "two": 2}
        place.write({"outer": {"loop_argument": [3, 4], "entry_points": inside}, "other": step(":")})
        assert place.again(only="outer.two") == {"two": 2}
        assert place.again(only="outer-1") == {"one": 1}
        assert place.again(only="outer-0") == {"one": 1}

    def test_options(self, place):
        place.write(CHAIN)
        place.run()
        assert place.again(off=True) == {"a": 1, "b": 1, "c": 1}
        assert place.again(refresh=frozenset({"b"})) == {"b": 1}
        assert place.again() == {}


GATED = {"a": step('while [ ! -e gate ]; do sleep 0.05; done; echo 1 > "{{out}}"', "out")}


def events_of(record: Tick | Epoch) -> tuple[Event, ...]:
    return tuple(record.events) if isinstance(record, Tick) else ()


class TestTogether:
    def test_c7_two_runs_at_once_run_it_once(self, place):
        place.write(GATED)
        results: list[RunResult] = []
        threads = [threading.Thread(target=lambda: results.append(place.run())) for _ in range(3)]
        for thread in threads:
            thread.start()
        runs = place.folder / ".weft" / "runs"
        try:
            until(
                lambda: sum(one["outcome"] == "waiting" for run in runs.glob("*") for one in read_decisions(run)) == 2
            )
        finally:
            (place.folder / "gate").touch()
            for thread in threads:
                thread.join(DEADLINE_S)
        assert place.ran() == {"a": 1}
        assert [place.output(result, "a.out") for result in results] == ["1\n"] * 3
        waited = [one for run in runs.glob("*") for one in read_decisions(run) if one["outcome"] == "waiting"]
        assert not [one for one in waited if not one["reason"].endswith("/a is making the same result")]

    def test_c8_a_run_that_waits_can_be_stopped(self, place):
        place.write(GATED)
        owner = place.start("run", "run.yaml", "-q")
        try:
            until(place.trace.exists)
            waiter = place.start("run", "run.yaml", "-q")
            until(
                lambda: any(
                    one["outcome"] == "waiting" for one in read_decisions(place.folder / ".weft/runs/run-000002")
                )
            )
            until(lambda: read_run(place.folder / ".weft/runs/run-000002").steps[0].message)
            message = read_run(place.folder / ".weft/runs/run-000002").steps[0].message
            assert message == "waits for run-000001/a, which is making the same result"
            waiter.send_signal(signal.SIGINT)
            waiter.communicate(timeout=DEADLINE_S)
            assert owner.poll() is None
            stopped = read_run(place.folder / ".weft/runs/run-000002")
            assert (stopped.state, stopped.steps[0].message) == ("terminated", "the run was cancelled")
        finally:
            (place.folder / "gate").touch()
            owner.communicate(timeout=DEADLINE_S)
        assert place.ran() == {"a": 1}

    def test_c6_c14_another_takes_over_when_the_owner_is_killed(self, place):
        place.write(GATED)
        owner = place.start("run", "run.yaml", "-q")
        until(place.trace.exists)
        waiter = place.start("run", "run.yaml", "-q")
        until(
            lambda: any(one["outcome"] == "waiting" for one in read_decisions(place.folder / ".weft/runs/run-000002"))
        )
        owner.kill()
        owner.communicate(timeout=DEADLINE_S)
        until(lambda: len(place.trace.read_text().split()) == 2, "the takeover")
        (place.folder / "gate").touch()
        waiter.communicate(timeout=DEADLINE_S)
        assert waiter.returncode == 0
        out = read_run(place.folder / ".weft/runs/run-000002").outputs["a.out"]
        assert "run-000002" in out
        assert Path(out).read_text() == "1\n"

    @pytest.mark.parametrize("journal", ["is replayed", "is cut off", "is gone"])
    def test_a_run_that_goes_on_after_a_kill_keeps_its_results(self, place, journal):
        place.write(GATED | {"b": step("true", deps="a")})
        owner = place.start("run", "run.yaml", "-q", "--user", "me")
        until(place.trace.exists)
        file = place.folder_of() / JOURNAL
        until(lambda: any(isinstance(record, Tick) for record in read_journal(file).records))
        owner.kill()
        owner.communicate(timeout=DEADLINE_S)
        if journal == "is cut off":  # as if it had been killed before the disk knew that the step had begun
            os.truncate(file, file.stat().st_size // 2)
        elif journal == "is gone":
            file.unlink()
        (place.folder / "gate").touch()
        assert place.weft("resume", "@last", "-q")[0] == 0
        assert place.ran() == {"a": 2, "b": 1}
        assert place.again() == {}

    @pytest.mark.parametrize("other", ["is at it", "has ended"])
    def test_a_run_that_goes_on_after_a_kill_does_not_make_what_another_makes(self, place, other):
        command = 'echo part > "{{out}}"; while [ ! -e gate ]; do sleep 0.05; done; echo 1 > "{{out}}"'
        place.write({"a": step(command, "out")})
        owner = place.start("run", "run.yaml", "-q")
        file = place.folder_of() / JOURNAL
        until(place.trace.exists)
        until(lambda: any(isinstance(one, Miss) for record in read_journal(file).records for one in events_of(record)))
        owner.kill()
        owner.communicate(timeout=DEADLINE_S)
        second = place.start("run", "run.yaml", "-q")
        until(lambda: len(place.trace.read_text().split()) == 2, "the takeover")
        if other == "has ended":
            (place.folder / "gate").touch()
            second.communicate(timeout=DEADLINE_S)
        again = place.start("resume", "run-000001", "-q")
        first = place.folder / ".weft/runs/run-000001"
        until(lambda: read_decisions(first)[-1]["outcome"] in ("waiting", "hit"))
        (place.folder / "gate").touch()
        for process in (second, again):
            process.communicate(timeout=DEADLINE_S)
            assert process.returncode == 0
        assert place.ran() == {"a": 2}
        assert Path(read_run(first).outputs["a.out"]).read_text() == "1\n"
        assert read_decisions(first)[-1]["reason"] == "result of run-000002"

    def test_when_the_owner_fails_one_that_waits_takes_over(self, place):
        command = "while [ ! -e gate ]; do sleep 0.05; done; mkdir once || exit 0; exit 1"
        place.write({"a": step(f"{command}", cache=ON)})
        results: list[str] = []
        threads = [threading.Thread(target=lambda: results.append(place.run().state)) for _ in range(3)]
        for thread in threads:
            thread.start()
        runs = place.folder / ".weft" / "runs"
        until(lambda: sum(one["outcome"] == "waiting" for run in runs.glob("*") for one in read_decisions(run)) == 2)
        (place.folder / "gate").touch()
        for thread in threads:
            thread.join(DEADLINE_S)
        assert sorted(results) == ["failed", "succeeded", "succeeded"]
        assert place.ran() == {"a": 2}

    def test_equal_steps_of_one_run_run_once(self, place):
        same = {"command": 'echo x >> "$TRACE"; sleep 0.2; echo 1 > "{{out}}"', "artifacts": {"output": ["out"]}}
        place.write({"a": same, "b": same, "c": same})
        result = place.run()
        assert place.ran() == {"x": 1}
        assert [place.output(result, f"{name}.out") for name in "abc"] == ["1\n"] * 3


def test_a_run_of_which_all_is_known_loads_nothing_heavy(place):
    place.write(CHAIN)
    place.run()
    code = (
        "import sys; from weft.cli.main import main; code = main(['run', 'run.yaml', '-q'])\n"
        "print(sorted({name.partition('.')[0] for name in sys.modules} & {'sqlalchemy', 'numpy', 'pyarrow', 'rich'}))\n"
        "sys.exit(code)"
    )
    env = os.environ | {"PYTHONPATH": str(SOURCE)}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=place.folder, env=env, capture_output=True, text=True, timeout=DEADLINE_S)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["run-000002", "[]"]


class TestFaults:
    def test_what_a_step_reads_and_removes_is_told(self, place):
        (place.folder / "inbox").mkdir()
        (place.folder / "inbox" / "m1").write_text("1")
        main = {"main_fs": {"name": "main"}}
        place.write({"a": step('cat inbox/m1 > "{{out}}"; rm inbox/m1', "out")}, fs_options=main)
        told = "inbox/m1, which it reads, was there when it began and is gone"
        assert read_run(place.run().folder).steps[0].message == f"warning: its result is not kept: {told}"
        [planned] = plan_pipeline(wiring.load_pipeline(str(place.file), user="me"), place.settings)
        assert planned.reason.endswith("its results were removed, or the message of its run says why")

    def test_an_output_that_was_not_made_is_told_and_not_kept(self, place):
        place.write({"a": step("true", "out")})
        assert place.again() == {"a": 1}
        result = place.run()
        assert place.ran() == {"a": 1}
        told = "warning: its output out was not made; its result is not kept"
        assert read_run(result.folder).steps[0].message == told

    def test_a_link_out_of_the_artifact_is_not_kept(self, place):
        place.write({"a": step('mkdir "{{out}}"; ln -s /etc/hostname "{{out}}/x"', "out")})
        result = place.run()
        assert "a link that leads out of the artifact" in read_run(result.folder).steps[0].message
        assert place.again() == {"a": 1}
        place.write({"a": step('ln -s /etc/hostname "{{out}}"', "out")})
        assert "not kept" in read_run(place.run().folder).steps[0].message

    def test_an_input_that_changes_while_the_step_runs_is_told_and_the_result_not_kept(self, place):
        (place.folder / "x").write_text("1")
        scope = ON | {"fs_scope": [{"name": "main", "path": "x"}]}
        place.write({"a": step("echo more >> x")}, cache=scope, fs_options={"main_fs": {"name": "main"}})
        result = place.run()
        assert "what it reads changed while it ran: main:x changed" in read_run(result.folder).steps[0].message

    def test_a_full_disk_costs_the_result_and_not_the_step(self, place, monkeypatch):
        def full(*_):
            raise OSError(28, "No space left on device")

        place.write({"a": step('echo 1 > "{{out}}"', "out")})
        monkeypatch.setattr("weft.store.content._copy", full)
        result = place.run()
        assert result.state == "succeeded"
        assert "No space left on device" in read_run(result.folder).steps[0].message
        assert not list((place.folder / ".pipeline/.cas/drafts").iterdir())
        monkeypatch.undo()
        monkeypatch.setenv("TRACE", str(place.trace))
        assert place.again() == {"a": 1}
        assert place.again() == {}

    def test_runs_that_delete_each_others_results_only_run_again(self, place):
        place.write(CHAIN)
        place.run()
        index = CacheIndex(place.folder / ".weft" / "cache.db")
        index.remove([entry.key for entry in index.entries()])
        index.close()
        shutil.rmtree(place.folder / ".pipeline" / ".cas")
        assert place.again() == {"a": 1, "b": 1, "c": 1}
        assert place.again() == {}

    @pytest.mark.parametrize("content", [b"nonsense" * 1000, b"SQLite format 3\0" + b"\xff" * 4096])
    def test_a_damaged_index_is_told_and_steps_run(self, place, content):
        place.write({"a": step('echo 1 > "{{out}}"', "out")})
        place.run()
        for name in ("cache.db-wal", "cache.db-shm"):
            (place.folder / ".weft" / name).unlink(missing_ok=True)
        (place.folder / ".weft" / "cache.db").write_bytes(content)
        place.ran()
        notes: list[str] = []
        loaded = wiring.load_pipeline(str(place.file), user="me")
        result = wiring.run_pipeline(loaded, place.settings, quiet=True, on_note=notes.append)
        assert result.state == "succeeded"
        assert place.ran() == {"a": 1}
        assert any("the index of the cache" in note and "damaged" in note for note in notes)
        assert place.again() == {}, "a new index has its result"


class TestAsking:
    def plan(self, place: Place, **caching: Any) -> dict[str, tuple[str, str]]:
        loaded = wiring.load_pipeline(str(place.file), user="me", caching=wiring.Caching(**caching))
        return {one.step: (one.outcome, one.reason) for one in plan_pipeline(loaded, place.settings)}

    def test_a_plan_says_what_then_happens(self, place):
        place.write(CHAIN)
        assert [outcome for outcome, _ in self.plan(place).values()] == ["run", "depends", "depends"]
        assert not (place.folder / ".weft").exists()
        place.run()
        assert self.plan(place) == dict.fromkeys("abc", ("hit", "result of run-000001"))
        changed = CHAIN | {"b": CHAIN["b"] | {"env": {"NEW": "1"}}}
        place.write(changed)
        assert self.plan(place) == {
            "a": ("hit", "result of run-000001"),
            "b": ("run", "environment NEW was added: 1, compared with run-000001"),
            "c": ("depends", "on what b makes"),
        }
        assert place.again() == {"b": 1}, "what depends may turn out to be known"

    def test_what_is_damaged_is_told_by_every_plan_and_by_why(self, place):
        place.write({"a": step('echo 1 > "{{out}}"', "out")})
        place.run()
        shutil.rmtree(place.folder / ".pipeline" / ".cas" / "objects")
        plans = [self.plan(place)["a"] for _ in range(2)]
        assert plans[0] == plans[1]
        assert plans[0][1].startswith("its result of run-000001 cannot be used: output out: ")
        place.run()
        (said,) = read_decisions(place.folder_of("run-000002"))
        assert said["reason"] == plans[0][1]
        assert self.plan(place)["a"] == ("hit", "result of run-000002")

    @pytest.mark.parametrize("intact", [0, 1])
    def test_a_damaged_index_stops_no_plan_and_no_why(self, place, intact):
        """Either nothing of the index can be read, or only its first page, with the names of its tables."""
        scope = {"enable": True, "fs_scope": [{"name": "main", "path": "read"}]}
        (place.folder / "read").write_text("1")
        place.write({"a": step('cat read > "{{out}}"', "out", cache=scope)})
        place.run()
        place.run()
        file = place.folder / ".weft" / "cache.db"
        with closing(sqlite3.connect(file)) as db:
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            (page,) = db.execute("PRAGMA page_size").fetchone()
        data = file.read_bytes()
        damaged = data[: intact * page] + b"\xff" * (len(data) - intact * page)
        file.write_bytes(damaged)
        (place.folder / "read").write_text("2")
        for words in (["plan", "run.yaml"], ["run", "--dry-run", "run.yaml"]):
            code, out, err = place.weft(*words)
            assert (code, "damaged" in out) == (0, True), err
        code, out, err = place.weft("why", "2/a")
        assert (code, out) == (0, "a was taken from the cache: result of run-000001\n"), err
        code, out, err = place.weft("why", "2/a", "--against", "1")
        assert (code, out) == (0, "a was taken from the cache: result of run-000001\n"), err
        assert "cannot be compared with run-000001" in err
        assert "damaged" in err
        assert json.loads(place.weft("why", "2/a", "--against", "1", "--json")[1])["against"] == "run-000001"
        assert file.read_bytes() == damaged, "to ask changes nothing"

    def test_a_plan_that_cannot_record_digests_is_complete(self, place):
        scope = {"enable": True, "fs_scope": [{"name": "main", "path": "read"}]}
        (place.folder / "read").mkdir()
        place.write({"a": step('ls read > "{{out}}"', "out", cache=scope)})
        place.run()
        (place.folder / "read" / "new").touch()
        lock = place.folder / ".weft" / "cache.lock"
        lock.unlink()
        lock.mkdir()
        code, out, err = place.weft("plan", "run.yaml")
        assert (code, "new was added" in out) == (0, True), out + err
        assert "note: the index of the cache" in err

    def test_items_of_a_loop_have_names_of_their_own(self, place):
        place.write({"a": step("true") | {"loop_argument": [1, 2, 3]}})
        names = ["a-0", "a-1", "a-2"]
        assert list(self.plan(place)) == names
        place.run()
        assert self.plan(place) == dict.fromkeys(names, ("hit", "result of run-000001"))

    def test_a_plan_knows_what_was_asked(self, place):
        place.write(CHAIN | {"d": step("true", cache={"enable": False})})
        place.run()
        foreseen = {step: outcome for step, (outcome, _) in self.plan(place, refresh=frozenset({"b"})).items()}
        assert foreseen == {"a": "hit", "b": "run", "c": "depends", "d": "run"}
        assert self.plan(place)["d"] == ("run", "its cache is not enabled")
        assert self.plan(place, off=True) == {
            **dict.fromkeys("abc", ("run", "no result is used or kept (--no-cache)")),
            "d": ("run", "its cache is not enabled"),
        }
        assert list(self.plan(place, only="b")) == ["a", "b"]

    def test_from_a_step_on_and_only_one(self, place):
        place.write(CHAIN | {"other": step("true")})
        place.run()
        assert place.again(start="b") == {"b": 1, "c": 1}
        result = place.run(only="b")
        assert place.ran() == {}
        assert [one.name for one in read_run(result.folder).steps] == ["a", "b"]
        with pytest.raises(weft.WeftError, match="no step 'bb'"):
            place.run(only="bb")

    def test_a_step_is_compared_with_its_result_of_a_run_with_another_name(self, place):
        def step(x: int, command: str = "echo {{x}} > {{out}}") -> dict[str, Any]:
            return {
                "command": command,
                "parameters": {"x": x},
                "artifacts": {"output": ["out"]},
                "cache": {"enable": True},
            }

        place.write({"a": step(3)})
        assert place.weft("run", "run.yaml", "-q", "-n", "myname")[0] == 0
        place.write({"a": step(7)})
        told = place.weft("plan", "run.yaml")[1]
        assert "parameter x: 3 " in told
        assert "compared with run-000001" in told
        for other in (step(3, "true {{x}} > {{out}}"), {**step(3), "parameters": {"x": 3, "y": 1}}):
            place.write({"a": other})
            assert "no result of it is kept" in place.weft("plan", "run.yaml")[1]

    def test_the_command_line_tells_the_same(self, place):
        place.write(CHAIN)

        def say(*words: str) -> str:
            code, out, err = place.weft(*words)
            assert code == 0, err
            return str(out + err)

        say("run", "run.yaml", "-q")
        assert say("plan", "run.yaml").count("result of run-000001") == 3
        place.write(CHAIN | {"a": CHAIN["a"] | {"parameters": {"x": 1}}})
        assert "parameter x was added: 1" in say("run", "run.yaml", "--dry-run")
        say("run", "run.yaml", "-q")
        assert say("why", "@last/a") == "a ran: parameter x was added: 1, compared with run-000001\n"
        told = json.loads(say("why", "@last/a", "--json"))
        assert (told["run"], told["against"], told["outcome"]) == ("run-000002", "run-000001", "miss")
        assert say("why", "@last/b") == "b was taken from the cache: result of run-000001\n"
        assert "nothing is different, compared with run-000001" in say("why", "@last/b", "--against", "1")
        assert "no result of it is kept" in say("why", "1/a")
        assert "4 results" in say("cache", "ls")
        key = json.loads(say("cache", "ls", "--json"))["entries"][0]["key"]
        assert "trial/" in say("cache", "show", key[:8])
        assert "pinned" in say("cache", "pin", key[:8])
        assert "forgot 3 results" in say("cache", "gc", "--max-age", "0s")
        told = json.loads(say("cache", "unpin", key, "--json"))
        assert told == {"schema": "weft.cache.pin/1", "key": key, "pinned": False}
        assert json.loads(say("cache", "rm", key[:8], "--json")) == {"schema": "weft.cache.rm/1", "keys": [key]}
        assert "✘" not in say("doctor", "--full")

    def test_the_logs_of_what_was_taken_are_those_of_where_it_was_made(self, place):
        loop = {"command": "echo item {{PF_LOOP_ARGUMENT}}", "loop_argument": [1, 2]}
        place.write({"a": step("echo hello"), "loop": loop})
        place.run()
        place.write({"other": step("echo hello"), "loop": loop})
        place.run()

        def logs(*words: str) -> tuple[str, str]:
            code, out, err = place.weft("logs", *words)
            assert code == 0
            return out, err

        out, err = logs("2/loop[1]")
        assert out == "item 2\n"
        assert err == "run-000002/loop[1] was taken from the cache; this is of run-000001/loop-1\n"
        assert logs("2/loop")[0] == "==> loop[0] <==\nitem 1\n==> loop[1] <==\nitem 2\n"
        assert logs("2/other")[0] == "hello\n"
        assert logs("2")[1].endswith("weft logs run-000002/STEP\n")
        place.weft("delete", "run-000001")
        out, err = logs("2/loop-1")
        assert out == ""
        assert (
            err == "run-000002/loop-1 was taken from the cache, and the logs of run-000001, which made it, are gone\n"
        )

    def test_the_doctor_says_what_is_damaged(self, place):
        place.write(CHAIN)
        place.run()
        for name in ("cache.db-wal", "cache.db-shm"):
            (place.folder / ".weft" / name).unlink(missing_ok=True)
        (place.folder / ".weft" / "cache.db").write_bytes(b"nonsense" * 1000)
        code, out, _ = place.weft("doctor")
        assert code == 1
        assert "✘ the index of the cache" in out
        assert "mv " in out
