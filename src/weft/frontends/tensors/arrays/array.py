"""The array: lazy, cut into chunks, computed on request."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from threading import RLock
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from weft.frontends.tensors import blocks, indexing, shaping, sources
from weft.frontends.tensors.arrays import chunking, computing, display, runners, views
from weft.frontends.tensors.arrays.conversion import aligned, as_node, converted, is_plain, nodes_in, plain_index
from weft.frontends.tensors.arrays.deferred import Expressed, needs_lengths
from weft.frontends.tensors.arrays.flat import Flat
from weft.frontends.tensors.arrays.methods import Methods
from weft.frontends.tensors.arrays.registry import expose
from weft.frontends.tensors.blocks import elementwise
from weft.frontends.tensors.blocks import where as choose
from weft.frontends.tensors.chunks import known
from weft.frontends.tensors.nodes import ArrayNode
from weft.frontends.tensors.unknown_lengths import lengths_known, stand_in

if TYPE_CHECKING:
    from types import ModuleType

    from weft.frontends.tensors.arrays.executables import Watch
    from weft.frontends.tensors.types import ArrayLike, ChunkSize, DType, NumpyArray

_VERSIONS = ("2021.12", "2022.12", "2023.12", "2024.12", "2025.12")
"""Versions of the array standard. Later versions only add, except 2025.12: lists became tuples."""
PUBLIC_PACKAGE = "weft.tensor"
"""The package that users import; it installs the runners, so an array from another process loads it."""
DEVICE = "cpu"
"""The device of all arrays."""
CACHED_BYTES = 2**20
"""The most bytes of fetched values that an array keeps."""
_SWAP = RLock()
"""Held while an array gets other elements, or others that share them; never while something is computed."""


def _first(x: Tensor, *rest: Any, **more: Any) -> Tensor:
    return x


class Tensor(Methods, Expressed):
    """An n-dimensional array that is computed on request.

    Made by the functions of `weft.tensor`. Reading `.shape` of an array whose lengths depend on data (boolean indexing,
    `unique`) computes it; so do `float(x)`, `x.fetch()`, `print(x)` and all other uses of its values.
    """

    __slots__ = (
        "__weakref__",
        "_base",
        "_base_version",
        "_confirmed",
        "_memory",
        "_order",
        "_own",
        "_read_only",
        "_steps",
        "_value",
        "_version",
    )
    __array_priority__ = 1000

    def __init__(self, node: ArrayNode, order: str = "C") -> None:
        self._own = node
        self._order = order
        self._value: Any = None
        self._version = 0  # the number of assignments to this array
        self._base: views.SharedElements[Tensor] | None = None  # the elements that this array shares with others
        self._memory: NumpyArray | None = None  # the strides of an array that was a view, without memory
        self._steps: views.Steps = ()  # from the root of these to this array
        self._base_version = 0  # the version of the root at the last update
        self._read_only = False  # whether it is a view that can only be read
        self._confirmed = True  # false while unknown lengths leave open whether NumPy has a view here
        super().__init__(node)

    # ------------------------------------------------------------------------------------------------ attributes

    @property
    def _node(self) -> ArrayNode:
        """The current expression."""
        base = self._current_base()
        if base is not None and base.root._version != self._base_version:
            version = base.root._version
            node = _read(base.root, self._steps)._node
            with _SWAP:
                if version > self._base_version:
                    self._own, self._value, self._base_version = node, None, version
            base.release()
        return self._own

    def _current_base(self) -> views.SharedElements[Tensor] | None:
        """Return the elements that this array shares with others, if any."""
        base = self._base
        if base is not None and not self._confirmed and base.root._version != self._base_version:
            self._confirmed = True
            if not base.views(self._steps):
                self._base, self._read_only = None, False
                base.leave(id(self))
        return self._base

    def let_go(self) -> None:
        """Share the elements no longer with others, if this array has their present values."""
        with _SWAP:
            base = self._base
            if base is not None and base.alone() and base.root._version == self._base_version:
                if self._steps and lengths_known(base.root._own):
                    self._memory = base.memory(self._steps)
                self._base = None

    def _shared(self) -> views.SharedElements[Tensor]:
        """Return the elements of this array as what views share with it."""
        self._node  # noqa: B018 - a view whose elements are no view of these becomes an array of its own
        with _SWAP:
            base = self._base
            if base is None:
                base = self._base = views.SharedElements(Tensor(self._own, self._order), self._memory)
                self._steps, self._base_version, self._confirmed = (), 0, True
                base.join(self)
            return base

    def viewed(self, made: ArrayNode, step: views.Step) -> Tensor:
        """Return the result of one step from this array: a view if NumPy has one, else a new array."""
        view = Tensor(made)
        view._attach(self, (step,))
        return view

    def _attach(self, base: Tensor, steps: views.Steps) -> None:
        """Make this array, the result of steps from another one, a view of that if NumPy has one."""
        base._shared()
        with _SWAP:
            shared = base._shared()
            steps = (*base._steps, *steps)
            certain = shared.certainly_views(steps)
            if certain or not lengths_known(shared.root._node) or shared.views(steps):
                self._confirmed = certain or lengths_known(shared.root._node)
                self._base, self._steps, self._base_version = shared, steps, shared.root._version
                self._read_only = base._read_only or views.only_read(steps)
                if self._base_version and self._confirmed:
                    self._base_version = -1  # another thread may have assigned since this array was made
                shared.join(self)

    def like(self, sample: Expressed, given: Sequence[tuple[Expressed, Expressed]]) -> None:
        """Take the view relation of a sample: the array becomes a view of the operand of the sample's base."""
        if not isinstance(sample, Tensor):
            return
        base = sample._base
        self._read_only = base is None and sample._read_only
        for one, operand in given if base is not None else ():
            if isinstance(one, Tensor) and one is not sample and one._base is base and isinstance(operand, Tensor):
                self._attach(operand, sample._steps)
                return

    def strided(self) -> NumpyArray:
        """Return an array with the strides that NumPy's array would have, without memory."""
        base = self._current_base()
        if base is not None:
            return base.strided(self._steps)
        return views.in_memory(self.shape, self.dtype, self._order) if self._memory is None else self._memory

    @property
    def dtype(self) -> DType:
        """The type of the elements."""
        return self._node.dtype

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self._node.grid)

    @property
    def shape(self) -> tuple[int, ...]:
        """The length of each axis. Computes the array if it depends on data."""
        return self.node.shape

    @shape.setter
    def shape(self, shape: Any) -> None:
        made, base = self.reshape(shape), self._base
        if base is not None and made._base is not base:
            base.leave(id(self))
        self._base, self._steps, self._memory = made._base, made._steps, made._memory
        self._read_only = made._read_only
        self._own, self._value, self._base_version = made._node, None, made._base_version

    @property
    def size(self) -> int:
        """The number of elements."""
        return self.node.size

    @property
    def alone(self) -> bool:
        """Whether no other array shares the elements."""
        return self._base is None

    @property
    def itemsize(self) -> int:
        """The bytes of one element."""
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """The bytes of all elements."""
        return self.node.nbytes

    @property
    def chunks(self) -> tuple[tuple[int, ...], ...]:
        """The lengths of the chunks along each axis."""
        return tuple([cut.lengths() for cut in self.node.grid])

    nsplits = chunks

    @property
    def order(self) -> str:
        """The memory order of fetched values: "C", or "F" on request."""
        return self._order

    @property
    def flags(self) -> Any:
        """NumPy's flags for the memory of fetched values: `x.flags["F_CONTIGUOUS"]`."""
        values = views.in_memory(self.shape, self.dtype, self._order)
        if self._read_only:
            values.flags.writeable = False
        return values.flags

    def ordered(self, order: str | None) -> Tensor:
        """Return the array with fetched values in row-major ("C") or column-major ("F") order; others change nothing.

        ValueError: NumPy has no such `order`.
        """
        if order not in (None, "A", "C", "F", "K"):
            raise ValueError(f"order must be one of 'C', 'F', 'A', or 'K' (got {order!r})")
        if order in (None, "A", "K"):
            return self
        if not lengths_known(self._node):
            return self if order == self._order else Tensor(self._node, order)
        lies = self.strided().flags
        if lies.c_contiguous if order == "C" else lies.f_contiguous:
            return self if order == self._order else self._in_order(order)
        return Tensor(self._node, order)

    def _in_order(self, order: str) -> Tensor:
        """Return a view of all elements whose fetched values are in another order."""
        made = Tensor(self._node, order)
        made._attach(self, ())
        return made

    @property
    def device(self) -> str:
        """The device of the values: "cpu"."""
        return DEVICE

    @property
    def T(self) -> Tensor:  # noqa: N802
        """The transpose: the axes in reversed order."""
        return _permuted(self, tuple(range(self.ndim)[::-1]))

    @property
    def mT(self) -> Tensor:  # noqa: N802
        """The transpose of the last two axes; ValueError with fewer."""
        if self.ndim < 2:
            raise ValueError("matrix transpose with ndim < 2 is undefined")
        return _permuted(self, (*range(self.ndim - 2), self.ndim - 1, self.ndim - 2))

    @property
    def real(self) -> Tensor:
        """The real part."""
        return part_of(self, np.real)

    @real.setter
    def real(self, value: Any) -> None:
        self._set_parts(value, self.imag)

    @property
    def imag(self) -> Tensor:
        """The imaginary part. TypeError, when it is set: the elements are real."""
        return part_of(self, np.imag)

    @imag.setter
    def imag(self, value: Any) -> None:
        if self.dtype.kind != "c":
            raise TypeError("array does not have imaginary part to set")
        self._set_parts(self.real, value)

    def _set_parts(self, real: Any, imag: Any) -> None:
        if self.dtype.kind != "c":
            put_into(self, real)
        else:
            put_into(self, apply(np.add, real, apply(np.multiply, imag, 1j)))

    # ---------------------------------------------------------------------------------------------------- values

    @property
    def layout(self) -> tuple[Any, ...]:
        """The memory layout, as further arguments of the constructor."""
        return (self._order,)

    def _ready(self) -> bool:
        node = self._node
        return self._value is not None or sources.is_stored(node)

    @classmethod
    def _compute(cls, things: Sequence[Any], session: runners.Runner | None, watch: Watch) -> None:
        cls.must_compute()
        nodes = [x._node for x in things]
        for x, node, settled in zip(things, nodes, computing.settle(nodes, session, watch), strict=True):
            with _SWAP:
                if x._own is node:  # the array may have been assigned to meanwhile
                    x._own = settled
                    if x._base is not None and not x._steps and x._base.root._own is node:
                        x._base.root._own = settled

    @classmethod
    def _fetched(cls, things: Sequence[Any], session: runners.Runner | None, watch: Watch) -> list[Any]:
        cls.must_compute()
        ready = [x._ready() for x in things]
        todo = [x for x, done in zip(things, ready, strict=True) if not done]
        made = iter(computing.fetched([x._node for x in todo], [x._order for x in todo], session, watch))
        return [x._given() if done else next(made) for x, done in zip(things, ready, strict=True)]

    def _value_of(self) -> NumpyArray:
        self.must_compute()
        node = self._node
        found: NumpyArray | None = self._value
        if found is None:
            found = computing.assemble(node, self._order)
            with _SWAP:
                if found.nbytes <= CACHED_BYTES and self._own is node:
                    self._value = found
        return found

    def _nbytes(self) -> int:
        node = self._node
        return node.nbytes if self._value is None and lengths_known(node) else 0

    def _given(self) -> NumpyArray:
        found = self._value_of()
        values = self._node.kwargs["source"].values
        kept = found is self._value or (isinstance(values, list) and len(values) == 1)
        return np.copy(found, subok=True) if kept and isinstance(found, np.ndarray) else found

    def _give_name(self, name: str, session: runners.Runner | None) -> None:
        (session or runners.current()).name(name, self)

    @classmethod
    def of_values(cls, values: NumpyArray) -> Tensor:
        """Return a NumPy array as a Weft array."""
        return cls(as_node(values))

    def to_numpy(self, session: runners.Runner | None = None) -> NumpyArray:
        """Return the values as a NumPy array, and compute them first if needed."""
        return self.fetch(session)  # type: ignore[no-any-return]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NumpyArray:
        value = self.fetch()
        if copy is False and dtype is not None and np.dtype(dtype) != value.dtype:
            raise ValueError("a copy is needed to change the dtype")
        if dtype is None and isinstance(value, np.character):
            dtype = self.dtype  # a text scalar has only its own length
        return np.asarray(value, dtype=dtype)  # it is a copy already

    def item(self, *index: Any) -> Any:
        """Return one element as a Python number: the only one, that at a flat position, or that at an index.

        ValueError: there is not exactly one.
        """
        if not index:
            return self.fetch().item()
        at = index[0] if len(index) == 1 else index
        return np.asarray(self[at] if isinstance(at, tuple) else self.flat[at]).item()

    def tobytes(self, order: Any = "C") -> bytes:
        """Return the values as bytes in row-major order; with order "F" in column-major order."""
        return self.fetch().tobytes(order)  # type: ignore[no-any-return]

    def tolist(self) -> Any:
        """Return the values as nested lists."""
        return self.fetch().tolist()

    def __bool__(self) -> bool:
        return bool(self.fetch())

    def __int__(self) -> int:
        return int(self.fetch())

    def __float__(self) -> float:
        return float(self.fetch())

    def __complex__(self) -> complex:
        return complex(self.fetch())

    def __index__(self) -> int:
        return int(self.fetch().__index__())

    def __len__(self) -> int:
        if not self.ndim:
            raise TypeError("len() of unsized object")
        return self.shape[0]

    def __iter__(self) -> Iterator[Tensor]:
        if not self.ndim:
            raise TypeError("iteration over a 0-d array")
        return (self[i] for i in range(self.shape[0]))

    def __contains__(self, value: Any) -> bool:
        return bool((self == value).fetch().any())

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        if self._ready():
            return display.values(self.dtype, self.shape, self._corners())
        shape = ", ".join("?" if size < 0 else str(size) for size in self._node.shape)
        shape += "," if self.ndim == 1 else ""
        return f"Tensor <{self._node.name}, shape=({shape}), dtype={self.dtype}, chunks={self._node.chunks or '?'}>"

    def __str__(self) -> str:
        return str(self.fetch()) if self.size <= display.FEW else repr(self.execute())

    def __format__(self, how: str) -> str:
        return format(self.fetch()[()], how) if how else str(self)

    def _corners(self) -> NumpyArray:
        """Return the computed values; of a large array those at the ends of each axis."""
        if self._value is not None or self.size <= display.FEW:
            return self._value_of()
        found = self
        for axis, n in enumerate(self.shape):
            if n > 2 * display.EDGE + 1:
                at = np.r_[: display.EDGE + 1, n - display.EDGE : n]
                found = Tensor(indexing.take(found.node, as_node(at), axis))
        return found._value_of() if found._ready() else found.fetch()

    def _repr_html_(self) -> str:
        node, known_ = self._node, known(self._node.grid)
        chunks = [cut.lengths() if cut.known else (-1,) * max(1, cut.n) for cut in node.grid]
        state = "computed" if self._ready() else "to be computed"
        return display.html(chunks, self.dtype, node.nbytes if known_ else None, state, node.name)

    def __reduce__(self) -> tuple[Any, ...]:
        return _from_values, (self.fetch(),)

    # ---------------------------------------------------------------------------------------------------- indexing

    def __getitem__(self, index: Any) -> Tensor:
        if isinstance(index, str):
            return _field(self, index)
        if _is_names(index):
            return _fields(self, tuple(index))
        return _getitem(self, plain_index(index))

    def __setitem__(self, index: Any, value: Any) -> None:
        if isinstance(index, str) or _is_names(index):
            self[index][...] = value
            return
        plain = plain_index(index)
        self._assign(lambda: _setitem(self, plain, value)._node)

    def _set(self, node: ArrayNode) -> None:
        self._assign(lambda: node)

    def _assign(self, made: Callable[[], ArrayNode]) -> None:
        """Set the elements to what `made` gives, which is called again if another thread has assigned meanwhile."""
        while True:
            base = self._current_base()
            if self._read_only:
                raise ValueError(views.READ_ONLY)
            root = self if base is None else base.root
            version = root._version
            node = made()
            whole = _written(root, self._steps, Tensor(node))._node if self._steps and base is not None else node
            with _SWAP:
                if self._base is base and root._version == version:
                    root._own, root._value, root._version = whole, None, version + 1
                    self._own, self._value, self._base_version = node, None, version + 1
                    return

    def _put_into(self, into: Any) -> Any:
        return put_into(into, self, exact=True)

    @needs_lengths(sample=_first)
    def view(self, dtype: npt.DTypeLike | None = None) -> Tensor:
        """Return another array with the same elements, or with their bytes as elements of another type.

        Assignments to one change the other. ValueError: the last axis has no whole number of elements of that type.
        """
        if dtype is None:
            return _getitem(self, ...)
        step = views.Retyped(np.dtype(dtype))
        return self.viewed(step.get(self.node), step)

    @property
    def flat(self) -> Flat:
        """The elements in row-major order, for reading and assignment."""
        return Flat(self)

    @flat.setter
    def flat(self, value: Any) -> None:
        self.flat[...] = value

    # ------------------------------------------------------------------------------------------ the array standard

    def __array_namespace__(self, *, api_version: str | None = None) -> ModuleType:
        if api_version not in (None, *_VERSIONS):
            raise ValueError(f"the array standard has no version {api_version!r} that is known here")
        latest = api_version in (None, _VERSIONS[-1])
        return import_module(PUBLIC_PACKAGE if latest else f"{PUBLIC_PACKAGE}.standard_2024_12")

    def to_device(self, device: str, /, *, stream: int | Any | None = None) -> Tensor:
        """Return the array itself: there is one device."""
        if device != DEVICE or stream is not None:
            raise ValueError(f"there is no device {device!r} with such a stream; there is {DEVICE!r}")
        return self

    def issparse(self) -> bool:
        """Whether this is a sparse array: it is not."""
        return False

    def todense(self) -> Tensor:
        """Return the array itself: it is dense, and there is one kind of memory."""
        return self

    to_cpu = todense

    def to_gpu(self, *args: Any, **kwargs: Any) -> None:
        """Raise TypeError: arrays are not moved to a GPU one by one."""
        raise TypeError("arrays are in memory: none is moved to a GPU one by one")

    def __dlpack__(
        self,
        *,
        stream: int | Any | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[Any, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        return self.fetch().__dlpack__(stream=stream, max_version=max_version, dl_device=dl_device, copy=copy)

    def __dlpack_device__(self) -> tuple[Any, int]:
        return (1, 0)

    @needs_lengths
    def astype(
        self, dtype: npt.DTypeLike, /, order: str = "K", casting: Any = "unsafe", subok: bool = True, copy: bool = True
    ) -> Tensor:
        """Return the array with another dtype; without `copy` itself, if it has it. TypeError: `casting` forbids it."""
        kind = np.dtype(dtype)
        kind = shaping.completed(kind, self.dtype)
        if not np.can_cast(self.dtype, kind, casting):
            raise TypeError(f"Cannot cast array data from {self.dtype} to {kind} by the rule {casting!r}")
        made = self if kind == self.dtype and not copy else Tensor(shaping.cast(self.loose, kind), self._order)
        return made.ordered(order)

    def __getattr__(self, name: str) -> Any:
        from weft.frontends.tensors.arrays.absent import dask_method

        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}{dask_method(name)}")

    def rechunk(self, chunk_size: ChunkSize = None, *, chunks: ChunkSize = None) -> Tensor:
        """Return the same array in other chunks; `chunks` is dask's name of the argument."""
        return self._rechunked(chunks if chunk_size is None else chunk_size)

    @needs_lengths(sample=_first)
    def _rechunked(self, chunk_size: ChunkSize) -> Tensor:
        node = self.node
        grid = chunking.cut(node.shape, node.dtype.itemsize, chunk_size)
        return Tensor(blocks.rechunk(node, grid), self._order)

    @needs_lengths(sample=_first)
    def rebalance(
        self,
        factor: float | None = None,
        axis: int = 0,
        num_partitions: int | None = None,
        reassign_worker: bool = True,
    ) -> Tensor:
        """Return the same array in chunks of one length along an axis; the last one may be shorter.

        There are `num_partitions` of them, or `factor` times as many as workers. ValueError: neither is given.
        """
        if num_partitions is None:
            if factor is None:
                raise ValueError("rebalance takes num_partitions, or factor: how many chunks for each worker")
            num_partitions = int(factor * chunking.chunking().workers)
        lengths = list(self.chunks)
        n = self.shape[axis]
        each = max(-(-n // max(num_partitions, 1)), 1)
        lengths[axis] = tuple([min(each, n - at) for at in range(0, n, each)]) or (0,)
        return self.rechunk(tuple(lengths))


expose(__name__, "Tensor")


def _from_values(values: NumpyArray) -> Tensor:
    import_module(PUBLIC_PACKAGE)
    grid = chunking.cut(values.shape, values.dtype.itemsize)
    return Tensor(sources.from_array(values, grid, values.dtype))


def _getitem_sample(x: Tensor, index: Any) -> Tensor:
    """Return an array with the axes that an index leaves, for any lengths."""
    entries: list[Any] = []
    for one in index if isinstance(index, tuple) else (index,):
        if isinstance(one, Tensor | np.ndarray) and one.dtype.kind == "b":
            entries += [np.zeros(1, np.intp)] * one.ndim if one.ndim else [np.True_]
        elif isinstance(one, Tensor | np.ndarray):
            entries.append(np.zeros((1,) * one.ndim, np.intp))
        else:
            entries.append(0 if isinstance(one, int) else slice(None) if isinstance(one, slice) else one)
    shape = np.broadcast_to(np.empty((), np.bool), x.shape)[tuple(entries)].shape
    made = stand_in(shape, x.dtype)
    return x.viewed(made, views.Indexed(index)) if views.is_view(index, made) else Tensor(made)


@needs_lengths(sample=_getitem_sample)
def _getitem(x: Tensor, index: Any) -> Tensor:
    made = indexing.get(x.node, nodes_in(index))
    return x.viewed(made, views.Indexed(index)) if views.is_view(index, made) else Tensor(made)


def _is_names(index: Any) -> bool:
    return type(index) is list and bool(index) and all(isinstance(one, str) for one in index)


@needs_lengths
def _fields(x: Tensor, names: tuple[str, ...]) -> Tensor:
    step = views.SeveralFields(names)
    return x.viewed(step.get(x.node), step)


@needs_lengths
def _field(x: Tensor, name: str) -> Tensor:
    fields = x.dtype.names or ()
    if name not in fields:
        raise ValueError(f"there is no field {name!r}; there are {', '.join(fields) or 'none: the type is plain'}")
    if x.dtype[name].shape:
        raise TypeError(f"field {name!r} holds arrays: only fields that hold one value each are supported")
    return x.viewed(views.Field(name).get(x.node), views.Field(name))


@needs_lengths
def _read(x: Tensor, steps: views.Steps) -> Tensor:
    return Tensor(views.read(x.node, steps))


@needs_lengths(sample=_first)
def _written(x: Tensor, steps: views.Steps, value: Tensor) -> Tensor:
    return Tensor(views.written(x.node, steps, value.node))


def _has_arrays(index: Any) -> bool:
    return any(isinstance(one, Tensor | np.ndarray | list) for one in (index if isinstance(index, tuple) else (index,)))


@needs_lengths(sample=_first)
def _setitem(x: Tensor, index: Any, value: Any) -> Tensor:
    if (x.dtype.kind == "V" and not isinstance(value, Tensor)) or is_plain(value):
        value = np.asarray(value, x.dtype)  # OverflowError, ValueError: a number does not fit, as in NumPy
    elif isinstance(value, np.generic) and not _has_arrays(index):
        held = np.empty((), x.dtype)
        held[()] = value  # OverflowError: it does not fit; NumPy checks some of its own numbers, at such an index alone
        value = held
    return Tensor(indexing.put(x.node, nodes_in(index), converted(value, x.dtype)))


@needs_lengths
def _permuted(x: Tensor, axes: tuple[int, ...]) -> Tensor:
    return x.viewed(shaping.permute(x.node, axes), views.Permuted(axes))


@needs_lengths
def apply(fn: np.ufunc, *operands: Any, out: int = 0) -> Tensor:
    """Return a ufunc of arrays and Python numbers."""
    nodes = aligned(*operands)
    if not any(isinstance(one, ArrayNode) for one in nodes):
        nodes = [as_node(one) for one in operands]
    arrays = [one for one in operands if isinstance(one, Tensor) and one._node.grid]
    columns = arrays and all(one._order == "F" for one in arrays)
    return Tensor(blocks.apply(fn, *nodes, out=out), "F" if columns else "C")


def put_into(into: Any, made: Any, where: Any = True, casting: Any = "same_kind", *, exact: bool = False) -> Any:
    """Write a result into the array that a caller gave as `out`, of Weft or NumPy, and return that array.

    TypeError: it cannot hold the result. ValueError: it has another shape; without `exact`, the result is broadcast.
    """
    if isinstance(into, tuple):
        (into,) = into
    if exact and np.shape(into) != np.shape(made):
        raise ValueError(f"out has shape {np.shape(into)}: the result has {np.shape(made)}")
    if not isinstance(into, Tensor | np.ndarray):
        raise TypeError(f"out is {type(into).__name__}: give an array")
    found = made if isinstance(made, Tensor) else Tensor(as_node(made))
    if not np.can_cast(found.dtype, into.dtype, casting):
        raise TypeError(f"Cannot cast ufunc output from {found.dtype} to {into.dtype} with casting rule {casting!r}")
    needed = np.broadcast_shapes(found.shape, np.shape(where))
    if np.broadcast_shapes(into.shape, needed) != into.shape:
        raise ValueError(f"non-broadcastable output operand with shape {into.shape}: the result has {needed}")
    if not isinstance(into, Tensor):
        chosen = where.fetch() if isinstance(where, Tensor) else where
        np.copyto(into, found.fetch(), casting=casting, where=chosen)
        return into
    grid = into.node.grid
    node = shaping.broadcast_to(converted(found, into.dtype), grid)
    if where is not True:
        chosen = shaping.broadcast_to(shaping.cast(as_node(where), np.dtype(bool)), grid)
        node = choose(chosen, node, into.node, into.dtype)
    into._set(node)
    return into


def viewed(x: Any, made: ArrayNode, step: views.Step) -> Tensor:
    """Return the result of one step from an array; a view of it, if it is a Weft array."""
    return x.viewed(made, step) if isinstance(x, Tensor) else Tensor(made)


def order_of(x: Any) -> str:
    """Return the memory order of an array's fetched values; row-major for arrays of other libraries."""
    return x._order if isinstance(x, Tensor) else "C"


@needs_lengths
def part_of(x: ArrayLike, fn: Callable[[Any], Any]) -> Tensor:
    """Return a view of the real or the imaginary part (`numpy.real`, `numpy.imag`); zeros can only be read."""
    node = as_node(x)
    if isinstance(x, Tensor) and node.dtype.kind == "c":
        part = views.ComplexPart(fn.__name__)
        return x.viewed(part.get(node), part)
    if isinstance(x, Tensor) and fn is np.real:
        return x[...]
    made = Tensor(elementwise(fn, [node], fn(np.empty(0, node.dtype)).dtype))
    made._read_only = fn is np.imag and node.dtype.kind != "c"
    return made


def as_tensor(x: Any) -> Tensor:
    """Return any value that NumPy makes an array of as a Weft array."""
    return x if isinstance(x, Tensor) else Tensor(as_node(x))
