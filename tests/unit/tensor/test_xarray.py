"""xarray over our arrays, through its entry point for arrays in chunks."""

from importlib.metadata import entry_points

import numpy as np
import pytest

import weft.tensor as wt

xr = pytest.importorskip("xarray", reason="xarray is not installed: pip install 'weft[xarray]'")
if not [one for one in entry_points(group="xarray.chunkmanagers") if one.name == "weft"]:
    pytest.skip("Weft was installed before it had an entry point for xarray: make .venv", allow_module_level=True)

RNG = np.random.default_rng(5)
X = RNG.random((6, 8))


@pytest.fixture
def plain():
    coords = {"x": np.arange(6), "y": np.arange(8.0), "label": ("x", list("aabbcc"))}
    return xr.DataArray(X, dims=("x", "y"), coords=coords, name="values")


@pytest.fixture
def chunked(plain):
    return plain.chunk({"x": 2, "y": 3}, chunked_array_type="weft")


def test_xarray_finds_us():
    from xarray.namedarray.parallelcompat import list_chunkmanagers

    assert type(list_chunkmanagers()["weft"]).__name__ == "WeftManager"


def test_an_array_is_cut_and_stays_lazy(chunked):
    assert isinstance(chunked.data, wt.Tensor)
    assert chunked.chunks == ((2, 2, 2), (3, 3, 2))
    assert chunked.chunksizes == {"x": (2, 2, 2), "y": (3, 3, 2)}
    assert chunked.chunk({"x": -1}).chunks == ((6,), (3, 3, 2))
    made = (chunked + 1) * chunked.sum("y")
    assert isinstance(made.data, wt.Tensor)
    assert not made.data._ready()
    assert isinstance(made.compute().data, np.ndarray)
    assert isinstance(made.persist().data, wt.Tensor)
    assert isinstance(made.load().data, np.ndarray)
    assert "Tensor" in repr(chunked)


CALLS = {
    "sum": lambda a: a.sum("x"),
    "mean": lambda a: a.mean(),
    "mean without NaN": lambda a: a.where(a > 0.3).mean("y"),
    "std": lambda a: a.std("x", ddof=1),
    "max": lambda a: a.max("y"),
    "argmax": lambda a: a.argmax("y"),
    "median": lambda a: a.median("x"),
    "all": lambda a: (a > 0).all(),
    "arithmetic": lambda a: np.exp(a) - a / a.max("x"),
    "align": lambda a: a + a.isel(x=slice(1, 5)),
    "select": lambda a: a.sel(y=[1.0, 5.0]).isel(x=2),
    "select by array": lambda a: a.isel(x=xr.DataArray([0, 3, 3], dims="z")),
    "transpose": lambda a: a.transpose("y", "x"),
    "stack": lambda a: a.stack(z=("x", "y")),
    "concat": lambda a: xr.concat([a, a], "x"),
    "shift": lambda a: a.shift(x=1),
    "roll": lambda a: a.roll(y=2),
    "diff": lambda a: a.diff("y"),
    "cumsum": lambda a: a.cumsum("y"),
    "fillna": lambda a: a.where(a > 0.5).fillna(0.0),
    "clip": lambda a: a.clip(0.2, 0.8),
    "dot": lambda a: xr.dot(a, a, dim="y"),
    "groupby": lambda a: a.groupby(xr.DataArray(list("aabbcc"), dims="x", name="g")).sum(),
    "rolling": lambda a: a.drop_vars("label").rolling(x=3).mean(),
    "rolling over the ends": lambda a: a.drop_vars("label").rolling(x=2, center=True, min_periods=1).sum(),
    "coarsen": lambda a: a.drop_vars("label").coarsen(x=2).mean(),
    "to dataset": lambda a: a.to_dataset().mean("x")["values"],
    "round": lambda a: a.round(2),
    "isin": lambda a: a.round(1).isin([0.1, 0.2]),
}


@pytest.mark.parametrize("name", CALLS)
def test_it_gives_what_xarray_gives(name, plain, chunked):
    ours = CALLS[name](chunked)
    assert isinstance(ours.data, wt.Tensor)
    xr.testing.assert_allclose(ours.compute(), CALLS[name](plain))


def test_a_polynomial_is_fitted_where_values_are_missing(plain, chunked):
    ours = chunked.where(chunked > 0.2).polyfit("x", 1).polyfit_coefficients
    xr.testing.assert_allclose(ours.compute(), plain.where(plain > 0.2).polyfit("x", 1).polyfit_coefficients)


def scaled(x, by):
    return x * by


def ends(x):
    return x.min(axis=-1), x.max(axis=-1)


