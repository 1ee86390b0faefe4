"""The command that writes a run for archives and other programs: `weft export`."""

from __future__ import annotations

from pathlib import Path

from weft.cli.arguments import AsJson, Given, Where, service_of
from weft.cli.tables import clean, print_json, short_path


def export(
    run: str,
    /,
    *,
    output: Path | None = None,
    license: str = "",
    without_outputs: bool = False,
    logs: bool = False,
    as_json: AsJson = False,
    where: Where,
    context: Given,
) -> None:
    """Write a run of a pipeline as an RO-Crate: a folder, or a ZIP file, with files, digests and provenance."""
    service = service_of(context, where)
    name = service.find(run).name  # fixed here: @last may become another run
    place = context.cwd / (output or f"{name}.crate.zip")
    remarks = service.export(name, place, license=license, without_outputs=without_outputs, logs=logs)
    for remark in remarks:
        context.say(f"note: {clean(remark)}")
    if as_json:
        print_json(context.out, "weft.export/1", run=name, path=place)
        return
    context.out.write(f"{short_path(place, context.cwd)}\n")
