"""Queries explained: as planned, as executed, and as runs of the command line."""

import json
import re
import subprocess
import sys
import threading
from html.parser import HTMLParser

import pyarrow as pa
import pyarrow.parquet
import pytest

import weft
import weft.frontends.sql.fragment
from weft.model.errors import UsageError

TEXT = """
select kind, sum(amount) as total from sales join goods using (good)
where amount > 10 and name <> '<b>&' group by kind order by total desc limit 2
"""


@pytest.fixture
def tables(tmp_path):
    good = [n % 20 for n in range(400)]
    sales = pa.table({"good": good, "amount": list(range(400))})
    for part in range(4):
        pyarrow.parquet.write_table(sales.slice(part * 100, 100), tmp_path / f"sales{part}.parquet")
    goods = pa.table({
        "good": list(range(20)), "kind": [n % 3 for n in range(20)], "name": [f"g{n}" for n in range(20)],
    })  # fmt: skip
    return {"sales": str(tmp_path / "sales*.parquet"), "goods": goods}


def opened(tables, **options):
    context = weft.SqlContext(workers=options.pop("workers", 2), mode=options.pop("mode", "stages"), **options)
    for name, source in tables.items():
        context.register(name, source)
    return context


class Notebook:
    """Shows pictures of progress; the first one with a stage is `seen`."""

    def __init__(self):
        self.pictures = []
        self.seen = threading.Event()

    def display(self, picture, display_id):
        self.update_display(picture, display_id)

    def update_display(self, picture, display_id):
        self.pictures.append(repr(picture))
        if "stage_" in self.pictures[-1]:
            self.seen.set()


def test_a_query_shows_the_progress_of_each_stage_while_it_runs(tables, monkeypatch):
    notebook = Notebook()
    monkeypatch.setattr("weft.runtime.progress._notebook", lambda: notebook)
    run = weft.frontends.sql.fragment.interruptible

    def waiting(ctx, connection, answer):
        assert notebook.seen.wait(60), "no stage was shown"
        return run(ctx, connection, answer)

    monkeypatch.setattr("weft.frontends.sql.fragment.interruptible", waiting)
    with opened(tables) as context:
        assert len(context.sql(TEXT).rows()) == 2
    assert any(re.fullmatch(r"query 0/\d+\n(stage_\d+ 0/1\n?)+", one) for one in notebook.pictures)
    assert notebook.pictures[-1] == ""


def test_a_plan_tells_stages_and_exchanges_and_runs_nothing(tables):
    with opened(tables) as context:
        found = context.sql(TEXT).explained()
        assert found.mode == "stages"
        assert not found.state
        assert [each.figures for each in found.stages] == [None] * len(found.stages)
        text = str(found)
        assert "where amount > 10" in text
        assert "inner join" in text
        assert "partial aggregation by kind: sum(amount)" in text
        assert "1 to 32 tasks, by shuffle" in text
        assert "by the hash of kind" in text
        assert text == context.sql(TEXT).explain()


@pytest.mark.parametrize("backend", ["threads", "processes"])
def test_the_executed_graph_stands_beside_the_planned_one(tables, backend, monkeypatch):
    monkeypatch.setattr("weft.queries.query.TINY_BYTES", 0)
    with opened(tables, backend=backend) as context:
        query = context.sql(TEXT)
        found = query.explained(analyze=True)
        assert found.state == "succeeded"
        assert found.added == {}
        figures = {each.stage.number: each.figures for each in found.stages}
        assert all(one.finished == one.tasks > 0 and one.seconds > 0 for one in figures.values())
        assert figures[len(figures) - 1].rows == 2
        scanned = next(each for each in found.stages if each.stage.table == "goods")
        assert scanned.figures.rows == 20
        document = json.loads(context.sql(TEXT).explain(analyze=True, format="json"))
        last = document["stages"][-1]
        (exchange,) = last["receives"]
        assert exchange["rows"] == sum(document["stages"][at]["executed"]["rows"] for at in exchange["from"])
        assert exchange["bytes"] > 0
        decided = [change for change in document["changes"] if change["kind"] == "manager_decided"]
        assert any("bytes in 32 partitions" in change["seen"] for change in decided)
        assert len(query.rows()) == 2


@pytest.mark.parametrize("backend", ["threads", "processes"])
def test_a_tiny_table_is_read_by_the_tasks_that_join_it(tables, backend):
    with opened(tables, backend=backend) as context:
        query = context.sql(TEXT)
        found = query.explained(analyze=True)
        assert "scan goods in each task" in str(found)
        assert [each.stage.table for each in found.stages] == ["sales", "", ""]
        answer = context.sql(TEXT, mode="whole").rows()
        assert query.rows() == answer
        twice = "select a.name, b.kind from goods a join goods b on a.good = b.kind where a.kind = 2"
        assert sorted(context.sql(twice).rows()) == sorted(context.sql(twice, mode="whole").rows())


GROUPED = "select good, sum(amount) as total from sales group by good order by total desc, good limit 3"