def first_two(x):
    return x[..., :2]


def test_functions_are_applied_chunk_by_chunk(plain, chunked):
    made = xr.apply_ufunc(scaled, chunked, 3, dask="parallelized", output_dtypes=[float])
    assert isinstance(made.data, wt.Tensor)
    assert made.chunks == chunked.chunks
    xr.testing.assert_allclose(made.compute(), plain * 3)


def test_functions_over_whole_dimensions_are_applied(plain, chunked):
    whole = chunked.chunk({"y": -1})
    low, high = xr.apply_ufunc(
        ends,
        whole,
        input_core_dims=[["y"]],
        output_core_dims=[[], []],
        dask="parallelized",
        output_dtypes=[float, float],
    )
    xr.testing.assert_allclose(low.compute(), plain.min("y"))
    xr.testing.assert_allclose(high.compute(), plain.max("y"))
    two = xr.apply_ufunc(
        first_two,
        whole,
        input_core_dims=[["y"]],
        output_core_dims=[["z"]],
        dask="parallelized",
        output_dtypes=[float],
        dask_gufunc_kwargs={"output_sizes": {"z": 2}},
    )
    np.testing.assert_array_equal(two.values, X[:, :2])
    xr.testing.assert_allclose(whole.quantile(0.3, "y").compute(), plain.quantile(0.3, "y"))
    one = xr.apply_ufunc(
        np.linalg.norm, whole, input_core_dims=[["y"]], dask="parallelized", output_dtypes=[float], vectorize=True
    )
    np.testing.assert_allclose(one.values, np.linalg.norm(X, axis=1))


def test_a_dimension_in_pieces_is_told(chunked):
    with pytest.raises(ValueError, match="core dim"):
        xr.apply_ufunc(ends, chunked, input_core_dims=[["y"]], output_core_dims=[[], []], dask="parallelized")


def test_allowed_functions_get_our_arrays(plain, chunked):
    seen = []

    def double(x):
        seen.append(type(x))
        return x * 2

    xr.testing.assert_allclose(xr.apply_ufunc(double, chunked, dask="allowed").compute(), plain * 2)
    assert seen == [wt.Tensor]


def test_zarr_stores_are_opened_and_written(plain, chunked, tmp_path):
    pytest.importorskip("zarr", reason="Zarr is not installed: pip install 'weft[zarr]'")
    plain.drop_vars("label").to_dataset().to_zarr(
        tmp_path / "a.zarr", consolidated=False, encoding={"values": {"chunks": (2, 8)}}
    )
    found = xr.open_zarr(tmp_path / "a.zarr", chunks={"x": 2}, chunked_array_type="weft", consolidated=False)
    assert isinstance(found["values"].data, wt.Tensor)
    assert found["values"].chunks[0] == (2, 2, 2)
    np.testing.assert_allclose(found["values"].sum("x").values, X.sum(axis=0))
    chunked.drop_vars("label").to_dataset().chunk({"x": 2, "y": 4}).to_zarr(
        tmp_path / "b.zarr", consolidated=False, chunkmanager_store_kwargs={}
    )
    np.testing.assert_array_equal(
        xr.open_zarr(tmp_path / "b.zarr", chunks=None, consolidated=False)["values"].values, X
    )


def test_manager_reduces_scans_and_joins_by_label():
    from weft.tensor.chunkmanager import WeftManager

    manager = WeftManager()
    t = wt.asarray(X, chunk_size=3)
    made = manager.reduction(t, np.max, axis=0, dtype=X.dtype)
    np.testing.assert_array_equal(made.fetch(), X.max(axis=0))
    np.testing.assert_array_equal(manager.reduction(t, np.sum, axis=None, keepdims=True).shape, (1, 1))
    np.testing.assert_allclose(manager.scan(np.cumsum, np.add, 0, t, axis=1).fetch(), X.cumsum(axis=1))
    product = manager.blockwise(np.matmul, "ik", t, "ij", wt.asarray(X.T, chunk_size=2), "jk", dtype=float)
    np.testing.assert_allclose(product.fetch(), X @ X.T)
    taller = manager.blockwise(np.repeat, "ij", t, "ij", 2, None, 0, None, adjust_chunks={"i": lambda n: 2 * n})
    np.testing.assert_array_equal(taller.fetch(), X.repeat(2, axis=0))
    chunks, (a, b) = manager.unify_chunks(t, "ij", wt.asarray(X, chunk_size=2), "ij")
    assert a.chunks == b.chunks == (chunks["i"], chunks["j"])
    mapped = manager.map_blocks(lambda x, y: (x + y).sum(axis=1), t.rechunk((2, 8)), t, drop_axis=1, dtype=float)
    np.testing.assert_allclose(mapped.fetch(), 2 * X.sum(axis=1))
    assert manager.normalize_chunks("auto", (1000, 1000), dtype=np.dtype("f8"), limit=80_000) == ((100,) * 10,) * 2
    assert manager.normalize_chunks((2, -1), (5, 3)) == ((2, 2, 1), (3,))
    with pytest.raises(ValueError, match="Chunks do not add up"):
        manager.normalize_chunks(((2, 2), (3,)), (5, 3))


