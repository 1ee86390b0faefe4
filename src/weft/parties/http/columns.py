"""Records of a party with the column names of FATE, which begin with `f_`. Times are in milliseconds there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from weft.parties.http.ports import JobFilter, JobRow, ModelRow, TaskRow
from weft.parties.table_index import UPLOAD, StoredTable, TableJob

if TYPE_CHECKING:
    from weft.parties.tags import ModelTag

LOCAL, LOCAL_PARTY = "local", "0"
"""The role and the party of jobs of tables."""
_MODULES: Final = {UPLOAD: "Upload"}


def milliseconds(seconds: float | None) -> int | None:
    """Return a time in milliseconds since 1970."""
    return None if seconds is None else round(seconds * 1000)


def date_of(seconds: float | None) -> str | None:
    """Return a time in UTC as a text."""
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")


def _number(party: str) -> int | str:
    return int(party) if party.isascii() and party.isdecimal() else party


def roles_of(roles: Mapping[str, Sequence[str]]) -> dict[str, list[int | str]]:
    """Return the parties of each role, as numbers where they are digits."""
    return {role: [_number(party) for party in parties] for role, parties in roles.items()}


def _times(created: float, updated: float, started: float | None, ended: float | None) -> dict[str, Any]:
    elapsed = None if started is None or ended is None else milliseconds(ended - started)
    return {
        "f_create_time": milliseconds(created),
        "f_create_date": date_of(created),
        "f_update_time": milliseconds(updated),
        "f_update_date": date_of(updated),
        "f_start_time": milliseconds(started),
        "f_start_date": date_of(started),
        "f_end_time": milliseconds(ended),
        "f_end_date": date_of(ended),
        "f_elapsed": elapsed,
    }


def job_columns(row: JobRow) -> dict[str, Any]:
    """Return a job as a row of `t_job`."""
    return {
        "f_job_id": row.job_id,
        "f_name": row.name,
        "f_description": row.notes,
        "f_tag": row.tag,
        "f_user": row.user,
        "f_role": row.role,
        "f_party_id": row.party_id,
        "f_roles": roles_of(row.roles),
        "f_initiator_role": row.initiator_role,
        "f_initiator_party_id": row.initiator_party_id,
        "f_is_initiator": row.is_initiator,
        "f_dsl": dict(row.dsl),
        "f_runtime_conf": dict(row.conf),
        "f_runtime_conf_on_party": dict(row.conf_on_party),
        "f_train_runtime_conf": dict(row.train_conf),
        "f_status": row.status,
        "f_progress": row.progress,
        "f_cores": row.cores,
        "f_status_reason": row.reason,
        "f_error_report": row.error,
        **_times(row.created_at, row.updated_at, row.started_at, row.ended_at),
    }


def task_columns(row: TaskRow) -> dict[str, Any]:
    """Return a task as a row of `t_task`."""
    return {
        "f_job_id": row.job_id,
        "f_component_name": row.component,
        "f_component_module": row.module,
        "f_task_id": row.task_id,
        "f_task_version": row.version,
        "f_role": row.role,
        "f_party_id": row.party_id,
        "f_initiator_role": row.initiator_role,
        "f_initiator_party_id": row.initiator_party_id,
        "f_status": row.status,
        "f_party_status": row.party_status,
        "f_run_on_this_party": row.run_here,
        "f_run_pid": row.pid,
        "f_run_ip": row.host,
        "f_status_reason": row.reason,
        "f_error_report": row.error,
        **_times(row.created_at, row.updated_at, row.started_at, row.ended_at),
    }


def model_columns(row: ModelRow) -> dict[str, Any]:
    """Return a model as a row of `t_machine_learning_model_info`, and with the names of FATE 1.7 and later."""
    found: dict[str, Any] = {
        "model_id": row.model_id,
        "model_version": row.model_version,
        "role": row.role,
        "party_id": row.party_id,
        "roles": roles_of(row.roles),
        "job_id": row.job_id,
        "description": row.description,
        "size": row.nbytes,
        "create_time": milliseconds(row.created_at),
        "create_date": date_of(row.created_at),
        "parent": row.parent,
        "parent_info": {"parent_model_version": row.parent_version} if row.parent_version else {},
        "loaded_times": row.loaded,
        "tags": list(row.tags),
        "services": list(row.services),
    }
    return found | {f"f_{name}": value for name, value in found.items()} | dict(row.detail)


def tag_columns(tag: ModelTag) -> dict[str, Any]:
    """Return a tag as FATE tells it."""
    return {
        "name": tag.name,
        "description": tag.description,
        "create_date": date_of(tag.created_at),
        "model_num": len(tag.versions),
    }


def table_schema(table: StoredTable) -> dict[str, Any]:
    """Return the columns of a table and the name of its id as FATE tells them."""
    return {"header": ",".join(table.header) if table.head else "", "sid": table.id_name}


def table_columns(table: StoredTable) -> dict[str, Any]:
    """Return what `table_info` tells of a table."""
    schema = table_schema(table)
    if table.meta:
        schema["meta"] = dict(table.meta)
    return {
        "table_name": table.name,
        "namespace": table.namespace,
        "count": table.count,
        "partition": table.partitions,
        "schema": schema,
        "exist": 1,
        "enable": table.enabled,
        "origin": "bind" if table.bound else "upload",
        "create_date": date_of(table.created_at),
    }


# ----------------------------------------------------------------------------------------------------- jobs of tables


def component_of(job: TableJob) -> str:
    """Return the one component of a job of a table."""
    return f"{job.kind}_0"


def table_job_dsl(job: TableJob) -> dict[str, Any]:
    """Return the DSL that FATE would have made for a job of a table."""
    return {"components": {component_of(job): {"module": _MODULES.get(job.kind, "Download")}}}


def table_job_conf(job: TableJob) -> dict[str, Any]:
    """Return the conf that FATE would have made for a job of a table."""
    return {
        "initiator": {"role": LOCAL, "party_id": 0},
        "role": {LOCAL: [0]},
        "dsl_version": 2,
        "job_parameters": {"common": {}},
        "component_parameters": {"role": {LOCAL: {"0": {component_of(job): dict(job.conf)}}}},
    }


def table_job_row(job: TableJob) -> JobRow:
    """Return a job of a table as a job of the party: role local, party 0."""
    return JobRow(
        job_id=job.job_id,
        role=LOCAL,
        party_id=LOCAL_PARTY,
        status="success",
        progress=100,
        name=job.kind,
        user=job.user,
        roles={LOCAL: [LOCAL_PARTY]},
        initiator_role=LOCAL,
        initiator_party_id=LOCAL_PARTY,
        is_initiator=True,
        dsl=table_job_dsl(job),
        conf=table_job_conf(job),
        conf_on_party=table_job_conf(job),
        created_at=job.started_at,
        updated_at=job.ended_at,
        started_at=job.started_at,
        ended_at=job.ended_at,
    )


def table_task_row(job: TableJob) -> TaskRow:
    """Return the one task of a job of a table."""
    return TaskRow(
        job_id=job.job_id,
        component=component_of(job),
        module=_MODULES.get(job.kind, "Download"),
        task_id=f"{job.job_id}_{component_of(job)}",
        version=0,
        role=LOCAL,
        party_id=LOCAL_PARTY,
        status="success",
        party_status="success",
        initiator_role=LOCAL,
        initiator_party_id=LOCAL_PARTY,
        created_at=job.started_at,
        updated_at=job.ended_at,
        started_at=job.started_at,
        ended_at=job.ended_at,
    )


def table_jobs_match(which: JobFilter) -> bool:
    """Whether jobs of tables can fit a filter."""
    return (
        which.role in ("", LOCAL)
        and which.party_id in ("", LOCAL_PARTY)
        and (not which.status or "success" in which.status)
        and which.initiator_role in ("", LOCAL)
        and which.initiator_party_id in ("", LOCAL_PARTY)
        and which.is_initiator is not False
        and not which.tag
    )
