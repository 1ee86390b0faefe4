"""The parts of a guardian that need no command: the process table, the bounded log, frames, records, counters."""

import errno
import marshal
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.started import start
from weft.worker import guardian
from weft.worker.guardian import (
    BoundedLog,
    OomKillCounter,
    OwnerProcess,
    ProcessRecord,
    ProcessRow,
    descendants,
    find,
    look_up,
    process_table,
    receive,
    send,
    send_signal,
    undo,
)

LINUX_ONLY = pytest.mark.skipif(not guardian.LINUX, reason="reads /proc")


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
        monkeypatch.setattr(guardian, "_read_file", lambda path: line if path == "/proc/42/stat" else b"boot\n")
        monkeypatch.setattr(guardian, "_boot", ["boot"])
        found = look_up(42)
        assert found is not None
        assert (found.parent, found.group, found.session, found.start, found.alive) == (7, 8, 9, "4711@boot", True)

    @LINUX_ONLY
    @pytest.mark.parametrize(
        ("state", "threads", "alive"), [(b"Z", b"1", False), (b"Z", b"2", True), (b"X", b"1", False)]
    )
    def test_a_zombie_lives_as_long_as_it_has_threads(self, monkeypatch, state, threads, alive):
        line = b"42 (x) " + b" ".join([state, b"7", b"8", b"9", *[b"0"] * 13, threads, b"0", b"4711"])
        monkeypatch.setattr(guardian, "_read_file", lambda _: line)
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
                found = [row.pid for row in guardian.family(os.getpid())]
                assert found.index(process.pid) < found.index(sleeper)
                assert [row.pid for row in guardian.family(process.pid)] == [sleeper]
                assert guardian.family(sleeper) == []
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
        monkeypatch.setattr(guardian, "LINUX", False)
        monkeypatch.setattr(guardian, "look_up", lambda pid: found)
        found: ProcessRow | None = row(os.getppid(), 1)
        owner = OwnerProcess(os.getppid())
        assert owner.handle == -1
        assert not owner.is_gone()
        found = None
        owner._look_at = 0.0  # the answer may be as old as OWNER_S
        assert owner.is_gone()


class TestLog:
    def log(self, path: Path, head: int = 100, tail: int = 4096) -> BoundedLog:
        return BoundedLog(os.fsencode(path), head, tail)

    def test_what_fits_is_kept_whole(self, tmp_path):
        path = tmp_path / "log"
        path.write_bytes(b"before\n")
        log = self.log(path)
        log.write(b"one\n")
        log.write(b"two\n")
        log.close()
        assert path.read_bytes() == b"before\none\ntwo\n"
        assert (log.taken, log.dropped, log.errno) == (8, 0, 0)

    def test_of_more_the_head_and_the_tail_are_kept(self, tmp_path):
        path = tmp_path / "log"
        lines = [b"line %06d\n" % number for number in range(5000)]
        log = self.log(path)
        for line in lines:
            log.write(line)
            assert path.stat().st_size <= 100 + log.NOTE_BYTES + 2 * 4096 + len(line)
        log.close()
        text = path.read_bytes()
        assert text.startswith(b"".join(lines)[:100])
        assert text.endswith(b"".join(lines[-300:]))
        assert log.NOTE % log.dropped in text
        assert len(text) == 100 + log.NOTE_BYTES + (log.taken - log.dropped - 100)
        behind = text[100 + log.NOTE_BYTES :]
        assert behind.startswith(b"line "), "the tail begins with a whole line"

    def test_a_full_disk_is_noted_and_no_error(self, tmp_path, monkeypatch):
        path = tmp_path / "log"
        log = self.log(path)
        log.write(b"kept")

        def full(*_: object) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

        with monkeypatch.context() as patched:
            patched.setattr(os, "pwrite", full)
            log.write(b"dropped")
        log.write(b" again")
        log.close()
        assert path.read_bytes() == b"kept again"
        assert (log.errno, log.taken, log.dropped) == (errno.ENOSPC, 17, 7)


