"""The plan of a resume for runs with values in files: the existing outputs decide together with the journal."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from weft.durability.journal import JOURNAL, Header, Recovered, read_journal, recover
from weft.durability.probing import probed, probed_answers
from weft.durability.resume import Plan
from weft.engine.events import JobSubmitted
from weft.engine.machines.job import JobState
from weft.engine.master import Master
from weft.engine.rows import FINISHED, FREED
from weft.model.chunks import ChunkRef
from weft.model.errors import ForbiddenError, NotFoundError, WeftError
from weft.store import codec, tiers
from weft.store.state import check_trusted

if TYPE_CHECKING:
    from pathlib import Path

    from weft.engine.inspector import Inspector
    from weft.engine.policy import ManagerFactory
    from weft.engine.tuning import Tuning
    from weft.graph.logical import LogicalGraph
    from weft.store.outputs import Outputs

_IDS: Final = 40


def plan_values(
    path: Path,
    graph: LogicalGraph,
    digest: str,
    outputs: Outputs,
    tuning: Tuning,
    managers: Mapping[str, ManagerFactory],
) -> Plan:
    """Plan the resume of a run; changes nothing except that it removes outputs that do not count."""
    plan = Plan(graph, Header(graph=digest, tuning=tuning))
    try:
        check_trusted(path, JOURNAL)
        recorded = plan.recorded = read_journal(path / JOURNAL, trusted=True)
        header = recorded.header
        again = probed(graph, {vertex for vertex, _ in header.restored})
        wanted = None if recorded.tuning == tuning else tuning
        found = recover(again, recorded, managers, digest, tuning=wanted)
    except NotFoundError:
        plan.why = "there is no journal"
    except ForbiddenError:
        raise
    except WeftError as error:
        plan.why = error.message
    else:
        inspector = found.master.inspector
        outputs.find(found.pending.taken | set(header.taken))
        plan.ended = inspector.status is JobState.SUCCEEDED
        if not plan.ended and not inspector.may_go_on:
            plan.why = "something had failed, or it was cancelled"
        elif not plan.ended and not _fits(recorded.tuning, tuning):
            plan.why = "another backend runs it now"
        if not plan.why:
            _go_on(plan, again, found, outputs)
            return plan
        _begin_again(plan, inspector, outputs, found.pending.taken | set(header.taken), known=True)
        return plan
    outputs.find()
    master = Master(graph, graph.name, tuning, managers)
    master.handle([JobSubmitted(0.0)])
    _begin_again(plan, master.inspector, outputs, None, known=False)
    return plan


def _fits(old: Tuning, new: Tuning) -> bool:
    """Whether a job may continue with another tuning: sizes may differ, settings that shaped its graph may not."""
    same = replace(
        old,
        target_s=new.target_s,
        growth=new.growth,
        cone_steps=new.cone_steps,
        cone_tasks=new.cone_tasks,
        realign=new.realign,
        lease_bytes=new.lease_bytes,
        backups=new.backups,
    )
    return same == new


def _go_on(plan: Plan, graph: LogicalGraph, found: Recovered, outputs: Outputs) -> None:
    """Plan a replay: outputs of finished tasks are looked up, the others are removed."""
    inspector = found.master.inspector
    plan.graph, plan.recovered = graph, found
    header = plan.header if plan.recorded is None else plan.recorded.header
    hit = plan.restored = frozenset(header.restored)
    kept: dict[str, tuple[int, Collection[int]]] = {}
    for vertex in dict.fromkeys((*inspector.names, *outputs.vertices())):
        row = inspector.vertex(vertex)
        there = outputs.has(vertex)
        state: Sequence[int] = b"" if row is None else row.state
        if vertex in header.answered and FINISHED not in state and FREED not in state:  # not yet returned
            with suppress(WeftError):
                plan.answers[vertex] = probed_answers(_values(outputs, vertex, len(there)), {v for v, _ in hit})
        n = max(len(state), max(there, default=-1) + 1)
        finished = [i for i in range(len(state)) if state[i] == FINISHED]
        waiting = [i for i in there if (vertex, i) in hit or vertex in plan.answers]
        kept[vertex] = (
            n,
            {i for i in finished if i in there} | {i for i in waiting if i >= len(state) or state[i] != FREED},
        )
        gone = [i for i in finished if i not in there and (vertex, i) not in hit]
        if gone and not plan.ended:
            plan.gone |= {(vertex, index): "" for index in gone}
    outputs.settle(kept)


def _begin_again(
    plan: Plan, inspector: Inspector, outputs: Outputs, taken: Collection[int] | None, *, known: bool
) -> None:
    """Plan a restart: tasks that are known to have finished are not run again."""
    answers: dict[str, list[Any]] = {}
    for row in inspector.vertices:
        if row.vertex.expands and 0 < row.n == len(set(outputs.has(row.id))):
            with suppress(WeftError):
                answers[row.id] = _values(outputs, row.id, row.n)
    back, gone = inspector.restorable(outputs.has, answers, known=known)
    plan.answers = {vertex: probed_answers(values, back.keys()) for vertex, values in answers.items()}
    plan.gone = {(vertex, index): "" for vertex, tasks in gone.items() for index in sorted(tasks)}
    plan.restored = frozenset((vertex, index) for vertex, tasks in back.items() for index in tasks)
    plan.graph = probed(plan.graph, back)
    kept: dict[str, tuple[int, Collection[int]]] = {}
    for row in inspector.vertices:
        kept[row.id] = max(row.n, 0), range(row.n) if row.id in answers else back.get(row.id, ())
    outputs.settle(kept)
    leases = outputs.leases()
    incarnation = max((lease >> _IDS for lease in leases), default=0) + 1
    if plan.recorded is not None:
        incarnation = max(incarnation, plan.recorded.incarnation + 1)
    plan.header = replace(
        plan.header,
        incarnation=incarnation,
        restored=tuple(sorted(plan.restored)),
        answered=tuple(sorted(answers)),
        taken=tuple(sorted(leases if taken is None else leases.intersection(taken))),
    )


def _values(outputs: Outputs, vertex: str, n: int) -> list[Any]:
    values = []
    for _, cells in outputs.cells(vertex, range(n)):
        values += [codec.decode(tiers.read(cell)) if type(cell) is ChunkRef else cell for cell in cells]
    if len(values) != n:
        raise NotFoundError(f"answers of {vertex} are missing")
    return values
