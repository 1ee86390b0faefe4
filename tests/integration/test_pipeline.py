"""Pipelines from file to end: what they leave, how they fail, how they are stopped, and that nothing outlives them."""

import os
import signal
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

import weft
from tests.integration.places import DEADLINE_S, Project, StartedCommand, until
from weft.admin.control import send
from weft.admin.settings import Settings
from weft.model.errors import OutOfMemoryError, RunCancelledError, TaskError
from weft.operators import call
from weft.runs.active import RunResult
from weft.runs.reading import RunRecord, read_run
from weft.store.folders import is_owned, shm_root
from weft.store.state import read_description
from weft.wiring import load_pipeline, run_pipeline

if TYPE_CHECKING:
    from weft.runs.records import Record


class Place(Project):
    """A folder with a pipeline in it, and ways to run it."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.records: list[Record] = []

    def run(self, settings: Settings | None = None, **overrides: str) -> RunResult:
        loaded = load_pipeline(str(self.file), overrides=overrides)
        return run_pipeline(loaded, settings or Settings(workers=1), on_record=self.records.append)

    def log(self, step: str, attempt: int = 0) -> str:
        return (self.folder_of() / "logs" / f"{step}.{attempt}.log").read_text()


@pytest.fixture
def place(tmp_path) -> Place:
    return Place(tmp_path)


class TestSuccess:
    def test_data_flows_through_files(self, place):
        place.write(
            {
                "make": {
                    "command": "echo {{word}} > {{out}}",
                    "parameters": {"word": "warp"},
                    "artifacts": {"output": ["out"]},
                },
                "use": {
                    "command": 'tr a-z A-Z < {{text}} > "$PF_OUTPUT_ARTIFACT_LOUD"; echo $PF_RUN_ID $PF_STEP_NAME',
                    "deps": "make",
                    "artifacts": {"input": {"text": "{{make.out}}"}, "output": ["loud"]},
                },
            }
        )
        result = place.run(word="weft")
        assert (result.run_id, result.state, result.error) == ("run-000001", "succeeded", None)
        assert Path(result.outputs["use.loud"]).read_text() == "WEFT\n"
        assert place.log("use") == "run-000001 use\n"
        assert set(result.outputs) == {"make.out", "use.loud"}

    def test_it_can_be_read_afterwards(self, place):
        place.write({"a": {"command": "true"}, "b": {"command": "true", "deps": "a"}})
        result = place.run()
        found: RunRecord = read_run(result.folder)
        assert (found.name, found.state, found.frontend, found.number) == ("trial", "succeeded", "pipelines", 1)
        assert [(step.name, step.state, step.attempts) for step in found.steps] == [
            ("a", "succeeded", 1),
            ("b", "succeeded", 1),
        ]
        assert not is_owned(result.folder)

    def test_every_change_is_told_in_order(self, place):
        place.write({"a": {"command": "true"}, "b": {"command": "true", "deps": "a"}})
        place.run()
        assert [(record.step, record.state) for record in place.records] == [
            ("", "pending"),
            ("", "running"),
            ("a", "running"),
            ("a", "succeeded"),
            ("b", "running"),
            ("b", "succeeded"),
            ("", "succeeded"),
        ]

    def test_nothing_is_left_but_the_run(self, place):
        place.write({"a": {"command": "true"}})
        threads = set(threading.enumerate())  # those of tests before this one may end meanwhile
        result = place.run()
        assert not set(threading.enumerate()) - threads
        assert not list((shm_root() / f"weft-{os.getuid()}").glob(f"{result.run_id}-{os.getpid()}-*"))
        assert not (result.folder / "spill").exists()
        assert not (result.folder / "control.sock").exists()
        assert not list((result.folder / "processes").iterdir())

    def test_a_disabled_step_is_skipped_and_counts_as_a_success(self, place):
        steps = {
            "a": {"command": "true"},
            "b": {"command": "exit 1", "deps": "a"},
            "c": {"command": "true", "deps": "b"},
        }
        place.write(steps, disabled="b")
        assert place.run().state == "succeeded"
        assert place.states() == {"a": "succeeded", "b": "skipped", "c": "succeeded"}

    def test_all_steps_may_be_disabled(self, place):
        place.write({"a": {"command": "exit 1"}}, disabled="a")
        assert place.run().state == "succeeded"

    def test_the_processes_backend_runs_the_same(self, place):
        place.write({"a": {"command": "echo $$"}})
        assert place.run(Settings(backend="processes", workers=1)).state == "succeeded"

    def test_parallelism_bounds_how_many_steps_run(self, place):
        count = "echo + >> log; cp log seen-$PF_STEP_NAME; sleep 0.02; echo - >> log"
        place.write({f"s{number}": {"command": count} for number in range(6)}, parallelism=2)
        assert place.run().state == "succeeded"
        for seen in place.folder.glob("seen-*"):
            text = seen.read_text()
            assert 1 <= text.count("+") - text.count("-") <= 2

    def test_a_sub_path_is_made_and_is_where_steps_run(self, place):
        place.write(
            {"a": {"command": "pwd; touch {{out}}", "artifacts": {"output": ["out"]}}, "b": {"command": "pwd"}},
            fs_options={"main_fs": {"name": "ppl", "sub_path": "deep/er"}},
        )
        result = place.run()
        assert place.log("a") == place.log("b") == f"{place.folder}/deep/er\n"
        assert result.outputs["a.out"].startswith(f"{place.folder}/deep/er/.pipeline/run-000001/trial/a-0-")

    def test_outputs_of_another_index_are_not_overwritten(self, place, tmp_path):
        place.write({"a": {"command": "echo $PF_RUN_ID > {{out}}", "artifacts": {"output": ["out"]}}})
        first = place.run()
        second = place.run(Settings(workers=1, state_dir=tmp_path / "elsewhere"))
        assert (first.run_id, second.run_id) == ("run-000001", "run-000002")
        assert Path(first.outputs["a.out"]).read_text() == "run-000001\n"


class TestFailure:
    def test_says_which_step_with_what_code_and_where_its_log_is(self, place):
        place.write({"good": {"command": "true"}, "bad": {"command": "echo one; echo two >&2; exit 7", "deps": "good"}})
        result = place.run()
        assert result.state == "failed"
        assert isinstance(result.error, TaskError)
        assert result.error.message.startswith("step bad ended with exit code 7.\nIts last lines:\n  one\n  two")
        assert place.states() == {"good": "succeeded", "bad": "failed"}

    def test_fail_fast_ends_the_others(self, place):
        place.write(
            {
                "long": {"command": "touch started; sleep 600"},
                "bad": {"command": "until [ -e started ]; do sleep 0.01; done; exit 1"},
                "below": {"command": "true", "deps": "long"},
            }
        )
        assert place.run().state == "failed"
        assert place.states() == {"long": "terminated", "bad": "failed", "below": "cancelled"}

    def test_continue_gives_up_only_what_needs_it(self, place):
        steps = {
            "bad": {"command": "exit 1"},
            "below": {"command": "true", "deps": "bad"},
            "far-below": {"command": "true", "deps": "below"},
            "other": {"command": "true"},
            "after-other": {"command": "true", "deps": "other"},
        }
        place.write(steps, failure_options={"strategy": "continue"})
        assert place.run().state == "failed"
        assert place.states() == {
            "bad": "failed",
            "below": "cancelled",
            "far-below": "cancelled",
            "other": "succeeded",
            "after-other": "succeeded",
        }

    def test_a_step_that_takes_more_than_there_is_is_refused(self, place):
        place.write({"a": {"command": "true", "x-weft": {"resources": {"cpu": 1000}}}})
        with pytest.raises(weft.CapacityError, match=r"asks for [(]cpu 1000"):
            place.run()

    def test_steps_that_take_a_core_run_only_as_far_as_there_are_cores(self, place):
        alone = {"command": "mkdir busy && sleep 0.1 && rmdir busy", "x-weft": {"resources": {"cpu": 1}}}
        place.write(dict.fromkeys(("a", "b", "c"), alone))
        assert place.run(Settings(workers=1, user="me")).state == "succeeded"

    def test_a_step_that_is_killed_for_memory_is_retried_as_such(self, place, monkeypatch):
        """The step counts in the place of the kernel, whose counter no test can move."""
        counter = place.folder / "vmstat"
        counter.write_text("oom_kill 0\n")

        def kill(tries: int) -> str:
            read = place.folder / f"read-{tries}"
            os.mkfifo(read)  # the guardian reads it after the counter, once the command writes it
            monkeypatch.setattr(call, "OOM_COUNTERS", (str(counter), str(read)))
            count = f"echo > {read}; rm {read}; wc -l < tries | sed 's/^/oom_kill /' > {counter}"
            return f"echo x >> tries; test $(wc -l < tries) -gt {tries} || {{ {count}; kill -KILL $$; }}"

        place.write({"a": {"command": kill(1), "x-weft": {"retry": {"memory": 1}}}})
        assert place.run().state == "succeeded"
        assert [place.log("a", attempt) for attempt in range(2)] == ["", ""]
        (place.folder / "tries").unlink()
        place.write({"a": {"command": kill(9), "x-weft": {"retry": {"memory": 0, "user": 3}}}})
        result = place.run()
        assert isinstance(result.error, OutOfMemoryError)
        assert read_run(place.folder_of("run-000002")).error_code == "WEFT503"

    def test_a_retry_finds_no_old_output_and_has_its_own_log(self, place):
        command = 'ls -d {{out}} 2>/dev/null; echo try >> tries; mkdir {{out}}; test "$(wc -l < tries)" -ge 3'
        place.write({"a": {"command": command, "artifacts": {"output": ["out"]}, "x-weft": {"retry": {"user": 2}}}})
        assert place.run().state == "succeeded"
        assert [place.log("a", attempt) for attempt in range(3)] == ["", "", ""]
        assert read_run(place.folder_of()).step("a").attempts == 3

    def test_a_timeout_is_told(self, place):
        place.write({"a": {"command": "sleep 600", "x-weft": {"timeout_s": 0.05}}})
        result = place.run()
        assert "after its timeout of 0.05 s" in str(result.error)

    def test_a_step_may_print_a_lot(self, place):
        place.write({"a": {"command": "yes | head -c 20000000; echo; echo the end; exit 3"}})
        result = place.run()
        assert (place.folder_of() / "logs" / "a.0.log").stat().st_size > 20_000_000
        assert "the end" in str(result.error)
        assert len(str(result.error)) < 20_000

    def test_what_a_shell_would_read_stays_text(self, place):
        text = "$(touch bad) `touch bad`; touch bad 'x' \\ é"
        place.write({"a": {"command": 'printf %s "$TEXT"', "env": {"TEXT": "{{text}}"}, "parameters": {"text": "-"}}})
        assert place.run(text=text).state == "succeeded"
        assert place.log("a") == text
        assert not (place.folder / "bad").exists()

    def test_a_folder_that_is_no_folder_is_told(self, place):
        place.write({"a": {"command": "true", "artifacts": {"output": ["out"]}}})
        (place.folder / ".pipeline").write_text("in the way")
        with pytest.raises(weft.WeftError, match=r"\.pipeline"):
            place.run()


def alive(place: Place) -> list[str]:
    """What still runs in the folder."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.cwd() == str(place.folder) and process.pid != os.getpid():
                found.append(" ".join(process.cmdline()))
        except psutil.Error:
            continue
    return found


