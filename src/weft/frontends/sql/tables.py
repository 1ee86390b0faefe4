"""Tables of queries: where their rows are, how DuckDB reads them, and how they fall into splits."""

from __future__ import annotations

import os
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from itertools import groupby, pairwise
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias
from urllib.parse import unquote
from uuid import uuid4

from weft.frontends.sql.expressions import identifier, literal, literal_list
from weft.model.digests import hex_digest

if TYPE_CHECKING:
    import duckdb

READERS: Final[Mapping[str, str]] = {
    ".parquet": "read_parquet",
    ".csv": "read_csv",
    ".tsv": "read_csv",
    ".csv.gz": "read_csv",
    ".tsv.gz": "read_csv",
    ".json": "read_json",
    ".jsonl": "read_json",
    ".ndjson": "read_json",
    ".json.gz": "read_json",
    ".jsonl.gz": "read_json",
    ".ndjson.gz": "read_json",
}
"""The function of DuckDB that reads files, by the end of their names."""

FileStamp: TypeAlias = tuple[int, int, int]
"""What changes with a file of this machine: the time of its last change, its bytes and its inode."""


def file_stamp(about: os.stat_result) -> FileStamp:
    """Return the stamp of a file from what the system tells about it."""
    return about.st_mtime_ns, about.st_size, about.st_ino


@dataclass(frozen=True, slots=True)
class ViewTable:
    """A table that is a query over others: `CREATE VIEW name definition`."""

    name: str
    definition: str


NAN: Final = ", can_have_nan = true"
"""The bounds that Parquet keeps of floats leave NaN out; without this option DuckDB drops rows by them."""
CSV: Final = ", comment = '', files_to_sniff = -1"
"""DuckDB would take lines that begin with # for comments, and the types of ten files for those of all."""
_FLOAT: Final = re.compile(r"\b(?:FLOAT|DOUBLE|VARIANT)\b")
_PLACES: Final = ("file_index", "filename", "file_row_number")
"""Columns that DuckDB gives to each row of files, unless the files have one of that name."""


