"""The body of a tensor task: a linear program of NumPy calls over one chunk, tile by tile where possible.

A chain of ufuncs over whole chunks moves every intermediate array through main memory. This module runs consecutive
ufuncs over tiles that fit the cache, with reused `out=` buffers, and a reduction at the end takes each finished tile:
only the operands are read from memory, once. NumPy does the arithmetic, so dtypes and special values are those of
NumPy; it releases the lock of the interpreter meanwhile. Chains of simple ufuncs that run often become compiled loops
(`loops.py`) with the same results.

Sums of floating-point numbers are added tile by tile, so their last bits may differ from those of `numpy.sum` over the
whole chunk; the order of the tiles is always the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from math import prod
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from weft.operators.blas import use
from weft.operators.loops import LANES, LOOPS, SIMPLE, LoopChain, call_loop, call_sum, chains, kind_of, there, with_sum
from weft.operators.namespaces import NUMPY, namespace, numbers
from weft.operators.region_steps import ChunkPlace, KernelKind, OperandSlot, RegionStep

if TYPE_CHECKING:
    from weft.operators.destinations import ChunkDestination


def _level_two() -> int:
    """Return the bytes of the level-2 cache of a core; 0 if the system does not report it."""
    for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*"):
        with suppress(OSError, ValueError):
            if (path / "level").read_text().strip() == "2":
                return int((path / "size").read_text().strip().removesuffix("K")) * 1024
    return 0


def tile_of(cache: int) -> int:
    """Return the number of 8-byte elements of a tile, so that four tiles fill `cache` bytes, within bounds.

    Four are the operands and buffers of most programs. Measured with a cache of 2 MiB, where 64K elements took 0.75 of
    the time of 256K, and with a cache of 1 MiB, where 64K to 256K were about equally fast, and 32K slower on two
    threads.
    """
    return min(max(cache // 32, 64 * 1024), 256 * 1024)


TILE = tile_of(_level_two())
"""The number of elements of a tile."""
_SIMPLE_TIMES: Final = 2
"""How much larger the tiles of simple ufuncs are.

