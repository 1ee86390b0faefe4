"""How federated jobs look on a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from weft.cli.tables import clean, moment, one_line, print_json, print_table
from weft.model.wording import duration, size_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from weft.cli.context import CommandContext

_MOST_KINDS: Final = 20


def print_job(context: CommandContext, shown: Mapping[str, Any], *, as_json: bool = False) -> None:
    """Print a job as its party sees it."""
    if as_json:
        print_json(context.out, "weft.party.job/2", **shown)
        return
    took = "" if shown["seconds"] is None else f"  {duration(shown['seconds'])}"
    context.out.write(f"{shown['job']}  {shown['status']}{took}  by {clean(shown['initiator'])}\n")
    if shown["reason"] and (shown["cause"] or not shown["waits"]):
        context.out.write(f"{clean(shown['reason'])}\n")
    if shown["cause"] and shown["cause"]["hint"]:
        context.out.write(f"{clean(shown['cause']['hint'])}\n")
    for wait in shown["waits"]:
        since = f", since {moment(wait['since'])}" if wait["since"] else ""
        context.out.write(f"waits: {clean(wait['what'])}{since}\n")
    for table in shown["tables"]:
        name = one_line(f"{table['namespace']}.{table['name']}", 120)
        context.out.write(f"reads: {name}, in {one_line(table['component'], 40)} of {one_line(table['part'], 40)}\n")
    for note in shown["notes"]:
        context.out.write(f"note: {clean(note)}\n")
    context.out.write("\n")
    _print_parts(context, shown)
    context.out.write("\n")
    _print_components(context, shown)
    _print_left(context, shown)
    if shown["metrics"]:
        context.out.write("\n")
        for name, value in shown["metrics"].items():
            context.out.write(f"{clean(name)}  {value:.6g}\n")


def _print_parts(context: CommandContext, shown: Mapping[str, Any]) -> None:
    rows = [
        (
            one_line(one["part"] + (" (here)" if one["here"] else ""), 60),
            one_line(one["state"], 200),
            _size(one["sent"]),
            _size(one["received"]),
        )
        for one in shown["parts"]
    ]
    print_table(context.console(), ("PART", "STATE", "SENT TO IT", "RECEIVED FROM IT"), rows)


def _print_components(context: CommandContext, shown: Mapping[str, Any]) -> None:
    parts, now = [one["part"] for one in shown["parts"]], context.clock.wall()
    rows = [
        (
            one_line(one["name"], 40) + (f" (attempt {one['attempt'] + 1})" if one["attempt"] else ""),
            one["status"],
            *(one["parts"].get(part, "-") or "" for part in parts),
            _time(one, now),
            _size(one["sent"]),
            _size(one["received"]),
        )
        for one in shown["components"]
    ]
    heads = ("COMPONENT", "STATUS", *(one_line(part.upper(), 30) for part in parts), "TIME", "SENT", "RECEIVED")
    print_table(context.console(), heads, rows)
    cause = shown["cause"]["message"] if shown["cause"] else None
    for one in shown["components"]:
        reason = one["reason"].removeprefix(f"{one['name']}: ")
        if reason and not (cause and cause in one["reason"]):  # the cause stands on top
            context.out.write(f"\n{one_line(one['name'], 40)}: {clean(reason)}\n")


def _time(component: Mapping[str, Any], now: float) -> str:
    """Return how long a component has run here, or runs already."""
    if component["kept"]:
        return "earlier run"
    if component["seconds"] is None and component["started"] is not None and component["status"] == "running":
        return duration(max(now - component["started"], 0.0))
    return duration(component["seconds"])


def _print_left(context: CommandContext, shown: Mapping[str, Any]) -> None:
    """Print what has left this party, the largest first."""
    left = shown["left"]
    if not left:
        return
    context.out.write("\n")
    rows = [
        (
            one_line(one["what"], 80),
            one_line(one["component"], 40),
            one_line(one["to"], 40),
            f"{one['messages']:,}",
            size_text(one["bytes"]),
        )
        for one in left[:_MOST_KINDS]
    ]
    print_table(context.console(), ("LEFT THIS PARTY", "COMPONENT", "TO", "VALUES", "SIZE"), rows)
    if len(left) > _MOST_KINDS:
        context.out.write(f"and {len(left) - _MOST_KINDS} more kinds: --json has all\n")


def _size(nbytes: int) -> str:
    return size_text(nbytes) if nbytes else ""
