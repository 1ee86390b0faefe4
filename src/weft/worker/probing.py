"""Checks of a server by a connection, an HTTP GET or a health check of gRPC, as a kubelet makes them for its probes.

Isolation `namespace` runs this file as a program in the network of a replica, by its path and with the standard library
only: a failed check prints its reason and ends with 1. The other isolations call `check` in the process of the run.
Sources: `pkg/probe` of Kubernetes 1.33, RFC 9113 (HTTP/2), and the GRPC Health Checking Protocol.
"""

from __future__ import annotations

import os
import socket
import sys
import time

TYPE_CHECKING = False  # `typing` takes longer than the program
if TYPE_CHECKING:
    from collections.abc import Sequence

PROGRAM = "import sys; sys.path.append(sys.argv[1]); import probing; probing.main()"
AGENT = "weft-probe"
MOST_HEAD = 64 << 10
"""The most bytes of the head of an answer that are read."""
MOST_REDIRECTS = 10
HEALTH = b"/grpc.health.v1.Health/Check"
STATES = ("UNKNOWN", "SERVING", "NOT_SERVING", "SERVICE_UNKNOWN")
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RESET, SETTINGS, PING, GO_AWAY = 0, 1, 3, 4, 6, 7
"""Types of frames of HTTP/2."""
ACK, END_STREAM, END_HEADERS, PADDED = 1, 1, 4, 8
"""Flags of frames."""
MOST_FRAME = 1 << 14


def words(*arguments: str) -> list[str]:
    """Return the command line of this program: the arguments are those of `check`."""
    folder = os.path.dirname(os.path.abspath(__file__))
    return [sys.executable, "-I", "-S", "-c", PROGRAM, folder, *arguments]


def main() -> None:
    """Run this program."""
    if why := check(*sys.argv[2:]):
        os.write(1, f"{why}\n".encode())
        sys.exit(1)


def check(way: str, *rest: str) -> str:
    """Return why a check fails, "" if it does not.

    The arguments are "tcp HOST PORT TIMEOUT", "http URL TIMEOUT [HEADER ...]" or "grpc HOST PORT TIMEOUT SERVICE".
    """
    if way == "http":
        return get(rest[0], float(rest[1]), rest[2:])
    host, port, timeout_s, *service = rest
    if way == "grpc":
        return health(host, int(port), float(timeout_s), service[0])
    return connect(host, int(port), float(timeout_s))


def connect(host: str, port: int, timeout_s: float) -> str:
    """Return why no connection is accepted, "" if one is."""
    try:
        socket.create_connection((host, port), timeout_s).close()
    except OSError as error:
        return reason(error)
    return ""


def get(url: str, timeout_s: float, headers: Sequence[str] = ()) -> str:
    """Return why a GET fails, "" if the answer has a status from 200 to 399. `headers` are lines "Name: value".

    Certificates are not checked. A redirect is followed on its own host; one to another host is a success.
    """
    until = time.monotonic() + timeout_s
    try:
        for _ in range(MOST_REDIRECTS + 1):
            status, target = _ask(url, until, headers)
            if not 200 <= status < 400:
                return f"HTTP probe failed with statuscode: {status}"
            following = _joined(url, target) if 300 <= status < 400 and target else ""
            if not following:
                return ""
            url = following
    except (OSError, ValueError) as error:
        return reason(error)
    return f"stopped after {MOST_REDIRECTS} redirects"


def health(host: str, port: int, timeout_s: float, service: str = "") -> str:
    """Return why a server of gRPC is not healthy, "" if it answers SERVING for a service ("": the whole server)."""
    until = time.monotonic() + timeout_s
    try:
        with socket.create_connection((host, port), timeout_s) as stream:
            stream.sendall(PREFACE + _frame(SETTINGS, 0, 0) + _health_request(f"{host}:{port}", service))
            answer = _answer_of_stream(stream, until)
    except (OSError, ValueError) as error:
        return reason(error)
    if len(answer) < 5:  # a compressed flag and a length precede the message
        return f'no answer of grpc.health.v1.Health for the service "{service}"'
    state = answer[6] if len(answer) > 6 else 0
    if STATES[state : state + 1] == ("SERVING",):
        return ""
    return f'service unhealthy (responded with "{STATES[state] if state < len(STATES) else state}")'


