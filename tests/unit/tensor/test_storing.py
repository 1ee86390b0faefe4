"""Arrays in files."""

import errno
import gc
import math
import os
import pickle
import re
import threading

import numpy as np
import pytest

import weft.tensor as wt
from weft.frontends.tensors.arrays import extras
from weft.frontends.tensors.arrays.files import MappedFile, readable
from weft.frontends.tensors.compiler import compile_nodes
from weft.model.errors import (
    ConflictError,
    DiskFullError,
    MissingExtraError,
    NotFoundError,
    ProgramError,
    TaskError,
    UnreadableError,
    UsageError,
    WeftError,
)

pytestmark = pytest.mark.slow

X = np.random.default_rng(3).random((20, 14))


@pytest.fixture
def h5py():
    return pytest.importorskip("h5py", reason="h5py is not installed: pip install 'weft[hdf5]'")


@pytest.fixture
def zarr():
    return pytest.importorskip("zarr", reason="Zarr is not installed: pip install 'weft[zarr]'")


class Noted:
    """An array that notes which parts of it are read and written."""

    def __init__(self, values, chunks=None):
        self.values, self.chunks = values, chunks
        self.shape, self.dtype = values.shape, values.dtype
        self.parts = []
        self.lock = threading.Lock()

    def __getitem__(self, index):
        with self.lock:
            self.parts.append(tuple((one.start, one.stop) for one in index))
        return self.values[index]

    def __setitem__(self, index, value):
        with self.lock:
            self.parts.append(tuple((one.start, one.stop) for one in index))
        self.values[index] = value


# ----------------------------------------------------------------------------------------------------------- NumPy


