"""The content of results: kept once, put in place, verified, and swept."""

import os
import shutil
import stat
from contextlib import closing
from pathlib import Path

import pytest

from weft.model.errors import DiskFullError, ForbiddenError, NotFoundError
from weft.store import content
from weft.store.content import ContentStore
from weft.store.entries import CachedOutput, CacheIndex
from weft.store.folders import OpenFolders


def put(store: ContentStore, output: CachedOutput, root: str, path: str) -> None:
    with closing(OpenFolders()) as folders:
        store.put(output, root, path, folders)


@pytest.fixture
def index(tmp_path):
    index = CacheIndex(tmp_path / "state" / "cache.db")
    yield index
    index.close()


@pytest.fixture(params=["copies", "links"])
def store(request, tmp_path, index):
    return ContentStore(tmp_path / "cas", index, share=request.param == "links", copied=-1)


@pytest.fixture
def artifact(tmp_path):
    folder = tmp_path / "artifact"
    (folder / "sub").mkdir(parents=True)
    (folder / "a").write_text("one")
    (folder / "same").write_text("one")
    (folder / "sub" / "run").write_text("two")
    (folder / "sub" / "run").chmod(0o755)
    (folder / "sub" / "up").symlink_to("../a")
    return folder


@pytest.fixture
def usual_mask():
    before = os.umask(0o022)
    yield
    os.umask(before)


def kept(store: ContentStore) -> list[Path]:
    return sorted(store.folder.glob("objects/*/*"))


def test_holes_of_a_file_take_no_room_in_the_cache(tmp_path, index):
    size = (64 << 20) + 3
    for name, text in {"end": b"", "middle": b"text"}.items():
        with open(tmp_path / name, "wb") as file:
            file.write(b"begin")
            file.seek(32 << 20)
            file.write(text)
            file.truncate(size)
    if (tmp_path / "end").stat().st_blocks * 512 >= size:
        pytest.skip("the file system of the temporary folder has no holes")
    store = ContentStore(tmp_path / "cas", index, share=False)
    for name in ("end", "middle"):
        put(store, store.keep(f"{tmp_path}/{name}"), str(tmp_path), f"{tmp_path}/copies/{name}")
        assert (tmp_path / "copies" / name).read_bytes() == (tmp_path / name).read_bytes()
    files = [*kept(store), *(tmp_path / "copies").iterdir()]
    assert len(files) == 4
    assert all(file.stat().st_blocks * 512 < 8 << 20 for file in files)


def test_a_folder_comes_back_as_it_was(store, artifact, tmp_path):
    output = store.keep(str(artifact))
    assert (output.size, output.files) == (9, 3)
    assert len(kept(store)) == 2
    put(store, output, str(tmp_path), f"{tmp_path}/new/deep/copy")
    copy = tmp_path / "new" / "deep" / "copy"
    assert (copy / "a").read_text() == (copy / "same").read_text() == "one"
    assert os.readlink(copy / "sub" / "up") == "../a"
    assert os.access(copy / "sub" / "run", os.X_OK)
    assert not os.access(copy / "a", os.X_OK)
    assert store.keep(str(copy)).digest == output.digest
    assert sorted(os.listdir(tmp_path / "new" / "deep")) == ["copy"]


def test_what_lies_there_is_replaced(store, artifact, tmp_path):
    output = store.keep(str(artifact / "a"))
    target = tmp_path / "out" / "x"
    for make in (lambda: target.mkdir(), lambda: target.symlink_to("/etc/hostname"), lambda: target.write_text("old")):
        target.parent.mkdir(exist_ok=True)
        make()
        put(store, output, str(tmp_path), str(target))
        assert target.read_text() == "one"
        assert not target.is_symlink()
        target.unlink()


