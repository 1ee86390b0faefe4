"""Programs that run in environments of their own, with libraries that do not fit those of Weft."""

from __future__ import annotations

from pathlib import Path


def program(name: str) -> Path:
    """Return the file of a program, such as `spu_psi`."""
    return Path(__file__).parent / f"{name}.py"
