"""Reports of runs: pages that are whole, closed and safe, graphs in layers, and time lines that stay small."""

import itertools
import json
import re
from collections.abc import Mapping
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.fixtures.pages import CheckedPage
from weft.admin.control import send
from weft.engine.explain import Change, Explained, ExplainedItem
from weft.model.errors import ConflictError, ForbiddenError, NotFoundError, UsageError
from weft.runs.reading import RunRecord, StepRecord, read_run
from weft.runs.records import Record, append_records
from weft.runs.reports.drawn import MOST_BOXES, DrawnGraph, drawn_graph, layers_of
from weft.runs.reports.facts import MOST_LOGS, report_run
from weft.runs.reports.markup import table, text, time_text
from weft.runs.reports.mermaid import mermaid_graph
from weft.runs.reports.page import run_page
from weft.runs.reports.picture import svg_graph
from weft.runs.reports.spans import spans_of, without_pauses
from weft.runs.reports.style import GRAPH_STYLE
from weft.runs.reports.timeline import MOST_ROWS, time_line
from weft.runs.reports.writing import write_report
from weft.store.state import RunFolder, StateRoot

EVIL = '<script>alert("x")</script>&\x1b[31m\x00'
START = 1_700_000_000.0


class NoSource:
    """A host whose runs nobody can read but by their records."""

    def __init__(self) -> None:
        self.managers: dict[str, Any] = {}

    def source_again(self, frontend: str, folder: Path, file: str) -> Any:
        raise ConflictError("its front end is not here")

    def ask_owner(self, folder: Path, message: Mapping[str, Any]) -> Any:
        return send(folder, message)


@contextmanager
def no_cache(note):
    yield SimpleNamespace(index=SimpleNamespace(entry=lambda key: None))


def made(tmp_path: Path, steps: list[str], records: list[Record], **about: Any) -> RunRecord:
    """Leave the folder of an ended run, and read it."""
    with RunFolder.create(StateRoot(tmp_path / ".weft"), "run-000001") as folder:
        folder.describe(**{"number": 1, "name": "trial", "frontend": "pipelines", "steps": steps, **about})
        append_records(folder, [Record(time=START, state="pending"), Record(time=START, state="running"), *records])
        for record in records:
            if record.state == "failed" and record.step:
                folder.log_path(record.step, record.index).write_text(f"said {record.step} {EVIL}\n" * 100)
    return read_run(tmp_path / ".weft" / "runs" / "run-000001")


def page_of(run: RunRecord, base: Path, now: float = START + 100) -> str:
    return run_page(report_run(run, NoSource(), now, no_cache), base)


def began(step: str, at: float, **more: Any) -> Record:
    return Record(time=START + at, step=step, state="running", **more)


def ended(step: str, at: float, state: str = "succeeded", **more: Any) -> Record:
    return Record(time=START + at, step=step, state=state, ended=True, **more)


def over(at: float, state: str = "succeeded", **more: Any) -> Record:
    return Record(time=START + at, state=state, ended=True, **more)


# ------------------------------------------------------------------------------------------------------------- the page


