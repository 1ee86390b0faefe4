"""Run a lease: fetch inputs, call, collect outputs. The same code under every backend.

Two paths. Plain functions take the fast one: a loop with a slot for the position and one for the stop flag, with no
allocation per task but its value; for functions of an item alone, it is a loop over a list of items, which is cut.
Programs of style TASK, streams and live inputs take the general one, with a context for each task. A cone runs depth
first, and its inner values never leave the lease.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn, cast

from weft.graph.task import pass_gate
from weft.model.chunks import ChunkRef, Tier
from weft.model.errors import (
    CapacityError,
    NotFoundError,
    ProgramError,
    RunCancelledError,
    TaskError,
    WeftError,
)
from weft.model.failures import Failure, kind_of, kind_of_input
from weft.model.program import Style
from weft.model.raised import origin_of
from weft.model.wording import type_of
from weft.store.api import ABSENT, sizeof
from weft.store.row_index import ALL, DENSE, LISTED
from weft.store.rows import EdgeValues, as_row, one_of, positions
from weft.store.tiers import fetch_parts
from weft.worker.code import PIECES, SINGLE, SLICE, InputCode, TaskCode
from weft.worker.context import WorkerTaskContext, uneven
from weft.worker.lease import LeaseResult, UnitCounts, WorkerLease

if TYPE_CHECKING:
    from weft.graph.routing import Piece, Router
    from weft.store.api import ChunkReader


class InputLostError(Exception):
    """An input is missing, or (`kind` is READ) exists and cannot be read."""

    def __init__(self, vertex: str, index: int, why: str, kind: Failure = Failure.INPUT) -> None:
        super().__init__(f"{vertex}[{index}]: {why}")
        self.where = (vertex, index)
        self.kind = kind

    @classmethod
    def of(cls, vertex: str, index: int, error: NotFoundError) -> InputLostError:
        """Return the store's error as an error of the reader's input."""
        return cls(vertex, index, str(error), kind_of_input(error))


PATIENCE = 25
"""A chain that takes this many times the wanted length of a lease stops after the current task."""


def run(
    lease: WorkerLease, store: ChunkReader, target_s: float = 0.002, values: list[Any] | None = None
) -> LeaseResult:
    """Run a lease to its end, its first failure or its stop. Raises nothing.

    Values are appended to `values`, an empty list, if the caller watches the progress; then the caller counts them. A
    forked child process that returns from the task ends here: it would report on the lease of its parent.
    """
    started = perf_counter()
    process = os.getpid()
    counts = values is None
    if values is None:
        values = []
    where = [lease.root.vertex, lease.lo]
    reached = -1
    try:
        if lease.logs:
            from weft.worker.task_logs import recorded

            with recorded(lease):
                reached = _run_bodies(lease, store, values, where, started + PATIENCE * target_s)
        else:
            reached = _run_bodies(lease, store, values, where, started + PATIENCE * target_s)
    except BaseException as error:  # noqa: BLE001
        if os.getpid() != process:
            _end_fork(where, error)
        outcome = _failed(lease, values, where, error, perf_counter() - started)
        if counts:
            outcome.counts = measured(lease.root, values)
        return outcome
    if os.getpid() != process:
        _end_fork(where, None)
    outcome = LeaseResult(lease.lo + len(values) if reached < 0 else lease.lo + 1, values, perf_counter() - started)
    outcome.reached = reached
    if counts and reached < 0:
        outcome.counts = measured(lease.root, values)
    if reached < 0 and outcome.hi < lease.hi:
        outcome.kind = Failure.STOPPED.value
        outcome.vertex, outcome.index, outcome.message = str(where[0]), outcome.hi, "cancelled"
    return outcome


def _run_bodies(lease: WorkerLease, store: ChunkReader, values: list[Any], where: list[Any], until: float) -> int:
    """Run the tasks of a lease; return the member of a linear cone that was reached by `until`, -1 without one."""
    if lease.gate is not None and (lease.cone is not None or not lease.root.prepares):
        pass_gate(lease.gate)
    if lease.cone is not None and lease.cone.linear:
        return _run_chain(lease, store, values, where, until)
    if lease.cone is not None:
        _run_tree(lease, store, values, where)
    elif lease.root.simple:
        if _follows_items(lease):
            _run_items(lease, values, where)
        else:
            _run_plain(lease, store, values, where)
    else:
        _run_tasks(lease, store, values, where)
    return -1


def _end_fork(where: list[Any], error: BaseException | None) -> NoReturn:
    """End a forked child process of a task; after `sys.exit` without a message."""
    status = 1
    try:
        if isinstance(error, SystemExit) and (error.code is None or isinstance(error.code, int)):
            status = error.code or 0
        else:
            task = f"{where[0]}[{where[1]}]"
            sys.stderr.write(f"{task} forked, and the child came back from the task: it ends here. Use os._exit().\n")
            if error is not None:
                import traceback

                traceback.print_exception(error)
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(status & 0xFF)


def measured(code: TaskCode, values: Sequence[Any]) -> list[UnitCounts]:
    """Measure each value for managers: the bytes of each partition of an edge, and its rows (those of its pieces if
    these are tables, else its length). Return nothing if nobody asks for it.
    """
    if not code.measured and not code.counted:
        return []
    return [UnitCounts(_rows_of(value) if code.counted else 0, _sizes_of(code, value)) for value in values]


def _sizes_of(code: TaskCode, value: Any) -> tuple[tuple[str, list[int] | dict[int, int]], ...]:
    if type(value) is not EdgeValues:
        return tuple((edge, [sizeof(piece) for piece in value]) for edge in code.measured)
    sparse = [(edge, {at: sum(map(sizeof, pieces)) for at, pieces in value.of(edge).items()}) for edge in code.measured]
    return tuple(entry for entry in sparse if entry[1])


def _rows_of(value: Any) -> int:
    if type(value) is EdgeValues:
        pieces = [piece for values in value.by_edge.get(ALL, {}).values() for piece in values]
        if pieces and all(hasattr(piece, "num_rows") for piece in pieces):
            return sum(piece.num_rows for piece in pieces)
        return value.listed or len(value.by_edge.get(ALL, (None,)))
    rows: int | None = getattr(value, "num_rows", None)
    if rows is not None:
        return rows
    return len(value) if hasattr(value, "__len__") else 1


class ErrorText(NamedTuple):
    """An exception of a task as data: `kind` is a value of `Failure`, the others are fields of `TaskError`."""

    kind: str
    message: str
    traceback: str
    raised: str
    status: int | None


def described(error: BaseException, own: Collection[str] = (__file__,)) -> ErrorText:
    """Describe an exception of user code; the traceback begins after the frames of the files `own`."""
    message, trace, raised, status = _type_and_message(error), "", "", None
    if isinstance(error, WeftError):
        message = str(error)
        if isinstance(error, TaskError):
            trace, raised, status = error.traceback_text, error.raised, error.status
    elif not isinstance(error, MemoryError):
        known = next(one for one in type(error).__mro__ if "<locals>" not in one.__qualname__)  # others have no name
        raised = f"{known.__module__}:{known.__qualname__}"
        if isinstance(error, SystemExit) and isinstance(error.code, int):
            status = error.code & 0xFF
    if not trace and not isinstance(error, (TaskError, CapacityError, ProgramError)):
        trace = _user_traceback(error, own)
    return ErrorText(kind_of(error).value, message, trace, raised, status)


def _failed(
    lease: WorkerLease, values: list[Any], where: list[Any], error: BaseException, seconds: float
) -> LeaseResult:
    done = len(values)
    outcome = LeaseResult(lease.lo + done, values, seconds)
    outcome.vertex, outcome.index = str(where[0]), where[1]
    if isinstance(error, InputLostError):
        outcome.kind, outcome.message, outcome.lost = error.kind.value, _type_and_message(error), error.where
        outcome.traceback = _user_traceback(error, (__file__,))
        return outcome
    text = described(error)
    outcome.kind, outcome.message, outcome.traceback, outcome.raised, outcome.status = text
    if outcome.raised:
        with suppress(Exception):  # the code of the user's class
            outcome.origin = origin_of(error)
    if lease.stop and isinstance(error, (RunCancelledError, KeyboardInterrupt)):
        outcome.kind, outcome.message = Failure.STOPPED.value, _type_and_message(error)
    return outcome


def _type_and_message(error: BaseException) -> str:
    """Return type and message of a user's exception, whose own code may fail here."""
    name = type(error).__name__
    try:
        text = str(error)
    except Exception as why:  # noqa: BLE001
        return f"{name} (its message cannot be had: {type(why).__name__} in its __str__)"
    return f"{name}: {text}" if text else name


