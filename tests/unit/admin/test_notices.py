"""Notices: what may receive them, and what becomes of servers and commands that do not answer as they should."""

import json
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from weft.admin import notices
from weft.admin.notices import notice_sender, shown_notify, valid_notify
from weft.admin.settings import load_settings
from weft.model.errors import UsageError

NOTICE = {"schema": "weft.notice/1", "run": "run-000001", "state": "failed"}


class Hook:
    """A server on the loopback interface that keeps what it is sent, and answers by the path."""

    def __init__(self) -> None:
        self.received: list[tuple[str, dict[str, str], Any]] = []
        hook = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                hook.received.append((self.path, dict(self.headers), json.loads(body)))
                code = int(self.path.rpartition("/")[2])
                self.send_response(code)
                if code == 302:
                    self.send_header("Location", "/200")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                """Print nothing."""

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01})
        self.thread.start()


@pytest.fixture
def hook() -> Iterator[Hook]:
    hook = Hook()
    yield hook
    hook.server.shutdown()
    hook.thread.join()
    hook.server.server_close()


def no_secret(name: str) -> str:
    raise UsageError(f"no secret {name}")


@pytest.mark.parametrize(
    "text",
    [
        "ftp://example.org/x",
        "file:///etc/passwd",
        "http://",
        "https://example.org:x/",
        "secret:",
        "secret:a b",
        "echo 'x",
        "   ",
        "a\nb",
        "x" * 3000,
    ],
)
def test_what_cannot_receive_notices_is_refused(text, tmp_path):
    with pytest.raises(UsageError):
        valid_notify(text, tmp_path)


def test_the_setting_is_a_text_or_the_words_of_a_command(tmp_path):
    (tmp_path / "weft.toml").write_text('notify = ["notify-send", "a run has ended"]\nkeep_last = 3\n')
    settings = load_settings(start=tmp_path, environ={})
    assert (settings.notify, settings.keep_last) == ("notify-send 'a run has ended'", 3)
    with pytest.raises(UsageError, match=r"WEFT_NOTIFY: notify is no URL of http or https"):
        load_settings(start=tmp_path, environ={"WEFT_NOTIFY": "gopher://example.org"})


def test_people_see_no_secret_part_of_a_url():
    assert shown_notify("https://me:pass@example.org:8443/T0/B0?key=1") == "https://example.org:8443/***"
    assert shown_notify("secret:HOOK") == "secret:HOOK"


def test_a_url_receives_the_notice(hook):
    assert notice_sender(f"{hook.url}/hook/200", no_secret)(NOTICE) == ""
    assert notice_sender("secret:HOOK", {"HOOK": f"{hook.url}/204\n"}.__getitem__)(NOTICE) == ""
    with_login = hook.url.replace("//", "//me:p%40ss@")
    assert notice_sender(f"{with_login}/200", no_secret)(NOTICE) == ""
    assert [(path, body) for path, _, body in hook.received] == [
        ("/hook/200", NOTICE),
        ("/204", NOTICE),
        ("/200", NOTICE),
    ]
    assert hook.received[0][1]["Content-Type"] == "application/json"
    assert hook.received[2][1]["Authorization"] == "Basic bWU6cEBzcw=="


@pytest.mark.parametrize(("code", "told"), [(500, "answered 500"), (404, "answered 404"), (302, "answered 302")])
def test_a_url_that_refuses_is_told_without_its_path(hook, code, told):
    problem = notice_sender(f"{hook.url}/token/{code}", no_secret)(NOTICE)
    assert problem == f"{hook.url}/*** {told}"
    assert len(hook.received) == 1, "no redirect is followed"


def test_a_server_that_is_not_there_is_told():
    server = HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
    url = f"http://127.0.0.1:{server.server_port}/token"
    server.server_close()
    problem = notice_sender(url, no_secret)(NOTICE)
    assert "cannot be reached" in problem
    assert "token" not in problem


def test_a_secret_must_hold_a_url():
    with pytest.raises(UsageError, match="is not a URL"):
        notice_sender("secret:HOOK", lambda _: "rm -rf")
    with pytest.raises(UsageError, match="no secret HOOK"):
        notice_sender("secret:HOOK", no_secret)


def test_a_command_reads_the_notice(tmp_path):
    file = tmp_path / "a file"
    code = "import sys, pathlib; pathlib.Path(sys.argv[1]).write_text(sys.stdin.read())"
    assert notice_sender(f"'{sys.executable}' -c '{code}' '{file}'", no_secret)(NOTICE) == ""
    assert json.loads(file.read_text()) == NOTICE
    assert notice_sender("sh -c 'exit 3'", no_secret)(NOTICE) == "sh ended with exit code 3"
    assert "cannot be started" in notice_sender(f"{tmp_path}/none", no_secret)(NOTICE)


def test_a_command_that_does_not_end_is_killed(monkeypatch):
    monkeypatch.setattr(notices, "COMMAND_S", 0.2)
    assert "was killed" in notice_sender("sh -c 'sleep 600 & wait'", no_secret)(NOTICE)


def test_an_interrupt_ends_a_command_and_a_request(tmp_path):
    file = tmp_path / "began"
    problem = notice_sender(f"sh -c 'touch {file}; sleep 600 & wait'", no_secret, file.exists)(NOTICE)
    assert problem == "sh was killed, because the wait for it was interrupted"
    with socket.create_server(("127.0.0.1", 0)) as server:  # it takes the request and never answers
        url = f"http://127.0.0.1:{server.getsockname()[1]}/x"
        assert "was interrupted" in notice_sender(url, no_secret, lambda: True)(NOTICE)


def test_a_server_that_answers_byte_by_byte_has_the_same_time(monkeypatch):
    monkeypatch.setattr(notices, "POST_S", 0.5)
    given_up = threading.Event()

    def trickle(server: socket.socket) -> None:
        client, _ = server.accept()
        with client, suppress(OSError):
            client.sendall(b"HTTP/1.1 200 OK\r\nX-Long: ")
            while not given_up.wait(0.05):  # each read gets something in time
                client.sendall(b"x")

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=trickle, args=(server,))
        thread.start()
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        problem = notice_sender(f"{url}/x", no_secret)(NOTICE)
        given_up.set()
        thread.join()
    assert problem == f"{url}/*** did not answer within 0.5 s"
