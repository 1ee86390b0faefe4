"""Running a lease over a store that is a column in memory: values, failures, stops, cones, and what is counted."""

import gc
import itertools

import pytest

from weft.graph.lease import Cone
from weft.graph.routers import Broadcast, Group, OneToOne, ScatterGather
from weft.model.errors import DiskFullError, ProgramError, RunCancelledError
from weft.model.program import Program, Style
from weft.store.api import ABSENT, Column, sizeof
from weft.store.rows import EdgeValues
from weft.worker.code import InputCode, TaskCode
from weft.worker.lease import WorkerLease
from weft.worker.remote_store import RemoteStore
from weft.worker.run import run


def column(values, parts=0) -> Column:
    found = Column(("job", "source"), len(values), parts)
    found.values[:] = values
    return found


def reading(router, values, **options) -> InputCode:
    return InputCode("source->work", "source", router, lambda: column(values, router.partitions), **options)


def code(fn, *inputs, n=10, vertex="work", outputs=None, only=0, **fields) -> TaskCode:
    measured = fields.pop("measured", ())
    counted = fields.pop("counted", False)
    parts = fields.pop("parts", 0)
    program = Program(fn, **fields)
    return TaskCode(
        vertex,
        n,
        program,
        (inputs, outputs or {}, frozenset()),
        only=only,
        parts=parts,
        measured=measured,
        counted=counted,
        items=program.items,
    )


def ran(body, lo=0, hi=3, **options):
    return run(WorkerLease(1, body, lo, hi, **options), RemoteStore())


# ------------------------------------------------------------------------------------------------------------- values


def test_a_function_without_inputs_is_called_for_each_unit():
    outcome = ran(code(lambda: 7), 2, 5)
    assert (outcome.hi, outcome.values, outcome.kind) == (5, [7, 7, 7], "")


def test_each_task_gets_its_item_and_the_parameters():
    outcome = ran(code(lambda item, plus: item + plus, items=[1, 2, 3], params={"plus": 10}))
    assert outcome.values == [11, 12, 13]


def test_an_input_one_to_one_is_the_value_of_the_same_task():
    assert ran(code(lambda x: x * x, reading(OneToOne(3, 3), [2, 3, 4]))).values == [4, 9, 16]


def test_a_gathered_input_is_the_list_of_all_values():
    assert ran(code(sum, reading(Broadcast(4, 1), [1, 2, 3, 4])), 0, 1).values == [10]


def test_a_group_is_the_list_of_neighbours():
    assert ran(code(sum, reading(Group(5, 3, 2), [1, 2, 3, 4, 5]))).values == [3, 7, 5]


def test_a_shuffle_reads_one_piece_of_each_source():
    rows = [["a", "b", "c"], ["d", "e", "f"]]
    assert ran(code("".join, reading(ScatterGather(2, 3), rows))).values == ["ad", "be", "cf"]


@pytest.mark.parametrize("kind", [list, tuple])
@pytest.mark.parametrize("tasks", [1, 7, 8, 30])
def test_a_lease_reads_its_pieces_however_many_tasks_it_has(tasks, kind):
    rows = [kind((row, part) for part in range(40)) for row in range(5)]
    body = code(list, reading(ScatterGather(5, 40), rows), n=40)
    assert ran(body, 6, 6 + tasks).values == [[(row, part) for row in range(5)] for part in range(6, 6 + tasks)]


@pytest.mark.usefixtures("few_objects")
def test_pieces_are_read_without_an_object_for_each_row():
    """A list for each row calls the garbage collector once in 700 rows, and it visits all of their pieces."""
    tracked: list[int] = []

    def count(pieces):
        tracked.append(len(gc.get_objects()))
        return len(pieces)

    rows = [list(range(20)) for _ in range(900)]
    body = code(count, reading(ScatterGather(900, 20), rows), n=20)
    gc.collect()
    before = len(gc.get_objects())
    assert ran(body, 0, 20).values == [900] * 20
    assert max(tracked) - before < 500


def test_inputs_come_in_the_order_of_the_edges():
    body = code(lambda x, y: (x, y), reading(OneToOne(1, 1), ["x"]), reading(OneToOne(1, 1), ["y"]))
    assert ran(body, 0, 1).values == [("x", "y")]


