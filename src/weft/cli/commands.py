"""The commands: each reads its arguments, calls what does the work, and prints the answer.

What does the work is loaded inside the commands, so that help and completion stay quick.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

from cyclopts import App, CycloptsError, Parameter

from weft.cli.context import Context, RunResult
from weft.cli.tables import clean, duration, iso, moment, one_line, print_json, print_table, short_path
from weft.model.errors import ConflictError, NotFoundError, RunCancelledError, UsageError

if TYPE_CHECKING:
    from weft.cli.progress import Progress
    from weft.engine.explain import Explained
    from weft.runtime.planning import Foreseen
    from weft.runtime.records import ItemRecord, RunRecord, StepRecord
    from weft.runtime.settings import Settings
    from weft.runtime.state import LogFile, StateRoot
    from weft.store.catalog import RunRow
    from weft.store.entries import Entry
    from weft.store.results import ResultCache


# ----------------------------------------------------------------------------------------------------------- arguments

Given = Annotated[Context, Parameter(parse=False)]
AsJson = Annotated[bool, Parameter(name="--json", help="Print one JSON document.")]
RunName = Annotated[str, Parameter(help="An id, its unique beginning, a number, @last or @failed.")]
Target = Annotated[str, Parameter(help="RUN, RUN/STEP or RUN/STEP@ATTEMPT.")]
File = Annotated[Path, Parameter(help="The pipeline: a YAML file.")]
Project = Annotated[Path | None, Parameter(name=["-C", "--project"], help="Look for runs from this folder.")]
StateDir = Annotated[Path | None, Parameter(name="--state-dir", help="The state folder itself.")]
Params = Annotated[
    list[str] | None, Parameter(name=["-p", "--param"], help="Set a parameter: NAME=VALUE or STEP.NAME=VALUE.")
]
NoCache = Annotated[bool, Parameter(name="--no-cache", help="Use no earlier result, and keep none.")]
Refresh = Annotated[
    list[str] | None, Parameter(name="--refresh", help="Run this step whatever is known, and keep its result.")
]
Start = Annotated[str, Parameter(name="--from", help="Run this step and all that depends on it.")]
Only = Annotated[str, Parameter(name="--only", help="Run nothing but this step and what it needs.")]
EntryKey = Annotated[str, Parameter(help="The key of a kept result, or its beginning.")]
ParamFile = Annotated[Path | None, Parameter(name="--param-file", help="Parameters in a JSON or TOML file.")]

app = App(
    name="weft",
    help="One engine for the graphs that data and machine-learning teams run.",
    version_flags=["--version", "-V"],
    version=lambda: _version(),
    help_format="plaintext",
    default_parameter=Parameter(negative=(), show_default=False),
    print_error=False,
    exit_on_error=False,
)
config_app = App(name="config", help="Show settings and where each comes from.")
app.command(config_app)
cache_app = App(name="cache", help="Look at the results that are kept, and remove some.")
app.command(cache_app)


_HELP = frozenset({"--help", "-h", "--version", "-V", "config", "cache"})


def _version() -> str:
    from weft._version import __version__

    return f"weft {__version__}"


def dispatch(words: Sequence[str], context: Context) -> int:
    """Parse the words of a command line, run the command, and return its exit code. UsageError: they make no sense."""
    page = None if words and _HELP.isdisjoint(words) else context.page()  # which takes time to load
    try:
        command, bound, ignored = app.parse_args(list(words), console=page, error_console=page)
    except CycloptsError as error:
        raise UsageError(one_line(str(error), 500), hint=f"See: weft {_command_of(words)}--help") from None
    extra = {"context": context} if "context" in ignored else {}
    code = command(*bound.args, **bound.kwargs, **extra)
    return code if isinstance(code, int) else 0


def _command_of(words: Sequence[str]) -> str:
    names = [word for word in words[:1] if not word.startswith("-") and word in app]
    return "".join(f"{name} " for name in names)


# ----------------------------------------------------------------------------------------------------------------- run


@app.command
def run(
    file: File,
    /,
    *,
    params: Params = None,
    param_file: ParamFile = None,
    name: Annotated[str | None, Parameter(name=["-n", "--name"], help="Call the run this.")] = None,
    workers: Annotated[str | None, Parameter(help="How many tasks run at a time.")] = None,
    backend: Annotated[str | None, Parameter(help="What runs them: threads or processes.")] = None,
    memory: Annotated[str | None, Parameter(help="Memory for data before it goes to disk, such as 4GiB.")] = None,
    state_dir: StateDir = None,
    user: Annotated[str | None, Parameter(help="File the run under this user.")] = None,
    no_cache: NoCache = False,
    refresh: Refresh = None,
    start: Start = "",
    only: Only = "",
    dry_run: Annotated[bool, Parameter(name="--dry-run", help="Say what would run, as `weft plan` does.")] = False,
    quiet: Annotated[bool, Parameter(name=["-q", "--quiet"], help="Print the id of the run alone.")] = False,
    as_json: AsJson = False,
    context: Given,
) -> int:
    """Run a pipeline and wait for its end."""
    overrides = _overrides(params or [], param_file)
    flags = {
        "workers": workers,
        "backend": backend,
        "memory": memory,
        "state_dir": state_dir,
        "user": user,
        "quiet": quiet or None,
    }
    base = context.cwd / file.parent
    settings = _settings(context, base, flags)
    wiring = context.wiring()
    caching = _caching(context, no_cache, refresh, start, only)
    loaded = wiring.load_pipeline(str(file), overrides=overrides, user=settings.user_name, name=name, **caching)
    for warning in loaded.warnings:
        context.say(f"warning: {clean(warning)}")
    if dry_run:
        _print_plan(context, wiring.plan_pipeline(loaded, settings), as_json=as_json)
        return 0

    from weft.cli.progress import make_progress

    silent = settings.quiet or as_json
    progress = make_progress(
        loaded.steps, context.err, lambda: context.console(context.err), context.clock.wall, quiet=silent
    )
    try:
        with progress:
            result = wiring.run_pipeline(
                loaded,
                settings,
                on_record=progress.add,
                on_note=lambda note: context.say(f"note: {clean(note)}"),
                on_interrupt=lambda: _interrupted(context, progress),
                quiet=settings.quiet,
            )
    except KeyboardInterrupt:
        context.hint = f"What it had done: weft show @last{_where(context, settings, base)}"
        raise
    return _report(context, result, settings, base, as_json=as_json)


@app.command
def resume(
    run: RunName,
    /,
    *,
    workers: Annotated[str | None, Parameter(help="How many tasks run at a time.")] = None,
    backend: Annotated[str | None, Parameter(help="What runs them: threads or processes.")] = None,
    memory: Annotated[str | None, Parameter(help="Memory for data before it goes to disk, such as 4GiB.")] = None,
    quiet: Annotated[bool, Parameter(name=["-q", "--quiet"], help="Print the id of the run alone.")] = False,
    as_json: AsJson = False,
    project: Project = None,
    state_dir: StateDir = None,
    context: Given,
) -> int:
    """Go on with a run that failed, was cancelled or was killed; what has finished is not run again."""
    from weft.cli.progress import make_progress

    found = _find(context, run, project, state_dir)
    base = context.cwd / (project or "")
    if found.file and Path(found.file).parent.is_dir():
        base = Path(found.file).parent
    flags = {"workers": workers, "backend": backend, "memory": memory, "quiet": quiet or None}
    settings = _settings(context, base, {**flags, "state_dir": found.folder.parent.parent})
    silent = settings.quiet or as_json
    steps = [step.name for step in found.steps]
    progress = make_progress(steps, context.err, lambda: context.console(context.err), context.clock.wall, quiet=silent)
    where = _where(context, settings, base)
    try:
        with progress:
            result = context.wiring().resume_run(
                found.folder,
                settings,
                on_record=progress.add,
                on_note=lambda note: context.say(f"note: {clean(note)}"),
                on_interrupt=lambda: _interrupted(context, progress),
                quiet=settings.quiet,
            )
    except KeyboardInterrupt:
        context.hint = f"What it had done: weft show {found.id}{where}. To go on: weft resume {found.id}{where}"
        raise
    return _report(context, result, settings, base, as_json=as_json)


def _caching(context: Context, off: bool, refresh: list[str] | None, start: str, only: str) -> dict[str, Any]:
    """Return the argument that tells what was asked about the cache, if anything was."""
    if not (off or refresh or start or only):
        return {}
    if off and (refresh or start):
        raise UsageError("--no-cache uses nothing earlier, so --refresh and --from say nothing more")
    caching = context.wiring().Caching(off=off, refresh=frozenset(refresh or ()), start=start, only=only)
    return {"caching": caching}


def _interrupted(context: Context, progress: Progress) -> None:
    """Say on a terminal that the first Ctrl-C was heard."""
    if context.err.isatty():
        progress.say("cancelling; press Ctrl-C again to leave at once")


def _report(context: Context, result: RunResult, settings: Settings, base: Path, *, as_json: bool) -> int:
    """Tell how a run ended, and return the exit code."""
    if as_json:
        _print_result(context, result)
    elif settings.quiet:
        context.out.write(result.run_id + "\n")
        if result.error is not None:
            context.say(f"error {result.error.code}: {clean(str(result.error))}")
    else:
        _tell_result(context, result, settings, base)
    return _exit_code(result)


def _exit_code(result: RunResult) -> int:
    if result.error is None:
        return 0 if result.state == "succeeded" else 1
    if isinstance(result.error, RunCancelledError) and "SIGTERM" in result.error.message:
        return 143
    return result.error.exit_code


def _print_result(context: Context, result: RunResult) -> None:
    from weft.cli.failures import error_document
    from weft.runtime.records import read_run

    document = _run_document(read_run(result.folder))
    document |= {"state": result.state, "outputs": dict(result.outputs) or document["outputs"]}
    extra = {} if result.error is None else {"error": error_document(result.error)}
    print_json(context.out, "weft.run/1", run=document, **extra)


def _tell_result(context: Context, result: RunResult, settings: Settings, base: Path) -> None:
    from weft.runtime.records import read_run

    found = read_run(result.folder)
    out, cwd = context.out, context.cwd
    _print_steps(context, found)
    took = duration(found.ended - found.started) if found.ended is not None and found.started is not None else ""
    out.write(f"\n{result.run_id} {result.state}{f' in {took}' if took else ''}\n")
    if result.error is not None:
        context.say(f"error {result.error.code}: {clean(result.error.message)}")
    outputs = list(result.outputs.items())
    for at, (name, place) in enumerate(outputs):
        out.write(f"{'outputs' if at == 0 else '':9}{clean(name)}: {short_path(place, cwd)}\n")
    out.write(f"{'logs':9}{short_path(result.folder / 'logs', cwd)}\n")
    where = _where(context, settings, base)
    broken = [step.name for word in ("failed", "terminated") for step in found.steps if step.state == word]
    shown = (broken or [step.name for step in found.steps[-1:]] or [""])[0]
    out.write(f"{'next':9}weft show {result.run_id}{where}\n")
    if result.state in ("failed", "terminated"):
        out.write(f"{'':9}weft resume {result.run_id}{where}\n")
    if shown:
        out.write(f"{'':9}weft logs {shlex.quote(f'{result.run_id}/{clean(shown)}')}{where}\n")


def _where(context: Context, settings: Settings, base: Path) -> str:
    """Return what must follow a command typed here for it to find the runs of another folder."""
    used = settings.state_root(base)
    if _settings(context, context.cwd, {}).state_root(context.cwd) == used:
        return ""
    if settings.origin("state_dir").kind == "flag":
        return f" --state-dir {short_path(used.path, context.cwd)}"
    return f" -C {short_path(base.resolve(), context.cwd.resolve())}"


def _overrides(pairs: Sequence[str], file: Path | None) -> dict[str, str]:
    found = {} if file is None else _read_parameters(file)
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name.strip():
            raise UsageError(f"-p {pair!r} is not of the form NAME=VALUE", hint="For example: -p epochs=20")
        found[name.strip()] = value
    return found


def _read_parameters(file: Path) -> dict[str, str]:
    """Read parameters from a JSON file (by its name) or a TOML file; tables become `step.name`."""
    import json
    import tomllib

    limit = 1 << 20
    try:
        with file.open("rb") as source:
            data = source.read(limit + 1)
        if len(data) > limit:
            raise UsageError(f"{file} is larger than 1 MiB")
        text = data.decode()
        found = json.loads(text) if file.suffix.lower() == ".json" else tomllib.loads(text)
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:  # not JSON, not TOML, not UTF-8
        kind = "JSON" if file.suffix.lower() == ".json" else "TOML"
        raise UsageError(f"{file} is not {kind}: {error}", hint="It is to hold names and values.") from None
    if not isinstance(found, dict):
        raise UsageError(f"{file} does not hold names and values", hint='Write for example {"epochs": 20}')
    flat: dict[str, str] = {}
    for name, value in found.items():
        if isinstance(value, dict):
            flat |= {f"{name}.{inner}": _as_text(inner_value) for inner, inner_value in value.items()}
        else:
            flat[name] = _as_text(value)
    return flat


def _as_text(value: object) -> str:
    import json

    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


# ------------------------------------------------------------------------------------------------------------ ls, show


@app.command(name="ls")
def ls(
    *,
    state: Annotated[str | None, Parameter(help="Only runs in this state.")] = None,
    name: Annotated[str | None, Parameter(help="Only runs of this name.")] = None,
    number: Annotated[int, Parameter(name=["-n", "--number"], help="At most so many; 0: all.")] = 20,
    quiet: Annotated[bool, Parameter(name=["-q", "--quiet"], help="Print ids alone.")] = False,
    as_json: AsJson = False,
    project: Project = None,
    state_dir: StateDir = None,
    context: Given,
) -> None:
    """List the runs, newest first."""
    from weft.cli.tables import state_text
    from weft.runtime.records import RUN_STATES, list_runs

    if state is not None and state not in RUN_STATES:
        raise UsageError(f"no run can be in state {state!r}", hint=f"There are: {', '.join(RUN_STATES)}")
    if number < 0:
        raise UsageError(f"--number is {number}; it must be 0 or more")
    root = _root(context, project, state_dir)
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
                _took(row.started_at, row.ended_at, row.state, now),
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
    run: RunName,
    /,
    *,
    as_json: AsJson = False,
    project: Project = None,
    state_dir: StateDir = None,
    context: Given,
) -> None:
    """Show one run: its steps, times, parameters and where its logs lie."""
    found = _find(context, run, project, state_dir)
    if as_json:
        print_json(context.out, "weft.run/1", run=_run_document(found))
        return
    from weft.cli.tables import state_text

    now = context.clock.wall()
    head: list[tuple[str, Any]] = [
        ("run", found.id),
        ("state", state_text(found.state, context.out)),
        ("name", one_line(found.name)),
        ("file", short_path(found.file, context.cwd) if found.file else ""),
        ("user", one_line(f"{found.user}@{found.host}" if found.host else found.user)),
        ("started", moment(found.started)),
        ("time", _took(found.started, found.ended, found.state, now)),
        ("parameters", one_line(", ".join(f"{k}={v}" for k, v in found.parameters.items()), 500)),
        ("error", f"{found.error_code} {one_line(found.message, 500)}" if found.error_code else ""),
        ("folder", short_path(found.folder, context.cwd)),
        *((f"output {one_line(name, 40)}", short_path(place, context.cwd)) for name, place in found.outputs.items()),
    ]
    out = context.console()
    width = max(len(name) for name, value in head if value)
    for name, value in head:
        if value:
            out.print(f"{name:{width}} ", value)
    context.out.write("\n")
    _print_steps(context, found)


def _print_steps(context: Context, found: RunRecord) -> None:
    from weft.cli.tables import state_text

    now = context.clock.wall()
    print_table(
        context.console(),
        ("STEP", "STATE", "TIME", "MESSAGE"),
        [
            (
                "  " * depth + one_line(step.name, 60),
                state_text(step.state, context.out),
                _took(step.started, step.ended, step.state, now),
                _remark(step),
            )
            for depth, step in _rows(found)
        ],
    )


_ITEM_ROWS: Final = 10
"""More items of a loop than this are not shown, but for those that went wrong."""


def _rows(found: RunRecord) -> Iterator[tuple[int, StepRecord | ItemRecord]]:
    """Yield the steps of a run with their dags, and the items of loops, as rows and how far they stand in."""
    from weft.runtime.records import item_name, tree

    for depth, step in tree(found.steps):
        yield depth, step
        numbers = sorted(step.items)
        if len(numbers) > _ITEM_ROWS:
            numbers = [n for n in numbers if step.items[n].state not in ("succeeded", "skipped")][:_ITEM_ROWS]
        for number in numbers:
            item = step.items[number]
            yield depth + 1, replace(item, name=item_name(step.name, number))


def _remark(step: StepRecord | ItemRecord) -> str:
    width, items = getattr(step, "width", None), getattr(step, "items", {})
    if width is not None:
        states = Counter(item.state for item in items.values())
        told = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
        return f"{width} items: {told}" if told else f"{width} items"
    parts = [f"{step.attempts} attempts"] if step.attempts > 1 else []
    if step.message:
        parts.append(one_line(step.message, 120))
    elif step.exit:
        parts.append(f"exit code {step.exit}")
    return ": ".join(parts)


def _took(started: float | None, ended: float | None, state: str, now: float) -> str:
    from weft.runtime.records import ACTIVE

    if started is None or (ended is None and state not in ACTIVE):
        return ""
    return duration((now if ended is None else ended) - started)


def _row_document(row: RunRow) -> dict[str, Any]:
    document = asdict(row)
    del document["version"], document["error_code"], document["error_message"]
    for name in ("created_at", "started_at", "ended_at"):
        document[name] = iso(document[name] or None)
    error = {"code": row.error_code, "message": row.error_message} if row.error_code else None
    return {**document, "error": error}


def _run_document(found: RunRecord) -> dict[str, Any]:
    from weft.runtime.records import item_name, tree

    document = asdict(found)
    for name in ("created", "started", "ended"):
        document[f"{name}_at"] = iso(document.pop(name) or None)
    code, message = document.pop("error_code"), document.pop("message")
    document["error"] = {"code": code, "message": message} if code else None
    document["steps"] = [
        {
            "name": step.name,
            "state": step.state,
            "started_at": iso(step.started),
            "ended_at": iso(step.ended),
            "attempts": step.attempts,
            "exit": step.exit,
            "message": step.message,
            "logs": [{"path": log.path, "index": log.index, "attempt": log.attempt} for log in step.logs],
            "items": [
                {
                    "name": item_name(step.name, number),
                    "state": item.state,
                    "started_at": iso(item.started),
                    "ended_at": iso(item.ended),
                    "attempts": item.attempts,
                    "exit": item.exit,
                    "message": item.message,
                }
                for number, item in sorted(step.items.items())
            ],
        }
        for step in found.steps
    ]
    names = {step.name for step in found.steps}
    document["dags"] = [
        {"name": dag.name, "state": dag.state, "started_at": iso(dag.started), "ended_at": iso(dag.ended)}
        for _, dag in tree(found.steps)
        if dag.name not in names or any(name.startswith(f"{dag.name}.") for name in names)
    ]
    return document


# --------------------------------------------------------------------------------------------------------- logs, story


@app.command
def logs(
    target: Target,
    /,
    *,
    follow: Annotated[bool, Parameter(name=["-f", "--follow"], help="Go on until the run has ended.")] = False,
    tail: Annotated[int | None, Parameter(name="--tail", help="Only the last lines, so many of each log.")] = None,
    project: Project = None,
    state_dir: StateDir = None,
    context: Given,
) -> None:
    """Print the logs of a run, or of one step; of each task its latest attempt, unless one is named."""
    from weft.cli.logs import print_logs
    from weft.runtime.records import ACTIVE, read_run

    if tail is not None and tail < 0:
        raise UsageError(f"--tail is {tail}; it must be 0 or more")
    run, step, attempt = _split(target)
    folder = _find(context, run, project, state_dir).folder

    def look() -> tuple[list[LogFile], bool]:
        found = read_run(folder)
        steps = [found.step(step)] if step else found.steps
        picked: dict[tuple[str, int | None], LogFile] = {}
        for log in (log for one in steps for log in one.logs):
            if attempt is None or log.attempt == attempt:
                picked[(log.step, log.index)] = log
        return list(picked.values()), found.state in ACTIVE

    shown = print_logs(look, context.out, follow=follow, tail=tail, pause=context.pause)
    if not shown:
        if attempt is not None:
            raise NotFoundError(f"{run}/{step} has no log of attempt {attempt}", hint=f"See: weft show {run}")
        context.say(f"{target} has printed nothing")


@app.command
def story(
    target: Target,
    /,
    *,
    project: Project = None,
    state_dir: StateDir = None,
    context: Given,
) -> None:
    """Tell what happened to a run or a step, and why."""
    from weft.runtime.control import send
    from weft.runtime.records import read_records
    from weft.runtime.state import owned

    run, step, attempt = _split(target)
    found = _find(context, run, project, state_dir)
    if step:
        found.step(step.partition("[")[0])
    if owned(found.folder):
        try:
            subject = step if attempt is None else f"{step}@{attempt}"
            for line in send(found.folder, {"do": "story", "subject": subject}):
                context.out.write(clean(str(line)) + "\n")
        except ConflictError:  # it ended meanwhile, or is just starting: its records tell
            pass
        else:
            return
    elif lines := context.wiring().story_run(found.folder, step):
        context.out.write("".join(f"{clean(line)}\n" for line in lines))
        return
    name = step.partition("[")[0]
    for record in read_records(found.folder):
        if step and record.step != name:
            continue
        who = clean(record.step) or found.id
        message = f": {one_line(record.message, 2000)}" if record.message else ""
        at = record.time - (found.started or found.created or record.time)
        context.out.write(f"{at:10.3f}s  {who}: {clean(record.state)}{message}\n")


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
    found = _find(context, run, project, state_dir)
    told = _explained(context, found)
    if as_json:
        print_json(context.out, "weft.explain/1", run=found.id, **told.to_json())
        return
    context.out.write("".join(f"{clean(line)}\n" for line in told.lines()))


def _explained(context: Context, found: RunRecord) -> Explained:
    """Ask the owner of a live run; of one that has ended its folder tells."""
    from weft.engine.explain import Explained
    from weft.runtime.control import send
    from weft.runtime.state import owned

    if owned(found.folder):
        try:
            return Explained.from_json(send(found.folder, {"do": "explain"}))
        except ConflictError:  # it ended meanwhile, or is just starting
            pass
    return context.wiring().explain_run(found.folder)


@app.command
def cancel(
    run: RunName,
    /,
    *,
    force: Annotated[bool, Parameter(help="End its post_process too, or do not begin it.")] = False,
    as_json: AsJson = False,
    project: Project = None,
    state_dir: StateDir = None,
    context: Given,
) -> None:
    """Ask a run to stop; what runs is ended in order, and what post_process says is done."""
    from weft.runtime.control import send
    from weft.runtime.records import ACTIVE

    found = _find(context, run, project, state_dir)
    if found.state not in ACTIVE:
        raise ConflictError(f"{found.id} has ended already: {found.state}", hint=f"Look at it: weft show {found.id}")
    send(found.folder, {"do": "cancel", "reason": "weft cancel", "force": force})
    if as_json:
        print_json(context.out, "weft.cancel/1", run=found.id)
    else:
        context.say(f"{found.id} is being cancelled")


# -------------------------------------------------------------------------------------------------------------- others


@app.command
def graph(
    file: File,
    /,
    *,
    params: Params = None,
    param_file: ParamFile = None,
    dot: Annotated[bool, Parameter(name="--dot", help="For Graphviz.")] = False,
    context: Given,
) -> None:
    """Draw the graph of a pipeline without running it."""
    from weft.graph.draw import to_dot, to_text

    settings = _settings(context, context.cwd / file.parent, {})
    loaded = context.wiring().load_pipeline(
        str(file), overrides=_overrides(params or [], param_file), user=settings.user_name, name=None
    )
    for warning in loaded.warnings:
        context.say(f"warning: {clean(warning)}")
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
    name: Annotated[str | None, Parameter(name=["-n", "--name"], help="Call the run this.")] = None,
    user: Annotated[str | None, Parameter(help="File the run under this user.")] = None,
    no_cache: NoCache = False,
    refresh: Refresh = None,
    start: Start = "",
    only: Only = "",
    as_json: AsJson = False,
    state_dir: StateDir = None,
    context: Given,
) -> None:
    """Say for each step of a pipeline whether it will run, and why; nothing is started."""
    settings = _settings(context, context.cwd / file.parent, {"state_dir": state_dir, "user": user})
    wiring = context.wiring()
    loaded = wiring.load_pipeline(
        str(file),
        overrides=_overrides(params or [], param_file),
        user=settings.user_name,
        name=name,
        **_caching(context, no_cache, refresh, start, only),
    )
    _print_plan(context, wiring.plan_pipeline(loaded, settings), as_json=as_json)


def _print_plan(context: Context, foreseen: Sequence[Foreseen], *, as_json: bool) -> None:
    if as_json:
        print_json(context.out, "weft.plan/1", steps=[asdict(one) for one in foreseen])
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
    against: Annotated[str | None, Parameter(help="Compare with this run instead of the nearest result.")] = None,
    as_json: AsJson = False,
    project: Project = None,
    state_dir: StateDir = None,
    context: Given,
) -> None:
    """Say why a step ran, or where its result was taken from."""
    from weft.runtime.reasons import reasons

    run, step, _ = _split(target)
    if not step:
        raise UsageError(f"{target} names no step", hint=f"Write: weft why {target}/STEP")
    found = _find(context, run, project, state_dir)
    other = None if against is None else _find(context, against, project, state_dir)
    with _cache(context, project, state_dir) as cache:
        told = reasons(cache, found, step, other)
    if as_json:
        print_json(context.out, "weft.why/1", run=found.id, **asdict(told))
        return
    context.out.write(f"{clean(told.line())}\n")
    for difference in told.differences[1:] if told.differences else ():
        context.out.write(f"  also {clean(difference)}\n")


@cache_app.command(name="ls")
def cache_ls(
    *,
    number: Annotated[int, Parameter(name=["-n", "--number"], help="At most so many; 0: all.")] = 20,
    quiet: Annotated[bool, Parameter(name=["-q", "--quiet"], help="Print keys alone.")] = False,
    as_json: AsJson = False,
    project: Project = None,
    state_dir: StateDir = None,
    context: Given,
) -> None:
    """List the results that are kept, the last used first."""
    from weft.cli.tables import size_text

    if number < 0:
        raise UsageError(f"--number is {number}; it must be 0 or more")
    with _cache(context, project, state_dir) as cache:
        entries = cache.index.entries(limit=number or None)
        total, nbytes = cache.index.count()
    if as_json:
        print_json(context.out, "weft.cache/1", entries=[_entry_document(one) for one in entries], total=total)
        return
    if quiet:
        context.out.write("".join(f"{one.key}\n" for one in entries))
        return
    now = context.clock.wall()
    print_table(
        context.console(),
        ("KEY", "STEP", "RUN", "USED", "SIZE", ""),
        [
            (
                one.key[:12],
                one_line(f"{one.pipeline}/{one.step}", 60),
                one.run,
                moment(one.used),
                size_text(one.size),
                "pinned" if one.pinned else "expired" if one.expires is not None and one.expires <= now else "",
            )
            for one in entries
        ],
    )
    context.say(f"{total} results, {size_text(nbytes)}")


@cache_app.command(name="show")
def cache_show(
    key: EntryKey,
    /,
    *,
    as_json: AsJson = False,
    project: Project = None,
    state_dir: StateDir = None,
    context: Given,
) -> None:
    """Show one kept result: what it was made of, what it holds, who used it."""
    with _cache(context, project, state_dir) as cache:
        entry = cache.index.find(key)
        users = cache.index.users(entry.key)
    if as_json:
        print_json(context.out, "weft.cache.entry/1", entry={**_entry_document(entry), "users": users})
        return
    lines = {
        "key": entry.key,
        "step": f"{entry.pipeline}/{entry.step}",
        "made by": entry.run,
        "at": moment(entry.completed),
        "took": duration(entry.completed - entry.started),
        "expires": "never" if entry.expires is None else moment(entry.expires),
        "pinned": "yes" if entry.pinned else "no",
        "used by": ", ".join(users) or "no other run",
        "kept in": entry.store,
        **{
            f"output {name}": f"{one.digest} ({one.files} files, {one.size} bytes)"
            for name, one in entry.outputs.items()
        },
        **entry.leaves,
    }
    width = max(len(name) for name in lines)
    for name, value in lines.items():
        context.out.write(f"{clean(name):{width}}  {one_line(value, 400)}\n")


@cache_app.command(name="rm")
def cache_rm(
    *keys: EntryKey,
    project: Project = None,
    state_dir: StateDir = None,
    context: Given,
) -> None:
    """Forget results; the steps run again. Their content goes with the next `weft cache gc`."""
    if not keys:
        raise UsageError("which results? name their keys", hint="List them: weft cache ls")
    with _cache(context, project, state_dir) as cache:
        found = [cache.index.find(key).key for key in keys]
        cache.index.remove(found)
    context.say(f"forgot {len(found)}")


@cache_app.command(name="gc")
def cache_gc(
    *,
    max_size: Annotated[str | None, Parameter(help="Keep at most so much, such as 10GiB.")] = None,
    max_age: Annotated[str | None, Parameter(help="Keep what was used within this time, such as 30d or 12h.")] = None,
    as_json: AsJson = False,
    project: Project = None,
    state_dir: StateDir = None,
    context: Given,
) -> None:
    """Forget results that were used longest ago, and remove the content that nothing refers to."""
    from weft.cli.tables import size_text
    from weft.runtime.settings import parse_size

    try:
        most = None if max_size is None else parse_size(max_size)
    except (ValueError, OverflowError):
        raise UsageError(f"--max-size is {max_size!r}; it must be a number of bytes, such as 512MiB") from None
    with _cache(context, project, state_dir) as cache:
        forgot, files, nbytes = cache.collect(max_bytes=most, max_age_s=_age(max_age))
    if as_json:
        print_json(context.out, "weft.cache.gc/1", forgotten=forgot, files=files, bytes=nbytes)
    else:
        context.say(f"forgot {forgot} results; removed {files} files, {size_text(nbytes)}")


def _age(text: str | None) -> float | None:
    if text is None:
        return None
    units = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
    number, unit = text[:-1], units.get(text[-1:])
    if unit is None or not number.isascii() or not number.isdigit() or len(number) > 9:
        raise UsageError(f"--max-age is {text[:40]!r}; it must be a time", hint="For example: 30d, 12h, 90m")
    return float(number) * unit


@cache_app.command(name="pin")
def cache_pin(key: EntryKey, /, *, project: Project = None, state_dir: StateDir = None, context: Given) -> None:
    """Keep a result whatever its age and size."""
    _pin(context, key, project, state_dir, pinned=True)


@cache_app.command(name="unpin")
def cache_unpin(key: EntryKey, /, *, project: Project = None, state_dir: StateDir = None, context: Given) -> None:
    """Let a result go like any other."""
    _pin(context, key, project, state_dir, pinned=False)


def _pin(context: Context, key: str, project: Path | None, state_dir: Path | None, *, pinned: bool) -> None:
    with _cache(context, project, state_dir) as cache:
        entry = cache.index.find(key)
        cache.index.pin(entry.key, pinned)
    context.say(f"{entry.key[:12]} ({entry.pipeline}/{entry.step}) is {'' if pinned else 'no longer '}pinned")


def _entry_document(entry: Entry) -> dict[str, Any]:
    document = asdict(entry)
    for name in ("started", "completed", "expires", "used"):
        document[f"{name}_at"] = iso(document.pop(name))
    return document


@contextmanager
def _cache(context: Context, project: Path | None, state_dir: Path | None) -> Iterator[ResultCache]:
    from weft.store.entries import CACHE_NAME
    from weft.store.results import close_cache, open_cache

    cache = open_cache(_root(context, project, state_dir).path / CACHE_NAME, context.clock.wall)
    try:
        yield cache
    finally:
        close_cache(cache)


@app.command
def doctor(
    *,
    full: Annotated[bool, Parameter(help="Read every kept file again.")] = False,
    as_json: AsJson = False,
    project: Project = None,
    state_dir: StateDir = None,
    context: Given,
) -> int:
    """See whether what Weft keeps on disk is whole, and say what to do where it is not."""
    from weft.runtime.health import examine

    root = _root(context, project, state_dir)
    with _cache(context, project, state_dir) as cache:
        findings = list(examine(root, cache, full=full))
    ill = any(finding.problem for finding in findings)
    if as_json:
        print_json(context.out, "weft.doctor/1", findings=[asdict(finding) for finding in findings], well=not ill)
        return int(ill)
    for finding in findings:
        context.out.write(f"{'✘' if finding.problem else '✔'} {clean(finding.what)}\n")
        if finding.problem:
            context.out.write(f"    {one_line(finding.problem, 400)}\n    {one_line(finding.hint, 400)}\n")
    return int(ill)


@config_app.command(name="show")
def config_show(
    *,
    origin: Annotated[bool, Parameter(name="--origin", help="Say where each value comes from.")] = False,
    as_json: AsJson = False,
    project: Project = None,
    context: Given,
) -> None:
    """Show the settings in force."""
    from weft.runtime.settings import NAMES

    settings = _settings(context, context.cwd / (project or ""), {})
    values = {name: getattr(settings, name) for name in NAMES}
    if as_json:
        origins = {name: asdict(settings.origin(name)) for name in NAMES}
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
    code: Annotated[str | None, Parameter(help="Such as WEFT202; without one: the list.")] = None,
    /,
    *,
    context: Given,
) -> None:
    """Explain an error code."""
    from weft.cli.explain import explain, list_codes

    context.out.write(list_codes() if code is None else explain(code))


# -------------------------------------------------------------------------------------------------------------- inside


def _settings(context: Context, base: Path, flags: Mapping[str, object]) -> Settings:
    from weft.runtime.settings import load_settings

    settings = load_settings(flags, start=base, environ=context.environ)
    context.color = settings.color
    return settings


def _root(context: Context, project: Path | None, state_dir: Path | None) -> StateRoot:
    base = context.cwd / (project or "")
    if not base.is_dir():
        raise NotFoundError(f"there is no folder {base}", hint="Give -C the folder of a project.")
    return _settings(context, base, {"state_dir": state_dir}).state_root(base)


def _find(context: Context, name: str, project: Path | None, state_dir: Path | None) -> RunRecord:
    """Return the run that a name means."""
    from weft.runtime.records import find_run, read_run

    return read_run(find_run(_root(context, project, state_dir), name))


def _split(target: str) -> tuple[str, str, int | None]:
    """Take `RUN/STEP@ATTEMPT` apart; the attempt is None where none is named."""
    run, _, step = target.partition("/")
    head, at, last = step.rpartition("@")
    if at and last.isascii() and last.isdigit() and len(last) < 10:
        return run, head, int(last)
    return run, step, None
