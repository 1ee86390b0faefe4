"""`run_script`: run one script on several workers at once, with its number in RANK."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weft.model.errors import UsageError
from weft.remote.spawning import Object, spawn
from weft.runtime import arguments
from weft.tensor.sessions import current

if TYPE_CHECKING:
    from collections.abc import Iterator

    from weft.tensor.sessions import TensorSession


@contextmanager
def _script_environment(environment: Mapping[str, str], arguments: Sequence[str]) -> Iterator[None]:
    """Set environment variables and `sys.argv` while a script runs, and restore them afterwards."""
    before, argv = {name: os.environ.get(name) for name in environment}, sys.argv
    os.environ.update(environment)
    sys.argv = ["script", *arguments]
    try:
        yield
    finally:
        sys.argv = argv
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
        sys.stdout.flush()


def _run(code: bytes, data: Mapping[str, Any], rank: int, size: int, arguments: Sequence[str]) -> dict[str, str]:
    names = {"__name__": "__main__", "session": current(), **data}
    with _script_environment({"RANK": str(rank), "WORLD_SIZE": str(size)}, arguments):
        exec(compile(code, "script", "exec"), names)
    return {"status": "ok"} if rank == 0 else {}


def _first(ends: Sequence[dict[str, str]]) -> dict[str, str]:
    return ends[0]


def run_script(
    script: Any,
    data: Mapping[str, Any] | None = None,
    n_workers: int = 1,
    command_argv: Sequence[str] | None = None,
    session: TensorSession | None = None,
    retry_when_fail: bool = False,
    run_kwargs: Mapping[str, Any] | None = None,
) -> Object:
    """Run a script, a path or a file to read it from, `n_workers` times side by side; return what has computed it.

    The script has the names in `data` (arrays and results of calls are computed first), `session`, the arguments
    `command_argv` in `sys.argv`, and its number among them and how many they are in the environment: RANK, WORLD_SIZE.
    `fetch` of the result gives `{"status": "ok"}`. `run_kwargs` are those of `execute`. TaskError: the script has
    raised. TypeError: `data` is no dict. UsageError: several are to run in one process, which has one environment, or
    `n_workers` is no number from 1 on.
    """
    if data is not None and not isinstance(data, Mapping):
        raise TypeError(f"data is {type(data).__name__}: give a dict of names and values")
    n_workers = arguments.whole("n_workers", n_workers, lo=1, hi=None)
    where = session or current()
    if n_workers > 1 and not where.apart:
        raise UsageError(
            f"n_workers is {n_workers}, and the session's workers are threads, which have one environment",
            hint='Give a session of processes: weft.tensor.Session(backend="processes").',
        )
    code = script.read() if hasattr(script, "read") else Path(script).read_bytes()
    text = code.encode() if isinstance(code, str) else bytes(code)
    ends = [
        spawn(
            _run, (text, dict(data or {}), rank, n_workers, list(command_argv or ())), retry_when_fail=retry_when_fail
        )
        for rank in range(n_workers)
    ]
    made: Object = spawn(_first, (ends,))
    made.execute(session=where, **(run_kwargs or {}))
    return made
