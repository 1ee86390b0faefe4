"""Streams on one node: windows, readers that leave, what is spilled, and that nothing is left."""

from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.engine.hand import Hand, body
from weft.backends.local_jobs import LocalJob
from weft.backends.streams import END, Streams
from weft.engine.extensions.bubbles import keep_on_node
from weft.graph.builder import Graph, gather, one_to_one, shuffle
from weft.graph.logical import Storage
from weft.model.errors import RunCancelledError
from weft.store.blocks import BlockManager
from weft.store.codec import encode, to_bytes
from weft.testing.inside import core_of
from weft.worker.code import TaskCode

LIVE: Any = {"concurrent": True, "storage": Storage.EPHEMERAL}
LEASE: Any = SimpleNamespace(stop=False)


def streams_of(graph: Graph, store: BlockManager, window: int, *members) -> Streams:
    graph.bubble(*members)
    inspector = Hand(graph, workers=16).master.inspector
    streams = Streams(SimpleNamespace(id="job", inspector=inspector), store, window, frozenset)
    for row in inspector.vertices:
        for edge in inspector.spec(row.id).outputs:
            streams.know(edge)
    return streams


def code_of(streams: Streams, store: BlockManager, vertex: str) -> TaskCode:
    """Return what a worker knows of a vertex."""
    inspector = streams._job.inspector
    loop: Any = None
    local = LocalJob(SimpleNamespace(id="job", inspector=inspector, outputs=None, given={}), store, loop, 100)
    return local.code(inspector.spec(vertex))


def pair(store: BlockManager, window: int = 100, n: int = 1, readers: int = 1) -> Streams:
    g = Graph("g")
    a = g.add(body, n=n, name="a")
    if readers > 1:
        b = g.add(body, gather(a, **LIVE), n=readers, name="b")
    else:
        b = g.add(body, shuffle(a, 2, **LIVE), n=2, name="b")
    return streams_of(g, store, window, a, b)


def diamond(store: BlockManager, window: int) -> Streams:
    g = Graph("g")
    a = g.add(body, n=1, name="a")
    b = g.add(body, one_to_one(a, name="one", **LIVE), one_to_one(a, name="two", **LIVE), name="b")
    return streams_of(g, store, window, a, b)


def put(streams: Streams, cell, nbytes: int, index: int = 0, part: int = 0, edge: str = "a->b") -> bool:
    streams.put(edge, index, part, cell, nbytes, LEASE)
    return streams.has_room(edge, index, part, lambda: None)


def take(streams: Streams, index: int = 0, part: int = 0, reader: int = 0, edge: str = "a->b"):
    return streams.take(edge, index, part, reader, lambda: None)


@pytest.fixture
def store(tmp_path):
    with BlockManager(1 << 20, shm=tmp_path / "shm", spill=tmp_path / "spill") as made:
        (tmp_path / "shm").mkdir()
        (tmp_path / "spill").mkdir()
        yield made
        assert made.stats().used == made.stats().reserved == 0


def test_the_window_is_shared_out_among_sources_and_given_back(store):
    streams = pair(store, window=100, n=2)
    assert put(streams, b"x", 49)
    assert store.stats().reserved == 50
    assert not put(streams, b"x", 1)
    assert put(streams, b"x", 10, index=1), "another source has a share of its own"
    assert take(streams).nbytes == 49
    assert not streams.has_room("a->b", 0, 0, lambda: None), "what is being read still lies there"
    assert take(streams).nbytes == 1
    assert streams.has_room("a->b", 0, 0, lambda: None)
    streams.end(["a->b"], 0, LEASE)
    assert take(streams) is END
    assert store.stats().reserved == 50
    streams.reset()()


def test_a_stream_that_is_empty_takes_a_block_of_any_size(store):
    streams = pair(store)
    assert not put(streams, b"x", 1000)
    assert streams.has_room("a->b", 0, 1, lambda: None), "nothing was written for the other reader"
    assert not put(streams, b"x", 1, part=1)
    streams.reset()()


def test_who_waits_is_woken_once(store):
    streams = pair(store)
    woken = []
    assert streams.take("a->b", 0, 0, 0, lambda: woken.append("reader")) is None
    put(streams, b"x", 100)
    put(streams, b"y", 100)
    assert woken == ["reader"]
    assert not streams.has_room("a->b", 0, 0, lambda: woken.append("writer"))
    take(streams)
    assert woken == ["reader"]
    take(streams)
    take(streams)
    assert woken == ["reader", "writer"]
    streams.reset()()


