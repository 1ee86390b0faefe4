"""The reasons why tasks of a job have not started, for people and programs.

All is derived from the present state. Requests for slots are known to the pool alone, which adds its part
(`Loop.waits`).
"""

from __future__ import annotations

from collections import Counter
from math import ceil
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct
from msgspec.structs import replace

from weft.engine.machines.bubble import BubbleState
from weft.engine.machines.vertex import ENDED
from weft.engine.notes import NoteKind
from weft.engine.readiness import EARLY, needs_slots
from weft.engine.rows import CANCELLED, COMMITTING, LEASED, PROBING, READY, RUNNING, UNSCHEDULED
from weft.engine.text import change_of, tasks
from weft.graph.logical import Outcome, Role, Trigger
from weft.model.ids import parse_task, task_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from weft.engine.core import Core, RequestRow
    from weft.engine.physical import PhysicalEdge, Stage

INPUTS: Final = "inputs"
CHOICE: Final = "choice"
WIDTH: Final = "width"
MANAGER: Final = "manager"
FINAL: Final = "final"
HELD: Final = "held"
RETRY: Final = "retry"
RESTART: Final = "restart"
CACHE: Final = "cache"
TOKENS: Final = "tokens"
BUBBLE: Final = "bubble"
SLOTS: Final = "slots"
"""Tasks with a request to the pool."""
WORKER: Final = "worker"
"""Tasks that the next idle worker may take."""
_MOST: Final = 5
_STARTED: Final = (LEASED, RUNNING, COMMITTING)


class Wait(Struct, frozen=True):
    """One reason: `subject` is a vertex or task as displayed, `n` the number of its tasks that wait for it.

    `kind` is one of the words above, for programs; `text` is a clause about the subject. `request` is the number of a
    request to the pool, 0 if there is none; other processes have no use for it.
    """

    subject: str
    kind: str
    text: str
    n: int = 1
    request: int = 0

    def line(self) -> str:
        """Return the reason in one line."""
        return f"{self.subject}: {self.text}"

    def to_json(self) -> dict[str, Any]:
        """Return the same as JSON values."""
        return {"subject": self.subject, "kind": self.kind, "text": self.text, "n": self.n}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Wait:
        """Return the object that `to_json` wrote. KeyError: it is no such object."""
        return cls(document["subject"], document["kind"], document["text"], document["n"])


def waits(core: Core, subject: str, now: float | None = None) -> tuple[Wait, ...]:
    """Return why tasks of a vertex, of a label, or one task (`vertex[3]`) wait; "" is the whole job.

    Tasks that run, and vertices that have ended, have no reason. `now` is in seconds of the loop's clock; None for a
    job without a loop, which was replayed from its journal: its notes then stand for the pool.
    """
    found: list[Wait] = []
    for stage, index in _subjects(core, subject):
        if stage.status not in ENDED:
            reasons = _of_stage(core, stage, index, now)
            found += reasons if now is not None else [_recalled(core, stage, each) for each in reasons]
    return tuple(found)


def _recalled(core: Core, stage: Stage, wait: Wait) -> Wait:
    """Add the wait for nodes that the history has for a request."""
    row = core.requests.get(wait.request)
    if row is None:
        return wait
    subject = core.bubbles[row.bubble].bubble.id if row.stage is None else stage.id
    subject = task_name(stage.id, row.index) if row.index >= 0 else subject
    awaited = [note for note in core.ring if note.kind is NoteKind.NODES_AWAITED and note.subject == subject]
    return replace(wait, text=f"{wait.text}; {change_of(awaited[-1])}") if awaited else wait


def _subjects(core: Core, subject: str) -> list[tuple[Stage, int | None]]:
    if not subject:
        return [(stage, None) for stage in core.order]
    try:
        name, index, _ = parse_task(subject)
    except ValueError:
        name, index = subject, None
    named = [stage for stage in core.order if name in (stage.id, stage.vertex.label)]
    own = [stage for stage in named if stage.vertex.role is Role.OWN]
    return [(stage, index) for stage in own or named]


