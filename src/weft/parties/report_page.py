"""The page of a report: one HTML file that needs no network and runs no script."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from weft.model.wording import bin_name, duration, size_text
from weft.parties.report_charts import bin_bars, graph_chart, line_chart, time_bars
from weft.runs.reports.markup import PAGE_POLICY, number, text
from weft.runs.reports.style import STYLE

_SIGNS: Final[Mapping[str, tuple[str, str]]] = {
    "success": ("✓", "ok"),
    "pass": ("✓", "ok"),
    "failed": ("✗", "no"),
    "timeout": ("✗", "no"),
    "running": ("▸", "go"),
}
_NO_PART: Final = '<span class="dim">-</span>'
_MOST_COLUMNS: Final = 40
_CHARTS: Final = (
    ("ROC", ("roc",), "false positive rate", "true positive rate"),
    ("KS", ("ks_tpr", "ks_fpr"), "share of rows", "rate"),
    ("Gain", ("gain",), "share of rows", "share of events"),
    ("Lift", ("lift",), "share of rows", "lift"),
    ("By threshold", ("precision", "recall", "accuracy"), "threshold of the score", "value"),
)
"""The charts of an evaluation: title, curves, and names of the axes."""


def report_page(report: Mapping[str, Any]) -> str:
    """Return the page of what `job_report` has made."""
    title = f"Job {report['job']} at {report['site']}"
    sections = (
        ("", _head(report)),
        ("Parties", _parties(report)),
        ("Components", graph_chart(report["components"]) + _components(report)),
        ("Times", _times(report)),
        ("What has left this party", _left(report)),
        ("Metrics", "".join(_metrics(report))),
        ("Tables", _tables(report)),
        ("Models", _models(report)),
        ("Approvals", _approvals(report)),
        ("Parameters", "".join(_parameters(report))),
        ("Versions", _versions(report)),
    )
    body = "".join(
        f"<section>{f'<h2>{name}</h2>' if name else ''}{content}</section>" for name, content in sections if content
    )
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{text(title)}</title>'
        f'<meta http-equiv="Content-Security-Policy" content="{PAGE_POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{STYLE}</style></head><body><main>{body}<footer>{_foot(report)}</footer></main></body></html>\n"
    )


# ---------------------------------------------------------------------------------------------------------------- head


def _head(report: Mapping[str, Any]) -> str:
    status = text(report["status"])
    facts = {
        "initiator": report["initiator"],
        "this party": f"{report['site']} ({report['party']})",
        "kind": report["job_type"],
        "submitted": _moment(report["created"]),
        "started": _moment(report["started"]),
        "ended": _moment(report["ended"]),
        "took": duration(report["seconds"]),
        "sent": size_text(sum(one["sent"] for one in report["parts"])),
        "received": size_text(sum(one["received"] for one in report["parts"])),
        "submitted by": report["user"],
        "remarks": report["remarks"],
    }
    shown = "".join(f"<div><dt>{name}</dt><dd>{text(value)}</dd></div>" for name, value in facts.items() if value)
    return (
        f'<header><h1>Job {text(report["job"])} <span class="state s-{status}">{status}</span></h1>'
        f'<dl class="facts">{shown}</dl></header>{"".join(_notes(report))}'
    )


def _notes(report: Mapping[str, Any]) -> Iterator[str]:
    cause = report["cause"]
    if cause is not None:
        where = f" at party {text(cause['party'])}" if cause["party"] else ""
        code = f' <span class="soft">{text(cause["code"])}</span>' if cause["code"] else ""
        hint = f'<p class="soft">{text(cause["hint"])}</p>' if cause["hint"] else ""
        yield f'<div class="note bad"><p><b>Root cause{where}</b>{code}</p><p>{text(cause["message"])}</p>{hint}</div>'
    for wait in report["waits"]:
        since = f' <span class="soft">since {_moment(wait["since"])}</span>' if wait["since"] else ""
        yield f'<div class="note"><p><b>Waits</b> {text(wait["what"])}{since}</p></div>'
    for note in report["notes"]:
        yield f'<div class="note"><p>{text(note)}</p></div>'


def _parties(report: Mapping[str, Any]) -> str:
    rows = [
        (
            text(one["part"]) + (' <span class="soft">(this party)</span>' if one["here"] else ""),
            text(one["state"]),
            _bytes(one["sent"]),
            _bytes(one["received"]),
        )
        for one in report["parts"]
    ]
    return _table(("part", "state", "#sent to it", "#received from it"), rows)


# ---------------------------------------------------------------------------------------------------------- components


def _components(report: Mapping[str, Any]) -> str:
    parts = [one["part"] for one in report["parts"]]
    rows = []
    for one in report["components"]:
        cells = [_sign(one["parts"][part]) if part in one["parts"] else _NO_PART for part in parts]
        more = f'<br><span class="no">{text(one["reason"])}</span>' if one["reason"] else ""
        waits = (
            f'<br><span class="soft">waits for {text(", ".join(one["waits_for"]))}</span>' if one["waits_for"] else ""
        )
        again = f' <span class="soft">attempt {one["attempt"] + 1}</span>' if one["attempt"] else ""
        rows.append(
            (
                f"<b>{text(one['name'])}</b>{again}{more}{waits}",
                *cells,
                '<span class="soft">earlier run</span>' if one["kept"] else text(duration(one["seconds"])),
                _bytes(one["sent"]),
                _bytes(one["received"]),
            )
        )
    return _table(("component", *(f"={text(part)}" for part in parts), "#time", "#sent", "#received"), rows)


def _sign(status: str | None) -> str:
    if status is None or status == "":
        return '<span class="dim">not told</span>'
    sign, style = _SIGNS.get(status, ("·", "dim"))
    return f'<span class="{style}">{sign} {text(status)}</span>'


def _times(report: Mapping[str, Any]) -> str:
    begun = [one["started"] for one in report["components"] if one["started"] is not None]
    if not begun:
        return ""
    end = max(
        [report["made"] if one["ended"] is None else one["ended"] for one in report["components"] if one["started"]]
    )
    shown = [one | {"took": duration(one["seconds"])} for one in report["components"]]
    told = '<p class="soft">By the clock of this party, from the start of the first component on.</p>'
    return told + time_bars(shown, min(begun), end)


def _left(report: Mapping[str, Any]) -> str:
    left = report["left"]
    if not left:
        return "<p>Nothing.</p>"
    most = max(one["bytes"] for one in left) or 1
    rows = [
        (
            text(one["what"]),
            text(one["to"]),
            size_text(one["bytes"]),
            f"{one['messages']:,}",
            text(one["component"]),
            f'<svg class="share" viewBox="0 0 100 14" preserveAspectRatio="none" aria-hidden="true">'
            f'<rect x="0" y="3" width="{max(100 * one["bytes"] / most, 0.5):.1f}" height="8"/></svg>',
        )
        for one in left
    ]
    told = '<p class="soft">Values that were handed over for other parties, by kind, over all attempts.</p>'
    return told + _table(("what", "=to", "#size", "#values", "=component", "|"), rows)


# ------------------------------------------------------------------------------------------------------------- metrics


def _metrics(report: Mapping[str, Any]) -> Iterator[str]:
    for one in report["metrics"]:
        charts = "".join(_curves(one["series"]))
        yield f"<h3>{text(one['component'])} <span class='soft'>{text(one['module'])}, {text(one['part'])}</span></h3>"
        yield _figures(one["series"])
        yield f'<div class="two">{charts}</div>' if charts else ""
        yield from map(_confusion, one["confusion"])
        yield _bins(one["bins"])


def _figures(series: Sequence[Mapping[str, Any]]) -> str:
    """Return the single figures of a component as tiles, and as a table where several groups have the same ones."""
    groups: dict[str, dict[str, str]] = {}
    for one in series:
        if one["single"] and isinstance(one["points"][0][1], (int, float)):
            groups.setdefault(one["namespace"], {})[one["name"]] = number(one["points"][0][1])
    names = list(dict.fromkeys(name for group in groups.values() for name in group))
    if len(groups) > 1 and len(names) < sum(map(len, groups.values())):
        rows = [(text(group), *(found.get(name, "") for name in names)) for group, found in groups.items()]
        return _table(("=", *(f"#{text(name)}" for name in names)), rows)
    tiles = "".join(
        f"<div><span>{text(f'{group} {name}'.strip())}</span><b>{value}</b></div>"
        for group, found in groups.items()
        for name, value in found.items()
    )
    return f'<div class="tiles">{tiles}</div>' if tiles else ""


def _series_name(series: Mapping[str, Any]) -> str:
    return f"{series['namespace']} {series['name']}".strip()


def _curves(series: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the charts of a component: those of an evaluation with their axes, and one for each other curve."""
    curves = {(one["namespace"], one["name"]): one for one in series if not one["single"]}
    for namespace in dict.fromkeys(one for one, _ in curves):
        for title, names, x, y in _CHARTS:
            lines = [
                (name.removeprefix("ks_"), curves.pop((namespace, name))["points"])
                for name in names
                if (namespace, name) in curves and curves[namespace, name]["kind"].endswith("_EVALUATION")
            ]
            yield line_chart(f"{title}, {namespace}", lines, x, y, diagonal=title == "ROC")
    for one in curves.values():
        x = "iteration" if one["namespace"] in ("train", "validate") else ""
        yield line_chart(_series_name(one), [(one["name"], one["points"])], x, one["name"])


