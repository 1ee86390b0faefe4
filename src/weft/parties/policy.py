"""What a party lets others do: the file `policy.json` in its folder, which a server reads again when it changes."""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct

from weft.model.errors import NotFoundError, UsageError, WeftError
from weft.parties.cores import QUEUES
from weft.parties.site import read_file, write_file

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

POLICY: Final = "policy.json"
NEVER, ALWAYS = "never", "always"
OPEN, GRANTED = "open", "granted"
PRIVATE, SHOWN = "private", "shown"
LOOPBACK: Final = "127.0.0.1"
_WORDS: Final = {"approval": (NEVER, ALWAYS), "data": (OPEN, GRANTED), "ids": (PRIVATE, SHOWN), "queue": QUEUES}


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


STRICTEST: Final = SitePolicy(approval=ALWAYS, data=GRANTED)


def read_policy(folder: Path) -> SitePolicy:
    """Return the policy of a party, that by default if it has no file. UsageError: the file is wrong."""
    try:
        text = read_file(folder, POLICY)
    except (NotFoundError, FileNotFoundError):
        return SitePolicy()
    try:
        found = msgspec.json.decode(text, type=SitePolicy)
    except msgspec.MsgspecError as error:
        raise UsageError(
            f"{folder / POLICY} is wrong: {error}", hint=f"Its fields are {', '.join(SitePolicy.__struct_fields__)}."
        ) from None
    _check(found, str(folder / POLICY))
    return found


def write_policy(folder: Path, policy: SitePolicy) -> None:
    """Replace the policy of a party. UsageError: a field is wrong."""
    _check(policy, "the policy")
    write_file(folder, POLICY, msgspec.json.format(msgspec.json.encode(policy)))


def _check(policy: SitePolicy, where: str) -> None:
    for name, words in _WORDS.items():
        if (word := getattr(policy, name)) not in words:
            raise UsageError(f"{where}: {name} is {word[:40]!r}", hint=f"Use {' or '.join(words)}.")


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
