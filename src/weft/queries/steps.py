"""The step kind `sql`: a query over input artifacts, whose rows are an output artifact."""

from __future__ import annotations

import hashlib
import itertools
import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import duckdb
import pyarrow.csv

from weft.frontends.pipelines.kinds import Complaints, StepFrame, StepKind, leaves_of
from weft.frontends.sql.fragment import interrupted_at_cancel
from weft.frontends.sql.mistakes import mistake
from weft.frontends.sql.tables import FileTable
from weft.model.errors import ForbiddenError, NotFoundError, RunCancelledError, SqlError, TaskError, WeftError
from weft.model.resources import Resources
from weft.model.suggestions import did_you_mean
from weft.queries.connections import plain
from weft.queries.context import SqlContext
from weft.queries.remarks import collected
from weft.queries.sources import file_table, reader_of
from weft.queries.statements import referenced, tokens

if TYPE_CHECKING:
    from weft.graph.task import TaskContext, TaskInput
    from weft.queries.query import Query

FORMATS: Final = ("parquet", "csv")
_MAGIC: Final = b"PAR1"
_NO_TEMPLATES: Final = "must be without templates; a query binds parameters of the step as $NAME"
_OF_ITEM: Final = (
    ". For the item of a loop let a dag loop, and give the step a parameter {{PF_PARENT.PF_LOOP_ARGUMENT}}"
)


def run_query(ctx: TaskContext, _inputs: Mapping[str, TaskInput]) -> dict[str, Any]:
    """Run the query of a step (style TASK); return its columns and its warnings.

    TaskError: the query is wrong, or fails. RunCancelledError: the step was stopped, also in the middle of its query.
    """
    params = ctx.params
    name, options = str(params["name"]), params["options"]
    try:
        text = _text(options, str(params["folder"]))
        output = _output(options, params["outputs"])
        with SqlContext(allow=[]) as context, collected() as warnings:
            for table, path in _tables(options, params["inputs"]).items():
                context.register(table, _file(table, path))
            values = {key: value for key, value in params["parameters"].items() if f"${key}" in _asked(text)}
            query = context.run_text(text, values or None, "whole", None)
            _write(ctx, query, output, options.get("format") or "parquet")
    except RunCancelledError:
        raise
    except WeftError as error:
        raise TaskError(error.message, task=name, hint=_hint_of_step(error)) from None
    columns = [{"name": name, "type": of} for name, of in zip(query.own_columns, query.types, strict=True)]
    return {"columns": columns, "warnings": warnings}


def _hint_of_step(error: WeftError) -> str:
    """Return the hint of an error of a query, with what a step can do where the hint is of grants, which it has not."""
    if isinstance(error, ForbiddenError):
        return (
            "A step reads the tables of its input artifacts, and writes the rows of its query to its output artifact. "
            "Let a step before it write the file as an output artifact, and take that as artifacts.input."
        )
    hint = error.hint or ""
    if "granted folder" in hint:
        hint += " A step has no granted folder: let a step before it write the file so that all of it can be read."
    return hint


def _write(ctx: TaskContext, query: Query, output: str, form: str) -> None:
    try:
        with interrupted_at_cancel(ctx, query.interrupt):
            if form == "parquet":
                query.write_parquet(output)
            else:
                columns = query.file_columns()
                with pyarrow.csv.CSVWriter(output, query.csv_schema(columns)) as writer:
                    for batch in query.csv_batches():
                        writer.write_batch(batch.rename_columns(columns))
    except (WeftError, duckdb.Error):
        if ctx.cancelled():
            raise RunCancelledError(f"step {ctx.params['name']} was stopped") from None
        raise


def _asked(text: str) -> set[str]:
    """Return the parameters that a text asks for, each with its dollar."""
    words = list(tokens(text))
    return {f"${after.text}" for sign, after in itertools.pairwise(words) if sign.text == "$"}


def _text(options: Mapping[str, Any], folder: str) -> str:
    if "query" in options:
        return str(options["query"])
    path = Path(folder, options["file"])
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise NotFoundError(f"the file {path} of a query cannot be read: {error}") from None


