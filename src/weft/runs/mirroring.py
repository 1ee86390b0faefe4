"""The mirror of a run's folder at the URL of its storage, from which another machine drives the run further.

The owner of a run writes what changes in its folder to the log of the run (`weft.store.run_log`), before the ends of
tasks are reported. Outputs are at the URL already; `ARTIFACTS` says which objects count. When the run ends in order,
its folder has all of it, and nothing is left at the URL.
"""

from __future__ import annotations

import json
import os
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from weft.model.errors import ConflictError, NotFoundError, UsageError, WeftError
from weft.store.artifacts import ARTIFACTS, read_artifacts
from weft.store.folders import LOCK_NAME
from weft.store.remote import shown
from weft.store.run_log import LEASE_S, FilePiece, LogSegment, RunLog, logs_of
from weft.store.shared import SharedStorage, fetch
from weft.store.state import CONTROL, DESCRIPTION, DRIVER, EVENTS, ROOT, RunFolder, read_description

if TYPE_CHECKING:
    from pathlib import Path

    from weft.store.state import StateRoot

OWNER: Final = "lease.json"
"""In the folder of a run: the token of its last owner here."""
_JOURNAL: Final = "journal"
_HERE: Final = frozenset({OWNER, LOCK_NAME, CONTROL, DRIVER})
"""Files that mean something at one machine alone."""
_NAME: Final = re.compile(r"(logs/)?[^./\0][^/\0]{0,250}")
_PIECE: Final = 4 << 20
_SEGMENT: Final = 8 << 20
_LOOK_S: Final = 10.0
"""The seconds between two looks at the logs of steps."""


