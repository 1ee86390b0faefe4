"""What tasks print at the machines of a Ray cluster: it goes to the standard error of the session, to the last line.

Ray carries the lines of each process in order, a moment later. A session that ends has each actor print a mark behind
everything else, and waits for the marks.
"""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Callable, Collection
from functools import partial
from typing import Any, Final

from ray._private import ray_constants, worker

_MARK: Final = "weft-end-of-prints-"
_UNBORN: Final = "TemporaryActor"
"""Ray's name of an actor that cannot be made; it prints stacks of C++, and the error comes to the session anyway."""
_OF_RAYLET: Final = re.compile(r"(\x1b\[\d+m)?\((raylet|TemporaryActor)\b")
_heard: set[str] = set()
_changed = threading.Condition()


def print_to_stderr() -> None:
    """Have Ray print what tasks print to the standard error, and none of its own reports of lost machines.

    It prints all that to the standard output, which may be the table that a command writes. No setting changes that.
    The reports hold 30 lines of internal state; Weft tells of a lost machine itself.
    """
    prints = worker.print_to_stdstream
    if not isinstance(prints, partial):
        worker.print_to_stdstream = partial(_as_error, prints)


def _as_error(prints: Callable[..., None], data: dict[str, Any], ignore_prefix: bool) -> None:
    if data.get("pid") == "raylet" or data.get("actor_name") == _UNBORN:
        return
    marks = [line for line in data["lines"] if line.startswith(_MARK)]
    _hear(marks)
    if lines := [line for line in data["lines"] if line not in marks]:
        prints({**data, "lines": lines, "is_err": True}, ignore_prefix=ignore_prefix)


def _hear(marks: Collection[str]) -> None:
    if marks:
        with _changed:
            _heard.update(marks)
            _changed.notify_all()


def print_client_to_stderr() -> None:
    """Do the same for what Ray's client carries. ImportError: it is not installed."""
    from ray.util.client.logsclient import LogstreamClient

    LogstreamClient.stdstream = _of_client  # type: ignore[method-assign, assignment]


def _of_client(_: object, level: int, msg: str) -> None:
    """Print lines that Ray's client carries, each with the process that has printed it before."""
    lines = msg.splitlines(keepends=True)
    _hear([line[line.index(_MARK) :].rstrip() for line in lines if _MARK in line])
    sys.stderr.write("".join(line for line in lines if _MARK not in line and not _OF_RAYLET.match(line)))


def print_marks(name: str) -> None:
    """Print the mark of an actor behind all that it and its tasks have printed."""
    for kind, stream in (("out", sys.stdout), ("err", sys.stderr)):
        stream.write(f"{_MARK}{name}-{kind}\n")
        stream.flush()


def are_printed() -> bool:
    """Return whether this process prints what tasks print."""
    return bool(ray_constants.RAY_LOG_TO_DRIVER) and isinstance(worker.print_to_stdstream, partial)


def wait_for_marks(names: Collection[str], timeout_s: float) -> None:
    """Wait until all that these actors have printed has been printed here, but no longer than so many seconds."""
    wanted = {f"{_MARK}{name}-{kind}" for name in names for kind in ("out", "err")}
    with _changed:
        _changed.wait_for(lambda: wanted <= _heard, timeout_s)
        _heard.difference_update(wanted)
