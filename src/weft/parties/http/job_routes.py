"""The routes `job/...`: submit, stop, rerun, query, tasks, files, logs, the queue."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from weft.model.errors import NotFoundError, UsageError
from weft.parties.http.columns import (
    job_columns,
    table_job_conf,
    table_job_dsl,
    table_job_row,
    table_jobs_match,
    table_task_row,
    task_columns,
)
from weft.parties.http.envelope import FileReply, HttpReply, RetCode
from weft.parties.http.groups import BOTH, FILE, HttpRoute, packed
from weft.parties.http.ports import JobFilter, JobPart, JobRow, PartyPorts, SubmittedJob, TaskRow

if TYPE_CHECKING:
    from weft.parties.http.calls import HttpCall
    from weft.parties.table_index import TableJob

_STOPPED: Final = ("canceled", "failed", "timeout")
_MOST_LISTED: Final = 10_000


def filter_of(call: HttpCall, *, limit: int = 0) -> JobFilter:
    """Return the filter that a request asks for; columns that a party does not have do not filter, as in FATE."""
    status = call.body.get("status")
    statuses = status if isinstance(status, list) else [status] if status else []
    return JobFilter(
        job_id=call.text("job_id"),
        role=call.text("role"),
        party_id=call.text("party_id"),
        component=call.text("component_name"),
        task_id=call.text("task_id"),
        status=[str(one) for one in statuses],
        tag=call.text("tag"),
        user=call.text("user"),
        initiator_role=call.text("initiator_role"),
        initiator_party_id=call.text("initiator_party_id"),
        is_initiator=call.flag("is_initiator") if call.text("is_initiator") else None,
        limit=limit,
    )


def part_of(call: HttpCall, *, component: bool = False) -> JobPart:
    """Return the part of a job that a request names; without role and party the initiator's is meant."""
    return JobPart(
        call.need("job_id"),
        call.text("role"),
        call.text("party_id"),
        call.need("component_name") if component else call.text("component_name"),
    )


def submitted(job: SubmittedJob) -> dict[str, Any]:
    """Return what `job/submit` and `data/upload` tell of a new job."""
    return {
        "job_id": job.job_id,
        "model_info": {"model_id": job.model_id, "model_version": job.model_version} if job.model_id else {},
        "logs_directory": job.logs_directory,
        "board_url": job.board_url,
        "job_dsl_path": job.dsl_path,
        "job_runtime_conf_path": job.conf_path,
        "job_runtime_conf_on_party_path": job.conf_on_party_path,
        "train_runtime_conf_path": job.train_conf_path,
        "pipeline_dsl_path": job.pipeline_dsl_path,
        "code": 0,
        "message": "success",
    }


def submit(ports: PartyPorts, call: HttpCall) -> HttpReply:
    """Submit a job: `job_runtime_conf` and `job_dsl`; a prediction may come without a DSL."""
    conf = call.mapping("job_runtime_conf", "runtime_conf")
    if not conf:
        raise UsageError("job_runtime_conf is missing", hint="Give the conf of the job as job_runtime_conf.")
    job = ports.jobs.submit(call.mapping("job_dsl", "dsl"), conf, call.user)
    return HttpReply(job_id=job.job_id, data=submitted(job))


def stop(ports: PartyPorts, call: HttpCall) -> HttpReply:
    """Stop a job."""
    status = call.text("stop_status", _STOPPED[0])
    if status not in _STOPPED:
        raise UsageError(f"stop_status is {status!r}", hint=f"Give one of {', '.join(_STOPPED)}.")
    ports.jobs.stop(call.need("job_id"), status)
    return HttpReply(retmsg="success")


def rerun(ports: PartyPorts, call: HttpCall) -> HttpReply:
    """Run components of a job again."""
    ports.jobs.rerun(call.need("job_id"), call.names("component_name"), force=call.flag("force"))
    return HttpReply(retmsg="success")


def _table_jobs(ports: PartyPorts, which: JobFilter) -> list[TableJob]:
    if not table_jobs_match(which):
        return []
    return [
        job for job in ports.tables.jobs(which.job_id, limit=which.limit + which.skip) if which.user in ("", job.user)
    ]


