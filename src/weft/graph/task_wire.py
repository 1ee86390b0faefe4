"""Task specs as bytes for other machines: one form for each spec, so that it can be signed and its digest be compared.

The form is MessagePack by field names, in the order of the fields. A router is its kind and its numbers. Values of
parameters and items keep their types and the order of their keys. A value that MessagePack does not carry unchanged,
such as a function, is opaque: its pickle behind the SHA-256 of that pickle. Equal specs have equal bytes as far as
equal opaque values have equal pickles.

The caller provides the functions for pickles. Unpickling runs code: only bytes with a checked signature may be decoded.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import GenericAlias
from typing import Any, Final

from msgspec import MsgspecError, Struct, convert, defstruct, msgpack, to_builtins
from msgspec.structs import asdict, fields

from weft.graph.axes import GridMap
from weft.graph.grid import Grid, GridPieces, OneToAll
from weft.graph.rectangles import Rectangles
from weft.graph.routers import Broadcast, Group, OneToOne, Router, ScatterGather
from weft.graph.task_spec import EdgeSpec, TaskSpec
from weft.model.errors import GraphError
from weft.model.program import NO_PARAMS, Program, Style

Pickle = Callable[[Any], bytes]
Unpickle = Callable[[bytes], Any]

_OPAQUE, _TUPLE, _RANGE = 1, 2, 3
_DIGEST_BYTES: Final = 32
_DEPTH_MAX: Final = 50
_KINDS: Final[dict[type[Router], str]] = {
    OneToOne: "one_to_one",
    OneToAll: "one_to_all",
    Broadcast: "broadcast",
    ScatterGather: "scatter_gather",
    Group: "group",
    Grid: "grid",
    GridPieces: "grid_pieces",
    Rectangles: "rectangles",
}
_ROUTERS: Final[dict[str, Any]] = {kind: router for router, kind in _KINDS.items()}


class _ProgramForm(Struct, forbid_unknown_fields=True):
    target: Any
    params: dict[str, Any]
    items: Any
    style: Style


def _form(record: type[Struct], **types: Any) -> Any:
    """Return the form of a record, with other types for some of its fields."""
    own = [(field.name, types.get(field.name, field.type)) for field in fields(record)]
    return defstruct(f"{record.__name__}Form", own, forbid_unknown_fields=True)


_EdgeForm: Final = _form(EdgeSpec, router=list[Any] | None)
_EDGES: Final = GenericAlias(tuple, (_EdgeForm, ...))
_SpecForm: Final = _form(TaskSpec, program=_ProgramForm, inputs=_EDGES, outputs=_EDGES)


def encode_spec(spec: TaskSpec, pickle: Pickle) -> bytes:
    """Return a spec as bytes. GraphError: a router has no form. Raises the errors of `pickle`, for opaque values."""
    program, resources = spec.program, spec.resources
    form = asdict(spec) | {
        "program": {
            "target": _value_out(program.target, pickle),
            "params": _value_out(dict(program.params), pickle),
            "items": _value_out(program.items, pickle),
            "style": program.style.value,
        },
        "resources": asdict(resources) | {"cpu": float(resources.cpu)},  # 1 and 1.0 are equal: so is their form
        "inputs": [_edge_out(edge) for edge in spec.inputs],
        "outputs": [_edge_out(edge) for edge in spec.outputs],
        "timeout_s": None if spec.timeout_s is None else float(spec.timeout_s),
    }
    return msgpack.encode(form)


def decode_spec(data: bytes, unpickle: Unpickle) -> TaskSpec:
    """Return the spec of `encode_spec`. GraphError: the bytes are no spec. Raises the errors of `unpickle`."""
    try:
        form = convert(msgpack.decode(data, ext_hook=partial(_value_in, unpickle=unpickle)), _SpecForm)
    except MsgspecError as error:
        raise GraphError(f"these bytes are no task spec: {error}", rule="wire-value") from error
    program = form.program
    return TaskSpec(
        **asdict(form)
        | {
            "program": Program(program.target, program.params or NO_PARAMS, program.items, program.style),
            "inputs": tuple([_edge_in(edge) for edge in form.inputs]),
            "outputs": tuple([_edge_in(edge) for edge in form.outputs]),
        }
    )


# ---------------------------------------------------------------------------------------------------------- routers


def _edge_out(edge: EdgeSpec) -> dict[str, Any]:
    return asdict(edge) | {"router": None if edge.router is None else _router_out(edge)}


def _edge_in(form: Any) -> EdgeSpec:
    if form.router is None:
        return EdgeSpec(**asdict(form))
    try:
        kind, n_src, n_dst, *numbers = form.router
        make: Any = _ROUTERS[kind]
        if make is Rectangles:
            router = Rectangles.from_rows(n_src, n_dst, *numbers)
        elif issubclass(make, Grid):
            router = make(convert(numbers[0], GridMap), n_src, n_dst)
        else:
            router = make(n_src, n_dst, *numbers)
    except (MsgspecError, KeyError, TypeError, ValueError) as error:
        raise GraphError(f"edge {form.id} has a router of no known form", subject=form.id, rule="wire-value") from error
    return EdgeSpec(**asdict(form) | {"router": router})


def _router_out(edge: EdgeSpec) -> list[Any]:
    router = edge.router
    kind = None if router is None else _KINDS.get(type(router))
    if router is None or kind is None:
        raise GraphError(
            f"edge {edge.id} has the router {type(router).__name__}, which has no form in bytes",
            subject=edge.id,
            rule="custom-router",
            hint="Let the custom router return Rectangles, or run the vertex on this machine.",
        )
    numbers: list[Any] = []
    if isinstance(router, Group):
        numbers = [router.group]
    elif isinstance(router, Grid):
        numbers = [to_builtins(router.map)]
    elif isinstance(router, Rectangles):
        numbers = [router.partitions, router.rows()]
    return [kind, router.n_src, router.n_dst, *numbers]


# ----------------------------------------------------------------------------------------------------------- values


def _value_out(value: Any, pickle: Pickle, depth: int = _DEPTH_MAX) -> Any:
    """Return a value as MessagePack carries it unchanged, with what it does not carry in extensions."""
    kind = type(value)
    if value is None or kind is bool or kind is float or kind is bytes:
        return value
    if kind is int and -(1 << 63) <= value < 1 << 64:
        return value
    if kind is str and is_utf8(value):
        return value
    if depth and kind is list:
        return [_value_out(each, pickle, depth - 1) for each in value]
    if depth and kind is dict and all(type(key) is str and is_utf8(key) for key in value):
        return {key: _value_out(each, pickle, depth - 1) for key, each in value.items()}
    if depth and kind is tuple:
        return msgpack.Ext(_TUPLE, msgpack.encode([_value_out(each, pickle, depth - 1) for each in value]))
    if kind is range:
        return msgpack.Ext(_RANGE, msgpack.encode([value.start, value.stop, value.step]))
    data = pickle(value)
    return msgpack.Ext(_OPAQUE, _digest(data) + data)


def _digest(data: bytes) -> bytes:
    from hashlib import sha256  # most values are none of these

    return sha256(data).digest()


def is_utf8(text: str) -> bool:
    """Whether UTF-8 carries a text: not if it has lone surrogates, as names of files may."""
    try:
        return text.isascii() or bool(text.encode())
    except UnicodeEncodeError:
        return False


def _value_in(code: int, content: memoryview, unpickle: Unpickle) -> Any:
    data = bytes(content)
    if code == _TUPLE:
        return tuple(msgpack.decode(data, ext_hook=partial(_value_in, unpickle=unpickle)))
    if code == _RANGE:
        return range(*msgpack.decode(data))
    digest, data = data[:_DIGEST_BYTES], data[_DIGEST_BYTES:]
    if code != _OPAQUE or _digest(data) != digest:
        raise GraphError("an opaque value of a task spec does not match its digest", rule="wire-value")
    return unpickle(data)
