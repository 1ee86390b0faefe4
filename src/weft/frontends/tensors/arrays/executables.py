"""Executables: values that are computed on request: at once, later, or several at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import copy_context
from functools import partial
from typing import Any, Final, Self, TypeVar

from weft.frontends.tensors.arrays import runners
from weft.frontends.tensors.arrays.options import options
from weft.frontends.tensors.arrays.registry import public
from weft.frontends.tensors.nodes import Computable
from weft.model.errors import CapacityError, RunCancelledError, UsageError
from weft.model.wording import size_text
from weft.store.accounting import memory_bytes
from weft.worker.futures import TellingFuture

FETCHED_FREELY: Final = 1 << 30
"""The bytes of values that are fetched without a look at the memory of the machine."""

here = threading.local()
"""The slot of the current thread: `waits` gives it back during a wait."""


@contextmanager
def waiting() -> Iterator[None]:
    """Release the slot of this thread while it waits for another computation."""
    waits = getattr(here, "waits", None)
    if waits is None:
        yield
    else:
        with waits:
            yield


class Watch:
    """Follows the consecutive runs of a computation, and stops them.

    With `show` their progress appears on a terminal if they take long.
    """

    def __init__(self, show: bool = False) -> None:
        self.show = show
        self._lock = threading.Lock()
        self._stop: Callable[[], None] | None = None
        self._share: Callable[[], float] | None = None
        self.stopped = False

    def began(self, stop: Callable[[], None], share: Callable[[], float]) -> None:
        """Register a run that has just begun, with functions that stop it and return its share of finished tasks."""
        with self._lock:
            self._stop, self._share, stopped = stop, share, self.stopped
        if stopped:
            stop()

    def stop(self) -> None:
        """Stop the current run, and start no further one."""
        with self._lock:
            self.stopped, stop = True, self._stop
        if stop is not None:
            stop()

    def share(self) -> float:
        """Return the share of all tasks of the run that have finished."""
        share = self._share
        return 0.0 if share is None else share()


@public()
class Computation(TellingFuture):
    """A computation in the background: a `concurrent.futures.Future` that can be stopped while it runs.

    An exception that nobody has read is a RuntimeWarning when the last reference goes.
    """

    about = "a computation"

    def __init__(self, work: Callable[[Watch], Any], watch: Watch) -> None:
        super().__init__()
        self._watch = watch
        carry_out = partial(copy_context().run, self._carry_out, work)  # `numpy.errstate` is part of the context
        threading.Thread(target=carry_out, name="weft-computation", daemon=True).start()

    def _carry_out(self, work: Callable[[Watch], Any]) -> None:
        try:
            made = work(self._watch)
        except RunCancelledError as error:
            if not self._watch.stopped:
                self.set_exception(error)
            else:
                super().cancel()
                self.set_running_or_notify_cancel()
        except BaseException as error:  # noqa: BLE001 - the caller of `result` gets it
            self.set_exception(error)
        else:
            self.set_result(made)

    def result(self, timeout: float | None = None) -> Any:
        """Wait for the values and return them; raise the error of the computation, or CancelledError."""
        with waiting():
            return super().result(timeout)

    def cancel(self) -> bool:
        """Stop the computation; False if it has ended already. It is `done` when its tasks have stopped."""
        if self.done():
            return self.cancelled()
        self._watch.stop()
        return True

    def running(self) -> bool:
        """Whether it has not ended."""
        return not self.done()

    def progress(self) -> float:
        """Return the finished share of its tasks, from 0 to 1."""
        return 1.0 if self.done() else min(self._watch.share(), 1.0)


class Executable(Computable):
    """A value that is computed on request, and then kept."""

    __slots__ = ()

    def _ready(self) -> bool:
        """Whether it has its value."""
        raise NotImplementedError

    @classmethod
    def _compute(cls, things: Sequence[Any], session: Any, watch: Watch) -> None:
        """Compute executables of this class in one run."""
        raise NotImplementedError

    @classmethod
    def _fetched(cls, things: Sequence[Any], session: Any, watch: Watch) -> list[Any]:
        """Compute executables of this class in one run; return values that only the caller has, where that is possible.

        The executables have values afterwards unless they can be computed again.
        """
        compute(things, session, watch)
        return [one._given() for one in things]

    def _value_of(self) -> Any:
        """Return the computed value."""
        raise NotImplementedError

    def _nbytes(self) -> int:
        """Return the bytes of its value; 0 if they are not known before it is computed."""
        return 0

    def _given(self) -> Any:
        """Return the computed value for the user, who may change it."""
        return self._value_of()

    def kept_chunks(self) -> Any:
        """Return the computed value as the only chunk that a session keeps; None if none keeps it by itself."""
        return None

    def _give_name(self, name: str, session: Any) -> None:
        """Give it a name in a session, by default the current one."""
        raise NotImplementedError

    def execute(
        self, session: Any = None, *, wait: bool = True, name: str | None = None, show_progress: bool | None = None
    ) -> Any:
        """Compute it and return it; with `wait=False` return a `Computation` of it at once.

        `name` makes it known to the session: `named_tensor(name)` returns it. `show_progress` shows the progress on a
        terminal, once the computation takes long; None: as the option of that name.
        """
        return execute(self, session=session, wait=wait, names=[name], show_progress=show_progress)

    def fetch(self, session: Any = None, *, keep: bool = True) -> Any:
        """Return its value, and compute it first if needed.

        With `keep=False` an array that is computed for this call keeps nothing: see `fetch`.
        """
        return fetch(self, session=session, keep=keep)

    def as_parameter(self) -> Any:
        """See `Computable.as_parameter`."""
        return self.fetch()


def _watched() -> bool:
    """Return whether a computation shows its progress by default: not beside others, which would draw over it."""
    return options.show_progress and threading.current_thread() is threading.main_thread()


@public()
def execute(
    *things: Any,
    session: Any = None,
    wait: bool = True,
    names: Sequence[str | None] = (),
    show_progress: bool | None = None,
) -> Any:
    """Compute executables in one run, with shared parts only once; return the only one, or a tuple of all.

    Lists and tuples of executables are computed too, to any depth. With `wait=False` return a `Computation` at once,
    whose result is that. Progress is shown on a terminal: by default if the main thread waits, and the option
    `show_progress` is set; with `show_progress=True` in any case.
    """
    wanted = _listed(things)
    single = leaves(wanted)
    watch = Watch((wait and _watched()) if show_progress is None else show_progress)

    def work(watch: Watch) -> Any:
        compute(single, session, watch)
        for one, name in zip(single, names, strict=False):
            if name is not None:
                one._give_name(name, session)
        return wanted[0] if len(wanted) == 1 else ExecutableTuple(wanted)

    if wait:
        return work(watch)
    session = session or runners.found()  # of this thread, not of the one that waits
    made = Computation(work, watch)
    if session is not None and hasattr(session, "computations"):
        session.computations.add(made)
    return made


@public()
def fetch(*things: Any, session: Any = None, keep: bool = True) -> Any:
    """Return the value of the only executable, or a tuple of the values of all, computed in one run.

    In place of a list or tuple of executables comes one of their values, to any depth.

    With `keep=False` dense arrays that are computed for this call keep no chunks: threads write their chunks into the
    returned array, and the next use of the executable computes it again. Sparse arrays, and what spawn returned, keep
    their values in any case.

    CapacityError: the values are larger than the memory of the machine or the container; nothing is computed then.
    """
    wanted = _listed(things)
    single = leaves(wanted)
    _check_room(single)
    watch = Watch(_watched())
    if keep:
        compute(single, session, watch)
        found = [one._given() for one in single]
    else:
        found = _fetched(single, session, watch)
    left = map(scalar_of, found)
    values = [replaced(one, lambda _: next(left)) for one in wanted]
    return values[0] if len(values) == 1 else tuple(values)


def _fetched(things: Sequence[Any], session: Any, watch: Watch) -> list[Any]:
    """Return the values of executables, in their order; each class decides what it keeps."""
    _check_session(session)
    kinds: dict[type[Any], list[int]] = {}
    for at, one in enumerate(things):
        kinds.setdefault(type(one), []).append(at)
    values: dict[int, Any] = {}
    for kind, some in kinds.items():
        values.update(zip(some, kind._fetched([things[at] for at in some], session, watch), strict=True))
    return [values[at] for at in range(len(things))]


def _check_room(things: Sequence[Any]) -> None:
    """Raise CapacityError if the values of executables, of known sizes, are larger than the memory of this machine."""
    nbytes = sum(one._nbytes() for one in things)
    if nbytes > FETCHED_FREELY and nbytes > (most := memory_bytes()):
        raise CapacityError(
            f"the values to fetch take {size_text(nbytes)}, and the memory here is {size_text(most)}",
            hint="Keep them in the session with x.execute(), fetch a part such as x[:1000], or write them to a file: "
            "weft.tensor.save(path, x), to_zarr(path, x).execute().",
        )


def scalar_of(value: Any) -> Any:
    """Return a computed value, an array without axes as a scalar, as NumPy returns it."""
    return value[()] if getattr(value, "ndim", None) == 0 else value


def compute(things: Iterable[Any], session: Any, watch: Watch) -> None:
    """Compute executables of one class without a value in one run. UsageError: `session` does not compute arrays."""
    _check_session(session)
    kinds: dict[type[Any], list[Any]] = {}
    for one in things:
        if not one._ready():
            kinds.setdefault(type(one), []).append(one)
    for kind, some in kinds.items():
        kind._compute(some, session, watch)


def _check_session(session: Any) -> None:
    if session is not None and not hasattr(session, "compute"):
        raise UsageError(
            f"session is a {type(session).__module__}.{type(session).__qualname__}, which computes no arrays",
            hint="Open one with weft.tensor.Session(workers=, memory=, backend=).",
        )


def _listed(things: Sequence[Any]) -> list[Any]:
    return list(things[0]) if len(things) == 1 and isinstance(things[0], list | tuple) else list(things)


def leaves(things: Iterable[Any]) -> list[Any]:
    """Return the executables in lists and tuples of any depth, in their order. UsageError: one is something else."""
    found: list[Any] = []
    for one in things:
        if isinstance(one, Executable):
            found.append(one)
        elif isinstance(one, list | tuple):
            found += leaves(one)
        else:
            raise UsageError(
                f"{type(one).__name__} cannot be computed", hint="Give arrays of weft.tensor, or what spawn returned."
            )
    return found


def replaced(value: Any, change: Callable[[Any], Any], kind: type[Executable] = Executable) -> Any:
    """Return a value with other things in place of the executables of a class, also in lists, tuples and dicts."""
    if isinstance(value, kind):
        return change(value)
    if isinstance(value, dict):
        return {key: replaced(one, change, kind) for key, one in value.items()}
    if not isinstance(value, list | tuple):
        return value
    parts = [replaced(one, change, kind) for one in value]
    if isinstance(value, ExecutableTuple):
        return value.of_values(parts)
    if isinstance(value, list):
        return parts
    return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)


@public()
class ExecutableTuple(tuple[Any, ...]):
    """Several executables that are computed in one run: a tuple with `execute` and `fetch`.

    One made of a named tuple has its fields, and so has the result of `fetch`.
    """

    _kind: Any

    def __new__(cls, things: Iterable[Any] = ()) -> Self:
        """Make a tuple of executables."""
        made = super().__new__(cls, things)
        made._kind = type(things) if hasattr(things, "_fields") else None
        return made

    def __getattr__(self, name: str) -> Any:
        if name in getattr(self._kind, "_fields", ()):
            return self[self._kind._fields.index(name)]
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")

    def execute(
        self, session: Any = None, *, wait: bool = True, show_progress: bool | None = None
    ) -> Self | Computation:
        """Compute all and return the tuple itself; with `wait=False` return a `Computation` at once."""
        made = execute(list(self), session=session, wait=wait, show_progress=show_progress)
        return self if wait else made

    def fetch(self, session: Any = None, *, keep: bool = True) -> Any:
        """Return the values; missing ones are computed first, in one run. `keep` is that of `fetch`."""
        return self.of_values(fetch([list(self)], session=session, keep=keep))

    def of_values(self, values: Sequence[Any]) -> Any:
        """Return values in place of the executables: a tuple, or a named one like that which this was made of."""
        return self._kind(*values) if self._kind is not None else tuple(values)

    to_object = fetch


Named = TypeVar("Named", bound=type[Any])


def together(kind: Named) -> Named:
    """Give a class of named tuples of arrays `execute` and `fetch`, which compute all of them in one run."""

    def execute_all(self: Any, session: Any = None, *, wait: bool = True) -> Any:
        """Compute all and return the tuple itself; with `wait=False` return a `Computation` at once."""
        made = execute(list(self), session=session, wait=wait)
        return self if wait else made

    def fetch_all(self: Any, session: Any = None, *, keep: bool = True) -> Any:
        """Return the values of all, computed in one run. `keep` is that of `fetch`."""
        return type(self)(*fetch(list(self), session=session, keep=keep))

    kind.execute, kind.fetch = execute_all, fetch_all
    return kind
