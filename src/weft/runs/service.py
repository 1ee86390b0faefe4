"""`RunService`: the use cases of runs, without signals and without a terminal. Runs share a store and workers.

Each use case loads its modules when it is called: a list of runs needs no engine.
"""

from __future__ import annotations

import threading
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weft.model.errors import CapacityError, ConflictError, MissingExtraError, UsageError, WeftError
from weft.runs.following import RunFollower
from weft.runs.listing import (
    find_run,
    index_may_be_busy,
    list_runs,
    mark_interrupted,
    projects_below,
    split_target,
)
from weft.runs.reading import TRAINING, began_on, conditions_of, read_run
from weft.runs.records import RUN_STATES
from weft.runs.verbs import VERBS
from weft.runtime.clock import RealClock
from weft.store.state import owned, read_description

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from weft.admin.settings import Settings
    from weft.engine.explain import Explained
    from weft.graph.job_plan import JobPlan
    from weft.runs.active import ActiveRun, RunEvents
    from weft.runs.comparing import Comparison
    from weft.runs.health import Finding
    from weft.runs.logs import RunLogs
    from weft.runs.opening import Managers
    from weft.runs.reading import RunRecord
    from weft.runs.reasons import Reasons, Taken
    from weft.runs.records import Record
    from weft.runs.requests import RunRequest
    from weft.runs.schedules import ScheduleService
    from weft.runs.sources import PlannableSource, ResumableSource, RunSource
    from weft.runs.sweeps import Sweep
    from weft.runs.workers import Concrete
    from weft.runtime.clock import WallClock
    from weft.runtime.session import EngineSession
    from weft.store.catalog import RunRow
    from weft.store.labels import RunLabels
    from weft.store.planning import Foreseen
    from weft.store.results import ResultCache
    from weft.store.state import StateRoot
    from weft.store.tallies import Tally
    from weft.store.touching import TouchedStep