A thread takes the interpreter's lock after each call, and such a call over `TILE` elements takes 40 us only. Measured
on two threads with a cache of 512 KiB: 0.85 to 0.95 of the time, with and without compiled loops; functions such as
`exp` gain nothing.
"""


def raised_errors() -> tuple[str, ...]:
    """Return the floating-point errors that `numpy.errstate` lets raise in this thread."""
    return tuple([name for name, how in np.geterr().items() if how == "raise"])


def quiet(raised: Sequence[str]) -> Any:
    """Return a context in which these floating-point errors raise. Others are silent: NaN and infinity are values."""
    return np.errstate(all="ignore", **dict.fromkeys(raised, "raise"))  # type: ignore[arg-type]


class Region:
    """A fused region: inputs take the first slots, each step takes the next one; the last slot is the value.

    The compiler of a graph makes it once, and every task calls it. `largest` is the largest number of elements of a
    chunk, None if unknown: tiles do not pay for small chunks. `threads` is the number of BLAS threads in a process that
    computes one task at a time; 0 leaves it unchanged. `space` is the array namespace; any other than NumPy's computes
    whole chunks. `raised` are the floating-point errors that raise. `into` is the array that tasks on threads write
    their values to, which are None then; a copy in another process returns values.
    """

    def __init__(
        self,
        inputs: int,
        steps: Sequence[RegionStep],
        largest: int | None = None,
        threads: int = 0,
        space: str = NUMPY,
        raised: tuple[str, ...] = (),
        into: ChunkDestination | None = None,
    ) -> None:
        self.inputs = inputs
        self.steps = tuple(steps)
        self.largest = largest
        self.threads = threads
        self.space = space
        self.raised = raised
        self.into = into
        self._room = [None] * len(self.steps)
        self.tiled = largest is None or largest > TILE
        self._parts = tuple(_parts(inputs, self.steps, tiled=self.tiled))

    def __call__(self, index: int, *values: Any) -> Any:
        """Return chunk `index` from the values that it reads; None if it lies in its place."""
        slots: list[Any] = [*values, *self._room]
        if self.threads:
            use(self.threads)
        with quiet(self.raised):
            if self.into is None:
                return self._made(index, slots)
            return self.into.fill(index, partial(self._made, index, slots))

    def _made(self, index: int, slots: list[Any], out: Any = None) -> Any:
        """Return chunk `index`, in `out` if that is an array and the last step can write there."""
        if self.space != NUMPY:
            return self._elsewhere(index, slots)
        parts = self._parts
        if out is not None:
            parts = (*parts[:-1], (self._last_into(out), ()))
        for run, dead in parts:
            run(index, slots)
            for slot in dead:
                slots[slot] = None
        return slots[-1]

    def _last_into(self, out: Any) -> Run:
        """Return the last part of the program with `out` for its value."""
        run, _ = self._parts[-1]
        if isinstance(run, _Tiled):
            return partial(run, out=out)
        return step_into(self.steps[-1], self.inputs + len(self.steps) - 1, out) or run

    def _elsewhere(self, index: int, slots: list[Any]) -> Any:
        """Run the steps in order, with the functions of `space` where it has them."""
        space = namespace(self.space)
        last = _last_reads(self.inputs, self.steps)
        for at, step in enumerate(self.steps):
            slot = self.inputs + at
            given = [slots[arg.at] if type(arg) is OperandSlot else arg for arg in step.args]
            fn = None
            if all(map(numbers, given)):
                if step.kind is KernelKind.REDUCE:
                    fn = space.reduced(step.fn, step.dtype)
                elif step.kind in (KernelKind.UFUNC, KernelKind.CALL):
                    fn = space.called(step.fn)
            if fn is None:
                for arg in step.args:
                    if type(arg) is OperandSlot:
                        slots[arg.at] = space.outside(slots[arg.at])
                whole_step(step, slot)(index, slots)
            else:
                slots[slot] = fn(*map(space.inside, given), **step.kwargs)
            for read, when in last.items():
                if when == at:
                    slots[read] = None
        made = space.outside(slots[-1])
        return made.astype(self.steps[-1].dtype, copy=False) if isinstance(made, np.ndarray) else made

    def __reduce__(self) -> tuple[Any, ...]:
        return Region, (self.inputs, self.steps, self.largest, self.threads, self.space, self.raised)


Run = Callable[[int, list[Any]], None]
"""A function that fills the slots of one or more steps for a chunk."""


def whole_step(step: RegionStep, slot: int) -> Run:
    """Return the function that runs one step over the whole chunk. Chunks may be tiny, so all look-ups happen here."""
    fn, args, kwargs, place = step.fn, step.args, step.kwargs, step.place
    constants = [arg for arg in args if type(arg) is not OperandSlot]
    at = [arg.at for arg in args if type(arg) is OperandSlot]
    if step.kind is KernelKind.FILL:
        assert place is not None
        dtype = step.dtype

        def run(index: int, slots: list[Any]) -> None:
            here = place(index)
            made = slots[slot] = np.empty(here.shape, dtype)
            fn(here, **kwargs)(made.reshape(-1))

    elif step.kind is KernelKind.PLACED:
        assert place is not None

        def run(index: int, slots: list[Any]) -> None:
            given = [slots[arg.at] if type(arg) is OperandSlot else arg for arg in args]
            slots[slot] = fn(place(index), *given, **kwargs)

    elif step.kind is KernelKind.REDUCE:
        (only,) = at
        reduce = _reducer(step)

        def run(index: int, slots: list[Any]) -> None:
            slots[slot] = reduce(slots[only])

    elif kwargs or len(args) > 2 or not at:

        def run(index: int, slots: list[Any]) -> None:
            given = [slots[arg.at] if type(arg) is OperandSlot else arg for arg in args]
            slots[slot] = fn(*given, **kwargs)

    elif len(args) == 1:
        (only,) = at

        def run(index: int, slots: list[Any]) -> None:
            slots[slot] = fn(slots[only])

    elif not constants:
        left, right = at

        def run(index: int, slots: list[Any]) -> None:
            slots[slot] = fn(slots[left], slots[right])

    elif type(args[0]) is OperandSlot:
        (only,), (constant,) = at, constants

        def run(index: int, slots: list[Any]) -> None:
            slots[slot] = fn(slots[only], constant)

    else:
        (only,), (constant,) = at, constants

        def run(index: int, slots: list[Any]) -> None:
            slots[slot] = fn(constant, slots[only])

    return run


def step_into(step: RegionStep, slot: int, out: Any) -> Run | None:
    """Return the function that runs one step over the whole chunk and puts its value into `out`.

    None: the step makes an array of its own. A value of another type or shape than `out` is one, too.
    """
    fn, args, kwargs, place = step.fn, step.args, step.kwargs, step.place
    if out.dtype != step.dtype:
        return None
    if step.kind is KernelKind.FILL and out.flags.c_contiguous:
        assert place is not None

        def run(index: int, slots: list[Any]) -> None:
            fn(place(index), **kwargs)(out.reshape(-1))
            slots[slot] = out

    elif (step.kind is KernelKind.UFUNC and fn.nout == 1) or getattr(fn, "takes_out", False):

        def run(index: int, slots: list[Any]) -> None:
            given = [slots[arg.at] if type(arg) is OperandSlot else arg for arg in args]
            slots[slot] = fn(*given, **kwargs, out=out)

    else:
        return None
    return run


def _reducer(step: RegionStep, *, flat: bool = False) -> Callable[[Any], Any]:
    """Return the function that reduces one array or tile; to a number if `flat`."""
    if flat:
        return partial(step.fn.reduce, dtype=_wide(step))
    return partial(step.fn.reduce, keepdims=True, dtype=_wide(step), **step.kwargs)


_SUMS = frozenset({np.add, np.multiply})
"""Reductions with a dtype that may be wider than that of their input."""


class _Tiled:
    """Element-wise steps, with an optional reduction at their end, tile by tile.

    A chunk no larger than a tile runs one step after the other.
    """

    def __init__(self, steps: Sequence[tuple[RegionStep, int]], wanted: Sequence[int]) -> None:
        self.steps = tuple(steps)
        self.whole = tuple(whole_step(step, slot) for step, slot in steps)
        self.wanted = tuple(wanted)
        """The slots whose whole values are read later; all other values live in scratch buffers."""
        own = {slot for _, slot in steps}
        self.outside = tuple(
            sorted({arg.at for step, _ in steps for arg in step.args if type(arg) is OperandSlot} - own)
        )
        self.tail = steps[-1] if steps[-1][0].kind is KernelKind.REDUCE else None
        self.buffer = _buffers(self.steps, self.wanted)
        simple = all(step.kind is KernelKind.REDUCE or step.fn in SIMPLE for step, _ in steps)
        self.times = _SIMPLE_TIMES if simple else 1
        self._chains: dict[tuple[Any, ...], list[LoopChain]] = {}
        self._sums: dict[tuple[Any, ...], LoopChain | None] = {}
        self._looped: dict[tuple[Any, ...], tuple[list[tuple[RegionStep, int]], dict[int, int]]] = {}

    def __call__(self, index: int, slots: list[Any], out: Any = None) -> None:
        """Fill the slots for a chunk; the last one with `out`, if that is given and no reduction follows."""
        places = {slot: step.place(index) for step, slot in self.steps if step.kind is KernelKind.FILL and step.place}
        operands = {slot: np.asarray(slots[slot]) for slot in self.outside}
        shapes = [operand.shape for operand in operands.values()] + [place.shape for place in places.values()]
        shape = np.broadcast_shapes(*shapes)
        if prod(shape) <= self.times * TILE or any(place.shape != shape for place in places.values()):
            last = None if out is None else step_into(*self.steps[-1], out)
            for run in self.whole if last is None else (*self.whole[:-1], last):
                run(index, slots)
            return
        if self.tail is not None or (out is not None and (out.shape, out.dtype) != (shape, self.steps[-1][0].dtype)):
            out = None
        order = None if places else memory_order(list(operands.values()), shape)
        if order is None:
            self._run_tiles(slots, shape, operands, places, self.tail, out)
            return
        turned = {slot: _aligned(x, len(shape)).transpose(order) if x.ndim else x for slot, x in operands.items()}
        tail = self.tail
        if tail is not None and tail[0].kwargs["axis"] is not None:
            axes = tuple([order.index(axis % len(order)) for axis in tail[0].kwargs["axis"]])
            tail = tail[0]._replace(kwargs={"axis": axes}), tail[1]
        turned_out = None if out is None else out.transpose(order)
        self._run_tiles(slots, tuple([shape[axis] for axis in order]), turned, places, tail, turned_out)
        back = [order.index(axis) for axis in range(len(order))]
        for slot in self.wanted:
            slots[slot] = slots[slot].transpose(back)
        if out is not None:
            slots[self.steps[-1][1]] = out

    def _run_tiles(
        self,
        slots: list[Any],
        shape: tuple[int, ...],
        operands: dict[int, Any],
        places: dict[int, ChunkPlace],
        tail: tuple[RegionStep, int] | None,
        out: Any,
    ) -> None:
        flat = tail is None or _reduces_all(tail[0], len(shape))
        flat = flat and all(x.ndim == 0 or (x.shape == shape and x.flags.c_contiguous) for x in operands.values())
        in_order = out is None or out.flags.c_contiguous
        flat = flat and in_order
        steps: Sequence[tuple[RegionStep, int]] = self.steps
        buffer = self.buffer
        if there() and not raised_errors():  # a loop raises none
            chain = None if tail is None or not flat else self._with_sum(operands, shape)
            if chain is None:
                steps, buffer = self._with_loops(operands, shape, in_order=in_order)
            elif tail is not None and (loop := LOOPS.get(chain.expression, prod(shape))):
                parts = self._summed(partial(call_sum, loop, chain.expression), chain, operands, slots)
                slots[tail[1]] = _joined(tail[0], parts, shape, flat)
                return
        made = {slot: np.empty(shape, step.dtype) for step, slot in steps[:-1] if slot in self.wanted}
        if tail is None and self.steps[-1][1] in self.wanted:
            step, slot = self.steps[-1]
            made[slot] = np.empty(shape, step.dtype) if out is None else out
        if flat:
            operands = {slot: x if x.ndim == 0 else x.reshape(-1) for slot, x in operands.items()}
            whole = {slot: x.reshape(-1) for slot, x in made.items()}
            tiles = _rows((prod(shape),), self.times * TILE)
        else:
            operands = {slot: _aligned(x, len(shape)) for slot, x in operands.items()}
            whole = made
            tiles = _rows(shape, self.times * TILE)
        # Between two calls a tile holds the interpreter's lock, and other threads wait: all look-ups happen before.
        cells: list[Any] = [None] * len(slots)
        moving = {slot: x for slot, x in operands.items() if x.ndim}
        for slot, x in operands.items():
            cells[slot] = x
        calls = [self._call(step, slot, places, cells) for step, slot in steps if step.kind is not KernelKind.REDUCE]
        reduce = None if tail is None else _reducer(tail[0], flat=flat)
        scratch: dict[int, Any] = {}
        parts = []
        known: tuple[int, ...] = ()
        for tile, here in tiles:
            if here != known:  # the first tile is the largest
                known = here
                for step, slot in steps:
                    number = buffer.get(slot)
                    if number is not None:
                        if number not in scratch:
                            scratch[number] = np.empty(prod(here), step.dtype)
                        cells[slot] = scratch[number][: prod(here)].reshape(here)
            for slot, x in moving.items():
                cells[slot] = x[tile] if flat else _cut(x, tile)
            for slot, x in whole.items():
                cells[slot] = x[tile]
            for fn, given in calls:
                fn(*given(cells))
            if tail is not None and reduce is not None:
                part = cells[tail[0].args[0].at]
                parts.append(reduce(part) if flat else (tile, reduce(part)))
        for slot, x in made.items():
            slots[slot] = x
        if tail is not None:
            slots[tail[1]] = _joined(tail[0], parts, shape, flat)

    def _with_loops(
        self, operands: Mapping[int, Any], shape: tuple[int, ...], *, in_order: bool
    ) -> tuple[Sequence[tuple[RegionStep, int]], dict[int, int]]:
        """Return the steps and their buffers, with compiled loops in place of the chains that have one.

        `in_order` tells whether the last value goes to where a loop can write it.
        """
        kinds = {slot: kind for slot, x in operands.items() if (kind := kind_of(x, shape))}
        key = (*kinds.items(), in_order)
        if key in self._looped:
            return self._looped[key]
        if key not in self._chains:
            own = {slot for _, slot in self.steps if in_order or slot != self.steps[-1][1]}
            self._chains[key] = chains(self.steps, self.wanted, kinds, own)
        elements = prod(shape)
        ready = [(chain, loop) for chain in self._chains[key] if (loop := LOOPS.get(chain.expression, elements))]
        if not ready:
            return self.steps, self.buffer
        steps = list(self.steps)
        for chain, loop in ready:
            at, dtype = chain.members[-1], self.steps[chain.members[-1]][0].dtype
            step = RegionStep(KernelKind.UFUNC, partial(call_loop, loop, chain.expression), chain.operands, {}, dtype)
            steps[at] = step, self.steps[at][1]
        inner = {at for chain, _ in ready for at in chain.members[:-1]}
        steps = [step for at, step in enumerate(steps) if at not in inner]
        found = steps, _buffers(steps, self.wanted)
        if len(ready) == len(self._chains[key]):
            self._looped[key] = found
        return found

    def _with_sum(self, operands: Mapping[int, Any], shape: tuple[int, ...]) -> LoopChain | None:
        """Return the steps as one chain with the sum at their end; None if they are not one."""
        key = tuple([(slot, kind) for slot, x in operands.items() if (kind := kind_of(x, shape))])
        if key not in self._sums:
            *steps, (tail, _) = self.steps
            found = chains(steps, self.wanted, dict(key), {slot for _, slot in steps})
            alone = len(found) == 1 and len(found[0].members) == len(steps)
            self._sums[key] = with_sum(found[0], tail) if alone else None
        return self._sums[key]

    def _summed(
        self, add: Callable[..., Any], chain: LoopChain, operands: Mapping[int, Any], slots: Sequence[Any]
    ) -> list[Any]:
        """Return the sum of each tile, by a loop where its size allows."""
        cells = [*slots]
        moving = {slot: x.reshape(-1) for slot, x in operands.items() if x.ndim}
        size = max(map(len, moving.values()))
        parts = []
        for tile, here in _rows((size,), self.times * TILE):
            for slot, x in moving.items():
                cells[slot] = x[tile]
            if here[0] % LANES == 0:
                parts.append(add(*[cells[arg.at] if type(arg) is OperandSlot else arg for arg in chain.operands]))
                continue
            tail, _ = self.steps[-1]
            for run in self.whole[:-1]:
                run(0, cells)
            parts.append(_reducer(tail, flat=True)(cells[tail.args[0].at]))
        return parts

    @staticmethod
    def _call(step: RegionStep, slot: int, places: Mapping[int, ChunkPlace], cells: list[Any]) -> tuple[Any, Any]:
        """Return the function that a step calls for each tile, and the getter of its arguments, with `out` last.

        Constants are put at the end of the cells.
        """
        if step.kind is KernelKind.FILL:
            return step.fn(places[slot], **step.kwargs), itemgetter(slice(slot, slot + 1))
        at = []
        for arg in step.args:
            if type(arg) is OperandSlot:
                at.append(arg.at)
            else:
                at.append(len(cells))
                cells.append(arg)
        fn = _OUT_BY_NAME.get(step.fn, step.fn)
        return partial(fn, **step.kwargs) if step.kwargs else fn, itemgetter(*at, slot)


def _maximum(x: Any, y: Any, out: Any, **kwargs: Any) -> Any:
    return np.maximum(x, y, out=out, **kwargs)


def _minimum(x: Any, y: Any, out: Any, **kwargs: Any) -> Any:
    return np.minimum(x, y, out=out, **kwargs)


_OUT_BY_NAME: Final[Mapping[Any, Callable[..., Any]]] = {np.maximum: _maximum, np.minimum: _minimum}
"""Functions that take `out` by its name alone, since NumPy 2.4; all others are faster with it in its place."""


def _buffers(steps: Sequence[tuple[RegionStep, int]], wanted: Sequence[int]) -> dict[int, int]:
    """Assign a buffer to each value inside a tile, reusing the buffer of a value with no later reader."""
    last = {arg.at: at for at, (step, _) in enumerate(steps) for arg in step.args if type(arg) is OperandSlot}
    types = {slot: step.dtype for step, slot in steps}
    free: dict[np.dtype[Any], list[int]] = {}
    given: dict[int, int] = {}
    count = 0
    for at, (step, slot) in enumerate(steps):
        read = {arg.at for arg in step.args if type(arg) is OperandSlot}
        ended = [arg for arg in read if last[arg] == at and arg in given]
        over = type(step.fn) is np.ufunc  # it may overwrite its own input; a loop is slower then
        for arg in ended if over else ():
            free.setdefault(types[arg], []).append(given[arg])
        if slot not in wanted and step.kind is not KernelKind.REDUCE:
            spare = free.get(step.dtype)
            if spare:
                given[slot] = spare.pop()
            else:
                given[slot] = count
                count += 1
        for arg in () if over else ended:
            free.setdefault(types[arg], []).append(given[arg])
    return given


def _wide(step: RegionStep) -> Any:
    return sums_in(step.dtype) if step.fn in _SUMS else None


def sums_in(dtype: np.dtype[Any]) -> np.dtype[Any] | None:
    """Return the dtype for a ufunc's sum; None for timedeltas, since ufuncs accept none that has a unit."""
    return None if dtype.kind in "mM" else dtype


