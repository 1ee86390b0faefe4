"""The models of a party: those that jobs have made here, by the folders of their components."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NoReturn

from weft.frontends.federated.schema import Party
from weft.model.errors import UsageError
from weft.parties.http.ports import DeployedModel, ModelFilter, ModelRow

if TYPE_CHECKING:
    from pathlib import Path

    from weft.parties.part_folders import PartFolders
    from weft.parties.tags import ModelTag, ModelTags
    from weft.parties.work import PartyWork

_NOT_YET: Final = "This version of Weft predicts with the model of a job by its model_version."


class SiteModels:
    """The models of one party."""

    def __init__(self, me: str, work: PartyWork, folders: PartFolders, tags: ModelTags) -> None:
        self._me, self._work, self._folders, self._tags = me, work, folders, tags

    def deploy(
        self, model_id: str, model_version: str, *, components: Sequence[str], dsl: Mapping[str, Any] | None
    ) -> DeployedModel:
        """See `PartyModels.deploy`."""
        _not_yet("models are not deployed")

    def predict_dsl(self, model_id: str, model_version: str) -> Mapping[str, Any]:
        """See `PartyModels.predict_dsl`."""
        _not_yet("the DSL of predictions is not made")

    def predict_conf(self, model_id: str, model_version: str) -> Mapping[str, Any]:
        """See `PartyModels.predict_conf`."""
        _not_yet("the conf of predictions is not made")

    def query(self, which: ModelFilter) -> Sequence[ModelRow]:
        """See `PartyModels.query`."""
        from weft.parties.jobs import model_id_of

        found = []
        for entry in self._work.ledger.jobs(status="success"):
            job = self._work.job(entry.job)
            for plan in job.parts:
                part, id = Party(plan.role, plan.id), model_id_of(job)
                if part.id != self._me or not self._has_model(entry.job, part):
                    continue
                row = ModelRow(
                    model_id=id,
                    model_version=entry.job,
                    role=part.role,
                    party_id=part.id,
                    roles=job.conf.roles,
                    job_id=entry.job,
                    created_at=entry.ended or entry.created,
                )
                if all(getattr(which, name) in ("", getattr(row, name)) for name in which.__struct_fields__):
                    found.append(row)
        return found

    def pack(self, which: ModelFilter, folder: Path) -> Path:
        """See `PartyModels.pack`."""
        _not_yet("models are not exported")

    def unpack(self, which: ModelFilter, archive: Path, *, replace: bool) -> None:
        """See `PartyModels.unpack`."""
        _not_yet("models are not imported")

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

    def _has_model(self, job: str, part: Party) -> bool:
        return any(self._folders.part(job, part).glob("*/*/model.json"))


def _not_yet(what: str) -> NoReturn:
    raise UsageError(f"{what} yet", hint=_NOT_YET)
