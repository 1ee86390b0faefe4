import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.unit.parties.pair import NOW, SetClock
from weft.model.errors import UnreadableError
from weft.parties.audit import AuditLog, read_audit, verify_audit


@pytest.fixture
def path(tmp_path):
    return tmp_path / "audit.jsonl"


@pytest.fixture
def log(path):
    log = AuditLog(path, "9999", SetClock())
    yield log
    log.close()


def filled(log: AuditLog, count: int = 5) -> None:
    for number in range(count):
        log.append("accepted", peer="10000", path="/echo", message=str(number))


def test_records_tell_who_asked_for_what(log, path):
    log.append("accepted", peer="10000", path="/echo", message="a")
    log.append("refused", peer="10000", path="/other", message="b", reason="no such path")
    first, second = read_audit(path)
    assert (first.seq, first.time, first.party, first.peer, first.decision) == (1, NOW, "9999", "10000", "accepted")
    assert (second.seq, second.reason, second.previous) == (2, "no such path", first.hash)
    assert verify_audit(path) is None


def test_a_log_that_is_missing_or_empty_is_whole(log, path, tmp_path):
    assert verify_audit(path) is None
    assert verify_audit(tmp_path / "none") is None
    assert list(read_audit(path)) == []


@pytest.mark.parametrize("at", range(5))
@pytest.mark.parametrize(
    ("name", "value"), [("peer", "666"), ("decision", "refused"), ("time", 1.0), ("hash", "0" * 64), ("more", 1)]
)
def test_a_changed_line_is_found(log, path, at, name, value):
    filled(log)
    lines = path.read_bytes().splitlines()
    lines[at] = json.dumps({**json.loads(lines[at]), name: value}, separators=(",", ":")).encode()
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    assert verify_audit(path) == at + 1


@pytest.mark.parametrize("at", range(4))
def test_a_removed_line_is_found_at_the_next(log, path, at):
    filled(log)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:at] + lines[at + 1 :]))
    assert verify_audit(path) == at + 1


def test_an_inserted_a_repeated_and_a_moved_line_are_found(log, path):
    filled(log)
    lines = path.read_bytes().splitlines(keepends=True)
    for changed, broken in (
        ([lines[0], *lines], 2),
        ([lines[1], lines[0], *lines[2:]], 1),
        ([*lines[:2], b"{}\n", *lines[2:]], 3),
    ):
        path.write_bytes(b"".join(changed))
        assert verify_audit(path) == broken


def test_it_goes_on_after_a_restart(log, path):
    filled(log, 2)
    again = AuditLog(path, "9999", SetClock())
    again.append("accepted")
    again.close()
    assert [one.seq for one in read_audit(path)] == [1, 2, 3]
    assert verify_audit(path) is None


@pytest.mark.parametrize("kept", [1, 100, -1])
def test_a_line_that_was_cut_off_is_removed_and_told(log, path, kept):
    """The writer was killed in the middle of a line."""
    filled(log, 2)
    whole = path.read_bytes()
    filled(log, 1)
    line = path.read_bytes()[len(whole) :]
    path.write_bytes(whole + line[:kept])
    assert verify_audit(path) is None
    assert len(list(read_audit(path))) == 2
    again = AuditLog(path, "9999", SetClock())
    again.append("accepted", peer="3")
    again.close()
    note, last = list(read_audit(path))[2:]
    assert (note.decision, note.seq) == ("note", 3)
    assert f"cut {len(line[:kept])} bytes" in note.reason
    assert (last.peer, last.seq) == ("3", 4)
    assert verify_audit(path) is None


def test_a_first_line_that_was_cut_off_is_removed(path):
    path.write_bytes(b'{"seq":1')
    AuditLog(path, "9999", SetClock()).close()
    assert [one.seq for one in read_audit(path)] == [1]
    assert verify_audit(path) is None


def test_a_log_with_a_foreign_last_line_is_not_continued(log, path):
    filled(log)
    with path.open("ab") as file:
        file.write(b"words\n")
    with pytest.raises(UnreadableError, match="last line"):
        log.append("accepted")
    with pytest.raises(UnreadableError, match="line 6"):
        list(read_audit(path))
    assert verify_audit(path) == 6


def test_a_damaged_line_among_recent_ones_is_an_error(log, path):
    filled(log, 3)
    path.write_bytes(path.read_bytes().replace(b'"seq":2', b'"seq":x'))
    with pytest.raises(UnreadableError, match="is damaged"):
        list(log.recent(0))


def test_several_writers_make_one_chain(path):
    """The command line writes beside the server."""
    logs = [AuditLog(path, "9999", SetClock()) for _ in range(3)]
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda at: filled(logs[at % 3], 20), range(6)))
    for log in logs:
        log.close()
    assert verify_audit(path) is None
    assert [one.seq for one in read_audit(path)] == list(range(1, 121))


def test_long_words_of_strangers_are_cut(log, path):
    log.append("refused", peer="p" * 10_000, path="/" * 10_000, message="m" * 10_000, reason="r" * 10_000)
    assert path.stat().st_size < 2000


def test_recent_records_come_newest_first(path):
    clock = SetClock(0.0)
    log = AuditLog(path, "9999", clock)
    assert list(log.recent(0)) == []
    for second in range(1000):  # several blocks
        clock.at = float(second)
        log.append("accepted", message=str(second), sent=second + 0.5)
    for since in (0, 1, 500, 998.5, 999, 1000):
        expected = [second for second in range(999, -1, -1) if second >= since]
        assert [(one.time, one.sent) for one in log.recent(since)] == [(at, at + 0.5) for at in expected]
    log.close()
