"""Actors in each kind of session: all tests of a kind share one session, whose processes start once."""

import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from typing import ClassVar

import pytest

import weft
from tests.fixtures.certificates import Authority
from tests.forked_nodes import ForkedNodes
from tests.unit.backends.test_relay import Line
from tests.unit.runtime.test_actors import PATIENCE_S, Counter, add_each
from weft.backends.cluster import Cluster
from weft.backends.cluster_nodes import NodeNetwork
from weft.backends.relay import RelayEntrance
from weft.model.errors import ActorEndedError
from weft.store.handshake import Credentials
from weft.wiring import concrete


class RelayedCluster(Cluster):
    """Nodes that the program reaches by a relay, as they do the program."""

    line: ClassVar[Line]

    def _entrance(self):
        return RelayEntrance(self.line.near, lambda: self.line.far.listen("127.0.0.1"))


@pytest.fixture(scope="module", params=["threads", "processes", "cluster", "relay", "cluster-tls", "relay-tls"])
def session(request, tmp_path_factory) -> Iterator[weft.Session]:
    if request.param.startswith(("cluster", "relay")):
        with ExitStack() as undo:
            patch = undo.enter_context(pytest.MonkeyPatch.context())
            ours, theirs = None, None
            if request.param.endswith("tls"):
                authority = Authority(tmp_path_factory.mktemp("authority"))
                ours, theirs = authority.issue("laptop"), authority.issue("machine")
            nodes = undo.enter_context(ForkedNodes(2, 1, grace_s=0.5, tls=theirs))
            kind, network = Cluster, None
            if request.param.startswith("relay"):
                line = Line()
                undo.callback(line.close)
                patch.setattr(RelayedCluster, "line", line, raising=False)
                kind, network = RelayedCluster, NodeNetwork(Credentials(nodes.secret, ours), line.near.dial)
            patch.setattr(socket, "gethostname", lambda: "program")  # the nodes are on another machine
            make = lambda at: kind(  # noqa: E731
                nodes.nodes, nodes.secret, at.store, tls=ours, grace_s=at.grace_s, network=network
            )
            patch.setitem(concrete.BACKENDS, "cluster", make)
            yield undo.enter_context(weft.Session("cluster", backups=False))
        return
    with weft.Session(request.param, workers=2, grace_s=0.5, backups=False) as opened:  # a second attempt calls again
        yield opened


def test_tasks_and_the_program_call_one_object(session):
    counter = session.actor(Counter, 100)
    sums = session.map(add_each, range(10), params={"counter": counter}).results()
    assert counter.add(0).result(PATIENCE_S) == 145
    assert max(sums) == 145
    with pytest.raises(AttributeError, match="no method 'ad'"):
        counter.ad()
    assert repr(counter) == "<actor Counter>"


@pytest.mark.parametrize("session", ["processes", "cluster", "relay"], indirect=True)
def test_an_actor_with_a_core_runs_in_a_worker_and_begins_again_after_its_death(session):
    counter = session.actor(Counter, 100, resources=weft.Resources(cpu=1), restarts=1)
    first = counter.where().result(PATIENCE_S)
    assert first != os.getpid()
    sums = session.map(add_each, range(10), params={"counter": counter}).results()
    assert max(sums) == counter.add(0).result(PATIENCE_S) == 145
    with pytest.raises(ActorEndedError, match="before it answered die"):
        counter.die().result(PATIENCE_S)
    assert counter.add(1).result(PATIENCE_S) == 101  # a new object
    assert counter.where().result(PATIENCE_S) != first
    weft.stop_actor(counter)
    with pytest.raises(ActorEndedError, match=r"the actor Counter has ended: .*stopped"):
        counter.add(1).result(PATIENCE_S)


def test_an_actor_of_a_graph_lives_as_long_as_its_consumers(session):
    g = weft.Graph("served")
    node, counter = weft.add_actor(g, Counter, options={"name": "sum", "kwargs": {"start": 5}})
    sums = g.map(add_each, range(4), node, params={"counter": counter}, name="worker")
    results = session.run(g, timeout_s=PATIENCE_S, progress=False)
    assert max(results[sums]) == 11
    with pytest.raises(ActorEndedError, match="the actor sum has ended: it was stopped"):
        counter.add(1).result(PATIENCE_S)


def test_an_actor_lives_on_without_its_handle(session):
    answer = session.actor(Counter, 4).add(1)
    assert answer.result(PATIENCE_S) == 5
    with pytest.raises(ActorEndedError, match="its constructor raised TypeError"):
        session.actor(Counter, 1, 2, 3).add(1).result(PATIENCE_S)


def test_a_graph_with_an_actor_runs_again_with_a_new_object(session):
    g = weft.Graph("again")
    node, counter = weft.add_actor(g, Counter, 5)
    sums = g.map(add_each, [1, 2], node, params={"counter": counter}, name="worker")
    for _ in range(5):
        assert max(session.run(g, timeout_s=PATIENCE_S, progress=False)[sums]) == 8
