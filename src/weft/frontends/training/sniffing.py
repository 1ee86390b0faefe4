"""A cheap look whether a file has training jobs: the command line asks before it loads a reader."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from typing import Final

from weft.model.patterns import late_pattern

_MAX_BYTES: Final = 1 << 20
_ENDINGS: Final = (".yaml", ".yml", ".json")
_KUBERNETES: Final = late_pattern(rb"^apiVersion\s*:", re.MULTILINE)
_KUBEFLOW: Final = late_pattern(
    rb"""^[\s{\[,-]*["']?apiVersion["']?\s*:\s*["']?(trainer\.)?kubeflow\.org/""", re.MULTILINE
)
"""A document of kubeflow at any depth, since a list may hold it, and JSON."""
_KIND: Final = late_pattern(
    rb"""^[\s{,-]*["']?kind["']?\s*:\s*["']?(TFJob|PyTorchJob|MPIJob|XGBoostJob|PaddleJob|JAXJob|TrainJob)\b""",
    re.MULTILINE,
)
"""A job whose apiVersion is missing: its reader tells so."""
_PIPELINE: Final = late_pattern(rb"""(?:^|[{,])\s*["']?entry_points["']?\s*:""", re.MULTILINE)
"""A pipeline, whose commands may hold the text of a job for kubectl, but never at the beginning of a line."""


_WORDS: Final = (b"apiVersion", b"Job")
"""A document of Kubernetes, and one whose apiVersion is missing, has one of these."""


def has_jobs(path: str) -> bool:
    """Return whether a document of a file, or of a file in a folder, is of an API of Kubernetes."""
    if os.path.isdir(path):
        with suppress(OSError), os.scandir(path) as entries:
            return any(has_jobs(entry.path) for entry in entries if entry.name.endswith(_ENDINGS))
        return False
    if not path.endswith(_ENDINGS) or not os.path.isfile(path):  # a read of a named pipe would wait for its writer
        return False
    with suppress(OSError), open(path, "rb") as file:
        text = file.read(_MAX_BYTES)
        if not any(word in text for word in _WORDS):  # most files of pipelines, which may be long
            return False
        if _KUBERNETES.search(text):
            return True
        is_job = _KUBEFLOW.search(text) is not None or _KIND.search(text) is not None
        return is_job and _PIPELINE.search(text) is None
    return False
