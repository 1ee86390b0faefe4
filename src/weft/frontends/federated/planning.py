"""Reads a federated job from its two files, and plans it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from weft.documents.yaml import MAX_BYTES
from weft.frontends.federated.components.registry import COMPONENTS, no_module
from weft.frontends.federated.conf import read_conf
from weft.frontends.federated.dsl import read_dsl
from weft.frontends.federated.expansion import expand
from weft.graph.party_plan import FederatedPlan, PlannedComponent
from weft.model.errors import FederatedFileError, InputLimitError
from weft.store.folders import safe_open

if TYPE_CHECKING:
    from weft.frontends.federated.schema import FederatedJob


def plan_federated(conf: str, dsl: str) -> FederatedPlan:
    """Return the plan of a conf and a DSL, by their paths.

    NotFoundError, ForbiddenError: there is no such file. FederatedFileError, InputLimitError: a file is wrong; all its
    mistakes are told.
    """
    job = read_job(read_text(Path(dsl)), read_text(Path(conf)), dsl_name=dsl, conf_name=conf)
    wishes = job.conf
    modules = {name: one.module for name, one in job.dsl.components.items()}
    components = tuple(
        PlannedComponent(name, modules[name], tuple(job.dsl.upstream[name]), modules[name] in COMPONENTS)
        for name in job.dsl.order
    )
    notes = [*job.notes, *(f"{one.name} cannot run: {no_module(one.module)}" for one in components if not one.exists)]
    return FederatedPlan(wishes.job_type, str(wishes.initiator), components, tuple(job.parts), tuple(notes))


def read_job(dsl: str, conf: str, *, dsl_name: str = "", conf_name: str = "") -> FederatedJob:
    """Return the job of a DSL and a conf, by their texts.

    Messages have the names, and the places in the texts; those of texts without a name have the paths of fields alone.

    FederatedFileError, InputLimitError: a text is wrong; all its mistakes are told.
    """
    wishes = read_conf(conf, conf_name)
    return expand(read_dsl(dsl, dsl_name, version=wishes.version, mode=wishes.job_type), wishes, conf_name)


def read_text(path: Path, name: str = "") -> str:
    """Return the text of a file; `name` stands in messages.

    NotFoundError, ForbiddenError: there is no such file. InputLimitError, FederatedFileError: it is none of a job.
    """
    name = name or str(path)
    with safe_open(path.parent, path.name, mode="rb") as file:
        data: bytes = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise InputLimitError(f"{name} has more than {MAX_BYTES:,} bytes", hint="Split the job.")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise FederatedFileError(f"byte {error.start} is not UTF-8", file=name, hint="Save it as UTF-8.") from None
