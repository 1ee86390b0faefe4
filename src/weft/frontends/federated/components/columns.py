"""Which columns a component works on, and the names under which other parties know them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from msgspec.structs import replace

from weft.model.errors import UsageError

if TYPE_CHECKING:
    from weft.frontends.federated.components.base import ComponentPart
    from weft.frontends.federated.components.frame import PartyFrame

Array = np.ndarray[Any, Any]
ANONYMOUS: Final = "anonymous"
"""The key of a frame's `about`, and of models, under which the anonymous names are, by name."""
_ALL: Final = -1


def chosen_features(
    part: ComponentPart,
    frame: PartyFrame,
    given: Mapping[str, Any],
    indexes: str,
    names: str,
    *,
    nothing: bool = False,
    every: bool = False,
) -> list[str]:
    """Return the features that two of the parameters in `given` choose by index and by name, in the frame's order.

    An index of -1 chooses all, and so does it if neither is set, unless `nothing`. Names that this party does not have
    are left out, and logged: in FATE, one list may have those of all parties. UsageError: there is no such index, or
    with `every` no such name.
    """
    features, places, words = frame.features, given.get(indexes), given.get(names)
    if places == _ALL:
        return list(features)
    if places is None and not words:
        return [] if nothing else list(features)
    if not _is_list(places, int) or any(not 0 <= at < len(features) for at in places or ()):
        raise UsageError(
            f"{part.component}: {indexes} is {places!r} at {part.here}",
            hint=f"Use a list of indices below {len(features)}, or -1 for all.",
        )
    if not _is_list(words, str):
        raise UsageError(f"{part.component}: {names} is {words!r} at {part.here}", hint="Use a list of names.")
    unknown = [name for name in words or () if name not in features]
    if unknown and every:
        raise UsageError(f"{part.component}: {part.here} has no feature {unknown[0]!r}", hint=f"It stands in {names}.")
    if unknown:
        part.tracker.log(f"{names}: {part.here} has no feature {', '.join(unknown)}")
    found = {features[at] for at in places or ()} | set(words or ())
    return [name for name in features if name in found]


def _is_list(value: Any, kind: type) -> bool:
    return value is None or (
        isinstance(value, (list, tuple)) and all(isinstance(one, kind) and not isinstance(one, bool) for one in value)
    )


def anonymous_names(part: ComponentPart, frame: PartyFrame) -> dict[str, str]:
    """Return the name of each feature for other parties: `host_9999_x0` and so on, by position.

    A frame that has such names keeps them; a feature that was added later is called `host_9999_exp_0` and so on.
    """
    start = f"{part.here.role}_{part.here.id}"
    known = dict(frame.about.get(ANONYMOUS) or {})
    if not known:
        return {name: f"{start}_x{at}" for at, name in enumerate(frame.features)}
    added, used = 0, set(known.values())
    for name in frame.features:
        if name not in known:
            while f"{start}_exp_{added}" in used:
                added += 1
            known[name] = f"{start}_exp_{added}"
            used.add(known[name])
    return {name: known[name] for name in frame.features}


def with_anonymous(frame: PartyFrame, names: dict[str, str]) -> PartyFrame:
    """Return the frame with anonymous names, which later components keep."""
    return replace(frame, about={**frame.about, ANONYMOUS: names})


def checked_columns(part: ComponentPart, frame: PartyFrame, names: Sequence[str]) -> None:
    """Check that a frame has the columns of a model. UsageError: one is missing."""
    missing = [name for name in names if name not in frame.columns]
    if missing:
        raise UsageError(
            f"{part.component}: the rows of {part.here} have no column {missing[0]!r}",
            hint="Give it rows with the columns of the training.",
        )


def numbers_of(part: ComponentPart, frame: PartyFrame, name: str) -> Array:
    """Return a column as float64, NaN where it is missing. UsageError: a value is no number, or infinite."""
    values = numbers_without(part, frame, name, (), hint="Put a DataTransform before this component.")
    if np.isinf(values).any():
        raise UsageError(f"{part.component}: column {name!r} at {part.here} has infinite values")
    return values


def numbers_without(
    part: ComponentPart, frame: PartyFrame, name: str, left_out: Collection[str], *, hint: str
) -> Array:
    """Return a column as float64, NaN where it is missing or has one of the keys `left_out` (`value_key`).

    UsageError: another value is no number; `hint` says what to do about it.
    """
    column = frame.columns[name]
    try:
        return np.where(are_among(column, left_out), np.nan, column).astype(float)
    except (TypeError, ValueError):
        raise UsageError(
            f"{part.component}: column {name!r} at {part.here} has values that are no numbers", hint=hint
        ) from None


def number_of(text: str) -> float:
    """Return a text as a number. ValueError: it is none, or has underscores, which `float` takes."""
    if "_" in text:
        raise ValueError(text)
    return float(text)


def value_key(value: Any) -> str:
    """Return a value as text by which values are compared: 1, 1.0 and "1" are the same, as keys of JSON are text."""
    text = str(value)
    try:
        number = number_of(text)
    except ValueError:
        return text
    return str(int(number)) if number.is_integer() else str(number)


def are_among(column: Array, keys: Collection[str]) -> Array:
    """Return which values of a column have one of these keys (`value_key`)."""
    if not keys:
        return np.zeros(len(column), dtype=bool)
    return np.array([value_key(one) in keys for one in column.tolist()], dtype=bool)
