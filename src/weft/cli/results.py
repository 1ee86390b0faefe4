"""The commands of `weft cache`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from weft.cli.arguments import AsJson, EntryKey, Given, Where, seconds_of, service_of
from weft.cli.context import CommandContext
from weft.cli.parsing import CommandGroup, CommandParameter
from weft.cli.tables import clean, iso, moment, one_line, print_json, print_table
from weft.model.errors import UsageError
from weft.model.records import as_dict
from weft.model.wording import duration

if TYPE_CHECKING:
    from weft.store.entries import Entry

cache_app = CommandGroup("cache")


@cache_app.command(name="ls")
def cache_ls(
    *,
    number: Annotated[int, CommandParameter(name=["-n", "--number"], help="List at most this many; 0: all.")] = 20,
    quiet: Annotated[bool, CommandParameter(name=["-q", "--quiet"], help="Print only keys.")] = False,
    as_json: AsJson = False,
    where: Where,
    context: Given,
) -> None:
    """List the results of the cache, the last used first."""
    from weft.model.wording import size_text
    from weft.store.results import expired

    if number < 0:
        raise UsageError(f"--number is {number}; it must be 0 or more")
    with service_of(context, where).results() as cache:
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
                "pinned" if one.pinned else "expired" if expired(one, now, one.expires) else "",
            )
            for one in entries
        ],
    )
    context.say(f"{total:,} {'result' if total == 1 else 'results'}, {size_text(nbytes)}")


@cache_app.command(name="show")
def cache_show(
    key: EntryKey,
    /,
    *,
    as_json: AsJson = False,
    where: Where,
    context: Given,
) -> None:
    """Show one result: its inputs, its content and the runs that used it."""
    from weft.store.differences import readable

    with service_of(context, where).results() as cache:
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
        **{name: readable(value) for name, value in entry.leaves.items()},
    }
    width = max(len(name) for name in lines)
    for name, value in lines.items():
        context.out.write(f"{clean(name):{width}}  {one_line(value, 400)}\n")


@cache_app.command(name="rm")
def cache_rm(
    *keys: EntryKey,
    as_json: AsJson = False,
    where: Where,
    context: Given,
) -> None:
    """Remove results from the cache. The next `weft cache gc` removes their content."""
    if not keys:
        raise UsageError("no result is named", hint="Give keys of results: weft cache ls")
    with service_of(context, where).results() as cache:
        found = [cache.index.find(key).key for key in keys]
        cache.index.remove(found)
    if as_json:
        print_json(context.out, "weft.cache.rm/1", keys=found)
    else:
        context.say(f"forgot {len(found)}")


@cache_app.command(name="gc")
def cache_gc(
    *,
    max_size: Annotated[str | None, CommandParameter(help="Keep at most this many bytes, such as 10GiB.")] = None,
    max_age: Annotated[
        str | None, CommandParameter(help="Keep results used within this time, such as 30d or 12h.")
    ] = None,
    as_json: AsJson = False,
    where: Where,
    context: Given,
) -> None:
    """Remove the results used longest ago, unreferenced content, and environments that no step has used for 30 days."""
    from weft.model.sizes import parse_size, unit_missing
    from weft.model.wording import counted, size_text

    try:
        most = None if max_size is None else parse_size(max_size)
    except (ValueError, OverflowError):
        raise UsageError(f"--max-size is {max_size!r}; it must be a number of bytes, such as 512MiB") from None
    if hint := unit_missing(max_size):
        raise UsageError(f"--max-size is {max_size!r}; it must have a unit", hint=hint)
    age = None if max_age is None else seconds_of(max_age, "--max-age")
    with service_of(context, where).results() as cache:
        forgot, files, nbytes = cache.collect(
            max_bytes=most, max_age_s=age, note=lambda note: context.say(f"note: {clean(note)}")
        )
    from weft.operators.environments import collect

    environments, size = collect(service_of(context, where).state.path, context.clock.wall())
    if as_json:
        print_json(
            context.out,
            "weft.cache.gc/1",
            forgotten=forgot,
            files=files,
            bytes=nbytes,
            environments=environments,
            environment_bytes=size,
        )
    else:
        results, kept = ("result" if forgot == 1 else "results"), ("file" if files == 1 else "files")
        context.say(f"forgot {forgot} {results}; removed {files} {kept}, {size_text(nbytes)}")
        if environments:
            context.say(f"removed {counted(environments, 'environment')} of steps, {size_text(size)}")


@cache_app.command(name="pin")
def cache_pin(
    key: EntryKey,
    /,
    *,
    as_json: AsJson = False,
    where: Where,
    context: Given,
) -> None:
    """Keep a result regardless of age and size."""
    _pin(context, key, where, pinned=True, as_json=as_json)


@cache_app.command(name="unpin")
def cache_unpin(
    key: EntryKey,
    /,
    *,
    as_json: AsJson = False,
    where: Where,
    context: Given,
) -> None:
    """Allow `weft cache gc` to remove a pinned result."""
    _pin(context, key, where, pinned=False, as_json=as_json)


def _pin(context: CommandContext, key: str, where: Where, *, pinned: bool, as_json: bool) -> None:
    with service_of(context, where).results() as cache:
        entry = cache.index.find(key)
        cache.index.pin(entry.key, pinned)
    if as_json:
        print_json(context.out, "weft.cache.pin/1", key=entry.key, pinned=pinned)
    else:
        context.say(f"{entry.key[:12]} ({entry.pipeline}/{entry.step}) is {'' if pinned else 'no longer '}pinned")


def _entry_document(entry: Entry) -> dict[str, Any]:
    document = as_dict(entry)
    for name in ("started", "completed", "expires", "used"):
        document[f"{name}_at"] = iso(document.pop(name))
    return document
