"""The commands that end and remove runs."""

from __future__ import annotations

from weft.cli.arguments import AsJson, Given, Project, RunName, StateDir, root_of
from weft.cli.tables import print_json
from weft.model.errors import UsageError


def delete(
    *runs: RunName, as_json: AsJson = False, project: Project = None, state_dir: StateDir = None, context: Given
) -> None:
    """Delete runs that have ended: their outputs, logs and records. Results in the cache stay."""
    from weft.admin.deleting import delete_runs, refuse_live
    from weft.runs.listing import find_run

    if not runs:
        raise UsageError("which runs? name them", hint="List them: weft ls")
    root = root_of(context, project, state_dir)
    folders = dict.fromkeys(find_run(root, run) for run in runs)
    for folder in folders:
        refuse_live(folder)
    for run in delete_runs(root, folders):
        if not as_json:
            context.say(f"deleted {run}")
    if as_json:
        print_json(context.out, "weft.delete/1", runs=[folder.name for folder in folders])
