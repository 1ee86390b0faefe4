"""Programs that run in environments of their own, with libraries that do not fit those of Weft."""

from __future__ import annotations

from pathlib import Path


def spu_psi_path() -> Path:
    """Return the program that intersects ids with SPU."""
    return Path(__file__).parent / "spu_psi.py"
