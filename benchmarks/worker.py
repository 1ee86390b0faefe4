"""The process in which cases run: `python -m benchmarks.worker MODULE`.

It answers each line of its input, the JSON text of a case's name, with one line: an object with the figures, or with
`error`. What cases print goes to the error stream.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
import traceback
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import IO, Any

Cases = Mapping[str, Callable[[], Mapping[str, float]]]


def serve(cases: Cases, requests: IO[str], answers: IO[str]) -> None:
    """Answer requests until there are none."""
    for line in requests:
        answers.write(json.dumps(_answer(cases, json.loads(line))) + "\n")
        answers.flush()


def _answer(cases: Cases, name: str) -> dict[str, Any]:
    try:
        case = cases[name]
        gc.collect()
        return dict(case())
    except Exception as error:  # noqa: BLE001 - the other side says so, and in whose case
        traceback.print_exc()
        return {"error": f"{type(error).__name__}: {error}"}
    finally:
        sys.stdout.flush()


def main(module: str) -> None:
    """Serve the cases of a module over the standard streams."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever asked ends us
    with os.fdopen(os.dup(1), "w") as answers:
        os.dup2(2, 1)
        serve(import_module(module).CASES, sys.stdin, answers)


if __name__ == "__main__":
    main(sys.argv[1])
