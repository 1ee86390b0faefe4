"""The interface of a party for clients: each route, the codes, limits, and who may ask."""

from __future__ import annotations

import asyncio
import csv
import errno
import io
import itertools
import json
import os
import socket
import tarfile
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("fastapi")

import httpx
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.integration.places import DEADLINE_S
from tests.party_ports import BEGAN, FixedClock, party_ports
from tests.unit.parties.pair import SetClock
from weft.model.errors import ConflictError, ForbiddenError, NotFoundError, UsageError
from weft.parties.client_keys import ClientKey, add_key, read_keys, remove_key, signed
from weft.parties.http import calls, seen
from weft.parties.http import server as server_module
from weft.parties.http.app import HttpSettings, make_app
from weft.parties.http.callers import SignedRequests
from weft.parties.http.calls import MOST_BODY, MOST_DEPTH
from weft.parties.http.routes import ROUTES
from weft.parties.http.server import HttpServer
from weft.parties.http.tracking_routes import _line

if TYPE_CHECKING:
    from pathlib import Path

DSL = {"components": {"reader_0": {"module": "Reader"}, "hetero_lr_0": {"module": "HeteroLR"}}}
CONF = {"dsl_version": 2, "initiator": {"role": "guest", "party_id": 9999}, "role": {"guest": [9999], "host": [10000]}}
ROWS = "id,y,x0\n1,0,0.5\n2,1,0.7\n"
TABLE = {"namespace": "experiment", "table_name": "breast", "head": 1, "partition": 4}


class Http:
    """Sends requests to an application in this process."""

    def __init__(self, app: Any) -> None:
        self._app = app

    def request(self, method: str, path: str, **options: Any) -> httpx.Response:
        async def send() -> httpx.Response:
            transport = httpx.ASGITransport(app=self._app)
            async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:9380") as client:
                return await client.request(method, path, **options)

        return asyncio.run(send())

    def post(self, path: str, **options: Any) -> httpx.Response:
        return self.request("POST", path, **options)


class Party:
    """A client of one party."""

    def __init__(self, folder: Path, settings: HttpSettings | None = None, **options: Any) -> None:
        self.folder = folder
        self.ports = party_ports(folder, **options)
        self.http = Http(make_app(self.ports, settings))

    def post(self, route: str, body: Any = None, **options: Any) -> dict[str, Any]:
        answer = self.http.post(f"/v1/{route}", json=body, **options)
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def submit(self) -> str:
        return str(self.post("job/submit", {"job_dsl": DSL, "job_runtime_conf": CONF})["jobId"])

    def upload(self, rows: str = ROWS, *, as_json_query: bool = False, **other: Any) -> dict[str, Any]:
        arguments = TABLE | other
        query = json.dumps(arguments) if as_json_query else "&".join(f"{k}={v}" for k, v in arguments.items())
        answer = self.http.post(f"/v1/data/upload?{query}", files={"file": ("breast.csv", rows.encode())})
        assert answer.status_code == 200
        found: dict[str, Any] = answer.json()
        return found


@pytest.fixture
def party(tmp_path):
    found = Party(tmp_path)
    yield found
    found.ports.tables.close()
    assert list((tmp_path / "scratch").iterdir()) == []


# ---------------------------------------------------------------------------------------------------------------- jobs


def test_a_job_is_submitted_and_found(party):
    answer = party.post("job/submit", {"job_dsl": DSL, "job_runtime_conf": CONF})
    job_id = answer["jobId"]
    assert (answer["retcode"], answer["retmsg"], answer["data"]["job_id"]) == (0, "success", job_id)
    assert answer["data"]["model_info"] == {"model_id": "guest-9999#model", "model_version": job_id}
    [row] = party.post("job/query", {"job_id": job_id, "role": "guest", "party_id": 9999})["data"]
    assert (row["f_status"], row["f_progress"], row["f_party_id"]) == ("success", 100, "9999")
    assert (row["f_dsl"], row["f_runtime_conf"]) == (DSL, CONF)
    assert row["f_roles"] == {"guest": [9999], "host": [10000]}
    assert (row["f_start_time"], row["f_end_time"], row["f_elapsed"]) == (1_700_000_000_000, 1_700_000_002_000, 2000)
    tasks = party.post("job/task/query", {"job_id": job_id, "component_name": "reader_0"})["data"]
    assert [(task["f_component_name"], task["f_status"]) for task in tasks] == [("reader_0", "success")]


def test_a_query_without_a_match_is_a_success(party):
    assert party.post("job/query", {"job_id": "1"}) == {"retcode": 0, "retmsg": "no job could be found", "data": []}
    assert party.post("job/task/query", {"job_id": "1"})["retcode"] == 101


def test_the_other_names_of_the_files_of_a_job_are_taken(party):
    assert party.post("job/submit", {"dsl": DSL, "runtime_conf": CONF})["retcode"] == 0


def test_lists_are_cut_into_pages_and_count_all(party):
    jobs = [party.submit() for _ in range(5)]
    data = party.post("job/list/job", {"limit": 2, "page": 2})["data"]
    assert ([row["f_job_id"] for row in data["jobs"]], data["count"]) == ([jobs[2], jobs[1]], 5)
    tasks = party.post("job/list/task", {"limit": 3})["data"]
    assert (len(tasks["tasks"]), tasks["count"]) == (3, 10)


