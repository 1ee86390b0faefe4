"""Orders for a run in another process."""

import contextlib
import json
import socket
import stat
import threading
from typing import Any

import pytest

from weft.admin.control import MAX_ANSWER, MAX_REQUEST, ControlServer, send
from weft.model.errors import ConflictError, InternalError, NotFoundError, UsageError
from weft.store.folders import OwnerLock


def broken(_):
    raise RuntimeError("oh")


def refuse(_):
    raise NotFoundError("no step x", hint="there is y")


def conflict(_):
    raise ConflictError("has ended", hint="look at it")


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "run-000001"
    folder.mkdir()
    return folder


@pytest.fixture
def server(folder):
    handlers = {
        "story": lambda request: ["line", request["subject"]],
        "broken": broken,
        "refuse": refuse,
        "conflict": conflict,
        "long": lambda _: "x" * MAX_ANSWER,
        "odd": lambda _: {1, 2},
    }
    with ControlServer(folder, handlers) as server:
        yield server


def raw(server: ControlServer, data: bytes) -> Any:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(180)
        connection.connect(str(server.path))
        with contextlib.suppress(BrokenPipeError):  # the server may hang up before it has read all of it
            connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        return json.loads(connection.makefile("rb").readline())


def test_orders_are_answered(server, folder):
    assert send(folder, {"do": "ping"}).keys() == {"pid"}
    assert send(folder, {"do": "story", "subject": "träin"}) == ["line", "träin"]


def test_the_socket_is_for_its_owner_alone(server):
    assert stat.S_IMODE(server.path.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("order", "kind", "said"),
    [
        ("fly", UsageError, "has no command 'fly'"),
        ("broken", InternalError, "RuntimeError: oh"),
        ("refuse", NotFoundError, "no step x\nthere is y"),
        ("conflict", ConflictError, "has ended\nlook at it"),
        ("long", ConflictError, "too long"),
        ("odd", InternalError, "not JSON serializable"),
        ("story", InternalError, "KeyError"),
    ],
)
def test_refusals_come_back_as_errors(server, folder, order, kind, said):
    with pytest.raises(kind, match=said):
        send(folder, {"do": order})
    assert send(folder, {"do": "ping"}), "the next order is heard"


@pytest.mark.parametrize(
    "data", [b"\n", b"[]\n", b"{\n", b"\xff\n", b"[" * 60_000 + b"\n", b"x" * (MAX_REQUEST + 70_000)]
)
def test_nonsense_is_refused(server, folder, data):
    assert raw(server, data)["error"]["code"] == UsageError.code
    assert send(folder, {"do": "ping"})


def test_a_client_that_says_nothing_does_not_end_the_server(server, folder):
    with socket.socket(socket.AF_UNIX) as silent:
        silent.connect(str(server.path))
        silent.shutdown(socket.SHUT_WR)
    assert send(folder, {"do": "ping"}, timeout=180)


def test_orders_from_several_threads(server, folder):
    answers = []
    threads = [threading.Thread(target=lambda: answers.append(send(folder, {"do": "ping"}, 30))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 8


def test_an_order_that_is_too_long_is_not_sent(folder):
    with pytest.raises(UsageError, match="too long"):
        send(folder, {"do": "x" * MAX_REQUEST})


def test_close_removes_the_socket_and_can_be_repeated(folder):
    server = ControlServer(folder, {}).serve()
    server.close()
    server.close()
    assert list(folder.iterdir()) == []
    with pytest.raises(ConflictError, match="run-000001 is not running"):
        send(folder, {"do": "ping"})


def test_a_run_that_is_just_starting(folder):
    lock = OwnerLock(folder)
    with pytest.raises(ConflictError, match="just starting or ending"):
        send(folder, {"do": "ping"}, starting_s=0)
    lock.release()


def test_an_owner_that_opens_its_socket_a_moment_later_gets_the_order(folder):
    lock = OwnerLock(folder)
    servers = []
    opening = threading.Timer(0.05, lambda: servers.append(ControlServer(folder, {"ping": lambda _: "pong"}).serve()))
    opening.start()
    try:
        assert send(folder, {"do": "ping"}, starting_s=60) == "pong"
    finally:
        opening.join()
        for server in servers:
            server.close()
        lock.release()


def test_an_owner_that_does_not_answer(folder):
    go = threading.Event()
    with ControlServer(folder, {"wait": lambda _: go.wait(180)}):
        with pytest.raises(ConflictError, match="does not answer"):
            send(folder, {"do": "wait"}, timeout=0.05)
        go.set()


def test_a_socket_left_by_a_killed_owner_is_replaced(folder):
    with socket.socket(socket.AF_UNIX) as old:
        old.bind(str(folder / "control.sock"))
    with ControlServer(folder, {}):
        assert send(folder, {"do": "ping"})


def test_long_paths(tmp_path):
    folder = tmp_path / ("x" * 120) / ("y" * 120)
    folder.mkdir(parents=True)
    with ControlServer(folder, {}):
        assert (folder / "control.sock").is_socket()
        assert send(folder, {"do": "ping"})
    assert list(folder.iterdir()) == []
