"""Runs suites of jobs: uploads their data at the parties of their roles, and submits their tasks in order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from msgspec import Struct

from weft.frontends.federated.conf import version_of
from weft.frontends.federated.modules import ROLES
from weft.frontends.federated.planning import read_text
from weft.frontends.federated.suites import (
    JobSuite,
    RolePlace,
    SuiteTable,
    SuiteTask,
    TrainedModel,
    in_order,
    initiator_of,
    parties_of,
    read_place,
    read_suite,
    with_job_parameters,
    with_loaders,
    with_model,
    with_parties,
)
from weft.model.errors import NotFoundError, PartyError, UsageError, WeftError
from weft.parties.demo import DemoClock, follow, make_parties, servers
from weft.parties.job_files import JobFiles, read_documents, read_files
from weft.store.scratch import ScratchFolder

if TYPE_CHECKING:
    from weft.parties.client import SiteClient

SUCCESS: Final = "success"
NOT_SUBMITTED: Final = "not submitted"
_CORES: Final = 64
"""The cores of parties that are made for a suite: its jobs come one by one, and shall not wait for each other."""


class SuiteOptions(NamedTuple):
    """How suites run: the folder of their data (None: beside them), the tasks (all without names), and the seconds
    that a job may take (None: as its conf says). `ids` go over those of the files, by place.
    """

    data: Path | None = None
    only: Sequence[str] = ()
    timeout_s: int | None = None
    ids: Mapping[RolePlace, str] | None = None


class SuiteResult(Struct, frozen=True):
    """What came of a task: the id and status of its job, the seconds, its metrics, and the reason of a failure."""

    task: str
    status: str
    job: str
    seconds: float | None
    metrics: Mapping[str, float]
    reason: str


class SuiteUpload(Struct, frozen=True):
    """What came of data of a suite at a party: its rows, or the reason why there are none."""

    party: str
    table: str
    rows: int | None
    reason: str


class SuiteReport(Struct, frozen=True):
    """What came of a suite: its data, and its tasks in the order in which they ran."""

    suite: str
    uploads: tuple[SuiteUpload, ...]
    results: tuple[SuiteResult, ...]
    notes: tuple[str, ...]


class LoadedTask(NamedTuple):
    """A task with its files; without them, with the error of reading them."""

    task: SuiteTask
    files: JobFiles | None
    error: WeftError | None


class LoadedSuite(NamedTuple):
    """A suite with the files of the tasks that run, in their order."""

    path: Path
    name: str
    suite: JobSuite
    tasks: Sequence[LoadedTask]

    def parties(self) -> list[dict[RolePlace, str]]:
        """Return the ids of the parties of each task by their places."""
        return [parties_of(one.files.conf) for one in self.tasks if one.files is not None]


def read_folders(given: Sequence[str]) -> dict[RolePlace, str]:
    """Return the folders of parties by their places. UsageError: one is not ROLE_NUMBER=FOLDER, or given twice."""
    found: dict[RolePlace, str] = {}
    for text in given:
        where, _, folder = text.partition("=")
        place = read_place(where)
        if place is None or place[0] not in ROLES or not folder:
            raise UsageError(f"--party {text} names no party", hint="Write: --party guest_0=FOLDER")
        if place in found:
            raise UsageError(f"--party {where} is given twice", hint="Leave one out.")
        found[place] = folder
    return found


def load_suite(folder: Path, file: str, options: SuiteOptions) -> LoadedSuite:
    """Return a suite below a folder with the files of its tasks; mistakes in these are kept with the task.

    NotFoundError, ForbiddenError, FederatedFileError, InputLimitError: the suite cannot be read.
    """
    path = folder / file
    suite = read_suite(read_text(path, file), file)
    tasks = [_loaded(path.parent, one, options) for one in in_order(suite.tasks, options.only)]
    return LoadedSuite(path, file, suite, tasks)


def run_suite(
    loaded: LoadedSuite,
    clients: Mapping[str, SiteClient],
    options: SuiteOptions,
    clock: DemoClock,
    say: Callable[[str], None],
) -> SuiteReport:
    """Upload the data of a suite and run its tasks, each after those that it needs. `clients` are by id of party.

    A task that fails, or whose data is missing, ends with its reason, and the others run.
    """
    uploads = tuple(_upload(loaded, clients, options, say))
    models: dict[str, TrainedModel] = {}
    results: dict[str, SuiteResult] = {}
    for one in loaded.tasks:
        name = one.task.name
        begun = clock.now()
        try:
            missing = [other for other in one.task.after if other not in models]
            if missing:
                raise PartyError(f"it needs {', '.join(missing)}, which did not succeed")
            if one.files is None:
                raise one.error or NotFoundError("it has no files")
            files, client = _prepared(one.task, one.files, models, clients)
            answer = client.post("job/submit", {"job_dsl": files.dsl, "job_runtime_conf": files.conf})
            job = str(answer["job_id"])
            say(f"{name}: job {job} is submitted")
            shown = follow(client, job, clock, _prefixed(name, say))
        except WeftError as error:
            results[name] = SuiteResult(name, NOT_SUBMITTED, "", None, {}, " ".join(str(error).splitlines()))
        else:
            results[name] = _ended(name, shown, clock.now() - begun)
            if results[name].status == SUCCESS:
                names, places = answer["model_info"], parties_of(files.conf)
                models[name] = TrainedModel(str(names["model_id"]), str(names["model_version"]), job, places)
        say(f"{name}: {results[name].status}")
    return SuiteReport(loaded.name, uploads, tuple(results.values()), loaded.suite.notes)


@contextmanager
def parties_for(
    suites: Sequence[LoadedSuite], folder: Path | None, clock: DemoClock, say: Callable[[str], None]
) -> Iterator[dict[str, SiteClient]]:
    """Make all parties that suites name in a folder (None: a temporary one), and yield their clients by id.

    NotFoundError: no task of the suites can be read. PartyError: a server does not start.
    """
    ids = sorted(
        {id for one in suites for places in one.parties() for id in places.values()}, key=lambda id: (len(id), id)
    )
    if not ids:
        errors = [task.error for one in suites for task in one.tasks if task.error is not None]
        raise errors[0] if errors else NotFoundError("the suites have no tasks")
    with ScratchFolder("suite") as made:
        sites = make_parties(folder or Path(made), [(id, id) for id in ids], clock.wall(), cores=_CORES)
        with servers(sites, clock) as clients:
            say(f"{len(ids)} parties run: {', '.join(ids)}")
            yield clients


# --------------------------------------------------------------------------------------------------------------- data


def _upload(
    loaded: LoadedSuite, clients: Mapping[str, SiteClient], options: SuiteOptions, say: Callable[[str], None]
) -> Iterator[SuiteUpload]:
    """Store each table at all parties that stand in its place, and grant it to the initiators of the tasks."""
    places = loaded.parties()
    initiators = {initiator_of(one.files.conf) for one in loaded.tasks if one.files is not None}
    for table in loaded.suite.tables:
        name = f"{table.namespace}.{table.name}"
        for id in sorted({one[table.place] for one in places if table.place in one}):
            try:
                rows = _store(clients[id], _file(loaded.path.parent, table.file, options.data), table)
                for initiator in sorted(initiators - {id}):
                    granted = {"namespace": table.namespace, "name": table.name}
                    clients[id].post("permission/grant", {"party_id": initiator, "dataset": granted})
            except WeftError as error:
                say(f"party {id}: no table {name}: {error.message}")
                yield SuiteUpload(id, name, None, " ".join(str(error).splitlines()))
            else:
                say(f"party {id}: table {name}, {rows:,} rows")
                yield SuiteUpload(id, name, rows, "")


def _store(client: SiteClient, file: Path, table: SuiteTable) -> int:
    fields = {"namespace": table.namespace, "table_name": table.name, "drop": 1}
    given = {key: value for key, value in table.fields.items() if isinstance(value, str | int | float)}
    given |= {key: int(value) for key, value in given.items() if isinstance(value, bool)}
    return int(client.upload(file, given | fields)["data"]["count"])


def _file(folder: Path, file: str, data: Path | None) -> Path:
    """Return the file of data: below the folder that is named, else below that of the suite or one around it."""
    homes = [folder, *folder.resolve().parents] if data is None else [data]
    found = [home / file for home in homes] + ([] if data is None else [data / Path(file).name, folder / file])
    for path in found:
        if path.is_file():
            return path
        if path.is_dir():
            raise UsageError(f"{file} is a folder, and a table is made of one CSV file")
    raise NotFoundError(f"there is no file {file}", hint="Name the folder of the data with --data.")


# --------------------------------------------------------------------------------------------------------------- tasks


def _loaded(folder: Path, task: SuiteTask, options: SuiteOptions) -> LoadedTask:
    try:
        read = read_documents if task.after else read_files
        files = read(folder, task.conf, task.dsl or None)
        conf = files.conf
        if options.ids is not None:
            conf = with_parties(conf, options.ids)
        if options.timeout_s is not None:
            conf = with_job_parameters(conf, timeout=options.timeout_s)
    except WeftError as error:
        return LoadedTask(task, None, error)
    return LoadedTask(task, JobFiles(files.dsl, conf), None)


def _prepared(
    task: SuiteTask, files: JobFiles, models: Mapping[str, TrainedModel], clients: Mapping[str, SiteClient]
) -> tuple[JobFiles, SiteClient]:
    """Return the files of a task with what it takes from others, and the client of its initiator."""
    conf = with_parties(files.conf, models[task.model_of].places) if task.model_of else files.conf
    id = initiator_of(conf)
    if id not in clients:
        raise NotFoundError(f"party {id} begins the task, and no folder of it is named")
    if task.data_of:
        raise UsageError(
            f"it reads rows that {', '.join(task.data_of)} makes; Weft reads tables alone",
            hint="Put the components of both into one job.",
        )
    if task.model_of:
        model = models[task.model_of]
        if version_of(conf) == 2:
            model = _deployed(clients[id], model, files.dsl)
        conf = with_model(conf, model)
    loaded, cached = models.get(task.loads_model_of), models.get(task.loads_cache_of)
    return JobFiles(files.dsl, with_loaders(conf, files.dsl, model=loaded, cache=cached)), clients[id]


def _deployed(client: SiteClient, model: TrainedModel, dsl: Mapping[str, Any]) -> TrainedModel:
    body = {"model_id": model.model_id, "model_version": model.model_version, "predict_dsl": dsl, "readers": 1}
    made = client.post("model/deploy", body)
    return model._replace(model_id=str(made["model_id"]), model_version=str(made["model_version"]))


def _prefixed(name: str, say: Callable[[str], None]) -> Callable[[str], None]:
    return lambda text: say(f"{name}: {text}")


def _ended(name: str, shown: Mapping[str, Any], seconds: float) -> SuiteResult:
    reasons = [str(shown["reason"] or "")]
    reasons += [f"{one['name']}: {one['reason']}" for one in shown["components"] if one["reason"]]
    told = "" if shown["status"] == SUCCESS else next((one for one in reasons if one), "")
    metrics = shown.get("metrics") or {}
    return SuiteResult(name, str(shown["status"]), str(shown["job"]), seconds, metrics, told)
