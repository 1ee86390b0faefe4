"""What users give as tables: files by path, pattern, folder or URL, Arrow tables, and data frames."""

from __future__ import annotations

import fnmatch
import glob
import os
import re
import sys
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from stat import S_ISDIR, S_ISREG
from typing import Any, Final, TypeAlias

import pyarrow as pa
from pyarrow import compute

from weft.frontends.sql.tables import READERS, FileStamp, FileTable, ViewTable, file_stamp
from weft.model.errors import DefinitionError, ForbiddenError, NotFoundError, UsageError
from weft.model.suggestions import nearest
from weft.model.wording import type_of
from weft.queries.inspecting import warn_of_case
from weft.queries.remarks import warn_user
from weft.store.filesystems import is_url
from weft.store.remote import matching, shown, stamp_at

SqlTable: TypeAlias = "FileTable | ViewTable | pa.Table"
Stamps: TypeAlias = tuple[object, ...]
_WIDE: Final = frozenset({"Int128", "UInt128"})
"""The integers of Polars that Arrow has not."""


class Grants:
    """The folders and files, by path or URL, that the texts of queries may name; writing is as free as reading.

    Without a grant, None, data files of the current folder may stand in FROM.
    """

    def __init__(self, allow: Iterable[str | os.PathLike[str]] | None) -> None:
        if isinstance(allow, str | os.PathLike):
            allow = [allow]
        self.folders: list[str] = []
        listed: list[Any] = list(allow or ()) if isinstance(allow, Iterable | None) else [allow]
        for wrong in [one for one in listed if not isinstance(one, str | os.PathLike)]:
            raise UsageError(f"allow has {type_of(wrong)}", hint="Give paths or URLs of folders: allow=['data'].")
        for one in [os.fspath(each) for each in listed]:
            root = one.rstrip("/") if is_url(one) else os.path.realpath(one)
            self.folders.append(f"{root}/")
        self._own = [f"{os.path.realpath('.')}/"] if allow is None else []

    def may_write(self, path: str) -> bool:
        """Whether a query may write a file."""
        return self._holds(path, self.folders)

    def check_read(self, *paths: str) -> None:
        """Check that FROM may name files, also by patterns. ForbiddenError: one is outside."""
        for path in paths:
            fixed = re.split(r"[*?\[]", path, maxsplit=1)[0]
            if not self._holds(fixed, [*self.folders, *self._own]):
                raise outside("FROM", path)

    def _holds(self, path: str, folders: Sequence[str]) -> bool:
        found = path if is_url(path) else os.path.realpath(path)
        return "/../" not in found and any(f"{found}/".startswith(folder) for folder in folders)


def outside(what: str, path: str) -> ForbiddenError:
    """Return the error of a query that reaches for a path that was not granted; `what` is the part of the text."""
    path = shown(path) if is_url(path) else path
    folder = os.path.dirname(path.partition("*")[0]) or "."
    return ForbiddenError(
        f"the query may not use {path}: {what} of an SQL text reaches only what was granted",
        hint=f"Grant the folder: weft.SqlContext(allow=[{folder!r}]), or: weft sql --allow {folder} ..."
        + (" Or register the file as a table." if what == "FROM" else ""),
    )


def table_of(name: str, source: Any) -> FileTable | pa.Table:
    """Return the table of a source. NotFoundError: there are no such files. UsageError: it is no table."""
    if isinstance(source, FileTable):
        return source
    places = source if isinstance(source, list | tuple) else (source,)
    if all(isinstance(place, str | os.PathLike) for place in places):
        return file_table(name, source)
    table = arrow_table(source)
    if table is None:
        raise UsageError(
            f"table {name!r} is {type(source).__name__}",
            hint="A table is a path or a URL, a list of these, an Arrow table, a query, or a data frame of pandas or "
            "Polars.",
        )
    return table


def file_table(name: str, source: str | os.PathLike[str] | Iterable[str | os.PathLike[str]]) -> FileTable:
    """Return the table in the files that a path, a pattern, a folder, a URL or a list of these names."""
    return _table_in(name, _found(name, source))


