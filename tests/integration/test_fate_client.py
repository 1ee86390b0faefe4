"""The clients of FATE, `flow` and `pipeline` of fate-client 1.11.3, against the interface of a party.

They need an environment of their own, which `make providers` makes in `.providers/fate-client`; the variable
WEFT_FATE_CLIENT names another one. Their settings lie beside their code, so each test runs a copy of it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("fastapi")

from tests.integration.test_parties import Served
from tests.party_ports import party_ports
from weft.parties.client_keys import add_key, read_keys
from weft.parties.http.app import HttpSettings, make_app
from weft.parties.http.callers import SignedRequests
from weft.parties.http.server import HttpServer
from weft.parties.invitations import invite, join
from weft.runtime.clock import RealClock

HOME = Path(os.environ.get("WEFT_FATE_CLIENT") or Path(__file__).parents[2] / ".providers" / "fate-client")
PYTHON = HOME / "bin" / "python"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not PYTHON.exists(), reason=f"no fate-client in {HOME}: make providers, or WEFT_FATE_CLIENT"),
]
DSL = {
    "components": {
        "reader_0": {"module": "Reader", "output": {"data": ["data"]}},
        "hetero_lr_0": {"module": "HeteroLR", "input": {"data": {"train_data": ["reader_0.data"]}}},
    }
}
CONF = {
    "dsl_version": 2,
    "initiator": {"role": "guest", "party_id": 9999},
    "role": {"guest": [9999], "host": [10000], "arbiter": [10000]},
    "component_parameters": {"common": {"hetero_lr_0": {"max_iter": 3}}},
}
OK, REFUSED = "ok", "not offered"
MODEL = "--model-id guest-9999#model --model-version JOB"
PART = "-j JOB -r guest -p 9999 -cpn hetero_lr_0"
TABLE = "-n experiment -t breast"
MODEL_PART = f"-r guest -p 9999 {MODEL} -cpn hetero_lr_0"
COMMANDS = f"""
data upload -c upload.json                                       | {OK}
data upload -c upload.json --drop --verbose                      | {OK}
data upload -c upload_there.json --drop                          | {OK}
data upload-history -l 2                                         | {OK}
data download -c download.json                                   | {OK}
data writer -c download.json                                     | {REFUSED}
table info {TABLE}                                               | {OK}
table disable {TABLE}                                            | {OK}
table enable {TABLE}                                             | {OK}
table add -c bind.json                                           | {OK}
table bind -c bind.json --drop                                   | {OK}
table tracking-source {TABLE}                                    | {OK}
table tracking-job {TABLE}                                       | {OK}
table connector-create -c empty.json                             | {REFUSED}
table connector-query --connector-name a                         | {REFUSED}
table disable-delete                                             | {OK}
job submit -c conf.json -d dsl.json                              | {OK}
job list -l 5                                                    | {OK}
job query -j JOB -r guest -p 9999                                | {OK}
job query -s success                                             | {OK}
job rerun -j JOB -cpn hetero_lr_0 --force                        | {OK}
job config -j JOB -r guest -p 9999 -o .                          | {OK}
job log -j JOB -o logs                                           | {OK}
job view -j JOB -r guest -p 9999                                 | {OK}
job dsl --cpn-list reader_0 --train-dsl-path dsl.json            | {OK}
job dsl --cpn-list reader_0 --train-dsl-path dsl.json -o .       | {OK}
job parameter-update -j JOB -c update.json                       | {OK}
job stop -j JOB                                                  | {OK}
queue clean                                                      | {OK}
task list -l 3                                                   | {OK}
task query -j JOB -r guest -p 9999 -cpn hetero_lr_0              | {OK}
component list -j JOB                                            | {OK}
component metrics {PART}                                         | {OK}
component metric-all {PART}                                      | {OK}
component parameters {PART}                                      | {OK}
component output-data {PART} -o out                              | {OK}
component output-model {PART}                                    | {OK}
component output-data-table {PART}                               | {OK}
component get-summary {PART}                                     | {OK}
component get-summary {PART} -o .                                | {OK}
component metric-delete -d 20260131                              | {OK}
component hetero-model-merge {MODEL} -gid 9999 -hids 1 -cpn a --model-type b --output-format c -o d | {REFUSED}
component woe-array-extract {MODEL_PART} -o woe.json             | {REFUSED}
component woe-array-merge {MODEL_PART} -i empty.json             | {REFUSED}
tracking metrics {PART}                                          | {OK}
tracking metric-all {PART}                                       | {OK}
tracking parameters {PART}                                       | {OK}
tracking output-data {PART} -o out2                              | {OK}
tracking output-model {PART}                                     | {OK}
tracking output-data-table {PART}                                | {OK}
tracking get-summary {PART}                                      | {OK}
model deploy {MODEL} --cpn-list reader_0,hetero_lr_0             | {OK}
model deploy {MODEL} --dsl-path dsl.json                         | {OK}
model get-predict-dsl {MODEL} -o .                               | {OK}
model get-predict-conf {MODEL} -o .                              | {OK}
model get-model-info {MODEL} -r guest -p 9999                    | {OK}
model get-model-info {MODEL} --detail                            | {OK}
model export -c model.json                                       | {OK}
model import -c model.json                                       | {OK}
model export -c model.json --to-database                         | {REFUSED}
model import -c model.json --from-database                       | {REFUSED}
model load -j JOB                                                | {OK}
model load -c load.json                                          | {OK}
model bind -j JOB -c bind_service.json                           | {OK}
model migrate -c migrate.json                                    | {OK}
model homo-convert -c empty.json                                 | {REFUSED}
model homo-deploy -c empty.json                                  | {REFUSED}
tag create -t a -d one                                           | {OK}
model tag-model -j JOB -t a                                      | {OK}
model tag-list -j JOB                                            | {OK}
model tag-model -j JOB -t a --remove                             | {OK}
tag query -t a --with-model                                      | {OK}
tag update -t a --new-tag-name b --new-tag-desc two              | {OK}
tag list -l 5                                                    | {OK}
tag delete -t b                                                  | {OK}
privilege grant -c grant.json                                    | {OK}
privilege query -p 10000                                         | {OK}
privilege delete -c grant.json                                   | {OK}
resource query                                                   | {OK}
resource return -j JOB                                           | {REFUSED}
provider list                                                    | {OK}
provider list -n weft                                            | {OK}
provider list-components                                         | {OK}
provider register -c provider.json                               | {REFUSED}
server versions                                                  | {OK}
server reload                                                    | {REFUSED}
service registry                                                 | {REFUSED}
checkpoint list {MODEL_PART}                                     | {REFUSED}
checkpoint get {MODEL_PART} --step-index 1                       | {REFUSED}
template download --min-data 1 -o template                       | {REFUSED}
key save -c empty.json                                           | {REFUSED}
key query -p 10000                                               | {REFUSED}
key delete -p 10000                                              | {REFUSED}
test toy -gid 9999 -hid 10000                                    | toy
table delete {TABLE}                                             | {OK}
"""
FLOW = """
import json, sys
from click.testing import CliRunner
from flow_client.flow import flow_cli

