"""Training jobs whose replicas run at the nodes of a cluster, without Ray."""

import json
import os
import shutil
import socket
import sys
from contextlib import closing, contextmanager
from pathlib import Path

import psutil
import pytest
from msgspec.structs import replace

import weft
from tests.forked_nodes import ForkedNodes
from tests.integration.places import until
from tests.integration.test_replica_exec import SUM_OF_RANKS
from tests.integration.test_training import Place, replica, tfjob
from tests.started import have_ended
from weft import training, wiring
from weft.backends.cluster import Cluster
from weft.model.errors import UsageError
from weft.runs.active import RunEvents
from weft.runs.requests import RunRequest
from weft.runs.service import RunService
from weft.store.state import read_status
from weft.wiring import concrete

EXAMPLE = Path(__file__).parents[2] / "examples" / "training" / "cluster"
HOSTS = ("127.0.0.2", "127.0.0.3", "127.0.0.4")


MEETING = """
import json, os, socket, sys, time
config = json.loads(os.environ["TF_CONFIG"])
at = config["task"]["index"]
addresses = config["cluster"]["worker"]
me, other = addresses[at], addresses[1 - at]
host, port = me.split(":")
server = socket.create_server((host, int(port)))
there = other.split(":")
while True:
    try:
        mine = socket.create_connection((there[0], int(there[1])))
        break
    except ConnectionRefusedError:
        time.sleep(0.01)
mine.sendall(me.encode().ljust(40))
theirs = server.accept()[0]
print(me, theirs.recv(40).decode(), flush=True)
"""
"""Each of two replicas listens at its address, sends it to the other, and prints it with that of the other."""


STAYING = """
open(f"met-{os.environ['WEFT_REPLICA']}-{os.getpid()}", "w").close()
if os.environ["WEFT_RESTARTS"] == "0":
    while mine.recv(1):
        pass
    sys.exit(1)
"""
"""In its first start a replica stays until the other one goes."""
THREADS = concrete.BACKENDS["threads"]


def all_workers(job):
    """Return a job that succeeds with its last worker."""
    job["spec"]["successPolicy"] = "AllWorkers"
    return job


def max_log(place, index):
    """Return the log of the last start of a replica."""
    return max(place.folder_of().glob(f"logs/worker.{index}.*.log")).read_text()


class Jobs(Place):
    """A folder with a job file, whose runs in this process have the nodes of a cluster."""

    def __init__(self, folder, nodes):
        super().__init__(folder)
        self.nodes = nodes

    def program(self, replicas, text, policy="Never"):
        """Write a job whose replicas run a program in Python."""
        (self.folder / "program.py").write_text(text)
        self.job(all_workers(tfjob(Worker=replica("exec python3 program.py", replicas, policy))))

    @contextmanager
    def service(self):
        with closing(RunService(wiring, self.settings, self.root)) as found:
            yield found

    @contextmanager
    def begun(self):
        """Begin a run of the file, and wait for its end at the end of the block."""
        with self.service() as service:
            active = service.submit(service.load(RunRequest(str(self.file))), events=RunEvents(records=False))
            yield active
            active.wait(180)
            self.result = active.result()

    def to_end(self):
        with self.begun():
            pass
        return self.result


@pytest.fixture
def make(monkeypatch, tmp_path):
    """Return what makes a folder of jobs with nodes: their number, and their worker processes."""
    opened = []

    def made(count, workers=1):
        nodes = ForkedNodes(count, workers, hosts=HOSTS[:count], grace_s=5.0)
        opened.append(nodes)
        kind = lambda at: Cluster(nodes.nodes, nodes.secret, at.store, grace_s=at.grace_s)  # noqa: E731
        monkeypatch.setitem(concrete.BACKENDS, "threads", kind)
        return Jobs(tmp_path / "jobs", nodes)

    yield made
    for nodes in opened:
        nodes.close()


