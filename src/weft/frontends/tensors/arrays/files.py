"""Arrays in files, as objects that take slices: tasks read and write parts of them on any worker."""

from __future__ import annotations

import fcntl
import mmap
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.frontends.tensors.arrays.extras import needed
from weft.frontends.tensors.sources import drop_pages, mapped
from weft.model.errors import ConflictError, NotFoundError, UnreadableError, UsageError

if TYPE_CHECKING:
    from weft.frontends.tensors.types import DType, NumpyArray

_lock = threading.Lock()


def file_path(name: str, value: object) -> str:
    """Return the absolute path that a user gives for a file. UsageError: it is no path."""
    found = os.fspath(value) if isinstance(value, str | os.PathLike) else None
    if not isinstance(found, str) or not found or "\0" in found:
        raise UsageError(f"{name} is {value!r}", hint="Give the path of a file.")
    return os.path.abspath(os.path.expanduser(found))


# ----------------------------------------------------------------------------------------------- what can be read


class NpyFile:
    """An array in a NumPy file, of which parts are read. Travels to other processes as its path.

    A file that is only read must stay as it is: a part is a copy, and a changed file raises ConflictError. A map of a
    file that was cut would end the process.
    """

    def __init__(self, path: str, writable: bool = False) -> None:
        self.path = path
        self._mode: Any = "r+" if writable else "r"
        self._mapped: NumpyArray | None = None
        array = self._array()
        self.shape, self.dtype = array.shape, array.dtype
        self._stamp = self._found()

    def _found(self) -> tuple[int, ...]:
        """Return what changes with the file: inode, bytes and time of the last change."""
        try:
            found = os.stat(self.path)
        except FileNotFoundError:
            raise NotFoundError(f"there is no file {self.path}") from None
        return found.st_ino, found.st_size, found.st_mtime_ns

    def _array(self) -> NumpyArray:
        if self._mapped is None:
            try:
                self._mapped = np.lib.format.open_memmap(self.path, mode=self._mode)
            except FileNotFoundError:
                raise NotFoundError(f"there is no file {self.path}") from None
            except ValueError as error:
                raise UnreadableError(f"{self.path} has no NumPy array: {error}", hint=_load_hint(self.path)) from None
        return self._mapped

    def __getitem__(self, index: Any) -> Any:
        if self._mode == "r" and self._found() != self._stamp:
            raise ConflictError(f"{self.path} has changed since it was loaded", hint="Load it again.")
        drop_pages(self._array())
        return np.array(self._array()[index])

    def __setitem__(self, index: Any, value: Any) -> None:
        self._array()[index] = value
        drop_pages(self._array())

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_mapped": None}  # opened at the first read, which tells what has changed


def _load_hint(path: str) -> str:
    """Return how to have the arrays of a file that has not one whose parts can be read; "" if NumPy cannot read it."""
    with open(path, "rb") as file:
        begin = file.read(6)
    if begin[:4] == b"PK\3\4":
        return "It is an archive of NumPy: wt.asarray(np.load(path)['NAME']) has an array of it, in memory as a whole."
    if begin == np.lib.format.MAGIC_PREFIX:
        return "NumPy reads it as a whole: wt.asarray(np.load(path, allow_pickle=True)), if you trust the file."
    return ""


class MappedFile:
    """A NumPy memory map, which other processes map for themselves."""

    def __init__(self, path: str, dtype: DType, offset: int, shape: tuple[int, ...], order: Any) -> None:
        self._made = (path, dtype, offset, shape, order)
        self.path = path
        self.dtype, self.shape = dtype, shape
        self._mapped: Any = None

    def __getitem__(self, index: Any) -> Any:
        if self._mapped is None:
            self._mapped = mapped(*self._made)
        drop_pages(self._mapped)
        return np.asarray(self._mapped[index])

    def __reduce__(self) -> tuple[Any, ...]:
        return MappedFile, self._made


