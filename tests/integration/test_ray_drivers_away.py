"""Runs whose driver is in a Ray cluster that shares no folder with the machine that asked for them."""

import json
import os
import shutil
import tempfile
from functools import cached_property
from pathlib import Path

import psutil
import pytest

from tests.integration.places import DEADLINE_S, RUN, Project, until
from tests.integration.ray_clusters import LOADED, running_cluster
from tests.integration.test_storage import step
from weft.store.state import DRIVER

pytest.importorskip("ray", reason="Ray has no wheel for this Python")


BEGIN = ("run", "../project/run.yaml")


@pytest.fixture(scope="module")
def cluster():
    with running_cluster(2) as found:
        yield found


class Laptop(Project):
    """A project whose runs go on at the cluster."""

    loaded = LOADED

    def __init__(self, folder, address, url):
        super().__init__(folder)
        self.environ |= {"RAY_ADDRESS": address, "WEFT_STORAGE": url}
        self.shared = Path(url.removeprefix("file://"))

    def command(self, *words, code=0):
        found, out, err = self.weft(*words)
        assert found == code, (out, err)
        return out

    def in_background(self, *words):
        out = self.command(*(words or BEGIN), "-d", "--backend", "ray")
        assert out.split()[0] == RUN

    def shown(self):
        return json.loads(self.command("show", RUN, "--json"))["run"]

    def state(self):
        return self.shown()["state"]

    def objects(self):
        """Return the names of the objects at the URL."""
        return [str(file.relative_to(self.shared)) for file in self.shared.rglob("*") if file.is_file()]

    @cached_property
    def there(self):
        """The folder of the driver."""
        stored = json.loads((self.folder_of() / "run.json").read_text())["storage"]
        return Path(tempfile.gettempdir(), f"weft-drivers-{os.getuid()}", stored["key"])

    def process(self):
        """Return the process of the run at the cluster."""
        (note,) = until(lambda: list(self.there.glob(".weft/drivers/*.json")), "the note of the driver")
        return psutil.Process(json.loads(note.read_text())["pid"])


@pytest.fixture
def project(tmp_path, cluster):
    made = Laptop(tmp_path / "project", cluster.address, f"file://{tmp_path}/shared")
    yield made
    if made.folder_of().exists():
        if made.state() not in ("succeeded", "failed", "terminated", "interrupted"):
            made.weft("cancel", RUN, "--force")
        shutil.rmtree(made.there, ignore_errors=True)


@pytest.fixture
def marks(tmp_path):
    (tmp_path / "marks").mkdir()
    return tmp_path / "marks"


def steps(marks):
    waiting = f"echo begun >> {marks}/begun; until test -e {marks}/go; do sleep 0.05; done"
    return {
        "a": step(f"echo once >> {marks}/once; pwd > {{{{where}}}}; sh say.sh", outputs=["where"]),
        "b": step(f"{waiting}; cat {{{{where}}}} > {{{{seen}}}}", "a", {"where": "{{a.where}}"}, ["seen"]),
    }


def begin(project, marks, command=None, work=None):
    project.write(work or steps(marks))
    (project.folder / "say.sh").write_text("echo hello from the project\n")
    if command is None:
        project.in_background()
    else:
        command(*BEGIN, "-d", "--backend", "ray")
    until((marks / "begun").exists, "the second step")


def test_the_run_goes_on_without_the_machine_that_asked_for_it_which_follows_it(project, marks):
    work = steps(marks)
    work["c"] = step("cat {{seen}}", "b", {"seen": "{{b.seen}}"})
    begin(project, marks, work=work)
    until(lambda: [one["state"] for one in project.shown()["steps"]][:2] == ["succeeded", "running"], "the records")
    assert project.state() == "running"
    assert "running" in project.command("ls")
    assert "still running" in project.weft("resume", RUN, "--backend", "threads")[2]
    assert "still running" in project.weft("resume", RUN, "-d", "--backend", "ray")[2]
    assert "still running" in project.weft("delete", RUN)[2]
    assert "(not here: weft fetch run-000001)" in project.command("show", RUN)
    check_what_its_process_tells(project)
    watcher, follower = project.start("watch", RUN, "--json"), project.start("logs", "-f", RUN)
    (marks / "go").touch()
    (watched, said), (logs, noted) = (one.communicate(timeout=DEADLINE_S) for one in (watcher, follower))
    assert json.loads(watched)["run"]["state"] == "succeeded", said
    assert "hello from the project" in logs, noted
    until(lambda: project.state() == "succeeded", "the end")
    assert "hello from the project" in project.command("logs", f"{RUN}/a")
    assert (marks / "once").read_text() == "once\n"
    assert not list(project.folder.glob(".pipeline/*/*/a-*")), "outputs are at the URL"
    until(lambda: not project.there.exists(), "the end of the driver")
    assert len(project.command("fetch", RUN).split()) == 2
    (seen,) = project.folder.glob(".pipeline/*/*/b-*/seen")
    assert "work" in Path(seen.read_text()).parent.parts
    assert not project.command("fetch", RUN)
    project.command("delete", RUN)
    assert not project.objects()
    assert not list(project.root.path.glob("followed/*"))