def test_values_written_edge_by_edge_are_read_by_edge():
    values = [EdgeValues({"source->work": {0: ["mine"]}, "source->other": {0: ["theirs"]}})]
    assert ran(code(lambda x: x, reading(OneToOne(1, 1), values)), 0, 1).values == ["mine"]


def test_a_task_writes_to_its_edges_by_partition():
    def body(ctx, inputs):
        for part in range(2):
            ctx.out("work->next").write(part, f"piece {part}")

    outcome = ran(code(body, outputs={"work->next": 2}, style=Style.TASK), 0, 1)
    assert [outcome.values[0].part("work->next", part) for part in range(2)] == [["piece 0"], ["piece 1"]]


# ----------------------------------------------------------------------------------------------------------- failures


def test_a_failure_ends_the_lease_and_keeps_what_was_done():
    def body(item):
        return 10 // item

    outcome = ran(code(body, items=[5, 0, 1]))
    assert (outcome.hi, outcome.values) == (1, [2])
    assert (outcome.kind, outcome.vertex, outcome.index) == ("user", "work", 1)
    assert outcome.message == "ZeroDivisionError: integer division or modulo by zero"
    assert outcome.raised == "builtins:ZeroDivisionError"
    assert "in body" in outcome.traceback
    assert "run.py" not in outcome.traceback.replace("test_run.py", "")


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (MemoryError("no room"), "memory"),
        (DiskFullError("no room on the disk"), "disk"),
        (ProgramError("cannot be imported"), "program"),
        (KeyError("x"), "user"),
        (SystemExit(3), "user"),
        (KeyboardInterrupt(), "user"),
    ],
)
def test_what_a_task_raises_tells_the_kind_of_failure(error, kind):
    def body():
        raise error

    assert ran(code(body)).kind == kind


def test_an_exception_whose_message_cannot_be_had_is_a_failure_like_any_other():
    class MuteError(Exception):
        def __str__(self):
            raise RuntimeError("no")

    def body():
        raise MuteError

    outcome = ran(code(body))
    assert outcome.kind == "user"
    assert outcome.message == "MuteError (its message cannot be had: RuntimeError in its __str__)"


def test_a_missing_input_is_lost_and_not_the_task_s_fault():
    outcome = ran(code(lambda x: x, reading(OneToOne(2, 2), ["there", ABSENT])), 0, 2)
    assert (outcome.kind, outcome.lost, outcome.values) == ("input", ("source", 1), ["there"])


def test_a_lenient_input_leaves_out_what_was_never_made():
    assert ran(code(list, reading(Broadcast(3, 1), [1, ABSENT, 3], lenient=True)), 0, 1).values == [[1, 3]]
    assert ran(code(lambda x: x, reading(OneToOne(1, 1), [ABSENT], lenient=True)), 0, 1).values == [None]


@pytest.mark.parametrize(("row", "told"), [([1, 2], "a list of 2"), (5, "int")])
def test_a_row_with_another_number_of_pieces_names_its_source(row, told):
    outcome = ran(code(list, reading(ScatterGather(1, 3), [row])), 0, 1)
    assert outcome.kind == "user"
    assert "source[0]" in outcome.message
    assert told in outcome.message


# -------------------------------------------------------------------------------------------------------------- stops


def test_a_lease_stops_between_two_units():
    leases: list[WorkerLease] = []

    def body(item):
        if item == 1:
            leases[0].cancel()
        return item

    leases.append(WorkerLease(1, code(body, items=[0, 1, 2]), 0, 3))
    outcome = run(leases[0], RemoteStore())
    assert (outcome.values, outcome.hi, outcome.kind, outcome.index) == ([0, 1], 2, "stopped", 2)


def test_a_task_that_was_told_to_stop_and_raises_so_was_stopped():
    leases: list[WorkerLease] = []

    def body():
        leases[0].cancel()
        raise RunCancelledError("as told")

    leases.append(WorkerLease(1, code(body), 0, 3))
    assert run(leases[0], RemoteStore()).kind == "stopped"


def test_units_that_were_taken_back_are_not_run():
    leases: list[WorkerLease] = []
    called: list[int] = []

    def body(item):
        called.append(item)
        if item == 0:
            leases[0].end_before(2)
        return item

    leases.append(WorkerLease(1, code(body, items=list(range(6))), 0, 6))
    outcome = run(leases[0], RemoteStore())
    assert (called, outcome.values, outcome.hi, outcome.kind) == ([0, 1], [0, 1], 2, "")


