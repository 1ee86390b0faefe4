"""Every public function of `weft.tensor.random` has the shapes, types and errors of NumPy's generators with unusual
arguments, and numbers of the same distribution; the same seed gives the same numbers, however they are computed.
`tensors.distributions` has the arguments of each function."""

import os
import random
import re
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pytest

import weft.tensor as wt
from tests.properties.tensors import distributions
from tests.properties.tensors.comparing import attempt
from tests.properties.tensors.distributions import BOUNDS, INF, OF_STATE, OTHERS
from tests.properties.test_public_functions import as_tensors, kinds

PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "ci")
COUNT = {"fast": 10, "soak": 3_000}.get(PROFILE, 60)
"""How many calls of each function are tried."""
TASKS = 0.02
"""The share of calls that tasks of the engine carry out."""
PARAMETERS = distributions.table()
FUNCTIONS = sorted({*PARAMETERS, *OTHERS})
ELSEWHERE = {"Generator", "RandomState", "default_rng", "seed", "shuffle", "random_integers"}
"""What is tried below or in `unit/tensor/test_random.py`: it returns no numbers, or NumPy deprecates it."""


class Difference(NamedTuple):
    """Calls of functions that differ on purpose, if `when` holds of the errors of Weft and of NumPy."""

    reason: str
    names: str
    when: Callable[[Exception | None, Exception | None], Any]


WHOLE = "binomial|hypergeometric"
DIFFERENCES = [
    Difference(
        "of two faults, one of them in shapes, either is told first",
        ".*",
        lambda failed, refused: failed and refused and re.search("shape|size", f"{failed} {refused}"),
    ),
    Difference(
        "an array without axes is a number; NumPy refuses one of floating-point numbers",
        WHOLE,
        lambda failed, refused: "Cannot cast scalar" in str(refused),
    ),
    Difference(
        "the size holds the shape of the parameters; NumPy leaves the rest of the parameters out",
        "integers|randint",
        lambda failed, refused: refused is None and re.search("go together|shape mismatch", str(failed)),
    ),
    Difference(
        "an array without axes has nothing to permute, and stays as it is; NumPy fails",
        "permuted",
        lambda failed, refused: failed is None and "unsized" in str(refused),
    ),
]


@pytest.fixture(scope="module")
def engine():
    session = wt.Session(workers=2, direct=False)
    yield session
    session.close()


def drawn(name: str, rng: random.Random) -> Any:
    return OTHERS[name](rng) if name in OTHERS else distributions.drawn(PARAMETERS[name], rng)


def ours(name: str, seed: int, args: Any, kwargs: Any) -> Any:
    return getattr(wt.random.RandomState(seed), name)(*args, **kwargs)


def theirs(name: str, seed: int, args: Any, kwargs: Any) -> Any:
    of = np.random.RandomState if name in OF_STATE else np.random.default_rng
    made = getattr(of(seed), OF_STATE.get(name, name))(*args, **kwargs)
    return np.asarray(made, kwargs.get("dtype") if isinstance(made, float) else None)


def fetched(made: Any, session: wt.Session | None) -> tuple[Any, Any]:
    """Return the shape and the type before numbers are drawn, and the numbers."""
    if not isinstance(made, wt.Tensor):
        made = np.asarray(made)
        return (made.shape, made.dtype), made
    return (made.shape, made.dtype), made.fetch(session)


def tensors(name: str, args: Any, kwargs: Any, rng: random.Random) -> tuple[Any, Any]:
    """Return arguments with tensors, cut anyhow, for most of the parameters that are arrays."""
    kept = {key: kwargs[key] for key in kwargs.keys() & {"size", "dtype"}}
    sizes = OTHERS.get(name) is distributions.streamed
    return args if sizes else as_tensors(args, rng), {**as_tensors(kwargs, rng), **kept}


def compare(name: str, number: int, engine: Any = None) -> tuple[str, Exception | None, Exception | None] | None:
    """Call both functions; return how they differ, and their errors."""
    rng = random.Random(number)
    args, kwargs = drawn(name, rng)
    expected, refused = attempt(lambda: theirs(name, number, args, kwargs))
    own_args, own_kwargs = tensors(name, args, kwargs, rng)
    session = engine if rng.random() < TASKS else None
    found, failed = attempt(lambda: fetched(ours(name, number, own_args, own_kwargs), session))
    told = f"{name} {args!r} {kwargs!r}"
    if refused is not None or failed is not None:
        if refused is not None and failed is not None and kinds(refused) & kinds(failed):
            return None
        return f"{told}\n{failed or found!r}, but NumPy has {refused or expected!r}", failed, refused
    (size, dtype), values = found
    wanted = (expected.shape, expected.dtype)
    if (size, dtype) != wanted or (values.shape, values.dtype) != wanted:
        return f"{told}\n{size} {dtype} {values.shape} {values.dtype}, but NumPy has {wanted}", None, None
    again, _ = attempt(lambda: fetched(ours(name, number, args, kwargs), None)[1])
    if not np.array_equal(values, again, equal_nan=values.dtype.kind == "f"):
        return f"{told}\nthe same seed gives other numbers", None, None
    if name in PARAMETERS and not within(name, values, args, kwargs):
        return f"{told}\n{values} are not of the distribution", None, None
    return None


