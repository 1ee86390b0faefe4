"""Tall matrices: factorised block by block, and multiplied so that no task reads a whole side."""

import numpy as np
import pytest

import weft.tensor as wt
from weft.frontends.tensors import tsqr
from weft.frontends.tensors.compiler import compile_nodes

X = np.random.default_rng(4).normal(size=(103, 7))


@pytest.mark.parametrize("chunk", [(20, 7), (20, 3), ((9, 80, 14), 7), (50, 7), (8, 7)])
def test_the_factors_of_a_tall_matrix(chunk):
    x = wt.asarray(X, chunk_size=chunk)
    assert [part.shape for part in wt.linalg.qr(x)] == [(103, 7), (7, 7)]
    q, r = wt.fetch(*wt.linalg.qr(x))
    np.testing.assert_allclose(q @ r, X, atol=1e-12)
    np.testing.assert_allclose(q.T @ q, np.eye(7), atol=1e-12)
    assert np.array_equal(r, np.triu(r))
    u, s, vh = (part.fetch() for part in wt.linalg.svd(x, full_matrices=False))
    np.testing.assert_allclose((u * s) @ vh, X, atol=1e-12)
    np.testing.assert_allclose(u.T @ u, np.eye(7), atol=1e-12)
    np.testing.assert_allclose(s, np.linalg.svd(X, compute_uv=False), rtol=1e-12)


def test_complex_and_integer_matrices():
    z = X + 1j * X[::-1]
    q, r = wt.linalg.qr(wt.asarray(z, chunk_size=(30, 7)))
    np.testing.assert_allclose(q.fetch() @ r.fetch(), z, atol=1e-12)
    whole = np.arange(60).reshape(20, 3)
    q, r = wt.linalg.qr(wt.asarray(whole, chunk_size=(5, 3)))
    np.testing.assert_allclose(q.fetch() @ r.fetch(), whole, atol=1e-12)


def test_a_product_over_a_long_axis_adds_up_parts():
    x = wt.asarray(X, chunk_size=(20, 7))
    product = x.T @ x
    np.testing.assert_allclose(product.fetch(), X.T @ X, rtol=1e-12)
    y = wt.random.rand(1000, 7, chunk_size=(100, 7))
    widths = [vertex.parallelism for vertex in compile_nodes([(y.T @ y)._node]).graph.vertices.values()]
    assert widths == [10, 2, 1]


def test_parts_of_a_product_that_are_larger_than_its_chunks_are_few():
    x = wt.random.rand(1000, 400, chunk_size=(100, 400))
    widths = [vertex.parallelism for vertex in compile_nodes([(x.T @ x)._node]).graph.vertices.values()]
    assert widths[-2:] == [3, 1]
    np.testing.assert_allclose((x.T @ x).fetch(), x.fetch().T @ x.fetch(), rtol=1e-12)


def _conditioned(dtype, condition, shape=(3000, 20)):
    rng = np.random.default_rng(11)
    left, right = (np.linalg.qr(rng.standard_normal((rows, shape[1])))[0] for rows in shape)
    return (left * np.geomspace(1, 1 / condition, shape[1]) @ right).astype(dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64, np.complex128])
@pytest.mark.parametrize("condition", [1, 5, 12])
def test_products_factor_a_well_conditioned_block(dtype, condition):
    x = _conditioned(dtype, condition)
    if np.iscomplexobj(x):
        x *= np.exp(1j * np.arange(20)).astype(dtype)
    found = tsqr.factored_by_products(x)
    assert found is not None
    q, r = found
    eps = np.finfo(dtype).eps
    assert q.dtype == r.dtype == dtype
    assert np.abs(q.conj().T @ q - np.eye(20)).max() < 20 * eps
    assert np.linalg.norm(q @ r - x) < 20 * eps * np.linalg.norm(x)
    assert np.array_equal(r, np.triu(r))
    assert (r.diagonal().real > 0).all()


@pytest.mark.parametrize("scale", [1e-140, 1.0, 1e140])
def test_the_lengths_of_columns_do_not_count_as_condition(scale):
    x = _conditioned(np.float64, 3) * np.geomspace(1, 1e9, 20) * scale
    found = tsqr.factored_by_products(x)
    assert found is not None
    q, r = found
    assert np.abs(q.T @ q - np.eye(20)).max() < 1e-14
    np.testing.assert_allclose(q @ r, x, atol=1e-14 * np.abs(x).max())


@pytest.mark.parametrize(
    "x",
    [
        _conditioned(np.float64, 1e5),
        _conditioned(np.float32, 1e3),
        np.ones((100, 2)),
        np.zeros((100, 2)),
        np.full((100, 2), np.nan),
        np.full((100, 2), 1e200),
        np.diag(np.ones(100)),
    ],
)
def test_other_blocks_go_to_lapack(x):
    assert tsqr.factored_by_products(x) is None
    for ours, theirs in zip(tsqr._block(x), np.linalg.qr(x), strict=True):
        np.testing.assert_array_equal(ours, theirs)
