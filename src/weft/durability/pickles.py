"""Pickles of Weft's own records by class and field names, so that a later version with other fields reads them.

A record without a reducer of its own would be pickled as the module of its class and the positions of its values. The
classes of graphs, jobs and journals are written by the names declared here, which stay when a class moves; only this
module has to stay, since pickles name its functions. Records of other parts, such as those inside the programs of a
front end, are written by module and name, like the functions beside them. Values of users are pickled by the default
reducers. A name of a manager or a router that a program has registered is written with the class or the function
behind it, and reading registers it again. `weft.store.codec.from_pickle` reads the bytes; only bytes from this user
alone may be read.
"""

from __future__ import annotations

from enum import Enum
from importlib import import_module
from typing import Any, Final

from msgspec import Struct

from weft.engine.policy import REGISTERED, place_of, register_manager
from weft.graph.grid import Grid
from weft.graph.logical import LogicalGraph, Manager, Movement
from weft.graph.rectangles import Rectangles
from weft.graph.routers import Group, Router
from weft.graph.routing import CUSTOM
from weft.model.records import field_names
from weft.store import codec

DECLARED: Final[dict[str, tuple[str, ...]]] = {
    "weft.model.chunks": ("Tier", "ChunkRef"),
    "weft.model.failures": ("RetryClass", "Failure"),
    "weft.model.program": ("Style", "Program"),
    "weft.model.resources": ("Resources", "Placement"),
    "weft.graph.axes": ("AxisOperation", "Axis", "GridMap"),
    "weft.graph.grid": ("OneToAll", "Grid", "GridPieces"),
    "weft.graph.lease": ("Cone",),
    "weft.graph.logical": (
        *("VertexKind", "Range", "Source", "SameAs", "Retry", "RestartPolicy", "Backoff", "MovementKind", "Movement"),
        *("Trigger", "Outcome", "Scheduling", "Storage", "Edge", "Manager", "Role", "Vertex", "Bubble", "Choice"),
        *("OnFailure", "LogicalGraph", "Patch"),
    ),
    "weft.graph.rectangles": ("Rectangles",),
    "weft.graph.routers": ("OneToOne", "Group", "Broadcast", "ScatterGather"),
    "weft.graph.task_spec": ("EdgeSpec", "JobVerdict", "TaskSpec"),
    "weft.engine.commands": (
        *("Launch", "Shrink", "Weigh", "Stop", "Acquire", "Withdraw", "Release", "Free", "FreeParts", "Probe"),
        *("Reply", "SetTimer", "Publish", "Restart", "MarkEnded", "Complete"),
    ),
    "weft.engine.core": (
        *("WorkerRow", "LeaseRow", "BubbleRow", "ChoiceRow", "RequestRow", "Cause", "Unslotted", "Planned"),
        *("ControlRow",),
    ),
    "weft.engine.machines.bubble": ("BubbleState",),
    "weft.engine.machines.job": ("JobState",),
    "weft.engine.machines.lease": ("LeaseState",),
    "weft.engine.machines.task": ("TaskState",),
    "weft.engine.machines.vertex": ("VertexState",),
    "weft.engine.notes": ("NoteKind", "Note"),
    "weft.engine.events": ("Requested",),
    "weft.engine.physical": ("Intervals", "ControlColumns"),
    "weft.engine.policy": ("Fault",),
    "weft.engine.ports": ("WorkerSpec",),
    "weft.engine.tuning": ("Tuning",),
}
"""The classes of graphs, jobs and journals, by their present module: a class is written by its name alone."""
RENAMED: Final[dict[str, str]] = {}
"""The current names of renamed classes, by the written name."""

_MODULES: Final = {name: module for module, names in DECLARED.items() for name in names}

_Fields = dict[str, Any]
_NAMES_OF_GRAPHS: Final = frozenset(vars(LogicalGraph()))