def _confusion(one: Mapping[str, Any]) -> str:
    """Return a table of labels by predictions; a cell is the darker the more of its label it has."""
    classes = [text(name) for name in one["classes"]]
    rows = []
    for name, counts in zip(classes, one["counts"], strict=True):
        total = sum(counts) or 1
        cells = [f'<td class="n" style="--part:{100 * count / total:.0f}%">{count:,}</td>' for count in counts]
        rows.append(f'<tr><th scope="row">{name}</th>{"".join(cells)}</tr>')
    heads = "".join(f'<th class="n">predicted {name}</th>' for name in classes)
    first = f"<thead><tr><th>label, {text(one['namespace'])}</th>{heads}</tr></thead>"
    return f'<div class="wide"><table class="confusion">{first}<tbody>{"".join(rows)}</tbody></table></div>'


def _bins(rows: Sequence[Mapping[str, Any]]) -> str:
    if not rows:
        return ""
    events, known = len({one["event"] for one in rows}) > 1, any(one["bins"] for one in rows)  # a host knows no labels
    shown = [
        (
            f"<b>{text(one['feature'])}</b>",
            text(one["party"]),
            *([text(one["event"])] if events else []),
            *(["" if one["iv"] is None else f"{one['iv']:.4f}"] if known else []),
            str(len(one["bins"]) or len(one["edges"] or [])),
            *([bin_bars([each["woe"] for each in one["bins"]])] if known else []),
            _long(", ".join(number(edge) for edge in one["edges"] or [])),
        )
        for one in rows[:_MOST_COLUMNS]
    ]
    told = (["#IV", "#bins", "weight of evidence"] if known else ["#bins"]) + ["upper bounds"]
    heads = ("=column", "=party", *(["event"] if events else []), *told)
    more = f"<p class='soft'>And {len(rows) - _MOST_COLUMNS} more columns.</p>" if len(rows) > _MOST_COLUMNS else ""
    return _table(heads, shown) + more + _each_bin(rows[:_MOST_COLUMNS], events=events)


