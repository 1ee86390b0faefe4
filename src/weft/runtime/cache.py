"""The cache as the engine asks it: `Probe` in, `Hit`, `Miss` or `Waiting` out.

Threads of its own find the key of what is to run, look it up, and put a result in place: nothing of that happens under
the loop's lock. What is not found is claimed before it runs: its key is locked in the kernel for as long as this
process works on it, so that the same result is made once however many ask for it, and so that another takes over the
moment this process dies. A row of the index says who it is, for people, and its epoch refuses what a former owner
commits late. Where the kernel's locks do not reach (other hosts), the row is a lease that its owner prolongs.

A task that waits for another's result is still PROBING: it holds no slot, and a cancelled job does not wait for it.
"""

from __future__ import annotations

import json
import os
import queue
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from weft.engine.events import CancelRequested, Done, Failed, Hit, Miss, Waiting
from weft.engine.machines.task import TaskState
from weft.model.errors import NotFoundError, WeftError
from weft.store.entries import Claim, Entry
from weft.store.locks import locks_of
from weft.store.results import Key, Recipe, ResultCache, Why

if TYPE_CHECKING:
    from pathlib import Path

    from weft.engine.commands import Command, Probe
    from weft.engine.events import Event
    from weft.engine.ports import Job, Shell

DECISIONS: Final = "cache.jsonl"
"""The file in a run's folder that tells what the cache answered, and why."""
RecipeOf = Callable[..., Recipe | None]
"""Makes the recipe of a task of: the parameters of its program, its number, its item, and `look`, which tells how many
tasks a vertex has, and the parameters of its program."""
LEASE_S: Final = 60.0
_MOST_THREADS: Final = 4
_LONG_S: Final = 0.05
_WAITERS: Final = 64
_BATCH: Final = 64
_PATIENCE_S: Final = 1.0
_ELSEWHERE_S: Final = 0.5
_LOOKS: Final = 20
_LOOK_S: Final = 0.005
"""How often, and after which time, it is looked for who holds a key: the lock comes before the row that says so."""
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


class _Asked(Struct):
    """One probe on its way. `key` is set once it is known, `locked` says that this process holds its lock."""

    job: Job
    probe: Probe
    recipe: Recipe | None = None
    key: Key | None = None
    locked: bool = False
    waited: bool = False