class TestStopping:
    def started(self, place: Place, trap: str = "") -> StartedCommand:
        place.write(
            {
                "long": {"command": f"sleep 600 & ({trap} touch started; sleep 601)"},
                "below": {"command": "true", "deps": "long"},
            }
        )
        process = place.start()
        until((place.folder / "started").exists, "the step")
        return process

    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
    def test_a_signal_cancels(self, place, number):
        process = self.started(place)
        process.send_signal(number)
        _, said = process.communicate(timeout=DEADLINE_S)
        assert process.returncode == 128 + number, said
        assert alive(place) == []
        found = read_run(place.folder_of())
        assert (found.state, found.error_code) == ("terminated", RunCancelledError.code)
        assert place.states() == {"long": "terminated", "below": "cancelled"}

    def test_so_does_one_that_comes_while_the_run_is_made(self, place):
        place.write({"long": {"command": "sleep 60"}})
        loaded = load_pipeline(str(place.file))
        result = run_pipeline(loaded, Settings(workers=1), on_begin=lambda _: signal.raise_signal(signal.SIGINT))
        assert (result.state, type(result.error)) == ("terminated", RunCancelledError)

    def test_a_second_signal_leaves_at_once_and_still_nothing_runs_on(self, place):
        process = self.started(place)
        process.send_signal(signal.SIGINT)
        until(lambda: "terminating" in (place.folder_of() / "events.jsonl").read_text(), "the first signal")
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=DEADLINE_S)
        assert process.returncode == 130
        until(lambda: alive(place) == [], "the end of the step")

    def test_a_step_that_does_not_listen_is_killed(self, place):
        process = self.started(place, trap="trap '' TERM;")
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=DEADLINE_S)
        assert alive(place) == []
        assert place.states()["long"] == "terminated"

    def test_kill_9_takes_the_steps_along(self, place):
        process = self.started(place, trap="trap '' TERM;")
        process.kill()
        process.communicate(timeout=DEADLINE_S)
        until(lambda: alive(place) == [], "the end of the step")
        assert read_run(place.folder_of()).state == "interrupted"
        place.write({"a": {"command": "true"}})
        assert place.run().run_id == "run-000002", "the next run is not in its way"

    def test_another_process_can_cancel(self, place):
        process = self.started(place)
        send(place.folder_of(), {"do": "cancel", "reason": "not today"})
        said, _ = process.communicate(timeout=DEADLINE_S)
        assert process.returncode == RunCancelledError.exit_code, said
        assert alive(place) == []
        assert "not today" in read_run(place.folder_of()).message

    def test_another_process_can_ask_for_the_story(self, place):
        process = self.started(place)
        story = send(place.folder_of(), {"do": "story", "subject": "long"})
        assert any("long" in line for line in story)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=DEADLINE_S)