class RunMirror:
    """Writes the folder of a run to its log. `note` takes lines for the user, `now` returns seconds since 1970.

    Make one with `opening.hold_mirror`. `when_lost` is called once when another process has taken the run over.
    """

    def __init__(
        self, held: RunFolder, url: str, key: str, note: Callable[[str], None], now: Callable[[], float]
    ) -> None:
        self._held, self._folder = held, held.path
        self._url, self._key, self._note, self._now = url, key, note, now
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._storage: SharedStorage | None = None
        self._log: RunLog | None = None
        self._thread: threading.Thread | None = None
        self._sent: dict[str, tuple[int, int]] = {}
        self._stamps: dict[str, tuple[int, int, int]] = {}
        self._lost = self._said = False
        self.when_lost: Callable[[str], None] = lambda reason: None

    # ------------------------------------------------------------------------------------------------------- its life

    def open(self) -> None:
        """Become the owner of the run at the URL, and bring the folder to what an owner elsewhere has left there.

        A second call does nothing. ConflictError: another owner may live, or has ended the run elsewhere.
        """
        if self._storage is not None:
            return
        self._storage = storage = SharedStorage(self._url)
        if not storage.can_create:
            self._note(
                f"{shown(self._url)} cannot create an object only if there is none: the run can be resumed at this "
                "machine alone"
            )
            return
        log = RunLog(storage, self._key, self._now)
        mine = _token(self._folder)
        earlier = log.take(mine)
        self._log = log
        if earlier and earlier[-1].token != mine:
            restore(self._held, earlier, storage)
            self._note(f"{self._folder.name} goes on from {shown(self._url)}, where {earlier[-1].host} has left it")
        _write(self._folder, OWNER, json.dumps({"token": log.token}).encode())
        self._thread = threading.Thread(target=self._keep, name=f"mirror of {self._folder.name}", daemon=True)
        self._thread.start()

    def send(self) -> None:
        """Write what has changed in the folder; it is at the URL when this returns, unless a note says otherwise."""
        self._guarded(self._send)

    def close(self) -> None:
        """Remove all objects of the run, which has ended in order; those of another owner stay."""
        self._over.set()
        if self._thread is not None:
            self._thread.join()
        if self._storage is None or self._lost:
            return
        with suppress(WeftError):  # they cost room, and no run reads them
            if self._log is not None:
                self._log.check_owned()
                self._log.remove()
            self._storage.remove(self._key)

    # -------------------------------------------------------------------------------------------------------- sending

    def _keep(self) -> None:
        """Send logs and renew the lease until the run is over."""
        left_s = 0.0
        while not self._over.wait(_LOOK_S):
            self._guarded(self._send)
            left_s -= _LOOK_S
            if left_s <= 0:
                left_s = LEASE_S / 4
                self._guarded(self._renew)

    def _renew(self, log: RunLog) -> None:
        log.renew()
        log.check_owned()

    def _guarded(self, action: Callable[[RunLog], None]) -> None:
        log = self._log
        if log is None or self._lost:
            return
        try:
            action(log)
            self._said = False
        except ConflictError as error:
            self._lost = True
            self._note(error.message)
            self.when_lost(error.message)
        except (WeftError, OSError) as error:
            if not self._said:
                self._said = True
                why = error.message if isinstance(error, WeftError) else str(error)
                self._note(f"{why}: what ends from now on is known at this machine alone, until that works")

    def _send(self, log: RunLog) -> None:
        with self._lock:
            batch: list[FilePiece] = []
            after: dict[str, tuple[int, int]] = {}
            size = 0
            stamps, found = self._changes()
            for piece, inode in found:
                batch.append(piece)
                after[piece.name] = inode, piece.offset + len(piece.data)
                size += len(piece.data)
                if size >= _SEGMENT:
                    log.append(batch)
                    self._sent |= after
                    batch, after, size = [], {}, 0
            if batch:
                log.append(batch)
                self._sent |= after
            self._stamps |= stamps

    def _changes(self) -> tuple[dict[str, tuple[int, int, int]], Iterator[tuple[FilePiece, int]]]:
        """Return the stamps of replaced files, and what has changed as pieces with the numbers of their files.

        Records are looked at before the journal, and that before the artifacts: each knows what the earlier ones tell.
        They are sent in the opposite order.
        """
        stamps: dict[str, tuple[int, int, int]] = {}
        grown: list[tuple[str, int, int]] = []
        whole: list[tuple[FilePiece, int]] = []
        for name in _names(self._folder):
            try:
                about = os.lstat(self._folder / name)
            except FileNotFoundError:  # it was replaced or removed meanwhile
                continue
            if _grows(name):
                inode, start = self._sent.get(name, (about.st_ino, 0))
                if inode != about.st_ino or about.st_size < start:
                    start = 0
                if name not in self._sent or about.st_ino != inode or about.st_size != start:
                    grown.append((name, start, about.st_size))
                continue
            stamp = (about.st_ino, about.st_mtime_ns, about.st_size)
            if self._stamps.get(name) != stamp:
                stamps[name] = stamp
                data = (self._folder / name).read_bytes()
                whole.append((FilePiece(name=name, data=data, whole=True), about.st_ino))
        return stamps, self._pieces(whole, grown)

    def _pieces(
        self, whole: Sequence[tuple[FilePiece, int]], grown: Sequence[tuple[str, int, int]]
    ) -> Iterator[tuple[FilePiece, int]]:
        yield from whole
        for name, start, end in reversed(grown):
            with open(os.open(self._folder / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as file:
                inode = os.fstat(file.fileno()).st_ino
                while True:
                    file.seek(start)
                    data = file.read(min(_PIECE, end - start))
                    last = start + len(data) >= end or not data
                    yield FilePiece(name=name, data=data, offset=start, end=last), inode
                    start += len(data)
                    if last:
                        break


def _names(folder: Path) -> Iterator[str]:
    """Yield the names of the files of a run that belong to its log, in the order in which they are looked at."""
    first = [EVENTS, _JOURNAL, ARTIFACTS]
    there = {
        f"{below}{entry.name}"
        for below in ("", "logs/")
        for entry in os.scandir(folder / below)
        if _NAME.fullmatch(entry.name) and entry.is_file(follow_symlinks=False)
    }
    yield from (name for name in (*first, *sorted(there.difference(first, _HERE))) if name in there)


def _grows(name: str) -> bool:
    return name == _JOURNAL or name.startswith("logs/") or name.endswith(".jsonl")


def _token(folder: Path) -> str:
    try:
        return str(json.loads((folder / OWNER).read_bytes())["token"])
    except (FileNotFoundError, ValueError, KeyError):
        return ""


# ------------------------------------------------------------------------------------------------------ from the URL


def adopt(state: StateRoot, run: str, url: str, now: Callable[[], float]) -> str:
    """Make the folder of a run from its log at a URL; `run` is its id, or its key there. Return its id.

    NotFoundError: there is none. ConflictError: there are several, its owner may live, or another run has this id here.
    """
    storage = SharedStorage(url)
    keys = logs_of(storage, run)
    if not keys:
        raise NotFoundError(
            f"{run} is neither here nor at {shown(url)}",
            hint="A run whose process has ended in order is in its folder alone.",
        )
    if len(keys) > 1:
        raise ConflictError(f"{shown(url)} has several runs {run}", hint=f"Name one of: {', '.join(keys)}")
    key = keys[0]
    log = RunLog(storage, key, now)
    segments = log.read()
    if not segments:
        raise ConflictError(f"{key} at {shown(url)} has not begun", hint="Start a new run.")
    check_there(key, segments)
    log.check_free(segments[-1])
    run_id = key.rpartition("-")[0]
    if state.folder(run_id).exists():
        raise ConflictError(
            f"this project has a run {run_id} of its own", hint=f"Resume {key} in a copy of the project without it."
        )
    with RunFolder.create(state, run_id) as held:
        restore(held, segments, storage)
    return run_id


def check_there(run: str, segments: Sequence[LogSegment]) -> None:
    """Check that a log still has its run. ConflictError: it has ended in order elsewhere, and its folder is there."""
    host = segments[-1].host
    if segments[-1].over or not any(piece.name == DESCRIPTION for one in segments for piece in one.pieces):
        raise ConflictError(
            f"{run} went on at {host}, and its folder is there", hint=f"Resume it at {host}, or run anew."
        )


def restore(held: RunFolder, segments: Sequence[LogSegment], storage: SharedStorage) -> None:
    """Bring the folder of a run, and its outputs, to what its log says. ConflictError: see `check_there`."""
    check_there(held.run_id, segments)
    before = read_artifacts(held.path)
    for segment in segments:
        for piece in segment.pieces:
            _apply(held.path, piece)
    held.describe_again()
    root = read_description(held.path).get(ROOT)
    if isinstance(root, str) and os.path.isdir(root):
        for name, found in read_artifacts(held.path).items():
            path = os.path.normpath(os.path.join(root, name))
            if not path.startswith(f"{root}/"):
                raise UsageError(f"the log of {held.run_id} names {name}, which is not below {root}")
            if before.get(name) == found and os.path.lexists(path):
                continue
            with suppress(NotFoundError):  # then its step runs again
                fetch(storage, found, root, path)


def _apply(folder: Path, piece: FilePiece) -> None:
    if not _NAME.fullmatch(piece.name) or piece.name in _HERE:
        raise UsageError(f"the log of {folder.name} names {piece.name[:100]!r}, which is no file of a run")
    if piece.whole:
        _write(folder, piece.name, piece.data)
        return
    fd = os.open(folder / piece.name, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        os.pwrite(fd, piece.data, piece.offset)
        if piece.end:
            os.ftruncate(fd, piece.offset + len(piece.data))
    finally:
        os.close(fd)


def _write(folder: Path, name: str, data: bytes) -> None:
    """Replace a file in one step."""
    draft = folder / f".{name}.{os.urandom(4).hex()}"
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "wb") as out:
        out.write(data)
    draft.replace(folder / name)
