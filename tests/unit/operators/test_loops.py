"""Compiled loops: NumPy's values bit for bit, whatever was compiled and when."""

import threading
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.operators import loops, regions
from weft.operators.region_steps import KernelKind, OperandSlot, RegionStep
from weft.operators.regions import Region

pytest.importorskip("numba", reason="numba is not installed: pip install 'weft[numba]'")

F4, F8, I8, B1 = (np.dtype(name) for name in ("f4", "f8", "i8", "?"))
SIZE = 50
RNG = np.random.default_rng(5)
WILD = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e308, -1e-308, 5e-324, 1 / 3])


def step(fn, *args, dtype=F8):
    return RegionStep(KernelKind.UFUNC, fn, args, {}, dtype)


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch):
    monkeypatch.setattr(regions, "TILE", 8)
    monkeypatch.setattr(loops, "DEAR", 1)


@pytest.fixture
def compiled(monkeypatch):
    """The expressions that were compiled."""
    found = []
    real = loops._compiled

    def noted(expression):
        found.append(expression)
        return real(expression)

    monkeypatch.setattr(loops, "_compiled", noted)
    monkeypatch.setattr(regions, "LOOPS", loops._Loops())
    return found


def values(dtype, size=SIZE):
    drawn = RNG.normal(size=size) * 10.0 ** RNG.integers(-5, 5, size)
    drawn[: len(WILD)] = WILD
    with np.errstate(all="ignore"):
        return (
            drawn > 0
            if dtype == B1
            else np.nan_to_num(drawn, posinf=9).astype(dtype)
            if dtype == I8
            else drawn.astype(dtype)
        )


def plain(inputs, steps):
    """Return what NumPy computes, step by step, over whole arrays."""
    slots = list(inputs)
    with np.errstate(all="ignore"):
        for one in steps:
            args = [slots[arg.at] if type(arg) is OperandSlot else arg for arg in one.args]
            if one.kind is KernelKind.REDUCE:
                slots.append(one.fn.reduce(*args, keepdims=True, **one.kwargs))
            else:
                slots.append(one.fn(*args))
    return slots[-1]


def same(found, wanted):
    assert found.dtype == wanted.dtype
    assert found.shape == wanted.shape
    assert np.array_equal(found, wanted, equal_nan=found.dtype.kind == "f")
    if found.dtype.kind == "f":
        whole = ~np.isnan(found)
        assert np.array_equal(np.signbit(found[whole]), np.signbit(wanted[whole]))


S = OperandSlot


@pytest.mark.parametrize("dtype", [F4, F8])
def test_every_function_of_numbers_gives_numpys_bits(dtype, compiled):
    x, y = values(dtype), values(dtype)[::-1].copy()
    for fn in loops._ARITHMETIC:
        made = fn(x[:1], y[:1]).dtype if fn.nin == 2 else fn(x[:1]).dtype
        steps = [
            step(np.add, S(0), S(1), dtype=dtype),
            step(fn, *[S(2), S(1)][: fn.nin], dtype=made),
        ]
        region = Region(2, steps)
        for _ in range(2):
            same(region(0, x, y), plain([x, y], steps))
    assert len(compiled) == len(loops._ARITHMETIC)


def test_every_function_of_booleans_gives_numpys(compiled):
    x, y = values(B1), values(B1)[::-1].copy()
    for fn in loops._LOGIC:
        steps = [step(np.logical_or, S(0), S(1), dtype=B1), step(fn, *[S(2), S(1)][: fn.nin], dtype=B1)]
        region = Region(2, steps)
        for _ in range(2):
            same(region(0, x, y), plain([x, y], steps))
    assert len(compiled) == len(set(loops._LOGIC.values()))


def test_a_loop_begins_when_numpy_has_taken_as_long_as_a_compilation(compiled, monkeypatch):
    monkeypatch.setattr(loops, "DEAR", 3 * 2 * SIZE)
    x = values(F8)
    steps = [step(np.multiply, S(0), 3), step(np.add, S(1), 0.1)]
    for turn in range(6):
        same(Region(1, steps)(0, x), plain([x], steps))
        assert len(compiled) == (turn >= 3)


