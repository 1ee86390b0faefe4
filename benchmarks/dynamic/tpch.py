"""Graphs shaped like the 22 queries of TPC-H at 1 TB: stages, what each reads and writes, and how many tasks it has.

Numbers of rows are those that the specification gives for scale factor 1,000; what a filter keeps and what a join finds
follows from the distributions that it prescribes for the columns. Widths are those of the columns that a query touches
(8 bytes a key or decimal, 4 a date, strings at their mean length). Stored tables are compressed; what stages pass on is
not. A stage has a task for each 256 MB that it reads.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING

import weft
from weft import shuffle

if TYPE_CHECKING:
    from weft.graph.builder import VertexHandle

LINEITEM, ORDERS, PARTSUPP, PART, CUSTOMER, SUPPLIER = 6e9, 1.5e9, 8e8, 2e8, 1.5e8, 1e7
STORED = 0.37
"""Bytes of Snappy-compressed Parquet for each byte of data, measured at scale factor 10 (3.7 GB)."""
SPLIT = 256e6
"""Bytes that one task reads: the default split size of MaxCompute."""


@dataclass(frozen=True, slots=True, eq=False)
class Stage:
    """A stage: bytes it reads from a table, `inputs` with whether each is consumed whole before the first row comes
    out, and bytes it writes.
    """

    table: float
    inputs: tuple[tuple[Stage, bool], ...]
    written: float

    @property
    def work(self) -> float:
        """All bytes that its tasks go through."""
        return self.table + sum(source.written for source, _ in self.inputs)

    @property
    def tasks(self) -> int:
        """How many tasks it has."""
        return max(1, ceil((self.table * STORED + sum(source.written for source, _ in self.inputs)) / SPLIT))


def scan(rows: float, read: float, keep: float, width: float) -> Stage:
    """Read `read` bytes of each row of a table, pass on the share `keep` of them with `width` bytes each."""
    return Stage(rows * read, (), rows * keep * width)


def join(build: Stage, probe: Stage, rows: float, width: float) -> Stage:
    """Hash `build`, stream `probe` past it."""
    return Stage(0.0, ((build, True), (probe, False)), rows * width)


def group(source: Stage, groups: float, width: float) -> Stage:
    """Aggregate: nothing comes out before all is in."""
    return Stage(0.0, ((source, True),), groups * width)


def top(source: Stage) -> Stage:
    """Sort what is left and keep the first 100 rows."""
    return Stage(0.0, ((source, True),), 100 * 100)


def _q1() -> Stage:
    return top(group(scan(LINEITEM, 38, 1e-6, 80), 4, 80))


def _q2() -> Stage:
    suppliers = scan(SUPPLIER, 120, 0.2, 110)
    offers = join(scan(PART, 60, 0.004, 40), scan(PARTSUPP, 24, 1, 24), 3.2e6, 60)
    local = join(suppliers, offers, 0.64e6, 160)
    return top(join(group(local, 0.46e6, 16), local, 0.46e6, 160))


def _q3() -> Stage:
    orders = join(scan(CUSTOMER, 18, 0.2, 8), scan(ORDERS, 24, 0.486, 24), 146e6, 20)
    return top(group(join(orders, scan(LINEITEM, 28, 0.54, 24), 300e6, 36), 11e6, 28))


def _q4() -> Stage:
    orders = scan(ORDERS, 28, 0.038, 20)
    return top(group(join(orders, scan(LINEITEM, 16, 0.63, 8), 53e6, 12), 5, 20))


def _q5() -> Stage:
    orders = join(scan(CUSTOMER, 16, 0.2, 16), scan(ORDERS, 20, 0.152, 16), 45.6e6, 16)
    lines = join(orders, scan(LINEITEM, 32, 1, 32), 182e6, 32)
    return top(group(join(scan(SUPPLIER, 16, 0.2, 16), lines, 7.3e6, 24), 5, 24))


def _q6() -> Stage:
    return group(scan(LINEITEM, 28, 1e-6, 8), 1, 8)


def _q7() -> Stage:
    lines = join(scan(SUPPLIER, 16, 0.08, 16), scan(LINEITEM, 36, 0.304, 36), 146e6, 36)
    mine = join(scan(CUSTOMER, 16, 0.08, 16), scan(ORDERS, 16, 1, 16), 120e6, 16)
    return top(group(join(mine, lines, 11.7e6, 40), 4, 40))


def _q8() -> Stage:
    lines = join(scan(PART, 30, 1 / 150, 8), scan(LINEITEM, 40, 1, 40), 40e6, 32)
    orders = join(lines, scan(ORDERS, 20, 0.304, 20), 12.2e6, 36)
    local = join(scan(CUSTOMER, 16, 0.2, 8), orders, 2.4e6, 32)
    return top(group(join(scan(SUPPLIER, 16, 1, 16), local, 2.4e6, 32), 2, 16))


def _q9() -> Stage:
    lines = join(scan(PART, 45, 0.054, 8), scan(LINEITEM, 48, 1, 48), 326e6, 48)
    costs = join(lines, scan(PARTSUPP, 24, 1, 24), 326e6, 48)
    dated = join(costs, scan(ORDERS, 12, 1, 12), 326e6, 44)
    return top(group(join(scan(SUPPLIER, 16, 1, 16), dated, 326e6, 32), 175, 32))


def _q10() -> Stage:
    lines = join(scan(ORDERS, 20, 0.038, 16), scan(LINEITEM, 25, 0.247, 24), 114e6, 24)
    return top(group(join(scan(CUSTOMER, 170, 1, 170), lines, 114e6, 186), 38e6, 180))


def _q11() -> Stage:
    local = join(scan(SUPPLIER, 16, 0.04, 8), scan(PARTSUPP, 28, 1, 28), 32e6, 16)
    return top(group(local, 30e6, 16))


def _q12() -> Stage:
    return top(group(join(scan(LINEITEM, 30, 0.0052, 18), scan(ORDERS, 23, 1, 23), 31e6, 25), 2, 26))


def _q13() -> Stage:
    orders = join(scan(CUSTOMER, 8, 1, 8), scan(ORDERS, 65, 0.98, 16), 1530e6, 16)
    return top(group(group(orders, 150e6, 16), 42, 16))


def _q14() -> Stage:
    return group(join(scan(LINEITEM, 28, 0.0124, 24), scan(PART, 29, 1, 29), 75e6, 37), 1, 16)


def _q15() -> Stage:
    revenue = group(scan(LINEITEM, 28, 0.0375, 16), 10e6, 16)
    return top(join(revenue, scan(SUPPLIER, 75, 1, 75), 1, 90))


def _q16() -> Stage:
    offers = join(scan(PART, 50, 0.148, 45), scan(PARTSUPP, 16, 1, 16), 118e6, 45)
    served = join(scan(SUPPLIER, 70, 0.0005, 8), offers, 118e6, 45)
    return top(group(served, 27_840, 45))


def _q17() -> Stage:
    lines = join(scan(PART, 28, 0.001, 8), scan(LINEITEM, 24, 1, 24), 6e6, 24)
    return group(join(group(lines, 0.2e6, 16), lines, 0.5e6, 8), 1, 8)


def _q18() -> Stage:
    large = group(scan(LINEITEM, 16, 1, 16), 57_000, 16)
    orders = join(large, scan(ORDERS, 28, 1, 28), 57_000, 44)
    named = join(orders, scan(CUSTOMER, 26, 1, 26), 57_000, 62)
    return top(group(join(named, scan(LINEITEM, 16, 1, 16), 399_000, 70), 57_000, 70))


def _q19() -> Stage:
    return group(join(scan(PART, 50, 0.0024, 40), scan(LINEITEM, 60, 0.0214, 32), 0.12e6, 16), 1, 8)


def _q20() -> Stage:
    offers = join(scan(PART, 41, 0.0109, 8), scan(PARTSUPP, 20, 1, 20), 8.7e6, 20)
    sold = group(scan(LINEITEM, 28, 0.152, 24), 543e6, 24)
    wanted = join(offers, sold, 5.9e6, 8)
    return top(join(group(wanted, 4e6, 8), scan(SUPPLIER, 80, 0.04, 70), 0.18e6, 70))


def _q21() -> Stage:
    late = join(scan(SUPPLIER, 34, 0.04, 34), scan(LINEITEM, 24, 0.63, 16), 152e6, 42)
    failed = join(late, scan(ORDERS, 9, 0.486, 8), 74e6, 42)
    shared = join(failed, scan(LINEITEM, 16, 1, 16), 70e6, 42)
    alone = join(shared, scan(LINEITEM, 24, 0.63, 16), 4.1e6, 26)
    return top(group(alone, 0.4e6, 34))


def _q22() -> Stage:
    rich = scan(CUSTOMER, 31, 0.127, 31)
    return top(group(join(rich, scan(ORDERS, 8, 1, 8), 6.3e6, 23), 7, 18))


QUERIES: tuple[Callable[[], Stage], ...] = (
    *(_q1, _q2, _q3, _q4, _q5, _q6, _q7, _q8, _q9, _q10, _q11),
    *(_q12, _q13, _q14, _q15, _q16, _q17, _q18, _q19, _q20, _q21, _q22),
)


def _body() -> None:
    """Stand for the work of a task, which the simulator does not do."""


def graph_of(root: Stage, name: str = "query") -> tuple[weft.Graph, dict[str, Stage]]:
    """Return the graph of a query, with its stages by the ids of their vertices."""
    graph = weft.Graph(name)
    nodes: dict[Stage, VertexHandle] = {}

    def add(stage: Stage) -> VertexHandle:
        if stage not in nodes:
            inputs = [shuffle(add(source), stage.tasks, blocking=whole) for source, whole in stage.inputs]
            nodes[stage] = graph.add(_body, *inputs, n=stage.tasks, name=f"s{len(nodes)}")
        return nodes[stage]

    add(root)
    return graph, {node.id: stage for stage, node in nodes.items()}
