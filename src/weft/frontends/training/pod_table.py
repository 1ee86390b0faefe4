"""`PodTable`: the pods of a run as its controller last saw them, so that a call looks at what has changed alone.

It caches what follows from the tasks and the memo. A call with another memo than the one that the last call returned,
as after a resume, makes all anew; so the answers depend on the arguments of a call alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from weft.frontends.training.observed import Pod

State = TypeVar("State")


class PodTable(Generic[State]):
    """The pods by vertex and index, and the decoded memo with which they were made."""

    def __init__(self) -> None:
        self._memo: Any = None
        self._state: State | None = None
        self._pods: dict[str, list[Pod | None]] = {}
        self._changed: dict[str, set[int]] = {}

    def take(self, memo: Any, changed: Iterable[Any], decode: Callable[[], State]) -> State:
        """Begin a call with a memo and the tasks with news; return the decoded memo."""
        state = self._state
        if memo is None or memo is not self._memo or state is None:
            self._pods, self._changed = {}, {}
            state = decode()
        else:
            for task in changed:
                self.touch(task.vertex, task.index)
        self._memo = None  # until the call has ended well
        return state

    def touch(self, vertex: str, index: int) -> None:
        """Let a pod be made anew: this call decides about it."""
        self._changed.setdefault(vertex, set()).add(index)

    def pods_of(self, vertex: str, count: int, make: Callable[[int], Pod | None]) -> Sequence[Pod]:
        """Return the pods of a vertex with so many tasks, in order; `make` gives that of an index, None for none."""
        rows = self._pods.get(vertex)
        changed: Iterable[int] = self._changed.pop(vertex, ())
        if rows is None:
            rows = self._pods[vertex] = [None] * count
            changed = range(count)
        for index in changed:
            rows[index] = make(index)
        return [pod for pod in rows if pod is not None]

    def keep(self, memo: Any, state: State) -> None:
        """End a call with the memo that it returns."""
        self._memo, self._state = memo, state
