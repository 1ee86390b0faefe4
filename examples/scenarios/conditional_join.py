"""Conditional join: both plans are in the graph, the measured size of the small side takes one.

The planner believed both sides to be large and would shuffle them. The side that a filter has left small is known when
it has been scanned: it is given to all tasks of the other instead. The decider's own task never runs.
"""

from __future__ import annotations

import show

import weft
from weft import after, gather, shuffle
from weft.graph.logical import Manager

PARTITIONS = 4
Row = tuple[int, int]


def scan_orders(number: int) -> list[Row]:
    """Read 5,000 orders of 100 customers."""
    return [(row % 100, number) for row in range(5000)]


def scan_customers(number: int) -> list[Row]:
    """Read the customers that a filter leaves: two in each file."""
    return [(number * 10 + each, number) for each in range(2)]


def decide() -> str:
    """Answer where sizes are not known: shuffle, which is never very wrong."""
    return "shuffled"


def by_key(rows: list[Row]) -> list[list[Row]]:
    """Write each row to the partition of its key."""
    parts: list[list[Row]] = [[] for _ in range(PARTITIONS)]
    for row in rows:
        parts[row[0] % PARTITIONS].append(row)
    return parts


def join_with_all(orders: list[Row], customers: list[list[Row]]) -> int:
    """Join a file of orders with all customers; count the rows."""
    keys = {key for part in customers for key, _ in part}
    return sum(key in keys for key, _ in orders)


def join_parts(orders: list[list[Row]], customers: list[list[Row]]) -> int:
    """Join a partition of both sides; count the rows."""
    return join_with_all([row for part in orders for row in part], customers)


def add_up(copied: list[int] | None, shuffled: list[int] | None) -> int:
    """Add the counts of the branch that ran."""
    return sum(n for counts in (copied, shuffled) for n in counts or () if n)


def build() -> tuple[weft.Graph, weft.VertexHandle]:
    """Return the graph and its answer, the number of joined rows."""
    graph = weft.Graph("conditional_join")
    orders = graph.map(scan_orders, range(8), name="orders")
    customers = graph.map(scan_customers, range(4), name="customers")
    params = {"choice": "join", "small": {"customers": "copied"}, "otherwise": "shuffled", "under": 1_000_000}
    which = graph.add(decide, after(customers), name="which", manager=Manager("conditional", params))
    copied = graph.add(join_with_all, orders, gather(customers), after(which), name="copied")
    left = graph.add(by_key, orders, after(which), name="orders_by_key")
    right = graph.add(by_key, customers, after(which), name="customers_by_key")
    parts = graph.add(join_parts, shuffle(left, PARTITIONS), shuffle(right, PARTITIONS), name="joined")
    graph.choice(which, name="join", copied=copied, shuffled=[left, right, parts])
    return graph, graph.add(add_up, gather(copied), gather(parts), name="rows")


if __name__ == "__main__":
    graph, rows = build()
    show.run(graph, "Two plans for a join, one of which will run.", rows)
