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


def reason_for(name: str) -> str:
    """Return why a name of NumPy is left out; empty if it is not one of these."""
    return next((reason for reason, names in REASONS.items() if name in names.split()), "")


def table() -> str:
    """Return the names and the reasons as a table in Markdown."""
    rows = [f"| {', '.join([f'`{name}`' for name in names.split()])} | {reason} |" for reason, names in REASONS.items()]
    return "\n".join(["| left out | reason |", "|---|---|", *rows]) + "\n"


if __name__ == "__main__":
    sys.stdout.write(table())
