"""Runs the parts of this party: each attempt is a job of the engine here, whose task is a process of its own.

The process ends with its guardian, and so with the server of the party: a started attempt is lost with it.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from weft.frontends.federated.compiler import FRONTEND
from weft.frontends.federated.components.programs import sweep_programs
from weft.frontends.federated.components.registry import component_modules
from weft.frontends.federated.components.sockets import PartGate
from weft.frontends.federated.providers import PROVIDERS
from weft.graph.logical import LogicalGraph, Vertex
from weft.model.errors import TaskError, WeftError
from weft.model.program import Program, Style
from weft.model.resources import Resources
from weft.operators.call import CommandSpec, run_guarded
from weft.operators.guardians import LoadedPool, lives_here
from weft.parties.traffic import TrafficWriter
from weft.store.limits import disk_error

if TYPE_CHECKING:
    from pathlib import Path

    from weft.frontends.federated.components.process import PartTask
    from weft.frontends.federated.schema import Party
    from weft.graph.task import TaskContext
    from weft.operators.call import CommandResult
    from weft.parties.part_folders import PartFolders
    from weft.parties.values import AttemptKey, ValueHub
    from weft.runtime.clock import WallClock
    from weft.runtime.run import Run
    from weft.wiring.session import Session

_MODULE: Final = "weft.frontends.federated.components.process"
_KEPT: Final = ("HOME", "LANG", "LC_ALL", "PATH", "TMPDIR", "TZ", "LD_LIBRARY_PATH", "VIRTUAL_ENV")
SUCCESS, FAILED, CANCELED = "success", "failed", "canceled"
_log = logging.getLogger(__name__)


class PartEnd(NamedTuple):
    """How a process has ended: success, failed or canceled, and the error as `{code, message, hint, party}`."""

    status: str
    error: Mapping[str, Any] | None = None


class PartEvents(NamedTuple):
    """The callbacks of a `PartRunner`: the process has started (with its pid), is prepared, has ended."""

    started: Callable[[AttemptKey, Party, int], None]
    prepared: Callable[[AttemptKey, Party], None]
    ended: Callable[[AttemptKey, Party, PartEnd], None]


class _Process:
    """A process of a part. `begun`: its task runs, which tells its end; a run that is cancelled before tells nothing.

    `reason` says why it was told to stop.
    """

    def __init__(self, gate: PartGate, traffic: TrafficWriter) -> None:
        self.gate, self.traffic = gate, traffic
        self.run: Run | None = None
        self.reason = ""
        self.begun = False

    def begin(self) -> str:
        """Begin the task; return the reason if it was told to stop before."""
        self.begun = True
        return self.reason

    def stop(self, reason: str) -> None:
        """Stop it: now if its task runs, else when that begins."""
        self.reason = reason
        self.gate.stop(reason)
        self.cancel()

    def cancel(self) -> None:
        """Cancel its run, if it was told to stop and its task runs."""
        if self.reason and self.begun and self.run is not None:
            self.run.cancel(self.reason)


class PartRunner:
    """Runs processes of parts. `sockets` is a folder that belongs to this server alone."""

    def __init__(
        self,
        session: Session,
        hub: ValueHub,
        folders: PartFolders,
        sockets: Path,
        events: PartEvents,
        clock: WallClock,
    ) -> None:
        self._session, self._hub, self._folders, self._clock = session, hub, folders, clock
        self._sockets, self._events = sockets, events
        self._processes: dict[tuple[AttemptKey, Party], _Process] = {}
        self._lock = threading.Lock()

    def start(self, key: AttemptKey, part: Party, task: Callable[[Path, str, str], PartTask]) -> None:
        """Start a process; `task` makes its description from its folder, its socket and its token.

        Whatever goes wrong is told as the end of the process, for which others wait.
        """
        try:
            self._start(key, part, task)
        except Exception as error:  # noqa: BLE001
            self._events.ended(key, part, PartEnd(FAILED, _error(error)))

    def _start(self, key: AttemptKey, part: Party, task: Callable[[Path, str, str], PartTask]) -> None:
        folder = self._folders.make(key, part)
        socket, token = self._sockets / f"{secrets.token_hex(6)}.sock", secrets.token_hex(16)
        made = task(folder, str(socket), token)
        (folder / "task.json").write_bytes(msgspec.json.encode(made))
        traffic = TrafficWriter(self._hub, key, part, folder, self._clock)

        def send(name: str, to: Party, data: bytes) -> None:
            self._hub.send(key, part, name, to, data)
            traffic.noted(name, to)

        gate = PartGate(socket, token, on_prepared=lambda: self._events.prepared(key, part), on_send=send)
        process = _Process(gate, traffic)
        with self._lock:
            self._processes[key, part] = process
        self._hub.open(key, part, gate)
        graph = LogicalGraph(f"{key.job}-{key.component}", frontend=FRONTEND)
        body = Program(self._body(key, part, folder, process), style=Style.TASK)
        graph.add_vertex(Vertex(id=key.component, program=body, resources=(Resources(cpu=0),)))
        try:
            process.run = self._session.submit(graph)
        except BaseException:
            gate.close()
            with self._lock:
                del self._processes[key, part]
            raise
        process.cancel()  # it may have been stopped meanwhile

    def go(self, key: AttemptKey, part: Party) -> None:
        """Let a prepared process begin its work."""
        with self._lock:
            process = self._processes.get((key, part))
        if process is not None:
            process.gate.go()

    def stop(self, key: AttemptKey, part: Party, reason: str) -> None:
        """Stop a process; one that does not exist is told to have ended."""
        with self._lock:
            process = self._processes.get((key, part))
        if process is None:
            self._events.ended(key, part, _stopped(reason))
        else:
            process.stop(reason)

    def alive(self) -> list[tuple[AttemptKey, Party]]:
        """Return the attempts whose processes have not ended."""
        with self._lock:
            return list(self._processes)

    def sweep(self, job: str, part: Party) -> None:
        """Remove what processes of a part have left that were killed together with an earlier server."""
        for attempt in self._folders.part(job, part).glob("*/*/"):
            _sweep(attempt)

    # ------------------------------------------------------------------------------------------------------ inside

    def _body(self, key: AttemptKey, part: Party, folder: Path, process: _Process) -> Callable[..., None]:
        def body(ctx: TaskContext, _inputs: object) -> None:
            end = PartEnd(FAILED, {"code": "WEFT900", "message": "the part has a fault"})
            try:
                end = _stopped(reason) if (reason := process.begin()) else self._run(ctx, key, part, folder, process)
            except WeftError as error:
                end = PartEnd(CANCELED if process.reason else FAILED, _error(error))
            finally:
                process.gate.close()
                _sweep(folder)
                with self._lock:
                    self._processes.pop((key, part), None)
                process.traffic.write()
                if end.status == SUCCESS:
                    self._folders.succeeded(key, part)
                self._events.ended(key, part, end)

        return body

    def _run(self, ctx: TaskContext, key: AttemptKey, part: Party, folder: Path, process: _Process) -> PartEnd:
        spec = CommandSpec(
            argv=[str(folder)],
            function=f"{_MODULE}.main",
            env=_environment(),
            cwd=folder,
            log=folder / "log",
            record=folder / "process",
            name=key.component,
            timed=True,
        )
        # All parties see the end. The last lines of the log may have values of rows, so they stay in the log.
        hint = f"Its log at party {part.id} tells more: weft party logs {key.job}/{key.component}"
        try:
            result = run_guarded(
                spec,
                on_started=lambda pid, _: self._events.started(key, part, pid),
                on_cancel=ctx.on_cancel,
                pool=_POOL,
            )
        except TaskError as error:
            if process.reason:
                raise
            return PartEnd(FAILED, {"code": error.code, "message": error.message, "hint": hint})
        if process.reason:
            return _stopped(process.reason)
        found: dict[str, Any] = {}
        with suppress(OSError, ValueError):
            found = json.loads((folder / "result.json").read_text())
        if result.ok and found.get("status") == SUCCESS:
            return PartEnd(SUCCESS)
        if isinstance(found.get("error"), dict):
            return PartEnd(FAILED, found["error"])
        return PartEnd(FAILED, {"code": "WEFT501", "message": f"{key.component}: {_how(result)}", "hint": hint})


def _stopped(reason: str) -> PartEnd:
    return PartEnd(CANCELED, {"code": "WEFT502", "message": reason})


def _sweep(attempt: Path) -> None:
    """Remove what a process has left in the folder of its attempt that was killed."""
    sweep_programs(attempt)
    for draft in attempt.glob("*.part"):
        draft.unlink(missing_ok=True)


def _how(result: CommandResult) -> str:
    """Return how a process without a result has ended, in words."""
    if result.signal is None:
        return f"its process ended with exit code {result.exit_code}"
    try:
        name = signal.Signals(result.signal).name
    except ValueError:
        name = f"signal {result.signal}"
    full = ", perhaps since the memory was full" if result.signal == signal.SIGKILL else ""
    return f"its process was ended by {name}{full}"


def _environment() -> dict[str, str]:
    """Return the environment of a part: what programs need, and none of the variables of this server."""
    kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
    for provider in PROVIDERS:
        if os.environ.get(provider.variable):
            kept[provider.variable] = os.path.abspath(os.environ[provider.variable])
    return kept | {"PYTHONPATH": os.pathsep.join(one for one in sys.path if one), "PYTHONUNBUFFERED": "1"}


LOADED: Final = (_MODULE, *component_modules(), "pandas")
"""What guardians have loaded: all components, and pandas, which Arrow would load with the first array of each part."""
_POOL: Final = lives_here(LoadedPool(LOADED, _environment))


def _error(error: BaseException) -> dict[str, Any]:
    error = disk_error(error) or error
    if isinstance(error, WeftError):
        return {"code": error.code, "message": error.message, "hint": error.hint}
    _log.error("a part could not be started", exc_info=error)  # its text may have paths, which others need not know
    return {"code": "WEFT900", "message": f"the part could not be started: {type(error).__name__}"}
