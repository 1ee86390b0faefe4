"""What the rest of Weft knows of a store: columns of chunks, and how they are put, read and freed.

The values of a vertex's tasks are a `Column`; the cell of task `i` is `column.values[i]`. A cell is one of

- the plain Python value (memory tier),
- a `ChunkRef` (shared memory, disk or inline bytes, to be read through the store),
- `ABSENT`: not made yet, lost or freed.

Whoever reads very many small cells may read `column.values` itself and ask the store only for cells whose type is
`ChunkRef`. All sizes are bytes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol, final

from weft.model.chunks import ChunkRef


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


ABSENT: Final = _Absent()
"""The cell of a task that has no value: not made yet, lost or freed."""


class Column:
    """The values of one vertex's tasks: `values[i]` is the cell of task `i`.

    `parts` is the number of partitions when each value is a list of pieces, read one by one (a shuffle), else 0.
    `foresee(i)` says when cell `i` will be read next, the lower the sooner, where somebody knows.

    The other fields are the store's own: `small_count` cells of `small_bytes` bytes together are only summed,
    `tracked` has an entry for every cell that is large or lies in a file.
    """

    __slots__ = ("foresee", "key", "parts", "small_bytes", "small_count", "tracked", "values")

    def __init__(self, key: tuple[str, str], n: int, parts: int = 0) -> None:
        self.key = key
        self.values: list[Any] = [ABSENT] * n
        self.parts = parts
        self.foresee: Callable[[int], float] | None = None
        self.small_count = 0
        self.small_bytes = 0
        self.tracked: dict[int, Any] = {}

    def __len__(self) -> int:
        return len(self.values)

    def grow(self) -> None:
        """Add an empty cell at the end."""
        self.values.append(ABSENT)

    def __repr__(self) -> str:
        return f"Column({'/'.join(self.key)}, {len(self.values)} cells)"


class ChunkStore(Protocol):
    """Chunks of one node. Every method may be called from any thread."""

    def column(self, key: tuple[str, str], n: int, parts: int = 0) -> Column:
        """Return the column of `key` (job id, vertex id) with `n` cells, made empty where there is none.

        `parts` > 0 says that every value is a list of that many pieces. A column that holds values keeps its length:
        another `n` raises InternalError.
        """
        ...

    def drop(self, key: tuple[str, str]) -> None:
        """Free all cells of a column and forget it; nothing happens if there is none."""
        ...

    def put_range(self, column: Column, lo: int, values: Sequence[Any], total_bytes: int | None = None) -> int:
        """Put `values` into the cells from `lo` on and return their bytes; plain values and ChunkRefs may be mixed,
        old cells are freed.

        `total_bytes` is the size of small values where the caller knows it. Lists put into a column with `parts`
        belong to the store from now on. DiskFullError: no room in memory nor on disk; the cells are then absent.
        """
        ...

    def load(self, column: Column, index: int, *, last: bool = False) -> Any:
        """Return the value of a cell; one that lay on disk is kept in memory from now on.

        `last=True` is the single consumer's way: read to private memory, neither kept nor counted.
        NotFoundError: the cell is absent, or its file is gone or damaged.
        """
        ...

    def load_part(self, column: Column, index: int, part: int, *, last: bool = False) -> Any:
        """Return one piece of a partitioned value without reading the others; errors as `load`."""
        ...

    def free_range(self, column: Column, lo: int, hi: int) -> None:
        """Make the cells `lo:hi` absent and give back what they held; absent cells are passed over."""
        ...

    def free_parts(self, column: Column, part_lo: int, part_hi: int, lo: int, hi: int) -> None:
        """Give back the pieces `part_lo:part_hi` of the cells `lo:hi`; files get holes where the system can."""
        ...


# ------------------------------------------------------------------------------------------------------------- sizes

SMALL: Final = 1024
"""Values below this many bytes are only summed: never evicted one by one, their cells cost nothing."""

OTHER: Final = 64
"""What a value of unknown type counts."""

FIXED: Final[dict[type, int]] = {type(None): 0, bool: 0, int: 32, float: 24, complex: 32}
"""Bytes of the types whose values are all of one size; numpy's scalars are added when first seen."""

_LEARNT_MAX = 4096  # a program that makes types in a loop must not fill the table


def _of_items(value: Any) -> int:
    fixed = fixed_size(set(map(type, value)), value)
    return 56 + 8 * len(value) + (sum(map(_shallow, value)) if fixed is None else fixed)


def _of_mapping(value: Any) -> int:
    return 64 + 100 * len(value) + sum(map(_shallow, value.values())) + sum(map(_shallow, value))


def _of_nbytes(value: Any) -> int:
    return int(value.nbytes)


def _of_frame(value: Any) -> int:
    used = value.memory_usage(deep=False)
    return int(used if isinstance(used, int) else used.sum())


def _of_other(value: Any) -> int:
    return OTHER


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
    """Find how values of a type are measured, and remember it."""
    numpy = sys.modules.get("numpy")
    if numpy is not None and issubclass(kind, numpy.generic) and not issubclass(kind, (numpy.flexible, numpy.object_)):
        FIXED[kind] = 32
        return _of_other
    measure = _of_other
    if issubclass(kind, (list, tuple, set, frozenset)):
        measure = _of_items
    elif issubclass(kind, dict):
        measure = _of_mapping
    elif hasattr(kind, "nbytes"):
        measure = _of_nbytes
    elif hasattr(kind, "memory_usage"):
        measure = _of_frame
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
    """Return about how many bytes a value holds: exact for arrays, tables and bytes, one level deep for containers."""
    kind = type(value)
    fixed = FIXED.get(kind)
    if fixed is not None:
        return fixed
    measure = _MEASURES.get(kind) or _learn(kind)
    try:
        return measure(value)
    except Exception:  # noqa: BLE001
        return OTHER


def fixed_size(kinds: set[type], values: Sequence[Any]) -> int | None:
    """Return the bytes of values whose types, `kinds`, all have one size each; None if some type has not."""
    if not kinds <= FIXED.keys():
        return None
    if len(kinds) == 1:
        return FIXED[next(iter(kinds))] * len(values)
    return sum(map(FIXED.__getitem__, map(type, values)))


# ---------------------------------------------------------------------------------------------------------- eviction


class ChunkInfo:
    """What an eviction policy may know of a chunk; the lower `used`, the longer ago it was put or read."""

    __slots__ = ("_column", "index", "nbytes", "tier", "used")

    def __init__(self, column: Column, index: int, nbytes: int, tier: str, used: int) -> None:
        self._column = column
        self.index, self.nbytes, self.tier, self.used = index, nbytes, tier, used

    @property
    def job(self) -> str:
        """The job whose value it is."""
        return self._column.key[0]

    @property
    def vertex(self) -> str:
        """The vertex whose task `index` made it."""
        return self._column.key[1]

    @property
    def next_use(self) -> float:
        """When it will be read next, the lower the sooner; infinite where nobody is known to read it."""
        foresee = self._column.foresee
        return float("inf") if foresee is None else foresee(self.index)


EvictionKey = Callable[[ChunkInfo], Any]
"""A policy: the chunk with the lowest key (anything sortable) leaves memory first."""
