"""Arrays that tasks fill: one attempt at a time writes the place of a chunk, and none writes what the caller has."""

import pickle

import numpy as np
import pytest

from weft.operators.destinations import ChunkDestination, placing
from weft.operators.region_steps import ChunkPlace, KernelKind, OperandSlot, RegionStep
from weft.operators.regions import TILE, Region

F8 = np.dtype(np.float64)


def halves(n=8):
    """Return an array of two chunks."""
    return ChunkDestination((n,), F8, lambda i: ChunkPlace(i, (i,), (i * n // 2,), (n // 2,)))


def writes(value):
    """Return a function that writes a value into its place."""

    def make(out):
        out[...] = value
        return out

    return make


def makes(value):
    """Return a function that makes a chunk of its own, wherever its place is."""
    return lambda out: np.full(4, value)


@pytest.mark.parametrize("make", [writes, makes])
def test_chunks_lie_in_their_places(make):
    into = halves()
    assert [into.fill(i, make(i + 1.0)) for i in (1, 0)] == [None, None]
    assert into.take([None, None]).tolist() == [1.0] * 4 + [2.0] * 4


def test_a_second_attempt_beside_the_first_makes_its_own_chunk():
    into = halves()

    def slow(out):
        second = into.fill(0, lambda place: place if place is not None else np.full(4, 5.0))
        assert second.tolist() == [5.0] * 4
        return writes(1.0)(out)

    into.fill(0, slow)
    into.fill(1, writes(2.0))
    assert into.take([None, None]).tolist() == [1.0] * 4 + [2.0] * 4


def test_an_attempt_that_still_writes_when_the_run_has_ended_leaves_the_array_alone():
    into = halves()
    into.fill(1, writes(2.0))
    taken = []

    def late(out):
        other = into.fill(0, makes(7.0))  # another attempt is the first to end
        taken.append(into.take([other, None]))
        out[...] = -1.0
        return out

    into.fill(0, late)
    assert taken[0].tolist() == [7.0] * 4 + [2.0] * 4


def test_an_attempt_after_the_end_makes_its_own_chunk():
    into = halves()
    into.fill(0, writes(1.0))
    into.fill(1, writes(2.0))
    array = into.take([None, None])
    assert into.fill(0, makes(9.0)).tolist() == [9.0] * 4
    assert array.tolist() == [1.0] * 4 + [2.0] * 4


def test_a_written_chunk_is_not_written_again():
    into = halves()
    into.fill(0, writes(1.0))
    again = into.fill(0, makes(3.0))
    into.fill(1, writes(2.0))
    assert again.tolist() == [3.0] * 4
    assert into.take([None, None]).tolist() == [1.0] * 4 + [2.0] * 4


def test_an_attempt_after_a_failed_one_writes_the_whole_chunk():
    into = halves()

    def fails(out):
        out[:2] = 8.0
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        into.fill(0, fails)
    into.fill(0, writes(1.0))
    into.fill(1, writes(2.0))
    assert into.take([None, None]).tolist() == [1.0] * 4 + [2.0] * 4


def test_chunks_that_tasks_made_elsewhere_are_put_in_their_places():
    into = halves()
    assert into.take([np.full(4, 1.0), np.full(4, 2.0)]).tolist() == [1.0] * 4 + [2.0] * 4


def test_an_array_without_axes():
    into = ChunkDestination((), F8, lambda i: ChunkPlace(i, (), (), ()))
    into.fill(0, lambda out: np.float64(3.0))
    assert into.take([None])[()] == 3.0


# ------------------------------------------------------------------------------------------------------ in regions

N = TILE + 10
WIDE = np.arange(float(8 * N)).reshape(8, N)


def columns(shape):
    """Return an array whose only task fills it but for its first column, so that the place has gaps."""
    place = ChunkPlace(0, (0, 0), (0, 1), shape)
    return ChunkDestination((shape[0], shape[1] + 1), F8, lambda i: place)


def ufunc(fn, *args, dtype=F8):
    return RegionStep(KernelKind.UFUNC, fn, args, {}, dtype)


@placing
def doubled(x, *, out=None):
    """Fill `out`, or a new array."""
    return np.multiply(x, 2.0, out=out)


def plain(x):
    """Make a new array."""
    return x * 2.0


STEPS = {
    "tiles": [ufunc(np.add, OperandSlot(0), 1.0), ufunc(np.multiply, OperandSlot(1), OperandSlot(0))],
    "one ufunc": [ufunc(np.negative, OperandSlot(0))],
    "a kernel that fills": [RegionStep(KernelKind.CALL, doubled, (OperandSlot(0),), {}, F8)],
    "a kernel that makes": [RegionStep(KernelKind.CALL, plain, (OperandSlot(0),), {}, F8)],
    "another type": [ufunc(np.floor, OperandSlot(0), dtype=np.dtype(np.float32))],
}


@pytest.mark.parametrize("x", [WIDE, np.asfortranarray(WIDE), WIDE[:, :5], WIDE[:2]], ids=["C", "F", "small", "two"])
@pytest.mark.parametrize("name", STEPS)
def test_a_region_writes_what_it_would_return(name, x):
    into = columns(x.shape)
    assert Region(1, STEPS[name], into=into)(0, x) is None
    made = into.take([None])
    np.testing.assert_array_equal(made[:, 1:], Region(1, STEPS[name])(0, x))


@pytest.mark.parametrize("name", ["tiles", "one ufunc", "a kernel that fills"])
def test_a_region_makes_no_array_beside_its_place(name):
    seen = []

    class Watched(ChunkDestination):
        def fill(self, index, make):
            def watched(out):
                seen.append((out, make(out)))
                return seen[0][1]

            return super().fill(index, watched)

    place = ChunkPlace(0, (0, 0), (0, 0), WIDE.shape)
    Region(1, STEPS[name], into=Watched(WIDE.shape, F8, lambda i: place))(0, WIDE)
    assert seen[0][0] is seen[0][1]


def test_a_sum_and_a_fill():
    total = RegionStep(KernelKind.REDUCE, np.add, (OperandSlot(1),), {"axis": None}, F8)
    into = ChunkDestination((1, 1), F8, lambda i: ChunkPlace(i, (0, 0), (0, 0), (1, 1)))
    Region(1, [ufunc(np.negative, OperandSlot(0)), total], into=into)(0, WIDE)
    assert into.take([None])[0, 0] == -WIDE.sum()

    def fill(place, value):
        return lambda out: out.fill(value)

    place = ChunkPlace(0, (0, 0), (0, 1), (3, 4))
    into = ChunkDestination((3, 5), F8, lambda i: place)
    Region(0, [RegionStep(KernelKind.FILL, fill, (), {"value": 6.0}, F8, lambda i: place)], into=into)(0)
    assert (into.take([None])[:, 1:] == 6.0).all()


def test_a_copy_in_another_process_returns_values():
    into = columns(WIDE.shape)
    away = pickle.loads(pickle.dumps(Region(1, STEPS["tiles"][:1], into=into)))
    np.testing.assert_array_equal(away(0, WIDE), WIDE + 1.0)
