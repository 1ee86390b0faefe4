"""Nodes of a cluster that are to go: the others copy their outputs first, so that nothing is computed again."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from weft.backends import node_messages as messages
from weft.engine.events import OutputMoved
from weft.model.chunks import ChunkRef
from weft.model.errors import WeftError
from weft.store import codec, tiers

if TYPE_CHECKING:
    from weft.backends.cluster_nodes import NodeConnection
    from weft.engine.ports import Shell
    from weft.store.api import Column
    from weft.store.blocks import BlockManager

_COPIES: Final = 64
"""The most outputs in one message to copy them."""


class OutputCopies(NamedTuple):
    """Outputs of a node that leaves, which another one copies: cells of a column, with their present references."""

    source: NodeConnection
    to: NodeConnection
    column: Column
    cells: list[tuple[int, ChunkRef]]


class DrainedCluster(Protocol):
    """What the draining of nodes needs of their cluster."""

    @property
    def loop(self) -> Shell:
        """The loop of the session."""
        ...

    @property
    def store(self) -> BlockManager:
        """The store with the references to the outputs of nodes."""
        ...

    @property
    def nodes(self) -> Mapping[int, NodeConnection]:
        """The nodes that there have been, by number."""
        ...

    def call_beside(self, action: Callable[[], None]) -> None:
        """Call `action`, which may block, on another thread."""
        ...

    def delete(self, locations: Iterable[str]) -> None:
        """Have nodes delete outputs to which no cell refers any more."""
        ...

    def leave_place(self, node: NodeConnection) -> None:
        """Count a node as gone. The caller has `DrainedNodes.lock`."""
        ...

    def let_go(self, node: NodeConnection) -> None:
        """Report that an emptied node is gone, and end it."""
        ...


class DrainedNodes:
    """Empties nodes that are to go, and lets each go when nobody reads there any more.

    `lock` guards whether nodes are gone or leave.
    """

    def __init__(self, cluster: DrainedCluster) -> None:
        self.lock = threading.Lock()
        self._cluster = cluster
        self._copies: dict[int, OutputCopies] = {}
        self._numbers = itertools.count()
        self._filled: set[NodeConnection] = set()
        """Nodes that were to leave when copies arrived there; they are emptied again."""

    def begin(self, node: NodeConnection, reason: str) -> bool:
        """Note that a node is to leave; False: it leaves already, or is gone."""
        with self.lock:
            if node.dead or node.leaves:
                return False
            node.leaves = reason
            return True

    def drained(self, number: int) -> None:
        """Empty a node without running tasks; the loop calls this and does not wait."""
        self._cluster.call_beside(partial(self._empty, self._cluster.nodes[number]))

    def _empty(self, node: NodeConnection) -> None:
        """Have the outputs of a node copied elsewhere, and let it go once that is done."""
        store = self._cluster.store
        here: list[tuple[Column, list[tuple[int, ChunkRef]]]] = []
        others = [other for other in self._cluster.nodes.values() if not (other.dead or other.leaves)]
        turn = itertools.cycle(others)
        sent: list[tuple[int, OutputCopies]] = []
        with self.lock:
            self._filled.discard(node)
            coming = {(id(one.column), at) for one in self._copies.values() for at, _ in one.cells}
            for column, found in store.referring(node.prefix):
                cells = [(at, column.values[at]) for at in found if (id(column), at) not in coming]
                cells = [(at, cell) for at, cell in cells if type(cell) is ChunkRef]  # not freed meanwhile
                for lo in range(0, len(cells), _COPIES) if others else ():
                    copies = OutputCopies(node, next(turn), column, cells[lo : lo + _COPIES])
                    sent.append((next(self._numbers), copies))
                if not others:
                    here.append((column, cells))
            self._copies.update(sent)
        for column, cells in here:
            self._copy_here(column, cells)
        for copy, (_, to, column, cells) in sent:
            to.send(messages.COPY, copy, *column.key, len(column), column.parts, cells)
        for to in {copies.to for _, copies in sent}:
            if to.dead:  # since the choice: nobody else drops its copies
                self.drop_copies(to)
        self._perhaps_leave(node)

    def _copy_here(self, column: Column, cells: list[tuple[int, ChunkRef]]) -> None:
        for at, cell in cells:
            with suppress(WeftError):  # it is made again where it is needed
                self._cluster.store.replace(column, at, cell, codec.decode(tiers.read(cell).toreadonly()))

    def copied(self, number: int, refs: list[ChunkRef | None]) -> None:
        """Refer to copies from now on, and let their source go if they were its last ones."""
        loop, store = self._cluster.loop, self._cluster.store
        unused = []
        # The source may go as soon as no copies are missing: all of them are referred to before.
        with self.lock:
            copies = self._copies.pop(number, None)
            if copies is None:
                unused = [ref.location for ref in refs if ref is not None]
            else:
                column, (job, vertex) = copies.column, copies.column.key
                for (at, old), new in zip(copies.cells, refs, strict=True):
                    if new is None:
                        continue
                    if not store.replace(column, at, old, new):
                        unused.append(new.location)
                    elif job in loop.jobs and vertex in loop.jobs[job].backend.columns:  # no block of a stream
                        loop.post_later(job, OutputMoved(loop.clock.now(), vertex, at, at + 1, copies.to.number))
                if copies.to.leaves:
                    self._filled.add(copies.to)
        self._cluster.delete(unused)
        if copies is None:
            return
        if copies.to.leaves:
            self.drained(copies.to.number)
        self._cluster.call_beside(partial(self._perhaps_leave, copies.source))

    def drop_copies(self, lost: NodeConnection) -> None:
        """Have outputs copied again whose copies were lost with a node."""
        with self.lock:
            gone = [number for number, copies in self._copies.items() if lost in (copies.to, copies.source)]
            found = [self._copies.pop(number) for number in gone]
        for number in {copies.source.number for copies in found} - {lost.number}:
            self.drained(number)
        for node in {copies.to for copies in found if copies.to.leaves} - {lost}:
            self._cluster.call_beside(partial(self._perhaps_leave, node))  # it has waited for them

    def _perhaps_leave(self, node: NodeConnection) -> None:
        """Let a node go whose outputs were copied, and which makes no copies of others, once no lease may read there
        that was sent before.
        """
        with self.lock:
            if (
                node.dead
                or node in self._filled
                or any(node in (copies.source, copies.to) for copies in self._copies.values())
            ):
                return
            present = {(other.number, key) for other in self._cluster.nodes.values() for key in list(other.leases)}
            node.readers = present if node.readers is None else node.readers & present
            if node.readers:
                return
            self._cluster.leave_place(node)
        self._cluster.let_go(node)

    def lease_ended(self) -> None:
        """Let nodes go that only waited for a lease which has ended."""
        for node in self._cluster.nodes.values():
            if node.readers and not node.dead:
                self._cluster.call_beside(partial(self._perhaps_leave, node))
