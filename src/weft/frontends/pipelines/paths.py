"""Paths of artifacts, the environment of a step, and the text of its command."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, TypeVar

from weft.frontends.pipelines.templates import LOOP_ARGUMENT, RUN_ID, STEP_NAME, USER_NAME
from weft.model.patterns import late_pattern

if TYPE_CHECKING:
    from collections.abc import Mapping

_Text = TypeVar("_Text")

INPUT_PREFIX = "PF_INPUT_ARTIFACT_"
OUTPUT_PREFIX = "PF_OUTPUT_ARTIFACT_"
WORK_DIR = "PF_WORK_DIR"
ENTRY_POINTS, POST_PROCESS = "entry_points", "post_process"
MOUNT_ROOT = "/home/paddleflow/storage/mnt"

_SHELL_PREFIX = late_pattern(r"\s*(?:bash|sh)\s+-c(?:\s+|$)(?!['\"])")


def runtime_name(pipeline: str, step: str, seq: int = 0, part: str = ENTRY_POINTS) -> str:
    """Return the name of one execution of a step; `seq` counts the items of a loop and appears from the second item on.

    `step` begins with the names of the dags around it, each with the number of its own item: `dag-1.step`.
    """
    name = f"{pipeline}.{part}.{step}"
    return f"{name}-{seq}" if seq else name


def step_folder(pipeline: str, step: str, seq: int = 0, part: str = ENTRY_POINTS) -> str:
    """Return the name of the folder of a step's outputs: step, sequence number and the md5 of its runtime name."""
    return f"{step.rpartition('.')[2]}-{seq}-{digest_of(runtime_name(pipeline, step, seq, part))}"


def digest_of(name: str) -> str:
    """Return the md5 of a name in hexadecimal digits."""
    return hashlib.md5(name.encode(), usedforsecurity=False).hexdigest()


def artifact_path(
    base: str, run_id: str, pipeline: str, step: str, artifact: str, seq: int = 0, part: str = ENTRY_POINTS
) -> str:
    """Return the path of an output under `base`, the folder of the main file system's `sub_path`."""
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
    """Return a step's own variables together with those of every step; the latter win.

    A value that is known only later may be another object than a string; it stays unchanged.
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
    """Return the mount path of a file system without a `mount_path`."""
    return f"{MOUNT_ROOT}/fs-{user}-{name}"


def shell_body(command: str) -> str:
    """Return the text for `sh -c`, without a leading `sh -c` or `bash -c`, since Weft starts the shell.

    The prefix stays if a quoted word follows: the inner shell then removes the quotes and runs the text, while without
    the prefix the whole text would be taken for the name of one program.
    """
    return command[match.end() :] if (match := _SHELL_PREFIX.match(command)) else command