def _of_stage(core: Core, stage: Stage, index: int | None, now: float | None) -> list[Wait]:
    if stage.n < 0:
        return [Wait(stage.vertex.shown, *_unknown_width(core, stage), n=0)]
    if index is not None and not 0 <= index < stage.n:
        return []
    indices = range(stage.n) if index is None else (index,)
    by_state: dict[int, list[int]] = {}
    for i in indices:
        by_state.setdefault(stage.state[i], []).append(i)
    stopped = by_state.get(CANCELLED, []) if stage.control is not None else []
    found = _unscheduled(core, stage, sorted(by_state.get(UNSCHEDULED, []) + stopped), now)
    found += _probing(core, stage, by_state.get(PROBING, []))
    found += _ready(core, stage, by_state.get(READY, []), core.now if now is None else now)
    return found


def _wait(core: Core, stage: Stage, which: Sequence[int], kind: str, text: str, request: int = 0) -> Wait:
    """Make a reason of some tasks: the subject is the task if there is one, and else the vertex."""
    from weft.engine.explain import shown  # most jobs explain nothing

    alone = len(which) == 1 and stage.n > 1
    name = shown(core, task_name(stage.id, which[0])) if alone else stage.vertex.shown
    if not alone and stage.n > 1:
        text = f"{tasks(len(which))}: {text}" if len(which) < stage.n else text
    return Wait(name, kind, text, len(which), request)


def _unknown_width(core: Core, stage: Stage) -> tuple[str, str]:
    from weft.engine.explain import planned_width

    width = planned_width(stage.vertex)
    sources = [link.src.vertex.shown for link in _links(stage) if link.src.status not in ENDED]
    after = f", which follows from {_listed(sources)}" if sources else ""
    return WIDTH, f"waits for its number of tasks ({width}){after}"


# ------------------------------------------------------------------------------------------------------ before inputs


def _unscheduled(core: Core, stage: Stage, which: list[int], now: float | None) -> list[Wait]:
    found: list[Wait] = []
    paused = [i for i in which if stage.retry_at is not None and i in stage.retry_at]
    for i in paused:
        assert stage.retry_at is not None
        failed = stage.attempt(i)
        pause = max(0.0, stage.retry_at[i] - (core.now if now is None else now))
        text = f"waits {pause:.3g} s before its next attempt; {failed} failed{_last_failure(core, stage, i)}"
        found.append(_wait(core, stage, [i], RETRY, text))
    rest = [i for i in which if i not in paused]
    if not rest:
        return found
    inputs = _inputs(stage, rest, live=now is not None)
    if stage.control is not None:
        held = [i for i in rest if stage.control.held[i]]
        rest = [i for i in rest if not stage.control.held[i]]
        found += [_wait(core, stage, held, HELD, "is held by the controller of the run")] if held else []
    kinds = [
        (CHOICE, _undecided(core, stage, ready=not inputs)),
        (INPUTS, inputs),
        (MANAGER, _unreleased(stage, rest)),
        (RESTART, "waits for the restart of its region" if stage.restarting else ""),
        (FINAL, "waits for the end of all other steps" if stage.vertex.final and core.verdict is None else ""),
    ]
    reasons = [_wait(core, stage, rest, kind, text) for kind, text in kinds if text and rest]
    return found + reasons


def _last_failure(core: Core, stage: Stage, index: int) -> str:
    name = task_name(stage.id, index)
    last = next((n for n in reversed(core.ring) if n.subject == name and n.kind is NoteKind.ATTEMPT_FAILED), None)
    return "" if last is None else f": {last.data['message'].partition(chr(10))[0]}"  # the rest tells of its log


def _undecided(core: Core, stage: Stage, *, ready: bool) -> str:
    """Return the choices that a stage waits for; those of helpers only if its inputs are ready."""
    from weft.engine.explain import shown

    rows = [row for row in core.branched.get(stage.id, ()) if not row.taken]
    made = [(row.choice.id, core.by_id[row.choice.decider].vertex) for row in rows]
    deciders = [f"{shown(core, id)}, which {by.shown} makes" for id, by in made if by.role is Role.OWN]
    if deciders:
        return f"waits for the choice {_listed(deciders)}"
    asked = ["its condition" if by.label == stage.vertex.label else f"the condition of {by.label}" for _, by in made]
    return f"waits for {_listed(asked)}" if asked and ready else ""