def test_stages_of_a_bubble_run_at_once_and_stream(tables):
    with opened(tables, workers=8, bubbles="gang") as context:
        query = context.sql(GROUPED)
        document = json.loads(query.explain(analyze=True, format="json"))
        assert {stage["bubble"] for stage in document["stages"]} == {"bubble 1: stages 0, 1, 2 run at once and stream"}
        assert any("slots at once" in change["what"] for change in document["changes"])
        assert document["stages"][0]["executed"]["rows"] == -1  # a stage that streams returns nothing to count
        assert "bubble 1: stages 0, 1, 2" in query.explain()
        assert "bubble 1: stages 0, 1, 2" in query.explain(format="html")
        assert query.rows() == [(19, 4180), (18, 4160), (17, 4140)]


def test_what_the_slots_cannot_hold_is_stored(tables):
    with opened(tables, bubbles="gang") as context:
        query = context.sql(GROUPED)
        assert "no bubble: 3 tasks would run at once, and there are 2 slots" in query.explain()
        assert query.rows() == context.sql(GROUPED, bubbles="batch").rows()
        assert "bubble" not in context.sql(GROUPED, bubbles="batch").explain()


def test_data_that_a_decision_is_made_from_are_stored(tables):
    text = "select sales.good from sales join (select good from goods limit 3) g on sales.good = g.good"
    with opened(tables, workers=32, bubbles="gang") as context:
        query = context.sql(text)
        assert "no bubble: it waits for a decision that is made from measured data" in query.explain()
        assert len(query.rows()) == 60


def test_tasks_that_read_only_stored_rows_are_as_many_as_the_measured_rows_need(tables):
    few = "select sales.good from sales join (select good from goods limit 3) g on sales.good = g.good"
    text = f"select n, count(*) from (select good, count(*) as n from ({few}) group by good) group by n"
    with opened(tables, workers=32, bubbles="gang") as context:
        query = context.sql(text)
        told = {stage.stage.number: (stage.planned, stage.bubble) for stage in query.explained().stages}
        numbers = "no bubble: the number of its tasks follows from measured rows"
        assert [tasks for tasks, why in told.values() if why == numbers] == ["1 to 32 tasks, by shuffle"]
        assert query.rows() == [(20, 3)]


@pytest.mark.parametrize("backend", ["threads", "processes"])
def test_an_error_in_a_bubble_is_that_of_its_stage(tables, backend):
    text = "select g, count(*) from (select error('too' || ' bad') as g from sales) group by g"
    with opened(tables, workers=8, bubbles="gang", backend=backend) as context:
        query = context.sql(text)
        assert "bubble 1: " in query.explain()
        with pytest.raises(weft.WeftError, match="too bad"):
            query.rows()


def test_an_unknown_setting_of_bubbles_is_refused(tables):
    with pytest.raises(UsageError, match="bubbles is 'soap'"):
        weft.SqlContext(bubbles="soap")
    with opened(tables) as context, pytest.raises(UsageError, match="bubbles is 'soap'"):
        context.sql(GROUPED, bubbles="soap")


def test_rows_are_those_of_the_analysed_run(tables):
    with opened(tables) as context:
        query = context.sql("select random() as x from goods")
        query.explain(analyze=True)
        assert query.rows() == query.rows()


@pytest.mark.parametrize("text", ["select kahan_sum(amount) from sales", TEXT])
def test_a_whole_query_tells_why_and_what_it_took(tables, text):
    with opened(tables, mode="auto" if text is TEXT else "stages") as context:
        found = context.sql(text).explained(analyze=True)
        assert (found.mode, found.state) == ("whole", "succeeded")
        assert found.whole.rows == (2 if text is TEXT else 1)
        assert found.because
        assert "one task runs the whole query" in str(found)


class Tags(HTMLParser):
    """Collects the tags and the text of a page."""

    def __init__(self):
        super().__init__()
        self.tags, self.text = [], ""

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        assert not {"src", "href"} & {name for name, _ in attributes}

    def handle_data(self, data):
        self.text += data


def test_html_is_one_escaped_page(tables):
    with opened(tables) as context:
        found = context.sql(TEXT).explained(analyze=True)
        for page in (found.written("html"), found._repr_html_()):
            parser = Tags()
            parser.feed(page)
            assert {"script", "link", "img", "b"}.isdisjoint(parser.tags)
            assert "name <> '<b>&'" in parser.text
            assert "bytes in 32 partitions" in parser.text
        with pytest.raises(UsageError, match="format is 'pdf'"):
            found.written("pdf")


def test_runs_of_durable_contexts_are_explained_by_the_command_line(tables, tmp_path, monkeypatch):
    monkeypatch.setattr("weft.queries.query.TINY_BYTES", 0)
    with opened(tables, durable=tmp_path / "state") as context:
        assert len(context.sql(TEXT).rows()) == 2
        assert context.sql("select kahan_sum(amount) from sales").rows() == [(79800.0,)]  # whole: no run of its own
    command = [sys.executable, "-m", "weft", "explain", "@last", "--state-dir", str(tmp_path / "state")]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "20 rows of " in text
    assert "bytes in 32 partitions" in text
    document = json.loads(subprocess.run([*command, "--json"], capture_output=True, text=True, check=True).stdout)
    assert document["state"] == "succeeded"
    assert any("2 rows of" in row["executed"] for row in document["graph"])
