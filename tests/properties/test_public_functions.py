"""Every public function equals NumPy's with unusual arguments: mixed and small types, numbers that do not fit, arrays
without axes or elements, wrong `out=`, axes that are not there. `tensors.calls` has the arguments of each function,
`tensors.differences` the differences that are on purpose."""

import inspect
import os
import random
import re
from functools import partial
from operator import getitem, setitem
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft.tensor as wt
from tests.properties.tensors import elements
from tests.properties.tensors.calls import MIXED, ODD_NUMBERS, UFUNCS, Drawn, draw, table
from tests.properties.tensors.comparing import attempt, check
from tests.properties.tensors.differences import DIFFERENCES, Mismatch
from tests.properties.tensors.drawing import chunks
from tests.properties.tensors.selection import index_for

PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "ci")
COUNT = {"fast": 4, "soak": 3_000}.get(PROFILE, 12)
"""How many calls of each function are tried."""
THEIRS = {
    "argsort": partial(np.argsort, kind="stable"),
    "expm1": elements._expm1,
    "floor_divide": elements._floor_divide,
    "tanh": elements._tanh,
    "empty_like": np.zeros_like,  # elements of NumPy's have any value
    "in1d": lambda *args, **words: np.isin(*args, **words).ravel(),
    "innerproduct": np.inner,
    "linalg.dot": np.dot,
    "linalg.inner": np.inner,
    "linalg.innerproduct": np.inner,
    "linalg.vdot": np.vdot,
    "product": np.prod,
    "round_": np.round,
    "scalar": np.asarray,
    "tensor": np.asarray,
    "trapz": np.trapezoid,
    "unique_values": lambda x: np.unique(x, equal_nan=False),
}
"""NumPy's functions that have other names, or whose results are defined only with more arguments."""
UNORDERED = {"argpartition", "partition"}
"""Functions whose results are not defined to the last place: only their shapes and types are compared."""
TASKS = 0.02
"""The share of calls that tasks of the engine carry out, however small they are."""
SPACES = {"": (wt, np), "linalg": (wt.linalg, np.linalg), "fft": (wt.fft, np.fft)}


ELSEWHERE = {
    "properties/tensors/algebra.py": "linalg.eig linalg.eigh linalg.eigvals linalg.qr linalg.svd",
    "properties/tensors/shapes.py": "empty from_array from_dlpack",
    "unit/tensor/test_more_functions.py": "array2string array_repr array_str busday_count busday_offset common_type "
    "datetime_as_string einsum_path frombuffer fromfile fromfunction fromiter fromregex fromstring genfromtxt "
    "is_busday isfortran loadtxt mask_indices may_share_memory min_scalar_type place polyfit put put_along_axis "
    "putmask savetxt savez savez_compressed shares_memory",
    "unit/tensor/test_delayed.py": "from_delayed",
    "unit/tensor/test_planning.py": "compute explain persist visualize",
    "unit/tensor/test_blockwise.py": "apply_gufunc blockwise map_blocks map_overlap vectorize",
    "unit/tensor/test_standard.py": "__array_namespace_info__ broadcast_shapes can_cast finfo iinfo isdtype "
    "result_type",
    "unit/tensor/test_executables.py": "execute fetch get_default_session named_tensor new_session option_context "
    "stop_server",
    "unit/tensor/test_functions.py": "argtopk map_chunk rechunk topk",
    "unit/tensor/test_older_numpy.py": "copyto fill_diagonal tree_add tree_multiply linalg.lu linalg.randomized_svd "
    "linalg.solve_triangular",
    "unit/tensor/test_storing.py": "from_hdf5 fromhdf5 from_zarr fromzarr load save store to_hdf5 tohdf5 to_zarr "
    "tozarr",
    "unit/tensor/test_views.py": "flatten",
}
"""Functions that are tried elsewhere, since NumPy has none of the name, or they are of no arrays: by the file."""


def both(name: str) -> tuple[Any, Any]:
    """Return the function of Weft and that of NumPy."""
    space, _, own = name.rpartition(".")
    ours, theirs = SPACES[space]
    return getattr(ours, own), THEIRS.get(name) or getattr(theirs, own)


def functions() -> dict[str, list[str]]:
    """Return the roles of the arguments of each public function that is tried here."""
    made = table()
    for name in wt.__all__:
        ufunc = getattr(np, name, None)
        if isinstance(ufunc, np.ufunc) and inspect.isroutine(getattr(wt, name)) and ufunc.nin in UFUNCS:
            made.setdefault(name, UFUNCS[ufunc.nin].split())
    return made


FUNCTIONS = functions()


@pytest.fixture(scope="module")
def engine():
    session = wt.Session(workers=2, direct=False)
    yield session
    session.close()


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_as_numpy(name, seed, engine):
    wrong = []
    for number in range(seed, seed + COUNT):
        rng = random.Random(number)
        found = compare(name, draw(FUNCTIONS[name], rng), engine if rng.random() < TASKS else None)
        if found and not any(one.covers(found) for one in DIFFERENCES):
            wrong.append(f"repeat with WEFT_SEED={number}: {found.told}")
    assert not wrong, "\n\n".join([f"{len(wrong)} of {COUNT} calls of {name}", *wrong[:3]])


