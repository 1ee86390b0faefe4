"""Arrays in files: NumPy's own, HDF5 and Zarr. Tasks read and write the chunks.

HDF5 needs `pip install 'weft[hdf5]'`, Zarr `pip install 'weft[zarr]'`.
"""

from __future__ import annotations

import os
import posixpath
import secrets
import sys
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from math import ceil, prod
from operator import add
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np

from weft.frontends.tensors import blocks
from weft.frontends.tensors.arrays import chunking, computing, runners
from weft.frontends.tensors.arrays.array import Tensor
from weft.frontends.tensors.arrays.conversion import as_node
from weft.frontends.tensors.arrays.creation import from_array
from weft.frontends.tensors.arrays.executables import Watch, execute
from weft.frontends.tensors.arrays.extras import needed
from weft.frontends.tensors.arrays.files import (
    Hdf5Array,
    MappedFile,
    NpyFile,
    alone,
    file_path,
    opened_hdf5,
    readable,
)
from weft.frontends.tensors.arrays.registry import public
from weft.frontends.tensors.chunks import CHUNK_BYTES, Cut
from weft.frontends.tensors.nodes import ArrayNode, ChunkLocator, NodeInput, Read, call, walk
from weft.frontends.tensors.sources import ArraySource, stored
from weft.model.errors import ConflictError, DiskFullError, NotFoundError, UsageError
from weft.model.patterns import late_pattern
from weft.model.wording import counted, type_of
from weft.store.limits import disk_error

if TYPE_CHECKING:
    import re

    from weft.frontends.tensors.types import ArrayLike, ChunkSize
    from weft.operators.region_steps import ChunkPlace

_OF_GROUP: Final = late_pattern(r"zarr\.json|\.z(?:attrs|group|metadata)")
_OF_ARRAY: Final = late_pattern(r"zarr\.json|\.z(?:array|attrs)|c|\d+(?:\.\d+)*")
"""The names in the folder of a group of Zarr, and of an array: what describes it, and its chunks."""

# --------------------------------------------------------------------------------------------------------- reading


@public()
def load(path: Any, *, chunk_size: ChunkSize = None) -> Tensor:
    """Return the array in a `.npy` file; each task reads its part.

    NotFoundError: the file is missing. UnreadableError: the file has no array.
    """
    return from_array(NpyFile(file_path("path", path)), chunk_size)


@public("hdf5_file", also="fromhdf5")
def from_hdf5(
    path: Any, group: str | None = None, dataset: str | None = None, *, chunk_size: ChunkSize = None
) -> Tensor:
    """Return a data set of an HDF5 file, or an `h5py.Dataset`; each task reads its part.

    By default chunks are whole chunks of the file. NotFoundError: the file or data set is missing.
    """
    needed("h5py")
    if isinstance(path, str | os.PathLike):
        if not dataset:
            raise UsageError("no data set of the file is named", hint="Give dataset=.")
        found: Any = Hdf5Array(file_path("path", path), f"{group}/{dataset}" if group else dataset)
    elif hasattr(path, "dtype") and hasattr(path, "shape"):
        found = path
    else:
        raise TypeError(f"path is {type(path).__name__}: give the path of an HDF5 file, or an h5py.Dataset")
    return from_array(readable(found), _like(found) if chunk_size is None else chunk_size)


@public(also="fromzarr")
def from_zarr(
    path: Any, group: str | None = None, dataset: str | None = None, *, chunk_size: ChunkSize = None
) -> Tensor:
    """Return the Zarr array at a path or URL, in a store, or a `zarr.Array`; each task reads its part.

    By default chunks are whole chunks of the Zarr array. NotFoundError: the array is missing. UsageError: it is a
    group.
    """
    zarr = needed("zarr")
    found = path
    if not hasattr(path, "dtype"):
        inner = "/".join(part for part in (group, dataset) if part) or None
        found = _zarr_array(zarr, path, inner, "r")
    return from_array(found, _like(found) if chunk_size is None else chunk_size)


def _zarr_array(zarr: Any, path: Any, inner: str | None, mode: str) -> Any:
    """Return the Zarr array at `inner` in a place. NotFoundError: it is missing. UsageError: it is a group."""
    store = _store(path)
    try:
        return zarr.open_array(store, path=inner, mode=mode)
    except (FileNotFoundError, KeyError) as error:
        raise NotFoundError(f"there is no Zarr array{f' {inner}' if inner else ''} in {path}: {error}") from None
    except ValueError:
        try:
            members = zarr.open_group(store, path=inner, mode="r").members(max_depth=None)
            names = sorted(name for name, one in members if isinstance(one, zarr.Array))
        except (FileNotFoundError, KeyError, ValueError):
            names = None
        if names is None:
            raise
        where = f"{inner} in {path}" if inner else path
        raise UsageError(
            f"{where} is a group of Zarr, and no array",
            hint=f"Name one with dataset=: {', '.join(names)}" if names else "It has no arrays.",
        ) from None