def listed_again(table: FileTable, places: Sequence[str] | None) -> tuple[FileTable, object]:
    """Return a table with the files that its places have now, itself if they are the same, and its stamp.

    `places` are as of `listed`. The stamp is that of `FileTable.stamp`. Errors as of `file_table`.
    """
    if places is None:
        return table, table.stamp()
    files = _found(table.name, places)
    stamp = tuple(files.values())
    if table.files != tuple(files) or table.sizes:
        table = _table_in(table.name, files)
    return table, None if any(isinstance(one, int) for one in stamp) else stamp


def _table_in(name: str, files: Mapping[str, FileStamp | int]) -> FileTable:
    readers = {reader_of(path) for path in files}
    if len(readers) != 1 or "" in readers:
        raise UsageError(
            f"table {name!r}: its files are not of one known format", hint=f"Known ends: {', '.join(READERS)}."
        )
    hive = any("=" in part for part in next(iter(files)).split("/")[:-1])
    sizes: tuple[int, ...] = ()
    if any(map(is_url, files)):
        sizes = tuple(about if isinstance(about, int) else about[1] for about in files.values())
    return FileTable(name, readers.pop(), tuple(files), hive, sizes=sizes)


def listed(source: Any, table: FileTable) -> list[str] | None:
    """Return the places of the files of a table, as paths that stay; None if only files were named, and no folders."""
    if isinstance(source, FileTable):
        return None
    found = []
    for place in map(os.fspath, source if isinstance(source, list | tuple) else [source]):
        path = place.removeprefix("file://")
        is_there = not is_url(place) and os.path.exists(path)
        found.append(place if is_url(place) else os.path.abspath(path) if is_there else _from_root(path))
    return None if set(found) <= set(table.files) else found


def _from_root(pattern: str) -> str:
    """Return a pattern from the root on, in which the signs of the current folder stand for themselves."""
    return os.path.join(glob.escape(os.getcwd()), pattern)


def _found(name: str, source: str | os.PathLike[str] | Iterable[str | os.PathLike[str]]) -> dict[str, FileStamp | int]:
    """Return the files that a source names: with stamps on this machine, with sizes at URLs."""
    patterns = [source] if isinstance(source, str | os.PathLike) else list(source)
    files: dict[str, FileStamp | int] = {}
    for pattern in [os.fspath(each) for each in patterns]:
        files |= _remote(name, pattern) if is_url(pattern) else _local(name, pattern.removeprefix("file://"))
    return files


def _local(name: str, pattern: str) -> dict[str, FileStamp]:
    about = _state(pattern)
    if about is not None and S_ISREG(about.st_mode):
        return {os.path.abspath(pattern): file_stamp(about)}
    is_folder = about is not None and S_ISDIR(about.st_mode)
    inside = os.path.join(glob.escape(os.path.abspath(pattern)), "**") if is_folder else pattern
    folders, names = os.path.split(inside)
    if names == "**":
        folders, names = inside, "*"
    found = {}
    for folder in glob.iglob(os.path.join(_from_root(folders), ""), recursive=True):
        for path in _matching(os.path.join(os.path.abspath(folder), ""), names):
            if is_folder and (not reader_of(path) or os.path.basename(path).startswith("_")):
                continue
            about = _state(path)
            if about is not None and S_ISREG(about.st_mode):
                found[path] = file_stamp(about)
    if not found:
        raise NotFoundError(f"table {name!r}: there is no file {pattern}", hint=_near(pattern))
    return dict(sorted(found.items()))


def _matching(folder: str, names: str) -> Iterator[str]:
    """Yield what a folder has of names that match a pattern; `*` stands for no name with a point at its begin."""
    if not any(sign in names for sign in "*?["):
        yield folder + names
        return
    with suppress(OSError):
        for name in fnmatch.filter(os.listdir(folder), names):
            if names.startswith(".") or not name.startswith("."):
                yield folder + name


def _state(path: str) -> os.stat_result | None:
    """Return what the system tells about a path; None if it is not there."""
    try:
        return os.stat(path)
    except (OSError, ValueError):
        return None


