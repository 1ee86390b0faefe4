"""Tensors say what NumPy says, whatever the function, the chunks, the types and the values, and where NumPy refuses,
they do. `tensors` has how each public function is called."""

import inspect
import os
import random
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft.tensor as wt
from tests.properties.tensors import algebra, elements, reductions, selection, shapes
from tests.properties.tensors.drawing import NOT_OF_ARRAYS, Case, Draw, chunks

FAMILIES = {
    "elementwise": elements.ELEMENTWISE,
    "operators": elements.OPERATORS,
    "reductions": reductions.REDUCTIONS,
    "manipulation": shapes.MANIPULATION,
    "creation": shapes.CREATION,
    "indexing": selection.INDEXING,
    "searching": selection.SEARCHING,
    "unknown": selection.UNKNOWN,
    "linalg": algebra.LINALG,
    "fft": algebra.FFT,
}
UNIT_TESTS = Path(__file__).parents[1] / "unit" / "tensor"
"""Functions that are not tried here have tests of their own against NumPy, by name."""
PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "ci")
COUNT = {"fast": 600, "soak": 200_000}.get(PROFILE, 10_000)
"""How many calls are tried in all."""
TASKS = 0.03
"""The share of them that tasks of the engine carry out, however small they are."""
HIDDEN = 0.25
"""The share of them of arrays whose lengths depend on data."""


@pytest.fixture(scope="module")
def engine():
    session = wt.Session(workers=2, direct=False)
    yield session
    session.close()


@pytest.mark.parametrize("family", FAMILIES)
def test_as_numpy(family, seed, engine):
    cases = FAMILIES[family]
    share = max(1, COUNT * len(cases) // sum(len(one) for one in FAMILIES.values()))
    names = list(cases)
    for number in range(seed, seed + share):
        rng = random.Random(number)
        name = names[number % len(names)]
        case = drawn(cases[name], rng)
        try:
            compare(case, rng, engine if rng.random() < TASKS else None)
        except Exception as error:
            again = f"WEFT_SEED={number} python -m pytest tests/properties/test_tensors.py -k '{family}'"
            raise AssertionError(f"{name}, seed {number}, repeat with: {again}\n{case.name}\n{error}") from error


def drawn(draw: Draw, rng: random.Random) -> Case:
    """Draw a case, without a word about NaN in its numbers."""
    with np.errstate(all="ignore"):
        return draw(rng)


def compare(case: Case, rng: random.Random, session: wt.Session | None) -> None:
    """Carry out a call with both, and compare types, shapes and values; or see that both refuse."""
    cut = [chunks(rng, x.shape) for x in case.arrays]
    hide = rng.random() < HIDDEN
    hidden = [hide and x.ndim > 0 and rng.random() < 0.7 for x in case.arrays]
    told = f"{case.name}\narrays {case.arrays!r}\nchunk_size {cut}\nof lengths that depend on data {hidden}"
    expected, refused = attempt(lambda: case.theirs(*[x.copy() for x in case.arrays]))

    def ours() -> Any:
        given = zip(case.arrays, cut, hidden, strict=True)
        made = case.ours(*[among_others(rng, x) if hide else wt.asarray(x, chunk_size=n) for x, n, hide in given])
        return made, [one.shape for one in listed(made)], [one.fetch(session) for one in listed(made)]

    found, failed = attempt(ours)
    if refused is not None or failed is not None:
        assert refused is not None, f"{told}\nraised {failed!r}, but NumPy returns {expected!r}"
        assert failed is not None, f"{told}\nreturned {found}, but NumPy raises {refused!r}"
        return
    made, shapes, values = found
    wanted = [np.asarray(one) for one in listed(expected)]
    assert [one.shape for one in wanted] == shapes == [one.shape for one in values], told
    assert [one.dtype for one in wanted] == [one.dtype for one in listed(made)] == [one.dtype for one in values], told
    for one, other in zip(values, wanted, strict=True):
        check(one, other, case, told)


def among_others(rng: random.Random, x: np.ndarray[Any, Any]) -> wt.Tensor:
    """Return an array whose length only its values can tell: rows that a mask picks from among others."""
    drawn_from = [True] * len(x) + [False] * rng.randint(0, 4)
    rng.shuffle(drawn_from)
    picked = np.asarray(drawn_from, bool)
    whole = np.ones((len(picked), *x.shape[1:]), x.dtype)
    whole[picked] = x
    return wt.asarray(whole, chunk_size=chunks(rng, whole.shape))[wt.asarray(picked)]


def attempt(call: Callable[[], Any]) -> tuple[Any, Exception | None]:
    """Return what a call returns, or what it raises."""
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # NumPy tells some things twice: what it casts, what it divides by zero
        try:
            return call(), None
        except Exception as error:  # noqa: BLE001 - whatever it refuses with
            return None, error


def check(ours: Any, theirs: Any, case: Case, told: str) -> None:
    """Compare values: to the bit, or as closely as sums of such numbers in another order are alike."""
    if case.exact or theirs.dtype.kind not in "fc":
        np.testing.assert_array_equal(ours, theirs, told)
        return
    eps = float(np.finfo(theirs.dtype).eps)
    scale = [1.0]
    for x in (*case.arrays, theirs):
        finite = np.abs(x[np.isfinite(x)]).astype(np.float64)
        scale.append(float(finite.max(initial=0)) * max(1, x.size) ** 0.5)
    for part in (np.real, np.imag) if theirs.dtype.kind == "c" else (np.asarray,):
        with np.errstate(all="ignore"):
            np.testing.assert_allclose(
                part(ours), part(theirs), rtol=3000 * eps, atol=100 * eps * max(scale), err_msg=told
            )


def listed(made: Any) -> list[Any]:
    """Return arrays as a list."""
    return list(made) if isinstance(made, tuple | list) else [made]


def test_no_public_function_is_left_out():
    tried = {name.split(",")[0] for cases in FAMILIES.values() for name in cases}
    elsewhere = "".join(file.read_text() for file in UNIT_TESTS.glob("test_*.py"))
    for space in (wt, wt.linalg, wt.fft):
        public = {name: getattr(space, name) for name in space.__all__ if inspect.isroutine(getattr(space, name))}
        functions = {name: inspect.unwrap(found) for name, found in public.items()}
        theirs = {name for name, found in functions.items() if found.__module__.partition(".")[0] == "numpy"}
        named = {name for name in functions if name in tried or re.search(rf"\b{name}\b", elsewhere)}
        once = {id(functions[name]) for name in named}  # perhaps under another name
        assert [name for name in functions.keys() - NOT_OF_ARRAYS - theirs if id(functions[name]) not in once] == []
