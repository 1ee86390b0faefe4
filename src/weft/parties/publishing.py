"""Models in use: which parties have loaded one, which answers to the id of a service, copies for other parties.

As in FATE a model is loaded at all its parties but the arbiter, bound at its initiator, and migrated where its parts
lie. Nothing is sent to FATE-Serving: a service is a name that predictions use in the place of a version.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from weft.frontends.federated.modules import ARBITER
from weft.frontends.federated.schema import Party
from weft.model.errors import ConflictError, NotFoundError, PartyIdentityError, PartyMessageError, UsageError, WeftError
from weft.parties.http.ports import ModelMigration, PublishedModel
from weft.parties.model_store import BoundService, ModelAbout, ModelStore
from weft.parties.models import SiteModels, joined_model_id

if TYPE_CHECKING:
    from weft.parties.peers import Peer
    from weft.runtime.clock import WallClock

MODEL_PATH: Final = "/model"
_MOST_NAME: Final = 128


class ModelMessage(Struct, frozen=True):
    """What a party of a model asks another one to do with a part: load it, or copy it by a migration."""

    model_id: str
    version: str
    part: Party
    migration: ModelMigration | None = None


_read_message: Final = msgspec.json.Decoder(ModelMessage).decode


class SitePublishing:
    """The models in use at one party. `reach(party, path, body)` returns the answer of another party."""

    def __init__(
        self,
        me: str,
        models: SiteModels,
        store: ModelStore,
        reach: Callable[[str, str, bytes], bytes],
        clock: WallClock,
    ) -> None:
        self._me, self._models, self._store, self._reach, self._clock = me, models, store, reach, clock

    # ------------------------------------------------------------------------------------------------ at its initiator

    def load(self, model_id: str, model_version: str) -> PublishedModel:
        """See `PartyPublishing.load`."""
        about = self._models.about(model_id, model_version)
        self._models.dsl_of(about, model_version)
        roles = {role: ids for role, ids in about.roles.items() if role != ARBITER}
        return self._all(roles, lambda part: ModelMessage(about.model_id, model_version, part))

    def bind(self, service: str, model_id: str, model_version: str) -> None:
        """See `PartyPublishing.bind`."""
        about = self._models.about(model_id, model_version)
        if not service.isprintable() or len(service) > _MOST_NAME:
            raise UsageError("service_id is no name", hint=f"Use at most {_MOST_NAME} characters.")
        if not about.loaded.get(model_version):
            raise ConflictError(
                f"version {model_version} was not loaded", hint="Load it first, at all its parties: flow model load"
            )
        self._store.bind(service, BoundService(about.model_id, model_version, self._clock.wall()))

    def migrate(self, asked: ModelMigration) -> PublishedModel:
        """See `PartyPublishing.migrate`."""
        about = self._models.about(asked.model_id, asked.model_version)
        _check_migration(asked, about)
        execute = {
            role: [one for one in ids if not asked.alone or one == self._me] for role, ids in asked.execute.items()
        }
        execute = {role: ids for role, ids in execute.items() if ids}
        if not execute:
            raise UsageError(
                "execute_party names no party that may copy its part",
                hint=f"Name party {self._me}, or set federated_mode to MULTIPLE.",
            )
        found = self._all(execute, lambda part: ModelMessage(about.model_id, about.version, part, asked))
        return replace(found, model_id=joined_model_id(asked.new_roles), model_version=asked.new_version)

    def _all(self, roles: Mapping[str, Sequence[str]], ask: Callable[[Party], ModelMessage]) -> PublishedModel:
        """Let each part do what it is asked, and return the answers."""
        found: dict[str, dict[str, str]] = {}
        for role, ids in roles.items():
            for id in ids:
                message, words = ask(Party(role, id)), ""
                try:
                    if id == self._me:
                        self._do(message)
                    else:
                        self._reach(id, MODEL_PATH, msgspec.json.encode(message))
                except WeftError as error:
                    words = error.message
                found.setdefault(role, {})[id] = words
        return PublishedModel(model_id=message.model_id, model_version=message.version, parties=found)

    # ------------------------------------------------------------------------------------------------- at each party

    def asked(self, peer: Peer, body: bytes) -> bytes:
        """Do what another party of a model asks. PartyIdentityError: it has no part in the model."""
        try:
            message = _read_message(body)
        except msgspec.MsgspecError as error:
            raise PartyMessageError(
                f"party {peer.id} has sent a message that is malformed: {error}", party=peer.id
            ) from None
        about = self._models.about(message.model_id, message.version)
        if all(peer.id not in ids for ids in about.roles.values()) or message.part.id != self._me:
            raise PartyIdentityError(
                f"party {peer.id} has no part in the model of version {about.version}", party=peer.id
            )
        self._do(message)
        return b""

    def _do(self, message: ModelMessage) -> None:
        about, part = self._models.about(message.model_id, message.version), message.part
        files = self._store.files(about.version, part)
        if part.id not in about.roles.get(part.role, ()) or not files:
            raise NotFoundError(f"{part} has no model of version {about.version}")
        if message.migration is None:
            version = message.version

            def counted(about: ModelAbout) -> ModelAbout:
                return replace(about, loaded={**about.loaded, version: about.loaded.get(version, 0) + 1})

            self._store.change(about, counted)
            return
        asked = message.migration
        _check_migration(asked, about)
        new = asked.new_roles[part.role][list(asked.roles[part.role]).index(part.id)]
        names = dict(zip(asked.roles.get("host", ()), asked.new_roles.get("host", ()), strict=True))
        models = {name: _renamed(msgspec.json.decode(path.read_bytes()), names) for name, path in files.items()}
        self._store.put(self._migrated(about, asked), Party(part.role, new), models)

    def _migrated(self, about: ModelAbout, asked: ModelMigration) -> ModelAbout:
        """Return what is known of a copy. Its deployed versions come along."""
        role, id = asked.initiator
        conf = {
            **about.conf,
            "initiator": {"role": role, "party_id": id},
            "role": {role: list(ids) for role, ids in asked.new_roles.items()},
        }
        return ModelAbout(
            version=asked.new_version,
            model_id=joined_model_id(asked.new_roles),
            roles={role: list(ids) for role, ids in asked.new_roles.items()},
            dsl=about.dsl,
            conf=conf,
            created=self._clock.wall(),
            imported=True,
            deployments={
                f"{asked.new_version}.{name.rpartition('.')[2]}": one for name, one in about.deployments.items()
            },
        )


def _check_migration(asked: ModelMigration, about: ModelAbout) -> None:
    """UsageError: the parties of a migration are not those of the model, or the new ones are not as many."""
    if {role: sorted(ids) for role, ids in asked.roles.items()} != {
        role: sorted(ids) for role, ids in about.roles.items()
    }:
        known = ", ".join(f"{role} {one}" for role, ids in about.roles.items() for one in ids)
        raise UsageError("role does not name the parties of the model", hint=f"They are: {known}.")
    for role, ids in asked.roles.items():
        if len(set(asked.new_roles.get(role, ()))) != len(ids):
            raise UsageError(
                f"migrate_role needs {len(ids)} different parties as {role}", hint="Name one for each party of role."
            )
    if set(asked.new_roles) != set(asked.roles):
        raise UsageError("migrate_role has other roles than role", hint="Give it the same roles.")
    for role, ids in asked.execute.items():
        for id in ids:
            if id not in asked.roles.get(role, ()):
                raise UsageError(f"execute_party names {role} {id}, which is not in role", hint="Use the present ids.")
    role, id = asked.initiator
    if id not in asked.new_roles.get(role, ()):
        raise UsageError(f"migrate_initiator {role} {id} is not in migrate_role", hint="Name one of the new parties.")


def _renamed(value: Any, hosts: Mapping[str, str]) -> Any:
    """Return a model with the new ids of hosts: in `parties` (the owners of splits) and as keys of `hosts`."""
    if isinstance(value, list):
        return [_renamed(one, hosts) for one in value]
    if not isinstance(value, dict):
        return value
    found = {name: _renamed(one, hosts) for name, one in value.items()}
    if isinstance(found.get("parties"), list):
        found["parties"] = [hosts.get(one, one) if isinstance(one, str) else one for one in found["parties"]]
    if isinstance(found.get("hosts"), dict):
        found["hosts"] = {hosts.get(name, name): one for name, one in found["hosts"].items()}
    return found
