"""A view of the file system: which mounts are asked for, in which order, and how a refusal is told.

The system calls go to a fake C library that writes them down; `tests/integration` has the true ones.
"""

import ctypes
import errno
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from weft.worker import mounting
from weft.worker.mounting import (
    MS_BIND,
    MS_NODEV,
    MS_NOSUID,
    MS_RDONLY,
    MS_REC,
    MS_REMOUNT,
    MountError,
    enter,
)

Call = tuple[bytes | None, bytes, int]
READ_ONLY = MS_REMOUNT | MS_BIND | MS_RDONLY


class FakeLibrary:
    """A C library that mounts nothing: `calls` has source, target and flags. `refused` is a target that fails."""

    def __init__(self, refused: bytes = b"") -> None:
        self.calls: list[Call] = []
        self.refused = refused

    def mount(self, source: bytes | None, target: bytes, kind: Any, flags: ctypes.c_ulong, data: Any) -> int:
        if target == self.refused:
            ctypes.set_errno(errno.EACCES)
            return -1
        self.calls.append((source, target, flags.value))
        return 0


@pytest.fixture
def library(monkeypatch) -> FakeLibrary:
    fake = FakeLibrary()
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: fake)
    monkeypatch.setattr(mounting, "separate_mounts", lambda _: None)
    monkeypatch.setattr(mounting, "_mounts_at", lambda path: [(path, b"rw,nosuid,relatime"), (path + b"/in", b"rw")])
    return fake


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("data", "other", "place"):
        (tmp_path / name).mkdir()
    (tmp_path / "data" / "file").write_text("x")
    (tmp_path / "data" / "sub").mkdir()
    (tmp_path / "data" / "link").symlink_to("file")
    return tmp_path


def at(folder: Path, name: str) -> bytes:
    return os.fsencode(folder / name)


class TestBinds:
    def test_a_folder_is_bound_with_what_is_mounted_in_it(self, library, folder):
        enter([], [], [(at(folder, "data"), at(folder, "place"), False)])
        ((source, target, flags),) = library.calls
        assert source is not None
        assert source.startswith(b"/proc/self/fd/"), "by a handle: an earlier mount may hide its path"
        assert (target, flags) == (at(folder, "place"), MS_BIND | MS_REC)

    def test_read_only_holds_for_all_that_is_mounted_in_it_and_keeps_their_flags(self, library, folder):
        enter([], [], [(at(folder, "data"), at(folder, "place"), True)])
        assert library.calls[1:] == [
            (None, at(folder, "place"), READ_ONLY | MS_NOSUID | mounting.MS_RELATIME),
            (None, at(folder, "place/in"), READ_ONLY),
        ]

    def test_sources_are_opened_before_anything_is_mounted(self, library, folder):
        binds = [(at(folder, "data"), at(folder, "place"), False), (at(folder, "none"), at(folder, "other"), False)]
        with pytest.raises(MountError) as caught:
            enter([], [], binds)
        assert (caught.value.stage, caught.value.errno) == (b"source " + at(folder, "none"), errno.ENOENT)
        assert library.calls == []

    def test_a_mount_that_is_refused_is_named(self, library, folder):
        library.refused = at(folder, "other")
        binds = [(at(folder, "data"), at(folder, name), False) for name in ("place", "other")]
        with pytest.raises(MountError, match="Permission denied") as caught:
            enter([], [], binds)
        assert caught.value.stage == b"mount " + at(folder, "other")
        assert [target for _, target, _ in library.calls] == [at(folder, "place")]


class TestMountPoints:
    def test_they_are_made_as_files_or_folders(self, library, folder):
        enter([], [(at(folder, "new"), True), (at(folder, "new/file"), False)], [])
        assert (folder / "new").is_dir()
        assert (folder / "new" / "file").read_bytes() == b""
        assert library.calls == []

    def test_one_that_is_there_is_not_made_again(self, library, folder):
        with pytest.raises(MountError) as caught:
            enter([], [(at(folder, "data/file"), False)], [])
        assert (caught.value.stage, caught.value.errno) == (b"mount " + at(folder, "data/file"), errno.EEXIST)
        assert (folder / "data" / "file").read_text() == "x"


class TestCopies:
    def test_a_copy_has_the_entries_of_its_folder_bound_and_is_read_only(self, library, folder):
        """With a library that mounts nothing the copy lies in the folder itself, whose entries are left out."""
        data = at(folder, "data")
        enter([data], [], [])
        assert library.calls[0] == (b"tmpfs", data, MS_NOSUID | MS_NODEV)
        assert library.calls[-1] == (None, data, READ_ONLY | MS_NOSUID | MS_NODEV)

    def test_files_folders_and_links_of_a_copy(self, library, folder):
        """Links are made again, everything else is bound; an entry that is gone is left out."""
        sources = {name: at(folder, f"data/{name.decode()}") for name in (b"file", b"sub", b"link", b"gone")}
        mounting._bind_all(library, sources, at(folder, "place"))
        assert os.readlink(folder / "place" / "link") == "file"
        assert (folder / "place" / "sub").is_dir()
        assert (folder / "place" / "file").is_file()
        assert not (folder / "place" / "gone").exists()
        assert library.calls == [
            (at(folder, f"data/{name}"), at(folder, f"place/{name}"), MS_BIND | MS_REC) for name in ("file", "sub")
        ]


class TestTable:
    def test_paths_with_blanks_are_read(self, monkeypatch, tmp_path):
        table = tmp_path / "mountinfo"
        table.write_bytes(
            b"1 0 0:1 / /a rw,nodev - ext4 x rw\n"
            b"2 0 0:1 / /a/b\\040c ro,nosuid shared:1 - ext4 x rw\n"
            b"3 0 0:1 / /ab rw - ext4 x rw\n"
        )
        monkeypatch.setattr(mounting, "open", lambda _, mode: table.open(mode), raising=False)
        assert mounting._mounts_at(b"/a") == [(b"/a", b"rw,nodev"), (b"/a/b c", b"ro,nosuid")]
        assert mounting._mounts_at(b"/a/b c") == [(b"/a/b c", b"ro,nosuid")]


def test_another_system_has_no_namespaces(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(MountError) as caught:
        enter([], [], [])
    assert (caught.value.stage, caught.value.errno) == (b"namespace", errno.ENOSYS)


def test_a_refused_namespace_is_told(monkeypatch):
    class NoNamespaces(FakeLibrary):
        def unshare(self, _: int) -> int:
            ctypes.set_errno(errno.EPERM)
            return -1

    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: NoNamespaces())
    with pytest.raises(MountError) as caught:
        enter([], [], [])
    assert (caught.value.stage, caught.value.errno) == (b"namespace", errno.EPERM)
