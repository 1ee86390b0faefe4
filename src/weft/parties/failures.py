"""Errors that travel between parties: code, message and hint, and never a traceback, a path or a password."""

from __future__ import annotations

import re
from typing import Final

import msgspec
from msgspec import Struct

from weft.model import errors
from weft.model.errors import InternalError, PartyError, WeftError
from weft.model.masking import without_passwords

_LONGEST: Final = 1000
_PATH: Final = re.compile(r"(?<![\w.:/-])/(?:[^\s/:'\"]+/)+(?=[^\s/:'\"])")
"""The folders of a path that begins at the root of a file system."""
_URL: Final = re.compile(r"\b((?!https?://)[A-Za-z][\w+.-]*://)[^\s'\"]+")
"""A URL of something other than a page, such as a database."""


class FailureReport(Struct, frozen=True):
    """An error as another party gets it; `party` is the party that it is about, by default the one that answered."""

    code: str
    message: str
    hint: str = ""
    party: str = ""


_encoder: Final = msgspec.json.Encoder()
_decoder: Final = msgspec.json.Decoder(FailureReport)


def _kinds(kind: type[WeftError]) -> dict[str, type[WeftError]]:
    found = {kind.code: kind}
    for below in kind.__subclasses__():
        if below.__module__ == errors.__name__ and not issubclass(below, InternalError):
            found |= _kinds(below)
    return found


_KINDS: Final = _kinds(WeftError)


def for_others(text: str) -> str:
    """Return a text for other parties, which need not know the disks and databases of this one.

    Of a path only the last name is left, of the URL of a database its kind, and no password.
    """
    return _PATH.sub("", _URL.sub(r"\1...", without_passwords(text)))


def line_of(text: str, most: int = _LONGEST) -> str:
    """Return a text of a person or of another party as one line, without control characters."""
    words = "".join(one if one.isprintable() else " " for one in text).split()
    line = " ".join(words)
    return line if len(line) <= most else line[: most - 1] + "…"


def kind_of(code: str) -> type[WeftError]:
    """Return the class of errors with a code; that of all errors of parties if it is unknown here."""
    return _KINDS.get(code, PartyError)


def report_of(error: WeftError, me: str) -> bytes:
    """Return an error of party `me` as bytes."""
    party = error.party if isinstance(error, PartyError) and error.party else me
    message, hint = for_others(error.message), for_others(error.hint)
    return _encoder.encode(FailureReport(error.code, message[:_LONGEST], hint[:_LONGEST], party[:64]))


def error_of(data: bytes, party: str) -> WeftError:
    """Return the error that a party answered, of its class; one that is unknown here is a `PartyError`."""
    try:
        report = _decoder.decode(data)
    except msgspec.MsgspecError:
        return PartyError(f"party {party} answered an error that cannot be read", party=party)
    kind, message, hint = kind_of(report.code), line_of(report.message), line_of(report.hint)
    if issubclass(kind, PartyError):
        return kind(message, party=line_of(report.party, 64) or party, hint=hint)
    return kind(f"party {party}: {message}", hint=hint)
