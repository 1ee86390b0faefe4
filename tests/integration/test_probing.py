"""Checks of a server by a connection and by a GET, with real sockets."""

import socket
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from weft.worker.probing import check, connect, get, health, words


class Answers(BaseHTTPRequestHandler):
    """Answers /STATUS with that status, /to?URL with a redirect, and /header with 200 if the header is there."""

    def do_GET(self) -> None:
        if self.path.startswith("/to?"):
            self.send_response(302)
            self.send_header("Location", self.path[4:])
        elif self.path == "/header":
            self.send_response(200 if self.headers["X-Key"] == "v" and self.headers["Host"] == "named" else 400)
        elif self.path == "/loop":
            self.send_response(301)
            self.send_header("Location", "loop")
        else:
            self.send_response(int(self.path[1:4]))
        self.end_headers()

    def log_message(self, format: str, *arguments: object) -> None:
        pass


@contextmanager
def serving() -> Iterator[int]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize(
    ("path", "headers", "why"),
    [
        ("/200", (), ""),
        ("/204?a=b", (), ""),
        ("/399", (), ""),
        ("/400", (), "HTTP probe failed with statuscode: 400"),
        ("/500", (), "HTTP probe failed with statuscode: 500"),
        ("/to?/200", (), ""),
        ("/to?200", (), ""),
        ("/to?/503", (), "HTTP probe failed with statuscode: 503"),
        ("/to?http://other.invalid/503", (), ""),
        ("/loop", (), "stopped after 10 redirects"),
        ("/header", (), "HTTP probe failed with statuscode: 400"),
        ("/header", ("X-Key: v", "Host: named"), ""),
    ],
)
def test_a_get_succeeds_below_400_and_follows_its_own_host(path, headers, why):
    with serving() as port:
        assert get(f"http://127.0.0.1:{port}{path}", 60, headers) == why


def test_a_server_that_does_not_answer_or_speaks_otherwise():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        assert connect("127.0.0.1", port, 60) == ""
        assert get(f"http://127.0.0.1:{port}/", 0.05) == "no answer in time"

        def speak() -> None:
            for _ in range(3):  # two are the connections of the checks above
                caller, _ = silent.accept()
                with caller:
                    caller.recv(4096)
                    caller.sendall(b"220 mail.example ready\r\n\r\n")

        thread = threading.Thread(target=speak)
        thread.start()
        assert get(f"http://127.0.0.1:{port}/", 60) == "the answer is no HTTP"
        thread.join()
    assert connect("127.0.0.1", port, 60) == "Connection refused"
    assert get(f"http://127.0.0.1:{port}/", 60) == "Connection refused"


def test_the_program_ends_with_1_and_says_why():
    with serving() as port:
        ended = [
            subprocess.run(words(*rest), capture_output=True, text=True, check=False, timeout=180)
            for rest in (
                ("tcp", "127.0.0.1", str(port), "60"),
                ("http", f"http://127.0.0.1:{port}/200", "60"),
                ("http", f"http://127.0.0.1:{port}/404", "60", "A: b"),
            )
        ]
    assert [one.returncode for one in ended] == [0, 0, 1]
    assert ended[2].stdout == "HTTP probe failed with statuscode: 404\n"


@contextmanager
def healthy(states: dict[str, int]) -> Iterator[int]:
    """A server of gRPC that answers health checks: by service a number of `HealthCheckResponse.ServingStatus`."""
    import grpc

    def check(request: bytes, call: grpc.ServicerContext) -> bytes:
        service = request[-request[1] :].decode() if request else ""
        if service not in states:
            call.abort(grpc.StatusCode.NOT_FOUND, "unknown service")
        return bytes([8, states[service]]) if states[service] else b""

    handlers = {"Check": grpc.unary_unary_rpc_method_handler(check)}
    server = grpc.server(ThreadPoolExecutor(1))
    if states:
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("grpc.health.v1.Health", handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield port
    finally:
        server.stop(None).wait()


@pytest.mark.parametrize(
    ("service", "why"),
    [
        ("", ""),
        ("ready", ""),
        ("busy", 'service unhealthy (responded with "NOT_SERVING")'),
        ("unknown", 'service unhealthy (responded with "UNKNOWN")'),
        ("other", 'no answer of grpc.health.v1.Health for the service "other"'),
    ],
)
def test_a_health_check_of_grpc_succeeds_with_serving_alone(service, why):
    with healthy({"": 1, "ready": 1, "busy": 2, "unknown": 0}) as port:
        assert health("127.0.0.1", port, 60, service) == why


def test_a_server_of_grpc_without_health_checks_is_not_healthy():
    with healthy({}) as port:
        why = 'no answer of grpc.health.v1.Health for the service ""'
        assert check("grpc", "127.0.0.1", str(port), "60", "") == why


def test_a_long_name_of_a_service_arrives_whole():
    name = "x" * 120
    with healthy({name: 1}) as port:
        assert health("127.0.0.1", port, 60, name) == ""


def test_a_health_check_of_another_server_fails():
    with serving() as port:
        assert health("127.0.0.1", port, 60) in ("the answer is no HTTP/2", "the server ends the connection")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        assert health("127.0.0.1", silent.getsockname()[1], 0.05) == "no answer in time"
