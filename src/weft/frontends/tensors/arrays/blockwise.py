"""Users' functions over the chunks of several arrays: `map_blocks`, `blockwise`, `apply_gufunc`, `vectorize`."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from weft.frontends.tensors import reductions
from weft.frontends.tensors.arrays import shapes
from weft.frontends.tensors.arrays.array import Tensor, as_tensor
from weft.frontends.tensors.arrays.chunkwise import check_kept, read_only
from weft.frontends.tensors.arrays.conversion import aligned, as_node
from weft.frontends.tensors.arrays.deferred import needs_lengths
from weft.frontends.tensors.arrays.executables import ExecutableTuple
from weft.frontends.tensors.arrays.registry import public
from weft.frontends.tensors.blocks import fitted, mapped, pick, rechunk, whole_along
from weft.frontends.tensors.chunks import Cut, Grid, known
from weft.frontends.tensors.nodes import ArrayNode, NodeInput, call, computed
from weft.frontends.tensors.shaping import is_open
from weft.model.wording import counted

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from weft.frontends.tensors.types import DType
    from weft.operators.region_steps import ChunkPlace

_TOLD = ("block_id", "block_info")
"""The keywords of functions that ask for the position of their chunk."""
_UNUSED = ("name", "token", "meta", "enforce_ndim")
"""Keywords of dask that change no result."""


# ----------------------------------------------------------------------------------------------------------- bodies


class _Constant(NamedTuple):
    """An argument that is no array."""

    value: Any


class _Listed(NamedTuple):
    """An array some of whose axes are read in all of their chunks: nested lists of these lengths."""

    counts: tuple[int, ...]


class _Whole(NamedTuple):
    """An array of which one chunk is read."""


class _Known(NamedTuple):
    """What a function is told of an argument: its chunks, and the axis of the result that each axis follows."""

    at: int | None
    grid: Grid
    follows: tuple[int | None, ...]
    dtype: DType

    def told(self, place: Sequence[int]) -> dict[str, Any]:
        where = [0 if d is None or cut.n == 1 else place[d] for cut, d in zip(self.grid, self.follows, strict=True)]
        known_ = known(self.grid)
        spans = [cut.span(i) if cut.known else (-1, -1) for cut, i in zip(self.grid, where, strict=True)]
        found: dict[str, Any] = {
            "shape": tuple([cut.size if cut.known else np.nan for cut in self.grid]),
            "num-chunks": tuple([cut.n for cut in self.grid]),
            "array-location": spans,
            "chunk-location": tuple(where),
        }
        if self.at is None:
            found["chunk-shape"] = tuple([hi - lo if known_ else np.nan for lo, hi in spans])
            found["dtype"] = self.dtype
        return found


class _Called:
    """A user's function with its arguments; of `outs` results, each has its dtype and number of axes."""

    def __init__(
        self,
        fn: Callable[..., Any],
        pattern: Sequence[_Constant | _Listed | _Whole],
        kwargs: Mapping[str, Any],
        outs: Sequence[tuple[Grid, DType]],
        told: Sequence[_Known] = (),
        *,
        guessed: bool,
        several: bool = False,
        name: str = "map_blocks",
    ) -> None:
        self.__name__ = name
        self.fn = fn
        self.pattern = tuple(pattern)
        self.kwargs = dict(kwargs)
        self.outs = tuple(outs)
        self.told = tuple(told)
        self.asks = tuple([key for key in _TOLD if key not in self.kwargs and _takes(fn, key)])
        self.guessed = guessed
        self.several = several

    def __call__(self, place: ChunkPlace, *chunks: Any) -> Any:
        left = iter(chunks)
        made = self.fn(*[self._given(one, left) for one in self.pattern], **self.words(place.at))
        if not self.several:
            return self._checked(made, place.at, *self.outs[0])
        listed = made if isinstance(made, tuple | list) else (made,)
        if len(listed) != len(self.outs):
            raise ValueError(
                f"{self.__name__}: the function returned {counted(len(listed), 'array')}, and "
                f"{counted(len(self.outs), 'output')} are described"
            )
        return tuple([self._checked(one, place.at, *out) for one, out in zip(listed, self.outs, strict=True)])

    def words(self, place: tuple[int, ...]) -> dict[str, Any]:
        """Return the keywords of the function, with those that tell the position of its chunk."""
        if not self.asks:
            return self.kwargs
        words = dict(self.kwargs)
        if "block_id" in self.asks:
            words["block_id"] = place
        if "block_info" in self.asks:
            words["block_info"] = {one.at: one.told(place) for one in self.told}
        return words

    @staticmethod
    def _given(one: _Constant | _Listed | _Whole, left: Any) -> Any:
        if isinstance(one, _Constant):
            return one.value
        found = next(left)
        if isinstance(one, _Whole):
            return read_only(found)
        parts = [read_only(part) for part in (found if isinstance(found, list) else [found])]
        for n in reversed(one.counts):
            parts = [parts[lo : lo + n] for lo in range(0, len(parts), n)]
        return parts[0]

    def _checked(self, made: Any, place: Sequence[int], grid: Grid, dtype: DType) -> Any:
        found = _dense(made)
        wanted = tuple([cut.length(i) if cut.known else -1 for cut, i in zip(grid, place[: len(grid)], strict=False)])
        wanted += tuple([cut.size for cut in grid[len(wanted) :]])
        fits = len(wanted) == found.ndim and all(n in (-1, m) for n, m in zip(wanted, found.shape, strict=True))
        if not fits:
            shape = "x".join("?" if n < 0 else str(n) for n in wanted) or "no axes"
            raise ValueError(
                f"{self.__name__}: the function returned an array of shape {found.shape} for a chunk of {shape}: give "
                "chunks=, drop_axis= or new_axis= of what it returns"
                if self.__name__ != "apply_gufunc"
                else f"apply_gufunc: the function returned an array of shape {found.shape}, and the signature says "
                f"{shape}: correct the signature, output_sizes= or the function (vectorize=True: for each core)"
            )
        option = "output_dtypes=" if self.__name__ == "apply_gufunc" else "dtype="
        check_kept(self.__name__, found.dtype, dtype, self.guessed, option)
        return found.astype(dtype, copy=False)


