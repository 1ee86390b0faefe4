"""The commands that end and remove runs: `weft cancel`, `weft suspend`, `weft delete` and `weft prune`."""

from __future__ import annotations

from weft.cli.arguments import AsJson, Given, Where, seconds_of, service_of
from weft.cli.tables import clean, print_json
from weft.model.errors import UsageError


def cancel(
    run: str,
    /,
    *,
    force: bool = False,
    as_json: AsJson = False,
    where: Where,
    context: Given,
) -> None:
    """Cancel a run: stop its tasks in order, then run its post_process."""
    found = service_of(context, where).cancel(run, force=force)
    if as_json:
        print_json(context.out, "weft.cancel/1", run=found)
    else:
        context.say(f"{found} is being cancelled")


def suspend(
    run: str,
    /,
    *,
    now: bool = False,
    as_json: AsJson = False,
    where: Where,
    context: Given,
) -> None:
    """Suspend a run: start no more tasks, and release it when its running tasks have ended."""
    found = service_of(context, where).suspend(run, now=now)
    if as_json:
        print_json(context.out, "weft.suspend/1", run=found)
    else:
        context.say(f"{found} is being suspended")


def delete(*runs: str, as_json: AsJson = False, where: Where, context: Given) -> None:
    """Delete ended runs: their outputs, logs and records. Results in the cache stay."""
    if not runs:
        raise UsageError("no run is named", hint="List them: weft ls")
    deleted = []
    for run in service_of(context, where).delete(runs):
        deleted.append(run)
        if not as_json:
            context.say(f"deleted {run}")
    if as_json:
        print_json(context.out, "weft.delete/1", runs=deleted)


def prune(
    *,
    older_than: str | None = None,
    keep: int | None = None,
    state: str | None = None,
    dry_run: bool = False,
    as_json: AsJson = False,
    where: Where,
    context: Given,
) -> None:
    """Delete old runs: all ended runs that no option keeps."""
    age = None if older_than is None else seconds_of(older_than, "--older-than")
    service = service_of(context, where)
    rows = list(service.prune(older_than=age, keep=keep, state=state, dry_run=dry_run))
    if as_json:
        print_json(context.out, "weft.prune/1", runs=[row.id for row in rows], deleted=not dry_run)
        return
    for row in rows:
        context.say(f"{'would delete' if dry_run else 'deleted'} {row.id} ({clean(row.name)})")
    if not rows:
        context.say("no run is so old, or one too many")
