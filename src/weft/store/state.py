"""Where state lies on disk: the state folder of a project, and the folder of each run.

::

    .weft/                      beside `weft.toml` or the pipeline's file; else in the user's state folder
    ├── weft.db, db.lock        the index of runs (`weft.store.catalog`), made again from the folders below
    ├── crashes/                tracebacks of faults of Weft itself
    └── runs/run-000001/        a folder owned by one process
        ├── owner.lock          locked while the owner lives, however it dies
        ├── run.json            what the run is; written again only when a resume brings an edited file
        ├── events.jsonl        what happened, one line each, appended by the owner alone (`weft.runs.records`)
        ├── logs/               `<step>[.<index>].<attempt>.log`
        ├── outputs/
        └── control.sock        where the owner takes orders (`weft.admin.control`)
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from getpass import getuser
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, unquote

from msgspec import Struct

from weft.model.errors import ConflictError, DiskFullError, ForbiddenError, NotFoundError, WeftError
from weft.store.folders import OwnerLock, is_owned, safe_open

if TYPE_CHECKING:
    from weft.store.catalog import Catalog
    from weft.store.folders import RunFolders

STATE_NAME: Final = ".weft"
PROJECT_FILE: Final = "weft.toml"
RUN_VERSION: Final = 1
DESCRIPTION: Final = "run.json"
PLACE: Final = "place"
"""The key of `run.json` for the folders, below the run's `root`, in which the folder of its outputs lies."""
GRAPH_DIGEST: Final = "graph"
"""The key of `run.json` for the digest of the pickled graph of a run that a session has begun."""
EVENTS: Final = "events.jsonl"
CONTROL: Final = "control.sock"
_MAX_DESCRIPTION: Final = 64 << 20
ELSEWHERE: Final = "name another state folder (on the command line --state-dir, in Python durable= or history=)."
_LOG: Final = re.compile(r"(?P<step>[^.]+)(?:\.(?P<first>\d+))?(?:\.(?P<second>\d+))?\.log")


# ------------------------------------------------------------------------------------------------------- state folders


class StateRoot(Struct, frozen=True):
    """The folder that holds the runs of one project, or of one user where there is no project."""

    path: Path

    @classmethod
    def find(cls, start: Path, *, override: Path | None = None, environ: Mapping[str, str] | None = None) -> StateRoot:
        """Return the state folder for work that begins in folder `start`, without making it.

        It is `override` if given; else `.weft` beside the nearest `weft.toml` in `start` and the folders above; else
        `.weft` in `start` if it exists or can be made; else the user's state folder.
        """
        if override is not None:
            return cls(override.absolute())
        start = start.absolute()
        project = find_project(start)
        if project is not None and _usable(project):
            return cls(project / STATE_NAME)
        return cls(start / STATE_NAME if _usable(start) else user_state_folder(environ))

    @property
    def runs(self) -> Path:
        """The folder of the folders of runs."""
        return self.path / "runs"

    @property
    def crashes(self) -> Path:
        """The folder of tracebacks."""
        return self.path / "crashes"

    def prepare(self) -> None:
        """Make the folder, closed to others and to git. ForbiddenError, DiskFullError: it cannot be made."""
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            with suppress(FileExistsError), safe_exclusive(self.path / ".gitignore") as file:
                file.write(b"*\n")
        except OSError as error:
            raise os_error(f"the state folder {self.path} cannot be made", error) from None

    def folder(self, run_id: str) -> Path:
        """Return the folder of a run; ForbiddenError if the id is a path."""
        if not run_id or "/" in run_id or "\0" in run_id or run_id.startswith("."):
            raise ForbiddenError(f"{run_id!r} is not the id of a run")
        return self.runs / run_id

    def catalog(self) -> Catalog:
        """Return the index of these runs; `listing.open_catalog` rebuilds a lost one."""
        from weft.store.catalog import Catalog

        return Catalog.open(self.path / "weft.db")


def user_state_folder(environ: Mapping[str, str] | None = None) -> Path:
    """Return the user's state folder: `weft` in XDG_STATE_HOME, by default in `~/.local/state`."""
    given = (os.environ if environ is None else environ).get("XDG_STATE_HOME", "")
    return (Path(given) if Path(given).is_absolute() else Path.home() / ".local" / "state") / "weft"


