"""The command that runs SQL: `weft sql`."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

from weft.cli.arguments import Given, given_once
from weft.cli.parsing import CommandParameter
from weft.cli.tables import print_json, print_table
from weft.model.clusters import ClusterOptions
from weft.model.errors import NotFoundError, SqlError, UsageError
from weft.model.wording import clean
from weft.runtime import arguments

if TYPE_CHECKING:
    from weft.cli.context import CommandContext
    from weft.queries import Query

SHOWN: Final = 40
_WIDTH: Final = 60
_STDIN: Final = "/dev/stdin"
_QUOTED_IN_CSV: Final = re.compile(r'[,"\r\n]|^#')
"""What a text has that stands in quotes in CSV."""


def sql(
    query: Annotated[str, CommandParameter(help="The text, a file that ends in .sql, or - for stdin.")],
    /,
    *files: Annotated[
        str, CommandParameter(help="A data file, a folder, a URL or - for stdin; its table has the name of the file.")
    ],
    table: Annotated[
        list[str] | None, CommandParameter(name=["-t", "--table"], help="Add a table: NAME=PATH; a PATH may be a URL.")
    ] = None,
    param: Annotated[
        list[str] | None,
        CommandParameter(
            name=["-p", "--param"],
            help="Bind $NAME: NAME=VALUE. A VALUE is read as JSON: a number, true, false, null or a text in double "
            "quotes; any other is text.",
        ),
    ] = None,
    allow: Annotated[
        list[str] | None, CommandParameter(help="Let the text read and write files in this folder.")
    ] = None,
    mode: Annotated[str, CommandParameter(help="auto, whole, or stages.")] = "auto",
    bubbles: Annotated[
        str, CommandParameter(help="Which stages stream to one another: batch, gang, greedy, efficient, or cost.")
    ] = "batch",
    backend: Annotated[str, CommandParameter(help="The backend: threads, processes or ray.")] = "threads",
    cluster: Annotated[
        str | None,
        CommandParameter(help="The Ray cluster: HOST:PORT, ray://HOST:PORT, or auto, the one on this machine."),
    ] = None,
    env: Annotated[
        Path | None, CommandParameter(help="The requirements file whose packages the machines of the cluster install.")
    ] = None,
    workers: Annotated[int | None, CommandParameter(help="The number of tasks of stages that run at a time.")] = None,
    explain: Annotated[bool, CommandParameter(help="Print how the query runs instead of its rows.")] = False,
    rows: Annotated[
        int, CommandParameter(name=["-n", "--rows"], help="Print at most this many rows as a table; 0: all.")
    ] = SHOWN,
    as_json: Annotated[bool, CommandParameter(name="--json", help="Print one JSON document.")] = False,
    as_csv: Annotated[bool, CommandParameter(name="--csv", help="Print all rows as CSV.")] = False,
    parquet: Annotated[Path | None, CommandParameter(help="Write all rows to this Parquet file.")] = None,
    context: Given,
) -> None:
    """Run an SQL query over Parquet, CSV and JSON files, and print its rows."""
    from weft.queries import SqlContext
    from weft.store.scratch import ScratchFolder

    arguments.whole("--rows", rows, lo=0, hi=None)
    if as_json + as_csv + (parquet is not None) + explain > 1:
        raise UsageError("--explain, --json, --csv and --parquet exclude each other", hint="Leave out all but one.")
    text = _text(query, context)
    wanted = ClusterOptions(address=cluster, requirements=env) if cluster or env else None
    with (
        SqlContext(backend=backend, cluster=wanted, mode=mode, workers=workers, allow=allow, bubbles=bubbles) as tables,
        ScratchFolder("sql-pipes") as folder,
    ):
        named = _without_pipes(_named(files, table or ()), folder, taken=query == "-")
        try:
            with _warnings_told(context):
                for name, path in named.items():
                    tables.register(name, path)
                found = tables.run_text(text, _parameters(param or ()) or None, None, None)
            if explain:
                context.out.write(f"{found.explain()}\n")
            elif parquet is not None:
                with _warnings_told(context):
                    found.write_parquet(parquet)
            else:
                _print(found, rows, context, as_json=as_json, as_csv=as_csv)
            for made in sorted({*tables.tables} - {*named}):
                context.say(
                    f"{made} ends with this call\n"
                    f"  To keep rows, write a file: weft sql --allow . \"copy (select ...) to '{made}.parquet'\""
                )
        except SqlError as error:
            error.hint = _pointed(error, text)
            raise


@contextmanager
def _warnings_told(context: CommandContext) -> Iterator[None]:
    """Print the warnings of a block as those of commands."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", UserWarning)
        try:
            yield
        finally:
            for one in told:
                context.say(f"warning: {clean(str(one.message))}")


def _text(query: str, context: CommandContext) -> str:
    if query == "-":
        return sys.stdin.read()
    if not query.endswith(".sql"):
        return query
    try:
        return (context.cwd / query).read_text(encoding="utf-8")
    except OSError as error:
        raise NotFoundError(f"{query} cannot be read: {error.strerror}") from None


