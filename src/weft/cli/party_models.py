"""The commands of `weft party` about models: models, deploy, export-model, import-model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

from weft.cli.arguments import AsJson, Given
from weft.cli.parsing import CommandParameter
from weft.cli.parties import Folder, party_app, site_of
from weft.cli.party_jobs import client_of, file_to_write
from weft.cli.tables import clean, moment, one_line, print_json, print_table
from weft.model.errors import ConflictError, NotFoundError, UsageError
from weft.model.wording import size_text

if TYPE_CHECKING:
    from weft.cli.context import CommandContext
    from weft.parties.client import SiteClient

_HEADLINES: Final = ("auc", "r2_score", "accuracy", "adjusted_rand_score", "davies_bouldin_index")
Version = Annotated[str, CommandParameter(help="A version of a model: the id of its job, or a deployed one.")]
Role = Annotated[str, CommandParameter(help="The role of this party, if it has several in the job.")]


@party_app.command
def models(
    version: Annotated[str, CommandParameter(help="Show this version in full.")] = "",
    /,
    *,
    number: Annotated[int, CommandParameter(name=["-n", "--number"], help="List at most this many; 0: all.")] = 20,
    as_json: AsJson = False,
    folder: Folder = None,
    context: Given,
) -> None:
    """List the models of the party, newest first, or show one version."""
    if number < 0:
        raise UsageError(f"--number is {number}; it must be 0 or more")
    client = client_of(context, folder)
    found = _models(client, version) if version else client.post("weft/models", {"limit": number})
    if as_json:
        print_json(context.out, "weft.party.models/2", models=found)
        return
    if version:
        for one in found:
            _print_model(context, one)
        return
    rows = [
        (
            one_line(one["version"], 60),
            one["kind"],
            one["role"],
            moment(one["created"]),
            _headline(one["metrics"]),
            size_text(one["bytes"]),
            one_line(", ".join(one["components"]), 60),
            one_line(", ".join([*one["tags"], *(f"service {name}" for name in one["services"])]), 40),
        )
        for one in found
    ]
    heads = ("VERSION", "KIND", "ROLE", "CREATED", "MEASURED", "SIZE", "COMPONENTS", "TAGS")
    print_table(context.console(), heads, rows)
    if not found:
        context.say("the party has no models: they come from jobs that train, see weft party jobs")
    elif len(found) == number:
        context.say(f"showing {number}; all: weft party models -n 0")


def _print_model(context: CommandContext, one: dict[str, Any]) -> None:
    parties = ", ".join(f"{role} {id}" for role, ids in one["parties"].items() for id in ids)
    lines = {
        "version": one["version"],
        "kind": one["kind"],
        "from job": one["job"],
        "model": one["model_id"],
        "here": f"{one['role']} {one['party']}",
        "parties": parties,
        "created": moment(one["created"]),
        "size": size_text(one["bytes"]),
        "components": ", ".join(one["components"]),
        "tags": ", ".join(one["tags"]),
        "services": ", ".join(one["services"]),
        **{name: f"{value:.6g}" for name, value in one["metrics"].items()},
    }
    width = max(map(len, lines))
    for name, value in lines.items():
        if value:
            context.out.write(f"{one_line(name, 60):{width}}  {one_line(value, 400)}\n")
    context.out.write("\n")


def _headline(metrics: dict[str, float]) -> str:
    """Return the figure that tells most of a model: of its last evaluation, in validation rather than in training."""
    for wanted in _HEADLINES:
        for kind in ("validate", "train"):
            for name, value in reversed(metrics.items()):
                namespace, _, figure = name.partition(" ")[2].rpartition(" ")
                if (namespace.partition("/")[0], figure) == (kind, wanted):
                    return f"{namespace} {wanted} {value:.4g}"
    return ""


@party_app.command
def deploy(
    version: Version,
    /,
    *components: Annotated[str, CommandParameter(help="What a prediction runs; all that can predict by default.")],
    conf: Annotated[
        Path | None, CommandParameter(name="--conf", help="Write a conf for predictions into this new file.")
    ] = None,
    folder: Folder = None,
    context: Given,
) -> None:
    """Make a version of a model that predicts, and print it."""
    client = client_of(context, folder)
    if conf is not None:
        _new_file(context, conf)
    model = _model(client, version, "")
    body = {"model_id": model["model_id"], "model_version": version, "cpn_list": list(components), "readers": 1}
    made = str(client.post("model/deploy", body)["model_version"])
    context.out.write(f"{made}\n")
    if conf is not None:
        found = client.post("model/get/predict/conf", body | {"model_version": made})
        (context.cwd / conf).write_text(json.dumps(found, indent=2) + "\n")
        context.say(f"Name the tables in {conf}, then: weft party submit {conf}")


@party_app.command(name="export-model")
def export_model(
    version: Version,
    file: Annotated[Path, CommandParameter(help="The archive to write, a ZIP file.")],
    /,
    *,
    role: Role = "",
    folder: Folder = None,
    context: Given,
) -> None:
    """Write this party's part of a model to an archive."""
    client, path = client_of(context, folder), _new_file(context, file)
    client.download("model/export", _names(_model(client, version, role)), path)
    context.out.write(f"{clean(str(file))}\n")


