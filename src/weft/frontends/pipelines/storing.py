"""The files of a run whose machines share no folder, in the process that owns the run; `away.py` is the other end.

The project is packed once for each run, and written to the URL unless an equal archive is there. A step at a machine
asks for its inputs by their paths here; what the URL does not have yet, such as a result of the cache, is written
there first. Outputs are fetched from the URL to their paths here before the step counts as done. So the cache, the
records, the conditions and loops over artifacts, and users find them where they always are.
"""

from __future__ import annotations

import fnmatch
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import msgspec

from weft.frontends.pipelines.body import make_room
from weft.frontends.pipelines.secrets import FILE_SUFFIX
from weft.graph.spec import HERE
from weft.model.errors import InputLimitError, InternalError, UsageError
from weft.model.patterns import late_pattern
from weft.store import shared
from weft.store.artifacts import PROJECT, PackedProject, add_artifact
from weft.store.digests import LEFT_OUT
from weft.store.places import OUTPUTS
from weft.store.projects import hold_project
from weft.store.scratch import ScratchFolder

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from weft.graph.spec import MachineAddress, RunFacts

MOST_BYTES: Final = 2 << 30
"""The most bytes of the files of a project that are packed."""
IGNORE_FILE: Final = ".weftignore"
"""The file of a project with patterns of what its steps do not need, one in each line."""
_LEFT_OUT: Final = frozenset(os.fsdecode(name) for name in LEFT_OUT) | {".git", ".hg", ".svn"}
_LOG: Final = late_pattern(r"[^/\0]{1,240}\.log(\.times)?")
_WAIT_S: Final = 0.5
_THREADS: Final = 4
_SHOWN: Final = 3


class StepWelcome(msgspec.Struct, frozen=True, kw_only=True):
    """What the process of a run tells a step that begins at a machine.

    `key` names the run below the URL, `project` is the packed project. `trees` are its folders here, in the order of
    the archive, `state` is the state folder, `folder` that of the run. `attempt` is the number of this attempt.
    """

    url: str
    key: str
    project: shared.SharedObject
    trees: tuple[str, ...]
    state: str
    folder: str
    attempt: int


