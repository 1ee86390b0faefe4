"""The commands that run a pipeline: `weft run` and `weft resume`, and the report at the end of a run."""

from __future__ import annotations

import signal
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from weft.cli.arguments import (
    AsJson,
    Detach,
    Given,
    LabelOptions,
    ParamFile,
    PipelineOptions,
    Quiet,
    StateDir,
    Where,
    WorkerOptions,
    folder_of,
    not_from_stdin,
    party_folder,
    read_overrides,
    service_of,
    settings_of,
)
from weft.cli.context import CommandContext, drop_output
from weft.cli.parsing import CommandParameter
from weft.cli.planning import print_plan, warn
from weft.cli.steps import MOST_OUTPUTS, in_python, more_outputs, print_next, print_steps, run_document, took
from weft.cli.tables import clean, print_json, short_path
from weft.model.errors import ConflictError, ForbiddenError, NotFoundError, RunCancelledError, UsageError, WeftError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.admin.settings import Settings
    from weft.runs.active import RunAnnounced, RunResult
    from weft.runs.background import StartedRun
    from weft.runs.reading import RunRecord
    from weft.runs.requests import RunRequest
    from weft.runs.service import RunService
    from weft.store.state import StateRoot


def run(
    file: Path,
    /,
    *,
    wishes: PipelineOptions,
    name: str | None = None,
    workers: WorkerOptions,
    labels: LabelOptions,
    notify: str | None = None,
    state_dir: StateDir = None,
    dry_run: bool = False,
    touch: str | None = None,
    quiet: Quiet = False,
    detach: Detach = False,
    firing: Annotated[
        str, CommandParameter(show=False, help="The due time of the schedule that started this run.")
    ] = "",
    as_json: AsJson = False,
    context: Given,
) -> int:
    """Run a pipeline and wait for its end."""
    base, request = folder_of(context, file), wishes.request(context, file, name, labels)
    flags = {**workers.flags, **wishes.flags, "notify": notify, "state_dir": state_dir, "quiet": quiet or None}
    settings = wishes.settings(context, file, flags)
    service = context.service(settings, settings.state_root(base))
    if dry_run and touch is not None:
        raise UsageError("--dry-run and --touch exclude each other")
    if detach and touch is None:
        not_from_stdin(file, "a run in the background")
        if context.begun is None:
            if settings.backend == "ray":
                again = ["resume", *workers.words, "--detach"]
                if settings.storage and not context.wiring().is_job_file(str(file)):
                    again += [] if notify is None else ["--notify", notify]
                    return _handed_over(context, service, request, again, as_json=as_json)
                return _at_the_cluster(context, settings, service, again)
            return in_background(context, service.state)
    context.hint = "No run was started."
    loaded = service.load(request)
    if dry_run:
        warn(context, loaded.warnings)
        return print_plan(context, service, loaded, as_json=as_json)
    if touch is not None:
        from weft.cli.planning import print_touched

        return print_touched(context, service.touch(loaded, "" if touch == "auto" else touch), as_json=as_json)
    context.wiring().make_ready(settings.backend)
    where = _where(context, settings, base)
    shown = _Foreground(context, settings, where, (), detach=detach, as_json=as_json)

    def announced(run: RunAnnounced) -> None:
        warn(context, run.warnings)
        folder = service.state.folder(run.run_id)
        shown.progress.expect(run.steps, jobs=folder if run.replicas else None)
        context.hint = f"See its steps: weft show {run.run_id}{where}"

    with shown.progress:
        result = context.wiring().run_pipeline(
            loaded, settings, on_announced=announced, firing=firing, labels=request.labels, **shown.callbacks()
        )
    return _report(context, service, result, settings, base, as_json=as_json)


