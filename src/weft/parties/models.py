"""The models of a party: those that jobs have made, deployed versions, archives, tags."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from weft.frontends.federated.conf import job_type_of
from weft.frontends.federated.modules import GUEST, HOST
from weft.frontends.federated.prediction import merged_conf, prediction_conf, prediction_dsl, takes_models
from weft.frontends.federated.schema import PREDICT, FederatedJob, Party
from weft.model.errors import ConflictError, NotFoundError, UsageError
from weft.parties.http.ports import DeployedModel, ModelFilter, ModelRow
from weft.parties.model_store import BoundService, Deployment, ModelAbout, ModelStore, trained_version

if TYPE_CHECKING:
    from pathlib import Path

    from weft.parties.ledger import JobEntry
    from weft.parties.tags import ModelTag, ModelTags
    from weft.parties.work import PartyWork
    from weft.runtime.clock import WallClock

_FILTERED: Final = ("model_id", "model_version", "role", "party_id")
_PAGE: Final = 200
_DEPLOY: Final = "Deploy the model first: weft party deploy VERSION, or flow model deploy."


class SiteModels:
    """The models of one party. `me` is its id."""

    def __init__(self, me: str, work: PartyWork, store: ModelStore, tags: ModelTags, clock: WallClock) -> None:
        self._me, self._work, self._store, self._tags, self._clock = me, work, store, tags, clock

    # -------------------------------------------------------------------------------------------------- predictions

    def deploy(
        self,
        model_id: str,
        model_version: str,
        *,
        components: Sequence[str],
        dsl: Mapping[str, Any] | None,
        readers: bool = False,
    ) -> DeployedModel:
        """See `PartyModels.deploy`."""
        about = self.about(model_id, model_version)
        made = dict(dsl) if dsl else prediction_dsl(about.dsl, components, readers=readers)
        deployment = Deployment(made, self._clock.wall())

        def deployed(about: ModelAbout) -> ModelAbout:
            number = 1 + max((int(one.rpartition(".")[2]) for one in about.deployments), default=0)
            return replace(about, deployments={**about.deployments, f"{about.version}.{number}": deployment})

        version = list(self._store.change(about, deployed).deployments)[-1]
        parties = {role: dict.fromkeys(ids, 0) for role, ids in about.roles.items()}
        return DeployedModel(model_id=about.model_id, model_version=version, parties=parties)

    def predict_dsl(self, model_id: str, model_version: str) -> Mapping[str, Any]:
        """See `PartyModels.predict_dsl`."""
        return self.dsl_of(self.about(model_id, model_version), model_version)

    def predict_conf(self, model_id: str, model_version: str) -> Mapping[str, Any]:
        """See `PartyModels.predict_conf`."""
        about = self.about(model_id, model_version)
        dsl = self.dsl_of(about, model_version)
        return prediction_conf(about.conf, dsl, model_id=about.model_id, model_version=model_version)

    def complete(self, dsl: Mapping[str, Any], conf: Mapping[str, Any]) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """Return the DSL and the conf of a job with what a prediction takes from its model.

        Those of a training job stay as they are. As in FATE, a DSL that takes no models from the pipeline, such as that
        of the training job, gives way to the one of the model. UsageError: no version is named, or it has no DSL for
        predictions, or a party has no part of the model.
        """
        if job_type_of(conf) != PREDICT:
            return dsl, conf
        jobs = conf["job_parameters"]
        common = jobs.get("common", jobs)
        if common.get("service_id"):
            conf = self._of_service(conf)
            common = conf["job_parameters"].get("common", conf["job_parameters"])
        version = str(common.get("model_version") or "")
        if not version:
            raise UsageError(
                "a prediction needs the version of a model", hint="Set model_version (or service_id) in job_parameters."
            )
        about = self.about("" if dsl else str(common.get("model_id") or ""), version)
        dsl = dsl if takes_models(dsl) else self.dsl_of(about, version)
        found = merged_conf(about.conf, conf, dsl)
        _check_parties(found, about)
        return dsl, found

    def _of_service(self, conf: Mapping[str, Any]) -> dict[str, Any]:
        """Return a conf with the model of the service that it names. UsageError: it names a version, too."""
        found = deepcopy(dict(conf))
        common = found["job_parameters"].get("common", found["job_parameters"])
        service = str(common.pop("service_id"))
        if common.get("model_version"):
            raise UsageError("job_parameters have model_version and service_id", hint="Leave one of them out.")
        bound = self._store.services().get(service)
        if bound is None:
            raise NotFoundError(f"no model is bound to the service {service}", hint="Bind one: flow model bind")
        common |= {"model_id": bound.model_id, "model_version": bound.version}
        return found

    def dsl_of(self, about: ModelAbout, version: str) -> Mapping[str, Any]:
        """Return the DSL of a deployed version; files of version 1 know no deployment, so theirs is made."""
        if version in about.deployments:
            return about.deployments[version].dsl
        if version != about.version:
            raise NotFoundError(f"version {about.version} has no deployment {version}", hint=_DEPLOY)
        if any(one.get("module") == "Reader" for one in about.dsl["components"].values()):
            raise UsageError(f"version {version} of the model is not deployed", hint=_DEPLOY)
        return prediction_dsl(about.dsl)

    # ----------------------------------------------------------------------------------------------------- registry

    def query(self, which: ModelFilter) -> Sequence[ModelRow]:
        """See `PartyModels.query`."""
        kept = {one.version: one for one in self._store.all()}
        found: list[ModelRow] = []
        versions: set[str] = set()
        for about in self._trained(trained_version(which.model_version)):
            rows = [row for row in self._rows(kept.get(about.version, about)) if _fits(row, which)]
            found += rows
            versions |= {about.version} if rows else set()
            if which.limit and len(versions) >= which.limit:
                break  # all others are older
        for about in kept.values():
            if about.version not in versions:
                older = which.limit and not about.imported  # a deployed version may be newer than what has made it
                found += [row for row in self._rows(about) if _fits(row, which) and not (older and row.parent)]
        found.sort(key=lambda row: row.created_at, reverse=True)
        return found[: which.limit] if which.limit else found

    def _trained(self, version: str) -> Iterator[ModelAbout]:
        """Yield the models of jobs, newest first, or that of one version."""
        for entry in self._successes(version):
            if not self._store.has_made(entry.job, self._me):
                continue
            about = about_of(entry)
            if job_type_of(about.conf) != PREDICT:
                yield about

    def _successes(self, job: str) -> Iterator[JobEntry]:
        """Yield the jobs that have succeeded, newest first, or one of them; read in pages, for one may be enough."""
        if job:
            found = self._work.ledger.job(job)
            yield from [found] if found is not None and found.status == "success" else []
            return
        skip = 0
        while entries := self._work.ledger.jobs(status="success", limit=_PAGE, skip=skip):
            yield from entries
            skip += len(entries)

    def _rows(self, about: ModelAbout) -> Iterator[ModelRow]:
        services = self._store.services()
        for part in _parts_of(about):
            if part.id != self._me and not about.imported:
                continue  # other parties have theirs, unless it was migrated here
            files = self._store.files(about.version, part)
            if not files:
                continue
            row = ModelRow(
                model_id=about.model_id,
                model_version=about.version,
                role=part.role,
                party_id=part.id,
                roles=about.roles,
                job_id=about.version,
                nbytes=sum(path.stat().st_size for path in files.values()),
                created_at=about.created,
                tags=[tag.name for tag in self._tags.of_model(about.version)],
                loaded=about.loaded.get(about.version, 0),
                services=_bound_to(services, about.version),
                detail={"components": list(files), "imported": about.imported},
            )
            yield row
            for version, deployment in about.deployments.items():
                yield replace(
                    row,
                    model_version=version,
                    created_at=deployment.created,
                    parent=False,
                    parent_version=about.version,
                    tags=[tag.name for tag in self._tags.of_model(version)],
                    loaded=about.loaded.get(version, 0),
                    services=_bound_to(services, version),
                    detail={"components": list(deployment.dsl.get("components", {})), "imported": about.imported},
                )

    def about(self, model_id: str, version: str) -> ModelAbout:
        """Return what is known of a model by a version, and its id unless "". NotFoundError: there is none here."""
        trained = trained_version(version)
        about = self._store.about(trained)
        if about is None:
            try:
                entry = self._work.entry(trained)
            except NotFoundError:
                raise NotFoundError(
                    f"this party has no model of version {version}", hint="List them: weft party models"
                ) from None
            if entry.status != "success":
                raise UsageError(f"job {trained} is {entry.status}, so it has no complete model")
            about = about_of(entry)
        if model_id and model_id != about.model_id:
            raise NotFoundError(f"version {version} belongs to the model {about.model_id}, not to {model_id}")
        return about

    # ----------------------------------------------------------------------------------------------------- archives

    def pack(self, which: ModelFilter, folder: Path) -> Path:
        """See `PartyModels.pack`."""
        about = self.about(which.model_id, which.model_version)
        return self._store.pack(about, Party(which.role, which.party_id), folder)

    def unpack(self, which: ModelFilter, archive: Path, *, replace: bool) -> None:
        """See `PartyModels.unpack`."""
        manifest = self._store.read_manifest(archive)
        about = manifest.about
        for name, asked, found in (
            ("model_id", which.model_id, about.model_id),
            ("model_version", trained_version(which.model_version), about.version),
            ("role", which.role, manifest.role),
            ("party_id", which.party_id, manifest.party),
        ):
            if asked and asked != found:
                raise ConflictError(f"the archive has {name} {found!r}, and {asked!r} was asked for")
        if manifest.party != self._me:
            raise UsageError(
                f"the archive is that of party {manifest.party}, and this is party {self._me}",
                hint="Each party imports its own part.",
            )
        self._store.unpack(archive, manifest, replace=replace)

    # --------------------------------------------------------------------------------------------------------- tags

    def tags(self, name: str = "", *, limit: int = 0) -> Sequence[ModelTag]:
        """See `PartyModels.tags`."""
        return self._tags.all(name, limit=limit)

    def put_tag(self, name: str, description: str | None, *, new_name: str = "", create: bool) -> None:
        """See `PartyModels.put_tag`."""
        self._tags.put(name, description, new_name=new_name, create=create)

    def delete_tag(self, name: str) -> None:
        """See `PartyModels.delete_tag`."""
        self._tags.delete(name)

    def tag_model(self, version: str, tag: str, *, remove: bool = False) -> None:
        """See `PartyModels.tag_model`."""
        if remove:
            self._tags.take(version, tag)
        else:
            self._tags.give(version, tag)

    def model_tags(self, version: str) -> Sequence[ModelTag]:
        """See `PartyModels.model_tags`."""
        return self._tags.of_model(version)


def about_of(entry: JobEntry) -> ModelAbout:
    """Return what is known of the model of a job that has ended, from its files as JSON."""
    dsl, conf = json.loads(entry.dsl), json.loads(entry.conf)
    roles = {role: [str(id) for id in ids] for role, ids in conf["role"].items()}
    jobs = conf.get("job_parameters", {})
    given = jobs.get("common", jobs).get("model_id") if job_type_of(conf) == PREDICT else None
    return ModelAbout(
        version=entry.job,
        model_id=str(given or joined_model_id(roles)),
        roles=roles,
        dsl=dsl,
        conf=conf,
        created=entry.ended or entry.created,
    )


def model_id_of(job: FederatedJob) -> str:
    """Return the id of the model of a job, in the form of FATE; that of a prediction stands in its conf."""
    given = job.conf.parameters.get("model_id")
    if job.conf.job_type == PREDICT and given:
        return str(given)
    return joined_model_id(job.conf.roles)


def joined_model_id(roles: Mapping[str, Sequence[str]]) -> str:
    """Return the id of the model of these parties, in the form of FATE."""
    return "#".join([*(f"{role}-{'_'.join(ids)}" for role, ids in sorted(roles.items())), "model"])


def _fits(row: ModelRow, which: ModelFilter) -> bool:
    return all(getattr(which, name) in ("", getattr(row, name)) for name in _FILTERED)


def _check_parties(conf: Mapping[str, Any], about: ModelAbout) -> None:
    """UsageError: a guest or a host of a prediction did not take part in the training."""
    for role in (GUEST, HOST):
        for id in map(str, conf.get("role", {}).get(role) or ()):
            if id not in about.roles.get(role, ()):
                known = ", ".join(f"{role} {one}" for role, ids in about.roles.items() for one in ids)
                raise UsageError(
                    f"{role} {id} has no part of the model of version {about.version}",
                    hint=f"A prediction has the parties of the training: {known}.",
                )


def _parts_of(about: ModelAbout) -> list[Party]:
    return [Party(role, id) for role, ids in about.roles.items() for id in ids]


def _bound_to(services: Mapping[str, BoundService], version: str) -> list[str]:
    return sorted(name for name, one in services.items() if one.version == version)
