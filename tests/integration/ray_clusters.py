"""Ray clusters of several nodes on this machine, for tests."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

TRIES = 3
"""On a busy machine the server of a cluster may be too slow for Ray itself."""
WITHOUT_SPARE_WORKERS = {"enable_worker_prestart": False, "prestart_worker_first_driver": False}
"""By itself Ray starts workers that nobody has asked for, each of which takes a second of CPU. Weft uses its own."""


@contextmanager
def running_cluster(nodes: int, **head: Any) -> Iterator[Any]:
    """Run a cluster of nodes with one core each; `head` has further arguments for the first."""
    from ray.cluster_utils import Cluster

    node = {"num_cpus": 1, "include_dashboard": False, "_system_config": WITHOUT_SPARE_WORKERS}

    def start() -> Any:
        made = Cluster(initialize_head=True, head_node_args=node | head)
        try:
            for _ in range(nodes - 1):
                made.add_node(num_cpus=1)
        except BaseException:
            made.shutdown()
            raise
        return made

    for last in (False,) * (TRIES - 1) + (True,):
        try:
            found = start()
            break
        except Exception:  # Ray raises just that when a node needs more than 30 s
            if last:
                raise
    try:
        yield found
    finally:
        found.shutdown()
