"""Plans a federated job from its two files."""

from __future__ import annotations

from pathlib import Path

from weft.documents.yaml import MAX_BYTES
from weft.frontends.federated.conf import read_conf
from weft.frontends.federated.dsl import read_dsl
from weft.frontends.federated.expansion import expand
from weft.graph.party_plan import FederatedPlan, PlannedComponent
from weft.model.errors import FederatedFileError, InputLimitError
from weft.store.folders import safe_open


def plan_federated(conf: str, dsl: str) -> FederatedPlan:
    """Return the plan of a conf and a DSL, by their paths.

    NotFoundError, ForbiddenError: there is no such file. FederatedFileError, InputLimitError: a file is wrong; all its
    mistakes are told.
    """
    wishes = read_conf(_text(conf), conf)
    job = expand(read_dsl(_text(dsl), dsl, version=wishes.version, mode=wishes.job_type), wishes, conf)
    modules = {name: one.module for name, one in job.dsl.components.items()}
    components = (PlannedComponent(name, modules[name], tuple(job.dsl.upstream[name])) for name in job.dsl.order)
    return FederatedPlan(wishes.job_type, str(wishes.initiator), tuple(components), tuple(job.parts), tuple(job.notes))


def _text(path: str) -> str:
    where = Path(path)
    with safe_open(where.parent, where.name, mode="rb") as file:
        data: bytes = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise InputLimitError(f"{path} has more than {MAX_BYTES:,} bytes", hint="Split the job.")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise FederatedFileError(f"byte {error.start} is not UTF-8", file=path, hint="Save it as UTF-8.") from None