@dataclass(frozen=True, slots=True)
class FileTable:
    """A table in files of one format, read by a function of DuckDB.

    `columns` are the names and types of all its columns, where not each file has all of them.
    """

    name: str
    reader: str
    files: tuple[str, ...]
    hive: bool = False
    columns: tuple[tuple[str, str], ...] = ()
    select: str = "*"
    """The columns, where they are stored in another type than their own."""
    sizes: tuple[int, ...] = ()
    """The bytes of the files, where they are not on this machine."""
    merged: bool = False
    """Whether columns have different types in the files, each of which the type of the table holds, or other places."""
    sampled: bool = True
    """Whether the types are those of a sample of the rows, where a file has none; else all rows are looked at."""
    types: tuple[tuple[str, str], ...] = ()
    """The types of columns of CSV files that DuckDB would give another type, which changes values."""
    quoted_nulls: bool = True
    """Whether `""` in a CSV file is NULL: it is in numbers, and an empty text is no number."""
    quote: str = ""
    """What encloses values of CSV files; "": DuckDB looks for it in a sample of the rows."""
    dates: str = ""
    """The form of dates in CSV files, as `strptime` has it; "": DuckDB looks for it in each file."""
    times: str = ""
    """The form of dates with times in CSV files, in the same way."""
    place: str = ""
    """The column with the place of a row, by which rows with floats are filtered: see `with_columns`."""

    def with_columns(self, types: Mapping[str, str]) -> FileTable:
        """Return this table for columns of these types.

        DuckDB answers min and max of a Parquet file from its bounds, which `NAN` makes NaN, and in which -0.0 stands
        for 0.0. Where a scan has a filter, also one that all rows pass, it reads the rows.
        """
        if self.reader != "read_parquet" or not any(map(_FLOAT.search, types.values())):
            return self
        names = set(map(str.lower, types))
        return replace(self, place=next((place for place in _PLACES if place not in names), ""))

    @property
    def csv(self) -> str:
        """The options by which DuckDB finds the form of the CSV files."""
        options = (("quote", self.quote), ("dateformat", self.dates), ("timestampformat", self.times))
        return CSV + "".join(f", {name} = {literal(value)}" for name, value in options if value)

    def rows_of(self, files: Sequence[str]) -> str:
        """Return the SQL of the rows of some files."""
        options = ", hive_partitioning = true" if self.hive else ""
        options += ", union_by_name = true" if self.hive or self.merged else ""
        options += NAN if self.reader == "read_parquet" else ""
        if self.reader == "read_csv":
            options += f"{self.csv}, allow_quoted_nulls = {'true' if self.quoted_nulls else 'false'}"
        if self.types:
            options += f", types = {{{', '.join(f'{literal(name)}: {literal(of)}' for name, of in self.types)}}}"
        if not self.sampled:
            files_too = f", maximum_sample_files = {len(files)}" if self.reader == "read_json" else ""
            options += f", sample_size = -1{files_too}"
        rows = f"{self.reader}({literal_list(files)}{options})"
        return f"(FROM {rows} WHERE {self.place} IS NOT NULL)" if self.place else rows

    @property
    def rows(self) -> str:
        """The SQL of all rows, a query."""
        return f"SELECT {self.select} FROM {self.rows_of(self.files)}"

    def stamp(self) -> object:
        """Return what changes with the files; None if they are not on this machine, or no longer there."""
        try:
            return tuple(map(file_stamp, map(os.stat, self.files)))
        except OSError:
            return None

    def nbytes(self) -> int:
        """Return the bytes of all files."""
        return sum(size for _, size in self._sized())

    def _sized(self) -> Iterator[tuple[str, int]]:
        return zip(self.files, self.sizes or map(os.path.getsize, self.files), strict=True)

    @property
    def folders(self) -> list[str]:
        """The folders of the files."""
        return sorted({file.rpartition("/")[0] + "/" for file in self.files})

    def splits(self, connection: duckdb.DuckDBPyConnection, target: int) -> TableSplits:
        """Return the splits: each a range of rows of a large Parquet file, or several small files."""
        found: list[Split] = []
        small: list[str] = []
        room = target
        for file, size in self._sized():
            if size > target and self.reader == "read_parquet":
                found += [Split((file,), rows) for rows in _ranges(connection, file, target)]
                continue
            if small and size > room:
                found.append(Split(tuple(small)))
                small, room = [], target
            small.append(file)
            room -= size
        if small:
            found.append(Split(tuple(small)))
        return TableSplits(self, tuple(found or [Split(self.files[:1])]), connection)  # files without rows have types

    def rows_in(self, split: Split) -> str:
        """Return the SQL of the rows of a split."""
        if split.where:
            return f"(FROM {self.rows_of(split.files)} WHERE {split.where})"
        if split.rows is None:
            return self._whole(self.rows_of(split.files))
        lo, hi = split.rows
        options = ", hive_partitioning = true" if self.hive else ""
        read = f"read_parquet({literal(split.files[0])}, file_row_number = true{options}{NAN})"
        where = f"file_row_number >= {lo} AND file_row_number < {hi}"
        where += f" AND {self.place} IS NOT NULL" if self.place else ""
        return self._whole(f"(SELECT * FROM {read} WHERE {where})")

    def _whole(self, rows: str) -> str:
        """Return the SQL of some rows with all columns, also those that their files have not."""
        if not self.columns:
            return rows
        nothing = ", ".join(f"CAST(NULL AS {of}) AS {identifier(name)}" for name, of in self.columns)
        return f"(FROM {rows} UNION ALL BY NAME SELECT {nothing} WHERE FALSE)"


class Split(NamedTuple):
    """The part of a table that one task scans: whole files, the rows from `lo` to `hi` of one, or those of some files
    that meet the condition `where`.
    """

    files: tuple[str, ...]
    rows: tuple[int, int] | None = None
    where: str = ""


Bounds = tuple[Any, Any]
"""The lowest and the highest value of a column in a split, as JSON has them; None if it is unknown."""


READ_AGAIN: Final = 1.25
"""The rows of the row groups that ranges of values read, at most, in rows of the table: some are read twice."""
UNEVEN: Final = 2
"""The rows of the largest range of values, at most, in rows of an equal split."""


