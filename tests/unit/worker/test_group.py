"""Processes by pid and start time: what is alive, what a record names, and what is ended with its descendants."""

import os
import subprocess
import sys
import time

import pytest

from weft.model.errors import InternalError
from weft.worker.group import ProcessId, end_group, end_recorded, is_alive, process_id, read_record

DEADLINE_S = 180.0
SLEEPER = "import time; time.sleep(600)"
PARENT = f"""
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", {SLEEPER!r}])
print(child.pid, flush=True)
child.wait()
"""


@pytest.fixture
def start():
    """Start programs in sessions of their own; those that are left are ended by pid and start time."""
    started = []

    def run(code: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        started.append((process, process_id(process.pid)))
        return process

    yield run
    for process, identity in started:
        if identity is not None and is_alive(identity):
            process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def identity_of(process: subprocess.Popen[str]) -> ProcessId:
    found = process_id(process.pid)
    assert found is not None
    return found


def gone(process: ProcessId) -> bool:
    until = time.monotonic() + DEADLINE_S
    while is_alive(process) and time.monotonic() < until:
        time.sleep(0.01)
    return not is_alive(process)


def test_this_process_is_alive_and_one_of_another_start_time_is_not():
    own = process_id(os.getpid())
    assert own is not None
    assert is_alive(own)
    assert not is_alive(own._replace(start_time="another"))


def test_a_pid_that_nobody_has_is_no_process(start):
    ended = start("pass")
    ended.wait()
    assert process_id(ended.pid) is None


def test_a_process_that_has_ended_and_was_not_waited_for_is_not_alive(start):
    process = start(SLEEPER)
    identity = identity_of(process)
    process.kill()
    assert gone(identity)
    assert process.returncode is None


def test_a_group_is_ended_with_its_descendants(start):
    parent = start(PARENT)
    assert parent.stdout is not None
    child = process_id(int(parent.stdout.readline()))
    assert child is not None
    assert end_group(identity_of(parent), grace_s=DEADLINE_S)
    assert gone(child)
    parent.wait()


def test_what_ignores_the_first_signal_is_killed(start):
    stubborn = start(f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1, flush=True); {SLEEPER}")
    assert stubborn.stdout is not None
    stubborn.stdout.readline()
    assert end_group(identity_of(stubborn), grace_s=0.1)
    assert stubborn.wait() == -9


def test_a_process_that_was_given_the_same_pid_is_not_touched(start):
    process = start(SLEEPER)
    identity = identity_of(process)
    assert not end_group(identity._replace(start_time="another"), grace_s=0.1)
    assert is_alive(identity)


def test_a_record_names_processes_and_a_missing_one_nobody(tmp_path):
    record = tmp_path / "record"
    assert read_record(record) == []
    record.write_text("12 345 boot\n67 890 boot\n")
    assert read_record(record) == [ProcessId(12, "345 boot"), ProcessId(67, "890 boot")]


@pytest.mark.parametrize("text", ["hello", "12\n", "-1 345\n", "12 345\nx 1\n"])
def test_a_record_of_something_else_is_refused_with_its_path(tmp_path, text):
    record = tmp_path / "record"
    record.write_text(text)
    with pytest.raises(InternalError, match=str(record)) as refused:
        read_record(record)
    assert "remove the file" in refused.value.hint


def test_what_a_record_names_is_ended_and_the_record_is_removed(start, tmp_path):
    process = start(SLEEPER)
    identity = identity_of(process)
    record = tmp_path / "record"
    record.write_text(f"{identity.pid} {identity.start_time}\n")
    assert end_recorded(record, grace_s=DEADLINE_S)
    assert gone(identity)
    assert not record.exists()
    assert not end_recorded(record)