class Hdf5Array:
    """A data set in an HDF5 file. Each read or write of a part opens the file, one at a time.

    HDF5 lets one process write at a time, and its library one thread: hence a lock of this process, and a file lock on
    the folder for other processes of Weft.
    """

    def __init__(self, path: str, dataset: str) -> None:
        self.path = path
        self.dataset = dataset
        with self._opened("r") as found:
            if isinstance(found, needed("h5py").Group):
                some = ", ".join(f"{dataset}/{name}" for name in list(found)[:10])
                raise UsageError(
                    f"{dataset} in {path} is a group of HDF5, and no data set",
                    hint=f"Name one of it with dataset=: {some}" if some else "It holds nothing.",
                )
            self.shape, self.dtype, self.chunks = tuple(found.shape), found.dtype, found.chunks

    @contextmanager
    def _opened(self, mode: str) -> Iterator[Any]:
        with opened_hdf5(self.path, mode) as file:
            if self.dataset not in file:
                some = ", ".join(list(file)[:10]) or "nothing"
                raise NotFoundError(f"{self.path} has no data set {self.dataset!r}", hint=f"It holds: {some}")
            yield file[self.dataset]

    def __getitem__(self, index: Any) -> Any:
        with self._opened("r") as found:
            return found[index]

    def __setitem__(self, index: Any, value: Any) -> None:
        with self._opened("r+") as found:
            found[index] = value

    def __reduce__(self) -> tuple[Any, ...]:
        return Hdf5Array, (self.path, self.dataset)


@contextmanager
def opened_hdf5(path: str, mode: str) -> Iterator[Any]:
    """Open an HDF5 file alone. NotFoundError: the file is missing. UnreadableError: it is another kind of file."""
    h5py = needed("h5py")
    with alone(os.path.dirname(path)):
        try:
            file = h5py.File(path, mode)
        except FileNotFoundError:
            raise NotFoundError(f"there is no file {path}") from None
        except OSError as error:
            raise UnreadableError(f"{path} cannot be opened as HDF5: {error}") from None
        with file:
            yield file


@contextmanager
def alone(folder: str) -> Iterator[None]:
    """Keep others who ask for the same out of the files of a folder, in this process and in others.

    Without a `folder`, only others of this process. NotFoundError: it is missing.
    """
    with _lock:
        if not folder:
            yield
            return
        try:
            fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise NotFoundError(f"there is no folder {folder}: {error.strerror}") from None
        try:
            with suppress(OSError):  # a file system without locks
                fcntl.flock(fd, fcntl.LOCK_EX)
            yield
        finally:
            os.close(fd)


class ZarrFolder:
    """A Zarr array in a folder, of which parts are read and written.

    ConflictError: another array was in its place at a read.

    A Zarr array keeps the shape of its opening, and reads chunks that are gone as its fill value.
    """

    def __init__(self, array: Any) -> None:
        self._array = array
        self.shape, self.dtype, self.store_path = array.shape, array.dtype, array.store_path
        self.chunks, self.shards = array.chunks, array.shards
        self._stamp = self._found()

    def _found(self) -> tuple[int, ...]:
        """Return what changes with the description of the array: inode, bytes and time of the last change."""
        folder = os.path.join(self.store_path.store.root, self.store_path.path)
        for name in ("zarr.json", ".zarray"):
            with suppress(OSError):
                found = os.stat(os.path.join(folder, name))
                return found.st_ino, found.st_size, found.st_mtime_ns
        return ()

    def __getitem__(self, index: Any) -> Any:
        found = self._found()
        if found != self._stamp:
            self._check()
            self._stamp = found
        return self._array[index]

    def __setitem__(self, index: Any, value: Any) -> None:
        self._array[index] = value

    def _check(self) -> None:
        zarr = needed("zarr")
        try:
            now = zarr.open_array(self.store_path, mode="r")
        except (FileNotFoundError, KeyError, ValueError):
            now = None
        if now is None or (now.shape, now.dtype) != (self.shape, self.dtype):
            raise ConflictError(f"{self.store_path} has changed since it was loaded", hint="Load it again.")

    def __reduce__(self) -> tuple[Any, ...]:
        return _zarr_folder, (self._array, self._stamp)


def _zarr_folder(array: Any, stamp: tuple[int, ...]) -> ZarrFolder:
    made = ZarrFolder(array)
    made._stamp = stamp
    return made


def readable(array: Any) -> Any:
    """Return an object of which tasks, also in other processes, can read parts and write those of files."""
    if type(array).__module__.partition(".")[0] == "zarr" and hasattr(array.store_path.store, "root"):
        return ZarrFolder(array)
    if isinstance(array, np.memmap) and isinstance(array.base, mmap.mmap) and array.filename is not None:
        order = "C" if array.flags.c_contiguous else "F"
        return MappedFile(os.fspath(array.filename), array.dtype, array.offset, array.shape, order)
    if type(array).__module__.partition(".")[0] == "h5py" and hasattr(array, "file"):
        path, name = array.file.filename, array.name
        array.file.flush()
        return Hdf5Array(os.path.abspath(path), name)
    return array
