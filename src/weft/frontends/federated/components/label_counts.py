"""Counts of labels in the bins of hosts: encrypted labels of the guest, added up by the hosts, bin by bin.

The number of a label is 1, shifted by so many bits that counts of all classes fit side by side in a sum. The guest
knows how many rows of each class there are, so the largest bin of each feature is not sent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
import numpy as np

from weft.frontends.federated.components.base import GUEST, HOST, ComponentPart
from weft.frontends.federated.components.bins import bin_codes
from weft.frontends.federated.components.columns import anonymous_names, numbers_of
from weft.frontends.federated.components.optimal_bins import METRICS, MergeRule, merged_ends
from weft.frontends.federated.components.secure_trees import message_as
from weft.frontends.federated.components.vertical import check_rows
from weft.frontends.federated.crypto.ciphers import PLAIN
from weft.frontends.federated.crypto.histograms import cells_of, packed, unpacked
from weft.frontends.federated.crypto.keys import cipher_of, make_keys, read_key
from weft.model.errors import PartyMessageError, UsageError

if TYPE_CHECKING:
    from weft.frontends.federated.components.frame import PartyFrame
    from weft.frontends.federated.crypto.ciphers import PublicKey
    from weft.frontends.federated.schema import Party

Array = np.ndarray[Any, Any]
Columns = Mapping[str, Mapping[str, Any]]
"""What is known of the bins of columns, by name: `edges`, and whether some values are `missing`."""
FINE: Final = "fine"
"""The mark of a column whose bins are fine, and are merged when labels are counted."""
_MOST_CLASSES: Final = 100
_MOST_BINS: Final = 1 << 16
"""Bins of equal width may be more than rows."""


class _Plan(msgspec.Struct, frozen=True):
    """What the guest tells the hosts: the number of classes, 0 if no information values are computed."""

    classes: int


class _Merge(msgspec.Struct, frozen=True):
    """Which features of a host have fine bins, and how these are merged."""

    fine: list[bool]
    rule: MergeRule


class _BinSums(msgspec.Struct, frozen=True):
    """What a host sends: the number of bins of each feature, the largest of them, and sums of all the others."""

    names: list[str]
    bins: list[int]
    largest: list[int]
    sums: Any
    merge: _Merge | None = None


class BinLabels(NamedTuple):
    """The classes, the event first, and the place of the class of each row."""

    classes: list[Any]
    places: Array


def labels_of(part: ComponentPart, frame: PartyFrame) -> BinLabels:
    """Return the labels of a frame. UsageError: it has none, one is missing, or there are too few or too many."""
    if frame.y is None:
        raise UsageError(
            f"{part.component}: the rows of {part.here} have no label", hint="Set with_label before it, or skip_static."
        )
    if frame.y.dtype.kind == "f" and np.isnan(frame.y).any():
        raise UsageError(f"{part.component}: a label at {part.here} is missing", hint="Leave such rows out.")
    classes, places = np.unique(frame.y, return_inverse=True)
    if not 2 <= len(classes) <= _MOST_CLASSES:
        raise UsageError(
            f"{part.component}: there are {len(classes)} different labels; 2 to {_MOST_CLASSES} are allowed",
            hint="Set skip_static to bin without labels.",
        )
    return BinLabels(classes[::-1].tolist(), len(classes) - 1 - places)


def announce(part: ComponentPart, classes: int) -> None:
    """Tell the hosts how many classes there are; 0 if nothing is counted."""
    part.channel.send("plan", {"classes": classes}, part.all_of(HOST))


def merged_counts(part: ComponentPart, counts: Array, rule: MergeRule, adjustment: float) -> tuple[list[int], Array]:
    """Return the last fine bin of each bin, and the counts of bins. UsageError: there are more than two classes."""
    if counts.shape[1] != 2:
        raise UsageError(
            f"{part.component}: the method optimal needs labels of two classes, and there are {counts.shape[1]}",
            hint="Use quantile or bucket.",
        )
    ends = merged_ends(counts, rule, adjustment)
    return ends, np.add.reduceat(counts, [0, *(at + 1 for at in ends[:-1])], axis=0)


def counts_of_hosts(
    part: ComponentPart, labels: BinLabels, hosts: Sequence[Party], adjustment: float
) -> dict[Party, dict[str, Array]]:
    """Return how many rows of each class are in the bins of the hosts, by anonymous name, shape (bins, classes).

    Fine bins are merged, and their host is told how. PartyMessageError: a host has sent sums that are not possible.
    """
    rows, classes = len(labels.places), len(labels.classes)
    check_rows(part, rows)
    method, bits, notes = cipher_of(part.parameters)
    for note in notes:
        part.tracker.log(note)
    keys = make_keys(method, bits)
    width = rows.bit_length()
    units = np.array([1 << (width * place) for place in range(classes)], dtype=object)
    part.channel.send("key", keys.public.to_wire(), hosts)
    part.channel.send("labels", keys.public.encrypt(units[labels.places]).to_wire(), hosts)
    totals = np.bincount(labels.places, minlength=classes)
    found: dict[Party, dict[str, Array]] = {}
    for done, host in enumerate(hosts):
        sent = message_as(_BinSums, part.channel.receive("sums", host), host)
        _check_sums(sent, rows, host)
        known = unpacked(keys, keys.public.encrypted(sent.sums), sum(sent.bins) - len(sent.bins), width * classes)
        shifts, mask = [width * place for place in range(classes)], (1 << width) - 1
        split = np.array([[one >> shift & mask for shift in shifts] for one in known]).reshape(-1, classes)
        found[host] = _with_largest(sent, split.astype(int), totals, host)
        if sent.merge is not None:
            found[host] = _merged_for(part, sent.merge, found[host], host, adjustment)
        part.tracker.progress(done + 1, len(hosts))
    return found


def _merged_for(
    part: ComponentPart, merge: _Merge, counts: dict[str, Array], host: Party, adjustment: float
) -> dict[str, Array]:
    """Return the counts of a host after its fine bins are merged, and tell it the last fine bin of each bin."""
    rule = merge.rule
    possible = rule.metric in METRICS and rule.most >= 1 and 0 <= rule.least_share <= rule.most_share <= 1
    if len(merge.fine) != len(counts) or not possible:
        raise PartyMessageError(f"{host} has sent rules for bins that are not possible", party=host.id)
    found, ends = dict(counts), []
    for name, fine in zip(counts, merge.fine, strict=True):
        if fine:
            last, found[name] = merged_counts(part, counts[name], rule, adjustment)
            ends.append(last)
    part.channel.send("merged", ends, host)
    return found


def _check_sums(sent: _BinSums, rows: int, host: Party) -> None:
    """Check the sizes of a message. PartyMessageError: they are not possible."""
    alike = len(sent.names) == len(sent.bins) == len(sent.largest) == len(set(sent.names))
    if not alike or any(
        not 0 <= largest < bins <= max(rows + 2, _MOST_BINS)
        for bins, largest in zip(sent.bins, sent.largest, strict=True)
    ):
        raise PartyMessageError(f"{host} has sent sums of bins that are not possible", party=host.id)


def _with_largest(sent: _BinSums, split: Array, totals: Array, host: Party) -> dict[str, Array]:
    """Return all counts: those of the largest bin of each feature are what the others leave."""
    found, at = {}, 0
    for name, bins, largest in zip(sent.names, sent.bins, sent.largest, strict=True):
        some = split[at : at + bins - 1]
        at += bins - 1
        rest = totals - some.sum(axis=0)
        if (rest < 0).any():
            raise PartyMessageError(f"{host} has sent more rows than there are", party=host.id)
        found[name] = np.insert(some, largest, rest, axis=0)
    return found


def answer(
    part: ComponentPart,
    frame: PartyFrame,
    columns: dict[str, dict[str, Any]],
    *,
    wants: bool,
    rule: MergeRule | None = None,
) -> None:
    """Add up encrypted labels for the guest, and merge fine bins of `columns` by `rule`, as it says.

    UsageError: guest and host have parameters that contradict each other. PartyMessageError: a message is malformed.
    """
    guests = part.all_of(GUEST)
    if not guests:
        return
    guest = guests[0]
    plan = message_as(_Plan, part.channel.receive("plan", guest), guest)
    if bool(plan.classes) != wants:
        raise UsageError(
            f"{part.component}: local_only or skip_static differ between {part.here} and {guest}",
            hint="Set them in component_parameters.common.",
        )
    if not wants:
        return
    if not 2 <= plan.classes <= _MOST_CLASSES:
        raise PartyMessageError(f"{guest} has sent a number of classes that is not possible", party=guest.id)
    check_rows(part, len(frame))
    key = read_key(part.channel.receive("key", guest), plain=cipher_of(part.parameters)[0] == PLAIN)
    names = anonymous_names(part, frame)
    coded = {name: bin_codes(numbers_of(part, frame, name), one["edges"]) for name, one in columns.items()}
    sizes = {name: len(one["edges"]) + one["missing"] for name, one in columns.items()}
    largest = {name: int(np.bincount(codes, minlength=sizes[name]).argmax()) for name, codes in coded.items()}
    sent = {
        "names": [names[name] for name in columns],
        "bins": list(sizes.values()),
        "largest": list(largest.values()),
        "sums": _summed(part, key, guest, coded, sizes, largest, plan.classes * len(frame).bit_length()),
    }
    if rule is not None:
        sent["merge"] = {"fine": [FINE in one for one in columns.values()], "rule": msgspec.to_builtins(rule)}
    part.channel.send("sums", sent, guest)
    if rule is not None:
        _merge(part, [one for one in columns.values() if FINE in one], guest)


def _merge(part: ComponentPart, fine: list[dict[str, Any]], guest: Party) -> None:
    """Merge fine bins as the guest says. PartyMessageError: it says what is not possible."""
    ends = message_as(list[list[int]], part.channel.receive("merged", guest), guest)
    for one, last in zip(fine, ends, strict=False):
        edges = one["edges"]
        if not last or sorted(set(last)) != last or last[0] < 0 or last[-1] != len(edges) - 1:
            raise PartyMessageError(f"{guest} has merged bins that there are not", party=guest.id)
        one["edges"] = [edges[at] for at in last]
    if len(ends) != len(fine):
        raise PartyMessageError(f"{guest} has merged bins of another number of columns", party=guest.id)


def _summed(
    part: ComponentPart,
    key: PublicKey,
    guest: Party,
    coded: Mapping[str, Array],
    sizes: Mapping[str, int],
    largest: Mapping[str, int],
    width: int,
) -> Any:
    """Return the packed sums of the labels in all bins but the largest one of each feature."""
    labels = key.encrypted(part.channel.receive("labels", guest))
    if any(labels.shape != codes.shape for codes in coded.values()):
        raise PartyMessageError(f"{guest} has sent another number of labels than there are rows", party=guest.id)
    source = cells_of(labels)
    zero = cells_of(key.encrypt(np.zeros(1, dtype=int))).cells[0]
    sums: list[Any] = []
    for done, (name, codes) in enumerate(coded.items()):
        for place in range(sizes[name]):
            if place == largest[name]:
                continue
            total = zero
            for row in np.flatnonzero(codes == place).tolist():
                total = source.add(total, source.cells[row])
            sums.append(total)
        part.tracker.progress(done + 1, len(coded))
    return packed(source, sums, width).to_wire()
