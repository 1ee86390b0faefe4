"""The process table, the family of a process, and the owner of this one."""

import os
import signal
import socket
import subprocess
import sys

import pytest

from tests.started import start
from weft.worker import process_table as processes
from weft.worker.process_table import OwnerProcess, ProcessRow, descendants, look_up, process_table, send_signal

LINUX_ONLY = pytest.mark.skipif(not processes.LINUX, reason="reads /proc")


def row(pid: int, parent: int) -> ProcessRow:
    return ProcessRow(pid, parent, pid, pid, f"{pid}@boot", alive=True)


class TestProcesses:
    def test_this_process_is_found_with_its_parent(self):
        own = look_up(os.getpid())
        assert own is not None
        assert (own.pid, own.parent, own.group, own.session) == (
            os.getpid(),
            os.getppid(),
            os.getpgrp(),
            os.getsid(0),
        )
        assert own.alive
        again = look_up(os.getpid())
        assert again is not None
        assert again.start == own.start

    def test_a_pid_that_nobody_has_is_none(self):
        process = start([sys.executable, "-c", ""])
        process.wait()
        assert look_up(process.pid) is None

    @LINUX_ONLY
    def test_the_fields_are_read_whatever_the_name_of_the_program(self, monkeypatch):
        """Names may hold blanks and brackets."""
        fields = [b"S", b"7", b"8", b"9", *[b"0"] * 13, b"1", b"0", b"4711"]
        line = b"42 (a) S 1 (b c) " + b" ".join(fields)
        monkeypatch.setattr(processes, "_read_file", lambda path: line if path == "/proc/42/stat" else b"boot\n")
        monkeypatch.setattr(processes, "_boot", ["boot"])
        found = look_up(42)
        assert found is not None
        assert (found.parent, found.group, found.session, found.start, found.alive) == (7, 8, 9, "4711@boot", True)

    @LINUX_ONLY
    @pytest.mark.parametrize(
        ("state", "threads", "alive"), [(b"Z", b"1", False), (b"Z", b"2", True), (b"X", b"1", False)]
    )
    def test_a_zombie_lives_as_long_as_it_has_threads(self, monkeypatch, state, threads, alive):
        line = b"42 (x) " + b" ".join([state, b"7", b"8", b"9", *[b"0"] * 13, threads, b"0", b"4711"])
        monkeypatch.setattr(processes, "_read_file", lambda _: line)
        found = look_up(42)
        assert found is not None
        assert found.alive is alive

    def test_the_table_has_this_process(self):
        assert process_table()[os.getpid()].parent == os.getppid()

    @LINUX_ONLY
    @pytest.mark.parametrize("listed", [True, False])
    def test_a_family_is_found_with_and_without_lists_of_children(self, monkeypatch, listed):
        if not listed:
            monkeypatch.setattr(os.path, "exists", lambda _: False)
        program = (
            "import subprocess, sys; one = subprocess.Popen(['sleep', '60']); print(one.pid, flush=True); one.wait()"
        )
        with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            sleeper = int(process.stdout.readline())
            try:
                found = [row.pid for row in processes.family(os.getpid())]
                assert found.index(process.pid) < found.index(sleeper)
                assert [row.pid for row in processes.family(process.pid)] == [sleeper]
                assert processes.family(sleeper) == []
            finally:
                os.kill(sleeper, signal.SIGKILL)

    def test_descendants_come_after_their_parents(self):
        table = {pid: row(pid, parent) for pid, parent in ((5, 3), (3, 2), (4, 2), (2, 1), (9, 8))}
        assert [each.pid for each in descendants(table, 2)] == [3, 4, 5]
        assert descendants(table, 5) == []

    def test_a_signal_reaches_its_process(self):
        process = start([sys.executable, "-c", "import time; time.sleep(60)"])
        found = look_up(process.pid)
        assert found is not None
        send_signal(found, signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL

    def test_a_pid_that_is_in_use_again_gets_no_signal(self):
        process = start([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
        try:
            found = look_up(process.pid)
            assert found is not None
            found.start = "another start"
            send_signal(found, signal.SIGKILL)
            process.communicate(b"", timeout=180)
            assert process.returncode == 0
        finally:
            process.kill()
            process.wait()

    def test_a_signal_to_a_process_that_has_ended_is_no_error(self):
        process = start([sys.executable, "-c", ""])
        found = look_up(process.pid)
        process.wait()
        assert found is not None
        send_signal(found, signal.SIGKILL)


class TestOwner:
    def test_the_parent_is_there(self):
        owner = OwnerProcess(os.getppid())
        assert not owner.is_gone()
        here, there = socket.socketpair()
        with here, there:
            assert not owner.has_left(here.fileno())

    def test_who_is_not_the_parent_counts_as_gone(self):
        with pytest.raises(EOFError):
            OwnerProcess(os.getpid())

    @LINUX_ONLY
    def test_an_owner_that_closes_its_end_has_left(self):
        owner = OwnerProcess(os.getppid())
        here, there = socket.socketpair()
        with here:
            there.close()
            assert owner.has_left(here.fileno())

    def test_without_a_handle_the_process_table_is_asked(self, monkeypatch):
        monkeypatch.setattr(processes, "LINUX", False)
        monkeypatch.setattr(processes, "look_up", lambda pid: found)
        found: ProcessRow | None = row(os.getppid(), 1)
        owner = OwnerProcess(os.getppid())
        assert owner.handle == -1
        assert not owner.is_gone()
        found = None
        owner._look_at = 0.0  # the answer may be as old as OWNER_S
        assert owner.is_gone()
