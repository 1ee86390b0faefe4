"""The documents of a federated job: the wish of its initiator for each part, and the report of each part.

A document is the whole state of its subject. `epoch` counts the generations of a job, `version` the changes of a
document. Source of the rules: docs/decisions/048.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, TypeVar

import msgspec
from msgspec import Struct, field

from weft.frontends.federated.components.registry import FIRST_PROTOCOL
from weft.frontends.federated.schema import Party  # noqa: TC001 - fields of records are read at run time
from weft.model.errors import PartyMessageError, PartyVersionError


class JobPhase(Enum):
    """What the initiator wants of a part as a whole."""

    CREATE = "create"
    """Accept the job, and hold no cores."""
    RESERVE = "reserve"
    """Hold the cores of the job."""
    RUN = "run"
    """Run components."""
    END = "end"
    """Stop everything, and give the cores back."""


class PartPhase(Enum):
    """How far a part is."""

    AWAITING = "awaiting_approval"
    ACCEPTED = "accepted"
    REFUSED = "refused"
    QUEUED = "queued"
    RESERVED = "reserved"
    ENDED = "ended"


class Want(Enum):
    """What the initiator wants of a component at a part."""

    PREPARE = "prepare"
    GO = "go"
    STOP = "stop"


class PartStatus(Enum):
    """The status of an attempt of a component at a part."""

    STARTING = "starting"
    PREPARED = "prepared"
    RUNNING = "running"
    STOPPING = "stopping"
    SUCCESS = "success"
    FAILED = "failed"
    CANCELED = "canceled"
    TIMEOUT = "timeout"
    LOST = "lost"


ENDED_STATUSES = frozenset(
    {PartStatus.SUCCESS, PartStatus.FAILED, PartStatus.CANCELED, PartStatus.TIMEOUT, PartStatus.LOST}
)


class PartFailure(Struct, frozen=True):
    """Why something failed, and at which party."""

    message: str
    party: str = ""
    code: str = ""
    hint: str = ""


class ComponentOrder(Struct, frozen=True):
    """What is wanted of an attempt of a component."""

    attempt: int
    want: Want
    reason: str = ""


class Wish(Struct, frozen=True, kw_only=True):
    """What the initiator wants of a part. `job_status` and `statuses` tell the part how the job as a whole gets on.

    `protocols` has the versions of messages that the initiator has, by the module that the part runs.
    """

    job: str
    part: Party
    initiator: Party
    digest: str
    cores: int
    epoch: int
    version: int
    phase: JobPhase
    components: Mapping[str, ComponentOrder] = field(default_factory=dict)
    job_status: str = "waiting"
    statuses: Mapping[str, str] = field(default_factory=dict)
    cause: PartFailure | None = None
    protocols: Mapping[str, int] = field(default_factory=dict)


class ObservedAttempt(Struct, frozen=True):
    """An attempt of a component at a part. Times are in seconds since 1970, by the clock of the party."""

    attempt: int
    status: PartStatus
    failure: PartFailure | None = None
    started: float | None = None
    ended: float | None = None


class Report(Struct, frozen=True, kw_only=True):
    """What a part observes. `wish_version` is that of the latest wish of this epoch that it follows.

    `silent` are the parties that do not take values of its components, and `hindered` has in words why some do not.
    `protocols` has the versions of messages that the part has, by module.
    """

    job: str
    part: Party
    epoch: int
    version: int
    wish_version: int
    phase: PartPhase
    reason: str = ""
    silent: Sequence[str] = ()
    hindered: Mapping[str, str] = field(default_factory=dict)
    components: Mapping[str, ObservedAttempt] = field(default_factory=dict)
    protocols: Mapping[str, int] = field(default_factory=dict)


Document = TypeVar("Document", Wish, Report)
_encoder = msgspec.json.Encoder()
_decoders: dict[Any, msgspec.json.Decoder[Any]] = {one: msgspec.json.Decoder(one) for one in (Wish, Report)}


def write_document(document: Wish | Report) -> bytes:
    """Return a document as JSON."""
    return _encoder.encode(document)


def read_document(data: bytes | str, of: type[Document]) -> Document:
    """Return a document of JSON. PartyMessageError: it is none."""
    try:
        found: Document = _decoders[of].decode(data)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise PartyMessageError(f"a document of a job is malformed: {error}") from None
    return found


def is_newer(document: Wish | Report, than: Wish | Report | None) -> bool:
    """Whether a document replaces another one about the same part."""
    return than is None or (document.epoch, document.version) > (than.epoch, than.version)


def version_failure(part: Party, own: Mapping[str, int], other: Party, others: Mapping[str, int]) -> PartFailure | None:
    """Return why two parts cannot run a job together: a module has another version of its messages at each.

    None: they can. A module that is not named has the first version, as in releases that do not tell versions.
    """
    for module in sorted({*own, *others}):
        mine, theirs = own.get(module, FIRST_PROTOCOL), others.get(module, FIRST_PROTOCOL)
        if mine != theirs:
            (version, older), (newer_version, newer) = sorted([(mine, part), (theirs, other)])
            return PartFailure(
                f"{older} has version {version} of the messages of {module}, and {newer} has version {newer_version}",
                older.id,
                PartyVersionError.code,
                f"Install the release of Weft of party {newer.id} at party {older.id}, too, or an older one at both.",
            )
    return None