def _each_bin(rows: Sequence[Mapping[str, Any]], *, events: bool) -> str:
    """Return the bins of columns one by one, to unfold; "" where no labels are known."""
    shown = [
        (
            text(one["feature"]) if at == 0 else "",
            *([text(one["event"])] if events else []),
            text(bin_name(one["edges"], at)),
            f"{each['events'] + each['non_events']:,.0f}",
            f"{each['events']:,.0f}",
            f"{each['non_events']:,.0f}",
            f"{each['woe']:.4f}",
            f"{each['iv']:.4f}",
        )
        for one in rows
        for at, each in enumerate(one["bins"])
    ]
    heads = ("=column", *(["event"] if events else []), "=bin", "#rows", "#events", "#others", "#WOE", "#IV")
    return f"<details><summary>rows of each bin</summary>{_table(heads, shown)}</details>" if shown else ""


# ---------------------------------------------------------------------------------------------------- tables and models


def _tables(report: Mapping[str, Any]) -> str:
    rows = [
        (
            f"<b>{text(one['component'])}</b>",
            text(one["part"]),
            f"{one['rows']:,}",
            f"{one['columns']:,}",
            _long(", ".join(one["names"]) + (", …" if one["columns"] > len(one["names"]) else "")),
        )
        for one in report["tables"]
    ]
    return _table(("=made by", "=part", "#rows", "#columns", "columns"), rows)


