"""The desk of a session: which calls can run, and how they come to a slot.

Every call, and every time that a function goes on after it has waited, is a job of one task in the session's engine.
What a call reads is given to that job as values that were kept before. The desk knows who waits for whom, and submits
few jobs at a time, the latest first: so a tree of calls is walked in depth, and as few functions wait as can be.

All that the desk knows is changed on its own thread, by what others send to it.
"""

from __future__ import annotations

import queue
import re
import threading
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from weft.engine.commands import Complete
from weft.graph.builder import Graph
from weft.model.errors import ConflictError, InternalError, RunCancelledError, TaskError, WeftError
from weft.remote.calls import RETRIES, Call, filled
from weft.remote.doors import Door, far_call, far_hold
from weft.remote.fibers import Fiber, Parked, Turns
from weft.tensor.running import Watch, compute, here, waiting
from weft.tensor.sessions import using

if TYPE_CHECKING:
    from weft.runtime.kept import Kept
    from weft.runtime.session import Run
    from weft.tensor.sessions import Session

AHEAD = 2
"""How many jobs are submitted for each worker, so that none waits for the desk."""
_lock = threading.Lock()


def given(*_: Any) -> Any:
    """Stand for a task whose value is there before the job."""
    raise AssertionError("a value that is given was asked for")


class Entry:
    """A call that has been asked for, until it has ended."""

    def __init__(self, call: Call) -> None:
        self.call = call
        self.missing = 0
        self.readers: list[Entry] = []
        self.batches: set[Batch] = set()
        self.children: set[Batch] = set()
        self.run: Run | None = None
        self.under_way = False
        self.stopped = False
        self.over = False
        self.tries = 0
        self.lost = 0


class Batch:
    """Calls that somebody waits for, with all that they need."""

    def __init__(self, calls: Sequence[Call]) -> None:
        self.calls = calls
        self.left: set[Entry] = set()
        self.n = 0
        self.error: BaseException | None = None
        self.over = threading.Event()

    def share(self) -> float:
        """Return the share of its calls that have ended."""
        return 1.0 - len(self.left) / self.n if self.n else 0.0


def desk_of(session: Session) -> Desk:
    """Return the desk of a session, which is made when it is first needed."""
    with _lock:
        found: Desk | None = session.desk
        if found is None:
            found = session.desk = Desk(session)
            session.engine.on_close(found.close)
        return found