class StepCache:
    """The cache of one run; `watch` is to be a listener of its job, and `close` to be called when that has ended.

    `log` is the file for what was answered, `recipe_of` tells what the result of a task depends on. Tasks of the
    vertices in `refresh` are not looked up, but kept.
    `say` tells people something of a step that still waits; `placed` is called with the paths of outputs that were put
    in place, before the step counts as done.
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
        self._asked: queue.SimpleQueue[_Asked | list[Claim] | None] = queue.SimpleQueue()
        self._waiting: deque[_Asked] = deque()
        self._waiters = 0
        self._mutex = threading.Lock()
        self._held: dict[tuple[str, int], Claim] = {}
        # Keys that are locked, or waited for on a thread, and which other tasks of this run want the same.
        self._mine: dict[str, list[_Asked]] = {}
        self._prolonging = False
        self._threads: list[threading.Thread] = []
        self._closed = threading.Event()
        self._host = os.uname().nodename
        self._left = results.index.claims_of(run)

    # --------------------------------------------------------------------------------------------------- the loop's

    def probe(self, shell: Shell, job: Job, probe: Probe) -> None:
        """Take a question on; the answer is posted later."""
        self._shell = shell
        if not self._threads:
            self._start(self._answer, "cache")
        self._asked.put(_Asked(job, probe))

    def watch(self, job: Any, events: Sequence[Event], commands: Sequence[Command]) -> None:
        """Let go of the keys of tasks that have ended; the loop calls this under its lock after every tick."""
        if not self._held or not any(isinstance(event, Done | Failed | CancelRequested) for event in events):
            return
        failed = []
        for (vertex, index), claim in list(self._held.items()):
            state = job.inspector.row(vertex).state[index]
            if state in _LIVE:
                continue
            with self._mutex:
                self._held.pop((vertex, index), None)
            if state in _KEPT:  # who ran it has ended the claim
                self._free(claim.key)
            else:
                failed.append(claim)
        if failed:
            self._asked.put(failed)

    def keep(self, recipe: Recipe, started: float, spoilt: str) -> str:
        """Keep the result of a task that has succeeded, if it holds a claim; return why it is not kept, or ""."""
        return self.results.keep(recipe, started, spoilt)

    def close(self) -> None:
        """Answer nothing more, let go of all keys, and write what is still to be written."""
        self._closed.set()
        for _ in self._threads:
            self._asked.put(None)
        for thread in self._threads:
            thread.join(_PATIENCE_S)  # it may be copying something large
        with self._mutex:
            held, self._held = list(self._held.values()), {}
        try:
            if held:
                self.results.index.release(held)
            self.results.index.flush()
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
                    self.results.foresee([asked.key.key for asked in some if asked.key is not None])
                for asked in some:
                    event = self._decided(asked, lines)
                    if event is not None and not self._closed.is_set():
                        shell.post_later(asked.job.id, event)
            self._write(lines)
            shell.drain()

    def _take_some(self, shell: Shell) -> tuple[list[_Asked], bool]:
        """Wait for questions, and find their keys; return those that are to be answered now, and whether more may come.

        To find a key may take long, if there is much to read: then others can read beside it.
        """
        some: list[_Asked] = []
        item = self._asked.get()
        while item is not None:
            if isinstance(item, list):
                self._give_up(item)
            else:
                began = shell.clock.now()
                some.append(item)
                with suppress(Exception):  # it is told when the question is answered
                    self._identify(item)
                if shell.clock.now() - began > _LONG_S:
                    with self._mutex:
                        more = len(self._threads) < _MOST_THREADS and not self._closed.is_set()
                        if more and not self._asked.empty():
                            self._start(self._answer, "cache")
                    return some, True
            if len(some) >= _BATCH:
                return some, True
            try:
                item = self._asked.get_nowait()
            except queue.Empty:
                return some, True
        return some, False

    def _identify(self, asked: _Asked) -> None:
        """Find the recipe and the key of what is asked for, unless they are known."""
        if asked.recipe is None:
            asked.recipe = self._describe(asked.job, asked.probe)
        if asked.recipe is not None and asked.key is None:
            asked.key = self.results.key(asked.recipe, stopped=self._closed.is_set)

    def _decided(self, item: _Asked, lines: list[str]) -> Event | None:
        """Decide, whatever goes wrong."""
        try:
            return self._decide(item, lines)
        except WeftError as error:
            if isinstance(error, NotFoundError):  # whoever wrote the file should know
                step = item.probe.vertex if item.recipe is None else item.recipe.step
                self.problems.append(f"results of step {step} are not used again: {error.message}")
            return self._miss(item, Why(error.message), lines)
        except Exception as error:  # noqa: BLE001 - a task must not wait for ever for an answer
            self.problems.append(f"the cache gave up on {item.probe.vertex}: {error}")
            return self._miss(item, Why(f"the cache gave up: {error}"), lines)

    def _decide(self, asked: _Asked, lines: list[str]) -> Event | None:
        """Return the answer; None if it has to wait for somebody else."""
        results = self.results
        self._identify(asked)
        recipe, key = asked.recipe, asked.key
        if recipe is None or key is None:
            return self._miss(asked, Why("nothing is kept of it"), lines)
        reason = "it was asked to run again" if self._is_refreshed(asked.probe.vertex) else ""
        near = Why(reason)
        if not asked.locked and not reason:
            found = results.find(key.key)
            if found.entry is not None:
                return self._hit(asked, recipe, found.entry, lines)
        if not asked.locked:
            with self._mutex:
                others = self._mine.get(key.key)
                if others is not None:
                    others.append(asked)
                else:
                    self._mine[key.key] = []
                    asked.locked = self._locks.try_lock(key.key)
            if not asked.locked:
                return self._wait(asked, lines, own=others is not None)
        if not reason:  # somebody may have made it just before the lock was free
            found = results.find(key.key)
            if found.entry is not None:
                return self._hit(asked, recipe, found.entry, lines)
            near = Why(found.reason) if found.reason else results.why(recipe, key.leaves)
        other = results.index.claimed(key.key)
        if other is not None and self._is_elsewhere(other):
            asked.locked = False
            self._locks.unlock(key.key)
            return self._wait(asked, lines)
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
            self._held[asked.probe.vertex, asked.probe.index] = claim
            if not self._prolonging:
                self._prolonging = True
                self._start(self._prolong, "leases")
        return self._miss(asked, near, lines)

    def _is_elsewhere(self, other: Claim) -> bool:
        """Whether a claim on a key locked here belongs to a living owner whom these locks do not reach."""
        return not self._locks.everywhere and other.host != self._host and other.lease_until > self.results.wall()

    def _describe(self, job: Job, probe: Probe) -> Recipe | None:
        program = job.inspector.row(probe.vertex).vertex.program
        item = None if program.items is None else program.items[probe.index]

        def look(vertex: str) -> tuple[int, Mapping[str, Any]]:
            row = job.inspector.row(vertex)
            return row.n, row.vertex.program.params

        return self._recipe_of(program.params, probe.index, item, look=look)

    def _is_refreshed(self, vertex: str) -> bool:
        """Whether a vertex, or the one whose patch it came with, was asked to run again."""
        if not self._refresh:
            return False
        parts = vertex.split("/")
        return any("/".join(parts[:end]) in self._refresh for end in range(1, len(parts) + 1))

    def _hit(self, asked: _Asked, recipe: Recipe, entry: Entry, lines: list[str]) -> Event:
        try:
            self.results.take(entry, recipe)
            if recipe.outputs:
                self._placed(recipe.outputs.values())
        finally:
            if asked.locked:
                self._unlock(asked)
        self._note(asked, lines, "hit", f"result of {entry.run}", run=entry.run)
        shell = self._shell
        assert shell is not None
        return Hit(shell.clock.now(), asked.probe.vertex, asked.probe.index, entry.size)

    def _miss(self, asked: _Asked, why: Why, lines: list[str]) -> Event:
        if asked.locked and (asked.probe.vertex, asked.probe.index) not in self._held:
            self._unlock(asked)
        if asked.waited and asked.recipe is not None:
            self._say(asked.recipe.step, "")
        self._note(asked, lines, "miss", why.reason, run=why.run, differences=why.differences)
        shell = self._shell
        assert shell is not None
        return Miss(shell.clock.now(), asked.probe.vertex, asked.probe.index, why.reason)

    def _note(self, asked: _Asked, lines: list[str], outcome: str, reason: str, **more: Any) -> None:
        if asked.recipe is None:
            return
        said: dict[str, Any] = {
            "step": asked.recipe.step,
            "task": asked.probe.index,
            "outcome": outcome,
            "reason": reason,
        }
        said |= {name: value for name, value in more.items() if value}
        if asked.key is not None:
            said["key"] = asked.key.key
            if outcome == "miss":
                said["leaves"] = dict(asked.key.leaves)
        lines.append(json.dumps(said, ensure_ascii=True))

    def _write(self, lines: list[str]) -> None:
        if lines:
            try:
                with self._log.open("a", encoding="ascii") as file:
                    file.write("".join(f"{line}\n" for line in lines))
                if self.results.index.full:
                    self.results.index.flush()
            except OSError as error:
                self.problems.append(f"{self._log} cannot be written: {error.strerror}")
            except WeftError as error:
                self.problems.append(error.message)
            lines.clear()

    def _unlock(self, asked: _Asked) -> None:
        asked.locked = False
        assert asked.key is not None
        self._free(asked.key.key)

    def _free(self, key: str) -> None:
        """Let go of a key; other tasks of this run that want the same are answered now."""
        with self._mutex:
            others = self._mine.pop(key, [])
            self._locks.unlock(key)
        for asked in others:
            self._asked.put(asked)

    def _give_up(self, claims: list[Claim]) -> None:
        """End the claims of tasks that have failed; whoever waits for them takes over."""
        try:
            self.results.index.release(claims)
        except WeftError as error:
            self.problems.append(error.message)
        for claim in claims:
            self._free(claim.key)

    # ---------------------------------------------------------------------------------------------- waiting, leases

    def _wait(self, asked: _Asked, lines: list[str], *, own: bool = False) -> Event:
        """Say for whom a task waits. What another task of this run makes is freed by `_free`, the rest by a thread."""
        assert asked.key is not None
        asked.waited = True
        owner = self.results.index.claimed(asked.key.key)
        for _ in range(_LOOKS):
            if owner is not None or self._closed.wait(_LOOK_S):
                break
            owner = self.results.index.claimed(asked.key.key)
        who = "another process" if owner is None else f"{owner.run}/{owner.step}"
        self._note(asked, lines, "waiting", f"{who} is making the same result")
        if asked.recipe is not None:
            self._say(asked.recipe.step, f"waits for {who}, which is making the same result")
        if not own:
            with self._mutex:
                self._waiting.append(asked)
                if self._waiters < _WAITERS:
                    self._waiters += 1
                    self._start(self._wait_for_locks, "waiter")
        shell = self._shell
        assert shell is not None
        return Waiting(shell.clock.now(), asked.probe.vertex, asked.probe.index, who)

    def _wait_for_locks(self) -> None:
        """Wait for one key after the other. Its owner frees it, or the kernel does; nobody waits for this thread."""
        while True:
            with self._mutex:
                if not self._waiting:
                    self._waiters -= 1
                    return
                asked = self._waiting.popleft()
            assert asked.key is not None
            key = asked.key.key
            try:
                self._locks.wait(key)
                other = self.results.index.claimed(key)
                while other is not None and self._is_elsewhere(other):
                    self._locks.unlock(key)
                    if self._closed.wait(_ELSEWHERE_S):
                        return
                    self._locks.wait(key)
                    other = self.results.index.claimed(key)
            except (OSError, WeftError):  # it was closed meanwhile, or the index cannot be read: the answer will say
                if self._closed.is_set():
                    return
                with self._mutex:
                    self._asked.put(asked)
                    for other_task in self._mine.pop(key, []):
                        self._asked.put(other_task)
                continue
            asked.locked = True
            self._asked.put(asked)

    def _prolong(self) -> None:
        """Tell other hosts now and then that this process lives."""
        while not self._closed.wait(LEASE_S / 3):
            with self._mutex:
                held = list(self._held.values())
            if held:
                try:
                    self.results.index.prolong(held, self.results.wall() + LEASE_S)
                except WeftError as error:
                    self.problems.append(error.message)

    def go_on(self) -> None:
        """Give up what the last owner of this run, which died, was making; before the first probe.

        Whatever has not ended is asked for again: another may be making it by now, or have made it.
        """
        for claim in self._left:
            if not self._locks.try_lock(claim.key):
                continue
            if self.results.index.claimed(claim.key) == claim:
                self.results.index.release([claim])
            self._locks.unlock(claim.key)


def read_decisions(folder: Path) -> list[dict[str, Any]]:
    """Return what the cache answered to the run in a folder, oldest first; a torn last line is left out."""
    found = []
    try:
        text = (folder / DECISIONS).read_text(encoding="ascii", errors="replace")
    except FileNotFoundError:
        return []
    for line in text.splitlines():
        try:
            said = json.loads(line)
        except ValueError:
            continue
        if isinstance(said, dict) and isinstance(said.get("step"), str):
            found.append(said)
    return found