def test_numbers_are_operands_so_that_other_numbers_need_no_other_loop(compiled):
    x = values(F8)
    for number in (2, 0.5, np.float64(7), np.nan, -0.0):
        steps = [step(np.multiply, S(0), number), step(np.subtract, 1, S(1))]
        for _ in range(2):
            same(Region(1, steps)(0, x), plain([x], steps))
    assert len(compiled) == 1


def test_numbers_of_python_take_the_dtype_of_the_array(compiled):
    x = values(F4)
    steps = [
        step(np.multiply, S(0), 0.1, dtype=F4),
        step(np.add, S(1), 1, dtype=F4),
        step(np.add, S(2), np.float64(0.1)),
    ]
    for _ in range(2):
        same(Region(1, steps)(0, x), plain([x], steps))
    assert len(compiled) == 1


def test_integers_and_booleans_become_numbers_as_numpys_do(compiled):
    x, y, z = values(I8), values(B1), np.array(2**63 + 1025, np.uint64)
    steps = [
        step(np.multiply, S(0), 0.5),
        step(np.add, S(3), S(1)),
        step(np.subtract, S(4), S(2)),
        step(np.divide, S(5), S(0)),
    ]
    for _ in range(2):
        same(Region(3, steps)(0, x, y, z), plain([x, y, z], steps))
    assert len(compiled) == 1


def test_sums_of_integers_stay_with_numpy(compiled):
    x = values(I8)
    steps = [step(np.add, S(0), S(0), dtype=I8), step(np.multiply, S(1), S(0), dtype=I8)]
    for _ in range(2):
        same(Region(1, steps)(0, x), plain([x], steps))
    assert not compiled


def test_what_ends_in_other_functions_has_a_loop_for_each_part(compiled):
    x, y = abs(values(F8)), values(F8)
    steps = [
        step(np.add, S(0), 1.5),
        step(np.sqrt, S(2)),
        step(np.exp, S(3)),
        step(np.multiply, S(4), S(1)),
        step(np.subtract, S(5), S(3)),
        step(np.arctan, S(6)),
    ]
    for _ in range(2):
        same(Region(2, steps)(0, x, y), plain([x, y], steps))
    assert sorted(len(one.operations) for one in compiled) == [2, 2]


def test_a_value_that_others_read_later_is_made(compiled):
    x, y = values(F8), values(F8)
    steps = [
        step(np.add, S(0), S(1)),
        step(np.multiply, S(2), S(1)),
        step(np.subtract, S(3), 1.0),
        RegionStep(KernelKind.CALL, np.sort, (S(4),), {}, F8),
        step(np.subtract, S(5), S(3)),
        step(np.multiply, S(6), S(1)),
    ]
    for _ in range(2):
        same(Region(2, steps)(0, x, y), plain([x, y], steps))
    assert len(compiled) == 2


@pytest.mark.parametrize("axis", [None, (0,), (1,), (0, 1)])
@pytest.mark.parametrize("shape", [(5, 10), (2, 25), (25, 2), (1, 50)])
@pytest.mark.parametrize("order", ["C", "F"])
def test_reductions_take_what_loops_have_made(axis, shape, order, compiled):
    x, y = (np.asarray(one.reshape(shape), order=order) for one in (RNG.normal(size=SIZE), RNG.normal(size=SIZE)))
    mean = np.array([[x.mean()]])
    steps = [
        step(np.subtract, S(0), S(2)),
        step(np.multiply, S(3), S(1)),
        RegionStep(KernelKind.REDUCE, np.add, (S(4),), {"axis": axis}, F8),
    ]
    region = Region(3, steps)
    before = region(0, x, y, mean)
    assert np.array_equal(before, region(0, x, y, mean)), "the same bits without a loop and with it"
    np.testing.assert_allclose(before, plain([x, y, mean], steps), rtol=1e-12, atol=1e-12)
    assert len(compiled) == 1


