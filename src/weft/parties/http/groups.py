"""What a group of routes is made of."""

from __future__ import annotations

import tarfile
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from weft.parties.http.calls import HttpCall
from weft.parties.http.envelope import FileReply, HttpReply, not_offered
from weft.parties.http.ports import PartyPorts

if TYPE_CHECKING:
    from pathlib import Path

JSON, FILE, UPLOAD, ARCHIVE = "json", "file", "upload", "archive"
"""Kinds of routes: JSON both ways, a file in the answer, a table in the request, an archive of a model in it."""
Handler = Callable[[PartyPorts, HttpCall], HttpReply | FileReply]
BOTH: Final = ("POST", "GET")


class HttpRoute(Struct, frozen=True):
    """A route below `/v1/`; `{name}` in its path becomes an argument of the call."""

    path: str
    handle: Handler
    kind: str = JSON
    methods: Sequence[str] = ("POST",)


def packed(files: Iterator[tuple[Path, str]], target: Path) -> Path:
    """Write regular files to an archive (tar.gz), each under its name, and return its path."""
    with tarfile.open(target, "w:gz", compresslevel=1) as archive:
        for path, name in files:
            if path.is_file() and not path.is_symlink():
                archive.add(path, name, recursive=False)
    return target


def refusal(path: str, what: str, instead: str) -> HttpRoute:
    """Return a route of FATE that Weft does not offer; `instead` says what to do, as a sentence."""

    def refuse(ports: PartyPorts, call: HttpCall) -> HttpReply:
        return not_offered(what, instead)

    return HttpRoute(path, refuse)
