"""What the routes ask of a party: jobs, tracking and models, as protocols, and the records that they exchange.

Names are plain here; `weft.parties.http` maps them to those of FATE. Party ids are strings of digits. Times are seconds
since 1970-01-01 UTC. A party raises the errors of `weft.model.errors`: NotFoundError for a job, component or model that
it does not have, UsageError for an argument that cannot be, PartyRefusedError for what a policy forbids.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct, field

if TYPE_CHECKING:
    from pathlib import Path

    from weft.parties.tables import PartyTables
    from weft.parties.tags import ModelTag


class SubmittedJob(Struct, frozen=True, kw_only=True):
    """A job that a party has accepted. Paths are those of the files that the party keeps of it, "" where it has none.

    `board_url` is the address of its page.
    """

    job_id: str
    model_id: str = ""
    model_version: str = ""
    logs_directory: str = ""
    board_url: str = ""
    dsl_path: str = ""
    conf_path: str = ""
    conf_on_party_path: str = ""
    train_conf_path: str = ""
    pipeline_dsl_path: str = ""


class JobFilter(Struct, frozen=True, kw_only=True):
    """Which rows to return: a field that is empty or None does not filter.

    Rows come newest first. `limit` 0 returns all, `skip` leaves out the first ones.
    """

    job_id: str = ""
    role: str = ""
    party_id: str = ""
    component: str = ""
    task_id: str = ""
    status: Sequence[str] = ()
    tag: str = ""
    user: str = ""
    initiator_role: str = ""
    initiator_party_id: str = ""
    is_initiator: bool | None = None
    limit: int = 0
    skip: int = 0


class JobRow(Struct, frozen=True, kw_only=True):
    """The part of a job that belongs to one role of one party.

    `status` is a word of FATE (waiting, ready, running, canceled, timeout, failed, success), `progress` a percentage.
    `reason` tells why the job is in this status, `error` its root cause with the party at fault.
    """

    job_id: str
    role: str
    party_id: str
    status: str
    progress: int = 0
    name: str = ""
    notes: str = ""
    tag: str = ""
    user: str = ""
    roles: Mapping[str, Sequence[str]] = field(default_factory=dict)
    initiator_role: str = ""
    initiator_party_id: str = ""
    is_initiator: bool = False
    dsl: Mapping[str, Any] = field(default_factory=dict)
    conf: Mapping[str, Any] = field(default_factory=dict)
    conf_on_party: Mapping[str, Any] = field(default_factory=dict)
    train_conf: Mapping[str, Any] = field(default_factory=dict)
    cores: int = 0
    created_at: float = 0.0
    updated_at: float = 0.0
    started_at: float | None = None
    ended_at: float | None = None
    reason: str = ""
    error: str = ""


class TaskRow(Struct, frozen=True, kw_only=True):
    """The part of a component that belongs to one role of one party, in one version (a rerun makes the next).

    `status` is that of all parties together, `party_status` that of this one.
    """

    job_id: str
    component: str
    module: str
    task_id: str
    version: int
    role: str
    party_id: str
    status: str
    party_status: str
    run_here: bool = True
    initiator_role: str = ""
    initiator_party_id: str = ""
    pid: int = 0
    host: str = ""
    created_at: float = 0.0
    updated_at: float = 0.0
    started_at: float | None = None
    ended_at: float | None = None
    reason: str = ""
    error: str = ""


class JobConfig(Struct, frozen=True, kw_only=True):
    """The files of a job, and the model that it makes or uses."""

    job_id: str
    dsl: Mapping[str, Any]
    conf: Mapping[str, Any]
    conf_on_party: Mapping[str, Any] = field(default_factory=dict)
    train_conf: Mapping[str, Any] = field(default_factory=dict)
    model_id: str = ""
    model_version: str = ""


class JobGraph(Struct, frozen=True, kw_only=True):
    """The components of a job in topological order, by what each needs, what it runs, and whether it runs here."""

    components: Sequence[str]
    dependencies: Mapping[str, Sequence[Mapping[str, Any]]]
    modules: Mapping[str, str]
    runs: Mapping[str, bool]


class PartyCores(Struct, frozen=True, kw_only=True):
    """The cores of a party, and the jobs that hold some: job, role, party, cores."""

    total: int
    free: int
    holders: Sequence[tuple[str, str, str, int]] = ()


class JobPart(Struct, frozen=True):
    """The part of a job at one role of one party; with `component`, of one task in it.

    Role and party may both be empty: the part of the initiator is meant. With a role alone it is the first part of
    this role at this party.
    """

    job_id: str
    role: str = ""
    party_id: str = ""
    component: str = ""


class PartyJobs(Protocol):
    """The jobs of a party. Each method is called from several threads."""

    def submit(self, dsl: Mapping[str, Any], conf: Mapping[str, Any], user: str) -> SubmittedJob:
        """Accept a job, or raise: FederatedFileError for its files, PartyRefusedError for what a policy forbids."""
        ...

    def stop(self, job_id: str, status: str) -> None:
        """Stop a job at all parties. `status` is canceled, failed or timeout. Stopping it again does nothing."""
        ...

    def rerun(self, job_id: str, components: Sequence[str], *, force: bool) -> None:
        """Run components again, all that have not succeeded if none is named; with `force` those too that have."""
        ...

    def query(self, which: JobFilter) -> Sequence[JobRow]:
        """Return jobs; `component` and `task_id` do not filter."""
        ...

    def tasks(self, which: JobFilter) -> Sequence[TaskRow]:
        """Return tasks."""
        ...

    def count(self, which: JobFilter, *, tasks: bool = False) -> int:
        """Return the number of jobs, or tasks, without regard to `limit` and `skip`."""
        ...

    def config(self, part: JobPart) -> JobConfig:
        """Return the files of a job."""
        ...

    def note(self, part: JobPart, notes: str) -> None:
        """Change the notes of a job."""
        ...

    def update(
        self, job_id: str, job_parameters: Mapping[str, Any] | None, component_parameters: Mapping[str, Any] | None
    ) -> Mapping[str, Any]:
        """Change parameters of a job that has ended, for a rerun; return the components that changed."""
        ...

    def clean(self, part: JobPart) -> None:
        """Remove outputs, metrics and models of a job that has ended."""
        ...

    def clean_queue(self) -> Mapping[str, str]:
        """Cancel the waiting jobs that this party has submitted; return what became of each, "" for success."""
        ...

    def log_folder(self, job_id: str) -> Path:
        """Return the folder of logs, with `ROLE/PARTY/INFO.log` and `ERROR.log` in it. NotFoundError: no such job."""
        ...

    def graph(self, part: JobPart) -> JobGraph:
        """Return the components of a job."""
        ...

    def cores(self) -> PartyCores:
        """Return the cores of this party."""
        ...

    def predict_dsl(self, train_dsl: Mapping[str, Any], components: Sequence[str], version: str) -> Mapping[str, Any]:
        """Make the DSL of a prediction from that of a training and the components to keep."""
        ...


class OutputTable(Struct, frozen=True, kw_only=True):
    """A table that a component made: where it lies, its columns (the id first), and its number of rows."""

    name: str
    table_name: str = ""
    namespace: str = ""
    header: Sequence[str] = ()
    count: int = 0


class OutputModel(Struct, frozen=True, kw_only=True):
    """The model of a component as JSON, and what tells about it: module, parameters, buffers."""

    parameters: Mapping[str, Any]
    about: Mapping[str, Any] = field(default_factory=dict)


class MetricSeries(Struct, frozen=True, kw_only=True):
    """A metric: points of a key and a value, sorted by key, and what a chart must know of it."""

    namespace: str
    name: str
    points: Sequence[tuple[Any, Any]] = ()
    about: Mapping[str, Any] = field(default_factory=dict)


class PartyTracking(Protocol):
    """What the components of jobs have made at this party. Each method is called from several threads."""

    def metric_names(self, part: JobPart) -> Mapping[str, Sequence[str]]:
        """Return the names of metrics by namespace."""
        ...

    def metrics(self, part: JobPart) -> Sequence[MetricSeries]:
        """Return all metrics of a component."""
        ...

    def metric(self, part: JobPart, namespace: str, name: str) -> MetricSeries | None:
        """Return one metric, None if there is none."""
        ...

    def delete_metrics(self, job_id: str, date: str) -> int:
        """Delete the metrics of a job, or of a day (YYYYMMDD); return how many."""
        ...

    def parameters(self, part: JobPart) -> Mapping[str, Any]:
        """Return `{"module": ..., "ComponentParam": {...}}` with the parameters of a component at this party."""
        ...

    def output_model(self, part: JobPart) -> OutputModel | None:
        """Return the model of a component, None if it has none."""
        ...

    def output_tables(self, part: JobPart) -> Sequence[OutputTable]:
        """Return the tables of a component, of all components if none is named."""
        ...

    def output_rows(self, part: JobPart, name: str, limit: int) -> Iterator[Sequence[Any]]:
        """Return rows of a table of a component, in its order; `limit` below 0 returns all."""
        ...

    def summary(self, part: JobPart) -> Mapping[str, Any]:
        """Return the summary of a component, empty if it has none."""
        ...

    def components(self, job_id: str) -> Sequence[str]:
        """Return the names of the components of a job."""
        ...

    def job_view(self, part: JobPart) -> Mapping[str, Any]:
        """Return what a page shows of a job as a whole."""
        ...


class ModelFilter(Struct, frozen=True, kw_only=True):
    """Which models to return; an empty field does not filter, and `limit` 0 returns all."""

    model_id: str = ""
    model_version: str = ""
    role: str = ""
    party_id: str = ""
    limit: int = 0


class ModelRow(Struct, frozen=True, kw_only=True):
    """A model of one role of one party. `parent` tells that it was not made by a deployment of another one."""

    model_id: str
    model_version: str
    role: str
    party_id: str
    roles: Mapping[str, Sequence[str]] = field(default_factory=dict)
    job_id: str = ""
    description: str = ""
    nbytes: int = 0
    created_at: float = 0.0
    parent: bool = True
    parent_version: str = ""
    tags: Sequence[str] = ()
    loaded: int = 0
    services: Sequence[str] = ()
    detail: Mapping[str, Any] = field(default_factory=dict)


class PublishedModel(Struct, frozen=True, kw_only=True):
    """What the parties of a model have answered: by role and party why it failed there, "" if it did not."""

    model_id: str
    model_version: str
    parties: Mapping[str, Mapping[str, str]]


class ModelMigration(Struct, frozen=True, kw_only=True):
    """A copy of a model for other parties: `roles` become `new_roles`, in the same order.

    `execute` are the parties that make a copy of their parts, by their present ids; with `alone` this one only.
    `initiator` is a role and a party of the new ones.
    """

    model_id: str
    model_version: str
    new_version: str
    roles: Mapping[str, Sequence[str]]
    new_roles: Mapping[str, Sequence[str]]
    execute: Mapping[str, Sequence[str]]
    initiator: tuple[str, str]
    alone: bool = False


class PartyPublishing(Protocol):
    """Models in use, and copies of them for other parties. Each method is called from several threads."""

    def load(self, model_id: str, model_version: str) -> PublishedModel:
        """Let each party of a model check its part, and count that it was loaded. NotFoundError: it is not here."""
        ...

    def bind(self, service: str, model_id: str, model_version: str) -> None:
        """Let a loaded model answer to the id of a service. ConflictError: it was not loaded."""
        ...

    def migrate(self, asked: ModelMigration) -> PublishedModel:
        """Copy a model for other parties. UsageError: the parties do not fit the model."""
        ...


class DeployedModel(Struct, frozen=True, kw_only=True):
    """A model made for predictions, and the parties that have it: codes (0: success) by role and party."""

    model_id: str
    model_version: str
    parties: Mapping[str, Mapping[str, int]] = field(default_factory=dict)


class PartyModels(Protocol):
    """The models of a party. Each method is called from several threads."""

    def deploy(
        self,
        model_id: str,
        model_version: str,
        *,
        components: Sequence[str],
        dsl: Mapping[str, Any] | None,
        readers: bool = False,
    ) -> DeployedModel:
        """Make a model for predictions of some components, by a given DSL, or of all that can predict.

        With `readers`, those of the job go along with the components that are named.
        """
        ...

    def predict_dsl(self, model_id: str, model_version: str) -> Mapping[str, Any]:
        """Return the DSL of predictions of a deployed model."""
        ...

    def predict_conf(self, model_id: str, model_version: str) -> Mapping[str, Any]:
        """Return a conf for predictions, with the tables to fill in."""
        ...

    def query(self, which: ModelFilter) -> Sequence[ModelRow]:
        """Return models, newest first."""
        ...

    def pack(self, which: ModelFilter, folder: Path) -> Path:
        """Write the one model that `which` names to an archive in `folder`, and return its path."""
        ...

    def unpack(self, which: ModelFilter, archive: Path, *, replace: bool) -> None:
        """Take a model from an archive. ConflictError: it is there, and `replace` is not set."""
        ...

    def tags(self, name: str = "", *, limit: int = 0) -> Sequence[ModelTag]:
        """Return a tag, or all."""
        ...

    def put_tag(self, name: str, description: str | None, *, new_name: str = "", create: bool) -> None:
        """Create or change a tag. ConflictError: it is there already. NotFoundError: there is none."""
        ...

    def delete_tag(self, name: str) -> None:
        """Delete a tag."""
        ...

    def tag_model(self, version: str, tag: str, *, remove: bool = False) -> None:
        """Give a tag to a model, or take it away."""
        ...

    def model_tags(self, version: str) -> Sequence[ModelTag]:
        """Return the tags of a model."""
        ...


class PartyPeople(Protocol):
    """What people ask of a party, beyond the clients of FATE."""

    def overview(self, limit: int = 0, status: str = "") -> Sequence[Mapping[str, Any]]:
        """Return a line for each job, newest first, or of those with a status; `limit` 0 returns all."""
        ...

    def show(self, id: str) -> Mapping[str, Any]:
        """Return a job: its components with their parts, what it waits for, what has left this party."""
        ...

    def logs(self, job_id: str, component: str, role: str) -> Mapping[str, Any]:
        """Return `logs` (name, attempt, path of a file) of the latest attempts at this party, and `active`.

        "" stands for all components and for all roles. NotFoundError: the job has no such component.
        """
        ...

    def step(self, id: str, count: int | None) -> Sequence[str]:
        """Let further components of a job in single step begin (None: all); return those that were held."""
        ...

    def models(self, which: ModelFilter) -> Sequence[Mapping[str, Any]]:
        """Return models, newest first: version, kind (trained, deployed or imported), parties, metrics, tags, size."""
        ...

    def report(self, id: str) -> Mapping[str, Any]:
        """Return all that the page of a job tells, from the records of this party; see `report_page`."""
        ...

    def metrics(self, job_id: str, component: str) -> Sequence[Mapping[str, Any]]:
        """Return what each component ("": all) has kept at each part of this party, if it has kept something.

        `series` has the metrics (`namespace`, `name`, `kind`, `points`, and whether it is a `single` figure), `bins`
        the bins of columns. NotFoundError: the job has no such component.
        """
        ...

    def approve(self, id: str, declined: str) -> None:
        """Approve the parts of a job that wait for it, or decline them for a reason."""
        ...


class PartyPorts(Struct, frozen=True, kw_only=True):
    """All that the routes ask. `scratch` is a folder for the files of one request; `modules` are what can run here."""

    party_id: str
    jobs: PartyJobs
    tracking: PartyTracking
    models: PartyModels
    publishing: PartyPublishing
    people: PartyPeople
    tables: PartyTables
    scratch: Path
    modules: Sequence[str] = ()
