"""Types of arguments that have names."""

from __future__ import annotations

from collections.abc import Sequence

Axis = int | Sequence[int] | None
"""One axis, several, or all."""
Shape = int | tuple[int, ...]
"""The length of the only axis, or of each one."""
Size = int | Sequence[int] | None
"""The shape of random numbers; None: that of the parameters."""
