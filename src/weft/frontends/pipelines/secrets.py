"""The secrets of steps: values that are looked up when a run starts, and kept in memory alone.

A file names a secret (`env: {TOKEN: {secret: NAME}}`); a graph, its records and its cache keys have only that name. The
value is in the environment of Weft as NAME, in a file that the variable NAME_FILE names, or in the user's keyring as
password NAME of service "weft". The process that runs a step looks it up again unless it began the run itself.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Mapping
from typing import Final

from weft.model.errors import UsageError, WeftError
from weft.model.masking import worth_masking

MAX_BYTES: Final = 64 << 10
"""A longer value does not fit into the environment of every program."""
FILE_SUFFIX: Final = "_FILE"
SERVICE: Final = "weft"
"""The service of secrets in a keyring."""
_held: dict[str, str] = {}


def hold_secrets(needed: Mapping[str, str]) -> None:
    """Look up secrets, each with the step that needs it, and hold them in this process.

    UsageError: one is missing, or cannot be the value of an environment variable.
    """
    for name, step in needed.items():
        _held[name] = secret_of(name, f"step {step}")


def secret(name: str, step: str) -> str:
    """Return the value of a secret. UsageError: as of `hold_secrets`."""
    if name not in _held:
        hold_secrets({name: step})
    return _held[name]


def texts_to_mask(names: Iterable[str]) -> list[str]:
    """Return the texts that no log may show, as far as the secrets are known here; long lines of a value too."""
    found: set[str] = set()
    for name in names:
        try:
            value = secret(name, "")
        except WeftError:  # no step of this process has it
            continue
        found |= {value, value.strip(), *(line.strip() for line in value.splitlines())}
    return worth_masking(found)


def without_sources(env: Mapping[str, str], names: Iterable[str]) -> dict[str, str]:
    """Return an environment without the variables that secrets are looked up in."""
    sources = {variable for name in names for variable in (name, name + FILE_SUFFIX)}
    return {variable: value for variable, value in env.items() if variable not in sources}


def secret_of(name: str, reader: str) -> str:
    """Look up the value of a secret for its reader, such as a step. UsageError: as of `hold_secrets`."""
    where, value = f"the environment variable {name}", os.environ.get(name)
    if value is None and (path := os.environ.get(name + FILE_SUFFIX)):
        where, value = f"the file {path}", _read(path, name)
    if value is None:
        where, value = "the keyring", _from_keyring(name)
    if value is None:
        message = f"{reader} needs the secret {name}, which is neither in the environment nor in the keyring"
        hint = (
            f"Set {name}, or {name}{FILE_SUFFIX} to the path of a file that holds it, or: keyring set {SERVICE} {name}"
        )
        raise UsageError(message, hint=hint)
    if not value or "\0" in value or len(os.fsencode(value)) > MAX_BYTES:
        what = "is empty" if not value else "holds a NUL character" if "\0" in value else f"exceeds {MAX_BYTES} bytes"
        raise UsageError(f"the secret {name} of {reader} {what}", hint=f"It was read from {where}.")
    return value


def _read(path: str, name: str) -> str:
    """Return the text of a file without the end of its last line."""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise UsageError(f"{name}{FILE_SUFFIX} names {path}, which is no file")
            data = file.read(MAX_BYTES + 2)
    except OSError as error:
        raise UsageError(f"{name}{FILE_SUFFIX} names {path}, which cannot be read: {error.strerror}") from None
    return os.fsdecode(data.removesuffix(b"\n").removesuffix(b"\r"))


def _from_keyring(name: str) -> str | None:
    try:
        import keyring
    except ImportError:
        return None
    try:
        found: str | None = keyring.get_password(SERVICE, name)
    except Exception:  # noqa: BLE001 - a backend may raise anything, if there is none for example
        return None
    return found
