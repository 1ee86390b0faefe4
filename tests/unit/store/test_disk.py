"""Chunks in files: all or none, private memory, full disks, holes."""

import errno
import itertools
import os

import numpy as np
import pytest

from weft.model.chunks import ChunkRef, Tier
from weft.model.errors import CapacityError, DiskFullError, NotFoundError
from weft.store import codec, disk, libc, tiers
from weft.store.disk import ChunkFiles, FileSystems


def encoded(n):
    return [codec.encode(np.arange(i)) for i in range(n)]


def test_a_batch_shares_a_file_and_large_chunks_have_their_own(tmp_path):
    values = [np.arange(n) for n in (3, 200_000, 5, 20_000)]
    refs = ChunkFiles(tmp_path).write([codec.encode(value) for value in values])
    assert [codec.decode(tiers.read(ref)).tolist() for ref in refs] == [value.tolist() for value in values]
    assert refs[0].location == refs[2].location == refs[3].location != refs[1].location
    assert refs[3].offset % codec.PAGE == 0
    assert len(list(tmp_path.iterdir())) == 2
    assert {ref.tier for ref in refs} == {Tier.DISK}


def test_more_pieces_than_one_call_takes(tmp_path):
    refs = ChunkFiles(tmp_path, durable=True).write(encoded(1500))
    assert codec.decode(tiers.read(refs[1499])).tolist() == list(range(1499))
    assert codec.decode(tiers.read(refs[0])).tolist() == []


def test_short_writes_are_continued(tmp_path):
    lengths = itertools.cycle((1, 2, 30, 0, 500))

    def short(fd, pieces):
        return os.write(fd, b"".join(pieces)[: next(lengths)])

    refs = ChunkFiles(tmp_path, writev=short).write(encoded(4))
    assert codec.decode(tiers.read(refs[3])).tolist() == list(range(3))


@pytest.mark.parametrize("room", [0, 10, 300_000, 1_700_000])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_leaves_nothing_and_names_folder_and_bytes(tmp_path, full_after, room, code):
    chunks = [codec.encode(np.zeros(200_000)), codec.encode(np.zeros(50_000))]
    needed = sum(chunk.nbytes for chunk in chunks)
    with pytest.raises(DiskFullError) as caught:
        ChunkFiles(tmp_path, writev=full_after(room, code)).write(chunks)
    assert str(tmp_path) in str(caught.value)
    assert f"{needed:,} bytes" in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_a_broken_disk_is_told_apart_from_a_full_one(tmp_path, full_after):
    with pytest.raises(CapacityError, match="cannot write") as caught:
        ChunkFiles(tmp_path, writev=full_after(0, errno.EIO)).write(encoded(2))
    assert not isinstance(caught.value, DiskFullError)
    with pytest.raises(CapacityError, match="cannot write"):
        ChunkFiles(tmp_path / "missing").write(encoded(2))


def test_a_disk_that_is_really_full(tiny_tmpfs):
    files = ChunkFiles(tiny_tmpfs)
    first = files.write([codec.encode(np.zeros(64_000))])
    with pytest.raises(DiskFullError):
        files.write([codec.encode(np.zeros(128_000))])
    assert [str(path) for path in tiny_tmpfs.iterdir()] == [first[0].location]
    files.write([codec.encode(np.zeros(32_000))])


def test_what_is_read_is_private(tmp_path):
    (ref,) = ChunkFiles(tmp_path).write([codec.encode(np.arange(20_000))])
    array = codec.decode(tiers.read(ref))
    array[:] = 0
    assert codec.decode(tiers.read(ref)).sum() > 0


def test_lost_and_cut_files(tmp_path):
    (ref,) = ChunkFiles(tmp_path).write([codec.encode(np.arange(20_000))])
    os.truncate(ref.location, 5000)
    with pytest.raises(NotFoundError, match="ends before"):
        tiers.read(ref)
    os.unlink(ref.location)
    with pytest.raises(NotFoundError, match="lost"):
        tiers.read(ref)
    with pytest.raises(NotFoundError):
        tiers.read_part(ChunkRef(Tier.DISK, ref.location, 0, 100, 2), 0)


