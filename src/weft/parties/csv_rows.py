"""Reads the CSV files that clients upload: the columns of a table in batches of strings, with the line of each mistake.

As in FATE the first column is the id, and a file without a head keeps all that follows the id as one text: that is how
files with tags (`id,a b c`) and svmlight files (`id,1,0:0.5`) come. A first line of svmlight is never a head, though
examples of FATE say so.
"""

from __future__ import annotations

import csv
import re
from array import array
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import IO, Any, Final

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from weft.model.errors import InputLimitError, UsageError

VALUE: Final = "value"
"""The column of a file without a head."""
SID: Final = "sid"
"""The name of ids that are made, or that have no name."""
_SPARSE: Final = re.compile(r"\d+:[-+.\deE]+")
_SPARSE_FROM: Final = 2
"""The index of the first `index:value` of a line of svmlight, after id and label."""
_SEPARATORS: Final = ",;\t|"
NO_HEAD: Final = "give --no-head (head 0 for clients of FATE)"
_NO_END: Final = "unexpected end of data"
"""What the reader of CSV says of a quote that does not end."""
_RETURN: Final = "new-line character seen in unquoted field"
"""What it says of a carriage return that no line feed follows, as in files of the first Macs."""
_OTHERS: Final = {
    b"%PDF-": "a PDF document",
    b"PK\x03\x04": "an Excel file or a ZIP archive",
    b"\xd0\xcf\x11\xe0": "an old Excel file",
    b"{\\rtf": "an RTF document",
    b"<?xml": "an XML document",
    b"<!DOCTYPE": "an HTML page",
    b"<html": "an HTML page",
    b"PAR1": "a Parquet file",
    b"ARROW1": "an Arrow file",
    b"SQLite format 3": "an SQLite database",
}
"""The beginnings of files that are no CSV; some are text, and their lines would become ids."""
_BATCH: Final = 16_384
_CELLS: Final = 1 << 20
MOST_COLUMNS: Final = 20_000
MOST_ROWS: Final = 200_000_000
MOST_LINE: Final = 16 << 20


class CsvShape(Struct, frozen=True, kw_only=True):
    """How a file is read. With `extend_sid` ids are made: `prefix` and the number of the row, from 0 on."""

    head: bool = True
    delimiter: str = ","
    extend_sid: bool = False
    prefix: str = ""

    def __post_init__(self) -> None:
        if len(self.delimiter) != 1 or self.delimiter in '"\r\n\0':
            raise UsageError(
                f"the delimiter is {self.delimiter!r}",
                hint="Give one character, such as a comma, a tab or a semicolon.",
            )


def check_kind(begin: bytes, name: str) -> None:
    """Refuse a file whose first bytes tell that it is no CSV. UsageError: it is of another kind."""
    begin = begin.removeprefix(b"\xef\xbb\xbf")
    kind = next((kind for magic, kind in _OTHERS.items() if begin.startswith(magic)), "")
    if kind:
        raise UsageError(f"{name} is {kind}, not a CSV file", hint="Export the table as CSV in UTF-8, and upload that.")


