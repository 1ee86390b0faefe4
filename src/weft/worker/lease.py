"""A lease as seen by a worker, and its outcome."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

if TYPE_CHECKING:
    from weft.graph.lease import Cone
    from weft.graph.task import CommitBarrier
    from weft.model.raised import Origin
    from weft.worker.code import TaskCode


class WorkerLease:
    """Units `lo:hi` of a root vertex. `hi` may be lowered while it runs (`end_before`); `at` is the current unit.

    The tail is revoked without a lock: the worker writes its position before it reads `hi`, the other side lowers `hi`
    before it reads the position; units at or past the new `hi` that were not begun are given back. The position is
    `pos`, or where the worker follows a list (`follow`), the number of values that it has made.

    `race` is the backend's record of another lease of the same tasks. `committing` is set while outputs are put into
    the store. `late` is set by a stop after the time limit: later values do not count. `drains` is set by the stop of a
    service whose last consumer has ended. `gate` is the commit barrier, which is passed before any visible effect.
    `logs` is the folder for the output of its tasks, "" if it is not kept.
    """

    __slots__ = (
        "attempt",
        "callbacks",
        "codes",
        "committing",
        "cone",
        "drains",
        "gate",
        "hi",
        "host",
        "id",
        "late",
        "lo",
        "logs",
        "made",
        "nbytes",
        "patience",
        "pos",
        "race",
        "resources",
        "root",
        "stop",
        "todo",
        "worker",
    )

    def __init__(
        self,
        id: int,
        root: TaskCode,
        lo: int,
        hi: int,
        *,
        cone: Cone | None = None,
        codes: tuple[TaskCode, ...] = (),
        attempt: int = 0,
        nbytes: int = 0,
        resources: Any = None,
        host: Any = None,
        gate: CommitBarrier | None = None,
        worker: int = -1,
    ) -> None:
        self.id = id
        self.root = root
        self.lo = lo
        self.hi = hi
        self.cone = cone
        self.codes = codes or (root,)
        self.attempt = attempt
        self.nbytes = nbytes
        self.resources = resources
        self.host = host
        self.gate = gate
        self.worker = worker
        self.logs = ""
        self.pos = lo
        self.stop = False
        self.drains = False
        self.todo: list[Any] | None = None
        self.made: list[Any] = []
        self.late = False
        self.patience = 0
        self.race: Any = None
        self.committing = False
        self.callbacks: list[Callable[[], None]] | None = None

    def follow(self, items: Sequence[Any], made: list[Any]) -> list[Any]:
        """Return the items of the units as a list to iterate over, one value in `made` for each item.

        The list is cut when the lease is shortened or stopped, so that the worker need not look at `hi` and `stop`.
        """
        self.made = made
        todo = self.todo = list(items[self.lo : self.hi])
        self._cut(todo)  # what was told before `todo` was there
        return todo

    def _cut(self, todo: list[Any]) -> None:
        """Leave no item of a revoked unit; after a stop none."""
        del todo[0 if self.stop else max(0, self.hi - self.lo) :]

    def end_before(self, hi: int) -> None:
        """Lower the end: no unit from `hi` on begins."""
        self.hi = hi
        if self.todo is not None:
            self._cut(self.todo)

    def shrink(self) -> int | None:
        """Lower `hi` to the middle of the units not begun; return it, or None if there are none."""
        middle = (self._unit() + 1 + self.hi + 1) // 2
        if middle >= self.hi:
            return None
        self.end_before(middle)
        return max(middle, self._unit() + 1)

    def _unit(self) -> int:
        """Return the current unit of a lease in this process."""
        return self.pos if self.todo is None else self.lo + len(self.made)

    @property
    def at(self) -> int:
        """The current unit."""
        return self._unit()

    def ask_to_stop(self) -> None:
        """Let no further unit begin; the running one may ask whether to stop."""
        self.stop = True
        if self.todo is not None:
            self._cut(self.todo)

    def cancel(self) -> None:
        """Stop the running task."""
        self.ask_to_stop()
        for callback in list(self.callbacks or ()):
            callback()


class UnitCounts(Struct, frozen=True):
    """The rows of a unit's value, and the bytes of all its partitions, or of those with any, for each measured edge."""

    rows: int
    stats: tuple[tuple[str, list[int] | dict[int, int]], ...]


class LeaseResult:
    """The outcome of a lease: units below `hi` are done and `values` are the root's, the first of them of unit `lo`.

    With `kind` set, task `index` of `vertex` failed in unit `hi`, `raised` is the class of its exception, as
    `module:qualname`, `origin` what it was, perhaps packed (`weft.worker.origins`), and `status` the exit code of its
    process, if one has ended. `reached` >= 0: a linear cone
    stopped after that member, whose value is the only one in `values`. `counts` has an entry for each value if the root
    is counted or measured, and none otherwise.
    """

    __slots__ = (
        "counts",
        "hi",
        "index",
        "kind",
        "lost",
        "message",
        "nbytes",
        "origin",
        "raised",
        "reached",
        "seconds",
        "status",
        "traceback",
        "values",
        "vertex",
    )

    def __init__(self, hi: int, values: list[Any], seconds: float) -> None:
        self.hi = hi
        self.values = values
        self.seconds = seconds
        self.nbytes = 0
        self.reached = -1
        self.kind = ""
        self.vertex = ""
        self.index = -1
        self.message = ""
        self.traceback = ""
        self.raised = ""
        self.origin: Origin | bytes | None = None
        self.status: int | None = None
        self.lost: tuple[str, int] | None = None
        self.counts: list[UnitCounts] = []

    def end_at(self, hi: int, lo: int) -> None:
        """Drop the results from the revoked unit `hi` on; the lease begins at unit `lo`."""
        self.hi = hi
        self.kind = ""
        del self.values[max(0, hi - lo) :]
        del self.counts[max(0, hi - lo) :]

    @property
    def rows(self) -> int:
        """The rows of all units."""
        return sum(count.rows for count in self.counts)

    @property
    def stats(self) -> tuple[tuple[str, list[int] | dict[int, int]], ...]:
        """The bytes of the partitions of all units, for each measured edge."""
        if len(self.counts) == 1:
            return self.counts[0].stats
        whole: dict[str, list[list[int]]] = {}
        sparse: dict[str, dict[int, int]] = {}
        for edge, sizes in (entry for count in self.counts for entry in count.stats):
            if isinstance(sizes, list):
                whole.setdefault(edge, []).append(sizes)
                continue
            sums = sparse.setdefault(edge, {})
            for partition, nbytes in sizes.items():
                sums[partition] = sums.get(partition, 0) + nbytes
        return (*((edge, list(map(sum, zip(*rows, strict=True)))) for edge, rows in whole.items()), *sparse.items())
