"""Training jobs in isolation `container`: with a fake engine, and with true Podman and Docker where they work."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.engines import IMAGE, FakePodman, TrueEngine, remove_image, true_engine
from tests.integration.places import RUN, until
from tests.integration.test_training import Place, replica, tfjob
from weft.store.state import read_status

Engine = FakePodman | TrueEngine


@pytest.fixture
def fake(tmp_path) -> FakePodman:
    return FakePodman(tmp_path / "engine")


@pytest.fixture(scope="session")
def podman(tmp_path_factory) -> Iterator[TrueEngine]:
    yield from _true("podman", tmp_path_factory)


@pytest.fixture(scope="session")
def docker(tmp_path_factory) -> Iterator[TrueEngine]:
    yield from _true("docker", tmp_path_factory)


def _true(name: str, folders: pytest.TempPathFactory) -> Iterator[TrueEngine]:
    found = true_engine(name, folders.mktemp("engine"))
    yield found
    remove_image(found)


@pytest.fixture(params=["fake", "podman", "docker"])
def engine(request) -> Engine:
    found: Engine = request.getfixturevalue(request.param)
    return found


@pytest.fixture(params=["podman", "docker"])
def true(request) -> TrueEngine:
    found: TrueEngine = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def place(tmp_path) -> Place:
    return Place(tmp_path / "project")


def box(command: str, replicas: int = 1, policy: str = "Never", image: str = IMAGE, **pod: Any) -> dict[str, Any]:
    spec = replica(command, replicas, policy, **pod)
    spec["template"]["spec"]["containers"][0]["image"] = image
    return spec


def main_of(spec: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = spec["template"]["spec"]["containers"][0]
    return found


def run(place: Place, engine: Engine, *words: str) -> tuple[int, str, str]:
    place.environ["PATH"] = engine.path
    return place.run(*(words or ("--isolation", "container")))


def label(place: Place) -> str:
    return f"weft.run={place.folder_of()}"


def test_replicas_run_in_their_images_and_nothing_is_left(place: Place, engine: Engine):
    worker = box("echo $TF_CONFIG; echo $HOSTNAME; cat /config/a; echo kept > $WEFT_CHECKPOINT_DIR/c")
    main_of(worker)["volumeMounts"] = [{"name": "conf", "mountPath": "/config"}]
    worker["template"]["spec"]["volumes"] = [{"name": "conf", "configMap": {"name": "conf"}}]
    data = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "conf", "namespace": "team"}}
    if isinstance(engine, FakePodman):
        main_of(worker)["command"][-1] = worker_command = "echo $TF_CONFIG; echo $HOSTNAME; echo one"
        assert worker_command
    place.job(tfjob(Worker=worker, PS=box("sleep 600")), {**data, "data": {"a": "one"}})
    code, out, err = run(place, engine)
    assert code == 0, out + err
    config, host, mounted = place.log("worker").splitlines()
    assert json.loads(config)["cluster"]["ps"] == ["echo-ps-0.team.svc:2222"]
    assert (host, mounted) == ("echo-worker-0", "one")
    if isinstance(engine, TrueEngine):
        assert (place.folder_of() / "checkpoints" / "echo" / "c").read_text() == "kept\n"
    assert f"{engine.name} runs it" in err
    assert engine.left(label(place)) == []
    assert place.alive() == []


def test_the_command_line_of_a_replica(place: Place, fake: FakePodman):
    spec = box("unused")
    main_of(spec).pop("command")
    main_of(spec).update(
        args=["true"],
        workingDir="/tmp",
        env=[{"name": "SECRET_KEY", "value": "hidden"}, {"name": "HOME", "value": "/h"}],
        resources={"limits": {"cpu": "1500m", "memory": "64Mi"}},
        securityContext={"runAsUser": 1000, "runAsGroup": 50},
    )
    place.job(tfjob(Worker=spec))
    code, out, err = run(place, fake)
    assert code == 0, out + err
    [asked] = fake.asked("run")
    at = asked.index("sha256:" + "a" * 64)
    assert asked[at + 1 :] == ["true"]
    pairs = {(asked[n], asked[n + 1]) for n in range(at)}
    assert {
        ("--workdir", "/tmp"),
        ("--cpus", "1.5"),
        ("--memory", str(64 << 20)),
        ("--user", "1000:50"),
        ("--hostname", "echo-worker-0"),
        ("--label", label(place)),
        ("--pull", "never"),
        ("--env", "SECRET_KEY"),
        ("--env", "HOME=/h"),
    } <= pairs
    assert "--entrypoint" not in asked
    assert not any("hidden" in word for word in asked)
    [network] = fake.asked("network", "create")
    assert network[-1] == asked[asked.index("--network") + 1]


@pytest.mark.parametrize(("command", "code"), [("exit 3", 3), ("kill -9 $$$$", 137)])
def test_exit_codes_are_those_of_the_container(place: Place, engine: Engine, command: str, code: int):
    place.job(tfjob(Worker=box(f"echo last words; {command}")))
    ended, out, err = run(place, engine)
    assert ended == 1
    assert f"exit code {code}" in out + err, out + err
    assert "last words" in out + err
    assert engine.left(label(place)) == []


def test_a_replica_that_fails_starts_again(place: Place, engine: Engine):
    command = "test $WEFT_RESTARTS = 1 || exit 1; echo again"
    place.job(tfjob(Worker=box(command, policy="OnFailure")))
    code, out, err = run(place, engine)
    assert code == 0, out + err
    assert place.log("worker", 0, 1) == "again\n"
    assert engine.left(label(place)) == []


def test_a_replica_that_ignores_sigterm_ends_after_its_grace(place: Place, engine: Engine):
    stubborn = box("trap '' TERM; echo begun; while :; do sleep 1; done", terminationGracePeriodSeconds=1)
    place.job(tfjob({"activeDeadlineSeconds": 4}, Worker=stubborn))
    code, _, _ = run(place, engine)
    assert code == 1
    assert engine.left(label(place)) == []
    assert place.alive() == []


def test_suspend_and_resume(place: Place, engine: Engine):
    worker = box("echo begun; until test -e $GO; do sleep 0.1; done")
    worker["template"]["spec"]["volumes"] = [{"name": "here", "hostPath": {"path": str(place.folder)}}]
    go = place.folder / "go"
    main_of(worker)["volumeMounts"] = [{"name": "here", "mountPath": str(place.folder)}]
    main_of(worker)["env"] = [{"name": "GO", "value": str(go)}]
    place.job(tfjob(Worker=worker))
    place.environ["PATH"] = engine.path
    process = place.start("run", "run.yaml", "--isolation", "container")
    until(lambda: any(place.folder.glob(f".weft/runs/{RUN}/logs/worker.0.0.log")) and place.log("worker") == "begun\n")
    code, _, err = place.weft("suspend", RUN)
    assert code == 0, err
    process.communicate(timeout=180)
    assert engine.left(label(place)) == []
    go.touch()
    code, out, err = place.weft("resume", RUN)
    assert code == 0, out + err
    assert engine.left(label(place)) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_no_container_and_no_network_is_left(place: Place, engine: Engine, number: signal.Signals):
    command = "trap '' TERM; echo begun; while :; do sleep 1; done"
    place.job(tfjob(Worker=box(command, 2, terminationGracePeriodSeconds=1)))
    place.environ["PATH"] = engine.path
    process = place.start("run", "run.yaml", "--isolation", "container")
    logs = [place.folder / ".weft" / "runs" / RUN / "logs" / f"worker.{index}.0.log" for index in range(2)]
    until(lambda: all(log.exists() and log.read_text() for log in logs))
    until(lambda: len(engine.left(label(place))) == 3, "two containers and a network")
    process.send_signal(number)
    process.communicate(timeout=180)
    until(lambda: engine.left(label(place)) == [], "the removal of containers and network")
    until(lambda: place.alive() == [])


def test_a_resume_removes_what_a_killed_remover_and_guardian_left(place: Place, fake: FakePodman):
    go = place.folder / "go"
    worker = box("echo begun; until test -e $GO; do sleep 0.1; done")
    main_of(worker)["env"] = [{"name": "GO", "value": str(go)}]
    place.job(tfjob(Worker=worker))
    place.environ["PATH"] = fake.path
    process = place.start("run", "run.yaml", "--isolation", "container")
    until(lambda: any(place.folder.glob(f".weft/runs/{RUN}/logs/worker.0.0.log")) and place.log("worker") == "begun\n")
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=180)
    until(lambda: fake.left("") == [])
    for kind in ("containers", "networks"):  # as a machine that went down would leave them
        (fake.folder / kind / "left").write_text(json.dumps({"labels": [label(place)], "pid": 1 << 30}))
    go.touch()
    code, out, err = place.weft("resume", RUN)
    assert code == 0, out + err
    assert fake.left("") == []


def test_probes_and_hooks_run_in_the_container(place: Place, engine: Engine):
    worker = box("until test -e /tmp/hooked; do sleep 0.1; done; echo hooked; sleep 600", policy="Never")
    if isinstance(engine, FakePodman):
        main_of(worker)["command"][-1] = (
            f"until test -e {place.folder}/hooked; do sleep 0.1; done; echo hooked; sleep 600"
        )
    hooked = f"{place.folder}/hooked" if isinstance(engine, FakePodman) else "/tmp/hooked"
    main_of(worker)["lifecycle"] = {"postStart": {"exec": {"command": ["sh", "-c", f"mkdir -p /tmp; touch {hooked}"]}}}
    probe = {"exec": {"command": ["sh", "-c", "echo not well; exit 3"]}, "failureThreshold": 1, "timeoutSeconds": 60}
    main_of(worker)["livenessProbe"] = {**probe, "initialDelaySeconds": 2}
    place.job(tfjob(Worker=worker))
    code, out, err = run(place, engine)
    assert code == 1
    assert "its liveness probe failed 1 time in a row: ended with exit code 3: not well" in out + err
    assert place.log("worker").splitlines()[0] == "hooked"
    assert engine.left(label(place)) == []


def test_an_image_that_is_not_there_is_fetched_only_if_the_file_asks(place: Place, fake: FakePodman):
    place.job(tfjob(Worker=box("echo one", image="example/other:1")))
    code, _, err = run(place, fake)
    assert code != 0
    assert "podman has no image example/other:1, and nothing asks to fetch it" in err
    assert "imagePullPolicy: IfNotPresent" in err
    assert not fake.asked("pull")
    spec = box("echo one", image="example/other:1")
    main_of(spec)["imagePullPolicy"] = "IfNotPresent"
    place.job(tfjob(Worker=spec))
    for _ in range(2):
        code, out, err = run(place, fake)
        assert code == 0, out + err
    assert len(fake.asked("pull")) == 1
    main_of(spec)["imagePullPolicy"] = "Always"
    place.job(tfjob(Worker=spec))
    assert run(place, fake)[0] == 0
    assert len(fake.asked("pull")) == 2


def test_an_engine_is_taken_where_only_the_image_knows_its_command(place: Place, fake: FakePodman):
    spec = box("unused")
    main_of(spec).pop("command")
    place.job(tfjob(Worker=spec))
    code, out, err = run(place, fake, "--isolation", "auto")
    assert code == 0, out + err
    assert place.log("worker") == "started\n"
    assert "isolation container: nothing says how the image" in err
    (fake.folder / "images").write_text("{}")
    code, _, err = run(place, fake, "--isolation", "auto")
    assert code != 0
    assert "Write into weft.toml" in err
    assert not fake.asked("pull")


def test_what_isolation_container_lacks_is_said(place: Place, fake: FakePodman):
    place.job(tfjob(Worker=box("echo one")))
    (fake.folder / "podman").write_text("#!/bin/sh\nexit 1\n")
    code, _, err = run(place, fake)
    assert code != 0
    assert "isolation container cannot be used here" in err
    assert "Traceback" not in err


def test_the_container_of_a_killed_guardian_is_removed_at_once(place: Place, engine: Engine):
    place.job(tfjob(Worker=box("echo begun; sleep 600")))
    place.environ["PATH"] = engine.path
    process = place.start("run", "run.yaml", "--isolation", "container")
    until(lambda: any(place.folder.glob(f".weft/runs/{RUN}/logs/worker.0.0.log")) and place.log("worker"))
    [record] = (place.folder_of() / "processes").iterdir()
    os.kill(int(Path(record).read_text().split()[0]), signal.SIGKILL)
    process.communicate(timeout=180)
    until(lambda: engine.left(label(place)) == [])
    if isinstance(engine, FakePodman):  # the remover would look for containers first
        verbs = [words[0] for words in engine.asked()]
        assert verbs.index("rm") < verbs.index("ps")


def test_replicas_find_each_other_and_their_sidecars(place: Place, true: TrueEngine):
    serve = "mkdir -p /tmp/w; echo served > /tmp/w/index.html; httpd -f -p 2222 -h /tmp/w"
    server = box(serve, terminationGracePeriodSeconds=5)
    main_of(server)["ports"] = [{"containerPort": 2222, "name": "tfjob-port"}]
    main_of(server)["readinessProbe"] = {"httpGet": {"path": "/", "port": "tfjob-port"}, "periodSeconds": 1}
    ask = "until wget -qO- http://localhost:2222/ 2> /dev/null; do sleep 0.1; done; sleep 600"
    side = {"name": "side", "image": IMAGE, "command": ["sh", "-c", ask]}
    server["template"]["spec"]["containers"].append(side)
    chief = box("until wget -qO- http://echo-ps-0.team.svc:2222/ 2> /dev/null; do sleep 0.1; done")
    place.job(tfjob(Chief=chief, PS=server))
    code, out, err = run(place, true)
    assert code == 0, out + err
    assert place.log("chief") == "served\n"
    side_log = place.folder_of() / "logs" / "containers" / "ps.0.side.0.log"
    assert side_log.read_text() in ("served\n", "")
    assert read_status(place.folder_of())[0]["events"]
    assert true.left(label(place)) == []
