"""Large matrices are factored panel by panel, and say what NumPy says to within rounding."""

import numpy as np
import pytest

import weft.tensor as wt
from weft.frontends.tensors import blocked_factorizations
from weft.frontends.tensors.compiler import compile_nodes
from weft.model.errors import TaskError

N = 70


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Have small matrices treated as large ones, with narrow panels."""
    monkeypatch.setattr(blocked_factorizations, "BLOCKED_FROM", 0)
    monkeypatch.setattr(blocked_factorizations, "NARROWEST", 20)


@pytest.fixture(scope="module", params=["threads", "processes"])
def workers(request):
    with wt.Session(backend=request.param, workers=2, direct=False):
        yield request.param


@pytest.fixture(params=["f8", "c16", "f4", "i4"])
def matrix(request, workers):
    if workers == "processes" and request.param in ("f4", "i4"):
        pytest.skip("is tried on threads")
    rng = np.random.default_rng(5)
    values = rng.normal(size=(N, N)) * 3
    return (
        (values + 1j * rng.normal(size=(N, N))).astype(request.param)
        if request.param == "c16"
        else values.astype(request.param)
    )


def close(found, wanted, dtype):
    single = np.dtype(dtype) == np.float32
    scale = np.abs(wanted).max()
    np.testing.assert_allclose(found, wanted, rtol=1e-2 if single else 1e-8, atol=(1e-2 if single else 1e-9) * scale)
    assert found.dtype == wanted.dtype


def test_systems(matrix, workers):
    x = wt.asarray(matrix, chunk_size=30)
    right = (
        np.random.default_rng(6).normal(size=(N, 25)).astype(matrix.real.dtype if matrix.dtype.kind != "i" else "f8")
    )
    close(wt.linalg.solve(x, right).fetch(), np.linalg.solve(matrix, right), right.dtype)
    close(wt.linalg.solve(x, right[:, 0]).fetch(), np.linalg.solve(matrix, right[:, 0]), right.dtype)
    close(wt.linalg.inv(x).fetch(), np.linalg.inv(matrix), right.dtype)


def test_determinants(matrix, workers):
    x = wt.asarray(matrix, chunk_size=30)
    sign, log = wt.linalg.slogdet(x)
    wanted = np.linalg.slogdet(matrix)
    close(sign.fetch(), wanted.sign, matrix.dtype)
    close(log.fetch(), wanted.logabsdet, matrix.dtype)
    np.testing.assert_allclose(
        float(wt.linalg.slogdet(x[::-1])[0].fetch().real), wanted.sign.real * (-1) ** (N // 2), rtol=1e-4
    )
    scaled = matrix / 10
    close(wt.linalg.det(wt.asarray(scaled, chunk_size=30)).fetch(), np.linalg.det(scaled), matrix.dtype)


@pytest.mark.parametrize("upper", [False, True])
def test_cholesky(matrix, workers, upper):
    whole = (matrix @ matrix.conj().T + N * np.eye(N)).astype(matrix.dtype)
    made = wt.linalg.cholesky(wt.asarray(whole, chunk_size=30), upper=upper)
    close(made.fetch(), np.linalg.cholesky(whole, upper=upper), matrix.dtype)


def test_what_only_the_values_can_tell(workers):
    values = np.ones((N, N))
    x = wt.asarray(values, chunk_size=30)
    with pytest.raises(TaskError, match="Singular matrix"):
        wt.linalg.solve(x, values).fetch()
    with pytest.raises(TaskError, match="not positive definite"):
        wt.linalg.cholesky(-x).fetch()
    assert float(wt.linalg.det(x)) == 0
    assert [float(one) for one in wt.linalg.slogdet(x)] == [0, -np.inf]


def test_rows_are_exchanged():
    values = np.eye(N)[::-1] + np.triu(np.ones((N, N)), 1)[::-1]
    x = wt.asarray(values, chunk_size=30)
    close(wt.linalg.solve(x, np.arange(float(N))).fetch(), np.linalg.solve(values, np.arange(float(N))), "f8")


def test_no_task_has_more_than_a_few_panels():
    x = wt.zeros((2000, 2000), chunk_size=500)
    compiled = compile_nodes([wt.linalg.inv(x)._node])
    assert max(need.total for need in compiled.needs) < 2000 * 2000 * 8 / 2