def test_a_stopped_job_is_canceled(party):
    job_id = party.submit()
    assert party.post("job/stop", {"job_id": job_id})["retcode"] == 0
    assert party.post("job/query", {"job_id": job_id})["data"][0]["f_status"] == "canceled"
    wrong = party.post("job/stop", {"job_id": job_id, "stop_status": "gone"})
    assert (wrong["retcode"], wrong["retmsg"]) == (
        101,
        "stop_status is 'gone'. Give one of canceled, failed, timeout. [WEFT100]",
    )


def test_an_unknown_job_is_an_error_with_a_hint_and_no_data(party):
    answer = party.post("job/stop", {"job_id": "7"})
    assert answer == {"retcode": 102, "retmsg": "there is no job 7. List the jobs: flow job list [WEFT300]"}


def test_a_rerun_names_components_as_text_or_list(party):
    job_id = party.submit()
    party.post("job/rerun", {"job_id": job_id, "component_name": "reader_0, hetero_lr_0", "force": True})
    party.post("job/rerun", {"job_id": job_id, "component_name": ["reader_0"]})
    assert party.ports.jobs.calls == [
        ("rerun", job_id, ["reader_0", "hetero_lr_0"], True),
        ("rerun", job_id, ["reader_0"], False),
    ]


def test_the_files_of_a_job_come_back(party):
    data = party.post("job/config", {"job_id": party.submit(), "role": "guest", "party_id": 9999})["data"]
    assert (data["dsl"], data["runtime_conf"], data["train_runtime_conf"]) == (DSL, CONF, {})


@pytest.mark.parametrize(("method", "route"), [("GET", "job/log"), ("POST", "job/log/download")])
def test_logs_come_as_an_archive(party, method, route):
    job_id = party.submit()
    answer = party.http.request(method, f"/v1/{route}", json={"job_id": job_id})
    assert answer.status_code == 200
    assert f"filename=job_{job_id}_log.tar.gz" in answer.headers["content-disposition"]
    with tarfile.open(fileobj=io.BytesIO(answer.content)) as archive:
        assert sorted(archive.getnames()) == ["guest/9999/ERROR.log", "guest/9999/INFO.log"]


def test_a_download_that_fails_has_a_status_of_its_own(party):
    answer = party.http.request("GET", "/v1/job/log", json={"job_id": "7"})
    assert (answer.status_code, answer.json()["retcode"]) == (404, 102)
    assert party.http.request("GET", "/v1/job/log", json={}).status_code == 400


def test_notes_parameters_and_the_graph_of_a_job(party):
    job_id = party.submit()
    part = {"job_id": job_id, "role": "guest", "party_id": 9999}
    party.post("job/update", part | {"notes": "first try"})
    assert party.post("job/query", part)["data"][0]["f_description"] == "first try"
    party.post("job/parameter/update", {"job_id": job_id, "component_parameters": {"common": {}}})
    graph = party.post("pipeline/dag/dependency", part)["data"]
    assert graph["component_list"] == ["reader_0", "hetero_lr_0"]
    assert graph["dependencies"] == {"hetero_lr_0": [{"component_name": "reader_0", "type": "data"}]}
    assert graph["component_module"] == {"reader_0": "Reader", "hetero_lr_0": "HeteroLR"}


def test_the_queue_is_cleaned_by_a_request_without_a_body(tmp_path):
    party = Party(tmp_path, status="waiting")
    job_id = party.submit()
    answer = party.http.post("/v1/job/clean/queue")
    assert answer.json() == {"retcode": 0, "retmsg": "success", "data": {job_id: 0}}


def test_the_dsl_of_a_prediction_comes_as_json_or_as_a_file(party):
    body = {"train_dsl": json.dumps(DSL), "cpn_str": "reader_0"}
    assert party.post("job/dsl/generate", body)["data"] == {"components": {"reader_0": {"module": "Reader"}}}
    answer = party.http.post("/v1/job/dsl/generate", json=body | {"filename": "../dsl.json"})
    assert answer.headers["content-disposition"] == "attachment; filename=dsl.json"
    assert answer.json() == {"components": {"reader_0": {"module": "Reader"}}}


# -------------------------------------------------------------------------------------------------------------- tables


@pytest.mark.parametrize("as_json_query", [False, True])
def test_an_upload_is_a_job_that_has_ended(party, as_json_query):
    answer = party.upload(as_json_query=as_json_query)
    assert (answer["retcode"], answer["data"]["table_name"], answer["data"]["namespace"]) == (0, "breast", "experiment")
    [row] = party.post("job/query", {"job_id": answer["jobId"], "role": "local"})["data"]
    assert (row["f_status"], row["f_role"], row["f_party_id"]) == ("success", "local", "0")
    [task] = party.post("job/task/query", {"job_id": answer["jobId"]})["data"]
    assert (task["f_component_name"], task["f_component_module"]) == ("upload_0", "Upload")
    info = party.post("table/table_info", TABLE)["data"]
    assert (info["count"], info["partition"], info["exist"]) == (2, 4, 1)
    assert info["schema"] == {"header": "y,x0", "sid": "id"}
    [history] = party.post("data/upload/history", {"limit": 5})["data"]
    assert history[answer["jobId"]]["upload_info"]["upload_count"] == 2


BOUNDARY = "b0und"
FORM = (
    f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="namespace"\r\n\r\nexperiment\r\n'
    f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="file"; filename="../../a.csv"\r\n\r\n{ROWS}\r\n'
    f"--{BOUNDARY}--\r\n"
)


