"""Reads a conf: who takes part in which role, and the parameters of the job and of its components, version 1 or 2.

Source: FATE 1.5 to 1.11 (`doc/dsl_conf_v1_setting_guide`, `dsl_conf_v2_setting_guide`, `RunParameters`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from weft.documents import yaml
from weft.documents.problems import FilePosition, Problems, show
from weft.frontends.federated.documents import CONF_FILE, SWAPPED, ObjectReader, hint_of, is_null, load, plain, value_of
from weft.frontends.federated.modules import ROLES
from weft.frontends.federated.parameter_types import LIMITS, job_parameter_fault, limit_fault
from weft.frontends.federated.schema import ARGS, PREDICT, TRAIN, Conf, OwnParameters, Party, Value
from weft.model.suggestions import did_you_mean

_VERSIONS: Final = {1: 1, 2: 2, "1": 1, "2": 2}
_JOB_TYPES: Final = (TRAIN, PREDICT)
_ASSISTANT: Final = "assistant"
_ALL_PARTIES: Final = "all"
_COMPONENT: Final = re.compile(r"[A-Za-z]\w*_\d+")
"""A name of a component as FATE's clients make them."""
_FIELDS: Final = ("dsl_version", "initiator", "role", "job_parameters", "provider", "conf_path", "dsl_path", "local")
_FIELDS_1: Final = ("role_parameters", "algorithm_parameters")
_FIELDS_2: Final = ("component_parameters",)
JOB_PARAMETERS: Final = frozenset(
    {
        "adaptation_parameters",
        "assistant_role",
        "auto_retries",
        "auto_retry_delay",
        "backend",
        "component_limits",
        "computing_engine",
        "computing_partitions",
        "dsl_version",
        "eggroll_run",
        "fail_after",
        "engines_address",
        "federated_mode",
        "federated_status_collect_type",
        "federation_engine",
        "federation_info",
        "inheritance_info",
        "job_type",
        "map_namespace",
        "map_table_name",
        "model_id",
        "model_version",
        "priority",
        "processors_per_node",
        "pulsar_run",
        "rabbitmq_run",
        "run_after",
        "run_only",
        "run_to",
        "single_step",
        "spark_run",
        "spark_submit_config",
        "storage_engine",
        "task_cores",
        "task_parallelism",
        "timeout",
        "trigger_rules",
        "user",
        "work_mode",
    }
)
"""The parameters of jobs that some version of FATE 1.x takes; it drops all others."""


def read_conf(text: str, file: str, *, job_type: str = "") -> Conf:
    """Return a conf. `job_type` stands for that of the file, as for a task of a suite that needs the model of another.

    FederatedFileError: parties, indices or a type are wrong; all mistakes are told.
    """
    problems = Problems(file, CONF_FILE)
    root = ObjectReader(load(text, problems), "", problems, FilePosition(1, 1))
    if "components" in root and "role" not in root:
        root.wrong("components", "this is a DSL, and a conf is expected here", SWAPPED)
        problems.raise_if_any()
    version = _version(root)
    root.only(*_FIELDS, *(_FIELDS_2 if version == 2 else _FIELDS_1))
    roles = _roles(root)
    jobs = root.inside("job_parameters")
    has_common = version == 2 or "common" in jobs or "role" in jobs
    common = jobs.inside("common") if has_common else jobs
    if has_common:
        jobs.only("common", "role")
    parameters = _job_parameters(common)
    job_type = job_type or parameters.get("job_type", TRAIN)
    if job_type not in _JOB_TYPES:
        common.wrong("job_type", f"there is no job type {job_type!r}", hint_of(str(job_type), list(_JOB_TYPES)))
    own_parameters = [
        (role, indices, _job_parameters(reader)) for role, _, indices, reader in _by_party(jobs.inside("role"), roles)
    ]
    shared, own = _version_2(root, roles) if version == 2 else _version_1(root, roles)
    conf = Conf(
        version=version,
        initiator=_initiator(root, roles),
        roles=roles,
        job_type=job_type,
        parameters=parameters,
        own_parameters=own_parameters,
        common=shared,
        own=own,
        tables=_tables(root, roles) if version == 1 else {},
        notes=tuple(_without_index(root.inside("component_parameters").inside("role"), roles)) if version == 2 else (),
    )
    problems.raise_if_any()
    return conf