def test_a_full_disk_is_an_error_before_anything_is_written(tmp_path, monkeypatch):
    """A write to a mapped file without room ends the process, so its room is taken first."""
    wt.save(tmp_path / "x.npy", wt.ones(3))
    before = (tmp_path / "x.npy").read_bytes()
    room = 1_000_000

    def take(fd, offset, length):
        if offset + length > room:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", take)
    with pytest.raises(DiskFullError, match=f"the disk of {re.escape(str(tmp_path / 'x.npy'))} is full"):
        wt.save(tmp_path / "x.npy", wt.ones(room // 8))
    assert os.listdir(tmp_path) == ["x.npy"]
    assert (tmp_path / "x.npy").read_bytes() == before
    wt.save(tmp_path / "x.npy", wt.zeros(5))
    assert np.array_equal(np.load(tmp_path / "x.npy"), np.zeros(5))


def test_a_disk_that_is_full_in_the_middle_of_a_zarr_array_is_told_with_its_path(tmp_path, monkeypatch, zarr):
    put = zarr.Array.__setitem__

    def full(array, index, value):
        if index[0].start:
            raise OSError(errno.ENOSPC, "No space left on device")
        put(array, index, value)

    monkeypatch.setattr(zarr.Array, "__setitem__", full)
    told = f"the disk of {re.escape(str(tmp_path / 'x.zarr'))} is full\n.*Free space"
    with pytest.raises(DiskFullError, match=told), wt.Session(backend="threads", workers=2) as session:
        wt.to_zarr(tmp_path / "x.zarr", wt.ones(8, chunk_size=4)).execute(session=session)
    monkeypatch.undo()
    with wt.Session(workers=2):
        wt.to_zarr(tmp_path / "x.zarr", wt.ones(8, chunk_size=4), overwrite=True).execute()
    assert np.array_equal(zarr.open_array(tmp_path / "x.zarr")[:], np.ones(8))


@pytest.mark.parametrize("reason", [errno.EOPNOTSUPP, errno.EINVAL])
def test_a_file_system_may_take_no_room_in_advance(tmp_path, monkeypatch, reason):
    def refuse(fd, offset, length):
        raise OSError(reason, os.strerror(reason))

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    wt.save(tmp_path / "x.npy", wt.ones(5))
    assert np.array_equal(np.load(tmp_path / "x.npy"), np.ones(5))


def test_npy_files_are_read_and_written(session, tmp_path):
    wt.save(tmp_path / "x", wt.asarray(X, chunk_size=6) * 2)
    assert os.listdir(tmp_path) == ["x.npy"]
    np.testing.assert_array_equal(np.load(tmp_path / "x.npy"), X * 2)
    found = wt.load(tmp_path / "x.npy", chunk_size=7)
    np.testing.assert_array_equal((found + 1).fetch(), X * 2 + 1)
    assert found.chunks == ((7, 7, 6), (7, 7))


def test_a_failure_leaves_the_file_that_was_there(tmp_path):
    wt.save(tmp_path / "x.npy", wt.ones(3))

    def fail(chunk):
        raise ValueError("no")

    with pytest.raises(TaskError):
        wt.save(tmp_path / "x.npy", wt.zeros(3).map_chunk(fail, dtype="f8"))
    assert os.listdir(tmp_path) == ["x.npy"]
    assert np.load(tmp_path / "x.npy").tolist() == [1, 1, 1]


def test_what_numpy_reads_as_a_whole_is_told_with_what_reads_it(tmp_path):
    np.savez(tmp_path / "x.npz", a=np.arange(3))
    np.save(tmp_path / "o.npy", np.array([1, "a"], dtype=object))
    known = {"wt": wt, "np": np}
    for name, asked, wanted in (
        ("x.npz", "wt.asarray(np.load(path)['NAME'])", [0, 1, 2]),
        ("o.npy", "wt.asarray(np.load(path, allow_pickle=True))", [1, "a"]),
    ):
        with pytest.raises(UnreadableError, match="has no NumPy array") as told:
            wt.load(tmp_path / name)
        assert asked in told.value.hint
        found = eval(asked.replace("NAME", "a"), known | {"path": tmp_path / name})
        assert found.fetch().tolist() == wanted


@pytest.mark.parametrize("wrong", ["gone", "cut"])
@pytest.mark.parametrize("read", [wt.from_array, wt.asarray, lambda mapped: wt.asarray(mapped[2:])])
@pytest.mark.parametrize("backend", ["threads", "processes"])
def test_a_memory_map_whose_file_is_no_longer_there_names_the_file(tmp_path, backend, read, wrong):
    path = tmp_path / "x.npy"
    np.save(path, np.arange(1e5))
    x = read(np.load(path, mmap_mode="r")) + 1
    path.rename(tmp_path / "old.npy")
    if wrong == "cut":
        path.write_bytes((tmp_path / "old.npy").read_bytes()[:5000])
    with wt.Session(backend=backend, workers=1) as session:
        try:
            assert x.sum().fetch(session) > 0  # this process has the map
        except WeftError as error:
            told = f"{error}"
            assert f"{path}" in told
            assert "the memory map of an array needs" in told
            assert "Keep the file as it was until the array is computed." in told
            assert "importable" not in told
        else:
            assert backend == "threads"


def test_what_is_no_npy_file_is_told(tmp_path):
    (tmp_path / "x.npy").write_bytes(b"nothing")
    with pytest.raises(UnreadableError, match="has no NumPy array"):
        wt.load(tmp_path / "x.npy")
    with pytest.raises(NotFoundError, match="no file"):
        wt.load(tmp_path / "y.npy")
    with pytest.raises(NotFoundError, match="no folder"):
        wt.save(tmp_path / "none" / "y.npy", wt.ones(3))
    (tmp_path / "folder.npy").mkdir()
    with pytest.raises(UsageError, match=r"folder\.npy is a folder"):
        wt.save(tmp_path / "folder", wt.ones(3))
    with pytest.raises(UsageError, match="path is 3"):
        wt.load(3)
    with pytest.raises(UsageError, match="path of a file"):
        wt.load("a\0b")


def test_memory_maps_travel_as_their_files(session, tmp_path):
    mapped = np.memmap(tmp_path / "m", np.float64, "w+", 16, X.shape)
    mapped[:] = X
    mapped.flush()
    found = readable(mapped)
    assert isinstance(found, MappedFile)
    assert len(pickle.dumps(found)) < 1000
    np.testing.assert_array_equal(wt.from_array(mapped, chunk_size=6).fetch(), X)
    np.testing.assert_array_equal(wt.from_array(mapped[3:, ::2], chunk_size=6).fetch(), X[3:, ::2])


def test_each_task_reads_its_part():
    source = Noted(X)
    with wt.Session(workers=2):
        np.testing.assert_array_equal((wt.from_array(source, chunk_size=10) + 1).fetch(), X + 1)
    assert sorted(source.parts) == [(rows, columns) for rows in ((0, 10), (10, 20)) for columns in ((0, 10), (10, 14))]


@pytest.mark.parametrize(
    "index",
    [
        (slice(0, 10),),
        (slice(11, 20, 3), slice(4, 6)),
        (slice(None, None, -1), slice(9, 5, -2)),
        (7,),
        (-1, slice(12, None)),
        (Ellipsis, None, 3),
        (slice(3, 3),),
    ],
)
@pytest.mark.parametrize("backend", ["threads", "simple"])
def test_of_a_slice_only_the_chunks_are_read_that_it_touches(index, backend):
    source = Noted(X)
    array = source if backend == "threads" else X
    with wt.Session(workers=2):
        found = wt.from_array(array, chunk_size=((5, 6, 9), 4))[index]
        np.testing.assert_array_equal(found.fetch(), X[index])
        np.testing.assert_array_equal((found + 1)[..., ::-1].fetch(), X[index][..., ::-1] + 1)
    rows, columns = [5, 11, 20], [4, 8, 12, 14]
    read = np.zeros(X.shape, bool)
    read[tuple(one for one in index if one is not None)] = True
    for (top, _), (left, _) in source.parts:
        below, right = next(n for n in rows if n > top), next(n for n in columns if n > left)
        assert read[top:below, left:right].any() or not read.any()


def test_chunks_are_written_whole():
    target = Noted(np.zeros(X.shape), chunks=(4, 5))
    with wt.Session(workers=2):
        assert wt.store(wt.asarray(X, chunk_size=7), target) is None
    np.testing.assert_array_equal(target.values, X)
    assert all(lo % 4 == 0 and (hi % 4 == 0 or hi == 20) for (lo, hi), _ in target.parts)
    assert all(lo % 5 == 0 and (hi % 5 == 0 or hi == 14) for _, (lo, hi) in target.parts)


def test_several_are_stored_together_or_later():
    targets = [np.zeros(4), np.zeros(4)]
    with wt.Session(workers=2):
        later = wt.store([wt.ones(4), wt.ones(4) * 2], targets, compute=False)
        assert not targets[0].any()
        wt.execute(later)
    assert [one.tolist() for one in targets] == [[1] * 4, [2] * 4]
    with pytest.raises(UsageError, match=r"shape \(4,\) does not fit into a target of shape \(3,\)"):
        wt.store(wt.ones(4), np.zeros(3))

    with pytest.raises(UsageError, match="1 array cannot be stored into 2 targets"):
        wt.store([wt.ones(4)], targets)


@pytest.mark.parametrize("target", [np.zeros(X.shape), np.zeros((300, 400)), Noted(np.zeros(X.shape), (4, 5))])
def test_what_is_in_memory_is_written_from_everywhere(session, target):
    values = np.random.default_rng(4).random(target.shape)
    assert wt.store([wt.asarray(values, chunk_size=7) * 2], [target]) is None
    np.testing.assert_array_equal(getattr(target, "values", target), values * 2)


def test_memory_maps_are_written(session, tmp_path):
    target = np.memmap(tmp_path / "m", np.float64, "w+", 16, X.shape)
    wt.store(wt.asarray(X, chunk_size=7), target)
    np.testing.assert_array_equal(np.memmap(tmp_path / "m", np.float64, "r", 16, X.shape), X)


def test_an_array_in_place_of_the_path_is_told_to_come_second(tmp_path, zarr):
    for region in (None, (slice(0, 2),)):
        with pytest.raises(UsageError, match=r"then the array: to_zarr\(path, x\)"):
            wt.to_zarr(wt.ones(2), str(tmp_path / "x.zarr"), region=region)


def test_a_store_in_memory_is_written_from_everywhere(session, zarr):
    store = zarr.storage.MemoryStore()
    wt.to_zarr(store, wt.asarray(X, chunk_size=7)).execute()
    np.testing.assert_array_equal(zarr.open_array(store)[:], X)


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("kind", [">f8", ">i4", ">c16", ">M8[D]", "<f8"])
def test_zarr_arrays_keep_their_byte_order(session, zarr, tmp_path, kind, zarr_format):
    values = np.arange(6).astype(kind)
    wt.to_zarr(tmp_path / "a.zarr", wt.asarray(values, chunk_size=4), zarr_format=zarr_format).execute()
    found, x = zarr.open_array(tmp_path / "a.zarr"), wt.from_zarr(tmp_path / "a.zarr")
    assert x.dtype == found.dtype  # format 3 has the order beside the type
    assert x.fetch().dtype.newbyteorder("=") == values.dtype.newbyteorder("=")
    np.testing.assert_array_equal(found[:], values)
    np.testing.assert_array_equal(x.fetch(), values)
    np.testing.assert_array_equal(wt.equal(x, values).fetch(), np.ones(6, bool))


def test_what_is_in_memory_is_not_written_on_the_way_by_worker_processes():
    target = np.zeros(X.shape)
    with wt.Session(backend="processes", workers=1, direct=False):
        written = wt.store(wt.asarray(X), target, compute=False)
        with pytest.raises(ProgramError, match="into this process's memory"):
            wt.count_nonzero(written).fetch()
        assert not target.any()
        written.execute()
    np.testing.assert_array_equal(target, X)


def test_what_is_in_memory_is_written_in_a_durable_session(tmp_path):
    target, other = np.zeros(X.shape), np.zeros(X.shape)
    with wt.Session(durable=tmp_path / "state", workers=1, direct=False):
        wt.store(wt.asarray(X, chunk_size=7) * 2, target)
        np.testing.assert_array_equal(target, X * 2)
        written = wt.store(wt.asarray(X), other, compute=False)
        with pytest.raises(UsageError, match="those that resume a durable run") as told:
            wt.count_nonzero(written).fetch()
        assert told.value.hint.startswith("Execute what `store` or `to_zarr` returned by itself")
        written.execute()
    np.testing.assert_array_equal(other, X)


def test_masked_elements_are_refused():
    masked = np.ma.array([1, 100], mask=[False, True])
    calls = [
        lambda: wt.asarray(masked),
        lambda: wt.sum(masked),
        lambda: wt.ones(2) + masked,
        lambda: wt.from_array(masked),
    ]
    for call in calls:
        with pytest.raises(TypeError, match=r"some elements are masked.*x\.filled\(value\)"):
            call()
    assert wt.asarray(np.ma.array([1, 2])).fetch().tolist() == [1, 2]
    with pytest.raises(TaskError, match=r"elements from \(2,\) on are masked"):
        wt.from_array(Noted(np.ma.array([1, 2, 3, 4], mask=[False, False, False, True])), chunk_size=2).fetch()


def test_what_is_no_array_is_told():
    with pytest.raises(TypeError, match="array is list, without a shape and a dtype"):
        wt.from_array([1, 2])


# ------------------------------------------------------------------------------------------------------------ HDF5


@pytest.mark.parametrize("options", [{"chunk_size": 2}, {"wrong": 1}])
def test_a_data_set_that_cannot_be_made_replaces_none(tmp_path, h5py, options):
    path = tmp_path / "t.hdf5"
    wt.to_hdf5(path, wt.ones(5), dataset="a/x").execute()
    with pytest.raises(UsageError, match=f"with these options.*{next(iter(options))}"):
        wt.to_hdf5(path, wt.zeros(5), dataset="a/x", overwrite=True, **options)
    with pytest.raises(UsageError, match="no data set of <U1"):
        wt.to_hdf5(path, wt.asarray(["a", "b"]), dataset="a/x", overwrite=True)
    assert wt.from_hdf5(path, dataset="a/x").fetch().tolist() == [1] * 5
    with h5py.File(path) as file:
        assert list(file["a"]) == ["x"]


@pytest.mark.parametrize("name", ["x", "/a//x", "a"])
def test_a_data_set_that_is_read_is_not_replaced(tmp_path, h5py, name):
    path = tmp_path / "t.hdf5"
    own = "x" if name == "x" else "a/x"
    wt.to_hdf5(path, wt.ones(5), dataset=own).execute()
    x = wt.from_hdf5(path, dataset=own) + 1
    (tmp_path / "link").symlink_to(path)
    with pytest.raises(ConflictError, match=r"reads .*, which would be gone"):
        wt.to_hdf5(tmp_path / "link", x, dataset=name, overwrite=True)
    assert wt.from_hdf5(path, dataset=own).fetch().tolist() == [1] * 5
    wt.to_hdf5(path, x.execute(), dataset=own, overwrite=True).execute()
    assert wt.from_hdf5(path, dataset=own).fetch().tolist() == [2] * 5


def test_a_group_with_arrays_is_not_replaced(tmp_path, h5py, zarr):
    for name, write, read in (("t.hdf5", wt.to_hdf5, wt.from_hdf5), ("t.zarr", wt.to_zarr, wt.from_zarr)):
        path = tmp_path / name
        for place in "vwxyz":
            write(path, wt.ones(5), group="a", dataset=place).execute()
        with pytest.raises(ConflictError, match=r"a.* is a group with v, w, x and 2 more"):
            write(path, wt.zeros(3), dataset="a", overwrite=True)
        assert read(path, group="a", dataset="z").fetch().tolist() == [1] * 5
    with pytest.raises(ConflictError, match=r"t\.zarr is a group with a, which"):
        wt.to_zarr(path, wt.zeros(3), overwrite=True)


@pytest.mark.parametrize("overwrite", [True, False])
@pytest.mark.parametrize("where", [{}, {"dataset": "b"}])
def test_a_folder_with_files_of_others_is_no_place_for_a_zarr_array(tmp_path, zarr, overwrite, where):
    folder = tmp_path / where.get("dataset", "")
    folder.mkdir(exist_ok=True)
    (folder / "notes.csv").write_text("mine")
    wt.to_zarr(folder / "a.zarr", wt.ones(5)).execute()
    for given in (tmp_path, str(tmp_path), zarr.storage.LocalStore(tmp_path)):
        with pytest.raises(ConflictError, match=r"is a folder with a\.zarr, notes\.csv, and an array has") as refused:
            wt.to_zarr(given, wt.zeros(3), overwrite=overwrite, **where)
    assert str(folder / "x.zarr") in refused.value.hint
    assert sorted(os.listdir(folder)) == ["a.zarr", "notes.csv"]
    assert wt.from_zarr(folder / "a.zarr").fetch().tolist() == [1] * 5


@pytest.mark.filterwarnings("ignore:Object at c is not recognized")
@pytest.mark.parametrize("form", [2, 3])
def test_files_of_others_beside_the_chunks_of_a_zarr_array_stay(tmp_path, zarr, form):
    path = tmp_path / "a.zarr"
    for value in (1, 2):
        wt.to_zarr(path, wt.full((4, 4), value, chunk_size=2), overwrite=True, zarr_format=form).execute()
    (path / "notes.csv").write_text("mine")
    with pytest.raises(ConflictError, match=r"is a folder with notes\.csv, and an array"):
        wt.to_zarr(path, wt.zeros(3), overwrite=True)
    (path / "notes.csv").unlink()
    assert wt.from_zarr(path).fetch().tolist() == [[2] * 4] * 4
    group = tmp_path / "g.zarr"
    zarr.create_group(group)
    (group / "c").write_text("mine")
    with pytest.raises(ConflictError, match=r"is a folder with c, and an array"):
        wt.to_zarr(group, wt.zeros(3), overwrite=True)
    (group / "c").unlink()
    wt.to_zarr(group, wt.zeros(3), overwrite=True).execute()
    assert wt.from_zarr(group).shape == (3,)


@pytest.mark.parametrize("overwrite", [True, False])
def test_a_file_is_no_place_for_a_zarr_array(tmp_path, zarr, overwrite):
    (tmp_path / "notes.csv").write_text("mine")
    for where in ({}, {"dataset": "x"}):
        with pytest.raises(ConflictError, match=r"notes\.csv.* is a file, or is in one"):
            wt.to_zarr(tmp_path / "notes.csv", wt.zeros(3), overwrite=overwrite, **where)
    assert (tmp_path / "notes.csv").read_text() == "mine"


def test_hdf5_files_are_read_and_written(session, tmp_path, h5py):
    path = tmp_path / "t.hdf5"
    made = wt.to_hdf5(path, wt.asarray(X, chunk_size=7), group="a/b", dataset="x", compression="gzip")
    assert made.execute().shape == (0,)
    with h5py.File(path) as file:
        assert file["a/b/x"].chunks == (7, 7)
        assert file["a/b/x"].compression == "gzip"
        np.testing.assert_array_equal(file["a/b/x"][:], X)
    found = wt.from_hdf5(path, group="a/b", dataset="x")
    np.testing.assert_array_equal(found.fetch(), X)
    np.testing.assert_array_equal(wt.from_hdf5(path, dataset="a/b/x", chunk_size=5)[2:9].fetch(), X[2:9])


def test_an_open_data_set_is_read(session, tmp_path, h5py):
    with h5py.File(tmp_path / "t.hdf5", "w") as file:
        file["x"] = X
        if session.apart:
            file.flush()
    with h5py.File(tmp_path / "t.hdf5", "r") as file:
        np.testing.assert_array_equal(wt.from_array(file["x"], chunk_size=6).fetch(), X)
        np.testing.assert_array_equal(wt.from_hdf5(file["x"], chunk_size=6).fetch(), X)


def test_what_is_wrong_with_hdf5_is_told(tmp_path, h5py):
    path = tmp_path / "t.hdf5"
    wt.to_hdf5(path, wt.ones(3), dataset="x").execute()
    with pytest.raises(ConflictError, match="has a data set 'x' already"):
        wt.to_hdf5(path, wt.ones(3), dataset="x")
    wt.to_hdf5(path, wt.zeros(4), dataset="x", overwrite=True).execute()
    assert wt.from_hdf5(path, dataset="x").fetch().tolist() == [0] * 4
    with pytest.raises(NotFoundError, match="no data set 'y'") as told:
        wt.from_hdf5(path, dataset="y")
    assert told.value.hint == "It holds: x"
    with pytest.raises(NotFoundError, match="there is no file"):
        wt.from_hdf5(tmp_path / "none.hdf5", dataset="x")
    with pytest.raises(NotFoundError, match="there is no folder"):
        wt.from_hdf5(tmp_path / "none" / "t.hdf5", dataset="x")
    (tmp_path / "bad.hdf5").write_bytes(b"nothing")
    with pytest.raises(UnreadableError, match="cannot be opened as HDF5"):
        wt.from_hdf5(tmp_path / "bad.hdf5", dataset="x")
    with pytest.raises(UsageError, match="no data set of the file is named"):
        wt.from_hdf5(path)
    with pytest.raises(UsageError, match="has no name"):
        wt.to_hdf5(path, wt.ones(3))
    with pytest.raises(UsageError, match="no data set of datetime64") as refused:
        wt.to_hdf5(path, np.arange(3).astype("M8[D]"), dataset="d")
    assert "astype('i8')" in refused.value.hint


def test_a_group_of_hdf5_is_no_data_set(tmp_path, h5py):
    with h5py.File(tmp_path / "g.h5", "w") as file:
        file["g/x"] = X
        file.create_group("empty")
    with pytest.raises(UsageError, match=r"g in .*g\.h5 is a group of HDF5") as refused:
        wt.from_hdf5(tmp_path / "g.h5", dataset="g")
    assert refused.value.hint == "Name one of it with dataset=: g/x"
    with pytest.raises(UsageError, match="empty in") as refused:
        wt.from_hdf5(tmp_path / "g.h5", dataset="empty")
    assert refused.value.hint == "It holds nothing."


# ------------------------------------------------------------------------------------------------------------ Zarr


@pytest.mark.parametrize("size", [3, 5, 20])
def test_a_region_of_a_zarr_array_is_written(session, tmp_path, zarr, size):
    path = str(tmp_path / "x.zarr")
    wt.to_zarr(path, wt.zeros((30, 14), chunk_size=(4, 7))).execute(session)
    wanted = np.zeros((30, 14))
    for lo in (0, 3, 10):
        region = (slice(lo, lo + 20), slice(2, 13))
        wanted[region] = X[:, 2:13] + lo
        made = wt.to_zarr(path, wt.asarray(X[:, 2:13] + lo, chunk_size=size), region=region)
        made.execute(session)
        np.testing.assert_array_equal(zarr.open_array(path)[:], wanted)
    wt.to_zarr(zarr.open_array(path, mode="r+"), wt.ones((2, 14)), region=slice(28, None)).execute(session)
    assert zarr.open_array(path)[28:].sum() == 28


def test_tasks_share_no_chunk_of_a_region(tmp_path, zarr):
    path = str(tmp_path / "x.zarr")
    wt.to_zarr(path, wt.zeros(100, chunk_size=10)).execute()
    made = wt.to_zarr(path, wt.ones(50, chunk_size=7), region=(slice(13, 63),))
    assert made._source.grid[0].lengths() == (7, 10, 10, 10, 10, 3)
    made.execute()


def test_regions_that_share_chunks_lose_nothing_in_one_run(session, tmp_path, zarr):
    path, days = str(tmp_path / "days.zarr"), 31
    wt.to_zarr(path, wt.zeros((24 * days, 4), chunk_size=(100, 4))).execute(session)
    one = [
        wt.to_zarr(path, wt.full((24, 4), float(day + 1)), region=(slice(24 * day, 24 * day + 24), slice(None)))
        for day in range(days)
    ]
    wt.execute(*one, session=session)
    wanted = np.repeat(np.arange(1.0, days + 1), 24)[:, None] * np.ones(4)
    np.testing.assert_array_equal(zarr.open_array(path)[:], wanted)


def test_regions_that_share_chunks_lose_nothing_in_runs_at_once(tmp_path, zarr):
    for number in range(5):
        path = str(tmp_path / f"{number}.zarr")
        wt.to_zarr(path, wt.zeros(40, chunk_size=10)).execute()
        waits = [
            wt.execute(wt.to_zarr(path, wt.full(5, at + 1.0), region=slice(at, at + 5)), wait=False)
            for at in range(0, 40, 5)
        ]
        for one in waits:
            one.result()
        np.testing.assert_array_equal(zarr.open_array(path)[:], np.repeat(np.arange(1.0, 41, 5), 5))


def test_arrays_are_stored_in_regions_of_targets(session):
    a, b = np.zeros(20), np.zeros((6, 4))
    sources = [wt.ones(5, chunk_size=2), wt.full((6, 2), 3.0, chunk_size=4)]
    wt.store(sources, [a, b], regions=[slice(5, 10), (slice(None), slice(1, 3))])
    assert a.tolist() == [0.0] * 5 + [1.0] * 5 + [0.0] * 10
    assert b.tolist() == [[0.0, 3.0, 3.0, 0.0]] * 6
    with pytest.raises(
        ConflictError, match=r"two arrays are to be written to \[0:5\] of .*array.* in memory in one run"
    ):
        wt.store([wt.ones(20), wt.ones(5)], [a, a], regions=[None, slice(5)])
    with pytest.raises(UsageError, match="1 region cannot be those of 2 targets"):
        wt.store(sources, [a, b], regions=[slice(5)])


def test_elements_that_one_run_would_write_twice_are_told(tmp_path, zarr):
    path = str(tmp_path / "x.zarr")
    wt.to_zarr(path, wt.zeros((30, 4), chunk_size=10)).execute()
    first = wt.to_zarr(path, wt.ones((12, 4)), region=slice(12))
    second = wt.to_zarr(path, wt.ones((15, 2)), region=(slice(10, 25), slice(1, 3)))
    with pytest.raises(ConflictError, match=r"two arrays are to be written to \[10:12, 1:3\] of .*x\.zarr in one run"):
        wt.execute(first, second)
    first.execute()
    second.execute()
    wanted = np.zeros((30, 4))
    wanted[:12] = 1
    wanted[10:25, 1:3] = 1
    np.testing.assert_array_equal(zarr.open_array(path)[:], wanted)
    array = zarr.open_array(path, mode="r+")
    with pytest.raises(ConflictError, match=r"\[0:30, 0:4\] of .* in one run"):
        wt.store([wt.ones((30, 4)), wt.zeros((30, 4))], [array, array])


def test_what_is_wrong_with_a_region_is_told(tmp_path, zarr):
    path = str(tmp_path / "x.zarr")
    with pytest.raises(NotFoundError, match="no Zarr array"):
        wt.to_zarr(path, wt.ones(3), region=slice(3))
    wt.to_zarr(path, wt.zeros((4, 4))).execute()
    with pytest.raises(UsageError, match="does not fit into a target of shape"):
        wt.to_zarr(path, wt.ones((3, 3)), region=(slice(2), slice(3)))
    for region in (slice(0, 4, 2), 3, (slice(2),) * 3):
        with pytest.raises(UsageError, match="region is"):
            wt.to_zarr(path, wt.ones((2, 4)), region=region)
    with pytest.raises(UsageError, match="writes into an existing array"):
        wt.to_zarr(path, wt.ones((2, 4)), region=slice(2), overwrite=True)
    with pytest.raises(ConflictError, match="reads the target"):
        wt.to_zarr(path, wt.from_zarr(path)[:2], region=slice(2, 4))


def test_an_option_that_zarr_does_not_have_is_told(tmp_path, zarr):
    with pytest.raises(UsageError, match=r"with these options.*compressor"):
        wt.to_zarr(tmp_path / "a.zarr", wt.ones(5), compressor=None)


def test_a_zarr_array_that_is_read_is_not_replaced(tmp_path, zarr):
    path = tmp_path / "a.zarr"
    wt.to_zarr(path, wt.ones(5), group="g", dataset="x").execute()
    (tmp_path / "link.zarr").symlink_to(path)
    for name, where in ((path, {"group": "g", "dataset": "x"}), (tmp_path / "link.zarr", {"group": "g"})):
        x = wt.from_zarr(path, group="g", dataset="x") + 1
        with pytest.raises(ConflictError, match=r"reads .*, which would be gone"):
            wt.to_zarr(name, x, overwrite=True, **where)
    assert wt.from_zarr(path, group="g", dataset="x").fetch().tolist() == [1] * 5
    wt.to_zarr(path, x.execute(), group="g", dataset="x", overwrite=True).execute()
    assert wt.from_zarr(path, group="g", dataset="x").fetch().tolist() == [2] * 5


def test_zarr_arrays_are_read_and_written(session, tmp_path, zarr):
    path = tmp_path / "x.zarr"
    wt.to_zarr(path, wt.asarray(X, chunk_size=7)).execute()
    assert zarr.open_array(path).chunks == (7, 7)
    np.testing.assert_array_equal(zarr.open_array(path)[:], X)
    found = wt.from_zarr(path)
    assert all(n % 7 == 0 for axis in found.chunks for n in axis[:-1])
    np.testing.assert_array_equal(found.fetch(), X)
    total = wt.from_array(zarr.open_array(path), chunk_size=5).sum(axis=0)
    np.testing.assert_allclose(total.fetch(), X.sum(axis=0))


def test_a_zarr_array_that_is_there_is_written_in_its_chunks(session, tmp_path, zarr):
    target = zarr.create_array(tmp_path / "x.zarr", shape=X.shape, chunks=(4, 5), shards=(8, 10), dtype="f8")
    wt.to_zarr(target, wt.asarray(X, chunk_size=7) + 1).execute()
    np.testing.assert_array_equal(target[:], X + 1)


def test_what_is_dropped_before_it_is_written_is_told(tmp_path):
    targets = [np.zeros(4), np.zeros(4)]
    later = wt.store([wt.ones(4), wt.ones(4)], targets, compute=False)
    assert all("nothing is written before execute()" in repr(one) for one in later)
    later[0].execute()
    assert "written>" in repr(later[0])
    with pytest.warns(RuntimeWarning, match="nothing was written into an ndarray in memory"):
        del later
    assert (targets[0].sum(), targets[1].sum()) == (4, 0)


def test_what_could_not_be_written_is_not_told_again():
    class Full(np.ndarray):
        def __setitem__(self, *_):
            raise OSError("full")

    later = wt.store(wt.ones(4), np.zeros(4).view(Full), compute=False)
    with pytest.raises(OSError, match="full"):
        later.execute()
    del later
    gc.collect()


def test_what_is_wrong_with_zarr_is_told(tmp_path, zarr):
    path = tmp_path / "g.zarr"
    wt.to_zarr(path, wt.ones(3), group="a", dataset="x").execute()
    assert wt.from_zarr(path, group="a", dataset="x").fetch().tolist() == [1] * 3
    with pytest.raises(ConflictError, match="already"):
        wt.to_zarr(path, wt.ones(3), group="a", dataset="x")
    wt.to_zarr(path, wt.zeros(2), group="a", dataset="x", overwrite=True).execute()
    assert wt.from_zarr(path, "a", "x").shape == (2,)
    with pytest.raises(NotFoundError, match="no Zarr array none in"):
        wt.from_zarr(path, dataset="none")
    with pytest.raises(UsageError, match=r"a in .* is a group of Zarr") as refused:
        wt.from_zarr(path, group="a")
    assert refused.value.hint == "Name one with dataset=: x"
    with pytest.raises(UsageError, match="is a group of Zarr") as refused:
        wt.to_zarr(path, wt.ones(3), region=(slice(0, 3),))
    assert refused.value.hint == "Name one with dataset=: a/x"
    zarr.create_group(str(tmp_path / "empty.zarr"))
    with pytest.raises(UsageError, match="is a group of Zarr") as refused:
        wt.from_zarr(tmp_path / "empty.zarr")
    assert refused.value.hint == "It has no arrays."


@pytest.mark.parametrize(("extra", "call"), [("hdf5", wt.from_hdf5), ("zarr", wt.from_zarr)])
def test_an_extra_that_is_missing_is_named(monkeypatch, extra, call):
    def gone(name):
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr(extras, "import_module", gone)
    with pytest.raises(MissingExtraError) as told:
        call("file", dataset="x")
    assert f"weft[{extra}]" in told.value.hint


def test_nothing_is_written_a_second_time_beside_the_first(tmp_path):
    np.save(tmp_path / "x.npy", X)
    target = readable(np.load(tmp_path / "x.npy", mmap_mode="r+"))
    made = wt.store(wt.asarray(X, chunk_size=7) + 1, target, compute=False)
    vertices = compile_nodes([made.node, (wt.asarray(X, chunk_size=7) * 2).node]).graph.vertices
    assert {id: vertex.idempotent for id, vertex in vertices.items()} == {
        "array-add-write": False,
        "written": True,
        "array-multiply": True,
    }
    with pytest.warns(RuntimeWarning, match="nothing was written"):
        del made


class TestTargetThatIsRead:
    """Tasks would read what other tasks have written."""

    @pytest.fixture(params=["memory", "part", "map", "file"])
    def both(self, request, tmp_path):
        """An array, and a target with the same values."""
        values = np.arange(300_000)
        if request.param in ("memory", "part"):
            return wt.from_array(values), values if request.param == "memory" else values[:0:-1]
        np.save(tmp_path / "a.npy", values)
        target = np.load(tmp_path / "a.npy", mmap_mode="r+")
        return wt.from_array(target) if request.param == "map" else wt.load(tmp_path / "a.npy"), target

    def test_it_is_refused(self, both):
        x, target = both
        before = np.array(target)
        with pytest.raises(ConflictError, match="reads the target"):
            wt.store([wt.ones(3), x[::-1][: len(target)]], [np.zeros(3), target])
        assert np.array_equal(target, before)

    def test_a_computed_array_may_be_stored(self, both):
        x, target = both
        wanted = np.array(x[::-1][: len(target)].fetch())
        wt.store([wt.array(wanted)], [target])
        assert np.array_equal(target, wanted)


class TestFileThatChanges:
    @pytest.fixture
    def path(self, tmp_path):
        np.save(tmp_path / "a.npy", np.ones((1000, 1000)))
        return tmp_path / "a.npy"

    @pytest.mark.parametrize("shape", [(10, 10), (1000, 1000), (2000, 1000)])
    def test_it_is_told_and_ends_no_process(self, path, shape):
        x = wt.load(path)
        np.save(path, np.zeros(shape))
        with pytest.raises(WeftError, match="has changed since it was loaded"):
            x.sum().fetch()
        assert wt.load(path).sum().fetch() == 0

    def test_a_file_that_was_cut_is_told_by_any_worker(self, session, path):
        x = wt.load(path)
        os.truncate(path, 4_000_000)
        with pytest.raises(WeftError, match="has changed since it was loaded"):
            x.sum().execute(session)

    def test_a_computed_array_keeps_its_values(self, path):
        x = wt.load(path).execute()
        mapped = np.load(path, mmap_mode="r+")
        mapped[:] = 0
        mapped.flush()
        assert x.sum().fetch() == 1e6

    def test_a_file_that_is_gone_is_told(self, path):
        x = wt.load(path)
        path.unlink()
        with pytest.raises(WeftError, match="there is no file"):
            x.sum().fetch()


def test_a_zarr_array_or_data_set_that_a_shorter_one_replaced_is_refused(tmp_path):
    zarr, h5py = pytest.importorskip("zarr"), pytest.importorskip("h5py")
    path, other = str(tmp_path / "x.zarr"), str(tmp_path / "x.h5")

    def write(rows: int) -> None:
        array = zarr.create_array(path, shape=(rows, 10), chunks=(10, 10), dtype="f8", overwrite=True)
        array[:] = rows
        with h5py.File(other, "w") as file:
            file["d"] = np.ones((rows, 10))

    write(100)
    in_folder, in_file = wt.from_zarr(path), wt.from_hdf5(other, dataset="d")
    write(50)
    with pytest.raises(WeftError, match=r"x.zarr has changed since it was loaded"):
        in_folder.mean().fetch()
    with pytest.raises(WeftError, match=r"gave shape \(50, 10\) for a part of shape \(100, 10\)"):
        in_file.mean().fetch()
    write(100)
    assert in_folder.mean().fetch() == 100.0


class Wrong:
    """A source whose parts are not what it declares."""

    shape, dtype = (100, 10), np.dtype("f8")

    def __init__(self, part) -> None:
        self.part = part

    def __getitem__(self, index):
        return self.part[index]


@pytest.mark.parametrize("chunk_size", [30, -1])
def test_the_parts_of_a_source_are_checked(chunk_size):
    with pytest.raises(WeftError, match=r"the Wrong that is read gave shape"):
        wt.from_array(Wrong(np.zeros((20, 10))), chunk_size=chunk_size).mean().fetch()
    assert wt.from_array(Wrong(np.ones((100, 10), "f4")), chunk_size=chunk_size).fetch().dtype == np.float64


class LazyArray:
    """An array as dask has them: slices are lazy, and only `numpy.asarray` computes one."""

    def __init__(self, values, chunks, shape=None) -> None:
        self.values, self.chunks = values, chunks
        self.dtype, self.shape = values.dtype, shape or values.shape

    def __dask_graph__(self):
        raise AssertionError("nobody needs the graph")

    def __getitem__(self, index):
        return LazyArray(self.values[index], self.chunks)

    def __array__(self, dtype=None, copy=None):
        return np.array(self.values, dtype)

    def __array_ufunc__(self, ufunc, method, *args, **kwargs):
        return NotImplemented


@pytest.mark.parametrize("backend", ["threads", "processes"])
def test_lazy_arrays_of_other_libraries_are_computed_part_by_part(backend):
    with wt.Session(workers=2, backend=backend):
        found = wt.from_array(LazyArray(X, ((5, 15), (14,))))
        assert found.chunks == ((5, 15), (14,))
        np.testing.assert_allclose(found.sum(axis=0).fetch(), X.sum(axis=0))
        np.testing.assert_allclose((found @ found.T).fetch(), X @ X.T)
        np.testing.assert_array_equal(found[3:6].fetch(), X[3:6])
    assert wt.from_array(LazyArray(X, ((5, 15), (14,))), chunk_size=10).chunks == ((10, 10), (10, 4))


def test_lazy_arrays_of_unknown_lengths_are_told():
    with pytest.raises(ValueError, match=r"array is LazyArray .* lengths yet: give array.compute_chunk_sizes\(\)"):
        wt.from_array(LazyArray(X, ((math.nan,), (14,)), (math.nan, 14)))
