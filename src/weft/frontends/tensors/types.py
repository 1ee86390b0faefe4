"""Named types of arguments and of chunks in kernels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

ArrayLike = npt.ArrayLike
"""The arguments that become arrays: numbers, lists, arrays of NumPy and of Weft, objects with `__array__`."""
DTypeLike = npt.DTypeLike | None
"""The name of a dtype; None: the dtype follows from the arguments."""
DType = np.dtype[Any]
NumpyArray = np.ndarray[Any, Any]
Chunk = Any
"""A chunk in a kernel: a NumPy array, or one of the library that the session computes with."""
Axis = int | Sequence[int] | None
"""One axis, several, or all."""
Shape = int | tuple[int, ...]
"""The length of the only axis, or of each one."""
Size = int | Sequence[int] | None
"""The shape of random numbers; None: that of the parameters."""
ChunkSize = int | str | Sequence[int | Sequence[int]] | Mapping[int, int] | None
"""The most elements of a chunk along each axis: for all, by axis, or the lengths of all chunks; None: chosen."""