def test_no_link_on_the_way_is_followed(store, artifact, tmp_path):
    output = store.keep(str(artifact / "a"))
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out").symlink_to("elsewhere")
    with pytest.raises(ForbiddenError):
        put(store, output, str(tmp_path), f"{tmp_path}/out/x")
    assert not list((tmp_path / "elsewhere").iterdir())


def test_a_shared_file_is_read_only(tmp_path, index, artifact):
    store = ContentStore(tmp_path / "cas", index, share=True, copied=2)
    output = store.keep(str(artifact / "a"))
    put(store, output, str(tmp_path), f"{tmp_path}/x")
    found = (tmp_path / "x").stat()
    if found.st_ino == kept(store)[0].stat().st_ino:  # no clones here
        assert stat.S_IMODE(found.st_mode) & 0o222 == 0


@pytest.mark.parametrize("name", ["a", ""])
@pytest.mark.parametrize("files", [0, 300])
def test_an_artifact_is_copied_so_that_no_edit_reaches_another_run(tmp_path, index, artifact, name, files):
    store = ContentStore(tmp_path / "cas", index, share=True)
    for number in range(files):
        (artifact / f"more-{number}").write_text("")
    edited = artifact / "a"
    output = store.keep(str(artifact / name))
    put(store, output, str(tmp_path), f"{tmp_path}/x")
    put(store, output, str(tmp_path), f"{tmp_path}/y")
    for path in (edited, tmp_path / "x" / "a" if not name else tmp_path / "x"):
        assert os.access(path, os.W_OK)
        path.chmod(0o644)
        with path.open("a") as file:
            file.write("more")
    assert store.problem(output) == ""
    assert (tmp_path / "y" / "a" if not name else tmp_path / "y").read_text() == "one"


def test_a_large_file_is_copied_so_that_a_step_can_change_its_copy_of_it(tmp_path, index):
    large = tmp_path / "db"
    with large.open("wb") as file:
        file.truncate((16 << 20) + 1)
    store = ContentStore(tmp_path / "cas", index, share=True)
    put(store, store.keep(str(large)), str(tmp_path), f"{tmp_path}/again")
    for path in (large, tmp_path / "again"):
        assert stat.S_IMODE(shutil.copy(path, tmp_path / "copy") and (tmp_path / "copy").stat().st_mode) & 0o200
        (tmp_path / "copy").unlink()


def test_very_many_files_are_not_copied(tmp_path, index, monkeypatch):
    monkeypatch.setattr(content, "COPIED_FILES", 8)
    folder = tmp_path / "many"
    folder.mkdir()
    for number in range(9):
        (folder / str(number)).write_text(str(number))
    store = ContentStore(tmp_path / "cas", index, share=True)
    put(store, store.keep(str(folder)), str(tmp_path), f"{tmp_path}/x")
    about = (tmp_path / "x" / "1").stat()
    assert about.st_nlink == 3 or store._no_clones == set()  # else clones


def test_a_copy_is_a_file_of_its_own(tmp_path, index, artifact):
    store = ContentStore(tmp_path / "cas", index, share=False)
    output = store.keep(str(artifact / "a"))
    put(store, output, str(tmp_path), f"{tmp_path}/x")
    with (tmp_path / "x").open("a") as file:
        file.write("more")
    assert store.problem(output) == ""
    assert (artifact / "a").read_text() == "one"


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (lambda path: path.unlink(), "is gone"),
        (lambda path: (path.chmod(0o644), path.write_text("two")), "was changed"),
        (lambda path: (path.chmod(0o644), path.write_text("")), "was changed"),
    ],
)
def test_harm_is_seen(store, artifact, harm, said):
    output = store.keep(str(artifact / "a"))
    assert store.problem(output) == ""
    [path] = kept(store)
    before = path.stat()
    harm(path)
    if path.exists():
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert said in store.problem(output)
    assert said in store.problem(output), "the second answer is the first"