def chain_with_sum(dtype):
    chain = [step(np.multiply, S(0), S(1), dtype=dtype), step(np.subtract, S(2), 0.25, dtype=dtype)]
    return [*chain, RegionStep(KernelKind.REDUCE, np.add, (S(3),), {"axis": None}, dtype)]


@settings(max_examples=150, deadline=None)
@given(size=st.integers(2, 4_000), tile=st.integers(1, 250), dtype=st.sampled_from([F4, F8]), seed=st.integers(0, 99))
def test_a_sum_in_a_loop_adds_in_the_order_of_numpy(size, tile, dtype, seed):
    rng = np.random.default_rng(seed)
    x, y = (rng.normal(size=size).astype(dtype) * dtype.type(10) ** rng.integers(-5, 5, size) for _ in range(2))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(regions, "TILE", 8 * tile)
        patch.setattr(regions, "there", lambda: False)
        by_numpy = Region(2, chain_with_sum(dtype))(0, x, y)
        patch.setattr(regions, "there", lambda: True)
        for _ in range(2):  # the first call compiles
            by_loop = Region(2, chain_with_sum(dtype))(0, x, y)
        assert by_numpy.tobytes() == by_loop.tobytes(), f"{size} elements in tiles of {16 * tile}"


@pytest.mark.parametrize("dtype", [F4, F8])
@pytest.mark.parametrize("numbers", [[-0.0], [np.nan, 1.0], [np.inf, -np.inf], [np.inf, 1.0], [5e-324, -5e-324]])
def test_a_sum_in_a_loop_has_numpys_special_values(dtype, numbers, compiled):
    x = np.resize(np.array(numbers, dtype), 64)
    steps = [
        step(np.multiply, S(0), 1.0, dtype=dtype),
        step(np.positive, S(1), dtype=dtype),
        RegionStep(KernelKind.REDUCE, np.add, (S(2),), {"axis": None}, dtype),
    ]
    region = Region(1, steps)
    before = region(0, x)
    same(region(0, x), before)
    assert [one.summed for one in compiled] == [True]


def test_sums_of_several_dtypes_stay_with_numpy(compiled):
    steps = [
        step(np.add, S(0), S(1)),
        step(np.multiply, S(2), S(1)),
        RegionStep(KernelKind.REDUCE, np.add, (S(3),), {"axis": None}, F8),
    ]
    x, y = RNG.normal(size=SIZE).astype(F4), RNG.normal(size=SIZE)
    region = Region(2, steps)
    before = region(0, x, y)
    same(region(0, x, y), before)
    assert [one.summed for one in compiled] == [False]


def test_a_numpy_that_adds_in_another_order_keeps_its_sums(compiled, monkeypatch):
    assert loops._numpy_adds_so()
    monkeypatch.setattr(loops, "_numpy_adds_so", lambda: False)
    x, y = RNG.normal(size=(2, SIZE))
    region = Region(2, chain_with_sum(F8))
    before = region(0, x, y)
    same(region(0, x, y), before)
    assert [one.summed for one in compiled] == [False]


def test_rows_that_are_broadcast_stay_with_numpy(compiled):
    x, row = values(F8).reshape(5, 10), values(F8)[:10]
    steps = [step(np.add, S(0), S(1)), step(np.multiply, S(2), S(1))]
    for _ in range(2):
        same(Region(2, steps)(0, x, row), plain([x, row], steps))
    assert not compiled


@pytest.mark.parametrize("how", ["strided", "swapped", "unaligned"])
def test_arrays_that_no_loop_reads_stay_with_numpy(how, compiled):
    x = values(F8)
    given = {
        "strided": np.repeat(x, 2)[::2],
        "swapped": x.astype(">f8"),
        "unaligned": np.frombuffer(b"\0" + x.tobytes(), np.uint8)[1:].view(F8),
    }[how]
    steps = [step(np.add, S(0), 1.0), step(np.multiply, S(1), S(0))]
    for _ in range(2):
        same(Region(1, steps)(0, given), plain([given], steps))
    assert not compiled