ran = []
for words in json.load(open(sys.argv[1])):
    answer = CliRunner().invoke(flow_cli, words)
    ran.append([answer.output, "" if answer.exception is None else repr(answer.exception)])
json.dump(ran, open(sys.argv[2], "w"))
"""
PIPELINE = """
import json, sys
from pipeline.backend.pipeline import PipeLine
from pipeline.component import DataTransform, HeteroLR, Intersection, Reader
from pipeline.interface import Data, Model

guest, host, arbiter = 9999, 10000, 10000
pipe = PipeLine().set_initiator(role="guest", party_id=guest).set_roles(guest=guest, host=host, arbiter=arbiter)
pipe.add_upload_data(file=sys.argv[1], table_name="breast", namespace="experiment", head=1, partition=4)
pipe.upload(drop=1)
reader = Reader(name="reader_0")
reader.get_party_instance(role="guest", party_id=guest).component_param(table={"name": "breast", "namespace": "e"})
reader.get_party_instance(role="host", party_id=host).component_param(table={"name": "breast", "namespace": "e"})
transform, match = DataTransform(name="data_transform_0"), Intersection(name="intersection_0")
model = HeteroLR(name="hetero_lr_0", max_iter=3)
pipe.add_component(reader)
pipe.add_component(transform, data=Data(data=reader.output.data))
pipe.add_component(match, data=Data(data=transform.output.data))
pipe.add_component(model, data=Data(train_data=match.output.data))
pipe.compile()
pipe.fit()
part = pipe.get_component("hetero_lr_0")
found = {
    "summary": part.get_summary(),
    "model": part.get_model_param(),
    "metric": part.get_output_data_table(),
    "rows": len(part.get_output_data()),
    "columns": list(part.get_output_data().columns),
}
pipe.deploy_component([transform, match, model])
predict = PipeLine()
predict.add_component(reader)
predict.add_component(pipe, data=Data(predict_input={pipe.data_transform_0.input.data: reader.output.data}))
predict.predict()
json.dump(found, open(sys.argv[2], "w"))
"""


class FateClient:
    """A copy of FATE's client with settings of its own, below a folder. Its code runs in `work`."""

    def __init__(self, folder: Path) -> None:
        self._folder, self.work = folder, folder / "work"
        site = next((HOME / "lib").glob("python3*/site-packages"))
        for package in ("flow_client", "pipeline"):
            shutil.copytree(site / package, folder / "code" / package, ignore=shutil.ignore_patterns("__pycache__"))
        self.work.mkdir()

    def connect(self, **settings: Any) -> None:
        """Let it use a server: `ip` and `port`, and its keys."""
        given = {"app_key": None, "secret_key": None} | settings
        flow = given | {"api_version": "v1", "server_conf_path": None}
        (self._folder / "code" / "flow_client" / "settings.yaml").write_text(json.dumps(flow))
        logs = {"log_directory": str(self._folder / "pipeline_logs"), "console_display_log": False}
        (self._folder / "code" / "pipeline" / "config.yaml").write_text(json.dumps(given | logs))

    def run(self, code: str, *words: str) -> Any:
        """Run code of the client, and return what it has written as JSON."""
        (self._folder / "code" / "driver.py").write_text(code)
        out = self._folder / "found.json"
        env = {"PYTHONPATH": str(self._folder / "code"), "PATH": os.environ["PATH"], "HOME": str(self._folder)}
        command = [str(PYTHON), "-W", "ignore", str(self._folder / "code" / "driver.py"), *words, str(out)]
        ended = subprocess.run(command, cwd=self.work, env=env, capture_output=True, text=True, timeout=300)
        assert ended.returncode == 0, ended.stdout[-3000:] + ended.stderr[-3000:]
        return json.loads(out.read_text())