def _near(pattern: str) -> str:
    """Return which file of a folder may be meant, or where a path begins."""
    if os.path.isdir(pattern):
        return f"The folder has no file that ends in one of: {', '.join(READERS)}."
    folder, name = os.path.split(pattern)
    with suppress(OSError):
        if meant := nearest(name, os.listdir(folder or ".")):
            return f"Did you mean {os.path.join(folder, meant)}?"
    return "" if os.path.isabs(pattern) else f"The path begins at {os.getcwd()}."


def _remote(name: str, url: str) -> dict[str, int]:
    found = matching(url)
    if len(found) > 1:
        found = {one: size for one, size in found.items() if reader_of(one)}
    if not found:
        raise NotFoundError(f"table {name!r}: there is no file {shown(url)}")
    return found


def stamps(table: SqlTable) -> Stamps:
    """Return what changes with each file that is copied before it is read.

    Those of Parquet are read where they are. Missing files have no stamp. ForbiddenError: a file system refuses to
    tell.
    """
    if not isinstance(table, FileTable) or table.reader == "read_parquet":
        return ()
    found: list[object] = []
    for path in table.files:
        if is_url(path):
            found.append(stamp_at(path))
            continue
        with suppress(OSError):
            found.append(file_stamp(os.stat(path)))
    return tuple(found)


def reader_of(path: str) -> str:
    """Return the function of DuckDB that reads a file; "" for an unknown end."""
    return next((reader for end, reader in READERS.items() if path.lower().endswith(end)), "")


def arrow_table(source: Any) -> pa.Table | None:
    """Return an Arrow table or a data frame as an Arrow table; None for anything else.

    DefinitionError: it is a single column, or cannot be read.
    """
    if isinstance(source, pa.Table):
        return _readable(source)
    if isinstance(source, pa.RecordBatch):
        return _readable(pa.Table.from_batches([source]))
    pandas = sys.modules.get("pandas")
    if pandas is not None and isinstance(source, pandas.DataFrame):
        return _from_pandas(source)
    polars = sys.modules.get("polars")
    if polars is not None and isinstance(source, polars.DataFrame | polars.LazyFrame):
        return _readable(_for_arrow(source.lazy().collect()).to_arrow())
    if hasattr(source, "__arrow_c_stream__") and not isinstance(source, type):
        try:
            return _readable(pa.table(source))
        except pa.ArrowInvalid as error:
            if "non-struct type" not in str(error):
                raise
            kind = type(source).__name__
            raise DefinitionError(
                f"a {kind} is no table, but one column", hint="Make a data frame of it, such as with .to_frame()."
            ) from None
    return None


def _for_arrow(frame: Any) -> Any:
    """Return a data frame of Polars with integers of 128 bits as decimals of 38 digits, which Arrow has.

    DefinitionError: an integer is longer, or a column has objects, of which Arrow gets the addresses.
    """
    polars = sys.modules["polars"]
    for name, of in frame.schema.items():
        if of == polars.Object:
            hint = "Give the column another type, or leave it out with .drop(...)."
            raise DefinitionError(f"the data frame is no table: column {name!r} has objects of Python", hint=hint)
        if (made := _with_decimals(of, polars)) == of:
            continue
        try:
            frame = frame.with_columns(polars.col(name).cast(made))
        except polars.exceptions.InvalidOperationError as error:
            raise DefinitionError(
                f"column {name!r} of the data frame has an integer of more than 38 digits",
                hint="Give the column another type, such as text: .cast(polars.String).",
            ) from error
    return frame


def _with_decimals(of: Any, polars: Any) -> Any:
    """Return a type of Polars with decimals in place of integers of 128 bits, also within others."""
    if str(of) in _WIDE:
        return polars.Decimal(38, 0)
    if isinstance(of, polars.List):
        return polars.List(_with_decimals(of.inner, polars))
    if isinstance(of, polars.Array):
        return polars.Array(_with_decimals(of.inner, polars), of.size)
    if isinstance(of, polars.Struct):
        return polars.Struct([polars.Field(field.name, _with_decimals(field.dtype, polars)) for field in of.fields])
    return of


