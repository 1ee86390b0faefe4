"""The commands for the runs of a party: `weft ls`, `show`, `logs`, `resume` and `cancel` in its folder."""

import json
from typing import Any

import pytest

pytest.importorskip("fastapi")

from tests.party_ports import party_ports
from tests.unit.cli.fakes import World
from weft.cli.party_metrics import sparkline
from weft.cli.party_models import _headline
from weft.parties.client import SiteClient
from weft.parties.http.app import make_app
from weft.parties.http.server import HttpServer
from weft.parties.site import PartySite

DSL = {"components": {"hetero_lr_0": {"module": "HeteroLR"}, "evaluation_0": {"module": "Evaluation"}}}
CONF = {"dsl_version": 2, "initiator": {"role": "guest", "party_id": 9999}, "role": {"guest": [9999], "host": [10000]}}


class Served(World):
    """A world with the folder `guest` of a party, whose server answers from memory."""

    def __init__(self, folder):
        super().__init__(folder)
        self.site = PartySite.create(folder / "guest", "9999", name="guest")
        self.ports = party_ports(folder / "served")
        self.jobs: Any = self.ports.jobs

    def submit(self, status):
        self.jobs.status = status
        return SiteClient.of(self.site).post("job/submit", {"job_dsl": DSL, "job_runtime_conf": CONF})["job_id"]


@pytest.fixture(scope="module")
def weft(tmp_path_factory):
    world = Served(tmp_path_factory.mktemp("party"))
    with HttpServer(make_app(world.ports), port=world.site.party.http_port):
        yield world


@pytest.mark.parametrize("words", [("show", "-C", "guest"), ("party", "show", "--folder", "guest")])
def test_a_job_is_shown_by_the_same_verb_as_other_runs(weft, words):
    *verb, option, folder = words
    job = weft.submit("failed")
    assert weft(*verb, job, option, folder) == 0
    assert weft.out.splitlines()[:3] == [
        f"{job}  failed  2.0 s  by guest 9999",
        "party 10000: no memory",
        "Add some.",
    ]
    assert "guest 9999 (here)  runs" in weft.out
    assert "encrypted residuals of rows  hetero_lr_0  host 10000  30      2.0 KiB" in weft.out
    assert "evaluation_0 train auc  0.75" in weft.out


def test_what_a_job_waits_for_is_told_with_the_time(weft):
    job = weft.submit("running")
    assert weft("show", "@last", "-C", "guest") == 0
    assert "waits: party 10000 does not answer, since 2023-11-1" in weft.out
    assert weft("show", job, "-C", "guest", "--json") == 0
    found = json.loads(weft.out)
    assert (found["schema"], found["job"], found["left"][0]["bytes"]) == ("weft.party.job/2", job, 2048)


def test_components_tell_attempts_earlier_runs_and_the_time_so_far(weft, monkeypatch):
    job = weft.submit("failed")
    shown = dict(weft.ports.people.show(job))
    one = shown["components"][0]
    began = weft.clock.wall() - 125
    shown["components"] = [
        one | {"name": "a_0", "status": "success", "kept": True, "started": None, "seconds": None},
        one | {"name": "b_0", "status": "running", "attempt": 1, "started": began, "seconds": None},
        one | {"name": "c_0", "reason": "c_0: stopped because party 10000 failed: no memory"},
        one | {"name": "d_0", "reason": "d_0: no table"},
    ]
    monkeypatch.setattr(weft.ports.people, "show", lambda id: shown)
    assert weft("show", job, "-C", "guest") == 0
    lines = [" ".join(line.split()) for line in weft.out.splitlines()]
    assert "a_0 success failed earlier run 2.0 KiB" in lines
    assert "b_0 (attempt 2) running failed 2 min 05 s 2.0 KiB" in lines
    assert "d_0: no table" in lines
    assert not any("stopped because" in line for line in lines)


