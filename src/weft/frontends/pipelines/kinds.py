"""Kinds of steps: the interface for steps that are no commands.

A step names its kind and its options under `x-weft`. A `StepKind` describes a kind and lives in the package of the
kind. This front end only knows names and import paths (`STEP_KINDS`). All kinds share the frame of a step
(`body.run_step`): dependencies, loops, conditions, places of outputs, retries, the cache and reports.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from msgspec import Struct, field

from weft.frontends.pipelines.parts import ITEM, Placeholder, text_to_json
from weft.model.errors import ProgramError
from weft.model.patterns import late_pattern
from weft.model.resources import Resources
from weft.model.wording import type_of

if TYPE_CHECKING:
    from weft.frontends.pipelines.code.path_texts import PathText

FUNCTION: Final = "python"
"""The kind of a step that is a function of Python."""
STEP_KINDS: Final[dict[str, str]] = {
    FUNCTION: "weft.frontends.pipelines.function:KIND",
    "training": "weft.training.steps:KIND",
    "sql": "weft.queries.steps:KIND",
}
"""The kinds of this front end, with their import paths."""
PYTHON: Final = late_pattern(r"\.py(?::[^/]*)?$")
"""The suffix of a name of a pipeline in a Python file: `file.py`, `file.py:name`."""
Complaints: TypeAlias = "tuple[tuple[str, str], ...]"
"""Mistakes in options: the option ("" for all together) and the mistake."""


def leaves_of(options: Mapping[str, Any], folder: str, cwd: str) -> dict[str, str]:
    """Return the parts of a result's key that depend on the options alone."""
    return {f"option {name}": json.dumps(value, sort_keys=True) for name, value in options.items()}


class StepFrame(NamedTuple):
    """What steps of all kinds have: the folder that a step works in, and the names of its artifacts and parameters."""

    cwd: str
    inputs: Collection[str] = ()
    outputs: Collection[str] = ()
    parameters: Collection[str] = ()


class StepKind(Struct, frozen=True, kw_only=True):
    """The description of a kind of step.

    `program` is the target of the task body (style TASK). The `params` of its context are `options` (templates replaced
    by values), `parameters` (typed), `item` (of the loop, or None), `inputs` (lists of paths by name), `outputs` (paths
    by name; the folder exists and the path is free), `cwd`, `env` (the complete environment of a command), `name` (for
    messages), `log` and `record` (files for output and for processes), `timeout_s`, `folder` (that of the pipeline's
    file), `variables` (the part of `env` that is the step's own), `runs` (the state folder for runs that the program
    begins itself), `settings` (those of the command line), `view` for mounts, and `masked` (texts that no log may show)
    where the pipeline has secrets, `looks` (what counts of files that commands only look at: `weft.operators.looking`),
    and `traced` (whether its return value has `opened`, as that of `weft.operators.call.run_command` does, and `began`,
    in seconds since 1970, if an earlier attempt is a part of it, or `unseen`, why it is not known). The return value
    may have `spoilt`, why the result is not that of its key, and `warnings` for the user.
    The program raises TaskError on failure and ends soon after its task is cancelled. Its return value is small and
    kept.

    `options` maps names of options to whether they are required; `check` returns the mistakes in given options, whose
    texts may hold templates. `leaves` returns the dependencies of the result beside parameters, environment and inputs,
    as texts by name; its arguments are the options with names in place of artifacts, `folder`, and the folder that the
    step works in. `commands` returns, for the same arguments, the commands that the step runs: texts for sh, each with
    the folder that it starts in; their scripts belong to the key. `names` returns, for options and `folder`, paths that
    the code of the step names and that are no part of the key, each with the folder of the code. `examine`, with the
    options, `folder` and the frame of the step, looks at the files that the options name before a run begins, returns
    notes for the user, and raises WeftError for mistakes. `unseen`, with the arguments of `commands` and `settings`,
    returns why it cannot be told here what the program opens, "" if it can; without the function, results are kept
    whether or not it can. `misfit`, with options, `folder` and `settings`, returns why this machine can never run the
    step, "" if it may. `timed`: the program obeys `timeout_s`. `spreads`, with options and `folder`, says whether a
    step on a cluster runs in the process of the run, whose workers it shares for runs of its own, and not at a machine.
    """

    program: str
    options: Mapping[str, bool] = field(default_factory=dict)
    check: Callable[[Mapping[str, Any]], Complaints] = lambda options: ()
    leaves: Callable[[Mapping[str, Any], str, str], Mapping[str, str]] = leaves_of
    commands: Callable[[Mapping[str, Any], str, str], Sequence[tuple[str, str]]] = lambda options, folder, cwd: ()
    names: Callable[[Mapping[str, Any], str], Sequence[tuple[PathText, str]]] = lambda options, folder: ()
    examine: Callable[[Mapping[str, Any], str, StepFrame], Sequence[str]] = lambda options, folder, step: ()
    unseen: Callable[[Mapping[str, Any], str, str, Mapping[str, Any]], str] | None = None
    misfit: Callable[[Mapping[str, Any], str, Mapping[str, Any]], str] = lambda options, folder, settings: ""
    resources: tuple[Resources, ...] = (Resources(cpu=0),)
    timed: bool = False
    spreads: Callable[[Mapping[str, Any], str], bool] = lambda options, folder: False


class StepBody(Struct, frozen=True):
    """The body of a step of a kind: the name of the kind, its import path, and the step's options.

    `options` are in the form of `encoded`; `portable` has names in place of artifacts and of the loop's item.
    """

    name: str
    kind: str
    options: Any
    portable: Mapping[str, Any]


def load_kind(target: str) -> StepKind:
    """Import a kind from "module:name". ProgramError: the import fails, or the object is no kind."""
    module, _, name = target.partition(":")
    try:
        found = getattr(importlib.import_module(module), name)
    except Exception as error:  # an import may raise any exception
        message = f"the kind of step {target!r} cannot be imported: {type(error).__name__}: {error}"
        raise ProgramError(message, hint="See that what it needs is installed.") from error
    if not isinstance(found, StepKind):
        raise ProgramError(f"{target!r} is {type_of(found)}, not a StepKind")
    return found


# ------------------------------------------------------------------------------------------------------ options as JSON


def encoded(value: Any, filled: Callable[[str], Any]) -> Any:
    """Return options as JSON that distinguishes texts with placeholders, maps and lists.

    `filled` returns the replacement of a text: a `parts.Filled`, or a value of another type.
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
    """Return the options from the form of `encoded`; `text_of` joins a text, `item` is the item of the loop."""
    if isinstance(value, list):
        return [decoded(inner, text_of, item) for inner in value]
    if not isinstance(value, dict):
        return value
    ((shape, inner),) = value.items()
    if shape == "map":
        return {name: decoded(one, text_of, item) for name, one in inner.items()}
    return item if shape == "item" else text_of(inner)
