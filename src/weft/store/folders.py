"""The folders of a run, their owners, and the one way to open a path given by a user.

Each run has two folders, one under shared memory and one in the state folder, each with an `owner.lock` that the owning
process holds by flock as long as it lives. The kernel frees such a lock when its holder dies, however it dies. So a
folder with a free lock has no owner and a start may sweep it; no process ids, no heartbeats.

A sweeper and a maker of the same folder may meet. The sweeper takes the lock before it moves the folder away; the maker
takes the lock, then checks that the folder is still the locked one, else begins again.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import sys
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, Final, TypeGuard

from weft.model.errors import ConflictError, ForbiddenError, NotFoundError, UsageError
from weft.model.patterns import late_pattern

LOCK_NAME: Final = "owner.lock"
SPILL_NAME: Final = "spill"
URL_FILE: Final = "spill.url"
"""The file in the state folder of a run with the URL of its objects, if it spills to a URL."""
_TRASH: Final = ".trash-"
_RUN_ID: Final = late_pattern(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
SHARED_MEMORY: Final = Path("/dev/shm")
"""The folder of the system for shared memory."""
_SHM_ENOUGH: Final = 256 << 20
_TRIES: Final = 200
_ASKED: Final = 20
_TRY_PAUSE_S: Final = 0.01
_LONGEST_SOCKET: Final = 100


# -------------------------------------------------------------------------------------------------------- ownership

_held: weakref.WeakSet[OwnerLock] = weakref.WeakSet()


class OwnerLock:
    """The flock on a folder's `owner.lock`, held until `release` or the end of the process.

    ConflictError: another living process owns the folder.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._fd = _own(folder)
        _held.add(self)

    def release(self) -> None:
        """Release the lock. A second call does nothing."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


def _close_in_child() -> None:
    # A lock belongs to all copies of its descriptor: a forked child would keep it beyond its parent's death.
    for lock in list(_held):
        lock.release()


os.register_at_fork(after_in_child=_close_in_child)


def _own(folder: Path) -> int:
    """Make a folder, lock it, and return the descriptor that holds the lock."""
    for _ in range(_TRIES):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            fd = _try_lock(folder)
        except FileNotFoundError:  # swept between the two steps
            continue
        if fd is not None:
            return fd
        time.sleep(_TRY_PAUSE_S)  # a sweeper holds it for a moment, an owner for long
    raise ConflictError(
        f"the folder {folder} is in use by another process",
        hint="Wait for that run to end, or stop it with: weft cancel",
    )


def _try_lock(folder: Path) -> int | None:
    """Lock a folder without an owner. Return None if it has one, or was moved away meanwhile."""
    path = folder / LOCK_NAME
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.stat(path, follow_symlinks=False), os.fstat(fd)):
            return fd
    except (BlockingIOError, FileNotFoundError):
        pass
    except BaseException:
        os.close(fd)
        raise
    os.close(fd)
    return None


@contextmanager
def unowned(folder: Path) -> Iterator[None]:
    """Hold the lock of an existing folder without an owner.

    FileNotFoundError: there is no such folder. ConflictError: a living process owns it.
    """
    for _ in range(_ASKED):  # a process that only checks holds it for a moment too
        fd = _try_lock(folder)
        if fd is not None:
            break
        time.sleep(_TRY_PAUSE_S)
    else:
        raise ConflictError(f"{folder.name} is still running", hint=f"Stop it first: weft cancel {folder.name}")
    try:
        yield
    finally:
        os.close(fd)


def remove_unowned(folder: Path) -> bool:
    """Remove a folder whose owner is dead, if there is one; return False if a living process owns it."""
    try:
        fd = _try_lock(folder)
    except OSError:  # it is gone
        return True
    if fd is None:
        return False
    try:
        remove_folder(folder)
    finally:
        os.close(fd)
    return True


def is_owned(folder: Path) -> bool:
    """Whether a living process holds the lock of a folder; the check changes nothing."""
    flags = os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        try:
            fd = os.open(folder / LOCK_NAME, os.O_RDWR | flags)
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EROFS):
                raise
            fd = os.open(folder / LOCK_NAME, os.O_RDONLY | flags)  # enough on disks of this machine
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    else:
        return False
    finally:
        os.close(fd)


# -------------------------------------------------------------------------------------------------------- run folders


def shm_root() -> Path:
    """Return the folder of shared memory: /dev/shm, or one for temporary files where that is missing or very small.

    That one is a folder of its own: a sweep of it must not meet the state of runs.
    """
    with suppress(OSError):
        found = os.statvfs(SHARED_MEMORY)
        if os.access(SHARED_MEMORY, os.W_OK) and found.f_bavail * found.f_frsize >= _SHM_ENOUGH:
            return SHARED_MEMORY
    return temporary_root("shared")


def temporary_root(name: str) -> Path:
    """Make and return a folder of this user for temporary files. ForbiddenError: as `user_root`."""
    folder = user_root(temporary_folder()) / name
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


def temporary_folder() -> Path:
    """Return the folder of `tempfile`, without that module where its answer is plain: it takes long to load."""
    if "tempfile" not in sys.modules:
        for named in (*map(os.environ.get, ("TMPDIR", "TEMP", "TMP")), "/tmp"):
            if named and os.path.isdir(named) and os.access(named, os.W_OK | os.X_OK):
                return Path(named).absolute()
    from tempfile import gettempdir

    return Path(gettempdir())


def user_root(root: Path) -> Path:
    """Make and return this user's folder under a root that all users may write to.

    ForbiddenError: the name is taken by something other than a folder of this user alone.
    """
    folder = root / f"weft-{os.getuid()}"
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = os.lstat(folder)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise ForbiddenError(
            f"{folder} exists, but is not a folder of this user",
            hint="Ask its owner to remove it, or set TMPDIR to a folder of your own.",
        )
    if stat.S_IMODE(found.st_mode) & 0o077:
        os.chmod(folder, 0o700)
    return folder


_of_node: list[str] = []


def use_node_folder(folder: str) -> None:
    """Name the folder on disk of this process's node, which goes with it."""
    _of_node[:] = [folder]


