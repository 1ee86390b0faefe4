"""The folder of a party: who it is, its keys, the parties that it knows, its records and its jobs.

party.json          id, name and addresses
cert.pem            the certificate, which others get
clients.json        the keys of its clients, readable by this user alone
clients.seen        the requests of its clients in the last minutes, each of which is taken once
policy.json         what it lets others do; without it, the policy by default
keys/               tls.pem and signing.pem: made here, readable by this user alone, never sent
peers/ID.json       the parties that it knows
invitations/        open invitations that one further party may use
audit.jsonl         each decision about a message of another party
party.db, jobs/, data/, run/
"""

from __future__ import annotations

import ipaddress
import os
import re
import secrets
import socket
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Self

import msgspec
from msgspec import Struct

from weft.model.errors import ConflictError, ForbiddenError, NotFoundError, UnreadableError, UsageError
from weft.parties.client_keys import OWNER, add_key
from weft.runtime.clock import RealClock
from weft.store.disk import sync_folder
from weft.store.folders import safe_open
from weft.store.limits import disk_named

if TYPE_CHECKING:
    from pathlib import Path

    from weft.runtime.clock import WallClock

_ID: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,63}")
_DESCRIPTION: Final = "party.json"
_CERTIFICATE: Final = "cert.pem"
_TLS_KEY: Final = "tls.pem"
_SIGNING_KEY: Final = "signing.pem"
_FOLDERS: Final = ("keys", "peers", "invitations", "jobs", "data")
_MAKE: Final = "Make one: weft party init NAME --id ID"
_MOST_NAMED: Final = 5
_LONGEST_NAME: Final = 200
_HOST: Final = re.compile(r"(?!-)[A-Za-z0-9-]{1,63}(\.(?!-)[A-Za-z0-9-]{1,63}){0,20}\.?")
_LONGEST_HOST: Final = 253
_ALL: Final = ("::", "0.0.0.0")
_FIRST_PORT: Final = 20_000
_PORTS: Final = 12_000
"""Ports below those that Linux gives to connections by default, which begin at 32,768."""
_TRIES: Final = 32
"""Addresses that stand for all of a machine."""


class PartyDescription(Struct, frozen=True):
    """The party of a folder. Others reach it at `host`, "" if they cannot connect to it.

    Its server listens for them on the address `listen`; "" for the loopback interface or all, by `host`.
    `cores` is the number that its jobs may use together. `created` is in seconds since 1970.
    """

    id: str
    name: str
    host: str
    party_port: int
    http_port: int
    cores: int
    created: float
    listen: str = ""


