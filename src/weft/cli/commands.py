"""The commands: each reads its arguments, calls what does the work, and prints the answer.

What does the work is loaded inside the commands, so that help and completion stay quick.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

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
    Target,
    User,
    Workers,
    around_of,
    caching_of,
    find_record,
    not_from_stdin,
    open_results,
    read_overrides,
    root_of,
    settings_of,
    split_target,
)
from weft.cli.context import CommandContext, drop_output
from weft.cli.parsing import CommandGroup, CommandParameter
from weft.cli.steps import MOST_OUTPUTS, more_outputs, print_steps, run_document, took
from weft.cli.tables import clean, iso, moment, one_line, output_path, print_json, print_table, short_path
from weft.model.errors import ConflictError, NotFoundError, RunCancelledError, UsageError
from weft.model.records import as_dict
from weft.runs.verbs import VERBS

if TYPE_CHECKING:
    from weft.admin.settings import Settings
    from weft.cli.progress import ProgressDisplay
    from weft.engine.explain import Explained
    from weft.runs.active import RunAnnounced, RunResult
    from weft.runs.planning import Foreseen
    from weft.runs.records import Record, RunRecord
    from weft.store.catalog import RunRow
    from weft.store.state import LogFile, StateRoot

app = CommandGroup("weft", help="One engine for the graphs that data and machine-learning teams run.")
config_app = CommandGroup("config", help="Show settings and where each comes from.")
app.command(config_app)
for _name in ("cancel", "suspend", "delete", "prune"):
    app.command(f"weft.cli.lifecycle:{_name}", name=_name, help=VERBS[_name].help)
app.command("weft.cli.schedules:schedule_app", name="schedule", help="Have pipelines run again and again.")
app.command("weft.cli.up:up", name="up", help="Fire the schedules of a project, and run what `weft run -d` asks for.")
app.command("weft.cli.results:cache_app", name="cache", help="Look at the results that are kept, and remove some.")


def _version() -> str:
    from weft._version import __version__

    return f"weft {__version__}"


def dispatch(words: Sequence[str], context: CommandContext) -> int:
    """Parse the words of a command line, run the command, and return its exit code. UsageError: they make no sense."""
    context.words = words
    if words[:1] in (["--version"], ["-V"]):
        context.out.write(f"{_version()}\n")
        return 0
    found = app.parse(words)
    if isinstance(found, str):
        context.out.write(found)
        return 0
    extra = {"context": context} if "context" in found.wants else {}
    code = found.function(*found.args, **found.kwargs, **extra)
    return code if isinstance(code, int) else 0


# ----------------------------------------------------------------------------------------------------------------- run


@app.command
def run(
    file: File,
    /,
    *,
    params: Params = None,
    param_file: ParamFile = None,
    fs: FileSystems = None,
    name: Annotated[str | None, CommandParameter(name=["-n", "--name"], help="Call the run this.")] = None,
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
        bool, CommandParameter(name="--dry-run", help="Say what would run, as `weft plan` does.")
    ] = False,
    quiet: Annotated[bool, CommandParameter(name=["-q", "--quiet"], help="Print the id of the run alone.")] = False,
    detach: Detach = False,
    firing: Annotated[str, CommandParameter(show=False, help="The due time of a schedule that this run is for.")] = "",
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
    context.hint = "No run had begun."
    wiring = context.wiring()
    caching = caching_of(context, no_cache, refresh, start, only)
    around = around_of(context, settings, base, fs)
    user = settings.user_name
    loaded = wiring.load_pipeline(str(file), overrides=overrides, user=user, name=name, **caching, **around)
    if dry_run:
        _warn(context, loaded.warnings)
        _print_plan(context, wiring.plan_pipeline(loaded, settings), as_json=as_json)
        return 0
    wiring.make_ready(settings.backend)

    from weft.cli.progress import make_progress

    silent = settings.quiet or as_json or detach
    where = _where(context, settings, base)
    progress = make_progress((), context.err, lambda: context.console(context.err), context.clock.wall, quiet=silent)

    def announced(run: RunAnnounced) -> None:
        _warn(context, run.warnings)
        progress.expect(run.steps)
        context.hint = f"What it had done: weft show {run.run_id}{where}"

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


@app.command
def resume(
    run: RunName,
    /,
    *,
    file: Annotated[Path | None, CommandParameter(help="Go on with this edited file.")] = None,
    params: Params = None,
    param_file: ParamFile = None,
    workers: Workers = None,
    backend: Backend = None,
    memory: Memory = None,
    gpus: Annotated[
        str | None, CommandParameter(help="GPUs for the tasks of a Python graph that ask for them.")
    ] = None,
    gpu_type: Annotated[str | None, CommandParameter(name="--gpu-type", help="The type of all of these.")] = None,
    eviction: Eviction = None,
    stream_window: StreamWindow = None,
    durability: Durability = None,
    quiet: Annotated[bool, CommandParameter(name=["-q", "--quiet"], help="Print the id of the run alone.")] = False,
    detach: Detach = False,
    as_json: AsJson = False,
    project: Project = None,
    state_dir: StateDir = None,
    context: Given,
) -> int:
    """Go on with a run that failed, was cancelled or was killed; what has finished is not run again."""
    if detach and file is not None:
        not_from_stdin(file, "a resume in the background")
    if detach and context.begun is None:
        return _in_background(context, None)
    from weft.cli.progress import make_progress

    overrides = read_overrides(params or [], param_file)
    found = find_record(context, run, project, state_dir)
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
        context.hint = f"What it had done: weft show {found.id}{where}. To go on: weft resume {found.id}{where}"
        raise
    return _report(context, result, settings, base, as_json=as_json)


def _in_background(context: CommandContext, root: StateRoot | None) -> int:
    """Have another process carry out this command line; say what it says until the run has begun.

    That is `weft up` of a state folder where there is one, else a new process.
    """
    from weft.cli.detached import start
    from weft.cli.up import submit

    started = (None if root is None else submit(root, context)) or start(context.words, context.cwd, context.environ)
    context.out.write(started.out)
    context.err.write(started.err)
    return started.code


def _warn(context: CommandContext, warnings: Sequence[str]) -> None:
    """Say what a person should know before a run."""
    for warning in warnings:
        context.say(f"warning: {clean(warning)}")


def _begun(context: CommandContext, folder: Path, where: str, *, quiet: bool, as_json: bool) -> None:
    """Tell, in the background, which run has begun."""
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
    """Say on a terminal that the first Ctrl-C was heard."""
    if context.err.isatty():
        progress.say("cancelling; press Ctrl-C again to leave at once")


def _report(context: CommandContext, result: RunResult, settings: Settings, base: Path, *, as_json: bool) -> int:
    """Tell how a run ended, and return the exit code: how the run ended is in it though nobody reads the rest."""
    code = _exit_code(result)
    try:
        if as_json:
            _print_result(context, result)
        elif settings.quiet:
            context.out.write(result.run_id + "\n")
            if result.error is not None:
                context.say(f"error {result.error.code}: {clean(str(result.error))}")
        else:
            _tell_result(context, result, settings, base)
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
    from weft.runs.records import read_run

    document = run_document(read_run(result.folder))
    document |= {"state": result.state, "outputs": dict(result.outputs) or document["outputs"]}
    extra = {} if result.error is None else {"error": error_document(result.error)}
    print_json(context.out, "weft.run/1", run=document, **extra)


def _tell_result(context: CommandContext, result: RunResult, settings: Settings, base: Path) -> None:
    from weft.runs.records import read_run

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
            out.write(f"{'results':9}{_in_python(found)}\n")
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


def _in_python(found: RunRecord) -> str:
    """Return how a program reads the results of a run that one has begun."""
    state = str(found.folder.absolute().parent.parent)
    return f"in Python: weft.Session(durable={state!r}).resume({found.id!r}).result()"


def _where(context: CommandContext, settings: Settings, base: Path) -> str:
    """Return what must follow a command typed here for it to find the runs of another folder."""
    used = settings.state_root(base)
    if settings_of(context, context.cwd, {}).state_root(context.cwd) == used:
        return ""
    if settings.origin("state_dir").kind == "flag":
        return f" --state-dir {short_path(used.path, context.cwd)}"
    return f" -C {short_path(base.resolve(), context.cwd.resolve())}"


# ------------------------------------------------------------------------------------------------------------ ls, show


@app.command(name="ls")
def ls(
    *,
    state: Annotated[str | None, CommandParameter(help="Only runs in this state.")] = None,
    name: Annotated[str | None, CommandParameter(help="Only runs of this name.")] = None,
    number: Annotated[int, CommandParameter(name=["-n", "--number"], help="At most so many; 0: all.")] = 20,
    quiet: Annotated[bool, CommandParameter(name=["-q", "--quiet"], help="Print ids alone.")] = False,
    as_json: AsJson = False,
    project: Project = None,
    state_dir: StateDir = None,
    context: Given,
) -> None:
    """List the runs, newest first."""
    from weft.cli.tables import state_text
    from weft.runs.listing import list_runs
    from weft.runs.records import RUN_STATES

    if state is not None and state not in RUN_STATES:
        raise UsageError(f"no run can be in state {state!r}", hint=f"There are: {', '.join(RUN_STATES)}")
    if number < 0:
        raise UsageError(f"--number is {number}; it must be 0 or more")
    root = root_of(context, project, state_dir)
    rows, total = list_runs(root, limit=number or None, state=state, name=name)
    if as_json:
        print_json(context.out, "weft.runs/1", runs=[_row_document(row) for row in rows], total=total)
        return
    if quiet:
        context.out.write("".join(f"{row.id}\n" for row in rows))
        return
    now = context.clock.wall()
    print_table(
        context.console(),
        ("RUN", "STATE", "NAME", "STARTED", "TIME", "USER"),
        [
            (
                row.id,
                state_text(row.state, context.out),
                one_line(row.name, 40),
                moment(row.started_at or row.created_at or None),
                took(row.started_at, row.ended_at, row.state, now, row.paused_s),
                one_line(row.user, 20),
            )
            for row in rows
        ],
    )
    if not rows:
        context.say(f"no runs{' like this' if state or name else ''} in {root.path}")
    elif total > len(rows):
        context.say(f"showing {len(rows)} of {total}; all: weft ls -n 0")


@app.command
def show(
    run: Annotated[str, CommandParameter(help="RUN, or RUN/STEP; RUN/STEP-2 or RUN/STEP[2] for an item of a loop.")],
    /,
    *,
    as_json: AsJson = False,
    project: Project = None,
    state_dir: StateDir = None,
    context: Given,
) -> None:
    """Show one run, or one step of it: times, parameters, outputs and where its logs lie."""
    name, step, _ = split_target(run)
    found = find_record(context, name, project, state_dir)
    if step:
        from weft.cli.steps import show_step

        show_step(context, found, step, as_json=as_json)
        return
    if as_json:
        print_json(context.out, "weft.run/1", run=run_document(found))
        return
    from weft.cli.tables import state_text

    now = context.clock.wall()
    outputs = list(found.outputs.items())
    head: list[tuple[str, Any]] = [
        ("run", found.id),
        ("state", state_text(found.state, context.out)),
        ("name", one_line(found.name)),
        ("file", short_path(found.file, context.cwd) if found.file else ""),
        ("user", one_line(f"{found.user}@{found.host}" if found.host else found.user)),
        ("started", moment(found.started)),
        ("time", took(found.started, found.ended, found.state, now, found.paused_s)),
        ("parameters", one_line(", ".join(f"{k}={v}" for k, v in found.parameters.items()), 500)),
        ("error", f"{found.error_code} {one_line(found.message, 500)}" if found.error_code else ""),
        ("folder", short_path(found.folder, context.cwd)),
        *((f"output {one_line(name, 40)}", output_path(place, context.cwd)) for name, place in outputs[:MOST_OUTPUTS]),
        ("outputs", more_outputs(len(outputs), found.id)),
        ("results", _in_python(found) if found.of_session and found.state == "succeeded" else ""),
    ]
    out = context.console()
    width = max(len(name) for name, value in head if value)
    for name, value in head:
        if value:
            out.print(f"{name:{width}} ", value)
    context.out.write("\n")
    print_steps(context, found)


def _row_document(row: RunRow) -> dict[str, Any]:
    document = as_dict(row)
    del document["version"], document["error_code"], document["error_message"]
    for name in ("created_at", "started_at", "ended_at"):
        document[name] = iso(document[name] or None)
    error = {"code": row.error_code, "message": row.error_message} if row.error_code else None
    return {**document, "error": error}


# --------------------------------------------------------------------------------------------------------- logs, story


@app.command
def logs(
    target: Target,
    /,
    *,
    follow: Annotated[bool, CommandParameter(name=["-f", "--follow"], help="Go on until the run has ended.")] = False,
    tail: Annotated[
        int | None, CommandParameter(name="--tail", help="Only the last lines, so many of each log.")
    ] = None,
    as_json: Annotated[bool, CommandParameter(name="--json", help="Print a JSON document for each line.")] = False,
    project: Project = None,
    state_dir: StateDir = None,
    context: Given,
) -> None:
    """Print the logs of a run, or of one step; of each task its latest attempt, unless one is named."""
    from weft.cli.logs import print_logs
    from weft.runs.records import ACTIVE, read_run

    if tail is not None and tail < 0:
        raise UsageError(f"--tail is {tail}; it must be 0 or more")
    run, step, attempt = split_target(target)
    record = find_record(context, run, project, state_dir)
    folder = record.folder
    if follow and run != folder.name:
        context.say(f"following {folder.name}{f' ({clean(record.name)})' if record.name else ''}")

    def look() -> tuple[list[LogFile], bool]:
        found = read_run(folder)
        one_step, item = found.task(step) if step else (None, None)
        steps = found.steps if one_step is None else [one_step]
        picked: dict[tuple[str, int | None], LogFile] = {}
        for log in (log for one in steps for log in one.logs):
            if attempt in (None, log.attempt) and item in (None, log.index or 0):
                picked[(log.step, log.index)] = log
        return list(picked.values()), found.state in ACTIVE

    shown = print_logs(look, context.out, follow=follow, tail=tail, pause=context.pause, as_json=as_json)
    if not shown:
        if attempt is not None and not look()[0]:
            raise NotFoundError(f"{run}/{step} has no log of attempt {attempt}", hint=f"See: weft show {run}")
        if tail == 0:
            return
        if read_run(folder).of_session:
            context.say(f"{target} is of a Python program: what its tasks print goes to where the program runs")
        elif attempt is not None or not _print_taken(context, read_run(folder), step, tail=tail, as_json=as_json):
            context.say(f"{target} has printed nothing")


def _print_taken(context: CommandContext, found: RunRecord, step: str, *, tail: int | None, as_json: bool) -> bool:
    """Print what was printed where the results were made that a step took; of a run say how to see that."""
    from weft.cli.logs import print_logs
    from weft.runs.reasons import taken

    one, item = found.task(step) if step else (None, None)
    made = taken(found, "" if one is None else one.name, item)
    if not made:
        return False
    if one is None:
        context.say(f"{found.id} has printed nothing: results were taken from the cache")
        context.say(f"See what was printed when one was made: weft logs {found.id}/STEP")
        return True
    for run in dict.fromkeys(each.run for each in made if each.gone):
        context.say(f"{found.id}/{step} was taken from the cache, and the logs of {run}, which made it, are gone")
    there = [each for each in made if not each.gone]
    if there:
        names = list(dict.fromkeys(f"{each.run}/{each.step}" for each in there))
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        context.say(f"{found.id}/{step} was taken from the cache; this is of {', '.join(names[:3])}{more}")
        logs = [log for each in there for log in each.logs]
        if not print_logs(
            lambda: (logs, False), context.out, follow=False, tail=tail, pause=context.pause, as_json=as_json
        ):
            context.say("Nothing was printed there")
    return True


@app.command
def story(
    target: Target,
    /,
    *,
    as_json: AsJson = False,
    project: Project = None,
    state_dir: StateDir = None,
    context: Given,
) -> None:
    """Tell what happened to a run or a step, and why."""
    from weft.admin.control import send
    from weft.runs.records import item_name, read_records
    from weft.store.state import owned

    run, step, attempt = split_target(target)
    found = find_record(context, run, project, state_dir)
    one, item = found.task(step) if step else (None, None)
    subject = "" if one is None else one.name if item is None else f"{one.name}[{item}]"

    def about(record: Record) -> bool:
        return one is None or (record.step == one.name and item in (None, record.index))

    if as_json:
        _print_story(context, found, [record for record in read_records(found.folder) if about(record)])
        return
    if owned(found.folder):
        try:
            asked = subject if attempt is None else f"{subject}@{attempt}"
            for line in send(found.folder, {"do": "story", "subject": asked}):
                context.out.write(clean(str(line)) + "\n")
        except ConflictError:  # it ended meanwhile, or is just starting: its records tell
            pass
        else:
            return
    elif lines := context.wiring().story_run(found.folder, subject):
        context.out.write("".join(f"{clean(line)}\n" for line in lines))
        return
    told: dict[tuple[str, int | None], str] = {}
    begin = None
    for record in read_records(found.folder):
        begin = record.time if begin is None else begin
        if not about(record):
            continue
        who = clean(record.step if record.index is None else item_name(record.step, record.index)) or found.id
        known = told.get((record.step, record.index)) == record.message
        message = "" if known or not record.message else f": {one_line(record.message, 2000)}"
        told[record.step, record.index] = record.message or told.get((record.step, record.index), "")
        context.out.write(f"{record.time - begin:10.3f}s  {who}: {clean(record.state)}{message}\n")


def _print_story(context: CommandContext, found: RunRecord, records: Sequence[Record]) -> None:
    told = [
        {
            "at": iso(record.time),
            "step": record.step,
            "index": record.index,
            "attempt": record.attempt if record.step else None,
            "state": record.state,
            "exit": record.exit,
            "message": record.message,
        }
        for record in records
    ]
    print_json(context.out, "weft.story/1", run=found.id, events=told)


@app.command
def explain(
    run: RunName,
    /,
    *,
    as_json: AsJson = False,
    project: Project = None,
    state_dir: StateDir = None,
    context: Given,
) -> None:
    """Set what was planned and what was executed side by side, with every change and what it was made from."""
    found = find_record(context, run, project, state_dir)
    told = _explained(context, found)
    if as_json:
        print_json(context.out, "weft.explain/1", run=found.id, **told.to_json())
        return
    context.out.write("".join(f"{clean(line)}\n" for line in told.lines()))


def _explained(context: CommandContext, found: RunRecord) -> Explained:
    """Ask the owner of a live run; of one that has ended its folder tells."""
    from weft.admin.control import send
    from weft.engine.explain import Explained
    from weft.store.state import owned

    if owned(found.folder):
        try:
            return Explained.from_json(send(found.folder, {"do": "explain"}))
        except ConflictError:  # it ended meanwhile, or is just starting
            pass
    explained: Explained = context.wiring().explain_run(found.folder)
    return explained


# -------------------------------------------------------------------------------------------------------------- others


@app.command
def graph(
    file: File,
    /,
    *,
    params: Params = None,
    param_file: ParamFile = None,
    fs: FileSystems = None,
    dot: Annotated[bool, CommandParameter(name="--dot", help="For Graphviz.")] = False,
    as_json: AsJson = False,
    context: Given,
) -> None:
    """Draw the graph of a pipeline without running it."""
    from weft.graph.draw import to_dot, to_plain, to_text

    if dot and as_json:
        raise UsageError("--dot and --json are two forms of one answer; name one of them")
    settings = settings_of(context, context.cwd / file.parent, {})
    around = around_of(context, settings, context.cwd / file.parent, fs)
    loaded = context.wiring().load_pipeline(
        str(file), overrides=read_overrides(params or [], param_file), user=settings.user_name, name=None, **around
    )
    _warn(context, loaded.warnings)
    if as_json:
        print_json(context.out, "weft.graph/1", graph=to_plain(loaded.graph))
        return
    drawn = to_dot(loaded.graph) if dot else to_text(loaded.graph, columns=context.page().width)
    context.out.write(clean(drawn).rstrip("\n") + "\n")


# --------------------------------------------------------------------------------------------------------- the cache


@app.command
def plan(
    file: File,
    /,
    *,
    params: Params = None,
    param_file: ParamFile = None,
    fs: FileSystems = None,
    name: Annotated[str | None, CommandParameter(name=["-n", "--name"], help="Call the run this.")] = None,
    user: User = None,
    no_cache: NoCache = False,
    refresh: Refresh = None,
    start: Start = "",
    only: Only = "",
    as_json: AsJson = False,
    docker_env: DockerEnv = None,
    state_dir: StateDir = None,
    context: Given,
) -> None:
    """Say for each step of a pipeline whether it will run, and why; nothing is started."""
    flags = {"state_dir": state_dir, "user": user, "docker_env": docker_env}
    settings = settings_of(context, context.cwd / file.parent, flags)
    wiring = context.wiring()
    loaded = wiring.load_pipeline(
        str(file),
        overrides=read_overrides(params or [], param_file),
        user=settings.user_name,
        name=name,
        **caching_of(context, no_cache, refresh, start, only),
        **around_of(context, settings, context.cwd / file.parent, fs),
    )
    _warn(context, loaded.warnings)
    _print_plan(context, wiring.plan_pipeline(loaded, settings), as_json=as_json)


def _print_plan(context: CommandContext, foreseen: Sequence[Foreseen], *, as_json: bool) -> None:
    if as_json:
        print_json(context.out, "weft.plan/1", steps=[as_dict(one) for one in foreseen])
        return
    print_table(
        context.console(),
        ("STEP", "WILL", "WHY"),
        [(one_line(one.step, 60), _WILL[one.outcome], one_line(one.reason, 300)) for one in foreseen],
    )


_WILL = {"hit": "be reused", "run": "run", "depends": "depend", "skipped": "be skipped"}


@app.command
def why(
    target: Target,
    /,
    *,
    against: Annotated[
        str | None, CommandParameter(help="Compare with this run instead of the nearest result.")
    ] = None,
    as_json: AsJson = False,
    project: Project = None,
    state_dir: StateDir = None,
    context: Given,
) -> None:
    """Say why a step ran, or where its result was taken from."""
    from weft.runs.reasons import reasons

    run, step, _ = split_target(target)
    if not step:
        raise UsageError(f"{target} names no step", hint=f"Write: weft why {target}/STEP")
    found = find_record(context, run, project, state_dir)
    other = None if against is None else find_record(context, against, project, state_dir)
    with open_results(context, project, state_dir) as cache:
        told = reasons(cache, found, step, other)
    if as_json:
        document = as_dict(told)
        print_json(context.out, "weft.why/1", run=found.id, against=document.pop("run"), **document)
        return
    context.out.write(f"{clean(told.line())}\n")
    for difference in told.differences[1:] if told.differences else ():
        context.out.write(f"  also {clean(difference)}\n")


@app.command
def doctor(
    *,
    full: Annotated[bool, CommandParameter(help="Read every kept file again.")] = False,
    as_json: AsJson = False,
    project: Project = None,
    state_dir: StateDir = None,
    context: Given,
) -> int:
    """See whether what Weft keeps on disk is whole, and say what to do where it is not."""
    from weft.runs.health import examine

    root = root_of(context, project, state_dir)
    with open_results(context, project, state_dir) as cache:
        findings = list(examine(root, cache, full=full))
    ill = any(finding.problem for finding in findings)
    if as_json:
        print_json(context.out, "weft.doctor/1", findings=[as_dict(finding) for finding in findings], well=not ill)
        return int(ill)
    for finding in findings:
        symbol = "✘" if finding.problem else "!" if finding.hint else "✔"
        context.out.write(f"{symbol} {clean(finding.what)}\n")
        for line in (finding.problem, finding.hint):
            if line:
                context.out.write(f"    {one_line(line, 400)}\n")
    return int(ill)


@config_app.command(name="show")
def config_show(
    *,
    origin: Annotated[bool, CommandParameter(name="--origin", help="Say where each value comes from.")] = False,
    as_json: AsJson = False,
    project: Project = None,
    context: Given,
) -> None:
    """Show the settings in force."""
    from weft.admin.settings import NAMES

    settings = settings_of(context, context.cwd / (project or ""), {})
    values = {name: getattr(settings, name) for name in NAMES}
    if as_json:
        origins = {name: as_dict(settings.origin(name)) for name in NAMES}
        found = {
            name: {"value": value, **({"origin": origins[name]} if origin else {})} for name, value in values.items()
        }
        print_json(context.out, "weft.config/1", settings=found)
        return
    heads = ("SETTING", "VALUE", "ORIGIN") if origin else ("SETTING", "VALUE")
    rows = [
        (name, _shown(value), *([clean(str(settings.origin(name)))] if origin else []))
        for name, value in values.items()
    ]
    print_table(context.console(), heads, rows)


def _shown(value: object) -> str:
    return "" if value is None else str(value).lower() if isinstance(value, bool) else clean(str(value))


@app.command
def errors(
    code: Annotated[str | None, CommandParameter(help="Such as WEFT202; without one: the list.")] = None,
    /,
    *,
    as_json: AsJson = False,
    context: Given,
) -> None:
    """Explain an error code."""
    from weft.cli.explain import document, explain, kind_of, kinds, list_codes

    if as_json:
        told = [document(kind) for kind in ([kind_of(code)] if code is not None else kinds())]
        text = {} if code is None else {"text": explain(code)}
        print_json(context.out, "weft.errors/1", errors=[{**one, **text} for one in told])
        return
    context.out.write(list_codes() if code is None else explain(code))
