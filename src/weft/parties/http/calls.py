"""Requests: their arguments from JSON, forms and queries, files that are streamed to the disk, and limits.

Limits: 8 MiB of JSON or form, which may take 120 s, 52 levels of JSON, 64 KiB of query, 30 s between two pieces; a
file has a limit of its own.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, cast
from urllib.parse import parse_qsl, unquote

import msgspec
from msgspec import Struct
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.concurrency import run_in_threadpool

from weft.model.errors import InputLimitError, UsageError

if TYPE_CHECKING:
    from starlette.requests import Request

MOST_BODY: Final = 8 << 20
MOST_DEPTH: Final = 52
MOST_QUERY: Final = 64 << 10
MOST_PARTS: Final = 100
PATIENCE_S: Final = 30.0
"""How long a server waits for the next piece of a body."""
WHOLE_S: Final = 120.0
"""How long it waits for all of a body that is no file."""
_BLOCK: Final = 1 << 20
_STRINGS: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_BRACKETS: Final = re.compile(rb"[][{}]")


class HttpCall(Struct, frozen=True, kw_only=True):
    """The arguments of a request: `body` has those of JSON, form and query together. `user` has signed it, or "".

    `file` was uploaded under the name `file_name`. `raw` is the JSON as it came, `form` the fields of a form. `scratch`
    is a folder for this request, which is removed after it.
    """

    body: Mapping[str, Any]
    user: str = ""
    file: Path | None = None
    file_name: str = ""
    raw: bytes = b""
    form: Mapping[str, str] = {}
    scratch: Path | None = None

    def text(self, name: str, default: str = "") -> str:
        """Return an argument as text; numbers become digits. UsageError: it is a list or an object."""
        value = self.body.get(name)
        if value is None:
            return default
        if isinstance(value, float) and value.is_integer():
            return str(int(value))
        if isinstance(value, bool | int | float | str):
            return str(value).strip()
        raise UsageError(f"{name} is not a text", hint=f'Give it as "{name}": "..."')

    def need(self, name: str, *others: str) -> str:
        """Return a text that must be there, under one of these names. UsageError: it is not."""
        found = next((text for one in (name, *others) if (text := self.text(one))), "")
        if not found:
            raise UsageError(f"{name} is missing", hint=f"Give {name}.")
        return found

    def need_all(self, *names: str) -> list[str]:
        """Return texts that must be there. UsageError: some are not; all are named."""
        found = [self.text(name) for name in names]
        lacking = [name for name, text in zip(names, found, strict=True) if not text]
        if lacking:
            listed = ", ".join(lacking)
            raise UsageError(f"{listed} {'is' if len(lacking) == 1 else 'are'} missing", hint=f"Give {listed}.")
        return found

    def number(self, name: str, default: int) -> int:
        """Return an argument as a whole number."""
        text = self.text(name)
        if not text:
            return default
        try:
            return int(text)
        except ValueError:
            raise UsageError(f"{name} is {text!r}, not a whole number", hint=f"Give {name} in digits.") from None

    def flag(self, name: str, default: bool = False) -> bool:
        """Return an argument that is 0 or 1, true or false."""
        text = self.text(name).lower()
        if text in ("", "0", "1", "true", "false"):
            return text in ("1", "true") if text else default
        raise UsageError(f"{name} is {text!r}", hint=f"Give 0 or 1 for {name}.")

    def mapping(self, name: str, *others: str) -> dict[str, Any]:
        """Return an argument that is an object, or the JSON text of one; empty if it is missing."""
        value: Any = next((self.body[one] for one in (name, *others) if self.body.get(one) is not None), {})
        if isinstance(value, str):
            value = decoded(value.encode()) if value.strip() else {}
        if not isinstance(value, dict):
            raise UsageError(f"{name} is not an object", hint=f'Give it as "{name}": {{...}}')
        return cast("dict[str, Any]", value)

    def names(self, name: str) -> list[str]:
        """Return an argument that is a list of names, or a text with commas."""
        value = self.body.get(name)
        if value is None:
            return []
        if isinstance(value, list) and all(isinstance(one, str) for one in value):
            return [one.strip() for one in value if one.strip()]
        if isinstance(value, str):
            return [one.strip() for one in value.strip("[] \n").split(",") if one.strip()]
        raise UsageError(f"{name} is not a list of names", hint=f'Give it as "{name}": ["a", "b"]')


def decoded(data: bytes) -> dict[str, Any]:
    """Return the object in JSON. UsageError: it is not one. InputLimitError: it is nested too deeply."""
    deepest = depth = 0
    for bracket in _BRACKETS.findall(_STRINGS.sub(b"", data)):
        depth += 1 if bracket in b"[{" else -1
        deepest = max(deepest, depth)
        if deepest > MOST_DEPTH:
            raise InputLimitError(f"the JSON has more than {MOST_DEPTH} levels", hint="Send a flatter object.")
    try:
        found = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"the body is not JSON: {error}", hint="Send a JSON object.") from None
    if not isinstance(found, dict):
        raise UsageError("the body is not a JSON object", hint="Send {...} with named members.")
    return found


def query_of(request: Request) -> dict[str, Any]:
    """Return the arguments in the query: `a=1&b=2`, or one JSON object, as the clients of FATE 1.7 and later send."""
    raw = request.url.query
    if len(raw) > MOST_QUERY:
        raise InputLimitError(f"the query has more than {MOST_QUERY >> 10} KiB")
    text = unquote(raw)
    if text.lstrip().startswith("{"):
        return decoded(text.encode())
    return dict(parse_qsl(raw, keep_blank_values=True, max_num_fields=MOST_PARTS))


async def read_call(request: Request) -> HttpCall:
    """Read a request without files."""
    kind = request.headers.get("content-type", "")
    raw = await _whole(request)
    body = query_of(request)
    if raw.strip():
        if kind.startswith("application/x-www-form-urlencoded"):
            form = _form(raw)
            return HttpCall(body=body | form, form=form)
        if kind.startswith("multipart/form-data"):
            raise UsageError("this route takes no file", hint="Send its arguments as JSON.")
        body |= decoded(raw)
    return HttpCall(body=body, raw=raw)


def _form(raw: bytes) -> dict[str, str]:
    try:
        return dict(parse_qsl(raw.decode(), keep_blank_values=True, max_num_fields=MOST_PARTS))
    except ValueError as error:
        raise UsageError(f"the form cannot be read: {error}", hint="Send the arguments as JSON.") from None


async def _pieces(request: Request) -> AsyncIterator[bytes]:
    """Return a body piece by piece. UsageError: the next one does not come."""
    stream = request.stream()
    while True:
        try:
            async with asyncio.timeout(PATIENCE_S):
                piece = await anext(stream, None)
        except TimeoutError:
            raise UsageError(
                f"no more of the body came for {PATIENCE_S:g} s", hint="Check the connection and send it again."
            ) from None
        if piece is None:
            return
        yield piece


async def _whole(request: Request) -> bytes:
    parts, size = [], 0
    try:
        async with asyncio.timeout(WHOLE_S):
            async for part in _pieces(request):
                size += len(part)
                if size > MOST_BODY:
                    raise InputLimitError(
                        f"the body has more than {MOST_BODY >> 20} MiB",
                        hint="Upload tables as a file, with data/upload.",
                    )
                parts.append(part)
    except TimeoutError:
        raise UsageError(
            f"the body did not come in {WHOLE_S:g} s", hint="Check the connection and send it again."
        ) from None
    return b"".join(parts)


async def read_upload(
    request: Request, folder: Path, most: int, check: Callable[[Mapping[str, str]], str] | None = None
) -> HttpCall:
    """Read a request with a file, which goes to `folder` piece by piece. InputLimitError: more than `most` bytes.

    `check` gets the fields before the file is taken, and returns the user of the request; no field may follow then.
    """
    kind, options = parse_options_header(request.headers.get("content-type", ""))
    if kind != b"multipart/form-data":
        return await read_call(request)
    boundary = options.get(b"boundary", b"")
    if not 0 < len(boundary) <= 256:
        raise UsageError("the form has no boundary", hint="Send the file as multipart/form-data.")
    path = folder / "upload"
    with path.open("xb") as out:
        form = _FileForm(out, most, check)
        parser = MultipartParser(
            boundary,
            callbacks={
                "on_part_begin": form.on_part_begin,
                "on_part_data": form.on_part_data,
                "on_header_field": form.on_header_field,
                "on_header_value": form.on_header_value,
                "on_header_end": form.on_header_end,
                "on_headers_finished": form.on_headers_finished,
                "on_end": form.on_end,
            },
        )
        try:
            async for part in _pieces(request):
                parser.write(part)
                if form.waiting >= _BLOCK:
                    await run_in_threadpool(form.write)
            parser.finalize()
            await run_in_threadpool(form.write)
        except ValueError as error:  # of the parser
            raise UsageError(f"the form cannot be read: {error}", hint="Send it as multipart/form-data.") from None
    if not form.ended:
        raise UsageError("the form ends too early", hint="Send the file again.")
    fields, user = form.texts(), form.user
    if check is not None and form.file_name is None:
        user = check(fields)
    return HttpCall(
        body=query_of(request) | fields,
        user=user,
        file=path if form.file_name is not None else None,
        file_name=Path(form.file_name or "").name,
        form=fields,
    )


class _FileForm:
    """The parts of a form: one file, and small fields."""

    def __init__(self, out: IO[bytes], most: int, check: Callable[[Mapping[str, str]], str] | None) -> None:
        self._out, self._most, self._check = out, most, check
        self.user = ""
        self.fields: dict[str, bytearray] = {}
        self.file_name: str | None = None
        self.ended = False
        self.waiting = 0
        self._pieces: list[bytes] = []
        self._parts = self._size = self._small = 0
        self._header: list[bytes] = [b"", b""]
        self._headers: dict[bytes, bytes] = {}
        self._field: bytearray | None = None

    def texts(self) -> dict[str, str]:
        """Return the fields that have come."""
        return {name: bytes(value).decode("utf-8", "replace") for name, value in self.fields.items()}

    def write(self) -> None:
        """Write what has come of the file."""
        pieces, self._pieces, self.waiting = self._pieces, [], 0
        self._out.writelines(pieces)

    def on_part_begin(self) -> None:
        self._parts += 1
        if self._parts > MOST_PARTS:
            raise InputLimitError(f"the form has more than {MOST_PARTS} parts")
        self._headers, self._header = {}, [b"", b""]

    def on_header_field(self, data: bytes, start: int, end: int) -> None:
        self._header[0] += data[start:end]

    def on_header_value(self, data: bytes, start: int, end: int) -> None:
        self._header[1] += data[start:end]

    def on_header_end(self) -> None:
        self._headers[self._header[0].lower()] = self._header[1]
        self._header = [b"", b""]

    def on_headers_finished(self) -> None:
        _, options = parse_options_header(self._headers.get(b"content-disposition", b""))
        name = options.get(b"name", b"").decode("utf-8", "replace")
        if b"filename" not in options:
            if self._check is not None and self.file_name is not None:
                raise UsageError(
                    f"the field {name[:40]!r} comes after the file", hint="Send all fields first, and the file last."
                )
            self._field = self.fields.setdefault(name, bytearray())
            return
        if self.file_name is not None or name != "file":
            raise UsageError("the form must have one file, named file", hint="Send one file.")
        if self._check is not None:
            self.user = self._check(self.texts())
        self.file_name, self._field = options[b"filename"].decode("utf-8", "replace"), None

    def on_part_data(self, data: bytes, start: int, end: int) -> None:
        if self._field is not None:
            self._small += end - start
            if self._small > MOST_BODY:
                raise InputLimitError(f"the fields of the form have more than {MOST_BODY >> 20} MiB")
            self._field += data[start:end]
            return
        self._size += end - start
        if self._size > self._most:
            raise InputLimitError(
                f"the file has more than {self._most >> 20:,} MiB",
                hint="The operator of this site can raise the limit; or bind a file of the site.",
            )
        self._pieces.append(data[start:end])
        self.waiting += end - start

    def on_end(self) -> None:
        self.ended = True
