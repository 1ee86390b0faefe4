"""Values that outlive their run: they lie in the session's store, and later runs read them there.

A `KeptValues` is the only owner of its column. The garbage collector may finalize it on any thread and with any lock
held; so the finalizer only queues an action that frees the column, and a thread of the session calls it. Ended runs
without a reference go the same way.
"""

from __future__ import annotations

import queue
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from copy import deepcopy
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from weft.model.errors import ConflictError
from weft.store.limits import limits_named
from weft.store.rows import EdgeValues

if TYPE_CHECKING:
    from weft.store.api import ChunkStore, Column


class KeptValues:
    """The values of the tasks of one vertex, in task order. They are freed with the last reference to this object.

    They lie in memory, in shared memory, or on disk when memory is short. An item is read on access; callers must not
    change it. `Session.submit(graph, given={vertex: kept})` reads them as inputs of a run.
    """

    __slots__ = ("__weakref__", "_column", "_shelf")

    def __init__(self, shelf: NamedValues, column: Column) -> None:
        self._shelf = shelf
        self._column = column
        weakref.finalize(self, shelf.unwanted, column.key).atexit = False

    @property
    def column(self) -> Column:
        """Return the column of the store. ConflictError: the session is closed."""
        if self._shelf.closed:
            raise ConflictError(
                "the session that kept these values is closed, and they went with it",
                hint="Fetch values before their session is closed, or compute them again in another one.",
            )
        return self._column

    def of(self, store: ChunkStore) -> bool:
        """Whether the values lie in this store."""
        return self._shelf.store is store

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError(
            "cannot pickle kept values, which belong to their session. Name a vertex for them: "
            "session.submit(graph, given={'vertex': kept}); or let the function take a value as params: kept[0]"
        )

    def __len__(self) -> int:
        return len(self._column)

    def __getitem__(self, index: int) -> Any:
        """Read one value. ConflictError: the session is closed. NotFoundError: its file is missing or damaged."""
        return _plain(self._shelf.store.load(self.column, index))

    def copy(self, index: int) -> Any:
        """Read one value for the caller alone: a value on disk is not brought back into shared memory."""
        return _plain(self._shelf.store.load(self.column, index, last=True))

    def __iter__(self) -> Iterator[Any]:
        return (self[index] for index in range(len(self)))


def copied(value: Any) -> Any:
    """Return a copy of a value, or the value itself if it cannot be copied, such as a lock or an open file."""
    try:
        return deepcopy(value)
    except MemoryError:
        raise
    except Exception:  # noqa: BLE001 - each class raises what it likes
        return value


def _plain(value: Any) -> Any:
    """Return a value as its task gave it."""
    return value.returned() if type(value) is EdgeValues else value


class NamedValues:
    """The kept values of a session, and the thread that frees unreferenced columns."""

    def __init__(self, store: ChunkStore) -> None:
        self.store = store
        self.closed = False
        self._unwanted: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def keep(self, column: Column) -> KeptValues:
        """Return the owner of a column."""
        self.start()
        return KeptValues(self, column)

    def start(self) -> None:
        """Start the thread that frees, unless it runs. CapacityError: the system has no thread left."""
        if self._thread is None:
            with self._lock:
                if self._thread is None and not self.closed:
                    thread = threading.Thread(target=self._free, name="weft-freeing", daemon=True)
                    with limits_named():
                        thread.start()
                    self._thread = thread

    def unwanted(self, key: tuple[str, str]) -> None:
        """Queue a column to be freed; safe in a finalizer."""
        self.later(partial(self.store.drop, key))

    def later(self, action: Callable[[], None]) -> None:
        """Queue an action for the thread that frees; safe in a finalizer."""
        self._unwanted.put(action)

    def free_now(self) -> None:
        """Call the queued actions on this thread, so that their memory is free before new work needs it."""
        with suppress(queue.Empty):
            while not self.closed:
                action = self._unwanted.get_nowait()
                if action is not None:
                    action()

    def _free(self) -> None:
        while (action := self._unwanted.get()) is not None:
            action()
            del action

    def close(self) -> None:
        """Free everything and keep no more."""
        with self._lock:
            self.closed = True
            thread, self._thread = self._thread, None
        if thread is not None:
            self._unwanted.put(None)
            if thread is not threading.current_thread():
                thread.join()