METHODS = [
    name
    for name in sorted(set(FUNCTIONS) - set(THEIRS) - {"conj", "conjugate", "partition", "sort"})
    if callable(getattr(np.ndarray, name, None)) and hasattr(wt.Tensor, name)
]


def methods(name: str) -> tuple[Any, Any]:
    """Return the methods of Weft's and of NumPy's arrays as functions."""

    def ours(x: Any, *args: Any, **words: Any) -> Any:
        return getattr(x if isinstance(x, wt.Tensor) else wt.asarray(x), name)(*args, **words)

    return ours, getattr(np.ndarray, name)


def dispatched(name: str) -> tuple[Any, Any]:
    """Return NumPy's function, called for arrays of Weft and of NumPy."""
    theirs = both(name)[1]

    def ours(*args: Any, **words: Any) -> Any:
        first = [wt.asarray(one) if isinstance(one, np.ndarray) else one for one in args[:1]]
        return theirs(*first, *args[1:], **words)

    return ours, theirs


@pytest.mark.parametrize("name", sorted(set(FUNCTIONS) - set(THEIRS)))
def test_functions_of_numpy_as_numpy(name, seed):
    for number in range(seed, seed + max(1, COUNT // 4)):
        found = compare(name, draw(FUNCTIONS[name], random.Random(number)), of=dispatched)
        if found and not any(one.covers(found) for one in DIFFERENCES):
            raise AssertionError(f"repeat with WEFT_SEED={number}: {found.told}")


@pytest.mark.parametrize("name", METHODS)
def test_methods_as_numpy(name, seed):
    for number in range(seed, seed + COUNT):
        found = compare(name, draw(FUNCTIONS[name], random.Random(number)), of=methods)
        if found and not any(one.covers(found) for one in DIFFERENCES):
            raise AssertionError(f"repeat with WEFT_SEED={number}: {found.told}")


def test_assignments_as_numpy(seed):
    """Values of other types, and numbers that do not fit, are assigned or refused as by NumPy."""
    for number in range(seed, seed + 20 * COUNT):
        rng = random.Random(number)
        with np.errstate(all="ignore"):
            d = Drawn(rng)
            x = d.new(d.size())
            index = index_for(rng, x.shape, arrays=rng.random() < 0.4)
            size = np.shape(attempt(partial(getitem, x, index))[0])
            value: Any = rng.choice(ODD_NUMBERS)
            if rng.random() < 0.6:
                value = d.new(size[rng.randint(0, len(size)) :], special=False)
            elif size and rng.random() < 0.2:
                value = [rng.choice(ODD_NUMBERS) for _ in range(size[-1])]
        wanted, found = x.copy(), wt.asarray(x, chunk_size=chunks(rng, x.shape))
        given = as_tensors(value, rng)
        _, refused = attempt(partial(setitem, wanted, index, value))
        _, failed = attempt(partial(setitem, found, index, given))
        told = f"repeat with WEFT_SEED={number}: {x!r}[{index}] = {value!r}, {failed!r} {refused!r}"
        if refused is not None or failed is not None:
            assert refused is not None, told
            assert failed is not None, told
            assert isinstance(refused, IndexError) or kinds(refused) & kinds(failed), told
            continue
        values, _ = attempt(found.fetch)
        assert values.dtype == wanted.dtype, told
        np.testing.assert_array_equal(values, wanted, told)


def test_every_public_function_is_tried():
    elsewhere = {name: file for file, names in ELSEWHERE.items() for name in names.split()}
    texts = {file: (Path(__file__).parents[1] / file).read_text() for file in ELSEWHERE}
    for space, (ours, _) in SPACES.items():
        for own in ours.__all__:
            name = f"{space}.{own}" if space else own
            function = getattr(ours, own)
            if not inspect.isroutine(function) or inspect.unwrap(function).__module__.startswith("numpy"):
                continue
            assert (name in FUNCTIONS) != (name in elsewhere), f"{name}: give it a row in tensors.calls"
            if name in elsewhere:
                same = [one for one in ours.__all__ if inspect.unwrap(getattr(ours, one)) is inspect.unwrap(function)]
                assert any(re.search(rf"\b{one}\b", texts[elsewhere[name]]) for one in same), (name, elsewhere[name])


@pytest.mark.parametrize("difference", DIFFERENCES, ids=lambda one: one.reason[:60])
def test_each_difference_is_there(difference, seed):
    names = [name for name in sorted(FUNCTIONS) if re.fullmatch(difference.names, name)]
    assert names, difference.names
    for number in range(seed, seed + 4000):
        name = names[number % len(names)]
        found = compare(name, draw(FUNCTIONS[name], random.Random(number)))
        if found and difference.covers(found):
            return
    raise AssertionError(f"no call differs: {difference.reason}")


def compare(name: str, d: Drawn, session: wt.Session | None = None, of: Any = both) -> Mismatch | None:
    """Call both functions; return how they differ."""
    fn, other = of(name)
    if isinstance(other, np.ufunc) and (not d.out or any(isinstance(one, int) for one in d.args)):
        d.kwargs.pop("where", None)  # elements would be undefined; NumPy 2.4 crashes for numbers that do not fit
    expected, refused = attempt(lambda: other(*copied(d.args), **copied(d.kwargs)))
    computed_in = [np.asarray(one).dtype for one in flat(expected)]
    into: list[Any] = []
    if d.out and refused is None:
        own = out_for(d, np.asarray(expected))
        into = [own, wt.asarray(own.copy()) if d.rng.random() < 0.7 else own.copy()]
        if "cum" in name and own.shape != np.shape(expected):
            refused = ValueError("NumPy 2.4 crashes here")
        else:
            expected, refused = attempt(lambda: other(*copied(d.args), **copied(d.kwargs), out=into[0]))
    words = {"out": into[1]} if into else {}
    own_args, own_words = as_tensors(d.args, d.rng), as_tensors(d.kwargs, d.rng)
    found, failed = attempt(lambda: fetched(fn(*own_args, **own_words, **words), session))
    told = f"{name} {d.args!r} {d.kwargs!r}" + (f" out={into[0].dtype}{into[0].shape}" if into else "")

    def mismatch(text: str) -> Mismatch:
        values = [one[2] for one in found or ()]
        return Mismatch(name, d, into[0] if into else None, expected, refused, failed, text, values, numbers(d))

    if refused is not None or failed is not None:
        if refused is not None and failed is not None and kinds(refused) & kinds(failed):
            return None
        return mismatch(f"{told}\n{failed or found!r}, but NumPy has {refused or expected!r}")
    wanted = [np.asarray(one) for one in flat(expected)]
    shapes = [(one.shape, one.dtype) for one in wanted]
    if [one[:2] for one in found] != shapes or [(one[2].shape, one[2].dtype) for one in found] != shapes:
        return mismatch(f"{told}\n{[one[:2] for one in found]}, but NumPy has {shapes}")
    if name in UNORDERED:
        return None
    for (*_, one), two, kind in zip(found, wanted, computed_in, strict=True):
        nan = (one != one) & (two != two) if two.dtype.kind == "c" else False  # either part may be NaN
        one, two = np.where(nan, 0, one), np.where(nan, 0, two)
        try:
            check(one, two, numbers(d), eps_of=kind)
        except AssertionError as error:
            return mismatch(f"{told}\n{error}")
    return None


def fetched(made: Any, session: wt.Session | None) -> list[Any]:
    """Return the shape and the type that arrays have before they are computed, and their values."""
    return [
        (np.shape(one), np.result_type(one), np.asarray(one.fetch(session) if isinstance(one, wt.Tensor) else one))
        for one in flat(made)
    ]


def kinds(error: BaseException) -> set[type]:
    """Return the builtin classes of an error by which it can be caught."""
    return {one for one in type(error).__mro__ if one.__module__ == "builtins"} - {Exception, BaseException, object}


def out_for(d: Drawn, result: Any) -> Any:
    """Draw an array for the result; of some, either the shape or the type is another."""
    size, kind = result.shape, result.dtype
    draw = d.rng.random()
    if draw < 0.3:
        size = d.rng.choice([(2, *size), (*size, 1), (), size[1:], tuple([n + 1 for n in size])])
    elif draw < 0.6:
        other = np.dtype(d.rng.choice(MIXED[: None if kind.kind == "c" else -2]))
        if other.kind in "fc" or np.can_cast(kind, other) or not np.can_cast(kind, other, "same_kind"):
            kind = other  # what small integers have of large ones depends on when they are cast
    return np.ones(size, kind)


def flat(made: Any) -> list[Any]:
    return [one for part in made for one in flat(part)] if isinstance(made, tuple | list) else [made]


def copied(given: Any) -> Any:
    return each(given, np.copy)


def as_tensors(given: Any, rng: random.Random) -> Any:
    """Return arguments with tensors, cut anyhow, for most of the arrays."""
    return each(given, lambda x: wt.asarray(x, chunk_size=chunks(rng, x.shape)) if rng.random() < 0.9 else x.copy())


def each(given: Any, change: Any) -> Any:
    if isinstance(given, np.ndarray):
        return change(given)
    if isinstance(given, dict):
        return {key: each(one, change) for key, one in given.items()}
    return type(given)([each(one, change) for one in given]) if isinstance(given, list | tuple) else given


def numbers(d: Drawn) -> list[Any]:
    """Return all numbers among the arguments as arrays."""
    given = flat([*d.args, *d.kwargs.values()])
    return [np.asarray(one) for one in given if isinstance(one, np.ndarray | int | float | complex)]