def _user_traceback(error: BaseException, own: Collection[str]) -> str:
    """Format a traceback from the user's first frame on."""
    import traceback  # most tasks do not fail

    tb = error.__traceback__
    while tb is not None and tb.tb_next is not None and tb.tb_frame.f_code.co_filename in own:
        tb = tb.tb_next
    try:
        return "".join(traceback.format_exception(type(error), error, tb, limit=-50))
    except Exception:  # noqa: BLE001
        return f"{type(error).__name__} (it cannot be printed)\n"


# ------------------------------------------------------------------------------------------------------- reading

_SPECIAL = frozenset({ChunkRef, type(ABSENT), EdgeValues})
_LISTS = frozenset({list, tuple})


def cell(inp: InputCode, store: ChunkReader, index: int, *, whole: bool = False) -> Any:
    """Return one value of a source task; with `whole` including its writes to other edges."""
    value = inp.column.values[index]
    if type(value) is ChunkRef:
        try:
            value = store.load(inp.column, index, last=inp.last)
        except NotFoundError as error:
            raise InputLostError.of(inp.source, index, error) from error
    if value is ABSENT:
        if inp.lenient:
            return None
        raise InputLostError(inp.source, index, "its output is missing")
    if type(value) is EdgeValues and not whole:
        try:
            return value.single(inp.edge)
        except NotFoundError as error:
            raise InputLostError.of(inp.source, index, error) from error
    return value


