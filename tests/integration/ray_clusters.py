"""Ray clusters of several nodes on this machine, for tests."""

import fcntl
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from tests.integration import ray_worker
from tests.prepared import forks_with

TRIES = 3
"""On a busy machine the server of a cluster may be too slow for Ray itself."""
SYSTEM = {"enable_worker_prestart": False, "prestart_worker_first_driver": False, "health_check_period_ms": 500}
"""By itself Ray starts workers that nobody has asked for, each of which takes a second of CPU. Weft uses its own.

A lost machine is one that fails five checks.
"""
NO_AGENT = """
for word; do
  case $word in
    --node-id=*) node=${word#*=};;
    --session-dir=*) folder=${word#*=};;
  esac
done
for name in $PORTS; do
  printf %s -1 > "$folder/$name.$$" && mv "$folder/$name.$$" "$folder/${name}_$node"
done
while kill -0 $PPID 2> /dev/null; do sleep 1; done
"""
"""In place of an agent, which takes two seconds of CPU to load: says that it has no ports, and ends with its raylet."""

DASHBOARD_PORTS = "metrics_agent_port metrics_export_port dashboard_agent_listen_port"
ENVIRONMENT_PORTS = "runtime_env_agent_port"
"""The ports that agents tell."""

CONNECTING = ("numpy", "pyarrow", "pydantic", "pydantic.v1.fields", "starlette.datastructures")
"""What each process of Ray loads when it connects, to pickle their objects if it meets some."""
LOADED = ("weft.backends.ray", *CONNECTING)
"""What command lines on a cluster need: to load Ray takes a second of CPU."""
OF_WORKERS = (
    *CONNECTING,
    "asyncio",
    "filelock",
    "google.protobuf.json_format",
    "google.protobuf.text_format",
    "google.protobuf.timestamp_pb2",
    "html",
    "jsonschema",
    "msgpack",
    "multiprocessing",
    "packaging.version",
    "pdb",
    "psutil",
    "requests",
    "tarfile",
    "weft.backends.cluster",
    "weft.backends.relay",
    "weft.backends.scaling",
    "weft.wiring.node",
    "yaml",
)
"""What workers of Ray load, but not Ray itself: it reads when it is loaded for which job its process works."""


@contextmanager
def running_cluster(nodes: int, *, environments: bool = False, forks: bool = True, **head: Any) -> Iterator[Any]:
    """Run a cluster of nodes with one core each; `head` has further arguments for the first.

    `environments`: it makes environments for sessions and clients. `forks`: its workers are forks of a process, which
    is worth it from three workers on. One cluster of this user at a time has a server for clients
    (`ray_client_server_port`): two on one machine take the same ports for their processes.
    """
    from ray._private import ray_constants, services
    from ray._private.node import Node
    from ray._private.workers import default_worker
    from ray.cluster_utils import Cluster

    # The scaler and the dashboard take 3 s of CPU, and no test asks them; Ray starts the latter even if it is not
    # to be included.
    node = {"num_cpus": 1, "include_dashboard": False, "no_monitor": True, "_system_config": SYSTEM}
    python: Callable[..., list[str]] = services._build_python_executable_command_memory_profileable

    unused = {ray_constants.PROCESS_TYPE_DASHBOARD_AGENT: DASHBOARD_PORTS}
    if not environments:
        unused[ray_constants.PROCESS_TYPE_RUNTIME_ENV_AGENT] = ENVIRONMENT_PORTS

    def program(component: str, *arguments: Any, **options: Any) -> list[str]:
        if component in unused:
            return ["env", f"PORTS={unused[component]}", "sh", "-c", NO_AGENT]
        return python(component, *arguments, **options)

    class Machines(Cluster):
        """A cluster with workers of its own."""

        def add_node(self, wait: bool = True, **options: Any) -> Any:
            return super().add_node(wait, worker_path=(ray_worker if forks else default_worker).__file__, **options)

    def start() -> Any:
        made = Machines(initialize_head=True, head_node_args=node | head)
        try:
            for _ in range(nodes - 1):
                made.add_node(num_cpus=1)
        except BaseException:
            made.shutdown()
            raise
        return made

    with ExitStack() as undo:
        undone = undo.enter_context(pytest.MonkeyPatch.context())
        if "ray_client_server_port" in head:
            lock = os.path.join(tempfile.gettempdir(), f"weft-tests-{os.getuid()}-ray-client.lock")
            fcntl.flock(undo.enter_context(open(lock, "w")), fcntl.LOCK_EX)
        undone.setattr(Node, "start_api_server", lambda self, **_: None)
        undone.setattr(services, python.__name__, program)
        if forks:
            undone.setenv(ray_worker.FORKS, forks_with(OF_WORKERS).path)
            undone.setenv(ray_worker.WORKER, default_worker.__file__)
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
