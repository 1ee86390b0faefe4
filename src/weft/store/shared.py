"""Objects below one URL that the machines of a run share: files and folders, each written whole and described last.

An object is a file, or a folder packed as an archive (tar). Its `SharedObject` says what it holds; whoever reads
it checks the digest. An object has a name of its own for each time that it is written, and its description is written
after it, so that a half upload is never taken for an artifact.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import stat
import tarfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Final, TypeVar

import msgspec

from weft.model.errors import CapacityError, ConflictError, DiskFullError, ForbiddenError, NotFoundError
from weft.store.folders import make_folders, remove_at
from weft.store.objects import protocols_of, tried, why_unusable
from weft.store.remote import opened, shown

_BUCKETS: Final = frozenset({"s3", "s3a", "gs", "gcs", "az", "abfs", "adl", "oss", "memory"})
"""Stores whose folders are only names: making one could make a bucket."""
_LOCAL: Final = frozenset({"file", "local"})
_CREATE: Final = _LOCAL | {"s3", "s3a", "gs", "gcs"}
"""Stores that can write an object only if there is none, in one step."""
_T = TypeVar("_T")


class SharedObject(msgspec.Struct, frozen=True, kw_only=True):
    """What an object holds: a file, or with `packed` the archive of a folder. `digest` is the SHA-256 of its bytes.

    `name` is the path below the URL, `size` is in bytes, `modified_ns` is in ns since 1970.
    """

    name: str
    digest: str
    size: int
    packed: bool = False
    executable: bool = False
    modified_ns: int = 0


_read_description: Final = msgspec.json.Decoder(SharedObject).decode


class SharedStorage:
    """The objects below a URL. Safe for any thread.

    MissingExtraError: fsspec, or a library for such a URL, is not installed. UsageError: no such kind of URL.
    """

    def __init__(self, url: str, *, wait: Callable[[float], object] | None = None) -> None:
        self.url = url
        self._wait = wait
        self._fs, path = opened(url)
        self._root = path.rstrip("/")
        self._folders = _BUCKETS.isdisjoint(protocols_of(self._fs))
        self.can_create = not _CREATE.isdisjoint(protocols_of(self._fs))
        """Whether `create` is possible at this kind of URL."""

    def put(self, file: str, name: str) -> None:
        """Write a file of this machine to an object. CapacityError: that is not possible."""
        self._make_folder(name)
        self._asked("write to", lambda: self._fs.put_file(file, self._at(name)))

    def put_bytes(self, data: bytes, name: str) -> None:
        """Write an object in one step. CapacityError: that is not possible."""
        self._make_folder(name)
        action = _replace if self._is_local else self._fs.pipe_file
        self._asked("write to", lambda: action(self._at(name), data))

    def create(self, data: bytes, name: str) -> bool:
        """Write an object unless there is one of this name, in one step. Return whether it was written.

        A retry after a lost answer may find its own object. CapacityError: that is not possible.
        """
        self._make_folder(name)
        path = self._at(name)
        action = _link_new if self._is_local else self._create

        def created() -> bool:
            try:
                action(path, data)
            except FileExistsError:
                return False
            return True

        return self._asked("write to", created)

    @property
    def _is_local(self) -> bool:
        return not _LOCAL.isdisjoint(protocols_of(self._fs))

    def _create(self, path: str, data: bytes) -> None:
        self._fs.pipe_file(path, data, mode="create")

    def read(self, name: str) -> bytes:
        """Return the bytes of an object. NotFoundError: there is none. CapacityError: the URL cannot be read."""
        return bytes(self._asked("read from", lambda: self._fs.cat_file(self._at(name))))

    def names(self, below: str) -> list[str]:
        """Return the names of all objects below a name, sorted. CapacityError: the URL cannot be read."""
        self._fs.invalidate_cache()
        try:
            found = self._asked("read from", lambda: self._fs.find(self._at(below)))
        except NotFoundError:
            return []
        start = len(self._root) + 1
        return sorted(path[start:] for path in found)

    def get(self, found: SharedObject, file: str) -> None:
        """Fetch an object to a file of this machine. NotFoundError: it is gone. ConflictError: it has other content.

        CapacityError: the URL cannot be read. DiskFullError: no room on this machine.
        """
        try:
            self._asked("read from", lambda: self._fs.get_file(self._at(found.name), file))
        except NotFoundError:
            raise NotFoundError(f"{shown(self.url)}/{found.name} is gone", hint="Run again.") from None
        with open(file, "rb") as source:
            digest = hashlib.file_digest(source, "sha256").hexdigest()
        if digest != found.digest:
            raise ConflictError(
                f"{shown(self.url)}/{found.name} has other content than its writer has told", hint="Run again."
            )

    def has(self, name: str) -> bool:
        """Whether there is such an object. CapacityError: the URL cannot be read."""
        self._fs.invalidate_cache()
        return bool(self._asked("read from", lambda: self._fs.exists(self._at(name))))

    def description(self, name: str) -> SharedObject | None:
        """Return the description of the object last written under a name; None: there is no complete one."""
        self._fs.invalidate_cache()
        try:
            data = self._asked("read from", lambda: self._fs.cat_file(self._at(f"{name}.json")))
            return _read_description(data)
        except (NotFoundError, msgspec.DecodeError):
            return None

    def remove(self, *below: str) -> None:
        """Remove all objects below some names. CapacityError: they could not be removed."""
        self._fs.invalidate_cache()
        with suppress(NotFoundError):
            self._asked("remove from", lambda: self._fs.rm([self._at(name) for name in below], recursive=True))

    def _at(self, name: str) -> str:
        return f"{self._root}/{name}"

    def _make_folder(self, name: str) -> None:
        if self._folders:
            folder = self._at(name).rpartition("/")[0]
            self._asked("write to", lambda: self._fs.makedirs(folder, exist_ok=True))

    def _asked(self, what: str, action: Callable[[], _T]) -> _T:
        try:
            return tried(action, wait=self._wait)
        except FileNotFoundError as error:
            if what != "write to":
                raise NotFoundError(f"cannot {what} {shown(self.url)}: there is no {error}") from None
            raise self._refused(what, error) from None
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                message = f"cannot {what} {shown(self.url)}: {error.strerror}"
                raise DiskFullError(message, hint="Free space on this disk, or there.") from None
            raise self._refused(what, error) from None
        except Exception as error:  # noqa: BLE001 - the library of each store raises errors of its own
            raise self._refused(what, error) from None

    def _refused(self, what: str, error: Exception) -> CapacityError:
        why, hint = why_unusable(error, self.url)
        return CapacityError(f"cannot {what} {shown(self.url)}: {why}", hint=hint)


def _link_new(path: str, data: bytes) -> None:
    """Make a file with all its bytes. FileExistsError: there is one."""
    with _draft(path, data) as draft:
        os.link(draft, path)


def _replace(path: str, data: bytes) -> None:
    """Make or replace a file; whoever reads it meanwhile finds all bytes of the one or of the other."""
    with _draft(path, data) as draft:
        os.replace(draft, path)


@contextmanager
def _draft(path: str, data: bytes) -> Iterator[str]:
    """Write bytes to a file beside the one of a path; what is left of it at the end goes."""
    draft = f"{path}.{os.urandom(6).hex()}.draft"
    try:
        with open(draft, "xb") as out:
            out.write(data)
            out.flush()
            os.fsync(out.fileno())
        yield draft
    finally:
        with suppress(FileNotFoundError):
            os.unlink(draft)


# -------------------------------------------------------------------------------------------- files and folders here


def send(storage: SharedStorage, path: str, name: str, scratch: str) -> SharedObject | None:
    """Write a file or a folder to objects that begin with `name`; None: there is none. Then its description.

    `scratch` is a folder for archives. ForbiddenError: it is neither a file nor a folder.
    """
    try:
        about = os.lstat(path)
    except FileNotFoundError:
        return None
    if stat.S_ISLNK(about.st_mode):
        about = os.stat(path)
    token = os.urandom(6).hex()
    packed = stat.S_ISDIR(about.st_mode)
    if not packed and not stat.S_ISREG(about.st_mode):
        raise ForbiddenError(f"{path} is neither a file nor a folder")
    draft = os.path.join(scratch, f"{token}.tar")
    try:
        if packed:
            digest, size = pack([(path, "")], draft)
        else:
            with open(path, "rb") as source:
                digest, size = hashlib.file_digest(source, "sha256").hexdigest(), about.st_size
        known = storage.description(name)
        if known is not None and known.digest == digest and storage.has(known.name):
            return known
        found = SharedObject(
            name=f"{name}.{token}",
            digest=digest,
            size=size,
            packed=packed,
            executable=bool(about.st_mode & 0o111) and not packed,
            modified_ns=about.st_mtime_ns,
        )
        storage.put(draft if packed else path, found.name)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(draft)
    storage.put_bytes(msgspec.json.encode(found), f"{name}.json")
    return found


def fetch(storage: SharedStorage, found: SharedObject, root: str, path: str) -> None:
    """Put what an object holds at an absolute path below the folder `root`, in place of what is there.

    No link on the way is followed. Errors are those of `get`; ForbiddenError: the path cannot be written.
    """
    *above, last = [part for part in os.path.relpath(path, root).split("/") if part]
    draft = f".{last[:100]}.{os.urandom(6).hex()}"
    try:
        parent = make_folders(root, above)
    except OSError as error:
        raise _failed(path, error) from None
    here = os.path.dirname(path)
    try:
        file = os.path.join(here, f"{draft}.tar" if found.packed else draft)
        try:
            storage.get(found, file)
            if found.packed:
                unpack(file, os.path.join(here, draft))
            else:
                os.chmod(file, 0o755 if found.executable else 0o644)
            os.utime(os.path.join(here, draft), ns=(found.modified_ns, found.modified_ns))
            with suppress(FileNotFoundError):
                remove_at(last, parent)
            os.rename(draft, last, src_dir_fd=parent, dst_dir_fd=parent)
        finally:
            for name in {draft, os.path.basename(file)}:
                with suppress(OSError):
                    remove_at(name, parent)
    except (OSError, tarfile.TarError) as error:
        raise _failed(path, error) from None
    finally:
        os.close(parent)


def _failed(path: str, error: Exception) -> ForbiddenError | DiskFullError:
    why = getattr(error, "strerror", None) or str(error)
    if getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT):
        return DiskFullError(f"{path} cannot be written: {why}", hint="Free space on this disk.")
    return ForbiddenError(f"{path} cannot be written: {why}", hint="See that you may write there.")


def pack(
    parts: Iterable[tuple[str, str]], file: str, skipped: Callable[[str, str], bool] = lambda path, name: False
) -> tuple[str, int]:
    """Pack folders into a new archive, each below a name in it; return the SHA-256 of the archive, and its bytes.

    `skipped` is asked for each path and its name below its folder. Equal content gives equal bytes. Links that lead out
    of their folder are left out, and so is what is neither a file nor a folder.
    """
    with tarfile.open(file, "x", format=tarfile.PAX_FORMAT) as archive:
        for folder, name in parts:
            _pack_folder(archive, folder, name, skipped)
    with open(file, "rb") as source:
        return hashlib.file_digest(source, "sha256").hexdigest(), os.path.getsize(file)


def _pack_folder(archive: tarfile.TarFile, top: str, name: str, skipped: Callable[[str, str], bool]) -> None:
    real = os.path.realpath(top) + "/"
    for folder, folders, files in os.walk(top):
        below = os.path.relpath(folder, top)
        kept = []
        for entry in sorted([*folders, *files]):
            path = os.path.join(folder, entry)
            short = entry if below == "." else f"{below}/{entry}"
            if skipped(path, short):
                continue
            if (about := _described(path, f"{name}/{short}" if name else short, real)) is not None:
                _add(archive, about, path)
                if about.isdir():
                    kept.append(entry)
        folders[:] = kept


def _described(path: str, name: str, top: str) -> tarfile.TarInfo | None:
    """Return the entry of a path in an archive; None: it is left out, or was removed meanwhile."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return None
    about = tarfile.TarInfo(name)
    about.mtime = found.st_mtime_ns / 1e9
    if stat.S_ISREG(found.st_mode):
        about.size, about.mode = found.st_size, 0o755 if found.st_mode & 0o111 else 0o644
    elif stat.S_ISDIR(found.st_mode):
        about.type, about.mode = tarfile.DIRTYPE, 0o755
    elif stat.S_ISLNK(found.st_mode):
        real, target = os.path.realpath(path), os.readlink(path)
        if not f"{real}/".startswith(top):
            return None
        about.type = tarfile.SYMTYPE
        about.linkname = os.path.relpath(real, os.path.realpath(os.path.dirname(path))) if target[:1] == "/" else target
    else:
        return None
    return about


def _add(archive: tarfile.TarFile, about: tarfile.TarInfo, path: str) -> None:
    if not about.isreg():
        archive.addfile(about)
        return
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as source:
        try:
            archive.addfile(about, source)
        except OSError as error:
            if error.errno is None:  # it has become shorter
                raise ConflictError(f"{path} changed while it was packed", hint="Run again.") from None
            raise


def unpack(file: str, folder: str) -> None:
    """Unpack an archive into a new folder; nothing lands outside of it. tarfile.TarError: it is damaged."""
    os.mkdir(folder)
    try:
        with tarfile.open(file, "r:") as archive:
            archive.extractall(folder, filter="data")
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
