"""The threads backend: workers are threads of this process, values are passed by reference.

The default for work that releases the GIL (NumPy, Arrow, DuckDB, child processes). A worker with a report drains all
queues (`runtime.loop`), so a task costs no thread switch. A thread starts with the first lease of its worker. A stopped
task that does not return is abandoned: its thread is replaced, and its later reports are ignored.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from weft.backends.helpers import LAST_ACTION_S
from weft.backends.local import GRACE_S, LocalBackend, abandon, crashed, lease_bytes, run_here
from weft.backends.local_jobs import LocalJob
from weft.engine.tuning import Tuning
from weft.model.errors import CapacityError, UsageError

if TYPE_CHECKING:
    from weft.engine.commands import Launch
    from weft.engine.ports import Job
    from weft.model.resources import Resources
    from weft.store.api import ChunkStore
    from weft.worker.lease import WorkerLease

_FIRST_TICK_S = 0.005
_LAST_TICK_S = 0.08


class _Worker:
    """One worker thread and its queue."""

    def __init__(self, backend: Threads, number: int) -> None:
        self.backend = backend
        self.number = number
        self.queue: queue.SimpleQueue[tuple[LocalJob, WorkerLease] | None] = queue.SimpleQueue()
        self.thread = threading.Thread(target=self._run, name=f"weft-worker-{number}", daemon=True)
        self.began = False
        self.abandoned = False

    def begin(self) -> None:
        """Start the thread. RuntimeError: the system has none left."""
        self.thread.start()
        self.began = True

    def _run(self) -> None:
        backend = self.backend
        get = self.queue.get
        tick = _FIRST_TICK_S
        while not self.abandoned:
            try:
                work = get(timeout=tick) if backend.busy else get()
            except queue.Empty:
                tick = min(2 * tick, _LAST_TICK_S)
                backend.idle_tick()
                continue
            if work is None:
                return
            tick = _FIRST_TICK_S
            backend.run(*work)
            del work  # an ended job must not live until the next lease


class Threads(LocalBackend):
    """An executor of leases on `workers` threads over one store.

    `window` is the bytes that a streamed edge may hold (default: `stream_bytes` of the store's budget).
    """

    name = "threads"

    def __init__(
        self,
        workers: int,
        store: ChunkStore,
        *,
        resources: Resources | None = None,
        grace_s: float = GRACE_S,
        window: int | None = None,
    ) -> None:
        super().__init__(workers, store, resources, grace_s, window)
        self.tuning = Tuning(
            target_s=0.002,
            shared_memory=True,
            lease_bytes=lease_bytes(store.memory.budget, workers),
            stream_bytes=self.window,
        )
        self._workers = {number: _Worker(self, number) for number in range(workers)}
        self._jobs: dict[str, LocalJob] = {}
        self._lock = threading.Lock()
        self._waiting = 0

    @property
    def busy(self) -> bool:
        """Whether there is a job, so that idle workers should make ticks."""
        return bool(self._jobs)

    # ----------------------------------------------------------------------------------------------- executor

    def numbers(self) -> Sequence[int]:
        """Return the present workers, by number."""
        return tuple(self._workers)

    def open_job(self, job: Job) -> None:
        """See `Executor.open_job`."""
        job.backend = self._jobs[job.id] = LocalJob(job, self.store, self.loop, self.window)

    def launch(self, job: Job, lease: Launch) -> None:
        """See `Executor.launch`."""
        local: LocalJob = job.backend
        work: tuple[LocalJob, WorkerLease] = (local, local.lease(lease))
        worker = self._workers.get(lease.worker)
        if worker is None:
            self.run_beside(*work)
            return
        if not worker.began:
            try:
                worker.begin()
            except RuntimeError:
                self._report_missing(*work)
                return
        worker.queue.put(work)

    def _report_missing(self, local: LocalJob, lease: WorkerLease) -> None:
        """Report a lease as failed because the system has no thread left for its worker."""
        began = sum(worker.began for worker in self._workers.values())
        message = f"only {began:,} of {len(self._workers):,} threads could be started here"
        error = CapacityError(message, hint="Ask for fewer workers.")
        self.loop.post_later(local.job.id, local.report(lease, crashed(lease, error), self.loop.clock.now()))

    def out_of_time(self, local: LocalJob, lease: WorkerLease, worker: int) -> None:
        """Replace the thread of a task that did not stop in time, and report for it."""
        if lease.id not in local.running or self.has_longer(local, lease, worker):
            return
        old = self._workers.get(worker)
        if old is not None:
            old.abandoned = True
            self._workers[worker] = _Worker(self, worker)
        abandon(local, lease, self.grace_s)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """See `Executor.waiting`."""
        if threading.current_thread() not in {worker.thread for worker in self._workers.values()}:
            yield
            return
        with self._lock:
            if self._waiting + 1 >= len(self._workers):
                raise UsageError(
                    f"a task waits for a run of its own session, and none of the {len(self._workers)} workers is left "
                    "to work for it",
                    hint="Add the work to the graph of the task (a patch), run it in another session, or give this "
                    "session more workers.",
                )
            self._waiting += 1
        try:
            yield
        finally:
            with self._lock:
                self._waiting -= 1

    def close_job(self, job: Job) -> None:
        """See `Executor.close_job`."""
        local = self._jobs.pop(job.id, None)
        if local is not None:
            local.close()

    def close(self) -> None:
        """See `Executor.close`."""
        if self._timers is not None:
            self._timers.close()
        self._helpers.close(min(self.grace_s, LAST_ACTION_S))
        for worker in self._workers.values():
            worker.queue.put(None)
        for worker in self._workers.values():
            if worker.began and worker.thread is not threading.current_thread():
                worker.thread.join(timeout=self.grace_s)

    # ------------------------------------------------------------------------------------------------ workers

    def run(self, local: LocalJob, lease: WorkerLease) -> None:
        """Run a lease on this thread and report."""
        run_here(local, lease, self.tuning.target_s)
        self.loop.drain()

    def idle_tick(self) -> None:
        """Run the tick of an idle worker."""
        self.loop.idle_tick()
