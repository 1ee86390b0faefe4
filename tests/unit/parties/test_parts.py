"""The ends of processes of parts: what is told of them, and what they leave."""

import os
import queue
from typing import TYPE_CHECKING, Any, cast

import pytest

from tests.integration.places import DEADLINE_S
from weft.frontends.federated.components.programs import sweep_programs
from weft.frontends.federated.schema import Party
from weft.operators.call import CommandResult
from weft.parties.part_folders import PartFolders
from weft.parties.parts import PartEvents, PartRunner, _environment, _how, _sweep
from weft.parties.values import AttemptKey, ValueHub
from weft.runtime.clock import RealClock
from weft.wiring.session import Session

if TYPE_CHECKING:
    from weft.frontends.federated.components.process import PartTask


@pytest.mark.parametrize(
    ("exit_code", "signal", "told"),
    [
        (3, None, "its process ended with exit code 3"),
        (None, 9, "its process was ended by SIGKILL, perhaps since the memory was full"),
        (None, 11, "its process was ended by SIGSEGV"),
        (None, 127, "its process was ended by signal 127"),
    ],
)
def test_the_end_of_a_process_is_told_in_words(exit_code, signal, told):
    result = CommandResult(
        exit_code=exit_code, signal=signal, cause="exit", wall_s=0.0, cpu_s=0.0, memory=0, log_bytes=0,
        dropped_bytes=0, log_start=0,
    )  # fmt: skip
    assert _how(result) == told


def test_ids_of_a_killed_program_do_not_stay_on_the_disk(tmp_path):
    for name in ("spu-1", "torch-2"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "ids.csv").write_text("id\n1\n")
    (tmp_path / "log").touch()
    sweep_programs(tmp_path)
    assert [one.name for one in tmp_path.iterdir()] == ["log"]
    sweep_programs(tmp_path / "gone")


def test_drafts_of_a_killed_process_are_removed(tmp_path):
    for name in ("result.json.part", "log", "model.json"):
        (tmp_path / name).touch()
    _sweep(tmp_path)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["log", "model.json"]


def test_parts_know_the_environments_of_providers_from_any_folder(monkeypatch):
    monkeypatch.setenv("WEFT_TORCH", "torch")
    monkeypatch.setenv("WEFT_SPU", "/spu")
    monkeypatch.setenv("WEFT_OTHER", "1")
    found = _environment()
    assert (found["WEFT_TORCH"], found["WEFT_SPU"]) == (os.path.abspath("torch"), "/spu")
    assert "WEFT_OTHER" not in found
    monkeypatch.delenv("WEFT_TORCH")
    assert "WEFT_TORCH" not in _environment()


def test_a_process_that_is_stopped_before_or_while_it_begins_is_told_to_have_ended(tmp_path):
    part, ends, task = Party("host", "2"), queue.SimpleQueue[Any](), cast("PartTask", None)
    events = PartEvents(lambda *_: None, lambda *_: None, lambda key, _, end: ends.put((key, end.status)))
    hub = ValueHub("2", lambda *_: b"", lambda *_: None, lambda *_: None)
    with Session("threads", workers=1) as session:
        runner = PartRunner(session, hub, PartFolders(tmp_path / "jobs"), tmp_path, events, RealClock())
        for number in range(20):
            key = AttemptKey("job", 1, "a", number)
            runner.start(key, part, lambda folder, socket, token: task)
            runner.stop(key, part, "enough")
            assert ends.get(timeout=DEADLINE_S) == (key, "canceled")
        assert runner.alive() == []
