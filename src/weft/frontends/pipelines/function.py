"""The step kind `python`: a Python function in its own process under a guardian, as commands run."""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from weft.frontends.pipelines.code import dependencies
from weft.frontends.pipelines.kinds import Complaints, StepKind
from weft.graph.task import prepares
from weft.model.errors import ProgramError
from weft.model.patterns import late_pattern
from weft.operators.call import run_command
from weft.operators.looking import code_in, looks_in
from weft.store.opened import is_of_weft, is_python, source_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from weft.frontends.pipelines.code.path_texts import PathText
    from weft.graph.task import TaskContext, TaskInput

CALL: Final = "WEFT_CALL"
"""Variables with the description of the call, `WEFT_CALL_0` and so on: Linux limits the length of each."""
_PIECE_BYTES: Final = 100 * 1024
_PASSED_ON: Final = (
    "cwd",
    "log",
    "record",
    "name",
    "timeout_s",
    "view",
    "masked",
    "programs",
    "timed",
    "apart",
    "traced",
)
_IMPORT: Final = late_pattern(r"(?:\bfrom|import)\w*[^\n(]*(?:\([^)]*\))?")
_WORD: Final = late_pattern(r"\w+")
CALLER: Final = (sys.executable, "-P", "-X", "faulthandler", str(Path(__file__).with_name("invoke.py")))
"""The words of the program that calls the function of a step."""


@prepares
def run_function(ctx: TaskContext, inputs: Mapping[str, TaskInput]) -> dict[str, Any]:
    """Call a function in a process (style TASK) and return the result of `run_command`.

    Options: `function` ("module:name"), `path` (the folder that its module is found from, relative to the pipeline's
    file), `item` (the argument for the item of the loop). Errors are those of `run_command`.
    """
    params = ctx.params
    step = copy(ctx)
    step.params = {
        "argv": [os.path.join(*params["programs"], "python"), *CALLER[1:]] if "programs" in params else CALLER,
        "env": {**params["env"], **call_variables(params)},
        **{key: params[key] for key in _PASSED_ON if key in params},
    }
    if params.get("traced"):
        step.params["looks"] = _looks(params)
    result = run_command(step, inputs)
    if result["opened"] is not None:
        result["opened"] = with_code_in_part(result["opened"], params["options"], params["folder"])
    return result


def with_code_in_part(opened: Mapping[str, Any], options: Mapping[str, Any], folder: str) -> dict[str, Any]:
    """Return what a function opened, and which of its code counts in the key, by what the function uses of it.

    These are the modules that its module imports by their names, unless another process has read them too, or code
    that counts whole has the name of one: nothing tells what is used of them then.
    """
    in_part = set(map(os.path.realpath, _modules(options, folder))).difference(
        os.path.realpath(source_of(path)) for path in opened["code_of_others"]
    )
    read = {source_of(path) for path in opened["read"] if is_python(path) and not is_of_weft(path)}
    real = {path: os.path.realpath(path) for path in read}
    whole = [path for path in read if real[path] not in in_part]
    while whole:
        imported = _names_in_imports(whole.pop())
        used = [path for path in read if real[path] in in_part and _module_name(real[path]) in imported]
        in_part.difference_update(real[path] for path in used)
        whole += used
    return {**opened, "used_in_part": [path for path in read if real[path] in in_part]}


def _names_in_imports(path: str) -> set[str]:
    """Return the words of all imports in the text of a script; none if it cannot be read."""
    with suppress(OSError):
        text = os.fsdecode(Path(path).read_bytes())
        return {word for one in _IMPORT.findall(text) for word in _WORD.findall(one)}
    return set()


def _module_name(path: str) -> str:
    """Return the last part of the name by which others import a file."""
    folder, name = os.path.split(path)
    stem = name.removesuffix(".py")
    return os.path.basename(folder) if stem == "__init__" else stem


def _modules(options: Mapping[str, Any], folder: str) -> list[str]:
    """Return the files of the local modules that a function's module imports, with its own; [] if that is not told."""
    module = options["function"].partition(":")[0]
    with suppress(ProgramError):  # the call tells it
        return dependencies.loaded_files((_root(options, folder),), None, f"import {module}", "__main__")
    return []


def _looks(params: Mapping[str, Any]) -> int:
    """Return what counts of the files that the modules of a function only look at."""
    looks: int = params["looks"]
    return max(looks, looks_in(code_in(_modules(params["options"], params["folder"]))))


def call_variables(params: Mapping[str, Any]) -> dict[str, str]:
    """Return the variables that describe the call of a step's function to `CALLER`; for `params` see `StepKind`."""
    options = params["options"]
    call = {
        "root": os.path.join(params["folder"], options.get("path") or "."),
        "function": options["function"],
        "parameters": params["parameters"],
        "inputs": params["inputs"],
        "outputs": params["outputs"],
        "item": {options["item"]: params["item"]} if options.get("item") else {},
        **({"site": _site()} if "programs" in params else {}),
    }
    text = json.dumps(call)
    return {f"{CALL}_{at // _PIECE_BYTES}": text[at : at + _PIECE_BYTES] for at in range(0, len(text), _PIECE_BYTES)}


def _site() -> list[str]:
    """Return the folders of Weft and of what it needs, for the Python of another environment."""
    import msgspec

    return list(dict.fromkeys([str(Path(__file__).parents[3]), str(Path(msgspec.__file__).parents[1])]))


def check(options: Mapping[str, Any]) -> Complaints:
    """Return the mistakes in the options of such a step."""
    found = []
    for name, value in options.items():
        if not isinstance(value, str) or "{{" in value:
            found.append((name, "must be text, without templates"))
        elif name == "function" and not all(part.isidentifier() for part in value.partition(":")[2].split(".")):
            found.append((name, "must be of the form module:function"))
    return tuple(found)


def leaves(options: Mapping[str, Any], folder: str, cwd: str) -> dict[str, str]:
    """Return the code digests of the function and the argument for the item of a loop."""
    found = dependencies.leaves(_root(options, folder), options["function"])
    return {**found, "option item": options["item"]} if options.get("item") else found


def names(options: Mapping[str, Any], folder: str) -> list[tuple[PathText, str]]:
    """Return the paths that the code of the function names, each with the folder of its module."""
    with suppress(ProgramError):  # another check reports it
        return dependencies.paths_read(_root(options, folder), options["function"])
    return []


def _root(options: Mapping[str, Any], folder: str) -> str:
    """Return the folder that the module of the function is found from."""
    return os.path.normpath(os.path.join(folder, options.get("path") or "."))


KIND: Final = StepKind(
    program=f"{__name__}:run_function",
    options={"function": True, "path": False, "item": False},
    check=check,
    leaves=leaves,
    names=names,
    timed=True,
)
