"""Runs that go on with an edited file: what counts still, what is run again and why, and what is refused."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.integration.places import RUN, Project
from weft import wiring
from weft.frontends.pipelines import layout
from weft.frontends.pipelines.compiler import compile_run
from weft.model.errors import ConflictError, DefinitionError, UsageError
from weft.runs import reopening
from weft.runs.reading import read_run
from weft.runs.records import read_records
from weft.store.state import RunFolder, read_description


def step(command: str = ":", *outputs: str, **more: Any) -> dict[str, Any]:
    """A step that also writes down that it ran, with its item."""
    artifacts = {"output": list(outputs), "input": more.pop("inputs", {})}
    trace = 'echo "$PF_STEP_NAME$PF_LOOP_ARGUMENT" >> ran'
    return {"command": f"{trace}; {command}", "artifacts": artifacts, **more}


def chain(**more: Any) -> dict[str, Any]:
    """Three steps in a row, one beside them, and one that fails until there is a file `repaired`."""
    steps = {
        "a": step("echo 1 > {{out}}", "out"),
        "b": step("cat {{in}} > {{out}}", "out", deps="a", inputs={"in": "{{a.out}}"}),
        "c": step("cat {{in}} > {{out}}", "out", deps="b", inputs={"in": "{{b.out}}"}),
        "side": step(),
        "bad": step("test -e repaired", deps="c,side"),
    }
    return {**steps, **more}


class Place(Project):
    """A folder with a pipeline that is run, edited and resumed."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.notes: list[str] = []

    def run(self) -> str:
        return wiring.run_pipeline(wiring.load_pipeline(str(self.file), user="me"), self.settings, quiet=True).state

    def resume(self, **edit: Any) -> str:
        """Go on, by default with the file as it is now; what ran before is forgotten."""
        self.ran()
        self.notes = []
        given: dict[str, Any] = edit or {"file": str(self.file)}
        return wiring.resume_run(self.path, self.settings, quiet=True, on_note=self.notes.append, **given).state

    def plainly(self) -> str:
        return self.resume(file=None)

    def repair(self) -> None:
        (self.folder / "repaired").touch()

    def ran(self) -> dict[str, int]:
        """What ran since the last time somebody asked."""
        trace = self.folder / "ran"
        lines = trace.read_text().split() if trace.exists() else []
        trace.unlink(missing_ok=True)
        return dict(Counter(lines))

    @property
    def path(self) -> Path:
        return self.folder_of()

    def said(self, name: str) -> list[str]:
        return [record.message for record in read_records(self.path) if record.step == name and record.message]


@pytest.fixture
def place(tmp_path) -> Place:
    return Place(tmp_path)


@pytest.fixture
def failed(place: Place) -> Place:
    place.write(chain())
    assert place.run() == "failed"
    assert place.ran() == {"a": 1, "b": 1, "c": 1, "side": 1, "bad": 1}
    place.repair()
    return place


def scripts(**cache: Any) -> dict[str, Any]:
    """A step that runs a script, which opens another file, one that rewrites a third file, and one that fails."""
    return {
        "a": {"command": "python3 a.py data.txt > {{out}}", "artifacts": {"output": ["out"]}, **cache},
        "b": {"command": "test -e data.txt; echo other > data.txt", "deps": "a"},
        "bad": {"command": "test -e repaired", "deps": "b"},
    }