def _tables(options: Mapping[str, Any], inputs: Mapping[str, list[str]]) -> dict[str, list[str]]:
    """Return the paths of each table; without the option, each input is a table of its own name."""
    named = options.get("tables") or {name: name for name in inputs}
    for table, name in named.items():
        if name not in inputs:
            known = ", ".join(inputs) or "none"
            raise NotFoundError(f"the table {table} is the input {name!r}, and the inputs of the step are: {known}")
    return {table: inputs[name] for table, name in named.items()}


def _file(name: str, paths: list[str]) -> list[str] | FileTable:
    """Return the files of an artifact; one without a known end is Parquet by its first bytes, else CSV."""
    if any(os.path.isdir(path) or reader_of(path) for path in paths):
        return list(file_table(name, paths).files)
    heads = set()
    for path in paths:
        with open(path, "rb") as file:
            heads.add(file.read(len(_MAGIC)) == _MAGIC)
    return FileTable(name, "read_parquet" if heads == {True} else "read_csv", tuple(map(os.path.abspath, paths)))


def _output(options: Mapping[str, Any], outputs: Mapping[str, str]) -> str:
    name = options.get("output") or (next(iter(outputs)) if len(outputs) == 1 else "")
    if name not in outputs:
        known = ", ".join(outputs) or "none"
        raise NotFoundError(f"the output {name!r} of the query is none of the step: {known}", hint="Set with.output.")
    return outputs[name]


# ------------------------------------------------------------------------------------------------------- the options


def check(options: Mapping[str, Any]) -> Complaints:
    """Return the mistakes in the options of such a step."""
    if ("query" in options) == ("file" in options):
        return (("", "needs either query or file"),)
    found = []
    for name in ("query", "file", "output", "format"):
        value = options.get(name, "")
        if not isinstance(value, str):
            found.append((name, "must be text"))
        elif "{{" in value:
            found.append((name, _NO_TEMPLATES + (_OF_ITEM if "PF_LOOP_ARGUMENT" in value else "")))
    tables = options.get("tables", {})
    if not isinstance(tables, Mapping) or not all(isinstance(one, str) and "{{" not in one for one in tables.values()):
        found.append(("tables", "must map names of tables to names of inputs, such as {people: raw}"))
    if isinstance(options.get("format", ""), str) and options.get("format", "parquet") not in FORMATS:
        found.append(("format", f"must be one of {', '.join(FORMATS)}"))
    return tuple(found)


def leaves(options: Mapping[str, Any], folder: str, cwd: str) -> dict[str, str]:
    """Return what the result depends on: the options, and the text of the query."""
    digest = hashlib.sha256(_text(options, folder).encode()).hexdigest()
    return {**leaves_of({key: value for key, value in options.items() if key != "query"}, folder, cwd), "query": digest}


def examine(options: Mapping[str, Any], folder: str, step: StepFrame) -> list[str]:
    """Check the query, and what it and the options name, before a run.

    SqlError: it is no SQL, or asks for a table or a parameter that the step has not. NotFoundError: an option names an
    artifact that the step has not.
    """
    text = _text(options, folder)
    _output(options, dict.fromkeys(step.outputs, ""))
    tables = _tables(options, {name: [] for name in step.inputs})
    with plain() as connection:
        try:
            connection.extract_statements(text)
        except duckdb.Error as error:
            raise mistake(error, text) from None
        known = {name.lower() for name in tables}
        for name in sorted(referenced(connection, text)):
            if name.lower() not in known and not reader_of(name):  # it is told of a file when it runs
                raise SqlError(f"there is no table {name}", hint=_known("tables", tables, name))
    for name in sorted(asked.removeprefix("$") for asked in _asked(text)):
        if name not in step.parameters:
            raise SqlError(f"the text asks for ${name}", hint=_known("parameters", step.parameters, name))
    return []


def _known(what: str, names: Collection[str], meant: str) -> str:
    """Return a hint with the tables or parameters that a step has."""
    there = f"The {what} of the step are: {', '.join(names) or 'none'}."
    return f"{guess} {there}" if (guess := did_you_mean(meant, names)) else there


KIND: Final = StepKind(
    program=f"{__name__}:run_query",
    options=dict.fromkeys(("query", "file", "tables", "output", "format"), False),
    check=check,
    leaves=leaves,
    examine=examine,
    resources=(Resources(cpu=1),),
)
