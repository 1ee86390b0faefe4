"""Users' functions over the chunks of several arrays: what they are told, and what is refused."""

import numpy as np
import pytest

import weft.tensor as wt
from weft.frontends.tensors.arrays import overlapping
from weft.frontends.tensors.nodes import walk
from weft.model.errors import TaskError

X = np.arange(24.0).reshape(4, 6)


def cut(x=X, size=2):
    return wt.asarray(x, chunk_size=size)


# ------------------------------------------------------------------------------------------------------- map_blocks


class Sparse:
    """As the arrays of libraries for sparse ones."""

    def __init__(self, chunk):
        self.dtype, self.shape = chunk.dtype, chunk.shape

    def todense(self):
        raise AssertionError("no array becomes dense by itself")


def test_sparse_results_are_told_with_what_makes_sparse_chunks():
    said = r"returned a sparse array \(Sparse\), .*: x\.tosparse\(\) makes"
    with pytest.raises(TypeError, match=said):
        cut().map_blocks(Sparse)
    with pytest.raises(TaskError, match=said):
        cut().map_blocks(Sparse, dtype="f8").fetch()
    with pytest.raises(TypeError, match=said):
        wt.apply_gufunc(Sparse, "(i)->(i)", cut(X, (2, 6)))
    np.testing.assert_array_equal(cut().map_blocks(wt.asarray).fetch(), X)


def test_the_smallest_elements_are_not_asked_for_by_a_negative_number():
    with pytest.raises(ValueError, match="largest=False gives the 2 smallest"):
        wt.topk(cut(), -2)


def test_functions_are_told_where_their_chunk_is():
    seen = {}

    def noted(a, by, b, block_info=None, block_id=None):
        seen[block_id] = block_info
        return a * by + b

    made = wt.map_blocks(noted, cut(), 2, cut(X[0], 3), dtype="f8")
    np.testing.assert_array_equal(made.fetch(), X * 2 + X[0])
    info = seen[1, 1]
    assert info[0]["shape"] == (4, 6)
    assert info[0]["num-chunks"] == (2, 3)
    assert info[0]["array-location"] == [(2, 4), (2, 4)]
    assert info[2]["array-location"] == [(2, 4)]
    assert info[None]["chunk-shape"] == (2, 2)
    assert info[None]["dtype"] == np.float64
    assert info[None]["chunk-location"] == (1, 1)
    assert set(info) == {0, 2, None}


def test_nothing_is_computed_before_it_is_asked_for():
    calls = []

    def noted(a):
        calls.append(a.shape)
        return a

    x = wt.map_chunk(cut(), noted, dtype="f8")
    made = [
        wt.map_blocks(np.negative, x, dtype="f8"),
        wt.map_overlap(np.negative, x, depth=1, boundary="periodic", dtype="f8"),
        wt.blockwise(np.negative, "ij", x, "ij", dtype="f8"),
        wt.apply_gufunc(np.negative, "()->()", x, output_dtypes="f8"),
        wt.vectorize(abs, otypes="d")(x),
    ]
    assert calls == []
    np.testing.assert_array_equal(made[0].fetch(), -X)
    assert len(calls) == 6


def test_axes_are_dropped_and_added():
    summed = wt.map_blocks(lambda a: a.sum(axis=1), cut(), drop_axis=1)
    np.testing.assert_array_equal(summed.fetch(), X.sum(axis=1))
    assert summed.chunks == ((2, 2),)
    both = cut().map_blocks(lambda a: np.stack([a, -a]), new_axis=0, chunks=(2, 2, 2), dtype="f8")
    np.testing.assert_array_equal(both.fetch(), np.stack([X, -X]))
    turned = cut().map_blocks(lambda a: a.max(axis=0)[None, :, None], drop_axis=0, new_axis=[0, 2], dtype="f8")
    np.testing.assert_array_equal(turned.fetch(), X.max(axis=0)[None, :, None])


def test_chunks_of_other_lengths_are_declared():
    made = wt.map_blocks(lambda a: np.repeat(a, 2, axis=0), cut(), chunks=((4, 4), (2, 2, 2)))
    np.testing.assert_array_equal(made.fetch(), np.concatenate([X[:2].repeat(2, 0), X[2:].repeat(2, 0)]))
    unknown = wt.map_blocks(lambda a: a[a > 7], cut(X.ravel(), 5), chunks=(np.nan,))
    np.testing.assert_array_equal(unknown.fetch(), X[X > 7])
    assert unknown.shape == (16,)


