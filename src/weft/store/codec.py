"""Values to bytes and back: NumPy, Arrow, bytes, and all picklable values; the one file that unpickles chunks.

Layout of an encoded chunk, little endian, every offset counted from its first byte::

    magic "WEFT" | version u8 | kind u8 | flags u16 | n u64 | meta bytes u64
    n times: offset u64, nbytes u64          the buffers, or the pieces of a partitioned value
    meta                                     dtype and shape, or the pickle
    buffers, each aligned to 64 bytes

The pieces of a partitioned value are encoded chunks themselves, so each is read alone; pieces of 64 KiB and more start
on a page, so that each is freed alone. The meta of a sparse row is the index of its pieces (`weft.store.rows`). The
bytes do not depend on the location of a chunk: spilling copies them.

Encoding copies no large buffer: `Encoded` refers to the memory of the value until it is written, and scattered elements
are copied strip by strip. Decoded arrays and tables are views of the given memory, read-only if that is.
"""

from __future__ import annotations

import copyreg
import io
import pickle
import struct
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, Protocol, cast

from weft.model.chunks import ChunkRef, Tier
from weft.model.errors import NotFoundError, ProgramError
from weft.store import serializers
from weft.store.api import ABSENT, sizeof
from weft.store.rows import EdgeValues, index_of, read_index

PAGE: Final = 4096
ALIGN: Final = 64
BIG: Final = 64 * 1024
"""From this size on, chunks and pieces start on a page of their own."""

_MAGIC: Final = b"WEFT"
_VERSION: Final = 1
_HEAD: Final = struct.Struct("<4sBBHQQ")
_ENTRY: Final = struct.Struct("<QQ")
_PICKLE, _NUMPY, _TABLE, _BATCH, _BYTES, _PARTS, _SPARSE = range(7)
SMALL_PIECE: Final = 256
"""Rows whose pieces have fewer bytes on average are encoded whole."""
_STRIP: Final = 1 << 20
Reducer = Callable[[Any], Any]
"""Returns the reduction of a value, as `pickle.Pickler.reducer_override` does, or None."""
_IN_BAND_MAX: Final = 1024  # below this a buffer of its own costs more than the copy it saves
_ZEROS: Final = bytes(PAGE)


class Encoded(NamedTuple):
    """A value ready to be written: `header` at 0, `buffers[i]` at `offsets[i]`, `nbytes` in all, zeros in the gaps.

    `parts` is the number of pieces of a partitioned value, else 0. `pieces`: see `ChunkRef`.
    """

    header: bytes
    buffers: list[memoryview | Scattered]
    nbytes: int
    parts: int
    offsets: list[int]
    pieces: bytes = b""

    def ref(self, tier: Tier, location: str, offset: int) -> ChunkRef:
        """Return the ref of this chunk at a place."""
        return ChunkRef(tier, location, offset, self.nbytes, self.parts, pieces=self.pieces)

    def inline(self) -> ChunkRef:
        """Return a ref that holds the bytes of this chunk."""
        return self.ref(Tier.INLINE, "", 0)._replace(data=to_bytes(self))


