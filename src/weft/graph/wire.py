"""Graphs and patches as JSON, versioned and strict.

The records of `weft.graph.logical` are their own schema; the classes of this module describe only the parts with
another form in JSON. Fields at their default are left out, and equal graphs have equal text. Unknown fields, duplicate
keys, wrong types, NaN and sizes over the limits are refused with the path of the field. Programs are written as
`"module:function"`: no code travels. The result is well formed, but not yet legal: see `weft.graph.validate`.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from math import isfinite
from typing import Any, Final, NoReturn, TypeVar

from msgspec import Struct, ValidationError, convert, field
from msgspec.structs import asdict

from weft.graph.axes import Axis, AxisOperation, GridMap
from weft.graph.logical import (
    DEFAULT_BACKOFF,
    GRAPH,
    Backoff,
    Bubble,
    Choice,
    Edge,
    LogicalGraph,
    Manager,
    Movement,
    MovementKind,
    OnFailure,
    Outcome,
    Parallelism,
    Patch,
    Range,
    RestartPolicy,
    Role,
    SameAs,
    Scheduling,
    Source,
    Storage,
    Trigger,
    Vertex,
    VertexKind,
)
from weft.graph.preflight import MAX_BYTES, MAX_DEPTH, Json, check_values, parse, shown
from weft.graph.rules.size import MAX_EDGES, MAX_VERTICES
from weft.model.errors import GraphError, InputLimitError, ProgramError
from weft.model.patterns import late_pattern
from weft.model.program import NO_PARAMS, Program, Style
from weft.model.resources import ONE_SLOT, ONE_SLOT_ONLY, Resources
from weft.model.wording import counted

VERSION = 1

S = TypeVar("S", bound=Struct)

# ---------------------------------------------------------------------------------------------------- the JSON schema


class _Program(Struct, forbid_unknown_fields=True):
    target: str
    params: dict[str, Any] = {}
    items: list[Any] | None = None
    style: Style = Style.FUNCTION


class _Parallelism(Struct, forbid_unknown_fields=True):
    """One of three ways to give a parallelism; a fixed number of tasks is written as a plain number."""

    range: list[int] | None = None
    source: str | None = None
    same_as: str | None = None


class _Resources(Resources, frozen=True, forbid_unknown_fields=True):
    tokens: dict[str, int] = field(default_factory=dict)  # type: ignore[assignment]
    custom: dict[str, float] = field(default_factory=dict)  # type: ignore[assignment]


class _Vertex(Vertex, forbid_unknown_fields=True):
    """A vertex whose fields with another form in JSON are replaced; all other fields are those of `Vertex`."""

    program: _Program  # type: ignore[assignment]
    parallelism: int | _Parallelism = 1  # type: ignore[assignment]
    resources: list[_Resources] | None = None  # type: ignore[assignment]


class _Axis(Axis, frozen=True, forbid_unknown_fields=True):
    step: int | None = None  # type: ignore[assignment]


class _Grid(GridMap, frozen=True, forbid_unknown_fields=True):
    axes: tuple[_Axis, ...]


class _Edge(Struct, forbid_unknown_fields=True):
    """An edge with the fields of its movement and scheduling; the defaults of `when` and `storage` depend on these."""

    src: str
    dst: str
    move: MovementKind = MovementKind.ONE_TO_ONE
    partitions: int = 0
    grid: _Grid | None = None
    router: str = ""
    params: dict[str, Any] = {}
    concurrent: bool = False
    when: Trigger | None = None
    fraction: float = 1.0
    event: str = ""
    outcome: Outcome = Outcome.SUCCESS
    storage: Storage | None = None
    blocking: bool = False
    name: str = ""


class _Parts(Struct, forbid_unknown_fields=True):
    """The fields that graphs and patches share."""

    vertices: list[_Vertex] = []
    edges: list[_Edge] = []
    bubbles: list[Bubble] = []
    choices: list[Choice] = []


class _Graph(_Parts, forbid_unknown_fields=True):
    name: str = "graph"
    on_failure: OnFailure = OnFailure.FAIL_FAST
    limits: dict[str, int] = {}
    frontend: str = GRAPH
    backoff: Backoff = DEFAULT_BACKOFF
    controller: Manager | None = None


class _Patch(_Parts, forbid_unknown_fields=True):
    drop_edges: list[str] = []


_FIELDS_OF_MOVES: Final = {
    "partitions": MovementKind.SCATTER_GATHER,
    "grid": MovementKind.GRID,
    "router": MovementKind.CUSTOM,
    "params": MovementKind.CUSTOM,
}
_MOST: Final = {"vertices": MAX_VERTICES, "edges": MAX_EDGES, "bubbles": MAX_VERTICES, "choices": MAX_VERTICES}


# -------------------------------------------------------------------------------------------------------- writing


def to_json(graph: LogicalGraph) -> Json:
    """Return `graph` as data for JSON.

    ProgramError: a program has no importable name. GraphError: parameters or items are not JSON.
    """
    out: Json = {"weft": VERSION, "name": graph.name}
    if graph.on_failure is not OnFailure.FAIL_FAST:
        out["on_failure"] = graph.on_failure.value
    if graph.frontend != GRAPH:
        out["frontend"] = graph.frontend
    if graph.backoff != DEFAULT_BACKOFF:
        out["backoff"] = _sparse(graph.backoff, DEFAULT_BACKOFF)
    if graph.controller is not None:
        out["controller"] = _manager_out(graph.controller, "controller")
    if graph.limits:
        out["limits"] = dict(graph.limits)
    out["vertices"] = [_vertex_out(vertex) for vertex in graph.vertices.values()]
    out["edges"] = [_edge_out(edge) for edge in graph.edges]
    return _groups_out(out, graph.bubbles, graph.choices)


def patch_to_json(patch: Patch) -> Json:
    """Return `patch` as data for JSON; errors as for `to_json`."""
    out: Json = {"weft": VERSION}
    if patch.vertices:
        out["vertices"] = [_vertex_out(vertex) for vertex in patch.vertices]
    if patch.edges:
        out["edges"] = [_edge_out(edge) for edge in patch.edges]
    if patch.drop_edges:
        out["drop_edges"] = list(patch.drop_edges)
    return _groups_out(out, patch.bubbles, patch.choices)


def dumps(graph: LogicalGraph, *, indent: int | None = None) -> str:
    """Return `graph` as JSON text."""
    return json.dumps(to_json(graph), indent=indent, ensure_ascii=False)


def _groups_out(out: Json, bubbles: Iterable[Bubble], choices: Iterable[Choice]) -> Json:
    if bubbles:
        out["bubbles"] = [
            {"id": bubble.id, "vertices": list(bubble.vertices)} | _sparse(bubble, _A_BUBBLE, ("id", "vertices"))
            for bubble in bubbles
        ]
    if choices:
        out["choices"] = [
            {
                "id": choice.id,
                "decider": choice.decider,
                "branches": {name: list(ids) for name, ids in choice.branches.items()},
            }
            for choice in choices
        ]
    return out


_A_BUBBLE = Bubble("", ())
_A_VERTEX = Vertex("", Program(""))
_AN_EDGE = Edge("", "")


def _sparse(value: Struct, default: Struct, without: Sequence[str] = ()) -> Json:
    """Return the plain fields of a record that differ from those of `default`; records, enums and tuples as JSON."""
    return {
        name: _as_json(own, getattr(default, name))
        for name in default.__struct_fields__
        if name not in without and (own := getattr(value, name)) != getattr(default, name)
    }


def _as_json(value: Any, default: Any) -> Any:
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, float) and value.is_integer() and abs(value) < 1 << 53:
        return int(value)  # 2 and 2.0 are equal, and so is their text
    if isinstance(value, Struct):
        return _sparse(value, default if type(default) is type(value) else type(value)())
    return list(value) if isinstance(value, tuple) else value


def _vertex_out(vertex: Vertex) -> Json:
    out: Json = {"id": vertex.id, "program": _program_out(vertex.id, vertex.program)}
    if vertex.parallelism != 1:
        out["parallelism"] = _parallelism_out(vertex.parallelism)
    if vertex.resources != ONE_SLOT_ONLY:
        out["resources"] = [
            _sparse(needs, ONE_SLOT, ("tokens", "custom"))
            | {name: dict(pairs) for name in ("tokens", "custom") if (pairs := getattr(needs, name))}
            for needs in vertex.resources
        ]
    if vertex.manager is not None:
        out["manager"] = _manager_out(vertex.manager, f"manager of vertex {vertex.id!r}")
    return out | _sparse(vertex, _A_VERTEX, ("id", "program", "parallelism", "resources", "manager"))


def _manager_out(manager: Manager, where: str) -> Json:
    params = _plain(manager.params, where)
    return {"name": manager.name} | ({"params": params} if params else {})


def _program_out(id: str, program: Program) -> Json:
    out: Json = {"target": target_name(program.target)}
    if program.params:
        out["params"] = _plain(program.params, f"params of vertex {id!r}")
    if program.items is not None:
        out["items"] = [_plain(item, f"items of vertex {id!r}") for item in program.items]
    if program.style is not Style.FUNCTION:
        out["style"] = program.style.value
    return out


def target_name(target: str | Callable[..., Any]) -> str:
    """Return `"module:function"` for a target. ProgramError: that name does not lead back to the same object."""
    if isinstance(target, str):
        return target
    module, path = getattr(target, "__module__", None), getattr(target, "__qualname__", None)
    if isinstance(module, str) and isinstance(path, str) and module != "__main__":
        found: Any = sys.modules.get(module)
        for part in path.split("."):
            found = getattr(found, part, None)
        if found is target:
            return f"{module}:{path}"
    raise ProgramError(
        f"program {path or target!r} cannot be named as 'module:function', so it cannot be written as JSON",
        hint="Define the function at the top level of a module that the workers can import.",
    )


def _parallelism_out(n: Parallelism) -> int | Json:
    if isinstance(n, Range):
        return {"range": [n.lo, n.hi]}
    if isinstance(n, Source):
        return {"source": n.expander}
    return {"same_as": n.vertex} if isinstance(n, SameAs) else n


def _edge_out(edge: Edge) -> Json:
    out: Json = {"src": edge.src, "dst": edge.dst}
    movement, scheduling = edge.movement, edge.scheduling
    if movement.move is not MovementKind.ONE_TO_ONE:
        out["move"] = movement.move.value
    if movement.partitions:
        out["partitions"] = movement.partitions
    if movement.grid is not None:
        out["grid"] = _grid_out(movement.grid)
    if movement.name:
        out["router"] = movement.name
    if movement.params:
        out["params"] = _plain(dict(movement.params), f"params of edge {edge.id}")
    out |= _sparse(scheduling, Scheduling(scheduling.concurrent, _usual(scheduling.concurrent)), ("concurrent",))
    if scheduling.concurrent:
        out["concurrent"] = True
    if edge.storage is not _home(movement.move):
        out["storage"] = edge.storage.value
    return out | _sparse(edge, _AN_EDGE, ("src", "dst", "movement", "scheduling", "storage"))


def _usual(concurrent: bool) -> Trigger:
    return Trigger.SOURCE_RUNNING if concurrent else Trigger.ALL_DONE


def _home(move: MovementKind) -> Storage:
    return Storage.NONE if move is MovementKind.NONE else Storage.LOCAL


def _grid_out(grid: GridMap) -> Json:
    out: Json = {"src": list(grid.src), "dst": list(grid.dst), "axes": [_axis_out(axis) for axis in grid.axes]}
    return out | _sparse(grid, GridMap((), (), ()), ("src", "dst", "axes"))


def _axis_out(axis: Axis) -> Json:
    usual = Axis(axis.op, -1, 1, 0, axis.k if axis.op is AxisOperation.GROUP else 1)
    return {"op": axis.op.value} | _sparse(axis, usual, ("op",))


def _plain(value: Any, where: str, depth: int = MAX_DEPTH - 10) -> Any:
    """Return `value` if JSON preserves it. GraphError: it does not; the error names the place."""
    if value is None or isinstance(value, (str, bool)):
        return value
    if type(value) is int:
        if -(1 << 63) <= value < 1 << 64:
            return value
    elif type(value) is float:
        if isfinite(value):
            return value
    elif depth and type(value) is list:
        return [_plain(each, where, depth - 1) for each in value]
    elif depth and isinstance(value, Mapping) and all(type(key) is str for key in value):
        return {key: _plain(each, f"{where}: {key}", depth - 1) for key, each in value.items()}
    shown = type(value).__name__ if depth and not isinstance(value, (int, float)) else f"{str(value)[:40]}"
    raise GraphError(
        f"{where} hold {shown}, which JSON does not carry unchanged",
        subject=where,
        rule="json",
        hint="Use strings, finite numbers of at most 64 bits, booleans, None, lists and mappings with string keys.",
    )


# -------------------------------------------------------------------------------------------------------- reading


def loads(text: str | bytes, *, max_bytes: int = MAX_BYTES) -> LogicalGraph:
    """Read JSON text of at most `max_bytes` bytes; errors as for `from_json`, InputLimitError for longer text."""
    return from_json(parse(text, max_bytes=max_bytes))


def from_json(obj: Any) -> LogicalGraph:
    """Return the graph that `obj` describes.

    GraphError: a field is unknown, missing or of the wrong type; the error names it. InputLimitError: too many
    vertices, edges or levels.
    """
    given = _read(obj, _Graph, "graph")
    vertices: dict[str, Vertex] = {}
    for at, vertex in enumerate(given.vertices):
        if vertex.id in vertices:
            raise GraphError(f"vertex {vertex.id!r} exists already", subject=vertex.id, rule="unique-vertex")
        vertices[vertex.id] = _vertex_in(vertex, f"vertices[{at}]")
    edges = [_edge_in(edge, f"edges[{at}]") for at, edge in enumerate(given.edges)]
    return LogicalGraph(
        given.name,
        vertices,
        edges,
        given.bubbles,
        given.choices,
        given.on_failure,
        given.limits,
        given.frontend,
        given.backoff,
        given.controller,
    )


def patch_from_json(obj: Any) -> Patch:
    """Return the patch that `obj` describes; errors as for `from_json`."""
    given = _read(obj, _Patch, "patch")
    return Patch(
        tuple(_vertex_in(vertex, f"vertices[{at}]") for at, vertex in enumerate(given.vertices)),
        tuple(_edge_in(edge, f"edges[{at}]") for at, edge in enumerate(given.edges)),
        tuple(given.drop_edges),
        tuple(given.bubbles),
        tuple(given.choices),
    )


def _read(obj: Any, kind: type[S], root: str) -> S:
    """Return the record of a whole document, after the checks that no schema can express."""
    check_values(obj, root)
    if not isinstance(obj, dict):
        raise GraphError(f"{root} is {_name_of(obj)}, not a mapping", subject=root, rule="wire-type")
    fields = dict(obj)
    found = fields.pop("weft", None)
    if type(found) is not int or found != VERSION:
        raise GraphError(
            f"{root} is of version {str(found)[:20]}; this Weft reads version {VERSION}",
            subject="weft",
            rule="wire-version",
            hint=f'The field "weft" must be {VERSION}.',
        )
    for key, most in _MOST.items():
        if isinstance(fields.get(key), list) and len(fields[key]) > most:
            raise InputLimitError(f"{root}.{key} has {len(fields[key]):,} entries; the limit is {most:,}")
    try:
        return convert(fields, kind)
    except ValidationError as error:
        _refuse(str(error), fields, root)


def _vertex_in(given: _Vertex, path: str) -> Vertex:
    program = given.program
    resources = given.resources
    return Vertex(
        **asdict(given)
        | {
            "program": Program(program.target, program.params or NO_PARAMS, program.items, program.style),
            "parallelism": _parallelism_in(given.parallelism, f"{path}.parallelism"),
            "resources": ONE_SLOT_ONLY
            if resources is None
            else tuple(
                Resources(
                    **asdict(needs) | {"tokens": tuple(needs.tokens.items()), "custom": tuple(needs.custom.items())}
                )
                for needs in resources
            ),
        }
    )


def _parallelism_in(given: int | _Parallelism, path: str) -> Parallelism:
    if isinstance(given, int):
        return given
    ways = [name for name in ("range", "source", "same_as") if getattr(given, name) is not None]
    if not ways:
        raise GraphError(f"{path} lacks the field 'same_as'", subject=path, rule="wire-field", hint=_WAYS)
    if len(ways) > 1:
        raise _no_field(path, ways[1], _WAYS)
    if given.range is None:
        return Source(given.source) if given.source is not None else SameAs(given.same_as or "")
    if len(given.range) != 2:
        raise GraphError(
            f"{path}.range has {counted(len(given.range), 'number')}, not 2", subject=path, rule="wire-value"
        )
    return Range(*given.range)


_WAYS: Final = "Give a number, or a mapping with one of the fields range, source and same_as."


def _edge_in(given: _Edge, path: str) -> Edge:
    move = given.move
    for name, wanted in _FIELDS_OF_MOVES.items():
        if getattr(given, name) and move is not wanted:
            raise _no_field(path, name, f"It belongs to edges whose move is {wanted.value!r}.")
    if move is MovementKind.CUSTOM and not given.router:
        raise GraphError(f"{path} lacks the field 'router'", subject=path, rule="wire-field")
    if move is MovementKind.GRID and given.grid is None:
        path += ".grid"
        raise GraphError(f"{path} is nothing, not a mapping", subject=path, rule="wire-type")
    grid = None if given.grid is None else _grid_in(given.grid)
    when = given.when or _usual(given.concurrent)
    return Edge(
        given.src,
        given.dst,
        Movement(move, given.partitions, grid, given.router, tuple(given.params.items())),
        Scheduling(given.concurrent, when, given.fraction, given.event, given.outcome),
        given.storage or _home(move),
        given.blocking,
        given.name,
    )


def _grid_in(given: _Grid) -> GridMap:
    steps = [
        axis.step if axis.step is not None else axis.k if axis.op is AxisOperation.GROUP else 1 for axis in given.axes
    ]
    axes = tuple(Axis(**asdict(axis) | {"step": step}) for axis, step in zip(given.axes, steps, strict=True))
    return GridMap(**asdict(given) | {"axes": axes})


# ---------------------------------------------------------------------------------------------------------- errors

_WORDS: Final = {
    "array": "a list",
    "bool": "true or false",
    "float": "a number",
    "int": "a whole number",
    "int | float": "a finite number",
    "null": "nothing",
    "object": "a mapping",
    "str": "text",
}
"""The types in messages of msgspec, in the words of Weft."""
_KINDS_OF_JSON: Final = {bool: "bool", dict: "object", float: "float", int: "int", list: "array", str: "str"}
_CHOICES: Final = {
    "kind": VertexKind,
    "move": MovementKind,
    "on_failure": OnFailure,
    "op": AxisOperation,
    "outcome": Outcome,
    "restart": RestartPolicy,
    "role": Role,
    "storage": Storage,
    "style": Style,
    "when": Trigger,
}
"""The enumerations by the names of their fields."""
_MESSAGE: Final = late_pattern(r"(.*?)(?: - at `(\$.*)`)?", re.DOTALL)
_STEP: Final = late_pattern(r"\.([^.\[\]]+)|\[(\d+|\.\.\.)\]")


def _refuse(message: str, fields: Json, root: str) -> NoReturn:
    """Raise the GraphError in Weft's words for a message of msgspec: the field, the fault and the remedy."""
    match = _MESSAGE.fullmatch(message)
    text, path = (match[1], match[2] or "$") if match is not None else (message, "$")
    wanted = re.findall(r"`([^`]*)`", text)
    if text.startswith("Object contains unknown field"):
        raise _no_field(shown(path, root), wanted[0][:100])
    if text.startswith("Object missing required field"):
        path = shown(path, root)
        raise GraphError(f"{path} lacks the field {wanted[0]!r}", subject=path, rule="wire-field")
    if text.startswith("Invalid enum value"):
        known = ", ".join(member.value for member in _CHOICES[path.rpartition(".")[2]])
        path = shown(path, root)
        value = text.removeprefix("Invalid enum value ")[:100]
        raise GraphError(f"{path} is {value}", subject=path, rule="wire-value", hint=f"One of {known}.")
    path = shown(_found(path, fields, wanted[-1]), root)
    if length := re.search(r"of length 2, got (\d+)", text):
        raise GraphError(f"{path} is a list of length {length[1]}, not a pair", subject=path, rule="wire-type")
    said = " or ".join(_WORDS.get(kind, kind) for kind in _alternatives(wanted[0]))
    raise GraphError(f"{path} is {_WORDS.get(wanted[-1], wanted[-1])}, not {said}", subject=path, rule="wire-type")