def _takes(fn: Callable[..., Any], name: str) -> bool:
    try:
        return name in inspect.signature(fn).parameters
    except (TypeError, ValueError):
        return False


def _dense(made: Any) -> NDArray[Any]:
    """Return what a user's function has returned, as an array. TypeError: it is sparse."""
    if not isinstance(made, np.ndarray | Tensor) and hasattr(made, "todense"):
        raise TypeError(
            f"the function returned a sparse array ({type(made).__name__}), and these chunks are dense: "
            "x.tosparse() makes an array with sparse chunks"
        )
    return np.asarray(made)


def _tried(fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], what: str) -> Any:
    """Return the result of a user's function for arrays of single ones. Its errors get a note."""
    given = [read_only(np.ones((1,) * len(one.grid), one.dtype)) if isinstance(one, ArrayNode) else one for one in args]
    try:
        return fn(*given, **kwargs)
    except Exception as error:
        error.add_note(f"Raised in a trial of the function on arrays of single ones. Give {what} to skip the trial.")
        raise


def _dtype_of(given: Any, meta: Any, trial: Callable[[], Any]) -> DType:
    """Return the given dtype, that of a sample, or that of a trial. TypeError: text without a length."""
    found = given if given is not None else getattr(meta, "dtype", None)
    dtype = np.dtype(found) if found is not None else _dense(trial()).dtype
    if is_open(dtype):
        raise TypeError(f"dtype is {dtype} without a length or unit: give one, such as 'U10'")
    return dtype


# ------------------------------------------------------------------------------------------------------- map_blocks


def _axes(given: Any) -> list[int]:
    if given is None:
        return []
    return [int(one) for one in (given if isinstance(given, Iterable) else (given,))]


