"""Where state lies, and who owns the folder of a run."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from weft.model.errors import ConflictError, ForbiddenError, NotFoundError
from weft.store import state
from weft.store.folders import RunFolders
from weft.store.places import identity_of
from weft.store.state import (
    DRIVER,
    RunFolder,
    StateRoot,
    find_project,
    list_logs,
    owned,
    read_description,
    use_driver,
    user_state_folder,
)

ROOT = Path(__file__).parents[3]


@pytest.fixture
def root(tmp_path) -> StateRoot:
    return StateRoot(tmp_path / ".weft")


# -------------------------------------------------------------------------------------------------- where state lies


def test_beside_the_nearest_project_file(tmp_path):
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    (tmp_path / "weft.toml").touch()
    assert StateRoot.find(below).path == tmp_path / ".weft"
    (tmp_path / "a" / "weft.toml").touch()
    assert StateRoot.find(below).path == tmp_path / "a" / ".weft"


def test_without_a_project_it_lies_where_the_work_begins(tmp_path):
    assert StateRoot.find(tmp_path).path == tmp_path / ".weft"
    assert not (tmp_path / ".weft").exists(), "looking makes nothing"


def test_a_state_folder_above_is_not_taken_for_a_project(tmp_path):
    (tmp_path / ".weft").mkdir()
    (tmp_path / "a").mkdir()
    assert StateRoot.find(tmp_path / "a").path == tmp_path / "a" / ".weft"


def test_what_is_asked_for_wins(tmp_path):
    (tmp_path / "weft.toml").touch()
    assert StateRoot.find(tmp_path, override=tmp_path / "x").path == tmp_path / "x"


def test_where_nothing_can_be_made_it_is_the_users_folder(tmp_path):
    missing = tmp_path / "missing"
    assert StateRoot.find(missing, environ={"XDG_STATE_HOME": "/s"}).path == Path("/s/weft")


@pytest.mark.parametrize("given", ["", "relative/path"])
def test_a_state_home_that_is_no_absolute_path_is_not_taken(given):
    assert user_state_folder({"XDG_STATE_HOME": given}) == Path.home() / ".local" / "state" / "weft"


def test_a_project_file_is_found_upwards(tmp_path):
    (tmp_path / "a").mkdir()
    assert find_project(tmp_path / "a") is None
    (tmp_path / "weft.toml").touch()
    assert find_project(tmp_path / "a") == tmp_path


def test_prepare_hides_the_folder_from_others_and_from_git(root):
    root.prepare()
    root.prepare()
    assert stat.S_IMODE(root.path.stat().st_mode) == 0o700
    assert (root.path / ".gitignore").read_text() == "*\n"


def test_prepare_says_what_is_in_the_way(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ForbiddenError, match="cannot be made"):
        StateRoot(tmp_path / "file" / ".weft").prepare()


@pytest.mark.parametrize("id", ["", "..", ".", "a/b", "/etc", "a\0b", ".hidden"])
def test_an_id_is_never_a_path(root, id):
    with pytest.raises(ForbiddenError):
        root.folder(id)


# ---------------------------------------------------------------------------------------------------- run folders


def test_a_run_folder_is_owned_until_it_is_released(root):
    folder = RunFolder.create(root, "run-000001")
    assert owned(folder.path)
    with pytest.raises(ConflictError, match="another process"):
        RunFolder.create(root, "run-000001")
    folder.release()
    folder.release()
    assert not owned(folder.path)
    assert folder.logs.is_dir()
    assert folder.outputs.is_dir()


def test_a_killed_owner_owns_nothing(root):
    code = (
        "import sys; from pathlib import Path; from weft.store.state import RunFolder, StateRoot\n"
        "folder = RunFolder.create(StateRoot(Path(sys.argv[1])), 'run-000001')\n"
        "print('ready', flush=True); sys.stdin.read()"
    )
    env = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    with subprocess.Popen(
        [sys.executable, "-c", code, str(root.path)], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        assert owned(root.folder("run-000001"))
        process.kill()
    assert not owned(root.folder("run-000001"))


def test_folders_that_the_store_owns_are_taken_over(root, tmp_path):
    with RunFolders("run-000001", tmp_path, root.path, durable=True) as folders:
        folder = RunFolder.create(root, "run-000001", folders=folders)
        assert folder.path == root.folder("run-000001")
        folder.release()
        assert owned(folder.path), "the lock is the store's"


def test_orders_go_to_the_driver_of_the_last_owner(root, monkeypatch):
    monkeypatch.setattr(state, "_driver", [])
    note = root.folder("run-000001") / DRIVER
    for driver in ("first", "second"):
        use_driver(driver)
        RunFolder.create(root, "run-000001").release()
        assert note.read_text() == driver
    state._driver.clear()  # another process, without one
    RunFolder.create(root, "run-000001").release()
    assert not note.exists()


DRIVEN = """
import os, sys
from pathlib import Path
from weft.store.state import RunFolder, StateRoot, use_driver

