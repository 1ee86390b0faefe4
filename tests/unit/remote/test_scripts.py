"""Scripts on several workers."""

import io
import os
import sys

import pytest

import weft.remote as wr
import weft.tensor as wt
from weft.model.errors import TaskError, UsageError

SCRIPT = """
import os, sys
assert __name__ == "__main__"
assert session is not None
assert sys.argv == ["script", "--fast"]
assert os.environ["WORLD_SIZE"] == str(size)
assert x.sum() == 6
open(os.path.join(folder, os.environ["RANK"]), "w").close()
"""


@pytest.mark.parametrize(("backend", "size"), [("threads", 1), ("processes", 3)])
def test_each_worker_runs_the_script_and_knows_its_number(tmp_path, backend, size):
    data = {"x": wt.asarray([1, 2, 3]), "folder": str(tmp_path), "size": size}
    before = dict(os.environ), list(sys.argv)
    with wt.Session(backend=backend, workers=2) as session:
        made = wr.run_script(io.StringIO(SCRIPT), data, size, ["--fast"], session=session)
        assert made.fetch() == {"status": "ok"}
    assert sorted(os.listdir(tmp_path)) == [str(rank) for rank in range(size)]
    assert (dict(os.environ), list(sys.argv)) == before


def test_a_script_is_read_from_its_path_and_may_fail(tmp_path):
    path = tmp_path / "one.py"
    path.write_text("raise KeyError('gone')")
    with wt.Session(workers=1) as session, pytest.raises(TaskError, match="gone"):
        wr.run_script(path, session=session)


def test_what_cannot_be_run_is_refused():
    with wt.Session(workers=2) as session:
        with pytest.raises(TypeError, match="give a dict"):
            wr.run_script(io.BytesIO(b""), data=[], session=session)  # type: ignore[arg-type]
        with pytest.raises(UsageError, match="one environment"):
            wr.run_script(io.BytesIO(b""), n_workers=2, session=session)
        for wrong in (0, -1, 1.5):
            with pytest.raises(UsageError, match="n_workers is"):
                wr.run_script(io.BytesIO(b""), n_workers=wrong, session=session)  # type: ignore[arg-type]