def node_folder() -> str:
    """Return the folder on disk of the node whose tasks run in this process; "" if it has none."""
    return _of_node[0] if _of_node else ""


def is_url(place: object) -> TypeGuard[str]:
    """Whether a spill target is a URL, and not a folder."""
    return isinstance(place, str) and "://" in place


class RunFolders:
    """The folders of one run, owned by this process until `close`.

    `shm` is `<shm_root>/weft-<uid>/<run id>`, `state` is `<state_root>/runs/<run id>`, `spill` a folder in it. With
    `durable`, closing leaves the state folder for a later resume. UsageError: the run id cannot be a file's name.
    ConflictError: another living process owns the run.
    """

    def __init__(self, run_id: str, shm_root: Path, state_root: Path, *, durable: bool = False) -> None:
        if not _RUN_ID.fullmatch(run_id):
            raise UsageError(f"{run_id!r} cannot name a run", hint="Use 1 to 128 of the characters A-Z a-z 0-9 _ . -")
        self.run_id = run_id
        self.durable = durable
        self.state = state_root / "runs" / run_id
        self.spill = self.state / SPILL_NAME
        self._state_lock = OwnerLock(self.state)
        try:
            self.shm = user_root(shm_root) / run_id
            self._shm_lock = OwnerLock(self.shm)
        except BaseException:
            self._state_lock.release()
            raise
        self.spill.mkdir(mode=0o700, exist_ok=True)

    def close(self) -> None:
        """Remove the data of the run's lifetime and release the folders. A second call does nothing."""
        for folder in (self.shm, self.spill if self.durable else self.state):
            remove_folder(folder)
        self._shm_lock.release()
        self._state_lock.release()

    def __enter__(self) -> RunFolders:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def sweep(shm_root: Path) -> list[str]:
    """Remove the shared memory of runs whose owner is dead, under this user's folder; return their ids."""
    root = shm_root / f"weft-{os.getuid()}"
    return _sweep(root, None) if root.is_dir() and not root.is_symlink() else []


def sweep_runs(
    state_root: Path, resumable: Callable[[Path], bool], elsewhere: Callable[[Path], bool] | None = None
) -> list[str]:
    """Remove the state of runs whose owner is dead; of those that are `resumable`, only spilled chunks.

    `elsewhere` removes the objects of such a run that spilled to a URL; if it returns False the folder stays, and the
    next sweep tries again. Returns the ids of the removed runs.
    """
    root = state_root / "runs"
    return _sweep(root, resumable, elsewhere) if root.is_dir() else []


