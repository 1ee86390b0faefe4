"""The master by hand: `hand(graph, ...)` makes one, and at the end of the test nothing may be left unread."""

from collections.abc import Iterator

import pytest

from tests.unit.engine.hand import Hand


@pytest.fixture
def hand() -> Iterator[type[Hand]]:
    made: list[Hand] = []

    def make(*args, **kwargs) -> Hand:
        made.append(Hand(*args, **kwargs))
        return made[-1]

    yield make  # type: ignore[misc]
    for h in made:
        assert not h.pending, f"nobody has read {h.pending}"
