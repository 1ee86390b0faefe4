"""The interface of a store: columns of chunks, and the ways to put, read and free them.

The values of a vertex's tasks are a `Column`; the cell of task `i` is `column.values[i]`. A cell is one of

- the plain Python value (memory tier),
- a `ChunkRef` (shared memory, disk, an object or inline bytes, to be read through the store),
- `ABSENT`: not made yet, lost or freed.

A reader of very many small cells may read `column.values` itself and load through the store only cells whose type is
`ChunkRef`. All sizes are bytes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Sequence
from operator import countOf
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, final

from weft.model.chunks import ChunkRef, Tier
from weft.model.errors import ProgramError
from weft.model.wording import type_of

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from weft.store.row_index import RowIndex


@final
class _Absent:
    """The type of `ABSENT`."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "ABSENT"

    def __reduce__(self) -> str:
        return "ABSENT"  # unpickles as the one object, so that `is` works in every process

    def __bool__(self) -> bool:
        return False

    def __eq__(self, other: object) -> bool:  # lists of cells are compared without a call of the values' own methods
        return self is other

    __hash__ = object.__hash__


ABSENT: Final = _Absent()
"""The cell of a task that has no value: not made yet, lost or freed."""


class Column:
    """The values of one vertex's tasks: `values[i]` is the cell of task `i`.

    `parts` is the number of partitions when each value is in pieces, read one by one (a shuffle), else 0. `index` tells
    which rows have values of a partition (a `weft.store.row_index.RowIndex`), if that is known.
    `foresee(i)` orders cells by their next read, lower is sooner, if a reader is known.

    The other fields belong to the store: `small_count` cells of `small_bytes` bytes in all are only summed, `tracked`
    has an entry for every cell that is large or lies in a file. `plain` until a value is put that may be a reference.
    """

    __slots__ = ("foresee", "index", "key", "parts", "plain", "small_bytes", "small_count", "tracked", "values")

    def __init__(self, key: tuple[str, str], n: int, parts: int = 0) -> None:
        self.key = key
        self.values: list[Any] = [ABSENT] * n
        self.parts = parts
        self.foresee: Callable[[int], float] | None = None
        self.index: RowIndex | None = None
        self.plain = True
        self.small_count = 0
        self.small_bytes = 0
        self.tracked: dict[int, Any] = {}

    def __len__(self) -> int:
        return len(self.values)

    @property
    def readable(self) -> bool:
        """Whether each cell is known to hold the value itself."""
        return self.plain and self.small_count == len(self.values)

    def grow(self) -> None:
        """Add an empty cell at the end."""
        self.values.append(ABSENT)

    def __repr__(self) -> str:
        return f"Column({'/'.join(self.key)}, {len(self.values)} cells)"


class ChunkReader(Protocol):
    """The part of a store through which a running task reads its inputs, on any node."""

    def load(self, column: Column, index: int, *, last: bool = False) -> Any:
        """Return the value of a cell; a value outside of memory is kept in memory from now on.

        `last=True` is for a single consumer: read to private memory, neither kept nor counted. NotFoundError: the cell
        is absent, or its chunk is missing or damaged.
        """
        ...

    def load_part(self, column: Column, index: int, part: int, *, last: bool = False) -> Any:
        """Return one piece of a dense row without reading the others; errors as `load`."""
        ...

    def load_values(self, column: Column, index: int, edge: str, lo: int, hi: int, *, last: bool = False) -> list[Any]:
        """Return the values of a sparse row for partitions `lo:hi` of an edge, without reading others; errors as
        `load`.
        """
        ...


class MemoryGrant(Protocol):
    """Bytes of memory that a task may fill; return them with `release` or a `with` block."""

    nbytes: int

    def shrink(self, actual: int) -> None:
        """Return all but `actual` bytes; no effect if no more than that is held."""
        ...

    def grow(self, extra: int) -> None:
        """Take `extra` bytes more without waiting; other chunks are spilled. DiskFullError: the spill tier is full."""
        ...

    def release(self) -> None:
        """Return everything. A second call does nothing."""
        ...

    def __enter__(self) -> MemoryGrant: ...

    def __exit__(self, *_: object) -> None: ...