def check_what_its_process_tells(project):
    """Check what the process at the cluster tells of a run: what waits, and what the plan became."""
    waits = "c: waits for the end of b (0 of 1 task finished, 1 running)\n"
    assert project.command("why", RUN) == waits
    assert project.command("why", f"{RUN}/c") == waits
    told = project.command("explain", RUN)
    assert "0 of 1 task so far" in told
    assert "records alone" not in told
    assert "interrupted" not in project.command("story", RUN)


def driver(project):
    """Return the name of the driver to which orders go."""
    return json.loads((project.folder_of() / DRIVER).read_text())["actor"]


@pytest.mark.soak
def test_a_killed_driver_is_replaced_and_goes_on(project, marks):
    begin(project, marks)
    until(lambda: project.shown()["steps"][0]["state"] == "succeeded", "a record")
    first = project.process()
    first.parent().kill()
    until(lambda: (marks / "begun").read_text().count("begun") == 2, "the second start of the step")
    (marks / "go").touch()
    until(lambda: project.state() == "succeeded", "the end")
    assert (marks / "once").read_text() == "once\n"


@pytest.mark.soak
def test_an_order_goes_to_the_driver_and_the_run_is_resumed_there(project, marks):
    begin(project, marks)
    project.command("cancel", RUN)
    until(lambda: project.state() == "terminated", "the end")
    (marks / "go").touch()
    project.in_background("resume", RUN)
    until(lambda: project.state() == "succeeded", "the end")
    assert (marks / "once").read_text() == "once\n"


def test_a_run_at_the_cluster_is_suspended_and_goes_on_and_one_step_is_cancelled(project, marks):
    begin(project, marks)
    project.command("suspend", RUN, "--now")
    until(lambda: project.state() == "suspended", "the suspension")
    former = driver(project)
    project.in_background("resume", RUN)
    assert driver(project) != former, "orders go to the new driver as soon as it is said that the run goes on"
    until(lambda: (marks / "begun").read_text() == "begun\nbegun\n", "the second start of the step")
    project.command("cancel", f"{RUN}/b")
    until(lambda: project.state() not in ("pending", "running", "terminating"), "the end")
    assert [one["state"] for one in project.shown()["steps"]] == ["succeeded", "cancelled"]
    assert (marks / "once").read_text() == "once\n"


@pytest.mark.soak
def test_while_the_url_cannot_be_read_the_run_is_shown_as_it_was(project, marks):
    begin(project, marks)
    until(lambda: project.shown()["steps"][0]["state"] == "succeeded", "a record")
    away = project.shared
    os.rename(away, f"{away}.gone")
    away.touch()
    try:
        code, out, err = project.weft("show", RUN)
        assert code == 0
        assert "running" in out
        assert f"{RUN} is shown as it was" in err
        assert "running" in project.command("ls")
        assert "may still run" in project.weft("delete", RUN)[2]
    finally:
        os.unlink(away)
        os.rename(f"{away}.gone", away)
    (marks / "go").touch()
    until(lambda: project.state() == "succeeded", "the end")


def test_a_run_whose_driver_cannot_be_started_leaves_nothing(project, marks):
    project.write(steps(marks))
    project.environ["RAY_ADDRESS"] = "127.0.0.1:1"
    code, _, err = project.weft("run", "../project/run.yaml", "-d", "--backend", "ray")
    assert code == 2
    assert "no Ray cluster answers" in err
    assert not project.objects()
    assert not project.folder_of().exists()
