"""The concrete classes of a `RunService`, under the names of its protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft.model.errors import ConflictError
from weft.wiring.concrete import BACKENDS as BACKENDS
from weft.wiring.concrete import MANAGERS as MANAGERS
from weft.wiring.concrete import eviction_key as eviction_key
from weft.wiring.concrete import make_backend as make_backend
from weft.wiring.concrete import session_folders as session_folders

if TYPE_CHECKING:
    from pathlib import Path

    from weft.runs.sources import ResumableSource


def make_session(backend: str, **options: Any) -> Any:
    """Return a session of a Python program; see `weft.Session`."""
    from weft.wiring.session import Session

    return Session(backend, **options)


def source_again(frontend: str, folder: Path, file: str) -> ResumableSource:
    """Return the source of a run, read from its folder. ConflictError: no front end can read it."""
    if frontend != "pipelines":
        raise ConflictError(f"{folder.name} is a run of {frontend or 'something'} that cannot be resumed here")
    from weft.frontends.pipelines.loading import loaded_again

    return loaded_again(folder, file)
