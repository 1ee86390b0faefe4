"""Where state lies on disk: the state folder of a project, and the folder of each run.

::

    .weft/                      beside `weft.toml` or the pipeline's file; else in the user's state folder
    ├── weft.db, db.lock        the index of runs (`weft.store.catalog`), made again from the folders below
    ├── owner.json              the id of the project in an index that several projects share (`weft.store.places`)
    ├── crashes/                tracebacks of faults of Weft itself
    └── runs/run-000001/        a folder owned by one process
        ├── owner.lock          locked while the owner lives, however it dies
        ├── run.json            what the run is; written again only when a resume brings an edited file
        ├── events.jsonl        what happened, one line each, appended by the owner alone (`weft.runs.records`)
        ├── logs/               `<step>[.<index>].<attempt>.log`
        ├── outputs/
        ├── steps/`<step>[.<index>]`/  the state folder of the runs that a step has begun itself
        └── control.sock        where the owner takes orders (`weft.admin.control`)
"""

from __future__ import annotations

import json
import os
import pwd
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, unquote

from msgspec import Struct

from weft.model.errors import CapacityError, ConflictError, DiskFullError, ForbiddenError, NotFoundError, WeftError
from weft.model.ids import loop_item
from weft.model.patterns import late_pattern
from weft.store.folders import LOCK_NAME, OwnerLock, is_owned, safe_open
from weft.store.limits import limit_advice
from weft.store.places import PROJECT_FILE, STATE_NAME, has_identity, identity_of, is_inside, kept, project_of, resolved

if TYPE_CHECKING:
    from weft.store.catalog import Catalog
    from weft.store.folders import RunFolders

RUN_VERSION: Final = 1
DESCRIPTION: Final = "run.json"
PLACE: Final = "place"
"""The key of `run.json` for the folders, below the run's `root`, in which the folder of its outputs lies."""
GRAPH_DIGEST: Final = "graph"
"""The key of `run.json` for the digest of the pickled graph of a run that a session has begun."""
ROOT: Final = "root"
"""The key of `run.json` for the folder of the file system that the steps of a run work in."""
WORKERS: Final = "workers"
"""The key of `run.json` for the wished number of steps that run at a time; 0: none."""
PROFILE_OF_RUN: Final = "profile"
"""The key of `run.json` for the name and the words of the profile of a run; absent without one."""
STORAGE: Final = "storage"
"""The key of `run.json` for the URL by which files of the run travel, and the run's key there; absent without one."""
BACKEND: Final = "backend"
"""The key of `run.json` for the backend on which a run began."""
_ROOT_INODE: Final = "root_inode"
_IDENTITY: Final = "identity"
_PATHS: Final = ("file", ROOT, "file_systems", "outputs", "kept", "paths", "session")
"""The keys of `run.json` with paths."""
EVENTS: Final = "events.jsonl"
STATUS: Final = "status.json"
INNER: Final = "steps"
"""The folder of a run with the state folders of its steps that begin runs themselves."""
CONTROL: Final = "control.sock"
DRIVER: Final = "driver.json"
"""In the folder of a run that a cluster drives: the name of its actor, the address of the cluster, and the machine."""
DRIVER_OF_PROCESS: Final = "WEFT_DRIVER"
"""The variable by which an actor gives the content of this file to the process that it starts."""
FOLLOWED: Final = "followed"
"""In the state folder: a file for each run whose folder follows an owner elsewhere."""
_MAX_DESCRIPTION: Final = 64 << 20
ELSEWHERE: Final = "name another state folder (on the command line --state-dir, in Python durable= or history=)."
LEAST_ROOM: Final = 1 << 20
"""The free bytes of a disk on which a run can begin or go on; a disk with fewer counts as full."""
_LOG: Final = late_pattern(r"(?P<step>[^.]+)(?:\.(?P<first>\d+))?(?:\.(?P<second>\d+))?\.log")
_INNER: Final = late_pattern(r"(?P<step>[^.]+)(?:\.(?P<index>\d+))?")
_CONTAINER_LOG: Final = late_pattern(r"(?P<step>[^.]+)\.(?P<index>\d+)\.(?P<container>[^.]+)\.(?P<attempt>\d+)\.log")


# ------------------------------------------------------------------------------------------------------- state folders