class StepStorage:
    """Answers the steps of a run at machines that do not have its folder; the host of the run (`RunHost`).

    `trees` are the folders that steps see: that in which they work, first, and that of the pipeline's file. `spread` is
    False for a run whose steps all run in this machine's folders. With `keep` all outputs stay at the URL. `secrets`
    are the names of the pipeline's secrets: their files stay here.
    """

    def __init__(
        self,
        url: str,
        key: str,
        folder: Path,
        trees: Sequence[str],
        *,
        spread: bool,
        keep: bool = False,
        secrets: Iterable[str] = (),
    ) -> None:
        self._url, self._key, self._folder = url, key, str(folder)
        self._trees, self._spread = tuple(trees), spread
        self._keep, self._secrets = keep, tuple(secrets)
        self._lock = threading.Lock()
        self._known: dict[str, shared.SharedObject | None] = {}
        self._work: dict[tuple[str, ...], Future[Any]] = {}
        self._pool: ThreadPoolExecutor | None = None
        self._storage: shared.SharedStorage | None = None
        self._project: shared.SharedObject | None = None
        self._scratch: ScratchFolder | None = None

    # ------------------------------------------------------------------------------------------------ the run's life

    def open(self) -> None:
        """Write the project to the URL. Errors are those of `SharedStorage`; InputLimitError: it is too large."""
        if not self._spread:
            return
        storage = self._storage = shared.SharedStorage(self._url)
        scratch = self._scratch = ScratchFolder("storage")
        self._pool = ThreadPoolExecutor(_THREADS, "weft-storage")
        try:
            self._project = self._known_project() or self._packed(storage, scratch)
        except BaseException:
            self.close()
            raise

    def _known_project(self) -> shared.SharedObject | None:
        """Return the project that this folder was made from; None: the files here are the project."""
        if not self._keep:
            return None
        try:
            with open(os.path.join(self._folder, PROJECT), "rb") as file:
                return msgspec.json.decode(file.read(), type=PackedProject).object
        except FileNotFoundError:
            return None

    def _packed(self, storage: shared.SharedStorage, scratch: ScratchFolder) -> shared.SharedObject:
        skipped = _Skipped(self._trees[0], self._secrets)
        check_size(self._trees, skipped)
        file = os.path.join(scratch.name, "project.tar")
        digest, size = shared.pack([(tree, str(at)) for at, tree in enumerate(self._trees)], file, skipped)
        found = hold_project(storage, self._key, file, digest, size)
        os.unlink(file)
        beside = os.path.dirname(os.path.dirname(os.path.dirname(self._folder)))
        known = PackedProject(found, tuple(os.path.relpath(tree, beside) for tree in self._trees))
        with open(os.path.join(self._folder, PROJECT), "wb") as out:
            out.write(msgspec.json.encode(known))
        return found

    def close(self) -> None:
        """Remove what is left here of the exchange; the objects go with the mirror of the run. A second call does
        nothing.
        """
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(cancel_futures=True)
        self._storage = None
        if self._scratch is not None:
            self._scratch.cleanup()

    def assign(self, worker: int, devices: Sequence[str]) -> None:
        """See `RunHost.assign`: the slots are those of the session."""

    def follow_controller(self, memo: Callable[[], Any]) -> None:
        """See `RunHost.follow_controller`: pipelines have none."""

    def watch(self, memo: Any) -> Sequence[str]:
        """See `RunHost.watch`: pipelines have no controller."""
        return ()

    def rests(self, memo: Any) -> bool:
        """See `RunHost.rests`."""
        return False

    def failures(self) -> str:
        """See `RunHost.failures`."""
        return ""

    def limits(self, step: str) -> tuple[int, int, str]:
        """See `RunHost.limits`: nobody scales steps."""
        raise UsageError(f"{step} is a step: it has no replicas")

    def wanted(self, step: str) -> int | None:
        """See `RunHost.wanted`."""
        return None

    def together(self, counts: Mapping[str, int]) -> Sequence[Mapping[str, int]]:
        """See `RunHost.together`: nobody scales steps."""
        return ()

    def end(self, state: str, reason: str, at: float) -> None:
        """See `RunHost.end`."""

    # ------------------------------------------------------------------------------------------------------ answers

    def answer(self, question: Sequence[Any], machine: MachineAddress, run: RunFacts) -> Any:
        """Answer a step at a machine; None if it runs in the folders of this one, or if the answer takes longer."""
        verb, *given = question
        if not self._spread or machine == HERE:
            return None
        if verb == "arrive":
            return self._arrive(*given)
        if verb == "input":
            return self._soon(("input", given[0]), self._share, given[0])
        if verb == "output":
            path, found = given
            return self._soon(("output", path, found["name"]), self._take, path, found)
        if verb == "log":
            return self._add_log(*given)
        raise InternalError(f"a step asks {verb!r}, which nobody answers")

    def _arrive(self, log: str, attempt: int, outputs: Sequence[str]) -> Any:
        assert self._project is not None
        make_room(self._trees[0], [self._inside(path) for path in outputs], log)
        with self._lock:
            for path in outputs:
                self._known.pop(path, None)
        while os.path.lexists(os.path.join(self._folder, "logs", f"{_named(f'{log}.{attempt}.log')}")):
            attempt += 1
        told = StepWelcome(
            url=self._url,
            key=self._key,
            project=self._project,
            trees=self._trees,
            state=os.path.dirname(os.path.dirname(self._folder)),
            folder=self._folder,
            attempt=attempt,
        )
        return msgspec.to_builtins(told)

    def _soon(self, key: tuple[str, ...], action: Any, *given: Any) -> Any:
        """Return what an action gives, None while it runs: the step asks again, and no thread of the session waits
        long.
        """
        pool = self._pool
        if pool is None:
            raise InternalError("a step asks for files of a run that has ended")
        with self._lock:
            future = self._work.get(key)
            if future is None:
                future = self._work[key] = pool.submit(action, *given)
        with suppress(TimeoutError):
            future.exception(_WAIT_S)
        if not future.done():
            return None
        with self._lock:
            self._work.pop(key, None)
        return [future.result()]

    def _share(self, path: str) -> Any:
        """Return the description of an input, which is written to the URL if it is not there; None: it is missing."""
        storage, scratch = self._storage, self._scratch
        assert storage is not None
        assert scratch is not None
        with self._lock:
            found = self._known.get(path)
        if found is None:
            found = shared.send(storage, path, self._name(path), scratch.name)
            with self._lock:
                self._known[path] = found
        return None if found is None else msgspec.to_builtins(found)

    def _take(self, path: str, described: Mapping[str, Any]) -> bool:
        """Fetch an output to its place here."""
        storage = self._storage
        assert storage is not None
        found = msgspec.convert(described, shared.SharedObject)
        if not found.name.startswith(f"{self._name(path)}."):
            raise InternalError(f"the output {path} was written as {found.name}")
        shared.fetch(storage, found, self._trees[0], path)
        with self._lock:
            self._known[path] = found
            add_artifact(self._folder, os.path.relpath(path, self._trees[0]), found)
        return True

    def keep(self, paths: Iterable[str]) -> None:
        """Write outputs that came from the cache to the URL, if the run is to be there."""
        if self._keep and self._storage is not None and self._scratch is not None:
            for path in paths:
                found = shared.send(self._storage, path, self._name(path), self._scratch.name)
                if found is not None:
                    with self._lock:
                        self._known[path] = found
                        add_artifact(self._folder, os.path.relpath(path, self._trees[0]), found)

    def _name(self, path: str) -> str:
        return object_name(self._key, self._trees[0], os.path.basename(self._folder), self._inside(path))

    def _inside(self, path: str) -> str:
        if not path.startswith(self._trees[0] + "/") or ".." in path.split("/"):
            raise InternalError(f"{path} is not below {self._trees[0]}")
        return path

    def _add_log(self, name: str, offset: int, data: bytes, cut: bool) -> None:
        """Write bytes of a log at their place; `cut`: the log ends behind them."""
        path = os.path.join(self._folder, "logs", _named(name))
        flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        fd = os.open(path, flags, 0o644)
        try:
            os.pwrite(fd, data, offset)
            if cut:
                os.ftruncate(fd, offset + len(data))
        finally:
            os.close(fd)


