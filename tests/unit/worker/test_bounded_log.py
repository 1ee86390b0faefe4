"""The bounded log of a command."""

import errno
import os
from pathlib import Path

from weft.worker.bounded_log import BoundedLog


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