def test_replicas_at_two_nodes_know_the_addresses_of_each_other(make):
    place = make(2)
    place.program(2, MEETING)
    result = place.to_end()
    assert result.error is None
    lines = [place.log("worker", index).split() for index in (0, 1)]
    assert lines[0] == lines[1][::-1]
    assert {address.partition(":")[0] for address in lines[0]} == set(HOSTS[:2])
    assert place.conditions()["Succeeded"] == "True"
    assert place.alive() == []


def test_a_replica_that_fails_starts_again_at_its_address(make):
    place = make(2)
    command = "echo $TF_CONFIG; test $WEFT_RESTARTS = 1 || { touch failed-$WEFT_REPLICA; exit 7; }"
    place.job(all_workers(tfjob(Worker=replica(command, 2, "OnFailure"))))
    assert place.to_end().error is None
    for index in (0, 1):
        first, second = (json.loads(place.log("worker", index, attempt)) for attempt in (0, 1))
        assert first == second


def test_a_failed_replica_fails_its_job_with_its_last_lines(make):
    place = make(2)
    place.job(tfjob(Worker=replica('echo alas; test "${WEFT_REPLICA#*worker-}" = 1 && exit 3; sleep 600', 2)))
    result = place.to_end()
    assert "exit code 3" in str(result.error)
    assert "alas" in str(result.error)
    assert place.conditions()["Failed"] == "True"
    assert place.alive() == []


def test_servers_end_with_the_workers_and_variables_name_both_machines(make):
    place = make(2)
    place.job(tfjob(PS=replica("tail -f /dev/null"), Worker=replica("echo $TF_CONFIG")))
    assert place.to_end().error is None
    cluster = json.loads(place.log("worker"))["cluster"]
    hosts = {address.partition(":")[0] for addresses in cluster.values() for address in addresses}
    assert hosts == set(HOSTS[:2])
    assert place.alive() == []


def test_a_gang_that_never_fits_is_refused_with_the_arithmetic(make):
    place = make(2)
    place.job(tfjob(Worker=replica("touch began", 3)))
    error = place.to_end().error
    assert "it needs 3 slots at once; the session has 2" in str(error)
    assert not (place.folder / "began").exists()


def test_a_gang_starts_as_a_whole_when_the_other_one_has_ended(make):
    place = make(2)
    first = tfjob(Worker=replica("touch $WEFT_REPLICA; while ! test -e go; do sleep 0.02; done", 2), name="first")
    second = tfjob(Worker=replica("touch $WEFT_REPLICA; echo $TF_CONFIG", 2), name="second")
    place.job(*map(all_workers, (first, second)))
    with place.begun() as active:
        until(lambda: len(list(place.folder.glob("*-worker-*"))) == 2, "the first gang")
        (waits,) = [wait for wait in active.run.waits() if wait.kind == "slots" or "at once" in wait.text][:1]
        assert "for 2 tasks of" in waits.text
        assert "2 of 2" not in waits.text
        assert len(list(place.folder.glob("*-worker-*"))) == 2
        (place.folder / "go").touch()
    assert place.result.error is None
    assert len(list(place.folder.glob("*-worker-*"))) == 4


@pytest.mark.parametrize("policy", ["Never", "OnFailure"])
def test_a_lost_machine_starts_its_replicas_again_elsewhere_and_the_others_too(make, policy):
    """The program fails when the other end goes, as a framework does."""
    place = make(3)
    place.program(2, MEETING + STAYING, policy)
    with place.begun() as active:
        until(lambda: len(list(place.folder.glob("met-*"))) == 2, "the replicas")
        until(lambda: all(place.log("worker", index).endswith("\n") for index in (0, 1)), "what they print")
        hosts = {line.split()[0].partition(":")[0] for line in (place.log("worker", index) for index in (0, 1))}
        lost = min(hosts)
        (place.folder / "go").touch()
        place.nodes.processes[HOSTS.index(lost)].kill()
        until(lambda: active.run.done or len(list(place.folder.glob("met-*"))) == 4, "the next starts")
    assert place.result.error is None, place.result.error
    last = [line.split() for line in (max_log(place, index) for index in (0, 1))]
    assert last[0] == last[1][::-1]
    assert {address.partition(":")[0] for address in last[0]} == set(HOSTS) - {lost}
    assert place.alive() == []