class TestAFileThatAFinishedStepUsed:
    @pytest.fixture
    def scripted(self, place):
        (place.folder / "settings.txt").write_text("1")
        (place.folder / "data.txt").write_text("data")
        (place.folder / "a.py").write_text("print(open('settings.txt').read())")
        return place

    @pytest.mark.parametrize("file", [None, "pipeline"])
    @pytest.mark.parametrize("cache", [{}, {"cache": {"enable": True}}])
    def test_and_that_was_edited_is_told(self, scripted, cache, file):
        scripted.write(scripts(**cache))
        assert scripted.run() == "failed"
        again = {"file": file and str(scripted.file)}
        assert scripted.resume(**again) == "failed"
        assert scripted.notes == [], "no file is edited: a step wrote data.txt"
        (scripted.folder / "a.py").write_text("print(2)")
        assert scripted.resume(**again) == "failed"
        assert scripted.notes == [
            f"{scripted.folder / 'a.py'} has changed since a used it, and run-000001 goes on with the earlier result; "
            f"for a new one: weft run {scripted.file}"
        ]

    @pytest.mark.parametrize(
        ("edited", "compilations"), [(False, 1), (True, 2)], ids=["as it was", "of before and now"]
    )
    def test_is_found_without_a_compilation_of_its_own(self, scripted, monkeypatch, edited, compilations):
        scripted.write(scripts())
        assert scripted.run() == "failed"
        (scripted.folder / "a.py").write_text("print(2)")
        compiled = []

        def compile_counted(*args: Any, **named: Any) -> Any:
            compiled.append(args)
            return compile_run(*args, **named)

        monkeypatch.setattr(layout, "compile_run", compile_counted)
        assert scripted.resume(file=str(scripted.file) if edited else None) == "failed"
        assert "a.py has changed since a used it" in "".join(scripted.notes)
        assert len(compiled) == compilations

    def test_by_opening_it_is_told_if_the_step_has_a_cache(self, scripted):
        scripted.write(scripts(cache={"enable": True}))
        assert scripted.run() == "failed"
        (scripted.folder / "a.py").touch()
        assert scripted.plainly() == "failed"
        assert scripted.notes == [], "what is in it is the same"
        (scripted.folder / "settings.txt").write_text("2")
        assert scripted.plainly() == "failed"
        (told,) = scripted.notes
        assert told.startswith(f"{scripted.folder / 'settings.txt'} has changed since a used it, ")

    def test_by_opening_it_is_told_if_the_result_is_one_of_an_earlier_run(self, scripted):
        scripted.write(scripts(cache={"enable": True}))
        assert [scripted.run(), scripted.run()] == ["failed", "failed"]
        (scripted.folder / "settings.txt").write_text("2")
        second = scripted.folder_of("run-000002")
        wiring.resume_run(second, scripted.settings, quiet=True, on_note=scripted.notes.append)
        (told,) = scripted.notes
        assert "settings.txt has changed since a used it, and run-000002 goes on with the earlier result; " in told

    def test_is_not_told_if_the_step_runs_again(self, scripted):
        scripted.write(scripts())
        assert scripted.run() == "failed"
        (scripted.folder / "a.py").write_text("print(2)")
        steps = scripts()
        steps["a"]["command"] = "python3 a.py > {{out}}"
        scripted.write(steps)
        assert scripted.resume() == "failed"
        assert [note for note in scripted.notes if "used it" in note] == []

    def test_of_items_of_a_loop_is_told_with_all_steps(self, scripted):
        fails = "test -e repaired || test {{PF_LOOP_ARGUMENT}} = 1"
        steps = {
            name: {"command": f"python3 a.py; {fails}", "loop_argument": [1, 2]}
            for name in ("one", "two", "three", "four")
        }
        scripted.write(steps, failure_options={"strategy": "continue"})
        assert scripted.run() == "failed"
        (scripted.folder / "a.py").write_text("print(2)")
        scripted.repair()
        assert scripted.plainly() == "succeeded"
        (told,) = scripted.notes
        assert "a.py has changed since one, two, three and 1 more used it, " in told


class TestAnEditWithoutTheOption:
    def test_is_told_with_what_to_type(self, place):
        place.write(chain())
        assert place.run() == "failed"
        assert place.plainly() == "failed"
        assert place.notes == [], "the file is as it was"
        place.write(chain(bad=step("echo mended", deps="c,side")))
        assert place.plainly() == "failed"
        (told,) = place.notes
        assert told.startswith(f"{place.file} has changed since run-000001 read it, and the run goes on as it was; ")
        assert told.endswith(f"weft resume run-000001 --file {place.file}")
        assert place.resume(file=str(place.file)) == "succeeded"
        assert not any("has changed since" in note for note in place.notes)

    def test_is_not_told_of_a_file_that_is_gone(self, place):
        place.write(chain())
        assert place.run() == "failed"
        place.file.unlink()
        assert place.plainly() == "failed"
        assert place.notes == []


