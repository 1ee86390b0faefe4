"""Starts programs of providers, each in a folder that is removed with all that it leaves."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from weft.frontends.federated.providers import PROVIDERS
from weft.model.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from weft.frontends.federated.providers import LibraryProvider

_LOG: Final = "program.log"
_TAIL: Final = 4_000
_TRACE: Final = re.compile(r"Trace has been written to (/tmp/psi_[\w-]+\.trace)")


def provided_version(provider: LibraryProvider) -> str:
    """Return the version of the package of a provider that this party has, "" if it has none.

    UsageError: the variable names no environment with it.
    """
    home, package = os.environ.get(provider.variable, ""), provider.package
    if not home:
        return ""
    found = next(iter(sorted(Path(home).glob(f"lib/python3*/site-packages/{package}-*.dist-info"))), None)
    if found is None or not (Path(home) / "bin" / "python").exists():
        raise UsageError(f"{provider.variable} names an environment without {package}", hint="Make one: make providers")
    return found.name.removeprefix(f"{package}-").removesuffix(".dist-info")


@contextmanager
def program_folder(provider: LibraryProvider) -> Iterator[Path]:
    """Yield a folder for a program, which is removed with all that the program leaves."""
    folder = Path(tempfile.mkdtemp(prefix=f"{provider.package}-", dir="."))
    try:
        yield folder
    finally:
        _remove(folder)


def sweep_programs(attempt: Path) -> None:
    """Remove what a killed process of a part has left in its folder: such a folder has the ids or values of rows."""
    for provider in PROVIDERS:
        for folder in attempt.glob(f"{provider.package}-*/"):
            _remove(folder)


def start_program(provider: LibraryProvider, folder: Path, *words: str, talks: bool = False) -> subprocess.Popen[bytes]:
    """Start the program of a provider with arguments; if it `talks`, pipes lead to its input and from its output."""
    python = Path(os.environ[provider.variable]).absolute() / "bin" / "python"
    environment = {name: os.environ[name] for name in ("HOME", "LANG", "PATH") if name in os.environ}
    environment["TMPDIR"] = str(folder.absolute())
    with (folder / _LOG).open("wb") as log:
        given: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": log}
        if talks:
            given = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        return subprocess.Popen(
            [str(python), "-I", str(provider.program), *words], stderr=log, env=environment, **given
        )


def program_log(folder: Path) -> str:
    """Return the end of what a program has written."""
    return (folder / _LOG).read_text(errors="replace")[-_TAIL:]


def program_end(code: int) -> str:
    """Return in words how a program has ended that has failed, by its exit code."""
    if code >= 0:
        return f"has failed with exit code {code}"
    full = ", perhaps since the memory was full," if code == -signal.SIGKILL else ""
    return f"was ended by {signal.Signals(-code).name}{full}"


def _remove(folder: Path) -> None:
    """Remove a folder, and the trace that SPU writes to /tmp whatever TMPDIR says."""
    with suppress(OSError):
        for trace in _TRACE.findall((folder / _LOG).read_text(errors="replace")):
            Path(trace).unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)
