"""FeldmanVerifiableSum: sums of the values of all parties, row by row, of shares that each receiver checks.

Each party divides its numbers into shares for all (`crypto.verified_shares`), each party adds up what it has received,
and the guest joins the sums of the hosts to the result. It adds common rows, which it finds as `Intersection` does.

Who learns what: all learn the common ids; the guest the sums, and nothing of what is added, unless it works together
with all hosts but one. With one host it can subtract its own number. A share or a sum that does not fit is noticed, and
its sender is named. FATE commits with one base, so that small numbers can be guessed; here a second base hides them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
from msgspec.structs import replace

from weft.frontends.federated.components import intersection
from weft.frontends.federated.components.base import GUEST, HOST, ComponentPart, PartOutput
from weft.frontends.federated.components.columns import chosen_features
from weft.frontends.federated.components.inputs import check_parties, complete_matrix, only_frame, whole_number
from weft.frontends.federated.components.repetitions import RepeatedChannel, RepeatedTracker
from weft.frontends.federated.crypto.verified_shares import (
    VALUE_BITS,
    Share,
    check,
    commitments_of,
    divided,
    joined,
    product,
    share_of,
    to_wire,
)
from weft.model.errors import UsageError

if TYPE_CHECKING:
    from weft.frontends.federated.components.frame import PartyFrame

Array = np.ndarray[Any, Any]
_MOST_DIGITS: Final = 16
_PIECE: Final = 4096


def run(part: ComponentPart) -> PartOutput:
    """Add up. UsageError: a parameter or a column is not possible. PartyMessageError: a share is wrong."""
    check_parties(part)
    digits = whole_number(part, "q_n", 6, least=0)
    if digits > _MOST_DIGITS:
        raise UsageError(f"{part.component}: q_n is {digits}; it must be from 0 to {_MOST_DIGITS}")
    frame = _common(part, only_frame(part))
    names = chosen_features(part, frame, {"columns": part.parameters.get("sum_cols") or None}, "columns", "names")
    chosen = replace(frame, columns={name: frame.columns[name] for name in names}, label="", weight="")
    matrix = complete_matrix(part, chosen)
    _compare(part, matrix.shape[1])
    if not (np.abs(matrix) < 2.0**VALUE_BITS / 10**digits).all():
        raise UsageError(f"{part.component}: a value at {part.here} is too large to be added", hint="Lower q_n.")
    values = [round(one * 10**digits) for one in matrix.ravel().tolist()]
    sums: list[int] = []
    for at in range(0, len(values), _PIECE):
        sums += _added(part, values[at : at + _PIECE])
    if part.here.role == HOST:
        return PartOutput(data=(None,))
    if len(part.all_of(HOST)) == 1:
        part.tracker.summary({"notes": ["with one host, its numbers are the sums less those of the guest"]})
    found = np.array([one / 10**digits for one in sums]).reshape(matrix.shape)
    return PartOutput(data=(chosen.with_features(names, found),))


def _common(part: ComponentPart, frame: PartyFrame) -> PartyFrame:
    """Return the rows of all parties, in the order of the guest. UsageError: there are none."""
    one = replace(
        part,
        parameters={},
        channel=RepeatedChannel(part.channel, "/rows"),
        tracker=RepeatedTracker(part.tracker, "rows"),
        data={"data": [frame]},
    )
    found = intersection.run(one).data[0]
    if found is None or not len(found):
        raise UsageError(f"{part.component}: no row is common to all parties", hint="Compare the ids of the tables.")
    return found


def _compare(part: ComponentPart, columns: int) -> None:
    """UsageError: the parties add other numbers of columns."""
    guest = part.all_of(GUEST)[0]
    if part.here == guest:
        part.channel.send("columns", columns, part.all_of(HOST))
    elif part.channel.receive("columns", guest) != columns:
        raise UsageError(
            f"{part.component}: {part.here} and {guest} add different numbers of columns",
            hint="Set sum_cols to columns that all parties have.",
        )


def _added(part: ComponentPart, values: list[int]) -> list[int]:
    """Return the sums at the guest; nothing at hosts."""
    everyone = [*part.all_of(GUEST), *part.all_of(HOST)]
    others, count = [one for one in everyone if one != part.here], len(everyone)
    shares, known = divided(values, count)
    for party in others:
        part.channel.send("commitments", to_wire(known), party)
        part.channel.send("share", list(shares[everyone.index(party)]), party)
    at = everyone.index(part.here)
    total = shares[at]
    for party in others:
        theirs = commitments_of(part.channel.receive("commitments", party), len(values), count, party.id)
        share = share_of(part.channel.receive("share", party), len(values), party.id)
        check(share, theirs, at + 1, party.id)
        total, known = total.plus(share), product(known, theirs)
    if part.here.role == HOST:
        part.channel.send("sum", list(total), everyone[0])
        return []
    found: dict[int, Share] = {at + 1: total}
    for party in others:
        share = share_of(part.channel.receive("sum", party), len(values), party.id)
        check(share, known, everyone.index(party) + 1, party.id)
        found[everyone.index(party) + 1] = share
    return joined(found)
