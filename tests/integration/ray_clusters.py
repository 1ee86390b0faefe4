"""Ray clusters of several nodes on this machine, for tests."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

TRIES = 3
"""On a busy machine the server of a cluster may be too slow for Ray itself."""
WITHOUT_SPARE_WORKERS = {"enable_worker_prestart": False, "prestart_worker_first_driver": False}
"""By itself Ray starts workers that nobody has asked for, each of which takes a second of CPU. Weft uses its own."""

LOADED = ("weft.backends.ray",)
"""What command lines on a cluster need: to load Ray takes a second of CPU."""


@contextmanager
def running_cluster(nodes: int, **head: Any) -> Iterator[Any]:
    """Run a cluster of nodes with one core each; `head` has further arguments for the first."""
    from ray._private.node import Node
    from ray.cluster_utils import Cluster

    # The scaler and the dashboard take 3 s of CPU, and no test asks them; Ray starts the latter even if it is not
    # to be included.
    node = {"num_cpus": 1, "include_dashboard": False, "no_monitor": True, "_system_config": WITHOUT_SPARE_WORKERS}

    def start() -> Any:
        with pytest.MonkeyPatch.context() as undone:
            undone.setattr(Node, "start_api_server", lambda self, **_: None)
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
