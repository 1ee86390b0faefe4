"""What a run measures changes the stages of a query: fewer tasks, split partitions, other plans of joins."""

import os
import re
import signal
import time
from contextlib import suppress
from typing import Any

import duckdb
import pytest

import weft
from tests.fixtures.staged import StagedQuery, started
from weft.frontends.sql.stages import MEASURED


def eventually(condition, what):
    deadline = time.monotonic() + 180
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.001)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("tables")


@pytest.fixture(scope="module")
def numbers(folder):
    """100 files of 3 rows: many more than a limit may read."""
    inside = folder / "numbers"
    inside.mkdir()
    with duckdb.connect() as connection:
        for part in range(100):
            rows = f"SELECT i, i % 7 AS k, {part} AS part FROM range({3 * part}, {3 * part + 3}) t(i)"
            connection.execute(f"COPY ({rows}) TO '{inside}/{part:04}.parquet' (FORMAT parquet)")
    return str(inside)


@pytest.fixture(scope="module", params=["threads", "processes"])
def context(request, numbers):
    with weft.SqlContext(workers=2, backend=request.param, mode="stages") as made:
        made.register("numbers", numbers)
        yield made


@pytest.mark.parametrize(
    ("text", "most"),
    [
        ("SELECT i, part FROM numbers LIMIT 5", 11),
        ("SELECT i, part FROM numbers LIMIT 5 OFFSET 4", 11),
        ("SELECT i, part FROM numbers WHERE k = 3 LIMIT 5", 11),
    ],
)
def test_a_limit_starts_few_tasks_of_many(context, text, most):
    query = StagedQuery(context, text)
    run = query.start()
    rows = query.rows(run)
    every = query.wanted()
    assert len(rows) == len(every) == 5
    table = context.sql("SELECT i, part FROM numbers" + (" WHERE k = 3" if "WHERE" in text else ""), mode="whole")
    assert set(rows) <= set(table.rows())
    assert 1 <= started(run, "stage_0") <= most
    assert "ended early" in "\n".join(run.explain())
    assert any("emit 'enough'" in line for line in run.story("stage_0"))


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("SELECT count(*) FROM (SELECT i FROM numbers WHERE k > 2 LIMIT 5)", [(5,)]),
        ("SELECT 'yes' WHERE EXISTS (SELECT 1 FROM numbers WHERE k = 3)", [("yes",)]),
        ("SELECT 'yes' WHERE EXISTS (SELECT 1 FROM numbers WHERE k = 8)", []),
    ],
)
def test_a_limit_in_the_middle_of_a_query(context, text, answer):
    query = StagedQuery(context, text)
    run = query.start()
    assert query.rows(run) == query.wanted() == answer
    assert (started(run, "stage_0") < 11) == bool(answer)
    assert any("decides: emit 'enough'" in line for line in run.story("stage_0"))


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("SELECT f.i, w FROM facts f JOIN keys USING (k) LIMIT 5", 5),
        ("SELECT f.i, w FROM facts f LEFT JOIN keys USING (k) WHERE w IS NULL LIMIT 5 OFFSET 2", 5),
        ("SELECT -i, count(*) FROM facts GROUP BY -i LIMIT 4", 4),
        ("SELECT DISTINCT -i FROM facts LIMIT 3", 3),
        ("SELECT i FROM facts INTERSECT SELECT w FROM keys LIMIT 2", 2),
        ("SELECT count(*) FROM (SELECT f.i FROM facts f JOIN keys USING (k) LIMIT 7)", 1),
        ("SELECT 'yes' WHERE EXISTS (SELECT 1 FROM facts f JOIN keys USING (k) WHERE f.v = 3)", 1),
        ("SELECT 'yes' WHERE EXISTS (SELECT 1 FROM facts f JOIN keys USING (k) WHERE f.v = w + 900)", 0),
    ],
)
def test_a_limit_above_an_exchange_starts_few_of_its_readers(stars, text, rows):
    query = StagedQuery(stars, text, partitions=16, target=1)
    (number,) = (stage.number for stage in query.plan.stages if stage.enough is not None)
    run = query.start()
    found = query.rows(run)
    assert len(found) == len(query.wanted()) == rows
    if rows > 1:
        every = text.partition(" LIMIT")[0]
        assert set(found) <= set(StagedQuery(stars, every).wanted())
    else:
        assert found == query.wanted()
    (vertex,) = (one for one in run.view().vertices if one.id == f"stage_{number}")
    assert vertex.n > 8
    assert (vertex.finished < vertex.n) == bool(rows)
    assert any("emit 'enough'" in line for line in run.story(f"stage_{number}"))