class TestWhatRunsAgain:
    def test_only_what_failed_when_that_was_mended(self, failed):
        failed.write(chain(bad=step("echo mended", deps="c,side")))
        assert failed.resume() == "succeeded"
        assert failed.ran() == {"bad": 1}
        assert failed.said("bad").count(failed.notes[0].replace("bad is run", "run")) == 2, "before and at the end"
        assert len(failed.notes) == 1
        assert failed.notes[0].startswith("bad is run again: the command changed: ")
        assert set(failed.states().values()) == {"succeeded"}

    def test_a_finished_step_that_was_edited_and_what_comes_after_it(self, failed):
        failed.write(chain(b=step("cat {{in}} {{in}} > {{out}}", "out", deps="a", inputs={"in": "{{a.out}}"})))
        assert failed.resume() == "succeeded"
        assert failed.ran() == {"b": 1, "c": 1, "bad": 1}
        run = read_run(failed.path)
        assert Path(run.outputs["c.out"]).read_text() == "1\n1\n"
        assert any(note.startswith("b is run again: the command changed: ") for note in failed.notes)
        assert "c is run again: b, which comes before it, runs again" in failed.notes
        assert any(message.startswith("run again: the command changed") for message in failed.said("b"))
        (edit,) = read_description(failed.path)["edits"]
        assert list(edit["again"]) == ["b", "c", "bad"]
        assert edit["file"] == str(failed.file)

    def test_nothing_when_only_the_how_has_changed(self, failed):
        steps = chain()
        steps["a"]["x-weft"] = {"retry": {"user": 2}, "timeout_s": 60}
        steps["b"]["cache"] = {"enable": True}
        steps["c"]["deps"] = "b,side"
        failed.write(steps, parallelism=2, failure_options={"strategy": "continue"})
        assert failed.resume() == "succeeded"
        assert failed.ran() == {"bad": 1}

    def test_comments_and_order_change_nothing(self, failed):
        text = failed.file.read_text()
        failed.file.write_text(f"# a comment\n\n{text}\n")
        assert failed.resume() == "succeeded"
        assert failed.ran() == {"bad": 1}

    def test_parameters_from_the_command_line(self, place):
        place.write(
            {
                "a": step("echo {{n}} > {{out}}", "out", parameters={"n": 1}),
                "b": step("exit {{code}}", deps="a", parameters={"code": 3}),
            }
        )
        assert place.run() == "failed"
        assert place.resume(overrides={"b.code": "0"}) == "succeeded"
        assert place.ran() == {"b": 1}
        assert place.notes == ["b is run again: parameter code: 3 → 0"]
        assert read_run(place.path).parameters == {"a.n": 1, "b.code": 0}

    def test_new_steps_run_and_old_ones_go(self, failed):
        steps = chain(extra=step(deps="a"))
        del steps["side"]
        steps["bad"]["deps"] = "c,extra"
        failed.write(steps)
        assert failed.resume() == "succeeded"
        assert failed.ran() == {"extra": 1, "bad": 1}
        states = failed.states()
        assert (states["extra"], states["side"]) == ("succeeded", "skipped")
        assert "no longer there" in failed.said("side")
        assert read_run(failed.path).step("side").started is None, "its time was that of an earlier owner"

    def test_what_an_edit_has_removed_stays_so_until_it_is_there_again(self, failed):
        def without() -> dict[str, Any]:
            steps = chain(bad=step("exit {{code}}", deps="c", parameters={"code": 3}))
            del steps["side"]
            return steps

        failed.write(without())
        assert failed.resume() == "failed"
        assert failed.resume(overrides={"code": "4"}) == "failed"
        assert failed.states()["side"] == "skipped"
        assert read_run(failed.path).step("side").message == "no longer there"
        assert failed.resume() == "failed"
        assert failed.states()["side"] == "skipped"
        failed.write(chain(bad=step("test -e repaired", deps="c,side")))
        assert failed.resume() == "succeeded"
        assert failed.ran() == {"side": 1, "bad": 1}
        assert set(failed.states().values()) == {"succeeded"}

    def test_parameters_that_the_file_has_no_more_are_dropped(self, place):
        def steps(name: str, code: int = 3) -> dict[str, Any]:
            return {"a": step(f"exit {{{{{name}}}}}", parameters={name: code, "other": 1})}

        place.write(steps("x"))
        assert place.run() == "failed"
        assert place.resume(overrides={"x": "4", "other": "2"}) == "failed"
        place.write(steps("y"))
        with pytest.raises(UsageError, match="no parameter `x`"):
            place.resume(file=str(place.file), overrides={"x": "5"})
        assert place.resume() == "failed"
        assert "the file no longer has parameter x: its value 4 is dropped" in place.notes
        assert read_run(place.path).parameters == {"a.y": 3, "a.other": 2}
        assert place.resume(overrides={"y": "0"}) == "succeeded"
        assert not [note for note in place.notes if "any more" in note]

    def test_a_bare_name_wins_over_a_step_of_an_earlier_command(self, place):
        place.write({"a": step("exit {{n}}", parameters={"n": 3}), "b": step(deps="a", parameters={"n": 1})})
        assert place.run() == "failed"
        assert place.resume(overrides={"a.n": "4"}) == "failed"
        assert place.resume(overrides={"n": "5"}) == "failed"
        assert read_run(place.path).parameters == {"a.n": 5, "b.n": 5}
        assert place.resume(file=str(place.file), overrides={"a.n": "6"}) == "failed"
        assert read_run(place.path).parameters == {"a.n": 6, "b.n": 5}
        assert place.resume(file=str(place.file), overrides={"n": "0"}) == "succeeded"
        assert read_run(place.path).parameters == {"a.n": 0, "b.n": 0}

    def test_what_never_ran_is_not_said_to_run_again(self, place):
        place.write({"a": step("exit {{n}}", parameters={"n": 3}), "b": step(deps="a")})
        assert place.run() == "failed"
        assert place.states()["b"] == "cancelled"
        assert place.resume(overrides={"n": "0"}) == "succeeded"
        assert place.notes == ["a is run again: parameter n: 3 → 0"]
        assert place.ran() == {"a": 1, "b": 1}

    def test_a_step_that_is_left_out_now_forgets_how_it_failed(self, place):
        place.write({"a": step("exit 3")})
        assert place.run() == "failed"
        place.write({"a": step("exit 3")}, disabled="a")
        assert place.resume() == "succeeded"
        found = read_run(place.path).step("a")
        assert (found.state, found.started, found.exit, found.message) == ("skipped", None, None, "it is disabled")

    def test_an_environment_an_image_and_an_input(self, place):
        steps = {
            "x": step("echo > {{out}}", "out"),
            "y": step("echo > {{out}}", "out"),
            "env": step(env={"LEVEL": "1"}),
            "image": step(docker_env="one"),
            "in": step("cat {{in}}", deps="x,y", inputs={"in": "{{x.out}}"}),
            "same": step(),
            "bad": step("test -e repaired", deps="env,image,in,same"),
        }
        place.write(steps)
        assert place.run() == "failed"
        place.repair()
        steps["env"]["env"]["LEVEL"] = "2"
        steps["image"]["docker_env"] = "two"
        steps["in"]["artifacts"]["input"]["in"] = "{{y.out}}"
        place.write(steps)
        assert place.resume() == "succeeded"
        assert place.ran() == {"env": 1, "image": 1, "in": 1, "bad": 1}
        assert "env is run again: environment LEVEL: 1 → 2" in place.notes
        assert "image is run again: image: one → two" in place.notes
        assert "in is run again: its input in is another artifact" in place.notes

    def test_items_of_a_loop_one_by_one(self, place):
        def steps(items: list[Any]) -> dict[str, Any]:
            return {
                "each": step("echo > {{out}}", "out", loop_argument=items),
                "all": step("echo {{in}}", deps="each", inputs={"in": "{{each.out}}"}),
                "bad": step("test -e repaired", deps="all"),
            }

        place.write(steps([1, 2, 3]))
        assert place.run() == "failed"
        place.write(steps([1, 20, 3, 4]))
        assert place.resume() == "failed"
        assert place.ran() == {"each20": 1, "each4": 1, "all": 1, "bad": 1}
        assert "each is run again: its item [1]: `2` → `20`" in place.notes
        assert {n: item.state for n, item in read_run(place.path).step("each").items.items()} == dict.fromkeys(
            range(4), "succeeded"
        )
        place.repair()
        place.write(steps([1, 20]))
        assert place.resume() == "succeeded"
        assert place.ran() == {"all": 1, "bad": 1}
        assert read_run(place.path).step("each").state == "succeeded"

    def test_a_step_that_begins_to_loop_and_stops(self, place):
        def steps(**each: Any) -> dict[str, Any]:
            return {"each": step(**each), "bad": step("test -e repaired", deps="each")}

        place.write(steps())
        assert place.run() == "failed"
        place.write(steps(loop_argument=["x", "y"]))
        assert place.resume() == "failed"
        assert place.ran() == {"eachx": 1, "eachy": 1, "bad": 1}
        place.write(steps())
        assert place.resume() == "failed"
        assert place.ran() == {"each": 1, "bad": 1}
        place.repair()
        assert place.plainly() == "succeeded"
        assert place.ran() == {"bad": 1}

    def test_a_condition_is_asked_again(self, place):
        def steps(condition: str) -> dict[str, Any]:
            return {"a": step(condition=condition), "b": step(), "bad": step("test -e repaired", deps="a,b")}

        place.write(steps("1 > 2"))
        assert place.run() == "failed"
        assert place.states()["a"] == "skipped"
        place.repair()
        place.write(steps("2 > 1"))
        assert place.resume() == "succeeded"
        assert place.ran() == {"a": 1, "bad": 1}
        assert place.states()["a"] == "succeeded"

    def test_what_was_disabled_runs_when_it_no_longer_is(self, place):
        place.write(chain(), disabled="side")
        assert place.run() == "failed"
        place.repair()
        place.write(chain())
        assert place.resume() == "succeeded"
        assert place.ran() == {"side": 1, "bad": 1}

    def test_dags_over_what_a_step_writes(self, place):
        def steps(inside: str, top: str) -> dict[str, Any]:
            inner = {"one": step(inside, parameters={"x": "{{PF_PARENT.PF_LOOP_ARGUMENT}}"})}
            dag = {
                "deps": "list",
                "artifacts": {"input": {"items": "{{list.out}}"}},
                "loop_argument": "{{items}}",
                "entry_points": inner,
            }
            return {
                "list": step('echo "[1, 2]" > {{out}}', "out"),
                "many": dag,
                "top": step(top),
                "bad": step("test -e repaired", deps="many,top"),
            }

        place.write(steps("echo {{x}}", "echo 1"))
        assert place.run() == "failed"
        place.write(steps("echo {{x}}", "echo 2"))
        assert place.resume() == "failed"
        assert place.ran() == {"top": 1, "bad": 1}
        assert place.plainly() == "failed"
        assert place.ran() == {"bad": 1}
        place.repair()
        place.write(steps("echo {{x}} {{x}}", "echo 2"))
        assert place.resume() == "succeeded"
        assert place.ran() == {"one": 2, "bad": 1}
        assert "many-1.one is run again: what the dag does has changed" in place.notes

    def test_what_the_cache_knows_is_taken_from_it(self, place):
        on = {"enable": True}
        place.write(chain(), cache=on)
        assert place.run() == "failed"
        place.repair()
        place.write(chain(a=step("echo 1 > {{out}}; :", "out")), cache=on)
        assert place.resume() == "succeeded"
        assert place.ran() == {"a": 1, "bad": 1}, "what it made is as before, so that the others are known"
        assert place.states()["c"] == "succeeded"

    def test_post_process_runs_once_more(self, place):
        place.write(chain(), post_process={"last": step()})
        assert place.run() == "failed"
        place.repair()
        place.write(chain(), post_process={"last": step("echo again")})
        assert place.resume() == "succeeded"
        assert place.ran() == {"bad": 1, "last": 1}

    def test_outputs_where_there_were_none(self, place):
        place.write({"a": step("test -e repaired")})
        assert place.run() == "failed"
        place.write({"a": step("echo made > {{out}}", "out")})
        assert place.resume() == "succeeded"
        assert Path(read_run(place.path).outputs["a.out"]).read_text() == "made\n"