class RunService:
    """Submits, resumes, ends, shows and deletes the runs of one state folder.

    A context manager, or call `close` when all runs have ended. The first run makes the store and the workers from the
    settings, unless a `session` lends its own; all runs share them. `note` takes lines for the user.
    `state` is by default the state folder of the
    current folder. `run` names a run by its id, a unique prefix of it, its number, @last or @failed; `target` names a
    run, or a step of it by `RUN/STEP` or `RUN/STEP@ATTEMPT`. NotFoundError: there is no such run or step.
    """

    def __init__(
        self,
        concrete: Concrete,
        settings: Settings,
        state: StateRoot | None = None,
        clock: WallClock | None = None,
        session: EngineSession | None = None,
        note: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._concrete = concrete
        self.settings = settings
        self.state = state or settings.state_root(Path())
        self.clock: WallClock = clock or RealClock()
        self._undo = ExitStack()
        self._lock = threading.Lock()
        self._session = session
        self._note = note
        self._follower = RunFollower(note, self.clock, lambda folder: concrete.driver_lives(folder))

    @property
    def managers(self) -> Managers:
        """The vertex managers and job policies, by name."""
        return self._concrete.MANAGERS

    def source_again(self, frontend: str, folder: Path, file: str) -> ResumableSource:
        """Return the source of a run, read from its folder."""
        return self._concrete.source_again(frontend, folder, file)

    def ask_owner(self, folder: Path, message: Mapping[str, Any]) -> Any:
        """Return the answer of the owner of a run, here or at a cluster. ConflictError: nobody answers."""
        from weft.runs.orders import deliver

        def ask(folder: Path, message: Mapping[str, Any]) -> Any:
            try:
                return self._concrete.order_driver(folder, message)
            except (CapacityError, MissingExtraError, UsageError) as error:
                self._note(f"the process of {folder.name} at the cluster cannot be asked: {error.message}")
                raise ConflictError(error.message) from None

        return deliver(folder, message, ask)

    # ---------------------------------------------------------------------------------------------- runs that go on

    def load(self, request: RunRequest) -> PlannableSource:
        """Return the source of a run of a pipeline file; nothing is started or written.

        NotFoundError, ForbiddenError: the file cannot be read. PipelineError lists all mistakes. UsageError: a wrong
        wish.
        """
        from weft.runs.requests import load

        return load(request, self._concrete, self.settings, self.state)

    def submit(
        self,
        source: RunSource,
        *,
        events: RunEvents | None = None,
        firing: str = "",
        durability: str = "",
        labels: RunLabels | None = None,
    ) -> ActiveRun:
        """Begin a run and return it, with an id, a folder, a row in the index and a control socket.

        `labels` are its tags and its note. `firing` is the due time of the schedule that started the run
        (`name@due@epoch`). Errors before the run begins are raised, later errors are in its result. ConflictError: the
        schedule no longer wants the run.
        """
        from weft.runs.active import RunEvents
        from weft.runs.opening import give_labels, open_run

        state = self.state
        state.prepare()
        self.expire()
        with index_may_be_busy():
            mark_interrupted(state)
        events = events or RunEvents()
        if state.diversion:
            events.note(state.diversion)

        def wanted(run_id: str) -> None:
            if firing:
                _claim(state, firing, run_id)
            give_labels(state.folder(run_id), labels)

        session = self.workers()
        durability = durability or self.settings.durability
        managers, tuning = self._concrete.MANAGERS, session.executor.tuning
        backend = self.settings.backend
        run = open_run(state, source, tuning, managers, events, durability=durability, backend=backend, wanted=wanted)
        run.start(session)
        return run

    def sweep(
        self,
        request: RunRequest | None,
        *,
        sample: int | None = None,
        seed: int | None = None,
        metric: str = "",
        maximize: bool = False,
        at_a_time: int = 0,
        stop_when: str = "",
        halve: str = "",
        resume: str = "",
        flags: Mapping[str, str] | None = None,
        say: Callable[[str], None] = lambda _: None,
    ) -> Sweep:
        """Return a sweep over a grid of parameters, whose texts have several values, or an earlier one to go on with.

        Nothing is started. With `sample` so many points are chosen at random, by `seed`. `flags` are settings that a
        later owner needs, `say` takes lines for the user. UsageError: an option is wrong. NotFoundError: no such sweep.
        """
        from weft.runs.sweeping import begin_sweep, sweep_again

        if request is None:
            return sweep_again(self, resume, say, at_a_time=at_a_time, metric=metric)
        return begin_sweep(
            self,
            request,
            say,
            sample=sample,
            seed=seed,
            metric=metric,
            maximize=maximize,
            at_a_time=at_a_time,
            stop_when=stop_when,
            halve=halve,
            flags=flags or {},
        )

    def sweep_flags(self, sweep: str) -> Mapping[str, str]:
        """Return the settings with which an earlier sweep began. NotFoundError: there is none of this name."""
        from weft.runs.sweep_files import read_plan

        return read_plan(self.state, sweep).flags

    def resume(
        self,
        run: str,
        *,
        events: RunEvents | None = None,
        file: str | None = None,
        overrides: Mapping[str, str] | None = None,
        source: ResumableSource | None = None,
    ) -> ActiveRun:
        """Resume a run that failed, was cancelled or suspended, or whose owner was killed, and return it.

        Finished tasks are not run again unless an output of them is gone. With `file` or `overrides`, the run continues
        with an edited pipeline or other parameters: changed steps run again, with all later steps. `source` is the work
        of a run whose folder does not tell all of it. ConflictError: the
        run is active, has succeeded, was made by a version that did not keep the necessary files, or cannot continue
        with this edit. PipelineError, UsageError: the edit is invalid.
        """
        from weft.runs.active import RunEvents
        from weft.runs.reopening import refuse_resume, resume_files

        events = events or RunEvents()
        folder = self.find(run)
        before = read_run(folder)
        refuse_resume(before, owned(folder))
        if before.of_session:
            if file is not None or overrides:
                raise UsageError(f"{folder.name} is a run of a Python program: it has no file to edit")
            return self._resume_graph(folder, events)
        with ExitStack() as undo:
            try:
                return resume_files(self.state, folder, undo, events, file, overrides or {}, self, source)
            except KeyboardInterrupt:
                if self._session is not None:
                    undo.pop_all()  # a second signal leaves at once; guardians and the next start clean up
                raise

    def _resume_graph(self, folder: Path, events: RunEvents) -> ActiveRun:
        """Resume a run of a program's session, in a session with the same options unless a flag overrides one."""
        from weft.admin import opened

        description, settings = read_description(folder), self.settings
        backend = settings.backend
        if settings.origin("backend").kind != "flag":
            backend = began_on(folder) or backend
        options = opened.options_of(description, settings)
        if backend != "ray":
            del options["cluster"]
        if backend not in ("processes", "ray"):
            options.pop("worker_memory", None)
        session = self._concrete.Session(backend, spill=settings.spill, durable=self.state.path, **options)
        self._undo.callback(session.close)
        run: ActiveRun = session.reopen(folder.name, events, unfinished=True)
        return run

    def adopt(self, run: str) -> str:
        """Make the folder of a run from the storage of the settings, for a resume here. Return the id of the run.

        `run` is its id, or its key at the storage. NotFoundError: it is not there. ConflictError: there are several,
        its process may live, or another run has its id here.
        """
        from weft.runs.mirroring import adopt

        return adopt(self.state, run, self.settings.storage, self.clock.wall)

    def hand_over(
        self, source: RunSource, *, labels: RunLabels | None = None, events: RunEvents | None = None
    ) -> tuple[str, tuple[str, str]]:
        """Begin a run whose process is to be elsewhere, at machines that share no folder with this one.

        Return its id, and the URL and the key by which a driver finds it. The folder here follows it. Errors are those
        of `submit`. UsageError: the run or the URL permits no process elsewhere.
        """
        from weft.runs.handing import hand_over

        run = hand_over(self.state, self.settings, self.managers, source, events, labels)
        return run, self.log_of(run)

    def log_of(self, run: str) -> tuple[str, str]:
        """Return the URL and the key of a run whose files travel by a URL. UsageError: they do not."""
        from weft.runs.handing import log_of

        return log_of(self.find(run))

    def fetch(self, run: str) -> list[str]:
        """Bring the outputs of a run that lie at the URL of its storage to their places; return the new paths.

        DiskFullError, ForbiddenError: they cannot be written. CapacityError: the URL cannot be read.
        """
        from weft.runs.mirroring import fetch_outputs

        return fetch_outputs(self.find(run))

    def cancel(self, run: str, *, force: bool = False, reason: str = "weft cancel") -> str:
        """Request the owner of a run to cancel it; with `force` its final vertices too. Return the id of the run.

        `run` may name a step or an item of one (`RUN/STEP-2`): this alone is cancelled, and its name is returned.

        ConflictError: it has ended, or the owner of the run does not answer. NotFoundError: there is no such step.
        UsageError: it is a replica, or `force` is given with a step.
        """
        from weft.runs.orders import send_order, task_subject

        name, slash, step = run.partition("/")
        subject = shown = ""
        if slash and step:
            if force:
                raise UsageError(f"--force is about a whole run, not about {step[:100]}", hint="Leave it out.")
            subject, shown = task_subject(self.show(name), step)
        order = VERBS["cancel"].order(force=force, reason=reason, subject=subject)
        found = send_order(self.find(name), order, self._concrete.order_driver)
        return f"{found}/{shown}" if shown else found

    def suspend(self, run: str, *, now: bool = False) -> str:
        """Request the owner of a run to suspend it, for a later resume. Return the id of the run.

        With `now`, running tasks are stopped. ConflictError: the run has ended.
        """
        from weft.runs.orders import send_order

        return send_order(self.find(run), VERBS["suspend"].order(now=now), self._concrete.order_driver)

    def scale(self, run: str, counts: Sequence[str]) -> tuple[str, list[str]]:
        """Request the owner of a run to change numbers of replicas (`worker=4`).

        Return the id of the run, and those of the numbers that were asked for before, so that nothing changes.

        `run` may name a step of a pipeline that runs training jobs (`RUN/STEP`).

        UsageError: a replica type is unknown, or cannot have so many. ConflictError: the run has ended, or has no
        replicas.
        """
        from weft.runs.inner import the_inner_run
        from weft.runs.orders import answer_of

        name, slash, step = run.partition("/")
        record = self.show(name) if slash and step else None
        if record is not None and record.of_jobs:
            pair = f"{step}={counts[0] if counts[0].isdigit() else 4}"
            raise UsageError(
                f"{step[:60]} is no step: {record.id} is a run of training jobs",
                hint=f"For example: weft scale {record.id} {pair[:60]}",
            )
        folder = self.find(run) if record is None else the_inner_run(record, step).folder
        same = answer_of(folder, VERBS["scale"].order(counts=",".join(counts)), self._concrete.order_driver)
        return f"{self.find(name).name}/{step}" if slash and step else folder.name, same

    # ------------------------------------------------------------------------------------------------------- reading

    def find(self, run: str, *, polls: bool = False) -> Path:
        """Return the folder of a run. UsageError: the name contains a step.

        The caller `polls` if it asks again and again: a run at a cluster is then looked at once a second.
        """
        name, slash, step = run.partition("/")
        if slash and step:
            raise UsageError(
                f"{run[:100]!r} names a step, but this command takes a run: {name[:100]}",
                hint=f"For one step: weft show {run[:100]}, weft story {run[:100]}, weft logs {run[:100]}",
            )
        folder = find_run(self.state, run)
        self._follower.look(folder, polls=polls)
        return folder

    def show(self, run: str) -> RunRecord:
        """Return the present state of a run and its steps."""
        return read_run(self.find(run))

    def show_inner(self, run: RunRecord, step: str, *, alone: bool = False) -> list[RunRecord]:
        """Return the present state of the runs that a step of a run has begun itself, such as those of training jobs.

        NotFoundError: no such step, or `alone` and it has not exactly one.
        """
        from weft.runs.inner import inner_runs, the_inner_run

        found = [the_inner_run(run, step)] if alone else inner_runs(run, step)
        return [read_run(one.folder) for one in found]

    def list_runs(
        self, *, state: str | None = None, name: str | None = None, tags: Sequence[str] = (), number: int = 0
    ) -> tuple[Sequence[RunRow], int]:
        """Return the newest runs, newest first and at most `number` (0: all), and the number of all.

        With `tags` (`NAME=VALUE`, or `NAME` with any value) only runs that have all of them.
        """
        if state is not None and state not in RUN_STATES:
            raise UsageError(f"{state!r} is not a state of runs", hint=f"There are: {', '.join(RUN_STATES)}")
        if number < 0:
            raise UsageError(f"--number is {number}; it must be 0 or more")
        self._follower.look_at_all(self.state)
        if not tags:
            return list_runs(self.state, limit=number or None, state=state, name=name)
        from weft.store.labels import has_tags, parse_tags

        parse_tags(tags)
        rows, _ = list_runs(self.state, limit=None, state=state, name=name)
        found = [row for row in rows if has_tags(self.labels(row.id), tags)]
        return found[: number or None], len(found)

    def labels(self, run_id: str) -> RunLabels:
        """Return the tags and the note of a run."""
        from weft.store.labels import read_labels

        return read_labels(self.state.folder(run_id))

    def tag(self, run: str, tags: Sequence[str] = (), *, remove: Sequence[str] = ()) -> RunLabels:
        """Give a run tags (`NAME=VALUE`, or `NAME`), and remove tags by name; return its tags and its note.

        UsageError: one is not valid, or not there.
        """
        from weft.store.labels import change_labels, parse_tags

        return change_labels(self.find(run), tags=parse_tags(tags), remove=remove)

    def note(self, run: str, text: str) -> RunLabels:
        """Give a run a note, or remove it with an empty text; return its tags and its note."""
        from weft.store.labels import change_labels, valid_note

        return change_labels(self.find(run), note=valid_note(text))

    def conditions(self, row: RunRow) -> list[tuple[str, str]]:
        """Return the name and the present condition of each training job of a run; [] for other runs."""
        return conditions_of(self.state.folder(row.id), row.state) if row.frontend == TRAINING else []

    def metrics(self) -> Tally:
        """Return the counters of the training jobs of this state folder, also of those that were deleted."""
        from weft.store.tallies import job_counters

        return job_counters(self.state)

    def projects_below(self, folder: Path) -> list[Path]:
        """Return the folders below one that have runs of their own; see `listing.projects_below`."""
        return projects_below(folder)

    def logs(self, target: str) -> RunLogs:
        """Return the logs of a run or a step: those of the latest attempt of each task, or of the named attempt."""
        from weft.runs.logs import logs_of

        name = split_target(target)
        return logs_of(self.find(name.run, polls=True), name.step, name.attempt)

    def origins(self, target: str) -> list[Taken]:
        """Return the tasks of other runs that made the cached results of a run or a step, with their logs."""
        from weft.runs.reasons import taken

        name = split_target(target)
        run = self.show(name.run)
        outer = name.step.partition("/")[0]  # containers and replicas of steps are no tasks of their own
        step, item = run.task(outer) if outer else (None, None)
        return taken(run, "" if step is None else step.name, item)

    def events(self, target: str) -> list[tuple[float, Record]]:
        """Return the records of a run or a step, each with the seconds since the first record of the run."""
        from weft.runs.timeline import events_of

        name = split_target(target)
        return events_of(self.show(name.run), name.step, name.attempt)

    def story(self, target: str) -> Sequence[str]:
        """Return the history of a run of a program, from its owner or its journal; () if neither has any."""
        from weft.runs.timeline import story_of

        name = split_target(target)
        return story_of(self.show(name.run), name.step, name.attempt, self)

    def watch(self, run: str, pause: Callable[[], None]) -> Iterator[Record]:
        """Yield the records of a run until it ends, the old ones first; call `pause` before each look for new ones."""
        from weft.runs.timeline import watch_folder

        folder = self.find(run)

        def wait() -> None:
            pause()
            self._follower.look(folder, polls=True)

        return watch_folder(folder, wait)

    def explain(self, run: str) -> Explained:
        """Compare the planned with the executed graph: by the owner of a run, else by its journal or its records."""
        from weft.runs.explaining import explain_run

        return explain_run(self.show(run), self)

    def why(self, target: str, *, against: str | None = None, note: Callable[[str], None] = lambda _: None) -> Reasons:
        """Return why a step waits, why it ran, or which cached result it used; of a run without its end, what waits.

        The inputs are compared with those of the nearest cached result, or with those of the run `against`. `note`
        reports an unusable cache: the recorded reason needs none.
        """
        from weft.runs.answering import why

        return why(self, target, against, note)

    def report(self, run: str, output: Path) -> None:
        """Write a report about a run, live or ended, to a file.

        It is a page (`.html`) or its graph (`.svg`, `.mmd`). UsageError: another ending. NotFoundError, ForbiddenError,
        DiskFullError: the file cannot be written.
        """
        from weft.runs.reports.writing import check_form, write_report

        check_form(output)
        write_report(self.show(run), self, self.clock.wall(), self.results, output)

    def export(
        self, run: str, output: Path, *, license: str = "", without_outputs: bool = False, logs: bool = False
    ) -> list[str]:
        """Write a run of a pipeline as an RO-Crate to a new folder or a ZIP file; return remarks for the user.

        `license` is a URL or a name. UsageError: it is not a run of a pipeline. ConflictError: it exists already.
        NotFoundError, ForbiddenError, DiskFullError: the crate cannot be written.
        """
        from weft.runs.crates import write_crate

        now, outputs = self.clock.wall(), not without_outputs
        return write_crate(self.show(run), self, now, output, license=license, outputs=outputs, logs=logs)

    def compare(self, first: str, second: str) -> Comparison:
        """Compare two runs: what they were given, how they went, and what they made, by content."""
        from weft.runs.comparing import compare_runs

        with self.results(lambda _: None) as cache:
            return compare_runs(self.show(first), self.show(second), self, cache)

    def plan(self, source: PlannableSource, *, note: Callable[[str], None] = lambda _: None) -> list[Foreseen]:
        """Return whether each step would run, be reused or depend on another. Nothing is started.

        With an unusable cache no step would be reused: the reasons of steps have its error, or `note` reports it.
        Copies of remote file systems are updated, because steps would read them. DefinitionError: the mounts of a step
        are impossible.
        """
        from weft.store.planning import foresee

        tasks = source.planned(self.state.runs)
        with ExitStack() as undo:
            cache = undo.enter_context(self.results(note))
            source.copies(undo, lambda _: None)
            return foresee(cache, tasks)

    def misfit(self, source: PlannableSource) -> CapacityError | None:
        """Return the error with which a run would be refused because a step asks for more than any worker has.

        None: there is none, or a cluster has the workers.
        """
        from weft.runs.foreseeing import misfit

        return misfit(source, self.settings)

    def touch(self, source: PlannableSource, run: str) -> list[TouchedStep]:
        """Record the outputs of an earlier run as the results of steps as they are now; nothing runs.

        `run` is by default ("") the run of the whole pipeline that has succeeded last with the same parameters.
        NotFoundError: none has succeeded. ConflictError: none has these parameters, it is active, or an output of it is
        missing. UsageError: training jobs have no results,
        or `run` is no run of a pipeline.
        """
        from weft.runs.foreseeing import touch_run

        return touch_run(self.state, self, source, run)

    def plan_jobs(self, source: PlannableSource) -> list[JobPlan]:
        """Return what a run of training jobs would start, and whether its gangs fit this machine; [] for other work.

        UsageError: the queues or the map of images in `weft.toml` are wrong.
        """
        from weft.runs.foreseeing import plan_jobs

        return plan_jobs(source)

    # ------------------------------------------------------------------------------------------------- the state folder

    def delete(
        self, runs: Iterable[str], *, force: bool = False, note: Callable[[str], None] = lambda _: None
    ) -> Iterator[str]:
        """Delete ended runs, and yield the id of each; `note` reports what stays.

        ConflictError: one is active, or may be, or the disk with the outputs of one is not there and `force` is not
        given; none is deleted.
        """
        from weft.runs.removing import delete_all

        folders = [self.find(run) for run in runs]
        for folder in folders:
            self._follower.check_known(folder)
        return delete_all(self.state, folders, note, force=force)

    def prune(
        self,
        *,
        older_than: float | None = None,
        keep: int | None = None,
        keep_last: int | None = None,
        name: str | None = None,
        state: str | None = None,
        dry_run: bool = False,
        spared: str = "",
        note: Callable[[str], None] = lambda _: None,
    ) -> Iterator[RunRow]:
        """Delete old runs and yield each: all ended runs, except the newest `keep` and those that ended lately.

        The newest are those that ended last. Of each pipeline the newest `keep_last` stay, the newest whole one that
        has succeeded, and the one that the link to the last outputs leads to; points of sweeps do not count. Runs with
        the tag `keep` stay, the run `spared`, and those whose disk with outputs is not there. `older_than` is in
        seconds. With `dry_run` nothing is deleted; `note` reports what stays. UsageError: no option bounds age or
        number.
        """
        from weft.runs.removing import in_place, prunable, prune

        self._follower.look_at_all(self.state)
        if not dry_run:
            self.expire()
        rows = prunable(
            self.state,
            self.clock.wall(),
            older_than_s=older_than,
            keep=keep,
            keep_last=keep_last,
            name=name,
            state=state,
            spared=spared,
        )
        rows = in_place(self.state, rows, note)
        return iter(rows) if dry_run else prune(self.state, rows, note)

    def expire(self) -> list[str]:
        """Remove the logs of ended training jobs whose time to live is over; return the names of the jobs."""
        from weft.store.expiry import expire

        return expire(self.state, self.clock.wall())

    def examine(self, *, full: bool = False) -> list[Finding]:
        """Check the state folder and its cache; with `full` every file of the cache is read again."""
        from weft.runs.health import examine

        with self.results() as cache:
            return list(examine(self.state, cache, full=full))

    @contextmanager
    def results(self, note: Callable[[str], None] | None = None) -> Iterator[ResultCache]:
        """Open the cache. Records of digests that cannot be written are an error, or are reported to `note`."""
        from weft.store.results import close_cache, open_cache

        cache = open_cache(self.state.path, self.clock.wall)
        try:
            yield cache
        finally:
            try:
                close_cache(cache)
            except WeftError as error:
                if note is None:
                    raise
                note(error.message)

    def schedules(self) -> ScheduleService:
        """Return the use cases of schedules. A context manager."""
        from weft.runs.schedules import ScheduleService

        return ScheduleService(self.state, self.clock)

    def is_up(self) -> bool:
        """Whether a process fires the schedules."""
        from weft.runs.background import is_up

        return is_up(self.state)

    # ---------------------------------------------------------------------------------------------------- workers

    def workers(self) -> EngineSession:
        """Return the store and the workers that all runs share; the first call makes them."""
        from weft.runs.workers import make_workers

        with self._lock:
            if self._session is None:
                with ExitStack() as undo:
                    self._session = make_workers(self._concrete, self.settings, self.state, undo)
                    self._undo.push(undo.pop_all())
            return self._session

    def close(self) -> None:
        """Cancel active runs, and close store and workers."""
        self._undo.close()

    def __enter__(self) -> RunService:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _claim(state: StateRoot, firing: str, run: str) -> None:
    """Record that a run has taken the due time of a schedule: `name@due@epoch`. ConflictError: it is not wanted."""
    from weft.store.schedules import SCHEDULES_NAME, Schedules

    name, due, epoch = firing.split("@")
    with closing(Schedules(state.path / SCHEDULES_NAME)) as schedules:
        schedules.claim(name, float(due), int(epoch), run, RealClock().wall())
