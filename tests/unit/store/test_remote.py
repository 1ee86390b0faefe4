"""Copies of folders that lie elsewhere: what is fetched, what is sent, who may change them, and what goes wrong."""

import builtins
import fcntl
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.objects import Objects
from weft.model.errors import (
    ConflictError,
    DiskFullError,
    ForbiddenError,
    MissingExtraError,
    NotFoundError,
    UsageError,
)
from weft.store.remote import Fetched, Remote, folder_for, shown

URL = "objects://bucket/base"


@pytest.fixture
def objects() -> Iterator[type[Objects]]:
    for name, content in (
        ("a.txt", b"a"),
        ("sub/b.txt", b"bb"),
        ("sub/deep/c", b"ccc"),
        (".pipeline/run-000001/x", b"x"),
    ):
        Objects().pipe_file(f"/bucket/base/{name}", content)
    Objects.fetched.clear()
    Objects.sent.clear()
    yield Objects
    Objects.clear()


@pytest.fixture
def remote(objects, tmp_path) -> Remote:
    return Remote(URL, tmp_path / "copy")


def fetch(remote: Remote, *below: str) -> Fetched:
    done, release = remote.hold(below or [""])
    release()
    return done


def here(remote: Remote) -> dict[str, str]:
    files = remote.files.rglob("*")
    return {str(path.relative_to(remote.files)): path.read_text() for path in files if path.is_file()}


class TestFetching:
    def test_what_is_there_is_fetched_but_no_outputs(self, remote):
        assert fetch(remote) == Fetched(3, 6, 0)
        assert here(remote) == {"a.txt": "a", "sub/b.txt": "bb", "sub/deep/c": "ccc"}

    def test_only_the_parts_that_are_asked_for(self, remote):
        assert fetch(remote, "sub/deep", "a.txt").files == 2
        assert here(remote) == {"a.txt": "a", "sub/deep/c": "ccc"}
        assert fetch(remote, "sub", "sub/deep").files == 1

    def test_the_same_is_not_fetched_twice_nor_touched(self, remote, objects):
        fetch(remote)
        before = {name: os.stat(remote.files / name) for name in here(remote)}
        objects().pipe_file("/bucket/base/a.txt", b"a")  # written again, later, with the same content
        assert fetch(remote) == Fetched()
        assert len(objects.fetched) == 3
        assert {name: os.stat(remote.files / name) for name in before} == before

    def test_what_has_changed_is(self, remote, objects):
        fetch(remote)
        objects().pipe_file("/bucket/base/sub/b.txt", b"BB")
        assert fetch(remote) == Fetched(1, 2, 0)
        assert here(remote)["sub/b.txt"] == "BB"

    def test_what_was_changed_here_is_fetched_again_and_what_is_not_there_goes(self, remote, objects):
        fetch(remote)
        (remote.files / "a.txt").write_text("other")
        (remote.files / "stray").touch()
        (remote.files / ".pipeline").mkdir()
        (remote.files / ".pipeline" / "kept").write_text("output")
        objects().rm("/bucket/base/sub/deep/c")
        assert fetch(remote) == Fetched(1, 1, 2)
        assert here(remote) == {"a.txt": "a", "sub/b.txt": "bb", ".pipeline/kept": "output"}

    def test_a_folder_may_become_a_file(self, remote, objects):
        fetch(remote)
        objects().rm("/bucket/base/sub", recursive=True)
        objects().pipe_file("/bucket/base/sub", b"file")
        fetch(remote)
        assert here(remote) == {"a.txt": "a", "sub": "file"}

    def test_a_store_without_etags_is_asked_for_times(self, tmp_path):
        (tmp_path / "there").mkdir()
        (tmp_path / "there" / "x").write_text("1")
        remote = Remote(f"local://{tmp_path}/there", tmp_path / "copy")
        assert fetch(remote).files == 1
        assert fetch(remote).files == 0
        os.utime(tmp_path / "there" / "x", (1, 1))
        assert fetch(remote).files == 1

    def test_a_damaged_manifest_means_that_all_is_fetched(self, remote):
        fetch(remote)
        (remote.folder / "manifest.json").write_text("{")
        assert fetch(remote).files == 3

    def test_a_resume_takes_the_copy_as_it_is(self, remote, objects):
        fetch(remote)
        objects().pipe_file("/bucket/base/a.txt", b"new")
        done, release = remote.hold([""], fetch=False)
        release()
        assert (done, here(remote)["a.txt"]) == (Fetched(), "a")


class TestSharing:
    def test_several_runs_may_hold_it(self, remote):
        fetch(remote)
        _, one = remote.hold([""])
        _, two = remote.hold([""])
        one()
        two()

    def test_it_does_not_change_under_a_run(self, remote, objects):
        _, release = remote.hold([""])
        objects().pipe_file("/bucket/base/a.txt", b"new")
        with pytest.raises(ConflictError, match="another run works in the copy"):
            remote.hold([""])
        assert here(remote)["a.txt"] == "a"
        release()
        assert fetch(remote).files == 1

    def test_nothing_holds_it_after_an_error(self, remote, objects):
        objects.error = OSError("no network")
        with pytest.raises(ForbiddenError):
            remote.hold([""])
        with (remote.folder / "lock").open() as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)


