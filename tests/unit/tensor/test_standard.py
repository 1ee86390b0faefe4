"""What the array standard asks of the namespace beside values: types, inspection, versions, errors at the call."""

import pickle

import numpy as np
import pytest

import weft.tensor as wt


def unread(*size, dtype="float64"):
    """An array whose values nobody may ask for."""

    class Refusing:
        shape = size

        def __init__(self):
            self.dtype = np.dtype(dtype)

        def __getitem__(self, index):
            raise AssertionError("values were read")

    return wt.from_array(Refusing())


class TestTypes:
    @pytest.mark.parametrize("dtype", [wt.float32, wt.float64, wt.complex64, wt.complex128])
    def test_finfo_speaks_python(self, dtype):
        for given in (dtype, wt.ones(1, dtype=dtype), np.dtype(dtype)):
            found = wt.finfo(given)
            assert [type(one) for one in (found.bits, found.eps, found.max, found.smallest_normal)] == [
                int,
                *[float] * 3,
            ]
            assert found.dtype == np.zeros(0, dtype).real.dtype

    def test_iinfo_speaks_python(self):
        found = wt.iinfo(wt.ones(1, dtype=wt.uint8))
        assert (found.bits, found.min, found.max, found.dtype) == (8, 0, 255, np.dtype("uint8"))
        assert type(found.max) is int

    def test_numbers_give_way_to_arrays(self):
        assert wt.result_type(wt.ones(1, dtype=wt.float32), 1.5) == wt.float32
        assert wt.result_type(wt.int8, wt.uint8) == wt.int16
        assert wt.can_cast(wt.ones(1, dtype=wt.int8), wt.int16)
        assert not wt.can_cast(wt.float64, wt.int64)

    def test_kinds(self):
        assert wt.isdtype(wt.int8, ("bool", "signed integer"))
        assert not wt.isdtype(wt.complex64, "real floating")

    def test_complex_is_not_cast_to_real(self):
        with pytest.raises(TypeError, match="take real or imag"):
            wt.astype(wt.ones(2, dtype=wt.complex64), wt.float32)

    def test_shapes_are_broadcast_without_arrays(self):
        assert wt.broadcast_shapes((3, 1), (1, 4), ()) == (3, 4)
        with pytest.raises(ValueError, match="broadcast"):
            wt.broadcast_shapes((3,), (4,))


class TestInspection:
    def test_what_is_told(self):
        info = wt.__array_namespace_info__()
        assert info.capabilities()["data-dependent shapes"] is True
        assert info.default_device() in info.devices() == ("cpu",)
        assert info.default_dtypes()["integral"] == wt.int64
        assert set(info.dtypes(kind="unsigned integer")) == {"uint8", "uint16", "uint32", "uint64"}

    def test_a_device_that_is_not_there_is_refused(self):
        for call in (
            lambda: wt.ones(1, device="gpu"),
            lambda: wt.ones(1).to_device("gpu"),
            lambda: wt.__array_namespace_info__().dtypes(device="gpu"),
            lambda: wt.fft.fftfreq(3, device="gpu"),
        ):
            with pytest.raises(ValueError, match="no device 'gpu'"):
                call()

    def test_each_version_has_its_namespace(self):
        x = wt.ones(3)
        assert x.__array_namespace__() is x.__array_namespace__(api_version="2025.12") is wt
        older = x.__array_namespace__(api_version="2024.12")
        assert older.__array_api_version__ == "2024.12"
        assert type(older.broadcast_arrays(x)) is type(older.meshgrid(x)) is list
        assert type(older.__array_namespace_info__().devices()) is list
        assert older.sum is wt.sum
        assert "sum" in dir(older)
        with pytest.raises(ValueError, match=r"no version '1999\.01'"):
            x.__array_namespace__(api_version="1999.01")


class TestIndices:
    @pytest.mark.parametrize(
        "index",
        [
            (None, np.zeros((0, 3, 4), bool), 4),
            (np.zeros((0, 3), bool),),
            (slice(1), np.zeros((0, 4), bool), 2),
            (np.array(1), np.array([], np.intp)),
            (np.array(-1), 2),
            ([], 1),
        ],
    )
    def test_of_numpy_with_no_elements_or_no_axes(self, index):
        values = np.arange(2 * 3 * 4 * 5).reshape(2, 3, 4, 5)
        found = wt.asarray(values, chunk_size=2)[index]
        assert found.shape == values[index].shape
        np.testing.assert_array_equal(found.fetch(), values[index])