def _models(report: Mapping[str, Any]) -> str:
    rows = [
        (
            f"<b>{text(one['version'])}</b>" + (' <span class="soft">deployed</span>' if one["deployed"] else ""),
            text(one["role"]),
            _moment(one["created"]),
            size_text(one["bytes"]),
            text(", ".join(one["components"])),
            text(", ".join(one["tags"])),
        )
        for one in report["models"]
    ]
    return _table(("=version", "role", "=created", "#size", "components", "tags"), rows)


def _approvals(report: Mapping[str, Any]) -> str:
    rows = [(text(one["part"]), text(one["what"]), _moment(one["at"])) for one in report["approvals"]]
    return _table(("=part", "", "=when"), rows)


def _parameters(report: Mapping[str, Any]) -> Iterator[str]:
    for one in report["parameters"]:
        yield f"<h3>{text(one['part'])}</h3>"
        yield _details("parameters of the job", one["job"]) if one["job"] else ""
        for name, each in one["components"].items():
            if not each["runs"]:
                yield f'<p class="soft">{text(name)} does not run here: {text(each["why_not"])}</p>'
            elif each["parameters"]:
                yield _details(name, each["parameters"])


def _details(name: str, value: Any) -> str:
    shown = text(json.dumps(value, indent=2, ensure_ascii=False, default=str))
    return f"<details><summary>{text(name)}</summary><pre>{shown}</pre></details>"


def _versions(report: Mapping[str, Any]) -> str:
    return _table(("", ""), [(text(name), f"<code>{text(one)}</code>") for name, one in report["versions"].items()])


def _foot(report: Mapping[str, Any]) -> str:
    return (
        f"Made by Weft at {_moment(report['made'])}, from the records of party {text(report['party'])} alone: "
        "what other parties keep to themselves is not in it."
    )


# -------------------------------------------------------------------------------------------------------------- inside


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table of cells of HTML, "" without rows. Heads begin with # for numbers, | for bars, = for one line."""
    if not rows:
        return ""
    kinds = [{"#": "n", "|": "bar", "=": "w"}.get(head[:1], "") for head in heads]
    styles = [f' class="{kind}"' if kind else "" for kind in kinds]
    head = "".join(f"<th{style}>{one.lstrip('#|=')}</th>" for style, one in zip(styles, heads, strict=True))
    body = "".join(
        "<tr>" + "".join(f"<td{style}>{cell}</td>" for style, cell in zip(styles, row, strict=True)) + "</tr>"
        for row in rows
    )
    first = f"<thead><tr>{head}</tr></thead>" if any(heads) else ""
    return f'<div class="wide"><table>{first}<tbody>{body}</tbody></table></div>'


def _long(words: str) -> str:
    return f'<span class="soft long">{text(words)}</span>'


def _bytes(nbytes: int) -> str:
    return size_text(nbytes) if nbytes else ""


def _moment(time: float | None) -> str:
    return "" if time is None else datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
