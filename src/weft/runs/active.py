"""`ActiveRun`: a run whose folder this process owns, with its records, its journal, its control socket and its end."""

from __future__ import annotations

import os
import queue
import shlex
import shutil
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from msgspec import Struct

from weft.admin.control import ControlServer
from weft.engine.machines.job import JobState
from weft.model.errors import ConflictError, InternalError, RunFailedError, TaskError, WeftError
from weft.model.ids import item_name
from weft.runs.records import SUSPENDED, Record
from weft.runs.verbs import protocol

if TYPE_CHECKING:
    from pathlib import Path

    from weft.durability.journal import FileJournal
    from weft.durability.resume import Plan
    from weft.engine.policy import ManagerFactory
    from weft.graph.logical import Vertex
    from weft.graph.spec import RunSpec
    from weft.runs.recorder import RunRecorder
    from weft.runs.verbs import Handler
    from weft.runtime.cache import StepCache
    from weft.runtime.loop import JobRun
    from weft.runtime.session import EngineSession, Run
    from weft.store.catalog import Catalog
    from weft.store.filesystems import Copy
    from weft.store.outputs import Outputs
    from weft.store.state import RunFolder

JOURNAL_S: Final = 30.0
"""The seconds that the end of a run waits for its journal."""


class RunMessage(Struct, frozen=True):
    """A note about a run for the user."""

    text: str


class RunAnnounced(Struct, frozen=True):
    """The id of a run that is about to begin, its steps in order, and warnings for the user."""

    run_id: str
    steps: Sequence[str]
    warnings: Sequence[str]


class RunResult(Struct, frozen=True):
    """The end of a run. `outputs` maps `step.artifact` to a path that exists; `error` is None if it succeeded."""

    run_id: str
    state: str
    folder: Path
    outputs: dict[str, str]
    error: WeftError | None


RunEvent: TypeAlias = Record | RunMessage | RunAnnounced


class Stack(Struct):
    """The parts of a run on disk; `undo` closes them in the opposite order of their making.

    `values` is None if steps exchange files. With `strict`, nothing follows from the end of a task before the end is
    durable.
    """

    folder: RunFolder
    catalog: Catalog
    undo: ExitStack
    journal: FileJournal
    recorder: RunRecorder
    values: Outputs | None
    cache: StepCache | None
    side_outputs: TaskOutputPaths | None
    strict: bool = False
    copies: Sequence[Copy] = ()


