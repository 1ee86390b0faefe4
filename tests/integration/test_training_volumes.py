"""Volumes of replicas in memory, and limits of volumes."""

import glob
import os
import signal
import tempfile
from pathlib import Path
from typing import Any

import pytest

from tests.integration.places import RUN, until
from tests.integration.test_training import Place, replica, tfjob
from weft.frontends.training.volumes import SHARED_MEMORY
from weft.operators.network import why_no_namespaces


@pytest.fixture
def place(tmp_path) -> Place:
    return Place(tmp_path)


@pytest.fixture
def _namespaces() -> None:
    if why := why_no_namespaces():
        pytest.skip(why)


def with_volume(spec: dict[str, Any], path: str, **empty: str) -> dict[str, Any]:
    pod = spec["template"]["spec"]
    pod["volumes"] = [{"name": "scratch", "emptyDir": empty}]
    for one in (*pod["containers"], *pod.get("initContainers", ())):
        one["volumeMounts"] = [{"name": "scratch", "mountPath": path}]
    return spec


def folders_in_memory() -> list[str]:
    bases = (SHARED_MEMORY, tempfile.gettempdir())
    return [path for base in bases for path in glob.glob(f"{base}/weft-{os.getuid()}/volumes-*")]


def mounts_below(path: Path) -> list[str]:
    """Return the mounts at or below a path in any process of this user."""
    found = []
    for name in glob.glob("/proc/[0-9]*/mountinfo"):
        try:
            text = Path(name).read_text()
        except OSError:
            continue
        found += [line for line in text.splitlines() if str(path) in line]
    return found