def test_a_page_escapes_every_text_of_users_and_loads_nothing(tmp_path):
    output = tmp_path / f"{EVIL[:8]}out.json"
    output.write_text(json.dumps({EVIL: 0.5, "inner": {"n": 3}, "no": "text", "flag": True, "nan": float("nan")}))
    page_file = tmp_path / "page.html"
    page_file.write_text("<script>alert(2)</script>")
    run = made(
        tmp_path,
        ["split", f"bad {EVIL[:8]}", "after"],
        [
            began("split", 0),
            ended("split", 1, outputs={"numbers": str(output), "page": str(page_file), "gone": str(tmp_path / "none")}),
            began(f"bad {EVIL[:8]}", 1),
            ended(f"bad {EVIL[:8]}", 3, "failed", message=f"it broke {EVIL}", exit=3),
            ended("after", 3, "cancelled", message=f"because {EVIL}"),
            over(3, "failed", message=f"a step failed {EVIL}", error="WEFT501"),
        ],
        name=f"trial {EVIL}",
        user=EVIL,
        parameters={EVIL: EVIL, "url": "postgres://me:hunter2@db/x?token=abc"},
    )
    html = page_of(run, tmp_path)
    page = CheckedPage(html)
    assert not re.search("hunter2|token=abc", html), "passwords of URLs are masked"
    assert "alert(2)" not in html, "outputs are linked, and not embedded"
    assert "\x1b" not in html
    assert "\x00" not in html
    for wanted in (
        '<script>alert("x")</script>&',
        "it broke",
        "because",
        "a step failed",
        "0.5",
        "inner.n",
        "me:***@db",
    ):
        assert wanted in page.text, wanted
    assert "missing" in page.text
    assert "page.html" in page.links
    assert page.text.count("said bad") == 40, "the last lines of the log"
    assert "The last lines:" in page.text
    assert page.tags["h1"] == 1
    assert page.tags["h2"] >= 6
    assert page.tags["caption"] >= 4
    assert re.search(r"prefers-color-scheme:dark", html)
    assert "@media print" in html
    tables = re.findall(r"<thead>.*?</thead>", html)
    assert tables
    assert all('scope="col"' in head for head in tables)


def test_busy_seconds_are_those_of_all_attempts(tmp_path):
    records = [
        *(began("a", 0), began("a", 2, attempt=1), ended("a", 6)),
        *(began("many", 0, index=at) for at in range(3)),
        *(ended("many", 2, index=at) for at in range(3)),
        over(6),
    ]
    report = report_run(made(tmp_path, ["a", "many"], records), NoSource(), START + 9, no_cache)
    assert report.busy_s == pytest.approx(12.0)
    assert [(span.attempt, span.seconds, span.state) for span in report.spans["a"]] == [
        (0, 2.0, "failed"),
        (1, 4.0, "succeeded"),
    ]
    page = CheckedPage(run_page(report, tmp_path))
    assert "busy in tasks12 s" in page.text


def test_a_run_without_its_end_tells_its_states_so_far(tmp_path):
    root = StateRoot(tmp_path / ".weft")
    with RunFolder.create(root, "run-000001") as folder:
        folder.describe(number=1, name="live", frontend="pipelines", steps=["a", "b"])
        append_records(folder, [Record(time=START, state="running"), began("a", 1)])
        run = read_run(folder.path, alive=True)
        report = report_run(run, NoSource(), START + 11, no_cache)
        page = CheckedPage(run_page(report, tmp_path))
        assert report.live
        assert report.busy_s == pytest.approx(10.0)
        assert "The run has not ended" in page.text
        assert "running" in page.text
        assert "it has not started: the run is running" in page.text
    page = CheckedPage(page_of(read_run(root.folder("run-000001")), tmp_path))
    assert "weft resume run-000001" in page.text
    assert "interrupted" in page.text


def test_a_folder_without_records_has_a_page(tmp_path):
    with RunFolder.create(StateRoot(tmp_path / ".weft"), "run-000001") as folder:
        path = folder.path
    page = CheckedPage(page_of(read_run(path), tmp_path))
    assert "run-000001" in page.text


