"""Indexing, searching, sorting, sets, and lengths that depend on data."""

import random
from functools import partial
from typing import Any

import numpy as np

import weft.tensor as wt
from tests.properties.tensors.drawing import (
    INTS,
    REAL,
    Case,
    Draw,
    Shape,
    array,
    axis_of,
    chunks,
    keyed,
    shape,
    simple,
)

# ---------------------------------------------------------------------------------------------------------- indexing

INDEXING: dict[str, Draw] = {}


def index_for(rng: random.Random, size: Shape, *, arrays: bool) -> Any:
    """Draw an index, now and then one that does not fit."""
    entries: list[Any] = []
    axis = 0
    mask = arrays and rng.random() < 0.3
    broadcast = (rng.randint(1, 4),) if rng.random() < 0.7 else (2, 2)
    while axis < len(size):
        kind = rng.random()
        n = size[axis]
        if rng.random() < 0.1:
            break
        if kind < 0.25:
            entries.append(rng.randint(-n - (rng.random() < 0.02), max(n - 1, 0)) if n else slice(None))
        elif kind < 0.7 or not arrays or n == 0:
            entries.append(_slice(rng, n))
        elif mask:
            width = rng.randint(1, len(size) - axis)
            own = [0 if rng.random() < 0.05 else n for n in size[axis : axis + width]]  # 0 fits every length
            entries.append(np.array([rng.random() < 0.5 for _ in range(int(np.prod(own)))], bool).reshape(own))
            mask = False
            axis += width - 1
        else:
            entries.append(np.array([rng.randrange(-n, n) for _ in range(int(np.prod(broadcast)))]).reshape(broadcast))
        axis += 1
    if rng.random() < 0.2:
        entries.insert(rng.randint(0, len(entries)), None)
    if rng.random() < 0.2:
        entries.insert(rng.randint(0, len(entries)), Ellipsis)
    if rng.random() < 0.02:
        entries.append(0)
    return entries[0] if len(entries) == 1 and rng.random() < 0.5 else tuple(entries)


def _slice(rng: random.Random, n: int) -> Any:
    if rng.random() < 0.2:
        return slice(None)
    first, last = (None if rng.random() < 0.3 else rng.randint(-n - 2, n + 2) for _ in range(2))
    return slice(first, last, rng.choice([None, 1, 2, 3, -1, -2]))


def _as_ours(index: Any, rng: random.Random) -> Any:
    """Return an index with tensors for some of its arrays."""
    if isinstance(index, tuple):
        return tuple([_as_ours(one, rng) for one in index])
    if isinstance(index, np.ndarray) and rng.random() < 0.7:
        return wt.asarray(index, chunk_size=chunks(rng, index.shape))
    return index


def _get(arrays: bool) -> Draw:
    def draw(rng: random.Random) -> Case:
        x = array(rng, shape(rng, 0, 4))
        index = index_for(rng, x.shape, arrays=arrays)
        own = _as_ours(index, rng)
        return Case(f"x[{index}]", [x], lambda a: a[own], lambda a: a[index], True)

    return draw


def _set(arrays: bool) -> Draw:
    def draw(rng: random.Random) -> Case:
        x = array(rng, shape(rng, 0, 4))
        index = index_for(rng, x.shape, arrays=arrays)
        own = _as_ours(index, rng)
        try:
            hit = x[index].shape
        except IndexError:
            hit = ()
        value: Any = array(rng, hit[rng.randint(0, len(hit)) :] if rng.random() < 0.3 else hit, [str(x.dtype)])

        def put_ours(a: Any, v: Any) -> Any:
            a = wt.asarray(a, copy=True)
            a[own] = v
            return a

        def put_theirs(a: Any, v: Any) -> Any:
            a = a.copy()
            a[index] = v
            return a

        return Case(f"x[{index}] = {value!r}", [x, value], put_ours, put_theirs, True)

    return draw


INDEXING["get, basic"] = _get(False)
INDEXING["get, arrays"] = _get(True)
INDEXING["set, basic"] = _set(False)
INDEXING["set, arrays"] = _set(True)


def _taken(rng: random.Random) -> Case:
    x = array(rng, shape(rng, 1, 3, empty=False))
    axis = rng.randrange(-x.ndim, x.ndim)
    n = x.shape[axis]
    numbers = np.array([rng.randrange(-n, n) for _ in range(rng.randint(1, 9))])
    return Case("take", [x, numbers], partial(wt.take, axis=axis), partial(np.take, axis=axis), True)


