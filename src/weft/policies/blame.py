"""The node exclusion policy: finds the worker, node or output behind failures without a fault of the program.

An output that readers on several workers (on several nodes, if there are several) could not read is recomputed. A
worker on which many tasks failed to read outputs that others can read is no evidence against an output. Without other
readers an output is recomputed after a few errors of one task.

A worker is bad if several different tasks failed on it, and several times as many as on the others. A task that fails
everywhere is no evidence against a worker. A node is bad by the same rule, if several of its workers had failures. Bad
workers are excluded for a while, twice as long each time; never more than a share of the workers. The thresholds are
those of the field: Spark excludes an executor after two tasks for an hour, Tez a node after ten failures and never more
than a third of them; Tez blames a source by the share of readers that complain.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from weft.engine.decisions import Avoid, Readmit, Remake
from weft.engine.policy import Moment, VertexManager
from weft.model.errors import GraphError
from weft.model.wording import counted

if TYPE_CHECKING:
    from weft.engine.decisions import Decision
    from weft.engine.policy import BlameView, Fault, WorkerView

_Task = tuple[str, int]
_Counts = dict[int, set[tuple[int, _Task]]]
_EVERYWHERE = 3


class NodeExclusion(VertexManager):
    """Excludes failing workers and recomputes unreadable outputs of a job; its input is a `BlameView`.

    A worker is excluded from `least` failed tasks on, if those are `times` as many as the average of the others, for
    `avoid_s` seconds, twice as long each further time; at most a `share` of the workers at a time. An output is
    recomputed when `readers` could not read it, or one task could not, `errors` times. Faults older than `forget_s`
    seconds do not count.
    """

    moments: frozenset[Moment] = frozenset()

    def __init__(
        self,
        least: int = 4,
        times: float = 3.0,
        share: float = 1 / 3,
        avoid_s: float = 60.0,
        readers: int = 2,
        errors: int = 3,
        forget_s: float = 3600.0,
    ) -> None:
        if least < 1 or times < 1 or not 0 < share < 1 or not 0 < avoid_s <= forget_s or readers < 1 or errors < 1:
            raise GraphError(
                "blame wants least, readers, errors and times >= 1, share between 0 and 1, 0 < avoid_s <= forget_s, "
                f"not {least}, {readers}, {errors}, {times}, {share}, {avoid_s} and {forget_s}",
                rule="manager",
            )
        self.least = least
        self.times = times
        self.share = share
        self.avoid_s = avoid_s
        self.readers = readers
        self.errors = errors
        self.forget_s = forget_s

    def decide(self, view: BlameView, memo: Any) -> tuple[Sequence[Decision], Any]:
        """Return decisions to recompute bad outputs, to exclude bad workers, and to readmit workers beyond the limit.

        There is no memo: the master keeps the latest faults.
        """
        faults = [fault for fault in view.faults if view.now - fault.at <= self.forget_s]
        again = self._outputs(view, faults)
        guilty = {(decision.vertex, decision.index) for decision in again}
        return [*again, *self._workers(view, [fault for fault in faults if fault.unread not in guilty])], None

    def _outputs(self, view: BlameView, faults: Sequence[Fault]) -> list[Remake]:
        nodes = len({each.node for each in view.workers}) > 1
        failed = [(fault.unread, fault) for fault in faults if fault.unread is not None]
        readers: dict[_Task, set[int]] = {}
        for output, fault in failed:
            readers.setdefault(output, set()).add(fault.node if nodes else fault.worker)
        alone: dict[int, set[_Task]] = {}
        for output, fault in failed:
            if len(readers[output]) == 1:
                alone.setdefault(fault.worker, set()).add(fault.task)
        blind = {worker for worker, tasks in alone.items() if len(tasks) >= self.least}
        if all(each.worker in blind for each in view.workers):
            blind = set()  # no worker reads better
        seen = [(output, fault) for output, fault in failed if fault.worker not in blind]
        witnesses: dict[_Task, set[int]] = {}
        for output, fault in seen:
            witnesses.setdefault(output, set()).add(fault.node if nodes else fault.worker)
        tries = Counter((output, fault.task) for output, fault in seen)
        again = {output for (output, _), count in tries.items() if count >= self.errors}
        return [
            Remake(*output, f"{len(who)} {'nodes' if nodes else 'workers'} could not read it")
            if len(who) >= self.readers
            else Remake(*output, f"it could not be read {self.errors} times, and nobody else tried")
            for output, who in witnesses.items()
            if len(who) >= self.readers or output in again
        ]

    def _workers(self, view: BlameView, faults: Sequence[Fault]) -> list[Decision]:
        room = min(int(len(view.workers) * self.share), len(view.workers) - 1)
        room -= sum(each.avoided for each in view.workers)
        workers, nodes = _counted(faults)
        if room < 0:
            least_bad = sorted(
                (each for each in view.workers if each.avoided), key=lambda each: len(workers.get(each.worker, ()))
            )
            return [Readmit(each.worker, "too many are avoided") for each in least_bad[:-room]]
        bad = [*self._bad_nodes(view, nodes, faults), *self._bad_workers(view, workers, faults)]
        bad.sort(key=lambda each: (-each[0], each[1].worker))
        decisions: dict[int, Decision] = {}
        for _, each, reason in bad:
            if len(decisions) < room and each.worker not in decisions:
                seconds = min(self.avoid_s * 2.0**each.times, self.forget_s)
                decisions[each.worker] = Avoid(each.worker, seconds, reason, _seen(view, faults))
        return list(decisions.values())

    def _bad_workers(
        self, view: BlameView, counts: _Counts, faults: Sequence[Fault]
    ) -> Iterable[tuple[float, WorkerView, str]]:
        last = {fault.worker: fault.at for fault in faults}
        for each in view.workers:
            count = len(counts.get(each.worker, ()))
            if each.avoided or count < self.least or last[each.worker] <= each.since:
                continue
            others = [len(counts.get(other.worker, ())) for other in view.workers if other is not each]
            usual = sum(others) / max(1, len(others))
            if count > self.times * usual:
                yield count, each, f"{counted(count, 'task')} failed there, {usual:.2g} on another worker"

    def _bad_nodes(
        self, view: BlameView, counts: _Counts, faults: Sequence[Fault]
    ) -> Iterable[tuple[float, WorkerView, str]]:
        last = {fault.node: fault.at for fault in faults}
        there: dict[int, list[WorkerView]] = {}
        for each in view.workers:
            there.setdefault(each.node, []).append(each)
        for node, members in there.items():
            failed = counts.get(node, set())
            if len(failed) < 2 * self.least or len({worker for worker, _ in failed}) < 2:
                continue
            others = len(view.workers) - len(members)
            rest = sum(len(counts.get(other, ())) for other in there if other != node)
            usual = rest / others * len(members) if others else float("inf")
            if len(failed) > self.times * usual:
                reason = f"{counted(len(failed), 'task')} failed on node {node}, {usual:.2g} on as many other workers"
                for each in members:
                    if not each.avoided and last[node] > each.since:
                        yield len(failed) / len(members), each, reason


def _counted(faults: Iterable[Fault]) -> tuple[_Counts, _Counts]:
    """Return the failed tasks by worker and by node: each task once for each worker, none that fails everywhere."""
    tried: dict[_Task, set[int]] = {}
    for fault in faults:
        tried.setdefault(fault.task, set()).add(fault.worker)
    workers: _Counts = {}
    nodes: _Counts = {}
    for fault in faults:
        if len(tried[fault.task]) < _EVERYWHERE:
            workers.setdefault(fault.worker, set()).add((fault.worker, fault.task))
            nodes.setdefault(fault.node, set()).add((fault.worker, fault.task))
    return workers, nodes


def _seen(view: BlameView, faults: Sequence[Fault]) -> str:
    workers = counted(len(view.workers), "worker")
    return f"{counted(len(faults), 'failure')} within {view.now - faults[0].at:.3g} s on {workers}"