def test_the_answers_of_the_cache_are_told_with_the_digests(tmp_path):
    output = tmp_path / "out.txt"
    output.write_text("x" * 2048)
    records = [ended("a", 1), began("b", 1), ended("b", 2, outputs={"out": str(output)}), over(2)]
    run = made(tmp_path, ["a", "b"], records)
    answers: list[dict[str, Any]] = [
        {"step": "a", "task": 0, "outcome": "hit", "reason": "result of run-000000", "run": "run-000000", "key": "1"},
        {"step": "b", "outcome": "waiting", "reason": "other", "key": "2"},
        {
            "step": "b",
            "task": 0,
            "outcome": "miss",
            "reason": "parameter x changed",
            "key": "2",
            "differences": ["parameter x changed", "file y changed"],
            "leaves": {"input data": "fbeef", "input name data": "", "file main:y.py": "fcafe", "mode": "z"},
        },
    ]
    (run.folder / "cache.jsonl").write_text("".join(f"{json.dumps(one)}\n" for one in answers))
    kept = SimpleNamespace(leaves={}, outputs={"out": SimpleNamespace(digest="f0123456789abcdef")})

    @contextmanager
    def cache(note):
        yield SimpleNamespace(index=SimpleNamespace(entry={"2": kept}.get))

    report = report_run(run, NoSource(), START + 9, cache)
    assert [(one.step, one.name) for one in report.inputs] == [("b", "data"), ("b", "main:y.py")]
    (found,) = report.outputs
    assert (found.kind, found.size, found.digest) == ("file", 2048, "f0123456789abcdef")
    page = CheckedPage(run_page(report, tmp_path))
    assert "taken from the cache: result of run-000000" in page.text
    assert "ran: parameter x changed\nalso file y changed" in page.text
    assert "2.0 KiB" in page.text


def test_an_unusable_cache_is_a_remark(tmp_path):
    run = made(tmp_path, ["a"], [began("a", 0), ended("a", 1), over(1)])
    (run.folder / "cache.jsonl").write_text('{"step": "a", "outcome": "miss", "reason": "none is kept", "key": "1"}\n')

    @contextmanager
    def broken(note):
        raise ForbiddenError("the index is closed")
        yield

    page = CheckedPage(run_page(report_run(run, NoSource(), START, broken), tmp_path))
    assert "The digests of outputs are not known: the index is closed." in page.text


def test_training_jobs_tell_conditions_usage_events_and_reports(tmp_path):
    records = [began("worker", 0, index=0), ended("worker", 5, "failed", index=0, exit=3), over(5, "failed")]
    run = made(tmp_path, ["worker"], records, frontend="training", training={})
    job = {
        "kind": "TFJob",
        "name": f"demo {EVIL[:8]}",
        "namespace": "default",
        "usage": {"worker-0": {"cpu_s": 2.5, "memory": 1024}},
        "status": {"conditions": [{"type": "Failed", "status": "True", "message": EVIL, "changed_at": START}]},
        "events": [[START, "Warning", "Broke", EVIL]],
        "reports": {"worker-0": {"step": 7, "time": START, "metrics": {"loss": 0.25}}},
    }
    (run.folder / "status.json").write_text(json.dumps({"jobs": [job]}))
    report = report_run(read_run(run.folder), NoSource(), START + 9, no_cache)
    assert {(one.name, one.value) for one in report.metrics} == {("step", 7), ("loss", 0.25)}
    page = CheckedPage(run_page(report, tmp_path))
    for wanted in ("Training jobs", "Conditions of", "2.5 s", "1.0 KiB", "1 event", "Replicas", "worker-0"):
        assert wanted in page.text, wanted


def test_the_number_of_quoted_logs_is_bounded(tmp_path):
    names = [f"s{at}" for at in range(30)]
    run = made(tmp_path, names, [*(r for n in names for r in (began(n, 0), ended(n, 1, "failed"))), over(1, "failed")])
    report = report_run(run, NoSource(), START, no_cache)
    assert len(report.logs) == MOST_LOGS
    assert f"weft logs {run.id}" in CheckedPage(run_page(report, tmp_path)).text


# ----------------------------------------------------------------------------------------------------------- many tasks


def test_ten_thousand_items_of_a_loop_give_a_small_page(tmp_path):
    records = [began("loop", at / 100, index=at) for at in range(10_000)]
    records += [
        ended("loop", at / 100 + 5, "failed" if at % 1000 == 3 else "succeeded", index=at) for at in range(10_000)
    ]
    with RunFolder.create(StateRoot(tmp_path / ".weft"), "run-000001") as folder:
        folder.describe(number=1, name="wide", frontend="pipelines", steps=["loop"])
        append_records(folder, [Record(time=START, state="running"), *records, over(105, "failed")])
    html = page_of(read_run(tmp_path / ".weft" / "runs" / "run-000001"), tmp_path)
    page = CheckedPage(html)
    assert len(html) < 100_000
    assert "10 failed, 9,990 succeeded" in page.text
    assert "loop-3" in page.text