def resume(
    run: str,
    /,
    *,
    file: Path | None = None,
    parameters: list[str] | None = None,
    param_file: ParamFile = None,
    workers: WorkerOptions,
    notify: str | None = None,
    gpus: str | None = None,
    gpu_type: str | None = None,
    storage: str | None = None,
    quiet: Quiet = False,
    detach: Detach = False,
    as_json: AsJson = False,
    where: Where,
    context: Given,
) -> int:
    """Continue a failed, cancelled, suspended or killed run; finished steps do not run again."""
    if (party := party_folder(context, where)) is not None:
        from weft.cli.party_jobs import resume as resume_job

        if file is not None or parameters or param_file is not None:
            raise UsageError(
                "a federated job is resumed with its own files",
                hint=f"To change parameters: weft party rerun {run} --changes FILE",
            )
        resume_job(context, party, run, detach=detach, as_json=as_json)
        return 0
    if detach and file is not None:
        not_from_stdin(file, "a resume in the background")
    from weft.runs.reading import began_on, has_storage, profile_settings
    from weft.runs.reopening import refuse_resume
    from weft.store.state import owned

    begins_apart = detach and context.begun is None
    overrides = read_overrides(context, "-" if file is None else str(file), parameters or [], param_file)
    service = service_of(context, where, storage=storage)
    found = service.show(_adopted(context, service, run))
    base = context.cwd / (where.project or "")
    if found.file and (folder := folder_of(context, Path(found.file))).is_dir():
        base = folder
    flags = {**workers.flags, "gpus": gpus, "gpu_type": gpu_type, "notify": notify, "quiet": "true" if quiet else None}
    flags["backend"] = workers.backend or began_on(found.folder)
    profile = (found.profile, profile_settings(found.folder)) if found.profile else None
    settings = settings_of(context, base, {**flags, "state_dir": found.folder.parent.parent}, profile=profile)
    if begins_apart and settings.backend == "ray":
        again = ["resume", *workers.words, "--detach"]
        if has_storage(found.folder):
            refuse_resume(found, owned(found.folder))
            again += [] if notify is None else ["--notify", notify]
            return _at_the_cluster(context, settings, service, again, run=found.id, as_json=as_json)
        return _at_the_cluster(context, settings, service, again)
    if begins_apart:
        return in_background(context, None)
    options = _where(context, settings, base)
    steps = [step.name for step in found.steps]
    shown = _Foreground(
        context, settings, options, steps, detach=detach, as_json=as_json, jobs=found.folder if found.of_jobs else None
    )
    text = None if file is None else str(file)
    try:
        with shown.progress:
            result = context.wiring().resume_run(
                found.folder, settings, file=text, overrides=overrides, **shown.callbacks()
            )
    except KeyboardInterrupt:
        context.hint = f"See its steps: weft show {found.id}{options}. To continue: weft resume {found.id}{options}"
        raise
    return _report(context, service, result, settings, base, as_json=as_json)


def _adopted(context: CommandContext, service: RunService, run: str) -> str:
    """Return the name of a run; one that is not here is fetched from the storage, if there is one."""
    try:
        service.find(run)
    except NotFoundError:
        if not service.settings.storage or run.startswith("@"):
            raise
        found = service.adopt(run)
        context.say(f"note: {found} was fetched from {clean(service.settings.storage)}")
        return found
    return run


class _Foreground:
    """The display of a run in the foreground: its progress, its notes, and its begin in the background."""

    def __init__(
        self,
        context: CommandContext,
        settings: Settings,
        where: str,
        steps: Sequence[str],
        *,
        detach: bool,
        as_json: bool,
        jobs: Path | None = None,
    ) -> None:
        from weft.cli.progress import make_progress

        silent = settings.quiet or as_json or detach
        self._context, self._settings, self._where, self._as_json = context, settings, where, as_json
        self.progress = make_progress(
            steps,
            context.err,
            lambda: context.console(context.err),
            context.clock.wall,
            quiet=silent,
            jobs=jobs,
        )

    def callbacks(self) -> dict[str, Any]:
        """Return the callbacks of a run: arguments of `run_pipeline` and `resume_run`."""
        return {
            "on_record": self.progress.add,
            "on_note": lambda note: self._context.say(f"note: {clean(note)}"),
            "on_interrupt": self._interrupted,
            "on_begin": self._begun,
            "quiet": self._settings.quiet,
        }

    def _interrupted(self) -> None:
        """Confirm the first Ctrl-C on a terminal."""
        if self._context.err.isatty():
            self.progress.say("cancelling; press Ctrl-C again to leave at once")

    def _begun(self, folder: Path) -> None:
        """Print, in the background, the id of the run that has begun."""
        context = self._context
        if context.begun is None:
            return
        if self._as_json:
            print_json(context.out, "weft.started/1", run=folder.name)
        else:
            context.out.write(f"{folder.name}\n")
            if not self._settings.quiet:
                context.say(f"runs in the background; follow it: weft logs -f {folder.name}{self._where}")
        context.begun(context, folder)


