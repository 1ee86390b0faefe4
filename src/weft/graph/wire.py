"""Graphs and patches as JSON, versioned and strict.

Fields at their default are left out; unknown fields, duplicate keys, wrong types, NaN and anything over the limits are
refused with the path of the field. Programs are written as `"module:function"`: no code travels here. What is read is
well formed, not yet legal: `weft.graph.validate` says that.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from math import isfinite
from typing import Any, TypeVar

from weft.graph.axes import Axis, GridMap, Op
from weft.graph.logical import (
    BROADCAST,
    DEFAULT_RETRY,
    NONE,
    ONE_TO_ONE,
    SEQUENTIAL,
    Bubble,
    Choice,
    Edge,
    Kind,
    LogicalGraph,
    Manager,
    Move,
    Movement,
    OnFailure,
    Outcome,
    Parallelism,
    Patch,
    Range,
    Retry,
    SameAs,
    Scheduling,
    Source,
    Storage,
    Trigger,
    Vertex,
)
from weft.graph.validate import MAX_EDGES, MAX_VERTICES
from weft.model.errors import GraphError, InputLimitError, ProgramError
from weft.model.program import NO_PARAMS, Program, Style
from weft.model.resources import ONE_SLOT, ONE_SLOT_ONLY, Placement, Resources

VERSION = 1
MAX_BYTES = 1 << 20
MAX_DEPTH = 50

Json = dict[str, Any]
E = TypeVar("E", bound=Enum)


# -------------------------------------------------------------------------------------------------------- writing


def to_json(graph: LogicalGraph) -> Json:
    """Return `graph` as JSON-able data.

    Raises ProgramError for a program that cannot be named, GraphError for parameters or items that are not JSON.
    """
    out: Json = {"weft": VERSION, "name": graph.name}
    if graph.on_failure is not OnFailure.FAIL_FAST:
        out["on_failure"] = graph.on_failure.value
    if graph.limits:
        out["limits"] = dict(graph.limits)
    out["vertices"] = [_vertex_out(vertex) for vertex in graph.vertices.values()]
    out["edges"] = [_edge_out(edge) for edge in graph.edges]
    return _groups_out(out, graph.bubbles, graph.choices)


def patch_to_json(patch: Patch) -> Json:
    """Return `patch` as JSON-able data; errors as for `to_json`."""
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


def _sparse(value: Any, default: Any, without: Sequence[str] = ()) -> Json:
    """Return the plain fields of a record that differ from those of `default`; enums by value."""
    out: Json = {}
    for name in value.__struct_fields__:
        own = getattr(value, name)
        if name not in without and own != getattr(default, name):
            out[name] = own.value if isinstance(own, Enum) else own
    return out


def _vertex_out(vertex: Vertex) -> Json:
    out: Json = {"id": vertex.id, "program": _program_out(vertex.id, vertex.program)}
    if vertex.parallelism != 1:
        out["parallelism"] = _parallelism_out(vertex.parallelism)
    if vertex.resources != ONE_SLOT_ONLY:
        out["resources"] = [
            _sparse(needs, ONE_SLOT, ("tokens",)) | ({"tokens": dict(needs.tokens)} if needs.tokens else {})
            for needs in vertex.resources
        ]
    if vertex.placement is not None:
        out["placement"] = _sparse(vertex.placement, Placement())
    if vertex.manager is not None:
        out["manager"] = {"name": vertex.manager.name} | (
            {"params": _plain(vertex.manager.params, f"manager of vertex {vertex.id!r}")}
            if vertex.manager.params
            else {}
        )
    if vertex.retry != DEFAULT_RETRY:
        out["retry"] = _sparse(vertex.retry, DEFAULT_RETRY)
    return out | _sparse(
        vertex, _A_VERTEX, ("id", "program", "parallelism", "resources", "placement", "retry", "manager")
    )


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
    """Return `"module:function"` for a target; ProgramError if that name does not lead back to the same object."""
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
    if movement.move is not Move.ONE_TO_ONE:
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


def _home(move: Move) -> Storage:
    return Storage.NONE if move is Move.NONE else Storage.LOCAL


def _grid_out(grid: GridMap) -> Json:
    out: Json = {"src": list(grid.src), "dst": list(grid.dst), "axes": [_axis_out(axis) for axis in grid.axes]}
    if grid.partial:
        out["partial"] = True
    if grid.pieces:
        out["pieces"] = True
    return out


def _axis_out(axis: Axis) -> Json:
    usual = Axis(axis.op, -1, 1, 0, axis.k if axis.op is Op.GROUP else 1)
    out: Json = {"op": axis.op.value} | _sparse(axis, usual, ("op", "spans"))
    if axis.spans:
        out["spans"] = [list(span) for span in axis.spans]
    return out


def _plain(value: Any, where: str, depth: int = MAX_DEPTH - 10) -> Any:
    """Return `value` if JSON gives back the same; GraphError names its place otherwise."""
    if value is None or isinstance(value, (str, bool)):
        return value
    if type(value) is int:
        if value.bit_length() < 64:
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
        hint="Use text, finite numbers of at most 64 bits, booleans, None, lists and mappings with text keys.",
    )


# -------------------------------------------------------------------------------------------------------- reading


def loads(text: str | bytes, *, max_bytes: int = MAX_BYTES) -> LogicalGraph:
    """Read JSON text of at most `max_bytes` bytes; errors as for `from_json`, InputLimitError if it is too large."""
    return from_json(parse(text, max_bytes=max_bytes))


def parse(text: str | bytes, *, max_bytes: int = MAX_BYTES) -> Any:
    """Read strict JSON: no duplicate keys, no NaN, no number over 64 bits, at most `max_bytes` bytes and 50 levels."""
    size = len(text) if isinstance(text, bytes) or text.isascii() else len(text.encode("utf-8", "surrogatepass"))
    if size > max_bytes:
        raise InputLimitError(f"the graph is {size:,} bytes of JSON, and {max_bytes:,} is the limit")
    try:
        found = json.loads(
            text,
            object_pairs_hook=_unique_keys,
            parse_int=_short_int,
            parse_float=_finite,
            parse_constant=_finite,
        )
    except RecursionError:
        raise _too_deep() from None
    except ValueError as error:
        raise GraphError(f"the graph is not JSON: {error}", rule="json") from None
    _check_depth(found)
    return found


def from_json(obj: Any) -> LogicalGraph:
    """Return the graph that `obj` describes.

    Raises GraphError that names the field for anything unknown, missing or of the wrong type; InputLimitError for too
    many vertices or edges and for deep nesting.
    """
    _check_depth(obj)
    with_version = _Fields(obj, "graph")
    with_version.version()
    name = with_version.text("name", "graph")
    on_failure = with_version.choice("on_failure", OnFailure.FAIL_FAST)
    limits = {token: _whole(count, f"limits.{token}") for token, count in with_version.mapping("limits").items()}
    vertices: dict[str, Vertex] = {}
    for vertex in with_version.each("vertices", _vertex_in, MAX_VERTICES):
        if vertex.id in vertices:
            raise GraphError(f"vertex {vertex.id!r} is there twice", subject=vertex.id, rule="unique-vertex")
        vertices[vertex.id] = vertex
    edges = with_version.each("edges", _edge_in, MAX_EDGES)
    bubbles = with_version.each("bubbles", _bubble_in, MAX_VERTICES)
    choices = with_version.each("choices", _choice_in, MAX_VERTICES)
    with_version.end()
    return LogicalGraph(name, vertices, edges, bubbles, choices, on_failure, limits)


def patch_from_json(obj: Any) -> Patch:
    """Return the patch that `obj` describes; errors as for `from_json`."""
    _check_depth(obj)
    given = _Fields(obj, "patch")
    given.version()
    patch = Patch(
        tuple(given.each("vertices", _vertex_in, MAX_VERTICES)),
        tuple(given.each("edges", _edge_in, MAX_EDGES)),
        given.texts("drop_edges"),
        tuple(given.each("bubbles", _bubble_in, MAX_VERTICES)),
        tuple(given.each("choices", _choice_in, MAX_VERTICES)),
    )
    given.end()
    return patch


def _unique_keys(pairs: list[tuple[str, Any]]) -> Json:
    made = dict(pairs)
    if len(made) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"key {twice[:100]!r} is there twice")
    return made


def _short_int(text: str) -> int:
    if len(text) > 20 or not -(1 << 63) <= int(text) < 1 << 64:
        raise ValueError(f"number {text[:40]} has more than 64 bits")
    return int(text)


def _finite(text: str) -> float:
    number = float(text)
    if not isfinite(number):
        raise ValueError(f"number {text[:40]} is not finite")
    return number


def _too_deep() -> InputLimitError:
    return InputLimitError(f"the graph is nested more than {MAX_DEPTH} levels deep")


def _check_depth(obj: Any) -> None:
    level = [obj]
    for _ in range(MAX_DEPTH):
        level = [
            child
            for each in level
            if isinstance(each, (dict, list))
            for child in (each.values() if isinstance(each, dict) else each)
            if isinstance(child, (dict, list))
        ]
        if not level:
            return
    raise _too_deep()


_WORDS = {
    bool: "true or false",
    dict: "a mapping",
    float: "a number",
    int: "a whole number",
    list: "a list",
    str: "text",
    type(None): "nothing",
}


def _wrong(path: str, wanted: str, value: Any) -> GraphError:
    return GraphError(
        f"{path} is {_WORDS.get(type(value), type(value).__name__)}, not {wanted}", subject=path, rule="wire-type"
    )


def _whole(value: Any, path: str) -> int:
    if type(value) is not int:
        raise _wrong(path, "a whole number", value)
    return value


class _Fields:
    """The fields of one JSON object, each taken once; `end` refuses what is left."""

    def __init__(self, obj: Any, path: str) -> None:
        if not isinstance(obj, dict):
            raise _wrong(path, "a mapping", obj)
        self.left = dict(obj)
        self.path = path

    def end(self) -> None:
        if self.left:
            name = str(next(iter(self.left)))[:100]
            raise GraphError(f"{self.path} has no field {name!r}", subject=f"{self.path}.{name}", rule="wire-field")

    def version(self) -> None:
        found = self.left.pop("weft", None)
        if type(found) is not int or found != VERSION:
            raise GraphError(
                f"{self.path} is of version {str(found)[:20]}, and this is version {VERSION}",
                subject="weft",
                rule="wire-version",
                hint=f'The field "weft" must be {VERSION}.',
            )

    def __contains__(self, key: str) -> bool:
        return key in self.left

    def text(self, key: str, default: str | None = None) -> str:
        value = self.left.pop(key, default)
        if value is None and key not in self.left:
            raise GraphError(f"{self.path} lacks the field {key!r}", subject=self.path, rule="wire-field")
        if not isinstance(value, str):
            raise _wrong(f"{self.path}.{key}", "text", value)
        return value

    def optional_text(self, key: str) -> str | None:
        return self.text(key) if self.left.get(key) is not None else self.left.pop(key, None)

    def whole(self, key: str, default: int) -> int:
        return _whole(self.left.pop(key, default), f"{self.path}.{key}")

    def number(self, key: str, default: float) -> float:
        value = self.left.pop(key, default)
        if type(value) not in (int, float) or not isfinite(value):
            raise _wrong(f"{self.path}.{key}", "a finite number", value)
        return value  # type: ignore[no-any-return]

    def flag(self, key: str, default: bool) -> bool:
        value = self.left.pop(key, default)
        if not isinstance(value, bool):
            raise _wrong(f"{self.path}.{key}", "true or false", value)
        return value

    def choice(self, key: str, default: E) -> E:
        value = self.left.pop(key, default.value)
        for member in type(default):
            if member.value == value:
                return member
        known = ", ".join(str(member.value) for member in type(default))
        raise GraphError(
            f"{self.path}.{key} is {str(value)[:100]!r}",
            subject=f"{self.path}.{key}",
            rule="wire-value",
            hint=f"One of {known}.",
        )

    def mapping(self, key: str) -> Json:
        value = self.left.pop(key, {})
        if not isinstance(value, dict) or not all(isinstance(name, str) for name in value):
            raise _wrong(f"{self.path}.{key}", "a mapping with text keys", value)
        return value

    def items(self, key: str) -> list[Any]:
        value = self.left.pop(key, [])
        if not isinstance(value, list):
            raise _wrong(f"{self.path}.{key}", "a list", value)
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        return _texts(self.items(key), f"{self.path}.{key}")

    def wholes(self, key: str) -> tuple[int, ...]:
        return tuple(_whole(value, f"{self.path}.{key}") for value in self.items(key))

    def each(self, key: str, read: Callable[[_Fields], Any], limit: int) -> list[Any]:
        values = self.items(key)
        if len(values) > limit:
            raise InputLimitError(f"{self.path}.{key} has {len(values):,} entries, and {limit:,} is the limit")
        return [self._one(read, value, f"{key}[{at}]") for at, value in enumerate(values)]

    def _one(self, read: Callable[[_Fields], Any], value: Any, path: str) -> Any:
        given = _Fields(value, path if self.path in ("graph", "patch") else f"{self.path}.{path}")
        made = read(given)
        given.end()
        return made

    def nested(self, key: str, read: Callable[[_Fields], Any]) -> Any:
        return self._one(read, self.left.pop(key, None), key)


def _texts(values: Any, path: str) -> tuple[str, ...]:
    if not isinstance(values, list):
        raise _wrong(path, "a list", values)
    for value in values:
        if not isinstance(value, str):
            raise _wrong(path, "a list of texts", value)
    return tuple(values)


def _vertex_in(given: _Fields) -> Vertex:
    timeout = given.left.pop("timeout_s", None)
    output = given.left.pop("output_bytes", None)
    return Vertex(
        id=given.text("id"),
        program=given.nested("program", _program_in),
        parallelism=_parallelism_in(given.left.pop("parallelism", 1), f"{given.path}.parallelism"),
        kind=given.choice("kind", Kind.FINITE),
        resources=tuple(given.each("resources", _resources_in, 100)) if "resources" in given else ONE_SLOT_ONLY,
        placement=given.nested("placement", _placement_in) if given.left.get("placement") is not None else None,
        retry=given.nested("retry", _retry_in) if "retry" in given else DEFAULT_RETRY,
        timeout_s=None if timeout is None else _Fields({"timeout_s": timeout}, given.path).number("timeout_s", 0),
        idempotent=given.flag("idempotent", True),
        cache_key=given.optional_text("cache_key"),
        manager=given.nested("manager", _manager_in) if given.left.get("manager") is not None else None,
        keep=given.flag("keep", False),
        output_bytes=None if output is None else _whole(output, f"{given.path}.output_bytes"),
        scratch_bytes=given.whole("scratch_bytes", 0),
        expands=given.flag("expands", False),
        lazy=given.flag("lazy", False),
    )


def _manager_in(given: _Fields) -> Manager:
    return Manager(given.text("name"), given.mapping("params") or {})


def _program_in(given: _Fields) -> Program:
    return Program(
        given.text("target"),
        given.mapping("params") or NO_PARAMS,
        given.items("items") if "items" in given else None,
        given.choice("style", Style.FUNCTION),
    )


def _parallelism_in(value: Any, path: str) -> Parallelism:
    if not isinstance(value, dict):
        return _whole(value, path)
    given = _Fields(value, path)
    made: Parallelism
    if "range" in given:
        ends = given.wholes("range")
        if len(ends) != 2:
            raise GraphError(f"{path}.range has {len(ends)} numbers, not 2", subject=path, rule="wire-value")
        made = Range(*ends)
    else:
        made = Source(given.text("source")) if "source" in given else SameAs(given.text("same_as"))
    given.end()
    return made


def _resources_in(given: _Fields) -> Resources:
    tokens = given.mapping("tokens")
    return Resources(
        given.number("cpu", 1),
        given.whole("memory", 0),
        given.whole("gpu", 0),
        given.text("gpu_type", ""),
        tuple((name, _whole(count, f"{given.path}.tokens.{name}")) for name, count in tokens.items()),
    )


def _placement_in(given: _Fields) -> Placement:
    return Placement(given.text("node", ""), given.text("party", ""))


def _retry_in(given: _Fields) -> Retry:
    usual = DEFAULT_RETRY
    return Retry(
        given.whole("user", usual.user),
        given.whole("memory", usual.memory),
        given.whole("infrastructure", usual.infrastructure),
        given.number("delay_s", usual.delay_s),
        given.number("memory_factor", usual.memory_factor),
    )


_PLAIN_MOVES = {Move.NONE: NONE, Move.ONE_TO_ONE: ONE_TO_ONE, Move.BROADCAST: BROADCAST}


def _edge_in(given: _Fields) -> Edge:
    move = given.choice("move", Move.ONE_TO_ONE)
    concurrent = given.flag("concurrent", False)
    scheduling = Scheduling(
        concurrent,
        given.choice("when", _usual(concurrent)),
        given.number("fraction", 1.0),
        given.text("event", ""),
        given.choice("outcome", Outcome.SUCCESS),
    )
    # The shared objects where they are equal: validation knows them by identity.
    movement = _PLAIN_MOVES.get(move) or Movement(
        move,
        given.whole("partitions", 0) if move is Move.SCATTER_GATHER else 0,
        given.nested("grid", _grid_in) if move is Move.GRID else None,
        given.text("router") if move is Move.CUSTOM else "",
        tuple(given.mapping("params").items()) if move is Move.CUSTOM else (),
    )
    return Edge(
        given.text("src"),
        given.text("dst"),
        movement,
        SEQUENTIAL if scheduling == SEQUENTIAL else scheduling,
        given.choice("storage", _home(move)),
        given.flag("blocking", False),
        given.text("name", ""),
    )


def _grid_in(given: _Fields) -> GridMap:
    return GridMap(
        given.wholes("src"),
        given.wholes("dst"),
        tuple(given.each("axes", _axis_in, 100)),
        given.flag("partial", False),
        given.flag("pieces", False),
    )


def _axis_in(given: _Fields) -> Axis:
    op = given.choice("op", Op.COPY)
    k = given.whole("k", 1)
    spans: list[tuple[int, int]] = []
    for at, pair in enumerate(given.items("spans")):
        if not isinstance(pair, list) or len(pair) != 2:
            raise _wrong(f"{given.path}.spans[{at}]", "a pair of whole numbers", pair)
        spans.append((_whole(pair[0], f"{given.path}.spans[{at}]"), _whole(pair[1], f"{given.path}.spans[{at}]")))
    return Axis(
        op,
        given.whole("source", -1),
        k,
        given.whole("offset", 0),
        given.whole("step", k if op is Op.GROUP else 1),
        tuple(spans),
    )


def _bubble_in(given: _Fields) -> Bubble:
    return Bubble(
        given.text("id"), given.texts("vertices"), given.flag("prewarmed", False), given.number("timeout_s", 30)
    )


def _choice_in(given: _Fields) -> Choice:
    branches = given.mapping("branches")
    return Choice(
        given.text("id"),
        given.text("decider"),
        {name: _texts(ids, f"{given.path}.branches.{name}") for name, ids in branches.items()},
    )
