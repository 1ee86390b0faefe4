"""The Ray cluster of a contestant: nodes of one core each on this machine."""

from __future__ import annotations

from functools import cache
from typing import Any

STORE_BYTES = 4 << 30
"""The bytes of Ray's object store at each node: all chunks have room."""
_NODE: dict[str, Any] = {"num_cpus": 1, "object_store_memory": STORE_BYTES}


@cache
def machines(nodes: int = 2) -> Any:
    """Start a cluster, which ends with this process."""
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args=_NODE)
    for _ in range(nodes - 1):
        add(cluster)
    return cluster


def add(cluster: Any) -> Any:
    """Have another node join a cluster, and return it."""
    return cluster.add_node(**_NODE)


def address() -> str:
    """Return the address of the cluster of two nodes."""
    found: str = machines().address
    return found
