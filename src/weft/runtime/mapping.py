"""`Mapped`: the results of one function over many items, as `Session.map` returns them.

A sequence is one run with a task for each item. An iterable of unknown length becomes a run for each block of its
items, of which a few are ahead of the reader: the size of a block follows from the time that the last one took. A
block of an iterable that is slow has the items that came in a short time.
"""

from __future__ import annotations

import itertools
import queue
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Protocol, Self, TypedDict, TypeGuard

from weft.engine.view import JobView, VertexView
from weft.graph.builder import Graph
from weft.graph.items import is_labelled
from weft.graph.logical import OnFailure
from weft.model.errors import NotFoundError, RunCancelledError, RunFailedError, TaskError, UsageError, WeftError
from weft.model.failures import Failure
from weft.model.ids import task_name
from weft.model.raised import as_raised
from weft.model.wording import counted
from weft.runtime.arguments import shown, text, truth, whole, wrong
from weft.runtime.clock import RealClock
from weft.runtime.interruptible import interruptible_get
from weft.runtime.progress import PATIENCE_S, bars
from weft.runtime.watching import EndedTasks

if TYPE_CHECKING:
    from weft.graph.logical import Retry
    from weft.model.resources import Placement, Resources
    from weft.runtime.progress import Bars
    from weft.runtime.run import Run
    from weft.runtime.session import EngineSession

AHEAD: Final = 3
"""The number of blocks of an iterable of unknown length that have been begun and not been read to their end."""
FIRST: Final = 64
"""The number of items of the first block."""
_GROWTH: Final = 4
_LARGEST: Final = 1 << 16
_BLOCK_S: Final = 1.0
"""The seconds that a block should take."""
_TAKE_S: Final = 0.05
"""The seconds after which a block begins with the items that the iterable has given so far."""
_AT_ONCE: Final = 1024
"""The number of results in memory that are taken at once."""
_POLL_S: Final = 0.1


class MapOptions(TypedDict, total=False):
    """The fields of a vertex that `Session.map` takes."""

    resources: Resources | tuple[Resources, ...]
    placement: Placement | None
    retry: Retry
    timeout_s: float | None
    output_bytes: int | None
    scratch_bytes: int


