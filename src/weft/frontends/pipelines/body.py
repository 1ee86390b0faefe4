"""What the task of a step does: make room for its outputs, then run its command.

A step's outputs are clean before every attempt, its log is one file for each attempt, and its environment is that of
the machine it runs on with its own variables on top. None of that can be settled when the graph is made.
"""

from __future__ import annotations

import errno
import os
import time
from copy import copy
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from weft.frontends.pipelines.caching import RECIPE, recipe_of
from weft.model.errors import DiskFullError, TaskError
from weft.operators.call import run_command
from weft.store.folders import make_folders, remove_at
from weft.store.results import open_cache

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from weft.graph.task import TaskContext

SKIPPED = "skipped"
"""The branch that disabled steps are not on."""
WARNING = "warning"
"""The user event by which a step that succeeds says what a person should know; its payload is a text."""

_OWN_PREFIX = "WEFT_"
_OF_ANOTHER_SHELL = frozenset({"_", "OLDPWD", "PWD", "SHLVL", "PYTHONHOME", "__PYVENV_LAUNCHER__"})


def run_step(ctx: TaskContext, inputs: object) -> dict[str, Any]:
    """Run one attempt of a step (style TASK) and return what `weft.operators.call.run_command` returns.

    Parameters: `command`, `cwd`, `env` (added to this process's own), `logs` and `processes` (folders for the log
    `<step>.<attempt>.log` and for the record of processes), `outputs` (paths below `cwd`: removed, their parents
    made), `cache` (a `Recipe` by which its result is kept), and further fields of `CommandSpec`. An output that was not
    made, a result that is not kept and a log that is not complete are told by the event `WARNING`. Raises what
    `run_command` raises, TaskError or DiskFullError when the place of an output cannot be made.
    """
    own = dict(ctx.params)
    outputs = list(own.get("outputs", ()))
    recipe = recipe_of(own, ctx.index)
    own.pop(RECIPE, None)
    started = time.time()
    name = f"{ctx.vertex}.{ctx.attempt}"
    logs, processes = Path(own.pop("logs")), Path(own.pop("processes"))
    if not ctx.cancelled():
        make_room(own["cwd"], own.pop("outputs", ()), ctx.vertex)
        processes.mkdir(parents=True, exist_ok=True)
    own["env"] = {**inherited(os.environ), **own["env"]}
    own["log"], own["record"] = str(logs / f"{name}.log"), str(processes / name)
    own.pop("outputs", None)
    step = copy(ctx)
    step.params = own
    result = run_command(step, inputs)
    warnings = [f"its output {PurePosixPath(path).name} was not made" for path in outputs if not os.path.lexists(path)]
    if result["log_error"]:
        warnings.append(f"its log is not complete: {result['log_error']}")
    if recipe is not None:
        reason = open_cache(recipe.index, time.time).keep(recipe, started)
        if reason:
            warnings.append(f"its result is not kept: {reason}")
    if warnings:
        ctx.emit(WARNING, "; ".join(warnings))
    return result


def answer_skipped() -> str:
    """Decide that the disabled steps are skipped."""
    return SKIPPED


def inherited(environ: Mapping[str, str]) -> dict[str, str]:
    """Return what a step gets of the environment that Weft runs in.

    That is all but Weft's own settings and what describes another shell or interpreter.
    """
    return {
        name: value
        for name, value in environ.items()
        if name not in _OF_ANOTHER_SHELL and not name.startswith(_OWN_PREFIX)
    }


def make_room(root: str, outputs: Iterable[str], step: str) -> None:
    """Make the parent folder of each output and remove what lies at its path; no link on the way is followed.

    `root` is an existing folder and outputs are absolute paths below it. TaskError or DiskFullError names the path.
    """
    for output in outputs:
        *folders, last = PurePosixPath(output).relative_to(root).parts
        try:
            parent = make_folders(root, folders)
            try:
                remove_at(last, parent)
            finally:
                os.close(parent)
        except OSError as error:
            message = f"step {step} cannot start: no room can be made for its output {output}: {error.strerror}"
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise DiskFullError(message, hint="Make room on this disk.") from None
            hint = "See that you may write there, and that no link is on the way."
            raise TaskError(message, task=step, hint=hint) from None
