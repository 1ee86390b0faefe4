"""The application: the routes of all groups below `/v1`, and what holds for each request.

A web page could reach the server through the browser of its user, so requests without a signature are refused if they
have the origin of another page, or the name of another host.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from fastapi import FastAPI
from msgspec import Struct
from msgspec.structs import replace
from starlette.background import BackgroundTask
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, Response
from starlette.routing import BaseRoute, Route

from weft.model.errors import ForbiddenError
from weft.parties.http.callers import SIGNATURE
from weft.parties.http.calls import HttpCall, read_call, read_upload
from weft.parties.http.envelope import FileReply, HttpReply, failed, json_response
from weft.parties.http.groups import ARCHIVE, FILE, UPLOAD, HttpRoute
from weft.parties.http.routes import ROUTES
from weft.parties.policy import LOOPBACK

if TYPE_CHECKING:
    from weft.parties.http.ports import PartyPorts

PREFIX: Final = "/v1/"
MOST_UPLOAD: Final = 64 << 30
_LOCAL_NAMES: Final = frozenset({"localhost", "127.0.0.1", "::1"})
MOST_ARCHIVE: Final = 100 << 20
Check = Callable[[Request, bytes, Mapping[str, str]], str]
"""Returns the user that has signed a request with this JSON and form, or raises PartyIdentityError."""


class HttpSettings(Struct, frozen=True, kw_only=True):
    """What a site sets: the largest file of an upload in bytes, further names of this host, and the check of users."""

    most_upload: int = MOST_UPLOAD
    hosts: Sequence[str] = ()
    check: Check | None = None


def make_app(ports: PartyPorts, settings: HttpSettings | None = None) -> FastAPI:
    """Return the application for the clients of one party."""
    found = settings or HttpSettings()
    routes: list[BaseRoute] = [
        Route(PREFIX + one.path, _endpoint(one, ports, found), methods=list(one.methods)) for one in ROUTES
    ]
    app = FastAPI(routes=routes, openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False)
    app.add_exception_handler(HTTPException, _not_found)
    return app


async def _not_found(request: Request, error: Exception) -> Response:
    status = getattr(error, "status_code", 404)
    found = f"there is no route {request.method} {request.url.path}"
    hint = "The routes are those of FATE Flow below /v1; see docs/federated.md, Clients of FATE."
    return json_response(HttpReply(retcode=status, retmsg=f"{found}. {hint}"), status=status)


def _endpoint(route: HttpRoute, ports: PartyPorts, settings: HttpSettings) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        scratch: Path | None = None
        try:
            if SIGNATURE not in request.headers:
                _refuse_pages(request, settings)
            if route.kind in (UPLOAD, ARCHIVE, FILE):
                scratch = Path(tempfile.mkdtemp(dir=ports.scratch))
            call = await _call(request, route, settings, scratch)
            reply = await run_in_threadpool(route.handle, ports, call)
            if isinstance(reply, FileReply):
                kept, scratch = scratch, None
                return _file(reply, kept)
            return json_response(reply, status=210 if route.kind == FILE and reply.retcode else 200)
        except ClientDisconnect:  # nobody waits for the answer
            return Response(status_code=400)
        except Exception as error:  # noqa: BLE001 - every client gets an answer
            reply, status = failed(error, request.url.path, ports.scratch.parent)
            return json_response(reply, status=status if route.kind == FILE else 200)
        finally:
            if scratch is not None:
                await run_in_threadpool(shutil.rmtree, scratch, ignore_errors=True)

    return endpoint


async def _call(request: Request, route: HttpRoute, settings: HttpSettings, scratch: Path | None) -> HttpCall:
    """Read a request. No signature covers a file, and each is checked before a byte of one goes to the disk."""
    check: Check = settings.check or (lambda *_: "")
    has_file = route.kind in (UPLOAD, ARCHIVE)
    if has_file and scratch is not None and request.headers.get("content-type", "").startswith("multipart/form-data"):
        if route.kind == UPLOAD:  # the arguments of uploads stand in the query, which the signature covers
            user = check(request, b"", {})
            call = await read_upload(request, scratch, settings.most_upload)
        else:
            call = await read_upload(request, scratch, MOST_ARCHIVE, lambda form: check(request, b"", form))
            user = call.user
    else:
        call = await read_call(request)
        user = check(request, call.raw, call.form)
    return replace(call, user=user, scratch=scratch, body={**call.body, **request.path_params})


def _file(reply: FileReply, scratch: Path | None) -> Response:
    """Return a file; clients of FATE take its name as it stands, so it has no quotes."""
    name = "".join(one if one.isalnum() or one in "._-" else "_" for one in reply.name)
    headers = {"content-disposition": f"attachment; filename={name}"}
    task = None if scratch is None else BackgroundTask(shutil.rmtree, scratch, ignore_errors=True)
    return FileResponse(reply.path, media_type=reply.media, headers=headers, background=task)


def _refuse_pages(request: Request, settings: HttpSettings) -> None:
    """Refuse what a page of another origin sent through a browser."""
    allowed = _LOCAL_NAMES | set(settings.hosts)
    host = urlsplit(f"//{request.headers.get('host', '')}").hostname or ""
    origin = request.headers.get("origin")
    if origin is not None and urlsplit(origin).netloc.lower() != request.headers.get("host", "").lower():
        wrong = origin
    elif request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        wrong = origin or "a page of another site"
    elif host not in allowed:
        wrong = host
    else:
        return
    raise ForbiddenError(
        f"this server does not answer requests to or from {wrong!r}",
        hint=f"Use http://{LOOPBACK}, or add the name to client_names in policy.json.",
    )