def batches(inp: InputCode, store: ChunkReader, index: int) -> list[Any]:
    """Return the writes of a source task to an edge without partitions: its value, or its single writes."""
    value = cell(inp, store, index, whole=True)
    if type(value) is not EdgeValues:
        return [value]
    return [value.returned()] if ALL in value.by_edge else value.part(inp.edge, 0)


def read(inp: InputCode, store: ChunkReader, index: int) -> Any:
    """Return the input of task `index` through one edge: a value, or the list of values in the order of the router."""
    router = inp.router
    if inp.mode == SINGLE:
        return cell(inp, store, index if inp.identity else router.inputs(index)[0][0])
    found: list[Any] = []
    column = inp.column
    values = column.values
    for lo, hi, part_lo, part_hi in router.inputs(index):
        if inp.mode == SLICE:
            part = values[lo:hi]
            if _SPECIAL.isdisjoint(map(type, part)):
                found += part
            else:
                for i in range(lo, hi):
                    if not (inp.lenient and values[i] is ABSENT):
                        found += batches(inp, store, i)
        else:
            _read_pieces(inp, store, found, (lo, hi, part_lo, part_hi))
    return found


_CUT_FROM: Final = 8
"""The fewest tasks for which rows are cut into columns of pieces: for fewer, single pieces take less time."""


def _reader(inp: InputCode, store: ChunkReader, lo: int, hi: int) -> Callable[[int], Any]:
    """Return a function that reads an input for tasks `lo:hi` of a lease, one after another.

    The rows of a shuffle are the same for every task of the lease, so they are looked up once and pinned. Their pieces
    are taken column by column, in half of the time of single pieces, from one list: a list for each row would call the
    garbage collector, which visits all pieces. Rows that were written whole are decoded once.
    """
    router = inp.router
    rows_index = inp.column.index if inp.mode == PIECES else None
    sparse = rows_index is not None and rows_index.kind(0, router.n_src) != DENSE
    if inp.mode == PIECES and router.wide and router.partitions == router.n_dst and not sparse:
        rows = inp.column.values[: router.n_src]
        kinds = set(map(type, rows))
        if ChunkRef in kinds:
            whole = [type(row) is ChunkRef and not row.parts for row in rows]
            rows = [cell(inp, store, i) if whole[i] else row for i, row in enumerate(rows)]
            kinds = set(map(type, rows))
        if rows and kinds <= _LISTS and set(map(len, rows)) <= {router.partitions}:
            width = hi - lo
            if width < _CUT_FROM:
                return lambda index: [row[index] for row in rows]
            pieces: list[Any] = []
            for row in rows:
                pieces += row[lo:hi]
            return lambda index: pieces[index - lo :: width]
    return lambda index: read(inp, store, index)


