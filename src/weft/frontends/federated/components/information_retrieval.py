"""SecureInformationRetrieval: values of a host's rows for the ids of a guest; the host does not learn which rows.

The guest finds common ids as in `Intersection` with ECDH. It asks for the rows behind them, and for other blocks of as
many rows chosen at random; the host encrypts the values of each block with a key of its own, and the guest gets the key
of its block by oblivious transfer (`crypto.transfer`). FATE uses the protocol of Hauck and the same blocks.

Who learns what: the guest learns the number of the host's rows, which of its ids the host has, the values of these,
and how long those of the other blocks are as texts. The host learns the numbers of the guest's and of the common ids,
and blocks of its rows of which one is that of the guest: with N blocks it guesses it with a probability of 1/N, if it
knows nothing else about the rows. With `security_level` 0 it learns which rows are common.
"""

from __future__ import annotations

import math
import secrets
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from weft.frontends.federated.components.base import GUEST, HOST, ComponentPart, PartOutput
from weft.frontends.federated.components.columns import checked_columns
from weft.frontends.federated.components.frame import PartyFrame
from weft.frontends.federated.components.inputs import compare_settings, labels_of, number, only_frame, word
from weft.frontends.federated.crypto.orders import shuffled
from weft.frontends.federated.crypto.psi import ECDH, power, shared_positions, tags
from weft.frontends.federated.crypto.transfer import KeyReceiver, KeySender, opened, sealed
from weft.frontends.federated.wire import decode, encode
from weft.model.errors import PartyMessageError, UsageError

if TYPE_CHECKING:
    from weft.frontends.federated.schema import Party

_MOST_BLOCKS: Final = 1000
_LABEL, _NONE = "retrieved_value", "unretrieved"


def run(part: ComponentPart) -> PartOutput:
    """Retrieve values, also with a model, which has none. UsageError: a parameter or a column is not possible."""
    if len(part.all_of(GUEST)) != 1 or len(part.all_of(HOST)) != 1:
        raise UsageError(f"{part.component} needs one guest and one host")
    frame, columns = only_frame(part), _columns(part)
    if len(set(frame.ids.tolist())) != len(frame):
        raise UsageError(f"{part.component}: an id stands in two rows of the table", hint="Keep one row for each id.")
    blocks = _blocks(part)
    note = "the oblivious transfer is that of Chou and Orlandi, and keys of ids are those of Curve25519"
    part.tracker.log(note)
    if part.here.role == HOST:
        found = _serve(part, frame, columns, part.all_of(GUEST)[0], blocks)
        output = frame
    else:
        output, found = _retrieved(part, frame, columns, part.all_of(HOST)[0], blocks)
    coverage = found / len(frame) if len(frame) else 0.0
    part.tracker.metric("train", "coverage", coverage)
    part.tracker.summary({"coverage": coverage, "block_num": blocks, "note": note})
    return PartOutput(data=(output,), model={"kind": part.module, "coverage": coverage, "block_num": blocks})


def _columns(part: ComponentPart) -> list[str]:
    """Return the columns that are retrieved; none stands for the label."""
    word(part, "oblivious_transfer_protocol", "OT_Hauck", "OT_Hauck")
    word(part, "commutative_encryption", "", "CommutativeEncryptionPohligHellman")
    word(part, "non_committing_encryption", "aes", "aes")
    given = part.parameters.get("target_cols") or []
    found = [given] if isinstance(given, str) else list(given)
    if any(not isinstance(one, str) for one in found) or len(set(found)) != len(found):
        raise UsageError(f"{part.component}: target_cols is {given!r}", hint="Use a list of names.")
    return found


def _blocks(part: ComponentPart) -> int:
    """Return the number of blocks, as FATE counts them: 1 to 1,000, by `security_level` from 0 to 1."""
    level = number(part, "security_level", 0.5, least=0)
    if level > 1:
        raise UsageError(f"{part.component}: security_level is {level:g}; it must be from 0 to 1")
    if level == 0 or part.parameters.get("raw_retrieval"):
        return 1
    return min(_MOST_BLOCKS, math.ceil(2 * math.exp(math.log(500) * level)))


# ---------------------------------------------------------------------------------------------------------------- guest


