"""Paths that a state folder keeps, and the identity of folders."""

import os
import shutil
from pathlib import Path

import pytest

from weft.model.errors import ForbiddenError
from weft.store.places import StatePaths, has_identity, identity_of, is_inside, kept, owner_of, project_of, resolved


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("/a/p/run.yaml", "../run.yaml"),
        ("/a/p", ".."),
        ("/a/p/.weft/fs/x", "./fs/x"),
        ("/a/p/.weft", "."),
        ("/a", "../.."),
        ("/", "../../.."),
        ("/a/.pipeline/run-1/x", "../../.pipeline/run-1/x"),
        ("/a/q/x", "/a/q/x"),
        ("/a/pp/x", "/a/pp/x"),
        ("/data/.pipeline/run-1", "/data/.pipeline/run-1"),
        ("s3://b/p", "s3://b/p"),
        ("", ""),
        ("plain", "plain"),
    ],
)
def test_paths_inside_of_a_project_are_relative(path, text):
    assert StatePaths(Path("/a/p/.weft")).keep(path) == text
    assert StatePaths(Path("/a/p/.weft")).resolve(text) == path


def test_values_are_mapped_at_any_depth():
    value = {"a": ["/p/x", 1, None, {"b": "/p/y"}], "c": "/q"}
    text = kept(Path("/p/.weft"), value)
    assert text == {"a": ["../x", 1, None, {"b": "../y"}], "c": "/q"}
    assert resolved(Path("/r/.weft"), text) == {"a": ["/r/x", 1, None, {"b": "/r/y"}], "c": "/q"}


def test_the_project_ends_at_its_marks(tmp_path):
    deep = tmp_path / "p/a/b"
    deep.mkdir(parents=True)
    assert project_of(deep / ".weft") == deep
    assert project_of(deep / "state") == deep / "state"
    (tmp_path / "p/weft.toml").touch()
    assert project_of(deep / ".weft") == project_of(deep / "state") == tmp_path / "p"
    (tmp_path / "p/a/.git").mkdir()
    assert project_of(deep / ".weft") == tmp_path / "p/a"


def test_links_lead_out_of_a_project_and_into_it(tmp_path):
    (tmp_path / "p/.weft").mkdir(parents=True)
    (tmp_path / "q").mkdir()
    (tmp_path / "p/out").symlink_to(tmp_path / "q")
    (tmp_path / "link").symlink_to(tmp_path / "p")
    assert not is_inside(tmp_path / "p/out/x", tmp_path / "p")
    assert is_inside(tmp_path / "link/x", tmp_path / "p")
    assert StatePaths(tmp_path / "link/.weft").keep(str(tmp_path / "p/x")) == "../x"
    assert StatePaths(tmp_path / "p/.weft").keep(str(tmp_path / "link/x")) == "../x"
    assert StatePaths(tmp_path / "p/.weft").keep(str(tmp_path / "p/out/x")) == "../out/x"
    (tmp_path / "r").mkdir()
    (tmp_path / "r/.weft").symlink_to(tmp_path / "q")
    (tmp_path / "other").symlink_to(tmp_path / "r")
    assert StatePaths(tmp_path / "r/.weft").keep(str(tmp_path / "other/x")) == "../x"


def test_a_moved_folder_is_the_same_and_a_copied_one_is_not(tmp_path):
    (tmp_path / "a").mkdir()
    identity = identity_of(tmp_path / "a")
    assert has_identity(tmp_path / "a", identity)
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    assert not has_identity(tmp_path / "b", identity)
    (tmp_path / "link").symlink_to("a")
    assert has_identity(tmp_path / "link", identity)
    (tmp_path / "a").rename(tmp_path / "c")
    assert has_identity(tmp_path / "c", identity)
    assert not has_identity(tmp_path / "c", None)


def test_a_snapshot_is_a_copy_while_the_original_is_in_its_place(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "snapshot").mkdir()
    identity = {"path": str(tmp_path / "a"), "inode": os.stat(tmp_path / "snapshot").st_ino}
    assert not has_identity(tmp_path / "snapshot", identity)


def test_a_moved_state_folder_keeps_its_id_and_a_copy_gets_its_own(tmp_path):
    state = tmp_path / "a"
    assert owner_of(state) == ""
    state.mkdir()
    owner = owner_of(state)
    assert owner
    assert owner_of(state) == owner
    shutil.copytree(state, tmp_path / "copy")
    state.rename(tmp_path / "moved")
    assert owner_of(tmp_path / "moved") == owner
    assert owner_of(tmp_path / "copy") not in ("", owner)
    assert owner_of(tmp_path / "copy") == owner_of(tmp_path / "copy")


def test_an_id_that_was_torn_by_a_kill_is_made_again(tmp_path):
    owner_of(tmp_path)
    (file,) = tmp_path.iterdir()
    file.write_text(file.read_text()[:20])
    assert owner_of(tmp_path) == owner_of(tmp_path)


def test_an_id_is_not_written_through_a_link(tmp_path):
    (tmp_path / "owner.json").symlink_to(tmp_path / "other")
    with pytest.raises(ForbiddenError, match=r"owner\.json"):
        owner_of(tmp_path)
    assert not (tmp_path / "other").exists()
