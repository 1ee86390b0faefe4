"""The libraries that parties need, which are optional."""

from __future__ import annotations

from importlib import import_module
from typing import Final

from weft.model.errors import MissingExtraError

_LIBRARIES: Final = ("cryptography", "grpc")


def require_libraries() -> None:
    """Require what parties need. MissingExtraError: it is not installed."""
    for name in _LIBRARIES:
        try:
            import_module(name)
        except ModuleNotFoundError as error:
            if error.name is None or error.name.partition(".")[0] != name:
                raise  # it is there, and lacks something itself
            raise MissingExtraError(
                f"parties need {name}, which is not installed", hint="Install it: pip install 'weft[federated]'"
            ) from None
