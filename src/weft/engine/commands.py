"""The commands of the master to the loop, carried out in the order in which the master gives them.

`DURABLE_FIRST` names the commands that wait until the journal record of their tick is durable. Launches need not wait,
since every lease carries the incarnation of the master.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Iterator

    from weft.graph.lease import Cone
    from weft.graph.task_spec import TaskSpec
    from weft.model.resources import Placement, Resources


class Launch(Struct, frozen=True, gc=False):
    """Run units `lo:hi` of the root `vertex` on `worker`; `cone` is None for a lease of tasks of the root alone.

    `worker` -1 is the helper pool of the node, for unslotted tasks. `attempt` counts from 0. `nbytes` is the expected
    size of the outputs, 0 if unknown. `backup_of` is the lease that already runs the same tasks: the first of the two
    to commit wins. `specs` describe the members of the cone, the root last: a launch needs no other data of the master.
    """

    worker: int
    lease: int
    vertex: str
    lo: int
    hi: int
    cone: Cone | None
    attempt: int
    resources: Resources
    nbytes: int = 0
    backup_of: int = 0
    specs: tuple[TaskSpec, ...] = ()

    @property
    def spec(self) -> TaskSpec:
        """The root vertex."""
        return self.specs[-1]


class LaunchEach(Struct, frozen=True, gc=False):
    """Run the tasks from `lo` on of a vertex, one on each of `workers`, as `leases` with successive numbers.

    It stands for a `Launch` of each, as `single_launches` makes them. `attempts` are theirs, or empty if all are 0.
    """

    workers: tuple[int, ...]
    leases: tuple[int, ...]
    vertex: str
    lo: int
    attempts: tuple[int, ...]
    resources: Resources
    nbytes: int
    specs: tuple[TaskSpec, ...]

    def of(self, lease: int) -> Launch:
        """Return the command for one of the leases."""
        at = lease - self.leases[0]
        lo, attempt = self.lo + at, self.attempts[at] if self.attempts else 0
        return Launch(
            self.workers[at], lease, self.vertex, lo, lo + 1, None, attempt, self.resources, self.nbytes, 0, self.specs
        )

    def each(self) -> Iterator[Launch]:
        """Yield the command for each lease."""
        return map(self.of, self.leases)


class Shrink(Struct, frozen=True):
    """Revoke the second half of the units of a lease that have not started; answered by `GaveBack`."""

    lease: int


class Weigh(Struct, frozen=True):
    """Count the bytes that the `tasks` of a lease (vertex, lo, hi) read; answered by `Weighed`."""

    lease: int
    tasks: tuple[tuple[str, int, int], ...]


class Stop(Struct, frozen=True):
    """Stop a lease: cooperative first, by force after the backend's grace; answered by `Failed(STOPPED)` or `Done`."""

    lease: int
    reason: str


DRAINED: Final = "its last consumer has ended"
"""The reason of the stop of a service that nobody needs any more."""


class Acquire(Struct, frozen=True):
    """Ask the pool for one slot for each wanted task, all or nothing; answered by `Granted` or `Refused`.

    `wants` has (vertex, tasks, alternatives, placement). `avoid` are excluded workers. `bound` are workers that stay
    taken until the request is met, because they run services of the same bubble. Requests of one job with a higher
    `priority` are met first.
    """

    request: int
    wants: tuple[tuple[str, int, tuple[Resources, ...], Placement | None], ...]
    prewarmed: bool
    avoid: tuple[int, ...] = ()
    bound: tuple[int, ...] = ()
    priority: int = 0


class Withdraw(Struct, frozen=True):
    """Forget a request that has not been granted."""

    request: int


class Release(Struct, frozen=True):
    """Give one granted slot back to the pool."""

    request: int
    worker: int


class Free(Struct, frozen=True):
    """Drop the outputs of tasks `lo:hi` of a vertex."""

    vertex: str
    lo: int
    hi: int


class FreeParts(Struct, frozen=True):
    """Drop partitions of every output of a vertex, in ascending order."""

    vertex: str
    parts: tuple[int, ...]


class Probe(Struct, frozen=True):
    """Ask the cache for the output of a task; answered by `Hit`, `Miss` or `Waiting`."""

    vertex: str
    index: int
    key: str


class Reply(Struct, frozen=True):
    """Send a control vertex the result of the request `token`: the reason of the rejection, "" after success."""

    token: str
    text: str


class SetTimer(Struct, frozen=True):
    """Send `TimerFired(timer)` at time `at`."""

    at: float
    timer: int


class Publish(NamedTuple):
    """Send a user event (endpoints of services) to the running tasks of `vertex` and of its consumers."""

    vertex: str
    index: int  # type: ignore[assignment]
    name: str
    payload: Any


class Restart(Struct, frozen=True):
    """Drop the streamed data and the edge state of these vertices, which restart together."""

    vertices: tuple[str, ...]


class MarkEnded(Struct, frozen=True):
    """A vertex that others read or feed while it runs has ended, or makes outputs again if not `ended`."""

    vertex: str
    ended: bool = True


class Complete(Struct, frozen=True):
    """The job has ended: "succeeded", "failed" or "cancelled"; the other fields name the first cause."""

    state: str
    task: str = ""
    message: str = ""
    traceback: str = ""
    kind: str = ""
    raised: str = ""


Command = (
    Launch
    | LaunchEach
    | Shrink
    | Weigh
    | Stop
    | Acquire
    | Withdraw
    | Release
    | Free
    | FreeParts
    | Probe
    | Reply
    | SetTimer
    | Publish
    | Restart
    | MarkEnded
    | Complete
)

DURABLE_FIRST = (Free, FreeParts, Publish, Complete)


def single_launches(commands: list[Command]) -> list[Command]:
    """Return the commands with one for each lease."""
    if not any(type(command) is LaunchEach for command in commands):
        return commands
    found: list[Command] = []
    for command in commands:
        if type(command) is LaunchEach:
            found += command.each()
        else:
            found.append(command)
    return found