def send_form(party, content: str, boundary: str = BOUNDARY) -> dict[str, Any]:
    headers = {"content-type": f"multipart/form-data; boundary={boundary}"}
    answer = party.http.post("/v1/data/upload?table_name=a&head=1&partition=1", content=content, headers=headers)
    found: dict[str, Any] = answer.json()
    return found


def test_a_form_that_is_cut_anywhere_stores_nothing(party):
    for at in range(len(FORM) - len("--\r\n")):
        assert send_form(party, FORM[:at])["retcode"] == 101, at
    assert party.ports.tables.all() == []
    assert send_form(party, FORM)["data"]["count"] == 2


@pytest.mark.parametrize(
    "content",
    [
        FORM.replace('name="file"', 'name="other"'),
        FORM.replace("namespace", "other"),
        FORM.replace(f"--{BOUNDARY}--", FORM),
        "x" + FORM,
        FORM.replace("Content-Disposition", "Content-Nothing"),
    ],
    ids=["name", "missing", "two files", "before", "header"],
)
def test_a_form_of_another_shape_is_refused(party, content):
    assert send_form(party, content)["retcode"] == 101
    assert send_form(party, FORM, boundary="")["retcode"] == 101


def test_many_parts_are_refused(party):
    part = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="a"\r\n\r\n1\r\n'
    assert "more than 100 parts" in send_form(party, part * 101 + FORM)["retmsg"]


def test_a_full_disk_is_told(party, monkeypatch):
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    answer = party.upload()
    assert (answer["retcode"], answer["retmsg"]) == (
        103,
        f"the disk of {party.folder} is full. Free space on this disk, and try again. [WEFT401]",
    )


def test_a_table_is_not_replaced_without_drop(party):
    party.upload()
    again = party.upload(ROWS + "3,1,0.9\n")
    assert again["retcode"] == 103
    assert "exists already" in again["retmsg"]
    assert party.upload(ROWS + "3,1,0.9\n", drop=1)["retcode"] == 0
    assert party.post("table/table_info", TABLE)["data"]["count"] == 3
    assert len(list((party.folder / "site" / "data").iterdir())) == 1


def test_a_wrong_line_is_named_and_leaves_nothing(party):
    answer = party.upload("id,y\n1,0\n2,1,5\n")
    assert (answer["retcode"], answer["retmsg"].partition(". ")[0]) == (
        101,
        "breast.csv, line 3: 3 values, and the head has 2",
    )
    assert list((party.folder / "site" / "data").iterdir()) == []
    assert party.post("table/table_info", TABLE)["data"]["exist"] == 0


def test_a_file_of_the_site_is_taken_from_allowed_folders_only(tmp_path):
    source = tmp_path / "files"
    source.mkdir()
    (source / "a.csv").write_text(ROWS)
    (source / "link.csv").symlink_to(tmp_path / "secret")
    (tmp_path / "secret").write_text(ROWS)
    party = Party(tmp_path / "party", sources=[source], targets=[tmp_path / "out"])
    (tmp_path / "out").mkdir()
    given = TABLE | {"use_local_data": 0}
    assert party.post("data/upload", given | {"file": str(source / "a.csv")})["retcode"] == 0
    for path in (tmp_path / "secret", source / "link.csv", source / ".." / "secret"):
        refused = party.post("data/upload", given | {"file": str(path), "drop": 1})
        assert refused["retcode"] == 108, path
    assert party.post("data/download", TABLE | {"output_path": str(tmp_path / "other.csv")})["retcode"] == 108
    answer = party.post("data/download", TABLE | {"output_path": str(tmp_path / "out" / "x" / "b.csv")})
    assert answer["retcode"] == 0
    assert (tmp_path / "out" / "x" / "b.csv").read_text() == ROWS
    [row] = party.post("job/query", {"job_id": answer["jobId"]})["data"]
    assert row["f_dsl"] == {"components": {"download_0": {"module": "Download"}}}


def test_tables_are_listed_previewed_switched_and_removed(party):
    party.upload()
    assert [one["table_name"] for one in party.post("table/list", {})["data"]] == ["breast"]
    preview = party.post("table/preview", TABLE)
    assert (preview["data"], preview["meta"]["header"]) == ([["1", "0", "0.5"], ["2", "1", "0.7"]], ["id", "y", "x0"])
    party.post("table/disable", TABLE)
    assert party.post("table/table_info", TABLE)["data"]["enable"] is False
    party.post("table/enable", TABLE)
    assert party.post("table/disable/delete", {})["data"] == []
    answer = party.http.post("/v1/table/download", json=TABLE)
    with tarfile.open(fileobj=io.BytesIO(answer.content)) as archive:
        assert archive.extractfile("breast.csv").read().decode() == ROWS
    assert party.post("table/delete", TABLE)["data"] == {"table_name": "breast", "namespace": "experiment"}
    assert party.post("table/delete", TABLE) == {"retcode": 101, "retmsg": "no find table"}


def test_the_jobs_of_a_table_are_found(party):
    party.upload()
    table = {"name": "breast", "namespace": "experiment"}
    parameters = {"role": {"guest": {"0": {"reader_0": {"table": table}}}}}
    job_id = party.post("job/submit", {"job_dsl": DSL, "job_runtime_conf": CONF | {"component_parameters": parameters}})
    party.submit()
    assert party.post("table/tracking/job", TABLE)["data"] == {"count": 1, "job": [job_id["jobId"]]}
    [source] = party.post("table/tracking/source", TABLE)["data"]
    assert source["origin"] == "upload"


