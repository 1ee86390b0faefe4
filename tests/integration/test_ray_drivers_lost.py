"""Runs in the background whose driver is lost with its machine, or with the whole cluster."""

import json
import shutil
from pathlib import Path

import psutil
import pytest

from tests.integration.places import RUN, Commands, until
from tests.integration.ray_clusters import running_cluster
from tests.integration.test_ray_drivers_away import Laptop, begin

backend = pytest.importorskip("weft.backends.ray", reason="Ray has no wheel for this Python")
PLACE = "place of drivers"
"""A resource of the machine at which drivers start here: the loss of the head is that of the cluster."""


@pytest.fixture
def cluster():
    with running_cluster(2) as found:
        yield found


@pytest.fixture
def marks(tmp_path):
    (tmp_path / "marks").mkdir()
    return tmp_path / "marks"


@pytest.fixture
def project(tmp_path, cluster):
    made = Laptop(tmp_path / "project", cluster.address, f"file://{tmp_path}/shared")
    yield made
    if made.folder_of().exists():
        shutil.rmtree(made.there, ignore_errors=True)


def lose(cluster, machines, project):
    """Lose machines with the driver of a run, and let the time of its lease pass."""
    run = project.process()
    actor = run.parent()
    actor.suspend()  # nothing is begun again at the machine
    processes = [run, *run.children(recursive=True)]
    for process in processes:
        process.kill()
    shutil.rmtree(project.there)
    for machine in machines:
        cluster.remove_node(machine, allow_graceful=False)
    actor.kill()
    psutil.wait_procs([*processes, actor], 60)
    for lease in project.shared.glob("runs/*/lease/*.json"):
        lease.write_text(json.dumps({"until": 1.0, "host": "lost"}))


def test_a_driver_whose_machine_is_lost_goes_on_at_another_one(project, marks, cluster, monkeypatch):
    machine = cluster.add_node(num_cpus=0, resources={PLACE: 1})
    monkeypatch.setattr(backend, "_HEAD", PLACE)
    monkeypatch.setenv("RAY_ADDRESS", cluster.address)
    monkeypatch.chdir(project.folder)
    begin(project, marks, Commands(project.folder, project.environ))
    until(lambda: project.shown()["steps"][0]["state"] == "succeeded", "a record")
    lose(cluster, [machine], project)
    assert project.state() == "running", "the cluster has its driver, wherever that is now"
    until(lambda: (marks / "begun").read_text().count("begun") == 2, "the second start of the step")
    (marks / "go").touch()
    until(lambda: project.state() == "succeeded", "the end")
    check_ended(project, marks)
    until(lambda: not project.there.exists(), "the end of the driver")


@pytest.mark.soak
def test_a_run_goes_on_elsewhere_when_all_of_its_cluster_is_lost(project, marks, cluster, tmp_path):
    begin(project, marks)
    until(lambda: project.shown()["steps"][0]["state"] == "succeeded", "a record")
    lose(cluster, [*cluster.worker_nodes, cluster.head_node], project)
    assert project.state() == "interrupted"
    (marks / "go").touch()
    there = Laptop(tmp_path / "elsewhere", "", project.environ["WEFT_STORAGE"])
    for name in ("run.yaml", "say.sh"):
        shutil.copy(project.folder / name, there.folder / name)
    del there.environ["WEFT_STORAGE"]
    there.command("resume", RUN, "--backend", "threads", "--storage", project.environ["WEFT_STORAGE"])
    assert there.state() == "succeeded"
    check_ended(there, marks)
    assert (marks / "begun").read_text() == "begun\nbegun\n"


def check_ended(project, marks):
    """Check what a run has left that was lost after its first step, and that nothing is left of it once deleted."""
    assert (marks / "once").read_text() == "once\n", "what was reported as done does not run again"
    assert "hello from the project" in project.command("logs", f"{RUN}/a")
    project.command("fetch", RUN)
    (seen,) = project.folder.glob(".pipeline/*/*/b-*/seen")
    assert "work" in Path(seen.read_text()).parent.parts
    project.command("delete", RUN)
    assert not project.objects()