def _retrieved(
    part: ComponentPart, frame: PartyFrame, columns: list[str], host: Party, blocks: int
) -> tuple[PartyFrame, int]:
    """Return all rows of the guest with the values of the common ones, and the number of these."""
    channel, secret, ids = part.channel, power(ECDH), frame.ids.tolist()
    channel.send("plan", {"target_cols": columns, "the number of blocks": blocks}, host)
    channel.send("points", secret.pack(secret.hashed(ids)), host)
    points = channel.receive("points", host)
    mine, places = shared_positions(channel.receive("tags", host), tags(secret.again(points, host.id)), host.id)
    # positions in the one list stand for ids of the guest, those in the other for rows of the host
    count = len(secret.read(points, host.id))
    order = np.argsort(places)
    mine, places = mine[order], places[order]
    chosen = secrets.randbelow(blocks)
    random = secrets.SystemRandom()
    for at in range(blocks):
        block = places if at == chosen else np.array(sorted(random.sample(range(count), len(places))))
        channel.send("block", block.astype(np.int64), host)
    receiver = KeyReceiver(channel.receive("offer", host), chosen, host.id)
    channel.send("choice", receiver.choice, host)
    key, values = receiver.key(), []
    for at in range(blocks):
        data = channel.receive("values", host)
        if at == chosen:
            values = _values(opened(key, data, host.id), len(columns) or 1, len(places), host)
    names = columns or [_LABEL]
    found = {}
    for name, column in zip(names, values, strict=True):
        texts = np.full(len(frame), _NONE, dtype=object)
        texts[mine] = column
        found[name] = texts
    return PartyFrame(frame.ids, found, label="" if columns else _LABEL), len(places)


def _values(data: bytes, columns: int, rows: int, host: Party) -> list[list[str]]:
    found = decode(data)
    good = isinstance(found, list) and len(found) == columns
    if not good or not all(isinstance(one, list) and len(one) == rows for one in found):
        raise PartyMessageError(f"{host} has sent values of another shape", party=host.id)
    return [[str(value) for value in one] for one in found]


# ----------------------------------------------------------------------------------------------------------------- host


def _serve(part: ComponentPart, frame: PartyFrame, columns: list[str], guest: Party, blocks: int) -> int:
    """Answer the guest, and return the number of common rows."""
    channel, secret = part.channel, power(ECDH)
    plan = channel.receive("plan", guest)
    if not isinstance(plan, dict):
        raise PartyMessageError(f"{guest} has sent no plan", party=guest.id)
    compare_settings(part, {"target_cols": columns, "the number of blocks": blocks}, plan, guest)
    texts = _texts(part, frame, columns)
    order = shuffled(len(frame)).tolist()
    channel.send("points", secret.pack(secret.hashed([str(frame.ids[at]) for at in order])), guest)
    channel.send("tags", tags(secret.again(channel.receive("points", guest), guest.id)), guest)
    asked = [_asked(channel.receive("block", guest), len(frame), guest) for _ in range(blocks)]
    if len({len(one) for one in asked}) != 1:
        raise PartyMessageError(f"{guest} has sent blocks of different sizes", party=guest.id)
    sender = KeySender()
    channel.send("offer", sender.offer, guest)
    for key, rows in zip(sender.keys(channel.receive("choice", guest), blocks, guest.id), asked, strict=True):
        places = [order[at] for at in rows.tolist()]
        channel.send("values", sealed(key, encode([[column[at] for at in places] for column in texts])), guest)
    return len(asked[0])


def _texts(part: ComponentPart, frame: PartyFrame, columns: list[str]) -> list[list[str]]:
    """Return the values of the columns, or the labels, as texts. UsageError: there is no such column."""
    checked_columns(part, frame, columns)
    found = [frame.columns[name] for name in columns] or [labels_of(part, frame)]
    return [[str(value) for value in one.tolist()] for one in found]


def _asked(rows: Any, count: int, guest: Party) -> Any:
    """Return the rows of a block, ascending. PartyMessageError: they are none."""
    good = isinstance(rows, np.ndarray) and rows.dtype == np.int64 and rows.ndim == 1
    if not good or (len(rows) and (rows[0] < 0 or rows[-1] >= count or (np.diff(rows) <= 0).any())):
        raise PartyMessageError(f"{guest} has sent a block of rows that are none", party=guest.id)
    return rows