def test_a_file_of_the_site_is_bound_and_read_where_it_lies(tmp_path):
    (tmp_path / "a.csv").write_text(ROWS)
    party = Party(tmp_path / "party", sources=[tmp_path])
    given = TABLE | {"engine": "PATH", "address": {"path": str(tmp_path / "a.csv")}, "name": "breast"}
    assert party.post("table/bind", given)["retcode"] == 0
    (tmp_path / "a.csv").write_text(ROWS + "3,1,0.9\n")
    assert len(party.ports.tables.frame("experiment", "breast")) == 3
    refused = party.post("table/bind", given | {"engine": "MYSQL", "drop": 1})
    assert (refused["retcode"], "Bind a file" in refused["retmsg"]) == (103, True)


def test_tables_are_granted_to_parties(party):
    dataset = {"namespace": "experiment", "name": "breast"}
    assert party.post("permission/grant", {"party_id": 10000, "dataset": dataset})["retcode"] == 0
    assert party.post("permission/query", {"party_id": "10000"})["data"]["dataset"] == [dataset]
    assert party.post("permission/delete", {"party_id": 10000, "dataset": [dataset]})["retcode"] == 0
    assert party.post("permission/query", {"party_id": "10000"})["data"]["dataset"] == []
    old = {"src_party_id": 1, "src_role": "guest", "privilege_role": "all"}
    assert party.post("permission/grant/privilege", old)["retcode"] == 103


# ------------------------------------------------------------------------------------------- components and models


@pytest.fixture
def part(party):
    return {"job_id": party.submit(), "role": "guest", "party_id": 9999, "component_name": "hetero_lr_0"}


def test_metrics_of_a_component(party, part):
    assert party.post("tracking/component/metrics", part)["data"] == {"train": ["loss"]}
    loss = {"data": [[0, 0.7], [1, 0.4]], "meta": {"name": "loss"}}
    assert party.post("tracking/component/metric/all", part)["data"] == {"train": {"loss": loss}}
    one = party.post("tracking/component/metric_data", part | {"metric_namespace": "train", "metric_name": "loss"})
    assert (one["data"], one["meta"]) == (loss["data"], loss["meta"])
    none = party.post("tracking/component/metric_data", part | {"metric_namespace": "train", "metric_name": "auc"})
    assert (none["retcode"], none["retmsg"], none["data"]) == (0, "no data", [])
    assert party.post("tracking/component/metric/delete", {})["retcode"] == 101
    assert party.post("tracking/component/metric/delete", {"model": "20260131"})["data"] == {"deleted": 1}
    assert party.post("tracking/component/metrics", part)["data"] == {}


def test_parameters_model_and_summary_of_a_component(party, part):
    assert party.post("tracking/component/parameters", part)["data"]["ComponentParam"] == {"max_iter": 30}
    model = party.post("tracking/component/output/model", part)
    assert (model["data"], model["meta"]) == ({"weight": {"x0": 0.5}}, {"module_name": "HeteroLR"})
    assert party.post("tracking/component/summary/download", part)["data"] == {"auc": 0.9965}
    answer = party.http.post("/v1/tracking/component/summary/download", json=part | {"filename": "s.json"})
    assert answer.json() == {"auc": 0.9965}
    assert party.post("tracking/component/list", part)["data"] == {"components": ["reader_0", "hetero_lr_0"]}
    wrong = party.post("tracking/component/parameters", part | {"component_name": "none_0"})
    assert wrong["retcode"] == 102


def test_rows_of_a_component(party, part):
    data = party.post("tracking/component/output/data", part)
    assert (len(data["data"][0]), data["data"][0][1]) == (100, ["id1", 1, 0.1])
    assert data["meta"] == {"header": [["id", "y", "x0"]], "total": [250], "names": ["train"]}
    [table] = party.post("tracking/component/output/data/table", part)["data"]
    assert (table["data_name"], table["table_name"], table["table_namespace"]) == ("train", "t1", "out")
    answer = party.http.request("GET", "/v1/tracking/component/output/data/download", json=part | {"limit": 3})
    with tarfile.open(fileobj=io.BytesIO(answer.content)) as archive:
        rows = archive.extractfile("train.csv").read().decode()
        about = json.loads(archive.extractfile("train.meta").read())
    assert rows == "id,y,x0\nid0,0,0.0\nid1,1,0.1\nid2,0,0.2\n"
    assert about == {"header": ["id", "y", "x0"]}
    answer = party.http.request("GET", "/v1/tracking/component/output/data/download", json=part | {"limit": 0})
    assert answer.status_code == 404


def test_downloaded_rows_are_csv_that_a_client_of_fate_reads():
    row = ["id1", 1, 0.5, '{"0": 0.5, "1": 0.5}', "train"]
    assert _line(row, 3) == "id1,1,0.5,\"{'0': 0.5, '1': 0.5}\",train\n"
    [line] = csv.reader(io.StringIO(_line(["a,b", 'c"d', "e\nf", '{"label": 1.5}'], 3)))
    assert line == ["a,b", 'c"d', "e\nf", "{'label': 1.5}"]


