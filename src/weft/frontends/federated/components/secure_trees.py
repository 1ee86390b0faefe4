"""Growing one tree over the columns of several parties: the guest with labels and key, and hosts.

For each tree the guest sends encrypted derivatives of the rows. For a node that may be split, a host returns encrypted
sums over the rows on one side of its candidates, in a secret order; the guest decrypts them and picks the best
candidate of all parties. The owner of a candidate keeps feature and threshold, and answers with the rows that go left.
Sums of the larger of two siblings follow from those of their parent. Source: Cheng and others 2021 (SecureBoost); Chen
and others 2021 (packed derivatives).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
import numpy as np

from weft.frontends.federated.components.trees import (
    DerivativeScale,
    FeatureBins,
    SplitRules,
    SplitSums,
    SumLayout,
    left_sums,
)
from weft.frontends.federated.crypto.histograms import (
    EncryptedCells,
    capacity,
    cells_of,
    cumulated,
    half,
    packed,
    unpacked,
)
from weft.frontends.federated.crypto.orders import shuffled
from weft.model.errors import PartyMessageError

if TYPE_CHECKING:
    from weft.frontends.federated.components.base import ComponentPart
    from weft.frontends.federated.crypto.ciphers import PrivateKey, PublicKey
    from weft.frontends.federated.schema import Party

Array = np.ndarray[Any, Any]
_MOST_WIDTH: Final = 128
_ROWS_PER_CANDIDATE: Final = 2
"""Derivatives are sent twice, the second time shifted, for at most so many rows for each candidate of the hosts.

A host packs sums of left sides beside those of right sides then, with half of the powers for each sum.
"""


class GrownTree(NamedTuple):
    """A tree at the guest, and the weight of the leaf of each row.

    A node is `{"party", "split", "left", "right", "gain"}`, with the place of the owner among guest and hosts, or
    `{"weight"}`.
    """

    nodes: list[dict[str, Any]]
    weights: Array


class LevelPlan(NamedTuple):
    """Whose features may split the nodes of a level."""

    guest: bool
    hosts: Sequence[Party]


class _Choice(NamedTuple):
    gain: float
    party: int
    tied: list[int]


def bits_of(mask: Array) -> Array:
    """Return a mask as bytes of eight rows each."""
    return np.packbits(mask)


def mask_of(bits: Any, count: int, source: Party) -> Array:
    """Return the mask of `bits_of`. PartyMessageError: it is none, or of another number of rows."""
    if not isinstance(bits, np.ndarray) or bits.dtype != np.uint8 or bits.shape != (-(-count // 8),):
        raise PartyMessageError(f"{source} has sent an assignment of another number of rows", party=source.id)
    return np.unpackbits(bits, count=count).astype(bool)


class _Opening(msgspec.Struct, frozen=True):
    derivatives: Any
    width: int
    copies: int
    rows: Any


class _Level(msgspec.Struct, frozen=True):
    splits: list[tuple[int, int, int, Any]]
    ask: list[int]


class _Sums(msgspec.Struct, frozen=True):
    index: Any
    right: Any
    counts: Any
    found: int
    beside: int
    packed: Any


def message_as(kind: Any, value: Any, source: Party) -> Any:
    """Return a value of a part as a type. PartyMessageError: it is none."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise PartyMessageError(f"{source} has sent a message that is malformed: {error}", party=source.id) from None


def _within(values: Array, least: int, most: int) -> bool:
    return not len(values) or bool(values.min() >= least and values.max() <= most)