def _unreleased(stage: Stage, which: Sequence[int]) -> str:
    held = [i for i in which if 0 <= stage.released <= i]
    if not held or stage.vertex.manager is None:
        return ""
    return f"waits for its manager {stage.vertex.manager.name}, which has let {stage.released:,} of {stage.n:,} start"


def _inputs(stage: Stage, which: Sequence[int], *, live: bool) -> str:
    shut = [_gate(link, live=live) for link in _links(stage) if link.gate and not link.opened]
    narrow = [link for link in stage.inputs if not link.gate and link.src.finished < max(link.src.n, 1)]
    lacking = [_progress(link.src, live=live) for link in narrow if _lacks(link, which)]
    return f"waits for {_listed([*shut, *lacking])}" if shut or lacking else ""


def _links(stage: Stage) -> Iterator[PhysicalEdge]:
    """Yield the inputs of a stage; in place of a helper, the inputs that the helper waits for."""
    todo, seen = list(reversed(stage.inputs)), set()
    while todo:
        link = todo.pop()
        if link.src.vertex.role is Role.OWN:
            if link.src.index not in seen:
                seen.add(link.src.index)
                yield link
        elif link.src.status not in ENDED:
            todo += reversed(link.src.inputs)


def _lacks(link: PhysicalEdge, which: Sequence[int]) -> bool:
    """Whether one of these tasks may wait for a task of the source, each of which is read one to one or by router."""
    if link.src.status not in ENDED:
        return True
    return any(state == UNSCHEDULED for state in link.src.state)


def _gate(link: PhysicalEdge, *, live: bool) -> str:
    scheduling = link.edge.scheduling
    if scheduling.when is Trigger.EVENT:
        return f"the event {scheduling.event!r} of {link.src.vertex.shown}"
    reached = scheduling.concurrent or link.src.finished >= ceil(scheduling.fraction * link.src.n)
    if scheduling.when in EARLY and reached and needs_slots(link):
        return f"the start of all tasks of {link.src.vertex.shown}, since it would hold a slot that they need"
    if scheduling.concurrent:
        return f"the start of {link.src.vertex.shown}"
    if scheduling.when is Trigger.FRACTION:
        return f"{scheduling.fraction:.0%} of {_progress(link.src, live=live)}"
    outcome = "" if scheduling.outcome is Outcome.SUCCESS else " in any outcome"
    progress = _progress(link.src, live=live)
    return f"the end of {progress}{outcome}" if not link.data else progress


def _progress(stage: Stage, *, live: bool) -> str:
    if stage.n < 0:
        return f"{stage.vertex.shown} (number of tasks not known yet)"
    done = f"{stage.finished:,} of {tasks(stage.n)} finished"
    running = live and sum(state in _STARTED for state in stage.state)
    return f"{stage.vertex.shown} ({done}, {running:,} running)" if running else f"{stage.vertex.shown} ({done})"


# ------------------------------------------------------------------------------------------------- cache and tokens


def _probing(core: Core, stage: Stage, which: Sequence[int]) -> list[Wait]:
    """Return the waits for an answer of the cache, which may come only when another run has made the result."""
    last = {note.subject: note for note in core.ring if note.kind in _CACHE} if which else {}
    found: list[Wait] = []
    probing: list[int] = []
    for i in which:
        note = last.get(task_name(stage.id, i))
        if note is not None and note.kind is NoteKind.CACHE_WAITS:
            found.append(_wait(core, stage, [i], CACHE, change_of(note)))
        else:
            probing.append(i)
    if probing:
        found.append(_wait(core, stage, probing, CACHE, "waits for the answer of the cache"))
    return found


_CACHE: Final = (NoteKind.CACHE_WAITS, NoteKind.CACHE_MISS, NoteKind.CACHE_HIT)


