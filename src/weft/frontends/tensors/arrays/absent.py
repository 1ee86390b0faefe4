"""The names of NumPy that `weft.tensor` leaves out, with the reasons: for errors, and for the page about arrays.

`python -m weft.frontends.tensors.arrays.absent` prints the table of the page. A test compares the names with NumPy's.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from types import ModuleType

SPACES: Mapping[str, ModuleType] = {"": np, "linalg": np.linalg, "fft": np.fft}
"""The modules of NumPy whose names are compared, by the namespace of `weft.tensor`."""
REASONS: Mapping[str, str] = {
    "classes that iterate over or view the memory of one array": "broadcast flatiter memmap nditer ndarray "
    "nested_iters ufunc",
    "subclasses of `numpy.ndarray`, which arrays in chunks are not (structured types are supported)": "asmatrix bmat "
    "ma matrix rec recarray record",
    "modules and classes about coefficients or text, to be used from NumPy": "char poly1d polynomial strings",
    "functions whose dtype depends on values, which a lazy array must know before": "emath",
    "types of some platforms only: take `longdouble` and `clongdouble`": "complex256 float128",
    "NumPy itself: its build, tests, tools and other modules": "__version__ core ctypeslib dtypes exceptions f2py "
    "get_include info show_config show_runtime test testing typing",
}
"""The names that are left out, by the reason."""


_DASK = {
    "Array": "Tensor",
    "as_gufunc": "apply_gufunc, or vectorize(f, signature=...)",
    "coarsen": "reshape, and a reduction over the new axes",
    "delayed": "weft.remote.spawn",
    "from_npy_stack": "load",
    "gufunc": "vectorize(f, signature=...)",
    "overlap": "map_overlap",
    "reduction": "map_blocks, and a reduction of its result",
    "register_chunk_type": "Session(array_namespace=...)",
    "to_npy_stack": "save",
    "unify_chunks": "x.rechunk(y.chunks)",
}
"""Names of dask.array, with what is there instead."""
_DASK_METHODS = {
    "blocks": "x.map_blocks(f), or a slice",
    "chunksize": "tuple(map(max, x.chunks))",
    "compute_chunk_sizes": "x.shape, which computes the lengths",
    "dask": "x.visualize(), x.explain()",
    "npartitions": "math.prod(map(len, x.chunks))",
    "numblocks": "tuple(map(len, x.chunks))",
    "optimize": "nothing: x.execute() does",
    "partitions": "x.map_blocks(f), or a slice",
    "store": "weft.tensor.store(x, target)",
    "to_dask_dataframe": "x.fetch()",
    "to_delayed": "x.map_blocks(f)",
    "to_hdf5": "weft.tensor.to_hdf5(path, x).execute()",
    "to_zarr": "weft.tensor.to_zarr(path, x).execute()",
    "vindex": "x[i, j], with index arrays",
}
"""Attributes of dask's arrays, with what is there instead."""


def dask_method(name: str) -> str:
    """Return what stands for an attribute of dask's arrays, for an error; empty if it is none."""
    return f": dask's is here {_DASK_METHODS[name]}" if name in _DASK_METHODS else ""


def dask_function(name: str) -> str:
    """Return what stands for a name of dask.array, for an error; empty if it is none."""
    return f": dask's is here {_DASK[name]}" if name in _DASK else ""


def reason_for(name: str) -> str:
    """Return why a name of NumPy is left out; empty if it is not one of these."""
    return next((reason for reason, names in REASONS.items() if name in names.split()), "")


def table() -> str:
    """Return the names and the reasons as a table in Markdown."""
    rows = [f"| {', '.join([f'`{name}`' for name in names.split()])} | {reason} |" for reason, names in REASONS.items()]
    return "\n".join(["| left out | reason |", "|---|---|", *rows]) + "\n"


if __name__ == "__main__":
    sys.stdout.write(table())
