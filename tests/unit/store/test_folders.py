"""Who owns a folder, what is swept, and that no user's path leads out of its root."""

import os
import subprocess
import sys
import tempfile
import threading
from contextlib import closing

import pytest

from tests.started import start
from weft.model.errors import ConflictError, ForbiddenError, NotFoundError, UsageError
from weft.store import folders
from weft.store.folders import (
    OpenFolders,
    OwnerLock,
    RunFolders,
    is_owned,
    remove_folder,
    safe_open,
    sweep,
    sweep_runs,
    user_root,
)


@pytest.fixture
def roots(tmp_path):
    (tmp_path / "shm").mkdir()
    return tmp_path / "shm", tmp_path / "state"


def shm_of(root, run_id):
    return root / f"weft-{os.getuid()}" / run_id


# ---------------------------------------------------------------------------------------------------------- ownership


def test_run_folders_are_private_and_vanish(roots):
    with RunFolders("run-1", *roots) as run:
        assert run.shm == shm_of(roots[0], "run-1")
        assert run.state == roots[1] / "runs" / "run-1"
        for folder in (run.shm, run.shm.parent, run.state, run.spill):
            assert folder.stat().st_mode & 0o777 == 0o700
        assert is_owned(run.shm)
        assert is_owned(run.state)
        (run.spill / "chunk").write_bytes(b"x")
    run.close()
    assert list(run.shm.parent.iterdir()) == []
    assert list(run.state.parent.iterdir()) == []


def test_a_durable_run_leaves_its_state(roots):
    with RunFolders("run-1", *roots, durable=True) as run:
        (run.spill / "chunk").write_bytes(b"x")
        (run.state / "journal").write_bytes(b"x")
    assert sorted(path.name for path in run.state.iterdir()) == ["journal", "owner.lock"]
    assert not is_owned(run.state)
    with RunFolders("run-1", *roots, durable=True) as again:
        assert (again.state / "journal").exists()


@pytest.mark.parametrize("run_id", ["", "..", ".hidden", "a/b", "x" * 129, "a\0b", "-flag", "ü"])
def test_run_ids_that_are_no_names(roots, run_id):
    with pytest.raises(UsageError, match="cannot name a run"):
        RunFolders(run_id, *roots)


def test_a_run_has_one_owner(roots, monkeypatch):
    monkeypatch.setattr(folders, "_TRIES", 2)
    with RunFolders("run-1", *roots) as run:
        with pytest.raises(ConflictError, match="in use by another process"):
            RunFolders("run-1", *roots)
        assert is_owned(run.shm)
    RunFolders("run-1", *roots).close()


def test_half_made_folders_are_given_up(roots, monkeypatch):
    monkeypatch.setattr(folders, "_TRIES", 2)
    lock = OwnerLock(user_root(roots[0]) / "run-1")
    with pytest.raises(ConflictError):
        RunFolders("run-1", *roots)
    assert not is_owned(roots[1] / "runs" / "run-1")
    lock.release()
    lock.release()


def test_others_folders_are_refused(roots):
    name = f"weft-{os.getuid()}"
    (roots[0] / "elsewhere").mkdir()
    (roots[0] / name).symlink_to(roots[0] / "elsewhere")
    with pytest.raises(ForbiddenError, match="not a folder of this user"):
        user_root(roots[0])
    assert sweep(roots[0]) == []
    (roots[0] / name).unlink()
    (roots[0] / name).write_bytes(b"")
    with pytest.raises(ForbiddenError):
        user_root(roots[0])
    (roots[0] / name).unlink()
    (roots[0] / name).mkdir(mode=0o777)
    (roots[0] / name).chmod(0o777)
    assert user_root(roots[0]).stat().st_mode & 0o777 == 0o700


def test_a_lock_is_not_inherited_by_a_fork(roots):
    lock = OwnerLock(user_root(roots[0]) / "run-1")
    down, up = os.pipe(), os.pipe()
    child = os.fork()
    if not child:
        os.write(up[1], b"x")
        os.read(down[0], 1)
        os._exit(0)
    os.read(up[0], 1)
    assert is_owned(lock.folder)
    lock.release()
    assert not is_owned(lock.folder)
    os.write(down[1], b"x")
    os.waitpid(child, 0)
    for fd in (*down, *up):
        os.close(fd)


OWNER = """
import sys
from pathlib import Path
from weft.store.folders import RunFolders
run = RunFolders(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
(run.shm / "segment").write_bytes(b"x" * 10)
(run.spill / "chunk").write_bytes(b"x" * 10)
print("ready", flush=True)
sys.stdin.read()
"""