def compared_alike(of: pa.DataType) -> bool:
    """Whether Arrow compares values of a type in memory as DuckDB does, which leaves filters of scans to it.

    For Arrow NaN is not the greatest number, and -0.0 is in no list with 0.0. Nanoseconds are cut off in bounds of
    joins, and of other types, such as UUIDs and small decimals, Arrow has no such comparisons.
    """
    if isinstance(of, pa.BaseExtensionType):
        return False
    if pa.types.is_dictionary(of):
        return compared_alike(of.value_type)
    if pa.types.is_struct(of):
        return all(compared_alike(of.field(at).type) for at in range(of.num_fields))
    if pa.types.is_timestamp(of):
        return of.unit != "ns" and of.tz is None  # for a zone DuckDB needs another package
    if pa.types.is_time(of):
        return bool(of.unit != "ns")
    views = pa.types.is_string_view(of) or pa.types.is_binary_view(of)
    small = pa.types.is_decimal32(of) or pa.types.is_decimal64(of)
    return not (views or small or pa.types.is_floating(of) or pa.types.is_uint64(of))


def plain_parameters(parameters: Any) -> Any:
    """Return values of parameters, also in lists and mappings, with numbers of NumPy as those of Python."""
    numpy = sys.modules.get("numpy")
    if isinstance(parameters, Mapping):
        return {key: plain_parameters(value) for key, value in parameters.items()}
    if type(parameters) in (list, tuple):
        return type(parameters)(map(plain_parameters, parameters))
    if (
        numpy is not None
        and isinstance(parameters, (numpy.number, numpy.bool_))
        and not isinstance(parameters, numpy.timedelta64)  # which DuckDB takes as it is
    ):
        return parameters.item()
    return parameters


