"""The commands that show runs: `weft ls` and `weft show`."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Annotated, Any

from weft.cli.arguments import (
    AsJson,
    Given,
    Where,
    party_folder,
    service_of,
    where_options,
)
from weft.cli.parsing import CommandParameter
from weft.cli.steps import MOST_OUTPUTS, in_python, more_outputs, print_steps, run_document, took
from weft.cli.tables import clean, iso, moment, one_line, output_path, print_json, print_table, short_path, tags_text
from weft.model.errors import UsageError
from weft.model.records import as_dict
from weft.runs.records import DAMAGED

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from weft.cli.context import CommandContext
    from weft.store.catalog import RunRow
    from weft.store.labels import RunLabels


def ls(
    *,
    state: str | None = None,
    name: str | None = None,
    tags: list[str] | None = None,
    number: int = 20,
    quiet: Annotated[bool, CommandParameter(name=["-q", "--quiet"], help="Print only ids.")] = False,
    as_json: AsJson = False,
    where: Where,
    context: Given,
) -> None:
    """List the runs, newest first."""
    if (party := party_folder(context, where)) is not None:
        from weft.cli.party_jobs import jobs as list_jobs

        list_jobs(status=state or "", number=number, quiet=quiet, as_json=as_json, folder=party, context=context)
        return
    service = service_of(context, where)
    rows, total = service.list_runs(state=state, name=name, tags=tags or (), number=number)
    jobs = {row.id: service.conditions(row) for row in rows} if as_json or not quiet else {}
    if as_json:
        runs = [_row_document(row, jobs[row.id], service.labels(row.id)) for row in rows]
        print_json(context.out, "weft.runs/1", runs=runs, total=total)
        return
    if quiet:
        context.out.write("".join(f"{row.id}\n" for row in rows))
        return
    _print_rows(context, rows, jobs, {row.id: tags_text(service.labels(row.id).tags) for row in rows})
    for row in rows:
        if row.state == DAMAGED:
            context.say(f"{row.id} is damaged: {clean(row.error_message.replace(chr(10), '. '))}")
    if not rows:
        context.say(f"no runs{' like this' if state or name or tags else ''} in {service.state.path}")
    elif total > len(rows):
        context.say(f"showing {len(rows)} of {total}; all: weft ls -n 0")
    below = () if where.state_dir else service.projects_below(context.cwd / (where.project or ""))
    for folder in below:
        context.say(f"for the runs of another folder: weft ls -C {short_path(folder, context.cwd)}")
    if not (rows or below or state or name or where.project or where.state_dir):
        context.say("for the runs of another folder: weft ls -C FOLDER")


def _print_rows(
    context: CommandContext,
    rows: Sequence[RunRow],
    jobs: Mapping[str, Sequence[tuple[str, str]]],
    tags: Mapping[str, str],
) -> None:
    """Print the table of runs, with columns for jobs and tags if there are any."""
    from weft.cli.tables import state_text
    from weft.runs.records import INTERRUPTED

    now, out = context.clock.wall(), context.console()
    of_jobs, of_tags = any(jobs.values()), any(tags.values())
    print_table(
        out,
        (
            "RUN",
            "STATE",
            *(["JOB"] if of_jobs else []),
            "NAME",
            "STARTED",
            "TIME",
            "USER",
            *(["TAGS"] if of_tags else []),
        ),
        [
            (
                row.id,
                state_text(row.state, out),
                *([_conditions(jobs[row.id])] if of_jobs else []),
                one_line(row.name, 40),
                moment(row.started_at or row.created_at or None),
                took(row.started_at, row.ended_at, row.state, now, row.paused_s, open_end=row.state == INTERRUPTED),
                one_line(row.user, 20),
                *([one_line(tags[row.id], 60)] if of_tags else []),
            )
            for row in rows
        ],
    )


def show(
    target: str,
    /,
    *,
    events: Annotated[
        bool, CommandParameter(name="--events", help="Show the conditions and events of training jobs too.")
    ] = False,
    as_json: AsJson = False,
    where: Where,
    context: Given,
) -> None:
    """Show one run, or one step of it: times, parameters, outputs and paths of logs."""
    if (party := party_folder(context, where)) is not None:
        from weft.cli.party_jobs import show as show_job

        show_job(target, as_json=as_json, folder=party, context=context)
        return
    from weft.runs.listing import split_target

    named = split_target(target)
    name, step, attempt = named.run, named.step, named.attempt
    if attempt is not None:
        raise UsageError(
            f"{target} is one attempt, and `show` has a step with all of them",
            hint=f"Write: weft show {name}/{step}. Of one attempt there are: weft logs {target}, weft story {target}",
        )
    service = service_of(context, where)
    found = service.show(name)
    if step:
        from weft.cli.steps import show_step

        outer, slash, replica = step.partition("/")
        if slash:
            (found,), step = service.show_inner(found, outer, alone=True), replica
        show_step(context, found, step, service.show_inner(found, step), as_json=as_json, events=events)
        return
    if as_json:
        print_json(context.out, "weft.run/1", run=run_document(found))
        return
    from weft.cli.tables import state_text
    from weft.runs.reading import stays_at_url
    from weft.runs.records import INTERRUPTED

    now, out = context.clock.wall(), context.console()
    outputs = list(found.outputs.items())
    missing = f"not here: weft fetch {found.id}" if stays_at_url(found.folder) else "not there"
    head: list[tuple[str, Any]] = [
        ("run", found.id),
        ("state", state_text(found.state, out)),
        ("name", one_line(found.name)),
        ("file", short_path(found.file, context.cwd) if found.file else ""),
        ("user", one_line(f"{found.user}@{found.host}" if found.host else found.user)),
        ("started", moment(found.started)),
        (
            "time",
            took(found.started, found.ended, found.state, now, found.paused_s, open_end=found.state == INTERRUPTED),
        ),
        ("profile", one_line(found.profile)),
        ("parameters", one_line(", ".join(f"{k}={v}" for k, v in found.parameters.items()), 500)),
        ("tags", tags_text(found.tags)),
        ("note", one_line(found.note, 500)),
        ("error", f"{found.error_code} {one_line(found.message, 500)}" if found.error_code else ""),
        ("folder", short_path(found.folder, context.cwd)),
        *(
            (f"output {one_line(name, 40)}", output_path(place, context.cwd, missing))
            for name, place in outputs[:MOST_OUTPUTS]
        ),
        ("outputs", more_outputs(len(outputs), found.id)),
        ("results", in_python(found) if found.of_session and found.state == "succeeded" else ""),
        ("next", f"weft resume {found.id}{where_options(context, where)}" if found.state == INTERRUPTED else ""),
    ]
    width = max(len(name) for name, value in head if value)
    for name, value in head:
        if value:
            out.print(f"{name:{width}} ", value)
    context.out.write("\n")
    print_steps(context, found)
    if found.of_jobs:
        from weft.cli.replicas import print_events, print_failure, print_resources

        print_resources(context, found)
        print_failure(context, found)
        if events:
            print_events(context, found)


def _conditions(jobs: Sequence[tuple[str, str]]) -> str:
    """Return the condition of the job of a run, or those of several with their numbers."""
    counts = Counter(condition for _, condition in jobs)
    return clean(next(iter(counts), "") if len(jobs) == 1 else ", ".join(f"{n} {one}" for one, n in counts.items()))


def _row_document(row: RunRow, jobs: Sequence[tuple[str, str]], labels: RunLabels) -> dict[str, Any]:
    document = {**as_dict(row), "tags": dict(labels.tags), "note": labels.note}
    if jobs:
        document["jobs"] = [{"name": name, "condition": condition} for name, condition in jobs]
    del document["version"], document["error_code"], document["error_message"]
    for name in ("created_at", "started_at", "ended_at"):
        document[name] = iso(document[name] or None)
    error = {"code": row.error_code, "message": row.error_message} if row.error_code else None
    return {**document, "error": error}
