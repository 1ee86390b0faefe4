"""Who leaves memory first."""

from weft.model.chunks import Tier
from weft.policies.eviction import furthest, largest
from weft.store.api import ChunkInfo, Column


def chunk(foresee=None, used=0, nbytes=1):
    column = Column(("job", "vertex"), 1)
    column.foresee = foresee
    return ChunkInfo(column, 0, nbytes, Tier.MEMORY, used)


def first(key, chunks):
    return min(chunks, key=lambda name: key(chunks[name]))


def test_what_nobody_reads_goes_before_what_is_read_late_before_what_is_read_soon():
    chunks = {"soon": chunk(lambda at: -3.0), "late": chunk(lambda at: -1.5), "kept": chunk()}
    assert first(furthest, chunks) == "kept"
    del chunks["kept"]
    assert first(furthest, chunks) == "late"


def test_of_what_is_read_round_and_round_the_last_one_goes():
    assert first(furthest, {"old": chunk(lambda at: 0.0, used=1), "new": chunk(lambda at: 0.0, used=2)}) == "new"


def test_the_largest_goes_and_of_equals_the_oldest():
    chunks = {"old": chunk(used=1, nbytes=9), "new": chunk(used=2, nbytes=9), "small": chunk()}
    assert first(largest, chunks) == "old"
