"""Runs that are safe from a loss of power: what is durable before an end is told, and before what follows from it."""

import errno
import json
from pathlib import Path

import pytest

from weft.admin.settings import Settings, SettingSource
from weft.runs.active import RunResult
from weft.runs.reading import read_run
from weft.runs.records import Record
from weft.store import disk, libc
from weft.wiring import load_pipeline, resume_run, run_pipeline

A = {"command": "echo a > {{out}}", "artifacts": {"output": ["out"]}}
B = {"command": "cat {{in}} > b", "deps": "a", "artifacts": {"input": {"in": "{{a.out}}"}}}
POST = {"last": {"command": "echo last > last"}}


class Machine:
    """Stands for the flush of a file system: `log` tells in which order what was flushed and told."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log: list[str] = []
        self.breaks_with = ""

    def made(self) -> list[str]:
        names = [path.name for path in self.folder.glob(".pipeline/run-*/*/*/out")]
        return [*names, *(name for name in ("b", "last") if (self.folder / name).exists())]

    def flush(self, _: int) -> None:
        """Note what has been made by now; the folders and file systems that are flushed are looked at elsewhere."""
        made = self.made()
        self.log.append(f"flush {' '.join(made)}".strip())
        if self.breaks_with in made:
            raise OSError(errno.EIO, "Input/output error")

    def hear(self, record: Record) -> None:
        self.log.append(f"{record.step or 'run'} {record.state}")

    def run(self, *, durability: str = "power", cache: bool = False, **top) -> RunResult:
        file = self.folder / "run.yaml"
        steps = {"a": A, "b": B}
        file.write_text(json.dumps({"name": "p", "cache": {"enable": cache}, "entry_points": steps, **top}))
        settings = Settings(workers=1, durability=durability)
        return run_pipeline(load_pipeline(str(file)), settings, on_record=self.hear)

    def before(self, what: str) -> list[str]:
        return self.log[: self.log.index(what)]


@pytest.fixture
def machine(tmp_path, monkeypatch) -> Machine:
    found = Machine(tmp_path)
    monkeypatch.setattr(libc, "flush_file_system", found.flush)
    monkeypatch.setattr(disk, "sync_file", found.flush)
    return found


def test_outputs_are_flushed_before_their_step_is_said_to_have_succeeded(machine):
    assert machine.run(post_process=POST).state == "succeeded"
    assert machine.log[0] == "flush", "the folders of the run, before anything is told"
    assert "flush out" in machine.before("a succeeded")
    assert "flush out b" in machine.before("b succeeded")
    assert "flush out b last" in machine.before("last succeeded")


def test_so_is_what_the_cache_has_put_in_place(machine):
    machine.run(cache=True)
    machine.log.clear()
    result = machine.run(cache=True)
    assert [step.message for step in read_run(result.folder).steps] == ["taken from the cache"] * 2
    assert "flush out out b" in machine.before("a succeeded")


def test_a_step_whose_output_cannot_be_made_durable_has_not_succeeded(machine):
    machine.breaks_with = "out"
    result = machine.run()
    assert result.state == "failed"
    assert "Input/output error" in str(result.error)
    assert "a succeeded" not in machine.log
    assert not (machine.folder / "b").exists(), "nothing follows from it"
    machine.breaks_with = ""
    again = resume_run(result.folder, Settings(workers=1, durability="power"), on_record=machine.hear)
    assert again.state == "succeeded"
    assert machine.log.count("a running") == 2
    assert "flush out" in machine.before("a succeeded")


def test_a_run_that_goes_on_is_as_safe_as_it_was_begun(machine):
    machine.breaks_with = "b"
    result = machine.run()
    assert result.state == "failed"
    machine.breaks_with = ""
    machine.log.clear()
    assert resume_run(result.folder, Settings(workers=1), on_record=machine.hear).state == "succeeded"
    assert "flush out b" in machine.before("b succeeded")


def test_unless_a_flag_says_otherwise(machine):
    machine.breaks_with = "b"
    result = machine.run()
    machine.breaks_with = ""
    machine.log.clear()
    flag = Settings(workers=1, durability="process", origins={"durability": SettingSource("flag")})
    assert resume_run(result.folder, flag, on_record=machine.hear).state == "succeeded"
    assert not any(line.startswith("flush") for line in machine.log)


def test_a_last_step_that_cannot_be_made_durable_fails_the_run(machine):
    machine.breaks_with = "last"
    result = machine.run(post_process=POST)
    assert result.state == "failed"
    assert "last succeeded" not in machine.log
    assert "run succeeded" not in machine.log


def test_otherwise_nothing_is_flushed(machine):
    assert machine.run(durability="process").state == "succeeded"
    assert not any(line.startswith("flush") for line in machine.log)