def _count_table_jobs(ports: PartyPorts, which: JobFilter) -> int:
    if which.job_id or which.user or not table_jobs_match(which):
        return len(_table_jobs(ports, replace(which, limit=0, skip=0)))
    return ports.tables.count_jobs()


def _jobs(ports: PartyPorts, which: JobFilter) -> list[JobRow]:
    """Return jobs of both kinds, the newest first."""
    found = [table_job_row(job) for job in _table_jobs(ports, which)]
    if not (found and which.job_id):
        found += ports.jobs.query(replace(which, limit=which.limit + which.skip, skip=0))
    found.sort(key=lambda row: (row.created_at, row.job_id), reverse=True)
    return _page(found, which)


def _tasks(ports: PartyPorts, which: JobFilter) -> list[TaskRow]:
    found = [table_task_row(job) for job in _table_jobs(ports, which)]
    found = [row for row in found if which.component in ("", row.component) and which.task_id in ("", row.task_id)]
    if not (found and which.job_id):
        found += ports.jobs.tasks(replace(which, limit=which.limit + which.skip, skip=0))
    return _page(found, which)


def _page(rows: Sequence[Any], which: JobFilter) -> list[Any]:
    return list(rows[which.skip : which.skip + which.limit] if which.limit else rows[which.skip :])


def query(ports: PartyPorts, call: HttpCall) -> HttpReply:
    """Return jobs by any column; none is a success."""
    found = [job_columns(row) for row in _jobs(ports, filter_of(call, limit=_MOST_LISTED))]
    return HttpReply(data=found, retmsg="success" if found else "no job could be found")


def list_jobs(ports: PartyPorts, call: HttpCall) -> HttpReply:
    """Return the newest jobs, page by page."""
    limit = min(max(call.number("limit", 0), 0), _MOST_LISTED)
    page = max(call.number("page", 1), 1)
    which = replace(filter_of(call, limit=limit), skip=limit * (page - 1))
    rows = [job_columns(row) for row in _jobs(ports, which)]
    total = ports.jobs.count(which) + _count_table_jobs(ports, which)
    return HttpReply(data={"jobs": rows, "count": total})


def tasks(ports: PartyPorts, call: HttpCall) -> HttpReply:
    """Return tasks by any column."""
    found = [task_columns(row) for row in _tasks(ports, filter_of(call, limit=_MOST_LISTED))]
    if not found:
        return HttpReply(retcode=RetCode.ARGUMENT_ERROR, retmsg="no task could be found")
    return HttpReply(data=found)


def list_tasks(ports: PartyPorts, call: HttpCall) -> HttpReply:
    """Return the newest tasks, page by page."""
    limit = min(max(call.number("limit", 0), 0), _MOST_LISTED)
    page = max(call.number("page", 1), 1)
    which = replace(filter_of(call, limit=limit), skip=limit * (page - 1))
    rows = [task_columns(row) for row in _tasks(ports, which)]
    total = ports.jobs.count(which, tasks=True) + _count_table_jobs(ports, which)
    return HttpReply(data={"tasks": rows, "count": total})


def update(ports: PartyPorts, call: HttpCall) -> HttpReply:
    """Change the notes of a job."""
    ports.jobs.note(part_of(call), call.text("notes"))
    return HttpReply()


def config(ports: PartyPorts, call: HttpCall) -> HttpReply:
    """Return the files of a job."""
    part = part_of(call)
    if own := ports.tables.jobs(part.job_id):
        empty: dict[str, Any] = {"train_runtime_conf": {}, "model_info": {}}
        dsl, conf = table_job_dsl(own[0]), table_job_conf(own[0])
        return HttpReply(data={"job_id": part.job_id, "dsl": dsl, "runtime_conf": conf, **empty})
    found = ports.jobs.config(part)
    return HttpReply(
        data={
            "job_id": found.job_id,
            "dsl": dict(found.dsl),
            "runtime_conf": dict(found.conf),
            "runtime_conf_on_party": dict(found.conf_on_party),
            "train_runtime_conf": dict(found.train_conf),
            "model_info": {"model_id": found.model_id, "model_version": found.model_version},
        }
    )


