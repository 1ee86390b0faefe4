"""The files for KubeRay name fields that its version 1.7 has, with values of their types, and one version of Ray."""

import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "examples" / "kuberay"
# What KubeRay 1.7 takes in `ray.io/v1`, as far as the files use it: a type, or the fields of an object, a list of one.
POD = {"spec": {"containers": [{"name": str, "image": str, "ports": list, "env": list, "resources": dict}]}}
SECRET = {"valueFrom": {"secretKeyRef": {"name": str, "key": str}}}
CLUSTER = {
    "rayVersion": str,
    "enableInTreeAutoscaling": bool,
    "autoscalerOptions": {"version": {"v1", "v2"}, "idleTimeoutSeconds": int},
    "authOptions": {"mode": {"disabled", "token"}},
    "tlsOptions": {"enabled": bool},
    "gcsFaultToleranceOptions": {"redisAddress": str, "redisPassword": SECRET},
    "headGroupSpec": {"rayStartParams": {"num-cpus": str}, "template": POD},
    "workerGroupSpecs": [
        {
            "groupName": str,
            "minReplicas": int,
            "maxReplicas": int,
            "rayStartParams": {"object-store-memory": str},
            "template": POD,
        }
    ],
}
JOB = {"clusterSelector": {"ray.io/cluster": str}, "entrypoint": str, "submissionMode": {"K8sJobMode", "HTTPMode"}}


def documents(name, *, uncommented=()):
    text = (FOLDER / name).read_text()
    for begin in uncommented:
        text = re.sub(rf"^  # ({begin}:\n)((?:  #   .*\n)+)", _without_marks, text, flags=re.MULTILINE)
    return list(yaml.safe_load_all(text))


def _without_marks(found):
    return "  " + found[1] + found[2].replace("  # ", "  ")


def check(value, wanted, place="spec"):
    if isinstance(wanted, dict):
        assert isinstance(value, dict), place
        assert set(value) <= set(wanted), f"{place} has fields that KubeRay does not know, or this test"
        for name, inner in value.items():
            check(inner, wanted[name], f"{place}.{name}")
    elif isinstance(wanted, list):
        assert isinstance(value, list), place
        for inner in value:
            check(inner, wanted[0], f"{place}[]")
    elif isinstance(wanted, set):
        assert value in wanted, place
    else:
        assert type(value) is wanted, place


@pytest.fixture
def cluster():
    (found,) = documents("cluster.yaml")
    return found


def containers(cluster):
    groups = [cluster["spec"]["headGroupSpec"], *cluster["spec"]["workerGroupSpecs"]]
    return [container for group in groups for container in group["template"]["spec"]["containers"]]


@pytest.mark.parametrize("uncommented", [(), ("tlsOptions",)])
def test_the_cluster(uncommented):
    (found,) = documents("cluster.yaml", uncommented=uncommented)
    assert (found["apiVersion"], found["kind"]) == ("ray.io/v1", "RayCluster")
    assert ("tlsOptions" in found["spec"]) is bool(uncommented)
    check(found["spec"], CLUSTER)
    for group in found["spec"]["workerGroupSpecs"]:
        assert {"groupName", "minReplicas", "maxReplicas", "template"} <= set(group)
        assert 1 <= group["minReplicas"] <= group["maxReplicas"]
    assert found["spec"]["headGroupSpec"]["rayStartParams"]["num-cpus"] == "0"


def test_the_job_runs_at_that_cluster(cluster):
    (found,) = documents("job.yaml")
    assert (found["apiVersion"], found["kind"]) == ("ray.io/v1", "RayJob")
    check(found["spec"], JOB)
    assert found["spec"]["clusterSelector"]["ray.io/cluster"] == cluster["metadata"]["name"]
    program = found["spec"]["entrypoint"].split()[1]
    assert f"COPY {Path(program).name} {program}" in (FOLDER / "Dockerfile").read_text()


def test_requests_are_limits(cluster):
    """So that the cores that Ray counts are those that the tasks have."""
    for container in containers(cluster):
        assert container["resources"]["requests"] == container["resources"]["limits"]
        assert float(container["resources"]["limits"]["cpu"]).is_integer()


def test_one_version_of_ray(cluster):
    (version,) = re.findall(r"^ray==(.+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    assert cluster["spec"]["rayVersion"] == version
    assert f"FROM rayproject/ray:{version}-py" in (FOLDER / "Dockerfile").read_text()
    page = (ROOT / "docs" / "clusters.md").read_text()
    for container in containers(cluster):
        assert container["image"].endswith(f":{version}")
        assert f"docker push {container['image']}" in page


def test_the_ports_are_those_of_the_page(cluster):
    ports = {port["containerPort"] for container in containers(cluster) for port in container.get("ports", ())}
    page = (ROOT / "docs" / "clusters.md").read_text()
    assert ports == {6379, 8265}
    assert all(f":{port}" in page for port in ports)


def test_redis_is_where_the_comment_says():
    text = (FOLDER / "redis.yaml").read_text()
    lines = text.partition("#\n")[2].partition("#\n")[0].splitlines()
    options = yaml.safe_load("\n".join(line.removeprefix("#   ") for line in lines))
    check(options, {"gcsFaultToleranceOptions": CLUSTER["gcsFaultToleranceOptions"]})
    service, server = documents("redis.yaml")
    port = service["spec"]["ports"][0]["port"]
    assert options["gcsFaultToleranceOptions"]["redisAddress"] == f"{service['metadata']['name']}:{port}"
    assert service["spec"]["selector"] == server["spec"]["template"]["metadata"]["labels"]
    (redis,) = server["spec"]["template"]["spec"]["containers"]
    reference = options["gcsFaultToleranceOptions"]["redisPassword"]["valueFrom"]["secretKeyRef"]
    assert redis["env"][0]["valueFrom"]["secretKeyRef"] == reference


def test_the_page_names_each_file():
    page = (ROOT / "docs" / "clusters.md").read_text()
    assert all(f"{name}" in page for name in ("cluster.yaml", "job.yaml", "redis.yaml", "squares.py"))