def in_background(context: CommandContext, root: StateRoot | None) -> int:
    """Let another process run this command line, and print its output until the run has begun.

    The process is `weft up` of the state folder if it runs, else a new one.
    """
    from weft.cli.detached import start_one
    from weft.runs.background import CommandLine, hand_over

    line = CommandLine(context.words, context.cwd, context.environ)
    started = (None if root is None else hand_over(root, line)) or start_one(line)
    context.out.write(started.out)
    context.err.write(started.err)
    return started.code


def _at_the_cluster(
    context: CommandContext,
    settings: Settings,
    service: RunService,
    again: Sequence[str],
    *,
    run: str = "",
    as_json: bool = False,
) -> int:
    """Let a process in the Ray cluster run this command line, and print its output until the run has begun.

    With `run` it drives that run, which lies at the URL of its storage. `again` resumes the run after the loss of the
    machine. Of the environment, only the settings of Weft go along; its ports are those of the machine.
    """
    from weft.cli.detached import start_words
    from weft.store.listening import PORTS

    root = service.state.path
    log = service.log_of(run) if run else None
    words, again = ([], again) if run else (context.words, [*again, "--state-dir", str(root)])
    environ = {name: value for name, value in context.environ.items() if name.startswith("WEFT_") and name != PORTS}
    address = settings.cluster_options().address
    started: StartedRun = context.wiring().start_driver(
        start_words, words, again, context.cwd, environ, root, address, log
    )
    if not (run and started.run):  # else its words name the folder of the other machine
        context.out.write(started.out)
        context.err.write(started.err)
        if run:
            context.say(f"{run} is not lost. When the cause is mended: weft resume {run} -d")
        return started.code
    service.find(run)  # what follows it knows that it goes on
    if as_json:
        print_json(context.out, "weft.started/1", run=run)
        return started.code
    context.out.write(f"{run}\n")
    if not settings.quiet:
        context.say(f"runs at the cluster; follow it: weft logs -f {run}")
    return started.code


def _handed_over(
    context: CommandContext, service: RunService, request: RunRequest, again: Sequence[str], *, as_json: bool
) -> int:
    """Begin a run, and let a process in the Ray cluster drive it that gets its files by the URL of the storage."""
    from weft.runs.requests import portable

    context.hint = "No run was started."
    loaded = service.load(portable(request))
    warn(context, loaded.warnings)
    run, _ = service.hand_over(loaded, labels=request.labels)
    try:
        return _at_the_cluster(context, service.settings, service, again, run=run, as_json=as_json)
    except (WeftError, KeyboardInterrupt):
        try:
            list(service.delete([run]))
        except WeftError:  # its driver may live, or the URL is gone
            context.hint = f"{run} may run nevertheless. Look at it: weft show {run}"
        raise


