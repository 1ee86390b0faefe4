"""What this machine lacks of what a container names."""

from pathlib import Path

import pytest

from weft.frontends.training.images import ImageRecipe
from weft.frontends.training.lacks import lacks_of, start_folder
from weft.frontends.training.schema import Container, VolumeMount
from weft.operators.mounts import BindMount

IMAGE = "kubeflow/mnist:v1"


def lacks(
    base: Path, *command: str, binds: tuple[BindMount, ...] = (), workdir: str = "", makes: bool = False, **fields
) -> list[str]:
    container = Container(name="tensorflow", image=IMAGE, command=command, **fields)
    return list(lacks_of(container, ImageRecipe(image=IMAGE, binds=binds, workdir=workdir), base, makes=makes))


def test_a_script_that_only_the_image_has_is_told_with_what_to_write(tmp_path):
    (told,) = lacks(tmp_path, "python", "/var/tf_mnist/mnist.py", "--epochs=1")
    assert "/var/tf_mnist/mnist.py, which the command of tensorflow names, does not exist on this machine" in told
    assert '[images."kubeflow/mnist:v1"] in weft.toml' in told
    assert 'workdir = "/var/tf_mnist"' in told
    assert "--isolation container" in told


def test_a_script_is_looked_for_where_the_container_starts(tmp_path):
    (told,) = lacks(tmp_path, "python3", "train.py")
    assert f"train.py, which the command of tensorflow names, does not exist in {tmp_path}" in told
    (tmp_path / "train.py").touch()
    assert lacks(tmp_path, "python3", "train.py") == []
    (tmp_path / "code").mkdir()
    (told,) = lacks(tmp_path, "python3", "train.py", working_dir=str(tmp_path / "code"))
    assert f"does not exist in {tmp_path}/code" in told


@pytest.mark.parametrize(
    "command",
    [
        ("sh", "-c", "python /opt/a.py"),
        ("python", "--config=/etc/a.py"),
        ("python", "$(SCRIPT)/a.py"),
        ("python", "-m", "train", "/data/out"),
        ("sh",),
    ],
)
def test_what_need_not_be_a_file_is_not_told(command, tmp_path):
    assert lacks(tmp_path, *command) == []


def test_what_a_mount_has_is_not_told(tmp_path):
    assert lacks(tmp_path, "/code/run", "/code/train.py", mounts=(VolumeMount(volume="code", path="/code"),)) == []
    shown = (BindMount(str(tmp_path), "/app"),)
    assert lacks(tmp_path, "python", "main.py", binds=shown, workdir="/app") == []
    assert len(lacks(tmp_path, "/opt/gone/run", "/opt/gone/train.py", binds=shown)) == 2


def test_a_working_folder_that_is_not_there_is_told(tmp_path):
    what = "/no/such/folder, the workingDir of tensorflow, does not exist on this machine: it "
    for makes, does in ((False, f"is replaced by {tmp_path}: "), (True, "is made, and empty: ")):
        (told,) = lacks(tmp_path, "pwd", working_dir="/no/such/folder", makes=makes)
        assert told.startswith(what + does)
        assert '(folder = "code", workdir = "/no/such/folder")' in told


def start(base: Path, working_dir: str, workdir: str = "", shown: tuple[str, ...] = (), *, makes: bool = True):
    container = Container(name="tensorflow", working_dir=working_dir)
    return start_folder(container, ImageRecipe(image="", workdir=workdir), base, shown, makes=makes)


def test_a_missing_working_folder_is_made_or_replaced_by_that_of_the_image(tmp_path):
    (tmp_path / "code").mkdir()
    own = str(tmp_path / "code")
    assert start(tmp_path, "/no/such", own) == ("/no/such", True)
    assert start(tmp_path, "/no/such", own, makes=False) == (own, False)
    assert start(tmp_path, "/no/such", "/nor/this", makes=False) == (str(tmp_path), False)
    assert start(tmp_path, "/no/such/one", own, ("/no/such",)) == ("/no/such/one", False), "a mount has it"
    assert start(tmp_path, "code") == (own, False), "as the folder of the job file"
    assert start(tmp_path, "gone") == (str(tmp_path), False), "nothing is made in the folder of the job file"
    assert start(tmp_path, "", "/nor/this") == (str(tmp_path), False), "only a workingDir is made"
