"""`ActiveRun`: a run whose folder this process owns, with its records, its journal, its control socket and its end."""

from __future__ import annotations

import os
import queue
import shlex
import threading
from bisect import bisect
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from msgspec import Struct

from weft.admin.control import ControlServer
from weft.engine.machines.job import JobState
from weft.engine.machines.vertex import ENDED
from weft.graph.logical import Role
from weft.graph.order import reachable
from weft.model.errors import (
    CapacityError,
    ConflictError,
    InternalError,
    NotFoundError,
    RunCancelledError,
    RunFailedError,
    TaskError,
    UsageError,
    WeftError,
)
from weft.model.ids import item_name, parse_task
from weft.model.suggestions import did_you_mean
from weft.runs.lending import lend_session
from weft.runs.records import BY_USER, SUSPENDED, Record
from weft.runs.verbs import protocol
from weft.runtime.clock import RealClock
from weft.runtime.interruptible import interruptible_wait
from weft.runtime.job import Afterwards
from weft.store.expiry import expire
from weft.store.limits import limit_error
from weft.store.state import StateRoot

if TYPE_CHECKING:
    from pathlib import Path

    from weft.durability.journal import FileJournal
    from weft.durability.resume import Plan
    from weft.engine.commands import Complete
    from weft.engine.policy import ManagerFactory
    from weft.engine.provider import SharedSlots
    from weft.graph.logical import Vertex
    from weft.graph.spec import RunHost, RunSpec
    from weft.runs.mirroring import RunMirror
    from weft.runs.recorder import RunRecorder
    from weft.runs.verbs import Handler
    from weft.runtime.cache import StepCache
    from weft.runtime.history import Historian
    from weft.runtime.job import JobRun
    from weft.runtime.run import Run
    from weft.runtime.session import EngineSession
    from weft.store.catalog import Catalog
    from weft.store.filesystems import Copy
    from weft.store.outputs import Outputs
    from weft.store.state import RunFolder

SUSPEND: Final = "suspend"
SCALE: Final = "scale"
"""The requests to the controller of a job: stop all tasks, and run these numbers of tasks, by vertex."""
_DIGITS: Final = 6
"""The most digits of a number of tasks."""
JOURNAL_S: Final = 30.0
"""The seconds that the end of a run waits for its journal."""


class RunMessage(Struct, frozen=True):
    """A note about a run for the user."""

    text: str


class RunAnnounced(Struct, frozen=True):
    """The id of a run that is about to begin, its steps in order, and warnings for the user.

    `replicas`: its steps are groups of replicas of training jobs.
    """

    run_id: str
    steps: Sequence[str]
    warnings: Sequence[str]
    replicas: bool = False


class RunResult(Struct, frozen=True):
    """The end of a run. `outputs` maps `step.artifact` to a path that exists; `error` is None if it succeeded.

    `at_rest`: it is suspended because its file says so.
    """

    run_id: str
    state: str
    folder: Path
    outputs: dict[str, str]
    error: WeftError | None
    at_rest: bool = False


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
    mirror: RunMirror | None = None