def _from_pandas(source: Any) -> pa.Table:
    """Return a data frame of pandas as an Arrow table of its present values. DefinitionError: a column mixes types.

    Arrow shares the memory of some columns and copies others. With copies on write, pandas moves a column elsewhere
    before it changes one of a frame that has a second one; so the second lives as long as the table.
    """
    pandas = sys.modules["pandas"]
    lazy = int(pandas.__version__.partition(".")[0]) > 2 or pandas.options.mode.copy_on_write is True
    sparse = [name for name, of in source.dtypes.items() if isinstance(of, pandas.SparseDtype)]
    periods = [name for name, of in source.dtypes.items() if isinstance(of, pandas.PeriodDtype)]
    if periods:  # Arrow takes their numbers, such as months since 1970
        hint = f"Give their begin or their text: frame[{periods[0]!r}].dt.to_timestamp() or .astype(str)."
        raise DefinitionError(f"the data frame is no table: column {periods[0]!r} has periods", hint=hint)
    if sparse:
        hint = f"Make it dense: frame[{sparse[0]!r}].sparse.to_dense()."
        raise DefinitionError(f"the data frame is no table: column {sparse[0]!r} is sparse", hint=hint)
    if has_own_index(source):
        names = ", ".join(repr(name) for name in source.index.names if name is not None)
        warn_user(
            f"the index{names and ' '}{names} of the data frame is no column of the table; to keep it, give "
            "frame.reset_index()",
            stacklevel=2,
        )
    kept = source.copy(deep=not lazy)
    try:
        table = _readable(pa.Table.from_pandas(kept, preserve_index=False))
        weakref.finalize(table, _let_go, kept).atexit = False
        return table
    except (ValueError, OverflowError, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
        mixed = _mixed(source)
        if mixed:
            hint = "Give the column one type, such as with .astype(str), or leave it out with .drop(columns=...)."
            raise DefinitionError(f"the data frame is no table: {mixed}", hint=hint) from None
        reason = ". ".join(str(one) for one in reversed(error.args)).rstrip(".")
        arrow = isinstance(error, pa.ArrowException | OverflowError)
        hint = "Give the column one type, such as with .astype(str)." if arrow else "Rename its columns."
        raise DefinitionError(f"the data frame is no table: {reason}", hint=hint) from None


def has_own_index(frame: Any) -> bool:
    """Whether the index of a data frame of pandas is data, and not numbers of rows, also of those left by a filter."""
    index = frame.index
    return index.nlevels > 1 or index.name is not None or index.dtype.kind not in "iu"


def _mixed(frame: Any) -> str:
    """Return which column of a data frame has values of several types or of an unknown one, and where; "" for none.

    Rows count from 0.
    """
    for at, name in enumerate(frame.columns):
        column = frame.iloc[:, at]
        if column.dtype.kind != "O":
            continue
        seen: dict[type, tuple[int, object]] = {}
        for row, value in enumerate(column):
            is_large = type(value) is int and bool(abs(value) >> 63)
            if (type(value) in seen and not is_large) or _fits(value) is None:
                continue
            shown = f"row {row} {repr(value)[:60]} ({type(value).__name__})"
            if not _fits(value):
                return f"column {name!r} has in {shown}, which no column of a table holds"
            for first, known in seen.values():
                if not _fits(known, value):
                    begin = f"row {first} {repr(known)[:60]} ({type(known).__name__})"
                    return f"column {name!r} mixes types: it has in {begin}, and in {shown}"
            seen[type(value)] = row, value
    return ""


def _fits(*values: object) -> bool | None:
    """Whether one column of Arrow holds the values; None if it holds nothing else than nulls."""
    try:
        return None if pa.array(values, from_pandas=True).null_count == len(values) else True
    except (ValueError, pa.ArrowException, OverflowError):
        return False


def _let_go(frame: Any) -> None:
    """Do nothing: the call held a frame until now."""


def _readable(table: pa.Table) -> pa.Table:
    """Return a table of types that Arrow can filter and DuckDB can read. DefinitionError: it has no columns.

    Texts and bytes of Polars are views, halves become single floats, and runs of equal values their values.
    """
    if not table.num_columns:
        raise DefinitionError("the table has no columns", hint="Give it one at least.")
    warn_of_case(table.column_names)
    for at, field in enumerate(table.schema):
        if pa.types.is_run_end_encoded(field.type):
            table = table.set_column(at, field.name, compute.run_end_decode(table.column(at)))
        if _has_nanoseconds(table.column(at)):
            warn_user(
                f"column {field.name!r} has nanoseconds, which are cut off in queries: moments with a zone, times and "
                "durations have microseconds there. To keep them, give moments without a zone, or integers",
                stacklevel=2,
            )
    schema = pa.schema([field.with_type(_readable_type(field.type)) for field in table.schema])
    return table if schema.equals(table.schema) else table.cast(schema)


def _has_nanoseconds(column: pa.ChunkedArray) -> bool:
    """Whether a column has values below a microsecond, in a type that DuckDB reads in microseconds."""
    of = column.type
    moments = pa.types.is_timestamp(of) and of.tz is not None
    if not (moments or pa.types.is_time(of) or pa.types.is_duration(of)) or of.unit != "ns":
        return False
    exact = column.cast(pa.int64())
    whole = compute.multiply(compute.divide(exact, 1000), 1000)
    return bool(compute.any(compute.not_equal(exact, whole)).as_py())


def _readable_type(of: pa.DataType) -> pa.DataType:
    if pa.types.is_string_view(of):
        return pa.large_string()
    if pa.types.is_binary_view(of):
        return pa.large_binary()
    if pa.types.is_float16(of):
        return pa.float32()
    if pa.types.is_dictionary(of):
        return pa.dictionary(of.index_type, _readable_type(of.value_type), of.ordered)
    if pa.types.is_struct(of):
        return pa.struct([field.with_type(_readable_type(field.type)) for field in of])
    if pa.types.is_list(of):
        return pa.list_(of.value_field.with_type(_readable_type(of.value_type)))
    if pa.types.is_large_list(of):
        return pa.large_list(of.value_field.with_type(_readable_type(of.value_type)))
    return of
