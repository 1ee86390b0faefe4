"""Shapes, orders, and arrays from nothing."""

import random
from collections.abc import Callable
from typing import Any

import numpy as np

import weft.tensor as wt
from tests.properties.tensors.drawing import (
    COMPLEX,
    TYPES,
    Case,
    Draw,
    array,
    axes_of,
    axis_of,
    broadcastable,
    call,
    chunks,
    of_x,
    shape,
    simple,
)

# ------------------------------------------------------------------------------------------------------------ shapes

MANIPULATION: dict[str, Draw] = {}


def _reshape(rng: random.Random, x: Any) -> Any:
    sizes: list[int] = []
    left = x.size
    while left > 1 and len(sizes) < 3:
        factor = rng.choice([n for n in range(1, left + 1) if left % n == 0])
        sizes.append(factor)
        left //= factor
    sizes.append(left)
    if x.size == 0:
        sizes = rng.choice([[0], [0, 3], [2, 0, 4]])
    rng.shuffle(sizes)
    if rng.random() < 0.2 and x.size:
        sizes[rng.randrange(len(sizes))] = -1
    if rng.random() < 0.03:
        sizes.append(2)
    return (tuple(sizes),), {}


def _moved(rng: random.Random, x: Any) -> Any:
    if rng.random() < 0.5:
        return (axis_of(rng, x.ndim), axis_of(rng, x.ndim)), {}
    count = rng.randint(0, x.ndim)
    return (tuple(rng.sample(range(x.ndim), count)), tuple(rng.sample(range(-x.ndim, 0), count))), {}


def _rolled(rng: random.Random, x: Any) -> Any:
    kind = rng.random()
    if kind < 0.3 or x.ndim == 0:
        return (rng.randint(-9, 9),), {}
    if kind < 0.6:
        return (rng.randint(-9, 9),), {"axis": axis_of(rng, x.ndim)}
    axes = rng.sample(range(x.ndim), rng.randint(1, x.ndim))
    return (tuple([rng.randint(-4, 4) for _ in axes]),), {"axis": tuple(axes)}


def _squeezed(rng: random.Random, x: Any) -> Any:
    ones = [axis for axis, n in enumerate(x.shape) if n == 1]
    if rng.random() < 0.1:
        return (axis_of(rng, x.ndim),), {}
    return (tuple(rng.sample(ones, rng.randint(0, len(ones)))),), {}


def _repeated(rng: random.Random, x: Any) -> Any:
    axis = None if rng.random() < 0.3 else axis_of(rng, x.ndim)
    long = x.size if axis is None else x.shape[axis] if -x.ndim <= axis < x.ndim else 1
    if rng.random() < 0.6:
        return (rng.randint(0, 3),), {"axis": axis}
    return (np.array([rng.randint(0, 3) for _ in range(long)], np.int64),), {"axis": axis}


MANIPULATION["reshape"] = call("reshape", of_x(_reshape))
MANIPULATION["permute_dims"] = call(
    "permute_dims", of_x(lambda rng, x: ((tuple(rng.sample(range(x.ndim), x.ndim)),), {}))
)
MANIPULATION["moveaxis"] = call("moveaxis", of_x(_moved))
MANIPULATION["flip"] = call("flip", of_x(lambda rng, x: ((), {"axis": axes_of(rng, x.ndim)})))
MANIPULATION["roll"] = call("roll", of_x(_rolled))
MANIPULATION["squeeze"] = call("squeeze", of_x(_squeezed))
MANIPULATION["expand_dims"] = call("expand_dims", of_x(lambda rng, x: ((rng.randint(-x.ndim - 2, x.ndim + 1),), {})))
MANIPULATION["tile"] = call(
    "tile", of_x(lambda rng, x: ((tuple([rng.randint(0, 3) for _ in range(rng.randint(0, 4))]),), {}))
)
MANIPULATION["repeat"] = call("repeat", of_x(_repeated))
MANIPULATION["unstack"] = call("unstack", of_x(lambda rng, x: ((), {"axis": axis_of(rng, x.ndim)}), 1))
MANIPULATION["matrix_transpose"] = call("matrix_transpose", of_x(lambda rng, x: ((), {}), 1))
for _name in ("tril", "triu"):
    MANIPULATION[_name] = call(_name, of_x(lambda rng, x: ((), {"k": rng.randint(-4, 4)}), 2))


def _broadcast(rng: random.Random) -> Any:
    small, whole = broadcastable(rng, 2)
    try:
        target = np.broadcast_shapes(small, whole)
    except ValueError:
        target = whole
    return [array(rng, small)], (target,), {}


MANIPULATION["broadcast_to"] = call("broadcast_to", _broadcast)
MANIPULATION["broadcast_arrays"] = simple(
    "broadcast_arrays", lambda rng: [array(rng, one) for one in broadcastable(rng, rng.randint(1, 3))], True
)


