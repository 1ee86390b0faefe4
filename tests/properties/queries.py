"""Random tables and random queries over them, for comparisons with DuckDB.

Queries have one answer: rows that an order or an aggregate may take in any order are equal in all columns that are
read, and floats are multiples of a quarter, so that their sums are exact.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

import duckdb
import pyarrow.parquet

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Sequence
    from pathlib import Path

KINDS: Final = (
    "int", "int", "int", "int", "dec", "dec", "float", "str", "str", "date", "moment", "bool", "list", "struct",
    "huge", "span", "time", "zoned", "uuid", "blob",
)  # fmt: skip
ORDINARY: Final = ("int", "dec", "float", "str", "date", "moment", "bool")
NUMBERS: Final = ("int", "dec", "float", "huge")
DISTANCES: Final = {"int": "2", "dec": "0.5", "date": "INTERVAL 1 DAY", "moment": "INTERVAL 2 SECONDS"}
"""How far bounds of ranges of values are from the current row, by the kind of these."""
ENDS: Final = ("{} FOLLOWING", "CURRENT ROW", "UNBOUNDED FOLLOWING")
TABLES: Final = ("t0", "t1", "t2", "t3", "nothing")


class Column(NamedTuple):
    """A column that an expression may read."""

    name: str
    kind: str


_COLUMNS: Final = (
    ("id", "int"), ("a", "int"), ("b", "int"), ("c", "dec"), ("d", "float"), ("e", "date"), ("f", "moment"),
    ("g", "bool"), ("s", "str"), ("l", "list"), ("r", "struct"), ("q", "dec"), ("h", "float"), ("k", "time"),
    ("z", "zoned"), ("w", "blob"),
)  # fmt: skip


def make_tables(folder: Path, rng: random.Random) -> dict[str, list[str]]:
    """Write the tables as Parquet files with few rows in each group; return the paths by table."""
    made: dict[str, list[str]] = {}
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        for number, name in enumerate(TABLES):
            files = 1 if name == "nothing" else rng.randint(1, 3)
            made[name] = []
            first = 0
            for part in range(files):
                rows = 0 if name == "nothing" or rng.random() < 0.1 else rng.choice([1, 7, 15, 30])
                connection.execute("SELECT setseed(?)", [rng.random()])
                types = [
                    ("INTEGER", "BIGINT"),
                    ("TINYINT", "UINTEGER"),
                    ("BIGINT", "SMALLINT"),
                    ("UTINYINT", "UBIGINT"),
                ]
                a, b = types[number % 4]
                columns = _row(a, b, rng.random())
                table = connection.execute(
                    f"SELECT {', '.join(columns)} FROM range({first}, {first + rows}) _(i)"
                ).to_arrow_table()
                path = folder / f"{name}_{part}.parquet"
                pyarrow.parquet.write_table(table, path, row_group_size=rng.choice([10, 100]))
                made[name].append(str(path))
                first += rows
    return made


def _row(a: str, b: str, skew: float) -> list[str]:
    """Return the columns of a table as SQL over the number `i` of the row."""

    def some(text: str, empty: float = 0.15) -> str:
        return f"CASE WHEN random() < {empty} THEN NULL ELSE {text} END"

    def pick(*values: str) -> str:
        return f"[{', '.join(values)}][1 + floor(random() * {len(values)})::INT]"

    return [
        "i::INTEGER AS id",
        some(f"(CASE WHEN random() < {skew / 2} THEN 3 ELSE floor(random() * 8) END)::{a}") + " AS a",
        some(f"floor(random() * 20)::{b}", 0.3) + " AS b",
        some("(floor(random() * 40) / 4 - 3)::DECIMAL(9,2)") + " AS c",
        some(pick("'NaN'::DOUBLE", "-0.0::DOUBLE", "0.0", "1.5", "-2.25", "4", "1000.75"), 0.1) + " AS d",
        some("DATE '2024-02-27' + floor(random() * 5)::INTEGER") + " AS e",
        some("TIMESTAMP '2023-12-31 23:59:58.123456' + to_seconds(floor(random() * 5)::BIGINT)") + " AS f",
        some("random() < 0.5", 0.2) + " AS g",
        some(pick("''", "'a'", "'b'", "'ab'", "'Ann'", "'%_'", "'é'", "'it''s'", "'12'")) + " AS s",
        some(pick("[]::INTEGER[]", "[1]", "[1, NULL]", "[2, 3, 2]", "[NULL]")) + " AS l",
        some(pick("{'x': 1, 'y': 'p'}", "{'x': 2, 'y': NULL}", "{'x': NULL, 'y': 'q'}")) + " AS r",
        some("(floor(random() * 9) * 1000000.0625)::DECIMAL(18,4)") + " AS q",
        some("(floor(random() * 6) / 2)::FLOAT") + " AS h",
        some("TIME '10:00:00' + to_minutes(floor(random() * 3)::BIGINT)") + " AS k",
        some("TIMESTAMPTZ '2024-03-31 00:59:59+00' + to_seconds(floor(random() * 3)::BIGINT)") + " AS z",
        some(pick("'a'::BLOB", "'\\x00\\xFF'::BLOB", "''::BLOB")) + " AS w",
    ]  # fmt: skip


class RandomQuery(NamedTuple):
    """A query; `ordered` are the positions of the columns that it is ordered by."""

    text: str
    ordered: tuple[int, ...]


def random_query(rng: random.Random) -> RandomQuery:
    """Return a query over the tables of `make_tables`."""
    return _Maker(rng).query()


class _Maker:
    """Makes expressions of a kind over the columns in scope, and queries with columns of given kinds."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._names = 0
        self._shared: list[tuple[str, list[Column]]] = []
        self._budget = rng.choice([2, 4, 7, 10])  # of relations

    def chance(self, of: float) -> bool:
        return self._rng.random() < of

    def fresh(self, prefix: str) -> str:
        self._names += 1
        return f"{prefix}{self._names}"

    # ------------------------------------------------------------------------------------------------------ queries

    def query(self) -> RandomQuery:
        ctes: list[str] = []
        while self.chance(0.2) and len(ctes) < 2:
            text, kinds = self.select(2)
            name = self.fresh("shared")
            word = self._rng.choice(["", "MATERIALIZED ", "NOT MATERIALIZED "])
            ctes.append(f"{name} AS {word}({text})")
            self._shared += [(name, [Column(f"x{at}", kind) for at, kind in enumerate(kinds)])] * 2
        text, kinds = self.select(3)
        before = f"WITH {', '.join(ctes)} " if ctes else ""
        chosen = self._rng.random()
        if chosen < 0.35:
            return RandomQuery(before + text, ())
        positions = list(range(len(kinds)))
        self._rng.shuffle(positions)
        if chosen < 0.6:
            positions = positions[: self._rng.randint(1, len(positions))]
            return RandomQuery(f"{before}SELECT * FROM ({text}) ORDER BY {self.orders(positions)}", tuple(positions))
        limit = f" LIMIT {self._rng.choice([0, 1, 2, 5, 100])}" if self.chance(0.9) else ""
        offset = f" OFFSET {self._rng.choice([0, 1, 3, 50])}" if not limit or self.chance(0.3) else ""
        return RandomQuery(
            f"{before}SELECT * FROM ({text}) ORDER BY {self.orders(positions)}{limit}{offset}", tuple(positions)
        )

    def orders(self, positions: Sequence[int]) -> str:
        return ", ".join(f"x{at}{self.direction()}" for at in positions)

    def direction(self) -> str:
        return self._rng.choice(["", " ASC", " DESC"]) + self._rng.choice(["", " NULLS FIRST", " NULLS LAST"])

    def select(
        self, depth: int, kinds: Sequence[str] | None = None, outer: Sequence[Column] = ()
    ) -> tuple[str, list[str]]:
        """Return a query whose columns are x0, x1, ... and their kinds; it may read the columns of `outer`."""
        self._budget -= 1
        if kinds is None:
            kinds = [self._rng.choice(KINDS) for _ in range(self._rng.randint(1, 4))]
        kinds = list(kinds)
        chosen = self._rng.random()
        if depth > 0 and not outer and self._budget > 0:
            if chosen < 0.10:
                return self.combined(depth, kinds), kinds
            if chosen < 0.16:
                return self.windows(depth, kinds), kinds
            if chosen < 0.20:
                return self.first_of_each(depth, kinds), kinds
        source, scope = self.source(depth - 1)
        scope = [*scope, *([self._rng.choice(list(outer))] if outer and self.chance(0.3) else [])]
        where = self.where(scope, depth, outer)
        if 0.2 < chosen < 0.6:
            return self.grouped(source, scope, where, kinds, depth), kinds
        word = "DISTINCT " if chosen > 0.9 else ""
        output = self.output([self.expression(kind, scope, 2, depth) for kind in kinds])
        return f"SELECT {word}{output} FROM {source}{where}", kinds

    def output(self, texts: Sequence[str]) -> str:
        return ", ".join(f"{text} AS x{at}" for at, text in enumerate(texts))

    def where(self, scope: Sequence[Column], depth: int, outer: Sequence[Column] = ()) -> str:
        conditions = [self.condition(scope, 2, depth) for _ in range(self._rng.choice([0, 0, 0, 1, 1, 2]))]
        for other in self._rng.sample(list(outer), min(len(outer), self._rng.choice([1, 1, 2]))):
            same = [one for one in scope if one.kind == other.kind and one != other]
            if same:
                operator = self._rng.choice(["=", "=", "=", "<", "IS NOT DISTINCT FROM", "<>"])
                conditions.append(f"{self._rng.choice(same).name} {operator} {other.name}")
        return f" WHERE {' AND '.join(conditions)}" if conditions else ""

    def combined(self, depth: int, kinds: Sequence[str]) -> str:
        word = self._rng.choice(["UNION", "INTERSECT", "EXCEPT"]) + self._rng.choice(["", " ALL"])
        sides = [self.select(depth - 1, kinds)[0] for _ in range(2)]
        if self.chance(0.2):
            sides.append(self.select(depth - 1, kinds)[0])
            word = "UNION ALL"
        return f" {word} ".join(f"(SELECT * FROM ({side}))" for side in sides)

    def windows(self, depth: int, kinds: Sequence[str]) -> str:
        """Return a query with windows; orders are over all columns, so that rows that tie are equal."""
        inner, found = self.select(depth - 1, [self._rng.choice(ORDINARY) for _ in range(self._rng.randint(2, 3))])
        scope = [Column(f"x{at}", kind) for at, kind in enumerate(found)]
        output = [
            self.window(kind, scope) if self.chance(0.7) else self.expression(kind, scope, 1, 0) for kind in kinds
        ]
        return f"SELECT {self.output(output)} FROM ({inner}){self.where(scope, 0)}"

    def window(self, kind: str, scope: Sequence[Column]) -> str:
        partition = ""
        if self.chance(0.6):
            keys = self._rng.sample([one.name for one in scope], self._rng.randint(1, len(scope)))
            partition = f"PARTITION BY {', '.join(keys)} "
        every = [f"{one.name}{self.direction()}" for one in scope]
        self._rng.shuffle(every)
        total = f"ORDER BY {', '.join(every)}"
        some = f"ORDER BY {every[0]}"
        frame = self._rng.choice([
            "", " ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW", " ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING",
            " ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING", " ROWS BETWEEN 2 PRECEDING AND 1 PRECEDING",
            " GROUPS BETWEEN 1 PRECEDING AND CURRENT ROW", " RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW",
            " ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING EXCLUDE CURRENT ROW",
        ])  # fmt: skip
        ranged = [one for one in scope if one.kind in DISTANCES]
        if kind == "int" and ranged and self.chance(0.3):
            key = self._rng.choice(ranged)
            near = f"RANGE BETWEEN {DISTANCES[key.kind]} PRECEDING AND {self._rng.choice(ENDS)}"
            near = near.format(DISTANCES[key.kind])
            return (
                f"count({self._rng.choice(scope).name}) OVER ({partition}ORDER BY {key.name}{self.direction()} {near})"
            )
        if kind == "int" and self.chance(0.5):
            if self.chance(0.5):
                return f"{self._rng.choice(['rank', 'dense_rank'])}() OVER ({partition}{some})"
            return f"{self._rng.choice(['row_number()', 'ntile(3)'])} OVER ({partition}{total})"
        inner = self.expression(kind, scope, 1, 0)
        if self.chance(0.4):
            name = self._rng.choice(["first_value({})", "last_value({})", "nth_value({}, 2)"])
            return f"{name.format(inner)} OVER ({partition}{total}{frame})"
        if self.chance(0.3):
            nulls = self._rng.choice(["", " IGNORE NULLS"])
            name = self._rng.choice(["lag", "lead"])
            return f"{name}({inner}, {self._rng.randint(0, 2)}{nulls}) OVER ({partition}{total})"
        call, cast = self.aggregate(kind, scope, window=True), ""
        if call.endswith("::BIGINT"):
            call, cast = call.removesuffix("::BIGINT"), "::BIGINT"
        return f"{call} OVER ({partition}{total}{frame}){cast}"

    def first_of_each(self, depth: int, kinds: Sequence[str]) -> str:
        inner, found = self.select(depth - 1, kinds)
        every = [f"x{at}" for at in range(len(found))]
        keys = self._rng.sample(every, self._rng.randint(1, len(every)))
        order = [f"{name}{self.direction()}" for name in (*keys, *(name for name in every if name not in keys))]
        return f"SELECT DISTINCT ON ({', '.join(keys)}) * FROM ({inner}) ORDER BY {', '.join(order)}"

    def grouped(self, source: str, scope: Sequence[Column], where: str, kinds: Sequence[str], depth: int) -> str:
        keys = [
            self.expression(self._rng.choice(ORDINARY), scope, 1, 0) for _ in range(self._rng.choice([0, 1, 1, 2, 3]))
        ]
        names = [f"g{at}" for at in range(len(keys))]
        # The keys have names of their own below, so that GROUPING finds them and all sides agree on them.
        rows = self.fresh("rows")
        renamed = [Column(f"{rows}.v{at}", one.kind) for at, one in enumerate(scope)]
        columns = ", ".join(
            [
                *(f"{one.name} AS v{at}" for at, one in enumerate(scope)),
                *(f"{key} AS g{at}" for at, key in enumerate(keys)),
            ]
        )
        inner = f"SELECT {columns} FROM {source}{where}"
        output = []
        for kind in kinds:
            if names and kind == "str" and self.chance(0.3):
                output.append(f"CAST({self._rng.choice(names)} IS NULL AS VARCHAR)")
            else:
                output.append(self.aggregate(kind, renamed))
        clause = ""
        if names:
            clause = f" GROUP BY {', '.join(names)}"
            if self.chance(0.3):
                word = self._rng.choice(["ROLLUP", "CUBE", "SETS"])
                sets = ", ".join(
                    f"({', '.join(self._rng.sample(names, self._rng.randint(0, len(names))))})" for _ in range(3)
                )
                clause = (
                    f" GROUP BY GROUPING SETS ({sets})" if word == "SETS" else f" GROUP BY {word} ({', '.join(names)})"
                )
                for at, kind in enumerate(kinds):
                    if kind == "int" and self.chance(0.6) and word != "SETS":
                        output[at] = f"GROUPING({', '.join(names)})"
        if self.chance(0.25):
            clause += (
                f" HAVING {self.aggregate(self._rng.choice(['int', 'dec']), renamed)} > {self._rng.randint(-1, 4)}"
            )
        return f"SELECT {self.output(output)} FROM ({inner}) AS {rows}{clause}"

    # ------------------------------------------------------------------------------------------------------ sources

    def source(self, depth: int) -> tuple[str, list[Column]]:
        """Return what stands behind FROM, and its columns."""
        self._budget -= 1
        chosen = self._rng.random()
        if depth <= 0 or self._budget <= 0 or chosen < 0.35:
            return self.leaf()
        if chosen < 0.5:
            text, kinds = self.select(depth)
            name = self.fresh("s")
            return f"({text}) AS {name}", [Column(f"{name}.x{at}", kind) for at, kind in enumerate(kinds)]
        if chosen < 0.55:
            text, scope = self.leaf()
            lists = [one.name for one in scope if one.kind == "list"]
            if lists:
                name = self.fresh("u")
                columns = ", ".join(f"{one.name} AS x{at}" for at, one in enumerate(scope))
                text = f"(SELECT {columns}, UNNEST({self._rng.choice(lists)}) AS x{len(scope)} FROM {text}) AS {name}"
                kinds = [*(one.kind for one in scope), "int"]
                return text, [Column(f"{name}.x{at}", kind) for at, kind in enumerate(kinds)]
        return self.joined(depth)

    def leaf(self) -> tuple[str, list[Column]]:
        name = self.fresh("t")
        if self._shared and self.chance(0.6):
            text, columns = self._shared.pop(self._rng.randrange(len(self._shared)))
            return f"{text} AS {name}", [Column(f"{name}.{one.name}", one.kind) for one in columns]
        if self.chance(0.05):
            rows = ", ".join(f"({self.literal('int')}, {self.literal('str')}, {self.literal('dec')})" for _ in range(3))
            kinds = ["int", "str", "dec"]
            return f"(VALUES {rows}) AS {name}(x0, x1, x2)", [Column(f"{name}.x{at}", k) for at, k in enumerate(kinds)]
        table = self._rng.choice(TABLES[:4] * 5 + TABLES[4:])
        return f"{table} AS {name}", [Column(f"{name}.{column}", kind) for column, kind in _COLUMNS]

    def joined(self, depth: int) -> tuple[str, list[Column]]:
        left, scope = self.source(depth - 1)
        right, others = self.source(depth - 1)
        kind = self._rng.choice(["JOIN", "JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "SEMI JOIN", "ANTI JOIN"])
        conditions = []
        for _ in range(self._rng.choice([1, 1, 2])):
            one = self._rng.choice(scope)
            same = [other for other in others if other.kind == one.kind]
            if same:
                operator = self._rng.choice(["=", "=", "=", "=", "IS NOT DISTINCT FROM", "<", ">="])
                conditions.append(f"{one.name} {operator} {self._rng.choice(same).name}")
        if kind == "FULL JOIN" and not any(" = " in one or " IS NOT " in one for one in conditions):
            # DuckDB 1.5 reads a null pointer for lists and structs of such a join without an equality.
            conditions = [re.sub(" (<|>=) ", " = ", one) for one in conditions[:1]]
        if self.chance(0.15) and "FULL" not in kind:
            conditions.append(self.condition([*scope, *others], 1, 0))
        if not conditions:
            if kind == "JOIN" and self.chance(0.3):
                return f"{left} CROSS JOIN {right}", [*scope, *others]
            numbers = [next((c.name for c in side if c.kind == "int"), "1") for side in (scope, others)]
            conditions.append(" = ".join(numbers))
        text = f"{left} {kind} {right} ON {' AND '.join(conditions)}"
        return text, scope if kind in ("SEMI JOIN", "ANTI JOIN") else [*scope, *others]

    # -------------------------------------------------------------------------------------------------- expressions

    def literal(self, kind: str) -> str:
        if self.chance(0.05):
            return f"CAST(NULL AS {_TYPES[kind]})"
        return self._rng.choice(_LITERALS[kind])

    def expression(self, kind: str, scope: Sequence[Column], depth: int, queries: int) -> str:
        """Return an expression of a kind; `queries` is how deep it may hold subqueries."""
        names = [one.name for one in scope if one.kind == kind]
        if names and (depth <= 0 or self.chance(0.55)):
            return self._rng.choice(names)
        if depth <= 0 or self.chance(0.1):
            return self.literal(kind)
        if queries > 1 and self._budget > 0 and self.chance(0.12):
            return self.scalar(kind, scope, queries)

        def one(of: str = kind) -> str:
            return self.expression(of, scope, depth - 1, 0)

        if self.chance(0.25):
            return self._rng.choice([
                lambda: f"CASE WHEN {self.condition(scope, depth - 1, 0)} THEN {one()} ELSE {one()} END",
                lambda: f"COALESCE({one()}, {one()})",
                lambda: f"CASE WHEN {self.condition(scope, depth - 1, 0)} THEN {one()} END",
                lambda: f"NULLIF({one()}, {self.literal(kind)})",
            ])()  # fmt: skip
        return self._rng.choice(self._made(kind, one, scope, depth))()

    def _made(self, kind: str, one: Callable[..., str], scope: Sequence[Column], depth: int) -> list[Callable[[], str]]:
        """Return what makes an expression of a kind of others."""
        made: dict[str, list[Callable[[], str]]] = {
            "int": [
                lambda: f"({one()}::BIGINT + {one()}::BIGINT)",
                lambda: f"({one()}::BIGINT - {one()}::BIGINT)",
                lambda: f"({one()}::BIGINT % 7)",
                lambda: f"({one()}::BIGINT // 2)",
                lambda: f"LENGTH({one('str')})",
                lambda: f"LEN({one('list')})",
                lambda: f"({one('struct')}).x",
                lambda: f"EXTRACT(day FROM {one('date')})",
                lambda: f"TRY_CAST({one('str')} AS INTEGER)",
                lambda: f"CAST({one('bool')} AS TINYINT)",
                lambda: f"DATEDIFF('day', {one('date')}, {one('date')})",
                lambda: f"({one('list')})[1]",
            ],
            "dec": [
                lambda: f"({one()} + {self.literal('dec')})",
                lambda: f"({one()} * 2)",
                lambda: f"CAST({one('int')} AS DECIMAL(18,3))",
                lambda: f"ROUND({one()}, 1)",
                lambda: f"(-{one()})",
                lambda: f"ABS({one()})",
            ],
            "float": [
                lambda: f"({one()} + {one()})",
                lambda: f"({one()} / 4)",
                lambda: f"CAST({one('int')} AS DOUBLE)",
                lambda: f"({one('int')} / 2)",
            ],
            "huge": [
                lambda: f"CAST({one('int')} AS HUGEINT)",
                lambda: f"({one('int')}::HUGEINT * 18446744073709551616)",
            ],
            "str": [
                lambda: f"({one()} || {one()})",
                lambda: f"UPPER({one()})",
                lambda: f"SUBSTRING({one()}, 1, 1)",
                lambda: f"CAST({one('int')} AS VARCHAR)",
                lambda: f"CAST({one('date')} AS VARCHAR)",
                lambda: f"({one('struct')}).y",
                lambda: f"CAST({one('bool')} AS VARCHAR)",
                lambda: f"REPLACE({one()}, 'a', 'zz')",
                lambda: f"CONCAT({one()}, '-', {one()})",
            ],
            "date": [
                lambda: f"({one()} + 1)",
                lambda: f"CAST({one('moment')} AS DATE)",
                lambda: f"CAST(DATE_TRUNC('month', {one()}) AS DATE)",
            ],
            "moment": [lambda: f"({one()} + INTERVAL 1 DAY)", lambda: f"CAST({one('date')} AS TIMESTAMP)"],
            "bool": [lambda: self.condition(scope, depth - 1, 0)],
            "list": [
                lambda: f"[{one('struct')}.x, 5]",
                lambda: f"LIST_CONCAT({one()}, {one()})",
                lambda: f"LIST_SORT({one()})",
            ],
            "struct": [lambda: f"{{'x': {one('struct')}.x, 'y': {one('str')}}}"],
            "span": [lambda: f"TO_DAYS({one('int')}::INTEGER)", lambda: f"({one('moment')} - TIMESTAMP '2024-01-01')"],
            "time": [lambda: f"CAST({one('moment')} AS TIME)"],
            "zoned": [lambda: f"({one()} + INTERVAL 1 HOUR)"],
            "uuid": [lambda: f"CAST(MD5({one('str')}) AS UUID)"],
            "blob": [lambda: f"ENCODE({one('str')})"],
        }
        return made[kind]

    def scalar(self, kind: str, scope: Sequence[Column], queries: int) -> str:
        """Return a subquery with one value."""
        self._budget -= 1
        source, inner = self.source(0)
        where = self.where(inner, 0, scope if self.chance(0.6) else ())
        return f"(SELECT {self.aggregate(kind, inner)} FROM {source}{where})"

    def condition(self, scope: Sequence[Column], depth: int, queries: int) -> str:
        """Return a condition; `queries` is how deep it may hold subqueries."""
        if queries > 1 and self._budget > 0 and self.chance(0.3):
            return self.subquery(scope, queries)

        def one(of: str) -> str:
            return self.expression(of, scope, depth - 1, 0)

        kind = self._rng.choice(ORDINARY + tuple(dict.fromkeys(column.kind for column in scope)))
        operator = self._rng.choice(["=", "<>", "<>", "<", "<=", ">", ">=", "IS DISTINCT FROM", "IS NOT DISTINCT FROM"])
        number = self._rng.choice(ORDINARY)
        made: list[Callable[[], str]] = [
            lambda: f"({one(kind)} {operator} {one(kind)})",
            lambda: f"({one(kind)} {operator} {self.literal(kind)})",
            lambda: f"({one(kind)} IS NULL)",
            lambda: f"({one(kind)} IS NOT NULL)",
            lambda: f"({one(kind)} {self._rng.choice(['IN', 'NOT IN'])} ({self.literal(kind)}, {self.literal(kind)}))",
            lambda: f"({one(number)} BETWEEN {self.literal(number)} AND {one(number)})",
            lambda: f"({one('str')} {self._rng.choice(['LIKE', 'NOT LIKE', 'ILIKE'])} {self._rng.choice(_PATTERNS)})",
        ]
        if depth > 0:
            made += [
                lambda: f"({self.condition(scope, depth - 1, 0)} OR {self.condition(scope, depth - 1, 0)})",
                lambda: f"(NOT {self.condition(scope, depth - 1, 0)})",
                lambda: f"({self.condition(scope, depth - 1, 0)} AND {self.condition(scope, depth - 1, 0)})",
            ]
        return self._rng.choice(made)()

    def subquery(self, scope: Sequence[Column], queries: int) -> str:
        """Return a condition that holds a subquery."""
        outer = scope if self.chance(0.5) else ()
        kind = self._rng.choice(ORDINARY)
        value = self.expression(kind, scope, 1, 0)
        chosen = self._rng.random()
        word = self._rng.choice(["", "NOT "])
        if chosen < 0.3:
            return f"{word}EXISTS ({self.select(queries - 2, None, outer)[0]})"
        if chosen < 0.65:
            return f"{value} {word}IN ({self.select(queries - 2, [kind], outer)[0]})"
        if chosen < 0.75:
            more = self.expression("int", scope, 0, 0)
            return f"({value}, {more}) {word}IN ({self._pairs(kind)})"
        if chosen < 0.85:
            word = self._rng.choice(["= ANY", "< ANY", ">= ALL", "<> ALL"])
            return f"{value} {word} ({self.select(queries - 2, [kind], outer)[0]})"
        return f"{value} {self._rng.choice(['<', '=', '>='])} {self.scalar(kind, scope, queries)}"

    def _pairs(self, kind: str) -> str:
        return f"SELECT x0, x1 FROM ({self.select(0, [kind, 'int'])[0]})"

    # --------------------------------------------------------------------------------------------------- aggregates

    def aggregate(self, kind: str, scope: Sequence[Column], *, window: bool = False) -> str:
        """Return an aggregate whose value is of a kind."""

        def one(of: str = kind) -> str:
            return self.expression(of, scope, 1, 0)

        distinct = "DISTINCT " if self.chance(0.15) else ""
        where = f" FILTER (WHERE {self.condition(scope, 1, 0)})" if self.chance(0.15) else ""
        some = self._rng.choice(ORDINARY)
        made: list[Callable[[], str]] = [lambda: f"{self._rng.choice(['MIN', 'MAX'])}({distinct}{one()})"]
        if kind == "int":
            made += [
                lambda: "COUNT(*)",
                lambda: f"COUNT({distinct}{one(some)})",
                lambda: f"COUNT({distinct}{one(some)})",
                lambda: f"SUM({distinct}{one()}::INTEGER)::BIGINT",
                lambda: f"BIT_XOR({one()}::BIGINT)",
                lambda: f"BIT_OR({one()}::BIGINT)",
            ]
        if kind in ("huge", "dec", "float"):
            of = "int" if kind == "huge" else kind
            made += [lambda: f"SUM({distinct}{one(of)})"] * 2
        if kind in ORDINARY and kind != "bool" and not window:
            made.append(lambda: f"QUANTILE_DISC({one()}, {self._rng.choice(['0', '0.25', '0.5', '1'])})")
        if kind == "float" and not window:
            made += [lambda: f"MEDIAN({one('int')})", lambda: f"QUANTILE_CONT({one('int')}, 0.25)"]
        if kind == "float":
            made += [
                lambda: f"AVG({distinct}{one(self._rng.choice(['int', 'float', 'dec', 'huge']))})",
                lambda: f"VAR_POP({one('int')}::SMALLINT)",
            ]
        if kind == "str" and not window:
            made.append(lambda: self._in_order("STRING_AGG({}, ',' ORDER BY {})", one("str")))
        if kind == "list" and not window:
            made.append(lambda: f"[COUNT({one(some)})::INTEGER]")
        if kind == "bool":
            made += [lambda: f"BOOL_AND({one()})", lambda: f"BOOL_OR({one()})"]
        if not window:
            name = self._rng.choice(["FIRST({} ORDER BY {})", "LAST({} ORDER BY {})", "ANY_VALUE({} ORDER BY {})"])
            made.append(lambda: self._in_order(name, one()))
        call = self._rng.choice(made)()
        end = call.rindex(")") + 1 if call.endswith(")") else len(call)
        for tail in ("::BIGINT", "::INTEGER]"):
            if call.endswith(tail):
                end = len(call) - len(tail)
        return call[:end] + where + call[end:]

    def _in_order(self, template: str, argument: str) -> str:
        if argument in _LITERALS["str"] or ("." not in argument and not argument.startswith("x")):
            return template.partition("(")[0].replace("STRING_AGG", "MAX") + f"({argument})"
        return template.format(argument, f"{argument}{self.direction()}")


_PATTERNS: Final = ("'a%'", "'%b'", "'_'", "'%'", "''", "'%n%'", "'A_n'")
_TYPES: Final = {
    "int": "INTEGER", "dec": "DECIMAL(9,2)", "float": "DOUBLE", "str": "VARCHAR", "date": "DATE", "moment": "TIMESTAMP",
    "bool": "BOOLEAN", "list": "INTEGER[]", "struct": "STRUCT(x INTEGER, y VARCHAR)", "huge": "HUGEINT",
    "span": "INTERVAL", "time": "TIME", "zoned": "TIMESTAMPTZ", "uuid": "UUID", "blob": "BLOB",
}  # fmt: skip
_LITERALS: Final = {
    "int": ("0", "1", "3", "5", "12", "-1"),
    "dec": ("0.00", "1.25", "2.5", "-3.75", "100.0"),
    "float": ("0.0::DOUBLE", "1.5::DOUBLE", "-2.25::DOUBLE", "'NaN'::DOUBLE", "-0.0::DOUBLE", "2.5::FLOAT"),
    "str": ("''", "'a'", "'Ann'", "'it''s'", "'é'", "'12'"),
    "date": ("DATE '2024-02-29'", "DATE '2024-02-27'", "DATE '2023-12-31'"),
    "moment": ("TIMESTAMP '2024-01-01 00:00:00.123456'", "TIMESTAMP '2024-02-29'"),
    "bool": ("TRUE", "FALSE"),
    "list": ("[1]", "[]::INTEGER[]", "[2, 3, 2]", "[1, NULL]"),
    "struct": ("{'x': 1, 'y': 'p'}", "{'x': 2, 'y': NULL::VARCHAR}"),
    "huge": ("170141183460469231731687303715884105727", "0::HUGEINT", "(-5)::HUGEINT"),
    "span": ("INTERVAL 1 DAY", "INTERVAL '1 month 3 days'", "INTERVAL '-2 hours'"),
    "time": ("TIME '10:01:00'", "TIME '23:59:58.123456'"),
    "zoned": ("TIMESTAMPTZ '2024-03-31 01:00:00+00'", "TIMESTAMPTZ '2024-03-31 03:00:00+02'"),
    "uuid": ("'00000000-0000-0000-0000-000000000001'::UUID", "'ffffffff-0000-0000-0000-000000000001'::UUID"),
    "blob": ("'a'::BLOB", "''::BLOB"),
}
