"""Every kind of training job and every restart policy, with real processes."""

import json
import os
from typing import Any

import pytest

from tests.integration.places import RUN, until
from tests.integration.test_training import Place, place, replica, tfjob
from weft.frontends.training.kinds import KINDS
from weft.operators.network import why_no_namespaces
from weft.runs.reading import read_run
from weft.runs.records import read_records

__all__ = ["place"]


def job(kind: str, **replicas: Any) -> dict[str, Any]:
    """Return a job of a kind; its containers get the kind's name."""
    for spec in replicas.values():
        for container in spec["template"]["spec"]["containers"]:
            container["name"] = KINDS[kind].container
    spec = {KINDS[kind].spec_key: replicas}
    return {"apiVersion": "kubeflow.org/v1", "kind": kind, "metadata": {"name": "job"}, "spec": spec}


ECHO = 'echo "$WEFT_REPLICA rank=$RANK of=$WORLD_SIZE paddle=$PADDLE_NNODES jax=$PROCESS_ID/$NUM_PROCESSES"'


@pytest.mark.parametrize(
    ("kind", "replicas", "step", "line"),
    [
        ("PyTorchJob", {"Master": 1, "Worker": 2}, "master", "job-master-0 rank=0 of=3 paddle= jax=/"),
        ("XGBoostJob", {"Master": 1, "Worker": 1}, "master", "job-master-0 rank=0 of=2 paddle= jax=/"),
        ("PaddleJob", {"Worker": 2}, "worker", "job-worker-0 rank= of= paddle=2 jax=/"),
        ("JAXJob", {"Worker": 2}, "worker", "job-worker-0 rank= of= paddle= jax=0/2"),
        ("TFJob", {"Worker": 1}, "worker", "job-worker-0 rank= of= paddle= jax=/"),
    ],
)
@pytest.mark.parametrize("isolation", ["auto", "ports"])
def test_each_kind_runs(kind, replicas, step, line, isolation, place: Place):
    place.job(job(kind, **{type: replica(ECHO, count) for type, count in replicas.items()}))
    code, out, err = place.run("--isolation", isolation)
    assert code == 0, err
    assert place.conditions()["Succeeded"] == "True"
    assert place.log(step).strip() == line
    assert f"{kind} job" in out


def test_what_one_address_for_all_replicas_cannot_do_is_told(place: Place):
    place.job(job("XGBoostJob", Master=replica("true"), Worker=replica("true; : job-master-0:9999", 2)))
    code, _, err = place.run("--isolation", "ports")
    assert code == 0, err
    assert "each worker has a WORKER_PORT of its own" in err
    assert "container xgboost of Worker names job-master-0" in err


def test_a_launcher_of_mpi_enters_its_workers(place: Place):
    """The agent stands for kubectl exec: each line of the hostfile names a worker."""
    launch = (
        "for host in $(cut -d' ' -f1 $OMPI_MCA_orte_default_hostfile); do "
        '$OMPI_MCA_plm_rsh_agent $host "echo in \\$WEFT_REPLICA" || exit 1; done'
    )
    worker = replica("unused", 2)
    del worker["template"]["spec"]["containers"][0]["command"]
    place.job(job("MPIJob", Launcher=replica(launch), Worker=worker))
    code, _, err = place.run()
    assert code == 0, err
    assert place.log("launcher").split("\n")[:2] == ["in job-worker-0", "in job-worker-1"]
    assert place.alive() == []


def test_a_launcher_that_starts_again_enters_the_workers_that_a_scale_has_added(place: Place):
    launch = (
        "echo up; while ! test -e go; do sleep 0.05; done; for host in $(cut -d' ' -f1 "
        '$OMPI_MCA_orte_default_hostfile); do $OMPI_MCA_plm_rsh_agent $host "echo in \\$WEFT_REPLICA" || exit 1; done'
    )
    worker = replica("unused")
    del worker["template"]["spec"]["containers"][0]["command"]
    place.job(job("MPIJob", Launcher=replica(launch), Worker=worker))
    process = place.start("run", "run.yaml")
    until(lambda: place.alive() and place.conditions().get("Running") == "True", "the launcher")
    assert place.weft("scale", RUN, "worker=2")[0] == 0
    until(lambda: place.states_of("worker") == ["running"] * 2, "the second worker")
    assert place.weft("suspend", RUN)[0] == 0
    process.communicate()
    process = place.start("resume", RUN)
    until(lambda: place.states_of("worker") == ["running"] * 2 and place.states_of("launcher") == ["running"], "all")
    (place.folder / "go").touch()
    _, err = process.communicate()
    assert process.returncode == 0, err
    assert place.log("launcher", 0, 1).split("\n")[:3] == ["up", "in job-worker-0", "in job-worker-1"]


