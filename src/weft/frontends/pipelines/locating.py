"""The module and the name under which another process finds the function of a step."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from weft.frontends.pipelines.declaring import (
    StepFunction,
)
from weft.model.errors import DefinitionError


def located(step: StepFunction, near: Sequence[str] = ()) -> tuple[str, str]:
    """Return the folder that the module of a step's function is found from, and `module:name`.

    `near` are modules that may bind the function if its own module does not. DefinitionError: another process would not
    find the function.
    """
    for module in dict.fromkeys((step.function.__module__, *near)):
        loaded = sys.modules.get(module)
        name = _name_in(loaded, step)
        if loaded is not None and name:
            file = getattr(loaded, "__file__", None)
            if file is None or not os.path.isfile(file):
                message = f"{step.where}: {step.function.__name__} is in no file, and its process could not find it"
                raise DefinitionError(message, hint="Put it into a module; weft.command needs none.")
            spec = getattr(loaded, "__spec__", None)
            own = module if module != "__main__" else "" if spec is None else spec.name
            root, found = place_of_module(file, own)
            return root, f"{found}:{name}"
    message = (
        f"{step.where}: {step.function.__qualname__} has no name at the top of a module, so its process cannot find it"
    )
    raise DefinitionError(message, hint="Define it, or give what makes it a name, at the top of its module.")


def place_of_module(file: str, module: str = "") -> tuple[str, str]:
    """Return the import folder and the module name of a file; `module` is its name if it has one."""
    path = Path(os.path.abspath(file))
    path = path.parent if path.stem == "__init__" else path.with_suffix("")
    parts = tuple(module.split("."))
    if not module or path.parts[-len(parts) :] != parts:  # it was loaded by its path, or as a script
        above = path.parent
        while (above / "__init__.py").is_file():
            above = above.parent
        parts = path.relative_to(above).parts
    return str(path.parents[len(parts) - 1]), ".".join(parts)


def _name_in(module: Any, step: StepFunction) -> str:
    """Return the name that binds a step, or a variant of it with other options, at the top of a module."""
    if module is None:
        return ""
    for name in (step.function.__name__, *vars(module)):
        found = vars(module).get(name)
        if isinstance(found, StepFunction) and found.function is step.function:
            return str(name)
    return ""