def common(nodes: Sequence[ArrayNode]) -> tuple[Grid, list[ArrayNode]]:
    """Return the chunks over which arrays are broadcast, and the arrays in these chunks.

    Axes of one length get the chunks of the one with the most. Axes of different lengths go together chunk by chunk, if
    they have equally many. ValueError: they do not go together.
    """
    ndim = max((len(node.grid) for node in nodes), default=0)
    cuts: list[Cut] = []
    for axis in range(ndim):
        found = [node.grid[axis - ndim + len(node.grid)] for node in nodes if axis - ndim + len(node.grid) >= 0]
        long = [cut for cut in found if cut.size != 1] or found
        most = max(long, key=lambda cut: cut.n)
        for cut in long:
            if cut.size != most.size and cut.n != most.n:
                raise ValueError(
                    f"axis {axis} has {most.size} elements in {counted(most.n, 'chunk')} of one array, and {cut.size} "
                    f"in {counted(cut.n, 'chunk')} of another: give axes of one length, or of equally many chunks"
                )
        cuts.append(most if all(cut.size == most.size for cut in long) else long[0])
    fits = []
    for node in nodes:
        own = cuts[ndim - len(node.grid) :]
        wanted = [cut if cut.size == 1 or cut.size != by.size else by for cut, by in zip(node.grid, own, strict=True)]
        fits.append(rechunk(node, tuple(wanted)))
    return tuple(cuts), fits


def _declared(chunks: Any, before: Sequence[Cut]) -> Grid:
    """Return the chunks that a user declares for a result: for each axis a length, or the lengths of all chunks."""
    listed = chunks if isinstance(chunks, tuple | list) else (chunks,)
    if len(listed) != len(before):
        raise ValueError(
            f"chunks= describes {counted(len(listed), 'axis', 'axes')}, and the result has {len(before)}: give one "
            "entry for each"
        )
    return tuple([_cut(one, cut) for one, cut in zip(listed, before, strict=True)])


def _cut(given: Any, cut: Cut) -> Cut:
    """Return a cut of declared lengths into as many chunks as another one; NaN are unknown lengths."""
    if given is None:
        return cut
    lengths = list(given) if isinstance(given, tuple | list) else [given] * max(1, cut.n)
    if cut.n not in (1, len(lengths)):
        raise ValueError(f"chunks= has {counted(len(lengths), 'length')} for {counted(cut.n, 'chunk')}")
    if any(n != n for n in lengths):
        return Cut.unknown(len(lengths))
    found = Cut.of([int(n) for n in lengths])
    if found.n == len(lengths):
        return found
    return Cut(sum(lengths), len(lengths), 0, tuple(np.cumsum(lengths).tolist()))


