"""Actors: calls in order, errors with their class, back-pressure, deaths, restarts, and clear ends."""

import asyncio
import json
import os
import pickle
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path

import pytest

import weft
from weft.model.errors import ActorEndedError, ConflictError, ForbiddenError, TaskError, UsageError
from weft.store.handshake import Credentials, prove
from weft.store.peers import PeerReader
from weft.store.tls import NEEDS_TLS
from weft.worker import actors
from weft.worker.actor_gateway import PortEntrance, lend_to_machines, take_back
from weft.worker.actors import GATEWAY, PURPOSE, ActorAddress, new_address
from weft.worker.group import process_id

PATIENCE_S = 180.0


class Counter:
    """A number that callers add to."""

    def __init__(self, start: int = 0) -> None:
        self.value = start
        self.seen: list[int] = []

    def add(self, more: int) -> int:
        self.seen.append(more)
        self.value += more
        return self.value

    def order(self) -> list[int]:
        return self.seen

    def fail(self, word: str) -> None:
        raise KeyError(word)

    def where(self) -> int:
        return os.getpid()

    def lock(self) -> object:
        return threading.Lock()

    def die(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


class Meeting:
    """Two callers that wait for one another."""

    def __init__(self) -> None:
        self.both = threading.Barrier(2, timeout=PATIENCE_S)
        self.event: asyncio.Event | None = None

    def meet(self) -> int:
        return self.both.wait()

    async def wait(self) -> str:
        self.event = self.event or asyncio.Event()
        await self.event.wait()
        return "woken"

    async def wake(self) -> None:
        self.event = self.event or asyncio.Event()
        self.event.set()


def add_each(item: int, counter: weft.ActorHandle) -> int:
    counter.add(item)
    return int(counter.add(0).result(PATIENCE_S))


def test_the_calls_of_a_thread_run_in_their_order_and_errors_keep_their_class():
    with weft.Session(workers=1) as session, session.actor(Counter) as counter:
        calls = [counter.add(number) for number in range(500)]
        with pytest.raises(KeyError) as caught:
            counter.fail("lost").result(PATIENCE_S)
        assert calls[-1].done()
        assert counter.order().result(PATIENCE_S) == list(range(500))
        assert isinstance(caught.value, TaskError)
        assert "Counter.fail failed: KeyError: 'lost'" in str(caught.value)
        assert "raise KeyError(word)" in caught.value.traceback_text
        with pytest.raises(weft.ProgramError):
            raise counter.lock().exception(PATIENCE_S) or AssertionError
        with pytest.raises(weft.ProgramError, match=r"the arguments of Counter\.add cannot be sent"):
            counter.add(threading.Lock())
    with pytest.raises(ActorEndedError, match="the actor Counter has ended"):
        counter.add(1).result(PATIENCE_S)


def test_methods_run_one_at_a_time_or_as_many_as_allowed():
    with weft.Session(workers=1) as session:
        meeting = session.actor(Meeting, max_concurrency=2)
        first = meeting.meet()
        found: list[int] = []
        other = threading.Thread(target=lambda: found.append(meeting.meet().result(PATIENCE_S)))
        other.start()
        assert first.result(PATIENCE_S) >= 0
        other.join(PATIENCE_S)
        assert sorted([first.result(), *found]) == [0, 1]


def test_coroutines_of_an_actor_go_on_together_and_are_awaited():
    async def wait(meeting: weft.ActorHandle) -> str:
        waits = asyncio.wrap_future(meeting.wait())
        await asyncio.wrap_future(meeting.wake())
        return str(await waits)

    with weft.Session(workers=1) as session, session.actor(Meeting) as meeting:
        assert asyncio.run(wait(meeting)) == "woken"


def test_a_caller_waits_while_too_many_calls_have_no_answer():
    with weft.Session(workers=1) as session:
        meeting = session.actor(Meeting, max_pending=1, max_concurrency=2)
        first = meeting.meet()
        sent = threading.Event()

        def call() -> None:
            later = meeting.meet()  # on a line of its own
            later.result(PATIENCE_S)
            sent.set()

        blocked = threading.Thread(target=call)
        blocked.start()
        second = meeting.wake()  # returns only after the answer to the first call of this thread
        assert first.done()
        second.result(PATIENCE_S)
        assert sent.wait(PATIENCE_S)
        blocked.join(PATIENCE_S)


def test_an_actor_that_cannot_begin_says_why():
    with weft.Session(workers=1) as session:
        counter = session.actor(Counter, 1, 2, 3)
        with pytest.raises(ActorEndedError, match="TypeError"):
            counter.add(1).result(PATIENCE_S)


class Late:
    """Cannot be made before the third time."""

    def __init__(self, folder: str) -> None:
        made = len(os.listdir(folder))
        Path(folder, str(made)).touch()
        if made < 2:
            raise OSError(f"not at time {made}")

    def made(self) -> str:
        return "made"


def test_calls_wait_for_the_next_attempt_of_a_constructor(tmp_path):
    with weft.Session(workers=1) as session:
        for folder in ("a", "b"):
            (tmp_path / folder).mkdir()
        assert session.actor(Late, str(tmp_path / "a"), restarts=2).made().result(PATIENCE_S) == "made"
        with pytest.raises(ActorEndedError, match="its constructor raised OSError: not at time 1"):
            session.actor(Late, str(tmp_path / "b"), restarts=1).made().result(PATIENCE_S)


def test_an_actor_in_a_worker_dies_with_it_or_begins_again():
    own = weft.Resources(cpu=1)
    with weft.Session("processes", workers=3, grace_s=0.5) as session:
        mortal = session.actor(Counter, name="mortal", resources=own)
        assert mortal.where().result(PATIENCE_S) != os.getpid()
        with pytest.raises(ActorEndedError, match=r"mortal has ended.*before it answered die"):
            mortal.die().result(PATIENCE_S)
        with pytest.raises(ActorEndedError, match="mortal has ended"):
            mortal.add(1).result(PATIENCE_S)
        again = session.actor(Counter, 7, name="again", resources=own, restarts=1)
        assert again.add(1).result(PATIENCE_S) == 8
        with pytest.raises(ActorEndedError):
            again.die().result(PATIENCE_S)
        assert again.add(1).result(PATIENCE_S) == 8  # its state began anew
        weft.stop_actor(again)
        with pytest.raises(ActorEndedError, match="stopped"):
            again.add(1).result(PATIENCE_S)


def test_nothing_is_unpickled_for_a_caller_without_the_secret():
    with weft.Session(workers=1) as session, session.actor(Counter) as counter:
        assert counter.add(1).result(PATIENCE_S) == 1
        copied = pickle.loads(pickle.dumps(counter))
        assert copied.add(1).result(PATIENCE_S) == 2
        folder = Path(counter._address.folder)
        assert folder.stat().st_mode & 0o077 == 0
        with socket.socket(socket.AF_UNIX) as sock:
            sock.connect(str(counter._address.file("socket")))
            sock.settimeout(PATIENCE_S)
            with pytest.raises((ForbiddenError, OSError)):
                prove(sock, b"wrong", PURPOSE, serves=False)
        with pytest.raises(UsageError, match="was not begun by this process"):
            weft.stop_actor(copied)
    del counter, copied
    until_gone(folder)


def until_gone(folder: Path) -> None:
    """Wait until a folder is removed: the threads that take answers refer to its actor until they have ended."""
    end = time.monotonic() + PATIENCE_S
    while folder.exists():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_call_returns_at_once_and_waits_for_the_actor_to_begin():
    own = weft.Resources(cpu=1)
    with weft.Session(workers=1, grace_s=0.5) as session:
        first, second = session.actor(Counter, resources=own), session.actor(Counter, 7, resources=own)
        assert first.add(1).result(PATIENCE_S) == 1
        calls = [second.add(number) for number in range(100)]  # it has no core yet
        assert not calls[0].done()
        weft.stop_actor(first)
        assert [call.result(PATIENCE_S) for call in calls][-1] == 7 + sum(range(100))
        assert second.order().result(PATIENCE_S) == list(range(100))
        third = session.actor(Counter, resources=own)
        waits = third.add(1)
        assert not waits.done()
    assert waits.result(0) == 1  # at the end of the session it got the core of the second


def test_two_runs_of_a_graph_with_an_actor_do_not_share_it():
    g = weft.Graph("shared")
    node, counter = weft.add_actor(g, Counter)
    go_on = threading.Event()
    g.map(lambda _, counter: go_on.wait(PATIENCE_S), [1], node, params={"counter": counter}, name="worker")
    with weft.Session(workers=1) as session:
        run = session.submit(g)
        with pytest.raises(ConflictError, match="the actor Counter of this graph serves another run, shared-1"):
            session.submit(g)
        go_on.set()
        assert run.result(PATIENCE_S)["worker"] == [True]
        assert session.run(g, progress=False)["worker"] == [True]


def test_the_folders_of_killed_owners_are_removed(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with subprocess.Popen(["sleep", "60"]) as owner:
        known = process_id(owner.pid)
        owner.kill()
    for name, text in (("dead", json.dumps(known)), ("alive", json.dumps(process_id(os.getpid()))), ("odd", "[]")):
        (tmp_path / f"weft-actor-{name}").mkdir()
        (tmp_path / f"weft-actor-{name}" / "owner").write_text(text)
    (tmp_path / "weft-actor-new").mkdir()
    made = new_address(Counter, "counter", 1)
    assert {*os.listdir(tmp_path)} == {
        *(f"weft-actor-{name}" for name in ("alive", "odd", "new")),
        Path(made.folder).name,
    }


def test_who_does_not_know_the_secret_gets_nothing_from_the_port_of_the_program():
    with weft.Session(workers=1) as session:
        counter = session.actor(Counter, name="kept")
        lend_to_machines(counter._address, PortEntrance("127.0.0.1"))
        there = pickle.loads(pickle.dumps(counter))._address._replace(host="other")
        assert weft.ActorHandle(there).add(2).result(PATIENCE_S) == 2
        assert there.ended() is None
        with socket.create_connection(there.gateway, timeout=PATIENCE_S) as sock:
            sock.sendall(there.key)
            with pytest.raises((ForbiddenError, OSError)):
                prove(sock, os.urandom(32), GATEWAY, serves=False)
        assert there._replace(secret=os.urandom(32)).ended() == "its program cannot be reached"
        take_back(counter._address, os.getpid())
        assert there.ended() == "its program cannot be reached"  # the port is closed


def test_wrong_actors_are_refused(tmp_path):
    with weft.Session(workers=1) as session:
        with pytest.raises(UsageError, match="an actor is made of a class"):
            session.actor(abs, 1)  # type: ignore[arg-type]
        with pytest.raises(UsageError, match="an actor has no option 'size'"):
            session.actor(Counter, size=3)  # type: ignore[call-arg]
        with pytest.raises(UsageError, match="max_concurrency"):
            session.actor(Counter, max_concurrency=0)
        with pytest.raises(UsageError, match="name is 'ü x'"):
            session.actor(Counter, name="ü x")
        assert repr(session.actor(type("Zähler", (Counter,), {}))) == "<actor Z_hler>"
        with pytest.raises(UsageError, match="takes the handle of an actor"):
            weft.stop_actor("Counter")  # type: ignore[arg-type]
        elsewhere = weft.ActorHandle(session.actor(Counter)._address._replace(host="other"))
        with pytest.raises(UsageError, match="the actor Counter is on other"):
            elsewhere.add(1)
    with weft.Session("simulator") as simulated, pytest.raises(UsageError, match="and not the backend 'simulator'"):
        simulated.actor(Counter)
    with (
        weft.Session(workers=1, durable=tmp_path / "state") as durable,
        pytest.raises(UsageError, match="a durable session has no actors"),
    ):
        durable.actor(Counter)


def test_connections_that_come_to_nothing_are_closed(monkeypatch):
    address = ActorAddress("Counter", "elsewhere", "folder", b"secret", (), 1, ("127.0.0.1", 1))
    ours, theirs = zip(*[socket.socketpair() for _ in range(3)], strict=True)
    theirs[0].close()
    monkeypatch.setattr(actors, "_dialled", lambda _: ours[0])
    assert actors.reach(address) is None

    theirs[1].sendall(NEEDS_TLS)
    monkeypatch.setattr(actors, "reach", lambda _: ours[1])
    with pytest.raises(ForbiddenError, match="use TLS"):
        actors._connected(address)

    reader = PeerReader(Credentials(b"secret"))
    reader.close()
    reader._keep(("127.0.0.1", 1), ours[2])
    assert [sock.fileno() for sock in ours] == [-1] * 3
    for sock in theirs:
        sock.close()