def _named(files: Sequence[str], tables: Sequence[str]) -> dict[str, str]:
    """Return the paths of the tables by their names. UsageError: no name, or two tables of one."""
    named: dict[str, str] = {}
    for pair in tables:
        name, equals, path = pair.partition("=")
        if not equals or not name or not path:
            raise UsageError(f"--table {pair!r} is not of the form NAME=PATH", hint="For example: -t people=p.parquet")
        given_once(named, "--table", name, path)
    for path in files:
        if "=" in path and not os.path.exists(path):
            raise UsageError(f"there is no file {path}", hint=f"To name a table: weft sql ... --table {path}")
        name = os.path.basename((_STDIN if path == "-" else path).rstrip("/")).partition(".")[0]
        if not name or "*" in name or name in named:
            why = f"as {named[name]}" if name in named else "for a name"
            raise UsageError(f"{path} gives no table a name of its own {why}", hint=f"Name it: --table NAME={path}")
        named[name] = path
    return named


def _without_pipes(named: Mapping[str, str], folder: str, *, taken: bool) -> dict[str, str]:
    """Return the paths of tables, with files in `folder` for those of pipes, which are read once.

    UsageError: two tables are stdin, or one is and the query is `taken` from there.
    """
    found = dict(named)
    for name, path in named.items():
        if path in ("-", _STDIN):
            if taken:
                raise UsageError(
                    f"the table {name} is stdin, and something else is too",
                    hint="Write one of them to a file first.",
                )
            taken = True
        elif not os.path.exists(path) or os.path.isfile(path) or os.path.isdir(path):
            continue
        with ExitStack() as undo:
            source = sys.stdin.buffer if path in ("-", _STDIN) else undo.enter_context(open(path, "rb"))
            first = source.read(4)
            end = "parquet" if first == b"PAR1" else "json" if first[:1] in (b"{", b"[") else "csv"
            found[name] = os.path.join(folder, f"{len(os.listdir(folder))}-{name}.{end}")
            target = undo.enter_context(open(found[name], "xb"))
            target.write(first)
            shutil.copyfileobj(source, target)
    return found


def _parameters(pairs: Sequence[str]) -> dict[str, Any]:
    """Return the values of parameters: numbers, true, false and null as in JSON, anything else is text.

    So is a text of JSON, in double quotes.

    UsageError: other syntax, or two values for one name.
    """
    given: dict[str, str] = {}
    found: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name.isidentifier():
            raise UsageError(f"--param {pair!r} is not of the form NAME=VALUE", hint="For example: -p city=Rome")
        given_once(given, "--param", name, value)
        try:
            read = json.loads(value)
        except ValueError:
            read = value
        found[name] = value if isinstance(read, list | dict) else read
    return found


def _pointed(error: SqlError, text: str) -> str:
    """Return the hint of an error below the line of its mistake, with a caret."""
    lines = text.split("\n")
    if not error.line or error.line > len(lines):
        return error.hint
    line = lines[error.line - 1].replace("\t", " ")
    begin = max(error.column - _WIDTH, 0)
    shown, at = line[begin : begin + 2 * _WIDTH], error.column - 1 - begin
    return "\n  ".join(one for one in (shown, f"{' ' * at}^", error.hint) if one)


def _print(found: Query, rows: int, context: CommandContext, *, as_json: bool, as_csv: bool) -> None:
    if as_csv:
        context.out.write(_csv_line(found.columns))
        for batch in found.csv_batches():
            rows_of_batch = zip(*(column.to_pylist() for column in batch.columns), strict=True)
            context.out.writelines(map(_csv_line, rows_of_batch))
        return
    if as_json:
        values = [[_plain(value) for value in row] for row in found.json_rows()]
        columns = [{"name": name, "type": of} for name, of in zip(found.columns, found.types, strict=True)]
        print_json(context.out, "weft.sql/1", columns=columns, rows=values)
        return
    table = found.arrow() if rows == 0 else found.first(rows + 1)
    more = rows != 0 and table.num_rows > rows
    cells = [[_cell(value) for value in column.to_pylist()[: rows or None]] for column in table.columns]
    heads = [_cell(name) for name in found.columns]
    lines = list(zip(*cells, strict=True))
    if lines:
        print_table(context.console(), heads, lines)
    else:
        context.console().print("  ".join(heads))
    count = len(lines)
    tail = f"the first {count:,} rows; --rows 0 or --csv for all" if more else f"{count:,} row{'s' * (count != 1)}"
    context.say(tail)


def _csv_line(values: Iterable[Any]) -> str:
    """Return a line of CSV as COPY writes it: nothing for NULL, and an empty text in quotes."""
    return f"{','.join(map(_csv_value, values))}\n"


def _csv_value(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    text = str(value)
    if text and not _QUOTED_IN_CSV.search(text):
        return text
    doubled = text.replace('"', '""')
    return f'"{doubled}"'


def _cell(value: Any) -> str:
    """Return a value in one line: NULL by its name, and what is not printed, such as a line break, as its escape."""
    if value is None:
        return "NULL"
    text = str(value)
    if not text.isprintable():
        text = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return text if len(text) <= _WIDTH else f"{text[: _WIDTH - 1]}…"


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if value - value == 0 else str(value)  # JSON has no infinity and no NaN
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, dict):
        return {str(key): _plain(one) for key, one in value.items()}
    return str(value)