class ActiveRun:
    """A run in this process: `wait` for it, `cancel` it, take its `events`, read its `result`.

    `settled` is set when its end is on disk and its folder is released.
    """

    def __init__(self, spec: RunSpec, stack: Stack, plan: Plan | None, events: RunEvents) -> None:
        self.name = stack.folder.run_id
        self.spec = spec
        self.folder = stack.folder.path
        self.settled = threading.Event()
        self.stack = stack
        self.plan = plan
        self.gone: Mapping[str, Sequence[int]] = {}
        """Finished tasks, by vertex, whose values are gone."""
        if plan is not None and stack.values is not None:
            self.gone = {vertex: [n for v, n in plan.gone if v == vertex] for vertex, _ in plan.gone}
        self.events = events
        self._suspended = False
        self.run: Run
        """Its job, after the start."""
        self._result: RunResult | None = None
        self._ender: threading.Thread | None = None
        self._control: ControlServer | None = None

    # ------------------------------------------------------------------------------- what a session is told of it

    @property
    def notes(self) -> list[str]:
        """The notes for the user so far."""
        return self.events.notes

    @property
    def again(self) -> str:
        """The command that resumes a run of a Python program; "" for other runs."""
        if self.stack.values is None:
            return ""
        return f"weft resume {self.name} --state-dir {shlex.quote(str(self.folder.parent.parent))}"

    def managers(self, factories: Mapping[str, ManagerFactory]) -> Mapping[str, ManagerFactory]:
        """Return factories of managers whose answers are written to the journal."""
        return self.stack.journal.managers(factories)

    def join(self, job: JobRun) -> None:
        """Give the job its files and its recorder, before the job begins."""
        if self.stack.values is not None:
            job.outputs = self.stack.values
            job.answers = {} if self.plan is None else self.plan.answers
        job.listeners.append(self.stack.recorder)
        if self.stack.cache is not None:
            job.listeners.append(self.stack.cache.watch)

    # ------------------------------------------------------------------------------------------------- its life

    def start(self, session: EngineSession, listeners: Sequence[Any] = ()) -> Run:
        """Start the run on the workers of a session and accept orders. Errors are those of `EngineSession.start`."""
        plan, stack = self.plan, self.stack
        recovered = None if plan is None else plan.recovered
        try:
            run = session.start(
                self.spec.graph,
                listeners=listeners,
                journal=stack.journal,
                durable=self,
                cache=stack.cache,
                restored=() if plan is None else plan.restored,
                recovered=None if recovered is None else (recovered.master, recovered.pending),
                incarnation=0 if plan is None else plan.header.incarnation,
                strict=stack.strict,
            )
            self.run = run
            if stack.side_outputs is not None:
                stack.side_outputs.run = run
            self._control = ControlServer(self.folder, self.orders())
        except BaseException as error:
            if isinstance(error, WeftError):
                stack.recorder.run_state("failed", error=error, ended=True)
            self.close()
            raise
        self._ender = threading.Thread(target=self._see_to_end, args=(run,), name=f"end of {self.name}", daemon=True)
        self._ender.start()
        return run

    def orders(self) -> dict[str, Handler]:
        """Return the verbs that other processes may send, with their handlers."""
        run = self.run
        word = self.spec.projection.run
        handlers: dict[str, Handler] = {
            "cancel": lambda order: self.cancel(order.get("reason") or "cancelled", force=bool(order.get("force"))),
            "suspend": lambda order: self.suspend(now=bool(order.get("now"))),
            "story": lambda order: list(run.story(order.get("subject") or "")),
            "why": lambda order: [wait.to_json() for wait in run.waits(order.get("subject") or "")],
            "explain": lambda _: run.explained()._replace(state=word(run.status)).to_json(),
        }
        return protocol(handlers)

    def cancel(self, reason: str = "cancelled", *, force: bool = False) -> None:
        """Cancel the run; with `force` its final vertices too. ConflictError: only final vertices still run."""
        if self._ending and not force:
            words = self.spec.projection.final
            raise ConflictError(f"only {words} still runs; a cancel does not end it", hint="Add --force to end it.")
        self.run.cancel(reason, force=force)

    def suspend(self, *, now: bool = False) -> None:
        """Start no more tasks, and release the run when all running tasks have ended; with `now` they are stopped.

        A resume continues the run. ConflictError: the run has ended, or only final vertices still run.
        """
        if self._ending or self.run.job.outcome is not None:
            raise ConflictError(f"{self.name} is just ending", hint=f"Look at it: weft show {self.name}")
        self._suspended = True
        self.run.suspend(drain=not now)

    def interrupt(self, reason: str) -> None:
        """Cancel the run, with its final vertices."""
        self.run.cancel(reason, force=self._ending)

    @property
    def _ending(self) -> bool:
        return self.run.status == JobState.ENDING.value

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until the end is on disk and no thread of the run is left; False after `timeout_s` seconds."""
        if not self.settled.wait(timeout_s):
            return False
        if self._ender is not None and self._ender is not threading.current_thread():
            self._ender.join()
        return True

    def result(self) -> RunResult:
        """Wait for the end, and return the result."""
        self.wait()
        assert self._result is not None
        return self._result

    def _see_to_end(self, run: Run) -> None:
        run.job.finished.wait()
        try:
            self._conclude(run)
        except Exception as error:  # noqa: BLE001 - whoever waits must hear of it
            broken = error if isinstance(error, WeftError) else InternalError(f"{type(error).__name__}: {error}")
            self._result = RunResult(self.name, "failed", self.folder, {}, broken)
        finally:
            self.close()

    def _conclude(self, run: Run) -> None:
        """Write the end of the run."""
        recorder, spec = self.stack.recorder, self.spec
        if self._suspended and run.job.draining:
            self._conclude_suspended(run.job)
            return
        recorder.finish(run.job)
        if self._control is not None:
            self._control.close()
        recorder.flush()
        self._free(run.job)
        error = error_of(run)
        state = spec.projection.run(run.status)
        if self.stack.strict and not recorder.complete and error is None:
            state, error = (
                "failed",
                RunFailedError(f"{self.name} ended, but its end could not be written to disk: see its notes"),
            )
        self._result = RunResult(self.name, state, self.folder, self._made_outputs(), error)
        for copy in self.stack.copies:
            copy.give_back(self.events.note)

    def _conclude_suspended(self, job: JobRun) -> None:
        """Record the suspension when nothing runs any more."""
        job.listeners.remove(self.stack.recorder)
        if self._control is not None:
            self._control.close()
        from weft.admin.deleting import end_processes  # few runs are suspended

        end_processes(self.folder)
        self.stack.recorder.run_state(SUSPENDED, ended=True)
        self.stack.recorder.flush()
        self._result = RunResult(self.name, SUSPENDED, self.folder, self._made_outputs(), None)

    def _free(self, job: JobRun) -> None:
        """Remove the values of a succeeded run, except its results."""
        values = self.stack.values
        if values is not None and job.crash is None and job.inspector.status is JobState.SUCCEEDED:
            for stage in job.inspector.vertices:
                if not stage.keep:
                    values.free(stage.id, 0, max(stage.n, 0))

    def _made_outputs(self) -> dict[str, str]:
        """Return the outputs that exist, by `step.artifact`."""
        paths, found = self.spec.paths, {}
        if paths is None:
            return {}
        for stage in self.run.job.inspector.vertices:
            for index in range(max(stage.n, 0)):
                for output, path in paths(stage.vertex, index).items():
                    found[f"{item_name(stage.vertex.step, index)}.{output}"] = path
        return {name: path for name, path in found.items() if os.path.lexists(path)}

    def close(self) -> None:
        """Release the run; its files stay. A second call does nothing."""
        if self.settled.is_set():
            return
        stack = self.stack
        try:
            if self._control is not None:
                self._control.close()
            stack.journal.close()
            stack.journal.join(JOURNAL_S)
            if stack.journal.error is not None and not stack.strict:
                lost = "a resume would begin from the records alone"
                if stack.values is not None:
                    lost = "what came after that would be run again by a resume"
                self.events.note(f"{stack.journal.error.message}; {lost}")
            for problem in dict.fromkeys(e.message for e in stack.recorder.problems if isinstance(e, WeftError)):
                lost = "" if stack.recorder.complete else "; `weft show` and `weft ls` cannot show how this run ended"
                self.events.note(f"{problem}{lost}")
            stack.undo.close()
        finally:
            self.settled.set()
            self.events.end()

    def discard(self) -> None:
        """Remove a run that was never started, with all its files."""
        folder, catalog = self.folder, self.stack.catalog
        self.close()
        shutil.rmtree(folder, ignore_errors=True)
        with suppress(WeftError):
            catalog.remove(self.name)
        catalog.close()


class RunEvents:
    """The events of one run, in order: every `RunMessage`, a `RunAnnounced`, and every `Record` if requested."""

    def __init__(self, on_record: Callable[[Record], None] | None = None, *, records: bool = True) -> None:
        self.notes: list[str] = []
        self.on_record = on_record or (self._put if records else None)
        self._queue: queue.SimpleQueue[RunEvent | None] = queue.SimpleQueue()

    def _put(self, record: Record) -> None:
        self._queue.put(record)

    def note(self, text: str) -> None:
        """Add a note for the user."""
        self.notes.append(text)
        self._queue.put(RunMessage(text))

    def announce(self, run_id: str, spec: RunSpec) -> None:
        """Add the announcement of the run."""
        self._queue.put(RunAnnounced(run_id, spec.steps, spec.warnings))

    def end(self) -> None:
        """Mark the end of the events."""
        self._queue.put(None)

    def take(self, timeout_s: float | None = None) -> RunEvent | None:
        """Return the next event; None at the end. queue.Empty: none came within `timeout_s` seconds."""
        event = self._queue.get(timeout=timeout_s)
        if event is None:
            self._queue.put(None)
        return event


def error_of(run: Run) -> WeftError | None:
    """Return the error of a run; the message of a failed step names the step already."""
    error = run.error()
    if isinstance(error, TaskError):
        own = error.message.removeprefix(f"{error.task} failed: ")
        return type(error)(
            own, task=error.task, traceback_text=error.traceback_text, raised=error.raised, hint=error.hint
        )
    return error


class TaskOutputPaths:
    """The side outputs of the tasks of a run, after its start; see `weft.durability.side_outputs`."""

    def __init__(self, spec: RunSpec) -> None:
        self._spec = spec
        self.run: Run | None = None

    def of(self, vertex: str, index: int) -> Sequence[str] | None:
        """Return the paths of a task's outputs; None for a step without named outputs, which may write any file."""
        stage = None if self.run is None else self.run.job.inspector.vertex(vertex)
        paths = self._spec.paths
        if stage is None or paths is None:
            return None
        return list(paths(stage.vertex, index).values()) or (() if stage.vertex.outputs is None else None)


def unforeseen_outputs(spec: RunSpec, planned: Iterable[str]) -> Callable[[Vertex, int], dict[str, str]]:
    """Return a function that returns the outputs of a task by name, except those `planned` before the run."""
    known, paths = frozenset(planned), spec.paths

    def outputs(vertex: Vertex, index: int) -> dict[str, str]:
        step = item_name(vertex.step, index)
        if paths is None or all(f"{step}.{name}" in known for name in vertex.outputs or ()):
            return {}
        return {name: path for name, path in paths(vertex, index).items() if f"{step}.{name}" not in known}

    return outputs