class Scattered:
    """The bytes of an array with scattered elements, copied a strip at a time during the write."""

    def __init__(self, numpy: Any, array: Any) -> None:
        self._numpy = numpy
        self._array = array
        self.nbytes: int = array.nbytes

    def __iter__(self) -> Iterator[memoryview]:
        rows = len(self._array)
        step = max(1, _STRIP * rows // self.nbytes)
        for lo in range(0, rows, step):
            yield _flat(self._numpy, self._numpy.ascontiguousarray(self._array[lo : lo + step]))


class _Sink(Protocol):
    def write(self, data: bytes | memoryview, /) -> Any: ...


def align(offset: int, nbytes: int) -> int:
    """Return the first allowed offset for a chunk or piece of `nbytes` at or after `offset`."""
    unit = PAGE if nbytes >= BIG else ALIGN
    return -(-offset // unit) * unit


# ---------------------------------------------------------------------------------------------------------- encoding


def encode(value: Any) -> Encoded:
    """Encode one value; its large buffers are referred to, not copied. ProgramError: it cannot be pickled."""
    kind = type(value)
    if kind is bytes and len(value) >= _IN_BAND_MAX:
        return _assemble(_BYTES, b"", [memoryview(value)])
    numpy = sys.modules.get("numpy")
    if numpy is not None and kind is numpy.ndarray and not value.dtype.hasobject:
        return _encode_array(numpy, value)
    arrow = sys.modules.get("pyarrow")
    if arrow is not None:
        if kind is arrow.Table:
            return _encode_arrow(arrow, _TABLE, value)
        if kind is arrow.RecordBatch:
            return _encode_arrow(arrow, _BATCH, value)
    return _encode_pickle(value)


def encode_row(value: Any) -> Encoded:
    """Encode the value of a task of a partitioned column: piece by piece, or whole if its pieces are small.

    A small piece is read faster with its row than alone: its header and its pickle are larger than its content. A
    sparse row has its index in either form.
    """
    if type(value) is EdgeValues:
        pieces = [values for _, _, values in value.entries()]
        if value.nbytes < SMALL_PIECE * len(pieces) and ABSENT not in pieces:
            return encode(value)._replace(pieces=index_of(value))
        return _encode_pieces(_SPARSE, pieces, index_of(value))
    if not isinstance(value, (list, tuple)):
        return encode(value)
    small = sizeof(value) < SMALL_PIECE * len(value) and type(ABSENT) not in set(map(type, value))
    return encode(value) if small else encode_parts(value)


def encode_parts(pieces: Sequence[Any]) -> Encoded:
    """Encode a dense row, a sequence of pieces that can be read one by one; a freed piece (ABSENT) is empty."""
    return _encode_pieces(_PARTS, pieces, b"")


def _encode_pieces(kind: int, pieces: Sequence[Any], index: bytes) -> Encoded:
    encoded = [None if piece is ABSENT else encode(piece) for piece in pieces]
    at = _HEAD.size + _ENTRY.size * len(encoded) + len(index)
    entries: list[tuple[int, int]] = []
    buffers: list[memoryview | Scattered] = []
    offsets: list[int] = []
    for piece in encoded:
        if piece is None:
            entries.append((0, 0))
            continue
        at = align(at, piece.nbytes)
        entries.append((at, piece.nbytes))
        buffers.append(memoryview(piece.header))
        offsets.append(at)
        buffers.extend(piece.buffers)
        offsets.extend(at + offset for offset in piece.offsets)
        at += piece.nbytes
    return Encoded(_header(kind, entries, index), buffers, at, len(encoded), offsets, index)


def raw(view: memoryview, ref: ChunkRef) -> Encoded:
    """Wrap the chunk of a ref, whose bytes are `view`, to be written elsewhere unchanged."""
    return Encoded(b"", [view], view.nbytes, ref.parts, [0], ref.pieces)


def _header(kind: int, entries: list[tuple[int, int]], meta: bytes) -> bytes:
    head = _HEAD.pack(_MAGIC, _VERSION, kind, 0, len(entries), len(meta))
    return b"".join((head, *(_ENTRY.pack(*entry) for entry in entries), meta))


def _assemble(kind: int, meta: bytes, buffers: Sequence[memoryview | Scattered]) -> Encoded:
    """Lay out buffers behind a header, each aligned."""
    at = _HEAD.size + _ENTRY.size * len(buffers) + len(meta)
    entries = []
    for buffer in buffers:
        at = -(-at // ALIGN) * ALIGN
        entries.append((at, buffer.nbytes))
        at += buffer.nbytes
    return Encoded(_header(kind, entries, meta), list(buffers), at, 0, [offset for offset, _ in entries])


def _encode_array(numpy: Any, array: Any) -> Encoded:
    rows, columns = array.flags.c_contiguous, array.flags.f_contiguous
    order = "F" if columns and not rows else "C"
    meta = pickle.dumps((array.dtype, array.shape, order), 5)
    if not array.nbytes:
        return _assemble(_NUMPY, meta, [])
    if not rows and not columns:
        return _assemble(_NUMPY, meta, [Scattered(numpy, array)])
    return _assemble(_NUMPY, meta, [_flat(numpy, array.T if order == "F" else array)])


def _flat(numpy: Any, array: Any) -> memoryview:
    """Return the bytes of an array, by way of uint8: dates and records have no buffer protocol of their own."""
    return memoryview(array.reshape(-1).view(numpy.uint8))


class _Pieces:
    """A file for Arrow to write to that keeps the given buffers instead of copying them."""

    closed = False

    def __init__(self) -> None:
        self.pieces: list[memoryview] = []

    def write(self, data: Any) -> int:
        piece = memoryview(data).cast("B")
        self.pieces.append(piece)
        return piece.nbytes

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass

    def writable(self) -> bool:
        return True

    def readable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False


def _encode_arrow(arrow: Any, kind: int, value: Any) -> Encoded:
    sink = _Pieces()
    with arrow.PythonFile(sink, mode="w") as file, arrow.ipc.new_stream(file, value.schema) as stream:
        stream.write(value)
    pieces = [piece for piece in sink.pieces if piece.nbytes]
    total = sum(piece.nbytes for piece in pieces)
    at = align(_HEAD.size + _ENTRY.size, 0)
    offsets = []
    for piece in pieces:
        offsets.append(at)
        at += piece.nbytes
    return Encoded(_header(kind, [(at - total, total)], b""), list(pieces), at, 0, offsets)


def _encode_pickle(value: Any, reduce: Reducer | None = None) -> Encoded:
    try:
        meta, buffers = _dump(_dumps(pickle.Pickler, reduce) if reduce else dumps, value)
        if b"__main__" not in meta:
            return _assemble(_PICKLE, meta, buffers)
    except Exception:  # noqa: BLE001
        pass
    try:
        return _assemble(_PICKLE, *_dump(partial(dumps_by_value, reduce=reduce), value))
    except ProgramError:
        raise
    except Exception as error:
        kind = type(value)
        raise ProgramError(
            f"a value of type {kind.__module__}.{kind.__qualname__} cannot leave the process that made it: "
            f"{type(error).__name__}: {error}",
            hint="Return plain data (numbers, text, arrays, tables, containers of them), not open files, locks, "
            "connections or generators; or run on threads without durable, where values stay in one process. "
            "weft.register_serializer tells how values of a type are written and read.",
        ) from error


def dumps(value: Any, **options: Any) -> bytes:
    """Pickle as `pickle.dumps` does, but without the rows of Arrow tables that a slice leaves out, and with the
    serializers of registered types.
    """
    kinds = _kinds_of_rows()
    if not kinds and not serializers.registered:
        return pickle.dumps(value, **options)
    file = io.BytesIO()
    pickler = pickle.Pickler(file, **options)
    pickler.dispatch_table = copyreg.dispatch_table | dict.fromkeys(kinds, _reduce_rows) | serializers.registered
    pickler.dump(value)
    return file.getvalue()


def _kinds_of_rows() -> tuple[type, ...]:
    """Return the Arrow types that are pickled by their rows; none before Arrow is imported."""
    arrow: Any = sys.modules.get("pyarrow")
    return (arrow.Table, arrow.RecordBatch) if hasattr(arrow, "RecordBatch") else ()


def _reduce_rows(rows: Any) -> Any:
    """Return the reduction of an Arrow table or batch: a slice of a larger one would take all of its buffers along."""
    if 2 * rows.nbytes > rows.get_total_buffer_size():
        return rows.__reduce__()
    import pyarrow

    sink = pyarrow.BufferOutputStream()
    with pyarrow.ipc.new_stream(sink, rows.schema) as stream:
        stream.write(rows)
    return _rows_of, (pickle.PickleBuffer(sink.getvalue()), isinstance(rows, pyarrow.Table))


def _rows_of(data: Any, whole: bool) -> Any:
    import pyarrow

    with pyarrow.ipc.open_stream(pyarrow.py_buffer(data)) as stream:
        return stream.read_all() if whole else stream.read_next_batch()


def dumps_by_value(value: Any, *, reduce: Reducer | None = None, **options: Any) -> bytes:
    """Pickle lambdas, local functions, and definitions of a script, which is another module in a worker, by value.

    `options` are those of `pickle.dumps`. Raises the error of pickling, also for an open file, of which cloudpickle
    would keep the text alone.
    """
    import cloudpickle

    def reduced(value: Any) -> Any:
        found = reduce(value) if reduce is not None else None
        return _keep_type(value) if found is None else found

    return _dumps(cloudpickle.Pickler, reduced)(value, **options)


def _keep_type(value: Any) -> Any:
    """Return the reduction of a value that cloudpickle would turn into another type; None for all others."""
    if type(value) is memoryview:
        return _view_of, (value.tobytes(), value.format, value.shape)
    if type(value) is io.TextIOWrapper and value not in (sys.stdout, sys.stderr):
        raise TypeError(f"cannot pickle the open file {value.name!r}")
    return None


def _view_of(data: bytes, format: str, shape: tuple[int, ...]) -> memoryview:
    view = memoryview(data)
    return view if (format, shape) == ("B", (len(data),)) else view.cast(format, shape)  # type: ignore[call-overload]


def _dumps(pickler: Any, reduce: Reducer) -> Callable[..., bytes]:
    """Return the `dumps` of a pickler that calls `reduce` first."""

    rows = _kinds_of_rows()

    class Reducing(pickler):  # type: ignore[misc]
        def reducer_override(self, value: Any) -> Any:
            found = reduce(value)
            if found is not None:
                return found
            if type(value) in rows:
                return _reduce_rows(value)
            if type(value) in serializers.registered:
                return serializers.registered[type(value)](value)
            own = getattr(super(), "reducer_override", None)
            return NotImplemented if own is None else own(value)

    def dumps(value: Any, **options: Any) -> bytes:
        file = io.BytesIO()
        Reducing(file, **options).dump(value)
        return file.getvalue()

    return dumps


def _dump(dumps: Callable[..., bytes], value: Any) -> tuple[bytes, list[memoryview]]:
    buffers: list[memoryview] = []

    def stays_in_band(buffer: pickle.PickleBuffer) -> bool:
        try:
            view = buffer.raw()
        except BufferError:  # not contiguous
            return True
        if view.nbytes < _IN_BAND_MAX:
            return True
        buffers.append(view)
        return False

    return dumps(value, protocol=5, buffer_callback=stays_in_band), buffers


# ----------------------------------------------------------------------------------------------------------- writing


def spans(encoded: Encoded) -> Iterator[bytes | memoryview]:
    """Yield the bytes of a chunk in order, gaps filled, without joining them."""
    at = len(encoded.header)
    if at:
        yield encoded.header
    for offset, buffer in zip(encoded.offsets, encoded.buffers, strict=True):
        if offset > at:
            yield _ZEROS[: offset - at]
        if type(buffer) is Scattered:
            yield from buffer
        else:
            yield cast("memoryview", buffer)
        at = offset + buffer.nbytes


def write(encoded: Encoded, into: memoryview | _Sink) -> int:
    """Write a chunk to the start of writable memory, or to an open binary file; return its bytes."""
    if not isinstance(into, memoryview):
        for span in spans(encoded):
            into.write(span)
        return encoded.nbytes
    at = 0
    for span in spans(encoded):
        end = at + len(span)
        into[at:end] = span
        at = end
    return encoded.nbytes


def to_bytes(encoded: Encoded) -> bytes:
    """Return a chunk as bytes, for messages."""
    return b"".join(spans(encoded))


def to_pickle(value: Any, reduce: Reducer | None = None) -> bytes:
    """Return any value as bytes for `from_pickle`: code of scripts and lambdas by value. ProgramError: it cannot be
    pickled.

    `reduce` returns the reductions of some values, as `pickle.Pickler.reducer_override` does; None: the default ones.
    """
    return to_bytes(_encode_pickle(value, reduce))


# ---------------------------------------------------------------------------------------------------------- decoding


def from_pickle(data: bytes) -> Any:
    """Return the value of `to_pickle`, which may run any code: only for data written by this user. Errors as
    `decode`.
    """
    return decode(data)


def decode(view: memoryview | bytes, copy: bool = False) -> Any:
    """Return the value in `view`, memory that starts with a chunk.

    Arrays and tables are views of that memory unless `copy`. NotFoundError: these bytes are not a chunk, or part of
    them is missing. ProgramError: a pickled value whose class or function cannot be imported here.
    """
    if copy:
        view = memoryview(bytearray(view))
    elif not isinstance(view, memoryview):
        view = memoryview(view)
    kind, entries, meta_at, meta_end = _open(view)
    if kind == _PICKLE:
        try:
            return pickle.loads(
                view[meta_at:meta_end], buffers=[view[offset : offset + nbytes] for offset, nbytes in entries]
            )
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # an imported module may raise anything, SystemExit too
            raise ProgramError(
                f"a value cannot be read back: {type(error).__name__}: {error}",
                hint="The module that defines its class must be importable, in the same version, where it is read.",
            ) from error
    if kind >= _PARTS:
        row = [decode(view[offset : offset + nbytes]) if nbytes else ABSENT for offset, nbytes in entries]
        return row if kind == _PARTS else _sparse(view[meta_at:meta_end], row)
    try:
        return _decode_plain(view, kind, entries, view[meta_at:meta_end])
    except Exception as error:
        raise _damaged(f"{type(error).__name__}: {error}") from error


def _decode_plain(view: memoryview, kind: int, entries: list[tuple[int, int]], meta: memoryview) -> Any:
    if kind == _NUMPY:
        import numpy

        dtype, shape, order = pickle.loads(meta)
        if not entries:
            return numpy.ndarray(shape, dtype, order=order)
        return numpy.ndarray(shape, dtype, buffer=view, offset=entries[0][0], order=order)
    offset, nbytes = entries[0]
    body = view[offset : offset + nbytes]
    if kind == _BYTES:
        return bytes(body)
    return _rows_of(body, kind == _TABLE)


def _sparse(index: memoryview, row: Sequence[Any]) -> EdgeValues:
    listed, edges = read_index(bytes(index))
    values = iter(row)
    return EdgeValues({edge: {part: next(values) for part in parts} for edge, parts in edges}, listed)


def decode_part(view: memoryview | bytes, part: int) -> Any:
    """Return one piece of the partitioned value in `view` without touching the others; ABSENT if it was freed.

    The pieces of a sparse row count in the order of its index. NotFoundError as for `decode`. IndexError: there is no
    such piece.
    """
    view = memoryview(view)
    kind, n, _, _ = _head(view)
    if kind < _PARTS:
        return decode(view)[part]
    if not 0 <= part < n:
        raise IndexError(part)
    offset, nbytes = _ENTRY.unpack_from(view, _HEAD.size + part * _ENTRY.size)
    if offset + nbytes > view.nbytes:
        raise _cut(offset + nbytes, view.nbytes)
    return decode(view[offset : offset + nbytes]) if nbytes else ABSENT


def directory_range(lo: int, hi: int) -> tuple[int, int]:
    """Return offset and bytes of the entries of pieces `lo:hi` in the directory of a partitioned chunk."""
    return _HEAD.size + _ENTRY.size * lo, _ENTRY.size * (hi - lo)


def directory(entries: memoryview | bytes, limit: int) -> list[tuple[int, int]]:
    """Read (offset, nbytes) of pieces from their entries in the directory of a chunk of `limit` bytes."""
    return _entries(memoryview(entries), limit)


def _damaged(why: str) -> NotFoundError:
    return NotFoundError(
        f"a stored chunk is damaged: {why}",
        hint="Another program changed or truncated its file; run again to compute it anew.",
    )


def _entries(view: memoryview, limit: int) -> list[tuple[int, int]]:
    entries = list(_ENTRY.iter_unpack(view))
    for offset, nbytes in entries:
        if offset + nbytes > limit:
            raise _cut(offset + nbytes, limit)
    return entries


def _cut(end: int, limit: int) -> NotFoundError:
    return _damaged(f"a part ends at byte {end:,} of {limit:,}")


def _open(view: memoryview) -> tuple[int, list[tuple[int, int]], int, int]:
    """Check and read the head of a chunk: kind, entries, offset and end of the meta."""
    kind, n, meta_at, meta_end = _head(view)
    return kind, _entries(view[_HEAD.size : _HEAD.size + n * _ENTRY.size], view.nbytes), meta_at, meta_end


def _head(view: memoryview) -> tuple[int, int, int, int]:
    """Check the head of a chunk: kind, number of entries, offset and end of the meta."""
    if view.nbytes < _HEAD.size:
        raise _damaged(f"{view.nbytes} bytes are less than a header")
    magic, version, kind, _, n, meta_nbytes = _HEAD.unpack_from(view)
    if magic != _MAGIC or version != _VERSION or kind > _SPARSE:
        raise _damaged("it does not start with a header of this version")
    meta_at = _HEAD.size + n * _ENTRY.size
    meta_end = meta_at + meta_nbytes
    if meta_end > view.nbytes:
        raise _damaged(f"its header ends at byte {meta_end:,} of {view.nbytes:,}")
    return kind, n, meta_at, meta_end
