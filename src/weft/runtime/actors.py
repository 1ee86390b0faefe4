"""Actors of a session and of a graph: tasks whose object other tasks and the program call (`weft.worker.actors`)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypedDict

from weft.graph.builder import Graph
from weft.graph.logical import Retry
from weft.model.errors import UsageError
from weft.model.ids import NAME, as_name
from weft.model.resources import Resources
from weft.runtime.arguments import text, whole, wrong
from weft.runtime.lent_actors import lend_to_cluster, tell_end
from weft.worker.actors import SERVE, ActorAddress, ActorHandle, ActorOptions, handle_of, new_address

if TYPE_CHECKING:
    from collections.abc import Mapping

    from weft.graph.arguments import VertexFields
    from weft.graph.builder import VertexHandle
    from weft.runtime.session import EngineSession

_NOT: Final = "simulator"
"""The backend whose tasks do not run at the same time."""


class ActorFields(TypedDict, total=False):
    """The options of an actor.

    `kwargs` are further arguments of its class. Up to `max_concurrency` (default: 1) of its methods run at a time;
    coroutine functions do so in any number. A caller waits while `max_pending` (1,000) of its calls have no answer. An
    actor whose attempt has ended begins again `restarts` (0) times, without its state. `resources` (default: no core)
    decide where it runs: beside the master, or with a core in a worker.
    """

    name: str
    kwargs: Mapping[str, Any]
    max_concurrency: int
    max_pending: int
    restarts: int
    resources: Resources


def add_actor(
    graph: Graph, kind: type[Any], *args: Any, options: ActorFields | None = None
) -> tuple[VertexHandle, ActorHandle]:
    """Add an actor `kind(*args)` to a graph: a SERVICE vertex, and the handle by which tasks call it.

    Give the vertex as an input to the vertices that call it, and the handle as one of their `params`. The actor begins
    before them, and ends with the last of them. UsageError: a wrong option, or no class.
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
    run = session.submit(graph)
    run.when_done(partial(tell_end, handle, run.job))

    def stop() -> None:
        run.stop(reason="the actor was stopped")
        run.wait()

    handle._stop = stop
    return handle


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
    pending = whole("max_pending", given.get("max_pending", 1_000), lo=1)
    name = text("name", given.get("name", as_name(getattr(kind, "__name__", "actor"))))
    if NAME.fullmatch(name) is None:
        raise wrong("name", name, "letters of English, digits, '_', '.', '-' and '/', with a letter or digit first")
    address = new_address(kind, name, pending)
    params = {
        "address": address,
        "options": ActorOptions(kind, args, dict(given.get("kwargs", {})), concurrency, restarts),
    }
    retry = Retry(user=restarts, memory=restarts, infrastructure=restarts, crash=restarts)
    return address, params, {"resources": resources, "retry": retry, "idempotent": False}


_NO_CORE: Final = Resources(cpu=0)
