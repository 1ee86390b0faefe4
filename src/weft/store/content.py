"""The content of results, kept once: files named by their digest, and put in place on request.

A `ContentStore` lies on the file system of the artifacts, so that a file takes no second room where possible. A file is
put in place as a clone that shares blocks until one side is written (if the file system can do that). Without clones
an artifact is copied, so that no change of one run's files reaches another run or the store. Of a very large artifact
the files get a second name and are made read-only; a change in spite of that is found at the next use. A user who may
write read-only files (root) always gets copies.

The folder is closed to other users. An artifact is put in place without the permissions that its step took away from
it; those taken away from something in a folder are taken away from the folder and all that is in it.

`lock` is shared by stores and takes of content, and exclusive for the removal of unreferenced content.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import itertools
import json
import os
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

from weft.model.errors import CapacityError, ConflictError, DiskFullError, ForbiddenError, NotFoundError, WeftError
from weft.store.digests import (
    EXECUTABLE,
    FILE,
    FOLDER,
    LINK,
    Item,
    folder_digest,
    link_digest,
    read_listing,
    stamp_of,
    write_listing,
)
from weft.store.entries import CachedOutput, CacheIndex
from weft.store.folders import remove_at
from weft.store.limits import limit_advice
from weft.store.places import has_identity, identity_of, shown_path

if TYPE_CHECKING:
    from pathlib import Path

    from weft.store.folders import OpenFolders

_FICLONE: Final = 0x40049409
_BLOCK: Final = 1 << 20
_ZEROS: Final = bytes(_BLOCK)
_STAT_BLOCK: Final = 512
"""The bytes of a block in `st_blocks`."""
_NO_CLONES: Final = frozenset(
    {errno.EOPNOTSUPP, errno.EXDEV, errno.EINVAL, errno.ENOTTY, errno.ENOSYS, errno.EPERM, errno.ETXTBSY}
)
_NO_LINKS: Final = frozenset({errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP, errno.EACCES})
_SHOWN: Final = 200
COPIED_BYTES: Final = 1 << 30
COPIED_FILES: Final = 10_000
"""An artifact of at most so many bytes and files is copied, not shared: that takes up to a few seconds, and what a step
copies of it can be changed.
"""
SHARED: Final = ", through another name of it"
"""The end of the reason for a changed file that runs share."""


class ContentStore:
    """Files by their digest in one folder, which is made with the first kept file.

    `share` allows second names of a file in place of copies; it is False for root by default. Artifacts of at most
    `copied` bytes are copied all the same.
    """

    def __init__(
        self, folder: Path, index: CacheIndex, *, share: bool | None = None, copied: int = COPIED_BYTES
    ) -> None:
        self.folder = folder
        self.index = index
        self._lock = f"{folder}/lock"
        self._objects = f"{folder}/objects"
        self._users = folder / "users"
        self.share = os.geteuid() != 0 if share is None else share
        self.copied = copied
        self._no_clones: set[int] = set()
        self._mark = os.urandom(8).hex()
        self._numbers = itertools.count()
        self._made = False

    # --------------------------------------------------------------------------------------------------- storing

    def keep(self, path: str) -> CachedOutput:
        """Take over the content of an artifact and return its digest and size.

        Each file is first made the store's own and then read, so the kept bytes match the digest. ForbiddenError: it
        is, or contains, a link that leads out of it, or neither a file nor a folder. ConflictError: it changes
        meanwhile. NotFoundError: it is missing. DiskFullError: no room.
        """
        place = os.fsencode(path)
        self._make()
        try:
            about = os.lstat(place)
            files: list[int] = []
            modes: list[int] = []
            share = self._shares(*_size_of(place, about, self.copied))
            digest, newest = self._keep(place, about, place, (files, modes), share=share)
        except FileNotFoundError:
            raise NotFoundError(f"{path} does not exist") from None
        except OSError as error:
            raise _os_error(f"{path} cannot be kept in {self.folder}", error) from None
        return CachedOutput(digest, sum(files), len(files), newest, _hidden(modes))

    def _shares(self, size: int, files: int) -> bool:
        """Whether an artifact is so large that second names take the place of copies."""
        return self.share and (size > self.copied or files > COPIED_FILES)

    def _keep(
        self, path: bytes, about: os.stat_result, root: bytes, found: tuple[list[int], list[int]], *, share: bool
    ) -> tuple[str, int]:
        """Return the digest and the newest time of change of a file or a folder that is kept now.

        `found` gets the sizes of the files, and the modes of files and folders.
        """
        sizes, modes = found
        modes.append(about.st_mode)
        if stat.S_ISREG(about.st_mode):
            sizes.append(about.st_size)
            return self._keep_file(path, about, share=share), about.st_mtime_ns
        if not stat.S_ISDIR(about.st_mode):
            what = "a link that leads elsewhere" if stat.S_ISLNK(about.st_mode) else "neither a file nor a folder"
            raise ForbiddenError(f"{_shown(path)} is {what}")
        newest = about.st_mtime_ns
        items = []
        with os.scandir(path) as scan:
            entries = sorted(scan, key=lambda entry: entry.name)
        for entry in entries:
            target = b""
            if entry.is_symlink():
                target = os.readlink(entry.path)
                _check_link(root, path, target, entry.path)
                digest = link_digest(target)
            else:
                digest, changed = self._keep(entry.path, entry.stat(follow_symlinks=False), root, found, share=share)
                newest = max(newest, changed)
            items.append(Item(entry.name, digest, target))
        listing = write_listing(items)
        digest = folder_digest(listing)
        self.index.note_tree(digest, listing)
        return digest, newest

    def _keep_file(self, path: bytes, about: os.stat_result, *, share: bool) -> str:
        executable = bool(about.st_mode & 0o111)
        mode = (0o555 if executable else 0o444) & (about.st_mode | stat.S_IRWXU)
        draft = os.fsencode(self.folder / "drafts" / f"{self._mark}{next(self._numbers):x}")
        source = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            shared = False
            if self._clone(source, about.st_dev, draft, mode):
                content = _hash_file(draft)
            elif share and self._link(path, draft, source, mode):
                shared = True
                about = os.fstat(source)
                content = _hash_file(draft)
            else:
                content = _copy(source, draft, mode)
            if stamp_of(os.fstat(source)) != stamp_of(about):
                raise ConflictError(f"{_shown(path)} changed while it was copied into the cache")
            digest = (EXECUTABLE if executable else FILE) + content
            if self._problem(digest):  # not kept yet
                if not shared:
                    os.utime(draft, ns=(about.st_mtime_ns, about.st_mtime_ns))
                target = self._place(digest)
                with suppress(FileExistsError):
                    os.mkdir(os.path.dirname(target))
                os.rename(draft, target)
                self._trust(os.lstat(target), digest)
            else:
                os.unlink(draft)
            self._trust_for_now(os.fstat(source), digest)
        finally:
            os.close(source)
            with suppress(FileNotFoundError):
                os.unlink(draft)
        return digest

    # ---------------------------------------------------------------------------------------------------- taking

    def problem(self, output: CachedOutput) -> str:
        """Return why an output cannot be used any more, "" if it can: each file must be present and unchanged."""
        try:
            for digest in self.digests(output):
                problem = self._problem(digest)
                if problem:
                    return problem
        except NotFoundError as error:
            return error.message
        return ""

    def recall(self, outputs: Iterable[CachedOutput]) -> None:
        """Read the recorded digests of the files of outputs in one query, before `problem` looks them up one by one.

        The content of folders is not looked up for that.
        """
        found = []
        for output in outputs:
            if output.digest[0] != FOLDER:
                with suppress(OSError):
                    about = os.lstat(self._place(output.digest))
                    found.append((about.st_dev, about.st_ino))
        self.index.recall(found)

    def distrust(self, output: CachedOutput) -> None:
        """Drop the recorded stats of an output's files. NotFoundError: the listing of a folder is missing."""
        for digest in self.digests(output):
            with suppress(OSError):
                about = os.lstat(self._place(digest))
                self.index.note(about.st_dev, about.st_ino, "", "")

    def digests(self, output: CachedOutput) -> Iterator[str]:
        """Yield the digest of each file of an output. NotFoundError: a listing of a folder of it is missing."""
        todo = [output.digest]
        while todo:
            digest = todo.pop()
            if digest[0] == FOLDER:
                todo += [item.digest for item in read_listing(self.index.tree(digest))]
            elif digest[0] in (FILE, EXECUTABLE):
                yield digest

    def put(self, output: CachedOutput, root: str, path: str, folders: OpenFolders) -> None:
        """Put an output at an absolute path below `root`, in place of the old content; no link on the way is followed.

        `folders` makes the parent folders. ConflictError: a file was found to be damaged while it was copied.
        DiskFullError, ForbiddenError: it cannot be written.
        """
        top = root.rstrip("/") + "/"
        if not path.startswith(top):
            raise ForbiddenError(f"{path} is not below {root}")
        *above, name = [part for part in path[len(top) :].split("/") if part]
        draft = f".{name[:100]}.{self._mark}{next(self._numbers):x}"
        try:
            parent, new = folders.make(root, above)
        except OSError as error:
            raise _os_error(f"no room can be made for {path}", error) from None
        try:
            try:
                share = self._shares(output.size, output.files)
                self._put(output.digest, draft, parent, share=share, hidden=output.hidden)
                if not new:
                    remove_at(name, parent)
                os.rename(draft, name, src_dir_fd=parent, dst_dir_fd=parent)
            except BaseException:
                with suppress(OSError):
                    remove_at(draft, parent)
                raise
            found = os.stat(name, dir_fd=parent, follow_symlinks=False)
            if output.digest[0] == FOLDER:
                os.utime(name, ns=(output.modified_ns,) * 2, dir_fd=parent, follow_symlinks=False)
            else:
                self._trust_for_now(found, output.digest)
        except OSError as error:
            raise _os_error(f"{path} cannot be written", error) from None
        finally:
            os.close(parent)

    def _put(self, digest: str, name: str | bytes, parent: int, *, share: bool, hidden: int) -> None:
        if digest[0] != FOLDER:
            self._put_file(digest, name, parent, share=share, hidden=hidden)
            return
        os.mkdir(name, 0o777 & ~hidden, dir_fd=parent)
        folder = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
        try:
            for item in read_listing(self.index.tree(digest)):
                if item.digest[0] == LINK:
                    os.symlink(item.target, item.name, dir_fd=folder)
                else:
                    self._put(item.digest, item.name, folder, share=share, hidden=hidden)
                    if item.digest[0] != FOLDER:
                        self._trust_for_now(os.stat(item.name, dir_fd=folder, follow_symlinks=False), item.digest)
        finally:
            os.close(folder)

    def _put_file(self, digest: str, name: str | bytes, parent: int, *, share: bool, hidden: int) -> None:
        kept = self._place(digest)
        mode = (0o755 if digest[0] == EXECUTABLE else 0o644) & ~hidden
        source = os.open(kept, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            about = os.fstat(source)
            if self._clone(source, about.st_dev, name, mode, parent):
                pass
            elif (
                share
                and not about.st_mode & hidden
                and self._link(kept, name, source, stat.S_IMODE(about.st_mode), parent)
            ):
                self._trust(os.fstat(source), digest)
                return
            elif _copy(source, name, mode, parent) != digest[1:]:
                raise ConflictError(f"a file in the cache ({digest[1:13]}) was changed")
            os.utime(name, ns=(about.st_mtime_ns, about.st_mtime_ns), dir_fd=parent, follow_symlinks=False)
        finally:
            os.close(source)

    # --------------------------------------------------------------------------------------------------- removing

    def sweep(self, kept: Iterable[str]) -> tuple[int, int]:
        """Remove all files but the digests `kept`; return the number of removed files, and their bytes.

        Call it under `lock(exclusive=True)`.
        """
        wanted = {_name(digest) for digest in kept}
        files = size = 0
        for folder in [*sorted(self.folder.glob("objects/??")), self.folder / "drafts"]:
            with suppress(FileNotFoundError):
                for entry in list(os.scandir(folder)):
                    if folder.name + entry.name not in wanted:
                        size += entry.stat(follow_symlinks=False).st_size
                        files += 1
                        os.unlink(entry.path)
        return files, size

    def other_users(self) -> list[str]:
        """Return the state folders of other indexes with results in this store; lines of a copied store do not count.

        A state folder that was made anew in its place has none any more.
        """
        state = self.index.state
        if state is None:
            return []
        lines = self._users.read_text(encoding="utf-8").splitlines() if self._users.exists() else []
        inode = os.stat(self.folder).st_ino
        users = [user["state"] for user in map(json.loads, lines) if user["store"] == inode]
        return sorted({user["path"] for user in users if not has_identity(state, user) and not _is_replaced(user)})

    def _join(self) -> None:
        """Record that the index has results in this store."""
        state = self.index.state
        if state is None or not state.is_dir():
            return
        line = json.dumps({"state": identity_of(state), "store": os.stat(self.folder).st_ino}) + "\n"
        if not self._users.exists() or line not in self._users.read_text(encoding="utf-8"):
            fd = os.open(self._users, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
            try:
                os.write(fd, line.encode())
            finally:
                os.close(fd)

    def size(self) -> tuple[int, int]:
        """Return the number of kept files, and their bytes."""
        sizes = [path.lstat().st_size for path in self.folder.glob("objects/??/*")]
        return len(sizes), sum(sizes)

    @contextmanager
    def lock(self, *, exclusive: bool = False) -> Iterator[None]:
        """Lock the store: shared, no content is removed; exclusive, no other operation runs."""
        self._make()
        fd = os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH)
            yield
        finally:
            fcntl.flock(fd, fcntl.LOCK_UN)  # a forked child may hold a copy: closing would not be enough
            os.close(fd)

    # ---------------------------------------------------------------------------------------------------- inside

    def _make(self) -> None:
        if self._made:
            return
        try:
            # Not the folder above `.pipeline`: a project that is gone was moved.
            self.folder.parent.mkdir(exist_ok=True)
            self.folder.mkdir(0o700, exist_ok=True)
            for folder in (self.folder / "objects", self.folder / "drafts"):
                folder.mkdir(exist_ok=True)
            self._join()
        except OSError as error:
            raise _os_error(f"the store of the cache, {self.folder}, cannot be made", error) from None
        self._made = True

    def _place(self, digest: str) -> bytes:
        name = _name(digest)
        return os.fsencode(f"{self._objects}/{name[:2]}/{name[2:]}")

    def _problem(self, digest: str) -> str:
        """Return why a kept file cannot be used, "" if it can; it is read again only if its stat is unknown."""
        place = self._place(digest)
        try:
            about = os.lstat(place)
        except OSError:
            return f"a file that was kept ({digest[1:13]}) is gone"
        if self.index.digest(about.st_dev, about.st_ino, stamp_of(about)) == digest[1:]:
            return ""
        return self._reread(place, digest)

    def _reread(self, place: bytes, digest: str) -> str:
        """Verify a file by its content; a damaged one stays until the same content is kept again."""
        shared = ""
        with suppress(OSError):
            about = os.lstat(place)
            shared = SHARED if about.st_nlink > 1 else ""
            if _hash_file(place) == digest[1:] and stamp_of(os.lstat(place)) == stamp_of(about):
                self._trust(about, digest)
                return ""
        return f"a file in the cache ({digest[1:13]}) was changed{shared}"

    def _trust(self, about: os.stat_result, digest: str) -> None:
        """Record the digest of a file that was just written here, or read to its end."""
        self.index.note(about.st_dev, about.st_ino, stamp_of(about), digest[1:])

    def _trust_for_now(self, about: os.stat_result, digest: str) -> None:
        """Record the same for a file of one run, unless it is the kept file by another name."""
        note = self.index.note_for_now
        if about.st_nlink > 1:
            known = self.index.known(about.st_dev, about.st_ino)
            if known is not None and known[1] == digest[1:]:
                note = self.index.note
        note(about.st_dev, about.st_ino, stamp_of(about), digest[1:])

    def _clone(self, source: int, device: int, name: str | bytes, mode: int, parent: int | None = None) -> bool:
        """Make a file that shares its blocks with another until one of them is written. Return False if not possible
        here.
        """
        if device in self._no_clones:
            return False
        fd = _create(name, mode, parent)
        try:
            fcntl.ioctl(fd, _FICLONE, source)
        except OSError as error:
            os.unlink(name, dir_fd=parent)
            if error.errno not in _NO_CLONES:
                raise
            self._no_clones.add(device)
            return False
        finally:
            os.close(fd)
        return True

    @staticmethod
    def _link(path: bytes, name: str | bytes, source: int, mode: int, parent: int | None = None) -> bool:
        """Give a file a second name and make it read-only. Return False if not possible here."""
        try:
            if stat.S_IMODE(os.fstat(source).st_mode) != mode:
                os.fchmod(source, mode)
            os.link(path, name, dst_dir_fd=parent, follow_symlinks=False)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            return False
        return True


def _is_replaced(user: Mapping[str, Any]) -> bool:
    """Whether there is another folder in the place of a state folder."""
    return os.path.exists(user["path"]) and os.stat(user["path"]).st_ino != user["inode"]


def _size_of(path: bytes, about: os.stat_result, most: int) -> tuple[int, int]:
    """Return the bytes and the number of files of an artifact; less, but too many, for a large one."""
    if not stat.S_ISDIR(about.st_mode):
        return about.st_size, 1
    size = files = 0
    todo = [path]
    while todo and size <= most and files <= COPIED_FILES:
        with os.scandir(todo.pop()) as scan:
            for entry in scan:
                if entry.is_dir(follow_symlinks=False):
                    todo.append(entry.path)
                else:
                    size, files = size + entry.stat(follow_symlinks=False).st_size, files + 1
    return size, files


def _hidden(modes: Collection[int]) -> int:
    """Return the permissions of the group and of others without those who can read all files and folders."""
    group = all(mode & stat.S_IRGRP for mode in modes)
    others = all(mode & stat.S_IROTH for mode in modes)
    return (0 if group else stat.S_IRWXG) | (0 if others else stat.S_IRWXO)


def read_only_file(path: str, *, shared: bool = False, most: int = COPIED_FILES) -> str:
    """Return a read-only file at or below a path, the first of `most`, or "".

    With `shared`, only one that has another name: the form in which runs share very large artifacts.
    """
    todo = [path]
    for _ in range(most):
        if not todo:
            break
        place = todo.pop()
        try:
            about = os.lstat(place)
            if stat.S_ISDIR(about.st_mode):
                todo += [f"{place}/{name}" for name in os.listdir(place)]
            elif stat.S_ISREG(about.st_mode) and not about.st_mode & stat.S_IWUSR and about.st_nlink > shared:
                return place
        except OSError:  # it goes away meanwhile, or is closed to this user
            continue
    return ""


def _create(name: str | bytes, mode: int, parent: int | None) -> int:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.open(name, flags, mode, dir_fd=parent)


def _copy(source: int, name: str | bytes, mode: int, parent: int | None = None) -> str:
    """Copy all of a file, its holes as holes, and return the digest of the copied bytes."""
    fd = _create(name, mode, parent)
    content = hashlib.sha256()
    about = os.fstat(source)
    has_holes = about.st_blocks * _STAT_BLOCK < about.st_size
    size = 0
    try:
        while block := os.read(source, _BLOCK):
            content.update(block)
            size += len(block)
            if has_holes and block == _ZEROS[: len(block)]:
                os.lseek(fd, size, os.SEEK_SET)
                continue
            rest = memoryview(block)
            while rest:
                rest = rest[os.write(fd, rest) :]
        if has_holes:
            os.ftruncate(fd, size)
    finally:
        os.close(fd)
    return content.hexdigest()


def _hash_file(path: bytes) -> str:
    content = hashlib.sha256()
    with open(path, "rb", buffering=0) as file:
        while block := file.read(_BLOCK):
            content.update(block)
    return content.hexdigest()


def _check_link(root: bytes, folder: bytes, target: bytes, link: bytes) -> None:
    end = os.path.normpath(os.path.join(folder, target))
    if target.startswith(b"/") or not (end == root or end.startswith(root + b"/")):
        raise ForbiddenError(f"{_shown(link)} is a link that leads out of the artifact")


def _name(digest: str) -> str:
    return digest[1:] + (".x" if digest[0] == EXECUTABLE else "")


def _shown(path: bytes) -> str:
    return shown_path(path)[-_SHOWN:]


def _os_error(what: str, error: OSError) -> WeftError:
    message = f"{what}: {error.strerror or error}"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskFullError(message, hint="Free space on this disk, for example: weft cache gc")
    if advice := limit_advice(error):
        return CapacityError(message, hint=advice)
    return ForbiddenError(message, hint="Check your write permission there, and that no folder on the path is a link.")
