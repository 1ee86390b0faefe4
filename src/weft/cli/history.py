"""The commands that print the history of a run: `weft logs`, `weft story`, `weft explain` and `weft why`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from weft.cli.arguments import (
    AsJson,
    Given,
    Project,
    RunName,
    StateDir,
    Target,
    find_record,
    open_results,
    split_target,
)
from weft.cli.context import CommandContext
from weft.cli.parsing import CommandParameter
from weft.cli.tables import clean, iso, one_line, print_json
from weft.model.errors import ConflictError, NotFoundError, UsageError
from weft.model.records import as_dict

if TYPE_CHECKING:
    from weft.engine.explain import Explained
    from weft.runs.reading import RunRecord
    from weft.runs.records import Record
    from weft.store.state import LogFile


def logs(
    target: Target,
    /,
    *,
    follow: Annotated[
        bool, CommandParameter(name=["-f", "--follow"], help="Follow the logs until the run has ended.")
    ] = False,
    tail: Annotated[
        int | None, CommandParameter(name="--tail", help="Print only this many lines at the end of each log.")
    ] = None,
    as_json: Annotated[bool, CommandParameter(name="--json", help="Print one JSON document for each line.")] = False,
    project: Project = None,
    state_dir: StateDir = None,
    context: Given,
) -> None:
    """Print the logs of a run or of one step: the latest attempt of each task, or the named attempt."""
    from weft.cli.logs import print_logs
    from weft.runs.reading import read_run
    from weft.runs.records import ACTIVE

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
    """Print the logs of the attempts that made the cached results of a step; for a run, print how to see them."""
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


def story(
    target: Target,
    /,
    *,
    as_json: AsJson = False,
    project: Project = None,
    state_dir: StateDir = None,
    context: Given,
) -> None:
    """Print the history of a run or a step, with reasons."""
    from weft.admin.control import send
    from weft.runs.reading import item_name
    from weft.runs.records import read_records
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
            selected = subject if attempt is None else f"{subject}@{attempt}"
            for line in send(found.folder, {"do": "story", "subject": selected}):
                context.out.write(clean(str(line)) + "\n")
        except ConflictError:  # the run has ended meanwhile, or is starting
            pass
        else:
            return
    elif lines := context.wiring().story_run(found.folder, subject):
        context.out.write("".join(f"{clean(line)}\n" for line in lines))
        return
    last: dict[tuple[str, int | None], str] = {}
    begin = None
    for record in read_records(found.folder):
        begin = record.time if begin is None else begin
        if not about(record):
            continue
        who = clean(record.step if record.index is None else item_name(record.step, record.index)) or found.id
        known = last.get((record.step, record.index)) == record.message
        message = "" if known or not record.message else f": {one_line(record.message, 2000)}"
        last[record.step, record.index] = record.message or last.get((record.step, record.index), "")
        context.out.write(f"{record.time - begin:10.3f}s  {who}: {clean(record.state)}{message}\n")


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
    run: RunName,
    /,
    *,
    as_json: AsJson = False,
    project: Project = None,
    state_dir: StateDir = None,
    context: Given,
) -> None:
    """Compare the planned and the executed graph, and print each change with its cause."""
    found = find_record(context, run, project, state_dir)
    explained = _explained(context, found)
    if as_json:
        print_json(context.out, "weft.explain/1", run=found.id, **explained.to_json())
        return
    context.out.write("".join(f"{clean(line)}\n" for line in explained.lines()))


def _explained(context: CommandContext, found: RunRecord) -> Explained:
    """Return the explanation from the owner of a live run, or from the folder of an ended one."""
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


def why(
    target: Target,
    /,
    *,
    against: Annotated[str | None, CommandParameter(help="Compare with this run, not with the nearest result.")] = None,
    as_json: AsJson = False,
    project: Project = None,
    state_dir: StateDir = None,
    context: Given,
) -> None:
    """Explain why a step ran, or which result of the cache it used."""
    from weft.runs.reasons import reasons

    run, step, _ = split_target(target)
    if not step:
        raise UsageError(f"{target} names no step", hint=f"Write: weft why {target}/STEP")
    found = find_record(context, run, project, state_dir)
    other = None if against is None else find_record(context, against, project, state_dir)
    with open_results(context, project, state_dir) as cache:
        found_reasons = reasons(cache, found, step, other)
    if as_json:
        document = as_dict(found_reasons)
        print_json(context.out, "weft.why/1", run=found.id, against=document.pop("run"), **document)
        return
    context.out.write(f"{clean(found_reasons.line())}\n")
    for difference in found_reasons.differences[1:] if found_reasons.differences else ():
        context.out.write(f"  also {clean(difference)}\n")