def test_a_limit_above_two_plans_of_a_join(store):
    few = "(SELECT o, sum(p) FROM orders GROUP BY o HAVING sum(p) {})"
    text = f"SELECT items.n FROM items JOIN {few} f USING (o) LIMIT 3"
    for having, branch in (("= 7", "copied"), (">= 0", "exchanged")):
        query = StagedQuery(store, text.format(having), small=20_000)
        run = query.start()
        assert len(query.rows(run)) == 3
        assert list(run.view().choices.values()) == [branch]
        waved = [one.number for one in query.plan.stages if one.enough is not None]
        assert sum(started(run, f"stage_{number}") > 0 for number in waved) == 1


SKEWED = """
    CREATE TABLE facts AS
    SELECT i, CASE WHEN i % 10 < 7 THEN 1 ELSE i % 200 END AS k, i % 5 AS v FROM range(60000) t(i);
    CREATE TABLE keys AS SELECT i AS k, i * 3 AS w FROM range(0, 400, 2) t(i)
"""


@pytest.fixture(scope="module")
def skewed(tmp_path_factory):
    """The facts have one key in seven of ten rows; the tables have several files each."""
    folder = tmp_path_factory.mktemp("skewed")
    with duckdb.connect() as connection:
        connection.execute(SKEWED)
        for table, rows in (("facts", 10000), ("keys", 50)):
            (folder / table).mkdir()
            ((count,),) = connection.execute(f"SELECT count(*) FROM {table}").fetchall()
            for at in range(0, count, rows):
                part = f"SELECT * FROM {table} ORDER BY ALL LIMIT {rows} OFFSET {at}"
                connection.execute(f"COPY ({part}) TO '{folder / table}/{at:06}.parquet' (FORMAT parquet)")
    return folder


@pytest.fixture(scope="module")
def stars(skewed):
    with weft.SqlContext(workers=2, mode="stages") as made:
        for table in ("facts", "keys"):
            made.register(table, skewed / table)
        yield made


def in_order(rows):
    return sorted(rows, key=str)


SPLIT = {"JOIN": True, "LEFT JOIN": True, "SEMI JOIN": True, "ANTI JOIN": True, "RIGHT JOIN": False, "FULL JOIN": False}


@pytest.mark.parametrize("kind", SPLIT)
def test_a_heavy_key_of_a_join_is_split_where_the_kind_permits(stars, kind):
    text = f"SELECT f.i, f.v FROM facts f {kind} keys ON f.k = keys.k"
    query = StagedQuery(stars, text, partitions=16, target=20_000)
    run = query.start()
    assert in_order(query.rows(run)) == in_order(query.wanted())
    tasks = started(run, "stage_2")
    assert any(f"decides: {tasks} tasks" in line for line in run.story("stage_2"))
    assert (tasks > 16) == SPLIT[kind]  # more tasks than partitions


def test_a_side_of_several_stages_is_never_split(stars):
    both = "(SELECT i, k FROM facts UNION ALL SELECT i + 100000, k FROM facts WHERE v = 1)"
    query = StagedQuery(stars, f"SELECT f.i, keys.w FROM {both} f JOIN keys USING (k)", partitions=16, target=20_000)
    run = query.start()
    assert in_order(query.rows(run)) == in_order(query.wanted())


def test_groups_with_a_heavy_key_are_light_when_they_are_exchanged(stars):
    query = StagedQuery(stars, "SELECT k, sum(v), count(*) FROM facts GROUP BY k", partitions=16, target=20_000)
    run = query.start()
    assert in_order(query.rows(run)) == in_order(query.wanted())
    (decided,) = (line for line in run.story("stage_1") if "decides" in line)
    assert "1 task" in decided or started(run, "stage_1") <= 4  # a row for each key and file, whatever the skew