class TestCode:
    @pytest.fixture
    def coded(self, place: Place) -> Place:
        """A function, what reads its output, the function again in a loop, and a step that fails."""
        function = {"x-weft": {"kind": "python", "with": {"function": "steps:make"}}}
        steps = {
            "one": {**function, "artifacts": {"output": ["out"]}},
            "two": step("cat {{in}}", deps="one", inputs={"in": "{{one.out}}"}),
            "list": step("echo '[1, 2]' > {{out}}", "out"),
            "many": {
                "deps": "list",
                "artifacts": {"input": {"all": "{{list.out}}"}},
                "loop_argument": "{{all}}",
                "entry_points": {"each": {**function, "artifacts": {"output": ["out"]}}},
            },
            "bad": step("test -e repaired", deps="two,many"),
        }
        place.write(steps)
        self.code(place, "1")
        assert place.run() == "failed"
        place.ran()
        return place

    def code(self, place: Place, value: str, note: str = "") -> None:
        text = f"VALUE = {value!r}\n\ndef make(out):  # {note}\n    out.write_text(VALUE)\n"
        (place.folder / "steps.py").write_text(text)

    def test_changed_code_of_finished_steps_counts(self, coded):
        self.code(coded, "2")
        coded.repair()
        assert coded.resume() == "succeeded"
        assert "one is run again: code steps.VALUE: '1' → '2'" in coded.notes
        assert "many-1.each is run again: many.each: code steps.VALUE: '1' → '2'" in coded.notes
        assert coded.ran() == {"two": 1, "bad": 1}
        assert Path(read_run(coded.path).outputs["one.out"]).read_text() == "2"

    def test_a_comment_changes_nothing(self, coded):
        self.code(coded, "1", "a comment")
        coded.repair()
        assert coded.resume() == "succeeded"
        assert coded.ran() == {"bad": 1}

    def test_what_ran_in_a_resume_counts_as_it_was_then(self, coded):
        self.code(coded, "2")
        assert coded.plainly() == "failed"
        assert coded.ran() == {"bad": 1}, "without a file it is not looked at"
        assert coded.resume() == "failed"
        assert coded.ran() == {"two": 1, "bad": 1}
        coded.repair()
        assert coded.resume() == "succeeded"
        assert coded.ran() == {"bad": 1}, "the code is what it was the last time"


