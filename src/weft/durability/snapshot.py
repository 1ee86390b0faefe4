"""A master as bytes, so that a long journal can be cut: a snapshot of what came before, then records.

Stages and links refer to each other, and so do all the rows of a job. They are written one by one, each reference to
one as its number, so that a long chain of vertices is no deep recursion. Programs of the graph as it was submitted are
not written again, managers are made anew, and the ready set that all idle stages share comes back as itself.

The bytes are a pickle: only those that this user alone could have written may be read.
"""

from __future__ import annotations

import io
import pickle
from typing import TYPE_CHECKING, Any, Final

from weft.engine.consulting import make
from weft.engine.core import Tuning
from weft.engine.master import Master
from weft.engine.physical import NOTHING, Link, Stage
from weft.engine.replay import Replay
from weft.model.errors import ConflictError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from weft.engine.policy import ManagerFactory
    from weft.engine.replay import Tape
    from weft.graph.logical import LogicalGraph

_NOT_WRITTEN: Final = ("managers", "stages", "_links")


def dump(graph: LogicalGraph, replayed: Replay) -> bytes:
    """Return a replayed master of `graph`, with what its replay has collected. It is of no use afterwards."""
    import cloudpickle

    core = replayed.master.core
    links = list({id(link): link for stage in core.stages for link in (*stage.inputs, *stage.outputs)}.values())
    names: dict[int, tuple[Any, ...]] = {id(NOTHING): ("nothing", 0)}
    names |= {id(vertex.program): ("program", vertex.id) for vertex in graph.vertices.values()}
    names |= {id(stage): ("stage", at) for at, stage in enumerate(core.stages)}
    names |= {id(link): ("link", at) for at, link in enumerate(links)}
    managed = [stage.index for stage in core.stages if stage.manager is not None]
    for at in managed:
        core.stages[at].manager = None

    class Pickler(cloudpickle.Pickler):  # type: ignore[misc]
        def persistent_id(self, value: Any) -> tuple[Any, ...] | None:
            return names.get(id(value))

    file = io.BytesIO()
    pickle.dump((len(core.stages), len(links), managed, core.tuning), file)
    rows = [[getattr(stage, name) for name in Stage.__slots__] for stage in core.stages]
    about = {name: value for name, value in vars(core).items() if name not in _NOT_WRITTEN}
    Pickler(file, protocol=5).dump((about, rows, [vars(link) for link in links], replayed.collected()))
    return file.getvalue()


def load(data: bytes, graph: LogicalGraph, managers: Mapping[str, ManagerFactory], tape: Tape) -> Replay:
    """Return the replay that `dump` was given, to go on with; ConflictError if it does not fit.

    The bytes must be trusted: reading them runs whatever code they name.
    """
    file = io.BytesIO(data)
    try:
        stage_count, link_count, managed, tuning = pickle.load(file)
        if not isinstance(tuning, Tuning):
            raise TypeError("no tuning")
        master = Master(graph, graph.name, tuning, tape.managers(managers))
        core = master.core
        stages = [object.__new__(Stage) for _ in range(stage_count)]
        links = [object.__new__(Link) for _ in range(link_count)]
        found: dict[str, Callable[[Any], Any]] = {
            "nothing": lambda _: NOTHING,
            "program": lambda id: graph.vertices[id].program,
            "stage": lambda at: stages[at],
            "link": lambda at: links[at],
        }

        class Unpickler(pickle.Unpickler):
            def persistent_load(self, name: Any) -> Any:
                return found[name[0]](name[1])

        about, rows, details, collected = Unpickler(file).load()
        vars(core).update(about)
        core.stages = stages
        for stage, row in zip(stages, rows, strict=True):
            for name, value in zip(Stage.__slots__, row, strict=True):
                setattr(stage, name, value)
        for link, detail in zip(links, details, strict=True):
            vars(link).update(detail)
        for at in managed:
            stages[at].manager = make(core.managers, stages[at].vertex)
    except Exception as error:
        raise ConflictError(f"the snapshot in the journal cannot be read: {error}") from error
    replayed = Replay(master, tape)
    replayed.collect(collected)
    return replayed
