"""Where artifacts lie, what a step finds in its environment, and the body of its command."""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, TypeVar

from weft.frontends.pipelines.templates import LOOP_ARGUMENT, RUN_ID, STEP_NAME, USER_NAME

if TYPE_CHECKING:
    from collections.abc import Mapping

_Text = TypeVar("_Text")

INPUT_PREFIX = "PF_INPUT_ARTIFACT_"
OUTPUT_PREFIX = "PF_OUTPUT_ARTIFACT_"
WORK_DIR = "PF_WORK_DIR"
ENTRY_POINTS, POST_PROCESS = "entry_points", "post_process"
MOUNT_ROOT = "/home/paddleflow/storage/mnt"

_SHELL_PREFIX = re.compile(r"\s*(?:bash|sh)\s+-c(?:\s+|$)(?!['\"])")


def runtime_name(pipeline: str, step: str, seq: int = 0, part: str = ENTRY_POINTS) -> str:
    """Name one execution of a step; `seq` counts the items of a loop and shows from the second on.

    `step` has the names of the dags around it in front, each with the number of its own item: `dag-1.step`.
    """
    name = f"{pipeline}.{part}.{step}"
    return f"{name}-{seq}" if seq else name


def step_folder(pipeline: str, step: str, seq: int = 0, part: str = ENTRY_POINTS) -> str:
    """Name the folder that holds a step's outputs: step, sequence number and the md5 of its runtime name."""
    return f"{step.rpartition('.')[2]}-{seq}-{digest_of(runtime_name(pipeline, step, seq, part))}"


def digest_of(name: str) -> str:
    """Return the md5 of a name in hexadecimal digits."""
    return hashlib.md5(name.encode(), usedforsecurity=False).hexdigest()


def artifact_path(
    base: str, run_id: str, pipeline: str, step: str, artifact: str, seq: int = 0, part: str = ENTRY_POINTS
) -> str:
    """Return where an output lies under `base`, the folder that the main file system's `sub_path` names."""
    return f"{base.rstrip('/')}/.pipeline/{run_id}/{pipeline}/{step_folder(pipeline, step, seq, part)}/{artifact}"


def environment(
    declared: Mapping[str, _Text],
    *,
    run_id: str,
    step: str,
    user: str,
    inputs: Mapping[str, _Text],
    outputs: Mapping[str, _Text],
    cwd: str,
    loop_argument: _Text | str = "",
) -> dict[str, _Text | str]:
    """Join a step's own variables with those every step is given; the given ones win.

    What is known only later may stand as something else than a string, and is handed on.
    """
    return {
        **declared,
        RUN_ID: run_id,
        STEP_NAME: step,
        USER_NAME: user,
        LOOP_ARGUMENT: loop_argument,
        **{INPUT_PREFIX + name.upper(): path for name, path in inputs.items()},
        **{OUTPUT_PREFIX + name.upper(): path for name, path in outputs.items()},
        WORK_DIR: cwd,
    }


def mount_path(user: str, name: str) -> str:
    """Return where a file system is mounted that names no `mount_path`."""
    return f"{MOUNT_ROOT}/fs-{user}-{name}"


def shell_body(command: str) -> str:
    """Return what `sh -c` is to run: a leading `sh -c` or `bash -c` goes, since the shell is ours to start.

    It stays when a quoted word follows: there the inner shell takes the quotes off and runs the text, while without
    it the whole text would be looked up as the name of one program.
    """
    return command[match.end() :] if (match := _SHELL_PREFIX.match(command)) else command
