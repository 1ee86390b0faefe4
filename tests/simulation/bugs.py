"""Faults planted into the product, one at a time: what the checkers of the simulation are worth.

Each bug is a small lie that a change might bring in. It replaces a function wherever the product has it, for the time
of one session, so that nothing of it is in the product.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from msgspec.structs import replace

from weft.durability import journal
from weft.engine import (
    dispatch,
    endings,
    inspector,
    job,
    leases,
    lineage,
    master,
    patching,
    readiness,
    replay,
    requests,
    settle,
    tokens,
)
from weft.engine.commands import Acquire, Free, Probe
from weft.engine.events import Done
from weft.engine.extensions import bubbles, exclusion, regions, speculation
from weft.engine.physical import Intervals
from weft.engine.rows import FATAL, FINISHED, SKIPPED
from weft.graph.logical import Trigger
from weft.runtime.loop import Loop
from weft.runtime.pool import Pool
from weft.worker.link import ReliableLink


@dataclass(frozen=True)
class Bug:
    """A lie: where it is told, and which sessions it is looked for in (words as of the scenarios, `-` for any).

    With `policies` in those where anything may be run twice and anybody be avoided.
    """

    name: str
    where: Any
    attribute: str
    lie: Callable[[Callable[..., Any]], Callable[..., Any]]
    words: str = "-"
    hard: bool = False
    policies: bool = False


def nothing(_: Callable[..., Any]) -> Callable[..., Any]:
    """Do nothing instead."""
    return lambda *_, **__: None


def answers(value: object) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Answer always the same instead."""
    return lambda _: lambda *_, **__: value


def _refs_less_one(true: Callable[..., Any]) -> Callable[..., Any]:
    def count_refs(*args: Any, **kwargs: Any) -> list[int]:
        return [max(1, refs - 1) for refs in true(*args, **kwargs)]

    return count_refs


def _opens_for_order_only(true: Callable[..., Any]) -> Callable[..., Any]:
    def gate_opens(core: Any, link: Any) -> bool:
        return true(core, link) or (link.edge.scheduling.when is Trigger.ALL_DONE and link.src.finished > 0)

    return gate_opens


def _takes_the_last_twice(true: Callable[..., Any]) -> Callable[..., Any]:
    def take(self: Intervals, most: int) -> tuple[int, int]:
        lo, hi = true(self, most)
        if hi - lo > 1:
            self.add(hi - 1, hi)
        return lo, hi

    return take


def _takes_what_is_over(true: Callable[..., Any]) -> Callable[..., Any]:
    def on_done(core: Any, event: Done) -> None:
        lease = core.leases.get(event.lease)
        true(core, event)
        if lease is not None and lease.stage.n > 1:
            core.leases[event.lease] = lease

    return on_done


def _loses_no_node(true: Callable[..., Any]) -> Callable[..., Any]:
    return lambda core, event: true(core, replace(event, node_lost=False))


def _skips_one_ready(true: Callable[..., Any]) -> Callable[..., Any]:
    return lambda core, stage, lo, hi: true(core, stage, lo, hi - 1) if hi - lo > 2 else true(core, stage, lo, hi)


