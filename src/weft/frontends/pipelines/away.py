"""A step at a machine that does not have the folder of its run: `storing.py` is the other end.

The machine has a work folder for each run, in the folder of its node, with which it goes. It holds the unpacked
project, inputs and outputs, each at its path below the folder that it comes from. A `Relocation` moves the paths in the
parameters of a step there, and those in what it reports back.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from copy import copy
from typing import TYPE_CHECKING, Any, Final

import msgspec

from weft.frontends.pipelines.body import log_stem, output_paths, places_of, run_step
from weft.frontends.pipelines.caching import NAMED_FILES, RECIPE
from weft.frontends.pipelines.storing import StepWelcome, object_name
from weft.graph.task import prepares
from weft.model.errors import InternalError, RunCancelledError, TaskError, WeftError
from weft.model.records import converter
from weft.store import shared
from weft.store.folders import node_folder

if TYPE_CHECKING:
    from weft.graph.task import TaskContext, TaskInput

_JSON: Final = (RECIPE, NAMED_FILES)
_LOOK_S: Final = 0.3
"""The seconds between two looks at the log of a running step."""
_FIRST_WAIT_S: Final = 0.02
_LOG_BYTES: Final = 1 << 20
_PACE: Final = 2.0
_welcome_of: Final = converter(StepWelcome)


class Relocation:
    """Replaces folders at the beginning of the paths in texts, wherever these stand in a text."""

    def __init__(self, pairs: Sequence[tuple[str, str]]) -> None:
        self._pairs = dict(pairs)
        longest = sorted(self._pairs, key=len, reverse=True)
        self._any = re.compile(rf"(?<![\w.\-/])(?:{'|'.join(map(re.escape, longest))})(?![\w.\-])")

    @property
    def back(self) -> Relocation:
        """The relocation in the other direction."""
        return Relocation([(there, here) for here, there in self._pairs.items()])

    def text(self, text: str) -> str:
        """Return a text with its paths moved."""
        return self._any.sub(lambda found: self._pairs[found[0]], text)

    def of(self, value: Any) -> Any:
        """Return plain data with the paths in all its texts moved."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {name: self.of(one) for name, one in value.items()}
        if isinstance(value, list | tuple):
            return type(value)(self.of(one) for one in value)
        return value

    def params(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return the parameters of a step with their paths moved."""
        return {
            name: json.dumps(self.of(json.loads(one))) if name in _JSON and isinstance(one, str) else self.of(one)
            for name, one in params.items()
        }


class _MovedInput:
    """An input of a task whose values have their paths moved."""

    def __init__(self, given: TaskInput, move: Relocation) -> None:
        self._given, self._move = given, move

    def all(self) -> list[Any]:
        """Return all values."""
        return [self._move.of(value) for value in self._given.all()]


class _MovedInputs(Mapping[str, Any]):
    def __init__(self, given: Mapping[str, TaskInput], move: Relocation) -> None:
        self._given, self._move = given, move

    def __getitem__(self, name: str) -> _MovedInput:
        return _MovedInput(self._given[name], self._move)

    def __iter__(self) -> Iterator[str]:
        return iter(self._given)

    def __len__(self) -> int:
        return len(self._given)


class _AwayHost:
    """The host of a step at a machine: its outputs are brought to the run before the cache may keep them."""

    def __init__(self, host: Any, stay: _Stay) -> None:
        self._host, self._stay = host, stay

    def __getattr__(self, name: str) -> Any:
        return getattr(self._host, name)

    def keep_result(self, recipe: Any, started: float, spoilt: str) -> str:
        """See `TaskHost.keep_result`."""
        if not spoilt:
            self._stay.deliver()
        back = type(recipe).from_json(json.dumps(self._stay.back.of(json.loads(recipe.to_json()))))
        found: str = self._host.keep_result(back, started, spoilt)
        return found


class _Stay:
    """One attempt of a step in the work folder of its run at this machine."""

    def __init__(self, ctx: TaskContext, told: StepWelcome, base: str) -> None:
        self.ctx, self.told = ctx, told
        self.storage = shared.SharedStorage(told.url)
        self.work = os.path.join(base, "work", told.key)
        self.state = os.path.join(self.work, "state")
        pairs = [(tree, os.path.join(self.work, "tree", str(at))) for at, tree in enumerate(told.trees)]
        self.move = Relocation([*pairs, (told.state, self.state)])
        self.back = self.move.back
        self.root = pairs[0][1]
        self.delivered = False
        self.outputs: list[str] = []

    # ---------------------------------------------------------------------------------------------------- the folder

    def prepare(self) -> None:
        """Unpack the project, unless a step of the run has done that here."""
        os.makedirs(self.work, mode=0o700, exist_ok=True)
        with _locked(os.path.join(self.work, "project")):
            tree = os.path.join(self.work, "tree")
            if os.path.isdir(tree):
                return
            self._check()
            archive = os.path.join(self.work, "project.tar")
            draft = f"{tree}.draft"
            shutil.rmtree(draft, ignore_errors=True)
            try:
                self.storage.get(self.told.project, archive)
                shared.unpack(archive, draft)
            finally:
                with suppress(FileNotFoundError):
                    os.unlink(archive)
            for at in range(len(self.told.trees)):
                os.makedirs(os.path.join(draft, str(at)), exist_ok=True)
            for name in ("logs", "processes"):
                os.makedirs(os.path.join(self.move.text(self.told.folder), name), mode=0o700, exist_ok=True)
            os.makedirs(os.path.join(self.work, "have"), exist_ok=True)
            os.rename(draft, tree)

    def fetch(self, path: str) -> None:
        """Bring an input to its place here; nothing is fetched if it is there already."""
        told = self._ask("input", path)
        if told is None:
            return
        found = msgspec.convert(told, shared.SharedObject)
        have = self._have(path)
        with _locked(have):
            with suppress(FileNotFoundError), open(have) as file:
                if file.read() == found.digest:
                    return
            shared.fetch(self.storage, found, self.root, self.move.text(path))
            _note(have, found.digest)

    def deliver(self) -> None:
        """Write the outputs to the URL, and have the run take them."""
        if self.delivered:
            return
        self.delivered = True
        run = os.path.basename(self.told.folder)
        for path in self.outputs:
            name = object_name(self.told.key, self.told.trees[0], run, path)
            try:
                found = shared.send(self.storage, self.move.text(path), name, self.work)
                if found is None:
                    continue
                self._ask("output", path, msgspec.to_builtins(found))
            except WeftError as error:
                raise self._failed(f"its output {os.path.basename(path)} was not brought to the run", error) from None
            _note(self._have(path), found.digest)

    def forget(self) -> None:
        """Drop what is known of earlier outputs of the step here."""
        for path in self.outputs:
            with suppress(FileNotFoundError):
                os.unlink(self._have(path))

    def _have(self, path: str) -> str:
        """Return the file with the digest of the artifact that lies at a path here."""
        return os.path.join(self.work, "have", hashlib.sha256(path.encode()).hexdigest())

    def _failed(self, what: str, error: WeftError) -> WeftError:
        if isinstance(error, RunCancelledError):
            return error
        name = str(self.ctx.params.get("name", self.ctx.vertex))
        return TaskError(f"step {name}: {what}: {error.message}", task=name, hint=error.hint)

    def _check(self) -> None:
        if self.ctx.cancelled():
            raise RunCancelledError(f"step {self.ctx.params.get('name', self.ctx.vertex)} was cancelled")

    def _ask(self, *question: Any) -> Any:
        """Return the answer of the process of the run, which may take longer than one question."""
        pause, wait_s = threading.Event(), _FIRST_WAIT_S
        self.ctx.on_cancel(pause.set)
        while (found := self.ctx.ask_run(*question)) is None:
            self._check()
            wait_s = min(_PACE * wait_s, _LOOK_S)
            pause.wait(wait_s)
        return found[0]

    # ----------------------------------------------------------------------------------------------------------- logs

    @contextmanager
    def followed(self, log: str) -> Iterator[None]:
        """Send what is written to the log of the attempt to the run while it runs, and the rest at its end."""
        folder = os.path.join(self.move.text(self.told.folder), "logs")
        files = [_FollowedLog(self.ctx, folder, name) for name in (log, f"{log}.times")]
        over = threading.Event()

        def follow() -> None:
            while not over.wait(_LOOK_S):
                with suppress(WeftError, OSError):  # the end sends what is left
                    for file in files:
                        file.send()

        thread = threading.Thread(target=follow, name="weft-log", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
            with suppress(RunCancelledError):
                for file in files:
                    file.finish()


class _FollowedLog:
    """A growing file of a machine whose bytes are sent to the run."""

    def __init__(self, ctx: TaskContext, folder: str, name: str) -> None:
        self._ctx, self._name, self._path, self._sent = ctx, name, os.path.join(folder, name), 0
        self._seen: bytes = b""

    def send(self) -> None:
        """Send what is new."""
        with suppress(FileNotFoundError), open(self._path, "rb") as file:
            file.seek(self._sent)
            while data := file.read(_LOG_BYTES):
                self._ctx.ask_run("log", self._name, self._sent, data, False)
                self._sent += len(data)
                self._seen = (self._seen + data)[-_LOG_BYTES:]

    def finish(self) -> None:
        """Send the rest; all of it again if its end was written anew, as that of a long log is."""
        try:
            with open(self._path, "rb") as file:
                file.seek(max(0, self._sent - len(self._seen)))
                changed = file.read(len(self._seen)) != self._seen
        except FileNotFoundError:
            return
        if changed:
            self._sent = 0
        self.send()
        self._ctx.ask_run("log", self._name, self._sent, b"", True)


@prepares
def run_step_away(ctx: TaskContext, inputs: Mapping[str, TaskInput]) -> Any:
    """Run an attempt of a step in the work folder of this machine, or as `run_step` if the run has its folder here.

    Parameters, result and errors are those of `run_step`. TaskError: the project or an input cannot be had, or an
    output cannot be brought to the run.
    """
    stem, outputs = log_stem(ctx), list(output_paths(ctx, ctx.params).values())
    found = ctx.ask_run("arrive", stem, ctx.attempt, outputs)
    if found is None:
        return run_step(ctx, inputs)
    told = _welcome_of(found)
    base = node_folder()
    if not base:
        raise InternalError("a step that has no folder of its run began outside of a node")
    name = str(ctx.params.get("name", ctx.vertex))
    try:
        stay = _Stay(ctx, told, base)
        stay.outputs = outputs
        stay.prepare()
        stay.forget()
        for paths in places_of(ctx, inputs, ctx.params.get("inputs", {})).values():
            for path in paths:
                if path.startswith(f"{told.trees[0]}/"):
                    stay.fetch(path)
    except RunCancelledError:
        raise
    except WeftError as error:
        raise TaskError(
            f"step {name} cannot start: machine {os.uname().nodename}: {error.message}", task=name, hint=error.hint
        ) from None
    moved: Any = copy(ctx)
    moved.params, moved.attempt = stay.move.params(ctx.params), told.attempt
    moved.item, moved.host = stay.move.of(ctx.item), _AwayHost(moved.host, stay)
    with stay.followed(f"{stem}.{told.attempt}.log"):
        try:
            result = run_step(moved, _MovedInputs(inputs, stay.move))
        except WeftError as error:
            error.message, error.hint = stay.back.text(error.message), stay.back.text(error.hint)
            raise
    stay.deliver()
    return stay.back.of(result)


def _note(file: str, digest: str) -> None:
    draft = f"{file}.{os.urandom(4).hex()}"
    with open(draft, "w") as out:
        out.write(digest)
    os.replace(draft, file)


@contextmanager
def _locked(name: str) -> Iterator[None]:
    """Hold the lock of a name among the processes of this node."""
    fd = os.open(f"{name}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)
