"""Probes and hooks of replicas, with small servers as replicas."""

from typing import Any

import pytest

from tests.integration.places import RUN, until
from tests.integration.test_training import Place, replica, tfjob
from tests.ports import free_port
from weft.store.state import read_status

SERVER = """
import http.server, os, signal, sys
class Answers(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        name = self.path[1:]
        self.send_response(200 if os.path.exists(name) else 503)
        self.end_headers()
    def log_message(self, *rest):
        pass
http.server.ThreadingHTTPServer(("", int(sys.argv[1])), Answers).serve_forever()
"""
"""Answers /NAME with 200 if there is such a file."""


@pytest.fixture
def place(tmp_path) -> Place:
    return Place(tmp_path)


def server(policy: str = "Never", first: str = "", **more: Any) -> dict[str, Any]:
    spec = replica("unused", policy=policy)
    one = spec["template"]["spec"]["containers"][0]
    port = free_port()
    one |= {"command": ["sh", "-c", f"{first}exec python3 -c '{SERVER}' {port}"]}
    one |= {"ports": [{"containerPort": port, "name": "health"}], **more}
    return spec


def get(path: str, **more: Any) -> dict[str, Any]:
    return {"httpGet": {"path": path, "port": "health"}, "periodSeconds": 1, "timeoutSeconds": 20, **more}


def status(place: Place) -> list[dict[str, Any]]:
    return read_status(place.folder_of()) if place.folder_of().is_dir() else []


def events(place: Place) -> list[tuple[str, str]]:
    return [(reason, text) for job in status(place) for _, _, reason, text in job["events"]]


@pytest.mark.parametrize("isolation", ["namespace", "ports"])
def test_a_replica_is_ready_when_its_server_says_so(isolation, place: Place):
    place.job(tfjob(Worker=server(readinessProbe=get("/ready"))))
    process = place.start("run", "run.yaml", "--isolation", isolation)
    until(lambda: any(reason == "Unhealthy" and "503" in text for reason, text in events(place)))
    _, out, err = place.weft("show", RUN)
    assert "not ready: readiness probe: HTTP probe failed with statuscode: 503" in out, err
    (place.folder / "ready").touch()
    until(lambda: read_status(place.folder_of())[0]["unready"] == {})
    assert "not ready" not in place.weft("show", RUN)[1]
    assert place.weft("cancel", RUN)[0] == 0
    process.communicate(timeout=180)
    assert place.alive() == []


@pytest.mark.parametrize("isolation", ["namespace", "ports"])
def test_a_health_check_of_grpc_asks_the_server_and_no_connection_is_enough(isolation, place: Place):
    worker = server(readinessProbe={"grpc": {"service": "s"}, "periodSeconds": 1, "timeoutSeconds": 20})
    (container,) = worker["template"]["spec"]["containers"]
    container["readinessProbe"]["grpc"]["port"] = container["ports"][0]["containerPort"]
    place.job(tfjob(Worker=worker))
    process = place.start("run", "run.yaml", "--isolation", isolation)
    said = ("the answer is no HTTP/2", "the server ends the connection")  # it speaks another protocol
    until(lambda: any(reason == "Unhealthy" and text.endswith(said) for reason, text in events(place)))
    assert "not ready: readiness probe: the " in place.weft("show", RUN)[1]
    assert place.weft("cancel", RUN)[0] == 0
    process.communicate(timeout=120)
    assert place.alive() == []


@pytest.mark.parametrize("isolation", ["namespace", "ports"])
def test_a_failed_liveness_probe_starts_the_replica_again(isolation, place: Place):
    """The first start serves until its file goes; the second one ends the job."""
    worker = server(
        policy="OnFailure",
        first="if test -e twice; then exit 0; fi; touch twice alive; ",
        livenessProbe=get("/alive", initialDelaySeconds=1, failureThreshold=1),
        startupProbe={"tcpSocket": {"port": "health"}, "periodSeconds": 1, "failureThreshold": 120},
    )
    place.job(tfjob(Worker=worker))
    process = place.start("run", "run.yaml", "--isolation", isolation)
    until((place.folder / "alive").exists)
    (place.folder / "alive").unlink()
    out, err = process.communicate(timeout=180)
    assert process.returncode == 0, out + err
    assert any(reason == "Killing" and "its liveness probe failed 1 time" in text for reason, text in events(place))
    assert place.alive() == []


