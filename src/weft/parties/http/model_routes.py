"""The routes `model/...`: deployment, prediction files, archives, tags, models in use, copies for other parties.

Nothing is published to FATE-Serving: the id of a service is a name for predictions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from weft.model.errors import NotFoundError, UsageError
from weft.parties.http.calls import HttpCall
from weft.parties.http.columns import model_columns, tag_columns
from weft.parties.http.envelope import FileReply, HttpReply, RetCode, not_offered
from weft.parties.http.groups import ARCHIVE, BOTH, FILE, HttpRoute, refusal
from weft.parties.http.job_routes import json_or_file
from weft.parties.http.ports import ModelFilter, ModelMigration

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.parties.http.ports import PartyPorts, PublishedModel
    from weft.parties.tags import ModelTag

_NO_SERVING: Final = (
    "Nothing is published to FATE-Serving. Predict with a job: flow model deploy, then flow job submit."
)
_AMONG: Final = "Servers of parties do that among themselves: call the route without /do."


def _filter(call: HttpCall, *, whole: bool = False) -> ModelFilter:
    names = ("model_id", "model_version", "role", "party_id")
    model, version, role, party = call.need_all(*names) if whole else [call.text(name) for name in names]
    return ModelFilter(model_id=model, model_version=version, role=role, party_id=party)


def deploy(ports: PartyPorts, call: HttpCall) -> HttpReply:
    """Make a model for predictions, of components (`cpn_list`), by a DSL, or of all that can predict.

    As in FATE, readers are left out unless they are named: its client refuses a deployed model with readers.
    """
    if call.mapping("components_checkpoint"):
        return not_offered("a deployment of checkpoints", "Deploy the model of the job without them.")
    dsl = call.mapping("predict_dsl", "dsl")
    found = ports.models.deploy(
        call.need("model_id"),
        call.need("model_version"),
        components=call.names("cpn_list"),
        dsl=dsl or None,
        readers=call.flag("readers"),
    )
    parties = {role: dict(codes) for role, codes in found.parties.items()}
    detail = {
        role: {party: {"retcode": code, "retmsg": "failed" if code else "success"} for party, code in codes.items()}
        for role, codes in parties.items()
    }
    data: dict[str, Any] = {"model_id": found.model_id, "model_version": found.model_version, "detail": detail}
    return HttpReply(data=data | parties)


def predict_dsl(ports: PartyPorts, call: HttpCall) -> HttpReply | FileReply:
    """Return the DSL of predictions; with `filename` as a file."""
    return json_or_file(call, dict(ports.models.predict_dsl(call.need("model_id"), call.need("model_version"))))


def predict_conf(ports: PartyPorts, call: HttpCall) -> HttpReply | FileReply:
    """Return a conf for predictions; with `filename` as a file."""
    return json_or_file(call, dict(ports.models.predict_conf(call.need("model_id"), call.need("model_version"))))


def query(ports: PartyPorts, call: HttpCall) -> HttpReply:
    """Return models; `query_filters` names the members to return."""
    wanted = call.names("query_filters")
    rows = [model_columns(one) for one in ports.models.query(_filter(call))]
    if not rows:
        raise NotFoundError("no model fits", hint="Give the model_version of a job that has ended at this party.")
    found = [{name: one.get(name) for name in wanted} if wanted else one for one in rows]
    return HttpReply(data=found)


def export(ports: PartyPorts, call: HttpCall) -> FileReply:
    """Return a model as an archive."""
    which = _filter(call, whole=True)
    assert call.scratch is not None
    path = ports.models.pack(which, call.scratch)
    name = f"{which.role}_{which.party_id}_{which.model_id}_{which.model_version}{path.suffix}"
    return FileReply(path=path, name=name, media="application/zip")


def import_model(ports: PartyPorts, call: HttpCall) -> HttpReply:
    """Take a model from an archive in the request."""
    if call.file is None:
        raise UsageError("the request has no file", hint="Send the archive as multipart/form-data, in the part file.")
    which = _filter(call, whole=True)
    ports.models.unpack(which, call.file, replace=call.flag("force_update"))
    names = ("model_id", "model_version", "role", "party_id")
    return HttpReply(data={name: getattr(which, name) for name in names})


def _published(call: HttpCall) -> tuple[str, str]:
    """Return the id ("": any) and the version of the model that a conf for `load` or `bind` names, or its job."""
    parameters = call.mapping("job_parameters")
    named = HttpCall(body=HttpCall(body=parameters).mapping("common") or parameters)
    version = named.text("model_version") or call.text("job_id")
    if not version:
        raise UsageError("the version of the model is missing", hint="Give job_parameters.model_version, or job_id.")
    return named.text("model_id"), version


def _answers(found: PublishedModel, data: dict[str, Any]) -> HttpReply:
    """Return the answers of the parties of a model."""
    wrong = [f"{role} {id}: {one}" for role, ids in found.parties.items() for id, one in ids.items() if one]
    codes = {
        role: {id: int(RetCode.EXCEPTION_ERROR if one else RetCode.SUCCESS) for id, one in ids.items()}
        for role, ids in found.parties.items()
    }
    detail = {
        role: {id: {"retcode": codes[role][id], "retmsg": one or "success"} for id, one in ids.items()}
        for role, ids in found.parties.items()
    }
    return HttpReply(
        retcode=RetCode.ARGUMENT_ERROR if wrong else RetCode.SUCCESS,
        retmsg="; ".join(wrong) or "success",
        data={"detail": detail, **codes, **data},
    )


def load(ports: PartyPorts, call: HttpCall) -> HttpReply:
    """Let each party of a deployed model check its part."""
    found = ports.publishing.load(*_published(call))
    return _answers(found, {"model_id": found.model_id, "model_version": found.model_version})


def bind(ports: PartyPorts, call: HttpCall) -> HttpReply:
    """Give a loaded model the id of a service, by which predictions find it."""
    service = call.need("service_id")
    ports.publishing.bind(service, *_published(call))
    return HttpReply(retmsg=f"service id is {service}")


def _parties(call: HttpCall, name: str) -> dict[str, list[str]]:
    """Return parties by role. UsageError: the argument has no lists of parties."""
    found = call.mapping(name)
    if not found or not all(
        isinstance(ids, list) and ids and all(isinstance(one, (int, str)) for one in ids) for ids in found.values()
    ):
        raise UsageError(f"{name} has no lists of parties", hint=f'Give "{name}": {{"guest": [1], "host": [2]}}.')
    return {role: [str(one) for one in ids] for role, ids in found.items()}


def migrate(ports: PartyPorts, call: HttpCall) -> HttpReply:
    """Copy a model for other parties, at the servers that have it."""
    model_id, version, new = call.need_all("model_id", "model_version", "unify_model_version")
    initiator = HttpCall(body=call.mapping("migrate_initiator"))
    role, id = initiator.need_all("role", "party_id")
    mode = HttpCall(body=call.mapping("job_parameters")).text("federated_mode", "SINGLE").upper()
    found = ports.publishing.migrate(
        ModelMigration(
            model_id=model_id,
            model_version=version,
            new_version=new,
            roles=_parties(call, "role"),
            new_roles=_parties(call, "migrate_role"),
            execute=_parties(call, "execute_party"),
            initiator=(role, id),
            alone=mode != "MULTIPLE",
        )
    )
    return _answers(found, {"model_id": found.model_id, "model_version": found.model_version})


def _of_job(ports: PartyPorts, call: HttpCall) -> str:
    """Return the version of the model of a job: it is the id of the job."""
    return call.need("job_id", "model_version")


def tag_model(ports: PartyPorts, call: HttpCall) -> HttpReply:
    """Give a tag to the model of a job."""
    ports.models.tag_model(_of_job(ports, call), call.need("tag_name"))
    return HttpReply(retmsg="success")


def untag_model(ports: PartyPorts, call: HttpCall) -> HttpReply:
    """Take a tag from the model of a job."""
    ports.models.tag_model(_of_job(ports, call), call.need("tag_name"), remove=True)
    return HttpReply(retmsg="success")


def _told(tags: Sequence[ModelTag]) -> dict[str, Any]:
    return {"tags": [tag_columns(one) for one in tags], "count": len(tags)}


def model_tags(ports: PartyPorts, call: HttpCall) -> HttpReply:
    """Return the tags of the model of a job."""
    return HttpReply(data=_told(ports.models.model_tags(_of_job(ports, call))))


def create_tag(ports: PartyPorts, call: HttpCall) -> HttpReply:
    """Create a tag."""
    name = call.need("tag_name")
    ports.models.put_tag(name, call.text("tag_desc"), create=True)
    return HttpReply(data=_told(ports.models.tags(name)))


def find_tag(ports: PartyPorts, call: HttpCall) -> HttpReply:
    """Return a tag; `with_model` adds the versions of its models."""
    name = call.need("tag_name")
    found = ports.models.tags(name)
    if not found:
        raise NotFoundError(f"there is no tag {name}", hint="List the tags: flow tag list")
    models = {"models": list(found[0].versions)} if call.flag("with_model") else {}
    return HttpReply(data=_told(found) | models)


def change_tag(ports: PartyPorts, call: HttpCall) -> HttpReply:
    """Change the name or the description of a tag."""
    name, new_name = call.need("tag_name"), call.text("new_tag_name")
    ports.models.put_tag(name, call.text("new_tag_desc") or None, new_name=new_name, create=False)
    return HttpReply(data=_told(ports.models.tags(new_name or name)))


def delete_tag(ports: PartyPorts, call: HttpCall) -> HttpReply:
    """Delete a tag; its models stay."""
    ports.models.delete_tag(call.need("tag_name"))
    return HttpReply()


def list_tags(ports: PartyPorts, call: HttpCall) -> HttpReply:
    """Return all tags, at most `limit`."""
    return HttpReply(data=_told(ports.models.tags(limit=max(call.number("limit", 0), 0))))


_REFUSED: Final = {
    "model/load/do": ("model/load/do", _AMONG),
    "model/transfer": ("model/transfer", _NO_SERVING),
    "model/homo/convert": ("model/homo/convert", "Read the model: flow component output-model"),
    "model/homo/deploy": ("model/homo/deploy", _NO_SERVING),
    "model/migrate/do": ("model/migrate/do", _AMONG),
    "model/store": ("a store of models in a database", "Export the model to a file: flow model export"),
    "model/restore": ("a store of models in a database", "Import the model from a file: flow model import"),
    "model/archive/packaging": ("model/archive/packaging", "Export the model: flow model export"),
    "model/service/register": ("model/service/register", _NO_SERVING),
}


ROUTES: Final = (
    HttpRoute("model/deploy", deploy),
    HttpRoute("model/get/predict/dsl", predict_dsl, FILE),
    HttpRoute("model/get/predict/conf", predict_conf, FILE),
    HttpRoute("model/load", load),
    HttpRoute("model/bind", bind),
    HttpRoute("model/migrate", migrate),
    HttpRoute("model/query", query),
    HttpRoute("model/query/detail", query),
    HttpRoute("model/export", export, FILE, BOTH),
    HttpRoute("model/import", import_model, ARCHIVE),
    HttpRoute("model/model_tag/create", tag_model),
    HttpRoute("model/model_tag/remove", untag_model),
    HttpRoute("model/model_tag/retrieve", model_tags),
    HttpRoute("model/tag/create", create_tag),
    HttpRoute("model/tag/retrieve", find_tag),
    HttpRoute("model/tag/update", change_tag),
    HttpRoute("model/tag/destroy", delete_tag),
    HttpRoute("model/tag/list", list_tags),
    *(refusal(path, what, instead) for path, (what, instead) in _REFUSED.items()),
)