@public()
@needs_lengths
def map_blocks(
    fn: Callable[..., Any],
    *args: Any,
    dtype: Any = None,
    chunks: Any = None,
    drop_axis: Any = None,
    new_axis: Any = None,
    **kwargs: Any,
) -> Tensor:
    """Return the results of a function for the chunks of arrays at one place, beside its other arguments.

    Arrays are broadcast: an axis of length 1, or a missing one, gives its only chunk to all calls. The result has the
    chunks of the arrays. `drop_axis` are axes that the function removes; they become one chunk. `new_axis` are axes of
    the result that it adds. `chunks` gives the lengths of the result's chunks where the function changes them: for each
    axis a number or the lengths of all chunks, NaN for unknown ones.

    A function with a parameter `block_id` gets the position of its chunk in the grid of the result; one with
    `block_info` a dictionary: for the number of each array among the arguments, and for None, the result, `shape`,
    `num-chunks`, `array-location` (first position and the one after the last along each axis) and `chunk-location`;
    for the result `chunk-shape` and `dtype` too. Chunks must not be changed in place.

    Without `dtype` the function is tried on arrays of single ones. ValueError: the arrays do not go together; or, when
    computed, a result has another shape than its chunk, or values of another kind than on the trial.
    """
    kwargs = computed({key: one for key, one in kwargs.items() if key not in _UNUSED})
    where = [i for i, one in enumerate(args) if isinstance(one, Tensor | np.ndarray) and np.ndim(one)]
    if not where:
        raise ValueError("map_blocks: no argument is an array: give one at least")
    grid, nodes = common([one for one in aligned(*[args[i] for i in where]) if isinstance(one, ArrayNode)])
    dropped = {reductions.axis_of(axis, len(grid)) for axis in _axes(drop_axis)}
    if any(grid[axis].n > 1 for axis in dropped):
        nodes = [
            whole_along(node, [a - len(grid) + len(node.grid) for a in dropped if a >= len(grid) - len(node.grid)])
            for node in nodes
        ]
        grid, nodes = common(nodes)
    kept: list[int | None] = [axis for axis in range(len(grid)) if axis not in dropped]
    added = _axes(new_axis)
    for axis in sorted(reductions.axis_of(axis, len(kept) + len(added)) for axis in added):
        kept.insert(axis, None)
    made: Grid = tuple([Cut.whole(1) if axis is None else grid[axis] for axis in kept])
    out = made if chunks is None else _declared(chunks, made)
    inputs: list[NodeInput] = []
    fixed = [None if i in where else computed(one) for i, one in enumerate(args)]
    pattern: list[_Constant | _Listed | _Whole] = [_Constant(one) for one in fixed]
    told: list[_Known] = []
    for i, node in zip(where, nodes, strict=True):
        shift = len(grid) - len(node.grid)
        axes = [None if axis is None or axis < shift else axis - shift for axis in kept]
        inputs.append(mapped(node, out, axes))
        pattern[i] = _Whole()
        follows = [axes.index(axis) if axis in axes else None for axis in range(len(node.grid))]
        told.append(_Known(i, node.grid, tuple(follows), node.dtype))
    tried: list[Any] = list(fixed)
    for i, node in zip(where, nodes, strict=True):
        tried[i] = node

    def body(kind: DType) -> _Called:
        own = _Known(None, out, tuple(range(len(out))), kind)
        return _Called(fn, pattern, kwargs, [(out, kind)], [*told, own], guessed=dtype is None)

    words = body(np.dtype(float)).words((0,) * len(out))
    kind = _dtype_of(dtype, None, lambda: _tried(fn, tried, words, "dtype="))
    return Tensor(call(body(kind), inputs, out, kind, placed=True, unique=True, name="map_blocks"))


# -------------------------------------------------------------------------------------------------------- blockwise


def cuts_by_label(pairs: Sequence[tuple[Any, Any]]) -> dict[Any, Cut]:
    """Return for each label of axes the cut with the most chunks, among axes longer than 1.

    ValueError: axes with one label have different lengths.
    """
    cuts: dict[Any, Cut] = {}
    for one, labels in pairs:
        if labels is None:
            continue
        node = as_node(one)
        if len(labels) != len(node.grid):
            raise ValueError(
                f"{counted(len(labels), 'label')} for an array of {len(node.grid)} axes: give one for each"
            )
        for label, cut in zip(labels, node.grid, strict=True):
            before = cuts.get(label)
            if before is not None and before.size != cut.size and 1 not in (before.size, cut.size):
                raise ValueError(f"axes with the label {label!r} have {before.size} and {cut.size} elements")
            if before is None or before.size == 1 or (cut.size != 1 and cut.n > before.n):
                cuts[label] = cut
    return cuts


def _adjusted(cut: Cut, change: Any) -> Cut:
    if change is None:
        return cut
    return _cut([change(n) for n in cut.lengths()] if callable(change) else change, cut)


