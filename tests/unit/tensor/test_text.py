"""Text, bytes and dates whose length or unit NumPy takes from the source: held against NumPy."""

from typing import Any

import numpy as np
import pytest

from weft import tensor

wt: Any = tensor

WHOLE = np.array([1, 22, 113, 0, 5])
DAYS = np.arange("2020-01-01", "2020-01-06", dtype="M8[D]")
SOURCES = [
    *[WHOLE.astype(kind) for kind in ("i1", "u2", "i4", "i8", "f2", "f4", "f8", "g", "c8", "c16")],
    WHOLE > 2,
    DAYS,
    DAYS - DAYS[0],
    np.array(["a", "bbb", "", "dddd", "e"]),
    np.array([b"a", b"bbb", b"", b"dddd", b"e"]),
]
MIXED = np.array(["a", "bbbbbbb", None, "dd", 4], object)


@pytest.fixture(params=[True, False], ids=["direct", "tasks"])
def session(request):
    with wt.Session(direct=request.param, chunk_size=2, workers=2) as session:
        yield session


@pytest.mark.parametrize("kind", ["U", "S", "V", str, bytes])
@pytest.mark.parametrize("source", SOURCES, ids=lambda source: str(source.dtype))
def test_a_cast_to_text_of_any_length_has_the_length_of_numpys(session, source, kind):
    made, wanted = wt.asarray(source).astype(kind), source.astype(kind)
    assert made.dtype == wanted.dtype
    np.testing.assert_array_equal(made.fetch(), wanted)


@pytest.mark.parametrize("kind", ["M8", "m8"])
def test_a_cast_to_dates_of_any_unit_keeps_the_unit(session, kind):
    made = wt.asarray(DAYS).astype(kind)
    assert made.dtype == DAYS.astype(kind).dtype
    np.testing.assert_array_equal(made.fetch(), DAYS.astype(kind))


@pytest.mark.parametrize(
    "call",
    [
        lambda xp, x: xp.asarray(x, dtype="U"),
        lambda xp, x: xp.concatenate([x, x], dtype="U"),
        lambda xp, x: xp.linspace(0, 1, 5, dtype="U"),
        lambda xp, x: xp.logspace(0, 1, 5, dtype="U"),
        lambda xp, x: xp.eye(4, dtype="U"),
        lambda xp, x: xp.zeros(4, dtype="S"),
        lambda xp, x: xp.zeros_like(x, dtype="U"),
        lambda xp, x: xp.ones_like(x, dtype="U"),
    ],
)
def test_other_functions_of_a_text_dtype_have_numpys_length_too(session, call):
    made, wanted = call(wt, wt.asarray(WHOLE)), call(np, WHOLE)
    assert made.dtype == wanted.dtype
    np.testing.assert_array_equal(made.fetch(), wanted)


def test_saved_text_is_all_there(session, tmp_path):
    wt.save(tmp_path / "text.npy", wt.asarray(WHOLE).astype(str))
    np.testing.assert_array_equal(np.load(tmp_path / "text.npy"), WHOLE.astype(str))


@pytest.mark.parametrize(("kind", "given"), [("U", "U10"), (bytes, "S10"), ("M8", "M8[D]"), ("m8", "m8[D]")])
def test_a_length_that_depends_on_values_is_refused_with_the_way_out(session, kind, given):
    with pytest.raises(TypeError, match="depends on the values") as refused:
        wt.asarray(MIXED).astype(kind)
    assert repr(given) in str(refused.value)
    if given[0] in "US":
        np.testing.assert_array_equal(wt.asarray(MIXED).astype(given).fetch(), MIXED.astype(given))


def test_text_of_a_users_function_is_not_cut(session):
    def named(chunk):
        return np.array([f"number {n}" for n in chunk])

    x = wt.arange(1000, chunk_size=500)
    with pytest.raises(ValueError, match="dtype="):
        x.map_chunk(named).fetch()
    with pytest.raises(TypeError, match="U10"):
        x.map_chunk(named, dtype=str)
    np.testing.assert_array_equal(x.map_chunk(named, dtype="U20").fetch(), named(np.arange(1000)))


def test_arange_makes_no_text(session):
    with pytest.raises(TypeError, match="arange"):
        wt.arange(5, dtype="U")


@pytest.mark.parametrize("function", ["any", "all"])
@pytest.mark.parametrize("kind", ["U3", "S3", object])
def test_truth_of_some_texts(session, function, kind):
    given = np.array([["a", ""], ["", ""], ["ab", "b"], ["", "c"]]).astype(kind)
    where = np.array([[False, True], [True, False], [False, False], [False, True]])
    expected = getattr(np, function)(given.astype(bool), axis=1, where=where)
    found = getattr(wt, function)(wt.asarray(given), axis=1, where=where)
    assert np.array_equal(found.fetch(), expected)


@pytest.mark.parametrize("given", [np.array(["", "é", "abc"]), np.array([b"", b"a", b"abc"]), MIXED[:3]])
@pytest.mark.parametrize("index", [(0,), (0, None), (..., 0), (0, ..., None)])
def test_one_element_has_the_type_of_its_array(session, given, index):
    found = wt.array(wt.asarray(given)[index])
    assert found.dtype == given.dtype
    assert found.reshape(1).fetch().dtype == given.dtype
    found[...] = given[2]
    assert found.reshape(1).fetch().tolist() == [given[2]]


def test_one_element_may_be_a_list(session):
    given = np.empty(3, object)
    given[:] = [1, [2, 3], None]
    found = wt.asarray(given)[1, None].fetch()
    assert (found.shape, found.dtype, found[0]) == ((1,), given.dtype, [2, 3])
