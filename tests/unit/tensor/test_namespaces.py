"""Chunks computed by another namespace than NumPy's: a module that wraps NumPy, counts, and lets nobody else read."""

import importlib
import itertools
import os
import pickle
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import weft.tensor as wt
from weft.model.errors import MissingExtraError, UsageError
from weft.operators import namespaces
from weft.operators.region_steps import KernelKind, OperandSlot, RegionStep
from weft.operators.regions import Region

NAME = "counting_arrays"
SOURCE = '''
"""NumPy behind a class of its own that none of NumPy's protocols can look into."""

import os
from collections import Counter

import numpy as np


class Calls(Counter):
    """What was called in this process; what any process has called stands in a file of its number."""

    def __setitem__(self, name, count):
        super().__setitem__(name, count)
        with open(f"{__file__}.{os.getpid()}", "a") as file:
            file.write(f"{name}\\n")


calls = Calls()


class Array:
    __array_ufunc__ = None

    def __init__(self, values):
        self.values = values
        self.dtype = values.dtype

    def __array__(self, *args, **kwargs):
        raise TypeError("an array of the namespace was read as NumPy's")

    def astype(self, dtype):
        return Array(self.values.astype(dtype))

    def __iadd__(self, other):
        calls["+="] += 1
        return Array(self.values + other.values)

    def __getitem__(self, index):
        return Array(self.values[index])


def asarray(values):
    return values if isinstance(values, Array) else Array(np.asarray(values))


def asnumpy(values):
    return values.values


def _counted(name, fn):
    def function(*args, **kwargs):
        calls[name] += 1
        return Array(np.asarray(fn(*[one.values if isinstance(one, Array) else one for one in args], **kwargs)))

    return function


class linalg:
    inv = staticmethod(_counted("inv", np.linalg.inv))


def __getattr__(name):
    if name in ("cbrt", "float64", "float32", "int64") or not callable(getattr(np, name, None)):
        raise AttributeError(name)
    return _counted(name, getattr(np, name))
'''
X = np.random.default_rng(12).normal(size=(12, 9))


class Called:
    """What the processes have called of the namespace."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def by_process(self) -> dict[int, list[str]]:
        files = self.folder.glob(f"{NAME}.py.*")
        return {int(path.suffix[1:]): path.read_text().split() for path in files if path.suffix[1:].isdigit()}

    def names(self) -> Counter[str]:
        return Counter(itertools.chain.from_iterable(self.by_process().values()))


@pytest.fixture(scope="module", params=["threads", "processes"])
def session(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("namespace")
    (folder / f"{NAME}.py").write_text(SOURCE)
    sys.path.insert(0, str(folder))
    try:
        with wt.Session(backend=request.param, array_namespace=NAME, direct=False, workers=2) as session:
            yield session, folder
    finally:
        sys.path.remove(str(folder))
        sys.modules.pop(NAME, None)
        namespaces.namespace.cache_clear()


@pytest.fixture
def calls(session):
    """Nobody but the workers may have called it: on worker processes, not this one."""
    opened, folder = session
    for path in folder.glob(f"{NAME}.py.*"):
        path.unlink()
    yield (called := Called(folder))
    assert opened.apart == (os.getpid() not in called.by_process()) or not called.names()


@pytest.mark.parametrize(
    ("call", "used"),
    [
        (lambda xp, a: xp.sum(xp.sin(a(X)) * 2 + a(X), axis=0), {"sin", "multiply", "add", "sum"}),
        (lambda xp, a: xp.max(a(X), axis=1), {"max"}),
        (lambda xp, a: xp.any(a(X) > 0.5), {"greater", "any"}),
        (lambda xp, a: a(X) @ a(X.T), {"matmul"}),
        (lambda xp, a: xp.linalg.inv(a(X[:9] + 9 * np.eye(9))), {"inv"}),
        (lambda xp, a: xp.divide(a(X), a(np.arange(1, 10))), {"divide"}),
        (lambda xp, a: xp.sum(a(np.arange(9, dtype=np.int32))), {"sum"}),
    ],
)
def test_a_namespace_computes_what_numpy_would(calls, call, used):
    wanted = call(np, np.asarray)
    made = call(wt, lambda x: wt.asarray(x, chunk_size=4))
    assert made.dtype == wanted.dtype
    np.testing.assert_allclose(made.fetch(), wanted)
    assert used <= set(calls.names())


def test_what_it_does_not_have_numpy_computes_between_its_own_calls(calls):
    made = wt.sum(wt.cbrt(wt.exp(wt.asarray(X, chunk_size=4))) + 1)
    np.testing.assert_allclose(float(made), np.sum(np.cbrt(np.exp(X)) + 1))
    assert {"exp", "add", "sum"} <= set(calls.names())
    np.testing.assert_array_equal(wt.sort(wt.exp(wt.asarray(X, chunk_size=4)), axis=0).fetch(), np.sort(np.exp(X), 0))


def test_values_stay_in_the_namespace_from_step_to_step(tmp_path, monkeypatch):
    name = f"{NAME}_here"
    (tmp_path / f"{name}.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    f8 = np.dtype(np.float64)
    steps = [RegionStep(KernelKind.UFUNC, np.exp, (OperandSlot(at),), {}, f8) for at in range(3)]
    region = pickle.loads(pickle.dumps(Region(1, steps, X.size, space=name)))
    made = region(0, X / 9)
    assert type(made) is np.ndarray
    np.testing.assert_allclose(made, np.exp(np.exp(np.exp(X / 9))))
    assert dict(importlib.import_module(name).calls) == {"exp": 3}


def test_what_is_no_number_is_for_numpy(calls):
    days = wt.arange("2024-02-28", "2024-03-02", dtype="datetime64[D]", chunk_size=2)
    assert wt.subtract(days, days).fetch().astype(int).tolist() == [0, 0, 0]
    assert not calls.names()


def test_a_module_may_be_given_itself():
    with wt.Session(array_namespace=np, workers=1) as session:
        assert session.array_namespace == "numpy"


def test_a_library_that_is_missing_is_named_with_its_package(monkeypatch):
    monkeypatch.setattr("weft.operators.namespaces.find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match="cupy is not installed") as told:
        wt.Session(array_namespace="cupy")
    assert "pip install cupy-cuda12x" in str(told.value.hint)


@pytest.mark.parametrize("wrong", [7, "", "not a module"])
def test_what_names_no_module_is_refused(wrong):
    with pytest.raises(UsageError, match="array_namespace is"):
        wt.Session(array_namespace=wrong)
