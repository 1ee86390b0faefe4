"""Weft: one engine for the graphs that data and machine-learning teams run.

Public names are handed on when they are first asked for, so that `import weft` loads nothing heavy::

    import weft

    g = weft.Graph("squares")
    squares = g.map(square, range(10))
    total = g.add(sum, weft.gather(squares))
    with weft.Session() as session:
        print(session.run(g).value(total))
"""

from __future__ import annotations

from importlib import import_module

from weft._version import __version__

TYPE_CHECKING = False  # `typing` would cost more than the rest of this import
if TYPE_CHECKING:
    from typing import Any

    from weft.authoring import PipelineResult as PipelineResult
    from weft.authoring import pipeline as pipeline
    from weft.engine.policy import Moment as Moment
    from weft.engine.policy import VertexManager as VertexManager
    from weft.engine.policy import register_manager as register_manager
    from weft.frontends.pipelines.declaring import Artifact as Artifact
    from weft.frontends.pipelines.declaring import CacheOptions as CacheOptions
    from weft.frontends.pipelines.declaring import Input as Input
    from weft.frontends.pipelines.declaring import Output as Output
    from weft.frontends.pipelines.declaring import Parameter as Parameter
    from weft.frontends.pipelines.declaring import command as command
    from weft.frontends.pipelines.declaring import each as each
    from weft.frontends.pipelines.declaring import step as step
    from weft.graph.builder import Graph as Graph
    from weft.graph.builder import VertexHandle as VertexHandle
    from weft.graph.builder import after as after
    from weft.graph.builder import controlled as controlled
    from weft.graph.builder import custom as custom
    from weft.graph.builder import gather as gather
    from weft.graph.builder import grid as grid
    from weft.graph.builder import one_to_one as one_to_one
    from weft.graph.builder import shuffle as shuffle
    from weft.graph.logical import Backoff as Backoff
    from weft.graph.logical import Manager as Manager
    from weft.graph.logical import OnFailure as OnFailure
    from weft.graph.logical import Outcome as Outcome
    from weft.graph.logical import Range as Range
    from weft.graph.logical import RestartPolicy as RestartPolicy
    from weft.graph.logical import Retry as Retry
    from weft.graph.logical import SameAs as SameAs
    from weft.graph.logical import Source as Source
    from weft.graph.logical import Storage as Storage
    from weft.graph.logical import Trigger as Trigger
    from weft.graph.logical import VertexKind as VertexKind
    from weft.model.clusters import ClusterOptions as ClusterOptions
    from weft.model.errors import ActorEndedError as ActorEndedError
    from weft.model.errors import CapacityError as CapacityError
    from weft.model.errors import ConflictError as ConflictError
    from weft.model.errors import DefinitionError as DefinitionError
    from weft.model.errors import DiskFullError as DiskFullError
    from weft.model.errors import DocumentError as DocumentError
    from weft.model.errors import FederatedFileError as FederatedFileError
    from weft.model.errors import ForbiddenError as ForbiddenError
    from weft.model.errors import GraphError as GraphError
    from weft.model.errors import InputLimitError as InputLimitError
    from weft.model.errors import InternalError as InternalError
    from weft.model.errors import InvalidTransition as InvalidTransition
    from weft.model.errors import JobFileError as JobFileError
    from weft.model.errors import MissingExtraError as MissingExtraError
    from weft.model.errors import NotFoundError as NotFoundError
    from weft.model.errors import OutOfMemoryError as OutOfMemoryError
    from weft.model.errors import PartyError as PartyError
    from weft.model.errors import PartyIdentityError as PartyIdentityError
    from weft.model.errors import PartyMessageError as PartyMessageError
    from weft.model.errors import PartyRefusedError as PartyRefusedError
    from weft.model.errors import PartyUnreachableError as PartyUnreachableError
    from weft.model.errors import PartyVersionError as PartyVersionError
    from weft.model.errors import PeerMovedError as PeerMovedError
    from weft.model.errors import PipelineError as PipelineError
    from weft.model.errors import ProgramError as ProgramError
    from weft.model.errors import RunCancelledError as RunCancelledError
    from weft.model.errors import RunFailedError as RunFailedError
    from weft.model.errors import SqlError as SqlError
    from weft.model.errors import TaskError as TaskError
    from weft.model.errors import UnreadableError as UnreadableError
    from weft.model.errors import UsageError as UsageError
    from weft.model.errors import WeftError as WeftError
    from weft.model.program import Program as Program
    from weft.model.resources import Placement as Placement
    from weft.model.resources import Resources as Resources
    from weft.queries import Query as Query
    from weft.queries import SqlContext as SqlContext
    from weft.queries import sql as sql
    from weft.runtime.actors import add_actor as add_actor
    from weft.runtime.asynchronous import RunEvent as RunEvent
    from weft.runtime.completion import as_completed as as_completed
    from weft.runtime.mapping import Mapped as Mapped
    from weft.runtime.run import Results as Results
    from weft.runtime.run import Run as Run
    from weft.store.serializers import register_serializer as register_serializer
    from weft.wiring import Session as Session
    from weft.worker.actors import ActorHandle as ActorHandle
    from weft.worker.actors import stop_actor as stop_actor

