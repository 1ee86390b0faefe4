"""Orders to the owner of a run: cancel and suspend."""

from __future__ import annotations

import json
import platform
from typing import TYPE_CHECKING, Any

from weft.admin.control import send
from weft.model.errors import ConflictError
from weft.runs.reading import read_run
from weft.runs.records import ACTIVE, INTERRUPTED, SUSPENDED
from weft.store.state import DRIVER

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path


def send_order(folder: Path, message: Mapping[str, Any], through_cluster: Callable[..., Any]) -> str:
    """Send an order to the owner of a run; return the id of the run.

    `through_cluster(folder, message)` sends it to an owner at another machine.

    ConflictError: the run has ended, or its owner does not answer.
    """
    found = read_run(folder)
    if found.state in (SUSPENDED, INTERRUPTED):
        word = "is suspended already" if found.state == SUSPENDED else "was interrupted"
        raise ConflictError(f"{found.id} {word}: nothing of it runs", hint=f"Go on with it: weft resume {found.id}")
    if found.state not in ACTIVE:
        raise ConflictError(f"{found.id} has ended already: {found.state}", hint=f"Look at it: weft show {found.id}")
    (through_cluster if _is_elsewhere(folder) else send)(folder, message)
    return found.id


def _is_elsewhere(folder: Path) -> bool:
    """Whether a cluster drives a run, from another machine: its socket is of no use here."""
    try:
        about = json.loads((folder / DRIVER).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return False
    return bool(about["machine"] != platform.node())
