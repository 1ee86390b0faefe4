"""The Ray cluster of a contestant: two nodes of one core each on this machine."""

from __future__ import annotations

from functools import cache
from typing import Any

STORE_BYTES = 4 << 30
"""The bytes of Ray's object store at each node: all chunks have room."""


@cache
def address() -> str:
    """Start the cluster, which ends with this process, and return its address."""
    from ray.cluster_utils import Cluster

    node: dict[str, Any] = {"num_cpus": 1, "object_store_memory": STORE_BYTES}
    cluster = Cluster(initialize_head=True, head_node_args=node)
    cluster.add_node(**node)
    found: str = cluster.address
    return found
