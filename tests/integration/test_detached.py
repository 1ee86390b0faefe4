"""Runs in the background: they print their id, outlive the terminal, and are handled like all others."""

import json
import os
import pty
import signal
import sys
from pathlib import Path

import psutil
import pytest

from tests.integration.places import MAIN, RUN, Project, until
from weft.runs.reading import read_run
from weft.runs.records import ACTIVE
from weft.store.state import read_description

WAIT = "touch began; until test -e go; do sleep 0.02; done; echo gone on; touch done"


class Place(Project):
    """A folder with a pipeline, and ways to run it in the background."""

    @property
    def run(self) -> Path:
        return self.folder_of()

    def over(self) -> bool:
        return self.run.is_dir() and read_run(self.run).state not in ACTIVE

    def go(self) -> str:
        (self.folder / "go").touch()
        until(self.over)
        return read_run(self.run).state


@pytest.fixture
def place(tmp_path):
    place = Place(tmp_path)
    place.write({"a": {"command": WAIT}})
    yield place
    if place.run.is_dir() and not place.over():
        os.kill(read_description(place.run)["pid"], signal.SIGKILL)
        until(place.over)


def test_it_prints_its_id_and_goes_on_by_itself(place):
    code, out, err = place.weft("run", "run.yaml", "-d")
    assert (code, out) == (0, f"{RUN}\n"), err
    assert f"weft logs -f {RUN}" in err
    until((place.folder / "began").exists)
    until(lambda: read_run(place.run).state == "running")  # a step may begin before the record of its start
    assert place.weft("show", RUN)[0] == 0
    assert place.go() == "succeeded"
    assert place.weft("logs", "-f", RUN)[1].endswith("gone on\n")
    until(lambda: "succeeded" in (place.run / "output.log").read_text(), "its last lines")


def test_quietly_and_as_json(place):
    code, out, err = place.weft("run", "run.yaml", "-dq")
    assert (code, out, err) == (0, f"{RUN}\n", "")
    assert place.go() == "succeeded"
    code, out, err = place.weft("run", "run.yaml", "-d", "--json")
    assert (code, json.loads(out)["run"], err) == (0, "run-000002", "")
    until(lambda: read_run(place.run.with_name("run-000002")).state == "succeeded")


@pytest.mark.parametrize("backend", ["threads", "processes"])
def test_it_is_cancelled_like_any_other(place, backend):
    assert place.weft("run", "run.yaml", "-d", "--backend", backend)[0] == 0
    assert place.weft("cancel", RUN)[0] == 0, "it takes orders as soon as its id is printed"
    until(place.over)
    assert read_run(place.run).state == "terminated"
    code, out, _ = place.weft("resume", "-d", RUN)
    assert (code, out) == (0, f"{RUN}\n")
    assert place.go() == "succeeded"


def test_it_outlives_its_terminal(place):
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(place.folder)
        os.execve(sys.executable, [sys.executable, "-c", MAIN, "run", "run.yaml", "-d"], place.env())
    said = b""
    while RUN.encode() not in said:
        said += os.read(terminal, 1024)
    os.waitpid(pid, 0)
    until((place.folder / "began").exists)
    os.close(terminal)  # hangs up: SIGHUP to whoever belongs to it
    process = psutil.Process(read_description(place.run)["pid"])
    assert os.getsid(process.pid) == process.pid
    assert place.go() == "succeeded"
    assert (place.folder / "done").exists()


def test_a_killed_one_is_interrupted_and_can_be_resumed(place):
    assert place.weft("run", "run.yaml", "-d")[0] == 0
    until((place.folder / "began").exists)
    os.kill(read_description(place.run)["pid"], signal.SIGKILL)
    until(lambda: read_run(place.run).state == "interrupted")
    (place.folder / "go").touch()
    assert place.weft("resume", RUN)[0] == 0


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("nothing.yaml",), 4, "there is no file nothing.yaml"),
        (("run.yaml", "-p", "none=1"), 2, "no parameter"),
        (("run.yaml", "--nonsense"), 2, "nonsense"),
        (("run.yaml", "--backend", "none"), 2, "--backend is"),
    ],
)
def test_what_is_wrong_before_it_begins_is_said_here(place, words, code, told):
    found, out, err = place.weft("run", "-d", *words)
    assert (found, out) == (code, "")
    assert told in err
    assert not place.run.exists()


def test_mistakes_in_the_file_and_warnings_are_said_here(place):
    place.write({"a": {"command": ":", "deps": "b"}})
    assert place.weft("run", "-d", "run.yaml")[0] == 3
    place.write({"a": {"command": ":"}}, docker_env="some:image")
    code, _, err = place.weft("run", "-d", "run.yaml")
    assert code == 0
    assert "docker_env is ignored" in err
    until(place.over)


def test_modules_of_the_project_are_not_taken_for_others(place):
    (place.folder / "json.py").write_text("raise SystemExit('not this one')")
    (place.folder / "go").touch()
    code, out, err = place.weft("run", "-d", "run.yaml")
    assert (code, out) == (0, f"{RUN}\n"), err
    until(place.over)
