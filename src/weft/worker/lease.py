"""A lease as a worker sees it, and what becomes of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from weft.graph.lease import Cone
    from weft.graph.task import CommitBarrier
    from weft.worker.code import TaskCode


class WorkerLease:
    """Units `lo:hi` of a root vertex. `hi` may be lowered while it runs, `pos` says which unit is being done.

    The protocol of taking back the tail needs no lock: the worker writes `pos` before it reads `hi`, the other side
    lowers `hi` before it reads `pos`; what is at or past the new `hi` and was not begun is given back.

    `race` is what the backend knows of another lease of the same tasks, `committing` says that outputs are being put
    into the store, `late` that it was told to stop since its time is up: what it makes after that does not count.
    `gate` is passed before anything is done that others could notice.
    """

    __slots__ = (
        "attempt",
        "callbacks",
        "codes",
        "committing",
        "cone",
        "gate",
        "hi",
        "host",
        "id",
        "late",
        "lo",
        "nbytes",
        "pos",
        "race",
        "resources",
        "root",
        "stop",
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
        self.pos = lo
        self.stop = False
        self.late = False
        self.race: Any = None
        self.committing = False
        self.callbacks: list[Callable[[], None]] | None = None

    def shrink(self) -> int | None:
        """Lower `hi` to the middle of what has not begun; return it, or None if there is nothing to take."""
        middle = (self.pos + 1 + self.hi + 1) // 2
        if middle >= self.hi:
            return None
        self.hi = middle
        return max(middle, self.pos + 1)

    @property
    def at(self) -> int:
        """The unit that is being done."""
        return self.pos

    def cancel(self) -> None:
        """Tell the running task to stop."""
        self.stop = True
        for callback in list(self.callbacks or ()):
            callback()


class LeaseResult:
    """What became of a lease: units below `hi` are done and `values` are the root's, the first of them of unit `lo`.

    With `kind` set, task `index` of `vertex` failed in unit `hi`, `raised` is the class of what its code raised, as
    `module:qualname`, and `status` the exit code of its process, if one has ended. `reached` >= 0: a linear cone
    stopped after that member, whose value is the only one in `values`.
    """

    __slots__ = (
        "hi",
        "index",
        "kind",
        "lost",
        "message",
        "nbytes",
        "raised",
        "reached",
        "rows",
        "seconds",
        "stats",
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
        self.status: int | None = None
        self.lost: tuple[str, int] | None = None
        self.stats: tuple[tuple[str, list[int]], ...] = ()
        self.rows = 0

    def end_at(self, hi: int, lo: int) -> None:
        """Drop what was done from unit `hi` on, which is not the lease's any more; it begins at unit `lo`.

        What was counted goes with it: nobody can tell how much of it was of those units.
        """
        self.hi = hi
        self.kind = ""
        del self.values[max(0, hi - lo) :]
        self.stats = ()
        self.rows = 0
