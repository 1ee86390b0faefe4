"""Who may use the interface for clients: whoever signs with a key of the site, and this user on this machine.

Clients of FATE do not sign unless they are told to. On Linux the kernel tells which user is at the other end of a
connection of this machine, so these clients need no key where the server runs as the same user.
"""

from __future__ import annotations

import hmac
import os
import sys
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Final

from weft.model.errors import PartyIdentityError
from weft.parties.client_keys import signed
from weft.parties.http.seen import MOST_SKEW_S, SeenNumbers

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from starlette.requests import Request

    from weft.parties.client_keys import ClientKey
    from weft.runtime.clock import WallClock

_TABLES: Final = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_ESTABLISHED: Final = "01"
_ROOT: Final = 0
SIGNATURE: Final = "signature"
_MOST_NONCE: Final = 128


class CheckCallers:
    """Returns the user that has signed a request, "" for the user of this process.

    PartyIdentityError: it is another user, or a signature is wrong.
    """

    def __init__(self, signed: Callable[[Request, bytes, Mapping[str, str]], str]) -> None:
        self._signed = signed

    def __call__(self, request: Request, body: bytes, form: Mapping[str, str]) -> str:
        """Check a request with its body and form."""
        if SIGNATURE in request.headers:
            return self._signed(request, body, form)
        client, server = request.client, request.scope.get("server")
        if client and server and user_of((client.host, client.port), server) in {os.geteuid(), _ROOT}:
            return ""
        raise PartyIdentityError(
            "the request has no signature, and does not come from the user of the server on its machine",
            hint="Make a key with `weft party keys --add NAME`, and give it to the client: "
            "flow init --app-key KEY --secret-key SECRET",
        )


class SignedRequests:
    """Checks the signatures of requests by the keys of the site; call it with a request and its body.

    A request is taken once, by the number that it has; those taken are kept in `file`, if it is given, so that none
    is taken again after a restart. For several threads.

    PartyIdentityError: no, a wrong, an old or a repeated signature. All of these look the same to a client, so that
    none learns which names of keys exist.
    """

    def __init__(self, keys: Callable[[], Mapping[str, ClientKey]], clock: WallClock, file: Path | None = None) -> None:
        self._keys, self._clock = keys, clock
        self._seen = SeenNumbers(clock, file)

    def close(self) -> None:
        """Close the file of the requests that were taken."""
        self._seen.close()

    def __call__(self, request: Request, body: bytes, form: Mapping[str, str]) -> str:
        """Return the user whose key has signed the request."""
        stamp, nonce, name, signature = (
            request.headers.get(one, "") for one in ("timestamp", "nonce", "app_key", "signature")
        )
        key, now = self._keys().get(name), self._clock.wall()
        secret = key.secret_key if key is not None else "x" * 43
        path = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        wanted = signed(secret, stamp, nonce, name, path, body, form)
        good = hmac.compare_digest(wanted.encode(), signature.encode())
        is_time = stamp.isascii() and stamp.isdecimal() and len(stamp) < 20
        fresh = is_time and abs(int(stamp) / 1000 - now) <= MOST_SKEW_S
        known = key is not None and good and fresh and 0 < len(nonce) <= _MOST_NONCE
        if key is None or not known or not self._seen.first(name, nonce):
            raise PartyIdentityError(
                "the request is not signed with a key of this site, or not in time",
                hint="On the command line: another server may hold the port, such as one of a folder that was moved; "
                "end it, and run `weft party start` in the present folder. Other clients: give them their key (flow "
                f"init --app-key --secret-key), and compare the clocks: {MOST_SKEW_S:g} s are allowed.",
            )
        return key.user or key.app_key


def user_of(client: tuple[str, int], server: tuple[str, int]) -> int | None:
    """Return the user of this machine at the client's end of a connection, None if it comes from elsewhere.

    A socket that its process has closed shows user 0, whoever it was, and does not count: it has no inode.
    """
    try:
        ends = [_shown(*client), _shown(*server)]
    except ValueError:
        return None
    for table in _TABLES:
        try:
            lines = table.read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            # number: local address, remote address, state, queues, timer, retransmissions, user, timeout, inode
            _, local, remote, state, _, _, _, user, _, inode, *_ = line.split()
            if state == _ESTABLISHED and [local, remote] == ends and inode != "0":
                return int(user)
    return None


def _shown(host: str, port: int) -> str:
    """Return an address as the kernel shows it: 32-bit words in the order of this machine. ValueError: it is none."""
    address = ip_address(host)
    address = getattr(address, "ipv4_mapped", None) or address
    words = (address.packed[at : at + 4] for at in range(0, len(address.packed), 4))
    return "".join(f"{int.from_bytes(word, sys.byteorder):08X}" for word in words) + f":{port:04X}"