_HOMES = {
    "weft.authoring": ("PipelineResult", "pipeline"),
    "weft.frontends.pipelines.declaring": (
        "Artifact", "CacheOptions", "Input", "Output", "Parameter", "command", "each", "step",
    ),
    "weft.engine.policy": ("Moment", "VertexManager", "register_manager"),
    "weft.graph.builder": (
        "Graph", "VertexHandle", "after", "controlled", "custom", "gather", "grid", "one_to_one", "shuffle",
    ),
    "weft.graph.logical": (
        "Backoff", "Manager", "VertexKind", "OnFailure", "Outcome", "Range", "RestartPolicy", "Retry", "SameAs",
        "Source", "Storage", "Trigger",
    ),
    "weft.model.clusters": ("ClusterOptions",),
    "weft.model.errors": (
        "ActorEndedError", "CapacityError", "ConflictError", "DefinitionError", "DiskFullError", "DocumentError",
        "FederatedFileError", "ForbiddenError", "GraphError", "InputLimitError", "InternalError", "InvalidTransition",
        "JobFileError",
        "MissingExtraError", "NotFoundError", "OutOfMemoryError", "PartyError", "PeerMovedError",
        "PartyIdentityError", "PartyMessageError", "PartyRefusedError", "PartyUnreachableError", "PartyVersionError",
        "PipelineError", "ProgramError", "RunCancelledError", "RunFailedError", "SqlError", "TaskError",
        "UnreadableError", "UsageError", "WeftError",
    ),
    "weft.model.program": ("Program",),
    "weft.model.resources": ("Placement", "Resources"),
    "weft.queries": ("SqlContext", "Query", "sql"),
    "weft.runtime.actors": ("add_actor",),
    "weft.runtime.asynchronous": ("RunEvent",),
    "weft.runtime.completion": ("as_completed",),
    "weft.runtime.mapping": ("Mapped",),
    "weft.runtime.session": ("Results", "Run"),
    "weft.store.serializers": ("register_serializer",),
    "weft.wiring": ("Session",),
    "weft.worker.actors": ("ActorHandle", "stop_actor"),
}  # fmt: skip
_HOME = {name: module for module, names in _HOMES.items() for name in names}

__all__ = ["__version__", *sorted(_HOME)]


def __getattr__(name: str) -> Any:
    try:
        module = _HOME[name]
    except KeyError:
        raise AttributeError(f"module 'weft' has no attribute {name!r}") from None
    value = globals()[name] = getattr(import_module(module), name)
    return value


def __dir__() -> list[str]:
    from importlib.util import find_spec

    missing = () if find_spec("duckdb") and find_spec("pyarrow") else _HOMES["weft.queries"]  # they would raise
    return sorted({*__all__, *({"remote", "tensor"} & globals().keys())} - {*missing})