def _read_pieces(inp: InputCode, store: ChunkReader, found: list[Any], piece: tuple[int, int, int, int]) -> None:
    lo, hi, part_lo, part_hi = piece
    column = inp.column
    values = column.values
    alone = hi - lo == 1 and values[lo] is not ABSENT
    kind = DENSE if column.index is None or alone else column.index.kind(lo, hi)
    if kind != DENSE:
        _read_sparse(inp, store, found, piece, listed=kind == LISTED)
        return
    rows = values[lo:hi]
    if (
        part_hi - part_lo == 1
        and _LISTS.issuperset(map(type, rows))
        and set(map(len, rows)) <= {inp.router.partitions}  # else decided below
    ):
        found += [row[part_lo] for row in rows]
        return
    fetch_parts([(row, part_lo, part_hi) for row in rows if type(row) is ChunkRef])
    for i in range(lo, hi):
        found += _pieces_of(inp, store, i, part_lo, part_hi)


def _read_sparse(
    inp: InputCode, store: ChunkReader, found: list[Any], piece: tuple[int, int, int, int], *, listed: bool
) -> None:
    """Read a rectangle of sparse rows: only those that have something for it are visited."""
    lo, hi, part_lo, part_hi = piece
    width = part_hi - part_lo
    index = inp.column.index
    assert index is not None
    _fetch_sparse(inp, index.pieces(inp.edge, piece))
    if listed:
        pieces: list[Any] = [None] * ((hi - lo) * width)
        for row, part in index.pieces(inp.edge, piece):
            (pieces[(row - lo) * width + part - part_lo],) = _values(inp, store, row, part, part + 1)
        found += pieces
        return
    for row, part in index.pieces(inp.edge, piece):
        found += _values(inp, store, row, part, part + 1)


def _fetch_sparse(inp: InputCode, pieces: Iterable[tuple[int, int]]) -> None:
    wanted = []
    for row, part in pieces:
        ref = inp.column.values[row]
        if type(ref) is ChunkRef and ref.tier is Tier.PEER:
            at = positions(ref.pieces, inp.edge, part, part + 1)[1]
            wanted.append((ref, at.start, at.stop))
    fetch_parts(wanted)


def _values(inp: InputCode, store: ChunkReader, index: int, lo: int, hi: int) -> list[Any]:
    """Return the values of partitions `lo:hi` of a sparse row."""
    row = inp.column.values[index]
    try:
        if type(row) is EdgeValues:
            return row.part(inp.edge, lo, hi)
        return store.load_values(inp.column, index, inp.edge, lo, hi, last=inp.last)
    except NotFoundError as error:
        raise InputLostError.of(inp.source, index, error) from error


def _pieces_of(inp: InputCode, store: ChunkReader, index: int, lo: int, hi: int) -> list[Any]:
    """Return the pieces `lo:hi` of a row of any kind."""
    column, partitions = inp.column, inp.router.partitions
    row = column.values[index]
    if row is ABSENT:
        if inp.lenient:
            return []
        raise InputLostError(inp.source, index, "its output is missing")
    if type(row) is ChunkRef:
        if row.pieces:
            return _values(inp, store, index, lo, hi)
        try:
            if row.parts == partitions:
                return [store.load_part(column, index, part, last=inp.last) for part in range(lo, hi)]
            if row.parts:
                raise _uneven(inp, f"a list of {row.parts}", index)
            row = store.load(column, index, last=inp.last)  # written edge by edge, so that it was encoded as one value
        except NotFoundError as error:
            raise InputLostError.of(inp.source, index, error) from error
    if isinstance(row, Mapping):
        row = as_row(row, partitions, f"{inp.source}[{index}]")
    if type(row) is EdgeValues:
        return row.part(inp.edge, lo, hi)
    return [_piece(inp, row, index, part) for part in range(lo, hi)]


class _OneRouter:
    """The part of a router that reads one source task."""

    group = 0

    def __init__(self, router: Router, source: int) -> None:
        self._router = router
        self._source = source
        self.single = router.single
        self.partitions = router.partitions

    def inputs(self, dst: int) -> tuple[Piece, ...]:
        at = self._source
        return tuple((at, at + 1, p, q) for lo, hi, p, q in self._router.inputs(dst) if lo <= at < hi)


def read_one(inp: InputCode, store: ChunkReader, index: int, source: int) -> list[Any]:
    """Return the input of task `index` from one ended source task."""
    router = cast("Router", _OneRouter(inp.router, source))
    one = InputCode(inp.edge, inp.source, router, lambda: inp.column, last=inp.last)
    return batches(one, store, source) if inp.router.single else cast("list[Any]", read(one, store, index))


def read_block(inp: InputCode, source: int, load: Callable[[], list[Any]]) -> list[Any]:
    """Return the values of a block that a source task streamed. InputLostError: it is gone, perhaps with its node."""
    try:
        return load()
    except NotFoundError as error:
        raise InputLostError.of(inp.source, source, error) from error


