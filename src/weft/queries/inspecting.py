"""Looks at the files of a table before it is read: what DuckDB would cut, round or leave out without a word."""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import re
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from itertools import islice, pairwise
from typing import TYPE_CHECKING, BinaryIO, Final, TextIO, TypeVar

import duckdb

from weft.frontends.sql.expressions import identifier, literal, literal_list
from weft.frontends.sql.mistakes import other_columns, unreadable
from weft.model.errors import DefinitionError
from weft.model.wording import counted
from weft.queries.advice import misfit_hint
from weft.queries.dates import CsvForm, with_one_order
from weft.queries.remarks import warn_user
from weft.store.filesystems import is_url
from weft.store.remote import opened, shown

if TYPE_CHECKING:
    from weft.frontends.sql.tables import FileTable

K = TypeVar("K")

KEPT: Final = 64
"""The tables whose inspection is kept while their files do not change, at most."""
LOOKED_AT: Final = 20_480
"""The lines of a CSV file that DuckDB takes types from."""
EXACT: Final = 1 << 53
"""Up to here each integer is a DOUBLE."""
_SEPARATORS: Final = ",;\t|"
_SAMPLED: Final = 100
"""The lines of a CSV file in which decimal commas are looked for, and numbers in columns of texts."""
_MOST_SAMPLED: Final = 20_480
"""The lines that decide the types of columns for DuckDB."""
_LOOKED_AT: Final = 10
"""The files of a table in which words for missing numbers are looked for."""
_MISSING: Final = frozenset(
    {"NA", "N/A", "n/a", "na", "#N/A", "NULL", "null", "None", "none", "missing", "-", "--", ".", "?"}
)
"""Words for a missing number, as R, spreadsheets and people write them."""
_NUMBER: Final = re.compile(r"\s*[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?\s*")
_DECIMAL_COMMA: Final = re.compile(r"\s*[-+]?\d+(?:\.\d{3})*,\d+\s*")
_NO_CAUSE: Final = re.compile("Error when sniffing file|reached an invalid state")
"""Errors of DuckDB about CSV files that name no line."""
_LINE_END: Final = re.compile(rb"\r\n|\n|\r")
_BLOCK: Final = 1 << 20
_NO_QUOTE: Final = "(empty)"
"""How DuckDB tells of a CSV file without quotes in the lines that it looked at."""
_INTEGERS: Final = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT")
_UNSIGNED: Final = ("UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "UHUGEINT")
_BITS: Final = {of: 8 << at for names in (_INTEGERS, _UNSIGNED) for at, of in enumerate(names)}
_DIGITS: Final = {8: 3, 16: 5, 32: 10, 64: 20, 128: 39}
"""The decimal digits of an integer, by its bits."""
_FLOATS: Final = {"FLOAT": 24, "DOUBLE": 53}
"""The bits of integers that a number with a point holds."""
_DECIMAL: Final = re.compile(r"DECIMAL\((\d+),\s*(\d+)\)")
_MOST_DIGITS: Final = 38
"""The digits of a decimal of DuckDB."""
_NOTHING: Final = '"NULL"'
"""The type of a Parquet column of which no value was known when its file was written."""
_lock = threading.Lock()
_inspected: dict[tuple[FileTable, object], FileTable] = {}


def inspected(table: FileTable, connection: duckdb.DuckDBPyConnection) -> FileTable:
    """Return a table as it is to be read, so that no value changes and none is lost.

    DefinitionError: its files differ in a way that no table holds. A UserWarning tells of lines that are left out.
    """
    stamp = table.stamp()
    with _lock:
        known = _inspected.get((table, stamp)) if stamp is not None else None
    if known is not None:
        return known
    try:
        if table.reader == "read_parquet":
            made = _of_one_kind(table, connection)
            rows = connection.sql(f"FROM {made.rows_of(made.files if made.hive or made.merged else made.files[:1])}")
            _warn_of_renamed(rows.columns, lambda: _parquet_names(connection, made.files[0]))
            types = list(map(str, rows.types))
            if any("DOUBLE" in of for of in types):
                _check_digits(table, connection)
            made = made.with_columns(dict(zip(rows.columns, types, strict=True)))
        else:
            found, forms = _check_lines(table, connection) if table.reader == "read_csv" else (table, [])
            made = _with_all_types(found, connection, forms)
    except duckdb.Error as error:
        if table.reader == "read_csv" and _NO_CAUSE.search(str(error)):
            _check_line_ends(table)
        told = unreadable(error, table.name)
        told.hint = misfit_hint(told.message.partition(" cannot be read: ")[2]) or told.hint
        raise told from None
    if stamp is None:  # nothing would find it again
        return made
    with _lock:
        while len(_inspected) >= KEPT:
            del _inspected[next(iter(_inspected))]
        _inspected[table, stamp] = made
    return made


# -------------------------------------------------------------------------------------------------------------- Parquet


def _of_one_kind(table: FileTable, connection: duckdb.DuckDBPyConnection) -> FileTable:
    """Return a table in Parquet files, merged if their types differ. DefinitionError: they cannot be merged."""
    if len(table.files) == 1:
        return table
    groups = connection.execute(
        "SELECT columns, list(file_name ORDER BY file_name) FROM ("
        "SELECT file_name, list((name, duckdb_type, num_children) ORDER BY column_id) AS columns "
        "FROM parquet_schema($1) GROUP BY file_name) GROUP BY columns",
        [list(table.files)],
    ).fetchall()
    if len(groups) == 1:
        return table
    kinds = sorted(
        (sorted(files, key=table.files.index) for _, files in groups), key=lambda of: table.files.index(of[0])
    )
    types = [_columns(connection, f"read_parquet({literal(files[0])}, hive_partitioning = false)") for files in kinds]
    unknown = _unknown(connection, [files[0] for files in kinds])
    if not table.hive:
        _check_names(table, [files[0] for files in kinds], types)
    firsts = literal_list(files[0] for files in kinds)
    merged = _columns(connection, f"read_parquet({firsts}, union_by_name = true, hive_partitioning = false)")
    differ = False
    for name, of in merged.items():
        for files, own in zip(kinds, types, strict=True):
            was = own.get(name, of)
            differ |= was != of
            if was == of or _holds(of, was) or (files[0], name) in unknown:
                continue
            if of == "DOUBLE" and was in ("BIGINT", "UBIGINT") and _exact(connection, files, name):
                continue
            first, had = next(
                (other[0], mine[name])
                for other, mine in zip(kinds, types, strict=True)
                if mine.get(name, was) != was and (other[0], name) not in unknown
            )
            raise DefinitionError(
                f"the files of the table {table.name} have different types: column {name} is {was} in "
                f"{_place(files[0])}, and {had} in {_place(first)}",
                hint="Write the column with one type into all files. " + _by_name(table, "which converts values"),
            )
    return replace(table, merged=True) if differ and not table.hive else table


def _check_digits(table: FileTable, connection: duckdb.DuckDBPyConnection) -> None:
    """DefinitionError: a file has decimals of more than 38 digits, for which DuckDB gives other numbers."""
    row = connection.execute(
        "SELECT file_name, name, precision, scale FROM parquet_schema($1) WHERE precision > $2 LIMIT 1",
        [list(table.files), _MOST_DIGITS],
    ).fetchone()
    if row is not None:
        file, name, digits, scale = row
        raise DefinitionError(
            f"the table {table.name} cannot be read: {name} in {_place(file)} is DECIMAL({digits},{scale}), and SQL "
            f"has decimals of up to {_MOST_DIGITS} digits",
            hint=f"Write it as DECIMAL({_MOST_DIGITS},{min(scale, _MOST_DIGITS)}) or as text. Or leave its column out "
            f"by the text, in a granted folder: SELECT * EXCLUDE (...) FROM read_parquet({literal(_place(file))}).",
        )


def _columns(connection: duckdb.DuckDBPyConnection, rows: str) -> dict[str, str]:
    """Return the types of some rows by the names of their columns in small letters: DuckDB reads them in any case."""
    found = connection.sql(f"FROM {rows}")
    return dict(zip(map(str.lower, found.columns), map(str, found.types), strict=True))


def _unknown(connection: duckdb.DuckDBPyConnection, files: Sequence[str]) -> set[tuple[str, str]]:
    """Return the columns of files that have no value and so no type."""
    rows = connection.execute(
        "SELECT file_name, lower(name) FROM parquet_schema($1) WHERE duckdb_type = $2", [list(files), _NOTHING]
    ).fetchall()
    return {(file, name) for file, name in rows}


def _holds(of: str, was: str) -> bool:
    """Whether a type holds each value of another one, as itself."""
    if was in _BITS:
        signed = was in _INTEGERS
        if of in _BITS:
            return _BITS[of] >= _BITS[was] + (not signed and of in _INTEGERS) and (of in _INTEGERS or not signed)
        if of in _FLOATS:
            return _FLOATS[of] >= _BITS[was]
        wide = _DECIMAL.fullmatch(of)
        return wide is not None and int(wide[1]) - int(wide[2]) >= _DIGITS[_BITS[was]]
    if (wide := _DECIMAL.fullmatch(of)) and (narrow := _DECIMAL.fullmatch(was)):
        scale = int(wide[2]) - int(narrow[2])
        return scale >= 0 and int(wide[1]) - int(narrow[1]) >= scale
    return (was, of) in (("FLOAT", "DOUBLE"), ("DATE", "TIMESTAMP"))


def _exact(connection: duckdb.DuckDBPyConnection, files: Sequence[str], name: str) -> bool:
    """Whether files tell that all integers of a column are exact as DOUBLE."""
    row = connection.execute(
        "SELECT count(*) FROM parquet_metadata($1) WHERE lower(path_in_schema) = $2 AND num_values > 0 "
        "AND num_values <> coalesce(stats_null_count, 0) AND NOT coalesce("
        "TRY_CAST(stats_min_value AS HUGEINT) >= -$3 AND TRY_CAST(stats_max_value AS HUGEINT) <= $3, false)",
        [list(files), name, EXACT],
    ).fetchone()
    return row is not None and row[0] == 0


def _check_names(table: FileTable, files: Sequence[str], types: Sequence[Mapping[str, str]]) -> None:
    """DefinitionError: a file has a column that another one has not."""
    for file, own in zip(files, types, strict=True):
        for other, theirs in zip(files, types, strict=True):
            if more := [name for name in theirs if name not in own]:
                raise DefinitionError(
                    f"the files of the table {table.name} have different columns: {_place(other)} has "
                    f"{', '.join(more)}, and {_place(file)} has not",
                    hint=_by_name(table, "NULL where a file has no such column"),
                )


def _by_name(table: FileTable, what: str) -> str:
    """Return how a text reads files with different columns."""
    file = table.files[0]
    pattern = f"{_place(file).rpartition('/')[0]}/*.{file.rpartition('.')[2]}"
    read = f"FROM {table.reader}({literal(pattern)}, union_by_name = true)"
    return f"Or name the files in the text, in a granted folder, {what}: {read}."


def _place(file: str) -> str:
    return shown(file) if is_url(file) else file


# --------------------------------------------------------------------------------------------------------- CSV and JSON


def _check_lines(table: FileTable, connection: duckdb.DuckDBPyConnection) -> tuple[FileTable, list[CsvForm]]:
    """Tell of the first lines of CSV files that are no rows; return the table, and the form of each file.

    In files without quotes in their first lines, later ones are quotes: programs write them where a value needs them.
    DefinitionError: lines have unequal numbers of values, or a file is UTF-16.
    """
    told = commas = missing = False
    forms = []
    quotes = set()
    for file in table.files:
        if not is_url(file):  # else it is fetched to look at it if something is wrong
            _check_encoding(table, file)
        try:
            row = connection.execute(
                "SELECT Delimiter, SkipRows, HasHeader, Columns, Quote, DateFormat, TimestampFormat "
                "FROM sniff_csv($1, comment = '')",
                [file],
            ).fetchone()
        except duckdb.InvalidInputException:  # DuckDB finds no form of the file, and names no line
            for separator in _SEPARATORS:
                _check_lengths(table, file, separator)
            raise
        assert row is not None
        separator, skipped, has_header, columns, quote, dates, times = row
        quotes.add(quote)
        forms.append(CsvForm({column["name"]: column["type"] for column in columns}, dates, times))
        names = [column["name"] for column in columns]
        if not skipped and not has_header:
            _check_not_empty(table, file)
        texts = {name for name, of in forms[-1].types.items() if of == "VARCHAR"}
        if texts and separator == ";" and has_header and not (skipped or commas):
            commas = _warn_of_decimal_commas(table, file, texts)
        if texts and has_header and not (skipped or missing) and len(forms) <= _LOOKED_AT:
            missing = _warn_of_missing_numbers(table, file, separator, texts)
        if is_url(file) and any("\0" in name for name in names):
            _check_encoding(table, file)
        if len(names) == 1 and (inner := next((one for one in _SEPARATORS if one in names[0]), "")):
            _check_lengths(table, file, inner)
        if not skipped:
            if not has_header and not told:
                _warn_of_no_header(table, file, separator)
                told = True
            continue
        with _text(file) as lines:
            left_out = [line.strip() for line in islice(lines, skipped)]
        if not any(left_out):
            continue
        lengths = [len(values) for values in csv.reader(left_out, delimiter=separator) if values]
        if not has_header or any(one == other > 1 for one, other in pairwise(lengths)):
            _check_lengths(table, file, separator, skipped)
            raise _unequal(table, file, f"the first {counted(skipped, 'line')}, and those behind", skipped)
        warn_user(
            f"table {table.name}: {_no_rows(skipped)} of {_place(file)}, where lines have "
            f"{counted(len(names), 'value')} later: {next(filter(None, left_out))!r}",
            stacklevel=2,
        )
    return replace(table, quote='"' if quotes <= {'"', _NO_QUOTE} else ""), forms


def _check_encoding(table: FileTable, file: str) -> None:
    """DefinitionError: a file is UTF-16, which DuckDB may take for texts with NUL in them."""
    with _bytes(file) as data:
        first = data.read(2)
    little = first == codecs.BOM_UTF16_LE or first[1:] == b"\0"
    if not little and first != codecs.BOM_UTF16_BE and first[:1] != b"\0":
        return
    hint = "Write the file as UTF-8"
    if little:  # the only order of bytes that DuckDB reads
        read = f"FROM read_csv({literal(_place(file))}, encoding = 'utf-16')"
        hint += f", or read it by the text, in a granted folder: {read}"
    raise DefinitionError(
        f"the table {table.name} cannot be read: {_place(file)} is UTF-16 by its first bytes, and not UTF-8",
        hint=f"{hint}.",
    )


def _check_line_ends(table: FileTable) -> None:
    """DefinitionError: the lines of a CSV file end in different ways, outside of quotes; DuckDB does not tell that."""
    for file in table.files:
        first, number, quoted = b"", 1, False
        with _bytes(file) as data:
            while block := data.read(_BLOCK):
                if block.endswith(b"\r"):
                    block += data.read(1)
                for at, part in enumerate(block.split(b'"')):
                    quoted ^= at > 0
                    for end in _LINE_END.findall(part):
                        first = first or (b"" if quoted else end)
                        if not quoted and end != first:
                            raise DefinitionError(
                                f"the table {table.name} cannot be read: line {number} of {_place(file)} ends with "
                                f"{_shown(end)}, and lines before it with {_shown(first)}",
                                hint="End all lines alike, or read the file by the text, in a granted folder: "
                                f"FROM read_csv({literal(_place(file))}, strict_mode = false).",
                            )
                        number += 1


def _shown(end: bytes) -> str:
    """Return the end of a line as people write it."""
    return repr(end.decode()).strip("'")


def _check_not_empty(table: FileTable, file: str) -> None:
    """DefinitionError: a file has no line, not even a header, as when the program that writes it has failed."""
    with _bytes(file) as data:
        if data.read(1):
            return
    raise DefinitionError(
        f"the table {table.name} cannot be read: {_place(file)} is empty",
        hint="See whether what writes it has failed, or write a header into it."
        if len(table.files) == 1
        else "Leave the file out, or write a header into it: others have columns.",
    )


def _warn_of_decimal_commas(table: FileTable, file: str, names: Set[str]) -> bool:
    """Tell which columns, of those that are texts, have numbers with decimal commas alone; return whether some have."""
    with _text(file) as text:
        rows = list(csv.DictReader(islice(text, _SAMPLED), delimiter=";"))
    values = {name: [row[name] for row in rows if row.get(name)] for name in sorted(names)}
    found = [name for name, own in values.items() if own and all(map(_DECIMAL_COMMA.fullmatch, own))]
    if found:
        warn_user(
            f"table {table.name}: numbers with decimal commas, such as {values[found[0]][0]!r}, are texts in "
            f"{', '.join(found)} of {_place(file)}. To have numbers, read the file by the text, in a granted folder: "
            f"FROM read_csv({literal(_place(file))}, decimal_separator = ',')",
            stacklevel=2,
        )
    return bool(found)


def _warn_of_missing_numbers(table: FileTable, file: str, separator: str, names: Set[str]) -> bool:
    """Tell which columns of texts have numbers and a word for missing ones; return whether some have."""
    left, words, numbers = set(names), dict[str, str](), set[str]()
    with _text(file) as text, suppress(csv.Error):  # such as a value that is longer than Python's reader takes
        for number, row in enumerate(csv.DictReader(islice(text, _MOST_SAMPLED), delimiter=separator)):
            for name in tuple(left):
                value = row.get(name)
                if not value:
                    continue
                if _NUMBER.fullmatch(value):
                    numbers.add(name)
                elif value.strip() in _MISSING and words.get(name, value) == value:
                    words[name] = value
                else:
                    left.discard(name)
            if not left or (number >= _SAMPLED and left.isdisjoint(numbers)):
                break
    found = sorted(left & words.keys() & numbers)
    if found:
        word = words[found[0]]
        warn_user(
            f"table {table.name}: {', '.join(one for one in found if words[one] == word)} of {_place(file)} is text, "
            f"since {word!r} stands where a number is missing. To have numbers, read the file by the text, in a "
            f"granted folder: FROM read_csv({literal(_place(file))}, nullstr = ['', {literal(word)}])",
            stacklevel=2,
        )
    return bool(found)


def _warn_of_no_header(table: FileTable, file: str, separator: str) -> None:
    """Tell that the first line of a CSV file is a row, if it may be a header: no value is empty or there twice.

    DuckDB takes `region,2019,2020` for a row when the values below the years are integers, too.
    """
    with _text(file) as lines:
        line = next(lines, "")
    values = next(csv.reader([line], delimiter=separator), [])
    if not all(values) or len({*values}) < len(values):
        return
    warn_user(
        f"table {table.name}: the first line of {_place(file)} is taken for a row, and columns are named column0 and "
        f"so on: {line.strip()!r}. If it is a header, read the file by the text, in a granted folder: "
        f"FROM read_csv({literal(_place(file))}, header = true)",
        stacklevel=2,
    )


def _check_lengths(table: FileTable, file: str, separator: str, skipped: int = 0) -> None:
    """DefinitionError: a line of a CSV file has not as many values as its first one, or a file at a URL is UTF-16.

    DuckDB would not divide lines, or not read the first `skipped` ones.
    """
    if is_url(file):
        _check_encoding(table, file)
    with _text(file) as text:
        lines = csv.reader(islice(text, LOOKED_AT), delimiter=separator)
        head = next(lines, [])
        if len(head) == 1 and not skipped:
            return
        for values in lines:
            if values and len(values) != len(head):
                told = f"line {lines.line_num} has {len(values)}, and the first line {len(head)}"
                raise _unequal(table, file, told, skipped, comment=values[0].startswith("#"))


@contextmanager
def _text(file: str) -> Iterator[TextIO]:
    """Give the text of a CSV file, also of one that is compressed or at a URL."""
    with (
        _bytes(file) as stream,
        io.TextIOWrapper(stream, encoding="utf-8", errors="replace", newline="") as text,
    ):
        yield text


@contextmanager
def _bytes(file: str) -> Iterator[BinaryIO]:
    """Give the bytes of a CSV file, also of one that is compressed or at a URL."""
    with ExitStack() as files:
        if is_url(file):
            system, path = opened(file)
            stream = files.enter_context(system.open(path, "rb"))
        else:
            stream = files.enter_context(open(file, "rb"))
        if file.lower().endswith(".gz"):
            stream = files.enter_context(gzip.GzipFile(fileobj=stream))
        yield stream


def _no_rows(lines: int) -> str:
    return "line 1 is no row" if lines == 1 else f"lines 1 to {lines} are no rows"


def _unequal(table: FileTable, file: str, what: str, skipped: int = 0, *, comment: bool = False) -> DefinitionError:
    """Return the error of lines with unequal numbers of values, of which DuckDB would not read the first `skipped`."""
    place = literal(_place(file))
    others = f" If {_no_rows(skipped)}: FROM read_csv({place}, skip = {skipped})." if skipped else ""
    others += f" If lines that begin with # are comments: FROM read_csv({place}, comment = '#')." if comment else ""
    return DefinitionError(
        f"the table {table.name} cannot be read: lines of {_place(file)} have different numbers of values: {what}",
        hint="Correct the file, or read it by the text, in a granted folder, with NULL for missing values: "
        f"FROM read_csv({place}, header = true, null_padding = true).{others}",
    )


def _with_all_types(table: FileTable, connection: duckdb.DuckDBPyConnection, forms: Sequence[CsvForm]) -> FileTable:
    """Return a table in CSV or JSON files, with types from all rows where those of a sample would change a value.

    `forms` are those of the CSV files.
    """
    own = [form.types for form in forms]
    if len({tuple(types) for types in own}) > 1 == len({frozenset(types) for types in own}):
        table = replace(table, merged=True)  # else DuckDB takes the types of columns by their places
    rows = connection.sql(f"FROM {table.rows_of(table.files)}")
    types = dict(zip(rows.columns, map(str, rows.types), strict=True))
    _warn_of_renamed(rows.columns)
    if table.reader == "read_csv":
        if len(table.files) > 1 and not table.hive:
            _check_csv_names(table, connection, types)
        table = with_one_order(table, connection, forms, types)
    days = {name for name in types if _in_days(own, name)}
    if any(map(is_url, table.files)):  # they would be fetched twice
        if not (table.hive or table.merged):
            _check_case(table, own)
        return replace(table, types=tuple(dict.fromkeys(sorted(days), "TIMESTAMP").items()))
    types = {name: of for name, of in types.items() if name not in _folder_columns(table)}
    if table.reader == "read_json":
        return _of_all_json(table, connection, types)
    return _of_all_csv(table, connection, types, days & types.keys())


def _check_case(table: FileTable, own: Sequence[Mapping[str, str]]) -> None:
    """DefinitionError: the names of columns in CSV files differ in case, which a query over them would refuse."""
    for file, names in zip(table.files, own, strict=bool(own)):
        if missing := [name for name in own[0] if name not in names]:
            raise other_columns(table.name, _place(table.files[0]), _place(file), missing)


def _in_days(own: Sequence[Mapping[str, str]], name: str) -> bool:
    """Whether a column is of times by some files and of days by the others: DuckDB makes it a text, or one of both."""
    return {types[name] for types in own if name in types} == {"DATE", "TIMESTAMP"}


def _of_all_json(table: FileTable, connection: duckdb.DuckDBPyConnection, types: Mapping[str, str]) -> FileTable:
    misfits, inexact = _json_misfits(types), _inexact(types)
    conditions = {(kind, name): one for kind, each in enumerate((misfits, inexact)) for name, one in each.items()}
    met = _found(connection, _json_texts(table, {*misfits, *inexact}), conditions)  # at once: it reads all files
    rounded = [name for kind, name in met if kind]
    if len(rounded) < len(met):
        table = replace(table, sampled=False)
        rows = connection.sql(f"FROM {table.rows_of(table.files)}")
        types = {name: str(of) for name, of in zip(rows.columns, rows.types, strict=True) if name in types}
        inexact = _inexact(types)
        rounded = _found(connection, _json_texts(table, inexact), inexact)
    if rounded:
        texts = {name: "VARCHAR" if types[name] == "DOUBLE" else "JSON" for name in rounded}
        columns = ", ".join(f"{literal(name)}: '{of}'" for name, of in texts.items())
        warn_user(
            f"table {table.name}: integers of more digits than a DOUBLE holds are rounded in {', '.join(rounded)}, "
            "which has them beside decimals, or above 2^64. To have all digits, name the columns that the query "
            f"needs by the text, in a granted folder: FROM read_json({literal(table.files[0])}, "
            f"columns = {{{columns}, ...}})",
            stacklevel=2,
        )
    return table


def _json_texts(table: FileTable, names: Collection[str]) -> str:
    """Return the SQL of some columns of JSON files as texts of JSON."""
    texts = ", ".join(f"{literal(name)}: 'JSON'" for name in sorted(names))
    return f"read_json({literal_list(table.files)}, columns = {{{texts}}}, hive_partitioning = false)"


def _of_all_csv(
    table: FileTable, connection: duckdb.DuckDBPyConnection, types: Mapping[str, str], days: Set[str]
) -> FileTable:
    """Return a table in CSV files whose types change no value: of a sample, else of all rows, else named ones.

    `days` are columns of times that are days in some files.
    """
    merged = ", union_by_name = true" if table.hive or table.merged else ""
    options = f"{table.csv}, all_varchar = true, allow_quoted_nulls = false, hive_partitioning = false{merged}"
    read = f"read_csv({literal_list(table.files)}{options})"
    texts = {name: identifier(name) for name in sorted(days)}
    others = {name: f"{text} <> '' AND TRY_CAST({text} AS TIMESTAMP) IS NULL" for name, text in texts.items()}
    named = dict.fromkeys(texts.keys() - _found(connection, read, others), "TIMESTAMP")
    types = {**types, **named}
    values = {name: of for name, of in types.items() if of != "VARCHAR"}
    empties = {("empty", name): f"{identifier(name)} = ''" for name in values}
    misfits = {("wrong", name): condition for name, condition in _csv_misfits(values).items()}
    met = _found(connection, read, empties | misfits)  # at once: it reads all files
    empty, wrong = ([name for kind, name in met if kind == which] for which in ("empty", "wrong"))
    if empty and (
        lost := _found(connection, read, {name: f"{identifier(name)} = ''" for name in types if name not in values})
    ):
        warn_user(
            f'table {table.name}: "" is NULL in all columns, also in the texts {", ".join(lost)}, since it stands '
            f"in {', '.join(empty)}, which has no texts. Write missing values as nothing, without quotes",
            stacklevel=2,
        )
    table = replace(table, quoted_nulls=bool(empty), types=tuple(named.items()))
    if not wrong:
        return table
    if any(_NAMED[values[name]] is None for name in wrong):
        table = replace(table, sampled=False)
        rows = connection.sql(f"FROM {table.rows_of(table.files)}")
        types = dict(zip(rows.columns, map(str, rows.types), strict=True))
        wrong = _found(connection, read, _csv_misfits({name: types[name] for name in values if name in types}))
    for name in wrong:
        column, of = identifier(name), _NAMED[types[name]] or "VARCHAR"
        inexact = f"{column} <> '' AND coalesce(TRY_CAST({column} AS {of})::VARCHAR <> trim({column}), true)"
        if of == "TIMESTAMP_NS":
            inexact = f"{column} <> '' AND TRY_CAST({column} AS {of}) IS NULL OR {_zone(column)}"
        named[name] = "VARCHAR" if of != "VARCHAR" and _found(connection, read, {name: inexact}) else of
    return replace(table, types=tuple(named.items()))


def _found(connection: duckdb.DuckDBPyConnection, read: str, conditions: Mapping[K, str]) -> list[K]:
    """Return the keys of the conditions that a row meets."""
    if not conditions:
        return []
    row = connection.execute(f"SELECT {', '.join(f'bool_or({one})' for one in conditions.values())} FROM {read}")
    return [name for name, met in zip(conditions, row.fetchone() or (), strict=True) if met]


def _folder_columns(table: FileTable) -> set[str]:
    """Return the columns whose values are in the names of `key=value` folders."""
    folders = table.files[0].split("/")[:-1] if table.hive else []
    return {folder.partition("=")[0] for folder in folders if "=" in folder}


_NAMED: Final[Mapping[str, str | None]] = {
    **dict.fromkeys((*_BITS, "DATE")),
    "BOOLEAN": "VARCHAR",
    "DOUBLE": "HUGEINT",
    "TIMESTAMP": "TIMESTAMP_NS",
}
"""What holds the values that a type of DuckDB changes; None: the type that all rows give, else text."""


def _csv_misfits(types: Mapping[str, str]) -> dict[str, str]:
    """Return the conditions of texts that DuckDB would change, by columns: 1.5 or 007 in integers, times in dates.

    Those of most texts are told by a cheap test before.
    """
    found = {}
    for name, of in types.items():
        column = identifier(name)
        if of in _BITS:
            cast, text = f"TRY_CAST({column} AS {of})::VARCHAR", f"trim({column})"
            found[name] = f"CASE WHEN {cast} = {column} THEN false ELSE {cast} <> {text} AND {text} <> '-0' END"
        elif of == "DATE":
            found[name] = f"contains({column}, ':')"
        elif of == "BOOLEAN":
            found[name] = f"lower(trim({column})) NOT IN ('', 'true', 'false')"
        elif of == "DOUBLE":
            whole = f"TRY_CAST({column} AS HUGEINT)"
            found[name] = (
                f"CASE WHEN length({column}) <= 15 THEN false "
                f"ELSE regexp_full_match({column}, '\\s*-?[0-9]{{16,}}\\s*') "
                f"AND coalesce(TRY_CAST(TRY_CAST({column} AS DOUBLE) AS HUGEINT) <> {whole}, true) END"
            )
        elif of == "TIMESTAMP":
            found[name] = (
                f"CASE WHEN length({column}) = 19 AND {column}[17] = ':' THEN false "
                f"ELSE regexp_matches({column}, '[.][0-9]{{6}}[0-9]*[1-9]') OR {_zone(column)} END"
            )
    return found


def _zone(text: str) -> str:
    """Return the condition of a time with a zone, which a TIMESTAMP has not."""
    return f"regexp_matches({text}, ':[0-9]{{2}}([.][0-9]+)?\\s*([+-][0-9]{{2}}(:?[0-9]{{2}})?|Z|UTC)\\s*$')"


def _with_fraction(text: str) -> str:
    return " OR ".join(f"contains({text}, '{part}')" for part in (".", "e-", "E-"))


def _json_misfits(types: Mapping[str, str]) -> dict[str, str]:
    """Return the conditions of JSON that DuckDB may round, by columns, also of numbers within others."""
    found = {}
    for name, of in types.items():
        column = identifier(name)
        if _INTEGER.search(of):
            found[name] = _with_fraction(f"{column}::VARCHAR")
        elif of == "BOOLEAN":
            found[name] = f"{column}::VARCHAR NOT IN ('true', 'false', 'null')"
    return found


def _inexact(types: Mapping[str, str]) -> dict[str, str]:
    """Return the conditions of integers in JSON that DuckDB rounds to a DOUBLE, by columns, also within other values.

    Those of most texts are told by a cheap test before.
    """
    found = {}
    for name, of in types.items():
        if _DOUBLE.search(of):
            text = f"{identifier(name)}::VARCHAR"
            outside = f"regexp_replace({text}, '\"(\\\\.|[^\"\\\\])*\"', '', 'g')"  # of texts
            numbers = f"regexp_extract_all({outside}, '[-+.0-9eE]{{16,}}')"
            whole = "regexp_full_match(one, '-?[0-9]+')"
            differs = "TRY_CAST(TRY_CAST(one AS DOUBLE) AS HUGEINT) <> TRY_CAST(one AS HUGEINT)"
            rounded = f"len(list_filter({numbers}, lambda one: {whole} AND coalesce({differs}, true))) > 0"
            found[name] = f"CASE WHEN regexp_matches({text}, '(^|[^.0-9])[0-9]{{16}}') THEN {rounded} ELSE false END"
    return found


_DOUBLE: Final = re.compile(r"\bDOUBLE\b")
_INTEGER: Final = re.compile(r"\bU?(?:BIG|HUGE)INT\b")


def _check_csv_names(table: FileTable, connection: duckdb.DuckDBPyConnection, types: Mapping[str, str]) -> None:
    """DefinitionError: a CSV file has columns that the first one has not, which DuckDB leaves out."""
    merged = connection.sql(f"FROM read_csv({literal_list(table.files)}{table.csv}, union_by_name = true)").columns
    if len(merged) > len(types):
        kinds = [_columns(connection, f"read_csv({literal(file)}{table.csv})") for file in table.files]
        _check_names(table, table.files, kinds)


# ---------------------------------------------------------------------------------------------------------------- names


def warn_of_case(names: Iterable[str]) -> None:
    """Warn of columns whose names differ only in case; `names` are those of the data."""
    seen: dict[str, str] = {}
    for name in names:
        if (first := seen.setdefault(name.lower(), name)) != name:
            _warn_of_case(first, name, f"{name}_1")


def _warn_of_renamed(names: Sequence[str], names_of_data: Callable[[], Sequence[str]] | None = None) -> None:
    """Warn of columns whose names differ only in case; `names` are those that DuckDB gives: a later one has a number.

    Columns that are equal in case too have names of the same letters. `names_of_data` returns the names in the data,
    in the same order: a column may be called so there.
    """
    first = {name.lower(): name for name in reversed(names)}
    renamed = []
    for name in names:
        own, line, number = name.rpartition("_")
        if line and number.isdigit() and own not in names and own.lower() in first:
            renamed.append((first[own.lower()], own, name))
    if renamed and names_of_data is not None:
        data = names_of_data()
        first |= {name.lower(): name for name in reversed(data) if data.count(name) == 1}
        given = {name.lower(): name for name in reversed(names)}
        renamed = [
            (one if (one := first[own.lower()]) != own else given[own.lower()], own, name)
            for own, name in zip(data, names, strict=False)
            if own != name and data.count(own) == 1
        ]
    for words in renamed:
        _warn_of_case(*words)


def _parquet_names(connection: duckdb.DuckDBPyConnection, file: str) -> list[str]:
    """Return the names of the columns of a Parquet file as they stand in it."""
    rows = connection.execute("SELECT name, num_children FROM parquet_schema($1) ORDER BY column_id", [file]).fetchall()
    found, left = [], 0  # of a tree in the order of its parts, the root first
    for name, parts in rows[1:]:
        if not left:
            found.append(name)
        left += (parts or 0) - (1 if left else 0)
    return found


def _warn_of_case(first: str, later: str, renamed: str) -> None:
    warn_user(
        f"the columns {first} and {later} differ only in case, which SQL does not tell apart: {later} is {renamed} in "
        "queries. Rename one of them in the data",
        stacklevel=3,
    )
