"""The commands of `weft schedule`."""

from __future__ import annotations

import shlex
from datetime import datetime, tzinfo
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct
from msgspec.structs import replace

from weft.admin.cron import zone_of
from weft.cli.arguments import (
    AsJson,
    Given,
    LabelOptions,
    PipelineOptions,
    StateDir,
    Where,
    WorkerOptions,
    folder_of,
    not_from_stdin,
    say_diverted,
    seconds_of,
    service_of,
)
from weft.cli.parsing import CommandGroup
from weft.cli.planning import warn
from weft.cli.tables import iso, moment, one_line, print_json, print_table
from weft.model.errors import UsageError
from weft.model.records import as_dict
from weft.model.wording import duration
from weft.runs.verbs import VERBS

if TYPE_CHECKING:
    from weft.store.schedules import Firing, PipelineSchedule

schedule_app = CommandGroup("schedule")

_NEXT: Final = 5


class ScheduleOptions(Struct, frozen=True):
    """The options about the times of a schedule and the number of its runs."""

    cron: str
    zone: str = ""
    start_at: str | None = None
    end_at: str | None = None
    concurrency: int = 0
    policy: str = "suspend"
    expire: str | None = None
    no_catchup: bool = False

    def schedule(self, name: str, file: Path, words: list[str], now: float) -> PipelineSchedule:
        """Return the schedule of a file. UsageError: an option is no time."""
        from weft.store.schedules import PipelineSchedule

        zone = zone_of(self.cron, self.zone)
        return PipelineSchedule(
            name=name,
            file=str(file.absolute()),
            cron=self.cron,
            zone=self.zone,
            start_at=_future(self.start_at, "--start", now, zone),
            end_at=_future(self.end_at, "--end", now, zone),
            concurrency=self.concurrency,
            policy=self.policy,
            catchup=not self.no_catchup,
            expire_s=0.0 if self.expire is None else seconds_of(self.expire, "--expire"),
            words=words,
        )


@schedule_app.command(verb=VERBS["schedule create"])
def create(
    file: Path,
    /,
    *,
    times: ScheduleOptions,
    name: str | None = None,
    wishes: PipelineOptions,
    workers: WorkerOptions,
    labels: LabelOptions,
    notify: str | None = None,
    as_json: AsJson = False,
    state_dir: StateDir = None,
    context: Given,
) -> None:
    """Create a schedule of a pipeline; `weft up` fires it."""
    base, flags = folder_of(context, file), {**workers.flags, **wishes.flags, "notify": notify}
    settings = wishes.settings(context, file, {**flags, "state_dir": state_dir})
    state = settings.state_root(base)
    say_diverted(context, state)
    service = context.service(settings, state)
    not_from_stdin(file, "a schedule")
    request = wishes.request(context, file, name, labels)
    loaded = service.load(request)
    warn(context, loaded.warnings)
    words = request.words(context.cwd, flags)
    schedule = times.schedule(
        loaded.graph.name if name is None else name, context.cwd / file, words, context.clock.wall()
    )
    with service.schedules() as schedules:
        schedule, first = schedules.create(schedule)
    if as_json:
        print_json(context.out, "weft.schedule/1", schedule=_document(schedule))
        return
    context.say(f"{schedule.name} runs first at {_moment(first, _zone(schedule))}")
    if not service.is_up():
        context.say("nothing fires it yet: start `weft up`")


@schedule_app.command(verb=VERBS["schedule ls"])
def ls(*, as_json: AsJson = False, where: Where, context: Given) -> None:
    """List the schedules."""
    service = service_of(context, where)
    with service.schedules() as schedules:
        found = schedules.list_schedules()
        coming = [schedules.coming(one, 1) for one, _ in found]
    if as_json:
        documents = [_document(one) for one, _ in found]
        print_json(context.out, "weft.schedules/1", schedules=documents, up=service.is_up())
        return
    rows = [
        (
            one.name,
            one.state,
            one_line(one.cron, 60),
            ", ".join(_moment(time, _zone(one)) for time in times),
            _became(last, _zone(one)),
        )
        for (one, last), times in zip(found, coming, strict=True)
    ]
    print_table(context.console(), ("NAME", "STATE", "CRON", "NEXT", "LAST"), rows)
    if not found:
        context.say(f"no schedules in {service.state.path}")
    elif not service.is_up() and any(one.state == "running" for one, _ in found):
        context.say("nothing fires them: start `weft up`")