def test_a_model_is_deployed_and_described(party):
    job_id = party.submit()
    model = {"model_id": "guest-9999#model", "model_version": job_id}
    data = party.post("model/deploy", model | {"cpn_list": ["hetero_lr_0"]})["data"]
    assert (data["model_version"], data["guest"]) == (f"{job_id}9", {"9999": 0})
    assert data["detail"] == {"guest": {"9999": {"retcode": 0, "retmsg": "success"}}}
    assert party.post("model/get/predict/dsl", model)["data"] == DSL
    conf = party.http.post("/v1/model/get/predict/conf", json=model | {"filename": "c.json"}).json()
    assert conf["job_parameters"]["common"]["job_type"] == "predict"
    assert party.post("model/query", model | {"query_filters": ["role", "party_id"]})["data"] == [
        {"role": "guest", "party_id": "9999"}
    ]
    checkpoint = {"components_checkpoint": {"hetero_lr_0": {"step_index": 1}}}
    assert party.post("model/deploy", model | checkpoint)["retcode"] == 103


def test_a_model_goes_out_and_in_as_a_file(party):
    which = {"model_id": "a#model", "model_version": party.submit(), "role": "guest", "party_id": "9999"}
    answer = party.http.request("GET", "/v1/model/export", json=which)
    assert answer.content == b"PK-model"
    name = answer.headers["content-disposition"].partition("filename=")[2]
    assert name == f"guest_9999_a_model_{which['model_version']}.zip"
    answer = party.http.post("/v1/model/import", data=which | {"force_update": 1}, files={"file": ("m.zip", b"PK")})
    assert (answer.json()["retcode"], answer.json()["data"]) == (0, which)
    [(taken, content, replaced)] = party.ports.models.taken
    assert (taken.role, taken.party_id, content, replaced) == ("guest", "9999", b"PK", True)
    lacking = {"model_version": which["model_version"], "role": "guest"}
    answer = party.http.post("/v1/model/import", data=lacking, files={"file": ("m.zip", b"PK")}).json()
    assert answer["retcode"] == 101
    assert answer["retmsg"].startswith("model_id, party_id are missing")
    assert party.post("model/store", which)["retcode"] == 103


def test_a_model_is_loaded_at_its_parties_and_bound(party):
    version = party.submit()
    assert party.post("model/load", {})["retcode"] == 101
    named = {"job_parameters": {"common": {"model_id": "m", "model_version": version}}, "service_id": "credit"}
    assert party.post("model/bind", named)["retcode"] == 103
    answer = party.post("model/load", {"job_id": version})
    assert (answer["retcode"], answer["data"]["host"], answer["data"]["guest"]) == (0, {"10000": 0}, {"9999": 0})
    assert party.post("model/bind", named)["retmsg"] == "service id is credit"
    assert party.ports.models.bound == {"credit": version}
    party.ports.models.host_says = "host 10000 has no model"
    answer = party.post("model/load", named)
    assert (answer["retcode"], answer["retmsg"]) == (101, "host 10000: host 10000 has no model")
    assert answer["data"]["detail"]["host"]["10000"] == {"retcode": 100, "retmsg": "host 10000 has no model"}


def test_a_model_is_migrated_as_a_conf_says(party):
    roles = {"guest": [9999], "host": [10000]}
    asked = {"role": roles, "execute_party": roles, "migrate_role": {"guest": [99], "host": ["100"]}} | {
        "job_parameters": {"federated_mode": "MULTIPLE"},
        "migrate_initiator": {"role": "guest", "party_id": 99},
        "model_id": "m",
        "model_version": "7",
        "unify_model_version": "8",
    }
    assert party.post("model/migrate", asked)["data"]["model_version"] == "8"
    [found] = party.ports.models.migrations
    assert (found.new_roles, found.initiator, found.alone) == (
        {"guest": ["99"], "host": ["100"]},
        ("guest", "99"),
        False,
    )
    mistakes: list[Any] = [{"role": {"guest": 9999}}, {"migrate_initiator": {}}, {"role": {}}]
    for wrong in [*mistakes, {"unify_model_version": ""}]:
        assert party.post("model/migrate", asked | wrong)["retcode"] == 101


def test_tags_of_models(party):
    job_id = party.submit()
    assert party.post("model/tag/create", {"tag_name": "a", "tag_desc": "one"})["retcode"] == 0
    assert party.post("model/tag/create", {"tag_name": "a"})["retcode"] == 103
    party.post("model/tag/update", {"tag_name": "a", "new_tag_name": "b"})
    party.post("model/model_tag/create", {"job_id": job_id, "tag_name": "b"})
    [tag] = party.post("model/tag/retrieve", {"tag_name": "b"})["data"]["tags"]
    assert (tag["name"], tag["description"], tag["model_num"]) == ("b", "one", 1)
    assert [one["name"] for one in party.post("model/model_tag/retrieve", {"job_id": job_id})["data"]["tags"]] == ["b"]
    party.post("model/model_tag/remove", {"job_id": job_id, "tag_name": "b"})
    assert party.post("model/model_tag/retrieve", {"job_id": job_id})["data"]["tags"] == []
    assert party.post("model/tag/destroy", {"tag_name": "b"})["retcode"] == 0
    assert party.post("model/tag/list", {"limit": 1})["data"]["tags"] == []
    assert party.post("model/tag/retrieve", {"tag_name": "b"})["retcode"] == 102


# --------------------------------------------------------------------------------------------------------- every route


def test_an_unknown_route_is_not_found(party):
    answer = party.http.post("/v1/job/fly", json={})
    assert (answer.status_code, answer.json()["retcode"]) == (404, 404)
    assert "no route POST /v1/job/fly" in answer.json()["retmsg"]


