"""Steps with images: by policy ignored, or run by a program called docker, a fake here, or by a true Podman."""

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.integration.engines import IMAGE, remove_image, true_engine
from tests.integration.places import plan_pipeline, until
from tests.integration.test_pipeline import Place
from weft.admin.control import send
from weft.admin.settings import Settings
from weft.model.errors import NotFoundError, TaskError, UsageError
from weft.runs.active import RunResult
from weft.runtime.cache import read_decisions
from weft.wiring import Surroundings, load_pipeline, resume_run, run_pipeline

FAKE = f"""#!{sys.executable} -S
import json, os, signal, subprocess, sys
here, args = os.path.dirname(os.path.abspath(__file__)), sys.argv[1:]
with open(os.path.join(here, "asked"), "a") as log:
    log.write(json.dumps(args) + "\\n")
def images():
    with open(os.path.join(here, "images")) as file:
        return json.load(file)
if args[0] == "version":
    if os.path.exists(os.path.join(here, "stopped")):
        sys.exit("Cannot connect to the daemon")
    print("27.0")
elif args[:2] == ["image", "inspect"]:
    found = images().get(args[-1])
    print(found) if found else sys.exit("No such image")
elif args[0] == "pull":
    if args[-1].startswith("no/"):
        sys.exit("pull access denied")
    known = images()
    known[args[-1]] = "sha256:" + "%064x" % len(known)
    with open(os.path.join(here, "images"), "w") as file:
        json.dump(known, file)
elif args[0] == "ps":
    print("\\n".join(os.listdir(os.path.join(here, "containers"))))
elif args[0] == "rm":
    for name in args[2:]:
        os.unlink(os.path.join(here, "containers", name))
elif args[0] == "run":
    valued = ("--stop-timeout", "--name", "--label", "--user", "--userns", "--workdir", "--mount", "--env")
    options, at = {{}}, 1
    while args[at].startswith("--"):
        options.setdefault(args[at], []).append(args[at + 1])
        at += 2 if args[at] in valued else 1
    container = os.path.join(here, "containers", options["--name"][0])
    open(container, "w").close()
    env = dict(pair.split("=", 1) if "=" in pair else (pair, os.environ[pair]) for pair in options.get("--env", ()))
    env.setdefault("PATH", "/usr/bin:/bin")
    child = subprocess.Popen(args[at + 1:] or ["echo", "started"], cwd=options["--workdir"][0], env=env)
    signal.signal(signal.SIGTERM, lambda *_: child.terminate())
    code = child.wait()
    os.unlink(container)
    sys.exit(code if code >= 0 else 128 - code)
"""


class Docker:
    """A folder with a program called docker that runs everything on this machine, and notes what it was asked."""

    def __init__(self, folder: Path, name: str = "docker") -> None:
        self.folder = folder
        (folder / "containers").mkdir(parents=True)
        self.program = folder / name
        self.program.write_text(FAKE)
        self.program.chmod(0o755)
        self.have(**{"python:3.7": "sha256:" + "a" * 64})

    def have(self, **images: str) -> None:
        (self.folder / "images").write_text(json.dumps(images))

    def asked(self, what: str) -> list[list[str]]:
        lines = (self.folder / "asked").read_text().splitlines() if (self.folder / "asked").exists() else []
        return [found for line in lines if (found := json.loads(line))[0] == what]

    def containers(self) -> list[str]:
        return os.listdir(self.folder / "containers")


@pytest.fixture
def place(tmp_path) -> Place:
    (tmp_path / "project").mkdir()
    return Place(tmp_path / "project")


@pytest.fixture(scope="module")
def tools(tmp_path_factory) -> Path:
    """A folder with the programs of this machine, but for those that run containers."""
    folder: Path = tmp_path_factory.mktemp("tools")
    for name in {path.name for place in ("/usr/bin", "/bin") for path in Path(place).iterdir()} - {"docker", "podman"}:
        (folder / name).symlink_to(found if (found := Path("/usr/bin", name)).exists() else f"/bin/{name}")
    return folder


@pytest.fixture
def docker(tmp_path, tools, monkeypatch) -> Docker:
    found = Docker(tmp_path / "bin")
    monkeypatch.setenv("PATH", f"{found.folder}:{tools}")
    return found


def run(place: Place, policy: str, notes: list[str] | None = None) -> RunResult:
    loaded = load_pipeline(str(place.file), around=Surroundings(docker_env=policy))
    told = [] if notes is None else notes
    told += loaded.warnings
    return run_pipeline(loaded, Settings(workers=1), on_note=told.append)