def _alternatives(wanted: str) -> list[str]:
    kinds = [kind for kind in wanted.split(" | ") if kind != "null" or wanted == "null"]
    if "float" in kinds:
        kinds = ["int | float", *(kind for kind in kinds if kind not in ("int", "float"))]
    return kinds


def _no_field(path: str, name: str, hint: str = "") -> GraphError:
    return GraphError(f"{path} has no field {name!r}", subject=f"{path}.{name}", rule="wire-field", hint=hint)


def _found(path: str, fields: Json, got: str) -> str:
    """Return a path with the keys of mappings in place of `[...]`, which msgspec writes for any key."""

    def follow(value: Any, steps: list[tuple[str, str]], walked: str) -> str | None:
        if not steps:
            return walked if _KINDS_OF_JSON.get(type(value), "null") == got else None
        (name, index), *rest = steps
        if index == "...":
            tries = (follow(each, rest, f"{walked}.{key}") for key, each in value.items())
            return next((found for found in tries if found is not None), None)
        key = name or int(index)
        if isinstance(key, int) and len(value) <= key:
            return None
        return follow(value[key], rest, f"{walked}.{name}" if name else f"{walked}[{index}]")

    if "[...]" not in path:
        return path
    return follow(fields, _STEP.findall(path), "$") or path


def _name_of(value: Any) -> str:
    return _WORDS[_KINDS_OF_JSON.get(type(value), "null")]