class TestErrorsAtTheCall:
    """What shapes and types tell is told before any value is read."""

    @pytest.mark.parametrize(
        ("call", "error"),
        [
            (lambda: wt.vecdot(unread(3), unread(4)), ValueError),
            (lambda: wt.linalg.cross(unread(4), unread(4)), ValueError),
            (lambda: wt.matmul(unread(2, 3), unread(2, 3)), ValueError),
            (lambda: wt.tensordot(unread(2, 3), unread(2, 3), axes=1), ValueError),
            (lambda: wt.linalg.inv(unread(2, 3)), np.linalg.LinAlgError),
            (lambda: wt.linalg.det(unread(3)), np.linalg.LinAlgError),
            (lambda: wt.linalg.solve(unread(2, 2), unread(3)), ValueError),
            (lambda: wt.linalg.svd(unread(2, 2, dtype="float16")), TypeError),
            (lambda: wt.linalg.qr(unread(2, 2), mode="raw"), ValueError),  # type: ignore[call-overload]
            (lambda: wt.linalg.matrix_norm(unread(2, 2), ord=5), ValueError),
            (lambda: wt.linalg.outer(unread(2, 2), unread(2)), ValueError),
            (lambda: wt.fft.rfft(unread(4, dtype="complex128")), TypeError),
            (lambda: wt.fft.fft(unread(4), n=0), ValueError),
            (lambda: wt.fft.fft(unread(4), norm="big"), ValueError),
            (lambda: wt.fft.fftn(unread(4, 4), s=(1,), axes=(0, 1)), ValueError),
            (lambda: wt.expand_dims(unread(3), axis=5), IndexError),
            (lambda: wt.squeeze(unread(3), axis=0), ValueError),
            (lambda: unread(3)[unread(4, dtype="bool")], IndexError),
            (lambda: unread(3)[3], IndexError),
            (lambda: wt.take(unread(3), unread(3)), TypeError),
            (lambda: wt.nonzero(unread()), ValueError),
            (lambda: wt.searchsorted(unread(3), unread(3), side="middle"), ValueError),
            (lambda: wt.sort(unread(3), axis=1), IndexError),
            (lambda: wt.bitwise_and(unread(3), 1), TypeError),
            (lambda: wt.add(unread(3, dtype="uint8"), 256), OverflowError),
            (lambda: wt.max(unread(0)), ValueError),
        ],
    )
    def test_it_is_raised_where_it_is_written(self, call, error):
        with pytest.raises(error):
            call()

    def test_what_only_values_tell_is_raised_with_them(self):
        singular = wt.linalg.inv(wt.ones((2, 2)))
        with pytest.raises(np.linalg.LinAlgError, match="Singular"):
            singular.fetch()


class TestSpecialValues:
    def test_floor_divide_of_infinities(self):
        made = wt.floor_divide(
            wt.asarray([np.inf, -np.inf, 1.0, -1.0]), wt.asarray([2.0, 2.0, -np.inf, np.inf])
        ).fetch()
        assert made.tolist() == [np.inf, -np.inf, 0, 0]
        assert np.signbit(made).tolist() == [False, True, True, True]

    def test_complex_expm1_and_tanh(self):
        assert wt.expm1(wt.asarray([complex(-np.inf, 1), complex(-0.0, 0.0)])).tolist() == [-1, 0]
        assert not np.signbit(wt.expm1(wt.asarray(complex(-0.0, 0.0))).fetch().real)
        assert wt.tanh(wt.asarray([complex(np.inf, np.nan), complex(-np.inf, np.inf)])).tolist() == [1, -1]

    def test_comparisons_know_numbers_that_the_type_cannot_hold(self):
        assert wt.all(wt.asarray([0, 255], dtype=wt.uint8) < 256)
        assert wt.all(wt.asarray([0, 255], dtype=wt.uint8) > -1)


def test_named_results():
    x = wt.asarray([[2.0, 0.0], [0.0, 1.0]])
    assert wt.linalg.svd(x).S.tolist() == [2, 1]
    assert wt.linalg.eigh(x).eigenvalues.tolist() == [1, 2]
    assert wt.linalg.slogdet(x).logabsdet.fetch() == pytest.approx(np.log(2))
    assert wt.linalg.qr(x).R.shape == (2, 2)
    assert wt.unique_all(wt.asarray([3, 1, 3])).inverse_indices.tolist() == [1, 0, 1]


def test_large_diagonals_and_powers_go_by_chunks():
    values = np.arange(600.0).reshape(20, 30) / 100
    x = wt.asarray(values, chunk_size=(7, 4))
    assert wt.linalg.diagonal(x, offset=2).chunks == ((7, 7, 6),)
    np.testing.assert_array_equal(wt.linalg.diagonal(x, offset=-3).fetch(), np.diagonal(values, -3))
    square = wt.asarray(values[:, :20], chunk_size=6)
    np.testing.assert_allclose(
        wt.linalg.matrix_power(square, 3).fetch(), np.linalg.matrix_power(values[:, :20], 3), rtol=1e-12
    )


def test_a_tensor_travels_as_its_values():
    assert pickle.loads(pickle.dumps(wt.arange(5) * 2)).tolist() == [0, 2, 4, 6, 8]


def test_tuples_of_the_standard_are_plain():
    assert type(wt.meshgrid(wt.arange(2), wt.arange(3))) is tuple
    assert type(wt.broadcast_arrays(wt.arange(2), wt.zeros((3, 1)))) is tuple
