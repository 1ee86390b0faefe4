"""Sessions that tests of arrays share."""

import pytest

import weft.tensor as wt
from weft.frontends.tensors.arrays.runners import using


@pytest.fixture(scope="module")
def on_processes():
    """A session on processes, which start once for the tests of a module; what is not computed with it has another."""
    made = wt.new_session(backend="processes", workers=2, default=False)
    yield made
    made.close()


@pytest.fixture(params=["threads", "processes"])
def session(request):
    """A session that computes what the test does not give to another."""
    if request.param == "processes":
        made = request.getfixturevalue("on_processes")
        with using(made):
            yield made
        return
    with wt.Session(backend="threads", workers=2) as made:
        yield made
