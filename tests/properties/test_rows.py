"""Readers of a shuffle get the same pieces whatever the forms of its rows, and wherever these lie."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from weft.graph.rectangles import Rectangles
from weft.graph.routers import Router, ScatterGather
from weft.model.program import Program
from weft.store import codec
from weft.store.api import ABSENT
from weft.store.blocks import BlockManager
from weft.store.row_index import DENSE
from weft.store.rows import EdgeValues, as_row, record_rows
from weft.worker.code import InputCode, TaskCode
from weft.worker.lease import WorkerLease
from weft.worker.remote_store import RemoteStore
from weft.worker.run import run

PARTS = 70
"""Enough for lists to be kept as sparse rows."""
PIECE = st.none() | st.integers() | st.binary(max_size=300)
MAPPINGS = st.dictionaries(st.integers(0, PARTS - 1), PIECE, max_size=6)
FEW = MAPPINGS.map(lambda found: [found.get(part) for part in range(PARTS)])
DENSE_LISTS = st.integers().map(lambda first: list(range(first, first + PARTS)))
WRITES = st.dictionaries(st.integers(0, PARTS - 1), st.lists(PIECE, min_size=1, max_size=2), max_size=5).map(
    lambda found: EdgeValues({"source->work": found, "source->other": {0: ["theirs"]}})
)
FORMS = [MAPPINGS, FEW, DENSE_LISTS, WRITES]


@st.composite
def shuffles(draw: st.DrawFn) -> tuple[list[Any], Router]:
    """Draw rows of one form or of several, and who reads what of them."""
    n = draw(st.integers(1, 6))
    form = draw(st.sampled_from([*FORMS, MAPPINGS | FEW | DENSE_LISTS | WRITES]))
    rows = draw(st.lists(form, min_size=n, max_size=n))
    if draw(st.booleans()):
        return rows, ScatterGather(n, PARTS)
    spans = st.tuples(st.integers(0, n), st.integers(0, n), st.integers(0, PARTS), st.integers(0, PARTS))
    piece = spans.map(lambda at: (min(at[:2]), max(at[:2]), min(at[2:]), max(at[2:])))
    return rows, Rectangles(n, PARTS, draw(st.lists(st.lists(piece, max_size=3), min_size=1, max_size=4)))


def pieces_of(row: Any, part: int) -> list[Any]:
    if isinstance(row, EdgeValues):
        return list(row.by_edge["source->work"].get(part, []))
    if isinstance(row, dict):
        return [row[part]] if part in row else []
    return [row[part]]


def read_by(router: Router, column: Any, store: Any, lo: int = 0, hi: int | None = None) -> list[list[Any]]:
    inp = InputCode("source->work", "source", router, lambda: column)
    code = TaskCode("work", router.n_dst, Program(list), ((inp,), {}, frozenset()))
    outcome = run(WorkerLease(1, code, lo, router.n_dst if hi is None else hi), store)
    assert outcome.kind == "", outcome.message
    return outcome.values


@given(shuffles(), st.data())
def test_readers_get_the_pieces_of_every_form_of_row(shuffle: tuple[list[Any], Router], data: st.DataObject):
    rows, router = shuffle
    wanted = [
        [
            piece
            for row_lo, row_hi, lo, hi in router.inputs(dst)
            for row in rows[row_lo:row_hi]
            for part in range(lo, hi)
            for piece in pieces_of(row, part)
        ]
        for dst in range(router.n_dst)
    ]
    cells = [as_row(row, PARTS, "source") for row in rows]
    cells = [codec.encode_row(cell).inline() if data.draw(st.booleans()) else cell for cell in cells]
    with BlockManager(1 << 20) as store:
        column = store.column(("job", "source"), len(rows), PARTS)
        for at in data.draw(st.permutations(range(len(rows)))):
            store.put_range(column, at, [cells[at]])
        assert read_by(router, column, store) == wanted

        index = column.index
        assert index is not None
        kind = index.kind(0, len(rows))
        if kind == DENSE:
            return
        for dst in range(router.n_dst):  # a worker process that has only the rows with pieces for this task
            worker = RemoteStore()
            there = worker.column(("", "1"), len(rows))
            worker.index(there, kind)
            for at in sorted({row for piece in router.inputs(dst) for row, _ in index.pieces("source->work", piece)}):
                worker.put_range(there, at, [cells[at]])
            assert read_by(router, there, worker, dst, dst + 1) == [wanted[dst]]


@given(shuffles(), st.data())
def test_a_lost_row_is_missed_and_a_new_one_replaces_it(shuffle: tuple[list[Any], Router], data: st.DataObject):
    rows, _ = shuffle
    router = ScatterGather(len(rows), PARTS)
    with BlockManager(1 << 20) as store:
        column = store.column(("job", "source"), len(rows), PARTS)
        store.put_range(column, 0, [as_row(row, PARTS, "source") for row in rows])
        lost = data.draw(st.integers(0, len(rows) - 1))
        store.free_range(column, lost, lost + 1)
        inp = InputCode("source->work", "source", router, lambda: column)
        code = TaskCode("work", PARTS, Program(list), ((inp,), {}, frozenset()))
        outcome = run(WorkerLease(1, code, 0, 1), store)
        assert (outcome.kind, outcome.lost) == ("input", ("source", lost))
        rows[lost] = data.draw(st.one_of(FORMS))
        store.put_range(column, lost, [as_row(rows[lost], PARTS, "source")])
        wanted = [[piece for row in rows for piece in pieces_of(row, part)] for part in range(PARTS)]
        assert read_by(router, column, store) == wanted


def test_a_cell_that_is_absent_has_no_kind():
    with BlockManager(1 << 20) as store:
        column = store.column(("job", "source"), 2, PARTS)
        assert column.index is not None
        record_rows(column.index, 0, [ABSENT, as_row({1: 2}, PARTS, "source")])
        assert column.index.kind(0, 2) == DENSE
