"""The answers of FATE Flow: `{"retcode", "retmsg", "data", "jobId", "meta"}`, and the codes of errors.

The HTTP status is 200 for errors too, as clients of FATE expect, except for downloads and unknown routes.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct
from starlette.responses import Response

from weft.model.errors import (
    CapacityError,
    ConflictError,
    DefinitionError,
    ForbiddenError,
    InputLimitError,
    NotFoundError,
    PartyError,
    PartyIdentityError,
    PartyRefusedError,
    PartyUnreachableError,
    UsageError,
    WeftError,
)
from weft.model.masking import without_passwords
from weft.store.limits import disk_error

if TYPE_CHECKING:
    from pathlib import Path

_log: Final = logging.getLogger(__name__)


class RetCode(IntEnum):
    """The codes of FATE Flow, 1.5 to 1.11."""

    SUCCESS = 0
    NOT_EFFECTIVE = 10
    EXCEPTION_ERROR = 100
    ARGUMENT_ERROR = 101
    DATA_ERROR = 102
    OPERATING_ERROR = 103
    FEDERATED_ERROR = 104
    CONNECTION_ERROR = 105
    RUNNING = 106
    INCOMPATIBLE_FATE_VER = 107
    PERMISSION_ERROR = 108
    AUTHENTICATION_ERROR = 109
    SERVER_ERROR = 500


class HttpReply(Struct, frozen=True, kw_only=True):
    """An answer in JSON; members that are None are left out."""

    retcode: int = RetCode.SUCCESS
    retmsg: str = "success"
    data: Any = None
    job_id: str | None = None
    meta: Any = None


class FileReply(Struct, frozen=True, kw_only=True):
    """A file to download, under this name."""

    path: Path
    name: str
    media: str = "application/octet-stream"


_CODES: Final[tuple[tuple[type[WeftError], RetCode, int], ...]] = (
    (PartyIdentityError, RetCode.AUTHENTICATION_ERROR, 401),
    (PartyRefusedError, RetCode.PERMISSION_ERROR, 403),
    (PartyUnreachableError, RetCode.CONNECTION_ERROR, 210),
    (PartyError, RetCode.FEDERATED_ERROR, 210),
    (ForbiddenError, RetCode.PERMISSION_ERROR, 403),
    (NotFoundError, RetCode.DATA_ERROR, 404),
    (ConflictError, RetCode.OPERATING_ERROR, 210),
    (CapacityError, RetCode.OPERATING_ERROR, 210),
    (InputLimitError, RetCode.ARGUMENT_ERROR, 400),
    (DefinitionError, RetCode.ARGUMENT_ERROR, 400),
    (UsageError, RetCode.ARGUMENT_ERROR, 400),
)
"""The code of FATE for each error, and the status of a download that fails with it; the first that fits counts."""


def code_of(error: WeftError) -> tuple[RetCode, int]:
    """Return the code of an error, and the HTTP status of a download."""
    return next(
        ((code, status) for kind, code, status in _CODES if isinstance(error, kind)), (RetCode.EXCEPTION_ERROR, 210)
    )


def failed(error: Exception, path: str, folder: Path | str = "") -> tuple[HttpReply, int]:
    """Return the answer to a request that raised, and the status of a download. What is unexpected is logged.

    `folder` is that of the party, whose disk may be full.
    """
    error = disk_error(error, folder) or error
    if isinstance(error, WeftError):
        code, status = code_of(error)
        hint = f" {error.hint}" if error.hint else ""
        return HttpReply(retcode=code, retmsg=without_passwords(f"{error.message}.{hint} [{error.code}]")), status
    _log.error("a request for %s failed", path, exc_info=error)
    found = without_passwords(f"{type(error).__name__}: {error}".splitlines()[0])
    return HttpReply(
        retcode=RetCode.EXCEPTION_ERROR,
        retmsg=f"a fault of the server: {found}. The log of the server has the details. [WEFT900]",
    ), 210


def not_offered(what: str, instead: str) -> HttpReply:
    """Return the answer of a route of FATE that Weft does not offer; `instead` says what to do, as a sentence."""
    return HttpReply(retcode=RetCode.OPERATING_ERROR, retmsg=f"{what} is not offered by Weft. {instead}")


def json_response(reply: HttpReply, *, status: int = 200) -> Response:
    """Return an answer as bytes of JSON."""
    found: dict[str, Any] = {"retcode": int(reply.retcode), "retmsg": reply.retmsg}
    found |= {
        name: value
        for name, value in (("data", reply.data), ("jobId", reply.job_id), ("meta", reply.meta))
        if value is not None
    }
    return Response(msgspec.json.encode(found, enc_hook=_plain), status_code=status, media_type="application/json")


def _plain(value: Any) -> Any:
    """Return a value of a library of arrays as one of Python."""
    if isinstance(value, Mapping):
        return dict(value)
    for method in ("tolist", "item"):
        if hasattr(value, method):
            return getattr(value, method)()
    return str(value)
