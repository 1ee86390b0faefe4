"""Sums squares at the machines of a cluster. Machines join while it runs: the session asks the autoscaler for them."""

import sys

import weft


def square(x):
    return x * x


def main(count: int) -> None:
    """Run the graph with `count` tasks."""
    graph = weft.Graph("squares")
    total = graph.add(sum, weft.gather(graph.map(square, range(count)))).keep()
    with weft.Session("ray") as session:
        print(session.run(graph).value(total))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000)
