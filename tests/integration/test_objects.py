"""Spilling to objects: a local S3 server, what is left after the end, a cancel and a kill, and what errors say."""

import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from typing import Any

import fsspec
import numpy as np
import pytest
from fsspec.implementations.memory import MemoryFileSystem

import weft
from tests.servers import SECRET, s3_endpoint
from tests.servers import s3_bucket as bucket
from weft.graph.builder import Graph, gather
from weft.model.chunks import Tier
from weft.model.errors import CapacityError, NotFoundError, RunCancelledError, UnreadableError, UsageError
from weft.store import codec, objects, tiers
from weft.store.blocks import BlockManager
from weft.store.folders import URL_FILE
from weft.store.objects import ObjectTier
from weft.store.spilling import AGAIN_S, SpillWriter
from weft.store.tiers import as_tier

MIB = 1 << 20
DEADLINE_S = 180.0


def eventually(condition):
    deadline = time.monotonic() + DEADLINE_S
    while not (found := condition()):
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(0.02)
    return found


__all__ = ["bucket", "s3_endpoint"]


def found_in(bucket):
    fs = fsspec.filesystem("s3")
    fs.invalidate_cache()
    return fs.find(bucket)


def big(item):
    return np.full(MIB // 8, item, dtype=np.float64)


def summed(rows):
    return float(sum(row[0] for row in rows))


@pytest.mark.parametrize("backend", ["threads", "processes"])
def test_values_over_the_memory_go_to_the_bucket_and_come_back(bucket, backend):
    with weft.Session(backend, workers=2, memory=6 * MIB, spill=f"s3://{bucket}/some/prefix") as session:
        g = Graph("spills")
        rows = g.map(big, range(16)).keep()
        total = g.add(summed, gather(rows))
        results = session.run(g)
        assert results.value(total) == sum(range(16))
        assert session.store.stats().spilled >= 8 * MIB
        assert [float(row[0]) for row in results[rows]] == list(range(16))
        there = found_in(bucket)
        assert any(name.endswith(".chunks") for name in there)
        assert all(name.startswith(f"{bucket}/some/prefix/") for name in there)
        (owner,) = [name for name in there if name.endswith("owner.json")]
        assert json.loads(fsspec.filesystem("s3").cat_file(owner))["pid"] == os.getpid()
    assert found_in(bucket) == []


def test_nothing_is_left_after_a_cancel(bucket):
    with weft.Session(workers=2, memory=4 * MIB, spill=f"s3://{bucket}") as session:
        g = Graph("cancelled")
        rows = g.map(big, range(400)).keep()
        run = session.submit(g)
        eventually(lambda: session.store.stats().spilled > 4 * MIB)
        run.cancel()
        run.wait()
        assert isinstance(run.error(), RunCancelledError)
        del rows
    assert found_in(bucket) == []


KILLED = """
import sys, time
import numpy as np
import weft
from weft.graph.builder import Graph
session = weft.Session(workers=1, memory=2 * 2**20, spill=sys.argv[1])
g = Graph("killed")
def big(item):
    return np.full(2**17, item, dtype=np.float64)
rows = g.map(big, range(12)).keep()
results = session.run(g)
print(session.store.stats().spilled, flush=True)
time.sleep(600)
"""


def test_the_objects_of_a_killed_session_are_swept_by_the_next(bucket, tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    url = f"s3://{bucket}/prefix"
    command = [sys.executable, "-c", textwrap.dedent(KILLED), url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as killed:
        try:
            assert killed.stdout is not None
            assert int(killed.stdout.readline()) > 0
            assert len(found_in(bucket)) > 1
            with weft.Session(workers=1, spill=url):  # it does not touch what a living session has
                assert len(found_in(bucket)) > 2
            assert len(found_in(bucket)) > 1
        finally:
            killed.send_signal(signal.SIGKILL)
    with weft.Session(workers=1):
        assert found_in(bucket) == []


def test_a_bucket_that_is_missing_is_told_at_the_start(bucket):
    with pytest.raises(CapacityError, match=r"s3://none-such-\w+/p: there is no such bucket") as refused:
        weft.Session(workers=1, spill=f"s3://none-such-{bucket[-8:]}/p")
    assert "Make it, or name another place" in (refused.value.hint or "")
    assert SECRET not in str(refused.value)


def test_an_object_that_was_removed_is_a_lost_chunk(bucket):
    tier = ObjectTier(f"s3://{bucket}", "run")
    small, large = tier.write([codec.encode(np.arange(100)), codec.encode(np.arange(MIB))])
    assert tiers.read_chunk(small).tolist() == list(range(100))
    assert int(tiers.read_chunk(large)[-1]) == MIB - 1
    fsspec.filesystem("s3").rm(large.location)
    with pytest.raises(NotFoundError, match="there is no such object"):
        tiers.read_chunk(large)
    with pytest.raises(NotFoundError, match="it ends before byte"):
        tiers.read(small._replace(nbytes=small.nbytes + 1))
    tier.close()
    assert found_in(bucket) == []


def test_a_piece_is_read_without_the_others(bucket):
    tier = ObjectTier(f"s3://{bucket}", "run")
    (ref,) = tier.write([codec.encode_parts([np.full(1000, part) for part in range(5)])])
    assert [int(tiers.read_chunk_part(ref, part)[0]) for part in range(5)] == [0, 1, 2, 3, 4]
    tier.close()


# ----------------------------------------------------------------------------------------------- a store that fails


class Flaky(MemoryFileSystem):  # type: ignore[misc]  # fsspec has no types
    """Objects in memory; every call raises what `failures` has for it, one for each call, before it does its work."""

    protocol = "flaky"
    store: dict[str, Any] = {}  # noqa: RUF012
    pseudo_dirs: list[str] = [""]  # noqa: RUF012
    failures: list[Exception] = []  # noqa: RUF012
    cachable = False

    def _fails(self):
        if Flaky.failures:
            raise Flaky.failures.pop(0)

    def pipe_file(self, path, value, mode="overwrite", **kwargs):
        self._fails()
        super().pipe_file(path, value, **kwargs)

    def cat_file(self, path, start=None, end=None, **kwargs):
        self._fails()
        return super().cat_file(path, start=start, end=end, **kwargs)

    @classmethod
    def _strip_protocol(cls, path):
        return MemoryFileSystem._strip_protocol(path.replace("flaky://", "memory://"))


@pytest.fixture
def flaky():
    fsspec.register_implementation("flaky", Flaky, clobber=True)
    Flaky.failures.clear()
    Flaky.store.clear()
    return Flaky


def quiet(waited):
    return lambda seconds: waited.append(seconds)


def test_failures_that_may_pass_are_tried_again(flaky, monkeypatch):
    waited: list[float] = []
    tier = ObjectTier("flaky://u:secret@host/p", "run", wait=quiet(waited))
    flaky.failures += [ConnectionError("reset"), TimeoutError("slow"), OSError("503 Slow Down")]
    (ref,) = tier.write([codec.encode(np.arange(50))])
    assert waited == [0.1, 0.4, 1.6]
    flaky.failures += [ConnectionError("reset")]
    monkeypatch.setattr(objects, "_WAITS_S", (0.0,))
    assert tiers.read_chunk(ref).tolist() == list(range(50))


def test_one_that_lasts_is_an_error_without_secrets(flaky):
    tier = ObjectTier("flaky://u:secret@host/p", "run", wait=lambda _: None)
    flaky.failures += [ConnectionError("no route to flaky://u:secret@host/p")] * 4
    with pytest.raises(
        CapacityError, match=r"cannot write [\d,]+ bytes to flaky://...@host/p: it cannot be"
    ) as lasting:
        tier.write([codec.encode(np.arange(50))])
    assert "secret" not in str(lasting.value)
    assert "network" in (lasting.value.hint or "")


def test_what_is_not_permitted_is_not_tried_again(flaky):
    waited: list[float] = []
    flaky.failures += [PermissionError("Access Denied")]
    with pytest.raises(CapacityError, match="it is not permitted") as refused:
        ObjectTier("flaky://host/p", "run", wait=quiet(waited))
    assert waited == []
    assert "credentials" in (refused.value.hint or "")


def test_a_value_that_cannot_be_spilled_fails_its_task_and_the_others_stay(flaky):
    tier = ObjectTier("flaky://host/p", "run", wait=lambda _: None)
    with BlockManager(300_000, spill=tier) as store:
        column = store.column(("j", "v"), 4)
        store.put_range(column, 0, [np.full(12_500, 0), np.full(12_500, 1)])
        flaky.failures += [OSError("503")] * 4
        with pytest.raises(CapacityError, match="flaky://host/p"):
            store.put_range(column, 2, [np.full(25_000, 2)])
        assert [int(store.load(column, i)[0]) for i in range(2)] == [0, 1]
        assert store.stats().used == 200_000
        store.put_range(column, 2, [np.full(25_000, 2)])
        assert [int(store.load(column, i)[0]) for i in range(3)] == [0, 1, 2]
    assert not [path for path in flaky.store if path.endswith(".chunks")]


DOWN = [OSError("503 Slow Down")] * 4
"""The failures of one write with all its retries."""


def chunk(value):
    return codec.encode(np.full(1000, value))


def test_chunks_go_to_a_folder_while_the_objects_cannot_be_reached(flaky, tmp_path):
    clock = [0.0]
    (tmp_path / "aside").mkdir()
    tier = ObjectTier("flaky://u:secret@host/p", "run", wait=lambda _: None)
    writer = SpillWriter(tier, as_tier(tmp_path / "aside"), now=lambda: clock[0])
    flaky.failures += DOWN
    with pytest.warns(RuntimeWarning, match=r"flaky://...@host/p: it cannot be reached.* go to .*/aside/") as warned:
        refs = writer.write([chunk(0)])
    assert "secret" not in str(warned[0].message)
    clock[0] = AGAIN_S - 1
    refs += writer.write([chunk(1)])  # the objects can be reached again, but nobody has tried
    clock[0] = AGAIN_S
    flaky.failures += DOWN
    refs += writer.write([chunk(2)])  # they are tried, and one warning is enough
    clock[0] = 2 * AGAIN_S
    refs += writer.write([chunk(3)])
    assert [ref.tier for ref in refs] == [Tier.DISK] * 3 + [Tier.OBJECT]
    assert [int(tiers.read_chunk(ref)[0]) for ref in refs] == [0, 1, 2, 3]
    flaky.failures += DOWN
    with pytest.warns(RuntimeWarning, match="it cannot be reached"):  # another outage
        writer.write([chunk(4)])


def test_a_task_fails_when_neither_can_be_written_to_and_both_are_named(flaky, tmp_path):
    (tmp_path / "aside").touch()  # where a folder should be
    writer = SpillWriter(ObjectTier("flaky://host/p", "run", wait=lambda _: None), as_tier(tmp_path / "aside"))
    flaky.failures += DOWN
    with (
        pytest.warns(RuntimeWarning),
        pytest.raises(CapacityError, match=r"flaky://host/p: it cannot be reached(.|\n)*aside/ cannot take"),
    ):
        writer.write([chunk(0)])


@pytest.mark.parametrize("backend", ["threads", "processes"])
def test_a_run_goes_on_though_the_objects_cannot_be_reached(flaky, backend, monkeypatch):
    monkeypatch.setattr(objects, "_WAITS_S", (0.0,) * 3)
    with weft.Session(backend, workers=2, memory=6 * MIB, spill="flaky://host/p") as session:
        monkeypatch.setattr(Flaky, "_fails", lambda self: (_ for _ in ()).throw(ConnectionError("down")))
        g = Graph("spills")
        rows = g.map(big, range(16)).keep()
        total = g.add(summed, gather(rows))
        with pytest.warns(RuntimeWarning, match="flaky://host/p: it cannot be reached"):
            assert session.run(g).value(total) == sum(range(16))
        assert session.store.stats().spilled >= 8 * MIB
        monkeypatch.undo()


def test_a_value_stays_in_memory_if_there_is_room_when_the_objects_have_refused_it(flaky):
    tier = ObjectTier("flaky://host/p", "run", wait=lambda _: None)
    with BlockManager(300_000, spill=tier) as store:
        column = store.column(("j", "v"), 4)
        store.put_range(column, 0, [np.full(12_500, 0), np.full(12_500, 1)])

        class FreesError(OSError):
            """The last failure; the first value is freed while it happens."""

            def __str__(self) -> str:
                store.free_range(column, 0, 1)
                return "503"

        flaky.failures += [*DOWN[:3], FreesError()]
        store.put_range(column, 2, [np.full(25_000, 2)])
        assert [int(store.load(column, i)[0]) for i in (1, 2)] == [1, 2]
        assert store.stats().used == 300_000


def test_a_value_that_cannot_be_read_back_is_unreadable_and_not_lost(flaky, monkeypatch):
    monkeypatch.setattr(objects, "_WAITS_S", (0.0,) * 3)
    with BlockManager(0, spill=ObjectTier("flaky://host/p", "run", wait=lambda _: None)) as store:
        column = store.column(("j", "v"), 1)
        store.put_range(column, 0, [np.arange(1000)])
        flaky.failures += [TimeoutError("slow")] * 4
        with pytest.raises(UnreadableError, match="it cannot be reached"):
            store.load(column, 0)
        assert store.load(column, 0).tolist() == list(range(1000))


def test_objects_that_stay_are_told_and_tried_again(flaky, tmp_path, monkeypatch):
    tier = ObjectTier("flaky://host/p", "run-1", wait=lambda _: None)
    tier.write([codec.encode(np.arange(50))])

    def refuses(self, *_, **__):
        raise ConnectionError("down")

    folder = tmp_path / "run-1"
    folder.mkdir()
    objects.remember(folder, tier.root)
    with monkeypatch.context() as down:
        down.setattr(Flaky, "rm", refuses)
        with pytest.warns(RuntimeWarning, match="objects of this run are left in flaky://host/p/run-1/"):
            tier.close()
        assert not objects.sweep(folder)
    assert flaky.store
    assert objects.sweep(folder)
    assert not flaky.store


def test_the_objects_of_a_run_are_not_removed_through_a_copy_of_its_folder(flaky, tmp_path):
    tier = ObjectTier("flaky://host/p", "run-1", wait=lambda _: None)
    (tmp_path / "run-1").mkdir()
    objects.remember(tmp_path / "run-1", tier.root)
    shutil.copytree(tmp_path / "run-1", tmp_path / "copy/run-1")
    assert objects.sweep(tmp_path / "copy/run-1")
    assert flaky.store
    assert objects.sweep(tmp_path / "run-1")
    assert not flaky.store
    tier.close()


def test_a_file_that_was_cut_short_names_nothing_to_remove(flaky, tmp_path):
    tier = ObjectTier("flaky://host/p", "run-1", wait=lambda _: None)
    (tmp_path / "run-1").mkdir()
    (tmp_path / "run-1" / URL_FILE).write_text("flaky://host/p")
    assert objects.sweep(tmp_path / "run-1")
    assert flaky.store
    tier.close()


# --------------------------------------------------------------------------------------------------- other places


@pytest.mark.parametrize("backend", ["threads", "processes"])
def test_objects_in_the_memory_of_this_process_are_read_by_workers(backend):
    with weft.Session(backend, workers=2, memory=6 * MIB, spill="memory://here") as session:
        g = Graph("spills")
        rows = g.map(big, range(16)).keep()
        total = g.add(summed, gather(rows))
        assert session.run(g).value(total) == sum(range(16))
        assert session.store.stats().spilled >= 8 * MIB
    assert fsspec.filesystem("memory").find("/here") == []


def test_a_url_that_nobody_knows_is_a_mistake_of_who_wrote_it():
    with pytest.raises(UsageError, match="nosuch://x cannot be used for spilling"):
        weft.Session(workers=1, spill="nosuch://x")
