"""A simulated cluster: workers behind a network that loses, delays, repeats and reorders their messages.

Between the loop and a worker lies a link (`weft.worker.link`), as with any transport other than pipes: the loop sees
whole leases and lost workers, never a lost message. A worker may pause and come back after it was declared lost. A
network may be cut in one direction. The owner of the jobs may die while its workers go on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from weft.backends.simulator import Simulator, _Running
from weft.engine.events import Done, Failed, GaveBack, TimerFired
from weft.model.failures import Failure
from weft.model.records import as_dict
from weft.worker.link import ORPHAN_S, LinkFrame, ReliableLink

if TYPE_CHECKING:
    from weft.engine.commands import Launch
    from weft.engine.ports import Job, Shell, WorkerSpec

BEAT_S: Final = 1.0
"""The seconds between two checks of both ends of every link for due messages."""
_BYE: Final = "bye"
_INCARNATION: Final = 32
"""Bits of the number of a worker in a session."""


class Network(Struct):
    """The faults between owner and workers, drawn for each message and each lease, until `until_s` seconds.

    `lost`, `repeated` and `late` (by up to `late_s`) are probabilities for one message. `cut` (one direction, for up to
    `cut_s`), `paused` (for up to `paused_s`) and `disk` (its disk is full) are probabilities for one lease. `reported`
    is the probability that the death of a worker is reported at once; otherwise only its silence shows it.
    """

    latency_s: float = 0.001
    lost: float = 0.0
    repeated: float = 0.0
    late: float = 0.0
    late_s: float = 5.0
    cut: float = 0.0
    cut_s: float = 60.0
    paused: float = 0.0
    paused_s: float = 60.0
    disk: float = 0.0
    reported: float = 0.5
    until_s: float = float("inf")


class _Far:
    """A worker: its end of the link, and its running leases."""

    def __init__(self, spec: WorkerSpec, session: int, now: float) -> None:
        self.spec = spec
        self.link = ReliableLink(session, now, lost_s=ORPHAN_S, asks=False)
        self.runs: set[_Running] = set()
        self.paused_until = 0.0
        self.cut_until = {True: 0.0, False: 0.0}
        self.dead = False


class SimulatedCluster(Simulator):
    """A `Simulator` whose workers lie behind a `network`; without one it equals `Simulator`.

    `owner_dies` ends the process of the loop; another loop with workers of its own attaches afterwards.
    """

    def __init__(self, *positional: Any, network: Network | None = None, **simulator: Any) -> None:
        super().__init__(*positional, **simulator)
        self.network = network
        self.incarnation = 0
        self.messages = 0
        self.messages_lost = 0
        self._first = tuple(self._specs)
        self._near: dict[int, tuple[ReliableLink, _Far]] = {}
        self._fars: dict[int, _Far] = {}
        self._awaited: set[tuple[str, int, int]] = set()
        """The leases of a job (id, lease, worker) whose ends have not arrived."""
        self._beating = False
        unhappy = ("lost", "repeated", "late", "cut", "paused", "disk")
        self._bad = network is not None and any(as_dict(network)[name] for name in unhappy)

    # ----------------------------------------------------------------------------------------------- executor

    def attach(self, loop: Shell) -> None:
        """See `Executor.attach`."""
        super().attach(loop)
        for spec in self._specs:
            self._link(spec)

    def open_job(self, job: Job) -> None:
        """See `Executor.open_job`."""
        super().open_job(job)
        if self.network is not None and not self._beating:
            self._beating = True
            self.at(self.clock.time + BEAT_S, partial(self._beat, self.incarnation))

    def launch(self, job: Job, lease: Launch) -> None:
        """Send a lease to its worker."""
        if self.network is None or lease.worker < 0:
            super().launch(job, lease)
        else:
            self.leases += 1
            if self.tuning.backups:
                self._race(job, lease)
            self._awaited.add((job.id, lease.lease, lease.worker))
            self._send_to(lease.worker, (self._begin, job, lease))

    def shrink(self, job: Job, lease: int) -> None:
        """See `Executor.shrink`."""
        self._ask(job, lease, partial(super().shrink, job, lease))

    def stop(self, job: Job, lease: int, reason: str) -> None:
        """See `Executor.stop`."""
        self._ask(job, lease, partial(super().stop, job, lease, reason))

    def _ask(self, job: Job, lease: int, action: Callable[[], None]) -> None:
        """Run an action of a lease at its worker."""
        launch = job.leases.get(lease)
        if self.network is None or launch is None or launch.worker < 0:
            action()
        else:
            self._send_to(launch.worker, (lambda _: action(),))

    def set_timer(self, job: Job, at: float, timer: int) -> None:
        """See `Executor.set_timer`; the timers of an owner die with it."""
        owner = self._loop
        assert owner is not None
        self.at(at, lambda: owner.post(job.id, TimerFired(self.clock.time, timer)) if owner is self._loop else None)

    # ---------------------------------------------------------------------------------------- the owner's end

    def owner_dies(self) -> None:
        """Kill the process of the loop: its own work ends, its workers go on until they notice."""
        assert self._loop is not None
        for job in self._loop.jobs.values():
            for run in list(job.backend.values()):
                if self.network is None or run.launch.worker < 0:
                    run.gone = True
        self.incarnation += 1
        self._near.clear()
        self._awaited.clear()
        self._beating = False
        first, self._specs = self._first, []
        for spec in first:
            super()._another(spec)

    def _link(self, spec: WorkerSpec) -> None:
        if self.network is not None:
            session = self.incarnation << _INCARNATION | spec.worker
            far = self._fars[spec.worker] = _Far(spec, session, self.clock.time)
            self._near[spec.worker] = ReliableLink(session, self.clock.time), far

    def _send_to(self, worker: int, message: tuple[Any, ...]) -> None:
        """Send a message to a worker; an abandoned one gets none."""
        if worker in self._near:
            link, far = self._near[worker]
            self._transmit(far, [link.send(message, self.clock.time)], inward=False)

    def _hear(self, job: Job, event: Any, run: _Running | None) -> None:
        """Take a report, which arrives once and in order; the values of its lease count as stored from now on."""
        assert self._loop is not None
        if type(event) is GaveBack:
            self._post_given_back(job, event)
            return
        if run is not None:
            self._awaited.discard((job.id, event.lease, run.launch.worker))
            event = self._commit(run, event)
        self._loop.post(job.id, event)

    def _abandon(self, worker: int, reason: str) -> None:
        """Ignore a worker from now on, and hire another."""
        if self._near.pop(worker, None) is None:
            return
        self._awaited = {awaited for awaited in self._awaited if awaited[2] != worker}
        spec = next(spec for spec in self._specs if spec.worker == worker)
        self._specs.remove(spec)
        self._replace(spec, reason)

    def _another(self, spec: WorkerSpec) -> WorkerSpec:
        again = super()._another(spec)
        self._link(again)
        return again

    # --------------------------------------------------------------------------------------------- the network

    @property
    def unhappy(self) -> bool:
        """Whether the network may still cause faults."""
        return self._bad and self.network is not None and self.clock.time < self.network.until_s

    def _transmit(self, far: _Far, frames: Iterable[LinkFrame], *, inward: bool) -> None:
        """Send frames to the worker, or, `inward`, from it."""
        network, chance, now = self.network, self.random.random, self.clock.time
        assert network is not None
        for frame in frames:
            self.messages += 1
            copies, delay = 1, network.latency_s
            if self.unhappy:
                if far.cut_until[inward] > now or chance() < network.lost:
                    self.messages_lost += 1
                    continue
                delay += network.latency_s * chance()
                if chance() < network.late:
                    delay += network.late_s * chance()
                copies += chance() < network.repeated
            for copy in range(copies):
                self.at(now + delay * (1 + copy), partial(self._arrive, far, frame, inward=inward))

    def _arrive(self, far: _Far, frame: LinkFrame, *, inward: bool) -> None:
        now = self.clock.time
        if inward:
            if far.spec.worker not in self._near:
                self._transmit(far, [LinkFrame(frame.session, 0, 0, now, -1.0, False, _BYE)], inward=False)
                return
            link, _ = self._near[far.spec.worker]
            for job, event, run in link.take(frame, now):
                self._hear(job, event, run)
            if far.spec.worker in self._near:
                self._transmit(far, link.due(now), inward=False)
        elif far.dead:
            return
        elif far.paused_until > now:
            self.at(far.paused_until, partial(self._arrive, far, frame, inward=False))
        elif frame.message is _BYE:
            self._die(far)
        else:
            for action, *rest in far.link.take(frame, now):
                action(far, *rest)
            self._transmit(far, far.link.due(now), inward=True)

    def _beat(self, incarnation: int) -> None:
        """Resend, poll, and detect lost workers, while there is a job or an abandoned lease."""
        now = self.clock.time
        loop = self._loop
        if incarnation != self.incarnation:
            return
        self._beating = bool((loop and loop.jobs) or self._awaited)
        if not self._beating:
            return
        for worker, (link, far) in list(self._near.items()):
            if link.lost(now):
                self._abandon(worker, "it has been silent for too long")
            else:
                self._transmit(far, link.due(now), inward=False)
        for far in list(self._fars.values()):
            if far.paused_until > now:
                continue
            if far.link.lost(now):
                self._die(far)
            else:
                self._transmit(far, far.link.due(now), inward=True)
        self.at(now + BEAT_S, partial(self._beat, incarnation))

    # ---------------------------------------------------------------------------------------- the worker's end

    def _begin(self, far: _Far, job: Job, lease: Launch) -> None:
        run = _Running(job, lease, lease.hi, self._duration(lease, lease.lo, lease.hi))
        job.backend[lease.lease] = run
        far.runs.add(run)
        network = self.network
        assert network is not None
        chance, now = self.random.random, self.clock.time
        if self.unhappy and self.faults_made < self.faults.most:
            for inward in (False, True):
                if chance() < network.cut:
                    self.faults_made += 1
                    far.cut_until[inward] = now + network.cut_s * chance()
            if chance() < network.paused:
                self.faults_made += 1
                far.paused_until = now + network.paused_s * chance()
            if chance() < network.disk:
                self.faults_made += 1
                self.at(now + run.seconds * chance(), partial(self._fail, run, Failure.DISK))
                return
        if self._faulty and self.faults_made < self.faults.most and self._plan_faults(run, run.seconds):
            return
        self._plan(now + run.seconds, run)

    def _far_of(self, run: _Running) -> _Far | None:
        return self._fars.get(run.launch.worker) if self.network is not None else None

    def _report(self, far: _Far, job: Job, event: Any, run: _Running | None = None) -> None:
        """Send a report to the owner; `run` is the ended lease."""
        if not far.dead:
            self._transmit(far, [far.link.send((job, event, run), self.clock.time)], inward=True)

    def _post(self, run: _Running, event: Any) -> None:
        far = self._far_of(run)
        if far is None:
            super()._post(run, event)
        elif not run.gone:
            self._report(far, run.job, event)

    def _say(self, run: _Running, event: Failed) -> None:
        far = self._far_of(run)
        if far is None:
            super()._say(run, event)
        else:
            self._report(far, run.job, event, run)

    def _fail(self, run: _Running, kind: Failure) -> None:
        far = self._far_of(run)
        if far is not None and far.paused_until > self.clock.time:
            self.at(far.paused_until, partial(self._fail, run, kind))
        else:
            super()._fail(run, kind)

    def _done(self, run: _Running) -> None:
        far = self._far_of(run)
        if far is None:
            super()._done(run)
        elif far.paused_until > self.clock.time and not run.gone:
            self._plan(far.paused_until, run)
        elif not run.gone:
            self._over(run)
            launch, hi = run.launch, run.hi
            nbytes = sum(self._nbytes(launch.vertex, i) for i in range(launch.lo, hi))
            answers = None if self._value is None else [self._value(launch.vertex, i) for i in range(launch.lo, hi)]
            event = Done(self.clock.time, launch.lease, hi, run.seconds, nbytes, values=answers)
            self._report(far, run.job, event, run)
            self._perhaps_lose_output(run)

    def _over(self, run: _Running) -> None:
        super()._over(run)
        far = self._far_of(run)
        if far is not None:
            far.runs.discard(run)

    def _lose(self, worker: int, crashed_at: int = -1) -> None:
        if self.network is None:
            super()._lose(worker, crashed_at)
            return
        far = self._fars.get(worker)
        if far is None:
            return  # it has ended by itself
        self._die(far)
        if self.random.random() < self.network.reported:
            self._abandon(worker, "simulated death")

    def _bury(self, worker: int) -> None:
        if self.network is None:
            super()._bury(worker)
            return
        self._near.pop(worker, None)
        self._awaited = {awaited for awaited in self._awaited if awaited[2] != worker}
        far = self._fars.get(worker)
        if far is not None:
            self._die(far)

    def _die(self, far: _Far) -> None:
        """End a worker: it is killed, it noticed that its owner is silent, or it was abandoned."""
        far.dead = True
        self._fars.pop(far.spec.worker, None)
        for run in far.runs:
            run.gone = True
            if run.job.backend.get(run.launch.lease) is run:
                del run.job.backend[run.launch.lease]
        far.runs.clear()