def test_jobs_in_two_namespaces_share_no_claim(place: Place):
    claims = []
    for name, namespace in (("one", "default"), ("two", "team-a"), ("three", "team-a")):
        spec = replica(f'echo {name} >> "$DATA/who"')
        pod = spec["template"]["spec"]
        pod["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": "shared"}}]
        (container,) = pod["containers"]
        container["volumeMounts"] = [{"name": "data", "mountPath": "/claimed-data"}]
        container["env"] = [{"name": "DATA", "value": "/claimed-data"}]
        job = tfjob(Worker=spec)
        job["metadata"] = {"name": name, "namespace": namespace}
        about = {"name": "shared", "namespace": namespace}
        claims.append({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": about, "spec": {}})
        place.job(job, *claims[-1:])
        code, out, err = place.run()
        assert code == 0, out + err
    folder = place.folder / ".weft" / "claims"
    assert (folder / "shared" / "who").read_text() == "one\n"
    assert (folder / "@team-a" / "shared" / "who").read_text() == "two\nthree\n"
    place.job(job, *claims[:2])
    code, out, err = place.run()
    assert code == 0, "two claims of one name in two namespaces: " + out + err


@pytest.mark.usefixtures("_namespaces")
@pytest.mark.parametrize("path", ["/scratch-volume", "/dev/shm"])
def test_a_volume_in_memory_is_a_file_system_of_its_size_for_all_containers(path, place: Place):
    """An init container, the main one, its second start and a sidecar share it."""
    main = (
        f"cat {path}/init; until test -e {path}/side; do sleep 0.05; done; stat -f -c %T {path}; "
        f"head -c 3000000 /dev/zero > {path}/big || echo full; rm -f {path}/big; "
        f"test -e {path}/again || {{ touch {path}/again; exit 1; }}; ls {path}"
    )
    spec = replica(main, policy="OnFailure")
    shell = ["sh", "-c"]
    pod = spec["template"]["spec"]
    side = f"echo side > {path}/side; sleep 600"
    pod["containers"].append({"name": "side", "image": "e/n:1", "command": [*shell, side]})
    pod["initContainers"] = [{"name": "first", "image": "e/n:1", "command": [*shell, f"echo made > {path}/init"]}]
    place.job(tfjob(Worker=with_volume(spec, path, medium="Memory", sizeLimit="1Mi")))
    code, out, err = place.run("--isolation", "namespace")
    assert code == 0, out + err
    first, second = (place.log("worker", 0, attempt).splitlines() for attempt in (0, 1))
    assert (first[:2], first[-1]) == (["made", "tmpfs"], "full")
    assert second[-3:] == ["again", "init", "side"]
    assert place.alive() == []
    assert mounts_below(place.folder / ".weft" / "runs" / RUN / "pods") == []


@pytest.mark.usefixtures("_namespaces")
def test_the_memory_limit_of_the_pod_bounds_a_volume_in_memory(place: Place):
    spec = replica("df -k /scratch-volume | tail -1")
    spec["template"]["spec"]["containers"][0]["resources"] = {"limits": {"memory": "2Mi"}}
    place.job(tfjob(Worker=with_volume(spec, "/scratch-volume", medium="Memory")))
    code, out, err = place.run("--isolation", "namespace")
    assert code == 0, out + err
    assert place.log("worker").split()[1] == "2048"


@pytest.mark.usefixtures("_namespaces")
def test_a_killed_run_leaves_no_file_system_in_memory(place: Place):
    spec = with_volume(replica("echo begun; sleep 600"), "/scratch-volume", medium="Memory")
    place.job(tfjob(Worker=spec))
    process = place.start("run", "run.yaml", "--isolation", "namespace")
    until(lambda: any(place.folder.glob(f".weft/runs/{RUN}/logs/worker.0.0.log")) and place.log("worker"))
    pods = place.folder / ".weft" / "runs" / RUN / "pods"
    assert mounts_below(pods)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=180)
    until(lambda: mounts_below(pods) == [])
    until(lambda: place.alive() == [])


@pytest.mark.parametrize("kill", [False, True])
def test_with_ports_a_volume_in_memory_is_a_folder_that_is_removed(kill, place: Place):
    before = set(folders_in_memory())
    spec = replica("echo kept > /scratch-volume/file; echo begun; until test -e go; do sleep 0.05; done")
    place.job(tfjob(Worker=with_volume(spec, "/scratch-volume", medium="Memory")))
    process = place.start("run", "run.yaml", "--isolation", "ports")
    until(lambda: any(place.folder.glob(f".weft/runs/{RUN}/logs/worker.0.0.log")) and place.log("worker"))
    [folder] = [one for one in set(folders_in_memory()) - before if glob.glob(f"{one}/echo-worker-0/scratch/file")]
    if kill:
        process.send_signal(signal.SIGKILL)
    else:
        (place.folder / "go").touch()
    process.communicate(timeout=180)
    until(lambda: not os.path.exists(folder))
    until(lambda: place.alive() == [])


@pytest.mark.parametrize("isolation", ["namespace", "ports"])
def test_a_replica_whose_volume_outgrows_its_limit_is_evicted(isolation, place: Place):
    spec = replica("head -c 3000000 /dev/zero > /scratch-volume/big; sleep 600")
    place.job(tfjob(Worker=with_volume(spec, "/scratch-volume", sizeLimit="1Mi")))
    code, out, err = place.run("--isolation", isolation)
    assert code == 1
    said = 'Evicted: Usage of EmptyDir volume "scratch" exceeds the limit "1Mi"'
    assert said in out
    assert said in err
    assert place.alive() == []


def test_an_evicted_pod_is_created_again_with_an_empty_volume(place: Place):
    command = (
        "ls /scratch-volume; if test -e once; then exit 0; fi; touch once; "
        "head -c 3000000 /dev/zero > /scratch-volume/big; sleep 600"
    )
    place.job(tfjob(Worker=with_volume(replica(command, policy="ExitCode"), "/scratch-volume", sizeLimit="1Mi")))
    code, out, err = place.run()
    assert code == 0, out + err
    assert place.log("worker", 0, 1) == ""


def test_a_log_that_grows_without_end_keeps_its_head_and_its_tail(place: Place):
    """Of 100 MiB the first and the last 32 stay, and a line between tells what is missing."""
    command = "echo first; head -c 104857600 /dev/zero | tr '\\0' 'x' | fold -w 1023; echo last"
    place.job(tfjob(Worker=replica(command)))
    code, out, err = place.run()
    assert code == 0, out + err
    path = next((place.folder_of() / "logs").glob("worker.0.0.log"))
    assert path.stat().st_size < 66 << 20
    text = path.read_text()
    assert text.startswith("first\n")
    assert text.endswith("last\n")
    assert "bytes of output were dropped here" in text


@pytest.mark.usefixtures("_namespaces")
def test_the_downward_api_gives_labels_and_resources_as_files(place: Place):
    spec = replica("for i in mine cores name; do cat /pod-info/$i; echo; done; echo $CORES")
    spec["template"]["metadata"] = {"labels": {"mine": "yes"}}
    pod = spec["template"]["spec"]
    pod["volumes"] = [
        {
            "name": "info",
            "downwardAPI": {
                "items": [
                    {"path": "mine", "fieldRef": {"fieldPath": "metadata.labels"}},
                    {"path": "cores", "resourceFieldRef": {"containerName": "side", "resource": "limits.cpu"}},
                    {"path": "name", "fieldRef": {"fieldPath": "metadata.name"}},
                ]
            },
        }
    ]
    main = pod["containers"][0]
    main["volumeMounts"] = [{"name": "info", "mountPath": "/pod-info"}]
    main["env"] = [{"name": "CORES", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}}]
    limited = {"limits": {"cpu": "1"}}
    pod["containers"].append({"name": "side", "image": "e/n:1", "command": ["true"], "resources": limited})
    place.job(tfjob(Worker=spec))
    code, out, err = place.run("--isolation", "namespace")
    assert code == 0, out + err
    *labels, limit, name, cores = place.log("worker").splitlines()
    assert 'mine="yes"' in labels
    assert (limit, name[-9:]) == ("1", "-worker-0")
    assert int(cores) >= 1  # those of the machine
