"""Tall matrices: factorised block by block, and multiplied so that no task reads a whole side."""

import numpy as np
import pytest

import weft.tensor as wt
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