class TestKilled:
    def test_before_the_edit_is_there_the_run_goes_on_as_it_was(self, failed, monkeypatch):
        failed.write(chain(b=step("cat {{in}} {{in}} > {{out}}", "out", deps="a", inputs={"in": "{{a.out}}"})))
        with monkeypatch.context() as patch:
            patch.setattr(RunFolder, "describe_again", _die)
            with pytest.raises(RuntimeError):
                failed.resume()
        assert failed.plainly() == "succeeded"
        ran = failed.ran()
        assert ran.pop("bad") == 1
        assert ran in ({}, {"b": 1, "c": 1})
        assert Path(read_run(failed.path).outputs["c.out"]).read_text() == "1\n"

    def test_once_the_edit_is_there_the_run_goes_on_with_it(self, failed, monkeypatch):
        failed.write(chain(b=step("cat {{in}} {{in}} > {{out}}", "out", deps="a", inputs={"in": "{{a.out}}"})))
        with monkeypatch.context() as patch:
            patch.setattr(reopening, "_plan", _die)
            with pytest.raises(RuntimeError):
                failed.resume()
        failed.file.unlink()
        assert failed.plainly() == "succeeded"
        assert failed.ran() == {"b": 1, "c": 1, "bad": 1}
        assert Path(read_run(failed.path).outputs["c.out"]).read_text() == "1\n1\n"


