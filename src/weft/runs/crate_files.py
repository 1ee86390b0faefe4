"""The files of a crate: a folder or a ZIP file that appears complete or not at all."""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import time
from contextlib import contextmanager, suppress
from typing import IO, TYPE_CHECKING, Any, Final, Protocol

from msgspec import Struct

from weft.model.errors import ConflictError, NotFoundError
from weft.store.state import os_error

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_CHUNK: Final = 1 << 20
_FILE: Final = 0o666
_FOLDER: Final = 0o777
_OWN_FILE: Final = 0o600
_OWN_FOLDER: Final = 0o700


class CrateFile(Struct, frozen=True):
    """A file of a crate: its path from the top, its bytes, and the SHA-256 of its content in hexadecimal digits."""

    name: str
    size: int
    sha256: str


class CrateTarget(Protocol):
    """What the files of a crate are written to."""

    def open(self, name: str, mode: int = _FILE) -> Any:
        """Open a new file for bytes, a context manager; `name` is its path from the top.

        Others have no right to it that is not in `mode`.
        """
        ...

    def make_folder(self, name: str, mode: int = _FOLDER) -> None:
        """Make a folder, if no file in it has made it; others have no right to it that is not in `mode`."""
        ...

    def finish(self) -> None:
        """Put the crate in its place."""
        ...

    def discard(self) -> None:
        """Remove what was written."""
        ...


class _FolderTarget:
    """A folder whose draft only its owner can enter, since private files are in it before private folders are."""

    def __init__(self, place: Path) -> None:
        self._place, self._draft = place, place.with_name(f".{place.name[:100]}.{os.getpid()}")
        self._draft.mkdir()
        self._folders = {self._draft: stat.S_IMODE(self._draft.stat().st_mode)}
        self._draft.chmod(_OWN_FOLDER)

    def open(self, name: str, mode: int = _FILE) -> IO[bytes]:
        path = self._draft / name
        path.parent.mkdir(parents=True, exist_ok=True)
        return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode | _OWN_FILE), "wb")

    def make_folder(self, name: str, mode: int = _FOLDER) -> None:
        path = self._draft / name
        path.mkdir(parents=True, exist_ok=True)
        self._folders[path] = stat.S_IMODE(path.stat().st_mode) & (mode | _OWN_FOLDER)

    def finish(self) -> None:
        for path, mode in reversed(self._folders.items()):  # last, since nothing can be added to some of them then
            path.chmod(mode)
        self._draft.replace(self._place)  # an empty folder of that name may be there

    def discard(self) -> None:
        shutil.rmtree(self._draft, ignore_errors=True)


class _ZipTarget:
    """A ZIP file with the modes of its files; it can be read by those who can read each file in it."""

    def __init__(self, place: Path) -> None:
        from zipfile import ZIP_DEFLATED, ZipFile

        self._place, self._draft = place, place.with_name(f".{place.name[:100]}.{os.getpid()}")
        self._file = self._draft.open("xb")
        self._mode = stat.S_IMODE(os.fstat(self._file.fileno()).st_mode)
        os.fchmod(self._file.fileno(), self._mode & _OWN_FILE)
        self._zip = ZipFile(self._file, "w", ZIP_DEFLATED)

    def open(self, name: str, mode: int = _FILE) -> IO[bytes]:
        from zipfile import ZIP_DEFLATED, ZipInfo

        entry = ZipInfo(name, time.localtime()[:6])
        entry.compress_type = ZIP_DEFLATED
        entry.external_attr = (stat.S_IFREG | mode) << 16
        self._mode &= mode | _OWN_FILE
        return self._zip.open(entry, "w", force_zip64=True)

    def make_folder(self, name: str, mode: int = _FOLDER) -> None:
        self._zip.mkdir(name, mode)
        self._mode &= mode | _OWN_FILE

    def finish(self) -> None:
        self._zip.close()
        os.fchmod(self._file.fileno(), self._mode)
        self._file.close()
        self._draft.replace(self._place)

    def discard(self) -> None:
        with suppress(Exception):
            self._zip.close()
        self._file.close()
        with suppress(FileNotFoundError):
            self._draft.unlink()


@contextmanager
def crate_target(place: Path) -> Iterator[CrateTarget]:
    """Write a crate to a new folder, or to a ZIP file if the name ends in `.zip`; an error leaves nothing behind.

    ConflictError: the file exists, or the folder is not empty. NotFoundError: the folder above is missing.
    ForbiddenError, DiskFullError: it cannot be written.
    """
    zipped = place.suffix.lower() == ".zip"
    if not place.parent.is_dir():
        raise NotFoundError(f"there is no folder {place.parent}", hint="Make it first.")
    if os.path.lexists(place) and (zipped or not place.is_dir() or any(place.iterdir())):
        raise ConflictError(f"{place} exists already", hint="Name a new folder or a new ZIP file with -o.")
    try:
        target: CrateTarget = _ZipTarget(place) if zipped else _FolderTarget(place)
        try:
            yield target
            target.finish()
        except BaseException:
            target.discard()
            raise
    except OSError as error:
        raise os_error(f"the crate {place} cannot be written", error, "name another place with -o.") from None


def add_text(target: CrateTarget, name: str, text: str) -> CrateFile:
    """Add a file with a text."""
    data = text.encode(errors="backslashreplace")
    with target.open(name) as file:
        file.write(data)
    return CrateFile(name, len(data), hashlib.sha256(data).hexdigest())


def add_file(target: CrateTarget, name: str, source: Path) -> CrateFile | None:
    """Add a copy of a plain file, for those who can read it; None: it is a link, or no plain file, or gone."""
    try:
        fd = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    digest, size = hashlib.sha256(), 0
    with os.fdopen(fd, "rb") as file:
        mode = os.fstat(fd).st_mode
        if not stat.S_ISREG(mode):
            return None
        with target.open(name, stat.S_IMODE(mode) & _FOLDER) as copy:
            while data := file.read(_CHUNK):
                digest.update(data)
                size += len(data)
                copy.write(data)
    return CrateFile(name, size, digest.hexdigest())


def digest_file(name: str, source: Path) -> CrateFile | None:
    """Return the size and the digest of a plain file without a copy; None as of `add_file`."""
    return add_file(_Nowhere(), name, source)


class _Nowhere:
    """Takes files and keeps none."""

    def open(self, name: str, mode: int = _FILE) -> IO[bytes]:
        return open(os.devnull, "wb")

    def make_folder(self, name: str, mode: int = _FOLDER) -> None:
        """Nothing is to be made."""

    def finish(self) -> None:
        """Nothing is to be put anywhere."""

    def discard(self) -> None:
        """Nothing was written."""
