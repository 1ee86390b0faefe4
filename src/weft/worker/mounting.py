"""The mount namespace of a command: bind mounts at paths that may not exist on the machine.

This code runs in the child of the guardian between fork and exec, and is loaded only for commands with mounts; it
imports nothing of Weft. `enter` makes a mount namespace (for an ordinary user inside a user namespace that maps the
user to the same number, so that files keep their owners) and makes the mounts that `weft.operators.mounts` has planned:

- A folder without the mount point is *copied*: an empty file system in memory replaces it, every entry of the folder is
  bound into it by name, and the mount point is created there. The copy is read-only, so that no write is lost with it.
  Its entries are the real ones.
- Then each source is bound to its target.

The namespace ends with the last process of the command.
"""

from __future__ import annotations

import codecs
import ctypes
import errno
import os
import stat
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

CLONE_NEWNS, CLONE_NEWUSER = 0x00020000, 0x10000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT = 1, 2, 4, 8, 32
MS_NOATIME, MS_NODIRATIME, MS_BIND, MS_MOVE, MS_REC = 1024, 2048, 4096, 8192, 16384
MS_UNBINDABLE, MS_PRIVATE, MS_SLAVE, MS_RELATIME = 1 << 17, 1 << 18, 1 << 19, 1 << 21
OPEN_TREE, MOVE_MOUNT = 428, 429
"""Numbers of system calls, the same on all machines."""
AT_FDCWD, AT_RECURSIVE, OPEN_TREE_CLONE, MOVE_MOUNT_F_EMPTY_PATH = -100, 0x8000, 1, 4
KEPT = {b"nosuid": MS_NOSUID, b"nodev": MS_NODEV, b"noexec": MS_NOEXEC, b"noatime": MS_NOATIME}
KEPT |= {b"nodiratime": MS_NODIRATIME, b"relatime": MS_RELATIME}
"""Mount flags that an ordinary user cannot remove; each remount must repeat them."""


codecs.lookup("unicode_escape")  # a file by itself, which a mount may hide


class MountError(OSError):
    """A mount failed; `stage` names the step for the guardian's owner: see `weft.operators.call`."""

    def __init__(self, stage: bytes, number: int) -> None:
        super().__init__(number, os.strerror(number))
        self.stage = stage


def enter(
    copies: Sequence[bytes],
    made: Sequence[tuple[bytes, bool]],
    binds: Sequence[tuple[bytes, bytes, bool]],
    held: Sequence[bytes] = (),
    *,
    holder: int = -1,
    separate: bool = True,
) -> None:
    """Move this process and its descendants into a mount namespace; without `separate` they are in one already.

    `copies` are the folders to copy, outer folders first. `made` are mount points to create in the copies, each with
    whether it is a folder. `binds` are source, target and read-only, outer targets first. Sources at or below the
    folders `held` are those of another mount namespace, of which `holder` is an open file. MountError: the system
    forbids it (stage `namespace`), or a path is wrong (stages `source` and `mount`).
    """
    if sys.platform != "linux":
        raise MountError(b"namespace", errno.ENOSYS)
    libc = ctypes.CDLL(None, use_errno=True)
    if separate:
        separate_mounts(libc)
    stage = b""
    try:
        for folder in copies:
            stage = b"mount " + folder
            (_copy_root if folder == b"/" else _copy)(libc, folder)
        for path, is_folder in made:
            stage = b"mount " + path
            _make(path, is_folder)
        handles = []  # opened before any mount, because a mount may hide another source
        for source, _, _ in binds:
            stage = b"source " + source
            if any(source == folder or source.startswith(folder + b"/") for folder in held):
                handles.append((_clone(libc, holder, source), True))
            else:
                handles.append((os.open(source, os.O_PATH | os.O_CLOEXEC), False))
        for (handle, is_clone), (_, target, read_only) in zip(handles, binds):  # noqa: B905 - both have one for each
            stage = b"mount " + target
            if is_clone:
                _check(libc.syscall(MOVE_MOUNT, handle, b"", AT_FDCWD, target, MOVE_MOUNT_F_EMPTY_PATH))
            else:
                _mount(libc, b"/proc/self/fd/%d" % handle, target, MS_BIND | MS_REC)
            if read_only:
                for place, options in _mounts_at(target):
                    _read_only(libc, place, options)
        for folder in copies:
            stage = b"mount " + folder
            _read_only(libc, folder, b"nosuid,nodev")
    except OSError as error:
        raise MountError(stage, error.errno or errno.EIO) from None


