"""The command lines by which steps are put into containers."""

import os
from pathlib import Path

import pytest

from weft.model.errors import UsageError
from weft.operators.call import CommandSpec, _message
from weft.operators.containers import ContainerEngine, in_container, known_images
from weft.operators.mounts import BindMount

SAID = {"kind": "docker", "program": "/bin/docker", "image": "sha256:1", "run": "/runs/run-000001"}


def line(*, env=None, mounts=(), cwd: str = "/work", **said) -> list[str]:
    argv, _ = in_container({**SAID, **said}, cwd=cwd, env=env or {}, mounts=mounts, name="dag.step-1")
    return argv


def values(argv: list[str], option: str) -> list[str]:
    return [argv[at + 1] for at, word in enumerate(argv) if word == option]


@pytest.fixture
def ada(monkeypatch):
    monkeypatch.setattr(os, "getuid", lambda: 1000)
    monkeypatch.setattr(os, "getgid", lambda: 100)


def words(text: str) -> list[bytes]:
    spec = CommandSpec(text=text, env={}, cwd=Path("/"), log=Path("/log"), prefix=("docker", "run", "image"))
    argv: list[bytes] = _message(spec)["argv"]
    return argv


def test_the_command_follows_the_image():
    assert line()[-1] == "sha256:1"
    assert words("echo 'a b'") == [b"docker", b"run", b"image", b"sh", b"-c", b"echo 'a b'"]
    assert words(" \n") == [b"docker", b"run", b"image"]  # the image starts what it starts


def test_the_folder_of_the_step_and_its_mounts_are_bound():
    argv = line(
        mounts=[BindMount("/data", "/d", read_only=True), BindMount("/work", "/home/main"), BindMount("/other", "/d")]
    )
    assert values(argv, "--mount") == [
        "type=bind,source=/data,target=/d,readonly",
        "type=bind,source=/work,target=/home/main",
        "type=bind,source=/work,target=/work",
    ]
    assert values(argv, "--workdir") == ["/work"]


def test_paths_may_have_commas_and_quotes():
    [bound] = values(line(cwd='/a,b"c'), "--mount")
    assert bound == 'type=bind,"source=/a,b""c","target=/a,b""c"'


def test_values_of_variables_are_not_on_the_command_line():
    argv = line(env={"TOKEN": "secret", "PATH": "/opt/bin"})
    assert "--env TOKEN" in " ".join(argv)
    assert "secret" not in " ".join(argv)
    assert "PATH=/opt/bin" in argv  # weft puts a folder of this machine into what it hands on


def test_files_belong_to_the_user(ada):
    assert values(line(), "--user") == ["1000:100"]
    assert values(line(), "--env") == ["HOME=/tmp"]
    assert values(line(env={"HOME": "/x"}), "--env") == ["HOME"]
    argv = line(kind="podman")
    assert (values(argv, "--userns"), values(argv, "--user")) == (["keep-id"], [])


def test_root_is_root(monkeypatch):
    monkeypatch.setattr(os, "getuid", lambda: 0)
    assert "--user" not in line()


def test_each_attempt_has_a_container_of_its_own_that_can_be_removed():
    one, removal = in_container(SAID, cwd="/", env={}, mounts=(), name="a b/ü")
    [name] = values(one, "--name")
    assert name.startswith("weft-a-b---")
    assert removal == ["/bin/docker", "rm", "--force", name]
    assert values(line(), "--name") != values(line(), "--name")
    assert values(one, "--label") == ["weft.run=/runs/run-000001"]


@pytest.mark.parametrize("image", ["--privileged", "a\nb"])
def test_an_image_is_no_option(image):
    with pytest.raises(UsageError, match="names no image"):
        known_images(ContainerEngine("docker", "/bin/false"), [image], print)
