"""The parts of a guardian that need no command: frames, programs, records, counters."""

import marshal
import os
import socket
import threading
import time

import pytest

from weft.worker import guardian
from weft.worker.command_start import find
from weft.worker.command_watch import OomKillCounter
from weft.worker.guardian import ProcessRecord, receive, send, undo
from weft.worker.process_table import ProcessRow


def row(pid: int, parent: int) -> ProcessRow:
    return ProcessRow(pid, parent, pid, pid, f"{pid}@boot", alive=True)


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
        undo([b"sleep", b"600"], {b"PATH": b"/bin:/usr/bin"})
        assert time.monotonic() - begin < 600


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
