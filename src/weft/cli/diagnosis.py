"""The commands that examine the installation: `weft doctor`, `weft config show` and `weft errors`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Final

from weft.cli.arguments import (
    AsJson,
    Given,
    Project,
    Where,
    service_of,
    settings_of,
)
from weft.cli.parsing import CommandParameter
from weft.cli.tables import clean, one_line, print_json, print_table
from weft.model.records import as_dict

if TYPE_CHECKING:
    from weft.admin.settings import Settings


def doctor(
    *,
    full: Annotated[bool, CommandParameter(help="Read each file of the cache again.")] = False,
    as_json: AsJson = False,
    where: Where,
    context: Given,
) -> int:
    """Check the files of Weft on disk, and print the next step for each problem."""
    findings = service_of(context, where).examine(full=full)
    ill = any(finding.problem for finding in findings)
    if as_json:
        print_json(context.out, "weft.doctor/1", findings=[as_dict(finding) for finding in findings], well=not ill)
        return int(ill)
    for finding in findings:
        symbol = "✘" if finding.problem else "!" if finding.hint else "✔"
        context.out.write(f"{symbol} {one_line(finding.what, 400)}\n")
        for line in (finding.problem, finding.hint):
            if line:
                context.out.write(f"    {one_line(line, 400)}\n")
    return int(ill)


def config_show(
    *,
    origin: Annotated[bool, CommandParameter(name="--origin", help="Show the origin of each value.")] = False,
    as_json: AsJson = False,
    project: Project = None,
    context: Given,
) -> None:
    """Show the settings in force."""
    from weft.admin.notices import shown_notify
    from weft.admin.settings import NAMES

    settings = settings_of(context, context.cwd / (project or ""), {})
    values = {name: getattr(settings, name) for name in NAMES}
    values["notify"] = shown_notify(settings.notify)
    if as_json:
        origins = {name: as_dict(settings.origin(name)) for name in NAMES}
        found = {
            name: {"value": value, **({"origin": origins[name]} if origin else {})} for name, value in values.items()
        }
        print_json(context.out, "weft.config/1", settings=found)
        return
    heads = ("SETTING", "VALUE", "ORIGIN") if origin else ("SETTING", "VALUE")
    rows = [
        (name, _shown(name, value, settings), *([clean(str(settings.origin(name)))] if origin else []))
        for name, value in values.items()
    ]
    print_table(context.console(), heads, rows)


_AUTOMATIC: Final[Mapping[str, Callable[[Settings], str]]] = {
    "workers": lambda settings: f"{settings.worker_count} (the number of cores)",
    "memory": lambda _: "half of the memory",
    "stream_window": lambda _: "64 MiB, or a sixteenth of the memory if less",
    "gpus": lambda _: "those that are found, for training jobs",
    "gpu_type": lambda _: "not set",
    "cluster": lambda _: "that of RAY_ADDRESS, else on this machine",
    "env": lambda _: "not set",
    "working_dir": lambda _: "not set",
    "storage": lambda _: "not set: machines share a folder",
    "spill": lambda _: "in the state folder",
    "state_dir": lambda _: "beside the project, or of the user",
    "priority": lambda _: "that of the job file",
    "queue": lambda _: "that of the job file",
    "keep_last": lambda _: "all runs",
    "notify": lambda _: "nowhere",
    "user": lambda settings: f"{settings.user_name} (the logged-in user)",
}
"""The meaning of settings that are 0, empty or not set."""


def _shown(name: str, value: object, settings: Settings) -> str:
    if value is None or value == "" or (value == 0 and not isinstance(value, bool)):
        return clean(_AUTOMATIC[name](settings))
    return str(value).lower() if isinstance(value, bool) else clean(str(value))


def errors(
    code: Annotated[str | None, CommandParameter(help="A code such as WEFT202; without one, print the list.")] = None,
    /,
    *,
    as_json: AsJson = False,
    context: Given,
) -> None:
    """Explain an error code."""
    from weft.cli.explain import document, explain, kind_of, kinds, list_codes

    if as_json:
        documents = [document(kind) for kind in ([kind_of(code)] if code is not None else kinds())]
        text = {} if code is None else {"text": explain(code)}
        print_json(context.out, "weft.errors/1", errors=[{**one, **text} for one in documents])
        return
    context.out.write(list_codes() if code is None else explain(code))