def test_a_lost_machine_without_another_fails_the_run_with_the_arithmetic_and_a_resume_goes_on(make):
    place = make(2)
    place.job(tfjob(Worker=replica("touch $WEFT_REPLICA; test -e go || sleep 600", 2)))
    with place.begun():
        until(lambda: len(list(place.folder.glob("*-worker-*"))) == 2, "the replicas")
        place.nodes.processes[0].kill()
    assert "no node has that much" in str(place.result.error)
    assert place.alive() == []
    (place.folder / "go").touch()
    more = make(2)
    with more.service() as service:
        active = service.resume("run-000001", events=RunEvents(records=False))
        assert active.wait(180)
        assert active.result().error is None


def test_a_gang_waits_for_another_machine_where_some_may_join(make, monkeypatch):
    monkeypatch.setattr(Cluster, "others_may_join", True)
    place = make(2)
    place.job(all_workers(tfjob(Worker=replica("touch $WEFT_REPLICA; test -e go || sleep 600", 2))))
    with place.begun() as active:
        until(lambda: len(list(place.folder.glob("*-worker-*"))) == 2, "the replicas")
        place.nodes.processes[0].kill()
        until(lambda: any("waits for nodes to join" in wait.text for wait in active.run.waits()), "the reason")
        until(
            lambda: "for nodes to join" in read_status(place.folder_of())[0].get("queued", ""), "the reason of the job"
        )
        assert not active.run.done
        (place.folder / "go").touch()
        with ForkedNodes(1, 1, secret=place.nodes.secret, hosts=HOSTS[2:]) as more:
            active.run._session.executor.join(more.nodes[0])
            assert active.wait(180)
    assert place.result.error is None


def test_a_cancelled_run_leaves_no_process(make):
    place = make(2)
    place.job(tfjob(Worker=replica("touch $WEFT_REPLICA; sleep 600 & sleep 600", 2)))
    with place.begun() as active:
        until(lambda: len(list(place.folder.glob("*-worker-*"))) == 2, "the replicas")
        active.cancel()
    assert place.result.state == "terminated"
    assert place.alive() == []


def test_a_cut_session_ends_the_replicas_at_their_machines(make):
    place = make(2)
    place.job(tfjob(Worker=replica("touch $WEFT_REPLICA; sleep 600 & sleep 600", 2)))
    with place.begun() as active:
        until(lambda: len(place.alive()) >= 4, "the replicas")
        for node in active.run._session.executor._nodes.values():
            node.link._sock.shutdown(socket.SHUT_RDWR)
        until(lambda: place.alive() == [], "the end of the replicas")


def test_a_suspended_run_goes_on_with_its_checkpoints_and_is_scaled(make):
    place = make(3)
    command = "touch $WEFT_CHECKPOINT_DIR/$WEFT_REPLICA; echo $TF_CONFIG; while ! test -e go; do sleep 0.02; done"
    place.job(tfjob(Worker=replica(command, 2)))
    checkpoints = place.folder_of() / "checkpoints" / "echo"
    with place.service() as service:
        active = service.submit(service.load(RunRequest(str(place.file))), events=RunEvents(records=False))
        until(lambda: checkpoints.is_dir() and len(list(checkpoints.iterdir())) == 2, "the replicas")
        active.suspend()
        assert active.wait(180)
        assert active.result().state == "suspended"
        assert place.alive() == []
        active = service.resume("run-000001", events=RunEvents(records=False))
        until(lambda: len(place.alive()) >= 2, "the replicas")
        active.scale("worker=3")
        until(lambda: len(list(checkpoints.iterdir())) == 3, "the third replica")
        (place.folder / "go").touch()
        assert active.wait(180)
        assert active.result().error is None
    workers = json.loads(place.log("worker", 2))["cluster"]["worker"]
    assert sorted(address.partition(":")[0] for address in workers) == sorted(HOSTS)


