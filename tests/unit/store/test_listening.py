"""The ports at which processes of a cluster listen."""

import errno
import os
import socket
from contextlib import ExitStack

import pytest

from weft.model.errors import CapacityError, UsageError
from weft.store.listening import PORTS, allowed_ports, listen

HERE = "127.0.0.1"


def test_any_free_port_is_taken_where_none_are_named(monkeypatch):
    monkeypatch.delenv(PORTS, raising=False)
    with listen(HERE) as listener:
        assert listener.getsockname()[1] > 0


def test_ports_that_are_taken_are_left_out_until_none_is_left(monkeypatch):
    with ExitStack() as taken:
        first = taken.enter_context(socket.create_server((HERE, 0))).getsockname()[1]
        last = min(first + 3, 65_535)
        monkeypatch.setenv(PORTS, f"{first}-{last}")
        found: set[int] = set()

        def take_all():
            while len(found) < 10:
                found.add(taken.enter_context(listen(HERE)).getsockname()[1])

        with pytest.raises(CapacityError, match=f"no port of WEFT_PORTS={first}-{last} is free at {HERE}"):
            take_all()
        assert found <= set(range(first + 1, last + 1))


def test_an_address_of_another_machine_is_no_lack_of_ports(monkeypatch):
    monkeypatch.setenv(PORTS, "20000-20999")
    with pytest.raises(OSError, match=os.strerror(errno.EADDRNOTAVAIL)):
        listen("203.0.113.1")  # of documents alone


@pytest.mark.parametrize("text", ["20000", "9-8", "0-7", "20000-70000", "a-b", "-", "1-2-3"])
def test_what_is_no_range_is_refused(text):
    with pytest.raises(UsageError, match="is no range of ports") as caught:
        allowed_ports({PORTS: text})
    assert "WEFT_PORTS=20000-20999" in caught.value.hint


def test_a_range_has_both_ends():
    assert allowed_ports({PORTS: " 20000 - 20001 "}) == range(20_000, 20_002)
    assert not allowed_ports({PORTS: ""})
