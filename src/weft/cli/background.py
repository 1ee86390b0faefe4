"""What a process in the background runs: a pipe to tell that its run has begun, and a command line."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence

from weft.cli.context import Context
from weft.cli.detached import Detached, Started, said_so_far
from weft.cli.main import main


def run(words: Sequence[str]) -> int:
    """Carry a command line out, and return its exit code."""
    detached = Detached(int(words[0]))
    os.set_inheritable(detached.pipe, False)
    context = Context(out=io.StringIO(), err=io.StringIO(), begun=detached.begun)
    code = main(words[1:], context)
    detached.tell(Started("", *said_so_far(context), code))
    return code


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
