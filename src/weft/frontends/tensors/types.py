"""Types that have names: those of what users give, and of what kernels work on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

ArrayLike = npt.ArrayLike
"""What NumPy makes an array of: numbers, lists, arrays of NumPy's, of ours, and whatever has `__array__`."""
DTypeLike = npt.DTypeLike | None
"""What names a dtype; None: the one that follows from the arguments."""
DType = np.dtype[Any]
NumpyArray = np.ndarray[Any, Any]
Chunk = Any
"""A chunk in a kernel: an array of NumPy's, or of the library that the session computes with."""
Axis = int | Sequence[int] | None
"""One axis, several, or all."""
Shape = int | tuple[int, ...]
"""The length of the only axis, or of each one."""
Size = int | Sequence[int] | None
"""The shape of random numbers; None: that of the parameters."""
ChunkSize = int | str | Sequence[int | Sequence[int]] | Mapping[int, int] | None
"""How many elements chunks have along each axis: for all, by axis, or the lengths of all chunks; None: chosen."""
