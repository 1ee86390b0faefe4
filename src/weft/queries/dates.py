"""Dates in CSV files that do not begin with the year: with the day first, or with the month."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import permutations
from typing import TYPE_CHECKING, Final, NamedTuple

from weft.frontends.sql.expressions import identifier, literal, literal_list
from weft.model.errors import DefinitionError
from weft.store.filesystems import is_url
from weft.store.remote import shown

if TYPE_CHECKING:
    import duckdb

    from weft.frontends.sql.tables import FileTable

_ORDERS: Final = {
    **dict.fromkeys(("%d{0}%m{0}%Y", "%m{0}%d{0}%Y"), ("%d{0}%m{0}%Y", "%m{0}%d{0}%Y")),
    **{
        "{0}".join(order): tuple("{0}".join(one) for one in permutations(("%d", "%m", "%y")) if one[1] != "%y")
        for order in permutations(("%d", "%m", "%y"))
    },
}
"""The orders that the same text may have, by the one that DuckDB has found; `{0}` is the separator."""


class CsvForm(NamedTuple):
    """What DuckDB has found at the beginning of a CSV file: the types of columns, and the form of dates and times."""

    types: Mapping[str, str]
    dates: str | None
    times: str | None


def with_one_order(
    table: FileTable, connection: duckdb.DuckDBPyConnection, forms: Sequence[CsvForm], types: Mapping[str, str]
) -> FileTable:
    """Return a table in CSV files, all of whose dates have one order of day, month and year.

    DuckDB takes an order from each file by itself: one whose days are all below 13 may get another one than the rest.
    `types` are those of the table. A UserWarning tells of dates that have a meaning in two orders. DefinitionError: no
    order fits the dates of all files.
    """
    for of, option in (("DATE", "dates"), ("TIMESTAMP", "times")):
        columns = [name for name, known in types.items() if known == of]
        met: dict[str, str] = {}
        for file, form in zip(table.files, forms, strict=True):
            if (order := getattr(form, option)) and of in form.types.values():
                met.setdefault(order, file)
        if not columns or all(_day(order) not in _ORDERS for order in met):
            continue
        order = next(iter(met))
        if any(map(is_url, table.files)):  # they would be fetched twice
            if len(met) > 1:
                raise _unequal(table, columns, met)
            continue
        rows = f"read_csv({literal_list(table.files)}{table.csv}, all_varchar = true, union_by_name = true)"
        fits = _fitting(connection, rows, columns, [*met, *(one for each in met for one in _orders(each))])
        if len(met) > 1:
            if not fits:
                raise _unequal(table, columns, met)
            order = fits[0]
            table = replace(table, dates=order) if option == "dates" else replace(table, times=order)
        _warn_of_two(table, connection, rows, columns, (order, [one for one in fits if one != order]))
    return table


def _day(form: str) -> str:
    """Return the part of a form that is a date, with `{0}` for its separator."""
    day = form.partition(" ")[0]
    return day.replace(day[2:3], "{0}") if len(day) == 8 else day  # %d/%m/%Y


def _orders(form: str) -> list[str]:
    """Return the forms with another order of day, month and year."""
    day, space, time = form.partition(" ")
    return [order.format(day[2:3]) + space + time for order in _ORDERS.get(_day(form), ())]


def _fitting(
    connection: duckdb.DuckDBPyConnection, rows: str, columns: Sequence[str], forms: Sequence[str]
) -> list[str]:
    """Return the forms, once each, that all texts of the columns have."""
    forms = list(dict.fromkeys(forms))
    misfits = (
        " OR ".join(
            f"{column} <> '' AND try_strptime(trim({column}), {literal(form)}) IS NULL"
            for column in map(identifier, columns)
        )
        for form in forms
    )
    found = connection.execute(f"SELECT {', '.join(f'bool_or({one})' for one in misfits)} FROM {rows}").fetchone()
    return [form for form, wrong in zip(forms, found or (), strict=True) if not wrong]


def _warn_of_two(
    table: FileTable,
    connection: duckdb.DuckDBPyConnection,
    rows: str,
    columns: Sequence[str],
    orders: tuple[str, Sequence[str]],
) -> None:
    taken, others = orders
    for other in others:
        for name in columns:
            column = identifier(name)
            differ = f"try_strptime(trim({column}), {literal(taken)}) <> try_strptime(trim({column}), {literal(other)})"
            row = connection.execute(f"SELECT min({column}) FROM {rows} WHERE {differ}").fetchone()
            if row is None or row[0] is None:
                continue
            option = "dateformat" if " " not in taken else "timestampformat"
            place = literal(table.files[0]) if len(table.files) == 1 else literal_list(table.files)
            warnings.warn(
                f"table {table.name}: column {name} is read as {taken}, and all its values would be dates as {other} "
                f"too: {row[0]}. If that is right, read the text by its form, in a granted folder: "
                f"FROM read_csv({place}, {option} = {literal(other)})",
                UserWarning,
                stacklevel=2,
            )
            return


def _unequal(table: FileTable, columns: Sequence[str], met: Mapping[str, str]) -> DefinitionError:
    places = ", ".join(f"{form} in {shown(file) if is_url(file) else file}" for form, file in met.items())
    return DefinitionError(
        f"the files of the table {table.name} have dates of different forms in {', '.join(columns)}: {places}",
        hint="Write all dates in one form, such as 2024-12-31, or register the files as tables of their own.",
    )
