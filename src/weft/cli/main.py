"""The entry point: what is asked for is loaded, and no more; whatever goes wrong becomes one message and an exit code."""

from __future__ import annotations

import sys
from collections.abc import Sequence

TYPE_CHECKING = False  # `typing` would cost more than the rest of `weft --version`
if TYPE_CHECKING:
    from weft.cli.commands import Context

BROKEN_PIPE = 141


def main(argv: Sequence[str] | None = None, context: Context | None = None) -> int:
    """Run the command line in `argv` (default: that of the process) and return its exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    if words in (["--version"], ["-V"]):
        from weft._version import __version__

        print(f"weft {__version__}", file=sys.stdout if context is None else context.out)
        return 0
    from weft.cli.commands import Context, dispatch
    from weft.cli.failures import report, report_crash
    from weft.cli.interrupts import interruptible
    from weft.model.errors import WeftError

    context = context or Context()
    with interruptible(context.err) as interrupts:
        try:
            code = dispatch(words, context)
            context.out.flush()
        except WeftError as error:
            code = report(error, context, as_json="--json" in words)
        except KeyboardInterrupt:
            from weft.model.errors import RunCancelledError

            said = RunCancelledError("interrupted", hint="What was running has been stopped: weft show @last")
            report(said, context, as_json="--json" in words)
            code = interrupts.exit_code
        except BrokenPipeError:
            code = _broken_pipe()
        except Exception as error:  # noqa: BLE001 - the last place where it can be caught
            code = report_crash(error, context, as_json="--json" in words)
    return code


def _broken_pipe() -> int:
    """Whoever read our output has had enough; Python would complain about it once more on its way out."""
    import os

    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return BROKEN_PIPE
