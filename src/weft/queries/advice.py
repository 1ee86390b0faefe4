"""What to do about errors of queries whose cause is not in the text alone: parameters, variables, and files."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

from weft.model.errors import SqlError, WeftError
from weft.model.wording import counted, type_of

_UNBOUND: Final = re.compile(r"Values were not provided for the following prepared statement parameters: (.+)")
_EXCESS: Final = re.compile(r"Parameter argument/count mismatch, identifiers of the excess parameters: (.+)")
_NO_TABLE: Final = re.compile(r"Table with name (\w+) does not exist")
DIFFERENT_FILES: Final = "Schema mismatch between globbed files"
"""The words of DuckDB for files of one table that have different columns."""
_MISFIT: Final = re.compile(r"^(.*\.(?:csv|tsv|json\w*|ndjson)(?:\.gz)?), line \d+: (.*)", re.IGNORECASE | re.DOTALL)
"""What `mistake` tells of a row of a file that has not the columns or types of the rows before it."""


Variables: TypeAlias = Callable[[str], Any]
"""Returns the variable of the caller of a name; None if there is none."""


def no_variable(_name: str) -> None:
    """Return None, where the caller's variables are not known."""


def advised(error: WeftError, variable: Variables = no_variable) -> WeftError:
    """Return the error of a query with what to do about it; `variable` returns a variable of the caller."""
    if not isinstance(error, SqlError):
        return error
    if found := _UNBOUND.search(error.message):
        return _unbound(error, found[1].split(", "))
    if found := _EXCESS.search(error.message):
        return _excess(error, found[1].split(", "))
    if DIFFERENT_FILES in error.message:
        hint = (
            "Name them in the text, in a granted folder: FROM read_csv('data/*.csv', union_by_name = true), or with "
            "read_json or read_parquet."
        )
        return _with(error, "the files of a table have different columns", hint)
    if misfit_hint(message := error.message.removeprefix("query: ")):
        return _with(error, message, misfit_hint(message))
    if (found := _NO_TABLE.search(error.message)) and (value := variable(found[1])) is not None:
        hint = "A table is an Arrow table, a data frame of pandas or Polars, or a query: make one of the values."
        return _with(error, f"{found[1]} is a variable, and {type_of(value)} is no table", hint)
    return error


def misfit_hint(message: str) -> str:
    """Return how to read a file with a row that has not what the sample of its rows has; "" for another error."""
    if "reached an invalid state" in message:
        return (
            "A line of a CSV file ends in another way than those before it (\\n or \\r\\n), or has a quote inside a "
            "value: correct it, or read the file by the text, in a granted folder: "
            "FROM read_csv('FILE', strict_mode = false)."
        )
    found = _MISFIT.search(message)
    if found is None:
        return ""
    file, what = found[1], found[2]
    reader = "read_json" if "json" in file.lower().rpartition("/")[2] else "read_csv"
    others = "columns = {...}" if reader == "read_json" else "types = {'COLUMN': 'VARCHAR'}"
    if "Number of Columns" in what:
        return (
            "Correct the line, or read the file by the text, in a granted folder: "
            f"FROM read_csv('{file}', null_padding = true) gives NULL for missing values, and ignore_errors = true "
            "leaves the line out."
        )
    if "duplicate key" in what:
        return (
            "Correct the line: an object has each of its keys once. Or read objects as texts, in a granted folder: "
            f"SELECT json->>'KEY' FROM read_json_objects('{file}')."
        )
    if "unicode" in what:
        return (
            "Write the file as UTF-8, or name its encoding by the text, in a granted folder: "
            f"FROM {reader}('{file}', encoding = 'latin-1')."
        )
    return (
        "Types come from a sample of the rows. Take all, or name types, by the text, in a granted folder: "
        f"FROM {reader}('{file}', sample_size = -1), or {others}."
    )


def _unbound(error: SqlError, names: Sequence[str]) -> SqlError:
    """Return the error of parameters without values; those of `?` are numbers."""
    if _are_numbers(names):
        hint = "Give a value for each ?: sql(text, [...]). On the command line write $NAME, and --param NAME=VALUE."
        return _with(error, f"too few values for the text: {counted(len(names), 'value')} missing", hint)
    options = " ".join(f"--param {name}=VALUE" for name in names)
    values = ", ".join(f"{name!r}: ..." for name in names)
    hint = f"Bind the text's parameters: weft sql {options}, or sql(text, {{{values}}})."
    return _with(error, f"no value for {_listed(names)}", hint)


def _excess(error: SqlError, names: Sequence[str]) -> SqlError:
    """Return the error of values without parameters; those of `?` are numbers."""
    if _are_numbers(names):
        hint = "Give one value for each ?."
        return _with(error, f"too many values for the text: {counted(len(names), 'value')} left", hint)
    return _with(error, f"the text has no {_listed(names)}", "Leave out the value, or name the parameter in the text.")


def _are_numbers(names: Sequence[str]) -> bool:
    return all(map(str.isdigit, names))


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f"${name}" for name in names)


def _with(error: SqlError, message: str, hint: str) -> SqlError:
    return SqlError(message, line=error.line, column=error.column, hint=hint)
