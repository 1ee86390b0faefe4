"""The main module of a background process. Its arguments: a pipe for the start message, and a command line."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence

from weft.cli.context import CommandContext
from weft.cli.detached import DetachedRun, output_so_far
from weft.cli.main import main
from weft.runs.background import StartedRun
from weft.store.state import DRIVER_OF_PROCESS, use_driver


def run(words: Sequence[str]) -> int:
    """Run a command line and return its exit code."""
    detached = DetachedRun(int(words[0]))
    os.set_inheritable(detached.pipe, False)
    if driver := os.environ.pop(DRIVER_OF_PROCESS, ""):  # steps that begin runs themselves have none
        use_driver(driver)
    context = CommandContext(out=io.StringIO(), err=io.StringIO(), begun=detached.begun)
    code = main(words[1:], context)
    detached.send(StartedRun("", *output_so_far(context), code))
    return code


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
