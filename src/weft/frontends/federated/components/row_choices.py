"""FederatedSample, HeteroDataSplit and HomoDataSplit: which rows go on, and where to.

Who learns what: with rows of the same ids at all parties (`hetero`) the guest chooses, and sends the positions to the
hosts; a choice by labels tells the hosts nothing but the rows. With rows of their own (`homo`) each party chooses
alone, and nothing is sent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
from msgspec.structs import replace

from weft.frontends.federated.components.base import GUEST, HOST, ComponentPart, PartOutput
from weft.frontends.federated.components.columns import checked_columns
from weft.frontends.federated.components.inputs import number, only_frame, word
from weft.frontends.federated.components.vertical import check_rows
from weft.model.errors import PartyMessageError, UsageError

if TYPE_CHECKING:
    from weft.frontends.federated.components.frame import PartyFrame

Array = np.ndarray[Any, Any]
_HETERO, _HOMO = "hetero", "homo"
_RANDOM, _STRATIFIED, _BY_WEIGHT = "random", "stratified", "exact_by_weight"
_DOWN, _UP = "downsample", "upsample"
_FRACTION: Final = 0.1
_SIZES: Final = ("train_size", "validate_size", "test_size")
_USUAL: Final = {"train_size": 0.8, "validate_size": 0.2, "test_size": 0.0}


def sample(part: ComponentPart) -> PartOutput:
    """Choose some rows, or repeat them. UsageError: a parameter is not possible, or rows do not fit together."""
    frame = only_frame(part)
    if word(part, "task_type", _HETERO, _HETERO, _HOMO) == _HOMO:
        rows = _sampled(part, frame)
    else:
        rows = _of_guest(part, frame, 1, lambda: [_sampled(part, frame)])[0]
    found = frame.take(rows)
    if len(set(rows.tolist())) < len(rows):  # ids are unique: a repeated one is numbered, the same at all parties
        found = replace(found, ids=_numbered(found.ids))
    part.tracker.summary({"rows": len(frame), "sampled": len(found)})
    return PartOutput(data=(found,))


def split_hetero(part: ComponentPart) -> PartOutput:
    """Divide rows of the same ids into those to train, to validate and to test. Errors: see `sample`."""
    frame = only_frame(part)
    return _divided(part, frame, _of_guest(part, frame, 3, lambda: _split(part, frame)))


def split_homo(part: ComponentPart) -> PartOutput:
    """Divide the rows of each party. UsageError: see `sample`."""
    frame = only_frame(part)
    return _divided(part, frame, _split(part, frame))


def _divided(part: ComponentPart, frame: PartyFrame, places: list[Array]) -> PartOutput:
    counts = dict(zip(("train", "validate", "test"), map(len, places), strict=True))
    part.tracker.summary(counts)
    return PartOutput(data=tuple(frame.take(rows) for rows in places))


def _of_guest(part: ComponentPart, frame: PartyFrame, count: int, choose: Any) -> list[Array]:
    """Return the positions that the guest has chosen, `count` lists of them."""
    check_rows(part, len(frame))
    if part.here.role == GUEST:
        chosen: list[Array] = choose()
        part.channel.send("rows_chosen", chosen, part.all_of(HOST))
        return chosen
    guest = part.all_of(GUEST)[0]
    found = part.channel.receive("rows_chosen", guest)
    if not isinstance(found, (list, tuple)) or len(found) != count or not all(_are_rows(one, frame) for one in found):
        raise PartyMessageError(f"{guest} has sent no positions of rows", party=guest.id)
    return list(found)


def _are_rows(rows: Any, frame: PartyFrame) -> bool:
    if not isinstance(rows, np.ndarray) or rows.ndim != 1 or rows.dtype.kind != "i":
        return False
    return not len(rows) or (int(rows.min()) >= 0 and int(rows.max()) < len(frame))


def _numbered(ids: Array) -> Array:
    seen: dict[str, int] = {}
    found = []
    for id in ids.tolist():
        seen[id] = seen.get(id, -1) + 1
        found.append(f"{id}_{seen[id]}" if seen[id] else id)
    if len(set(found)) < len(found):
        raise UsageError("an id of a repeated row is that of another row", hint="Use ids without a _ and a number.")
    return np.array(found, dtype=object)


# ------------------------------------------------------------------------------------------------------------- samples


def _sampled(part: ComponentPart, frame: PartyFrame) -> Array:
    mode = word(part, "mode", _RANDOM, _RANDOM, _STRATIFIED, _BY_WEIGHT)
    up = word(part, "method", _DOWN, _DOWN, _UP) == _UP
    generator = _generator(part)
    if mode == _BY_WEIGHT:
        if not frame.weight:
            raise UsageError(
                f"{part.component}: the rows of {part.here} have no weight", hint="Put a SampleWeight before it."
            )
        return np.repeat(np.arange(len(frame)), _whole_weights(part, frame))
    fractions = part.parameters.get("fractions")
    if mode == _RANDOM:
        share = _share(part, _FRACTION if fractions is None else fractions, up=up)
        return _some(generator, np.arange(len(frame)), share, up=up)
    if frame.y is None:
        raise UsageError(f"{part.component}: the rows of {part.here} have no label")
    if fractions is not None and not (
        isinstance(fractions, list) and all(isinstance(one, (list, tuple)) and len(one) == 2 for one in fractions)
    ):
        raise UsageError(
            f"{part.component}: fractions is {fractions!r}",
            hint="Write a list of [label, fraction]: [[0, 0.3]].",
        )
    shares = {_text(label): _share(part, share, up=up) for label, share in fractions or ()}
    labels = np.array([_text(one) for one in frame.y.tolist()], dtype=object)
    if unknown := [label for label in shares if label not in labels]:
        raise UsageError(f"{part.component}: fractions names the label {unknown[0]}, which no row has")
    known = sorted(set(labels.tolist()))
    if fractions is not None and (without := [label for label in known if label not in shares]):
        part.tracker.log(f"fractions has none for the label {without[0]}")
        raise UsageError(
            f"{part.component}: fractions has none for a label at {part.here}",
            hint="Name all labels; those with the fraction 1 keep all their rows.",
        )
    found = [_some(generator, np.flatnonzero(labels == label), shares.get(label, _FRACTION), up=up) for label in known]
    return np.sort(np.concatenate(found)) if found else np.arange(0)


def _some(generator: np.random.Generator, rows: Array, share: float, *, up: bool) -> Array:
    count = max(round(share * len(rows)), 1) if len(rows) else 0
    if up:
        return np.sort(generator.choice(rows, count, replace=True)) if count else rows
    return np.sort(generator.choice(rows, min(count, len(rows)), replace=False))


def _share(part: ComponentPart, value: Any, *, up: bool) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value <= 0 or (value > 1 and not up):
        bound = "above 0" if up else "above 0, at most 1"
        raise UsageError(f"{part.component}: a fraction is {value!r}; it must be a number {bound}")
    return float(value)


def _whole_weights(part: ComponentPart, frame: PartyFrame) -> Array:
    checked_columns(part, frame, [frame.weight])
    weights = frame.columns[frame.weight].astype(float)
    if not np.isfinite(weights).all() or (weights < 0).any():
        raise UsageError(f"{part.component}: a weight at {part.here} is negative, or no number")
    whole: Array = np.ceil(weights).astype(np.int64)
    return whole


def _text(label: Any) -> str:
    return str(int(label)) if isinstance(label, float) and label.is_integer() else str(label)


def _generator(part: ComponentPart) -> np.random.Generator:
    seed = part.parameters.get("random_state")
    return np.random.default_rng(part.seed if seed is None else int(number(part, "random_state", 0, least=0)))


# -------------------------------------------------------------------------------------------------------------- splits


def _split(part: ComponentPart, frame: PartyFrame) -> list[Array]:
    """Return the positions of the rows to train, validate and test with."""
    counts = _counts(part, len(frame))
    if part.parameters.get("shuffle") is False and not part.parameters.get("stratified"):
        ends = np.cumsum(counts)
        order = np.arange(len(frame))
        return [order[end - count : end] for count, end in zip(counts, ends, strict=True)]
    generator = _generator(part)
    if not part.parameters.get("stratified"):
        return [np.sort(one) for one in np.split(generator.permutation(len(frame)), np.cumsum(counts))[:3]]
    found: list[list[Array]] = [[], [], []]
    strata = _strata(part, frame)
    shares, room, owed = np.array(counts) / max(1, len(frame)), np.array(counts), np.zeros(3)
    for stratum in np.unique(strata):
        rows = np.flatnonzero(strata == stratum)
        if part.parameters.get("shuffle") is not False:
            rows = generator.permutation(rows)
        owed += shares * len(rows)
        takes = _takes(owed, room, len(rows))
        room, owed = room - takes, owed - takes
        for at, piece in enumerate(np.split(rows, np.cumsum(takes))[:3]):
            found[at].append(piece)
    return [np.sort(np.concatenate(one)) if one else np.arange(0) for one in found]


def _takes(owed: Array, room: Array, rows: int) -> Array:
    """Return how many of the rows of a stratum go to each place, `rows` together.

    `owed` has the shares of all strata so far that are not given yet, and `room` what each place may still take: what
    is rounded away in one stratum goes to the next.
    """
    takes = np.minimum(np.floor(np.maximum(owed, 0)), room).astype(np.int64)
    while takes.sum() > rows:
        takes[np.where(takes > 0, owed - takes, np.inf).argmin()] -= 1
    while takes.sum() < rows:
        takes[np.where(takes < room, owed - takes, -np.inf).argmax()] += 1
    return takes


def _counts(part: ComponentPart, rows: int) -> list[int]:
    """Return how many rows train, validate and test: sizes are shares or numbers; what is not set is the rest."""
    given = {name: part.parameters.get(name) for name in _SIZES}
    if all(value is None for value in given.values()):
        given = dict(_USUAL)
    kinds = {type(one) for one in given.values() if one}
    for name, value in given.items():
        if value is not None and (isinstance(value, bool) or not isinstance(value, (int, float)) or value < 0):
            raise UsageError(f"{part.component}: {name} is {value!r}; it must be a share or a number of rows")
    if len(kinds) > 1:
        raise UsageError(f"{part.component}: sizes are shares and numbers of rows at once", hint="Use one of them.")
    whole = rows if kinds == {int} else 1.0
    free = [name for name in _SIZES if given[name] is None]
    total = sum(value for value in given.values() if value is not None)
    if total > whole + 1e-9:
        raise UsageError(f"{part.component}: the sizes are {total:g} together, and there is {whole:g}")
    if free:
        given[free[0]] = whole - total
    elif total < whole - 1e-9:
        raise UsageError(
            f"{part.component}: the sizes are {total:g} together, and rows would be left out of {whole:g}",
            hint="Leave one size out: it gets the rest.",
        )
    sizes = [float(given[name] or 0) for name in _SIZES]
    shares = sizes if kinds == {int} else [rows * one for one in sizes]
    ends = [round(sum(shares[: at + 1])) for at in range(3)]
    return [ends[0], ends[1] - ends[0], ends[2] - ends[1]]


def _strata(part: ComponentPart, frame: PartyFrame) -> Array:
    if frame.y is None:
        raise UsageError(f"{part.component}: the rows of {part.here} have no label, so they are not stratified")
    points = part.parameters.get("split_points")
    if points is None or points == []:
        return np.array([str(one) for one in frame.y.tolist()], dtype=object)
    if not isinstance(points, list) or not all(isinstance(one, (int, float)) for one in points):
        raise UsageError(f"{part.component}: split_points is {points!r}", hint="Write a list of numbers.")
    strata: Array = np.digitize(frame.y.astype(float), sorted(points), right=True)
    return strata