@public()
@needs_lengths
def blockwise(
    fn: Callable[..., Any],
    out_ind: Iterable[Any],
    *args: Any,
    dtype: Any = None,
    adjust_chunks: Mapping[Any, Any] | None = None,
    new_axes: Mapping[Any, Any] | None = None,
    align_arrays: bool = True,
    concatenate: bool | None = None,
    **kwargs: Any,
) -> Tensor:
    """Return the results of a function for chunks of arrays whose axes have labels, as the indices of `einsum`.

    `args` are arrays and the labels of their axes in turn; an argument with None is given as it is. The result has a
    chunk for each combination of chunks of the axes `out_ind`. The chunks of axes that the result lacks come as lists
    (of lists), or joined with `concatenate`. `new_axes` gives the lengths of axes that only the result has,
    `adjust_chunks` the lengths of the chunks that the function changes: a function of a length, a number, or lengths.
    Axes with one label get the same chunks; with `align_arrays` false they have them.

    Without `dtype` the function is tried on arrays of single ones. ValueError: the arrays do not go together.
    """
    kwargs = computed({key: one for key, one in kwargs.items() if key not in _UNUSED})
    labels = list(out_ind)
    if len(args) % 2:
        raise ValueError("blockwise: give each array with the labels of its axes, and other arguments with None")
    pairs = [(args[i], None if args[i + 1] is None else list(args[i + 1])) for i in range(0, len(args), 2)]
    cuts = cuts_by_label(pairs)
    for label, n in (new_axes or {}).items():
        cuts[label] = Cut.of(n) if isinstance(n, tuple | list) else Cut.whole(n)
    if lacking := [label for label in labels if label not in cuts]:
        raise ValueError(f"no array has the axis {lacking[0]!r} of the result: give its length in new_axes=")
    if concatenate:
        cuts.update({label: Cut.whole(cut.size) for label, cut in cuts.items() if label not in labels})
    read: Grid = tuple([cuts[label] for label in labels])
    out: Grid = tuple([_adjusted(cuts[label], (adjust_chunks or {}).get(label)) for label in labels])
    inputs: list[NodeInput] = []
    pattern: list[_Constant | _Listed | _Whole] = []
    tried: list[Any] = []
    for one, names in pairs:
        if names is None:
            pattern.append(_Constant(computed(one)))
            tried.append(computed(one))
            continue
        node = fitted(as_node(one), tuple([cuts[label] for label in names]))
        inputs.append(mapped(node, read, [names.index(label) if label in names else None for label in labels]))
        lists = [node.grid[axis].n for axis, label in enumerate(names) if label not in labels]
        pattern.append(_Whole() if concatenate or not lists else _Listed(tuple(lists)))
        tried.append(node)

    def trial() -> Any:
        given: list[Any] = [
            np.ones((1,) * len(one.grid), one.dtype) if isinstance(one, ArrayNode) else one for one in tried
        ]
        for i, how in enumerate(pattern):
            for _ in how.counts if isinstance(how, _Listed) else ():
                given[i] = [given[i]]
        return _tried(fn, given, kwargs, "dtype=")

    kind = _dtype_of(dtype, None, trial)
    body = _Called(fn, pattern, kwargs, [(out, kind)], guessed=dtype is None, name="blockwise")
    return Tensor(call(body, inputs, out, kind, placed=True, unique=True, name=getattr(fn, "__name__", "blockwise")))


# ----------------------------------------------------------------------------------------------------- apply_gufunc

_NAME = r"[^\W\d]\w*"
_CORE = rf"\((?:{_NAME}(?:,{_NAME})*)?\)"
_SIGNATURE = re.compile(rf"(?:{_CORE}(?:,{_CORE})*)?->{_CORE}(?:,{_CORE})*,?")


def parsed_signature(signature: str) -> tuple[list[list[str]], list[list[str]]]:
    """Return the core dimensions of each argument, and of each result. ValueError: it is no signature."""
    text = re.sub(r"\s", "", signature)
    if not _SIGNATURE.fullmatch(text):
        raise ValueError(f"{signature!r} is no signature: write core dimensions as in '(i,j),(j)->(i)'")
    left, right = [
        [[name for name in part.split(",") if name] for part in re.findall(r"\(([^()]*)\)", side)]
        for side in text.split("->")
    ]
    return left, right


