"""The keys of clients, with which they sign requests as FATE 1.7 and later do: HMAC-SHA1 with a shared key.

The headers TIMESTAMP (milliseconds since 1970), NONCE, APP_KEY and SIGNATURE come with each request; the signature is
over time, nonce, name of the key, path with query, body and form, each on a line. A request is taken once, within 60 s
of its time. SHA-1 is what these clients know; a HMAC does not need the collision resistance that SHA-1 lost.
"""

from __future__ import annotations

import hmac
import os
import secrets
import stat
from base64 import b64encode
from contextlib import suppress
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, urlencode

import msgspec
from msgspec import Struct

from weft.model.errors import ConflictError, ForbiddenError, NotFoundError, UsageError
from weft.store.limits import disk_named

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

KEYS_NAME: Final = "clients.json"
_LEAST_SECRET: Final = 16
_LONGEST_USER: Final = 100
OWNER: Final = "owner"
"""The user of the key with which the command line signs; it is made with the folder of the site."""


class ClientKey(Struct, frozen=True, kw_only=True):
    """A key of a client: its public name and its secret, of at least 16 characters. `user` is recorded with jobs."""

    app_key: str
    secret_key: str
    user: str = ""

    def __post_init__(self) -> None:
        if not self.app_key or len(self.secret_key) < _LEAST_SECRET or not (self.app_key + self.secret_key).isascii():
            raise UsageError(
                f"the key {self.app_key!r} of a client is not usable",
                hint=f"Names and secrets are ASCII, and a secret has at least {_LEAST_SECRET} characters.",
            )


_decode: Final = msgspec.json.Decoder(list[ClientKey]).decode


def read_keys(site: Path) -> dict[str, ClientKey]:
    """Return the keys in the folder of a site by name, none if it has no file of keys.

    ForbiddenError: others may read the file. UsageError: it is damaged.
    """
    path = site / KEYS_NAME
    try:
        with path.open("rb") as file:
            if stat.S_IMODE(os.fstat(file.fileno()).st_mode) & 0o077:
                raise ForbiddenError(f"others may read the keys in {path}", hint=f"chmod 600 {path}")
            found = _decode(file.read())
    except FileNotFoundError:
        return {}
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UsageError(
            f"the keys in {path} cannot be read: {error}",
            hint='Each is {"app_key": ..., "secret_key": ..., "user": ...}.',
        ) from None
    return {one.app_key: one for one in found}


def add_key(site: Path, user: str) -> ClientKey:
    """Make a key for a client, write it to the folder of the site, and return it.

    UsageError: the user has no name. ConflictError: it has a key.
    """
    if not user.strip() or not user.isprintable() or len(user) > _LONGEST_USER:
        raise UsageError(
            f"{user[:40]!r} cannot be the name of a client",
            hint=f"Give 1 to {_LONGEST_USER} printable characters: weft party keys --add NAME",
        )
    keys = read_keys(site)
    if any(one.user == user for one in keys.values()):
        raise ConflictError(f"{user} has a key already", hint=f"Remove it from {site / KEYS_NAME} first.")
    new = ClientKey(app_key=secrets.token_hex(8), secret_key=secrets.token_urlsafe(32), user=user)
    _write(site, [*keys.values(), new])
    return new


def remove_key(site: Path, app_key: str) -> None:
    """Remove a key. NotFoundError: there is none."""
    keys = read_keys(site)
    if app_key not in keys:
        raise NotFoundError(f"there is no key {app_key}", hint=f"The keys stand in {site / KEYS_NAME}.")
    _write(site, [one for one in keys.values() if one.app_key != app_key])


def _write(site: Path, keys: list[ClientKey]) -> None:
    part = site / f"{KEYS_NAME}.{secrets.token_hex(8)}"
    with disk_named(site):
        try:
            with open(os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600), "wb") as out:
                out.write(msgspec.json.format(msgspec.json.encode(keys), indent=2))
                out.flush()
                os.fsync(out.fileno())
            os.replace(part, site / KEYS_NAME)
        finally:
            with suppress(OSError):  # the first error tells more
                part.unlink(missing_ok=True)


def signed(secret: str, stamp: str, nonce: str, name: str, path: str, body: bytes, form: Mapping[str, str]) -> str:
    """Return the signature of a request, in base64. `body` is its JSON, `form` the fields of a form."""
    fields = urlencode(sorted(form.items()), quote_via=quote, safe="-._~")
    lines = (stamp.encode(), nonce.encode(), name.encode(), path.encode(), body, fields.encode())
    return b64encode(hmac.digest(secret.encode(), b"\n".join(lines), "sha1")).decode()
