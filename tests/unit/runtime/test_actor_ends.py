"""How actors end: calls that were made have answers, an error drops them, and what nobody reads is told."""

import asyncio
import pickle
import socket
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

import weft
from weft.model.errors import ActorEndedError
from weft.worker.actor_gateway import PortEntrance

PATIENCE_S = 180.0


class Log:
    """Lines in a file. It takes a while to begin, and for each line."""

    def __init__(self, path: str, begin_s: float = 0.2) -> None:
        time.sleep(begin_s)
        self.path = Path(path)

    def write(self, line: object) -> None:
        time.sleep(0.005)
        with self.path.open("a") as file:
            file.write(f"{line}\n")

    async def write_later(self, line: object) -> None:
        await asyncio.sleep(0.005)
        self.write(line)

    def fail(self, word: str) -> None:
        raise KeyError(word)


def write_and_go(item: object, log: weft.ActorHandle) -> object:
    log.write(item)
    return item


def lines(path: Path) -> list[str]:
    return sorted(path.read_text().split())


def wanted(n: int) -> list[str]:
    return sorted(map(str, range(n)))


@pytest.fixture(params=["threads", "processes"])
def backend(request) -> str:
    return str(request.param)


@pytest.mark.parametrize("end", ["block", "stop", "session"])
def test_an_ordinary_end_answers_the_calls_of_the_program_and_its_tasks(backend, end, tmp_path):
    path = tmp_path / "log"
    with weft.Session(backend, workers=2, grace_s=0.5, backups=False) as session:
        log = session.actor(Log, str(path))
        for number in range(10):
            log.write(number)
        session.map(write_and_go, range(10, 20), params={"log": log}).results()
        if end == "block":
            with log:
                log.write_later(20)
        else:
            log.write_later(20)
        if end == "stop":
            weft.stop_actor(log)
        if end != "session":
            assert lines(path) == wanted(21)
            with pytest.raises(ActorEndedError, match="it was stopped"):
                log.write(21).result(PATIENCE_S)
    assert lines(path) == wanted(21)


def test_an_actor_of_a_graph_answers_the_calls_of_its_consumers(backend, tmp_path):
    path = tmp_path / "log"
    g = weft.Graph("logged")
    own = weft.Resources(cpu=1)
    node, log = weft.add_actor(g, Log, str(path), options={"resources": own})
    g.map(write_and_go, range(300), node, params={"log": log}, name="writer")
    with weft.Session(backend, workers=3, grace_s=1.0, backups=False) as session:
        session.run(g, timeout_s=PATIENCE_S, progress=False)
        assert lines(path) == wanted(300)  # which takes longer than the grace period


class Stuck:
    """A method that does not return before it may."""

    go_on = threading.Event()

    def wait(self) -> bool:
        return self.go_on.wait(PATIENCE_S)

    def word(self) -> str:
        return "said"


def test_an_ordinary_end_waits_no_longer_than_the_actor_says():
    Stuck.go_on.clear()
    with weft.Session(workers=1, grace_s=0.1) as session:
        stuck = session.actor(Stuck, finish_s=0.2)
        calls = [stuck.wait(), stuck.word()]
        weft.stop_actor(stuck)
        for call in calls:
            with pytest.raises(ActorEndedError, match="before it answered"):
                call.result(PATIENCE_S)
        Stuck.go_on.set()


@pytest.mark.parametrize("end", ["handle", "session"])
def test_an_error_drops_the_calls_that_have_no_answer(end):
    Stuck.go_on.clear()
    calls = []

    def leave() -> None:
        with weft.Session(workers=1, grace_s=0.1) as session:
            stuck = session.actor(Stuck)
            calls.extend([stuck.wait(), stuck.word()])
            if end == "session":
                raise ZeroDivisionError
            with stuck:
                raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        leave()
    for call in calls:
        with pytest.raises(ActorEndedError):
            call.result(PATIENCE_S)
    Stuck.go_on.set()


def test_the_calls_of_a_thread_that_has_ended_are_answered(tmp_path):
    path = tmp_path / "log"
    calls = []
    with weft.Session(workers=1) as session, session.actor(Log, str(path)) as log:
        for number in range(3):  # the first one before the actor has begun
            thread = threading.Thread(target=lambda number=number: calls.append(log.write(number)))
            thread.start()
            thread.join()
            if not number:
                calls[0].result(PATIENCE_S)
        assert [call.result(PATIENCE_S) for call in calls] == [None] * 3
    assert lines(path) == wanted(3)


def test_an_error_of_a_call_that_nobody_reads_is_told_once(tmp_path):
    def call(*, read: bool) -> None:
        with weft.Session(workers=1) as session, session.actor(Log, str(tmp_path / "log")) as log:
            answer = log.fail("lost")
            if read:
                assert isinstance(answer.exception(PATIENCE_S), KeyError)

    with pytest.warns(RuntimeWarning) as told:
        call(read=False)
    assert [str(one.message) for one in told] == [
        "nobody has read the error of Log.fail(): Log.fail failed: KeyError: 'lost'"
    ]
    call(read=True)


def test_an_actor_that_cannot_begin_and_that_nobody_calls_is_told(tmp_path):
    def begin() -> None:
        with weft.Session(workers=1) as session:
            session.actor(Log)
            end = time.monotonic() + PATIENCE_S
            while session.actors and time.monotonic() < end:
                time.sleep(0.01)

    with pytest.warns(
        RuntimeWarning, match=r"the run Log-1 failed at Log\[0\], and nobody has read its error: TypeErr"
    ):
        begin()


# ---------------------------------------------------------------------------------------- an actor that begins again


class LateEntrance(PortEntrance):
    """An entrance that hands on nothing more to the callers it has, not even the end, once it was told to `stall`."""

    def __init__(self) -> None:
        super().__init__("127.0.0.1")
        self.held: list[socket.socket] = []
        self.stalled: set[socket.socket] = set()

    def open(self, greet):
        def late(sock: socket.socket) -> None:
            ours, theirs = socket.socketpair()
            self.held += [sock, ours]
            for source, sink in ((sock, ours), (ours, sock)):
                threading.Thread(target=self.carry, args=(source, sink), daemon=True).start()
            greet(theirs)

        return super().open(late)

    def carry(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while block := source.recv(1 << 16):
                if sink not in self.stalled:
                    sink.sendall(block)

    def stall(self) -> None:
        self.stalled.update(self.held)

    def hang_up(self) -> None:
        for sock in self.held:
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()


class Counter:
    """A number that callers add to."""

    def __init__(self) -> None:
        self.value = 0

    def add(self, more: int) -> int:
        self.value += more
        return self.value


def test_a_caller_of_a_later_run_does_not_use_the_connection_of_an_earlier_one():
    entrance = LateEntrance()

    def add_from_elsewhere(item: int, counter: weft.ActorHandle) -> int:
        address = pickle.loads(pickle.dumps(counter))._address
        found = weft.ActorHandle(address._replace(host="other")).add(item).result(PATIENCE_S)
        entrance.stall()
        return int(found)

    g = weft.Graph("again")
    node, counter = weft.add_actor(g, Counter, options={"finish_s": 0.1})
    sums = g.map(add_from_elsewhere, [3], node, params={"counter": counter}, name="worker")
    with weft.Session(workers=1, grace_s=0.1) as session:
        session.executor.entrance = lambda: entrance  # type: ignore[attr-defined]
        for _ in range(3):
            assert session.run(g, timeout_s=PATIENCE_S, progress=False)[sums] == [3]
        entrance.hang_up()