def test_the_reason_of_an_ended_replica_is_told(place: Place):
    probe = {"exec": {"command": ["sh", "-c", "echo not well; exit 3"]}, "failureThreshold": 1, "timeoutSeconds": 180}
    place.job(tfjob(Worker=server(livenessProbe=probe)))
    code, out, err = place.run()
    assert code == 1
    said = "its liveness probe failed 1 time in a row: ended with exit code 3: not well"
    assert said in err
    assert said in out
    assert place.alive() == []


def test_the_grace_period_of_a_probe_replaces_that_of_the_pod(place: Place):
    """The replica ignores SIGTERM, and its pod has an hour of grace."""
    spec = replica("trap '' TERM; while :; do sleep 0.1; done", terminationGracePeriodSeconds=3600)
    probe = {"exec": {"command": ["false"]}, "failureThreshold": 1, "terminationGracePeriodSeconds": 1}
    spec["template"]["spec"]["containers"][0]["livenessProbe"] = probe
    place.job(tfjob(Worker=spec))
    code, out, err = place.run()
    assert code == 1
    assert "liveness probe" in out + err
    assert place.alive() == []


def test_an_exec_probe_has_a_timeout_and_its_processes_end(place: Place):
    probe = {"exec": {"command": ["sleep", "3600"]}, "timeoutSeconds": 1, "failureThreshold": 1}
    place.job(tfjob(Worker=server(startupProbe=probe)))
    code, _, err = place.run()
    assert code == 1
    assert "its startup probe failed 1 time in a row: took longer than 1 s" in err
    assert place.alive() == []


def test_a_failed_post_start_hook_ends_the_replica(place: Place):
    hook = {"postStart": {"exec": {"command": ["sh", "-c", "echo no database; exit 4"]}}}
    place.job(tfjob(Worker=server(lifecycle=hook)))
    code, _, err = place.run()
    assert code == 1
    assert "its postStart hook ended with exit code 4: no database" in err
    assert place.alive() == []


def test_pre_stop_runs_before_the_end_and_within_its_grace(place: Place):
    command = "trap 'cat saved; exit 0' TERM; touch up; while :; do sleep 0.05; done"
    spec = replica(command, terminationGracePeriodSeconds=60)
    hook = {"preStop": {"exec": {"command": ["sh", "-c", "echo first > saved; echo hook"]}}}
    spec["template"]["spec"]["containers"][0]["lifecycle"] = hook
    chief = replica("until test -e up; do sleep 0.02; done")
    place.job(tfjob({"cleanPodPolicy": "Running"}, Chief=chief, Worker=spec))
    code, out, err = place.run()
    assert code == 0, out + err
    assert place.log("worker").splitlines()[-1] == "first"
    assert place.alive() == []


def test_a_sidecar_starts_again_as_the_policy_says(place: Place):
    spec = replica("until test -e third; do sleep 0.05; done", policy="OnFailure")
    side = "if test -e second; then touch third; else test -e first && touch second; touch first; exit 1; fi"
    spec["template"]["spec"]["containers"].append({"name": "side", "image": "e/n:1", "command": ["sh", "-c", side]})
    place.job(tfjob(Worker=spec))
    code, out, err = place.run()
    assert code == 0, out + err
    assert place.alive() == []


def test_an_init_container_that_restarts_always_runs_beside_the_others(place: Place):
    """It starts again after each end, whatever the policy of the pod, and ends with the main container."""
    spec = replica("until test -e second; do sleep 0.05; done; cat prepared", policy="Never")
    side = "if test -e first; then touch second; sleep 600; fi; touch first"
    shell = ["sh", "-c"]
    spec["template"]["spec"]["initContainers"] = [
        {"name": "side", "image": "e/n:1", "command": [*shell, side], "restartPolicy": "Always"},
        {"name": "prepare", "image": "e/n:1", "command": [*shell, "echo ready > prepared"]},
    ]
    place.job(tfjob(Worker=spec))
    code, out, err = place.run()
    assert code == 0, out + err
    assert "without effect" not in err
    assert place.log("worker").splitlines() == ["ready"]
    assert place.alive() == []
