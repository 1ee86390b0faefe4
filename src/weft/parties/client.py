"""The client of a party's own server: what the command line asks it, over its interface for clients."""

from __future__ import annotations

import http.client
import json
import os
import re
import secrets
from typing import IO, TYPE_CHECKING, Any, Final, Self
from urllib.parse import urlencode

from weft.model.errors import (
    ForbiddenError,
    NotFoundError,
    PartyError,
    PartyUnreachableError,
    UsageError,
    WeftError,
)
from weft.parties.client_keys import OWNER, read_keys, signed
from weft.parties.failures import kind_of
from weft.parties.policy import LOOPBACK, read_policy
from weft.parties.site import read_file
from weft.runtime.clock import RealClock

if TYPE_CHECKING:
    from pathlib import Path

    from weft.parties.client_keys import ClientKey
    from weft.parties.site import PartySite

ANY: Final = ("0.0.0.0", "::")
SERVED_AT: Final = "served_at"
"""The file in the folder of a run of the server with the address where it answers clients."""
_TIMEOUT_S: Final = 60.0
_CHUNK: Final = 1 << 20
_CODED: Final = re.compile(r"(.*) \[(WEFT\d+)\]", re.DOTALL)


class SiteClient:
    """Calls the server of a party at a port of this machine; `party` is its id, for messages.

    It signs with `key`. Without one the server must run as the same user.
    """

    def __init__(self, host: str, port: int, party: str, key: ClientKey | None = None) -> None:
        self._host, self._port, self._party, self._key = host, port, party, key

    @classmethod
    def of(cls, site: PartySite) -> Self:
        """Return the client of the party of a folder, with the key of its owner."""
        host = _served_at(site)
        key = next((one for one in read_keys(site.folder).values() if one.user == OWNER), None)
        return cls(LOOPBACK if host in ANY else host, site.party.http_port, site.party.id, key)

    def post(self, route: str, body: Any = None) -> Any:
        """Return the data of an answer. WeftError: what the server has refused. PartyUnreachableError: none runs."""
        answer = self._call("POST", f"/v1/{route}", json.dumps(body or {}).encode(), "application/json")
        if answer.get("retcode") != 0:
            raise self._error(answer)
        return answer.get("data")

    def download(self, route: str, body: Any, file: Path) -> None:
        """Write the file of an answer to `file`. ForbiddenError: it cannot be written. Errors: see `post`."""
        connection = http.client.HTTPConnection(self._host, self._port, timeout=_TIMEOUT_S)
        content = json.dumps(body).encode()
        headers = {"Content-Type": "application/json", **self._signature(f"/v1/{route}", content)}
        try:
            connection.request("POST", f"/v1/{route}", body=content, headers=headers)
            answer = connection.getresponse()
            if answer.headers.get_content_type() == "application/json":
                raise self._error(json.loads(answer.read()))
            with _opened(file, "wb", "written") as target:
                while piece := answer.read(_CHUNK):
                    target.write(piece)
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise self._silent(error) from None
        finally:
            connection.close()

    def upload(self, file: Path, fields: dict[str, Any], route: str = "data/upload") -> Any:
        """Send a file, as a table or to another route. ForbiddenError: it cannot be read. Errors: see `post`."""
        boundary = f"weft-{secrets.token_hex(16)}"
        name = file.name.replace('"', "_")
        head = f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n'
        head += "Content-Type: application/octet-stream\r\n\r\n"
        tail = f"\r\n--{boundary}--\r\n".encode()
        start = head.encode()

        def body() -> Any:
            yield start
            while piece := source.read(_CHUNK):
                yield piece
            yield tail

        kind = f"multipart/form-data; boundary={boundary}"
        with _opened(file, "rb", "read") as source:
            length = len(start) + os.fstat(source.fileno()).st_size + len(tail)
            answer = self._call("POST", f"/v1/{route}?{urlencode(fields)}", body(), kind, length)
        if answer.get("retcode") != 0:
            raise self._error(answer)
        return answer

    def _call(self, method: str, path: str, body: Any, kind: str, length: int | None = None) -> dict[str, Any]:
        covered = body if isinstance(body, bytes) else b""
        headers = {"Content-Type": kind, **self._signature(path, covered)}
        headers |= {} if length is None else {"Content-Length": str(length)}
        connection = http.client.HTTPConnection(self._host, self._port, timeout=_TIMEOUT_S)
        try:
            connection.request(method, path, body=body, headers=headers)
            response = connection.getresponse()
            answer = json.loads(response.read())
        except (OSError, http.client.HTTPException) as error:
            raise self._silent(error) from None
        except ValueError:
            raise self._no_party(response.status, response.reason) from None
        finally:
            connection.close()
        return answer if isinstance(answer, dict) else {"retcode": 100, "retmsg": "the answer is no object"}

    def _signature(self, path: str, body: bytes) -> dict[str, str]:
        """Return the headers that sign a request."""
        if self._key is None:
            return {}
        stamp, nonce, name = str(int(RealClock().wall() * 1000)), secrets.token_hex(16), self._key.app_key
        signature = signed(self._key.secret_key, stamp, nonce, name, path, body, {})
        return {"TIMESTAMP": stamp, "NONCE": nonce, "APP_KEY": name, "SIGNATURE": signature}

    def _silent(self, error: Exception) -> PartyUnreachableError:
        late = f"Look at its terminal: it was stopped, or is busy. It had {_TIMEOUT_S:.0f} s."
        return PartyUnreachableError(
            f"the server of party {self._party} does not answer at {self._host}:{self._port}: {error}",
            party=self._party,
            hint=late if isinstance(error, TimeoutError) else "Start it with `weft party start`.",
        )

    def _no_party(self, status: int, reason: str) -> PartyUnreachableError:
        """Return the error for an answer that is no JSON."""
        busy = status == http.HTTPStatus.SERVICE_UNAVAILABLE
        return PartyUnreachableError(
            f"{self._host}:{self._port} answers {status} {reason}, and not as the server of party {self._party} does",
            party=self._party,
            hint="It has too many connections: try again later." if busy else "Another program may use its port.",
        )

    def _error(self, answer: dict[str, Any]) -> WeftError:
        """Return the error of an answer, which ends with its code."""
        message = str(answer.get("retmsg", "no reason was given"))
        coded = _CODED.fullmatch(message)
        if coded is None:
            return PartyError(message)
        text, code = coded.groups()
        return kind_of(code)(text)


def _served_at(site: PartySite) -> str:
    """Return the address where the server of a party answers its clients.

    The server has noted it, since its policy may have changed, or been damaged, while it runs.
    """
    try:
        return read_file(site.run, SERVED_AT).decode()
    except (NotFoundError, FileNotFoundError, NotADirectoryError):
        pass
    try:
        return read_policy(site.folder).client_host
    except UsageError:
        return LOOPBACK


def _opened(file: Path, mode: str, do: str) -> IO[bytes]:
    """Open a file of the user. ForbiddenError: it cannot be read, or written."""
    try:
        return open(file, mode)
    except OSError as error:
        raise ForbiddenError(f"{file} cannot be {do}: {error.strerror}", hint="Name another file.") from None
