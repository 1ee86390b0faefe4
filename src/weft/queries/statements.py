"""Statements that are no SELECT: what they make, change or write, read from their tokens."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from typing import Any, Final, NamedTuple

import duckdb

from weft.model.errors import ForbiddenError, SqlError

_WORD: Final = re.compile(r"""\w+|"(?:[^"]|"")*"|'(?:[^']|'')*'|.""", re.DOTALL)
AVAILABLE: Final = (
    "There are: SELECT, DESCRIBE and SUMMARIZE of a table or a query, SHOW TABLES, CREATE [OR REPLACE] TABLE and VIEW, "
    "DROP TABLE and VIEW, INSERT INTO, and COPY ... TO."
)

REFUSED: Final = frozenset(
    {"ATTACH", "CALL", "CHECKPOINT", "DETACH", "EXPORT", "IMPORT", "INSTALL", "LOAD", "PRAGMA", "RESET", "SET", "USE"}
)
"""Statements that reach beyond the tables of a context, by their first word."""

_ANEW: Final = "Make the table anew: CREATE OR REPLACE TABLE t AS SELECT ... FROM t."
_INSTEAD: Final = {
    "ALTER": _ANEW,
    "DELETE": _ANEW,
    "EXPLAIN": "Call explain() of the query, or explain(analyze=True); in a terminal: weft sql --explain.",
    "UPDATE": _ANEW,
    "WITH": "Write WITH behind the name of the table: INSERT INTO t WITH ... SELECT ...",
}
"""What to write instead of a statement, by its first word."""
_IN_ORDER: Final = "Write the order into the query: ORDER BY x DESC NULLS FIRST."
_IN_MEMORY: Final = "Bound the memory of the context: weft.SqlContext(memory='4GiB')."
_IN_TASKS: Final = "Bound the tasks of the context: weft.SqlContext(mode='stages', workers=4)."
_SETTINGS: Final = {
    "DEFAULT_NULL_ORDER": _IN_ORDER,
    "DEFAULT_ORDER": _IN_ORDER,
    "MAX_MEMORY": _IN_MEMORY,
    "MEMORY_LIMIT": _IN_MEMORY,
    "THREADS": _IN_TASKS,
    "TIMEZONE": "Write the zone into the query: m AT TIME ZONE 'Europe/Oslo'.",
    "VARIABLE": "Bind a parameter: $name in the text, and sql(text, {'name': value}).",
    "WORKER_THREADS": _IN_TASKS,
}
"""What to write instead of a setting, by its name."""
_SCOPES: Final = ("GLOBAL", "LOCAL", "SESSION")

_ABOUT: Final = frozenset({"DESC", "DESCRIBE", "SUMMARIZE"})
"""The first words of statements about a table or a query, which are queries for DuckDB."""
_RETURNED: Final = re.compile(r"(?i)\b(?:RETURN_FILES|RETURN_STATS)\b")
"""Options of COPY that give other rows than the number of those that were written."""


class SqlToken(NamedTuple):
    """A token of a text: its place, and its characters."""

    at: int
    text: str

    @property
    def word(self) -> str:
        """The token in capitals."""
        return self.text.upper()

    @property
    def end(self) -> int:
        """The place behind the token."""
        return self.at + len(self.text)


class Statement(NamedTuple):
    """A statement. `action` is "select", "about", "tables", or "table", "view", "drop", "insert" or "copy".

    `name` is the table, or of a copy the path; `at` and `end` are its place in the text. `body` is what follows the
    name, of a copy what is copied, and `query` the query in it if there is one. `options` follow the path of a copy. An
    insert may be `returning` rows.
    """

    action: str
    name: str = ""
    at: int = 0
    end: int = 0
    body: str = ""
    query: str = ""
    replace: bool = False
    lenient: bool = False
    options: str = ""
    returning: bool = False


def tokens(text: str) -> Iterator[SqlToken]:
    """Yield the tokens of a text without comments."""
    encoded = text.encode()
    for offset, _ in duckdb.tokenize(text):
        at = offset if len(encoded) == len(text) else len(encoded[:offset].decode())
        match = _WORD.match(text, at)
        assert match is not None
        yield SqlToken(at, match[0])


