"""The commands that print the history of a run: `weft logs`, `weft story`, `weft explain` and `weft why`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

from weft.cli.arguments import (
    AsJson,
    Given,
    Where,
    party_folder,
    service_of,
)
from weft.cli.context import CommandContext
from weft.cli.parsing import CommandParameter
from weft.cli.tables import clean, iso, moment, one_line, print_json
from weft.model.errors import NotFoundError, UsageError
from weft.model.records import as_dict

if TYPE_CHECKING:
    from weft.cli.logs import LogView
    from weft.runs.reading import RunRecord
    from weft.runs.reasons import Taken
    from weft.runs.records import Record
    from weft.runs.service import RunService
    from weft.store.state import LogFile


_ONE_STREAM = "Print only {}, of steps with x-weft: {{stderr: apart}}."


def logs(
    target: str,
    /,
    *,
    follow: Annotated[
        bool, CommandParameter(name=["-f", "--follow"], help="Follow the logs until the run has ended.")
    ] = False,
    tail: Annotated[
        int | None, CommandParameter(name="--tail", help="Print only this many lines at the end of each log.")
    ] = None,
    timestamps: Annotated[
        bool, CommandParameter(name=["-t", "--timestamps"], help="Print when each line arrived, in local time.")
    ] = False,
    stdout: Annotated[bool, CommandParameter(name="--stdout", help=_ONE_STREAM.format("standard output"))] = False,
    stderr: Annotated[bool, CommandParameter(name="--stderr", help=_ONE_STREAM.format("standard error"))] = False,
    as_json: Annotated[bool, CommandParameter(name="--json", help="Print one JSON document for each line.")] = False,
    where: Where,
    context: Given,
) -> None:
    """Print the logs of a run or of one step: the latest attempt of each task, or the named attempt."""
    from weft.cli.logs import LogView, print_logs
    from weft.runs.listing import split_target

    if stdout and stderr:
        raise UsageError("--stdout and --stderr exclude each other", hint="Without both, logs have both streams.")
    if (party := party_folder(context, where)) is not None:
        from weft.cli.party_jobs import logs as job_logs

        if stdout or stderr:
            raise UsageError("logs of federated jobs do not tell output from errors", hint="Leave out the option.")
        job_logs(
            target,
            follow=follow,
            tail=tail,
            timestamps=timestamps,
            as_json=as_json,
            folder=party,
            context=context,
        )
        return
    if tail is not None and tail < 0:
        raise UsageError(f"--tail is {tail}; it must be 0 or more")
    view = LogView(tail, as_json, timestamps, "stdout" if stdout else "stderr" if stderr else "")
    named = split_target(target)
    run, step, attempt = named.run, named.step, named.attempt
    service = service_of(context, where)
    found, same = _fixed(service, target)
    context.follows = follow
    if follow and run != found.id:
        context.say(f"following {found.id}{f' ({clean(found.name)})' if found.name else ''}")

    def look() -> tuple[Sequence[LogFile], bool]:
        now = service.logs(same)
        return now.logs, now.active

    mixed = service.logs(same).mixed
    colours = context.out.isatty() and not context.console().no_color
    if print_logs(
        look,
        context.out,
        view,
        follow=follow,
        pause=context.pause,
        say=context.say,
        prefixed=mixed,
        colours=colours,
    ):
        return
    if attempt is not None and not look()[0]:
        raise NotFoundError(f"{run}/{step} has no log of attempt {attempt}", hint=f"See: weft show {run}")
    if tail == 0:
        return
    if expired := [job for job in found.jobs if "expired_at" in job]:
        names = ", ".join(f"{job['kind']} {job['name']}" for job in expired)
        context.say(f"the logs of {names} were removed at {moment(expired[0]['expired_at'])} (ttlSecondsAfterFinished)")
    elif found.of_session:
        context.say(f"{target} is of a Python program: what its tasks print goes to where the program runs")
    elif attempt is not None or not _print_taken(context, found.id, step, service.origins(same), view):
        where_to = f" to {view.stream}" if view.stream else ""
        context.say(f"{target} has printed nothing{where_to}")


def _fixed(service: RunService, target: str) -> tuple[RunRecord, str]:
    """Return the run of a target, and the target by the id of the run: `@last` may become another run."""
    run = target.partition("/")[0]
    found = service.show(run)
    return found, found.id + target.removeprefix(run)


def _print_taken(context: CommandContext, run: str, step: str, made: Sequence[Taken], view: LogView) -> bool:
    """Print the logs of the attempts that made the cached results of a step; for a run, print how to see them."""
    from weft.cli.logs import print_logs

    if not made:
        return False
    if not step:
        context.say(f"{run} has printed nothing: results were taken from the cache")
        context.say(f"See what was printed when one was made: weft logs {run}/STEP")
        return True
    for maker in dict.fromkeys(each.run for each in made if each.gone):
        context.say(f"{run}/{step} was taken from the cache, and the logs of {maker}, which made it, are gone")
    there = [each for each in made if not each.gone]
    if there:
        names = list(dict.fromkeys(f"{each.run}/{each.step}" for each in there))
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        context.say(f"{run}/{step} was taken from the cache; this is of {', '.join(names[:3])}{more}")
        logs = [log for each in there for log in each.logs]
        if not print_logs(lambda: (logs, False), context.out, view, follow=False, pause=context.pause, say=context.say):
            context.say("Nothing was printed there")
    return True


def story(
    target: str,
    /,
    *,
    as_json: AsJson = False,
    where: Where,
    context: Given,
) -> None:
    """Print the history of a run or a step, with reasons."""
    service = service_of(context, where)
    found, same = _fixed(service, target)
    if as_json:
        _print_story(context, found, [record for _, record in service.events(same)])
        return
    lines = service.story(same) or _lines(service.events(same), found.id)
    context.out.write("".join(f"{clean(line)}\n" for line in lines))


def _lines(events: Sequence[tuple[float, Record]], run: str) -> Iterator[str]:
    """Yield the records of a run as lines, without the messages that a step repeats under one owner."""
    from weft.runs.timeline import record_subject

    last: dict[tuple[str, int | None], str] = {}
    for seconds, record in events:
        key = record.step, record.index
        if record.state == "pending":
            last.pop(key, None)
        message = f": {one_line(record.message, 2000)}" if record.message not in ("", last.get(key)) else ""
        last[key] = record.message or last.get(key, "")
        what = f"{clean(record.state)}{message}" if record.state else one_line(record.message, 2000)
        yield f"{seconds:10.3f}s  {clean(record_subject(record)) or run}: {what}"


def _print_story(context: CommandContext, found: RunRecord, records: Sequence[Record]) -> None:
    events = [
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
    print_json(context.out, "weft.story/1", run=found.id, events=events)


def explain(
    run: str,
    /,
    *,
    as_json: AsJson = False,
    where: Where,
    context: Given,
) -> None:
    """Compare the planned and the executed graph, and print each change with its cause."""
    service = service_of(context, where)
    found = service.show(run)
    explained = service.explain(found.id)
    if as_json:
        print_json(context.out, "weft.explain/1", run=found.id, **explained.to_json())
        return
    context.out.write("".join(f"{clean(line)}\n" for line in explained.lines()))


def why(
    target: str,
    /,
    *,
    against: str | None = None,
    as_json: AsJson = False,
    where: Where,
    context: Given,
) -> None:
    """Explain why a step waits, why it ran, or which result of the cache it used."""
    service = service_of(context, where)
    found, same = _fixed(service, target)
    reasons = service.why(same, against=against, note=lambda told: context.say(f"note: {clean(told)}"))
    if as_json:
        document = as_dict(reasons) | {"waits": [wait.to_json() for wait in reasons.waits]}
        print_json(context.out, "weft.why/1", run=found.id, against=document.pop("run"), **document)
        return
    context.out.write("".join(f"{clean(line)}\n" for line in reasons.lines()))
