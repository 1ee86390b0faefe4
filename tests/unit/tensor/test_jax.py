"""Chunks computed by JAX, in a process of its own: JAX starts threads, and changes the whole process."""

import subprocess
import sys
from importlib.util import find_spec

import pytest

if find_spec("jax") is None:
    pytest.skip("JAX is not installed: pip install 'weft[jax]'", allow_module_level=True)

PROGRAM = """
import sys
import numpy as np
import weft.tensor as wt

X = np.random.default_rng(1).normal(size=(60, 60))
CALLS = [
    lambda x: np.sum(np.sin(x) * 2 + np.exp(-x * x), axis=0), lambda x: x @ x.T, lambda x: x.mean(axis=1),
    lambda x: np.linalg.inv(x + 60 * np.eye(60)), lambda x: x.std(axis=0), lambda x: np.sort(x, axis=1),
    lambda x: (x * 10).astype("i4") // 3, lambda x: x.astype("f4") * 2, lambda x: (x > 0).any(axis=1),
    lambda x: np.where(x > 0, x, np.nan), lambda x: x[x > 1],
]
with wt.Session(workers=2, array_namespace="jax.numpy", direct=False):
    for call in CALLS:
        found, wanted = call(wt.asarray(X, chunk_size=25)).fetch(), call(X)
        assert found.dtype == wanted.dtype
        np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-9)
assert "jax" in sys.modules
"""


def test_jax_computes_what_numpy_would():
    made = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr
