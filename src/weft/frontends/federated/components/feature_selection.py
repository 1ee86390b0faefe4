"""HeteroFeatureSelection: features that pass all filters, one filter after the other.

Most filters are decisions of each party about its own features: by its rows, or by its part of a model of another
component (`isometric_model`). Filters by information value or correlation are decisions of the guest, which has such
numbers for the features of the hosts under anonymous names: a host sends the names that are left, and hears which stay.
A filter that leaves no feature to a party keeps the one with the best number, as in FATE.

Who learns what: the guest learns how many features of a host are left, and under which anonymous names. A host learns
which of them stay; thereby it learns something about the labels (how well its own features tell them), and no more.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec.structs import replace

from weft.frontends.federated.components.base import GUEST, HOST, ComponentPart, PartOutput
from weft.frontends.federated.components.columns import (
    ANONYMOUS,
    anonymous_names,
    checked_columns,
    chosen_features,
    with_anonymous,
)
from weft.frontends.federated.components.inputs import only_frame, only_model
from weft.frontends.federated.components.secure_trees import message_as
from weft.frontends.federated.components.selection_metrics import (
    BINNING,
    PEARSON,
    at_least_one,
    merged_iv,
    model_of,
    own_values,
    picked,
    uncorrelated,
)
from weft.frontends.federated.components.selection_rounds import (
    CORRELATION,
    IV,
    MANUALLY,
    PERCENTAGE,
    FilterRound,
    rounds_of,
)
from weft.model.errors import PartyMessageError, UsageError

if TYPE_CHECKING:
    from weft.frontends.federated.components.frame import PartyFrame
    from weft.frontends.federated.schema import Party

Array = np.ndarray[Any, Any]
Feature = tuple[str, str]
"""A feature at the guest: the id of its host ("" if it is its own), and its name."""


def run(part: ComponentPart) -> PartOutput:
    """Select, or do it as a model says. UsageError: a parameter is not possible, or a model is missing."""
    frame, model = only_frame(part), only_model(part)
    if model is None:
        model = _Selection(part, frame).fit()
    if "left" not in model:
        raise UsageError(
            f"{part.component}: {part.here} does not have the model", hint="Name the model_version of a training job."
        )
    checked_columns(part, frame, model["left"])
    names = anonymous_names(part, frame)
    kept = {*model["left"], frame.label, frame.weight}
    left = replace(frame, columns={name: one for name, one in frame.columns.items() if name in kept})
    return PartOutput(data=(with_anonymous(left, {name: names[name] for name in left.features}),), model=model)


class _Selection:
    """A selection at one party: the features that filters are about, and those of them that are left."""

    def __init__(self, part: ComponentPart, frame: PartyFrame) -> None:
        if not frame.features:
            raise UsageError(f"{part.component}: the rows of {part.here} have no features")
        self._part, self._frame = part, frame
        self._anonymous = anonymous_names(part, frame)
        given = part.parameters
        if given.get("use_anonymous"):
            given = {**given, "select_names": self._own_names(given.get("select_names"))}
        self._left = chosen_features(part, frame, given, "select_col_indexes", "select_names")
        self._others = [name for name in frame.features if name not in self._left]
        self._rounds = rounds_of(part)
        self._hosts: dict[str, list[str]] = {}
        self._filters: list[dict[str, Any]] = []

    def fit(self) -> dict[str, Any]:
        """Run all filters, and return the model."""
        part = self._part
        if not self._left:
            part.tracker.log(f"no feature of {part.here} is selected: all stay")
        self._agree()
        first = len(self._left)
        for at, one in enumerate(self._rounds):
            before = self._left
            self._run(at, one)
            report = {"last_col_nums": len(before), "left_col_nums": len(self._left), "left_col_names": self._left}
            part.tracker.summary({one.label: report})
            self._filters.append({"filter": one.label, "left": self._left})
            part.tracker.progress(at + 1, len(self._rounds))
        whole = {"last_col_nums": first, "left_col_nums": len(self._left), "left_col_names": self._left}
        part.tracker.summary({"all": whole})
        kept = {*self._left, *self._others}
        return {
            "kind": part.module,
            "left": [name for name in self._frame.features if name in kept],
            "filters": self._filters,
            "hosts": self._hosts,
        }

    def _agree(self) -> None:
        """Compare the filters on which the guest decides. UsageError: those of a host are others."""
        part = self._part
        own = [one.method for one in self._rounds if one.federated]
        if part.here.role == HOST:
            if part.all_of(GUEST):
                part.channel.send("filters", own, part.all_of(GUEST)[0])
            elif own:
                raise UsageError(f"{part.component}: {own[0]} needs a guest", hint="Set select_federated to false.")
            return
        for host in part.all_of(HOST):
            theirs = message_as(list[str], part.channel.receive("filters", host), host)
            if theirs != own:
                raise UsageError(
                    f"{part.component}: {part.here} filters hosts by {', '.join(own) or 'nothing'}, and {host} awaits "
                    f"{', '.join(theirs) or 'nothing'}",
                    hint="Write filter_methods in component_parameters.common.",
                )

    def _run(self, at: int, one: FilterRound) -> None:
        part = self._part
        if one.method == MANUALLY:
            mask = at_least_one(self._manual_mask(one.names), [0.0] * len(self._left), high=True)
        elif one.source not in (IV, CORRELATION):
            values = own_values(part, one, self._frame, self._left)
            most = math.ceil(one.limit * len(self._frame))
            limits = [most] * len(values) if one.source == PERCENTAGE else None
            mask = at_least_one(picked(values, one, limits), values, high=one.high)
        elif part.here.role == GUEST:
            mask = self._decide(at, one)
        elif one.federated:
            mask = self._ask(at, one)
        else:
            return  # numbers of hosts are known to the guest alone
        self._left = [name for name, stays in zip(self._left, mask, strict=True) if stays]

    def _manual_mask(self, given: Mapping[str, Any]) -> Array:
        """Return which features stay, by the lists of the file."""
        features = self._frame.features
        out = given.get("filter_out_indexes") is not None or given.get("filter_out_names") is not None
        start = "filter_out" if out else "left_col"
        indexes, names = given.get(f"{start}_indexes"), given.get(f"{start}_names")
        if indexes is None and names is None:
            return np.ones(len(self._left), dtype=bool)
        if self._part.parameters.get("use_anonymous"):
            names = self._own_names(names)
        unknown = [str(one) for one in indexes or () if not 0 <= one < len(features)]
        unknown += [one for one in names or () if one not in features]
        if unknown:
            self._part.tracker.log(f"manually_param: {self._part.here} has no feature {', '.join(unknown)}")
        listed = {features[one] for one in indexes or () if 0 <= one < len(features)} | set(names or ())
        return np.array([(name in listed) != out for name in self._left], dtype=bool)

    def _own_names(self, names: Any) -> Any:
        """Return the names for anonymous ones; others as they are."""
        if not isinstance(names, list):
            return names
        known = {anonymous: name for name, anonymous in self._anonymous.items()}
        return [known.get(name, name) for name in names]

    # ------------------------------------------------------------------------------------------- filters of the guest

    def _ask(self, at: int, one: FilterRound) -> Array:
        """Return which features of this host stay: the guest knows."""
        part, guest = self._part, self._part.all_of(GUEST)[0]
        names = [self._known_as(one, BINNING)]
        if one.source == CORRELATION:
            names.append(self._known_as(one, PEARSON))
        part.channel.send(f"names/{at}", names, guest)
        mask = message_as(list[bool], part.channel.receive(f"left/{at}", guest), guest)
        if len(mask) != len(self._left) or (mask and not any(mask)):
            raise PartyMessageError(f"{guest} has sent a selection that is not possible", party=guest.id)
        return np.array(mask, dtype=bool)

    def _known_as(self, one: FilterRound, kind: str) -> list[str]:
        """Return the anonymous names under which a component has told the features that are left."""
        known = model_of(self._part, one.method, kind)[ANONYMOUS]
        missing = [name for name in self._left if name not in known]
        if missing:
            raise _unknown(self._part, one, f"{missing[0]!r} of {self._part.here}")
        return [known[name] for name in self._left]

    def _decide(self, at: int, one: FilterRound) -> Array:
        """Return which features of the guest stay, and tell the hosts which of theirs."""
        part = self._part
        hosts = part.all_of(HOST) if one.federated else []
        width = 2 if one.source == CORRELATION else 1
        theirs = {host: self._names_of(at, host, width) for host in hosts}
        model = model_of(part, one.method, BINNING)
        values = [self._iv(one, merged_iv(model["results"], one.merge), self._left, part.here)]
        for host in hosts:
            known = merged_iv(model["hosts"].get(host.id, []), one.merge)
            values.append(self._iv(one, known, theirs[host][0], host))
        if one.source == CORRELATION:
            masks = self._uncorrelated(one, values, {host: names[1] for host, names in theirs.items()})
        else:
            masks = _split(picked([x for some in values for x in some], one, self._limits(one, values)), values)
        masks = [at_least_one(mask, some, high=True) for mask, some in zip(masks, values, strict=True)]
        for host, mask in zip(hosts, masks[1:], strict=True):
            part.channel.send(f"left/{at}", mask.tolist(), host)
            self._hosts[host.id] = [name for name, stays in zip(theirs[host][0], mask, strict=True) if stays]
        return masks[0]

    def _names_of(self, at: int, host: Party, width: int) -> list[list[str]]:
        found: list[list[str]] = message_as(list[list[str]], self._part.channel.receive(f"names/{at}", host), host)
        if len(found) != width or len({len(one) for one in found}) != 1:
            raise PartyMessageError(f"{host} has sent names that do not fit each other", party=host.id)
        return found

    def _iv(self, one: FilterRound, known: Mapping[str, float], names: Sequence[str], party: Party) -> list[float]:
        missing = [name for name in names if name not in known]
        if missing:
            raise _unknown(self._part, one, f"{missing[0]!r} of {party}")
        return [known[name] for name in names]

    def _limits(self, one: FilterRound, values: Sequence[Sequence[float]]) -> list[float]:
        """Return the threshold of each feature: that of its host, or of all."""
        hosts = one.host_limits or [one.limit] * len(self._part.all_of(HOST))
        limits = [one.limit, *hosts]
        return [limit for limit, some in zip(limits, values, strict=False) for _ in some]

    def _uncorrelated(
        self, one: FilterRound, values: Sequence[Sequence[float]], theirs: Mapping[Party, Sequence[str]]
    ) -> list[Array]:
        """Return which features stay, of the guest and of each host: those with high information values go first."""
        part = self._part
        model = model_of(part, one.method, PEARSON)
        missing = [name for name in self._left if name not in model["features"]]
        if missing:
            raise _unknown(part, one, f"{missing[0]!r} of {part.here}")
        features: list[Feature] = [("", name) for name in self._left]
        found = _pairs(("", model["features"]), ("", model["features"]), model["local_corr"])
        for host, names in theirs.items():
            known = model["hosts"].get(host.id)
            gone = [name for name in names if known is None or name not in known["features"]]
            if gone:
                raise _unknown(part, one, f"{gone[0]!r} of {host}")
            if known is not None:
                found |= _pairs(("", model["features"]), (host.id, known["features"]), known["corr"])
            features += [(host.id, name) for name in names]
        ranked = [features[at] for at in np.argsort([-x for some in values for x in some], kind="stable")]
        kept = uncorrelated(ranked, found, one.limit)
        return _split(np.array([feature in kept for feature in features], dtype=bool), values)


def _pairs(
    rows: tuple[str, Sequence[str]], columns: tuple[str, Sequence[str]], table: Sequence[Sequence[float | None]]
) -> dict[tuple[Feature, Feature], float]:
    """Return the known correlations of two parties by pairs of features."""
    return {
        ((rows[0], row), (columns[0], column)): value
        for row, line in zip(rows[1], table, strict=True)
        for column, value in zip(columns[1], line, strict=True)
        if value is not None
    }


def _split(mask: Array, values: Sequence[Sequence[float]]) -> list[Array]:
    """Return a mask of all parties as those of each party."""
    return np.split(mask, np.cumsum([len(some) for some in values])[:-1])


def _unknown(part: ComponentPart, one: FilterRound, what: str) -> UsageError:
    return UsageError(
        f"{part.component}: {one.method} knows nothing about {what}",
        hint="Let the component of the isometric model have this column, or leave it out of select_names.",
    )
