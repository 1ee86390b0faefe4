"""A run whose files travel by a URL goes on at another machine when that of its process is gone."""

import os
import shutil
import signal
import subprocess
import sys
from contextlib import closing, contextmanager

import psutil
import pytest

from tests.forked_nodes import ForkedNodes
from tests.integration.places import RUN, SOURCE, until
from tests.integration.test_storage import Apart, of, step
from tests.servers import s3_bucket, s3_endpoint
from weft import wiring
from weft.backends.cluster import Cluster
from weft.model.errors import ConflictError, NotFoundError, RunCancelledError
from weft.runs.handing import leave, settle
from weft.runs.reading import read_run
from weft.runs.service import RunService
from weft.runtime.clock import RealClock, WallClock
from weft.store.run_log import LEASE_S, OWNER
from weft.store.state import StateRoot, read_description
from weft.wiring import concrete

__all__ = ["s3_bucket", "s3_endpoint"]

REPOSITORY = SOURCE.parent


class Later(RealClock):
    """A clock that is ahead, so that leases of now are over."""

    def __init__(self, ahead_s):
        self.ahead_s = ahead_s

    def wall(self):
        return super().wall() + self.ahead_s


class Place(Apart):
    """A folder of the project at some machine, with a clock of its own."""

    def __init__(self, folder, url):
        super().__init__(folder, url)
        self.clock: WallClock = Later(2 * LEASE_S)

    @contextmanager
    def service(self):
        with closing(RunService(wiring, self.settings, self.root, self.clock)) as found:
            yield found

    def adopt(self, run=RUN):
        with self.service() as service:
            return service.adopt(run)


@pytest.fixture
def nodes(monkeypatch):
    """Let each session of this process have nodes of its own."""
    opened = []

    def begin(at):
        opened.append(ForkedNodes(2, 1, grace_s=3.0))
        return Cluster(opened[-1].nodes, opened[-1].secret, at.store, grace_s=at.grace_s)

    monkeypatch.setitem(concrete.BACKENDS, "threads", begin)
    yield
    for one in opened:
        one.close()


