"""Floats of Parquet files: what DuckDB knows from the bounds in a file never shows in the rows of a query."""

import math
import random

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import weft

SPECIAL = [math.nan, math.inf, -math.inf, -0.0, 0.0, None]
CONDITIONS = [
    "true",
    "x > {}",
    "x < {}",
    "x = {}",
    "x >= {} and y <= {}",
    "x in ({}, {}, 0.0)",
    "k >= 0",
    "x is not null",
]
AGGREGATES = [
    "max(x)",
    "min(x)",
    "max(y), min(y)",
    "max(x), count(*)",
    "max(distinct x)",
    "max(x order by x)",
    "max(x) filter (where k > 3)",
    "count(x), max(k), min(k)",
    "sum(k), max(x)",
    "max(s.z), min(s.z)",
]
QUERIES = [
    "select {aggregate} from t where {condition}",
    "select k % 3 as g, {aggregate} from t where {condition} group by g order by g",
    "select count(*) from t where x = (select max(x) from t)",
    "select count(*) from t where x = (select min(x) from t where {condition})",
    "select count(*) from t as a join t as b on a.x = b.y where a.x > {value}",
    "select x from t where {condition} order by x desc limit 3",
    "select max(m) from (select max(x) as m from t where {condition} union all select min(y) from t)",
    "select count(*) filter (where x > {value}) from t",
]


def values(rng: random.Random, count: int) -> list[float | None]:
    kind = rng.choice(["plain", "special", "one", "mixed"])
    plain: list[float | None] = [float(rng.randrange(-9, 10)) for _ in range(count)]
    if kind == "special":
        return [rng.choice(SPECIAL) for _ in plain]
    if kind == "one":
        return [rng.choice(SPECIAL)] * count
    return plain if kind == "plain" else [rng.choice([one, one, rng.choice(SPECIAL)]) for one in plain]


def table(rng: random.Random) -> pa.Table:
    count = rng.choice([1, 5, 40])
    x, y, z = (values(rng, count) for _ in range(3))
    nested = pa.array([{"z": one} for one in z], pa.struct([("z", pa.float64())]))
    return pa.table({"x": pa.array(x, pa.float64()), "y": pa.array(y, pa.float32()), "k": range(count), "s": nested})


def query(rng: random.Random) -> str:
    def value() -> str:
        one = rng.choice([*SPECIAL[:5], float(rng.randrange(-9, 10))])
        return f"'{one}'::double"

    condition = rng.choice(CONDITIONS).replace("{}", "{0}")
    while "{0}" in condition:
        condition = condition.replace("{0}", value(), 1)
    return rng.choice(QUERIES).format(aggregate=rng.choice(AGGREGATES), condition=condition, value=value())


def shown(rows: list[tuple[object, ...]]) -> str:
    """Return rows as text, in which 0.0 and -0.0 are one number, and of equal values any may be the first."""
    return repr([tuple(0.0 if one == 0.0 and isinstance(one, float) else one for one in row) for row in rows])


@pytest.mark.parametrize("mode", ["whole", "stages"])
@pytest.mark.parametrize("seed", range(4))
def test_queries_over_files_are_those_over_the_rows(seed, mode, tmp_path):
    rng = random.Random(seed)
    print(f"seed {seed}")
    with weft.SqlContext(mode=mode, workers=2) as context, duckdb.connect() as plain:
        for number in range(4):
            folder = tmp_path / str(number)
            folder.mkdir()
            parts = [table(rng) for _ in range(rng.choice([1, 1, 1, 2, 3]))]
            for at, part in enumerate(parts):
                pq.write_table(part, folder / f"{at}.parquet", row_group_size=rng.choice([3, 1000]))
            rows = pa.concat_tables(parts)
            plain.register("arrow", rows)
            plain.execute("create or replace table t as from arrow")
            context.register("f", str(folder))
            context.sql("create or replace table s as select * from f")
            context.sql("create or replace view v as select * from f where k >= 0")
            for _ in range(6):
                text = query(rng)
                wanted = shown(plain.execute(text).fetchall())
                for name in ("f", "s", "v"):
                    own = text.replace("from t", f"from {name}").replace("join t", f"join {name}")
                    assert shown(context.sql(own).rows()) == wanted, (own, rows.to_pydict())
