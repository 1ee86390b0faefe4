"""The functions of the phases and timers: one table of each, with those of the extensions.

`Master.handle` walks the table and names none of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from weft.engine import cones, patching, requests
from weft.engine.agenda import Phase
from weft.engine.consulting import consult
from weft.engine.dispatch import dispatch, start_unslotted, unserved
from weft.engine.extensions import (
    bubbles,
    cancels,
    control,
    controllers,
    exclusion,
    probing,
    regions,
    speculation,
    stream_cycles,
    whole,
)
from weft.engine.extensions.registry import combine
from weft.engine.leases import attempt_of, stop
from weft.engine.machines.job import GOING
from weft.engine.machines.lease import ACTIVE
from weft.engine.machines.vertex import ENDED
from weft.engine.readiness import recount
from weft.engine.settle import drain_unread, fail_blocked, restore_wanted, settle_down

if TYPE_CHECKING:
    from weft.engine.core import Core, Handler


def walk(core: Core) -> None:
    """Run the first phase with a non-empty queue until all queues are empty."""
    while core.due:
        first = core.due & -core.due
        core.due ^= first
        _IN_ORDER[first.bit_length() - 1](core)


def _managers(core: Core) -> None:
    if core.status in GOING:
        consult(core, patching.apply)


def _requests(core: Core) -> None:
    requests.serve(core)
    _offer_again(core)


def _unslotted(core: Core) -> None:
    start_unslotted(core)
    _offer_again(core)


def _offer_again(core: Core) -> None:
    """Open gates may have made tasks ready for workers without a lease."""
    if core.offered and core.served:
        core.later(Phase.OFFERS)


def _offers(core: Core) -> None:
    workers = unserved(core, core.offered) if core.served else core.offered
    core.served = True
    if core.restricted:
        for offer in core.hooks.offer:
            offer(core, workers)
    else:
        dispatch(core, workers)
    if core.backups_wanted:
        core.later(Phase.BACKUPS)


EXTENSIONS: Final = tuple(
    module.EXTENSION
    for module in (
        bubbles,
        whole,
        regions,
        stream_cycles,
        probing,
        speculation,
        exclusion,
        control,
        controllers,
        cancels,
    )
)
"""The extensions, each used by few jobs."""
HOOKS: Final = combine(EXTENSIONS)
RUN: Final[dict[Phase, Callable[[Core], None]]] = {
    Phase.DEPENDENTS: settle_down,
    Phase.WANTED: restore_wanted,
    Phase.SERVICES: drain_unread,
    Phase.MANAGERS: _managers,
    Phase.BLOCKED: fail_blocked,
    Phase.CONES: cones.plan,
    Phase.REQUESTS: _requests,
    Phase.UNSLOTTED: _unslotted,
    Phase.OFFERS: _offers,
}
"""The function of each phase."""


def _lease_timed_out(core: Core, id: int) -> None:
    lease = attempt_of(core, id)
    if lease is not None and lease.state in ACTIVE:
        stop(core, lease, "timeout", "timeout")


def _retry_is_due(core: Core, vertex: str, index: int) -> None:
    stage = core.by_id[vertex]
    if stage.retry_at is not None:
        stage.retry_at.pop(index, None)
    if stage.status not in ENDED:
        recount(core, stage)


TIMERS: Final[dict[str, Callable[..., Any]]] = {
    "timeout": _lease_timed_out,
    "retry": _retry_is_due,
}
"""The handler of a timer, by the name of the timer; its other values are the arguments after the core."""
for _extension in EXTENSIONS:
    RUN.update(_extension.phases)
    TIMERS.update(_extension.timers)
_IN_ORDER = tuple(RUN[phase] for phase in Phase)

HEARD: Final = {
    kind: (
        tuple(extension.before[kind] for extension in EXTENSIONS if kind in extension.before),
        tuple(extension.after[kind] for extension in EXTENSIONS if kind in extension.after),
    )
    for extension in EXTENSIONS
    for kind in (*extension.before, *extension.after)
}
"""The events of the extensions, with the handlers before and after that of the core."""


def hearing(kind: type, own: Mapping[type, Handler]) -> Handler:
    """Return the handler of a kind of events in `HEARD`: the core's `own`, if any, with those before and after it."""
    before, after = HEARD[kind]

    def take(core: Core, event: Any) -> None:
        for handler in before:
            handler(core, event)
        if kind in own:
            own[kind](core, event)
        for handler in after:
            handler(core, event)

    return take