class Driver:
    """A process that drives the run of a project; `wait_for` a line, then `kill` it with all its nodes."""

    def __init__(self, project):
        words = [sys.executable, "-m", "tests.integration.storage_driver", str(project.folder)]
        environ = os.environ | {"PYTHONPATH": f"{SOURCE}:{REPOSITORY}"}
        self.process = subprocess.Popen(
            [*words, project.settings.storage],
            cwd=REPOSITORY,
            env=environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def wait_for(self, line):
        for found in self.process.stdout:
            if found.strip() == line:
                return
        raise AssertionError(self.process.communicate()[1])

    def kill(self):
        children = psutil.Process(self.process.pid).children(recursive=True)
        self.process.send_signal(signal.SIGKILL)
        self.process.communicate()
        psutil.wait_procs(children, 60)


def steps(marks):
    return {
        "make": step(f"echo made >> {marks}/make; echo one > {{{{one}}}}; mkdir {{{{two}}}}", outputs=["one", "two"]),
        "slow": step(
            f"echo begun >> {marks}/slow; test -e {marks}/go || sleep 600; ls {{{{two}}}} | cat {{{{one}}}} - "
            "> {{three}}",
            "make",
            {"one": "{{make.one}}", "two": "{{make.two}}"},
            ["three"],
        ),
        "last": step("cat {{three}} > {{four}}; echo last", "slow", {"three": "{{slow.three}}"}, ["four"]),
    }


@pytest.fixture
def lost(tmp_path):
    """Return what begins a run at a URL, and kills its process when its first step has been reported."""

    def begin(url=""):
        marks = tmp_path / "marks"
        marks.mkdir()
        project = Place(tmp_path / "project", url or f"file://{tmp_path}/shared")
        project.write(steps(marks))
        driver = Driver(project)
        driver.wait_for("make succeeded")
        driver.wait_for("slow running")
        until((marks / "slow").exists, "the second step")
        driver.kill()
        (marks / "go").touch()
        return project, marks

    return begin


def elsewhere(project, tmp_path):
    """Return the project at another machine: its files without its state and its outputs."""
    there = Place(tmp_path / "elsewhere" / "project", project.settings.storage)
    shutil.copy(project.file, there.file)
    return there


def check_resumed(there, marks):
    assert there.adopt() == RUN
    assert read_run(there.folder_of()).state == "interrupted"
    assert of(there, "make.one").read_text() == "one\n"
    assert of(there, "make.two").is_dir()
    result = there.resume(RUN)
    assert result.state == "succeeded", result.error
    assert of(there, "last.four").read_text() == "one\n"
    assert (marks / "make").read_text() == "made\n", "what was reported as done does not run again"
    assert (marks / "slow").read_text() == "begun\nbegun\n"
    assert read_run(there.folder_of()).steps[0].attempts == 1
    rest = [name for name in there.shared() if not name.startswith("projects/")]
    assert [name for name in rest if "/log/" not in name] == []
    assert len(rest) <= 2, "the begins of two epochs"


def test_a_run_whose_process_was_killed_goes_on_in_another_folder(lost, nodes, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    project, marks = lost()
    check_resumed(elsewhere(project, tmp_path), marks)


def test_it_goes_on_at_the_same_path_of_another_machine_by_its_journal(lost, nodes):
    project, marks = lost()
    for name in (".weft", ".pipeline"):
        shutil.rmtree(project.folder / name)
    check_resumed(project, marks)


def test_a_driver_at_another_machine_needs_the_url_alone(lost, nodes, tmp_path):
    project, marks = lost()
    stored = read_description(project.folder_of())["storage"]
    base = tmp_path / "machine" / "driver"

    def waits():
        raise RunCancelledError("nobody waits any more")

    with pytest.raises(RunCancelledError):
        settle(stored["url"], stored["key"], base, waits)
    assert not base.exists()
    assert settle(stored["url"], stored["key"], base, lambda: None, Later(2 * LEASE_S)) == RUN
    assert settle(stored["url"], stored["key"], base, lambda: None) == RUN, "its folder is here"
    (StateRoot(base / ".weft").folder(RUN) / OWNER).write_text('{"token": "a", "released": true}')
    (base / "left").touch()
    assert settle(stored["url"], stored["key"], base, lambda: None, Later(2 * LEASE_S)) == RUN
    assert not (base / "left").exists(), "a driver that has left it may remove it at any time"
    leave(stored["key"], base, begun=True)
    there = Place(base, project.settings.storage)
    assert there.file.read_text() == project.file.read_text()
    assert of(there, "make.one").read_text() == "one\n"
    result = there.resume(RUN)
    assert result.state == "succeeded", result.error
    assert of(there, "last.four").read_text() == "one\n"
    assert (marks / "make").read_text() == "made\n"


def test_it_goes_on_by_s3(lost, nodes, tmp_path, s3_bucket):
    (tmp_path / "elsewhere").mkdir()
    project, marks = lost(f"s3://{s3_bucket}/some/prefix")
    check_resumed(elsewhere(project, tmp_path), marks)


def test_a_lost_run_that_is_deleted_leaves_nothing_at_the_url(lost):
    project, _ = lost()
    assert any(name.startswith("runs/") for name in project.shared())
    code, _, err = project.weft("delete", RUN)
    assert code == 0, err
    assert project.shared() == []


def test_the_deletion_of_a_run_that_went_on_elsewhere_changes_nothing_there(lost, nodes, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    project, _ = lost()
    there = elsewhere(project, tmp_path)
    there.adopt()
    assert there.resume(RUN).state == "succeeded"
    before = there.shared()
    assert any(name.startswith("projects/") for name in before)
    assert project.weft("delete", RUN)[0] == 0
    assert there.shared() == before
    assert there.weft("delete", RUN)[0] == 0
    assert all("/log/" in name for name in there.shared())


def test_another_machine_waits_for_the_lease_and_the_machine_itself_does_not(lost, nodes, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    project, marks = lost()
    there = elsewhere(project, tmp_path)
    there.clock = Later(-10 * LEASE_S)
    with pytest.raises(ConflictError, match="whose lease at"):
        there.adopt()
    assert not there.folder_of().exists()
    with pytest.raises(NotFoundError, match="neither here nor at"):
        there.adopt("run-000007")
    project.clock = Later(-10 * LEASE_S)
    assert project.resume(RUN).state == "succeeded"
    assert (marks / "make").read_text() == "made\n"
    with pytest.raises(ConflictError, match="its folder is there"):
        there.adopt()
    assert not there.folder_of().exists()
    assert [name for name in there.shared() if not name.startswith("projects/") and "/log/" not in name] == []


def test_a_process_that_was_thought_dead_ends_its_run_and_changes_nothing_more(nodes, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    marks = tmp_path / "marks"
    marks.mkdir()
    project = Place(tmp_path / "project", f"file://{tmp_path}/shared")
    project.clock = RealClock()
    project.write(steps(marks))
    there = elsewhere(project, tmp_path)
    with project.begun() as active:
        until((marks / "slow").exists, "the second step")
        until(lambda: project.states()["make"] == "succeeded", "the record of the first one")
        assert there.adopt() == RUN
        (marks / "go").touch()
        assert there.resume(RUN).state == "succeeded"
        active.wait(120)
    assert active.result().state == "terminated"
    assert any("another process drives" in note for note in active.notes)
    assert of(there, "last.four").read_text() == "one\n"
    assert not list(project.folder.glob(".pipeline/*/*/last-*/four"))
    objects = there.shared()
    with pytest.raises(ConflictError, match="its folder is there"):
        project.resume(RUN)
    assert there.shared() == objects