def test_jobs_are_listed_and_filtered(weft):
    one, two = weft.submit("timeout"), weft.submit("success")
    assert weft("ls", "-C", "guest", "-q", "--state", "timeout") == 0
    assert weft.out == f"{one}\n"
    assert weft("ls", "-C", "guest", "-q", "-n", "1") == 0
    assert weft.out == f"{two}\n"


def test_logs_are_printed_from_their_files(weft):
    job = weft.submit("success")
    assert weft("logs", f"{job}/hetero_lr_0", "-C", "guest") == 0
    assert weft.out == "secure_add_guest success\n"
    assert weft("logs", f"{job}/hetero_lr_0", "-C", "guest", "--json", "--tail", "1") == 0
    assert json.loads(weft.out)["line"] == "secure_add_guest success"
    assert weft("logs", job, "-C", "guest", "--tail", "-1") == 2
    assert weft("logs", "nothing/x", "-C", "guest") == 4


def test_resume_runs_the_rest_of_a_failed_job(weft):
    job = weft.submit("failed")
    weft.ports.jobs.calls.clear()
    assert weft("resume", job, "-C", "guest", "-d") == 0
    assert (weft.out, weft.ports.jobs.calls) == (f"{job}\n", [("rerun", job, [], False)])
    assert weft("resume", job, "-C", "guest", "-p", "x=1") == 2
    assert "weft party rerun" in weft.err


@pytest.mark.parametrize(
    ("status", "told"), [("running", "it goes on by itself"), ("success", "there is nothing left to do")]
)
def test_resume_says_why_there_is_nothing_to_resume(weft, status, told):
    job = weft.submit(status)
    assert weft("resume", job, "-C", "guest") == 7
    assert told in weft.err


def test_cancel_stops_a_job_and_tells_if_it_has_ended(weft):
    job = weft.submit("running")
    assert weft("cancel", job, "-C", "guest") == 0
    assert "is being stopped" in weft.err
    assert weft.ports.jobs.rows[job].status == "canceled"
    assert weft("cancel", job, "-C", "guest") == 0
    assert "has ended already: canceled" in weft.err


def test_a_party_without_a_server_says_how_to_start_it(weft, tmp_path):
    PartySite.create(tmp_path / "host", "10000", name="host")
    assert weft("show", "@last", "-C", str(tmp_path / "host")) == 6
    assert "weft party start" in weft.err


def test_metrics_are_figures_curves_and_bins(weft):
    job = weft.submit("success")
    assert weft("party", "metrics", job, "--folder", "guest") == 0
    assert "train auc  0.75" in weft.out
    assert "train loss  █" in weft.out
    assert "0.7    0.31  0.31 to 0.7  40" in weft.out
    assert "train: LABEL  PREDICTED 0  PREDICTED 1" in weft.out
    assert "1             12           1,800" in weft.out
    assert "x0       guest 9999  0.2000  2" in weft.out
    assert "OF               AUC  KS" in weft.out
    assert "validate_fold_1  1.5  1.5" in weft.out
    assert "up to" not in weft.out
    assert weft("party", "metrics", f"{job}/binning_0", "--folder", "guest") == 0
    assert "up to 0.5  100   30      70      0.2500  0.1000" in weft.out
    assert "above 0.5" in weft.out


def test_metrics_as_json(weft):
    assert weft("party", "metrics", weft.submit("success"), "--folder", "guest", "--json") == 0
    found, _ = json.loads(weft.out)["components"]
    assert (found["component"], found["series"][1]["points"]) == ("hetero_lr_0", [["auc", 0.75]])


@pytest.mark.parametrize(
    ("metrics", "told"),
    [
        ({"evaluation_0 train auc": 0.7, "evaluation_0 validate auc": 0.75}, "validate auc 0.75"),
        ({"evaluation_0 train/a_0 auc": 0.7, "evaluation_0 train/b_0 auc": 0.8}, "train/b_0 auc 0.8"),
        ({"evaluation_0 test auc": 0.7, "evaluation_0 train accuracy": 0.6}, "train accuracy 0.6"),
        ({}, ""),
    ],
)
def test_the_figure_of_a_model_is_that_of_its_last_evaluation(metrics, told):
    assert _headline(metrics) == told