def current_user() -> str:
    """Return the name of the user of this process, or its number if the system has no name."""
    try:
        return getuser()
    except (KeyError, OSError):  # no such user in this container
        return str(os.getuid())


def find_project(start: Path) -> Path | None:
    """Return the nearest of `start` and the folders above it with a `weft.toml` of this user's (or root's)."""
    for folder in (start, *start.parents):
        with suppress(OSError):
            if (folder / PROJECT_FILE).stat().st_uid in (os.getuid(), 0):  # others' could be a trap in a shared folder
                return folder
    return None


def _usable(folder: Path) -> bool:
    """Whether a folder has a state folder, or may be given one."""
    return os.access(folder / STATE_NAME if (folder / STATE_NAME).exists() else folder, os.W_OK | os.X_OK)


# --------------------------------------------------------------------------------------------------------- run folders


class LogFile(Struct, frozen=True):
    """The log of an attempt (counted from 0) of a task (None: the only one) of a step."""

    path: Path
    step: str
    index: int | None
    attempt: int


class RunFolder:
    """The folder of one run as held by its owner: `create`, then `describe` once, and at the end `release`."""

    def __init__(self, path: Path, lock: OwnerLock | None = None) -> None:
        self.path = path
        self._lock = lock

    @classmethod
    def create(cls, root: StateRoot, run_id: str, *, folders: RunFolders | None = None) -> RunFolder:
        """Make and own the folder of a run, or take over the one owned by `folders`.

        ConflictError: another living process owns it. ForbiddenError, DiskFullError: it cannot be made.
        """
        path = root.folder(run_id)
        lock = None
        root.prepare()
        try:
            if folders is None:
                lock = OwnerLock(path)
            else:
                path = folders.state
            for name in ("logs", "outputs"):
                (path / name).mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            if lock is not None:
                lock.release()
            raise os_error(f"the folder of the run, {path}, cannot be made", error) from None
        return cls(path, lock)

    @property
    def run_id(self) -> str:
        """The id of the run: the name of its folder."""
        return self.path.name

    @property
    def logs(self) -> Path:
        """The folder of the logs."""
        return self.path / "logs"

    @property
    def outputs(self) -> Path:
        """The folder of outputs without another place."""
        return self.path / "outputs"

    @property
    def events(self) -> Path:
        """The file of the run's events."""
        return self.path / EVENTS

    def log_path(self, step: str, index: int | None = None, attempt: int = 0) -> Path:
        """Return the path of the log of an attempt of a step (of task `index`, if it has several)."""
        middle = "" if index is None else f".{index}"
        return self.logs / f"{_file_name(step)}{middle}.{attempt}.log"

    def describe(self, **description: Any) -> None:
        """Write `run.json`, complete or not at all. ConflictError: it exists."""
        target = self.path / DESCRIPTION
        with self._draft({"version": RUN_VERSION, "id": self.run_id, **description}) as draft:
            try:
                os.link(draft, target)  # unlike a rename it never replaces
            except FileExistsError:
                raise ConflictError(
                    f"the run {self.run_id} has a description already", hint="Start a new run."
                ) from None

    def describe_again(self, **changes: Any) -> None:
        """Write `run.json` with other values for some of its fields, complete or not at all."""
        with self._draft({**read_description(self.path), **changes}) as draft:
            draft.replace(self.path / DESCRIPTION)

    @contextmanager
    def _draft(self, description: Mapping[str, Any]) -> Iterator[Path]:
        """Yield a durable file with a description, to be linked into place; it is removed afterwards."""
        data = json.dumps(description, ensure_ascii=False, indent=1)
        draft = self.path / f".{DESCRIPTION}.{os.getpid()}"
        try:
            draft.unlink(missing_ok=True)
            try:
                with safe_exclusive(draft) as file:
                    file.write(data.encode())
                    file.flush()
                    os.fsync(file.fileno())
                yield draft
            finally:
                draft.unlink(missing_ok=True)
        except OSError as error:
            raise os_error(f"{self.path / DESCRIPTION} cannot be written", error) from None

    def release(self) -> None:
        """Release the folder; it stays. A second call does nothing."""
        if self._lock is not None:
            self._lock.release()

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def read_description(folder: Path) -> dict[str, Any]:
    """Return the content of `run.json` in a run's folder.

    NotFoundError: there is none. ConflictError: it is damaged, or of a newer version.
    """
    with safe_open(folder, DESCRIPTION, mode="rb") as file:
        data = file.read(_MAX_DESCRIPTION)
    try:
        found = json.loads(data)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise ConflictError(f"{folder / DESCRIPTION} is damaged", hint="The run cannot be shown; remove its folder.")
    version = found.get("version")
    if not isinstance(version, int) or version > RUN_VERSION:
        raise ConflictError(
            f"the run in {folder} was made by another version of Weft: its format is {version}, "
            f"this one reads {RUN_VERSION}",
            hint="Look at it with the version that made it.",
        )
    return found


