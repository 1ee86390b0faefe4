"""Actors of a session and of a graph: tasks whose object other tasks and the program call (`weft.worker.actors`)."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Final, TypedDict

from weft.graph.builder import Graph
from weft.graph.logical import Retry
from weft.model.errors import UsageError
from weft.model.ids import NAME, as_name
from weft.model.resources import Resources
from weft.runtime.arguments import seconds, text, whole, wrong
from weft.runtime.clock import RealClock
from weft.runtime.lent_actors import lend_to_cluster, tell_end
from weft.worker.actors import (
    FINISH_S,
    SERVE,
    ActorAddress,
    ActorHandle,
    ActorOptions,
    await_answers,
    finish_calls,
    handle_of,
    new_address,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from weft.graph.builder import VertexHandle
    from weft.graph.keywords import VertexFields
    from weft.runtime.run import Run
    from weft.runtime.session import EngineSession

_NOT: Final = "simulator"
"""The backend whose tasks do not run at the same time."""


class ActorFields(TypedDict, total=False):
    """The options of an actor.

    `kwargs` are further arguments of its class. Up to `max_concurrency` (default: 1) of its methods run at a time;
    coroutine functions do so in any number. A caller waits while `max_pending` (1,000) of its calls have no answer. An
    actor whose attempt has ended begins again `restarts` (0) times, without its state. `resources` (default: no core)
    decide where it runs: beside the master, or with a core in a worker. An ordinary end waits at most `finish_s` (60)
    seconds for the answers of the calls that were made before it.
    """

    name: str
    kwargs: Mapping[str, Any]
    max_concurrency: int
    max_pending: int
    restarts: int
    resources: Resources
    finish_s: float


def add_actor(
    graph: Graph, kind: type[Any], *args: Any, options: ActorFields | None = None
) -> tuple[VertexHandle, ActorHandle]:
    """Add an actor `kind(*args)` to a graph: a SERVICE vertex, and the handle by which tasks call it.

    Give the vertex as an input to the vertices that call it, and the handle as one of their `params`. The actor begins
    before them. It ends with the last of them, once it has answered their calls. UsageError: a wrong option, or no
    class.
    """
    if not isinstance(graph, Graph):
        raise wrong("graph", graph, "a weft.Graph")
    address, params, fields = _made(kind, args, options or {})
    node = graph.service(SERVE, name=address.name, params=params, **fields)
    return node, handle_of(address)


def begin_actor(session: EngineSession, kind: type[Any], args: tuple[Any, ...], options: ActorFields) -> ActorHandle:
    """Begin an actor of a session, as `Session.actor`."""
    if session.executor.name == _NOT:
        raise UsageError(
            f"actors need tasks that run at the same time, and not the backend {_NOT!r}",
            hint="Open a Session('threads') or a Session('processes').",
        )
    address, params, fields = _made(kind, args, options)
    graph = Graph(address.name)
    graph.task(SERVE, name=address.name, params=params, **fields)
    handle = handle_of(address)
    lend_to_cluster(handle, session.executor)
    handle._owner = SessionActor(session, session.submit(graph), handle, params["options"].finish_s)
    return handle


class SessionActor:
    """An actor of a session: its run, which goes on until it is stopped."""

    def __init__(self, session: EngineSession, run: Run, handle: ActorHandle, finish_s: float) -> None:
        self._run = run
        self._address = handle._address
        self._finish_s = finish_s
        self._stopping = threading.Lock()
        session.actors[run.id] = self

        def ended() -> None:
            tell_end(handle, run.job)  # its handle, and with it its folder, lives until then
            session.actors.pop(run.id, None)

        run.when_done(ended)

    @property
    def begun(self) -> bool:
        """See `BegunActor.begun`."""
        return bool(self._run.job.leases)

    @property
    def has_worker(self) -> bool:
        """See `BegunActor.has_worker`."""
        return any(launch.worker >= 0 for launch in list(self._run.job.leases.values()))

    def called(self) -> None:
        """See `ActorOwner.called`."""
        self._run.job.unread = False

    def stop(self, *, finish: bool, since: float | None = None) -> None:
        """See `BegunActor.stop`."""
        clock = RealClock()
        try:
            with self._stopping:
                if finish and not self._run.done:
                    self._run.session.check_process()
                    begin = clock.now() if since is None else since
                    finish_calls(self._address, max(begin + self._finish_s - clock.now(), 0.0))
        finally:
            self._run.stop(reason="the actor was stopped")
        self._run.wait()
        await_answers(self._address)


def _made(
    kind: type[Any], args: tuple[Any, ...], given: ActorFields
) -> tuple[ActorAddress, dict[str, Any], VertexFields]:
    """Return the address of a new actor, and the parameters and fields of its vertex."""
    unknown = given.keys() - ActorFields.__annotations__.keys()
    if unknown:
        raise UsageError(
            f"an actor has no option {min(unknown)!r}", hint=f"It has: {', '.join(ActorFields.__annotations__)}"
        )
    resources = given.get("resources", _NO_CORE)
    if not isinstance(resources, Resources):
        raise wrong("resources", resources, "weft.Resources(...)")
    concurrency = whole("max_concurrency", given.get("max_concurrency", 1), lo=1)
    restarts = whole("restarts", given.get("restarts", 0), lo=0)
    finish_s = seconds("finish_s", given.get("finish_s", FINISH_S))
    pending = whole("max_pending", given.get("max_pending", 1_000), lo=1)
    name = text("name", given.get("name", as_name(getattr(kind, "__name__", "actor"))))
    if NAME.fullmatch(name) is None:
        raise wrong("name", name, "letters of English, digits, '_', '.', '-' and '/', with a letter or digit first")
    address = new_address(kind, name, pending)
    params = {
        "address": address,
        "options": ActorOptions(kind, args, dict(given.get("kwargs", {})), concurrency, restarts, finish_s),
    }
    retry = Retry(user=restarts, memory=restarts, infrastructure=restarts, crash=restarts)
    return address, params, {"resources": resources, "retry": retry, "idempotent": False}


_NO_CORE: Final = Resources(cpu=0)