def test_a_part_is_read_alone(tmp_path):
    pieces = [np.full(10_000, i) for i in range(5)]
    (ref,) = ChunkFiles(tmp_path).write([codec.encode_parts(pieces)])
    assert ref.parts == 5
    piece = tiers.read_part(ref, 3)
    assert piece is not None
    assert (codec.decode(piece) == 3).all()


@pytest.mark.skipif(not libc.CAN_PUNCH, reason="no holes on this system")
def test_holes_give_back_whole_pages(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"x" * 100 * codec.PAGE)
    if not disk.punch(str(path), *disk.interior(100, 50 * codec.PAGE)):
        pytest.skip("no holes on this file system")
    data = path.read_bytes()
    assert len(data) == 100 * codec.PAGE
    assert data.count(b"\0") == 49 * codec.PAGE
    assert data[: codec.PAGE] == b"x" * codec.PAGE
    assert path.stat().st_blocks * 512 <= 52 * codec.PAGE


def test_interior():
    assert disk.interior(0, 4096) == (0, 4096)
    assert disk.interior(1, 4096)[1] == 0
    assert disk.interior(1, 8191) == (4096, 4096)
    assert disk.interior(5000, 10)[1] == 0
    assert not disk.punch("/nonexistent/file", 0, 4096)


class TestPaths:
    """Paths that are made durable one by one."""

    @pytest.fixture
    def synced(self, monkeypatch) -> list[str]:
        synced: list[str] = []
        monkeypatch.setattr(disk, "sync_file", lambda fd: synced.append(os.readlink(f"/proc/self/fd/{fd}")))
        return synced

    def test_files_folders_and_names_are_synced(self, tmp_path, synced):
        (tmp_path / "folder" / "below").mkdir(parents=True)
        for name in ("file", "folder/a", "folder/below/b", "elsewhere"):
            (tmp_path / name).touch()
        (tmp_path / "links").mkdir()
        (tmp_path / "links" / "link").symlink_to(tmp_path / "elsewhere")
        os.mkfifo(tmp_path / "folder" / "pipe")
        paths = [str(tmp_path / name) for name in ("file", "folder", "links/link", "missing")]
        assert disk.sync_paths(paths)
        names = ["file", "folder", "folder/a", "folder/below", "folder/below/b", "elsewhere", "links"]
        assert sorted(synced) == sorted([str(tmp_path), *(str(tmp_path / name) for name in names)])
        assert synced.index(str(tmp_path)) > synced.index(str(tmp_path / "file")), "a file before its name"

    def test_of_too_many_none_is_synced(self, tmp_path, synced):
        for number in range(10):
            (tmp_path / str(number)).touch()
        assert not disk.sync_paths([str(tmp_path)], most=10)
        assert not disk.sync_paths([str(tmp_path / str(number)) for number in range(10)], most=10)
        assert synced == []

    def test_the_real_call_is_taken(self, tmp_path):
        (tmp_path / "file").write_text("something")
        assert disk.sync_paths([str(tmp_path / "file")])


class TestFileSystems:
    def test_folders_of_one_file_system_are_flushed_once(self, tmp_path):
        (tmp_path / "below").mkdir()
        flushed: list[int] = []
        files = FileSystems([tmp_path, tmp_path / "below"], flush=flushed.append)
        files.sync()
        assert len(flushed) == 1
        files.close()
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(flushed[0])

    def test_another_file_system_is_flushed_too(self, tmp_path):
        flushed: list[int] = []
        files = FileSystems([tmp_path, "/proc"], flush=flushed.append)
        files.sync()
        files.close()
        assert len(flushed) == 2

    def test_the_real_call_is_taken(self, tmp_path):
        (tmp_path / "file").write_text("something")
        files = FileSystems([tmp_path])
        files.sync()
        files.close()

    def test_a_bad_descriptor_is_an_error(self, tmp_path):
        fd = os.open(tmp_path, os.O_RDONLY)
        os.close(fd)
        with pytest.raises(OSError, match="Bad file descriptor"):
            libc.flush_file_system(fd)

    def test_a_folder_that_is_not_there_is_an_error(self, tmp_path):
        with pytest.raises(FileNotFoundError):
            FileSystems([tmp_path, tmp_path / "missing"])
