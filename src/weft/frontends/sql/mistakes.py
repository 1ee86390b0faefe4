"""Errors of DuckDB about a query as errors of Weft, with the line and the column of the mistake."""

from __future__ import annotations

import re
from typing import Final

import duckdb

from weft.model.errors import DefinitionError, ForbiddenError, SqlError, WeftError

_PLACE: Final = re.compile(r"\n+LINE (\d+): (.*)\n( *)\^", re.DOTALL)
_CSV: Final = re.compile(r"CSV Error on Line: (\d+)\n(?:Original Line: [^\n]*\n)?([^\n]+)")
_CSV_FILE: Final = re.compile(r"^ +file = (.+)$", re.MULTILINE)
_SUGGESTED: Final = re.compile(r"\n(Did you mean [^\n]+|Candidate [^\n]+|Candidates:[^\n]+|You might need [^\n]+)")
_NO_TABLE: Final = re.compile(r"Table with name \S+ does not exist")
_OWN_TABLE: Final = re.compile(r'"(?:pg_|duckdb_|sqlite_|information_schema|pragma_)')
"""Tables of DuckDB itself, which nobody has meant."""


def mistake(error: duckdb.Error, text: str, *, first_line: int = 1) -> WeftError:
    """Return the error of Weft for an error that DuckDB raised about the query `text`, which begins in `first_line`."""
    message = str(error)
    if isinstance(error, duckdb.PermissionException):
        return _forbidden(message, text)
    place = _PLACE.search(message)
    line = column = 0
    if place is not None:
        line = int(place[1]) - first_line + 1
        prefix = len(f"LINE {place[1]}: ")
        shown = place[2].split("\n")[-1]
        column = len(place[3]) - prefix + 1
        lines = text.split("\n")
        if shown.startswith("...") and line <= len(lines):
            column += lines[line - 1].find(shown.removeprefix("...").removesuffix("...")) - 3
        message = message[: place.start()]
    suggested = _SUGGESTED.search(message)
    hint = suggested[1] if suggested else ""
    if _NO_TABLE.match(_first(message)) and (not hint or _OWN_TABLE.search(hint)):
        hint = "Name its file: weft sql -t NAME=FILE, or weft.SqlContext().register(NAME, FILE)."
    return SqlError(_first(message), line=line, column=max(column, 0), hint=hint)


def unreadable(error: duckdb.Error, name: str) -> WeftError:
    """Return the error of Weft for files of a table that DuckDB cannot read."""
    if isinstance(error, duckdb.PermissionException):
        return _forbidden(str(error), "")
    hint = "Check that the files are whole, of the type that their names tell, and that text is UTF-8."
    return DefinitionError(f"the table {name} cannot be read: {_first(str(error))}", hint=hint)


def _forbidden(message: str, text: str) -> ForbiddenError:
    """Return the error of a query that reaches for files that were not granted; it names the function."""
    found = _FILE.search(message)
    if found is None:
        return ForbiddenError(f"the query may not do that: {_first(message)}", hint="Queries load no extensions.")
    path = found[1]
    caller = re.search(rf"(\w+)\s*\(\s*\[?\s*'{re.escape(path)}'", text)
    folder = path.partition("*")[0].rpartition("/")[0] or "."
    return ForbiddenError(
        f"the query may not use {path}: {caller[1] if caller else 'it'} reaches only files that were granted",
        hint=f"Grant the folder: weft.SqlContext(allow=[{folder!r}]), or: weft sql --allow {folder} ... "
        "Or register the file as a table.",
    )


_FILE: Final = re.compile(r'Cannot access (?:file|directory) "([^"]*)"')


def _first(message: str) -> str:
    """Return the first line of a message without the class of the error."""
    line = message.strip().split("\n", 1)[0]
    if found := _CSV.search(message):
        file = _CSV_FILE.search(message)
        line = f"{'a CSV file' if file is None else file[1]}, line {found[1]}: {found[2]}"
    return re.sub(r"^[A-Za-z ]+ Error: ", "", line).rstrip("!.")