class MemoryQuota(Protocol):
    """The memory budget of a node, which grants memory to tasks. Sizes are bytes."""

    @property
    def budget(self) -> int:
        """Bytes for chunks and running tasks together."""
        ...

    @property
    def ceiling(self) -> int:
        """The limit in bytes for the whole process."""
        ...

    @property
    def outside(self) -> int:
        """Bytes of chunks that lie on disk or in objects."""
        ...

    def reserve(
        self, owner: str, nbytes: int, cancelled: Callable[[], bool] | None = None, *, priority: float = 0
    ) -> MemoryGrant:
        """Wait until `nbytes` are free for the task `owner`, in one batch, and take them.

        CapacityError: more than the whole budget. RunCancelledError: `cancelled()` became true. DiskFullError: the
        spill tier is full.
        """
        ...

    def try_reserve(self, owner: str, nbytes: int) -> MemoryGrant | None:
        """Take `nbytes` if they are free now and no task waits; never waits nor spills."""
        ...

    def claim(self, owner: str, nbytes: int) -> MemoryGrant:
        """Take `nbytes` without waiting, over the budget if necessary: for a task that other tasks wait for."""
        ...

    def wake(self) -> None:
        """Make every waiting `reserve` check its `cancelled` now."""
        ...


class StoreStats(NamedTuple):
    """Sums over the content of a store, in bytes unless named otherwise."""

    budget: int
    used: int
    reserved: int
    memory: int
    shm: int
    disk: int
    """On disk, or in objects."""
    evictable: int
    pinned_chunks: int
    waiting_tasks: int
    spilled: int
    """All bytes ever written out."""
    restored: int
    """All bytes ever read back."""


class ChunkPin(Protocol):
    """A hold on some chunks, which stay in place until `release`."""

    def release(self) -> None:
        """Release the chunks. A second call does nothing."""
        ...