def read_statement(text: str, kind: duckdb.StatementType) -> Statement:
    """Return a statement from its text. SqlError: there is no such statement here, or its name has several parts."""
    words = [one.word for one in islice((one for one in tokens(text) if one.text != ";"), 3)]
    if words == ["SHOW", "TABLES"]:
        return Statement("tables")
    if kind == duckdb.StatementType.SELECT and words and words[0] in _ABOUT and len(words) > 1:
        return Statement("about", query=text)
    if kind == duckdb.StatementType.SELECT and not (words and words[0] in _ABOUT | {"SHOW"}):
        return Statement("select", query=text)
    reader = _Reader(text)
    try:
        return reader.read()
    except StopIteration:
        raise reader.wrong("the statement is not complete") from None


def within(text: str) -> str:
    """Return a query as it stands behind AS, DESCRIBE and the like, with its first line as one of its own."""
    first = next((one for one in tokens(text) if one.text != ";"), None)
    if first is None or first.word not in _ABOUT:
        return f"\n{text}"
    return f"(\n{text.rstrip().rstrip(';')}\n)"


class _Reader:
    """The words of a statement, one after another."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.words = [one for one in tokens(text) if one.text != ";"]
        self.done = 0

    def wrong(self, message: str, hint: str = "") -> SqlError:
        at = self.words[min(self.done, len(self.words) - 1)].at if self.words else 0
        line = self.text.count("\n", 0, at) + 1
        column = at - (self.text.rfind("\n", 0, at) + 1) + 1
        return SqlError(message, line=line, column=column, hint=hint)

    def take(self, *wanted: str) -> bool:
        """Whether the next words are `wanted`; if so they are done."""
        here = tuple(one.word for one in self.words[self.done : self.done + len(wanted)])
        if here == wanted:
            self.done += len(wanted)
        return here == wanted

    def next(self) -> SqlToken:
        if self.done >= len(self.words):
            raise StopIteration
        self.done += 1
        return self.words[self.done - 1]

    def rest(self) -> str:
        return self.text[self.words[self.done].at :].rstrip().rstrip(";") if self.done < len(self.words) else ""

    def read(self) -> Statement:
        if self.take("CREATE"):
            return self._create()
        if self.take("DROP"):
            action = self.take("TABLE") or self.take("VIEW")
            if action:
                return self._named("drop", lenient=self.take("IF", "EXISTS"))
        elif self.take("INSERT", "INTO"):
            return self._named("insert")
        elif self.take("COPY"):
            return self._copy()
        self.done = 0
        first = self.words[0].word
        if first in REFUSED:
            raise ForbiddenError(f"{first} is refused: queries read and write tables only", hint=self._for_setting())
        raise self.wrong(f"{first} is not available in queries", _INSTEAD.get(first, AVAILABLE))

    def _for_setting(self) -> str:
        """Return what to write instead of a refused statement, which may be a setting."""
        names = [one.word for one in self.words[1:] if one.word not in _SCOPES]
        known = names and self.words[0].word in ("PRAGMA", "SET")
        return _SETTINGS.get(names[0], AVAILABLE) if known else AVAILABLE

    def _create(self) -> Statement:
        replace = self.take("OR", "REPLACE")
        _ = self.take("TEMP") or self.take("TEMPORARY")
        action = "table" if self.take("TABLE") else "view" if self.take("VIEW") else ""
        if not action:
            raise self.wrong(f"CREATE {self.next().word} is not available in queries", AVAILABLE)
        return self._named(action, lenient=self.take("IF", "NOT", "EXISTS"), replace=replace)

    def _named(self, action: str, *, lenient: bool = False, replace: bool = False) -> Statement:
        name = self.next()
        if self.take("."):
            raise self.wrong(f"the name of the table has several parts: {name.text}.", "Give a name without dots.")
        begin, query, returning = self.done, "", False
        if action in ("table", "view"):
            query = self._behind_as()
            if action == "table" and query and self.words[begin].word != "AS":
                self.done = begin
                raise self.wrong(
                    f"CREATE TABLE ... AS takes nothing between the name and AS, and there is {self.words[begin].text}",
                    "Name the columns in the query: CREATE TABLE t AS SELECT a AS x ...",
                )
        elif action == "insert":
            query, returning = self._first_query()
            if returning:
                self._check_returned(name)
        elif not (self.take("CASCADE") or self.take("RESTRICT")) and self.done < len(self.words):
            raise self.wrong(f"DROP takes nothing behind the name, and there is {self.words[self.done].text}")
        self.done = begin
        body = self.rest()
        return Statement(
            action, unquoted(name.text), name.at, name.end, body, query, replace, lenient, returning=returning
        )

    def _behind_as(self) -> str:
        """Return the query behind AS; "" if there is none."""
        depth = 0
        while self.done < len(self.words):
            token = self.next()
            depth += {"(": 1, ")": -1}.get(token.text, 0)
            if depth == 0 and token.word == "AS":
                return self.rest()
        return ""

    def _first_query(self) -> tuple[str, bool]:
        """Return the query of an INSERT, "" if there is none, and whether RETURNING follows."""
        depth, at, begin = 0, -1, -1
        while self.done < len(self.words):
            before, token = self.words[self.done - 1].word, self.next()
            depth += {"(": 1, ")": -1}.get(token.text, 0)
            if token.word in ("SELECT", "FROM", "WITH") and begin < 0:
                begin = token.at
            if token.word == "RETURNING" and not depth and before not in (".", "AS"):
                at = token.at
                break
        end = len(self.text.rstrip().rstrip(";")) if at < 0 else at
        return self.text[begin:end] if begin >= 0 else "", at >= 0

    def _check_returned(self, table: SqlToken) -> None:
        """SqlError: RETURNING names the table, which has another name while it gets its rows."""
        while self.done < len(self.words):
            if unquoted(self.words[self.done].text).lower() == unquoted(table.text).lower():
                self.done += 1
                if self.take("."):
                    self.done -= 2
                    raise self.wrong(f"RETURNING names the table {table.text}", "Name its columns alone.")
                continue
            self.next()

    def _copy(self) -> Statement:
        begin, depth = self.done, 0
        while True:
            token = self.next()
            depth += {"(": 1, ")": -1}.get(token.text, 0)
            if depth == 0 and token.word in ("TO", "FROM") and self.done - 1 > begin:
                break
        if token.word == "FROM":
            raise self.wrong("COPY ... FROM is not available in queries", "Write: INSERT INTO TABLE FROM 'FILE'.")
        source = self.text[self.words[begin].at : token.at].strip()
        path = self.next()
        if not path.text.startswith("'"):
            raise self.wrong("COPY needs the path of a file in single quotes behind TO")
        query = source[1:-1] if source.startswith("(") else f"FROM {source}"
        if (behind := self.words[begin + 1]).text == "(" and not source.startswith("("):
            table, columns = self.text[self.words[begin].at : behind.at], self.text[behind.end : token.at]
            query = f"SELECT {columns.rstrip()[:-1]} FROM {table}"
        options = self.rest()
        if found := _RETURNED.search(options):
            raise self.wrong(f"COPY gives the number of rows, and no {found[0]}", "Leave the option out.")
        return Statement("copy", unquoted(path.text), path.at, path.end, source, query, options=options)


def unquoted(text: str) -> str:
    """Return a name or a string without its quotes."""
    quote = text[:1]
    return text[1:-1].replace(quote * 2, quote) if quote in ('"', "'") else text


def referenced(connection: duckdb.DuckDBPyConnection, query: str) -> set[str]:
    """Return the names that a query reads as tables, without those that it defines itself; none of a wrong query.

    `connection` is one to a database without tables: DuckDB leaves out those that it has.
    """
    with suppress(duckdb.Error):  # it needs the columns of a table, for NATURAL JOIN
        return connection.get_table_names(query)
    try:
        row = connection.execute("SELECT json_serialize_sql($1)", [query]).fetchone()
    except duckdb.Error:
        return set()
    assert row is not None
    names: set[str] = set()
    own: set[str] = set()

    def look(node: dict[str, Any]) -> dict[str, Any]:
        if node.get("type") == "BASE_TABLE" and not node.get("schema_name"):
            names.add(node["table_name"])
        if "cte_map" in node:
            own.update(one["key"] for one in node["cte_map"]["map"])
        return node

    json.loads(row[0], object_hook=look)
    return names - own