class CsvRows:
    """The rows of one file of UTF-8 text. `name` is its name in messages; `batches` may be called once."""

    def __init__(self, file: IO[bytes], shape: CsvShape, *, name: str) -> None:
        self.shape, self.name = shape, name
        self._lines = _Lines(file, name)
        self._hashes = array("q")
        self._reader = csv.reader(self._lines, delimiter=shape.delimiter, strict=True)
        self.id_name, self.header = self._head()

    def _head(self) -> tuple[str, tuple[str, ...]]:
        if not self.shape.head:
            return SID, (VALUE,)
        try:
            names = [name.strip() for name in next(self._reader)]
        except StopIteration:
            raise UsageError(f"{self.name} is empty", hint="Upload a file with a head and rows.") from None
        except csv.Error as error:
            raise self._broken(error, 1) from None
        if len(names) > _SPARSE_FROM and all(_SPARSE.fullmatch(one) for one in names[_SPARSE_FROM:]):
            self.shape = replace(self.shape, head=False)
            self._lines.again()
            return SID, (VALUE,)
        self._check_separator(names)
        id_name, header = (SID, names) if self.shape.extend_sid else (names[0], names[1:])
        if len(names) > MOST_COLUMNS:
            raise InputLimitError(f"{self.name} has {len(names):,} columns; at most {MOST_COLUMNS:,} are read")
        twice = next((name for at, name in enumerate(header) if name in header[:at] or name == id_name), None)
        if twice is not None or not all((id_name, *header)):
            found = f"two columns are named {twice!r}" if twice else "a column has no name"
            raise self._wrong(found, hint=f"Give each column a name of its own; if the file has no head, {NO_HEAD}.")
        return id_name, tuple(header)

    def _check_separator(self, names: Sequence[str]) -> None:
        """Refuse a head that is one column by the delimiter, and several by another one."""
        other = next((one for one in _SEPARATORS if one != self.shape.delimiter and one in names[0]), "")
        if len(names) == 1 and other:
            shown = "a tab" if other == "\t" else repr(other)
            raise self._wrong(
                f"the head has one column, {names[0][:60]!r}, since the delimiter is {self.shape.delimiter!r}",
                hint=f"If {shown} separates the columns, give --id-delimiter (id_delimiter for clients of FATE).",
            )

    def batches(self) -> Iterator[Sequence[Sequence[str]]]:
        """Return the columns, the ids first, some rows at a time. UsageError, InputLimitError: a line is wrong."""
        width = 1 + len(self.header)
        rows = self._cells() if self.shape.head else self._texts()
        size = max(1, min(_BATCH, _CELLS // width))
        count = 0
        while batch := list(islice(rows, size)):
            if count + len(batch) > MOST_ROWS:
                raise InputLimitError(f"{self.name} has more than {MOST_ROWS:,} rows")
            columns: list[Sequence[str]] = list(zip(*batch, strict=True))
            if self.shape.extend_sid:
                columns.insert(0, [f"{self.shape.prefix}{at}" for at in range(count, count + len(batch))])
            else:
                self._hashes.extend(map(hash, columns[0]))
            count += len(batch)
            yield columns

    def _cells(self) -> Iterator[Sequence[str]]:
        width = len(self.header) + (not self.shape.extend_sid)
        first = self._lines.number + 1
        try:
            for row in self._reader:
                if len(row) != width:
                    if not row:
                        continue
                    raise self._wrong(f"{len(row)} values, and the head has {width}", first=first)
                if not (row[0].strip() or self.shape.extend_sid):
                    raise self._wrong("the id is empty", first=first)
                yield row
                first = self._lines.number + 1
        except csv.Error as error:
            raise self._broken(error, first) from None

    def _broken(self, error: csv.Error, first: int) -> UsageError:
        """Return the error for a row that begins in a line and is no CSV."""
        if str(error) == _NO_END:
            return self._wrong("a quote does not end", first=first)
        if str(error).startswith(_RETURN):
            return self._wrong(
                "a line ends with a carriage return alone", hint="Save the file with line feeds.", first=first
            )
        return self._wrong(str(error), first=first)

    def _texts(self) -> Iterator[Sequence[str]]:
        for line in self._lines:
            text = line.rstrip("\r\n")
            if not text:
                continue
            if self.shape.extend_sid:
                yield (text,)
                continue
            one, found, rest = text.partition(self.shape.delimiter)
            if not found:
                raise self._wrong(f"there is no {self.shape.delimiter!r} after the id")
            if not one.strip():
                raise self._wrong("the id is empty")
            yield one, rest.rstrip()

    def suspects(self) -> frozenset[int]:
        """Return the hashes that several ids have, after all batches were read. Nearly always two ids are equal then.

        An id needs 8 bytes here, so a table of any size can be checked.
        """
        found: Any = np.sort(np.frombuffer(self._hashes, dtype=np.int64))
        return frozenset(int(one) for one in found[1:][found[1:] == found[:-1]])

    def refuse_twice(self, suspects: frozenset[int]) -> None:
        """Read a file again whose ids have these hashes twice. UsageError: two lines have the same id."""
        seen: dict[str, int] = {}
        for row in self._cells() if self.shape.head else self._texts():
            if hash(row[0]) in suspects:
                if row[0] in seen:
                    raise self._wrong(
                        f"the id {row[0]!r} is that of line {seen[row[0]]} too",
                        hint="Remove one of the rows, or let --extend-sid (extend_sid 1 for clients of FATE) make "
                        "an id for each.",
                    )
                seen[row[0]] = self._lines.number

    def _wrong(
        self, found: str, *, hint: str = "Correct this line and upload the file again.", first: int = 0
    ) -> UsageError:
        """Return an error for the last line that was read; its row may have begun in an earlier one, `first`."""
        number = self._lines.number
        if first and first < number:
            found += f"; its row goes on to line {number}"
        return UsageError(f"{self.name}, line {first or number}: {found}", hint=hint)


class _Lines:
    """The lines of a file as text, and the number of the last one."""

    def __init__(self, file: IO[bytes], name: str) -> None:
        self._file, self._name, self.number = file, name, 0
        self._last, self._again = "", False

    def again(self) -> None:
        """Return the last line once more."""
        self._again = True

    def __iter__(self) -> _Lines:
        return self

    def __next__(self) -> str:
        if self._again:
            self._again = False
            return self._last
        line = self._file.readline(MOST_LINE + 1)
        if not line:
            raise StopIteration
        self.number += 1
        if len(line) > MOST_LINE:
            raise InputLimitError(f"{self._name}, line {self.number} has more than {MOST_LINE >> 20} MiB")
        try:
            text = line.decode("utf-8-sig" if self.number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            raise UsageError(
                f"{self._name}, line {self.number}, byte {error.start + 1} is not UTF-8",
                hint="Save the file in UTF-8 and upload it again.",
            ) from None
        if "\0" in text:
            raise UsageError(f"{self._name}, line {self.number} has a NUL byte", hint="Upload a text file.")
        self._last = text
        return text
