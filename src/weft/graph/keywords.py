"""The types of the keywords of the builder's methods, for type checkers; programs load none of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from weft.graph.logical import Manager, Outcome, RestartPolicy, Retry, Role, Storage, Trigger, VertexKind
    from weft.model.resources import Placement, Resources


class VertexFields(TypedDict, total=False):
    """The fields of `Vertex` that every method which adds a vertex takes as keywords."""

    kind: VertexKind
    resources: Resources | tuple[Resources, ...]
    placement: Placement | None
    retry: Retry
    restart: RestartPolicy | None
    timeout_s: float | None
    idempotent: bool
    cache_key: str | None
    manager: Manager | str | None
    keep: bool
    output_bytes: int | None
    scratch_bytes: int
    expands: bool
    lazy: bool
    label: str
    role: Role
    outputs: tuple[str, ...] | None
    final: bool
    controlled: bool
    counted: bool
    starts_processes: bool
    priority: int


class LinkOptions(TypedDict, total=False):
    """The keywords of every wrapper.

    `concurrent`: source and destination run at the same time (default for a SERVICE). `when`, `fraction`, `event`: the
    moment at which the destination may start. `outcome`: the end of the source that the edge waits for. `storage`: the
    place of the data. `blocking`: the destination reads the whole input before it yields. `name`: the id of the edge.
    """

    concurrent: bool
    when: Trigger
    fraction: float
    event: str
    outcome: Outcome
    storage: Storage
    blocking: bool
    name: str
