"""The entry point: imports only the modules that a command needs, and turns errors into one message and an exit
code.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence

TYPE_CHECKING = False  # `typing` would cost more than the rest of `weft --version`
if TYPE_CHECKING:
    from typing import Any, NoReturn, TextIO

    from weft.cli.context import CommandContext
    from weft.model.errors import WeftError

BROKEN_PIPE = 141
CANNOT_WRITE = 74
GARBAGE = 100_000
"""The number of new objects that starts a collection of cycles; loading modules alone makes half as many."""
_READ_FILES = frozenset({"run", "plan", "sweep"})
"""The commands that read a file in YAML in most cases."""


def command() -> NoReturn:
    """Run the command `weft` and exit with the code of `main`. Skipping the interpreter's clean-up saves 40 ms."""
    import atexit
    import os
    import signal
    from contextlib import suppress

    code: int | None = None
    while (fd := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass  # a closed standard stream would otherwise give its descriptor to the next file that is opened
    os.close(fd)
    sys.stdout, sys.stderr = _written_to(sys.stdout, 1), _written_to(sys.stderr, 2)

    def leave() -> None:
        failed = 0
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except OSError as error:
                if stream is sys.stdout:  # a message lost on stderr does not change the exit code
                    failed = BROKEN_PIPE if isinstance(error, BrokenPipeError) else CANNOT_WRITE
        os._exit(code or failed)

    def leave_at_once(number: int, _: object) -> None:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, RuntimeError, ValueError):  # the signal may have come in the middle of a flush
                stream.flush()
        os._exit(128 + number if code is None else code)

    for number in (signal.SIGINT, signal.SIGTERM):  # before and after the handlers of `main`
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, leave_at_once)
    atexit.register(leave)  # the first function registered is called last, after threads and other clean-up
    try:
        code = main()
    except BaseException:
        atexit.unregister(leave)
        raise
    sys.exit(code)


def _written_to(stream: TextIO | None, fd: int) -> TextIO:
    """Return a stream with a buffer, so that write errors appear at the flush; a missing stream is opened.

    Letters that its encoding lacks are written as escapes.
    """
    if stream is None:
        return open(fd, "w", closefd=False, encoding="utf-8", errors="backslashreplace")
    errors = "backslashreplace" if stream.errors == "strict" else stream.errors
    if stream.buffer.__class__.__name__ != "FileIO":
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=errors)
        return stream
    # PYTHONUNBUFFERED makes a stream without a buffer.
    return open(fd, "w", closefd=False, encoding=stream.encoding, errors=errors)


def main(argv: Sequence[str] | None = None, context: CommandContext | None = None) -> int:
    """Run the command line `argv` (default: that of the process) and return its exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    if words in (["--version"], ["-V"]):
        from weft._version import __version__

        print(f"weft {__version__}", file=sys.stdout if context is None else context.out)
        return 0
    if context is None:
        import gc

        from weft.cli.finding import find_known_modules

        gc.set_threshold(GARBAGE)
        find_known_modules()
        _load_libraries(words)
    from weft.cli.interrupts import interruptible

    with interruptible(sys.stderr if context is None else context.err) as interrupts:
        try:
            return _run(words, context)
        except KeyboardInterrupt:
            if context is None:  # without waiting for threads that do not end
                interrupts.leave()
            return interrupts.exit_code


def _load_libraries(words: Sequence[str]) -> None:
    """Load `msgspec` without `typing_extensions`, which takes as long as the rest of it: all that it needs from there
    it finds in `typing` too. Nor does it need the expressions of the modules that it loads, nor PyYAML most of its own.
    Most commands need neither what `urllib.parse` and `subprocess` load for addresses and for text, nor what `msgspec`
    loads to write JSON schemas.
    """
    from weft.model.patterns import late_modules, late_patterns

    if "typing_extensions" in sys.modules:
        return
    modules: dict[str, Any] = sys.modules
    modules["typing_extensions"] = None  # an import raises ImportError
    try:
        with late_patterns(), late_modules("ipaddress", "locale", "msgspec.inspect", "textwrap"):
            import urllib.parse  # noqa: F401

            import msgspec  # noqa: F401

            if words and words[0] in _READ_FILES and "--help" not in words and "-h" not in words:
                import subprocess  # noqa: F401

                from weft.documents import yaml  # noqa: F401
    finally:
        del modules["typing_extensions"]


def _run(words: list[str], context: CommandContext | None) -> int:
    from pathlib import Path

    from weft.cli.commands import dispatch
    from weft.cli.context import CommandContext, drop_output
    from weft.cli.failures import report
    from weft.model.errors import NotFoundError, RunCancelledError, WeftError

    as_json = "--json" in words
    try:
        context = context or CommandContext()
    except FileNotFoundError:
        gone = NotFoundError("the current folder was removed", hint="Change to another folder with cd.")
        return report(gone, CommandContext(cwd=Path("/")), as_json=as_json)
    try:
        code = dispatch(words, context)
        context.out.flush()
    except WeftError as error:
        code = report(error, context, as_json=as_json)
    except KeyboardInterrupt:
        if not context.follows:
            report(RunCancelledError("interrupted", hint=context.hint), context, as_json=as_json)
        elif context.hint:
            context.say(context.hint)
        raise
    except BrokenPipeError:
        drop_output()  # the reader of stdout has closed it
        code = BROKEN_PIPE
    except OSError as error:
        # Errors of an open file have no name; all other files are opened by name.
        if error.filename is not None or not _cannot_write(context.out):
            code = _failed(error, context, as_json=as_json)
        else:
            context.say(f"error: the output cannot be written: {error.strerror}")
            drop_output()
            code = CANNOT_WRITE
    except Exception as error:  # noqa: BLE001
        code = _failed(error, context, as_json=as_json)
    return code


def _failed(error: Exception, context: CommandContext, *, as_json: bool) -> int:
    """Report an exception that no part of Weft expects: of a file in place of a module of Python, of the system or its
    disks, or a fault of Weft.
    """
    from weft.cli.failures import report, report_crash, shadowing

    known: WeftError | None = shadowing(error)
    if known is None:
        from weft.store.limits import disk_error, limit_error

        known = limit_error(error) or disk_error(error)
    return report_crash(error, context, as_json=as_json) if known is None else report(known, context, as_json=as_json)


def _cannot_write(out: TextIO) -> bool:
    """Whether the output cannot be written, for example to a full disk."""
    try:
        out.flush()
    except OSError:
        return True
    return False
