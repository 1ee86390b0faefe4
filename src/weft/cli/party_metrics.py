"""The commands `weft party metrics` (figures, curves as one line each, bins of columns) and `weft party report`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

from weft.cli.arguments import AsJson, Given
from weft.cli.parsing import CommandParameter
from weft.cli.parties import Folder, party_app
from weft.cli.party_jobs import Job, client_of, file_to_write, job_of
from weft.cli.tables import clean, one_line, print_json, print_table, short_path, unicode_ok
from weft.model.wording import bin_name

if TYPE_CHECKING:
    from weft.cli.context import CommandContext

_BARS: Final = "▁▂▃▄▅▆▇█"
_PLAIN_BARS: Final = "_.-=*#"
_WIDTH: Final = 32
_MOST_FEATURES: Final = 20


@party_app.command
def metrics(
    target: Annotated[str, CommandParameter(help="JOB or JOB/COMPONENT.")],
    /,
    *,
    as_json: AsJson = False,
    folder: Folder = None,
    context: Given,
) -> None:
    """Print the metrics of a job at this party: figures, curves such as losses and ROC, and bins of columns."""
    client = client_of(context, folder)
    job, _, component = target.partition("/")
    found = client.post("weft/metrics", {"job_id": job_of(client, job), "component": component})
    if as_json:
        print_json(context.out, "weft.party.metrics/1", components=found)
        return
    for at, one in enumerate(found):
        context.out.write(("\n" if at else "") + f"{clean(one['component'])} ({one['module']}) at {one['part']}\n")
        _print_series(context, one["series"])
        for confusion in one["confusion"]:
            _print_confusion(context, confusion)
        _print_bins(context, one["bins"], whole=bool(component))
    if not found:
        context.say(f"{target} has no metrics at this party")


@party_app.command
def report(
    job: Job,
    /,
    *,
    output: Annotated[
        Path | None, CommandParameter(name=["-o", "--output"], help="Write the page here; by default, to JOB.html.")
    ] = None,
    as_json: AsJson = False,
    folder: Folder = None,
    context: Given,
) -> None:
    """Write a page about a job, one HTML file, from the records of this party alone."""
    client = client_of(context, folder)
    id = job_of(client, job)
    if as_json:
        print_json(context.out, "weft.party.report/1", **client.post("weft/report", {"job_id": id, "document": 1}))
        return
    path = file_to_write(context, output or f"{id}.html")
    client.download("weft/report", {"job_id": id}, path)
    context.out.write(f"{short_path(path, context.cwd)}\n")


def _print_series(context: CommandContext, series: Sequence[dict[str, Any]]) -> None:
    figures = [one for one in series if one["single"]]
    curves = [one | {"points": _numbers(one["points"])} for one in series if not one["single"]]
    _print_figures(context, figures)
    rows = []
    for one in curves:
        if not one["points"]:
            continue
        values = [point[1] for point in one["points"]]
        rows.append(
            (
                _name(one),
                sparkline(one["points"], unicode_ok(context.out)),
                f"{values[0]:.4g}",
                f"{values[-1]:.4g}",
                f"{min(values):.4g} to {max(values):.4g}",
                f"{len(values)}",
            )
        )
    print_table(context.console(), ("CURVE", "", "FIRST", "LAST", "RANGE", "POINTS"), rows)


def _print_figures(context: CommandContext, figures: Sequence[dict[str, Any]]) -> None:
    """Print a line for each figure, or for each group, such as a fold, where several groups have the same ones."""
    groups: dict[str, dict[str, str]] = {}
    for one in figures:
        group = groups.setdefault(one_line(one["namespace"], 40), {})
        group[one_line(one["name"], 40)] = _figure(one["points"][0][1])
    names = list(dict.fromkeys(name for group in groups.values() for name in group))
    if len(groups) > 1 and len(names) < len(figures):
        rows = [(group, *(found.get(name, "") for name in names)) for group, found in groups.items()]
        print_table(context.console(), ("OF", *(name.upper() for name in names)), rows)
        return
    lines = [(_name(one), _figure(one["points"][0][1])) for one in figures]
    print_table(context.console(), ("METRIC", "VALUE"), lines)


def _numbers(points: Sequence[Sequence[float | None]]) -> list[tuple[float, float]]:
    """Return the points that are numbers: JSON has null for a loss that has become infinite, or none."""
    return [(x, y) for x, y in points if x is not None and y is not None]


def _figure(value: float | None) -> str:
    return "no number" if value is None else f"{value:.6g}"


def _print_confusion(context: CommandContext, confusion: dict[str, Any]) -> None:
    classes = [one_line(name, 20) for name in confusion["classes"]]
    heads = (f"{one_line(confusion['namespace'], 60)}: LABEL", *(f"PREDICTED {name}" for name in classes))
    rows = [
        (name, *(f"{count:,}" for count in counts)) for name, counts in zip(classes, confusion["counts"], strict=True)
    ]
    print_table(context.console(), heads, rows)


def _name(series: dict[str, Any]) -> str:
    return one_line(f"{series['namespace']} {series['name']}".strip(), 60)


def _print_bins(context: CommandContext, rows: Sequence[dict[str, Any]], *, whole: bool) -> None:
    """Print a line for each column; with `whole` each of its bins, too."""
    shown = rows if whole else rows[:_MOST_FEATURES]
    event = any(one["event"] for one in rows) and len({one["event"] for one in rows}) > 1
    table = []
    for one in shown:
        woe = [each["woe"] for each in one["bins"]]
        table.append(
            (
                one_line(one["feature"], 40),
                one_line(one["party"], 30),
                *([one_line(one["event"], 20)] if event else []),
                "" if one["iv"] is None else f"{one['iv']:.4f}",
                f"{len(woe) or len(one['edges'] or [])}",
                sparkline(list(enumerate(woe)), unicode_ok(context.out)) if woe else "",
            )
        )
    heads = ("COLUMN", "PARTY", *(["EVENT"] if event else []), "IV", "BINS", "WOE")
    print_table(context.console(), heads, table)
    if len(rows) > len(shown):
        context.out.write(f"and {len(rows) - len(shown)} more columns: weft party metrics JOB/COMPONENT\n")
    for one in shown if whole else ():
        if one["bins"]:
            context.out.write(f"\n{one_line(one['feature'], 40)} at {clean(one['party'])}\n")
            _print_column(context, one)


def _print_column(context: CommandContext, one: dict[str, Any]) -> None:
    rows = [
        (
            bin_name(one["edges"], at),
            f"{each['events'] + each['non_events']:,.0f}",
            f"{each['events']:,.0f}",
            f"{each['non_events']:,.0f}",
            f"{each['woe']:.4f}",
            f"{each['iv']:.4f}",
        )
        for at, each in enumerate(one["bins"])
    ]
    print_table(context.console(), ("BIN", "ROWS", "EVENTS", "OTHERS", "WOE", "IV"), rows)


def sparkline(points: Sequence[Sequence[float]], unicode: bool = True) -> str:
    """Return a curve as bars of one line, over equal steps of x: at most 32, each with the mean of its points.

    A step without points has the value of the one before.
    """
    bars = _BARS if unicode else _PLAIN_BARS
    points = sorted((x, y) for x, y in points)
    first, last = points[0][0], points[-1][0]
    width = min(_WIDTH, len(points))
    cells: list[list[float]] = [[] for _ in range(width)]
    for x, y in points:
        cells[min(width - 1, int((x - first) / ((last - first) or 1) * width))].append(y)
    values: list[float] = []
    for cell in cells:
        values.append(sum(cell) / len(cell) if cell else values[-1])
    low, high = min(values), max(values)
    return "".join(bars[round((one - low) / ((high - low) or 1) * (len(bars) - 1))] for one in values)