class Desk:
    """Runs calls in a session."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self._engine = session.engine
        self._door = Door(self) if session.apart else None
        self._entries: dict[int, Entry] = {}
        self._ready: list[Callable[[], None]] = []
        self._out = 0
        self._gate = threading.Lock()
        self._closed = False
        self._todo: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="weft-desk", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread; whoever waits for a call is told."""
        with self._gate:
            self._closed = True
            self._todo.put(partial(self._give_up, _closed()))
            self._todo.put(None)
        if self._door is not None:
            self._door.close()

    # ------------------------------------------------------------------------------------- what others ask for

    def run(self, calls: Sequence[Call], watch: Watch, parent: Entry | None = None) -> None:
        """Run calls, and wait for them. TaskError, RunFailedError, RunCancelledError: the first that went wrong."""
        self._engine.check_open()
        parent = parent or getattr(here, "entry", None)
        compute(_arrays(calls), self.session, watch)
        batch = Batch(calls)
        watch.began(partial(self._todo.put, partial(self._stop, batch)), batch.share)
        with waiting():
            self._ask(partial(self._begin, batch, parent))
            try:
                batch.over.wait()
            except KeyboardInterrupt:
                self._todo.put(partial(self._stop, batch))
                batch.over.wait()
                raise
        if batch.error is not None:
            raise batch.error

    def again(self, entry: Entry, turns: Turns) -> None:
        """Have a slot held for a function that can go on. ConflictError: the session is closed."""
        self._ask(partial(self._queue_hold, entry, turns))

    def lost(self, entry: Entry) -> None:
        """Be told that the process is gone in which a call was waiting."""
        self._todo.put(partial(self._run_anew, entry))

    def _ask(self, todo: Callable[[], None]) -> None:
        """Have something done on the desk's thread. ConflictError: it takes nothing any more."""
        with self._gate:
            if self._closed:
                raise _closed()
            self._todo.put(todo)

    def entry(self, number: int) -> Entry | None:
        """Return a call that has not ended, by its number."""
        return self._entries.get(number)

    # --------------------------------------------------------------------------------------- on the desk's thread

    def _work(self) -> None:
        while (todo := self._todo.get()) is not None:
            try:
                todo()
                while self._ready and self._out < AHEAD * self.session.workers:
                    self._ready.pop()()
            except Exception as error:  # noqa: BLE001 - nobody may wait for ever for a thread that is gone
                told = InternalError(f"{type(error).__name__}: {error}", hint="Please report this.")
                told.__cause__ = error
                self._give_up(told)

    def _begin(self, batch: Batch, parent: Entry | None) -> None:
        if parent is not None and (parent.stopped or parent.over):
            self._end_batch(batch, RunCancelledError(f"{parent.call.name} was cancelled"))
            return
        if parent is not None:
            parent.children.add(batch)
        fresh: list[Entry] = []
        for entry in self._closure(batch.calls, fresh):
            entry.batches.add(batch)
            batch.left.add(entry)
        batch.n = len(batch.left)
        for entry in reversed(fresh):
            if not entry.missing:
                self._ready.append(partial(self._start, entry))
        if not batch.left:
            self._end_batch(batch, None)

    def _closure(self, calls: Sequence[Call], fresh: list[Entry]) -> Iterable[Entry]:
        """Yield the entries of calls and of all that they need and that is not there yet; note those that are new."""
        seen: dict[int, Entry] = {}
        stack = [call for call in reversed(calls) if not call.done]
        while stack:
            call = stack.pop()
            if call.number in seen:
                continue
            entry = self._entries.get(call.number)
            if entry is None:
                entry = self._entries[call.number] = Entry(call)
                fresh.append(entry)
            seen[call.number] = entry
            stack.extend(one for one in reversed(call.needs()) if isinstance(one, Call) and not one.done)
        for entry in fresh:
            for one in entry.call.needs():
                if isinstance(one, Call) and not one.done:
                    self._entries[one.number].readers.append(entry)
                    entry.missing += 1
        return seen.values()

    def _start(self, entry: Entry) -> None:
        """Submit the job of a call."""
        if entry.over:
            return
        call = entry.call
        needs = [one for one in call.needs() if isinstance(one, Call)]
        try:
            args, kwargs = call.bound({one.number: index for index, one in enumerate(needs)})
            if self._door is None:
                body: Any = partial(self._call_here, entry, args, kwargs)
                params: dict[str, Any] = {}
            else:
                body, params = far_call, self._door.params(call, args, kwargs)
            values = [self._kept(one) for one in needs]
        except WeftError as error:
            self._finish(entry, error)
        else:
            self._submit(entry, None, body, params, values)

    def _queue_hold(self, entry: Entry, turns: Turns) -> None:
        if entry.stopped or entry.over:
            turns.let_go()
            self._finish(entry, RunCancelledError(f"{entry.call.name} was cancelled"))
            return
        self._ready.append(partial(self._hold, entry, turns))

    def _hold(self, entry: Entry, turns: Turns) -> None:
        """Submit the job that holds a slot for a function that goes on."""
        if entry.stopped or entry.over:
            self._queue_hold(entry, turns)
        elif self._door is None:
            self._submit(entry, turns, partial(_held_here, turns), {}, [])
        else:
            self._submit(entry, turns, far_hold, self._door.hold_params(turns), [])

    def _submit(self, entry: Entry, turns: Turns | None, body: Any, params: Any, values: Sequence[Kept]) -> None:
        name = re.sub(r"[^A-Za-z0-9_]+", "_", entry.call.name).strip("_")[:100] or "call"
        graph = Graph(name)
        kept: dict[str, Kept] = {}
        inputs = []
        for index, value in enumerate(values):
            source = f"given-{index}"
            inputs.append(graph.add(given, n=1, name=source))
            kept[source] = value
        vertex = graph.task(body, *inputs, name=name, params=params)
        vertex.keep()

        def ended(job: Any, _: Any, commands: Sequence[Any]) -> None:
            if any(type(command) is Complete for command in commands):
                self._todo.put(partial(self._ended, entry, turns, run_of, vertex))

        run_of: list[Run] = []
        try:
            entry.run = self._engine.submit(graph, listeners=[ended], given=kept)
        except WeftError as error:
            if turns is not None:
                turns.let_go()
            self._finish(entry, error)
            return
        run_of.append(entry.run)
        entry.under_way = True
        self._out += 1
        if entry.stopped:
            entry.run.cancel()

    def _kept(self, call: Call) -> Kept:
        """Return the value of a call as it lies in the store of this session."""
        if call.kept is not None and call.kept.of(self._engine.store):
            return call.kept
        return self._engine.put([call.value], 1)

    def _ended(self, entry: Entry, turns: Turns | None, run_of: list[Run], vertex: Any) -> None:
        (run,) = run_of
        self._out -= 1
        entry.under_way = False
        run.wait()
        if entry.run is run:
            entry.run = None
        try:
            results = run.result()
            value = results.value(vertex)
            kept = None if isinstance(value, Parked) else results.keep(vertex)
        except WeftError as error:
            self._failed(entry, turns, error)
        else:
            if kept is not None and not entry.over:
                entry.call.keep(kept)
                self._finish(entry, None)
        finally:
            run.forget()

    def _failed(self, entry: Entry, turns: Turns | None, error: WeftError) -> None:
        if turns is not None:
            turns.let_go()
        if entry.over:
            return
        if turns is not None and turns.lost:
            self._run_anew(entry)
        elif isinstance(error, TaskError) and entry.tries < entry.call.retries and not entry.stopped:
            entry.tries += 1
            self._leave_children(entry)
            self._ready.append(partial(self._start, entry))
        else:
            self._finish(entry, error)

    def _run_anew(self, entry: Entry) -> None:
        """Run a call from its beginning: the process is gone that had it."""
        if entry.over or entry.under_way:
            return
        entry.lost += 1
        self._leave_children(entry)
        if entry.lost > RETRIES or entry.stopped:
            self._finish(entry, RunCancelledError(f"the process in which {entry.call.name} waited has ended"))
        else:
            self._ready.append(partial(self._start, entry))

    def _finish(self, entry: Entry, error: BaseException | None) -> None:
        """Take note that a call has ended, and that those that need it can run, or cannot."""
        todo = [entry]
        while todo:
            one = todo.pop()
            if one.over:
                continue
            one.over = True
            self._entries.pop(one.call.number, None)
            if error is not None:
                self._leave_children(one)
                todo.extend(one.readers)
            for reader in one.readers:
                reader.missing -= 1
                if error is None and not reader.missing and not reader.over:
                    self._ready.append(partial(self._start, reader))
            for batch in list(one.batches):
                batch.left.discard(one)
                if error is not None and batch.error is None:
                    batch.error = error
                    self._stop(batch)
                if not batch.left:
                    self._end_batch(batch, batch.error)

    def _end_batch(self, batch: Batch, error: BaseException | None) -> None:
        batch.error = error
        batch.over.set()

    def _stop(self, batch: Batch) -> None:
        """Stop what nobody else wants of a batch."""
        if batch.over.is_set():
            return
        if batch.error is None:
            batch.error = RunCancelledError("the computation was cancelled")
        for entry in list(batch.left):
            entry.batches.discard(batch)
            if entry.batches:
                batch.left.discard(entry)
            else:
                entry.batches.add(batch)
                self._stop_entry(entry)
        if not batch.left:
            self._end_batch(batch, batch.error)

    def _stop_entry(self, entry: Entry) -> None:
        if entry.stopped or entry.over:
            return
        entry.stopped = True
        if entry.under_way and entry.run is not None:
            entry.run.cancel()
        children = bool(entry.children)
        self._leave_children(entry)
        if not entry.under_way and not children:
            self._finish(entry, RunCancelledError(f"{entry.call.name} was cancelled"))

    def _leave_children(self, entry: Entry) -> None:
        children, entry.children = entry.children, set()
        for batch in children:
            self._stop(batch)

    def _give_up(self, error: WeftError) -> None:
        while self._ready:
            self._ready.pop()
        for entry in list(self._entries.values()):
            entry.stopped = True
            self._finish(entry, error)

    # ----------------------------------------------------------------------------------------- in worker threads

    def _call_here(self, entry: Entry, args: Any, kwargs: Any, ctx: Any, inputs: Any) -> Any:
        values = [one.all()[0] for one in inputs.values()]

        def work() -> Any:
            here.entry = entry
            with using(self.session):
                given_args, given_kwargs = filled((args, kwargs), values)
                return entry.call.checked(entry.call.function(*given_args, **given_kwargs))

        return Fiber(work, partial(self.again, entry)).start()


def _closed() -> ConflictError:
    return ConflictError("the session is closed", hint="Open another one.")


def _held_here(turns: Turns, ctx: Any, inputs: Any) -> Any:
    return turns.hold()


def _arrays(calls: Sequence[Call]) -> list[Any]:
    """Return the arrays that calls, and all that they need, have as arguments."""
    found: dict[int, Any] = {}
    seen: set[int] = set()
    stack = list(calls)
    while stack:
        call = stack.pop()
        if call.number in seen or call.done:
            continue
        seen.add(call.number)
        for one in call.needs():
            if isinstance(one, Call):
                stack.append(one)
            else:
                found[id(one)] = one
    return list(found.values())