def test_arrays_of_other_lengths_go_together_chunk_by_chunk():
    many, few = wt.arange(1000, chunk_size=100), wt.arange(100, chunk_size=10)
    made = wt.map_blocks(lambda a, b: np.array([a.max(), b.max()]), many, few, chunks=(2,), dtype="i8")
    assert made.shape == (20,)
    assert made.fetch()[:4].tolist() == [99, 9, 199, 19]
    with pytest.raises(ValueError, match="axis 0 has 1000 elements in 10 chunks of one array, and 100 in 2 chunks"):
        wt.map_blocks(np.add, many, few.rechunk(50))


def test_unknown_lengths_stay_unknown():
    x = wt.arange(20, chunk_size=6)
    made = x[x % 3 > 0].map_blocks(lambda a: a * 2, dtype="i8")
    np.testing.assert_array_equal(made.fetch(), [i * 2 for i in range(20) if i % 3])


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: wt.map_blocks(np.sum, 1, 2), "no argument is an array"),
        (lambda: wt.map_blocks(np.abs, cut(), chunks=(2,)), "describes 1 axis, and the result has 2"),
        (lambda: wt.map_blocks(np.abs, cut(), chunks=((2, 2), (3, 3))), "2 lengths for 3 chunks"),
        (lambda: wt.map_blocks(np.abs, cut(), drop_axis=2), "axis 2 is out of bounds"),
    ],
)
def test_what_does_not_go_together_is_refused(call, words):
    with pytest.raises(ValueError, match=words):
        call()


def test_results_of_another_shape_are_refused():
    with pytest.raises(TaskError, match=r"array of shape \(\) for a chunk of 2x2: give chunks=, drop_axis="):
        wt.map_blocks(np.sum, cut(), dtype="f8").fetch()
    with pytest.raises(ZeroDivisionError) as failed:
        wt.map_blocks(lambda a: 1 // int(a.sum() - 1), cut())
    assert "Give dtype= to skip the trial" in failed.value.__notes__[0]


def test_chunks_cannot_be_changed_in_place():
    def change(a):
        a += 1
        return a

    with pytest.raises(ValueError, match="read-only"):
        wt.map_blocks(change, cut()).fetch()


# -------------------------------------------------------------------------------------------------------- blockwise


def test_labels_name_axes():
    np.testing.assert_array_equal(wt.blockwise(np.add.outer, "ij", cut(X[0]), "i", cut(X[1], 3), "j").fetch(),
                                  np.add.outer(X[0], X[1]))  # fmt: skip
    np.testing.assert_array_equal(wt.blockwise(np.transpose, "ji", cut(), "ij").fetch(), X.T)
    total = wt.blockwise(lambda parts: sum(map(np.sum, parts)), "", cut(X[0]), "i", dtype="f8")
    assert total.fetch() == X[0].sum()
    scaled = wt.blockwise(lambda a, by: a * by, "ij", cut(), "ij", 3, None)
    np.testing.assert_array_equal(scaled.fetch(), X * 3)


def test_lengths_of_axes_are_given_and_adjusted():
    made = wt.blockwise(lambda a: np.stack([a] * 5, -1), "iz", cut(X[0]), "i", new_axes={"z": 5}, dtype="f8")
    np.testing.assert_array_equal(made.fetch(), np.stack([X[0]] * 5, -1))
    twice = wt.blockwise(lambda a: np.repeat(a, 2), "i", cut(X[0]), "i", adjust_chunks={"i": lambda n: 2 * n})
    np.testing.assert_array_equal(twice.fetch(), X[0].repeat(2))
    nested = wt.blockwise(lambda p: np.block(p).sum()[None], "z", cut(), "ij", new_axes={"z": 1}, dtype="f8")
    assert nested.fetch() == [X.sum()]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: wt.blockwise(np.add, "i", cut(X[0]), "i", cut(X[:, 0]), "i"), "label 'i' have 6 and 4 elements"),
        (lambda: wt.blockwise(np.add, "ij", cut(X[0]), "i"), "no array has the axis 'j' of the result"),
        (lambda: wt.blockwise(np.add, "ij", cut(), "i"), "1 label for an array of 2 axes"),
        (lambda: wt.blockwise(np.add, "ij", cut()), "give each array with the labels"),
    ],
)
def test_labels_that_do_not_fit_are_refused(call, words):
    with pytest.raises(ValueError, match=words):
        call()


# ------------------------------------------------------------------------------------------------------ apply_gufunc


