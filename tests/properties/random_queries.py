"""Random queries over random tables in stages, and what DuckDB gives for them.

A failure prints the seed of its tables and its query; `WEFT_SEED` with that seed repeats it over the first tables.
"""

from __future__ import annotations

import math
import os
import random
from collections import Counter
from decimal import Decimal

import duckdb
import pyarrow as pa

import weft
from tests.properties.oracle import Oracle, OracleFaultError
from tests.properties.queries import make_tables, random_query
from weft.model.errors import WeftError
from weft.wiring.bubbles import BUBBLES

PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "ci")
COUNT = {"fast": 8, "soak": 1_000}.get(PROFILE, 100)
"""Queries for each part."""
PARTS = 5
"""Into how many parts the queries of each pair are divided: files with many tests start early."""
WHOLE_AT_MOST = 0.05
KEPT_DATABASES = 64
"""The databases that the process keeps: queries read few tables here, and each set of them in turn."""


class Pair:
    """Random tables in a context of Weft and in DuckDB."""

    def __init__(self, folder, seed):
        self.seed, rng = seed, random.Random(seed)
        self.context = weft.SqlContext(mode="stages", workers=rng.choice([2, 8, 32]))
        tables = make_tables(folder, rng)
        for name, paths in tables.items():
            self.context.register(name, paths)
        self.oracle = Oracle(tables)

    def close(self):
        self.oracle.close()
        self.context.close()

    def check(self, made, bubbles):
        """Return why the query ran whole, "" for stages; AssertionError: its answer is another."""
        try:
            wanted = self.oracle.rows(made.text)
        except OracleFaultError:  # the same fault would end this process
            return "error"
        except duckdb.Error as error:
            wanted = error
        try:
            asked = self.context.sql(made.text, bubbles=bubbles)
            found = asked._exact()
        except (WeftError, duckdb.Error) as error:
            found = error
        if isinstance(wanted, duckdb.Error) or isinstance(found, Exception):
            assert isinstance(wanted, duckdb.Error), (wanted, found)
            assert isinstance(found, WeftError), (wanted, found)
            return "error"
        assert found.schema.types == wanted.schema.types, (found.schema, wanted.schema)
        mine, theirs = rows_of(found), rows_of(wanted)
        if Counter(mine) != Counter(theirs):  # sorting takes longer than most queries
            wrong = different(sorted(mine, key=place), sorted(theirs, key=place))
            assert not wrong, wrong
        wrong = different(*([tuple(row[at] for at in made.ordered) for row in rows] for rows in (mine, theirs)))
        assert not wrong, f"the order: {wrong}"
        return asked.whole_because


def rows_of(table):
    return list(zip(*(map(value_of, column.to_pylist()) for column in table.columns), strict=True))


def value_of(value):
    """Return a value that compares as DuckDB compares it: NaN is one object, which equals itself."""
    if isinstance(value, float):
        return math.nan if math.isnan(value) else value
    if isinstance(value, pa.MonthDayNano):
        return ((value.months * 30 + value.days) * 86_400_000_000_000) + value.nanoseconds
    if isinstance(value, dict):
        return tuple(map(value_of, value.values()))
    if isinstance(value, list):
        return tuple(map(value_of, value))
    return value


def place(row):
    """Return a key that sorts rows, those with almost equal floats beside each other."""
    return [_place(value) for value in row]


def _place(value):
    if isinstance(value, tuple):
        return "tuple", str(place(value))
    if isinstance(value, float):
        return "float", "nan" if math.isnan(value) else f"{value + 0.0:.6g}"
    if isinstance(value, Decimal):
        return "decimal", str(value)
    return type(value).__name__, str(value)


def same(left, right):
    if isinstance(left, tuple) and isinstance(right, tuple):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, float) and isinstance(right, float):
        return math.isclose(left, right, rel_tol=1e-9, abs_tol=1e-12) or (math.isnan(left) and math.isnan(right))
    return type(left) is type(right) and left == right


def different(found, wanted):
    """Return the first difference of two lists of rows."""
    if found == wanted:
        return ""
    if len(found) != len(wanted):
        return f"{len(found)} rows and not {len(wanted)}: {found[:5]} and {wanted[:5]}"
    return next(
        (f"{mine} and not {theirs}" for mine, theirs in zip(found, wanted, strict=True) if not same(mine, theirs)), ""
    )


def open_pair(folder, number):
    """Return the pair of this number, of which each has other tables."""
    first = int(os.environ.get("WEFT_SEED", 0)) or (
        random.SystemRandom().randrange(1 << 40) if PROFILE == "soak" else 0
    )
    return Pair(folder, first + number)


def settings(rng):
    """Return settings of a query, each a name in a module and its value: small ones make many tasks of few rows."""
    return {
        "weft.queries.query.SMALL_BYTES": rng.choice([0, 4000, 1 << 20]),
        "weft.queries.query.TINY_BYTES": rng.choice([0, 2000, 16 << 10]),
        "weft.frontends.sql.stages.TOP_ROWS": rng.choice([0, 3, 10_000]),
        "weft.queries.query.PARTITIONS": rng.choice([1, 2, 3]),
        "weft.queries.query.TARGET_BYTES": rng.choice([1, 1000, 1 << 20]),
        "weft.queries.planned.SPLIT_BYTES": rng.choice([1, 3000, 1 << 20]),
    }


def check_queries(pair, part, monkeypatch):
    """Check the queries of a part of those of a pair."""
    monkeypatch.setattr("weft.frontends.sql.fragment.KEPT_DATABASES", KEPT_DATABASES)
    reasons = Counter[str]()
    for number in range(part * COUNT, (part + 1) * COUNT):
        made = random_query(random.Random(f"{pair.seed} {number}"))
        rng = random.Random(f"settings {pair.seed} {number}")
        chosen, bubbles = settings(rng), rng.choice(BUBBLES)
        for name, value in chosen.items():
            monkeypatch.setattr(name, value)
        try:
            reasons[pair.check(made, bubbles)] += 1
        except AssertionError as error:
            about = f"seed {pair.seed}, query {number}, bubbles {bubbles}, {chosen}"
            raise AssertionError(f"{about}: {made.text}\n{error}") from None
    errors, divided = reasons.pop("error", 0), reasons.pop("", 0)
    whole = sum(reasons.values())
    assert whole <= WHOLE_AT_MOST * (whole + divided), reasons
    assert errors <= max(1, 0.05 * COUNT), errors
