"""Runs whose process is at a cluster that shares no folder with the machine that asked for them.

The run is opened here and handed over by its log (`weft.store.run_log`). A driver at the cluster unpacks the project,
makes the folder of the run from the log, and resumes it, as any later driver does. The machine that asked for the run
follows the log: its folder shows the run as if it were here.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import threading
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from weft.engine.tuning import Tuning
from weft.model.errors import ConflictError, NotFoundError, UsageError
from weft.runs.active import RunEvents
from weft.runs.mirroring import adopt, apply
from weft.runs.opening import give_labels, open_run
from weft.runs.reading import read_run
from weft.runs.records import ACTIVE, INTERRUPTED
from weft.runtime.clock import RealClock
from weft.store.artifacts import PROJECT, PackedProject
from weft.store.folders import unowned
from weft.store.remote import shown
from weft.store.run_log import LogSegment, RunLog, read_owner
from weft.store.shared import SharedStorage, unpack
from weft.store.state import STORAGE, RunFolder, StateRoot, followed_file, owned, read_description

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.admin.settings import Settings
    from weft.runs.opening import Managers
    from weft.runs.sources import RunSource
    from weft.runtime.clock import WallClock
    from weft.store.labels import RunLabels

_LOOK_S: Final = 1.0
_ANSWER_S: Final = 10.0
"""The seconds within which a URL answers, else a followed run is shown as it was."""
_CLOCK: Final = RealClock()


def hand_over(
    state: StateRoot,
    settings: Settings,
    managers: Managers,
    source: RunSource,
    events: RunEvents | None,
    labels: RunLabels | None,
) -> str:
    """Begin a run whose process is to be elsewhere, and return its id; see `RunService.hand_over`."""
    state.prepare()
    run = open_run(
        state,
        source,
        Tuning(many_machines=True),
        managers,
        events or RunEvents(records=False),
        durability=settings.durability,
        backend=settings.backend,
        wanted=lambda run_id: give_labels(state.folder(run_id), labels),
    )
    run.hand_over()
    _begin_to_follow(run.folder)
    return run.name


def log_of(folder: Path) -> tuple[str, str]:
    """Return the URL and the key of a run that stays at a URL. UsageError: it does not."""
    stored = read_description(folder).get(STORAGE)
    if not isinstance(stored, dict) or not stored.get("keep"):
        raise UsageError(
            f"the process of {folder.name} was not in a cluster, to whose machines its folder is unknown",
            hint="Resume it without -d, where the process can stay.",
        )
    return str(stored["url"]), str(stored["key"])


def settle(url: str, key: str, base: Path, look: Callable[[], None], clock: WallClock = _CLOCK) -> str:
    """Make the project and the folder of a run at this machine, below `base`; return the id of the run.

    Waits until the lease of an earlier driver is over; `look` is called meanwhile, and its error ends the wait.
    NotFoundError: the run is not at the URL. ConflictError: it has ended in order elsewhere.
    """
    run = key.rpartition("-")[0]
    state = StateRoot(base / ".weft")
    pause = threading.Event()
    while (folder := state.folder(run)).exists():
        if owned(folder):
            look()
            pause.wait(_LOOK_S)
        elif read_owner(folder).released:  # a former driver may be about to remove it
            leave(key, base, begun=True)
        else:
            return run
    storage = SharedStorage(url)
    log = RunLog(storage, key, clock.wall)
    segments = log.read()
    if not segments:
        raise NotFoundError(f"{key} is not at {url}", hint="Start a new run.")
    while True:
        look()
        try:
            log.check_free(segments[-1])
            break
        except ConflictError:
            pause.wait(_LOOK_S)
    _unpack_project(storage, segments, base)
    return adopt(state, key, url, clock.wall)


def _unpack_project(storage: SharedStorage, segments: Sequence[LogSegment], base: Path) -> None:
    found = [piece.data for segment in segments for piece in segment.pieces if piece.name == PROJECT]
    if not found:
        raise NotFoundError(f"the log at {storage.url} has no project", hint="Start a new run.")
    packed = msgspec.json.decode(found[-1], type=PackedProject)
    shutil.rmtree(base, ignore_errors=True)
    base.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = base.with_name(f"{base.name}.draft")
    shutil.rmtree(draft, ignore_errors=True)
    archive = f"{draft}.tar"
    try:
        storage.get(packed.object, archive)
        unpack(archive, str(draft))
        for at, tree in enumerate(packed.trees):
            place = Path(os.path.normpath(base / tree))
            if not place.is_relative_to(base):
                raise ConflictError(f"the project of the run has a folder {tree} outside of it")
            place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            (draft / str(at)).mkdir(exist_ok=True)
            shutil.copytree(draft / str(at), place, symlinks=True, dirs_exist_ok=True)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
        with suppress(FileNotFoundError):
            os.unlink(archive)


def leave(key: str, base: Path, *, begun: bool) -> None:
    """Remove what `settle` has made, if the run has not begun there, or is at the URL or was removed there since.

    What another driver has made meanwhile stays.
    """
    folder = StateRoot(base / ".weft").folder(key.rpartition("-")[0])
    with ExitStack() as lock, suppress(ConflictError):
        with suppress(FileNotFoundError):
            lock.enter_context(unowned(folder))
        owner = read_owner(folder)
        if owner.released or not (begun or owner.token):
            gone = base.with_name(f"{base.name}.{os.urandom(4).hex()}")
            with suppress(OSError):
                base.rename(gone)  # in one step: the next driver may begin at once
            shutil.rmtree(gone, ignore_errors=True)


# ------------------------------------------------------------------------------------------------------- the follower


def _begin_to_follow(folder: Path) -> None:
    """Let the folder of a run follow its log from now on."""
    file = followed_file(folder)
    file.parent.mkdir(mode=0o700, exist_ok=True)
    _write(file, 1, alive=False, ended=False)


def follow(folder: Path, lives: Callable[[Path], bool]) -> None:
    """Bring a folder to what its log says; nothing is done for a run that is driven here.

    `lives` is asked for the driver of a run whose lease is over: it may have been unable to renew it.
    CapacityError: the URL cannot be read. NotFoundError: the log is not there.
    """
    file = followed_file(folder)
    if not file.exists():
        return
    fd = os.open(file.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        stored = read_description(folder)[STORAGE]
        log = RunLog(SharedStorage(stored["url"]), stored["key"], _CLOCK.wall)
        try:
            before = json.loads(file.read_bytes())
        except FileNotFoundError:  # it is driven here meanwhile
            return
        segments, lease = log.look(int(before["number"]), _ANSWER_S)
        if not segments:
            raise NotFoundError(f"the log of {folder.name} is not at {shown(stored['url'])}")
        for segment in segments:
            for piece in segment.pieces:
                apply(folder, piece)
        RunFolder(folder).describe_again()
        token, dead = segments[-1].token, str(before.get("dead", ""))
        alive = lease is not None and lease.until > _CLOCK.wall()
        ended = not alive and read_run(folder, alive=False).state not in ACTIVE | {INTERRUPTED}
        if not (alive or ended or token == dead) and lease is not None and lease.until:
            alive = lives(folder)
            dead = "" if alive else token
        _write(file, segments[-1].number, alive=alive, ended=ended, dead=dead)
    finally:
        os.close(fd)


def _write(file: Path, number: int, *, alive: bool, ended: bool, dead: str = "") -> None:
    """Note the last look: the next number, whether the owner lived, and the token of one that the cluster has lost."""
    draft = file.with_suffix(f".{os.urandom(4).hex()}")
    draft.write_text(json.dumps({"number": number, "alive": alive, "ended": ended, "dead": dead}), encoding="ascii")
    draft.replace(file)
