"""Runs the parts of a component in threads of this process, with every value that they send as bytes in between.

The bytes are those that would cross the network, so a test can read them (`PartExchange.sent`).
"""

from __future__ import annotations

import queue
import threading
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from weft.frontends.federated.components.base import ComponentPart, PartOutput
from weft.frontends.federated.components.registry import component
from weft.frontends.federated.schema import Party
from weft.frontends.federated.wire import decode, encode
from weft.model.errors import RunCancelledError

if TYPE_CHECKING:
    from weft.frontends.federated.components.frame import PartyFrame

_PATIENCE_S: Final = 120.0


class SentValue(NamedTuple):
    """A value on its way: its name, the parts, and its bytes."""

    name: str
    source: Party
    to: Party
    data: bytes


class PartExchange:
    """The network between the parts of one component."""

    def __init__(self) -> None:
        self.sent: list[SentValue] = []
        self._queues: dict[tuple[str, Party, Party], queue.SimpleQueue[bytes]] = defaultdict(queue.SimpleQueue)
        self._lock = threading.Lock()
        self._stopped = threading.Event()

    def channel(self, here: Party) -> PartChannel:
        """Return the channel of a part."""
        return PartChannel(self, here)

    def stop(self) -> None:
        """Let every wait end with RunCancelledError."""
        self._stopped.set()

    def put(self, one: SentValue) -> None:
        """Deliver a value."""
        self.sent.append(one)
        self._queue(one.name, one.source, one.to).put(one.data)

    def get(self, name: str, source: Party, to: Party) -> bytes:
        """Wait for the next value. RunCancelledError: the exchange was stopped, or nothing came for two minutes."""
        waited = 0.0
        while not self._stopped.is_set() and waited < _PATIENCE_S:
            try:
                return self._queue(name, source, to).get(timeout=0.05)
            except queue.Empty:
                waited += 0.05
        raise RunCancelledError(f"{to} waited for {name!r} of {source}")

    def _queue(self, name: str, source: Party, to: Party) -> queue.SimpleQueue[bytes]:
        """Return the queue of a value. Two threads that make it at once would have one each, and a value would go."""
        with self._lock:
            return self._queues[name, source, to]


class PartChannel:
    """The channel of a part over an `PartExchange`."""

    def __init__(self, exchange: PartExchange, here: Party) -> None:
        self._exchange, self._here = exchange, here

    def send(self, name: str, value: Any, to: Party | Sequence[Party]) -> None:
        """See `ComponentChannel.send`."""
        data = encode(value)
        for one in [to] if isinstance(to, Party) else to:
            self._exchange.put(SentValue(name, self._here, one, data))

    def receive(self, name: str, source: Party) -> Any:
        """See `ComponentChannel.receive`."""
        return decode(self._exchange.get(name, source, self._here))


class PartRecord:
    """A tracker that keeps everything."""

    def __init__(self) -> None:
        self.metrics: dict[tuple[str, str], float] = {}
        self.curves: dict[tuple[str, str], list[tuple[float, float]]] = {}
        self.summaries: dict[str, Any] = {}
        self.lines: list[str] = []
        self.done: list[tuple[int, int]] = []

    def metric(self, namespace: str, name: str, value: float) -> None:
        """See `PartTracker.metric`."""
        self.metrics[namespace, name] = float(value)

    def curve(self, namespace: str, name: str, points: Sequence[tuple[float, float]], *, kind: str = "") -> None:
        """See `PartTracker.curve`."""
        self.curves[namespace, name] = [(float(x), float(y)) for x, y in points]

    def summary(self, values: Mapping[str, Any]) -> None:
        """See `PartTracker.summary`."""
        self.summaries |= values

    def progress(self, done: int, total: int) -> None:
        """See `PartTracker.progress`."""
        self.done.append((done, total))

    def log(self, text: str) -> None:
        """See `PartTracker.log`."""
        self.lines.append(text)


class PartInputs(NamedTuple):
    """What a part of a test is given: see `ComponentPart`."""

    parameters: Mapping[str, Any] = {}
    data: Mapping[str, Sequence[PartyFrame]] = {}
    models: Mapping[str, Mapping[str, Any]] = {}
    tables: Callable[[str, str], PartyFrame] | None = None
    shows_ids: bool = False
    sources: Mapping[str, Sequence[str]] = {}


class PartsRun(NamedTuple):
    """How parts have ended: outputs and trackers by party, and what they sent."""

    outputs: dict[Party, PartOutput]
    records: dict[Party, PartRecord]
    sent: list[SentValue]


def run_parts(module: str, given: Mapping[Party, PartInputs], *, name: str = "component_0", seed: int = 0) -> PartsRun:
    """Run all parts of a module at once, and return how they ended; the first error of a part is raised."""
    exchange, run = PartExchange(), component(module)
    parties: dict[str, list[str]] = {}
    for one in given:
        parties.setdefault(one.role, []).append(one.id)
    outputs: dict[Party, PartOutput] = {}
    records = {one: PartRecord() for one in given}
    errors: list[BaseException] = []

    def work(here: Party) -> None:
        has = given[here]
        part = ComponentPart(
            here=here,
            parties=parties,
            job="job",
            component=name,
            module=module,
            parameters=has.parameters,
            channel=exchange.channel(here),
            tracker=records[here],
            data=has.data,
            sources=has.sources,
            models=has.models,
            tables=has.tables,
            seed=seed,
            shows_ids=has.shows_ids,
        )
        try:
            outputs[here] = run(part)
        except BaseException as error:  # noqa: BLE001 - raised by the caller
            errors.append(error)
            exchange.stop()

    threads = [threading.Thread(target=work, args=(one,), name=str(one)) for one in given]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return PartsRun(outputs, records, exchange.sent)