def _moved_in(args: Sequence[Any], ins: Sequence[Sequence[str]], axes: Sequence[Any]) -> list[Any]:
    """Return arrays with their core dimensions last; `axes` has the positions of these for each array."""
    made = []
    for one, names, given in zip(args, ins, axes, strict=False):
        listed = _axes(given)
        if len(listed) != len(names):
            raise ValueError(f"axes= has {counted(len(listed), 'axis', 'axes')} for {len(names)} core dimensions")
        made.append(shapes.moveaxis(as_tensor(one), listed, tuple(range(-len(names), 0))) if names else one)
    return made


@public()
@needs_lengths
def apply_gufunc(
    fn: Callable[..., Any],
    signature: str,
    *args: Any,
    axes: Any = None,
    axis: int | None = None,
    keepdims: bool = False,
    output_dtypes: Any = None,
    output_sizes: Mapping[str, int] | None = None,
    vectorize: bool | None = None,
    allow_rechunk: bool = False,
    meta: Any = None,
    **kwargs: Any,
) -> Any:
    """Return the results of a function of whole core dimensions, for chunks of all other ones.

    `signature` names core dimensions, which are the last axes: "(i,j),(j)->(i)". All other axes are broadcast. `axes`
    are the positions of the core dimensions in each array and each result, `axis` the position of the only one; with
    `keepdims` results of no core dimension keep the axes, with length 1. Several results are a tuple, of one call for
    each chunk. `output_sizes` are the lengths of dimensions that only results have. `vectorize` calls the function for
    each core by itself. A core dimension must be one chunk, unless `allow_rechunk`.

    Without `output_dtypes` the function is tried on arrays of single ones. ValueError: the arrays do not fit the
    signature, or a core dimension has several chunks; or, when computed, a result has another shape.
    """
    kwargs = computed(kwargs)
    ins, outs = parsed_signature(signature)
    if len(ins) != len(args):
        raise ValueError(f"{signature!r} takes {counted(len(ins), 'array')}; {len(args)} are given")
    if axis is not None:
        if axes is not None:
            raise ValueError("apply_gufunc takes axis= or axes=, not both")
        if {len(names) for names in (*ins, *outs)} - {0, 1} or len({n for names in ins for n in names}) != 1:
            raise ValueError(f"axis= needs a signature with one core dimension, and {signature!r} has others")
        axes = [(axis,) * len(names) for names in (*ins, *outs)]
    if keepdims and (len({len(names) for names in ins}) != 1 or any(outs)):
        raise ValueError("keepdims= needs equally many core dimensions of all arrays, and results without any")
    if axes is not None:
        axes = list(axes) + [()] * (len(ins) + len(outs) - len(axes)) if not any(outs) or keepdims else list(axes)
        if len(axes) != len(ins) + len(outs):
            raise ValueError(f"axes= has {counted(len(axes), 'entry', 'entries')} for {len(ins) + len(outs)} arrays")
        args = tuple(_moved_in(args, ins, axes))
    nodes = [as_node(one) for one in args]
    sizes: dict[str, int] = {}
    for node, names in zip(nodes, ins, strict=True):
        if len(node.grid) < len(names):
            raise ValueError(f"an array of {len(node.grid)} axes has no core dimensions ({','.join(names)})")
        for name, cut in zip(names, node.grid[len(node.grid) - len(names) :], strict=True):
            if sizes.setdefault(name, cut.size) != cut.size:
                raise ValueError(f"the core dimension {name!r} has {sizes[name]} elements, and {cut.size} elsewhere")
            if cut.n > 1 and not allow_rechunk:
                raise ValueError(
                    f"dimension {name} is a core dimension and consists of {cut.n} chunks: make it one chunk, "
                    "or give allow_rechunk=True"
                )
    sizes.update(output_sizes or {})
    if lacking := [name for names in outs for name in names if name not in sizes]:
        raise ValueError(f"the length of dimension {lacking[0]!r} is unknown: give it in output_sizes=")
    whole = [
        whole_along(node, range(len(node.grid) - len(names), len(node.grid))) if names else node
        for node, names in zip(nodes, ins, strict=True)
    ]
    batch = _batch([node.grid[: len(node.grid) - len(names)] for node, names in zip(whole, ins, strict=True)])
    inputs = []
    for node, names in zip(whole, ins, strict=True):
        own = len(node.grid) - len(names)
        node = fitted(node, (*batch[len(batch) - own :], *node.grid[own:]))
        missing = len(batch) - own
        inputs.append(mapped(node, batch, [None if d < missing else d - missing for d in range(len(batch))]))
    several = signature.strip().endswith(",") or len(outs) > 1
    tried = np.vectorize(fn, signature=signature) if vectorize else fn
    kinds = _output_dtypes(output_dtypes, meta, len(outs), lambda: _tried_gufunc(tried, nodes, ins, kwargs))
    results = [
        ((*batch, *[Cut.whole(sizes[name]) for name in names]), kind) for names, kind in zip(outs, kinds, strict=True)
    ]
    pattern = [_Whole()] * len(inputs)
    guessed = output_dtypes is None and meta is None
    if vectorize:
        fn = _Cores(fn, signature, kinds, guessed, several)
    body = _Called(fn, pattern, kwargs, results, guessed=guessed, several=several, name="apply_gufunc")
    made = call(body, inputs, *results[0], placed=True, unique=True, name="gufunc")
    found = [Tensor(pick(made, at, *one, "gufunc")) for at, one in enumerate(results)] if several else [Tensor(made)]
    if keepdims:
        found = [shapes.expand_dims(one, tuple(range(-len(ins[0]), 0))) for one in found]
    if axes is not None:
        for at, names in enumerate(outs):
            back = _axes(axes[len(ins) + at] or (axes[0] if keepdims else ()))
            if len(back) != (len(ins[0]) if keepdims else len(names)):
                raise ValueError(f"axes= has {counted(len(back), 'axis', 'axes')} for {len(names)} core dimensions")
            found[at] = shapes.moveaxis(found[at], tuple(range(-len(back), 0)), back) if back else found[at]
    return ExecutableTuple(found) if several else found[0]


