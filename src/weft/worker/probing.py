"""Checks of a server by a connection or by an HTTP GET, as a kubelet makes them for its probes.

Isolation `namespace` runs this file as a program in the network of a replica, by its path and with the standard library
only: a failed check prints its reason and ends with 1. The other isolations call `connect` and `get` in the process of
the run. Source: `pkg/probe` of Kubernetes 1.33.
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


def words(*arguments: str) -> list[str]:
    """Return the command line of this program: "tcp HOST PORT TIMEOUT" or "http URL TIMEOUT [HEADER ...]"."""
    folder = os.path.dirname(os.path.abspath(__file__))
    return [sys.executable, "-I", "-S", "-c", PROGRAM, folder, *arguments]


def main() -> None:
    """Run this program."""
    _, _, way, *rest = sys.argv
    why = connect(rest[0], int(rest[1]), float(rest[2])) if way == "tcp" else get(rest[0], float(rest[1]), rest[2:])
    if why:
        os.write(1, f"{why}\n".encode())
        sys.exit(1)


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
