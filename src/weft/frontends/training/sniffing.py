"""A cheap look whether a file has training jobs: the command line asks before it loads a reader."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from typing import Final

_MAX_BYTES: Final = 1 << 20
_ENDINGS: Final = (".yaml", ".yml", ".json")
_VERSION: Final = re.compile(
    rb"""^apiVersion\s*:|^[\s{\[,-]*["']?apiVersion["']?\s*:\s*["']?(trainer\.)?kubeflow\.org/""", re.MULTILINE
)
"""A document of Kubernetes, or one of kubeflow at any depth; pipelines have no `apiVersion`."""


def has_jobs(path: str) -> bool:
    """Return whether a document of a file, or of a file in a folder, is of an API of Kubernetes."""
    if os.path.isdir(path):
        with suppress(OSError), os.scandir(path) as entries:
            return any(has_jobs(entry.path) for entry in entries if entry.name.endswith(_ENDINGS))
        return False
    if not path.endswith(_ENDINGS):
        return False
    with suppress(OSError), open(path, "rb") as file:
        return _VERSION.search(file.read(_MAX_BYTES)) is not None
    return False