class PartySite(Struct, frozen=True):
    """An existing folder of a party."""

    folder: Path
    party: PartyDescription

    @classmethod
    def create(
        cls,
        folder: Path,
        id: str,
        *,
        name: str = "",
        host: str = "127.0.0.1",
        listen: str = "",
        party_port: int = 0,
        http_port: int = 0,
        cores: int | None = None,
        clock: WallClock | None = None,
    ) -> Self:
        """Make the folder of a new party, with its keys and its certificate.

        A port of 0 becomes one that is free now, and stays. Without `listen` the server listens on the address `host`
        if this machine has it, else on all. Without `cores`, all cores of this machine.

        UsageError: no valid id, name, address, port or number of cores. ConflictError: the folder has a party already,
        or other content. ForbiddenError: it cannot be made. MissingExtraError is for the caller: the keys need
        `cryptography`.
        """
        from weft.parties.identity import make_identity

        check_party_id(id)
        cores = (os.cpu_count() or 1) if cores is None else cores
        for what, port in {"the port for parties": party_port, "the HTTP port": http_port}.items():
            if not 0 <= port <= 65535:
                raise UsageError(f"{what} is {port}; it must be between 0 and 65535")
        if party_port and party_port == http_port:
            raise UsageError(f"port {http_port} cannot be for parties and for clients", hint="Give two ports.")
        if host and (not is_host(host) or host in _ALL):
            raise UsageError(f"{host[:80]!r} is no host", hint="Such as party.example or 192.0.2.1")
        if listen and not _is_here(listen):
            raise UsageError(
                f"{listen[:80]!r} is no address of this machine", hint="Give one, or 0.0.0.0 or :: for all of them."
            )
        if cores < 1:
            raise UsageError(f"the number of cores is {cores}; it must be at least 1")
        if len(name) > _LONGEST_NAME or not (name or "x").isprintable():
            raise UsageError(f"the name of a party has at most {_LONGEST_NAME} characters, all printable")
        now = (clock or RealClock()).wall()
        party_port, http_port = _free_ports(host, party_port, http_port)
        listen = listen or _interface(host)
        party = PartyDescription(id, name or id, host, party_port, http_port, cores, now, listen)
        _make_folder(folder)
        with disk_named(folder):
            for below in _FOLDERS:
                (folder / below).mkdir(mode=0o700, exist_ok=True)
        made = make_identity(id, host, now)
        write_file(folder, f"keys/{_TLS_KEY}", made.tls_key)
        write_file(folder, f"keys/{_SIGNING_KEY}", made.signing_key)
        write_file(folder, _CERTIFICATE, made.certificate)
        add_key(folder, OWNER)
        # Last, since a folder with this file is a party.
        write_file(folder, _DESCRIPTION, msgspec.json.format(msgspec.json.encode(party)))
        return cls(folder, party)

    @classmethod
    def open(cls, folder: Path) -> Self:
        """Open the folder of a party.

        NotFoundError: it is none. UnreadableError: its file is damaged. ForbiddenError: others may read its keys.
        """
        try:
            data = read_file(folder, _DESCRIPTION)
        except (NotFoundError, FileNotFoundError, NotADirectoryError):
            inside = sorted(one.parent.name for one in folder.glob(f"*/{_DESCRIPTION}"))[:_MOST_NAMED]
            hint = f"Name one of those here: {' or '.join(f'--folder {one}' for one in inside)}" if inside else _MAKE
            raise NotFoundError(f"{folder} is no folder of a party", hint=hint) from None
        try:
            party = msgspec.json.decode(data, type=PartyDescription)
        except msgspec.MsgspecError as error:
            raise UnreadableError(f"{folder / _DESCRIPTION} is damaged: {error}") from None
        check_party_id(party.id)
        for name in (_TLS_KEY, _SIGNING_KEY):
            _check_private(folder / "keys" / name)
        for below in _FOLDERS:
            try:
                with disk_named(folder):
                    (folder / below).mkdir(mode=0o700, exist_ok=True)
            except FileExistsError:
                raise UnreadableError(
                    f"{folder / below} is a file, and must be a folder", hint="Restore it from a backup, or remove it."
                ) from None
        return cls(folder, party)

    def check_keys(self) -> None:
        """Require that keys and certificate belong together. UnreadableError: one is damaged."""
        from weft.parties.identity import check_keys

        check_keys(self.tls_key, self.certificate, self.signing_key)

    @property
    def id(self) -> str:
        """The id of the party."""
        return self.party.id

    @property
    def address(self) -> str:
        """HOST:PORT of its server for parties; "" if others cannot connect to it."""
        return joined_address(self.party.host, self.party.party_port) if self.party.host else ""

    @property
    def listen(self) -> str:
        """The address of this machine on which its server listens for other parties."""
        return self.party.listen or _interface(self.party.host)

    @property
    def certificate(self) -> bytes:
        """The certificate, as PEM."""
        return read_file(self.folder, _CERTIFICATE)

    @property
    def tls_key(self) -> bytes:
        """The private key of the certificate, as PEM."""
        return read_file(self.folder, "keys", _TLS_KEY)

    @property
    def signing_key(self) -> bytes:
        """The private key of signatures, as PEM."""
        return read_file(self.folder, "keys", _SIGNING_KEY)

    @property
    def peers(self) -> Path:
        """The folder with the parties that it knows."""
        return self.folder / "peers"

    @property
    def invitations(self) -> Path:
        """The folder with its open invitations."""
        return self.folder / "invitations"

    @property
    def audit(self) -> Path:
        """The file with its decisions."""
        return self.folder / "audit.jsonl"

    @property
    def database(self) -> Path:
        """The file with its records of jobs."""
        return self.folder / "party.db"

    @property
    def jobs(self) -> Path:
        """The folder with the files of jobs."""
        return self.folder / "jobs"

    @property
    def run(self) -> Path:
        """The folder of what belongs to one run of its server: sockets of parts, and files of requests."""
        return self.folder / "run"

    @property
    def data(self) -> Path:
        """The folder with its tables."""
        return self.folder / "data"

    def renew(self, clock: WallClock | None = None) -> None:
        """Replace the key of the certificate and the certificate; the signing key stays.

        Peers refuse the new certificate until they join with a new invitation of this party.
        """
        from weft.parties.identity import Signer, make_certificate

        now, public = (clock or RealClock()).wall(), Signer(self.signing_key).public
        tls_key, certificate = make_certificate(self.id, self.party.host, now, public)
        write_file(self.folder, f"keys/{_TLS_KEY}", tls_key)
        write_file(self.folder, _CERTIFICATE, certificate)