def _batch(grids: Sequence[Grid]) -> Grid:
    """Return the broadcast cuts of axes; ValueError as NumPy's: they do not go together."""
    shape = np.broadcast_shapes(*[tuple([cut.size for cut in grid]) for grid in grids])
    cuts = []
    for axis, size in enumerate(shape):
        there = [grid[axis - len(shape) + len(grid)] for grid in grids if axis - len(shape) + len(grid) >= 0]
        cuts.append(max([cut for cut in there if cut.size == size], key=lambda cut: cut.n))
    return tuple(cuts)


class _Cores:
    """A user's function of single cores, called for all of a chunk.

    Its results are collected as objects, unless they are numbers of a type that is given: `numpy.vectorize` alone cuts
    all of them to the type of the first one.
    """

    def __init__(
        self, fn: Callable[..., Any], signature: str | None, kinds: Sequence[DType], guessed: bool, several: bool
    ) -> None:
        held = [np.dtype(object) if guessed or kind.kind not in "biufc" else kind for kind in kinds]
        self.each = np.vectorize(fn, otypes=held, signature=signature)
        self.kinds = kinds
        self.several = several

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        made = self.each(*args, **kwargs)
        if not self.several:
            return _in_own_type(made, self.kinds[0])
        listed = made if isinstance(made, tuple) else (made,)
        return tuple([_in_own_type(one, kind) for one, kind in zip(listed, self.kinds, strict=True)])


