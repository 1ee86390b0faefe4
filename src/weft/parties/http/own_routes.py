"""The routes below `weft/`: what the command line asks of its party, beyond the routes of FATE."""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING, Final

from weft.model.errors import NotFoundError, UsageError
from weft.parties.http.envelope import FileReply, HttpReply
from weft.parties.http.groups import BOTH, FILE, HttpRoute
from weft.parties.http.job_routes import part_of
from weft.parties.http.ports import ModelFilter
from weft.parties.report_page import report_page
from weft.parties.table_index import covers

if TYPE_CHECKING:
    from weft.parties.http.calls import HttpCall
    from weft.parties.http.ports import PartyPorts


def jobs(ports: PartyPorts, call: HttpCall) -> HttpReply:
    """Return a line for each job, newest first."""
    return HttpReply(data=[dict(one) for one in ports.people.overview(call.number("limit", 0), call.text("status"))])


def job(ports: PartyPorts, call: HttpCall) -> HttpReply:
    """Return a job as its party sees it."""
    return HttpReply(data=dict(ports.people.show(call.need("job_id"))))


def log(ports: PartyPorts, call: HttpCall) -> HttpReply:
    """Return the files of the logs of a job at this party, of all its components or one, and whether it still runs."""
    return HttpReply(data=dict(ports.people.logs(call.need("job_id"), call.text("component"), call.text("role"))))


def tables(ports: PartyPorts, call: HttpCall) -> HttpReply:
    """Return the tables of the party, with the parties that they are granted to."""
    granted = ports.tables.grants()
    return HttpReply(
        data=[
            {
                "namespace": one.namespace,
                "name": one.name,
                "rows": one.count,
                "columns": len(one.header),
                "enabled": one.enabled,
                "open": ports.tables.is_open(),
                "granted": sorted(
                    {who for space, name, who in granted if covers(space, name, one.namespace, one.name)}
                ),
            }
            for one in ports.tables.all()
        ]
    )


def metrics(ports: PartyPorts, call: HttpCall) -> HttpReply:
    """Return the metrics of a job at this party, of all its components or one."""
    return HttpReply(data=[dict(one) for one in ports.people.metrics(call.need("job_id"), call.text("component"))])


def models(ports: PartyPorts, call: HttpCall) -> HttpReply:
    """Return the models of the party, newest first, or those of a version."""
    which = ModelFilter(
        model_version=call.text("model_version"), role=call.text("role"), limit=max(call.number("limit", 0), 0)
    )
    return HttpReply(data=[dict(one) for one in ports.people.models(which)])


def report(ports: PartyPorts, call: HttpCall) -> HttpReply | FileReply:
    """Return the page of a job; with `document` what it tells, as JSON."""
    job = call.need("job_id")
    found = dict(ports.people.report(job))
    if call.flag("document"):
        return HttpReply(data=found)
    assert call.scratch is not None
    path = call.scratch / "report.html"
    path.write_text(report_page(found), encoding="utf-8")
    return FileReply(path=path, name=f"job_{job}_party_{ports.party_id}.html", media="text/html; charset=utf-8")


def output(ports: PartyPorts, call: HttpCall) -> FileReply:
    """Return the rows of one table that a component has made at a part, as CSV with a line of names."""
    part, name = part_of(call, component=True), call.need("table")
    tables = {one.name: one for one in ports.tracking.output_tables(part)}
    if name not in tables:
        raise NotFoundError(
            f"component {part.component} of job {part.job_id} has no output {name!r} at this party",
            hint=f"It has {', '.join(tables) or 'none'}.",
        )
    assert call.scratch is not None
    path = call.scratch / "rows.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        lines = csv.writer(file, lineterminator="\n")
        lines.writerow(tables[name].header)
        lines.writerows(ports.tracking.output_rows(part, name, -1))
    return FileReply(path=path, name=f"{part.component}_{name}.csv", media="text/csv; charset=utf-8")


def approve(ports: PartyPorts, call: HttpCall) -> HttpReply:
    """Approve a job of another party, or decline it."""
    reason = call.text("decline")
    if call.body.get("decline") is not None and not any(one.isprintable() and one != " " for one in reason):
        raise UsageError("the reason to decline the job is empty", hint="Give one: the other parties see it.")
    ports.people.approve(call.need("job_id"), reason)
    return HttpReply()


def step(ports: PartyPorts, call: HttpCall) -> HttpReply:
    """Let the next component of a job in single step begin, or all."""
    count = None if call.flag("all") else call.number("count", 1)
    return HttpReply(data={"held": list(ports.people.step(call.need("job_id"), count))})


ROUTES: Final = (
    HttpRoute("weft/jobs", jobs),
    HttpRoute("weft/job", job),
    HttpRoute("weft/log", log),
    HttpRoute("weft/metrics", metrics),
    HttpRoute("weft/models", models),
    HttpRoute("weft/output", output, FILE, BOTH),
    HttpRoute("weft/report", report, FILE, BOTH),
    HttpRoute("weft/tables", tables),
    HttpRoute("weft/approve", approve),
    HttpRoute("weft/step", step),
)