def _ready(core: Core, stage: Stage, which: Sequence[int], now: float) -> list[Wait]:
    if not which:
        return []
    if stage.bubble >= 0 and not stage.light:
        return [_in_bubble(core, stage, which)]
    requests = [row for row in core.requests.values() if row.stage is stage and not row.granted]
    special = {row.index: row for row in requests if row.index >= 0}
    found = [_wait(core, stage, [i], SLOTS, _asks(special[i], core), special[i].id) for i in which if i in special]
    rest = [i for i in which if i not in special]
    common = [row for row in requests if row.index < 0]
    if not rest:
        return found
    lacking = _lacking_tokens(core, stage)
    if common:
        found.append(_wait(core, stage, rest, SLOTS, _asks(common[0], core), common[0].id))
    elif lacking:
        found.append(_wait(core, stage, rest, TOKENS, lacking))
    elif not stage.light:
        but = _excluded(core)
        other = [i for i in rest if (stage.index, i) in core.elsewhere]
        for i in other:
            pause = max(0.0, core.elsewhere[stage.index, i] - now)
            text = f"waits up to {pause:.3g} s for another worker than the one on which it failed{but}"
            found.append(_wait(core, stage, [i], WORKER, text))
        if rest := [i for i in rest if i not in other]:
            found.append(_wait(core, stage, rest, WORKER, f"waits for an idle worker{but}"))
    return found


def _excluded(core: Core) -> str:
    avoided = sorted(core.avoided.keys() & core.workers.keys())
    return f"; excluded after failures: worker {_listed(list(map(str, avoided)))}" if avoided else ""


def _in_bubble(core: Core, stage: Stage, which: Sequence[int]) -> Wait:
    row = core.bubbles[stage.bubble]
    if row.never:
        return _wait(core, stage, which, SLOTS, row.never)
    request = core.requests.get(row.request if row.state is BubbleState.WAITING else row.more)
    if request is not None:
        return _wait(core, stage, which, SLOTS, _asks(request, core), request.id)
    others = [s.vertex.shown for s in row.stages if s is not stage and s.status not in ENDED]
    if row.state is BubbleState.FORMING:
        text = f"waits until all vertices of the bubble {row.bubble.id} can start: with {_listed(others)}"
    else:
        text = f"waits for a slot of the bubble {row.bubble.id}, which it shares with {_listed(others)}"
    return _wait(core, stage, which, BUBBLE, text)


def _asks(request: RequestRow, core: Core) -> str:
    """Return what a request asks for."""
    if request.stage is not None:
        return f"asks for {_resources(request.alternatives)}"
    row = core.bubbles[request.bubble]
    counts = {id: count for id, count, *_ in row.asked} if row.controlled else {s.id: s.n for s in row.stages}
    parts = [
        f"{tasks(counts[stage.id])} of {stage.vertex.shown} with {_resources(stage.resources)}"
        for stage in row.stages
        if stage.id in counts
    ]
    return f"asks at once, for the bubble {row.bubble.id}, for {_listed(parts)}"


def _resources(alternatives: Iterable[object]) -> str:
    return " or ".join(map(str, alternatives))


def _lacking_tokens(core: Core, stage: Stage) -> str:
    """Return which tokens the stage waits for, and which vertices hold them."""
    lacking = [(name, count) for name, count in stage.resources[0].tokens if core.tokens.get(name, 0) < count]
    parts = []
    for name, count in lacking:
        free, limit = core.tokens.get(name, 0), core.graph.limits.get(name, 0)
        holders = _listed([f"{who} ({held:,})" for who, held in _holders(core, name).most_common()])
        held = f", held by {holders}" if holders else ""
        parts.append(f"{count:,} of {name!r}: {free:,} of {limit:,} free{held}")
    return f"waits for tokens, {_listed(parts)}" if parts else ""


def _holders(core: Core, token: str) -> Counter[str]:
    """Return the vertices whose tasks hold a token, with its count: leases, and requests that wait for slots."""
    held: Counter[str] = Counter()
    for lease in core.leases.values():
        for stage, lo, hi in lease.spans():
            for name, count in stage.resources[0].tokens:
                if name == token:
                    held[stage.vertex.shown] += count * (hi - lo)
    for row in core.requests.values():
        if row.stage is not None and not row.granted:
            for name, count in row.stage.resources[0].tokens:
                if name == token:
                    held[f"{row.stage.vertex.shown}, which waits for slots"] += count
    return held


def _listed(parts: Sequence[str]) -> str:
    more = f" and {len(parts) - _MOST:,} more" if len(parts) > _MOST else ""
    return ", ".join(parts[:_MOST]) + more