def _sweep(
    root: Path, resumable: Callable[[Path], bool] | None, elsewhere: Callable[[Path], bool] | None = None
) -> list[str]:
    swept: list[str] = []
    for entry in sorted(os.scandir(root), key=lambda entry: entry.name):
        folder = Path(entry.path)
        if not entry.is_dir(follow_symlinks=False):
            continue
        if entry.name.startswith(_TRASH):  # of a sweeper that was killed
            _remove_tree(folder)
            continue
        try:
            fd = _try_lock(folder)
        except OSError:  # another sweeper was faster, or it belongs to another user
            continue
        if fd is None:
            continue
        try:
            if elsewhere is not None and (folder / URL_FILE).exists() and not elsewhere(folder):
                continue
            if resumable is not None and resumable(folder):
                _remove_tree(folder / SPILL_NAME)
                continue
            remove_folder(folder)
            swept.append(entry.name)
        finally:
            os.close(fd)
    return swept


def remove_folder(folder: Path) -> None:
    """Rename and remove a folder, so that a concurrent maker of the same folder makes a new one.

    `sweep_trash` removes the rest of a failed or killed removal.
    """
    trash = folder.with_name(f"{_TRASH}{folder.name}-{os.urandom(8).hex()}")
    with suppress(FileNotFoundError):
        folder.rename(trash)
        _remove_tree(trash)


def _remove_tree(folder: Path) -> None:
    """Remove a folder as far as possible; never what a link leads to."""
    try:
        for _, folders, files, fd in os.fwalk(folder, topdown=False):
            for name in files:
                os.unlink(name, dir_fd=fd)
            for name in folders:
                try:
                    os.rmdir(name, dir_fd=fd)
                except NotADirectoryError:  # a link to a folder
                    os.unlink(name, dir_fd=fd)
        os.rmdir(folder)
    except OSError:
        import shutil  # it takes long to load, and seldom removes more

        shutil.rmtree(folder, ignore_errors=True)


def sweep_trash(root: Path) -> None:
    """Remove the rest of folders below `root` whose removal did not end."""
    for trash in root.glob(f"{_TRASH}*"):
        _remove_tree(trash)


# ------------------------------------------------------------------------------------------------ folders, step by step

_FOLDER_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def make_folders(root: str | Path, names: Iterable[str], *, make: bool = True) -> int:
    """Make nested folders below `root`, and return a descriptor of the last; the caller closes it.

    OSError: not possible, or such a name is a link or no folder. Without `make` they are only opened: FileNotFoundError
    if one is missing.
    """
    folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    for name in names:
        try:
            _check_plain(name)
            try:
                below = os.open(name, _FOLDER_FLAGS, dir_fd=folder)
            except FileNotFoundError:
                if not make:
                    raise
                below, _ = _make_at(name, folder)
        finally:
            os.close(folder)
        folder = below
    return folder


class OpenFolders:
    """Makes many sibling folders: their parents stay open until `close`. For one thread."""

    def __init__(self) -> None:
        self._above: tuple[str, ...] = ()
        self._folder = -1

    def make(self, root: str, names: Sequence[str]) -> tuple[int, bool]:
        """As `make_folders`; return the descriptor, which the caller closes, and whether the last folder is new."""
        if not names:
            return make_folders(root, names), False
        above = (root, *names[:-1])
        if above != self._above:
            self.close()
            self._folder, self._above = make_folders(root, names[:-1]), above
        _check_plain(names[-1])
        return _make_at(names[-1], self._folder)

    def close(self) -> None:
        """Close the open folders. A second call does nothing."""
        folder, self._folder, self._above = self._folder, -1, ()
        if folder >= 0:
            os.close(folder)


def _check_plain(name: str) -> None:
    if name in ("", ".", ".."):
        raise ForbiddenError(f"{name!r} cannot be the name of a folder", hint="Use plain names.")


def _make_at(name: str, folder: int) -> tuple[int, bool]:
    """Make a folder in an open one unless it exists; return a descriptor of it, and whether it is new."""
    new = True
    try:
        os.mkdir(name, dir_fd=folder)
    except FileExistsError:
        new = False
    return os.open(name, _FOLDER_FLAGS, dir_fd=folder), new


def remove_at(name: str, folder: int) -> None:
    """Remove the entry of this name in an open folder, if any: a file, a link, or a folder with its content.

    Folders of this user that are closed to writing are opened first.
    """
    try:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return
    if not stat.S_ISDIR(found.st_mode):
        os.unlink(name, dir_fd=folder)
        return
    import shutil

    try:
        shutil.rmtree(name, dir_fd=folder)
    except PermissionError:
        _open_up(name, folder)
        shutil.rmtree(name, dir_fd=folder)