class StateRoot(Struct, frozen=True):
    """The folder that holds the runs of one project, or of one user where there is no project."""

    path: Path
    denied: Path | None = None
    """The folder of the project, if the state lies elsewhere because this folder is not writable."""

    @classmethod
    def find(cls, start: Path, *, override: Path | None = None, environ: Mapping[str, str] | None = None) -> StateRoot:
        """Return the state folder for work that begins in folder `start`, without making it.

        It is `override` if given; else `.weft` beside the nearest `weft.toml` in `start` and the folders above; else
        `.weft` in `start`; else the user's state folder. A `.weft` is passed over if it does not exist and cannot be
        made, and not if it exists and is not writable. ConflictError: that `.weft` is no folder. ForbiddenError: it
        cannot be read.
        """
        if override is not None:
            _check_readable(override)
            return cls(override.absolute())
        start = start.absolute()
        project = find_project(start)
        folders = [start] if project in (None, start) else [project, start]
        denied = None
        for folder in folders:
            if _has_state(folder) or os.access(folder, os.W_OK | os.X_OK):
                return cls(folder / STATE_NAME, denied)
            if denied is None and folder.is_dir():
                denied = folder
        return cls(user_state_folder(environ), denied)

    @property
    def diversion(self) -> str:
        """A sentence for the user about a state folder outside of the project that is not writable; "" otherwise."""
        if self.denied is None:
            return ""
        return f"{self.denied} is not writable, so its runs lie in {self.path}"

    def warn_diverted(self) -> None:
        """Warn a Python program of the diversion, if there is one."""
        if self.denied is not None:
            import warnings

            warnings.warn(self.diversion, RuntimeWarning, stacklevel=3)

    @property
    def runs(self) -> Path:
        """The folder of the folders of runs."""
        return self.path / "runs"

    @property
    def crashes(self) -> Path:
        """The folder of tracebacks."""
        return self.path / "crashes"

    @property
    def is_writable(self) -> bool:
        """Whether this process may write into the folder."""
        return os.access(self.path, os.W_OK | os.X_OK)

    def prepare(self) -> None:
        """Make the folder, closed to others and to git.

        ForbiddenError, DiskFullError: it cannot be made, or it exists and is not writable.
        """
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not self.is_writable:
                raise ForbiddenError(
                    f"the state folder {self.path} is not writable, and the runs of this project lie there",
                    hint=f"Get write permission for it, or {ELSEWHERE}",
                )
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
    # As `getpass.getuser`, whose module loads what reads passwords.
    named = filter(None, map(os.environ.get, ("LOGNAME", "USER", "LNAME", "USERNAME")))
    try:
        return next(named, None) or pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # no such user in this container
        return str(os.getuid())


def find_project(start: Path) -> Path | None:
    """Return the nearest of `start` and the folders above it with a `weft.toml` of this user's (or root's)."""
    for folder in (start, *start.parents):
        with suppress(OSError):
            if (folder / PROJECT_FILE).stat().st_uid in (os.getuid(), 0):  # others' could be a trap in a shared folder
                return folder
    return None


def _has_state(folder: Path) -> bool:
    """Whether a folder has a state folder. ConflictError: its name is taken by something else."""
    state = folder / STATE_NAME
    if not os.path.lexists(state):
        return False
    if not state.is_dir():
        raise ConflictError(
            f"{state} is not a folder, and Weft keeps its state in a folder of that name",
            hint=f"Move it away, or {ELSEWHERE}",
        )
    _check_readable(state)
    return True


def _check_readable(state: Path) -> None:
    """Check that a state folder, if it exists, can be read. ForbiddenError: it cannot."""
    if state.is_dir() and not os.access(state, os.R_OK | os.X_OK):
        raise ForbiddenError(
            f"the state folder {state} is closed to this user, and the runs of this project lie there",
            hint=f"Work as its owner, or {ELSEWHERE}",
        )


# --------------------------------------------------------------------------------------------------------- run folders


class LogFile(Struct, frozen=True):
    """The log of an attempt (counted from 0) of a task (None: the only one) of a step, or of a container beside it."""

    path: Path
    step: str
    index: int | None
    attempt: int
    container: str = ""

    @property
    def times(self) -> Path:
        """The path of the file with the times of its lines, which logs of older runs lack."""
        return self.path.with_name(self.path.name + ".times")


class InnerRun(Struct, frozen=True):
    """The newest run that a step, or an item of it (None: it has none), has begun itself."""

    folder: Path
    step: str
    index: int | None

    @property
    def name(self) -> str:
        """The name of the step, or of the item."""
        return self.step if self.index is None else loop_item(self.step, self.index)