def test_secrets_and_config_maps_reach_the_machines_and_no_record(make):
    place = make(2)
    one = replica("echo $(cat /weft-config/text) $TOKEN | tr a-z A-Z; echo $TOKEN")
    container = one["template"]["spec"]["containers"][0]
    container["env"] = [{"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "s", "key": "token"}}}]
    container["volumeMounts"] = [{"name": "c", "mountPath": "/weft-config"}]
    one["template"]["spec"]["volumes"] = [{"name": "c", "configMap": {"name": "c"}}]
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "team"}}
    texts = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": "team"}}
    place.job(tfjob(Worker=one), {**secret, "stringData": {"token": "hush-hush"}}, {**texts, "data": {"text": "hello"}})
    assert place.to_end().error is None
    assert place.log("worker") == "HELLO HUSH-HUSH\n***\n"
    for path in place.folder_of().rglob("*"):
        assert not path.is_file() or b"hush-hush" not in path.read_bytes(), path


def test_probes_and_readiness_are_told_at_the_session(make):
    place = make(1)
    one = replica("while ! test -e go; do sleep 0.02; done")
    one["template"]["spec"]["containers"][0]["readinessProbe"] = {
        "exec": {"command": ["false"]},
        "periodSeconds": 1,
        "failureThreshold": 1,
    }
    place.job(tfjob(Worker=one))

    def probed():  # it is unready before its first probe, too
        found = read_status(place.folder_of())
        return found and found[0]["unready"] and any(event[2] == "Unhealthy" for event in found[0]["events"])

    with place.begun():
        until(probed, "the probe")
        (place.folder / "go").touch()
    assert place.result.error is None


def mpi_job(command, workers=2, slots=1):
    launcher = {**replica(command), "replicas": 1}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "MPIJob",
        "metadata": {"name": "m"},
        "spec": {"slotsPerWorker": slots, "mpiReplicaSpecs": {"Launcher": launcher, "Worker": worker_of_mpi(workers)}},
    }


def worker_of_mpi(count):
    """Return workers that only wait for what MPI starts in them."""
    found = replica("", count)
    del found["template"]["spec"]["containers"][0]["command"]
    return found


ENTERING = """
for host in $(cut -d' ' -f1 "$OMPI_MCA_orte_default_hostfile"); do
  printf 'input of %s' $host | "$OMPI_MCA_plm_rsh_agent" $host 'echo "out $WEFT_REPLICA $(cat)"; echo err >&2; exit 7'
  echo status $?
done
"$OMPI_MCA_plm_rsh_agent" m-worker-9 true
echo status $?
"""


def test_the_agent_of_mpi_enters_replicas_at_other_machines(make):
    place = make(3)
    place.job(mpi_job(ENTERING))
    result = place.to_end()
    assert result.error is None, place.log("launcher", 0)
    assert place.log("launcher", 0).splitlines() == [
        "out m-worker-0 input of m-worker-0", "err", "status 7",
        "out m-worker-1 input of m-worker-1", "err", "status 7",
        "[weft] no replica m-worker-9 runs; those that can be entered: m-worker-0, m-worker-1", "status 255",
    ]  # fmt: skip


def test_the_agent_of_mpi_enters_replicas_that_a_scale_has_added(make):
    place = make(3)
    place.job(mpi_job(f"touch up; while ! test -e go; do sleep 0.02; done\n{ENTERING}", workers=1))
    with place.service() as service:
        active = service.submit(service.load(RunRequest(str(place.file))), events=RunEvents(records=False))
        until((place.folder / "up").exists, "the launcher")
        active.scale("worker=2")
        until(lambda: len(place.states_of("worker")) == 2, "the second worker")
        active.suspend()
        assert active.wait(180)
        (place.folder / "go").touch()
        active = service.resume("run-000001", events=RunEvents(records=False))
        assert active.wait(180)
        assert active.result().error is None, place.log("launcher", 0, 1)
    lines = place.log("launcher", 0, 1).splitlines()
    assert [line for line in lines if line.startswith("out")] == [
        "out m-worker-0 input of m-worker-0",
        "out m-worker-1 input of m-worker-1",
    ]