def test_ten_thousand_steps_are_grouped_but_for_the_failed_ones(tmp_path):
    names = [f"step-{at}" for at in range(10_000)]
    states = {name: "failed" if name == "step-77" else "succeeded" for name in names}
    records = [r for at, n in enumerate(names) for r in (began(n, at / 50), ended(n, at / 50 + 1, states[n]))]
    with RunFolder.create(StateRoot(tmp_path / ".weft"), "run-000001") as folder:
        folder.describe(number=1, name="many", frontend="pipelines", steps=names)
        append_records(folder, [Record(time=START, state="running"), *records, over(201, "failed")])
    html = page_of(read_run(tmp_path / ".weft" / "runs" / "run-000001"), tmp_path)
    page = CheckedPage(html)
    assert len(html) < 100_000
    assert "step-* (10,000 steps)" in page.text
    assert "1 failed, 9,999 succeeded" in page.text
    assert "step-77" in page.text
    assert "step-78" not in page.text


@given(st.lists(st.tuples(st.floats(0, 100), st.floats(0, 50), st.sampled_from(["a", "b-1", "b-2"])), max_size=200))
def test_a_time_line_is_whole_whatever_the_attempts(attempts):
    records = []
    for at, (begin, length, step) in enumerate(sorted(attempts)):
        records += [began(step, begin, index=at), ended(step, begin + length, index=at)]
    spans = spans_of(sorted(records, key=lambda record: record.time), START + 150, alive=False)
    assert sum(map(len, spans.values())) == len(attempts)
    drawn = time_line(spans, START, START + 150)
    CheckedPage(drawn)
    assert "nan" not in drawn
    assert drawn.count("<tr>") == (len(spans) + 1 if attempts else 0)


def test_a_time_line_has_a_bounded_number_of_rows():
    names = [f"{chr(97 + at % 26)}{chr(97 + at // 26)}" for at in range(200)]
    spans = spans_of([r for name in names for r in (began(name, 0), ended(name, 1))], START + 1, alive=False)
    drawn = time_line(spans, START, START + 1)
    assert drawn.count('scope="row"') == MOST_ROWS
    assert f"{200 - MOST_ROWS + 1} further rows" in drawn


def test_an_attempt_ends_with_its_owner():
    records = [began("a", 0), Record(time=START + 4, state="running"), Record(time=START + 9, state="pending")]
    records += [began("a", 10, attempt=1)]
    told = [(span.seconds, span.state) for span in spans_of(records, START + 12, alive=True)["a"]]
    assert told == [(4.0, "interrupted"), (2.0, "running")]
    assert [span.state for span in spans_of(records, START + 12, alive=False)["a"]] == ["interrupted"] * 2


def test_the_time_line_of_a_resumed_run_leaves_out_the_time_without_an_owner(tmp_path):
    pause = [Record(time=START + 1003, state="pending"), Record(time=START + 1003, state="running")]
    again = [began("a", 1003, attempt=1), ended("a", 1007), over(1007)]
    run = made(tmp_path, ["a"], [began("a", 0), ended("a", 3, "failed"), over(3, "failed"), *pause, *again])
    report = report_run(run, NoSource(), START + 2000, no_cache)
    shown = without_pauses(report.spans, run.pauses)["a"]
    assert [(span.started - START, span.ended - START) for span in shown] == [(0.0, 3.0), (3.0, 7.0)]
    page = CheckedPage(run_page(report, tmp_path))
    assert "The 16 min 40 s that the run had no owner are left out." in page.text
    assert "7.0 s" in page.text


# ------------------------------------------------------------------------------------------------------------ the graph