def test_several_outputs_are_of_one_call():
    calls = []

    def moments(a):
        calls.append(a.shape)
        return a.mean(axis=-1), a.std(axis=-1)

    mean, std = wt.apply_gufunc(moments, "(i)->(),()", cut(size=(2, 6)), output_dtypes=("f8", "f8"))
    found = wt.fetch(mean, std)
    np.testing.assert_allclose(found[0], X.mean(axis=1))
    np.testing.assert_allclose(found[1], X.std(axis=1))
    assert len(calls) == 2


def test_core_dimensions_are_moved():
    def total(a):
        return a.sum(axis=-1)

    x = cut()
    along = wt.apply_gufunc(total, "(i)->()", x, axis=0, keepdims=True, allow_rechunk=True)
    np.testing.assert_array_equal(along.fetch(), X.sum(axis=0, keepdims=True))
    back = wt.apply_gufunc(lambda a: a[..., ::-1], "(i)->(i)", x, axes=[(0,), (0,)], allow_rechunk=True)
    np.testing.assert_array_equal(back.fetch(), X[::-1])
    assert wt.apply_gufunc(total, "(i)->()", x, axes=[0], allow_rechunk=True).shape == (6,)


def test_cores_are_given_one_by_one():
    made = wt.apply_gufunc(lambda a, b: float(a @ b), "(i),(i)->()", cut(), X, vectorize=True, allow_rechunk=True,
                           output_dtypes=float)  # fmt: skip
    np.testing.assert_array_equal(made.fetch(), (X * X).sum(axis=1))
    wide = wt.apply_gufunc(lambda a: np.outer(a, a), "(i)->(i,j)", cut(X[0], 6), output_sizes={"j": 6})
    np.testing.assert_array_equal(wide.fetch(), np.outer(X[0], X[0]))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda f: wt.apply_gufunc(f, "(i)->()", cut()), "dimension i is a core dimension and consists of 3 chunks"),
        (lambda f: wt.apply_gufunc(f, "i->()", cut()), "is no signature"),
        (lambda f: wt.apply_gufunc(f, "(i),(i)->()", cut()), "takes 2 arrays; 1 are given"),
        (lambda f: wt.apply_gufunc(f, "(i)->(j)", cut(size=6)), "length of dimension 'j' is unknown"),
        (lambda f: wt.apply_gufunc(f, "(i),(i)->()", cut(size=6), X[0, :3]), "'i' has 6 elements, and 3 elsewhere"),
        (lambda f: wt.apply_gufunc(f, "(i,j)->()", X[0]), "an array of 1 axes has no core dimensions"),
        (lambda f: wt.apply_gufunc(f, "(),()->()", X, X[:, :4]), "shape mismatch"),
        (lambda f: wt.apply_gufunc(f, "(i)->()", X, axis=0, axes=[0]), "axis= or axes=, not both"),
        (lambda f: wt.apply_gufunc(f, "(i)->(i)", X, keepdims=True), "keepdims= needs"),
    ],
)
def test_signatures_that_do_not_fit_are_refused(call, words):
    with pytest.raises(ValueError, match=words):
        call(np.sum)


def test_a_core_of_another_shape_is_refused():
    made = wt.apply_gufunc(lambda a: a, "(i)->()", cut(size=6), output_dtypes="f8")
    with pytest.raises(TaskError, match="and the signature says 4: correct the signature"):
        made.fetch()


# --------------------------------------------------------------------------------------------------------- vectorize


def test_functions_of_elements_are_called_for_arrays():
    @np.vectorize
    def reference(a, b):
        return a - b if a > b else a + b

    ours = wt.vectorize(reference.pyfunc)
    np.testing.assert_array_equal(ours(cut(), 7).fetch(), reference(X, 7))
    low, high = wt.vectorize(lambda a: (a - 1, a + 1), otypes="dd")(cut())
    np.testing.assert_array_equal(high.fetch() - low.fetch(), np.full(X.shape, 2))
    power = wt.vectorize(lambda by, a: a**by, excluded={0})
    np.testing.assert_array_equal(power(2, cut()).fetch(), X**2)
    inner = wt.vectorize(lambda a, b: a @ b, signature="(i),(i)->()")
    np.testing.assert_array_equal(inner(cut(), X[0]).fetch(), X @ X[0])
    with pytest.raises(ValueError, match="args can not be empty"):
        ours()


# ------------------------------------------------------------------------------------------------------- map_overlap


def smooth(a):
    return a if a.shape[0] < 3 else np.concatenate([a[:1], a[:-2] + a[1:-1] + a[2:], a[-1:]])


