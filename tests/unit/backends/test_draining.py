"""The order in which nodes that drain at once hand on their outputs, and leave."""

from types import SimpleNamespace
from typing import Any

import pytest

from weft.backends import node_messages as messages
from weft.backends.cluster_nodes import NodeAddress, NodeConnection
from weft.backends.draining import DrainedNodes
from weft.engine.events import OutputMoved
from weft.model.chunks import ChunkRef, Tier
from weft.store import peers
from weft.store.blocks import BlockManager

COUNT = 4


class Clustered:
    """A cluster of three nodes, whose helper threads work when `work` is called."""

    def __init__(self, tmp_path):
        self.store = BlockManager(None, shm=tmp_path / "shm", spill=tmp_path / "spill")
        self.deleted: list[str] = []
        self.store.add_tier(peers.PeerTier(self.delete))
        self.column = self.store.column(("job", "rows"), COUNT, 0)
        self.events: list[Any] = []
        backend = SimpleNamespace(columns={"rows": self.column})
        self.loop: Any = SimpleNamespace(
            jobs={"job": SimpleNamespace(backend=backend)},
            clock=SimpleNamespace(now=lambda: 0.0),
            post_later=lambda job, event: self.events.append(event),
        )
        self.nodes = {
            number: NodeConnection(number, NodeAddress(("10.0.0.1", 1000 + number), 1, f"node {number}"))
            for number in range(3)
        }
        self.sent: list[Any] = []
        for node in self.nodes.values():
            node.link = SimpleNamespace(send=lambda message, to=node.number: self.sent.append((to, message)))
        self.gone: list[int] = []
        self.waiting: list[Any] = []
        self.draining = DrainedNodes(self)

    def put(self, at, number):
        """Let a node have an output."""
        self.store.put_range(self.column, at, [self.ref(at, number)])

    def ref(self, at, number):
        location = peers.location_of(self.nodes[number].about.address, "job", "rows", at, 7)
        return ChunkRef(Tier.PEER, location, 0, 100_000, 0)

    def call_beside(self, action):
        self.waiting.append(action)

    def work(self):
        while self.waiting:
            self.waiting.pop(0)()

    def delete(self, locations):
        self.deleted += locations

    def leave_place(self, node):
        node.dead = True

    def let_go(self, node):
        self.gone.append(node.number)

    def drain(self, number):
        assert self.draining.begin(self.nodes[number], "its machine is wanted elsewhere")
        self.draining.drained(number)

    def asked(self):
        """Return the copies that nodes were asked for since the last call: node, number, indexes."""
        found = [(to, message[1], [at for at, _ in message[6]]) for to, message in self.sent]
        assert all(message[0] == messages.COPY for _, message in self.sent)
        self.sent.clear()
        return found

    def places(self):
        """Return the node of each output."""
        return [peers.parse(cell.location).port - 1000 for cell in self.column.values if type(cell) is ChunkRef]


@pytest.fixture
def cluster(tmp_path):
    for name in ("shm", "spill"):
        (tmp_path / name).mkdir()
    return Clustered(tmp_path)


def test_a_node_leaves_when_its_copies_are_referred_to(cluster):
    cluster.put(0, 0)
    cluster.drain(0)
    cluster.work()
    ((to, number, at),) = cluster.asked()
    assert at == [0]
    assert not cluster.gone
    cluster.draining.copied(number, [cluster.ref(0, to)])
    cluster.work()
    assert cluster.gone == [0]
    assert cluster.places() == [to]
    assert cluster.events == [OutputMoved(0.0, "rows", 0, 1, to)]


def test_a_node_that_gets_copies_waits_for_them_and_hands_them_on(cluster):
    cluster.put(0, 0)
    cluster.drain(0)
    cluster.work()
    ((first, number, _),) = cluster.asked()
    cluster.drain(first)
    cluster.work()
    assert not cluster.gone, "the copies are on the way there"
    cluster.draining.copied(number, [cluster.ref(0, first)])
    cluster.work()
    assert cluster.gone == [0]
    ((last, number, at),) = cluster.asked()
    assert (last, at) == (3 - first, [0])
    cluster.draining.copied(number, [cluster.ref(0, last)])
    cluster.work()
    assert cluster.gone == [0, first]
    assert cluster.places() == [last]


def test_a_node_with_new_copies_does_not_leave_before_it_is_emptied_again(cluster):
    """Its own outputs are elsewhere already, and the look that follows them comes first."""
    cluster.put(0, 0)
    cluster.drain(0)
    cluster.work()
    ((first, number, _),) = cluster.asked()
    cluster.put(1, first)
    cluster.drain(first)
    cluster.work()
    ((last, other, _),) = cluster.asked()
    cluster.draining.copied(other, [cluster.ref(1, last)])
    cluster.draining.copied(number, [cluster.ref(0, first)])
    cluster.work()
    ((_, number, at),) = cluster.asked()
    assert at == [0]
    assert first not in cluster.gone
    cluster.draining.copied(number, [cluster.ref(0, last)])
    cluster.work()
    assert cluster.places() == [last, last]
    assert cluster.gone == [0, first]


def test_copies_that_come_too_late_are_deleted(cluster):
    cluster.put(0, 0)
    cluster.drain(0)
    cluster.work()
    ((to, number, _),) = cluster.asked()
    cluster.nodes[0].dead = True
    cluster.draining.drop_copies(cluster.nodes[0])
    copy = cluster.ref(0, to)
    cluster.draining.copied(number, [copy])
    assert cluster.deleted == [copy.location]


def test_a_node_leaves_though_the_copies_that_it_was_to_get_are_lost(cluster):
    cluster.put(0, 0)
    cluster.drain(0)
    cluster.work()
    ((first, _, _),) = cluster.asked()
    cluster.drain(first)
    cluster.work()
    cluster.nodes[0].dead = True
    cluster.draining.drop_copies(cluster.nodes[0])
    cluster.work()
    assert cluster.gone == [first]
