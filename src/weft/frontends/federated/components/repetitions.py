"""A component that trains several times in one run, such as for folds: names of values and curves for each time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from weft.frontends.federated.components.base import ComponentChannel, PartTracker
    from weft.frontends.federated.schema import Party


class RepeatedChannel:
    """The channel of one time: its values have names that end with `tag`."""

    def __init__(self, channel: ComponentChannel, tag: str) -> None:
        self._channel, self._tag = channel, tag

    def send(self, name: str, value: Any, to: Party | Sequence[Party]) -> None:
        """See `ComponentChannel.send`."""
        self._channel.send(name + self._tag, value, to)

    def receive(self, name: str, source: Party) -> Any:
        """See `ComponentChannel.receive`."""
        return self._channel.receive(name + self._tag, source)


class RepeatedTracker:
    """The tracker of one time: names end with `mark`, and `told` is its summary.

    `place` says which one it is of how many; None: that is not known, and no progress is told.
    """

    def __init__(self, tracker: PartTracker, mark: str, place: tuple[int, int] | None = None) -> None:
        self._tracker, self._mark, self._place = tracker, mark, place
        self.told: dict[str, Any] = {}

    def metric(self, namespace: str, name: str, value: float) -> None:
        """See `PartTracker.metric`."""
        self._tracker.metric(f"{namespace}_{self._mark}", name, value)

    def curve(self, namespace: str, name: str, points: Sequence[tuple[float, float]], *, kind: str = "") -> None:
        """See `PartTracker.curve`."""
        self._tracker.curve(namespace, f"{name}_{self._mark}", points, kind=kind)

    def summary(self, values: Mapping[str, Any]) -> None:
        """See `PartTracker.summary`."""
        self.told |= values

    def progress(self, done: int, total: int) -> None:
        """See `PartTracker.progress`."""
        if self._place is not None:
            at, count = self._place
            self._tracker.progress(at * total + done, count * total)

    def log(self, text: str) -> None:
        """See `PartTracker.log`."""
        self._tracker.log(f"{self._mark}: {text}")