@pytest.fixture
def client(tmp_path, request):
    """Yield the ports of a party, a function that runs code of the client, and the folder where it runs.

    With a parameter clients must sign their requests; it is a text that the client has after its secret.
    """
    fate = FateClient(tmp_path)
    ports = party_ports(tmp_path / "party", sources=[fate.work], targets=[fate.work])
    settings: dict[str, Any] = {}
    check = None
    if hasattr(request, "param"):
        key = add_key(tmp_path, "ada")
        check = SignedRequests(lambda: read_keys(tmp_path), RealClock())
        settings = {"app_key": key.app_key, "secret_key": key.secret_key + request.param}
    with HttpServer(make_app(ports, HttpSettings(check=check)), port=0) as server:
        fate.connect(ip=server.host, port=server.port, **settings)
        yield ports, fate.run, fate.work
    ports.tables.close()


def write_files(work: Path, job_id: str) -> None:
    rows = "id,y,x0\n" + "".join(f"{at},{at % 2},0.{at}\n" for at in range(100))
    (work / "breast.csv").write_text(rows)
    table = {"namespace": "experiment", "table_name": "breast"}
    upload = table | {"file": "breast.csv", "head": 1, "partition": 4, "id_delimiter": ",", "meta": {"label": "a=b&c"}}
    which = {"model_id": "guest-9999#model", "model_version": job_id, "role": "guest", "party_id": "9999"}
    bound = {"engine": "PATH", "namespace": "experiment", "name": "images", "address": {"path": str(work)}}
    bound["address"] = {"path": str(work / "breast.csv")}
    (work / "model.bin").write_bytes(b"PK")
    roles = {"guest": [9999], "host": [10000]}
    published = {"initiator": {"role": "guest", "party_id": "9999"}, "role": roles} | {
        "job_parameters": {"model_id": which["model_id"], "model_version": job_id}
    }
    files: dict[str, Any] = {
        "load": published,
        "bind_service": published | {"service_id": "credit"},
        "migrate": {"role": roles, "execute_party": roles, "migrate_role": {"guest": [99], "host": [100]}}
        | {"migrate_initiator": {"role": "guest", "party_id": 99}, "unify_model_version": "2"}
        | {"model_id": which["model_id"], "model_version": job_id, "job_parameters": {"federated_mode": "SINGLE"}},
        "upload": upload,
        "upload_there": upload | {"use_local_data": 0, "file": str(work / "breast.csv")},
        "download": table | {"output_path": str(work / "back.csv")},
        "bind": bound | {"head": 1, "id_delimiter": ",", "partitions": 4},
        "conf": CONF,
        "dsl": DSL,
        "update": {"component_parameters": {"common": {"hetero_lr_0": {"max_iter": 4}}}},
        "model": which | {"file": str(work / "model.bin"), "output_path": str(work)},
        "grant": {"party_id": 10000, "dataset": {"namespace": "experiment", "name": "breast"}},
        "provider": {"name": "other", "version": "1", "path": "."},
        "empty": {},
    }
    for name, value in files.items():
        (work / f"{name}.json").write_text(json.dumps(value))


