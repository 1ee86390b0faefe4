"""The cache as seen by the engine: `Probe` in, `Hit`, `Miss` or `Waiting` out.

Separate threads compute the keys of tasks, look them up and put results in place, outside of the loop's lock. A missing
result is claimed before it is made: its key is locked in the kernel while this process makes it. So a result is made
once, however many runs need it, and another process takes over as soon as this one dies. A row of the index names the
owner, for people, and its epoch refuses late commits of a former owner. Kernel locks do not reach other hosts; for them
the row is a lease that its owner prolongs.

A task that waits for the result of another task is still PROBING: it holds no slot, and a cancelled job does not wait
for it.
"""

from __future__ import annotations

import json
import os
import queue
import re
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from weft.engine.events import CancelRequested, Done, Failed, Hit, Miss, Waiting
from weft.engine.machines.task import TaskState
from weft.model.errors import NotFoundError, WeftError
from weft.store.content import SHARED
from weft.store.entries import Claim, Entry
from weft.store.locks import locks_of
from weft.store.results import CLOCK_SLACK_S, Key, Recipe, ResultCache, Why

if TYPE_CHECKING:
    from pathlib import Path

    from weft.engine.commands import Command, Probe
    from weft.engine.events import Event
    from weft.engine.ports import Job, Shell

DECISIONS: Final = "cache.jsonl"
"""The file of a run's folder with the answers of the cache and their reasons."""
RecipeOf = Callable[..., Recipe | None]
"""Makes the recipe of a task from the parameters of its program, its number, its item, and a lookup of the number of
tasks and the parameters of any vertex.
"""
LEASE_S: Final = 60.0
_MOST_THREADS: Final = 4
_LONG_S: Final = 0.05
_WAITERS: Final = 64
_BATCH: Final = 64
_PATIENCE_S: Final = 1.0
_ELSEWHERE_S: Final = 0.5
_LOOKS: Final = 20
_LOOK_S: Final = 0.005
"""The number of lookups of the owner of a key, and the seconds between them: the lock comes before the row of its
owner.
"""
_LIVE: Final = frozenset(
    int(state)
    for state in (
        TaskState.UNSCHEDULED,
        TaskState.READY,
        TaskState.PROBING,
        TaskState.LEASED,
        TaskState.RUNNING,
        TaskState.COMMITTING,
        TaskState.CANCELLING,
        TaskState.LOST,
    )
)
_KEPT: Final = frozenset((int(TaskState.FINISHED), int(TaskState.FREED)))


class _PendingProbe(Struct):
    """One probe in progress. `key` is set once it is computed; `locked` is set while this process holds its lock."""

    job: Job
    probe: Probe
    recipe: Recipe | None = None
    key: Key | None = None
    locked: bool = False
    waited: bool = False


