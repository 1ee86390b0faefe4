import random
import threading
import time
from typing import Any

import pytest

from weft.frontends.federated.schema import Party
from weft.model.errors import (
    PartyError,
    PartyIdentityError,
    PartyMessageError,
    PartyRefusedError,
    PartyUnreachableError,
)
from weft.parties import values
from weft.parties.values import AttemptKey, ValueHub

GUEST, HOST = Party("guest", "1"), Party("host", "2")
ARBITER = Party("arbiter", "1")
KEY = AttemptKey("job", 1, "lr_0", 0)


class Gate:
    def __init__(self):
        self.values = []

    def deliver(self, name, source, data):
        self.values.append((name, source, data))


class Network:
    """Two hubs, and a line between them that loses and doubles messages."""

    def __init__(self, seed=0, *, loses=0.0, doubles=0.0):
        self.random = random.Random(seed)
        self.loses, self.doubles = loses, doubles
        self.refusals: list[tuple[Any, ...]] = []
        self.silent: list[tuple[Any, ...]] = []
        told = (lambda *what: self.refusals.append(what)), (lambda *what: self.silent.append(what))
        self.hubs = {id: ValueHub(id, self.line(id), *told) for id in "12"}

    def line(self, sender):
        def call(party, path, body):
            assert path == values.VALUES_PATH
            if self.random.random() < self.loses:
                raise PartyUnreachableError("lost", party=party)
            answer = self.hubs[party].receive(sender, body)
            if self.random.random() < self.doubles:
                self.hubs[party].receive(sender, body)
            if self.random.random() < self.loses:
                raise PartyUnreachableError("the answer was lost", party=party)
            return answer

        return call

    def moved(self, id, part):
        """Return what a part has exchanged in the attempt of the tests."""
        found = self.hubs[id].traffic(KEY, part)
        assert found is not None
        return found


def until(condition):
    end = time.monotonic() + 180
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.002)


def no_room(thread):
    raise RuntimeError("can't start new thread")


def test_a_value_that_found_no_room_for_a_thread_is_sent_once_when_it_is_sent_again(monkeypatch):
    network, gate = Network(), Gate()
    network.hubs["1"].open(KEY, GUEST, Gate())
    network.hubs["2"].open(KEY, HOST, gate)
    with monkeypatch.context() as full:
        full.setattr(threading.Thread, "start", no_room)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            network.hubs["1"].send(KEY, GUEST, "a", HOST, b"1")
    for name in "ab":
        network.hubs["1"].send(KEY, GUEST, name, HOST, b"1")
    until(lambda: len(gate.values) == 2)
    assert gate.values == [("a", GUEST, b"1"), ("b", GUEST, b"1")]
    assert network.moved("1", GUEST)[HOST]["a"].values_out == 1


def test_values_arrive_in_order_and_in_pieces(monkeypatch):
    monkeypatch.setattr(values, "PIECE_BYTES", 7)
    network, gate = Network(), Gate()
    network.hubs["1"].open(KEY, GUEST, Gate())
    network.hubs["2"].open(KEY, HOST, gate)
    sent = [bytes([at]) * at for at in range(60)]
    for at, data in enumerate(sent):
        network.hubs["1"].send(KEY, GUEST, f"name-{at % 3}", HOST, data)
    until(lambda: len(gate.values) == len(sent))
    assert gate.values == [(f"name-{at % 3}", GUEST, data) for at, data in enumerate(sent)]
    out, into = network.moved("1", GUEST)[HOST], network.moved("2", HOST)[GUEST]
    assert {kind: one.values_out for kind, one in out.items()} == {"name-0": 20, "name-1": 20, "name-2": 20}
    assert sum(one.bytes_out for one in out.values()) == sum(map(len, sent))
    assert sum(one.bytes_in for one in into.values()) == sum(map(len, sent))


def test_kinds_are_names_up_to_a_slash_and_few():
    network = Network()
    network.hubs["1"].open(KEY, GUEST, Gate())
    for at in range(200):
        network.hubs["1"].send(KEY, GUEST, f"gradient/{at}", ARBITER, b"12")
        network.hubs["1"].send(KEY, GUEST, f"name-{at}", ARBITER, b"1")
    found = network.moved("1", GUEST)[ARBITER]
    assert (found["gradient"].values_out, found["gradient"].bytes_out) == (200, 400)
    assert found["other"].values_out == 200 - sum(kind.startswith("name-") for kind in found)
    assert len(found) <= 65
    assert network.hubs["2"].traffic(KEY, HOST) is None


@pytest.mark.parametrize("seed", range(5))
def test_a_bad_line_changes_nothing(seed, monkeypatch):
    monkeypatch.setattr(values, "PIECE_BYTES", 5)
    monkeypatch.setattr(values, "_FIRST_PAUSE_S", 0.001)
    monkeypatch.setattr(values, "_LAST_PAUSE_S", 0.002)
    network, gate = Network(seed, loses=0.3, doubles=0.3), Gate()
    network.hubs["1"].open(KEY, GUEST, Gate())
    network.hubs["2"].open(KEY, HOST, gate)
    sent = [bytes([at]) * (at % 13) for at in range(40)]
    for data in sent:
        network.hubs["1"].send(KEY, GUEST, "x", HOST, data)
    until(lambda: len(gate.values) == len(sent))
    assert [data for _, _, data in gate.values] == sent
    assert network.refusals == []


