"""The outputs of a run that lie at the URL of its storage: one line of JSON for each that the run has taken.

The last line of a path counts. Objects of attempts that the run has not taken are named nowhere here.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct

from weft.store.shared import SharedObject  # noqa: TC001 - msgspec reads it at run time

if TYPE_CHECKING:
    from pathlib import Path

ARTIFACTS: Final = "artifacts.jsonl"
"""The name of the file in the folder of a run."""


PROJECT: Final = "project.json"
"""The name of the file in the folder of a run with its packed project."""


class PackedProject(Struct, frozen=True):
    """The packed project of a run, and the folders in it, as paths from the folder that holds the state folder."""

    object: SharedObject
    trees: tuple[str, ...]


class TakenArtifact(Struct, frozen=True):
    """An output by its path below the file system of the run, and its object."""

    path: str
    object: SharedObject


_read_taken: Final = msgspec.json.Decoder(TakenArtifact).decode


def add_artifact(folder: str, path: str, found: SharedObject) -> None:
    """Add an output to the folder of a run. OSError: it cannot be written."""
    line = msgspec.json.encode(TakenArtifact(path, found)) + b"\n"
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
    fd = os.open(os.path.join(folder, ARTIFACTS), flags, 0o600)
    try:
        os.write(fd, line)
    finally:
        os.close(fd)


def read_artifacts(folder: Path) -> dict[str, SharedObject]:
    """Return the outputs of a run by their paths below its file system."""
    try:
        lines = (folder / ARTIFACTS).read_bytes().splitlines(keepends=True)
    except FileNotFoundError:
        return {}
    whole = [line for line in lines if line.endswith(b"\n")]
    found = [_read_taken(line) for line in whole]
    return {one.path: one.object for one in found}
