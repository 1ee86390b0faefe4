"""Orders to the owner of a run, or of one task of it, here or at a cluster."""

from __future__ import annotations

import json
import platform
from typing import TYPE_CHECKING, Any

from weft.admin.control import send
from weft.model.errors import ConflictError, UsageError
from weft.model.ids import item_name
from weft.runs.reading import read_run
from weft.runs.records import ACTIVE, INTERRUPTED, SUSPENDED
from weft.store.state import DRIVER, is_followed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from weft.runs.reading import RunRecord


def task_subject(run: RunRecord, name: str) -> tuple[str, str]:
    """Return the subject of an order about a step, an item of one or a dag (`dag.`), and its name for people.

    NotFoundError: it does not exist. UsageError: it is a replica. ConflictError: it has ended.
    """
    step, slash, _ = name.partition("/")
    if slash or run.of_jobs:
        owner = f"{run.id}/{step}" if slash else run.id
        raise UsageError(
            f"{name[:100]} is a replica, which its job starts and stops",
            hint=f"Change the number of replicas: weft scale {owner} worker=2. Or end the job: weft cancel {owner}",
        )
    if not run.of_session and (inside := run.dag(name)):
        if all(step.ended is not None for step in inside):
            raise ConflictError(f"all steps of {name} of {run.id} have ended already", hint=f"See: weft show {run.id}")
        return f"{name}.", name
    record, item = run.task(name)
    found = record if item is None else record.items.get(item)
    shown = record.name if item is None else item_name(record.name, item)
    if record.ended is not None or (found is not None and found.ended is not None):
        state = record.state if found is None else found.state
        raise ConflictError(f"{shown} of {run.id} has ended already: {state}", hint=f"See: weft show {run.id}/{shown}")
    return record.name if item is None else f"{record.name}[{item}]", shown


def send_order(folder: Path, message: Mapping[str, Any], through_cluster: Callable[..., Any]) -> str:
    """Send an order to the owner of a run; return the id of the run. Errors are those of `answer_of`."""
    answer_of(folder, message, through_cluster)
    return folder.name


def answer_of(folder: Path, message: Mapping[str, Any], through_cluster: Callable[..., Any]) -> Any:
    """Send an order to the owner of a run; return its answer.

    `through_cluster(folder, message)` sends it to an owner at another machine.

    ConflictError: the run has ended, or its owner does not answer.
    """
    refuse_ended(read_run(folder))
    return deliver(folder, message, through_cluster)


def refuse_ended(found: RunRecord) -> None:
    """Raise ConflictError if a run takes no order: it has ended, or is suspended."""
    if found.state in (SUSPENDED, INTERRUPTED):
        word = "is suspended already" if found.state == SUSPENDED else "was interrupted"
        raise ConflictError(
            f"{found.id} {word}: nothing of it runs",
            hint=f"Go on with it: weft resume {found.id} (it can be cancelled then)",
        )
    if found.state not in ACTIVE:
        raise ConflictError(f"{found.id} has ended already: {found.state}", hint=f"Look at it: weft show {found.id}")


def deliver(folder: Path, message: Mapping[str, Any], through_cluster: Callable[..., Any]) -> Any:
    """Send a message to the owner of a run, wherever that is, and return the answer; arguments as for `send_order`.

    ConflictError: the run has no owner, or that does not answer. Errors of the owner are raised.
    """
    return (through_cluster if _is_elsewhere(folder) else send)(folder, message)


def _is_elsewhere(folder: Path) -> bool:
    """Whether a cluster drives a run, from another machine or another folder: its socket is of no use here."""
    if is_followed(folder):
        return True
    try:
        about = json.loads((folder / DRIVER).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return False
    return bool(about["machine"] != platform.node())