def owner(run_id, roots):
    process = start(
        [sys.executable, "-c", OWNER, run_id, *map(str, roots)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    return process


def kill(process):
    process.kill()
    process.wait()
    process.stdin.close()
    process.stdout.close()


def test_only_the_dead_are_swept(roots):
    dead, alive, kept = (owner(run_id, roots) for run_id in ("dead", "alive", "kept"))
    kill(dead)
    kill(kept)
    (shm_of(roots[0], "no-lock-yet")).mkdir()
    (shm_of(roots[0], ".trash-old-1")).mkdir()
    (shm_of(roots[0], "a-file")).write_bytes(b"")
    assert sweep(roots[0]) == ["dead", "kept", "no-lock-yet"]
    assert sweep(roots[0]) == []
    assert sorted(path.name for path in shm_of(roots[0], "").iterdir()) == ["a-file", "alive"]
    assert (shm_of(roots[0], "alive") / "segment").exists()
    assert sweep_runs(roots[1], resumable=lambda folder: folder.name == "kept") == ["dead"]
    runs = roots[1] / "runs"
    assert sorted(path.name for path in runs.iterdir()) == ["alive", "kept"]
    assert not (runs / "kept" / "spill").exists()
    assert (runs / "alive" / "spill" / "chunk").exists()
    kill(alive)
    assert sweep(roots[0]) == ["alive"]


def test_nothing_to_sweep(roots):
    assert sweep(roots[0]) == []
    assert sweep_runs(roots[1], resumable=lambda folder: True) == []


def test_making_and_sweeping_at_the_same_time(roots):
    """A run that is being made is never swept once it is owned, however the two interleave."""
    stop = threading.Event()
    swept = []

    def keep_sweeping():
        while not stop.is_set():
            swept.extend(sweep(roots[0]))
            sweep_runs(roots[1], resumable=lambda folder: False)

    sweepers = [threading.Thread(target=keep_sweeping) for _ in range(2)]
    for thread in sweepers:
        thread.start()
    try:
        for i in range(50):
            with RunFolders(f"run-{i % 3}", *roots) as run:
                (run.shm / "segment").write_bytes(b"x")
                (run.spill / "chunk").write_bytes(b"x")
                assert is_owned(run.shm)
                assert (run.shm / "segment").exists()
                assert (run.spill / "chunk").exists()
    finally:
        stop.set()
        for thread in sweepers:
            thread.join(180)
    assert not any(path.name.startswith("run-") for path in shm_of(roots[0], "").iterdir())


def test_shared_memory_falls_back_to_a_temporary_folder(monkeypatch):
    assert folders.shm_root().is_dir()
    monkeypatch.setattr(folders, "_SHM_ENOUGH", 1 << 62)
    assert str(folders.shm_root()) != "/dev/shm"


def test_a_sweep_of_a_temporary_folder_leaves_the_state_of_living_runs(monkeypatch, tmp_path):
    monkeypatch.setattr(folders, "_SHM_ENOUGH", 1 << 62)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with RunFolders("alive", folders.shm_root(), user_root(tmp_path)) as run:
        sweep(folders.shm_root())
        assert is_owned(run.state)
        assert is_owned(run.shm)
        assert run.spill.is_dir()


# ---------------------------------------------------------------------------------------------------------- safe open


@pytest.fixture
def tree(tmp_path):
    root = tmp_path / "root"
    (root / "sub").mkdir(parents=True)
    (root / "sub" / "file").write_text("inside")
    (tmp_path / "secret").write_text("outside")
    (root / "link").symlink_to(tmp_path / "secret")
    (root / "linked").symlink_to(tmp_path)
    (root / "inner").symlink_to("sub/file")
    os.mkfifo(root / "pipe")
    return root


def test_safe_open_reads_and_writes(tree):
    with safe_open(tree, "sub", "file") as file:
        assert file.read() == "inside"
    with safe_open(str(tree), "sub/file", mode="rb") as file:
        assert file.read() == b"inside"
    with safe_open(tree, "sub/file", mode="w") as file:
        file.write("ü")
    with safe_open(tree, "sub/file", mode="ab") as file:
        file.write(b"!")
    assert (tree / "sub" / "file").read_text(encoding="utf-8") == "ü!"
    with safe_open(tree, "new", "deep", "file", mode="xb", make_folders=True) as file:
        file.write(b"1")
    with pytest.raises(ConflictError, match="exists"):
        safe_open(tree, "new/deep/file", mode="x")
    assert (tree / "new/deep/file").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "parts",
    [
        (),
        ("",),
        ("..", "secret"),
        ("sub/../../secret",),
        ("sub", "..", "sub", "file"),
        ("/etc/passwd",),
        ("sub", "/etc/passwd"),
        (".",),
        ("./sub/file",),
        ("sub//file",),
        ("sub/file/",),
        ("a\0b",),
        ("link",),
        ("linked", "secret"),
        ("inner",),
        ("sub",),
        ("pipe",),
        ("sub/file/below",),
        ("x" * 300,),
    ],
)
@pytest.mark.parametrize("mode", ["r", "wb", "a"])
def test_safe_open_refuses_what_leads_out(tree, parts, mode):
    with pytest.raises(ForbiddenError):
        safe_open(tree, *parts, mode=mode)
    assert (tree.parent / "secret").read_text() == "outside"


def test_safe_open_says_what_is_missing(tree):
    for parts in (("nothing",), ("nothing", "below")):
        with pytest.raises(NotFoundError, match="/".join(parts)):
            safe_open(tree, *parts)
    with pytest.raises(UsageError, match="mode"):
        safe_open(tree, "sub/file", mode="r+")
    with pytest.raises(UsageError, match="mode"):
        safe_open(tree, "sub/file", mode="")


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_safe_open_leaks_no_descriptor(tree):
    before = len(os.listdir("/proc/self/fd"))
    for parts in (("link",), ("pipe",), ("sub",), ("nothing", "below"), ("linked", "x")):
        with pytest.raises((ForbiddenError, NotFoundError)):
            safe_open(tree, *parts)
    safe_open(tree, "sub/file").close()
    assert len(os.listdir("/proc/self/fd")) == before


class TestOpenFolders:
    def test_folders_beside_each_other_are_made(self, tmp_path):
        with closing(OpenFolders()) as folders:
            found = [folders.make(str(tmp_path), ["a", "b", name]) for name in ("one", "two", "one")]
            assert [new for _, new in found] == [True, True, False]
            assert os.path.sameopenfile(found[0][0], found[2][0])
            elsewhere, new = folders.make(str(tmp_path), ["c"])
            assert new
            for fd in (elsewhere, *(fd for fd, _ in found)):
                os.close(fd)
        assert sorted(path.name for path in (tmp_path / "a" / "b").iterdir()) == ["one", "two"]
        assert (tmp_path / "c").is_dir()

    def test_what_they_lie_in_stays_open(self, tmp_path):
        with closing(OpenFolders()) as folders:
            os.close(folders.make(str(tmp_path), ["a", "one"])[0])
            (tmp_path / "a").rename(tmp_path / "b")
            os.close(folders.make(str(tmp_path), ["a", "two"])[0])
            assert (tmp_path / "b" / "two").is_dir()
            folders.close()
            os.close(folders.make(str(tmp_path), ["a", "three"])[0])
        assert (tmp_path / "a" / "three").is_dir()

    def test_no_names_mean_the_root(self, tmp_path):
        with closing(OpenFolders()) as folders:
            fd, new = folders.make(str(tmp_path), [])
        assert os.path.samestat(os.fstat(fd), tmp_path.stat())
        assert not new
        os.close(fd)

    @pytest.mark.parametrize("names", [["a", "link"], ["link", "a"]])
    def test_no_link_is_followed(self, tmp_path, names):
        (tmp_path / "elsewhere").mkdir()
        (tmp_path / "a").mkdir()
        for at in (tmp_path, tmp_path / "a"):
            (at / "link").symlink_to(tmp_path / "elsewhere")
        with closing(OpenFolders()) as folders, pytest.raises(OSError, match=r"Not a directory|symbolic links"):
            folders.make(str(tmp_path), names)

    @pytest.mark.parametrize("names", [["..", "a"], ["a", ".."], ["."], [""]])
    def test_only_plain_names_are_taken(self, tmp_path, names):
        with closing(OpenFolders()) as folders, pytest.raises(ForbiddenError):
            folders.make(str(tmp_path), names)


# ------------------------------------------------------------------------------------------------------------ removal


def test_a_removed_folder_leaves_what_its_links_lead_to(tmp_path):
    (tmp_path / "kept" / "inner").mkdir(parents=True)
    (tmp_path / "gone" / "sub").mkdir(parents=True)
    (tmp_path / "gone" / "link").symlink_to(tmp_path / "kept")
    (tmp_path / "gone" / "sub" / "link").symlink_to(tmp_path / "kept" / "inner")
    remove_folder(tmp_path / "gone")
    assert [path.name for path in tmp_path.rglob("*")] == ["kept", "inner"]