def within(name: str, values: Any, args: Any, kwargs: Any) -> bool:
    """Say whether numbers are those that a distribution has, unless parameters are NaN or infinite."""
    named = {key: np.asarray(one, np.float64) for key, one in kwargs.items() if key != "size"}
    given = [np.asarray(one, np.float64) for one in args]
    if not all(np.isfinite(one).all() for one in [*given, *named.values()]):
        return True
    if re.fullmatch(WHOLE, name):  # NumPy rounds numbers of trials down; probabilities do not count in bounds
        given, named = [np.trunc(one) for one in given], {key: np.trunc(one) for key, one in named.items()}
    low, high = BOUNDS[name](*given, **named) if name in BOUNDS else (0, INF)
    return bool(np.all((low <= values) & (values <= high)))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_as_numpy(name, seed, engine):
    wrong = []
    for number in range(seed, seed + COUNT):
        found = compare(name, number, engine)
        if found and not any(re.fullmatch(one.names, name) and one.when(*found[1:]) for one in DIFFERENCES):
            wrong.append(f"repeat with WEFT_SEED={number}: {found[0]}")
    assert not wrong, "\n\n".join([f"{len(wrong)} of {COUNT} calls of {name}", *wrong[:3]])


@pytest.mark.parametrize("name", sorted({*PARAMETERS, "random", "standard_normal", "standard_exponential"}))
def test_numbers_are_of_the_distribution(name, seed):
    """The shares of numbers up to any of them differ from those of NumPy as little as those of two samples of the
    distribution do in all but 7 of 10^6 pairs (Kolmogorov and Smirnov)."""
    rng, n = random.Random(seed), 4_000
    args = [
        rng.choice([one for one in distributions.VALUES[kind][0] if one]) for _, kind, _ in PARAMETERS.get(name, [])
    ]
    if name == "hypergeometric":
        args = [20, 30, 15]
    chunk_size = rng.choice([None, 700, 1_000])
    x = np.sort(ours(name, seed, args, {"size": n, "chunk_size": chunk_size}).fetch())
    y = np.sort(theirs(name, seed, args, {"size": n}))
    both = np.concatenate([x, y])
    apart = np.abs(np.searchsorted(x, both, "right") - np.searchsorted(y, both, "right")).max() / n
    assert apart < 2.5 * (2 / n) ** 0.5, (args, chunk_size, apart)


@pytest.mark.parametrize("difference", DIFFERENCES, ids=lambda one: one.reason[:60])
def test_each_difference_is_there(difference, seed):
    names = [name for name in FUNCTIONS if re.fullmatch(difference.names, name)]
    for number in range(seed, seed + 4_000):
        found = compare(names[number % len(names)], number)
        if found and difference.when(*found[1:]):
            return
    raise AssertionError(f"no call differs: {difference.reason}")


def test_elements_are_shuffled_in_place(seed):
    for number in range(seed, seed + COUNT):
        rng = random.Random(number)
        [x], kwargs = distributions.permuted(rng)
        axis = kwargs.get("axis") or 0
        shuffled = wt.asarray(x.copy())
        _, refused = attempt(partial(np.random.default_rng(1).shuffle, x.copy(), axis))
        _, failed = attempt(partial(wt.random.default_rng(1).shuffle, shuffled, axis))
        assert (refused is None) == (failed is None), (x, axis, refused, failed)
        if failed is None:
            np.testing.assert_array_equal(np.sort(shuffled.fetch(), axis), np.sort(x, axis), f"{number}")


def test_whole_numbers_up_to_a_last_one(seed):
    found = wt.random.RandomState(seed).random_integers(3, 5, size=(40, 5)).fetch()
    assert set(found.flat) == {3, 4, 5}


def test_every_public_function_is_tried():
    public = {name for name in wt.random.__all__ if callable(getattr(wt.random, name))}
    assert public == {*FUNCTIONS, *ELSEWHERE}, "give it a row in tensors.distributions"
