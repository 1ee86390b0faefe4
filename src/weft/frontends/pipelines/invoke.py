"""What the process of a Python step runs: find the function, call it, and show where it failed.

It is started by its path, loads nothing of Weft but what the function's module asks for, and is over when the function
returns. Exit code 0: it returned; 1: it raised, or could not be found.
"""

from __future__ import annotations

import json
import os
import sys
import time

YOUNG_S = 3.0
"""No bytecode is written while a module beside the function's has changed within so many seconds."""

TYPE_CHECKING = False  # `typing` takes time to load
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


def main() -> None:
    """Do what the variables `WEFT_CALL_0` and so on say: see `function.run_function`."""
    pieces: list[str] = []
    while (piece := os.environ.pop(f"WEFT_CALL_{len(pieces)}", None)) is not None:
        pieces.append(piece)
    call = json.loads("".join(pieces))
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    try:
        function = find(call["root"], call["function"])
        arguments = bound(function, call)
        function(**arguments)
    except Exception as error:  # noqa: BLE001 - it is the user's
        show(error)
        sys.exit(1)


def find(root: str, target: str) -> Callable[..., Any]:
    """Return the function `module:name`; its module is looked for in `root` before elsewhere."""
    import importlib

    module, _, path = target.partition(":")
    sys.path.insert(0, root)
    # Bytecode is matched to its source by size and whole seconds: after an edit within the second it would be stale.
    with os.scandir(root) as entries:
        if any(entry.name.endswith(".py") and time.time() - entry.stat().st_mtime < YOUNG_S for entry in entries):
            sys.dont_write_bytecode = True
    loaded = importlib.import_module(module)
    file = getattr(loaded, "__file__", None) or ""
    sys.argv = [file]
    found: Any = loaded
    for name in path.split("."):
        found = getattr(found, name)
    function: Callable[..., Any] = getattr(found, "function", found)  # a step is its function here
    return function


def bound(function: Callable[..., Any], call: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments: paths of artifacts, and parameters of the type that the function says."""
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
    """Return a value as the type of an argument, where the language has fewer types."""
    from pathlib import Path

    if kind == "path":
        return Path(value)
    return float(value) if kind == "float" and isinstance(value, int) else value


def show(error: BaseException) -> None:
    """Print a traceback that begins where the user's code does."""
    import traceback

    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename in (__file__, "<frozen importlib._bootstrap>"):
        trace = trace.tb_next
    traceback.print_exception(type(error), error, trace)


if __name__ == "__main__":
    main()