def test_what_is_not_offered_says_what_to_do(party):
    for route in ("server/reload", "key/query", "provider/register", "checkpoint/list", "data/writer"):
        answer = party.post(route, {})
        assert answer["retcode"] == 103
        assert " is not offered by Weft. " in answer["retmsg"]


def test_versions(party):
    assert party.post("version/get", {"module": "FATE"})["data"] == {"FATE": "1.11.4"}
    answer = party.http.post("/v1/version/get")
    assert answer.json()["data"]["API"] == "v1"


def test_a_fault_of_the_server_is_one_line_and_a_record_in_the_log(party, caplog):
    def broken(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError("first line\nsecond line")

    party.ports.jobs.query = broken
    answer = party.post("job/query", {})
    assert answer["retcode"] == 100
    assert answer["retmsg"].startswith("a fault of the server: ZeroDivisionError: first line. ")
    assert "Traceback" not in answer["retmsg"]
    assert [record.message for record in caplog.records] == ["a request for /v1/job/query failed"]


# -------------------------------------------------------------------------------------------------------------- limits


def nested(depth: int) -> bytes:
    return b'{"a":' + b"[" * (depth - 1) + b"]" * (depth - 1) + b"}"


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (nested(MOST_DEPTH), 0),
        (nested(MOST_DEPTH + 1), 101),
        (b'{"a": "' + b"[" * 1000 + b'"}', 0),
        (b"[" * 100_000, 101),
        (b'{"a": "' + b"x" * (MOST_BODY - 9) + b'"}', 0),
        (b'{"a": "' + b"x" * (MOST_BODY - 8) + b'"}', 101),
        (b"{", 101),
        (b"[]", 101),
        (b"\xff\xfe", 101),
        (b"", 0),
    ],
    ids=["deep", "deeper", "text", "bomb", "large", "larger", "cut", "list", "bytes", "empty"],
)
def test_the_size_and_the_depth_of_json_are_limited(party, body, code):
    answer = party.http.post("/v1/job/query", content=body, headers={"content-type": "application/json"})
    assert (answer.status_code, answer.json()["retcode"]) == (200, code)


def test_the_size_of_a_file_is_limited(tmp_path):
    party = Party(tmp_path, HttpSettings(most_upload=len(ROWS)))
    assert party.upload()["retcode"] == 0
    assert party.upload(ROWS + " ", drop=1)["retcode"] == 101
    assert list((tmp_path / "scratch").iterdir()) == []


def test_forms_are_read_as_json_is(party):
    job_id = party.submit()
    answer = party.http.post("/v1/job/query", data={"job_id": job_id})
    assert [row["f_job_id"] for row in answer.json()["data"]] == [job_id]
    answer = party.http.post(f"/v1/job/query?job_id={job_id}x")
    assert answer.json()["data"] == []


NAMES = (
    *("job_id", "role", "party_id", "component_name", "status", "limit", "page", "namespace", "table_name", "name"),
    *("dataset", "address", "engine", "meta", "job_dsl", "job_runtime_conf", "train_dsl", "cpn_str", "filename"),
    *("model_id", "model_version", "cpn_list", "predict_dsl", "tag_name", "head", "partition", "output_path", "file"),
    *("use_local_data", "query_filters", "module", "with_model", "components_checkpoint", "id_delimiter", "force"),
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=8) | st.just("1"),
    lambda one: st.lists(one, max_size=3) | st.dictionaries(st.sampled_from(NAMES), one, max_size=3),
    max_leaves=6,
)


@pytest.fixture(scope="module")
def any_party(tmp_path_factory):
    found = Party(tmp_path_factory.mktemp("party"))
    found.ports.jobs.submit(DSL, CONF, "")
    found.upload()
    yield found
    found.ports.tables.close()


KNOWN = {
    "job_id": "202601010000000000000",
    "role": "guest",
    "party_id": "9999",
    "component_name": "hetero_lr_0",
    "model_id": "guest-9999#model",
    "model_version": "202601010000000000000",
    "namespace": "experiment",
    "table_name": "breast",
}


@given(
    route=st.sampled_from(ROUTES),
    known=st.sampled_from([{}, KNOWN]),
    body=st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=4),
)
@settings(max_examples=400, deadline=None)
def test_any_json_gets_an_answer_on_each_route(any_party, route, known, body):
    body = known | body
    path = "/v1/" + route.path.replace("{name}", "weft")
    headers = {"content-type": "application/json"}
    answer = any_party.http.post(path, content=json.dumps(body).encode(), headers=headers)
    assert answer.status_code in (200, 210, 400, 403, 404)
    assert b"WEFT900" not in answer.content


# ------------------------------------------------------------------------------------------------------------- clients


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({}, 0),
        ({"origin": "http://127.0.0.1:9380"}, 0),
        ({"origin": "http://evil.example"}, 108),
        ({"origin": "null"}, 108),
        ({"origin": "http://127.0.0.1:9999"}, 108),
        ({"sec-fetch-site": "cross-site"}, 108),
        ({"sec-fetch-site": "same-site"}, 108),
        ({"sec-fetch-site": "none"}, 0),
        ({"host": "evil.example:9380"}, 108),
        ({"host": "localhost"}, 0),
    ],
)
def test_pages_of_others_are_refused(party, headers, code):
    assert party.post("job/query", {}, headers=headers)["retcode"] == code


