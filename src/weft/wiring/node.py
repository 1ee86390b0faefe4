"""A node of a cluster in this process: started by a backend that has a process there, or as a program.

`python -m weft.wiring.node` reads a line of JSON from the standard input: the secret of the session, as hexadecimal
digits, the paths of a certificate, its key and the CA as `tls` if the connections are encrypted, and the further
parameters of `weft.backends.node.Node`. It writes the address of the node as a line of JSON, serves one
session, and ends with it, or with the end of its standard input.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from typing import Any

from weft.backends.node import Node
from weft.runtime.clock import RealClock
from weft.store.accounting import default_budget
from weft.store.folders import RunFolders, shm_root, sweep, sweep_runs, temporary_folder, user_root
from weft.store.objects import sweep as sweep_objects
from weft.store.tls import TlsFiles


class RunningNode:
    """A node with folders of its own, served by a thread until its session has ended, or until `end`.

    The machine has `shares` nodes. Each may keep its share of `budget` bytes in memory (default: half of the memory).
    """

    def __init__(
        self, secret: bytes, workers: int, *, budget: int | None = None, shares: int = 1, **options: Any
    ) -> None:
        shared = shm_root()
        sweep(shared)
        name = f"node-{os.getpid()}-{os.urandom(4).hex()}"
        root = user_root(temporary_folder())
        sweep_runs(root, lambda _: False, sweep_objects)  # of killed nodes, with the work folders of their steps
        self._folders = RunFolders(name, shared, root)
        room = default_budget(self._folders.shm) if budget is None else budget
        self._node = Node(workers, self._folders, secret, RealClock(), budget=max(1, room // shares), **options)
        self.address = self._node.address
        self.budget = self._node.store.memory.budget
        self._thread = threading.Thread(target=self._serve, name="weft-node")
        self._thread.start()

    def _serve(self) -> None:
        with self._folders:
            self._node.serve()

    def end(self) -> None:
        """End the node, and wait until nothing is left of it."""
        self._node.end()
        self._thread.join()

    def wait(self) -> None:
        """Wait until the node has ended."""
        self._thread.join()


def main() -> None:
    """Run a node; see the module."""
    told = json.loads(sys.stdin.readline())
    if told.get("tls") is not None:
        told["tls"] = TlsFiles(*told["tls"])
    node = RunningNode(bytes.fromhex(told.pop("secret")), **told)
    sys.stdout.write(json.dumps(node.address) + "\n")
    sys.stdout.flush()
    threading.Thread(target=_end_with_input, args=(node,), daemon=True).start()
    node.wait()


def _end_with_input(node: RunningNode) -> None:
    sys.stdin.read()
    node.end()


if __name__ == "__main__":
    main()
