"""Routes that belong to no job and no table: versions, what a job depends on, grants, providers, cores, keys."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from weft._version import __version__
from weft.model.errors import UsageError
from weft.parties.http.calls import HttpCall
from weft.parties.http.envelope import HttpReply, not_offered
from weft.parties.http.groups import FILE, HttpRoute, refusal
from weft.parties.http.job_routes import part_of

if TYPE_CHECKING:
    from weft.parties.http.ports import PartyPorts

API_VERSION: Final = "v1"
FATE_VERSION, FLOW_VERSION = "1.11.4", "1.11.2"
"""The versions of FATE whose routes these are: clients ask for them."""
_POLICY: Final = "Roles, commands and components are allowed in the policy file of the site."


def versions(ports: PartyPorts, call: HttpCall) -> HttpReply:
    """Return one version, or all."""
    found = {
        "API": API_VERSION,
        "FATE": FATE_VERSION,
        "FATEFlow": FLOW_VERSION,
        "WEFT": __version__,
        "PYTHON": platform.python_version(),
    }
    module = call.text("module")
    return HttpReply(data={module: found.get(module)} if module else found)


def set_federated_id(ports: PartyPorts, call: HttpCall) -> HttpReply:
    """Refuse to change the identity of the site."""
    return not_offered("version/set", "The identity of a site is its certificate.")


def dependency(ports: PartyPorts, call: HttpCall) -> HttpReply:
    """Return the components of a job in topological order, and what each needs."""
    graph = ports.jobs.graph(part_of(call))
    return HttpReply(
        data={
            "component_list": list(graph.components),
            "dependencies": {name: [dict(one) for one in needed] for name, needed in graph.dependencies.items()},
            "component_module": dict(graph.modules),
            "component_need_run": dict(graph.runs),
        }
    )


def _datasets(call: HttpCall) -> Iterator[tuple[str, str]]:
    found = call.body.get("dataset")
    if found == "*":
        yield "*", "*"
        return
    for one in found if isinstance(found, list) else [found]:
        if not isinstance(one, dict):
            raise UsageError("dataset is not an object", hint='Give {"namespace": ..., "name": ...}, a list, or "*".')
        given = HttpCall(body=one)
        yield given.need("namespace"), given.need("name", "table_name")


def grant(ports: PartyPorts, call: HttpCall) -> HttpReply:
    """Grant tables to a party."""
    return _change(ports, call, give=True)


def revoke(ports: PartyPorts, call: HttpCall) -> HttpReply:
    """Take grants of tables back."""
    return _change(ports, call, give=False)


def _change(ports: PartyPorts, call: HttpCall, *, give: bool) -> HttpReply:
    if "dataset" not in call.body:
        return not_offered("a grant of anything but tables", f"Give party_id and dataset. {_POLICY}")
    party = call.need("party_id")
    for namespace, name in _datasets(call):
        (ports.tables.grant if give else ports.tables.revoke)(namespace, name, party)
    return HttpReply()


def grants(ports: PartyPorts, call: HttpCall) -> HttpReply:
    """Return the tables that are granted to a party."""
    found = ports.tables.grants(call.need("party_id", "src_party_id"))
    return HttpReply(data={"component": [], "dataset": [{"namespace": one, "name": two} for one, two, _ in found]})


def providers(ports: PartyPorts, call: HttpCall) -> HttpReply:
    """Return the one provider of components, with what can run."""
    name = call.text("name", "weft")
    if name != "weft":
        return HttpReply(data={name: {}})
    return HttpReply(data={"weft": {__version__: {"components": list(ports.modules), "path": ""}}})


def components(ports: PartyPorts, call: HttpCall) -> HttpReply:
    """Return the modules that can run here."""
    return HttpReply(data={one: {"default_provider": "weft", "versions": [__version__]} for one in ports.modules})


def cores(ports: PartyPorts, call: HttpCall) -> HttpReply:
    """Return the cores of this party and the jobs that hold them."""
    found = ports.jobs.cores()
    engine = {"f_engine_name": "WEFT", "f_cores": found.total, "f_remaining_cores": found.free}
    jobs: list[dict[str, Any]] = [
        {"job_id": job, "role": role, "party_id": party, "resource_in_use": count}
        for job, role, party, count in found.holders
    ]
    return HttpReply(data={"computing_engine_resource": engine, "use_resource_job": jobs})


_REFUSED: Final = {
    "provider/register": ("another provider of components", "Weft runs its own; see docs/federated.md."),
    "forward/{name}": ("a relay to services of other parties", "Parties of Weft speak to each other alone."),
    "forward/{name}/do": ("a relay to services of other parties", "Parties of Weft speak to each other alone."),
    "component/validate": ("component/validate", "Check the files of a job with `weft plan CONF --dsl DSL`."),
    "component/hetero/merge": ("the merge of models of several parties", "No party of Weft sees another's model."),
    "component/woe_array/extract": ("component/woe_array/extract", "Read the model: flow component output-model"),
    "component/woe_array/merge": ("component/woe_array/merge", "Train the binning again with the bins you want."),
    "resource/return": ("resource/return", "Cores come back by themselves when a job ends or its server is gone."),
    "server/reload": ("server/reload", "Start the server of the party again."),
    "server/service/get": ("a registry of services", "Weft needs none."),
    "key/public/save": ("key/public/save", "Partners are known by certificate; see docs/federated.md."),
    "key/public/delete": ("key/public/delete", "Partners are known by certificate; see docs/federated.md."),
    "key/query": ("key/query", "Partners are known by certificate; see docs/federated.md."),
    "checkpoint/list": ("the list of checkpoints", "A task that is run again goes on by itself."),
    "checkpoint/get": ("a checkpoint", "A task that is run again goes on by itself."),
}


def template(ports: PartyPorts, call: HttpCall) -> HttpReply:
    """Refuse templates of files."""
    return not_offered("a template of files", "Take a conf of FATE's examples, or one of docs/federated.md.")


ROUTES: Final = (
    HttpRoute("version/get", versions),
    HttpRoute("server/version/get", versions),
    HttpRoute("server/info", versions),
    HttpRoute("version/set", set_federated_id),
    HttpRoute("pipeline/dag/dependency", dependency),
    HttpRoute("permission/grant", grant),
    HttpRoute("permission/delete", revoke),
    HttpRoute("permission/query", grants),
    HttpRoute("permission/grant/privilege", grant),
    HttpRoute("permission/delete/privilege", revoke),
    HttpRoute("permission/query/privilege", grants),
    HttpRoute("provider/get", providers),
    HttpRoute("provider/{name}/get", providers),
    HttpRoute("component/get", components),
    HttpRoute("resource/query", cores),
    HttpRoute("template/download", template, FILE),
    *(refusal(path, what, instead) for path, (what, instead) in _REFUSED.items()),
)
