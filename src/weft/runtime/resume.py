"""How a run goes on that has ended without success, or whose owner was killed.

Two ways, and the first that is possible is taken. *Replay*: the journal is of this version and this graph, nothing has
failed, and all that was finished is still there. A new master is brought to where the old one was, with every choice
and number that was settled, and goes on. *Facts*: the job begins again, and what is known to have finished counts as
finished. That is how a failed run goes on, one with an output that is gone, or one of another version.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from weft.engine.replay import may_go_on
from weft.graph.validate import mark_results
from weft.model.errors import ConflictError, NotFoundError, WeftError
from weft.runtime.facts import asking
from weft.runtime.journal import Recovered, finished_tasks, graph_digest, read_journal, recover

if TYPE_CHECKING:
    from pathlib import Path

    from weft.engine.core import Tuning
    from weft.engine.policy import ManagerFactory
    from weft.graph.logical import LogicalGraph
    from weft.runtime.journal import Recorded


@dataclass(slots=True)
class Plan:
    """What a resume will do.

    `graph` is what to run, `digest` that of the graph without what was restored. `finished` are steps that are not run
    again; `gone` maps steps that are, though they had finished, to the output that is missing; `why` says what keeps
    the journal from being replayed.
    """

    graph: LogicalGraph
    digest: str
    finished: frozenset[str]
    gone: dict[str, str] = field(default_factory=dict)
    why: str = ""
    recorded: Recorded | None = None
    recovered: Recovered | None = None

    @property
    def incarnation(self) -> int:
        """How many processes owned the run before, as far as the journal tells."""
        return 0 if self.recorded is None else self.recorded.incarnation + 1


def plan_resume(
    journal: Path,
    graph: LogicalGraph,
    managers: Mapping[str, ManagerFactory],
    tuning: Tuning,
    *,
    told: Iterable[str],
    outputs: Mapping[str, Sequence[str]],
    exists: Callable[[str], bool] = os.path.lexists,
) -> Plan:
    """Find out how a run goes on; nothing is changed.

    `graph` is the graph of the run as it was begun, `told` the vertices of one task that the records say have
    succeeded, `outputs` the paths that each vertex must have left (a vertex that is not in it is always run again
    unless the journal is replayed).
    """
    digest = graph_digest(graph)
    mark_results(graph)
    finished = {vertex for vertex in told if vertex in outputs}
    why = ""
    recorded: Recorded | None = None
    recovered: Recovered | None = None
    again = graph
    try:
        recorded = read_journal(journal)
        if recorded.header.graph != digest:
            raise ConflictError("the journal was written for another graph")
        before = {vertex for vertex, _ in recorded.header.restored}
        finished |= before & outputs.keys()
        again = asking(graph, before)
        recovered = recover(again, recorded, managers, digest)
        core = recovered.master.core
        known = {vertex for vertex, _ in finished_tasks(core)}
        if recovered.pending.completed or not may_go_on(core):
            why = "the run had ended" if recovered.pending.completed else "something had failed"
        elif recorded.tuning != tuning:
            why = "another backend runs it now"
        elif not finished <= known:
            why = "the records know more than the journal"
        finished |= known & outputs.keys()
    except NotFoundError:
        why = "there is no journal"
    except WeftError as error:
        why = error.message
    gone = {}
    for vertex in sorted(finished):
        missing = next((path for path in outputs[vertex] if not exists(path)), None)
        if missing is not None:
            gone[vertex] = missing
    if gone:
        why = why or "an output is gone"
    if recovered is not None and not why:
        return Plan(again, digest, frozenset(finished), {}, "", recorded, recovered)
    kept = frozenset(finished - gone.keys())
    return Plan(asking(graph, kept), digest, kept, gone, why, recorded)
