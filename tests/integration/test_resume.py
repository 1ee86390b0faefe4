"""Runs that were killed, failed or cancelled go on: what has finished is not run again, and the result is right."""

import json
import signal
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import psutil
import pytest

from tests.integration.places import DEADLINE_S, RUN, Project, until
from tests.started import have_ended
from weft.admin.control import send
from weft.durability.journal import read_journal
from weft.engine.events import Done
from weft.engine.replay import Tick
from weft.model.errors import ConflictError, NotFoundError
from weft.runs.reading import read_run


class Place(Project):
    """A folder with a pipeline whose steps write down that they ran, and ways to run and kill it."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.ran = folder / "ran"
        self.ran.mkdir()

    def kill_when(self, condition: Callable[[], Any], *words: str) -> None:
        """Start a command, kill it with SIGKILL once a condition holds, and wait for the end of its steps.

        Between the kill and that end a step may still see what the test does next, and come to its own end: nobody
        would know, and it would rightly run again.
        """
        process = self.start(*words)
        try:
            until(lambda: condition() or process.poll() is not None)
        finally:
            process.kill()
            process.communicate()
        processes = self.run / "processes"
        until(lambda: not processes.is_dir() or not any(processes.iterdir()), "the end of its steps")

    def counts(self) -> Counter[str]:
        """How often each step ran to its end."""
        return Counter(path.name.partition(".")[0] for path in self.ran.iterdir())

    @property
    def run(self) -> Path:
        return self.folder_of()

    def told(self, step: str) -> bool:
        return self.run.is_dir() and self.states().get(step) == "succeeded"

    def began(self, name: str = "began") -> bool:
        """Whether a step has begun, and what ended before it is on disk, which the next one does not wait for."""
        return (self.folder / name).exists() and all(map(self.told, self.counts()))

    def journaled(self, incarnation: int, restored: int = 0) -> bool:
        """Whether the journal tells what an owner began with, and of the end of each step that ended.

        The ends of `restored` steps are not in it: they are from before it began.
        """
        try:
            recorded = read_journal(self.run / "journal")
        except NotFoundError:
            return False
        ticks = [record for record in recorded.records if isinstance(record, Tick)]
        done = sum(isinstance(event, Done) and event.hi > 0 for tick in ticks for event in tick.events)  # 0: given up
        told = bool(recorded.records) and isinstance(recorded.records[-1], Tick)
        return recorded.incarnation == incarnation and told and done >= self.counts().total() - restored


def body(then: str = "") -> str:
    """A command that reads what came before, adds its name, and leaves a mark of its own each time it ends well."""
    return f"{then}; touch ran/$PF_STEP_NAME.$$" if then else "touch ran/$PF_STEP_NAME.$$"


def chain(blocked: str = "") -> dict[str, Any]:
    """Four steps in a row, each with an output; `blocked` waits until there is a file `go`."""
    steps: dict[str, Any] = {}
    before = ""
    for name in ("one", "two", "three", "four"):
        wait = "touch began; until test -e go; do sleep 0.02; done" if name == blocked else ":"
        read = "cat {{in}}" if before else ":"
        step: dict[str, Any] = {
            "command": f"{wait}; ({read}; echo {name}) > {{{{out}}}} && {body()}",
            "artifacts": {"output": ["out"]},
        }
        if before:
            step["deps"] = before
            step["artifacts"]["input"] = {"in": f"{{{{{before}.out}}}}"}
        steps[name] = step
        before = name
    return steps


FILES = {"fs_options": {"main_fs": {"name": "local"}}}


@pytest.fixture
def place(tmp_path) -> Place:
    return Place(tmp_path)


def result(place: Place) -> str:
    path = read_run(place.run).outputs["four.out"]
    return Path(path).read_text()


class TestKilled:
    @pytest.mark.parametrize("blocked", ["one", "two", "three", "four"])
    def test_a_killed_run_goes_on_and_runs_nothing_twice(self, place, blocked):
        place.write(chain(blocked), **FILES)
        place.kill_when(place.began)
        before = place.counts()
        (place.folder / "go").touch()
        code, out, err = place.weft("resume", RUN)
        assert code == 0, err
        assert "succeeded" in out
        assert place.counts() == Counter(["one", "two", "three", "four"])
        assert set(before) <= set(place.counts())
        assert result(place) == "one\ntwo\nthree\nfour\n"
        assert set(place.states().values()) == {"succeeded"}

    @pytest.mark.parametrize("step", ["one", "two", "three"])
    def test_killed_just_after_a_step_was_told_to_have_succeeded(self, place, step):
        place.write(chain(), **FILES)
        place.kill_when(lambda: place.told(step))
        finished = {name for name, state in place.states().items() if state == "succeeded"}
        before = place.counts()
        code, _, err = place.weft("resume", RUN, "-q")
        if code:  # it was quicker than we
            assert "has succeeded" in err
        after = place.counts()
        assert all(after[name] == before[name] == 1 for name in finished), (before, after)
        assert result(place) == "one\ntwo\nthree\nfour\n"

    def test_killed_again_and_again(self, place):
        steps = {
            name: {"command": body(f"touch began.{name}; until test -e go.{name}; do sleep 0.02; done")}
            for name in ("a", "b", "c")
        }
        steps["b"]["deps"], steps["c"]["deps"] = "a", "b"
        place.write(steps)

        def due(name: str, incarnation: int) -> Any:
            return place.began(f"began.{name}") and place.journaled(incarnation)

        for number, name in enumerate(("a", "b", "c")):
            words = ("resume", RUN) if number else ("run", "run.yaml")
            place.kill_when(partial(due, name, 2 * number), *words)
            (place.folder / f"began.{name}").unlink()
            place.kill_when(partial(due, name, 2 * number + 1), "resume", RUN)
            (place.folder / f"go.{name}").touch()
        code, _, err = place.weft("resume", RUN)
        assert code == 0, err
        assert place.counts() == Counter("abc")
        recorded = read_journal(place.run / "journal")
        assert (recorded.header.incarnation, recorded.incarnation) == (0, 6), "it was replayed, not begun again"

    @pytest.mark.parametrize("kind", ["loop", "dag"])
    def test_the_items_of_a_loop_over_an_artifact_are_known_again_before_they_are_read(self, place, kind):
        waits = body("touch began; until test -e go; do sleep 0.02; done; echo $PF_STEP_NAME > {{out}}")
        inner = {"command": waits, "artifacts": {"output": ["out"]}}
        reads = {"artifacts": {"input": {"i": "{{make.list}}"}}}
        if kind == "dag":
            output = {"output": {"out": "{{inner.out}}"}}
            work = {"entry_points": {"inner": inner}, "artifacts": {**reads["artifacts"], **output}}
        else:
            work = {**inner, "artifacts": {**reads["artifacts"], "output": ["out"]}}
        steps = {
            "make": {"command": f"echo '[1, 2]' > {{{{list}}}}; {body()}", "artifacts": {"output": ["list"]}},
            "work": {"deps": "make", "loop_argument": "{{i}}", **work},
            "sum": {
                "deps": "work",
                "command": f"cat $(echo {{{{all}}}} | tr , ' '); {body()}",
                "artifacts": {"input": {"all": "{{work.out}}"}},
            },
        }
        place.write(steps, **FILES)
        place.kill_when(place.began)
        (place.folder / "go").touch()
        code, _, err = place.weft("resume", RUN)
        assert code == 0, err
        step = read_run(place.run).step("sum")
        assert (step.state, step.attempts) == ("succeeded", 1)
        code, out, err = place.weft("logs", f"{RUN}/sum@0")
        assert code == 0, err
        assert len(out.split()) == 2, "the output of each item"
        assert (place.counts()["make"], place.counts()["sum"]) == (1, 1)

    def test_what_a_killed_owner_left_running_is_ended_first(self, place):
        place.write({"a": {"command": "echo $$ > pid; until test -e go; do sleep 0.02; done; " + body()}})
        pid = place.folder / "pid"
        process = place.start("run", "run.yaml")
        until(lambda: pid.exists() and pid.read_text().strip())
        step = psutil.Process(int(pid.read_text()))
        process.kill()
        process.communicate()
        (place.folder / "go").touch()
        assert place.weft("resume", "@last")[0] == 0
        assert have_ended(step)
        assert not list((place.run / "processes").iterdir())
        assert place.states() == {"a": "succeeded"}

    @pytest.mark.parametrize(("first", "then"), [("processes", "processes"), ("processes", "threads")])
    def test_whatever_runs_it(self, place, first, then):
        place.write(chain("three"), **FILES)
        place.kill_when(place.began, "run", "run.yaml", "--backend", first)
        (place.folder / "go").touch()
        code, _, err = place.weft("resume", RUN, "--backend", then)
        assert code == 0, err
        assert place.counts() == Counter(["one", "two", "three", "four"])
        assert result(place) == "one\ntwo\nthree\nfour\n"


class TestKilledInTheFinalStep:
    """The owner is killed while `post_process` runs; the resume runs that once more, to its end."""

    WAITS: ClassVar = {"command": f"echo x >> finals; {body('touch began; until test -e go; do sleep 0.02; done')}"}

    def finals(self, place: Place) -> int:
        """How often the final step has begun."""
        return (place.folder / "finals").read_text().count("x")

    @pytest.mark.parametrize("backend", ["threads", "processes"])
    def test_after_a_success(self, place, backend):
        place.write(chain(), post_process={"last": self.WAITS}, **FILES)
        place.kill_when(place.began, "run", "run.yaml", "--backend", backend)
        assert read_run(place.run).state == "interrupted"
        assert place.counts() == Counter(["one", "two", "three", "four"])
        (place.folder / "go").touch()
        code, out, err = place.weft("resume", RUN)
        assert code == 0, err
        assert "succeeded" in out
        assert place.counts() == Counter(["one", "two", "three", "four", "last"])
        assert self.finals(place) == 2
        assert set(place.states().values()) == {"succeeded"}
        assert result(place) == "one\ntwo\nthree\nfour\n"

    def test_again_and_again(self, place):
        place.write({"a": {"command": body()}}, post_process={"last": self.WAITS})
        place.kill_when(place.began)
        for _ in range(2):
            (place.folder / "began").unlink()
            place.kill_when(place.began, "resume", RUN)
        (place.folder / "go").touch()
        assert place.weft("resume", RUN)[0] == 0
        assert (place.counts(), self.finals(place)) == (Counter(["a", "last"]), 4)

    def test_after_a_failure(self, place):
        steps = {"good": {"command": body()}, "bad": {"command": "echo x >> tries; exit 3", "deps": "good"}}
        place.write(steps, post_process={"last": self.WAITS})
        place.kill_when(lambda: (place.folder / "began").exists() and place.states().get("bad") == "failed")
        (place.folder / "go").touch()
        code, _, err = place.weft("resume", RUN)
        assert code == 1, err
        assert place.counts() == Counter(["good", "last"])
        assert self.finals(place) == 2
        assert place.states() == {"good": "succeeded", "bad": "failed", "last": "succeeded"}
        assert read_run(place.run).message.startswith("step bad ended with exit code 3")
        assert (place.folder / "tries").read_text() == "x\nx\n", "a resume tries again what failed"

    def test_after_a_cancel(self, place):
        place.write(
            {
                "good": {"command": body()},
                "long": {"command": body("touch long; until test -e go; do sleep 0.02; done"), "deps": "good"},
            },
            post_process={"last": self.WAITS},
        )

        sent: list[str] = []  # a second cancel would stop the final step

        def in_the_final_step() -> bool:
            if not sent and place.run.is_dir() and place.states().get("long") == "running":
                with suppress(ConflictError):
                    send(place.run, {"do": "cancel", "reason": "test"})
                    sent.append("cancel")
            return (place.folder / "began").exists() and bool(place.states().get("long") == "terminated")

        place.kill_when(in_the_final_step)
        assert place.counts() == Counter(["good"])
        (place.folder / "go").touch()
        code, _, err = place.weft("resume", RUN)
        assert code == 0, err
        assert place.counts() == Counter(["good", "long", "last"]), "what was cancelled is not finished"
        assert self.finals(place) == 2


class TestEnded:
    def test_a_resume_of_a_failed_run_may_be_killed_too(self, place):
        wait = "touch began; until test -e go; do sleep 0.02; done"
        place.write(
            {
                "good": {"command": body()},
                "bad": {"command": f"test -e repaired && {body()}", "deps": "good"},
                "slow": {"command": f"{wait}; {body()}", "deps": "bad"},
            }
        )
        assert place.weft("run", "run.yaml")[0] == 1
        (place.folder / "repaired").touch()
        for incarnation in (1, 2):
            place.kill_when(lambda n=incarnation: place.began() and place.journaled(n, restored=1), "resume", RUN)
            (place.folder / "began").unlink()
        assert place.states() == {"good": "succeeded", "bad": "succeeded", "slow": "interrupted"}
        (place.folder / "go").touch()
        code, _, err = place.weft("resume", RUN)
        assert code == 0, err
        assert place.counts() == Counter(["good", "bad", "slow"])
        recorded = read_journal(place.run / "journal")
        assert recorded.header.restored == (("good", 0),)
        assert (recorded.header.incarnation, recorded.incarnation) == (1, 3)

    @pytest.mark.parametrize("changed", [False, True])
    def test_steps_that_keep_what_they_made_of_a_lost_output_are_told(self, place, changed):
        (place.folder / "in.txt").write_text("1\n")
        steps: dict[str, Any] = {
            "a": {"command": "cat in.txt > {{o}}", "artifacts": {"output": ["o"]}},
            "b": {
                "command": "wc -l < {{o}} > {{q}}",
                "deps": "a",
                "artifacts": {"input": {"o": "{{a.o}}"}, "output": ["q"]},
            },
            "apart": {"command": "true"},
            "e": {
                "command": "test -e repaired && cat {{q}} {{o}}",
                "deps": "a,b",
                "artifacts": {"input": {"o": "{{a.o}}", "q": "{{b.q}}"}},
            },
        }
        place.write(steps, **FILES)
        assert place.weft("run", "run.yaml")[0] == 1
        Path(read_run(place.run).outputs["a.o"]).unlink()
        (place.folder / "repaired").touch()
        if changed:
            (place.folder / "in.txt").write_text("1\n2\n")
        code, _, err = place.weft("resume", RUN)
        assert code == 0, err
        assert "a is run again: its output o (" in err
        mixed = f"if the new one differs, {RUN} mixes both; to make all of it anew: weft run "
        assert f"b keeps what it made of the old output of a: {mixed}" in err
        assert ("in.txt has changed since a used it, and a is run again with it as it is now" in err) == changed

    def test_a_failed_run_runs_again_what_failed_and_what_never_began(self, place):
        place.write(
            {
                "good": {"command": body()},
                "bad": {"command": f"test -e repaired && {body()}", "deps": "good"},
                "last": {"command": body(), "deps": "bad"},
            }
        )
        assert place.weft("run", "run.yaml")[0] == 1
        assert place.states() == {"good": "succeeded", "bad": "failed", "last": "cancelled"}
        assert place.weft("resume", RUN)[0] == 1, "it is not repaired yet"
        (place.folder / "repaired").touch()
        code, out, _ = place.weft("resume", RUN, "--json")
        assert code == 0
        document = json.loads(out)
        assert document["run"]["state"] == "succeeded"
        assert document["run"]["id"] == RUN
        assert place.counts() == Counter(["good", "bad", "last"])

    @pytest.mark.parametrize("edited", [False, True])
    @pytest.mark.parametrize("words", [("--refresh", "pull"), ("--from", "pull")])
    def test_steps_that_were_to_run_again_are_not_taken_from_the_cache(self, place, words, edited):
        steps: dict[str, Any] = {
            "pull": {
                "command": "test ! -e down && date +%s.%N > {{out}}",
                "artifacts": {"output": ["out"]},
                "cache": {"enable": True},
            },
            "use": {"command": "cat {{got}}", "artifacts": {"input": {"got": "{{pull.out}}"}}, "deps": "pull"},
        }
        place.write(steps)
        assert place.weft("run", "run.yaml")[0] == 0
        (place.folder / "down").touch()
        assert place.weft("run", "run.yaml", *words)[0] == 1
        (place.folder / "down").unlink()
        steps["use"]["command"] += "; true"
        place.write(steps)
        code, _, err = place.weft("resume", "@last", *(["--file", "run.yaml"] if edited else []))
        assert code == 0, err
        first, second = (place.weft("logs", f"{run}/use")[1] for run in ("1", "2"))
        assert 0 < float(first) < float(second), "the result of the first run was taken"

    def test_a_cancelled_run_goes_on(self, place):
        place.write(chain("two"), **FILES)
        process = place.start("run", "run.yaml")
        until((place.folder / "began").exists)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=DEADLINE_S)
        assert process.returncode == 130
        assert place.states()["two"] == "terminated"
        (place.folder / "go").touch()
        assert place.weft("resume", RUN)[0] == 0
        assert place.counts() == Counter(["one", "two", "three", "four"])
        assert result(place) == "one\ntwo\nthree\nfour\n"

    def test_disabled_steps_stay_skipped(self, place):
        place.write(
            {
                "a": {"command": body()},
                "off": {"command": body(), "deps": "a"},
                "bad": {"command": f"test -e repaired && {body()}", "deps": "off"},
            },
            disabled="off",
        )
        assert place.weft("run", "run.yaml")[0] == 1
        (place.folder / "repaired").touch()
        assert place.weft("resume", RUN)[0] == 0
        assert place.states() == {"a": "succeeded", "off": "skipped", "bad": "succeeded"}
        assert place.counts() == Counter(["a", "bad"])

    def test_a_step_whose_output_is_gone_runs_again_and_it_is_said(self, place):
        steps = chain("four")
        place.write(steps, **FILES)
        place.kill_when(place.began)
        gone = read_run(place.run).outputs["two.out"]
        Path(gone).unlink()
        (place.folder / "go").touch()
        code, _, err = place.weft("resume", RUN)
        assert code == 0
        assert f"two is run again: its output out ({gone}) is gone" in err
        assert place.counts() == Counter({"one": 1, "two": 2, "three": 1, "four": 1})
        assert result(place) == "one\ntwo\nthree\nfour\n"

    def test_the_pipeline_that_was_begun_goes_on_though_its_file_has_changed(self, place):
        place.write({"a": {"command": f"test -e repaired && {body()}"}})
        assert place.weft("run", "run.yaml")[0] == 1
        place.write({"other": {"command": "false"}})
        (place.folder / "repaired").touch()
        assert place.weft("resume", RUN)[0] == 0
        assert place.counts() == Counter("a")

    @pytest.mark.parametrize("damage", ["gone", "garbage", "header", "older"])
    def test_without_its_journal_a_run_goes_on_from_the_records(self, place, damage):
        place.write(chain("three"), **FILES)
        place.kill_when(place.began)
        journal = place.run / "journal"
        if damage == "gone":
            journal.unlink()
        elif damage == "garbage":
            journal.write_bytes(b"\0" * 1000)
        elif damage == "header":
            journal.write_bytes(journal.read_bytes()[:20])
        else:
            from weft.durability import journal as module

            data = journal.read_bytes()
            at = len(module._MAGIC)
            length, _ = module._FRAME.unpack_from(data, at)
            rest = data[at + module._FRAME.size + length :]
            header = data[at + module._FRAME.size : at + module._FRAME.size + length]
            said = msgspec.msgpack.decode(header) | {"format": 1}
            journal.write_bytes(module._MAGIC + module._frame(msgspec.msgpack.encode(said)) + rest)
        (place.folder / "go").touch()
        code, _, err = place.weft("resume", RUN)
        assert code == 0, err
        assert place.counts() == Counter(["one", "two", "three", "four"])
        assert result(place) == "one\ntwo\nthree\nfour\n"

    def test_a_journal_cut_at_its_end_loses_no_finished_step(self, place):
        place.write(chain("four"), **FILES)
        place.kill_when(place.began)
        journal = place.run / "journal"
        journal.write_bytes(journal.read_bytes()[:-7])
        (place.folder / "go").touch()
        assert place.weft("resume", RUN)[0] == 0
        assert place.counts() == Counter(["one", "two", "three", "four"])


class TestRefused:
    def test_a_run_that_has_succeeded(self, place):
        place.write({"a": {"command": body()}})
        assert place.weft("run", "run.yaml")[0] == 0
        code, _, err = place.weft("resume", RUN)
        assert code == 7
        assert f"{RUN} has succeeded" in err
        assert place.counts() == Counter("a")

    def test_a_run_whose_owner_lives(self, place):
        place.write(chain("one"), **FILES)
        process = place.start("run", "run.yaml")
        try:
            until((place.folder / "began").exists)
            code, _, err = place.weft("resume", RUN)
            assert code == 7
            assert "still running" in err
            (place.folder / "go").touch()
            process.communicate(timeout=DEADLINE_S)
            assert process.returncode == 0
        finally:
            process.kill()
            process.communicate()

    def test_a_run_that_is_not_there(self, place):
        place.write({"a": {"command": body()}})
        assert place.weft("resume", "run-000009")[0] == 4
