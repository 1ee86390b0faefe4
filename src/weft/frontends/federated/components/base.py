"""The contract of a component's part: what it is given, what it returns, and how it reaches the other parts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from msgspec import Struct, field

from weft.frontends.federated.components.frame import PartyFrame  # noqa: TC001 - fields of records are read at run time
from weft.frontends.federated.schema import Party

GUEST, HOST, ARBITER, LOCAL = "guest", "host", "arbiter", "local"


class ComponentChannel(Protocol):
    """The way to the other parts of the same component.

    For each name, sender and receiver there is one queue: values arrive in the order in which they were sent. A value
    is anything that `wire.encode` takes.
    """

    def send(self, name: str, value: Any, to: Party | Sequence[Party]) -> None:
        """Send a value to one part or several; return at once."""
        ...

    def receive(self, name: str, source: Party) -> Any:
        """Return the next value of a part, and wait for it.

        RunCancelledError: the job was stopped. PartyMessageError: what came is no value.
        """
        ...


class PartTracker(Protocol):
    """What a part tells about itself while it runs: for people, and for the clients of its party."""

    def metric(self, namespace: str, name: str, value: float) -> None:
        """Keep a single figure, such as the AUC of `train`."""
        ...

    def curve(self, namespace: str, name: str, points: Sequence[tuple[float, float]], *, kind: str = "") -> None:
        """Keep a curve, such as a loss by iteration or a ROC; `kind` is the metric type of FATE."""
        ...

    def summary(self, values: Mapping[str, Any]) -> None:
        """Merge JSON values into the summary of the component."""
        ...

    def progress(self, done: int, total: int) -> None:
        """Tell how much of the work is done."""
        ...

    def log(self, text: str) -> None:
        """Write a line to the log of the part."""
        ...


class ComponentPart(Struct, frozen=True, kw_only=True):
    """What a part is given.

    `parties` has the ids of each role of the job, in order, and `here` this part. `parameters` are those that the
    files set; a component fills in its own defaults. `data` has the frames of each data input by its key, `sources` the
    components that made them, in the same order, `models` the
    models by "model" and "isometric_model" (each a JSON value by the component that made it). `fits` says whether it
    trains: with `train_data` or `data` and without a model. `shows_ids` says whether this party lets others see the ids
    of its rows.
    """

    here: Party
    parties: Mapping[str, Sequence[str]]
    job: str
    component: str
    module: str
    parameters: Mapping[str, Any]
    channel: ComponentChannel
    tracker: PartTracker
    data: Mapping[str, Sequence[PartyFrame]] = field(default_factory=dict)
    sources: Mapping[str, Sequence[str]] = field(default_factory=dict)
    models: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    tables: Callable[[str, str], PartyFrame] | None = None
    seed: int = 0
    shows_ids: bool = False

    def others(self, *roles: str) -> list[Party]:
        """Return the other parts, of these roles or of all, in the order of the conf."""
        found = [Party(role, id) for role, ids in self.parties.items() for id in ids if not roles or role in roles]
        return [one for one in found if one != self.here]

    def all_of(self, role: str) -> list[Party]:
        """Return all parts of a role."""
        return [Party(role, id) for id in self.parties.get(role, ())]


class PartOutput(Struct, frozen=True, kw_only=True):
    """What a part returns: frames for the data outputs of its DSL, by position, and its model, a JSON value."""

    data: Sequence[PartyFrame | None] = ()
    model: Any = None
    cache: Any = None


Run = Callable[[ComponentPart], PartOutput]
"""The function of a component's part; it serves all roles of its module."""
