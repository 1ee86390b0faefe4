"""What a cluster with an autoscaler is asked for: room for the present nodes and for all that waits for others.

An autoscaler keeps the last request until the next one, and adds nodes until all bundles of it would fit into an empty
cluster. So each request names the present nodes, too, and the last one is empty.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from math import ceil
from typing import TYPE_CHECKING, Final

from weft.backends.cluster_nodes import ClusterProvider
from weft.model.resources import Resources

if TYPE_CHECKING:
    from weft.engine.provider import NodeKind, NodeSpec, SlotRequest

BUNDLES: Final = 256
"""The most bundles that are asked for what waits."""
ACCELERATOR: Final = "accelerator_type:"
"""How the resource of a machine begins by which Ray tells the type of its GPUs."""
_A_LITTLE: Final = 0.001
"""The amount of an `accelerator_type:` resource that Ray's own tasks ask for."""
Bundle = dict[str, float]


def bundle(resources: Resources) -> Bundle:
    """Return resources by the names of Ray; memory in bytes."""
    found: Bundle = {"CPU": float(max(1, ceil(resources.cpu)))}
    if resources.memory:
        found["memory"] = float(resources.memory)
    if resources.gpu:
        found["GPU"] = float(resources.gpu)
        if resources.gpu_type:
            found[ACCELERATOR + resources.gpu_type] = _A_LITTLE
    return found | dict(resources.custom)


class ScalingRequests:
    """The requests of the loop that wait for nodes. `send` asks the autoscaler; `tell` calls it where that changed.

    `plain` returns the number of tasks that are ready for any core. `kinds` are the nodes that could join.
    """

    def __init__(
        self, kinds: Sequence[NodeKind], send: Callable[[list[Bundle]], None], plain: Callable[[], int]
    ) -> None:
        self.kinds = tuple(kinds)
        self._send = send
        self._plain = plain
        self._lock = threading.Lock()
        self._waiting: dict[tuple[str, int], SlotRequest] = {}
        self._sent: list[Bundle] = []

    def acquire(self, request: SlotRequest) -> None:
        """See `Provider.acquire`."""
        with self._lock:
            self._waiting[request.job, request.request] = request

    def release(self, job: str, request: int) -> None:
        """See `Provider.release`."""
        with self._lock:
            self._waiting.pop((job, request), None)

    def wanted(self, present: Sequence[Resources]) -> list[Bundle]:
        """Return the bundles to ask for, none if nothing waits. `present` are the nodes that take work now."""
        with self._lock:
            waiting = list(self._waiting.values())
        found: list[Bundle] = []
        for request in waiting:
            if request.request < 0:
                continue
            for _, count, alternatives, _ in request.wants:
                found += [bundle(alternatives[0])] * min(count, BUNDLES)
        if any(request.request < 0 for request in waiting):
            found += [bundle(Resources())] * min(self._plain(), BUNDLES)
        return [*map(bundle, present), *found[:BUNDLES]] if found else []

    def tell(self, present: Sequence[Resources]) -> None:
        """Ask for what waits now, if that is not what was asked for last."""
        wanted = self.wanted(present)
        if wanted != self._sent:
            self._send(wanted)
            self._sent = wanted

    def withdraw(self) -> None:
        """Ask for nothing any more."""
        if self._sent:
            self._sent = []
            self._send([])


class ScalingProvider(ClusterProvider):
    """The nodes of a cluster with an autoscaler."""

    grows = True

    def __init__(self, nodes: Sequence[NodeSpec], drained: Callable[[int], None], requests: ScalingRequests) -> None:
        super().__init__(nodes, drained)
        self._requests = requests

    def possible(self) -> Sequence[NodeKind]:
        """See `Provider.possible`: the kinds of nodes of the autoscaler."""
        return self._requests.kinds

    def acquire(self, request: SlotRequest) -> None:
        """See `Provider.acquire`."""
        self._requests.acquire(request)

    def release(self, job: str, request: int) -> None:
        """See `Provider.release`."""
        self._requests.release(job, request)
