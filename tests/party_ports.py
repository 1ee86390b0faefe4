"""A party without parties: jobs, tracking and models in memory, for tests of its interface for clients."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from weft.model.errors import ConflictError, FederatedFileError, NotFoundError
from weft.parties.http.ports import (
    DeployedModel,
    JobConfig,
    JobFilter,
    JobGraph,
    JobPart,
    JobRow,
    MetricSeries,
    ModelFilter,
    ModelMigration,
    ModelRow,
    OutputModel,
    OutputTable,
    PartyCores,
    PartyPorts,
    PublishedModel,
    SubmittedJob,
    TaskRow,
)
from weft.parties.tables import PartyTables
from weft.parties.tags import ModelTag

if TYPE_CHECKING:
    from pathlib import Path

BEGAN = 1_700_000_000.0


class FixedClock:
    """A clock that goes on by one millisecond with each look at it."""

    def __init__(self) -> None:
        self._ticks = itertools.count()

    def wall(self) -> float:
        return BEGAN + next(self._ticks) / 1000


class FakeJobs:
    """Jobs that succeed as soon as they are submitted, unless `status` says otherwise."""

    def __init__(self, logs: Path, *, status: str = "success") -> None:
        self.logs, self.status = logs, status
        self.rows: dict[str, JobRow] = {}
        self.calls: list[tuple[Any, ...]] = []

    def submit(self, dsl: Mapping[str, Any], conf: Mapping[str, Any], user: str) -> SubmittedJob:
        if not dsl and conf.get("job_parameters", {}).get("common", {}).get("job_type") != "predict":
            raise FederatedFileError("the conf has no DSL", hint="Give one.")
        job_id = f"20260101000000{len(self.rows):06d}0"
        initiator = conf.get("initiator", {})
        row = JobRow(
            job_id=job_id,
            role=str(initiator.get("role", "guest")),
            party_id=str(initiator.get("party_id", "9999")),
            status=self.status,
            progress=100 if self.status == "success" else 0,
            user=user,
            roles={role: [str(one) for one in ids] for role, ids in conf.get("role", {}).items()},
            initiator_role=str(initiator.get("role", "guest")),
            initiator_party_id=str(initiator.get("party_id", "9999")),
            is_initiator=True,
            dsl=dsl,
            conf=conf,
            created_at=BEGAN + len(self.rows),
            updated_at=BEGAN + len(self.rows) + 2,
            started_at=BEGAN + len(self.rows),
            ended_at=BEGAN + len(self.rows) + 2,
        )
        self.rows[job_id] = row
        folder = self.logs / job_id / row.role / row.party_id
        folder.mkdir(parents=True)
        (folder / "INFO.log").write_text("secure_add_guest success\n")
        (folder / "ERROR.log").write_text("")
        return SubmittedJob(job_id=job_id, model_id="guest-9999#model", model_version=job_id)

    def row(self, job_id: str) -> JobRow:
        if job_id not in self.rows:
            raise NotFoundError(f"there is no job {job_id}", hint="List the jobs: flow job list")
        return self.rows[job_id]

    def stop(self, job_id: str, status: str) -> None:
        self.rows[job_id] = replace(self.row(job_id), status=status)

    def rerun(self, job_id: str, components: Sequence[str], *, force: bool) -> None:
        self.row(job_id)
        self.calls.append(("rerun", job_id, list(components), force))

    def query(self, which: JobFilter) -> Sequence[JobRow]:
        found = [
            row
            for row in reversed(self.rows.values())
            if which.job_id in ("", row.job_id)
            and which.role in ("", row.role)
            and which.party_id in ("", row.party_id)
            and (not which.status or row.status in which.status)
        ]
        return found[: which.limit] if which.limit else found

    def tasks(self, which: JobFilter) -> Sequence[TaskRow]:
        found = [
            TaskRow(
                job_id=row.job_id,
                component=name,
                module=str(one["module"]),
                task_id=f"{row.job_id}_{name}",
                version=0,
                role=row.role,
                party_id=row.party_id,
                status=row.status,
                party_status=row.status,
                created_at=row.created_at,
            )
            for row in self.query(which)
            for name, one in row.dsl["components"].items()
            if which.component in ("", name)
        ]
        return found[: which.limit] if which.limit else found

    def count(self, which: JobFilter, *, tasks: bool = False) -> int:
        every = replace(which, limit=0, skip=0)
        return len(self.tasks(every) if tasks else self.query(every))

    def config(self, part: JobPart) -> JobConfig:
        row = self.row(part.job_id)
        return JobConfig(
            job_id=row.job_id, dsl=row.dsl, conf=row.conf, model_id="guest-9999#model", model_version=row.job_id
        )

    def note(self, part: JobPart, notes: str) -> None:
        self.rows[part.job_id] = replace(self.row(part.job_id), notes=notes)

    def update(
        self, job_id: str, job_parameters: Mapping[str, Any] | None, component_parameters: Mapping[str, Any] | None
    ) -> Mapping[str, Any]:
        self.row(job_id)
        self.calls.append(("update", job_id, job_parameters, component_parameters))
        return {"components": []}

    def clean(self, part: JobPart) -> None:
        self.row(part.job_id)

    def clean_queue(self) -> Mapping[str, str]:
        waiting = [row.job_id for row in self.rows.values() if row.status == "waiting"]
        for job_id in waiting:
            self.stop(job_id, "canceled")
        return dict.fromkeys(waiting, "")

    def log_folder(self, job_id: str) -> Path:
        self.row(job_id)
        return self.logs / job_id

    def graph(self, part: JobPart) -> JobGraph:
        names = list(self.row(part.job_id).dsl["components"])
        return JobGraph(
            components=names,
            dependencies={two: [{"component_name": one, "type": "data"}] for one, two in itertools.pairwise(names)},
            modules={name: str(one["module"]) for name, one in self.row(part.job_id).dsl["components"].items()},
            runs=dict.fromkeys(names, True),
        )

    def cores(self) -> PartyCores:
        return PartyCores(total=8, free=6, holders=[("1", "guest", "9999", 2)])

    def predict_dsl(self, train_dsl: Mapping[str, Any], components: Sequence[str], version: str) -> Mapping[str, Any]:
        return {"components": {name: train_dsl["components"][name] for name in components}}


class FakeTracking:
    """Every component of every job of `jobs` has made the same."""

    def __init__(self, jobs: FakeJobs) -> None:
        self.jobs = jobs
        self.series = [
            MetricSeries(namespace="train", name="loss", points=[(0, 0.7), (1, 0.4)], about={"name": "loss"})
        ]

    def _check(self, part: JobPart) -> None:
        if part.component not in (*self.components(part.job_id), ""):
            raise NotFoundError(f"job {part.job_id} has no component {part.component}")

    def metric_names(self, part: JobPart) -> Mapping[str, Sequence[str]]:
        self._check(part)
        return {one.namespace: [one.name] for one in self.series}

    def metrics(self, part: JobPart) -> Sequence[MetricSeries]:
        self._check(part)
        return self.series

    def metric(self, part: JobPart, namespace: str, name: str) -> MetricSeries | None:
        self._check(part)
        return next((one for one in self.series if (one.namespace, one.name) == (namespace, name)), None)

    def delete_metrics(self, job_id: str, date: str) -> int:
        gone, self.series = len(self.series), []
        return gone

    def parameters(self, part: JobPart) -> Mapping[str, Any]:
        self._check(part)
        return {"module": "HeteroLR", "ComponentParam": {"max_iter": 30}}

    def output_model(self, part: JobPart) -> OutputModel | None:
        self._check(part)
        return OutputModel(parameters={"weight": {"x0": 0.5}}, about={"module_name": "HeteroLR"})

    def output_tables(self, part: JobPart) -> Sequence[OutputTable]:
        self._check(part)
        return [OutputTable(name="train", table_name="t1", namespace="out", header=("id", "y", "x0"), count=250)]

    def output_rows(self, part: JobPart, name: str, limit: int) -> Iterator[Sequence[Any]]:
        rows = ((f"id{at}", at % 2, at / 10) for at in range(250))
        return itertools.islice(rows, limit if limit >= 0 else None)

    def summary(self, part: JobPart) -> Mapping[str, Any]:
        self._check(part)
        return {"auc": 0.9965}

    def components(self, job_id: str) -> Sequence[str]:
        return list(self.jobs.row(job_id).dsl["components"])

    def job_view(self, part: JobPart) -> Mapping[str, Any]:
        return {"model_summary": {}}


class FakeModels:
    """The models of all jobs of `jobs`."""

    def __init__(self, jobs: FakeJobs) -> None:
        self.jobs = jobs
        self.named: dict[str, ModelTag] = {}
        self.deployed: dict[str, Mapping[str, Any]] = {}
        self.taken: list[tuple[ModelFilter, bytes, bool]] = []
        self.loaded: list[str] = []
        self.bound: dict[str, str] = {}
        self.migrations: list[ModelMigration] = []
        self.host_says = ""

    def load(self, model_id: str, model_version: str) -> PublishedModel:
        self.jobs.row(model_version)
        self.loaded.append(model_version)
        parties = {"guest": {"9999": ""}, "host": {"10000": self.host_says}}
        return PublishedModel(model_id=model_id, model_version=model_version, parties=parties)

    def bind(self, service: str, model_id: str, model_version: str) -> None:
        if model_version not in self.loaded:
            raise ConflictError(f"version {model_version} was not loaded")
        self.bound[service] = model_version

    def migrate(self, asked: ModelMigration) -> PublishedModel:
        self.migrations.append(asked)
        parties = {role: dict.fromkeys(ids, "") for role, ids in asked.execute.items()}
        return PublishedModel(model_id="new#model", model_version=asked.new_version, parties=parties)

    def deploy(
        self,
        model_id: str,
        model_version: str,
        *,
        components: Sequence[str],
        dsl: Mapping[str, Any] | None,
        readers: bool = False,
    ) -> DeployedModel:
        row = self.jobs.row(model_version)
        kept = components or list(row.dsl["components"])
        self.deployed[f"{model_version}9"] = dsl or {
            "components": {name: one for name, one in row.dsl["components"].items() if name in kept}
        }
        return DeployedModel(model_id=model_id, model_version=f"{model_version}9", parties={"guest": {"9999": 0}})

    def predict_dsl(self, model_id: str, model_version: str) -> Mapping[str, Any]:
        return self.deployed[model_version] if model_version in self.deployed else self.jobs.row(model_version).dsl

    def predict_conf(self, model_id: str, model_version: str) -> Mapping[str, Any]:
        return {"job_parameters": {"common": {"job_type": "predict", "model_version": model_version}}}

    def query(self, which: ModelFilter) -> Sequence[ModelRow]:
        return [
            ModelRow(model_id="guest-9999#model", model_version=row.job_id, role=row.role, party_id=row.party_id)
            for row in self.jobs.rows.values()
            if which.model_version in ("", row.job_id)
        ]

    def pack(self, which: ModelFilter, folder: Path) -> Path:
        self.jobs.row(which.model_version)
        path = folder / "model.zip"
        path.write_bytes(b"PK-model")
        return path

    def unpack(self, which: ModelFilter, archive: Path, *, replace: bool) -> None:
        self.taken.append((which, archive.read_bytes(), replace))

    def tags(self, name: str = "", *, limit: int = 0) -> Sequence[ModelTag]:
        if name:
            return [self.named[name]] if name in self.named else []
        return list(self.named.values())[: limit or None]

    def put_tag(self, name: str, description: str | None, *, new_name: str = "", create: bool) -> None:
        if create and name in self.named:
            raise ConflictError(f"there is a tag {name} already")
        if not create and name not in self.named:
            raise NotFoundError(f"there is no tag {name}")
        old = self.named.pop(name, ModelTag(name=name))
        final = new_name or name
        told = old.description if description is None else description
        self.named[final] = replace(old, name=final, description=told)

    def delete_tag(self, name: str) -> None:
        if self.named.pop(name, None) is None:
            raise NotFoundError(f"there is no tag {name}")

    def tag_model(self, version: str, tag: str, *, remove: bool = False) -> None:
        self.jobs.row(version)
        old = self.named.get(tag, ModelTag(name=tag))
        versions = [one for one in old.versions if one != version]
        self.named[tag] = replace(old, versions=versions if remove else [*versions, version])

    def model_tags(self, version: str) -> Sequence[ModelTag]:
        return [one for one in self.named.values() if version in one.versions]


class FakePeople:
    """What people ask, answered from the fake jobs."""

    def __init__(self, jobs: FakeJobs) -> None:
        self.jobs = jobs

    def overview(self, limit: int = 0, status: str = "") -> Sequence[Mapping[str, Any]]:
        which = JobFilter(limit=limit, status=[status] if status else ())
        return [{"job": row.job_id, "status": row.status} for row in self.jobs.query(which)]

    def show(self, id: str) -> Mapping[str, Any]:
        row = self.jobs.row(id)
        part = {"part": "guest 9999", "role": "guest", "party": "9999", "here": True, "state": "runs"}
        host = part | {"part": "host 10000", "role": "host", "party": "10000", "here": False, "sent": 2048}
        parts = {"guest 9999": row.status, "host 10000": None}
        component: dict[str, Any] = {"module": "M", "status": row.status, "parts": parts}
        component |= {
            "attempt": 0,
            "kept": False,
            "upstream": [],
            "waits_for": [],
            "partners": [],
            "reason": "",
            "received": 0,
        }
        component |= {"started": BEGAN, "ended": BEGAN + 2, "seconds": 2.0, "sent": 2048}
        left = {"component": "hetero_lr_0", "from": "guest 9999", "to": "host 10000", "kind": "residual"}
        return {
            "job": id,
            "status": row.status,
            "party": "9999",
            "initiator": "guest 9999",
            "created": row.created_at,
            "started": row.started_at,
            "ended": row.ended_at,
            "seconds": 2.0,
            "cause": {"message": "no memory", "party": "10000", "code": "WEFT501", "hint": "Add some."}
            if row.status == "failed"
            else None,
            "reason": "party 10000: no memory" if row.status == "failed" else "",
            "notes": [],
            "tables": [{"namespace": "n", "name": "g", "part": "guest 9999", "component": "reader_0"}],
            "parts": [part | {"sent": 0, "received": 0}, host | {"received": 0}],
            "waits": [{"what": "party 10000 does not answer", "party": "10000", "since": BEGAN}]
            if row.status == "running"
            else [],
            "components": [component | {"name": name} for name in row.dsl["components"]],
            "left": [left | {"what": "encrypted residuals of rows", "messages": 30, "bytes": 2048}],
            "metrics": {"evaluation_0 train auc": 0.75},
        }

    def logs(self, job_id: str, component: str, role: str) -> Mapping[str, Any]:
        row = self.jobs.row(job_id)
        path = self.jobs.logs / job_id / row.role / row.party_id / "INFO.log"
        return {"logs": [{"name": component, "attempt": 0, "path": str(path)}], "active": row.status == "running"}

    def models(self, which: ModelFilter) -> Sequence[Mapping[str, Any]]:
        return [
            {
                "version": row.job_id,
                "kind": "trained",
                "job": row.job_id,
                "model_id": "m",
                "role": row.role,
                "party": row.party_id,
                "parties": row.roles,
                "created": BEGAN,
                "bytes": 2048,
                "loaded": 1,
                "services": ["credit"],
                "components": ["hetero_lr_0"],
                "tags": ["best"],
                "metrics": {"evaluation_0 train auc": 0.7, "evaluation_0 validate auc": 0.75},
            }
            for row in self.jobs.query(JobFilter(limit=which.limit))
            if which.model_version in ("", row.job_id)
        ]

    def report(self, id: str) -> Mapping[str, Any]:
        shown = {**self.show(id), "made": BEGAN, "site": "bank", "user": "", "remarks": "", "job_type": "train"}
        lists = ("tables", "models", "approvals", "parameters")
        return shown | {"metrics": self.metrics(id, ""), "versions": {}} | {name: [] for name in lists}

    def metrics(self, job_id: str, component: str) -> Sequence[Mapping[str, Any]]:
        self.jobs.row(job_id)
        loss = {"namespace": "train", "name": "loss", "kind": "LOSS", "single": False}
        auc = {"namespace": "train", "name": "auc", "kind": "", "single": True, "points": [["auc", 0.75]]}
        folds = [
            {"namespace": f"validate_fold_{at}", "name": name, "kind": "", "single": True, "points": [[name, 0.5 + at]]}
            for at in range(2)
            for name in ("auc", "ks")
        ]
        points = [[at, 0.7 - at / 100] for at in range(40)] + [[40, None]]
        each = {"events": 30, "non_events": 70, "woe": 0.25, "iv": 0.1}
        bins = [
            {"feature": "x0", "party": "guest 9999", "event": "1", "iv": 0.2, "edges": [0.5, 2.0], "bins": [each] * 2},
            {"feature": "host_x1", "party": "host 10000", "event": "1", "iv": 0.1, "edges": None, "bins": [each]},
        ]
        found = {"component": component or "hetero_lr_0", "module": "HeteroLR", "part": "guest 9999"}
        confusion = [{"namespace": "train", "classes": ["0", "1"], "counts": [[60, 10], [12, 1800]]}]
        validated = {"component": "cv_0", "module": "HeteroLR", "part": "guest 9999", "bins": [], "confusion": []}
        trained = found | {"series": [loss | {"points": points}, auc], "bins": bins, "confusion": confusion}
        return [trained, *([] if component else [validated | {"series": folds}])]

    def approve(self, id: str, declined: str) -> None:
        self.jobs.row(id)

    def step(self, id: str, count: int | None) -> Sequence[str]:
        self.jobs.row(id)
        return [] if count is None else ["hetero_lr_0"]


def party_ports(folder: Path, *, status: str = "success", **options: Any) -> PartyPorts:
    """Return the ports of a party whose files lie in `folder`; `options` are those of its tables."""
    scratch = folder / "scratch"
    scratch.mkdir(parents=True, exist_ok=True)
    jobs = FakeJobs(folder / "logs", status=status)
    models = FakeModels(jobs)
    return PartyPorts(
        party_id="9999",
        jobs=jobs,
        tracking=FakeTracking(jobs),
        models=models,
        publishing=models,
        people=FakePeople(jobs),
        tables=PartyTables.open(folder / "site", clock=FixedClock(), **options),
        scratch=scratch,
        modules=("HeteroLR", "Intersection", "Reader"),
    )
