"""What the commands say of a server that does not answer as the server of a party does."""

import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from weft.model.errors import PartyUnreachableError
from weft.parties import client
from weft.parties.client import SiteClient


class Server(HTTPServer):
    """Answers with `status`; None: with nothing, as a server does that was stopped."""

    status: int | None = 200

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answering)
        self.ended = threading.Event()


class Answering(BaseHTTPRequestHandler):
    """Answers each request with a text and the status of the server."""

    server: Server

    def do_POST(self):
        """Answer a request."""
        status = self.server.status
        if status is None:
            self.server.ended.wait()
            return
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(status)
        self.end_headers()
        self.wfile.write(b"text")

    def log_message(self, *_):
        """Print nothing."""


@pytest.fixture
def server():
    with Server() as found:
        thread = threading.Thread(target=found.serve_forever)
        thread.start()
        yield found
        found.ended.set()
        found.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("status", "told", "hint"),
    [
        (503, "answers 503 Service Unavailable", "It has too many connections: try again later."),
        (200, "answers 200 OK, and not as the server of party 9999 does", "Another program may use its port."),
        (None, "does not answer at 127.0.0.1", "Look at its terminal: it was stopped, or is busy."),
    ],
)
def test_an_answer_of_no_party_is_told_apart_from_none(server, monkeypatch, status, told, hint):
    monkeypatch.setattr(client, "_TIMEOUT_S", 60.0 if status else 0.2)
    server.status = status
    with pytest.raises(PartyUnreachableError, match=told) as raised:
        SiteClient("127.0.0.1", server.server_port, "9999").post("job/query")
    assert raised.value.hint.startswith(hint)
