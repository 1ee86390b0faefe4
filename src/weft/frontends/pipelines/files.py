"""Pipelines in Python files: import the file, select the pipeline, build it."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import traceback
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from weft.documents.problems import choices
from weft.frontends.pipelines.building import BuiltPipeline, build_with, profiles_of
from weft.frontends.pipelines.declaring import PipelineBuilder
from weft.frontends.pipelines.invoke import IMPORTING
from weft.frontends.pipelines.kinds import STEP_KINDS
from weft.frontends.pipelines.locating import place_of_module
from weft.model.errors import DefinitionError, NotFoundError, UsageError, WeftError
from weft.model.suggestions import nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import ModuleType

Made = TypeVar("Made")


def build_file(
    path: str, given: Mapping[str, object], kinds: Mapping[str, str] = STEP_KINDS
) -> tuple[BuiltPipeline, str, dict[str, object]]:
    """Build the pipeline of `file.py` or `file.py:name`; return it, the file, and the parameters of its steps.

    Output of the file goes to stderr. NotFoundError: the file or the pipeline is missing. UsageError: the file has
    several pipelines and no name is given. DefinitionError: the file raises, or builds an invalid pipeline.
    """
    return _of_module(path, lambda blueprint: build_with(blueprint, given, kinds))


def declared_profiles(path: str) -> tuple[dict[str, Any], str]:
    """Return the profiles of the pipeline of `file.py` or `file.py:name` as plain values, and the file.

    Errors as of `build_file`.
    """
    found, file, _ = _of_module(path, lambda blueprint: (profiles_of(blueprint), {}))
    return found, file


def declared_arguments(path: str) -> tuple[str, ...]:
    """Return the arguments of the function of a pipeline, `file.py` or `file.py:name`. Errors as of `build_file`."""
    return _of_module(path, lambda blueprint: (tuple(blueprint.signature.order), {}))[0]


def _of_module(
    path: str, use: Callable[[PipelineBuilder], tuple[Made, dict[str, object]]]
) -> tuple[Made, str, dict[str, object]]:
    """Return what `use` makes of the pipeline of a Python file, with the file in between. Errors as of `build_file`."""
    file, _, name = path.rpartition(":") if not path.endswith(".py") else (path, "", "")
    if not os.path.isfile(file):
        raise NotFoundError(f"there is no file {file}", hint="Name the file of a pipeline: YAML, JSON or Python.")
    with redirect_stdout(sys.stderr):
        try:
            module = _imported(file)
            made, rest = use(_chosen(module, file, name))
        except WeftError:
            raise
        except (Exception, SystemExit) as error:
            raise _failed(file, error) from error
    return made, file, rest


def _imported(file: str) -> ModuleType:
    root, name = place_of_module(file)
    loaded = sys.modules.get(name)
    if loaded is not None and os.path.realpath(getattr(loaded, "__file__", None) or "") == os.path.realpath(file):
        return loaded
    if loaded is not None or "." in Path(file).stem:
        message = f"{file} cannot be imported as {name}"
        raise DefinitionError(message, hint="Another module has that name, or it holds a dot: rename the file.")
    if root not in sys.path:
        sys.path.insert(0, root)
    importlib.invalidate_caches()
    os.environ[IMPORTING] = file
    try:
        return importlib.import_module(name)
    finally:
        del os.environ[IMPORTING]


def _chosen(module: ModuleType, file: str, name: str) -> PipelineBuilder:
    found = {key: value for key, value in vars(module).items() if isinstance(value, PipelineBuilder)}
    if name:
        if name not in found:
            near = nearest(name, found)
            hint = f"Did you mean {file}:{near}?" if near else f"It has: {choices(found)}"
            raise NotFoundError(f"{file} has no pipeline {name!r}", hint=hint)
        return found[name]
    own = {key: value for key, value in found.items() if value.function.__module__ == module.__name__}
    if not own:
        raise NotFoundError(f"{file} has no pipeline", hint="Decorate a function with weft.pipeline.")
    if len(own) > 1:
        hint = f"Name one: {file}:{next(reversed(own))}"
        raise UsageError(f"{file} has several pipelines: {choices(own)}", hint=hint)
    return next(iter(own.values()))


def _failed(file: str, error: BaseException) -> DefinitionError:
    """Return the error of a file that raised, with the line in it or in a module that it imports."""
    frames: list[Any] = traceback.extract_tb(error.__traceback__)
    own = os.path.realpath(file)
    inside = [frame for frame in frames if os.path.realpath(frame.filename) == own]
    if isinstance(error, SyntaxError) and error.filename:
        place = f"{error.filename}:{error.lineno}"
    else:
        place = f"{file}:{inside[-1].lineno}" if inside else file
    said = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    deepest = frames[-1] if frames else None
    hint = f"Raised at {deepest.filename}:{deepest.lineno}" if deepest is not None and deepest not in inside else ""
    return DefinitionError(f"{place}: {said}", hint="" if isinstance(error, SyntaxError) else hint)
