"""Sums over parties with the same columns and different rows: the ground of all horizontal components.

Each data party (guest and hosts) covers its array with masks (`crypto.masks`) and sends it to the arbiter, which adds
the arrays and returns the sum to all. The keys of the masks go straight between the data parties.

Who learns what: all parties learn the sums. The arbiter sees covered arrays alone, which are random numbers. A sum over
two data parties shows the array of the other to whoever knows the sum and his own array: with one guest and one host,
each can compute the update of the other. Three data parties or more hide an update, as long as not all others work
together. The guest learns which labels each host has, and tells all of them to all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from weft.frontends.federated.components.base import ARBITER, GUEST, HOST, ComponentPart
from weft.frontends.federated.components.inputs import (
    check_classes,
    check_parties,
    columns_of,
    compare_settings,
    labels_of,
)
from weft.frontends.federated.components.secure_trees import message_as
from weft.frontends.federated.crypto.masks import MaskSecret, PairwiseMasks, sum_of_covered
from weft.model.errors import PartyMessageError, UsageError

if TYPE_CHECKING:
    from weft.frontends.federated.components.frame import PartyFrame

Array = np.ndarray[Any, Any]
SUM_SCALE: Final = 36
"""The binary digits behind the point of summed real numbers. They leave room for values below 10^7 at ten parties."""
_EXPONENTS: Final = 512
_COMPARED: Final = "settings"


def agree_on_masks(part: ComponentPart) -> PairwiseMasks:
    """Return the masks of a data party; all data parties call it. PartyMessageError: another has sent no key."""
    others, secret = part.others(GUEST, HOST), MaskSecret()
    part.channel.send("mask_key", secret.public, others)
    keys = {one: part.channel.receive("mask_key", one) for one in others}
    return secret.agree(part.here, keys, f"{part.job}/{part.component}")


def arbitrate(part: ComponentPart) -> int:
    """Add covered arrays until the guest ends the work, and return how many sums there were.

    PartyMessageError: an array is none, or of another form than those of others.
    """
    check_parties(part, arbiter=True)
    parties, count = [*part.all_of(GUEST), *part.all_of(HOST)], 0
    while (first := part.channel.receive("covered", parties[0])) is not None:
        covered = {parties[0]: first} | {one: part.channel.receive("covered", one) for one in parties[1:]}
        part.channel.send("total", sum_of_covered(covered, parties), parties)
        count += 1
    part.tracker.summary({"sums": count})
    return count


class HorizontalSums:
    """The end of a data party. All data parties ask for the same sums in the same order."""

    def __init__(self, part: ComponentPart) -> None:
        check_parties(part, arbiter=True)
        self.part, self.is_guest = part, part.here.role == GUEST
        self._arbiter, self._hosts = part.all_of(ARBITER)[0], part.all_of(HOST)
        self._guest = part.all_of(GUEST)[0]
        self._masks = agree_on_masks(part)

    def total(self, values: Array, *, power: int = 0) -> Array:
        """Return the sum of the arrays of all data parties: integers exactly, real numbers to 36 binary digits.

        Real numbers are divided by `2^power` on their way, so the digits count from there.
        UsageError: a number is not finite, or too large. PartyMessageError: what comes back is no sum.
        """
        try:
            covered = self._masks.cover(np.ldexp(values, -power) if power else values, scale=SUM_SCALE)
        except UsageError as error:
            raise UsageError(
                f"{self.part.component}: {error}", hint="The training has diverged: lower learning_rate, or scale."
            ) from None
        self.part.channel.send("covered", covered, self._arbiter)
        found = self.part.channel.receive("total", self._arbiter)
        kind = np.int64 if values.dtype.kind in "iu" else np.float64
        if not isinstance(found, np.ndarray) or found.shape != values.shape or found.dtype != kind:
            raise PartyMessageError(f"{self._arbiter} has sent a sum of another form", party=self._arbiter.id)
        return np.ldexp(found, power) if power else found

    def powers(self, *arrays: Array) -> list[int]:
        """Return for each array the least power of two above its absolute values at all parties; 0 if all are zero.

        With two data parties, who has the smaller numbers learns the power of the other.
        """
        flags = np.zeros((len(arrays), _EXPONENTS), dtype=np.int64)
        for at, values in enumerate(arrays):
            most = float(np.abs(values).max(initial=0.0))
            if most:
                flags[at, np.clip(np.frexp(most)[1] + _EXPONENTS // 2, 0, _EXPONENTS - 1)] = 1
        places = [np.flatnonzero(one) for one in self.total(flags)]
        return [int(one[-1]) - _EXPONENTS // 2 if len(one) else 0 for one in places]

    def same(self, name: str, value: Any, kind: Any) -> Any:
        """Return the value of the guest at all data parties; `kind` is its type. PartyMessageError: it has another."""
        if self.is_guest:
            self.part.channel.send(name, value, self._hosts)
            return value
        return message_as(kind, self.part.channel.receive(name, self._guest), self._guest)

    def close(self) -> None:
        """Let the arbiter end; all data parties call it after the last sum."""
        if self.is_guest:
            self.part.channel.send("covered", None, self._arbiter)

    # ------------------------------------------------------------------------------------------------- what is common

    def compare(self, own: Mapping[str, Any]) -> None:
        """Compare parameters, by their names in the files, with those of the guest. UsageError: one differs."""
        compare_settings(self.part, own, self.same(_COMPARED, dict(own), dict[str, Any]), self._guest)

    def matrix(self, frame: PartyFrame, read: Callable[[PartyFrame], Array] | None = None) -> tuple[list[str], Array]:
        """Return the features of the guest and their values here, in its order; `read` as in `columns_of`.

        UsageError: the features here are others, a value is missing, or all parties together have no rows.
        """
        if self.is_guest:
            columns_of(self.part, frame, {"features": frame.features}, read)  # before anybody waits for the names
        names = self.same("features", list(frame.features), list[str])
        more = [name for name in frame.features if name not in names]
        if more:
            raise UsageError(
                f"{self.part.component}: {self._guest} has no column {more[0]!r}, which {self.part.here} has"
            )
        return names, columns_of(self.part, frame, {"features": names}, read)

    def share(self, rows: int) -> tuple[int, float]:
        """Return the rows of all parties, and the share of them that are here. UsageError: there are none at all."""
        total = int(self.total(np.array([rows]))[0])
        if total <= 0:
            raise UsageError(f"{self.part.component}: no party has rows")
        return total, rows / total

    def classes(self, frame: PartyFrame) -> list[Any]:
        """Return the labels of all parties, ascending. UsageError: there is no label, only one, or too many."""
        labels = labels_of(self.part, frame)
        own = np.unique(labels.astype(int) if labels.dtype.kind == "b" else labels).tolist()
        found = common_values(self.part, "labels", {"label": own})["label"]
        check_classes(self.part, found)
        return found


def common_values(part: ComponentPart, name: str, own: Mapping[str, list[Any]]) -> dict[str, list[Any]]:
    """Return the values of columns at all data parties, ascending; the guest gathers them.

    UsageError: the columns differ, or a column has numbers here and words there.
    """
    guest, hosts = part.all_of(GUEST)[0], part.all_of(HOST)
    kind = dict[str, list[int | float | str]]
    if part.here != guest:
        part.channel.send(name, dict(own), guest)
        found: dict[str, list[Any]] = message_as(kind, part.channel.receive(name, guest), guest)
        return found
    sets = {column: set(values) for column, values in own.items()}
    for host in hosts:
        theirs = message_as(kind, part.channel.receive(name, host), host)
        if set(theirs) != set(sets):
            raise UsageError(f"{part.component}: {guest} and {host} have different columns")
        for column, values in theirs.items():
            sets[column] |= set(values)
    for column, values in sets.items():
        if len({isinstance(one, str) for one in values}) > 1:
            raise UsageError(
                f"{part.component}: some values of {column} are numbers and others words",
                hint="Set label_type or data_type of the DataTransform before it alike at all parties.",
            )
    found = {column: sorted(values) for column, values in sets.items()}
    part.channel.send(name, found, hosts)
    return found