def job_type_of(conf: Mapping[str, Any]) -> Any:
    """Return the job type that a conf as JSON states; TRAIN if it states none."""
    jobs = conf.get("job_parameters")
    jobs = jobs if isinstance(jobs, Mapping) else {}
    common = jobs.get("common", jobs)
    return (common.get("job_type") if isinstance(common, Mapping) else None) or TRAIN


def version_of(conf: Mapping[str, Any]) -> int:
    """Return the version of a conf as JSON; 2 if it states one that does not exist."""
    return _VERSIONS.get(_stated_version(conf.get), 2)


def _stated_version(value: Callable[[str], Any]) -> Any:
    """Return the version that a conf states, or that its members tell. `value` returns a member, None without it."""
    jobs = value("job_parameters")
    inside = jobs if isinstance(jobs, dict) else {}
    places = (value("dsl_version"), inside.get("dsl_version"), (inside.get("common") or {}).get("dsl_version"))
    return next((one for one in places if one), 1 if value("component_parameters") is None else 2)


def _version(root: ObjectReader) -> int:
    stated = _stated_version(root.value)
    if stated not in _VERSIONS:
        root.wrong("dsl_version", f"there is no version {stated!r}", "There are 1 and 2.")
        return 2
    return _VERSIONS[stated]


def _party_id(node: yaml.Node) -> str:
    """Return a party id, a number or its digits; "" if it is none."""
    value = plain(node)
    text = str(value) if isinstance(value, int | str) and not isinstance(value, bool) else ""
    return text if text.isascii() and text.isdecimal() and len(text) <= 20 else ""


def _no_party_id(node: yaml.Node) -> tuple[str, str]:
    """Return message and hint for what is no id of a party."""
    value = plain(node)
    meant = "".join(value.split()) if isinstance(value, str) else ""
    hint = f"Write it without blanks: {meant}" if meant.isdecimal() else "Write a number: 9999"
    return f"must be the id of a party, is {yaml.describe(node)}", hint


def _roles(root: ObjectReader) -> dict[str, tuple[str, ...]]:
    listed = root.inside("role")
    if not listed.entries:
        root.wrong("role", "the job has no parties", 'Write: "role": {"guest": [9999], "host": [10000]}')
    found: dict[str, tuple[str, ...]] = {}
    for role in listed:
        if role not in ROLES and role != _ASSISTANT:
            listed.wrong(role, f"there is no role {show(role)}", hint_of(role, ROLES))
        ids = []
        for node in listed.items(role):
            id = _party_id(node)
            if not id:
                root.problems.add(node.mark, f"role.{role}", *_no_party_id(node))
            elif id in ids:
                root.problems.add(node.mark, f"role.{role}", f"party {id} is named twice")
            else:
                ids.append(id)
        found[role] = tuple(ids)
    return found


def _initiator(root: ObjectReader, roles: Mapping[str, Sequence[str]]) -> Party:
    given = root.inside("initiator")
    if "initiator" not in root:
        root.wrong("initiator", "the job has no initiator", 'Write: "initiator": {"role": "guest", "party_id": 9999}')
        return Party("", "")
    given.only("role", "party_id")
    role, node = given.text("role"), given.entries.get("party_id")
    id = "" if node is None else _party_id(node)
    if not role or node is None:
        given.wrong("party_id" if role else "role", "the initiator needs role and party_id")
    elif not id:
        given.wrong("party_id", *_no_party_id(node))
    elif id not in roles.get(role, ()):
        given.wrong("party_id", f"{role} {id} is not among the parties of role", f"Add it: role.{role}")
    return Party(role, id)


# --------------------------------------------------------------------------------------------------------- parameters


def _job_parameters(reader: ObjectReader) -> dict[str, Any]:
    found = {key: reader.value(key) for key in reader}
    for key, value in found.items():
        if fault := job_parameter_fault(key, value):
            reader.wrong(key, fault)
    limits = reader.inside("component_limits")
    for component in limits:
        own = limits.inside(component)
        own.only(*LIMITS)
        for name in own:
            if fault := limit_fault(own.value(name)):
                own.wrong(name, fault)
    return found


