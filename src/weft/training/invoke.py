"""The main program of a replica that runs a Python function: loads the pickled call, and keeps the value.

It is started by its path with the Python of the program that submitted the job. Exit code 0: the function returned and
its value is kept; 1: it raised, or its value cannot be pickled.
"""

from __future__ import annotations

import os
import pickle
import sys

from weft.frontends.training.reporting import FUNCTION, VALUE

INVOKED = "WEFT_INVOKED"
"""The variable that is set while a replica loads its function: no job may start then."""


def main() -> None:
    """Call the function that the file of the variable WEFT_FUNCTION has."""
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    path = os.environ[VALUE]
    with open(os.environ[FUNCTION], "rb") as file:
        folders, call = pickle.load(file)
    sys.path.extend(folder for folder in folders if folder not in sys.path)
    os.environ[INVOKED] = path
    try:
        function, args, named = pickle.loads(call)
    finally:
        del os.environ[INVOKED]
    value = function(*args, **named)
    from weft.store.codec import dumps_by_value

    data = dumps_by_value(value, protocol=5)
    new = f"{path}.{os.getpid()}"
    with open(new, "wb") as file:
        file.write(data)
    os.replace(new, path)


if __name__ == "__main__":
    main()
