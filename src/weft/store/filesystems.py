"""Names of file systems: folders of this machine, or folders elsewhere with their copies.

Names come from flags and from the table `fs` of `weft.toml`; a flag wins.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from weft.model.errors import UsageError, WeftError
from weft.model.patterns import late_pattern
from weft.store.places import PROJECT_FILE
from weft.store.state import find_project

_URL = late_pattern(r"[A-Za-z][A-Za-z0-9+.:-]*://.*", re.DOTALL)
_LOCAL = "file://"
_MAX_FILE = 1 << 20


class FileSystem(Struct, frozen=True):
    """The place of a file system on this machine; with `url`, a copy of the folder there."""

    folder: Path
    url: str = ""


class Copy:
    """The copy of a remote file system as one run uses it; `parts` lists the mounted parts.

    A part is "" for all, or a folder or file in it, with whether steps may write there.
    """

    def __init__(self, name: str, url: str, folder: Path, parts: Mapping[str, bool]) -> None:
        from weft.store.remote import Remote, shown  # few runs need it

        self.name = name
        self.folder = folder
        self.shown = shown(url)
        self.remote = Remote(url, folder.parent)
        self._parts = parts

    def hold(self, note: Callable[[str], None], *, fetch: bool) -> Callable[[], None]:
        """Bring the copy up to date (without `fetch` only if it is missing) and return its release function."""
        done, release = self.remote.hold(self._parts, fetch=fetch)
        if done.files or done.removed:
            gone = f", {done.removed} are gone" if done.removed else ""
            note(f"{self.shown}: fetched {done.files} files, {done.size:,} bytes{gone}")
        return release

    def give_back(self, note: Callable[[str], None]) -> None:
        """Send the changes and additions of steps, except their outputs, which were sent before."""
        try:
            sent = self.remote.give_back([part for part, writable in self._parts.items() if writable])
        except WeftError as error:
            note(f"what steps wrote to the file system {self.name} beside their outputs was not sent: {error.message}")
            return
        if sent:
            note(f"{self.shown}: sent {sent} files that steps wrote beside their outputs")


def file_systems(start: Path, given: Mapping[str, str], stage: Path) -> dict[str, FileSystem]:
    """Return the file systems by name, those of `given` first, in their order.

    `given` maps names to folders, relative to the current one, or to URLs; so does the `weft.toml` above `start`, with
    folders relative to its own. Copies lie below `stage`. UsageError: a folder is missing, or the table is wrong.
    """
    found = {name: _one(text, Path.cwd(), stage, f"-f {name}") for name, text in given.items()}
    table, file = project_table(start, "fs")
    for name, text in table.items():
        if name not in found:
            found[name] = _one(text, file.parent, stage, f"{file}: fs.{name}")
    return found


def project_table(start: Path, name: str) -> tuple[dict[str, Any], Path]:
    """Return a table of the `weft.toml` above folder `start`, {} without one, and the path of that file.

    UsageError: the file cannot be read, is no TOML, or has another value under that name.
    """
    project = find_project(start)
    if project is None:
        return {}, start / PROJECT_FILE
    file = project / PROJECT_FILE
    import tomllib

    try:
        with file.open("rb") as source:
            table = tomllib.loads(source.read(_MAX_FILE).decode()).get(name, {})
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{file} is not TOML: {error}", hint='Write lines such as: backend = "threads"') from None
    if not isinstance(table, dict):
        raise UsageError(f"{file}: {name} must be a table of names", hint=f"Write it as: [{name}]")
    return table, file


def parse_given(pairs: Sequence[str]) -> dict[str, str]:
    """Read `NAME=FOLDER` and `NAME=URL`. UsageError: other syntax, or two for one name."""
    found: dict[str, str] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not name.strip() or not text.strip():
            hint = "For example: -f ppl=./data"
            if pair.endswith((".yaml", ".yml", ".json", ".py")):
                hint = f"-f defines a file system. A pipeline stands without it: weft run {pair} -p NAME=VALUE"
            raise UsageError(f"-f {pair!r} is not of the form NAME=FOLDER or NAME=URL", hint=hint)
        known = found.setdefault(name.strip(), text.strip())
        if known != text.strip():
            raise UsageError(
                f"-f gives {name.strip()} twice: {known} and {text.strip()}", hint="Leave out one of them."
            )
    return found


def is_url(text: str) -> bool:
    """Whether a text is a URL, not a path of this machine."""
    return _URL.fullmatch(text) is not None and not text.startswith(_LOCAL)


def _one(text: object, base: Path, stage: Path, shown: str) -> FileSystem:
    if isinstance(text, str) and is_url(text):
        from weft.store.remote import FILES, folder_for

        return FileSystem(folder_for(text, stage) / FILES, text)
    folder = base / text.removeprefix(_LOCAL) if isinstance(text, str) and "\0" not in text else None
    if folder is None or not os.path.isdir(folder):  # False for a name that is too long, too
        raise UsageError(f"{shown} is {text!r}; it must be an existing folder, or a URL such as s3://bucket/folder")
    return FileSystem(folder.resolve())
