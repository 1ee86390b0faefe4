"""The routes `data/...`: uploads and downloads, which are jobs in FATE and have ended when the answer comes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from weft.model.errors import UsageError
from weft.parties.http.columns import table_schema
from weft.parties.http.envelope import HttpReply, not_offered
from weft.parties.http.groups import UPLOAD as UPLOADS
from weft.parties.http.groups import HttpRoute
from weft.parties.http.job_routes import submitted
from weft.parties.http.ports import PartyPorts, SubmittedJob
from weft.parties.table_index import UPLOAD, TableJob
from weft.parties.tables import NewTable

if TYPE_CHECKING:
    from weft.parties.http.calls import HttpCall

_KEPT: Final = ("file", "head", "partition", "namespace", "table_name", "name", "id_delimiter", "notes", "output_path")
_OTHER: Final = ("extend_sid", "auto_increasing_sid", "with_meta", "meta", "drop")


def new_table(call: HttpCall) -> NewTable:
    """Return what a request asks of a new table."""
    return NewTable(
        namespace=call.need("namespace"),
        name=call.need("table_name", "name"),
        head=call.flag("head", True),
        delimiter=str(call.body.get("id_delimiter") or ","),
        partitions=call.number("partition", call.number("partitions", 1)),
        extend_sid=call.flag("extend_sid"),
        auto_increasing_sid=call.flag("auto_increasing_sid"),
        meta=call.mapping("meta"),
        drop=call.flag("drop") or call.flag("destroy"),
    )


def _stored(ports: PartyPorts, job: TableJob) -> HttpReply:
    """Return the answer to an upload."""
    reply, table = _answer(job), ports.tables.get(job.namespace, job.name)
    return replace(reply, data=reply.data | {"schema": table_schema(table), "columns": list(table.header)})


def _answer(job: TableJob) -> HttpReply:
    data = submitted(SubmittedJob(job_id=job.job_id)) | {"namespace": job.namespace, "table_name": job.name}
    return HttpReply(job_id=job.job_id, data=data | {"count": job.count})


def upload(ports: PartyPorts, call: HttpCall) -> HttpReply:
    """Store a table: of the file in the request, or, with `use_local_data` 0, of a file of the site."""
    new = new_table(call)
    conf: dict[str, Any] = {name: call.body[name] for name in (*_KEPT, *_OTHER) if name in call.body}
    if call.file is not None:
        with call.file.open("rb") as file:
            job = ports.tables.upload(file, new, name=call.file_name or "the file", user=call.user, conf=conf)
        return _stored(ports, job)
    if call.flag("use_local_data", True):
        raise UsageError(
            "the request has no file",
            hint="Send it as multipart/form-data, or set use_local_data to 0 to name a file of the site.",
        )
    return _stored(ports, ports.tables.upload_path(call.need("file"), new, user=call.user, conf=conf))


def download(ports: PartyPorts, call: HttpCall) -> HttpReply:
    """Write a table to a file of the site."""
    conf: dict[str, Any] = {name: call.body[name] for name in _KEPT if name in call.body}
    job = ports.tables.download(
        call.need("namespace"),
        call.need("table_name", "name"),
        call.need("output_path"),
        delimiter=str(call.body.get("delimiter") or ","),
        user=call.user,
        conf=conf,
    )
    return _answer(job)


def history(ports: PartyPorts, call: HttpCall) -> HttpReply:
    """Return the latest uploads whose tables are still there."""
    found = []
    for job in ports.tables.jobs(call.text("job_id"), kind=UPLOAD, limit=call.number("limit", 0)):
        table = ports.tables.find(job.namespace, job.name)
        if table is None:
            continue
        info = {
            "table_name": job.name,
            "namespace": job.namespace,
            "partition": table.partitions,
            "upload_count": job.count,
        }
        notes = job.conf.get("notes", "")
        found.append({job.job_id: {"upload_info": info, "notes": notes, "schema": table_schema(table)}})
    return HttpReply(data=found)


def writer(ports: PartyPorts, call: HttpCall) -> HttpReply:
    """Refuse to write a table to another storage."""
    return not_offered("data/writer", "Write the table to a file with data/download instead.")


ROUTES: Final = (
    HttpRoute("data/upload", upload, UPLOADS),
    HttpRoute("data/download", download),
    HttpRoute("data/upload/history", history),
    HttpRoute("data/writer", writer),
)