@schedule_app.command(verb=VERBS["schedule show"])
def show(
    name: str,
    /,
    *,
    number: int = 20,
    as_json: AsJson = False,
    where: Where,
    context: Given,
) -> None:
    """Show one schedule: its next times, and the runs of its last times."""
    with service_of(context, where).schedules() as schedules:
        schedule, firings = schedules.show(name, number)
        coming = schedules.coming(schedule, _NEXT)
    if as_json:
        times = [{**as_dict(one), "due": iso(one.due), "at": iso(one.at)} for one in firings]
        print_json(context.out, "weft.schedule/1", schedule=_document(schedule), times=times)
        return
    zone = _zone(schedule)
    head = {
        "schedule": schedule.name,
        "state": schedule.state,
        "file": schedule.file,
        "cron": f"{schedule.cron} {schedule.zone}".strip(),
        "from": _moment(schedule.start_at, zone),
        "until": _moment(schedule.end_at, zone),
        "at a time": _at_a_time(schedule),
        "missed": "times without `weft up` " + ("run later, oldest first" if schedule.catchup else "are skipped"),
        "expires": f"a run that cannot begin within {duration(schedule.expire_s)} is skipped"
        if schedule.expire_s
        else "",
        "parameters": " ".join(_parameters(schedule)),
        "options": shlex.join(_options(schedule)),
        "next": ", ".join(_moment(time, zone) for time in coming),
    }
    for key, value in head.items():
        if value:
            context.out.write(f"{key:11}{one_line(value, 500)}\n")
    if firings:
        context.out.write("\n")
    rows = [(_moment(one.due, zone), one.state, one.run, one_line(one.message, 200)) for one in firings]
    print_table(context.console(), ("DUE", "STATE", "RUN", "MESSAGE"), rows)


@schedule_app.command(verb=VERBS["schedule stop"])
def stop(
    name: str,
    /,
    *,
    as_json: AsJson = False,
    where: Where,
    context: Given,
) -> None:
    """Stop a schedule for ever; its runs continue."""
    with service_of(context, where).schedules() as schedules:
        schedules.stop(name)
    if as_json:
        print_json(context.out, "weft.schedule.stop/1", schedule=name)
        return
    context.say(f"{name} is stopped; its runs go on")


@schedule_app.command(verb=VERBS["schedule delete"])
def delete(
    name: str,
    /,
    *,
    as_json: AsJson = False,
    where: Where,
    context: Given,
) -> None:
    """Delete an ended schedule; its runs stay."""
    with service_of(context, where).schedules() as schedules:
        schedules.delete(name)
    if as_json:
        print_json(context.out, "weft.schedule.delete/1", schedule=name)
        return
    context.say(f"{name} is deleted; its runs stay")


_AT_THE_LIMIT: Final = {
    "suspend": "a further one waits",
    "replace": "a further one replaces the oldest",
    "skip": "a further one is skipped",
}


def _at_a_time(schedule: PipelineSchedule) -> str:
    """Return the number of runs at a time, and what becomes of a further one."""
    if not schedule.concurrency:
        return "any number of runs"
    runs = "1 run" if schedule.concurrency == 1 else f"{schedule.concurrency} runs"
    return f"{runs}; {_AT_THE_LIMIT[schedule.policy]}"


def _parameters(schedule: PipelineSchedule) -> list[str]:
    """Return the parameters that a schedule passes to its runs, as `name=value`."""
    return list(schedule.words[1 : 2 * _pairs(schedule) : 2])


def _options(schedule: PipelineSchedule) -> list[str]:
    """Return the other words that a schedule passes to `weft run`."""
    return list(schedule.words[2 * _pairs(schedule) :])


def _pairs(schedule: PipelineSchedule) -> int:
    return next((at for at, word in enumerate(schedule.words[::2]) if word != "-p"), (len(schedule.words) + 1) // 2)


def _zone(schedule: PipelineSchedule) -> tzinfo:
    return zone_of(schedule.cron, schedule.zone)


def _moment(time: float | None, zone: tzinfo) -> str:
    """Return a time as text in a zone, with the name of the zone at that time."""
    return moment(time, zone, "%Y-%m-%d %H:%M:%S %Z")


def _future(text: str | None, option: str, now: float, zone: tzinfo) -> float | None:
    if text is None:
        return None
    try:
        given = datetime.fromisoformat(text)
        found = (given if given.tzinfo else given.replace(tzinfo=zone)).timestamp()
    except (ValueError, OverflowError, OSError):
        raise UsageError(f"{option} is {text[:40]!r}; it must be a time", hint="Such as 2030-01-31T08:00") from None
    if found <= now:
        raise UsageError(f"{option} is {_moment(found, zone)}, which has passed")
    return found


def _became(last: Firing | None, zone: tzinfo) -> str:
    if last is None:
        return ""
    outcome = last.message.partition(":")[0] if last.run else last.state
    return f"{last.run} {outcome}".strip() + f" ({_moment(last.due, zone)})"


def _document(schedule: PipelineSchedule) -> dict[str, Any]:
    document = as_dict(replace(schedule, words=list(schedule.words)))
    del document["words"]
    document |= {"parameters": _parameters(schedule), "options": _options(schedule)}
    return {name: iso(value) if name.endswith("_at") else value for name, value in document.items() if name != "seen"}
