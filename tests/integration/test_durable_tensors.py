"""Durable sessions of tensors: killed before lengths are known and after that, with more data than memory."""

import contextlib
from collections import Counter

import numpy as np
import psutil
import pytest

import weft
import weft.tensor as wt
from tests.integration import durable_tensors
from tests.integration.test_durable import RUN, Place, until
from tests.started import have_ended

EARLY, LATE = 16, 3
TOTAL = "lengths/combine-squeeze-add"


@pytest.fixture
def place(tmp_path):
    return Place(tmp_path)


def start(place, backend):
    return place.python(durable_tensors.__file__, backend, str(place.state), str(place.marks))


class Tree:
    """The processes below a process, as they were last seen."""

    def __init__(self, process):
        self.root = psutil.Process(process.pid)
        self.processes = []

    def seen(self):
        """Look again. The answer is true."""
        with contextlib.suppress(psutil.NoSuchProcess):
            self.processes = self.root.children(recursive=True)
        return True

    def gone(self):
        return have_ended(*self.processes)


def resumed(place, backend):
    """Return the number that the run comes to when this process goes on with it."""
    memory = durable_tensors.MEMORY
    with weft.Session(backend, 2, memory, durable=place.state, backups=False) as session:
        return float(session.resume(RUN).result()[TOTAL][0])


def ends(place):
    """How often each function of chunks came to its end."""
    return Counter(path.name.partition("-")[0] for path in place.marks.iterdir())


@pytest.mark.parametrize("backend", ["threads", "processes"])
def test_killed_before_the_lengths_are_known(place, backend):
    hold = place.folder / "hold-early"
    process = start(place, backend)
    until(lambda: place.counts() or process.poll() is not None)
    hold.touch()
    tree = Tree(process)
    assert place.kill_when(process, lambda: tree.seen() and place.finished("arange-map_chunk", 1)), (
        process.communicate()
    )
    until(tree.gone)
    assert not place.finished("lengths", 1)
    hold.unlink()
    assert resumed(place, backend) == durable_tensors.ANSWER
    assert ends(place)["early"] < 2 * EARLY
    assert ends(place)["late"] == LATE


@pytest.mark.parametrize("backend", ["threads", "processes"])
def test_killed_when_the_lengths_are_known(place, backend):
    """What has been made of lengths is made no more: neither the chunks before nor the tasks after."""
    hold = place.folder / "hold-late"
    hold.touch()
    process = start(place, backend)
    tree = Tree(process)
    assert place.kill_when(process, lambda: tree.seen() and place.finished("lengths", 1)), process.communicate()
    until(tree.gone)  # else a function that is held in a worker may come to its end once it may
    assert place.counts() == dict.fromkeys(place.counts(), 1)
    hold.unlink()
    assert resumed(place, backend) == durable_tensors.ANSWER
    assert ends(place) == {"early": EARLY, "late": LATE}


@pytest.mark.parametrize("backend", ["threads", "processes"])
def test_more_than_memory_and_what_was_computed_before(tmp_path, backend):
    """Chunks leave memory for the run's files and are read from them; a later run has those of an earlier one."""
    twice = np.arange(2**20, dtype=np.float64) * 2
    with wt.Session(backend=backend, workers=2, memory=4 * 2**20, durable=tmp_path / "state", direct=False) as session:
        x = wt.asarray(twice / 2, chunk_size=2**15) * 2
        mean = x.mean()
        most = (x - mean).max() + x[x > mean][::3].sum()
        assert float(most) == twice.max() - twice.mean() + twice[twice > twice.mean()][::3].sum()
        stats = session.engine.store.stats()
        assert stats.restored + stats.spilled > 0
        small = (x[:100_000] + 1).execute()
        assert float((small + small[7]).sum()) == float((twice[:100_000] + 1 + 15).sum())
