"""Values of durable runs in files: what was put is found, what does not count is not, and what nobody wants goes."""

import errno
import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from weft.model.chunks import ChunkRef
from weft.model.errors import DiskFullError, ProgramError
from weft.store import codec, tiers
from weft.store.outputs import OWN_FILE, Outputs
from weft.store.rows import as_row


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "values"


def value(cell: Any) -> Any:
    return codec.decode(tiers.read(cell)) if type(cell) is ChunkRef else cell


def found(folder: Path, vertex: str, n: int, taken: set[int] | None = None) -> dict[int, Any]:
    outputs = Outputs(folder)
    outputs.find(taken)
    rows = outputs.cells(vertex, range(n))
    return {lo + at: value(cell) for lo, cells in rows for at, cell in enumerate(cells)}


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_what_was_put_is_found_again(folder):
    outputs = Outputs(folder)
    big = np.arange(1000)
    refs = outputs.put("a", 6, 1, 0, ["x", big, None])
    assert [ref is None for ref in refs] == [True, False, True]
    assert np.array_equal(value(refs[1]), big), "the ref is good at once"
    outputs.put("a", 6, 2, 4, [{"k": [1, 2]}])
    outputs.put("b", 1, 3, 0, [7])
    again = found(folder, "a", 6)
    assert again.keys() == {0, 1, 2, 4}
    assert (again[0], again[2], again[4]) == ("x", None, {"k": [1, 2]})
    assert np.array_equal(again[1], big)
    assert found(folder, "b", 1) == {0: 7}
    assert len(files(folder)) == 1, "small frames share a file"


def test_sparse_rows_are_found_with_their_pieces(folder):
    small, large = as_row({2: "x"}, 9, "a[0]"), as_row({0: np.arange(1000), 7: "y"}, 9, "a[1]")
    (none, ref) = Outputs(folder).put("a", 2, 1, 0, [small, large], parts=9)
    assert none is None
    outputs = Outputs(folder)
    outputs.find()
    ((_, [again, found]),) = outputs.cells("a", [0, 1])
    assert (again.returned(), found.pieces) == ({2: "x"}, ref.pieces)
    assert tiers.read_values(found, "any", 1, 9) == ["y"]


def test_pieces_can_be_read_alone(folder):
    pieces = [np.full(500, part) for part in range(3)]
    Outputs(folder).put("a", 1, 1, 0, [pieces], parts=3)
    outputs = Outputs(folder)
    outputs.find()
    ((_, [ref]),) = outputs.cells("a", [0])
    assert ref.parts == 3
    piece = tiers.read_part(ref, 2)
    assert piece is not None
    assert np.array_equal(codec.decode(piece), pieces[2])


def test_only_taken_leases_count_and_the_last_of_them_wins(folder):
    outputs = Outputs(folder)
    for lease, text in ((1, "first"), (9, "late, and not taken"), (4, "again")):
        outputs.put("a", 2, lease, 0, [text, text])
    outputs.put("a", 2, 5, 1, ["not taken"])
    assert found(folder, "a", 2, {1, 4}) == {0: "again", 1: "again"}
    assert found(folder, "a", 2, {1}) == {0: "first", 1: "first"}
    assert found(folder, "a", 2, set()) == {}
    assert found(folder, "a", 2) == {0: "late, and not taken", 1: "late, and not taken"}


def test_a_file_cut_at_any_byte_loses_its_last_frame_alone(folder):
    outputs = Outputs(folder)
    outputs.put("a", 2, 1, 0, ["whole"])
    (path,) = folder.iterdir()
    whole = path.stat().st_size
    outputs.put("a", 2, 2, 1, ["cut"])
    data = path.read_bytes()
    for size in range(whole, len(data)):
        path.write_bytes(data[:size])
        assert found(folder, "a", 2) == {0: "whole"}
    path.write_bytes(data[:whole] + bytes(len(data) - whole))
    assert found(folder, "a", 2) == {0: "whole"}
    path.write_bytes(data)
    assert found(folder, "a", 2) == {0: "whole", 1: "cut"}


