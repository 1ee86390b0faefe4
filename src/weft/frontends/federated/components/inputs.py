"""What components ask of their inputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from weft.model.errors import UsageError

if TYPE_CHECKING:
    from weft.frontends.federated.components.base import ComponentPart
    from weft.frontends.federated.components.frame import PartyFrame


def only_frame(part: ComponentPart, *keys: str) -> PartyFrame:
    """Return the first frame of the first data input of these keys, or of any. UsageError: there is none."""
    for key in keys or part.data:
        if part.data.get(key):
            return part.data[key][0]
    raise UsageError(
        f"{part.component} has no rows at {part.here}", hint="A component before it has left none at this party."
    )


def only_model(part: ComponentPart) -> Any:
    """Return the model that the component is given, empty if another part has it; None if it is to be trained."""
    for model in part.models.get("model", {}).values():
        return model
    return None


def group(part: ComponentPart, name: str) -> Mapping[str, Any]:
    """Return a group of parameters; empty if it is not set. UsageError: it is no group."""
    found = part.parameters.get(name) or {}
    if not isinstance(found, Mapping):
        raise UsageError(f"{part.component}: {name} must be an object")
    return found


def number(part: ComponentPart, name: str, default: float, *, least: float | None = None) -> float:
    """Return a number among the parameters. UsageError: it is none, or below `least`."""
    value = part.parameters.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, (int, float)) or (least is not None and value < least):
        bound = "" if least is None else f" from {least:g} on"
        raise UsageError(f"{part.component}: {name} is {value!r}; it must be a number{bound}")
    return value


def word(part: ComponentPart, name: str, default: str, *words: str) -> str:
    """Return a word among the parameters, as it stands in `words`, without regard to case. UsageError: it is none."""
    value = part.parameters.get(name)
    if value is None:
        return default
    for one in words:
        if str(value).lower() == one.lower():
            return one
    raise UsageError(f"{part.component}: {name} is {value!r}", hint=f"Use one of {', '.join(words)}.")