def test_a_message_that_comes_again_is_answered_when_its_value_is_handed_over():
    bodies: list[bytes] = []
    given, passed = threading.Event(), threading.Event()

    class SlowGate(Gate):
        def deliver(self, name, source, data):
            if data == b"first":
                given.set()
                passed.wait(0.2)  # the sender has lost the answer, and sends the message again
            super().deliver(name, source, data)

    def keep(party, path, body):
        bodies.append(body)
        return b""

    sender = ValueHub("1", keep, lambda *_: None, lambda *_: None)
    sender.open(KEY, GUEST, Gate())
    for data in (b"first", b"second"):
        sender.send(KEY, GUEST, "x", HOST, data)
    until(lambda: len(bodies) == 2)
    hub, gate = Network().hubs["2"], SlowGate()
    hub.open(KEY, HOST, gate)
    late = threading.Thread(target=hub.receive, args=("1", bodies[0]))
    late.start()
    given.wait()
    for body in bodies:
        hub.receive("1", body)
    passed.set()
    late.join()
    assert [data for _, _, data in gate.values] == [b"first", b"second"]


def test_values_for_a_party_that_is_not_known_go_on_when_it_is_known_again(monkeypatch):
    monkeypatch.setattr(values, "_FIRST_PAUSE_S", 0.001)
    network, gate, known = Network(), Gate(), threading.Event()
    line = network.line("1")

    def call(party, path, body):
        if not known.is_set():
            raise PartyIdentityError(f"party {party} is not known to party 1", party=party)
        return line(party, path, body)

    hub = ValueHub("1", call, lambda *what: network.refusals.append(what), lambda *what: network.silent.append(what))
    hub.open(KEY, GUEST, Gate())
    network.hubs["2"].open(KEY, HOST, gate)
    hub.send(KEY, GUEST, "x", HOST, b"1")
    until(lambda: network.silent)
    known.set()
    until(lambda: gate.values and len(network.silent) == 2)
    assert network.silent == [(KEY, GUEST, "2", False), (KEY, GUEST, "2", True)]
    assert network.refusals == []


def test_a_party_that_takes_no_values_is_told_once_and_when_it_takes_them_again():
    network, gate = Network(loses=1.0), Gate()
    network.hubs["1"].open(KEY, GUEST, Gate())
    network.hubs["2"].open(KEY, HOST, gate)
    network.hubs["1"].send(KEY, GUEST, "x", HOST, b"value")
    until(lambda: network.silent)
    network.loses = 0.0
    until(lambda: len(network.silent) == 2)
    assert network.silent == [(KEY, GUEST, "2", False), (KEY, GUEST, "2", True)]
    assert [data for _, _, data in gate.values] == [b"value"]


@pytest.mark.parametrize(
    "fault",
    [
        OSError("too many open files"),
        PartyError("party 2 has a fault while it answers /values (OSError)", party="2"),
        PartyMessageError("a message of party 1 is 400 s old by the clock of party 2; 300 s are allowed", party="2"),
        PartyRefusedError("party 3 does not forward messages to party 2: it does not know it", party="3"),
    ],
)
def test_a_fault_that_passes_is_waited_for(fault):
    taken, fails, silent = [], [fault], []

    def call(party, path, body):
        if fails:
            raise fails.pop()
        taken.append(body)
        return b""

    refused = []
    hub = ValueHub("1", call, lambda *what: refused.append(what), lambda *what: silent.append(what))
    hub.open(KEY, GUEST, Gate())
    hub.send(KEY, GUEST, "x", HOST, b"value")
    until(lambda: refused or (len(taken) == 1 and len(silent) == 2))
    assert [one[3] for one in silent] == [False, True]
    assert refused == []


def test_parts_of_one_party_exchange_values_without_a_message():
    network, gate = Network(loses=1.0), Gate()
    network.hubs["1"].open(KEY, GUEST, Gate())
    network.hubs["1"].open(KEY, ARBITER, gate)
    network.hubs["1"].send(KEY, GUEST, "x", ARBITER, b"value")
    assert gate.values == [("x", GUEST, b"value")]


def test_values_of_an_ended_attempt_are_dropped_and_its_threads_end():
    before = set(threading.enumerate())
    network = Network(loses=1.0)
    network.hubs["1"].open(KEY, GUEST, Gate())
    network.hubs["1"].send(KEY, GUEST, "x", HOST, b"value")
    network.hubs["1"].end(KEY)
    until(lambda: not any(thread.name == "values-2" for thread in set(threading.enumerate()) - before))
    network.hubs["1"].send(KEY, GUEST, "x", HOST, b"value")
    assert network.refusals == []


def test_a_party_that_runs_no_such_attempt_refuses_and_the_sender_hears_of_it():
    network = Network()
    network.hubs["1"].open(KEY, GUEST, Gate())
    network.hubs["1"].send(KEY, GUEST, "x", HOST, b"value")
    until(lambda: network.refusals)
    key, to, error = network.refusals[0]
    assert (key, to) == (KEY, HOST)
    assert isinstance(error, PartyRefusedError)


def test_a_value_in_the_name_of_another_party_is_refused():
    network, bodies = Network(), []
    network.hubs["2"].open(KEY, HOST, Gate())

    def keep(party, path, body):
        bodies.append(body)
        return b""

    hub = ValueHub("1", keep, lambda *_: None, lambda *_: None)
    hub.open(KEY, GUEST, Gate())
    hub.send(KEY, GUEST, "x", HOST, b"value")
    until(lambda: bodies)
    with pytest.raises(PartyMessageError, match="in the name of guest 1"):
        network.hubs["2"].receive("3", bodies[0])


@pytest.mark.parametrize("body", [b"", b"\xc1", b"\x93\x01\x02\x03", b"\x90" * 50, bytes(range(256))])
def test_bytes_that_are_no_message_are_refused(body):
    with pytest.raises(PartyMessageError):
        Network().hubs["1"].receive("2", body)