@pytest.mark.parametrize(
    ("text", "split", "alone"),
    [
        ("SELECT k, sum(v) FROM facts GROUP BY k", 1 << 30, ["stage_0"]),
        ("SELECT k, sum(v) FROM facts GROUP BY k", 1, []),
        ("SELECT f.i FROM facts f JOIN keys USING (k)", 1 << 30, []),  # both sides have to agree
    ],
)
def test_rows_of_a_single_task_that_one_task_reads_are_not_divided(stars, text, split, alone):
    query = StagedQuery(stars, text, split=split, target=1 << 20)
    run = query.start()
    assert in_order(query.rows(run)) == in_order(query.wanted())
    params = {id: vertex.program.params for id, vertex in query.graph.vertices.items()}
    assert [id for id, one in params.items() if one.get("undivided")] == alone


def test_the_part_after_a_split_join_relies_on_no_hash(stars):
    text = "SELECT f.k, sum(f.i), count(DISTINCT f.v) FROM facts f JOIN keys USING (k) GROUP BY f.k"
    query = StagedQuery(stars, text, partitions=16, target=20_000)
    run = query.start()
    assert in_order(query.rows(run)) == in_order(query.wanted())


def test_only_what_a_lost_worker_had_is_made_again(skewed):
    with weft.SqlContext(workers=2, backend="processes", mode="stages") as context:
        for table in ("facts", "keys"):
            context.register(table, skewed / table)
        text = "SELECT v, count(DISTINCT f.i), sum(w) FROM facts f JOIN keys USING (k) GROUP BY v"
        query = StagedQuery(context, text, partitions=16, target=20_000)
        run = query.start()
        eventually(lambda: started(run, "stage_2") > 0, "tasks of the join")
        executor: Any = context.session.executor
        worker, pid = min(executor.pids.items())
        os.kill(pid, signal.SIGKILL)
        assert in_order(query.rows(run)) == in_order(query.wanted())
        assert any("lost" in line for line in run.story(f"worker {worker}"))
        for vertex in run.view().vertices:  # no task runs again after its end: the outputs are on the node
            ends = re.findall(r"tasks (\d+):(\d+) finished", "\n".join(run.story(vertex.id)))
            assert sum(int(hi) - int(lo) for lo, hi in ends) <= vertex.n


@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="stops a process")
def test_a_worker_that_hangs_holds_no_query_up(numbers):
    with weft.SqlContext(workers=3, backend="processes", mode="stages") as context:
        context.register("numbers", numbers)
        query = StagedQuery(context, "SELECT k, count(*), sum(i) FROM numbers GROUP BY k", split=5_000)
        assert len(query.rows(query.start())) == 7
        executor: Any = context.session.executor
        eventually(lambda: context.session.loop.pool.idle == 3 == len(executor.pids), "three idle workers")
        stopped = min(executor.pids.values())
        os.kill(stopped, signal.SIGSTOP)
        try:
            run = query.start()
            assert in_order(query.rows(run)) == in_order(query.wanted())
            assert "backup on worker" in "\n".join(run.explain())
        finally:
            with suppress(ProcessLookupError):  # it was replaced
                os.kill(stopped, signal.SIGCONT)


