"""The main program of a Python step's process: imports the function, calls it, and shows the place of an error.

The guardian starts it by its path. It loads only the modules of Weft that the function's module imports, and ends when
the function returns. Exit code 0: the function returned; 1: it raised, or was not found.
"""

from __future__ import annotations

import json
import os
import sys
import time

YOUNG_S = 3.0
"""Seconds since the last change of a module beside the function's in which no bytecode is written."""

TYPE_CHECKING = False  # `typing` takes time to load
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


def main() -> None:
    """Call the function that the variables `WEFT_CALL_0` and so on describe: see `function.run_function`."""
    pieces: list[str] = []
    while (piece := os.environ.pop(f"WEFT_CALL_{len(pieces)}", None)) is not None:
        pieces.append(piece)
    call = json.loads("".join(pieces))
    sys.path += call.get("site", [])  # behind the packages of its own environment
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    try:
        function = find(call["root"], call["function"])
        arguments = bound(function, call)
        function(**arguments)
    except Exception as error:  # noqa: BLE001 - the function of the user
        show(error)
        sys.exit(1)


IMPORTING = "WEFT_IMPORTING"
"""The variable that is set while a step or `weft run` imports the module of a pipeline: no run may start then.

Without that rule a module that runs its own pipeline when it is imported would start runs without end.
"""


def find(root: str, target: str) -> Callable[..., Any]:
    """Return the function `module:name`; `root` precedes all other folders for its module."""
    import importlib

    module, _, path = target.partition(":")
    sys.path.insert(0, root)
    # Bytecode is matched to its source by size and whole seconds: after a second edit within one it would be stale.
    with os.scandir(root) as entries:
        if any(entry.name.endswith(".py") and time.time() - entry.stat().st_mtime < YOUNG_S for entry in entries):
            sys.dont_write_bytecode = True
    os.environ[IMPORTING] = target
    try:
        loaded = importlib.import_module(module)
    finally:
        del os.environ[IMPORTING]
    file = getattr(loaded, "__file__", None) or ""
    sys.argv = [file]
    found: Any = loaded
    for name in path.split("."):
        found = getattr(found, name)
    function: Callable[..., Any] = getattr(found, "function", found)  # a step stands for its function here
    return function


def bound(function: Callable[..., Any], call: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments: paths of artifacts, and parameters converted to the annotated types."""
    from pathlib import Path

    from weft.frontends.pipelines.declaring import TAKEN_IN, Signature

    signature = Signature.of(function, any_value=True)
    found: dict[str, Any] = {}
    for name, paths in call["inputs"].items():
        if signature.inputs.get(name):
            found[name] = [Path(path) for path in paths]
        elif len(paths) == 1:
            found[name] = Path(paths[0])
        else:
            raise TypeError(f"input {name} is {len(paths)} files: annotate it list[weft.Input]")
    found |= {name: Path(path) for name, path in call["outputs"].items()}
    for name, value in {**call["parameters"], **call["item"]}.items():
        found[name] = typed(value, signature.parameters.get(name, ""))
    return {name: value for name, value in found.items() if not name.endswith(TAKEN_IN)}


def typed(value: Any, kind: str) -> Any:
    """Return a value in the type of an argument, since the language has fewer types than Python."""
    from pathlib import Path

    if kind == "path":
        return Path(value)
    return float(value) if kind == "float" and isinstance(value, int) else value


def show(error: BaseException) -> None:
    """Print a traceback that begins in the user's code."""
    import traceback

    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename in (__file__, "<frozen importlib._bootstrap>"):
        trace = trace.tb_next
    traceback.print_exception(type(error), error, trace)


if __name__ == "__main__":
    main()
