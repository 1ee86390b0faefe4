"""Training jobs where the system forbids namespaces: a user namespace that may have no further ones stands for it."""

import subprocess
import sys

import pytest

from tests.integration.places import MAIN
from tests.integration.test_training import Place, replica, tfjob

FORBIDDING = 'for one in user net mnt; do echo 0 > "/proc/sys/user/max_${one}_namespaces" || exit 99; done; exec "$@"'
INSIDE = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", FORBIDDING, "sh"]


@pytest.fixture
def place(tmp_path) -> Place:
    try:
        done = subprocess.run([*INSIDE, "true"], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("there is no unshare")
    if done.returncode:
        pytest.skip(f"a user namespace cannot be limited here: {done.stderr.strip()}")
    return Place(tmp_path)


def run(place: Place, *words: str) -> tuple[int, str, str]:
    command = [*INSIDE, sys.executable, "-P", "-c", MAIN, "run", "run.yaml", *words]
    done = subprocess.run(
        command, cwd=place.folder, env=place.env(), capture_output=True, text=True, timeout=180, check=False
    )
    return done.returncode, done.stdout, done.stderr


def test_a_job_runs_with_ports_and_the_reason_is_said(place: Place):
    place.job(tfjob(Chief=replica("echo $TF_CONFIG"), PS=replica("sleep 600")))
    code, out, err = run(place)
    assert code == 0, out + err
    assert "isolation ports: isolation namespace cannot be used: this system forbids a network namespace" in err
    assert '"chief":["127.0.0.1:' in place.log("chief")
    assert place.alive() == []


def test_isolation_namespace_is_refused_with_the_reason(place: Place):
    place.job(tfjob(Worker=replica("echo never")))
    code, _, err = run(place, "--isolation", "namespace")
    assert code != 0
    assert "isolation namespace cannot be used here: this system forbids a network namespace" in err
    assert "Use isolation ports" in err
    assert "Traceback" not in err


def test_a_path_of_the_image_that_cannot_be_made_is_told(place: Place):
    spec = replica("ls /weft-data")
    spec["template"]["spec"]["volumes"] = [{"name": "data", "emptyDir": {}}]
    main = spec["template"]["spec"]["containers"][0]
    main["volumeMounts"] = [{"name": "data", "mountPath": "/weft-data"}]
    place.job(tfjob(Worker=spec))
    code, _, err = run(place)
    assert code == 1
    assert "this system allows its users no more namespaces" in err or "does not allow user namespaces" in err
    assert "Traceback" not in err