class TestTogether:
    def test_two_runs_share_a_state_folder(self, place):
        wait = "touch {0}; until [ -e {1} ]; do sleep 0.01; done"
        place.write({"a": {"command": "{{mine}}", "parameters": {"mine": "true"}}})
        processes = [
            place.start("run", "run.yaml", "-p", f"mine={wait.format(mine, other)}")
            for mine, other in (("one", "two"), ("two", "one"))
        ]
        for process in processes:
            said = process.communicate(timeout=DEADLINE_S)
            assert process.returncode == 0, said
        assert place.states("run-000001") == place.states("run-000002") == {"a": "succeeded"}

    def test_two_projects_have_runs_of_one_id(self, tmp_path):
        places = [Place(tmp_path / name) for name in ("one", "two")]
        for place, other in zip(places, reversed(places), strict=True):
            place.write({"a": {"command": f"touch here; until [ -e {other.folder}/here ]; do sleep 0.01; done"}})
        processes = [place.start() for place in places]
        for place, process in zip(places, processes, strict=True):
            said = process.communicate(timeout=DEADLINE_S)
            assert process.returncode == 0, said
            assert place.states() == {"a": "succeeded"}


def test_the_command_line_tells_where_a_mistake_is(place):
    place.file.write_text("name: p\nentry_points:\n  a:\n    comand: echo\n")
    process = place.start()
    out, said = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 3, out
    assert "run.yaml:4:5: entry_points.a.comand: unknown key" in said
    assert "did you mean `command`?" in said
    assert not (place.folder / ".weft").exists()


