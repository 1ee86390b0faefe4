"""The server of an actor, at the moments that no session can choose."""

import socket

from weft.worker import actor_server
from weft.worker.actors import ActorAddress, ActorOptions


class LateListener:
    """A listener that accepts a caller while its server closes."""

    def __init__(self) -> None:
        self.near, self.far = socket.socketpair()
        self.server: actor_server._Server | None = None

    def accept(self):
        assert self.server is not None
        self.server.close()
        return self.near, None

    def shutdown(self, how):
        pass

    def close(self):
        pass


def test_a_caller_that_comes_while_the_actor_ends_is_sent_away(tmp_path, monkeypatch):
    late = LateListener()
    monkeypatch.setattr(actor_server, "_at_home", lambda address: late)
    address = ActorAddress("list", socket.gethostname(), str(tmp_path), b"secret", (), 1)
    server = late.server = actor_server._Server(address, ActorOptions(list, (), {}, 1), 0)
    with late.far:
        server.run()
        assert late.far.recv(1) == b""
    assert late.near.fileno() == -1
