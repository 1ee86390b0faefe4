"""Packed projects at a URL, and the runs that use them."""

import hashlib

import pytest

from weft.store.projects import PROJECTS, hold_project, release_projects
from weft.store.shared import SharedStorage


class Interrupted(SharedStorage):
    """A storage at which another process works between two steps of this one."""

    def __init__(self, url, step, action):
        super().__init__(url)
        self._step, self._action = step, action

    def _act(self, step):
        if step == self._step and (action := self._action):
            self._action = None
            action()

    def remove(self, *below):
        self._act("remove")
        super().remove(*below)
        self._act("removed")

    def description(self, name):
        self._act("describe")
        found = super().description(name)
        self._act("described")
        return found

    def put_bytes(self, data, name):
        super().put_bytes(data, name)
        self._act("put")


@pytest.fixture
def url(tmp_path):
    return f"file://{tmp_path}/shared"


@pytest.fixture
def file(tmp_path):
    (tmp_path / "project.tar").write_bytes(b"files")
    return str(tmp_path / "project.tar")


DIGEST = hashlib.sha256(b"files").hexdigest()


def hold(storage, key, file):
    return hold_project(storage, key, file, DIGEST, 5)


def names(url):
    return SharedStorage(url).names(PROJECTS)


def test_an_archive_is_written_once_and_goes_with_its_last_run(url, file):
    storage = SharedStorage(url)
    first = hold(storage, "run-1", file)
    assert hold(storage, "run-2", file) == first == hold(storage, "run-1", file)
    release_projects(storage, "run-1")
    assert storage.read(first.name) == b"files"
    release_projects(storage, "run-3")
    assert storage.has(first.name)
    release_projects(storage, "run-2")
    assert names(url) == []


def test_an_archive_that_is_gone_is_written_again(url, file):
    storage = SharedStorage(url)
    first = hold(storage, "run-1", file)
    storage.remove(first.name)
    second = hold(storage, "run-2", file)
    assert storage.read(second.name) == b"files"
    release_projects(storage, "run-1")
    assert storage.has(second.name)
    release_projects(storage, "run-2")
    assert names(url) == []


@pytest.mark.parametrize("step", ["remove", "removed", "describe", "described"])
def test_a_run_that_begins_while_the_last_one_is_deleted_has_its_archive(url, file, step):
    storage = SharedStorage(url)
    hold(storage, "run-1", file)
    found = []
    release_projects(Interrupted(url, step, lambda: found.append(hold(storage, "run-2", file))), "run-1")
    assert storage.read(found[0].name) == b"files"
    release_projects(storage, "run-2")
    assert names(url) == []


@pytest.mark.parametrize("step", ["describe", "described", "put"])
def test_a_run_has_its_archive_when_the_last_one_is_deleted_while_it_begins(url, file, step):
    storage = SharedStorage(url)
    hold(storage, "run-1", file)
    found = hold(Interrupted(url, step, lambda: release_projects(storage, "run-1")), "run-2", file)
    assert storage.read(found.name) == b"files"
    release_projects(storage, "run-2")
    assert names(url) == []


def test_what_a_removal_that_was_cut_off_has_left_goes_with_the_next_one(url, file):
    storage = SharedStorage(url)
    hold(storage, "run-1", file)
    (use,) = [name for name in names(url) if name.endswith("run-1")]
    storage.remove(use)
    release_projects(storage, "run-2")
    assert names(url) == []
