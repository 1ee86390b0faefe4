"""Calls of vertex managers: which managers listen to which stages, their views, and the handling of their decisions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any, cast

import msgspec

from weft.engine.decisions import Fail, Schedule, SetParallelism, check_form
from weft.engine.machines.vertex import ENDED, VertexState
from weft.engine.notes import NoteKind, data_of, figures_of
from weft.engine.policy import JOB_POLICY, InputView, Moment, View
from weft.engine.rows import FINISHED, FREED
from weft.graph.arguments import check_params
from weft.graph.logical import Range, VertexKind
from weft.model.errors import GraphError, WeftError

if TYPE_CHECKING:
    from weft.engine.core import Core
    from weft.engine.decisions import Decision
    from weft.engine.physical import Stage
    from weft.engine.policy import JobController, ManagerFactory, VertexManager
    from weft.graph.logical import Edge, LogicalGraph, Manager, Vertex


def make(managers: Mapping[str, ManagerFactory], vertex: Vertex) -> VertexManager:
    """Make the manager of a vertex. GraphError: no manager has that name, or its parameters are wrong."""
    assert vertex.manager is not None
    return _make(managers, vertex.manager, "manager", f"vertex {vertex.id!r}", vertex.id)


def make_controller(managers: Mapping[str, ManagerFactory], wanted: Manager) -> JobController:
    """Make the controller of a job; errors as `make`."""
    made = _make(managers, wanted, "controller", "the graph", "")
    assert made.of_job
    return cast("JobController", made)


def _make(
    managers: Mapping[str, ManagerFactory], wanted: Manager, role: str, place: str, subject: str
) -> VertexManager:
    known = sorted(name for name in managers if not name.startswith(JOB_POLICY))
    if wanted.name not in known:
        raise GraphError(
            f"{place} has the unknown {role} {wanted.name!r}",
            subject=subject,
            rule=role,
            hint=f"Registered managers and controllers: {', '.join(known) or 'none'}. "
            "The module that registers one must be imported in this process.",
        )
    factory = managers[wanted.name]
    owner = f"the {role} {wanted.name!r} of {place}"
    try:
        made = _called(owner, factory, wanted.params)
    except GraphError as error:
        message = error.message if owner in error.message else f"{owner}: {error.message}"
        raise GraphError(message, subject=subject, rule=role, hint=error.hint) from None
    except Exception as error:
        raise GraphError(
            f"{owner} cannot be made: {type(error).__name__}: {error}", subject=subject, rule=role
        ) from error
    if made.of_job != (role == "controller"):
        other = "decides for a whole job" if made.of_job else "decides for one vertex"
        raise GraphError(f"{place} has the {role} {wanted.name!r}, which {other}", subject=subject, rule=role)
    return made


def _called(owner: str, factory: ManagerFactory, params: Mapping[str, Any]) -> VertexManager:
    """Call a factory. GraphError: an unknown, missing or wrong parameter, by the annotations of the factory."""
    check_params(owner, "", params)
    kind = getattr(factory, "__wrapped__", factory)
    hints = _hints_of(kind)
    try:
        if not all(_is_a(value, hints[name]) for name, value in params.items() if name in hints):
            _check_parameters(owner, kind, params)
        made: VertexManager = factory(**params)
    except TypeError:
        _check_parameters(owner, kind, params)
        raise
    return made


def _check_parameters(owner: str, kind: Any, params: Mapping[str, Any]) -> None:
    """Raise GraphError for an unknown, missing or wrong parameter. Only what was refused comes here: it takes long."""
    named, takes_any = _parameters_of(kind)
    takes = f"Parameters: {', '.join(named) or 'none'}."
    for name in params:
        if name not in named and not takes_any:
            raise GraphError(f"{owner} has no parameter {name!r}", hint=takes)
    hints = _hints_of(kind)
    for name, (required, text) in named.items():
        if name not in params:
            if required:
                raise GraphError(f"{owner} has no {name}", hint=f"Give it in the params. {takes}")
        elif name in hints and not _is_a(params[name], hints[name]):
            raise GraphError(f"{owner} has {name}={params[name]!r}, which is no {text}", hint=takes)


@cache
def _hints_of(kind: Any) -> dict[str, Any]:
    """Return the types of the parameters of a factory that are known."""
    from typing import get_type_hints

    with suppress(AttributeError, NameError, TypeError):  # a function, or annotations for type checkers alone
        return get_type_hints(next(vars(one)["__init__"] for one in kind.__mro__ if "__init__" in vars(one)))
    return {}


@cache
def _parameters_of(kind: Any) -> tuple[dict[str, tuple[bool, str]], bool]:
    """Return the parameters of a factory, whether each is required and the text of its type, and whether any other
    name is taken.
    """
    from inspect import Parameter, signature

    parameters = signature(kind).parameters.values()
    named = {
        each.name: (
            each.default is Parameter.empty,
            each.annotation.__name__ if isinstance(each.annotation, type) else str(each.annotation),
        )
        for each in parameters
        if each.kind in (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
    }
    return named, any(each.kind is Parameter.VAR_KEYWORD for each in parameters)


def _is_a(value: Any, kind: Any) -> bool:
    try:
        msgspec.convert(value, kind, strict=True)
    except msgspec.ValidationError:
        return False
    except TypeError:  # a type of the user's own
        return True
    return True


def check_managers(
    managers: Mapping[str, ManagerFactory], vertices: Iterable[Vertex], graph: Callable[[], LogicalGraph]
) -> None:
    """Raise GraphError for the first manager of `vertices` that is unknown or cannot decide in `graph()`."""
    managed = [vertex for vertex in vertices if vertex.manager is not None]
    whole = graph() if managed else None
    inputs: dict[str, list[Edge]] = {vertex.id: [] for vertex in managed}
    for edge in whole.edges if whole is not None else ():
        if edge.dst in inputs:
            inputs[edge.dst].append(edge)
    for vertex in managed:
        assert whole is not None
        try:
            make(managers, vertex).check(vertex, inputs[vertex.id], whole)
        except GraphError as error:
            error.subject, error.rule = vertex.id, error.rule or "manager"
            raise


def check_controller(managers: Mapping[str, ManagerFactory], graph: LogicalGraph) -> None:
    """Raise GraphError if the controller of a graph is unknown or cannot decide for it."""
    if graph.controller is not None:
        make_controller(managers, graph.controller).check_graph(graph)


def install(core: Core, stages: Sequence[Stage]) -> None:
    """Make the managers of new stages and register them with their sources."""
    for stage in stages:
        if stage.vertex.manager is None:
            continue
        stage.manager = make(core.managers, stage.vertex)
        if stage.manager.holds:
            stage.released = 0
        stage.listeners += (stage.index,)
        for link in stage.inputs:
            link.src.listeners += (stage.index,)
        core.tell(stage, Moment.STARTED)


def consult(core: Core, apply: Callable[[Core, Decision], None]) -> None:
    """Call the manager of each dirty vertex in graph order, and `apply` its decisions."""
    while core.dirty or core.unasked:
        asked = bool(core.dirty)
        open_ones = core.dirty if asked else core.unasked
        index = min(open_ones)
        open_ones.discard(index)
        stage = core.stages[index]
        if stage.manager is None:
            continue
        if asked:
            _ask(core, stage, stage.manager, apply)
        _go_on_without(core, stage, stage.manager, apply)


def _ask(core: Core, stage: Stage, manager: VertexManager, apply: Callable[[Core, Decision], None]) -> None:
    view = view_of(core, stage)
    decisions: Sequence[Decision]
    try:
        decisions, stage.memo = answer_of(manager, view, stage.memo)
    except WeftError as error:
        core.note(stage.id, NoteKind.MANAGER_FAILED, error.message)
        decisions = (Fail(stage.id, error.message),)
    seen = figures_of(view) if decisions else {}
    for decision in decisions:
        try:
            check_form(decision)
            core.note(stage.id, NoteKind.MANAGER_DECIDED, data_of(decision, stage.id), seen)
            core.claim(f"the manager of {stage.id}", decision)
            apply(core, decision)
        except WeftError as error:
            core.note(stage.id, NoteKind.DECISION_REJECTED, error.message)
            break  # the rest of the answer relies on it


def answer_of(manager: VertexManager, view: Any, memo: Any) -> tuple[tuple[Decision, ...], Any]:
    """Return the answer of a manager. WeftError: it raised an exception, or answered in another form."""
    try:
        answer = manager.decide(view, memo)
    except WeftError:
        raise
    except Exception as error:
        frame = error.__traceback__
        while frame is not None and frame.tb_next is not None:
            frame = frame.tb_next
        at = f" ({frame.tb_frame.f_code.co_filename}, line {frame.tb_lineno})" if frame is not None else ""
        raise GraphError(
            f"{decider_of(view)} raised {type(error).__name__}: {error}{at}", subject=view.vertex, rule="manager"
        ) from error
    if type(answer) is not tuple or len(answer) != 2 or type(answer[0]) not in (list, tuple):
        raise GraphError(
            f"{decider_of(view)} answered {answer!r:.200}, not (decisions, memo)",
            subject=view.vertex,
            rule="manager",
            hint="Return a list of decisions, which may be empty, and the memo for the next call.",
        )
    return tuple(answer[0]), answer[1]


def decider_of(view: Any) -> str:
    """Return the name of the policy that a view is for, for messages."""
    return f"the manager of {view.vertex!r}" if view.vertex else "the controller of the job"


def _go_on_without(core: Core, stage: Stage, manager: VertexManager, apply: Callable[[Core, Decision], None]) -> None:
    """Decide as without a manager what a manager has left open that is not asked again."""
    finite = [link.src for link in stage.inputs if link.src.vertex.kind is VertexKind.FINITE]
    if stage.status is VertexState.CONFIGURING and all(src.status in ENDED for src in finite):
        width = stage.vertex.parallelism
        if isinstance(width, Range):
            core.note(stage.id, NoteKind.MANAGER_SILENT, width.hi)
            apply(core, SetParallelism(stage.id, width.hi))
    if not 0 <= stage.released < stage.n or stage.over == stage.n or stage.index in core.dirty:
        return
    moments = manager.moments
    going = [link.src for link in stage.inputs if link.src.status not in ENDED]
    asked_by_sources = any(
        Moment.EVENT in moments or (Moment.SOURCE_ENDED in moments and src.vertex.kind is VertexKind.FINITE)
        for src in going
    )
    asked_by_own = Moment.FINISHED in moments and (stage.executing or stage.over < stage.released)
    if not asked_by_sources and not asked_by_own:
        core.note(stage.id, NoteKind.MANAGER_HOLDS, stage.released, stage.n)
        apply(core, Schedule(stage.id, stage.n))


def _bytes_of(stage: Stage) -> int:
    """Return the bytes that a stage wrote, -1 unless each of its tasks was counted."""
    counted = stage.counted.count(1) if stage.counted is not None else 0
    return stage.written if counted == stage.n else -1


def view_of(core: Core, stage: Stage) -> View:
    """Return the view of a manager."""
    inputs = tuple(
        InputView(
            link.edge.id,
            link.src.id,
            link.src.n,
            link.src.finished,
            link.src.status in ENDED,
            link.edge.movement.partitions or (link.router.partitions if link.router is not None else 0),
            core.stats.get(link.edge.id),
            link.src.rows,
            _bytes_of(link.src),
        )
        for link in stage.inputs
    )
    return View(
        core.now,
        stage.id,
        stage.status.value,
        stage.n,
        stage.finished,
        stage.executing,
        stage.released if stage.released >= 0 else stage.n,
        stage.rows,
        len(core.workers),
        inputs,
        core.payloads,
        stage.vertex.program.items,
        stage.over,
        _lost(stage),
        stage.vertex.parallelism if isinstance(stage.vertex.parallelism, Range) else None,
    )


_THERE = bytes(state in (FINISHED, FREED) for state in range(256))


def _lost(stage: Stage) -> int:
    if stage.counted is None:
        return 0
    there = int.from_bytes(stage.state.translate(_THERE))
    return (int.from_bytes(stage.counted) & ~there).bit_count()
