"""The ports at which processes of a cluster listen: any free ones, or those that `WEFT_PORTS` allows at a machine."""

from __future__ import annotations

import errno
import os
import random
import re
import socket
from collections.abc import Mapping
from typing import Final

from weft.model.errors import CapacityError, UsageError

PORTS: Final = "WEFT_PORTS"
"""The variable with the first and the last port, such as `20000-20999`."""
_BACKLOG: Final = 128
_MOST: Final = 65_535


def allowed_ports(environ: Mapping[str, str]) -> range:
    """Return the ports that an environment allows, none if it allows all. UsageError: its variable names none."""
    text = environ.get(PORTS, "")
    if not text:
        return range(0)
    found = re.fullmatch(r"\s*(\d{1,5})\s*-\s*(\d{1,5})\s*", text)
    first, last = (int(found[1]), int(found[2])) if found else (0, 0)
    if not 0 < first <= last <= _MOST:
        raise UsageError(
            f"{PORTS} is {text!r}, which is no range of ports", hint=f"Such as {PORTS}=20000-20999, or unset it."
        )
    return range(first, last + 1)


def listen(host: str) -> socket.socket:
    """Listen at a free port of an address of this machine.

    CapacityError: none of those that are allowed is free. UsageError: see `allowed_ports`. OSError: the address is none
    of this machine.
    """
    ports = allowed_ports(os.environ)
    if not ports:
        return socket.create_server((host, 0), backlog=_BACKLOG)
    begin = random.randrange(len(ports))  # so that programs that start together seldom try the same one
    for port in (*ports[begin:], *ports[:begin]):
        try:
            return socket.create_server((host, port), backlog=_BACKLOG)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
    raise CapacityError(
        f"no port of {PORTS}={os.environ[PORTS]} is free at {host}",
        hint="Allow more of them: a session takes one at each machine, and an actor one at its own and at its program.",
    )