use_driver("here")
child = os.fork()
RunFolder.create(StateRoot(Path(sys.argv[1])), "of a task" if child == 0 else "of the process")
if child == 0:
    os._exit(0)
sys.exit(os.waitpid(child, 0)[1])
"""


def test_a_fork_of_a_driven_process_has_no_driver(root):
    subprocess.run([sys.executable, "-c", DRIVEN, root.path], check=True)
    assert [note.parent.name for note in root.path.rglob(DRIVER)] == ["of the process"]


def test_a_description_is_written_once(root):
    with RunFolder.create(root, "run-000001") as folder:
        folder.describe(name="täst", parameters={"a": [1, None]})
        assert read_description(folder.path) == {
            "version": 1,
            "id": "run-000001",
            "name": "täst",
            "parameters": {"a": [1, None]},
            "identity": identity_of(folder.path),
        }
        with pytest.raises(ConflictError, match="already"):
            folder.describe(name="other")
        assert read_description(folder.path)["name"] == "täst"
        assert sorted(path.name for path in folder.path.iterdir()) == ["logs", "outputs", "owner.lock", "run.json"]


@pytest.mark.parametrize("text", ["", "[]", "{", '{"version": "x"}', '{"version": 99}'])
def test_a_description_that_cannot_be_read_says_so(root, text):
    with RunFolder.create(root, "run-000001") as folder:
        (folder.path / "run.json").write_text(text)
        with pytest.raises(ConflictError, match=r"damaged|another version"):
            read_description(folder.path)


def test_no_description(root):
    with RunFolder.create(root, "run-000001") as folder, pytest.raises(NotFoundError):
        read_description(folder.path)


def test_logs_are_told_apart(root):
    with RunFolder.create(root, "run-000001") as folder:
        asked = [
            ("train", None, 0),
            ("train", None, 1),
            ("train", 3, 1),
            ("a.b", None, 0),
            ("a", 1, 0),
            ("x/y", None, 10),
        ]
        for step, index, attempt in asked:
            folder.log_path(step, index, attempt).touch()
        (folder.logs / "plain.log").touch()
        (folder.logs / "notes.txt").touch()
        found = [(log.step, log.index, log.attempt) for log in list_logs(folder.path)]
        key = lambda log: (log[0], -1 if log[1] is None else log[1], log[2])  # noqa: E731 - one line, used twice
        assert found == sorted([*asked, ("plain", None, 0)], key=key)
        assert all(path.parent == folder.logs for path in (folder.log_path("../../x"), folder.log_path("/etc/passwd")))
    assert list_logs(root.folder("none")) == []


def test_a_file_in_the_place_of_the_state_folder_is_told(tmp_path):
    (tmp_path / ".weft").write_text("")
    with pytest.raises(ConflictError, match="is not a folder") as told:
        StateRoot.find(tmp_path)
    assert "--state-dir" in told.value.hint
    assert StateRoot.find(tmp_path, override=tmp_path / "other").path == tmp_path / "other"
