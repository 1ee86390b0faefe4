"""The commands that end, scale and remove runs: `weft cancel`, `suspend`, `scale`, `delete` and `prune`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.cli.arguments import AsJson, Given, Where, party_folder, seconds_of, service_of
from weft.cli.tables import clean, print_json, short_path, tags_text
from weft.model.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from weft.cli.context import CommandContext


def cancel(
    run: str,
    /,
    *,
    force: bool = False,
    reason: str | None = None,
    as_json: AsJson = False,
    where: Where,
    context: Given,
) -> None:
    """Cancel a run: stop its tasks in order, then run its post_process. Or cancel one step: the others go on."""
    if (party := party_folder(context, where)) is not None:
        from weft.cli.party_jobs import stop

        stop(run, as_json=as_json, folder=party, context=context)
        return
    found = service_of(context, where).cancel(run, force=force, reason=reason or "weft cancel")
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


def scale(run: str, /, *counts: str, as_json: AsJson = False, where: Where, context: Given) -> None:
    """Change the number of replicas of a running training job, or of a step (RUN/STEP)."""
    if not counts:
        named, _, pair = run.rpartition("/")
        example = f"{named} {pair}" if named and "=" in pair else f"{run} worker=4"
        raise UsageError("no number of replicas is given", hint=f"For example: weft scale {example}")
    found, same = service_of(context, where).scale(run, counts)
    if as_json:
        print_json(context.out, "weft.scale/1", run=found, unchanged=same)
        return
    if changed := [pair for pair in counts if pair.lower().replace(" ", "") not in same]:
        context.say(f"{found} is being scaled: {', '.join(changed)}")
    if same:
        context.say(f"{found} has {', '.join(same)} already: nothing changes")


def delete(*runs: str, force: bool = False, as_json: AsJson = False, where: Where, context: Given) -> None:
    """Delete ended runs: their outputs, logs and records. Results in the cache stay."""
    if not runs:
        raise UsageError("no run is named", hint="List them: weft ls")
    deleted = []
    for run in service_of(context, where).delete(runs, force=force, note=_noted(context)):
        deleted.append(run)
        if not as_json:
            context.say(f"deleted {run}")
    if as_json:
        print_json(context.out, "weft.delete/1", runs=deleted)


def fetch(run: str, /, *, as_json: AsJson = False, where: Where, context: Given) -> None:
    """Bring the outputs of a run at a cluster, which lie at the URL of its storage, to this machine."""
    service = service_of(context, where)
    found = service.find(run).name
    outputs = service.fetch(found)
    if as_json:
        print_json(context.out, "weft.fetch/1", run=found, outputs=outputs)
        return
    context.out.write("".join(f"{clean(short_path(path, context.cwd))}\n" for path in outputs))
    if not outputs:
        context.say(f"{found} has no outputs that are not here")


def tag(
    run: str,
    /,
    *tags: str,
    remove: list[str] | None = None,
    as_json: AsJson = False,
    where: Where,
    context: Given,
) -> None:
    """Give a run tags, or remove some; a run with the tag `keep` is never pruned."""
    if not tags and not remove:
        raise UsageError("no tag is given", hint=f"For example: weft tag {run} stage=test, or --remove stage")
    service = service_of(context, where)
    found = service.find(run).name
    labels = service.tag(found, tags, remove=remove or ())
    if as_json:
        print_json(context.out, "weft.tag/1", run=found, tags=dict(labels.tags))
    else:
        context.say(f"{found} has the tags {tags_text(labels.tags)}" if labels.tags else f"{found} has no tags")


def note(run: str, text: str, /, *, as_json: AsJson = False, where: Where, context: Given) -> None:
    """Give a run a note, in place of the one that it has; an empty text removes it."""
    service = service_of(context, where)
    found = service.find(run).name
    labels = service.note(found, text)
    if as_json:
        print_json(context.out, "weft.note/1", run=found, note=labels.note)
    else:
        context.say(f"{found} has a note" if labels.note else f"{found} has no note")


def _noted(context: CommandContext) -> Callable[[str], None]:
    return lambda note: context.say(f"note: {clean(note)}")


def prune(
    *,
    older_than: str | None = None,
    keep: int | None = None,
    keep_last: int | None = None,
    name: str | None = None,
    state: str | None = None,
    dry_run: bool = False,
    as_json: AsJson = False,
    where: Where,
    context: Given,
) -> None:
    """Delete old runs: all ended runs that no option keeps."""
    age = None if older_than is None else seconds_of(older_than, "--older-than")
    service = service_of(context, where)
    found = service.prune(
        older_than=age,
        keep=keep,
        keep_last=keep_last,
        name=name,
        state=state,
        dry_run=dry_run,
        note=_noted(context),
    )
    rows = list(found)
    if as_json:
        print_json(context.out, "weft.prune/1", runs=[row.id for row in rows], deleted=not dry_run)
        return
    for row in rows:
        context.say(f"{'would delete' if dry_run else 'deleted'} {row.id} ({clean(row.name)})")
    if not rows:
        reasons = [] if older_than is None else [f"none ended more than {older_than} ago"]
        if keep is not None:
            kept = f"--keep {keep} keeps them all"
            reasons.append(kept if keep else "there are no ended runs without the tag keep")
        if keep_last is not None:
            reasons.append(f"--keep-last {keep_last} keeps them all")
        context.say(f"nothing to delete: {', or '.join(reasons)}")