class Signer:
    """Signs requests as the client does."""

    def __init__(self, key: ClientKey) -> None:
        self.key, self.nonces = key, itertools.count()

    def headers(self, path: str, body: bytes = b"", form: dict[str, str] | None = None, **other: str) -> dict[str, str]:
        stamp, nonce = other.get("stamp", str(int(BEGAN * 1000))), other.get("nonce", str(next(self.nonces)))
        signature = signed(self.key.secret_key, stamp, nonce, self.key.app_key, path, body, form or {})
        return {"TIMESTAMP": stamp, "NONCE": nonce, "APP_KEY": self.key.app_key, "SIGNATURE": signature}


@pytest.fixture
def key(tmp_path):
    return add_key(tmp_path, "ada")


@pytest.fixture
def locked(tmp_path, key):
    check = SignedRequests(lambda: read_keys(tmp_path), FixedClock())
    found = Party(tmp_path, HttpSettings(check=check))
    yield found
    found.ports.tables.close()


def test_a_signed_request_is_taken_once(locked, key):
    path, body = "/v1/job/submit", json.dumps({"job_dsl": DSL, "job_runtime_conf": CONF}).encode()
    headers = Signer(key).headers(path, body) | {"content-type": "application/json", "host": "party.example"}
    job_id = locked.http.post(path, content=body, headers=headers).json()["jobId"]
    assert locked.ports.jobs.rows[job_id].user == "ada"
    again = locked.http.post(path, content=body, headers=headers).json()
    assert (again["retcode"], "not signed" in again["retmsg"]) == (109, True)
    assert len(locked.ports.jobs.rows) == 1


def test_a_signed_request_is_taken_once_across_a_restart(tmp_path, key):
    headers = Signer(key).headers("/v1/job/query", b"{}") | {"content-type": "application/json"}
    answers = []
    for _ in range(3):
        check = SignedRequests(lambda: read_keys(tmp_path), FixedClock(), tmp_path / "seen")
        party = Party(tmp_path, HttpSettings(check=check))
        answers += [party.http.post("/v1/job/query", content=b"{}", headers=headers).json()["retcode"]]
        party.ports.tables.close()
        check.close()
    assert answers == [0, 109, 109]


def test_old_numbers_of_requests_do_not_fill_the_disk(tmp_path, monkeypatch):
    monkeypatch.setattr(seen, "_UNUSED", 10)
    clock, file = SetClock(BEGAN), tmp_path / "seen"
    numbers = seen.SeenNumbers(clock, file)
    for at in range(100):
        clock.at += 60
        assert numbers.first("ada", str(at))
    assert len(file.read_text().splitlines()) < 20
    assert not numbers.first("ada", "99")
    file.write_text(file.read_text() + "[1, ")  # a torn line
    again = seen.SeenNumbers(clock, file)
    assert not again.first("ada", "99")
    assert again.first("ada", "0")
    for one in (numbers, again):
        one.close()
    assert [one.name for one in tmp_path.iterdir()] == ["seen"]


@pytest.mark.parametrize(
    "change",
    [
        {"path": "/v1/job/stop"},
        {"body": b'{"job_id": "2"}'},
        {"stamp": str(int(BEGAN * 1000) - 61_000)},
        {"stamp": str(int(BEGAN * 1000) + 62_000)},
        {"stamp": "now"},
        {"stamp": "\u00b2"},
        {"nonce": "n" * 129},
        {"nonce": ""},
    ],
    ids=["path", "body", "old", "future", "no time", "no digit", "long nonce", "no nonce"],
)
def test_a_signature_covers_path_body_and_time(locked, key, change):
    given = {"path": "/v1/job/query", "body": b'{"job_id": "1"}'} | change
    signed_headers = Signer(key).headers(**given) | {"content-type": "application/json"}
    headers = {name: value.encode("latin-1") for name, value in signed_headers.items()}
    assert locked.http.post("/v1/job/query", content=b'{"job_id": "1"}', headers=headers).json()["retcode"] == 109


def test_unsigned_requests_and_unknown_keys_get_the_same_answer(locked, key):
    other = Signer(ClientKey(app_key="other", secret_key="s" * 20)).headers("/v1/job/query", b"")
    wrong = Signer(ClientKey(app_key=key.app_key, secret_key="s" * 20)).headers("/v1/job/query", b"")
    answers = [locked.http.post("/v1/job/query", headers=one).json() for one in ({}, other, wrong)]
    assert [one["retcode"] for one in answers] == [109] * 3
    assert len({one["retmsg"] for one in answers}) == 1


def test_a_file_without_a_signature_is_not_stored(locked, key):
    path = "/v1/data/upload?namespace=e&table_name=a&head=1&partition=1"
    signer = Signer(key)
    assert locked.http.post(path, files={"file": ("a.csv", ROWS.encode())}).json()["retcode"] == 109
    answer = locked.http.post(path, files={"file": ("a.csv", ROWS.encode())}, headers=signer.headers(path))
    assert answer.json()["retcode"] == 0
    form = {"model_id": "m", "model_version": "1", "role": "guest", "party_id": "9999"}
    headers = signer.headers("/v1/model/import", form=form)
    for expected, fields in ((109, form | {"role": "host"}), (0, form)):
        answer = locked.http.post("/v1/model/import", data=fields, files={"file": ("m", b"PK")}, headers=headers)
        assert answer.json()["retcode"] == expected