class TableSplits:
    """The splits of a table, with what is known of the values in each of them before they are read."""

    def __init__(self, table: FileTable, splits: Sequence[Split], connection: duckdb.DuckDBPyConnection) -> None:
        self._table, self._splits, self._connection = table, tuple(splits), connection
        state = table.stamp()
        self.stamp = uuid4().hex if state is None else hex_digest(repr(state).encode())
        """A text that changes with the files; where nothing tells of that, another one each time."""
        self._bounds: dict[tuple[str, str], list[Bounds] | None] = {}
        self._ranged: dict[tuple[str, str], TableSplits | None] = {}

    def __len__(self) -> int:
        return len(self._splits)

    @property
    def _files(self) -> tuple[str, ...]:
        return tuple({file: None for split in self._splits for file in split.files})

    @property
    def folders(self) -> list[str]:
        """The folders that the tasks of the splits read."""
        return self._table.folders

    def rows(self) -> list[str]:
        """Return the SQL of the rows of each split."""
        return [self._table.rows_in(split) for split in self._splits]

    def whole(self) -> str:
        """Return the SQL of all rows."""
        return self._rows_in(self._splits)

    def few(self, most: int) -> list[str]:
        """Return the SQL of the rows of the first split, and of the others in at most `most` equal groups."""
        others = self._splits[1:]
        each = max(1, -(-len(others) // most))
        groups = [self._splits[:1], *(others[at : at + each] for at in range(0, len(others), each))]
        return [self._rows_in(group) for group in groups]

    def _rows_in(self, splits: Sequence[Split]) -> str:
        """Return the SQL of the rows of several splits, which opens each file once."""
        rows = [self._table.rows_in(split) for split in self._together(splits)]
        return rows[0] if len(rows) == 1 else f"({' UNION ALL BY NAME '.join(f'FROM {one}' for one in rows)})"

    def _together(self, splits: Sequence[Split]) -> list[Split]:
        """Return the same rows in fewer splits: all ranges of a file are the file, and files are read together."""
        if any(split.where for split in splits):
            return list(splits)
        parts = Counter(split.files for split in self._splits)
        found: list[Split] = []
        for files, group in groupby(splits, key=lambda split: split.files):
            ranges = [split.rows for split in group if split.rows is not None]
            if ranges and len(ranges) < parts[files]:
                found.append(Split(files, (ranges[0][0], ranges[-1][1])))
            elif found and found[-1].rows is None:
                found[-1] = Split(found[-1].files + files)
            else:
                found.append(Split(files))
        return found

    def ranged(self, column: str, of: str) -> TableSplits | None:
        """Return about as many splits that are ranges of the values of a column of type `of`, an integer or a date.

        None if its values may be NULL or without bounds, or are not sorted enough in the files: each split would read
        row groups of many others. Bounds that are wider than the values do no harm.
        """
        if (column, of) not in self._ranged:
            splits = self._in_ranges(column, of)
            made = None if splits is None else TableSplits(self._table, splits, self._connection)
            self._ranged[column, of] = made
        return self._ranged[column, of]

    def together(self) -> TableSplits:
        """Return one split with all rows."""
        return TableSplits(self._table, [Split(self._files)], self._connection)

    def _in_ranges(self, column: str, of: str) -> list[Split] | None:
        table = self._table
        if len(self) < 2 or table.reader != "read_parquet" or table.hive or table.columns or table.select != "*":
            return None
        rows = self._row_groups(column, of)
        groups = [(one.low, one.high, one.rows, one.file) for one in rows if one.nulls == 0]
        unknown = any(low is None or high is None for low, high, _, _ in groups)
        once = len({(one.file, one.number) for one in rows}) == len(groups) == len(rows)
        if unknown or not once or {file for _, _, _, file in groups} != set(self._files):
            return None
        groups.sort(key=lambda group: group[:2])
        total = sum(count for _, _, count, _ in groups)
        borders: list[Any] = []
        before = 0
        for low, _, count, _ in groups:
            if before * len(self) >= total * (len(borders) + 1) and low > (borders or [groups[0][0]])[-1]:
                borders.append(low)
            before += count
        found, sizes = [], []
        for begin, end in pairwise([None, *borders, None]):
            inside = [
                group for group in groups if (begin is None or group[1] >= begin) and (end is None or group[0] < end)
            ]
            bounds = [f"{identifier(column)} {sign} CAST({literal(str(value))} AS {of})"
                      for sign, value in ((">=", begin), ("<", end)) if value is not None]  # fmt: skip
            found.append(Split(tuple({file: None for *_, file in inside}), None, " AND ".join(bounds)))
            sizes.append(sum(count for _, _, count, _ in inside))
        even = max(sizes) * len(self) <= total * UNEVEN
        return found if even and borders and sum(sizes) <= total * READ_AGAIN else None

    def bounds(self, column: str, of: str) -> list[Bounds] | None:
        """Return the bounds of a column of type `of` in each split; None if no split has any.

        They come from `key=value` folders and from the statistics of Parquet files.
        """
        if (column, of) not in self._bounds:
            self._bounds[column, of] = self._found(column, of)
        return self._bounds[column, of]

    def _found(self, column: str, of: str) -> list[Bounds] | None:
        ranges = self._folders(column, of) if self._table.hive else None
        ranges = ranges or self._statistics(column, of)
        if ranges is None:
            return None
        found = []
        for split in self._splits:
            groups = [
                (low, high)
                for file in split.files
                for begin, end, low, high in ranges.get(file, [_UNKNOWN])
                if split.rows is None or (begin < split.rows[1] and split.rows[0] < end)
            ]
            if not groups or any(None in pair for pair in groups):
                found.append((None, None))
            else:
                found.append((min(low for low, _ in groups), max(high for _, high in groups)))
        return found if any(low is not None for low, _ in found) else None

    def _folders(self, column: str, of: str) -> _Ranges | None:
        """Return the value of a folder `column=value` for each file; None if the column is none of folders."""
        found: _Ranges = {}
        for file in self._files:
            values = [part.partition("=")[2] for part in Path(file).parent.parts if part.startswith(f"{column}=")]
            if not values:
                return None
            value = _value(unquote(values[-1]), of)
            found[file] = [(0, sys.maxsize, value, value)]
        return found

    def _statistics(self, column: str, of: str) -> _Ranges | None:
        """Return the bounds of the row groups of each file; None if the files have none for values of this type."""
        if self._table.reader != "read_parquet" or of == "VARCHAR":  # the bounds of text may be cut short
            return None
        found: _Ranges = {}
        for one in self._row_groups(column, of):
            groups = found.setdefault(one.file, [])
            begin = groups[-1][1] if groups else 0
            groups.append((begin, begin + one.rows, one.low, one.high))
        return found

    def _row_groups(self, column: str, of: str) -> list[_RowGroup]:
        """Return what the Parquet files tell of a column of type `of`, in the order of their rows."""
        with self._connection.cursor() as connection:
            rows = connection.execute(
                "SELECT file_name, row_group_id, row_group_num_rows, stats_min_value, stats_max_value, "
                "stats_null_count FROM parquet_metadata(?) WHERE path_in_schema = ? ORDER BY file_name, row_group_id",
                [list(self._files), column],
            ).fetchall()
        return [
            _RowGroup(file, number, count, _value(low, of), _value(high, of), nulls)
            for file, number, count, low, high, nulls in rows
        ]


class _RowGroup(NamedTuple):
    """A row group of a Parquet file, and the bounds and NULLs of a column in it; None if they are unknown."""

    file: str
    number: int
    rows: int
    low: Any
    high: Any
    nulls: int | None


_Ranges = dict[str, list[tuple[int, int, Any, Any]]]
_UNKNOWN: Final = (0, sys.maxsize, None, None)


def _value(text: str | None, of: str) -> Any:
    """Return a value of a type as JSON has it, so that the order of values is kept; None if it is unknown."""
    if text is None or text == "__HIVE_DEFAULT_PARTITION__":
        return None
    try:
        if of == "VARCHAR":
            return text
        return date.fromisoformat(text).isoformat() if of == "DATE" else int(text)
    except ValueError:
        return None


def _ranges(connection: duckdb.DuckDBPyConnection, file: str, target: int) -> Iterator[tuple[int, int]]:
    """Yield ranges of the rows of a Parquet file: row groups of about equal bytes, `target` at most on average."""
    groups = connection.execute(
        "SELECT row_group_id, any_value(row_group_num_rows), sum(total_compressed_size) "
        "FROM parquet_metadata(?) GROUP BY row_group_id ORDER BY row_group_id",
        [file],
    ).fetchall()
    total = sum(nbytes for _, _, nbytes in groups)
    share = total / max(1, ceil(total / target))
    begin = end = size = 0
    cut = share
    for _, rows, nbytes in groups:
        end += rows
        size += nbytes
        if size >= cut:
            yield begin, end
            begin, cut = end, cut + share
    if end > begin:
        yield begin, end