def _named(name: str) -> str:
    if not _LOG.fullmatch(name):
        raise InternalError(f"{name[:100]!r} is no name of a log")
    return name


def object_name(key: str, root: str, run: str, path: str) -> str:
    """Return the name at the URL of an artifact of the run `key`: without the folder of the run, which the key stands
    for.
    """
    below = os.path.relpath(path, root)
    inside = f"{OUTPUTS}/{run}/"
    return f"{key}/{below.removeprefix(inside) if below.startswith(inside) else f'project/{below}'}"


class _Skipped:
    """Whether a file of a project stays here: what Weft, Python and version control make, virtual environments, the
    files of secrets, and what `IGNORE_FILE` lists.
    """

    def __init__(self, root: str, secrets: Iterable[str]) -> None:
        self._patterns = list(_patterns(os.path.join(root, IGNORE_FILE)))
        named = (os.environ.get(name + FILE_SUFFIX) for name in secrets)
        self._secret = {os.path.realpath(file) for file in named if file}

    def __call__(self, path: str, name: str) -> bool:
        last = name.rpartition("/")[2]
        if last in _LEFT_OUT or os.path.lexists(os.path.join(path, "pyvenv.cfg")):
            return True
        if self._secret and os.path.realpath(path) in self._secret:
            return True
        return any(fnmatch.fnmatchcase(name, one) or fnmatch.fnmatchcase(last, one) for one in self._patterns)


def _patterns(file: str) -> Iterator[str]:
    try:
        with open(file, encoding="utf-8") as source:
            lines = [line.strip() for line in source]
    except FileNotFoundError:
        return
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{file} cannot be read: {error}") from None
    yield from (line.strip("/") for line in lines if line and not line.startswith("#"))


def check_size(trees: Sequence[str], skipped: Any, most: int = MOST_BYTES) -> None:
    """Raise InputLimitError for a project whose files have more than `most` bytes, with its largest parts."""
    sizes: dict[str, int] = {}
    for top in trees:
        for folder, folders, files in os.walk(top):
            below = os.path.relpath(folder, top)
            names = {entry: entry if below == "." else f"{below}/{entry}" for entry in (*folders, *files)}
            folders[:] = [entry for entry in folders if not skipped(os.path.join(folder, entry), names[entry])]
            for entry in files:
                if not skipped(path := os.path.join(folder, entry), names[entry]):
                    part = names[entry].partition("/")[0]
                    with suppress(OSError):
                        sizes[part] = sizes.get(part, 0) + os.lstat(path).st_size
    if (total := sum(sizes.values())) > most:
        largest = sorted(sizes, key=sizes.__getitem__, reverse=True)[:_SHOWN]
        shown = ", ".join(f"{part} {sizes[part]:,}" for part in largest)
        raise InputLimitError(
            f"the project {trees[0]} has {total:,} bytes for its steps, more than {most:,}: {shown}",
            hint=f"List what they do not need in {os.path.join(trees[0], IGNORE_FILE)}, one pattern in each line.",
        )
