"""Errors of DuckDB about a query as errors of Weft, with the line and the column of the mistake."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import duckdb

from weft.frontends.sql.expressions import literal
from weft.model.errors import DefinitionError, ForbiddenError, NotFoundError, OutOfMemoryError, SqlError, WeftError
from weft.model.suggestions import nearest

_PLACE: Final = re.compile(r"\n+LINE (\d+): (.*)\n( *)\^", re.DOTALL)
_CSV: Final = re.compile(r"CSV Error on Line: (\d+)\n(?:Original Line: [^\n]*\n)?([^\n]+)")
_CSV_FILE: Final = re.compile(r"^ +file = (.+)$", re.MULTILINE)
_SNIFFED: Final = re.compile(r'Error when sniffing file "([^"]*)"')
_JSON: Final = re.compile(r'JSON transform error in file "([^"]*)", in (?:line|record/value) (\d+): ([^\n]*)')
_OTHER_COLUMNS: Final = re.compile(
    r"Schema mismatch between globbed files\.\nMain file schema: ([^\n]+)\nCurrent file: ([^\n]+)\n"
    r'((?:Column with name: "[^\n]*" is missing\n)+)'
)
_MISSING: Final = re.compile(r'^Column with name: "(.*)" is missing$', re.MULTILINE)
_SUGGESTED: Final = re.compile(r"\n(Did you mean [^\n]+|Candidate [bt][^\n]+|Candidates:[^\n]+|Either add [^\n]+)")
_CANDIDATE: Final = re.compile(r"\n\t([^\n]+?\([^\n]*\)) -> ")
_SYNTAX: Final = re.compile(r'Parser Error: syntax error at (?:end of input|or near "([^\n]*)")')
_WORD: Final = re.compile(r"[^\W\d]\w*")
_KEYWORDS: Final = (
    "SELECT", "DISTINCT", "FROM", "WHERE", "GROUP", "HAVING", "ORDER", "LIMIT", "OFFSET", "UNION", "INTERSECT",
    "EXCEPT", "VALUES", "WITH", "RECURSIVE", "INNER", "OUTER", "LEFT", "RIGHT", "JOIN", "USING", "BETWEEN",
    "LIKE", "EXISTS", "CASE", "WHEN", "THEN", "ELSE", "WINDOW", "PARTITION", "QUALIFY", "INSERT", "INTO",
    "CREATE", "REPLACE", "TABLE",
)  # fmt: skip
_NAMED_NEXT: Final = re.compile(r"\b(?:FROM|JOIN|INTO|TABLE|VIEW)\s+\Z", re.IGNORECASE)
"""What stands before the name of a table."""
_NO_COLUMN: Final = re.compile(r'Values list ".*" does not have a column named')
_PREFIX: Final = re.compile(r'(?:\w+|"(?:[^"]|"")*")\s*\.\s*')
_SHOWN: Final = 4
"""The forms of a function in a hint, at most."""
_OF_ARROW: Final = re.compile(
    r"^(?:[A-Za-z ]+ Error: )?arrow_scan: get_next failed\(\): (?:\w+: )*?(?=[A-Z][A-Za-z ]* Error: )"
)
"""What stands before an error in the rows that another query reads."""
_NO_TABLE: Final = re.compile(r"Table with name \S+ does not exist")
_OWN_TABLE: Final = re.compile(r'"(?:pg_|duckdb_|sqlite_|information_schema|pragma_)')
"""Tables of DuckDB itself, which nobody has meant."""


@contextmanager
def keyboard_interrupts() -> Iterator[None]:
    """Raise the KeyboardInterrupt for which DuckDB has ended a query on the main thread: it raises a RuntimeError."""
    try:
        yield
    except RuntimeError as error:
        if isinstance(error.__cause__, KeyboardInterrupt):
            raise error.__cause__ from None
        raise


def mistake(
    error: Exception, text: str, *, first_line: int = 1, check: Callable[[str], str] | None = None
) -> WeftError:
    """Return the error of Weft for an error that DuckDB raised about the query `text`, which begins in `first_line`.

    `check` returns what DuckDB tells of another text, "" if nothing is wrong with it.
    """
    if isinstance(error, duckdb.PermissionException):
        return _forbidden(str(error), text)
    if isinstance(error, duckdb.OutOfMemoryException):
        hint = "Run it in stages, whose tasks hold a part of the rows each, or give it more: SqlContext(memory=...)."
        return OutOfMemoryError(f"the query ran out of memory: {_first(str(error))}", hint=hint)
    message, line, column, hint = _explained(str(error), text, first_line, check)
    return SqlError(message, line=line, column=column, hint=hint)


def _explained(
    message: str, text: str, first_line: int = 1, check: Callable[[str], str] | None = None
) -> tuple[str, int, int, str]:
    """Return what a message of DuckDB says, its line and its column in `text` (0: unknown), and a hint."""
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
    elif _SYNTAX.match(message):  # at the end of the text
        shown = text.rstrip()
        line, column = shown.count("\n") + 1, len(shown) - shown.rfind("\n")
    hint = _hint(message, text, line, column)
    if not hint and check is not None and _NO_COLUMN.match(_first(message)):
        hint = _columns_hint(text, line, column, check)
    if _NO_TABLE.match(_first(message)) and (not hint or _OWN_TABLE.search(hint)):
        hint = "Name its file: weft sql -t NAME=FILE, or weft.SqlContext().register(NAME, FILE)."
    return _first(message), line, max(column, 0), hint


def mistake_in_place(error: Exception, text: str, at: int, end: int, name: str) -> WeftError:
    """Return the error of Weft for an error about `text` that DuckDB got with `name` in place of `text[at:end]`."""
    if isinstance(error, duckdb.PermissionException):
        return _forbidden(str(error), text)
    message, line, column, hint = _explained(str(error), f"{text[:at]}{name}{text[end:]}")
    after = at - text.rfind("\n", 0, at) - 1 + len(name)
    if line == text.count("\n", 0, at) + 1 and column > after:
        column -= len(name) - (end - at)
    own = text[at:end].strip('"')
    return SqlError(message.replace(name, own), line=line, column=column, hint=hint.replace(name, own))


def _hint(message: str, text: str, line: int, column: int) -> str:
    """Return what to do about a mistake at a place of a text; "" if that is not known."""
    if (suggested := _SUGGESTED.search(message)) is not None:
        return suggested[1]
    if (wrong := _SYNTAX.match(message)) is not None:
        return _syntax_hint(text.split("\n"), line, column, wrong[1])
    if forms := _CANDIDATE.findall(message):
        more = f" and {len(forms) - _SHOWN} more" if len(forms) > _SHOWN else ""
        return f"Cast the values. There are: {', '.join(forms[:_SHOWN])}{more}."
    if (date := _integer_for_date(message, text)) is not None:
        return date
    if "WHERE clause cannot contain aggregates" in message:
        return "Write the condition behind HAVING."
    return ""


def _integer_for_date(message: str, text: str) -> str | None:
    """Return how to write a date, where one without quotes is compared with a date or a text."""
    if not _UNQUOTED_DATE.search(message):
        return None
    found = _BARE_DATE.search(_QUOTED.sub(lambda one: " " * len(one[0]), text))
    if found is None:
        return None
    year, month, day = map(int, found.groups())
    return f"{found[0]} is {year - month - day}, an integer: write DATE '{year}-{month:02}-{day:02}'."


_UNQUOTED_DATE: Final = re.compile(
    r"(?:types|values of type) .*INTEGER.*explicit cast is required|cast \(INTEGER -> (?:DATE|TIMESTAMP)"
    r"|Could not convert string '\d{4}-\d\d?-\d\d?[^']*' to INT"
)
"""The words of DuckDB for an integer where a date or a text is compared."""
_BARE_DATE: Final = re.compile(r"(?<![\w.-])(\d{4}) ?- ?(\d{1,2}) ?- ?(\d{1,2})(?![\w.-])")
_QUOTED: Final = re.compile(r"'(?:[^']|'')*'|--[^\n]*")


def _columns_hint(text: str, line: int, column: int, check: Callable[[str], str]) -> str:
    """Return the columns that a wrong column of a view or a subquery may mean; DuckDB tells them without a prefix."""
    lines = text.split("\n")
    before, here = lines[line - 1][: column - 1], lines[line - 1][column - 1 :]
    if (prefix := _PREFIX.match(here)) is None:
        return ""
    lines[line - 1] = before + here[prefix.end() :]
    found = _SUGGESTED.search(check("\n".join(lines)))
    return "" if found is None else found[1]


def _syntax_hint(lines: list[str], line: int, column: int, near: str | None) -> str:
    """Return a hint for a word that cannot stand where it does: the word before it may be a keyword gone wrong."""
    before = "\n".join([*lines[: line - 1], lines[line - 1][: column - 1]])
    if near is not None and _WORD.fullmatch(near) and _NAMED_NEXT.search(before):
        missing = "A name is missing here, or " if near.upper() in _KEYWORDS else ""
        return f'{missing}{near} is the name: a word of SQL is written in double quotes as a name, "{near}".'
    words = _WORD.findall(before)
    for word in [*words[-1:], *_WORD.findall(near or "")]:
        if word.upper() not in _KEYWORDS and (meant := nearest(word, _KEYWORDS)):
            return f"Did you mean {meant} and not {word}?"
    if near is None:
        return "The text ends too early: a bracket, a name or a condition is missing."
    return f"Look before {near}: a comma, a bracket, a quote or a word is missing, or one is too much."


def other_columns(name: str, file: str, other: str, missing: Sequence[str]) -> DefinitionError:
    """Return the error of a table of which a CSV file has columns that another one has not, maybe by their case."""
    return DefinitionError(
        f"the files of the table {name} have different columns: {file} has {', '.join(missing)}, and {other} has not",
        hint="Name the columns alike, with the same upper and lower case, or read the files by the text, in a "
        f"granted folder: FROM read_csv([{literal(file)}, {literal(other)}], union_by_name = true).",
    )


def unreadable(error: duckdb.Error, name: str) -> WeftError:
    """Return the error of Weft for files of a table that DuckDB cannot read."""
    if isinstance(error, duckdb.PermissionException):
        return _forbidden(str(error), "")
    if found := _OTHER_COLUMNS.search(str(error)):
        file, other, missing = found.groups()
        return other_columns(name, file, other, _MISSING.findall(missing))
    hint = "Check that the files are whole, of the type that their names tell, and that text is UTF-8."
    if found := _SNIFFED.search(str(error)):
        read = f"""FROM read_csv('{found[1]}', delim = ',', quote = '"')"""
        hint += f" Or tell their form by the text, in a granted folder: {read}."
    return DefinitionError(f"the table {name} cannot be read: {_first(str(error))}", hint=hint)


def _forbidden(message: str, text: str) -> ForbiddenError | NotFoundError:
    """Return the error of a query that reaches for files that were not granted or are gone; it names the function."""
    found = _FILE.search(message)
    if found is None:
        return ForbiddenError(f"the query may not do that: {_first(message)}", hint="Queries load no extensions.")
    path = found[1]
    inside = _INSIDE.fullmatch(path)
    if inside is not None and not os.path.exists(inside[1]):
        return NotFoundError(f"there is no file {inside[1]}", hint="It was there when its table was registered.")
    caller = re.search(rf"(\w+)\s*\(\s*\[?\s*'{re.escape(path)}'", text)
    folder = path.partition("*")[0].rpartition("/")[0] or "."
    return ForbiddenError(
        f"the query may not use {path}: {caller[1] if caller else 'it'} reaches only files that were granted",
        hint=f"Grant the folder: weft.SqlContext(allow=[{folder!r}]), or: weft sql --allow {folder} ... "
        "Or register the file as a table.",
    )


_INSIDE: Final = re.compile(r"(.+\.\w+)/\*\*/\*\.\w+")
"""Where DuckDB looks for a file that it may read and that is missing: it takes the name for that of a folder."""
_FILE: Final = re.compile(r'Cannot access (?:file|directory) "([^"]*)"')


def _first(message: str) -> str:
    """Return the first line of a message without the class of the error."""
    line = message.strip().split("\n", 1)[0]
    if found := _CSV.search(message):
        file = _CSV_FILE.search(message)
        line = f"{'a CSV file' if file is None else file[1]}, line {found[1]}: {found[2]}"
    elif found := _SNIFFED.search(message):
        line = f"{found[1]}: no separator, quotes and types were found with which all lines are rows"
    elif found := _JSON.search(message):
        line = f"{found[1]}, line {found[2]}: {found[3] or 'a value has not the type of its column'}"
    return re.sub(r"^[A-Za-z ]+ Error: ", "", _OF_ARROW.sub("", line)).rstrip("!.")
