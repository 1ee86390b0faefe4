"""Orders to the owner of a run: cancel and suspend."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft.admin.control import send
from weft.model.errors import ConflictError
from weft.runs.reading import read_run
from weft.runs.records import ACTIVE, INTERRUPTED, SUSPENDED

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def send_order(folder: Path, message: Mapping[str, Any]) -> str:
    """Send an order to the owner of a run; return the id of the run.

    ConflictError: the run has ended, or its owner does not answer.
    """
    found = read_run(folder)
    if found.state in (SUSPENDED, INTERRUPTED):
        word = "is suspended already" if found.state == SUSPENDED else "was interrupted"
        raise ConflictError(f"{found.id} {word}: nothing of it runs", hint=f"Go on with it: weft resume {found.id}")
    if found.state not in ACTIVE:
        raise ConflictError(f"{found.id} has ended already: {found.state}", hint=f"Look at it: weft show {found.id}")
    send(folder, message)
    return found.id
