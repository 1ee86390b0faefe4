"""The mirror of a run's folder at the URL of its storage, from which another machine drives the run further.

The owner of a run writes what changes in its folder to the log of the run (`weft.store.run_log`), before the ends of
tasks are reported. Outputs are at the URL already; `ARTIFACTS` says which objects count. When the run ends in order,
its folder has all of it, and nothing is left at the URL.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import msgspec

from weft.model.errors import ConflictError, NotFoundError, UsageError, WeftError
from weft.store.artifacts import ARTIFACTS, PROJECT, PackedProject, read_artifacts
from weft.store.folders import LOCK_NAME
from weft.store.remote import shown
from weft.store.run_log import LEASE_S, OWNER, FilePiece, LastOwner, LogSegment, RunLog, logs_of, read_owner
from weft.store.shared import SharedStorage, fetch
from weft.store.state import (
    CONTROL,
    DESCRIPTION,
    DRIVER,
    EVENTS,
    ROOT,
    STORAGE,
    RunFolder,
    followed_file,
    read_description,
)

if TYPE_CHECKING:
    from pathlib import Path

    from weft.store.shared import SharedObject
    from weft.store.state import StateRoot

_JOURNAL: Final = "journal"
_HERE: Final = frozenset({OWNER, LOCK_NAME, CONTROL})
"""Files that mean something at one machine alone."""
_NAME: Final = re.compile(r"(logs/)?[^./\0][^/\0]{0,250}")
_PIECE: Final = 4 << 20
_SEGMENT: Final = 8 << 20
_OBJECTS: Final = 256
_OBJECT_BYTES: Final = 64 << 10
"""A log is written anew after so many objects; an object more costs its readers as much as these bytes."""
_LOOK_S: Final = 10.0
_FOLLOWED_S: Final = 2.0
"""The seconds between two looks at the logs of steps, and those for a run that is followed elsewhere."""


class RunMirror:
    """Writes the folder of a run to its log. `note` takes lines for the user, `now` returns seconds since 1970.

    Make one with `opening.hold_mirror`. With `keep`, all of the run stays at the URL at its end. `when_lost` is called
    once when another process has taken the run over.
    """

    def __init__(
        self,
        held: RunFolder,
        url: str,
        key: str,
        note: Callable[[str], None],
        now: Callable[[], float],
        *,
        keep: bool = False,
    ) -> None:
        self.keep = keep
        self._held, self._folder = held, held.path
        self._url, self._key, self._note, self._now = url, key, note, now
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._storage: SharedStorage | None = None
        self._log: RunLog | None = None
        self._thread: threading.Thread | None = None
        self._sent: dict[str, tuple[int, int]] = {}
        self._stamps: dict[str, tuple[int, int, int]] = {}
        self._lost = self._said = self._renewed = False
        self._whole_since = 0
        """The number of the segment from which on all files have been written again."""
        self._whole_bytes = 0
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
        mine = read_owner(self._folder).token

        def check(segments: Sequence[LogSegment]) -> None:
            if segments[-1].token != mine:
                check_there(self._folder.name, segments)

        earlier = log.take(mine, check)
        self._log, self._whole_since = log, log.number + 1
        if earlier and earlier[-1].token != mine:
            restore(self._held, earlier, storage)
            self._note(f"{self._folder.name} goes on from {shown(self._url)}, where {earlier[-1].host} has left it")
        self._own(LastOwner(log.token))
        followed_file(self._folder).unlink(missing_ok=True)
        self._thread = threading.Thread(target=self._keep, name=f"mirror of {self._folder.name}", daemon=True)
        self._thread.start()

    def send(self) -> None:
        """Write what has changed in the folder; it is at the URL when this returns, unless a note says otherwise."""
        self._guarded(self._send)

    def hand_over(self) -> None:
        """Let a process elsewhere drive the run after `close`: all of it stays at the URL, also at its end.

        UsageError: the URL cannot hold it, or a folder of the project does not lie beside the state folder.
        """
        if self._log is None:
            raise UsageError(
                f"{shown(self._url)} cannot hold a run in the background: it cannot create an object only if there is "
                "none",
                hint="Use a bucket of S3 or Google Cloud. Or run it without -d where the process can stay.",
            )
        packed = msgspec.json.decode((self._folder / PROJECT).read_bytes(), type=PackedProject)
        if out := next((tree for tree in packed.trees if tree.startswith("..")), ""):
            raise UsageError(
                f"a run in the background needs its project beside the state folder, and {out} is not",
                hint="Run it without --state-dir and without another main file system.",
            )
        self.keep = True
        self._held.describe_again(**{STORAGE: {"url": self._url, "key": self._key, "keep": True}})

    def close(self) -> None:
        """End the ownership. All objects of a run that has ended in order are removed, unless they are kept there."""
        self._over.set()
        if self._thread is not None:
            self._thread.join()
        if self._storage is None or self._lost:
            return
        if self.keep and self._log is not None:
            self._guarded(self._leave)
            return
        with suppress(WeftError):  # they cost room, and no run reads them
            if self._log is not None:
                self._log.check_owned()
                self._log.remove()
            self._storage.remove(self._key)

    def _leave(self, log: RunLog) -> None:
        """Leave all of the run at the URL. Whoever sees the release may remove the log, so it is noted before."""
        self._send(log)
        self._own(LastOwner(log.token, released=True))
        log.release()

    def _own(self, owner: LastOwner) -> None:
        _write(self._folder, OWNER, msgspec.json.encode(owner))

    # -------------------------------------------------------------------------------------------------------- sending

    def _keep(self) -> None:
        """Send logs and renew the lease until the run is over."""
        left_s = 0.0
        look_s = _FOLLOWED_S if self.keep else _LOOK_S
        while not self._over.wait(look_s):
            self._guarded(self._send)
            self._guarded(self._compact)
            left_s -= look_s
            if left_s <= 0:
                self._renewed = False
                self._guarded(self._renew)
                if self._renewed:  # else the lease may be over soon, and is renewed as soon as that works
                    left_s = LEASE_S / 4

    def _renew(self, log: RunLog) -> None:
        log.renew()
        log.check_owned()
        self._renewed = True

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

    def _compact(self, log: RunLog) -> None:
        """Write all files again when the log has grown by many objects, and remove what was before them."""
        if log.number - self._whole_since < max(_OBJECTS, self._whole_bytes // _OBJECT_BYTES):
            return
        with self._lock:
            self._sent, self._stamps = {}, {}
            self._whole_since, self._whole_bytes = log.number + 1, 0
            self._send_changes(log)
            self._whole_bytes = sum(end for _, end in self._sent.values())
        log.forget(self._whole_since)

    def _send(self, log: RunLog) -> None:
        with self._lock:
            self._send_changes(log)

    def _send_changes(self, log: RunLog) -> None:
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
    """Bring the folder of a run, and its outputs, to what its log says. ConflictError: see `check_there`.

    It keeps the note of its own driver.
    """
    check_there(held.run_id, segments)
    for segment in segments:
        for piece in segment.pieces:
            if piece.name != DRIVER:
                apply(held.path, piece)
    held.describe_again()
    fetch_outputs(held.path, storage)


def fetch_outputs(folder: Path, storage: SharedStorage | None = None) -> list[str]:
    """Bring the outputs of a run that are missing here, or are others here, to their places.

    Return the new paths. Outputs that are gone at the URL are left out: their steps run again.
    """
    description = read_description(folder)
    root, stored = description.get(ROOT), description.get(STORAGE)
    outputs = read_artifacts(folder)
    if not outputs or not isinstance(stored, dict) or not isinstance(root, str) or not os.path.isdir(root):
        return []
    storage = storage or SharedStorage(str(stored["url"]))
    new = []
    for name, found in outputs.items():
        path = os.path.normpath(os.path.join(root, name))
        if not path.startswith(f"{root}/"):
            raise UsageError(f"the log of {folder.name} names {name}, which is not below {root}")
        if _is_here(path, found):
            continue
        with suppress(NotFoundError):
            fetch(storage, found, root, path)
            new.append(path)
    return new


def _is_here(path: str, found: SharedObject) -> bool:
    """Whether a path has what was once fetched from an object: that has its time."""
    try:
        about = os.lstat(path)
    except FileNotFoundError:
        return False
    return about.st_mtime_ns == found.modified_ns and (found.packed or about.st_size == found.size)


def apply(folder: Path, piece: FilePiece) -> None:
    """Write a piece of a file to the folder of a run. UsageError: its name is not that of a file of a run."""
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