def _by_vertex(tasks: Iterable[tuple[str, int]]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for vertex, index in tasks:
        found.setdefault(vertex, []).append(index)
    return found


def _is_of_helper(plan: Plan) -> Callable[[tuple[str, int]], bool]:
    """Return whether a finished task is one of a helper, of which nothing but its value was left, in its process."""

    def is_of_helper(task: tuple[str, int]) -> bool:
        vertex = plan.vertices.get(task[0])
        return vertex is not None and vertex.role is Role.HELPER and vertex.outputs is None and not vertex.keep

    return is_of_helper


class ActiveRun:
    """A run in this process: `wait` for it, `cancel` it, take its `events`, read its `result`.

    `settled` is set when its end is on disk and its folder is released.
    """

    def __init__(self, spec: RunSpec, stack: Stack, plan: Plan | None, events: RunEvents) -> None:
        self.name = stack.folder.run_id
        self.spec = spec
        self.folder = stack.folder.path
        self.settled = threading.Event()
        self._afterwards = Afterwards(self.settled.is_set)
        self.stack = stack
        self.plan = plan
        self.gone: Mapping[str, Sequence[int]] = {}
        """Finished tasks, by vertex, whose values are gone."""
        if plan is not None and stack.values is not None:
            self.gone = _by_vertex(plan.gone)
        elif plan is not None and plan.recovered is not None:
            self.gone = _by_vertex(
                sorted(filter(_is_of_helper(plan), plan.recovered.master.inspector.finished_tasks()))
            )
        self.events = events
        self._suspended = False
        self._lock = threading.Lock()
        self._accepts = False
        self._at_rest = False
        self._memo: object = None
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
        if self.spec.host is not None:
            job.host = self.spec.host
            job.host.follow_controller(lambda: job.inspector.controller_memo)
            job.listen(self._watch)  # first: the recorder records nothing after the end of the run
        job.listen(self.stack.recorder)
        if self.stack.cache is not None:
            job.listen(self.stack.cache.watch)

    def _watch(self, job: JobRun, events: object, commands: object) -> None:
        """Let the host know of a new memo of the controller; the loop calls this under its lock."""
        memo, host = job.inspector.controller_memo, self.spec.host
        if memo is not self._memo and host is not None:
            self._memo = memo
            self.stack.recorder.call(partial(self._hear, host, memo))

    def _hear(self, host: RunHost, memo: object) -> Sequence[str]:
        """Let the host write what is new, and release a run that nothing continues before a resume."""
        news = host.watch(memo)
        if not self._at_rest and host.rests(memo):
            with self._lock:
                self._at_rest = True
                if self._accepts:
                    self._rest()
        return news

    def _rest(self) -> None:
        self._suspended = True
        self.run.suspend(drain=True)

    # ------------------------------------------------------------------------------------------------- its life

    def start(self, session: EngineSession, listeners: Sequence[Any] = ()) -> Run:
        """Start the run on the workers of a session and accept orders. Errors are those of `EngineSession.start`."""
        plan, stack = self.plan, self.stack
        recovered = None if plan is None else plan.recovered
        try:
            self._control = ControlServer(self.folder, {})
            if stack.mirror is not None:
                stack.mirror.open()
            if self.spec.host is not None:
                self.spec.host.open()
            elif session.executor.tuning.many_machines:
                stack.undo.callback(lend_session(self.folder, session))
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
                shared=self._shared(),
                history=self._history(),
                requests=self.spec.requests,
            )
            self.run = run
            if stack.side_outputs is not None:
                stack.side_outputs.run = run
            if stack.mirror is not None:
                stack.mirror.when_lost = partial(run.cancel, force=True)
            self._control.serve(self.orders())
        except BaseException as error:
            found = limit_error(error) or error
            if isinstance(found, WeftError):
                stack.recorder.run_state("failed", error=found, ended=True)
            self.close()
            if found is error:
                raise
            raise found from error
        self._ender = threading.Thread(target=self._see_to_end, args=(run,), name=f"end of {self.name}", daemon=True)
        self._ender.start()
        with self._lock:
            self._accepts = True
            if self._at_rest:
                self._rest()
        if stack.mirror is not None and stack.mirror.keep:
            stack.recorder.flush()  # whoever is told that it has begun finds it so at the URL
        return run

    def show(self, session: EngineSession) -> Run:
        """Let the results of a run that succeeded before, as its journal tells, be read in a session."""
        plan = self.plan
        assert plan is not None
        assert plan.recovered is not None
        self._result = RunResult(self.name, self.spec.projection.run(JobState.SUCCEEDED.value), self.folder, {}, None)
        self.run = session.show(plan.graph, plan.recovered.master, self)
        return self.run

    def hand_over(self) -> None:
        """Leave a run that has not started to a process elsewhere, which resumes it from the URL of its storage.

        UsageError: that is not possible; errors are those of `RunHost.open`.
        """
        mirror, host = self.stack.mirror, self.spec.host
        assert mirror is not None, "its files travel by a URL"
        assert host is not None
        try:
            mirror.open()
            host.open()
            mirror.hand_over()
        except WeftError as error:
            self.stack.recorder.run_state("failed", error=error, ended=True)
            raise
        finally:
            self.close()

    def _shared(self) -> SharedSlots | None:
        """Return the slots of a run that shares its machine; None for other runs."""
        sharing, host = self.spec.sharing, self.spec.host
        if sharing is None or host is None:
            return None
        from weft.runtime.machine_ledger import ledger_folder  # few runs share the machine
        from weft.runtime.machine_slots import MachineSlots

        slots = MachineSlots(sharing.name or self.name, sharing, ledger_folder(), host.assign)
        self.stack.undo.callback(slots.join, JOURNAL_S)
        return slots

    def _history(self) -> tuple[Historian, str] | None:
        """Return what keeps the measurements of a run, with the fingerprint of its work; None for most runs."""
        if not self.spec.history:
            return None
        from weft.runs.sessions import open_history  # few runs keep them

        historian = open_history(StateRoot(self.folder.parent.parent))
        self.stack.undo.callback(historian.close)
        return historian, self.spec.history

    def orders(self) -> dict[str, Handler]:
        """Return the verbs that other processes may send, with their handlers."""
        run = self.run
        word = self.spec.projection.run
        handlers: dict[str, Handler] = {
            "cancel": self._cancel_order,
            "suspend": lambda order: self.suspend(now=bool(order.get("now"))),
            "scale": lambda order: self.scale(order.get("counts") or ""),
            "story": lambda order: list(run.story(order.get("subject") or "")),
            "why": lambda order: [wait.to_json() for wait in run.waits(order.get("subject") or "")],
            "explain": lambda _: run.explained()._replace(state=word(run.status)).to_json(),
        }
        return protocol(handlers)

    def _cancel_order(self, order: Mapping[str, Any]) -> None:
        reason = order.get("reason") or "cancelled"
        if subject := order.get("subject"):
            self.cancel_task(subject, reason)
        else:
            self.cancel(reason, force=bool(order.get("force")))

    def cancel_task(self, subject: str, reason: str = "cancelled") -> None:
        """Cancel a step or vertex (`fit`), one task of it (`fit[3]`), or all steps of a dag (`dag.`); the others go on,
        as after `Run.cancel_task`.

        NotFoundError: the run has no such step or task. ConflictError: its tasks are not known yet. UsageError: they
        are replicas.
        """
        try:
            name, index, _ = parse_task(subject)
        except ValueError:
            name, index = subject, None
        own = [row for row in self.run.job.inspector.vertices if row.vertex.role is Role.OWN]
        rows = [row for row in own if row.vertex.step == name]
        if not rows and index is None and name.endswith("."):
            rows = [row for row in own if f"{row.vertex.step}.".startswith(name)]
        if not rows:
            raise NotFoundError(f"{self.name} has no step {name[:100]!r} yet", hint=f"See: weft show {self.name}")
        known = [row for row in rows if row.n >= 0]
        after = reachable(self.spec.graph, [row.id for row in known if row.status not in ENDED], down=True)
        for row in rows:
            if row.n < 0 and row.id not in after:
                hint = f"Wait until it begins, or cancel the run: weft cancel {self.name}"
                told = f"how many tasks {row.vertex.step} of {self.name} has is not known yet"
                raise ConflictError(told, hint=hint)
        for row in known:
            if index is None:
                self.run.cancel_tasks(row.id, reason)
            else:
                self.run.cancel_task(row.id, index, reason)

    def cancel(self, reason: str = "cancelled", *, force: bool = False) -> None:
        """Cancel the run; with `force` its final vertices too. One that is being suspended is cancelled instead.

        ConflictError: only final vertices still run, or the run is suspended already.
        """
        if self._ending and not force:
            words = self.spec.projection.final
            raise ConflictError(f"only {words} still runs; a cancel does not end it", hint="Add --force to end it.")
        self.run.cancel(reason, force=force)
        if self.run.job.draining:
            raise ConflictError(f"{self.name} is suspended already", hint=f"Go on with it: weft resume {self.name}")

    def suspend(self, *, now: bool = False) -> None:
        """Start no more tasks, and release the run when all running tasks have ended; with `now` they are stopped.

        A resume continues the run. ConflictError: the run has ended, or only final vertices still run.
        """
        if self._ending or self.run.job.outcome is not None:
            raise ConflictError(f"{self.name} is just ending", hint=f"Look at it: weft show {self.name}")
        self._suspended = True
        controlled = self.spec.graph.controller is not None
        if controlled:
            self.run.request(SUSPEND)
        self.run.suspend(drain=controlled or not now)

    def scale(self, counts: str) -> list[str]:
        """Change the numbers of tasks that run of controlled vertices (`worker=4,ps=2`); return those that stay as they
        are, since they were asked for before.

        UsageError: a vertex is unknown or cannot have so many. CapacityError: so many never get their slots together.
        ConflictError: the run has no controller.
        """
        if self.spec.graph.controller is None:
            raise ConflictError(f"{self.name} has no replicas to scale", hint="Only runs of training jobs have some.")
        rows = {row.id: row.n for row in self.run.job.inspector.vertices if row.vertex.controlled}
        wanted = {}
        for pair in counts.split(","):
            given, equals, number = (word.strip() for word in pair.partition("="))
            name = given.lower()
            if not equals:
                raise UsageError(
                    f"{pair[:60]!r} is no number of replicas", hint=f"For example: weft scale {self.name} worker=4"
                )
            if name in wanted:
                raise UsageError(f"{name} is given twice", hint="Leave out one of them.")
            if name not in rows:
                known = did_you_mean(name, rows, self._scalable(rows))
                raise UsageError(f"{self.name} has no replica type {given[:60]!r}", hint=known)
            least, most, why = self._limits(name, rows)
            whole = number.isascii() and number.isdigit() and len(number) <= _DIGITS
            if not whole or not least <= int(number) <= most:
                bounds = f"always has {least}" if least == most else f"can have {least} to {most}"
                refused = f"{name} cannot have {number[:20]} replicas" if number else f"{name}= lacks its number"
                message = f"{refused}: it {bounds}"
                hint = self._scalable(rows) if least == most else ""
                raise UsageError(f"{message} ({why})" if why else message, hint=hint)
            wanted[name] = int(number)
        host = self.spec.host
        same = [] if host is None else [f"{name}={n}" for name, n in wanted.items() if host.wanted(name) == n]
        if host is not None and (why := self._why_never(host, wanted)):
            raise CapacityError(
                f"{', '.join(f'{name}={n}' for name, n in wanted.items())} can never run: {why}",
                hint=self._what_fits(host, wanted),
            )
        self.run.request(SCALE, wanted)
        return same

    def _why_never(self, host: RunHost, wanted: Mapping[str, int]) -> str:
        """Return why tasks of controlled vertices can never run in such numbers, as a clause; "" if they can, or if no
        more are wanted than there are.
        """
        if all(n <= (host.wanted(name) or 0) for name, n in wanted.items()):
            return ""
        rows = {row.id: row for row in self.run.job.inspector.vertices}
        for counts in host.together(wanted):
            asked = ((rows[name], n) for name, n in counts.items() if n and not rows[name].resources[0].light)
            wants = tuple((row.id, n, row.resources, row.vertex.placement) for row, n in asked)
            if wants and (why := self.run.refusal(wants)):
                return why
        return ""

    def _what_fits(self, host: RunHost, wanted: Mapping[str, int]) -> str:
        """Return the largest number of tasks of a vertex that can run, in words; of several nothing is said."""
        goes_on = f"{self.name} goes on as it is."
        if len(wanted) > 1:
            return goes_on
        ((name, most),) = wanted.items()
        least = host.wanted(name) or 0
        fits = bisect(range(least, most), 0, key=lambda n: int(bool(self._why_never(host, {name: n})))) + least - 1
        return f"{goes_on} The most that fits: {name}={fits}" if fits > least else goes_on

    def _limits(self, name: str, rows: Mapping[str, int]) -> tuple[int, int, str]:
        return (0, rows[name], "") if self.spec.host is None else self.spec.host.limits(name)

    def _scalable(self, rows: Mapping[str, int]) -> str:
        """Return what of the run can be scaled, in words."""
        limits = {name: self._limits(name, rows) for name in rows}
        named = [f"{name} ({least} to {most})" for name, (least, most, _) in limits.items() if least < most]
        return (
            f"{self.name} can be scaled by: {', '.join(named)}" if named else f"Nothing of {self.name} can be scaled."
        )

    def interrupt(self, reason: str) -> None:
        """Cancel the run, with its final vertices."""
        self.run.cancel(reason, force=self._ending)

    @property
    def _ending(self) -> bool:
        return self.run.status == JobState.ENDING.value

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until the end is on disk and no thread of the run is left; False after `timeout_s` seconds."""
        if not interruptible_wait(self.settled.wait, timeout_s):
            return False
        if self._ender is not None and self._ender is not threading.current_thread():
            self._ender.join()
        return True

    def when_settled(self, action: Callable[[], None]) -> None:
        """Call an action when the end is on disk; it must return at once."""
        self._afterwards.add(action)

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
        state = spec.projection.run(run.status)
        if spec.host is not None:
            recorder.call(partial(_tell_end, spec.host, state, run.job.outcome))
        if self._control is not None:
            self._control.close()
        recorder.flush()
        self._free(run.job)
        error = error_of(run, recorder.counted)
        if self.stack.strict and not recorder.complete and error is None:
            state, error = (
                "failed",
                RunFailedError(f"{self.name} ended, but its end could not be written to disk: see its notes"),
            )
        outputs = self._made_outputs()
        self._result = RunResult(self.name, state, self.folder, outputs, error)
        if state == "succeeded" and error is None:
            self._link_last(outputs)
        for copy in self.stack.copies:
            copy.give_back(self.events.note)

    def _link_last(self, outputs: Mapping[str, str]) -> None:
        """Let the link to the last outputs of the pipeline lead to those of this run, unless it was a part of it."""
        about = self.spec.about
        if not outputs or not self.spec.roots or about.get("only") or about.get("targets"):
            return
        from weft.store.last_links import link_last

        try:
            link_last(self.spec.roots[0], self.name, self.spec.graph.name, outputs)
        except OSError as error:
            self.events.note(f"the link to the last outputs of {self.spec.graph.name} stays: {error}")

    def _conclude_suspended(self, job: JobRun) -> None:
        """Record the suspension when nothing runs any more."""
        job.unlisten(self.stack.recorder)
        if self._control is not None:
            self._control.close()
        self._end_processes()
        self.stack.recorder.run_state(SUSPENDED, ended=True)
        self.stack.recorder.flush()
        outputs = self._made_outputs()
        error = None
        if self._at_rest and self.spec.host is not None and (failed := self.spec.host.failures()):
            error = RunFailedError(f"{failed}; the others are suspended", hint=f"See why: weft show {self.name}")
        self._result = RunResult(self.name, SUSPENDED, self.folder, outputs, error, at_rest=self._at_rest)

    def _free(self, job: JobRun) -> None:
        """Remove the values of a succeeded run, except its results."""
        values = self.stack.values
        if values is not None and job.crash is None and job.inspector.status is JobState.SUCCEEDED:
            for stage in job.inspector.vertices:
                if not stage.keep:
                    values.free(stage.id, 0, max(stage.n, 0))

    def _made_outputs(self) -> dict[str, str]:
        """Return the existing outputs of finished tasks, by `step.artifact`."""
        paths, found = self.spec.paths, {}
        if paths is None:
            return {}
        done = self.run.job.inspector.finished_tasks()
        for stage in self.run.job.inspector.vertices:
            for index in range(max(stage.n, 0)):
                if (stage.id, index) in done:
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
            self._end_processes()
            if self.spec.host is not None:
                self.spec.host.close()
            if stack.journal.error is not None and not stack.strict:
                lost = "a resume would begin from the records alone"
                if stack.values is not None:
                    lost = "what came after that would be run again by a resume"
                self.events.note(f"{stack.journal.error.message}; {lost}")
            for problem in dict.fromkeys(e.message for e in stack.recorder.problems if isinstance(e, WeftError)):
                lost = "" if stack.recorder.complete else "; `weft show` and `weft ls` cannot show how this run ended"
                self.events.note(f"{problem}{lost}")
            stack.undo.close()
            expire(StateRoot(self.folder.parent.parent), RealClock().wall())
        finally:
            self.settled.set()
            self._afterwards.call()
            self.events.end()

    def _end_processes(self) -> None:
        """End what killed guardians have left, by their records."""
        with suppress(OSError), os.scandir(self.folder / "processes") as entries:
            if next(entries, None) is None:
                return
            from weft.admin.deleting import end_processes  # few runs leave processes

            end_processes(self.folder)

    def discard(self) -> None:
        """Remove a run that was never started, with all its files."""
        import shutil  # few runs are discarded

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
        """Add the announcement of the run, then its notes."""
        self._queue.put(RunAnnounced(run_id, spec.steps, spec.warnings, spec.graph.controller is not None))
        for note in spec.notes:
            self.note(note)

    def end(self) -> None:
        """Mark the end of the events."""
        self._queue.put(None)

    def take(self, timeout_s: float | None = None) -> RunEvent | None:
        """Return the next event; None at the end. queue.Empty: none came within `timeout_s` seconds."""
        event = self._queue.get(timeout=timeout_s)
        if event is None:
            self._queue.put(None)
        return event


def _tell_end(host: RunHost, state: str, outcome: Complete | None) -> Sequence[str]:
    host.end(state, "" if outcome is None else outcome.message, RealClock().wall())
    return ()


def error_of(run: Run, counted: Callable[[str, str], str]) -> WeftError | None:
    """Return the error of a run; `counted` returns the message of a failed task for the whole run."""
    error = run.error()
    if isinstance(error, TaskError):
        own = error.message.removeprefix(f"{error.task} failed: ")
        return type(error)(
            counted(own, error.task),
            task=error.task,
            traceback_text=error.traceback_text,
            raised=error.raised,
            hint=error.hint,
        )
    outcome = run.job.outcome
    if isinstance(error, RunCancelledError) and outcome is not None and outcome.task:
        return RunCancelledError(counted(f"{BY_USER}{outcome.message}", outcome.task), hint=error.hint)
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