def _health_request(place: str, service: str) -> bytes:
    """Return the frames of a call of `Check` on stream 1; the header fields are literals (RFC 7541)."""
    fields = (
        (b":method", b"POST"),
        (b":scheme", b"http"),
        (b":path", HEALTH),
        (b":authority", place.encode()),
        (b"content-type", b"application/grpc"),
        (b"te", b"trailers"),
        (b"user-agent", AGENT.encode()),
    )
    block = b"".join(b"\0" + _field_text(name) + _field_text(value) for name, value in fields)
    name = service.encode()
    message = b"\x0a" + _varint(len(name)) + name if name else b""
    body = b"\0" + len(message).to_bytes(4, "big") + message
    return _frame(HEADERS, END_HEADERS, 1, block) + _frame(DATA, END_STREAM, 1, body)


def _field_text(text: bytes) -> bytes:
    """Return a name or value of a header field after its length, a number with a prefix of 7 bits."""
    size = len(text)
    return (bytes([size]) if size < 127 else b"\x7f" + _varint(size - 127)) + text


def _varint(number: int) -> bytes:
    data = b""
    while number >= 128:
        data += bytes([number & 127 | 128])
        number >>= 7
    return data + bytes([number])


def _frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def _answer_of_stream(stream: socket.socket, until: float) -> bytes:
    """Return the data that a server sends on stream 1 until it ends; header fields are not decoded."""
    found = b""
    while len(found) < MOST_HEAD:
        head = _received(stream, 9, until)
        size, kind, flags = int.from_bytes(head[:3], "big"), head[3], head[4]
        if size > MOST_FRAME:
            raise ValueError("the answer is no HTTP/2")
        payload = _received(stream, size, until)
        if kind in (SETTINGS, PING) and not flags & ACK:
            stream.sendall(_frame(kind, ACK, 0, payload if kind == PING else b""))
        elif kind == GO_AWAY:
            raise ValueError("the server ends the connection")
        elif kind == DATA:
            found += payload[1 : size - payload[0]] if flags & PADDED else payload
        if kind == RESET or (kind in (DATA, HEADERS) and flags & END_STREAM):
            break
    return found


def _received(stream: socket.socket, size: int, until: float) -> bytes:
    data = b""
    while len(data) < size:
        stream.settimeout(_left(until))
        more = stream.recv(size - len(data))
        if not more:
            raise ValueError("the server ends the connection")
        data += more
    return data


def reason(error: Exception) -> str:
    """Return an error as a clause."""
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__


def _ask(url: str, until: float, headers: Sequence[str]) -> tuple[int, str]:
    """Return the status of a GET, and the target of a redirect."""
    scheme, place, path = _parts(url)
    host, port = _address(place, 443 if scheme == "https" else 80)
    lines = [f"GET {path} HTTP/1.1", f"User-Agent: {AGENT}", "Accept: */*", "Connection: close", *headers]
    if not any(line.lower().startswith("host:") for line in headers):
        lines.insert(1, f"Host: {place}")
    data = b""
    with socket.create_connection((host, port), _left(until)) as plain:
        stream = _encrypted(plain, host) if scheme == "https" else plain
        stream.sendall("\r\n".join([*lines, "", ""]).encode("latin-1", "replace"))
        while b"\r\n\r\n" not in data and len(data) < MOST_HEAD:
            stream.settimeout(_left(until))
            more = stream.recv(4096)
            if not more:
                break
            data += more
    first, _, rest = data.partition(b"\r\n\r\n")[0].decode("latin-1").partition("\r\n")
    version, _, said = first.partition(" ")
    if not version.startswith("HTTP/") or not said[:3].isdigit():
        raise ValueError("the answer is no HTTP")
    named = (line.partition(":") for line in rest.split("\r\n"))
    return int(said[:3]), next((value.strip() for name, _, value in named if name.lower() == "location"), "")


def _left(until: float) -> float:
    left = until - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def _encrypted(plain: socket.socket, host: str) -> socket.socket:
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context.wrap_socket(plain, server_hostname=host)


def _parts(url: str) -> tuple[str, str, str]:
    """Return scheme, place (host and port) and path of a URL."""
    scheme, _, rest = url.partition("://")
    place, slash, path = rest.partition("/")
    return scheme.lower(), place, slash + path or "/"


def _address(place: str, usual: int) -> tuple[str, int]:
    host, _, port = place.rpartition(":") if not place.endswith("]") else (place, "", "")
    if not host or not port.isdigit():
        host, port = place, str(usual)
    return host.strip("[]"), int(port)


def _joined(url: str, target: str) -> str:
    """Return the URL of a redirect, "" if it leads to another host."""
    scheme, place, path = _parts(url)
    if "://" not in target:
        beside = path.partition("?")[0].rpartition("/")[0]
        return f"{scheme}://{place}{target if target.startswith('/') else f'{beside}/{target}'}"
    there = _parts(target)
    same = _address(there[1], 0)[0] == _address(place, 0)[0]
    return target if same and there[0] in ("http", "https") else ""