def _clone(libc: ctypes.CDLL, namespace: int, source: bytes) -> int:
    """Return a copy of a mount of another mount namespace, as an open file; missing folders are made there."""
    own = os.open("/proc/self/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
    _check(libc.setns(namespace, CLONE_NEWNS))
    try:
        os.makedirs(source, exist_ok=True)
        clone = int(libc.syscall(OPEN_TREE, AT_FDCWD, source, OPEN_TREE_CLONE | AT_RECURSIVE | os.O_CLOEXEC))
        number = ctypes.get_errno()
    finally:
        _check(libc.setns(own, CLONE_NEWNS))
        os.close(own)
    if clone < 0:
        raise OSError(number, os.strerror(number))
    return clone


def separate_mounts(libc: ctypes.CDLL) -> None:
    """Move this process into a mount namespace of its own. MountError: the system forbids it.

    Root needs no user namespace and keeps its rights over other users' files.
    """
    try:
        user, group = os.geteuid(), os.getegid()
        if user != 0 or libc.unshare(CLONE_NEWNS) != 0:
            _check(libc.unshare(CLONE_NEWUSER | CLONE_NEWNS))
            for name, text in (
                ("setgroups", b"deny"),
                ("uid_map", b"%d %d 1" % (user, user)),
                ("gid_map", b"%d %d 1" % (group, group)),
            ):
                with open(f"/proc/self/{name}", "wb", buffering=0) as file:
                    file.write(text)
        # Later mounts of the machine appear here, but no mount of this namespace appears there.
        _mount(libc, None, b"/", MS_REC | MS_SLAVE)
    except OSError as error:
        raise MountError(b"namespace", error.errno or errno.EPERM) from None


def _copy(libc: ctypes.CDLL, folder: bytes) -> None:
    before = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    sources = {name: b"/proc/self/fd/%d/%b" % (before, name) for name in os.listdir(folder)}
    _mount(libc, b"tmpfs", folder, MS_NOSUID | MS_NODEV, b"tmpfs", b"mode=0755")
    _bind_all(libc, sources, folder)
    os.close(before)


def _copy_root(libc: ctypes.CDLL, root: bytes) -> None:
    """Copy the root: make the copy at another folder, move it over the root and enter it.

    A process in a changed root (chroot) could make no namespaces of its own; in a moved root it can.
    """
    before = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    sources = {name: b"/proc/self/fd/%d/%b" % (before, name) for name in os.listdir(root)}
    some = next(name for name in sources if name != b"proc" and stat.S_ISDIR(os.lstat(sources[name]).st_mode))
    hidden = os.open(sources[some], os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    sources[some] = b"/proc/self/fd/%d/." % hidden
    _mount(libc, b"tmpfs", root + some, MS_NOSUID | MS_NODEV, b"tmpfs", b"mode=0755")
    _mount(libc, None, root + some, MS_UNBINDABLE)  # the copy must not contain itself
    os.chdir(root + some)
    _bind_all(libc, sources, b".")
    _mount(libc, None, b".", MS_PRIVATE)
    _mount(libc, b".", root, MS_MOVE)
    os.chroot(b".")
    os.close(hidden)
    os.close(before)


def _bind_all(libc: ctypes.CDLL, sources: dict[bytes, bytes], folder: bytes) -> None:
    """Bind files and folders by name into an empty folder."""
    for name, source in sources.items():
        target = b"%b/%b" % (folder, name)
        try:
            mode = os.lstat(source).st_mode
            if stat.S_ISLNK(mode):
                os.symlink(os.readlink(source), target)
                continue
            _make(target, stat.S_ISDIR(mode))
            _mount(libc, source, target, MS_BIND | MS_REC)
        except OSError:
            continue  # a deleted entry, or a mount of a server that does not answer, is left out


def _make(path: bytes, is_folder: bool) -> None:
    if is_folder:
        os.mkdir(path, 0o755)
    else:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644))


def _read_only(libc: ctypes.CDLL, path: bytes, options: bytes) -> None:
    flags = 0
    for option in options.split(b","):
        flags |= KEPT.get(option, 0)
    _mount(libc, None, path, MS_REMOUNT | MS_BIND | MS_RDONLY | flags)


def _mounts_at(path: bytes) -> list[tuple[bytes, bytes]]:
    """Return the mounts at and below a path, with their options."""
    found = []
    with open("/proc/self/mountinfo", "rb") as file:
        for line in file:
            fields = line.split(b" ")
            place = fields[4].decode("unicode_escape").encode("latin-1")  # blanks are written as \040
            if place == path or place.startswith(path + b"/"):
                found.append((place, fields[5]))
    return found


def _mount(
    libc: ctypes.CDLL,
    source: bytes | None,
    target: bytes,
    flags: int,
    kind: bytes | None = None,
    data: bytes | None = None,
) -> None:
    _check(libc.mount(source, target, kind, ctypes.c_ulong(flags), data))


def _check(answer: int) -> None:
    if answer != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