def _joined(name: str, theirs: Any) -> Draw:
    def draw(rng: random.Random) -> Case:
        own = shape(rng, 0 if name == "stack" else 1)
        axis: int | None = axis_of(rng, len(own) + (name == "stack"))
        if name == "concat" and rng.random() < 0.2:
            axis = None
        parts = []
        for _ in range(rng.randint(1, 4)):
            size = list(own)
            if name == "concat" and axis is not None and -len(own) <= axis < len(own):
                size[axis] = rng.randint(0, 5)
            parts.append(array(rng, tuple(size)))
        own_fn = getattr(wt, name)
        return Case(
            f"{name} {axis}",
            parts,
            lambda *given: own_fn(list(given), axis=axis),
            lambda *given: theirs(list(given), axis=axis),
            True,
        )

    return draw


MANIPULATION["concat"] = _joined("concat", np.concat)
MANIPULATION["stack"] = _joined("stack", np.stack)


# ----------------------------------------------------------------------------------------------------- making arrays

CREATION: dict[str, Draw] = {}


def made(name: str, of: Callable[[random.Random], Any], theirs: Any = None) -> Draw:
    """Return how to draw a call without arrays: arguments, keywords, and the shape for which chunks are drawn."""

    def draw(rng: random.Random) -> Case:
        args, kwargs, size = of(rng)
        cut = chunks(rng, size)
        return Case(
            f"{name} {args} {kwargs} chunk_size={cut}",
            [],
            lambda: getattr(wt, name)(*args, **kwargs, chunk_size=cut),
            lambda: (theirs or getattr(np, name))(*args, **kwargs),
        )

    return draw


def _range(rng: random.Random) -> Any:
    start: Any = rng.randint(-10, 10)
    stop = rng.randint(-10, 30)
    step: Any = rng.choice([1, 1, 2, 3, -1, -3])
    if rng.random() < 0.4:
        start, step = start + 0.25, step * 0.5
    kwargs = (
        {} if rng.random() < 0.6 else {"dtype": rng.choice(["float32", "float64", "int64"][: 2 if start % 1 else 3])}
    )
    return (start, stop, step), kwargs, np.arange(start, stop, step).shape


def _linspace(rng: random.Random) -> Any:
    num = rng.randint(0, 30)
    return (
        (rng.uniform(-9, 9), rng.uniform(-9, 9), num),
        {"endpoint": rng.random() < 0.5, "dtype": rng.choice([None, "float32", "complex64"])},
        (num,),
    )


def _eye(rng: random.Random) -> Any:
    rows, columns = rng.randint(0, 9), rng.randint(0, 9)
    return (rows, columns), {"k": rng.randint(-9, 9), "dtype": rng.choice(TYPES)}, (rows, columns)


def _filled(rng: random.Random) -> Any:
    size = shape(rng)
    return (size,), {"dtype": rng.choice(TYPES)}, size


def _full(rng: random.Random) -> Any:
    size = shape(rng)
    return (size, rng.choice([True, 3, -2.5, 1 + 2j])), {}, size


CREATION["arange"] = made("arange", _range)
CREATION["linspace"] = made("linspace", _linspace)
CREATION["eye"] = made("eye", _eye)
CREATION["zeros"] = made("zeros", _filled)
CREATION["ones"] = made("ones", _filled)
CREATION["full"] = made("full", _full)
for _name in ("zeros_like", "ones_like"):
    CREATION[_name] = simple(_name, lambda rng: [array(rng, shape(rng))], True)
CREATION["full_like"] = call("full_like", of_x(lambda rng, x: ((2,), {})))
CREATION["asarray"] = simple("asarray", lambda rng: [array(rng, shape(rng))], True)
CREATION["array"] = simple("array", lambda rng: [array(rng, shape(rng))], True)
CREATION["from_array"] = lambda rng: Case(
    "from_array", [array(rng, shape(rng))], lambda x: wt.from_array(x.fetch(), 2), np.array, True
)
CREATION["from_dlpack"] = lambda rng: Case("from_dlpack", [array(rng, shape(rng, 1))], wt.from_dlpack, np.array, True)
CREATION["empty"] = made("empty", _filled, lambda size, dtype: np.zeros(size, dtype))
CREATION["empty_like"] = simple("empty_like", lambda rng: [array(rng, shape(rng))], True, np.zeros_like)


def _mesh(rng: random.Random) -> Any:
    kind = [rng.choice(TYPES)]
    arrays = [array(rng, (rng.randint(0, 4),), kind) for _ in range(rng.randint(0, 3))]
    return arrays, (), {"indexing": rng.choice(["xy", "ij"])}


CREATION["meshgrid"] = call("meshgrid", _mesh)


def _astype(rng: random.Random) -> Case:
    x = array(rng, shape(rng), special=False)
    dtype = np.dtype(rng.choice(TYPES if x.dtype.kind in "bui" else ["float32", "float64", *COMPLEX, "bool"]))
    if x.dtype.kind == "c" and dtype.kind == "f":
        dtype = np.dtype("complex64")
    return Case(f"astype {dtype}", [x], lambda a: wt.astype(a, dtype), lambda a: a.astype(dtype), True)


CREATION["astype"] = _astype