class TestWorkers:
    """The number of steps that run at a time, by flag, environment or `weft.toml`."""

    ALONE = "echo begin >> told; echo end >> told"
    MANY = 12
    """More than run at a time without a wish."""

    def alone(self, place: Place) -> bool:
        told = (place.folder / "told").read_text().split()
        return told == ["begin", "end"] * (len(told) // 2)

    @pytest.mark.parametrize("by", ["flag", "environment", "file"])
    def test_steps_run_one_after_another(self, place, by):
        place.write({f"s{number}": {"command": self.ALONE} for number in range(8)})
        words = ["run", "run.yaml"]
        if by == "flag":
            words += ["--workers", "1"]
        elif by == "environment":
            place.environ["WEFT_WORKERS"] = "1"
        else:
            (place.folder / "weft.toml").write_text("workers = 1\n")
        code, out, err = place.weft(*words)
        assert code == 0, out + err
        assert self.alone(place)

    def test_more_run_at_a_time_than_without(self, place):
        together = f"touch here.$PF_LOOP_ARGUMENT; until test $(ls here.* | wc -l) = {self.MANY}; do sleep 0.02; done"
        place.write({"each": {"command": together, "loop_argument": list(range(self.MANY))}})
        code, out, err = place.weft("run", "run.yaml", "--workers", str(self.MANY))
        assert code == 0, out + err

    def test_a_resume_keeps_it_unless_a_flag_changes_it(self, place):
        steps = {f"s{number}": {"command": self.ALONE, "deps": "first"} for number in range(4)}
        place.write({"first": {"command": "test -e go"}, **steps})
        assert place.weft("run", "run.yaml", "--workers", "1")[0] == 1
        (place.folder / "go").touch()
        assert place.weft("resume", "1")[0] == 0
        assert self.alone(place)
        assert read_description(place.folder_of())["workers"] == 1
        (place.folder / "go").unlink()
        assert place.weft("run", "run.yaml")[0] == 1
        (place.folder / "go").touch()
        assert place.weft("resume", "2", "--workers", "1")[0] == 0
        assert self.alone(place)