def _die(*_: Any, **__: Any) -> None:
    raise RuntimeError


class TestRefused:
    @pytest.mark.parametrize(
        ("top", "told"),
        [
            ({"name": "other"}, "was called `trial`, and is called `other` now"),
            ({"fs_options": {"main_fs": {"name": "x", "sub_path": "y"}}}, "main_fs has changed: name, sub_path"),
        ],
    )
    def test_what_all_paths_depend_on(self, failed, top, told):
        failed.write(chain(), **top)
        with pytest.raises(ConflictError, match="cannot continue with this") as caught:
            failed.resume()
        assert told in caught.value.message
        assert "Start a new run" in caught.value.hint
        assert failed.plainly() == "succeeded", "nothing was changed"
        assert failed.ran() == {"bad": 1}

    def test_a_file_with_mistakes(self, failed):
        failed.write(chain(bad=step(deps="nobody")))
        with pytest.raises(DefinitionError):
            failed.resume()
        with pytest.raises(UsageError):
            failed.resume(overrides={"nothing": "1"})
        assert failed.plainly() == "succeeded"
        assert failed.ran() == {"bad": 1}

    def test_a_run_of_which_only_a_part_was_asked_for(self, place):
        place.write({"a": step(), "b": step()})
        only = wiring.load_pipeline(str(place.file), user="me", caching=wiring.Caching(only="a"))
        assert wiring.run_pipeline(only, place.settings, quiet=True).state == "succeeded"
        with pytest.raises(
            ConflictError, match=r"The run was limited to a and its inputs; for the rest: weft run .*run"
        ):
            place.plainly()

    def test_a_run_that_has_succeeded(self, place):
        place.write({"a": step()})
        assert place.run() == "succeeded"
        place.write({"a": step("echo other")})
        with pytest.raises(ConflictError, match="has succeeded"):
            place.resume()


def test_on_the_command_line(failed):
    failed.write(chain(bad=step("echo mended", deps="c,side")))
    code, _, err = failed.weft("resume", RUN, "--file", "run.yaml")
    assert code == 0, err
    assert "note: bad is run again: the command changed" in err
    assert failed.ran() == {"bad": 1}
