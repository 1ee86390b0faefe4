"""Users' functions over chunks equal the same functions over whole arrays: halos, broadcasting, core dimensions."""

import os
import random
from typing import Any

import numpy as np
import pytest

import weft.tensor as wt
from tests.properties.tensors.drawing import array, broadcastable, chunks, shape

COUNT = {"fast": 10, "soak": 5_000}.get(os.environ.get("HYPOTHESIS_PROFILE", "ci"), 120)
"""How many calls are tried."""
TYPES = ["int8", "int64", "float32", "float64", "complex128"]
MODES: dict[Any, Any] = {"reflect": "symmetric", "nearest": "edge", "periodic": "wrap", 3: "constant"}
"""NumPy's names of boundaries."""


def window_sum(x: Any, before: tuple[int, ...], after: tuple[int, ...]) -> Any:
    """Return sums of each element with its neighbours; near the ends of zeros."""
    made = x
    for axis, (lo, hi) in enumerate(zip(before, after, strict=True)):
        widths = [(lo, hi) if a == axis else (0, 0) for a in range(x.ndim)]
        windows = np.lib.stride_tricks.sliding_window_view(np.pad(made, widths), lo + hi + 1, axis)
        made = windows.sum(axis=-1, dtype=x.dtype) * (axis + 1)
    return made


def test_windows_over_halos_equal_windows_over_the_array(seed):
    session = wt.Session(workers=2)
    for number in range(seed, seed + COUNT):
        rng = random.Random(number)
        x = array(rng, shape(rng, 1, 3, 9, empty=False), TYPES, special=False)
        if x.dtype.kind in "fc":
            x = np.round(x)
        before = tuple([rng.randint(0, min(n, 4)) for n in x.shape])
        after = before if rng.random() < 0.6 else tuple([rng.randint(0, min(n, 4)) for n in x.shape])
        bounds = [rng.choice([*MODES, "none"]) for _ in x.shape]
        whole = x
        for axis, bound in enumerate(bounds):
            if bound != "none":
                widths = [(before[a], after[a]) if a == axis else (0, 0) for a in range(x.ndim)]
                words: Any = {"constant_values": 3} if bound == 3 else {}
                whole = np.pad(whole, widths, mode=MODES[bound], **words)
        wanted = window_sum(whole, before, after)
        inside = [0 if bound == "none" else lo for bound, lo in zip(bounds, before, strict=True)]
        wanted = wanted[tuple([slice(lo, lo + n) for lo, n in zip(inside, x.shape, strict=True)])]
        depth = {a: (lo, hi) for a, (lo, hi) in enumerate(zip(before, after, strict=True))}
        given = wt.asarray(x, chunk_size=chunks(rng, x.shape))
        made = wt.map_overlap(
            window_sum, given, before, after, depth=depth, boundary=dict(enumerate(bounds)), dtype=x.dtype
        )
        told = f"repeat with WEFT_SEED={number}: {x.shape} {given.chunks} {depth} {bounds}"
        assert made.shape == x.shape, told
        np.testing.assert_array_equal(made.fetch(session), wanted, told)
    session.close()


def test_blocks_of_several_arrays_are_broadcast(seed):
    session = wt.Session(workers=2)
    for number in range(seed, seed + COUNT):
        rng = random.Random(number)
        given = [array(rng, size, TYPES, special=False) for size in broadcastable(rng, 3)]
        told = f"repeat with WEFT_SEED={number}: {[one.shape for one in given]}"
        try:
            wanted = given[0] + given[1] * given[2]
        except ValueError:
            continue
        if not any(one.ndim for one in given):
            continue
        cut = [wt.asarray(one, chunk_size=chunks(rng, one.shape)) for one in given]
        made = wt.map_blocks(lambda a, b, c: a + b * c, *cut, dtype=wanted.dtype)
        assert made.shape == wanted.shape, told
        np.testing.assert_array_equal(made.fetch(session), wanted, told)
    session.close()


def test_core_dimensions_are_whole(seed):
    session = wt.Session(workers=2)
    for number in range(seed, seed + COUNT):
        rng = random.Random(number)
        first, second = broadcastable(rng, 2, 2)
        n, m = rng.randint(1, 5), rng.randint(1, 4)
        x = array(rng, (*first, n, m), ["int64", "float64"], special=False)
        y = array(rng, (*second, m), ["int64", "float64"], special=False)
        told = f"repeat with WEFT_SEED={number}: {x.shape} {y.shape}"
        try:
            np.broadcast_shapes(first, second)
        except ValueError:
            continue
        ours = [wt.asarray(one, chunk_size=chunks(rng, one.shape)) for one in (x, y)]
        product, low = wt.apply_gufunc(
            lambda a, b: (np.matvec(a, b), a.min(axis=(-1, -2)) + 0 * b.sum(axis=-1)),
            "(n,m),(m)->(n),()",
            *ours,
            allow_rechunk=True,
            output_dtypes=[np.result_type(x, y)] * 2,
        )
        np.testing.assert_allclose(product.fetch(session), np.matvec(x, y), 1e-9, 1e-9, err_msg=told)
        wanted = x.min(axis=(-1, -2)) + 0 * y.sum(axis=-1)
        np.testing.assert_array_equal(low.fetch(session), wanted, told)
    session.close()


@pytest.mark.parametrize("concatenate", [True, None])
def test_labelled_axes_are_summed_as_by_einsum(seed, concatenate):
    def product(a: Any, b: Any) -> Any:
        if concatenate:
            return np.einsum("ij,jk->ik", a, b)
        return sum(np.einsum("ij,jk->ik", one, other) for one, other in zip(a, b, strict=True))

    session = wt.Session(workers=2)
    for number in range(seed, seed + COUNT // 4):
        rng = random.Random(number)
        n, m, k = (rng.randint(1, 6) for _ in range(3))
        x, y = array(rng, (n, m), ["int64"]), array(rng, (m, k), ["int64"])
        ours = [wt.asarray(one, chunk_size=chunks(rng, one.shape)) for one in (x, y)]
        made = wt.blockwise(product, "ik", ours[0], "ij", ours[1], "jk", concatenate=concatenate, dtype=np.int64)
        np.testing.assert_array_equal(made.fetch(session), x @ y, f"repeat with WEFT_SEED={number}")
    session.close()
