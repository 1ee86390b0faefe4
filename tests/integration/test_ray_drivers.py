"""Runs whose driver is an actor of a Ray cluster: `weft run -d --backend ray`."""

import json
import os
import signal
from typing import Any

import psutil
import pytest

import weft
from tests.integration.places import Commands, Project, until
from tests.integration.ray_clusters import LOADED, running_cluster
from weft.backends import ray_driver
from weft.backends.ray_connecting import check_modules
from weft.backends.ray_driver import DriverRequest, Helpers, order_driver, start_driver
from weft.model.errors import ConflictError
from weft.runs.orders import send_order
from weft.store.state import DRIVER, owned

ray = pytest.importorskip("ray", reason="Ray has no wheel for this Python")
WAITING = "echo begun >> begun; while ! test -e go; do sleep 0.05; done; echo done >> done"


@pytest.fixture(scope="module")
def cluster():
    with running_cluster(2) as found:
        yield found


@pytest.fixture
def project(tmp_path, cluster, monkeypatch):
    made = Project(tmp_path / "project")
    made.loaded = LOADED
    made.environ["RAY_ADDRESS"] = cluster.address
    monkeypatch.setenv("RAY_ADDRESS", cluster.address)
    yield made
    if made.folder_of().exists() and owned(made.folder_of()):
        made.weft("cancel", "run-000001", "--force")


def test_a_cluster_with_another_version_of_weft_is_named_and_keeps_no_driver(project, cluster):
    nothing: Any = Helpers._make([None] * len(Helpers._fields))
    request = DriverRequest("other", [], [], str(project.folder), {}, str(project.root.path), weft="0.0.1")
    with pytest.raises(weft.UsageError, match=r"has Weft \S+, and this process has Weft 0\.0\.1") as caught:
        start_driver(nothing, request, cluster.address)
    assert f"pip install 'weft[ray]=={weft.__version__}'" in caught.value.hint
    ray.init(address=cluster.address, namespace="weft", logging_level="ERROR")
    try:
        until(lambda: not ray.util.list_named_actors(), "the end of the actor")
    finally:
        ray.shutdown()


def test_a_module_that_the_cluster_lacks_is_named():
    check_modules(ValueError("something else"))
    with pytest.raises(weft.UsageError, match=r"has no module weft\.backends") as caught:
        check_modules(ValueError("ModuleNotFoundError: No module named 'weft.backends'"))
    assert "pip install 'weft[ray]'" in caught.value.hint


def in_background(project, *words):
    code, out, err = project.weft(*(words or ("run", "run.yaml")), "-d", "--backend", "ray")
    assert code == 0, err
    assert out.split()[0] == "run-000001"


def actors(project):
    """Return the names of the drivers of a project that live."""
    return [file.stem for file in (project.root.path / "drivers").glob("*.json")]


def ended(project):
    until(lambda: not owned(project.folder_of()), "the end of the run")


def process_of(project):
    """Return the process of the run."""
    (name,) = actors(project)
    return psutil.Process(json.loads((project.root.path / "drivers" / f"{name}.json").read_text())["pid"])


def driver_of(project):
    """Return the process of the actor that drives the run."""
    return process_of(project).parent()


def test_the_run_goes_on_when_its_command_line_has_ended_and_leaves_no_actor(project):
    project.write({"a": {"command": "echo once >> once"}, "b": {"command": WAITING, "deps": "a"}})
    in_background(project)
    until(lambda: (project.folder / "begun").exists(), "the step")
    (project.folder / "go").touch()
    ended(project)
    assert set(project.states().values()) == {"succeeded"}
    until(lambda: not actors(project), "the end of the actor")
    ray.init(address=os.environ["RAY_ADDRESS"], namespace="weft", logging_level="ERROR")
    try:
        until(lambda: not ray.util.list_named_actors(), "the end of the actor")
        until(lambda: ray.available_resources().get("CPU", 0) == 2, "the end of the nodes")
    finally:
        ray.shutdown()


