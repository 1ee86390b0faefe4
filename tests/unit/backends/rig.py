"""A loop that records what backends post, and jobs without a loop behind them."""

import threading
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

from tests.unit.engine.hand import Hand
from weft.engine.commands import Launch
from weft.engine.ports import ManualClock
from weft.graph.builder import Graph
from weft.model.resources import ONE_SLOT

DEADLINE_S = 180.0


class PostedEvents:
    """A `Shell`: `posts` has (job, event) in order."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.jobs: dict[str, Any] = {}
        self.posts: list[tuple[str, Any]] = []
        self.drained = 0
        self._changed = threading.Condition()

    def post(self, job: str, event: Any) -> None:
        self.post_later(job, event)
        self.drain()

    def post_later(self, job: str, *events: Any) -> None:
        with self._changed:
            self.posts += [(job, event) for event in events]
            self._changed.notify_all()

    def drain(self, going_on: Callable[[], None] | None = None) -> None:
        with self._changed:
            self.drained += 1
            self._changed.notify_all()

    def idle_tick(self) -> None:
        pass

    def wait(self, count: int) -> list[Any]:
        """Wait until so many events have been posted; return them all."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.posts) >= count, DEADLINE_S), self.posts
            return [event for _, event in self.posts]


def posted_events() -> Any:
    """A loop that records, in the place of any `Shell`."""
    return PostedEvents()


def job_of(graph: Graph, **fields: Any) -> Any:
    """A `Job` whose inspector reads a master that nobody drives."""
    plain: Mapping[str, Any] = {
        "id": "job",
        "graph": graph,
        "inspector": Hand(graph).master.inspector,
        "leases": {},
        "specs": {},
        "outcome": None,
        "backend": None,
        "outputs": None,
        "history": (),
        "recorded": False,
        "given": {},
        "gates": {},
        "logs": "",
        "cache": None,
        "host": None,
    }
    return SimpleNamespace(**{**plain, **fields})


def launch_of(job: Any, vertex: str, lo: int, hi: int, *, lease: int = 1, worker: int = 0, **fields: Any) -> Launch:
    """A launch of tasks of one vertex, which the job waits for."""
    spec = job.specs.setdefault(vertex, job.inspector.spec(vertex))
    launch = Launch(worker, lease, vertex, lo, hi, None, 0, ONE_SLOT, specs=(spec,), **fields)
    job.leases[lease] = launch
    return launch