class ChunkStore(ChunkReader, Protocol):
    """Chunks of one node. Every method may be called from any thread."""

    @property
    def memory(self) -> MemoryQuota:
        """The memory that chunks and running tasks share."""
        ...

    def column(self, key: tuple[str, str], n: int, parts: int = 0) -> Column:
        """Return the column of `key` (job id, vertex id) with `n` cells; a missing one is created empty.

        `parts` > 0: every value is in that many pieces. A column that holds values keeps its length: another `n`
        raises InternalError.
        """
        ...

    def drop(self, key: tuple[str, str]) -> None:
        """Free all cells of a column and remove it; no effect if there is none."""
        ...

    def take_cells(self, key: tuple[str, str], at: Sequence[int], new: tuple[str, str]) -> Column:
        """Return a new column with the cells `at` of column `key`; the old column is dropped with all other cells.

        Chunks stay in place. The old column must not be in use. NotFoundError: there is none.
        """
        ...

    def put_range(
        self,
        column: Column,
        lo: int,
        values: Sequence[Any],
        total_bytes: int | None = None,
        *,
        within: MemoryGrant | None = None,
    ) -> int:
        """Put `values` into the cells from `lo` on and return their bytes; plain values and ChunkRefs may be mixed, old
        cells are freed.

        `total_bytes` is the size of small values if the caller has it. Rows put into a column with `parts` belong to
        the store from now on. With `within`, the bytes come out of that grant, so that they are not counted twice.
        DiskFullError: no room in memory nor outside; the cells are then absent.
        """
        ...

    def free_range(
        self, column: Column, lo: int, hi: int, defer: Callable[[Callable[[], None]], None] | None = None
    ) -> None:
        """Make the cells `lo:hi` absent and free their content; absent cells are skipped.

        Removing large values and files is slow: with `defer` that part is handed over, to be called soon.
        """
        ...

    def free_parts(self, column: Column, part_lo: int, part_hi: int, lo: int, hi: int) -> None:
        """Free the pieces `part_lo:part_hi` of the cells `lo:hi`; files get holes where the system supports them.

        A cell whose pieces have all been freed becomes absent.
        """
        ...

    def add_copy(self, column: Column, index: int, ref: ChunkRef) -> None:
        """Record a file (a durable output, say) with the value of a cell: the value can leave memory without I/O."""
        ...

    def retain(self, refs: Iterable[ChunkRef]) -> None:
        """Keep the locations of chunks outside of cells until `release`; their bytes are not counted."""
        ...

    def release(self, refs: Iterable[ChunkRef]) -> None:
        """Undo `retain`: a location without other references is removed."""
        ...

    def discard(self, refs: Iterable[ChunkRef]) -> None:
        """Remove the locations of chunks that were never put and that no cell refers to."""
        ...

    def holding(self, refs: Iterable[ChunkRef]) -> AbstractContextManager[None]:
        """Keep locations alive while their chunks are put one by one.

        The chunks of one location belong into one `put_range`. If they go into several columns, put them inside this
        block; otherwise the location is removed with the first freed chunks. Chunks not put by the end of the block are
        removed.
        """
        ...

    def pin(self, column: Column, indexes: Iterable[int]) -> ChunkPin:
        """Pin the chunks of some cells: not evicted, and if freed, still readable until the release.

        Small and absent cells need no pin and are skipped.
        """
        ...

    def share(self, column: Column, indexes: Iterable[int]) -> list[Any]:
        """Return, for each cell, a form that another process can read: a plain small value or a ChunkRef.

        Large values in memory move to shared memory; pin the cells first, as the references hold only while they are
        pinned. NotFoundError: a cell is absent. ProgramError: a value cannot be pickled. DiskFullError: no room.
        """
        ...

    def reclaim(self, prefix: str) -> int:
        """Remove the chunks of a dead writer (by the prefix of its SegmentWriter) that no cell refers to; return their
        number.

        Call it after all chunks reported by the writer are put.
        """
        ...

    def stats(self) -> StoreStats:
        """Return sums over the current content."""
        ...

    def close(self) -> None:
        """Drop all chunks and remove all files; tasks that wait for memory get RunCancelledError.

        A second call does nothing.
        """
        ...


# ------------------------------------------------------------------------------------------------------------- sizes

SMALL: Final = 1024
"""Values below this many bytes are only summed: never evicted one by one, no cost per cell."""

OTHER: Final = 64
"""The assumed size of a value of unknown type."""

FIXED: Final[dict[type, int]] = {type(None): 0, bool: 0, int: 32, float: 24, complex: 32}
"""Bytes of the types whose values are all of one size; numpy's scalars are added when first seen."""

_LEARNT_MAX = 4096  # a program that makes types in a loop must not fill the table


def _of_items(value: Any) -> int:
    fixed = fixed_size(value)
    return 56 + 8 * len(value) + (sum(map(_shallow, value)) if fixed is None else fixed)


def _of_mapping(value: Any) -> int:
    return 64 + 100 * len(value) + sum(map(_shallow, value.values())) + sum(map(_shallow, value))


def _of_nbytes(value: Any) -> int:
    return int(value.nbytes)


def _of_frame(value: Any) -> int:
    used = value.memory_usage(deep=False)
    return int(used if isinstance(used, int) else used.sum())


def _of_attributes(value: Any) -> int:
    return _of_mapping(vars(value))


def _of_other(value: Any) -> int:
    return OTHER


ONCE: Final = -1
"""The size of a value that is gone when it has been read once: `once_only` is its error."""


def _of_iterator(value: Any) -> int:
    return ONCE


def _of_text(value: str) -> int:
    return 49 + len(value)


def _of_bytes(value: Any) -> int:
    return 33 + len(value)


