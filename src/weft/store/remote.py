"""Remote folders, such as on an object store, and their local copies for steps.

A URL of fsspec names the folder. Its copy is kept beside the runs and brought up to date before a run: the store is
listed, and files with another ETag, or another size, are fetched. Without ETags the time of the last change counts. So
an unchanged file is not touched here, and its digest is known without reading.

Runs hold the copy by a shared lock. Changes need an exclusive lock, so that no file changes under the steps of a run.
The folder of a copy holds:

    files/            the copy
    manifest.json     of each fetched file: its stamp in the store, and size and time of the copy
    incoming/         files being fetched
    lock
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import re
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from weft.model.errors import ConflictError, DiskFullError, ForbiddenError, MissingExtraError, NotFoundError, UsageError
from weft.store.digests import LEFT_OUT
from weft.store.folders import make_folders, remove_at

if TYPE_CHECKING:
    from pathlib import Path

FILES: Final = "files"
MANIFEST: Final = "manifest.json"
_LOCK: Final = "lock"
_INCOMING: Final = "incoming"
_CONTENT: Final = ("ETag", "etag", "md5Hash", "content_md5", "checksum", "crc32c")
_TIMES: Final = ("mtime", "LastModified", "last_modified", "modified", "updated", "created")
_BATCH: Final = 64
_SKIPPED: Final = frozenset(os.fsdecode(name) for name in LEFT_OUT)


class Fetched(NamedTuple):
    """The update of a copy: fetched files and their bytes, and removed files."""

    files: int = 0
    size: int = 0
    removed: int = 0


def folder_for(url: str, stage: Path) -> Path:
    """Return the folder below `stage` that belongs to a URL."""
    return stage / hashlib.sha256(url.encode()).hexdigest()[:16]


def shown(url: str) -> str:
    """Return a URL without its secrets."""
    return re.sub(r"//[^/@]*@", "//...@", url).partition("?")[0]


def shared_url(url: str, shown_as: str) -> str:
    """Return a URL without its last slashes. UsageError: it is none, or has credentials in it.

    The URL is written to the records of the run.
    """
    if not re.match(r"[A-Za-z][A-Za-z0-9+.-]*://.", url) or not url.isprintable():
        hint = "Name a place that all machines reach, such as s3://bucket/prefix or file:///mnt/shared."
        raise UsageError(f"{shown_as} is {shown(url)!r}, which is no URL", hint=hint)
    if "?" in url or "@" in url.partition("://")[2].partition("/")[0]:
        raise UsageError(
            f"{shown_as} is {shown(url)}, with credentials in the URL, which records would show",
            hint="Leave them to the environment of each machine, such as AWS_ACCESS_KEY_ID or its role.",
        )
    return url.rstrip("/")


def opened(url: str) -> tuple[Any, str]:
    """Return the file system of a URL, and the path in it.

    MissingExtraError: fsspec, or a library for such a URL, is not installed. UsageError: no such kind of URL.
    """
    try:
        from fsspec.core import url_to_fs
    except ModuleNotFoundError:
        message = f"the file system {shown(url)} needs fsspec, which is not installed"
        raise MissingExtraError(message, hint="Install it: pip install 'weft[fs]'") from None
    try:
        system, path = url_to_fs(url)
    except ImportError as error:
        message = f"the file system {shown(url)} cannot be used: {error}"
        raise MissingExtraError(message, hint="Install what fsspec needs for it, such as s3fs or gcsfs.") from None
    except ValueError as error:
        raise UsageError(f"{shown(url)} is not a file system: {error}", hint="Write for example s3://b/p") from None
    return system, str(path)


def matching(url: str) -> dict[str, int]:
    """Return the files that a URL names, which may be a pattern or a folder, with their sizes; errors of `opened`.

    ForbiddenError: the file system refuses to list them.
    """
    system, path = opened(url)
    system.invalidate_cache()
    try:
        if any(sign in path for sign in "*?["):
            found = system.glob(path, detail=True)
        elif system.isdir(path):
            found = system.find(path, detail=True)
        elif system.exists(path):
            found = {path: system.info(path)}
        else:
            found = {}
    except PermissionError as error:
        raise ForbiddenError(f"{shown(url)} cannot be read: {error}") from None
    files = {name: about for name, about in found.items() if about.get("type") != "directory"}
    return {_url_of(system, name, url): int(about.get("size") or 0) for name, about in sorted(files.items())}


def stamp_at(url: str) -> str:
    """Return what changes with the content of a file at a URL, "" if it is missing; errors as of `matching`."""
    system, path = opened(url)
    system.invalidate_cache()
    try:
        return _stamp(system.info(path))
    except FileNotFoundError:
        return ""
    except PermissionError as error:
        raise ForbiddenError(f"{shown(url)} cannot be read: {error}") from None


def _url_of(system: Any, name: str, like: str) -> str:
    """Return the URL of a file of the file system of the URL `like`."""
    path = str(system._strip_protocol(name))
    return path if "://" in path else f"{like.partition('://')[0]}://{path.lstrip('/')}"


class Remote:
    """One remote folder with its copy in `folder`.

    MissingExtraError: fsspec, or a library for such a URL, is not installed. UsageError: no such kind of URL.
    """

    def __init__(self, url: str, folder: Path) -> None:
        self.url = url
        self.folder = folder
        self.files = folder / FILES
        self._fs, path = opened(url)
        self._root = str(path).rstrip("/")

    # ---------------------------------------------------------------------------------------------------- fetching

    def hold(self, below: Iterable[str], *, fetch: bool = True) -> tuple[Fetched, Callable[[], None]]:
        """Hold the copy, up to date in the folders `below` ("" for all); return the update, and the release function.

        Without `fetch` it stays as it is, unless it is missing. ConflictError: an update is needed while another run
        uses it.
        """
        (self.folder / _INCOMING).mkdir(mode=0o700, parents=True, exist_ok=True)
        self.files.mkdir(exist_ok=True)
        lock = os.open(self.folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        done = Fetched()
        try:
            alone = _try_alone(lock)
            if not alone:
                fcntl.flock(lock, fcntl.LOCK_SH)
            if fetch or not (self.folder / MANIFEST).exists():
                tops = _tops(below)
                there = self._list(tops)
                known = self._known()
                wanted = {name: seen for name, seen in there.items() if not self._is_current(name, seen[0], known)}
                gone = [name for name in self._here(tops) if name not in there]
                if (wanted or gone) and not alone:
                    raise ConflictError(
                        f"{shown(self.url)} has changed, and another run works in the copy of it",
                        hint="Wait for the other run to end; see: weft ls",
                    )
                for name in gone:
                    (self.files / name).unlink(missing_ok=True)
                    known.pop(name, None)
                self._fetch(wanted, known)
                if wanted or gone or not (self.folder / MANIFEST).exists():
                    self._remember(known)
                done = Fetched(len(wanted), sum(size for _, size in wanted.values()), len(gone))
            fcntl.flock(lock, fcntl.LOCK_SH)
        except BaseException:
            os.close(lock)
            raise
        return done, lambda: os.close(lock)

    def _list(self, tops: Iterable[str]) -> dict[str, tuple[str, int]]:
        """Return the listing of the store: the stamp and the size of each file."""
        found: dict[str, tuple[str, int]] = {}
        with self._asking("listed"):
            self._fs.invalidate_cache()
            for top in tops:
                for path, about in self._fs.find(self._at(top), detail=True).items():
                    name = str(path)[len(self._root) :].lstrip("/")
                    parts = name.split("/")
                    if about.get("type") == "directory" or not parts[-1] or not _SKIPPED.isdisjoint(parts):
                        continue
                    if any(part in ("", ".", "..") or "\0" in part for part in parts):
                        message = f"{shown(self.url)} has a file name that this machine does not allow: {name[:100]!r}"
                        raise ConflictError(message, hint="Rename the file.")
                    found[name] = _stamp(about), int(about.get("size") or 0)
        return found

    def _here(self, tops: Iterable[str]) -> Iterator[str]:
        """Yield the files of the copy."""
        for top in tops:
            for folder, folders, files in os.walk(self.files / top):
                folders[:] = [name for name in folders if name not in _SKIPPED]
                below = os.path.relpath(folder, self.files)
                yield from (name if below == "." else f"{below}/{name}" for name in files)
            if (self.files / top).is_file():
                yield top

    def _is_current(self, name: str, stamp: str, known: Mapping[str, Any]) -> bool:
        return known.get(name, ("",))[0] == stamp and self._is_ours(name, known)

    def _is_ours(self, name: str, known: Mapping[str, Any]) -> bool:
        """Whether a file of the copy is unchanged since it was fetched or sent."""
        try:
            found = os.lstat(self.files / name)
        except OSError:
            return False
        return name in known and known[name][1:] == [found.st_size, found.st_mtime_ns]

    def _fetch(self, wanted: Mapping[str, tuple[str, int]], known: dict[str, Any]) -> None:
        names = list(wanted)
        for at in range(0, len(names), _BATCH):
            batch = names[at : at + _BATCH]
            parts = [str(self.folder / _INCOMING / str(number)) for number in range(len(batch))]
            with self._asking("fetched"):
                self._fs.get([self._at(name) for name in batch], parts)
            for name, part in zip(batch, parts, strict=True):
                *above, last = name.split("/")
                try:
                    parent = make_folders(self.files, above)
                    try:
                        if (self.files / name).is_dir():  # it was a folder before
                            remove_at(last, parent)
                        os.replace(part, last, dst_dir_fd=parent)
                    finally:
                        os.close(parent)
                except OSError as error:
                    raise self._failed(f"put at {self.files / name}", error) from None
                known[name] = [wanted[name][0], *_local(self.files / name)]

    # ----------------------------------------------------------------------------------------------------- sending

    def publish(self, paths: Iterable[str]) -> list[str]:
        """Send files and folders of the copy to the store; return the links among them, which stores cannot hold."""
        files: list[str] = []
        links: list[str] = []
        for path in paths:
            for file in _below(path):
                mode = os.lstat(file).st_mode
                (files if stat.S_ISREG(mode) else links).append(file)
        self._send([os.path.relpath(file, self.files) for file in files])
        return links

    def give_back(self, below: Iterable[str]) -> int:
        """Send changed and new files in folders of the copy, except outputs; return their number."""
        known = self._known()
        changed = [
            name
            for name in self._here(_tops(below))
            if not self._is_ours(name, known) and stat.S_ISREG(os.lstat(self.files / name).st_mode)
        ]
        if changed:
            self._send(changed)
            with self._asking("looked at"):
                for name in changed:
                    known[name] = [_stamp(self._fs.info(self._at(name))), *_local(self.files / name)]
            self._remember(known)
        return len(changed)

    def _send(self, names: list[str]) -> None:
        for at in range(0, len(names), _BATCH):
            batch = names[at : at + _BATCH]
            here, there = [str(self.files / name) for name in batch], [self._at(name) for name in batch]
            with self._asking("written"):
                try:
                    self._fs.put(here, there)
                except FileNotFoundError:  # folders inside it must exist
                    for folder in dict.fromkeys(path.rpartition("/")[0] for path in there):
                        self._fs.makedirs(folder, exist_ok=True)
                    self._fs.put(here, there)

    def names(self, below: str) -> set[str]:
        """Return the entries of a folder of the store, by name; empty if it is missing."""
        with self._asking("listed"):
            self._fs.invalidate_cache()
            try:
                found = self._fs.ls(self._at(below), detail=False)
            except FileNotFoundError:
                return set()
        return {str(path).rstrip("/").rpartition("/")[2] for path in found}

    # ------------------------------------------------------------------------------------------------------ inside

    def _at(self, name: str) -> str:
        return f"{self._root}/{name}" if name else self._root or "/"

    def _known(self) -> dict[str, Any]:
        try:
            found = json.loads((self.folder / MANIFEST).read_bytes())
        except (FileNotFoundError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    def _remember(self, known: Mapping[str, Any]) -> None:
        new = self.folder / f"{MANIFEST}.new"
        try:
            new.write_text(json.dumps(known))
            os.replace(new, self.folder / MANIFEST)
        except OSError as error:
            raise self._failed("remembered", error) from None
        shutil.rmtree(self.folder / _INCOMING, ignore_errors=True)

    @contextmanager
    def _asking(self, what: str) -> Iterator[None]:
        try:
            yield
        except (ConflictError, NotFoundError):
            raise
        except FileNotFoundError as error:
            raise NotFoundError(f"{shown(self.url)} cannot be {what}: there is no {error}") from None
        except OSError as error:
            raise self._failed(what, error) from None
        except Exception as error:  # noqa: BLE001 - the library of each store raises errors of its own
            message = f"{shown(self.url)} cannot be {what}: {type(error).__name__}: {error}"
            raise ForbiddenError(message, hint="Check the URL and your permissions.") from None

    def _failed(self, what: str, error: OSError) -> DiskFullError | ForbiddenError:
        message = f"{shown(self.url)} cannot be {what}: {error.strerror or error}"
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return DiskFullError(message, hint=f"Free space on the disk of the copy: {self.folder}")
        return ForbiddenError(message, hint="Check the URL and your permissions.")


def _try_alone(lock: int) -> bool:
    with suppress(BlockingIOError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False


def _tops(below: Iterable[str]) -> list[str]:
    """Return folders without those that lie in another one of them."""
    found: list[str] = []
    for top in sorted({"/".join(part for part in one.split("/") if part not in ("", ".")) for one in below}):
        if not any(other == "" or top == other or top.startswith(other + "/") for other in found):
            found.append(top)
    return found


def _stamp(about: Mapping[str, Any]) -> str:
    """Return the stamp of a file's content in the store."""
    for key in (*_CONTENT, *_TIMES):
        if about.get(key):
            return f"{key} {about[key]} {about.get('size')}"
    return f"size {about.get('size')}"


def _local(path: Path) -> list[int]:
    found = os.lstat(path)
    return [found.st_size, found.st_mtime_ns]


def _below(path: str) -> Iterator[str]:
    """Yield a file or link, or all files of a folder."""
    try:
        is_folder = stat.S_ISDIR(os.lstat(path).st_mode)
    except FileNotFoundError:
        return
    if not is_folder:
        yield path
        return
    for folder, folders, files in os.walk(path):
        yield from (os.path.join(folder, name) for name in files)
        yield from (os.path.join(folder, name) for name in folders if os.path.islink(os.path.join(folder, name)))