def _taken_along(rng: random.Random) -> Case:
    x = array(rng, shape(rng, 1, 3, empty=False))
    axis = rng.randrange(-x.ndim, x.ndim)
    size = list(x.shape)
    size[axis] = rng.randint(0, 5)
    numbers = np.array([rng.randrange(x.shape[axis]) for _ in range(int(np.prod(size)))], np.int64).reshape(size)
    fns = partial(wt.take_along_axis, axis=axis), partial(np.take_along_axis, axis=axis)
    return Case("take_along_axis", [x, numbers], *fns, True)


INDEXING["take"] = _taken
INDEXING["take_along_axis"] = _taken_along


# ------------------------------------------------------------------------------------------ searching, sorting, sets

SEARCHING: dict[str, Draw] = {}


def _order(name: str) -> Draw:
    def draw(rng: random.Random) -> Case:
        x = array(rng, shape(rng, 0, 3), [*REAL, "bool"])
        axis, descending = axis_of(rng, x.ndim), rng.random() < 0.4

        def theirs(a: Any) -> Any:
            order = np.argsort(a, axis=axis, kind="stable")
            if descending:
                order = np.flip(a.shape[axis] - 1 - np.argsort(np.flip(a, axis), axis=axis, kind="stable"), axis)
            return np.take_along_axis(a, order, axis) if name == "sort" else order

        own = partial(getattr(wt, name), axis=axis, descending=descending)
        return Case(f"{name} {axis} {descending}", [x], own, theirs, True)

    return draw


def _unique(name: str, *wanted: int) -> Draw:
    def theirs(x: Any) -> Any:  # all at once: which of several NaNs comes first depends on what is asked for
        found = np.unique(x, return_index=True, return_inverse=True, return_counts=True, equal_nan=False)
        return [found[i].reshape(x.shape) if i == 2 else found[i] for i in wanted]

    return simple(name, lambda rng: [array(rng, shape(rng))], True, theirs)


def _searched(rng: random.Random) -> Case:
    kind = [rng.choice(REAL)]
    x = array(rng, (rng.randint(0, 12),), kind, special=False)
    side: Any = rng.choice(["left", "right"])
    values = array(rng, shape(rng, 0, 2), kind)
    if rng.random() < 0.5:
        order = np.argsort(x)
        return Case(
            f"searchsorted {side}",
            [x, values, order],
            lambda a, v, o: wt.searchsorted(a, v, side=side, sorter=o),
            lambda a, v, o: np.searchsorted(a, v, side=side, sorter=o),
            True,
        )
    fns = partial(wt.searchsorted, side=side), partial(np.searchsorted, side=side)
    return Case(f"searchsorted {side}", [np.sort(x), values], *fns, True)


for _name in ("sort", "argsort"):
    SEARCHING[_name] = _order(_name)
SEARCHING["unique_all"] = _unique("unique_all", 0, 1, 2, 3)
SEARCHING["unique_counts"] = _unique("unique_counts", 0, 3)
SEARCHING["unique_inverse"] = _unique("unique_inverse", 0, 2)
SEARCHING["unique_values"] = _unique("unique_values", 0)
SEARCHING["searchsorted"] = _searched
SEARCHING["nonzero"] = simple("nonzero", lambda rng: [array(rng, shape(rng))], True)


def _isin(rng: random.Random) -> Any:
    return [array(rng, shape(rng), INTS), array(rng, shape(rng), INTS)], {"invert": rng.random() < 0.5}


SEARCHING["isin"] = keyed("isin", _isin, exact=True)


# --------------------------------------------------------------------------------------------------- unknown lengths

UNKNOWN: dict[str, Draw] = {}


def _masked(rng: random.Random) -> Case:
    x = array(rng, shape(rng, 1, 3), REAL)
    level = rng.choice([-2, 0, 1])

    def run(xp: Any, a: Any) -> Any:
        picked = a[a > level] * 2
        return [xp.sum(picked), xp.sum(picked + picked), xp.reshape(picked, (-1,))[::2], xp.sort(picked)]

    return Case(f"x[x > {level}]", [x], partial(run, wt), partial(run, np))


def _of_unique(rng: random.Random) -> Case:
    x = array(rng, shape(rng), INTS)

    def run(xp: Any, a: Any) -> Any:
        values, counts = xp.unique_counts(a)
        return [values + 1, xp.sum(values), xp.concat([values, values]), counts]

    return Case("unique_counts, then more", [x], partial(run, wt), partial(run, np))


UNKNOWN["mask"] = _masked
UNKNOWN["unique"] = _of_unique