def test_a_listing_that_is_gone_is_seen(store, artifact, index):
    output = store.keep(str(artifact))
    index.flush()
    index.forget_trees(lambda entries, claims: ())
    assert "no longer known" in store.problem(output)


def test_what_cannot_be_kept(store, artifact, tmp_path):
    with pytest.raises(NotFoundError, match="does not exist"):
        store.keep(str(tmp_path / "none"))
    os.mkfifo(artifact / "pipe")
    with pytest.raises(ForbiddenError, match="neither a file nor a folder"):
        store.keep(str(artifact))
    (artifact / "pipe").unlink()
    (artifact / "out").symlink_to("../elsewhere")
    with pytest.raises(ForbiddenError, match="leads out"):
        store.keep(str(artifact))


def test_a_full_disk_leaves_nothing_behind(tmp_path, index, artifact, monkeypatch):
    store = ContentStore(tmp_path / "cas", index, share=False)
    own = os.write

    def full(fd: int, data: bytes) -> int:
        if len(data) == 3:
            raise OSError(28, "No space left on device")
        return own(fd, data)

    monkeypatch.setattr(os, "write", full)
    monkeypatch.setattr(store, "_clone", lambda *_: False)
    with pytest.raises(DiskFullError):
        store.keep(str(artifact / "a"))
    assert list((tmp_path / "cas" / "drafts").iterdir()) == []
    assert kept(store) == []


def test_sweeping_leaves_what_is_wanted(store, artifact):
    whole, single = store.keep(str(artifact)), store.keep(str(artifact / "a"))
    assert store.problem(whole) == ""
    with store.lock(exclusive=True):
        assert store.sweep(set(store.digests(single))) == (1, 3)
    assert store.problem(single) == ""
    assert "is gone" in store.problem(whole)
    assert store.size() == (1, 3)


@pytest.mark.usefixtures("usual_mask")
@pytest.mark.parametrize(
    ("file_mode", "folder_mode", "found"), [(0o600, 0o755, 0), (0o644, 0o700, 0), (0o640, 0o750, 0o50)]
)
def test_what_a_step_hides_from_other_users_stays_hidden(store, tmp_path, file_mode, folder_mode, found):
    """`found` is what the group and others may do with the folder."""
    source = tmp_path / "source"
    source.mkdir(folder_mode)
    source.chmod(folder_mode)
    (source / "key").write_text("secret")
    (source / "key").chmod(file_mode)
    (source / "open").write_text("open")
    output = store.keep(str(source))
    assert stat.S_IMODE(store.folder.stat().st_mode) == 0o700
    put(store, output, str(tmp_path), f"{tmp_path}/copy")
    assert stat.S_IMODE((tmp_path / "copy").stat().st_mode) & 0o77 == found
    assert (tmp_path / "copy" / "key").stat().st_mode & 0o77 & ~file_mode == 0, "a copy of the file stays hidden too"
    assert stat.S_IMODE((source / "key").stat().st_mode) & 0o77 == file_mode & 0o77
    single = store.keep(str(source / "key"))
    put(store, single, str(tmp_path), f"{tmp_path}/single")
    assert stat.S_IMODE((tmp_path / "single").stat().st_mode) & 0o77 == file_mode & 0o77


@pytest.mark.usefixtures("usual_mask")
def test_equal_content_is_as_open_as_each_step_left_it(store, tmp_path):
    for name, mode in (("open", 0o644), ("key", 0o600)):
        (tmp_path / name).write_text("the same")
        (tmp_path / name).chmod(mode)
    outputs = {name: store.keep(str(tmp_path / name)) for name in ("open", "key")}
    assert outputs["open"].digest == outputs["key"].digest
    assert len(kept(store)) == 1
    for name, allowed in (("open", 0o44), ("key", 0)):
        put(store, outputs[name], str(tmp_path), f"{tmp_path}/{name}2")
        assert stat.S_IMODE((tmp_path / f"{name}2").stat().st_mode) & 0o77 == allowed
