"""The writer of reports: the form follows the ending of the name of the file."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from weft.model.errors import NotFoundError, UsageError
from weft.runs.reports.facts import graph_of_run, report_run
from weft.store.state import os_error

if TYPE_CHECKING:
    from pathlib import Path

    from weft.runs.reading import RunRecord
    from weft.runs.reports.facts import OpenCache
    from weft.runs.sources import SourceHost

FORMS: Final = (".html", ".svg", ".mmd")
"""The endings of files of reports: a page, and the graph alone as a picture and in the language of Mermaid."""


def check_form(output: Path) -> None:
    """Check that the name of a file has the ending of a form of reports. UsageError: it has another one."""
    if output.suffix.lower() not in FORMS:
        raise UsageError(
            f"a report cannot be written to {output.name[:100]}: its ending tells the form",
            hint="Use .html (a page), .svg (the graph as a picture) or .mmd (the graph for Mermaid).",
        )


def write_report(run: RunRecord, host: SourceHost, now: float, open_cache: OpenCache, output: Path) -> None:
    """Write a report about a run to a file, complete or not at all; `now` is in seconds since 1970.

    UsageError: the ending is of no form. NotFoundError: the folder is missing. ForbiddenError, DiskFullError: the file
    cannot be written.
    """
    check_form(output)
    if not output.parent.is_dir():
        raise NotFoundError(f"there is no folder {output.parent}", hint="Make it first.")
    content = _content(run, host, now, open_cache, output).encode(errors="backslashreplace")
    draft = output.with_name(f".{output.name[:100]}.{os.getpid()}")
    try:
        try:
            with draft.open("xb") as file:
                file.write(content)
            draft.replace(output)
        finally:
            with suppress(FileNotFoundError):
                draft.unlink()
    except OSError as error:
        raise os_error(f"the report {output} cannot be written", error, "name another file with -o.") from None


def _content(run: RunRecord, host: SourceHost, now: float, open_cache: OpenCache, output: Path) -> str:
    form = output.suffix.lower()
    if form == ".html":
        from weft.runs.reports.page import run_page

        return run_page(report_run(run, host, now, open_cache), output.absolute().parent)
    if form == ".svg":
        from weft.runs.reports.picture import svg_graph
        from weft.runs.reports.style import GRAPH_STYLE

        return svg_graph(graph_of_run(run, host), GRAPH_STYLE)
    from weft.runs.reports.mermaid import mermaid_graph

    return mermaid_graph(graph_of_run(run, host))
