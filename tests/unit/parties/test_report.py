"""Reports: what they tell at each party, and pages that are whole, closed to the network, and safe."""

import json
import re
from html.parser import HTMLParser

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.unit.parties.pair import NOW
from tests.unit.parties.test_job_views import task
from tests.unit.parties.test_tracking import LINES, MODEL
from tests.unit.parties.views import GUEST, HOST, Viewed
from weft.frontends.federated.components.frame import PartyFrame
from weft.frontends.federated.components.tables import write_frame
from weft.frontends.federated.coordination.participant import Participation
from weft.frontends.federated.coordination.records import PartFailure
from weft.parties.http.ports import ModelRow
from weft.parties.report import MASK, job_report, masked
from weft.parties.report_charts import bin_bars, graph_chart, line_chart, time_bars
from weft.parties.report_page import report_page

VOID = {"meta", "br", "path", "rect", "circle", "link", "img"}
EVIL = '<script>alert("x")</script>&\x1b[31m\x00'


class Checked(HTMLParser):
    """A parser that requires each element to be closed in order."""

    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.open, self.tags, self.attributes, self.words = [], [], [], []

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += attributes
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += attributes

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)


def checked(page):
    parser = Checked()
    parser.feed(page)
    parser.close()
    assert parser.open == []
    assert "script" not in parser.tags
    assert not [one for one in parser.attributes if one[0].startswith("on") or one[0] in ("src", "href", "action")]
    assert not re.search(r"url\(|@import|https?:", page)
    return " ".join(" ".join(parser.words).split())


def reported(viewed, models=()):
    shown = viewed.show() | {"seconds": 50.0, "reason": ""}
    return job_report(viewed.sources, viewed.state, shown, models, NOW)


@pytest.fixture
def finished(tmp_path):
    viewed = Viewed(tmp_path, status="success", ended=NOW)
    viewed.tasks = [
        task("reader_0", GUEST, "success", started_at=NOW - 40, ended_at=NOW - 39),
        task("reader_0", HOST, "success"),
        task("binning_0", GUEST, "success", started_at=NOW - 30, ended_at=NOW - 10, version=2),
        task("evaluation_0", GUEST, "success", started_at=NOW - 10, ended_at=NOW),
    ]
    viewed.own = {GUEST: Participation(job="job", part=GUEST, initiator=GUEST, approved=True)}
    folder = viewed.attempt("evaluation_0", GUEST)
    (folder / "metrics.jsonl").write_text("".join(json.dumps(one) + "\n" for one in LINES))
    confusion = {"train": {"classes": ["0", "1"], "counts": [[50, 10], [0, 1_840]]}}
    (folder / "summary.json").write_text(json.dumps({"confusion": confusion}))
    binning = viewed.attempt("binning_0", GUEST)
    (binning / "model.json").write_text(json.dumps(MODEL))
    counts = {"values_out": 30, "bytes_out": 4_404_019, "values_in": 0, "bytes_in": 0}
    (binning / "traffic.json").write_text(json.dumps({"host 2": {"labels": counts}}))
    write_frame(binning / "data_0.arrow", PartyFrame(np.array(["a", "b"], object), {"x0": np.array([1.0, 2.0])}))
    return viewed


def test_a_page_tells_all_of_a_job(finished):
    model = ModelRow(model_id="m", model_version="job", role="guest", party_id="1", nbytes=2048, created_at=NOW)
    report = reported(finished, [model, replace(model, model_version="job.1", parent=False)])
    assert report["tables"] == [
        {"component": "binning_0", "part": "guest 1", "table": "data", "rows": 2, "columns": 1, "names": ["x0"]}
    ]
    words = checked(report_page(report))
    for wanted in (
        "Job job success",
        "encrypted labels host 2 4.2 MiB 30 binning_0",
        "binning_0 attempt 3",
        "auc ks recall train 0.75 0.4 0.6 validate 0.7",
        "ROC, train",
        "label, train predicted 0 predicted 1 0 50 10 1 0 1,840",
        "rows of each bin",
        "x0 up to 0.5 5 3 2 0.1000 0.1000 above 0.5",
        "host_2_x0 host 2 0.9000",
        "job.1 deployed",
        "was submitted here",
        "from the records of party 1 alone",
    ):
        assert wanted in words, wanted


