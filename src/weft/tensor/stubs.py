"""Writes the stub files of the public names: `python -m weft.tensor.stubs`."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING

from weft.frontends.tensors import arrays
from weft.frontends.tensors.arrays.registry import MAIN, METHODS, table
from weft.frontends.tensors.arrays.stubs import render, stub_of

if TYPE_CHECKING:
    from pathlib import Path

SUBMODULES = "fft lib linalg random spatial special stats"
"""Submodules that are names of the main namespace."""
SPACES = (MAIN, "config", "fft", "lib.index_tricks", "lib.stride_tricks", "linalg", "random")
"""Namespaces with names in the registry; names of SciPy are looked up in SciPy."""
_REGISTERING = ("weft.tensor.inspection", "weft.tensor.sessions")
"""Modules of this package that define public names."""


def stubs() -> Iterator[tuple[Path, str]]:
    """Yield the path and the content of each stub file."""
    for name in (*[f"{arrays.__name__}.{one.name}" for one in iter_modules(arrays.__path__)], *_REGISTERING):
        import_module(name)
    for space in SPACES:
        module = f"weft.tensor.{space}" if space else "weft.tensor"
        modules = dict.fromkeys(SUBMODULES.split(), "weft.tensor") if space == MAIN else {}
        yield stub_of(module), render(table(space).values(), modules)
    yield stub_of(f"{arrays.__name__}.methods"), render(table(METHODS).values(), {}, methods=True)


if __name__ == "__main__":
    for path, text in stubs():
        path.write_text(text)