def step(command: str, **more: Any) -> dict[str, Any]:
    return {"command": command, "docker_env": "python:3.7", **more}


class TestPolicies:
    def test_images_are_ignored_with_one_warning(self, place, docker):
        place.write({"a": step("echo a"), "b": step("echo b", docker_env="other")})
        notes: list[str] = []
        assert run(place, "ignore", notes).error is None
        assert notes == ["docker_env is ignored here: steps run on this machine, not in python:3.7, other"]
        assert not docker.asked("run")

    def test_steps_run_in_their_images(self, place, docker):
        place.write({"a": step("echo $A $PF_STEP_NAME; pwd", env={"A": "1"}), "b": {"command": "echo b"}})
        notes: list[str] = []
        assert run(place, "docker", notes).error is None
        assert notes == []
        assert place.log("a") == f"1 a\n{place.folder}\n"
        [asked] = docker.asked("run")
        assert asked[-4:] == ["sha256:" + "a" * 64, "sh", "-c", "echo $A $PF_STEP_NAME; pwd"]
        assert place.log("b") == "b\n"
        assert docker.containers() == []

    def test_the_environment_of_this_machine_stays_here(self, place, docker, monkeypatch):
        monkeypatch.setenv("OF_THIS_MACHINE", "1")
        place.write({"a": step("echo ${OF_THIS_MACHINE:-nothing}")})
        assert run(place, "docker").error is None
        assert place.log("a") == "nothing\n"

    def test_file_systems_are_bound(self, place, docker):
        (place.folder / "data").mkdir()
        extra = [{"name": "ppl", "sub_path": "data", "mount_path": "/data", "read_only": True}]
        place.write({"a": step("true", extra_fs=extra)}, fs_options={"main_fs": {"name": "ppl", "mount_path": "/m"}})
        assert run(place, "docker").error is None
        bound = [word for word in docker.asked("run")[0] if word.startswith("type=bind")]
        assert bound == [
            f"type=bind,source={place.folder}/data,target=/data,readonly",
            f"type=bind,source={place.folder},target=/m",
            f"type=bind,source={place.folder},target={place.folder}",
        ]

    def test_a_step_without_a_command_starts_what_the_image_starts(self, place, docker):
        place.write({"a": {"docker_env": "python:3.7"}})
        notes: list[str] = []
        assert run(place, "docker", notes).error is None
        assert (notes, place.log("a")) == ([], "started\n")

    def test_what_is_not_here_is_fetched_first(self, place, docker):
        place.write({"a": step("true", docker_env="new:1")})
        notes: list[str] = []
        assert run(place, "docker", notes).error is None
        assert notes == ["docker fetches the image new:1"]
        place.write({"a": step("true", docker_env="no/image")})
        with pytest.raises(NotFoundError, match=r"cannot fetch the image no/image: pull access denied"):
            run(place, "docker")

    @pytest.mark.parametrize("state", ["stopped", "missing"])
    def test_where_it_is_not_there_steps_run_here(self, place, docker, state):
        (docker.folder / "stopped").touch() if state == "stopped" else docker.program.unlink()
        place.write({"a": step("echo a")})
        notes: list[str] = []
        assert run(place, "docker", notes).error is None
        why = "docker cannot be used: Cannot connect" if state == "stopped" else "docker is not installed here"
        assert notes[0].startswith(why)
        assert notes[0].endswith("steps run on this machine, not in python:3.7")
        with pytest.raises(NotFoundError, match="images are required, but docker"):
            run(place, "require")

    def test_podman_will_do_where_an_image_is_required(self, place, docker, tmp_path):
        (docker.folder / "stopped").touch()
        podman = Docker(tmp_path / "other", "podman")
        os.environ["PATH"] = f"{podman.folder}:{os.environ['PATH']}"
        place.write({"a": step("echo a")})
        assert run(place, "require").error is None
        assert len(podman.asked("run")) == 1
        place.write({"a": step("echo a"), "b": {"command": "true"}})
        with pytest.raises(UsageError, match="step b has none"):
            run(place, "require")


CACHED = {"cache": {"enable": True}, "artifacts": {"output": ["out"]}}