def test_models_are_listed_with_what_was_measured(weft):
    old, new = weft.submit("success"), weft.submit("success")
    assert weft("party", "models", "-n", "1", "--folder", "guest") == 0
    head, line = weft.out.splitlines()
    assert head.split() == ["VERSION", "KIND", "ROLE", "CREATED", "MEASURED", "SIZE", "COMPONENTS", "TAGS"]
    assert line.startswith(f"{new}  trained  guest")
    assert "validate auc 0.75  2.0 KiB  hetero_lr_0  best, service credit" in line
    assert "-n 0" in weft.err
    assert weft("party", "models", old, "--folder", "guest") == 0
    assert "parties guest 9999, host 10000" in " ".join(weft.out.split())
    assert weft("party", "models", "unknown", "--folder", "guest") == 4
    assert weft("party", "models", "-n", "-1", "--folder", "guest") == 2


def test_a_report_is_one_file(weft):
    job = weft.submit("success")
    assert weft("party", "report", job, "-o", "page.html", "--folder", "guest") == 0
    assert weft.out == "page.html\n"
    page = (weft.folder / "page.html").read_text()
    assert page.startswith("<!DOCTYPE html>")
    assert f"Job {job} at bank" in page
    assert weft("party", "report", job, "--json", "--folder", "guest") == 0
    assert json.loads(weft.out)["site"] == "bank"
    assert weft("party", "report", job, "-o", "nowhere/page.html", "--folder", "guest") == 4
    assert weft("party", "report", "unknown", "-o", "none.html", "--folder", "guest") == 4
    assert not (weft.folder / "none.html").exists()


@pytest.mark.parametrize(
    ("points", "shown"),
    [
        ([(0, 1.0)], "▁"),
        ([(0, 1.0), (1, 1.0), (2, 1.0)], "▁▁▁"),
        ([(0, 0.0), (1, 7.0)], "▁█"),
        ([(2, 7.0), (0, 0.0), (1, 1.0)], "▁▂█"),
        ([(0, 0.0), (0.1, 0.0), (10, 7.0)], "▁▁█"),
    ],
)
def test_a_curve_is_one_line(points, shown):
    assert sparkline(points) == shown
    assert len(sparkline(points, unicode=False)) == len(shown)
    assert sparkline(points, unicode=False).isascii()


def test_rows_of_a_component_are_csv(weft):
    job = weft.submit("success")
    assert weft("party", "output", f"{job}/hetero_lr_0", "--folder", "guest") == 0
    lines = weft.out.splitlines()
    assert (lines[:3], len(lines)) == (["id,y,x0", "id0,0,0.0", "id1,1,0.1"], 251)
    assert weft("party", "output", f"{job}/hetero_lr_0/guest", "-o", "rows.csv", "--folder", "guest") == 0
    assert weft.out == "rows.csv\n"
    assert (weft.folder / "rows.csv").read_text().splitlines() == lines


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["{job}"], 2, "names no component"),
        (["{job}/hetero_lr_0/arbiter"], 4, "is no arbiter of job"),
        (["{job}/hetero_lr_0", "--table", "tarin"], 4, "Did you mean train?"),
        (["{job}/hetero_lr_0", "-o", "nowhere/rows.csv"], 4, "there is no folder nowhere"),
        (["unknown/hetero_lr_0"], 4, "unknown"),
    ],
)
def test_rows_that_are_not_there_are_told(weft, words, code, told):
    job = weft.submit("success")
    assert weft("party", "output", *(word.format(job=job) for word in words), "--folder", "guest") == code
    assert told in weft.err