class TestFrames:
    def test_a_frame_arrives_as_it_was_sent(self):
        here, there = socket.socketpair()
        with here, there:
            send(here.fileno(), {"argv": [b"a", b"b"], "n": 3, "none": None})
            send(here.fileno(), {})
            assert receive(there.fileno()) == {"argv": [b"a", b"b"], "n": 3, "none": None}
            assert receive(there.fileno()) == {}

    def test_a_frame_in_pieces_is_put_together(self):
        reading, writing = os.pipe()
        data = marshal.dumps({"x": b"y" * 1000})
        whole = len(data).to_bytes(4, "big") + data

        def write() -> None:
            for at in range(0, len(whole), 7):
                os.write(writing, whole[at : at + 7])
            os.close(writing)

        writer = threading.Thread(target=write)
        writer.start()
        assert receive(reading) == {"x": b"y" * 1000}
        writer.join()
        with pytest.raises(EOFError):
            receive(reading)
        os.close(reading)

    def test_an_owner_that_is_gone_is_no_error(self):
        here, there = socket.socketpair()
        with here:
            there.close()
            send(here.fileno(), {"x": 1})
        with pytest.raises(OSError, match="Bad file descriptor"):
            send(here.fileno(), {"x": 1})


class TestPrograms:
    def test_a_name_is_looked_for_in_the_path_of_the_command(self, tmp_path):
        for folder in ("a", "b"):
            (tmp_path / folder).mkdir()
        (tmp_path / "a" / "tool").mkdir()
        for name, mode in (("tool", 0o755), ("text", 0o644)):
            path = tmp_path / "b" / name
            path.touch()
            path.chmod(mode)
        env = {b"PATH": os.fsencode(f"{tmp_path / 'a'}:{tmp_path / 'b'}")}
        assert find(b"tool", env) == os.fsencode(tmp_path / "b" / "tool"), "a folder is no program"
        assert find(b"none", env) == b"none"
        assert find(b"./tool", env) == b"./tool"
        if os.getuid():
            assert find(b"text", env) == b"text"

    def test_an_undo_command_runs_to_its_end(self, tmp_path):
        mark = tmp_path / "undone"
        undo([b"sh", b"-c", b'echo done > "$MARK"'], {b"PATH": b"/bin:/usr/bin", b"MARK": os.fsencode(mark)})
        assert mark.read_text() == "done\n"

    def test_an_undo_command_that_cannot_start_is_no_error(self):
        undo([b"/no/such/program"], {})

    def test_an_undo_command_has_an_end(self, monkeypatch):
        monkeypatch.setattr(guardian, "UNDOING_S", 0.1)
        begin = time.monotonic()
        undo([b"sleep", b"60"], {b"PATH": b"/bin:/usr/bin"})
        assert time.monotonic() - begin < 30


class TestRecord:
    def test_it_names_the_guardian_and_then_the_command(self, tmp_path):
        path = tmp_path / "record"
        record = ProcessRecord(os.fsencode(path), row(7, 1))
        assert path.read_text() == "7 7@boot\n"
        record.add_command(row(8, 7))
        assert path.read_text() == "7 7@boot\n8 8@boot\n"
        assert [each.name for each in tmp_path.iterdir()] == ["record"]
        record.remove()
        assert not path.exists()

    def test_a_process_that_has_ended_before_is_left_out(self, tmp_path):
        record = ProcessRecord(os.fsencode(tmp_path / "record"), None)
        record.add_command(None)
        assert (tmp_path / "record").read_text() == ""
        (tmp_path / "record").unlink()
        record.remove()


class TestOomKills:
    def test_a_kill_is_seen_once(self, tmp_path):
        path = tmp_path / "memory.events"
        path.write_text("low 0\noom 1\noom_kill 3\noom_group_kill 0\n")
        counter = OomKillCounter([os.fsencode(path), b"/no/such/file"])
        counter.begin()
        assert not counter.has_killed()
        path.write_text("low 0\noom 1\noom_kill 4\n")
        assert counter.has_killed()
        assert not counter.has_killed()

    def test_a_fresh_count_is_not_taken_again(self, tmp_path, monkeypatch):
        path = tmp_path / "vmstat"
        path.write_text("oom_kill 1\n")
        counter = OomKillCounter([os.fsencode(path)])
        counter.begin()
        path.write_text("oom_kill 2\n")
        counter.begin()
        assert counter.has_killed(), "the kill came within the second for which a count is good"
        monkeypatch.setattr(counter, "FRESH_S", 0.0)
        path.write_text("oom_kill 3\n")
        counter.begin()
        assert not counter.has_killed()

    def test_without_files_no_kill_is_seen(self):
        counter = OomKillCounter([])
        counter.begin()
        assert not counter.has_killed()
