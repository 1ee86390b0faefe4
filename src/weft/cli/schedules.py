"""The commands of `weft schedule`."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, Final

from msgspec.structs import replace

from weft.cli.arguments import (
    AsJson,
    Backend,
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
    Start,
    StateDir,
    StreamWindow,
    User,
    Workers,
    around_of,
    caching_of,
    not_from_stdin,
    read_overrides,
    seconds_of,
    service_of,
    settings_of,
)
from weft.cli.parsing import CommandGroup, CommandParameter
from weft.cli.tables import clean, iso, moment, one_line, print_json, print_table
from weft.model.errors import UsageError
from weft.model.records import as_dict

if TYPE_CHECKING:
    from pathlib import Path

    from weft.cli.context import CommandContext
    from weft.store.schedules import Firing, PipelineSchedule

schedule_app = CommandGroup("schedule")

ScheduleName = Annotated[str, CommandParameter(help="The name of a schedule.")]
_NEXT: Final = 5


@schedule_app.command
def create(
    file: File,
    /,
    *,
    cron: Annotated[str, CommandParameter(help="The times: five fields as in cron, @daily, @every 90s, ...")],
    name: Annotated[
        str | None,
        CommandParameter(name=["-n", "--name"], help="The name of the schedule; by default, that of the pipeline."),
    ] = None,
    tz: Annotated[
        str, CommandParameter(help="The time zone, such as Europe/Berlin; by default, that of this machine.")
    ] = "",
    start: Annotated[
        str | None, CommandParameter(help="Start no run before this time, such as 2030-01-31T08:00.")
    ] = None,
    end: Annotated[str | None, CommandParameter(help="Start no run after this time.")] = None,
    concurrency: Annotated[int, CommandParameter(help="The number of runs at a time; 0: unlimited.")] = 0,
    policy: Annotated[
        str, CommandParameter(help="The policy at the concurrency limit: suspend, replace or skip.")
    ] = "suspend",
    expire: Annotated[
        str | None, CommandParameter(help="Skip a run that could not start within this time, such as 2h.")
    ] = None,
    no_catchup: Annotated[
        bool, CommandParameter(name="--no-catchup", help="Skip the times that pass while `weft up` is not running.")
    ] = False,
    params: Params = None,
    param_file: ParamFile = None,
    fs: FileSystems = None,
    workers: Workers = None,
    backend: Backend = None,
    memory: Memory = None,
    eviction: Eviction = None,
    stream_window: StreamWindow = None,
    docker_env: DockerEnv = None,
    durability: Durability = None,
    user: User = None,
    no_cache: NoCache = False,
    refresh: Refresh = None,
    start_with: Start = "",
    only: Only = "",
    as_json: AsJson = False,
    state_dir: StateDir = None,
    context: Given,
) -> None:
    """Create a schedule of a pipeline; `weft up` fires it."""
    from weft.store.schedules import PipelineSchedule

    now = context.clock.wall()
    base = context.cwd / file.parent
    flags = {
        "workers": workers,
        "backend": backend,
        "memory": memory,
        "eviction": eviction,
        "stream_window": stream_window,
        "docker_env": docker_env,
        "durability": durability,
        "user": user,
    }
    settings = settings_of(context, base, {**flags, "state_dir": state_dir})
    not_from_stdin(file, "a schedule")
    overrides = read_overrides(params or [], param_file)
    caching = caching_of(context, no_cache, refresh, start_with, only)
    around = around_of(context, settings, base, fs)
    called_by = settings.user_name
    loaded = context.wiring().load_pipeline(
        str(file), overrides=overrides, user=called_by, name=name, **caching, **around
    )
    for warning in loaded.warnings:
        context.say(f"warning: {clean(warning)}")
    called = loaded.graph.name if name is None else name
    schedule = PipelineSchedule(
        name=called,
        file=str((context.cwd / file).absolute()),
        cron=cron,
        zone=tz,
        start_at=_future(start, "--start", now),
        end_at=_future(end, "--end", now),
        concurrency=concurrency,
        policy=policy,
        catchup=not no_catchup,
        expire_s=0.0 if expire is None else seconds_of(expire, "--expire"),
        words=[*_run_words(context, overrides, fs, flags), *_cache_words(no_cache, refresh, start_with, only)],
    )
    service = context.service(settings, settings.state_root(base))
    with service.schedules() as schedules:
        schedule, first = schedules.create(schedule)
    if as_json:
        print_json(context.out, "weft.schedule/1", schedule=_document(schedule))
        return
    context.say(f"{called} runs first at {moment(first)}")
    if not service.is_up():
        context.say("nothing fires it yet: start `weft up`")


def _run_words(
    context: CommandContext, overrides: Mapping[str, str], fs: list[str] | None, flags: Mapping[str, str | None]
) -> Iterator[str]:
    """Yield the words that pass parameters, file systems and settings to `weft run`."""
    for key, value in overrides.items():
        yield from ("-p", f"{key}={value}")
    for pair in fs or ():
        yield from ("-f", _anywhere(pair, context.cwd))
    for key, setting in flags.items():
        if setting is not None:
            yield from (f"--{key.replace('_', '-')}", setting)


def _cache_words(no_cache: bool, refresh: list[str] | None, start: str, only: str) -> Iterator[str]:
    """Yield the words that pass cache options to `weft run`."""
    if no_cache:
        yield "--no-cache"
    for step in refresh or ():
        yield from ("--refresh", step)
    if start:
        yield from ("--from", start)
    if only:
        yield from ("--only", only)


@schedule_app.command
def ls(*, as_json: AsJson = False, project: Project = None, state_dir: StateDir = None, context: Given) -> None:
    """List the schedules."""
    service = service_of(context, project, state_dir)
    with service.schedules() as schedules:
        found = schedules.list_schedules()
    if as_json:
        documents = [_document(one) for one, _ in found]
        print_json(context.out, "weft.schedules/1", schedules=documents, up=service.is_up())
        return
    now = context.clock.wall()
    rows = [(one.name, one.state, one_line(one.cron, 60), _coming(one, now, 1), _became(last)) for one, last in found]
    print_table(context.console(), ("NAME", "STATE", "CRON", "NEXT", "LAST"), rows)
    if not found:
        context.say(f"no schedules in {service.state.path}")
    elif not service.is_up() and any(one.state == "running" for one, _ in found):
        context.say("nothing fires them: start `weft up`")


@schedule_app.command
def show(
    name: ScheduleName,
    /,
    *,
    number: Annotated[
        int, CommandParameter(name=["-n", "--number"], help="Show this many of its last times; 0: all.")
    ] = 20,
    as_json: AsJson = False,
    project: Project = None,
    state_dir: StateDir = None,
    context: Given,
) -> None:
    """Show one schedule: its next times, and the runs of its last times."""
    with service_of(context, project, state_dir).schedules() as schedules:
        schedule, firings = schedules.show(name, number)
    if as_json:
        times = [{**as_dict(one), "due": iso(one.due), "at": iso(one.at)} for one in firings]
        print_json(context.out, "weft.schedule/1", schedule=_document(schedule), times=times)
        return
    head = {
        "schedule": schedule.name,
        "state": schedule.state,
        "file": schedule.file,
        "cron": f"{schedule.cron} {schedule.zone}".strip(),
        "from": moment(schedule.start_at),
        "until": moment(schedule.end_at),
        "at a time": f"{schedule.concurrency or 'any number'}, else {schedule.policy}",
        "missed": "caught up with" if schedule.catchup else "skipped",
        "expires": f"after {schedule.expire_s:g} s" if schedule.expire_s else "",
        "parameters": " ".join(_parameters(schedule)),
        "options": shlex.join(_options(schedule)),
        "next": _coming(schedule, context.clock.wall(), _NEXT),
    }
    for key, value in head.items():
        if value:
            context.out.write(f"{key:11}{one_line(value, 500)}\n")
    if firings:
        context.out.write("\n")
    rows = [(moment(one.due), one.state, one.run, one_line(one.message, 200)) for one in firings]
    print_table(context.console(), ("DUE", "STATE", "RUN", "MESSAGE"), rows)


@schedule_app.command
def stop(
    name: ScheduleName,
    /,
    *,
    as_json: AsJson = False,
    project: Project = None,
    state_dir: StateDir = None,
    context: Given,
) -> None:
    """Stop a schedule for ever; its runs continue."""
    with service_of(context, project, state_dir).schedules() as schedules:
        schedules.stop(name)
    if as_json:
        print_json(context.out, "weft.schedule.stop/1", schedule=name)
        return
    context.say(f"{name} is stopped; its runs go on")


@schedule_app.command
def delete(
    name: ScheduleName,
    /,
    *,
    as_json: AsJson = False,
    project: Project = None,
    state_dir: StateDir = None,
    context: Given,
) -> None:
    """Delete an ended schedule; its runs stay."""
    with service_of(context, project, state_dir).schedules() as schedules:
        schedules.delete(name)
    if as_json:
        print_json(context.out, "weft.schedule.delete/1", schedule=name)
        return
    context.say(f"{name} is deleted; its runs stay")


def _anywhere(pair: str, cwd: Path) -> str:
    """Return `NAME=FOLDER` with an absolute folder."""
    name, _, text = pair.partition("=")
    return pair if "://" in text else f"{name.strip()}={cwd / text.strip()}"


def _parameters(schedule: PipelineSchedule) -> list[str]:
    """Return the parameters that a schedule passes to its runs, as `name=value`."""
    return list(schedule.words[1 : 2 * _pairs(schedule) : 2])


def _options(schedule: PipelineSchedule) -> list[str]:
    """Return the other words that a schedule passes to `weft run`."""
    return list(schedule.words[2 * _pairs(schedule) :])


def _pairs(schedule: PipelineSchedule) -> int:
    return next((at for at, word in enumerate(schedule.words[::2]) if word != "-p"), (len(schedule.words) + 1) // 2)


def _future(text: str | None, option: str, now: float) -> float | None:
    if text is None:
        return None
    try:
        found = datetime.fromisoformat(text).timestamp()  # a time without a zone is local
    except (ValueError, OverflowError, OSError):
        raise UsageError(f"{option} is {text[:40]!r}; it must be a time", hint="Such as 2030-01-31T08:00") from None
    if found <= now:
        raise UsageError(f"{option} is {moment(found)}, which has passed")
    return found


def _coming(schedule: PipelineSchedule, now: float, count: int) -> str:
    from weft.admin.cron import parse

    if schedule.state != "running":
        return ""
    found = islice(parse(schedule.cron, schedule.zone).after(now, schedule.seen), count)
    return ", ".join(moment(time) for time in found if schedule.end_at is None or time <= schedule.end_at)


def _became(last: Firing | None) -> str:
    return "" if last is None else f"{last.run or last.state} ({moment(last.due)})"


def _document(schedule: PipelineSchedule) -> dict[str, Any]:
    document = as_dict(replace(schedule, words=list(schedule.words)))
    del document["words"]
    document |= {"parameters": _parameters(schedule), "options": _options(schedule)}
    return {name: iso(value) if name.endswith("_at") else value for name, value in document.items() if name != "seen"}