def check_trusted(folder: Path, name: str) -> None:
    """Check that a file and its folder belong to this user and that no other user may write them.

    NotFoundError: it is missing. ForbiddenError: another user could have written it.
    """
    for path, kind in ((folder, stat.S_ISDIR), (folder / name, stat.S_ISREG)):
        try:
            found = path.lstat()
        except FileNotFoundError:
            raise NotFoundError(f"there is no {path}") from None
        except OSError as error:
            raise os_error(f"{path} cannot be read", error) from None
        if not kind(found.st_mode) or found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) & 0o022:
            raise ForbiddenError(
                f"other users may write {path}, so it is not loaded: loading it runs its code",
                hint="Remove the write permission of other users: chmod -R go-w",
            )


def read_trusted(folder: Path, name: str) -> bytes:
    """Return the bytes of a file; errors as `check_trusted`."""
    check_trusted(folder, name)
    with safe_open(folder, name, mode="rb") as file:
        return bytes(file.read())


def list_logs(folder: Path) -> list[LogFile]:
    """Return the logs of a run, sorted by step, task and attempt."""
    found = []
    with suppress(FileNotFoundError):
        for entry in os.scandir(folder / "logs"):
            match = _LOG.fullmatch(entry.name)
            if match is None or not entry.is_file(follow_symlinks=False):
                continue
            first, second = match["first"], match["second"]
            index = int(first) if second is not None else None
            attempt = int(second or first or 0)
            found.append(LogFile(Path(entry.path), unquote(match["step"]), index, attempt))
    return sorted(found, key=lambda log: (log.step, -1 if log.index is None else log.index, log.attempt))


def last_sign(folder: Path) -> float:
    """Return the last write of the owner of a run, or of a guardian of its steps, into its folder; 0.0 if there is
    none.

    In seconds since 1970. A guardian writes the output of its step, and removes its record after its end.
    """
    found = 0.0
    with suppress(OSError):
        for entry in os.scandir(folder / "logs"):
            with suppress(OSError):
                found = max(found, entry.stat(follow_symlinks=False).st_mtime)
    for name in (EVENTS, "journal", "processes"):
        with suppress(OSError):
            found = max(found, (folder / name).lstat().st_mtime)
    return found


def owned(folder: Path) -> bool:
    """Whether the owner of a run's folder lives; True if unknown (the folder of another user)."""
    try:
        return is_owned(folder)
    except OSError:
        return folder.exists()


def _file_name(step: str) -> str:
    return quote(step, safe="").replace(".", "%2E")


# ------------------------------------------------------------------------------------------------------------- helpers


def safe_exclusive(path: Path) -> Any:
    """Open a new file for bytes, closed to others. FileExistsError: the name is taken."""
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600), "wb")


def os_error(what: str, error: OSError) -> WeftError:
    """Return the WeftError for an error of the system; `what` names the failed action."""
    import errno

    message = f"{what}: {error.strerror or error}"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskFullError(message, hint=f"Free space on this disk, or {ELSEWHERE}")
    if error.errno == errno.ENOENT:
        return NotFoundError(message)
    return ForbiddenError(message, hint=f"Check that you have write permission there, or {ELSEWHERE}")
