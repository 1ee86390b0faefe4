"""Programs that run in environments of their own, with libraries that do not fit those of Weft.

A provider is a program and an environment; a variable of the server of a party names the environment.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple


class LibraryProvider(NamedTuple):
    """A program, the package that it needs, and the variable that names an environment with this package."""

    package: str
    variable: str
    program: Path


_HERE: Final = Path(__file__).parent
SPU: Final = LibraryProvider("spu", "WEFT_SPU", _HERE / "spu_programs.py")
TORCH: Final = LibraryProvider("torch", "WEFT_TORCH", _HERE / "torch_program.py")
PROVIDERS: Final = (SPU, TORCH)
