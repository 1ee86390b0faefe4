"""Paths in the files of a state folder, and identities of folders: projects are copied, moved and mounted elsewhere.

A path inside of the project is kept relative to the state folder and begins with `./` or `../`. Other paths are kept as
they are. So the files of a copied or moved project name that project, and never the original.

A folder that refers to things outside of the project also keeps its own identity. A copy has the identity of another
folder, so it does not own those things.
"""

from __future__ import annotations

import fcntl
import json
import os
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from weft.model.errors import ForbiddenError

STATE_NAME: Final = ".weft"
ENVIRONMENTS: Final = "environments"
"""The folder of the environments of steps, in the state folder."""
PROJECT_FILE: Final = "weft.toml"
OUTPUTS: Final = ".pipeline"
"""The name of the folder with the outputs of runs and the content of the cache, in a file system that steps work in."""
LAST: Final = "last"
"""The name of the folder, below that of outputs, with the links to the last succeeded run of each pipeline."""
_LAST_OUTPUTS: Final = f"/{OUTPUTS}/{LAST}/"
CLAIMS: Final = "claims"
"""The folder of a state folder with one for each persistent volume claim of training jobs."""
STAGE: Final = "fs"
"""The folder of a state folder with the copies of file systems at URLs."""
_CLAIMED: Final = f"/{STATE_NAME}/{CLAIMS}/"
_COPIED: Final = f"/{STATE_NAME}/{STAGE}/"
_OWNER: Final = "owner.json"
_MARKS: Final = (".git", PROJECT_FILE)
_MOST_PARENTS: Final = 5


# --------------------------------------------------------------------------------------------------------------- paths


def judged_path(path: str) -> str:
    """Return the path by which a file counts as an input or not.

    The outputs of last runs, and what lies in persistent volume claims and in copies of file systems at URLs, are files
    like others.
    """
    return path.replace(_LAST_OUTPUTS, "/", 1).replace(_CLAIMED, "/", 1).replace(_COPIED, "/", 1)


def is_claimed(path: str) -> bool:
    """Whether a file lies in a persistent volume claim of a project."""
    return _CLAIMED in path


def project_of(state: Path) -> Path:
    """Return the folder of the project of a state folder: the nearest one above with `.git` or `weft.toml`.

    Without such a file it is the folder with `.weft`, or a state folder of another name itself.
    """
    return project_around(state.parent if state.name == STATE_NAME else state)


def project_around(folder: Path) -> Path:
    """Return the nearest folder with `.git` or `weft.toml` at or above one, or the folder itself."""
    *_, top = folder, *folders_above(folder)  # all below it have no mark
    return top if is_marked(top) else folder


def folders_above(folder: Path) -> Iterator[Path]:
    """Yield the nearest folders above one that may belong to its project, the nearest first."""
    home = Path.home()
    for above in list(folder.parents)[:_MOST_PARENTS]:
        if above in (home, above.parent) or is_marked(folder):
            return
        yield above
        folder = above


def is_marked(folder: Path) -> bool:
    """Whether a folder is the top of a project."""
    return any(os.path.exists(os.path.join(folder, name)) for name in _MARKS)


class StatePaths:
    """The forms of paths in the files of a state folder."""

    def __init__(self, state: Path) -> None:
        self._state = os.path.abspath(state)
        self._real: dict[str, str] = {}

    @cached_property
    def _top(self) -> str:
        return str(project_of(Path(self._state)))

    def keep(self, path: str) -> str:
        """Return the kept form of a path; texts that are no absolute path stay."""
        if not path.startswith("/"):
            return path
        head, slash, rest = path.partition(f"/{OUTPUTS}/")
        if not _is_below(path, self._top) and not _is_below(self._state, head):
            real, top = self._without_links(head) + slash + rest, self._without_links(self._top)
            if not _is_below(real, top):
                return path
            path = self._top + real.removeprefix(top)
        folder, ups = self._state, []
        while not _is_below(path, folder):
            folder = os.path.dirname(folder)
            ups.append("..")
        return "/".join([*(ups or "."), *filter(None, (path[len(folder) :].strip("/"),))])

    def _without_links(self, path: str) -> str:
        if path not in self._real:  # many outputs lie in one file system
            self._real[path] = os.path.realpath(path)
        return self._real[path]

    def resolve(self, text: str) -> str:
        """Return the path of a kept form."""
        if text not in (".", "..") and not text.startswith(("./", "../")):
            return text
        folder, rest = self._state, text.removeprefix("./")
        while rest == ".." or rest.startswith("../"):
            folder, rest = os.path.dirname(folder), rest[3:]
        return folder if rest in ("", ".") else f"{folder.rstrip('/')}/{rest}"


def shown_path(path: bytes | str) -> str:
    """Return a path as text for people; bytes that are not UTF-8 are escaped."""
    return os.fsencode(path).decode(errors="backslashreplace")


def why_no_outputs(root: Path, names: Iterable[str]) -> str:
    """Return which nested folder below `root` cannot lead to outputs, and why; "" if all are plain or missing."""
    folder = root
    for name in names:
        folder /= name
        if folder.is_symlink():
            return f"{folder} is a link, and outputs are not written or removed through links"
        if os.path.lexists(folder) and not folder.is_dir():
            return f"{folder} is not a folder"
    return ""


def _is_below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def kept(state: Path, value: Any) -> Any:
    """Return a JSON value with all paths in it as a state folder keeps them."""
    return _mapped(value, StatePaths(state).keep)


def resolved(state: Path, value: Any) -> Any:
    """Return the JSON value that `kept` has kept."""
    return _mapped(value, StatePaths(state).resolve)


def _mapped(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {name: _mapped(one, change) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_mapped(one, change) for one in value]
    return value


def is_inside(path: str | Path, project: Path) -> bool:
    """Whether a path lies in a project when all links are followed."""
    return _is_below(os.path.realpath(path), os.path.realpath(project))


# ------------------------------------------------------------------------------------------------------------ identity


def identity_of(folder: str | Path) -> dict[str, Any]:
    """Return the identity of an existing folder."""
    return {"path": os.path.realpath(folder), "inode": os.stat(folder).st_ino}


def has_identity(folder: str | Path, identity: object) -> bool:
    """Whether an existing folder is the one of an identity, moved or not, and no copy of it.

    A copy has another inode. A snapshot of a file system has the same one, but then the original is still in its place.
    """
    if not isinstance(identity, dict) or identity.get("inode") != os.stat(folder).st_ino:
        return False
    with suppress(OSError):
        return os.path.samefile(str(identity.get("path")), folder)
    return True


def owner_of(state: Path) -> str:
    """Return the id of a state folder, in which things shared with other projects name it: made at the first call.

    It stays when the folder is moved; a copy gets its own. "": there is no such folder. WeftError: it is not writable.
    """
    try:
        fd = os.open(state / _OWNER, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise ForbiddenError(f"{state / _OWNER} cannot be written: {error.strerror}") from None
    with os.fdopen(fd, "r+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # two processes make one id
        with suppress(ValueError):  # empty, or torn when its writer was killed
            found = json.loads(file.read())
            if isinstance(found, dict) and has_identity(state, found.get("state")):
                return str(found["id"])
        made = uuid.uuid4().hex
        file.seek(0)
        file.truncate()
        file.write(json.dumps({"id": made, "state": identity_of(state)}).encode())
    return made
