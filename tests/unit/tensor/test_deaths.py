"""Worker processes that die while arrays are computed: the result is the same, once what is lost was made again."""

import os
import signal

import numpy as np
import pytest

import weft.tensor as wt

pytestmark = pytest.mark.slow

X = np.arange(48.0).reshape(8, 6)


class DiesOnce:
    """A function of chunks whose process is killed at the first chunk that has a 13, or a sum of it."""

    def __init__(self, marker, what):
        self.marker = str(marker)
        self.what = what

    def __call__(self, chunk):
        if chunk.size > 1 and self.what in chunk:
            try:
                os.close(os.open(self.marker, os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                return chunk
            os.kill(os.getpid(), signal.SIGKILL)
        return chunk


def before(x, dies):
    """A source dies: nobody has read it."""
    return x.map_chunk(dies, dtype=x.dtype).T.rechunk(2) + 1


def at(x, dies):
    """A reader of many chunks dies, which were made by several workers."""
    return x.T.rechunk(2).map_chunk(dies, dtype=x.dtype) + 1


def after(x, dies):
    """What reads the readers dies, when the first chunks are not wanted any more."""
    return (x.T.rechunk(2) + 0).T.rechunk(3).map_chunk(dies, dtype=x.dtype).T + 1


@pytest.mark.parametrize("place", [before, at, after])
def test_the_result_is_the_same(place, tmp_path):
    with wt.Session(backend="processes", workers=2, direct=False):
        found = place(wt.asarray(X, chunk_size=3), DiesOnce(tmp_path / "died", 13.0)).fetch()
    assert (tmp_path / "died").exists()
    np.testing.assert_array_equal(found, X.T + 1)


def unread(x, dies):
    """A source of unknown length dies before anybody knows its lengths."""
    return x[x >= 0].map_chunk(dies, dtype=x.dtype)[::-2]


def waiting(x, dies):
    """What is made when the lengths are known dies, and with it chunks of the source that it reads."""
    return x[x >= 0].rechunk(5).map_chunk(dies, dtype=x.dtype)[::-2]


def far(x, dies):
    """The same where lengths were waited for twice."""
    found = x[x >= 0][::-1]
    return found[found >= 0].map_chunk(dies, dtype=x.dtype)[::2]


@pytest.mark.parametrize("place", [unread, waiting, far])
def test_the_result_is_the_same_where_lengths_were_unknown(place, tmp_path):
    flat = X.ravel()
    with wt.Session(backend="processes", workers=2, direct=False):
        found = place(wt.asarray(flat, chunk_size=7), DiesOnce(tmp_path / "died", 13.0)).fetch()
    assert (tmp_path / "died").exists()
    np.testing.assert_array_equal(found, flat[::-2])


def test_an_array_that_was_kept_outlives_a_worker(tmp_path):
    with wt.Session(backend="processes", workers=2, direct=False):
        kept = (wt.asarray(X, chunk_size=3) + 0).execute()
        again = kept.map_chunk(DiesOnce(tmp_path / "died", 13.0), dtype=X.dtype) * 2
        np.testing.assert_array_equal(again.fetch(), X * 2)
        np.testing.assert_array_equal(kept.fetch(), X)
    assert (tmp_path / "died").exists()