def _in_own_type(made: Any, dtype: DType) -> Any:
    """Return results in the type that they have together, which may not fit into `dtype`; integers in `dtype`."""
    given = _dense(made)
    if given.dtype.kind != "O" or dtype.kind == "O":
        return given
    own = np.array(given.tolist()) if given.size else given
    fits = own.dtype.kind in "OMm" or (own.dtype.kind in "biu" and dtype.kind in "iu")
    return given.astype(dtype) if fits or own.shape != given.shape else own


def _tried_gufunc(
    fn: Callable[..., Any], nodes: Sequence[ArrayNode], ins: Sequence[Sequence[str]], kwargs: Mapping[str, Any]
) -> Any:
    return _tried(fn, nodes, kwargs, "output_dtypes=")


def _output_dtypes(given: Any, meta: Any, n: int, trial: Callable[[], Any]) -> list[DType]:
    if given is None and meta is not None:
        given = [one.dtype for one in (meta if isinstance(meta, tuple | list) else [meta])]
    if given is None:
        made = trial()
        given = [_dense(one).dtype for one in made] if n > 1 else [_dense(made).dtype]
    listed = [np.dtype(one) for one in given] if isinstance(given, tuple | list | str) and n > 1 else None
    if listed is None:
        listed = [np.dtype(given[0] if isinstance(given, tuple | list) else given)] * n
    if len(listed) != n:
        raise ValueError(f"output_dtypes has {counted(len(listed), 'dtype')} for {counted(n, 'output')}")
    if any(map(is_open, listed)):
        raise TypeError("a dtype of output_dtypes has no length or unit: give one, such as 'U10'")
    return listed


@public()
class vectorize:  # noqa: N801
    """A function of single elements (or, with `signature`, of cores) that is called for arrays, chunk by chunk.

    Arguments as those of `numpy.vectorize`. Without `otypes` the function is tried on ones. Results are arrays of Weft.
    """

    def __init__(
        self,
        pyfunc: Callable[..., Any],
        otypes: Any = None,
        doc: str | None = None,
        excluded: Iterable[int | str] | None = None,
        cache: bool = False,
        signature: str | None = None,
    ) -> None:
        self.pyfunc = pyfunc
        self.otypes = [np.dtype(one) for one in otypes] if otypes is not None else None
        self.excluded = frozenset(excluded or ())
        self.signature = signature
        self.__doc__ = doc or pyfunc.__doc__
        self.__name__ = getattr(pyfunc, "__name__", "vectorize")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return the results for arrays, which are broadcast. ValueError: they do not go together."""
        kwargs = computed(kwargs)
        fixed = {i: computed(one) for i, one in enumerate(args) if i in self.excluded}
        given = [one for i, one in enumerate(args) if i not in fixed]
        if not given:
            raise ValueError("args can not be empty: give an array")
        fn = _Single(self.pyfunc, fixed)
        otypes = self.otypes
        if self.signature is None and otypes is None:
            made = fn(*[np.ones((), as_tensor(one).dtype)[()] for one in given], **kwargs)
            otypes = [np.asarray(one).dtype for one in (made if isinstance(made, tuple) else (made,))]
        outs = len(otypes) if otypes is not None else 1
        signature = self.signature or f"{','.join(['()'] * len(given))}->{','.join(['()'] * outs)}"
        if self.signature is not None:
            return apply_gufunc(
                fn, signature, *given, vectorize=True, output_dtypes=otypes, allow_rechunk=True, **kwargs
            )
        each = _Cores(fn, None, otypes or [], guessed=self.otypes is None, several=outs > 1)
        return apply_gufunc(each, signature, *given, output_dtypes=self.otypes, allow_rechunk=True, **kwargs)


class _Single:
    """A function of one element, with the arguments that are no arrays at their places."""

    def __init__(self, fn: Callable[..., Any], fixed: Mapping[int, Any]) -> None:
        self.fn = fn
        self.fixed = dict(fixed)

    def __call__(self, *given: Any, **kwargs: Any) -> Any:
        left = iter(given)
        total = len(given) + len(self.fixed)
        return self.fn(*[self.fixed[i] if i in self.fixed else next(left) for i in range(total)], **kwargs)