def test_an_exchange_larger_than_the_memory_is_spilled(tmp_path):
    with duckdb.connect() as connection:
        rows = "SELECT i, hash(i) AS a, hash(i + 1) AS b, i % 1000 AS k FROM range(1000000) t(i)"
        connection.execute(f"COPY ({rows}) TO '{tmp_path}/big.parquet' (FORMAT parquet, ROW_GROUP_SIZE 100000)")
    with weft.SqlContext(workers=2, mode="stages", memory="16MiB") as context:
        context.register("big", tmp_path / "big.parquet")
        text = "SELECT k, count(DISTINCT a % 100), sum(b % 7) FROM big GROUP BY k"
        query = StagedQuery(context, text, partitions=16, target=1 << 20)
        run = query.start()
        assert in_order(query.rows(run)) == in_order(query.wanted())
        assert context.session.store.stats().spilled > 0


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    """Orders by month in folders, their items in files by order number, and customers."""
    folder = tmp_path_factory.mktemp("shop")
    with duckdb.connect() as connection:
        for month in range(1, 13):
            (folder / "orders" / f"month={month}").mkdir(parents=True)
            rows = f"SELECT {month} * 1000 + i AS o, i % 50 AS c, i AS p FROM range(1000) t(i)"
            connection.execute(f"COPY ({rows}) TO '{folder}/orders/month={month}/0.parquet' (FORMAT parquet)")
        (folder / "items").mkdir()
        for part in range(12):
            lo = 1000 * (part + 1)
            rows = f"SELECT {lo} + i // 2 AS o, i AS n, DATE '2024-01-01' + {part}::INT AS day FROM range(2000) t(i)"
            connection.execute(f"COPY ({rows}) TO '{folder}/items/{part:02}.parquet' (FORMAT parquet)")
        rows = "SELECT i AS c, i % 5 AS land FROM range(50) t(i)"
        connection.execute(f"COPY ({rows}) TO '{folder}/customers.parquet' (FORMAT parquet)")
        rows = "SELECT i AS month, 'm' || i AS title, i // 4 AS quarter FROM range(1, 13) t(i)"
        connection.execute(f"COPY ({rows}) TO '{folder}/months.parquet' (FORMAT parquet)")
    return folder


@pytest.fixture(scope="module", params=["threads", "processes"])
def store(request, shop):
    with weft.SqlContext(workers=2, backend=request.param, mode="stages") as made:
        made._options["backups"] = False  # the rows of an attempt that is outrun are not counted
        for table in ("orders", "items"):
            made.register(table, shop / table)
        for table in ("customers", "months"):
            made.register(table, shop / f"{table}.parquet")
        yield made


MOSTLY_ON_THREADS = pytest.mark.parametrize(
    "store", ["threads", pytest.param("processes", marks=pytest.mark.soak)], indirect=True, scope="module"
)
"""For tests of more combinations of what others try on processes, too."""

GROUPED = """
    SELECT count(*), sum(items.n) FROM items JOIN (SELECT o, sum(p) AS s FROM orders GROUP BY o HAVING {having}) f
    ON items.o = f.o
"""


@pytest.mark.parametrize(
    ("having", "branch"), [("sum(p) = 7", "copied"), ("sum(p) >= 0", "exchanged"), ("sum(p) < 0", "copied")]
)
def test_the_plan_of_a_join_follows_the_measured_bytes_of_a_side(store, having, branch):
    query = StagedQuery(store, GROUPED.format(having=having), small=20_000)
    run = query.start()
    assert query.rows(run) == query.wanted()
    (choice,) = run.view().choices.values()
    assert choice == branch
    explained = "\n".join(run.explain())
    assert re.search(rf"ended early: stage_\d+ has [\d,]+ bytes.*: {branch}", explained)
    # no side is computed twice: each table is read by one vertex that has run
    ran = {
        stage.number for stage in query.plan.stages if stage.table == "items" and started(run, f"stage_{stage.number}")
    }
    assert len(ran) == (0 if having == "sum(p) < 0" else 1)


NESTED = """
    SELECT count(*), sum(n) FROM items
    JOIN (SELECT o, sum(p) AS s FROM orders GROUP BY o HAVING sum(p) {first}) a ON items.o = a.o
    JOIN (SELECT p AS q, count(*) AS c FROM orders GROUP BY p HAVING count(*) > 1 AND p {second}) b ON items.n = b.q
"""


