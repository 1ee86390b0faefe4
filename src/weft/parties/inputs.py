"""What a part is given: its description for the process, with the paths of its inputs at this party."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from weft.frontends.federated.components.process import PartTask
from weft.frontends.federated.components.registry import COMPONENTS, no_module
from weft.frontends.federated.components.tables import write_frame
from weft.frontends.federated.schema import (
    ARGS,
    MODEL_LOADER,
    NEED_RUN,
    PIPELINE,
    READER,
    FederatedComponent,
    FederatedJob,
    Party,
)
from weft.model.errors import NotFoundError, PartyRefusedError, UsageError, WeftError

if TYPE_CHECKING:
    from pathlib import Path

    from weft.graph.party_plan import PartyPlan
    from weft.parties.model_store import ModelStore
    from weft.parties.part_folders import PartFolders
    from weft.parties.tables import PartyTables


class InputFinder:
    """Finds the inputs of parts of this party. `me` is its id; `shows_ids` says whether parts may show ids of rows."""

    def __init__(
        self, me: str, folders: PartFolders, models: ModelStore, tables: PartyTables, shows_ids: Callable[[], bool]
    ) -> None:
        self._me, self._folders, self._model_store, self._tables = me, folders, models, tables
        self._shows_ids = shows_ids

    def why_not(self, job: FederatedJob, part: Party) -> str:
        """Return why a part cannot run here, "" if it can: see `check`."""
        try:
            self.check(job, part)
        except WeftError as error:
            return f"{error.message}. {error.hint}" if error.hint else error.message
        return ""

    def check(self, job: FederatedJob, part: Party) -> None:
        """Check that a part can run here. UsageError: there is no such module.

        NotFoundError, PartyRefusedError: a table is missing, disabled, or not granted.
        """
        plan = plan_of(job, part)
        for name, component in job.dsl.components.items():
            if not plan.components[name].runs:
                continue
            if component.module not in COMPONENTS:
                raise UsageError(
                    f"{name}: {no_module(component.module)}",
                    hint=f"There are: {', '.join(COMPONENTS)}.",
                )
            for namespace, table in tables_of(component, plan):
                self._tables.usable(namespace, table, self._asks(job))

    def task(self, id: str, job: FederatedJob, part: Party, component: str, folder: Path) -> dict[str, Any]:
        """Return the fields of a `PartTask` that depend on the job. WeftError: an input is missing."""
        one, plan = job.dsl.components[component], plan_of(job, part)
        data: dict[str, list[str]] = {}
        made_by: dict[str, list[str]] = {}
        for key, sources in one.data.items():
            found = [
                (source.component, str(path))
                for source in sources
                for path in self._frames(id, job, part, plan, source, folder)
            ]
            made_by[key], data[key] = [name for name, _ in found], [path for _, path in found]
        models = {
            kind: dict(self._models(id, job, part, sources))
            for kind, sources in (("model", one.models), ("isometric_model", one.isometric_models))
            if sources
        }
        parameters = plan.components[component].parameters
        if one.module == MODEL_LOADER and not models:
            models["model"] = self._loaded(part, parameters)
        table = ""
        for namespace, name in tables_of(one, plan) if one.module == READER else ():
            table = str(self._table(namespace, name, job, folder))
        return {
            "job": id,
            "component": component,
            "module": one.module,
            "here": part,
            "parties": {
                role: [each for each in ids if plan_of(job, Party(role, each)).components[component].runs]
                for role, ids in job.conf.roles.items()
            },
            "parameters": parameters,
            "outputs": len(one.outputs.get("data", ())),
            "data": data,
            "sources": made_by,
            "models": models,
            "table": table,
            "seed": secrets.randbits(31),
            "shows_ids": self._shows_ids(),
        }

    def _frames(
        self, id: str, job: FederatedJob, part: Party, plan: PartyPlan, source: Any, folder: Path
    ) -> Iterator[Path]:
        if source.component == ARGS:
            table = plan.tables.get(source.name) or {}
            yield self._table(str(table.get("namespace")), str(table.get("name")), job, folder)
            return
        maker, planned = job.dsl.components[source.component], plan.components[source.component]
        listed = list(maker.outputs.get("data", ()))
        if not planned.runs and planned.parameters.get(NEED_RUN) is False:
            # as in FATE, the rows of a component that a party leaves out pass it unchanged
            before = next(iter(maker.data.values()), ())
            for one in before[:1] if source.name == listed[0] else ():
                yield from self._frames(id, job, part, plan, one, folder)
            return
        with suppress(NotFoundError):
            path = self._folders.current(id, part, source.component) / f"data_{listed.index(source.name)}.arrow"
            if path.is_file():
                yield path

    def _models(self, id: str, job: FederatedJob, part: Party, sources: Any) -> Iterator[tuple[str, str]]:
        for source in sources:
            made_by, component = id, source.component
            if component == PIPELINE:
                made_by = str(job.conf.parameters.get("model_version", ""))
                component = source.name.partition(".")[0]
            file = self._model_store.file(made_by, part, component)
            yield component, str(file or "")  # a part without a model, such as an arbiter, is told: one is elsewhere

    def _loaded(self, part: Party, parameters: Mapping[str, Any]) -> dict[str, str]:
        """Return the model of an earlier job that a loader names, by its component. UsageError: a name is none."""
        version, component = (str(parameters.get(name) or "") for name in ("model_version", "component_name"))
        if not version or not component:
            raise UsageError(f"{MODEL_LOADER} needs model_version and component_name")
        return {component: str(self._model_store.file(version, part, component) or "")}

    def _table(self, namespace: str, name: str, job: FederatedJob, folder: Path) -> Path:
        """Return the file of a table; one that is bound to a file elsewhere is copied."""
        stored = self._tables.usable(namespace, name, self._asks(job))
        if stored.file:
            return self._tables.folder / stored.file
        path = folder / "table.arrow"
        write_frame(path, self._tables.frame(namespace, name, party=self._asks(job)))
        return path

    def _asks(self, job: FederatedJob) -> str:
        return "" if job.conf.initiator.id == self._me else job.conf.initiator.id


def plan_of(job: FederatedJob, part: Party) -> PartyPlan:
    """Return the plan of a part. PartyRefusedError: the job has no such part."""
    found = next((one for one in job.parts if (one.role, one.id) == part), None)
    if found is None:
        raise PartyRefusedError(f"the job has no part for {part}", party=part.id)
    return found


def tables_of(component: FederatedComponent, plan: PartyPlan) -> Iterator[tuple[str, str]]:
    """Yield the tables that a component reads at a part, as namespace and name."""
    if component.module == READER:
        table = plan.components[component.name].parameters.get("table")
        for one in table if isinstance(table, list) else [table]:
            if isinstance(one, Mapping):
                yield str(one.get("namespace", "")), str(one.get("name", ""))
    for sources in component.data.values():
        for source in sources:
            if source.component == ARGS and isinstance(plan.tables.get(source.name), Mapping):
                yield str(plan.tables[source.name].get("namespace")), str(plan.tables[source.name].get("name"))


def task_of(fields: Mapping[str, Any], socket: str, token: str) -> PartTask:
    """Return the description for a process."""
    return PartTask(**fields, socket=socket, token=token)
