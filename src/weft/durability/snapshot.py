"""A master as bytes, so that a long journal can be cut: a snapshot of its beginning, then records.

Stages and links refer to each other, and so do all the rows of a job. They are written one by one, each reference as a
number, so that a long chain of vertices is no deep recursion. Programs of the submitted graph are not written again,
managers are made anew, and the ready set shared by all idle stages is restored as one object.

Fields are written by name: those declared by `Core` and `Stage` (`KEPT`), and those of links and of the records inside
them (`weft.durability.pickles`). A reader skips unknown fields; missing ones have their values of a new job.

The bytes are a pickle: only bytes from this user alone may be read.
"""

from __future__ import annotations

import io
import pickle
from typing import TYPE_CHECKING, Any, Final

from weft.durability.pickles import by_name, known_fields
from weft.engine.consulting import make
from weft.engine.master import Master
from weft.engine.physical import NOTHING, PhysicalEdge, Stage, link_of
from weft.engine.replay import Replay
from weft.engine.tuning import Tuning
from weft.model.errors import ConflictError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from weft.engine.policy import ManagerFactory
    from weft.engine.replay import Tape
    from weft.graph.logical import LogicalGraph

SCHEMA: Final = 2
"""The schema number of snapshots: another one when a declared field is renamed or changes its meaning."""

_Fields = dict[str, Any]
_OF_LINKS: Final = PhysicalEdge.__struct_fields__
_BLANK: Final[tuple[Any, ...]] = (None, None, None, True, False, 0, False)
"""The arguments of a link whose fields follow."""


def dump(graph: LogicalGraph, replayed: Replay) -> bytes:
    """Return a replayed master of `graph` with the state of its replay as bytes. The master is unusable afterwards."""
    import cloudpickle

    core = replayed.whole_state
    links = list({id(link): link for stage in core.stages for link in (*stage.inputs, *stage.outputs)}.values())
    names: dict[int, tuple[Any, ...]] = {id(NOTHING): ("nothing", 0)}
    names |= {id(vertex.program): ("program", vertex.id) for vertex in graph.vertices.values()}
    names |= {id(stage): ("stage", at) for at, stage in enumerate(core.stages)}
    names |= {id(link): ("link", at) for at, link in enumerate(links)}
    managed = [stage.index for stage in core.stages if stage.manager is not None]

    class Pickler(cloudpickle.Pickler):  # type: ignore[misc]
        def persistent_id(self, value: Any) -> tuple[Any, ...] | None:
            return names.get(id(value))

        def reducer_override(self, value: Any) -> Any:
            found = by_name(value)
            return super().reducer_override(value) if found is None else found

    file = io.BytesIO()
    head = {"schema": SCHEMA, "stages": len(core.stages), "links": len(links), "managed": managed}
    pickle.dump(head | {"tuning": _fields(core.tuning, core.tuning.__struct_fields__)}, file)
    body = {
        "core": _fields(core, core.KEPT) | {"leases": dict(core.leases)},
        "stages": [_fields(stage, Stage.KEPT) for stage in core.stages],
        "links": [_fields(link, _OF_LINKS) for link in links],
        "collected": replayed.collected(),
    }
    Pickler(file, protocol=5).dump(body)
    return file.getvalue()


def load(data: bytes, graph: LogicalGraph, managers: Mapping[str, ManagerFactory], tape: Tape) -> Replay:
    """Return the replay that `dump` wrote, to continue it. ConflictError: it does not fit.

    The bytes must be trusted: reading them may run any code.
    """
    file = io.BytesIO(data)
    try:
        head = pickle.load(file)
        if head["schema"] != SCHEMA:
            raise ValueError(f"it is of schema {head['schema']}, and this version reads schema {SCHEMA}")
        master = Master(graph, graph.name, known_fields(Tuning, head["tuning"]), tape.managers(managers))
        replayed = Replay(master, tape)
        core = replayed.whole_state
        stages = [object.__new__(Stage) for _ in range(head["stages"])]
        links: list[Any] = [PhysicalEdge(*_BLANK) for _ in range(head["links"])]
        found: dict[str, Callable[[Any], Any]] = {
            "nothing": lambda _: NOTHING,
            "program": lambda id: graph.vertices[id].program,
            "stage": lambda at: stages[at],
            "link": lambda at: links[at],
        }

        class Unpickler(pickle.Unpickler):
            def persistent_load(self, name: Any) -> Any:
                return found[name[0]](name[1])

        body = Unpickler(file).load()
        core.leases.update(body["core"].pop("leases", {}))
        _set(core, core.KEPT, body["core"])
        core.stages = stages
        for stage, fields in zip(stages, body["stages"], strict=True):
            Stage.__init__(stage, fields["vertex"], fields["index"])  # a field that is not written is as in a new job
            _set(stage, Stage.KEPT, fields)
        for link, fields in zip(links, body["links"], strict=True):
            fresh = link_of(fields["edge"], fields["src"], fields["dst"])
            _set(link, _OF_LINKS, _fields(fresh, _OF_LINKS) | fields)
        for at in head["managed"]:
            stages[at].manager = make(core.managers, stages[at].vertex)
    except Exception as error:
        raise ConflictError(f"the snapshot in the journal cannot be read: {error}") from error
    replayed.collect(body["collected"])
    return replayed


def _fields(value: object, names: Iterable[str]) -> _Fields:
    return {name: getattr(value, name) for name in names}


def _set(value: object, names: Iterable[str], fields: _Fields) -> None:
    for name in names:
        if name in fields:
            setattr(value, name, fields[name])
