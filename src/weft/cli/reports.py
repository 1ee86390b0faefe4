"""The command that writes a report about a run: `weft report`."""

from __future__ import annotations

from pathlib import Path

from weft.cli.arguments import AsJson, Given, Where, service_of
from weft.cli.tables import print_json, short_path


def report(
    run: str,
    /,
    *,
    output: Path | None = None,
    as_json: AsJson = False,
    where: Where,
    context: Given,
) -> None:
    """Write a run as one HTML page that works offline, or its graph as SVG or Mermaid."""
    service = service_of(context, where)
    name = service.find(run).name  # fixed here: @last may become another run
    path = context.cwd / (output or f"{name}.html")
    service.report(name, path)
    if as_json:
        print_json(context.out, "weft.report/1", run=name, path=path)
        return
    context.out.write(f"{short_path(path, context.cwd)}\n")
