"""The commands that end and remove runs: `weft cancel`, `weft suspend`, `weft delete` and `weft prune`."""

from __future__ import annotations

from typing import Annotated

from weft.cli.arguments import AsJson, Given, Project, RunName, StateDir, find_record, root_of, seconds_of
from weft.cli.parsing import CommandParameter
from weft.cli.tables import clean, print_json
from weft.model.errors import UsageError
from weft.runs.verbs import VERBS


def cancel(
    run: RunName,
    /,
    *,
    force: Annotated[bool, CommandParameter(help=VERBS["cancel"].about("force"))] = False,
    as_json: AsJson = False,
    project: Project = None,
    state_dir: StateDir = None,
    context: Given,
) -> None:
    """Cancel a run: stop its tasks in order, then run its post_process."""
    from weft.runs.removing import cancel_run

    found = find_record(context, run, project, state_dir)
    cancel_run(found.folder, force=force)
    if as_json:
        print_json(context.out, "weft.cancel/1", run=found.id)
    else:
        context.say(f"{found.id} is being cancelled")


def suspend(
    run: RunName,
    /,
    *,
    now: Annotated[bool, CommandParameter(help=VERBS["suspend"].about("now"))] = False,
    as_json: AsJson = False,
    project: Project = None,
    state_dir: StateDir = None,
    context: Given,
) -> None:
    """Suspend a run: start no more tasks, and release it when its running tasks have ended."""
    from weft.runs.removing import suspend_run

    found = find_record(context, run, project, state_dir)
    suspend_run(found.folder, now=now)
    if as_json:
        print_json(context.out, "weft.suspend/1", run=found.id)
    else:
        context.say(f"{found.id} is being suspended")


def delete(
    *runs: RunName, as_json: AsJson = False, project: Project = None, state_dir: StateDir = None, context: Given
) -> None:
    """Delete ended runs: their outputs, logs and records. Results in the cache stay."""
    from weft.runs.listing import find_run
    from weft.runs.removing import delete_all

    if not runs:
        raise UsageError("which runs? name them", hint="List them: weft ls")
    root = root_of(context, project, state_dir)
    folders = dict.fromkeys(find_run(root, run) for run in runs)
    for run in delete_all(root, folders):
        if not as_json:
            context.say(f"deleted {run}")
    if as_json:
        print_json(context.out, "weft.delete/1", runs=[folder.name for folder in folders])


def prune(
    *,
    older_than: Annotated[str | None, CommandParameter(help=VERBS["prune"].about("older_than"))] = None,
    keep: Annotated[int | None, CommandParameter(help=VERBS["prune"].about("keep"))] = None,
    state: Annotated[str | None, CommandParameter(help=VERBS["prune"].about("state"))] = None,
    dry_run: Annotated[bool, CommandParameter(help=VERBS["prune"].about("dry_run"))] = False,
    as_json: AsJson = False,
    project: Project = None,
    state_dir: StateDir = None,
    context: Given,
) -> None:
    """Delete old runs: all ended runs that no option keeps."""
    from pathlib import Path

    from weft.admin.deleting import delete_runs
    from weft.runs.removing import prunable

    root = root_of(context, project, state_dir)
    age = None if older_than is None else seconds_of(older_than, "--older-than")
    rows = prunable(root, context.clock.wall(), older_than_s=age, keep=keep, state=state)
    gone = [row.id for row in rows] if dry_run else list(delete_runs(root, [Path(row.folder) for row in rows]))
    if as_json:
        print_json(context.out, "weft.prune/1", runs=gone, deleted=not dry_run)
        return
    names = {row.id: row.name for row in rows}
    for run in gone:
        context.say(f"{'would delete' if dry_run else 'deleted'} {run} ({clean(names[run])})")
    if not gone:
        context.say("no run is so old, or one too many")