class TestSending:
    def test_outputs_are_sent_whole(self, remote, objects):
        fetch(remote)
        out = remote.files / ".pipeline" / "run-000002" / "p" / "s"
        (out / "folder" / "deep").mkdir(parents=True)
        (out / "file").write_text("1")
        (out / "folder" / "deep" / "x").write_text("2")
        (out / "folder" / "link").symlink_to("deep")
        links = remote.publish([str(out / "file"), str(out / "folder"), str(out / "missing")])
        assert links == [str(out / "folder" / "link")]
        assert sorted(objects.sent) == [
            "/bucket/base/.pipeline/run-000002/p/s/file",
            "/bucket/base/.pipeline/run-000002/p/s/folder/deep/x",
        ]
        assert remote.names(".pipeline") == {"run-000001", "run-000002"}
        assert remote.names("nowhere") == set()

    def test_what_steps_wrote_is_given_back_once(self, remote, objects):
        fetch(remote)
        (remote.files / "a.txt").write_text("changed")
        (remote.files / "sub" / "new").write_text("new")
        (remote.files / "sub" / "link").symlink_to("new")
        assert remote.give_back(["sub"]) == 1
        assert remote.give_back([""]) == 1
        assert objects().cat_file("/bucket/base/a.txt") == b"changed"
        assert objects().cat_file("/bucket/base/sub/new") == b"new"
        assert fetch(remote) == Fetched(0, 0, 1)  # the link, which no store has


class TestWhatGoesWrong:
    @pytest.mark.parametrize(
        ("error", "kind"),
        [
            (FileNotFoundError("bucket"), NotFoundError),
            (PermissionError(13, "Permission denied"), ForbiddenError),
            (OSError(28, "No space left on device"), DiskFullError),
            (RuntimeError("of the library of a store"), ForbiddenError),
        ],
    )
    def test_errors_name_the_store(self, remote, objects, error, kind):
        objects.error = error
        with pytest.raises(kind, match="objects://bucket/base cannot be listed"):
            remote.hold([""])

    @pytest.mark.parametrize("name", ["../out", "x/../../out", "a//b"])
    def test_names_cannot_lead_elsewhere(self, remote, objects, name):
        class Odd:
            def find(self, path: str, detail: bool) -> dict[str, Any]:
                return {f"{path}/{name}": {"type": "file", "size": 1, "ETag": "1"}}

            def invalidate_cache(self) -> None:
                pass

        remote._fs = Odd()
        with pytest.raises(ConflictError, match="a file name that this machine does not allow"):
            remote.hold([""])

    def test_a_link_in_the_copy_leads_nothing_astray(self, remote, tmp_path):
        (tmp_path / "outside").mkdir()
        remote.files.mkdir(parents=True)
        (remote.files / "sub").symlink_to(tmp_path / "outside")
        with pytest.raises(ForbiddenError):
            remote.hold([""])
        assert not list((tmp_path / "outside").iterdir())

    def test_fsspec_is_an_extra(self, monkeypatch, tmp_path):
        real = builtins.__import__

        def missing(name: str, *rest: Any) -> Any:
            if name.startswith("fsspec"):
                raise ModuleNotFoundError(name)
            return real(name, *rest)

        monkeypatch.setattr(builtins, "__import__", missing)
        with pytest.raises(MissingExtraError, match=r"needs fsspec(.|\n)*pip install 'weft\[fs\]'"):
            Remote(URL, tmp_path)

    def test_so_is_what_it_needs_for_a_store(self, tmp_path, monkeypatch):
        def missing(url: str) -> Any:
            raise ImportError("Install s3fs to access S3")

        monkeypatch.setattr("fsspec.core.url_to_fs", missing)
        with pytest.raises(MissingExtraError, match="Install s3fs"):
            Remote("s3://bucket", tmp_path)

    def test_an_unknown_kind_of_url_is_said(self, tmp_path):
        with pytest.raises(UsageError, match="nosuch://x is not a file system"):
            Remote("nosuch://x", tmp_path)


def test_secrets_of_a_url_are_not_shown():
    assert shown("sftp://me:secret@host/x?token=1") == "sftp://...@host/x"


def test_each_url_has_a_folder_of_its_own():
    assert folder_for("s3://a", Path("/s")) != folder_for("s3://b", Path("/s"))
    assert folder_for("s3://a", Path("/s")).parent == Path("/s")


def test_a_manifest_tells_what_the_store_said(remote):
    fetch(remote, "a.txt")
    said = json.loads((remote.folder / "manifest.json").read_text())
    assert list(said) == ["a.txt"]
    assert said["a.txt"][0].startswith('ETag "')
    assert not (remote.folder / "incoming").exists()