class RunFolder:
    """The folder of one run as held by its owner: `create`, then `describe` once, and at the end `release`."""

    def __init__(self, path: Path, lock: OwnerLock | None = None) -> None:
        self.path = path
        self._lock = lock

    @classmethod
    def create(cls, root: StateRoot, run_id: str, *, folders: RunFolders | None = None) -> RunFolder:
        """Make and own the folder of a run, or take over the one owned by `folders`.

        The note of an earlier owner's driver is replaced by that of this process, if it has one: orders go there.
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
            _note_driver(path)
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
        return self.logs / f"{log_stem(step)}{middle}.{attempt}.log"

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
        """Write `run.json` with other values for some of its fields, complete or not at all.

        A copied run becomes a run of its own.
        """
        with self._draft({**read_description(self.path), **changes}) as draft:
            draft.replace(self.path / DESCRIPTION)

    @contextmanager
    def _draft(self, description: Mapping[str, Any]) -> Iterator[Path]:
        """Yield a durable file with a description, to be linked into place; it is removed afterwards."""
        own = {key: kept(self.path.parent.parent, description[key]) for key in _PATHS if key in description}
        own |= {_IDENTITY: identity_of(self.path)}
        if os.path.isdir(root := str(description.get(ROOT))):
            own |= {_ROOT_INODE: os.stat(root).st_ino}
        import json  # unlike msgspec it takes names that are not UTF-8

        data = json.dumps({**description, **own}, ensure_ascii=False, indent=1)
        draft = self.path / f".{DESCRIPTION}.{os.getpid()}"
        try:
            draft.unlink(missing_ok=True)
            try:
                with safe_exclusive(draft) as file:
                    file.write(data.encode(errors="backslashreplace"))  # names that are not UTF-8
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


_driver: list[str] = []


def use_driver(about: str) -> None:
    """Give the content of `DRIVER` for the runs of this process, and not of its forks."""
    _driver[:] = [about]
    os.register_at_fork(after_in_child=_driver.clear)


def _note_driver(folder: Path) -> None:
    if not _driver:
        (folder / DRIVER).unlink(missing_ok=True)
        return
    draft = folder / f".{DRIVER}.{os.getpid()}"
    draft.unlink(missing_ok=True)
    with safe_exclusive(draft) as file:
        file.write(_driver[0].encode())
    draft.replace(folder / DRIVER)


def read_description(folder: Path) -> dict[str, Any]:
    """Return the content of `run.json` in a run's folder.

    NotFoundError: there is none. ConflictError: it is damaged, or of a newer version.
    """
    import json

    hint = f"The run cannot be shown; its logs are in {folder / 'logs'}. Remove it: weft delete {folder.name}"
    try:
        with safe_open(folder, DESCRIPTION, mode="rb") as file:
            data = file.read(_MAX_DESCRIPTION)
    except NotFoundError:
        raise NotFoundError(f"{folder / DESCRIPTION} is missing", hint=hint) from None
    try:
        found = json.loads(data)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise ConflictError(f"{folder / DESCRIPTION} is damaged", hint=hint)
    version = found.get("version")
    if not isinstance(version, int) or version > RUN_VERSION:
        raise ConflictError(
            f"the run in {folder} was made by another version of Weft: its format is {version}, "
            f"this one reads {RUN_VERSION}",
            hint="Look at it with the version that made it.",
        )
    return {**found, **{key: resolved(folder.parent.parent, found[key]) for key in _PATHS if key in found}}


def is_whole(folder: Path) -> bool:
    """Whether a folder has a description that begins and ends as one does; it is not read."""
    try:
        with safe_open(folder, DESCRIPTION, mode="rb") as file:
            begin = file.read(1)
            file.seek(max(0, os.fstat(file.fileno()).st_size - 16))
            end: bytes = file.read().rstrip()
            return begin == b"{" and end.endswith(b"}")
    except (WeftError, OSError):
        return False


def is_copied(folder: Path, description: Mapping[str, Any]) -> bool:
    """Whether the folder of a run is a copy of the described one: processes and things elsewhere are not its own."""
    return not has_identity(folder, description.get(_IDENTITY))


def is_elsewhere(folder: Path, description: Mapping[str, Any]) -> bool:
    """Whether the folder of a run was described at another path: it, or what it is a copy of, lay there."""
    identity = description.get(_IDENTITY)
    return isinstance(identity, dict) and identity.get("path") != os.path.realpath(folder)


def owns_root(folder: Path, description: Mapping[str, Any]) -> bool:
    """Whether a run may change files in its file system: one inside of its project, or the very one it began with."""
    root = description.get(ROOT)
    if not isinstance(root, str) or not os.path.isdir(root):
        return False
    if is_inside(root, project_of(folder.parent.parent)):
        return True
    return not is_copied(folder, description) and is_first_root(description)


def is_first_root(description: Mapping[str, Any]) -> bool:
    """Whether the file system of a run, an existing folder, is the very one that the run began with."""
    return os.stat(str(description.get(ROOT))).st_ino == description.get(_ROOT_INODE)


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


def list_container_logs(folder: Path) -> list[LogFile]:
    """Return the logs of the containers beside the main ones, sorted by step, task, container and attempt."""
    found = []
    with suppress(FileNotFoundError):
        for entry in os.scandir(folder / "logs" / "containers"):
            match = _CONTAINER_LOG.fullmatch(entry.name)
            if match is not None and entry.is_file(follow_symlinks=False):
                step, container = unquote(match["step"]), match["container"]
                log = LogFile(Path(entry.path), step, int(match["index"]), int(match["attempt"]), container)
                found.append(log)
    return sorted(found, key=lambda log: (log.step, log.index or 0, log.container, log.attempt))


def list_inner_runs(folder: Path) -> list[InnerRun]:
    """Return the newest run that each step of a run, or each item, has begun itself, sorted by step and item."""
    found = []
    with suppress(FileNotFoundError):
        for entry in os.scandir(folder / INNER):
            match = _INNER.fullmatch(entry.name)
            newest = newest_run(StateRoot(Path(entry.path)))
            if match is not None and newest is not None:
                index = int(match["index"]) if match["index"] is not None else None
                found.append(InnerRun(newest, unquote(match["step"]), index))
    return sorted(found, key=lambda one: (one.step, one.index or 0))


def is_run(folder: Path) -> bool:
    """Whether a folder is that of a run, also of a damaged one; a state folder may hold a `runs` of other programs."""
    if any(os.path.lexists(folder / name) for name in (LOCK_NAME, EVENTS)):
        return True
    return folder.name.startswith("run-") and os.path.lexists(folder / DESCRIPTION)


def newest_run(root: StateRoot) -> Path | None:
    """Return the folder of the newest run of a state folder; None if it has none."""
    try:
        names = [name for name in os.listdir(root.runs) if not name.startswith(".")]
    except OSError:
        return None
    return root.folder(max(names, key=lambda name: (len(name), name))) if names else None


def read_status(folder: Path) -> list[dict[str, Any]]:
    """Return the status of the training jobs of a run; [] if it has none yet."""
    try:
        with safe_open(folder, STATUS, mode="rb") as file:
            found = json.loads(file.read())
    except (NotFoundError, ValueError):
        return []
    jobs: list[dict[str, Any]] = found["jobs"]
    return jobs


def write_status(folder: Path, jobs: Sequence[Mapping[str, Any]], written: str = "") -> str:
    """Replace the status of the training jobs of a run, unless its text is as `written` before; return the text."""
    text = json.dumps({"jobs": jobs}, separators=(",", ":"))
    if text != written:
        new = folder / f".{STATUS}"
        new.write_text(text, encoding="utf-8")
        new.replace(folder / STATUS)
    return text


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
        return is_owned(folder) or is_followed(folder)
    except OSError:
        return folder.exists()


def followed_file(folder: Path) -> Path:
    """Return the file that a run has while its folder follows an owner elsewhere; see `weft.runs.handing`."""
    return folder.parent.parent / FOLLOWED / f"{folder.name}.json"


def followed(root: StateRoot) -> list[Path]:
    """Return the folders of runs that follow an owner elsewhere."""
    return sorted(root.folder(file.stem) for file in (root.path / FOLLOWED).glob("*.json"))


def is_followed(folder: Path) -> bool:
    """Whether the owner of a run that this folder follows lived when it was last looked at."""
    return bool(_last_look(folder).get("alive"))


def ended_elsewhere(folder: Path) -> bool:
    """Whether the run that this folder follows had ended when it was last looked at."""
    return bool(_last_look(folder).get("ended"))


def _last_look(folder: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(followed_file(folder).read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return {}
    return found


def log_stem(step: str) -> str:
    """Return the begin of the names of the logs of a step."""
    return quote(step, safe="").replace(".", "%2E")


# ------------------------------------------------------------------------------------------------------------- helpers


def safe_exclusive(path: Path) -> Any:
    """Open a new file for bytes, closed to others. FileExistsError: the name is taken."""
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600), "wb")


def os_error(what: str, error: OSError, elsewhere: str = ELSEWHERE) -> WeftError:
    """Return the WeftError for an error of the system; `what` names the failed action, `elsewhere` the other way."""
    import errno

    message = f"{what}: {error.strerror or error}"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskFullError(message, hint=f"Free space on this disk, or {elsewhere}")
    if error.errno == errno.ENOENT:
        return NotFoundError(message)
    if advice := limit_advice(error):
        return CapacityError(message, hint=advice)
    return ForbiddenError(message, hint=f"Check that you have write permission there, or {elsewhere}")
