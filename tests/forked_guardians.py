"""Guardians of parts that need not load all components: their pool is a fork of a process that has loaded them.

A prepared process (`tests.prepared`) that loads this module gives all its forks such a pool, if their environment names
the socket of the process with the components. To load those takes a second of CPU, for each server of a party.
"""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from weft.operators.guardians import LoadedPool, lives_here
from weft.worker import guardian

FORKS = "TESTS_COMPONENTS"
"""The variable with the path of the socket of the process that has loaded the components."""


class ForkedPool(LoadedPool):
    """A pool whose process is a fork, but for the first one after a kill of that."""

    def _start(self, arguments: Sequence[str], stdin: int) -> Any:
        from tests.prepared import ask_at

        if FORKS not in os.environ:
            return super()._start(arguments, stdin)
        path, (_, env) = os.environ[FORKS], self._command()
        with open(os.devnull, "w") as nowhere:
            out = nowhere.fileno()
            return ask_at(path, arguments, Path("/"), env, out, out, stdin, program=__file__)


def main() -> None:
    """Be the pool of the process that has asked, which is not the parent here."""
    owner = int(sys.argv[-1])
    os.getppid = lambda: owner
    os.setsid()
    guardian.main()


if __name__ == "__main__":
    main()
else:
    from weft.parties import parts

    parts._POOL = lives_here(ForkedPool(parts.LOADED, parts._environment))  # type: ignore[misc]