def log(ports: PartyPorts, call: HttpCall) -> FileReply:
    """Return the logs of a job as an archive."""
    job_id = call.need("job_id")
    folder = ports.jobs.log_folder(job_id)
    if not folder.is_dir():
        raise NotFoundError(f"job {job_id} has no logs here", hint="Only parties that ran a part of it have logs.")
    assert call.scratch is not None
    name = f"job_{job_id}_log.tar.gz"
    files: Iterator[tuple[Path, str]] = ((path, str(path.relative_to(folder))) for path in sorted(folder.rglob("*")))
    return FileReply(path=packed(files, call.scratch / name), name=name, media="application/gzip")


def log_path(ports: PartyPorts, call: HttpCall) -> HttpReply:
    """Return the folder of the logs of a job, on the server."""
    return HttpReply(data={"logs_directory": str(ports.jobs.log_folder(call.need("job_id")))})


def url(ports: PartyPorts, call: HttpCall) -> HttpReply:
    """Return the address of the page of a job; there is none in FATE's form."""
    rows = ports.jobs.query(replace(filter_of(call), limit=1))
    if not rows:
        raise NotFoundError(f"there is no job {call.text('job_id')}", hint="List the jobs: flow job list")
    return HttpReply(data={"board_url": [""] * len(rows)})


def data_view(ports: PartyPorts, call: HttpCall) -> HttpReply:
    """Return the tables that the components of a job have made."""
    found = [
        {"f_job_id": call.text("job_id"), "f_data_name": one.name, "f_table_name": one.table_name}
        | {"f_table_namespace": one.namespace, "f_table_count": one.count}
        for one in ports.tracking.output_tables(part_of(call))
    ]
    if not found:
        return HttpReply(retcode=RetCode.ARGUMENT_ERROR, retmsg="the job has made no tables at this party")
    return HttpReply(data=found)


def clean(ports: PartyPorts, call: HttpCall) -> HttpReply:
    """Remove what a job has made."""
    ports.jobs.clean(part_of(call))
    return HttpReply()


def clean_queue(ports: PartyPorts, call: HttpCall) -> HttpReply:
    """Cancel all waiting jobs of this party."""
    return HttpReply(data={job: why or 0 for job, why in ports.jobs.clean_queue().items()})


def generate_dsl(ports: PartyPorts, call: HttpCall) -> HttpReply | FileReply:
    """Make the DSL of a prediction; with `filename` as a file."""
    components = call.names("cpn_str")
    if not components:
        raise UsageError("cpn_str is missing", hint='Give the components to keep: "a,b,c"')
    train = call.mapping("train_dsl")
    dsl = dict(ports.jobs.predict_dsl(train, components, call.text("version", "2")))
    return json_or_file(call, dsl)


def json_or_file(call: HttpCall, value: Any) -> HttpReply | FileReply:
    """Return a value in the answer, or as a file where the request gives a `filename`."""
    name = call.text("filename")
    if not name:
        return HttpReply(data=value)
    assert call.scratch is not None
    path = call.scratch / "answer.json"
    path.write_text(json.dumps(value, indent=4), encoding="utf-8")
    return FileReply(path=path, name=Path(name).name, media="application/json")


def update_parameters(ports: PartyPorts, call: HttpCall) -> HttpReply:
    """Change parameters of a job that has ended, before a rerun."""
    found = ports.jobs.update(
        call.need("job_id"),
        call.mapping("job_parameters") or None,
        call.mapping("component_parameters") or None,
    )
    return HttpReply(data=dict(found))


ROUTES: Final = (
    HttpRoute("job/submit", submit),
    HttpRoute("job/stop", stop),
    HttpRoute("job/rerun", rerun),
    HttpRoute("job/query", query),
    HttpRoute("job/list/job", list_jobs),
    HttpRoute("job/task/query", tasks),
    HttpRoute("job/list/task", list_tasks),
    HttpRoute("job/update", update),
    HttpRoute("job/config", config),
    HttpRoute("job/log", log, FILE, BOTH),
    HttpRoute("job/log/download", log, FILE, BOTH),
    HttpRoute("job/log/path", log_path),
    HttpRoute("job/url/get", url),
    HttpRoute("job/data/view/query", data_view),
    HttpRoute("job/clean", clean),
    HttpRoute("job/clean/queue", clean_queue),
    HttpRoute("job/dsl/generate", generate_dsl, FILE),
    HttpRoute("job/parameter/update", update_parameters),
)
