"""Every store passes the suite for stores: memory only, with shared memory, spilling under a small budget."""

import fsspec
import pytest

from weft.policies.eviction import furthest
from weft.store.blocks import BlockManager
from weft.store.objects import ObjectTier
from weft.testing.conformance.store import CHECKS

SMALL_BUDGET = 300_000


def memory(tmp_path):
    return BlockManager(1 << 30)


def shared(tmp_path):
    return BlockManager(1 << 30, shm=tmp_path / "shm")


def spilling(tmp_path):
    return BlockManager(SMALL_BUDGET, shm=tmp_path / "shm", spill=tmp_path / "spill")


def largest_first(tmp_path):
    return BlockManager(SMALL_BUDGET, spill=tmp_path / "spill", eviction=lambda info: (-info.nbytes, info.used))


def furthest_first(tmp_path):
    return BlockManager(SMALL_BUDGET, shm=tmp_path / "shm", spill=tmp_path / "spill", eviction=furthest)


def no_memory_at_all(tmp_path):
    return BlockManager(0, spill=tmp_path / "spill")


def objects(tmp_path):
    return BlockManager(SMALL_BUDGET, shm=tmp_path / "shm", spill=ObjectTier(f"memory://{tmp_path.name}", "run"))


def objects_in_files(tmp_path):
    return BlockManager(SMALL_BUDGET, spill=ObjectTier(f"file://{tmp_path}/objects", "run"))


OBJECTS = (objects, objects_in_files)
FILES = (memory, shared, spilling, largest_first, furthest_first, no_memory_at_all)


@pytest.mark.parametrize("make", [*FILES, *OBJECTS])
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_store(check, make, tmp_path):
    for name in ("shm", "spill"):
        (tmp_path / name).mkdir()
    with make(tmp_path) as store:
        check(store)
        stats = store.stats()
        assert stats.used <= store.memory.budget or make is no_memory_at_all
        if make is memory or make is shared:
            assert stats.spilled == 0
        elif check.__name__ == "more_than_fits_comes_back":
            assert stats.spilled > 0
            assert stats.restored > 0 or make is no_memory_at_all
        for key in list(store._columns):
            store.drop(key)
        stats = store.stats()
        assert (stats.used, stats.shm, stats.disk, stats.evictable) == (0, 0, 0, 0)
        assert not store._files.locations()
        if make not in OBJECTS:  # which are deleted by a thread
            assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    assert fsspec.filesystem("memory").find(f"/{tmp_path.name}") == []