@pytest.mark.skipif(shutil.which("orted") is None, reason="Open MPI 4 is not installed")
@pytest.mark.parametrize("workers", [1, 2], ids=["alone", "two at a machine"])
def test_mpirun_starts_processes_at_all_machines_and_they_speak_to_each_other(make, workers):
    place = make(4 - workers, workers)
    (place.folder / "program.py").write_text(SUM_OF_RANKS.replace("REPLICA", "WEFT_REPLICA"))
    place.job(mpi_job(f"exec mpirun {sys.executable} -I program.py", slots=2))
    result = place.to_end()
    assert result.error is None, place.log("launcher", 0)
    lines = [line for line in place.log("launcher", 0).splitlines() if "knows" in line]  # others are of Open MPI
    assert sorted(lines) == [
        "0 of m-worker-0 knows 6", "1 of m-worker-0 knows 6", "2 of m-worker-1 knows 6", "3 of m-worker-1 knows 6",
    ]  # fmt: skip
    assert place.alive() == []


LASTING = """
"$OMPI_MCA_plm_rsh_agent" m-worker-0 'echo $$$$ > entered; while ! test -e go; do sleep 0.05; done; echo ended'
"""


def entered(place):
    """Return the process that the launcher has started in the worker."""
    file = place.folder / "entered"
    found = psutil.Process(int(until(lambda: file.exists() and file.read_text(), "the command")))
    file.unlink()
    return found


def test_an_mpi_job_begins_again_when_a_machine_of_it_is_lost(make):
    place = make(3)
    place.job(mpi_job(LASTING, workers=1))
    with place.begun():
        parents = entered(place).parents()
        next(one for one in place.nodes.processes if psutil.Process(one.pid) in parents).kill()
        entered(place)
        (place.folder / "go").touch()
    assert place.result.error is None, place.log("launcher", 0)
    assert any("ended" in log.read_text() for log in place.folder_of().glob("logs/launcher.*.log"))


def test_a_cancelled_mpi_job_leaves_no_command(make):
    place = make(2)
    place.job(mpi_job(LASTING, workers=1))
    with place.begun() as active:
        command = entered(place)
        active.cancel()
    until(lambda: have_ended(command), "the end of the command")


def test_what_needs_one_machine_is_refused_before_anything_starts(make):
    place = make(1)
    place.job(tfjob(Worker=replica("true")))
    wanted = replace(place.settings, isolation="namespace")
    with (
        closing(RunService(wiring, wanted, place.root)) as service,
        pytest.raises(UsageError, match="isolation namespace is that of one machine"),
    ):
        service.submit(service.load(RunRequest(str(place.file))))
    assert not list(place.folder.glob(".weft/runs/*"))


def test_a_run_of_one_machine_goes_on_at_a_cluster(make, monkeypatch):
    place = make(2)
    place.job(tfjob(Worker=replica("echo $TF_CONFIG; touch $WEFT_REPLICA; test -e go || exit 1", 2)))
    with monkeypatch.context() as local:
        local.setitem(concrete.BACKENDS, "threads", THREADS)
        assert place.to_end().error is not None
    (place.folder / "go").touch()
    with place.service() as service:
        active = service.resume("run-000001", events=RunEvents(records=False))
        assert active.wait(180)
        assert active.result().error is None
    workers = json.loads(place.log("worker", 0, 1))["cluster"]["worker"]
    assert {address.partition(":")[0] for address in workers} == set(HOSTS[:2])


def address_and_rank(word):
    """What a replica of a PyTorchJob is told, by a function that each calls."""
    return word, os.environ["MASTER_ADDR"], os.environ["RANK"]