class TestCache:
    def outcomes(self, result: RunResult) -> list[str]:
        return [said["outcome"] for said in read_decisions(result.folder)]

    def test_the_content_of_an_image_is_part_of_the_key(self, place, docker):
        place.write({"a": step("echo a > {{out}}", **CACHED)})
        assert self.outcomes(run(place, "docker")) == ["miss"]
        assert self.outcomes(run(place, "docker")) == ["hit"]
        docker.have(**{"python:3.7": "sha256:" + "b" * 64})  # the same name for something else
        loaded = load_pipeline(str(place.file), around=Surroundings(docker_env="docker"))
        [foreseen] = plan_pipeline(loaded, Settings())
        assert (foreseen.outcome, foreseen.reason.startswith("image: sha256:aaa")) == ("run", True)
        assert self.outcomes(run(place, "docker")) == ["miss"]

    def test_where_it_is_ignored_its_name_is(self, place, docker):
        place.write({"a": step("echo a > {{out}}", **CACHED)})
        assert self.outcomes(run(place, "ignore")) == ["miss"]
        docker.have(**{"python:3.7": "sha256:" + "b" * 64})
        assert self.outcomes(run(place, "ignore")) == ["hit"]
        assert self.outcomes(run(place, "docker")) == ["miss"]


class TestTheEnd:
    def test_a_failure_is_told_as_that_of_any_step(self, place, docker):
        place.write({"a": step("echo bad; exit 3")})
        error = run(place, "docker").error
        assert isinstance(error, TaskError)
        assert "ended with exit code 3" in error.message
        assert "bad" in error.message

    def test_a_cancel_ends_the_container(self, place, docker):
        place.write({"a": step("echo begun; sleep 3600")})
        process = place.start("run", "run.yaml", "--docker-env", "docker")
        until(lambda: (place.folder_of() / "logs" / "a.0.log").exists() and place.log("a"))
        send(place.folder_of(), {"do": "cancel", "reason": "test"})
        process.communicate(timeout=180)
        assert docker.containers() == []
        assert place.states() == {"a": "terminated"}

    def test_one_that_does_not_end_is_removed(self, place, docker):
        place.write({"a": step("trap '' TERM; echo begun; while :; do sleep 1; done")})
        process = place.start("run", "run.yaml", "--docker-env", "docker")
        until(lambda: (place.folder_of() / "logs" / "a.0.log").exists() and place.log("a"))
        [name] = docker.containers()
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=180)
        until(lambda: docker.containers() == [], "the removal of the container")
        assert docker.asked("rm") == [["rm", "--force", name]]

    def test_a_resume_removes_what_is_left(self, place, docker):
        place.write({"a": step("test -e {{PF_RUN_ID}}.done || exit 1")})
        result = run(place, "docker")
        assert result.error is not None
        (docker.folder / "containers" / "left").touch()
        (place.folder / "run-000001.done").touch()
        notes: list[str] = []
        assert resume_run(result.folder, Settings(workers=1), on_note=notes.append).error is None
        assert "removed 1 remaining containers" in notes
        assert len(docker.asked("run")) == 2


@pytest.fixture(scope="module", params=["podman", "docker"])
def true(request, tmp_path_factory):
    found = true_engine(request.param, tmp_path_factory.mktemp("image"))
    yield found
    remove_image(found)


class TestTrueEngines:
    def test_steps_run_in_their_images_and_are_used_again(self, place, true):
        one = step(
            "test ! -e /usr && pwd && echo $GREETING > {{out}}",
            docker_env=IMAGE,
            env={"GREETING": "hello"},
            artifacts={"output": ["out"]},
        )
        two = step("cat {{in}}", docker_env=IMAGE, deps="one", artifacts={"input": {"in": "{{one.out}}"}})
        place.write({"one": one, "two": two}, cache={"enable": True})
        for _ in range(2):
            code, _, err = place.weft("run", "run.yaml", "--docker-env", true.name, "-q")
            assert code == 0, err
        assert place.log("one") == f"{place.folder}\n"
        assert place.log("two") == "hello\n"
        again = read_decisions(place.folder_of("run-000002"))
        assert [said["outcome"] for said in again] == ["hit", "hit"]
        assert true.containers() == []

    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
    def test_no_container_is_left(self, place, true, number):
        place.write({"a": step("trap '' TERM; echo begun; while :; do sleep 1; done", docker_env=IMAGE)})
        process = place.start("run", "run.yaml", "--docker-env", true.name)
        until(lambda: (place.folder_of() / "logs" / "a.0.log").exists() and place.log("a"))
        assert len(true.containers()) == 1
        process.send_signal(number)
        process.communicate(timeout=180)
        until(lambda: true.containers() == [], "the removal of the container")
