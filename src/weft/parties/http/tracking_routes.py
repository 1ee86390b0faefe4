"""The routes `tracking/...`: what the components of a job have made."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from weft.model.errors import NotFoundError, UsageError
from weft.parties.http.envelope import FileReply, HttpReply
from weft.parties.http.groups import BOTH, FILE, HttpRoute, packed
from weft.parties.http.job_routes import json_or_file, part_of

if TYPE_CHECKING:
    from weft.parties.http.calls import HttpCall
    from weft.parties.http.ports import MetricSeries, PartyPorts

_SHOWN: Final = 100
_NOTHING: Final = "no data"
_DETAIL: Final = "predict_detail"
_SPECIAL: Final = re.compile(r'[,"\r\n]')


def job_view(ports: PartyPorts, call: HttpCall) -> HttpReply:
    """Return what a page shows of a job as a whole."""
    return HttpReply(data=dict(ports.tracking.job_view(part_of(call))))


def _points(series: MetricSeries) -> list[list[Any]]:
    return [[key, value] for key, value in series.points]


def metric_all(ports: PartyPorts, call: HttpCall) -> HttpReply:
    """Return all metrics of a component with their points, by namespace and name."""
    found: dict[str, dict[str, Any]] = {}
    for series in ports.tracking.metrics(part_of(call, component=True)):
        one = {"data": _points(series), "meta": dict(series.about)}
        found.setdefault(series.namespace, {})[series.name] = one
    return HttpReply(data=found, retmsg="success" if found else _NOTHING)


def metrics(ports: PartyPorts, call: HttpCall) -> HttpReply:
    """Return the names of the metrics of a component, by namespace."""
    names = ports.tracking.metric_names(part_of(call, component=True))
    found = {namespace: list(one) for namespace, one in names.items()}
    return HttpReply(data=found, retmsg="success" if found else _NOTHING)


def metric_data(ports: PartyPorts, call: HttpCall) -> HttpReply:
    """Return one metric."""
    part = part_of(call, component=True)
    series = ports.tracking.metric(part, call.need("metric_namespace"), call.need("metric_name"))
    if series is None:
        return HttpReply(retmsg=_NOTHING, data=[], meta={})
    return HttpReply(data=_points(series), meta=dict(series.about))


def metric_delete(ports: PartyPorts, call: HttpCall) -> HttpReply:
    """Delete the metrics of a job or of a day; the client of FATE sends the day as `model`."""
    job_id, date = call.text("job_id"), call.text("model", call.text("date"))
    if not job_id and not (len(date) == 8 and date.isascii() and date.isdecimal()):
        raise UsageError("job_id and date are missing", hint="Give job_id, or a date such as 20260131.")
    return HttpReply(data={"deleted": ports.tracking.delete_metrics(job_id, date)})


def parameters(ports: PartyPorts, call: HttpCall) -> HttpReply:
    """Return the parameters of a component at one party."""
    return HttpReply(data=dict(ports.tracking.parameters(part_of(call, component=True))))


def output_model(ports: PartyPorts, call: HttpCall) -> HttpReply:
    """Return the model of a component as JSON."""
    model = ports.tracking.output_model(part_of(call, component=True))
    if model is None:
        return HttpReply(retmsg=_NOTHING, data={})
    return HttpReply(data=dict(model.parameters), meta=dict(model.about))


def output_data(ports: PartyPorts, call: HttpCall) -> HttpReply:
    """Return the first 100 rows of each table of a component."""
    part = part_of(call, component=True)
    tables = ports.tracking.output_tables(part)
    if not tables:
        return HttpReply(retmsg=_NOTHING, data=[])
    rows = [[list(row) for row in ports.tracking.output_rows(part, one.name, _SHOWN)] for one in tables]
    meta = {
        "header": [list(one.header) for one in tables],
        "total": [one.count for one in tables],
        "names": [one.name for one in tables],
    }
    return HttpReply(data=rows, meta=meta)


def output_data_download(ports: PartyPorts, call: HttpCall) -> FileReply:
    """Return the tables of a component as an archive: `NAME.csv`, and `NAME.meta` with the columns.

    Details of predictions have single quotes inside, as in FATE: its client takes the first and the last character
    away, and single quotes for double ones.
    """
    part, limit = part_of(call, component=True), call.number("limit", -1)
    tables = ports.tracking.output_tables(part)
    if not tables or limit == 0:
        raise NotFoundError(
            f"component {part.component} of job {part.job_id} has no rows at this party",
            hint="Ask for a component with a data output that has ended, and a limit other than 0.",
        )
    assert call.scratch is not None
    files = []
    for at, table in enumerate(tables):
        rows, about = call.scratch / f"{at}.csv", call.scratch / f"{at}.meta"
        detail = table.header.index(_DETAIL) if _DETAIL in table.header else -1
        with rows.open("w", encoding="utf-8", newline="") as out:
            if call.flag("head", True) and table.header:
                out.write(_line(table.header, -1))
            out.writelines(_line(row, detail) for row in ports.tracking.output_rows(part, table.name, limit))
        about.write_text(json.dumps({"header": list(table.header)}, indent=4), encoding="utf-8")
        files += [(rows, f"{table.name}.csv"), (about, f"{table.name}.meta")]
    name = f"job_{part.job_id}_{part.component}_{part.role}_{part.party_id}_output_data.tar.gz"
    return FileReply(path=packed(iter(files), call.scratch / "data.tar.gz"), name=name, media="application/gzip")


def _line(values: Iterable[Any], detail: int) -> str:
    """Return a line of CSV; the value at `detail` is in quotes in any case."""
    return ",".join(_quoted(str(one), always=at == detail) for at, one in enumerate(values)) + "\n"


def _quoted(text: str, *, always: bool) -> str:
    if always:
        text = text.replace('"', "'")
    return '"' + text.replace('"', '""') + '"' if always or _SPECIAL.search(text) else text


def output_data_table(ports: PartyPorts, call: HttpCall) -> HttpReply:
    """Return where the tables of a component lie."""
    part = part_of(call, component=True)
    found = [
        {"data_name": one.name, "table_name": one.table_name, "table_namespace": one.namespace}
        | {"namespace": one.namespace}
        for one in ports.tracking.output_tables(part)
    ]
    if not found:
        raise NotFoundError(
            f"component {part.component} of job {part.job_id} has no tables at this party",
            hint="Ask for a component with a data output that has ended.",
        )
    return HttpReply(data=found)


def summary(ports: PartyPorts, call: HttpCall) -> HttpReply | FileReply:
    """Return the summary of a component; with `filename` as a file."""
    part = part_of(call, component=True)
    found = dict(ports.tracking.summary(part))
    if not found:
        raise NotFoundError(
            f"component {part.component} of job {part.job_id} has no summary at this party",
            hint="Ask for a component that has ended, at a party that runs it.",
        )
    return json_or_file(call, found)


def components(ports: PartyPorts, call: HttpCall) -> HttpReply:
    """Return the names of the components of a job."""
    return HttpReply(data={"components": list(ports.tracking.components(call.need("job_id")))})


ROUTES: Final = (
    HttpRoute("tracking/job/data_view", job_view),
    HttpRoute("tracking/component/metric/all", metric_all),
    HttpRoute("tracking/component/metrics", metrics),
    HttpRoute("tracking/component/metric_data", metric_data),
    HttpRoute("tracking/component/metric/delete", metric_delete),
    HttpRoute("tracking/component/parameters", parameters),
    HttpRoute("tracking/component/output/model", output_model),
    HttpRoute("tracking/component/output/data", output_data),
    HttpRoute("tracking/component/output/data/download", output_data_download, FILE, BOTH),
    HttpRoute("tracking/component/output/data/table", output_data_table),
    HttpRoute("tracking/component/summary/download", summary, FILE),
    HttpRoute("tracking/component/list", components),
)
