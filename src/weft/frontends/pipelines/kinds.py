"""Kinds of steps: the door by which something else than a command runs in a step.

A step names its kind and its options under `x-weft`. What a kind is stands in a `StepKind`, which lives where the kind
lives; this front end knows of it only a name and where to import it from, and whoever reads a pipeline says which there
are (`wiring.STEP_KINDS`). The frame of a step is the same for all (`body.run_step`): dependencies, loops, conditions,
the places of outputs, retries, the cache, and what is told of it.
"""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from msgspec import Struct, field

from weft.frontends.pipelines.parts import ITEM, Placeholder, text_to_json
from weft.model.errors import ProgramError
from weft.model.resources import Resources

STEP_KINDS: Final[dict[str, str]] = {"python": "weft.frontends.pipelines.function:KIND"}
"""The kinds that this front end brings along, and where each is imported from."""
PYTHON: Final = re.compile(r"\.py(?::[^/]*)?$")
"""How what names a pipeline ends if it stands in a Python file: `file.py`, `file.py:name`."""
Complaints: TypeAlias = "tuple[tuple[str, str], ...]"
"""What is wrong with options: the name of each ("" for all together), and what is wrong with it."""


def leaves_of(options: Mapping[str, Any], folder: str) -> dict[str, str]:
    """Return what a result depends on that depends on all options and on nothing else."""
    return {f"option {name}": json.dumps(value, sort_keys=True) for name, value in options.items()}


class StepKind(Struct, frozen=True, kw_only=True):
    """What a kind of step is.

    `program` is the target of what runs (style TASK). The `params` of its context are `options` (values in the place of
    templates), `parameters` (typed), `item` (of the loop; None without one), `inputs` (names to lists of paths),
    `outputs` (names to paths; the folder is there, and nothing lies at the path), `cwd`, `env` (all of the environment
    that a command would have), `name` (for people), `log` and `record` (files for what is printed, and for processes),
    `timeout_s`, `folder` (that of the pipeline's file), and `view` where folders are to lie at mount paths. It raises
    TaskError if it fails, and ends soon once its task is cancelled. What it returns is kept with the run, and is small.

    `options` maps names of options to whether they must be given; `check` is asked what is wrong with those given,
    whose texts may hold templates. `leaves` says what the result depends on beside parameters, environment and inputs,
    as names and texts; it is asked with the options, names in the place of artifacts, and with `folder`.
    `timed`: the program keeps to `timeout_s` itself.
    """

    program: str
    options: Mapping[str, bool] = field(default_factory=dict)
    check: Callable[[Mapping[str, Any]], Complaints] = lambda options: ()
    leaves: Callable[[Mapping[str, Any], str], Mapping[str, str]] = leaves_of
    resources: tuple[Resources, ...] = (Resources(cpu=0),)
    timed: bool = False


class StepBody(Struct, frozen=True):
    """What runs in a step of a kind: its name, where it is imported from, and the options that the step gives.

    `options` are in the form of `encoded`; in `portable` names stand in the place of artifacts and of the loop's item.
    """

    name: str
    kind: str
    options: Any
    portable: Mapping[str, Any]


def load_kind(target: str) -> StepKind:
    """Import a kind from "module:name". ProgramError: it cannot be, or is none."""
    module, _, name = target.partition(":")
    try:
        found = getattr(importlib.import_module(module), name)
    except Exception as error:  # an import may raise anything
        message = f"the kind of step {target!r} cannot be imported: {type(error).__name__}: {error}"
        raise ProgramError(message, hint="See that what it needs is installed.") from error
    if not isinstance(found, StepKind):
        raise ProgramError(f"{target!r} is a {type(found).__name__}, not a StepKind")
    return found


# ------------------------------------------------------------------------------------------------------ options as JSON


def encoded(value: Any, filled: Callable[[str], Any]) -> Any:
    """Return options as JSON that tells texts with slots, and maps, from lists.

    `filled` gives for a text what is to stand there: a `parts.Filled`, or a value of another type.
    """
    if isinstance(value, Mapping):
        return {"map": {name: encoded(inner, filled) for name, inner in value.items()}}
    if isinstance(value, list | tuple):
        return [encoded(inner, filled) for inner in value]
    if not isinstance(value, str):
        return value
    found = filled(value)
    if isinstance(found, tuple) and any(isinstance(part, Placeholder) for part in found):
        return {"item": ""} if found == (Placeholder(ITEM),) else {"text": text_to_json(found)}
    return found


def decoded(value: Any, text_of: Callable[[Any], str], item: Any) -> Any:
    """Return the options of a form made by `encoded`; `text_of` joins a text, `item` is that of the loop."""
    if isinstance(value, list):
        return [decoded(inner, text_of, item) for inner in value]
    if not isinstance(value, dict):
        return value
    ((shape, inner),) = value.items()
    if shape == "map":
        return {name: decoded(one, text_of, item) for name, one in inner.items()}
    return item if shape == "item" else text_of(inner)
