"""A process that drives a run whose files travel by a URL: `python -m tests.integration.storage_driver FOLDER URL`.

It prints a line for each record that is reported: the step and its state. Tests kill it.
"""

import sys
from pathlib import Path

from msgspec.structs import replace

from tests.integration.places import Project
from weft import wiring
from weft.backends.cluster import Cluster
from weft.runs.active import RunEvents
from weft.runs.requests import RunRequest
from weft.runs.service import RunService
from weft.testing.local_nodes import LocalNodes
from weft.wiring import concrete


def main(folder: str, url: str) -> None:
    project = Project(Path(folder))
    nodes = LocalNodes(2, 1, grace_s=3.0)
    concrete.BACKENDS["threads"] = lambda at: Cluster(nodes.nodes, nodes.secret, at.store, grace_s=at.grace_s)
    settings = replace(project.settings, storage=url)
    try:
        with RunService(wiring, settings, project.root) as service:
            events = RunEvents(lambda record: print(record.step, record.state, flush=True))
            service.submit(service.load(RunRequest(str(project.file))), events=events).wait()
    finally:
        nodes.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
