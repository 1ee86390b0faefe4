"""Nodes that need not load Weft: their processes are forks of one that has loaded it; see `tests.prepared`."""

from collections.abc import Mapping
from pathlib import Path

from tests.prepared import ForkedCommand, forks_with
from weft.testing.local_nodes import LocalNodes


class ForkedNodes(LocalNodes):
    """Nodes as processes of this machine."""

    def open_process(self, environ: Mapping[str, str]) -> ForkedCommand:
        """See `LocalNodes.open_process`."""
        return forks_with(()).open_node(Path.cwd(), environ)
