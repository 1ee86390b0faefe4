"""The processes backend: workers are processes of this machine, values pass through shared memory.

It suits work that holds the GIL or may crash its process. Workers are forked from `weft.worker.nursery`, which never
imports the user's `__main__`. Each has a socket pair and a page that both sides map. One thread here, the driver,
reads all sockets, puts results into the store and drains the loop once for each wake-up.

No thread blocks while it holds the loop's lock: the driver sends messages that a socket does not take at once, and a
helper thread prepares a lease whose inputs must first be written to shared memory, whose code is slow to pickle, or
whose memory is not free yet. A worker that does not stop in time is killed, and replaced like one that died by itself:
its lease goes back to the master with the loss.
"""

from __future__ import annotations

import itertools
import os
import selectors
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from weft.backends.heartbeats import Heartbeats, is_ending, is_stopped
from weft.backends.helpers import LAST_ACTION_S
from weft.backends.local import GRACE_S, LocalBackend, abandon, crashed, lease_bytes
from weft.backends.nursery import CLOSING_S, Nursery, exit_text, take_peak
from weft.backends.process_jobs import (
    NOT_SENT,
    LeaseMessage,
    NeedsHelperError,
    ProcessJob,
    RemoteLease,
    WorkerConnection,
)
from weft.backends.questions import Questions
from weft.engine.events import Started, UserEvent
from weft.engine.ports import FROZEN_S, WorkerSpec
from weft.engine.provider import BESIDE
from weft.engine.tuning import Tuning
from weft.graph.task import USAGE
from weft.model.chunks import ChunkRef
from weft.model.errors import CapacityError, RunCancelledError
from weft.store import serializers
from weft.store.codec import to_pickle
from weft.store.folders import SHARED_MEMORY
from weft.store.segments import LargePages, SegmentWriter
from weft.worker import own_modules
from weft.worker.channel import (
    ASK,
    BORN,
    DONE,
    EMIT,
    FORGET,
    HELLO,
    LARGE_PAGES,
    LEASE,
    MODULES,
    PATHS,
    PROGRESS,
    ROWS,
    SERIALIZERS,
    STARTED,
    STREAM,
    STREAM_END,
)
from weft.worker.lease import LeaseResult, WorkerLease
from weft.worker.messages import WorkerConfig
from weft.worker.remote_store import PackedValues, unpack
from weft.worker.traces import CrashTrace

if TYPE_CHECKING:
    from pathlib import Path

    from weft.backends.local_jobs import LocalJob
    from weft.engine.commands import Launch
    from weft.engine.ports import Job, Shell
    from weft.model.resources import Resources
    from weft.store.api import ChunkStore
    from weft.store.handshake import Credentials

_FIRST_TICK_S: Final = 0.005
_LAST_TICK_S: Final = 0.08
_READ: Final = 1 << 18
_STILLBORN_MAX: Final = 8
_PAUSE_S: Final = 0.05
_NURSERY: Final = -1
"""The number of the nursery among the workers."""
PEAK: Final = "peak_memory"
"""The name of a worker process's peak memory (bytes) in the usage of a vertex."""


