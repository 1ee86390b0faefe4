"""Reads a suite of jobs: the data to upload, and the tasks with what each takes from others.

Source: FATE 1.5 to 1.11, the files `*testsuite.json` of its examples, and the reader of `fate_test`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from weft.documents.problems import FileKind, FilePosition, Problems
from weft.frontends.federated.conf import version_of
from weft.frontends.federated.documents import ObjectReader, load
from weft.frontends.federated.schema import MODEL_LOADER, PREDICT
from weft.model.errors import FederatedFileError, NotFoundError
from weft.model.suggestions import did_you_mean

if TYPE_CHECKING:
    from weft.documents import yaml

SUITE_FILE: Final = FileKind(FederatedFileError, "suite", "a suite needs tasks")
_PLACE: Final = re.compile(r"([a-z]+)(?:_(\d{1,4}))?")
_CACHE_LOADER: Final = "CacheLoader"

RolePlace: TypeAlias = tuple[str, int]
"""A role, and the number of a party among those of the role, from 0 on."""


class SuiteTable(NamedTuple):
    """A file to upload at the party of a place. `fields` are those of the upload, as FATE names them."""

    place: RolePlace
    file: str
    namespace: str
    name: str
    fields: Mapping[str, Any]


class SuiteTask(NamedTuple):
    """A job of a suite: its files, and the tasks whose model, loaded model, cache or data it takes; "" for none."""

    name: str
    conf: str
    dsl: str
    model_of: str = ""
    loads_model_of: str = ""
    loads_cache_of: str = ""
    data_of: tuple[str, ...] = ()

    @property
    def after(self) -> tuple[str, ...]:
        """The names of the tasks that must have succeeded before this one."""
        names = (self.model_of, self.loads_model_of, self.loads_cache_of, *self.data_of)
        return tuple(dict.fromkeys(one for one in names if one))


class JobSuite(NamedTuple):
    """What a suite uploads and runs, in the order of its file; `notes` tell what has no effect."""

    tables: tuple[SuiteTable, ...]
    tasks: tuple[SuiteTask, ...]
    notes: tuple[str, ...]


class TrainedModel(NamedTuple):
    """The names of the model that a job has made, the id of the job, and its parties by their places."""

    model_id: str
    model_version: str
    job: str
    places: Mapping[RolePlace, str]


def read_suite(text: str, file: str) -> JobSuite:
    """Return a suite by its text. FederatedFileError: a field is wrong, or a task is missing; all mistakes are told."""
    problems = Problems(file, SUITE_FILE)
    root = ObjectReader(load(text, problems), "", problems, FilePosition(1, 1))
    listed = root.inside("tasks")
    tables = [_table(node, problems) for node in root.items("data")]
    tasks = tuple(_task(listed.inside(name), name) for name in listed)
    known = [one.name for one in tasks]
    for one in tasks:
        for name in one.after:
            if name not in known:
                message = f"takes what the task {name!r} makes, which the suite does not have"
                listed.wrong(one.name, message, did_you_mean(name, known))
    if not tasks and "pipeline_tasks" not in root:
        root.wrong("tasks", "the suite has no tasks")
    problems.raise_if_any()
    notes = [f"pipeline_tasks.{name} does not run: it is a script" for name in root.inside("pipeline_tasks")]
    return JobSuite(tuple(one for one in tables if one is not None), tasks, tuple(notes))


def in_order(tasks: Sequence[SuiteTask], only: Iterable[str] = ()) -> list[SuiteTask]:
    """Return tasks in the order of the file, each after those whose results it takes.

    `only` names those that are wanted; what they take comes with them. NotFoundError: there is no such task.
    FederatedFileError: tasks wait for each other.
    """
    named = {one.name: one for one in tasks}
    wanted = list(only) or list(named)
    found: dict[str, SuiteTask] = {}

    def add(name: str, path: tuple[str, ...]) -> None:
        if name in path:
            loop = " -> ".join((*path[path.index(name) :], name))
            raise FederatedFileError(f"tasks wait for each other: {loop}", hint="Remove one of their dependences.")
        if name in found:
            return
        for one in named[name].after:
            add(one, (*path, name))
        found[name] = named[name]

    for name in wanted:
        if name not in named:
            hint = did_you_mean(name, named, f"It has {', '.join(named)}.")
            raise NotFoundError(f"the suite has no task {name!r}", hint=hint)
        add(name, ())
    return list(found.values())


def parties_of(conf: Mapping[str, Any]) -> dict[RolePlace, str]:
    """Return the ids of the parties of a conf as JSON, by their places; none for what is no list of ids."""
    roles = conf.get("role")
    listed = roles.items() if isinstance(roles, Mapping) else ()
    return {(role, at): str(id) for role, ids in listed if isinstance(ids, list) for at, id in enumerate(ids)}


def initiator_of(conf: Mapping[str, Any]) -> str:
    """Return the id of the initiator of a conf as JSON; "" without one."""
    given = conf.get("initiator")
    return str(given.get("party_id", "")) if isinstance(given, Mapping) else ""


def with_parties(conf: Mapping[str, Any], ids: Mapping[RolePlace, str]) -> dict[str, Any]:
    """Return a conf as JSON with other parties at its places. NotFoundError: `ids` has none for one of its places."""
    found, places = deepcopy(dict(conf)), parties_of(conf)
    for role, at in places:
        if (role, at) not in ids:
            raise NotFoundError(f"no party is {role}_{at}", hint=f"Name its folder: --party {role}_{at}=FOLDER")
        found["role"][role][at] = _id(ids[role, at])
    initiator = found.get("initiator")
    if isinstance(initiator, dict):
        wanted = (initiator.get("role"), initiator_of(conf))
        place = next((one for one, id in places.items() if (one[0], id) == wanted), None)
        if place is not None:
            initiator["party_id"] = _id(ids[place])
    return found


def with_job_parameters(conf: Mapping[str, Any], **values: Any) -> dict[str, Any]:
    """Return a conf as JSON with parameters of the job for all parties, in the form of its version."""
    found = deepcopy(dict(conf))
    jobs = found.setdefault("job_parameters", {})
    if version_of(conf) == 2 or "common" in jobs:
        jobs = jobs.setdefault("common", {})
    jobs.update(values)
    return found


def with_model(conf: Mapping[str, Any], model: TrainedModel) -> dict[str, Any]:
    """Return the conf of a job, as JSON, that uses a model: a prediction unless it states another job type."""
    jobs = conf.get("job_parameters") or {}
    stated = (jobs.get("common") or {}).get("job_type") or jobs.get("job_type")
    return with_job_parameters(
        conf, job_type=stated or PREDICT, model_id=model.model_id, model_version=model.model_version
    )


def with_loaders(
    conf: Mapping[str, Any], dsl: Mapping[str, Any], *, model: TrainedModel | None, cache: TrainedModel | None
) -> dict[str, Any]:
    """Return a conf as JSON whose components that load a model or a cache take it from the job of another task."""
    found = deepcopy(dict(conf))
    for name, one in (dsl.get("components") or {}).items():
        given: dict[str, Any] = {}
        if model is not None and one.get("module") == MODEL_LOADER:
            given = {"model_id": model.model_id, "model_version": model.model_version}
        elif cache is not None and one.get("module") == _CACHE_LOADER:
            given = {"job_id": cache.job}
        if given:
            common = found.setdefault("component_parameters", {}).setdefault("common", {})
            common[name] = (common.get(name) or {}) | given
    return found


# ------------------------------------------------------------------------------------------------------------- inside


def _table(node: yaml.Node, problems: Problems) -> SuiteTable | None:
    one = ObjectReader(node, "data", problems, node.mark)
    address = one.inside("address")
    file = one.text("file") or address.text("path")
    name, namespace = one.text("table_name") or one.text("name"), one.text("namespace")
    for key, value in (("file", file), ("table_name", name), ("namespace", namespace)):
        if not value:
            one.wrong(key, f"the data needs {key}")
    place = read_place(one.text("role"))
    if place is None:
        one.wrong("role", f"names no party: {one.text('role')!r}", "Write the role and a number from 0 on: guest_0")
        return None
    left = ("file", "role", "address", "table_name", "name", "namespace", "work_mode", "use_local_data")
    return SuiteTable(place, file, namespace, name, {key: one.value(key) for key in one if key not in left})


def _task(one: ObjectReader, name: str) -> SuiteTask:
    if not one.text("conf"):
        one.wrong("conf", "the task needs a conf")
    data = one.inside("data_deps")
    return SuiteTask(
        name,
        one.text("conf"),
        one.text("dsl"),
        model_of=one.text("model_deps") or one.text("deps"),
        loads_model_of=one.text("model_loader_deps"),
        loads_cache_of=one.text("cache_deps"),
        data_of=tuple(data),
    )


def read_place(text: str) -> RolePlace | None:
    """Return the place that a text such as `guest_0` names, the first of its role without a number; None: none."""
    match = _PLACE.fullmatch(text)
    return None if match is None else (match[1], int(match[2] or 0))


def _id(text: str) -> int | str:
    return int(text) if text.isdecimal() else text
