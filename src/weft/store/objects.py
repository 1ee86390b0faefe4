"""Chunks in objects behind fsspec: S3 and its like, and any other file system with a URL.

Each owner writes below a prefix of its own, which it removes at the end. After a kill, a file beside its other state
(`remember`) names the prefix, and the next start on that machine removes it (`sweep`). Objects of a machine that never
starts Weft again stay until they are removed by hand; the object `owner.json` names their owner.

Transient failures are retried; final ones are errors that name the URL, without secrets, and the next step.
"""

from __future__ import annotations

import json
import os
import threading
import warnings
from collections.abc import Callable, Container, Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar

from weft.model.chunks import ChunkRef, Tier
from weft.model.errors import CapacityError, MissingExtraError, NotFoundError, UnreadableError, UsageError
from weft.store import codec
from weft.store.disk import grouped
from weft.store.folders import URL_FILE
from weft.store.places import has_identity, identity_of
from weft.store.remote import shown

if TYPE_CHECKING:
    from pathlib import Path

    from weft.store.codec import Encoded

_OWNER: Final = "owner.json"
_WAITS_S: Final = (0.1, 0.4, 1.6)
"""The seconds of wait before each retry of a failed call."""
_CLOSE_S: Final = 60.0
_FINAL: Final = (FileNotFoundError, PermissionError, NotADirectoryError, ValueError, TypeError, ImportError)
_CREDENTIALS: Final = frozenset({"NoCredentialsError", "PartialCredentialsError", "TokenRetrievalError"})
_T = TypeVar("_T")


def _file_system(url: str) -> tuple[Any, str]:
    """Return the file system of a URL, and the path in it. MissingExtraError, UsageError: there is none."""
    try:
        from fsspec.core import url_to_fs
    except ModuleNotFoundError:
        message = f"spilling to {shown(url)} needs fsspec, which is not installed"
        raise MissingExtraError(message, hint="Install it: pip install 'weft[fs]'") from None
    try:
        fs, path = url_to_fs(url)
    except ImportError as error:
        message = f"{shown(url)} cannot be used: {error}"
        raise MissingExtraError(message, hint="Install what fsspec needs for it, such as s3fs or gcsfs.") from None
    except ValueError as error:
        raise UsageError(
            f"{shown(url)} cannot be used for spilling: {error}", hint="Write s3://bucket/prefix."
        ) from None
    return fs, str(path)


def tried(
    action: Callable[[], _T], waits: Sequence[float] = _WAITS_S, wait: Callable[[float], object] | None = None
) -> _T:
    """Call an action; transient failures are retried."""
    pause = threading.Event().wait if wait is None else wait
    for seconds in waits:
        try:
            return action()
        except _FINAL:
            raise
        except Exception as error:
            if type(error).__name__ in _CREDENTIALS:
                raise
        pause(seconds)
    return action()


def why_unusable(error: Exception, url: str) -> tuple[str, str]:
    """Return why a URL cannot be used, and the next step."""
    text = str(error).replace(url, shown(url)) or type(error).__name__
    if isinstance(error, FileNotFoundError):
        return f"there is no such bucket or folder ({text})", "Make it, or name another place."
    if isinstance(error, PermissionError) or type(error).__name__ in _CREDENTIALS:
        return (
            f"it is not permitted ({text})",
            "See that the credentials of this process may list, read, write and delete objects there.",
        )
    return (
        f"it cannot be reached ({type(error).__name__}: {text})",
        "See that the network and the endpoint work, or name another place.",
    )


def _refused(error: Exception, url: str, what: str) -> CapacityError:
    why, hint = why_unusable(error, url)
    return CapacityError(f"cannot {what} {shown(url)}: {why}", hint=hint)