def _report(
    context: CommandContext, service: RunService, result: RunResult, settings: Settings, base: Path, *, as_json: bool
) -> int:
    """Print the end of a run and return the exit code, which is valid even if the reader of stdout has gone."""
    code = _exit_code(result)
    try:
        found = None if settings.quiet and not as_json else _record_of(context, service, result)
        if found is None and as_json:
            _print_lost(context, result)
        elif found is None:
            context.out.write(result.run_id + "\n")
            if result.error is not None:
                context.say(f"error {result.error.code}: {clean(str(result.error))}")
        elif as_json:
            _print_result(context, found, result)
        else:
            _print_summary(context, found, result, _where(context, settings, base))
        context.out.flush()
    except BrokenPipeError:
        if not code:
            raise
        drop_output()
    return code


def _record_of(context: CommandContext, service: RunService, result: RunResult) -> RunRecord | None:
    """Return the record of a run that has ended here, None if its folder was moved meanwhile."""
    try:
        return service.show(result.run_id)
    except NotFoundError:
        context.say(f"note: {result.run_id} has {result.state}; its folder was moved or deleted meanwhile")
        return None


def _exit_code(result: RunResult) -> int:
    if result.error is None:
        return 0 if result.state == "succeeded" or result.at_rest else 1
    if isinstance(result.error, RunCancelledError):
        by = (number for number in (signal.SIGTERM, signal.SIGHUP) if number.name in result.error.message)
        return next((128 + number for number in by), result.error.exit_code)
    return result.error.exit_code


def _print_result(context: CommandContext, found: RunRecord, result: RunResult) -> None:
    from weft.cli.failures import error_document

    document = run_document(found)
    document |= {"state": result.state, "outputs": dict(result.outputs) or document["outputs"]}
    extra = {} if result.error is None else {"error": error_document(result.error)}
    print_json(context.out, "weft.run/1", run=document, **extra)


def _print_lost(context: CommandContext, result: RunResult) -> None:
    """Print what is known of a run without a folder as a JSON document."""
    from weft.cli.failures import error_document

    extra = {} if result.error is None else {"error": error_document(result.error)}
    run = {"id": result.run_id, "state": result.state, "outputs": dict(result.outputs)}
    print_json(context.out, "weft.run/1", run=run, **extra)


def _print_summary(context: CommandContext, found: RunRecord, result: RunResult, where: str) -> None:
    out, cwd = context.out, context.cwd
    print_steps(context, found)
    time = (
        ""
        if found.ended is None
        else took(found.started, found.ended, found.state, found.ended, found.paused_s, open_end=False)
    )
    out.write(f"\n{result.run_id} {result.state}{f' in {time}' if time else ''}\n")
    if result.error is not None:
        context.say(f"error {result.error.code}: {clean(result.error.message)}")
    if found.of_jobs:
        from weft.runs.job_reasons import failed_beside  # most runs are pipelines

        warn(context, [beside] if (beside := failed_beside(found)) else [])
    outputs = list(result.outputs.items())
    for at, (name, place) in enumerate(outputs[:MOST_OUTPUTS]):
        out.write(f"{'outputs' if at == 0 else '':9}{clean(name)}: {short_path(place, cwd)}\n")
    if more := more_outputs(len(outputs), result.run_id, where):
        out.write(f"{'':9}{more}\n")
    if found.of_session:
        if result.state == "succeeded":
            out.write(f"{'results':9}{in_python(found)}\n")
        else:
            out.write(f"{'next':9}weft resume {result.run_id}{where}\n")
        out.write(f"{'next' if result.state == 'succeeded' else '':9}weft explain {result.run_id}{where}\n")
        return
    out.write(f"{'logs':9}{short_path(result.folder / 'logs', cwd)}\n")
    print_next(context, found, result.state, where)


def _where(context: CommandContext, settings: Settings, base: Path) -> str:
    """Return the options that a command typed here needs to find the runs of another folder."""
    used = settings.state_root(base)
    with suppress(ConflictError, ForbiddenError):  # this folder can have no runs
        if settings_of(context, context.cwd, {}).state_root(context.cwd).path == used.path:
            return ""
    if settings.origin("state_dir").kind == "flag":
        return f" --state-dir {short_path(used.path, context.cwd)}"
    return f" -C {short_path(base.resolve(), context.cwd.resolve())}"