@party_app.command(name="import-model")
def import_model(
    version: Version,
    file: Annotated[Path, CommandParameter(help="An archive that this party has exported.")],
    /,
    *,
    model: Annotated[str, CommandParameter(name="--model", help="The id of the model.")],
    role: Annotated[str, CommandParameter(help="The role of this party in the model.")],
    replace: Annotated[bool, CommandParameter(help="Replace a model of this version.")] = False,
    folder: Folder = None,
    context: Given,
) -> None:
    """Take this party's part of a model from an archive."""
    path = context.cwd / file
    if not path.is_file():
        raise NotFoundError(f"there is no file {file}")
    names = {"model_id": model, "model_version": version, "role": role, "party_id": site_of(context, folder).party.id}
    client_of(context, folder).upload(path, names | {"force_update": int(replace)}, "model/import")
    context.out.write(f"{clean(version)}\n")


def _new_file(context: CommandContext, file: Path) -> Path:
    """Return the path of a file that a command makes. ConflictError: it exists. NotFoundError: its folder does not."""
    path = file_to_write(context, file)
    if path.exists() or path.is_symlink():
        raise ConflictError(f"{file} exists already", hint="Name another file: this command writes it.")
    return path


def _models(client: SiteClient, version: str) -> list[dict[str, Any]]:
    """Return the models of a version, one for each role. NotFoundError: there is none.

    One that another party has deployed has the part of its training here.
    """
    from weft.parties.model_store import trained_version  # most commands never need it

    for name in dict.fromkeys((version, trained_version(version))):
        found: list[dict[str, Any]] = client.post("weft/models", {"model_version": name})
        if found:
            return found
    raise NotFoundError(f"this party has no model of version {version}", hint="List them: weft party models")


def _model(client: SiteClient, version: str, role: str) -> dict[str, Any]:
    """Return the model of a version. UsageError: this party has it in several roles, and none is named."""
    found = [one for one in _models(client, version) if role in ("", one["role"])]
    if not found:
        raise NotFoundError(f"this party has no model of version {version} as {role}")
    if len({one["role"] for one in found}) > 1 and not role:
        found = [one for one in found if one["role"] == "guest"]
        if not found:
            raise UsageError(f"this party has version {version} in several roles", hint="Name one with --role.")
    return found[0]


def _names(model: dict[str, Any]) -> dict[str, Any]:
    names = {"model_id": "model_id", "model_version": "version", "role": "role", "party_id": "party"}
    return {name: model[field] for name, field in names.items()}