def test_one_depth_for_all_arrays_or_one_each():
    v = np.arange(10.0)
    made = cut(v, 3).map_overlap(smooth, 1, "periodic")
    np.testing.assert_array_equal(made.fetch(), np.roll(v, 1) + v + np.roll(v, -1))
    both = wt.map_overlap(
        lambda a, b: a[2:-2].repeat(1) + b[1:-1] + a[:-4],
        cut(v, 5), cut(v, 5), depth=[2, 1], boundary=["nearest", 0], trim=False, chunks=((5, 5),), dtype="f8",
    )  # fmt: skip
    np.testing.assert_array_equal(both.fetch(), v * 2 + np.pad(v, 2, "edge")[:10])
    np.testing.assert_array_equal(wt.map_overlap(np.negative, cut(), depth=None).fetch(), -X)


def test_what_is_not_trimmed_is_seen():
    made = cut(np.arange(6), 3).map_overlap(lambda a: a, (1,), "reflect", trim=False, chunks=((5, 5),))
    assert made.fetch().tolist() == [0, 0, 1, 2, 3, 2, 3, 4, 5, 5]
    free = cut(np.arange(6), 3).map_overlap(lambda a: a, 1, trim=False)
    assert free.fetch().tolist() == [0, 1, 2, 3, 2, 3, 4, 5]


def test_axes_are_dropped_from_halos():
    made = cut().map_overlap(lambda a: a.sum(axis=1), {0: 1}, "nearest", drop_axis=1, dtype="f8")
    np.testing.assert_array_equal(made.fetch(), X.sum(axis=1))


def test_neighbours_are_cut_into_pieces_if_they_are_large(monkeypatch):
    monkeypatch.setattr(overlapping, "WHOLE", 0)
    x = np.random.default_rng(1).random((40, 50))
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(x, 1, "symmetric"), (3, 3)).sum(axis=(2, 3))

    def sums(a):
        inner = np.lib.stride_tricks.sliding_window_view(a, (3, 3)).sum(axis=(2, 3))
        return np.pad(inner, 1)

    made = cut(x, 10).map_overlap(sums, 1, "reflect", dtype="f8")
    assert "split" in {node.name for node in walk([made.node])}
    with wt.Session(workers=2) as session:
        np.testing.assert_allclose(made.fetch(session), windows)


@pytest.mark.parametrize("boundary", ["reflect", "periodic"])
def test_halos_of_more_than_memory_go_through_it(boundary):
    with wt.Session(workers=2, memory="32MiB") as session:
        x = wt.random.default_rng(1).random((2_500, 2_500), chunk_size=500)
        made = x.map_overlap(np.negative, 3, boundary, dtype="f8")
        assert made.explain().fits
        assert float((made + x).max().fetch(session)) == 0


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ({"depth": 7}, "depth along axis 0 is 7, and the axis has 4 elements"),
        ({"depth": -1}, "depth along axis 0 is -1: give a whole number"),
        ({"depth": (1, 2, 3)}, "has 3 entries for an array of 2 axes"),
        ({"depth": 1, "boundary": "mirror"}, "boundary of axis 0 is 'mirror'"),
        ({"depth": {5: 1}}, "axis 5 is out of bounds"),
        ({"depth": 3, "allow_rechunk": False}, "a chunk has 2 elements: give allow_rechunk=True"),
        ({"depth": 1, "boundary": np.nan}, "cannot convert float NaN to integer"),
        ({"depth": [1, 1]}, "one entry for each of the 1 arrays"),
    ],
)
def test_depths_that_do_not_fit_are_refused(words, told):
    with pytest.raises(ValueError, match=told):
        wt.map_overlap(np.abs, cut(X.astype(int)), **words)


def test_arrays_of_unknown_lengths_are_given_halos():
    x = wt.arange(30, chunk_size=7)
    made = x[x % 3 > 0].map_overlap(smooth, 1, "periodic", dtype="i8")
    v = np.arange(30)[np.arange(30) % 3 > 0]
    np.testing.assert_array_equal(made.fetch(), np.roll(v, 1) + v + np.roll(v, -1))


@pytest.mark.parametrize("shape", [(0,), (0, 3)])
def test_nothing_has_no_halo(shape):
    x = wt.zeros(shape)
    assert wt.map_overlap(np.negative, x, depth=0).fetch().shape == shape
    with pytest.raises(ValueError, match="the axis has 0 elements"):
        wt.map_overlap(np.negative, x, depth=1)


# ------------------------------------------------------------------------------------ types that follow from the data


def marked(chunk):
    """Return the chunk as it is, or with NaN in place of large numbers."""
    return np.where(chunk > 3, np.nan, chunk) if (chunk > 3).any() else chunk