def graph_of(edges: list[tuple[str, str]], states: dict[str, str], *, most: int = MOST_BOXES) -> DrawnGraph:
    names = dict.fromkeys([*states, *(end for edge in edges for end in edge)])
    rows = [ExplainedItem(name, "1 task", "1 task") for name in names]
    rows += [ExplainedItem(f"{a}->{b}", "one to one", "one to one", "edge", (a, b)) for a, b in edges]
    run = RunRecord(
        id="run-000001", folder=Path(), steps=[StepRecord(name=name, state=state) for name, state in states.items()]
    )
    return drawn_graph(run, Explained("trial", "succeeded", tuple(rows)), most=most)


def test_a_graph_has_the_states_of_its_steps_and_what_patches_added():
    run = RunRecord(
        id="run-000001",
        folder=Path(),
        steps=[StepRecord(name="a", state="succeeded"), StepRecord(name="new", state="failed")],
    )
    rows = (
        ExplainedItem("a", "1 task", "1 task"),
        ExplainedItem("b", "2 tasks", "skipped"),
        ExplainedItem("new", "(added by a)", "0 of 3 tasks, failed"),
        ExplainedItem("a->b", "order only", "order only", "edge", ("a", "b")),
        ExplainedItem("rounds", "(added)", "one to one", "edge", ("a", "new")),
        ExplainedItem("b->new", "one to one", "dropped", "edge", ("b", "new")),
        ExplainedItem("choice c", "a or b", "a", "choice"),
    )
    found = drawn_graph(run, Explained("trial", "failed", rows))
    assert [(box.name, box.state, box.note, box.layer) for box in found.boxes] == [
        ("a", "succeeded", "", 0),
        ("b", "skipped", "", 1),
        ("new", "failed", "0 of 3 tasks", 1),
    ]
    assert found.edges == [(0, 1, True), (0, 2, False)]


def test_alike_vertices_become_one_box_with_their_states():
    edges = [(f"load-{at}", "sum") for at in range(100)]
    states = {f"load-{at}": "failed" if at == 3 else "succeeded" for at in range(100)} | {"sum": "cancelled"}
    found = graph_of(edges, states)
    assert [(box.name, box.state, box.note, box.members) for box in found.boxes] == [
        ("load-*", "failed", "1 failed, 99 succeeded", 100),
        ("sum", "cancelled", "", 1),
    ]
    assert found.edges == [(0, 1, False)]
    assert found.title == "The graph of trial: 101 vertices, drawn as 2 groups"


def test_a_long_chain_and_a_layer_of_strangers_are_bounded():
    names = [f"{chr(97 + at % 26)}{chr(97 + at // 26 % 26)}{chr(97 + at // 676)}" for at in range(3000)]
    chain = graph_of(list(itertools.pairwise(names)), dict.fromkeys(names, "succeeded"))
    assert len(chain.boxes) <= MOST_BOXES
    assert sum(box.members for box in chain.boxes) == 3000
    assert [box.layer for box in chain.boxes] == list(range(len(chain.boxes)))
    assert len(graph_of([], dict.fromkeys(names, "succeeded")).boxes) == 1


@given(st.integers(1, 40), st.data())
def test_a_picture_is_whole_and_no_box_covers_another(count, data):
    pairs = st.tuples(st.integers(0, count - 1), st.integers(0, count - 1)).filter(lambda pair: pair[0] < pair[1])
    edges = data.draw(st.sets(pairs, max_size=80)) if count > 1 else set()
    layers = layers_of(count, edges)
    assert all(layers[src] < layers[dst] for src, dst in edges)
    found = graph_of([(f"v{a}", f"v{b}") for a, b in edges], {f"v{at}": "succeeded" for at in range(count)})
    svg = svg_graph(found, GRAPH_STYLE)
    root = ElementTree.fromstring(svg)
    _, _, width, height = map(float, root.attrib["viewBox"].split())
    boxes = [
        tuple(float(rect.attrib[key]) for key in ("x", "y", "width", "height"))
        for rect in root.iter("{http://www.w3.org/2000/svg}rect")
    ]
    assert len(boxes) == count
    for at, (x, y, w, h) in enumerate(boxes):
        assert x >= 0
        assert y >= 0
        assert x + w <= width
        assert y + h <= height
        for x2, y2, w2, h2 in boxes[at + 1 :]:
            assert x + w <= x2 or x2 + w2 <= x or y + h <= y2 or y2 + h2 <= y
    assert svg.count('class="edge') == len(edges)


