"""The common part of the backends of one machine: runs of leases, stops, timers, unslotted tasks."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from weft.backends.helpers import BackendThreads, TimerThread
from weft.engine.commands import DRAINED
from weft.engine.events import Failed, GaveBack, Noted, Weighed
from weft.engine.notes import NoteKind
from weft.engine.provider import FixedProvider, NodeSpec
from weft.engine.tuning import Tuning
from weft.model.chunks import OUTSIDE, ChunkRef
from weft.model.errors import CapacityError, NotFoundError, RunCancelledError, WeftError
from weft.model.failures import Failure, kind_of
from weft.model.ranges import runs
from weft.model.resources import Resources
from weft.store.api import sizeof
from weft.store.codec import SMALL_PIECE
from weft.store.row_index import DENSE
from weft.store.rows import EdgeValues, positions
from weft.store.tiers import part_nbytes
from weft.worker.code import PIECES, InputCode
from weft.worker.lease import LeaseResult as LeaseOutcome
from weft.worker.lease import WorkerLease
from weft.worker.run import run

if TYPE_CHECKING:
    from weft.backends.local_jobs import LocalJob
    from weft.engine.commands import Launch, LaunchEach, MarkEnded, Publish, Reply, Restart, Weigh
    from weft.engine.ports import Clock, Job, Shell
    from weft.engine.provider import Provider
    from weft.store.api import ChunkPin, ChunkStore

STREAM_BYTES = 64 * 2**20
"""The bytes that a streamed edge holds before its writers wait; fewer if the memory is small."""
RESERVE_FROM: Final = 2**20
"""A lease that needs fewer bytes reserves none."""
GRACE_S = 3.0
"""The seconds a stopped task may take before it is abandoned."""


def lease_bytes(budget: int, workers: int) -> int:
    """Return the bytes that the outputs of one lease may take, so that every worker can have a lease and each fits."""
    return min(Tuning().lease_bytes, max(1, budget // (2 * max(1, workers))))


def stream_bytes(budget: int) -> int:
    """Return the bytes a streamed edge may hold: a small part of the memory, since a bubble may have several edges."""
    return min(STREAM_BYTES, max(1, budget // 16))


def bytes_needed(store: ChunkStore, lease: WorkerLease) -> int:
    """Return the bytes to reserve for a lease: those that it makes, and its own copies of inputs outside of memory."""
    nbytes = lease.nbytes
    if store.memory.outside:
        nbytes += min(_read_back(lease), max(0, store.memory.budget - nbytes))
    return nbytes


@contextlib.contextmanager
def reserved(store: ChunkStore, lease: WorkerLease) -> Iterator[Any]:
    """Reserve memory for a lease's outputs while it runs, if they are expected to be large, and pin its inputs.

    An input that leaves memory while the lease waits for its reservation is read back, so that needs grow.
    """
    owner = f"{lease.root.vertex}[{lease.lo}]"
    nbytes = bytes_needed(store, lease)
    while True:
        with contextlib.ExitStack() as held:
            reservation = None
            if nbytes >= RESERVE_FROM and lease.root.in_bubble:
                reservation = held.enter_context(store.memory.claim(owner, nbytes))
            elif nbytes >= RESERVE_FROM:
                reservation = held.enter_context(store.memory.reserve(owner, nbytes, cancelled=lambda: lease.stop))
            for pin in _pinned(store, lease):
                held.callback(pin.release)
            least = bytes_needed(store, lease)
            if least <= nbytes or least < RESERVE_FROM or lease.root.in_bubble:
                yield reservation
                return
        nbytes = least


def _pinned(store: ChunkStore, lease: WorkerLease) -> Iterator[ChunkPin]:
    """Pin the inputs that the tasks of a lease read whole: until it ends it refers to them, wherever they move."""
    for inp, indexes in _whole_inputs(lease):
        spans = [(lo, hi) for index in indexes for lo, hi, _, _ in inp.router.inputs(index)]
        yield store.pin(inp.column, {at for lo, hi in spans for at in range(lo, hi)})


def _whole_inputs(lease: WorkerLease, member: int = -1) -> Iterator[tuple[InputCode, range]]:
    """Yield the inputs with large values that the members of a lease, or one, read whole, with the reading tasks."""
    mults = (1,) if lease.cone is None else lease.cone.mult
    inner = frozenset() if lease.cone is None else frozenset(lease.cone.members)
    for at, (code, mult) in enumerate(zip(lease.codes, mults, strict=True)):
        if at and code.only:
            continue  # it reads the value of another member
        for inp in code.inputs if member in (-1, at) else ():
            if inp.mode != PIECES and not inp.live and inp.source not in inner and inp.column.tracked:
                yield inp, range(lease.lo * mult, max(lease.lo + 1, lease.hi) * mult)


def _read_back(lease: WorkerLease) -> int:
    """Return the most bytes that a task of a lease reads whole from disk.

    Data read in pieces counts as working memory of its vertex.
    """
    most = 0
    for member in range(len(lease.codes)):
        read: dict[int, int] = {}
        for inp, indexes in _whole_inputs(lease, member):
            for index in indexes:
                cells = [cell for lo, hi, _, _ in inp.router.inputs(index) for cell in inp.column.values[lo:hi]]
                nbytes = sum(cell.nbytes for cell in cells if type(cell) is ChunkRef and cell.tier in OUTSIDE)
                read[index] = read.get(index, 0) + nbytes
        most = max(most, *read.values(), 0)
    return most


def input_bytes(inp: InputCode, index: int) -> int:
    """Return the bytes that task `index` reads through an input, as far as they exist."""
    if inp.live:
        return 0
    column, index_of = inp.column, inp.column.index
    if inp.mode != PIECES:
        cells = [column.values[i] for lo, hi, _, _ in inp.router.inputs(index) for i in range(lo, hi)]
        return sum(cell.nbytes if type(cell) is ChunkRef else sizeof(cell) for cell in cells)
    nbytes = 0
    for lo, hi, part_lo, part_hi in inp.router.inputs(index):
        if index_of is not None and index_of.kind(lo, hi) != DENSE:
            pieces = index_of.pieces(inp.edge, (lo, hi, part_lo, part_hi))
            nbytes += sum(_bytes_of(inp, column.values[row], part, part + 1) for row, part in pieces)
        else:
            nbytes += sum(_bytes_of(inp, column.values[row], part_lo, part_hi) for row in range(lo, hi))
    return nbytes


def _bytes_of(inp: InputCode, cell: Any, lo: int, hi: int) -> int:
    """Return the bytes of the partitions `lo:hi` of a row, as far as they exist."""
    with contextlib.suppress(NotFoundError):  # spilled or freed meanwhile
        if type(cell) is EdgeValues:
            return sum(map(sizeof, cell.part(inp.edge, lo, hi)))
        if type(cell) is not ChunkRef:
            return sum(map(sizeof, cell[lo:hi])) if isinstance(cell, (list, tuple)) else 0
        if cell.pieces:
            at = positions(cell.pieces, inp.edge, lo, hi)[1]
            return part_nbytes(cell, at.start, at.stop) if cell.parts else len(at) * SMALL_PIECE
        if cell.parts:
            return part_nbytes(cell, lo, hi)
        return cell.nbytes * (hi - lo) // inp.router.partitions
    return 0


def run_here(local: LocalJob, lease: WorkerLease, target_s: float) -> None:
    """Run a lease on this thread and report; a drain of the loop follows. No exception may end the thread."""
    loop = local.loop
    try:
        with reserved(local.store, lease) as reservation:
            outcome = run(lease, local.store, target_s)
            local.commit(lease, outcome, reservation)
    except BaseException as error:  # noqa: BLE001
        outcome = crashed(lease, error)
    if lease.id in local.running:
        loop.post_later(local.job.id, local.report(lease, outcome, loop.clock.now()))


def crashed(lease: WorkerLease, error: BaseException) -> LeaseOutcome:
    """Return the outcome of a lease that could not begin, or whose values could not be stored."""
    outcome = LeaseOutcome(lease.lo, [], 0.0)
    outcome.vertex, outcome.index = lease.root.vertex, lease.lo
    outcome.message = str(error) if isinstance(error, WeftError) else f"{type(error).__name__}: {error}"
    if isinstance(error, RunCancelledError) and lease.stop:
        outcome.kind = Failure.STOPPED.value
    else:
        outcome.kind = kind_of(error, Failure.INFRASTRUCTURE).value
    return outcome


def abandon(local: LocalJob, lease: WorkerLease, grace_s: float) -> None:
    """Abandon a task that did not stop in time on a thread of this process, and report for it."""
    local.forget(lease)
    vertex = lease.root.vertex
    now = local.loop.clock.now()
    local.loop.post_later(local.job.id, Noted(now, vertex, NoteKind.UNSTOPPABLE.word, (lease.at, grace_s)))
    local.loop.post(
        local.job.id,
        Failed(now, lease.id, lease.lo, vertex, lease.at, Failure.STOPPED, "did not stop in time"),
    )


class LocalBackend(ABC):
    """The common part of all executors of one machine: one store that all workers read, a helper pool, timers."""

    tuning: Tuning
    gated = True
    name = "local"
    clock: Clock | None = None

    def __init__(
        self,
        workers: int,
        store: ChunkStore,
        resources: Resources | None,
        grace_s: float,
        window: int | None,
        surroundings: BackendThreads | None = None,
    ) -> None:
        self.store = store
        self.surroundings = surroundings or BackendThreads()
        self.grace_s = grace_s
        self.window = stream_bytes(store.memory.budget) if window is None else window
        self._resources = resources or Resources(cpu=workers, memory=store.memory.budget)
        self._helpers = self.surroundings.helpers("weft-light", lambda hand_on: self.loop.drain(hand_on))
        self._loop: Shell | None = None
        self._timers: TimerThread | None = None

    @property
    def loop(self) -> Shell:
        """The loop of the session."""
        assert self._loop is not None
        return self._loop

    @property
    def timers(self) -> TimerThread:
        """The timers of the backend."""
        assert self._timers is not None
        return self._timers

    @property
    def provider(self) -> Provider:
        """See `Executor.provider`: one node of fixed size."""
        return FixedProvider((NodeSpec(workers=tuple(self.numbers()), resources=self._resources),))

    def waiting(self) -> contextlib.AbstractContextManager[None]:
        """See `Executor.waiting`."""
        return contextlib.nullcontext()

    def hurry(self) -> None:
        """See `Executor.hurry`: processes are killed, threads abandoned."""
        self.grace_s = 0.0

    @abstractmethod
    def numbers(self) -> Sequence[int]:
        """Return the present workers, by number."""

    def attach(self, loop: Shell) -> None:
        """See `Executor.attach`."""
        self._loop = loop
        self._timers = self.surroundings.timers(loop)

    def call_beside(self, action: Callable[[], None]) -> None:
        """Call `action`, which may block, on a helper thread. CapacityError: the system has none."""
        self._helpers.put(action)

    def run_beside(self, local: LocalJob, lease: WorkerLease) -> None:
        """Run a lease that takes no worker on a helper thread; it fails if the system has no thread left."""
        try:
            self._helpers.put(partial(run_here, local, lease, self.tuning.target_s))
        except CapacityError as error:
            self.loop.post_later(local.job.id, local.report(lease, crashed(lease, error), self.loop.clock.now()))

    @abstractmethod
    def launch(self, job: Job, lease: Launch) -> None:
        """See `Executor.launch`."""

    def launch_each(self, job: Job, leases: LaunchEach) -> None:
        """See `Executor.launch_each`."""
        for lease in leases.each():
            self.launch(job, lease)

    def shrink(self, job: Job, lease: int) -> None:
        """See `Executor.shrink`."""
        local: LocalJob = job.backend
        running = local.running.get(lease)
        if running is None:
            return
        if running.race is None:
            self._revoke(local, running)
        else:
            self._helpers.put(partial(self._revoke, local, running))

    def _revoke(self, local: LocalJob, lease: WorkerLease) -> None:
        hi = local.shrink(lease)
        if hi is not None:
            self.loop.post(local.job.id, GaveBack(self.loop.clock.now(), lease.id, hi))

    def weigh(self, job: Job, weigh: Weigh) -> None:
        """See `Executor.weigh`; counting may take long, so another thread does it."""
        self._helpers.put(partial(self._weigh, job.backend, weigh))

    def _weigh(self, local: LocalJob, weigh: Weigh) -> None:
        lease = local.running.get(weigh.lease)  # else it has ended: no answer is needed
        codes = {code.vertex: code for code in lease.codes} if lease is not None else {}
        nbytes = sum(
            input_bytes(inp, index)
            for vertex, lo, hi in weigh.tasks
            if vertex in codes
            for inp in codes[vertex].inputs
            for index in range(lo, hi)
        )
        self.loop.post(local.job.id, Weighed(self.loop.clock.now(), weigh.lease, nbytes))

    def stop(self, job: Job, lease: int, reason: str) -> None:
        """See `Executor.stop`: ask the task to stop, and enforce it after the grace period."""
        local: LocalJob = job.backend
        running = local.running.get(lease)
        if running is None:
            return
        now = self.loop.clock.now()
        running.late = reason == "timeout"
        running.drains = reason == DRAINED
        self.ask_to_stop(running)
        local.settle()
        self.store.memory.wake()
        launch = job.leases.get(lease)
        worker = launch.worker if launch is not None else -1
        self.timers.call(now + self.grace_s, partial(self.out_of_time, local, running, worker))

    def ask_to_stop(self, lease: WorkerLease) -> None:
        """Ask a task to stop. Its callbacks run on the timer thread, as they may block."""
        lease.ask_to_stop()
        if lease.callbacks:
            self.timers.call(self.loop.clock.now(), lease.cancel)

    @abstractmethod
    def out_of_time(self, local: LocalJob, lease: WorkerLease, worker: int) -> None:
        """Enforce the stop of a task that may still run after its grace period."""

    def has_longer(self, local: LocalJob, lease: WorkerLease, worker: int) -> bool:
        """Return whether a task has asked for more than the grace period; its stop is then enforced after that."""
        longer, lease.patience = lease.patience / 1000 - self.grace_s, 0
        if longer > 0:
            self.timers.call(self.loop.clock.now() + longer, partial(self.out_of_time, local, lease, worker))
        return longer > 0

    def free(self, job: Job, vertex: str, lo: int, hi: int) -> None:
        """See `Executor.free`."""
        local: LocalJob = job.backend
        column = local.columns.get(vertex)
        if column is not None:
            local.free(vertex, lo, hi, self._helpers.put)
            self.store.free_range(column, lo, hi, defer=self._helpers.put)

    def free_parts(self, job: Job, vertex: str, parts: Sequence[int]) -> None:
        """See `Executor.free_parts`."""
        local: LocalJob = job.backend
        column = local.columns.get(vertex)
        if column is not None:
            local.free_parts(column, vertex, parts, self._helpers.put)
            for lo, hi in runs(parts):
                self.store.free_parts(column, lo, hi, 0, len(column))

    def publish(self, job: Job, event: Publish) -> None:
        """See `Executor.publish`."""
        job.backend.publish(event)

    def restart(self, job: Job, command: Restart) -> None:
        """See `Executor.restart`."""
        self._helpers.put(job.backend.reset_streams(command.vertices))

    def mark_ended(self, job: Job, command: MarkEnded) -> None:
        """See `Executor.mark_ended`."""
        job.backend.mark_ended(command)

    def retire_job(self, job: Job) -> None:
        """See `Executor.retire_job`."""
        job.backend.retire()

    def restore(self, job: Job, vertex: str, lo: int, hi: int) -> None:
        """See `Executor.restore`."""
        job.backend.restore(vertex, range(lo, hi))

    def reply(self, job: Job, reply: Reply) -> None:
        """See `Executor.reply`."""
        job.backend.take_reply(reply)

    def set_timer(self, job: Job, at: float, timer: int) -> None:
        """See `Executor.set_timer`."""
        self.timers.set(job.id, at, timer)