def _store(path: Any) -> Any:
    text = os.fspath(path) if isinstance(path, os.PathLike) else path
    return text if not isinstance(text, str) or "://" in text else file_path("path", text)


def _like(array: Any) -> Any:
    """Return chunks that are whole chunks of a file, about as large as chosen chunks."""
    own = getattr(array, "shards", None) or array.chunks
    if not own or not array.shape:
        return None
    wanted = chunking.cut(array.shape, array.dtype.itemsize)
    made = []
    for size, chunk, cut in zip(array.shape, own, wanted, strict=True):
        made.append(min(max(size, 1), chunk * max(1, ceil(cut.longest / chunk))))
    while prod(made) * array.dtype.itemsize > 2 * CHUNK_BYTES and any(m > c for m, c in zip(made, own, strict=True)):
        most = max(range(len(made)), key=lambda a: made[a] / own[a])
        made[most] = own[most] * max(1, made[most] // own[most] // 2)
    return tuple(made)


# --------------------------------------------------------------------------------------------------------- writing


class _Write:
    """Writes the chunks of a grid into a target, one per task; returns a tiny value.

    It refuses second attempts, which might still write when the run has ended, and the user has the target.
    """

    once: ClassVar[bool] = True

    def __init__(self, target: Any, where: ChunkLocator) -> None:
        self.target = target
        self.where = where

    def __call__(self, place: ChunkPlace, chunk: Any) -> Any:
        _put(self.target, self.where(place.number), chunk)
        return np.zeros(place.shape, bool)

    def __reduce__(self) -> tuple[Any, ...]:
        if _only_here(self.target):
            raise UsageError(
                f"what is written into this process's memory ({type(self.target).__name__}) is part of a larger "
                "expression, which other processes compute: workers, or those that resume a durable run",
                hint="Execute what `store` or `to_zarr` returned by itself, or write into a file.",
            )
        return _Write, (self.target, self.where)


def _put(target: Any, at: ChunkPlace, chunk: Any) -> None:
    try:
        target[tuple([slice(lo, lo + n) for lo, n in zip(at.begin, at.shape, strict=True)])] = chunk
    except OSError as error:  # that of Zarr names no file
        found = disk_error(error, _location(_whole(target)))
        if not isinstance(found, DiskFullError):
            raise
        raise found from error


def _only_here(target: Any) -> bool:
    """Return whether other processes would write into copies: unless it is a file, or its class defines its pickling.

    The content of an object that is pickled by its attributes cannot be determined.
    """
    if isinstance(target, NpyFile | Hdf5Array):
        return False
    target = _whole(target)
    store = getattr(target, "store", None)
    if store is not None and type(target).__module__.partition(".")[0] == "zarr":
        names = getattr(getattr(store, "fs", None), "protocol", ())
        return "memory" in (names, *names) or isinstance(store, needed("zarr").storage.MemoryStore)
    kind = type(target)
    plain = all(
        getattr(kind, name) is getattr(object, name) for name in ("__reduce__", "__reduce_ex__", "__getstate__")
    )
    return plain or isinstance(target, np.ndarray)


class _Written:
    """Waits for all writes, and then calls `finish`."""

    def __init__(self, finish: Callable[[], None] | None) -> None:
        self.finish = finish

    def __call__(self, parts: Any) -> Any:
        if self.finish is not None:
            self.finish()
        return np.empty(0, bool)


class _Writing(Tensor):
    """An empty array: computing it writes another array into a target.

    Tasks write each chunk; if other processes may run them and the target is in memory, this process writes.
    """

    __slots__ = ("_asked", "_finish", "_source", "_target")

    def __init__(self, node: ArrayNode, source: ArrayNode, target: Any, finish: Callable[[], None] | None) -> None:
        self._source, self._target, self._finish = source, target, finish
        self._asked = False
        super().__init__(node)

    def __repr__(self) -> str:
        state = "written" if self._ready() else "nothing is written before execute()"
        return f"<write of {self._source.name}, shape={self._source.shape}, into {self._place()}, {state}>"

    def _place(self) -> str:
        target = _whole(self._target)
        return _location(target) or f"{type_of(target)} in memory"

    def __del__(self) -> None:
        if not getattr(self, "_asked", True) and not sys.is_finalizing():
            warnings.warn(
                f"nothing was written into {self._place()}: what was to write it was dropped before its execute()",
                RuntimeWarning,
                stacklevel=2,
            )

    @classmethod
    def _compute(cls, things: Sequence[Any], session: runners.Runner | None, watch: Watch) -> None:
        cls.must_compute()
        for x in things:
            x._asked = True
        _write_apart([x._target for x in things])
        found = session or runners.current()
        here = [(found.apart or found.durable) and _only_here(x._target) for x in things]
        nodes = [x._source if own else x._node for x, own in zip(things, here, strict=True)]
        for x, own, node in zip(things, here, computing.settle(nodes, found, watch), strict=True):
            x._own = x._filled(node) if own else node

    def _filled(self, node: ArrayNode) -> ArrayNode:
        """Write computed chunks, and return the node of the written target."""
        values = node.kwargs["source"].values
        for index in range(node.chunks):
            _put(self._target, node.place(index), values[index])
        done = (Cut.even(0, 1),)
        return stored([_Written(self._finish)(None)], done, np.dtype(bool))


class _Region:
    """A part of a target, which is written as a target by itself. UsageError: the slices do not fit."""

    def __init__(self, target: Any, region: Any) -> None:
        given = region if isinstance(region, tuple | list) else (region,)
        rest = [slice(None)] * (len(target.shape) - len(given))
        spans = [one if isinstance(one, slice) else None for one in (*given, *rest)]
        if len(spans) != len(target.shape) or any(one is None or one.step not in (None, 1) for one in spans):
            raise UsageError(
                f"region is {region!r} of an array of {counted(len(target.shape), 'axis', 'axes')}",
                hint="Give a slice without a step for each axis.",
            )
        self.target = target
        ends = [one.indices(n) for one, n in zip(spans, target.shape, strict=True) if one is not None]
        self.begin = tuple([lo for lo, _, _ in ends])
        self.shape = tuple([max(0, hi - lo) for lo, hi, _ in ends])
        self.dtype = target.dtype
        self.chunks = getattr(target, "shards", None) or getattr(target, "chunks", None)

    def __setitem__(self, index: tuple[slice, ...], value: Any) -> None:
        moved = tuple([slice(lo + one.start, lo + one.stop) for lo, one in zip(self.begin, index, strict=True)])
        if not self._cuts_chunks(moved):
            self.target[moved] = value
            return
        place = _location(self.target)  # the rest of such a chunk is read and written again, which others may change
        with alone(place if os.path.isdir(place) else ""):
            self.target[moved] = value

    def _cuts_chunks(self, index: tuple[slice, ...]) -> bool:
        """Return whether an index holds a part of a chunk of the target, and another write may hold the rest."""
        return self.chunks is not None and any(
            one.start % chunk or (one.stop % chunk and one.stop < size)
            for one, chunk, size in zip(index, self.chunks, self.target.shape, strict=True)
        )


def _whole(target: Any) -> Any:
    """Return the target that a region is a part of, any other one unchanged."""
    return target.target if isinstance(target, _Region) else target


def _write_apart(targets: Sequence[Any]) -> None:
    """Raise ConflictError if one run would write some elements twice, and their order would be chance."""
    places: dict[str, list[tuple[tuple[int, ...], tuple[int, ...]]]] = {}
    for target in targets:
        whole = _whole(target)
        if target.shape:
            place = _location(whole) or f"{type_of(whole)} {id(whole):#x} in memory"
            begin = target.begin if isinstance(target, _Region) else (0,) * len(target.shape)
            places.setdefault(place, []).append((begin, tuple(map(add, begin, target.shape))))
    for place, spans in places.items():
        if len({len(begin) for begin, _ in spans}) > 1:
            continue  # the array was replaced by one of other axes, which is told when it is written
        begins, ends = (np.array(bounds) for bounds in zip(*spans, strict=True))
        for at in range(1, len(spans)):
            both = (begins[:at] < ends[at]) & (begins[at] < ends[:at])
            if (found := np.flatnonzero(both.all(axis=1))).size:
                lo = np.maximum(begins[found[0]], begins[at])
                hi = np.minimum(ends[found[0]], ends[at])
                shared = ", ".join(f"{first}:{end}" for first, end in zip(lo, hi, strict=True))
                raise ConflictError(
                    f"two arrays are to be written to [{shared}] of {place} in one run",
                    hint="Write them one after another, each with an execute() of its own.",
                )


def written(x: Any, target: Any, finish: Callable[[], None] | None = None) -> Tensor:
    """Return an empty array: computing it writes `x` into an object that takes slices, chunk by chunk.

    Chunks of the array hold whole chunks of the target, so that no two tasks write to one. `finish` is called at the
    end.
    """
    node = as_node(x)
    if tuple(target.shape) != node.shape:
        raise UsageError(f"an array of shape {node.shape} does not fit into a target of shape {tuple(target.shape)}")
    own = getattr(target, "shards", None) or getattr(target, "chunks", None)
    if own and node.grid:
        begin = getattr(target, "begin", (0,) * len(node.grid))
        grid = tuple([_aligned(cut, int(chunk), lo) for cut, chunk, lo in zip(node.grid, own, begin, strict=True)])
        node = blocks.rechunk(node, grid)
    ones = tuple([Cut.even(cut.n, 1) for cut in node.grid])
    write = _Write(target, ChunkLocator(node.grid))
    parts = call(write, node, ones, np.dtype(bool), placed=True, unique=True, name="write")
    none = (Cut.even(0, 1),)
    read = [NodeInput(parts, Read.ALL)]
    last = call(_Written(finish), read, none, np.dtype(bool), unique=True, name="written")
    return _Writing(last, node, target, finish)


def _aligned(cut: Cut, chunk: int, begin: int = 0) -> Cut:
    """Return a cut near another one, with chunks that begin at chunks of a file, the first one at element `begin`."""
    if cut.n == 1 or all((begin + cut.span(i)[0]) % chunk == 0 for i in range(1, cut.n)):
        return cut
    each, first = chunk * max(1, round(cut.longest / chunk)), -begin % chunk
    rest = Cut.even(cut.size - first, each).lengths() if cut.size > first else ()
    return Cut.of([min(first, cut.size), *rest] if first else rest)


@public()
def store(sources: Any, targets: Any, *, regions: Any = None, compute: bool = True) -> Any:
    """Write arrays into targets that take slices, one each, in one run.

    `regions` are slices for the axes of the targets, those of each target or of all; other elements stay. With
    `compute=False` return an executable for it. On worker processes, tasks write into files, and this process into
    targets in its memory. UsageError: the numbers of arrays, targets and regions differ. ConflictError: an array reads
    a target, or two are to be written to the same elements of a file.
    """
    several = isinstance(sources, list | tuple)
    sources, targets = (list(sources), list(targets)) if several else ([sources], [targets])
    if len(sources) != len(targets):
        raise UsageError(
            f"{counted(len(sources), 'array')} cannot be stored into {counted(len(targets), 'target')}",
            hint="Give one target for each array.",
        )
    targets = [target if isinstance(target, np.ndarray) else readable(target) for target in targets]
    for node in map(as_node, sources):
        _reads_no_target(node, targets)
    each = regions if isinstance(regions, list) else [regions] * len(targets)
    if len(each) != len(targets):
        raise UsageError(
            f"{counted(len(each), 'region')} cannot be those of {counted(len(targets), 'target')}",
            hint="Give one region for each target, or one that is no list for all.",
        )
    placed = [
        target if region is None else _Region(target, region) for target, region in zip(targets, each, strict=True)
    ]
    made = [written(source, target) for source, target in zip(sources, placed, strict=True)]
    if compute:
        execute(made)
        return None
    return made if several else made[0]


@public()
def save(path: Any, x: ArrayLike) -> None:
    """Write an array into a `.npy` file; tasks write the parts in parallel.

    The file appears when it is complete; an earlier file stays until then. As with NumPy, a name without an ending gets
    `.npy`. NotFoundError: the folder is missing. UsageError: the path is a folder. DiskFullError: its disk has no room
    for the array.
    """
    final = file_path("path", path)
    final += "" if final.endswith(".npy") else ".npy"
    if os.path.isdir(final):
        raise UsageError(f"{final} is a folder", hint="Name a file in it.")
    node = as_node(x)
    draft = f"{final}.{secrets.token_hex(4)}.part"
    try:
        np.lib.format.open_memmap(draft, mode="w+", dtype=node.dtype, shape=node.shape)
    except FileNotFoundError:
        raise NotFoundError(f"there is no folder {os.path.dirname(final)}") from None
    try:
        _take_room(draft, final)
        # The last task renames the file, so that a resumed run, which is without this process, does so too.
        execute(written(Tensor(node), NpyFile(draft, writable=True), partial(_complete, draft, final)))
    finally:
        with suppress(FileNotFoundError):
            os.unlink(draft)


def _complete(draft: str, final: str) -> None:
    """Give a draft its name, unless an earlier attempt has done so."""
    try:
        os.replace(draft, final)
    except FileNotFoundError:
        if not os.path.exists(final):
            raise


def _take_room(draft: str, final: str) -> None:
    """Take the room of a file on its disk. DiskFullError: there is too little.

    A write to memory that is mapped to a file without room ends the process.
    """
    if not hasattr(os, "posix_fallocate"):
        return
    with open(draft, "r+b") as file:
        try:
            os.posix_fallocate(file.fileno(), 0, os.fstat(file.fileno()).st_size)
        except OSError as error:  # also of file systems that cannot take room in advance
            if isinstance(found := disk_error(error, final), DiskFullError):
                raise found from None


@public("hdf5_file", also="tohdf5")
def to_hdf5(
    path: Any,
    x: ArrayLike,
    group: str | None = None,
    dataset: str | None = None,
    *,
    overwrite: bool = False,
    **options: Any,
) -> Tensor:
    """Return an executable that writes an array into a data set of an HDF5 file.

    The data set is made at once, in chunks like those of the array; `options` are those of `h5py`'s `create_dataset`,
    such as `compression`. Tasks write to HDF5 one at a time. ConflictError: the data set exists, and `overwrite` does
    not allow to replace it, or `x` reads it, or it is a group that holds something.
    """
    h5py = needed("h5py")
    if not dataset:
        raise UsageError("the data set has no name", hint="Give dataset=.")
    where = file_path("path", path)
    name = f"{group}/{dataset}" if group else dataset
    node = as_node(x)
    if node.grid and node.size:
        options.setdefault("chunks", tuple([cut.longest for cut in node.grid]))
    with opened_hdf5(where, "a") as file:
        there = name in file
        if there:
            if not overwrite:
                raise ConflictError(f"{where} has a data set {name!r} already", hint="Give overwrite=True.")
            _not_read(node, _in_file(where, name))
            _no_group(file[name], f"{name!r} in {where}", h5py.Group)
        draft = f"{name}.{secrets.token_hex(4)}.part"
        try:
            file.create_dataset(draft, shape=node.shape, dtype=node.dtype, **options)
        except TypeError as error:
            raise UsageError(
                f"h5py makes no data set of {node.dtype} with these options ({', '.join(options)}): {error}",
                hint="HDF5 has no dates and no lengths of time: write x.astype('i8')."
                if node.dtype.kind in "mM"
                else "Options are those of create_dataset. HDF5 has text as bytes: x.astype('S').",
            ) from None
        if there:
            del file[name]
        file.move(draft, name)
    return written(Tensor(node), Hdf5Array(where, name))


@public(also="tozarr")
def to_zarr(
    path: Any,
    x: ArrayLike,
    group: str | None = None,
    dataset: str | None = None,
    *,
    overwrite: bool = False,
    region: Any = None,
    **options: Any,
) -> Tensor:
    """Return an executable that writes an array as a Zarr array: at a path, in a store, or to a `zarr.Array`.

    With `region`, slices for the axes of an existing Zarr array, it is written there; other elements stay. Else the
    Zarr array is made at once, in chunks like those of the array; `options` are those of `zarr.create_array`, such
    as `compressors`. Tasks write chunks in parallel. ConflictError: the array exists, and `overwrite` does not allow to
    replace it, or `x` reads it, or it is a group that holds something, or a folder with files that are not Zarr's.
    """
    zarr = needed("zarr")
    if isinstance(path, Tensor):
        raise UsageError(
            f"path is {path!r}", hint="Give the path or the store first, then the array: to_zarr(path, x)."
        )
    inner = "/".join(part for part in (group, dataset) if part) or None
    if region is not None:
        if overwrite or options:
            raise UsageError("region= writes into an existing array", hint="Leave overwrite= and other options out.")
        there = path if hasattr(path, "dtype") else _zarr_array(zarr, path, inner, "r+")
        _reads_no_target(as_node(x), [there])
        return written(x, _Region(there, region))
    if hasattr(path, "dtype"):
        return written(x, path)
    node = as_node(x)
    if node.grid and node.size:
        options.setdefault("chunks", tuple([cut.longest for cut in node.grid]))
    store = _store(path)
    try:
        there = zarr.open(store, path=inner, mode="r")
    except (FileNotFoundError, KeyError, NotADirectoryError):
        there = None
    if there is None:
        _no_other_files(store, inner, late_pattern(""))
    elif overwrite:
        _not_read(node, _location(there))
        _no_group(there, f"{inner} in {path}" if inner else f"{path}", zarr.Group)
        _no_other_files(store, inner, _OF_GROUP if isinstance(there, zarr.Group) else _OF_ARRAY)
    try:
        replaces = there is not None and overwrite  # Zarr would delete whatever is at the path
        target = zarr.create_array(store, name=inner, shape=node.shape, dtype=node.dtype, overwrite=replaces, **options)
    except TypeError as error:
        raise UsageError(
            f"Zarr makes no array of {node.dtype} with these options ({', '.join(options)}): {error}",
            hint="Options are those of zarr.create_array, such as compressors=.",
        ) from None
    except (FileExistsError, zarr.errors.ContainsArrayError) as error:
        raise ConflictError(f"there is a Zarr array already: {error}", hint="Give overwrite=True.") from None
    return written(Tensor(node), target)


def _no_group(there: Any, name: str, group: type) -> None:
    """Raise ConflictError if what is about to be replaced is a group that holds something."""
    if isinstance(there, group) and (held := sorted(there)):  # type: ignore[call-overload]  # its names
        more = f" and {len(held) - 3} more" if len(held) > 3 else ""
        raise ConflictError(
            f"{name} is a group with {', '.join(held[:3])}{more}, which an array would replace",
            hint="Name an array with dataset=, or delete the group first.",
        )


def _no_other_files(store: Any, inner: str | None, own: re.Pattern[str]) -> None:
    """Raise ConflictError if an array would be made where a file is, or in a folder with names that are not its own."""
    root = getattr(store, "root", store)
    if not isinstance(root, str | os.PathLike) or "://" in os.fspath(root):
        return
    place = os.path.join(root, inner or "")
    try:
        others = sorted(name for name in os.listdir(place) if not own.fullmatch(name))
    except FileNotFoundError:
        return
    except NotADirectoryError:
        raise ConflictError(f"{place} is a file, or is in one", hint="Give the path of a folder that is new.") from None
    if others:
        more = f" and {len(others) - 3} more" if len(others) > 3 else ""
        raise ConflictError(
            f"{place} is a folder with {', '.join(others[:3])}{more}, and an array has a folder of its own",
            hint=f"Give the path of a folder that is new, such as {os.path.join(place, 'x.zarr')}.",
        )


def _not_read(node: ArrayNode, location: str) -> None:
    """Raise ConflictError if an expression reads from a location that is about to be replaced."""
    for one in walk([node]):
        source = one.kwargs.get("source")
        if isinstance(source, ArraySource) and f"{_location(source.array)}/".startswith(f"{location}/"):
            raise ConflictError(
                f"the array that is to be written reads {location}, which would be gone before",
                hint="Write it elsewhere, or compute it first: x.execute().",
            )


def _reads_no_target(node: ArrayNode, targets: Sequence[Any]) -> None:
    """Raise ConflictError if an expression reads one of the targets: tasks would read what others have written."""
    read = [one.kwargs.get("source") for one in walk([node])]
    for array in [source.array for source in read if isinstance(source, ArraySource)]:
        if any(_share_values(array, target) for target in targets):
            raise ConflictError(
                "the array that is to be stored reads the target",
                hint="Store it elsewhere, or compute it first: x.execute().",
            )


def _share_values(one: Any, other: Any) -> bool:
    if one is other or (
        isinstance(one, np.ndarray) and isinstance(other, np.ndarray) and np.may_share_memory(one, other)
    ):
        return True
    place = _location(one)
    return place != "" and place == _location(other)


def _in_file(path: str, dataset: str) -> str:
    return f"{os.path.realpath(path)}/{posixpath.normpath(dataset.strip('/'))}"


def _location(array: Any) -> str:
    """Return the location of an array in a file, "" for another one."""
    if isinstance(array, Hdf5Array):
        return _in_file(array.path, array.dataset)
    if isinstance(array, NpyFile | MappedFile):
        return os.path.realpath(array.path)
    if isinstance(array, np.memmap) and array.filename is not None:
        return os.path.realpath(array.filename)
    place = getattr(array, "store_path", None)
    if place is None:
        return ""
    root = getattr(place.store, "root", None)
    return str(place) if root is None else os.path.realpath(os.path.join(root, place.path))