def test_each_command_of_flow_has_its_answer(client):
    ports, run, work = client
    job_id = ports.jobs.submit(DSL, CONF, "").job_id
    write_files(work, job_id)
    lines = [line.rpartition("|") for line in COMMANDS.strip().splitlines()]
    words = [line.replace("JOB", job_id).split() for line, _, _ in lines]
    (work / "words.json").write_text(json.dumps(words))
    wrong = {}
    for (line, _, expected), (output, error) in zip(lines, run(FLOW, "words.json"), strict=True):
        answer = json.loads(output[output.index("{") :]) if "{" in output else {}
        if expected.strip() == "toy":
            good = "is success" in output and "secure_add_guest success" in output
        elif expected.strip() == OK:
            good = answer.get("retcode") == 0
        else:
            good = answer.get("retcode") == 103 and " is not offered by Weft. " in answer["retmsg"]
        if not good or error:
            wrong[line.strip()] = (output[-500:], error)
    assert wrong == {}
    assert (work / "back.csv").read_text() == (work / "breast.csv").read_text()
    assert (work / f"logs/job_{job_id}_log/guest/9999/INFO.log").read_text() == "secure_add_guest success\n"


def test_flow_knows_no_further_command(client):
    _, run, _work = client
    code = "import json, sys\nfrom flow_client.flow import flow_cli\n"
    code += "found = [f'{a} {b}' for a, g in flow_cli.commands.items() for b in getattr(g, 'commands', {})]\n"
    code += "json.dump(found, open(sys.argv[1], 'w'))"
    tried = {" ".join(line.split()[:2]) for line in COMMANDS.strip().splitlines()}
    assert set(run(code)) - tried == {"test min"}


def test_a_pipeline_is_fitted_deployed_and_predicted(client):
    ports, run, work = client
    write_files(work, "1")
    found = run(PIPELINE, str(work / "breast.csv"))
    assert (found["summary"], found["model"]) == ({"auc": 0.9965}, {"weight": {"x0": 0.5}})
    assert (found["rows"], found["columns"]) == (250, ["id", "y", "x0"])
    assert ports.tables.get("experiment", "breast").count == 100
    kinds = [row.conf["job_parameters"]["common"]["job_type"] for row in ports.jobs.rows.values()]
    assert kinds == ["train", "predict"]


@pytest.mark.parametrize(("client", "expected"), [("", 0), ("x", 109)], indirect=["client"], ids=["signed", "wrong"])
def test_flow_signs_its_requests(client, expected):
    ports, run, work = client
    job_id = ports.jobs.submit(DSL, CONF, "").job_id
    write_files(work, job_id)
    commands = ("data upload -c upload.json", "job query", "model import -c model.json", f"job log -j {job_id} -o logs")
    (work / "words.json").write_text(json.dumps([line.split() for line in commands]))
    answers = [json.loads(output[output.index("{") :]) for output, _ in run(FLOW, "words.json")]
    assert [answer["retcode"] for answer in answers] == [expected] * len(commands)
    assert len(ports.tables.all()) == (expected == 0)