def check_party_id(id: str) -> None:
    """Require a valid id of a party. UsageError: it is none."""
    if not _ID.fullmatch(id):
        raise UsageError(
            f"{id[:80]!r} cannot be the id of a party",
            hint="Use 1 to 64 letters, digits, underscores and hyphens, with no hyphen in front.",
        )


def is_host(host: str) -> bool:
    """Whether a text is the name or the IP address of a host."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return len(host) <= _LONGEST_HOST and _HOST.fullmatch(host) is not None
    return "%" not in host


def is_loopback(host: str) -> bool:
    """Whether a host is this machine as it sees itself."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def joined_address(host: str, port: int) -> str:
    """Return HOST:PORT, with an address of IPv6 in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_address(address: str) -> bool:
    """Whether a text is HOST:PORT. gRPC understands much more, such as paths of sockets of this machine."""
    host, _, port = address.rpartition(":")
    plain = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    whole = port.isascii() and port.isdecimal() and len(port) <= 5 and 0 < int(port) <= 65535
    return whole and is_host(plain) and address == joined_address(plain, int(port))


def read_file(folder: Path, *parts: str) -> bytes:
    """Return the content of a file of a party."""
    with safe_open(folder, *parts, mode="rb") as file:
        data: bytes = file.read()
        return data


def write_file(folder: Path, name: str, data: bytes) -> None:
    """Write a file of a party that only this user can read; after a crash it has its old or its new content."""
    draft = f"{name}.{secrets.token_hex(8)}.new"
    with disk_named(folder):
        try:
            with safe_open(folder, draft, mode="xb") as file:
                os.fchmod(file.fileno(), 0o600)
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(folder / draft, folder / name)
        except BaseException:
            with suppress(OSError):  # the first error tells more
                (folder / draft).unlink(missing_ok=True)
            raise
        sync_folder((folder / name).parent)


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except FileExistsError:
        raise ConflictError(f"{folder} is a file", hint="Choose another folder with --folder.") from None
    except OSError as error:
        raise ForbiddenError(
            f"the folder {folder} cannot be made: {error.strerror}", hint="Choose another folder with --folder."
        ) from None
    if (folder / _DESCRIPTION).exists():
        raise ConflictError(
            f"{folder} is the folder of a party already",
            hint="Choose another folder with --folder. Keys are never replaced by this command.",
        )
    if any(folder.iterdir()):
        raise ConflictError(f"{folder} is not empty", hint="Choose another folder with --folder.")


def _check_private(key: Path) -> None:
    try:
        about = key.lstat()
    except FileNotFoundError:
        raise NotFoundError(
            f"{key} is missing", hint="Restore it from a backup, or make a new party and exchange invitations again."
        ) from None
    if about.st_mode & 0o077:
        raise ForbiddenError(f"other users may read {key}", hint=f"Run: chmod 600 {key}")


def _interface(host: str) -> str:
    """Return the address to listen on for those who call `host`: `host` if this machine has it, else all."""
    return host if is_loopback(host) or _is_here(host) else _ALL[0]


def _is_here(address: str) -> bool:
    """Whether this machine has an IP address."""
    try:
        family = socket.AF_INET6 if ipaddress.ip_address(address).version == 6 else socket.AF_INET
        with socket.socket(family) as sock:
            sock.bind((address, 0))
    except (ValueError, OSError):
        return False
    return True


def _bind_any(sock: socket.socket, host: str) -> None:
    for place in (host, ""):  # an address of IPv6 or of a router cannot be had here
        for at in [_FIRST_PORT + secrets.randbelow(_PORTS) for _ in range(_TRIES)]:
            with suppress(OSError):
                sock.bind((place, at))
                return
    sock.bind(("", 0))


def _free_ports(host: str, *ports: int) -> list[int]:
    """Replace each 0 by a different port that is free now.

    It is one that the system gives to no connection, which could have it when the server starts.
    """
    held = []
    try:
        for port in ports:
            sock = socket.socket()
            held.append(sock)
            if port == 0:
                _bind_any(sock, host or "127.0.0.1")
        return [port or sock.getsockname()[1] for port, sock in zip(ports, held, strict=True)]
    finally:
        for sock in held:
            sock.close()