def _piece(inp: InputCode, row: Any, index: int, part: int) -> Any:
    try:
        n = len(row)
        if n == inp.router.partitions:
            return row[part]
    except (TypeError, IndexError, KeyError):
        raise _uneven(inp, type_of(row), index) from None
    raise _uneven(inp, f"{type_of(row)} of {n}", index)


def _uneven(inp: InputCode, what: str, index: int) -> TaskError:
    return uneven(f"{inp.source}[{index}]", what, inp.router.partitions)


# ------------------------------------------------------------------------------------------------------ fast path


def _body(code: TaskCode) -> Callable[..., Any]:
    """Return the function of a task, which returns a row if the output is read in pieces."""
    fn = code.fn
    if not code.parts or code.expands:
        return fn
    parts, vertex = code.width, code.vertex
    return lambda *args, **params: as_row(fn(*args, **params), parts, vertex)


_SLICED = frozenset({list, tuple, range})


def _follows_items(lease: WorkerLease) -> bool:
    """Return whether the tasks of a lease in this process read their items alone."""
    code = lease.root
    return type(code.items) in _SLICED and not code.inputs and not code.params and isinstance(lease, WorkerLease)


def _run_items(lease: WorkerLease, values: list[Any], where: list[Any]) -> None:
    """Run tasks that read their items alone, by a loop that does nothing but call."""
    fn = _body(lease.root)
    try:
        for item in lease.follow(lease.root.items, values):
            values.append(fn(item))  # noqa: PERF401 - a StopIteration of the function must get out
    finally:
        where[1] = lease.at


def _run_plain(lease: WorkerLease, store: ChunkReader, values: list[Any], where: list[Any]) -> None:
    code = lease.root
    fn, params, items, inputs = _body(code), code.params, code.items, code.inputs
    append = values.append
    index = lease.lo
    try:
        if not inputs and not params:
            if items is None:
                for index in range(lease.lo, lease.hi):
                    lease.pos = index
                    if index >= lease.hi or lease.stop:
                        return
                    append(fn())
            else:
                for index in range(lease.lo, lease.hi):
                    lease.pos = index
                    if index >= lease.hi or lease.stop:
                        return
                    append(fn(items[index]))
            return
        readers = [_reader(inp, store, lease.lo, lease.hi) for inp in inputs]
        for index in range(lease.lo, lease.hi):
            lease.pos = index
            if index >= lease.hi or lease.stop:
                return
            args = [reader(index) for reader in readers]
            if items is not None:
                args.insert(0, items[index])
            append(fn(*args, **params))
            del args  # before those of the next task are read
    finally:
        where[1] = index


# ---------------------------------------------------------------------------------------------------------- cones

Fetch = Callable[[int], Any]
"""Returns the value of a task, by its index."""


class _StoppedError(BaseException):
    """The lease was stopped between two tasks of a tree; not an error of the task."""


def _run_chain(lease: WorkerLease, store: ChunkReader, values: list[Any], where: list[Any], patience: float) -> int:
    """Run a linear cone. Return the member that it stopped after, or -1."""
    codes = lease.codes
    one = lease.hi - lease.lo == 1 and len(codes) > 1
    bodies = [(_body(code), code.only != 0, code) for code in codes]
    bodies[0] = (bodies[0][0], False, codes[0])  # the first member reads the store
    last = len(codes) - 1
    member = 0
    unit = lease.lo
    value: Any = None
    try:
        for unit in range(lease.lo, lease.hi):
            lease.pos = unit
            if unit >= lease.hi:
                return -1
            for member, (fn, only, code) in enumerate(bodies):
                if lease.stop:
                    return -1
                value = (
                    fn(value) if only else _call(code, store, unit, {codes[member - 1].vertex: value} if member else {})
                )
                if one and member < last and perf_counter() > patience:
                    values.append(value)
                    return member
            values.append(value)
    finally:
        where[0] = codes[member].vertex
        where[1] = unit
    return -1


def _run_tree(lease: WorkerLease, store: ChunkReader, values: list[Any], where: list[Any]) -> None:
    """Run a cone depth first, so that few values are held at a time."""
    cone = lease.cone
    assert cone is not None
    fetches: dict[str, Fetch] = {}
    for code, sources in zip(lease.codes, cone.inner, strict=True):
        names = [cone.members[source] for source, _ in sources]
        fetches[code.vertex] = _fetch(lease, code, store, {name: fetches[name] for name in names}, where)
    root = fetches[lease.root.vertex]
    try:
        for unit in range(lease.lo, lease.hi):
            lease.pos = unit
            if unit >= lease.hi:
                return
            values.append(root(unit))
    except _StoppedError:
        return