REAL = """
import json, sys
from pipeline.backend.pipeline import PipeLine
from pipeline.component import DataTransform, Evaluation, HeteroLR, Intersection, Reader
from pipeline.interface import Data, Model

guest, host = 9999, 10000
pipe = PipeLine().set_initiator(role="guest", party_id=guest).set_roles(guest=guest, host=host, arbiter=host)
pipe.add_upload_data(file=sys.argv[1], table_name="mine", namespace="e", head=1, partition=4)
pipe.upload(drop=1)
reader, transform = Reader(name="reader_0"), DataTransform(name="data_transform_0")
reader.get_party_instance(role="guest", party_id=guest).component_param(table={"name": "mine", "namespace": "e"})
reader.get_party_instance(role="host", party_id=host).component_param(table={"name": "theirs", "namespace": "e"})
transform.get_party_instance(role="guest", party_id=guest).component_param(with_label=True, label_name="y")
transform.get_party_instance(role="host", party_id=host).component_param(with_label=False)
match, model = Intersection(name="intersection_0"), HeteroLR(name="hetero_lr_0", max_iter=2, learning_rate=0.5)
evaluation = Evaluation(name="evaluation_0", eval_type="binary")
pipe.add_component(reader)
pipe.add_component(transform, data=Data(data=reader.output.data))
pipe.add_component(match, data=Data(data=transform.output.data))
pipe.add_component(model, data=Data(train_data=match.output.data))
pipe.add_component(evaluation, data=Data(data=model.output.data))
pipe.compile()
pipe.fit()
part = pipe.get_component("hetero_lr_0")
rows = part.get_output_data()
pipe.deploy_component([transform, match, model])
predict = PipeLine()
predict.add_component(reader)
predict.add_component(pipe, data=Data(predict_input={pipe.data_transform_0.input.data: reader.output.data}))
predict.predict()
again = predict.get_component("hetero_lr_0").get_output_data()
found = {
    "columns": list(rows.columns),
    "details": rows["predict_detail"].tolist(),
    "scores": dict(zip(rows["sid"], rows["predict_score"].astype(float))),
    "again": dict(zip(again["sid"], again["predict_score"].astype(float))),
    "auc": pipe.get_component("evaluation_0").get_summary(),
    "weights": sorted(part.get_model_param()),
}
json.dump(found, open(sys.argv[2], "w"))
"""


@pytest.fixture
def sites(tmp_path):
    """Yield a client, and the servers of a guest and of a party that is host and arbiter."""
    parties = {id: Served(tmp_path, id) for id in ("9999", "10000")}
    now = time.time()
    for one in parties.values():
        for other in parties.values():
            if one is not other:
                join(other.site, invite(one.site, now), now)
    fate = FateClient(tmp_path)
    try:
        for one in parties.values():
            one.start()
        fate.connect(ip="127.0.0.1", port=parties["9999"].site.party.http_port)
        yield fate, *parties.values()
    finally:
        for one in parties.values():
            one.end()


def test_servers_of_parties_run_what_the_client_of_fate_asks(sites):
    """The toy test of `flow`, and a `pipeline` that is fitted, read, deployed and predicts, without a key."""
    fate, _, host = sites
    (fate.work / "words.json").write_text(
        json.dumps([["test", "toy", "-gid", "9999", "-hid", "10000", "--task-cores", "1"]])
    )
    [[output, error]] = fate.run(FLOW, "words.json")
    assert "is success" in output, output + error
    rng = np.random.default_rng(7)
    values = rng.normal(size=(60, 2)).round(3)
    labels = (values.sum(axis=1) > 0).astype(int)
    mine = [f"{at},{labels[at]},{values[at, 0]}" for at in range(60)]
    (fate.work / "mine.csv").write_text("\n".join(["id,y,a", *mine]) + "\n")
    theirs = fate.work / "theirs.csv"
    theirs.write_text("\n".join(["id,b", *(f"{at},{values[at, 1]}" for at in range(60))]) + "\n")
    host.client.upload(theirs, {"namespace": "e", "table_name": "theirs", "head": 1, "partition": 1})
    host.client.post("permission/grant", {"party_id": 9999, "dataset": {"namespace": "e", "name": "theirs"}})
    found = fate.run(REAL, str(fate.work / "mine.csv"))
    assert found["columns"] == ["sid", "label", "predict_result", "predict_score", "predict_detail", "type"]
    assert len(found["scores"]) == 60
    assert {tuple(one) for one in found["details"]} == {("0", "1")}
    assert found["again"] == pytest.approx(found["scores"])
    assert found["auc"]
    assert found["weights"]