@pytest.mark.parametrize("whole", [True, pytest.param(False, marks=pytest.mark.soak)])
def test_a_driver_that_is_killed_is_replaced_and_finished_steps_do_not_run_again(project, whole):
    """`whole`: its actor is killed; else the process of the run alone."""
    project.write({"a": {"command": "echo once >> once"}, "b": {"command": WAITING, "deps": "a"}})
    in_background(project)
    until(lambda: (project.folder / "begun").exists(), "the step")
    first = driver_of(project) if whole else process_of(project)
    first.kill()
    until(lambda: (project.folder / "begun").read_text().count("begun") == 2, "the second start of the step")
    until(lambda: process_of(project).pid != first.pid, "the note of the new process")
    (project.folder / "go").touch()
    ended(project)
    assert (project.folder / "once").read_text() == "once\n"
    assert (project.folder / "done").read_text() == "done\n"
    assert set(project.states().values()) == {"succeeded"}


def test_an_order_from_another_machine_goes_through_the_driver_and_the_run_is_resumed(project):
    project.write(
        {"a": {"command": "echo once >> once"}, "b": {"command": f"test -e go || {{ {WAITING}; }}", "deps": "a"}}
    )
    in_background(project)
    until(lambda: (project.folder / "begun").exists(), "the step")
    folder = project.folder_of()
    about = json.loads((folder / DRIVER).read_text())
    (folder / DRIVER).write_text(json.dumps(about | {"machine": "elsewhere"}))
    assert send_order(folder, {"do": "cancel", "reason": "a test"}, order_driver) == "run-000001"
    ended(project)
    assert project.states() == {"a": "succeeded", "b": "terminated"}
    (folder / DRIVER).unlink()
    with pytest.raises(ConflictError, match="no driver in a cluster"):
        order_driver(folder, {"do": "cancel"})
    (project.folder / "go").touch()
    in_background(project, "resume", "run-000001")
    ended(project)
    assert set(project.states().values()) == {"succeeded"}
    assert (project.folder / "once").read_text() == "once\n"


@pytest.mark.soak
def test_a_run_of_the_foreground_is_resumed_in_the_background(project):
    project.write({"a": {"command": "echo once >> once; test -e go"}})
    assert project.weft()[0] == 1
    (project.folder / "go").touch()
    in_background(project, "resume", "run-000001")
    ended(project)
    assert project.states() == {"a": "succeeded"}


def test_a_run_that_only_starts_slowly_does_not_say_that_it_waits_for_cores(project, monkeypatch, capsys):
    monkeypatch.setattr(ray_driver, "_QUIET_S", 0.0)
    monkeypatch.setattr(ray_driver, "LOOK_S", 0.2)
    project.write({"a": {"command": "true"}})
    monkeypatch.chdir(project.folder)
    Commands(project.folder)("run", "run.yaml", "-d", "--backend", "ray")
    told = [line for line in capsys.readouterr().err.splitlines() if "has not begun" in line]
    assert told == ["weft: the run has not begun: its process starts in the cluster; Ctrl-C gives up"]
    ended(project)


@pytest.mark.soak
def test_a_run_that_waits_for_cores_begins_later_or_is_given_up(project):
    project.write({"a": {"command": "true"}})
    with weft.Session("ray") as holder:
        process = project.start("run", "run.yaml", "-d", "--backend", "ray")
        assert any("it waits for cores" in line for line in process.stderr)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=180)
        assert process.returncode == 130
        assert not any(
            str(project.folder) in " ".join(one.info["cmdline"] or []) + (one.info["cwd"] or "")
            for one in psutil.process_iter(["cmdline", "cwd"])
        )
        later = project.start("run", "run.yaml", "-d", "--backend", "ray")
        assert any("it waits for cores" in line for line in later.stderr)
        assert holder.loop.pool.idle == 2
    out, err = later.communicate(timeout=180)
    assert later.returncode == 0, err
    assert out.split()[0] == "run-000001"
    ended(project)


def test_what_is_wrong_with_a_file_is_said_at_once(project):
    project.write({"a": {"comand": "true"}})
    code, out, err = project.weft("run", "run.yaml", "-d", "--backend", "ray")
    assert code == 3
    assert "comand" in err
    assert not out
    until(lambda: not actors(project), "the end of the actor")


def test_without_a_cluster_the_next_step_is_named(tmp_path):
    project = Project(tmp_path / "project")
    project.loaded = LOADED
    project.write({"a": {"command": "true"}})
    code, _, err = project.weft("run", "run.yaml", "-d", "--backend", "ray", "--cluster", "127.0.0.1:1")
    assert code == 2
    assert "no Ray cluster answers at 127.0.0.1:1" in err