class StepCache:
    """The cache of one run. Its `watch` is a listener of the job; `close` is called after the end of the job.

    `log` is the file of the answers, `recipe_of` returns the inputs of the key of a task. Tasks of the vertices in
    `refresh` are not looked up, but kept. `say` shows a message about a waiting step to people. `placed` is called with
    the paths of restored outputs before the step counts as done.
    """

    def __init__(
        self,
        results: ResultCache,
        locks: Path,
        run: str,
        log: Path,
        recipe_of: RecipeOf,
        *,
        refresh: Collection[str] = (),
        say: Callable[[str, str], None] = lambda step, message: None,
        placed: Callable[[Iterable[str]], None] = lambda paths: None,
    ) -> None:
        self.results = results
        self.run = run
        self.problems: list[str] = []
        self._locks = locks_of(results.index.database, locks)
        self._log = log
        self._recipe_of = recipe_of
        self._refresh = frozenset(refresh)
        self._say = say
        self._placed = placed
        self._shell: Shell | None = None
        self._queue: queue.SimpleQueue[_PendingProbe | list[Claim] | None] = queue.SimpleQueue()
        self._waiting: deque[_PendingProbe] = deque()
        self._waiters = 0
        self._mutex = threading.Lock()
        self._held: dict[tuple[str, int], Claim] = {}
        # Locked or awaited keys, each with the other tasks of this run that need the same result.
        self._mine: dict[str, list[_PendingProbe]] = {}
        self._prolonging = False
        self._threads: list[threading.Thread] = []
        self._closed = threading.Event()
        self._host = os.uname().nodename
        self._left = results.index.claims_of(run)

    # --------------------------------------------------------------------------------------------------- the loop's

    def probe(self, shell: Shell, job: Job, probe: Probe) -> None:
        """Queue a probe; its answer is posted later."""
        self._shell = shell
        if not self._threads:
            self._start(self._answer, "cache")
        self._queue.put(_PendingProbe(job, probe))

    def watch(self, job: Any, events: Sequence[Event], commands: Sequence[Command]) -> None:
        """Release the keys of ended tasks; the loop calls this under its lock after every tick."""
        if not self._held or not any(isinstance(event, Done | Failed | CancelRequested) for event in events):
            return
        failed = []
        for (vertex, index), claim in list(self._held.items()):
            state = job.inspector.row(vertex).state[index]
            if state in _LIVE:
                continue
            with self._mutex:
                self._held.pop((vertex, index), None)
            if state in _KEPT:  # the maker has ended the claim
                self._free(claim.key)
            else:
                failed.append(claim)
        if failed:
            self._queue.put(failed)

    def keep(self, recipe: Recipe, started: float, spoilt: str) -> str:
        """Keep the result of a succeeded task that holds a claim. Return the reason why it is not kept, or ""."""
        return self.results.keep(recipe, started, spoilt)

    def close(self) -> None:
        """Answer no more probes, release all keys, and write all pending records."""
        self._closed.set()
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            thread.join(_PATIENCE_S)  # it may be copying a large output
        with self._mutex:
            held, self._held = list(self._held.values()), {}
        try:
            if held:
                self.results.index.release(held)
            self.results.index.flush(self.results.wall())
        except WeftError as error:
            self.problems.append(error.message)
        self._locks.close()

    # ------------------------------------------------------------------------------------------------- the threads

    def _start(self, target: Callable[[], None], name: str) -> None:
        thread = threading.Thread(target=target, name=f"{name} of {self.run}", daemon=True)
        if target == self._answer:
            self._threads.append(thread)
        thread.start()

    def _answer(self) -> None:
        shell = self._shell
        assert shell is not None
        going = True
        while going:
            some, going = self._take_some(shell)
            lines: list[str] = []
            with self.results.together():
                if len(some) > 1:
                    self.results.foresee([pending.key.key for pending in some if pending.key is not None])
                for pending in some:
                    event = self._decided(pending, lines)
                    if event is not None and not self._closed.is_set():
                        shell.post_later(pending.job.id, event)
            self._write(lines)
            shell.drain()

    def _take_some(self, shell: Shell) -> tuple[list[_PendingProbe], bool]:
        """Wait for probes and compute their keys. Return those to answer now, and whether more may come.

        A key may take long if many bytes are hashed; meanwhile other threads read.
        """
        some: list[_PendingProbe] = []
        item = self._queue.get()
        while item is not None:
            if isinstance(item, list):
                self._end_claims(item)
            else:
                began = shell.clock.now()
                some.append(item)
                with suppress(Exception):  # answered when the probe is answered
                    self._identify(item)
                if shell.clock.now() - began > _LONG_S:
                    with self._mutex:
                        more = len(self._threads) < _MOST_THREADS and not self._closed.is_set()
                        if more and not self._queue.empty():
                            self._start(self._answer, "cache")
                    return some, True
            if len(some) >= _BATCH:
                return some, True
            try:
                item = self._queue.get_nowait()
            except queue.Empty:
                return some, True
        return some, False

    def _identify(self, pending: _PendingProbe) -> None:
        """Compute the recipe and the key of a probe unless they are known."""
        if pending.recipe is None:
            pending.recipe = self._describe(pending.job, pending.probe)
        if pending.recipe is not None and pending.key is None:
            pending.key = self.results.key(pending.recipe, stopped=self._closed.is_set)

    def _decided(self, item: _PendingProbe, lines: list[str]) -> Event | None:
        """Decide; any failure becomes an answer."""
        try:
            return self._decide(item, lines)
        except WeftError as error:
            if isinstance(error, NotFoundError):  # the author of the recipe file needs this
                step = item.probe.vertex if item.recipe is None else item.recipe.step
                self.problems.append(f"results of step {step} are not used again: {error.message}")
            return self._miss(item, Why(error.message), lines)
        except Exception as error:  # noqa: BLE001 - every task needs an answer
            self.problems.append(f"the cache failed for {item.probe.vertex}: {error}")
            return self._miss(item, Why(f"the cache failed: {error}"), lines)

    def _decide(self, pending: _PendingProbe, lines: list[str]) -> Event | None:
        """Return the answer; None if the task waits for another owner."""
        results = self.results
        self._identify(pending)
        recipe, key = pending.recipe, pending.key
        if recipe is None or key is None:
            return self._miss(pending, Why("its results are not kept"), lines)
        reason = "it was asked to run again" if self._is_refreshed(pending.probe.vertex) else ""
        near = Why(reason)
        if not pending.locked and not reason:
            found = results.find(key.key, recipe.expires_s, recipe.root)
            if found.entry is not None:
                return self._hit(pending, recipe, found.entry, lines)
        if not pending.locked:
            with self._mutex:
                others = self._mine.get(key.key)
                if others is not None:
                    others.append(pending)
                else:
                    self._mine[key.key] = []
                    pending.locked = self._locks.try_lock(key.key)
            if not pending.locked:
                return self._wait(pending, lines, own=others is not None)
        if not reason:  # another owner may have made it just before the lock was free
            found = results.find(key.key, recipe.expires_s, recipe.root)
            if found.entry is not None:
                return self._hit(pending, recipe, found.entry, lines)
            near = Why(found.reason) if found.reason else results.why(recipe, key.leaves)
            if SHARED in found.reason:  # the author of the change may not know whose files these are
                self.problems.append(f"step {recipe.step} runs again: {near.reason}")
        other = results.index.claimed(key.key)
        if other is not None and self._is_elsewhere(other):
            pending.locked = False
            self._locks.unlock(key.key)
            return self._wait(pending, lines)
        now = results.wall()
        claim = results.index.claim(
            Claim(
                key=key.key,
                epoch=0,
                run=self.run,
                step=recipe.step,
                task=recipe.task,
                host=self._host,
                pid=os.getpid(),
                since=now,
                lease_until=now + LEASE_S,
                leaves=key.leaves,
            )
        )
        with self._mutex:
            self._held[pending.probe.vertex, pending.probe.index] = claim
            if not self._prolonging:
                self._prolonging = True
                self._start(self._prolong, "leases")
        return self._miss(pending, near, lines)

    def _is_elsewhere(self, other: Claim) -> bool:
        """Whether a claim on a key locked here belongs to a living owner on another host.

        A lease longer than any that is given is of the time before the clock was set back.
        """
        left = other.lease_until - self.results.wall()
        return not self._locks.everywhere and other.host != self._host and 0 < left <= LEASE_S + CLOCK_SLACK_S

    def _describe(self, job: Job, probe: Probe) -> Recipe | None:
        program = job.inspector.row(probe.vertex).vertex.program
        item = None if program.items is None else program.items[probe.index]

        def lookup(vertex: str) -> tuple[int, Mapping[str, Any]]:
            row = job.inspector.row(vertex)
            return row.n, row.vertex.program.params

        return self._recipe_of(program.params, probe.index, item, lookup=lookup)

    def _is_refreshed(self, vertex: str) -> bool:
        """Whether the run options refresh a vertex, or the vertex whose patch added it; `/*` stands for all items."""
        if not self._refresh:
            return False
        return any(
            id[: end.start()] in self._refresh
            for id in (vertex, re.sub(r"/[0-9]+", "/*", vertex))
            for end in re.finditer(r"[./]|$", id)
        )

    def _hit(self, pending: _PendingProbe, recipe: Recipe, entry: Entry, lines: list[str]) -> Event:
        try:
            self.results.take(entry, recipe)
            if recipe.outputs:
                self._placed(recipe.outputs.values())
        finally:
            if pending.locked:
                self._unlock(pending)
        self._note(pending, lines, "hit", f"result of {entry.run}", run=entry.run)
        shell = self._shell
        assert shell is not None
        return Hit(shell.clock.now(), pending.probe.vertex, pending.probe.index, entry.size)

    def _miss(self, pending: _PendingProbe, why: Why, lines: list[str]) -> Event:
        if pending.locked and (pending.probe.vertex, pending.probe.index) not in self._held:
            self._unlock(pending)
        if pending.waited and pending.recipe is not None:
            self._say(pending.recipe.step, "")
        self._note(pending, lines, "miss", why.reason, run=why.run, differences=why.differences)
        shell = self._shell
        assert shell is not None
        return Miss(shell.clock.now(), pending.probe.vertex, pending.probe.index, why.reason)

    def _note(self, pending: _PendingProbe, lines: list[str], outcome: str, reason: str, **more: Any) -> None:
        if pending.recipe is None:
            return
        row: dict[str, Any] = {
            "step": pending.recipe.step,
            "task": pending.probe.index,
            "outcome": outcome,
            "reason": reason,
        }
        row |= {name: value for name, value in more.items() if value}
        if pending.key is not None:
            row["key"] = pending.key.key
            if outcome == "miss":
                row["leaves"] = dict(pending.key.leaves)
        lines.append(json.dumps(row, ensure_ascii=True))

    def _write(self, lines: list[str]) -> None:
        if lines:
            try:
                with self._log.open("a", encoding="ascii") as file:
                    file.write("".join(f"{line}\n" for line in lines))
                if self.results.index.full:
                    self.results.index.flush(self.results.wall())
            except OSError as error:
                self.problems.append(f"{self._log} cannot be written: {error.strerror}")
            except WeftError as error:
                self.problems.append(error.message)
            lines.clear()

    def _unlock(self, pending: _PendingProbe) -> None:
        pending.locked = False
        assert pending.key is not None
        self._free(pending.key.key)

    def _free(self, key: str) -> None:
        """Release a key, and answer the other tasks of this run that need the same result."""
        with self._mutex:
            others = self._mine.pop(key, [])
            self._locks.unlock(key)
        for pending in others:
            self._queue.put(pending)

    def _end_claims(self, claims: list[Claim]) -> None:
        """End the claims of failed tasks; a waiting run takes over."""
        try:
            self.results.index.release(claims)
        except WeftError as error:
            self.problems.append(error.message)
        for claim in claims:
            self._free(claim.key)

    # ---------------------------------------------------------------------------------------------- waiting, leases

    def _wait(self, pending: _PendingProbe, lines: list[str], *, own: bool = False) -> Event:
        """Report the owner that a task waits for. `_free` wakes waits for tasks of this run, a thread wakes the
        others.
        """
        assert pending.key is not None
        pending.waited = True
        owner = self.results.index.claimed(pending.key.key)
        for _ in range(_LOOKS):
            if owner is not None or self._closed.wait(_LOOK_S):
                break
            owner = self.results.index.claimed(pending.key.key)
        who = "another process" if owner is None else f"{self.results.index.shown(owner.owner, owner.run)}/{owner.step}"
        self._note(pending, lines, "waiting", f"{who} is making the same result")
        if pending.recipe is not None:
            self._say(pending.recipe.step, f"waits for {who}, which is making the same result")
        if not own:
            with self._mutex:
                self._waiting.append(pending)
                if self._waiters < _WAITERS:
                    self._waiters += 1
                    self._start(self._wait_for_locks, "waiter")
        shell = self._shell
        assert shell is not None
        return Waiting(shell.clock.now(), pending.probe.vertex, pending.probe.index, who)

    def _wait_for_locks(self) -> None:
        """Wait for one key after the other. Its owner or the kernel frees it; `close` does not join this thread."""
        while True:
            with self._mutex:
                if not self._waiting:
                    self._waiters -= 1
                    return
                pending = self._waiting.popleft()
            assert pending.key is not None
            key = pending.key.key
            try:
                self._locks.wait(key)
                other = self.results.index.claimed(key)
                while other is not None and self._is_elsewhere(other):
                    self._locks.unlock(key)
                    if self._closed.wait(_ELSEWHERE_S):
                        return
                    self._locks.wait(key)
                    other = self.results.index.claimed(key)
            except (OSError, WeftError):  # closed meanwhile, or the index cannot be read: the answer reports the error
                if self._closed.is_set():
                    return
                with self._mutex:
                    self._queue.put(pending)
                    for other_task in self._mine.pop(key, []):
                        self._queue.put(other_task)
                continue
            pending.locked = True
            self._queue.put(pending)

    def _prolong(self) -> None:
        """Prolong the claims for other hosts while this process lives."""
        while not self._closed.wait(LEASE_S / 3):
            with self._mutex:
                held = list(self._held.values())
            if held:
                try:
                    self.results.index.prolong(held, self.results.wall() + LEASE_S)
                except WeftError as error:
                    self.problems.append(error.message)

    def go_on(self) -> None:
        """End the claims of the last owner of this run, which died; called before the first probe.

        Every unfinished task is probed again: another run may be making its result by now, or have made it.
        """
        for claim in self._left:
            if not self._locks.try_lock(claim.key):
                continue
            if self.results.index.claimed(claim.key) == claim:
                self.results.index.release([claim])
            self._locks.unlock(claim.key)


def read_decisions(folder: Path) -> list[dict[str, Any]]:
    """Return the cache answers of the run in a folder, oldest first; a torn last line is left out."""
    found = []
    try:
        text = (folder / DECISIONS).read_text(encoding="ascii", errors="replace")
    except FileNotFoundError:
        return []
    for line in text.splitlines():
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if isinstance(row, dict) and isinstance(row.get("step"), str):
            found.append(row)
    return found