BY_FUNCTION = {
    "map_blocks": lambda f, x, **how: wt.map_blocks(f, x, **how),
    "map_overlap": lambda f, x, **how: wt.map_overlap(f, x, depth=0, **how),
    "blockwise": lambda f, x, **how: wt.blockwise(f, "i", x, "i", **how),
    "apply_gufunc": lambda f, x, **how: wt.apply_gufunc(f, "()->()", x, **{f"output_{k}s": v for k, v in how.items()}),
    "map_chunk": lambda f, x, **how: wt.map_chunk(x, f, **how),
}


@pytest.mark.parametrize("direct", [True, False])
@pytest.mark.parametrize("name", BY_FUNCTION)
def test_values_of_another_kind_than_on_the_trial_are_refused_and_not_cut(name, direct):
    function = BY_FUNCTION[name]
    x = np.arange(6)
    with wt.Session(workers=1, direct=direct):
        for changed in (marked, lambda chunk: chunk if chunk[0] < 3 else chunk * 1j):
            with pytest.raises(ValueError, match=r"for an array of ones: give (output_)?dtypes?="):
                function(changed, cut(x)).fetch()
        np.testing.assert_array_equal(function(marked, cut(x), dtype="f8").fetch(), [0, 1, 2, 3, np.nan, np.nan])
        assert function(marked, cut(x[:4]), dtype="i2").fetch().tolist() == [0, 1, 2, 3]  # a given type is taken
        narrow = function(lambda chunk: chunk.astype("f4" if chunk[0] < 3 else "f8"), cut(x.astype("f8")))
        assert narrow.fetch().tolist() == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("dates", ["M8[s]", "m8[ns]"])
def test_dates_are_not_made_numbers(dates):
    x = wt.asarray(np.array([1, 2], dates), chunk_size=1)
    with pytest.raises(TaskError, match="cannot hold: give output_dtypes= of"):
        wt.apply_gufunc(lambda a: a, "()->()", x, output_dtypes=float).fetch()
    with pytest.raises(TaskError, match="cannot hold: give dtype= of"):
        x.map_blocks(lambda a: a, dtype=float).fetch()


def half(x):
    return 0 if x < 1 else x / 2


@pytest.mark.parametrize("words", [{}, {"output_dtypes": float}])
def test_results_of_a_chunk_are_not_cut_to_the_type_of_the_first(words):
    x = np.arange(6.0)
    made = wt.apply_gufunc(half, "()->()", wt.asarray(x, chunk_size=3), vectorize=True, **words)
    np.testing.assert_array_equal(made.fetch(), x / 2 * (x >= 1))
    rows = wt.apply_gufunc(
        lambda row: row / 2 if row.max() != 2 else row.astype(int),
        "(i)->(i)",
        wt.asarray(x.reshape(2, 3)),
        vectorize=True,
        **words,
    )
    np.testing.assert_array_equal(rows.fetch(), [[0, 1, 2], [1.5, 2, 2.5]])


@pytest.mark.parametrize(
    "make",
    [
        lambda x: wt.apply_gufunc(str.upper, "()->()", x, vectorize=True, output_dtypes="U3"),
        lambda x: wt.vectorize(str.upper, otypes=["U3"])(x),
        lambda x: wt.vectorize(str.upper, otypes=["U3"], signature="()->()")(x),
    ],
)
def test_texts_after_a_short_one_stay_whole(make):
    made = make(wt.asarray(np.array(["a", "ccc", "bb"])))
    assert made.dtype == np.dtype("U3")
    np.testing.assert_array_equal(made.fetch(), ["A", "CCC", "BB"])
    with pytest.raises(TaskError, match="cannot hold"):
        wt.apply_gufunc(lambda n: "ab" * n, "()->()", wt.asarray([1, 2]), vectorize=True, output_dtypes="U2").fetch()


def test_fractions_among_results_that_were_integers_for_ones_are_refused():
    def whole(x):
        return 0 if x < 2 else x / 2

    with pytest.raises(TaskError, match="give output_dtypes="):
        wt.vectorize(whole)(wt.asarray([3.0, 1.0])).fetch()
    np.testing.assert_array_equal(wt.vectorize(whole, otypes=[float])(wt.asarray([3.0, 1.0])).fetch(), [1.5, 0])
    small = wt.vectorize(lambda x: x)(wt.asarray(np.array([200, 1], np.uint64)))
    assert small.dtype == np.uint64
    np.testing.assert_array_equal(small.fetch(), [200, 1])