@pytest.mark.parametrize("isolation", ["auto", "ports"])
def test_a_launcher_finds_its_files_where_a_cluster_has_them(isolation, place: Place):
    if why := why_no_namespaces():
        pytest.skip(why)
    launch = '/etc/mpi/kubexec.sh job-worker-0 "echo in \\$WEFT_REPLICA"; cat /etc/mpi/hostfile'
    worker = replica("unused")
    del worker["template"]["spec"]["containers"][0]["command"]
    place.job(job("MPIJob", Launcher=replica(launch), Worker=worker))
    code, _, err = place.run("--isolation", isolation)
    assert code == 0, err
    assert place.log("launcher").split("\n")[:2] == ["in job-worker-0", "job-worker-0 slots=1"]
    assert "names job-worker-0" not in err, "the agent knows the names of replicas"


MATRIX = [
    ("Always", 0, "restarts"),
    ("Always", 1, "restarts"),
    ("OnFailure", 1, "restarts"),
    ("OnFailure", 0, "succeeds"),
    ("Never", 0, "succeeds"),
    ("Never", 1, "fails"),
    ("ExitCode", 1, "fails"),
    ("ExitCode", 130, "restarts"),
    ("ExitCode", 0, "succeeds"),
]


@pytest.mark.parametrize(("policy", "code", "what"), MATRIX)
def test_restart_policies(policy, code, what, place: Place):
    """The worker ends once with a code; its second start lets the chief succeed, and its failure ends the chief."""
    worker = f"if test -e once; then touch twice; sleep 600; fi; touch once; exit {code}"
    awaited = {"restarts": "twice", "succeeds": "once", "fails": "never"}[what]
    chief = f"until test -e {awaited}; do sleep 0.02; done; sleep 0.3"
    place.job(tfjob(Chief=replica(chief), Worker=replica(worker, policy=policy)))
    ended, _, err = place.run()
    assert ended == (1 if what == "fails" else 0), err
    worker_step = next(step for step in read_run(place.folder_of()).steps if step.name == "worker")
    assert worker_step.items[0].attempts == (2 if what == "restarts" else 1)
    always = (policy, code) == ("Always", 0)
    assert ("worker-0 succeeded; starts again: restartPolicy Always" in err) == always
    assert any("starts again: restartPolicy Always" in one.message for one in read_records(place.folder_of())) == always
    assert place.alive() == []


def test_backoff_is_counted_over_the_job(place: Place):
    worker = replica("exit $((130 + ${HOSTNAME##*-}))", 2, policy="ExitCode")
    place.job(tfjob({"backoffLimit": 3}, Worker=worker))
    code, out, err = place.run()
    assert code == 1
    assert "backoff limit" in out + err
    items = next(step for step in read_run(place.folder_of()).steps if step.name == "worker").items
    assert sum(item.attempts for item in items.values()) <= 2 + 4


@pytest.mark.parametrize(("policy", "left"), [("All", 0), ("Running", 0), ("None", 0)])
def test_nothing_is_left_of_any_clean_pod_policy(policy, left, place: Place):
    place.job(tfjob({"cleanPodPolicy": policy}, Chief=replica("echo hello"), PS=replica("tail -f /dev/null", 2)))
    code, _, err = place.run()
    assert code == 0, err
    assert len(place.alive()) == left


def test_what_keeps_a_run_after_the_success_of_its_job_is_told(place: Place):
    started = "until test -e up; do sleep 0.05; done"
    wait = "touch up; until test -e go; do sleep 0.05; done"
    place.job(job("PyTorchJob", Master=replica(started), Worker=replica(wait)))
    process = place.start("run", "run.yaml")
    until(lambda: "have 30 s to end by themselves" in place.weft("why", RUN)[1])
    assert "have 30 s to end by themselves" in place.weft("show", RUN)[1]
    (place.folder / "go").touch()
    out, err = process.communicate(timeout=180)
    assert process.returncode == 0, err
    assert "PyTorchJob job: replicas that still run have 30 s" in out + err


def test_init_containers_run_first_and_sidecars_end_with_the_replica(place: Place):
    spec = replica("cat /shared-volume/made; sleep 0.2")
    pod = spec["template"]["spec"]
    mount = [{"name": "shared", "mountPath": "/shared-volume"}]
    pod["volumes"] = [{"name": "shared", "emptyDir": {}}]
    pod["containers"][0]["volumeMounts"] = mount
    shell = ["sh", "-c"]
    pod["containers"].append({"name": "side", "image": "e/n:1", "command": [*shell, "sleep 600"]})
    pod["initContainers"] = [
        {
            "name": "first",
            "image": "e/n:1",
            "command": [*shell, "echo from first > /shared-volume/made"],
            "volumeMounts": mount,
        }
    ]
    place.job(tfjob(Worker=spec))
    code, _, err = place.run("--isolation", "namespace")
    assert code == 0, err
    assert place.log("worker") == "from first\n"
    assert place.alive() == []