class Processes(LocalBackend):
    """An executor of leases in `workers` processes over one store.

    `shm` is the store's folder for shared memory, `spill` its folder on disk for data that does not fit there.
    `grace_s` is the time from the stop of a task to the kill of its process. A process that something has stopped is
    killed within `frozen_s`. `window` is the bytes that a streamed edge may hold (default: `stream_bytes` of the
    store's budget). With `worker_memory`, a task may take so many bytes of memory of its process, or what it declares
    if that is more. With the `credentials` of a cluster the workers read chunks at other nodes. The workers share the
    modules `preload`, which are loaded before they are forked.
    """

    name = "processes"
    lease_kind: type[RemoteLease] = RemoteLease

    def __init__(
        self,
        workers: int,
        store: ChunkStore,
        shm: Path | str,
        *,
        spill: Path | str | None = None,
        resources: Resources | None = None,
        grace_s: float = GRACE_S,
        window: int | None = None,
        frozen_s: float = FROZEN_S,
        credentials: Credentials | None = None,
        worker_memory: int = 0,
        preload: Sequence[str] = (),
    ) -> None:
        super().__init__(workers, store, resources, grace_s, window)
        self.tuning = Tuning(
            target_s=0.010,
            shared_memory=True,
            copied_out=True,
            lease_bytes=lease_bytes(store.memory.budget, workers),
            stream_bytes=self.window,
        )
        self._shm = str(shm)
        self._spill = "" if spill is None else str(spill)
        self._writer = SegmentWriter(self._shm, prefix="sent-", fallback=spill)
        self._large_pages = LargePages(self._shm)
        self._heartbeats = Heartbeats(frozen_s)
        self._credentials = credentials
        self._worker_memory = worker_memory
        self._preload = tuple(preload)
        self._first = workers
        self._numbers = itertools.count(workers)
        self._ids = itertools.count(1)
        self._conns: dict[int, WorkerConnection] = {}
        self._leases: dict[int, RemoteLease] = {}
        self._questions = Questions(store, self._leases, self._send, self._beside)
        self._nursery: Nursery | None = None
        self._pids: dict[int, int] = {}
        self._selector = selectors.DefaultSelector()
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._pending: deque[Callable[[], None]] = deque()
        self._driver = threading.Thread(target=self._drive, name="weft-driver", daemon=True)
        self._closing = False
        self._stillborn = 0
        self._broken = ""

    @property
    def pids(self) -> dict[int, int]:
        """The process id of each worker that has been born, by its number."""
        return dict(self._pids)

    # ----------------------------------------------------------------------------------------------- executor

    def numbers(self) -> Sequence[int]:
        """Return the present workers, by number."""
        return tuple(self._conns or range(self._first))

    def attach(self, loop: Shell) -> None:
        """See `Executor.attach`."""
        super().attach(loop)
        self._selector.register(self._wake_read, selectors.EVENT_READ)
        nursery = self._start_nursery()
        for number in range(self._first):
            self._start_worker(nursery, number)
        if self._shm.startswith(f"{SHARED_MEMORY}/"):  # else it is a folder on disk, for want of memory
            room = os.statvfs(self._shm)
            nursery.ask_for_large_pages(room.f_blocks * room.f_frsize)
        self._driver.start()

    def open_job(self, job: Job) -> None:
        """See `Executor.open_job`. CapacityError: worker processes cannot be started."""
        if self._broken:
            raise CapacityError(self._broken, hint="See the standard error of the worker processes.")
        job.backend = self.job_of(job)

    def job_of(self, job: Job) -> ProcessJob:
        """Return the state of a job that is about to be submitted."""
        return ProcessJob(job, self.store, self.loop, self.window, self._ids, self._writer)

    def launch(self, job: Job, lease: Launch) -> None:
        """See `Executor.launch`."""
        local: ProcessJob = job.backend
        if not 0 <= lease.worker < BESIDE:
            self.run_beside(local, local.lease(lease))
            return
        conn = self._conns.get(lease.worker)
        if conn is None:
            return  # the report of its loss follows
        remote = local.lease(lease, self.lease_kind)
        remote.prepare(local, conn, next(self._ids))
        self._leases[remote.token] = remote
        try:
            try:
                if remote.needs:
                    remote.reservation = self.store.memory.try_reserve(_owner(remote), remote.needs)
                    if remote.reservation is None:
                        raise NeedsHelperError
                self._send_lease(remote, slow=False)
            except NeedsHelperError:
                remote.unpin()
                self._helpers.put(partial(self._launch_slowly, remote))
        except BaseException as error:  # noqa: BLE001
            self._not_launched(remote, error)

    def _launch_slowly(self, lease: RemoteLease) -> None:
        """Prepare a lease on a helper thread: wait for memory, write inputs to shared memory, send."""
        try:
            if lease.needs and lease.reservation is None:
                gone = partial(_given_up, lease)
                if lease.root.in_bubble:  # other leases wait for it, so it may not wait
                    lease.reservation = self.store.memory.claim(_owner(lease), lease.needs)
                else:
                    lease.reservation = self.store.memory.reserve(_owner(lease), lease.needs, cancelled=gone)
            self._send_lease(lease, slow=True)
        except BaseException as error:  # noqa: BLE001
            self._not_launched(lease, error)
        self.loop.drain()

    def _not_launched(self, lease: RemoteLease, error: BaseException) -> None:
        lease.release()
        if self._leases.pop(lease.token, None) is not None and not lease.conn.dead:
            local = lease.local
            self.loop.post_later(local.job.id, local.report(lease, crashed(lease, error), self.loop.clock.now()))

    def stop(self, job: Job, lease: int, reason: str) -> None:
        """See `Executor.stop`. The time limit of a task is suspended while its process starts."""
        running = job.backend.running.get(lease)
        if reason == "timeout" and isinstance(running, RemoteLease) and not running.stop:
            now = self.loop.clock.now()
            launch = job.leases.get(lease)
            limit = (launch.spec.timeout_s if launch is not None else None) or 0.0
            began = running.conn.born_at
            remaining = limit if began is None else began + limit - now  # not above 0 where it was sent after that
            if remaining > 0:
                self.timers.call(now + remaining, partial(self.stop, job, lease, reason))
                return
        super().stop(job, lease, reason)

    def ask_to_stop(self, lease: WorkerLease) -> None:
        """Ask a task to stop, wherever it runs."""
        if isinstance(lease, RemoteLease):
            lease.raise_stop()
        else:
            super().ask_to_stop(lease)

    def out_of_time(self, local: LocalJob, lease: WorkerLease, worker: int) -> None:
        """Kill the worker of a task that was stopped and still runs."""
        if lease.id not in local.running:
            return
        if not isinstance(lease, RemoteLease):
            if not self.has_longer(local, lease, worker):
                abandon(local, lease, self.grace_s)
        elif lease.conn.current is lease:
            longer, lease.conn.page.patience = lease.conn.page.patience / 1000 - self.grace_s, 0
            if longer > 0:
                self.timers.call(self.loop.clock.now() + longer, partial(self.out_of_time, local, lease, worker))
                return
            task = f"{lease.root.vertex}[{lease.conn.page.pos}]"
            self._kill(lease.conn, f"task {task} did not stop within {self.grace_s:g} s")

    def free(self, job: Job, vertex: str, lo: int, hi: int) -> None:
        """See `Executor.free`."""
        local: ProcessJob = job.backend
        column = local.columns.get(vertex)
        if column is None:
            return
        local.free(vertex, lo, hi, self._helpers.put)
        number = local.column_number(vertex)
        for conn in list(self._conns.values()):
            sent = conn.sent.get(number)
            if sent is not None:
                sent[lo:hi] = [NOT_SENT] * (min(hi, len(sent)) - lo)
                conn.drops.append((number, lo, hi))
        self.store.free_range(column, lo, hi, defer=self._helpers.put)

    def close_job(self, job: Job) -> None:
        """See `Executor.close_job`."""
        local: ProcessJob | None = job.backend
        if local is None or local.closed:
            return
        local.close()
        numbers = local.numbers()
        for conn in list(self._conns.values()):
            for number in numbers[1]:
                conn.sent.pop(number, None)
                conn.kinds.pop(number, None)
            known = [n for n in numbers[0] if n in conn.codes]
            if known:
                conn.codes.difference_update(known)
                conn.cones.difference_update(numbers[2])
                with conn.lock:
                    conn.forgets.append((known, *numbers[1:]))
        if not self.loop.jobs:
            self._wake()  # no lease takes it along

    def close(self) -> None:
        """See `Executor.close`."""
        if self._closing:
            return
        self._closing = True
        if self._timers is not None:
            self._timers.close()
        self._helpers.close(min(self.grace_s, LAST_ACTION_S))
        self._wake()
        if self._driver.is_alive() and self._driver is not threading.current_thread():
            self._driver.join(timeout=CLOSING_S)
        self._end_nursery()
        self._large_pages.close()
        for conn in self._conns.values():
            conn.close()
        self._conns.clear()
        self._selector.close()
        os.close(self._wake_read)
        os.close(self._wake_write)

    # ----------------------------------------------------------------------------------------------- sending

    def _send(self, conn: WorkerConnection, message: Any) -> None:
        data = conn.frames.frame(message)
        with conn.lock:
            sent = conn.dead or conn.send(data)
        if not sent:
            self._soon(partial(self._want_write, conn))

    def _send_lease(self, lease: RemoteLease, *, slow: bool) -> None:
        """Pack a lease and send it. NeedsHelperError: this takes long, and the caller may not wait."""
        message, conn = LeaseMessage(lease, slow=slow), lease.conn
        # A resume adds the module paths of its program after the birth of the workers.
        if message.codes and conn.paths != sys.path:
            conn.paths = sys.path[:]
            self._send(conn, (PATHS, conn.paths))
        if message.codes and conn.modules != (modules := own_modules.generation()):
            conn.modules = modules
            self._send(conn, (MODULES, own_modules.program()))
        if conn.serializers != serializers.version:
            conn.serializers = serializers.version
            self._send(conn, (SERIALIZERS, to_pickle(serializers.all_serializers())))
        drops = conn.drops[:]
        with conn.lock:
            forgets, conn.forgets = conn.forgets, []
        data = conn.frames.frame((LEASE, message.codes, message.cones, drops, forgets, tuple(message.assignment)))
        with conn.lock:
            if conn.dead:
                lease.release()
                self._wake()  # the driver may wait without end, and a stopped nursery reports no loss
                return
            if lease.stop:
                conn.forgets += forgets
                raise RunCancelledError(f"{_owner(lease)} was stopped")
            page = conn.page
            page.pos, page.hi, page.stop, page.patience, page.drains = lease.lo, lease.hi, 0, 0, 0
            conn.current = lease
            conn.codes.update(message.codes)
            conn.cones.update(message.cones)
            del conn.drops[: len(drops)]
            conn.kinds.update(message.kinds)
            for sent, at, values in message.marks:
                if isinstance(at, int):
                    sent[at : at + len(values)] = values
                else:
                    for index, value in zip(at, values, strict=True):
                        sent[index] = value
            done = conn.send(data)
        if not done:
            self._soon(partial(self._want_write, conn))

    # ----------------------------------------------------------------------------------------------- the driver

    def _soon(self, action: Callable[[], None]) -> None:
        """Queue a call for the driver."""
        self._pending.append(action)
        self._wake()

    def _wake(self) -> None:
        with suppress(BlockingIOError):
            os.write(self._wake_write, b"x")

    def _want_write(self, conn: WorkerConnection) -> None:
        if not conn.dead:
            self._selector.modify(conn.sock, selectors.EVENT_READ | selectors.EVENT_WRITE, conn)

    def _drive(self) -> None:
        loop = self.loop
        select = self._selector.select
        tick = _FIRST_TICK_S
        while not self._closing:
            found = select(tick if loop.jobs or self._forgetting() else None)
            if self._heartbeats.is_due(loop.clock.now()):
                self._kill_stopped()
            if not found:
                tick = min(2 * tick, _LAST_TICK_S)
                self._send_forgets()
                loop.idle_tick()
                continue
            for key, events in found:
                conn = key.data
                try:
                    if conn is None:
                        self._woken()
                    elif isinstance(conn, Nursery):
                        self._read_notes(conn)
                    else:
                        tick = _FIRST_TICK_S
                        if events & selectors.EVENT_WRITE:
                            with conn.lock:
                                if conn.flush():
                                    self._selector.modify(conn.sock, selectors.EVENT_READ, conn)
                        if events & selectors.EVENT_READ:
                            self._read(conn)
                except Exception as error:  # noqa: BLE001
                    if isinstance(conn, WorkerConnection):
                        self._kill(conn, f"a message of worker {conn.number} cannot be read: {error}")
            loop.drain()

    def _forgetting(self) -> bool:
        return any(conn.forgets for conn in self._conns.values())

    def _send_forgets(self) -> None:
        """Have idle workers forget what ended jobs have sent."""
        for conn in list(self._conns.values()):
            with conn.lock:
                if conn.dead or conn.current is not None:
                    continue
                forgets, conn.forgets = conn.forgets, []
            if forgets:
                self._send(conn, (FORGET, forgets))

    def _woken(self) -> None:
        with suppress(BlockingIOError):
            os.read(self._wake_read, 4096)
        while self._pending:
            self._pending.popleft()()

    def _read(self, conn: WorkerConnection) -> bool:
        """Process the messages of a worker. Return False if there were none."""
        if conn.dead:
            return False
        try:
            data = conn.sock.recv(_READ)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if not data:
            # The nursery reports the ends of workers; a worker that closed its socket is of no use either.
            self._selector.unregister(conn.sock)
            conn.dead = True
            if not conn.reason and conn.number in self._pids and not is_ending(self._pids[conn.number]):
                conn.blamed = True
                self._kill(conn, "its process closed the socket of its worker, as `os.closerange` does")
            else:
                self._kill(conn, conn.reason)
            return False
        for message in conn.inbox.feed(data):
            self._take(conn, message)
        return True

    def _take(self, conn: WorkerConnection, message: tuple[Any, ...]) -> None:
        """Process one message of a worker."""
        kind, *rest = message
        if kind == HELLO:
            conn.born_at = self.loop.clock.now()
            self._stillborn = 0
            return
        lease = self._leases.get(rest[0])
        if lease is None:
            if kind == STREAM:
                self.store.discard(cell for _, _, _, cell, _ in rest[2] if isinstance(cell, ChunkRef))
            return
        loop, local = self.loop, lease.local
        now = loop.clock.now()
        if kind == DONE:
            self._done(conn, lease, rest)
        elif kind == PROGRESS:
            self._progress(lease, rest)
        elif kind == STARTED:
            loop.post_later(local.job.id, Started(now, lease.id))
        elif kind == EMIT:
            loop.post_later(local.job.id, UserEvent(now, *rest[1:]))
        elif kind == ROWS:
            local.progress(lease.id, rest[1])
        elif kind == STREAM:
            self._questions.take_stream(lease, *rest[1:])
        elif kind == STREAM_END:
            local.streams.end(rest[2], rest[1], lease)
        elif kind == ASK:
            self._questions.answer(lease, rest[1:])

    def _done(self, conn: WorkerConnection, lease: RemoteLease, rest: list[Any]) -> None:
        _, hi, reached, packed, seconds, kind, vertex, index, message, traceback, *more = rest
        raised, status, lost, counts, origin = more
        del self._leases[lease.token]
        with conn.lock:
            conn.leave()
        local = lease.local
        packed = PackedValues(*packed)
        outcome = LeaseResult(hi, [], seconds)
        outcome.reached = reached
        outcome.kind, outcome.message, outcome.lost = kind, message, lost
        outcome.traceback, outcome.raised, outcome.status = traceback, raised, status
        outcome.vertex, outcome.index = vertex or lease.root.vertex, index if vertex else lease.lo
        outcome.counts, outcome.origin = counts, origin or None
        with self.store.holding(ref for _, ref in packed.large):
            try:
                if lease.error is not None:
                    raise lease.error
                outcome.values = unpack(packed)
                if reached < 0:
                    lease.fit(outcome)
                local.commit(lease, outcome, lease.reservation)
            except Exception as error:  # noqa: BLE001
                outcome = crashed(lease, error)
        lease.release()
        if local.job.recorded:
            self._record_peak(conn, lease)
        if lease.id in local.running:
            self.loop.post_later(local.job.id, local.report(lease, outcome, self.loop.clock.now()))

    def _record_peak(self, conn: WorkerConnection, lease: RemoteLease) -> None:
        """Record the peak memory of a worker during a lease, if it exceeds the known one."""
        job, vertex = lease.local.job, lease.root.vertex
        peak = take_peak(self._pids.get(conn.number, 0))
        if peak > job.inspector.usage(vertex).get(PEAK, 0.0):
            event = UserEvent(self.loop.clock.now(), vertex, lease.lo, USAGE, {PEAK: float(peak)})
            self.loop.post_later(job.id, event)

    def _progress(self, lease: RemoteLease, rest: list[Any]) -> None:
        _, hi, packed, seconds, counts = rest
        packed = PackedValues(*packed)
        outcome = LeaseResult(hi, [], seconds)
        outcome.counts = counts
        with self.store.holding(ref for _, ref in packed.large):
            if lease.error is not None:
                return
            try:
                outcome.values = unpack(packed)
                lease.fit(outcome)
                lease.local.commit(lease, outcome, lease.reservation, ends=False)
            except Exception as error:  # noqa: BLE001
                lease.error = error
                lease.raise_stop()
                return
        if outcome.hi > lease.lo:
            lease.local.over(lease, lease.lo, outcome.hi)
            lease.lo = outcome.hi
            lease.committing = False
            self.loop.post_later(lease.local.job.id, lease.local.progress_of(lease, outcome, self.loop.clock.now()))

    def _beside(self, lease: RemoteLease, action: Callable[[], None]) -> None:
        """Have a helper thread do what may block; the worker of the lease is lost if the system has none."""
        try:
            self._helpers.put(action)
        except CapacityError as error:
            self._kill(lease.conn, str(error))

    # ----------------------------------------------------------------------------------------------- processes

    def _start_nursery(self) -> Nursery:
        nursery = self._nursery = Nursery(self._shm, self._preload)
        self._selector.register(nursery.control, selectors.EVENT_READ, nursery)
        return nursery

    def _end_nursery(self) -> None:
        if self._nursery is not None:
            self._nursery.end()
            self._nursery = None

    def _start_worker(self, nursery: Nursery, number: int) -> None:
        config = WorkerConfig(
            number,
            f"w{number}-",
            self._shm,
            self._spill,
            self.tuning.target_s,
            self.window,
            self._credentials,
            self._worker_memory,
        )
        conn = self._conns[number] = WorkerConnection.start(nursery, config)
        self._selector.register(conn.sock, selectors.EVENT_READ, conn)

    def _kill_stopped(self) -> None:
        """Kill processes that something has stopped: workers with a lease, and a nursery that owes an answer."""
        nursery, conns = self._nursery, self._conns
        alive = [conn for conn in conns.values() if conn.number in self._pids and not (conn.dead or conn.reason)]
        counts = {conn.number: conn.page.beats for conn in alive if conn.current is not None}
        if len(alive) < len(conns):
            counts[_NURSERY] = 0
        for number in self._heartbeats.silent(counts):
            if number != _NURSERY and is_stopped(self._pids[number]):
                conns[number].blamed = True
                self._kill(conns[number], "its process was stopped and did not continue")
            elif number != _NURSERY and _is_alive(self._pids[number]):
                continue
            elif nursery is not None and is_stopped(nursery.process.pid):  # it owes a report, perhaps of an end
                nursery.process.kill()

    def _kill(self, conn: WorkerConnection, reason: str) -> None:
        conn.reason = conn.reason or reason
        if self._nursery is not None:
            self._nursery.kill(conn.number)

    def _read_notes(self, nursery: Nursery) -> None:
        """Process the nursery's reports of births and exits."""
        notes = nursery.notes()
        if notes is None:
            self._nursery_lost(nursery)
            return
        for kind, number, about in notes:
            if kind == LARGE_PAGES:
                self._large_pages.use(nursery.process.pid, about)
                continue
            conn = self._conns.get(number)
            if conn is None:
                continue
            if kind == BORN:
                self._pids[number] = about
            else:
                while self._read(conn):
                    pass
                self._lost(conn, conn.reason or exit_text(about), crashed=conn.blamed or not conn.reason)
                self._replace()

    def _nursery_lost(self, nursery: Nursery) -> None:
        """Handle a killed nursery; the system has killed its workers with it."""
        self._selector.unregister(nursery.control)
        self._end_nursery()
        gone = list(self._conns.values())
        for conn in gone:
            while self._read(conn):
                pass
            self._lost(conn, "the process that starts workers was killed")
        if self._may_start():
            self._start_nursery()
        for _ in gone:
            self._replace()

    def _lost(self, conn: WorkerConnection, reason: str, *, crashed: bool = False) -> None:
        """Handle a dead worker: release its resources, report the loss to the loop. `crashed`: it died by itself."""
        unit, crashed = conn.page.pos, crashed and conn.born_at is not None
        trace = conn.trace() if crashed else CrashTrace()
        if conn.born_at is None:
            self._stillborn += 1
        with conn.lock:
            if not conn.dead:
                self._selector.unregister(conn.sock)
            conn.dead = True
            conn.leave()
        del self._conns[conn.number]
        self._pids.pop(conn.number, None)
        for lease in [lease for lease in list(self._leases.values()) if lease.conn is conn]:
            self._leases.pop(lease.token, None)
            lease.local.forget(lease)
            lease.release()
        self.store.memory.wake()
        self.store.reclaim(f"w{conn.number}-")
        conn.close()
        self.loop.drain()
        replaced = self._stillborn < _STILLBORN_MAX and not self._broken and not self._closing
        self.loop.worker_lost(
            conn.number,
            reason + trace.where,
            unit=unit,
            crashed=crashed,
            traceback=trace.traceback,
            replaced=replaced,
        )

    def _may_start(self) -> bool:
        if self._stillborn >= _STILLBORN_MAX and not self._broken:
            self._broken = f"worker processes cannot be started: {self._stillborn} in a row ended before they began"
            for job in list(self.loop.jobs.values()):
                self.loop.cancel(job, self._broken)
        return not self._broken and not self._closing

    def _replace(self) -> None:
        """Start a worker in place of a dead one, with growing delays if new workers end at once."""
        if not self._may_start():
            return
        if self._stillborn < 2:
            self._join()
            return
        assert self._timers is not None
        pause = _PAUSE_S * 2 ** (self._stillborn - 1)
        self._timers.call(self.loop.clock.now() + pause, lambda: self._soon(self._join))

    def _join(self) -> None:
        if not self._closing and self._nursery is not None:
            number = next(self._numbers)
            self._start_worker(self._nursery, number)
            self.loop.worker_joined(WorkerSpec(number))


def _owner(lease: RemoteLease) -> str:
    return f"{lease.root.vertex}[{lease.lo}]"


def _given_up(lease: RemoteLease) -> bool:
    return lease.stop or lease.conn.dead


def _is_alive(pid: int) -> bool:
    from weft.worker.process_table import look_up  # only where a worker is silent

    row = look_up(pid)
    return row is not None and row.alive