def _fetch(
    lease: WorkerLease, code: TaskCode, store: ChunkReader, inner: Mapping[str, Fetch], where: list[Any]
) -> Fetch:
    """Return a function that computes the value of a task of a tree after its upstream tasks.

    `where` gets the task that fails. The frequent kinds of task have functions of their own: a common function takes
    twice the time of a small task.
    """
    fn, items, group = _body(code), code.items, code.only
    source = next(iter(inner.values()), None)
    if source is not None and group > 0:

        def fetch(index: int) -> Any:
            first = index * group
            values = [source(first), source(first + 1)] if group == 2 else [*map(source, range(first, first + group))]
            if lease.stop:
                raise _StoppedError
            try:
                return fn(values)
            except BaseException:
                where[:] = code.vertex, index
                raise

    elif source is not None and group:

        def fetch(index: int) -> Any:
            value = source(index)
            if lease.stop:
                raise _StoppedError
            try:
                return fn(value)
            except BaseException:
                where[:] = code.vertex, index
                raise

    elif source is None and items is not None and not code.params and not code.inputs:

        def fetch(index: int) -> Any:
            if lease.stop:
                raise _StoppedError
            try:
                return fn(items[index])
            except BaseException:
                where[:] = code.vertex, index
                raise

    else:
        groups = {inp.source: 0 if inp.router.single else inp.router.group for inp in code.inputs}

        def fetch(index: int) -> Any:
            given = {name: _of_group(source, groups[name], index) for name, source in inner.items()}
            if lease.stop:
                raise _StoppedError
            try:
                return _call(code, store, index, given)
            except BaseException:
                where[:] = code.vertex, index
                raise

    return fetch


def _of_group(source: Fetch, group: int, index: int) -> Any:
    """Return the value of task `index` of a source, or with `group` the list of values of its group of tasks."""
    return [source(i) for i in range(index * group, (index + 1) * group)] if group else source(index)


def _call(code: TaskCode, store: ChunkReader, index: int, given: Mapping[str, Any]) -> Any:
    """Call the function of a task. Inputs are `given`, by source, or read."""
    args = [] if code.items is None else [code.items[index]]
    args += [given[inp.source] if inp.source in given else read(inp, store, index) for inp in code.inputs]
    return _body(code)(*args, **code.params)


# --------------------------------------------------------------------------------------------------- general path


def _run_tasks(lease: WorkerLease, store: ChunkReader, values: list[Any], where: list[Any]) -> None:
    code = lease.root
    fn = code.fn
    for index in range(lease.lo, lease.hi):
        lease.pos = index
        where[1] = index
        if index >= lease.hi or lease.stop:
            return
        context = WorkerTaskContext(lease, code, index)
        inputs = {inp.edge: _input(inp, store, index, context) for inp in code.inputs}
        if code.style is Style.TASK:
            result = fn(context, inputs)
        else:
            args = [
                one_of(inputs[inp.edge].all()) if inp.mode == SINGLE else inputs[inp.edge].all() for inp in code.inputs
            ]
            if code.items is not None:
                args.insert(0, code.items[index])
            result = fn(*args, **code.params)
        values.append(context.close(result))


class StoredInput:
    """An input with all values present."""

    def __init__(self, values: list[Any]) -> None:
        self._values = values

    def __iter__(self) -> Any:
        return iter(self._values)

    def all(self) -> list[Any]:
        """Return all values in the order of the source tasks."""
        return self._values


class LiveInput:
    """An input that is read while its sources run."""

    def __init__(self, values: Callable[[], Iterator[Any]]) -> None:
        self._values = values

    def __iter__(self) -> Iterator[Any]:
        return self._values()

    def all(self) -> list[Any]:
        """Wait for the sources to end and return all values."""
        return list(self._values())


def _input(inp: InputCode, store: ChunkReader, index: int, context: WorkerTaskContext) -> Any:
    if inp.live:
        return context.host.live_input(inp, index, context)
    if inp.mode == SINGLE:
        return StoredInput(batches(inp, store, index if inp.identity else inp.router.inputs(index)[0][0]))
    return StoredInput(read(inp, store, index))