def test_no_byte_of_an_archive_is_written_before_its_signature_is_checked(locked, key, monkeypatch):
    """The fields, which the signature covers, come before the file; whoever sends a field later is refused."""
    form = {"model_id": "m", "model_version": "1", "role": "guest", "party_id": "9999"}
    written = []
    monkeypatch.setattr(calls._FileForm, "write", lambda self: written.append(sum(map(len, self._pieces))))
    file = {"file": ("m", b"P" * (3 << 20))}
    for headers in ({}, Signer(key).headers("/v1/model/import", form=form | {"role": "host"})):
        answer = locked.http.post("/v1/model/import", data=form, files=file, headers=headers).json()
        assert answer["retcode"] == 109
    assert written == []
    late = [("model_id", (None, "m")), ("file", ("m", b"PK")), ("role", (None, "host"))]
    headers = Signer(key).headers("/v1/model/import", form={"model_id": "m"})
    answer = locked.http.post("/v1/model/import", files=late, headers=headers).json()
    assert (answer["retcode"], "the field 'role' comes after the file" in answer["retmsg"]) == (101, True)
    assert written == []


def test_keys_are_kept_from_others(tmp_path, key):
    path = tmp_path / "clients.json"
    assert path.stat().st_mode & 0o777 == 0o600
    with pytest.raises(ConflictError, match="ada has a key already"):
        add_key(tmp_path, "ada")
    remove_key(tmp_path, key.app_key)
    assert read_keys(tmp_path) == {}
    with pytest.raises(NotFoundError):
        remove_key(tmp_path, key.app_key)
    path.chmod(0o644)
    with pytest.raises(ForbiddenError, match="others may read"):
        read_keys(tmp_path)
    path.chmod(0o600)
    for text, why in (('[{"app_key": "a", "secret_key": "short"}]', "not usable"), ("[{}]", "cannot be read")):
        path.write_text(text)
        with pytest.raises(UsageError, match=why):
            read_keys(tmp_path)


# -------------------------------------------------------------------------------------------------------------- server


def test_a_server_answers_until_it_is_stopped(tmp_path):
    ports = party_ports(tmp_path)
    with HttpServer(make_app(ports), port=0) as server:
        url = server.url
        assert url == f"http://127.0.0.1:{server.port}/v1"
        with httpx.Client() as client:
            first = client.post(f"{url}/job/submit", json={"job_dsl": DSL, "job_runtime_conf": CONF}).json()
            log = client.post(f"{url}/job/log/download", json={"job_id": first["jobId"]})
            query = json.dumps(TABLE | {"notes": "n" * 30_000})
            stored = client.post(f"{url}/data/upload?{query}", files={"file": ("a.csv", ROWS.encode())}).json()
        assert (first["retcode"], log.status_code, stored["retcode"]) == (0, 200, 0)
        with pytest.raises(ConflictError, match=f"port {server.port} of 127.0.0.1 is taken"):
            HttpServer(make_app(ports), port=server.port)
    server.stop()
    with pytest.raises(httpx.ConnectError):
        httpx.post(f"{url}/version/get")
    ports.tables.close()


def test_an_address_of_another_machine_is_not_served(tmp_path):
    with pytest.raises(UsageError, match="cannot be served") as caught:
        HttpServer(make_app(party_ports(tmp_path)), host="203.0.113.7", port=0)
    assert "client_host in policy.json" in caught.value.hint


@pytest.mark.parametrize("drips", [b"", b"POST /v1/job/query HTTP/1.1\r\nx: "], ids=["silence", "byte by byte"])
@pytest.mark.parametrize("first", [b"", b"GET /v1/none HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"], ids=["first", "next"])
def test_a_connection_without_a_whole_request_is_closed(tmp_path, monkeypatch, drips, first):
    monkeypatch.setattr(server_module, "_KEEP_ALIVE_S", 0.2)
    ports = party_ports(tmp_path)
    with (
        HttpServer(make_app(ports), port=0) as server,
        socket.create_connection(("127.0.0.1", server.port), timeout=DEADLINE_S) as line,
    ):
        line.sendall(first)
        if first:
            assert line.recv(100).startswith(b"HTTP/1.1 404")
        ended, begin = threading.Event(), time.monotonic()

        def drip():
            with suppress(OSError):
                line.sendall(drips)
                while drips and not ended.wait(0.02) and time.monotonic() < begin + DEADLINE_S:
                    line.sendall(b"x")

        dripping = threading.Thread(target=drip)
        dripping.start()
        try:
            with suppress(ConnectionError):
                while line.recv(4096):
                    pass
        finally:
            ended.set()
            dripping.join()
    ports.tables.close()


def test_a_body_that_comes_too_slowly_is_given_up(tmp_path, monkeypatch):
    monkeypatch.setattr(calls, "WHOLE_S", 0.01)

    async def stalling():
        yield b'{"job_id": '
        await asyncio.Event().wait()

    answer = Party(tmp_path).http.post("/v1/job/query", content=stalling())
    assert (answer.json()["retcode"], "the body did not come in" in answer.json()["retmsg"]) == (101, True)


def test_a_body_that_stalls_is_given_up(tmp_path, monkeypatch):
    monkeypatch.setattr(calls, "PATIENCE_S", 0.01)

    async def stalling():
        yield b'{"job_id": '
        await asyncio.Event().wait()

    answer = Party(tmp_path).http.post("/v1/job/query", content=stalling())
    assert (answer.json()["retcode"], "no more of the body came" in answer.json()["retmsg"]) == (101, True)
