"""Plans and drawings of computations, and names as dask has them."""

import stat
from typing import Any

import numpy as np
import pytest

import weft.tensor as wt
from weft.model.errors import CapacityError, ProgramError, UsageError

X = np.random.default_rng(2).random((30, 20))
DASK: Any = wt
"""The namespace with the arguments of dask, which type checkers do not know."""


def test_a_plan_tells_tasks_and_memory():
    x = DASK.ones((1000, 1000), chunks=100) + 1
    with wt.Session(workers=2, memory="64MiB", direct=False) as session:
        plan = x.sum(axis=0).explain()
        assert not plan.direct
        assert plan.result == 8000
        assert plan.read == 0
        assert plan.tasks > 100
        assert plan.budget == session.budget
        assert plan.fits
        assert "full-add-sum x 100" in plan.graph
        assert "TOO LITTLE" not in str(plan)
        large = DASK.ones((4000, 4000), chunks=-1) + 1
        assert not large.explain().fits
        assert "TOO LITTLE" in str(large.explain())
        with pytest.raises(CapacityError):
            large.execute()
    assert not x._ready()


def test_a_plan_counts_what_is_read():
    given = wt.from_array(X, chunk_size=10)
    plan = wt.explain(given * 2, given.sum())
    assert plan.read == X.nbytes
    assert plan.result == X.nbytes + 8
    with wt.Session(workers=1) as session:
        assert (given * 2).explain().direct
        assert (given * 2).explain().tasks == 0
        assert "without tasks" in repr(given.explain())
        assert session.direct


def test_what_depends_on_data_is_planned_later():
    x = wt.from_array(X.ravel(), chunk_size=100)
    plan = x[x > 0.5][::2].explain()
    assert plan.later
    assert "lengths are known" in str(plan)


def test_graphs_are_drawn(tmp_path, monkeypatch):
    x = wt.from_array(X, chunk_size=10).sum(axis=0)
    assert "combine" in x.visualize()
    assert wt.visualize(x, x + 1).startswith("tensors:")
    assert x.visualize(filename=tmp_path / "x.dot") == str(tmp_path / "x.dot")
    assert (tmp_path / "x.dot").read_text().startswith("digraph")
    assert x.visualize(filename=tmp_path / "y", format="txt") == str(tmp_path / "y.txt")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match="Graphviz, which draws"):
        x.visualize(filename=tmp_path / "x.svg")
    program = tmp_path / "dot"
    program.write_text('#!/bin/sh\n/bin/cat > "$3"\n')
    program.chmod(program.stat().st_mode | stat.S_IEXEC)
    assert x.visualize(filename=tmp_path / "x.svg") == str(tmp_path / "x.svg")
    assert "digraph" in (tmp_path / "x.svg").read_text()
    program.write_text("#!/bin/sh\necho wrong >&2\nexit 3\n")
    with pytest.raises(ProgramError, match="Graphviz has failed: wrong"):
        x.visualize(filename=tmp_path / "x.png")
    with pytest.raises(UsageError, match=r"x\.jpg has no ending of a drawing"):
        x.visualize(filename=tmp_path / "x.jpg")
    with pytest.raises(UsageError, match=r"Name the file so: filename='x\.svg'"):
        wt.ones(2).visualize("x.svg")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="no array to look at"):
        wt.visualize(3)  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------------------------ dask's names


def test_arrays_are_computed_by_the_names_of_dask():
    x = DASK.asarray(X, chunks=(10, 20))
    assert x.chunks == ((10, 10, 10), (20,))
    np.testing.assert_array_equal((x + 1).compute(), X + 1)
    total, number = wt.compute(x.sum(), 3)
    assert total == pytest.approx(X.sum())
    assert number == 3
    assert wt.compute(x.min(), x.max()) == (X.min(), X.max())
    assert wt.compute({"least": x.min()}, [x.max(), "a"], (x.size,)) == ({"least": X.min()}, [X.max(), "a"], (X.size,))
    (held,) = wt.persist({"x": (kept := x + 1)})
    assert held["x"] is kept
    assert kept._ready()
    kept = (x * 2).persist()
    assert kept._ready()
    (other,) = wt.persist(x * 3)
    assert other._ready()
    with pytest.raises(TypeError, match=r"compute takes no scheduler: .*Session\(backend="):
        x.compute(scheduler="threads")


def test_chunks_are_given_by_the_name_of_dask():
    for made in (
        DASK.zeros((4, 4), chunks=2),
        DASK.random.default_rng(1).random((4, 4), chunks=2),
        DASK.eye(4, chunks=2),
    ):
        assert made.chunks == ((2, 2), (2, 2))
    assert DASK.random.normal(size=(4, 4), chunks=2).chunks == ((2, 2), (2, 2))
    assert DASK.random.random((4, 4), chunks=(2, 4)).chunks == ((2, 2), (4,))
    assert DASK.arange(10, chunks=5).rechunk(chunks=3).chunks == ((3, 3, 3, 1),)
    assert DASK.rechunk(DASK.arange(10), chunks={0: 4}).chunks == ((4, 4, 2),)
    assert DASK.from_array(X, chunks="1kB").chunks[0][0] * 20 * 8 <= 1000
    assert DASK.ones((1000, 1000), chunks="2 MiB").chunks[0][0] * 8000 <= 2**21
    with pytest.raises(TypeError, match="chunk_size=, or chunks= as dask calls it, not both"):
        DASK.zeros(4, chunks=2, chunk_size=2)
    with pytest.raises(UsageError, match="chunk_size is '2 lines'"):
        DASK.zeros(4, chunks="2 lines")


def test_who_asks_for_other_names_of_dask_gets_ours():
    x = wt.asarray(X)
    with pytest.raises(AttributeError, match=r"no attribute 'compute_chunk_sizes': dask's is here x\.shape"):
        x.compute_chunk_sizes()
    with pytest.raises(AttributeError, match=r"no attribute 'nothing'$"):
        _ = x.nothing
    with pytest.raises(AttributeError, match=r"'delayed': dask's is here weft\.remote\.spawn"):
        _ = wt.delayed  # type: ignore[attr-defined]
    assert not hasattr(x, "vindex")