def _named(reader: ObjectReader) -> dict[str, Value]:
    return {key: value_of(node) for key, node in reader.entries.items()}


def _version_1(root: ObjectReader, roles: Mapping[str, Sequence[str]]) -> tuple[dict[str, Value], list[OwnParameters]]:
    own = []
    given = root.inside("role_parameters")
    for role in _known_roles(given, roles):
        components = {key: value for key, value in _named(given.inside(role)).items() if key != ARGS}
        own.append(OwnParameters(role, range(len(roles[role])), components))
    return _named(root.inside("algorithm_parameters")), own


def _version_2(root: ObjectReader, roles: Mapping[str, Sequence[str]]) -> tuple[dict[str, Value], list[OwnParameters]]:
    given = root.inside("component_parameters")
    given.only("common", "role")
    own = [
        OwnParameters(role, indices, _named(reader), key)
        for role, key, indices, reader in _by_party(given.inside("role"), roles)
    ]
    return _named(given.inside("common")), own


def _known_roles(given: ObjectReader, roles: Mapping[str, Sequence[str]]) -> Iterator[str]:
    for role in given:
        if role in roles:
            yield role
        elif role in ROLES:
            given.wrong(role, f"the job has no {role}", f"Its roles are {', '.join(roles)}.")
        else:
            given.wrong(role, f"there is no role {show(role)}", hint_of(role, list(roles)))


def _without_index(given: ObjectReader, roles: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Yield a note for each component that stands directly below a role: no party reads it, in FATE neither."""
    for role in given:
        for key in given.inside(role) if role in roles else ():
            if _COMPONENT.fullmatch(key):
                where = f"{given.path}.{role}.{key}"
                yield f'{where} has no effect: it stands below no index of a party. Write "{role}": {{"all": {{...}}}}'


def _by_party(
    given: ObjectReader, roles: Mapping[str, Sequence[str]]
) -> Iterator[tuple[str, str, tuple[int, ...], ObjectReader]]:
    """Yield role, key, indices of its parties and members of each object under `role`: keys are "all", "0" or "0|1"."""
    for role in _known_roles(given, roles):
        by_index, count = given.inside(role), len(roles[role])
        for key in by_index:
            if _COMPONENT.fullmatch(key):
                continue
            indices = tuple(range(count)) if key == _ALL_PARTIES else _indices(by_index, key, role, count)
            yield role, key, indices, by_index.inside(key)


def _indices(given: ObjectReader, key: str, role: str, count: int) -> tuple[int, ...]:
    found = []
    for part in key.split("|"):
        if not (part.isdecimal() and len(part) <= 4):
            meant = did_you_mean(key, [_ALL_PARTIES])
            given.wrong(key, f"{show(key)} names no parties", meant or 'Write their indices: "0", "0|1", or "all"')
        elif int(part) >= count:
            many = "party" if count == 1 else "parties"
            given.wrong(key, f"there is no party {part}: the job has {count} {many} of role {role}, counted from 0")
        else:
            found.append(int(part))
    return tuple(dict.fromkeys(found))


def _tables(root: ObjectReader, roles: Mapping[str, Sequence[str]]) -> dict[str, dict[str, tuple[Any, ...]]]:
    """Return the tables of version 1 by role and key, one for each party."""
    found: dict[str, dict[str, tuple[Any, ...]]] = {}
    given = root.inside("role_parameters")
    for role in given:
        if role not in roles:
            continue
        data = given.inside(role).inside(ARGS).inside("data")
        for key in data:
            listed = [plain(node) for node in data.items(key) if not is_null(node)]
            if len(listed) != len(roles[role]):
                data.wrong(key, *uneven(len(listed), role, len(roles[role])))
            found.setdefault(role, {})[key] = tuple(listed)
    return found


def uneven(found: int, role: str, parties: int) -> tuple[str, str]:
    """Return message and hint for a list whose length is not the number of parties of its role."""
    return (
        f"the list has {found} {'value' if found == 1 else 'values'}, and the job has {parties} of role {role}",
        "Write one value for each party of the role, in the order of role.",
    )
