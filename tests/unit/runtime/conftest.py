"""Sessions that the tests of a module share."""

import pytest

import weft


@pytest.fixture(scope="module", params=["threads", "processes"])
def session(request):
    with weft.Session(request.param, workers=2) as session:
        yield session


@pytest.fixture(scope="module")
def threads():
    with weft.Session("threads", workers=2) as session:
        yield session