def test_a_process_that_goes_on_begins_new_files(folder):
    Outputs(folder).put("a", 1, 1, 0, ["old"])
    outputs = Outputs(folder)
    outputs.put("a", 1, 1 << 40, 0, ["new"])
    assert len(files(folder)) == 2
    assert found(folder, "a", 1) == {0: "new"}


def test_a_large_frame_has_a_file_that_goes_when_it_is_freed(folder):
    outputs = Outputs(folder)
    outputs.put("a", 2, 1, 0, [bytes(OWN_FILE), bytes(OWN_FILE)])
    assert len(files(folder)) == 1
    outputs.free("a", 0, 1)
    assert len(files(folder)) == 1, "the other value is wanted"
    outputs.free("a", 1, 2)
    outputs.free("a", 0, 2)
    assert files(folder) == []


def test_what_is_made_again_takes_the_place_of_what_was_there(folder):
    outputs = Outputs(folder)
    outputs.put("a", 1, 1, 0, [bytes(OWN_FILE)])
    outputs.put("a", 1, 2, 0, [bytes(OWN_FILE + 1)])
    assert len(files(folder)) == 1
    assert len(found(folder, "a", 1)[0]) == OWN_FILE + 1


def test_settling_removes_what_does_not_count(folder):
    outputs = Outputs(folder)
    outputs.put("a", 2, 1, 0, [bytes(OWN_FILE)])
    outputs.put("a", 2, 2, 1, [bytes(OWN_FILE)])
    again = Outputs(folder)
    again.find({1})
    again.settle({"a": (2, [0])})
    assert files(folder) == ["00000000.values"]
    again.free("a", 0, 1)
    assert files(folder) == []


def test_nothing_is_freed_once_it_holds(folder):
    outputs = Outputs(folder)
    outputs.put("a", 1, 1, 0, [bytes(OWN_FILE)])
    outputs.hold()
    outputs.free("a", 0, 1)
    assert len(files(folder)) == 1


def test_a_full_disk_leaves_no_part_of_a_frame(folder, monkeypatch):
    outputs = Outputs(folder)
    outputs.put("a", 3, 1, 0, ["there"])
    write, calls = os.pwritev, []

    def fills(fd: int, buffers: Any, offset: int) -> int:
        calls.append(offset)
        if len(calls) == 1:
            return write(fd, [bytes(buffers[0])[:5]], offset)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwritev", fills)
    with pytest.raises(DiskFullError, match="no room"):
        outputs.put("a", 3, 2, 1, ["not there"])
    monkeypatch.setattr(os, "pwritev", write)
    outputs.put("a", 3, 3, 2, ["later"])
    assert found(folder, "a", 3) == {0: "there", 2: "later"}


def test_what_cannot_be_pickled_is_said_and_writes_nothing(folder):
    outputs = Outputs(folder)
    with pytest.raises(ProgramError, match="cannot leave the process"):
        outputs.put("a", 1, 1, 0, [threading.Lock()])
    assert found(folder, "a", 1) == {}


def test_a_sync_reaches_every_file_that_was_written_and_no_other(folder):
    synced: list[int] = []
    outputs = Outputs(folder, sync=lambda fd: synced.append(os.fstat(fd).st_ino))
    outputs.put("a", 3, 1, 0, ["small"])
    outputs.put("a", 3, 2, 1, [bytes(OWN_FILE)])
    outputs.sync()
    assert sorted(synced) == sorted(path.stat().st_ino for path in folder.iterdir())
    outputs.sync()
    assert len(synced) == 2
    outputs.put("a", 3, 3, 2, ["small"])
    outputs.sync()
    assert len(synced) == 3


def test_threads_put_at_once(folder):
    outputs = Outputs(folder)
    start = threading.Barrier(4)

    def put(who: int) -> None:
        start.wait()
        for at in range(50):
            outputs.put("a", 200, who * 50 + at, who * 50 + at, [(who, at)])

    threads = [threading.Thread(target=put, args=(who,)) for who in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found(folder, "a", 200) == {who * 50 + at: (who, at) for who in range(4) for at in range(50)}
