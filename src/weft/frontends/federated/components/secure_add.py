"""SecureAddExample: guest and host add numbers by additive secret shares, so that neither sees those of the other.

Each part divides its numbers into two shares modulo 2^64 and sends one of them. Both add what they hold, the host sends
its sum, and the guest knows the total alone. Source: the toy of FATE, `examples/toy_example`.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from weft.frontends.federated.components.base import GUEST, HOST, ComponentPart, PartOutput
from weft.frontends.federated.components.inputs import number
from weft.frontends.federated.crypto.shares import split_shares
from weft.model.errors import PartyMessageError, UsageError

_SCALE: Final = float(1 << 20)
_TOLERANCE: Final = 1e-6


def run(part: ComponentPart) -> PartOutput:
    """Add `data_num` ones of guest and host.

    UsageError: there are several hosts, or `data_num` is no number. PartyMessageError: the total is not the sum.
    """
    if len(part.all_of(GUEST)) != 1 or len(part.all_of(HOST)) != 1:
        raise UsageError(f"{part.component} needs one guest and one host")
    count = int(number(part, "data_num", 1000))
    if count < 1:
        raise UsageError(f"{part.component}: data_num is {count}", hint="Use at least 1.")
    other = part.all_of(HOST if part.here.role == GUEST else GUEST)[0]
    mine = np.full(count, round(1.0 * _SCALE), dtype=np.uint64)
    kept, sent = split_shares(mine, 2)
    part.channel.send("share", sent, other)
    given = part.channel.receive("share", other)
    if not isinstance(given, np.ndarray) or given.dtype != np.uint64 or given.shape != (count,):
        raise PartyMessageError(f"{other} has sent shares of another shape", party=other.id)
    own = int((kept + given).sum(dtype=np.uint64))
    if part.here.role == HOST:
        part.channel.send("sum", own, other)
        return PartOutput()
    total = (own + int(part.channel.receive("sum", other))) % (1 << 64) / _SCALE
    if abs(total - 2 * count) > _TOLERANCE:
        raise PartyMessageError(f"the total is {total:g}, and {2 * count} is right", party=other.id)
    part.tracker.metric("", "sum", total)
    part.tracker.summary({"sum": total})
    part.tracker.log(f"success to calculate secure_sum, it is {total}")
    return PartOutput()
