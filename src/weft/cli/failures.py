"""Reports of errors: one message with code and next step, or one JSON document."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weft.cli.tables import clean, json_text
from weft.model.errors import InternalError, InvalidTransition, UsageError, WeftError
from weft.model.masking import without_passwords

if TYPE_CHECKING:
    from weft.cli.context import CommandContext


def error_document(error: WeftError) -> dict[str, Any]:
    """Return the JSON document of an error."""
    return {"code": error.code, "message": without_passwords(error.message), "hint": without_passwords(error.hint)}


def report(error: WeftError, context: CommandContext, *, as_json: bool) -> int:
    """Print an error on stderr, or as JSON on stdout; return its exit code."""
    if as_json:
        context.out.write(json_text({"error": error_document(error)}, context.out) + "\n")
        return error.exit_code
    lines = [f"error {error.code}: {clean(without_passwords(error.message))}"]
    if error.hint:
        lines.append(f"  {clean(without_passwords(error.hint))}")
    if isinstance(error, InvalidTransition):
        lines += [f"  {clean(line)}" for line in error.story]
    with suppress(OSError):  # the exit code reports the error too
        context.err.write("\n".join(lines) + "\n")
    return error.exit_code


def report_crash(error: Exception, context: CommandContext, *, as_json: bool) -> int:
    """Print a fault of Weft in one sentence, write its traceback to a file, and return its exit code."""
    import traceback  # faults of Weft are rare

    what = "".join(traceback.format_exception_only(error)).strip().splitlines()[-1]
    try:
        file = _keep(error, context)
        hint = f"Please report it; the traceback is in {file}"
    except OSError as failure:
        hint = f"Please report it; its traceback could not be saved: {failure}"
    fault = InternalError(f"a fault of Weft, not of your input: {what}", hint=hint)
    return report(fault, context, as_json=as_json)


def shadowing(error: Exception) -> UsageError | None:
    """Return the error of a file that was imported in place of a module of Python, if that explains `error`."""
    if not isinstance(error, AttributeError | ImportError):
        return None
    import sysconfig

    kinds = ("stdlib", "platstdlib", "purelib", "platlib")
    homes = tuple(os.path.join(os.path.realpath(sysconfig.get_path(kind)), "") for kind in kinds)
    for name in sorted(sys.stdlib_module_names & sys.modules.keys()):
        file = getattr(sys.modules[name], "__file__", None)
        if file and not os.path.realpath(file).startswith(homes):
            what = str(error).partition("\n")[0]
            message = f"{file} is imported in place of Python's own module {name}: {what}"
            return UsageError(message, hint="Rename it, or move it to a folder that no module is imported from.")
    return None


def _keep(error: Exception, context: CommandContext) -> Path:
    import traceback

    from weft._version import __version__
    from weft.store.places import STATE_NAME
    from weft.store.state import StateRoot, safe_exclusive, user_state_folder

    home = StateRoot(user_state_folder(context.environ))
    beside = context.cwd / STATE_NAME
    roots = [StateRoot(beside), home] if beside.is_dir() else [home]
    failure = OSError("no place")
    for root in roots:
        with suppress(WeftError):
            try:
                root.prepare()
                root.crashes.mkdir(mode=0o700, exist_ok=True)
                stamp = datetime.fromtimestamp(context.clock.wall(), UTC).strftime("%Y%m%d-%H%M%S")
                file = root.crashes / f"crash-{stamp}-{os.getpid()}.txt"
                text = without_passwords("".join(traceback.format_exception(error)))
                with safe_exclusive(file) as out:
                    out.write(f"weft {__version__}, Python {sys.version}\n{text}".encode("utf-8", "backslashreplace"))
                return file
            except OSError as found:
                failure = found
    raise failure