def test_an_init_container_that_fails_is_named_and_its_log_is_that_of_its_replica(place: Place):
    spec = replica("echo never")
    shell = ["sh", "-c"]
    spec["template"]["spec"]["initContainers"] = [
        {"name": "prepare", "image": "e/n:1", "command": [*shell, "echo preparing; exit 3"]}
    ]
    place.job(tfjob(Worker=spec))
    code, _, err = place.run()
    assert code == 1
    assert "container prepare ended with exit code 3" in err
    assert "container prepare exit code 3" in place.weft("show", RUN)[1]
    for target in (RUN, f"{RUN}/worker", f"{RUN}/worker-0"):
        assert "preparing" in place.weft("logs", target)[1]


def test_the_containers_of_a_replica_share_its_network(place: Place):
    serve = "import socket; s = socket.create_server(('127.0.0.1', 7777)); c, _ = s.accept(); c.sendall(b'served')"
    ask = (
        "import socket, time\n"
        "for _ in range(3600):\n"
        "    try:\n"
        "        print(socket.create_connection(('127.0.0.1', 7777), 60).recv(9).decode())\n"
        "        break\n"
        "    except ConnectionRefusedError:\n"
        "        time.sleep(0.05)\n"
    )
    spec = replica("unused")
    main, side = spec["template"]["spec"]["containers"][0], {"name": "side", "image": "e/n:1"}
    main |= {"command": ["python3", "-c", ask], "lifecycle": {"postStart": {"exec": {"command": ["true"]}}}}
    spec["template"]["spec"]["containers"].append(side | {"command": ["python3", "-c", serve]})
    place.job(tfjob(Worker=spec))
    code, _, err = place.run("--isolation", "namespace")
    assert code == 0, err
    assert place.log("worker") == "served\n"
    assert place.alive() == []


@pytest.mark.parametrize("isolation", ["namespace", "ports"])
def test_a_volume_below_tmp_or_in_another_volume_has_its_place(isolation, place: Place):
    spec = replica(
        "cat in.txt; echo a > /tmp/weft-data/cache/x; ls /tmp/weft-data /scratch-volume; ls -d /tmp/weft*; pwd"
    )
    pod = spec["template"]["spec"]
    pod["volumes"] = [{"name": name, "emptyDir": {}} for name in ("cache", "outer", "inner")]
    pod["containers"][0]["volumeMounts"] = [
        {"name": "cache", "mountPath": "/tmp/weft-data/cache"},
        {"name": "outer", "mountPath": "/scratch-volume"},
        {"name": "inner", "mountPath": "/scratch-volume/deep/inner"},
    ]
    (place.folder / "in.txt").write_text("found\n")
    place.job(tfjob(Worker=spec))
    code, out, err = place.run("--isolation", isolation)
    assert code == 0, out + err
    said = place.log("worker").splitlines()
    assert said[:5] == ["found", "/scratch-volume:", "deep", "", "/tmp/weft-data:"]
    assert said[5:] == ["cache", "/tmp/weft-data", str(place.folder)]
    assert not os.path.lexists("/tmp/weft-data")


def test_a_service_beside_a_job_is_found_by_its_name(place: Place):
    serve = "import socket; s = socket.create_server(('', 7777)); c, _ = s.accept(); c.sendall(b'served'); c.close()"
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "store", "labels": {"app": "store"}},
        "spec": {
            "restartPolicy": "Never",
            "containers": [
                {
                    "name": "store",
                    "image": "e/n:1",
                    "command": ["python", "-c", serve],
                    "ports": [{"containerPort": 7777}],
                }
            ],
        },
    }
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "storage"},
        "spec": {"selector": {"app": "store"}, "ports": [{"port": 7777}]},
    }
    ask = (
        "import socket, time\n"
        "for _ in range(3600):\n"
        "    try: print(socket.create_connection(('storage', 7777)).recv(9).decode()); break\n"
        "    except OSError: time.sleep(0.05)\n"
        "else: raise SystemExit('nobody answers')"
    )
    worker = replica("unused")
    worker["template"]["spec"]["containers"][0]["command"] = ["python", "-c", ask]
    one = tfjob(Worker=worker)
    one["metadata"]["namespace"] = "default"
    place.job(one, pod, service)
    code, _, err = place.run("--isolation", "namespace")
    assert code == 0, err + json.dumps([place.log("worker")])
    assert place.log("worker") == "served\n"
