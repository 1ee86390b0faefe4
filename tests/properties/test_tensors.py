"""Tensors say what NumPy says, whatever the function, the chunks, the types and the values, and where NumPy refuses,
they do. `tensors` has how each public function is called."""

import os
import random
from typing import Any

import numpy as np
import pytest

import weft.tensor as wt
from tests.properties.tensors import algebra, elements, reductions, selection, shapes
from tests.properties.tensors.comparing import attempt, check, listed
from tests.properties.tensors.drawing import Case, Draw, chunks

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
PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "ci")
COUNT = {"fast": 600, "soak": 200_000}.get(PROFILE, 5_000)
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
        check(one, other, case.arrays, told, exact=case.exact)


def among_others(rng: random.Random, x: np.ndarray[Any, Any]) -> wt.Tensor:
    """Return an array whose length only its values can tell: rows that a mask picks from among others."""
    drawn_from = [True] * len(x) + [False] * rng.randint(0, 4)
    rng.shuffle(drawn_from)
    picked = np.asarray(drawn_from, bool)
    whole = np.ones((len(picked), *x.shape[1:]), x.dtype)
    whole[picked] = x
    return wt.asarray(whole, chunk_size=chunks(rng, whole.shape))[wt.asarray(picked)]