class GuestTree:
    """The growth of one tree at the guest. `active` are the rows whose derivatives count, ascending."""

    def __init__(
        self,
        part: ComponentPart,
        rules: SplitRules,
        keys: PrivateKey,
        bins: FeatureBins,
        splits: list[tuple[int, int, bool]],
    ) -> None:
        self._part, self._rules, self._keys, self._bins, self._splits = part, rules, keys, bins, splits
        self._parties = [part.here, *part.all_of("host")]
        self._candidates: dict[Party, int] = {}

    def grow(self, g: Array, h: Array, active: Array, features: Array, plan: Sequence[LevelPlan]) -> GrownTree:
        """Grow a tree. `features` are those of the guest, `plan` has the owners of splits for each level."""
        self._g, self._h, self._active = g, h, np.zeros(len(g), dtype=bool)
        self._active[active] = True
        self._scale = DerivativeScale.of(g[active], h[active])
        self._whole_g, self._whole_h = self._scale.integers(g, h)
        self._layout = SumLayout.of(self._whole_h[active])
        self._features, self._own = features, self._bins.only(features)
        self._nodes: list[dict[str, Any]] = [{}]
        self._rows = {0: np.arange(len(g))}
        self._sums: dict[tuple[Party, int], SplitSums] = {}
        self._hosts = [one for one in self._parties if any(one in level.hosts for level in plan)]
        self._begin(active)
        level = [0]
        pairs: list[tuple[int, int, int]] = []
        news: list[Any] = []
        for at, owners in enumerate(plan):
            splittable = [node for node in level if self._count(node) >= max(2, self._rules.min_sample_split)]
            self._exchange(owners.hosts, splittable, pairs, news)
            chosen = {node: self._best(node, owners) for node in splittable}
            pairs, news = self._divide({node: one for node, one in chosen.items() if one is not None}, owners.hosts)
            level = [child for _, left, right in pairs for child in (left, right)]
            later = plan[at + 1].hosts if at + 1 < len(plan) else ()
            self._finish([one for one in self._hosts if one in owners.hosts and (one not in later or not level)])
            if not level:
                break
        return self._grown()

    def _begin(self, active: Array) -> None:
        if not self._hosts:
            return
        public = self._keys.public
        joined = self._layout.joined(self._whole_g[active], self._whole_h[active])
        candidates = sum(self._candidates.get(host, 0) for host in self._hosts)
        copies = 2 if len(active) <= _ROWS_PER_CANDIDATE * candidates else 1
        copied = [joined, joined * (1 << half(capacity(public)))]
        value = {
            "derivatives": public.encrypt(np.concatenate(copied[:copies])).to_wire(),
            "width": self._layout.width,
            "copies": copies,
            "rows": None if len(active) == len(self._g) else active,
        }
        self._part.channel.send("tree", value, self._hosts)
        public.prepare(len(active) * copies)  # for the next tree

    def _finish(self, hosts: Sequence[Party]) -> None:
        if hosts:
            self._part.channel.send("level", None, hosts)

    def _count(self, node: int) -> int:
        return int(self._active[self._rows[node]].sum())

    # ----------------------------------------------------------------------------------------------- sums of hosts

    def _exchange(
        self, hosts: Sequence[Party], nodes: list[int], pairs: list[tuple[int, int, int]], news: list[Any]
    ) -> None:
        """Get the sums of the hosts for nodes: asked for the smaller sibling, calculated for the larger one."""
        if not hosts:
            return
        ask, derived = [], []
        for parent, left, right in pairs or [(-1, 0, -1)]:
            if parent < 0:
                ask += nodes
            elif left in nodes or right in nodes:
                small, large = (left, right) if self._count(left) <= self._count(right) else (right, left)
                ask.append(small)
                derived.append((parent, small, large))
        self._part.channel.send("level", {"splits": news, "ask": ask}, list(hosts))
        for host in hosts:
            answers = self._part.channel.receive("sums", host)
            if not isinstance(answers, list) or len(answers) != len(ask):
                raise PartyMessageError(f"{host} has sent sums of another number of nodes", party=host.id)
            for node, answer in zip(ask, answers, strict=True):
                self._sums[host, node] = self._read(host, node, answer)
            for parent, small, large in derived:
                self._sums[host, large] = self._sums.pop((host, parent)).rest(self._sums[host, small])

    def _read(self, host: Party, node: int, answer: Any) -> SplitSums:
        """Return the sums to the left of each candidate of a host."""
        total, sums = self._total(node), message_as(_Sums, answer, host)
        index, right, counts = sums.index, sums.right, sums.counts
        fits = all(isinstance(one, np.ndarray) and one.ndim == 1 for one in (index, right, counts))
        fits = fits and [one.dtype.kind for one in (index, right, counts)] == ["i", "b", "i"]
        found = sums.found + sums.beside
        fits = fits and len(index) == len(right) == len(counts) >= found and min(sums.found, sums.beside) >= 0
        if not fits or not _within(index, -1, found - 1) or not _within(counts, 0, total[2]):
            raise PartyMessageError(f"{host} has sent sums that are malformed", party=host.id)
        counts = counts.astype(np.int64)
        self._candidates[host] = len(index)
        cells = self._keys.public.encrypted(sums.packed)
        raw = unpacked(self._keys, cells, sums.found, self._layout.width, sums.beside)
        values = [*raw, 0]  # the last one is that of index -1
        sides = np.where(right, total[2] - counts, counts)
        g, h = self._layout.parted([values[at] for at in index.tolist()], sides)
        return SplitSums(np.where(right, total[0] - g, g), np.where(right, total[1] - h, h), counts)

    def _total(self, node: int) -> tuple[int, int, int]:
        rows = self._rows[node]
        rows = rows[self._active[rows]]
        return int(self._whole_g[rows].sum()), int(self._whole_h[rows].sum()), len(rows)

    # -------------------------------------------------------------------------------------------------------- splits

    def _best(self, node: int, owners: LevelPlan) -> _Choice | None:
        """Return the best split of a node; among equal ones that of the first party, and all of it."""
        rows, total = self._rows[node], self._total(node)
        rows = rows[self._active[rows]]
        found: _Choice | None = None
        for place, party in enumerate(self._parties):
            if party == self._part.here and owners.guest:
                sums = left_sums(self._own, rows, self._whole_g[rows], self._whole_h[rows])
            elif party in owners.hosts:
                sums = self._sums[party, node]
            else:
                continue
            gains = self._rules.gains(sums, total, self._scale)
            best = float(gains.max(initial=-np.inf))
            if np.isfinite(best) and (found is None or best > found.gain):
                found = _Choice(best, place, np.flatnonzero(gains == best).tolist())
        return found

    def _divide(
        self, chosen: Mapping[int, _Choice], hosts: Sequence[Party]
    ) -> tuple[list[tuple[int, int, int]], list[Any]]:
        """Split nodes. Return (parent, left, right) of each, and the same with the assignment for the hosts."""
        answers: dict[int, tuple[int, Array]] = {}
        by_host: dict[Party, list[int]] = {host: [] for host in hosts}
        for node, choice in chosen.items():
            if choice.party == 0:
                feature, edge = self._own.candidate(choice.tied[0])
                feature = int(self._features[feature])
                mask = self._bins.codes[self._rows[node], feature] <= edge
                self._splits.append((feature, edge, self._bins.sends_left(feature, int(mask.sum()), len(mask))))
                answers[node] = len(self._splits) - 1, mask
            else:
                by_host[self._parties[choice.party]].append(node)
        for host, nodes in by_host.items():
            self._part.channel.send("choose", [[node, chosen[node].tied] for node in nodes], host)
        for host, nodes in by_host.items():
            answers |= self._chosen(host, nodes)
        pairs, news = [], []
        for node, choice in chosen.items():
            split, mask = answers[node]
            left, right = len(self._nodes), len(self._nodes) + 1
            self._nodes += [{}, {}]
            self._nodes[node] |= {"party": choice.party, "split": split, "left": left, "right": right}
            self._nodes[node]["gain"] = choice.gain
            rows = self._rows.pop(node)
            self._rows[left], self._rows[right] = rows[mask], rows[~mask]
            pairs.append((node, left, right))
            news.append([node, left, right, bits_of(mask)])
        return pairs, news

    def _chosen(self, host: Party, nodes: list[int]) -> dict[int, tuple[int, Array]]:
        found = message_as(list[tuple[int, Any]], self._part.channel.receive("sides", host), host)
        if len(found) != len(nodes):
            raise PartyMessageError(f"{host} has sent assignments of another number of nodes", party=host.id)
        return {
            node: (split, mask_of(bits, len(self._rows[node]), host))
            for node, (split, bits) in zip(nodes, found, strict=True)
        }

    def _grown(self) -> GrownTree:
        weights = np.zeros(len(self._g))
        for node, rows in self._rows.items():
            counted = rows[self._active[rows]]
            weight = self._rules.weight(float(self._g[counted].sum()), float(self._h[counted].sum()))
            self._nodes[node]["weight"] = weight
            weights[rows] = weight
        return GrownTree(self._nodes, weights)


