"""The routes `table/...`: what tables there are, and how they are bound, disabled, read and removed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from weft.model.errors import NotFoundError
from weft.parties.http.calls import HttpCall
from weft.parties.http.columns import table_columns
from weft.parties.http.data_routes import new_table
from weft.parties.http.envelope import FileReply, HttpReply, RetCode, not_offered
from weft.parties.http.groups import BOTH, FILE, HttpRoute, packed
from weft.parties.http.ports import JobFilter, JobPart, PartyPorts

if TYPE_CHECKING:
    from weft.parties.table_index import StoredTable

_PREVIEW: Final = 100
_SEARCHED: Final = 1_000
_PATH_ENGINES: Final = ("PATH", "LOCALFS", "FILE")


def _named(call: HttpCall) -> tuple[str, str]:
    return call.need("namespace"), call.need("table_name", "name")


def info(ports: PartyPorts, call: HttpCall) -> HttpReply:
    """Return what is known of a table; one that is not there has the count 0, as in FATE."""
    namespace, name = _named(call)
    table = ports.tables.find(namespace, name)
    if table is None:
        data = {"table_name": name, "namespace": namespace, "count": 0, "partition": None, "schema": {}}
        return HttpReply(data=data | {"exist": 0, "enable": False})
    return HttpReply(data=table_columns(table))


def list_tables(ports: PartyPorts, call: HttpCall) -> HttpReply:
    """Return all tables, or those of a namespace."""
    return HttpReply(data=[table_columns(one) for one in ports.tables.all(call.text("namespace"))])


def delete(ports: PartyPorts, call: HttpCall) -> HttpReply:
    """Remove a table, by name or as the output of a component."""
    names = [_named(call)] if call.text("namespace") else []
    if not names and call.text("job_id"):
        part = JobPart(call.text("job_id"), call.text("role"), call.text("party_id"), call.text("component_name"))
        names = [(one.namespace, one.table_name) for one in ports.tracking.output_tables(part)]
    gone = []
    for namespace, name in names:
        try:
            ports.tables.delete(namespace, name)
        except NotFoundError:
            continue
        gone.append({"table_name": name, "namespace": namespace})
    if not gone:
        return HttpReply(retcode=RetCode.ARGUMENT_ERROR, retmsg="no find table")  # clients compare this text
    return HttpReply(data=gone[0] if len(gone) == 1 else gone)


def bind(ports: PartyPorts, call: HttpCall) -> HttpReply:
    """Give a name to a file or a folder of the site."""
    engine = call.text("engine").upper()
    if engine not in _PATH_ENGINES:
        return not_offered(
            f"a table of the engine {engine or 'without a name'}",
            f"Bind a file with engine {_PATH_ENGINES[0]} and address.path, or upload the table.",
        )
    address = HttpCall(body=call.mapping("address"))
    table = ports.tables.bind(address.need("path"), new_table(call), id_column=call.text("id_column"))
    return HttpReply(data={"table_name": table.name, "namespace": table.namespace})


def enable(ports: PartyPorts, call: HttpCall) -> HttpReply:
    """Let jobs use a table."""
    return _switch(ports, call, on=True)


def disable(ports: PartyPorts, call: HttpCall) -> HttpReply:
    """Refuse a table to jobs."""
    return _switch(ports, call, on=False)


def _switch(ports: PartyPorts, call: HttpCall, *, on: bool) -> HttpReply:
    namespace, name = _named(call)
    ports.tables.enable(namespace, name, on=on)
    return HttpReply(data={"table_name": name, "namespace": namespace})


def delete_disabled(ports: PartyPorts, call: HttpCall) -> HttpReply:
    """Remove all disabled tables."""
    gone = ports.tables.delete_disabled()
    return HttpReply(data=[{"table_name": one.name, "namespace": one.namespace} for one in gone])


def preview(ports: PartyPorts, call: HttpCall) -> HttpReply:
    """Return the first rows of a table."""
    table = ports.tables.get(*_named(call))
    rows = [list(row) for row in islice(ports.tables.rows(table), _PREVIEW)]
    return HttpReply(
        data=rows, meta={"header": _columns(table), "total": table.count, "names": ["data"], "table_name": table.name}
    )


def _columns(table: StoredTable) -> list[str]:
    return [table.id_name, *table.header]


def download(ports: PartyPorts, call: HttpCall) -> FileReply:
    """Return a table as an archive of a CSV file and what it tells of its columns."""
    table = ports.tables.get(*_named(call))
    assert call.scratch is not None
    rows, about = call.scratch / "table.csv", call.scratch / "table.meta"
    with rows.open("w", encoding="utf-8") as out:
        ports.tables.write_csv(table, out, limit=call.number("limit", -1))
    about.write_text(json.dumps({"header": _columns(table)}, indent=4), encoding="utf-8")
    files = iter([(rows, f"{table.name}.csv".lstrip("/")), (about, f"{table.name}.meta".lstrip("/"))])
    name = f"table_{table.namespace}_{table.name}.tar.gz"
    return FileReply(path=packed(files, call.scratch / "table.tar.gz"), name=name, media="application/gzip")


def update_schema(ports: PartyPorts, call: HttpCall) -> HttpReply:
    """Replace what is known about the columns of a table."""
    namespace, name = _named(call)
    ports.tables.set_meta(namespace, name, call.mapping("schema", "meta"))
    return HttpReply(data={"table_name": name, "namespace": namespace})


def tracking_source(ports: PartyPorts, call: HttpCall) -> HttpReply:
    """Return where a table comes from."""
    table = ports.tables.get(*_named(call))
    source = {"origin": table.bound or "upload", "job_id": table.job_id}
    return HttpReply(data=[{"table_name": table.name, "namespace": table.namespace, **source}])


def tracking_job(ports: PartyPorts, call: HttpCall) -> HttpReply:
    """Return the jobs whose conf names a table, of the latest ones, newest first."""
    namespace, name = _named(call)
    ports.tables.get(namespace, name)
    rows = ports.jobs.query(JobFilter(limit=_SEARCHED))
    found = list(dict.fromkeys(row.job_id for row in rows if _names(row.conf, namespace, name)))
    return HttpReply(data={"count": len(found), "job": found})


def _names(conf: Any, namespace: str, name: str) -> bool:
    """Whether a part of a conf names a table: an object with its name and namespace, at any depth."""
    waiting = [conf]
    while waiting:
        one = waiting.pop()
        if isinstance(one, Mapping):
            if one.get("namespace") == namespace and name in (one.get("name"), one.get("table_name")):
                return True
            waiting += one.values()
        elif isinstance(one, list):
            waiting += one
    return False


def connector(ports: PartyPorts, call: HttpCall) -> HttpReply:
    """Refuse connectors of other storages."""
    return not_offered("a connector of tables", "Bind a file with table/bind, or upload the table with data/upload.")


def anonymous(ports: PartyPorts, call: HttpCall) -> HttpReply:
    """Refuse to migrate anonymous names."""
    return not_offered("table/schema/anonymous/migrate", "Weft makes anonymous names anew in each job.")


ROUTES: Final = (
    HttpRoute("table/table_info", info),
    HttpRoute("table/list", list_tables),
    HttpRoute("table/delete", delete),
    HttpRoute("table/add", bind),
    HttpRoute("table/bind", bind),
    HttpRoute("table/enable", enable),
    HttpRoute("table/disable", disable),
    HttpRoute("table/disable/delete", delete_disabled),
    HttpRoute("table/preview", preview),
    HttpRoute("table/download", download, FILE, BOTH),
    HttpRoute("table/schema/update", update_schema),
    HttpRoute("table/schema/anonymous/migrate", anonymous),
    HttpRoute("table/tracking/source", tracking_source),
    HttpRoute("table/tracking/job", tracking_job),
    HttpRoute("table/connector/create", connector),
    HttpRoute("table/connector/query", connector),
)
