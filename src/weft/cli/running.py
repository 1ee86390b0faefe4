"""The commands that run a pipeline: `weft run` and `weft resume`, and the report at the end of a run."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from weft.cli.arguments import (
    AsJson,
    Backend,
    Detach,
    DockerEnv,
    Durability,
    Eviction,
    File,
    FileSystems,
    Given,
    Memory,
    NoCache,
    Only,
    ParamFile,
    Params,
    Project,
    Refresh,
    RunName,
    Start,
    StateDir,
    StreamWindow,
    User,
    Workers,
    around_of,
    caching_of,
    not_from_stdin,
    read_overrides,
    service_of,
    settings_of,
)
from weft.cli.context import CommandContext, drop_output
from weft.cli.parsing import CommandParameter
from weft.cli.planning import print_plan, warn
from weft.cli.steps import MOST_OUTPUTS, in_python, more_outputs, print_steps, run_document, took
from weft.cli.tables import clean, print_json, short_path
from weft.model.errors import RunCancelledError

if TYPE_CHECKING:
    from weft.admin.settings import Settings
    from weft.cli.progress import ProgressDisplay
    from weft.runs.active import RunAnnounced, RunResult
    from weft.store.state import StateRoot


def run(
    file: File,
    /,
    *,
    params: Params = None,
    param_file: ParamFile = None,
    fs: FileSystems = None,
    name: Annotated[str | None, CommandParameter(name=["-n", "--name"], help="The name of the run.")] = None,
    workers: Workers = None,
    backend: Backend = None,
    memory: Memory = None,
    eviction: Eviction = None,
    stream_window: StreamWindow = None,
    docker_env: DockerEnv = None,
    durability: Durability = None,
    state_dir: StateDir = None,
    user: User = None,
    no_cache: NoCache = False,
    refresh: Refresh = None,
    start: Start = "",
    only: Only = "",
    dry_run: Annotated[
        bool, CommandParameter(name="--dry-run", help="Print the plan, as `weft plan` does, and run nothing.")
    ] = False,
    quiet: Annotated[bool, CommandParameter(name=["-q", "--quiet"], help="Print only the id of the run.")] = False,
    detach: Detach = False,
    firing: Annotated[
        str, CommandParameter(show=False, help="The due time of the schedule that started this run.")
    ] = "",
    as_json: AsJson = False,
    context: Given,
) -> int:
    """Run a pipeline and wait for its end."""
    overrides = read_overrides(params or [], param_file)
    flags = {
        "workers": workers,
        "backend": backend,
        "memory": memory,
        "eviction": eviction,
        "stream_window": stream_window,
        "docker_env": docker_env,
        "durability": durability,
        "state_dir": state_dir,
        "user": user,
        "quiet": quiet or None,
    }
    base = context.cwd / file.parent
    settings = settings_of(context, base, flags)
    if detach:
        not_from_stdin(file, "a run in the background")
    if detach and context.begun is None:
        return _in_background(context, settings.state_root(base))
    context.hint = "No run was started."
    wiring = context.wiring()
    caching = caching_of(context, no_cache, refresh, start, only)
    around = around_of(context, settings, base, fs)
    user = settings.user_name
    loaded = wiring.load_pipeline(str(file), overrides=overrides, user=user, name=name, **caching, **around)
    if dry_run:
        warn(context, loaded.warnings)
        service = context.service(settings, settings.state_root(base))
        print_plan(context, service.plan(loaded), as_json=as_json)
        return 0
    wiring.make_ready(settings.backend)

    from weft.cli.progress import make_progress

    silent = settings.quiet or as_json or detach
    where = _where(context, settings, base)
    progress = make_progress((), context.err, lambda: context.console(context.err), context.clock.wall, quiet=silent)

    def announced(run: RunAnnounced) -> None:
        warn(context, run.warnings)
        progress.expect(run.steps)
        context.hint = f"See its steps: weft show {run.run_id}{where}"

    with progress:
        result = wiring.run_pipeline(
            loaded,
            settings,
            on_record=progress.add,
            on_note=lambda note: context.say(f"note: {clean(note)}"),
            on_interrupt=lambda: _interrupted(context, progress),
            on_begin=lambda folder: _begun(context, folder, where, quiet=settings.quiet, as_json=as_json),
            on_announced=announced,
            firing=firing,
            quiet=settings.quiet,
        )
    return _report(context, result, settings, base, as_json=as_json)


def resume(
    run: RunName,
    /,
    *,
    file: Annotated[Path | None, CommandParameter(help="Resume with this edited file.")] = None,
    params: Params = None,
    param_file: ParamFile = None,
    workers: Workers = None,
    backend: Backend = None,
    memory: Memory = None,
    gpus: Annotated[
        str | None, CommandParameter(help="The number of GPUs for tasks of a Python graph that request them.")
    ] = None,
    gpu_type: Annotated[str | None, CommandParameter(name="--gpu-type", help="The type of these GPUs.")] = None,
    eviction: Eviction = None,
    stream_window: StreamWindow = None,
    durability: Durability = None,
    quiet: Annotated[bool, CommandParameter(name=["-q", "--quiet"], help="Print only the id of the run.")] = False,
    detach: Detach = False,
    as_json: AsJson = False,
    project: Project = None,
    state_dir: StateDir = None,
    context: Given,
) -> int:
    """Continue a failed, cancelled, suspended or killed run; finished steps do not run again."""
    if detach and file is not None:
        not_from_stdin(file, "a resume in the background")
    if detach and context.begun is None:
        return _in_background(context, None)
    from weft.cli.progress import make_progress

    overrides = read_overrides(params or [], param_file)
    found = service_of(context, project, state_dir).show(run)
    base = context.cwd / (project or "")
    if found.file and Path(found.file).parent.is_dir():
        base = Path(found.file).parent
    flags = {"workers": workers, "backend": backend, "memory": memory, "gpus": gpus, "gpu_type": gpu_type}
    flags |= {"eviction": eviction, "stream_window": stream_window, "durability": durability}
    flags["quiet"] = "true" if quiet else None
    settings = settings_of(context, base, {**flags, "state_dir": found.folder.parent.parent})
    silent = settings.quiet or as_json or detach
    steps = [step.name for step in found.steps]
    progress = make_progress(steps, context.err, lambda: context.console(context.err), context.clock.wall, quiet=silent)
    where = _where(context, settings, base)
    try:
        with progress:
            result = context.wiring().resume_run(
                found.folder,
                settings,
                file=None if file is None else str(file),
                overrides=overrides,
                on_record=progress.add,
                on_note=lambda note: context.say(f"note: {clean(note)}"),
                on_interrupt=lambda: _interrupted(context, progress),
                on_begin=lambda folder: _begun(context, folder, where, quiet=settings.quiet, as_json=as_json),
                quiet=settings.quiet,
            )
    except KeyboardInterrupt:
        context.hint = f"See its steps: weft show {found.id}{where}. To continue: weft resume {found.id}{where}"
        raise
    return _report(context, result, settings, base, as_json=as_json)


def _in_background(context: CommandContext, root: StateRoot | None) -> int:
    """Let another process run this command line, and print its output until the run has begun.

    The process is `weft up` of the state folder if it runs, else a new one.
    """
    from weft.cli.detached import start
    from weft.runs.background import hand_over

    words, cwd, environ = context.words, context.cwd, context.environ
    started = (None if root is None else hand_over(root, words, cwd, environ)) or start(words, cwd, environ)
    context.out.write(started.out)
    context.err.write(started.err)
    return started.code


def _begun(context: CommandContext, folder: Path, where: str, *, quiet: bool, as_json: bool) -> None:
    """Print, in the background, the id of the run that has begun."""
    if context.begun is None:
        return
    if as_json:
        print_json(context.out, "weft.started/1", run=folder.name)
    else:
        context.out.write(f"{folder.name}\n")
        if not quiet:
            context.say(f"runs in the background; follow it: weft logs -f {folder.name}{where}")
    context.begun(context, folder)


def _interrupted(context: CommandContext, progress: ProgressDisplay) -> None:
    """Confirm the first Ctrl-C on a terminal."""
    if context.err.isatty():
        progress.say("cancelling; press Ctrl-C again to leave at once")


def _report(context: CommandContext, result: RunResult, settings: Settings, base: Path, *, as_json: bool) -> int:
    """Print the end of a run and return the exit code, which is valid even if the reader of stdout has gone."""
    code = _exit_code(result)
    try:
        if as_json:
            _print_result(context, result)
        elif settings.quiet:
            context.out.write(result.run_id + "\n")
            if result.error is not None:
                context.say(f"error {result.error.code}: {clean(str(result.error))}")
        else:
            _print_summary(context, result, settings, base)
        context.out.flush()
    except BrokenPipeError:
        if not code:
            raise
        drop_output()
    return code


def _exit_code(result: RunResult) -> int:
    if result.error is None:
        return 0 if result.state == "succeeded" else 1
    if isinstance(result.error, RunCancelledError) and "SIGTERM" in result.error.message:
        return 143
    return result.error.exit_code


def _print_result(context: CommandContext, result: RunResult) -> None:
    from weft.cli.failures import error_document
    from weft.runs.reading import read_run

    document = run_document(read_run(result.folder))
    document |= {"state": result.state, "outputs": dict(result.outputs) or document["outputs"]}
    extra = {} if result.error is None else {"error": error_document(result.error)}
    print_json(context.out, "weft.run/1", run=document, **extra)


def _print_summary(context: CommandContext, result: RunResult, settings: Settings, base: Path) -> None:
    from weft.runs.reading import read_run

    found = read_run(result.folder)
    out, cwd = context.out, context.cwd
    print_steps(context, found)
    time = "" if found.ended is None else took(found.started, found.ended, found.state, found.ended, found.paused_s)
    out.write(f"\n{result.run_id} {result.state}{f' in {time}' if time else ''}\n")
    if result.error is not None:
        context.say(f"error {result.error.code}: {clean(result.error.message)}")
    where = _where(context, settings, base)
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
    broken = [step.name for word in ("failed", "terminated") for step in found.steps if step.state == word]
    shown = (broken or [step.name for step in found.steps if step.state != "skipped"][-1:] or [""])[0]
    out.write(f"{'next':9}weft show {result.run_id}{where}\n")
    if result.state in ("failed", "terminated", "suspended"):
        out.write(f"{'':9}weft resume {result.run_id}{where}\n")
    if shown:
        out.write(f"{'':9}weft logs {shlex.quote(f'{result.run_id}/{clean(shown)}')}{where}\n")


def _where(context: CommandContext, settings: Settings, base: Path) -> str:
    """Return the options that a command typed here needs to find the runs of another folder."""
    used = settings.state_root(base)
    if settings_of(context, context.cwd, {}).state_root(context.cwd) == used:
        return ""
    if settings.origin("state_dir").kind == "flag":
        return f" --state-dir {short_path(used.path, context.cwd)}"
    return f" -C {short_path(base.resolve(), context.cwd.resolve())}"