class ObjectTier:
    """Objects below `<url>/<name>/`, which belong to this process until `close`; a `TierStore`.

    A test object is written at once. CapacityError: the URL is not writable. MissingExtraError: fsspec, or a library
    for such a URL, is not installed. UsageError: no such kind of URL.
    """

    def __init__(self, url: str, name: str, *, wait: Callable[[float], object] | None = None) -> None:
        self.url = url.rstrip("/")
        self.root = f"{self.url}/{name}/"
        self._wait = wait
        self._fs, path = _file_system(self.url)
        self._path = f"{path.rstrip('/')}/{name}"
        self.local = "memory" in protocols_of(self._fs)
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._count = 0
        self._doomed: list[str] = []
        self._deleter: threading.Thread | None = None
        owner = json.dumps({"host": os.uname().nodename, "pid": os.getpid()}).encode()
        try:
            self._put(f"{self._path}/{_OWNER}", owner)
        except Exception as error:
            raise _refused(error, self.url, "spill to") from error

    def write(self, chunks: Sequence[Encoded]) -> list[ChunkRef]:
        """See `TierStore.write`: a batch of small chunks shares an object, a large chunk has its own."""
        refs: list[ChunkRef | None] = [None] * len(chunks)
        done: list[str] = []
        for group in grouped(chunks):
            with self._lock:
                self._count += 1
                name = f"{self._count}.chunks"
            offsets: list[int] = []
            pieces: list[bytes | memoryview] = []
            at = 0
            for i in group:
                offsets.append(at)
                pieces += codec.spans(chunks[i])
                at += chunks[i].nbytes
            try:
                self._put(f"{self._path}/{name}", b"".join(pieces))
            except Exception as error:
                self.delete(done)
                nbytes = sum(chunk.nbytes for chunk in chunks)
                raise _refused(error, self.url, f"write {nbytes:,} bytes to") from error
            done.append(self.root + name)
            for i, offset in zip(group, offsets, strict=True):
                refs[i] = chunks[i].ref(Tier.OBJECT, self.root + name, offset)
        return [ref for ref in refs if ref is not None]

    def _put(self, path: str, data: bytes) -> None:
        parent = path.rpartition("/")[0]
        if "file" in protocols_of(self._fs):
            self._fs.makedirs(parent, exist_ok=True)
        tried(lambda: self._fs.pipe_file(path, data), wait=self._wait)

    def delete(self, locations: Iterable[str]) -> None:
        """See `TierStore.delete`: a thread deletes in batches; `close` removes objects after a failure."""
        paths = [f"{self._path}/{location.removeprefix(self.root)}" for location in locations]
        with self._lock:
            self._doomed += paths
            if self._doomed and self._deleter is None:
                self._deleter = threading.Thread(target=self._delete_doomed, name="weft spill delete", daemon=True)
                self._deleter.start()

    def _delete_doomed(self) -> None:
        while True:
            with self._lock:
                paths, self._doomed = self._doomed, []
                if not paths:
                    self._deleter = None
                    self._changed.notify_all()
                    return
            with suppress(Exception):  # a missing object saves none of the others, or `close` removes them
                self._fs.rm(paths)

    def freeable(self, offset: int, nbytes: int) -> tuple[int, int]:
        """See `TierStore.freeable`: an object has no holes."""
        return 0, 0

    def free(self, location: str, start: int, nbytes: int) -> bool:
        """See `TierStore.free`."""
        return False

    def sweep(self, prefix: str, known: Container[str]) -> int:
        """See `TierStore.sweep`: no other writer has a prefix here."""
        return 0

    def close(self) -> None:
        """See `TierStore.close`; warns of objects that could not be removed, which the next start tries again."""
        with self._lock:
            self._changed.wait_for(lambda: self._deleter is None, timeout=_CLOSE_S)
        if not remove(self.root, wait=self._wait):
            warnings.warn(
                f"objects of this run are left in {shown(self.root)}: they could not be removed. The next start on "
                "this machine tries again; else remove them by hand.",
                RuntimeWarning,
                stacklevel=2,
            )


def protocols_of(fs: Any) -> tuple[str, ...]:
    """Return the names of a file system of fsspec, as URLs have them."""
    return (fs.protocol,) if isinstance(fs.protocol, str) else tuple(fs.protocol)


def remove(root: str, waits: Sequence[float] = _WAITS_S, wait: Callable[[float], object] | None = None) -> bool:
    """Remove all objects below a prefix. Return whether none is left for certain."""
    try:
        fs, path = _file_system(root)
        fs.invalidate_cache()

        def gone() -> bool:
            with suppress(FileNotFoundError):
                fs.rm(path.rstrip("/"), recursive=True)
            fs.invalidate_cache()
            return not fs.find(path)

        return tried(gone, waits, wait)
    except FileNotFoundError:
        return True
    except Exception:  # noqa: BLE001 - whatever a file system raises: they still exist
        return False


def remember(folder: Path, root: str) -> None:
    """Record the location of a run's objects in its state folder, which has the run's name, for `sweep`.

    The record has the identity of the folder too: the objects do not belong to a copy.
    """
    fd = os.open(folder / URL_FILE, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(fd, "w", encoding="utf-8") as file:
        json.dump({"root": root, "folder": identity_of(folder)}, file)


def sweep(folder: Path) -> bool:
    """Remove the objects of a dead run with this state folder. Return False if they could not be removed: keep the
    folder.
    """
    try:
        record = json.loads((folder / URL_FILE).read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError, ValueError):  # a truncated record counts for nothing
        return True
    except OSError:
        return False
    return not has_identity(folder, record["folder"]) or remove(record["root"], ())


def read_range(location: str, offset: int, nbytes: int) -> memoryview:
    """Read a part of an object into private, writable memory.

    NotFoundError: it is missing or too short. UnreadableError: it cannot be read now.
    """
    fs, path = _file_system(location)
    try:
        data = tried(lambda: fs.cat_file(path, start=offset, end=offset + nbytes))
    except FileNotFoundError as error:
        raise NotFoundError(
            f"the stored chunk in {shown(location)} is lost: there is no such object",
            hint="Another program removed an object of a run; run again to compute it anew.",
        ) from error
    except Exception as error:
        why, hint = why_unusable(error, location)
        raise UnreadableError(f"the stored chunk in {shown(location)} cannot be read: {why}", hint=hint) from error
    if len(data) != nbytes:
        raise NotFoundError(
            f"the stored chunk in {shown(location)} is lost: it ends before byte {offset + nbytes:,}",
            hint="Another program changed an object of a run; run again to compute it anew.",
        )
    return memoryview(bytearray(data))
