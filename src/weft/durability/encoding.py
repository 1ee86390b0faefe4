"""The encoding of a journal's records: MessagePack, with events, decisions and other records by names of fields.

A journal states once, in its header, the *schemas* of its records: name, schema number, and fields in order. A record
is then the number of its schema and its values, so it takes no more bytes than one without names. A reader matches
fields by name: unknown fields are skipped, missing ones take their defaults, and `UPGRADES` turns records of an older
schema number into those of the next one. A new field with a default needs no upgrade. A renamed or removed field, or
one with a new meaning, needs the next schema number and an upgrade.

Values of users without a form here are opaque bytes of a pickle. A reader makes only objects of the kinds listed here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import Struct
from msgspec.structs import astuple

from weft.engine import decisions, events
from weft.engine.recovery import Epoch
from weft.engine.replay import Answer, Tick
from weft.engine.tuning import Tuning  # noqa: TC001 - msgspec reads it at run time
from weft.graph import logical
from weft.graph.axes import Axis, AxisOperation, GridMap
from weft.graph.grid import OneToAll
from weft.graph.logical import Patch
from weft.graph.rectangles import Rectangles
from weft.graph.routers import Broadcast, Group, OneToOne, ScatterGather
from weft.graph.task_wire import is_utf8
from weft.graph.wire import patch_from_json, patch_to_json
from weft.model import failures
from weft.model.errors import ConflictError, ProgramError, WeftError
from weft.model.program import Program, Style
from weft.model.records import as_dict, converter, field_names
from weft.model.resources import Placement, Resources
from weft.model.wording import type_of
from weft.store.codec import from_pickle


class Schema(NamedTuple):
    """The layout of records of one kind: the name of the kind, the number of its schema, its fields in order."""

    kind: str
    number: int
    fields: tuple[str, ...]


Upgrade = Callable[[dict[str, Any]], dict[str, Any]]
"""Turns the fields of a record of one schema number into those of the next."""

NUMBERS: Final[dict[str, int]] = {}
"""The current schema numbers of kinds whose schema has changed; 1 for all others."""
UPGRADES: Final[dict[tuple[str, int], Upgrade]] = {}
"""From schema `number` of a kind to `number + 1`, by (kind, number)."""
RENAMED: Final[dict[str, str]] = {}
"""The current names of renamed kinds, by the written name."""


def _kinds() -> dict[str, type[Any]]:
    found: list[Any] = [Tick, Answer, Program, Style, Resources, Placement, Axis, GridMap, AxisOperation]
    for module in (events, decisions, failures, logical):
        found += [
            kind for kind in vars(module).values() if isinstance(kind, type) and kind.__module__ == module.__name__
        ]
    return {
        kind.__name__: kind
        for kind in found
        if hasattr(kind, "_fields") or (issubclass(kind, Struct | Enum) and kind is not Patch)
    }


_KINDS: Final = _kinds()
_RECORDS: Final = {name: kind for name, kind in _KINDS.items() if not issubclass(kind, Enum)}
SCHEMAS: Final = tuple(Schema(name, NUMBERS.get(name, 1), field_names(kind)) for name, kind in _RECORDS.items())
"""The schemas that this version writes."""
_INDEX: Final = {kind: at for at, kind in enumerate(_RECORDS.values())}
_TICK: Final = _INDEX[Tick]

_PLAIN: Final = frozenset({type(None), bool, float, int, str, bytes})
_TUPLE, _RECORD, _ENUM, _ARRAY, _PAIRS, _RANGE, _SET, _INT, _PATCH, _ROUTER, _PICKLED, _TEXT = range(1, 13)
_ROUTERS: Final = {kind.__name__: kind for kind in (OneToOne, Group, Broadcast, ScatterGather, OneToAll)}


# ------------------------------------------------------------------------------------------------------------ writing

_encode: Final = msgspec.msgpack.Encoder().encode
_Ext: Final = msgspec.msgpack.Ext
_EMPTY_TUPLE: Final = _Ext(_TUPLE, _encode([]))


def encode(record: Tick | Epoch, by_value: Callable[[Any], bytes] | None = None) -> bytes:
    """Return the payload of a record. `by_value` pickles values without a form here; without it they raise
    ProgramError.
    """
    if isinstance(record, Epoch):
        return _encode(as_dict(_Opening(record.incarnation, record.tuning)))
    return _packed([_TICK, _each(record.events, by_value), _each(record.answers, by_value), *record[2:]])


def _ext(code: int, value: Any) -> msgspec.msgpack.Ext:
    return _Ext(code, _packed(value))


def _packed(value: Any) -> bytes:
    try:
        return _encode(value)
    except (OverflowError, UnicodeEncodeError):  # too rare for a check in advance
        return _encode(_with_rare_values(value))


def _with_rare_values(value: Any) -> Any:
    """Return a value with another form of numbers of more than 64 bits, and of texts that are not UTF-8."""
    if type(value) is list:
        return [_with_rare_values(item) for item in value]
    if type(value) is dict:
        if all(map(is_utf8, value)):
            return {key: _with_rare_values(item) for key, item in value.items()}
        return _ext(_PAIRS, [[_with_rare_values(key), _with_rare_values(item)] for key, item in value.items()])
    if type(value) is str and not is_utf8(value):  # names of files may have lone surrogates
        return _ext(_TEXT, value.encode("utf-8", "surrogatepass"))
    return _ext(_INT, str(value)) if type(value) is int and not -(1 << 63) <= value < 1 << 63 else value


def _each(values: Sequence[Any], by_value: Callable[[Any], bytes] | None) -> list[Any]:
    return [value if type(value) in _PLAIN else _pack(value, by_value) for value in values]


def _pack(value: Any, by_value: Callable[[Any], bytes] | None = None) -> Any:
    """Return a value in a MessagePack form. `by_value` pickles other values; without it they raise ProgramError."""
    kind = type(value)
    if kind in _PLAIN:
        return value
    at = _INDEX.get(kind)
    if at is not None:
        parts = value if isinstance(value, tuple) else astuple(value)
        return _ext(_RECORD, [at, *_each(parts, by_value)])
    if kind is list:
        return _each(value, by_value)
    if kind is tuple:
        return _ext(_TUPLE, _each(value, by_value)) if value else _EMPTY_TUPLE
    if kind is dict:
        if all(type(key) is str for key in value):
            return {key: _pack(item, by_value) for key, item in value.items()}
        return _ext(_PAIRS, [[_pack(key, by_value), _pack(item, by_value)] for key, item in value.items()])
    packed = _pack_rare(value, kind.__name__)
    if packed is not None:
        return packed
    if kind in (set, frozenset):
        return _ext(_SET, [kind is frozenset, *_each(sorted(value, key=repr), by_value)])
    if by_value is not None:
        return _ext(_PICKLED, by_value(value))  # of a patch too: its programs may be functions without a name
    if kind is Patch:
        return _ext(_PATCH, _pack(patch_to_json(value)))
    raise ProgramError(
        f"{type_of(value)} cannot be written to the journal of the run",
        hint="Let expanders and vertex managers return numbers, text, lists, dictionaries and arrays.",
    )


def _pack_rare(value: Any, name: str) -> Any:
    """Return the form of an enumeration, router, array or range; None for anything else."""
    kind = type(value)
    if isinstance(value, Enum) and _KINDS.get(name) is kind:
        return _ext(_ENUM, [name, value.value])
    if kind is Rectangles:
        sizes = {"n_src": value.n_src, "n_dst": value.n_dst, "partitions": value.partitions}
        return _ext(_ROUTER, {"router": name, **sizes, "rows": value.rows()})
    if _ROUTERS.get(name) is kind:
        group = {"k": value.group} if kind is Group else {}
        return _ext(_ROUTER, {"router": name, "n_src": value.n_src, "n_dst": value.n_dst, **group})
    if kind.__module__ == "numpy" and not value.dtype.hasobject:
        if name == "ndarray":
            return _ext(_ARRAY, [value.dtype.str, list(value.shape), value.tobytes()])
        return _pack(value.item())
    return _ext(_RANGE, [value.start, value.stop, value.step]) if kind is range else None


# ------------------------------------------------------------------------------------------------------------- reading


class _Opening(Struct):
    """An `Epoch` in its written form: with the schemas of the version of Weft that continued the job."""

    incarnation: int
    tuning: Tuning | None = None
    schemas: tuple[Schema, ...] = SCHEMAS


_opening_of: Final = converter(_Opening)


class Reader:
    """Reads the records of one journal in order, by the schemas stated in its header and by each new process.

    Only a `trusted` journal has its values unpickled, which may run any code: one in a folder of this user that no
    other user may write to.
    """

    def __init__(self, schemas: Sequence[Schema] = SCHEMAS, *, trusted: bool = False) -> None:
        self._trusted = trusted
        self._make = [_maker(schema) for schema in schemas]
        self._decode: Callable[[Any], Any] = msgspec.msgpack.Decoder(ext_hook=self._unpack).decode

    def read(self, payload: bytes) -> Tick | Epoch:
        """Return the record of the next payload. ConflictError: it is no record."""
        try:
            found = self._decode(payload)
            if isinstance(found, dict):
                opening = _opening_of(found)
                self._make = [_maker(schema) for schema in opening.schemas]
                return Epoch(opening.incarnation, opening.tuning)
            at, *values = found
            tick = self._make[at]([tuple(value) if type(value) is list else value for value in values])
            if type(tick) is not Tick:
                raise TypeError(f"a {type(tick).__name__} is not a record of the journal")
            return tick
        except ConflictError:
            raise
        except (msgspec.MsgspecError, ValueError, TypeError, LookupError, AttributeError, WeftError) as error:
            raise ConflictError(
                f"a record of the journal cannot be read: {error}",
                hint="The file was changed, or an unknown version of Weft wrote it.",
            ) from None

    def _unpack(self, code: int, data: memoryview) -> Any:
        value = self._decode(data)
        if code == _RECORD:
            return self._make[value[0]](value[1:])
        if code == _TUPLE:
            return tuple(value)
        if code == _ENUM:
            return _KINDS[RENAMED.get(value[0], value[0])](value[1])
        if code == _ARRAY:
            import numpy as np  # it takes longer to load than most pipelines need to start

            return np.frombuffer(value[2], dtype=np.dtype(value[0])).reshape(value[1]).copy()
        if code == _PAIRS:
            return dict(value)
        if code == _RANGE:
            return range(*value)
        if code == _SET:
            return frozenset(value[1:]) if value[0] else set(value[1:])
        if code == _INT:
            return int(value)
        if code == _TEXT:
            return bytes(value).decode("utf-8", "surrogatepass")
        if code == _PATCH:
            return patch_from_json(value)
        if code == _ROUTER:
            return _router(**value)
        if code == _PICKLED and self._trusted:
            return from_pickle(value)
        raise ValueError(f"unknown tag {code}")


def _router(router: str, n_src: int, n_dst: int, **more: Any) -> Any:
    if router == Rectangles.__name__:
        return Rectangles.from_rows(n_src, n_dst, more["partitions"], more["rows"])
    return _ROUTERS[router](n_src, n_dst, *([more["k"]] if "k" in more else []))


def _maker(written: Schema) -> Callable[[Sequence[Any]], Any]:
    """Return the function that makes a record from the values written by a schema."""
    name = RENAMED.get(written.kind, written.kind)
    kind = _RECORDS.get(name)
    number = NUMBERS.get(name, 1)
    if kind is None or written.number > number:

        def refuse(_: Sequence[Any]) -> Any:
            raise ConflictError(
                f"the journal has a record {written.kind!r} of schema {written.number}, which this version of Weft "
                "does not know",
                hint="Resume the run with the version of Weft that wrote it, or a newer one.",
            )

        return refuse
    fields = field_names(kind)
    if written.number == number and written.fields == fields:
        return lambda values: kind(*values)
    steps = [UPGRADES[name, before] for before in range(written.number, number)]

    def upgrade(values: Sequence[Any]) -> Any:
        found = dict(zip(written.fields, values, strict=True))
        for step in steps:
            found = step(found)
        return kind(**{field: value for field, value in found.items() if field in fields})

    return upgrade


def read_mapping(payload: bytes) -> Mapping[str, Any]:
    """Return the fields of a header. TypeError, msgspec.DecodeError: it is no header."""
    found = msgspec.msgpack.decode(payload)
    if not isinstance(found, dict):
        raise TypeError("not a mapping")
    return found