@MOSTLY_ON_THREADS
@pytest.mark.parametrize("first", ["= 7", ">= 0"])
@pytest.mark.parametrize(("second", "b"), [("= 14", "copied"), (">= 0", "exchanged")])
def test_joins_of_which_each_has_two_plans_are_nested(store, first, second, b):
    query = StagedQuery(store, NESTED.format(first=first, second=second), small=5_000 // MEASURED)
    assert max(len(stage.branches) for stage in query.plan.stages) == 2
    run = query.start()
    assert query.rows(run) == query.wanted()
    # b has more conditions than a, so it is measured first. A bound of its key is one of n too, and counts once: then a
    # is measured next, and else the join with b.
    assert list(run.view().choices.values()) == [b, "copied" if first == "= 7" else b]
    scans = [one.number for one in query.plan.stages if one.table == "items" and started(run, f"stage_{one.number}")]
    assert len(scans) == 1


CHAINED = """
    SELECT count(*), sum(n) FROM items JOIN (SELECT o FROM orders WHERE c {second} AND p IN
    (SELECT p FROM orders GROUP BY p HAVING count(*) > 1 AND p {first})) a ON items.o = a.o
"""


@MOSTLY_ON_THREADS
@pytest.mark.parametrize(("first", "a"), [("= 7", "copied"), (">= 0", "exchanged")])
@pytest.mark.parametrize(("second", "b"), [("< 3", "copied"), (">= 0", "exchanged")])
def test_a_side_that_has_two_plans_is_measured_over_both(store, first, a, second, b):
    query = StagedQuery(store, CHAINED.format(first=first, second=second), small=7_000 // MEASURED)
    sides = {branch.choice for stage in query.plan.stages for branch in stage.branches}
    assert sorted(map(len, sides)) == [1, 2]
    run = query.start()
    assert query.rows(run) == query.wanted()
    taken = {int(choice.rpartition("_")[2]): branch for choice, branch in run.view().choices.items()}
    assert [taken[one] for one in sorted(taken)] == [a, b if a == "exchanged" else "copied"]
    scans = [one.number for one in query.plan.stages if one.table == "items" and started(run, f"stage_{one.number}")]
    assert len(scans) <= 1


SHARED = """
    WITH x AS MATERIALIZED (SELECT items.o, n, s FROM items JOIN (SELECT o, sum(p) AS s FROM orders GROUP BY o
    HAVING sum(p) {having}) f ON items.o = f.o)
    SELECT (SELECT count(*) FROM x), (SELECT sum(n) FROM x WHERE s > 3), count(*)
    FROM x JOIN customers ON x.o = customers.c
"""


@pytest.mark.parametrize(("having", "branch"), [("= 7", "copied"), (">= 0", "exchanged")])
def test_a_shared_relation_is_computed_once_by_the_plan_that_is_taken(store, having, branch):
    query = StagedQuery(store, SHARED.format(having=having), small=20_000)
    run = query.start()
    assert query.rows(run) == query.wanted()
    assert branch in run.view().choices.values()
    scans = [one.number for one in query.plan.stages if one.table == "items" and started(run, f"stage_{one.number}")]
    assert len(scans) == 1


def test_nothing_of_the_other_side_starts_if_a_side_has_no_rows(store):
    text = "SELECT count(*), sum(items.n) FROM items JOIN orders ON items.o = orders.o WHERE orders.p % 3 = 5"
    for small in (1 << 30, 20_000):
        query = StagedQuery(store, text, small=small)
        run = query.start()
        assert query.rows(run) == query.wanted() == [(0, None)]
        scans = [stage.number for stage in query.plan.stages if stage.table == "items"]
        assert scans
        assert all(not started(run, f"stage_{number}") for number in scans)


@MOSTLY_ON_THREADS
@pytest.mark.parametrize(
    ("text", "table", "read"),
    [
        ("SELECT title, sum(p) FROM orders JOIN months USING (month) WHERE quarter = 1 GROUP BY title", "orders", 4),
        ("SELECT sum(n) FROM items JOIN orders USING (o) WHERE p % 700 = 650 AND o < 4000", "items", 3),
        ("SELECT sum(n) FROM items WHERE o IN (SELECT o FROM orders WHERE o // 1000 = 7 AND p % 9 = 3)", "items", 1),
    ],
)
def test_splits_that_no_key_of_the_small_side_matches_are_not_read(store, text, table, read):
    query = StagedQuery(store, text, small=1 << 30)
    run = query.start()
    assert in_order(query.rows(run)) == in_order(query.wanted())
    (scan,) = (stage.number for stage in query.plan.stages if stage.table == table)
    assert started(run, f"stage_{scan}") == read
    assert any("its manager decides" in line and f"{read} task" in line for line in run.story(f"stage_{scan}"))


@pytest.mark.parametrize("p", [650, 1000])
def test_splits_are_read_if_other_stages_go_on_with_the_rows_of_each_task(store, p):
    of_order = "(SELECT avg(n) + 1 FROM items j WHERE j.o = items.o)"
    text = f"SELECT sum(n) FROM items JOIN orders USING (o) WHERE p % 700 = {p} AND n < {of_order}"
    query = StagedQuery(store, text, small=1 << 20)
    assert any(exchange.kind == "same" for stage in query.plan.stages for exchange in stage.exchanges)
    run = query.start()
    assert query.rows(run) == query.wanted()
    assert not any("one_to_one joins" in line for line in run.explain())


SPREAD = "(SELECT {key} AS o, sum(p) AS s FROM orders WHERE p % 50 = 3 GROUP BY {key} HAVING sum(p) >= 0)"


@pytest.mark.parametrize(
    ("text", "most"),
    [
        ("SELECT count(*), sum(n) FROM items JOIN {} f ON items.o = f.o", 500),
        ("SELECT count(*), sum(n) FROM items WHERE items.o IN (SELECT o FROM {} f)", 500),
        ("SELECT count(*), sum(n) FROM items JOIN {} f ON items.o = f.o AND items.n = f.s * 2", 300),
        ("SELECT count(*), sum(n), sum(s) FROM items LEFT JOIN {} f ON items.o = f.o", None),
        ("SELECT count(*), sum(n) FROM items WHERE NOT EXISTS (FROM {} f WHERE f.o = items.o)", None),
    ],
)
@pytest.mark.parametrize("key", ["o", "'x' || o"])
def test_rows_that_no_key_of_a_measured_side_matches_are_not_exchanged(store, text, most, key):
    text = text.format(SPREAD.format(key=key))
    if key != "o":
        text = text.replace("items.o", "('x' || items.o)")
    query = StagedQuery(store, text, small=100)
    run = query.start()
    assert query.rows(run) == query.wanted()
    counted = {vertex.id: vertex.rows for vertex in run.view().vertices}
    (read,) = (
        rows for stage in query.plan.stages if stage.table == "items" and (rows := counted[f"stage_{stage.number}"])
    )
    assert read == 24_000 if most is None else read <= most  # a key in 50 matches, and files without one are not read


def test_a_filter_of_too_many_keys_leaves_nothing_out(store, monkeypatch):
    for module in ("text", "stages"):
        monkeypatch.setattr(f"weft.frontends.sql.{module}.FILTER_BITS", 256)
    query = StagedQuery(store, GROUPED.format(having="sum(p) >= 0"), small=20_000)
    run = query.start()
    assert query.rows(run) == query.wanted()
    counted = {vertex.id: vertex.rows for vertex in run.view().vertices}
    assert max(counted[f"stage_{stage.number}"] for stage in query.plan.stages if stage.table == "items") == 24_000


def test_splits_are_pruned_though_other_stages_go_on_task_to_task(store):
    text = "SELECT n FROM items JOIN orders USING (o) WHERE p % 700 = 650 AND o < 4000 ORDER BY n"
    query = StagedQuery(store, text, small=100_000)
    assert any(one.kind == "same" for stage in query.plan.stages for one in stage.exchanges)
    run = query.start()
    assert query.rows(run) == query.wanted()
    scans = [stage.number for stage in query.plan.stages if stage.table == "items"]
    assert sum(started(run, f"stage_{scan}") for scan in scans) == 3


def test_rows_without_a_match_are_kept_where_the_join_keeps_them(store):
    text = "SELECT count(*), count(title) FROM orders LEFT JOIN (FROM months WHERE quarter = 1) m USING (month)"
    query = StagedQuery(store, text, small=1 << 30)
    run = query.start()
    assert query.rows(run) == query.wanted() == [(12000, 4000)]


def test_a_result_without_tasks_has_its_columns(store):
    query = store.sql("SELECT items.o, n, day FROM items JOIN orders USING (o) WHERE p % 3 = 5")
    assert query.rows() == []
    assert query.columns == query.arrow().column_names == ["o", "n", "day"]


ORDERED = "SELECT i, k, v FROM facts ORDER BY k DESC, v, i"


def ranges_of(query, run):
    """Return the numbers of tasks and of rows of the stage that sorts ranges."""
    (number,) = (stage.number for stage in query.plan.stages if any(one.kind == "range" for one in stage.exchanges))
    (vertex,) = (one for one in run.view().vertices if one.id == f"stage_{number}")
    return vertex.n, vertex.rows


@pytest.mark.parametrize("tail", ["", " LIMIT 30000 OFFSET 100", " OFFSET 59000"])
def test_a_sort_of_many_rows_is_divided_into_ranges(stars, tail):
    query = StagedQuery(stars, ORDERED + tail, partitions=16, target=50_000)
    run = query.start()
    assert query.rows(run) == query.wanted()
    tasks, rows = ranges_of(query, run)
    assert tasks > 8
    assert rows == 60_000


def test_rows_that_are_equal_in_an_order_are_divided_too(stars):
    query = StagedQuery(stars, "SELECT k, i FROM facts WHERE k = 1 ORDER BY k", partitions=16, target=50_000)
    run = query.start()
    rows = query.rows(run)
    assert in_order(rows) == in_order(query.wanted())
    assert ranges_of(query, run)[0] > 8


@pytest.mark.parametrize(("v", "taken"), [("v < 9", "ranges"), ("v = 3 AND i < 40", "one_task")])
def test_measured_bytes_decide_whether_one_task_sorts(stars, v, taken):
    query = StagedQuery(stars, f"SELECT i, k FROM facts WHERE {v} ORDER BY k, i", small=20_000, target=50_000)
    run = query.start()
    assert query.rows(run) == query.wanted()
    assert list(run.view().choices.values()) == [taken]
    assert re.search(rf"ended early: stage_0 has [\d,]+ bytes.*: {taken}", "\n".join(run.explain()))


ORDERS = {
    "i % 7 DESC NULLS LAST, i": "integer", "(i % 97 - 40)::DOUBLE / 8, i DESC": "double", "('x' || i % 131), i": "text",
    "CASE WHEN i % 3 > 0 THEN DATE '2024-01-01' + (i % 60)::INT END NULLS FIRST, i": "date",
    "[i % 5, NULL, i % 11] DESC, i": "list", "{'a': i % 5, 'b': 'x' || i % 3}, i": "struct",
    "(i % 9)::DECIMAL(30, 4) DESC, i": "decimal", "to_days((i % 40)::INT), i": "interval",
    "md5(i::VARCHAR)::UUID": "uuid",
    "CASE WHEN i % 4 = 0 THEN 'nan'::DOUBLE WHEN i % 4 = 1 THEN '-inf' ELSE i END DESC, i": "nan",
    "i % 2 = 0, i": "boolean", "('x' || i)::BLOB DESC": "blob",
}  # fmt: skip


@pytest.mark.parametrize("order", ORDERS, ids=ORDERS.values())
def test_ranges_have_the_order_of_each_type(stars, order):
    query = StagedQuery(stars, f"SELECT i, v FROM facts ORDER BY {order}", partitions=8, target=50_000)
    run = query.start()
    assert query.rows(run) == query.wanted()
    assert ranges_of(query, run)[0] == 8


def test_a_union_of_sorted_rows_and_the_side_of_a_join(stars):
    text = """
        SELECT * FROM (SELECT f.i, w FROM facts f JOIN (SELECT k, w FROM keys WHERE w % 2 = 0) USING (k)
        UNION ALL SELECT i, v FROM facts WHERE v = 2) ORDER BY 2, 1
    """
    for small in (0, 500, 1 << 20):
        query = StagedQuery(stars, text, small=small, target=50_000)
        run = query.start()
        assert query.rows(run) == query.wanted()