def test_with_many_operands_chains_are_shorter(compiled):
    inputs = [values(F8) for _ in range(12)]
    steps = [step(np.add, S(0), S(1)), *[step(np.multiply, S(12 + at), S(2 + at)) for at in range(10)]]
    for _ in range(2):
        same(Region(12, steps)(0, *inputs), plain(inputs, steps))
    assert all(len(one.operands) <= loops.MOST_OPERANDS for one in compiled)


def test_errors_that_raise_are_raised():
    x = np.ones(SIZE)
    x[-1] = 0
    steps = [step(np.add, S(0), 0.0), step(np.divide, 1.0, S(1))]
    region = Region(1, steps, raised=("divide",))
    for _ in range(2):
        with pytest.raises(FloatingPointError, match="divide by zero"):
            region(0, x)


def test_threads_go_on_while_one_compiles(compiled, monkeypatch):
    real, begun, others = loops._compiled, threading.Event(), threading.Event()

    def slow(expression):
        begun.set()
        assert others.wait(60)
        return real(expression)

    monkeypatch.setattr(loops, "_compiled", slow)
    x = values(F8)
    steps = [step(np.add, S(0), 1.0), step(np.multiply, S(1), S(0))]
    region = Region(1, steps)
    region(0, x)
    thread = threading.Thread(target=region, args=(0, x))
    thread.start()
    assert begun.wait(60)
    same(region(0, x), plain([x], steps))
    others.set()
    thread.join(60)
    same(region(0, x), plain([x], steps))
    assert len(compiled) == 1


def test_without_a_numba_that_can_compile_numpy_goes_on(compiled, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "numba", None)
    x = values(F8)
    steps = [step(np.add, S(0), 1.0), step(np.multiply, S(1), S(0))]
    for _ in range(3):
        same(Region(1, steps)(0, x), plain([x], steps))
    assert len(compiled) == 1, "it is tried once"


def test_a_value_goes_to_its_place(compiled):
    x = values(F8)
    steps = [step(np.add, S(0), 1.0), step(np.multiply, S(1), S(0))]
    for out in (np.empty(SIZE), np.empty(2 * SIZE)[::2]):
        region = Region(1, steps)
        for _ in range(2):
            out[:] = 0
            with regions.quiet(()):
                assert region._made(0, [x, None, None], out) is out
            same(out, plain([x], steps))
    assert len(compiled) == 1


FUNCTIONS = [np.add, np.subtract, np.multiply, np.divide, np.negative, np.absolute, np.square, np.sqrt, np.exp, np.less]


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_program_gives_numpys_bits(data):
    kinds = data.draw(st.lists(st.sampled_from([F4, F8, I8]), min_size=1, max_size=3))
    inputs = [values(kind) for kind in kinds]
    dtypes = list(kinds)
    steps = []
    for _ in range(data.draw(st.integers(2, 8))):
        fn = data.draw(st.sampled_from(FUNCTIONS))
        args = [
            S(data.draw(st.integers(0, len(dtypes) - 1)))
            if data.draw(st.booleans()) or not at
            else data.draw(st.floats(-5, 5))
            for at in range(fn.nin)
        ]
        try:
            *_, made = fn.resolve_dtypes((*[dtypes[a.at] if type(a) is S else float for a in args], None))
        except TypeError:
            continue
        steps.append(step(fn, *args, dtype=made))
        dtypes.append(made)
    if not steps:
        return
    region = Region(len(inputs), steps)
    for _ in range(2):
        same(region(0, *inputs), plain(inputs, steps))


def test_expressions_are_bounded(compiled, monkeypatch):
    monkeypatch.setattr(loops, "_MOST_EXPRESSIONS", 1)
    x = values(F8)
    for one, other in pairwise([np.add, np.subtract, np.multiply]):
        steps = [step(one, S(0), 1.0), step(other, S(1), S(0))]
        for _ in range(2):
            same(Region(1, steps)(0, x), plain([x], steps))
    assert len(compiled) == 1
