"""The commands of `weft cluster`."""

from __future__ import annotations

from typing import Annotated

from weft.cli.arguments import Given
from weft.cli.interrupts import end_signal
from weft.cli.parsing import CommandGroup, CommandParameter
from weft.model.wording import counted

cluster_app = CommandGroup("cluster")
_LOOK_S = 0.5
"""The seconds between two looks at the processes of the cluster."""


@cluster_app.command
def start(
    *,
    nodes: Annotated[int, CommandParameter(name="--nodes", help="The number of nodes.")] = 2,
    cpus: Annotated[int, CommandParameter(name="--cpus", help="The cores of each node.")] = 1,
    context: Given,
) -> int:
    """Run a Ray cluster of several nodes on this machine, to try with, until Ctrl-C."""
    with end_signal() as end, context.wiring().local_cluster(nodes, cpus) as cluster:
        cluster.check()
        context.out.write(
            f"{counted(nodes, 'node')} of {counted(cpus, 'core')} on this machine. In another terminal:\n"
        )
        for name, value in cluster.variables.items():
            context.out.write(f"  export {name}={value}\n")
        context.out.write('and open a session with weft.Session("ray"). Ctrl-C ends the cluster.\n')
        context.out.flush()
        while not end.wait(_LOOK_S):
            cluster.check()
    context.say("the cluster has ended")
    return 0