class Items(Protocol):
    """Items with a length and a place each."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> Any: ...


class Block:
    """Items that one run computes; `first` is the number of the first one."""

    __slots__ = ("began", "column", "ended", "first", "items", "over", "read", "run", "vertex")

    def __init__(self, first: int, items: Items, run: Run, ended: EndedTasks, began: float) -> None:
        self.first = first
        self.items = items
        self.vertex = ended.vertex
        self.run = run
        self.ended = ended
        self.began = began
        self.column: Any = None
        self.read = 0  # results that were handed on, if they come as they end
        self.over = False


class Mapped(Iterator[Any]):
    """The results of `Session.map`, which has the arguments.

    Iterate over them once, or call `results` for a list of those that are left. A result that was handed on is not
    kept, if the items had no known length. Leave the `with` block of the object, or call `cancel`, to stop what has not
    been computed. Several threads may read: each result goes to one of them.
    """

    def __init__(
        self,
        session: EngineSession,
        fn: Any,
        items: Iterable[Any],
        name: str | None = None,
        params: Mapping[str, Any] | None = None,
        options: MapOptions | None = None,
        *,
        ordered: bool = True,
        return_exceptions: bool = False,
        progress: bool = True,
        durable: bool = False,
        stop_when: Callable[[Any], object] | None = None,
    ) -> None:
        self._session = session
        self._fn, self._params, self._options = fn, params, options or {}
        unknown = set(self._options) - MapOptions.__annotations__.keys()
        if unknown:
            raise UsageError(
                f"map has no option {min(unknown)!r}",
                hint=f"It has: {', '.join(MapOptions.__annotations__)}. Arguments of the function belong to params: "
                f"params={{{min(unknown)!r}: ...}}.",
            )
        self._name = None if name is None else text("name", name)
        self._ordered, self._returns = truth("ordered", ordered), truth("return_exceptions", return_exceptions)
        self._progress = truth("progress", progress)
        if stop_when is not None and not callable(stop_when):
            raise wrong("stop_when", stop_when, "a function of a result")
        self._stop_when = stop_when
        self._clock = RealClock()
        self._begin = self._clock.now()
        self._bars: Bars | None = None
        self._drawn = False
        self._stopped = False
        self._news: queue.SimpleQueue[tuple[int, int, int]] = queue.SimpleQueue()
        self._blocks: dict[int, Block] = {}
        self._source: Iterator[Any] = iter(())
        self._broken: Exception | None = None  # what the iterable has raised, to be told after the items before it
        self._size = FIRST
        self._slow = False  # whether the iterable takes longer for its items than a block should
        self._count = 0
        self._done = 0
        if _has_places(items):
            self._length: int | None = len(items)
            if self._length:
                self._start(items)
        elif isinstance(items, Sized) and isinstance(items, Iterable):
            self._length = len(items)
            if self._length:
                self._start(list(items))
        elif isinstance(items, Iterable):
            if durable:
                raise UsageError(
                    "a durable session maps items of a known length only, since a resumed run takes the same items",
                    hint="Pass a list, or open the session without durable=.",
                )
            self._length = None
            self._source = iter(items)
            self._take_block()
        else:
            raise wrong("items", items, "an iterable of items")
        self._results = self._yield()
        self._reading = threading.RLock()

    def __iter__(self) -> Self:
        return self

    def __repr__(self) -> str:
        items = "items of an iterable" if self._length is None else counted(self._length, "item")
        return f"<results of {self._name or 'map'} for {items}>"

    def __next__(self) -> Any:
        """Return the next result, as soon as it is there. TaskError and others: its item has failed."""
        if self._stopped:
            self._close_bars()
            raise StopIteration
        with self._reading:
            result = next(self._results)
        if self._stop_when is not None and not isinstance(result, WeftError) and self._stop_when(result):
            self.stop()
        return result

    @property
    def n(self) -> int | None:
        """The number of items; None if they have no length."""
        return self._length

    def results(self) -> list[Any]:
        """Wait for all results that were not read yet, and return them. Errors as of the iteration."""
        return list(self)

    @property
    def runs(self) -> tuple[Run, ...]:
        """The runs whose results were not read to their end."""
        return tuple(block.run for block in self._blocks.values())

    def cancel(self, reason: str = "cancelled") -> None:
        """Stop what has not been computed. The next read raises RunCancelledError, unless its result is there."""
        self._source, self._broken = iter(()), None
        for run in self.runs:
            run.job.unread = False  # who cancels it wants no more of it
            run.cancel(reason)

    def cancel_item(self, index: int, reason: str = "cancelled by its user") -> None:
        """Stop the computation of one item, counted from 0; the others go on.

        In place of its result comes a RunCancelledError, which is not raised. An item that has ended keeps its result.
        NotFoundError: it is not among the items whose work has begun and whose results were not read.
        """
        index = whole("index", index, lo=0, hi=None)
        for block in self._blocks.values():
            if block.first <= index < block.first + len(block.items):
                block.run.cancel_task(block.vertex, index - block.first, reason)
                return
        raise NotFoundError(f"item {index} is not among those that are computed now")

    def stop(self, reason: str = "the results suffice") -> None:
        """Compute no more: the iteration ends, and the runs end as succeeded with what they have computed."""
        self._source = iter(())
        self._stopped = True
        for run in self.runs:
            run.job.unread = False
            run.stop(reason=reason)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.cancel("the results are not read to their end")

    # ------------------------------------------------------------------------------------------------- blocks

    def _start(self, items: Items) -> None:
        """Begin the run of a block."""
        strategy = OnFailure.CONTINUE if self._returns else OnFailure.FAIL_FAST
        graph = Graph(self._name or "map", on_failure=strategy)
        node = graph.add(
            self._fn,
            items=items,  # type: ignore[arg-type]  # a sequence by its methods, such as an array
            name=self._name,
            params=self._params,
            keep=True,
            **self._options,
        )
        graph.name = self._name = node.id
        news, first = self._news, self._count  # the job refers to no block: its run would live as long as itself
        ended = EndedTasks(node.id, lambda lo, hi: news.put((first, lo, hi)))
        began = self._clock.now()
        run = self._session.submit(graph, listeners=[ended])
        run.when_done(lambda: news.put((first, 0, 0)))
        self._blocks[first] = Block(first, items, run, ended, began)
        self._count += len(items)

    def _take_block(self) -> bool:
        """Begin a block with the next items of the iterable; False if it has none."""
        taken: list[Any] = []
        end = self._clock.now() + _TAKE_S
        self._slow = False
        try:
            for item in itertools.islice(self._source, self._size):
                taken.append(item)
                if self._clock.now() > end:
                    self._slow = True
                    break
        except Exception as error:  # noqa: BLE001 - the iterable is the user's
            self._source, self._broken = iter(()), error
        if taken:
            self._start(taken)
        return bool(taken)

    def _adapt(self, block: Block) -> None:
        """Choose the size of the next block by the time of one that has ended."""
        if self._length is None and len(block.items) >= self._size:
            seconds = max(self._clock.now() - block.began, 1e-6)
            ideal = int(self._size * _BLOCK_S / seconds)
            self._size = max(FIRST, min(ideal, self._size * _GROWTH, _LARGEST))

    # ------------------------------------------------------------------------------------------------ results

    def _yield(self) -> Iterator[Any]:
        try:
            yield from self._in_order() if self._ordered else self._as_they_end()
            if self._broken is not None:
                raise self._broken
        finally:
            self._close_bars()

    def _in_order(self) -> Iterator[Any]:
        while self._blocks or self._more():
            block = next(iter(self._blocks.values()))
            index, n = 0, len(block.items)
            while index < n:
                # What is there does not wait for the next items of a slow iterable.
                began = not (self._slow and block.ended.ended(index)) and self._more()
                reach = block.ended.reach(index, min(index + _AT_ONCE, n))
                if reach > index:
                    yield from self._values(block, index, reach)
                    index = reach
                elif block.ended.ended(index):
                    yield self._result(block, index)
                    index += 1
                elif block.over:
                    raise self._failed(block)
                elif not (began and self._slow and self._news.empty()):
                    self._hear()
            self._close_block(block)

    def _as_they_end(self) -> Iterator[Any]:
        while self._blocks or self._more():
            if (not self._slow or self._news.empty()) and self._more() and self._slow and self._news.empty():
                continue
            first, lo, hi = self._hear()
            block = self._blocks.get(first)
            if block is None:  # it was read before its end
                continue
            if not hi:  # its run has ended, and all that it made was told before
                raise self._failed(block)
            while lo < hi:
                reach = block.ended.reach(lo, min(lo + _AT_ONCE, hi))
                if reach > lo:
                    yield from self._values(block, lo, reach)
                else:
                    yield self._result(block, lo)
                reach = max(reach, lo + 1)
                block.read += reach - lo
                lo = reach
            if block.read == len(block.items):
                self._close_block(block)

    def _more(self) -> bool:
        """Begin another block if few are begun; return whether one was begun.

        Blocks of a slow iterable have few items, so the items count.
        """
        few = len(self._blocks) < AHEAD or (self._slow and self._count - self._done < AHEAD * FIRST)
        return self._length is None and few and self._take_block()

    def _close_block(self, block: Block) -> None:
        self._adapt(block)
        del self._blocks[block.first]
        self._done += len(block.items)

    def _hear(self) -> tuple[int, int, int]:
        """Wait for the next news of any block; bars are shown meanwhile."""
        try:
            news = self._next_news()
        except KeyboardInterrupt:
            self.cancel("interrupted")
            raise
        self._hide()
        first, _, hi = news
        if not hi and first in self._blocks:
            self._blocks[first].over = True
        return news

    def _next_news(self) -> tuple[int, int, int]:
        try:
            return self._news.get_nowait()
        except queue.Empty:
            pass
        with next(iter(self._blocks.values())).run.awaited():
            while self._progress and (self._bars is not None or not self._drawn):
                try:
                    return self._news.get(timeout=_POLL_S)
                except queue.Empty:
                    self._draw()
            return interruptible_get(self._news)

    def _values(self, block: Block, lo: int, hi: int) -> Iterator[Any]:
        """Yield the results of finished tasks; those that lie elsewhere than in memory one by one."""
        if block.column is None:
            block.column = block.run.results().column(block.vertex)
        values = self._session.load_plain(block.column, lo, hi)
        return iter(values) if values is not None else (self._result(block, index) for index in range(lo, hi))

    def _result(self, block: Block, index: int) -> Any:
        """Return the result of a task that has ended."""
        if not block.ended.finished(index):
            error = self._error(block, index)
            if not self._returns and not isinstance(error, RunCancelledError):
                self.cancel(f"{block.vertex}[{block.first + index}] failed")
                raise error
            return error
        while True:
            try:
                return self._session.load(block.run.job, block.vertex, block.column, index)
            except NotFoundError:
                if block.over:
                    raise self._failed(block) from None
                self._session.loop.between_ticks(lambda: block.ended.again(block.run.job, index))
                self._await_again(block, index)

    def _await_again(self, block: Block, index: int) -> None:
        """Wait until a task whose value was lost has ended again; other news stay to be read."""
        others = []
        while not block.ended.ended(index) and not block.over:
            others.append(self._hear())
        own = (block.first, index, index + 1)
        if own in others:
            others.remove(own)
        else:
            others += self._drained(own)
        for news in others:
            self._news.put(news)

    def _drained(self, own: tuple[int, int, int]) -> list[tuple[int, int, int]]:
        """Return the news that nobody has read, without one that is known."""
        found = []
        with suppress(queue.Empty):
            while True:
                found.append(self._news.get_nowait())
        return [news for news in found if news != own]

    def _failed(self, block: Block) -> Exception:
        """Return the error of a block that has ended without all results."""
        failed = [i for i, failure in block.ended.failures.items() if failure.kind != Failure.CANCELLED.value]
        if failed:
            return self._error(block, min(failed))
        error = block.run.error() or RunFailedError(f"{block.vertex} ended without all of its results")
        return as_raised(error) if isinstance(error, TaskError) else error

    def _error(self, block: Block, index: int) -> Exception:
        """Return the error of an item."""
        block.run.job.unread = False
        task = f"{block.vertex}[{block.first + index}]"
        try:
            item = shown(block.items[index])
        except Exception:  # noqa: BLE001 - the code of the item
            item = type(block.items[index]).__name__
        origin = block.run.job.origins.get(task_name(block.vertex, index))
        error = block.ended.failures[index].error(task, about=f" for the item {item}", origin=origin)
        return as_raised(error) if isinstance(error, TaskError) else error

    # --------------------------------------------------------------------------------------------------- bars

    def _draw(self) -> None:
        if not self._drawn:
            if self._clock.now() < self._begin + PATIENCE_S:
                return
            self._drawn = True
            self._bars = bars(self._name or "map")
        elif self._bars is not None:
            self._bars.show()
        if self._bars is not None:
            self._bars.update(self._view())

    def _hide(self) -> None:
        if self._bars is not None:
            self._bars.hide()

    def _close_bars(self) -> None:
        if self._bars is not None:
            self._bars.close()

    def _view(self) -> JobView:
        """Return all blocks as one vertex; its number of tasks is that of the items so far."""
        rows = [vertex for run in self.runs for vertex in run.view().vertices]
        finished, executing = (sum(getattr(row, field) for row in rows) for field in ("finished", "executing"))
        whole = VertexView(
            self._name or "map", "running", self._count, self._done + finished, executing, 0, 0, 0.0, 0.0
        )
        return JobView(whole.id, "running", (whole,), {}, {})


def _has_places(items: object) -> TypeGuard[Items]:
    """Return whether items can be read by their place, so that they need not be copied."""
    return isinstance(items, Sequence) or (
        isinstance(items, Sized) and hasattr(items, "__getitem__") and not is_labelled(items)
    )
