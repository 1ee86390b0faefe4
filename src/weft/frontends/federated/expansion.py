"""Expands a DSL and a conf for each party: its job parameters, and which components it runs with which parameters.

Parameters common to all come first, then those of the party in file order; groups are merged member by member. In
version 1 each leaf of a role's parameters is a list with one value for each party. A component with a model as input
has the parameters of the component that made it, unless it goes on training. Source: FATE 1.5 `ParameterUtil`, by the
behaviour of its documents.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from weft.documents.problems import FilePosition, Problems, show
from weft.frontends.federated.conf import JOB_PARAMETERS, uneven
from weft.frontends.federated.documents import CONF_FILE, hint_of
from weft.frontends.federated.modules import ARBITER, Module, Parameters, modules
from weft.frontends.federated.parameter_types import parameter_fault
from weft.frontends.federated.schema import (
    ARGS,
    MODEL_LOADER,
    NEED_RUN,
    PREDICT,
    READER,
    ROOTS,
    Conf,
    Dsl,
    FederatedJob,
    OwnParameters,
    Value,
)
from weft.graph.party_plan import PartyPlan, PlannedPart
from weft.model.suggestions import did_you_mean

_PLACES: Final = ("work_mode", "backend", "federated_mode", "computing_engine", "federation_engine", "storage_engine")
_ENGINES: Final = ("eggroll_run", "spark_run", "rabbitmq_run", "pulsar_run", "spark_submit_config", "engines_address")
_AFFINE: Final = "iterativeaffine"
_MOST_NAMED: Final = 5


def expand(dsl: Dsl, conf: Conf, file: str) -> FederatedJob:
    """Return the job for each party. `file` is that of the conf.

    FederatedFileError: a parameter is unknown, a list has a wrong length, a table or a component is missing; all
    mistakes are told.
    """
    problems = Problems(file, CONF_FILE)
    known = modules()
    _check_tables(dsl, conf, problems)
    parts = []
    for role, ids in conf.roles.items():
        for index, id in enumerate(ids):
            found: dict[str, PlannedPart] = {}
            for name in dsl.order:
                found[name] = _component(
                    dsl, conf, name, known[dsl.components[name].module], role, index, found, problems
                )
            parts.append(
                PartyPlan(
                    role=role,
                    id=id,
                    job_parameters=job_parameters(conf, role, index),
                    components=found,
                    tables={
                        key: values[index] for key, values in conf.tables.get(role, {}).items() if index < len(values)
                    },
                )
            )
    _check_readers(dsl, conf, parts, problems)
    _check_roles(dsl, conf, parts, problems)
    problems.raise_if_any()
    return FederatedJob(dsl, conf, parts, tuple(_notes(dsl, conf, parts)))


def job_parameters(conf: Conf, role: str, index: int) -> dict[str, Any]:
    """Return the parameters of a job at one party; those that no version of FATE takes are left out."""
    found = dict(conf.parameters)
    for own, indices, given in conf.own_parameters:
        if own == role and index in indices:
            found = merged(found, given)
    return {key: value for key, value in found.items() if key in JOB_PARAMETERS}


def merged(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """Return `first` with what `second` says; objects are merged member by member."""
    found = dict(first)
    for key, value in second.items():
        old = found.get(key)
        found[key] = merged(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return found


def _component(
    dsl: Dsl,
    conf: Conf,
    name: str,
    module: Module,
    role: str,
    index: int,
    before: Mapping[str, PlannedPart],
    problems: Problems,
) -> PlannedPart:
    component = dsl.components[name]
    if role not in module.roles:
        return PlannedPart(runs=False, why_not=f"{module.name} has no part for {role}", parameters={})
    source = next((one.component for one in component.models if one.component not in ROOTS), "")
    if source and "train_data" not in component.data and dsl.components[source].module != MODEL_LOADER:
        made = before[source]
        return PlannedPart(made.runs, made.why_not and f"{source} does not run there", made.parameters)
    merger = _Merger(conf, name, module, problems)
    found: dict[str, Any] = {}
    if name in conf.common:
        merger.merge(found, conf.common[name], module.parameters, merger.common_path)
    for own in conf.own:
        if own.role == role and index in own.indices and name in own.components:
            listed = len(conf.roles[role]) if conf.version == 1 else 0
            path = merger.own_path(own)
            merger.merge(found, own.components[name], module.parameters, path, role=role, index=index, listed=listed)
    runs = found.get(NEED_RUN) is not False
    return PlannedPart(runs, "" if runs else "need_run is false", found)


class _Merger:
    """Merges the parameters of a component, and checks their names and types."""

    def __init__(self, conf: Conf, component: str, module: Module, problems: Problems) -> None:
        self._conf, self._name, self._module, self._problems = conf, component, module, problems
        # Parts of a predict conf of version 1 are those of the training, whose components may have been left out.
        self._skips = conf.version == 1 and conf.job_type == PREDICT

    @property
    def common_path(self) -> str:
        """The path of the parameters that all parties have."""
        first = "component_parameters.common" if self._conf.version == 2 else "algorithm_parameters"
        return f"{first}.{self._name}"

    def own_path(self, own: OwnParameters) -> str:
        """Return the path of the parameters of some parties of a role."""
        if self._conf.version == 1:
            return f"role_parameters.{own.role}.{self._name}"
        return f"component_parameters.role.{own.role}.{own.key}.{self._name}"

    def merge(
        self,
        into: dict[str, Any],
        given: Value,
        known: Mapping[str, Parameters | None],
        path: str,
        *,
        role: str = "",
        index: int = 0,
        listed: int = 0,
        group: str = "",
    ) -> None:
        """Merge parameters, those of a `group` or of the module, into those that are there.

        With `listed`, leaves are lists of so many values.
        """
        if given.fields is None:
            self._problems.add(given.mark, path, "must be an object")
            return
        for key, value in given.fields.items():
            if key not in known:
                if not self._skips:
                    message = f"{self._module.name} has no parameter {show(key)}"
                    self._problems.add(value.mark, f"{path}.{key}", message, hint_of(key, sorted(known)))
                continue
            below = known[key]
            if below is not None and value.fields is not None:
                inner = into.get(key)
                inner = dict(inner) if isinstance(inner, dict) else {}
                at = f"{path}.{key}"
                self.merge(inner, value, below.names, at, role=role, index=index, listed=listed, group=key)
                into[key] = inner
            elif not listed:
                into[key] = value.plain
            elif not isinstance(value.plain, list):
                hint = "Parameters of a role in version 1 have one value for each party: put it in brackets"
                self._problems.add(value.mark, f"{path}.{key}", "must be a list", hint)
            elif len(value.plain) != listed:
                self._problems.add(value.mark, f"{path}.{key}", *uneven(len(value.plain), role, listed))
            else:
                into[key] = value.plain[index]
            fault = parameter_fault(group or self._module.name, key, into.get(key), is_group=below is not None)
            if fault:
                self._problems.add(value.mark, f"{path}.{key}", fault)


# ------------------------------------------------------------------------------------------------------------- checks


def _check_tables(dsl: Dsl, conf: Conf, problems: Problems) -> None:
    """Check that the tables of version 1 that components read are there."""
    wanted = {
        one.name: component
        for component in dsl.components.values()
        for sources in component.data.values()
        for one in sources
        if one.component == ARGS
    }
    known = {key for tables in conf.tables.values() for key in tables}
    for key, component in wanted.items():
        if key not in known:
            message = f"{component.name} reads args.{key}, and no role has this table"
            hint = f'Write: "args": {{"data": {{"{key}": [{{"name": ..., "namespace": ...}}]}}}}'
            problems.add(FilePosition(1, 1), "role_parameters", message, hint)


def _check_readers(dsl: Dsl, conf: Conf, parts: Sequence[PartyPlan], problems: Problems) -> None:
    """Check that each party that reads has a table; in a prediction the training may have named it."""
    if conf.job_type == PREDICT:
        return
    for component in dsl.components.values():
        if component.module != READER:
            continue
        lacking = [part for part in parts if _lacks_table(part.components[component.name])]
        if lacking:
            more = f" and {len(lacking) - _MOST_NAMED} more" if len(lacking) > _MOST_NAMED else ""
            message = f"{component.name} has no table at {', '.join(one.name for one in lacking[:_MOST_NAMED])}{more}"
            hint = 'Write: "table": {"name": ..., "namespace": ...}'
            problems.add(FilePosition(1, 1), f"component_parameters.role.{lacking[0].role}", message, hint)


def _check_roles(dsl: Dsl, conf: Conf, parts: Sequence[PartyPlan], problems: Problems) -> None:
    """Check that the job has the roles that its components need; a prediction has those of its training."""
    learning = [one for one in dsl.components.values() if not one.models or "train_data" in one.data]
    for component in learning if conf.job_type != PREDICT else ():
        lacking = [role for role in modules()[component.module].needs if not conf.roles.get(role)]
        if lacking and any(part.components[component.name].runs for part in parts):
            message = f"{component.name} ({component.module}) needs a party for {' and '.join(lacking)}"
            problems.add(FilePosition(1, 1), "role", message, f'Write: "{lacking[0]}": [PARTY]')


def _lacks_table(part: PlannedPart) -> bool:
    return part.runs and not (part.parameters.get("table") or part.parameters.get("name"))


def _notes(dsl: Dsl, conf: Conf, parts: Sequence[PartyPlan]) -> Iterator[str]:
    """Yield what has no effect, and what is taken otherwise than FATE takes it."""
    yield from dsl.notes
    yield from conf.notes
    for name in dict.fromkeys([*conf.common, *(name for one in conf.own for name in one.components)]):
        if name not in dsl.components and conf.job_type != PREDICT:
            meant = did_you_mean(name, dsl.components)
            yield f"parameters of {name} have no effect: the DSL has no such component. {meant}".rstrip()
    given = {key for part in parts for key in part.job_parameters}
    places = [key for key in (*_PLACES, *_ENGINES) if key in given]
    if places:
        yield f"without effect, since they choose engines of FATE, and Weft has its own: {', '.join(places)}"
    every = set(conf.parameters) | {key for _, _, own in conf.own_parameters for key in own}
    if dropped := sorted(every - JOB_PARAMETERS):
        yield f"no version of FATE takes these job parameters, and they have no effect: {', '.join(dropped)}"
    affine = [name for name in dsl.order if any(_uses_affine(part.components[name].parameters) for part in parts)]
    if affine:
        yield f"iterativeAffine is not secure: {', '.join(affine)} will encrypt with Paillier"
    keyed = [name for name, one in dsl.components.items() if modules()[one.module].keyed]
    for id in conf.roles.get(ARBITER, ()) if keyed else ():
        if others := [role for role, ids in conf.roles.items() if role != ARBITER and id in ids]:
            yield (
                f"party {id} is arbiter and {' and '.join(others)}: it has the key that decrypts what other parties "
                f"send in {', '.join(keyed)}"
            )


def _uses_affine(parameters: Mapping[str, Any]) -> bool:
    method = parameters.get("encrypt_param")
    return isinstance(method, Mapping) and str(method.get("method", "")).lower() == _AFFINE