@pytest.mark.filterwarnings("ignore:Consolidated metadata")
def test_a_region_is_written_and_an_axis_grows(tmp_path):
    pytest.importorskip("zarr", reason="Zarr is not installed: pip install 'weft[zarr]'")
    path, values = str(tmp_path / "x.zarr"), RNG.random((50, 4))

    def part(lo, hi, each):
        made = xr.Dataset({"a": (("t", "x"), values[lo:hi])}, {"t": np.arange(lo, hi)})
        return made.chunk({"t": each}, chunked_array_type="weft")

    empty = xr.Dataset({"a": (("t", "x"), np.zeros((30, 4)))}, {"t": np.arange(30)})
    empty.chunk({"t": 10}, chunked_array_type="weft").to_zarr(path)
    part(0, 10, 10).to_zarr(path, region={"t": slice(0, 10)})
    part(10, 17, 7).to_zarr(path, region={"t": slice(10, 17)}, mode="r+", safe_chunks=False)
    part(17, 30, 5).to_zarr(path, region="auto", mode="r+", safe_chunks=False)
    part(30, 50, 10).to_zarr(path, append_dim="t")
    with xr.open_zarr(path) as found:
        np.testing.assert_array_equal(found["a"], values)
        np.testing.assert_array_equal(found["t"], np.arange(50))


@pytest.mark.filterwarnings("ignore:Consolidated metadata")
def test_a_store_is_filled_later(tmp_path):
    pytest.importorskip("zarr", reason="Zarr is not installed: pip install 'weft[zarr]'")
    pytest.importorskip("dask", reason="dask is not installed, of which xarray makes what it computes later")
    path = str(tmp_path / "x.zarr")
    made = xr.Dataset({"a": (("t", "x"), X), "b": (("t", "x"), X + 1)})
    later = made.chunk({"t": 2}, chunked_array_type="weft").to_zarr(path, compute=False)
    with xr.open_zarr(path) as found:
        assert np.isnan(found["a"]).all()
    later.compute()
    with xr.open_zarr(path) as found:
        xr.testing.assert_equal(found.load(), made)


def test_weighted_means_over_two_axes_are_those_of_xarray():
    lat, lon = np.linspace(-80, 80, 5), np.arange(0, 360, 30)
    field = xr.DataArray(RNG.random((3, 5, 12)), {"lat": lat, "lon": lon}, ("time", "lat", "lon"))
    field[1, 2, 3] = np.nan
    weights = np.cos(np.deg2rad(field["lat"]))
    wanted = field.weighted(weights).mean(["lat", "lon"])
    found = field.chunk({"time": 1, "lon": 5}, chunked_array_type="weft").weighted(weights).mean(["lat", "lon"])
    np.testing.assert_allclose(found, wanted, 1e-12)


def test_functions_of_single_elements_keep_fractions_and_texts():
    numbers = xr.DataArray(np.arange(6.0).reshape(2, 3), dims=("x", "y"))
    texts = xr.DataArray(np.array([["a", "ccc", "bb"], ["bb", "a", "ccc"]]), dims=("x", "y"))

    def halved(values):
        return xr.apply_ufunc(
            lambda n: 0 if n < 1 else n / 2, values, vectorize=True, dask="parallelized", output_dtypes=[float]
        )

    for call, plain in ((halved, numbers), (lambda a: a.str.upper(), texts)):
        xr.testing.assert_identical(call(plain.chunk(x=1, chunked_array_type="weft")).load(), call(plain))


@pytest.mark.parametrize("dtype", ["M8[ns]", "m8[ns]"])
def test_largest_dates_of_windows_are_those_of_xarray(dtype):
    dates = np.array([3, 1, 2, 5, 4], dtype)
    plain = xr.DataArray(dates, dims="x")
    cut = plain.chunk(x=2, chunked_array_type="weft")
    xr.testing.assert_identical(cut.rolling(x=2).max().load(), plain.rolling(x=2).max())
    xr.testing.assert_identical(
        cut.rolling(x=3, center=True, min_periods=1).min().load(), plain.rolling(x=3, center=True, min_periods=1).min()
    )
