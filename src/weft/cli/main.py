"""The entry point: loads what is asked for and no more; what goes wrong becomes one message and an exit code."""

from __future__ import annotations

import sys
from collections.abc import Sequence

TYPE_CHECKING = False  # `typing` would cost more than the rest of `weft --version`
if TYPE_CHECKING:
    from typing import NoReturn, TextIO

    from weft.cli.context import CommandContext

BROKEN_PIPE = 141
CANNOT_WRITE = 74
GARBAGE = 100_000
"""So many new objects make the collector look for cycles among them; loading modules alone makes half as many."""


def command() -> NoReturn:
    """Be the command `weft`: end with the code of `main`, without taking the interpreter apart, which takes 40 ms."""
    import atexit
    import os

    code = 0
    while (fd := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass  # whoever closes one of the first three would have what is opened next in its place
    os.close(fd)
    sys.stdout, sys.stderr = _written_to(sys.stdout, 1), _written_to(sys.stderr, 2)

    def leave() -> None:
        failed = 0
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except OSError as error:
                if stream is sys.stdout:  # what could not be said on stderr changes nothing
                    failed = BROKEN_PIPE if isinstance(error, BrokenPipeError) else CANNOT_WRITE
        os._exit(code or failed)

    atexit.register(leave)  # what is registered first is called last: threads have ended by then, and all is undone
    try:
        code = main()
    except BaseException:
        atexit.unregister(leave)
        raise
    sys.exit(code)


def _written_to(stream: TextIO | None, fd: int) -> TextIO:
    """Return a stream that is there and has a buffer, so that its errors come when it is flushed."""
    if stream is None:
        return open(fd, "w", closefd=False, encoding="utf-8", errors="backslashreplace")
    if stream.buffer.__class__.__name__ != "FileIO":
        return stream
    return open(fd, "w", closefd=False, encoding=stream.encoding, errors=stream.errors)  # as of PYTHONUNBUFFERED


def main(argv: Sequence[str] | None = None, context: CommandContext | None = None) -> int:
    """Run the command line in `argv` (default: that of the process) and return its exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    if words in (["--version"], ["-V"]):
        from weft._version import __version__

        print(f"weft {__version__}", file=sys.stdout if context is None else context.out)
        return 0
    if context is None:
        import gc

        gc.set_threshold(GARBAGE)
    from weft.cli.interrupts import interruptible

    with interruptible(sys.stderr if context is None else context.err) as interrupts:
        try:
            return _run(words, context)
        except KeyboardInterrupt:
            if context is None:  # nor wait for a thread that does not end
                interrupts.leave()
            return interrupts.exit_code


def _run(words: list[str], context: CommandContext | None) -> int:
    from pathlib import Path

    from weft.cli.commands import dispatch
    from weft.cli.context import CommandContext, drop_output
    from weft.cli.failures import report, report_crash
    from weft.model.errors import NotFoundError, RunCancelledError, WeftError

    as_json = "--json" in words
    try:
        context = context or CommandContext()
    except FileNotFoundError:
        gone = NotFoundError("the folder that you are in has been removed", hint="Go to another one, with cd.")
        return report(gone, CommandContext(cwd=Path("/")), as_json=as_json)
    try:
        code = dispatch(words, context)
        context.out.flush()
    except WeftError as error:
        code = report(error, context, as_json=as_json)
    except KeyboardInterrupt:
        report(RunCancelledError("interrupted", hint=context.hint), context, as_json=as_json)
        raise
    except BrokenPipeError:
        drop_output()  # whoever read it has had enough
        code = BROKEN_PIPE
    except OSError as error:
        # Of a file that is open already the system does not know the name; all others are opened by name.
        if error.filename is not None or not _cannot_write(context.out):
            code = report_crash(error, context, as_json=as_json)
        else:
            context.say(f"error: the output cannot be written: {error.strerror}")
            drop_output()
            code = CANNOT_WRITE
    except Exception as error:  # noqa: BLE001
        code = report_crash(error, context, as_json=as_json)
    return code


def _cannot_write(out: TextIO) -> bool:
    """Whether what was printed cannot be written, such as to a full disk."""
    try:
        out.flush()
    except OSError:
        return True
    return False
