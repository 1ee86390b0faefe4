"""Nodes as processes of this machine, over the loopback interface: for tests, and as an example for providers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from weft.backends.cluster_nodes import NodeAddress
from weft.model.resources import Resources
from weft.store.tls import TlsFiles, check_files


class LocalNodes:
    """`count` nodes with `workers` processes each, and the secret of their session. A context manager.

    With `tls`, their connections are encrypted. `hosts` are the addresses at which they listen, if not all at one.
    UsageError: a file of `tls` cannot be used.
    """

    def __init__(
        self,
        count: int,
        workers: int,
        *,
        budget: int = 1 << 28,
        secret: bytes = b"",
        tls: TlsFiles | None = None,
        hosts: Sequence[str] = (),
        **options: Any,
    ) -> None:
        if tls is not None:
            check_files(tls)
        self.secret = secret or os.urandom(32)
        told = {"secret": self.secret.hex(), "workers": workers, "budget": budget, "tls": tls, **options}
        environ = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        self.processes = [self.open_process(environ) for _ in range(count)]
        self.nodes: list[NodeAddress] = []
        for number, process in enumerate(self.processes):
            assert process.stdin is not None
            assert process.stdout is not None
            at = {"host": hosts[number]} if hosts else {}
            process.stdin.write(json.dumps({**told, **at}) + "\n")
            process.stdin.flush()
            host, port = json.loads(process.stdout.readline())
            resources = Resources(cpu=workers, memory=budget)
            self.nodes.append(NodeAddress((host, port), workers, f"node-{number}", resources))

    def open_process(self, environ: Mapping[str, str]) -> Any:
        """Start the process of a node with pipes of text to it and from it; return it, as `subprocess.Popen` does."""
        return subprocess.Popen(
            [sys.executable, "-m", "weft.wiring.node"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environ,
        )

    def close(self) -> None:
        """End the nodes, and wait for their ends."""
        for process in self.processes:
            assert process.stdin is not None
            assert process.stdout is not None
            if not process.stdin.closed:
                process.stdin.close()
            process.wait()
            process.stdout.close()

    def __enter__(self) -> LocalNodes:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