_MEASURES: dict[type, Callable[[Any], int]] = {
    str: _of_text,
    bytes: _of_bytes,
    bytearray: _of_bytes,
    memoryview: _of_nbytes,
    list: _of_items,
    tuple: _of_items,
    set: _of_items,
    frozenset: _of_items,
    dict: _of_mapping,
    ChunkRef: _of_nbytes,
}

_CONTAINERS: Final[frozenset[type]] = frozenset({list, tuple, set, frozenset, dict})


def _learn(kind: type) -> Callable[[Any], int]:
    """Find the measure of a type's values, and record it."""
    numpy = sys.modules.get("numpy")
    if numpy is not None and issubclass(kind, numpy.generic) and not issubclass(kind, (numpy.flexible, numpy.object_)):
        FIXED[kind] = 32
        return _of_other
    measure = _of_other
    if issubclass(kind, (list, tuple, set, frozenset)):
        measure = _of_items
    elif issubclass(kind, dict):
        measure = _of_mapping
    elif hasattr(kind, "__next__") and kind.__module__ in ("builtins", "itertools"):
        measure = _of_iterator
    elif hasattr(kind, "nbytes"):
        measure = _of_nbytes
    elif hasattr(kind, "memory_usage"):
        measure = _of_frame
    elif kind.__module__.startswith("scipy.sparse."):  # arrays of values and of their positions
        measure = _of_attributes
    if len(_MEASURES) < _LEARNT_MAX:
        _MEASURES[kind] = measure
    return measure


def _shallow(value: Any) -> int:
    """Return the size of an item of a container: containers inside containers count little."""
    kind = type(value)
    if kind in FIXED:
        return FIXED[kind]
    return OTHER if kind in _CONTAINERS else sizeof(value)


def sizeof(value: Any) -> int:
    """Return the approximate bytes of a value: exact for arrays, tables and bytes, one level deep for containers.

    `ONCE` for generators and other iterators.
    """
    kind = type(value)
    fixed = FIXED.get(kind)
    if fixed is not None:
        return fixed
    measure = _MEASURES.get(kind) or _learn(kind)
    try:
        return measure(value)
    except Exception:  # noqa: BLE001
        return OTHER


def once_only(value: Any) -> ProgramError:
    """Return the error of a value of size `ONCE`."""
    return ProgramError(
        f"the value is {type_of(value)}, which gives its items to one reader only", hint="Return a list of them."
    )


def fixed_size(values: Collection[Any]) -> int | None:
    """Return the bytes of values whose types all have one size each; None if some type has not."""
    kind: type = type(next(iter(values), None))
    each = FIXED.get(kind)
    if each is None:
        return None
    if countOf(map(type, values), kind) == len(values):  # takes three quarters of the time of a set of the types
        return each * len(values)
    if not FIXED.keys() >= set(map(type, values)):
        return None
    return sum(map(FIXED.__getitem__, map(type, values)))


# ---------------------------------------------------------------------------------------------------------- eviction


class ChunkInfo:
    """The facts about a chunk for an eviction policy; the lower `used`, the older the last put or read."""

    __slots__ = ("_column", "index", "nbytes", "tier", "used")

    def __init__(self, column: Column, index: int, nbytes: int, tier: Tier, used: int) -> None:
        self._column = column
        self.index, self.nbytes, self.tier, self.used = index, nbytes, tier, used

    @property
    def job(self) -> str:
        """The job of the value."""
        return self._column.key[0]

    @property
    def vertex(self) -> str:
        """The vertex whose task `index` made it."""
        return self._column.key[1]

    @property
    def next_use(self) -> float:
        """The order of its next read, lower is sooner; infinite if no reader is known."""
        foresee = self._column.foresee
        return float("inf") if foresee is None else foresee(self.index)


EvictionKey = Callable[[ChunkInfo], Any]
"""A policy: the chunk with the lowest key (anything sortable) leaves memory first."""