def _carries_out_at_once(_: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, job, commands, when_durable: commands


def _pending_without(*kinds: type[Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def lie(true: Callable[..., Any]) -> Callable[..., Any]:
        def replay(*args: Any) -> Any:
            pending = true(*args)
            return replace(pending, commands=tuple(c for c in pending.commands if not isinstance(c, kinds)))

        return replay

    return lie


def _claims_when_asked(_: Callable[..., Any]) -> Callable[..., Any]:
    return lambda core: dispatch._best(core, -1) is not None


def _reads_damage(_: Callable[..., Any]) -> Callable[..., Any]:
    def frames(data: bytes) -> tuple[list[bytes], int]:
        found, at = [], len(journal._MAGIC)
        while at + 8 <= len(data):
            length, _check = journal._FRAME.unpack_from(data, at)
            payload = data[at + 8 : at + 8 + length]
            found.append(payload)
            at += 8 + len(payload)
        return found, at

    return frames


def _repeats_nothing(true: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, now: [frame for frame in true(self, now) if not frame.number]


def _out_of_order(true: Callable[..., Any]) -> Callable[..., Any]:
    def take(self: ReliableLink, frame: Any, now: float) -> list[Any]:
        if frame.number > self._wanted and frame.session == self.session and frame.number not in self._early:
            self._early[frame.number] = nothing
            return [frame.message]
        return [message for message in true(self, frame, now) if message is not nothing]

    return take


def _frees_beside_nobody(true: Callable[..., Any]) -> Callable[..., Any]:
    def let_go(self: Pool, key: Any) -> Any:
        held = true(self, key)
        held.siblings = ()
        return held

    return let_go


def _forgets_what_is_hidden(true: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args: true(*args) and []


def _frees_what_is_not_read(_: Callable[..., Any]) -> Callable[..., Any]:
    def remake(core: Any, decision: Any) -> None:
        stage = core.by_id.get(decision.vertex)
        if stage is not None and 0 <= decision.index < stage.n and stage.state[decision.index] == FINISHED:
            core.out.append(Free(stage.id, decision.index, decision.index + 1))

    return remake


def _marks_no(state: int) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def lie(true: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *args: None if args[-1] == state else true(*args)

    return lie


def _one_is_enough(true: Callable[..., Any]) -> Callable[..., Any]:
    def count_missing(*args: Any, **kwargs: Any) -> Any:
        missing = true(*args, **kwargs)
        for at, left in enumerate(missing):
            missing[at] = min(left, 1)
        return missing

    return count_missing


BUGS = [
    Bug("an output is freed before its last reader has finished", readiness, "count_refs", _refs_less_one),
    Bug("a lost output is not made again", settle, "_restore_rows", answers(0)),
    Bug("a task that goes back does not look whether its inputs are there", lineage, "missing_inputs", answers(False)),
    Bug("what a dead node held counts as there", master, "_on_worker_lost", _loses_no_node),
    Bug("tokens are not given back", tokens, "return_tokens", nothing, "resources,"),
    Bug("a worker is not free after its lease", Pool, "free", nothing),
    Bug("cores kept beside a task are not given back", Pool, "_release_slot", _frees_beside_nobody, "resources,"),
    Bug("a granted slot is not given back", requests, "slot_over", nothing, "bubbles,"),
    Bug("an order-only edge lets through after the first task", readiness, "gate_opens", _opens_for_order_only),
    Bug("what depends on a failed task is not given up", settle, "mark", _marks_no(FATAL), "retries,"),
    Bug("a cancelled job leaves its outputs behind", job, "free_everything", nothing),
    Bug("an ended job leaves what is no result behind", job, "free_leftovers", nothing),
    Bug("a service is not stopped after its consumers", settle, "_drain", nothing, "services,"),
    Bug("a queued task is given up and stays queued", readiness, "unqueue", nothing),
    Bug("a task is given to two workers", Intervals, "take", _takes_the_last_twice),
    Bug("a lease that is over can be reported again", endings, "on_done", _takes_what_is_over),
    Bug("what a worker gives back is not given out again", endings, "put_back", nothing),
    Bug("one of many ready tasks is not queued", readiness, "make_ready", _skips_one_ready),
    Bug("readers of a vertex that ends early are not told", settle, "mark", _marks_no(SKIPPED), "managers,"),
    Bug("a branch that is not taken is not skipped", settle, "end_rest", nothing, "choices,"),
    Bug("the answer of an expander is thrown away", patching, "expanded", answers(""), "expanders,"),
    Bug("a refused gang waits on", bubbles, "shrink", nothing, "bubbles,"),
    Bug("a region that has stopped does not start again", regions, "region_quiet", nothing, "streams,"),
    Bug("of several missing inputs one is counted", readiness, "count_missing", _one_is_enough),
    Bug("outputs are freed before that is on disk", Loop, "_hold_back", _carries_out_at_once, hard=True),
    Bug("requests are forgotten in a recovery", replay.Replay, "pending", _pending_without(Acquire), "bubbles,", True),
    Bug("probes are forgotten in a recovery", replay.Replay, "pending", _pending_without(Probe), "cache,", hard=True),
    Bug("leases of a dead owner count as running", inspector, "losses", answers([]), hard=True),
    Bug("to ask whether a job wants workers changes it", dispatch, "has_ready", _claims_when_asked, hard=True),
    Bug("a torn record is read", journal, "_frames", _reads_damage, hard=True),
    Bug("a lost message is not repeated", ReliableLink, "due", _repeats_nothing, hard=True),
    Bug("messages are taken out of order", ReliableLink, "take", _out_of_order, hard=True),
    Bug("silence tells nothing", ReliableLink, "lost", answers(False), hard=True),
    Bug("a task for another worker waits on", exclusion, "_serve_elsewhere", _forgets_what_is_hidden, policies=True),
    Bug("who has lost a race is not cancelled", leases, "_cancel_attempt", nothing, policies=True),
    Bug("a backup starts though what it reads is gone", speculation, "_can_start", answers(True), policies=True),
    Bug("the backups of a dead worker count as running", leases, "attempts_on", answers([]), "-", True, True),
    Bug("what a lease gave back its rival still holds", leases, "narrow", nothing, ",", True, True),
    Bug("what is made again is freed under its readers", lineage, "_start_again", nothing, "-", True, True),
    Bug("what cannot be read is freed and not remade", exclusion, "_remake", _frees_what_is_not_read, policies=True),
]  # fmt: skip


@contextmanager
def planted(bug: Bug) -> Iterator[None]:
    """Tell the lie, in every module of the product that has imported what it replaces."""
    true = getattr(bug.where, bug.attribute)
    lie = bug.lie(true)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bug.where, bug.attribute, lie)
        if not isinstance(bug.where, type):
            for name, module in list(sys.modules.items()):
                if name.startswith(("weft.", "tests.simulation.")) and vars(module).get(bug.attribute) is true:
                    patch.setattr(module, bug.attribute, lie)
        for table in (master.OWN_HANDLERS, master.HANDLERS):
            for kind in [kind for kind, handler in table.items() if handler is true]:
                patch.setitem(table, kind, lie)
        yield


__all__ = ["BUGS", "Bug", "planted"]
