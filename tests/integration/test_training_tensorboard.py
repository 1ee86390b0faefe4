"""`weft run --tensorboard` with a program that stands for TensorBoard: found, served, ended with the run."""

from __future__ import annotations

import json
import os
import re
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.event_files import event
from tests.integration.places import RUN, until
from tests.integration.test_training import Place, replica, tfjob

FAKE = '''#!{python} -S
"""Answers with its arguments and the event files below its log folder."""
import http.server, json, os, sys

words = dict(zip(sys.argv[1::2], sys.argv[2::2]))

class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        names = [name for _, _, files in os.walk(words["--logdir"], followlinks=True) for name in files]
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(dict(program=__file__, words=words, names=sorted(names))).encode())

    def log_message(self, *_):
        pass

server = http.server.HTTPServer((words["--host"], int(words["--port"])), Answer)
with open("board.pid", "w") as file:
    print(os.getpid(), file=file, flush=True)
server.serve_forever()
'''
WAITS = "until test -e go; do sleep 0.05; done"


class Board(Place):
    """A folder with a job file and a program `tensorboard`."""

    def install(self, folder: str, text: str = FAKE) -> None:
        program = self.folder / folder / "tensorboard"
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text(text.replace("{python}", sys.executable))
        program.chmod(0o755)

    def ask(self, address: str) -> dict[str, Any]:
        def answered() -> dict[str, Any] | None:
            try:
                with urllib.request.urlopen(address, timeout=5) as answer:
                    found: dict[str, Any] = json.loads(answer.read())
                    return found
            except OSError:
                return None

        found: dict[str, Any] = until(answered, "the answer")
        return found

    def pid(self) -> int:
        return int((self.folder_of() / "board.pid").read_text())


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def address(process: Any) -> str:
    """Return the address that a run prints before its first step."""
    for line in process.stderr:
        if match := re.search(r"TensorBoard: (http://127\.0\.0\.1:\d+/)", line):
            return match[1]
    raise AssertionError("no address")


@pytest.fixture
def place(tmp_path, monkeypatch) -> Board:
    found = Board(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    (tmp_path / "events").write_bytes(event("loss", 0.5, 3))
    name = "events.out.tfevents.1700000000.host.2.0"
    copies = f"mkdir -p $TENSORBOARD_LOGDIR runs; cp events $TENSORBOARD_LOGDIR/{name}; cp events runs/{name}.1"
    found.job(tfjob(Worker=replica(f"{copies}; {WAITS}")))
    return found


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_it_serves_the_log_folders_while_the_job_runs_and_ends_with_it(place):
    place.install("bin")
    process = place.start("run", "--tensorboard", "run.yaml")
    where = address(process)
    until(lambda: len(place.ask(where)["names"]) == 2)
    found = place.ask(where)
    assert found["words"]["--host"] == "127.0.0.1"
    assert found["words"]["--logdir"] == str(place.folder_of() / "tensorboard")
    pid = place.pid()
    (place.folder / "go").touch()
    process.communicate()
    assert process.returncode == 0
    assert gone(pid)
    shown = place.start("tensorboard", RUN)
    assert shown.stdout is not None
    assert len(place.ask(shown.stdout.readline().strip())["names"]) == 2
    shown.send_signal(2)
    shown.communicate()
    assert gone(place.pid())


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_nothing_is_left_of_it_after_a_kill(place):
    place.install("bin")
    process = place.start("run", "--tensorboard", "run.yaml")
    place.ask(address(process))
    pid = place.pid()
    process.kill()
    process.communicate()
    until(lambda: gone(pid), "its end")


def test_training_steps_of_a_pipeline_have_one_and_without_one_it_is_refused(place):
    place.install("bin")
    place.file.rename(place.folder / "job.yaml")
    place.write({"train": {"x-weft": {"kind": "training", "with": {"file": "job.yaml"}}}})
    process = place.start("run", "run.yaml", "--tensorboard")
    found = place.ask(address(process))
    assert found["words"]["--logdir"].startswith(str(place.folder_of() / "steps"))
    (place.folder / "go").touch()
    process.communicate()
    assert process.returncode == 0
    place.write({"train": {"command": "true"}})
    code, _, err = place.run("--tensorboard")
    assert code == 2
    assert "--tensorboard cannot be used here: no step of run.yaml is a training job" in err
    assert place.run("--tensorboard=off")[0] == 0


def test_that_of_the_environment_of_an_image_goes_first(place):
    place.install("bin")
    place.install("env/bin")
    (place.folder / "weft.toml").write_text('[images]\n"example/*" = {venv = "env"}\n')
    process = place.start("run", "run.yaml", "--tensorboard")
    assert place.ask(address(process))["program"] == str(place.folder / "env" / "bin" / "tensorboard")
    (place.folder / "go").touch()
    process.communicate()


def test_a_port_is_kept_and_one_in_use_is_refused(place):
    place.install("bin")
    first = place.start("run", "run.yaml", "--tensorboard")
    where = address(first)
    port = where.rstrip("/").rpartition(":")[2]
    code, _, err = place.run(f"--tensorboard={port}")
    assert code != 0
    assert f"the port {port} for TensorBoard is in use" in err
    second = place.start("run", "run.yaml", "--tensorboard")
    assert address(second) != where
    (place.folder / "go").touch()
    for process in (first, second):
        process.communicate()
        assert process.returncode == 0
    assert "must be off, auto, or a port" in place.run("--tensorboard=x")[2]


def test_the_end_of_the_program_is_told_and_the_job_goes_on(place):
    place.install("bin", "#!/bin/sh\necho no module named tensors >&2; exit 3\n")
    process = place.start("run", "run.yaml", "--tensorboard")
    until(lambda: (place.folder_of() / "tensorboard.log").exists())
    until(lambda: "no module" in (place.folder_of() / "tensorboard.log").read_text())
    until(lambda: not list((place.folder_of() / "processes").glob("tensorboard.*")), "its end")
    (place.folder / "go").touch()
    _, err = process.communicate()
    assert process.returncode == 0
    assert "TensorBoard ended: exit code 3: no module named tensors" in err


def test_without_it_the_run_does_not_begin_and_says_what_to_install(place, monkeypatch):
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    code, _, err = place.run("--tensorboard")
    assert code != 0
    assert "no TensorBoard is installed" in err
    assert "pip install tensorboard" in err
    assert not place.folder_of().exists() or not (place.folder_of() / "tensorboard").exists()