# -------------------------------------------------------------------------------------------------------------- cones


def tree(values):
    """Sums of pairs of squares: two leaves and a root for each unit."""
    leaf = code(lambda item: item * item, items=values, vertex="leaf", n=len(values))
    router = Group(len(values), len(values) // 2, 2)
    never = InputCode("leaf->root", "leaf", router, lambda: pytest.fail("what stays in a cone is not looked up"))
    root = code(sum, never, vertex="root", n=len(values) // 2, only=2)
    return Cone(("leaf", "root"), (2, 1), ((), ((0, 2),)), height=3), (leaf, root)


def test_a_cone_keeps_its_inner_values_on_a_stack():
    cone, codes = tree([1, 2, 3, 4])
    outcome = ran(codes[-1], 0, 2, cone=cone, codes=codes)
    assert (outcome.values, outcome.hi) == ([5, 25], 2)


def test_a_failure_inside_a_cone_names_the_inner_task():
    cone, codes = tree([1, 2, "three", 4])
    outcome = ran(codes[-1], 0, 2, cone=cone, codes=codes)
    assert (outcome.kind, outcome.vertex, outcome.index) == ("user", "leaf", 2)
    assert (outcome.values, outcome.hi) == ([5], 1)


def test_a_long_chain_stops_at_the_task_it_is_at():
    first = code(lambda: 1, vertex="first", n=1)
    router = OneToOne(1, 1)
    members = ["first", "second", "third"]
    codes = [first]
    for source, vertex in itertools.pairwise(members):
        edge = InputCode(f"{source}->{vertex}", source, router, lambda: column([ABSENT]))
        codes.append(code(lambda x: x + 1, edge, vertex=vertex, n=1, only=-1))
    cone = Cone(tuple(members), (1, 1, 1), linear=True)
    lease = WorkerLease(1, codes[-1], 0, 1, cone=cone, codes=tuple(codes))
    outcome = run(lease, RemoteStore(), target_s=-1.0)
    assert (outcome.reached, outcome.values, outcome.hi) == (0, [1], 1)
    whole = run(WorkerLease(2, codes[-1], 0, 1, cone=cone, codes=tuple(codes)), RemoteStore(), target_s=1e6)
    assert (whole.reached, whole.values) == (-1, [3])


# ------------------------------------------------------------------------------------------------------------ counted


def test_bytes_are_counted_for_each_partition():
    body = code(lambda item: [b"x" * item, b""], items=[100, 50], outputs={"e": 2}, measured=("e",))
    ((edge, sums),) = ran(body, 0, 2).stats
    assert edge == "e"
    assert sums[0] - sums[1] == 150


def test_bytes_are_counted_for_the_partitions_that_have_any():
    rows = [{7: b"x" * 100}, {7: b"", 10**6: b"y" * 10}]
    body = code(lambda item: rows[item], items=range(2), outputs={"e": 10**7}, measured=("e",), parts=10**7)
    ((edge, sums),) = ran(body, 0, 2).stats
    assert (edge, sums) == ("e", {7: sizeof(b"x" * 100) + sizeof(b""), 10**6: sizeof(b"y" * 10)})


def test_a_mapping_with_another_key_fails_its_task():
    outcome = ran(code(lambda item: {item: "piece"}, items=[2, 3], outputs={"e": 3}, parts=3), 0, 2)
    assert (outcome.hi, outcome.vertex, outcome.index) == (1, "work", 1)
    assert "a piece for partition 3 of 3" in outcome.message


def test_rows_are_the_lengths_of_values():
    assert ran(code(lambda item: [0] * item, items=[3, 0, 4], counted=True)).rows == 7


def test_rows_of_tables_are_counted_also_in_pieces():
    class Table:
        def __init__(self, rows):
            self.num_rows = rows

    assert ran(code(lambda item: Table(item), items=[3, 0, 4], counted=True)).rows == 7
    body = code(lambda: {1: Table(5), 6: Table(2)}, outputs={"e": 8}, parts=8, counted=True)
    assert ran(body).rows == 7 * 3  # of three tasks


def test_the_caller_sees_values_as_they_are_made():
    values: list[int] = []
    seen: list[list[int]] = []

    def body(item):
        seen.append(list(values))
        return item

    run(WorkerLease(1, code(body, items=[1, 2]), 0, 2), RemoteStore(), values=values)
    assert seen == [[], [1]]
