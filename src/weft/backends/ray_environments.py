"""The environments that Ray makes on its machines for one session: packages of a requirements file, and a folder."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from weft.model.errors import CapacityError, UsageError

if TYPE_CHECKING:
    from weft.model.clusters import ClusterOptions

_OF_FILES: Final = re.compile(r"\s*(-r|--requirement|-c|--constraint|-e|--editable)\b")
_OUTPUT: Final = re.compile(r"Last \d+ lines of stdout:")
_PIP: Final = re.compile(r"'-m', 'pip', 'install'")
"""The command that installs the packages of the file, as Ray names it when it has failed."""
_SHOWN: Final = 8
"""The most lines of pip in an error."""


def packages(options: ClusterOptions) -> dict[str, Any]:
    """Return Ray's description of the packages of the requirements file, empty without one.

    UsageError: the file cannot be read, has no requirement, or refers to another file, which no machine has.
    """
    if options.requirements is None:
        return {}
    path = os.fspath(options.requirements)
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        hint = "Name a requirements file of pip, with a line such as scikit-learn==1.7."
        raise UsageError(f"the requirements file {path} cannot be read: {error.strerror}", hint=hint) from error
    except UnicodeDecodeError as error:
        raise UsageError(f"the requirements file {path} is no text in UTF-8", hint="Save it as UTF-8.") from error
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        if _OF_FILES.match(line):
            raise UsageError(
                f"{path}:{number}: {line.strip()} refers to a file of this machine",
                hint="The other machines do not have it: write its lines into this file; `pip freeze` lists packages.",
            )
        if line.strip() and not line.lstrip().startswith("#"):
            found.append(line.rstrip())
    if not found:
        raise UsageError(f"the requirements file {path} has no requirement", hint="Write one on each line.")
    return {"pip": {"packages": found}}


def folder(options: ClusterOptions) -> dict[str, Any]:
    """Return Ray's description of the working folder, empty without one. UsageError: there is no such folder."""
    if options.working_dir is None:
        return {}
    path = os.path.abspath(os.fspath(options.working_dir))
    if not os.path.isdir(path):
        raise UsageError(f"the working folder {path} is no folder", hint="Name the folder of your program.")
    return {"working_dir": path}


def failure(options: ClusterOptions, machine: str, text: str) -> UsageError | CapacityError:
    """Return the error for an environment that Ray cannot make on a machine, from what Ray says about it.

    The file is at fault only where pip has failed: Ray makes a copy of the virtual environment of the machine first.
    """
    if "install virtualenv" in text or "No module named virtualenv" in text:
        return UsageError(
            f"machine {machine} lacks the package virtualenv, by which Ray installs requirements",
            hint="Install it beside Ray on each machine: pip install virtualenv",
        )
    lines = [line.strip() for line in _OUTPUT.split(text)[-1].splitlines() if line.strip()]
    told = [line for line in lines if line.lower().startswith(("error:", "hint:"))] or lines[-_SHOWN:]
    shown = "\n".join(f"    {line}" for line in told[:_SHOWN])
    if not _PIP.search(text):
        return CapacityError(
            f"Ray cannot make the environment for {options.requirements} on machine {machine}:\n{shown}",
            hint="The file is not at fault: see runtime_env_setup*.log of Ray there, and try again.",
        )
    return UsageError(
        f"the packages of {options.requirements} cannot be installed on machine {machine}:\n{shown}",
        hint="Correct the file, and try it first: python -m pip install --dry-run -r "
        f"{options.requirements}; the machine must reach the package index.",
    )
