"""The loop of a party: the one thread that steps its jobs and its parts.

Events come from clients, other parties, processes and timers. A step is a pure function of the coordination; its new
state and its documents are written in one transaction, and its effects follow after that. A crash in between loses
effects only, and those follow from the state at the next start.
"""

from __future__ import annotations

import heapq
import queue
import threading
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from weft.model.errors import WeftError

if TYPE_CHECKING:
    from weft.frontends.federated.schema import Party
    from weft.parties.ledger import LedgerWrite, PartyLedger
    from weft.runtime.clock import RealClock

_BATCH: Final = 200
"""The steps that one transaction may take."""
_WRITE_PAUSE_S: Final = 1.0


class Subject(NamedTuple):
    """Who an event is for: the coordination of a job (no part), or a part of this party."""

    job: str
    part: Party | None = None

    def __str__(self) -> str:
        return f"job {self.job}" if self.part is None else f"{self.part} of job {self.job}"


_NOBODY: Final = Subject("")


class LoopStep(NamedTuple):
    """The outcome of a step: the state as JSON, whether it goes on, and what to do once it is written.

    `write` adds what else belongs into the transaction.
    """

    state: str
    live: bool
    write: Callable[[LedgerWrite], None]
    after: Callable[[], None]


class SteppedMachine(Protocol):
    """A coordination or a part: its state and its pure step."""

    def step(self, event: Any, now: float) -> LoopStep | None:
        """Take an event; None: nothing has changed."""
        ...


class _Posted(NamedTuple):
    subject: Subject
    event: Any = None
    make: Callable[[], SteppedMachine] | None = None
    done: Callable[[Any], None] | None = None
    write: Callable[[LedgerWrite], None] | None = None


class PartyLoop:
    """Steps machines, one event after another. `failed` is told of errors, which end no thread."""

    def __init__(self, ledger: PartyLedger, clock: RealClock, failed: Callable[[Subject, BaseException], None]) -> None:
        self._ledger, self._clock, self._failed = ledger, clock, failed
        self._machines: dict[Subject, SteppedMachine] = {}
        self._queue: queue.Queue[_Posted | None] = queue.Queue()
        self._timers: list[tuple[float, int, Subject, Any]] = []
        self._wakes: dict[Subject, float] = {}
        self._count = 0
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self.problem: Exception | None = None
        """Why the last transaction cannot be written; it is tried until it can."""
        self._thread = threading.Thread(target=self._run, name="party-loop", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self) -> None:
        """Take what was posted, and end the thread."""
        self._closed.set()
        self._queue.put(None)
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join()

    def add(self, subject: Subject, machine: SteppedMachine) -> None:
        """Let a machine take events from now on."""
        with self._lock:
            self._machines[subject] = machine

    def machine(self, subject: Subject) -> Any:
        """Return a machine; None: it does not exist, or is over."""
        with self._lock:
            return self._machines.get(subject)

    def subjects(self) -> list[Subject]:
        """Return the subjects of all machines."""
        with self._lock:
            return list(self._machines)

    def post(self, subject: Subject, event: Any, make: Callable[[], SteppedMachine] | None = None) -> None:
        """Let a machine take an event. If there is none, or the last one is over by then, `make` makes it."""
        self._queue.put(_Posted(subject, event, make))

    def call(self, subject: Subject, event: Any, make: Callable[[], SteppedMachine] | None = None) -> Any:
        """Let a machine take an event (see `post`), wait until its effects have begun, and return the machine.

        None: there is none. WeftError: nothing can be written now, such as on a full disk; the event is taken later.
        """
        if threading.current_thread() is self._thread:
            self.post(subject, event, make)
            return self.machine(subject)
        taken, found = threading.Event(), []

        def done(machine: Any) -> None:
            found.append(machine)
            taken.set()

        self._queue.put(_Posted(subject, event, make, done))
        while not taken.wait(_WRITE_PAUSE_S):
            if isinstance(self.problem, WeftError):
                raise self.problem
        return found[0]

    def post_write(self, write: Callable[[LedgerWrite], None]) -> None:
        """Let the next transaction write something."""
        self._queue.put(_Posted(_NOBODY, write=write))

    def post_at(self, at: float, subject: Subject, event: Any) -> None:
        """Post an event at a time, in seconds since 1970, unless one follows for this subject before."""
        with self._lock:
            known = self._wakes.get(subject)
            if known is not None and known <= at:
                return
            self._wakes[subject] = at
            self._count += 1
            heapq.heappush(self._timers, (at, self._count, subject, event))
            first = self._timers[0][2] == subject
        if first:
            self._queue.put(_Posted(_NOBODY))  # wakes the thread

    # ------------------------------------------------------------------------------------------------------ inside

    def _run(self) -> None:
        while True:
            posted = self._batch()
            open = posted[-1] is not None
            self._steps([one for one in posted if one is not None])
            if not open:
                return

    def _batch(self) -> list[_Posted | None]:
        """Wait for events, and return some, with those of timers that are due."""
        with self._lock:
            wait = max(0.0, self._timers[0][0] - self._clock.wall()) if self._timers else None
        found: list[_Posted | None] = []
        try:
            found.append(self._queue.get(timeout=wait))
            while len(found) < _BATCH and found[-1] is not None:
                found.append(self._queue.get_nowait())
        except queue.Empty:
            pass
        with self._lock:
            while self._timers and self._timers[0][0] <= self._clock.wall():
                at, _, subject, event = heapq.heappop(self._timers)
                if self._wakes.get(subject) == at:
                    del self._wakes[subject]
                found.insert(0, _Posted(subject, event))
        return found or [_Posted(_NOBODY)]

    def _steps(self, posted: Iterable[_Posted]) -> None:
        """LoopStep the machines of events, write all in one transaction, and begin the effects."""
        after: list[tuple[Subject, Callable[[], None]]] = []
        steps: list[tuple[Subject, LoopStep]] = []
        writes: list[Callable[[LedgerWrite], None]] = []
        for subject, event, make, done, write in posted:
            if write is not None:
                writes.append(write)
            machine = self.machine(subject)
            try:
                if machine is None and make is not None:
                    machine = make()
                    self.add(subject, machine)
                step = None if machine is None or event is None else machine.step(event, self._clock.wall())
            except Exception as error:  # noqa: BLE001 - one job must not end the others
                self._failed(subject, error)
                step = None
            if step is not None:
                steps.append((subject, step))
                after.append((subject, step.after))
            if done is not None:
                after.append((subject, partial(done, machine)))
        if steps or writes:
            self._write(steps, writes)
        for subject, effect in after:
            try:
                effect()
            except Exception as error:  # noqa: BLE001
                self._failed(subject, error)

    def _write(
        self, steps: Sequence[tuple[Subject, LoopStep]], writes: Sequence[Callable[[LedgerWrite], None]]
    ) -> None:
        """Write the last state of each machine, and all documents."""
        last = dict(steps)
        while True:
            try:
                with self._ledger.write() as write:
                    for subject, step in last.items():
                        if subject.part is None:
                            write.set_coordination(subject.job, step.state, live=step.live)
                        else:
                            write.set_participation(subject.job, *subject.part, step.state, live=step.live)
                    for _, step in steps:
                        step.write(write)
                    for one in writes:
                        one(write)
                self.problem = None
                break
            except Exception as error:  # such as a full disk: nothing may follow from what is not written
                self.problem = error
                self._failed(steps[0][0] if steps else _NOBODY, error)
                if self._closed.wait(_WRITE_PAUSE_S):
                    raise
        for subject, step in last.items():
            if not step.live:
                with self._lock:
                    self._machines.pop(subject, None)