def test_small_values_are_joined_until_somebody_takes_them(store):
    streams = pair(store)
    put(streams, [1], 8)
    put(streams, [2], 8)
    first = take(streams)
    assert first.cell == [1, 2]
    put(streams, [3], 8)
    assert take(streams).cell == [3]
    assert first.cell == [1, 2]
    streams.reset()()


def test_every_reader_of_a_copy_gets_all_of_it(store):
    streams = pair(store, readers=2)
    put(streams, b"x", 100)
    put(streams, b"y", 100)
    assert [take(streams, reader=0).cell for _ in range(2)] == [b"x", b"y"]
    assert take(streams, reader=0) is None
    assert not streams.has_room("a->b", 0, 0, lambda: None), "the other has read nothing"
    assert [take(streams, reader=1).cell for _ in range(2)] == [b"x", b"y"]
    assert take(streams, reader=1) is None
    assert streams.has_room("a->b", 0, 0, lambda: None)
    streams.reset()()


def test_a_reader_that_is_over_needs_nothing_more_until_it_comes_again(store):
    streams = pair(store)
    reader = code_of(streams, store, "b")
    assert not put(streams, b"x", 100)
    streams.leave(reader, 0, 1)
    assert streams.has_room("a->b", 0, 0, lambda: None)
    assert put(streams, b"y", 1000)
    streams.joined(reader, 0, 1)
    put(streams, b"z", 1)
    assert take(streams).cell == b"z"
    streams.reset()()


def test_a_region_that_starts_again_has_all_its_readers(store):
    """Also one that went before anybody had written, and whose writer is there first the next time."""
    streams = pair(store)
    reader = code_of(streams, store, "b")
    streams.leave(reader, 0, 1)
    streams.reset(["a", "b"])()
    put(streams, b"x", 1)
    streams.joined(reader, 0, 1)
    assert take(streams).cell == b"x"
    streams.reset()()


def test_a_writer_that_was_told_to_stop_leaves_no_trace(store):
    streams = pair(store)
    stopped: Any = SimpleNamespace(stop=True)
    with pytest.raises(RunCancelledError):
        streams.put("a->b", 0, 0, b"x", 1, stopped)
    streams.end(["a->b"], 0, stopped)
    assert take(streams) is None
    streams.reset()()


@pytest.mark.parametrize("cell", [[bytes(100_000)], to_bytes(encode([bytes(100_000)]))], ids=["values", "bytes"])
def test_on_a_cycle_what_is_over_the_window_becomes_a_chunk_of_the_store(store, cell):
    streams = diamond(store, window=150_000)
    for _ in range(20):
        assert put(streams, cell, 100_000, edge="one")
    stats = store.stats()
    assert stats.reserved == 150_000
    assert stats.used + stats.reserved <= store.memory.budget
    assert stats.spilled > 500_000
    found = []
    while block := take(streams, edge="one"):
        if block.column is None:
            found.append(block.cell)
        else:
            found.append(store.load(block.column, block.at, last=True))
    assert found == [cell] * 20
    assert store.stats().used == store.stats().disk == 0
    streams.reset()()


def test_a_reset_takes_everything_away(store, tmp_path):
    streams = diamond(store, window=100_000)
    for _ in range(20):
        put(streams, [bytes(100_000)], 100_000, edge="one")
    woken = []
    streams.take("two", 0, 0, 0, lambda: woken.append(True))
    assert list((tmp_path / "spill").iterdir())
    streams.reset(["a"])()
    assert woken == [True]
    assert not list((tmp_path / "spill").iterdir())
    assert store.stats().used == store.stats().reserved == 0
    assert take(streams, edge="one") is None


def test_what_starts_again_with_other_edges_is_known_anew(store):
    streams = pair(store)
    core = core_of(streams._job)
    both = [*code_of(streams, store, "a").streams, code_of(streams, store, "b").inputs[0].streamed]
    assert both == ["a->b", True]
    keep_on_node(core.links["a->b"])
    streams.reset(["a", "b"])
    both = [*code_of(streams, store, "a").streams, code_of(streams, store, "b").inputs[0].streamed]
    assert both == [False]


def test_a_writer_does_not_wait_for_readers_that_have_ended(store):
    streams = pair(store, window=10)
    streams.put("a->b", 0, 0, [bytes(20)], 20, LEASE)
    assert not streams.has_room("a->b", 0, 0, lambda: None)
    streams._gone = lambda: {"b"}
    assert streams.has_room("a->b", 0, 0, lambda: None)
    streams.reset()()