def _open_up(name: str, folder: int) -> None:
    """Let this user write to a folder and to all folders in it."""
    mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
    if stat.S_IMODE(mode) & 0o700 != 0o700:
        os.chmod(name, stat.S_IMODE(mode) | 0o700, dir_fd=folder)
    fd = os.open(name, _FOLDER_FLAGS, dir_fd=folder)
    try:
        for entry in list(os.scandir(fd)):
            if entry.is_dir(follow_symlinks=False):
                _open_up(entry.name, fd)
    finally:
        os.close(fd)


# ---------------------------------------------------------------------------------------------------------- safe open

_FLAGS: Final = {
    "r": os.O_RDONLY,
    "w": os.O_WRONLY | os.O_CREAT,
    "a": os.O_WRONLY | os.O_CREAT | os.O_APPEND,
    "x": os.O_WRONLY | os.O_CREAT | os.O_EXCL,
}


def safe_open(root: Path | str, *parts: str, mode: str = "r", make_folders: bool = False) -> IO[Any]:
    """Open the file `parts` below `root` safely, whatever the parts; the one way to open a path given by a user.

    Each part may hold several names (`"a/b.txt"`). Modes are r, w, a, x, with b for bytes (text is UTF-8).
    `make_folders` makes missing parent folders (for writing).

    ForbiddenError: a part is absolute, empty, or has `..`, `.` or a NUL; a parent or the file is a symbolic link; or
    the file is not a regular one. NotFoundError: no such file. UsageError: no such mode.
    """
    kind, binary = mode.replace("b", ""), "b" in mode
    if kind not in _FLAGS or mode not in (kind, kind + "b"):
        raise UsageError(f"mode {mode!r} is not one of r, w, a, x, with or without b")
    how = ("r" if kind == "r" else "w") + ("b" if binary else "")
    names = [name for part in parts for name in _names(part)]
    if not names:
        raise ForbiddenError(f"the path below {root} is empty")
    shown = "/".join(names)
    folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for name in names[:-1]:
            if make_folders:
                with suppress(FileExistsError):
                    os.mkdir(name, 0o700, dir_fd=folder)
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
            below = _open_at(folder, name, flags, root, shown)
            os.close(folder)
            folder = below
        # Without O_NONBLOCK, opening a named pipe would wait for its other end.
        flags = _FLAGS[kind] | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        fd = _open_at(folder, names[-1], flags, root, shown)
    finally:
        os.close(folder)
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise ForbiddenError(f"{shown} below {root} is not a regular file")
        if kind == "w":
            os.ftruncate(fd, 0)
        os.set_blocking(fd, True)
        return os.fdopen(fd, how, encoding=None if binary else "utf-8")
    except BaseException:
        os.close(fd)
        raise


def _names(part: str) -> list[str]:
    names = part.split("/")
    if "\0" in part or any(name in ("", ".", "..") for name in names):
        raise ForbiddenError(
            f"the path {part!r} is not allowed",
            hint="Give a path below the folder, without a leading slash, '.', '..' or empty names.",
        )
    return names


def _open_at(folder: int, name: str, flags: int, root: Path | str, shown: str) -> int:
    try:
        return os.open(name, flags, 0o600, dir_fd=folder)
    except FileNotFoundError:
        raise NotFoundError(f"there is no file {shown} below {root}") from None
    except FileExistsError:
        raise ConflictError(f"the file {shown} below {root} exists already") from None
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR, errno.EISDIR, errno.ENXIO, errno.EACCES, errno.ENAMETOOLONG):
            raise ForbiddenError(
                f"{shown} below {root} may not be opened: {error.strerror}",
                hint="Links are not followed; every name on the way must be a folder, the last one a regular file.",
            ) from None
        raise


@contextmanager
def socket_name(path: Path) -> Iterator[str]:
    """Yield a socket name short enough for the system, which refuses paths of more than about 100 bytes."""
    if len(os.fsencode(path)) <= _LONGEST_SOCKET:
        yield str(path)
        return
    if not Path("/proc/self/fd").is_dir():
        hint = "Make its path shorter: name another state folder (on the command line --state-dir, in Python durable=)."
        raise UsageError(f"the path {path} is too long for a socket", hint=hint)
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)