def test_a_function_runs_in_the_replicas_on_the_workers_of_a_session(make, monkeypatch, tmp_path):
    place = make(2)
    monkeypatch.chdir(place.folder)
    monkeypatch.setitem(concrete.BACKENDS, "cluster", concrete.BACKENDS["threads"])
    with weft.Session("cluster") as session:
        job = training.job("PyTorchJob", "pair", master=1, worker=1)
        result = job.run(address_and_rank, "hello", session=session, state_dir=place.folder / ".weft")
        graph = weft.Graph("beside")
        graph.map(abs, range(3))
        session.run(graph)  # the session stays open
        with pytest.raises(UsageError, match="backend is 'ray', and the session has 'cluster'"):
            job.run(session=session, backend="ray")
    values = [result.values["master-0"], result.values["worker-0"]]
    assert [(word, rank) for word, _, rank in values] == [("hello", "0"), ("hello", "1")]
    assert {value[1] for value in values} <= set(HOSTS[:2])
    with pytest.raises(UsageError, match="which is no weft"):
        job.run(session=7)  # type: ignore[arg-type]


def test_a_step_of_a_pipeline_spreads_its_replicas_over_the_machines(make):
    place = make(2)
    train = {"kind": "TFJob", "replicas": {"worker": 2}, "success": "AllWorkers"}
    train["command"] = "echo $TF_CONFIG > $WEFT_REPLICA; cat $NAMES"
    steps = {
        "names": {"command": "echo Ada > {{names}}", "artifacts": {"output": ["names"]}},
        "train": {
            "deps": "names",
            "artifacts": {"input": {"NAMES": "{{names.names}}"}},
            "x-weft": {"kind": "training", "with": train},
        },
    }
    place.write(steps)
    result = place.to_end()
    assert result.error is None, result.error
    configs = [json.loads(path.read_text()) for path in sorted(place.folder.rglob("train-worker-*"))]
    assert len(configs) == 2
    assert configs[0]["cluster"] == configs[1]["cluster"]
    hosts = {address.partition(":")[0] for address in configs[0]["cluster"]["worker"]}
    assert hosts == set(HOSTS[:2])


def test_a_plan_tells_how_replicas_are_known(tmp_path):
    place = Place(tmp_path)
    place.job(tfjob(Worker=replica("echo $WEFT_REPLICA echo-worker-1", 2)))
    with closing(RunService(wiring, replace(place.settings, backend="ray"), place.root)) as service:
        (plan,) = service.load(RunRequest(str(place.file))).jobs_planned()
    assert (plan.isolation, plan.gang) == ("ports", None)
    assert "several machines" in plan.isolation_why
    assert "Use the variables that the job sets" in plan.warnings[0]


def test_each_replica_at_a_machine_gets_gpus_of_its_own(make, monkeypatch, tmp_path):
    program = tmp_path / "bin" / "nvidia-smi"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho 0, GPU-0abc, Fake H1\necho 1, GPU-1abc, Fake H1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    place = make(1, 2)
    place.nodes.nodes = [one._replace(resources=weft.Resources(2, gpu=2)) for one in place.nodes.nodes]
    one = replica("echo $CUDA_VISIBLE_DEVICES; touch $WEFT_REPLICA; while ! test -e go; do sleep 0.02; done", 2)
    one["template"]["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": 1}}
    place.job(all_workers(tfjob(Worker=one)))
    with place.begun():
        until(lambda: len(list(place.folder.glob("*-worker-*"))) == 2, "the replicas")
        (place.folder / "go").touch()
    assert place.result.error is None
    assert {place.log("worker", index) for index in (0, 1)} == {"0\n", "1\n"}


def test_the_example_runs_at_the_nodes_of_a_cluster(make):
    place = make(3)
    shutil.copytree(EXAMPLE, place.folder, ignore=shutil.ignore_patterns(".*"), dirs_exist_ok=True)
    shutil.copy(EXAMPLE / "pytorchjob.yaml", place.file)
    result = place.to_end()
    assert result.error is None, result.error
    said = [place.log("master"), place.log("worker", 0), place.log("worker", 1)]
    assert said == [f"rank {rank} of 3: y = 3.00 x + 2.00\n" for rank in range(3)]
    (job,) = read_status(place.folder_of())
    assert job["reports"]["worker-1"]["step"] == 200