class HostTree:
    """The growth of one tree at a host."""

    def __init__(
        self, part: ComponentPart, key: PublicKey, bins: FeatureBins, splits: list[tuple[int, int, bool]]
    ) -> None:
        self._part, self._bins, self._splits = part, bins, splits
        self._key, self._guest = key, part.all_of("guest")[0]

    def grow(self, begin: Any, features: Array) -> None:
        """Serve one tree. `begin` is what the guest has sent for it, `features` are those that may be split.

        PartyMessageError: the guest has sent what is none of the protocol.
        """
        rows, opening = len(self._bins.codes), message_as(_Opening, begin, self._guest)
        active = np.arange(rows) if opening.rows is None else np.asarray(opening.rows)
        derivatives = self._key.encrypted(opening.derivatives)
        fits = active.ndim == 1 and active.dtype.kind == "i" and 0 < opening.width <= _MOST_WIDTH
        fits = fits and opening.copies in (1, 2) and derivatives.shape == (len(active) * opening.copies,)
        if not fits or (len(active) and not (active.min() >= 0 and active.max() < rows)):
            raise PartyMessageError(f"{self._guest} has sent derivatives of other rows", party=self._guest.id)
        self._width, self._cells = opening.width, cells_of(derivatives)
        self._places = np.full(rows, -1)
        self._places[active] = np.arange(len(active))
        self._shift = len(active) if opening.copies == 2 else 0
        self._features, self._own = features, self._bins.only(features)
        self._order = shuffled(self._own.candidates)
        self._rows = {0: np.arange(rows)}
        while (value := self._part.channel.receive("level", self._guest)) is not None:
            level = message_as(_Level, value, self._guest)
            for node, left, right, bits in level.splits:
                found = self._node(node)
                mask = mask_of(bits, len(found), self._guest)
                del self._rows[node]
                self._rows[left], self._rows[right] = found[mask], found[~mask]
            self._part.channel.send("sums", [self._sums(self._cells, node) for node in level.ask], self._guest)
            self._choose()

    def _node(self, node: int) -> Array:
        if node not in self._rows:
            raise PartyMessageError(f"{self._guest} has sent a node that is none", party=self._guest.id)
        return self._rows[node]

    def _sums(self, cells: EncryptedCells, node: int) -> dict[str, Any]:
        rows = self._node(node)
        rows = rows[self._places[rows] >= 0]
        found = cumulated(cells, self._places[rows], self._own.codes[rows], self._own.sizes, self._shift)
        upper = found.right_sums if self._shift else np.empty(0, dtype=np.int64)
        lower = np.setdiff1d(np.arange(len(found.sums)), upper)
        groups = [some[shuffled(len(some))] for some in (lower, upper)]
        places = np.empty(len(found.sums) + 1, dtype=np.int32)
        places[np.concatenate(groups)], places[-1] = np.arange(len(found.sums)), -1
        mixed = [[found.sums[at] for at in group.tolist()] for group in groups]
        return {
            "index": places[found.places][self._order],
            "right": found.right[self._order],
            "counts": found.lefts[self._order].astype(np.int32),
            "found": len(lower),
            "beside": len(upper),
            "packed": packed(cells, mixed[0], self._width, mixed[1]).to_wire(),
        }

    def _choose(self) -> None:
        """Answer which rows of nodes go left, by the first of the candidates that are equally good."""
        answers = []
        chosen = self._part.channel.receive("choose", self._guest)
        for node, tied in message_as(list[tuple[int, list[int]]], chosen, self._guest):
            if not tied or not all(0 <= one < len(self._order) for one in tied):
                raise PartyMessageError(f"{self._guest} has chosen a split that is none", party=self._guest.id)
            feature, edge = self._own.candidate(min(int(self._order[one]) for one in tied))
            feature = int(self._features[feature])
            mask = self._bins.codes[self._node(node), feature] <= edge
            self._splits.append((feature, edge, self._bins.sends_left(feature, int(mask.sum()), len(mask))))
            answers.append([len(self._splits) - 1, bits_of(mask)])
        self._part.channel.send("sides", answers, self._guest)
