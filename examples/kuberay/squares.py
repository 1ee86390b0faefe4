"""Sums squares at the machines of a cluster. It asks for cores, and waits for none: machines join while it runs."""

import sys

import ray
from ray.autoscaler.sdk import request_resources

import weft

CORES = 16


def square(x):
    return x * x


def main(count: int) -> None:
    """Run the graph with `count` tasks."""
    ray.init()  # the session stays in this connection
    request_resources(num_cpus=CORES)
    try:
        graph = weft.Graph("squares")
        total = graph.add(sum, weft.gather(graph.map(square, range(count)))).keep()
        with weft.Session("ray") as session:
            print(session.run(graph).value(total))
    finally:
        request_resources(num_cpus=0)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000)
