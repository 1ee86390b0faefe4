"""How the nursery learns that its owner has ended in order, so that it need not wait for the owner's death."""

import socket

import pytest

from weft.worker.channel import END, KILL, Channel
from weft.worker.nursery import said_end


@pytest.mark.parametrize(("messages", "orderly"), [([(KILL, 1), (END,)], True), ([(KILL, 1)], False), ([], False)])
def test_the_end_is_read_after_the_owner_has_closed_its_socket(messages, orderly):
    ours, theirs = socket.socketpair()
    with ours, theirs:
        owner, nursery = Channel(theirs), Channel(ours)
        nursery.send((KILL, 0))  # an unread report
        for message in messages:
            owner.send(message)
        theirs.shutdown(socket.SHUT_RDWR)
        theirs.close()
        with pytest.raises(BrokenPipeError):
            nursery.send((KILL, 0))
        assert said_end(nursery) is orderly
