"""The form in which the session sends a cell to a node."""

import numpy as np
import pytest

from weft.backends.cluster_jobs import sendable
from weft.model.chunks import ChunkRef, Tier
from weft.store import codec
from weft.store.blocks import BlockManager


@pytest.fixture
def store(tmp_path):
    with BlockManager(1 << 24, spill=tmp_path) as made:
        yield made


def test_a_row_of_small_pieces_is_sent_as_it_is(store):
    column = store.column(("job", "rows"), 1, 300)
    store.put_range(column, 0, [list(range(300))])
    assert sendable(store, column, 0) == list(range(300))


def test_pieces_of_a_large_row_can_be_read_alone(store):
    column = store.column(("job", "rows"), 1, 4)
    store.put_range(column, 0, [[np.full(10_000, part) for part in range(4)]])
    sent = sendable(store, column, 0)
    assert (sent.tier, sent.parts) == (Tier.INLINE, 4)
    assert codec.decode_part(memoryview(sent.data), 2)[0] == 2


def test_what_lies_at_a_node_is_sent_as_a_reference(store):
    column = store.column(("job", "values"), 1)
    ref = ChunkRef(Tier.PEER, "peer://10.0.0.7:9/job/values/0/0", 0, 1 << 20, 0)
    store.put_range(column, 0, [ref])
    assert sendable(store, column, 0) == ref