def test_a_picture_and_a_flowchart_escape_names():
    found = graph_of([(EVIL, 'x"];y')], {EVIL: "failed", 'x"];y': "pending"})
    svg = svg_graph(found, GRAPH_STYLE)
    ElementTree.fromstring(svg)
    assert "<script" not in svg
    chart = mermaid_graph(found)
    lines = chart.splitlines()
    assert lines[0] == "flowchart TD"
    assert lines[3] == "  v0 --> v1"
    assert "<script" not in chart
    assert re.fullmatch(r'  v1\["x#34;#93;#59;y<br/>pending"\]:::pending', lines[2])
    assert all(f"classDef {state} " in chart for state in ("failed", "pending"))


# -------------------------------------------------------------------------------------------------------------- writing


@pytest.mark.parametrize(("name", "start"), [("r.html", "<!DOCTYPE"), ("R.SVG", "<svg"), ("r.mmd", "flowchart TD")])
def test_the_ending_of_the_name_tells_the_form(tmp_path, name, start):
    run = made(tmp_path, ["a"], [began("a", 0), ended("a", 1), over(1)])
    (tmp_path / name).write_text("an older report")
    write_report(run, NoSource(), START, no_cache, tmp_path / name)
    assert (tmp_path / name).read_text().startswith(start)
    assert sorted(one.name for one in tmp_path.iterdir()) == sorted([".weft", name])


def test_another_ending_and_a_missing_folder_are_refused(tmp_path):
    run = made(tmp_path, ["a"], [over(1)])
    for name in ("r.pdf", "r", ".html", "r.html.gz"):
        with pytest.raises(UsageError, match="tells the form") as refused:
            write_report(run, NoSource(), START, no_cache, tmp_path / name)
        assert all(form in refused.value.hint for form in (".html", ".svg", ".mmd"))
    with pytest.raises(NotFoundError, match="no folder"):
        write_report(run, NoSource(), START, no_cache, tmp_path / "none" / "r.html")
    (tmp_path / "taken.html").mkdir()
    with pytest.raises(ForbiddenError, match="cannot be written"):
        write_report(run, NoSource(), START, no_cache, tmp_path / "taken.html")
    assert [one.name for one in tmp_path.iterdir() if one.name.startswith(".t")] == []


# --------------------------------------------------------------------------------------------------------------- markup


def test_a_table_leaves_out_columns_without_content():
    shown = table("A table", ("a", "b", "c"), [("1", "", "3"), ("2", "", "")], numeric=(2,))
    assert '<th scope="col">b</th>' not in shown
    assert shown.count("class=n") == 3
    assert table("A table", ("a",), []) == ""


@given(st.text())
def test_a_text_is_escaped(value):
    shown = text(value)
    assert not set(shown) & set("<>\"'\x00\x1b")


def test_short_times_are_in_milliseconds():
    assert [time_text(one) for one in (0.0, 0.0214, 0.9996, 75)] == ["0 ms", "21 ms", "1.0 s", "1 min 15 s"]


def test_changes_are_told(tmp_path):
    run = made(tmp_path, ["a"], [over(1)])
    report = report_run(run, NoSource(), START, no_cache)
    changes = (Change(0.5, "a", "patched", f"patch: {EVIL}", "2 rows"),)
    told = Explained("trial", "succeeded", (ExplainedItem("a", "1 to 4 tasks", "2 tasks"),), changes)
    page = CheckedPage(run_page(replace(report, explained=told), tmp_path))
    assert "1 to 4 tasks" in page.text
    assert "patch: <script>" in page.text
