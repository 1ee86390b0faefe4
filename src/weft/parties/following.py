"""Following what can change on the disk of a party: its policy, and the parties that it knows."""

from __future__ import annotations

from contextlib import contextmanager
from threading import Event, Thread
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_LOOK_S: Final = 0.5


@contextmanager
def followed(look: Callable[[], object], changed: Callable[[], None], name: str) -> Iterator[None]:
    """Call `changed` each time when `look` returns something else, from a thread of this name."""
    ended, first = Event(), look()

    def follow() -> None:
        seen = first
        while not ended.wait(_LOOK_S):
            if (now := look()) != seen:
                seen = now
                changed()

    thread = Thread(target=follow, name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