def memory_order(operands: Sequence[Any], shape: tuple[int, ...]) -> list[int] | None:
    """Return the memory order of axes of all operands of this shape, for example column-major.

    None for row-major order, or if the operands differ: tiles then follow the shape.
    """
    whole = [x for x in operands if x.shape == shape]
    long = [axis for axis, n in enumerate(shape) if n > 1]
    orders = {tuple(sorted(long, key=lambda axis: -abs(x.strides[axis]))) for x in whole}
    if len(orders) != 1:
        return None
    (order,) = orders
    return None if list(order) == long else [axis for axis, n in enumerate(shape) if n <= 1] + list(order)


def _reduces_all(step: RegionStep, ndim: int) -> bool:
    axes = step.kwargs["axis"]
    return axes is None or len(axes) == ndim


def _aligned(x: Any, ndim: int) -> Any:
    return x.reshape((1,) * (ndim - x.ndim) + x.shape) if x.ndim else x


def _cut(x: Any, tile: tuple[slice, ...]) -> Any:
    if not x.ndim:
        return x
    return x[tuple([s if n > 1 else slice(None) for s, n in zip(tile, x.shape, strict=False)])]


def _rows(shape: tuple[int, ...], most: int) -> Iterator[tuple[tuple[slice, ...], tuple[int, ...]]]:
    """Cut along the first axis, and along the second if its rows are larger than a tile; yield tiles and shapes.

    `most` is the number of elements of a tile.
    """
    inner = prod(shape[1:])
    if inner <= most or len(shape) == 1:
        rows = max(1, most // max(1, inner))
        full = (rows, *shape[1:])
        for lo in range(0, shape[0], rows):
            yield (slice(lo, lo + rows),), full if lo + rows <= shape[0] else (shape[0] - lo, *shape[1:])
        return
    columns = max(1, most // max(1, prod(shape[2:])))
    for row in range(shape[0]):
        for lo in range(0, shape[1], columns):
            yield (slice(row, row + 1), slice(lo, lo + columns)), (1, min(columns, shape[1] - lo), *shape[2:])


def _joined(step: RegionStep, parts: list[Any], shape: tuple[int, ...], flat: bool) -> Any:
    """Combine the reductions of the tiles, in the order of the tiles."""
    fn: np.ufunc = step.fn
    if flat:
        return fn.reduce(np.array(parts), dtype=_wide(step)).reshape((1,) * len(shape))
    axes = step.kwargs["axis"]
    reduced = set(range(len(shape))) if axes is None else {axis % len(shape) for axis in axes}
    out = np.empty(tuple([1 if axis in reduced else n for axis, n in enumerate(shape)]), parts[0][1].dtype)
    begun: set[tuple[int, ...]] = set()
    for tile, part in parts:
        where = tuple([slice(0, 1) if axis in reduced else s for axis, s in enumerate(tile)])
        key = tuple([s.start for s in where])
        if key in begun:
            fn(out[where], part, out=out[where])
        else:
            begun.add(key)
            out[where] = part
    return out


def most_held(inputs: int, steps: Sequence[RegionStep], nbytes: Sequence[int], *, tiled: bool) -> int:
    """Return the most bytes that a program holds besides its inputs and its value.

    `nbytes` are those of each slot. A call over a whole chunk may need as much again as its largest argument or its
    value: kernels convert and copy.
    """
    live = dict.fromkeys(range(inputs), 0)
    most = 0
    at = inputs
    for run, dead in _parts(inputs, steps, tiled=tiled):
        count = len(run.steps) if isinstance(run, _Tiled) else 1
        made = run.wanted if isinstance(run, _Tiled) else (at,)
        step = steps[at - inputs]
        given = [nbytes[arg.at] for arg in step.args if type(arg) is OperandSlot]
        own = max(*given, nbytes[at]) if given and step.kind is KernelKind.CALL else 0
        live.update({slot: nbytes[slot] for slot in made if slot != inputs + len(steps) - 1})
        most = max(most, sum(live.values()) + own)
        for slot in dead:
            live.pop(slot, None)
        at += count
    return most


# ------------------------------------------------------------------------------------------------------- planning


def _last_reads(inputs: int, steps: Sequence[RegionStep]) -> dict[int, int]:
    """Return for each slot the last step that reads it; the value is read after all steps."""
    last = {arg.at: at for at, step in enumerate(steps) for arg in step.args if type(arg) is OperandSlot}
    last[inputs + len(steps) - 1] = len(steps)
    return last


def _parts(inputs: int, steps: Sequence[RegionStep], *, tiled: bool) -> Iterator[tuple[Run, tuple[int, ...]]]:
    """Split a program into parts: runs of element-wise steps with their reduction, and single calls.

    Each part comes with the slots that no later part reads.
    """
    last_read = _last_reads(inputs, steps)
    at = 0
    while at < len(steps):
        end = at
        while tiled and end < len(steps) and steps[end].kind in (KernelKind.UFUNC, KernelKind.FILL):
            end += 1
        if end > at and end < len(steps) and steps[end].kind is KernelKind.REDUCE:
            own = range(inputs + at, inputs + end)
            if steps[end].args[0].at in own and all(last_read.get(slot, -1) <= end for slot in own):
                end += 1
        run: Run
        if end - at > 1:
            several = [(steps[i], inputs + i) for i in range(at, end)]
            run = _Tiled(several, [slot for _, slot in several if last_read.get(slot, -1) >= end])
        else:
            end = at + 1
            run = whole_step(steps[at], inputs + at)
        yield run, tuple([slot for slot, read in last_read.items() if at <= read < end]) if tiled else ()
        at = end