def test_a_page_of_a_job_that_has_failed_or_waits(tmp_path):
    viewed = Viewed(tmp_path, status="failed", ended=NOW)
    cause = PartFailure("no memory", "2", "WEFT501", "Add some.")
    viewed.coordination = replace(viewed.coordination, cause=cause)
    words = checked(report_page(reported(viewed)))
    assert "Root cause at party 2 WEFT501 no memory Add some." in words
    waiting = Viewed(tmp_path, status="running")
    waiting.silent = {"2": NOW - 5}
    assert "Waits party 2 does not answer since 2027-01-15" in checked(report_page(reported(waiting)))


def test_each_party_has_a_page_of_its_own_parameters(tmp_path):
    guest, host = reported(Viewed(tmp_path)), reported(Viewed(tmp_path, me="2"))
    assert [one["part"] for one in guest["parameters"]] == ["guest 1"]
    assert [one["part"] for one in host["parameters"]] == ["host 2"]
    assert '"g"' in json.dumps(guest["parameters"])
    assert '"g"' not in json.dumps(host)


def test_decisions_of_people_are_told(tmp_path):
    viewed = Viewed(tmp_path, me="2", about=json.dumps({"decisions": [{"at": NOW, "declined": "not on Fridays"}]}))
    viewed.own = {HOST: Participation(job="job", part=HOST, initiator=GUEST, refused="not on Fridays")}
    assert [one["what"] for one in reported(viewed)["approvals"]] == [
        "was declined: not on Fridays",
        "declined by this party: not on Fridays",
    ]


def test_secrets_are_not_shown():
    given = {"table": "t", "access_key": "k", "deep": [{"Password": "p", "key_length": 2048}], "bin_num": 10}
    assert masked(given) == {
        "table": "t",
        "access_key": MASK,
        "deep": [{"Password": MASK, "key_length": 2048}],
        "bin_num": 10,
    }


def test_no_text_becomes_markup(finished):
    report = reported(finished) | {"site": EVIL, "remarks": EVIL, "notes": [EVIL], "user": EVIL}
    report["cause"] = {"message": EVIL, "party": EVIL, "code": EVIL, "hint": EVIL}
    report["waits"] = [{"what": EVIL, "since": None}]
    report["models"] = [
        {
            "version": EVIL,
            "role": EVIL,
            "created": 0.0,
            "bytes": 1,
            "deployed": True,
            "components": [EVIL],
            "tags": [EVIL],
        }
    ]
    for one in (*report["components"], *report["left"], *report["tables"], *report["parts"]):
        one |= {name: EVIL for name, value in one.items() if isinstance(value, str)}
    for one in report["metrics"]:
        one |= {"component": EVIL, "module": EVIL, "part": EVIL}
        for each in one["confusion"]:
            each |= {"namespace": EVIL, "classes": [EVIL] * 2}
        for each in (*one["series"], *one["bins"]):
            each |= {name: EVIL for name, value in each.items() if isinstance(value, str)}
    for one in report["parameters"]:
        one["job"] = {EVIL: EVIL}
    page = report_page(report)
    checked(page)
    assert not {"\x1b", "\x00"} & set(page)


NUMBERS = st.floats(allow_nan=True, allow_infinity=True) | st.integers(-(10**6), 10**6)


@given(st.lists(st.tuples(NUMBERS, NUMBERS), max_size=30))
def test_charts_take_all_numbers(points):
    picture = line_chart("a", [("one", points), ("two", points[:1])], "x", "y", diagonal=True)
    checked(picture + bin_bars([y for _, y in points]))
    assert "nan" not in picture
    assert "inf" not in picture


def test_charts_of_nothing():
    assert line_chart("a", [], "x", "y") == line_chart("a", [("b", [])], "x", "y") == bin_bars([]) == ""
    assert time_bars([], 0, 0) == ""
    checked(graph_chart([]))


def test_long_curves_are_thinned_and_keep_their_ends():
    picture = line_chart("a", [("one", [(at, at) for at in range(10_001)])], "x", "y")
    places = re.findall(r"[ML](-?[\d.]+) (-?[\d.]+)", picture.partition('class="line')[2])
    assert len(places) <= 401
    assert places[0] == ("46.0", "180.0")
    assert places[-1] == ("330.0", "10.0")