def to_pickle(value: Any) -> bytes:
    """Return any value as bytes for `from_pickle`, with Weft's records in it by name. ProgramError: it cannot be
    pickled.
    """
    return codec.to_pickle(value, by_name)


def by_name(value: Any) -> tuple[Any, ...] | None:
    """Return the reduction of a record of Weft's: its class and its fields by name; None for anything else."""
    kind = type(value)
    if not kind.__module__.startswith("weft."):
        return None
    name = _name_of(kind)
    if isinstance(value, Enum):
        return _made, (name, value.value)
    if isinstance(value, Struct):
        fields = {name: getattr(value, name) for name in value.__struct_fields__}
        factory = _factory_of(value)
        return (_record, (name, fields)) if factory is None else (_registered, (factory, name, fields))
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return _record, (name, dict(zip(kind._fields, value, strict=True)))
    if isinstance(value, LogicalGraph):
        return _record, (_name_of(LogicalGraph), dict(vars(value)))
    if isinstance(value, Router):
        return _made, (name, *_arguments(value))
    if "__slots__" in vars(kind) and kind.__bases__ == (object,) and "__reduce__" not in vars(kind):
        # The fields come after the object: they may lead back to it.
        return _blank, (name,), {name: getattr(value, name) for name in kind.__slots__}, None, None, _fill
    return None


def _name_of(kind: type[Any]) -> str:
    name = kind.__qualname__
    return name if _MODULES.get(name) == kind.__module__ else f"{kind.__module__}:{name}"


def _class_of(name: str) -> Any:
    module, _, path = RENAMED.get(name, name).rpartition(":")
    module = module or _MODULES.get(path, "")
    if not module:
        raise LookupError(f"this version of Weft has no class {path[:100]!r}")
    return getattr(import_module(module), path)


def _arguments(router: Router) -> tuple[Any, ...]:
    """Return the arguments that make a router: its look-up tables are computed again."""
    if isinstance(router, Rectangles):
        return router.n_src, router.partitions, [router.inputs(dst) for dst in range(router.n_dst)]
    if isinstance(router, Grid):
        return router.map, router.n_src, router.n_dst
    sizes = (router.n_src, router.n_dst)
    return (*sizes, router.group) if isinstance(router, Group) else sizes


def _made(name: str, *arguments: Any) -> Any:
    return _class_of(name)(*arguments)


def _record(name: str, fields: _Fields) -> Any:
    return known_fields(_class_of(name), fields)


def _factory_of(record: Struct) -> Any:
    """Return what a program has registered under the name of a manager or a router, None for anything else."""
    if isinstance(record, Manager):
        factory: Any = REGISTERED.get(record.name)
    else:
        factory = CUSTOM.get(record.name) if isinstance(record, Movement) else None
    return None if factory is None or factory.__module__.startswith("weft.") else factory


def _registered(factory: Any, name: str, fields: _Fields) -> Any:
    """Return a record that names a manager or a router, which `factory` makes."""
    record = _record(name, fields)
    if isinstance(record, Movement):
        CUSTOM.setdefault(record.name, factory)
    elif record.name not in REGISTERED or place_of(REGISTERED[record.name]) != place_of(factory):
        register_manager(record.name)(factory)
    return record


def known_fields(kind: Any, fields: _Fields) -> Any:
    """Return a record of the given fields without those unknown to its class. TypeError: one is missing."""
    names = _NAMES_OF_GRAPHS if kind is LogicalGraph else field_names(kind)
    return kind(**{name: value for name, value in fields.items() if name in names})


def _blank(name: str) -> Any:
    return object.__new__(_class_of(name))


def _fill(value: Any, fields: _Fields) -> None:
    """Set the fields of a row. TypeError: a field is unknown; rows have no defaults."""
    missing = set(type(value).__slots__) - fields.keys()
    if missing:
        raise TypeError(f"a {type(value).__name__} lacks {', '.join(sorted(missing))}")
    for name in type(value).__slots__:
        setattr(value, name, fields[name])
