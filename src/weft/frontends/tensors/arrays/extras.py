"""Optional libraries: imported on use; the error for a missing one names its extra."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from weft.model.errors import MissingExtraError

if TYPE_CHECKING:
    from types import ModuleType

_EXTRAS = {"h5py": "hdf5"}
"""The extras that are not called as their library."""


def needed(name: str) -> ModuleType:
    """Return a module; MissingExtraError: it is not installed."""
    library = name.partition(".")[0]
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != library:
            raise  # it is there, and lacks something itself
        extra = _EXTRAS.get(library, library)
        raise MissingExtraError(
            f"{library} is not installed", hint=f"Install it: pip install 'weft[{extra}]'"
        ) from None
