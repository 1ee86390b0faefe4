"""What components ask of their inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from weft.frontends.federated.components.base import ARBITER, GUEST, HOST
from weft.frontends.federated.components.columns import checked_columns
from weft.frontends.federated.components.frame import PartyFrame
from weft.model.errors import UsageError

if TYPE_CHECKING:
    from weft.frontends.federated.components.base import ComponentPart
    from weft.frontends.federated.schema import Party

_TRAIN: Final = "train_data"
_MOST_CLASSES: Final = 1000


def only_frame(part: ComponentPart, *keys: str) -> PartyFrame:
    """Return the first frame of the first data input of these keys, or of any. UsageError: there is none."""
    for key in keys or part.data:
        if part.data.get(key):
            return part.data[key][0]
    message = f"{part.component} has no rows at {part.here}"
    if any(key in part.data for key in keys or part.data):
        raise UsageError(
            message,
            hint="A component before it has left none at this party, or `weft party clean` has deleted them; the job "
            "makes them again with `weft party rerun JOB --force`.",
        )
    wanted = f", as {' or '.join(keys)}" if keys else ""
    raise UsageError(message, hint=f"The DSL gives it none: name an output of an earlier component{wanted}.")


def validation_frame(part: ComponentPart) -> PartyFrame | None:
    """Return the rows that validate a training: those of `validate_data`, or of `eval_data` in files of version 1."""
    for key in ("validate_data", "eval_data"):
        if part.data.get(key):
            return part.data[key][0]
    return None


def shared_validation_frame(part: ComponentPart) -> PartyFrame:
    """Return the rows that validate where the guest has some. UsageError: there are none here."""
    frame = validation_frame(part)
    if frame is None:
        raise UsageError(
            f"{part.component}: {part.here} has no rows that validate, and the guest has some",
            hint="Give the component validate_data of all parties.",
        )
    return frame


def only_model(part: ComponentPart) -> Any:
    """Return the model that the component is given, empty if another part has it; None if it is to be trained.

    UsageError: it is given one, and rows to train with, and cannot go on with it (`warm_start`).
    """
    if part.models.get("model") and part.data.get(_TRAIN):
        raise UsageError(
            f"{part.component}: a training of {part.module} cannot go on with a model",
            hint="Leave out its model or its train_data.",
        )
    for model in part.models.get("model", {}).values():
        return model
    return None


def check_parties(part: ComponentPart, *, arbiter: bool = False) -> None:
    """UsageError: there are not exactly one guest and at least one host; with `arbiter`, exactly one of these."""
    complete = len(part.all_of(GUEST)) == 1 and part.all_of(HOST)
    if arbiter and not (complete and len(part.all_of(ARBITER)) == 1):
        raise UsageError(f"{part.component} needs one guest, one arbiter and at least one host")
    if not complete:
        raise UsageError(f"{part.component} needs one guest and at least one host")


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


def whole_number(part: ComponentPart, name: str, default: int, *, least: int) -> int:
    """Return a whole number among the parameters. UsageError: it is none, or below `least`."""
    value = number(part, name, default, least=least)
    if value != int(value):
        raise UsageError(f"{part.component}: {name} is {value!r}; it must be a whole number")
    return int(value)


def threshold_of(part: ComponentPart) -> float:
    """Return `predict_param.threshold`, from which on a probability stands for the second of two classes.

    UsageError: it is no number.
    """
    found = group(part, "predict_param").get("threshold")
    if found is None:
        return 0.5
    if isinstance(found, bool) or not isinstance(found, (int, float)):
        raise UsageError(f"{part.component}: predict_param.threshold is {found!r}; it must be a number")
    return float(found)


def word(part: ComponentPart, name: str, default: str, *words: str) -> str:
    """Return a word among the parameters, as it stands in `words`, without regard to case. UsageError: it is none."""
    value = part.parameters.get(name)
    if value is None:
        return default
    for one in words:
        if str(value).lower() == one.lower():
            return one
    raise UsageError(f"{part.component}: {name} is {value!r}", hint=f"Use one of {', '.join(words)}.")


def compare_settings(part: ComponentPart, own: Mapping[str, Any], theirs: Mapping[str, Any], source: Party) -> None:
    """Compare parameters here with those at another party. UsageError: one differs."""
    for name, value in theirs.items():
        if name in own and own[name] != value:
            raise UsageError(
                f"{part.component}: {name} is {own[name]!r} at {part.here}, and {value!r} at {source}",
                hint="Set it in the common parameters.",
            )


def complete_matrix(part: ComponentPart, frame: PartyFrame) -> np.ndarray[Any, Any]:
    """Return the features of a frame, shape (rows, features). UsageError: a value is missing, or infinite."""
    matrix = frame.matrix()
    refuse_values(part, matrix, frame.features, ~np.isfinite(matrix), "Set missing_fill before it.")
    return matrix


def refuse_values(
    part: ComponentPart, matrix: np.ndarray[Any, Any], names: Sequence[str], wrong: np.ndarray[Any, Any], fill: str
) -> None:
    """Raise a UsageError that names the place of the first value that is `wrong`; `fill` is the hint if it is missing.

    `matrix` and `wrong` have shape (rows, features).
    """
    places = np.argwhere(wrong)
    if not len(places):
        return
    row, column = places[0]
    if np.isinf(matrix[row, column]):
        what, hint = "is infinite", "Correct the value, or leave its row or its column out."
    elif np.isnan(matrix[:, column]).all():
        what, hint = "is missing, as all values of that column are", "Leave the column out."
    else:
        what, hint = "is missing", fill
    raise UsageError(f"{part.component}: row {row + 1} of column {names[column]!r} at {part.here} {what}", hint=hint)


def columns_of(
    part: ComponentPart,
    frame: PartyFrame,
    model: Mapping[str, Any],
    read: Callable[[PartyFrame], np.ndarray[Any, Any]] | None = None,
) -> np.ndarray[Any, Any]:
    """Return the columns of `model["features"]` in their order, shape (rows, features).

    `read` returns the features of a frame; None: they must be complete.

    UsageError: this part does not have the model, or the rows have no such column.
    """
    if "features" not in model:
        raise UsageError(
            f"{part.component}: {part.here} does not have the model", hint="Name the model_version of a training job."
        )
    checked_columns(part, frame, model["features"])
    kept = PartyFrame(frame.ids, {name: frame.columns[name] for name in model["features"]})
    return complete_matrix(part, kept) if read is None else read(kept)


def weights_of(part: ComponentPart, frame: PartyFrame) -> np.ndarray[Any, Any] | None:
    """Return the weights of the rows of a frame, of mean 1; None: all count the same.

    UsageError: a weight is negative or no number, or all are zero.
    """
    if not frame.weight:
        return None
    try:
        found = frame.columns[frame.weight].astype(float)
    except (TypeError, ValueError):
        found = np.array([np.nan])
    if not np.isfinite(found).all() or (found < 0).any() or not found.sum():
        raise UsageError(
            f"{part.component}: column {frame.weight!r} at {part.here} has weights that are negative or no numbers",
            hint="Weights are numbers from 0 on, and one of them is above.",
        )
    weights: np.ndarray[Any, Any] = found / found.mean()
    return weights


def refuse_weights(part: ComponentPart, frame: PartyFrame) -> None:
    """UsageError: the rows have weights, which this component would not use."""
    if frame.weight:
        raise UsageError(
            f"{part.component}: {part.module} does not use weights of rows, and those of {part.here} have them",
            hint="Leave the SampleWeight before it out.",
        )


def labels_of(part: ComponentPart, frame: PartyFrame) -> np.ndarray[Any, Any]:
    """Return the labels of a frame. UsageError: it has none."""
    if frame.y is None:
        raise UsageError(f"{part.component}: the rows of {part.here} have no label", hint="Set with_label before it.")
    return frame.y


def classes_of(part: ComponentPart, frame: PartyFrame) -> list[Any]:
    """Return the labels of a frame, ascending. UsageError: it has none, only one, or too many."""
    classes: list[Any] = np.unique(labels_of(part, frame)).tolist()
    check_classes(part, classes)
    return classes


def check_classes(part: ComponentPart, classes: Sequence[Any]) -> None:
    """UsageError: there are no labels, only one, or too many."""
    if not classes:
        hint = "Compare the ids of the parties: the Intersection has found no common one."
        raise UsageError(f"{part.component}: there is no row to learn from", hint=hint)
    if len(classes) == 1:
        hint = "Give it rows of both classes; the Intersection may have left those of one alone."
        raise UsageError(f"{part.component}: all rows have the same label", hint=hint)
    if len(classes) > _MOST_CLASSES:
        message = f"{part.component}: there are {len(classes):,} different labels, and up to {_MOST_CLASSES} classes"
        raise UsageError(message, hint="Set label_type to float, and choose a regression.")


def refuse(part: ComponentPart, groups: Mapping[str, str], names: Sequence[str] = ()) -> None:
    """Refuse parameters that ask for something: fields of groups, and single ones. UsageError: one does."""
    asked = [f"{name}.{field}" for name, field in groups.items() if group(part, name).get(field)]
    asked += [name for name in names if part.parameters.get(name)]
    if asked:
        raise UsageError(f"{part.component}: {asked[0]} is not supported", hint="Set it to false, or leave it out.")
