"""What a party lets others do: the file `policy.json` in its folder, which a server reads again when it changes."""

from __future__ import annotations

import re
from threading import Lock
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec
from msgspec import Struct

from weft.model.errors import NotFoundError, UsageError, WeftError
from weft.model.masking import without_passwords
from weft.parties.cores import QUEUES
from weft.parties.site import is_host, is_loopback, read_file, write_file

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

POLICY: Final = "policy.json"
NEVER, ALWAYS = "never", "always"
OPEN, GRANTED = "open", "granted"
PRIVATE, SHOWN = "private", "shown"
LOOPBACK: Final = "127.0.0.1"
_MEANINGS: Final[Mapping[str, Mapping[str, str]]] = {
    "approval": {
        NEVER: "jobs of other parties start without approval",
        ALWAYS: "jobs of other parties wait for weft party approve",
    },
    "data": {GRANTED: "they use tables that are granted to them", OPEN: "they may use all tables"},
    "ids": {
        PRIVATE: "nobody sees ids of rows: a raw intersection runs as ECDH",
        SHOWN: "a raw intersection may show ids of rows to its guest",
    },
    "queue": dict(
        zip(
            QUEUES,
            (
                "jobs wait for cores in order, and small ones may overtake",
                "jobs wait for cores in order",
                "jobs with a higher priority come first",
                "jobs of the party that holds the fewest cores come first",
            ),
            strict=True,
        )
    ),
}
"""The words that fields may have, and what each means."""
RULES: Final = tuple(_MEANINGS)
"""The fields that say what others may do."""
_ANEW: Final = f"Correct the file, or write it anew with what is right of it: weft party policy --approval {NEVER}"
_URL: Final = re.compile(r"postgresql(\+\w+)?://\S+", re.IGNORECASE)


class SitePolicy(Struct, frozen=True, forbid_unknown_fields=True):
    """The policy of a party.

    These take effect at once: `approval` says which jobs of other parties wait for `weft party approve` (never or
    always), `data` which tables they may use (granted: to the initiator of the job; open: all), `ids` whether a raw
    intersection may show the ids of rows to them (private: another method takes its place), and `queue` in which order
    jobs wait for cores (one of QUEUES).

    These hold from the next start of the server on: `database` is the URL of the records of jobs, "" for a file in the
    folder; clients are served at `client_host`, and `client_names` are further names of that host.
    """

    approval: str = NEVER
    data: str = GRANTED
    ids: str = PRIVATE
    queue: str = QUEUES[0]
    database: str = ""
    client_host: str = LOOPBACK
    client_names: tuple[str, ...] = ()


_read_policy: Final = msgspec.json.Decoder(SitePolicy).decode


STRICTEST: Final = SitePolicy(approval=ALWAYS, data=GRANTED)


class PolicyLine(NamedTuple):
    """A field of a policy for people: its value, and what it means."""

    field: str
    value: str
    meaning: str


class SalvagedPolicy(NamedTuple):
    """A policy that was made of a file that is wrong, and the fields that were left out of it."""

    policy: SitePolicy
    lost: tuple[str, ...]


def read_policy(folder: Path) -> SitePolicy:
    """Return the policy of a party, that by default if it has no file. UsageError: the file is wrong."""
    try:
        text = read_file(folder, POLICY)
    except (NotFoundError, FileNotFoundError):
        return SitePolicy()
    try:
        found = _read_policy(text)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise UsageError(
            f"{folder / POLICY} is wrong: {error}",
            hint=f"Its fields are {', '.join(SitePolicy.__struct_fields__)}. {_ANEW}",
        ) from None
    try:
        _check(found, str(folder / POLICY))
    except UsageError as error:
        raise UsageError(error.message, hint=f"{error.hint} {_ANEW}") from None
    return found


def salvaged_policy(folder: Path) -> SalvagedPolicy:
    """Return the policy of a party; of a file that is wrong what is right, and the strictest policy for the rest."""
    try:
        return SalvagedPolicy(read_policy(folder), ())
    except UsageError:
        pass
    try:
        given = msgspec.json.decode(read_file(folder, POLICY))
    except (msgspec.MsgspecError, UnicodeDecodeError):
        given = None
    if not isinstance(given, dict):
        return SalvagedPolicy(STRICTEST, SitePolicy.__struct_fields__)
    kept, lost = msgspec.to_builtins(STRICTEST), []
    for name, value in given.items():
        try:
            _check(msgspec.convert(kept | {name: value}, SitePolicy), POLICY)
            kept[name] = value
        except (msgspec.MsgspecError, UsageError):
            lost.append(name)
    return SalvagedPolicy(msgspec.convert(kept, SitePolicy), tuple(lost))


def policy_lines(policy: SitePolicy) -> list[PolicyLine]:
    """Return a policy for people, without passwords."""
    lines = [PolicyLine(name, word, of[word]) for name, of in _MEANINGS.items() for word in [getattr(policy, name)]]
    if policy.database:
        lines.append(PolicyLine("database", without_passwords(policy.database), "has the records of jobs"))
    reach = "this machine alone" if is_loopback(policy.client_host) else "other machines too, with keys"
    return [*lines, PolicyLine("clients", f"served at {policy.client_host}", f"they come from {reach}")]


def write_policy(folder: Path, policy: SitePolicy) -> None:
    """Replace the policy of a party. UsageError: a field is wrong."""
    _check(policy, "the policy")
    write_file(folder, POLICY, msgspec.json.format(msgspec.json.encode(policy)))


def _check(policy: SitePolicy, where: str) -> None:
    for name, words in _MEANINGS.items():
        if (word := getattr(policy, name)) not in words:
            raise UsageError(f"{where}: {name} is {word[:40]!r}", hint=f"Use {' or '.join(words)}.")
    # The value of `database` is not shown: what is no URL may have a password in any place.
    if policy.database and not _URL.fullmatch(policy.database):
        raise UsageError(
            f"{where}: database is no URL of a PostgreSQL database",
            hint='Write "postgresql+pg8000://USER:PASSWORD@HOST:5432/NAME", or leave it out for a file in the folder.',
        )
    if not is_host(policy.client_host):
        raise UsageError(
            f"{where}: client_host is {policy.client_host[:80]!r}",
            hint=f"Write an address of this machine, such as {LOOPBACK}, or 0.0.0.0 for all of them.",
        )


class LivePolicy:
    """The policy of a party whose server runs. A file that is wrong counts as the strictest policy until it is mended.

    `failed` is told of it, once for each change of the file. For several threads.
    """

    def __init__(self, folder: Path, failed: Callable[[str, BaseException], None]) -> None:
        self._folder, self._failed = folder, failed
        self._lock = Lock()
        self._seen: object = None
        self._policy = STRICTEST

    def now(self) -> SitePolicy:
        """Return the policy that holds now."""
        with self._lock:
            seen = self._signature()
            if seen != self._seen:
                try:
                    self._policy = read_policy(self._folder)
                except (WeftError, OSError) as error:
                    self._policy = STRICTEST
                    self._failed("the strictest policy holds", error)
                self._seen = seen
            return self._policy

    def _signature(self) -> object:
        try:
            about = (self._folder / POLICY).lstat()
        except OSError:
            return "none"
        return about.st_mtime_ns, about.st_size, about.st_ino
