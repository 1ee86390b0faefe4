"""The kernel of tensor tasks: whatever the tiles, the same values as NumPy's."""

import pickle

import numpy as np
import pytest

from weft.operators import regions
from weft.operators.region_steps import ChunkPlace, KernelKind, OperandSlot, RegionStep
from weft.operators.regions import Region

F8 = np.dtype(np.float64)


def ufunc(fn, *args, dtype=F8):
    return RegionStep(KernelKind.UFUNC, fn, args, {}, dtype)


def total(axis, at, dtype=F8, fn=np.add):
    return RegionStep(KernelKind.REDUCE, fn, (OperandSlot(at),), {"axis": axis}, dtype)


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch):
    monkeypatch.setattr(regions, "TILE", 7)


A = np.linspace(-3, 5, 60)
B = np.linspace(1, 9, 60)


def test_a_program_of_ufuncs_gives_what_numpy_gives_bit_for_bit():
    region = Region(
        2,
        [
            ufunc(np.add, OperandSlot(0), OperandSlot(1)),
            ufunc(np.exp, OperandSlot(2)),
            ufunc(np.divide, OperandSlot(3), 3.0),
        ],
    )
    assert np.array_equal(region(0, A, B), np.exp(A + B) / 3.0)


def test_a_value_that_is_read_twice_keeps_its_buffer_until_then():
    steps = [
        ufunc(np.add, OperandSlot(0), OperandSlot(1)),
        ufunc(np.multiply, OperandSlot(2), 2.0),
        ufunc(np.subtract, OperandSlot(3), 1.0),
        ufunc(np.multiply, OperandSlot(4), OperandSlot(2)),
    ]
    assert np.array_equal(Region(2, steps)(0, A, B), ((A + B) * 2.0 - 1.0) * (A + B))


@pytest.mark.parametrize("axis", [(0, 1), (0,), (1,)])
@pytest.mark.parametrize("shape", [(6, 10), (10, 6), (1, 60), (60, 1), (2, 30)])
@pytest.mark.parametrize("fn", [np.add, np.minimum, np.multiply])
def test_a_reduction_at_the_end_takes_every_tile(axis, shape, fn):
    x, y = A.reshape(shape), B.reshape(shape)
    region = Region(2, [ufunc(np.divide, OperandSlot(0), OperandSlot(1)), total(axis, 2, fn=fn)])
    np.testing.assert_allclose(region(0, x, y), fn.reduce(x / y, axis=axis, keepdims=True), rtol=1e-13)


def test_operands_are_broadcast():
    x, row, column = A.reshape(6, 10), B[:10], B[:6].reshape(6, 1)
    steps = [
        ufunc(np.add, OperandSlot(0), OperandSlot(1)),
        ufunc(np.multiply, OperandSlot(3), OperandSlot(2)),
        ufunc(np.negative, OperandSlot(4)),
    ]
    assert np.array_equal(Region(3, steps)(0, x, row, column), -((x + row) * column))


def test_operands_that_do_not_lie_in_one_piece_are_read_as_they_are():
    x, y = A.reshape(6, 10).T, B.reshape(10, 6)
    assert np.array_equal(
        Region(2, [ufunc(np.add, OperandSlot(0), OperandSlot(1)), ufunc(np.cbrt, OperandSlot(2))])(0, x, y),
        np.cbrt(x + y),
        equal_nan=True,
    )


@pytest.mark.parametrize("axis", [None, (0, 1, 2), (0,), (1,), (0, -1)])
def test_operands_whose_axes_lie_in_another_order_are_reduced_in_that_order(axis):
    x, y = A.reshape(3, 5, 4).transpose(2, 0, 1), B.reshape(3, 5, 4).transpose(2, 0, 1)
    region = Region(2, [ufunc(np.divide, OperandSlot(0), OperandSlot(1)), total(axis, 2)])
    np.testing.assert_allclose(region(0, x, y), np.add.reduce(x / y, axis=axis, keepdims=True), rtol=1e-13)


def test_tiles_of_a_transposed_operand_lie_together_in_memory():
    strides = []

    def noted(x, out):
        strides.append(x.strides)
        return np.negative(x, out=out)

    x, row = A.reshape(6, 10).T, B[:6]
    steps = [ufunc(noted, OperandSlot(0)), ufunc(np.add, OperandSlot(2), OperandSlot(1))]
    made = Region(2, steps)(0, x, row)
    assert np.array_equal(made, row - x)
    assert made.shape == (10, 6)
    assert set(strides) == {(80, 8)}


def test_a_value_that_is_read_after_the_tiles_is_there_whole():
    steps = [
        ufunc(np.add, OperandSlot(0), 1.0),
        ufunc(np.multiply, OperandSlot(1), 2.0),
        RegionStep(KernelKind.CALL, np.sort, (OperandSlot(1),), {}, F8),
        ufunc(np.add, OperandSlot(2), OperandSlot(3)),
    ]
    assert np.array_equal(Region(1, steps)(0, A), (A + 1) * 2 + np.sort(A + 1))


def test_what_fills_tiles_is_called_tile_by_tile_in_order():
    sizes = []

    def counter(place, first):
        state = [first]

        def fill(out):
            sizes.append(out.size)
            out[...] = np.arange(state[0], state[0] + out.size)
            state[0] += out.size

        return fill

    fill = RegionStep(
        KernelKind.FILL, counter, (), {"first": 5}, F8, lambda index: ChunkPlace(index, (index,), (0,), (20,))
    )
    made = Region(0, [fill, ufunc(np.multiply, OperandSlot(0), 2.0)])(3)
    assert np.array_equal(made, np.arange(5, 25) * 2.0)
    assert sizes == [7, 7, 6]


def test_integers_are_summed_in_the_dtype_that_was_asked_for():
    x = np.full(60, 100, np.int8)
    steps = [ufunc(np.add, OperandSlot(0), 0, dtype=np.dtype(np.int8)), total((0,), 1, np.dtype(np.int64))]
    made = Region(1, steps)(0, x)
    assert (made.dtype, made[0]) == (np.int64, 6000)


def test_nan_and_empty_chunks_come_through():
    steps = [ufunc(np.add, OperandSlot(0), 1.0), total((0,), 1)]
    assert np.isnan(Region(1, steps)(0, np.array([1.0, np.nan] * 20)))[0]
    assert Region(1, steps)(0, np.empty(0))[0] == 0.0


def test_small_chunks_are_not_tiled():
    steps = [ufunc(np.add, OperandSlot(0), 1.0), ufunc(np.multiply, OperandSlot(1), 2.0)]
    assert np.array_equal(Region(1, steps, 5)(0, A[:5]), (A[:5] + 1) * 2)


def test_a_region_travels():
    region = pickle.loads(
        pickle.dumps(Region(1, [ufunc(np.add, OperandSlot(0), 1.0), ufunc(np.negative, OperandSlot(1))], 60))
    )
    assert np.array_equal(region(0, A), -(A + 1))


def test_an_input_is_never_written_to():
    x = A.copy()
    Region(1, [ufunc(np.add, OperandSlot(0), 1.0), ufunc(np.multiply, OperandSlot(1), OperandSlot(0))])(0, x)
    assert np.array_equal(x, A)


@pytest.mark.parametrize(("cache", "tile"), [(0, 64), (256, 64), (2048, 64), (4096, 128), (16384, 256)])
def test_four_tiles_fill_the_cache_of_a_core(cache, tile):
    assert regions.tile_of(cache * 1024) == tile * 1024
